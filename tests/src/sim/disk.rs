//! One simulated disk: takes commands, works on many at once in any order, fails, hangs and lies as planned, over a
//! [`Medium`].
//!
//! A command goes through two steps. At the first it touches the medium (a flush *starts*), at the second it has ended at
//! the disk. Its completion reaches the engine a little later still: the simulator's loop sees to that.

use std::collections::BTreeMap;
use std::time::Duration;

use platter_block::{BlockCount, DiskOp, Extent, Fua, Instant, IoId, Lba, Report, Status};

use super::medium::{Medium, Snapshot, Value, WriteId};
use super::plan::{DiskPlan, Faults, Lie};
use super::rng::Rng;

/// A disk and the commands in it.
#[derive(Debug)]
pub struct Disk {
    /// What it is, now.
    pub plan: DiskPlan,
    /// What it holds.
    pub medium: Medium,
    /// Plugged in.
    pub present: bool,
    running: BTreeMap<IoId, Command>,
    writes: u64,
    stuck_until: Instant,
    rng: Rng,
}

#[derive(Debug)]
struct Command {
    op: DiskOp,
    /// What a write brings, or what a read has found.
    values: Vec<Value>,
    write: WriteId,
    touched: bool,
    status: Status,
    /// Blocks that a failing write still changes.
    reaches: u64,
    snapshot: Option<Snapshot>,
    loses_cache: bool,
}

/// What came of a step.
#[derive(Debug)]
pub enum Progress {
    /// Call again then.
    Until(Instant),
    /// The command has ended at the disk.
    Ended(Ended),
}

/// How a command ended.
#[derive(Clone, Debug)]
pub struct Ended {
    /// For the engine.
    pub status: Status,
    /// For the engine.
    pub report: Option<Box<Report>>,
    /// What a read found, one value per block.
    pub values: Vec<Value>,
    /// The volatile cache was lost with it.
    pub lost_cache: bool,
}

impl Ended {
    /// A command that a vanished disk will not do.
    pub const fn gone() -> Self {
        Self { status: Status::Gone, report: None, values: Vec::new(), lost_cache: false }
    }
}

impl Disk {
    /// A disk of zeroes.
    pub fn new(plan: DiskPlan, rng: Rng) -> Self {
        let medium = Medium::new(plan.info.blocks);
        Self { plan, medium, present: true, running: BTreeMap::new(), writes: 0, stuck_until: Instant(0), rng }
    }

    /// Takes a command; `values` is what a write brings. Says when to call [`step`](Self::step). The disk is present.
    pub fn submit(&mut self, now: Instant, io: IoId, op: DiskOp, values: Vec<Value>, faults: &Faults) -> Instant {
        assert!(self.present, "a missing disk takes no commands");
        self.writes += 1;
        let mut command = Command {
            op,
            values,
            write: WriteId(self.writes),
            touched: false,
            status: Status::Good,
            reaches: u64::MAX,
            snapshot: None,
            loses_cache: false,
        };
        self.plan_failure(&mut command, faults);
        let mut at = now + self.latency();
        if self.rng.chance(faults.stuck) {
            at = at + Duration::from_millis(self.rng.between(500, 8000));
            self.stuck_until = self.stuck_until.max(at);
        }
        let before = self.running.insert(io, command);
        assert!(before.is_none(), "{io:?} is used twice");
        at
    }

    /// Until when some command hangs.
    pub const fn stuck_until(&self) -> Instant {
        self.stuck_until
    }

    /// The next step of a command; `None` if it has gone with a power cut or an unplug.
    pub fn step(&mut self, now: Instant, io: IoId) -> Option<Progress> {
        let touched = &mut self.running.get_mut(&io)?.touched;
        if !std::mem::replace(touched, true) {
            self.touch(io);
            let wait = if self.rng.chance(300) { Duration::ZERO } else { self.latency() };
            return Some(Progress::Until(now + wait));
        }
        let command = self.running.remove(&io)?;
        Some(Progress::Ended(self.end(command)))
    }

    /// Every command in the disk is ended by an unplug; what had not touched the medium yet may have touched some of it.
    /// Gives their names.
    pub fn unplug(&mut self, fate: u64, keeps_cache: bool) -> Vec<IoId> {
        self.present = false;
        self.touch_some();
        let ended: Vec<IoId> = self.running.keys().copied().collect();
        for command in std::mem::take(&mut self.running).into_values() {
            self.medium.end(command.write);
        }
        if !keeps_cache {
            self.medium.lose_cache(fate);
        }
        ended
    }

    /// The power is cut.
    pub fn power_cut(&mut self, fate: u64) {
        self.touch_some();
        self.running.clear();
        self.medium.lose_cache(fate);
        self.present = true;
        self.stuck_until = Instant(0);
    }

    /// The process above dies, the disk does not; the next one opens it and flushes it once.
    pub fn reopen(&mut self) {
        self.touch_some();
        for command in std::mem::take(&mut self.running).into_values() {
            self.medium.end(command.write);
        }
        self.destage();
        self.present = true;
        self.stuck_until = Instant(0);
    }

    /// Everything in the cache becomes durable.
    pub fn destage(&mut self) {
        let snapshot = self.medium.start_flush(&mut Rng::new(0)).of_everything();
        self.medium.finish_flush(&snapshot);
    }

    /// Commands in the disk.
    pub fn in_flight(&self) -> usize {
        self.running.len()
    }

    fn latency(&mut self) -> Duration {
        let nanos = self.rng.between(self.plan.latency_min, self.plan.latency_max);
        Duration::from_nanos(if self.rng.chance(self.plan.spikes) { nanos * 50 } else { nanos })
    }

    fn plan_failure(&mut self, command: &mut Command, faults: &Faults) {
        match command.op {
            DiskOp::Read { lba, count, .. } | DiskOp::BlockStatus { lba, count } => {
                if self.rng.chance(faults.read_errors) {
                    command.status = Status::MediumError { lba: Lba(lba.0 + self.rng.below(u64::from(count.0))) };
                }
            }
            DiskOp::Write { lba, count, .. }
            | DiskOp::WriteZeroes { lba, count, .. }
            | DiskOp::Unmap { lba, count } => {
                if self.rng.chance(faults.write_errors) {
                    let bad = self.rng.below(u64::from(count.0));
                    command.status = *self.rng.pick(&[
                        Status::MediumError { lba: Lba(lba.0 + bad) },
                        Status::MediumError { lba: Lba(lba.0 + bad) },
                        Status::NoSpace,
                    ]);
                    command.reaches = *self.rng.pick(&[0, bad, u64::MAX]);
                }
                if matches!(command.op, DiskOp::Write { fua: true, .. }) && self.rng.chance(faults.flush_errors) {
                    command.status = Status::DurabilityLost;
                    command.loses_cache = self.rng.chance(faults.flush_loses);
                }
            }
            DiskOp::Flush => {
                if self.rng.chance(faults.flush_errors) {
                    command.status =
                        *self.rng.pick(&[Status::MediumError { lba: Lba(0) }, Status::NoSpace, Status::Busy]);
                    command.loses_cache = command.status != Status::Busy && self.rng.chance(faults.flush_loses);
                }
            }
        }
    }

    /// The command meets the medium.
    fn touch(&mut self, io: IoId) {
        let Some(command) = self.running.get_mut(&io) else { return };
        let caches = self.plan.info.volatile_cache || self.plan.lie == Some(Lie::NoCache);
        let honours_fua = self.plan.info.fua == Fua::Native && self.plan.lie != Some(Lie::Fua);
        match command.op {
            DiskOp::Read { lba, count, .. } => {
                command.values = blocks(lba, count).map(|b| self.medium.read(b)).collect();
            }
            DiskOp::Write { lba, count, fua, .. } => {
                let durable = !caches || fua && honours_fua && command.status != Status::DurabilityLost;
                self.medium.begin(command.write);
                for (block, &value) in blocks(lba, count).zip(&command.values).take(clamp(command.reaches)) {
                    self.medium.apply(command.write, block, value, durable);
                }
            }
            DiskOp::WriteZeroes { lba, count, .. } => {
                self.medium.begin(command.write);
                for block in blocks(lba, count).take(clamp(command.reaches)) {
                    self.medium.apply(command.write, block, 0, !caches);
                }
            }
            DiskOp::Unmap { lba, count } => {
                let granule = self.plan.info.discard.map_or(1, |d| u64::from(d.granularity));
                self.medium.begin(command.write);
                let whole = lba.0.next_multiple_of(granule)..(lba.0 + u64::from(count.0)) / granule * granule;
                for block in whole.take(clamp(command.reaches)) {
                    self.medium.apply(command.write, block, 0, !caches);
                }
            }
            DiskOp::Flush => command.snapshot = Some(self.medium.start_flush(&mut self.rng)),
            DiskOp::BlockStatus { .. } => {}
        }
    }

    fn end(&mut self, command: Command) -> Ended {
        self.medium.end(command.write);
        let mut report = None;
        match command.op {
            DiskOp::Flush if command.status.is_good() && self.plan.lie != Some(Lie::Flush) => {
                self.medium.finish_flush(&command.snapshot.expect("a flush started in its first step"));
            }
            _ if command.loses_cache => self.medium.lose_cache(self.rng.word()),
            DiskOp::BlockStatus { lba, count } if command.status.is_good() => {
                report = Some(Box::new(Report::Extents(self.extents(lba, count))));
            }
            _ => {}
        }
        Ended { status: command.status, report, values: command.values, lost_cache: command.loses_cache }
    }

    /// Runs of equal allocation. Like a real disk, it may answer for a part of the range only.
    fn extents(&mut self, lba: Lba, count: BlockCount) -> Vec<Extent> {
        let answered = self.rng.between(1, u64::from(count.0)) as u32;
        let mut extents: Vec<Extent> = Vec::new();
        for block in blocks(lba, BlockCount(answered)) {
            let mapped = self.medium.read(block) != 0;
            match extents.last_mut() {
                Some(last) if last.mapped == mapped => last.count.0 += 1,
                _ => extents.push(Extent { lba: Lba(block), count: BlockCount(1), mapped }),
            }
        }
        extents
    }

    /// What was queued when the world ended may have reached the medium, in part or not at all.
    fn touch_some(&mut self) {
        let untouched: Vec<IoId> = self.running.iter().filter(|(_, c)| !c.touched).map(|(&io, _)| io).collect();
        for io in untouched {
            let reaches = *self.rng.pick(&[0, 1, 2, u64::MAX]);
            if let Some(command) = self.running.get_mut(&io) {
                command.reaches = command.reaches.min(reaches);
            }
            self.touch(io);
        }
    }
}

fn blocks(lba: Lba, count: BlockCount) -> std::ops::Range<u64> {
    lba.0..lba.0 + u64::from(count.0)
}

fn clamp(blocks: u64) -> usize {
    usize::try_from(blocks).unwrap_or(usize::MAX)
}
