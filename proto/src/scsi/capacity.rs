//! How large the medium is and which of its blocks are there: READ CAPACITY, GET LBA STATUS.

use platter_block::{BlockCount, BlockRange, Extent, Lba, Op, Report};

use super::rw::in_range;
use super::task::{Call, Next, Outcome, Work};

/// How far GET LBA STATUS looks, in blocks. The initiator asks again from where the answer ends.
const LOOK_AHEAD: u64 = 1 << 22;

/// Most LBA status descriptors in one answer.
const MAX_DESCRIPTORS: usize = 256;

/// READ CAPACITY(10) (SBC-3 5.15). A volume too large for 32 bits says FFFFFFFFh: ask READ CAPACITY(16).
pub(super) fn read_capacity_10(call: &mut Call<'_>) -> Outcome {
    let unit = call.unit();
    let last = u32::try_from(last_lba(unit.blocks())).unwrap_or(u32::MAX);
    let mut data = [0; 8];
    data[..4].copy_from_slice(&last.to_be_bytes());
    data[4..].copy_from_slice(&unit.block_size().to_be_bytes());
    call.reply_with(&data, data.len() as u32)
}

/// READ CAPACITY(16) (SBC-3 5.16).
pub(super) fn read_capacity_16(call: &mut Call<'_>) -> Outcome {
    let unit = call.unit();
    let info = unit.info();
    let mut data = [0; 32];
    data[..8].copy_from_slice(&last_lba(unit.blocks()).to_be_bytes());
    data[8..12].copy_from_slice(&unit.block_size().to_be_bytes());
    // LOGICAL BLOCKS PER PHYSICAL BLOCK EXPONENT; logical block 0 is aligned.
    data[13] = (info.physical_block / info.block_size).max(1).ilog2() as u8;
    if let Some(discard) = info.discard {
        const LBPME: u8 = 0x80;
        const LBPRZ: u8 = 0x40;
        data[14] = LBPME | if discard.reads_zeroes { LBPRZ } else { 0 };
    }
    let allocation_length = call.cdb().u32(10);
    call.reply_with(&data, allocation_length)
}

/// GET LBA STATUS (SBC-3 5.6).
pub(super) fn get_lba_status(call: &mut Call<'_>) -> Outcome {
    let lba = call.cdb().u64(2);
    in_range(call, BlockRange::new(Lba(lba), BlockCount(1)))?;
    let count = (call.unit().blocks() - lba).min(LOOK_AHEAD) as u32;
    let status = LbaStatus { lba: Lba(lba), count: BlockCount(count) };
    Ok(Next::Submit { op: Op::BlockStatus { lba: status.lba, count: status.count }, then: Work::LbaStatus(status) })
}

/// A GET LBA STATUS under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct LbaStatus {
    lba: Lba,
    count: BlockCount,
}

impl LbaStatus {
    /// Encodes the report. A volume that knows nothing of allocation has all its blocks mapped.
    pub(super) fn proceed(self, call: &mut Call<'_>, report: Option<Box<Report>>) -> Outcome {
        let mapped = [Extent { lba: self.lba, count: self.count, mapped: true }];
        let extents = match report.as_deref() {
            Some(Report::Extents(extents)) if !extents.is_empty() => extents.as_slice(),
            _ => &mapped,
        };
        let extents = &extents[..extents.len().min(MAX_DESCRIPTORS)];
        let mut data = vec![0; 8];
        for extent in extents {
            const MAPPED: u8 = 0;
            const DEALLOCATED: u8 = 1;
            data.extend_from_slice(&extent.lba.0.to_be_bytes());
            data.extend_from_slice(&extent.count.0.to_be_bytes());
            data.extend_from_slice(&[if extent.mapped { MAPPED } else { DEALLOCATED }, 0, 0, 0]);
        }
        let parameter_data_length = (data.len() - 4) as u32;
        data[..4].copy_from_slice(&parameter_data_length.to_be_bytes());
        let allocation_length = call.cdb().u32(10);
        call.reply_with(&data, allocation_length)
    }
}

/// RETURNED LOGICAL BLOCK ADDRESS. A volume without blocks cannot be told on the wire; it is not configured either.
const fn last_lba(blocks: u64) -> u64 {
    blocks.saturating_sub(1)
}
