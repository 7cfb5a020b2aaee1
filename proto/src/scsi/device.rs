//! The device server: units, I_T nexuses, and how a command is admitted, driven and ended.

use platter_block::{BufPool, Report, Status, VolumeId, VolumeInfo};

use super::command::{Command, Reply, ScsiStatus, Step};

/// One SCSI target device. See the [module documentation](super) for how it is driven.
#[derive(Debug)]
pub struct Device {
    config: DeviceConfig,
}

/// What a device is made of.
#[derive(Clone, Debug)]
pub struct DeviceConfig {
    /// Name of the target device, an iSCSI name: SCSI name strings of VPD page 83h.
    pub name: String,
    /// Logical units; no two with the same LUN. May be empty.
    pub units: Vec<UnitConfig>,
}

/// One logical unit.
#[derive(Clone, Debug)]
pub struct UnitConfig {
    /// 0 to 16383.
    pub lun: u16,
    /// The volume behind it.
    pub volume: VolumeId,
    /// What the volume promises now.
    pub info: VolumeInfo,
    /// Who it says it is.
    pub identity: Identity,
    /// Writes are refused, whatever the volume could do.
    pub read_only: bool,
    /// The medium can be ejected and loaded (START STOP UNIT with LOEJ).
    pub removable: bool,
}

impl UnitConfig {
    /// A writable, non-removable unit.
    pub fn new(lun: u16, volume: VolumeId, info: VolumeInfo, identity: Identity) -> Self {
        Self { lun, volume, info, identity, read_only: false, removable: false }
    }
}

/// Who a logical unit says it is: the same after every restart, and on every path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// T10 vendor identification, ASCII, padded with spaces.
    pub vendor: [u8; 8],
    /// Product identification, ASCII, padded with spaces.
    pub product: [u8; 16],
    /// Product revision level, ASCII, padded with spaces.
    pub revision: [u8; 4],
    /// Unit serial number, printable ASCII, 1 to 64 characters. Unique.
    pub serial: String,
    /// NAA IEEE Registered Extended designator (first nibble 6). Unique.
    pub naa: [u8; 16],
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

/// A command between its start and its reply.
#[derive(Debug)]
pub struct Task {
    nexus: NexusId,
}

impl Device {
    /// A device with all its units.
    pub fn new(config: DeviceConfig) -> Self {
        Self { config }
    }

    /// A new I_T nexus: its first command on each unit is told so by a unit attention (29h/00h). `initiator_port` is the
    /// SCSI initiator port name (`iqn...,i,0x...`).
    pub fn nexus_established(&mut self, nexus: NexusId, initiator_port: &str) {
        let _ = (nexus, initiator_port);
    }

    /// The I_T nexus is gone, and with it its reservations, its prevention of medium removal and its unit attentions.
    /// The transport has abandoned its tasks.
    pub fn nexus_lost(&mut self, nexus: NexusId) {
        let _ = nexus;
    }

    /// Begins a command.
    pub fn start(&mut self, nexus: NexusId, command: Command<'_>, pool: &mut BufPool) -> (Task, Step) {
        let _ = (command, pool, &self.config);
        let reply = Reply { status: ScsiStatus::BUSY, sense: None, data: None, out_transfer: 0, in_transfer: 0 };
        (Task { nexus }, Step::Reply(reply))
    }

    /// The data asked for by [`Step::Receive`] are complete in their buffer: exactly `len` bytes.
    pub fn received(&mut self, task: &mut Task, pool: &mut BufPool) -> Step {
        let _ = (pool, task.nexus);
        Step::Reply(Reply { status: ScsiStatus::BUSY, sense: None, data: None, out_transfer: 0, in_transfer: 0 })
    }

    /// The op of [`Step::Submit`] ended.
    pub fn completed(
        &mut self,
        task: &mut Task,
        status: Status,
        report: Option<Box<Report>>,
        pool: &mut BufPool,
    ) -> Step {
        let _ = (pool, status, report, task.nexus);
        Step::Reply(Reply { status: ScsiStatus::BUSY, sense: None, data: None, out_transfer: 0, in_transfer: 0 })
    }

    /// Ends a command without a reply (aborted, connection lost) and frees its buffers. No op of it is outstanding.
    pub fn abandon(&mut self, task: Task, pool: &mut BufPool) {
        let _ = (task, pool);
    }

    /// The volume changed: grown, shrunk, attached, lost, write cache switched. Tells every I_T nexus by unit attention.
    pub fn volume_changed(&mut self, volume: VolumeId, info: VolumeInfo) {
        let _ = (volume, info);
    }

    /// A reset asked for by `by`, after all tasks of the scope have ended: releases reservations, allows medium removal,
    /// sets mode parameters back, and raises the unit attention on every I_T nexus, `by` included (SAM-5 6.3).
    pub fn reset(&mut self, scope: ResetScope, by: NexusId) {
        let _ = (scope, by);
    }

    /// CLEAR TASK SET of another nexus ended commands of `nexus` on this unit: raises 2Fh/00h there (SAM-5 7.4).
    pub fn commands_cleared(&mut self, lun: [u8; 8], nexus: NexusId) {
        let _ = (lun, nexus);
    }

    /// Whether the LUN field names a unit that takes commands (the REPORT LUNS well-known unit included).
    pub fn unit_exists(&self, lun: [u8; 8]) -> bool {
        lun[0] == 0
    }

    /// The unit a LUN field names, as an index that two spellings of the same LUN share; `None` if there is none.
    /// Below [`unit_count`](Self::unit_count). The transport keeps one [`TaskSet`](super::TaskSet) for each.
    pub fn unit_index(&self, lun: [u8; 8]) -> Option<usize> {
        let _ = lun;
        None
    }

    /// How many units there are.
    pub fn unit_count(&self) -> usize {
        self.config.units.len()
    }
}
