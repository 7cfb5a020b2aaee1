//! One session's load: random writes, FUA writes, flushes and reads of its own blocks, until the connection dies.

use super::ledger::Ledger;
use super::stamp::{self, BLOCK};
use crate::initiator::{Command, End, Error, Session};
use crate::sim::rng::Rng;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::Thread;

/// Commands in flight per session.
const DEPTH: usize = 8;
/// Longest read or write in blocks.
const MAX_BLOCKS: u64 = 16;

/// Tells the one who kills when to do it.
#[derive(Debug)]
pub(super) struct Shared {
    writes_left: AtomicU64,
    due: AtomicBool,
    killer: Thread,
}

impl Shared {
    pub(super) fn new(writes: u64, killer: Thread) -> Self {
        Self { writes_left: AtomicU64::new(writes), due: AtomicBool::new(false), killer }
    }

    /// Waits for the moment. For the thread that was named the killer.
    pub(super) fn wait(&self) {
        while !self.due.load(Ordering::Acquire) {
            std::thread::park();
        }
    }

    fn wrote(&self) {
        // Wraps below zero after the moment, which has come once only.
        if self.writes_left.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.call();
        }
    }

    fn call(&self) {
        self.due.store(true, Ordering::Release);
        self.killer.unpark();
    }
}

#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) writes: u64,
    pub(super) fua_writes: u64,
    pub(super) flushes: u64,
    pub(super) reads: u64,
}

/// What is left when the connection is gone.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) ledger: Ledger,
    pub(super) counts: Counts,
    pub(super) violations: Vec<String>,
}

#[derive(Debug)]
pub(super) struct Load {
    session: Session,
    ledger: Ledger,
    rng: Rng,
    shared: Arc<Shared>,
    in_flight: BTreeMap<u32, Kind>,
    counts: Counts,
    violations: Vec<String>,
}

#[derive(Clone, Debug)]
enum Kind {
    Write { range: Range<u64>, fua: bool },
    Read(Range<u64>),
    Flush,
}

impl Load {
    pub(super) fn new(session: Session, ledger: Ledger, rng: Rng, shared: Arc<Shared>) -> Self {
        let (in_flight, counts, violations) = Default::default();
        Self { session, ledger, rng, shared, in_flight, counts, violations }
    }

    pub(super) fn run(mut self) -> Ended {
        let error = self.until_it_dies();
        // The kill looks like this. Anything else is the target's fault, and the killer must not wait for ever.
        if !matches!(error, Error::Closed) {
            self.violations.push(format!("under load: {error}"));
        }
        self.shared.call();
        Ended { ledger: self.ledger, counts: self.counts, violations: self.violations }
    }

    fn until_it_dies(&mut self) -> Error {
        if let Err(e) = self.session.ready(0) {
            return e;
        }
        loop {
            while self.in_flight.len() < DEPTH {
                if let Err(e) = self.submit() {
                    return e;
                }
            }
            match self.session.next_end() {
                Ok(end) => self.ended(&end),
                Err(e) => return e,
            }
        }
    }

    fn submit(&mut self) -> Result<(), Error> {
        let kind = match self.rng.below(100) {
            0..70 => self.free_range().map(|range| Kind::Write { range, fua: self.rng.chance(250) }),
            70..90 => self.free_range().map(Kind::Read),
            _ => None,
        };
        let kind = kind.unwrap_or(Kind::Flush);
        let command = match &kind {
            Kind::Write { range, fua } => {
                let version = self.ledger.send(range.clone());
                let data: Vec<u8> = range.clone().flat_map(|lba| stamp::block(lba, version)).collect();
                let write = Command::write(0, range.start, data, BLOCK as u32);
                if *fua { write.fua() } else { write }
            }
            Kind::Read(range) => Command::read(0, range.start, (range.end - range.start) as u32, BLOCK as u32),
            Kind::Flush => Command::synchronize_cache(0),
        };
        let tag = self.session.submit(&command)?;
        self.in_flight.insert(tag, kind);
        Ok(())
    }

    /// Random blocks that nothing in flight touches; none if the dice hit others.
    fn free_range(&mut self) -> Option<Range<u64>> {
        let all = self.ledger.range();
        let len = self.rng.between(1, MAX_BLOCKS);
        let start = self.rng.between(all.start, all.end - len);
        let range = start..start + len;
        let overlaps = |kind: &Kind| match kind {
            Kind::Write { range: other, .. } | Kind::Read(other) => other.start < range.end && range.start < other.end,
            Kind::Flush => false,
        };
        (!self.in_flight.values().any(overlaps)).then_some(range)
    }

    fn ended(&mut self, end: &End) {
        let kind = self.in_flight.remove(&end.tag).expect("the session returns tags that it gave");
        if !end.is_good() {
            self.violations.push(format!("{kind:?} ended with {end:?}"));
            return;
        }
        match kind {
            Kind::Write { range, fua } => {
                self.ledger.acknowledge(range);
                self.counts.writes += 1;
                self.counts.fua_writes += u64::from(fua);
                self.shared.wrote();
            }
            Kind::Read(range) => {
                for (lba, bytes) in range.zip(end.data.chunks(BLOCK)) {
                    match self.ledger.check(lba, bytes) {
                        Ok(()) => self.counts.reads += 1,
                        Err(what) => self.violations.push(format!("under load: {what}")),
                    }
                }
            }
            Kind::Flush => self.counts.flushes += 1,
        }
    }
}
