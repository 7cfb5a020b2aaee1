//! Disks served by one io_uring: one system call per turn, whatever the number of ops.
//!
//! Reads, writes and flushes go through the ring. What the kernel would only hand to threads of its own anyway (write
//! zeroes, unmap, block status) runs on threads of ours (see `pool`), which know all the ways to make zeroes.
//!
//! Files and buffers are not registered with the ring. Measured with 4 KiB direct reads at depth 32, about 3.3 us of CPU each,
//! a registered file saves less than 0.1 us and registered buffers less than 0.3 us: not worth tying the buffer pool to a ring.
//!
//! A flush, a write into a hole of a file, a read that misses the page cache and anything beyond the request queue of a
//! disk block in the kernel, on worker threads that all disks of the ring share. So that a stuck disk cannot take them
//! all, each disk has at most [`RING_OPS_PER_DISK`] reads and writes and [`FLUSHES_PER_DISK`] flushes in the kernel, and the
//! kernel may start a worker for each of them.

mod ring;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use platter_block::{DiskId, DiskOp, IoId, IoSlice, Status};
use rustix::io::Errno;

use self::ring::Ring;
use crate::job::{self, Disk, Job, Lane, Next};
use crate::ledger::{Key, Ledger};
use crate::line::Line;
use crate::pool::{Completions, Pool};
use crate::{BULK_PER_DISK, Backend, Ended, FLUSHES_PER_DISK, FileBackend, OpenDisk, RING_OPS_PER_DISK, wake};

/// Disks served by one io_uring.
///
/// May be moved to another thread until its first `kick` or `reap`, and must stay on that one from then on.
#[derive(Debug)]
pub struct Uring {
    ring: Ring,
    disks: BTreeMap<DiskId, Served>,
    ledger: Ledger,
    completions: Arc<Completions>,
    event: Arc<OwnedFd>,
}

#[derive(Debug)]
struct Served {
    disk: Arc<Disk>,
    /// Reads and writes; those that run are in the kernel.
    data: Line,
    /// Flushes; those that run are in the kernel.
    flushes: Line,
    /// For bulk ops.
    pool: Pool,
}

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
        Ok(Self::over(Ring::new(entries, &event)?, event))
    }

    fn over(ring: Ring, event: Arc<OwnedFd>) -> Self {
        let completions = Arc::new(Completions::new(Arc::clone(&event)));
        Self { ring, disks: BTreeMap::new(), ledger: Ledger::default(), completions, event }
    }

    /// Gives what may run to the kernel, as many ring entries at a time as there are.
    fn pump(&mut self) {
        if !self.push_all() || (self.ring.queued() > 0 && !self.ring.enter()) {
            // The kernel is short of memory. Look again in the next turn.
            wake::signal(&self.event);
        }
    }

    /// Pushes what may run into the ring. False if the kernel did not make room.
    fn push_all(&mut self) -> bool {
        for served in self.disks.values_mut() {
            while let Some((key, mut job)) = served.next() {
                while let Err(back) = self.ring.push(key, job) {
                    if !self.ring.enter() {
                        served.line(back.lane()).put_back(key, back);
                        return false;
                    }
                    job = back;
                }
            }
        }
        true
    }

    /// The kernel has answered for `job`.
    fn answered(&mut self, key: Key, mut job: Job, result: i32) {
        let next = match u64::try_from(result) {
            Ok(bytes) => job.moved(bytes),
            Err(_) => job.failed(Errno::from_raw_os_error(result.saturating_neg())),
        };
        let served = self.ledger.disk(key).and_then(|disk| self.disks.get_mut(&disk));
        let line = served.map(|s| s.line(job.lane()));
        let status = match (next, line) {
            (Next::Again, Some(line)) => return line.put_back(key, job),
            (Next::End(status), Some(line)) => {
                line.finished();
                status
            }
            (_, None) => Status::Gone,
        };
        // Lets go of the disk and the memory before the end is told.
        drop(job);
        self.ledger.strike_off(key, status, None);
    }
}

impl Served {
    fn next(&mut self) -> Option<(Key, Job)> {
        self.flushes.next(FLUSHES_PER_DISK).or_else(|| self.data.next(RING_OPS_PER_DISK))
    }

    const fn line(&mut self, lane: Lane) -> &mut Line {
        match lane {
            Lane::Flush => &mut self.flushes,
            Lane::Data | Lane::Bulk => &mut self.data,
        }
    }
}

impl Backend for Uring {
    fn submit(&mut self, io: IoId, disk: DiskId, op: DiskOp, data: Option<IoSlice>) {
        let Some(served) = self.disks.get_mut(&disk) else { return self.ledger.refuse(io, disk, Status::Gone) };
        if let Err(status) = job::check(served.disk.info(), &op, data.as_ref()) {
            return self.ledger.refuse(io, disk, status);
        }
        let Some(key) = self.ledger.enter(io, disk) else { return };
        let job = Job::new(Arc::clone(&served.disk), op, data);
        match job.lane() {
            Lane::Bulk => served.pool.push(key, job),
            lane => served.line(lane).push(key, job),
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
            let entered = !self.ring.must_enter() || self.ring.enter();
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
            data: Line::default(),
            flushes: Line::default(),
            pool: Pool::new(disk, BULK_PER_DISK, Arc::clone(&self.completions)),
        };
        self.disks.insert(disk, served);
        Ok(())
    }

    fn remove(&mut self, disk: DiskId) -> bool {
        let Some(mut served) = self.disks.remove(&disk) else { return false };
        served.disk.remove();
        self.ledger.remove(disk);
        for key in served.data.clear().chain(served.flushes.clear()).chain(served.pool.close()) {
            self.ledger.strike_off(key, Status::Gone, None);
        }
        wake::signal(&self.event);
        true
    }

    fn name(&self) -> &'static str {
        "io_uring"
    }
}

#[cfg(test)]
mod tests {
    use platter_block::{BlockCount, BufPool, Lba};
    use rustix::event::{PollFd, PollFlags, poll};

    use super::*;

    #[test]
    fn a_plain_ring_does_for_a_kernel_without_deferred_completions() {
        let event = Arc::new(wake::event_fd().unwrap());
        let Ok(ring) = Ring::plain(2, &event) else { return };
        let mut uring = Uring::over(ring, event);
        let folder = tempfile::tempdir().unwrap();
        let options = crate::OpenOptions { size: Some(1 << 20), ..Default::default() };
        let disk = DiskId(1);
        uring.add(disk, crate::open(&folder.path().join("disk"), &options).unwrap()).unwrap();
        let mut pool = BufPool::new(1 << 20);
        let buf = pool.alloc(64 << 10).unwrap();
        for round in 0..3 {
            for io in 0..128u64 {
                let (lba, count, at) = (Lba(io), BlockCount(1), io as u32 * 512);
                let data = pool.slice(buf, at as usize..at as usize + 512);
                if round == 0 {
                    data.fill_from(&[io as u8; 512]);
                }
                let (op, data) = match round {
                    0 => (DiskOp::Write { lba, count, fua: false, buf, at }, Some(data)),
                    1 => (DiskOp::Flush, None),
                    _ => (DiskOp::Read { lba, count, buf, at }, Some(data)),
                };
                uring.submit(IoId(io), disk, op, data);
            }
            uring.kick();
            let mut ended = Vec::new();
            uring.reap(&mut ended);
            while ended.len() < 128 {
                let limit = rustix::event::Timespec { tv_sec: 60, tv_nsec: 0 };
                let fd = uring.event_fd().unwrap();
                assert_eq!(poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&limit)), Ok(1), "no event");
                uring.reap(&mut ended);
            }
            assert!(ended.iter().all(|e| e.status == Status::Good));
            if round == 1 {
                pool.bytes_mut(buf).fill(0xff);
            }
        }
        assert!(pool.bytes(buf).chunks(512).zip(0..).all(|(block, io)| block == [io; 512]));
    }

    #[test]
    fn a_stuck_disk_has_a_bounded_number_of_ops_in_the_kernel() {
        let Ok(mut uring) = Uring::new(8) else { return };
        // A pipe that nobody writes into stands for the disk.
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let options = crate::OpenOptions { size: Some(1 << 20), ..Default::default() };
        let opened = crate::open(&folder.path().join("disk"), &options).unwrap();
        let disk = DiskId(1);
        uring.add(disk, OpenDisk { file: reader.into(), ..opened }).unwrap();
        let mut pool = BufPool::new(1 << 20);
        let buf = pool.alloc(200 * 512).unwrap();
        let mut ended = Vec::new();
        for io in 0..200 {
            let at = io as u32 * 512;
            let op = DiskOp::Read { lba: Lba(0), count: BlockCount(1), buf, at };
            uring.submit(IoId(io), disk, op, Some(pool.slice(buf, at as usize..at as usize + 512)));
            uring.kick();
            uring.reap(&mut ended);
        }
        assert_eq!((uring.ring.running(), uring.in_flight(), ended.len()), (RING_OPS_PER_DISK, 200, 0));
        // Nothing can be written any more: each read finds the end.
        drop(writer);
        while uring.in_flight() > 0 {
            let limit = rustix::event::Timespec { tv_sec: 60, tv_nsec: 0 };
            let fd = uring.event_fd().unwrap();
            assert_eq!(poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&limit)), Ok(1), "no event");
            uring.reap(&mut ended);
        }
        assert!(ended.len() == 200 && ended.iter().all(|e| e.status == Status::MediumError { lba: Lba(0) }));
    }
}
