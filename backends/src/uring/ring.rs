//! The ring itself: the one place where memory is lent to the kernel.
//!
//! A [`Job`] moves into the [`Ring`] when it is pushed and comes out when the kernel has answered, so that its memory and
//! its file outlive the kernel's work on them by ownership.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use io_uring::{Builder, IoUring, opcode, squeue, types};
use platter_block::DiskOp;
use rustix::io::ReadWriteFlags;

use crate::MAX_IN_FLIGHT;
use crate::job::Job;
use crate::ledger::Key;

/// An io_uring and the jobs that the kernel works on.
pub(super) struct Ring {
    ring: IoUring,
    /// By key. `Some` from `push` until the kernel's answer is popped.
    jobs: Vec<Option<Job>>,
    /// How many are `Some`.
    running: usize,
    state: Setup,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Setup {
    /// Made disabled: the first thread to enter becomes the only one that may.
    Disabled,
    /// Made enabled, not entered yet.
    Enabled,
    /// Entered.
    Running,
}

/// Most bytes that one entry moves; the rest of an op follows in the next. Below the kernel's limit of 2 GiB.
const MAX_ENTRY: u64 = 1 << 30;

impl Ring {
    /// A ring of `entries` entries that signals `event` when something can be popped: the best kind that the kernel has.
    pub(super) fn new(entries: u32, event: &impl AsFd) -> io::Result<Self> {
        match Self::deferred(entries, event) {
            Err(e) if e.kind() == io::ErrorKind::InvalidInput => Self::plain(entries, event),
            made => made,
        }
    }

    /// Completions wait for the owner's own system calls (Linux 6.1): none interrupts the owner, and the event is signalled
    /// once for many. The older `COOP_TASKRUN` alone is not used: with it, an event is signalled only when the owner happens
    /// to enter the kernel.
    ///
    /// The ring is disabled until its first use, so that it may be made on another thread than the one that will use it.
    fn deferred(entries: u32, event: &impl AsFd) -> io::Result<Self> {
        let mut builder = IoUring::builder();
        builder.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag().setup_submit_all().setup_r_disabled();
        Self::build(builder, entries, event, Setup::Disabled)
    }

    /// What every kernel with io_uring has.
    pub(super) fn plain(entries: u32, event: &impl AsFd) -> io::Result<Self> {
        Self::build(IoUring::builder(), entries, event, Setup::Enabled)
    }

    fn build(mut builder: Builder, entries: u32, event: &impl AsFd, state: Setup) -> io::Result<Self> {
        // Beyond this many, the kernel keeps answers in memory of its own.
        builder.setup_cqsize(entries.saturating_mul(2).clamp(4096, 65536));
        let ring = builder.build(entries)?;
        if !ring.params().is_feature_nodrop() {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "the kernel's io_uring may drop completions"));
        }
        ring.submitter().register_eventfd(event.as_fd().as_raw_fd())?;
        Ok(Self { ring, jobs: Vec::new(), running: 0, state })
    }

    /// Queues the next part of `job` for the next [`enter`](Self::enter). `Err` gives it back: the queue is full, enter first.
    ///
    /// # Panics
    ///
    /// If `key` is in use, or the job is not for the ring.
    pub(super) fn push(&mut self, key: Key, job: Job) -> Result<(), Job> {
        let index = key.0 as usize;
        if self.jobs.len() <= index {
            self.jobs.resize_with(index + 1, || None);
        }
        assert!(self.jobs[index].is_none(), "{key:?} is in the kernel already");
        let entry = entry(&job).user_data(u64::from(key.0));
        // SAFETY: the entry names a file and memory. Both are alive while `job` is: it holds the disk and an `IoSlice`. The
        // job stays in `self.jobs` until the kernel's answer is popped, and if the ring is dropped before, it is leaked
        // (`Drop`). The range was checked against the slice when the op was submitted, and `done` never exceeds it.
        // Nobody else touches the memory meanwhile (contract of `IoSlice`).
        if unsafe { self.ring.submission().push(&entry) }.is_err() {
            return Err(job);
        }
        self.jobs[index] = Some(job);
        self.running += 1;
        Ok(())
    }

    /// Gives what is queued to the kernel, and takes its deferred answers. False if the kernel is short of memory and what was
    /// queued stays queued.
    ///
    /// # Panics
    ///
    /// If another thread has entered before.
    pub(super) fn enter(&mut self) -> bool {
        self.enable();
        loop {
            let before = self.queued();
            match self.ring.submit() {
                Ok(_) => return before == 0 || self.queued() < before,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => {
                    let moved = e.kind() == io::ErrorKind::AlreadyExists;
                    assert!(!moved, "the ring was moved to another thread after its first use");
                    return false;
                }
            }
        }
    }

    /// Entries that the kernel has not taken yet.
    pub(super) fn queued(&mut self) -> usize {
        self.ring.submission().len()
    }

    /// Jobs that are in the kernel or queued for it.
    #[cfg(test)]
    pub(super) const fn running(&self) -> usize {
        self.running
    }

    /// The kernel has answers that it will give when entered.
    pub(super) fn must_enter(&mut self) -> bool {
        let submission = self.ring.submission();
        submission.taskrun() || submission.cq_overflow()
    }

    /// The next answer: the job and what the system call returned.
    pub(super) fn pop(&mut self) -> Option<(Key, Job, i32)> {
        let answer = self.ring.completion().next()?;
        let key = Key(u32::try_from(answer.user_data()).expect("made from a key"));
        let job = self.jobs[key.0 as usize].take().expect("the kernel answers once");
        self.running -= 1;
        Some((key, job, answer.result()))
    }

    fn enable(&mut self) {
        if self.state == Setup::Disabled {
            self.ring.submitter().register_enable_rings().expect("a ring made disabled can be enabled once");
        }
        if self.state != Setup::Running {
            // Work that blocks gets workers without a limit but that of the ops themselves. An older kernel keeps its default
            // of four per processor. The other number, for work such as sockets, stays.
            let _ = self.ring.submitter().register_iowq_max_workers(&mut [MAX_IN_FLIGHT as u32, 0]);
            self.state = Setup::Running;
        }
    }
}

impl Drop for Ring {
    /// The kernel may go on with what it has begun. Its memory is leaked rather than freed below it.
    fn drop(&mut self) {
        for job in self.jobs.iter_mut().filter_map(Option::take) {
            std::mem::forget(job.data);
        }
    }
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").field("running", &self.running).finish_non_exhaustive()
    }
}

fn entry(job: &Job) -> squeue::Entry {
    let file = types::Fd(job.disk.fd().as_raw_fd());
    let fua = matches!(job.op, DiskOp::Write { fua: true, .. });
    match (&job.op, &job.data) {
        (DiskOp::Read { .. }, Some(data)) => {
            let start = data.as_ptr().wrapping_add(job.done() as usize);
            opcode::Read::new(file, start, entry_len(job)).offset(job.offset()).build()
        }
        (DiskOp::Write { .. }, Some(data)) => {
            let start = data.as_ptr().wrapping_add(job.done() as usize);
            let flags = if fua { ReadWriteFlags::DSYNC } else { ReadWriteFlags::empty() };
            let flags = flags.bits().cast_signed();
            opcode::Write::new(file, start, entry_len(job)).offset(job.offset()).rw_flags(flags).build()
        }
        (DiskOp::Flush, None) => opcode::Fsync::new(file).flags(types::FsyncFlags::DATASYNC).build(),
        _ => panic!("{:?} is not for the ring", job.op),
    }
}

fn entry_len(job: &Job) -> u32 {
    job.left().min(MAX_ENTRY) as u32
}
