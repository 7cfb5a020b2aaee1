//! Watches everything that goes into the engine and comes out of it, and says when an invariant does not hold.
//!
//! It keeps the ops and pieces in flight, the [`Registers`] that say what blocks may hold, and one [`FlushAudit`] per disk.
//! It judges only by what the engine was told, never by what the medium holds.

use std::collections::BTreeMap;
use std::time::Duration;

use platter_block::{BlockRange, DiskInfo, DiskOp, Instant, IoId, Lba, Op, Report, Status, Tag, VolumeInfo};
use platter_engine::{ABORT_GRACE, Engine};

use super::disk::Ended;
use super::flush_audit::{FlushAudit, Promise};
use super::hosts::writer_of;
use super::ops::{Blocks, Piece, Pieces, Running};
use super::pieces::is_write;
use super::plan::{BATCH_WINDOW, Plan};
use super::registers::{Ending, Forgiven, Registers, Step};
use super::verdict::{Checker, Verdict, ensure, fault};

/// The judge of one run.
#[derive(Debug)]
pub struct Referee {
    /// What blocks may hold.
    pub registers: Registers,
    /// One per disk.
    pub disks: Vec<FlushAudit>,
    /// By number, which is the order of submission.
    pub ops: BTreeMap<u64, Running>,
    tags: BTreeMap<Tag, u64>,
    pub(super) pieces: Pieces,
    /// What the volumes said of themselves last.
    infos: Vec<Option<VolumeInfo>>,
    /// Per volume, the op that switched its write cache last.
    switched: Vec<u64>,
    step: Step,
    /// Whether everything is being read after a cut.
    pub verifying: bool,
}

impl Referee {
    /// For a new run.
    pub fn new(plan: &Plan) -> Self {
        Self {
            registers: Registers::new(plan.volumes.iter().map(|v| v.blocks)),
            disks: Vec::new(),
            ops: BTreeMap::new(),
            tags: BTreeMap::new(),
            pieces: Pieces::new(),
            infos: vec![None; plan.volumes.len()],
            switched: vec![0; plan.volumes.len()],
            step: 1,
            verifying: false,
        }
    }

    /// A new engine has been given its disks and volumes.
    pub fn new_life(&mut self, disks: Vec<FlushAudit>, infos: Vec<Option<VolumeInfo>>) {
        self.disks = disks;
        self.infos = infos;
        self.ops.clear();
        self.tags.clear();
        self.pieces.clear();
    }

    /// The power was cut. `kept_power`: only the process died, so every answered write is still there.
    pub fn life_ended(&mut self, plan: &Plan, kept_power: bool) {
        let now = self.next();
        if kept_power {
            for (v, volume) in plan.volumes.iter().enumerate() {
                let forgiven = |lba| {
                    let lost = self.disks[volume.locate(lba).0].lost;
                    Forgiven { lost, cleared: Step::MAX }
                };
                self.registers.flushed(v, now, now, forgiven);
            }
        }
        self.registers.power_cut(now);
    }

    /// An op is about to be submitted.
    pub fn submitted(&mut self, plan: &Plan, now: Instant, mut op: Running) {
        op.began = self.next();
        op.began_at = now;
        op.advertised_durable = self.advertises_durable(op.volume);
        op.needs = self.disks.iter().map(|d| if op.op.is_write() { 0 } else { d.need(op.volume) }).collect();
        if let Op::SetWriteCache { enabled } = op.op {
            self.switched[op.volume] = op.number;
            for disk in plan.volumes[op.volume].disks().into_iter().filter(|_| !enabled) {
                self.disks[disk].cache_switched(op.volume);
            }
        }
        op.wrote = vec![false; plan.disks.len()];
        self.tags.insert(op.tag, op.number);
        self.ops.insert(op.number, op);
    }

    /// An abort is about to be asked.
    pub fn aborting(&mut self, number: u64, now: Instant) {
        self.step += 1;
        if let Some(op) = self.ops.get_mut(&number) {
            op.aborted_at.get_or_insert(now);
        }
    }

    /// The volume and range of each op in flight that has a range and no buffer.
    pub fn bare(&self) -> Vec<(usize, BlockRange)> {
        let bare = |op: &&Running| matches!(op.op, Op::WriteZeroes { .. } | Op::Unmap { .. } | Op::BlockStatus { .. });
        self.ops.values().filter(bare).map(|op| (op.volume, op.range())).collect()
    }

    /// A disk op has ended and the engine is about to hear it.
    pub fn completed(&mut self, plan: &Plan, io: IoId, ended: &Ended) {
        let now = self.next();
        let piece = self.pieces.remove(&io).expect("every disk op ends once");
        let audit = &mut self.disks[piece.disk];
        let good = ended.status.is_good() && audit.info.is_some();
        let Some(number) = piece.op else { return audit.flush_ended(io, ended.status, now) };
        let (writes, fua) = match piece.disk_op {
            DiskOp::Write { fua, .. } => (true, fua),
            _ => (is_write(&piece.disk_op), false),
        };
        if writes && ended.status == Status::DurabilityLost {
            audit.lost_durability(now);
        }
        let Some(op) = self.ops.get_mut(&number) else {
            // The op ended before its pieces did.
            if writes {
                let volume = volume_of(plan, &piece);
                audit.write_ended(volume, piece.sent, fua, good);
            } else {
                audit.read_ended();
            }
            return;
        };
        op.out -= 1;
        if writes {
            op.writes_out -= 1;
            let need = audit.write_ended(op.volume, piece.sent, fua, good);
            op.needs[piece.disk] = op.needs[piece.disk].max(need);
        } else {
            audit.read_ended();
        }
        if !good {
            let status = match ended.status {
                Status::MediumError { lba } => match plan.owner(piece.disk, lba.0) {
                    Some((_, lba)) => Status::MediumError { lba: Lba(lba) },
                    None => ended.status,
                },
                Status::Good => Status::Gone,
                other => other,
            };
            op.failures.push(status);
        } else if writes {
            op.write_good.add(piece.blocks);
        } else {
            op.read_good.add(piece.blocks);
            let (into, _) = op.buffer_layout();
            let found = (0..64).filter(|&i| piece.blocks.has(i)).zip(&ended.values);
            for (index, &value) in found {
                op.values[(into + index) as usize] = value;
            }
        }
    }

    /// The engine ends an op. Gives it back, and whether the answer promises durability.
    pub fn done(
        &mut self,
        plan: &Plan,
        now: Instant,
        tag: Tag,
        status: Status,
        report: Option<&Report>,
        liveness: Instant,
    ) -> Verdict<(Running, bool)> {
        let step = self.next();
        let Some(op) = self.tags.remove(&tag).and_then(|number| self.ops.remove(&number)) else {
            return fault(Checker::OneEnd, format!("{tag:?}"), "ended, but it is not in flight");
        };
        let place = format!("volume {}, op {}", op.volume, op.number);
        ensure(now <= liveness.max(op.began_at + self.patience(plan)), Checker::Liveness, || {
            (&place, "took too long")
        })?;
        self.check_abort_timing(&place, &op, now, status)?;
        self.check_status(plan, &place, &op, status)?;

        let durable = status.is_good() && self.promises(&op);
        let oldest = self.ops.values().next().map_or(step, |o| o.began).min(op.began);
        if durable {
            let whole_volume = !op.op.is_write();
            for disk in plan.volumes[op.volume].disks() {
                let promise = match op.op {
                    _ if whole_volume => Promise::Volume,
                    _ if op.is_fua() && op.wrote[disk] => Promise::Fua,
                    _ => Promise::Other,
                };
                self.disks[disk].promised(op.began, op.needs[disk], promise)?;
            }
            if whole_volume {
                let forgiven = |lba| self.disks[plan.volumes[op.volume].locate(lba).0].forgiven;
                self.registers.flushed(op.volume, op.began, oldest, forgiven);
            }
        }
        for index in (0..64).filter(|&i| op.write_sent.has(i)) {
            let known = status.is_good() && !op.hints.has(index);
            let ending = if known { Ending::Good { durable } } else { Ending::Unknown };
            self.registers.ended(op.volume, op.range().start.0 + index, op.number, ending, step, oldest);
        }
        match op.op {
            Op::Read { .. } if status.is_good() => self.check_read(&op, step)?,
            Op::BlockStatus { .. } if status.is_good() => check_extents(&place, &op, report)?,
            Op::SetWriteCache { enabled: false } if status.is_good() => {
                let newest = self.switched[op.volume] == op.number;
                let said = self.advertises_durable(op.volume);
                ensure(said || !newest, Checker::Advertised, || (&place, "the write cache is off, but advertised"))?;
            }
            _ => {}
        }
        Ok((op, durable))
    }

    /// The cache of a disk is lost while it runs.
    pub fn lost_cache(&mut self, plan: &Plan, disk: usize) {
        let now = self.next();
        self.disks[disk].lost = now;
        for lba in 0..plan.disks[disk].info.blocks {
            if let Some((volume, lba)) = plan.owner(disk, lba) {
                self.registers.lost(volume, lba, now);
            }
        }
    }

    /// The engine is about to hear that a disk is gone, is there or was reset.
    pub fn told(&mut self, disk: usize, info: Option<DiskInfo>) {
        let now = self.next();
        match info {
            Some(info) => self.disks[disk].told(info, now),
            None => self.disks[disk].told_lost(),
        }
    }

    /// The engine is about to hear that a fault is cleared.
    pub fn cleared(&mut self, disk: usize) {
        let now = self.next();
        self.disks[disk].cleared(now);
    }

    /// The engine said that a disk is poisoned.
    pub fn said_poisoned(&mut self, disk: usize) {
        let now = self.next();
        self.disks[disk].said_poisoned(now);
    }

    /// The engine said that a disk is healed.
    pub fn said_healed(&mut self, disk: usize) {
        let now = self.next();
        self.disks[disk].said_healed(now);
    }

    /// The engine said that a volume has changed.
    pub fn said_changed(&mut self, plan: &Plan, volume: usize, info: Option<VolumeInfo>) -> Verdict {
        // Two changes handled before the first is announced may undo each other.
        ensure(self.infos[volume] != info || plan.batching > 0, Checker::Advertised, || {
            (format!("volume {volume}"), "a change was announced, but nothing has changed")
        })?;
        self.infos[volume] = info;
        Ok(())
    }

    /// The engine has nothing more to say for now.
    pub fn drained(&self, plan: &Plan, engine: &Engine, now: Instant, liveness: Instant, poisoned: &[bool]) -> Verdict {
        for (d, audit) in self.disks.iter().enumerate() {
            audit.compare(engine.disk_stats(platter_block::DiskId(d as u32)), poisoned[d])?;
        }
        for (v, known) in self.infos.iter().enumerate() {
            let info = engine.volume_info(platter_block::VolumeId(v as u32));
            ensure(*known == info, Checker::Advertised, || (format!("volume {v}"), format!("unannounced: {info:?}")))?;
        }
        for op in self.ops.values().filter(|op| op.aborted_at.is_some()) {
            ensure(op.writes_out > 0, Checker::Abort, || {
                (format!("op {}", op.number), "was aborted, has no write at a disk, and has not ended")
            })?;
            let late = op.aborted_at.is_some_and(|t| now > t + ABORT_GRACE + BATCH_WINDOW);
            ensure(!late, Checker::Abort, || (format!("op {}", op.number), "was aborted and the grace is over"))?;
        }
        let Some(oldest) = self.ops.values().next() else { return Ok(()) };
        let limit = liveness.max(oldest.began_at + self.patience(plan));
        ensure(now <= limit, Checker::Liveness, || (format!("op {}", oldest.number), "has not ended for too long"))
    }

    /// The world has come to rest: nothing is at a disk, no timer runs.
    pub fn at_rest(&self) -> Verdict {
        match self.ops.values().next() {
            Some(op) => fault(Checker::Liveness, format!("op {}", op.number), "never ends: everything is at rest"),
            None => Ok(()),
        }
    }

    /// How long an op may take when nothing hangs: it may wait for every other op in flight, each of which takes a few of
    /// the slowest commands.
    fn patience(&self, plan: &Plan) -> Duration {
        let slowest = plan.disks.iter().map(|d| d.latency_max * if d.spikes > 0 { 50 } else { 1 }).max().unwrap_or(0);
        Duration::from_nanos(200 * slowest) + 2 * ABORT_GRACE
    }

    pub(super) fn next(&mut self) -> Step {
        self.step += 1;
        self.step
    }

    fn advertises_durable(&self, volume: usize) -> bool {
        self.infos[volume].as_ref().is_some_and(|i| !i.write_cache)
    }

    /// Whether `Good` for this op means that something is durable.
    fn promises(&self, op: &Running) -> bool {
        match op.op {
            Op::Flush | Op::SetWriteCache { enabled: false } => true,
            _ if op.op.is_write() => op.is_fua() || op.advertised_durable && self.advertises_durable(op.volume),
            _ => false,
        }
    }

    fn check_abort_timing(&self, place: &str, op: &Running, now: Instant, status: Status) -> Verdict {
        let Some(asked) = op.aborted_at else {
            return ensure(status != Status::Aborted, Checker::Status, || (place, "was not aborted"));
        };
        ensure(now <= asked + ABORT_GRACE + BATCH_WINDOW, Checker::Abort, || (place, "ends after the grace"))?;
        ensure(op.writes_out == 0 || now >= asked + ABORT_GRACE, Checker::Abort, || {
            (place, "ends although a write of it is at a disk and the grace is not over")
        })
    }

    fn check_status(&self, plan: &Plan, place: &str, op: &Running, status: Status) -> Verdict {
        let volume = &plan.volumes[op.volume];
        let disks = || volume.disks().into_iter().map(|d| &self.disks[d]);
        let inside = op.op.range().is_none_or(|r| r.within(volume.blocks));
        let complete = match op.op {
            _ if op.range().count.0 == 0 => true,
            Op::Read { .. } => op.read_good == op.all(),
            Op::Write { .. } | Op::WriteZeroes { .. } | Op::Unmap { .. } => op.write_good == op.all(),
            Op::CompareAndWrite { .. } | Op::OrWrite { .. } => op.read_good == op.all() && op.write_good == op.all(),
            Op::BlockStatus { .. } => op.read_good != Blocks(0),
            Op::Flush | Op::SetWriteCache { .. } => true,
        };
        let right = match status {
            Status::Good => inside && complete && (op.failures.is_empty() || matches!(op.op, Op::BlockStatus { .. })),
            Status::LbaOutOfRange => !inside,
            Status::WriteProtected => op.op.is_write() && volume.disks().iter().any(|&d| plan.disks[d].info.read_only),
            Status::MiscompareAt { offset } => op.differs_at == Some(offset) && op.write_sent == Blocks(0),
            Status::NotReady => disks().any(|d| d.was_missing(op.began)),
            Status::Gone => op.failures.contains(&status) || disks().any(|d| d.was_missing(op.began)),
            Status::Aborted => true,
            Status::DurabilityLost => {
                !matches!(op.op, Op::Read { .. } | Op::BlockStatus { .. })
                    && disks().any(|d| d.may_lack_durability(op.began))
            }
            Status::Unsupported => match op.op {
                Op::Unmap { .. } => volume.disks().iter().any(|&d| plan.disks[d].info.discard.is_none()),
                Op::SetWriteCache { enabled } => {
                    // Between two drains it may have been different.
                    let changeable = self.infos[op.volume].as_ref().is_some_and(|i| i.write_cache_changeable);
                    enabled && (!changeable || plan.batching > 0)
                }
                _ => false,
            },
            Status::Busy => op.failures.contains(&status) || disks().any(|d| d.was_busy(op.began)),
            Status::MediumError { .. } | Status::NoSpace => op.failures.contains(&status),
        };
        ensure(right, Checker::Status, || {
            let what = format!(
                "ends {status:?}; within the volume: {inside}, every piece good: {complete}, failed pieces: {:?}",
                op.failures
            );
            (place, what)
        })
    }

    fn check_read(&mut self, op: &Running, step: Step) -> Verdict {
        for (index, &value) in op.values.iter().enumerate() {
            let lba = op.range().start.0 + index as u64;
            if let Err(what) = self.registers.read(op.volume, lba, value, op.began, step) {
                let checker = if self.verifying { Checker::Survival } else { Checker::Register };
                let place = format!("volume {} block {lba}", op.volume);
                return fault(checker, place, format!("{what}; the value seen is of op {}", writer_of(value)));
            }
        }
        Ok(())
    }
}

/// The volume of a piece whose op has ended.
fn volume_of(plan: &Plan, piece: &Piece) -> usize {
    match piece.disk_op {
        DiskOp::Write { lba, .. } | DiskOp::WriteZeroes { lba, .. } | DiskOp::Unmap { lba, .. } => {
            plan.owner(piece.disk, lba.0).map_or(0, |(volume, _)| volume)
        }
        _ => 0,
    }
}

fn check_extents(place: &str, op: &Running, report: Option<&Report>) -> Verdict {
    let Some(Report::Extents(extents)) = report else {
        return fault(Checker::Status, place, "a question ended without an answer");
    };
    let mut at = op.range().start.0;
    let mut consecutive = !extents.is_empty() || op.range().count.0 == 0;
    for extent in extents {
        consecutive &= extent.lba.0 == at && extent.count.0 > 0;
        at += u64::from(extent.count.0);
    }
    ensure(consecutive && at <= op.range().end(), Checker::Status, || (place, format!("answers {extents:?}")))
}
