//! What a simulated disk is like: the figures of one drive.

/// Figures of one drive. Times are nanoseconds, lengths bytes, rates bytes per second.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// Name.
    pub name: String,
    /// Capacity.
    pub capacity: u64,
    /// Turns per minute.
    pub rpm: u32,
    /// Data rate at the outer edge.
    pub rate_outer: u64,
    /// Data rate at the inner edge.
    pub rate_inner: u64,
    /// Settling after every seek.
    pub settle: u64,
    /// A seek takes `settle + seek * sqrt(fraction of the stroke)`.
    pub seek: u64,
    /// Work of the interface for one command, one after the other.
    pub overhead: u64,
    /// From the end of a command to its completion at the host; overlaps with other commands.
    pub host: u64,
    /// A flush with nothing to do, and the end of one that had.
    pub flush: u64,
    /// Rate of the interface.
    pub link: u64,
    /// Volatile write buffer, as far as firmware sorts it.
    pub window: u64,
    /// Part of the buffer that survives a power cut; 0 if none.
    pub protected: u64,
    /// Whether writes are acknowledged from the volatile buffer.
    pub write_cache: bool,
    /// Commands that the drive takes at once.
    pub queue: usize,
    /// Chance of one more turn after a seek, in millionths.
    pub retry_ppm: u32,
    /// Zones, for a host-managed shingled disk.
    pub zones: Option<Zones>,
}

/// Zones of a host-managed disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zones {
    /// Size of each.
    pub size: u64,
    /// Time of a zone reset.
    pub reset: u64,
}

impl Profile {
    /// A 20 TB conventional disk with a power-safe part of its buffer.
    pub fn exos_x20() -> Self {
        Self {
            name: "exos-x20".into(),
            capacity: 20_000_000_000_000,
            rpm: 7200,
            rate_outer: 285_000_000,
            rate_inner: 130_000_000,
            settle: 1_250_000,
            seek: 13_000_000,
            overhead: 72_000,
            host: 54_000,
            flush: 72_000,
            link: 585_000_000,
            window: 256 << 20,
            protected: 8 << 20,
            write_cache: true,
            queue: 32,
            retry_ppm: 1500,
            zones: None,
        }
    }

    /// A 4 TB conventional disk without one.
    pub fn exos_7e10() -> Self {
        Self {
            name: "exos-7e10".into(),
            capacity: 4_000_787_030_016,
            rate_outer: 250_000_000,
            rate_inner: 115_000_000,
            seek: 17_000_000,
            window: 2 << 20,
            protected: 0,
            ..Self::exos_x20()
        }
    }

    /// A 30 TB host-managed shingled disk.
    pub fn smr_30t() -> Self {
        Self {
            name: "smr-30t".into(),
            capacity: 30_000_000_000_000 / (256 << 20) * (256 << 20),
            rate_outer: 246_500_000,
            rate_inner: 120_000_000,
            settle: 2_000_000,
            window: 4 << 20,
            protected: 0,
            retry_ppm: 0,
            zones: Some(Zones { size: 256 << 20, reset: 312_000_000 }),
            ..Self::exos_x20()
        }
    }
}
