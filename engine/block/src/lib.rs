//! The command model that the engine, the protocols and the backends share.
//!
//! A [`Volume`](VolumeId) is what the units of every protocol point at: neutral on purpose. Protocols turn wire commands into an
//! [`Op`] on a volume, the engine turns each `Op` into [`DiskOp`]s on disks, backends turn each `DiskOp` into exactly one
//! completion. Nothing here knows a protocol, a file or a clock.

mod buffers;
mod ids;
mod info;
mod op;
mod time;
mod units;

pub use buffers::{BUFFER_ALIGNMENT, BufId, BufPool, IoSlice};
pub use ids::{DiskId, IoId, Tag, VolumeId};
pub use info::{Discard, DiskInfo, Fua, Rotation, VolumeInfo};
pub use op::{DiskOp, Extent, Op, Report, Status};
pub use time::Instant;
pub use units::{BlockCount, BlockRange, Lba};
