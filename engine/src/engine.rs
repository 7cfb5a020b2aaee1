//! What goes in, what comes out, in which order.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use platter_block::{BufId, DiskId, DiskInfo, DiskOp, Instant, IoId, Op, Report, Status, Tag, VolumeId, VolumeInfo};

use crate::disk::{Disk, Disks, Epoch};
use crate::flush_gate::FlushQueue;
use crate::segment_map::SegmentMap;
use crate::slab::{Key, Slab};
use crate::tags::Tags;
use crate::task::{DiskIo, IoKind, Task};
use crate::volume::Volume;
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
    /// A disk op ended. A flush that ends [`Status::Busy`] was not given to the disk; any other failure of it poisons (F3).
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

/// One group of disks and the volumes on them.
///
/// # How it is driven
///
/// 1. [`add_disk`](Self::add_disk), [`add_volume`](Self::add_volume).
/// 2. [`handle`](Self::handle) for everything that happens, in the order in which it happened. Several inputs may be
///    handled before the next step: flushes asked for between two drains are one device flush.
/// 3. [`poll_output`](Self::poll_output) until `None`, doing each output in order. A disk op counts as sent from the moment
///    it is handed out here; what an abort or an error overtakes before is never handed out.
/// 4. [`poll_timeout`](Self::poll_timeout) says when to handle [`Input::Tick`] if nothing else happens before.
///
/// `now` never goes backwards. Nothing happens outside `handle` and `poll_output`, and the same calls always give the same
/// outputs.
///
/// # Limits
///
/// [`MAX_OPS`] and [`MAX_OPS_PER_VOLUME`] ops in flight, 32 pieces of each out at a time, so every queue in here is bounded.
/// One more op ends [`Status::Busy`].
#[derive(Debug, Default)]
pub struct Engine {
    pub(crate) disks: Disks,
    pub(crate) volumes: Vec<Volume>,
    volume_positions: BTreeMap<VolumeId, usize>,
    /// Counts what happens to disks as a whole.
    pub(crate) epoch: Epoch,
    pub(crate) tasks: Slab<Task>,
    pub(crate) tags: Tags,
    pub(crate) ios: Slab<DiskIo>,
    pub(crate) outputs: VecDeque<Output>,
    pub(crate) flushes: FlushQueue,
    /// Tasks whose wait for a range is over.
    pub(crate) runnable: VecDeque<Key>,
    /// When to give up waiting for the disk of an aborted write; earliest first.
    pub(crate) graces: VecDeque<(Instant, Key)>,
}

impl Engine {
    /// An engine without disks.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a disk, before any volume on it. `info: None` if it is missing: its volumes answer
    /// [`Status::NotReady`] until [`Input::DiskAttached`]. `poisoned`: a stored mark of [`Output::Poisoned`] (F3).
    ///
    /// The caller has flushed the disk after opening it: what an earlier run of the server acknowledged is durable, so that
    /// the first flush of a volume that wrote nothing may be elided.
    ///
    /// # Panics
    /// If the disk was added before.
    pub fn add_disk(&mut self, disk: DiskId, info: Option<DiskInfo>, policy: FuaPolicy, poisoned: bool) {
        self.disks.add(Disk::new(disk, info, policy, poisoned));
    }

    /// Adds a volume: segments in volume order from LBA 0 on, on disks that were added, on blocks that no other volume has.
    /// May be called at any time.
    ///
    /// # Errors
    /// What is wrong with the list; then nothing has changed.
    pub fn add_volume(&mut self, volume: VolumeId, segments: Vec<Segment>) -> Result<(), MapError> {
        if self.volume_positions.contains_key(&volume) {
            return Err(MapError::VolumeExists);
        }
        let map = SegmentMap::new(&segments, &self.disks)?;
        for (slot, start, count) in map.extents() {
            self.disks[map.disks()[usize::from(slot)]].claim(start, count);
        }
        self.volume_positions.insert(volume, self.volumes.len());
        self.volumes.push(Volume::new(volume, map, &self.disks));
        Ok(())
    }

    /// What the volume may promise, now (F9). `None`: no such volume.
    pub fn volume_info(&self, volume: VolumeId) -> Option<VolumeInfo> {
        let position = self.volume_position(volume)?;
        Some(self.volumes[position].info().clone())
    }

    /// Takes one input.
    ///
    /// # Panics
    /// On what only a bug of ours can do: a tag that is in flight already, or an answer to an output that was not given or
    /// was answered before.
    pub fn handle(&mut self, now: Instant, input: Input) {
        match input {
            Input::Submit { tag, volume, op } => self.submit(tag, volume, op),
            Input::Completed { io, status, report } => self.completed(io, status, report),
            Input::Compared { io, differs_at } => self.decided(io, differs_at),
            Input::Combined { io } => self.decided(io, None),
            Input::Abort { tag } => self.abort(now, tag),
            Input::DiskAttached { disk, info } => self.disk_attached(disk, info),
            Input::DiskLost { disk } => self.disk_lost(disk),
            Input::DiskReset { disk, info } => self.disk_reset(disk, info),
            Input::ClearFault { disk } => self.clear_fault(disk),
            Input::Tick => {}
        }
        self.start_runnable();
        self.expire_graces(now);
    }

    /// The next thing to do.
    pub fn poll_output(&mut self) -> Option<Output> {
        // Flushes first, so that one is never held back by a stream of other outputs (F7).
        if let Some(flush) = self.send_flush() {
            return Some(flush);
        }
        while let Some(output) = self.outputs.pop_front() {
            let output = match output {
                Output::Io { io, disk, op } => self.hand_out(io, op).map(|op| Output::Io { io, disk, op }),
                Output::Compare { io, .. } | Output::Combine { io, .. } => self.mark_sent(io).then_some(output),
                other => Some(other),
            };
            if output.is_some() {
                return output;
            }
            self.start_runnable();
        }
        None
    }

    /// When to call [`handle`](Self::handle) with [`Input::Tick`] if nothing else happens before.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.graces.front().map(|&(at, _)| at)
    }

    /// Counters of a disk. `None`: no such disk.
    pub fn disk_stats(&self, disk: DiskId) -> Option<DiskStats> {
        let position = self.disks.position(disk)?;
        Some(self.disks[position].stats())
    }

    /// Counters of a volume. `None`: no such volume.
    pub fn volume_stats(&self, volume: VolumeId) -> Option<VolumeStats> {
        let position = self.volume_position(volume)?;
        Some(self.volumes[position].counts)
    }

    pub(crate) fn volume_position(&self, volume: VolumeId) -> Option<usize> {
        self.volume_positions.get(&volume).copied()
    }

    /// The next flush to send: its gate takes the snapshot here (F1).
    fn send_flush(&mut self) -> Option<Output> {
        while let Some(position) = self.flushes.next() {
            let disk = &mut self.disks[position];
            if !disk.gate.send() {
                continue;
            }
            debug_assert!(disk.is_present(), "a lost disk owes or is poisoned: nobody waits in its gate");
            disk.counts.in_flight += 1;
            let io = self.ios.insert(DiskIo::flush(position, self.epoch));
            return Some(Output::Io { io: IoId(io.0), disk: disk.id(), op: DiskOp::Flush });
        }
        None
    }

    /// Makes a piece a sent one. `None` if nobody waits for it any more, or its disk is gone.
    fn hand_out(&mut self, io: IoId, mut op: DiskOp) -> Option<DiskOp> {
        if !self.mark_sent(io) {
            return None;
        }
        let piece = self.ios.get_mut(Key(io.0)).expect("just handed out");
        let disk = &mut self.disks[piece.disk];
        piece.epoch = self.epoch;
        disk.counts.in_flight += 1;
        if !disk.is_present() {
            self.completed(io, Status::Gone, None);
            return None;
        }
        let blocks = u64::from(piece.count.0);
        match &mut op {
            DiskOp::Read { .. } => {
                disk.counts.reads += 1;
                disk.counts.blocks_read += blocks;
            }
            DiskOp::Write { fua, .. } => {
                *fua &= disk.sends_fua(); // F6: the disk may have been reset since the piece was made
                piece.kind = IoKind::Write { fua: *fua };
                disk.counts.writes += 1;
                disk.counts.blocks_written += blocks;
                disk.counts.fua_native += u64::from(*fua);
            }
            DiskOp::WriteZeroes { .. } | DiskOp::Unmap { .. } => {
                disk.counts.writes += 1;
                disk.counts.blocks_written += blocks;
            }
            DiskOp::BlockStatus { .. } | DiskOp::Flush => {}
        }
        Some(op)
    }

    /// From here on a piece, or a question about bytes, is out. False if nobody waits for it any more.
    fn mark_sent(&mut self, io: IoId) -> bool {
        let piece = self.ios.get_mut(Key(io.0)).expect("a piece waits in one output");
        let Some(task) = self.tasks.get_mut(piece.task).filter(|task| task.goes_on()) else {
            self.ios.remove(Key(io.0));
            return false;
        };
        task.queued -= 1;
        task.sent += 1;
        piece.sent = true;
        true
    }
}
