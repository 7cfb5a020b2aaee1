//! The threads of one disk, and the list on which threads put what they have done.
//!
//! A disk's threads are its own, so a disk that is stuck, or slow to flush, holds up no other disk. Within the disk, flushes
//! and bulk ops have their own waiting lines and limits, and reads and writes always find a thread: there is at least one
//! more than those limits.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use platter_block::{DiskId, Report, Status};

use crate::fua::FuaWriter;
use crate::job::{Job, Lane};
use crate::ledger::Key;
use crate::line::Line;
use crate::{BULK_PER_DISK, FLUSHES_PER_DISK, blocking, wake};

/// Threads that run the jobs of one disk. They are started as needed and stay. Dropped: what has not begun is dropped, what
/// has goes on and ends by itself.
#[derive(Debug)]
pub(crate) struct Pool {
    shared: Arc<Shared>,
    name: String,
    limit: usize,
    started: usize,
    /// Queued since the last kick.
    fresh: Vec<(Key, Job)>,
}

/// Fewest threads with which no kind of op can keep another waiting for ever.
pub(crate) const MIN_THREADS: usize = FLUSHES_PER_DISK + BULK_PER_DISK + 1;

/// What the threads of all disks of a backend have done.
#[derive(Debug)]
pub(crate) struct Completions {
    list: Mutex<List>,
    event: Arc<OwnedFd>,
}

/// A job that a thread has ended.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) key: Key,
    pub(crate) status: Status,
    pub(crate) report: Option<Box<Report>>,
}

#[derive(Debug, Default)]
struct List {
    done: Vec<Done>,
    /// The owner has been woken and has not looked since: no need to wake it again.
    signalled: bool,
}

#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    work: Condvar,
    completions: Arc<Completions>,
    /// See [`FuaWriter`].
    no_aio: AtomicBool,
}

#[derive(Debug, Default)]
struct Queue {
    data: Line,
    flushes: Line,
    bulk: Line,
    idle: usize,
    closed: bool,
}

/// Stack of a thread in bytes: system calls and small arrays.
const STACK: usize = 128 << 10;

impl Pool {
    /// At most `limit` threads for `disk`; none is started yet.
    pub(crate) fn new(disk: DiskId, limit: usize, completions: Arc<Completions>) -> Self {
        let shared =
            Shared { queue: Mutex::default(), work: Condvar::new(), completions, no_aio: AtomicBool::new(false) };
        Self { shared: Arc::new(shared), name: format!("disk-{}", disk.0), limit, started: 0, fresh: Vec::new() }
    }

    /// Starts one more thread.
    pub(crate) fn start_one(&mut self) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        thread::Builder::new().name(self.name.clone()).stack_size(STACK).spawn(move || shared.work())?;
        self.started += 1;
        Ok(())
    }

    /// Queues a job for the next kick.
    pub(crate) fn push(&mut self, key: Key, job: Job) {
        self.fresh.push((key, job));
    }

    /// Hands what was queued to the threads, starting more if all are busy and there may be more. If not a single one can
    /// be started, the jobs end `Busy`.
    pub(crate) fn kick(&mut self) {
        if self.fresh.is_empty() {
            return;
        }
        let (waiting, idle) = {
            let mut queue = self.shared.lock();
            for (key, job) in self.fresh.drain(..) {
                queue.line(job.lane()).push(key, job);
            }
            (queue.ready(), queue.idle)
        };
        let wanted = waiting.saturating_sub(idle).min(self.limit - self.started);
        for _ in 0..wanted {
            if self.start_one().is_err() {
                break;
            }
        }
        if self.started == 0 {
            for key in self.close() {
                self.shared.completions.push(Done { key, status: Status::Busy, report: None });
            }
            self.shared.lock().closed = false;
        }
        for _ in 0..waiting.min(idle) {
            self.shared.work.notify_one();
        }
    }

    /// The threads stop after what they are doing. Returns the jobs that had not begun, which are dropped.
    pub(crate) fn close(&mut self) -> Vec<Key> {
        let mut queue = self.shared.lock();
        queue.closed = true;
        let Queue { data, flushes, bulk, .. } = &mut *queue;
        let queued = data.clear().chain(flushes.clear()).chain(bulk.clear());
        let keys = queued.chain(self.fresh.drain(..).map(|(key, _)| key)).collect();
        drop(queue);
        self.shared.work.notify_all();
        keys
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.close();
    }
}

impl Completions {
    /// An empty list that signals `event`.
    pub(crate) fn new(event: Arc<OwnedFd>) -> Self {
        Self { list: Mutex::default(), event }
    }

    /// Takes all that is on the list. The event is to be cleared before.
    pub(crate) fn take(&self) -> Vec<Done> {
        let mut list = self.lock();
        list.signalled = false;
        std::mem::take(&mut list.done)
    }

    fn push(&self, done: Done) {
        let mut list = self.lock();
        list.done.push(done);
        let wake = !std::mem::replace(&mut list.signalled, true);
        drop(list);
        if wake {
            wake::signal(&self.event);
        }
    }

    fn lock(&self) -> MutexGuard<'_, List> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    /// The life of a thread.
    fn work(&self) {
        let mut fua = FuaWriter::new(&self.no_aio);
        let mut queue = self.lock();
        while !queue.closed {
            let Some((key, mut job)) = queue.next() else {
                queue.idle += 1;
                queue = self.work.wait(queue).unwrap_or_else(PoisonError::into_inner);
                queue.idle -= 1;
                continue;
            };
            drop(queue);
            let (status, report) = blocking::run(&mut job, &mut fua);
            let lane = job.lane();
            // Lets go of the disk and the memory before the end is told.
            drop(job);
            self.completions.push(Done { key, status, report });
            queue = self.lock();
            queue.line(lane).finished();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    /// The next job that may begin. The limited kinds first: they cannot take every thread, the others could.
    fn next(&mut self) -> Option<(Key, Job)> {
        let limited = self.flushes.next(FLUSHES_PER_DISK).or_else(|| self.bulk.next(BULK_PER_DISK));
        limited.or_else(|| self.data.next(usize::MAX))
    }

    /// How many jobs may begin now.
    fn ready(&self) -> usize {
        self.data.ready(usize::MAX) + self.flushes.ready(FLUSHES_PER_DISK) + self.bulk.ready(BULK_PER_DISK)
    }

    const fn line(&mut self, lane: Lane) -> &mut Line {
        match lane {
            Lane::Data => &mut self.data,
            Lane::Flush => &mut self.flushes,
            Lane::Bulk => &mut self.bulk,
        }
    }
}

#[cfg(test)]
mod tests {
    use platter_block::{BlockCount, DiskOp, Lba};

    use super::*;
    use crate::job::tests::job;

    #[test]
    fn reads_find_a_thread_whatever_flushes_and_zeroes_wait() {
        let mut queue = Queue::default();
        let zeroes = DiskOp::WriteZeroes { lba: Lba(0), count: BlockCount(1), may_unmap: false };
        let ops = [DiskOp::Flush, zeroes, DiskOp::Flush, zeroes, zeroes, DiskOp::Flush, zeroes];
        for (key, op) in (0..).zip(ops) {
            let job = job(op, 0);
            queue.line(job.lane()).push(Key(key), job);
        }
        let read = crate::job::tests::read(0, 1);
        queue.line(Lane::Data).push(Key(99), read);
        assert_eq!(queue.ready(), FLUSHES_PER_DISK + BULK_PER_DISK + 1);

        let order: Vec<_> = std::iter::from_fn(|| queue.next()).map(|(key, _)| key.0).collect();
        assert_eq!(order, [0, 1, 3, 99]);
        assert!(order.len() <= MIN_THREADS, "the smallest pool runs them all at once");
        queue.line(Lane::Flush).finished();
        assert_eq!(queue.next().map(|(key, _)| key), Some(Key(2)), "the next flush follows the first");
        assert_eq!(queue.ready(), 0);
    }
}
