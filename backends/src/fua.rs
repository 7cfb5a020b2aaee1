//! FUA writes by system calls, each for the price of one write.
//!
//! A write with `RWF_DSYNC` that goes around the page cache reaches a block device as a FUA write. But if the caller waits
//! within the system call, as in pwritev2(2), Linux flushes the whole device when it is done (`block/fops.c` sends the write
//! with `REQ_FUA`, and calls `generic_write_sync` all the same; seen from 6.18 to 7.3). A write that the caller does not
//! wait for is spared the flush. So it is submitted by native AIO, and its end is waited for afterwards: one more system
//! call. The usual filters of containers allow AIO where they refuse io_uring.
//!
//! A regular file needs the flush, by whatever call, and behind the page cache the write itself is the smaller part.

use std::sync::atomic::{AtomicBool, Ordering};

use platter_block::IoSlice;
use rustix::io::{Errno, ReadWriteFlags};

use crate::DiskKind;
use crate::job::Disk;
use crate::raw::Aio;

/// What one thread writes with FUA by.
#[derive(Debug)]
pub(crate) struct FuaWriter<'a> {
    /// Made when first needed.
    aio: Option<Aio>,
    /// The system has refused a context to one of the threads that share this. None of them asks again.
    refused: &'a AtomicBool,
}

impl<'a> FuaWriter<'a> {
    /// For one of the threads that share `refused`.
    pub(crate) const fn new(refused: &'a AtomicBool) -> Self {
        Self { aio: None, refused }
    }

    /// Writes `data` from byte `from` on at `offset`; it is durable when this returns. May be short. Without AIO it costs a
    /// flush of the device.
    pub(crate) fn write(&mut self, disk: &Disk, data: &IoSlice, from: usize, offset: u64) -> Result<usize, Errno> {
        if disk.opened.kind == DiskKind::BlockDevice
            && disk.opened.direct
            && let Some(aio) = self.aio()
        {
            return aio.write_dsync(disk.fd(), data, from, offset);
        }
        let bytes = [std::io::IoSlice::new(&data.bytes()[from..])];
        rustix::io::pwritev2(disk.fd(), &bytes, offset, ReadWriteFlags::DSYNC)
    }

    fn aio(&mut self) -> Option<&mut Aio> {
        if self.aio.is_none() && !self.refused.load(Ordering::Relaxed) {
            self.aio = Aio::new().inspect_err(|_| self.refused.store(true, Ordering::Relaxed)).ok();
        }
        self.aio.as_mut()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use platter_block::{BlockCount, BufId, BufPool, DiskOp, Lba};

    use super::*;
    use crate::job::Job;
    use crate::job::tests::job;
    use crate::raw::{self, tests::without};

    /// A write of blocks 8 and 9 to a file that passes for a disk of this kind.
    fn write(kind: DiskKind, direct: bool) -> Job {
        let op = DiskOp::Write { lba: Lba(8), count: BlockCount(2), fua: true, buf: BufId(0), at: 0 };
        let mut job = job(op, 1024);
        job.data.as_ref().unwrap().fill_from(&[7; 1024]);
        let disk = Arc::get_mut(&mut job.disk).unwrap();
        (disk.opened.kind, disk.opened.direct) = (kind, direct);
        job
    }

    /// Runs it, and looks at the disk.
    fn run(job: &Job, writer: &mut FuaWriter<'_>) {
        let data = job.data.as_ref().unwrap();
        assert_eq!(writer.write(&job.disk, data, 0, job.offset()), Ok(1024));
        let mut pool = BufPool::new(4096);
        let buf = pool.alloc(4 * 512).unwrap();
        assert_eq!(raw::pread(job.disk.fd(), &pool.slice(buf, 0..4 * 512), 0, 7 * 512), Ok(4 * 512));
        assert_eq!(pool.bytes(buf), [[0; 512], [7; 512], [7; 512], [0; 512]].as_flattened());
    }

    #[test]
    fn only_writes_to_a_block_device_around_the_page_cache_go_by_aio() {
        let allowed = Aio::new().is_ok();
        for (kind, direct, by_aio) in [
            (DiskKind::BlockDevice, true, allowed),
            (DiskKind::BlockDevice, false, false),
            (DiskKind::File, true, false),
            (DiskKind::File, false, false),
        ] {
            let refused = AtomicBool::new(false);
            let mut writer = FuaWriter::new(&refused);
            let job = write(kind, direct);
            run(&job, &mut writer);
            assert_eq!(writer.aio.is_some(), by_aio, "{kind:?}, direct: {direct}");
        }
    }

    #[test]
    fn where_aio_is_refused_the_write_goes_another_way_and_no_thread_asks_again() {
        for call in [libc::SYS_io_setup, libc::SYS_io_submit, libc::SYS_io_getevents] {
            let refused = AtomicBool::new(false);
            let job = write(DiskKind::BlockDevice, true);
            without(call, || run(&job, &mut FuaWriter::new(&refused)));
            assert!(refused.load(Ordering::Relaxed));
            // On this thread it may be allowed.
            let mut other = FuaWriter::new(&refused);
            run(&job, &mut other);
            assert!(other.aio.is_none());
        }
    }
}
