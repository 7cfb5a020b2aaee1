//! What changes while hosts are connected. What a host can ask for is changed before it is told of the change.

use platter_block::{BufPool, VolumeId, VolumeInfo};

use super::config::{AnaGroup, DirectoryEntry, NamespaceConfig, PortalInfo};
use super::data::Notice;
use super::queue::Role;
use super::status::Status;
use super::subsystem::Subsystem;
use super::target::Target;
use crate::front::Peers;
use crate::slab::Key;

impl Target {
    /// See [`Target::volume_changed`].
    pub(super) fn change_volume(&mut self, volume: VolumeId, info: &VolumeInfo, pool: &mut BufPool) {
        for key in self.subsystems.keys() {
            let changed = self.subsystems.get_mut(key).map(|s| s.volume_changed(volume, info)).unwrap_or_default();
            for nsid in changed {
                self.tell(Some(key), Notice::Namespace(nsid), pool);
            }
        }
    }

    /// See [`Target::add_subsystem`].
    pub(super) fn insert_subsystem(&mut self, subsystem: Subsystem) {
        let is_there = self.subsystems.iter().any(|(_, s)| s.nqn == subsystem.nqn);
        assert!(!is_there, "{} is there already", subsystem.nqn);
        self.subsystems.insert(subsystem);
    }

    /// See [`Target::remove_subsystem`].
    pub(super) fn take_subsystem(&mut self, nqn: &str, pool: &mut BufPool) -> bool {
        let Some(key) = self.subsystem_named(nqn) else { return false };
        for controller in self.controllers_of(Some(key)) {
            self.end_controller(controller, "its subsystem was removed", pool);
        }
        self.subsystems.remove(key);
        true
    }

    /// See [`Target::add_namespace`].
    pub(super) fn insert_namespace(&mut self, nqn: &str, namespace: NamespaceConfig, pool: &mut BufPool) -> bool {
        let Some(key) = self.subsystem_named(nqn) else { return false };
        let Some(subsystem) = self.subsystems.get_mut(key) else { return false };
        let nsid = namespace.nsid;
        let old = subsystem.namespaces.insert(nsid, namespace);
        assert!(old.is_none(), "namespace {nsid} of {nqn} is there already");
        subsystem.ana_changes += 1;
        self.tell(Some(key), Notice::Namespace(nsid), pool);
        true
    }

    /// See [`Target::remove_namespace`].
    pub(super) fn take_namespace(&mut self, nqn: &str, nsid: u32, pool: &mut BufPool) -> bool {
        let Some(key) = self.subsystem_named(nqn) else { return false };
        let Some(subsystem) = self.subsystems.get_mut(key) else { return false };
        if subsystem.namespaces.remove(&nsid).is_none() {
            return false;
        }
        subsystem.ana_changes += 1;
        for task in self.tasks.keys() {
            if self.is_for(task, key, nsid) {
                self.stop(task, Status::INVALID_NAMESPACE, pool);
            }
        }
        self.tell(Some(key), Notice::Namespace(nsid), pool);
        true
    }

    /// Whether an I/O command is for this namespace.
    fn is_for(&self, task: Key, subsystem: Key, nsid: u32) -> bool {
        self.tasks.get(task).filter(|t| t.sqe.nsid() == nsid).is_some_and(|task| {
            let controller = task.controller.and_then(|c| self.controllers.get(c));
            let is_io = self.queues.get(task.queue).is_some_and(|q| matches!(q.role, Role::Io(..)));
            is_io && controller.is_some_and(|c| c.subsystem == Some(subsystem))
        })
    }

    /// See [`Target::set_hosts`].
    pub(super) fn change_hosts(&mut self, nqn: &str, hosts: Peers) -> bool {
        let Some(subsystem) = self.subsystem_named(nqn).and_then(|k| self.subsystems.get_mut(k)) else { return false };
        subsystem.hosts = hosts;
        true
    }

    /// See [`Target::set_ana`].
    pub(super) fn change_ana(&mut self, nqn: &str, group: u32, states: AnaGroup, pool: &mut BufPool) -> bool {
        let Some(key) = self.subsystem_named(nqn) else { return false };
        let Some(subsystem) = self.subsystems.get_mut(key) else { return false };
        let old = subsystem.ana_groups.insert(group, states).unwrap_or_default();
        let state = |old: &AnaGroup, portal: u16| old.through.get(&portal).copied().unwrap_or_default();
        let has_namespaces = subsystem.namespaces.values().any(|n| n.ana_group == group);
        let changed: Vec<Key> = {
            let subsystem = self.subsystems.get(key).expect("found above");
            let sees = |c: &Key| {
                let portal = self.controllers.get(*c).map_or(0, |c| c.portal.number);
                state(&old, portal) != subsystem.ana_state(group, portal)
            };
            self.controllers_of(Some(key)).into_iter().filter(sees).collect()
        };
        if !has_namespaces || changed.is_empty() {
            return true;
        }
        if let Some(subsystem) = self.subsystems.get_mut(key) {
            subsystem.ana_changes += 1;
        }
        for controller in changed {
            self.raise(controller, Notice::Ana, pool);
        }
        true
    }

    /// See [`Target::set_directory`].
    pub(super) fn change_directory(
        &mut self,
        entries: Vec<DirectoryEntry>,
        referrals: Vec<PortalInfo>,
        pool: &mut BufPool,
    ) {
        if self.directory.entries == entries && self.directory.referrals == referrals {
            return;
        }
        self.directory.entries = entries;
        self.directory.referrals = referrals;
        self.directory.generation += 1;
        self.tell(None, Notice::Discovery, pool);
    }

    /// See [`Target::drain`].
    pub(super) fn begin_drain(&mut self, pool: &mut BufPool) {
        self.draining = true;
        for key in self.queues.keys() {
            let is_idle = self.queues.get(key).is_some_and(|q| q.role == Role::Unconnected && q.active.len() == 0);
            if is_idle {
                self.close_queue(key);
            }
        }
        for key in self.controllers.keys() {
            self.drain_controller(key, pool);
        }
        // What waits for an earlier controller of its host would wait in vain.
        self.quiet = true;
    }

    fn subsystem_named(&self, nqn: &str) -> Option<Key> {
        self.subsystems.iter().find(|(_, s)| s.nqn == nqn).map(|(key, _)| key)
    }

    /// Tells all controllers of a subsystem.
    fn tell(&mut self, subsystem: Option<Key>, notice: Notice, pool: &mut BufPool) {
        for controller in self.controllers_of(subsystem) {
            self.raise(controller, notice, pool);
        }
    }
}
