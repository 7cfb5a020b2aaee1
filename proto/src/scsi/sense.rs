//! Sense data (SPC-5 4.5).

/// Encoded sense data, fixed or descriptor format.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SenseData {
    bytes: [u8; Self::MAX],
    len: u8,
}

impl SenseData {
    /// Longest sense data made here.
    pub const MAX: usize = 32;

    /// The bytes of the SENSE DATA.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl std::fmt::Debug for SenseData {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:02x?}", self.as_bytes())
    }
}
