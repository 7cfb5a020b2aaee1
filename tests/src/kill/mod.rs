//! kill -9 of the real server under load: no acknowledged write may be missing, no block torn, nothing old may come back.
//!
//! A round: start the server on the disk of the last round, let several sessions write, flush and read, kill the process
//! when a random number of writes has been acknowledged, start it again, and read every block. Each block must then hold the
//! last acknowledged version, or the one that was in flight at the kill. What was read is the truth for the next round: a
//! write of the dead process that lands later is a violation there.
//!
//! | file | idea |
//! |---|---|
//! | `stamp.rs` | block content that says which block and version it is |
//! | `ledger.rs` | what each block may hold |
//! | `load.rs` | one session's load until its connection dies |

pub mod ledger;
mod load;
pub mod stamp;

use crate::initiator::{Command, Error, LoginOptions, Session, scsi};
use crate::server_process::{ServerProcess, Setup};
use crate::sim::rng::Rng;
use ledger::Ledger;
use load::{Load, Shared};
use stamp::BLOCK;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

const TARGET: &str = "iqn.2026-11.org.platter.test:kill";
/// Each has blocks of its own, so that the order of the writes to a block is known.
const SESSIONS: u64 = 4;
const BLOCKS_PER_SESSION: u64 = 512;
/// Acknowledged writes after which the server is killed.
const WRITES_BEFORE_KILL: (u64, u64) = (1, 1200);
/// Blocks per read when everything is read.
const READ_BLOCKS: u64 = 64;
/// How long a restarted server may take until its disk is there.
const PATIENCE: Duration = Duration::from_secs(30);
/// Pause between two looks at a unit that is not ready.
const RETRY: Duration = Duration::from_millis(10);

/// What some rounds found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Rounds that were run.
    pub rounds: u64,
    /// Write commands that were acknowledged before a kill.
    pub writes: u64,
    /// Of these with FUA.
    pub fua_writes: u64,
    /// Flushes that were acknowledged.
    pub flushes: u64,
    /// Blocks read under load and found right.
    pub reads: u64,
    /// Blocks read after restarts.
    pub verified: u64,
    /// Blocks with a write in flight at a kill that was found done, and not done.
    pub in_flight: (u64, u64),
    /// What was wrong.
    pub violations: Vec<String>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rounds, writes, fua_writes, flushes, reads, verified, in_flight: (done, undone), violations } = self;
        writeln!(f, "rounds                      {rounds}")?;
        writeln!(f, "writes acknowledged         {writes} ({fua_writes} with FUA), flushes {flushes}")?;
        writeln!(f, "blocks read under load      {reads}")?;
        writeln!(f, "blocks verified after kill  {verified}; in flight at the kill: {done} done, {undone} not done")?;
        write!(f, "violations                  {}", violations.len())?;
        violations.iter().try_for_each(|v| write!(f, "\n  {v}"))
    }
}

/// Runs rounds, on io_uring and on threads in turn. `sabotage` is called between each kill and the restart with the disk's
/// file: how a test shows that a loss would be found.
///
/// # Panics
///
/// If the server does not start, or refuses what it must accept.
pub fn run(rounds: u64, seed: u64, mut sabotage: impl FnMut(&std::path::Path, &[Ledger])) -> Report {
    let mut rng = Rng::new(seed);
    let setup = Setup::new(&configuration(0));
    let mut report = Report::default();
    let mut ledgers: Vec<_> = (0..SESSIONS).map(|s| Ledger::new(blocks_of(s))).collect();
    for round in 0..rounds {
        setup.configure(&configuration(round));
        let server = setup.start();
        wait_until_ready(&server);
        load_and_kill(server, &mut ledgers, &mut rng, &mut report);
        sabotage(&setup.folder().join("disk"), &ledgers);
        let server = setup.start();
        wait_until_ready(&server);
        verify(&server, round, &mut ledgers, &mut report);
        server.kill();
        report.rounds += 1;
    }
    report
}

fn configuration(round: u64) -> String {
    let backend = if round.is_multiple_of(2) { "uring" } else { "threads" };
    let size = SESSIONS * BLOCKS_PER_SESSION * BLOCK as u64;
    format!(
        "backend: {backend}
disks: {{ d: {{ path: FOLDER/disk, size: {size}, block_size: {BLOCK} }} }}
volumes:
  v: {{ disk: d, hosts: {{ allow_any: true }}, iscsi: {{ target: '{TARGET}', lun: 0 }} }}
"
    )
}

fn blocks_of(session: u64) -> Range<u64> {
    session * BLOCKS_PER_SESSION..(session + 1) * BLOCKS_PER_SESSION
}

fn options(session: u64) -> LoginOptions {
    let mut options = LoginOptions::to(TARGET).with_isid(session as u32 + 1);
    // Small bursts, so that writes of several blocks wait for an R2T.
    options.first_burst = 8 << 10;
    options
}

fn load_and_kill(server: ServerProcess, ledgers: &mut Vec<Ledger>, rng: &mut Rng, report: &mut Report) {
    let (low, high) = WRITES_BEFORE_KILL;
    let shared = Arc::new(Shared::new(rng.between(low, high), std::thread::current()));
    let workers: Vec<_> = (0..)
        .zip(ledgers.drain(..))
        .map(|(number, ledger)| {
            let session = Session::login(server.address(), &options(number)).expect("the login is accepted");
            let load = Load::new(session, ledger, rng.fork(), shared.clone());
            std::thread::spawn(move || load.run())
        })
        .collect();
    shared.wait();
    server.kill();
    for worker in workers {
        let ended = worker.join().expect("a worker does not panic");
        report.writes += ended.counts.writes;
        report.fua_writes += ended.counts.fua_writes;
        report.flushes += ended.counts.flushes;
        report.reads += ended.counts.reads;
        report.violations.extend(ended.violations);
        ledgers.push(ended.ledger);
    }
}

fn verify(server: &ServerProcess, round: u64, ledgers: &mut [Ledger], report: &mut Report) {
    let mut session = Session::login(server.address(), &options(0)).expect("the login is accepted");
    session.ready(0).expect("the unit is ready");
    for ledger in ledgers {
        let Range { start, end } = ledger.range();
        for first in (start..end).step_by(READ_BLOCKS as usize) {
            let read = Command::read(0, first, READ_BLOCKS as u32, BLOCK as u32);
            let answer = session.execute(&read).expect("the target keeps to the protocol");
            assert!(answer.is_good(), "round {round}, blocks from {first}: {answer:?}");
            for (lba, bytes) in (first..).zip(answer.data.chunks(BLOCK)) {
                match ledger.settle(lba, bytes) {
                    Ok(None) => {}
                    Ok(Some(true)) => report.in_flight.0 += 1,
                    Ok(Some(false)) => report.in_flight.1 += 1,
                    Err(what) => report.violations.push(format!("round {round}, after the kill: {what}")),
                }
                report.verified += 1;
            }
        }
    }
}

/// The kernel may still be ending I/O of the killed process; until it has, that process's lock keeps the disk away.
fn wait_until_ready(server: &ServerProcess) {
    let mut session = Session::login(server.address(), &options(0)).expect("the login is accepted");
    let started = Instant::now();
    loop {
        let end = session.execute(&Command::test_unit_ready(0)).expect("the target keeps to the protocol");
        match end.sense_triple() {
            None if end.is_good() => break,
            Some((scsi::key::UNIT_ATTENTION, ..)) => {}
            Some((scsi::key::NOT_READY, ..)) if started.elapsed() < PATIENCE => std::thread::sleep(RETRY),
            _ => panic!("the unit does not become ready: {end:?}"),
        }
    }
    match session.logout() {
        Ok(()) | Err(Error::Closed) => {}
        Err(e) => panic!("logout: {e}"),
    }
}
