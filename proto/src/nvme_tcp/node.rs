//! The node: its inputs, its outputs, and the order to use them in.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::ops::Range;
use std::time::Duration;

use platter_block::{BufId, BufPool, Instant, Report, Status, Tag, VolumeId, VolumeInfo};

use super::connection::{Connection, Phase, Sink};
use super::data_out::Wanted;
use crate::front::{self, ConnId, Refused};
use crate::nvme::{self, Event, PendingConnect, PortalInfo, QueueId, Target, TargetConfig};
use crate::slab::{Key, Slab};

/// Pieces of data shorter than this are not worth a read of their own.
const DIRECT_READ: usize = 16 << 10;

/// The most data in a capsule of the admin queue (NVMe/TCP, Data Transfer Model).
const ADMIN_CAPSULE_DATA: u32 = 8192;

/// The smallest MAXH2CDATA that there may be.
const MIN_MAX_H2C_DATA: u32 = 4096;

/// The NVMe/TCP side of one shard: its connections, and the subsystems that they reach.
///
/// How it is driven, with `pool` always the same buffer pool:
///
/// 1. A socket was accepted: [`accept`](Self::accept).
/// 2. While [`wants_bytes`](Self::wants_bytes): read the socket, [`received`](Self::received). Where
///    [`payload_space`](Self::payload_space) names a buffer, read there first (one `readv` into that and the shell's own
///    buffer is best) and say so by [`placed`](Self::placed).
/// 3. An op of [`Output::Submit`](front::Output::Submit) ended: [`completed`](Self::completed).
/// 4. [`poll_timeout`](Self::poll_timeout) has come: [`tick`](Self::tick). It has come as soon as
///    [`target_mut`](Self::target_mut) was used.
/// 5. After any of these, until `None`: [`poll_output`](Self::poll_output). On
///    [`Output::Transmit`](front::Output::Transmit), and whenever the socket becomes writable again:
///    [`transmit`](Self::transmit), `writev`, [`transmitted`](Self::transmitted), until `transmit` gives nothing; then ask
///    [`wants_bytes`](Self::wants_bytes) again.
/// 6. The socket is gone, for whatever reason, also after [`Output::Close`](front::Output::Close):
///    [`closed`](Self::closed), exactly once.
#[derive(Debug)]
pub struct Node {
    pub(super) limits: Limits,
    pub(super) target: Target,
    pub(super) conns: Slab<Box<Connection>>,
    /// The connection of each queue.
    pub(super) queues: BTreeMap<QueueId, Key>,
    pub(super) outputs: VecDeque<Output>,
    /// When the timers have to be looked at; maybe earlier than one is due.
    pub(super) timer: Option<Instant>,
    /// The most data in a capsule. One limit for all queues: what kind a queue is does not matter to memory.
    max_capsule_data: u32,
    /// The time of the last call.
    now: Instant,
}

/// Configuration of one node.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// What is reached.
    pub target: TargetConfig,
    /// Limits of the transport.
    pub limits: Limits,
}

/// Limits and timers of the transport. Each has an answer at the limit, named here.
///
/// A command has one R2T at a time, for all of its data; and there are no more commands than the queue has entries.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Connections. More are refused by [`Node::accept`].
    pub connections: usize,
    /// From accept to the end of Connect. Then the connection is closed.
    pub connect_timeout: Duration,
    /// Longest wait for the data of a command. Then the connection is closed.
    pub data_timeout: Duration,
    /// MAXH2CDATA of ICResp in bytes, at least 4096 and a multiple of 4. A longer H2CData PDU ends the connection.
    pub max_h2c_data: u32,
    /// Bytes waiting to be written on a connection at which nothing more is read from it.
    pub transmit_queue: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 4096,
            connect_timeout: Duration::from_secs(15),
            data_timeout: Duration::from_secs(60),
            max_h2c_data: 256 << 10,
            transmit_queue: 4 << 20,
        }
    }
}

/// What every step needs: the time, and the memory.
pub(super) struct Cx<'a> {
    pub(super) now: Instant,
    pub(super) pool: &'a mut BufPool,
}

/// What the node wants done.
pub type Output = front::Output<Event>;

/// A connection on its way to the node that serves its subsystem.
#[derive(Debug)]
pub struct Detached {
    conn: Box<Connection>,
    connect: PendingConnect,
    subsystem: String,
}

impl Detached {
    /// The subsystem that its Connect names.
    pub fn subsystem(&self) -> &str {
        &self.subsystem
    }
}

impl Node {
    /// A node without connections.
    pub fn new(config: NodeConfig) -> Self {
        let max_h2c_data = config.limits.max_h2c_data.max(MIN_MAX_H2C_DATA) & !3;
        Self {
            limits: Limits { max_h2c_data, ..config.limits },
            max_capsule_data: config.target.limits.in_capsule.max(ADMIN_CAPSULE_DATA),
            target: Target::new(config.target),
            conns: Slab::default(),
            queues: BTreeMap::new(),
            outputs: VecDeque::new(),
            timer: None,
            now: Instant::default(),
        }
    }

    /// A socket of `peer` was accepted on `portal`. The connect timer starts.
    pub fn accept(&mut self, now: Instant, peer: &str, portal: PortalInfo) -> Result<ConnId, Refused> {
        if self.conns.len() >= self.limits.connections {
            return Err(Refused::TooManyConnections);
        }
        let deadline = now + self.limits.connect_timeout;
        self.schedule(deadline);
        let conn = Connection::new(now, peer, portal, deadline, self.max_capsule_data);
        Ok(ConnId(self.conns.insert(Box::new(conn)).to_bits()))
    }

    /// Whether bytes of this connection would be taken now. False while its transmit queue is full, while a command with
    /// data in its capsule waits for memory, while its Connect waits for another node, and after its end. An
    /// [`Output::Transmit`](front::Output::Transmit) comes, or a write succeeds, before it is true again.
    pub fn wants_bytes(&self, conn: ConnId) -> bool {
        self.conns.get(key(conn)).is_some_and(|c| c.takes_bytes(self.limits.transmit_queue))
    }

    /// Takes bytes read from the socket, and returns how many: all of them, unless [`wants_bytes`](Self::wants_bytes)
    /// became false on the way; offer the rest again when it is true.
    pub fn received(&mut self, now: Instant, conn: ConnId, bytes: &[u8], pool: &mut BufPool) -> usize {
        if let Some(conn) = self.conns.get_mut(key(conn)).filter(|_| !bytes.is_empty()) {
            conn.alive = now;
        }
        self.take(&mut Cx { now, pool }, key(conn), bytes)
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
        self.take(&mut Cx { now, pool }, key, &[]);
    }

    /// The op of an [`Output::Submit`](front::Output::Submit) ended.
    pub fn completed(
        &mut self,
        now: Instant,
        tag: Tag,
        status: Status,
        report: Option<Box<Report>>,
        pool: &mut BufPool,
    ) {
        self.target.completed(now, tag, status, report, pool);
        self.settle(&mut Cx { now, pool });
    }

    /// The socket is gone: commands of its queue are aborted, and with an admin queue its controller ends.
    pub fn closed(&mut self, now: Instant, conn: ConnId, pool: &mut BufPool) {
        self.forget_connection(&mut Cx { now, pool }, key(conn));
    }

    /// A volume changed; told to the namespaces that show it.
    pub fn volume_changed(&mut self, now: Instant, volume: VolumeId, info: &VolumeInfo, pool: &mut BufPool) {
        self.target.volume_changed(now, volume, info, pool);
        self.settle(&mut Cx { now, pool });
    }

    /// The subsystems, to change them. What that causes happens at the next [`tick`](Self::tick), which is due now.
    pub fn target_mut(&mut self) -> &mut Target {
        self.schedule(self.now);
        &mut self.target
    }

    /// The subsystems and their controllers.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Runs the timers that are due.
    pub fn tick(&mut self, now: Instant, pool: &mut BufPool) {
        let mut cx = Cx { now, pool };
        self.run_timers(&mut cx);
        self.target.tick(now, cx.pool);
        self.settle(&mut cx);
    }

    /// When to call [`tick`](Self::tick) next, if nothing else happens.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timer.into_iter().chain(self.target.poll_timeout()).min()
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

    /// A planned stop: no new connections get through Connect, and those that are there are closed when what they have in
    /// progress was answered.
    pub fn drain(&mut self, now: Instant, pool: &mut BufPool) {
        self.target.drain(now, pool);
        self.settle(&mut Cx { now, pool });
    }

    /// Takes a connection out of this node after [`Output::Elsewhere`](front::Output::Elsewhere); `None` if it has ended
    /// meanwhile. Its `ConnId` is not used again, and `closed` is not called for it.
    pub fn detach(&mut self, conn: ConnId) -> Option<Detached> {
        let key = key(conn);
        let Phase::Elsewhere { queue, subsystem } = &self.conns.get(key)?.phase else { return None };
        let (queue, subsystem) = (*queue, subsystem.clone());
        let connect = self.target.take(queue)?;
        self.queues.remove(&queue);
        Some(Detached { conn: self.conns.remove(key)?, connect, subsystem })
    }

    /// Continues the Connect of a connection taken out of another node.
    pub fn attach(&mut self, now: Instant, detached: Detached, pool: &mut BufPool) -> Result<ConnId, Refused> {
        if self.conns.len() >= self.limits.connections {
            return Err(Refused::TooManyConnections);
        }
        let Detached { mut conn, connect, .. } = detached;
        self.schedule(conn.connect_deadline);
        let (queue, _) = self.target.adopt(now, connect, pool);
        conn.phase = Phase::Commands { queue };
        conn.announced = false;
        let key = self.conns.insert(conn);
        self.queues.insert(queue, key);
        // Also for what was not written there.
        self.announce(key);
        self.settle(&mut Cx { now, pool });
        Ok(ConnId(key.to_bits()))
    }

    /// Does what the target wants done.
    pub(super) fn settle(&mut self, cx: &mut Cx<'_>) {
        self.now = cx.now;
        while let Some(output) = self.target.poll_output() {
            match output {
                nvme::Output::Submit { tag, volume, op } => {
                    self.outputs.push_back(Output::Submit { tag, volume, op });
                }
                nvme::Output::Abort { tag } => self.outputs.push_back(Output::Abort { tag }),
                nvme::Output::Reply { queue, task: _, cqe, data, plain_success } => {
                    self.reply(cx, queue, cqe, data, plain_success);
                }
                nvme::Output::Receive { queue, task, cid, in_capsule, buf, at, len } => {
                    self.receive(cx, Wanted { queue, task, cid, in_capsule, buf, at, len });
                }
                nvme::Output::Close { queue } => {
                    if let Some(&key) = self.queues.get(&queue) {
                        self.close_connection(cx, key, true);
                    }
                }
                nvme::Output::Elsewhere { queue, subsystem } => self.elsewhere(queue, subsystem),
                nvme::Output::Event(event) => self.outputs.push_back(Output::Event(event)),
            }
        }
    }

    fn elsewhere(&mut self, queue: QueueId, subsystem: String) {
        let Some(&key) = self.queues.get(&queue) else { return };
        let Some(conn) = self.conns.get_mut(key) else { return };
        conn.phase = Phase::Elsewhere { queue, subsystem: subsystem.clone() };
        self.outputs.push_back(Output::Elsewhere { conn: ConnId(key.to_bits()), name: subsystem });
    }
}

const fn key(conn: ConnId) -> Key {
    Key::from_bits(conn.0)
}
