//! WRITE SAME (SBC-3 5.42, 5.43): one block written many times.

use platter_block::{BlockCount, BlockRange, BufId, Lba, Op};

use super::cdb::Blocks;
use super::rw::in_range;
use super::sense::{Code, Fail, Sense};
use super::task::{Call, Next, Outcome, Work};
use super::unit::MAX_SAME;

/// How much of a pattern is written at once, in bytes.
const PIECE: u32 = 1 << 20;

/// How many bytes of zeroes are written by one op: few enough for an abort to be quick on a slow disk.
const ZEROES: u64 = 64 << 20;

const UNMAP: u8 = 0x08;
const NDOB: u8 = 0x01;

/// WRITE SAME(10), (16). NUMBER OF LOGICAL BLOCKS 0 means "to the end" (WSNZ is 0). Zeroes are written without sending
/// them; other patterns are replicated in a buffer of bounded size.
///
/// UNMAP=1 asks for deallocation, and blocks read as zeroes afterwards whatever the block from the initiator says. SBC-3
/// 4.7.3.4.4 would have a block that is not zeroes written instead; the Linux targets (LIO, tgt, scsi_debug) and the
/// conformance tests of libiscsi take it as is done here, and no initiator is known to send such a block.
pub(super) fn write_same(call: &mut Call<'_>) -> Outcome {
    let cdb = call.cdb();
    let Blocks { lba, count, count_at } = cdb.blocks();
    in_range(call, BlockRange::new(Lba(lba), BlockCount(count)))?;
    let left = if count == 0 { call.unit().blocks() - lba } else { u64::from(count) };
    let left = u32::try_from(left).ok().filter(|&l| l <= MAX_SAME).ok_or(Sense::cdb_byte(count_at))?;
    let may_unmap = cdb.has(1, UNMAP);
    let no_data = cdb.opcode() == 0x93 && cdb.has(1, NDOB);
    let block_size = call.unit().block_size();
    let expected = if no_data { 0 } else { block_size };
    if !no_data && call.task.out_len != expected {
        return Err(Sense::illegal(Code::INVALID_FIELD_IN_COMMAND_INFORMATION_UNIT).into());
    }
    let same = Same { lba, left, running: 0, block_size, may_unmap, source: Source::Zeroes };
    if left == 0 {
        return Ok(Next::GOOD);
    }
    if no_data {
        return same.proceed(call);
    }
    let len = block_size as usize;
    let buf = call.alloc(len)?;
    call.task.out_transfer = u64::from(block_size);
    Ok(Next::Receive { buf, len, then: Work::Same(Same { source: Source::Block(buf), ..same }) })
}

/// A WRITE SAME under way.
#[derive(Debug)]
pub(super) struct Same {
    lba: u64,
    left: u32,
    /// Blocks that the running op writes.
    running: u32,
    block_size: u32,
    may_unmap: bool,
    source: Source,
}

#[derive(Clone, Copy, Debug)]
enum Source {
    /// The block from the initiator, not yet looked at.
    Block(BufId),
    Zeroes,
    /// `count` copies of the block.
    Copies {
        buf: BufId,
        count: u32,
    },
}

impl Same {
    /// Writes the next piece.
    pub(super) fn proceed(mut self, call: &mut Call<'_>) -> Outcome {
        self.lba += u64::from(self.running);
        self.left -= self.running;
        if self.left == 0 {
            return Ok(Next::GOOD);
        }
        if let Source::Block(block) = self.source {
            self.source = self.prepare(call, block)?;
        }
        let lba = Lba(self.lba);
        let op = match self.source {
            Source::Copies { buf, count } => {
                self.running = self.left.min(count);
                Op::Write { lba, count: BlockCount(self.running), fua: false, buf }
            }
            Source::Zeroes | Source::Block(_) => {
                self.running = self.left.min((ZEROES / u64::from(self.block_size)) as u32);
                let (count, may_unmap) = (BlockCount(self.running), self.may_unmap);
                Op::WriteZeroes { lba, count, fua: false, may_unmap }
            }
        };
        Ok(Next::Submit { op, then: Work::Same(self) })
    }

    fn prepare(&self, call: &mut Call<'_>, block: BufId) -> Result<Source, Fail> {
        let len = self.block_size as usize;
        if self.may_unmap || call.pool.bytes(block).iter().all(|&b| b == 0) {
            return Ok(Source::Zeroes);
        }
        let count = call.unit().blocks_in(PIECE).min(self.left);
        let buf = call.alloc(count as usize * len)?;
        let block = call.pool.bytes(block).to_vec();
        call.pool.bytes_mut(buf).chunks_exact_mut(len).for_each(|copy| copy.copy_from_slice(&block));
        Ok(Source::Copies { buf, count })
    }
}
