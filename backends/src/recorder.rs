//! What the disks were asked, counted and, if wanted, remembered in order.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use platter_block::{DiskId, DiskOp, IoId, IoSlice, Status};

use crate::{Backend, Ended, FileBackend, OpenDisk};

/// A backend that writes down what passes through it and changes nothing.
///
/// What it knows is read through [`Recording`], from any thread.
#[derive(Debug)]
pub struct Recorder<B> {
    inner: B,
    recording: Recording,
    /// The ops in flight. Looked up, never iterated.
    sent: HashMap<IoId, (DiskId, Kind)>,
    /// What the inner backend ended in this turn.
    fresh: Vec<Ended>,
}

/// The shared view of a [`Recorder`]. Clones see the same.
#[derive(Clone, Debug, Default)]
pub struct Recording(Arc<Mutex<State>>);

/// The kinds of op that are told apart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Kind {
    /// `Read`.
    Read,
    /// `Write` without FUA.
    Write,
    /// `Write` with FUA.
    FuaWrite,
    /// `Flush`.
    Flush,
    /// `WriteZeroes`.
    WriteZeroes,
    /// `Unmap`.
    Unmap,
    /// `BlockStatus`.
    BlockStatus,
}

/// What one disk was asked since the recorder was made, counted when submitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Reads.
    pub reads: u64,
    /// Writes without FUA.
    pub writes: u64,
    /// Writes with FUA.
    pub fua_writes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Write zeroes.
    pub write_zeroes: u64,
    /// Unmaps.
    pub unmaps: u64,
    /// Block status queries.
    pub block_status: u64,
    /// Blocks asked to be read.
    pub blocks_read: u64,
    /// Blocks asked to be written with data, with and without FUA.
    pub blocks_written: u64,
    /// Ops of any kind that ended with another status than `Good`.
    pub failed: u64,
    /// Flushes among them.
    pub failed_flushes: u64,
}

/// One line of the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// An op was submitted.
    Sent {
        /** Its id. */
        io: IoId,
        /** The disk. */
        disk: DiskId,
        /** The op. */
        op: DiskOp,
    },
    /// An op ended.
    Ended {
        /** Its id. */
        io: IoId,
        /** The disk. */
        disk: DiskId,
        /** How it ended. */
        status: Status,
    },
}

#[derive(Debug, Default)]
struct State {
    disks: BTreeMap<DiskId, Counts>,
    log: VecDeque<Step>,
    /// Most steps in `log`; 0 keeps none.
    log_limit: usize,
    log_dropped: u64,
}

impl<B: Backend> Recorder<B> {
    /// Record `inner` into `recording`; several recorders may share one, if their disks have distinct ids.
    pub fn new(inner: B, recording: Recording) -> Self {
        Self { inner, recording, sent: HashMap::new(), fresh: Vec::new() }
    }

    /// The backend below.
    pub const fn inner(&self) -> &B {
        &self.inner
    }

    /// The backend below, to add or remove disks.
    pub const fn inner_mut(&mut self) -> &mut B {
        &mut self.inner
    }

    /// A view of what is recorded.
    pub fn recording(&self) -> Recording {
        self.recording.clone()
    }
}

impl Recording {
    /// Counters of `disk`; zeroes if it was never asked anything.
    pub fn counts(&self, disk: DiskId) -> Counts {
        self.lock().disks.get(&disk).copied().unwrap_or_default()
    }

    /// Remember the last `limit` steps from now on; the oldest ones are dropped, and counted, beyond that. 0: none.
    pub fn keep_log(&self, limit: usize) {
        let mut state = self.lock();
        state.log_limit = limit;
        while state.log.len() > limit {
            state.log.pop_front();
            state.log_dropped += 1;
        }
    }

    /// The steps remembered, oldest first.
    pub fn log(&self) -> Vec<Step> {
        self.lock().log.iter().cloned().collect()
    }

    /// Takes the steps remembered, oldest first, and forgets them.
    pub fn take_log(&self) -> Vec<Step> {
        std::mem::take(&mut self.lock().log).into()
    }

    /// Steps that the limit pushed out of the log.
    pub fn log_dropped(&self) -> u64 {
        self.lock().log_dropped
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kind {
    /// The kind of `op`.
    pub const fn of(op: &DiskOp) -> Self {
        match op {
            DiskOp::Read { .. } => Self::Read,
            DiskOp::Write { fua: false, .. } => Self::Write,
            DiskOp::Write { fua: true, .. } => Self::FuaWrite,
            DiskOp::Flush => Self::Flush,
            DiskOp::WriteZeroes { .. } => Self::WriteZeroes,
            DiskOp::Unmap { .. } => Self::Unmap,
            DiskOp::BlockStatus { .. } => Self::BlockStatus,
        }
    }
}

impl<B: Backend> Backend for Recorder<B> {
    fn submit(&mut self, io: IoId, disk: DiskId, op: DiskOp, data: Option<IoSlice>) {
        let before = self.sent.insert(io, (disk, Kind::of(&op)));
        assert!(before.is_none(), "{io:?} is in flight already");
        self.recording.lock().sent(io, disk, op);
        self.inner.submit(io, disk, op, data);
    }

    fn kick(&mut self) {
        self.inner.kick();
    }

    fn reap(&mut self, ended: &mut Vec<Ended>) {
        self.inner.reap(&mut self.fresh);
        if self.fresh.is_empty() {
            return;
        }
        let mut state = self.recording.lock();
        for end in &self.fresh {
            let (disk, kind) = self.sent.remove(&end.io).expect("the backend ends only what was submitted, and once");
            state.ended(end, disk, kind);
        }
        drop(state);
        ended.append(&mut self.fresh);
    }

    fn event_fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.event_fd()
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight()
    }
}

impl<B: FileBackend> FileBackend for Recorder<B> {
    fn add(&mut self, disk: DiskId, opened: OpenDisk) -> io::Result<()> {
        self.inner.add(disk, opened)
    }

    fn remove(&mut self, disk: DiskId) -> bool {
        self.inner.remove(disk)
    }

    fn name(&self) -> &'static str {
        self.inner.name()
    }
}

impl State {
    fn sent(&mut self, io: IoId, disk: DiskId, op: DiskOp) {
        let counts = self.disks.entry(disk).or_default();
        match op {
            DiskOp::Read { count, .. } => {
                counts.reads += 1;
                counts.blocks_read += u64::from(count.0);
            }
            DiskOp::Write { count, fua, .. } => {
                *(if fua { &mut counts.fua_writes } else { &mut counts.writes }) += 1;
                counts.blocks_written += u64::from(count.0);
            }
            DiskOp::Flush => counts.flushes += 1,
            DiskOp::WriteZeroes { .. } => counts.write_zeroes += 1,
            DiskOp::Unmap { .. } => counts.unmaps += 1,
            DiskOp::BlockStatus { .. } => counts.block_status += 1,
        }
        self.note(Step::Sent { io, disk, op });
    }

    fn ended(&mut self, end: &Ended, disk: DiskId, kind: Kind) {
        if !end.status.is_good() {
            let counts = self.disks.entry(disk).or_default();
            counts.failed += 1;
            counts.failed_flushes += u64::from(kind == Kind::Flush);
        }
        self.note(Step::Ended { io: end.io, disk, status: end.status });
    }

    fn note(&mut self, step: Step) {
        if self.log_limit == 0 {
            return;
        }
        if self.log.len() == self.log_limit {
            self.log.pop_front();
            self.log_dropped += 1;
        }
        self.log.push_back(step);
    }
}
