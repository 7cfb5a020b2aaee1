//! Logical block addresses and counts. Wire fields that count from zero become a [`BlockCount`] once, at decode.

use core::fmt;

/// A logical block address, relative to the volume or disk that the context names.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Lba(pub u64);

/// A number of logical blocks. May be zero.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct BlockCount(pub u32);

impl BlockCount {
    /// The size in bytes of this many blocks of `block_size` bytes. Cannot overflow: both factors are 32 bits wide.
    pub const fn bytes(self, block_size: u32) -> u64 {
        self.0 as u64 * block_size as u64
    }
}

impl fmt::Display for Lba {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for BlockCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The blocks `start .. start + count`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BlockRange {
    /// First block.
    pub start: Lba,
    /// How many.
    pub count: BlockCount,
}

impl BlockRange {
    /// The range of `count` blocks from `start`.
    pub const fn new(start: Lba, count: BlockCount) -> Self {
        Self { start, count }
    }

    /// One past the last block; saturates at `u64::MAX`, so a range that wraps never looks small.
    pub const fn end(self) -> u64 {
        self.start.0.saturating_add(self.count.0 as u64)
    }

    /// Whether every block lies below `blocks`. A wrapping range does not; an empty range at `blocks` does.
    pub const fn within(self, blocks: u64) -> bool {
        match self.start.0.checked_add(self.count.0 as u64) {
            Some(end) => end <= blocks,
            None => false,
        }
    }

    /// Whether the two ranges share a block. An empty range shares none.
    pub const fn overlaps(self, other: Self) -> bool {
        self.count.0 > 0 && other.count.0 > 0 && self.start.0 < other.end() && other.start.0 < self.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, count: u32) -> BlockRange {
        BlockRange::new(Lba(start), BlockCount(count))
    }

    #[test]
    fn a_wrapping_range_is_outside_every_volume() {
        assert!(!range(u64::MAX, 2).within(u64::MAX));
        assert!(!range(u64::MAX, 1).within(u64::MAX));
        assert!(range(u64::MAX - 1, 1).within(u64::MAX));
        assert!(range(8, 0).within(8));
        assert!(!range(9, 0).within(8));
    }

    #[test]
    fn overlap_is_half_open_and_empty_ranges_never_overlap() {
        assert!(range(0, 8).overlaps(range(7, 1)));
        assert!(!range(0, 8).overlaps(range(8, 1)));
        assert!(!range(0, 8).overlaps(range(4, 0)));
        assert!(!range(4, 0).overlaps(range(0, 8)));
    }
}
