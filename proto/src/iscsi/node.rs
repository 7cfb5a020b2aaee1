//! The node: its inputs, its outputs, and the order to use them in.

use std::fmt;
use std::io;
use std::ops::Range;
use std::time::Duration;

use platter_block::{BufId, BufPool, Instant, Op, Report, Status, Tag, VolumeId, VolumeInfo};

use super::config::{DirectoryEntry, NodeConfig, PortalInfo};
use super::event::Event;
use crate::scsi::Device;

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
    config: NodeConfig,
    devices: Vec<Device>,
}

/// Names a connection of one node. Never used again after [`Node::closed`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConnId(pub u64);

/// Why a connection was not accepted: close the socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// [`Limits::connections`](super::Limits::connections) are there already.
    TooManyConnections,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooManyConnections => f.write_str("too many connections"),
        }
    }
}

impl std::error::Error for Refused {}

/// What the node wants done.
#[derive(Debug)]
pub enum Output {
    /// Run `op` on `volume` and call [`Node::completed`] when it has ended.
    Submit {
        /// Unique among the ops in flight of this node; its top 16 bits are [`NodeConfig::tag_base`].
        tag: Tag,
        /// Which volume.
        volume: VolumeId,
        /// What to do.
        op: Op,
    },
    /// End this op early if possible; [`Node::completed`] is still called for it, exactly once.
    Abort {
        /// Which op.
        tag: Tag,
    },
    /// There is something to write on a connection that had nothing.
    Transmit {
        /// Which connection.
        conn: ConnId,
    },
    /// Close the socket, then call [`Node::closed`].
    Close {
        /// Which connection.
        conn: ConnId,
        /// First write what [`Node::transmit`] still gives, for a few seconds at most.
        flush: bool,
    },
    /// For the log.
    Event(Event),
    /// The login names a target of another node: [`Node::detach`] it here, [`Node::attach`] it there. No bytes are taken
    /// until then.
    Elsewhere {
        /// Which connection.
        conn: ConnId,
        /// The target's name, as in the directory.
        target: String,
    },
}

/// A connection on its way to the node that serves its target.
#[derive(Debug)]
pub struct Detached {
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
        let devices = config.targets.iter().map(|t| Device::new(t.device.clone())).collect();
        Self { config, devices }
    }

    /// A socket of `peer` was accepted on `portal`. The login timer starts.
    pub fn accept(&mut self, now: Instant, peer: &str, portal: PortalInfo) -> Result<ConnId, Refused> {
        let _ = (now, peer, portal);
        Err(Refused::TooManyConnections)
    }

    /// Whether bytes of this connection would be taken now. False while its transmit queue is full, while its login waits
    /// for an old session to end or for another node, and after its end.
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

    /// The op of an [`Output::Submit`] ended.
    pub fn completed(
        &mut self,
        now: Instant,
        tag: Tag,
        status: Status,
        report: Option<Box<Report>>,
        pool: &mut BufPool,
    ) {
        let _ = (now, tag, status, report, pool);
    }

    /// The socket is gone. Commands of its session are aborted; the session ends when they have.
    pub fn closed(&mut self, now: Instant, conn: ConnId, pool: &mut BufPool) {
        let _ = (now, conn, pool);
    }

    /// A volume changed; told to the units that show it.
    pub fn volume_changed(&mut self, volume: VolumeId, info: &VolumeInfo) {
        for device in &mut self.devices {
            device.volume_changed(volume, info.clone());
        }
    }

    /// Runs the timers that are due.
    pub fn tick(&mut self, now: Instant, pool: &mut BufPool) {
        let _ = (now, pool);
    }

    /// When to call [`tick`](Self::tick) next, if nothing else happens.
    pub fn poll_timeout(&self) -> Option<Instant> {
        None
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

    /// A planned stop: new logins are refused with 0301h (service unavailable), discovery sessions are closed, and normal
    /// sessions are asked to log out within `grace` (AsyncEvent 1, 11.9.1). Those that have not are told of the drop and
    /// closed then.
    pub fn drain(&mut self, now: Instant, grace: Duration, pool: &mut BufPool) {
        let _ = (now, grace, pool);
    }

    /// The sessions, oldest first.
    pub fn sessions(&self) -> Vec<SessionInfo> {
        Vec::new()
    }

    /// Takes a connection out of this node after [`Output::Elsewhere`]; `None` if it has ended meanwhile. Its `ConnId` is
    /// not used again, and `closed` is not called for it.
    pub fn detach(&mut self, conn: ConnId) -> Option<Detached> {
        let _ = conn;
        None
    }

    /// Continues the login of a connection taken out of another node.
    pub fn attach(&mut self, now: Instant, detached: Detached, pool: &mut BufPool) -> Result<ConnId, Refused> {
        let _ = (now, detached, pool);
        Err(Refused::TooManyConnections)
    }

    /// The device of the target with this name.
    pub fn device_mut(&mut self, target: &str) -> Option<&mut Device> {
        let at = self.config.targets.iter().position(|t| t.name == target)?;
        self.devices.get_mut(at)
    }

    /// Replaces the directory.
    pub fn set_directory(&mut self, directory: Vec<DirectoryEntry>) {
        self.config.directory = directory;
    }
}
