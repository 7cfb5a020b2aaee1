//! What a [`Node`](super::Node) is made of, and its limits.

use std::time::Duration;

use crate::front::Peers;
use crate::scsi::DeviceConfig;

/// Configuration of one node.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// Targets served by this node. No two with the same name.
    pub targets: Vec<TargetConfig>,
    /// Every target of the server, those of other nodes included: what SendTargets may answer (RFC 7143 Appendix C), and
    /// the names for which a login is sent [`Elsewhere`](super::Output::Elsewhere).
    pub directory: Vec<DirectoryEntry>,
    /// Limits, the same for every target.
    pub limits: Limits,
    /// The first TSIH is the one after this. Different after each start, so that a stale TSIH is not mistaken for a new one.
    pub tsih_seed: u16,
    /// Top 16 bits of every [`Tag`](platter_block::Tag), so that several front ends can share an engine.
    pub tag_base: u16,
}

/// One target of this node.
#[derive(Clone, Debug)]
pub struct TargetConfig {
    /// iSCSI name (RFC 7143 4.2.7), compared byte by byte.
    pub name: String,
    /// Shown to initiators as TargetAlias (13.6).
    pub alias: Option<String>,
    /// Who may log in.
    pub initiators: Peers,
    /// The SCSI device behind it.
    pub device: DeviceConfig,
}

/// One target as SendTargets tells it.
#[derive(Clone, Debug)]
pub struct DirectoryEntry {
    /// iSCSI name.
    pub name: String,
    /// Who is told.
    pub initiators: Peers,
    /// Where it is reached. Empty: only through the portal that the discovery session came in by.
    pub portals: Vec<PortalInfo>,
    /// Numbers of the portals through which it may be used; logins by others are answered "not found", and discovery by
    /// others tells `portals` at most. Empty: all.
    pub through: Vec<u16>,
}

impl DirectoryEntry {
    /// Whether it may be used by a connection that came in by `portal`.
    pub fn is_behind(&self, portal: &PortalInfo) -> bool {
        self.through.is_empty() || self.through.contains(&portal.number)
    }
}

/// A portal as initiators are told about it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortalInfo {
    /// `host:port`, `a.b.c.d:port` or `[v6]:port` (13.8). What peers behind address translation should dial, if configured.
    pub address: String,
    /// Target portal group tag (13.9).
    pub tag: u16,
    /// Tells the portals of the server apart; see [`DirectoryEntry::through`].
    pub number: u16,
}

/// Limits and timers. Each has an answer at the limit, named here.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Connections, before and after login. More are refused by [`Node::accept`](super::Node::accept).
    pub connections: usize,
    /// Sessions. More are answered 0302h, out of resources.
    pub sessions: usize,
    /// From accept to full feature phase, in total. Then the connection is closed.
    pub login_timeout: Duration,
    /// Silence from an initiator before it is pinged by a NOP-In.
    pub nop_interval: Duration,
    /// Silence after the ping before the connection is closed.
    pub nop_timeout: Duration,
    /// Longest wait for solicited data, and for a command that fills a gap in CmdSN. Then the connection is closed.
    pub data_timeout: Duration,
    /// MaxRecvDataSegmentLength that we declare (13.12), 512 to 2^24-1. A longer PDU ends the connection.
    pub max_recv_data_segment: u32,
    /// MaxBurstLength that we accept at most (13.13), 512 to 2^24-1.
    pub max_burst: u32,
    /// FirstBurstLength that we accept at most (13.14), 512 to `max_burst`.
    pub first_burst: u32,
    /// MaxOutstandingR2T that we accept at most (13.17), 1 to 65535.
    pub max_outstanding_r2t: u16,
    /// Whether unsolicited Data-Out PDUs are accepted: the InitialR2T=No of 13.10.
    pub unsolicited_data: bool,
    /// Whether immediate data are accepted (13.11).
    pub immediate_data: bool,
    /// Non-immediate commands that a session may have outstanding: MaxCmdSN - ExpCmdSN + 1 when idle. At least 1. Commands
    /// beyond the window are ignored as 4.2.2.1 says.
    pub command_window: u32,
    /// Immediate commands that a session may have outstanding. At least 2. More are rejected, reason 06h.
    pub immediate_commands: u32,
    /// Bytes waiting to be written on a connection at which nothing more is read from it. A peer that does not read is not
    /// served until it does, and is closed by the NOP timers.
    pub transmit_queue: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 1024,
            sessions: 512,
            login_timeout: Duration::from_secs(15),
            nop_interval: Duration::from_secs(30),
            nop_timeout: Duration::from_secs(30),
            data_timeout: Duration::from_secs(60),
            max_recv_data_segment: 256 << 10,
            max_burst: 1 << 20,
            first_burst: 64 << 10,
            max_outstanding_r2t: 4,
            unsolicited_data: true,
            immediate_data: true,
            command_window: 128,
            immediate_commands: 16,
            transmit_queue: 4 << 20,
        }
    }
}
