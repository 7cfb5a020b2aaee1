//! The protocol state machines: bytes in, bytes and ops on volumes out. No sockets, no clock, no threads.
//!
//! [`iscsi`] carries SCSI commands over TCP (RFC 7143); [`scsi`] is the device server that they reach. [`nvme_tcp`] carries
//! NVMe commands over TCP; [`nvme`] has the subsystems and controllers that they reach. [`front`] is what the owner of the
//! sockets sees of both.

pub mod front;
pub mod iscsi;
pub mod nvme;
pub mod nvme_tcp;
mod pieces;
pub mod scsi;
mod slab;
#[cfg(test)]
mod test_disk;
