//! Which ops are in flight, so that each ends exactly once.
//!
//! An op is entered when it is accepted and struck off when the kernel or a thread has let go of it. In between its disk
//! may be removed: then it ends `Gone` at once, and what the kernel says later is heard only to strike it off.

use platter_block::{DiskId, IoId, Report, Status};

use crate::{Ended, MAX_IN_FLIGHT};

/// The ops of one backend.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    entries: Vec<Option<Entry>>,
    vacant: Vec<u32>,
    /// Entries whose end has not been told.
    open: usize,
    /// To be told at the next `reap`.
    ended: Vec<Ended>,
}

/// Names an entry from `enter` to `strike_off`; then it is used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Key(pub(crate) u32);

#[derive(Debug)]
struct Entry {
    io: IoId,
    disk: DiskId,
    /// Its disk was removed and its end has been told.
    gone: bool,
}

impl Ledger {
    /// Accepts an op, or ends it `Busy` at the limit.
    pub(crate) fn enter(&mut self, io: IoId, disk: DiskId) -> Option<Key> {
        if self.entries.len() - self.vacant.len() + self.ended.len() >= MAX_IN_FLIGHT {
            self.refuse(io, disk, Status::Busy);
            return None;
        }
        let key = self.vacant.pop().map(Key).unwrap_or_else(|| {
            self.entries.push(None);
            Key(u32::try_from(self.entries.len() - 1).expect("MAX_IN_FLIGHT is far below 2^32"))
        });
        self.entries[key.0 as usize] = Some(Entry { io, disk, gone: false });
        self.open += 1;
        Some(key)
    }

    /// Ends an op that was not accepted.
    pub(crate) fn refuse(&mut self, io: IoId, disk: DiskId, status: Status) {
        self.ended.push(Ended::new(io, disk, status));
    }

    /// Nobody works on the op any more: it ends with `status`, unless it has ended `Gone`.
    pub(crate) fn strike_off(&mut self, key: Key, status: Status, report: Option<Box<Report>>) {
        let entry = self.entries[key.0 as usize].take().expect("an op is struck off once");
        self.vacant.push(key.0);
        if !entry.gone {
            self.open -= 1;
            self.ended.push(Ended { io: entry.io, disk: entry.disk, status, report });
        }
    }

    /// The disk of an op; `None` if it was removed.
    pub(crate) fn disk(&self, key: Key) -> Option<DiskId> {
        self.entries[key.0 as usize].as_ref().filter(|e| !e.gone).map(|e| e.disk)
    }

    /// Ends every op of `disk` `Gone`.
    pub(crate) fn remove(&mut self, disk: DiskId) {
        for entry in self.entries.iter_mut().flatten().filter(|e| e.disk == disk && !e.gone) {
            entry.gone = true;
            self.open -= 1;
            self.ended.push(Ended::new(entry.io, disk, Status::Gone));
        }
    }

    /// Moves the ends out.
    pub(crate) fn take_ended(&mut self, into: &mut Vec<Ended>) {
        into.append(&mut self.ended);
    }

    /// Whether there is something to take.
    pub(crate) const fn has_ended(&self) -> bool {
        !self.ended.is_empty()
    }

    /// Ops whose end has not been taken.
    pub(crate) const fn in_flight(&self) -> usize {
        self.open + self.ended.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_op_of_a_removed_disk_ends_gone_once_and_its_id_may_come_back_at_once() {
        let mut ledger = Ledger::default();
        let stuck = ledger.enter(IoId(1), DiskId(0)).unwrap();
        let other = ledger.enter(IoId(2), DiskId(1)).unwrap();
        ledger.remove(DiskId(0));
        let mut ended = Vec::new();
        ledger.take_ended(&mut ended);
        assert_eq!(ended, [Ended::new(IoId(1), DiskId(0), Status::Gone)]);

        let again = ledger.enter(IoId(1), DiskId(0)).unwrap();
        assert_ne!(again, stuck, "the kernel still works on the old one");
        assert_eq!((ledger.disk(stuck), ledger.disk(again)), (None, Some(DiskId(0))));
        ledger.strike_off(stuck, Status::Good, None);
        assert!(!ledger.has_ended(), "the late end is not told");
        ledger.strike_off(again, Status::Good, None);
        ledger.strike_off(other, Status::Good, None);
        assert_eq!(ledger.in_flight(), 2);
        ledger.take_ended(&mut ended);
        assert_eq!(
            ended[1..],
            [Ended::new(IoId(1), DiskId(0), Status::Good), Ended::new(IoId(2), DiskId(1), Status::Good)]
        );
        assert_eq!(ledger.in_flight(), 0);
    }

    #[test]
    fn ops_beyond_the_limit_end_busy() {
        let mut ledger = Ledger::default();
        for io in 0..MAX_IN_FLIGHT as u64 {
            assert!(ledger.enter(IoId(io), DiskId(0)).is_some());
        }
        assert_eq!(ledger.enter(IoId(99_999), DiskId(0)), None);
        let mut ended = Vec::new();
        ledger.take_ended(&mut ended);
        assert_eq!(ended, [Ended::new(IoId(99_999), DiskId(0), Status::Busy)]);
    }
}
