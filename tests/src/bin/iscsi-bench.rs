//! Platter beside tgt, in one run: IOPS and server CPU per I/O as a Markdown table. Started by `tests/bench/iscsi`.
//!
//! `iscsi-bench [--seconds S] [--rounds N] [--quick]`. Each cell (medium, target, workload) is measured in several short
//! rounds that take turns with those of the other targets, so that a busy moment of the machine does not fall on one of
//! them. The IOPS of a cell are those of its best round; its CPU time per I/O is that of all its rounds together, since the
//! kernel counts it in ticks of 10 ms.

#![allow(clippy::print_stdout, clippy::print_stderr)]

use platter_tests::bench_tgt::Tgt;
use platter_tests::initiator::{Command, Event, LoginOptions, ReceivedData, Session};
use platter_tests::process_use;
use platter_tests::server_process::{Setup, disk_status};
use platter_tests::sim::rng::Rng;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

type Failure = Box<dyn std::error::Error>;

const PLATTER_TARGET: &str = "iqn.2026-11.org.platter:bench";
const BLOCK: u32 = 512;
/// Size of each backing file: written in full first, so that no target reads holes.
const FILE: u64 = 256 << 20;
/// A cell in which the client's CPU was busy for more than this part of the time says more about the client.
const CLIENT_BOUND: f64 = 0.95;
/// Blocks that are written and read back: a target that answers without doing anything would be the fastest.
const CHECKED_BLOCKS: u64 = 64;
/// Servers run here; the client runs on the other core.
const SERVER_CORE: &[&str] = &["taskset", "-c", "0"];

/// What one cell does.
struct Workload {
    name: &'static str,
    write: bool,
    random: bool,
    /// Bytes of one I/O.
    size: u32,
    depth: usize,
}

const fn workload(name: &'static str, write: bool, random: bool, size: u32, depth: usize) -> Workload {
    Workload { name, write, random, size, depth }
}

const WORKLOADS: [Workload; 6] = [
    workload("4 KiB random read, depth 1", false, true, 4096, 1),
    workload("4 KiB random read, depth 32", false, true, 4096, 32),
    workload("4 KiB random write, depth 1", true, true, 4096, 1),
    workload("4 KiB random write, depth 32", true, true, 4096, 32),
    workload("128 KiB sequential read, depth 8", false, false, 128 << 10, 8),
    workload("128 KiB sequential write, depth 8", true, false, 128 << 10, 8),
];

/// Something to connect to.
struct Target {
    name: &'static str,
    pid: u32,
    address: SocketAddr,
    iqn: &'static str,
    lun: u16,
}

/// One round.
#[derive(Clone, Copy)]
struct Round {
    ios: f64,
    elapsed: Duration,
    server_cpu: Duration,
    client_cpu: Duration,
}

/// The rounds of one cell.
#[derive(Clone, Default)]
struct Cell(Vec<Round>);

impl Cell {
    fn iops(&self) -> f64 {
        self.0.iter().map(|r| r.ios / r.elapsed.as_secs_f64()).fold(0.0, f64::max)
    }

    /// Server CPU microseconds per I/O.
    fn cpu_us(&self) -> f64 {
        self.sum(|r| r.server_cpu.as_secs_f64()) * 1e6 / self.sum(|r| r.ios)
    }

    fn client_bound(&self) -> bool {
        self.sum(|r| r.client_cpu.as_secs_f64()) > CLIENT_BOUND * self.sum(|r| r.elapsed.as_secs_f64())
    }

    fn sum(&self, of: impl Fn(&Round) -> f64) -> f64 {
        self.0.iter().map(of).sum()
    }
}

fn main() -> Result<(), Failure> {
    let started = Instant::now();
    let quick = std::env::args().any(|a| a == "--quick");
    let (seconds, rounds) = if quick { (0.3, 2.0) } else { (0.8, 5.0) };
    let seconds = option("--seconds")?.unwrap_or(seconds);
    let rounds = option("--rounds")?.unwrap_or(rounds) as u64;
    println!("# Platter and tgt, iSCSI over loopback\n");
    println!(
        "One session from one client for all; server on one core, client on another; files of {} MiB. IOPS: best of {rounds} \
         rounds of {seconds} s. CPU: microseconds of the server process per I/O, user and kernel, all threads, over all rounds. \
         Ratios are platter / tgt: of IOPS more is better, of CPU less. `*`: the client's core was the limit.\n",
        FILE >> 20
    );
    let disk = tempfile::Builder::new().prefix("platter-bench-").tempdir_in(beside_this()?)?;
    let memory = tempfile::Builder::new().prefix("platter-bench-").tempdir_in("/dev/shm")?;
    for (medium, folder) in [("tmpfs", memory.path()), ("disk", disk.path())] {
        bench_medium(medium, folder, Duration::from_secs_f64(seconds), rounds)?;
    }
    println!("Total time: {:.0} s.", started.elapsed().as_secs_f64());
    Ok(())
}

/// Cargo's folder, where this program is: on a real disk more often than the folder for temporary files.
fn beside_this() -> std::io::Result<PathBuf> {
    let this = std::env::current_exe()?;
    Ok(this.parent().map_or_else(|| PathBuf::from("."), Path::to_owned))
}

fn option(name: &str) -> Result<Option<f64>, Failure> {
    let mut arguments = std::env::args().skip_while(|a| a != name);
    Ok(arguments.next().and_then(|_| arguments.next()).map(|v| v.parse()).transpose()?)
}

fn bench_medium(medium: &str, folder: &Path, time: Duration, rounds: u64) -> Result<(), Failure> {
    for file in ["platter", "rdwr", "aio"] {
        fill(&folder.join(file))?;
    }
    let setup = Setup::new(&format!(
        "backend: uring
disks: {{ d: {{ path: {}/platter }} }}
volumes:
  v: {{ disk: d, hosts: {{ allow_any: true }}, iscsi: {{ target: '{PLATTER_TARGET}', lun: 0 }} }}
",
        folder.display()
    ))
    .with_prefix(SERVER_CORE);
    let server = setup.start();
    let tgt = Tgt::start(SERVER_CORE, &[("rdwr", &folder.join("rdwr")), ("aio", &folder.join("aio"))])?;
    let [rdwr, aio] = [1, 2].map(|lun| (tgt.pid(), tgt.address(), Tgt::TARGET, lun));
    let target = |name, (pid, address, iqn, lun)| Target { name, pid, address, iqn, lun };
    let targets = [
        target("platter", (server.pid(), server.address(), PLATTER_TARGET, 0)),
        target("tgt rdwr", rdwr),
        target("tgt aio", aio),
    ];
    println!("## A file on {medium}\n");
    println!("Platter opened it as: {}.", disk_status(&setup.admin(), "d")["kind"].as_str().unwrap_or("?"));
    println!("tgt rdwr goes through the page cache, on a disk too; tgt aio asks for O_DIRECT.\n");
    println!(
        "| workload | platter IOPS | tgt rdwr | tgt aio | platter / rdwr | platter / aio | platter CPU us per I/O | tgt rdwr | tgt aio | CPU platter / rdwr | CPU platter / aio |"
    );
    println!("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|");
    for workload in &WORKLOADS {
        print_row(medium, workload, &targets, time, rounds)?;
    }
    println!();
    for target in &targets {
        check(target).map_err(|e| format!("{} on {medium}: {e}", target.name))?;
    }
    for target in &targets[..2] {
        let ours = Cell(vec![measure(target, &WORKLOADS[1], time.max(Duration::from_secs(1)), 0)?]).iops();
        let theirs = iscsi_perf(target, time)?;
        println!(
            "Client check, {} on {medium}, {}: ours {ours:.0} IOPS, iscsi-perf {theirs:.0}.",
            target.name, WORKLOADS[1].name
        );
    }
    println!();
    server.stop();
    Ok(())
}

fn print_row(
    medium: &str,
    workload: &Workload,
    targets: &[Target; 3],
    time: Duration,
    rounds: u64,
) -> Result<(), Failure> {
    let mut cells = [(); 3].map(|()| Cell::default());
    for round in 0..rounds {
        for (target, cell) in targets.iter().zip(&mut cells) {
            let round = measure(target, workload, time, round)
                .map_err(|e| format!("{} on {medium}, {}: {e}", target.name, workload.name))?;
            cell.0.push(round);
        }
    }
    let [platter, rdwr, aio] = cells;
    let iops = |cell: &Cell| format!("{:.0}{}", cell.iops(), if cell.client_bound() { "*" } else { "" });
    println!(
        "| {} | {} | {} | {} | {:.2} | {:.2} | {:.1} | {:.1} | {:.1} | {:.2} | {:.2} |",
        workload.name,
        iops(&platter),
        iops(&rdwr),
        iops(&aio),
        platter.iops() / rdwr.iops(),
        platter.iops() / aio.iops(),
        platter.cpu_us(),
        rdwr.cpu_us(),
        aio.cpu_us(),
        platter.cpu_us() / rdwr.cpu_us(),
        platter.cpu_us() / aio.cpu_us()
    );
    Ok(())
}

fn fill(path: &Path) -> std::io::Result<()> {
    use std::io::Write;
    let mut file = std::fs::File::create(path)?;
    let piece = vec![0x5a; 1 << 20];
    for _ in 0..FILE >> 20 {
        file.write_all(&piece)?;
    }
    file.sync_all()
}

fn login(target: &Target) -> Result<Session, Failure> {
    // tgt breaks a rule about the length of Data-In sequences; what is measured is the same.
    let options = LoginOptions { strict: false, ..LoginOptions::to(target.iqn) };
    let mut session = Session::login(target.address, &options)?;
    session.ready(target.lun)?;
    Ok(session)
}

fn measure(target: &Target, workload: &Workload, time: Duration, seed: u64) -> Result<Round, Failure> {
    let mut session = login(target)?;
    session.set_received_data(ReceivedData::Counted);
    let blocks = workload.size / BLOCK;
    let places = FILE / u64::from(workload.size);
    let data: std::sync::Arc<[u8]> = vec![0x5a; workload.size as usize].into();
    let (mut next, mut random) = (0, Rng::new(seed));
    let mut command = || {
        let place = if workload.random { random.below(places) } else { next % places };
        next += 1;
        let lba = place * u64::from(blocks);
        if workload.write {
            Command::write(target.lun, lba, data.clone(), BLOCK)
        } else {
            Command::read(target.lun, lba, blocks, BLOCK)
        }
    };
    for _ in 0..workload.depth {
        session.submit(&command())?;
    }
    let cpu = |pid| process_use::cpu(pid);
    let (server_cpu, client_cpu) = (cpu(target.pid)?, cpu(std::process::id())?);
    let start = Instant::now();
    let mut ended = 0_u32;
    while start.elapsed() < time {
        // Everything that has arrived is answered with as many new commands, sent together.
        let mut event = Some(session.next_event()?);
        while let Some(arrived) = event {
            match arrived {
                Event::End(end) if end.is_good() => ended += 1,
                other => return Err(format!("{other:?}").into()),
            }
            session.submit(&command())?;
            event = session.poll_event()?;
        }
    }
    let elapsed = start.elapsed();
    let (server_cpu, client_cpu) = (cpu(target.pid)? - server_cpu, cpu(std::process::id())? - client_cpu);
    while session.in_flight() > 0 {
        session.next_end()?;
    }
    session.logout()?;
    Ok(Round { ios: f64::from(ended), elapsed, server_cpu, client_cpu })
}

/// What is written is read again.
fn check(target: &Target) -> Result<(), Failure> {
    let mut session = login(target)?;
    for n in 0..CHECKED_BLOCKS {
        let lba = n * (FILE / u64::from(BLOCK) / CHECKED_BLOCKS);
        let data = vec![n as u8 ^ 0xc3; BLOCK as usize];
        let wrote = session.execute(&Command::write(target.lun, lba, data.clone(), BLOCK))?;
        let read = session.execute(&Command::read(target.lun, lba, 1, BLOCK))?;
        if !wrote.is_good() || !read.is_good() || read.data != data {
            return Err(format!("block {lba} is not what was written").into());
        }
    }
    session.logout()?;
    Ok(())
}

/// The same by libiscsi's tool, which prints "iops average N".
fn iscsi_perf(target: &Target, time: Duration) -> Result<f64, Failure> {
    let seconds = time.as_secs().max(1).to_string();
    let url = format!("iscsi://{}/{}/{}", target.address, target.iqn, target.lun);
    let output =
        std::process::Command::new("iscsi-perf").args(["-r", "-b", "8", "-m", "32", "-t", &seconds, &url]).output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let figure = text.rsplit("iops average ").next().and_then(|rest| rest.split_whitespace().next());
    Ok(figure.ok_or("iscsi-perf printed no average")?.parse()?)
}
