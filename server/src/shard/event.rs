//! Waiting for the backend's event descriptor inside the shard's runtime.

// One call of tokio is unsafe because a foreign `AsRawFd` could lie; an `OwnedFd` cannot.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::OwnedFd;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Registers a descriptor for readability with the runtime of the current thread.
pub(super) fn register(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: `OwnedFd` names one open descriptor, always the same, and closes it only when dropped, which is after the
    // `AsyncFd` that owns it has deregistered it.
    unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }.map_err(Into::into)
}
