//! What FUA writes cost: how often a block device is flushed for them, once through io_uring and once through threads.
//!
//! `cargo run -p platter-backends --example fua DEVICE [WRITES]`
//!
//! Overwrites the first block of DEVICE. A disk with FUA needs no flush; one without needs one for each write.
#![allow(clippy::print_stdout)]

use std::error::Error;
use std::fs;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use platter_backends::{DiskKind, FileBackend, OpenOptions, Threads, Uring, open};
use platter_block::{BlockCount, BufPool, DiskId, DiskOp, IoId, Lba, Status};
use rustix::event::{PollFd, PollFlags, poll};

const DISK: DiskId = DiskId(0);

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let device = PathBuf::from(args.next().ok_or("which device?")?);
    let writes: u64 = args.next().map_or(Ok(100), |s| s.parse())?;
    match Uring::new(8) {
        Ok(uring) => measure(Box::new(uring), &device, writes)?,
        Err(e) => println!("io_uring: not available: {e}"),
    }
    measure(Box::new(Threads::new(4)?), &device, writes)
}

fn measure(mut backend: Box<dyn FileBackend>, device: &Path, writes: u64) -> Result<(), Box<dyn Error>> {
    let opened = open(device, &OpenOptions::default())?;
    if opened.kind != DiskKind::BlockDevice {
        return Err("not a block device".into());
    }
    let how = opened.why_not_direct.clone().unwrap_or_else(|| format!("FUA: {:?}", opened.info.fua));
    let block = opened.info.block_size as usize;
    backend.add(DISK, opened)?;
    let mut pool = BufPool::new(1 << 20);
    let buf = pool.alloc(block).ok_or("a block is larger than the pool")?;
    let before = flushes(device)?;
    let mut ended = Vec::new();
    for io in 0..writes {
        pool.bytes_mut(buf).fill(io as u8);
        let op = DiskOp::Write { lba: Lba(0), count: BlockCount(1), fua: true, buf, at: 0 };
        backend.submit(IoId(io), DISK, op, Some(pool.slice(buf, 0..block)));
        backend.kick();
        while ended.is_empty() {
            let fd = backend.event_fd().ok_or("a file backend has an event descriptor")?;
            poll(&mut [PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN)], None)?;
            backend.reap(&mut ended);
        }
        if let Some(end) = ended.drain(..).find(|e| e.status != Status::Good) {
            return Err(format!("a write ended {:?}", end.status).into());
        }
    }
    let flushes = flushes(device)? - before;
    println!("{:<8} {writes} FUA writes, {flushes} flushes of the device ({how})", backend.name());
    Ok(())
}

/// Flushes that the device has completed: the 16th figure.
fn flushes(device: &Path) -> Result<u64, Box<dyn Error>> {
    let name = fs::canonicalize(device)?;
    let stat = Path::new("/sys/class/block").join(name.file_name().ok_or("a device has a name")?).join("stat");
    let figures = fs::read_to_string(&stat)?;
    Ok(figures.split_whitespace().nth(15).ok_or("the kernel does not count flushes")?.parse()?)
}
