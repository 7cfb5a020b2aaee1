//! The loop: events in virtual time, the engine between hosts and disks, and one life after another.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use platter_block::{DiskId, Fua, Instant, IoId, Op, Status, Tag, VolumeId};
use platter_engine::{Engine, Input, Output};

use super::disk::{Disk, Ended, Progress};
use super::flush_audit::FlushAudit;
use super::hosts::{self, Wish};
use super::ops::Running;
use super::plan::{BATCH_WINDOW, Faults, LifeEnd, MAX_OP_BLOCKS, Plan};
use super::referee::Referee;
use super::rng::Rng;
use super::trace::{Brief, Trace};
use super::verdict::{Checker, Verdict, Violation, fault};
use super::{Options, Outcome};

/// Events and outputs in one life before it is taken for an endless loop.
const TOO_MANY: u64 = 1_000_000;

/// One run: what outlives the engine, and the engine of the present life.
#[derive(Debug)]
pub struct World {
    plan: Plan,
    disks: Vec<Disk>,
    referee: Referee,
    trace: Trace,
    rng: Rng,
    now: Instant,
    /// Marks that the owner of the engine has stored (F3).
    poisoned: Vec<bool>,
    next_number: u64,
    events: u64,
    life: Life,
}

/// What ends with the engine.
#[derive(Debug)]
struct Life {
    engine: Engine,
    heap: BinaryHeap<Reverse<Scheduled>>,
    scheduled: u64,
    /// Ops that hosts may still submit.
    budget: u64,
    hosts: Vec<Host>,
    events: u64,
    promises: u64,
    /// Promises after which the power is cut at once.
    cut_after: u64,
    faults: Faults,
    /// Nothing hangs any more from here on.
    unstuck_at: Instant,
    /// The engine has outputs that may wait for this long.
    drain_by: Option<Instant>,
}

#[derive(Clone, Default, Debug)]
struct Host {
    /// Submits nothing until all its ops have ended.
    reconnecting: bool,
}

#[derive(Debug)]
struct Scheduled {
    at: Instant,
    sequence: u64,
    event: Event,
}

#[derive(Debug)]
enum Event {
    /// A disk goes on with a command.
    Disk { disk: usize, io: IoId },
    /// The engine hears how a command ended.
    Completion { io: IoId, ended: Ended },
    /// A host may submit an op.
    Submit { host: usize, slot: u64 },
    /// A host loses patience with an op.
    Abort { number: u64, tag: Tag },
    /// The engine hears that a disk was unplugged.
    Lost { disk: usize },
    /// A disk is plugged in.
    Plug { disk: usize },
    /// The operator declares a disk fit.
    Clear { disk: usize },
}

/// What goes on after an event.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flow {
    On,
    Cut,
}

impl World {
    /// The world of a seed, before anything happens.
    pub fn new(options: Options) -> Self {
        let mut rng = Rng::new(options.seed);
        let plan = Plan::new(&mut rng.fork(), options.lie);
        let disks: Vec<Disk> = plan.disks.iter().map(|d| Disk::new(d.clone(), rng.fork())).collect();
        Self {
            referee: Referee::new(&plan),
            trace: Trace::new(options.trace),
            rng: rng.fork(),
            now: Instant(0),
            poisoned: vec![false; disks.len()],
            next_number: 1,
            events: 0,
            life: Life::new(&plan),
            disks,
            plan,
        }
    }

    /// Virtual time.
    pub const fn now(&self) -> Instant {
        self.now
    }

    /// Every life of the plan, and then one that only reads everything.
    pub fn run(&mut self) -> Verdict {
        for i in 0..self.plan.lives.len() {
            let life = self.plan.lives[i].clone();
            self.live(life.ops, life.ending)?;
        }
        self.live(0, LifeEnd::CutWhenIdle)
    }

    /// The result.
    pub fn outcome(self, violation: Option<Violation>) -> Outcome {
        let (hash, ops) = (self.trace.hash(), self.next_number - 1);
        Outcome { hash, ops, events: self.events, violation, trace: self.trace.into_text() }
    }

    /// One life of the engine, from its start over what the disks hold to its end.
    fn live(&mut self, ops: u64, ending: LifeEnd) -> Verdict {
        self.start(ops, ending)?;
        self.read_everything()?;
        let (cut_at, crash) = match ending {
            LifeEnd::CutAtEvent(n) => (n, false),
            LifeEnd::Crash(n) => (n, true),
            LifeEnd::CutAfterPromise(_) | LifeEnd::CutWhenIdle => (TOO_MANY, false),
        };
        self.life.events = 0;
        self.life.faults = self.plan.faults.clone();
        for host in 0..self.plan.hosts.len() {
            for slot in 0..self.plan.hosts[host].depth {
                self.think(host, slot);
            }
        }
        while self.life.events < cut_at {
            match self.turn()? {
                Some(Flow::On) => {}
                Some(Flow::Cut) => break,
                None => {
                    self.referee.at_rest()?;
                    break;
                }
            }
        }
        self.end(crash);
        Ok(())
    }

    /// A new engine, its disks and its volumes.
    fn start(&mut self, ops: u64, ending: LifeEnd) -> Verdict {
        self.life = Life::new(&self.plan);
        self.life.budget = ops;
        if let LifeEnd::CutAfterPromise(n) = ending {
            self.life.cut_after = n;
        }
        let mut audits = Vec::new();
        for (d, disk) in self.disks.iter_mut().enumerate() {
            // A disk may be found only later; what it holds is then read only later.
            disk.present = ops == 0 || self.plan.faults.unplugs == 0 || !self.rng.chance(50);
            let info = disk.present.then(|| disk.plan.info.clone());
            if !disk.present {
                let wait = Duration::from_millis(self.rng.between(1, 100));
                self.life.schedule(self.now + wait, Event::Plug { disk: d });
            }
            let policy = disk.plan.policy;
            self.life.engine.add_disk(DiskId(d as u32), info.clone(), policy, self.poisoned[d]);
            audits.push(FlushAudit::new(d, self.plan.volumes.len(), policy, info, self.poisoned[d]));
            if self.poisoned[d] && self.rng.chance(500) {
                let wait = Duration::from_micros(self.rng.between(0, self.plan.faults.clear_max));
                self.life.schedule(self.now + wait, Event::Clear { disk: d });
            }
        }
        for (v, volume) in self.plan.volumes.iter().enumerate() {
            if let Err(error) = self.life.engine.add_volume(VolumeId(v as u32), volume.segments.clone()) {
                return fault(Checker::Mapping, format!("volume {v}"), format!("is refused: {error:?}"));
            }
        }
        let volumes = 0..self.plan.volumes.len() as u32;
        let infos = volumes.map(|v| self.life.engine.volume_info(VolumeId(v))).collect();
        self.trace.line(self.now, "world", format_args!("a life begins, {ops} ops, {ending:?}"));
        self.referee.new_life(audits, infos);
        Ok(())
    }

    /// Reads every block of every volume that is there, and waits for all of it.
    fn read_everything(&mut self) -> Verdict {
        self.referee.verifying = true;
        let mut tag = 1_000_000;
        for v in 0..self.plan.volumes.len() {
            if self.plan.volumes[v].disks().iter().any(|&d| !self.disks[d].present) {
                continue;
            }
            let mut lba = 0;
            while lba < self.plan.volumes[v].blocks {
                let count = self.rng.between(1, MAX_OP_BLOCKS).min(self.plan.volumes[v].blocks - lba);
                let wish = hosts::read(self.next_number, v, lba, count);
                self.submit(wish, Tag(tag), None)?;
                lba += count;
                tag += 1;
            }
        }
        while !self.referee.ops.is_empty() {
            if self.turn()?.is_none() {
                self.referee.at_rest()?;
            }
        }
        self.referee.verifying = false;
        Ok(())
    }

    /// The end of a life, by a crash of the process or a power cut.
    fn end(&mut self, crash: bool) {
        self.trace.line(self.now, "world", format_args!("{}", if crash { "the process dies" } else { "power cut" }));
        self.referee.life_ended(&self.plan, crash);
        for disk in &mut self.disks {
            if crash {
                disk.reopen();
            } else {
                disk.power_cut(self.rng.word());
            }
        }
        self.now = self.now + Duration::from_secs(1);
    }

    /// The next event or the engine's timer, whichever is earlier. `None`: nothing will happen any more.
    fn turn(&mut self) -> Verdict<Option<Flow>> {
        let timer = self.life.engine.poll_timeout();
        let next = self.life.heap.peek().map(|Reverse(s)| s.at);
        let tick = timer.is_some_and(|t| next.is_none_or(|n| t <= n));
        let at = if tick { timer } else { next };
        if self.life.drain_by.is_some_and(|by| at.is_none_or(|at| at > by)) {
            return self.drain().map(Some);
        }
        let Some(at) = at else { return Ok(None) };
        self.now = self.now.max(at);
        self.events += 1;
        self.life.events += 1;
        if self.life.events > TOO_MANY {
            return fault(Checker::Liveness, "engine", "the world does not come to rest");
        }
        if tick {
            return self.tell(Input::Tick).map(Some);
        }
        let Some(Reverse(Scheduled { event, .. })) = self.life.heap.pop() else { return Ok(None) };
        self.happen(event).map(Some)
    }

    fn happen(&mut self, event: Event) -> Verdict<Flow> {
        match event {
            Event::Disk { disk, io } => {
                self.disk_step(disk, io);
                Ok(Flow::On)
            }
            Event::Completion { io, ended } => {
                self.trace.line(self.now, "engine", format_args!("hears io {:x} ended {:?}", io.0, ended.status));
                self.referee.completed(&self.plan, io, &ended);
                self.tell(Input::Completed { io, status: ended.status, report: ended.report })
            }
            Event::Submit { host, slot } => self.submit_next(host, slot),
            Event::Abort { number, tag } => self.abort(number, tag),
            Event::Lost { disk } => {
                self.trace.line(self.now, "engine", format_args!("hears disk {disk} is lost"));
                self.referee.told(disk, None);
                self.tell(Input::DiskLost { disk: DiskId(disk as u32) })
            }
            Event::Plug { disk } => {
                self.trace.line(self.now, "engine", format_args!("hears disk {disk} is there"));
                self.disks[disk].present = true;
                let info = self.disks[disk].plan.info.clone();
                self.referee.told(disk, Some(info.clone()));
                self.tell(Input::DiskAttached { disk: DiskId(disk as u32), info })
            }
            Event::Clear { disk } => {
                self.trace.line(self.now, "engine", format_args!("is told to clear the fault of disk {disk}"));
                self.referee.cleared(disk);
                self.tell(Input::ClearFault { disk: DiskId(disk as u32) })
            }
        }
    }

    fn disk_step(&mut self, disk: usize, io: IoId) {
        match self.disks[disk].step(self.now, io) {
            None => {} // gone with an unplug
            Some(Progress::Until(at)) => {
                self.trace.line(self.now, "disk", format_args!("{disk} works on io {:x}", io.0));
                self.life.schedule(at, Event::Disk { disk, io });
            }
            Some(Progress::Ended(ended)) => {
                self.trace.line(self.now, "disk", format_args!("{disk} ends io {:x}: {:?}", io.0, ended.status));
                if ended.lost_cache {
                    self.referee.lost_cache(&self.plan, disk);
                }
                // A flush may succeed right after a command that lost the cache. No engine could know if it heard of the
                // success first, so the loss is never late.
                let prompt = ended.lost_cache || self.rng.chance(600);
                let wait = if prompt { 0 } else { self.rng.below(200_000) };
                self.life.schedule(self.now + Duration::from_nanos(wait), Event::Completion { io, ended });
            }
        }
    }

    /// A slot of a host is free: the next op, or later, or never.
    fn submit_next(&mut self, host: usize, slot: u64) -> Verdict<Flow> {
        if self.life.budget == 0 {
            return Ok(Flow::On);
        }
        if self.life.hosts[host].reconnecting {
            let of_host = |op: &Running| op.owner.is_some_and(|(h, _)| h == host);
            if self.referee.ops.values().any(of_host) {
                self.life.schedule(self.now + Duration::from_millis(1), Event::Submit { host, slot });
                return Ok(Flow::On);
            }
            self.life.hosts[host].reconnecting = false;
        }
        self.life.budget -= 1;
        let number = self.next_number;
        let bare = self.referee.bare();
        let wish = hosts::next(&self.plan, &mut self.rng, &self.referee.registers, number, &bare);
        let tag = Tag((host as u64) << 32 | slot);
        if self.rng.chance(self.life.faults.aborts) {
            let reach = *self.rng.pick(&[0, 10_000, 3_000_000, 200_000_000, 2_000_000_000]);
            let wait = Duration::from_nanos(self.rng.between(0, reach));
            self.life.schedule(self.now + wait, Event::Abort { number, tag });
        }
        if self.submit(wish, tag, Some((host, slot)))? == Flow::Cut {
            return Ok(Flow::Cut);
        }
        self.trouble(host)
    }

    /// Now and then something happens beside an op.
    fn trouble(&mut self, host: usize) -> Verdict<Flow> {
        if self.rng.chance(self.life.faults.disconnects) {
            self.trace.line(self.now, "host", format_args!("{host} disconnects"));
            self.life.hosts[host].reconnecting = true;
            let of_host = |op: &&Running| op.owner.is_some_and(|(h, _)| h == host);
            let ops: Vec<(u64, Tag)> = self.referee.ops.values().filter(of_host).map(|o| (o.number, o.tag)).collect();
            for (number, tag) in ops {
                if self.abort(number, tag)? == Flow::Cut {
                    return Ok(Flow::Cut);
                }
            }
        }
        let disk = self.rng.below(self.disks.len() as u64) as usize;
        if self.rng.chance(self.life.faults.unplugs) && self.disks[disk].present {
            self.unplug(disk);
        }
        if self.rng.chance(self.life.faults.resets) && self.disks[disk].present {
            return self.reset(disk);
        }
        Ok(Flow::On)
    }

    fn unplug(&mut self, disk: usize) {
        let keeps_cache = self.rng.chance(300);
        self.trace.line(self.now, "world", format_args!("disk {disk} is unplugged, keeps its cache: {keeps_cache}"));
        for io in self.disks[disk].unplug(self.rng.word(), keeps_cache) {
            let wait = Duration::from_micros(self.rng.below(8000));
            self.life.schedule(self.now + wait, Event::Completion { io, ended: Ended::gone() });
        }
        if !keeps_cache {
            self.referee.lost_cache(&self.plan, disk);
        }
        let heard = self.now + Duration::from_micros(self.rng.below(8000));
        self.life.schedule(heard, Event::Lost { disk });
        let back = self.now + Duration::from_millis(self.rng.between(20, 300));
        self.life.schedule(back, Event::Plug { disk });
    }

    /// A reset, or a change of settings by someone else: the engine hears of it at once.
    fn reset(&mut self, disk: usize) -> Verdict<Flow> {
        let Disk { plan, .. } = &mut self.disks[disk];
        let was_volatile = plan.info.volatile_cache;
        match self.rng.below(3) {
            0 => plan.info.volatile_cache = !was_volatile,
            1 => plan.info.fua = if plan.info.fua == Fua::Native { Fua::None } else { Fua::Native },
            _ => {}
        }
        let info = plan.info.clone();
        if was_volatile && !info.volatile_cache {
            self.disks[disk].destage(); // as a disk does when its cache is switched off
        }
        let (cache, fua) = (info.volatile_cache, info.fua);
        self.trace.line(self.now, "engine", format_args!("hears disk {disk} was reset, cache {cache}, FUA {fua:?}"));
        self.referee.told(disk, Some(info.clone()));
        self.tell(Input::DiskReset { disk: DiskId(disk as u32), info })
    }

    fn submit(&mut self, wish: Wish, tag: Tag, owner: Option<(usize, u64)>) -> Verdict<Flow> {
        let number = self.next_number;
        self.next_number += 1;
        let Wish { volume, op, values } = wish;
        self.trace.line(self.now, "host", format_args!("op {number} {:x} volume {volume} {}", tag.0, Brief(&op)));
        let running = Running { owner, ..Running::new(number, tag, volume, op, values) };
        self.referee.submitted(&self.plan, self.now, running);
        self.tell(Input::Submit { tag, volume: VolumeId(volume as u32), op })
    }

    /// Aborts an op; if it has ended and its tag is not used again, the engine has to ignore that.
    fn abort(&mut self, number: u64, tag: Tag) -> Verdict<Flow> {
        let in_use = self.referee.ops.values().find(|op| op.tag == tag).map(|op| op.number);
        if in_use.is_some_and(|n| n != number) {
            return Ok(Flow::On);
        }
        self.trace.line(self.now, "host", format_args!("aborts op {number}"));
        self.referee.aborting(number, self.now);
        self.tell(Input::Abort { tag })
    }

    /// Gives the engine an input and does everything it wants done, now or together with the next inputs.
    fn tell(&mut self, input: Input) -> Verdict<Flow> {
        self.life.engine.handle(self.now, input);
        if self.life.drain_by.is_none() && self.rng.chance(self.plan.batching) {
            self.life.drain_by = Some(self.now + BATCH_WINDOW);
            return Ok(Flow::On);
        }
        self.drain()
    }

    fn drain(&mut self) -> Verdict<Flow> {
        self.life.drain_by = None;
        let mut outputs = 0;
        while let Some(output) = self.life.engine.poll_output() {
            outputs += 1;
            if outputs > TOO_MANY {
                return fault(Checker::Liveness, "engine", "it does not stop saying things");
            }
            if self.obey(output)? == Flow::Cut {
                return Ok(Flow::Cut);
            }
        }
        self.referee.drained(&self.plan, &self.life.engine, self.now, self.life.liveness(), &self.poisoned)?;
        Ok(Flow::On)
    }

    fn obey(&mut self, output: Output) -> Verdict<Flow> {
        match output {
            Output::Io { io, disk, op } => {
                let d = disk.0 as usize;
                self.trace.line(self.now, "engine", format_args!("io {:x} to disk {d}: {}", io.0, Brief(&op)));
                let values = self.referee.sent(&self.plan, io, d, op)?;
                if self.disks[d].present {
                    let at = self.disks[d].submit(self.now, io, op, values, &self.life.faults);
                    self.life.unstuck_at = self.life.unstuck_at.max(self.disks[d].stuck_until());
                    self.life.schedule(at, Event::Disk { disk: d, io });
                } else {
                    let at = self.now + Duration::from_micros(self.rng.below(100));
                    self.life.schedule(at, Event::Completion { io, ended: Ended::gone() });
                }
            }
            Output::Compare { io, buf, left_at, right_at, len } => {
                let differs_at = self.referee.compare(self.plan.block_size, buf.0, [left_at, right_at], len)?;
                self.trace.line(self.now, "engine", format_args!("compares in b{}: {differs_at:?}", buf.0));
                self.life.engine.handle(self.now, Input::Compared { io, differs_at });
            }
            Output::Combine { io, buf, into_at, from_at, len } => {
                self.referee.combine(self.plan.block_size, buf.0, [into_at, from_at], len)?;
                self.trace.line(self.now, "engine", format_args!("combines in b{}", buf.0));
                self.life.engine.handle(self.now, Input::Combined { io });
            }
            Output::Done { tag, status, report } => return self.done(tag, status, report.as_deref()),
            Output::VolumeChanged { volume } => {
                self.trace.line(self.now, "engine", format_args!("volume {} has changed", volume.0));
                let info = self.life.engine.volume_info(volume);
                self.referee.said_changed(&self.plan, volume.0 as usize, info)?;
            }
            Output::Poisoned { disk } => {
                self.trace.line(self.now, "engine", format_args!("disk {} is poisoned", disk.0));
                let d = disk.0 as usize;
                self.poisoned[d] = true;
                self.referee.said_poisoned(d);
                if self.rng.chance(600) {
                    let wait = Duration::from_micros(self.rng.between(0, self.plan.faults.clear_max));
                    self.life.schedule(self.now + wait, Event::Clear { disk: d });
                }
            }
            Output::Healed { disk } => {
                self.trace.line(self.now, "engine", format_args!("disk {} is healed", disk.0));
                self.poisoned[disk.0 as usize] = false;
                self.referee.said_healed(disk.0 as usize);
            }
        }
        Ok(Flow::On)
    }

    fn done(&mut self, tag: Tag, status: Status, report: Option<&platter_block::Report>) -> Verdict<Flow> {
        self.trace.line(self.now, "engine", format_args!("ends {:x}: {status:?}", tag.0));
        let liveness = self.life.liveness();
        let (op, durable) = self.referee.done(&self.plan, self.now, tag, status, report, liveness)?;
        match op.owner {
            // The volume will not be ready any sooner for being asked.
            Some((host, slot)) if status == Status::NotReady => {
                let pause = Duration::from_micros(self.rng.between(1000, 50_000));
                self.life.schedule(self.now + pause, Event::Submit { host, slot });
            }
            Some((host, slot)) => self.think(host, slot),
            None => {}
        }
        if durable && !matches!(op.op, Op::SetWriteCache { .. }) {
            self.life.promises += 1;
            if self.life.promises == self.life.cut_after {
                return Ok(Flow::Cut);
            }
        }
        Ok(Flow::On)
    }

    fn think(&mut self, host: usize, slot: u64) {
        let pause = self.rng.between(0, self.plan.hosts[host].think_max);
        self.life.schedule(self.now + Duration::from_nanos(pause), Event::Submit { host, slot });
    }
}

impl Life {
    fn new(plan: &Plan) -> Self {
        Self {
            engine: Engine::new(),
            heap: BinaryHeap::new(),
            scheduled: 0,
            budget: 0,
            hosts: vec![Host::default(); plan.hosts.len()],
            events: 0,
            promises: 0,
            cut_after: u64::MAX,
            faults: Faults::default(),
            unstuck_at: Instant(0),
            drain_by: None,
        }
    }

    fn schedule(&mut self, at: Instant, event: Event) {
        self.scheduled += 1;
        self.heap.push(Reverse(Scheduled { at, sequence: self.scheduled, event }));
    }

    /// Ops may take as long as commands hang, and a while longer.
    fn liveness(&self) -> Instant {
        match self.unstuck_at {
            Instant(0) => Instant(0),
            at => at + Duration::from_secs(60),
        }
    }
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Scheduled {}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.sequence).cmp(&(other.at, other.sequence))
    }
}
