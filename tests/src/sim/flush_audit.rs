//! What one disk was asked to make durable, counted from outside: the other side of the engine's flush gate.

use platter_block::{DiskInfo, Fua, IoId, Status};
use platter_engine::{DiskStats, FuaPolicy};

use super::registers::{Forgiven, Step};
use super::verdict::{Checker, Verdict, ensure, fault};

/// One disk in one life of the engine.
#[derive(Debug)]
pub struct FlushAudit {
    disk: usize,
    policy: FuaPolicy,
    /// What the engine was told; `None` while the disk is missing.
    pub info: Option<DiskInfo>,
    /// Whether the engine must take acknowledged writes for volatile.
    volatile: bool,
    /// When the engine was told so.
    told: Step,
    /// Undurable writes acknowledged so far.
    written: u64,
    /// How many of them were acknowledged when the newest successful flush was sent.
    covered: u64,
    /// Per volume: `written` after its newest undurable write.
    newest_of: Vec<u64>,
    /// The same, of those that ended well: what a flush of the volume waits for.
    owed_to: Vec<u64>,
    running: Option<Sent>,
    /// Since when the engine may not rely on what it knew; `None` once a flush sent later has succeeded.
    unproven: Option<Step>,
    /// Since when flushes and FUA writes must fail.
    poisoned: Option<Step>,
    /// Until when (if not still) the disk was poisoned or missing.
    unfit_until: Step,
    missing_until: Step,
    /// When a flush was last not even given to the disk.
    busy: Step,
    /// The loss that was accepted with the last clear.
    pub forgiven: Forgiven,
    /// When the disk last lost its cache while running.
    pub lost: Step,
    counts: Counts,
}

/// What an op promises about one disk of its volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Promise {
    /// That everything answered before is durable.
    Volume,
    /// That what it wrote there with FUA is durable.
    Fua,
    /// Only what the volume advertises (F9), or nothing.
    Other,
}

#[derive(Debug)]
struct Sent {
    io: IoId,
    step: Step,
    written: u64,
    /// The disk was poisoned while it ran: its success proves nothing (F3).
    void: bool,
}

#[derive(Default, Debug)]
struct Counts {
    flushes: u64,
    failed: u64,
    reads: u64,
    writes: u64,
    questions: u64,
    ended: u64,
}

impl FlushAudit {
    /// A disk as given to a new engine.
    pub fn new(disk: usize, volumes: usize, policy: FuaPolicy, info: Option<DiskInfo>, poisoned: bool) -> Self {
        let volatile = info.as_ref().is_none_or(|i| is_volatile(i, policy));
        Self {
            disk,
            policy,
            volatile,
            told: 0,
            written: 0,
            covered: 0,
            newest_of: vec![0; volumes],
            owed_to: vec![0; volumes],
            running: None,
            unproven: (info.is_none() || poisoned).then_some(0),
            poisoned: poisoned.then_some(0),
            unfit_until: 0,
            missing_until: 0,
            busy: 0,
            forgiven: Forgiven::default(),
            lost: 0,
            info,
            counts: Counts::default(),
        }
    }

    /// Whether the disk may be sent a write with FUA.
    pub fn takes_fua(&self) -> bool {
        self.policy == FuaPolicy::Native && self.info.as_ref().is_some_and(|i| i.fua == Fua::Native)
    }

    /// A read was sent.
    pub const fn read_sent(&mut self) {
        self.counts.reads += 1;
    }

    /// A write was sent.
    pub const fn write_sent(&mut self) {
        self.counts.writes += 1;
    }

    /// A question was sent.
    pub const fn question_sent(&mut self) {
        self.counts.questions += 1;
    }

    /// A flush was sent. `wanted_by`: the volumes of the ops that wait for durability; `None` if it may be sent in any case.
    pub fn flush_sent(&mut self, io: IoId, now: Step, wanted_by: Option<&[usize]>) -> Verdict {
        self.counts.flushes += 1;
        if let Some(running) = &self.running {
            return fault(Checker::OneFlush, self.place(), format!("{io:?} was sent while {:?} runs", running.io));
        }
        self.running = Some(Sent { io, step: now, written: self.written, void: false });
        let Some(volumes) = wanted_by.filter(|_| self.unproven.is_none()) else { return Ok(()) };
        ensure(self.written > self.covered, Checker::UselessFlush, || (self.place(), "nothing on it is undurable"))?;
        let owed = volumes.iter().any(|&v| self.newest_of[v] > self.covered);
        ensure(owed, Checker::UselessFlush, || {
            (self.place(), "no volume that waits for a flush has anything undurable on it")
        })
    }

    /// A flush has ended; the engine hears it now.
    pub fn flush_ended(&mut self, io: IoId, status: Status, now: Step) {
        self.counts.ended += 1;
        let Some(sent) = self.running.take_if(|s| s.io == io) else { return };
        match status {
            _ if self.info.is_none() => self.counts.failed += u64::from(!status.is_good()),
            Status::Good if sent.void => {}
            Status::Good => {
                self.covered = self.covered.max(sent.written);
                self.unproven = self.unproven.filter(|&since| since > sent.step);
            }
            Status::Busy => self.busy = now, // the disk was not asked
            _ => {
                self.counts.failed += 1;
                self.poison(now);
            }
        }
    }

    /// A read or a question has ended.
    pub const fn read_ended(&mut self) {
        self.counts.ended += 1;
    }

    /// A write of a volume has ended, wholly or not. Says how many undurable writes there are now, if it is one: what was
    /// sent before a reset is, whatever the disk says of itself now (F6).
    pub fn write_ended(&mut self, volume: usize, sent: Step, fua: bool, good: bool) -> u64 {
        self.counts.ended += 1;
        if (fua || !self.volatile) && sent > self.told {
            return 0;
        }
        self.written += 1;
        self.newest_of[volume] = self.written;
        if !good {
            return 0;
        }
        self.owed_to[volume] = self.written;
        self.written
    }

    /// A FUA write failed because it could not be made durable: like a failed flush.
    pub fn lost_durability(&mut self, now: Step) {
        if self.info.is_some() {
            self.poison(now);
        }
    }

    /// The write cache of a volume is being switched off: the disk is flushed for it, come what may (F6).
    pub fn cache_switched(&mut self, volume: usize) {
        self.written += 1;
        self.newest_of[volume] = self.written;
    }

    /// The engine was told that the disk is gone.
    pub fn told_lost(&mut self) {
        self.info = None;
        self.running = None;
    }

    /// The engine was told that the disk is there, was reset, or is another.
    pub fn told(&mut self, info: DiskInfo, now: Step) {
        if self.info.is_none() {
            self.missing_until = now;
        }
        let volatile = is_volatile(&info, self.policy);
        if volatile || self.volatile || self.info.is_none() {
            self.unproven = Some(now);
        }
        self.volatile = volatile;
        self.told = now;
        self.info = Some(info);
    }

    /// The engine said that the disk is poisoned.
    pub fn said_poisoned(&mut self, now: Step) {
        self.poison(now);
    }

    /// The operator cleared the fault.
    pub fn cleared(&mut self, now: Step) {
        if self.poisoned.take().is_some() {
            self.unfit_until = now;
            self.forgiven = Forgiven { lost: self.lost, cleared: Step::MAX };
        }
    }

    /// The engine said that the fault is cleared: what it answers from now on is not excused by the loss.
    pub const fn said_healed(&mut self, now: Step) {
        self.forgiven.cleared = now;
    }

    /// What a flush of the volume that begins now has to wait for.
    pub fn need(&self, volume: usize) -> u64 {
        self.owed_to[volume]
    }

    /// Whether failing for lack of durability is right for an op that began at `began`.
    pub const fn may_lack_durability(&self, began: Step) -> bool {
        self.poisoned.is_some() || self.unfit_until >= began || self.was_missing(began)
    }

    /// Whether a flush was turned away since `began`.
    pub const fn was_busy(&self, began: Step) -> bool {
        self.busy >= began
    }

    /// Whether the disk was missing at some time since `began`.
    pub const fn was_missing(&self, began: Step) -> bool {
        self.info.is_none() || self.missing_until >= began
    }

    /// An op that promises durability and began at `began` ends `Good`; on this disk it needs the flush that covers the
    /// first `need` undurable writes.
    pub fn promised(&self, began: Step, need: u64, promise: Promise) -> Verdict {
        if let (Some(since), Promise::Volume | Promise::Fua) = (self.poisoned, promise) {
            ensure(began < since, Checker::Poison, || {
                (self.place(), "a promise was given although the disk is poisoned")
            })?;
            ensure(need <= self.covered, Checker::Poison, || {
                (self.place(), "a promise was given that waited for a flush that failed")
            })?;
        }
        let stale = promise == Promise::Volume && self.volatile && self.unproven.is_some_and(|since| since < began);
        ensure(!stale, Checker::Claims, || {
            (self.place(), "a flush was answered from claims made before an attach or a reset")
        })
    }

    /// The engine has nothing more to say: compares what it counts with what was seen. `owner_knows`: it has told the owner
    /// that the disk is poisoned.
    pub fn compare(&self, stats: Option<DiskStats>, owner_knows: bool) -> Verdict {
        let Some(stats) = stats else { return fault(Checker::Counts, self.place(), "there are no counters") };
        ensure(self.poisoned.is_some() == owner_knows && stats.poisoned == owner_knows, Checker::Poison, || {
            (self.place(), format!("a flush failed: {:?}, the owner was told: {owner_knows}", self.poisoned))
        })?;
        let f = stats.flush;
        let sums = f.requested == f.elided + f.joined + f.issued + f.refused;
        let seen =
            f.issued == self.counts.flushes && stats.reads == self.counts.reads && stats.writes == self.counts.writes;
        let sent = self.counts.flushes + self.counts.reads + self.counts.writes + self.counts.questions;
        let in_flight = u64::from(stats.in_flight) == sent - self.counts.ended;
        ensure(sums && seen && in_flight && f.failed >= self.counts.failed, Checker::Counts, || {
            (self.place(), format!("{stats:?}, but seen: {:?}", self.counts))
        })
    }

    fn poison(&mut self, now: Step) {
        self.poisoned.get_or_insert(now);
        if let Some(running) = &mut self.running {
            running.void = true;
        }
    }

    fn place(&self) -> String {
        format!("disk {}", self.disk)
    }
}

fn is_volatile(info: &DiskInfo, policy: FuaPolicy) -> bool {
    info.volatile_cache || policy == FuaPolicy::Distrust
}
