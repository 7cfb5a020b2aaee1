//! Event descriptors: a counter in the kernel that makes a sleeping owner look.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

/// A new one, not signalled, that never blocks.
pub(crate) fn event_fd() -> io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

/// Makes it readable.
pub(crate) fn signal(event: &impl AsFd) {
    while let Err(Errno::INTR) = rustix::io::write(event, &1u64.to_ne_bytes()) {}
    // EAGAIN, the only other answer an eventfd has, means that the counter is full, hence readable.
}

/// Makes it unreadable until the next signal.
pub(crate) fn clear(event: &impl AsFd) {
    let mut count = [0; 8];
    while let Err(Errno::INTR) = rustix::io::read(event, &mut count) {}
}
