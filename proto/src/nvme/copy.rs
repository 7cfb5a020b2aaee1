//! Copy (NVM command set): ranges of a namespace, one after the other, to one place in the same namespace. A piece is read
//! and written, then the next.

use platter_block::{BlockCount, BlockRange, BufId, Lba, Op};

use super::io::Call;
use super::status::Status;
use super::task::{Next, Outcome, Stop, Work};

/// Source ranges of one command: MSRC + 1.
pub(super) const MAX_RANGES: usize = 128;

/// Bytes of one command: MCL, and as far as its field goes MSSRL. Few enough for an abort to be quick on a slow disk.
const MAX_BYTES: u32 = 64 << 20;

/// How much is read and written at once, in bytes.
const PIECE: u32 = 256 << 10;

/// Source Range Entries Copy Descriptor Format 0h.
const DESCRIPTOR: usize = 32;

/// MCL: blocks of one command.
pub(super) const fn max_blocks(block_size: u32) -> u32 {
    MAX_BYTES / block_size
}

/// MSSRL: blocks of one source range.
pub(super) const fn max_range(block_size: u32) -> u16 {
    let blocks = max_blocks(block_size);
    if blocks > u16::MAX as u32 { u16::MAX } else { blocks as u16 }
}

pub(super) fn copy(call: &mut Call<'_>) -> Outcome {
    let cdw12 = call.task.sqe.cdw(12);
    let ranges = (cdw12 & 0xff) as usize + 1;
    if cdw12 >> 8 & 0xf != 0 {
        return Err(Status::INVALID_FIELD.into());
    }
    if ranges > MAX_RANGES {
        return Err(Status::COMMAND_SIZE_LIMIT.into());
    }
    let len = call.task.expect_list(ranges * DESCRIPTOR, MAX_RANGES * DESCRIPTOR)?;
    let list = call.alloc(len)?;
    let block_size = call.block_size();
    let piece = PIECE / block_size;
    let data = call.alloc((piece * block_size) as usize)?;
    let to = call.task.sqe.slba();
    let left = BlockRange::new(Lba(0), BlockCount(0));
    let copy = Copy { list, ranges, next: None, left, to, data, piece, reading: 0 };
    Ok(Next::Receive { buf: list, at: 0, len, then: Work::Copy(copy) })
}

/// A Copy under way.
#[derive(Debug)]
pub(super) struct Copy {
    list: BufId,
    ranges: usize,
    /// The next source range; `None` until the list has been checked.
    next: Option<usize>,
    /// What is left of the one before.
    left: BlockRange,
    /// Where the next block goes.
    to: u64,
    data: BufId,
    /// Blocks that `data` has room for.
    piece: u32,
    /// Blocks that were read and are to be written now.
    reading: u32,
}

impl Copy {
    /// Checks everything before anything is written; then reads and writes in turn.
    pub(super) fn proceed(mut self, call: &mut Call<'_>) -> Outcome {
        let mut next = match self.next {
            Some(next) => next,
            None => self.check(call)?,
        };
        if self.reading > 0 {
            let (lba, count) = (Lba(self.to), BlockCount(self.reading));
            self.to += u64::from(self.reading);
            self.reading = 0;
            let op = Op::Write { lba, count, fua: call.task.sqe.fua(), buf: self.data };
            return call.submit(op, Work::Copy(self));
        }
        if self.left.count.0 == 0 {
            if next == self.ranges {
                return Ok(Next::SUCCESS);
            }
            self.left = self.source(call, next);
            next += 1;
        }
        self.next = Some(next);
        let BlockRange { start: lba, count: left } = self.left;
        self.reading = left.0.min(self.piece);
        self.left = BlockRange::new(Lba(lba.0 + u64::from(self.reading)), BlockCount(left.0 - self.reading));
        let op = Op::Read { lba, count: BlockCount(self.reading), buf: self.data };
        call.submit(op, Work::Copy(self))
    }

    /// Which source range was not copied whole: DW0 of a failure.
    pub(super) fn failed_range(&self) -> u64 {
        self.next.map_or(0, |next| next.saturating_sub(1)) as u64
    }

    fn check(&self, call: &Call<'_>) -> Result<usize, Stop> {
        let block_size = call.block_size();
        let mut blocks = 0;
        let fail = |i: usize, status: Status| Stop::FailedWith(status, i as u64);
        for i in 0..self.ranges {
            let range = self.source(call, i);
            if range.count.0 > u32::from(max_range(block_size)) {
                return Err(fail(i, Status::COMMAND_SIZE_LIMIT));
            }
            call.in_range(range).map_err(|status| fail(i, status))?;
            blocks += range.count.0;
        }
        if blocks > max_blocks(block_size) {
            return Err(Status::COMMAND_SIZE_LIMIT.into());
        }
        let target = call.in_range(BlockRange::new(Lba(self.to), BlockCount(blocks)))?;
        match (0..self.ranges).find(|&i| self.source(call, i).overlaps(target)) {
            Some(i) => Err(fail(i, Status::OVERLAPPING_RANGE)),
            None => Ok(0),
        }
    }

    /// A source range: SLBA in bytes 8 to 15, NLB, which counts from 0, in 16 and 17.
    fn source(&self, call: &Call<'_>, index: usize) -> BlockRange {
        let bytes = &call.memory.pool.bytes(self.list)[index * DESCRIPTOR..(index + 1) * DESCRIPTOR];
        let lba = u64::from_le_bytes(bytes[8..16].try_into().expect("eight bytes"));
        let count = u16::from_le_bytes([bytes[16], bytes[17]]);
        BlockRange::new(Lba(lba), BlockCount(u32::from(count) + 1))
    }
}
