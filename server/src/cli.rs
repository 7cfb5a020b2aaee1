//! The command line.

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

/// An iSCSI target server for spinning disks: tells initiators the truth about durability and makes it cheap.
#[derive(Parser, Debug)]
#[command(version, about)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Serve what a configuration describes, in the foreground, until SIGTERM or SIGINT.
    Serve(Serve),
    /// Check a configuration without serving it. Exit code 0: it can be served; 2: it is wrong.
    Check {
        /// The YAML file.
        config: PathBuf,
    },
    /// Show sessions, volumes and disks of a running server.
    Status {
        /// The admin socket, as configured.
        #[arg(long, default_value = "/run/platter/admin.sock")]
        admin: PathBuf,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Clear the fault of a disk whose flush failed. What was acknowledged before the failure may be lost: check first.
    ClearFault {
        /// The disk's name in the configuration.
        disk: String,
        /// The admin socket, as configured.
        #[arg(long, default_value = "/run/platter/admin.sock")]
        admin: PathBuf,
    },
}

/// Options of `serve`.
#[derive(Args, Debug)]
pub struct Serve {
    /// The YAML file.
    #[arg(required_unless_present = "demo", conflicts_with = "demo")]
    pub config: Option<PathBuf>,
    /// Export a sparse file below the working folder on 127.0.0.1 and print the lines to try.
    #[arg(long)]
    pub demo: bool,
    /// How log lines look.
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,
}

/// How log lines look.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}
