//! Debian's tgtd as a child process, to compare with. Killed on drop.

use crate::server_process::free_address;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long tgtd may take to start.
const PATIENCE: Duration = Duration::from_secs(10);

/// A running tgtd with one target.
#[derive(Debug)]
pub struct Tgt {
    child: Child,
    address: SocketAddr,
    /// Its management socket is named by a number of its own, so that another tgtd is left alone.
    control: String,
}

impl Tgt {
    /// The target's name.
    pub const TARGET: &str = "iqn.2026-11.org.platter:tgt";

    /// Starts tgtd behind `prefix` words (such as `taskset -c 0`), with LUN 1, 2, ... on the named backing stores.
    ///
    /// # Errors
    ///
    /// If it cannot be started, does not listen, or refuses the configuration.
    pub fn start(prefix: &[&str], stores: &[(&str, &Path)]) -> io::Result<Self> {
        let address = free_address();
        let control = address.port().to_string();
        let words: Vec<&str> = prefix.iter().copied().chain(["tgtd"]).collect();
        let child = Command::new(words[0])
            .args(&words[1..])
            .args(["-f", "-C", &control, "--iscsi", &format!("portal={address}")])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let tgt = Self { child, address, control };
        let start = Instant::now();
        while TcpStream::connect(address).is_err() {
            if start.elapsed() > PATIENCE {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "tgtd does not listen"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        tgt.admin(&["--op", "new", "--mode", "target", "--tid", "1", "-T", Self::TARGET])?;
        // By default 8 KiB segments; with these it can answer and take as much at once as Platter can.
        for (key, value) in
            [("MaxRecvDataSegmentLength", "262144"), ("MaxBurstLength", "1048576"), ("FirstBurstLength", "65536")]
        {
            tgt.admin(&["--op", "update", "--mode", "target", "--tid", "1", "--name", key, "--value", value])?;
        }
        for (lun, (kind, path)) in (1..).zip(stores) {
            let (lun, path) = (format!("{lun}"), path.display().to_string());
            let unit = ["--op", "new", "--mode", "logicalunit", "--tid", "1", "--lun", &lun, "-b", &path, "-E", kind];
            tgt.admin(&unit)?;
        }
        tgt.admin(&["--op", "bind", "--mode", "target", "--tid", "1", "-I", "ALL"])?;
        Ok(tgt)
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Where it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    fn admin(&self, arguments: &[&str]) -> io::Result<()> {
        let output = Command::new("tgtadm").args(["-C", &self.control, "--lld", "iscsi"]).args(arguments).output()?;
        if output.status.success() {
            return Ok(());
        }
        Err(io::Error::other(format!("tgtadm {arguments:?}: {}", String::from_utf8_lossy(&output.stderr))))
    }
}

impl Drop for Tgt {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
