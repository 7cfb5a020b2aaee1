//! Identify (NVMe base, Identify command; NVM command set, Identify Data Structures): which structure a CNS value asks for,
//! and those that are lists.

use super::data::{View, structure};
use super::identify_controller::controller;
use super::identify_namespace::{command_set_independent, namespace};
use super::io::ALL_NAMESPACES;
use super::sqe::Sqe;
use super::status::Status;
use super::subsystem::Subsystem;

/// VER, and the Version property: 2.1.
pub(super) const VERSION: u32 = 0x0002_0100;

/// Most bytes of one Write Zeroes command: WZSL, which would be the limit of the controller's transfers if it were not told.
pub(super) const MAX_ZEROES: u32 = 32 << 20;

/// Length of every structure.
pub(super) const LEN: usize = 4096;

/// CSI: the NVM command set, the only one.
const NVM: u8 = 0;

/// The structure that an Identify command asks for. `cntlids`: the controllers of the subsystem, ascending.
///
/// Refused by 0/02h, among others: 04h (NVM sets), 09h and 0Ah (other formats), 14h and 15h (virtualization), 16h (namespace
/// granularity, which only matters for namespace management), 17h (UUIDs of vendor specific things), 18h (domains).
pub(super) fn identify(view: &View<'_>, cntlids: &[u16], sqe: &Sqe) -> Result<Vec<u8>, Status> {
    let cns = sqe.cdw(10) as u8;
    let cntid = (sqe.cdw(10) >> 16) as u16;
    let (specific, csi) = (sqe.cdw(11) as u16, (sqe.cdw(11) >> 24) as u8);
    let nsid = sqe.nsid();
    let Some(subsystem) = view.subsystem else {
        return if cns == 0x01 { Ok(controller(view)) } else { Err(Status::INVALID_FIELD) };
    };
    // A structure of the inactive namespace is all zeroes.
    let of = |build: fn(&View<'_>, &Subsystem, u32) -> Option<Vec<u8>>| {
        check_nsid(view, nsid).map(|()| build(view, subsystem, nsid).unwrap_or_else(|| vec![0; LEN]))
    };
    match (cns, csi) {
        (0x00 | 0x11, _) | (0x1b, NVM) => of(namespace),
        (0x01, _) => Ok(controller(view)),
        (0x02 | 0x10, _) | (0x07 | 0x1a, NVM) => nsids(subsystem, nsid),
        (0x03, _) => descriptors(subsystem, nsid),
        // Nothing of what it could tell is there: protection information, large granularities.
        (0x05, NVM) => of(|_, _, _| None),
        (0x06, NVM) => Ok(nvm_controller()),
        (0x08, _) => of(command_set_independent),
        (0x12, _) if subsystem.namespaces.contains_key(&nsid) => Ok(controllers(cntlids, cntid)),
        (0x12, _) => check_nsid(view, nsid).map(|()| controllers(&[], cntid)),
        (0x13, _) => Ok(controllers(cntlids, cntid)),
        (0x19, _) => Ok(endurance_groups(subsystem, specific)),
        (0x1c, _) if cntid == 0xffff || cntlids.contains(&cntid) => Ok(structure(LEN, &[(0, &[1 << NVM])])),
        _ => Err(Status::INVALID_FIELD),
    }
}

/// Whether an NSID can be one of a namespace.
fn check_nsid(view: &View<'_>, nsid: u32) -> Result<(), Status> {
    if (1..=view.limits.namespaces).contains(&nsid) { Ok(()) } else { Err(Status::INVALID_NAMESPACE) }
}

/// 02h, 07h, 10h, 1Ah: namespaces with a greater NSID. All that are there are active, and of the NVM command set.
fn nsids(subsystem: &Subsystem, after: u32) -> Result<Vec<u8>, Status> {
    if after >= ALL_NAMESPACES - 1 {
        return Err(Status::INVALID_NAMESPACE);
    }
    let nsids = subsystem.namespaces.range(after + 1..).map(|(nsid, _)| nsid.to_le_bytes());
    Ok(list(&[], nsids))
}

/// 03h: what the namespace is called. Numbers that its maker gives have no place here, the UUID is all.
fn descriptors(subsystem: &Subsystem, nsid: u32) -> Result<Vec<u8>, Status> {
    const UUID: u8 = 3;
    const COMMAND_SET: u8 = 4;
    let namespace = subsystem.namespaces.get(&nsid).ok_or(Status::INVALID_NAMESPACE)?;
    let uuid = &namespace.uuid;
    Ok(structure(LEN, &[(0, &[UUID, 16]), (4, uuid), (20, &[COMMAND_SET, 1]), (24, &[NVM])]))
}

/// 06h: limits of commands of the NVM command set. Verify and Dataset Management have none beyond their fields.
fn nvm_controller() -> Vec<u8> {
    const WZSL: u8 = (MAX_ZEROES / PAGE).ilog2() as u8;
    structure(LEN, &[(1, &[WZSL])])
}

/// The unit of MDTS and of such limits: CAP.MPSMIN.
pub(super) const PAGE: u32 = 4096;

/// 12h, 13h: controllers from `first` on.
fn controllers(cntlids: &[u16], first: u16) -> Vec<u8> {
    counted(cntlids.iter().copied().filter(|&c| c >= first))
}

/// 19h: each namespace is an endurance group of its own, of the same number.
fn endurance_groups(subsystem: &Subsystem, first: u16) -> Vec<u8> {
    counted(subsystem.namespaces.keys().filter_map(|&nsid| u16::try_from(nsid).ok()).filter(|&g| g >= first))
}

/// A list of up to 2047 numbers behind their count.
fn counted(numbers: impl Iterator<Item = u16> + Clone) -> Vec<u8> {
    const MAX: usize = LEN / 2 - 1;
    let count = numbers.clone().take(MAX).count() as u16;
    list(&count.to_le_bytes(), numbers.map(u16::to_le_bytes))
}

/// What fits of a list, behind a header.
fn list<const N: usize>(header: &[u8], items: impl Iterator<Item = [u8; N]>) -> Vec<u8> {
    let mut bytes: Vec<u8> = header.iter().copied().chain(items.flatten()).take(LEN).collect();
    bytes.resize(LEN, 0);
    bytes
}
