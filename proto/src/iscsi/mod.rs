//! The iSCSI target node (RFC 7143): bytes of TCP connections in, bytes and ops on volumes out.
//!
//! [`Node`] is all of it: the connections and sessions of one shard and the [`scsi::Device`](crate::scsi::Device)s that
//! they reach. Its documentation says how it is driven. Section numbers without a name are those of RFC 7143.
//!
//! Where to look, along the way of a byte:
//!
//! * `deframe` cuts the stream into PDUs, `pdu` says what their fields are, `connection` takes them to who wants them.
//! * Before full feature phase: `login` is the state machine, `text` and `negotiate` the keys, `establish` finds target and
//!   session.
//! * After it: `requests` knows whose turn it is (`window`); `command`, `data_out`, `data_in` and `condition` are the life of
//!   a SCSI command; `tmf` ends commands early; `text_request` answers SendTargets.
//! * `sessions` is what belongs to one I_T nexus and how it ends, `timers` what happens because time passes.
//! * `transmit` is what waits to be written.
//!
//! Rules that hold everywhere
//! * N1 A command is answered once, or never if a task management function or the end of its session is answered instead.
//! * N2 Nothing of a command is left in the engine when that answer is given.
//! * N3 One connection per session (MaxConnections=1), error recovery level 0: a lost connection is a lost session.
//! * N4 What a peer sends is an error value: rejected (11.17), or the end of its connection where the framing or the session
//!   cannot be trusted any more (7.7, 7.8). Only our own mistakes panic.

mod command;
mod condition;
mod config;
mod connection;
mod data_in;
mod data_out;
mod deframe;
mod establish;
mod event;
mod login;
mod negotiate;
mod node;
mod pdu;
mod requests;
mod sessions;
#[cfg(test)]
mod tests;
mod text;
mod text_request;
mod timers;
mod tmf;
mod transmit;
mod window;

pub use crate::front::{ConnId, Peers as Initiators, Refused};
pub use config::{DirectoryEntry, Limits, NodeConfig, PortalInfo, TargetConfig};
pub use event::{Event, EventKind};
pub use node::{Detached, Node, Output, SessionInfo, SessionKind};
