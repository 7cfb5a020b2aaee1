//! A Linux guest with real initiators: boots, runs one script as root, passes its output on, and hands back its exit code.
//!
//! There are two ways, which look the same to the script:
//!
//! - QEMU with a kernel and an initramfs made of Debian's packages ([`image`]): on KVM where it works, else emulated.
//! - A runner program for a User Mode Linux kernel, named by the environment variable [`UML_VARIABLE`]. It is called as
//!   `RUNNER -t SECONDS -d FOLDER -e NAME=VALUE... SCRIPT`, and does what is said of a [`Job`].
//!
//! Driven by [`Guest::find`], once, and then any number of [`Guest::run`], each from a clean boot.

pub mod cases;
mod image;
mod qemu;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

/// The environment variable that names a runner of User Mode Linux.
pub const UML_VARIABLE: &str = "PLATTER_GUEST_UML";
/// Exit code of a job that was ended by its time limit.
pub const TIME_LIMIT: i32 = 124;
/// Exit code of a job whose guest ended without a word from the script.
pub const NO_ANSWER: i32 = 125;

/// How often a child is looked at.
const POLL: Duration = Duration::from_millis(20);
/// A runner that has a time limit of its own gets this much longer.
const RUNNER_GRACE: Duration = Duration::from_secs(30);

/// A way to boot a guest.
#[derive(Debug)]
pub enum Guest {
    /// A runner program and its kernel.
    Uml {
        /// The program.
        runner: PathBuf,
    },
    /// A virtual machine.
    Qemu(qemu::Machine),
}

/// One script to run. In the guest, `project` is the folder `/host`, this machine's loopback is 10.0.2.2, `variables` are
/// in the environment, and `script` runs as root in `/host`.
#[derive(Debug)]
pub struct Job<'a> {
    /// The folder that the guest sees, readable and writable.
    pub project: &'a Path,
    /// A folder of this job alone, below `project`.
    pub work: &'a Path,
    /// The script, below `project`, for bash.
    pub script: &'a Path,
    /// Environment of the script.
    pub variables: &'a [(String, String)],
    /// The whole of the job, boot included; multiplied by [`Guest::slowness`].
    pub limit: Duration,
}

/// Why no guest can be had here.
#[derive(Debug)]
pub struct Unavailable(String);

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Guest {
    /// The runner that the environment names, or else QEMU; makes QEMU's image at the first call on a machine.
    pub fn find() -> Result<Self, Unavailable> {
        if let Some(runner) = std::env::var_os(UML_VARIABLE).filter(|r| !r.is_empty()).map(PathBuf::from) {
            return if runner.is_file() {
                Ok(Self::Uml { runner })
            } else {
                Err(Unavailable(format!("{UML_VARIABLE} names {}, which is no file", runner.display())))
            };
        }
        qemu::Machine::find().map(Self::Qemu)
    }

    /// How much longer than on hardware everything may take, as a factor.
    pub fn slowness(&self) -> u32 {
        match self {
            Self::Uml { .. } => 1,
            Self::Qemu(machine) => machine.slowness(),
        }
    }

    /// Boots, runs the script with its output on this process's standard output, and returns its exit code, or
    /// [`TIME_LIMIT`], or [`NO_ANSWER`].
    pub fn run(&self, job: &Job<'_>) -> io::Result<i32> {
        let limit = job.limit * self.slowness();
        match self {
            Self::Uml { runner } => {
                let mut command = Command::new(runner);
                command.arg("-t").arg(limit.as_secs().to_string()).arg("-d").arg(job.project);
                for (name, value) in job.variables {
                    command.arg("-e").arg(format!("{name}={value}"));
                }
                let ended = wait_or_kill(&mut command.arg(job.script).spawn()?, limit + RUNNER_GRACE)?;
                Ok(ended.map_or(TIME_LIMIT, |status| status.code().unwrap_or(NO_ANSWER)))
            }
            Self::Qemu(machine) => machine.run(job, limit),
        }
    }
}

impl fmt::Display for Guest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uml { runner } => write!(f, "User Mode Linux by {}", runner.display()),
            Self::Qemu(machine) => write!(f, "{machine}"),
        }
    }
}

impl Job<'_> {
    /// Where the guest sees a file of the project.
    pub fn seen(&self, file: &Path) -> String {
        let below = file.strip_prefix(self.project).expect("the guest is only shown the project folder");
        format!("/host/{}", below.display())
    }
}

/// The child's end; None if the limit came first and the child was killed.
fn wait_or_kill(child: &mut Child, limit: Duration) -> io::Result<Option<ExitStatus>> {
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if started.elapsed() > limit {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(POLL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_the_project_is_below_host() {
        let (project, work) = (Path::new("/a/project"), Path::new("/a/project/target/w"));
        let job = Job { project, work, script: work, variables: &[], limit: Duration::ZERO };
        assert_eq!(job.seen(Path::new("/a/project/tests/x.sh")), "/host/tests/x.sh");
    }

    #[test]
    fn a_child_that_outlives_its_limit_is_killed() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        assert!(wait_or_kill(&mut child, Duration::ZERO).unwrap().is_none());
        assert!(child.try_wait().unwrap().is_some_and(|status| !status.success()));
    }
}
