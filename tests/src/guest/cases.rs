//! The cases of `tests/interop/cases`: scripts for a guest, some with a server on this machine beside it.
//!
//! The comment at the top of a script may have these lines:
//!
//! - `# server: iscsi` or `# server: nvme`: a server runs on this machine, with one volume, and discovery names the address
//!   by which the guest reaches it: `PORTAL`. The others run a server of their own in the guest.
//! - `# limit: SECONDS`: other than [`LIMIT`], boot included.
//!
//! In the script's environment: `PLATTER`, the server's binary; `WORK`, a folder of this run; `PATIENCE`, how many times
//! longer than on hardware things may take; `TARGET` and `SUBSYSTEM`, names to use; and `PORTAL`. Exit code 0 is passed, 77
//! is skipped and the last line said why; everything else is failed.

use super::{Guest, Job, NO_ANSWER, TIME_LIMIT};
use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a case may take unless it says otherwise.
pub const LIMIT: Duration = Duration::from_secs(120);

const SKIPPED: i32 = 77;
const TARGET: &str = "iqn.2026-11.org.platter:interop";
const SUBSYSTEM: &str = "nqn.2026-11.org.platter:interop";
/// This machine's loopback, as the guest sees it.
const GATEWAY: &str = "10.0.2.2";
/// How long the server beside a guest may take to listen.
const PATIENCE: Duration = Duration::from_secs(30);
const RETRY: Duration = Duration::from_millis(20);

/// One script.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Case {
    /// Its file's name without the ending.
    pub name: String,
    script: PathBuf,
    server: Option<Protocol>,
    limit: Duration,
}

/// How a case ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Everything it claims holds.
    Passed,
    /// It cannot be run here.
    Skipped,
    /// Why not passed; its output says more.
    Failed(String),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Protocol {
    Iscsi,
    Nvme,
}

impl Case {
    /// All of them, by name.
    pub fn all(project: &Path) -> io::Result<Vec<Self>> {
        let mut cases = Vec::new();
        for entry in std::fs::read_dir(project.join("tests/interop/cases"))? {
            let script = entry?.path();
            if script.extension().is_some_and(|e| e == "sh") {
                cases.push(Self::read(&script)?);
            }
        }
        cases.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(cases)
    }

    /// Boots the guest and runs the script with this binary of the server.
    pub fn run(&self, guest: &Guest, project: &Path, platter: &Path) -> io::Result<Verdict> {
        let parent = project.join("target/interop");
        std::fs::create_dir_all(&parent)?;
        let work = tempfile::Builder::new().prefix(&format!("{}-", self.name)).tempdir_in(&parent)?;
        let binary = work.path().join("platter");
        // Inside the project, wherever it was built.
        std::fs::hard_link(platter, &binary).or_else(|_| std::fs::copy(platter, &binary).map(drop))?;

        let server = self.server.map(|protocol| HostServer::start(protocol, &binary, work.path())).transpose()?;
        let mut job = Job { project, work: work.path(), script: &self.script, variables: &[], limit: self.limit };
        let portal = server.as_ref().map_or(String::new(), HostServer::seen_by_guest);
        let variables = [
            ("PLATTER", job.seen(&binary)),
            ("WORK", job.seen(work.path())),
            ("PATIENCE", guest.slowness().to_string()),
            ("TARGET", TARGET.to_owned()),
            ("SUBSYSTEM", SUBSYSTEM.to_owned()),
            ("PORTAL", portal),
        ]
        .map(|(name, value)| (name.to_owned(), value));
        job.variables = &variables;
        let verdict = match guest.run(&job)? {
            0 => Verdict::Passed,
            SKIPPED => Verdict::Skipped,
            TIME_LIMIT => Verdict::Failed("the time limit came first".to_owned()),
            NO_ANSWER => Verdict::Failed("the guest ended without an answer".to_owned()),
            code => Verdict::Failed(format!("exit code {code}")),
        };
        Ok(match server.map(HostServer::stop) {
            Some(Err(why)) if verdict == Verdict::Passed => Verdict::Failed(why),
            _ => verdict,
        })
    }

    fn read(script: &Path) -> io::Result<Self> {
        let text = std::fs::read_to_string(script)?;
        let name = script.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let wrong = |what: &str| io::Error::other(format!("{}: {what}", script.display()));
        let mut case = Self { name, script: script.to_owned(), server: None, limit: LIMIT };
        for line in text.lines().map_while(|line| line.strip_prefix('#')) {
            match line.trim().split_once(": ") {
                Some(("server", "iscsi")) => case.server = Some(Protocol::Iscsi),
                Some(("server", "nvme")) => case.server = Some(Protocol::Nvme),
                Some(("server", _)) => return Err(wrong("no such server")),
                Some(("limit", seconds)) => {
                    let seconds = seconds.parse().map_err(|_| wrong("a limit is a number of seconds"))?;
                    case.limit = Duration::from_secs(seconds);
                }
                _ => {}
            }
        }
        Ok(case)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed => f.write_str("passed"),
            Self::Skipped => f.write_str("SKIPPED"),
            Self::Failed(why) => write!(f, "FAILED: {why}"),
        }
    }
}

/// A server on this machine's loopback; killed if it is dropped before it is stopped.
struct HostServer {
    child: Child,
    port: u16,
    log: PathBuf,
}

impl HostServer {
    fn start(protocol: Protocol, binary: &Path, work: &Path) -> io::Result<Self> {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let (kind, export) = match protocol {
            Protocol::Iscsi => ("", format!("iscsi: {{ target: '{TARGET}', lun: 0 }}")),
            Protocol::Nvme => ("protocol: nvme, ", format!("nvme: {{ subsystem: '{SUBSYSTEM}' }}")),
        };
        let folder = work.display();
        let config = work.join("host.yaml");
        let text = format!(
            "state: {folder}/state
admin: {folder}/admin.sock
portals: {{ p: {{ {kind}listen: '127.0.0.1:{port}', advertise: '{GATEWAY}:{port}' }} }}
disks: {{ d: {{ path: {folder}/disk.img, size: 1GiB }} }}
volumes: {{ v: {{ disk: d, hosts: {{ allow_any: true }}, {export} }} }}
"
        );
        std::fs::write(&config, text)?;
        let log = work.join("host.log");
        let mut command = Command::new(binary);
        command
            .arg("serve")
            .arg(&config)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(&log)?);
        let mut server = Self { child: command.spawn()?, port, log };
        server.wait_until_it_listens()?;
        Ok(server)
    }

    fn seen_by_guest(&self) -> String {
        format!("{GATEWAY}:{}", self.port)
    }

    /// SIGTERM; an error if it is not a clean stop.
    fn stop(mut self) -> Result<(), String> {
        let pid = i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw);
        let sent = rustix::process::kill_process(pid.expect("a child has a process id"), rustix::process::Signal::TERM);
        match sent.map_err(io::Error::from).and_then(|()| super::wait_or_kill(&mut self.child, PATIENCE)) {
            Ok(Some(status)) if status.success() => Ok(()),
            ended => Err(format!("the server did not stop cleanly: {ended:?}\n{}", self.log())),
        }
    }

    fn wait_until_it_listens(&mut self) -> io::Result<()> {
        let started = Instant::now();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        while TcpStream::connect_timeout(&address, PATIENCE).is_err() {
            if self.child.try_wait()?.is_some() || started.elapsed() > PATIENCE {
                return Err(io::Error::other(format!("the server does not listen:\n{}", self.log())));
            }
            std::thread::sleep(RETRY);
        }
        Ok(())
    }

    fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for HostServer {
    fn drop(&mut self) {
        // Only an error if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> io::Result<Case> {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("some-case.sh");
        std::fs::write(&script, text).unwrap();
        Case::read(&script)
    }

    #[test]
    fn the_comment_at_the_top_says_what_a_case_needs() {
        let case = read("# Title: and more.\n# server: nvme\n# limit: 200\n. x\n# server: iscsi\n").unwrap();
        assert_eq!((case.name.as_str(), case.server), ("some-case", Some(Protocol::Nvme)));
        assert_eq!(case.limit, Duration::from_secs(200));
        let case = read("# Title\n. x\n").unwrap();
        assert_eq!((case.server, case.limit), (None, LIMIT));
    }

    #[test]
    fn a_wrong_line_at_the_top_is_told() {
        assert!(read("# server: ftp\n").is_err());
        assert!(read("# limit: long\n").is_err());
    }

    #[test]
    fn every_case_of_the_project_can_be_read() {
        let project = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        assert!(!Case::all(project).unwrap().is_empty());
    }
}
