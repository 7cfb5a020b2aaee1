//! What a disk says of itself, and what a volume on top of it may therefore promise.

/// Whether a write can be made durable by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fua {
    /// The disk has no such write; durability costs a flush.
    None,
    /// The disk honours Force Unit Access on writes.
    Native,
}

/// What turns below the heads (SBC-4, Block Device Characteristics VPD page, MEDIUM ROTATION RATE).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rotation {
    /// Not known.
    Unknown,
    /// Flash or memory.
    NonRotating,
    /// Revolutions per minute; 0401h to FFFEh on the wire.
    Rpm(u16),
}

/// How a disk deallocates blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Discard {
    /// Smallest unit that is really deallocated, in logical blocks. At least 1.
    pub granularity: u32,
    /// Offset of the first such unit, in logical blocks.
    pub alignment: u32,
    /// Most blocks in one command; `u32::MAX` for no limit.
    pub max_blocks: u32,
    /// Deallocated blocks read as zeroes until written again.
    pub reads_zeroes: bool,
}

/// What is read from the disk when it is opened, and again after a reset or a re-plug (F6).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DiskInfo {
    /// Logical block size in bytes: the unit of every LBA on this disk. A power of two, 512 to 65536.
    pub block_size: u32,
    /// Physical block size in bytes, at least `block_size`.
    pub physical_block: u32,
    /// Capacity in logical blocks.
    pub blocks: u64,
    /// Acknowledged writes may be lost at a power cut until a flush.
    pub volatile_cache: bool,
    /// Force Unit Access, as the disk reports it; the engine's policy decides whether it is believed (F8).
    pub fua: Fua,
    /// Spindle speed.
    pub rotation: Rotation,
    /// `None` if blocks cannot be deallocated.
    pub discard: Option<Discard>,
    /// Zeroes can be written without sending them.
    pub write_zeroes: bool,
    /// Largest transfer of one command, in logical blocks. At least 1.
    pub max_transfer: u32,
    /// Writes are refused by the disk or the configuration.
    pub read_only: bool,
}

/// What a volume may promise, derived by the engine from its disks. Protocols advertise this and nothing else (F9).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VolumeInfo {
    /// Logical block size in bytes.
    pub block_size: u32,
    /// Physical block size in bytes: the largest of the disks.
    pub physical_block: u32,
    /// Capacity in logical blocks.
    pub blocks: u64,
    /// An acknowledged write without FUA may be lost at a power cut until a flush. False when no disk has a volatile
    /// cache, or when the initiator has switched the write cache off and every write is made durable before its answer.
    pub write_cache: bool,
    /// Whether `write_cache` can be switched on at all: some disk has a volatile cache.
    pub write_cache_changeable: bool,
    /// Spindle speed: the slowest of the disks.
    pub rotation: Rotation,
    /// How blocks are deallocated; `None` if a disk cannot.
    pub discard: Option<Discard>,
    /// Largest transfer of one op, in logical blocks.
    pub max_transfer: u32,
    /// Writes are refused.
    pub read_only: bool,
    /// Every disk is present. When false, every op but a status query ends `NotReady`.
    pub ready: bool,
}
