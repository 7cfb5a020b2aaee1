//! Random ops, ends, aborts and faults against a simple reference: what was promised must survive a power cut.
//!
//! The rule, checked whenever an op ends `Good`: in each block, what survives is at least as new as
//! * what this op wrote, if it was FUA or the write cache is off;
//! * what any write of the volume wrote that was answered `Good` before this op was submitted, if it is a flush.
//!
//! Beside it: every tag ends exactly once, and ends; nothing is handed out for an op that has ended; exclusive ops and
//! fences keep everybody else away; one flush runs per disk; the counters agree with what the disks saw.
//!
//! The seed is fixed, so that a run is repeatable; `PROPTEST_RNG_SEED` and `PROPTEST_CASES` go further.

use std::collections::BTreeMap;

use platter_block::{BlockCount, BufId, DiskId, DiskInfo, DiskOp, Fua, Instant, IoId, Lba, Op, Status, Tag, VolumeId};
use platter_engine::{ABORT_GRACE, Engine, FuaPolicy, Input, Output, Segment};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};

use crate::medium::{Lies, Medium, blocks_of};
use crate::rig;

/// Blocks of each segment. A piece has at most 3.
const SEGMENT: u64 = 8;

#[derive(Clone, Debug)]
struct Setup {
    /// `(volatile cache, native FUA, policy)`.
    disks: Vec<(bool, bool, FuaPolicy)>,
    /// For each volume the disk of each segment.
    volumes: Vec<Vec<usize>>,
    lies: Lies,
}

#[derive(Clone, Debug)]
enum Step {
    Submit {
        volume: usize,
        kind: u8,
        lba: u64,
        count: u32,
        fua: bool,
    },
    SetWriteCache {
        volume: usize,
        enabled: bool,
    },
    /// A disk op takes effect; its end is not told yet.
    Land {
        which: usize,
    },
    /// A disk op ends.
    End {
        which: usize,
        good: bool,
    },
    Abort {
        which: usize,
    },
    Drain,
    Wait,
    Reset {
        disk: usize,
        volatile: bool,
        fua: bool,
    },
    Unplug {
        disk: usize,
    },
    Plug {
        disk: usize,
    },
    ClearFault {
        disk: usize,
    },
}

fn setups(lies: Lies, policies: &'static [FuaPolicy]) -> impl Strategy<Value = Setup> {
    let disk = (any::<bool>(), any::<bool>(), prop::sample::select(policies));
    prop::collection::vec(disk, 1..=4).prop_flat_map(move |disks| {
        let volume = prop::collection::vec(0..disks.len(), 1..=4);
        let volumes = prop::collection::vec(volume, 1..=3);
        (Just(disks), volumes).prop_map(move |(disks, volumes)| Setup { disks, volumes, lies })
    })
}

/// `faults`: also resets, unplugged disks and failures.
fn steps(faults: bool) -> impl Strategy<Value = Vec<Step>> {
    let submit = (0..3_usize, 0..9_u8, 0..4 * SEGMENT + 1, 0..14_u32, any::<bool>())
        .prop_map(|(volume, kind, lba, count, fua)| Step::Submit { volume, kind, lba, count, fua });
    let end = (any::<usize>(), 0..20_u8).prop_map(move |(which, luck)| Step::End { which, good: luck > 0 || !faults });
    let reset = (0..4_usize, any::<bool>(), any::<bool>()).prop_map(|(disk, volatile, fua)| Step::Reset {
        disk,
        volatile,
        fua,
    });
    let usual = prop_oneof![
        300 => submit,
        8 => (0..3_usize, any::<bool>()).prop_map(|(volume, enabled)| Step::SetWriteCache { volume, enabled }),
        100 => any::<usize>().prop_map(|which| Step::Land { which }),
        500 => end,
        20 => any::<usize>().prop_map(|which| Step::Abort { which }),
        400 => Just(Step::Drain),
        5 => Just(Step::Wait),
    ];
    let rare = prop_oneof![
        8 => reset,
        3 => (0..4_usize).prop_map(|disk| Step::Unplug { disk }),
        15 => (0..4_usize).prop_map(|disk| Step::Plug { disk }),
        15 => (0..4_usize).prop_map(|disk| Step::ClearFault { disk }),
    ];
    let step = if faults { prop_oneof![30 => usual, 1 => rare].boxed() } else { usual.boxed() };
    prop::collection::vec(step, 1..400)
}

struct World {
    engine: Engine,
    now: Instant,
    disks: Vec<Disk>,
    volumes: Vec<Volume>,
    ops: BTreeMap<u64, OpState>,
    open: Vec<OpenIo>,
}

struct Disk {
    medium: Medium,
    present: bool,
    poisoned: bool,
    /// What landed before is lost with the operator's consent.
    cleared_at: u64,
    flushes: u64,
}

struct Volume {
    disks: Vec<(usize, u64)>,
    write_cache: bool,
}

struct OpState {
    volume: usize,
    op: Op,
    /// Durable before its answer.
    durable: bool,
    /// Position among all submissions and ends.
    submitted: usize,
    ended: Option<(usize, Status)>,
    /// `(disk, block, when)`.
    landed: Vec<(usize, u64, u64)>,
}

struct OpenIo {
    io: IoId,
    disk: usize,
    op: DiskOp,
    /// `None` for a flush.
    owner: Option<u64>,
    /// For a flush: what it covers.
    sent: u64,
    landed: bool,
    /// The disk was unplugged since.
    orphan: bool,
}

impl World {
    fn new(setup: &Setup) -> Self {
        let mut world = Self {
            engine: Engine::new(),
            now: Instant(0),
            disks: Vec::new(),
            volumes: Vec::new(),
            ops: BTreeMap::new(),
            open: Vec::new(),
        };
        for (n, &(volatile, fua, policy)) in setup.disks.iter().enumerate() {
            let info = info(volatile, fua);
            world.engine.add_disk(DiskId(n as u32), Some(info.clone()), policy, false);
            let medium = Medium::new(info, setup.lies);
            world.disks.push(Disk { medium, present: true, poisoned: false, cleared_at: 0, flushes: 0 });
        }
        let mut next = vec![0; setup.disks.len()];
        for (n, on_disks) in setup.volumes.iter().enumerate() {
            let mut segments = Vec::new();
            let mut places = Vec::new();
            for (m, &disk) in on_disks.iter().enumerate() {
                let volume_lba = Lba(m as u64 * SEGMENT);
                segments.push(Segment {
                    volume_lba,
                    count: SEGMENT,
                    disk: DiskId(disk as u32),
                    disk_lba: Lba(next[disk]),
                });
                places.push((disk, next[disk]));
                next[disk] += SEGMENT;
            }
            world.engine.add_volume(VolumeId(n as u32), segments).unwrap();
            world.volumes.push(Volume { disks: places, write_cache: true });
        }
        world
    }

    fn run(&mut self, steps: &[Step]) -> Result<(), String> {
        for step in steps {
            self.step(step)?;
            self.check_counts()?;
        }
        self.finish()
    }

    fn step(&mut self, step: &Step) -> Result<(), String> {
        match *step {
            Step::Submit { volume, kind, lba, count, fua } => {
                self.submit(volume % self.volumes.len(), kind, lba, count, fua)
            }
            Step::SetWriteCache { volume, enabled } => {
                let volume = volume % self.volumes.len();
                self.drain()?;
                self.start(volume, Op::SetWriteCache { enabled });
                self.drain()?;
                let info = self.engine.volume_info(VolumeId(volume as u32)).unwrap();
                self.volumes[volume].write_cache = info.write_cache || !info.write_cache_changeable;
            }
            Step::Land { which } if !self.open.is_empty() => {
                let which = which % self.open.len();
                self.land(which);
            }
            Step::End { which, good } if !self.open.is_empty() => self.end(which % self.open.len(), good),
            Step::Abort { which } => {
                let running: Vec<u64> = self.running().collect();
                if !running.is_empty() {
                    self.handle(Input::Abort { tag: Tag(running[which % running.len()]) });
                }
            }
            Step::Drain => self.drain()?,
            Step::Wait => {
                self.now = self.now + ABORT_GRACE;
                self.handle(Input::Tick);
            }
            Step::Reset { disk, volatile, fua } => {
                let disk = disk % self.disks.len();
                if self.disks[disk].present {
                    self.disks[disk].medium.info = info(volatile, fua);
                    self.handle(Input::DiskReset { disk: DiskId(disk as u32), info: info(volatile, fua) });
                }
            }
            Step::Unplug { disk } => {
                let disk = disk % self.disks.len();
                self.disks[disk].present = false;
                self.disks[disk].medium.drop_cache();
                self.open.iter_mut().filter(|open| open.disk == disk).for_each(|open| open.orphan = true);
                self.handle(Input::DiskLost { disk: DiskId(disk as u32) });
            }
            Step::Plug { disk } => self.plug(disk % self.disks.len()),
            Step::ClearFault { disk } => {
                let disk = disk % self.disks.len();
                self.drain()?;
                if self.disks[disk].poisoned {
                    self.disks[disk].cleared_at = self.disks[disk].medium.now();
                }
                self.handle(Input::ClearFault { disk: DiskId(disk as u32) });
            }
            Step::Land { .. } | Step::End { .. } => {}
        }
        Ok(())
    }

    fn submit(&mut self, volume: usize, kind: u8, lba: u64, count: u32, fua: bool) {
        let tag = self.ops.len() as u64;
        let (lba, count, buf) = (Lba(lba), BlockCount(count), BufId(tag));
        let op = match kind {
            0 => Op::Read { lba, count, buf },
            1..=3 => Op::Write { lba, count, fua, buf },
            4 => Op::WriteZeroes { lba, count, fua, may_unmap: true },
            5 => Op::Unmap { lba, count },
            6 => Op::CompareAndWrite { lba, count, fua, buf },
            7 => Op::OrWrite { lba, count, fua, buf },
            _ => Op::Flush,
        };
        // Zeroes and unmaps carry no buffer that would say whose they are: keep them apart.
        let anonymous = |op: &Op| matches!(op, Op::WriteZeroes { .. } | Op::Unmap { .. });
        let clash = |(tag, state): (&u64, &OpState)| {
            let at_work = state.ended.is_none() || self.open.iter().any(|open| open.owner == Some(*tag));
            let overlaps = state.op.range().zip(op.range()).is_some_and(|(a, b)| a.overlaps(b));
            state.volume == volume && anonymous(&state.op) && at_work && overlaps
        };
        if !anonymous(&op) || !self.ops.iter().any(clash) {
            self.start(volume, op);
        }
    }

    fn start(&mut self, volume: usize, op: Op) {
        let tag = self.ops.len() as u64;
        let asks_fua = match op {
            Op::Write { fua, .. } | Op::WriteZeroes { fua, .. } => fua,
            Op::CompareAndWrite { fua, .. } | Op::OrWrite { fua, .. } => fua,
            _ => false,
        };
        let durable = asks_fua || !self.volumes[volume].write_cache;
        let submitted = self.moment();
        self.ops.insert(tag, OpState { volume, op, durable, submitted, ended: None, landed: Vec::new() });
        self.handle(Input::Submit { tag: Tag(tag), volume: VolumeId(volume as u32), op });
    }

    fn handle(&mut self, input: Input) {
        self.engine.handle(self.now, input);
    }

    fn drain(&mut self) -> Result<(), String> {
        while let Some(output) = self.engine.poll_output() {
            match output {
                Output::Io { io, disk, op } => self.hand_out(io, disk.0 as usize, op)?,
                // Differs for one block in four, by a rule that has nothing to do with content.
                Output::Compare { io, buf, .. } => {
                    let differs_at = (buf.0 % 4 == 0).then_some(0);
                    self.handle(Input::Compared { io, differs_at });
                }
                Output::Combine { io, .. } => self.handle(Input::Combined { io }),
                Output::Done { tag, status, .. } => self.done(tag.0, status)?,
                Output::VolumeChanged { .. } => {}
                Output::Poisoned { disk } => {
                    ensure(!self.disks[disk.0 as usize].poisoned, || format!("{disk:?} is told poisoned twice"))?;
                    self.disks[disk.0 as usize].poisoned = true;
                }
                Output::Healed { disk } => {
                    ensure(self.disks[disk.0 as usize].poisoned, || format!("{disk:?} was not poisoned"))?;
                    self.disks[disk.0 as usize].poisoned = false;
                }
            }
        }
        Ok(())
    }

    fn hand_out(&mut self, io: IoId, disk: usize, op: DiskOp) -> Result<(), String> {
        ensure(self.disks[disk].present, || format!("{op:?} for disk {disk}, which is not there"))?;
        let owner = self.owner(disk, &op);
        if op == DiskOp::Flush {
            self.disks[disk].flushes += 1;
            let runs = self.open.iter().any(|open| open.disk == disk && open.op == DiskOp::Flush);
            ensure(!runs, || format!("two flushes run on disk {disk}"))?;
        } else {
            let owner = owner.ok_or_else(|| format!("{op:?} for nobody"))?;
            ensure(self.ops[&owner].ended.is_none(), || format!("{op:?} for op {owner}, which has ended"))?;
            self.check_exclusion(disk, &op, owner)?;
        }
        let sent = self.disks[disk].medium.now();
        self.open.push(OpenIo { io, disk, op, owner, sent, landed: false, orphan: false });
        Ok(())
    }

    /// Nobody works where an exclusive op does, or where an aborted write still may.
    fn check_exclusion(&self, disk: usize, op: &DiskOp, owner: u64) -> Result<(), String> {
        let exclusive = |tag: u64| matches!(self.ops[&tag].op, Op::CompareAndWrite { .. } | Op::OrWrite { .. });
        for open in self.open.iter().filter(|open| open.disk == disk && !open.orphan) {
            let (Some(other), Some((lba, count, _))) = (open.owner, blocks_of(op)) else { continue };
            let Some((other_lba, other_count, writes)) = blocks_of(&open.op) else { continue };
            let overlap = lba.0 < other_lba.0 + u64::from(other_count) && other_lba.0 < lba.0 + u64::from(count);
            if other == owner || !overlap {
                continue;
            }
            let ended = self.ops[&other].ended.is_some();
            let came_later = self.ops[&other].ended.is_some_and(|(at, _)| at < self.ops[&owner].submitted);
            ensure(!(came_later && writes), || format!("op {owner} passes the fence of op {other}"))?;
            let apart = exclusive(owner) || exclusive(other);
            ensure(ended || !apart, || format!("op {owner} meets op {other}, and one of them is exclusive"))?;
        }
        Ok(())
    }

    /// Whose piece this is.
    fn owner(&self, disk: usize, op: &DiskOp) -> Option<u64> {
        match *op {
            DiskOp::Flush => None,
            DiskOp::Read { buf, .. } | DiskOp::Write { buf, .. } => Some(buf.0),
            DiskOp::WriteZeroes { lba, .. } | DiskOp::Unmap { lba, .. } | DiskOp::BlockStatus { lba, .. } => {
                let same_kind = |state: &OpState| match state.op {
                    Op::WriteZeroes { .. } => matches!(op, DiskOp::WriteZeroes { .. }),
                    Op::Unmap { .. } => matches!(op, DiskOp::Unmap { .. }),
                    _ => false,
                };
                let covers = |state: &OpState| {
                    let places = &self.volumes[state.volume].disks;
                    let segment =
                        places.iter().position(|&(d, start)| d == disk && (start..start + SEGMENT).contains(&lba.0));
                    let Some((segment, range)) = segment.zip(state.op.range()) else { return false };
                    let block = segment as u64 * SEGMENT + lba.0 - places[segment].1;
                    (range.start.0..range.end()).contains(&block)
                };
                let mine = |(tag, state): (&u64, &OpState)| {
                    (state.ended.is_none() && same_kind(state) && covers(state)).then_some(*tag)
                };
                self.ops.iter().find_map(mine)
            }
        }
    }

    /// The disk op takes effect.
    fn land(&mut self, which: usize) {
        let open = &mut self.open[which];
        let Some((lba, count, true)) = blocks_of(&open.op) else { return };
        if open.landed || open.orphan {
            return;
        }
        open.landed = true;
        let fua = matches!(open.op, DiskOp::Write { fua: true, .. });
        let at = self.disks[open.disk].medium.land(lba, count, fua);
        let state = self.ops.get_mut(&open.owner.unwrap()).unwrap();
        state.landed.extend((lba.0..lba.0 + u64::from(count)).map(|block| (open.disk, block, at)));
    }

    fn end(&mut self, which: usize, good: bool) {
        if good {
            self.land(which);
        }
        let open = self.open.remove(which);
        let medium = &mut self.disks[open.disk].medium;
        if open.op == DiskOp::Flush && !open.orphan {
            if good { medium.flush(open.sent) } else { medium.drop_cache() }
        }
        // An orphan may still be told as good: it ended before the plug was pulled.
        let status = match good {
            true => Status::Good,
            false if open.orphan => Status::Gone,
            false => Status::MediumError { lba: Lba(0) },
        };
        self.handle(Input::Completed { io: open.io, status, report: None });
    }

    fn plug(&mut self, disk: usize) {
        if !self.disks[disk].present {
            self.disks[disk].present = true;
            let info = self.disks[disk].medium.info.clone();
            self.handle(Input::DiskAttached { disk: DiskId(disk as u32), info });
        }
    }

    /// An op ends: once, and its promise is kept.
    fn done(&mut self, tag: u64, status: Status) -> Result<(), String> {
        let moment = self.moment();
        let state = self.ops.get_mut(&tag).ok_or_else(|| format!("unknown tag {tag} ends"))?;
        ensure(state.ended.is_none(), || format!("op {tag} ends twice"))?;
        state.ended = Some((moment, status));
        if status != Status::Good {
            return Ok(());
        }
        let state = &self.ops[&tag];
        if state.op.is_write() && state.durable && self.volumes_cache_off_or_fua(state) {
            self.check_survival(tag, tag)?;
        }
        if matches!(state.op, Op::Flush | Op::SetWriteCache { enabled: false }) {
            for (&written, earlier) in &self.ops {
                let covered = earlier.ended.is_some_and(|(at, status)| at < state.submitted && status == Status::Good);
                if covered && earlier.volume == state.volume {
                    self.check_survival(written, tag)?;
                }
            }
        }
        Ok(())
    }

    /// An op that was submitted with the write cache off and ends with it on again has promised nothing.
    fn volumes_cache_off_or_fua(&self, state: &OpState) -> bool {
        let asks_fua = match state.op {
            Op::Write { fua, .. } | Op::WriteZeroes { fua, .. } => fua,
            Op::CompareAndWrite { fua, .. } | Op::OrWrite { fua, .. } => fua,
            _ => false,
        };
        asks_fua || !self.volumes[state.volume].write_cache
    }

    fn check_survival(&self, written: u64, promised_by: u64) -> Result<(), String> {
        for &(disk, block, at) in &self.ops[&written].landed {
            let disk_state = &self.disks[disk];
            let taken_by_operator = written != promised_by && at <= disk_state.cleared_at;
            let kept = taken_by_operator || disk_state.medium.survives(block, at);
            ensure(kept, || {
                format!("op {promised_by} promised what op {written} wrote to block {block} of disk {disk}")
            })?;
        }
        Ok(())
    }

    fn check_counts(&self) -> Result<(), String> {
        for (n, disk) in self.disks.iter().enumerate() {
            let flush = self.engine.disk_stats(DiskId(n as u32)).unwrap().flush;
            let sum = flush.elided + flush.joined + flush.issued + flush.refused;
            ensure(flush.requested == sum, || format!("disk {n}: {flush:?}"))?;
            ensure(flush.issued >= disk.flushes, || format!("disk {n}: {} flushes seen, {flush:?}", disk.flushes))?;
        }
        Ok(())
    }

    /// Everything ends well from here on, and nothing is left.
    fn finish(&mut self) -> Result<(), String> {
        self.drain()?;
        for disk in 0..self.disks.len() {
            self.plug(disk);
        }
        self.drain()?;
        while !self.open.is_empty() {
            self.end(0, true);
            self.drain()?;
        }
        let left: Vec<u64> = self.running().collect();
        ensure(left.is_empty(), || format!("ops {left:?} never end"))?;
        ensure(self.engine.poll_timeout().is_none(), || "a timer is left".into())?;
        for n in 0..self.volumes.len() as u32 {
            let stats = self.engine.volume_stats(VolumeId(n)).unwrap();
            ensure((stats.in_flight, stats.fences) == (0, 0), || format!("volume {n}: {stats:?}"))?;
        }
        for (n, disk) in self.disks.iter().enumerate() {
            let stats = self.engine.disk_stats(DiskId(n as u32)).unwrap();
            ensure(stats.in_flight == 0 && stats.flush.issued == disk.flushes, || format!("disk {n}: {stats:?}"))?;
            ensure(stats.poisoned == disk.poisoned, || {
                format!("disk {n} is poisoned and did not tell, or the reverse")
            })?;
        }
        self.check_counts()
    }

    fn running(&self) -> impl Iterator<Item = u64> + '_ {
        self.ops.iter().filter(|(_, state)| state.ended.is_none()).map(|(&tag, _)| tag)
    }

    fn moment(&self) -> usize {
        self.ops.len() + self.ops.values().filter(|state| state.ended.is_some()).count()
    }
}

fn info(volatile_cache: bool, fua: bool) -> DiskInfo {
    let fua = if fua { Fua::Native } else { Fua::None };
    DiskInfo { volatile_cache, fua, blocks: 1000, max_transfer: 3, ..rig::native() }
}

fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(otherwise()) }
}

/// Runs many cases; the shrunk counterexample of the first that fails.
fn check(setups: impl Strategy<Value = Setup>, faults: bool, cases: u32) -> Result<(), String> {
    let mut config = Config { failure_persistence: None, ..Config::default() };
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = cases;
    }
    if config.rng_seed == RngSeed::Random {
        config.rng_seed = RngSeed::Fixed(1);
    }
    let run = |(setup, steps): (Setup, Vec<Step>)| World::new(&setup).run(&steps).map_err(TestCaseError::fail);
    TestRunner::new(config).run(&(setups, steps(faults)), run).map_err(|error| error.to_string())
}

const HONEST: Lies = Lies { fua: false, flush: false, cache: false };
const ALL: &[FuaPolicy] = &[FuaPolicy::Native, FuaPolicy::Emulate, FuaPolicy::Distrust];
const NATIVE: &[FuaPolicy] = &[FuaPolicy::Native];
const EMULATE: &[FuaPolicy] = &[FuaPolicy::Emulate, FuaPolicy::Distrust];
const DISTRUST: &[FuaPolicy] = &[FuaPolicy::Distrust];

#[test]
fn what_is_promised_survives_on_disks_that_do_not_fail() {
    check(setups(HONEST, ALL), false, 600).unwrap();
}

#[test]
fn what_is_promised_survives_failures_resets_and_pulled_plugs() {
    check(setups(HONEST, ALL), true, 1200).unwrap();
}

#[test]
fn p6_a_disk_that_lies_about_fua_is_caught_by_the_reference_and_served_by_emulation() {
    let lies = Lies { fua: true, ..HONEST };
    let caught = check(setups(lies, NATIVE), false, 600).unwrap_err();
    assert!(caught.contains("promised"), "{caught}");
    check(setups(lies, EMULATE), true, 600).unwrap();
}

#[test]
fn p6_a_disk_that_hides_its_cache_is_caught_by_the_reference_and_served_by_distrust() {
    let lies = Lies { cache: true, ..HONEST };
    let caught = check(setups(lies, NATIVE), false, 600).unwrap_err();
    assert!(caught.contains("promised"), "{caught}");
    check(setups(lies, DISTRUST), true, 600).unwrap();
}

#[test]
fn p6_a_disk_that_lies_about_flushes_is_caught_by_the_reference() {
    let caught = check(setups(Lies { flush: true, ..HONEST }, ALL), false, 600).unwrap_err();
    assert!(caught.contains("promised"), "{caught}");
}
