//! The life of an op: admitted, started, made into pieces, made durable, answered; or aborted.

use platter_block::{BlockCount, Instant, IoId, Lba, Op, Report, Status, Tag, VolumeId};

use crate::engine::{ABORT_GRACE, Engine, MAX_OPS, MAX_OPS_PER_VOLUME, Output};
use crate::flush_gate::{Answer, Waiter};
use crate::ranges::Access;
use crate::slab::Key;
use crate::task::{DiskIo, IoKind, Phase, Task, asks_fua, buffer_bytes, is_exclusive};

impl Engine {
    /// Admits an op, and starts it unless it must wait for its range.
    pub(crate) fn submit(&mut self, tag: Tag, volume: VolumeId, op: Op) {
        let Some(position) = self.volume_position(volume) else {
            return self.outputs.push_back(Output::Done { tag, status: Status::NotReady, report: None });
        };
        let volume = &self.volumes[position];
        let room = self.tasks.len() < MAX_OPS && volume.counts.in_flight < MAX_OPS_PER_VOLUME;
        let refusal = if room { self.refusal(position, &op) } else { Some(Status::Busy) };
        let key = self.tasks.insert(Task::new(tag, op, position));
        let earlier = self.tags.insert(tag, key);
        assert!(earlier.is_none(), "{tag:?} is in flight already");
        let volume = &mut self.volumes[position];
        volume.counts.in_flight += 1;
        if let Some(status) = refusal {
            if op == Op::Flush && status == Status::NotReady {
                self.refuse_flush(position);
            }
            return self.finish(key, status);
        }
        if let Some(range) = op.range() {
            if range.count.0 == 0 {
                return self.finish(key, Status::Good); // only its LBA was to be checked
            }
            let access = if is_exclusive(&op) { Access::Exclusive } else { Access::Shared };
            let (id, may_start) = volume.ranges.enter(range, access, key);
            self.task_mut(key).range_id = Some(id);
            if !may_start {
                return;
            }
        }
        self.start(key);
    }

    /// Starts those whose wait for a range is over.
    pub(crate) fn start_runnable(&mut self) {
        while let Some(key) = self.runnable.pop_front() {
            let task = self.task(key);
            // The world may have changed while it waited.
            match self.refusal(task.volume, &task.op) {
                Some(status) => self.finish(key, status),
                None => self.start(key),
            }
        }
    }

    /// A disk op ended.
    pub(crate) fn completed(&mut self, io: IoId, status: Status, report: Option<Box<Report>>) {
        let io = self.ios.remove(Key(io.0)).filter(|io| io.sent).expect("a disk op was handed out and ends once");
        let disk = &mut self.disks[io.disk];
        disk.counts.in_flight -= 1;
        // F6: a disk that went away took its cache along; a late success proves nothing.
        let status = if disk.has_gone_since(io.epoch) { Status::Gone } else { status };
        disk.counts.errors += u64::from(!status.is_good());
        if io.kind == IoKind::Flush {
            return self.flush_ended(io.disk, status);
        }
        self.task_mut(io.task).sent -= 1;
        match status {
            Status::Good => self.piece_landed(&io, report),
            Status::MediumError { lba } => {
                let lba = io.to_volume(lba);
                self.task_mut(io.task).fail(Status::MediumError { lba });
            }
            other => self.task_mut(io.task).fail(other), // F4: no claim for the whole op
        }
        if status == Status::DurabilityLost && matches!(io.kind, IoKind::Write { .. }) {
            self.poison(io.disk); // F3: the disk could not keep what a FUA write told it to keep
        }
        self.advance(io.task);
    }

    /// Bytes were compared or combined.
    pub(crate) fn decided(&mut self, io: IoId, differs_at: Option<u64>) {
        let io = self.ios.remove(Key(io.0)).filter(|io| io.sent).expect("bytes were handed out and are answered once");
        let task = self.task_mut(io.task);
        task.sent -= 1;
        match differs_at {
            None => {
                task.phase = Phase::Moving;
                task.next = 0;
            }
            Some(offset) => task.fail(Status::MiscompareAt { offset }),
        }
        self.advance(io.task);
    }

    /// Ends an op early. What no disk works on ends at once, and so does what only reads or waits for a flush. A write in
    /// flight ends when its disk is through with the pieces sent so far, or behind a fence after [`ABORT_GRACE`].
    pub(crate) fn abort(&mut self, now: Instant, tag: Tag) {
        let Some(&key) = self.tags.get(&tag) else { return };
        let task = self.task_mut(key);
        if task.aborted {
            return;
        }
        task.aborted = true;
        task.queued = 0;
        if task.is_writing() {
            let (volume, range) = (task.volume, task.range_id.expect("a write stays in its range until it has ended"));
            self.volumes[volume].ranges.fence(range);
            self.graces.push_back((now + ABORT_GRACE, key));
        } else {
            self.finish(key, Status::Aborted);
        }
    }

    /// Answers aborted writes whose disk is stuck; their fence stays.
    pub(crate) fn expire_graces(&mut self, now: Instant) {
        while let Some(&(at, key)) = self.graces.front() {
            let waits = self.tasks.get(key).is_some_and(|task| !task.answered);
            if waits && at > now {
                return;
            }
            self.graces.pop_front();
            if waits {
                let volume = self.task(key).volume;
                self.volumes[volume].counts.fences += 1;
                self.answer(key, Status::Aborted);
            }
        }
    }

    /// A flush that a task waited for ended.
    pub(crate) fn gate_opened(&mut self, key: Key, status: Status) {
        let task = self.task_mut(key);
        task.gates -= 1;
        if !status.is_good() {
            task.fail(status);
        }
        if task.gates == 0 {
            let status = task.error.unwrap_or(Status::Good);
            self.finish(key, status);
        }
    }

    /// Why an op cannot start now, if it cannot.
    fn refusal(&self, position: usize, op: &Op) -> Option<Status> {
        let volume = &self.volumes[position];
        let info = volume.info();
        if !info.ready {
            return Some(Status::NotReady);
        }
        if op.range().is_some_and(|range| !range.within(info.blocks)) {
            return Some(Status::LbaOutOfRange);
        }
        if op.is_write() && info.read_only {
            return Some(Status::WriteProtected);
        }
        let able = match op {
            Op::Unmap { .. } => info.discard.is_some(),
            Op::SetWriteCache { enabled } => !enabled || info.write_cache_changeable,
            _ => buffer_bytes(op, info.block_size) <= u64::from(u32::MAX),
        };
        if !able {
            return Some(Status::Unsupported);
        }
        let fua = asks_fua(op) || !volume.write_cache;
        if op.is_write() && fua && self.writes_to_poisoned(position, op) {
            return Some(Status::DurabilityLost); // F3
        }
        None
    }

    /// Whether the op writes to a poisoned disk.
    fn writes_to_poisoned(&self, position: usize, op: &Op) -> bool {
        let volume = &self.volumes[position];
        let is_poisoned = |slot: u8| self.disks[volume.disk(slot)].gate.is_poisoned();
        if !(0..volume.map.disks().len()).any(|slot| is_poisoned(slot as u8)) {
            return false;
        }
        let range = op.range().expect("a write has a range");
        let mut at = range.start.0;
        while at < range.end() {
            let place = volume.map.locate(at);
            if is_poisoned(place.slot) {
                return true;
            }
            at += place.left;
        }
        false
    }

    fn start(&mut self, key: Key) {
        let task = self.tasks.get_mut(key).expect("a task starts before it ends");
        let volume = &mut self.volumes[task.volume];
        task.fua = asks_fua(&task.op) || !volume.write_cache; // F9
        task.epoch = self.epoch;
        task.phase = if is_exclusive(&task.op) { Phase::Reading } else { Phase::Moving };
        match task.op {
            Op::Flush => {
                let every_disk = volume.all_slots();
                self.make_durable(key, every_disk);
            }
            Op::SetWriteCache { enabled } => self.set_write_cache(key, enabled),
            _ => self.advance(key),
        }
    }

    /// F9. Off: from now on each write is made durable before its answer, and this op ends when what was written before is
    /// durable, by a flush that is really sent (F6). On: nothing was promised that has to be kept.
    fn set_write_cache(&mut self, key: Key, enabled: bool) {
        let position = self.task(key).volume;
        let volume = &mut self.volumes[position];
        let switched = volume.write_cache != enabled;
        volume.write_cache = enabled;
        if enabled {
            self.refresh_volume(position);
            return self.finish(key, Status::Good);
        }
        let every_disk = volume.all_slots();
        if switched {
            for (slot, &disk) in volume.map.disks().iter().enumerate() {
                if self.disks[disk].is_volatile() {
                    volume.last_undurable[slot] = self.disks[disk].gate.forget(); // F6
                }
            }
            self.refresh_volume(position);
        }
        self.make_durable(key, every_disk);
    }

    /// Takes a task as far as it goes without waiting.
    fn advance(&mut self, key: Key) {
        self.make_pieces(key);
        let task = self.task(key);
        if task.queued + task.sent > 0 {
            return;
        }
        if !task.goes_on() {
            let status = if task.aborted { Status::Aborted } else { task.error.unwrap_or(Status::Good) };
            return self.finish(key, status);
        }
        match task.phase {
            Phase::Reading => self.decide(key),
            Phase::Moving => self.moved(key),
            Phase::Waiting | Phase::Deciding | Phase::Flushing => {
                unreachable!("{:?} does not end by a piece", task.phase)
            }
        }
    }

    /// Makes pieces, cut at the ends of segments and at what the disk takes, until the range or the window is full.
    fn make_pieces(&mut self, key: Key) {
        let task = self.tasks.get_mut(key).expect("a task outlives its pieces");
        let Some(range) = task.op.range() else { return };
        let volume = &self.volumes[task.volume];
        let block_size = volume.info().block_size;
        while task.goes_on() && task.next < range.count.0 && task.queued + task.sent < task.window() {
            let volume_lba = Lba(range.start.0 + u64::from(task.next));
            let place = volume.map.locate(volume_lba.0);
            let position = volume.disk(place.slot);
            let disk = &self.disks[position];
            let limit = task.piece_limit(disk).min(range.count.0 - task.next);
            let count = BlockCount(u64::from(limit).min(place.left) as u32);
            let native_fua = task.fua && disk.sends_fua(); // F8
            let op = task.piece(place.lba, count, native_fua, block_size);
            let io = self.ios.insert(DiskIo {
                task: key,
                kind: IoKind::of(&op),
                disk: position,
                slot: place.slot,
                sent: false,
                epoch: self.epoch,
                volume_lba,
                disk_lba: place.lba,
                count,
            });
            self.outputs.push_back(Output::Io { io: IoId(io.0), disk: disk.id(), op });
            task.queued += 1;
            task.next += count.0;
        }
    }

    /// A piece ended well.
    fn piece_landed(&mut self, io: &DiskIo, report: Option<Box<Report>>) {
        let task = self.tasks.get_mut(io.task).expect("a task outlives its pieces");
        match io.kind {
            IoKind::Write { fua } => {
                let disk = &mut self.disks[io.disk];
                if !disk.is_durable_by_itself(fua, io.epoch) {
                    let seq = disk.gate.wrote(); // F1: before the op can end
                    let volume = &mut self.volumes[task.volume];
                    volume.last_undurable[usize::from(io.slot)] = seq;
                    task.owes |= 1 << io.slot;
                }
            }
            IoKind::BlockStatus => task.add_extents(io, report),
            IoKind::Read | IoKind::Bytes | IoKind::Flush => {}
        }
    }

    /// Both sides are in the buffer: compare or combine them.
    fn decide(&mut self, key: Key) {
        let task = self.tasks.get_mut(key).expect("a task outlives its pieces");
        let io = self.ios.insert(DiskIo::bytes(key));
        let io = IoId(io.0);
        let len = task.count().bytes(self.volumes[task.volume].info().block_size) as usize;
        let output = match task.op {
            Op::CompareAndWrite { buf, .. } => Output::Compare { io, buf, left_at: 0, right_at: 2 * len, len },
            Op::OrWrite { buf, .. } => Output::Combine { io, buf, into_at: len, from_at: 0, len },
            _ => unreachable!("only exclusive ops read first"),
        };
        task.phase = Phase::Deciding;
        task.queued = 1;
        self.outputs.push_back(output);
    }

    /// Every piece ended well. The disks that did not make their pieces durable are asked for one flush each.
    fn moved(&mut self, key: Key) {
        let task = self.task(key);
        let volume = &self.volumes[task.volume];
        let owes = task.owes;
        if owes == 0 {
            return self.finish(key, Status::Good);
        }
        let lost =
            |(slot, &disk): (usize, &usize)| owes >> slot & 1 == 1 && self.disks[disk].has_lost_since(task.epoch);
        if volume.map.disks().iter().enumerate().any(lost) {
            return self.finish(key, Status::DurabilityLost); // F3: written before a fault was cleared, ended after it
        }
        // The write cache may have been switched off while it ran (F9).
        if task.fua || !volume.write_cache {
            self.make_durable(key, owes);
        } else {
            self.finish(key, Status::Good);
        }
    }

    /// Asks the disks in `slots` that everything this volume wrote there be durable; ends the task if there is nothing to
    /// wait for.
    fn make_durable(&mut self, key: Key, slots: u128) {
        let task = self.tasks.get_mut(key).expect("a task asks before it ends");
        task.phase = Phase::Flushing;
        let volume = &self.volumes[task.volume];
        for (slot, &position) in volume.map.disks().iter().enumerate() {
            if slots >> slot & 1 == 0 {
                continue;
            }
            let disk = &mut self.disks[position];
            disk.counts.fua_emulated += u64::from(task.op.is_write());
            match disk.gate.request(volume.last_undurable[slot], Waiter::Op(key)) {
                Answer::Durable => {}
                Answer::Waits => {
                    task.gates += 1;
                    self.flushes.schedule(position, &disk.gate);
                }
                Answer::Refused => task.fail(Status::DurabilityLost), // F3
            }
        }
        if task.gates == 0 {
            let status = task.error.unwrap_or(Status::Good);
            self.finish(key, status);
        }
    }

    /// Nothing of the task can touch the medium or the buffer any more, or only in a way that nobody sees: answers it,
    /// unless that has been done, and lets the next in its range start. The slot is kept while something is still out.
    fn finish(&mut self, key: Key, status: Status) {
        let answered = self.task(key).answered;
        if !answered {
            self.answer(key, status);
        }
        let task = self.tasks.get_mut(key).expect("a task ends once");
        let volume = &mut self.volumes[task.volume];
        if let Some(id) = task.range_id.take() {
            volume.counts.fences -= u32::from(answered); // only a fence outlives the answer
            volume.ranges.leave(id, &mut self.runnable);
        }
        if !task.is_out() {
            volume.counts.in_flight -= 1;
            self.tasks.remove(key);
        }
    }

    /// The one answer to an op.
    fn answer(&mut self, key: Key, status: Status) {
        let task = self.tasks.get_mut(key).expect("a task ends once");
        assert!(!task.answered, "{:?} ends once", task.tag);
        task.answered = true;
        self.tags.remove(&task.tag);
        let counts = &mut self.volumes[task.volume].counts;
        match (status, task.op) {
            (Status::Good, Op::Read { count, .. }) => {
                counts.reads += 1;
                counts.blocks_read += u64::from(count.0);
            }
            (Status::Good, Op::Flush) => counts.flushes += 1,
            (Status::Good, op) => {
                if op.is_write() {
                    counts.writes += 1;
                    counts.blocks_written += u64::from(task.count().0);
                }
            }
            (Status::Aborted, _) => counts.aborted += 1,
            _ => counts.errors += 1,
        }
        let asks = matches!(task.op, Op::BlockStatus { .. }) && status.is_good();
        let report = asks.then(|| Box::new(Report::Extents(std::mem::take(&mut task.extents))));
        self.outputs.push_back(Output::Done { tag: task.tag, status, report });
    }

    fn task(&self, key: Key) -> &Task {
        self.tasks.get(key).expect("a task keeps its slot while something of it is out")
    }

    fn task_mut(&mut self, key: Key) -> &mut Task {
        self.tasks.get_mut(key).expect("a task keeps its slot while something of it is out")
    }
}
