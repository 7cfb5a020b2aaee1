//! An engine with its outputs in the test's hands: nothing ends before the test says so.

use std::time::Duration;

use platter_block::{
    BlockCount, BufId, DiskId, DiskInfo, DiskOp, Fua, Instant, IoId, Lba, Op, Report, Rotation, Status, Tag, VolumeId,
};
use platter_engine::{DiskStats, Engine, FuaPolicy, Input, Output, Segment};

/// A disk op that was handed out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sent {
    pub(crate) io: IoId,
    pub(crate) disk: u32,
    pub(crate) op: DiskOp,
}

pub(crate) struct Rig {
    pub(crate) engine: Engine,
    pub(crate) now: Instant,
    /// Every disk op ever handed out.
    pub(crate) sent: Vec<Sent>,
    /// Those that have not ended.
    pub(crate) open: Vec<Sent>,
    /// Compare and Combine outputs not answered.
    pub(crate) questions: Vec<Output>,
    /// Ends of ops, in order.
    pub(crate) done: Vec<(u64, Status)>,
    /// Reports of those that had one.
    pub(crate) reports: Vec<(u64, Report)>,
    /// All other outputs.
    pub(crate) told: Vec<Output>,
}

/// A disk of 512-byte blocks with a volatile cache and native FUA.
pub(crate) fn native() -> DiskInfo {
    DiskInfo {
        block_size: 512,
        physical_block: 4096,
        blocks: 1 << 20,
        volatile_cache: true,
        fua: Fua::Native,
        rotation: Rotation::Rpm(7200),
        discard: Some(platter_block::Discard { granularity: 8, alignment: 0, max_blocks: 1 << 16, reads_zeroes: true }),
        write_zeroes: true,
        max_transfer: 256,
        read_only: false,
    }
}

/// The same without FUA.
pub(crate) fn no_fua() -> DiskInfo {
    DiskInfo { fua: Fua::None, ..native() }
}

/// The same without a volatile cache.
pub(crate) fn no_cache() -> DiskInfo {
    DiskInfo { volatile_cache: false, fua: Fua::None, ..native() }
}

pub(crate) fn read(lba: u64, count: u32) -> Op {
    Op::Read { lba: Lba(lba), count: BlockCount(count), buf: BufId(lba) }
}

pub(crate) fn write(lba: u64, count: u32) -> Op {
    Op::Write { lba: Lba(lba), count: BlockCount(count), fua: false, buf: BufId(lba) }
}

pub(crate) fn fua_write(lba: u64, count: u32) -> Op {
    Op::Write { lba: Lba(lba), count: BlockCount(count), fua: true, buf: BufId(lba) }
}

pub(crate) fn zeroes(lba: u64, count: u32, fua: bool) -> Op {
    Op::WriteZeroes { lba: Lba(lba), count: BlockCount(count), fua, may_unmap: true }
}

pub(crate) fn unmap(lba: u64, count: u32) -> Op {
    Op::Unmap { lba: Lba(lba), count: BlockCount(count) }
}

pub(crate) fn compare_and_write(lba: u64, count: u32, fua: bool) -> Op {
    Op::CompareAndWrite { lba: Lba(lba), count: BlockCount(count), fua, buf: BufId(lba) }
}

pub(crate) fn or_write(lba: u64, count: u32, fua: bool) -> Op {
    Op::OrWrite { lba: Lba(lba), count: BlockCount(count), fua, buf: BufId(lba) }
}

pub(crate) fn block_status(lba: u64, count: u32) -> Op {
    Op::BlockStatus { lba: Lba(lba), count: BlockCount(count) }
}

impl Rig {
    /// Disks by number; volume 0 is 1000 blocks of each, in order, from block 0 of each.
    pub(crate) fn new(disks: &[DiskInfo]) -> Self {
        Self::with_policy(disks, FuaPolicy::Native)
    }

    pub(crate) fn with_policy(disks: &[DiskInfo], policy: FuaPolicy) -> Self {
        let mut rig = Self::bare();
        for (n, info) in disks.iter().enumerate() {
            rig.engine.add_disk(DiskId(n as u32), Some(info.clone()), policy, false);
        }
        let segments: Vec<_> = (0..disks.len() as u64).map(|n| (n * 1000, 1000, n as u32, 0)).collect();
        rig.volume(0, &segments);
        rig
    }

    /// No disks, no volumes.
    pub(crate) fn bare() -> Self {
        Self {
            engine: Engine::new(),
            now: Instant(0),
            sent: Vec::new(),
            open: Vec::new(),
            questions: Vec::new(),
            done: Vec::new(),
            reports: Vec::new(),
            told: Vec::new(),
        }
    }

    /// Segments as `(volume_lba, count, disk, disk_lba)`.
    pub(crate) fn volume(&mut self, id: u32, segments: &[(u64, u64, u32, u64)]) {
        let segments = segments
            .iter()
            .map(|&(volume_lba, count, disk, disk_lba)| Segment {
                volume_lba: Lba(volume_lba),
                count,
                disk: DiskId(disk),
                disk_lba: Lba(disk_lba),
            })
            .collect();
        self.engine.add_volume(VolumeId(id), segments).unwrap();
    }

    /// Takes an input and drains the outputs.
    pub(crate) fn handle(&mut self, input: Input) {
        self.engine.handle(self.now, input);
        self.drain();
    }

    /// Takes an input; the outputs stay in the engine.
    pub(crate) fn handle_only(&mut self, input: Input) {
        self.engine.handle(self.now, input);
    }

    pub(crate) fn drain(&mut self) {
        while self.step() {}
    }

    /// Takes one output; false if there is none.
    pub(crate) fn step(&mut self) -> bool {
        let Some(output) = self.engine.poll_output() else { return false };
        match output {
            Output::Io { io, disk, op } => {
                let sent = Sent { io, disk: disk.0, op };
                self.sent.push(sent);
                self.open.push(sent);
            }
            Output::Compare { .. } | Output::Combine { .. } => self.questions.push(output),
            Output::Done { tag, status, report } => {
                assert!(!self.done.iter().any(|&(t, _)| t == tag.0), "tag {} ends once", tag.0);
                self.done.push((tag.0, status));
                self.reports.extend(report.map(|report| (tag.0, *report)));
            }
            other => self.told.push(other),
        }
        true
    }

    pub(crate) fn submit(&mut self, tag: u64, op: Op) {
        self.submit_to(0, tag, op);
    }

    pub(crate) fn submit_to(&mut self, volume: u32, tag: u64, op: Op) {
        self.handle(Input::Submit { tag: Tag(tag), volume: VolumeId(volume), op });
    }

    pub(crate) fn abort(&mut self, tag: u64) {
        self.handle(Input::Abort { tag: Tag(tag) });
    }

    /// Ends the open disk op at `index`.
    pub(crate) fn end(&mut self, index: usize, status: Status) {
        let sent = self.open.remove(index);
        self.handle(Input::Completed { io: sent.io, status, report: None });
    }

    /// Ends the only open disk op.
    pub(crate) fn end_only(&mut self, status: Status) {
        assert_eq!(self.open.len(), 1, "{:?}", self.open);
        self.end(0, status);
    }

    /// Ends the only open flush of a disk.
    pub(crate) fn end_flush(&mut self, disk: u32, status: Status) {
        let flushes: Vec<_> =
            (0..self.open.len()).filter(|&n| self.open[n].disk == disk && self.open[n].op == DiskOp::Flush).collect();
        assert_eq!(flushes.len(), 1, "flushes running on disk {disk}");
        self.end(flushes[0], status);
    }

    /// Answers the only question: equal, or combined.
    pub(crate) fn answer(&mut self) {
        assert_eq!(self.questions.len(), 1);
        match self.questions.remove(0) {
            Output::Compare { io, .. } => self.handle(Input::Compared { io, differs_at: None }),
            Output::Combine { io, .. } => self.handle(Input::Combined { io }),
            other => panic!("{other:?} is no question"),
        }
    }

    /// Ends whatever is open, oldest first, with `Good`, until nothing is.
    pub(crate) fn settle(&mut self) {
        while !self.open.is_empty() || !self.questions.is_empty() {
            if self.open.is_empty() {
                self.answer();
            } else {
                self.end(0, Status::Good);
            }
        }
    }

    /// Submits an op and lets everything end well.
    pub(crate) fn run(&mut self, tag: u64, op: Op) {
        self.run_on(0, tag, op);
    }

    pub(crate) fn run_on(&mut self, volume: u32, tag: u64, op: Op) {
        self.submit_to(volume, tag, op);
        self.settle();
        assert_eq!(self.status(tag), Some(Status::Good), "{op:?}");
    }

    /// How an op ended.
    pub(crate) fn status(&self, tag: u64) -> Option<Status> {
        self.done.iter().find(|&&(t, _)| t == tag).map(|&(_, status)| status)
    }

    pub(crate) fn advance(&mut self, by: Duration) {
        self.now = self.now + by;
        self.handle(Input::Tick);
    }

    /// Flushes that a disk was asked for, ever.
    pub(crate) fn flushes(&self, disk: u32) -> usize {
        self.sent.iter().filter(|sent| sent.disk == disk && sent.op == DiskOp::Flush).count()
    }

    pub(crate) fn stats(&self, disk: u32) -> DiskStats {
        self.engine.disk_stats(DiskId(disk)).unwrap()
    }

    /// Asserts that nothing is left of anything, and that the counters agree with what the disks saw.
    pub(crate) fn assert_at_rest(&self) {
        assert_eq!((self.open.len(), self.questions.len()), (0, 0));
        for volume in 0.. {
            let Some(stats) = self.engine.volume_stats(VolumeId(volume)) else { break };
            assert_eq!((stats.in_flight, stats.fences), (0, 0), "volume {volume}");
        }
        for disk in 0.. {
            let Some(stats) = self.engine.disk_stats(DiskId(disk)) else { break };
            assert_eq!(stats.in_flight, 0, "disk {disk}");
            self.assert_counts(disk);
        }
        assert_eq!(self.engine.poll_timeout(), None);
    }

    /// The counting invariant, against what the disk saw.
    pub(crate) fn assert_counts(&self, disk: u32) {
        let flush = self.stats(disk).flush;
        assert_eq!(flush.requested, flush.elided + flush.joined + flush.issued + flush.refused, "{flush:?}");
        assert_eq!(flush.issued, self.flushes(disk) as u64, "{flush:?}");
    }
}
