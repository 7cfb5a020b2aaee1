//! Kills the server under load again and again, and prints what was lost.
//!
//! `kill-rounds [--rounds N] [--seed S]`. Exit code 0 if nothing was wrong, 1 otherwise.

#![allow(clippy::print_stdout, clippy::print_stderr)]

use platter_tests::kill;
use std::process::ExitCode;

fn main() -> ExitCode {
    let (mut rounds, mut seed) = (50, u64::from(std::process::id()));
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let value = arguments.next().and_then(|v| v.parse().ok());
        match (argument.as_str(), value) {
            ("--rounds", Some(value)) => rounds = value,
            ("--seed", Some(value)) => seed = value,
            _ => {
                eprintln!("usage: kill-rounds [--rounds N] [--seed S]");
                return ExitCode::from(2);
            }
        }
    }
    println!("seed                        {seed}");
    let report = kill::run(rounds, seed, |_, _| {});
    println!("{report}");
    if report.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
