//! The NVMe side of one shard: its inputs, its outputs, and the order to use them in.

use std::collections::{BTreeSet, VecDeque};
use std::ops::RangeInclusive;
use std::sync::Arc;

use platter_block::{BufId, BufPool, Instant, Op, Report, Status as OpStatus, Tag, VolumeId, VolumeInfo};

use super::config::{AnaGroup, DirectoryEntry, Limits, NamespaceConfig, PortalInfo, SubsystemConfig, TargetConfig};
use super::connect::ConnectRequest;
use super::controller::Controller;
use super::event::Event;
use super::queue::Queue;
use super::sqe::Sqe;
use super::status::Status;
use super::subsystem::{Directory, Subsystem};
use super::task::{Awaits, Task, Work};
use super::timers::MemoryWait;
use crate::front::Peers;
use crate::slab::{Key, Slab};

/// Subsystems, controllers, queues and the commands in them, above any transport.
///
/// How it is driven, with `pool` always the same buffer pool; after any of these, [`poll_output`](Self::poll_output) until
/// `None`:
///
/// 1. A transport connection is ready for commands: [`open`](Self::open) makes a queue that knows only Connect.
/// 2. A command capsule came: [`command`](Self::command).
/// 3. The bytes of [`Output::Receive`] are in place: [`received`](Self::received), or
///    [`transfer_failed`](Self::transfer_failed).
/// 4. An op of [`Output::Submit`] ended: [`completed`](Self::completed).
/// 5. [`poll_timeout`](Self::poll_timeout) has come: [`tick`](Self::tick).
/// 6. The connection is gone, for whatever reason, also after [`Output::Close`]: [`closed`](Self::closed), exactly once.
#[derive(Debug)]
pub struct Target {
    pub(super) limits: Limits,
    pub(super) cntlid: RangeInclusive<u16>,
    pub(super) tag_base: u16,
    pub(super) subsystems: Slab<Subsystem>,
    pub(super) directory: Directory,
    pub(super) queues: Slab<Queue>,
    /// Live ones, and those that have ended but whose last op has not.
    pub(super) controllers: Slab<Controller>,
    pub(super) tasks: Slab<Task>,
    pub(super) outputs: VecDeque<Output>,
    pub(super) memory: MemoryWait,
    /// When to look at the keep alive timers of controllers.
    pub(super) timers: BTreeSet<(Instant, Key)>,
    /// Connects that wait until an earlier controller is gone.
    pub(super) waiting_connects: Vec<Key>,
    /// One has gone since they were last looked at.
    pub(super) quiet: bool,
    pub(super) draining: bool,
    /// Controllers ever made.
    pub(super) made: u64,
    pub(super) last_cntlid: u16,
    /// The time of the call that is going on.
    pub(super) now: Instant,
}

/// Names a queue of one target: one transport connection. Never used again after [`Target::closed`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct QueueId(pub u64);

/// Names a command in progress. Never used again after its [`Output::Reply`] or after [`Target::closed`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TaskId(pub u64);

/// What the transport found in SGL descriptor 1 of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transfer {
    /// Its length in bytes.
    pub len: u32,
    /// The data are (or, for a read, would be: an error) inside the capsule.
    pub in_capsule: bool,
}

/// The host sent more commands than the queue has entries, which its flow control forbids: end the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Overrun;

/// What the target wants done.
#[derive(Debug)]
pub enum Output {
    /// Get `len` bytes from the host into `buf[at..at + len]`, then call [`Target::received`].
    Receive {
        /** The queue of the command. */
        queue: QueueId,
        /** The command. */
        task: TaskId,
        /** Its identifier. */
        cid: u16,
        /** As in its [`Transfer`]. */
        in_capsule: bool,
        /** Where to. The target owns it. */
        buf: BufId,
        /** First byte. */
        at: usize,
        /** How many; never 0. */
        len: usize,
    },
    /// Run `op` on `volume` and call [`Target::completed`] when it has ended.
    Submit {
        /** Unique among the ops in flight of this target. */
        tag: Tag,
        /** Which volume. */
        volume: VolumeId,
        /** What to do. */
        op: Op,
    },
    /// End this op early if possible; [`Target::completed`] is still called for it, exactly once.
    Abort {
        /** Which op. */
        tag: Tag,
    },
    /// The one end of a command: send the data, if any, then the completion queue entry.
    Reply {
        /** The queue. */
        queue: QueueId,
        /** The command. */
        task: TaskId,
        /** Completion queue entry. */
        cqe: [u8; 16],
        /** Data for the host; the transport owns the buffer from now on and frees it. */
        data: Option<ReplyData>,
        /** The entry says nothing but success and the queue has no flow control: the transport may leave it out where its
        own framing says the same. */
        plain_success: bool,
    },
    /// End the connection, after what was replied before has been written; then call [`Target::closed`].
    Close {
        /** The queue. */
        queue: QueueId,
    },
    /// The Connect names a subsystem of another shard: [`Target::take`] the queue here, [`Target::adopt`] it there.
    Elsewhere {
        /** The queue. */
        queue: QueueId,
        /** Subsystem NQN, as in the directory. */
        subsystem: String,
    },
    /// For the log.
    Event(Event),
}

/// Data of a [`Output::Reply`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplyData {
    /// The buffer.
    pub buf: BufId,
    /// First byte.
    pub at: usize,
    /// How many; never 0.
    pub len: usize,
}

/// A queue on its way to the target that has its subsystem, with its Connect.
#[derive(Debug)]
pub struct PendingConnect {
    peer: Arc<str>,
    portal: PortalInfo,
    sqe: Sqe,
    request: Box<ConnectRequest>,
}

/// One controller, for status displays.
#[derive(Clone, Debug)]
pub struct ControllerInfo {
    /// Host NQN.
    pub host: String,
    /// Host identifier.
    pub host_id: [u8; 16],
    /// Subsystem NQN.
    pub subsystem: String,
    /// Controller identifier.
    pub cntlid: u16,
    /// The peer of the admin queue.
    pub peer: String,
    /// Portal number of the admin queue.
    pub portal: u16,
    /// When it was connected.
    pub since: Instant,
    /// Keep Alive Timeout in milliseconds; 0 if none.
    pub kato: u32,
    /// I/O queues now.
    pub io_queues: usize,
    /// Commands in progress, waiting Asynchronous Event Requests not counted.
    pub tasks: usize,
    /// I/O commands begun since then.
    pub commands: u64,
    /// Bytes of I/O commands taken from the host.
    pub bytes_received: u64,
    /// Bytes of I/O commands sent to the host.
    pub bytes_sent: u64,
}

impl Target {
    /// A target without queues.
    pub fn new(config: TargetConfig) -> Self {
        let mut target = Self {
            limits: config.limits,
            last_cntlid: *config.cntlid.end(),
            cntlid: config.cntlid,
            tag_base: config.tag_base,
            subsystems: Slab::default(),
            directory: Directory { entries: config.directory, referrals: config.referrals, generation: 1 },
            queues: Slab::default(),
            controllers: Slab::default(),
            tasks: Slab::default(),
            outputs: VecDeque::new(),
            memory: MemoryWait::default(),
            timers: BTreeSet::new(),
            waiting_connects: Vec::new(),
            quiet: false,
            draining: false,
            made: 0,
            now: Instant::default(),
        };
        config.subsystems.into_iter().for_each(|s| target.add_subsystem(s));
        target
    }

    /// A transport connection of `peer`, which came in by `portal`, takes command capsules from now on. `portal` is as hosts
    /// are told about it.
    pub fn open(&mut self, now: Instant, peer: Arc<str>, portal: PortalInfo) -> QueueId {
        self.now = now;
        QueueId(self.queues.insert(Queue::new(peer, portal)).to_bits())
    }

    /// A command capsule: the submission queue entry as it came, and what the transport found in its SGL; `Err` if that is
    /// a descriptor that the transport does not know, with the status to answer.
    pub fn command(
        &mut self,
        now: Instant,
        queue: QueueId,
        sqe: &[u8; 64],
        transfer: Result<Transfer, Status>,
        pool: &mut BufPool,
    ) -> Result<(), Overrun> {
        self.now = now;
        let result = self.take_command(Key::from_bits(queue.0), Sqe(*sqe), transfer, pool);
        self.settle(pool);
        result
    }

    /// The bytes of [`Output::Receive`] are in place.
    pub fn received(&mut self, now: Instant, task: TaskId, pool: &mut BufPool) {
        self.now = now;
        self.data_came(Key::from_bits(task.0), None, pool);
        self.settle(pool);
    }

    /// The bytes of [`Output::Receive`] have all come, but wrongly: the command ends with `status`.
    pub fn transfer_failed(&mut self, now: Instant, task: TaskId, status: Status, pool: &mut BufPool) {
        self.now = now;
        self.data_came(Key::from_bits(task.0), Some(status), pool);
        self.settle(pool);
    }

    /// The op of an [`Output::Submit`] ended.
    pub fn completed(
        &mut self,
        now: Instant,
        tag: Tag,
        status: OpStatus,
        report: Option<Box<Report>>,
        pool: &mut BufPool,
    ) {
        self.now = now;
        self.op_ended(tag, status, report, pool);
        self.settle(pool);
    }

    /// The connection of a queue is gone: its commands end without a reply, and with an admin queue its controller.
    pub fn closed(&mut self, now: Instant, queue: QueueId, pool: &mut BufPool) {
        self.now = now;
        self.queue_closed(Key::from_bits(queue.0), pool);
        self.settle(pool);
    }

    /// Runs the timers that are due.
    pub fn tick(&mut self, now: Instant, pool: &mut BufPool) {
        self.now = now;
        self.run_timers(pool);
        self.settle(pool);
    }

    /// When to call [`tick`](Self::tick) next, if nothing else happens.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.next_timer()
    }

    /// The next thing to do.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Takes a queue out after [`Output::Elsewhere`]; `None` if it has ended meanwhile. Its [`QueueId`] is not used again,
    /// and `closed` is not called for it. Its task is still to be replied to, under the number that [`adopt`](Self::adopt)
    /// gives.
    pub fn take(&mut self, queue: QueueId) -> Option<PendingConnect> {
        let key = Key::from_bits(queue.0);
        let is_pending = |t: &&Key| self.tasks.get(**t).is_some_and(|t| t.awaits == Awaits::Elsewhere);
        let task = *self.queues.get(key)?.active.tasks().iter().find(is_pending)?;
        let mut task = self.tasks.remove(task)?;
        let queue = self.queues.remove(key)?;
        let Work::Connect(mut request) = std::mem::replace(&mut task.work, Work::Begin) else { return None };
        request.adopted = true;
        Some(PendingConnect { peer: queue.peer, portal: queue.portal, sqe: task.sqe, request })
    }

    /// Continues the Connect of a queue taken out of another target.
    pub fn adopt(&mut self, now: Instant, connect: PendingConnect, pool: &mut BufPool) -> (QueueId, TaskId) {
        self.now = now;
        let PendingConnect { peer, portal, sqe, request } = connect;
        let key = self.queues.insert(Queue::new(peer, portal));
        let transfer = Transfer { len: 0, in_capsule: false };
        let task = self.tasks.insert(Task::new(key, None, sqe, Ok(transfer)));
        if let Some(queue) = self.queues.get_mut(key) {
            queue.active.insert(sqe.cid(), task);
        }
        let outcome = self.connect(task, request);
        self.apply(task, outcome, pool);
        self.settle(pool);
        (QueueId(key.to_bits()), TaskId(task.to_bits()))
    }

    /// A volume changed: namespaces that show it change, and hosts are told.
    pub fn volume_changed(&mut self, now: Instant, volume: VolumeId, info: &VolumeInfo, pool: &mut BufPool) {
        self.now = now;
        self.change_volume(volume, info, pool);
        self.settle(pool);
    }

    /// Adds a subsystem.
    ///
    /// # Panics
    /// If its NQN is there already.
    pub fn add_subsystem(&mut self, config: SubsystemConfig) {
        self.insert_subsystem(Subsystem::new(config));
    }

    /// Takes a subsystem away: its controllers end. False if there is none.
    pub fn remove_subsystem(&mut self, now: Instant, nqn: &str, pool: &mut BufPool) -> bool {
        self.now = now;
        let found = self.take_subsystem(nqn, pool);
        self.settle(pool);
        found
    }

    /// Adds a namespace and tells the hosts (Namespace Attribute Changed). False if there is no such subsystem.
    ///
    /// # Panics
    /// If its NSID is there already.
    pub fn add_namespace(&mut self, now: Instant, nqn: &str, config: NamespaceConfig, pool: &mut BufPool) -> bool {
        self.now = now;
        let found = self.insert_namespace(nqn, config, pool);
        self.settle(pool);
        found
    }

    /// Takes a namespace away: commands in progress on it are aborted, later ones end with Invalid Namespace, and the hosts
    /// are told. False if there is none.
    pub fn remove_namespace(&mut self, now: Instant, nqn: &str, nsid: u32, pool: &mut BufPool) -> bool {
        self.now = now;
        let found = self.take_namespace(nqn, nsid, pool);
        self.settle(pool);
        found
    }

    /// Changes who may connect from now on. Controllers that are there stay. False if there is no such subsystem.
    pub fn set_hosts(&mut self, nqn: &str, hosts: Peers) -> bool {
        self.change_hosts(nqn, hosts)
    }

    /// Changes the states of an ANA group, and tells the hosts whose view changed (Asymmetric Namespace Access Change). False
    /// if there is no such subsystem.
    pub fn set_ana(&mut self, now: Instant, nqn: &str, group: u32, states: AnaGroup, pool: &mut BufPool) -> bool {
        self.now = now;
        let found = self.change_ana(nqn, group, states, pool);
        self.settle(pool);
        found
    }

    /// Changes the discovery log: its generation counter moves, and discovery controllers are told (Discovery Log Page
    /// Change).
    pub fn set_directory(
        &mut self,
        now: Instant,
        directory: Vec<DirectoryEntry>,
        referrals: Vec<PortalInfo>,
        pool: &mut BufPool,
    ) {
        self.now = now;
        self.change_directory(directory, referrals, pool);
        self.settle(pool);
    }

    /// A planned stop: Connect is refused from now on, and the connections of all controllers are closed; what they have in
    /// progress is finished and answered first, within the time that the owner grants.
    pub fn drain(&mut self, now: Instant, pool: &mut BufPool) {
        self.now = now;
        self.begin_drain(pool);
        self.settle(pool);
    }

    /// The controllers, in the order of their making.
    pub fn controllers(&self) -> Vec<ControllerInfo> {
        self.controller_infos()
    }
}
