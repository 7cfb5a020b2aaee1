//! What the engine sends to disks and asks about buffers, held against the ops it does it for: the right blocks, once, the
//! right part of the buffer, within the disk's limits, for an op in flight, and alone where an op is exclusive.

use platter_block::{DiskInfo, DiskOp, IoId, Op};

use super::hosts::value_of;
use super::medium::Value;
use super::ops::{Blocks, Piece, Running};
use super::plan::Plan;
use super::referee::Referee;
use super::verdict::{Checker, Verdict, ensure, fault};

impl Referee {
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
}

/// Whether a disk op changes the medium.
pub(super) fn is_write(disk_op: &DiskOp) -> bool {
    matches!(disk_op, DiskOp::Write { .. } | DiskOp::WriteZeroes { .. } | DiskOp::Unmap { .. })
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
