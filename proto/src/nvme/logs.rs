//! Log pages (NVMe base, Get Log Page command). Each is given whole; the command is answered with a window of it.

use std::collections::VecDeque;

use platter_block::Rotation;

use super::admin;
use super::config::{AnaState, NamespaceConfig};
use super::data::{View, ascii, structure};
use super::discovery;
use super::fabrics;
use super::features;
use super::io::{self, ALL_NAMESPACES};
use super::sqe::Sqe;
use super::status::Status;
use super::subsystem::Subsystem;

const SUPPORTED: u8 = 0x00;
const ERRORS: u8 = 0x01;
pub(super) const SMART: u8 = 0x02;
const FIRMWARE_SLOTS: u8 = 0x03;
pub(super) const CHANGED_NAMESPACES: u8 = 0x04;
const COMMAND_EFFECTS: u8 = 0x05;
const ENDURANCE_GROUP: u8 = 0x09;
pub(super) const ANA: u8 = 0x0c;
const FEATURE_EFFECTS: u8 = 0x12;
const MANAGEMENT_EFFECTS: u8 = 0x13;
const ROTATIONAL_MEDIA: u8 = 0x16;
pub(super) const DISCOVERY: u8 = 0x70;

static OF_IO_CONTROLLERS: [u8; 11] = [
    SUPPORTED,
    ERRORS,
    SMART,
    FIRMWARE_SLOTS,
    CHANGED_NAMESPACES,
    COMMAND_EFFECTS,
    ENDURANCE_GROUP,
    ANA,
    FEATURE_EFFECTS,
    MANAGEMENT_EFFECTS,
    ROTATIONAL_MEDIA,
];

static OF_DISCOVERY_CONTROLLERS: [u8; 6] =
    [SUPPORTED, ERRORS, COMMAND_EFFECTS, FEATURE_EFFECTS, MANAGEMENT_EFFECTS, DISCOVERY];

/// The whole log page that a Get Log Page command asks for.
pub(super) fn log_page(view: &View<'_>, sqe: &Sqe) -> Result<Vec<u8>, Status> {
    let lid = sqe.cdw(10) as u8;
    let specific = (sqe.cdw(10) >> 8 & 0x7f) as u8;
    let group = (sqe.cdw(11) >> 16) as u16;
    let csi = (sqe.cdw(14) >> 24) as u8;
    if !pages(view).contains(&lid) {
        return Err(Status::INVALID_LOG_PAGE);
    }
    match (lid, view.subsystem) {
        (SUPPORTED, _) => Ok(supported(view)),
        (ERRORS, _) => Ok(view.controller.errors.log()),
        // LPA bit 0 is 0: there is none of a single namespace.
        (SMART, Some(_)) if !matches!(sqe.nsid(), 0 | ALL_NAMESPACES) => Err(Status::INVALID_FIELD),
        (SMART, Some(subsystem)) => Ok(health(view, subsystem)),
        (FIRMWARE_SLOTS, Some(subsystem)) => Ok(structure(512, &[(0, &[1]), (8, &ascii::<8>(&subsystem.firmware))])),
        (CHANGED_NAMESPACES, _) => Ok(changed_namespaces(view)),
        (COMMAND_EFFECTS, _) if csi != 0 => Err(Status::INVALID_FIELD),
        (COMMAND_EFFECTS, _) => Ok(command_effects(view)),
        (ENDURANCE_GROUP, Some(subsystem)) => endurance_group(member(subsystem, group)?),
        (ANA, Some(subsystem)) => Ok(ana(view, subsystem, specific & RETURN_GROUPS_ONLY != 0)),
        (FEATURE_EFFECTS, _) => Ok(feature_effects(view)),
        // There is no NVMe-MI Send or Receive.
        (MANAGEMENT_EFFECTS, _) => Ok(vec![0; 4096]),
        (ROTATIONAL_MEDIA, Some(subsystem)) => rotational_media(member(subsystem, group)?, group),
        (DISCOVERY, None) => Ok(discovery::log(view)),
        _ => Err(Status::INVALID_LOG_PAGE),
    }
}

fn pages(view: &View<'_>) -> &'static [u8] {
    if view.subsystem.is_some() { &OF_IO_CONTROLLERS } else { &OF_DISCOVERY_CONTROLLERS }
}

/// An array of dwords, of which these are not zero.
fn dwords(len: usize, set: impl Iterator<Item = (usize, u32)>) -> Vec<u8> {
    let mut bytes = vec![0; len];
    for (index, value) in set {
        bytes[4 * index..4 * index + 4].copy_from_slice(&value.to_le_bytes());
    }
    bytes
}

/// 00h Supported Log Pages.
fn supported(view: &View<'_>) -> Vec<u8> {
    const LSUPP: u32 = 1 << 0;
    dwords(1024, pages(view).iter().map(|&lid| (lid.into(), LSUPP)))
}

/// 02h SMART / Health Information. There is no sensor, no spare and no wear to tell of; what can be told is what this
/// controller did, and whether the disks are well.
fn health(view: &View<'_>, subsystem: &Subsystem) -> Vec<u8> {
    const DEGRADED: u8 = 1 << 2;
    const SPARE: u8 = 100;
    let counters = &view.controller.counters;
    let errors = &view.controller.errors;
    let is_degraded = errors.durability_lost || subsystem.namespaces.values().any(|n| !n.info.ready);
    // In thousands of 512 bytes, rounded up.
    let units = |bytes: u64| u128::from(bytes.div_ceil(512_000)).to_le_bytes();
    let hours = u128::from(view.now.since(view.controller.since).as_secs() / 3600);
    structure(
        512,
        &[
            (0, &[if is_degraded { DEGRADED } else { 0 }]),
            (3, &[SPARE]),
            (32, &units(counters.bytes_read)),
            (48, &units(counters.bytes_written)),
            (64, &u128::from(counters.reads).to_le_bytes()),
            (80, &u128::from(counters.writes).to_le_bytes()),
            (128, &hours.to_le_bytes()),
            (160, &u128::from(errors.of_media).to_le_bytes()),
            (176, &u128::from(errors.count).to_le_bytes()),
        ],
    )
}

/// 04h Changed Namespace List.
fn changed_namespaces(view: &View<'_>) -> Vec<u8> {
    dwords(4096, view.controller.changed.list().into_iter().enumerate())
}

/// Commands Supported and Effects, and the same of features: supported; the contents of blocks change; scope.
const SUPPORTED_BIT: u32 = 1 << 0;
const CONTENT_CHANGES: u32 = 1 << 1;
const OF_NAMESPACE: u32 = 1 << 20;
const OF_CONTROLLER: u32 = 1 << 21;

/// 05h Commands Supported and Effects, of the NVM command set.
fn command_effects(view: &View<'_>) -> Vec<u8> {
    const IO: usize = 256;
    let admin = admin::OPCODES.iter().map(|&opcode| (usize::from(opcode), SUPPORTED_BIT | OF_CONTROLLER));
    let io = io::rows().iter().filter(|_| view.subsystem.is_some()).map(|row| {
        let content = if row.changes_content() { CONTENT_CHANGES } else { 0 };
        (IO + usize::from(row.opcode), SUPPORTED_BIT | content | OF_NAMESPACE)
    });
    let disconnect = view.subsystem.map(|_| (IO + usize::from(fabrics::OPCODE), SUPPORTED_BIT | OF_CONTROLLER));
    dwords(4096, admin.chain(io).chain(disconnect))
}

/// 12h Feature Identifiers Supported and Effects.
fn feature_effects(view: &View<'_>) -> Vec<u8> {
    let rows = features::ROWS.iter().filter(|row| row.is_of(view));
    let effects = rows.map(|row| {
        let scope = if row.traits & features::PER_NAMESPACE != 0 { OF_NAMESPACE } else { OF_CONTROLLER };
        (usize::from(row.id), SUPPORTED_BIT | scope)
    });
    dwords(1024, effects)
}

/// The one namespace of an endurance group.
fn member(subsystem: &Subsystem, group: u16) -> Result<&NamespaceConfig, Status> {
    subsystem.namespaces.get(&group.into()).ok_or(Status::INVALID_FIELD)
}

/// 09h Endurance Group Information: there is no wear to tell of, only a size.
fn endurance_group(namespace: &NamespaceConfig) -> Result<Vec<u8>, Status> {
    const SPARE: u8 = 100;
    let capacity = u128::from(namespace.info.blocks) * u128::from(namespace.info.block_size);
    Ok(structure(512, &[(3, &[SPARE]), (160, &capacity.to_le_bytes())]))
}

/// LSP of the ANA log: no NSIDs.
const RETURN_GROUPS_ONLY: u8 = 1 << 0;

/// 0Ch Asymmetric Namespace Access: the groups that have namespaces, ascending, each with its state through the portal that
/// the controller was connected by.
fn ana(view: &View<'_>, subsystem: &Subsystem, groups_only: bool) -> Vec<u8> {
    const HEADER: usize = 16;
    const DESCRIPTOR: usize = 32;
    // 0 would mean that changes are not counted.
    let changes = (subsystem.ana_changes + 1).to_le_bytes();
    let mut groups: Vec<u32> = subsystem.namespaces.values().map(|n| n.ana_group).collect();
    groups.sort_unstable();
    groups.dedup();
    let mut log = structure(HEADER, &[(0, &changes), (8, &(groups.len() as u16).to_le_bytes())]);
    for group in groups {
        let state = state(subsystem.ana_state(group, view.controller.portal.number));
        let members = subsystem.namespaces.values().filter(|n| n.ana_group == group && !groups_only);
        let nsids: Vec<u8> = members.flat_map(|n| n.nsid.to_le_bytes()).collect();
        let count = (nsids.len() / 4) as u32;
        let fields: [(usize, &[u8]); 4] =
            [(0, &group.to_le_bytes()), (4, &count.to_le_bytes()), (8, &changes), (16, &[state])];
        log.extend(structure(DESCRIPTOR, &fields));
        log.extend(nsids);
    }
    log
}

const fn state(state: AnaState) -> u8 {
    match state {
        AnaState::Optimized => 0x1,
        AnaState::NonOptimized => 0x2,
        AnaState::Inaccessible => 0x3,
        AnaState::PersistentLoss => 0x4,
        AnaState::Change => 0xf,
    }
}

/// 16h Rotational Media Information, if the media of the group rotate. Spin-ups and loads are not counted.
fn rotational_media(namespace: &NamespaceConfig, group: u16) -> Result<Vec<u8>, Status> {
    const ONE_ACTUATOR: u16 = 1;
    let Rotation::Rpm(speed) = namespace.info.rotation else { return Err(Status::INVALID_FIELD) };
    let fields: [(usize, &[u8]); 3] =
        [(0, &group.to_le_bytes()), (2, &ONE_ACTUATOR.to_le_bytes()), (4, &speed.to_le_bytes())];
    Ok(structure(512, &fields))
}

/// The first block that a command is about.
const fn first_block(sqe: &Sqe) -> u64 {
    match sqe.opcode() {
        io::FLUSH | io::MANAGE => 0,
        _ => sqe.slba(),
    }
}

/// 01h Error Information: the last faults of disks that I/O commands of a controller met. What a host did wrong is told by
/// the status of the command alone.
#[derive(Debug, Default)]
pub(super) struct ErrorLog {
    /// Newest first.
    entries: VecDeque<ErrorEntry>,
    /// All that there were.
    count: u64,
    /// Of these, by what the medium did.
    of_media: u64,
    /// Writes that were acknowledged may be lost.
    durability_lost: bool,
}

/// One fault.
#[derive(Clone, Copy, Debug)]
pub(super) struct ErrorEntry {
    pub(super) sqid: u16,
    pub(super) status: Status,
    pub(super) sqe: Sqe,
}

impl ErrorLog {
    /// ELPE + 1.
    pub(super) const ENTRIES: usize = 64;

    /// Notes how an I/O command ended. True if from now on the disks count as not reliable.
    pub(super) fn note(&mut self, entry: ErrorEntry) -> bool {
        const MEDIA: u16 = 2;
        let code = entry.status.code();
        let is_of_media = code >> 8 == MEDIA && entry.status != Status::COMPARE_FAILURE;
        let is_of_durability = code == Status::INTERNAL.code();
        if !is_of_media && !is_of_durability {
            return false;
        }
        self.count += 1;
        self.of_media += u64::from(is_of_media);
        self.entries.truncate(Self::ENTRIES - 1);
        self.entries.push_front(entry);
        is_of_durability && !std::mem::replace(&mut self.durability_lost, true)
    }

    fn log(&self) -> Vec<u8> {
        const NO_PARAMETER: u16 = 0xffff;
        const VERSION: u8 = 1;
        let mut log = Vec::with_capacity(64 * Self::ENTRIES);
        for (n, ErrorEntry { sqid, status, sqe }) in (0..).zip(&self.entries) {
            let fields: [(usize, &[u8]); 9] = [
                (0, &(self.count - n).to_le_bytes()),
                (8, &sqid.to_le_bytes()),
                (10, &sqe.cid().to_le_bytes()),
                (12, &(status.0 << 1).to_le_bytes()),
                (14, &NO_PARAMETER.to_le_bytes()),
                (16, &first_block(sqe).to_le_bytes()),
                (24, &sqe.nsid().to_le_bytes()),
                // 28: no vendor specific log; 29: not of the transport; 30: the NVM command set.
                (31, &[sqe.opcode()]),
                (63, &[VERSION]),
            ];
            log.extend(structure(64, &fields));
        }
        log.resize(64 * Self::ENTRIES, 0);
        log
    }
}
