//! What an op costs: 4 KiB random reads at depth 32, once through io_uring and once through threads.
//!
//! `cargo run --release -p platter-backends --example rate [FILE [SECONDS]]`
//!
//! FILE is created with 256 MiB if it does not exist, and read with `O_DIRECT`. The figure to look at is the CPU time per
//! op, of all threads of the process; ops per second are the disk's.
#![allow(clippy::print_stdout, clippy::disallowed_methods)]

use std::error::Error;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use platter_backends::{Ended, FileBackend, OpenOptions, Threads, Uring, open};
use platter_block::{BlockCount, BufPool, DiskId, DiskOp, IoId, Lba, Status};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::{ClockId, clock_gettime};

const DISK: DiskId = DiskId(0);
const DEPTH: u64 = 32;
const SIZE: u64 = 256 << 20;
const READ: u32 = 4096;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let path = args.next().map_or_else(|| std::env::temp_dir().join("platter-rate"), PathBuf::from);
    let seconds: u64 = args.next().map_or(Ok(3), |s| s.parse())?;
    fill(&path)?;
    for round in 1..=3 {
        let backends: [Result<Box<dyn FileBackend>, _>; 2] = [
            Uring::new(256).map(|b| Box::new(b) as Box<dyn FileBackend>),
            Threads::new(DEPTH as usize).map(|b| Box::new(b) as Box<dyn FileBackend>),
        ];
        for backend in backends {
            match backend {
                Ok(backend) => measure(round, backend, &path, Duration::from_secs(seconds))?,
                Err(e) => println!("round {round}: not available: {e}"),
            }
        }
    }
    Ok(())
}

/// Makes the file, with real data in it: holes would be read without a disk.
fn fill(path: &Path) -> Result<(), Box<dyn Error>> {
    if !path.exists() {
        std::fs::write(path, vec![0x5a; SIZE as usize])?;
        std::fs::File::open(path)?.sync_all()?;
    }
    Ok(())
}

fn measure(round: u32, mut backend: Box<dyn FileBackend>, path: &Path, time: Duration) -> Result<(), Box<dyn Error>> {
    let opened = open(path, &OpenOptions { read_only: true, block_size: Some(READ), ..OpenOptions::default() })?;
    let blocks = opened.info.blocks;
    let how = opened.why_not_direct.clone().unwrap_or_else(|| "O_DIRECT".into());
    backend.add(DISK, opened)?;
    let mut pool = BufPool::new(DEPTH as usize * READ as usize);
    let buffers: Vec<_> = std::iter::from_fn(|| pool.alloc(READ as usize)).collect();
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    let mut submit = |backend: &mut dyn FileBackend, io: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let buf = buffers[io as usize];
        let op = DiskOp::Read { lba: Lba(random % blocks), count: BlockCount(1), buf, at: 0 };
        backend.submit(IoId(io), DISK, op, Some(pool.slice(buf, 0..READ as usize)));
    };

    let (began, cpu_before) = (Instant::now(), cpu());
    for io in 0..DEPTH {
        submit(&mut *backend, io);
    }
    let (mut ended, mut ops, mut turns): (Vec<Ended>, u64, u64) = (Vec::new(), 0, 0);
    while began.elapsed() < time {
        turns += 1;
        backend.kick();
        backend.reap(&mut ended);
        if ended.is_empty() {
            let fd = backend.event_fd().ok_or("a file backend has an event descriptor")?;
            poll(&mut [PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN)], None)?;
            backend.reap(&mut ended);
        }
        for end in ended.drain(..) {
            if end.status != Status::Good {
                return Err(format!("a read ended {:?}", end.status).into());
            }
            ops += 1;
            submit(&mut *backend, end.io.0);
        }
    }
    let (elapsed, cpu) = (began.elapsed(), cpu() - cpu_before);
    let rate = ops as f64 / elapsed.as_secs_f64();
    let per_op = cpu.as_secs_f64() * 1e6 / ops as f64;
    println!(
        "round {round}: {:<8} {rate:>8.0} reads/s, {per_op:>5.1} us CPU per read, {:.1} reads per turn ({how})",
        backend.name(),
        ops as f64 / turns as f64
    );
    Ok(())
}

/// CPU time of all threads of the process.
fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}
