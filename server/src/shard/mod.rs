//! A shard: one thread that owns a group of disks, the volumes on them and the connections to their targets.
//!
//! The thread runs a tokio current-thread runtime. Its tasks wait (for sockets, disks, the clock, messages); whatever
//! wakes them, the work is done by one call of [`Core::turn`] and then [`Shard::settle`], without awaiting in between.
//! There is no lock and no other thread on the way from a socket to a disk and back.

mod clock;
mod core;
mod disks;
mod event;
mod report;
mod socket;

pub(crate) use clock::Clock;

use crate::config::{Disk, SegmentPlan};
use crate::state::State;
use crate::status::ShardStatus;
use core::{Core, Errand, ISCSI_TAGS};
use disks::Disks;
use platter_backends::FileBackend;
use platter_block::{BufPool, DiskId, Lba, Op, VolumeId};
use platter_engine::{Engine, Input, Segment};
use platter_proto::iscsi::{ConnId, Detached, Limits, Node, NodeConfig, PortalInfo, TargetConfig};
use socket::Socket;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::sync::{Notify, mpsc, oneshot};

/// How often missing disks are looked for.
const LOOK_FOR_DISKS: Duration = Duration::from_secs(3);
/// How long initiators get to log out at a planned stop.
const LOGOUT_GRACE: Duration = Duration::from_secs(2);
/// When a stop gives up on flushes, counted from its start: the process is gone within 5 s.
const STOP_DEADLINE: Duration = Duration::from_millis(4500);
/// Messages that wait for a shard; the sender waits beyond that.
pub(crate) const MAILBOX: usize = 64;

/// What a shard is made of.
pub(crate) struct ShardConfig {
    pub(crate) index: usize,
    pub(crate) clock: Clock,
    pub(crate) memory: usize,
    /// Makes the backend of the disks, in the shard's own thread, and says what it is.
    pub(crate) backend: BackendMaker,
    pub(crate) disks: Vec<(DiskId, Disk)>,
    /// Disks marked in the state folder, with the reason.
    pub(crate) poisoned: BTreeMap<DiskId, String>,
    pub(crate) volumes: Vec<VolumeConfig>,
    pub(crate) targets: Vec<TargetConfig>,
    pub(crate) directory: Vec<platter_proto::iscsi::DirectoryEntry>,
    pub(crate) tsih_seed: u16,
    /// Target name to shard, for every target of the server.
    pub(crate) shard_of_target: Arc<BTreeMap<String, usize>>,
    /// The mailboxes of all shards, this one included.
    pub(crate) peers: Vec<mpsc::Sender<Message>>,
    pub(crate) state: Arc<State>,
}

/// Makes a backend inside the thread that will use it.
pub(crate) type BackendMaker = Box<dyn FnOnce() -> std::io::Result<(Box<dyn FileBackend>, String)> + Send>;

/// A volume of this shard.
pub(crate) struct VolumeConfig {
    pub(crate) id: VolumeId,
    pub(crate) name: String,
    pub(crate) segments: Vec<SegmentPlan>,
    pub(crate) export: String,
}

/// What others ask of a shard.
pub(crate) enum Message {
    /// A socket was accepted.
    Accepted {
        stream: std::net::TcpStream,
        peer: String,
        portal: PortalInfo,
    },
    /// A login named a target of this shard.
    Adopt {
        stream: std::net::TcpStream,
        detached: Detached,
        unread: Vec<u8>,
    },
    Status(oneshot::Sender<ShardStatus>),
    /// Answers whether the disk is one of this shard's and was poisoned.
    ClearFault {
        disk: String,
        answer: oneshot::Sender<bool>,
    },
    /// Finish, flush and end. Answers whether everything acknowledged is durable.
    Stop(oneshot::Sender<bool>),
}

/// What the tasks of a shard share. Single-threaded; no borrow is held across an await.
struct Shard {
    core: RefCell<Core>,
    sockets: RefCell<BTreeMap<ConnId, Rc<Socket>>>,
    /// Where sockets are read when their bytes do not go straight to a buffer.
    scratch: RefCell<Vec<u8>>,
    /// The next tick that the timer task waits for.
    armed: Cell<Option<platter_block::Instant>>,
    rearm: Notify,
    index: usize,
    backend: String,
    volumes: Vec<VolumeConfig>,
    /// Volumes whose disks have not been seen yet: they have no segment map.
    unmapped: RefCell<Vec<usize>>,
    poisoned: RefCell<BTreeMap<DiskId, String>>,
    shard_of_target: Arc<BTreeMap<String, usize>>,
    peers: Vec<mpsc::Sender<Message>>,
    state: Arc<State>,
}

/// Runs a shard in the current thread until it is told to stop. `ready` is answered once its disks were looked for.
pub(crate) fn run(
    config: ShardConfig,
    mailbox: mpsc::Receiver<Message>,
    ready: oneshot::Sender<()>,
) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async move {
        let shard = Rc::new(Shard::new(config)?);
        shard.look_for_disks();
        let _ = ready.send(());
        tokio::task::spawn_local(shard.clone().watch_clock());
        tokio::task::spawn_local(shard.clone().watch_missing_disks());
        let event = shard.core.borrow().disks.event_fd().map(|fd| fd.try_clone_to_owned()).transpose()?;
        if let Some(event) = event {
            tokio::task::spawn_local(shard.clone().watch_disks(event::register(event)?));
        }
        shard.serve_mailbox(mailbox).await;
        Ok(())
    })
}

impl Shard {
    fn new(config: ShardConfig) -> std::io::Result<Self> {
        let (backend, backend_name) = (config.backend)()?;
        let mut disks = Disks::new(backend);
        let mut engine = Engine::new();
        for (id, disk) in config.disks {
            // Opened by `look_for_disks`: an attached disk is flushed once, so that what an earlier process left in its
            // cache is durable before a flush on it is ever elided.
            engine.add_disk(id, None, disks::policy(disk.fua), config.poisoned.contains_key(&id));
            disks.add(id, disk);
        }
        let node = Node::new(NodeConfig {
            targets: config.targets,
            directory: config.directory,
            limits: Limits::default(),
            tsih_seed: config.tsih_seed,
            tag_base: ISCSI_TAGS,
        });
        let pool = BufPool::new(config.memory);
        Ok(Self {
            core: RefCell::new(Core::new(config.clock, node, engine, pool, disks)),
            sockets: RefCell::default(),
            scratch: RefCell::new(vec![0; socket::SCRATCH]),
            armed: Cell::new(None),
            rearm: Notify::new(),
            index: config.index,
            backend: backend_name,
            unmapped: RefCell::new((0..config.volumes.len()).collect()),
            volumes: config.volumes,
            poisoned: RefCell::new(config.poisoned),
            shard_of_target: config.shard_of_target,
            peers: config.peers,
            state: config.state,
        })
    }

    /// Runs a turn and then does what it left to do.
    fn turn(self: &Rc<Self>) {
        self.core.borrow_mut().turn();
        self.settle();
    }

    /// Does the errands of the last turn: those of disks first, so that a failed flush is marked in the state folder before
    /// any reply leaves.
    fn settle(self: &Rc<Self>) {
        let mut later = Vec::new();
        loop {
            let errands = std::mem::take(&mut self.core.borrow_mut().errands);
            let (of_disks, of_sockets): (Vec<_>, Vec<_>) = errands
                .into_iter()
                .partition(|e| matches!(e, Errand::Gone(_) | Errand::Poisoned(_) | Errand::Healed(_)));
            later.extend(of_sockets);
            let now = if of_disks.is_empty() { std::mem::take(&mut later) } else { of_disks };
            if now.is_empty() {
                break;
            }
            now.into_iter().for_each(|errand| self.run_errand(errand));
        }
        let next = self.core.borrow().next_tick();
        let earlier = match (next, self.armed.get()) {
            (Some(next), Some(armed)) => next < armed,
            (Some(_), None) => true,
            (None, _) => false,
        };
        if earlier {
            self.armed.set(next);
            self.rearm.notify_one();
        }
    }

    fn run_errand(self: &Rc<Self>, errand: Errand) {
        match errand {
            Errand::Write(conn) => self.write(conn),
            Errand::Close { conn, flush } => self.close(conn, flush),
            Errand::Move { conn, target } => self.move_away(conn, &target),
            Errand::Gone(disk) => {
                let core = &mut *self.core.borrow_mut();
                if core.disks.lose(disk) {
                    core.engine.handle(core.clock.now(), Input::DiskLost { disk });
                    core.turn();
                }
            }
            Errand::Poisoned(disk) => {
                let name = self.core.borrow().disks.name(disk).to_owned();
                let why = "a flush failed: writes acknowledged before it may be lost";
                tracing::error!(
                    disk = name,
                    "disk is POISONED: {why}. Flushes and FUA writes fail until `platter clear-fault {name}`"
                );
                if let Err(e) = self.state.poison(&name, why) {
                    tracing::error!(disk = name, "the mark could not be stored and will not survive a restart: {e}");
                }
                self.poisoned.borrow_mut().insert(disk, why.to_owned());
            }
            Errand::Healed(disk) => {
                let name = self.core.borrow().disks.name(disk).to_owned();
                tracing::warn!(disk = name, "fault cleared by the operator");
                if let Err(e) = self.state.heal(&name) {
                    tracing::error!(disk = name, "the mark could not be removed and will be back after a restart: {e}");
                }
                self.poisoned.borrow_mut().remove(&disk);
            }
        }
    }

    /// Opens what is missing and tells the engine.
    fn look_for_disks(self: &Rc<Self>) {
        {
            let core = &mut *self.core.borrow_mut();
            let found = core.disks.open_missing();
            if found.is_empty() {
                return;
            }
            let now = core.clock.now();
            for (disk, info) in found {
                core.engine.handle(now, Input::DiskAttached { disk, info });
            }
            self.map_volumes(core);
        }
        self.turn();
    }

    /// Gives the volumes whose disks are all known by now their segment map.
    fn map_volumes(&self, core: &mut Core) {
        self.unmapped.borrow_mut().retain(|&at| {
            let volume = &self.volumes[at];
            let Some(segments) = segments(volume, core) else { return true };
            let mapped = segments.and_then(|segments| {
                core.engine.add_volume(volume.id, segments).map_err(|e| format!("{e:?}"))?;
                Ok(())
            });
            match mapped {
                Ok(()) => {
                    if let Some(info) = core.engine.volume_info(volume.id) {
                        core.node.volume_changed(volume.id, &info);
                    }
                }
                Err(why) => tracing::error!(volume = volume.name, "volume is not ready: {why}"),
            }
            false
        });
    }

    async fn watch_clock(self: Rc<Self>) {
        loop {
            let clock = self.core.borrow().clock;
            match self.armed.get() {
                Some(at) => {
                    tokio::select! {
                        () = tokio::time::sleep_until(clock.to_tokio(at)) => {}
                        () = self.rearm.notified() => continue,
                    }
                }
                None => {
                    self.rearm.notified().await;
                    continue;
                }
            }
            self.armed.set(None);
            self.core.borrow_mut().tick();
            self.turn();
        }
    }

    async fn watch_missing_disks(self: Rc<Self>) {
        let mut every = tokio::time::interval(LOOK_FOR_DISKS);
        loop {
            every.tick().await;
            let vanished = self.core.borrow().disks.vanished();
            vanished.into_iter().for_each(|disk| self.run_errand(Errand::Gone(disk)));
            self.settle();
            if self.core.borrow().disks.any_missing() {
                self.look_for_disks();
            }
        }
    }

    async fn watch_disks(self: Rc<Self>, event: AsyncFd<std::os::fd::OwnedFd>) {
        loop {
            match event.readable().await {
                Ok(mut guard) => {
                    self.turn();
                    guard.clear_ready();
                }
                Err(e) => {
                    tracing::error!("cannot wait for disks: {e}");
                    return;
                }
            }
        }
    }

    async fn serve_mailbox(self: &Rc<Self>, mut mailbox: mpsc::Receiver<Message>) {
        while let Some(message) = mailbox.recv().await {
            match message {
                Message::Accepted { stream, peer, portal } => {
                    let now = self.core.borrow().clock.now();
                    let accepted = self.core.borrow_mut().node.accept(now, &peer, portal);
                    match accepted {
                        Ok(conn) => self.start_socket(conn, stream, Vec::new()),
                        Err(why) => tracing::warn!(peer, "connection refused: {why}"),
                    }
                    // The login timer runs from now on.
                    self.settle();
                }
                Message::Adopt { stream, detached, unread } => {
                    let attached = {
                        let core = &mut *self.core.borrow_mut();
                        core.node.attach(core.clock.now(), detached, &mut core.pool)
                    };
                    match attached {
                        Ok(conn) => self.start_socket(conn, stream, unread),
                        Err(why) => tracing::warn!("connection refused: {why}"),
                    }
                    self.turn();
                }
                Message::Status(answer) => {
                    let _ = answer.send(self.report());
                }
                Message::ClearFault { disk, answer } => {
                    let found = self.core.borrow().disks.find(&disk);
                    let poisoned = found.filter(|id| self.poisoned.borrow().contains_key(id));
                    if let Some(disk) = poisoned {
                        let core = &mut *self.core.borrow_mut();
                        core.engine.handle(core.clock.now(), Input::ClearFault { disk });
                    }
                    self.turn();
                    let _ = answer.send(poisoned.is_some());
                }
                Message::Stop(answer) => {
                    let clean = self.stop().await;
                    let _ = answer.send(clean);
                    return;
                }
            }
        }
    }

    /// Lets initiators log out, ends what is in flight, and flushes every volume. Whether all of that came to an end and
    /// every flush was good.
    async fn stop(self: &Rc<Self>) -> bool {
        let started = tokio::time::Instant::now();
        {
            let core = &mut *self.core.borrow_mut();
            core.node.drain(core.clock.now(), LOGOUT_GRACE, &mut core.pool);
        }
        self.turn();
        let idle = || {
            let core = self.core.borrow();
            core.node.sessions().is_empty() && core.disks.in_flight() == 0
        };
        while !idle() && started.elapsed() < LOGOUT_GRACE + Duration::from_millis(500) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        for volume in &self.volumes {
            let mut core = self.core.borrow_mut();
            if core.engine.volume_info(volume.id).is_some_and(|info| info.ready && info.write_cache_changeable) {
                core.submit_own(volume.id, Op::Flush);
            }
        }
        self.turn();
        loop {
            let ended = self.core.borrow().own_ops_ended();
            if let Some(statuses) = ended {
                return statuses.iter().all(|s| s.is_good()) && self.nothing_is_owed();
            }
            if started.elapsed() >= STOP_DEADLINE {
                tracing::error!("a flush did not end in time: acknowledged writes may not be durable");
                return false;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Whether every acknowledged write is durable, on missing disks too: their volumes could not be flushed.
    fn nothing_is_owed(&self) -> bool {
        let core = self.core.borrow();
        core.disks.list().all(|(disk, config, _)| {
            let stats = core.engine.disk_stats(disk).unwrap_or_default();
            let owes = stats.poisoned || stats.undurable > 0;
            if owes {
                tracing::error!(disk = config.name, "acknowledged writes may not be durable");
            }
            !owes
        })
    }
}

/// The segments in blocks; `None` while a disk has not been seen.
fn segments(volume: &VolumeConfig, core: &Core) -> Option<Result<Vec<Segment>, String>> {
    let mut segments = Vec::new();
    let mut volume_lba = 0;
    for plan in &volume.segments {
        let disk = DiskId(plan.disk as u32);
        let info = core.disks.info(disk)?;
        let block = u64::from(info.block_size);
        let blocks = |bytes: u64| {
            if bytes.is_multiple_of(block) {
                Ok(bytes / block)
            } else {
                Err(format!(
                    "{bytes} bytes are not a multiple of the {block}-byte blocks of disk `{}`",
                    core.disks.name(disk)
                ))
            }
        };
        let converted = blocks(plan.offset).and_then(|from| {
            let count = match plan.size {
                Some(size) => blocks(size)?,
                None => info.blocks.saturating_sub(from),
            };
            if count == 0 || from + count > info.blocks {
                let name = core.disks.name(disk);
                return Err(format!("a segment ends beyond disk `{name}`, which has {} bytes", info.blocks * block));
            }
            Ok((from, count))
        });
        match converted {
            Ok((from, count)) => {
                segments.push(Segment { volume_lba: Lba(volume_lba), count, disk, disk_lba: Lba(from) });
                volume_lba += count;
            }
            Err(why) => return Some(Err(why)),
        }
    }
    Some(Ok(segments))
}
