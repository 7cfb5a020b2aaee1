//! Which ops of one volume must wait for which: exclusive ops, and fences.
//!
//! * Plain ops share: two of them never wait for each other, as on a disk.
//! * An exclusive op (compare-and-write, OR-write) waits for every op that entered before it and overlaps it, and every op
//!   that enters after it and overlaps it waits for it. First come, first served: nobody is passed for ever.
//! * A *fence* is an aborted write that its disk has not ended yet: ops that enter after it and overlap it wait for it, so
//!   that none of them can see the medium change under it.
//!
//! Entering and leaving cost a few instructions while the volume has neither exclusive ops nor fences, and one pass over
//! its ops in flight (at most [`MAX_OPS_PER_VOLUME`](crate::MAX_OPS_PER_VOLUME)) otherwise.

use std::collections::VecDeque;

use platter_block::BlockRange;

use crate::slab::Key;

/// How an op uses its range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Access {
    /// Beside other shared ones.
    Shared,
    /// Alone.
    Exclusive,
}

/// Names an op that entered and has not left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RangeId(u32);

/// The ops of one volume, running and waiting.
#[derive(Debug, Default)]
pub(crate) struct Ranges {
    entries: Vec<Option<Entry>>,
    vacant: Vec<u32>,
    next_order: u64,
    /// Entries with exclusive access, running or waiting. While there are none, nobody waits.
    exclusive: u32,
}

#[derive(Debug)]
struct Entry {
    range: BlockRange,
    access: Access,
    owner: Key,
    /// Order of entering.
    order: u64,
    /// Conflicting entries that entered before and have not left. It waits while there are some.
    blockers: u32,
}

impl Entry {
    fn conflicts(&self, range: BlockRange, access: Access) -> bool {
        let alone = self.access == Access::Exclusive || access == Access::Exclusive;
        alone && self.range.overlaps(range)
    }
}

impl Ranges {
    /// Enters an op. True: it may start. False: it waits until [`leave`](Self::leave) names it.
    pub(crate) fn enter(&mut self, range: BlockRange, access: Access, owner: Key) -> (RangeId, bool) {
        let blockers = if self.exclusive == 0 && access == Access::Shared {
            0
        } else {
            let before = self.entries.iter().flatten().filter(|e| e.conflicts(range, access)).count();
            u32::try_from(before).expect("ops in flight are limited")
        };
        let entry = Entry { range, access, owner, order: self.next_order, blockers };
        self.next_order += 1;
        self.exclusive += u32::from(access == Access::Exclusive);
        let index = match self.vacant.pop() {
            Some(index) => {
                self.entries[index as usize] = Some(entry);
                index
            }
            None => {
                self.entries.push(Some(entry));
                u32::try_from(self.entries.len() - 1).expect("ops in flight are limited")
            }
        };
        (RangeId(index), blockers == 0)
    }

    /// Makes a running or waiting op a fence: whoever enters later and overlaps it waits until it leaves.
    pub(crate) fn fence(&mut self, id: RangeId) {
        let entry = self.entries[id.0 as usize].as_mut().expect("only an op that has not left is fenced");
        if entry.access == Access::Exclusive {
            return;
        }
        entry.access = Access::Exclusive;
        let (range, order) = (entry.range, entry.order);
        self.exclusive += 1;
        // Shared entries that came later and still wait (for another one) did not count this one when they entered.
        for later in self.entries.iter_mut().flatten() {
            if later.order > order
                && later.blockers > 0
                && later.access == Access::Shared
                && later.range.overlaps(range)
            {
                later.blockers += 1;
            }
        }
    }

    /// An op leaves, whether it ran or still waited. Who may start now is appended to `runnable`, first come first.
    pub(crate) fn leave(&mut self, id: RangeId, runnable: &mut VecDeque<Key>) {
        let left = self.entries[id.0 as usize].take().expect("an op leaves once");
        self.vacant.push(id.0);
        if self.exclusive == 0 {
            return;
        }
        self.exclusive -= u32::from(left.access == Access::Exclusive);
        let mut freed = Vec::new();
        for later in self.entries.iter_mut().flatten() {
            if later.order > left.order && later.blockers > 0 && later.conflicts(left.range, left.access) {
                later.blockers -= 1;
                if later.blockers == 0 {
                    freed.push((later.order, later.owner));
                }
            }
        }
        freed.sort_unstable_by_key(|&(order, _)| order);
        runnable.extend(freed.into_iter().map(|(_, owner)| owner));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use platter_block::{BlockCount, Lba};

    fn enter(ranges: &mut Ranges, start: u64, count: u32, access: Access, owner: u64) -> (RangeId, bool) {
        ranges.enter(BlockRange::new(Lba(start), BlockCount(count)), access, Key(owner))
    }

    fn leave(ranges: &mut Ranges, id: RangeId) -> Vec<u64> {
        let mut runnable = VecDeque::new();
        ranges.leave(id, &mut runnable);
        runnable.into_iter().map(|key| key.0).collect()
    }

    #[test]
    fn shared_ops_never_wait_for_each_other() {
        let mut r = Ranges::default();
        let (a, starts) = enter(&mut r, 0, 8, Access::Shared, 1);
        assert!(starts);
        assert!(enter(&mut r, 0, 8, Access::Shared, 2).1);
        assert_eq!(leave(&mut r, a), []);
    }

    #[test]
    fn an_exclusive_op_waits_for_the_overlapping_ones_before_it_and_later_ones_wait_for_it() {
        let mut r = Ranges::default();
        let (a, _) = enter(&mut r, 0, 8, Access::Shared, 1);
        let (b, _) = enter(&mut r, 4, 8, Access::Shared, 2);
        let (x, starts) = enter(&mut r, 7, 1, Access::Exclusive, 3);
        assert!(!starts);
        assert!(!enter(&mut r, 7, 1, Access::Shared, 4).1, "a waiting exclusive op is not passed");
        assert!(enter(&mut r, 8, 1, Access::Shared, 5).1, "no overlap, no wait");
        assert_eq!(leave(&mut r, a), []);
        assert_eq!(leave(&mut r, b), [3]);
        assert_eq!(leave(&mut r, x), [4]);
    }

    #[test]
    fn when_a_waiting_op_leaves_those_behind_it_go_on_in_order() {
        let mut r = Ranges::default();
        let (a, _) = enter(&mut r, 0, 1, Access::Exclusive, 1);
        let (b, _) = enter(&mut r, 0, 2, Access::Exclusive, 2);
        enter(&mut r, 1, 1, Access::Shared, 3);
        enter(&mut r, 1, 1, Access::Shared, 4);
        assert_eq!(leave(&mut r, b), [3, 4], "they waited only for the one that gave up");
        assert_eq!(leave(&mut r, a), []);
    }

    #[test]
    fn a_fence_holds_back_whoever_enters_later_or_still_waits() {
        let mut r = Ranges::default();
        let (x, _) = enter(&mut r, 0, 1, Access::Exclusive, 1);
        let (w, starts) = enter(&mut r, 4, 4, Access::Shared, 2);
        assert!(starts);
        let (wide, starts) = enter(&mut r, 0, 8, Access::Shared, 3);
        assert!(!starts, "waits for the exclusive op");
        r.fence(w);
        r.fence(w);
        assert!(!enter(&mut r, 7, 1, Access::Shared, 4).1);
        assert_eq!(leave(&mut r, x), [], "the waiting one now waits for the fence too");
        assert_eq!(leave(&mut r, w), [3, 4]);
        assert_eq!(leave(&mut r, wide), []);
        assert_eq!(r.exclusive, 0);
    }
}
