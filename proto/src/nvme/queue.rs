//! A queue: which commands are in it, and the completion queue entries that it gives.
//!
//! The head of the submission queue moves when a command is answered, not when it comes: so a host that heeds it never has
//! more commands out than the queue has entries, and one that has is told apart.

use std::sync::Arc;

use super::config::PortalInfo;
use super::status::Status;
use crate::slab::Key;

/// One transport connection and the queue that its Connect made of it.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) peer: Arc<str>,
    pub(super) portal: PortalInfo,
    pub(super) role: Role,
    pub(super) active: Active,
    /// Where the next command stands with regard to a fused operation.
    pub(super) fused: FusedState,
    /// [`Output::Close`](super::Output::Close) was given: commands are neither taken nor answered any more.
    pub(super) closing: bool,
    /// The connection ends with the reply to this command.
    pub(super) last: Option<Key>,
    /// SQSIZE + 1; 0 before Connect.
    entries: u32,
    flow_control: bool,
    head: u32,
}

/// What a queue is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Role {
    /// Takes Connect only.
    Unconnected,
    /// The admin queue of this controller.
    Admin(Key),
    /// An I/O queue of this controller.
    Io(Key, u16),
    /// Of a controller that has ended, or deleted.
    Ended,
}

/// What came just before in this queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FusedState {
    /// No first command of a fused operation.
    Idle,
    /// This one.
    First(Key),
    /// One that was refused at once: its second fails with it.
    Refused,
}

impl FusedState {
    pub(super) const fn is_idle(&self) -> bool {
        matches!(self, Self::Idle)
    }

    /// A command ended. If a second one was still to come for it, that fails too.
    pub(super) fn ended(&mut self, task: Key) {
        if *self == Self::First(task) {
            *self = Self::Refused;
        }
    }
}

impl Queue {
    pub(super) fn new(peer: Arc<str>, portal: PortalInfo) -> Self {
        Self {
            peer,
            portal,
            role: Role::Unconnected,
            active: Active::default(),
            fused: FusedState::Idle,
            closing: false,
            last: None,
            entries: 0,
            flow_control: true,
            head: 0,
        }
    }

    /// Connect was accepted: `entries` is at least 2.
    pub(super) fn connected(&mut self, role: Role, entries: u32, flow_control: bool) {
        (self.role, self.entries, self.flow_control) = (role, entries, flow_control);
    }

    /// Queue identifier.
    pub(super) const fn qid(&self) -> u16 {
        match self.role {
            Role::Io(_, qid) => qid,
            Role::Unconnected | Role::Admin(_) | Role::Ended => 0,
        }
    }

    pub(super) const fn controller(&self) -> Option<Key> {
        match self.role {
            Role::Admin(controller) | Role::Io(controller, _) => Some(controller),
            Role::Unconnected | Role::Ended => None,
        }
    }

    /// Whether one more command is more than the queue has entries. Before Connect there is no number to go by: Connect is
    /// the only command that is not answered at once, and there is one of it at most.
    pub(super) fn is_full(&self) -> bool {
        self.entries > 0 && self.active.len() >= self.entries as usize
    }

    /// Whether [`Output::Reply`](super::Output::Reply) may be left out where it says nothing but success.
    pub(super) const fn has_flow_control(&self) -> bool {
        self.flow_control
    }

    /// The next completion queue entry (NVMe base, Common Completion Queue Entry Layout - Fabrics).
    pub(super) fn completion(&mut self, cid: u16, status: Status, result: u64, connect: bool) -> [u8; 16] {
        let head = self.advance(connect);
        let mut cqe = [0; 16];
        cqe[..8].copy_from_slice(&result.to_le_bytes());
        cqe[8..10].copy_from_slice(&head.to_le_bytes());
        cqe[10..12].copy_from_slice(&self.qid().to_le_bytes());
        cqe[12..14].copy_from_slice(&cid.to_le_bytes());
        cqe[14..].copy_from_slice(&(status.0 << 1).to_le_bytes());
        cqe
    }

    /// SQHD after one more command. Without flow control the field is reserved, and FFFFh in the answer to Connect says so.
    fn advance(&mut self, connect: bool) -> u16 {
        if self.entries == 0 {
            return 0;
        }
        if !self.flow_control {
            return if connect { 0xffff } else { 0 };
        }
        self.head = (self.head + 1) % self.entries;
        self.head as u16
    }
}

/// The commands of a queue by their identifiers. A plain scan: a queue rarely has more than a hundred, which lie in a few
/// cache lines.
#[derive(Debug, Default)]
pub(super) struct Active {
    cids: Vec<u16>,
    tasks: Vec<Key>,
}

impl Active {
    pub(super) fn len(&self) -> usize {
        self.cids.len()
    }

    pub(super) fn contains(&self, cid: u16) -> bool {
        self.cids.contains(&cid)
    }

    pub(super) fn find(&self, cid: u16) -> Option<Key> {
        self.cids.iter().position(|&c| c == cid).map(|at| self.tasks[at])
    }

    /// `cid` is not there.
    pub(super) fn insert(&mut self, cid: u16, task: Key) {
        self.cids.push(cid);
        self.tasks.push(task);
    }

    /// Takes this task out, if it is there: one whose identifier was taken already never was.
    pub(super) fn remove(&mut self, cid: u16, task: Key) {
        if let Some(at) = self.cids.iter().position(|&c| c == cid)
            && self.tasks[at] == task
        {
            self.cids.swap_remove(at);
            self.tasks.swap_remove(at);
        }
    }

    pub(super) fn tasks(&self) -> &[Key] {
        &self.tasks
    }
}
