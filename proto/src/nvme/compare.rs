//! Compare and Verify (NVM command set): blocks are read back and looked at. A Compare that is fused with a Write is in
//! `fused.rs`.
//!
//! "Verified" means as far as the disk lets us look: it may answer a read from its own cache.

use platter_block::{BlockCount, BlockRange, BufId, BufPool, Lba, Op};

use super::io::Call;
use super::status::Status;
use super::task::{Direction, Next, Outcome, Work};

/// How much Verify reads at once, in bytes.
const PIECE: u32 = 1 << 20;

pub(super) fn compare(call: &mut Call<'_>) -> Outcome {
    let (range, len) = call.data_range(Direction::FromHost)?;
    let data = call.alloc(len)?;
    let read = call.alloc(len)?;
    Ok(Next::Receive { buf: data, at: 0, len, then: Work::Compare(Compare { range, data, read, reading: false }) })
}

/// A Compare under way.
#[derive(Debug)]
pub(super) struct Compare {
    range: BlockRange,
    data: BufId,
    read: BufId,
    reading: bool,
}

impl Compare {
    pub(super) fn proceed(mut self, call: &mut Call<'_>) -> Outcome {
        if self.reading {
            return if self.is_equal(call.memory.pool) {
                Ok(Next::SUCCESS)
            } else {
                Err(Status::COMPARE_FAILURE.into())
            };
        }
        self.reading = true;
        let op = Op::Read { lba: self.range.start, count: self.range.count, buf: self.read };
        call.submit(op, Work::Compare(self))
    }

    fn is_equal(&self, pool: &BufPool) -> bool {
        pool.bytes(self.data) == pool.bytes(self.read)
    }
}

pub(super) fn verify(call: &mut Call<'_>) -> Outcome {
    let range = call.in_range(call.task.sqe.blocks())?;
    let block_size = call.block_size();
    let piece = (PIECE / block_size).min(range.count.0);
    let buf = call.alloc((piece * block_size) as usize)?;
    Verify { left: range, piece, buf }.proceed(call)
}

/// A Verify under way.
#[derive(Debug)]
pub(super) struct Verify {
    left: BlockRange,
    /// Blocks that are read at once.
    piece: u32,
    buf: BufId,
}

impl Verify {
    /// Reads the next piece.
    pub(super) fn proceed(mut self, call: &mut Call<'_>) -> Outcome {
        let BlockRange { start: lba, count: left } = self.left;
        if left.0 == 0 {
            return Ok(Next::SUCCESS);
        }
        let count = left.0.min(self.piece);
        self.left = BlockRange::new(Lba(lba.0 + u64::from(count)), BlockCount(left.0 - count));
        let op = Op::Read { lba, count: BlockCount(count), buf: self.buf };
        call.submit(op, Work::Verify(self))
    }
}
