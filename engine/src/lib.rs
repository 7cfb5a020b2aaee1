//! The command engine: from ops on volumes to ops on disks, with as few flushes as honesty allows.
//!
//! Pure rules. There is no I/O, no clock and no chance in here; time is an argument and buffers are numbers. One
//! [`Engine`] serves one group of disks and the volumes on them; its type says how it is driven.
//!
//! One idea per file:
//!
//! | file | idea |
//! |---|---|
//! | `engine.rs` | what goes in, what comes out, in which order |
//! | `run.rs`, `task.rs` | the life of one op: admit, start, pieces, flush, end, abort |
//! | `flush_gate.rs` | which flushes are sent, shared or not needed; when a disk is poisoned (conditions F1 to F9) |
//! | `segment_map.rs` | a volume as an ordered list of segments on disks |
//! | `ranges.rs` | exclusive ops, and fences left behind by aborted writes on a stuck disk |
//! | `disk.rs`, `volume.rs` | what is known of one disk and of one volume |
//! | `disk_events.rs` | flush ends, faults, loss, reset |
//! | `slab.rs`, `tags.rs`, `stats.rs` | storage with generation-carrying keys; tags; counters |

mod disk;
mod disk_events;
mod engine;
mod flush_gate;
mod ranges;
mod run;
mod segment_map;
mod slab;
mod stats;
mod tags;
mod task;
mod volume;

pub use engine::{ABORT_GRACE, Engine, FuaPolicy, Input, MAX_OPS, MAX_OPS_PER_VOLUME, Output};
pub use segment_map::{MAX_DISKS_PER_VOLUME, MapError, Segment};
pub use stats::{DiskStats, FlushStats, VolumeStats};
