//! Faults on purpose, for tests: ops that fail, and ops that wait.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use platter_block::{BlockRange, DiskId, DiskOp, IoId, IoSlice, Lba, Status};

use crate::wake::{self, event_fd};
use crate::{Backend, Ended, FileBackend, Kind, OpenDisk};

/// A backend whose ops fail or wait as its [`Faults`] say. An op that fails never reaches the backend below: the medium is
/// as before. An op that waits has not reached it yet.
#[derive(Debug)]
pub struct Faulty<B> {
    inner: B,
    faults: Faults,
    /// Ended here and not yet reaped.
    ended: Vec<Ended>,
    /// The event descriptor when `inner` has none.
    own_event: Option<OwnedFd>,
}

/// The handle on a [`Faulty`]: what shall fail or wait. Clones control the same; may be used from any thread.
#[derive(Clone, Debug)]
pub struct Faults {
    state: Arc<Mutex<State>>,
    /// Wakes the owner of the backend.
    event: Arc<OwnedFd>,
}

#[derive(Debug, Default)]
struct State {
    countdowns: Vec<Countdown>,
    bad: Vec<BadBlock>,
    gates: BTreeSet<(DiskId, Kind)>,
    /// In the order of submission.
    held: Vec<Held>,
    /// Let through, to be sent down at the next `reap` or `kick`.
    released: Vec<Held>,
}

#[derive(Debug)]
struct Countdown {
    disk: DiskId,
    kind: Kind,
    /// 1: the next one.
    left: u32,
    status: Status,
}

#[derive(Debug)]
struct BadBlock {
    disk: DiskId,
    lba: Lba,
    writes: bool,
}

#[derive(Debug)]
struct Held {
    io: IoId,
    disk: DiskId,
    op: DiskOp,
    data: Option<IoSlice>,
}

impl<B: Backend> Faulty<B> {
    /// A backend that behaves like `inner` until told otherwise.
    ///
    /// # Errors
    ///
    /// When the process is out of file descriptors.
    pub fn new(inner: B) -> io::Result<Self> {
        let (own_event, event) = match inner.event_fd() {
            Some(fd) => (None, fd.try_clone_to_owned()?),
            None => {
                let own = event_fd()?;
                let clone = own.try_clone()?;
                (Some(own), clone)
            }
        };
        let faults = Faults { state: Arc::default(), event: Arc::new(event) };
        Ok(Self { inner, faults, ended: Vec::new(), own_event })
    }

    /// The handle that makes things fail.
    pub fn faults(&self) -> Faults {
        self.faults.clone()
    }

    /// The backend below.
    pub const fn inner(&self) -> &B {
        &self.inner
    }

    /// The backend below, to add or remove disks.
    pub const fn inner_mut(&mut self) -> &mut B {
        &mut self.inner
    }

    fn send_released(&mut self) {
        let released = std::mem::take(&mut self.faults.lock().released);
        for held in released {
            self.inner.submit(held.io, held.disk, held.op, held.data);
        }
    }
}

impl Faults {
    /// The `nth` op of `kind` on `disk` from now on (1: the next) ends with `status`, once.
    ///
    /// # Panics
    ///
    /// If `nth` is 0.
    pub fn fail_nth(&self, disk: DiskId, kind: Kind, nth: u32, status: Status) {
        assert!(nth > 0, "ops are counted from 1");
        self.lock().countdowns.push(Countdown { disk, kind, left: nth, status });
    }

    /// Reads of `lba` end `MediumError { lba }` from now on.
    pub fn fail_reads_at(&self, disk: DiskId, lba: Lba) {
        self.lock().bad.push(BadBlock { disk, lba, writes: false });
    }

    /// Writes, write zeroes and unmaps of `lba` end `MediumError { lba }` from now on.
    pub fn fail_writes_at(&self, disk: DiskId, lba: Lba) {
        self.lock().bad.push(BadBlock { disk, lba, writes: true });
    }

    /// Nothing fails any more. Gates stay.
    pub fn heal(&self) {
        let mut state = self.lock();
        state.countdowns.clear();
        state.bad.clear();
    }

    /// Ops of `kind` on `disk` wait from now on.
    pub fn hold(&self, disk: DiskId, kind: Kind) {
        self.lock().gates.insert((disk, kind));
    }

    /// How many ops of `kind` on `disk` wait.
    pub fn held(&self, disk: DiskId, kind: Kind) -> usize {
        self.lock().held.iter().filter(|h| h.is(disk, kind)).count()
    }

    /// Let the longest waiting op of `kind` on `disk` through; later ones still wait. False if none waited.
    pub fn release_one(&self, disk: DiskId, kind: Kind) -> bool {
        let mut state = self.lock();
        let Some(at) = state.held.iter().position(|h| h.is(disk, kind)) else { return false };
        let held = state.held.remove(at);
        state.released.push(held);
        drop(state);
        wake::signal(&self.event);
        true
    }

    /// Open the gate: what waits goes through, in order, and nothing of `kind` on `disk` waits any more. Returns how many
    /// went through.
    pub fn release(&self, disk: DiskId, kind: Kind) -> usize {
        let mut state = self.lock();
        state.gates.remove(&(disk, kind));
        let released = state.let_through(|h| h.is(disk, kind));
        drop(state);
        wake::signal(&self.event);
        released
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<B: Backend> Backend for Faulty<B> {
    fn submit(&mut self, io: IoId, disk: DiskId, op: DiskOp, data: Option<IoSlice>) {
        let mut state = self.faults.lock();
        if let Some(status) = state.failure(disk, &op) {
            self.ended.push(Ended::new(io, disk, status));
        } else if state.gates.contains(&(disk, Kind::of(&op))) {
            state.held.push(Held { io, disk, op, data });
        } else {
            drop(state);
            self.inner.submit(io, disk, op, data);
        }
    }

    fn kick(&mut self) {
        self.send_released();
        self.inner.kick();
        if !self.ended.is_empty() {
            wake::signal(&self.faults.event);
        }
    }

    fn reap(&mut self, ended: &mut Vec<Ended>) {
        if let Some(event) = &self.own_event {
            wake::clear(event);
        }
        self.send_released();
        self.inner.kick();
        ended.append(&mut self.ended);
        self.inner.reap(ended);
    }

    fn event_fd(&self) -> Option<BorrowedFd<'_>> {
        self.own_event.as_ref().map(AsFd::as_fd).or_else(|| self.inner.event_fd())
    }

    fn in_flight(&self) -> usize {
        let state = self.faults.lock();
        self.ended.len() + state.held.len() + state.released.len() + self.inner.in_flight()
    }
}

impl<B: FileBackend> FileBackend for Faulty<B> {
    fn add(&mut self, disk: DiskId, opened: OpenDisk) -> io::Result<()> {
        self.inner.add(disk, opened)
    }

    /// What waits at a gate of the disk ends `Gone` too.
    fn remove(&mut self, disk: DiskId) -> bool {
        self.faults.lock().let_through(|h| h.disk == disk);
        wake::signal(&self.faults.event);
        self.inner.remove(disk)
    }

    fn name(&self) -> &'static str {
        self.inner.name()
    }
}

impl State {
    /// How `op` fails, if it does. Every countdown that the op matches counts it.
    fn failure(&mut self, disk: DiskId, op: &DiskOp) -> Option<Status> {
        let mut failure = None;
        self.countdowns.retain_mut(|c| {
            if (c.disk, c.kind) == (disk, Kind::of(op)) {
                c.left -= 1;
                if c.left == 0 {
                    failure = failure.or(Some(c.status));
                }
            }
            c.left > 0
        });
        failure.or_else(|| self.bad_block(disk, op))
    }

    /// The first bad block that `op` touches.
    fn bad_block(&self, disk: DiskId, op: &DiskOp) -> Option<Status> {
        let (range, writes) = match *op {
            DiskOp::Read { lba, count, .. } => (BlockRange::new(lba, count), false),
            DiskOp::Write { lba, count, .. }
            | DiskOp::WriteZeroes { lba, count, .. }
            | DiskOp::Unmap { lba, count } => (BlockRange::new(lba, count), true),
            DiskOp::Flush | DiskOp::BlockStatus { .. } => return None,
        };
        self.bad
            .iter()
            .filter(|b| b.disk == disk && b.writes == writes && (range.start.0..range.end()).contains(&b.lba.0))
            .map(|b| b.lba)
            .min()
            .map(|lba| Status::MediumError { lba })
    }

    fn let_through(&mut self, which: impl Fn(&Held) -> bool) -> usize {
        let (through, held): (Vec<_>, Vec<_>) = std::mem::take(&mut self.held).into_iter().partition(which);
        self.held = held;
        let count = through.len();
        self.released.extend(through);
        count
    }
}

impl Held {
    fn is(&self, disk: DiskId, kind: Kind) -> bool {
        self.disk == disk && Kind::of(&self.op) == kind
    }
}
