//! One op in flight, and its disk ops.
//!
//! ```text
//!  Waiting --> Reading --> Deciding --> Moving --> Flushing --> answered
//!     |        `--- compare-and-write ---'  ^
//!     |             and OR-write            |
//!     `-------------------------------------'   (a flush: straight to Flushing)
//! ```
//!
//! A task keeps its slot until nothing of it is out at a disk or in a gate; its answer may leave before (an abort).

use platter_block::{BlockCount, BlockRange, DiskOp, Extent, Lba, Op, Report, Status, Tag};

use crate::disk::{Disk, Epoch};
use crate::ranges::RangeId;
use crate::slab::Key;

/// Most pieces of one op out at a time, so that one large op does not fill every queue below.
pub(crate) const MAX_PIECES_OUT: u32 = 32;

/// Most extents of one [`Op::BlockStatus`]; the answer ends there, short of what was asked.
pub(crate) const MAX_EXTENTS: usize = 1024;

/// Where a task stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// For other ops to leave its range.
    Waiting,
    /// The first half of an exclusive op: into its scratch space.
    Reading,
    /// Bytes are compared or combined.
    Deciding,
    /// The pieces that are the op itself.
    Moving,
    /// For its flushes.
    Flushing,
}

/// One op in flight.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) tag: Tag,
    pub(crate) op: Op,
    /// Position in the engine's list of volumes.
    pub(crate) volume: usize,
    pub(crate) phase: Phase,
    /// Its place in the volume's ranges, until it leaves.
    pub(crate) range_id: Option<RangeId>,
    /// Blocks of the range that have become pieces in this phase.
    pub(crate) next: u32,
    /// Pieces made and not yet handed out.
    pub(crate) queued: u32,
    /// Pieces handed out and not ended.
    pub(crate) sent: u32,
    /// Flushes it waits for.
    pub(crate) gates: u32,
    /// Durable before its answer, as far as that was known when it started.
    pub(crate) fua: bool,
    /// When it started.
    pub(crate) epoch: Epoch,
    /// By slot: a bit for each disk where it wrote something that is not durable by itself.
    pub(crate) owes: u128,
    /// The first error. No more pieces are made or handed out once there is one.
    pub(crate) error: Option<Status>,
    /// It is to end; no more pieces are made or handed out.
    pub(crate) aborted: bool,
    /// `Done` has left.
    pub(crate) answered: bool,
    /// What a block status found so far.
    pub(crate) extents: Vec<Extent>,
}

impl Task {
    pub(crate) const fn new(tag: Tag, op: Op, volume: usize) -> Self {
        Self {
            tag,
            op,
            volume,
            phase: Phase::Waiting,
            range_id: None,
            next: 0,
            queued: 0,
            sent: 0,
            gates: 0,
            fua: false,
            epoch: 0,
            owes: 0,
            error: None,
            aborted: false,
            answered: false,
            extents: Vec::new(),
        }
    }

    /// Whether pieces may still be handed out.
    pub(crate) const fn goes_on(&self) -> bool {
        self.error.is_none() && !self.aborted && !self.answered
    }

    /// No more pieces: those made and not handed out are dropped. The first error stays.
    pub(crate) fn fail(&mut self, status: Status) {
        self.error.get_or_insert(status);
        self.queued = 0;
    }

    /// Whether a disk may still change the medium on its behalf.
    pub(crate) const fn is_writing(&self) -> bool {
        self.op.is_write() && matches!(self.phase, Phase::Moving) && self.sent > 0
    }

    /// Whether a disk or a gate still works on it.
    pub(crate) const fn is_out(&self) -> bool {
        self.sent > 0 || self.gates > 0
    }

    /// Most pieces out at a time. Block status goes piece by piece, so that its extents arrive in order.
    pub(crate) const fn window(&self) -> u32 {
        match self.op {
            Op::BlockStatus { .. } => 1,
            _ => MAX_PIECES_OUT,
        }
    }

    /// Most blocks of one piece on `disk`.
    pub(crate) fn piece_limit(&self, disk: &Disk) -> u32 {
        match self.op {
            Op::Unmap { .. } => disk.max_unmap(),
            Op::BlockStatus { .. } => u32::MAX,
            _ => disk.max_transfer(),
        }
    }

    /// The piece of `count` blocks at `lba` of the disk, `next` blocks into the range. `fua`: the disk is to make it
    /// durable by itself, where the op has such a form.
    pub(crate) fn piece(&self, lba: Lba, count: BlockCount, fua: bool, block_size: u32) -> DiskOp {
        // Byte offsets fit: `refusal` bounds the buffer of an op to u32::MAX bytes.
        let offset = |blocks: u32| blocks * block_size;
        let read = |buf, base| DiskOp::Read { lba, count, buf, at: offset(base + self.next) };
        let write = |buf, base| DiskOp::Write { lba, count, fua, buf, at: offset(base + self.next) };
        let reading = self.phase == Phase::Reading;
        match self.op {
            Op::Read { buf, .. } => read(buf, 0),
            Op::Write { buf, .. } => write(buf, 0),
            Op::CompareAndWrite { buf, count: all, .. } if reading => read(buf, 2 * all.0),
            Op::CompareAndWrite { buf, count: all, .. } => write(buf, all.0),
            Op::OrWrite { buf, count: all, .. } if reading => read(buf, all.0),
            Op::OrWrite { buf, count: all, .. } => write(buf, all.0),
            Op::WriteZeroes { may_unmap, .. } => DiskOp::WriteZeroes { lba, count, may_unmap },
            Op::Unmap { .. } => DiskOp::Unmap { lba, count },
            Op::BlockStatus { .. } => DiskOp::BlockStatus { lba, count },
            Op::Flush | Op::SetWriteCache { .. } => unreachable!("an op without a range has no pieces"),
        }
    }

    /// Adds what a disk said of one piece, in volume LBAs. What is missing, out of order or too much for one answer ends
    /// the op there, with what it has: at worst a piece is called mapped, which is always safe to say.
    pub(crate) fn add_extents(&mut self, piece: &DiskIo, report: Option<Box<Report>>) {
        let end = piece.disk_lba.0 + u64::from(piece.count.0);
        let mut at = piece.disk_lba.0;
        let Report::Extents(found) = report.map_or_else(|| Report::Extents(Vec::new()), |report| *report);
        for extent in found {
            if extent.lba.0 != at || extent.count.0 == 0 || at == end || self.extents.len() == MAX_EXTENTS {
                break;
            }
            let count = u64::from(extent.count.0).min(end - at);
            self.add_extent(piece.to_volume(Lba(at)), count as u32, extent.mapped);
            at += count;
        }
        if self.extents.is_empty() {
            self.add_extent(piece.volume_lba, piece.count.0, true);
            at = end;
        }
        if at < end {
            self.next = self.count().0; // no more pieces
        }
    }

    fn add_extent(&mut self, lba: Lba, count: u32, mapped: bool) {
        match self.extents.last_mut() {
            Some(last) if last.mapped == mapped => last.count.0 += count,
            _ => self.extents.push(Extent { lba, count: BlockCount(count), mapped }),
        }
    }

    /// Blocks of the range; 0 for an op on the whole volume.
    pub(crate) fn count(&self) -> BlockCount {
        self.op.range().map_or(BlockCount(0), |range| range.count)
    }
}

/// One disk op, from the moment it is made until it ends.
#[derive(Debug)]
pub(crate) struct DiskIo {
    /// Whose; the task of a piece that is not handed out may be gone. [`Key::NONE`] for a device flush.
    pub(crate) task: Key,
    pub(crate) kind: IoKind,
    /// Position in the engine's list of disks.
    pub(crate) disk: usize,
    /// The same disk as the volume counts them.
    pub(crate) slot: u8,
    /// Handed out.
    pub(crate) sent: bool,
    /// When it was handed out (F6).
    pub(crate) epoch: Epoch,
    pub(crate) volume_lba: Lba,
    pub(crate) disk_lba: Lba,
    pub(crate) count: BlockCount,
}

/// What a [`DiskIo`] is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum IoKind {
    /// A read.
    Read,
    /// Anything that changes the medium (F5).
    Write {
        /// It was made with FUA.
        fua: bool,
    },
    /// A question.
    BlockStatus,
    /// Bytes to compare or combine: no disk works on it.
    Bytes,
    /// A device flush: no task, it belongs to the gate.
    Flush,
}

impl IoKind {
    pub(crate) const fn of(op: &DiskOp) -> Self {
        match *op {
            DiskOp::Read { .. } => Self::Read,
            DiskOp::Write { fua, .. } => Self::Write { fua },
            DiskOp::WriteZeroes { .. } => Self::Write { fua: false }, // F5
            DiskOp::Unmap { .. } => Self::Write { fua: false },       // F5
            DiskOp::BlockStatus { .. } => Self::BlockStatus,
            DiskOp::Flush => Self::Flush,
        }
    }
}

impl DiskIo {
    /// A device flush, handed out as it is made.
    pub(crate) const fn flush(disk: usize, epoch: Epoch) -> Self {
        Self { disk, epoch, sent: true, kind: IoKind::Flush, ..Self::bytes(Key::NONE) }
    }

    /// A question about bytes; no disk is involved.
    pub(crate) const fn bytes(task: Key) -> Self {
        Self {
            task,
            kind: IoKind::Bytes,
            disk: 0,
            slot: 0,
            sent: false,
            epoch: 0,
            volume_lba: Lba(0),
            disk_lba: Lba(0),
            count: BlockCount(0),
        }
    }

    /// A block of this piece, as the volume counts it. A disk that names a block outside the piece is taken to mean the
    /// first.
    pub(crate) fn to_volume(&self, lba: Lba) -> Lba {
        let piece = BlockRange::new(self.disk_lba, self.count);
        let offset = if lba >= piece.start && lba.0 < piece.end() { lba.0 - piece.start.0 } else { 0 };
        Lba(self.volume_lba.0 + offset)
    }
}

/// Bytes of buffer that an op needs.
pub(crate) fn buffer_bytes(op: &Op, block_size: u32) -> u64 {
    let parts = match op {
        Op::Read { .. } | Op::Write { .. } => 1,
        Op::OrWrite { .. } => 2,
        Op::CompareAndWrite { .. } => 3,
        Op::Flush | Op::WriteZeroes { .. } | Op::Unmap { .. } | Op::BlockStatus { .. } | Op::SetWriteCache { .. } => 0,
    };
    op.range().map_or(0, |range| range.count.bytes(block_size).saturating_mul(parts))
}

/// Whether the submitter asked that the op be durable before its answer.
pub(crate) const fn asks_fua(op: &Op) -> bool {
    match *op {
        Op::Write { fua, .. }
        | Op::WriteZeroes { fua, .. }
        | Op::CompareAndWrite { fua, .. }
        | Op::OrWrite { fua, .. } => fua,
        _ => false,
    }
}

/// Whether the op has its range to itself.
pub(crate) const fn is_exclusive(op: &Op) -> bool {
    matches!(op, Op::CompareAndWrite { .. } | Op::OrWrite { .. })
}
