//! What one disk holds: a volatile cache of versions over a durable image, and what a power cut leaves of it.
//!
//! A block's content is a number ([`Value`]), not bytes: two writes never write the same number unless they write zeroes,
//! so a number read back names the write it came from.
//!
//! Rules
//! * M1 Reads see the newest version that was applied, durable or not.
//! * M2 A write becomes durable when it is applied through (FUA, or no volatile cache), or when a flush covers it.
//! * M3 A flush covers every write that had ended when the disk *started* it. A write that was applied but had not ended
//!   may be covered or not.
//! * M4 At a power cut each write that is not durable is kept, dropped, or torn between blocks, each by itself.
//! * M5 A block never goes back behind its durable version: what is older than it is gone from the cache too.

use super::rng::{Rng, mix};

/// Content of one block. 0 is what a block holds before the first write and after it was zeroed.
pub type Value = u64;

/// A disk write, numbered in the order of arrival at its disk.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct WriteId(pub u64);

/// The blocks of one disk.
#[derive(Debug)]
pub struct Medium {
    blocks: Vec<Block>,
    /// Versions are numbered in the order in which they are applied.
    newest: u64,
    /// Writes that are applied and have not ended (M3).
    unended: Vec<WriteId>,
}

#[derive(Clone, Default, Debug)]
struct Block {
    durable: Version,
    /// Oldest first, each newer than `durable` (M5).
    volatile: Vec<Version>,
}

#[derive(Clone, Copy, Debug)]
struct Version {
    order: u64,
    value: Value,
    write: WriteId,
}

impl Default for Version {
    fn default() -> Self {
        Self { order: 0, value: 0, write: WriteId(0) }
    }
}

/// What a flush covers, decided when the disk starts it (M3).
#[derive(Clone, Debug)]
pub struct Snapshot {
    newest: u64,
    left_out: Vec<WriteId>,
}

impl Medium {
    /// A medium of `blocks` zeroes.
    pub fn new(blocks: u64) -> Self {
        Self { blocks: vec![Block::default(); blocks as usize], newest: 0, unended: Vec::new() }
    }

    /// The newest version of a block (M1).
    pub fn read(&self, lba: u64) -> Value {
        let block = &self.blocks[lba as usize];
        block.volatile.last().unwrap_or(&block.durable).value
    }

    /// A write is about to change blocks; until [`end`](Self::end) a flush need not cover it.
    pub fn begin(&mut self, write: WriteId) {
        self.unended.push(write);
    }

    /// One block of a write arrives, to stay if `durable` (M2).
    pub fn apply(&mut self, write: WriteId, lba: u64, value: Value, durable: bool) {
        self.newest += 1;
        let version = Version { order: self.newest, value, write };
        let block = &mut self.blocks[lba as usize];
        block.volatile.push(version);
        if durable {
            block.settle(version);
        }
    }

    /// The write has ended: a flush that starts from now on covers it.
    pub fn end(&mut self, write: WriteId) {
        self.unended.retain(|&w| w != write);
    }

    /// A flush starts (M3). `chance` decides about the writes that have not ended.
    pub fn start_flush(&self, chance: &mut Rng) -> Snapshot {
        let left_out = self.unended.iter().copied().filter(|_| chance.chance(700)).collect();
        Snapshot { newest: self.newest, left_out }
    }

    /// The flush that started with `snapshot` has succeeded.
    pub fn finish_flush(&mut self, snapshot: &Snapshot) {
        for block in &mut self.blocks {
            let covered = |v: &&Version| v.order <= snapshot.newest && !snapshot.left_out.contains(&v.write);
            if let Some(&version) = block.volatile.iter().rev().find(covered) {
                block.settle(version);
            }
        }
    }

    /// Decides what is left of the volatile cache (M4): the end of a power cut, and of a flush that lost its data.
    /// The same `fate` and the same versions give the same survivors.
    pub fn lose_cache(&mut self, fate: u64) {
        for (lba, block) in self.blocks.iter_mut().enumerate() {
            let kept = |v: &&Version| survives(fate, v.write, lba as u64);
            if let Some(&version) = block.volatile.iter().rev().find(kept) {
                block.settle(version);
            }
            block.volatile.clear();
        }
        self.unended.clear();
    }

    /// Whether some block would be at risk in a power cut.
    pub fn has_volatile(&self) -> bool {
        self.blocks.iter().any(|b| !b.volatile.is_empty())
    }
}

impl Snapshot {
    /// The same, covering also every write that was applied and had not ended.
    pub fn of_everything(self) -> Self {
        Self { left_out: Vec::new(), ..self }
    }
}

impl Block {
    /// Makes `version` durable, and with it forgets everything older (M5).
    fn settle(&mut self, version: Version) {
        debug_assert!(version.order > self.durable.order, "durable versions only move forward");
        self.durable = version;
        self.volatile.retain(|v| v.order > version.order);
    }
}

/// The fate of one block of a write that is not durable: the write is kept, dropped, or torn (M4).
pub fn survives(fate: u64, write: WriteId, lba: u64) -> bool {
    let of_write = mix(fate ^ mix(write.0));
    match of_write % 3 {
        0 => true,
        1 => false,
        _ => mix(of_write ^ lba) & 1 == 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(medium: &mut Medium, id: u64, lba: u64, value: Value) {
        medium.begin(WriteId(id));
        medium.apply(WriteId(id), lba, value, false);
        medium.end(WriteId(id));
    }

    /// The contents of block 0 that some power cut leaves.
    fn after_cuts(build: impl Fn() -> Medium) -> Vec<Value> {
        let mut seen = std::collections::BTreeSet::new();
        for fate in 0..200 {
            let mut medium = build();
            medium.lose_cache(mix(fate));
            seen.insert(medium.read(0));
        }
        seen.into_iter().collect()
    }

    #[test]
    fn each_undurable_version_may_survive_and_none_older_than_the_durable_one() {
        let build = || {
            let mut medium = Medium::new(1);
            write(&mut medium, 1, 0, 11);
            write(&mut medium, 2, 0, 12);
            let snapshot = medium.start_flush(&mut Rng::new(0));
            medium.finish_flush(&snapshot);
            write(&mut medium, 3, 0, 13);
            write(&mut medium, 4, 0, 14);
            assert_eq!(medium.read(0), 14);
            medium
        };
        assert_eq!(after_cuts(build), [12, 13, 14]);
    }

    #[test]
    fn a_write_that_ended_after_the_flush_started_is_not_covered() {
        let build = || {
            let mut medium = Medium::new(1);
            let snapshot = medium.start_flush(&mut Rng::new(0));
            write(&mut medium, 1, 0, 11);
            medium.finish_flush(&snapshot);
            medium
        };
        assert_eq!(after_cuts(build), [0, 11]);
    }

    #[test]
    fn an_applied_write_that_has_not_ended_is_covered_or_not() {
        let outcome = |chance: u64| {
            let mut medium = Medium::new(1);
            medium.begin(WriteId(1));
            medium.apply(WriteId(1), 0, 11, false);
            let snapshot = medium.start_flush(&mut Rng::new(chance));
            medium.finish_flush(&snapshot);
            medium.has_volatile()
        };
        let left_out = (0..100).filter(|&c| outcome(c)).count();
        assert!((1..100).contains(&left_out), "both happen");
    }

    #[test]
    fn a_write_through_survives_every_cut() {
        let build = || {
            let mut medium = Medium::new(1);
            write(&mut medium, 1, 0, 11);
            medium.apply(WriteId(2), 0, 12, true);
            medium
        };
        assert_eq!(after_cuts(build), [12]);
    }

    #[test]
    fn a_write_of_two_blocks_can_be_torn_either_way() {
        let mut seen = std::collections::BTreeSet::new();
        for fate in 0..200 {
            let mut medium = Medium::new(2);
            medium.begin(WriteId(1));
            medium.apply(WriteId(1), 0, 11, false);
            medium.apply(WriteId(1), 1, 11, false);
            medium.end(WriteId(1));
            medium.lose_cache(mix(fate));
            seen.insert((medium.read(0), medium.read(1)));
        }
        assert_eq!(seen.len(), 4);
    }
}
