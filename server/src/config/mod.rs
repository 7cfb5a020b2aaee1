//! The configuration file: what may stand in it, and every way it can be wrong.
//!
//! [`File`] is the YAML as written, [`Plan`](plan::Plan) is what it means once every name is resolved and every rule
//! checked. Nothing starts unless the whole file makes a plan. Each error names file, line, column and what was expected.

mod plan;
mod size;

pub(crate) use plan::{Access, Disk, Memory, Plan, Portal, SegmentPlan, Volume};

use serde::Deserialize;
use serde_saphyr::{Location, Spanned};
use size::Size;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

/// Largest configuration file, in bytes.
const MAX_FILE: u64 = 4 << 20;

/// The YAML as written.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(crate) struct File {
    /// Folder for what must survive a restart: identities and the marks of failed flushes.
    #[serde(default = "default_state")]
    pub(crate) state: PathBuf,
    /// The Unix socket of the admin API.
    #[serde(default = "default_admin")]
    pub(crate) admin: PathBuf,
    /// Payload memory of the whole process, shared out to the shards.
    pub(crate) memory: Option<Spanned<Size>>,
    /// Threads that serve I/O. Each disk group belongs to one.
    pub(crate) shards: Option<Spanned<u16>>,
    /// How disks are driven: io_uring where the kernel allows it, unless said otherwise.
    #[serde(default)]
    pub(crate) backend: BackendChoice,
    /// Where initiators connect.
    pub(crate) portals: BTreeMap<String, Spanned<PortalEntry>>,
    /// Block devices and files.
    pub(crate) disks: BTreeMap<String, Spanned<DiskEntry>>,
    /// What is exported.
    pub(crate) volumes: BTreeMap<String, Spanned<VolumeEntry>>,
}

/// One listening address.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(crate) struct PortalEntry {
    /// `ADDRESS:PORT` or `[IPv6]:PORT`.
    pub(crate) listen: Spanned<String>,
    /// What SendTargets answers instead of the address that the initiator reached, for use behind NAT.
    pub(crate) advertise: Option<Spanned<String>>,
}

/// One disk, or a file that stands for one.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(crate) struct DiskEntry {
    /// Block device or regular file; for block devices a name under /dev/disk/by-id survives reboots.
    pub(crate) path: Option<PathBuf>,
    /// A disk in memory instead, for tests and benches: its content is lost at exit.
    pub(crate) memory: Option<MemoryEntry>,
    /// Creates a sparse file of this size where there is none.
    pub(crate) size: Option<Spanned<Size>>,
    /// Logical block size in bytes; the device's own, or 512 for a file, unless given.
    pub(crate) block_size: Option<Spanned<u32>>,
    /// Physical block size in bytes that is reported; the device's own, or 4096 for a file, unless given.
    pub(crate) physical_block: Option<Spanned<u32>>,
    /// Whether the disk's Force Unit Access is believed (engine condition F8).
    #[serde(default)]
    pub(crate) fua: FuaChoice,
    /// Refuses writes.
    #[serde(default)]
    pub(crate) read_only: bool,
    /// Spindle speed that is reported, for disks whose own report is missing or wrong. 0 means flash.
    pub(crate) rpm: Option<Spanned<u16>>,
}

/// A disk in memory: what it claims to be. It keeps every write at once, whatever it claims.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(crate) struct MemoryEntry {
    /// Capacity.
    pub(crate) size: Spanned<Size>,
    /// Claims a volatile write cache, so that flushes matter.
    #[serde(default)]
    pub(crate) volatile_cache: bool,
    /// Claims Force Unit Access.
    #[serde(default)]
    pub(crate) fua: bool,
}

/// Whether FUA is used.
#[derive(Deserialize, Debug, Clone, Copy, Default, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum FuaChoice {
    /// As the disk reports.
    #[default]
    Native,
    /// Never: a plain write and one flush.
    Emulate,
    /// Never, and a disk that claims to have no volatile cache is flushed all the same.
    Distrust,
}

/// How disks are driven.
#[derive(Deserialize, Debug, Clone, Copy, Default, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum BackendChoice {
    /// io_uring, or threads where the kernel or a seccomp profile refuses it.
    #[default]
    Auto,
    /// io_uring or nothing.
    Uring,
    /// A pool of threads.
    Threads,
}

/// One volume.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(crate) struct VolumeEntry {
    /// The whole of one disk.
    pub(crate) disk: Option<Spanned<String>>,
    /// Pieces of disks, in order; instead of `disk`.
    pub(crate) segments: Option<Vec<Spanned<SegmentEntry>>>,
    /// Refuses writes.
    #[serde(default)]
    pub(crate) read_only: bool,
    /// Serial number that initiators see; made once and kept in the state folder unless given.
    pub(crate) serial: Option<Spanned<String>>,
    /// Who may use it. Nobody, unless said.
    pub(crate) hosts: Spanned<HostsEntry>,
    /// Export over iSCSI.
    pub(crate) iscsi: Option<Spanned<IscsiEntry>>,
}

/// A piece of a disk.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(crate) struct SegmentEntry {
    /// Name under `disks`.
    pub(crate) disk: Spanned<String>,
    /// Where it starts on the disk; 0 unless given.
    pub(crate) offset: Option<Spanned<Size>>,
    /// How long it is.
    pub(crate) size: Spanned<Size>,
}

/// Who may use a volume.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(crate) struct HostsEntry {
    /// Everybody who reaches the portal.
    #[serde(default)]
    pub(crate) allow_any: bool,
    /// iSCSI initiator names.
    #[serde(default)]
    pub(crate) iqn: Vec<Spanned<String>>,
}

/// How a volume appears over iSCSI.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(crate) struct IscsiEntry {
    /// Target name (RFC 7143 4.2.7). Volumes that name the same target are its LUNs.
    pub(crate) target: Spanned<String>,
    /// Logical unit number, 0 to 16383.
    #[serde(default)]
    pub(crate) lun: u16,
    /// Names under `portals`; all of them unless given.
    pub(crate) portals: Option<Vec<Spanned<String>>>,
    /// Reports removable media: PREVENT ALLOW MEDIUM REMOVAL and START STOP UNIT with LOEJ work.
    #[serde(default)]
    pub(crate) removable: bool,
}

/// What is wrong with a configuration, ready to show.
#[derive(Debug)]
pub struct ConfigError {
    file: PathBuf,
    location: Option<(u64, u64)>,
    message: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.location {
            Some((line, column)) => write!(f, "{}:{line}:{column}: {}", self.file.display(), self.message),
            None => write!(f, "{}: {}", self.file.display(), self.message),
        }
    }
}

impl std::error::Error for ConfigError {}

/// A rule that the file breaks, at a place in it.
#[derive(Debug)]
struct Fault {
    location: Option<Location>,
    message: String,
}

impl Fault {
    fn at<T>(place: &Spanned<T>, message: impl Into<String>) -> Self {
        Self { location: Some(place.referenced), message: message.into() }
    }
}

/// Reads, parses and checks a configuration file.
pub(crate) fn load(path: &Path) -> Result<Plan, ConfigError> {
    let text = read(path).map_err(|message| ConfigError { file: path.to_owned(), location: None, message })?;
    parse(path, &text)
}

/// Parses and checks configuration text; `path` is only named in errors.
pub(crate) fn parse(path: &Path, text: &str) -> Result<Plan, ConfigError> {
    let error = |location: Option<Location>, message: String| ConfigError {
        file: path.to_owned(),
        location: location.map(|l| (l.line(), l.column())),
        message,
    };
    // Only `true` and `false` are booleans: `on` and `yes` of YAML 1.1 are refused instead of guessed.
    let options = serde_saphyr::options! { strict_booleans: true };
    let file: File =
        serde_saphyr::from_str_with_options(text, options).map_err(|e| error(e.location(), snippet(&e)))?;
    plan::resolve(file).map_err(|fault| error(fault.location, fault.message))
}

/// The message and the lines of the file it is about; the place, which the library says twice more, is ours to say.
fn snippet(error: &serde_saphyr::Error) -> String {
    let text = error.render();
    let Some(at) = error.location() else { return text };
    let place = format!("error: line {} column {}: ", at.line(), at.column());
    let lines = text.strip_prefix(&place).unwrap_or(&text).lines();
    lines.filter(|line| !line.trim_start().starts_with("-->")).collect::<Vec<_>>().join("\n")
}

/// Only a regular file of sane size: a FIFO would hang and a directory reads as an odd error.
fn read(path: &Path) -> Result<String, String> {
    let meta = std::fs::metadata(path).map_err(|e| format!("cannot read the configuration: {e}"))?;
    if !meta.is_file() {
        return Err("the configuration must be a regular file".into());
    }
    if meta.len() > MAX_FILE {
        return Err(format!("the configuration has {} bytes; at most {MAX_FILE} are read", meta.len()));
    }
    std::fs::read_to_string(path).map_err(|e| format!("cannot read the configuration: {e}"))
}

fn default_state() -> PathBuf {
    PathBuf::from("/var/lib/platter")
}

fn default_admin() -> PathBuf {
    PathBuf::from("/run/platter/admin.sock")
}
