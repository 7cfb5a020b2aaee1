//! SCSI commands: from the PDU to the reply.
//!
//! ```text
//!               CmdSN not yet due, or the task set says wait
//!   header ---------------------> Parked ----------------+
//!      |                                                 |
//!      +--> [Device::start] <----------------------------+
//!              | Receive            | Submit                  | Reply
//!              v                    v                         v
//!           Gathering --received--> Running --completed--> Answered --> response, gone
//!           (data_out.rs)             |                       waits for the last expected Data-Out (11.4.2)
//!                                     | abort
//!                                     v
//!                                  Aborting --completed--> gone, or Draining while Data-Out of its R2Ts may come
//! ```
//!
//! Immediate data usually go straight from the wire into the buffer that the device server names, because a command whose
//! turn it is starts as soon as its header is there. With a data digest it starts when its data have proved right, since a
//! command whose immediate data are wrong was never received (7.8); then they wait in a buffer of their own, as do
//! unsolicited data of a command that is parked.

use platter_block::{BufId, Instant, Report, Status, Tag};

use super::condition::{Condition, Verdict};
use super::connection::{Incoming, Sink, Staged};
use super::data_out::DataOutState;
use super::node::{Cx, Node, Output};
use super::pdu::{NO_TAG, RejectReason, ScsiCommand, flag};
use super::requests::{Rejection, rejection, stage};
use super::sessions::{HeldRequest, Retired, TaskRef};
use super::window::Place;
use crate::scsi::{self, Attribute, Command, Entered, Step};
use crate::slab::Key;

/// A SCSI command in progress.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) session: Key,
    /// Index of the target.
    pub(super) target: usize,
    /// Index of the unit, whose task set it is in or was in.
    pub(super) unit: Option<usize>,
    pub(super) lun: [u8; 8],
    pub(super) itt: u32,
    pub(super) cmd_sn: u32,
    pub(super) immediate: bool,
    attribute: Attribute,
    /// The R bit: data are expected in.
    pub(super) read: bool,
    /// Expected Data Transfer Length of a command with W=1 (11.3.4).
    pub(super) out_len: u32,
    /// Expected Data Transfer Length of a command with R=1.
    pub(super) in_len: u32,
    pub(super) state: State,
    /// It was aborted by a task management function that waits for the end of its Data-Out sequences (4.2.3.3 a).
    pub(super) drains: bool,
    /// From the start to the reply.
    pub(super) scsi: Option<scsi::Task>,
    pub(super) out: DataOutState,
}

/// Where a command is. See the picture above.
#[derive(Debug)]
pub(super) enum State {
    Parked(Parked),
    Gathering { buf: BufId, len: usize },
    Running,
    Answered(Verdict),
    Aborting,
    Draining,
}

/// A command that has not started.
#[derive(Debug)]
pub(super) struct Parked {
    cdb: [u8; 16],
    /// The rest of an extended CDB.
    more_cdb: Vec<u8>,
    /// Its unsolicited data so far.
    pub(super) staged: Option<Staged>,
    /// What it will be answered instead of being started.
    pub(super) refused: Option<Verdict>,
}

/// What the additional header segments say (11.2.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Extras<'a> {
    /// Extended CDB: what follows the first 16 bytes.
    cdb: Option<&'a [u8]>,
    /// Bidirectional Read Expected Data Transfer Length.
    bidi: Option<u32>,
}

/// From the wire to the start.
impl Node {
    /// The header of a SCSI Command.
    pub(super) fn command_header(&mut self, cx: &mut Cx<'_>, key: Key, session: Key) {
        let (Some(conn), Some(s)) = (self.conns.get(key), self.sessions.get(session)) else { return };
        let bhs = conn.rx.bhs();
        let command: ScsiCommand = zerocopy::transmute!(bhs);
        let (itt, cmd_sn, data_len) = (command.itt.get(), command.cmd_sn.get(), bhs.data_len());
        if itt == NO_TAG {
            return self.drop_connection(cx, key, "SCSI Command with ITT FFFFFFFFh");
        }
        // 4.2.2.1: whether the task exists is tested first; a retry of it is ignored.
        if let Some(task) = s.find(itt) {
            let retry = self.tasks.get(task).is_some_and(|t| !t.immediate && !bhs.immediate() && t.cmd_sn == cmd_sn);
            if !retry {
                self.reject_current(cx, key, RejectReason::TaskInProgress, format_args!("ITT {itt:#x} is in use"));
            }
            return;
        }
        let next = if bhs.immediate() {
            if s.immediate >= self.limits.immediate_commands {
                let why = format!("{} immediate commands are in progress", s.immediate);
                return self.reject_current(cx, key, RejectReason::TooManyImmediate, why);
            }
            true
        } else {
            match s.window.place(cmd_sn) {
                Place::Next => true,
                Place::Ahead if s.held.iter().all(|h| h.cmd_sn != cmd_sn) => false,
                Place::Ahead | Place::Outside => return,
            }
        };
        if let Err((reason, why)) = check(&command, data_len).and_then(|()| extras(conn.rx.ahs()).map(|_| ())) {
            return self.reject_current(cx, key, reason, why);
        }
        if next && (data_len == 0 || !conn.rx.has_data_digest()) {
            let task = self.new_task(cx.now, key, session, &command, data_len);
            if let Some(s) = self.sessions.get_mut(session).filter(|_| !bhs.immediate()) {
                s.window.receive();
            }
            self.admit(cx, task);
            let sink = self.sink_for(task, 0, data_len as usize);
            if let Some(conn) = self.conns.get_mut(key) {
                conn.sink = sink;
                conn.incoming = Incoming::Immediate { task };
            }
            return;
        }
        let staged = stage(cx.pool, data_len as usize);
        let Some(conn) = self.conns.get_mut(key) else { return cx.free_staged(staged) };
        if let Some(Staged { buf, len }) = staged {
            conn.sink = Sink::Buffer { buf, at: 0, limit: len };
        }
        conn.incoming = Incoming::Command { staged };
    }

    /// A SCSI Command is complete that did not start with its header.
    pub(super) fn command_complete(&mut self, cx: &mut Cx<'_>, key: Key, staged: Option<Staged>) {
        let Some(conn) = self.conns.get(key) else { return cx.free_staged(staged) };
        let Some(session) = conn.session() else { return cx.free_staged(staged) };
        let bhs = conn.rx.bhs();
        let command: ScsiCommand = zerocopy::transmute!(bhs);
        let data_len = bhs.data_len();
        let task = self.new_task(cx.now, key, session, &command, data_len);
        let Some(t) = self.tasks.get_mut(task) else { return cx.free_staged(staged) };
        t.out.immediate_open = false;
        if staged.is_none() && data_len > 0 {
            t.refuse(Verdict::TaskSetFull);
        }
        self.stage_unsolicited(cx, task, staged);
        let Some(s) = self.sessions.get_mut(session) else { return };
        let cmd_sn = command.cmd_sn.get();
        if bhs.immediate() || s.window.place(cmd_sn) == Place::Next {
            if !bhs.immediate() {
                s.window.receive();
            }
            self.admit(cx, task);
            self.deliver_held(cx, session);
        } else {
            self.hold(cx, session, cmd_sn, HeldRequest::Command(task));
        }
    }

    /// The PDU of a command that started with its header is complete.
    pub(super) fn immediate_complete(&mut self, cx: &mut Cx<'_>, key: Key, task: Key) {
        if let Some(t) = self.tasks.get_mut(task) {
            t.out.immediate_open = false;
            self.progress(cx, task);
        }
        if let Some(session) = self.conns.get(key).and_then(|c| c.session()) {
            self.deliver_held(cx, session);
        }
    }

    /// It is this command's turn: into the task set of its unit.
    pub(super) fn admit(&mut self, cx: &mut Cx<'_>, key: Key) {
        if self.aborted_by_order(key) {
            return self.end_task(cx, key);
        }
        let Some(task) = self.tasks.get_mut(key) else { return };
        let State::Parked(parked) = &mut task.state else { return };
        let target = &mut self.targets[task.target];
        task.unit = target.device.unit_index(task.lun);
        let entered = match task.unit {
            Some(unit) => target.task_set(unit).enter(key.to_bits(), task.attribute),
            None => Entered::Started,
        };
        match entered {
            Entered::Started => self.start(cx, key),
            Entered::Full => {
                task.unit = None;
                self.answer(cx, key, Verdict::TaskSetFull);
            }
            // Its data may come before it starts.
            Entered::Waiting => {
                let staged = parked.staged.take();
                self.stage_unsolicited(cx, key, staged);
            }
        }
    }

    /// Gives the command to the device server.
    pub(super) fn start(&mut self, cx: &mut Cx<'_>, key: Key) {
        let Some(task) = self.tasks.get_mut(key) else { return };
        let State::Parked(parked) = &mut task.state else { return };
        let staged = parked.staged.take();
        let refused = parked.refused.take();
        // No command of any unit is bidirectional.
        let refused = refused.or((task.read && task.out.write).then_some(Verdict::Condition(Condition::Bidirectional)));
        if let Some(verdict) = refused {
            cx.free_staged(staged);
            return self.answer(cx, key, verdict);
        }
        let long: Vec<u8>;
        let cdb: &[u8] = if parked.more_cdb.is_empty() {
            &parked.cdb
        } else {
            long = [&parked.cdb[..], &parked.more_cdb].concat();
            &long
        };
        let command =
            Command { lun: task.lun, cdb, attribute: task.attribute, out_len: task.out_len, in_len: task.in_len };
        let Some(session) = self.sessions.get_mut(task.session) else { return cx.free_staged(staged) };
        session.commands += 1;
        let (scsi, step) = self.targets[task.target].device.start(session.nexus, command, cx.pool);
        task.scsi = Some(scsi);
        if let Some(Staged { buf, len: have }) = staged {
            // A PDU in progress may be filling the staged data just now: it goes on with the real buffer.
            let conn = session.conn.and_then(|c| self.conns.get_mut(c));
            if let Step::Receive { buf: into, len } = step {
                let n = have.min(task.out.taken as usize).min(len);
                copy(cx, buf, into, n);
                conn.into_iter().for_each(|c| c.replace_buffer(buf, into, len));
            } else {
                conn.into_iter().for_each(|c| c.forget_buffer(buf));
            }
        }
        cx.free_staged(staged);
        self.step(cx, key, step);
    }

    /// A new task, parked.
    fn new_task(&mut self, now: Instant, conn: Key, session: Key, command: &ScsiCommand, data_len: u32) -> Key {
        let c = self.conns.get(conn).expect("the PDU came from it");
        let extras = extras(c.rx.ahs()).unwrap_or_default();
        let s = self.sessions.get_mut(session).expect("the connection is in full feature phase");
        let (read, write) = (command.flags & flag::READ != 0, command.flags & flag::WRITE != 0);
        let immediate = command.opcode & super::pdu::opcode::IMMEDIATE != 0;
        let expected = command.expected_len.get();
        let more_cdb = extras.cdb.unwrap_or_default().to_vec();
        let last = command.flags & flag::FINAL != 0;
        let task = self.tasks.insert(Task {
            session,
            target: s.target.expect("discovery sessions have no commands"),
            unit: None,
            lun: command.lun,
            itt: command.itt.get(),
            cmd_sn: command.cmd_sn.get(),
            immediate,
            attribute: attribute(command.flags),
            read,
            out_len: if write { expected } else { 0 },
            in_len: if read && write {
                extras.bidi.unwrap_or(0)
            } else if read {
                expected
            } else {
                0
            },
            state: State::Parked(Parked { cdb: command.cdb, more_cdb, staged: None, refused: None }),
            drains: false,
            scsi: None,
            out: DataOutState::new(now, write, last, data_len),
        });
        s.tasks.push(TaskRef { itt: command.itt.get(), task });
        s.immediate += u32::from(immediate);
        s.bytes_received += u64::from(data_len);
        self.check_unsolicited(task, data_len);
        task
    }

    /// Keeps unsolicited data of a command that cannot start yet, in a buffer that has room for all that may come.
    fn stage_unsolicited(&mut self, cx: &mut Cx<'_>, key: Key, staged: Option<Staged>) {
        let Some(task) = self.tasks.get_mut(key) else { return cx.free_staged(staged) };
        let mut keep = staged;
        let first_burst = self.sessions.get(task.session).map_or(0, |s| s.params.first_burst);
        let room = task.out.room_needed(task.out_len.min(first_burst)) as usize;
        if room > staged.map_or(0, |s| s.len) {
            keep = stage(cx.pool, room);
            match (staged, keep) {
                (Some(old), Some(new)) => copy(cx, old.buf, new.buf, old.len),
                (_, None) => task.refuse(Verdict::TaskSetFull),
                (None, Some(_)) => {}
            }
            cx.free_staged(staged);
        }
        match &mut task.state {
            State::Parked(parked) => parked.staged = keep,
            _ => cx.free_staged(keep),
        }
    }
}

impl Task {
    /// A command that has not started will be answered this.
    pub(super) fn refuse(&mut self, verdict: Verdict) {
        if let State::Parked(parked) = &mut self.state {
            parked.refused.get_or_insert(verdict);
        }
    }
}

/// From the start to the end.
impl Node {
    /// Does what the device server wants next.
    pub(super) fn step(&mut self, cx: &mut Cx<'_>, key: Key, step: Step) {
        let Some(task) = self.tasks.get_mut(key) else { return };
        match step {
            Step::Receive { buf, len } => {
                task.state = State::Gathering { buf, len };
                self.progress(cx, key);
            }
            Step::Submit { volume, op } => {
                task.state = State::Running;
                self.outputs.push_back(Output::Submit { tag: self.tag(key), volume, op });
            }
            Step::Reply(reply) => self.answer(cx, key, Verdict::Reply(reply)),
        }
    }

    /// An op has ended.
    pub(super) fn op_ended(&mut self, cx: &mut Cx<'_>, tag: Tag, status: Status, report: Option<Box<Report>>) {
        if tag.0 >> 48 != u64::from(self.tag_base) {
            return;
        }
        let key = Key::from_bits(tag.0 & TAG_BITS);
        let Some(task) = self.tasks.get_mut(key) else { return };
        match task.state {
            State::Running => {
                let Some(scsi) = &mut task.scsi else { return };
                let step = self.targets[task.target].device.completed(scsi, status, report, cx.pool);
                self.step(cx, key, step);
            }
            State::Aborting => {
                self.abandon(cx, key);
                self.settle_aborted(cx, key);
            }
            State::Parked(_) | State::Gathering { .. } | State::Answered(_) | State::Draining => {}
        }
    }

    /// The command has its reply. It is sent when no more data are expected (11.4.2).
    pub(super) fn answer(&mut self, cx: &mut Cx<'_>, key: Key, verdict: Verdict) {
        if matches!(self.tasks.get(key), Some(Task { state: State::Parked(_), .. })) {
            self.abandon(cx, key);
        }
        let Some(task) = self.tasks.get_mut(key) else { return };
        task.scsi = None;
        task.state = State::Answered(verdict);
        self.leave_task_set(key);
        self.progress(cx, key);
    }

    /// Goes on if nothing is missing.
    pub(super) fn progress(&mut self, cx: &mut Cx<'_>, key: Key) {
        let Some(task) = self.tasks.get_mut(key) else { return };
        match &task.state {
            State::Gathering { len, .. } => {
                let len = *len as u32;
                if task.out.first_burst_over() && !self.solicit(cx, key, len) {
                    self.gathered(cx, key);
                }
            }
            State::Answered(_) if task.out.quiet() => self.respond(cx, key),
            State::Draining if task.out.quiet() => self.end_task(cx, key),
            State::Parked(_) | State::Running | State::Answered(_) | State::Aborting | State::Draining => {}
        }
    }

    /// All data that the device server asked for are there.
    fn gathered(&mut self, cx: &mut Cx<'_>, key: Key) {
        let Some(task) = self.tasks.get_mut(key) else { return };
        let Some(scsi) = &mut task.scsi else { return };
        let step = self.targets[task.target].device.received(scsi, cx.pool);
        self.step(cx, key, step);
    }

    /// Sends the reply; the command is over.
    fn respond(&mut self, cx: &mut Cx<'_>, key: Key) {
        let Some(mut task) = self.remove_task(key) else { return };
        let State::Answered(verdict) = std::mem::replace(&mut task.state, State::Draining) else { return };
        match self.sessions.get(task.session).and_then(|s| s.conn) {
            Some(conn) => self.send_reply(cx, conn, &task, verdict),
            None => verdict.free(cx.pool),
        }
        self.task_gone(cx, key, task.session);
    }

    /// The command is over without a reply. Nothing of it is left in the device server or the engine.
    pub(super) fn end_task(&mut self, cx: &mut Cx<'_>, key: Key) {
        self.abandon(cx, key);
        self.leave_task_set(key);
        let closed = |node: &Self, session| node.sessions.get(session).is_some_and(|s| s.window.is_closed());
        let was_closed = self.tasks.get(key).is_some_and(|t| closed(self, t.session));
        let Some(task) = self.remove_task(key) else { return };
        if let Some(s) = self.sessions.get_mut(task.session)
            && !task.out.quiet()
        {
            s.retire(Retired { itt: task.itt, transfer: task.out.transfer, sequences: task.out.open_sequences() });
        }
        if was_closed && !closed(self, task.session) {
            self.tell_window(cx, task.session);
        }
        self.task_gone(cx, key, task.session);
    }

    /// Frees what the command holds.
    pub(super) fn abandon(&mut self, cx: &mut Cx<'_>, key: Key) {
        let Some(task) = self.tasks.get_mut(key) else { return };
        if let Some(scsi) = task.scsi.take() {
            self.targets[task.target].device.abandon(scsi, cx.pool);
        }
        let conn = self.sessions.get(task.session).and_then(|s| s.conn);
        let buffer = match std::mem::replace(&mut task.state, State::Draining) {
            State::Parked(mut parked) => {
                let staged = parked.staged.take();
                cx.free_staged(staged);
                staged.map(|s| s.buf)
            }
            State::Gathering { buf, .. } => Some(buf),
            State::Answered(verdict) => {
                verdict.free(cx.pool);
                None
            }
            State::Running | State::Aborting | State::Draining => None,
        };
        if let (Some(buf), Some(conn)) = (buffer, conn.and_then(|c| self.conns.get_mut(c))) {
            conn.forget_buffer(buf);
        }
    }

    /// The task set lets others start.
    pub(super) fn leave_task_set(&mut self, key: Key) {
        let Some(task) = self.tasks.get_mut(key) else { return };
        if let Some(unit) = task.unit.take() {
            let set = self.targets[task.target].task_set(unit);
            set.leave(key.to_bits(), &mut self.ready);
        }
    }

    /// Takes the command out of its session: its CmdSN and ITT are free.
    fn remove_task(&mut self, key: Key) -> Option<Task> {
        let task = self.tasks.remove(key)?;
        if let Some(s) = self.sessions.get_mut(task.session) {
            if let Some(at) = s.tasks.iter().position(|t| t.task == key) {
                s.tasks.swap_remove(at);
            }
            if task.immediate {
                s.immediate -= 1;
            } else {
                s.window.end();
            }
            for held in &mut s.held {
                if matches!(held.what, HeldRequest::Command(k) if k == key) {
                    held.what = HeldRequest::Nothing { ended: true };
                }
            }
        }
        Some(task)
    }

    /// Tells those who wait for the end of a command.
    fn task_gone(&mut self, cx: &mut Cx<'_>, key: Key, session: Key) {
        self.task_ended_for_tmfs(cx, key);
        self.check_drained(cx, session);
    }

    pub(super) fn tag(&self, key: Key) -> Tag {
        Tag(u64::from(self.tag_base) << 48 | key.to_bits())
    }
}

const TAG_BITS: u64 = (1 << 48) - 1;

/// Whether the header makes sense. The framing is right, so a rejection is enough.
fn check(command: &ScsiCommand, data_len: u32) -> Result<(), Rejection> {
    let invalid = |why: &str| Err(rejection(RejectReason::InvalidField, why));
    let (last, read, write) =
        (command.flags & flag::FINAL != 0, command.flags & flag::READ != 0, command.flags & flag::WRITE != 0);
    let expected = command.expected_len.get();
    match () {
        // 11.3.1.
        () if !last && !write => invalid("F and W are both 0"),
        () if !read && !write && expected != 0 => invalid("R and W are both 0, but data are expected"),
        () if command.flags & 7 > 4 => invalid("reserved task attribute"),
        () if !write && data_len > 0 => invalid("immediate data of a command with W=0"),
        // 11.3.4.
        () if data_len > expected && write => invalid("more immediate data than expected"),
        () if !last && data_len == expected => invalid("F is 0, but no more data are expected"),
        () => Ok(()),
    }
}

const fn attribute(flags: u8) -> Attribute {
    match flags & 7 {
        0 => Attribute::Untagged,
        2 => Attribute::Ordered,
        3 => Attribute::HeadOfQueue,
        4 => Attribute::Aca,
        _ => Attribute::Simple,
    }
}

/// Reads the additional header segments (11.2.2).
fn extras(mut ahs: &[u8]) -> Result<Extras<'_>, Rejection> {
    let invalid = |why: &str| rejection(RejectReason::InvalidField, why);
    let mut extras = Extras::default();
    while let [len_high, len_low, kind, _, ..] = *ahs {
        // AHSLength counts the AHS-specific byte, but not itself and the type (11.2.2.2).
        let len = usize::from(u16::from_be_bytes([len_high, len_low]));
        let padded = (3 + len).next_multiple_of(4);
        let body = ahs.get(4..3 + len).ok_or_else(|| invalid("AHSLength is 0 or more than TotalAHSLength"))?;
        match kind & 0x3f {
            1 if extras.cdb.is_none() && !body.is_empty() => extras.cdb = Some(body),
            2 if extras.bidi.is_none() && body.len() == 4 => {
                extras.bidi = Some(body.iter().fold(0, |n, &b| n << 8 | u32::from(b)));
            }
            1 | 2 => return Err(invalid("AHS twice or of wrong length")),
            _ => return Err(invalid("unknown AHSType")),
        }
        ahs = ahs.get(padded..).unwrap_or_default();
    }
    Ok(extras)
}

fn copy(cx: &mut Cx<'_>, from: BufId, into: BufId, n: usize) {
    let source = cx.pool.slice(from, 0..n);
    cx.pool.bytes_mut(into)[..n].copy_from_slice(source.bytes());
}
