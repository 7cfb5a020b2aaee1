//! Disks of every kind, driven the way an owner drives a backend.

// Each test program uses a part of this; clippy takes none of it for a test.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

use std::any::Any;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Once, RwLock, RwLockReadGuard};

use platter_backends::{Backend, Direct, Ended, FileBackend, Mem, OpenDisk, OpenOptions, Threads, Uring, open};
use platter_block::{
    BlockCount, BufId, BufPool, Discard, DiskId, DiskInfo, DiskOp, Extent, Fua, IoId, Lba, Report, Rotation, Status,
};
use rustix::event::{PollFd, PollFlags, Timespec};

/// The only disk of a rig.
pub const DISK: DiskId = DiskId(3);

/// A backend with one disk, and what is in flight on it.
pub struct Rig<B: ?Sized = dyn Backend> {
    pub name: String,
    pub info: DiskInfo,
    /// Empty for memory.
    pub path: PathBuf,
    pub pool: BufPool,
    in_flight: BTreeMap<IoId, Option<BufId>>,
    next: u64,
    pub backend: Box<B>,
    /// What the disk lies on; released after the backend.
    ground: Option<Box<dyn Any>>,
}

/// An end, with the buffer of the op if it had one.
pub struct End {
    pub io: IoId,
    pub status: Status,
    pub report: Option<Box<Report>>,
    pub buf: Option<BufId>,
}

impl<B: Backend + ?Sized> Rig<B> {
    pub fn new(name: String, info: DiskInfo, backend: Box<B>, ground: Option<Box<dyn Any>>) -> Self {
        Self {
            name,
            info,
            path: PathBuf::new(),
            pool: BufPool::new(256 << 20),
            in_flight: BTreeMap::new(),
            next: 0,
            backend,
            ground,
        }
    }

    /// The same with another backend around or instead of this one.
    pub fn map<C: Backend>(self, wrap: impl FnOnce(Box<B>) -> C) -> Rig<C> {
        Rig { path: self.path, ..Rig::new(self.name, self.info, Box::new(wrap(self.backend)), self.ground) }
    }

    /// Submits a read; its buffer comes with the end.
    pub fn submit_read(&mut self, lba: u64, count: u32) -> IoId {
        let buf = self.pool.alloc(self.bytes(count).max(1)).unwrap();
        self.submit(DiskOp::Read { lba: Lba(lba), count: BlockCount(count), buf, at: 0 }, Some(buf))
    }

    pub fn submit_write(&mut self, lba: u64, bytes: &[u8], fua: bool) -> IoId {
        let buf = self.pool.alloc(bytes.len()).unwrap();
        self.pool.bytes_mut(buf).copy_from_slice(bytes);
        let count = BlockCount((bytes.len() / self.info.block_size as usize) as u32);
        self.submit(DiskOp::Write { lba: Lba(lba), count, fua, buf, at: 0 }, Some(buf))
    }

    pub fn submit(&mut self, op: DiskOp, buf: Option<BufId>) -> IoId {
        let io = IoId(self.next);
        self.next += 1;
        self.submit_as(io, op, buf);
        io
    }

    pub fn submit_as(&mut self, io: IoId, op: DiskOp, buf: Option<BufId>) {
        assert!(self.in_flight.insert(io, buf).is_none());
        let data = match op {
            DiskOp::Read { count, buf, .. } | DiskOp::Write { count, buf, .. } => {
                Some(self.pool.slice(buf, 0..count.bytes(self.info.block_size) as usize))
            }
            _ => None,
        };
        self.backend.submit(io, DISK, op, data);
        assert_eq!(self.backend.in_flight(), self.in_flight.len(), "{}: in flight", self.name);
    }

    /// Kicks once, then reaps each time the event descriptor says so, until nothing is in flight. Every op ends once.
    pub fn finish(&mut self) -> Vec<End> {
        self.backend.kick();
        let mut ends = self.reap();
        while !self.in_flight.is_empty() {
            self.sleep();
            ends.extend(self.reap());
        }
        assert_eq!(self.backend.in_flight(), 0, "{}", self.name);
        ends
    }

    /// Reaps without waiting.
    pub fn reap(&mut self) -> Vec<End> {
        let mut ended = Vec::new();
        self.backend.reap(&mut ended);
        ended
            .into_iter()
            .map(|Ended { io, status, report, .. }| {
                let buf = self.in_flight.remove(&io).unwrap_or_else(|| panic!("{}: {io:?} ended twice", self.name));
                End { io, status, report, buf }
            })
            .collect()
    }

    /// Waits for the event descriptor.
    pub fn sleep(&self) {
        let fd = self.backend.event_fd().unwrap_or_else(|| panic!("{}: ends after reap without an event", self.name));
        let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
        let limit = Timespec { tv_sec: 60, tv_nsec: 0 };
        let ready = rustix::event::poll(&mut fds, Some(&limit)).unwrap();
        assert_eq!(ready, 1, "{}: {} ops never ended, or no event told", self.name, self.in_flight.len());
    }

    /// Runs one op alone.
    pub fn run(&mut self, op: DiskOp) -> (Status, Option<Report>) {
        self.submit(op, None);
        let end = self.finish().pop().unwrap();
        (end.status, end.report.map(|r| *r))
    }

    pub fn read(&mut self, lba: u64, count: u32) -> Result<Vec<u8>, Status> {
        self.submit_read(lba, count);
        let end = self.finish().pop().unwrap();
        let buf = end.buf.unwrap();
        let bytes = self.pool.bytes(buf)[..self.bytes(count)].to_vec();
        self.pool.free(buf);
        if end.status.is_good() { Ok(bytes) } else { Err(end.status) }
    }

    pub fn write(&mut self, lba: u64, bytes: &[u8], fua: bool) -> Status {
        self.submit_write(lba, bytes, fua);
        let end = self.finish().pop().unwrap();
        self.pool.free(end.buf.unwrap());
        end.status
    }

    pub fn zero(&mut self, lba: u64, count: u32, may_unmap: bool) -> Status {
        self.run(DiskOp::WriteZeroes { lba: Lba(lba), count: BlockCount(count), may_unmap }).0
    }

    pub fn unmap(&mut self, lba: u64, count: u32) -> Status {
        self.run(DiskOp::Unmap { lba: Lba(lba), count: BlockCount(count) }).0
    }

    pub fn extents(&mut self, lba: u64, count: u32) -> Vec<Extent> {
        let (status, report) = self.run(DiskOp::BlockStatus { lba: Lba(lba), count: BlockCount(count) });
        assert_eq!(status, Status::Good, "{}", self.name);
        let Some(Report::Extents(extents)) = report else { panic!("{}: no report", self.name) };
        extents
    }

    /// `count` blocks of bytes that name their place, so that a mix-up shows.
    pub fn pattern(&self, lba: u64, count: u32, salt: u64) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.bytes(count));
        for word in 0..self.bytes(count) as u64 / 8 {
            let place = lba * u64::from(self.info.block_size) / 8 + word;
            bytes.extend((place.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ salt).to_le_bytes());
        }
        bytes
    }

    pub fn bytes(&self, count: u32) -> usize {
        count as usize * self.info.block_size as usize
    }
}

/// Capacity of the disks: 9 MiB and a bit.
pub fn blocks(block_size: u32) -> u64 {
    (9 << 20) / u64::from(block_size) + 5
}

/// Every backend on every kind of disk. What this system does not allow is left out, loudly.
pub fn rigs() -> Vec<Rig> {
    let mut rigs = Vec::new();
    for block_size in [512, 4096] {
        let info = mem_info(block_size, blocks(block_size));
        let mut mem = Mem::new();
        mem.add(DISK, info.clone());
        rigs.push(Rig::new(format!("mem, {block_size}"), info, Box::new(mem) as Box<dyn Backend>, None));
    }
    for rig in file_rigs() {
        let Rig { name, info, backend, ground, .. } = rig;
        rigs.push(Rig::new(name, info, backend as Box<dyn Backend>, ground));
    }
    rigs
}

/// The same without memory.
pub fn file_rigs() -> Vec<Rig<dyn FileBackend>> {
    let mut rigs = Vec::new();
    for block_size in [512, 4096] {
        let size = blocks(block_size) * u64::from(block_size);
        for preallocate in [false, true] {
            let what = if preallocate { "preallocated" } else { "sparse" };
            let options =
                OpenOptions { size: Some(size), block_size: Some(block_size), preallocate, ..OpenOptions::default() };
            let buffered = OpenOptions { direct: Direct::Off, ..options.clone() };
            rigs.extend(on_every_backend(&format!("{what} file on disk, {block_size}"), &options, disk_folder));
            rigs.extend(on_every_backend(&format!("{what} file, buffered, {block_size}"), &buffered, disk_folder));
            if Path::new("/dev/shm").is_dir() {
                rigs.extend(on_every_backend(&format!("{what} file on tmpfs, {block_size}"), &options, || {
                    tempfile::tempdir_in("/dev/shm").unwrap()
                }));
            }
        }
        for make in file_backends() {
            if let Some(device) = LoopDevice::new(size, block_size) {
                let opened = open(&device.path, &OpenOptions::default()).unwrap();
                let name = format!("loop device, {block_size}");
                rigs.push(rig(name, make(), opened, Box::new(device)));
            }
        }
    }
    rigs
}

/// Constructors of the file backends that this system allows.
pub fn file_backends() -> Vec<fn() -> Box<dyn FileBackend>> {
    static SAID: Once = Once::new();
    let threads: fn() -> Box<dyn FileBackend> = || Box::new(Threads::new(4).unwrap());
    match Uring::new(8) {
        Ok(_) => vec![|| Box::new(Uring::new(8).unwrap()), threads],
        Err(e) => {
            SAID.call_once(|| say(&format!("SKIPPED: every io_uring case, because io_uring is not allowed here: {e}")));
            vec![threads]
        }
    }
}

pub fn rig(
    name: String,
    mut backend: Box<dyn FileBackend>,
    opened: OpenDisk,
    ground: Box<dyn Any>,
) -> Rig<dyn FileBackend> {
    let (info, path) = (opened.info.clone(), opened.path.clone());
    backend.add(DISK, opened).unwrap();
    Rig { path, ..Rig::new(format!("{}, {name}", backend.name()), info, backend, Some(ground)) }
}

/// A rig for each file backend on a new file.
pub fn on_every_backend(
    name: &str,
    options: &OpenOptions,
    folder: impl Fn() -> tempfile::TempDir,
) -> Vec<Rig<dyn FileBackend>> {
    let mut rigs = Vec::new();
    for make in file_backends() {
        let folder = folder();
        let opened = open(&folder.path().join("disk"), options).unwrap();
        rigs.push(rig(name.to_owned(), make(), opened, Box::new(folder)));
    }
    rigs
}

/// A folder on the file system that the build uses: mostly a real disk.
pub fn disk_folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

pub fn mem_info(block_size: u32, blocks: u64) -> DiskInfo {
    DiskInfo {
        block_size,
        physical_block: block_size,
        blocks,
        volatile_cache: false,
        fua: Fua::Native,
        rotation: Rotation::NonRotating,
        discard: Some(Discard { granularity: 1, alignment: 0, max_blocks: u32::MAX, reads_zeroes: true }),
        write_zeroes: true,
        max_transfer: u32::MAX,
        read_only: false,
    }
}

/// A loop device over a file of its own, detached when dropped.
pub struct LoopDevice {
    pub path: PathBuf,
    _folder: tempfile::TempDir,
}

impl LoopDevice {
    /// `None`, after saying why, where this system or user cannot make one.
    pub fn new(size: u64, block_size: u32) -> Option<Self> {
        static SAID: Once = Once::new();
        let folder = disk_folder();
        let file = folder.path().join("below");
        std::fs::File::create(&file).unwrap().set_len(size).unwrap();
        // One child at a time: two that look for a free device at once would find the same.
        let sector = block_size.to_string();
        let arguments = ["--find", "--show", "--direct-io=on", "--sector-size", &sector];
        match run(Command::new("losetup").args(arguments).arg(&file)) {
            Ok(output) if output.status.success() => {
                let path = PathBuf::from(String::from_utf8(output.stdout).unwrap().trim());
                Some(Self { path, _folder: folder })
            }
            why => {
                SAID.call_once(|| say(&format!("SKIPPED: every block device case, because losetup failed: {why:?}")));
                None
            }
        }
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = run(Command::new("losetup").arg("--detach").arg(&self.path));
    }
}

/// Held while a child process runs: for a moment it has all our files open, and so keeps their locks.
static CHILDREN: RwLock<()> = RwLock::new(());

/// Runs a command to its end.
pub fn run(command: &mut Command) -> std::io::Result<Output> {
    let _guard = CHILDREN.write().unwrap_or_else(std::sync::PoisonError::into_inner);
    command.output()
}

/// While this is held, what this process has closed is closed.
pub fn no_children() -> RwLockReadGuard<'static, ()> {
    CHILDREN.read().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Past the capture of test output: a skip must be seen.
pub fn say(text: &str) {
    let _ = rustix::io::write(rustix::stdio::stderr(), format!("\n{text}\n").as_bytes());
}

/// A file system mounted on a folder of its own, unmounted when dropped.
pub struct Mounted {
    folder: tempfile::TempDir,
    /// What it lies on, if on something.
    device: Option<LoopDevice>,
}

impl Mounted {
    /// A tmpfs of `size` bytes; `None`, after saying why, where it cannot be mounted.
    pub fn tmpfs(size: u64) -> Option<Self> {
        let options = std::ffi::CString::new(format!("size={size}")).unwrap();
        Self::new("tmpfs", Path::new("tmpfs"), &options, None)
    }

    /// A new ext4 on a loop device with blocks of `block_size` bytes.
    pub fn ext4(size: u64, block_size: u32) -> Option<Self> {
        let device = LoopDevice::new(size, block_size)?;
        let made = run(Command::new("mkfs.ext4").args(["-q", "-b", "4096"]).arg(&device.path));
        if !made.as_ref().is_ok_and(|m| m.status.success()) {
            say(&format!("SKIPPED: a case on ext4, because mkfs.ext4 failed: {made:?}"));
            return None;
        }
        let path = device.path.clone();
        Self::new("ext4", &path, c"", Some(device))
    }

    fn new(kind: &str, source: &Path, options: &std::ffi::CStr, device: Option<LoopDevice>) -> Option<Self> {
        let folder = disk_folder();
        match rustix::mount::mount(source, folder.path(), kind, rustix::mount::MountFlags::empty(), options) {
            Ok(()) => Some(Self { folder, device }),
            Err(e) => {
                say(&format!("SKIPPED: a case on a {kind} of its own, because it cannot be mounted: {e}"));
                None
            }
        }
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    pub fn device(&self) -> &Path {
        &self.device.as_ref().unwrap().path
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(self.folder.path(), rustix::mount::UnmountFlags::DETACH);
    }
}
