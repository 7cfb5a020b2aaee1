//! The Identify Controller data structure (CNS 01h). What is not listed is zero: not there, or not told.

use super::config::Limits;
use super::controller::Controller;
use super::data::{View, ascii, structure};
use super::events;
use super::fused;
use super::identify::{LEN, PAGE, VERSION};
use super::logs;
use super::subsystem::Subsystem;
use super::timers::KATO_GRANULARITY;

/// CTRATT.
const HOST_ID_128: u32 = 1 << 0;
const ENDURANCE_GROUPS: u32 = 1 << 4;
const TRAFFIC_BASED_KEEP_ALIVE: u32 = 1 << 6;

/// LPA: the effects log; Get Log Page with offset and more than 16 bits of length; the logs 00h, 12h and 13h, and scopes.
const LOG_ATTRIBUTES: u8 = 1 << 1 | 1 << 2 | 1 << 5;

/// SGLS: SGLs without alignment; an offset in the address field, that of data in the capsule; transport data blocks.
const SGLS: u32 = 1 << 0 | 1 << 20 | 1 << 21;

/// Length of a submission queue entry, and the unit of capsule sizes.
const ENTRY: u32 = 64;
const CAPSULE_UNIT: u32 = 16;

pub(super) fn controller(view: &View<'_>) -> Vec<u8> {
    let mut bytes = match view.subsystem {
        Some(subsystem) => io_controller(view, subsystem),
        None => discovery_controller(view),
    };
    for (at, field) in common(view.controller, view.limits) {
        bytes[at..at + field.len()].copy_from_slice(&field);
    }
    bytes
}

/// What controllers of both types say.
fn common(controller: &Controller, limits: &Limits) -> Vec<(usize, Vec<u8>)> {
    let max_transfer = (limits.max_transfer / PAGE).max(1).ilog2() as u8;
    let max_commands = u16::try_from(limits.queue_entries).unwrap_or(u16::MAX);
    let granularity = (KATO_GRANULARITY / 100) as u16;
    vec![
        (77, vec![max_transfer]),
        (78, controller.cntlid.to_le_bytes().to_vec()),
        (80, VERSION.to_le_bytes().to_vec()),
        (92, events::notices(controller.subsystem.is_none()).to_le_bytes().to_vec()),
        (258, vec![limits.aborts.saturating_sub(1), limits.async_events.saturating_sub(1)]),
        (261, vec![LOG_ATTRIBUTES, logs::ErrorLog::ENTRIES as u8 - 1]),
        (320, granularity.to_le_bytes().to_vec()),
        (514, max_commands.to_le_bytes().to_vec()),
        (536, SGLS.to_le_bytes().to_vec()),
        (768, controller.nqn.as_bytes().to_vec()),
    ]
}

fn io_controller(view: &View<'_>, subsystem: &Subsystem) -> Vec<u8> {
    let limits = view.limits;
    let attributes = HOST_ID_128 | ENDURANCE_GROUPS | TRAFFIC_BASED_KEEP_ALIVE;
    let endurance_groups = u16::try_from(limits.namespaces).unwrap_or(u16::MAX);
    let capsule = (ENTRY + limits.in_capsule) / CAPSULE_UNIT;
    structure(
        LEN,
        &[
            // 0: VID and SSVID, 73: IEEE: there is no PCI function and no maker.
            (4, &ascii::<20>(&subsystem.serial)),
            (24, &ascii::<40>(&subsystem.model)),
            (64, &ascii::<8>(&subsystem.firmware)),
            (76, &[MULTIPLE_PORTS | MULTIPLE_CONTROLLERS | ANA]),
            (96, &attributes.to_le_bytes()),
            (111, &[IO_CONTROLLER]),
            // 256: OACS 0.
            (260, &[ONE_READ_ONLY_SLOT]),
            (340, &endurance_groups.to_le_bytes()),
            (342, &[ANA_TRANSITION_TIME, ANA_STATES]),
            (344, &limits.ana_groups.to_le_bytes()),
            (348, &limits.ana_groups.to_le_bytes()),
            (512, &[0x66, 0x44]),
            (516, &limits.namespaces.to_le_bytes()),
            (520, &OPTIONAL_COMMANDS.to_le_bytes()),
            (522, &COMPARE_AND_WRITE.to_le_bytes()),
            // 524: FNA 0: there is no Format.
            (525, &[FLUSH_ALL | u8::from(subsystem.has_write_cache())]),
            // 526: AWUN and AWUPF 0: one block.
            (532, &least_compare_and_write().to_le_bytes()),
            (534, &COPY_FORMATS.to_le_bytes()),
            (540, &limits.namespaces.to_le_bytes()),
            (1792, &capsule.to_le_bytes()),
            (1796, &RESPONSE_CAPSULE.to_le_bytes()),
            // 1800: ICDOFF 0; 1802: FCATT 0: controllers are dynamic.
            (1803, &[1]),
            (1804, &DISCONNECT.to_le_bytes()),
            // 2048: power state 0, of which nothing is known.
        ],
    )
}

fn discovery_controller(_view: &View<'_>) -> Vec<u8> {
    let attributes = HOST_ID_128 | TRAFFIC_BASED_KEEP_ALIVE;
    structure(
        LEN,
        &[
            (4, &ascii::<20>("")),
            (24, &ascii::<40>("Platter")),
            (64, &ascii::<8>(env!("CARGO_PKG_VERSION"))),
            (96, &attributes.to_le_bytes()),
            (111, &[DISCOVERY_CONTROLLER]),
            (1806, &[DIRECT_DISCOVERY]),
        ],
    )
}

/// CMIC.
const MULTIPLE_PORTS: u8 = 1 << 0;
const MULTIPLE_CONTROLLERS: u8 = 1 << 1;
const ANA: u8 = 1 << 3;

/// CNTRLTYPE.
const IO_CONTROLLER: u8 = 1;
const DISCOVERY_CONTROLLER: u8 = 2;

/// DCTYPE.
const DIRECT_DISCOVERY: u8 = 1;

/// FRMW: one slot, which is read only.
const ONE_READ_ONLY_SLOT: u8 = 1 << 0 | 1 << 1;

/// ANATT in seconds: how long a host should wait for the change state to end.
const ANA_TRANSITION_TIME: u8 = 60;

/// ANACAP: all five states. The group of a namespace may change.
const ANA_STATES: u8 = 0x1f;

/// ONCS: Compare, Dataset Management, Write Zeroes, the Select field, Timestamp, Verify, Copy.
const OPTIONAL_COMMANDS: u16 = 1 << 0 | 1 << 2 | 1 << 3 | 1 << 4 | 1 << 6 | 1 << 7 | 1 << 8;

/// FUSES.
const COMPARE_AND_WRITE: u16 = 1 << 0;

/// VWC.FNVMC 11b: Flush with NSID FFFFFFFFh flushes every namespace. The lowest bit: there is a cache.
const FLUSH_ALL: u8 = 0b11 << 1;

/// OCFS: format 0.
const COPY_FORMATS: u16 = 1 << 0;

/// IORCSZ: a completion queue entry.
const RESPONSE_CAPSULE: u32 = 1;

/// OFCS: Disconnect, of a single I/O queue.
const DISCONNECT: u16 = 1 << 0;

/// ACWU, which counts from 0: what holds for the largest block. Each namespace says what holds for it.
const fn least_compare_and_write() -> u16 {
    const LARGEST_BLOCK: u32 = 65536;
    let blocks = fused::MAX_BYTES / LARGEST_BLOCK;
    if blocks == 0 { 0 } else { blocks as u16 - 1 }
}
