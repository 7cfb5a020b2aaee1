//! One op on one disk, in bytes, and how far it has come.

use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use platter_block::{BlockRange, DiskInfo, DiskOp, IoSlice, Lba, Status};
use rustix::io::Errno;

use crate::{DiskKind, OpenDisk, errno};

/// A disk that a backend serves. It stays open, and claimed, as long as any op holds it.
#[derive(Debug)]
pub(crate) struct Disk {
    pub(crate) opened: OpenDisk,
    removed: AtomicBool,
}

/// An op on its way. Keeps the disk open and the memory alive.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) disk: Arc<Disk>,
    pub(crate) op: DiskOp,
    pub(crate) data: Option<IoSlice>,
    /// Bytes moved so far; whole blocks.
    done: u64,
    /// How often the system has said "try again".
    retries: u32,
}

/// What may run beside what.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lane {
    /// Reads and writes.
    Data,
    /// Flushes.
    Flush,
    /// Ops that may take minutes: write zeroes, unmap, block status.
    Bulk,
}

/// What is to be done after the system has answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    /// The op has ended.
    End(Status),
    /// The same call again, for what is left.
    Again,
}

/// How often one op is tried again when the system says so; then it ends `Busy`.
const MAX_RETRIES: u32 = 64;

impl Disk {
    pub(crate) const fn new(opened: OpenDisk) -> Self {
        Self { opened, removed: AtomicBool::new(false) }
    }

    /// Long ops stop at the next opportunity.
    pub(crate) fn remove(&self) {
        self.removed.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_removed(&self) -> bool {
        self.removed.load(Ordering::Relaxed)
    }

    pub(crate) const fn info(&self) -> &DiskInfo {
        &self.opened.info
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.opened.file.as_fd()
    }
}

impl Drop for Disk {
    /// Closing a block device writes back its page cache, for as long as the device takes: not while the owner waits.
    fn drop(&mut self) {
        if self.opened.kind == DiskKind::BlockDevice
            && !self.opened.direct
            && let Ok(last) = self.opened.file.try_clone()
        {
            // Where no thread can be started, the file is closed here after all.
            let _ = thread::Builder::new().name("close-disk".into()).spawn(move || drop(last));
        }
    }
}

impl Job {
    /// The job for an op that [`check`] has let pass.
    pub(crate) const fn new(disk: Arc<Disk>, op: DiskOp, data: Option<IoSlice>) -> Self {
        Self { disk, op, data, done: 0, retries: 0 }
    }

    pub(crate) const fn lane(&self) -> Lane {
        match self.op {
            DiskOp::Read { .. } | DiskOp::Write { .. } => Lane::Data,
            DiskOp::Flush => Lane::Flush,
            DiskOp::WriteZeroes { .. } | DiskOp::Unmap { .. } | DiskOp::BlockStatus { .. } => Lane::Bulk,
        }
    }

    /// Where the rest of the op starts, in bytes on the disk.
    pub(crate) fn offset(&self) -> u64 {
        self.start().0 * u64::from(self.block_size()) + self.done
    }

    /// Bytes moved so far.
    pub(crate) const fn done(&self) -> u64 {
        self.done
    }

    /// Bytes left to move.
    pub(crate) fn left(&self) -> u64 {
        range_of(&self.op).map_or(0, |r| r.count.bytes(self.block_size())) - self.done
    }

    /// The system has done `bytes` more bytes of what was left. None done means that the end of the file has come where the
    /// disk must not end. Part of a block does not count: what is left then starts at a whole block, as `O_DIRECT` needs.
    pub(crate) fn moved(&mut self, bytes: u64) -> Next {
        let left = self.left();
        if bytes >= left {
            self.done += left;
            return Next::End(Status::Good);
        }
        let whole = bytes - bytes % u64::from(self.block_size());
        self.done += whole;
        if whole > 0 { Next::Again } else { Next::End(Status::MediumError { lba: self.lba() }) }
    }

    /// The system call failed.
    pub(crate) fn failed(&mut self, errno: Errno) -> Next {
        match errno {
            Errno::INTR => Next::Again,
            _ if self.lane() == Lane::Flush => Next::End(errno::flush_status(errno)),
            Errno::AGAIN if self.retries < MAX_RETRIES => {
                self.retries += 1;
                Next::Again
            }
            _ => Next::End(errno::status(errno, self.lba())),
        }
    }

    /// First block not known to be done.
    fn lba(&self) -> Lba {
        Lba(self.start().0 + self.done / u64::from(self.block_size()))
    }

    fn start(&self) -> Lba {
        range_of(&self.op).map_or(Lba(0), |r| r.start)
    }

    fn block_size(&self) -> u32 {
        self.disk.info().block_size
    }
}

/// Whether a disk with `info` takes `op`.
///
/// # Panics
///
/// If `data` is not what [`Backend::submit`](crate::Backend::submit) asks for.
pub(crate) fn check(info: &DiskInfo, op: &DiskOp, data: Option<&IoSlice>) -> Result<(), Status> {
    let range = range_of(op);
    let expected = match op {
        DiskOp::Read { .. } | DiskOp::Write { .. } => range.map(|r| r.count.bytes(info.block_size)),
        _ => None,
    };
    assert_eq!(data.map(|d| d.len() as u64), expected, "the data of {op:?}");
    if let Some(data) = data {
        assert!((data.as_ptr() as usize).is_multiple_of(info.block_size.min(4096) as usize), "{op:?} is not aligned");
    }
    if range.is_some_and(|r| !r.within(info.blocks)) {
        return Err(Status::LbaOutOfRange);
    }
    let writes = matches!(op, DiskOp::Write { .. } | DiskOp::WriteZeroes { .. } | DiskOp::Unmap { .. });
    if writes && info.read_only {
        return Err(Status::WriteProtected);
    }
    if matches!(op, DiskOp::Unmap { .. }) && info.discard.is_none() {
        return Err(Status::Unsupported);
    }
    Ok(())
}

/// The blocks that `op` is about; `None` for a flush.
pub(crate) const fn range_of(op: &DiskOp) -> Option<BlockRange> {
    match *op {
        DiskOp::Read { lba, count, .. }
        | DiskOp::Write { lba, count, .. }
        | DiskOp::WriteZeroes { lba, count, .. }
        | DiskOp::Unmap { lba, count }
        | DiskOp::BlockStatus { lba, count } => Some(BlockRange::new(lba, count)),
        DiskOp::Flush => None,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use platter_block::{BlockCount, BufPool};

    use super::*;

    pub(crate) fn job(op: DiskOp, bytes: usize) -> Job {
        let folder = tempfile::tempdir().unwrap();
        let options = crate::OpenOptions { size: Some(1 << 20), ..Default::default() };
        let opened = crate::open(&folder.path().join("disk"), &options).unwrap();
        let mut pool = BufPool::new(1 << 20);
        let buf = pool.alloc(bytes).unwrap();
        Job::new(Arc::new(Disk::new(opened)), op, (bytes > 0).then(|| pool.slice(buf, 0..bytes)))
    }

    pub(crate) fn read(lba: u64, count: u32) -> Job {
        let mut pool = BufPool::new(4096);
        let buf = pool.alloc(1).unwrap();
        job(DiskOp::Read { lba: Lba(lba), count: BlockCount(count), buf, at: 0 }, count as usize * 512)
    }

    #[test]
    fn a_short_transfer_goes_on_at_the_last_whole_block() {
        let mut job = read(8, 4);
        assert_eq!(job.moved(1100), Next::Again);
        assert_eq!((job.offset(), job.left()), (10 * 512, 1024));
        assert_eq!(
            job.failed(Errno::IO),
            Next::End(Status::MediumError { lba: Lba(10) }),
            "what was done is not blamed"
        );
        assert_eq!(job.moved(1024), Next::End(Status::Good));
    }

    #[test]
    fn the_end_of_the_file_before_that_of_the_disk_is_an_error_at_that_block() {
        let mut job = read(8, 4);
        assert_eq!(job.moved(512), Next::Again);
        assert_eq!(job.moved(0), Next::End(Status::MediumError { lba: Lba(9) }));
        assert_eq!(
            read(0, 1).moved(100),
            Next::End(Status::MediumError { lba: Lba(0) }),
            "part of a block is no progress"
        );
    }

    #[test]
    fn try_again_is_obeyed_a_bounded_number_of_times_and_never_for_a_flush() {
        let mut job = read(0, 1);
        for _ in 0..MAX_RETRIES {
            assert_eq!(job.failed(Errno::AGAIN), Next::Again);
        }
        assert_eq!(job.failed(Errno::AGAIN), Next::End(Status::Busy));
        let mut flush = super::tests::job(DiskOp::Flush, 0);
        assert_eq!(flush.failed(Errno::INTR), Next::Again);
        assert_eq!(flush.failed(Errno::AGAIN), Next::End(Status::DurabilityLost));
    }

    #[test]
    #[should_panic(expected = "the data of")]
    fn data_of_another_length_is_the_callers_bug() {
        let job = read(0, 2);
        let op = DiskOp::Read { lba: Lba(0), count: BlockCount(1), buf: platter_block::BufId(0), at: 0 };
        let _ = check(job.disk.info(), &op, job.data.as_ref());
    }
}
