//! Task management (11.5, 11.6): which commands a function ends, and when it is answered.
//!
//! A function is answered when
//! * M1 every command it ends has really ended: its op is over in the engine, which guarantees that within about a second of
//!   an abort, whatever the disk does;
//! * M2 every command of its own session with a smaller CmdSN has been received, if it acts on a logical unit (4.2.3.3 b).
//!   A target reset takes those that have not as received;
//! * M3 every Data-Out sequence that its own session owes to those commands has ended (4.2.3.3 a), or [`DATA_GRACE`] is over,
//!   because many initiators stop sending such data.
//!
//! No response of a command that it ended follows. What data still come are known and dropped ([`Retired`]).
//!
//! [`Retired`]: super::sessions::Retired

use std::time::Duration;

use platter_block::Instant;

use super::command::State;
use super::connection::StatSn;
use super::event::EventKind;
use super::node::{Cx, Node, Output};
use super::pdu::{Bhs, RejectReason, TaskManagementRequest, TaskManagementResponse, flag, opcode};
use super::requests::{Rejection, rejection};
use super::sessions::{Held, HeldRequest, Session};
use super::transmit::Segment;
use super::window::{Place, before};
use crate::scsi::{NexusId, ResetScope};
use crate::slab::Key;

/// How long a function waits for Data-Out that is owed to commands it has ended.
const DATA_GRACE: Duration = Duration::from_secs(1);

/// Function codes (11.5.1).
mod function {
    pub(super) const ABORT_TASK: u8 = 1;
    pub(super) const ABORT_TASK_SET: u8 = 2;
    pub(super) const CLEAR_ACA: u8 = 3;
    pub(super) const CLEAR_TASK_SET: u8 = 4;
    pub(super) const LOGICAL_UNIT_RESET: u8 = 5;
    pub(super) const TARGET_WARM_RESET: u8 = 6;
    pub(super) const TARGET_COLD_RESET: u8 = 7;
    pub(super) const TASK_REASSIGN: u8 = 8;
}

/// Response codes (11.6.1).
mod response {
    pub(super) const COMPLETE: u8 = 0;
    pub(super) const NO_TASK: u8 = 1;
    pub(super) const NO_LUN: u8 = 2;
    pub(super) const NO_REASSIGNMENT: u8 = 4;
    pub(super) const NOT_SUPPORTED: u8 = 5;
    pub(super) const REJECTED: u8 = 255;
}

/// A function in progress.
#[derive(Debug)]
pub(super) struct TaskManagement {
    pub(super) session: Key,
    nexus: NexusId,
    target: usize,
    function: u8,
    lun: [u8; 8],
    itt: u32,
    /// Commands of its own session before this are older.
    cmd_sn: u32,
    /// Some of those may not have come yet (M2).
    in_order: bool,
    response: u8,
    /// Commands that have not ended (M1, M3).
    waiting: Vec<Key>,
    since: Instant,
    aborted: usize,
    /// Other nexuses of which CLEAR TASK SET ended commands.
    cleared: Vec<NexusId>,
}

impl Node {
    /// Whether a function may be taken on.
    pub(super) fn check_task_management(&self, session: Key, bhs: &Bhs) -> Result<(), Rejection> {
        let (itt, mut count) = (bhs.itt.get(), 0);
        for tmf in self.tmfs.iter().filter(|t| t.session == session) {
            count += 1;
            if tmf.itt == itt {
                return Err(rejection(RejectReason::TaskInProgress, format_args!("ITT {itt:#x} is in use")));
            }
        }
        if count >= self.limits.immediate_commands {
            let why = format_args!("{count} task management functions are in progress");
            return Err(rejection(RejectReason::TooManyImmediate, why));
        }
        Ok(())
    }

    /// Task Management Function Request.
    pub(super) fn task_management(&mut self, cx: &mut Cx<'_>, session: Key, bhs: &Bhs) {
        let request: TaskManagementRequest = zerocopy::transmute!(*bhs);
        let Some(s) = self.sessions.get(session) else { return };
        let Some(target) = s.target else { return };
        let known = self.targets[target].device.unit_exists(request.lun);
        let mut tmf = TaskManagement {
            session,
            nexus: s.nexus,
            target,
            function: request.function & 0x7f,
            lun: request.lun,
            itt: request.itt.get(),
            cmd_sn: request.cmd_sn.get(),
            in_order: false,
            response: response::COMPLETE,
            waiting: Vec::new(),
            since: cx.now,
            aborted: 0,
            cleared: Vec::new(),
        };
        match tmf.function {
            function::ABORT_TASK => return self.abort_one(cx, tmf, &request),
            function::ABORT_TASK_SET
            | function::CLEAR_TASK_SET
            | function::LOGICAL_UNIT_RESET
            | function::CLEAR_ACA
                if !known =>
            {
                tmf.response = response::NO_LUN;
            }
            function::ABORT_TASK_SET | function::CLEAR_TASK_SET | function::LOGICAL_UNIT_RESET => {
                // The CmdSN of an immediate request may be any (4.2.2.1): one that no command can have is not waited for.
                tmf.in_order = before(s.window.expected(), tmf.cmd_sn) && s.window.reaches(tmf.cmd_sn);
                return self.abort_many(cx, tmf);
            }
            function::TARGET_WARM_RESET | function::TARGET_COLD_RESET => {
                self.plug(cx, session, tmf.cmd_sn);
                return self.abort_many(cx, tmf);
            }
            function::TASK_REASSIGN => tmf.response = response::NO_REASSIGNMENT,
            // CLEAR ACA too: NORMACA is 0, so there is no ACA condition to clear.
            _ => tmf.response = response::NOT_SUPPORTED,
        }
        self.respond_to_tmf(cx, &tmf);
    }

    /// Whether a command that is delivered only now is ended by a function that came before it (M2).
    pub(super) fn aborted_by_order(&self, key: Key) -> bool {
        let Some(task) = self.tasks.get(key) else { return false };
        let device = &self.targets[task.target].device;
        self.tmfs.iter().any(|tmf| {
            tmf.session == task.session
                && tmf.in_order
                && before(task.cmd_sn, tmf.cmd_sn)
                && same_unit(device, tmf.lun, task.lun)
        })
    }

    /// A command has ended: functions may have waited for it (M1, M3).
    pub(super) fn task_ended_for_tmfs(&mut self, cx: &mut Cx<'_>, task: Key) {
        for tmf in &mut self.tmfs {
            tmf.waiting.retain(|&t| t != task);
        }
        self.finish_tmfs(cx);
    }

    /// ExpCmdSN moved: functions may have waited for that (M2).
    pub(super) fn commands_received(&mut self, cx: &mut Cx<'_>, session: Key) {
        if self.tmfs.iter().any(|t| t.session == session) {
            self.finish_tmfs(cx);
        }
    }

    /// Gives up M3 where it has lasted too long. The next time to look, if any.
    pub(super) fn tmf_timers(&mut self, cx: &mut Cx<'_>) -> Option<Instant> {
        let mut next = None;
        let mut overdue = Vec::new();
        for tmf in self.tmfs.iter().filter(|t| !t.waiting.is_empty()) {
            let deadline = tmf.since + DATA_GRACE;
            if deadline <= cx.now {
                overdue.extend(tmf.waiting.iter().copied());
            } else {
                next = Some(next.map_or(deadline, |n: Instant| n.min(deadline)));
            }
        }
        for task in overdue {
            match self.tasks.get_mut(task) {
                Some(t) if matches!(t.state, State::Draining) => self.end_task(cx, task),
                Some(t) => t.drains = false,
                None => {}
            }
        }
        next
    }

    /// Aborts one command. With `drain` it goes only when its Data-Out sequences have ended.
    pub(super) fn abort_task(&mut self, cx: &mut Cx<'_>, key: Key, drain: bool) {
        let Some(task) = self.tasks.get_mut(key) else { return };
        task.drains = drain;
        match task.state {
            State::Running => {
                task.state = State::Aborting;
                self.outputs.push_back(Output::Abort { tag: self.tag(key) });
            }
            State::Aborting => {}
            State::Parked(_) | State::Gathering { .. } | State::Answered(_) | State::Draining => {
                self.abandon(cx, key);
                self.settle_aborted(cx, key);
            }
        }
    }

    /// An aborted command holds nothing any more: it is gone, or waits for the rest of its data.
    pub(super) fn settle_aborted(&mut self, cx: &mut Cx<'_>, key: Key) {
        match self.tasks.get(key) {
            Some(task) if task.drains && !task.out.quiet() => self.leave_task_set(key),
            Some(_) => self.end_task(cx, key),
            None => {}
        }
    }

    /// Aborts every command of a session that ends.
    pub(super) fn abort_session_tasks(&mut self, cx: &mut Cx<'_>, session: Key) {
        let Some(s) = self.sessions.get_mut(session) else { return };
        let tasks: Vec<Key> = s.tasks.iter().map(|t| t.task).collect();
        s.aborted += tasks.len();
        for task in tasks {
            self.abort_task(cx, task, false);
        }
        // Functions of this session no longer wait for commands that will not come (M2).
        self.finish_tmfs(cx);
    }

    /// ABORT TASK (11.6.1 a to c).
    fn abort_one(&mut self, cx: &mut Cx<'_>, mut tmf: TaskManagement, request: &TaskManagementRequest) {
        let Some(s) = self.sessions.get_mut(tmf.session) else { return };
        let tag = request.referenced_tag.get();
        if self.tmfs.iter().any(|t| t.session == tmf.session && t.itt == tag) {
            tmf.response = response::REJECTED;
            return self.respond_to_tmf(cx, &tmf);
        }
        let device = &self.targets[tmf.target].device;
        let found = s.find(tag).filter(|&t| self.tasks.get(t).is_some_and(|t| same_unit(device, t.lun, tmf.lun)));
        if let Some(task) = found {
            tmf.aborted = 1;
            tmf.waiting.push(task);
            self.tmfs.push(tmf);
            return self.abort_task(cx, task, false);
        }
        let ref_cmd_sn = request.ref_cmd_sn.get();
        let in_window = s.window.place(ref_cmd_sn) != Place::Outside && before(ref_cmd_sn, tmf.cmd_sn);
        if !in_window {
            tmf.response = response::NO_TASK;
        } else if s.held.iter().all(|h| h.cmd_sn != ref_cmd_sn) {
            // It never came, and if it still does it is ignored.
            s.held.push(Held { cmd_sn: ref_cmd_sn, what: HeldRequest::Nothing { ended: false } });
            self.deliver_held(cx, tmf.session);
        }
        self.respond_to_tmf(cx, &tmf);
    }

    /// The functions that end many commands (4.2.3.2).
    fn abort_many(&mut self, cx: &mut Cx<'_>, mut tmf: TaskManagement) {
        let device = &self.targets[tmf.target].device;
        let mut affected = Vec::new();
        for (key, session) in self.sessions.iter().filter(|(_, s)| s.target == Some(tmf.target)) {
            let own = key == tmf.session;
            if !own && tmf.function == function::ABORT_TASK_SET {
                continue;
            }
            let before_it = affected.len();
            affected.extend(session.tasks.iter().filter_map(|t| {
                let task = self.tasks.get(t.task)?;
                // Of its own session, only commands that came before, unless it is a reset.
                let older = !own || task.immediate || tmf.resets() || before(task.cmd_sn, tmf.cmd_sn);
                let here = tmf.whole_target() || same_unit(device, task.lun, tmf.lun);
                (older && here).then_some((t.task, own))
            }));
            if !own && tmf.function == function::CLEAR_TASK_SET && affected.len() > before_it {
                tmf.cleared.push(session.nexus);
            }
        }
        tmf.aborted = affected.len();
        tmf.waiting = affected.iter().map(|&(task, _)| task).collect();
        self.schedule(tmf.since + DATA_GRACE);
        self.tmfs.push(tmf);
        for (task, own) in affected {
            self.abort_task(cx, task, own);
        }
        self.finish_tmfs(cx);
    }

    /// Takes all CmdSNs before `cmd_sn` as received (4.2.3.3 b, last sentence).
    fn plug(&mut self, cx: &mut Cx<'_>, session: Key, cmd_sn: u32) {
        let Some(s) = self.sessions.get_mut(session).filter(|s| s.window.reaches(cmd_sn)) else { return };
        while before(s.window.expected(), cmd_sn) {
            let expected = s.window.expected();
            let at = s.held.iter().position(|h| h.cmd_sn == expected);
            let ended = match at.map(|at| s.held.swap_remove(at).what) {
                // It is a task, which the function ends.
                Some(HeldRequest::Command(_)) => true,
                Some(HeldRequest::Other { data, .. }) => {
                    cx.free_staged(data);
                    false
                }
                Some(HeldRequest::Nothing { ended }) => ended,
                None => false,
            };
            s.window.receive();
            if !ended {
                s.window.end();
            }
        }
        self.deliver_held(cx, session);
    }

    /// Answers the functions that wait for nothing any more, in the order they came.
    fn finish_tmfs(&mut self, cx: &mut Cx<'_>) {
        while let Some(at) = self.tmfs.iter().position(|t| t.waiting.is_empty() && !self.waits_for_commands(t)) {
            let tmf = self.tmfs.remove(at);
            let device = &mut self.targets[tmf.target].device;
            match tmf.function {
                function::LOGICAL_UNIT_RESET => device.reset(ResetScope::Unit(tmf.lun), tmf.nexus),
                function::TARGET_WARM_RESET | function::TARGET_COLD_RESET => {
                    device.reset(ResetScope::Device, tmf.nexus);
                }
                function::CLEAR_TASK_SET => {
                    for &nexus in &tmf.cleared {
                        device.commands_cleared(tmf.lun, nexus);
                    }
                }
                _ => {}
            }
            self.respond_to_tmf(cx, &tmf);
            if tmf.function == function::TARGET_COLD_RESET {
                self.close_target(cx, tmf.target);
            }
            self.check_drained(cx, tmf.session);
        }
    }

    /// M2. A session that ends waits for nothing.
    fn waits_for_commands(&self, tmf: &TaskManagement) -> bool {
        let waits = |s: &Session| s.ending.is_none() && before(s.window.expected(), tmf.cmd_sn);
        tmf.in_order && self.sessions.get(tmf.session).is_some_and(waits)
    }

    /// Since when a function of this session has waited for commands that do not come (M2).
    pub(super) fn commands_missing_since(&self, session: Key) -> Option<Instant> {
        let mine = self.tmfs.iter().filter(|t| t.session == session && self.waits_for_commands(t));
        mine.map(|t| t.since).min()
    }

    fn respond_to_tmf(&mut self, cx: &mut Cx<'_>, tmf: &TaskManagement) {
        let Some(s) = self.sessions.get(tmf.session).filter(|s| s.ending.is_none()) else { return };
        let Some(conn) = s.conn else { return };
        let kind = EventKind::TaskManagement {
            function: tmf.function,
            lun: tmf.lun,
            response: tmf.response,
            aborted: tmf.aborted,
        };
        self.limited_event(cx.now, conn, || kind);
        let header = TaskManagementResponse {
            opcode: opcode::TASK_MANAGEMENT_RESPONSE,
            flags: flag::FINAL,
            response: tmf.response,
            itt: tmf.itt.into(),
            ..zerocopy::FromZeros::new_zeroed()
        };
        self.send(cx, conn, zerocopy::transmute!(header), Segment::Empty, StatSn::Use);
    }
}

impl TaskManagement {
    const fn whole_target(&self) -> bool {
        matches!(self.function, function::TARGET_WARM_RESET | function::TARGET_COLD_RESET)
    }

    const fn resets(&self) -> bool {
        self.whole_target() || self.function == function::LOGICAL_UNIT_RESET
    }
}

/// Whether two LUN fields name the same unit, or are the same.
fn same_unit(device: &crate::scsi::Device, a: [u8; 8], b: [u8; 8]) -> bool {
    a == b || device.unit_index(a).is_some_and(|unit| device.unit_index(b) == Some(unit))
}
