//! The device server: its units and I_T nexuses, and how a command is admitted, driven and ended.

use std::collections::BTreeMap;

use platter_block::{BufPool, Report, Status, VolumeId, VolumeInfo};

use super::attention::{Attention, Attentions};
use super::command::{Attribute, Command, Reply, ScsiStatus, Step};
use super::lun::{self, Lun};
use super::opcodes::{self, Row};
use super::sense::{Code, Fail, Key, Sense};
use super::task::{Awaits, Call, Next, Outcome, Target, Task, Work};
use super::unit::{Unit, UnitConfig};

/// One SCSI target device. See the [module documentation](super) for how it is driven.
#[derive(Debug)]
pub struct Device {
    pub(super) name: String,
    pub(super) portal_group: u16,
    /// By index, which stays the same for the life of a unit. `None` where one was removed.
    units: Vec<Option<Unit>>,
    nexuses: BTreeMap<NexusId, Nexus>,
}

/// What a device is made of.
#[derive(Clone, Debug)]
pub struct DeviceConfig {
    /// Name of the target device, an iSCSI name: SCSI name strings of VPD page 83h.
    pub name: String,
    /// Target portal group tag, part of the target port name (`NAME,t,0xTAG`, RFC 7143 4.4.2).
    pub portal_group: u16,
    /// Logical units; no two with the same LUN. May be empty.
    pub units: Vec<UnitConfig>,
}

/// One I_T nexus, named by the transport: one per session.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NexusId(pub u32);

/// What a reset hits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ResetScope {
    /// LOGICAL UNIT RESET of this LUN field.
    Unit([u8; 8]),
    /// TARGET WARM RESET, TARGET COLD RESET: every logical unit.
    Device,
}

#[derive(Debug)]
struct Nexus {
    initiator_port: String,
    /// By unit index.
    attentions: Vec<Attentions>,
}

impl Device {
    /// A device with all its units.
    pub fn new(config: DeviceConfig) -> Self {
        let mut device =
            Self { name: config.name, portal_group: config.portal_group, units: Vec::new(), nexuses: BTreeMap::new() };
        for unit in config.units {
            device.add_unit(unit);
        }
        device
    }

    /// A new I_T nexus: its first command on each unit is told so by a unit attention (29h/00h). `initiator_port` is the
    /// SCSI initiator port name (`NAME,i,0xISID`).
    pub fn nexus_established(&mut self, nexus: NexusId, initiator_port: &str) {
        let mut new = Attentions::default();
        new.raise(Attention::NewNexus);
        let attentions = vec![new; self.units.len()];
        let old = self.nexuses.insert(nexus, Nexus { initiator_port: initiator_port.to_owned(), attentions });
        assert!(old.is_none(), "{nexus:?} was established twice");
    }

    /// The I_T nexus is gone, and with it its reservations, its prevention of medium removal and its unit attentions.
    /// The transport has abandoned its tasks.
    pub fn nexus_lost(&mut self, nexus: NexusId) {
        self.nexuses.remove(&nexus);
        for unit in self.units.iter_mut().flatten() {
            unit.nexus_lost(nexus);
        }
    }

    /// The initiator port name of a nexus.
    pub fn initiator_port(&self, nexus: NexusId) -> Option<&str> {
        self.nexuses.get(&nexus).map(|n| n.initiator_port.as_str())
    }

    /// Begins a command. `nexus` is established.
    pub fn start(&mut self, nexus: NexusId, command: Command<'_>, pool: &mut BufPool) -> (Task, Step) {
        let mut task = Task::new(nexus, self.target(command.lun), command);
        let mut call = Call { device: self, task: &mut task, pool };
        let outcome = admit(&mut call, command.attribute);
        let step = self.step(&mut task, outcome, pool);
        (task, step)
    }

    /// The data asked for by [`Step::Receive`] are complete in their buffer: exactly `len` bytes.
    pub fn received(&mut self, task: &mut Task, pool: &mut BufPool) -> Step {
        assert_eq!(task.awaits, Awaits::Data, "data for a command that asked for none");
        task.received = true;
        let outcome = self.proceed(task, Status::Good, None, false, pool);
        self.step(task, outcome, pool)
    }

    /// The op of [`Step::Submit`] ended.
    pub fn completed(
        &mut self,
        task: &mut Task,
        status: Status,
        report: Option<Box<Report>>,
        pool: &mut BufPool,
    ) -> Step {
        let Awaits::Op { writes } = task.awaits else { panic!("an op ended of a command that submitted none") };
        let outcome = self.proceed(task, status, report, writes, pool);
        self.step(task, outcome, pool)
    }

    /// Ends a command without a reply (aborted, connection lost) and frees its buffers. No op of it is outstanding.
    pub fn abandon(&mut self, mut task: Task, pool: &mut BufPool) {
        if let (Work::ModeChange(_), Target::Unit(index)) = (&task.work, task.target)
            && let Some(unit) = &mut self.units[index]
        {
            unit.cache_switched_by = None;
        }
        task.free_buffers(None, pool);
    }

    /// The volume changed: grown, shrunk, attached, lost, write cache switched. Tells every I_T nexus by unit attention.
    pub fn volume_changed(&mut self, volume: VolumeId, info: VolumeInfo) {
        for index in 0..self.units.len() {
            let Some(unit) = self.units[index].as_mut().filter(|u| u.config.volume == volume) else { continue };
            let old = std::mem::replace(&mut unit.config.info, info.clone());
            let switched_by = unit.cache_switched_by;
            if (old.blocks, old.block_size) != (info.blocks, info.block_size) {
                self.raise(index, Attention::CapacityChanged, None);
            }
            if old.write_cache != info.write_cache {
                self.raise(index, Attention::ModeChanged, switched_by);
            }
            if old.read_only != info.read_only {
                self.raise(index, Attention::ModeChanged, None);
            }
            if info.ready && !old.ready {
                self.raise(index, Attention::MediumChanged, None);
            }
            // What is left is seen in VPD pages only: equal but for what was compared above?
            let rest = VolumeInfo {
                blocks: info.blocks,
                write_cache: info.write_cache,
                read_only: info.read_only,
                ready: info.ready,
                ..old
            };
            if rest != info {
                self.raise(index, Attention::InquiryChanged, None);
            }
        }
    }

    /// A reset asked for by `by`, after all tasks of the scope have ended: releases reservations, allows medium removal,
    /// sets mode parameters back, and raises the unit attention on every I_T nexus, `by` included (SAM-5 6.3).
    pub fn reset(&mut self, scope: ResetScope, by: NexusId) {
        debug_assert!(self.nexuses.contains_key(&by), "a reset by {by:?}, which is not established");
        let (only, attention) = match scope {
            ResetScope::Unit(lun) => match self.target(lun) {
                Target::Unit(index) => (Some(index), Attention::UnitReset),
                Target::ReportLuns | Target::EmptyZero | Target::Nothing => return,
            },
            ResetScope::Device => (None, Attention::TargetReset),
        };
        for index in 0..self.units.len() {
            if only.is_none_or(|o| o == index)
                && let Some(unit) = &mut self.units[index]
            {
                unit.reset();
                self.raise(index, attention, None);
            }
        }
    }

    /// CLEAR TASK SET of another nexus ended commands of `nexus` on this unit: raises 2Fh/00h there (SAM-5 7.4).
    pub fn commands_cleared(&mut self, lun: [u8; 8], nexus: NexusId) {
        if let (Target::Unit(index), Some(nexus)) = (self.target(lun), self.nexuses.get_mut(&nexus)) {
            nexus.attentions[index].raise(Attention::CommandsCleared);
        }
    }

    /// Adds a unit while nexuses exist: tells them (3Fh/0Eh). Its LUN is free.
    pub fn add_unit(&mut self, config: UnitConfig) {
        assert!(config.lun <= lun::MAX_LUN, "LUN {} does not fit in flat space addressing", config.lun);
        assert!(self.find(config.lun).is_none(), "LUN {} is taken", config.lun);
        self.units.push(Some(Unit::new(config)));
        for nexus in self.nexuses.values_mut() {
            nexus.attentions.push(Attentions::default());
        }
        self.luns_changed();
    }

    /// Removes a unit: tells all nexuses (3Fh/0Eh). Its tasks end with LOGICAL UNIT NOT SUPPORTED at their next step.
    /// False if there is none.
    pub fn remove_unit(&mut self, lun: u16) -> bool {
        let Some(index) = self.find(lun) else { return false };
        self.units[index] = None;
        self.luns_changed();
        true
    }

    /// Whether the LUN field names a unit that takes commands, the REPORT LUNS well-known unit included.
    pub fn unit_exists(&self, lun: [u8; 8]) -> bool {
        matches!(self.target(lun), Target::Unit(_) | Target::ReportLuns)
    }

    /// The unit a LUN field names, as an index that all spellings of the same LUN share; `None` if there is none.
    /// Below [`unit_count`](Self::unit_count). The transport keeps one [`TaskSet`](super::TaskSet) for each.
    pub fn unit_index(&self, lun: [u8; 8]) -> Option<usize> {
        match self.target(lun) {
            Target::Unit(index) => Some(index),
            Target::ReportLuns | Target::EmptyZero | Target::Nothing => None,
        }
    }

    /// One more than the largest index ever used.
    pub fn unit_count(&self) -> usize {
        self.units.len()
    }

    pub(super) fn unit(&self, index: usize) -> Option<&Unit> {
        self.units[index].as_ref()
    }

    pub(super) fn unit_mut(&mut self, index: usize) -> Option<&mut Unit> {
        self.units[index].as_mut()
    }

    /// All LUNs, ascending.
    pub(super) fn luns(&self) -> Vec<u16> {
        let mut luns: Vec<u16> = self.units.iter().flatten().map(|u| u.config.lun).collect();
        luns.sort_unstable();
        luns
    }

    /// Raises a condition about a unit on every nexus but one.
    pub(super) fn raise(&mut self, index: usize, attention: Attention, except: Option<NexusId>) {
        for (&id, nexus) in &mut self.nexuses {
            if Some(id) != except {
                nexus.attentions[index].raise(attention);
            }
        }
    }

    /// The nexus has been told, whatever the unit it was told about.
    pub(super) fn clear_everywhere(&mut self, nexus: NexusId, attention: Attention) {
        for pending in &mut self.nexus_mut(nexus).attentions {
            pending.clear(attention);
        }
    }

    /// Takes the next condition of a unit for a nexus, if `wanted`.
    pub(super) fn take_attention(
        &mut self,
        nexus: NexusId,
        index: usize,
        wanted: impl Fn(Attention) -> bool,
    ) -> Option<Attention> {
        let pending = &mut self.nexus_mut(nexus).attentions[index];
        let first = pending.first().filter(|&a| wanted(a))?;
        pending.clear(first);
        Some(first)
    }

    fn nexus_mut(&mut self, nexus: NexusId) -> &mut Nexus {
        self.nexuses.get_mut(&nexus).expect("the transport establishes a nexus before it sends commands")
    }

    fn luns_changed(&mut self) {
        for index in 0..self.units.len() {
            self.raise(index, Attention::LunsChanged, None);
        }
    }

    fn find(&self, lun: u16) -> Option<usize> {
        self.units.iter().position(|u| u.as_ref().is_some_and(|u| u.config.lun == lun))
    }

    fn target(&self, raw: [u8; 8]) -> Target {
        match Lun::decode(raw) {
            Lun::Unit(lun) => match self.find(lun) {
                Some(index) => Target::Unit(index),
                None if lun == 0 => Target::EmptyZero,
                None => Target::Nothing,
            },
            Lun::ReportLuns => Target::ReportLuns,
            Lun::Unknown => Target::Nothing,
        }
    }

    /// The awaited step is over.
    fn proceed(
        &mut self,
        task: &mut Task,
        status: Status,
        report: Option<Box<Report>>,
        wrote: bool,
        pool: &mut BufPool,
    ) -> Outcome {
        if let Target::Unit(index) = task.target
            && self.units[index].is_none()
        {
            return Err(Sense::illegal(Code::LOGICAL_UNIT_NOT_SUPPORTED).into());
        }
        let work = std::mem::replace(&mut task.work, Work::Reply(None));
        let mut call = Call { device: self, task, pool };
        if status.is_good() { work.proceed(&mut call, report) } else { work.failed(&mut call, status, wrote) }
    }

    /// Turns what a handler answered into what the transport is told.
    fn step(&mut self, task: &mut Task, outcome: Outcome, pool: &mut BufPool) -> Step {
        let (status, sense, data) = match outcome {
            Ok(Next::Receive { buf, len, then }) => {
                debug_assert!(len > 0 && len <= task.out_len as usize, "asks for {len} of {} bytes", task.out_len);
                (task.work, task.awaits) = (then, Awaits::Data);
                return Step::Receive { buf, len };
            }
            Ok(Next::Submit { op, then }) => {
                let Target::Unit(index) = task.target else { panic!("an op without a unit: {op:?}") };
                let unit = self.units[index].as_ref().expect("a handler of this unit asked for the op");
                (task.work, task.awaits) = (then, Awaits::Op { writes: op.is_write() });
                return Step::Submit { volume: unit.config.volume, op };
            }
            Ok(Next::End(status, data)) => (status, None, data),
            Err(Fail::Status(status)) => (status, None, None),
            Err(Fail::Check(sense)) => (ScsiStatus::CHECK_CONDITION, Some(sense), None),
        };
        task.awaits = Awaits::Nothing;
        task.free_buffers(data.map(|d| d.buf), pool);
        let descriptor = match task.target {
            Target::Unit(index) => self.units[index].as_ref().is_some_and(|u| u.mode.descriptor_sense),
            Target::ReportLuns | Target::EmptyZero | Target::Nothing => false,
        };
        // What a refused command would have moved is of no interest: nothing was.
        let moved = status == ScsiStatus::GOOD;
        Step::Reply(Reply {
            status,
            sense: sense.map(|s| s.encode(descriptor)),
            data,
            out_transfer: if moved || task.received { task.out_transfer } else { 0 },
            in_transfer: if moved { task.in_transfer } else { 0 },
        })
    }
}

/// Whether a command may run at all, and if so its first step. The order of the checks is the one of SAM-5 5.3.3.
fn admit(call: &mut Call<'_>, attribute: Attribute) -> Outcome {
    let cdb = call.cdb();
    if attribute == Attribute::Aca {
        // There is never an ACA condition: NORMACA is 0.
        return Err(Sense::illegal(Code::INVALID_FIELD_IN_CDB).into());
    }
    let row = match call.task.target {
        Target::Unit(index) => {
            let row = opcodes::find(&cdb, call.find_unit());
            admit_to_unit(call, index, row)?
        }
        Target::ReportLuns => {
            let row = opcodes::find(&cdb, None).ok().filter(|r| r.is_for_well_known());
            row.ok_or(Sense::illegal(Code::INVALID_OPERATION_CODE))?
        }
        Target::EmptyZero | Target::Nothing => {
            let lun_zero = call.task.target == Target::EmptyZero;
            let row = opcodes::find(&cdb, None).ok().filter(|r| r.is_for_empty(lun_zero));
            row.ok_or(Sense::illegal(Code::LOGICAL_UNIT_NOT_SUPPORTED))?
        }
    };
    row.check_reserved(&cdb, call.find_unit())?;
    if let Some(unit) = call.find_unit() {
        if row.needs_medium() && !unit.loaded {
            return Err(Sense::new(Key::NotReady, Code::MEDIUM_NOT_PRESENT).into());
        }
        if row.needs_medium() && !unit.info().ready {
            return Err(Sense::new(Key::NotReady, Code::NOT_READY).into());
        }
        if let Some(code) = unit.write_protection().filter(|_| row.writes()) {
            return Err(Sense::new(Key::DataProtect, code).into());
        }
    }
    row.run(call)
}

/// Unit attentions and reservations: a reset is told first, then a conflict, then the other conditions, and only then
/// whether the command exists.
fn admit_to_unit(call: &mut Call<'_>, index: usize, row: Result<&'static Row, Sense>) -> Result<&'static Row, Fail> {
    let nexus = call.task.nexus;
    if row.is_ok_and(Row::is_exempt) {
        return Ok(row?);
    }
    if let Some(reset) = call.device.take_attention(nexus, index, Attention::is_reset) {
        return Err(reset.sense().into());
    }
    let holder = call.unit().reserved_by.filter(|&h| h != nexus);
    if holder.is_some() && !row.is_ok_and(Row::passes_reservations) {
        return Err(Fail::Status(ScsiStatus::RESERVATION_CONFLICT));
    }
    if let Some(other) = call.device.take_attention(nexus, index, |_| true) {
        return Err(other.sense().into());
    }
    Ok(row?)
}
