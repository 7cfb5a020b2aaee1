//! Watches everything that goes into the engine and comes out of it, and says when an invariant does not hold.
//!
//! It keeps the ops and pieces in flight, the [`Registers`] that say what blocks may hold, and one [`FlushAudit`] per disk.
//! It judges only by what the engine was told, never by what the medium holds.

use std::collections::BTreeMap;

use platter_block::{DiskInfo, DiskOp, Instant, IoId, Lba, Op, Report, Status, Tag, VolumeInfo};
use platter_engine::{ABORT_GRACE, Engine};

use super::disk::Ended;
use super::flush_audit::{FlushAudit, Promise};
use super::hosts::{value_of, writer_of};
use super::medium::Value;
use super::ops::{Blocks, Piece, Pieces, Running};
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
    pieces: Pieces,
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
    pub fn bare(&self) -> Vec<(usize, platter_block::BlockRange)> {
        let bare = |op: &&Running| matches!(op.op, Op::WriteZeroes { .. } | Op::Unmap { .. } | Op::BlockStatus { .. });
        self.ops.values().filter(bare).map(|op| (op.volume, op.range())).collect()
    }

    /// The engine sends a disk op. Gives what a write brings.
    pub fn sent(&mut self, plan: &Plan, io: IoId, disk: usize, disk_op: DiskOp) -> Verdict<Vec<Value>> {
        let now = self.next();
        let place = || format!("disk {disk}, {io:?}");
        let Some(info) = self.disks[disk].info.clone() else {
            return fault(Checker::Silence, place(), "was sent to a missing disk");
        };
        if disk_op == DiskOp::Flush {
            let wanted_by = self.waiting_for_flush(plan);
            self.pieces.insert(io, Piece { op: None, disk, disk_op, blocks: Blocks(0), sent: now });
            self.disks[disk].flush_sent(io, now, wanted_by.as_deref())?;
            return Ok(Vec::new());
        }
        let number = self.submitter(plan, disk, &disk_op)?;
        let blocks = self.check_mapping(plan, &info, number, disk, &disk_op)?;
        self.check_exclusive(number)?;

        let Self { ops, disks, registers, .. } = self;
        let op = ops.get_mut(&number).expect("check_mapping() found it");
        let writes = is_write(&disk_op);
        let sent = if writes { &mut op.write_sent } else { &mut op.read_sent };
        ensure(!sent.meets(blocks), Checker::Mapping, || (place(), format!("a block of op {number} is sent twice")))?;
        sent.add(blocks);
        op.out += 1;
        let mut values = Vec::new();
        if writes {
            op.writes_out += 1;
            op.wrote[disk] = true;
            disks[disk].write_sent();
            let (_, from) = op.buffer_layout();
            for index in (0..64).filter(|&i| blocks.has(i)) {
                let value = match disk_op {
                    DiskOp::Write { .. } => op.values[(from + index) as usize],
                    _ => 0,
                };
                registers.sent(op.volume, op.range().start.0 + index, number, value, op.began);
                values.push(value);
            }
            if let (DiskOp::Unmap { .. }, Some(discard)) = (disk_op, &info.discard) {
                op.hints.add(hints(&disk_op, blocks, u64::from(discard.granularity)));
            }
        } else if matches!(disk_op, DiskOp::Read { .. }) {
            disks[disk].read_sent();
        } else {
            disks[disk].question_sent();
        }
        self.pieces.insert(io, Piece { op: Some(number), disk, disk_op, blocks, sent: now });
        Ok(values)
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

    /// The engine asks for a comparison. Gives the first byte that differs, from the start of the compared bytes.
    pub fn compare(&mut self, block_size: u32, buf: u64, at: [usize; 2], len: usize) -> Verdict<Option<u64>> {
        let now = self.next();
        let (first, count) = self.check_sides(block_size, buf, at, len, |n| (0, 2 * n))?;
        let size = u64::from(block_size);
        let op = self.ops.get_mut(&buf).expect("check_sides() found it");
        let n = u64::from(op.range().count.0);
        let mut differs_at = None;
        for index in first..first + count {
            let (wanted, found) = (op.values[index as usize], op.values[(2 * n + index) as usize]);
            let (volume, lba, began) = (op.volume, op.range().start.0 + index, op.began);
            if let Err(what) = self.registers.read(volume, lba, found, began, now) {
                return fault(Checker::Register, format!("volume {volume} block {lba}"), what);
            }
            if wanted != found && differs_at.is_none() {
                // Somewhere within the block.
                differs_at = Some((index - first) * size + found % size);
                op.differs_at = Some(index * size + found % size);
            }
        }
        Ok(differs_at)
    }

    /// The engine asks to combine two parts of a buffer.
    pub fn combine(&mut self, block_size: u32, buf: u64, at: [usize; 2], len: usize) -> Verdict {
        let now = self.next();
        let (first, count) = self.check_sides(block_size, buf, at, len, |n| (n, 0))?;
        let op = self.ops.get_mut(&buf).expect("check_sides() found it");
        let n = u64::from(op.range().count.0);
        for index in first - n..first - n + count {
            let result = &mut op.values[(n + index) as usize];
            let (volume, lba) = (op.volume, op.op.range().map_or(0, |r| r.start.0) + index);
            if let Err(what) = self.registers.read(volume, lba, *result, op.began, now) {
                return fault(Checker::Register, format!("volume {volume} block {lba}"), what);
            }
            *result = value_of(op.number, index, true);
        }
        Ok(())
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
    fn patience(&self, plan: &Plan) -> std::time::Duration {
        let slowest = plan.disks.iter().map(|d| d.latency_max * if d.spikes > 0 { 50 } else { 1 }).max().unwrap_or(0);
        std::time::Duration::from_nanos(200 * slowest) + 2 * ABORT_GRACE
    }

    fn next(&mut self) -> Step {
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

    /// The volumes of ops that may cause a flush; `None` where that cannot be told, since a waiter may have been aborted
    /// after its flush was decided.
    fn waiting_for_flush(&self, plan: &Plan) -> Option<Vec<usize>> {
        if plan.faults.aborts > 0 || plan.faults.disconnects > 0 {
            return None;
        }
        let waits = |op: &&Running| !matches!(op.op, Op::Read { .. } | Op::BlockStatus { .. });
        Some(self.ops.values().filter(waits).map(|op| op.volume).collect())
    }

    /// The op on behalf of which a disk op is sent.
    fn submitter(&self, plan: &Plan, disk: usize, disk_op: &DiskOp) -> Verdict<u64> {
        let place = || format!("disk {disk}");
        match *disk_op {
            DiskOp::Read { buf, .. } | DiskOp::Write { buf, .. } => match self.ops.contains_key(&buf.0) {
                true => Ok(buf.0),
                false => fault(Checker::Silence, place(), format!("{disk_op:?} is sent for an op that has ended")),
            },
            DiskOp::WriteZeroes { lba, .. } | DiskOp::Unmap { lba, .. } | DiskOp::BlockStatus { lba, .. } => {
                let Some((volume, lba)) = plan.owner(disk, lba.0) else {
                    return fault(Checker::Mapping, place(), format!("{disk_op:?} touches a block of no volume"));
                };
                let matches = |op: &&Running| {
                    let kind = match (&op.op, disk_op) {
                        (Op::WriteZeroes { may_unmap: a, .. }, DiskOp::WriteZeroes { may_unmap: b, .. }) => a == b,
                        (Op::Unmap { .. }, DiskOp::Unmap { .. }) => true,
                        (Op::BlockStatus { .. }, DiskOp::BlockStatus { .. }) => op.out == 0,
                        _ => false,
                    };
                    kind && op.volume == volume && (op.range().start.0..op.range().end()).contains(&lba)
                };
                match self.ops.values().find(matches) {
                    Some(op) => Ok(op.number),
                    None => fault(Checker::Silence, place(), format!("{disk_op:?} is sent for no op in flight")),
                }
            }
            DiskOp::Flush => unreachable!("flushes have no submitter"),
        }
    }

    fn check_mapping(
        &self,
        plan: &Plan,
        info: &DiskInfo,
        number: u64,
        disk: usize,
        disk_op: &DiskOp,
    ) -> Verdict<Blocks> {
        let op = &self.ops[&number];
        let wrong =
            |what: &str| fault(Checker::Mapping, format!("disk {disk}, op {number}"), format!("{disk_op:?} {what}"));
        ensure(op.aborted_at.is_none(), Checker::Silence, || {
            (format!("disk {disk}, op {number}"), "is sent after the abort")
        })?;
        let kinds_agree = match (disk_op, &op.op) {
            (DiskOp::Read { .. }, Op::Read { .. } | Op::CompareAndWrite { .. } | Op::OrWrite { .. }) => true,
            (DiskOp::Write { .. }, Op::Write { .. } | Op::OrWrite { .. }) => true,
            (DiskOp::Write { .. }, Op::CompareAndWrite { .. }) => op.read_good == op.all() && op.differs_at.is_none(),
            (DiskOp::Read { .. } | DiskOp::Write { .. }, _) => false,
            _ => true,
        };
        if !kinds_agree {
            return wrong("does not belong to this op");
        }
        let (lba, count, at, limit) = match *disk_op {
            DiskOp::Read { lba, count, at, .. } | DiskOp::Write { lba, count, at, .. } => {
                (lba, count, Some(u64::from(at)), info.max_transfer)
            }
            DiskOp::Unmap { lba, count } => (lba, count, None, info.discard.map_or(0, |d| d.max_blocks)),
            DiskOp::WriteZeroes { lba, count, .. } | DiskOp::BlockStatus { lba, count } => (lba, count, None, u32::MAX),
            DiskOp::Flush => unreachable!("flushes are not mapped"),
        };
        if count.0 == 0 || count.0 > limit {
            return wrong("has no blocks, or more than the disk takes");
        }
        if matches!(disk_op, DiskOp::Write { fua: true, .. }) && !self.disks[disk].takes_fua() {
            return wrong("asks a disk for FUA that has none, or is not to be trusted");
        }
        if is_write(disk_op) && info.read_only {
            return wrong("writes to a read-only disk");
        }
        let start = op.range().start.0;
        let mut first = None;
        for i in 0..u64::from(count.0) {
            let owner = plan.owner(disk, lba.0 + i);
            let index = owner.filter(|&(v, _)| v == op.volume).and_then(|(_, b)| b.checked_sub(start));
            let expected = first.map_or(index, |f| Some(f + i));
            if index.is_none() || index != expected || index >= Some(u64::from(op.range().count.0)) {
                return wrong("touches blocks outside the op");
            }
            first = first.or(index);
        }
        let first = first.expect("the count is not 0");
        if let Some(at) = at {
            let (read_into, write_from) = op.buffer_layout();
            let base = if is_write(disk_op) { write_from } else { read_into };
            if at != (base + first) * u64::from(plan.block_size) {
                return wrong("uses the wrong part of the buffer");
            }
        }
        Ok(Blocks::run(first, u64::from(count.0)))
    }

    /// Nothing of another op is under way on the range of an exclusive op, and the other way round.
    fn check_exclusive(&self, number: u64) -> Verdict {
        let op = &self.ops[&number];
        let clashes = |other: &&Running| {
            other.number != number
                && other.volume == op.volume
                && (other.is_exclusive() || op.is_exclusive())
                && other.range().overlaps(op.range())
                && other.is_at_work()
        };
        match self.ops.values().find(clashes) {
            Some(other) => fault(
                Checker::Exclusive,
                format!("volume {}, op {number}", op.volume),
                format!("goes to a disk while op {} is at work on the same blocks", other.number),
            ),
            None => Ok(()),
        }
    }

    /// The two sides of a comparison or combination are blocks of the op that correspond. Gives the first block of the
    /// left side and how many. `bases`: where both sides begin, for an op of `n` blocks.
    fn check_sides(
        &self,
        block_size: u32,
        buf: u64,
        at: [usize; 2],
        len: usize,
        bases: impl Fn(u64) -> (u64, u64),
    ) -> Verdict<(u64, u64)> {
        let place = || format!("op {buf}");
        let Some(op) = self.ops.get(&buf) else {
            return fault(Checker::Silence, place(), "its buffer is used after its end");
        };
        let size = block_size as usize;
        let n = u64::from(op.range().count.0);
        let (left_base, right_base) = bases(n);
        let (left, right, count) = ((at[0] / size) as u64, (at[1] / size) as u64, (len / size) as u64);
        let aligned = [at[0], at[1], len].iter().all(|x| x % size == 0);
        let correspond = left >= left_base && right >= right_base && left - left_base == right - right_base;
        let inside = left - left_base.min(left) + count <= n;
        let read = op.read_good == op.all();
        ensure(aligned && correspond && inside && read, Checker::Mapping, || {
            (place(), format!("compares or combines {at:?}+{len} of a buffer of {n} blocks, all read: {read}"))
        })?;
        Ok((left, count))
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

fn is_write(disk_op: &DiskOp) -> bool {
    matches!(disk_op, DiskOp::Write { .. } | DiskOp::WriteZeroes { .. } | DiskOp::Unmap { .. })
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

/// Of the blocks of an unmap piece, those whose granule it covers only in part.
fn hints(disk_op: &DiskOp, blocks: Blocks, granularity: u64) -> Blocks {
    let DiskOp::Unmap { lba, count } = *disk_op else { return Blocks(0) };
    let first = u64::from(blocks.0.trailing_zeros());
    let end = lba.0 + u64::from(count.0);
    let mut hints = Blocks(0);
    for i in 0..u64::from(count.0) {
        let granule = (lba.0 + i) / granularity * granularity;
        if granule < lba.0 || granule + granularity > end {
            hints.add(Blocks::run(first + i, 1));
        }
    }
    hints
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
