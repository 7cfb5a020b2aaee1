//! Data from the initiator: unsolicited, and solicited by R2T (11.7, 11.8).
//!
//! A command has one unsolicited burst, which starts with its immediate data and is over with an F bit. Then comes what is
//! missing, in sequences of MaxBurstLength: R2T number `n` asks for the bytes from `from + n * burst`. Sequences are answered
//! in order (11.8), so two counters say which are outstanding, and the current one is the first of them.
//!
//! A Target Transfer Tag is the command's transfer number in the top half and the number of the R2T in the bottom half.
//!
//! Data-Out that is wrong ends the command with a CHECK CONDITION, but not before the F bits of all outstanding sequences
//! have come (11.4.2, 7.8): until then its data are counted and dropped.

use std::fmt;

use platter_block::Instant;

use super::command::{State, Task};
use super::condition::{Condition, Verdict};
use super::connection::{Incoming, Sink, Staged, StatSn};
use super::event::EventKind;
use super::node::{Cx, Node};
use super::pdu::{Bhs, DataOut, NO_TAG, R2t, RejectReason, flag, opcode};
use super::transmit::Segment;
use crate::slab::Key;

/// Where the data of a command stand.
#[derive(Debug)]
pub(super) struct DataOutState {
    /// The W bit.
    pub(super) write: bool,
    /// The command PDU itself is not complete yet.
    pub(super) immediate_open: bool,
    /// The F bit of the unsolicited burst has not come.
    pub(super) unsolicited_open: bool,
    /// Unsolicited bytes, those that are on their way in the PDU in progress included.
    pub(super) taken: u32,
    /// Unsolicited data came in PDUs of their own.
    separate: bool,
    /// DataSN of the next PDU of the current sequence.
    data_sn: u32,
    /// Top half of the Target Transfer Tags, from the first R2T on.
    pub(super) transfer: Option<u16>,
    /// Where the first R2T started.
    from: u32,
    /// R2Ts sent.
    sent: u32,
    /// R2Ts whose F bit has come.
    done: u32,
    /// Bytes of the current sequence.
    sequence_taken: u32,
    /// When the last PDU or R2T went.
    pub(super) since: Instant,
    /// A PDU has been rejected; one is enough.
    rejected: bool,
}

impl DataOutState {
    /// Of a command with `data_len` bytes of immediate data; `last` is its F bit.
    pub(super) const fn new(now: Instant, write: bool, last: bool, data_len: u32) -> Self {
        Self {
            write,
            immediate_open: true,
            unsolicited_open: write && !last,
            taken: data_len,
            separate: false,
            data_sn: 0,
            transfer: None,
            from: 0,
            sent: 0,
            done: 0,
            sequence_taken: 0,
            since: now,
            rejected: false,
        }
    }

    /// No data are expected now.
    pub(super) const fn quiet(&self) -> bool {
        self.first_burst_over() && self.sent == self.done
    }

    /// Bytes of unsolicited data that may still come or are coming, from the start; `most` if the burst is open.
    pub(super) const fn room_needed(&self, most: u32) -> u32 {
        if self.unsolicited_open {
            most
        } else if self.immediate_open {
            self.taken
        } else {
            0
        }
    }

    /// The unsolicited burst is over.
    pub(super) const fn first_burst_over(&self) -> bool {
        !self.immediate_open && !self.unsolicited_open
    }

    /// Sequences whose F bit has not come.
    pub(super) const fn open_sequences(&self) -> u32 {
        self.sent - self.done + self.unsolicited_open as u32
    }
}

impl Node {
    /// The header of a Data-Out.
    pub(super) fn data_out_header(&mut self, cx: &mut Cx<'_>, key: Key, session: Key) {
        let (Some(conn), Some(s)) = (self.conns.get(key), self.sessions.get_mut(session)) else { return };
        let bhs = conn.rx.bhs();
        let (header, len): (DataOut, u32) = (zerocopy::transmute!(bhs), bhs.data_len());
        let itt = header.itt.get();
        let Some(task) = s.find(itt) else {
            if !self.late_data(session, &bhs) {
                self.reject_current(cx, key, RejectReason::InvalidField, format_args!("ITT {itt:#x} is no command"));
            }
            return;
        };
        s.bytes_received += u64::from(len);
        let solicited = header.ttt.get() != NO_TAG;
        let problem = if solicited { self.solicited(task, &header, len) } else { self.unsolicited(task, &header, len) };
        let offset = header.offset.get() as usize;
        match problem {
            Ok(()) => {}
            Err(Problem::Stray(why)) => {
                if !self.late_data(session, &bhs) {
                    self.reject_current(cx, key, RejectReason::InvalidField, why);
                }
                return;
            }
            Err(Problem::Fails { condition, reason, why }) => {
                if let Some(reason) = reason {
                    self.reject_once(cx, key, task, reason, &why);
                }
                self.fail(cx, key, task, condition, why);
            }
        }
        let sink = self.sink_for(task, offset, len as usize);
        if let Some(conn) = self.conns.get_mut(key) {
            conn.sink = sink;
            conn.incoming = Incoming::DataOut { task, last: header.flags & flag::FINAL != 0, solicited };
        }
    }

    /// A Data-Out is complete.
    pub(super) fn data_out_complete(
        &mut self,
        cx: &mut Cx<'_>,
        key: Key,
        task: Key,
        last: bool,
        solicited: bool,
        digest_ok: bool,
    ) {
        if !digest_ok {
            self.reject_current(cx, key, RejectReason::DataDigest, "the data digest is wrong");
            self.fail(cx, key, task, Condition::ProtocolServiceCrc, "the data digest is wrong".to_owned());
        }
        let Some(t) = self.tasks.get_mut(task) else {
            // It was aborted in the middle of this PDU.
            if let Some(conn) = self.conns.get(key)
                && let Some(session) = conn.session()
            {
                let bhs = conn.rx.bhs();
                self.late_data(session, &bhs);
            }
            return;
        };
        t.out.since = cx.now;
        if last {
            let burst = self.sessions.get(t.session).map(|s| (s.params.first_burst, s.params.max_burst));
            let (first_burst, max_burst) = burst.unwrap_or_default();
            let complete = if solicited { t.end_sequence(max_burst) } else { t.end_first_burst(first_burst) };
            if !complete {
                let why =
                    format!("F=1 after {} bytes", if solicited { "fewer" } else { "other than FirstBurstLength" });
                self.fail(cx, key, task, Condition::IncorrectAmount, why);
            }
        }
        self.progress(cx, task);
    }

    /// Sends the R2Ts that may be outstanding for a command that wants `len` bytes. False if it has them.
    pub(super) fn solicit(&mut self, cx: &mut Cx<'_>, key: Key, len: u32) -> bool {
        let Some(task) = self.tasks.get_mut(key) else { return false };
        let Some(session) = self.sessions.get_mut(task.session) else { return false };
        let Some(conn) = session.conn else { return true };
        let burst = session.params.max_burst;
        if task.out.transfer.is_none() {
            task.out.from = task.out.taken.min(len);
        }
        let total = (len - task.out.from).div_ceil(burst);
        if task.out.done == total {
            return false;
        }
        let outstanding = u32::from(session.params.max_outstanding_r2t);
        let transfer = *task.out.transfer.get_or_insert_with(|| {
            let next = session.next_transfer;
            // FFFFh would make FFFFFFFFh possible, which is no tag.
            session.next_transfer = if next == 0xfffe { 0 } else { next + 1 };
            next
        });
        let mut r2ts = task.out.sent..total.min(task.out.done + outstanding);
        task.out.sent = task.out.sent.max(r2ts.end);
        task.out.since = cx.now;
        let (lun, itt, from) = (task.lun, task.itt, task.out.from);
        for n in &mut r2ts {
            let offset = from + n * burst;
            let header = R2t {
                opcode: opcode::R2T,
                flags: flag::FINAL,
                lun,
                itt: itt.into(),
                ttt: target_transfer_tag(transfer, n).into(),
                r2t_sn: n.into(),
                offset: offset.into(),
                desired_len: burst.min(len - offset).into(),
                ..zerocopy::FromZeros::new_zeroed()
            };
            self.send(cx, conn, zerocopy::transmute!(header), Segment::Empty, StatSn::Peek);
        }
        self.schedule(cx.now + self.limits.data_timeout);
        true
    }

    /// Where `len` bytes at `offset` of a command's data go.
    pub(super) fn sink_for(&self, task: Key, offset: usize, len: usize) -> Sink {
        let (buf, room) = match self.tasks.get(task).map(|t| &t.state) {
            Some(State::Gathering { buf, len }) => (*buf, *len),
            Some(State::Parked(parked)) => match parked.staged {
                Some(Staged { buf, len }) => (buf, len),
                None => return Sink::Discard,
            },
            _ => return Sink::Discard,
        };
        if offset >= room { Sink::Discard } else { Sink::Buffer { buf, at: offset, limit: room.min(offset + len) } }
    }

    /// Whether the unsolicited data that a command announces were agreed upon (13.10, 13.11, 13.14).
    pub(super) fn check_unsolicited(&mut self, key: Key, data_len: u32) {
        let Some(task) = self.tasks.get_mut(key) else { return };
        let Some(params) = self.sessions.get(task.session).map(|s| &s.params) else { return };
        let unexpected = (data_len > 0 && !params.immediate_data) || (task.out.unsolicited_open && params.initial_r2t);
        if unexpected {
            task.refuse(Verdict::Condition(Condition::UnexpectedUnsolicitedData));
        } else if data_len > params.first_burst {
            task.refuse(Verdict::Condition(Condition::IncorrectAmount));
        }
    }

    /// The command will end with this condition. What it held is freed.
    fn fail(&mut self, cx: &mut Cx<'_>, conn: Key, key: Key, condition: Condition, why: String) {
        let Some(task) = self.tasks.get_mut(key) else { return };
        let itt = task.itt;
        match &task.state {
            State::Parked(_) => task.refuse(Verdict::Condition(condition)),
            State::Gathering { .. } => {
                self.abandon(cx, key);
                self.answer(cx, key, Verdict::Condition(condition));
            }
            // It has its end already, or will have without regard to its data.
            State::Running | State::Answered(_) | State::Aborting | State::Draining => return,
        }
        self.limited_event(cx.now, conn, || EventKind::DataOutFailed { itt, why });
    }

    fn reject_once(&mut self, cx: &mut Cx<'_>, conn: Key, key: Key, reason: RejectReason, why: impl fmt::Display) {
        let Some(task) = self.tasks.get_mut(key) else { return };
        if !std::mem::replace(&mut task.out.rejected, true) {
            self.reject_current(cx, conn, reason, why);
        }
    }

    /// Checks and counts a PDU that answers an R2T.
    fn solicited(&mut self, key: Key, header: &DataOut, len: u32) -> Result<(), Problem> {
        let Some(task) = self.tasks.get_mut(key) else { return Ok(()) };
        let burst = self.sessions.get(task.session).map_or(0, |s| s.params.max_burst);
        let ttt = header.ttt.get();
        let current = task.out.transfer.map(|t| target_transfer_tag(t, task.out.done));
        if task.out.sent == task.out.done || current != Some(ttt) {
            return Err(Problem::Stray(format!("Target Transfer Tag {ttt:#x} is of no outstanding R2T")));
        }
        if header.lun != task.lun {
            return Err(Problem::Stray(format!("LUN {:02x?} is not that of the R2T", header.lun)));
        }
        let start = task.out.from + task.out.done * burst;
        let next = start.saturating_add(task.out.sequence_taken);
        let end = start.saturating_add(task.sequence_len(burst));
        let result = task.check_order(header, len, next, end);
        task.out.sequence_taken = task.out.sequence_taken.saturating_add(len);
        result
    }

    /// Checks and counts a PDU of the unsolicited burst.
    fn unsolicited(&mut self, key: Key, header: &DataOut, len: u32) -> Result<(), Problem> {
        let Some(task) = self.tasks.get_mut(key) else { return Ok(()) };
        let first_burst = self.sessions.get(task.session).map_or(0, |s| s.params.first_burst);
        if !task.out.unsolicited_open {
            // The burst is over. This one is waited for all the same.
            task.out.unsolicited_open = true;
            return Err(Problem::Fails {
                condition: Condition::UnexpectedUnsolicitedData,
                reason: None,
                why: "unsolicited data after F=1".to_owned(),
            });
        }
        let (next, end) = (task.out.taken, task.out_len.min(first_burst));
        let result = task.check_order(header, len, next, end);
        task.out.taken = task.out.taken.saturating_add(len);
        task.out.separate = true;
        result
    }

    /// Drops late data of a command that has ended. False if none is known that they could be of.
    fn late_data(&mut self, session: Key, bhs: &Bhs) -> bool {
        let Some(s) = self.sessions.get_mut(session) else { return false };
        let ttt = bhs.ttt.get();
        let transfer = (ttt != NO_TAG).then_some((ttt >> 16) as u16);
        let itt = bhs.itt.get();
        let of = |r: &super::sessions::Retired| r.itt == itt && (transfer.is_none() || r.transfer == transfer);
        let Some(at) = s.retired.iter().position(of) else { return false };
        if bhs.flags & flag::FINAL != 0 {
            s.retired[at].sequences = s.retired[at].sequences.saturating_sub(1);
            if s.retired[at].sequences == 0 {
                s.retired.remove(at);
            }
        }
        true
    }
}

/// What is wrong with a Data-Out.
enum Problem {
    /// It belongs to no sequence: rejected, and nothing else (11.17.1, note 2).
    Stray(String),
    /// Its command fails.
    Fails { condition: Condition, reason: Option<RejectReason>, why: String },
}

impl Task {
    /// Order within a sequence (11.7.5, 11.7.6): `next` is the offset expected, `end` the end of the sequence.
    fn check_order(&mut self, header: &DataOut, len: u32, next: u32, end: u32) -> Result<(), Problem> {
        if !matches!(self.state, State::Parked(_) | State::Gathering { .. }) {
            return Ok(());
        }
        let (data_sn, offset) = (header.data_sn.get(), header.offset.get());
        let expected = std::mem::replace(&mut self.out.data_sn, data_sn.wrapping_add(1));
        if data_sn != expected {
            // 7.9: one was lost.
            let why = format!("DataSN {data_sn} instead of {expected}");
            return Err(Problem::Fails { condition: Condition::ProtocolServiceCrc, reason: None, why });
        }
        let reason = if offset < next {
            Some(RejectReason::Protocol)
        } else if offset > next || len > end.saturating_sub(offset) {
            Some(RejectReason::InvalidField)
        } else {
            None
        };
        if reason.is_some() {
            let why = format!("Buffer Offset {offset}, {len} bytes, but {next} to {end} are due");
            return Err(Problem::Fails { condition: Condition::IncorrectAmount, reason, why });
        }
        Ok(())
    }

    /// Length of the current solicited sequence.
    fn sequence_len(&self, burst: u32) -> u32 {
        match self.state {
            State::Gathering { len, .. } => {
                burst.min((len as u32).saturating_sub(self.out.from + self.out.done * burst))
            }
            // The command has failed: nothing of it is looked at any more.
            _ => burst,
        }
    }

    /// The F bit of a solicited sequence. False if bytes are missing.
    fn end_sequence(&mut self, burst: u32) -> bool {
        let complete = self.out.sequence_taken == self.sequence_len(burst);
        self.out.done += 1;
        self.out.sequence_taken = 0;
        self.out.data_sn = 0;
        complete
    }

    /// The F bit of the unsolicited burst. False if it has neither all data nor FirstBurstLength (4.2.5.2).
    fn end_first_burst(&mut self, first_burst: u32) -> bool {
        self.out.unsolicited_open = false;
        self.out.data_sn = 0;
        !self.out.separate || self.out_len <= first_burst || self.out.taken == first_burst
    }
}

const fn target_transfer_tag(transfer: u16, r2t: u32) -> u32 {
    (transfer as u32) << 16 | r2t & 0xffff
}
