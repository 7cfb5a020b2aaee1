//! NVM subsystems and their controllers (NVMe base 2.1, NVM command set), above any transport.
//!
//! [`Target`] is all of it; its documentation says how it is driven.

mod admin;
mod changes;
mod compare;
mod config;
mod connect;
mod controller;
mod copy;
mod data;
mod discovery;
mod drive;
mod dsm;
mod event;
mod events;
mod fabrics;
mod features;
mod fused;
mod identify;
mod identify_controller;
mod identify_namespace;
mod io;
mod logs;
mod property;
mod queue;
mod sqe;
mod status;
mod subsystem;
mod target;
mod task;
mod timers;
mod walk;

#[cfg(test)]
mod tests;

pub use crate::front::Peers as Hosts;
pub use config::{
    AnaGroup, AnaState, DirectoryEntry, Limits, NamespaceConfig, PortalInfo, SubsystemConfig, TargetConfig,
};
pub use event::{Event, EventKind};
pub use status::Status;
pub use target::{ControllerInfo, Output, Overrun, PendingConnect, QueueId, ReplyData, Target, TaskId, Transfer};

/// NQN of every discovery subsystem.
pub const DISCOVERY_NQN: &str = "nqn.2014-08.org.nvmexpress.discovery";
