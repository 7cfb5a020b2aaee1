//! The state of one logical unit.

use std::collections::BTreeSet;

use platter_block::{VolumeId, VolumeInfo};

use super::device::NexusId;
use super::sense::Code;

/// Largest transfer of one command in bytes (VPD page B0h, MAXIMUM TRANSFER LENGTH): what a task may ask of the pool at
/// once. ORWRITE takes twice as much, for its result.
pub(super) const MAX_TRANSFER: u32 = 8 << 20;

/// Largest COMPARE AND WRITE in bytes to compare: it takes three times as much of the pool.
const MAX_COMPARE: u32 = 1 << 20;

/// MAXIMUM WRITE SAME LENGTH in blocks: as many as WRITE SAME(10) can say, and few enough for a slow disk to write in the
/// time that initiators wait.
pub(super) const MAX_SAME: u32 = 0xffff;

/// One logical unit, as configured.
#[derive(Clone, Debug)]
pub struct UnitConfig {
    /// 0 to 16383.
    pub lun: u16,
    /// The volume behind it.
    pub volume: VolumeId,
    /// What the volume promises now.
    pub info: VolumeInfo,
    /// Who it says it is.
    pub identity: Identity,
    /// Writes are refused, whatever the volume could do.
    pub read_only: bool,
    /// The medium can be ejected and loaded (START STOP UNIT with LOEJ).
    pub removable: bool,
}

impl UnitConfig {
    /// A writable, non-removable unit.
    pub fn new(lun: u16, volume: VolumeId, info: VolumeInfo, identity: Identity) -> Self {
        Self { lun, volume, info, identity, read_only: false, removable: false }
    }
}

/// Who a logical unit says it is: the same after every restart, and on every path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// T10 vendor identification, ASCII, padded with spaces.
    pub vendor: [u8; 8],
    /// Product identification, ASCII, padded with spaces.
    pub product: [u8; 16],
    /// Product revision level, ASCII, padded with spaces.
    pub revision: [u8; 4],
    /// Unit serial number, printable ASCII, 1 to 64 characters. Unique.
    pub serial: String,
    /// NAA Locally Assigned designator (first nibble 3, SPC-4 7.8.6.6.4). Unique; needs no company identifier.
    pub naa: [u8; 8],
}

/// One logical unit: configuration, mode parameters, medium, and who holds what on it.
#[derive(Debug)]
pub(super) struct Unit {
    pub(super) config: UnitConfig,
    pub(super) mode: Mode,
    /// False after an eject. Always true for a unit that is not removable.
    pub(super) loaded: bool,
    /// Holder of the RESERVE(6) or RESERVE(10) reservation.
    pub(super) reserved_by: Option<NexusId>,
    /// I_T nexuses that prevent medium removal.
    pub(super) prevented_by: BTreeSet<NexusId>,
    /// Who is switching the write cache right now, and so needs no unit attention about it.
    pub(super) cache_switched_by: Option<NexusId>,
}

/// Mode parameters that initiators can change and that live here; WCE lives in the volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Mode {
    /// D_SENSE: sense data in descriptor format.
    pub(super) descriptor_sense: bool,
    /// SWP: refuse writes.
    pub(super) write_protect: bool,
}

impl Unit {
    pub(super) fn new(config: UnitConfig) -> Self {
        Self {
            config,
            mode: Mode::default(),
            loaded: true,
            reserved_by: None,
            prevented_by: BTreeSet::new(),
            cache_switched_by: None,
        }
    }

    pub(super) const fn info(&self) -> &VolumeInfo {
        &self.config.info
    }

    pub(super) const fn block_size(&self) -> u32 {
        self.config.info.block_size
    }

    pub(super) const fn blocks(&self) -> u64 {
        self.config.info.blocks
    }

    /// How many blocks `bytes` hold, at least 1 and not more than one op may move.
    pub(super) fn blocks_in(&self, bytes: u32) -> u32 {
        (bytes / self.block_size()).min(self.config.info.max_transfer).max(1)
    }

    /// MAXIMUM TRANSFER LENGTH in blocks.
    pub(super) fn max_transfer(&self) -> u32 {
        self.blocks_in(MAX_TRANSFER)
    }

    /// MAXIMUM COMPARE AND WRITE LENGTH in blocks: the field in the CDB has 8 bits.
    pub(super) fn max_compare(&self) -> u8 {
        u8::try_from(self.blocks_in(MAX_COMPARE)).unwrap_or(u8::MAX)
    }

    /// Why writes are refused, if they are.
    pub(super) const fn write_protection(&self) -> Option<Code> {
        if self.config.read_only || self.config.info.read_only {
            Some(Code::WRITE_PROTECTED)
        } else if self.mode.write_protect {
            Some(Code::SOFTWARE_WRITE_PROTECTED)
        } else {
            None
        }
    }

    /// A reset: nothing that an initiator set or holds is left (SAM-5 6.3.3). The write cache stays as it is: switching it
    /// on is an op on the volume, which a reset does not wait for.
    pub(super) fn reset(&mut self) {
        self.mode = Mode::default();
        self.reserved_by = None;
        self.prevented_by.clear();
    }

    /// The I_T nexus is gone.
    pub(super) fn nexus_lost(&mut self, nexus: NexusId) {
        if self.reserved_by == Some(nexus) {
            self.reserved_by = None;
        }
        if self.cache_switched_by == Some(nexus) {
            self.cache_switched_by = None;
        }
        self.prevented_by.remove(&nexus);
    }
}
