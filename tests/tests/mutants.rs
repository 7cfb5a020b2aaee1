//! Every planted bug in `mutants/mutants.rs` is caught by the simulator, and the engine without one is not.
//!
//! The engine and the simulator are copied into a workspace of their own under cargo's target folder. Each mutant is built
//! there, offline and with the same lock file, and the simulator is run on it. The engine's own debug assertions are off:
//! what counts is what can be seen from outside.
#![allow(clippy::print_stdout, reason = "shown with --nocapture: who caught what")]

#[path = "../mutants/mutants.rs"]
mod mutants;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};

use mutants::{Edit, MUTANTS, Mutant};

/// Seeds that the engine as it is has to pass. It also has to pass each seed at which a mutant is caught.
const SEEDS_WITHOUT_MUTANT: u64 = 500;

/// Mutants built at the same time; each worker has a workspace of its own.
const WORKERS: usize = 2;

#[test]
fn every_planted_bug_is_caught_and_the_engine_without_one_is_not() {
    let next = AtomicUsize::new(0);
    let mut wrong: Vec<String> = Vec::new();
    std::thread::scope(|scope| {
        let next = &next;
        let workers: Vec<_> = (0..WORKERS).map(|number| scope.spawn(move || work(number, next))).collect();
        for worker in workers {
            wrong.extend(worker.join().expect("a worker reports what is wrong"));
        }
    });
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn every_text_to_replace_occurs_exactly_once() {
    let wrong: Vec<String> = MUTANTS
        .iter()
        .flat_map(|mutant| mutant.edits)
        .filter_map(|edit| plant(edit, &read(&root().join("engine/src").join(edit.file))).err())
        .collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n\n"));
}

/// Takes mutants until there are none left. Gives what went wrong.
fn work(worker: usize, next: &AtomicUsize) -> Vec<String> {
    let workspace = Workspace::new(worker);
    if let Err(what) = workspace.check_without_mutant() {
        return vec![format!("the engine as it is: {what}")];
    }
    let mut wrong = Vec::new();
    while let Some(mutant) = MUTANTS.get(next.fetch_add(1, Ordering::Relaxed)) {
        match workspace.check(mutant) {
            Ok(said) => println!("{}\n    {said}", mutant.name),
            Err(what) => wrong.push(format!("{}: {what}", mutant.name)),
        }
    }
    wrong
}

/// A copy of the engine and the simulator.
struct Workspace(PathBuf);

impl Workspace {
    fn new(worker: usize) -> Self {
        let workspace = Self(Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("mutants-{worker}")));
        for folder in ["engine/src", "engine/block/src", "tests/src/sim"] {
            let _ = fs::remove_dir_all(workspace.0.join(folder));
        }
        let manifest = read(&root().join("Cargo.toml"));
        let lines = manifest.lines().map(|line| match line.split(' ').next() {
            Some("members") => "members = [\"engine\", \"engine/block\", \"tests\"]",
            Some("default-members") => "default-members = [\"tests\"]",
            _ => line,
        });
        workspace.write("Cargo.toml", &lines.collect::<Vec<_>>().join("\n"));
        for file in ["Cargo.lock", "engine/Cargo.toml", "engine/block/Cargo.toml", "tests/src/bin/sim.rs"] {
            workspace.write(file, &read(&root().join(file)));
        }
        for folder in ["engine/block/src", "tests/src/sim"] {
            for (name, text) in sources(folder) {
                workspace.write(&format!("{folder}/{name}"), &text);
            }
        }
        workspace.write("tests/src/lib.rs", "//! The simulator alone.\n\npub mod sim;\n");
        workspace.write("tests/Cargo.toml", SIMULATOR_MANIFEST);
        workspace
    }

    /// Builds the engine as it is and runs the simulator: no violation. The program is kept to compare with.
    fn check_without_mutant(&self) -> Result<(), String> {
        self.build(&[])?;
        // By a process of its own: a descriptor open for writing in this one could be inherited by a program that the other
        // worker starts at that moment, and the copy would then be "busy".
        let copied = Command::new("cp").arg(self.built()).arg(self.kept()).status();
        if !copied.is_ok_and(|status| status.success()) {
            return Err("the program cannot be copied".to_owned());
        }
        let ran = simulate(&self.kept(), &["--seeds", &SEEDS_WITHOUT_MUTANT.to_string()])?;
        if ran.status.success() { Ok(()) } else { Err(said(&ran)) }
    }

    /// Plants a bug, builds and runs the simulator: a violation, at a seed that the engine as it is passes.
    fn check(&self, mutant: &Mutant) -> Result<String, String> {
        self.build(mutant.edits)?;
        let ran = simulate(&self.built(), &["--stop", "--seeds", &mutant.seeds.to_string()])?;
        match ran.status.code() {
            Some(1) => {}
            Some(0) => return Err(format!("is not caught within {} seeds", mutant.seeds)),
            other => return Err(format!("the simulator ends with {other:?}: {}", said(&ran))),
        }
        let violation = said(&ran).lines().next().unwrap_or_default().to_owned();
        let seed = violation.strip_prefix("seed ").and_then(|rest| rest.split(':').next());
        let seed = seed.ok_or_else(|| format!("names no seed: {violation}"))?;
        let without = simulate(&self.kept(), &["--seed", seed])?;
        if without.status.success() { Ok(violation) } else { Err(format!("seed {seed} fails without it too")) }
    }

    fn build(&self, edits: &[Edit]) -> Result<(), String> {
        for (name, mut text) in sources("engine/src") {
            for edit in edits.iter().filter(|e| e.file == name) {
                text = plant(edit, &text)?;
            }
            self.write(&format!("engine/src/{name}"), &text);
        }
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let built = Command::new(cargo)
            .args(["build", "--quiet", "--offline", "--bin", "sim", "--target-dir"])
            .arg(self.0.join("target"))
            .current_dir(&self.0)
            .env("RUSTFLAGS", "-Awarnings")
            .env("CARGO_PROFILE_DEV_OPT_LEVEL", "0") // building takes longer than running
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            .env("CARGO_PROFILE_DEV_DEBUG_ASSERTIONS", "false")
            .env("CARGO_INCREMENTAL", "0")
            .output()
            .map_err(|e| format!("cargo does not run: {e}"))?;
        if built.status.success() {
            return Ok(());
        }
        Err(format!("does not build:\n{}", String::from_utf8_lossy(&built.stderr)))
    }

    fn built(&self) -> PathBuf {
        self.0.join("target/debug/sim")
    }

    fn kept(&self) -> PathBuf {
        self.0.join("target/sim-without-mutant")
    }

    /// Leaves a file alone that is as it should be, so that cargo builds no more than it must.
    fn write(&self, file: &str, text: &str) {
        let path = self.0.join(file);
        if fs::read_to_string(&path).is_ok_and(|there| there == text) {
            return;
        }
        fs::create_dir_all(path.parent().expect("a file lies in a folder")).expect("the target folder is writable");
        fs::write(&path, text).expect("the target folder is writable");
    }
}

const SIMULATOR_MANIFEST: &str = r#"[package]
name = "platter-tests"
version.workspace = true
edition.workspace = true

[dependencies]
platter-block.workspace = true
platter-engine.workspace = true
"#;

fn simulate(program: &Path, arguments: &[&str]) -> Result<Output, String> {
    let ran = Command::new(program).args(["--threads", "1"]).args(arguments).output();
    ran.map_err(|e| format!("the simulator does not run: {e}"))
}

fn said(ran: &Output) -> String {
    String::from_utf8_lossy(&ran.stdout).into_owned()
}

/// The text with the edit made.
fn plant(edit: &Edit, text: &str) -> Result<String, String> {
    let Edit { file, old, new } = edit;
    match text.matches(old).count() {
        1 => Ok(text.replacen(old, new, 1)),
        found => Err(format!("found {found} times in engine/src/{file}, must be once:\n{old}")),
    }
}

/// Name and text of each source file in a folder of the project.
fn sources(folder: &str) -> Vec<(String, String)> {
    let files = fs::read_dir(root().join(folder)).expect("the folder exists");
    let files = files.map(|file| file.expect("the folder is readable").path());
    let named = |path: PathBuf| {
        let name = path.file_name()?.to_str()?.to_owned();
        name.ends_with(".rs").then(|| (name, read(&path)))
    };
    files.filter_map(named).collect()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("this crate lies in the workspace").to_path_buf()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}
