//! Dataset Management (NVM command set): a list of ranges to deallocate. What it says about their use is a hint that
//! nothing here can use.

use platter_block::{BlockCount, BlockRange, BufId, Lba, Op};

use super::io::Call;
use super::status::Status;
use super::task::{Next, Outcome, Work};

/// Ranges of one command: as many as NR can say.
pub(super) const MAX_RANGES: usize = 256;

const RANGE: usize = 16;

/// AD, Attribute - Deallocate (CDW11 bit 2).
const AD: u32 = 1 << 2;

pub(super) fn manage(call: &mut Call<'_>) -> Outcome {
    let ranges = (call.task.sqe.cdw(10) & 0xff) as usize + 1;
    // Linux hosts give the room of the longest list, however short theirs is.
    let len = call.task.expect_list(ranges * RANGE, MAX_RANGES * RANGE)?;
    let list = call.alloc(len)?;
    Ok(Next::Receive { buf: list, at: 0, len, then: Work::Deallocate(Deallocate { list, ranges, next: None }) })
}

/// A deallocation under way.
#[derive(Debug)]
pub(super) struct Deallocate {
    list: BufId,
    ranges: usize,
    /// The next range to look at; `None` until the list has been checked.
    next: Option<usize>,
}

impl Deallocate {
    /// Checks the whole list before anything is deallocated; then one op after the other.
    pub(super) fn proceed(mut self, call: &mut Call<'_>) -> Outcome {
        let mut next = match self.next {
            Some(next) => next,
            None => self.first(call)?,
        };
        while next < self.ranges {
            let BlockRange { start: lba, count } = self.range(call, next);
            next += 1;
            if count.0 > 0 {
                self.next = Some(next);
                return call.submit(Op::Unmap { lba, count }, Work::Deallocate(self));
            }
        }
        Ok(Next::SUCCESS)
    }

    /// The first range to deallocate: there is none if nothing is asked for or can be done.
    fn first(&self, call: &Call<'_>) -> Result<usize, Status> {
        for i in 0..self.ranges {
            call.in_range(self.range(call, i))?;
        }
        let wanted = call.task.sqe.cdw(11) & AD != 0 && call.info().discard.is_some();
        Ok(if wanted { 0 } else { self.ranges })
    }

    /// A range: context attributes, length, starting LBA.
    fn range(&self, call: &Call<'_>, index: usize) -> BlockRange {
        let bytes = &call.memory.pool.bytes(self.list)[index * RANGE..(index + 1) * RANGE];
        let count = u32::from_le_bytes(bytes[4..8].try_into().expect("four bytes"));
        let lba = u64::from_le_bytes(bytes[8..].try_into().expect("eight bytes"));
        BlockRange::new(Lba(lba), BlockCount(count))
    }
}
