//! The drive: link, buffer, head and platter of one simulated disk, in the order in which a command meets them.
//!
//! ```text
//!  submit -> queue -> link -> buffer -> (acknowledged, volatile) -> head -> platter
//!                              `------> flush waits for what was accepted before it
//! ```
//!
//! Rules
//! * D1 The link moves one command at a time: `overhead + len / link`. A completion reaches the host `host` later.
//! * D2 A write is accepted when the buffer has room for it, in order; reads pass. Without FUA and with the write cache on it
//!   is acknowledged at the end of its transfer. With FUA it is acknowledged then only from the protected part, else from
//!   the platter.
//! * D3 A flush is not queued: it waits for every earlier command and later ones wait for it. It ends `flush` after the last
//!   extent accepted before it has reached the platter, protected or not.
//! * D4 The head does one thing at a time. What continues it without a gap costs no positioning; one instant late costs a
//!   whole turn. A run is continued for at most one track while something else waits; else the extent with the shortest
//!   positioning comes next on a conventional disk, and the oldest on a shingled one.
//! * D5 A host-managed disk takes writes at the write pointer only. A zone reset is not queued, as a flush, and takes its time;
//!   what the buffer holds of the zone is gone.
//! * D6 At a power cut every volatile extent is lost or kept on its own, the one under the head is torn at a physical block;
//!   no version older than what the platter holds comes back. Protected extents survive. In a zone only a prefix is kept,
//!   and the write pointer is where it ends.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use platter_block::Instant;

use super::geometry::Geometry;
use super::profile::Profile;
use super::random::Random;
use super::zones::{WritePointers, ZoneError};

/// Unit in which the platter keeps content, and at which a write tears.
pub const SECTOR: u64 = 4096;

/// Names a command; chosen by the submitter.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct CommandId(pub u64);

/// What the drive is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Command {
    /// Read a range of bytes.
    Read {
        /// First byte.
        at: u64,
        /// How many.
        len: u64,
    },
    /// Write a range of bytes.
    Write {
        /// First byte.
        at: u64,
        /// How many.
        len: u64,
        /// Durable before the acknowledgement.
        fua: bool,
        /// What is written: the version that [`Drive::power_cut`] may bring back.
        tag: u64,
    },
    /// FLUSH CACHE.
    Flush,
    /// RESET WRITE POINTER of the zone that begins here.
    ResetZone {
        /// Its first byte.
        at: u64,
    },
}

/// How a command ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Done.
    Good,
    /// Refused by the rules of zones; nothing was changed.
    Refused(ZoneError),
}

impl Command {
    const fn is_exclusive(&self) -> bool {
        matches!(self, Self::Flush | Self::ResetZone { .. })
    }
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    id: CommandId,
    command: Command,
}

/// A piece of the write buffer.
#[derive(Clone, Copy, Debug)]
struct Extent {
    at: u64,
    len: u64,
    seq: u64,
    tag: u64,
    protected: bool,
    /// Acknowledge this command when it is on the platter.
    ack: Option<CommandId>,
}

/// What the head does.
#[derive(Clone, Copy, Debug)]
enum Job {
    Read { id: CommandId, at: u64, len: u64 },
    Destage(Extent),
}

/// What crosses the link.
#[derive(Clone, Copy, Debug)]
enum Transfer {
    ToBuffer {
        id: CommandId,
        at: u64,
        len: u64,
        fua: bool,
        tag: u64,
    },
    /// A read command on its way in; its data are counted on the way out.
    Command {
        id: CommandId,
        at: u64,
        len: u64,
    },
}

/// A command that has the drive for itself.
#[derive(Clone, Copy, Debug)]
enum Exclusive {
    /// A flush waits for extents up to this.
    Draining { id: CommandId, barrier: u64 },
    /// A flush or a zone reset ends then.
    Ending { id: CommandId, at: u64 },
}

impl Exclusive {
    fn has_ended(&self, now: u64) -> bool {
        matches!(self, Self::Ending { at, .. } if *at <= now)
    }
}

/// One simulated disk. Times are given and never go backwards.
///
/// 1. [`submit`](Self::submit) at any time.
/// 2. [`advance`](Self::advance) to [`next_time`](Self::next_time) or to any time before it.
/// 3. After either: [`poll_done`](Self::poll_done) until `None`.
#[derive(Debug)]
pub struct Drive {
    profile: Profile,
    geometry: Geometry,
    random: Random,
    now: u64,
    queue: VecDeque<Waiting>,
    /// Commands taken from `queue` and not completed.
    active: usize,
    link: Option<(u64, Transfer)>,
    reads: Vec<(CommandId, u64, u64)>,
    dirty: Vec<Extent>,
    used: u64,
    protected_used: u64,
    seq: u64,
    head: Head,
    job: Option<(u64, Job)>,
    /// Bytes of the run that the head is in.
    run: u64,
    exclusive: Option<Exclusive>,
    pointers: Option<WritePointers>,
    done: BTreeMap<(u64, u64), (CommandId, Outcome)>,
    done_count: u64,
    /// By sector: sequence and version of what is there.
    platter: BTreeMap<u64, (u64, u64)>,
    lies: Lies,
    stats: DriveStats,
}

#[derive(Clone, Copy, Debug)]
struct Head {
    /// Byte after the last one that it passed.
    end: u64,
    /// When.
    at: u64,
}

/// How a drive lies. All off is an honest drive.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Lies {
    /// A flush ends at once.
    pub flush: bool,
    /// A write with FUA is acknowledged from the volatile buffer.
    pub fua: bool,
    /// What is called protected is lost at a power cut.
    pub protected: bool,
}

/// What a drive has done.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct DriveStats {
    /// Flushes completed.
    pub flushes: u64,
    /// Extents that reached the platter.
    pub destaged: u64,
    /// Seeks.
    pub seeks: u64,
}

impl Drive {
    /// A drive at rest. `seed` decides retries and what survives a power cut.
    pub fn new(profile: Profile, seed: u64) -> Self {
        let geometry = Geometry::new(profile.rpm, profile.rate_outer, profile.rate_inner, profile.capacity);
        let pointers = profile.zones.map(|zones| WritePointers::new(zones, profile.capacity));
        Self {
            profile,
            geometry,
            random: Random::new(seed),
            now: 0,
            queue: VecDeque::new(),
            active: 0,
            link: None,
            reads: Vec::new(),
            dirty: Vec::new(),
            used: 0,
            protected_used: 0,
            seq: 0,
            head: Head { end: 0, at: 0 },
            job: None,
            run: 0,
            exclusive: None,
            pointers,
            done: BTreeMap::new(),
            done_count: 0,
            platter: BTreeMap::new(),
            lies: Lies::default(),
            stats: DriveStats::default(),
        }
    }

    /// The same drive, dishonest.
    #[must_use]
    pub const fn lying(mut self, lies: Lies) -> Self {
        self.lies = lies;
        self
    }

    /// What it is.
    pub const fn profile(&self) -> &Profile {
        &self.profile
    }

    /// What it has done.
    pub const fn stats(&self) -> DriveStats {
        self.stats
    }

    /// Takes a command. It ends once, in [`poll_done`](Self::poll_done).
    ///
    /// # Panics
    /// If its range does not lie within the capacity.
    pub fn submit(&mut self, now: Instant, id: CommandId, command: Command) {
        if let Command::Read { at, len } | Command::Write { at, len, .. } = command {
            let end = at.checked_add(len).expect("a range ends within 2^64 bytes");
            assert!(end <= self.geometry.capacity(), "bytes {at} to {end} of {}", self.geometry.capacity());
        }
        self.advance(now);
        self.queue.push_back(Waiting { id, command });
        self.start_what_can();
    }

    /// When something happens next, if nothing is submitted.
    pub fn next_time(&self) -> Option<Instant> {
        let done = self.done.keys().next().map(|(at, _)| *at);
        self.next_event().into_iter().chain(done).min().map(Instant)
    }

    /// Lets time pass.
    pub fn advance(&mut self, to: Instant) {
        while let Some(at) = self.next_event().filter(|at| *at <= to.0) {
            self.now = self.now.max(at);
            self.happen(at);
            self.start_what_can();
        }
        self.now = self.now.max(to.0);
    }

    /// The next command that has ended by now.
    pub fn poll_done(&mut self) -> Option<(Instant, CommandId, Outcome)> {
        let (&(at, order), _) = self.done.iter().next().filter(|((at, _), _)| *at <= self.now)?;
        let (id, outcome) = self.done.remove(&(at, order))?;
        Some((Instant(at), id, outcome))
    }

    /// The version of a sector on the platter or in the buffer, as a read would find it; `None` if never written.
    pub fn version(&self, sector: u64) -> Option<u64> {
        let covers = |e: &&Extent| e.at <= sector * SECTOR && sector * SECTOR < e.at + e.len;
        let buffered =
            self.dirty.iter().chain(self.destaging().as_ref()).filter(covers).max_by_key(|e| e.seq).map(|e| e.tag);
        buffered.or_else(|| self.platter.get(&sector).map(|(_, tag)| *tag))
    }

    /// Where the next write of the zone with this byte must start; `None` if it is full or the disk has no zones.
    pub fn write_pointer(&self, at: u64) -> Option<u64> {
        self.pointers.as_ref()?.pointer(at)
    }

    /// Cuts the power now (D6) and starts again with an empty buffer. Commands that had not ended never do.
    pub fn power_cut(&mut self) {
        let mut volatile: Vec<Extent> = std::mem::take(&mut self.dirty);
        volatile.sort_by_key(|e| e.seq);
        // In a zone, what follows a lost piece is lost too.
        let mut ended = BTreeSet::new();
        let zones = self.profile.zones;
        let zone = |e: &Extent| zones.map(|zones| e.at / zones.size);
        if let Some(extent) = self.destaging() {
            let torn = self.random.below(extent.len / SECTOR + 1) * SECTOR;
            self.store(extent, if self.survives(&extent) { extent.len } else { torn });
            if torn < extent.len {
                ended.extend(zone(&extent));
            }
        }
        for extent in volatile {
            let kept = self.random.chance(500_000) && zone(&extent).is_none_or(|zone| !ended.contains(&zone));
            if kept || self.survives(&extent) {
                self.store(extent, extent.len);
            } else {
                ended.extend(zone(&extent));
            }
        }
        if let Some(pointers) = &mut self.pointers {
            let platter = &self.platter;
            pointers.fall_back(|sector| platter.contains_key(&sector));
        }
        let now = self.now;
        *self = Self {
            platter: std::mem::take(&mut self.platter),
            random: self.random,
            stats: self.stats,
            lies: self.lies,
            pointers: self.pointers.take(),
            now,
            seq: self.seq,
            head: Head { end: 0, at: now },
            ..Self::new(self.profile.clone(), 0)
        };
    }

    const fn survives(&self, extent: &Extent) -> bool {
        extent.protected && !self.lies.protected
    }

    fn destaging(&self) -> Option<Extent> {
        match self.job {
            Some((_, Job::Destage(extent))) => Some(extent),
            _ => None,
        }
    }

    /// Puts the first `len` bytes of an extent on the platter, unless newer ones are there.
    fn store(&mut self, extent: Extent, len: u64) {
        for sector in extent.at / SECTOR..(extent.at + len) / SECTOR {
            let there = self.platter.entry(sector).or_insert((0, 0));
            if there.0 <= extent.seq {
                *there = (extent.seq, extent.tag);
            }
        }
    }

    /// When the drive itself has something to do next.
    fn next_event(&self) -> Option<u64> {
        [self.link.map(|(at, _)| at), self.job.map(|(at, _)| at), self.exclusive_end()].into_iter().flatten().min()
    }

    const fn exclusive_end(&self) -> Option<u64> {
        match self.exclusive {
            Some(Exclusive::Ending { at, .. }) => Some(at),
            _ => None,
        }
    }

    fn happen(&mut self, at: u64) {
        if let Some((_, transfer)) = self.link.take_if(|(end, _)| *end <= at) {
            self.crossed(transfer);
        }
        if let Some((_, job)) = self.job.take_if(|(end, _)| *end <= at) {
            self.head_done(job);
        }
        if let Some(Exclusive::Ending { id, .. }) = self.exclusive.take_if(|e| e.has_ended(at)) {
            self.complete(id, self.now);
        }
    }

    fn complete(&mut self, id: CommandId, at: u64) {
        self.active -= 1;
        self.done_count += 1;
        self.done.insert((at + self.profile.host, self.done_count), (id, Outcome::Good));
    }

    fn refuse(&mut self, id: CommandId, why: ZoneError) {
        self.done_count += 1;
        self.done.insert((self.now + self.profile.host, self.done_count), (id, Outcome::Refused(why)));
    }

    /// D1, D2: a command has crossed the link.
    fn crossed(&mut self, transfer: Transfer) {
        match transfer {
            Transfer::Command { id, at, len } => self.reads.push((id, at, len)),
            Transfer::ToBuffer { id, at, len, fua, tag } => {
                self.seq += 1;
                let protected = fua && self.profile.protected > 0;
                let early = protected || (!fua || self.lies.fua) && self.profile.write_cache;
                let ack = if early { None } else { Some(id) };
                self.dirty.push(Extent { at, len, seq: self.seq, tag, protected, ack });
                if early {
                    self.complete(id, self.now);
                }
            }
        }
    }

    fn head_done(&mut self, job: Job) {
        match job {
            Job::Read { id, at, len } => {
                self.head = Head { end: at + len, at: self.now };
                let out = len * 1_000_000_000 / self.profile.link;
                self.complete(id, self.now + out);
            }
            Job::Destage(extent) => {
                self.head = Head { end: extent.at + extent.len, at: self.now };
                self.store(extent, extent.len);
                self.used -= extent.len;
                if extent.protected {
                    self.protected_used -= extent.len;
                }
                self.stats.destaged += 1;
                if let Some(id) = extent.ack {
                    self.complete(id, self.now);
                }
            }
        }
    }

    fn start_what_can(&mut self) {
        self.start_link();
        self.start_flush_end();
        self.start_head();
    }

    /// D1 to D3: what the link does next.
    fn start_link(&mut self) {
        while self.link.is_none() && self.active < self.profile.queue {
            let Some(first) = self.queue.front().copied() else { return };
            if self.exclusive.is_some() {
                return;
            }
            if let Command::Flush | Command::ResetZone { .. } = first.command {
                if self.active > 0 {
                    return;
                }
                self.queue.pop_front();
                self.begin_exclusive(first);
                continue;
            }
            // Reads pass writes that wait for room, but nothing passes a flush.
            let passable = self.queue.iter().take_while(|w| !w.command.is_exclusive());
            let mut writes = 0;
            let next = passable.enumerate().find(|(_, w)| {
                let write = !matches!(w.command, Command::Read { .. });
                writes += u32::from(write);
                !write || writes == 1 && self.has_room(&w.command)
            });
            let next = next.map(|(index, _)| index);
            let Some(waiting) = next.and_then(|index| self.queue.remove(index)) else { return };
            if let Err(why) = self.check_zone(&waiting.command) {
                self.refuse(waiting.id, why);
                continue;
            }
            self.active += 1;
            let overhead = self.profile.overhead;
            self.link = Some(match waiting.command {
                Command::Read { at, len } => (self.now + overhead, Transfer::Command { id: waiting.id, at, len }),
                Command::Write { at, len, fua, tag } => {
                    self.used += len;
                    if fua && self.profile.protected > 0 {
                        self.protected_used += len;
                    }
                    let end = self.now + overhead + len * 1_000_000_000 / self.profile.link;
                    (end, Transfer::ToBuffer { id: waiting.id, at, len, fua, tag })
                }
                Command::Flush | Command::ResetZone { .. } => unreachable!("an exclusive command is not picked here"),
            });
        }
    }

    fn begin_exclusive(&mut self, waiting: Waiting) {
        self.active += 1;
        self.exclusive = Some(match waiting.command {
            Command::ResetZone { at } => {
                let zones = self.pointers.as_mut().map(|pointers| pointers.reset(at));
                let Some(Ok(range)) = zones else {
                    self.active -= 1;
                    return self.refuse(waiting.id, ZoneError::NotAZone);
                };
                self.forget(range);
                let reset = self.profile.zones.map_or(0, |zones| zones.reset);
                Exclusive::Ending { id: waiting.id, at: self.now + reset }
            }
            _ => Exclusive::Draining { id: waiting.id, barrier: self.seq },
        });
    }

    /// D5: what the buffer and the platter hold of a zone that is reset.
    fn forget(&mut self, range: std::ops::Range<u64>) {
        let in_zone = |e: &Extent| range.contains(&e.at);
        self.used -= self.dirty.iter().filter(|e| in_zone(e)).map(|e| e.len).sum::<u64>();
        self.dirty.retain(|e| !in_zone(e));
        let sectors = range.start / SECTOR..range.end / SECTOR;
        let gone: Vec<u64> = self.platter.range(sectors).map(|(sector, _)| *sector).collect();
        for sector in gone {
            self.platter.remove(&sector);
        }
    }

    /// D5: whether the zones allow it; moves the write pointer if so.
    fn check_zone(&mut self, command: &Command) -> Result<(), ZoneError> {
        let Some(pointers) = &mut self.pointers else { return Ok(()) };
        match *command {
            Command::Read { at, len } => pointers.check_read(at, len),
            Command::Write { at, len, .. } => pointers.write(at, len),
            Command::Flush | Command::ResetZone { .. } => Ok(()),
        }
    }

    /// D2: whether the buffer takes a command now.
    fn has_room(&self, command: &Command) -> bool {
        match *command {
            Command::Read { .. } => true,
            Command::Flush | Command::ResetZone { .. } => false,
            Command::Write { len, fua, .. } => {
                let fits = self.used == 0 || self.used + len <= self.profile.window.max(self.profile.protected);
                let protected = fua && self.profile.protected > 0;
                fits && (!protected || self.protected_used == 0 || self.protected_used + len <= self.profile.protected)
            }
        }
    }

    /// D3.
    fn start_flush_end(&mut self) {
        let Some(Exclusive::Draining { id, barrier }) = self.exclusive else { return };
        let owed = !self.lies.flush && self.dirty.iter().chain(self.destaging().as_ref()).any(|e| e.seq <= barrier);
        if !owed {
            self.stats.flushes += 1;
            self.exclusive = Some(Exclusive::Ending { id, at: self.now + self.profile.flush });
        }
    }

    /// D4.
    fn start_head(&mut self) {
        if self.job.is_some() {
            return;
        }
        let Some((job, at)) = self.pick() else { return };
        let len = match job {
            Job::Read { len, .. } | Job::Destage(Extent { len, .. }) => len,
        };
        let wait = self.positioning(at);
        let retry = if wait > 0 && self.random.chance(self.profile.retry_ppm) { self.geometry.turn() } else { 0 };
        self.run = if wait == 0 { self.run + len } else { len };
        self.stats.seeks += u64::from(wait > 0);
        let end = self.now + wait + retry + self.geometry.transfer(at, len);
        self.job = Some((end, job));
    }

    /// What the head does next: reads first, then D4 among the extents.
    fn pick(&mut self) -> Option<(Job, u64)> {
        let nearest = |drive: &Self| {
            let by_time = |&(_, &(_, at, _)): &(usize, &(CommandId, u64, u64))| drive.positioning(at);
            drive.reads.iter().enumerate().min_by_key(by_time).map(|(index, _)| index)
        };
        if let Some(index) = nearest(self) {
            let (id, at, len) = self.reads.remove(index);
            return Some((Job::Read { id, at, len }, at));
        }
        let index = self.pick_extent()?;
        let extent = self.dirty.swap_remove(index);
        Some((Job::Destage(extent), extent.at))
    }

    fn pick_extent(&self) -> Option<usize> {
        let candidates = || self.dirty.iter().enumerate();
        let continues = candidates().filter(|(_, e)| e.at == self.head.end).min_by_key(|(_, e)| e.seq);
        let others = continues.is_some() && self.dirty.len() > 1;
        if let Some((index, _)) = continues.filter(|_| !others || self.run < self.geometry.track_bytes(self.head.end)) {
            return Some(index);
        }
        if self.profile.zones.is_some() {
            return candidates().min_by_key(|(_, e)| e.seq).map(|(index, _)| index);
        }
        candidates().min_by_key(|(_, e)| (self.positioning(e.at), e.seq)).map(|(index, _)| index)
    }

    /// Seek and rotational wait from where the head is now.
    fn positioning(&self, at: u64) -> u64 {
        let turn = self.geometry.turn();
        let to = self.place(at);
        let since = self.now - self.head.at;
        let continues = at == self.head.end && self.profile.zones.is_none_or(|zones| !at.is_multiple_of(zones.size));
        // Where the head is: just before what continues it, else just after its last byte.
        let from = if continues { to } else { self.place(self.head.end.saturating_sub(1)) };
        let seek = if continues || from.track == to.track {
            0
        } else {
            self.profile.settle + (self.profile.seek as f64 * (from.stroke - to.stroke).abs().sqrt()) as u64
        };
        let arrival = (from.angle + since + seek) % turn;
        seek + (to.angle + turn - arrival) % turn
    }

    /// The place of a byte; each zone of a shingled disk begins at an angle of its own.
    fn place(&self, byte: u64) -> super::geometry::Place {
        let mut place = self.geometry.place(byte);
        if let Some(zones) = self.profile.zones {
            let phase = Random::new(byte / zones.size).below(self.geometry.turn());
            place.angle = (place.angle + phase) % self.geometry.turn();
        }
        place
    }
}
