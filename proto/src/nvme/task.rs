//! A command between its capsule and its reply: what it owns, what it waits for, and what it does next.
//!
//! A handler answers with a [`Next`] or a [`Stop`]. When that is not the end, [`Work`] says how to go on once what the task
//! [awaits](Awaits) is there; it is the whole state of a command of several steps.

use platter_block::{BufId, BufPool, Op, VolumeId};

use super::compare::{Compare, Verify};
use super::connect::ConnectRequest;
use super::copy::Copy;
use super::dsm::Deallocate;
use super::sqe::Sqe;
use super::status::Status;
use super::target::{ReplyData, Transfer};
use super::walk::Walk;
use crate::slab::Key;

/// A command in progress. It may hold buffers, so it ends only by `end` or `drop_task` of `drive.rs`.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) queue: Key,
    pub(super) controller: Option<Key>,
    pub(super) sqe: Sqe,
    pub(super) transfer: Result<Transfer, Status>,
    pub(super) work: Work,
    pub(super) awaits: Awaits,
    pub(super) buffers: [Option<BufId>; 2],
    /// Ends with this as soon as it may, unless what it awaits turns out to be the successful end.
    pub(super) abort: Option<Status>,
    /// The Abort command that waits for the end of this one.
    pub(super) aborter: Option<Key>,
    /// The other command of a fused operation.
    pub(super) partner: Option<Key>,
    /// Its queue is gone or going: nobody is told of its end.
    pub(super) silent: bool,
}

/// Whose turn it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Awaits {
    /// Nobody's.
    Nothing,
    /// The transport, with data.
    Data,
    /// The engine; `writes` if the op can change the medium.
    Op { writes: bool },
    /// Payload memory.
    Memory,
    /// Something that happens to the controller: an Asynchronous Event Request.
    Event,
    /// The end of another command: Abort.
    End,
    /// The other command of a fused operation.
    Partner,
    /// The last op of an earlier controller of the same host: Connect.
    Quiet,
    /// The target that has the subsystem: Connect.
    Elsewhere,
}

/// What follows when the awaited step is done.
#[derive(Debug)]
pub(super) enum Work {
    /// The command, from its beginning.
    Begin,
    /// Nothing more: success, with this data if any.
    Succeed(Option<ReplyData>),
    /// This op, then success.
    Submit(VolumeId, Op),
    Compare(Compare),
    Verify(Verify),
    Copy(Copy),
    Deallocate(Deallocate),
    /// Several volumes, one after the other.
    Walk(Walk),
    /// The data of Set Features.
    SetFeature,
    /// The data of Connect.
    ConnectData,
    /// Connect, as soon as it may.
    Connect(Box<ConnectRequest>),
    /// One half of a fused operation, whose data have been asked for.
    Fused,
    /// The first half, whose op has been submitted.
    FusedDone,
}

/// What a handler wants next.
#[derive(Debug)]
pub(super) enum Next {
    /// The end: success, with Dwords 0 and 1 of the completion queue entry, and data if any.
    Done { result: u64, data: Option<ReplyData> },
    /// Data from the host into a buffer, of this task or of its partner.
    Receive { buf: BufId, at: usize, len: usize, then: Work },
    /// An op on a volume.
    Submit { volume: VolumeId, op: Op, then: Work },
    /// Somebody else goes on with it.
    Wait(Awaits, Work),
    /// All has been arranged, perhaps up to the end of the command.
    Stay,
}

impl Next {
    /// Success, and nothing to say.
    pub(super) const SUCCESS: Self = Self::Done { result: 0, data: None };
}

/// Why a handler does not go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stop {
    /// The command ends so.
    Failed(Status),
    /// The same, with Dwords 0 and 1.
    FailedWith(Status, u64),
    /// There is no payload memory. Only [`Work::Begin`] may say so: it is begun again when there is some.
    NoMemory,
}

impl From<Status> for Stop {
    fn from(status: Status) -> Self {
        Self::Failed(status)
    }
}

/// What a handler answers.
pub(super) type Outcome = Result<Next, Stop>;

/// A pool as a task sees it that may have to wait behind others.
pub(super) struct Memory<'a> {
    pub(super) pool: &'a mut BufPool,
    /// Others wait already, and go first.
    pub(super) taken: bool,
}

impl Task {
    pub(super) fn new(queue: Key, controller: Option<Key>, sqe: Sqe, transfer: Result<Transfer, Status>) -> Self {
        Self {
            queue,
            controller,
            sqe,
            transfer,
            work: Work::Begin,
            awaits: Awaits::Nothing,
            buffers: [None; 2],
            abort: None,
            aborter: None,
            partner: None,
            silent: false,
        }
    }

    /// Whether an op of it is in the engine.
    pub(super) const fn has_op(&self) -> bool {
        matches!(self.awaits, Awaits::Op { .. })
    }

    /// A buffer that lives as long as the task.
    pub(super) fn alloc(&mut self, len: usize, memory: &mut Memory<'_>) -> Result<BufId, Stop> {
        let slot = self.buffers.iter_mut().find(|b| b.is_none()).expect("no command needs more than two buffers");
        if memory.taken {
            return Err(Stop::NoMemory);
        }
        let buf = memory.pool.alloc(len).ok_or(Stop::NoMemory)?;
        *slot = Some(buf);
        Ok(buf)
    }

    /// Frees all buffers but `keep`.
    pub(super) fn free_buffers(&mut self, keep: Option<BufId>, pool: &mut BufPool) {
        for buf in self.buffers.iter_mut().filter_map(Option::take).filter(|&b| Some(b) != keep) {
            pool.free(buf);
        }
    }

    /// The length that the host gives for its data, which has to be `len`, and for data to the host a place outside of the
    /// capsule.
    pub(super) fn expect_len(&self, len: u64, direction: Direction) -> Result<(), Status> {
        let transfer = self.transfer?;
        if direction == Direction::ToHost && transfer.in_capsule {
            return Err(Status::SGL_TYPE_INVALID);
        }
        if u64::from(transfer.len) != len { Err(Status::SGL_LENGTH_INVALID) } else { Ok(()) }
    }

    /// As [`expect_len`](Self::expect_len) for lists of a few entries, for which hosts give the room of the largest list:
    /// any length from `len` to `max`. Returns what is to be received.
    pub(super) fn expect_list(&self, len: usize, max: usize) -> Result<usize, Status> {
        let given = self.transfer?.len as usize;
        if (len..=max).contains(&given) { Ok(given) } else { Err(Status::SGL_LENGTH_INVALID) }
    }

    /// Ends the command with `data` for the host: zeroes follow what there is of it.
    pub(super) fn reply_with(&mut self, data: &[u8], len: usize, memory: &mut Memory<'_>) -> Outcome {
        self.expect_len(len as u64, Direction::ToHost)?;
        let buf = self.alloc(len, memory)?;
        let bytes = memory.pool.bytes_mut(buf);
        let some = data.len().min(len);
        bytes[..some].copy_from_slice(&data[..some]);
        bytes[some..].fill(0);
        Ok(Next::Done { result: 0, data: Some(ReplyData { buf, at: 0, len }) })
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        debug_assert!(
            self.buffers == [None; 2] || std::thread::panicking(),
            "a command with buffers was neither answered nor dropped"
        );
    }
}

/// Which way the data of a command go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Direction {
    None,
    FromHost,
    ToHost,
}
