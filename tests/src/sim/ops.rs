//! What is known of an op in flight, and of the pieces of it that were sent to disks.

use std::collections::BTreeMap;

use platter_block::{BlockCount, BlockRange, DiskOp, Instant, IoId, Lba, Op, Status, Tag};

use super::medium::Value;
use super::registers::Step;

/// An op that has not ended.
#[derive(Debug)]
pub struct Running {
    /// Counts up over the whole run; names the op in messages and its buffer.
    pub number: u64,
    /// Its name for the engine.
    pub tag: Tag,
    /// Which initiator and which of its slots; `None` when the simulator reads everything after a cut.
    pub owner: Option<(usize, u64)>,
    /// Number of the volume.
    pub volume: usize,
    /// The op.
    pub op: Op,
    /// Its buffer.
    pub values: Vec<Value>,
    /// When it was submitted.
    pub began: Step,
    /// When it was submitted.
    pub began_at: Instant,
    /// When an abort was asked.
    pub aborted_at: Option<Instant>,
    /// The volume advertised no write cache when the op was submitted: its answer means durable.
    pub advertised_durable: bool,
    /// For each disk, how many undurable writes it had acknowledged when the newest write that this op has to make durable
    /// was among them; 0: nothing to do there.
    pub needs: Vec<u64>,
    /// Whether it has written on each disk.
    pub wrote: Vec<bool>,
    /// Per block: a read was sent, a read ended well, a write was sent, a write ended well.
    pub read_sent: Blocks,
    /// See above.
    pub read_good: Blocks,
    /// See above.
    pub write_sent: Blocks,
    /// See above.
    pub write_good: Blocks,
    /// Blocks of which an unmap concerns only a part of the granule.
    pub hints: Blocks,
    /// Pieces in flight.
    pub out: u32,
    /// Pieces in flight that write.
    pub writes_out: u32,
    /// Statuses of its pieces that were not good, with volume LBAs.
    pub failures: Vec<Status>,
    /// Where the compared data differ, in bytes from the first block.
    pub differs_at: Option<u64>,
}

/// A set of blocks of one op, by index.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Blocks(pub u64);

/// A disk op in flight.
#[derive(Debug)]
pub struct Piece {
    /// Number of the op; `None` for a flush.
    pub op: Option<u64>,
    /// Which disk.
    pub disk: usize,
    /// What was sent.
    pub disk_op: DiskOp,
    /// Which blocks of the op.
    pub blocks: Blocks,
    /// When.
    pub sent: Step,
}

/// Pieces by name.
pub type Pieces = BTreeMap<IoId, Piece>;

impl Running {
    /// A new op; the simulator fills in what it knows besides.
    pub fn new(number: u64, tag: Tag, volume: usize, op: Op, values: Vec<Value>) -> Self {
        Self {
            number,
            tag,
            owner: None,
            volume,
            op,
            values,
            began: 0,
            began_at: Instant(0),
            aborted_at: None,
            advertised_durable: false,
            needs: Vec::new(),
            wrote: Vec::new(),
            read_sent: Blocks(0),
            read_good: Blocks(0),
            write_sent: Blocks(0),
            write_good: Blocks(0),
            hints: Blocks(0),
            out: 0,
            writes_out: 0,
            failures: Vec::new(),
            differs_at: None,
        }
    }

    /// The blocks it works on; empty for ops on the whole volume.
    pub fn range(&self) -> BlockRange {
        self.op.range().unwrap_or(BlockRange::new(Lba(0), BlockCount(0)))
    }

    /// All its blocks, by index.
    pub fn all(&self) -> Blocks {
        Blocks::run(0, u64::from(self.range().count.0))
    }

    /// Reads, then writes, and nothing may come between.
    pub const fn is_exclusive(&self) -> bool {
        matches!(self.op, Op::CompareAndWrite { .. } | Op::OrWrite { .. })
    }

    /// Asked for FUA.
    pub const fn is_fua(&self) -> bool {
        matches!(
            self.op,
            Op::Write { fua: true, .. }
                | Op::WriteZeroes { fua: true, .. }
                | Op::CompareAndWrite { fua: true, .. }
                | Op::OrWrite { fua: true, .. }
        )
    }

    /// A piece of it is or was at a disk, and more may come or has not ended.
    pub fn is_at_work(&self) -> bool {
        let begun = Blocks(self.read_sent.0 | self.write_sent.0) != Blocks(0);
        let last = if self.op.is_write() { self.write_good } else { self.read_good };
        begun && (self.out > 0 || (last != self.all() && self.failures.is_empty() && self.differs_at.is_none()))
    }

    /// First block of the buffer that reads fill, and that writes take, for this op.
    pub fn buffer_layout(&self) -> (u64, u64) {
        let n = u64::from(self.range().count.0);
        match self.op {
            Op::CompareAndWrite { .. } => (2 * n, n),
            Op::OrWrite { .. } => (n, n),
            _ => (0, 0),
        }
    }
}

impl Blocks {
    /// `count` blocks from `first`; together at most 63.
    pub const fn run(first: u64, count: u64) -> Self {
        assert!(first + count < 64, "a set of blocks has 63 places");
        Self(((1 << count) - 1) << first)
    }

    /// Whether the two share a block.
    pub const fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Adds blocks.
    pub const fn add(&mut self, other: Self) {
        self.0 |= other.0;
    }

    /// Whether the block is in.
    pub const fn has(self, index: u64) -> bool {
        self.0 >> index & 1 == 1
    }
}
