//! What goes in, what comes out, in which order.

use std::collections::VecDeque;
use std::time::Duration;

use platter_block::{BufId, DiskId, DiskInfo, DiskOp, Instant, IoId, Op, Report, Status, Tag, VolumeId, VolumeInfo};

use crate::{DiskStats, MapError, Segment, VolumeStats};

/// Most ops in flight on one engine, waiting ones and aborted ones that a disk still works on included. One more ends
/// [`Status::Busy`].
pub const MAX_OPS: usize = 65_536;

/// Most ops in flight on one volume, counted the same way, so that one volume on a stuck disk leaves room for the others.
/// One more ends [`Status::Busy`].
pub const MAX_OPS_PER_VOLUME: u32 = 16_384;

/// How long an aborted write waits for its disk before it ends [`Status::Aborted`] behind a fence.
pub const ABORT_GRACE: Duration = Duration::from_secs(1);

/// What the engine believes of a disk (F8).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FuaPolicy {
    /// What the disk reports is believed.
    #[default]
    Native,
    /// FUA is never sent: plain writes, then a flush.
    Emulate,
    /// As `Emulate`, and the disk is taken to have a volatile cache whatever it reports.
    Distrust,
}

/// Everything that happens to an engine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Input {
    /// Begin an op. It ends with one [`Output::Done`].
    Submit {
        /** Unique among the ops of this engine that have not ended. */
        tag: Tag,
        /** Where. */
        volume: VolumeId,
        /** What. */
        op: Op,
    },
    /// A disk op ended.
    Completed {
        /** From [`Output::Io`]. */
        io: IoId,
        /** How it ended. */
        status: Status,
        /** What it answered, if it was a question. */
        report: Option<Box<Report>>,
    },
    /// Answers [`Output::Compare`].
    Compared {
        /** From the output. */
        io: IoId,
        /** Offset of the first byte that differs, from the start of the compared bytes; `None` if equal. */
        differs_at: Option<u64>,
    },
    /// Answers [`Output::Combine`].
    Combined {
        /** From the output. */
        io: IoId,
    },
    /// End an op early. It still ends with one `Done`: `Aborted`, or how it ended just before. Unknown tag: ignored, the op
    /// has ended already.
    Abort {
        /** From `Submit`. */
        tag: Tag,
    },
    /// A missing disk is there, or another one took the place of the present one (F6).
    DiskAttached {
        /** Which. */
        disk: DiskId,
        /** Read after it was attached. */
        info: DiskInfo,
    },
    /// A disk went away. Disk ops in flight still complete, each once (F6).
    DiskLost {
        /** Which. */
        disk: DiskId,
    },
    /// A present disk was reset, or its settings changed (F6).
    DiskReset {
        /** Which. */
        disk: DiskId,
        /** Read after the reset. */
        info: DiskInfo,
    },
    /// The operator declares a poisoned disk fit again (F3). Not poisoned: ignored.
    ClearFault {
        /** Which. */
        disk: DiskId,
    },
    /// [`Engine::poll_timeout`] has come.
    Tick,
}

/// Everything an engine wants done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output {
    /// Do this on the disk, then answer [`Input::Completed`], exactly once.
    Io {
        /** For the answer. */
        io: IoId,
        /** Where. */
        disk: DiskId,
        /** What. */
        op: DiskOp,
    },
    /// Compare `buf[left_at..][..len]` with `buf[right_at..][..len]`, in bytes; answer [`Input::Compared`] at once.
    Compare {
        /** For the answer. */
        io: IoId,
        /** Both sides lie in it. */
        buf: BufId,
        /** Byte offset. */
        left_at: usize,
        /** Byte offset. */
        right_at: usize,
        /** In bytes. */
        len: usize,
    },
    /// OR `buf[from_at..][..len]` into `buf[into_at..][..len]`, in bytes; answer [`Input::Combined`] at once.
    Combine {
        /** For the answer. */
        io: IoId,
        /** Both sides lie in it. */
        buf: BufId,
        /** Byte offset of what changes. */
        into_at: usize,
        /** Byte offset of what is read. */
        from_at: usize,
        /** In bytes. */
        len: usize,
    },
    /// The one end of an op. Its buffer is the submitter's again and its tag may be used again.
    Done {
        /** From `Submit`. */
        tag: Tag,
        /** How it ended. */
        status: Status,
        /** What it answered, if it was a question. */
        report: Option<Box<Report>>,
    },
    /// [`Engine::volume_info`] changed: tell the protocols (F9).
    VolumeChanged {
        /** Which. */
        volume: VolumeId,
    },
    /// A disk may have lost acknowledged writes (F3): store this durably, and log it.
    Poisoned {
        /** Which. */
        disk: DiskId,
    },
    /// The operator cleared the fault: remove the stored mark, and log it.
    Healed {
        /** Which. */
        disk: DiskId,
    },
}

/// One group of disks and the volumes on them. See the crate for the parts.
#[derive(Debug, Default)]
pub struct Engine {
    outputs: VecDeque<Output>,
}

impl Engine {
    /// An engine without disks.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a disk; `info: None` if it is missing.
    pub fn add_disk(&mut self, _disk: DiskId, _info: Option<DiskInfo>, _policy: FuaPolicy, _poisoned: bool) {}

    /// Adds a volume. On `Err` nothing has changed.
    pub fn add_volume(&mut self, _volume: VolumeId, _segments: Vec<Segment>) -> Result<(), MapError> {
        Ok(())
    }

    /// What the volume may promise, now. `None`: no such volume.
    pub fn volume_info(&self, _volume: VolumeId) -> Option<VolumeInfo> {
        None
    }

    /// Takes one input.
    pub fn handle(&mut self, _now: Instant, _input: Input) {}

    /// The next thing to do.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When to call [`handle`](Self::handle) with [`Input::Tick`] if nothing else happens before.
    pub fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    /// Counters of a disk. `None`: no such disk.
    pub fn disk_stats(&self, _disk: DiskId) -> Option<DiskStats> {
        None
    }

    /// Counters of a volume. `None`: no such volume.
    pub fn volume_stats(&self, _volume: VolumeId) -> Option<VolumeStats> {
        None
    }
}
