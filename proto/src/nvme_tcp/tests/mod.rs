//! The node against hosts that follow the specification, and against those that do not. A test that begins with a letter
//! and a number is the row of the catalogue of hostile inputs by that name.

mod connecting;
mod data;
mod framing;
mod fuzz;
mod life;
mod rig;
mod wire;
