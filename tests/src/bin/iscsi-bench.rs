//! Platter beside tgt, in one run: IOPS and server CPU per I/O as a Markdown table. Started by `tests/bench/iscsi`.
//!
//! Each cell (medium, target, workload) is measured in several short rounds that take turns with those of the other
//! targets; the best round counts, for all alike.

#![allow(clippy::print_stdout, clippy::print_stderr)]

use platter_tests::bench_tgt::Tgt;
use platter_tests::initiator::{Command, LoginOptions, ReceivedData, Session};
use platter_tests::process_use;
use platter_tests::server_process::Setup;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

type Failure = Box<dyn std::error::Error>;

const PLATTER_TARGET: &str = "iqn.2026-11.org.platter:bench";
const BLOCK: u32 = 512;
/// Size of each backing file: written in full first, so that no target reads holes.
const FILE: u64 = 512 << 20;
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

/// One measurement.
#[derive(Clone, Copy, Default)]
struct Figure {
    iops: f64,
    /// Server CPU time per I/O.
    cpu_us: f64,
}

fn main() -> Result<(), Failure> {
    let seconds = option("--seconds")?.unwrap_or(1.0);
    let rounds = option("--rounds")?.unwrap_or(3.0) as usize;
    println!("# Platter and tgt, iSCSI over loopback\n");
    println!(
        "Best of {rounds} rounds of {seconds} s; files of {} MiB; server on one core, client on another.\n",
        FILE >> 20
    );
    let disk = tempfile::Builder::new().prefix("platter-bench-").tempdir_in("target")?;
    let memory = tempfile::Builder::new().prefix("platter-bench-").tempdir_in("/dev/shm")?;
    for (medium, folder) in [("tmpfs", memory.path()), ("disk", disk.path())] {
        bench_medium(medium, folder, Duration::from_secs_f64(seconds), rounds)?;
    }
    Ok(())
}

fn option(name: &str) -> Result<Option<f64>, Failure> {
    let mut arguments = std::env::args().skip_while(|a| a != name);
    Ok(arguments.next().and_then(|_| arguments.next()).map(|v| v.parse()).transpose()?)
}

fn bench_medium(medium: &str, folder: &Path, time: Duration, rounds: usize) -> Result<(), Failure> {
    for file in ["platter", "rdwr", "aio"] {
        fill(&folder.join(file))?;
    }
    let setup = Setup::new(&format!(
        "disks: {{ d: {{ path: {}/platter }} }}
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
    println!(
        "| workload | platter IOPS | tgt rdwr | tgt aio | platter / rdwr | platter / aio | platter CPU us per I/O | tgt rdwr | tgt aio | CPU platter / rdwr |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    for workload in &WORKLOADS {
        let mut best = [Figure::default(); 3];
        for round in 0..rounds {
            for (target, best) in targets.iter().zip(&mut best) {
                let figure = measure(target, workload, time, round as u64)
                    .map_err(|e| format!("{} on {medium}, {}: {e}", target.name, workload.name))?;
                if figure.iops > best.iops {
                    *best = figure;
                }
            }
        }
        let [platter, rdwr, aio] = best;
        println!(
            "| {} | {:.0} | {:.0} | {:.0} | {:.2} | {:.2} | {:.1} | {:.1} | {:.1} | {:.2} |",
            workload.name,
            platter.iops,
            rdwr.iops,
            aio.iops,
            platter.iops / rdwr.iops,
            platter.iops / aio.iops,
            platter.cpu_us,
            rdwr.cpu_us,
            aio.cpu_us,
            platter.cpu_us / rdwr.cpu_us
        );
    }
    println!();
    for target in &targets[..2] {
        let ours = measure(target, &WORKLOADS[1], time, 0)?.iops;
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

fn fill(path: &Path) -> std::io::Result<()> {
    use std::io::Write;
    let mut file = std::fs::File::create(path)?;
    let piece = vec![0x5a; 1 << 20];
    for _ in 0..FILE >> 20 {
        file.write_all(&piece)?;
    }
    file.sync_all()
}

fn measure(target: &Target, workload: &Workload, time: Duration, seed: u64) -> Result<Figure, Failure> {
    // tgt breaks a rule about the length of Data-In sequences; what is measured is the same.
    let options = LoginOptions { strict: false, ..LoginOptions::to(target.iqn) };
    let mut session = Session::login(target.address, &options)?;
    session.ready(target.lun)?;
    session.set_received_data(ReceivedData::Counted);
    let blocks = workload.size / BLOCK;
    let places = FILE / u64::from(workload.size);
    let data: std::sync::Arc<[u8]> = vec![0x5a; workload.size as usize].into();
    let (mut next, mut random) = (0, seed);
    let mut command = || {
        let place = if workload.random { split_mix(&mut random) % places } else { next % places };
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
    let cpu = process_use::cpu(target.pid)?;
    let start = Instant::now();
    let mut ended = 0_u32;
    while start.elapsed() < time {
        // Everything that has arrived is answered with as many new commands, sent together.
        let mut end = session.next_end()?;
        loop {
            if !end.is_good() {
                return Err(format!("{end:?}").into());
            }
            ended += 1;
            session.submit(&command())?;
            match session.poll_event()? {
                Some(platter_tests::initiator::Event::End(more)) => end = more,
                Some(other) => return Err(format!("{other:?}").into()),
                None => break,
            }
        }
    }
    let (elapsed, cpu) = (start.elapsed(), process_use::cpu(target.pid)? - cpu);
    while session.in_flight() > 0 {
        session.next_end()?;
    }
    session.logout()?;
    let ended = f64::from(ended);
    Ok(Figure { iops: ended / elapsed.as_secs_f64(), cpu_us: cpu.as_secs_f64() * 1e6 / ended })
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

/// SplitMix64, by Steele, Lea and Flood.
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
