//! One op on one disk, in bytes.

use platter_block::{DiskInfo, DiskOp, IoSlice, Status};

/// Whether a disk with `info` takes `op`.
///
/// # Panics
///
/// If `data` is not what [`Backend::submit`](crate::Backend::submit) asks for.
pub(crate) fn check(info: &DiskInfo, op: &DiskOp, data: Option<&IoSlice>) -> Result<(), Status> {
    let (range, writes) = match *op {
        DiskOp::Read { lba, count, .. } | DiskOp::BlockStatus { lba, count } => ((lba, count), false),
        DiskOp::Write { lba, count, .. } | DiskOp::WriteZeroes { lba, count, .. } | DiskOp::Unmap { lba, count } => {
            ((lba, count), true)
        }
        DiskOp::Flush => return Ok(()),
    };
    let range = platter_block::BlockRange::new(range.0, range.1);
    let expected = match op {
        DiskOp::Read { .. } | DiskOp::Write { .. } => Some(range.count.bytes(info.block_size)),
        _ => None,
    };
    assert_eq!(data.map(|d| d.len() as u64), expected, "the data of {op:?}");
    if !range.within(info.blocks) {
        return Err(Status::LbaOutOfRange);
    }
    if writes && info.read_only {
        return Err(Status::WriteProtected);
    }
    if matches!(op, DiskOp::Unmap { .. }) && info.discard.is_none() {
        return Err(Status::Unsupported);
    }
    Ok(())
}
