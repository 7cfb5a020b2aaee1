//! The NVMe/TCP transport (NVMe over TCP 1.1): bytes of TCP connections in, bytes and ops on volumes out.
//!
//! [`Node`] is all of it: the connections of one shard and the [`nvme::Target`](crate::nvme::Target) that they reach. Its
//! documentation says how it is driven. A connection is a queue; what its commands mean is the target's business.
//!
//! Where to look, along the way of a byte:
//!
//! * `deframe` cuts the stream into PDUs, `pdu` says what their fields are, `connection` takes them to who wants them.
//! * `sgl` says what data a command moves; `data_out` gets those of the host, `data_in` sends those for it and the answer.
//! * `term` ends a connection whose peer is broken, `timers` one whose peer is silent.
//! * `transmit` is what waits to be written.
//!
//! Rules that hold everywhere
//! * T1 What the target asked for is taken to the end: a command gets `received` or `transfer_failed` exactly once, unless
//!   its queue is `closed`. Until then its buffer is the target's, and only the PDU in progress writes to it.
//! * T2 A connection has a queue from ICReq to its end. `closed` ends that at once, before anything else is sent.
//! * T3 What a peer sends is an error value: a status where a command is to blame, a C2HTermReq where the framing or the
//!   order of PDUs cannot be trusted any more. Only our own mistakes panic.

mod connection;
mod data_in;
mod data_out;
mod deframe;
mod node;
mod pdu;
mod sgl;
mod term;
#[cfg(test)]
mod tests;
mod timers;
mod transmit;

pub use crate::front::{ConnId, Refused};
pub use node::{Detached, Limits, Node, NodeConfig, Output};
