//! NVM subsystems: their namespaces, and through which portals they are to be had.

use std::collections::BTreeMap;

use platter_block::{VolumeId, VolumeInfo};

use super::config::{AnaGroup, AnaState, DirectoryEntry, NamespaceConfig, PortalInfo, SubsystemConfig};
use super::status::Status;
use crate::front::Peers;

/// One NVM subsystem as it is now.
#[derive(Debug)]
pub(super) struct Subsystem {
    pub(super) nqn: String,
    pub(super) serial: String,
    pub(super) model: String,
    pub(super) firmware: String,
    pub(super) hosts: Peers,
    /// By NSID.
    pub(super) namespaces: BTreeMap<u32, NamespaceConfig>,
    pub(super) ana_groups: BTreeMap<u32, AnaGroup>,
    /// Change Count of the ANA log.
    pub(super) ana_changes: u64,
}

impl Subsystem {
    pub(super) fn new(config: SubsystemConfig) -> Self {
        let mut namespaces = BTreeMap::new();
        for namespace in config.namespaces {
            let old = namespaces.insert(namespace.nsid, namespace);
            assert!(old.is_none(), "two namespaces with one NSID");
        }
        Self {
            nqn: config.nqn,
            serial: config.serial,
            model: config.model,
            firmware: config.firmware,
            hosts: config.hosts,
            namespaces,
            ana_groups: config.ana_groups,
            ana_changes: 0,
        }
    }

    /// Whether some volume has a volatile write cache, on or off: VWC.
    pub(super) fn has_write_cache(&self) -> bool {
        self.namespaces.values().any(|n| n.info.write_cache_changeable)
    }

    /// The state of a group through a portal.
    pub(super) fn ana_state(&self, group: u32, portal: u16) -> AnaState {
        self.ana_groups.get(&group).and_then(|g| g.through.get(&portal)).copied().unwrap_or_default()
    }

    /// An active namespace, for a command that needs its medium (NVMe base, ANA states: which commands fail).
    pub(super) fn medium(&self, nsid: u32, portal: u16) -> Result<&NamespaceConfig, Status> {
        let namespace = self.namespaces.get(&nsid).ok_or(Status::INVALID_NAMESPACE)?;
        match self.ana_state(namespace.ana_group, portal) {
            AnaState::Optimized | AnaState::NonOptimized => Ok(namespace),
            AnaState::Inaccessible => Err(Status::ANA_INACCESSIBLE),
            AnaState::PersistentLoss => Err(Status::ANA_PERSISTENT_LOSS),
            AnaState::Change => Err(Status::ANA_TRANSITION),
        }
    }

    /// Takes over what a volume is now; the NSIDs of namespaces whose Identify data change.
    pub(super) fn volume_changed(&mut self, volume: VolumeId, info: &VolumeInfo) -> Vec<u32> {
        let mut changed = Vec::new();
        for namespace in self.namespaces.values_mut().filter(|n| n.volume == volume) {
            let old = std::mem::replace(&mut namespace.info, info.clone());
            // Not seen in Identify Namespace: whether the write cache is on, and whether all disks are there.
            let rest = VolumeInfo { write_cache: info.write_cache, ready: info.ready, ..old };
            if rest != *info {
                changed.push(namespace.nsid);
            }
        }
        changed
    }
}

impl NamespaceConfig {
    /// Whether writes are refused.
    pub(super) const fn is_read_only(&self) -> bool {
        self.read_only || self.info.read_only
    }
}

/// What discovery tells: every subsystem of the server, and other discovery subsystems.
#[derive(Debug)]
pub(super) struct Directory {
    pub(super) entries: Vec<DirectoryEntry>,
    pub(super) referrals: Vec<PortalInfo>,
    /// GENCTR.
    pub(super) generation: u64,
}

impl Directory {
    /// Whether a subsystem may be used through a portal; one that is not listed may.
    pub(super) fn is_through(&self, nqn: &str, portal: u16) -> bool {
        self.entries.iter().filter(|e| e.nqn == nqn).all(|e| e.through.is_empty() || e.through.contains(&portal))
    }

    /// Whether the subsystem is one that `host` may know of.
    pub(super) fn lists(&self, nqn: &str, host: &str) -> bool {
        self.entries.iter().any(|e| e.nqn == nqn && e.hosts.allows(host))
    }
}
