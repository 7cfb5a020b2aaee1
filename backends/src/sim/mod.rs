//! A simulated spinning disk: time and place of every access, a volatile buffer, and what a power cut leaves.
//!
//! [`Drive`] is driven by its owner's clock, virtual or real. Its [`Profile`] holds the figures of one drive. All numbers that
//! come from it are simulated.

mod drive;
mod geometry;
mod profile;
mod random;
#[cfg(test)]
mod tests;
mod zones;

pub use drive::{Command, CommandId, Drive, DriveStats, Lies, Outcome, SECTOR};
pub use profile::{Profile, Zones};
pub use zones::ZoneError;
