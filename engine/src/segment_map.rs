//! A volume as an ordered list of segments on disks.

use platter_block::{DiskId, Lba};

/// Most disks under one volume.
pub const MAX_DISKS_PER_VOLUME: usize = 128;

/// A run of blocks of a volume, and where they lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// First block in the volume.
    pub volume_lba: Lba,
    /// How many blocks; at least 1.
    pub count: u64,
    /// The disk they lie on.
    pub disk: DiskId,
    /// First block on the disk.
    pub disk_lba: Lba,
}

/// Why a list of segments is not a volume. `index` is the position of the offending segment in the list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MapError {
    /// The volume exists already.
    VolumeExists,
    /// There are no segments.
    NoSegments,
    /// The segment has no blocks.
    EmptySegment {
        /** Which. */
        index: usize,
    },
    /// The first segment does not start at 0, or one does not start where the one before it ends.
    NotConsecutive {
        /** Which. */
        index: usize,
    },
    /// The disk was not added.
    UnknownDisk {
        /** Which. */
        index: usize,
    },
    /// The segment reaches past the end of the disk, or past 2^64.
    BeyondDisk {
        /** Which. */
        index: usize,
    },
    /// The disk has another block size than the disks of the segments before it.
    BlockSizeDiffers {
        /** Which. */
        index: usize,
    },
    /// Another segment, of this or another volume, lies on the same blocks.
    Overlaps {
        /** Which. */
        index: usize,
    },
    /// More than [`MAX_DISKS_PER_VOLUME`] disks.
    TooManyDisks,
}
