//! Counters. Every field counts from the start of the engine, unless it says "now".

/// What became of the flushes asked of one disk. A request is the wish of one op (or of the engine itself, F6) that this
/// disk makes something durable: a flush op asks each disk of its volume, an emulated FUA write each disk it touched.
///
/// Each request is counted once, when its fate is known, so that at every moment
/// `requested == elided + joined + issued + refused`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FlushStats {
    /// Requests whose fate is known.
    pub requested: u64,
    /// Nothing to do: all that had to be durable was.
    pub elided: u64,
    /// Shared a device flush that another request caused.
    pub joined: u64,
    /// Caused a device flush: exactly the number of [`DiskOp::Flush`](platter_block::DiskOp::Flush) sent.
    pub issued: u64,
    /// Failed without a device flush: the disk is poisoned or missing, or became so while the request waited.
    pub refused: u64,
    /// Of `issued`, those that did not end `Good`.
    pub failed: u64,
}

/// Counters of one disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DiskStats {
    /// What became of flushes.
    pub flush: FlushStats,
    /// Read ops sent.
    pub reads: u64,
    /// Write, write-zeroes and unmap ops sent.
    pub writes: u64,
    /// Blocks of the reads sent.
    pub blocks_read: u64,
    /// Blocks of the writes sent.
    pub blocks_written: u64,
    /// Writes sent with FUA.
    pub fua_native: u64,
    /// Ops made durable on this disk by plain writes and a flush request.
    pub fua_emulated: u64,
    /// Disk ops that ended with anything but `Good`.
    pub errors: u64,
    /// Disk ops sent and not ended, now.
    pub in_flight: u32,
    /// Acknowledged writes, and events after which claims were forgotten (F6), that no good flush has covered, now.
    pub undurable: u64,
    /// Flushes and FUA writes fail, now (F3).
    pub poisoned: bool,
    /// The disk is there, now.
    pub present: bool,
}

/// Counters of one volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct VolumeStats {
    /// Read ops that ended `Good`.
    pub reads: u64,
    /// Ops that change the medium and ended `Good`.
    pub writes: u64,
    /// Flush ops that ended `Good`.
    pub flushes: u64,
    /// Blocks of those reads.
    pub blocks_read: u64,
    /// Blocks of those writes.
    pub blocks_written: u64,
    /// Ops that ended with a status other than `Good` and `Aborted`.
    pub errors: u64,
    /// Ops that ended `Aborted`.
    pub aborted: u64,
    /// Ops that hold a place of [`MAX_OPS_PER_VOLUME`](crate::MAX_OPS_PER_VOLUME), now. Aborted ops whose disk has not
    /// ended them yet are among them.
    pub in_flight: u32,
    /// Of those, aborted writes on a stuck disk that keep a fence, now.
    pub fences: u32,
}
