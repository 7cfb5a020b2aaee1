//! The built `platter` binary as a child process: started on a free port with its own folder, asked through its own command
//! line, killed on drop.

use crate::process_use;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// How long a server may take to start, to stop or to log what is waited for.
const PATIENCE: Duration = Duration::from_secs(30);
/// Pause between two tries to connect to a server that is starting.
const RETRY: Duration = Duration::from_millis(5);
/// Log lines that are shown when a test fails.
const SHOWN_LINES: usize = 40;

/// What a server is started with: folder, port and configuration. A second server from the same setup finds the state and
/// the disks of the first.
#[derive(Debug)]
pub struct Setup {
    folder: tempfile::TempDir,
    address: SocketAddr,
    /// Words put before the binary, such as `taskset -c 0`.
    prefix: Vec<String>,
}

impl Setup {
    /// A fresh folder below the system's temporary folder, a free port, and this configuration. `body` holds the sections
    /// `disks` and `volumes`, and perhaps `backend` and others; `FOLDER` in it is replaced by the folder.
    pub fn new(body: &str) -> Self {
        // Built now, so that no session waits for the compiler later.
        binary();
        let folder =
            tempfile::Builder::new().prefix("platter-test-").tempdir().expect("a temporary folder can be made");
        let setup = Self { folder, address: free_address(), prefix: Vec::new() };
        setup.configure(body);
        setup
    }

    /// Replaces the configuration for the next start.
    pub fn configure(&self, body: &str) {
        let folder = self.folder.path().display().to_string();
        let text = format!(
            "state: {folder}/state\nadmin: {}\nportals: {{ main: {{ listen: '{}' }} }}\n{}",
            self.admin().display(),
            self.address,
            body.replace("FOLDER", &folder)
        );
        std::fs::write(self.config(), text).expect("the configuration can be written");
    }

    /// Puts words such as `taskset -c 0` before the binary.
    #[must_use]
    pub fn with_prefix(mut self, words: &[&str]) -> Self {
        self.prefix = words.iter().map(|w| (*w).to_owned()).collect();
        self
    }

    /// The folder of state, configuration and disk files. Removed with the setup.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Where the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The admin socket.
    pub fn admin(&self) -> PathBuf {
        self.folder.path().join("admin.sock")
    }

    /// The configuration file.
    pub fn config(&self) -> PathBuf {
        self.folder.path().join("platter.yaml")
    }

    /// Starts a server and waits until it listens.
    pub fn start(&self) -> ServerProcess {
        let words: Vec<String> = self.prefix.iter().cloned().chain([binary().display().to_string()]).collect();
        let mut child = Command::new(&words[0])
            .args(&words[1..])
            .arg("serve")
            .arg(self.config())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the platter binary can be started");
        let log = Log::follow(child.stderr.take().expect("stderr is piped"));
        let mut server = ServerProcess { child, log, address: self.address, admin: self.admin() };
        server.wait_until_it_listens();
        server
    }
}

/// A running server. Killed when dropped.
#[derive(Debug)]
pub struct ServerProcess {
    child: Child,
    log: Log,
    address: SocketAddr,
    admin: PathBuf,
}

impl ServerProcess {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its log.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// What `platter status --json` says.
    pub fn status(&self) -> serde_json::Value {
        status(&self.admin)
    }

    /// The counters of one disk.
    pub fn disk(&self, name: &str) -> DiskCounts {
        disk(&self.admin, name)
    }

    /// Open file descriptors, memory and CPU time so far.
    pub fn usage(&self) -> process_use::Usage {
        process_use::of(self.pid()).expect("the server runs")
    }

    /// SIGKILL, and waits for the end.
    pub fn kill(mut self) {
        self.end();
    }

    /// SIGTERM, and waits for the end.
    pub fn stop(mut self) -> ExitStatus {
        let pid = i32::try_from(self.pid()).ok().and_then(rustix::process::Pid::from_raw).expect("a child has a pid");
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("the child can be signalled");
        let started = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("the child can be waited for") {
                return status;
            }
            assert!(started.elapsed() < PATIENCE, "the server did not stop");
            std::thread::sleep(RETRY);
        }
    }

    fn wait_until_it_listens(&mut self) {
        let started = Instant::now();
        while TcpStream::connect_timeout(&self.address, PATIENCE).is_err() {
            if let Some(status) = self.child.try_wait().expect("the child can be waited for") {
                panic!("the server ended, {status}:\n{}", self.log.tail());
            }
            assert!(started.elapsed() < PATIENCE, "the server does not listen:\n{}", self.log.tail());
            std::thread::sleep(RETRY);
        }
    }

    fn end(&mut self) {
        // Only an error if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        self.end();
        if std::thread::panicking() {
            show(&self.log);
        }
    }
}

#[allow(clippy::print_stderr, reason = "the test harness shows it with the failure")]
fn show(log: &Log) {
    eprintln!("--- end of the server's log\n{}\n---", log.tail());
}

/// The lines that a server wrote to its standard error.
#[derive(Clone, Debug, Default)]
pub struct Log(Arc<LogState>);

#[derive(Debug, Default)]
struct LogState {
    lines: Mutex<Vec<String>>,
    grown: Condvar,
}

impl Log {
    fn follow(stderr: ChildStderr) -> Self {
        let log = Self::default();
        let writer = log.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                writer.lines().push(line);
                writer.0.grown.notify_all();
            }
        });
        log
    }

    /// How many lines there are: where to start looking for what comes later.
    pub fn len(&self) -> usize {
        self.lines().len()
    }

    /// Whether nothing was logged.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Waits for a line, `from` or later, that contains every one of `words`. Panics if none comes.
    pub fn wait_for(&self, from: usize, words: &[&str]) -> String {
        let wanted = |line: &&String| words.iter().all(|word| line.contains(word));
        let mut lines = self.lines();
        loop {
            if let Some(line) = lines[from..].iter().find(wanted) {
                return line.clone();
            }
            let (guard, timeout) = self.0.grown.wait_timeout(lines, PATIENCE).unwrap_or_else(PoisonError::into_inner);
            lines = guard;
            assert!(!timeout.timed_out(), "no log line with {words:?} in:\n{}", lines[from..].join("\n"));
        }
    }

    /// The last lines.
    pub fn tail(&self) -> String {
        let lines = self.lines();
        lines[lines.len().saturating_sub(SHOWN_LINES)..].join("\n")
    }

    fn lines(&self) -> MutexGuard<'_, Vec<String>> {
        self.0.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The counters of one disk, as `platter status --json` shows them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs, reason = "the names are those of the status document")]
pub struct DiskCounts {
    pub flush_requested: u64,
    pub flush_elided: u64,
    pub flush_joined: u64,
    pub flush_issued: u64,
    pub flush_refused: u64,
    pub flush_failed: u64,
    pub asked_flushes: u64,
    pub asked_writes: u64,
    pub asked_fua_writes: u64,
    pub asked_reads: u64,
}

impl DiskCounts {
    /// What happened since `earlier`. Checks on the way that every requested flush has exactly one fate, and that as many
    /// flushes were issued as the disk was asked for.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        for counts in [earlier, self] {
            let fates = counts.flush_elided + counts.flush_joined + counts.flush_issued + counts.flush_refused;
            assert_eq!(counts.flush_requested, fates, "requested = elided + joined + issued + refused: {counts:?}");
            assert_eq!(
                counts.flush_issued, counts.asked_flushes,
                "issued by the engine = asked of the disk: {counts:?}"
            );
        }
        Self {
            flush_requested: self.flush_requested - earlier.flush_requested,
            flush_elided: self.flush_elided - earlier.flush_elided,
            flush_joined: self.flush_joined - earlier.flush_joined,
            flush_issued: self.flush_issued - earlier.flush_issued,
            flush_refused: self.flush_refused - earlier.flush_refused,
            flush_failed: self.flush_failed - earlier.flush_failed,
            asked_flushes: self.asked_flushes - earlier.asked_flushes,
            asked_writes: self.asked_writes - earlier.asked_writes,
            asked_fua_writes: self.asked_fua_writes - earlier.asked_fua_writes,
            asked_reads: self.asked_reads - earlier.asked_reads,
        }
    }
}

/// What `platter status --json` says of the server behind this admin socket.
pub fn status(admin: &Path) -> serde_json::Value {
    let output = platter(&["status", "--json", "--admin", &admin.display().to_string()]);
    assert!(output.status.success(), "status: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("status --json prints JSON")
}

/// The status entry of one disk.
pub fn disk_status(admin: &Path, name: &str) -> serde_json::Value {
    let status = status(admin);
    let shards = status["shards"].as_array().expect("the status has shards");
    let mut disks = shards.iter().flat_map(|s| s["disks"].as_array().expect("a shard has disks"));
    disks.find(|d| d["name"] == name).unwrap_or_else(|| panic!("no disk {name} in {status}")).clone()
}

/// The counters of one disk of the server behind this admin socket.
pub fn disk(admin: &Path, name: &str) -> DiskCounts {
    let disk = disk_status(admin, name);
    let number = |value: &serde_json::Value| value.as_u64().unwrap_or_else(|| panic!("a number is missing in {disk}"));
    let asked = &disk["asked"];
    DiskCounts {
        flush_requested: number(&disk["flush_requested"]),
        flush_elided: number(&disk["flush_elided"]),
        flush_joined: number(&disk["flush_joined"]),
        flush_issued: number(&disk["flush_issued"]),
        flush_refused: number(&disk["flush_refused"]),
        flush_failed: number(&disk["flush_failed"]),
        asked_flushes: number(&asked["flushes"]),
        asked_writes: number(&asked["writes"]),
        asked_fua_writes: number(&asked["fua_writes"]),
        asked_reads: number(&asked["reads"]),
    }
}

/// Runs `platter` with these arguments to its end.
pub fn platter(arguments: &[&str]) -> Output {
    Command::new(binary()).args(arguments).output().expect("the platter binary can be run")
}

/// The binary under test: what `PLATTER_BIN` names, or else this workspace's, built in the profile of the caller.
pub fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| std::env::var_os("PLATTER_BIN").map_or_else(build, PathBuf::from))
}

fn build() -> PathBuf {
    let profile = if cfg!(debug_assertions) { "debug" } else { "release" };
    let this = std::env::current_exe().expect("a program knows its path");
    let folder = this.ancestors().find(|a| a.ends_with(profile)).expect("cargo built this into its target folder");
    let target = folder.parent().expect("the profile's folder is inside the target folder");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--quiet", "-p", "platter", "--bin", "platter", "--manifest-path"]);
    cargo.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml")).arg("--target-dir").arg(target);
    if profile == "release" {
        cargo.arg("--release");
    }
    assert!(cargo.status().expect("cargo can be run").success(), "the platter binary does not build");
    folder.join("platter")
}

/// A loopback address that nothing listens on. Below the range that the kernel gives to outgoing connections, so that a
/// server that is started again finds its port free.
pub fn free_address() -> SocketAddr {
    const FIRST: u16 = 20_000;
    const PORTS: u16 = 12_000;
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let start = (std::process::id() % u32::from(PORTS)) as u16;
    for _ in 0..PORTS {
        let step = NEXT.fetch_add(1, Ordering::Relaxed) % PORTS;
        // 7 has no factor in common with PORTS, so every port has its turn; processes with near ids start far apart.
        let port = FIRST + ((u32::from(start) * 13 + u32::from(step) * 7) % u32::from(PORTS)) as u16;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        if TcpListener::bind(address).is_ok() {
            return address;
        }
    }
    panic!("no free port between {FIRST} and {}", FIRST + PORTS);
}
