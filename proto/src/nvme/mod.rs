//! NVM subsystems and their controllers (NVMe base 2.1, NVM command set), above any transport.
//!
//! [`Target`] is all of it; its documentation says how it is driven.

mod config;
mod event;
mod status;
mod target;

pub use config::{
    AnaGroup, AnaState, DirectoryEntry, Hosts, Limits, NamespaceConfig, PortalInfo, SubsystemConfig, TargetConfig,
};
pub use event::{Event, EventKind};
pub use status::Status;
pub use target::{ControllerInfo, Output, Overrun, PendingConnect, QueueId, ReplyData, Target, TaskId, Transfer};

/// NQN of every discovery subsystem.
pub const DISCOVERY_NQN: &str = "nqn.2014-08.org.nvmexpress.discovery";
