//! From the file as written to what it means: names resolved, rules checked, units in blocks left to the disks.

use super::{BackendChoice, DiskEntry, Fault, File, FuaChoice, HostsEntry, IscsiEntry, MemoryEntry, Size, VolumeEntry};
use serde_saphyr::Spanned;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// A configuration that can be served.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) state: PathBuf,
    pub(crate) admin: PathBuf,
    /// Payload memory of the whole process in bytes.
    pub(crate) memory: u64,
    pub(crate) shards: u16,
    pub(crate) backend: BackendChoice,
    pub(crate) portals: Vec<Portal>,
    pub(crate) disks: Vec<Disk>,
    pub(crate) volumes: Vec<Volume>,
}

#[derive(Debug, Clone)]
pub(crate) struct Portal {
    pub(crate) name: String,
    pub(crate) listen: SocketAddr,
    /// `ADDRESS:PORT` for SendTargets.
    pub(crate) advertise: Option<String>,
}

#[derive(Debug, Clone)]
pub(crate) struct Disk {
    pub(crate) name: String,
    /// `Some` unless `memory` is.
    pub(crate) path: Option<PathBuf>,
    pub(crate) memory: Option<Memory>,
    pub(crate) size: Option<u64>,
    pub(crate) block_size: Option<u32>,
    pub(crate) physical_block: Option<u32>,
    pub(crate) fua: FuaChoice,
    pub(crate) read_only: bool,
    pub(crate) rpm: Option<u16>,
}

/// A disk in memory, and what it claims to be.
#[derive(Debug, Clone)]
pub(crate) struct Memory {
    /// In bytes.
    pub(crate) size: u64,
    pub(crate) volatile_cache: bool,
    pub(crate) fua: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct Volume {
    pub(crate) name: String,
    pub(crate) segments: Vec<SegmentPlan>,
    pub(crate) read_only: bool,
    pub(crate) serial: Option<String>,
    pub(crate) access: Access,
    pub(crate) iscsi: Option<IscsiExport>,
}

/// A piece of a disk, in bytes.
#[derive(Debug, Clone)]
pub(crate) struct SegmentPlan {
    /// Index into [`Plan::disks`].
    pub(crate) disk: usize,
    pub(crate) offset: u64,
    /// `None`: to the end of the disk.
    pub(crate) size: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Access {
    /// Whoever reaches the portal.
    Any,
    /// These initiator names; nobody if empty.
    Hosts(Vec<String>),
}

#[derive(Debug, Clone)]
pub(crate) struct IscsiExport {
    pub(crate) target: String,
    pub(crate) lun: u16,
    /// Indices into [`Plan::portals`].
    pub(crate) portals: Vec<usize>,
    pub(crate) removable: bool,
}

impl Plan {
    /// One line for people.
    pub(crate) fn summary(&self) -> String {
        let targets: std::collections::BTreeSet<_> =
            self.volumes.iter().filter_map(|v| Some(&v.iscsi.as_ref()?.target)).collect();
        format!(
            "{} portals, {} disks, {} volumes, {} targets",
            self.portals.len(),
            self.disks.len(),
            self.volumes.len(),
            targets.len()
        )
    }
}

const DEFAULT_MEMORY: u64 = 256 << 20;
const MIN_MEMORY: u64 = 16 << 20;
const MAX_SHARDS: u16 = 256;
/// RFC 7143 4.2.7.1.
const MAX_ISCSI_NAME: usize = 223;
/// SAM-5 4.7.6: what flat space addressing can express.
const MAX_LUN: u16 = 16_383;
/// The unit serial number page and the designators hold this much in one line of every tool that prints them.
const MAX_SERIAL: usize = 36;

pub(super) fn resolve(file: File) -> Result<Plan, Fault> {
    let memory = match &file.memory {
        None => DEFAULT_MEMORY,
        Some(size) if size.value.0 < MIN_MEMORY => {
            return Err(Fault::at(size, format!("memory must be at least {} MiB", MIN_MEMORY >> 20)));
        }
        Some(size) => size.value.0,
    };
    let shards = match &file.shards {
        None => 1,
        Some(n) if n.value == 0 || n.value > MAX_SHARDS => {
            return Err(Fault::at(n, format!("shards must be 1 to {MAX_SHARDS}")));
        }
        Some(n) => n.value,
    };
    let portals = portals(&file)?;
    let disks = disks(&file)?;
    let mut volumes = Vec::new();
    for (name, entry) in &file.volumes {
        volumes.push(volume(name, entry, &portals, &disks)?);
    }
    no_shared_blocks(&file, &volumes, &disks)?;
    targets_agree(&file, &volumes)?;
    Ok(Plan { state: file.state, admin: file.admin, memory, shards, backend: file.backend, portals, disks, volumes })
}

fn portals(file: &File) -> Result<Vec<Portal>, Fault> {
    let mut portals: Vec<Portal> = Vec::new();
    for (name, entry) in &file.portals {
        let text = &entry.value.listen;
        let listen: SocketAddr = text.value.parse().map_err(|_| {
            Fault::at(text, format!("`{}` is not ADDRESS:PORT, such as 0.0.0.0:3260 or [::]:3260", text.value))
        })?;
        if let Some(other) = portals.iter().find(|p| p.listen == listen) {
            return Err(Fault::at(text, format!("portal `{}` already listens on {listen}", other.name)));
        }
        let advertise = match &entry.value.advertise {
            Some(text) => {
                let host =
                    text.value.rsplit_once(':').filter(|(h, p)| !h.is_empty() && p.parse::<u16>().is_ok_and(|p| p > 0));
                if host.is_none() || text.value.contains([' ', ',']) {
                    return Err(Fault::at(text, format!("`{}` is not ADDRESS:PORT", text.value)));
                }
                Some(text.value.clone())
            }
            None => None,
        };
        portals.push(Portal { name: name.clone(), listen, advertise });
    }
    Ok(portals)
}

fn disks(file: &File) -> Result<Vec<Disk>, Fault> {
    let mut disks: Vec<Disk> = Vec::new();
    for (name, spanned) in &file.disks {
        let entry: &DiskEntry = &spanned.value;
        match (&entry.path, &entry.memory) {
            (Some(path), None) => {
                let same = |d: &&Disk| d.path.as_deref().is_some_and(|other| same_path(other, path));
                if let Some(other) = disks.iter().find(same) {
                    return Err(Fault::at(spanned, format!("disk `{}` already uses {}", other.name, path.display())));
                }
            }
            (None, Some(_)) => {}
            _ => return Err(Fault::at(spanned, format!("disk `{name}` needs either `path` or `memory`"))),
        }
        for size in [&entry.block_size, &entry.physical_block].into_iter().flatten() {
            if !size.value.is_power_of_two() || !(512..=65536).contains(&size.value) {
                return Err(Fault::at(size, "a block size is a power of two from 512 to 65536"));
            }
        }
        if let Some(rpm) = &entry.rpm
            && rpm.value != 0
            && !(0x401..=0xfffe).contains(&rpm.value)
        {
            return Err(Fault::at(rpm, "rpm is 0 (flash) or 1025 to 65534 (SBC-4, MEDIUM ROTATION RATE)"));
        }
        let value = |v: &Option<Spanned<u32>>| v.as_ref().map(|s| s.value);
        disks.push(Disk {
            name: name.clone(),
            path: entry.path.clone(),
            memory: entry.memory.as_ref().map(memory).transpose()?,
            size: entry.size.as_ref().map(at_least_one_byte).transpose()?,
            block_size: value(&entry.block_size),
            physical_block: value(&entry.physical_block),
            fua: entry.fua,
            read_only: entry.read_only,
            rpm: entry.rpm.as_ref().map(|s| s.value),
        });
    }
    Ok(disks)
}

fn memory(entry: &MemoryEntry) -> Result<Memory, Fault> {
    let size = at_least_one_byte(&entry.size)?;
    Ok(Memory { size, volatile_cache: entry.volatile_cache, fua: entry.fua })
}

fn at_least_one_byte(size: &Spanned<Size>) -> Result<u64, Fault> {
    match size.value.0 {
        0 => Err(Fault::at(size, "a size must be at least 1 byte")),
        bytes => Ok(bytes),
    }
}

/// Two names of one file. A file that is not there yet is compared by name.
fn same_path(a: &Path, b: &Path) -> bool {
    let real = |p: &Path| p.canonicalize().unwrap_or_else(|_| p.to_owned());
    real(a) == real(b)
}

fn volume(name: &str, spanned: &Spanned<VolumeEntry>, portals: &[Portal], disks: &[Disk]) -> Result<Volume, Fault> {
    let entry = &spanned.value;
    let find = |disk: &Spanned<String>| {
        disks
            .iter()
            .position(|d| d.name == disk.value)
            .ok_or_else(|| Fault::at(disk, unknown("disk", &disk.value, disks.iter().map(|d| d.name.as_str()))))
    };
    let segments = match (&entry.disk, &entry.segments) {
        (Some(disk), None) => vec![SegmentPlan { disk: find(disk)?, offset: 0, size: None }],
        (None, Some(list)) if !list.is_empty() => {
            let mut segments = Vec::new();
            for segment in list {
                let segment = &segment.value;
                let offset = segment.offset.as_ref().map_or(0, |s| s.value.0);
                let size = Some(at_least_one_byte(&segment.size)?);
                segments.push(SegmentPlan { disk: find(&segment.disk)?, offset, size });
            }
            segments
        }
        _ => return Err(Fault::at(spanned, format!("volume `{name}` needs either `disk` or a list of `segments`"))),
    };
    if let Some(serial) = &entry.serial {
        let printable = serial.value.bytes().all(|b| b.is_ascii_graphic());
        if serial.value.is_empty() || serial.value.len() > MAX_SERIAL || !printable {
            return Err(Fault::at(
                serial,
                format!("a serial is 1 to {MAX_SERIAL} printable ASCII characters, no spaces"),
            ));
        }
    }
    Ok(Volume {
        name: name.to_owned(),
        segments,
        read_only: entry.read_only,
        serial: entry.serial.as_ref().map(|s| s.value.clone()),
        access: access(&entry.hosts)?,
        iscsi: entry.iscsi.as_ref().map(|export| iscsi(export, portals)).transpose()?,
    })
}

fn access(spanned: &Spanned<HostsEntry>) -> Result<Access, Fault> {
    let entry = &spanned.value;
    if entry.allow_any && !entry.iqn.is_empty() {
        return Err(Fault::at(spanned, "`allow_any: true` and a list of hosts contradict each other"));
    }
    if entry.allow_any {
        return Ok(Access::Any);
    }
    entry.iqn.iter().map(iscsi_name).collect::<Result<_, _>>().map(Access::Hosts)
}

fn iscsi(spanned: &Spanned<IscsiEntry>, portals: &[Portal]) -> Result<IscsiExport, Fault> {
    let entry = &spanned.value;
    if entry.lun > MAX_LUN {
        return Err(Fault::at(spanned, format!("lun must be 0 to {MAX_LUN}")));
    }
    let portals = match &entry.portals {
        None => (0..portals.len()).collect(),
        Some(names) => names
            .iter()
            .map(|name| {
                portals.iter().position(|p| p.name == name.value).ok_or_else(|| {
                    Fault::at(name, unknown("portal", &name.value, portals.iter().map(|p| p.name.as_str())))
                })
            })
            .collect::<Result<Vec<_>, _>>()?,
    };
    if portals.is_empty() {
        return Err(Fault::at(spanned, "an iSCSI export needs at least one portal"));
    }
    Ok(IscsiExport { target: iscsi_name(&entry.target)?, lun: entry.lun, portals, removable: entry.removable })
}

/// RFC 7143 4.2.7: `iqn.`, `eui.` or `naa.`, at most 223 bytes, lower case after stringprep.
fn iscsi_name(name: &Spanned<String>) -> Result<String, Fault> {
    let text = &name.value;
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '-' | ':');
    let hex =
        |rest: &str, lengths: &[usize]| lengths.contains(&rest.len()) && rest.bytes().all(|b| b.is_ascii_hexdigit());
    let ok = match text.split_once('.') {
        Some(("iqn", rest)) => {
            rest.len() >= 9 && rest.as_bytes()[4] == b'-' && rest.as_bytes()[7] == b'.' && text.chars().all(allowed)
        }
        Some(("eui", rest)) => hex(rest, &[16]),
        Some(("naa", rest)) => hex(rest, &[16, 32]),
        _ => false,
    };
    if ok && text.len() <= MAX_ISCSI_NAME {
        return Ok(text.clone());
    }
    Err(Fault::at(
        name,
        format!(
            "`{text}` is not an iSCSI name: expected iqn.YYYY-MM.REVERSED.DOMAIN[:NAME] in lower case, at most {MAX_ISCSI_NAME} bytes"
        ),
    ))
}

/// No block of a disk belongs to two volumes, or twice to one.
fn no_shared_blocks(file: &File, volumes: &[Volume], disks: &[Disk]) -> Result<(), Fault> {
    let mut used: BTreeMap<usize, Vec<(u64, u64, &str)>> = BTreeMap::new();
    for volume in volumes {
        for segment in &volume.segments {
            let end = match segment.size {
                Some(size) => segment.offset.checked_add(size),
                None => Some(u64::MAX),
            };
            let place = &file.volumes[&volume.name];
            let Some(end) = end else {
                return Err(Fault::at(
                    place,
                    format!("volume `{}`: a segment ends beyond the largest disk", volume.name),
                ));
            };
            let pieces = used.entry(segment.disk).or_default();
            if let Some((_, _, other)) = pieces.iter().find(|(from, to, _)| segment.offset < *to && *from < end) {
                let disk = &disks[segment.disk].name;
                let message = format!("volume `{}` and volume `{other}` overlap on disk `{disk}`", volume.name);
                return Err(Fault::at(place, message));
            }
            pieces.push((segment.offset, end, &volume.name));
        }
    }
    Ok(())
}

/// The volumes of one target differ in LUN and share hosts and portals.
fn targets_agree(file: &File, volumes: &[Volume]) -> Result<(), Fault> {
    let mut targets: BTreeMap<&str, Vec<(&Volume, &IscsiExport)>> = BTreeMap::new();
    for volume in volumes {
        let Some(export) = &volume.iscsi else { continue };
        let place = &file.volumes[&volume.name];
        let siblings = targets.entry(&export.target).or_default();
        for (other, theirs) in siblings.iter() {
            if theirs.lun == export.lun {
                let message = format!(
                    "volumes `{}` and `{}` are both LUN {} of {}",
                    other.name, volume.name, export.lun, export.target
                );
                return Err(Fault::at(place, message));
            }
            if other.access != volume.access || theirs.portals != export.portals {
                let message = format!(
                    "volumes `{}` and `{}` of {} must list the same hosts and portals: iSCSI admits an initiator to a whole target",
                    other.name, volume.name, export.target
                );
                return Err(Fault::at(place, message));
            }
        }
        siblings.push((volume, export));
    }
    Ok(())
}

fn unknown<'a>(kind: &str, name: &str, known: impl Iterator<Item = &'a str>) -> String {
    let known: Vec<_> = known.collect();
    if known.is_empty() {
        return format!("there is no {kind} `{name}`: none is configured");
    }
    format!("there is no {kind} `{name}`: expected one of {}", known.join(", "))
}

#[cfg(test)]
mod tests {
    use crate::config::parse;
    use std::path::Path;

    const GOOD: &str = "\
portals:
  main: { listen: '127.0.0.1:3260' }
disks:
  d0: { path: /nowhere/d0, size: 1GiB }
  d1: { path: /nowhere/d1, size: 1GiB }
volumes:
  v0:
    segments:
      - { disk: d0, size: 512MiB }
      - { disk: d1, offset: 1MiB, size: 512MiB }
    hosts: { allow_any: true }
    iscsi: { target: 'iqn.2026-11.com.example:t', lun: 0 }
  v1:
    segments: [{ disk: d0, offset: 512MiB, size: 512MiB }]
    hosts: { allow_any: true }
    iscsi: { target: 'iqn.2026-11.com.example:t', lun: 1 }
";

    fn error(text: &str) -> String {
        parse(Path::new("p.yaml"), text).expect_err("the text is wrong").to_string()
    }

    fn error_after(from: &str, to: &str) -> String {
        assert_eq!(GOOD.matches(from).count(), 1, "{from}");
        error(&GOOD.replace(from, to))
    }

    #[test]
    fn a_good_file_resolves() {
        let plan = parse(Path::new("p.yaml"), GOOD).unwrap();
        assert_eq!(plan.volumes[0].segments[1].offset, 1 << 20);
        assert_eq!(plan.volumes[0].iscsi.as_ref().unwrap().portals, [0]);
    }

    #[test]
    fn every_error_names_file_line_column_and_what_was_expected() {
        for (from, to, place, expected) in [
            ("  d1: { path: /nowhere/d1, size: 1GiB }", "  d1: { path: /nowhere/d1, sise: 1GiB }", "p.yaml:5:", "sise"),
            ("127.0.0.1:3260", "localhost", "p.yaml:2:19: ", "ADDRESS:PORT"),
            ("/nowhere/d1", "/nowhere/d0", "p.yaml:5:", "already uses"),
            ("{ disk: d1, offset: 1MiB, size: 512MiB }", "{ disk: d9, size: 1MiB }", "p.yaml:10:17: ", "one of d0, d1"),
            ("lun: 1", "lun: 0", "p.yaml:14:", "both LUN 0"),
            ("[{ disk: d0, offset: 512MiB", "[{ disk: d0, offset: 511MiB", "p.yaml:14:", "overlap on disk `d0`"),
            ("iqn.2026-11.com.example:t', lun: 1", "IQN.2026-11.com.example:t', lun: 1", "p.yaml:16:", "iSCSI name"),
            ("path: /nowhere/d0, size: 1GiB", "path: /nowhere/d0, size: 1G", "p.yaml:4:", "not a unit"),
        ] {
            let message = error_after(from, to);
            assert!(message.starts_with(place), "{message}");
            assert!(message.contains(expected), "{message}");
        }
    }

    #[test]
    fn duplicate_keys_tabs_and_yaml_1_1_booleans_are_errors() {
        assert!(error_after("  d1: {", "  d0: {").starts_with("p.yaml:5:"), "duplicate key");
        assert!(error(&GOOD.replace("  main", "\tmain")).starts_with("p.yaml:2:"), "tab");
        let message = error(&GOOD.replacen("allow_any: true", "allow_any: on", 1));
        assert!(message.starts_with("p.yaml:11:"), "{message}");
    }

    #[test]
    fn nobody_is_allowed_unless_said() {
        assert!(error(&GOOD.replacen("    hosts: { allow_any: true }\n", "", 1)).contains("hosts"));
        let plan = parse(Path::new("p.yaml"), &GOOD.replace("allow_any: true", "iqn: []")).unwrap();
        assert_eq!(plan.volumes[0].access, super::Access::Hosts(vec![]));
    }

    #[test]
    fn an_alias_bomb_is_stopped() {
        let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for i in 1..9 {
            let list = vec![format!("*a{}", i - 1); 10].join(", ");
            bomb.push_str(&format!("a{i}: &a{i} [{list}]\n"));
        }
        assert!(!error(&bomb).is_empty());
    }
}
