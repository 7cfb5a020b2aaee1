//! A command between its start and its reply: what it owns, and what it does next.
//!
//! A handler answers with a [`Next`]. When that is not the end it names the [`Work`] to proceed with once the transport or
//! the engine has done its part; `Work` is the whole state of a command of several steps.

use platter_block::{BufId, BufPool, Op, Report, Status};

use super::capacity::LbaStatus;
use super::cdb::Cdb;
use super::command::{Command, DataIn, ScsiStatus};
use super::device::{Device, NexusId};
use super::medium::Eject;
use super::mode_select::{Changes, ModeSelect};
use super::same::Same;
use super::sense::{Code, Fail, Sense};
use super::unit::Unit;
use super::unmap::Unmap;
use super::verify::Verify;

/// A command between its start and its reply, kept by the transport. Either drive it to its reply, or give it to
/// [`Device::abandon`]: it may hold buffers.
#[derive(Debug)]
pub struct Task {
    pub(super) nexus: NexusId,
    pub(super) target: Target,
    pub(super) cdb: Cdb,
    pub(super) out_len: u32,
    pub(super) in_len: u32,
    pub(super) work: Work,
    pub(super) awaits: Awaits,
    pub(super) buffers: [Option<BufId>; 2],
    /// Data has been received.
    pub(super) received: bool,
    pub(super) out_transfer: u64,
    pub(super) in_transfer: u64,
}

/// What the LUN field named.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Target {
    /// A unit, by its index.
    Unit(usize),
    /// The REPORT LUNS well-known logical unit.
    ReportLuns,
    /// LUN 0, where no unit is: still answers INQUIRY and REPORT LUNS.
    EmptyZero,
    /// Nothing.
    Nothing,
}

/// Whose turn it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Awaits {
    /// The command has ended.
    Nothing,
    /// The transport, with data.
    Data,
    /// The engine; `writes` if the op can change the medium.
    Op { writes: bool },
}

/// What follows when the awaited step is done.
#[derive(Debug)]
pub(super) enum Work {
    /// Nothing: GOOD, with this data if any.
    Reply(Option<DataIn>),
    /// This op, then GOOD.
    Submit(Op),
    /// This write, then a verification.
    WriteThenVerify(Op, Verify),
    Verify(Verify),
    Same(Same),
    Unmap(Unmap),
    LbaStatus(LbaStatus),
    ModeSelect(ModeSelect),
    ModeChange(Changes),
    Eject(Eject),
}

/// What a handler wants next.
#[derive(Debug)]
pub(super) enum Next {
    /// The end: a status without sense data, and Data-In if any.
    End(ScsiStatus, Option<DataIn>),
    /// Data from the initiator into a buffer of the task.
    Receive { buf: BufId, len: usize, then: Work },
    /// An op on the volume.
    Submit { op: Op, then: Work },
}

impl Next {
    /// Done, nothing to send.
    pub(super) const GOOD: Self = Self::End(ScsiStatus::GOOD, None);
}

/// What a handler answers.
pub(super) type Outcome = Result<Next, Fail>;

impl Task {
    pub(super) fn new(nexus: NexusId, target: Target, command: Command<'_>) -> Self {
        Self {
            nexus,
            target,
            cdb: Cdb::new(command.cdb),
            out_len: command.out_len,
            in_len: command.in_len,
            work: Work::Reply(None),
            awaits: Awaits::Nothing,
            buffers: [None; 2],
            received: false,
            out_transfer: 0,
            in_transfer: 0,
        }
    }

    /// Frees all buffers but `keep`.
    pub(super) fn free_buffers(&mut self, keep: Option<BufId>, pool: &mut BufPool) {
        for buf in self.buffers.iter_mut().filter_map(Option::take).filter(|&b| Some(b) != keep) {
            pool.free(buf);
        }
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        debug_assert!(
            self.buffers == [None; 2] || std::thread::panicking(),
            "a task with buffers was neither driven to its reply nor abandoned"
        );
    }
}

impl Work {
    /// The awaited step was done well.
    pub(super) fn proceed(self, call: &mut Call<'_>, report: Option<Box<Report>>) -> Outcome {
        match self {
            Self::Reply(data) => Ok(Next::End(ScsiStatus::GOOD, data)),
            Self::Submit(op) => Ok(Next::Submit { op, then: Self::Reply(None) }),
            Self::WriteThenVerify(op, verify) => Ok(Next::Submit { op, then: Self::Verify(verify) }),
            Self::Verify(verify) => verify.proceed(call),
            Self::Same(same) => same.proceed(call),
            Self::Unmap(unmap) => unmap.proceed(call),
            Self::LbaStatus(status) => status.proceed(call, report),
            Self::ModeSelect(select) => select.proceed(call),
            Self::ModeChange(changes) => changes.proceed(call),
            Self::Eject(eject) => eject.proceed(call),
        }
    }

    /// The op did not end well.
    pub(super) fn failed(self, call: &mut Call<'_>, status: Status, wrote: bool) -> Outcome {
        match self {
            Self::LbaStatus(lba_status) if status == Status::Unsupported => lba_status.proceed(call, None),
            Self::ModeChange(changes) => changes.failed(call, status),
            _ => Err(Fail::of(status, wrote)),
        }
    }
}

/// Everything a handler works on.
pub(super) struct Call<'a> {
    pub(super) device: &'a mut Device,
    pub(super) task: &'a mut Task,
    pub(super) pool: &'a mut BufPool,
}

impl Call<'_> {
    pub(super) const fn cdb(&self) -> Cdb {
        self.task.cdb
    }

    /// The unit the command is for. Handlers of commands that reach other targets use [`find_unit`](Self::find_unit).
    pub(super) fn unit(&self) -> &Unit {
        self.find_unit().expect("only commands for a unit get to its handlers")
    }

    pub(super) fn unit_mut(&mut self) -> &mut Unit {
        let index = self.unit_index();
        self.device.unit_mut(index).expect("only commands for a unit get to its handlers")
    }

    pub(super) fn unit_index(&self) -> usize {
        match self.task.target {
            Target::Unit(index) => index,
            target => panic!("{target:?} has no index"),
        }
    }

    pub(super) fn find_unit(&self) -> Option<&Unit> {
        match self.task.target {
            Target::Unit(index) => self.device.unit(index),
            Target::ReportLuns | Target::EmptyZero | Target::Nothing => None,
        }
    }

    /// A buffer that lives as long as the task. At the budget: TASK SET FULL.
    pub(super) fn alloc(&mut self, len: usize) -> Result<BufId, Fail> {
        let slot = self.task.buffers.iter_mut().find(|b| b.is_none()).expect("no command needs more than two buffers");
        let buf = self.pool.alloc(len).ok_or(Fail::Status(ScsiStatus::TASK_SET_FULL))?;
        *slot = Some(buf);
        Ok(buf)
    }

    /// Ends the command with parameter data, cut to ALLOCATION LENGTH (SPC-4 4.2.5.6).
    pub(super) fn reply_with(&mut self, data: &[u8], allocation_length: u32) -> Outcome {
        let len = data.len().min(allocation_length as usize);
        if len == 0 {
            return Ok(Next::GOOD);
        }
        let buf = self.alloc(len)?;
        self.pool.bytes_mut(buf).copy_from_slice(&data[..len]);
        self.task.in_transfer = len as u64;
        Ok(Next::End(ScsiStatus::GOOD, Some(DataIn { buf, at: 0, len })))
    }

    /// Asks for a whole parameter list of `len` bytes; fewer on offer are a PARAMETER LIST LENGTH ERROR.
    pub(super) fn receive_list(&mut self, len: usize, then: impl FnOnce(BufId) -> Work) -> Outcome {
        if (self.task.out_len as usize) < len {
            return Err(Sense::illegal(Code::PARAMETER_LIST_LENGTH_ERROR).into());
        }
        let buf = self.alloc(len)?;
        self.task.out_transfer = len as u64;
        Ok(Next::Receive { buf, len, then: then(buf) })
    }
}
