//! Which flushes are sent, which are shared, which are not needed, and when a disk is poisoned.
//!
//! One `FlushGate` per disk, shared by every volume on it. It numbers the writes whose data a power cut may take:
//! `ack_seq` is the newest of them that completed to us, `durable_seq` the newest that a flush made durable. A volume
//! keeps, per disk, the number of its own newest such write: `last_undurable`. Making a volume durable on a disk is the
//! request "`last_undurable` and everything before it".
//!
//! ```text
//!                    request(need)
//!                         |
//!    poisoned ----------> refused                              F3
//!    need <= durable ---> elided          nothing to do
//!    need <= covers ----> running group   joins, it is covered F2
//!    otherwise ---------> pending group   waits for the next   F2
//!
//!    pending --- send(): covers = ack_seq ---> running --- good ---> durable_seq = covers, group ends
//!                                                  `------ bad ----> poisoned, group and pending fail F3
//! ```
//!
//! Flushes are double buffered: at most one is running and at most one group is pending, so a disk that is asked by n
//! volumes at once flushes at most twice.
//!
//! Conditions, cited by number in this crate:
//!
//! * F1 A flush covers the writes completed to us when it is *sent*. `covers` is taken then: at the request it would be
//!   too old to share, at the end too new to be true. A completed write moves `ack_seq` before its op can end.
//! * F2 A request joins a flush that is already running only if that flush covers it; otherwise it waits for the next. At
//!   most one flush runs.
//! * F3 A failed flush fails its own group and everything queued behind it, leaves `durable_seq` where it was, and poisons
//!   the disk: every later request and every FUA write on it fails, until the operator clears the fault. The disk may have
//!   dropped its cache with the error, so a second flush that succeeds would prove nothing. Clearing the fault means taking
//!   the loss of what was written before: an op that wrote before it and ends after it fails too. The one exception is
//!   `Busy`: a limit above the disk was reached, the disk was never asked, so the group ends `Busy` and nothing is lost.
//! * F4 A write that failed in part makes no claim; the pieces that landed stay in `ack_seq`.
//! * F5 Unmap, write zeroes, compare-and-write and OR-write count as writes.
//! * F6 After a reset, a re-plug or a change of the write-cache setting nothing is known to be durable: `forget` moves
//!   every claim out of reach, and one flush is sent. A disk that is unplugged takes its cache along: were acknowledged
//!   writes in it, that is a failed flush (F3). Of a disk that was poisoned in an earlier run nothing is known either.
//! * F7 Nothing holds a pending group back but the one running flush: not writes in flight, not FUA writes that keep
//!   coming. A request therefore ends with the second flush at the latest.
//! * F8 What is believed of the disk is a policy per disk; see [`FuaPolicy`](crate::FuaPolicy) and `disk.rs`. A write that
//!   the disk made durable by itself (native FUA, or no volatile cache) moves no counter, and says nothing about older ones.
//! * F9 What a volume advertises is what is done here; see `volume.rs`.

use std::collections::VecDeque;

use platter_block::Status;

use crate::FlushStats;
use crate::slab::Key;

/// Who hears of the end of a flush.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Waiter {
    /// An op in flight.
    Op(Key),
    /// Nobody: the engine wants the flush for its own sake (F6).
    Engine,
}

/// What becomes of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    /// Everything needed is durable.
    Durable,
    /// The waiter is told when a flush ends.
    Waits,
    /// The disk is poisoned (F3).
    Refused,
}

/// The flush state of one disk.
#[derive(Debug, Default)]
pub(crate) struct FlushGate {
    /// Number of the newest write that completed to us and is not durable by itself.
    ack_seq: u64,
    /// Every write up to this number is durable. Never above `ack_seq`.
    durable_seq: u64,
    /// The flush that the disk works on.
    running: Option<Running>,
    /// Who waits for the next one.
    pending: Vec<Waiter>,
    poisoned: bool,
    stats: FlushStats,
}

#[derive(Debug)]
struct Running {
    /// `ack_seq` when it was sent (F1).
    covers: u64,
    /// The disk was poisoned while it ran: its success proves nothing (F3).
    void: bool,
    waiters: Vec<Waiter>,
}

impl FlushGate {
    /// A write completed that is not durable by itself. Returns its number, for the volume's `last_undurable`.
    pub(crate) fn wrote(&mut self) -> u64 {
        self.ack_seq += 1;
        self.ack_seq
    }

    /// Asks that every write up to number `need` be durable.
    pub(crate) fn request(&mut self, need: u64, waiter: Waiter) -> Answer {
        debug_assert!(need <= self.ack_seq, "a volume owes only writes that completed");
        if self.poisoned {
            self.refuse(1); // F3
            return Answer::Refused;
        }
        if need <= self.durable_seq {
            self.stats.requested += 1;
            self.stats.elided += 1;
            return Answer::Durable;
        }
        let covering = self.running.as_mut().filter(|running| !running.void && running.covers >= need); // F2
        if let Some(running) = covering {
            running.waiters.push(waiter);
            self.stats.requested += 1;
            self.stats.joined += 1;
            return Answer::Waits;
        }
        self.pending.push(waiter);
        Answer::Waits
    }

    /// Whether `send` would send: nothing but a running flush holds a pending one back (F2, F7).
    pub(crate) fn can_send(&self) -> bool {
        self.running.is_none() && !self.pending.is_empty()
    }

    /// Makes the pending group the running one; true if the caller must now hand a flush to the disk.
    pub(crate) fn send(&mut self) -> bool {
        if !self.can_send() {
            return false;
        }
        let covers = self.ack_seq; // F1
        let waiters = std::mem::take(&mut self.pending);
        self.stats.requested += waiters.len() as u64;
        self.stats.issued += 1;
        self.stats.joined += waiters.len() as u64 - 1;
        self.running = Some(Running { covers, void: false, waiters });
        true
    }

    /// The running flush ended. Returns who is to be told what, after a failure also everything that was pending (F3).
    pub(crate) fn ended(&mut self, status: Status) -> (Vec<Waiter>, Status) {
        let mut running = self.running.take().expect("only a flush that was sent ends, and it ends once");
        self.stats.failed += u64::from(!status.is_good());
        match status {
            Status::Good if running.void => (running.waiters, Status::DurabilityLost), // F3
            Status::Good => {
                self.durable_seq = self.durable_seq.max(running.covers); // F1
                (running.waiters, Status::Good)
            }
            Status::Busy if !running.void => (running.waiters, Status::Busy), // never reached the disk: nothing is lost
            _ => {
                let queued_behind = self.poison(); // F3
                running.waiters.extend(queued_behind);
                (running.waiters, Status::DurabilityLost)
            }
        }
    }

    /// Acknowledged writes may be lost (F3). Returns who waited for a flush that will not be sent.
    pub(crate) fn poison(&mut self) -> Vec<Waiter> {
        self.poisoned = true;
        if let Some(running) = &mut self.running {
            running.void = true;
        }
        let waiters = std::mem::take(&mut self.pending);
        self.refuse(waiters.len() as u64);
        waiters
    }

    /// The operator cleared the fault. `durable_seq` stays where it was, so what was owed still is.
    pub(crate) fn clear_fault(&mut self) {
        self.poisoned = false;
    }

    /// Nothing is known to be durable (F6). Returns the number that every volume on the disk owes from now on.
    pub(crate) fn forget(&mut self) -> u64 {
        self.ack_seq += 1;
        self.ack_seq
    }

    /// Counts requests that fail without a flush.
    pub(crate) fn refuse(&mut self, requests: u64) {
        self.stats.requested += requests;
        self.stats.refused += requests;
    }

    /// Number of the newest write, durable or not.
    pub(crate) fn ack_seq(&self) -> u64 {
        self.ack_seq
    }

    /// How many acknowledged writes a power cut may take.
    pub(crate) fn undurable(&self) -> u64 {
        self.ack_seq - self.durable_seq
    }

    pub(crate) fn is_poisoned(&self) -> bool {
        self.poisoned
    }

    pub(crate) fn stats(&self) -> FlushStats {
        self.stats
    }
}

/// The disks whose gate has a flush to send, by position, in the order of asking; each at most once.
#[derive(Debug, Default)]
pub(crate) struct FlushQueue(VecDeque<usize>);

impl FlushQueue {
    /// Puts the disk into the queue if its gate has a flush to send.
    pub(crate) fn schedule(&mut self, position: usize, gate: &FlushGate) {
        if gate.can_send() && !self.0.contains(&position) {
            self.0.push_back(position);
        }
    }

    /// Takes the next disk; its gate decides again whether there is still something to send.
    pub(crate) fn next(&mut self) -> Option<usize> {
        self.0.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn op(n: u64) -> Waiter {
        Waiter::Op(Key(n))
    }

    /// Requests, checks that it waits, returns the waiter.
    fn wait(gate: &mut FlushGate, need: u64, n: u64) -> Waiter {
        assert_eq!(gate.request(need, op(n)), Answer::Waits);
        op(n)
    }

    #[test]
    fn f1_the_snapshot_is_taken_when_the_flush_is_sent() {
        let mut gate = FlushGate::default();
        let first = gate.wrote();
        wait(&mut gate, first, 1);
        let before_sent = gate.wrote();
        assert!(gate.send());
        let after_sent = gate.wrote();
        gate.ended(Status::Good);
        assert_eq!(gate.request(before_sent, op(2)), Answer::Durable);
        assert_eq!(gate.request(after_sent, op(3)), Answer::Waits);
    }

    #[test]
    fn f2_a_running_flush_is_joined_only_if_it_covers_the_request() {
        let mut gate = FlushGate::default();
        let old = gate.wrote();
        let a = wait(&mut gate, old, 1);
        assert!(gate.send());
        let covered = wait(&mut gate, old, 2);
        let new = gate.wrote();
        let late = wait(&mut gate, new, 3);
        assert!(!gate.send(), "one runs");
        assert_eq!(gate.ended(Status::Good), (vec![a, covered], Status::Good));
        assert!(gate.send());
        assert_eq!(gate.ended(Status::Good), (vec![late], Status::Good));
        let stats = gate.stats();
        assert_eq!((stats.requested, stats.issued, stats.joined), (3, 2, 1));
    }

    #[test]
    fn f3_a_failed_flush_fails_its_group_and_the_queue_and_every_later_request() {
        let mut gate = FlushGate::default();
        let seq = gate.wrote();
        let a = wait(&mut gate, seq, 1);
        assert!(gate.send());
        let seq = gate.wrote();
        let b = wait(&mut gate, seq, 2);
        assert_eq!(gate.ended(Status::NoSpace), (vec![a, b], Status::DurabilityLost));
        assert_eq!(gate.request(0, op(3)), Answer::Refused, "even of a volume that owes nothing");
        assert!(!gate.send());
        gate.clear_fault();
        wait(&mut gate, seq, 4);
        assert!(gate.send(), "the next flush is sent, not elided");
        let stats = gate.stats();
        assert_eq!((stats.requested, stats.issued, stats.refused, stats.failed), (4, 2, 2, 1));
    }

    #[test]
    fn f3_a_flush_during_which_the_disk_was_poisoned_proves_nothing_even_if_it_ends_well() {
        let mut gate = FlushGate::default();
        let seq = gate.wrote();
        let a = wait(&mut gate, seq, 1);
        assert!(gate.send());
        assert_eq!(gate.poison(), []);
        gate.clear_fault();
        let b = wait(&mut gate, seq, 2);
        assert_eq!(gate.ended(Status::Good), (vec![a], Status::DurabilityLost));
        assert!(gate.send(), "what was asked after the fault was cleared goes on");
        assert_eq!(gate.ended(Status::Good), (vec![b], Status::Good));
    }

    #[test]
    fn f3_a_flush_that_never_reached_the_disk_loses_nothing_and_proves_nothing() {
        let mut gate = FlushGate::default();
        let seq = gate.wrote();
        let a = wait(&mut gate, seq, 1);
        assert!(gate.send());
        let newer = gate.wrote();
        let b = wait(&mut gate, newer, 2);
        assert_eq!(gate.ended(Status::Busy), (vec![a], Status::Busy));
        assert!(!gate.is_poisoned() && gate.undurable() == 2);
        assert!(gate.send(), "those behind go on");
        assert_eq!(gate.ended(Status::Good), (vec![b], Status::Good));
    }

    #[test]
    fn f6_forgetting_moves_every_claim_out_of_reach() {
        let mut gate = FlushGate::default();
        let seq = gate.wrote();
        wait(&mut gate, seq, 1);
        assert!(gate.send());
        let owed = gate.forget();
        gate.ended(Status::Good);
        assert_eq!(gate.request(owed, Waiter::Engine), Answer::Waits, "the flush sent before does not count");
        assert!(gate.send());
        assert_eq!(gate.ended(Status::Good), (vec![Waiter::Engine], Status::Good));
        assert_eq!(gate.request(owed, op(2)), Answer::Durable);
    }

    #[test]
    fn f7_a_request_ends_with_the_second_flush_however_many_follow_it() {
        let mut gate = FlushGate::default();
        let seq = gate.wrote();
        wait(&mut gate, seq, 0);
        assert!(gate.send());
        let seq = gate.wrote();
        let victim = wait(&mut gate, seq, 1);
        for n in 2..100 {
            let seq = gate.wrote();
            wait(&mut gate, seq, n);
        }
        assert!(!gate.ended(Status::Good).0.contains(&victim));
        assert!(gate.send());
        assert!(gate.ended(Status::Good).0.contains(&victim));
    }

    #[test]
    fn sixteen_requests_at_once_cost_at_most_two_flushes() {
        let mut gate = FlushGate::default();
        let mut flushes = 0;
        for n in 0..16 {
            let seq = gate.wrote();
            wait(&mut gate, seq, n);
            flushes += u32::from(gate.send());
        }
        gate.ended(Status::Good);
        flushes += u32::from(gate.send());
        assert_eq!(gate.ended(Status::Good).0.len(), 15);
        assert_eq!((flushes, gate.can_send()), (2, false));
    }
}
