//! Features (NVMe base, Set Features and Get Features commands; those of the NVM command set with them).
//!
//! None can be saved, so what was set holds until the next controller reset. Not in the table, and so refused by the field
//! that names them: interrupts, host memory, power states beyond the one, directives, sanitize, reservations, namespace
//! write protection.

use platter_block::Instant;

use super::data::{View, structure};
use super::events;
use super::io::ALL_NAMESPACES;
use super::sqe::Sqe;
use super::status::Status;

/// One feature.
pub(super) struct Row {
    pub(super) id: u8,
    /// Bytes of data that go with it, besides Dword 11.
    data: usize,
    pub(super) traits: u8,
}

/// Discovery controllers have it too.
const DISCOVERY: u8 = 1 << 0;
/// Set Features changes something.
const CHANGEABLE: u8 = 1 << 1;
/// Each namespace has its own.
pub(super) const PER_NAMESPACE: u8 = 1 << 2;

const ARBITRATION: u8 = 0x01;
const POWER: u8 = 0x02;
const TEMPERATURE: u8 = 0x04;
const ERROR_RECOVERY: u8 = 0x05;
const WRITE_CACHE: u8 = 0x06;
const QUEUES: u8 = 0x07;
const WRITE_ATOMICITY: u8 = 0x0a;
const ASYNC_EVENTS: u8 = 0x0b;
const TIMESTAMP: u8 = 0x0e;
const KEEP_ALIVE: u8 = 0x0f;
const HOST_BEHAVIOR: u8 = 0x16;
const HOST_ID: u8 = 0x81;

/// All features.
#[rustfmt::skip]
pub(super) static ROWS: [Row; 12] = [
    Row { id: ARBITRATION, data: 0, traits: CHANGEABLE },
    Row { id: POWER, data: 0, traits: CHANGEABLE },
    Row { id: TEMPERATURE, data: 0, traits: CHANGEABLE },
    Row { id: ERROR_RECOVERY, data: 0, traits: PER_NAMESPACE },
    Row { id: WRITE_CACHE, data: 0, traits: CHANGEABLE },
    Row { id: QUEUES, data: 0, traits: CHANGEABLE },
    Row { id: WRITE_ATOMICITY, data: 0, traits: CHANGEABLE },
    Row { id: ASYNC_EVENTS, data: 0, traits: CHANGEABLE | DISCOVERY },
    Row { id: TIMESTAMP, data: 8, traits: CHANGEABLE },
    Row { id: KEEP_ALIVE, data: 0, traits: CHANGEABLE | DISCOVERY },
    Row { id: HOST_BEHAVIOR, data: 512, traits: CHANGEABLE },
    Row { id: HOST_ID, data: 16, traits: DISCOVERY },
];

impl Row {
    /// Whether this controller has the feature.
    pub(super) fn is_of(&self, view: &View<'_>) -> bool {
        match view.subsystem {
            None => self.traits & DISCOVERY != 0,
            Some(subsystem) => self.id != WRITE_CACHE || subsystem.has_write_cache(),
        }
    }
}

/// What the host has set. `None` and zero: as it was.
#[derive(Clone, Debug)]
pub(super) struct Features {
    arbitration: u32,
    /// Workload hint; there is one power state.
    power: u32,
    over_temperature: u16,
    under_temperature: u16,
    write_atomicity: u32,
    /// Asynchronous Event Configuration.
    pub(super) events: Option<u32>,
    /// Milliseconds since 1970, and when they were set.
    timestamp: Option<(u64, Instant)>,
    /// ACRE and ETDAS of Host Behavior Support.
    behavior: [u8; 2],
}

impl Default for Features {
    fn default() -> Self {
        Self {
            // AB 111b: no limit.
            arbitration: 0b111,
            power: 0,
            // There is no sensor: no temperature is too high or too low.
            over_temperature: 0xffff,
            under_temperature: 0,
            write_atomicity: 0,
            events: None,
            timestamp: None,
            behavior: [0; 2],
        }
    }
}

impl Features {
    /// How many bytes of data Set Features brings.
    pub(super) fn data_len(sqe: &Sqe) -> usize {
        let id = sqe.cdw(10) as u8;
        // The host identifier cannot be set: that is said whether or not it came along.
        ROWS.iter().find(|r| r.id == id && r.traits & CHANGEABLE != 0).map_or(0, |r| r.data)
    }
}

/// What a Set Features comes to.
#[derive(Debug)]
pub(super) enum Change {
    /// These features hold from now on. Dword 0 of the completion queue entry.
    Done(Features, u32),
    /// The write cache of every volume is to be switched.
    WriteCache(bool),
    /// Keep Alive Timeout in milliseconds, not rounded.
    KeepAlive(u32),
}

/// Set Features. The order of checks: the feature, the Save bit, the namespace, the value.
pub(super) fn set_feature(view: &View<'_>, sqe: &Sqe, data: &[u8]) -> Result<Change, Status> {
    const SAVE: u32 = 1 << 31;
    let row = find(view, sqe)?;
    if row.id == HOST_ID {
        // Connect has set it (NVMe base, Host Identifier).
        return Err(Status::SEQUENCE_ERROR);
    }
    if sqe.cdw(10) & SAVE != 0 {
        return Err(Status::NOT_SAVEABLE);
    }
    if row.traits & PER_NAMESPACE != 0 {
        check_namespace(view, sqe.nsid(), true)?;
    } else if !matches!(sqe.nsid(), 0 | ALL_NAMESPACES) {
        return Err(Status::NOT_PER_NAMESPACE);
    }
    let value = sqe.cdw(11);
    let mut features = view.controller.features.clone();
    let mut result = 0;
    match row.id {
        ARBITRATION => features.arbitration = only(value, 0xffff_ff07)?,
        // PS 0, and any workload hint.
        POWER => features.power = only(value, 0xe0)?,
        TEMPERATURE => *threshold(&mut features, value)? = value as u16,
        // TLER 0 and DULBE 0 are all there is.
        ERROR_RECOVERY if value == 0 => {}
        ERROR_RECOVERY => return Err(Status::NOT_CHANGEABLE),
        WRITE_CACHE => return Ok(Change::WriteCache(only(value, 1)? != 0)),
        QUEUES => {
            check_queues(view, value)?;
            result = queues(view);
        }
        WRITE_ATOMICITY => features.write_atomicity = only(value, 1)?,
        ASYNC_EVENTS => features.events = Some(only(value, events::configurable(view.subsystem.is_none()))?),
        TIMESTAMP => features.timestamp = Some((milliseconds(data), view.now)),
        KEEP_ALIVE => return Ok(Change::KeepAlive(value)),
        HOST_BEHAVIOR => features.behavior = behavior(data)?,
        _ => unreachable!("{:#x} is in the table", row.id),
    }
    Ok(Change::Done(features, result))
}

/// Get Features: Dword 0, and data if the feature has any.
pub(super) fn get_feature(view: &View<'_>, sqe: &Sqe) -> Result<(u32, Vec<u8>), Status> {
    const CURRENT: u32 = 0;
    const DEFAULT: u32 = 1;
    const SAVED: u32 = 2;
    const CAPABILITIES: u32 = 3;
    let row = find(view, sqe)?;
    match sqe.cdw(10) >> 8 & 0b111 {
        CURRENT => current(view, sqe, row, &view.controller.features),
        // Nothing is saved, and then the default value is told.
        DEFAULT | SAVED => current(view, sqe, row, &Features::default()),
        CAPABILITIES => {
            let changeable = u32::from(row.traits & CHANGEABLE != 0);
            let per_namespace = u32::from(row.traits & PER_NAMESPACE != 0);
            Ok((per_namespace << 1 | changeable << 2, Vec::new()))
        }
        _ => Err(Status::INVALID_FIELD),
    }
}

/// The value of a feature, where it is in `features`, or what it is by itself.
fn current(view: &View<'_>, sqe: &Sqe, row: &Row, features: &Features) -> Result<(u32, Vec<u8>), Status> {
    let mut data = Vec::new();
    let mut features = features.clone();
    let result = match row.id {
        ARBITRATION => features.arbitration,
        POWER => features.power,
        TEMPERATURE => u32::from(*threshold(&mut features, sqe.cdw(11))?),
        ERROR_RECOVERY => {
            check_namespace(view, sqe.nsid(), false)?;
            0
        }
        WRITE_CACHE => view.subsystem.is_some_and(|s| s.namespaces.values().any(|n| n.info.write_cache)).into(),
        QUEUES => queues(view),
        WRITE_ATOMICITY => features.write_atomicity,
        ASYNC_EVENTS => features.events.unwrap_or(events::notices(view.subsystem.is_none())),
        TIMESTAMP => {
            data = timestamp(view, &features);
            0
        }
        KEEP_ALIVE => view.controller.kato,
        HOST_BEHAVIOR => {
            data = structure(512, &[(0, &features.behavior)]);
            0
        }
        HOST_ID if sqe.cdw(11) & 1 == 0 => return Err(Status::INVALID_FIELD),
        // EXHID: 128 bits, the only format of fabrics.
        HOST_ID => {
            data = view.controller.host_id.to_vec();
            1
        }
        _ => unreachable!("{:#x} is in the table", row.id),
    };
    Ok((result, data))
}

fn find(view: &View<'_>, sqe: &Sqe) -> Result<&'static Row, Status> {
    let id = sqe.cdw(10) as u8;
    ROWS.iter().find(|r| r.id == id && r.is_of(view)).ok_or(Status::INVALID_FIELD)
}

/// The value, if it has no other bits than these.
const fn only(value: u32, bits: u32) -> Result<u32, Status> {
    if value & !bits == 0 { Ok(value) } else { Err(Status::INVALID_FIELD) }
}

/// The namespace of a feature that each has for itself.
fn check_namespace(view: &View<'_>, nsid: u32, may_be_all: bool) -> Result<(), Status> {
    let is_there = view.subsystem.is_some_and(|s| s.namespaces.contains_key(&nsid));
    if is_there || may_be_all && nsid == ALL_NAMESPACES { Ok(()) } else { Err(Status::INVALID_NAMESPACE) }
}

/// The threshold that TMPSEL and THSEL name: of the composite temperature, the only one, or of all sensors.
fn threshold(features: &mut Features, value: u32) -> Result<&mut u16, Status> {
    const COMPOSITE: u32 = 0;
    const ALL: u32 = 0xf;
    match (value >> 16 & 0xf, value >> 20) {
        (COMPOSITE | ALL, 0) => Ok(&mut features.over_temperature),
        (COMPOSITE | ALL, 1) => Ok(&mut features.under_temperature),
        _ => Err(Status::INVALID_FIELD),
    }
}

/// NCQR and NSQR: any number can be asked for, as long as there are no queues.
fn check_queues(view: &View<'_>, value: u32) -> Result<(), Status> {
    if value >> 16 == 0xffff || value & 0xffff == 0xffff {
        return Err(Status::INVALID_FIELD);
    }
    if view.controller.io_queues().next().is_some() { Err(Status::SEQUENCE_ERROR) } else { Ok(()) }
}

/// NCQA and NSQA: a host may have as many queues as there are, however few it asked for. They count from 0.
fn queues(view: &View<'_>) -> u32 {
    let last = u32::from(view.limits.io_queues).saturating_sub(1);
    last << 16 | last
}

/// Bytes 0 to 5 of the Timestamp.
fn milliseconds(data: &[u8]) -> u64 {
    data.iter().take(6).rev().fold(0, |value, &byte| value << 8 | u64::from(byte))
}

/// The Timestamp now: what was set and the time since then, or the time since the controller was made.
fn timestamp(view: &View<'_>, features: &Features) -> Vec<u8> {
    const BITS: u64 = 48;
    const SET_BY_HOST: u8 = 1 << 1;
    let (from, since) = features.timestamp.unwrap_or((0, view.controller.since));
    let origin = if features.timestamp.is_some() { SET_BY_HOST } else { 0 };
    let elapsed = u64::try_from(view.now.since(since).as_millis()).unwrap_or(u64::MAX);
    let now = from.wrapping_add(elapsed) & ((1 << BITS) - 1);
    structure(8, &[(0, &now.to_le_bytes()), (6, &[origin, 0])])
}

/// Host Behavior Support: ACRE and ETDAS can be 1, LBAFEE, HDISNS and CDFE ask for what there is not.
fn behavior(data: &[u8]) -> Result<[u8; 2], Status> {
    let [acre, etdas, rest @ ..] = data else { return Err(Status::INVALID_FIELD) };
    let is_known = *acre <= 1 && *etdas <= 1 && rest.iter().take(4).all(|&b| b == 0);
    if is_known { Ok([*acre, *etdas]) } else { Err(Status::INVALID_FIELD) }
}
