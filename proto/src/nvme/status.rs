//! The Status field of a completion queue entry.

/// SCT, SC, More and DNR as in CQE Dword 3 bits 31:17, so bit 0 is the lowest bit of SC (NVMe base, Status Field).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Status(pub u16);

impl Status {
    /// 0/00h.
    pub const SUCCESS: Self = Self(0);

    /// `sct` 0 to 7, `sc` as the specification numbers it; DNR set.
    pub const fn new(sct: u8, sc: u8) -> Self {
        Self(1 << 14 | (sct as u16) << 8 | sc as u16)
    }

    /// The same without Do Not Retry.
    #[must_use]
    pub const fn retryable(self) -> Self {
        Self(self.0 & !(1 << 14))
    }
}
