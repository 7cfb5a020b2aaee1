//! UNMAP (SBC-3 5.28): a list of ranges to deallocate.

use platter_block::{BlockCount, BlockRange, BufId, Lba, Op};

use super::rw::in_range;
use super::sense::{Code, Fail, Sense};
use super::task::{Call, Next, Outcome, Work};

/// MAXIMUM UNMAP BLOCK DESCRIPTOR COUNT.
pub(super) const MAX_DESCRIPTORS: u32 = 256;

/// MAXIMUM UNMAP LBA COUNT: blocks of all descriptors together.
pub(super) const MAX_BLOCKS: u32 = 1 << 20;

const HEADER: usize = 8;
const DESCRIPTOR: usize = 16;

/// UNMAP. ANCHOR is not supported.
pub(super) fn unmap(call: &mut Call<'_>) -> Outcome {
    match usize::from(call.cdb().u16(7)) {
        0 => Ok(Next::GOOD),
        len if len < HEADER => Err(Sense::illegal(Code::PARAMETER_LIST_LENGTH_ERROR).into()),
        len => call.receive_list(len, |list| Work::Unmap(Unmap { list, checked: None, next: 0 })),
    }
}

/// An UNMAP under way.
#[derive(Debug)]
pub(super) struct Unmap {
    list: BufId,
    /// How many descriptors there are, once the list has been checked.
    checked: Option<usize>,
    /// The next descriptor to look at.
    next: usize,
}

impl Unmap {
    /// Checks the whole list before anything is deallocated; then one op after the other.
    pub(super) fn proceed(mut self, call: &mut Call<'_>) -> Outcome {
        let descriptors = match self.checked {
            Some(n) => n,
            None => self.check(call)?,
        };
        self.checked = Some(descriptors);
        while self.next < descriptors {
            let BlockRange { start: lba, count } = self.descriptor(call, self.next);
            self.next += 1;
            if count.0 > 0 {
                return Ok(Next::Submit { op: Op::Unmap { lba, count }, then: Work::Unmap(self) });
            }
        }
        Ok(Next::GOOD)
    }

    /// The number of descriptors, if all are acceptable. An incomplete one at the end is ignored, as the standard has it.
    fn check(&self, call: &Call<'_>) -> Result<usize, Fail> {
        const BLOCK_DESCRIPTOR_DATA_LENGTH: usize = 2;
        let list = call.pool.bytes(self.list);
        let data_len = usize::from(u16::from_be_bytes([list[2], list[3]]));
        if data_len > list.len() - HEADER || data_len / DESCRIPTOR > MAX_DESCRIPTORS as usize {
            return Err(Sense::list_byte(BLOCK_DESCRIPTOR_DATA_LENGTH as u16).into());
        }
        let descriptors = data_len / DESCRIPTOR;
        let mut blocks = 0u64;
        for i in 0..descriptors {
            let range = in_range(call, self.descriptor(call, i))?;
            blocks += u64::from(range.count.0);
            if blocks > u64::from(MAX_BLOCKS) {
                return Err(Sense::list_byte((HEADER + i * DESCRIPTOR + 8) as u16).into());
            }
        }
        Ok(descriptors)
    }

    fn descriptor(&self, call: &Call<'_>, index: usize) -> BlockRange {
        let at = HEADER + index * DESCRIPTOR;
        let bytes = &call.pool.bytes(self.list)[at..at + DESCRIPTOR];
        let lba = u64::from_be_bytes(bytes[..8].try_into().expect("eight bytes"));
        let count = u32::from_be_bytes(bytes[8..12].try_into().expect("four bytes"));
        BlockRange::new(Lba(lba), BlockCount(count))
    }
}
