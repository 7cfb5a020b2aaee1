//! The one place where the I/O path reads the clock.

use platter_block::Instant;

/// Monotonic time since the process made it. Wall-clock jumps do not touch it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    origin: std::time::Instant,
}

impl Clock {
    pub(crate) fn new() -> Self {
        Self { origin: std::time::Instant::now() }
    }

    pub(crate) fn now(&self) -> Instant {
        // 584 years fit.
        Instant(self.origin.elapsed().as_nanos() as u64)
    }

    /// The instant as tokio's timers want it.
    pub(crate) fn to_tokio(self, at: Instant) -> tokio::time::Instant {
        (self.origin + std::time::Duration::from_nanos(at.0)).into()
    }
}
