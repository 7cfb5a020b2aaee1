//! The iSCSI target node (RFC 7143): bytes of TCP connections in, bytes and ops on volumes out.
//!
//! [`Node`] is all of it: the connections and sessions of one shard and the [`scsi::Device`](crate::scsi::Device)s that
//! they reach. Its documentation says how it is driven. Section numbers without a name are those of RFC 7143.

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
mod slab;
#[cfg(test)]
mod tests;
mod text;
mod text_request;
mod timers;
mod tmf;
mod transmit;
mod window;

pub use config::{DirectoryEntry, Initiators, Limits, NodeConfig, PortalInfo, TargetConfig};
pub use event::{Event, EventKind};
pub use node::{ConnId, Detached, Node, Output, Refused, SessionInfo, SessionKind};
