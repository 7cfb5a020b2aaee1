//! The Platter server: one binary that exports disks and files as iSCSI targets.
//!
//! | file | idea |
//! |---|---|
//! | `cli.rs`, `run.rs` | the command line and what each command does |
//! | `config/` | the YAML file, and every way it can be wrong |
//! | `serve.rs` | from a plan to a running server and back down |
//! | `groups.rs` | which disks, volumes and targets share a thread |
//! | `shard/` | one thread: sockets, protocol, engine, disks |
//! | `state.rs` | what survives a restart |
//! | `admin.rs`, `status.rs` | what an operator asks |

mod admin;
mod cli;
mod config;
mod demo;
mod groups;
mod run;
mod serve;
mod shard;
mod state;
mod status;

pub use cli::{Cli, Command, LogFormat, Serve};
pub use config::ConfigError;
pub use run::{run, start_for_tests};
pub use serve::{BackendHook, Server, StartError, StateFailure};
pub use status::{Asked, DiskStatus, SessionStatus, ShardStatus, Status, VolumeStatus};
