//! One SCSI target device: SAM-5, SPC-5, SBC-4, whatever transport carries it.
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
//! Where to look: `opcodes.rs` is the table of commands; each command lives in the module its row names.

mod command;
mod device;
mod lun;
mod sense;
mod task_set;

pub use command::{Attribute, Command, DataIn, Reply, ScsiStatus, Step};
pub use device::{Device, DeviceConfig, Identity, NexusId, ResetScope, Task, UnitConfig};
pub use sense::SenseData;
pub use task_set::{Entered, MAX_TASKS, TaskSet};
