//! Which backend runs here.

use std::io;

use crate::{FileBackend, Threads, Uring};

/// What the configuration asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Preference {
    /// io_uring where the system allows it, else threads.
    #[default]
    Auto,
    /// io_uring or an error.
    Uring,
    /// Threads.
    Threads,
}

/// A backend that runs.
pub struct Started {
    /// The backend, without disks.
    pub backend: Box<dyn FileBackend + Send>,
    /// Why it is not io_uring although that would have been preferred.
    pub why_not_uring: Option<String>,
}

/// Starts the backend of one shard: a ring of `entries` entries, or `threads` threads per disk.
///
/// # Errors
///
/// When io_uring was insisted on and the system does not allow it, or when the system is out of file descriptors.
pub fn start(preference: Preference, entries: u32, threads: usize) -> io::Result<Started> {
    let why_not_uring = match preference {
        Preference::Threads => None,
        Preference::Uring => return Ok(Started { backend: Box::new(Uring::new(entries)?), why_not_uring: None }),
        Preference::Auto => match Uring::new(entries) {
            Ok(uring) => return Ok(Started { backend: Box::new(uring), why_not_uring: None }),
            Err(error) => Some(format!("io_uring is not available: {error}")),
        },
    };
    Ok(Started { backend: Box::new(Threads::new(threads)?), why_not_uring })
}
