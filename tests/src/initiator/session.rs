//! One session: commands in flight, sequence numbers, and what the target says.

use super::login::{LoginOptions, Parameters, login};
use super::pdu::{FINAL, Header, IMMEDIATE, NO_TAG, at_or_before, field, lun_bytes, opcode};
use super::scsi::{Command, Sense, status};
use super::transfer::Task;
use super::wire::{RawPdu, Wire};
use super::{Error, Result, keys, require};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::ops::Range;

/// Task tags of requests other than SCSI commands have this bit; those of commands have not.
const OTHER_TAGS: u32 = 0x8000_0000;
/// Low bits of a command's task tag: its slot. The bits above count the uses of the slot, so that a late PDU is noticed.
const SLOT_BITS: u32 = 16;
/// Unit attentions that [`Session::ready`] takes before it gives up.
const MAX_UNIT_ATTENTIONS: usize = 8;

/// A target that only pings, this many times in a row, while something is waited for, does not answer any more.
const MAX_QUIET_PINGS: u32 = 2;

/// What happens to the data of reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReceivedData {
    /// They are returned in [`End::data`].
    Kept,
    /// They are counted only: for benches.
    Counted,
}

/// What the target says on its own account or as the end of a command.
#[derive(Clone, Debug)]
pub enum Event {
    /// A command ended.
    End(End),
    /// A task management function ended this command: no response will come.
    Aborted {
        /// Its task tag.
        tag: u32,
    },
    /// An Asynchronous Message (11.9).
    Async {
        /// AsyncEvent.
        event: u8,
    },
    /// A Reject PDU (11.17).
    Rejected {
        /// Reason code.
        reason: u8,
        /// The header that was rejected, as far as it was returned.
        header: Vec<u8>,
    },
}

/// The end of a command.
#[derive(Clone, Debug)]
pub struct End {
    /// Its task tag, as [`Session::submit`] returned it.
    pub tag: u32,
    /// SCSI status.
    pub status: u8,
    /// Sense data of CHECK CONDITION.
    pub sense: Option<Sense>,
    /// Residual underflow in bytes.
    pub underflow: u32,
    /// Residual overflow in bytes.
    pub overflow: u32,
    /// Bytes of Data-In.
    pub received: u32,
    /// Those bytes, if they are kept.
    pub data: Vec<u8>,
}

impl End {
    /// Whether the status is GOOD.
    pub fn is_good(&self) -> bool {
        self.status == status::GOOD
    }

    /// Key, ASC and ASCQ of CHECK CONDITION.
    pub fn sense_triple(&self) -> Option<(u8, u8, u8)> {
        self.sense.filter(|_| self.status == status::CHECK_CONDITION).map(|s| s.triple())
    }
}

/// Task management functions (11.5.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TaskFunction {
    /// ABORT TASK of this tag.
    AbortTask(u32),
    /// ABORT TASK SET of a unit.
    AbortTaskSet(u16),
    /// CLEAR TASK SET of a unit.
    ClearTaskSet(u16),
    /// LOGICAL UNIT RESET.
    LunReset(u16),
    /// TARGET WARM RESET.
    TargetWarmReset,
}

/// The connection and what every PDU on it needs.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) wire: Wire,
    pub(super) parameters: Parameters,
    pub(super) exp_stat_sn: u32,
}

/// A session in full feature phase. Dropping it drops the connection; [`logout`](Self::logout) says goodbye.
#[derive(Debug)]
pub struct Session {
    link: Link,
    /// CmdSN of the next command that is not immediate.
    cmd_sn: u32,
    exp_cmd_sn: u32,
    max_cmd_sn: u32,
    slots: Vec<Slot>,
    free: Vec<usize>,
    other_requests: u32,
    /// The answer to a request that is not a SCSI command.
    answer: Option<RawPdu>,
    events: VecDeque<Event>,
    received_data: ReceivedData,
    /// Pings of the target since it last said anything else.
    quiet_pings: u32,
}

#[derive(Debug, Default)]
struct Slot {
    uses: u32,
    task: Option<Task>,
}

impl Session {
    /// Connects and logs in.
    pub fn login(address: SocketAddr, options: &LoginOptions) -> Result<Self> {
        let mut wire = Wire::connect(address, options.timeout)?;
        let parameters = login(&mut wire, options)?;
        let exp_stat_sn = parameters.exp_stat_sn;
        let (exp_cmd_sn, max_cmd_sn) = (parameters.exp_cmd_sn, parameters.max_cmd_sn);
        require(exp_cmd_sn == options.first_cmd_sn, || {
            format!("ExpCmdSN {exp_cmd_sn} after a login with CmdSN {} (4.2.2.1)", options.first_cmd_sn)
        })?;
        Ok(Self {
            link: Link { wire, parameters, exp_stat_sn },
            cmd_sn: options.first_cmd_sn,
            exp_cmd_sn,
            max_cmd_sn,
            slots: Vec::new(),
            free: Vec::new(),
            other_requests: 0,
            answer: None,
            events: VecDeque::new(),
            received_data: ReceivedData::Kept,
            quiet_pings: 0,
        })
    }

    /// What was agreed at login.
    pub fn parameters(&self) -> &Parameters {
        &self.link.parameters
    }

    /// The connection, for what only tests of attacks do to it.
    pub fn wire(&mut self) -> &mut Wire {
        &mut self.link.wire
    }

    /// What happens to the data of reads that are submitted from now on.
    pub fn set_received_data(&mut self, received_data: ReceivedData) {
        self.received_data = received_data;
    }

    /// Commands that have not ended.
    pub fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// CmdSN that the next command will carry.
    pub fn next_cmd_sn(&self) -> u32 {
        self.cmd_sn
    }

    /// ExpStatSN: the status that is awaited next.
    pub fn exp_stat_sn(&self) -> u32 {
        self.link.exp_stat_sn
    }

    /// Queues a command and returns its task tag. Waits only if the target's command window is closed. What is queued
    /// leaves with [`flush`](Self::flush) or when an event is waited for.
    pub fn submit(&mut self, command: &Command) -> Result<u32> {
        while !command.immediate && !at_or_before(self.cmd_sn, self.max_cmd_sn) {
            self.advance()?;
        }
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() - 1
        });
        let slot = &mut self.slots[index];
        slot.uses = slot.uses.wrapping_add(1) & ((OTHER_TAGS >> SLOT_BITS) - 1);
        let tag = slot.uses << SLOT_BITS | u32::try_from(index).expect("slots fit into 16 bits");
        let header = command_header(command, tag, self.cmd_sn, self.link.exp_stat_sn);
        let keep = self.received_data == ReceivedData::Kept;
        let mut task = Task::new(command, header.lun(), self.cmd_sn, keep);
        if !command.immediate {
            self.cmd_sn = self.cmd_sn.wrapping_add(1);
        }
        task.queue_command(header, &mut self.link);
        self.slots[index].task = Some(task);
        Ok(tag)
    }

    /// Sends everything that is queued.
    pub fn flush(&mut self) -> Result<()> {
        self.link.wire.flush()
    }

    /// The next event, waiting for it.
    pub fn next_event(&mut self) -> Result<Event> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Ok(event);
            }
            self.advance()?;
        }
    }

    /// The next event among what has already been read.
    pub fn poll_event(&mut self) -> Result<Option<Event>> {
        while self.events.is_empty() {
            let Some((header, data)) = self.link.wire.parse()? else { return Ok(None) };
            self.handle(header, data)?;
        }
        Ok(self.events.pop_front())
    }

    /// The next end of a command; other events are errors.
    pub fn next_end(&mut self) -> Result<End> {
        match self.next_event()? {
            Event::End(end) => Ok(end),
            Event::Rejected { reason, .. } => Err(Error::Rejected { reason }),
            other => Err(Error::Violation(format!("{other:?} where the end of a command was due"))),
        }
    }

    /// Runs one command to its end. Events of others stay queued.
    pub fn execute(&mut self, command: &Command) -> Result<End> {
        let tag = self.submit(command)?;
        let mut from = 0;
        loop {
            while from < self.events.len() {
                match &self.events[from] {
                    Event::End(end) if end.tag == tag => {
                        let Some(Event::End(end)) = self.events.remove(from) else { unreachable!("just seen") };
                        return Ok(end);
                    }
                    Event::Rejected { reason, .. } => {
                        let reason = *reason;
                        self.events.remove(from);
                        return Err(Error::Rejected { reason });
                    }
                    _ => from += 1,
                }
            }
            self.advance()?;
        }
    }

    /// Takes the unit attentions of a unit, so that the next command is carried out.
    pub fn ready(&mut self, lun: u16) -> Result<()> {
        for _ in 0..MAX_UNIT_ATTENTIONS {
            let end = self.execute(&Command::test_unit_ready(lun))?;
            match end.sense_triple() {
                None if end.is_good() => return Ok(()),
                Some((super::scsi::key::UNIT_ATTENTION, ..)) => {}
                _ => return Err(Error::Violation(format!("LUN {lun} is not ready: {end:?}"))),
            }
        }
        Err(Error::Violation(format!("LUN {lun} reports more than {MAX_UNIT_ATTENTIONS} unit attentions")))
    }

    /// Sends a ping (11.18) and waits for its echo.
    pub fn ping(&mut self, data: &[u8]) -> Result<()> {
        let header = Header::new(opcode::NOP_OUT | IMMEDIATE, FINAL).with(field::TRANSFER_TAG, NO_TAG);
        let answer = self.request(header, data)?;
        let limit = data.len().min(self.link.parameters.max_send_segment as usize);
        require(answer.data == data[..limit], || "a ping's echo differs from it (11.19)".into())
    }

    /// Sends a task management request, immediate, and waits for its response. Commands that it ended are reported as
    /// [`Event::Aborted`]. Returns the response code: 0 is function complete.
    pub fn manage(&mut self, function: TaskFunction) -> Result<u8> {
        let none = NO_TAG;
        let (code, lun, referenced) = match function {
            TaskFunction::AbortTask(tag) => (1, None, tag),
            TaskFunction::AbortTaskSet(lun) => (2, Some(lun), none),
            TaskFunction::ClearTaskSet(lun) => (4, Some(lun), none),
            TaskFunction::LunReset(lun) => (5, Some(lun), none),
            TaskFunction::TargetWarmReset => (6, None, none),
        };
        let mut header =
            Header::new(opcode::TASK_MANAGEMENT | IMMEDIATE, FINAL | code).with(field::REFERENCED_TAG, referenced);
        if let Some(lun) = lun {
            header.set_lun(lun_bytes(lun));
        }
        if let Some(task) = self.task(referenced) {
            let (lun, cmd_sn) = (task.lun, task.cmd_sn);
            header.set_lun(lun);
            header.set(field::REF_CMD_SN, cmd_sn);
        }
        let response = self.request(header, &[])?.header.0[2];
        if response == 0 {
            let ended = |tag: u32, task: &Task| match function {
                TaskFunction::AbortTask(aborted) => tag == aborted,
                TaskFunction::TargetWarmReset => true,
                _ => task.lun == header.lun(),
            };
            for index in 0..self.slots.len() {
                let tag = self.slots[index].uses << SLOT_BITS | index as u32;
                if self.slots[index].task.as_ref().is_some_and(|task| ended(tag, task)) {
                    self.take(tag);
                    self.events.push_back(Event::Aborted { tag });
                }
            }
        }
        Ok(response)
    }

    /// SendTargets (Appendix C): every pair of the answer.
    pub fn send_targets(&mut self, which: &str) -> Result<keys::Pairs> {
        let mut text = keys::encode([("SendTargets", which)]);
        let mut all = Vec::new();
        let mut transfer_tag = NO_TAG;
        let tag = self.next_other_tag();
        loop {
            let header = Header::new(opcode::TEXT | IMMEDIATE, FINAL)
                .with(field::TASK_TAG, tag)
                .with(field::TRANSFER_TAG, transfer_tag);
            let answer = self.request_tagged(header, &text)?;
            all.extend_from_slice(&answer.data);
            if answer.header.is_final() {
                return keys::decode(&all);
            }
            text.clear();
            transfer_tag = answer.header.get(field::TRANSFER_TAG);
            require(transfer_tag != NO_TAG, || {
                "a Text Response goes on without a Target Transfer Tag (11.11.4)".into()
            })?;
        }
    }

    /// Closes the session (11.14, reason 0) and waits for the response.
    pub fn logout(mut self) -> Result<()> {
        let response = self.request(Header::new(opcode::LOGOUT | IMMEDIATE, FINAL), &[])?.header.0[2];
        require(response == 0, || format!("response {response} to a logout (11.15.1)"))
    }

    /// Sends a request that is no SCSI command, and waits for its answer.
    fn request(&mut self, header: Header, data: &[u8]) -> Result<RawPdu> {
        let tag = self.next_other_tag();
        self.request_tagged(header.with(field::TASK_TAG, tag), data)
    }

    fn request_tagged(&mut self, header: Header, data: &[u8]) -> Result<RawPdu> {
        let header = header.with(field::CMD_SN, self.cmd_sn).with(field::EXP_STAT_SN, self.link.exp_stat_sn);
        self.link.wire.queue(header, data);
        loop {
            if let Some(answer) = self.answer.take() {
                require(answer.header.tag() == header.tag(), || "the answer's Initiator Task Tag (11.2.1.8)".into())?;
                let wanted = match header.opcode() {
                    opcode::NOP_OUT => opcode::NOP_IN,
                    request => request | 0x20,
                };
                require(answer.header.opcode() == wanted, || {
                    format!("opcode {:02x}h in answer to {:02x}h (11.2.1.2)", answer.header.opcode(), header.opcode())
                })?;
                return Ok(answer);
            }
            if let Some(&Event::Rejected { reason, .. }) = self.events.back() {
                self.events.pop_back();
                return Err(Error::Rejected { reason });
            }
            self.advance()?;
        }
    }

    fn next_other_tag(&mut self) -> u32 {
        self.other_requests = self.other_requests.wrapping_add(1) & 0xffff;
        OTHER_TAGS | self.other_requests
    }

    /// Takes one PDU from the target, waiting for it.
    fn advance(&mut self) -> Result<()> {
        let (header, data) = self.link.wire.next_pdu()?;
        self.handle(header, data)?;
        if self.quiet_pings < MAX_QUIET_PINGS { Ok(()) } else { Err(Error::TimedOut) }
    }

    fn handle(&mut self, header: Header, data: Range<usize>) -> Result<()> {
        let tag = header.tag();
        self.check_numbers(&header)?;
        self.quiet_pings = if header.opcode() == opcode::NOP_IN && tag == NO_TAG { self.quiet_pings + 1 } else { 0 };
        match header.opcode() {
            opcode::DATA_IN => {
                let Some(task) = find(&mut self.slots, tag) else { return Err(unknown(&header)) };
                let data = self.link.wire.bytes(data);
                if task.on_data_in(&header, data, &self.link.parameters)? {
                    let ok = header.0[3] != status::CHECK_CONDITION;
                    require(ok, || "CHECK CONDITION in a Data-In (11.7.3)".into())?;
                    self.end(&header, None)?;
                }
                Ok(())
            }
            opcode::R2T => {
                let Some(task) = find(&mut self.slots, tag) else { return Err(unknown(&header)) };
                task.on_r2t(&header, &mut self.link)
            }
            opcode::RESPONSE => {
                let sense = sense(&header, self.link.wire.bytes(data))?;
                self.end(&header, sense)
            }
            opcode::NOP_IN if tag == NO_TAG => {
                let transfer_tag = header.get(field::TRANSFER_TAG);
                if transfer_tag != NO_TAG {
                    let mut pong = Header::new(opcode::NOP_OUT | IMMEDIATE, FINAL)
                        .with(field::TASK_TAG, NO_TAG)
                        .with(field::TRANSFER_TAG, transfer_tag)
                        .with(field::CMD_SN, self.cmd_sn)
                        .with(field::EXP_STAT_SN, self.link.exp_stat_sn);
                    pong.set_lun(header.lun());
                    self.link.wire.queue(pong, &[]);
                    self.link.wire.flush_some()?;
                }
                Ok(())
            }
            opcode::NOP_IN | opcode::TASK_MANAGEMENT_RESPONSE | opcode::TEXT_RESPONSE | opcode::LOGOUT_RESPONSE => {
                require(tag & OTHER_TAGS != 0 && self.answer.is_none(), || {
                    format!("an answer, opcode {:02x}h, that nobody asked for", header.opcode())
                })?;
                self.answer = Some(RawPdu { header, data: self.link.wire.bytes(data).to_vec() });
                Ok(())
            }
            opcode::ASYNC => {
                self.events.push_back(Event::Async { event: header.0[36] });
                Ok(())
            }
            opcode::REJECT => {
                let rejected = self.link.wire.bytes(data).to_vec();
                self.events.push_back(Event::Rejected { reason: header.0[2], header: rejected });
                Ok(())
            }
            other => Err(Error::Violation(format!("opcode {other:02x}h from a target (11.2.1.2)"))),
        }
    }

    /// StatSN (4.2.2.2) and the command window (4.2.2.1).
    fn check_numbers(&mut self, header: &Header) -> Result<()> {
        let carries_status = match header.opcode() {
            opcode::DATA_IN => header.flags() & 0x01 != 0,
            opcode::R2T => false,
            opcode::NOP_IN => header.tag() != NO_TAG,
            _ => true,
        };
        let stat_sn = header.get(field::STAT_SN);
        let expected = self.link.exp_stat_sn;
        if carries_status || header.opcode() != opcode::DATA_IN {
            require(stat_sn == expected, || {
                format!("StatSN {stat_sn} of opcode {:02x}h where {expected} was due (4.2.2.2)", header.opcode())
            })?;
        }
        if carries_status {
            self.link.exp_stat_sn = expected.wrapping_add(1);
        }
        let (exp, max) = (header.get(field::EXP_CMD_SN), header.get(field::MAX_CMD_SN));
        require(at_or_before(exp, self.cmd_sn), || {
            format!("ExpCmdSN {exp}, but the next CmdSN is {} (4.2.2.1)", self.cmd_sn)
        })?;
        require(at_or_before(exp.wrapping_sub(1), max), || format!("MaxCmdSN {max} < ExpCmdSN {exp} - 1 (4.2.2.1)"))?;
        if at_or_before(self.exp_cmd_sn, exp) {
            self.exp_cmd_sn = exp;
        }
        if at_or_before(self.max_cmd_sn, max) {
            self.max_cmd_sn = max;
        }
        Ok(())
    }

    fn end(&mut self, header: &Header, sense: Option<Sense>) -> Result<()> {
        let tag = header.tag();
        let Some(task) = self.take(tag) else { return Err(unknown(header)) };
        let status = header.0[3];
        if header.opcode() == opcode::RESPONSE {
            require(header.0[2] == 0, || format!("response code {:02x}h: target failure (11.4.3)", header.0[2]))?;
        }
        let (underflow, overflow) = task.on_end(header, status == status::GOOD)?;
        let (received, data) = (task.received, task.data);
        self.events.push_back(Event::End(End { tag, status, sense, underflow, overflow, received, data }));
        Ok(())
    }

    fn task(&mut self, tag: u32) -> Option<&mut Task> {
        find(&mut self.slots, tag)
    }

    fn take(&mut self, tag: u32) -> Option<Task> {
        find(&mut self.slots, tag)?;
        let index = (tag & ((1 << SLOT_BITS) - 1)) as usize;
        self.free.push(index);
        self.slots[index].task.take()
    }
}

fn find(slots: &mut [Slot], tag: u32) -> Option<&mut Task> {
    let slot = slots.get_mut((tag & ((1 << SLOT_BITS) - 1)) as usize)?;
    if slot.uses == tag >> SLOT_BITS { slot.task.as_mut() } else { None }
}

fn unknown(header: &Header) -> Error {
    let (opcode, tag) = (header.opcode(), header.tag());
    Error::Violation(format!("opcode {opcode:02x}h for task {tag:08x}h, which is not in flight (11.2.1.8)"))
}

fn command_header(command: &Command, tag: u32, cmd_sn: u32, exp_stat_sn: u32) -> Header {
    let direction = match command.transfer {
        super::Transfer::None => 0,
        super::Transfer::In(_) => 0x40,
        super::Transfer::Out(_) => 0x20,
    };
    let immediate = if command.immediate { IMMEDIATE } else { 0 };
    let mut header = Header::new(opcode::COMMAND | immediate, FINAL | direction | command.attribute)
        .with(field::TASK_TAG, tag)
        .with(field::EXPECTED_LENGTH, command.transfer.len())
        .with(field::CMD_SN, cmd_sn)
        .with(field::EXP_STAT_SN, exp_stat_sn);
    header.set_lun(lun_bytes(command.lun));
    header.0[32..48].copy_from_slice(&command.cdb);
    header
}

/// The sense data of a SCSI Response (11.4.7).
fn sense(header: &Header, data: &[u8]) -> Result<Option<Sense>> {
    let sense = match data.first_chunk::<2>() {
        Some(len) => {
            let len = usize::from(u16::from_be_bytes(*len));
            require(len + 2 <= data.len(), || format!("SenseLength {len} in {} bytes (11.4.7.1)", data.len()))?;
            Sense::parse(&data[2..2 + len])
        }
        None => None,
    };
    require(header.0[3] != status::CHECK_CONDITION || sense.is_some(), || {
        "CHECK CONDITION without sense data (11.4.7)".into()
    })?;
    Ok(sense)
}
