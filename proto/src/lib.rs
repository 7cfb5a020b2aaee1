//! The protocol state machines: bytes in, bytes and ops on volumes out. No sockets, no clock, no threads.
//!
//! [`iscsi`] carries SCSI commands over TCP (RFC 7143); [`scsi`] is the device server that they reach.

pub mod iscsi;
pub mod scsi;
