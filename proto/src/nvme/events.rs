//! What a controller is to tell its host without being asked (NVMe base, Asynchronous Event Request command).
//!
//! An event that was told is not told again until the host has read the log that goes with it; until then a further one of
//! the same kind is remembered. The specification masks by type; here every kind is masked by itself, as hosts expect, so
//! that one unread log does not hide the events of another.

use std::collections::BTreeSet;

use super::controller::Controller;
use super::logs;

/// Something that happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Notice {
    /// A namespace came, went, or changed.
    Namespace(u32),
    /// The state of an ANA group changed.
    Ana,
    /// The discovery log changed.
    Discovery,
    /// A disk failed in a way that writes may be lost by.
    Reliability,
}

/// Kinds of events, as bits.
type Kinds = u8;

/// One kind of event: everything that is known about it.
struct Kind {
    /// Its bit in [`Kinds`].
    bit: Kinds,
    /// Bit of the Asynchronous Event Configuration feature that enables it.
    config: u32,
    /// Type, information and log page of the completion queue entry (Dword 0).
    result: u32,
    log: u8,
}

const fn kind(bit: Kinds, config: u32, event_type: u32, info: u32, log: u8) -> Kind {
    Kind { bit: 1 << bit, config: 1 << config, result: event_type | info << 8 | (log as u32) << 16, log }
}

/// SMART / Health Status, and Notice.
const HEALTH: u32 = 1;
const NOTICE: u32 = 2;

static NAMESPACE: Kind = kind(0, 8, NOTICE, 0x00, logs::CHANGED_NAMESPACES);
static ANA: Kind = kind(1, 11, NOTICE, 0x03, logs::ANA);
static DISCOVERY: Kind = kind(2, 31, NOTICE, 0xf0, logs::DISCOVERY);
static RELIABILITY: Kind = kind(3, 2, HEALTH, 0x00, logs::SMART);

/// In the order in which they are told.
static KINDS: [&Kind; 4] = [&RELIABILITY, &NAMESPACE, &ANA, &DISCOVERY];

/// OAES: notices that a controller can give.
pub(super) const fn notices(is_discovery: bool) -> u32 {
    if is_discovery { DISCOVERY_NOTICE } else { NAMESPACE_NOTICE | ANA_NOTICE }
}

const NAMESPACE_NOTICE: u32 = 1 << 8;
const ANA_NOTICE: u32 = 1 << 11;
const DISCOVERY_NOTICE: u32 = 1 << 31;

/// Critical warnings of the SMART log that can be enabled, whether or not they can occur.
const CRITICAL_WARNINGS: u32 = 0x3f;

/// The bits of the Asynchronous Event Configuration feature that may be set.
pub(super) const fn configurable(is_discovery: bool) -> u32 {
    notices(is_discovery) | if is_discovery { 0 } else { CRITICAL_WARNINGS }
}

/// The events of one controller.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AsyncEvents {
    pending: Kinds,
    /// Told, and not read yet.
    masked: Kinds,
}

/// The Changed Namespace List of one controller.
#[derive(Clone, Debug, Default)]
pub(super) struct ChangedNamespaces {
    nsids: BTreeSet<u32>,
    /// There were more than fit.
    overflowed: bool,
}

impl ChangedNamespaces {
    /// NSIDs in the list; more are told as "too many".
    const MAX: usize = 1024;

    fn insert(&mut self, nsid: u32) {
        if self.nsids.contains(&nsid) {
            return;
        }
        self.overflowed |= self.nsids.len() == Self::MAX;
        if !self.overflowed {
            self.nsids.insert(nsid);
        }
    }

    /// What the log says, in ascending order; FFFFFFFFh alone if there are too many.
    pub(super) fn list(&self) -> Vec<u32> {
        if self.overflowed { vec![u32::MAX] } else { self.nsids.iter().copied().collect() }
    }
}

impl Controller {
    /// Remembers what happened, as far as the host wants to be told of it.
    pub(super) fn raise(&mut self, notice: Notice) {
        let kind = match notice {
            Notice::Namespace(nsid) => {
                self.changed.insert(nsid);
                &NAMESPACE
            }
            Notice::Ana => &ANA,
            Notice::Discovery => &DISCOVERY,
            Notice::Reliability => &RELIABILITY,
        };
        if self.enabled_events() & kind.config != 0 {
            self.events.pending |= kind.bit;
        }
    }

    /// Takes the next event to tell: Dword 0 of the completion queue entry.
    pub(super) fn next_event(&mut self) -> Option<u32> {
        let enabled = self.enabled_events();
        let ready = self.events.pending & !self.events.masked;
        let kind = KINDS.iter().find(|k| ready & k.bit != 0 && enabled & k.config != 0)?;
        self.events.pending &= !kind.bit;
        self.events.masked |= kind.bit;
        Some(kind.result)
    }

    /// The host has read a log, and did not ask to retain its event: what the event had to tell is known.
    pub(super) fn log_read(&mut self, log: u8) {
        let read = KINDS.iter().filter(|k| k.log == log).fold(0, |bits, k| bits | k.bit);
        self.events.pending &= !read;
        self.events.masked &= !read;
        if log == logs::CHANGED_NAMESPACES {
            self.changed = ChangedNamespaces::default();
        }
    }

    /// Asynchronous Event Configuration: what the host has set; before that, all notices.
    pub(super) fn enabled_events(&self) -> u32 {
        self.features.events.unwrap_or(notices(self.subsystem.is_none()))
    }
}
