//! Reading and writing blocks (SBC-3 5): READ, WRITE, ORWRITE, COMPARE AND WRITE, PRE-FETCH, SYNCHRONIZE CACHE.

use platter_block::{BlockCount, BlockRange, BufId, Lba, Op};

use super::cdb::Blocks;
use super::command::DataIn;
use super::sense::{Code, Fail, Sense};
use super::task::{Call, Next, Outcome, Work};

/// READ(6), (10), (12), (16). FUA asks for the medium's own data; a cache of the disk holds nothing older, so a plain read
/// does. DPO is a hint and needs nothing.
pub(super) fn read(call: &mut Call<'_>) -> Outcome {
    let range = data_range(call)?;
    let block_size = call.unit().block_size();
    let transfer = range.count.bytes(block_size);
    call.task.in_transfer = transfer;
    // Blocks that the initiator has no room for are not read: the transport reports them as overflow.
    let count = transfer.min(u64::from(call.task.in_len)).div_ceil(u64::from(block_size)) as u32;
    if count == 0 {
        return Ok(Next::GOOD);
    }
    let len = (count * block_size) as usize;
    let buf = call.alloc(len)?;
    let op = Op::Read { lba: range.start, count: BlockCount(count), buf };
    Ok(Next::Submit { op, then: Work::Reply(Some(DataIn { buf, at: 0, len })) })
}

/// WRITE(6), (10), (12), (16).
pub(super) fn write(call: &mut Call<'_>) -> Outcome {
    let fua = call.cdb().fua();
    let Some(data) = offered_blocks(call, 1)? else { return Ok(Next::GOOD) };
    let then = match data.range {
        Some(BlockRange { start, count }) => Work::Submit(Op::Write { lba: start, count, fua, buf: data.buf }),
        None => Work::Reply(None),
    };
    Ok(Next::Receive { buf: data.buf, len: data.len, then })
}

/// ORWRITE(16) (SBC-3 5.12).
pub(super) fn or_write(call: &mut Call<'_>) -> Outcome {
    let fua = call.cdb().fua();
    let Some(data) = offered_blocks(call, 2)? else { return Ok(Next::GOOD) };
    let then = match data.range {
        Some(BlockRange { start, count }) => Work::Submit(Op::OrWrite { lba: start, count, fua, buf: data.buf }),
        None => Work::Reply(None),
    };
    Ok(Next::Receive { buf: data.buf, len: data.len, then })
}

/// COMPARE AND WRITE (SBC-3 5.2). The data must be as long as the CDB says: half of it means nothing.
pub(super) fn compare_and_write(call: &mut Call<'_>) -> Outcome {
    const COUNT_AT: u16 = 13;
    let cdb = call.cdb();
    let (lba, count) = (Lba(cdb.u64(2)), u32::from(cdb.byte(13)));
    let max = u32::from(call.unit().max_compare());
    let block_size = call.unit().block_size();
    let both = 2 * u64::from(count) * u64::from(block_size);
    let offered = u64::from(call.task.out_len);
    // An initiator that offers more than the largest COMPARE AND WRITE can take means more blocks than the field can hold.
    if count > max || offered > 2 * u64::from(max) * u64::from(block_size) {
        return Err(Sense::cdb_byte(COUNT_AT).into());
    }
    in_range(call, BlockRange::new(lba, BlockCount(count)))?;
    if count == 0 {
        return Ok(Next::GOOD);
    }
    if offered != both {
        return Err(Sense::illegal(Code::INVALID_FIELD_IN_COMMAND_INFORMATION_UNIT).into());
    }
    let len = both as usize;
    let buf = call.alloc(len / 2 * 3)?;
    call.task.out_transfer = both;
    let op = Op::CompareAndWrite { lba, count: BlockCount(count), fua: cdb.fua(), buf };
    Ok(Next::Receive { buf, len, then: Work::Submit(op) })
}

/// PRE-FETCH(10), (16) (SBC-3 5.13). There is no cache here to fetch into, so nothing is fetched, and GOOD says just that:
/// CONDITION MET would say that all blocks are in a cache. IMMED has nothing to cut short.
pub(super) fn pre_fetch(call: &mut Call<'_>) -> Outcome {
    range_to_end(call)?;
    Ok(Next::GOOD)
}

/// SYNCHRONIZE CACHE(10), (16) (SBC-3 5.28). The whole volume is flushed, which covers every range. IMMED=1 is accepted and
/// answered like IMMED=0, when the flush is done: an early GOOD could only be taken back by a deferred error, which
/// initiators handle badly or not at all.
pub(super) fn synchronize_cache(call: &mut Call<'_>) -> Outcome {
    range_to_end(call)?;
    Ok(Next::Submit { op: Op::Flush, then: Work::Reply(None) })
}

/// The range of a command that moves data: within the volume and not longer than MAXIMUM TRANSFER LENGTH.
pub(super) fn data_range(call: &Call<'_>) -> Result<BlockRange, Fail> {
    let Blocks { lba, count, count_at } = call.cdb().blocks();
    let range = in_range(call, BlockRange::new(Lba(lba), BlockCount(count)))?;
    if count > call.unit().max_transfer() {
        return Err(Sense::cdb_byte(count_at).into());
    }
    Ok(range)
}

/// The range itself, if it lies within the volume.
pub(super) fn in_range(call: &Call<'_>, range: BlockRange) -> Result<BlockRange, Fail> {
    if range.within(call.unit().blocks()) { Ok(range) } else { Err(Sense::illegal(Code::LBA_OUT_OF_RANGE).into()) }
}

/// Data-Out of a write.
pub(super) struct Offered {
    pub(super) buf: BufId,
    /// Bytes to receive, at least 1.
    pub(super) len: usize,
    /// The blocks that these bytes fill; `None` if not even one.
    pub(super) range: Option<BlockRange>,
}

/// What the initiator offers of the data of a write, in a buffer of `parts` times the size. An initiator that offers less
/// than the CDB asks for gets the whole blocks written, and the overflow reported by the transport; `None` if it offers
/// nothing or the CDB asks for nothing.
pub(super) fn offered_blocks(call: &mut Call<'_>, parts: usize) -> Result<Option<Offered>, Fail> {
    let range = data_range(call)?;
    let block_size = call.unit().block_size();
    let transfer = range.count.bytes(block_size);
    let len = transfer.min(u64::from(call.task.out_len)) as usize;
    if len == 0 {
        call.task.out_transfer = transfer;
        return Ok(None);
    }
    let count = len as u32 / block_size;
    let whole = (count.max(1) * block_size) as usize;
    let buf = call.alloc(whole.max(len) * parts)?;
    call.task.out_transfer = transfer;
    let range = (count > 0).then_some(BlockRange::new(range.start, BlockCount(count)));
    Ok(Some(Offered { buf, len, range }))
}

/// The range of a command whose length 0 means "to the end"; no data, so any length.
fn range_to_end(call: &Call<'_>) -> Result<(), Fail> {
    let Blocks { lba, count, .. } = call.cdb().blocks();
    in_range(call, BlockRange::new(Lba(lba), BlockCount(count))).map(|_| ())
}
