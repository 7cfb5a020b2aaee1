//! VERIFY and WRITE AND VERIFY (SBC-3 5.30, 5.38): reading blocks back, a piece at a time, and comparing them.
//!
//! "Verified" means as far as the disk lets us look: it may answer a read from its own cache.

use platter_block::{BlockCount, BlockRange, BufId, Lba, Op};

use super::cdb::Blocks;
use super::rw::{data_range, in_range, offered_blocks};
use super::sense::{Code, Fail, Sense};
use super::task::{Call, Next, Outcome, Work};

/// How much is read at once, in bytes.
const PIECE: u32 = 1 << 20;

/// BYTCHK, where it begins in byte 1 (bits 2 to 1).
const BYTCHK_BIT: u8 = 2;

/// VERIFY(10), (12), (16). With BYTCHK 00b blocks only have to be readable, so the initiator sends nothing and any length
/// will do; likewise with 11b, where it sends one block that all must equal.
pub(super) fn verify(call: &mut Call<'_>) -> Outcome {
    let Blocks { lba, count, .. } = call.cdb().blocks();
    let range = in_range(call, BlockRange::new(Lba(lba), BlockCount(count)))?;
    let bytchk = call.cdb().byte(1) >> 1 & 0b11;
    let data_len = match bytchk {
        0b00 => 0,
        0b01 => data_range(call)?.count.bytes(call.unit().block_size()),
        0b11 if count == 0 => 0,
        0b11 => u64::from(call.unit().block_size()),
        _ => return Err(Sense::cdb_bit(1, BYTCHK_BIT).into()),
    };
    if count == 0 {
        return Ok(Next::GOOD);
    }
    if bytchk == 0b00 {
        return Verify::new(call, range, Against::Nothing)?.proceed(call);
    }
    if u64::from(call.task.out_len) < data_len {
        // Unlike a write, a comparison with part of the data answers another question than the one asked.
        return Err(Sense::illegal(Code::INVALID_FIELD_IN_COMMAND_INFORMATION_UNIT).into());
    }
    let len = data_len as usize;
    let buf = call.alloc(len)?;
    let against = if bytchk == 0b01 { Against::Data(buf) } else { Against::Pattern(buf) };
    let verify = Verify::new(call, range, against)?;
    call.task.out_transfer = data_len;
    Ok(Next::Receive { buf, len, then: Work::Verify(verify) })
}

/// WRITE AND VERIFY(10), (12), (16). The write goes to the medium (FUA), since that is what is to be verified.
pub(super) fn write_and_verify(call: &mut Call<'_>) -> Outcome {
    let compare = match call.cdb().byte(1) >> 1 & 0b11 {
        0b00 => false,
        0b01 => true,
        _ => return Err(Sense::cdb_bit(1, BYTCHK_BIT).into()),
    };
    let Some(data) = offered_blocks(call, 1)? else { return Ok(Next::GOOD) };
    let then = match data.range {
        Some(range) => {
            let against = if compare { Against::Data(data.buf) } else { Against::Nothing };
            let verify = Verify::new(call, range, against)?;
            let op = Op::Write { lba: range.start, count: range.count, fua: true, buf: data.buf };
            Work::WriteThenVerify(op, verify)
        }
        None => Work::Reply(None),
    };
    Ok(Next::Receive { buf: data.buf, len: data.len, then })
}

/// A verification under way.
#[derive(Debug)]
pub(super) struct Verify {
    /// Blocks not yet verified.
    left: BlockRange,
    /// The first blocks of `left` that are in `read` now. 0 before the first read.
    reading: u32,
    piece: u32,
    block_size: u32,
    read: BufId,
    against: Against,
    /// Bytes verified.
    done: usize,
}

/// What the blocks are compared with.
#[derive(Clone, Copy, Debug)]
enum Against {
    /// They only have to be readable.
    Nothing,
    /// As many bytes as blocks are verified.
    Data(BufId),
    /// One block.
    Pattern(BufId),
}

impl Verify {
    fn new(call: &mut Call<'_>, range: BlockRange, against: Against) -> Result<Self, Fail> {
        let block_size = call.unit().block_size();
        let piece = call.unit().blocks_in(PIECE).min(range.count.0);
        let read = call.alloc((piece * block_size) as usize)?;
        Ok(Self { left: range, reading: 0, piece, block_size, read, against, done: 0 })
    }

    /// Compares what was read, reads the next piece.
    pub(super) fn proceed(mut self, call: &mut Call<'_>) -> Outcome {
        let len = (self.reading * self.block_size) as usize;
        if let Some(at) = self.first_difference(call, len) {
            return Err(Fail::miscompare((self.done + at) as u64));
        }
        self.done += len;
        let lba = Lba(self.left.start.0 + u64::from(self.reading));
        let left = self.left.count.0 - self.reading;
        if left == 0 {
            return Ok(Next::GOOD);
        }
        self.left = BlockRange::new(lba, BlockCount(left));
        self.reading = left.min(self.piece);
        let op = Op::Read { lba, count: BlockCount(self.reading), buf: self.read };
        Ok(Next::Submit { op, then: Work::Verify(self) })
    }

    fn first_difference(&self, call: &Call<'_>, len: usize) -> Option<usize> {
        let read = &call.pool.bytes(self.read)[..len];
        match self.against {
            Against::Nothing => None,
            Against::Data(buf) => differ(read, &call.pool.bytes(buf)[self.done..self.done + len]),
            Against::Pattern(buf) => {
                let pattern = call.pool.bytes(buf);
                let blocks = read.chunks(pattern.len()).enumerate();
                blocks.map(|(i, block)| differ(block, pattern).map(|at| i * pattern.len() + at)).find_map(|d| d)
            }
        }
    }
}

/// Where two slices of the same length first differ. Equality is tried first because it is fast and the usual case.
fn differ(a: &[u8], b: &[u8]) -> Option<usize> {
    if a == b { None } else { a.iter().zip(b).position(|(x, y)| x != y) }
}
