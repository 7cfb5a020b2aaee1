//! The `platter` command.

use clap::Parser;

fn main() -> std::process::ExitCode {
    platter::run(platter::Cli::parse())
}
