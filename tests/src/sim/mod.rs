//! A deterministic simulator of the real engine: one thread, virtual time, one seed.
//!
//! The engine under test is [`platter_engine::Engine`] itself. Around it everything is simulated: disks with volatile caches
//! that fail, hang, vanish and lie ([`disk`], [`medium`]), hosts that submit, abort and disconnect ([`hosts`]), and power
//! cuts after which a new engine starts over what the disks kept ([`world`]). A [`referee`] watches what goes in and comes
//! out and ends the run at the first broken invariant; their names are in [`verdict::Checker`].
//!
//! The same seed always gives the same run: time is an event heap ordered by (time, sequence), chance is one SplitMix64 per
//! component, and nothing iterates over a hash map. The hash of a run's trace says so.
//!
//! | file | idea |
//! |---|---|
//! | `plan.rs` | what a seed is about, decided before anything runs |
//! | `world.rs` | the loop: events, the engine, lives and power cuts |
//! | `disk.rs`, `medium.rs` | what a disk does and what it holds |
//! | `hosts.rs` | what initiators ask for |
//! | `referee.rs`, `pieces.rs`, `ops.rs` | the checks on every op and on every disk op |
//! | `registers.rs` | the oracle: what each block may hold |
//! | `flush_audit.rs` | the checks on flushes, poison and counters of one disk |
//! | `verdict.rs`, `trace.rs`, `rng.rs` | violations, the trace and its hash, chance |
//! | `fleet.rs` | many seeds on several threads |

pub mod disk;
pub mod fleet;
pub mod flush_audit;
pub mod hosts;
pub mod medium;
pub mod ops;
mod pieces;
pub mod plan;
pub mod referee;
pub mod registers;
pub mod rng;
pub mod trace;
pub mod verdict;
pub mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

use platter_block::Instant;

use plan::Lie;
use verdict::{Checker, Fault, Violation};

/// What to run.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The seed: names the whole run.
    pub seed: u64,
    /// One disk deceives, and nothing else goes wrong: the run should end with a violation, sooner or later.
    pub lie: Option<Lie>,
    /// Keep the text of the trace.
    pub trace: bool,
}

/// What a run came to.
#[derive(Debug)]
pub struct Outcome {
    /// The same for the same seed and code.
    pub hash: u64,
    /// Ops submitted.
    pub ops: u64,
    /// Events processed.
    pub events: u64,
    /// The broken invariant, if one was.
    pub violation: Option<Violation>,
    /// What happened, if it was asked for.
    pub trace: Option<String>,
}

/// Runs one seed. A panic of the engine is a violation like any other.
pub fn run(options: Options) -> Outcome {
    let mut world = world::World::new(options);
    let ended = catch_unwind(AssertUnwindSafe(|| world.run()));
    let broken = match ended {
        Ok(verdict) => verdict.err(),
        Err(panic) => {
            let what = panic.downcast_ref::<String>().cloned();
            let what = what.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_default();
            Some(Fault { checker: Checker::Panic, place: "engine".into(), what })
        }
    };
    let at: Instant = world.now();
    let violation = broken.map(|fault| Violation { seed: options.seed, at, fault });
    world.outcome(violation)
}
