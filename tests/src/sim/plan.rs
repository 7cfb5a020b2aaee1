//! What one seed is about: disks, volumes, hosts, faults and how each life ends. Decided before anything runs, from the seed
//! alone.

use std::time::Duration;

use platter_block::{Discard, DiskId, DiskInfo, Fua, Lba, Rotation};
use platter_engine::{FuaPolicy, Segment};

use super::rng::Rng;

/// Most blocks of one op: more than the engine has pieces of one op out at a time.
pub const MAX_OP_BLOCKS: u64 = 60;

/// How long the engine may have to wait before its outputs are looked at, where inputs come in batches.
pub const BATCH_WINDOW: Duration = Duration::from_micros(20);

/// The whole scenario of one seed.
#[derive(Debug)]
pub struct Plan {
    /// Bytes in a block, the same on every disk.
    pub block_size: u32,
    /// Index is the [`DiskId`].
    pub disks: Vec<DiskPlan>,
    /// Index is the volume's number.
    pub volumes: Vec<VolumePlan>,
    /// How many initiators there are, and how they behave.
    pub hosts: Vec<HostPlan>,
    /// Relative frequency of each kind of op.
    pub mix: Mix,
    /// What goes wrong.
    pub faults: Faults,
    /// Inputs out of a thousand that begin a batch: the engine is asked for outputs only [`BATCH_WINDOW`] later.
    pub batching: u64,
    /// One entry per life; after the last one everything is read once more.
    pub lives: Vec<LifePlan>,
}

/// One disk.
#[derive(Clone, Debug)]
pub struct DiskPlan {
    /// What it reports, and, unless it lies, what it does.
    pub info: DiskInfo,
    /// What the engine is told to believe.
    pub policy: FuaPolicy,
    /// How it deceives.
    pub lie: Option<Lie>,
    /// Fastest command in nanoseconds.
    pub latency_min: u64,
    /// Slowest ordinary command in nanoseconds.
    pub latency_max: u64,
    /// Commands out of a thousand that take 50 times as long.
    pub spikes: u64,
}

/// What a disk says and does not do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lie {
    /// A flush succeeds and makes nothing durable.
    Flush,
    /// A FUA write succeeds and stays in the volatile cache.
    Fua,
    /// The disk has a volatile cache and reports none.
    NoCache,
}

/// One volume.
#[derive(Clone, Debug)]
pub struct VolumePlan {
    /// In volume order.
    pub segments: Vec<Segment>,
    /// Size in blocks.
    pub blocks: u64,
}

/// One initiator.
#[derive(Clone, Debug)]
pub struct HostPlan {
    /// Ops it keeps in flight.
    pub depth: u64,
    /// Longest pause before the next op in nanoseconds.
    pub think_max: u64,
}

/// Relative frequency of each kind of op.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "each field is named after its op")]
pub struct Mix {
    pub read: u64,
    pub write: u64,
    pub flush: u64,
    pub zero: u64,
    pub unmap: u64,
    pub compare_and_write: u64,
    pub or_write: u64,
    pub write_cache: u64,
    pub block_status: u64,
    /// Writes out of a thousand that ask for FUA.
    pub fua: u64,
    /// Ops out of a thousand that do not lie within the volume.
    pub outside: u64,
}

/// What goes wrong. Chances are out of a thousand, 0 for never.
#[derive(Clone, Default, Debug)]
pub struct Faults {
    /// Ops that are aborted some time after they were submitted.
    pub aborts: u64,
    /// Ops after which their host disconnects.
    pub disconnects: u64,
    /// Reads that fail.
    pub read_errors: u64,
    /// Writes that fail, wholly or from some block on.
    pub write_errors: u64,
    /// Flushes, and FUA writes in their flush, that fail.
    pub flush_errors: u64,
    /// Of those, how many lose the cache.
    pub flush_loses: u64,
    /// Disk commands that hang for seconds.
    pub stuck: u64,
    /// Ops after which a disk is unplugged for a while.
    pub unplugs: u64,
    /// Ops after which a disk is reset, or its cache setting is changed behind our back.
    pub resets: u64,
    /// How long an operator takes to clear a fault, in microseconds; often nobody clears it.
    pub clear_max: u64,
}

/// From a start of the engine to its end.
#[derive(Clone, Debug)]
pub struct LifePlan {
    /// Ops that hosts submit.
    pub ops: u64,
    /// How it ends.
    pub ending: LifeEnd,
}

/// How a life ends. Volatile caches survive only `Crash`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LifeEnd {
    /// Power cut right after this many durable promises (answers to flushes and FUA writes) were given.
    CutAfterPromise(u64),
    /// Power cut at this event.
    CutAtEvent(u64),
    /// The process dies at this event; the disks keep their power, and are flushed before the next life.
    Crash(u64),
    /// Hosts stop, everything ends, then the power is cut.
    CutWhenIdle,
}

impl Plan {
    /// The scenario of a seed. `lie`: one disk deceives in this way, and nothing else goes wrong.
    pub fn new(rng: &mut Rng, lie: Option<Lie>) -> Self {
        let block_size = *rng.pick(&[512, 4096]);
        let mut disks: Vec<DiskPlan> = (0..rng.between(1, 4)).map(|_| disk(rng, block_size)).collect();
        if let Some(lie) = lie {
            let liar = rng.below(disks.len() as u64) as usize;
            disks[liar].lie(lie);
        }
        let volumes = volumes(rng, &disks);
        let faults = if lie.is_some() { Faults::default() } else { faults(rng) };
        let hosts = (0..rng.between(1, 4))
            .map(|_| HostPlan { depth: rng.between(1, 8), think_max: *rng.pick(&[0, 100_000, 2_000_000, 20_000_000]) })
            .collect();
        let lives = (0..rng.between(1, 4)).map(|_| life(rng)).collect();
        let batching = *rng.pick(&[0, 0, 300, 900]);
        Self { block_size, disks, volumes, hosts, mix: mix(rng), faults, batching, lives }
    }

    /// Which block of which volume lies at `lba` of `disk`.
    pub fn owner(&self, disk: usize, lba: u64) -> Option<(usize, u64)> {
        self.volumes.iter().enumerate().find_map(|(v, volume)| {
            let segment = volume
                .segments
                .iter()
                .find(|s| s.disk.0 as usize == disk && (s.disk_lba.0..s.disk_lba.0 + s.count).contains(&lba))?;
            Some((v, segment.volume_lba.0 + (lba - segment.disk_lba.0)))
        })
    }
}

impl VolumePlan {
    /// Where a block lies: disk and LBA on it.
    pub fn locate(&self, lba: u64) -> (usize, u64) {
        let segment = self
            .segments
            .iter()
            .find(|s| (s.volume_lba.0..s.volume_lba.0 + s.count).contains(&lba))
            .expect("the caller asks only for blocks of the volume");
        (segment.disk.0 as usize, segment.disk_lba.0 + (lba - segment.volume_lba.0))
    }

    /// The disks it lies on, each once.
    pub fn disks(&self) -> Vec<usize> {
        let mut disks: Vec<usize> = self.segments.iter().map(|s| s.disk.0 as usize).collect();
        disks.sort_unstable();
        disks.dedup();
        disks
    }
}

impl DiskPlan {
    fn lie(&mut self, lie: Lie) {
        self.lie = Some(lie);
        self.policy = FuaPolicy::Native;
        self.info.read_only = false;
        self.info.volatile_cache = lie != Lie::NoCache;
        self.info.fua = if lie == Lie::Fua { Fua::Native } else { Fua::None };
    }
}

fn disk(rng: &mut Rng, block_size: u32) -> DiskPlan {
    let discard = rng.chance(700).then(|| Discard {
        granularity: *rng.pick(&[1, 1, 1, 4]),
        alignment: 0,
        max_blocks: *rng.pick(&[4, 8, u32::MAX]),
        reads_zeroes: true,
    });
    let info = DiskInfo {
        block_size,
        physical_block: 4096,
        blocks: rng.between(24, 96),
        volatile_cache: rng.chance(850),
        fua: if rng.chance(500) { Fua::Native } else { Fua::None },
        rotation: *rng.pick(&[Rotation::Unknown, Rotation::NonRotating, Rotation::Rpm(7200)]),
        discard,
        write_zeroes: rng.chance(700),
        max_transfer: *rng.pick(&[1, 3, 4, 8, 64, 1024]),
        read_only: rng.chance(20),
    };
    let latency_min = *rng.pick(&[1_000, 50_000, 1_000_000]);
    DiskPlan {
        info,
        policy: *rng.pick(&[FuaPolicy::Native, FuaPolicy::Native, FuaPolicy::Emulate, FuaPolicy::Distrust]),
        lie: None,
        latency_min,
        latency_max: latency_min * *rng.pick(&[1, 4, 40]),
        spikes: *rng.pick(&[0, 0, 20]),
    }
}

/// Cuts every disk into pieces, shuffles them and deals them out.
fn volumes(rng: &mut Rng, disks: &[DiskPlan]) -> Vec<VolumePlan> {
    let longest = *rng.pick(&[2, 8, 40]);
    let mut pieces = Vec::new();
    for (d, disk) in disks.iter().enumerate() {
        let mut at = rng.below(3);
        while at < disk.info.blocks {
            let count = rng.between(1, longest).min(disk.info.blocks - at);
            pieces.push((d as u32, at, count));
            at += count + u64::from(rng.chance(200));
        }
    }
    for i in (1..pieces.len()).rev() {
        pieces.swap(i, rng.below(i as u64 + 1) as usize);
    }
    let wanted = rng.between(1, 4).min(pieces.len() as u64) as usize;
    let mut volumes = vec![VolumePlan { segments: Vec::new(), blocks: 0 }; wanted];
    let size_max = *rng.pick(&[6, 30, 100]);
    for (i, (disk, disk_lba, count)) in pieces.into_iter().enumerate() {
        let volume = if i < wanted { i } else { rng.below(wanted as u64) as usize };
        let volume = &mut volumes[volume];
        if volume.blocks > 0 && volume.blocks + count > size_max {
            continue;
        }
        volume.segments.push(Segment {
            volume_lba: Lba(volume.blocks),
            count,
            disk: DiskId(disk),
            disk_lba: Lba(disk_lba),
        });
        volume.blocks += count;
    }
    volumes
}

fn mix(rng: &mut Rng) -> Mix {
    Mix {
        read: rng.between(5, 40),
        write: rng.between(20, 60),
        flush: *rng.pick(&[0, 3, 10, 30]),
        zero: *rng.pick(&[0, 3, 15]),
        unmap: *rng.pick(&[0, 3, 15]),
        compare_and_write: *rng.pick(&[0, 3, 20]),
        or_write: *rng.pick(&[0, 3, 10]),
        write_cache: *rng.pick(&[0, 0, 1, 3]),
        block_status: *rng.pick(&[0, 1]),
        fua: *rng.pick(&[0, 100, 300, 700]),
        outside: 3,
    }
}

fn faults(rng: &mut Rng) -> Faults {
    if rng.chance(300) {
        return Faults::default();
    }
    let mut sometimes = |per_mille: &[u64]| if rng.chance(400) { *rng.pick(per_mille) } else { 0 };
    Faults {
        aborts: sometimes(&[20, 100, 300]),
        disconnects: sometimes(&[5, 20]),
        read_errors: sometimes(&[5, 30]),
        write_errors: sometimes(&[5, 30]),
        flush_errors: sometimes(&[10, 60, 200]),
        flush_loses: 500,
        stuck: sometimes(&[3, 15, 50]),
        unplugs: sometimes(&[3, 10, 30]),
        resets: sometimes(&[5, 20, 80]),
        clear_max: *rng.pick(&[100, 10_000, 200_000]),
    }
}

fn life(rng: &mut Rng) -> LifePlan {
    let ops = *rng.pick(&[30, 100, 250]);
    let ending = match rng.below(10) {
        0..5 => LifeEnd::CutAfterPromise(rng.between(1, ops / 5)),
        5..8 => LifeEnd::CutAtEvent(rng.between(10, ops * 10)),
        8 => LifeEnd::Crash(rng.between(10, ops * 10)),
        _ => LifeEnd::CutWhenIdle,
    };
    LifePlan { ops, ending }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_are_consecutive_within_their_disks_and_share_no_block() {
        for seed in 0..300 {
            let plan = Plan::new(&mut Rng::new(seed), None);
            let mut used = std::collections::BTreeSet::new();
            for (v, volume) in plan.volumes.iter().enumerate() {
                assert!(volume.blocks > 0);
                for lba in 0..volume.blocks {
                    let (disk, at) = volume.locate(lba);
                    assert!(at < plan.disks[disk].info.blocks);
                    assert!(used.insert((disk, at)), "seed {seed}: block {at} of disk {disk} is used twice");
                    assert_eq!(plan.owner(disk, at), Some((v, lba)));
                }
            }
        }
    }
}
