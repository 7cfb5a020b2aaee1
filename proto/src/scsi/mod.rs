//! One SCSI target device: SAM-5, SPC-4, SBC-3, whatever transport carries it.
//!
//! [`Device`] is driven one command at a time and never waits:
//!
//! ```text
//!   start(command) --> Receive{buf, len} --> [transport fills buf] --> received --+
//!         |                                                                       |
//!         +----------> Submit{volume, op} --> [engine] --> completed(status) <----+   as often as the command needs
//!         |                                                                       |
//!         +----------> Reply(status, sense, data, residual figures) <-------------+   exactly once, the task is over
//! ```
//!
//! The transport keeps the [`Task`] between the calls. A command that must end without a reply (aborted, connection lost)
//! is given to [`Device::abandon`] once no op of it is outstanding. Which commands may start at all while others run is
//! decided before, by the [`TaskSet`] of the logical unit.
//!
//! Where to look: `opcodes.rs` is the table of commands, one row each, and names the function that handles it; `device.rs`
//! decides whether a command may run; `task.rs` says how a command of several steps goes on; `sense.rs` turns the end of an
//! op into a status.
//!
//! Limits: one task holds at most two buffers, together 16 MiB (ORWRITE of the largest length); at the budget of the pool a
//! command is answered TASK SET FULL.

mod attention;
mod capacity;
mod cdb;
mod command;
mod device;
mod inquiry;
mod lun;
mod medium;
mod mode;
mod mode_select;
mod opcodes;
mod report;
mod reserve;
mod rw;
mod same;
mod sense;
mod task;
mod task_set;
mod unit;
mod unmap;
mod verify;
mod vpd;

#[cfg(test)]
mod tests;

pub use command::{Attribute, Command, DataIn, Reply, ScsiStatus, Step};
pub use device::{Device, DeviceConfig, NexusId, ResetScope};
pub use sense::SenseData;
pub use task::Task;
pub use task_set::{Entered, MAX_TASKS, TaskSet};
pub use unit::{Identity, UnitConfig};
