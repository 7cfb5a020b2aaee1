//! The disks of one shard: opening them, finding them again when they come back, and passing ops to their backend.

use crate::config::{Disk, FuaChoice};
use platter_backends::{Backend, DiskKind, Ended, FileBackend, Mem, OpenDisk, OpenOptions, Recorder, Recording};
use platter_block::{Discard, DiskId, DiskInfo, DiskOp, Fua, IoId, IoSlice, Rotation};
use platter_engine::FuaPolicy;
use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::PathBuf;

/// All disks of a shard, present and missing. Everything that they are asked passes a recorder.
pub(super) struct Disks {
    files: Recorder<Box<dyn FileBackend>>,
    memory: Recorder<Mem>,
    recording: Recording,
    disks: BTreeMap<DiskId, Entry>,
}

struct Entry {
    config: Disk,
    state: Presence,
    /// As read when it was last opened.
    info: Option<DiskInfo>,
}

enum Presence {
    /// Open; what it is, for people, and where the kernel lists it while it is there, if it is a block device.
    Present {
        what: String,
        listed: Option<PathBuf>,
    },
    Missing {
        why: String,
    },
}

impl Disks {
    pub(super) fn new(backend: Box<dyn FileBackend>) -> Self {
        let recording = Recording::default();
        Self {
            files: Recorder::new(backend, recording.clone()),
            memory: Recorder::new(Mem::new(), recording.clone()),
            recording,
            disks: BTreeMap::new(),
        }
    }

    /// Adds a disk of the configuration, not opened yet.
    pub(super) fn add(&mut self, id: DiskId, config: Disk) {
        let state = Presence::Missing { why: "not opened yet".into() };
        self.disks.insert(id, Entry { config, state, info: None });
    }

    /// Tries to open every missing disk; returns what has become present. A disk that stays away is logged when the
    /// reason changes, not at every try.
    pub(super) fn open_missing(&mut self) -> Vec<(DiskId, DiskInfo)> {
        let mut found = Vec::new();
        for (id, entry) in &mut self.disks {
            let Presence::Missing { why } = &mut entry.state else { continue };
            let result = match &entry.config.memory {
                Some(memory) => {
                    let info = memory_info(&entry.config, memory);
                    self.memory.inner_mut().add(*id, info.clone());
                    Ok((info, "memory: lost at exit".to_owned(), None))
                }
                None => open(&entry.config, entry.info.is_none()).and_then(|opened| {
                    let (info, what, listed) = (opened.info.clone(), describe(&opened), listed(&opened));
                    self.files.inner_mut().add(*id, opened).map_err(|e| e.to_string())?;
                    Ok((info, what, listed))
                }),
            };
            match result {
                Ok((info, what, listed)) => {
                    tracing::info!(
                        disk = entry.config.name,
                        blocks = info.blocks,
                        block_size = info.block_size,
                        "disk is there: {what}"
                    );
                    entry.info = Some(info.clone());
                    entry.state = Presence::Present { what, listed };
                    found.push((*id, info));
                }
                Err(reason) => {
                    if *why != reason {
                        tracing::error!(
                            disk = entry.config.name,
                            "disk is missing, its volumes are not ready: {reason}"
                        );
                        *why = reason;
                    }
                }
            }
        }
        found
    }

    /// A disk went away: its ops end, and it is looked for from now on. Whether it was there.
    pub(super) fn lose(&mut self, id: DiskId) -> bool {
        let entry = self.disks.get_mut(&id).expect("disks are added once and stay");
        if matches!(entry.state, Presence::Missing { .. }) || !self.files.inner_mut().remove(id) {
            return false;
        }
        let why = "it went away".to_owned();
        tracing::error!(disk = entry.config.name, "disk is missing, its volumes are not ready: {why}");
        entry.state = Presence::Missing { why };
        true
    }

    /// Block devices that were there and that the kernel does not list any more. An unplugged disk need not say so itself:
    /// its ops may fail like those of a bad medium.
    pub(super) fn vanished(&self) -> Vec<DiskId> {
        let is_gone = |entry: &Entry| match &entry.state {
            Presence::Present { listed: Some(listed), .. } => !listed.exists(),
            _ => false,
        };
        self.disks.iter().filter(|(_, entry)| is_gone(entry)).map(|(id, _)| *id).collect()
    }

    /// Whether some disk is missing.
    pub(super) fn any_missing(&self) -> bool {
        self.disks.values().any(|d| matches!(d.state, Presence::Missing { .. }))
    }

    /// What the disk said of itself when it was last opened; `None` if it has not been seen yet.
    pub(super) fn info(&self, id: DiskId) -> Option<&DiskInfo> {
        self.disks[&id].info.as_ref()
    }

    /// Logical block size of a disk that has been seen.
    pub(super) fn block_size(&self, id: DiskId) -> u32 {
        self.info(id).expect("ops are only sent to disks that were attached").block_size
    }

    /// Name in the configuration.
    pub(super) fn name(&self, id: DiskId) -> &str {
        &self.disks[&id].config.name
    }

    /// The disk with this name.
    pub(super) fn find(&self, name: &str) -> Option<DiskId> {
        self.disks.iter().find(|(_, d)| d.config.name == name).map(|(id, _)| *id)
    }

    /// Every disk with its configuration, whether it is there, and what it is or why not.
    pub(super) fn list(&self) -> impl Iterator<Item = (DiskId, &Disk, Result<&str, &str>)> {
        self.disks.iter().map(|(id, entry)| {
            let state = match &entry.state {
                Presence::Present { what, .. } => Ok(what.as_str()),
                Presence::Missing { why } => Err(why.as_str()),
            };
            (*id, &entry.config, state)
        })
    }

    /// What the disks were asked.
    pub(super) fn recording(&self) -> &Recording {
        &self.recording
    }

    pub(super) fn submit(&mut self, io: IoId, disk: DiskId, op: DiskOp, data: Option<IoSlice>) {
        match self.disks[&disk].config.memory {
            Some(_) => self.memory.submit(io, disk, op, data),
            None => self.files.submit(io, disk, op, data),
        }
    }

    pub(super) fn kick(&mut self) {
        self.files.kick();
        self.memory.kick();
    }

    pub(super) fn reap(&mut self, ended: &mut Vec<Ended>) {
        self.files.reap(ended);
        self.memory.reap(ended);
    }

    pub(super) fn event_fd(&self) -> Option<BorrowedFd<'_>> {
        self.files.event_fd()
    }

    pub(super) fn in_flight(&self) -> usize {
        self.files.in_flight() + self.memory.in_flight()
    }
}

/// What the configuration believes of a disk (F8).
pub(super) fn policy(choice: FuaChoice) -> FuaPolicy {
    match choice {
        FuaChoice::Native => FuaPolicy::Native,
        FuaChoice::Emulate => FuaPolicy::Emulate,
        FuaChoice::Distrust => FuaPolicy::Distrust,
    }
}

/// `may_create`: a file that is not there may be made. One that was there and went away (its file system was unmounted, say)
/// may not: its volumes would come back empty, and look healthy.
fn open(config: &Disk, may_create: bool) -> Result<OpenDisk, String> {
    let path = config.path.as_deref().ok_or("neither a path nor memory is configured")?;
    let options = OpenOptions {
        block_size: config.block_size,
        physical_block: config.physical_block,
        size: config.size.filter(|_| may_create),
        read_only: config.read_only,
        rotation: config.rpm.map(rotation),
        ..OpenOptions::default()
    };
    platter_backends::open(path, &options).map_err(|e| e.to_string())
}

fn rotation(rpm: u16) -> Rotation {
    if rpm == 0 { Rotation::NonRotating } else { Rotation::Rpm(rpm) }
}

fn memory_info(config: &Disk, memory: &crate::config::Memory) -> DiskInfo {
    let block_size = config.block_size.unwrap_or(512);
    DiskInfo {
        block_size,
        physical_block: config.physical_block.unwrap_or(4096).max(block_size),
        blocks: memory.size / u64::from(block_size),
        volatile_cache: memory.volatile_cache,
        fua: if memory.fua { Fua::Native } else { Fua::None },
        rotation: config.rpm.map_or(Rotation::NonRotating, rotation),
        discard: Some(Discard { granularity: 1, alignment: 0, max_blocks: u32::MAX, reads_zeroes: true }),
        write_zeroes: true,
        max_transfer: u32::MAX,
        read_only: config.read_only,
    }
}

/// Where sysfs lists a block device for as long as it exists.
fn listed(opened: &OpenDisk) -> Option<PathBuf> {
    let meta = opened.file.metadata().ok().filter(|meta| meta.file_type().is_block_device())?;
    let (major, minor) = (rustix::fs::major(meta.rdev()), rustix::fs::minor(meta.rdev()));
    Some(format!("/sys/dev/block/{major}:{minor}").into())
}

fn describe(opened: &OpenDisk) -> String {
    let cache = match (opened.info.volatile_cache, opened.info.fua) {
        (false, _) => "no volatile cache",
        (true, Fua::Native) => "volatile cache, FUA",
        (true, Fua::None) => "volatile cache, no FUA",
    };
    let kind = match opened.kind {
        DiskKind::File => "file",
        DiskKind::BlockDevice => "block device",
    };
    let access = match &opened.why_not_direct {
        None => "direct".to_owned(),
        Some(why) => format!("buffered ({why})"),
    };
    format!("{kind}, {access}, {cache}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_went_away_is_not_made_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        let config = Disk {
            name: "d".into(),
            path: Some(path.clone()),
            memory: None,
            size: Some(1 << 20),
            block_size: None,
            physical_block: None,
            fua: FuaChoice::Native,
            read_only: false,
            rpm: None,
        };
        let mut disks = Disks::new(Box::new(platter_backends::Threads::new(4).unwrap()));
        disks.add(DiskId(0), config);
        assert_eq!(disks.open_missing().len(), 1, "made at first");
        let elsewhere = folder.path().join("elsewhere");
        std::fs::rename(&path, &elsewhere).unwrap();
        assert!(disks.lose(DiskId(0)));
        assert_eq!(disks.open_missing(), []);
        assert!(!path.exists());
        std::fs::rename(&elsewhere, &path).unwrap();
        assert_eq!(disks.open_missing().len(), 1, "the same file is back");
    }
}
