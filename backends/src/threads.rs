//! Disks served by plain threads that block in system calls.
//!
//! Each disk has threads of its own (see `pool`). An op costs two thread switches, about twice the CPU of io_uring; the
//! owner is woken once for all that ended since it last looked.
//!
//! A FUA write to a block device goes by native AIO, which spares it a flush of the device (see `fua`). Where the system
//! refuses that as well, it costs the flush.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use platter_block::{DiskId, DiskOp, IoId, IoSlice, Status};

use crate::job::{self, Disk, Job};
use crate::ledger::Ledger;
use crate::pool::{Completions, MIN_THREADS, Pool};
use crate::{Backend, Ended, FileBackend, OpenDisk, wake};

/// Disks served by plain threads: the second choice, for where io_uring is not allowed.
#[derive(Debug)]
pub struct Threads {
    disks: BTreeMap<DiskId, Served>,
    ledger: Ledger,
    completions: Arc<Completions>,
    event: Arc<OwnedFd>,
    per_disk: usize,
}

#[derive(Debug)]
struct Served {
    disk: Arc<Disk>,
    pool: Pool,
}

impl Threads {
    /// No disks yet. Each disk will get up to `per_disk` threads of its own (4 if less is asked), started as they are
    /// needed: as many reads and writes can be in the disk's hands at once. 16 to 32 suit spinning disks.
    ///
    /// # Errors
    ///
    /// When the process is out of file descriptors.
    pub fn new(per_disk: usize) -> io::Result<Self> {
        let event = Arc::new(wake::event_fd()?);
        let completions = Arc::new(Completions::new(Arc::clone(&event)));
        let per_disk = per_disk.max(MIN_THREADS);
        Ok(Self { disks: BTreeMap::new(), ledger: Ledger::default(), completions, event, per_disk })
    }
}

impl Backend for Threads {
    fn submit(&mut self, io: IoId, disk: DiskId, op: DiskOp, data: Option<IoSlice>) {
        let Some(served) = self.disks.get_mut(&disk) else { return self.ledger.refuse(io, disk, Status::Gone) };
        if let Err(status) = job::check(served.disk.info(), &op, data.as_ref()) {
            return self.ledger.refuse(io, disk, status);
        }
        if let Some(key) = self.ledger.enter(io, disk) {
            served.pool.push(key, Job::new(Arc::clone(&served.disk), op, data));
        }
    }

    fn kick(&mut self) {
        for served in self.disks.values_mut() {
            served.pool.kick();
        }
        if self.ledger.has_ended() {
            wake::signal(&self.event);
        }
    }

    fn reap(&mut self, ended: &mut Vec<Ended>) {
        wake::clear(&self.event);
        for done in self.completions.take() {
            self.ledger.strike_off(done.key, done.status, done.report);
        }
        self.ledger.take_ended(ended);
    }

    fn event_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.event.as_fd())
    }

    fn in_flight(&self) -> usize {
        self.ledger.in_flight()
    }
}

impl FileBackend for Threads {
    fn add(&mut self, disk: DiskId, opened: OpenDisk) -> io::Result<()> {
        assert!(!self.disks.contains_key(&disk), "{disk:?} is in use");
        let mut pool = Pool::new(disk, self.per_disk, Arc::clone(&self.completions));
        pool.start_one()?;
        self.disks.insert(disk, Served { disk: Arc::new(Disk::new(opened)), pool });
        Ok(())
    }

    fn remove(&mut self, disk: DiskId) -> bool {
        let Some(mut served) = self.disks.remove(&disk) else { return false };
        served.disk.remove();
        self.ledger.remove(disk);
        for key in served.pool.close() {
            self.ledger.strike_off(key, Status::Gone, None);
        }
        wake::signal(&self.event);
        true
    }

    fn name(&self) -> &'static str {
        "threads"
    }
}
