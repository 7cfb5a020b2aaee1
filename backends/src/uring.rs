//! Disks served by one io_uring: one system call per turn, whatever the number of ops.
//!
//! Reads, writes and flushes go through the ring. What the kernel would only hand to threads of its own anyway (write
//! zeroes, unmap, block status) runs on threads of ours (see `pool`), which know all the ways to make zeroes.
//!
//! Files and buffers are not registered with the ring: see the `rate` example for what that would gain.
//!
//! A flush, a write into a hole of a file and a read that misses the page cache block inside the kernel, on worker threads
//! that all disks of the ring share. Their number grows with the disks, and flushes are limited per disk, so that flushes
//! alone cannot take them all.

mod ring;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use platter_block::{DiskId, DiskOp, IoId, IoSlice, Status};
use rustix::io::Errno;

use self::ring::Ring;
use crate::job::{self, Disk, Job, Lane, Next};
use crate::ledger::{Key, Ledger};
use crate::pool::{Completions, Pool};
use crate::{BULK_PER_DISK, Backend, Ended, FLUSHES_PER_DISK, FileBackend, OpenDisk, wake};

/// Disks served by one io_uring.
///
/// May be moved to another thread until its first `kick` or `reap`, and must stay on that one from then on.
#[derive(Debug)]
pub struct Uring {
    ring: Ring,
    disks: BTreeMap<DiskId, Served>,
    ledger: Ledger,
    /// To be pushed into the ring as it has room, in order.
    backlog: VecDeque<(Key, Job)>,
    completions: Arc<Completions>,
    event: Arc<OwnedFd>,
    /// Kernel workers asked for; 0 before the first turn.
    workers: u32,
}

#[derive(Debug)]
struct Served {
    disk: Arc<Disk>,
    /// For bulk ops.
    pool: Pool,
    flushes_running: usize,
    flushes_waiting: VecDeque<(Key, Job)>,
}

/// Kernel workers per disk: a flush, and some writes that allocate.
const WORKERS_PER_DISK: u32 = 8;

impl Uring {
    /// A ring of `entries` entries (1 to 32768, rounded up to a power of two; 256 is plenty for spinning disks), and no disks
    /// yet. More ops than entries can be in the kernel at once; more in one turn cost one more system call.
    ///
    /// # Errors
    ///
    /// When the system does not allow io_uring (a container's seccomp profile, `kernel.io_uring_disabled`), or the process
    /// is out of file descriptors or locked memory.
    pub fn new(entries: u32) -> io::Result<Self> {
        let event = Arc::new(wake::event_fd()?);
        Ok(Self {
            ring: Ring::new(entries, &event)?,
            disks: BTreeMap::new(),
            ledger: Ledger::default(),
            backlog: VecDeque::new(),
            completions: Arc::new(Completions::new(Arc::clone(&event))),
            event,
            workers: 0,
        })
    }

    /// Gives the backlog to the kernel, as many ring entries at a time as there are. What the kernel has no memory for
    /// stays.
    fn pump(&mut self) {
        let workers = WORKERS_PER_DISK.saturating_mul(u32::try_from(self.disks.len()).unwrap_or(u32::MAX)).min(1024);
        if workers > self.workers {
            self.ring.set_workers(workers);
            self.workers = workers;
        }
        while let Some((key, job)) = self.backlog.pop_front() {
            if self.ledger.is_gone(key) {
                self.ledger.strike_off(key, Status::Gone, None);
                continue;
            }
            if let Err(job) = self.ring.push(key, job) {
                self.backlog.push_front((key, job));
                if self.ring.enter().is_err() || self.ring.queued() > 0 {
                    break;
                }
            }
        }
        if self.ring.queued() > 0 && (self.ring.enter().is_err() || self.ring.queued() > 0) {
            // Look again in the next turn.
            wake::signal(&self.event);
        }
    }

    /// The kernel has answered for `job`.
    fn answered(&mut self, key: Key, mut job: Job, result: i32) {
        let next = match u64::try_from(result) {
            Ok(bytes) => job.moved(bytes),
            Err(_) => job.failed(Errno::from_raw_os_error(result.saturating_neg())),
        };
        match next {
            Next::Again if !self.ledger.is_gone(key) => self.backlog.push_front((key, job)),
            Next::Again => self.strike_off(key, job, Status::Gone),
            Next::End(status) => self.strike_off(key, job, status),
        }
    }

    fn strike_off(&mut self, key: Key, job: Job, status: Status) {
        if job.lane() == Lane::Flush
            && let Some(served) = self.disks.values_mut().find(|s| Arc::ptr_eq(&s.disk, &job.disk))
        {
            served.flushes_running -= 1;
            if let Some(waiting) = served.flushes_waiting.pop_front() {
                served.flushes_running += 1;
                self.backlog.push_back(waiting);
            }
        }
        drop(job);
        self.ledger.strike_off(key, status, None);
    }
}

impl Backend for Uring {
    fn submit(&mut self, io: IoId, disk: DiskId, op: DiskOp, data: Option<IoSlice>) {
        let Some(served) = self.disks.get_mut(&disk) else { return self.ledger.refuse(io, Status::Gone) };
        if let Err(status) = job::check(served.disk.info(), &op, data.as_ref()) {
            return self.ledger.refuse(io, status);
        }
        let Some(key) = self.ledger.enter(io, disk) else { return };
        let job = Job::new(Arc::clone(&served.disk), op, data);
        match job.lane() {
            Lane::Data => self.backlog.push_back((key, job)),
            Lane::Flush if served.flushes_running < FLUSHES_PER_DISK => {
                served.flushes_running += 1;
                self.backlog.push_back((key, job));
            }
            Lane::Flush => served.flushes_waiting.push_back((key, job)),
            Lane::Bulk => served.pool.push(key, job),
        }
    }

    fn kick(&mut self) {
        for served in self.disks.values_mut() {
            served.pool.kick();
        }
        self.pump();
        if self.ledger.has_ended() {
            wake::signal(&self.event);
        }
    }

    /// Enters the kernel until it has nothing more to say, so that what it says later signals the event again.
    fn reap(&mut self, ended: &mut Vec<Ended>) {
        loop {
            let entered = !self.ring.must_enter() || self.ring.enter().is_ok();
            wake::clear(&self.event);
            while let Some((key, job, result)) = self.ring.pop() {
                self.answered(key, job, result);
            }
            if !self.ring.must_enter() {
                break;
            }
            if !entered {
                // The kernel is short of memory. Look again in the next turn.
                wake::signal(&self.event);
                break;
            }
        }
        for done in self.completions.take() {
            self.ledger.strike_off(done.key, done.status, done.report);
        }
        self.pump();
        self.ledger.take_ended(ended);
    }

    fn event_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.event.as_fd())
    }

    fn in_flight(&self) -> usize {
        self.ledger.in_flight()
    }
}

impl FileBackend for Uring {
    fn add(&mut self, disk: DiskId, opened: OpenDisk) -> io::Result<()> {
        assert!(!self.disks.contains_key(&disk), "{disk:?} is in use");
        let served = Served {
            disk: Arc::new(Disk::new(opened)),
            pool: Pool::new(disk, BULK_PER_DISK, Arc::clone(&self.completions)),
            flushes_running: 0,
            flushes_waiting: VecDeque::new(),
        };
        self.disks.insert(disk, served);
        Ok(())
    }

    fn remove(&mut self, disk: DiskId) -> bool {
        let Some(mut served) = self.disks.remove(&disk) else { return false };
        served.disk.remove();
        self.ledger.remove(disk);
        let waiting = served.flushes_waiting.drain(..).map(|(key, _)| key);
        for key in waiting.chain(served.pool.close()) {
            self.ledger.strike_off(key, Status::Gone, None);
        }
        wake::signal(&self.event);
        true
    }

    fn name(&self) -> &'static str {
        "io_uring"
    }
}
