//! What is known of one volume, and what it may promise (F9).

use platter_block::{Discard, DiskInfo, Rotation, VolumeId, VolumeInfo};

use crate::VolumeStats;
use crate::disk::Disks;
use crate::ranges::Ranges;
use crate::segment_map::SegmentMap;

/// Block size of a volume none of whose disks was ever there.
const DEFAULT_BLOCK_SIZE: u32 = 512;

/// The engine splits ops, so a volume takes at least this many bytes in one op, whatever its disks take.
const MIN_MAX_TRANSFER_BYTES: u32 = 1 << 20;

/// One volume.
#[derive(Debug)]
pub(crate) struct Volume {
    pub(crate) id: VolumeId,
    pub(crate) map: SegmentMap,
    pub(crate) ranges: Ranges,
    /// By slot: number, on that disk, of the newest write of this volume that is not durable by itself.
    pub(crate) last_undurable: Vec<u64>,
    /// The initiator wants writes answered before they are durable. Off: each write is treated as FUA.
    pub(crate) write_cache: bool,
    /// Known once any disk was there; later disks must agree.
    block_size: Option<u32>,
    info: VolumeInfo,
    pub(crate) counts: VolumeStats,
}

impl Volume {
    pub(crate) fn new(id: VolumeId, map: SegmentMap, disks: &Disks) -> Self {
        // Blocks that another volume had may still be in the disk's cache: a segment carries what its disk owes.
        let last_undurable = map.disks().iter().map(|&disk| disks[disk].gate.ack_seq()).collect();
        let info = VolumeInfo {
            block_size: DEFAULT_BLOCK_SIZE,
            physical_block: DEFAULT_BLOCK_SIZE,
            blocks: map.blocks(),
            write_cache: false,
            write_cache_changeable: false,
            rotation: Rotation::Unknown,
            discard: None,
            max_transfer: MIN_MAX_TRANSFER_BYTES / DEFAULT_BLOCK_SIZE,
            read_only: false,
            ready: false,
        };
        let mut volume = Self {
            id,
            map,
            ranges: Ranges::default(),
            last_undurable,
            write_cache: true,
            block_size: None,
            info,
            counts: VolumeStats::default(),
        };
        volume.refresh(disks);
        volume
    }

    pub(crate) const fn info(&self) -> &VolumeInfo {
        &self.info
    }

    /// Position of the disk in `slot`.
    pub(crate) fn disk(&self, slot: u8) -> usize {
        self.map.disks()[usize::from(slot)]
    }

    /// A bit for each slot.
    pub(crate) fn all_slots(&self) -> u128 {
        u128::MAX >> (128 - self.map.disks().len())
    }

    /// Derives the info again; true if it changed (F9). What a missing disk last said of itself still counts, so that a
    /// volume does not change its shape while a disk is away.
    pub(crate) fn refresh(&mut self, disks: &Disks) -> bool {
        let infos: Vec<&DiskInfo> = self.map.disks().iter().filter_map(|&disk| disks[disk].info()).collect();
        let Some(first) = infos.first() else { return false };
        let block_size = *self.block_size.get_or_insert(first.block_size);
        let changeable = self.map.disks().iter().any(|&disk| disks[disk].is_volatile());
        let smallest = infos.iter().map(|info| info.max_transfer).min().unwrap_or(0);
        let info = VolumeInfo {
            block_size,
            physical_block: infos.iter().map(|info| info.physical_block).max().unwrap_or(block_size),
            blocks: self.map.blocks(),
            write_cache: changeable && self.write_cache,
            write_cache_changeable: changeable,
            rotation: slowest(&infos),
            discard: if infos.len() == self.map.disks().len() { self.discard(&infos) } else { None },
            max_transfer: smallest.max(MIN_MAX_TRANSFER_BYTES / block_size),
            read_only: infos.iter().any(|info| info.read_only),
            ready: self.fits(disks, block_size),
        };
        let changed = info != self.info;
        self.info = info;
        changed
    }

    /// Whether every disk is there, with the right block size and with all the blocks of its segments.
    fn fits(&self, disks: &Disks, block_size: u32) -> bool {
        let right = |disk: usize| {
            disks[disk].is_present() && disks[disk].info().is_some_and(|info| info.block_size == block_size)
        };
        let reaches = |(slot, start, count): (u8, u64, u64)| {
            disks[self.disk(slot)].info().is_some_and(|info| start + count <= info.blocks)
        };
        self.map.disks().iter().all(|&disk| right(disk)) && self.map.extents().all(reaches)
    }

    /// How blocks are deallocated, if every disk can. The alignment is exact where all segments agree on one, else 0: it is
    /// a hint, an unaligned unmap is never an error.
    fn discard(&self, infos: &[&DiskInfo]) -> Option<Discard> {
        let discards: Option<Vec<Discard>> = infos.iter().map(|info| info.discard).collect();
        let discards = discards?;
        let granularity = discards.iter().map(|d| d.granularity).max()?.max(1);
        let mut volume_lba = 0_u64;
        let mut alignments = self.map.extents().map(|(slot, disk_lba, count)| {
            let unit = u64::from(granularity);
            let offset = u64::from(discards[usize::from(slot)].alignment) % unit;
            // A unit starts at disk block a * unit + offset; this is the first such block at or after the volume's block 0.
            let aligned = (offset + volume_lba % unit + unit - disk_lba % unit) % unit;
            volume_lba += count;
            aligned as u32
        });
        let first = alignments.next()?;
        let alignment = if alignments.all(|a| a == first) { first } else { 0 };
        Some(Discard {
            granularity,
            alignment,
            max_blocks: discards.iter().map(|d| d.max_blocks).min()?.max(1),
            reads_zeroes: discards.iter().all(|d| d.reads_zeroes),
        })
    }
}

/// What a volume turns at: any spindle beats "unknown", which beats flash.
fn slowest(infos: &[&DiskInfo]) -> Rotation {
    let slower = |a, b| match (a, b) {
        (Rotation::Rpm(a), Rotation::Rpm(b)) => Rotation::Rpm(a.min(b)),
        (Rotation::Rpm(rpm), _) | (_, Rotation::Rpm(rpm)) => Rotation::Rpm(rpm),
        (Rotation::Unknown, _) | (_, Rotation::Unknown) => Rotation::Unknown,
        (Rotation::NonRotating, Rotation::NonRotating) => Rotation::NonRotating,
    };
    infos.iter().map(|info| info.rotation).reduce(slower).unwrap_or(Rotation::Unknown)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Disk;
    use crate::disk::tests::info;
    use crate::{FuaPolicy, Segment};
    use platter_block::{DiskId, Lba};

    /// A volume of 64 blocks of each disk, from block `at` on.
    fn volume(infos: Vec<Option<DiskInfo>>, at: u64) -> (Disks, Volume) {
        let mut disks = Disks::default();
        let mut segments = Vec::new();
        for (n, info) in infos.into_iter().enumerate() {
            let disk = DiskId(n as u32);
            segments.push(Segment { volume_lba: Lba(n as u64 * 64), count: 64, disk, disk_lba: Lba(at) });
            disks.add(Disk::new(disk, info, FuaPolicy::Native, false));
        }
        let map = SegmentMap::new(&segments, &disks).unwrap();
        let volume = Volume::new(VolumeId(0), map, &disks);
        (disks, volume)
    }

    fn discard(granularity: u32, max_blocks: u32) -> Option<Discard> {
        Some(Discard { granularity, alignment: 0, max_blocks, reads_zeroes: true })
    }

    #[test]
    fn f9_a_volume_promises_what_its_weakest_disk_does() {
        let a =
            DiskInfo { volatile_cache: false, rotation: Rotation::NonRotating, discard: discard(8, 100), ..info(100) };
        let b = DiskInfo { max_transfer: 4096, physical_block: 512, discard: discard(16, 1000), ..info(100) };
        let (_, volume) = volume(vec![Some(a), Some(b)], 0);
        let info = volume.info();
        assert!(info.ready && info.write_cache && info.write_cache_changeable && !info.read_only);
        assert_eq!((info.blocks, info.physical_block, info.max_transfer), (128, 4096, 2048));
        assert_eq!((info.rotation, info.discard), (Rotation::Rpm(7200), discard(16, 100)));
    }

    #[test]
    fn f9_without_a_volatile_cache_there_is_no_write_cache_to_switch() {
        let (_, volume) = volume(vec![Some(DiskInfo { volatile_cache: false, ..info(100) })], 0);
        assert!(!volume.info().write_cache && !volume.info().write_cache_changeable);
    }

    #[test]
    fn discard_alignment_follows_the_place_of_the_segments() {
        let with_discard = Some(DiskInfo { discard: discard(16, 100), ..info(100) });
        let (_, volume) = volume(vec![with_discard.clone(), with_discard], 3);
        let alignment = volume.info().discard.unwrap().alignment;
        assert_eq!(alignment, 13, "block 13 of the volume is block 16 of the disk");
    }

    #[test]
    fn a_disk_that_came_back_smaller_or_with_other_blocks_does_not_make_the_volume_ready() {
        let (mut disks, mut volume) = volume(vec![Some(info(100)), None], 0);
        assert!(!volume.info().ready);
        for wrong in [info(63), DiskInfo { block_size: 4096, ..info(100) }] {
            disks[1].believe(wrong, 1);
            volume.refresh(&disks);
            assert!(!volume.info().ready);
        }
        disks[1].believe(info(64), 2);
        assert!(volume.refresh(&disks));
        assert!(volume.info().ready);
    }
}
