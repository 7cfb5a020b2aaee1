//! What a [`Target`](super::Target) is made of, and its limits.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use platter_block::{VolumeId, VolumeInfo};

use crate::front::Peers;

/// Configuration of the NVMe side of one shard.
#[derive(Clone, Debug)]
pub struct TargetConfig {
    /// NVM subsystems served here. No two with the same NQN, none with the well-known discovery NQN.
    pub subsystems: Vec<SubsystemConfig>,
    /// Every subsystem of the server, those of other shards included: the discovery log, and the names for which a Connect
    /// is sent [`Elsewhere`](super::Output::Elsewhere).
    pub directory: Vec<DirectoryEntry>,
    /// Other discovery subsystems that the discovery log names.
    pub referrals: Vec<PortalInfo>,
    /// Controller identifiers that are given out, within 1 to FFEFh. Two servers that export one subsystem need ranges that
    /// do not meet.
    pub cntlid: RangeInclusive<u16>,
    /// Limits and timers.
    pub limits: Limits,
    /// Top 16 bits of every [`Tag`](platter_block::Tag), so that several front ends can share an engine.
    pub tag_base: u16,
}

/// One NVM subsystem.
#[derive(Clone, Debug)]
pub struct SubsystemConfig {
    /// NVMe Qualified Name, at most 223 bytes, compared byte by byte.
    pub nqn: String,
    /// SN of Identify Controller: ASCII, at most 20 bytes, padded with spaces.
    pub serial: String,
    /// MN of Identify Controller: ASCII, at most 40 bytes.
    pub model: String,
    /// FR of Identify Controller: ASCII, at most 8 bytes.
    pub firmware: String,
    /// Who may connect.
    pub hosts: Peers,
    /// Namespaces; no two with the same NSID. May be empty.
    pub namespaces: Vec<NamespaceConfig>,
    /// ANA groups beyond their default: one that is not listed is optimized through every portal.
    pub ana_groups: BTreeMap<u32, AnaGroup>,
}

/// One namespace.
#[derive(Clone, Debug)]
pub struct NamespaceConfig {
    /// 1 to [`Limits::namespaces`].
    pub nsid: u32,
    /// The volume it shows.
    pub volume: VolumeId,
    /// What that volume is now.
    pub info: VolumeInfo,
    /// UUID (Namespace Identification Descriptor type 3): the same for every path and every server that exports the volume.
    pub uuid: [u8; 16],
    /// Write protected, whatever the volume allows.
    pub read_only: bool,
    /// ANA group, 1 to [`Limits::ana_groups`].
    pub ana_group: u32,
}

/// ANA states of one group, by the portal that a controller was connected through.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AnaGroup {
    /// By portal number; optimized through those not listed.
    pub through: BTreeMap<u16, AnaState>,
}

/// Asymmetric Namespace Access state (NVMe base, Asymmetric Namespace Access Reporting).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AnaState {
    /// 01h.
    #[default]
    Optimized,
    /// 02h.
    NonOptimized,
    /// 03h: commands that need the medium end with 3/02h.
    Inaccessible,
    /// 04h: as inaccessible, for good.
    PersistentLoss,
    /// 0Fh: commands that need the medium end with 3/03h.
    Change,
}

/// One subsystem as the discovery log tells it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirectoryEntry {
    /// NQN.
    pub nqn: String,
    /// Who is told.
    pub hosts: Peers,
    /// Where it is reached. Empty: only through the portal that the discovery connection came in by.
    pub portals: Vec<PortalInfo>,
    /// Numbers of the portals through which it may be used; Connect through others is refused as for an unknown name.
    /// Empty: all.
    pub through: Vec<u16>,
}

/// A portal as hosts are told about it: TRADDR, TRSVCID and PORTID of a discovery log entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortalInfo {
    /// Address as text, without brackets: IPv4, or IPv6 if it contains a colon.
    pub address: String,
    /// TCP port.
    pub port: u16,
    /// Tells the portals of the server apart: PORTID.
    pub number: u16,
}

/// Limits and timers. Each has an answer at the limit, named here.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Controllers, those of discovery included. Connect refuses more with 1/81h, Connect Controller Busy.
    pub controllers: usize,
    /// I/O queues of one controller, told by the Number of Queues feature. A larger QID is refused by Connect.
    pub io_queues: u16,
    /// Entries of a queue, MQES + 1, 2 to 65536. A larger SQSIZE is refused by Connect.
    pub queue_entries: u32,
    /// Largest NSID (NN and MNAN).
    pub namespaces: u32,
    /// ANA groups (ANAGRPMAX, NANAGRPID).
    pub ana_groups: u32,
    /// Largest transfer of one command in bytes, told as MDTS: a power of two times 4096.
    pub max_transfer: u32,
    /// In-capsule data of I/O commands in bytes (IOCCSZ), a multiple of 16.
    pub in_capsule: u32,
    /// Asynchronous Event Requests of a controller (AERL + 1). More end with 1/05h.
    pub async_events: u8,
    /// Abort commands of a controller at once (ACL + 1). More end with 1/03h.
    pub aborts: u8,
    /// Keep Alive timer where Connect asks for none on a persistent discovery controller.
    pub keep_alive: Duration,
    /// How long a command waits for payload memory before it ends with 0/21h, Command Interrupted, to be retried.
    pub memory_wait: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            controllers: 1024,
            io_queues: 128,
            queue_entries: 1024,
            namespaces: 1024,
            ana_groups: 128,
            max_transfer: 1 << 20,
            in_capsule: 8192,
            async_events: 4,
            aborts: 4,
            keep_alive: Duration::from_secs(120),
            memory_wait: Duration::from_secs(10),
        }
    }
}
