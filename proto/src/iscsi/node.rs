//! The node: its inputs, its outputs, and the order to use them in.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::time::Duration;

use platter_block::{BufId, BufPool, Instant, Report, Status, Tag, VolumeId, VolumeInfo};

use super::command::Task;
use super::config::{DirectoryEntry, Limits, NodeConfig, PortalInfo, TargetConfig};
use super::connection::{Connection, Phase, Sink, Staged};
use super::event::Event;
use super::sessions::Session;
use super::tmf::TaskManagement;
use crate::front::{self, ConnId, Peers, Refused};
use crate::scsi::{Device, TaskSet};
use crate::slab::{Key, Slab};

/// Pieces of a data segment shorter than this are not worth a read of their own.
const DIRECT_READ: usize = 16 << 10;

/// The iSCSI side of one shard: connections, sessions, and the devices of its targets.
///
/// How it is driven, with `pool` always the same buffer pool:
///
/// 1. A socket was accepted: [`accept`](Self::accept).
/// 2. While [`wants_bytes`](Self::wants_bytes): read the socket, [`received`](Self::received). Where
///    [`payload_space`](Self::payload_space) names a buffer, read there first (one `readv` into that and the shell's own
///    buffer is best) and say so by [`placed`](Self::placed).
/// 3. An op of [`Output::Submit`] ended: [`completed`](Self::completed).
/// 4. [`poll_timeout`](Self::poll_timeout) has come: [`tick`](Self::tick).
/// 5. After any of these, until `None`: [`poll_output`](Self::poll_output). On [`Output::Transmit`], and whenever the socket
///    becomes writable again: [`transmit`](Self::transmit), `writev`, [`transmitted`](Self::transmitted), until `transmit`
///    gives nothing.
/// 6. The socket is gone, for whatever reason, also after [`Output::Close`]: [`closed`](Self::closed), exactly once.
#[derive(Debug)]
pub struct Node {
    pub(super) limits: Limits,
    pub(super) targets: Vec<Target>,
    pub(super) directory: Vec<DirectoryEntry>,
    pub(super) conns: Slab<Box<Connection>>,
    pub(super) sessions: Slab<Session>,
    pub(super) tasks: Slab<Task>,
    /// Task management functions in progress, in the order they came.
    pub(super) tmfs: Vec<TaskManagement>,
    /// Commands that their task set lets start now.
    pub(super) ready: Vec<u64>,
    pub(super) outputs: VecDeque<Output>,
    /// When the timers have to be looked at; maybe earlier than one is due.
    pub(super) timer: Option<Instant>,
    /// A planned stop is going on, until then.
    pub(super) drain_deadline: Option<Instant>,
    pub(super) last_tsih: u16,
    pub(super) last_nexus: u32,
    /// Target Transfer Tag of the last text exchange.
    pub(super) last_text: u32,
    pub(super) tag_base: u16,
}

/// A target of this node.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) name: String,
    pub(super) alias: Option<String>,
    pub(super) initiators: Peers,
    pub(super) device: Device,
    /// By unit index.
    sets: Vec<TaskSet>,
    /// Taken away: no new logins.
    pub(super) removed: bool,
}

impl Target {
    fn new(config: TargetConfig) -> Self {
        Self {
            name: config.name,
            alias: config.alias,
            initiators: config.initiators,
            device: Device::new(config.device),
            sets: Vec::new(),
            removed: false,
        }
    }

    /// The task set of a unit.
    pub(super) fn task_set(&mut self, unit: usize) -> &mut TaskSet {
        if self.sets.len() <= unit {
            self.sets.resize_with(unit + 1, TaskSet::default);
        }
        &mut self.sets[unit]
    }
}

impl Drop for Node {
    /// The pool goes with the node: commands in progress have nothing to give back.
    fn drop(&mut self) {
        for key in self.tasks.keys() {
            std::mem::forget(self.tasks.get_mut(key).and_then(|t| t.scsi.take()));
        }
    }
}

/// What every step needs: the time, and the memory.
pub(super) struct Cx<'a> {
    pub(super) now: Instant,
    pub(super) pool: &'a mut BufPool,
}

impl Cx<'_> {
    pub(super) fn free_staged(&mut self, staged: Option<Staged>) {
        if let Some(Staged { buf, .. }) = staged {
            self.pool.free(buf);
        }
    }
}

/// What the node wants done.
pub type Output = front::Output<Event>;

/// A connection on its way to the node that serves its target.
#[derive(Debug)]
pub struct Detached {
    conn: Box<Connection>,
    target: String,
}

impl Detached {
    /// The target that the login names.
    pub fn target(&self) -> &str {
        &self.target
    }
}

/// One session, for status displays.
#[derive(Clone, Debug)]
pub struct SessionInfo {
    /// What it is for.
    pub kind: SessionKind,
    /// Target name; `None` for a discovery session without one.
    pub target: Option<String>,
    /// Initiator name.
    pub initiator: String,
    /// InitiatorAlias, if declared.
    pub initiator_alias: Option<String>,
    /// Initiator part of the session identifier (11.12.5).
    pub isid: [u8; 6],
    /// Target part of the session identifier (11.12.6).
    pub tsih: u16,
    /// The connection, if it has one now.
    pub conn: Option<ConnId>,
    /// The peer, as given to `accept`.
    pub peer: String,
    /// When it reached full feature phase.
    pub since: Instant,
    /// Commands in progress.
    pub tasks: usize,
    /// SCSI commands begun since then.
    pub commands: u64,
    /// Data-Out bytes taken.
    pub bytes_received: u64,
    /// Data-In bytes sent.
    pub bytes_sent: u64,
    /// CRC32C over headers.
    pub header_digest: bool,
    /// CRC32C over data.
    pub data_digest: bool,
}

/// What a session is for (4.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SessionKind {
    /// SCSI commands.
    Normal,
    /// SendTargets only.
    Discovery,
}

impl Node {
    /// A node without connections.
    pub fn new(config: NodeConfig) -> Self {
        let limits = Limits { sessions: config.limits.sessions.min(0x8000), ..config.limits };
        Self {
            limits,
            targets: config.targets.into_iter().map(Target::new).collect(),
            directory: config.directory,
            conns: Slab::default(),
            sessions: Slab::default(),
            tasks: Slab::default(),
            tmfs: Vec::new(),
            ready: Vec::new(),
            outputs: VecDeque::new(),
            timer: None,
            drain_deadline: None,
            last_tsih: config.tsih_seed,
            last_nexus: 0,
            last_text: 0,
            tag_base: config.tag_base,
        }
    }

    /// A socket of `peer` was accepted on `portal`. The login timer starts.
    pub fn accept(&mut self, now: Instant, peer: &str, portal: PortalInfo) -> Result<ConnId, Refused> {
        if self.conns.len() >= self.limits.connections {
            return Err(Refused::TooManyConnections);
        }
        let deadline = now + self.limits.login_timeout;
        self.schedule(deadline);
        let key = self.conns.insert(Box::new(Connection::new(now, peer, portal, deadline)));
        Ok(ConnId(key.to_bits()))
    }

    /// Whether bytes of this connection would be taken now. False while its transmit queue is full, while its login waits
    /// for an old session to end or for another node, and after its end.
    pub fn wants_bytes(&self, conn: ConnId) -> bool {
        let Some(conn) = self.conns.get(key(conn)) else { return false };
        match conn.phase {
            Phase::Closed => false,
            _ => !conn.rx.between_pdus() || conn.takes_pdus(self.limits.transmit_queue),
        }
    }

    /// Takes bytes read from the socket, and returns how many: all of them, unless [`wants_bytes`](Self::wants_bytes)
    /// became false on the way; offer the rest again when it is true.
    pub fn received(&mut self, now: Instant, conn: ConnId, bytes: &[u8], pool: &mut BufPool) -> usize {
        let mut cx = Cx { now, pool };
        if let Some(conn) = self.conns.get_mut(key(conn)).filter(|_| !bytes.is_empty()) {
            conn.alive = now;
        }
        let taken = self.take(&mut cx, key(conn), bytes);
        self.start_ready(&mut cx);
        taken
    }

    /// Where the next bytes of this connection belong, if that is a piece of a buffer large enough to be worth a direct
    /// read. Valid until the next call of any method that takes `&mut self`.
    pub fn payload_space(&self, conn: ConnId) -> Option<(BufId, Range<usize>)> {
        let conn = self.conns.get(key(conn))?;
        let Sink::Buffer { buf, at, limit } = conn.sink else { return None };
        let len = limit.checked_sub(at)?.min(conn.rx.data_left());
        (len >= DIRECT_READ).then(|| (buf, at..at + len))
    }

    /// The first `n` bytes of the last [`payload_space`](Self::payload_space) were read into it.
    pub fn placed(&mut self, now: Instant, conn: ConnId, n: usize, pool: &mut BufPool) {
        let key = key(conn);
        let Some(conn) = self.conns.get_mut(key) else { return };
        let Sink::Buffer { buf, at, .. } = &mut conn.sink else { return };
        conn.rx.data_taken(&pool.bytes(*buf)[*at..*at + n]);
        *at += n;
        conn.alive = now;
        let mut cx = Cx { now, pool };
        self.take(&mut cx, key, &[]);
        self.start_ready(&mut cx);
    }

    /// The op of an [`Output::Submit`] ended.
    pub fn completed(
        &mut self,
        now: Instant,
        tag: Tag,
        status: Status,
        report: Option<Box<Report>>,
        pool: &mut BufPool,
    ) {
        let mut cx = Cx { now, pool };
        self.op_ended(&mut cx, tag, status, report);
        self.start_ready(&mut cx);
    }

    /// The socket is gone. Commands of its session are aborted; the session ends when they have.
    pub fn closed(&mut self, now: Instant, conn: ConnId, pool: &mut BufPool) {
        let mut cx = Cx { now, pool };
        self.forget_connection(&mut cx, key(conn));
        self.start_ready(&mut cx);
    }

    /// A volume changed; told to the units that show it.
    pub fn volume_changed(&mut self, volume: VolumeId, info: &VolumeInfo) {
        for target in &mut self.targets {
            target.device.volume_changed(volume, info.clone());
        }
    }

    /// Runs the timers that are due.
    pub fn tick(&mut self, now: Instant, pool: &mut BufPool) {
        let mut cx = Cx { now, pool };
        self.run_timers(&mut cx);
        self.start_ready(&mut cx);
    }

    /// When to call [`tick`](Self::tick) next, if nothing else happens.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timer
    }

    /// The next thing to do.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Appends to `iov` what is to be written next on `conn`; at most 256 pieces and about 1 MiB. Nothing if nothing is.
    pub fn transmit<'a>(&'a self, conn: ConnId, pool: &'a BufPool, iov: &mut Vec<io::IoSlice<'a>>) {
        if let Some(conn) = self.conns.get(key(conn)) {
            conn.tx.gather(pool, iov);
        }
    }

    /// The first `n` bytes of what [`transmit`](Self::transmit) gave have been written. Buffers of what is complete are
    /// freed.
    pub fn transmitted(&mut self, now: Instant, conn: ConnId, n: usize, pool: &mut BufPool) {
        self.wrote(&mut Cx { now, pool }, key(conn), n);
    }

    /// A planned stop: new logins are refused with 0301h (service unavailable), discovery sessions are closed, and normal
    /// sessions are asked to log out within `grace` (AsyncEvent 1, 11.9.1). Those that have not are told of the drop and
    /// closed then.
    pub fn drain(&mut self, now: Instant, grace: Duration, pool: &mut BufPool) {
        let mut cx = Cx { now, pool };
        self.begin_drain(&mut cx, grace);
        self.start_ready(&mut cx);
    }

    /// The sessions, in no particular order.
    pub fn sessions(&self) -> Vec<SessionInfo> {
        self.sessions.iter().map(|(_, s)| s.info()).collect()
    }

    /// Takes a connection out of this node after [`Output::Elsewhere`]; `None` if it has ended meanwhile. Its `ConnId` is
    /// not used again, and `closed` is not called for it.
    pub fn detach(&mut self, conn: ConnId) -> Option<Detached> {
        let key = key(conn);
        let Phase::Elsewhere(login) = &self.conns.get(key)?.phase else { return None };
        let target = login.names().target.clone()?;
        Some(Detached { conn: self.conns.remove(key)?, target })
    }

    /// Continues the login of a connection taken out of another node.
    pub fn attach(&mut self, now: Instant, detached: Detached, pool: &mut BufPool) -> Result<ConnId, Refused> {
        if self.conns.len() >= self.limits.connections {
            return Err(Refused::TooManyConnections);
        }
        let mut conn = detached.conn;
        conn.moved = true;
        self.schedule(conn.login_deadline);
        if let Phase::Elsewhere(login) = std::mem::replace(&mut conn.phase, Phase::Closed) {
            conn.phase = Phase::Login(login);
        }
        let key = self.conns.insert(conn);
        self.login_text(&mut Cx { now, pool }, key);
        Ok(ConnId(key.to_bits()))
    }

    /// The device of the target with this name.
    pub fn device_mut(&mut self, target: &str) -> Option<&mut Device> {
        self.targets.iter_mut().find(|t| t.name == target && !t.removed).map(|t| &mut t.device)
    }

    /// Replaces the directory.
    pub fn set_directory(&mut self, directory: Vec<DirectoryEntry>) {
        self.directory = directory;
    }

    /// Adds a target. No other that is there has its name.
    pub fn add_target(&mut self, config: TargetConfig) {
        assert!(self.device_mut(&config.name).is_none(), "target {} is there already", config.name);
        self.targets.push(Target::new(config));
    }

    /// Takes a target away: its sessions are told and closed, and nobody can log in to it any more. False if there is none.
    pub fn remove_target(&mut self, now: Instant, target: &str, pool: &mut BufPool) -> bool {
        let Some(at) = self.targets.iter().position(|t| t.name == target && !t.removed) else { return false };
        self.targets[at].removed = true;
        let mut cx = Cx { now, pool };
        self.close_target(&mut cx, at);
        self.start_ready(&mut cx);
        true
    }

    /// Changes who may log in to a target from now on. Sessions that are there stay. False if there is no such target.
    pub fn set_initiators(&mut self, target: &str, initiators: Peers) -> bool {
        let found = self.targets.iter_mut().find(|t| t.name == target && !t.removed);
        found.map(|t| t.initiators = initiators).is_some()
    }

    /// Starts the commands that a task set has let go.
    fn start_ready(&mut self, cx: &mut Cx<'_>) {
        while !self.ready.is_empty() {
            for id in std::mem::take(&mut self.ready) {
                self.start(cx, Key::from_bits(id));
            }
        }
    }
}

const fn key(conn: ConnId) -> Key {
    Key::from_bits(conn.0)
}
