//! Runs cases of `tests/interop/cases`, each in a freshly booted Linux with real initiators.
//!
//! `interop NAME...|all`. Exit code 0 if nothing failed, 1 if something did, 2 for a wrong name, 77 if nothing could be run.
//! `PLATTER_BIN` names the server, `target/release/platter` unless set. See `tests/interop/README.md`.

#![allow(clippy::print_stdout, clippy::print_stderr)]

use platter_tests::guest::Guest;
use platter_tests::guest::cases::{Case, Verdict};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

fn main() -> ExitCode {
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests are a folder of the project");
    let cases = match chosen(project) {
        Ok(cases) => cases,
        Err(why) => {
            eprintln!("{why}");
            return ExitCode::from(2);
        }
    };
    let platter = std::env::var_os("PLATTER_BIN").map_or_else(|| project.join("target/release/platter"), PathBuf::from);
    if !platter.is_file() {
        eprintln!("{} is not there: cargo build --release -p platter, or set PLATTER_BIN", platter.display());
        return ExitCode::FAILURE;
    }
    let guest = match Guest::find() {
        Ok(guest) => guest,
        Err(why) => {
            println!("no guest: {why}");
            return ExitCode::from(77);
        }
    };
    println!("guest: {guest}");

    let mut lines = Vec::new();
    let (mut passed, mut skipped, mut failed) = (0, 0, 0);
    for case in cases {
        println!("--> {}", case.name);
        let started = Instant::now();
        let verdict = case.run(&guest, project, &platter).unwrap_or_else(|error| Verdict::Failed(error.to_string()));
        match verdict {
            Verdict::Passed => passed += 1,
            Verdict::Skipped => skipped += 1,
            Verdict::Failed(_) => failed += 1,
        }
        let line = format!("{:24} {:6.1} s  {verdict}", case.name, started.elapsed().as_secs_f64());
        println!("<-- {line}");
        lines.push(line);
    }
    println!("\n{}\n{passed} passed, {failed} failed, {skipped} skipped", lines.join("\n"));
    match (passed, failed) {
        (0, 0) => ExitCode::from(77),
        (_, 0) => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

/// The cases that the command line names.
fn chosen(project: &Path) -> Result<Vec<Case>, String> {
    let all = Case::all(project).map_err(|error| error.to_string())?;
    let names: Vec<String> = std::env::args().skip(1).collect();
    let known = || all.iter().map(|case| case.name.as_str()).collect::<Vec<_>>().join(" ");
    if names.is_empty() {
        return Err(format!("usage: interop NAME...|all\ncases: {}", known()));
    }
    if names == ["all"] {
        return Ok(all);
    }
    let find = |name: &String| {
        let case = all.iter().find(|case| case.name == *name).cloned();
        case.ok_or_else(|| format!("there is no case {name}; cases: {}", known()))
    };
    names.iter().map(find).collect()
}
