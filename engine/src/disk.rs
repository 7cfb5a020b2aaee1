//! What is known of one disk, and what of it is believed (F8).

use std::collections::BTreeMap;
use std::ops::{Index, IndexMut};

use platter_block::{DiskId, DiskInfo, Fua};

use crate::flush_gate::FlushGate;
use crate::{DiskStats, FuaPolicy};

/// The engine's count of things that happened to disks as a whole. Ops and disk ops remember the one they began in.
pub(crate) type Epoch = u64;

/// One disk.
#[derive(Debug)]
pub(crate) struct Disk {
    id: DiskId,
    policy: FuaPolicy,
    /// As last read; kept while the disk is missing. `None`: it was never there.
    info: Option<DiskInfo>,
    present: bool,
    pub(crate) gate: FlushGate,
    /// Acknowledged writes may be lost at a power cut until a flush, as far as `policy` believes the disk.
    volatile: bool,
    /// FUA writes are sent, and believed.
    native_fua: bool,
    /// Epoch in which the info was read; what the disk claimed before is void (F6).
    read_in: Epoch,
    /// Epoch in which the disk went away last; what was sent before went with it (F6).
    lost_in: Epoch,
    /// Epoch in which a fault was cleared last; what was written before is part of the loss (F3).
    cleared_in: Epoch,
    /// Counters that the gate does not keep.
    pub(crate) counts: DiskStats,
    /// Blocks that belong to a volume: first block to one past the last.
    claimed: BTreeMap<u64, u64>,
}

impl Disk {
    pub(crate) fn new(id: DiskId, info: Option<DiskInfo>, policy: FuaPolicy, poisoned: bool) -> Self {
        let mut disk = Self {
            id,
            policy,
            info: None,
            present: false,
            gate: FlushGate::default(),
            volatile: false,
            native_fua: false,
            read_in: 0,
            lost_in: 0,
            cleared_in: 0,
            counts: DiskStats::default(),
            claimed: BTreeMap::new(),
        };
        if let Some(info) = info {
            disk.believe(info, 0);
        }
        if poisoned {
            disk.gate.poison(); // F3
            disk.gate.forget(); // F6: whatever an earlier run wrote, its volumes owe
        }
        disk
    }

    pub(crate) const fn id(&self) -> DiskId {
        self.id
    }

    /// As last read; `None` if the disk was never there.
    pub(crate) const fn info(&self) -> Option<&DiskInfo> {
        self.info.as_ref()
    }

    pub(crate) const fn is_present(&self) -> bool {
        self.present
    }

    /// F8. Whether completed writes need a flush to be durable.
    pub(crate) const fn is_volatile(&self) -> bool {
        self.volatile
    }

    /// F8. Whether a write that must be durable is sent with FUA. Without a volatile cache there is no need to.
    pub(crate) const fn sends_fua(&self) -> bool {
        self.volatile && self.native_fua
    }

    /// The disk is there and says this of itself. What it said before is void (F6).
    pub(crate) fn believe(&mut self, info: DiskInfo, now: Epoch) {
        self.volatile = info.volatile_cache || self.policy == FuaPolicy::Distrust;
        self.native_fua = info.fua == Fua::Native && self.policy == FuaPolicy::Native;
        self.info = Some(info);
        self.present = true;
        self.read_in = now;
    }

    /// The disk is gone, and with it everything sent so far (F6).
    pub(crate) fn lose(&mut self, now: Epoch) {
        self.present = false;
        self.lost_in = now;
    }

    /// The operator takes the loss of everything written so far (F3).
    pub(crate) fn clear_fault(&mut self, now: Epoch) {
        self.gate.clear_fault();
        self.cleared_in = now;
    }

    /// Whether the disk went away after a disk op was sent.
    pub(crate) const fn has_gone_since(&self, sent_in: Epoch) -> bool {
        sent_in < self.lost_in
    }

    /// Whether a fault was cleared after an op began: what it wrote may be lost, and no later flush tells.
    pub(crate) const fn has_lost_since(&self, began_in: Epoch) -> bool {
        began_in < self.cleared_in
    }

    /// Whether a completed write, sent with or without FUA, is durable by itself (F8, F6).
    pub(crate) const fn is_durable_by_itself(&self, fua: bool, sent_in: Epoch) -> bool {
        let claim = fua || !self.volatile;
        claim && sent_in >= self.read_in
    }

    /// Most blocks of one read, write or write-zeroes.
    pub(crate) fn max_transfer(&self) -> u32 {
        self.info.as_ref().map_or(u32::MAX, |info| info.max_transfer.max(1))
    }

    /// Most blocks of one unmap.
    pub(crate) fn max_unmap(&self) -> u32 {
        let discard = self.info.as_ref().and_then(|info| info.discard);
        discard.map_or(u32::MAX, |discard| discard.max_blocks.max(1))
    }

    /// Whether no volume has any of `count` blocks from `start`.
    pub(crate) fn is_unclaimed(&self, start: u64, count: u64) -> bool {
        let before_end = self.claimed.range(..start + count).next_back();
        before_end.is_none_or(|(_, &end)| end <= start)
    }

    /// The blocks belong to a volume now.
    pub(crate) fn claim(&mut self, start: u64, count: u64) {
        debug_assert!(self.is_unclaimed(start, count), "checked when the map was made");
        self.claimed.insert(start, start + count);
    }

    pub(crate) fn stats(&self) -> DiskStats {
        DiskStats {
            flush: self.gate.stats(),
            undurable: self.gate.undurable(),
            poisoned: self.gate.is_poisoned(),
            present: self.present,
            ..self.counts
        }
    }
}

/// The disks of an engine, by position. Positions never change.
#[derive(Debug, Default)]
pub(crate) struct Disks {
    list: Vec<Disk>,
    positions: BTreeMap<DiskId, usize>,
}

impl Disks {
    /// Panics if the id was added before.
    pub(crate) fn add(&mut self, disk: Disk) {
        let earlier = self.positions.insert(disk.id, self.list.len());
        assert!(earlier.is_none(), "{:?} is added once", disk.id);
        self.list.push(disk);
    }

    pub(crate) fn position(&self, id: DiskId) -> Option<usize> {
        self.positions.get(&id).copied()
    }
}

impl Index<usize> for Disks {
    type Output = Disk;

    fn index(&self, position: usize) -> &Disk {
        &self.list[position]
    }
}

impl IndexMut<usize> for Disks {
    fn index_mut(&mut self, position: usize) -> &mut Disk {
        &mut self.list[position]
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use platter_block::Rotation;

    /// A disk of 512-byte blocks with a volatile cache and without FUA.
    pub(crate) fn info(blocks: u64) -> DiskInfo {
        DiskInfo {
            block_size: 512,
            physical_block: 4096,
            blocks,
            volatile_cache: true,
            fua: Fua::None,
            rotation: Rotation::Rpm(7200),
            discard: None,
            write_zeroes: false,
            max_transfer: 2048,
            read_only: false,
        }
    }

    #[test]
    fn f8_the_policy_says_what_is_believed() {
        use FuaPolicy::{Distrust, Emulate, Native};
        let believed = |policy, volatile_cache, fua| {
            let info = DiskInfo { volatile_cache, fua, ..info(1) };
            let disk = Disk::new(DiskId(0), Some(info), policy, false);
            (disk.is_volatile(), disk.sends_fua())
        };
        assert_eq!(believed(Native, true, Fua::Native), (true, true));
        assert_eq!(believed(Native, true, Fua::None), (true, false));
        assert_eq!(believed(Native, false, Fua::Native), (false, false), "nothing to force");
        assert_eq!(believed(Emulate, true, Fua::Native), (true, false));
        assert_eq!(believed(Emulate, false, Fua::Native), (false, false));
        assert_eq!(believed(Distrust, false, Fua::Native), (true, false));
    }

    #[test]
    fn f6_a_claim_does_not_outlive_the_epoch_it_was_made_in() {
        let mut disk = Disk::new(DiskId(0), Some(info(1)), FuaPolicy::Native, false);
        assert!(disk.is_durable_by_itself(true, 0));
        disk.believe(info(1), 1);
        assert!(!disk.is_durable_by_itself(true, 0));
        assert!(disk.is_durable_by_itself(true, 1));
        assert!(!disk.has_gone_since(0));
        disk.lose(2);
        disk.believe(info(1), 3);
        assert!(disk.has_gone_since(1), "what was sent to the old disk stays gone");
        assert!(!disk.has_gone_since(3));
    }
}
