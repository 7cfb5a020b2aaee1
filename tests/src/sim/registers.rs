//! The oracle: what each block of each volume may hold, judged only by what was submitted and what was answered.
//!
//! Time is a [`Step`]: submissions and answers in one order. Of each write that reached a disk the oracle knows when its op
//! began and by when it had *settled*: by then it has taken effect, or never will (its op ended, or a read saw it).
//!
//! Rules
//! * V1 A read may return a write that began before the read ended, unless that write was superseded before the read began.
//! * V2 A write that settled before a later write began is superseded when the later one ends `Good`.
//! * V3 A write that settled before a read began is superseded when the read ends and returned something else. This makes
//!   `Aborted` final: once one read shows the old content, no later read may show the aborted write (the fence).
//! * V4 A write is buried, so that no power cut may bring it back, when it settled before a write began that is promised to
//!   be durable: one that ended `Good` with that promise, or ended `Good` before a flush began that ended `Good`.
//! * V5 A power cut leaves each block with any write that is not buried. What is read of it afterwards is durable.
//! * V6 A disk may lose its cache while it runs, and must say so by failing a flush. Its blocks then hold any write that is
//!   not buried; an op that began before the loss says nothing about what they hold after it.

use super::medium::Value;

/// A position in the order of submissions and answers of the whole run.
pub type Step = u64;

/// The blocks of all volumes.
#[derive(Debug)]
pub struct Registers {
    volumes: Vec<Vec<Block>>,
    life: u32,
}

#[derive(Debug)]
struct Block {
    /// Writes that a read or a power cut may still show, in the order in which they reached a disk.
    writes: Vec<Write>,
    /// When the disk below last lost its cache (V6).
    lost: Step,
}

#[derive(Clone, Debug)]
struct Write {
    /// Number of the op, for messages; 0 is the initial content.
    op: u64,
    value: Value,
    began: Step,
    settled: Option<Step>,
    /// When its op ended `Good`, if that counts for a later flush.
    answered: Option<Step>,
    superseded: Option<Step>,
    buried: bool,
    life: u32,
}

/// How a write ended, as far as one block is concerned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// In effect.
    Good {
        /** And promised to survive a power cut. */
        durable: bool,
    },
    /// In effect or not, but nothing changes any more: aborted, failed, or only a hint (unmap of a part of a granule).
    Unknown,
}

/// A loss that an operator has accepted: of writes that began before the cache was lost, and were answered before the fault
/// was cleared. One that is answered after that is not excused by it.
#[derive(Clone, Copy, Default, Debug)]
pub struct Forgiven {
    /// When the disk lost its cache.
    pub lost: Step,
    /// When the operator cleared the fault.
    pub cleared: Step,
}

impl Registers {
    /// Volumes of `sizes` blocks that hold zeroes.
    pub fn new(sizes: impl IntoIterator<Item = u64>) -> Self {
        let initial = Write {
            op: 0,
            value: 0,
            began: 0,
            settled: Some(0),
            answered: None,
            superseded: None,
            buried: false,
            life: 0,
        };
        let block = || Block { writes: vec![initial.clone()], lost: 0 };
        Self { volumes: sizes.into_iter().map(|n| (0..n).map(|_| block()).collect()).collect(), life: 1 }
    }

    /// A piece of `op` that writes `value` was sent to a disk.
    pub fn sent(&mut self, volume: usize, lba: u64, op: u64, value: Value, began: Step) {
        let life = self.life;
        let write = Write { op, value, began, settled: None, answered: None, superseded: None, buried: false, life };
        self.volumes[volume][lba as usize].writes.push(write);
    }

    /// `op` has ended; nothing happens for a block to which no piece of it was sent. `horizon` is the beginning of the
    /// oldest op that is still running.
    pub fn ended(&mut self, volume: usize, lba: u64, op: u64, ending: Ending, now: Step, horizon: Step) {
        let block = &mut self.volumes[volume][lba as usize];
        let Some(write) = block.writes.iter_mut().rev().find(|w| w.op == op) else { return };
        write.settled.get_or_insert(now);
        let Ending::Good { durable } = ending else { return };
        write.answered = Some(now);
        let began = write.began;
        let in_effect = began > block.lost;
        for older in block.writes.iter_mut().filter(|w| w.settled.is_some_and(|s| s < began)) {
            if in_effect {
                older.superseded.get_or_insert(now); // V2
            }
            older.buried |= durable; // V4
        }
        block.forget(horizon);
    }

    /// A read that began at `began` returned `value`. `Err` says what it may have returned (V1).
    pub fn read(&mut self, volume: usize, lba: u64, value: Value, began: Step, now: Step) -> Result<(), String> {
        let life = self.life;
        let block = &mut self.volumes[volume][lba as usize];
        let visible = |w: &Write| w.began < now && w.superseded.is_none_or(|s| s >= began);
        let mut seen = block.writes.iter_mut().filter(|w| w.value == value && visible(w));
        let Some(first) = seen.next() else { return Err(block.explain(value, began)) };
        let mut from_before_the_cut = first.life < life;
        match seen.next() {
            // Exactly one write can have been seen: it is in effect.
            None => {
                first.settled.get_or_insert(now);
            }
            // Zeroes of several ops look alike.
            Some(second) => from_before_the_cut &= second.life < life && seen.all(|w| w.life < life),
        }
        let still_in_effect = began > block.lost;
        for other in block.writes.iter_mut().filter(|w| w.value != value) {
            if still_in_effect && other.settled.is_some_and(|s| s < began) {
                other.superseded.get_or_insert(now); // V3
            }
            if from_before_the_cut && other.life < life {
                other.superseded.get_or_insert(now);
                other.buried = true; // V5
            }
        }
        Ok(())
    }

    /// A flush of the volume that began at `began` ended `Good` (V4). `forgiven(lba)` says which loss has been accepted.
    pub fn flushed(&mut self, volume: usize, began: Step, horizon: Step, forgiven: impl Fn(u64) -> Forgiven) {
        for (lba, block) in self.volumes[volume].iter_mut().enumerate() {
            if block.writes.len() == 1 {
                continue;
            }
            let Forgiven { lost, cleared } = forgiven(lba as u64);
            let covered = |w: &&Write| w.answered.is_some_and(|a| a < began && (w.began > lost || a > cleared));
            let Some(newest) = block.writes.iter().filter(covered).map(|w| w.began).max() else { continue };
            for older in block.writes.iter_mut().filter(|w| w.settled.is_some_and(|s| s < newest)) {
                older.buried = true;
            }
            block.forget(horizon);
        }
    }

    /// The disk under a block has lost its cache while running (V6).
    pub fn lost(&mut self, volume: usize, lba: u64, now: Step) {
        let block = &mut self.volumes[volume][lba as usize];
        block.lost = now;
        for write in block.writes.iter_mut().filter(|w| !w.buried) {
            write.superseded = None;
        }
    }

    /// The power was cut (V5). Every op has ended with it.
    pub fn power_cut(&mut self, now: Step) {
        self.life += 1;
        for block in self.volumes.iter_mut().flatten() {
            block.writes.retain(|w| !w.buried);
            block.lost = 0;
            for write in &mut block.writes {
                write.settled.get_or_insert(now);
                write.superseded = None;
                write.answered = None;
            }
        }
    }

    /// The likely content of a block: a good guess for the compare half of a compare-and-write.
    pub fn guess(&self, volume: usize, lba: u64) -> Value {
        let writes = &self.volumes[volume][lba as usize].writes;
        writes.iter().rev().find(|w| w.superseded.is_none()).map_or(0, |w| w.value)
    }
}

impl Block {
    /// Drops what neither a running read nor a power cut can show any more.
    fn forget(&mut self, horizon: Step) {
        self.writes.retain(|w| !(w.buried && w.superseded.is_some_and(|s| s < horizon)));
    }

    fn explain(&self, value: Value, began: Step) -> String {
        use std::fmt::Write as _;
        let mut text = match self.writes.iter().rev().find(|w| w.value == value) {
            Some(w) => format!("{value} of op {} came back although superseded at step {:?}", w.op, w.superseded),
            None => format!("{value} came back although it is long superseded or was never written here"),
        };
        let _ = write!(text, "; the read began at step {began}; possible:");
        for w in self.writes.iter().filter(|w| w.superseded.is_none_or(|s| s >= began)) {
            let _ = write!(text, " {} of op {}", w.value, w.op);
            let _ = match w.answered {
                Some(step) => write!(text, " (answered at {step})"),
                None => write!(text, " (not answered)"),
            };
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: Ending = Ending::Good { durable: false };
    const DURABLE: Ending = Ending::Good { durable: true };

    /// One volume of one block; `write(op, began, ended)`.
    struct One(Registers);

    impl One {
        fn new() -> Self {
            Self(Registers::new([1]))
        }

        fn write(&mut self, op: u64, began: Step, now: Step, ending: Ending) {
            self.0.sent(0, 0, op, op, began);
            self.0.ended(0, 0, op, ending, now, now);
        }

        fn reads(&mut self, value: Value, began: Step, now: Step) -> bool {
            self.0.read(0, 0, value, began, now).is_ok()
        }

        fn may_survive(mut self, value: Value) -> bool {
            self.0.power_cut(1000);
            self.reads(value, 1001, 1002)
        }
    }

    #[test]
    fn a_read_after_the_answer_sees_the_write_and_one_before_it_sees_either() {
        let mut one = One::new();
        one.0.sent(0, 0, 7, 7, 10);
        assert!(one.reads(0, 11, 12) && one.reads(0, 11, 13));
        one.0.ended(0, 0, 7, GOOD, 14, 0);
        assert!(one.reads(0, 13, 15), "a read that began before the answer may still be old");
        assert!(!one.reads(0, 16, 17));
        assert!(one.reads(7, 16, 17));
    }

    #[test]
    fn overlapping_writes_may_end_either_way_but_not_flip() {
        let mut one = One::new();
        one.0.sent(0, 0, 7, 7, 10);
        one.0.sent(0, 0, 8, 8, 11);
        one.0.ended(0, 0, 8, GOOD, 12, 0);
        one.0.ended(0, 0, 7, GOOD, 13, 0);
        assert!(one.reads(8, 14, 15), "7 came first");
        assert!(!one.reads(7, 16, 17), "so 7 cannot come back");
    }

    #[test]
    fn an_aborted_write_may_not_appear_after_a_read_that_did_not_see_it() {
        let mut one = One::new();
        one.write(7, 10, 11, Ending::Unknown);
        assert!(one.reads(0, 12, 13));
        assert!(!one.reads(7, 14, 15));
    }

    #[test]
    fn an_aborted_write_that_was_seen_stays() {
        let mut one = One::new();
        one.write(7, 10, 11, Ending::Unknown);
        assert!(one.reads(7, 12, 13));
        assert!(!one.reads(0, 14, 15));
    }

    #[test]
    fn only_a_durable_answer_or_a_later_flush_survives_a_cut_for_sure() {
        let mut plain = One::new();
        plain.write(7, 10, 11, GOOD);
        assert!(plain.may_survive(0));

        let mut fua = One::new();
        fua.write(7, 10, 11, DURABLE);
        assert!(!fua.may_survive(0));

        let mut flushed = One::new();
        flushed.write(7, 10, 11, GOOD);
        flushed.0.flushed(0, 12, 13, |_| Forgiven::default());
        assert!(!flushed.may_survive(0));
    }

    #[test]
    fn a_flush_promises_nothing_about_a_write_that_ended_after_it_began() {
        let mut one = One::new();
        one.0.sent(0, 0, 7, 7, 10);
        one.0.ended(0, 0, 7, GOOD, 13, 0);
        one.0.flushed(0, 12, 14, |_| Forgiven::default());
        assert!(one.may_survive(0));
    }

    #[test]
    fn an_older_undurable_write_may_survive_where_a_newer_one_is_lost() {
        let mut one = One::new();
        one.write(7, 10, 11, GOOD);
        one.write(8, 12, 13, GOOD);
        assert!(one.reads(8, 14, 15));
        assert!(one.may_survive(7));
    }

    #[test]
    fn what_is_read_after_a_cut_is_durable() {
        let mut one = One::new();
        one.write(7, 10, 11, GOOD);
        one.0.power_cut(20);
        assert!(one.reads(7, 21, 22));
        one.0.power_cut(30);
        assert!(!one.reads(0, 31, 32));
        assert!(one.reads(7, 31, 32));
    }

    #[test]
    fn a_loss_in_operation_brings_back_what_is_not_buried() {
        let mut one = One::new();
        one.write(7, 10, 11, DURABLE);
        one.write(8, 12, 13, GOOD);
        one.0.lost(0, 0, 20);
        assert!(!one.reads(0, 21, 22));
        assert!(one.reads(7, 21, 22));
        assert!(!one.reads(8, 23, 24), "the loss happened once");
    }
}
