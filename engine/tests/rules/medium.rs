//! A disk that remembers what a power cut would leave, as simply as it can be said.

use std::collections::BTreeMap;

use platter_block::{DiskInfo, DiskOp, Fua, Lba};

/// What a disk claims without doing it (P6).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Lies {
    /// FUA writes are acknowledged from the cache.
    pub(crate) fua: bool,
    /// A flush does nothing.
    pub(crate) flush: bool,
    /// There is a volatile cache although it says there is none.
    pub(crate) cache: bool,
}

/// One disk's content: for each block the writes that landed, oldest first.
#[derive(Debug)]
pub(crate) struct Medium {
    /// What it says of itself.
    pub(crate) info: DiskInfo,
    pub(crate) lies: Lies,
    blocks: BTreeMap<u64, Vec<Landed>>,
    clock: u64,
}

#[derive(Debug)]
struct Landed {
    at: u64,
    /// Not only in the cache.
    durable: bool,
}

impl Medium {
    pub(crate) fn new(info: DiskInfo, lies: Lies) -> Self {
        Self { info, lies, blocks: BTreeMap::new(), clock: 0 }
    }

    /// A write lands. Returns when, for [`survives`](Self::survives).
    pub(crate) fn land(&mut self, lba: Lba, count: u32, fua: bool) -> u64 {
        let volatile = self.info.volatile_cache || self.lies.cache;
        let durable = !volatile || fua && self.info.fua == Fua::Native && !self.lies.fua;
        self.clock += 1;
        for block in lba.0..lba.0 + u64::from(count) {
            self.blocks.entry(block).or_default().push(Landed { at: self.clock, durable });
        }
        self.clock
    }

    /// Now, for [`flush`](Self::flush): a flush is handed to the disk.
    pub(crate) fn now(&self) -> u64 {
        self.clock
    }

    /// A flush that was handed over at `sent` ends well: everything that landed before is durable.
    pub(crate) fn flush(&mut self, sent: u64) {
        if self.lies.flush {
            return;
        }
        for landed in self.blocks.values_mut().flatten().filter(|landed| landed.at <= sent) {
            landed.durable = true;
        }
    }

    /// The cache is lost: power, a plug, or a flush that failed.
    pub(crate) fn drop_cache(&mut self) {
        for writes in self.blocks.values_mut() {
            writes.retain(|landed| landed.durable);
        }
    }

    /// Whether a power cut now leaves in `block` what landed at `at`, or something newer.
    pub(crate) fn survives(&self, block: u64, at: u64) -> bool {
        self.blocks.get(&block).is_some_and(|writes| writes.iter().any(|landed| landed.durable && landed.at >= at))
    }
}

/// The blocks of a disk op, and whether it writes them; `None` for a flush.
pub(crate) fn blocks_of(op: &DiskOp) -> Option<(Lba, u32, bool)> {
    match *op {
        DiskOp::Read { lba, count, .. } | DiskOp::BlockStatus { lba, count } => Some((lba, count.0, false)),
        DiskOp::Write { lba, count, .. } | DiskOp::WriteZeroes { lba, count, .. } | DiskOp::Unmap { lba, count } => {
            Some((lba, count.0, true))
        }
        DiskOp::Flush => None,
    }
}
