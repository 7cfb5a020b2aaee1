//! The node: its inputs, its outputs, and the order to use them in.

use std::io;
use std::ops::Range;
use std::time::Duration;

use platter_block::{BufId, BufPool, Instant, Report, Status, Tag, VolumeId, VolumeInfo};

use crate::front::{self, ConnId, Refused};
use crate::nvme::{Event, PortalInfo, Target, TargetConfig};

/// The NVMe/TCP side of one shard: its connections, and the subsystems that they reach.
///
/// How it is driven, with `pool` always the same buffer pool:
///
/// 1. A socket was accepted: [`accept`](Self::accept).
/// 2. While [`wants_bytes`](Self::wants_bytes): read the socket, [`received`](Self::received). Where
///    [`payload_space`](Self::payload_space) names a buffer, read there first (one `readv` into that and the shell's own
///    buffer is best) and say so by [`placed`](Self::placed).
/// 3. An op of [`Output::Submit`](front::Output::Submit) ended: [`completed`](Self::completed).
/// 4. [`poll_timeout`](Self::poll_timeout) has come: [`tick`](Self::tick).
/// 5. After any of these, and after anything done to [`target_mut`](Self::target_mut), until `None`:
///    [`poll_output`](Self::poll_output). On [`Output::Transmit`](front::Output::Transmit), and whenever the socket becomes
///    writable again: [`transmit`](Self::transmit), `writev`, [`transmitted`](Self::transmitted), until `transmit` gives
///    nothing.
/// 6. The socket is gone, for whatever reason, also after [`Output::Close`](front::Output::Close):
///    [`closed`](Self::closed), exactly once.
#[derive(Debug)]
pub struct Node {
    target: Target,
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
#[derive(Clone, Debug)]
pub struct Limits {
    /// Connections. More are refused by [`Node::accept`].
    pub connections: usize,
    /// From accept to the end of Connect. Then the connection is closed.
    pub connect_timeout: Duration,
    /// Longest wait for the data of an R2T. Then the connection is closed.
    pub data_timeout: Duration,
    /// MAXH2CDATA of ICResp in bytes, at least 4096 and a multiple of 4. A longer H2CData PDU ends the connection.
    pub max_h2c_data: u32,
    /// R2Ts of one command at once, at most what the host allows by MAXR2T.
    pub r2ts: u16,
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
            r2ts: 4,
            transmit_queue: 4 << 20,
        }
    }
}

/// What the node wants done.
pub type Output = front::Output<Event>;

/// A connection on its way to the node that serves its subsystem.
#[derive(Debug)]
pub struct Detached {
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
        Self { target: Target::new(config.target) }
    }

    /// A socket of `peer` was accepted on `portal`. The connect timer starts.
    pub fn accept(&mut self, now: Instant, peer: &str, portal: PortalInfo) -> Result<ConnId, Refused> {
        let _ = (now, peer, portal);
        Err(Refused::TooManyConnections)
    }

    /// Whether bytes of this connection would be taken now.
    pub fn wants_bytes(&self, conn: ConnId) -> bool {
        let _ = conn;
        false
    }

    /// Takes bytes read from the socket, and returns how many: all of them, unless [`wants_bytes`](Self::wants_bytes)
    /// became false on the way; offer the rest again when it is true.
    pub fn received(&mut self, now: Instant, conn: ConnId, bytes: &[u8], pool: &mut BufPool) -> usize {
        let _ = (now, conn, pool);
        bytes.len()
    }

    /// Where the next bytes of this connection belong, if that is a piece of a buffer large enough to be worth a direct
    /// read. Valid until the next call of any method that takes `&mut self`.
    pub fn payload_space(&self, conn: ConnId) -> Option<(BufId, Range<usize>)> {
        let _ = conn;
        None
    }

    /// The first `n` bytes of the last [`payload_space`](Self::payload_space) were read into it.
    pub fn placed(&mut self, now: Instant, conn: ConnId, n: usize, pool: &mut BufPool) {
        let _ = (now, conn, n, pool);
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
    }

    /// The socket is gone.
    pub fn closed(&mut self, now: Instant, conn: ConnId, pool: &mut BufPool) {
        let _ = (now, conn, pool);
    }

    /// A volume changed; told to the namespaces that show it.
    pub fn volume_changed(&mut self, now: Instant, volume: VolumeId, info: &VolumeInfo, pool: &mut BufPool) {
        self.target.volume_changed(now, volume, info, pool);
    }

    /// The subsystems, to change them.
    pub fn target_mut(&mut self) -> &mut Target {
        &mut self.target
    }

    /// The subsystems and their controllers.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Runs the timers that are due.
    pub fn tick(&mut self, now: Instant, pool: &mut BufPool) {
        self.target.tick(now, pool);
    }

    /// When to call [`tick`](Self::tick) next, if nothing else happens.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.target.poll_timeout()
    }

    /// The next thing to do.
    pub fn poll_output(&mut self) -> Option<Output> {
        None
    }

    /// Appends to `iov` what is to be written next on `conn`; at most 256 pieces and about 1 MiB. Nothing if nothing is.
    pub fn transmit<'a>(&'a self, conn: ConnId, pool: &'a BufPool, iov: &mut Vec<io::IoSlice<'a>>) {
        let _ = (conn, pool, iov);
    }

    /// The first `n` bytes of what [`transmit`](Self::transmit) gave have been written. Buffers of what is complete are
    /// freed.
    pub fn transmitted(&mut self, now: Instant, conn: ConnId, n: usize, pool: &mut BufPool) {
        let _ = (now, conn, n, pool);
    }

    /// A planned stop: no new connections get through Connect, and those that are there are closed when what they have in
    /// progress was answered.
    pub fn drain(&mut self, now: Instant, pool: &mut BufPool) {
        self.target.drain(now, pool);
    }

    /// Takes a connection out of this node after [`Output::Elsewhere`](front::Output::Elsewhere); `None` if it has ended
    /// meanwhile. Its `ConnId` is not used again, and `closed` is not called for it.
    pub fn detach(&mut self, conn: ConnId) -> Option<Detached> {
        let _ = conn;
        None
    }

    /// Continues the Connect of a connection taken out of another node.
    pub fn attach(&mut self, now: Instant, detached: Detached, pool: &mut BufPool) -> Result<ConnId, Refused> {
        let _ = (now, detached, pool);
        Err(Refused::TooManyConnections)
    }
}
