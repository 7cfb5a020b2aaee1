//! What a checker says when something is wrong.

use std::fmt;

use platter_block::Instant;

/// The invariants, by name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Checker {
    /// A read returns the newest answered write of each block, or one that is under way.
    Register,
    /// After a power cut or a crash each block holds what was promised to survive, or something newer.
    Survival,
    /// A tag ends exactly once, and nothing else ends.
    OneEnd,
    /// Every op ends in bounded time once no disk hangs.
    Liveness,
    /// An aborted op ends at once if no write of it is at a disk, and within the grace otherwise; not before its writes
    /// have ended unless the grace is over.
    Abort,
    /// An op touches its own blocks on its own disks, each once, with the right part of its buffer, within the disk's limits.
    Mapping,
    /// Nothing is sent for an op that has ended or was aborted, nor to a missing disk.
    Silence,
    /// `Good` means that every piece was sent and ended good; an error means that something went wrong.
    Status,
    /// Nothing comes between the read and the write of compare-and-write and or-write.
    Exclusive,
    /// Counters add up: `requested == elided + joined + issued + refused`, and `issued` is what the disk has seen.
    Counts,
    /// At most one flush at a disk.
    OneFlush,
    /// No flush to a disk on which nobody who asked has anything undurable.
    UselessFlush,
    /// After a failed flush nothing is promised on that disk until the fault is cleared, and the owner is told.
    Poison,
    /// After an attach or a reset nothing is elided before one flush has succeeded.
    Claims,
    /// Volumes say what is true, and changes are announced.
    Advertised,
    /// The engine's own assertions.
    Panic,
}

/// An invariant does not hold. The loop adds when and in which seed.
#[derive(Clone, Debug)]
pub struct Fault {
    /// Which.
    pub checker: Checker,
    /// Where: a volume or disk and an LBA, or an op.
    pub place: String,
    /// What was found.
    pub what: String,
}

/// `Err` ends the run.
pub type Verdict<T = ()> = Result<T, Fault>;

/// A verdict against.
pub fn fault<T>(checker: Checker, place: impl fmt::Display, what: impl fmt::Display) -> Verdict<T> {
    Err(Fault { checker, place: place.to_string(), what: what.to_string() })
}

/// `Ok` if `holds`, else the fault; `place` and `what` are only made then.
pub fn ensure<P: fmt::Display, W: fmt::Display>(
    holds: bool,
    checker: Checker,
    describe: impl FnOnce() -> (P, W),
) -> Verdict {
    if holds {
        return Ok(());
    }
    let (place, what) = describe();
    fault(checker, place, what)
}

/// What a run found.
#[derive(Clone, Debug)]
pub struct Violation {
    /// Replays it.
    pub seed: u64,
    /// Virtual time.
    pub at: Instant,
    /// The invariant and what broke it.
    pub fault: Fault,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, at, fault: Fault { checker, place, what } } = self;
        let (micros, nanos) = (at.0 / 1000, at.0 % 1000);
        write!(f, "seed {seed}: {checker:?} does not hold at {micros}.{nanos:03} us, {place}: {what}")
    }
}
