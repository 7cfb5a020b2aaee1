//! Ops on volumes, ops on disks, and how both end.

use crate::{BlockCount, BlockRange, BufId, Lba};

/// What a protocol asks of a volume. Every op ends exactly once, with one [`Status`].
///
/// `count` may be zero where the wire allows it: the op then only checks `lba` and, with `fua`, promises nothing.
/// Buffers are laid out in blocks from byte 0 of `buf`; where an op needs scratch space the submitter provides it, so
/// that the engine allocates nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    /// Read into `buf[0..count]`.
    Read {
        /** First block. */
        lba: Lba,
        /** How many. */
        count: BlockCount,
        /** Destination. */
        buf: BufId,
    },
    /// Write `buf[0..count]`. With `fua`, `Good` means durable.
    Write {
        /** First block. */
        lba: Lba,
        /** How many. */
        count: BlockCount,
        /** Durable before `Good`. */
        fua: bool,
        /** Source. */
        buf: BufId,
    },
    /// Make durable every write of this volume that ended before this op was submitted.
    Flush,
    /// Write zeroes; the disk may deallocate instead if `may_unmap`.
    WriteZeroes {
        /** First block. */
        lba: Lba,
        /** How many. */
        count: BlockCount,
        /** Durable before `Good`. */
        fua: bool,
        /** Deallocation is welcome where it reads as zeroes. */
        may_unmap: bool,
    },
    /// Deallocate: a hint for blocks smaller than the granularity, never an error for them.
    Unmap {
        /** First block. */
        lba: Lba,
        /** How many. */
        count: BlockCount,
    },
    /// Atomically against every other op on this volume: compare `buf[0..count]` with the medium, and if equal write
    /// `buf[count..2*count]`. `buf[2*count..3*count]` is scratch.
    CompareAndWrite {
        /** First block. */
        lba: Lba,
        /** How many. */
        count: BlockCount,
        /** Durable before `Good`. */
        fua: bool,
        /** Compare data, write data, scratch. */
        buf: BufId,
    },
    /// Atomically against every other op on this volume: read, OR with `buf[0..count]`, write back.
    /// `buf[count..2*count]` is scratch and holds the result.
    OrWrite {
        /** First block. */
        lba: Lba,
        /** How many. */
        count: BlockCount,
        /** Durable before `Good`. */
        fua: bool,
        /** OR mask, scratch. */
        buf: BufId,
    },
    /// Which blocks from `lba` on are allocated; ends with [`Report::Extents`] that start at `lba`.
    BlockStatus {
        /** First block. */
        lba: Lba,
        /** How far to look. */
        count: BlockCount,
    },
    /// Switch the volatile write cache of this volume (F9). Off: every write is made durable before its answer, and this
    /// op ends only when all earlier writes are durable. On: refused with `Unsupported` if no disk has a volatile cache.
    SetWriteCache {
        /** On or off. */
        enabled: bool,
    },
}

impl Op {
    /// The blocks this op reads or changes; `None` for ops on the whole volume.
    pub const fn range(&self) -> Option<BlockRange> {
        match *self {
            Self::Read { lba, count, .. }
            | Self::Write { lba, count, .. }
            | Self::WriteZeroes { lba, count, .. }
            | Self::Unmap { lba, count }
            | Self::CompareAndWrite { lba, count, .. }
            | Self::OrWrite { lba, count, .. }
            | Self::BlockStatus { lba, count } => Some(BlockRange::new(lba, count)),
            Self::Flush | Self::SetWriteCache { .. } => None,
        }
    }

    /// Whether the op can change the medium (F5).
    pub const fn is_write(&self) -> bool {
        matches!(
            self,
            Self::Write { .. }
                | Self::WriteZeroes { .. }
                | Self::Unmap { .. }
                | Self::CompareAndWrite { .. }
                | Self::OrWrite { .. }
        )
    }
}

/// How an op or a disk op ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// Done, and durable if that was asked.
    Good,
    /// The range does not lie within the volume.
    LbaOutOfRange,
    /// The disk could not read or write `lba` (relative to the volume for an `Op`, to the disk for a `DiskOp`).
    MediumError {
        /// First bad block.
        lba: Lba,
    },
    /// The volume or disk is read-only.
    WriteProtected,
    /// The file system or pool below has no space.
    NoSpace,
    /// Try again later: a limit was reached.
    Busy,
    /// The compared data differ first at this byte of the compared range.
    MiscompareAt {
        /// Byte offset from the first compared block.
        offset: u64,
    },
    /// A disk of the volume is missing or not opened yet.
    NotReady,
    /// Ended by an abort. No later op can see the medium change because of this one.
    Aborted,
    /// The disk went away while the op was running.
    Gone,
    /// A flush failed, or one failed before and the disk is poisoned (F3): what was acknowledged may not be durable.
    DurabilityLost,
    /// The disk or volume cannot do this op at all.
    Unsupported,
}

impl Status {
    /// Whether this is [`Status::Good`].
    pub const fn is_good(self) -> bool {
        matches!(self, Self::Good)
    }
}

/// What the engine asks of one disk. Completes exactly once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DiskOp {
    /// Read into `buf` from byte `at`.
    Read {
        /** First block on the disk. */
        lba: Lba,
        /** How many; at least 1. */
        count: BlockCount,
        /** Destination. */
        buf: BufId,
        /** Byte offset in `buf`. */
        at: u32,
    },
    /// Write from `buf`, byte `at`. With `fua`, durable at completion: sent only to a disk with [`Fua::Native`](crate::Fua).
    Write {
        /** First block on the disk. */
        lba: Lba,
        /** How many; at least 1. */
        count: BlockCount,
        /** Force Unit Access. */
        fua: bool,
        /** Source. */
        buf: BufId,
        /** Byte offset in `buf`. */
        at: u32,
    },
    /// Make durable every write that completed before this was sent.
    Flush,
    /// Write zeroes. Never FUA: the engine flushes where that was asked.
    WriteZeroes {
        /** First block on the disk. */
        lba: Lba,
        /** How many; at least 1. */
        count: BlockCount,
        /** Deallocation is welcome where it reads as zeroes. */
        may_unmap: bool,
    },
    /// Deallocate.
    Unmap {
        /** First block on the disk. */
        lba: Lba,
        /** How many; at least 1. */
        count: BlockCount,
    },
    /// Which blocks are allocated; completes with [`Report::Extents`].
    BlockStatus {
        /** First block on the disk. */
        lba: Lba,
        /** How far to look; at least 1. */
        count: BlockCount,
    },
}

/// What an op that asks a question answers, beside its status.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Report {
    /// Consecutive extents, in order, none empty.
    Extents(Vec<Extent>),
}

/// A run of blocks in one state of allocation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// First block.
    pub lba: Lba,
    /// How many.
    pub count: BlockCount,
    /// False if deallocated.
    pub mapped: bool,
}
