//! Many seeds on several threads. Each seed is a world of its own, so the result does not depend on how many threads there
//! are or which is faster.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::plan::Lie;
use super::rng::mix;
use super::verdict::Violation;
use super::{Options, run};

/// What to run.
#[derive(Clone, Debug)]
pub struct Campaign {
    /// Which seeds.
    pub seeds: Range<u64>,
    /// Passed on to every run.
    pub lie: Option<Lie>,
    /// No new seed is begun after the first violation.
    pub stop_early: bool,
    /// At least 1.
    pub threads: usize,
}

/// What a campaign came to.
#[derive(Default, Debug)]
pub struct Summary {
    /// Seeds run.
    pub seeds: u64,
    /// A hash over all seeds and the hashes of their traces.
    pub hash: u64,
    /// Ops submitted.
    pub ops: u64,
    /// Events processed.
    pub events: u64,
    /// By seed.
    pub violations: Vec<Violation>,
}

impl Campaign {
    /// Runs it.
    pub fn run(&self) -> Summary {
        let next = AtomicU64::new(self.seeds.start);
        let stop = AtomicBool::new(false);
        let mut summary = Summary::default();
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..self.threads).map(|_| scope.spawn(|| self.work(&next, &stop))).collect();
            for worker in workers {
                let part = worker.join().expect("a panic within a run is caught there");
                summary.add(part);
            }
        });
        summary.violations.sort_by_key(|v| v.seed);
        summary
    }

    fn work(&self, next: &AtomicU64, stop: &AtomicBool) -> Summary {
        let mut summary = Summary::default();
        while !stop.load(Ordering::Relaxed) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if !self.seeds.contains(&seed) {
                break;
            }
            let outcome = run(Options { seed, lie: self.lie, trace: false });
            summary.seeds += 1;
            summary.hash = summary.hash.wrapping_add(mix(seed ^ mix(outcome.hash)));
            summary.ops += outcome.ops;
            summary.events += outcome.events;
            if let Some(violation) = outcome.violation {
                summary.violations.push(violation);
                stop.fetch_or(self.stop_early, Ordering::Relaxed);
            }
        }
        summary
    }
}

impl Summary {
    fn add(&mut self, other: Self) {
        self.seeds += other.seeds;
        self.hash = self.hash.wrapping_add(other.hash);
        self.ops += other.ops;
        self.events += other.events;
        self.violations.extend(other.violations);
    }
}
