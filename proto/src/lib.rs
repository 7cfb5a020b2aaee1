//! Protocols as pure state machines: bytes in, bytes and operations out. No sockets, no clock, no randomness.

pub mod iscsi;
pub mod scsi;
