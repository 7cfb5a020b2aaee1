//! Tests of the whole node: an initiator on one side, a disk in memory on the other. They assert what the wire and the disk
//! saw. Names start with the row of the catalogue of hostile inputs that they check, where there is one.

mod rig;
mod wire;

mod data;
mod discovery;
mod framing;
mod fuzz;
mod golden;
mod login;
mod numbering;
mod sessions;
mod task_management;
mod timers;
