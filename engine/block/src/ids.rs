//! Names of things that cross a layer boundary. Each is a plain number that only its maker gives meaning to.

/// A volume, as configured. Stable for the life of the process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct VolumeId(pub u32);

/// A physical disk (or the file that stands for one). Flushes, poison and counters are kept per `DiskId`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DiskId(pub u32);

/// One [`Op`](crate::Op), chosen by its submitter, unique among the ops in flight on one engine. Ends exactly once.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Tag(pub u64);

/// One [`DiskOp`](crate::DiskOp), chosen by the engine. Completes exactly once.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct IoId(pub u64);
