//! The rules of the engine, checked at the only place that counts: what the disks were asked, and what was answered.

// The lint's exception for tests covers test functions only, not the helpers they share.
#![allow(clippy::unwrap_used)]

mod abort;
mod durability;
mod exclusion;
mod faults;
mod medium;
mod model;

mod pieces;
mod rig;
