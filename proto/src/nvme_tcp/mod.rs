//! The NVMe/TCP transport (NVMe over TCP 1.1): bytes of TCP connections in, bytes and ops on volumes out.
//!
//! [`Node`] is all of it: the connections of one shard and the [`nvme::Target`](crate::nvme::Target) that they reach. Its
//! documentation says how it is driven.

mod node;

pub use crate::front::{ConnId, Refused};
pub use node::{Detached, Limits, Node, NodeConfig, Output};
