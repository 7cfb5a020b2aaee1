//! The structures of one namespace: Identify Namespace of the NVM command set (CNS 00h), and what is common to all command
//! sets (CNS 08h). Everything follows from its configuration and from its volume at the moment of the question.

use platter_block::{Discard, Rotation};

use super::config::{AnaState, NamespaceConfig};
use super::copy;
use super::data::{View, structure};
use super::fused;
use super::identify::LEN;
use super::subsystem::Subsystem;

/// NMIC: it may be attached to several controllers at once.
const SHARED: u8 = 1 << 0;

/// NSATTR: it is write protected now.
const WRITE_PROTECTED: u8 = 1 << 0;

/// Identify Namespace; `None` if there is none.
pub(super) fn namespace(view: &View<'_>, subsystem: &Subsystem, nsid: u32) -> Option<Vec<u8>> {
    /// NSFEAT: NACWU holds for this namespace, and so do NPWG, NPWA, NPDG, NPDA and NOWS.
    const OWN_ATOMIC_UNITS: u8 = 1 << 1;
    const OPTIMAL_PERFORMANCE: u8 = 1 << 4;
    let namespace = subsystem.namespaces.get(&nsid)?;
    let info = &namespace.info;
    let blocks = info.blocks.to_le_bytes();
    let used = match subsystem.ana_state(namespace.ana_group, view.controller.portal.number) {
        // What is on the medium cannot be seen from here.
        AnaState::Inaccessible | AnaState::PersistentLoss => [0; 8],
        AnaState::Optimized | AnaState::NonOptimized | AnaState::Change => blocks,
    };
    let capacity = u128::from(info.blocks) * u128::from(info.block_size);
    let write_unit = from_zero(info.physical_block / info.block_size);
    let (discard_unit, discard_alignment) = info.discard.map_or((0, 0), deallocation);
    Some(structure(
        LEN,
        &[
            (0, &blocks),
            (8, &blocks),
            (16, &used),
            (24, &[OWN_ATOMIC_UNITS | OPTIMAL_PERFORMANCE]),
            // 25: NLBAF and FLBAS 0, the one format; 27: no metadata, no protection information.
            (30, &[SHARED]),
            // 31: RESCAP 0; 32: FPI 0.
            (33, &[info.discard.map_or(0, deallocated_blocks)]),
            // 34: NAWUN and NAWUPF 0: as the controller says.
            (38, &from_zero(fused::MAX_BYTES / info.block_size).to_le_bytes()),
            (48, &capacity.to_le_bytes()),
            (64, &write_unit.to_le_bytes()),
            (66, &write_unit.to_le_bytes()),
            (68, &discard_unit.to_le_bytes()),
            (70, &discard_alignment.to_le_bytes()),
            (72, &write_unit.to_le_bytes()),
            (74, &copy::max_range(info.block_size).to_le_bytes()),
            (76, &copy::max_blocks(info.block_size).to_le_bytes()),
            (80, &[copy::MAX_RANGES as u8 - 1]),
            (92, &namespace.ana_group.to_le_bytes()),
            (99, &[attributes(namespace)]),
            (102, &endurance_group(nsid).to_le_bytes()),
            // 104: NGUID and EUI64: none, there is a UUID.
            (130, &[info.block_size.ilog2() as u8]),
        ],
    ))
}

/// I/O Command Set Independent Identify Namespace; `None` if there is none.
pub(super) fn command_set_independent(_: &View<'_>, subsystem: &Subsystem, nsid: u32) -> Option<Vec<u8>> {
    /// NSFEAT: rotational media; no volatile write cache.
    const ROTATIONAL: u8 = 1 << 4;
    const NO_WRITE_CACHE: u8 = 1 << 5;
    /// NSTAT: commands are taken. Whether the disk answers them is told by their status.
    const READY: u8 = 1 << 0;
    let namespace = subsystem.namespaces.get(&nsid)?;
    let rotational = if matches!(namespace.info.rotation, Rotation::Rpm(_)) { ROTATIONAL } else { 0 };
    let cache = if namespace.info.write_cache_changeable { 0 } else { NO_WRITE_CACHE };
    Some(structure(
        LEN,
        &[
            (0, &[rotational | cache]),
            (1, &[SHARED]),
            (4, &namespace.ana_group.to_le_bytes()),
            (8, &[attributes(namespace)]),
            (12, &endurance_group(nsid).to_le_bytes()),
            (14, &[READY]),
        ],
    ))
}

const fn attributes(namespace: &NamespaceConfig) -> u8 {
    if namespace.is_read_only() { WRITE_PROTECTED } else { 0 }
}

/// ENDGID: each namespace is an endurance group of its own; 0 if its number does not fit.
const fn endurance_group(nsid: u32) -> u16 {
    if nsid > u16::MAX as u32 { 0 } else { nsid as u16 }
}

/// DLFEAT: what deallocated blocks read as, and that Write Zeroes deallocates where it is asked to.
const fn deallocated_blocks(discard: Discard) -> u8 {
    const ZEROES: u8 = 0b001;
    const WRITE_ZEROES_DEALLOCATES: u8 = 1 << 3;
    WRITE_ZEROES_DEALLOCATES | if discard.reads_zeroes { ZEROES } else { 0 }
}

/// NPDG and NPDA. The first unit may begin later than the first block, which NPDA can say only as a finer alignment.
fn deallocation(discard: Discard) -> (u16, u16) {
    let (mut a, mut b) = (discard.granularity, discard.alignment);
    while b != 0 {
        (a, b) = (b, a % b);
    }
    (from_zero(discard.granularity), from_zero(a))
}

/// A number of blocks in a field of 16 bits that counts from 0; as many as fit.
fn from_zero(blocks: u32) -> u16 {
    u16::try_from(blocks.saturating_sub(1)).unwrap_or(u16::MAX)
}
