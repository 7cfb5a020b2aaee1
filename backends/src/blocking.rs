//! Ops as plain system calls that block: what the threads run.

use std::io::IoSlice as Bytes;

use platter_block::{BlockCount, BlockRange, DiskOp, Extent, IoSlice, Lba, Report, Status};
use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::Errno;

use crate::fua::FuaWriter;
use crate::job::{Disk, Job, Next};
use crate::{DiskKind, MAX_EXTENTS, raw};

/// Runs `job` to its end.
pub(crate) fn run(job: &mut Job, fua: &mut FuaWriter<'_>) -> (Status, Option<Box<Report>>) {
    loop {
        if job.disk.is_removed() {
            return (Status::Gone, None);
        }
        let step = match job.op {
            DiskOp::Read { .. } => read(job),
            DiskOp::Write { fua: false, .. } => write(job),
            DiskOp::Write { fua: true, .. } => write_fua(job, fua),
            DiskOp::Flush => flush(job),
            DiskOp::WriteZeroes { .. } => zero(job),
            DiskOp::Unmap { .. } => unmap(job),
            DiskOp::BlockStatus { lba, count } => return block_status(job, BlockRange::new(lba, count)),
        };
        let next = match step {
            Ok(bytes) => job.moved(bytes),
            Err(errno) => job.failed(errno),
        };
        if let Next::End(status) = next {
            return (status, None);
        }
    }
}

/// Most bytes that one step of a write zeroes or unmap asks for, so that a removed disk is noticed between steps.
const BULK_STEP: u64 = 1 << 30;

/// Most bytes of zeroes that are written by one system call where they have to be written.
const ZEROES_STEP: u64 = ZERO_PIECES as u64 * ZEROES.0.len() as u64;
const ZERO_PIECES: usize = 64;
static ZEROES: Zeroes = Zeroes([0; 64 << 10]);

/// Aligned for `O_DIRECT`.
#[repr(align(4096))]
struct Zeroes([u8; 64 << 10]);

// Each of these does the next part of what is left of the job and says how many bytes that was.

fn read(job: &Job) -> Result<u64, Errno> {
    raw::pread(job.disk.fd(), data(job), job.done() as usize, job.offset()).map(|n| n as u64)
}

fn write(job: &Job) -> Result<u64, Errno> {
    let bytes = &data(job).bytes()[job.done() as usize..];
    rustix::io::pwrite(job.disk.fd(), bytes, job.offset()).map(|n| n as u64)
}

fn write_fua(job: &Job, fua: &mut FuaWriter<'_>) -> Result<u64, Errno> {
    fua.write(&job.disk, data(job), job.done() as usize, job.offset()).map(|n| n as u64)
}

fn flush(job: &Job) -> Result<u64, Errno> {
    rustix::fs::fdatasync(job.disk.fd()).map(|()| 0)
}

fn zero(job: &Job) -> Result<u64, Errno> {
    let may_unmap = matches!(job.op, DiskOp::WriteZeroes { may_unmap: true, .. });
    zeroes(job, may_unmap && job.disk.info().discard.is_some())
}

/// Where deallocated blocks read as zeroes, those at the edges that the disk cannot deallocate must too. Elsewhere a
/// discard is a hint, and may do nothing.
fn unmap(job: &Job) -> Result<u64, Errno> {
    let reads_zeroes = job.disk.info().discard.is_some_and(|d| d.reads_zeroes);
    if job.disk.opened.kind == DiskKind::File || reads_zeroes {
        return zeroes(job, true);
    }
    let len = job.left().min(BULK_STEP);
    raw::block_discard(job.disk.fd(), job.offset(), len).map(|()| len)
}

/// By deallocation if `punch`; else, or where that is not supported, by telling the disk or file system; else by writing.
fn zeroes(job: &Job, punch: bool) -> Result<u64, Errno> {
    let (offset, len) = (job.offset(), job.left().min(BULK_STEP));
    let ways = [FallocateFlags::PUNCH_HOLE, FallocateFlags::ZERO_RANGE];
    for way in &ways[if punch { 0 } else { 1 }..] {
        match rustix::fs::fallocate(job.disk.fd(), *way | FallocateFlags::KEEP_SIZE, offset, len) {
            Err(Errno::OPNOTSUPP) => {}
            Ok(()) => return Ok(len),
            Err(errno) => return Err(errno),
        }
    }
    let len = len.min(ZEROES_STEP) as usize;
    let piece = ZEROES.0.len();
    let bytes: Vec<_> = (0..len).step_by(piece).map(|at| Bytes::new(&ZEROES.0[..piece.min(len - at)])).collect();
    rustix::io::pwritev(job.disk.fd(), &bytes, offset).map(|n| n as u64)
}

fn data(job: &Job) -> &IoSlice {
    job.data.as_ref().expect("check() saw the data")
}

/// A block device does not tell: all of it counts as allocated.
fn block_status(job: &mut Job, range: BlockRange) -> (Status, Option<Box<Report>>) {
    let extents = match job.disk.opened.kind {
        DiskKind::BlockDevice => Ok(vec![Extent { lba: range.start, count: range.count, mapped: true }]),
        DiskKind::File => file_extents(&job.disk, range),
    };
    match extents {
        Ok(extents) => (Status::Good, Some(Box::new(Report::Extents(extents)))),
        Err(errno) => match job.failed(errno) {
            Next::End(status) => (status, None),
            Next::Again => (Status::Busy, None),
        },
    }
}

/// A block is allocated if any byte of it is. Looks at no more than [`MAX_EXTENTS`] extents.
fn file_extents(disk: &Disk, range: BlockRange) -> Result<Vec<Extent>, Errno> {
    let block = u64::from(disk.info().block_size);
    let mut extents = Vec::new();
    let mut at = range.start.0;
    while at < range.end() && extents.len() < MAX_EXTENTS {
        let data = match rustix::fs::seek(disk.fd(), SeekFrom::Data(at * block)) {
            Ok(offset) => (offset / block).clamp(at, range.end()),
            // No data up to the end of the file.
            Err(Errno::NXIO) => range.end(),
            Err(errno) => return Err(errno),
        };
        push(&mut extents, at, data, false);
        if data == range.end() || extents.len() == MAX_EXTENTS {
            break;
        }
        let hole = match rustix::fs::seek(disk.fd(), SeekFrom::Hole(data * block)) {
            Ok(offset) => offset.div_ceil(block).clamp(data + 1, range.end()),
            // The file was cut off; the read that follows will say so.
            Err(Errno::NXIO) => range.end(),
            Err(errno) => return Err(errno),
        };
        push(&mut extents, data, hole, true);
        at = hole;
    }
    Ok(extents)
}

/// Adds the blocks `from..to`, to the last extent if that is alike. A range has at most 2^32 - 1 blocks.
fn push(extents: &mut Vec<Extent>, from: u64, to: u64, mapped: bool) {
    let count = (to - from) as u32;
    match extents.last_mut() {
        _ if count == 0 => {}
        Some(last) if last.mapped == mapped => last.count.0 += count,
        _ => extents.push(Extent { lba: Lba(from), count: BlockCount(count), mapped }),
    }
}
