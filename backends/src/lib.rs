//! Disks: each backend turns a [`DiskOp`] into exactly one [`Ended`].
//!
//! [`open()`] claims a file or block device and reads what it is. [`Uring`] and [`Threads`] run ops on such disks, [`Mem`]
//! keeps disks in memory. [`Recorder`] counts what any backend was asked, [`Faulty`] makes it fail or wait on purpose.
//! No volume, segment or protocol is known here: a backend sees disks, blocks and bytes.
//!
//! # Limits
//!
//! | queue | limit | what happens at it |
//! |---|---|---|
//! | ops of one backend between `submit` and `reap` | [`MAX_IN_FLIGHT`] | the op ends `Busy` |
//! | ring entries of [`Uring`] | as asked of `new` | the ring is handed to the kernel once more in that turn |
//! | completion queue of [`Uring`] | 4096 or twice the entries | the kernel keeps further completions in memory of its own |
//! | reads and writes in the kernel per disk, [`Uring`] | [`RING_OPS_PER_DISK`] | later ones wait in that disk's queue, in order |
//! | threads of [`Threads`] per disk | as asked of `new` | ops wait in that disk's queue, in order |
//! | AIO contexts of [`Threads`] | one per thread that wrote with FUA to a block device, `fs.aio-max-nr` in the system | FUA writes to that disk each cost a flush of the device |
//! | flushes running per disk | [`FLUSHES_PER_DISK`] | later flushes of that disk wait; reads and writes pass them |
//! | write zeroes, unmap and block status running per disk | [`BULK_PER_DISK`] | later ones wait; everything else passes them |
//! | extents of one block status | [`MAX_EXTENTS`] | the report ends there, shorter than what was asked |

mod blocking;
mod errno;
mod faulty;
mod fua;
mod job;
mod ledger;
mod line;
mod mem;
mod open;
mod pool;
mod raw;
mod recorder;
pub mod sim;
mod start;
mod sysfs;
mod threads;
mod uring;
mod wake;

use std::io;
use std::os::fd::BorrowedFd;

use platter_block::{DiskId, DiskOp, IoId, IoSlice, Report, Status};

pub use faulty::{Faults, Faulty};
pub use mem::Mem;
pub use open::{Direct, DiskKind, OpenDisk, OpenError, OpenOptions, open};
pub use recorder::{Counts, Kind, Recorder, Recording, Step};
pub use start::{Preference, Started, start};
pub use threads::Threads;
pub use uring::Uring;

/// Most ops of one backend between `submit` and `reap`. One more ends [`Status::Busy`].
pub const MAX_IN_FLIGHT: usize = 16_384;

/// Most reads and writes of one disk that [`Uring`] has in the kernel at once: enough to fill and sort any disk's queue,
/// and a bound on what a stuck disk can hold on to.
pub const RING_OPS_PER_DISK: usize = 64;

/// Most flushes of one disk that run at once. The engine sends one; more gain nothing on any disk.
pub const FLUSHES_PER_DISK: usize = 1;

/// Most write zeroes, unmaps and block status ops of one disk that run at once: they can take minutes each, and must
/// leave room for reads and writes.
pub const BULK_PER_DISK: usize = 2;

/// Most extents in one [`Report::Extents`].
pub const MAX_EXTENTS: usize = 64;

/// Something that runs disk ops.
///
/// # How it is driven
///
/// In each turn of its owner's loop: any number of [`submit`](Self::submit), one [`kick`](Self::kick), one
/// [`reap`](Self::reap); then the owner may sleep until [`event_fd`](Self::event_fd) is readable. No call blocks.
///
/// # Contract
///
/// * Each `IoId` ends exactly once, in whatever order. Also when its disk was removed: then with [`Status::Gone`].
/// * An op for a disk that the backend does not have ends `Gone`; a range beyond the disk ends `LbaOutOfRange` and a write
///   to a read-only disk ends `WriteProtected`, both without touching the medium.
/// * An op that ends `Good` moved every byte. No ended op touches its buffer again, except one that ended `Gone`: the
///   kernel may still be busy with it, on memory that the backend keeps alive.
/// * `Flush` ending `Good` means that every write that ended before the flush was submitted is durable. It ends
///   [`Status::DurabilityLost`] or `Gone` on any failure, whatever the reason, and is never retried after one.
/// * An `IoId` may be used again once it has been reaped.
pub trait Backend {
    /// Queue one op. `data` is `Some` exactly for `Read` and `Write`; it is as long as the op's blocks, and starts at a
    /// multiple of the block size in memory.
    ///
    /// # Panics
    ///
    /// If `data` is missing or of another length: the caller's bug.
    fn submit(&mut self, io: IoId, disk: DiskId, op: DiskOp, data: Option<IoSlice>);

    /// Hand everything queued to the kernel or the threads. Once per turn.
    fn kick(&mut self);

    /// Append what has ended to `ended`.
    fn reap(&mut self, ended: &mut Vec<Ended>);

    /// Becomes readable when something can be reaped that could not be at the end of the last `reap`; reading it is
    /// `reap`'s job. `None` for a backend whose ops all end within `submit` or `kick`.
    fn event_fd(&self) -> Option<BorrowedFd<'_>>;

    /// Ops submitted and not yet reaped.
    fn in_flight(&self) -> usize;
}

/// A [`Backend`] for files and block devices: [`Uring`] or [`Threads`].
pub trait FileBackend: Backend {
    /// Serve `opened` as `disk` from now on.
    ///
    /// # Errors
    ///
    /// When the system has no resources for it (no thread can be started). The disk is then released.
    ///
    /// # Panics
    ///
    /// If `disk` is in use.
    fn add(&mut self, disk: DiskId, opened: OpenDisk) -> io::Result<()>;

    /// Forget `disk`. Its ops in flight end `Gone` at the next `reap`. The claim on the file (lock, exclusive open) is
    /// released when the kernel has let go of the last of them, so that no late write can land on a disk that somebody
    /// has opened anew. Returns whether there was such a disk.
    fn remove(&mut self, disk: DiskId) -> bool;

    /// `"io_uring"` or `"threads"`, for status pages.
    fn name(&self) -> &'static str;
}

/// The one end of an op.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ended {
    /// As given to [`Backend::submit`].
    pub io: IoId,
    /// As given to [`Backend::submit`].
    pub disk: DiskId,
    /// How it ended.
    pub status: Status,
    /// What a `BlockStatus` found.
    pub report: Option<Box<Report>>,
}

impl Ended {
    /// An end without a report.
    pub(crate) const fn new(io: IoId, disk: DiskId, status: Status) -> Self {
        Self { io, disk, status, report: None }
    }
}

impl<B: Backend + ?Sized> Backend for Box<B> {
    fn submit(&mut self, io: IoId, disk: DiskId, op: DiskOp, data: Option<IoSlice>) {
        (**self).submit(io, disk, op, data);
    }

    fn kick(&mut self) {
        (**self).kick();
    }

    fn reap(&mut self, ended: &mut Vec<Ended>) {
        (**self).reap(ended);
    }

    fn event_fd(&self) -> Option<BorrowedFd<'_>> {
        (**self).event_fd()
    }

    fn in_flight(&self) -> usize {
        (**self).in_flight()
    }
}

impl<B: FileBackend + ?Sized> FileBackend for Box<B> {
    fn add(&mut self, disk: DiskId, opened: OpenDisk) -> io::Result<()> {
        (**self).add(disk, opened)
    }

    fn remove(&mut self, disk: DiskId) -> bool {
        (**self).remove(disk)
    }

    fn name(&self) -> &'static str {
        (**self).name()
    }
}
