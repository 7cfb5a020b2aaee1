//! The discovery log (NVMe base, Discovery log page): what the host may use, and where.
//!
//! A host sees the subsystems that let it in, at the portals that lead to them; other discovery subsystems; and the one
//! that it is asking.

use super::DISCOVERY_NQN;
use super::config::{DirectoryEntry, Limits, PortalInfo};
use super::data::{View, ascii, structure};

/// Length of the header, and of each entry.
const RECORD: usize = 1024;

/// TRTYPE: TCP.
const TCP: u8 = 3;

/// TREQ: a secure channel is not required; SQ flow control may be disabled.
const REQUIREMENTS: u8 = 0b10 | 1 << 2;

/// CNTLID: controllers are dynamic.
const DYNAMIC: u16 = 0xffff;

/// EFLAGS of the entry for the subsystem that is asked: it says the same through every entry that says so too
/// (DUPRETINFO), and connections to it may stay (EPCSD).
const CURRENT_FLAGS: u16 = 1 << 0 | 1 << 1;

/// SUBTYPE.
#[derive(Clone, Copy)]
enum Subtype {
    Referral = 1,
    Nvm = 2,
    Current = 3,
}

/// The whole log for the host of this controller.
pub(super) fn log(view: &View<'_>) -> Vec<u8> {
    let (host, here) = (&*view.controller.host, &view.controller.portal);
    let mut records = vec![record(Subtype::Current, DISCOVERY_NQN, here, view.limits)];
    for referral in &view.directory.referrals {
        records.push(record(Subtype::Referral, DISCOVERY_NQN, referral, view.limits));
    }
    for entry in view.directory.entries.iter().filter(|e| e.hosts.allows(host)) {
        for portal in portals(entry, here) {
            records.push(record(Subtype::Nvm, &entry.nqn, &portal, view.limits));
        }
    }
    let count = records.len() as u64;
    // 16: RECFMT 0.
    let header = structure(RECORD, &[(0, &view.directory.generation.to_le_bytes()), (8, &count.to_le_bytes())]);
    [header, records.concat()].concat()
}

/// Where an entry is reached, as seen from the portal that the host came in by.
fn portals(entry: &DirectoryEntry, here: &PortalInfo) -> Vec<PortalInfo> {
    let through = |p: &&PortalInfo| entry.through.is_empty() || entry.through.contains(&p.number);
    let listed: &[PortalInfo] = if entry.portals.is_empty() { std::slice::from_ref(here) } else { &entry.portals };
    listed.iter().filter(through).map(|p| seen_from(here, p)).collect()
}

/// A portal that listens on every address is reached by the address that the host has used already.
fn seen_from(here: &PortalInfo, portal: &PortalInfo) -> PortalInfo {
    let is_wildcard = matches!(portal.address.as_str(), "0.0.0.0" | "::" | "");
    let address = if is_wildcard { here.address.clone() } else { portal.address.clone() };
    PortalInfo { address, ..portal.clone() }
}

/// One entry.
fn record(subtype: Subtype, nqn: &str, portal: &PortalInfo, limits: &Limits) -> Vec<u8> {
    const IPV4: u8 = 1;
    const IPV6: u8 = 2;
    let family = if portal.address.contains(':') { IPV6 } else { IPV4 };
    let flags = if matches!(subtype, Subtype::Current) { CURRENT_FLAGS } else { 0 };
    let queue_entries = u16::try_from(limits.queue_entries).unwrap_or(u16::MAX);
    structure(
        RECORD,
        &[
            (0, &[TCP, family, subtype as u8, REQUIREMENTS]),
            (4, &portal.number.to_le_bytes()),
            (6, &DYNAMIC.to_le_bytes()),
            (8, &queue_entries.to_le_bytes()),
            (10, &flags.to_le_bytes()),
            (32, &ascii::<32>(&portal.port.to_string())),
            (256, nqn.as_bytes()),
            (512, &ascii::<256>(&portal.address)),
            // 768: TSAS, SECTYPE 0: no transport security.
        ],
    )
}
