//! A volume as an ordered list of segments on disks.
//!
//! The map answers two questions: where does a block lie, and which disks are under the volume. The second is a sorted list
//! without repeats, so that a flush asks each disk once, however many segments it holds. Its positions are the *slots* by
//! which a volume names its disks.

use platter_block::{DiskId, Lba};

use crate::disk::Disks;

/// Most disks under one volume. An op remembers the disks it still owes durability to in one bit each.
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

/// Where a block lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    /// Which disk of the volume.
    pub(crate) slot: u8,
    /// The block on that disk.
    pub(crate) lba: Lba,
    /// Blocks from there to the end of the segment; at least 1.
    pub(crate) left: u64,
}

/// The segments of one volume.
#[derive(Debug)]
pub(crate) struct SegmentMap {
    /// In volume order, without holes.
    segments: Vec<Mapped>,
    /// By slot: position in the engine's list of disks. Sorted, without repeats.
    disks: Vec<usize>,
    blocks: u64,
}

#[derive(Debug)]
struct Mapped {
    volume_lba: u64,
    end: u64,
    disk_lba: u64,
    slot: u8,
}

impl SegmentMap {
    /// Checks the list against the disks; changes nothing.
    pub(crate) fn new(segments: &[Segment], disks: &Disks) -> Result<Self, MapError> {
        let blocks = check_order(segments)?;
        let on_disks = check_disks(segments, disks)?;
        let mut slots = on_disks.clone();
        slots.sort_unstable();
        slots.dedup();
        if slots.len() > MAX_DISKS_PER_VOLUME {
            return Err(MapError::TooManyDisks);
        }
        check_overlaps(segments, &on_disks, disks)?;
        let segments = segments.iter().zip(&on_disks).map(|(segment, disk)| Mapped {
            volume_lba: segment.volume_lba.0,
            end: segment.volume_lba.0 + segment.count,
            disk_lba: segment.disk_lba.0,
            slot: slots.binary_search(disk).expect("every disk has a slot") as u8,
        });
        Ok(Self { segments: segments.collect(), disks: slots, blocks })
    }

    /// Where block `lba` of the volume lies. It must be below [`blocks`](Self::blocks).
    pub(crate) fn locate(&self, lba: u64) -> Place {
        debug_assert!(lba < self.blocks, "ranges are checked when an op is admitted");
        let after = self.segments.partition_point(|segment| segment.volume_lba <= lba);
        let segment = &self.segments[after - 1];
        Place { slot: segment.slot, lba: Lba(segment.disk_lba + (lba - segment.volume_lba)), left: segment.end - lba }
    }

    /// By slot: positions in the engine's list of disks.
    pub(crate) fn disks(&self) -> &[usize] {
        &self.disks
    }

    /// Blocks of the volume.
    pub(crate) const fn blocks(&self) -> u64 {
        self.blocks
    }

    /// `(slot, first block on the disk, count)` of each segment.
    pub(crate) fn extents(&self) -> impl Iterator<Item = (u8, u64, u64)> + '_ {
        self.segments.iter().map(|segment| (segment.slot, segment.disk_lba, segment.end - segment.volume_lba))
    }
}

/// Returns the blocks of the volume.
fn check_order(segments: &[Segment]) -> Result<u64, MapError> {
    if segments.is_empty() {
        return Err(MapError::NoSegments);
    }
    let mut next = 0_u64;
    for (index, segment) in segments.iter().enumerate() {
        if segment.count == 0 {
            return Err(MapError::EmptySegment { index });
        }
        if segment.volume_lba.0 != next {
            return Err(MapError::NotConsecutive { index });
        }
        next = next.checked_add(segment.count).ok_or(MapError::BeyondDisk { index })?;
    }
    Ok(next)
}

/// Returns, for each segment, the position of its disk in the engine's list.
fn check_disks(segments: &[Segment], disks: &Disks) -> Result<Vec<usize>, MapError> {
    let mut block_size = None;
    let mut on_disks = Vec::with_capacity(segments.len());
    for (index, segment) in segments.iter().enumerate() {
        let position = disks.position(segment.disk).ok_or(MapError::UnknownDisk { index })?;
        let end = segment.disk_lba.0.checked_add(segment.count).ok_or(MapError::BeyondDisk { index })?;
        if let Some(info) = disks[position].info() {
            if end > info.blocks {
                return Err(MapError::BeyondDisk { index });
            }
            if *block_size.get_or_insert(info.block_size) != info.block_size {
                return Err(MapError::BlockSizeDiffers { index });
            }
        }
        on_disks.push(position);
    }
    Ok(on_disks)
}

fn check_overlaps(segments: &[Segment], on_disks: &[usize], disks: &Disks) -> Result<(), MapError> {
    let mut by_place: Vec<usize> = (0..segments.len()).collect();
    by_place.sort_unstable_by_key(|&index| (on_disks[index], segments[index].disk_lba));
    for pair in by_place.windows(2) {
        let (a, b) = (pair[0], pair[1]);
        if on_disks[a] == on_disks[b] && segments[a].disk_lba.0 + segments[a].count > segments[b].disk_lba.0 {
            return Err(MapError::Overlaps { index: a.max(b) });
        }
    }
    for (index, segment) in segments.iter().enumerate() {
        if !disks[on_disks[index]].is_unclaimed(segment.disk_lba.0, segment.count) {
            return Err(MapError::Overlaps { index });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FuaPolicy;
    use crate::disk::Disk;
    use crate::disk::tests::info;

    fn disks(blocks: &[u64]) -> Disks {
        let mut disks = Disks::default();
        for (id, &blocks) in blocks.iter().enumerate() {
            disks.add(Disk::new(DiskId(id as u32), Some(info(blocks)), FuaPolicy::Native, false));
        }
        disks
    }

    fn segment(volume_lba: u64, count: u64, disk: u32, disk_lba: u64) -> Segment {
        Segment { volume_lba: Lba(volume_lba), count, disk: DiskId(disk), disk_lba: Lba(disk_lba) }
    }

    #[test]
    fn every_block_is_found_and_every_disk_is_listed_once() {
        let disks = disks(&[100, 100]);
        let list = [segment(0, 10, 1, 50), segment(10, 5, 0, 0), segment(15, 1, 1, 0)];
        let map = SegmentMap::new(&list, &disks).unwrap();
        assert_eq!((map.blocks(), map.disks()), (16, &[0, 1][..]));
        assert_eq!(map.locate(0), Place { slot: 1, lba: Lba(50), left: 10 });
        assert_eq!(map.locate(9), Place { slot: 1, lba: Lba(59), left: 1 });
        assert_eq!(map.locate(10), Place { slot: 0, lba: Lba(0), left: 5 });
        assert_eq!(map.locate(15), Place { slot: 1, lba: Lba(0), left: 1 });
    }

    #[test]
    fn a_list_that_is_not_a_volume_is_refused_with_the_offending_segment() {
        let disks = disks(&[100, 100]);
        let refused = |list: &[Segment]| SegmentMap::new(list, &disks).unwrap_err();
        assert_eq!(refused(&[]), MapError::NoSegments);
        assert_eq!(refused(&[segment(1, 1, 0, 0)]), MapError::NotConsecutive { index: 0 });
        assert_eq!(refused(&[segment(0, 2, 0, 0), segment(3, 1, 0, 2)]), MapError::NotConsecutive { index: 1 });
        assert_eq!(refused(&[segment(0, 2, 0, 0), segment(2, 0, 0, 2)]), MapError::EmptySegment { index: 1 });
        assert_eq!(refused(&[segment(0, 2, 7, 0)]), MapError::UnknownDisk { index: 0 });
        assert_eq!(refused(&[segment(0, 2, 0, 99)]), MapError::BeyondDisk { index: 0 });
        assert_eq!(refused(&[segment(0, 2, 0, u64::MAX)]), MapError::BeyondDisk { index: 0 });
        assert_eq!(refused(&[segment(0, 4, 0, 0), segment(4, 4, 0, 3)]), MapError::Overlaps { index: 1 });
        assert_eq!(refused(&[segment(0, 4, 0, 3), segment(4, 4, 0, 0)]), MapError::Overlaps { index: 1 });
    }

    #[test]
    fn a_segment_on_blocks_of_another_volume_is_refused() {
        let mut disks = disks(&[100]);
        disks[0].claim(10, 10);
        for (start, count, free) in [(0, 10, true), (0, 11, false), (19, 1, false), (12, 2, false), (20, 80, true)] {
            let made = SegmentMap::new(&[segment(0, count, 0, start)], &disks);
            assert_eq!(made.err(), (!free).then_some(MapError::Overlaps { index: 0 }), "{count} blocks at {start}");
        }
    }

    #[test]
    fn disks_of_one_volume_have_one_block_size() {
        let mut disks = disks(&[100]);
        let other = platter_block::DiskInfo { block_size: 4096, ..info(100) };
        disks.add(Disk::new(DiskId(1), Some(other), FuaPolicy::Native, false));
        let made = SegmentMap::new(&[segment(0, 1, 0, 0), segment(1, 1, 1, 0)], &disks);
        assert_eq!(made.err(), Some(MapError::BlockSizeDiffers { index: 1 }));
    }

    #[test]
    fn a_volume_has_at_most_128_disks() {
        let disks = disks(&[1; 129]);
        let list: Vec<_> = (0..129).map(|n| segment(n, 1, n as u32, 0)).collect();
        assert_eq!(SegmentMap::new(&list, &disks).err(), Some(MapError::TooManyDisks));
        assert!(SegmentMap::new(&list[..128], &disks).is_ok());
    }
}
