//! Claiming a file or block device, and reading what it is.

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use platter_block::{BufPool, Discard, DiskInfo, Fua, Rotation};
use rustix::fs::{AtFlags, FallocateFlags, FileType, FlockOperation, Mode, OFlags, Stat, StatxFlags};
use rustix::io::Errno;

use crate::{raw, sysfs};

/// How a disk is to be opened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpenOptions {
    /// Logical block size in bytes: a power of two from 512 to 65536. Default: that of a block device; 512 for a file,
    /// whatever disk the file lies on, so that a file keeps its meaning when it is copied. A block device may be given a
    /// multiple of its own block size.
    pub block_size: Option<u32>,
    /// Physical block size in bytes, at least the logical one. Default: that of a block device; the block size of the file
    /// system for a file.
    pub physical_block: Option<u32>,
    /// Size in bytes. A file that does not exist, or is empty, gets this size, sparse; anything else must have it.
    pub size: Option<u64>,
    /// Allocate all space of a file when it is created. No effect on a file that has its size already.
    pub preallocate: bool,
    /// Refuse writes. A file may then be shared with other readers.
    pub read_only: bool,
    /// Whether to go around the page cache (`O_DIRECT`).
    pub direct: Direct,
    /// Spindle speed, where it is known better than the system tells.
    pub rotation: Option<Rotation>,
    /// Whether blocks may be deallocated. Set to false to keep preallocated space.
    pub discard: bool,
    /// Where sysfs is; elsewhere than `/sys` only in tests.
    pub sysfs: PathBuf,
}

/// Whether to go around the page cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Direct {
    /// Where the disk or file system can do it at this block size.
    #[default]
    Auto,
    /// Or else an error.
    On,
    /// Never.
    Off,
}

/// What stands for the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DiskKind {
    /// A regular file.
    File,
    /// A block device or a partition of one.
    BlockDevice,
}

/// A file or block device that this process has claimed. The claim ends when it is dropped, or, once a backend has it,
/// when the backend has removed it.
#[derive(Debug)]
pub struct OpenDisk {
    /// The open file.
    pub file: File,
    /// What the disk is.
    pub info: DiskInfo,
    /// As given to [`open()`].
    pub path: PathBuf,
    /// Whether reads and writes go around the page cache.
    pub direct: bool,
    /// Why they do not, for status pages.
    pub why_not_direct: Option<String>,
    /// What stands for the disk.
    pub kind: DiskKind,
}

/// Why a disk cannot be opened, and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Nothing there, and no size to create it with.
    #[error("{path} does not exist: correct the path, or give a size to create a file there")]
    NotFound {
        /** As given. */
        path: PathBuf,
    },
    /// A folder, a terminal, a socket.
    #[error("{path} is {what}: a disk is a regular file or a block device")]
    NotADisk {
        /** As given. */
        path: PathBuf,
        /** What it is. */
        what: &'static str,
    },
    /// A system call failed.
    #[error("{path}: cannot {doing}: {source}")]
    System {
        /** As given. */
        path: PathBuf,
        /** What was tried. */
        doing: String,
        /** What the system says. */
        source: io::Error,
    },
    /// Somebody else uses it.
    #[error("{path} is in use: {who}")]
    InUse {
        /** As given. */
        path: PathBuf,
        /** By whom as far as known, and what to do. */
        who: String,
    },
    /// It can only be read.
    #[error("{path} can only be read ({source}): set it read-only, or make it writable")]
    ReadOnly {
        /** As given. */
        path: PathBuf,
        /** What the system says. */
        source: io::Error,
    },
    /// Not a block size.
    #[error("{path}: {what} block size {bytes} is not a power of two from {least} to 65536")]
    BlockSize {
        /** As given. */
        path: PathBuf,
        /** `"logical"` or `"physical"`. */
        what: &'static str,
        /** As asked. */
        bytes: u32,
        /** The smallest that would do. */
        least: u32,
    },
    /// The size is not a number of blocks.
    #[error(
        "{path}: its size of {bytes} bytes is not a multiple of the block size of {block_size} bytes: choose a smaller block size, or resize it"
    )]
    PartialBlock {
        /** As given. */
        path: PathBuf,
        /** Its size. */
        bytes: u64,
        /** The block size. */
        block_size: u32,
    },
    /// No blocks at all.
    #[error("{path} is empty: give a size to fill an empty file with, or insert a medium")]
    Empty {
        /** As given. */
        path: PathBuf,
    },
    /// It has a size already.
    #[error("{path} has {bytes} bytes, not {asked} as asked: correct the size, or resize it")]
    SizeMismatch {
        /** As given. */
        path: PathBuf,
        /** Its size. */
        bytes: u64,
        /** As asked. */
        asked: u64,
    },
    /// `Direct::On` where it cannot be.
    #[error("{path}: the page cache cannot be avoided: {reason}; set direct to auto to go through it")]
    NotDirect {
        /** As given. */
        path: PathBuf,
        /** Why. */
        reason: String,
    },
    /// Zones that take only sequential writes.
    #[error(
        "{path} is a host-managed zoned disk: it takes only sequential writes and cannot be served as a plain disk"
    )]
    Zoned {
        /** As given. */
        path: PathBuf,
    },
    /// The kernel's description of the device cannot be read.
    #[error("{path}: cannot read {attribute}: {problem}")]
    Sysfs {
        /** As given. */
        path: PathBuf,
        /** Of the device. */
        attribute: PathBuf,
        /** What is wrong with it. */
        problem: String,
    },
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            block_size: None,
            physical_block: None,
            size: None,
            preallocate: false,
            read_only: false,
            direct: Direct::Auto,
            rotation: None,
            discard: true,
            sysfs: PathBuf::from("/sys"),
        }
    }
}

/// Claims `path` for this process and reads what it is.
///
/// * A block device is opened exclusively: not while it is mounted, part of a RAID or served by somebody else. Block sizes,
///   cache, FUA, discard and transfer limits are the kernel's. Its partitions have the queue of the disk.
/// * A file is locked (`flock`), shared between readers if read-only. It is a disk with a volatile cache and without FUA,
///   whatever lies below: only a flush of the file reaches the medium, with what the file system needs to find the data.
/// * Without `O_DIRECT` there is always a volatile cache: the page cache.
///
/// # Errors
///
/// [`OpenError`], each with the path and what to do.
pub fn open(path: &Path, options: &OpenOptions) -> Result<OpenDisk, OpenError> {
    let at = At(path);
    match fs::metadata(path) {
        Ok(meta) if meta.is_file() => open_file(at, options),
        Ok(meta) if meta.file_type().is_block_device() => open_device(at, options),
        Ok(meta) => Err(at.not_a_disk(FileType::from_raw_mode(std::os::unix::fs::MetadataExt::mode(&meta)))),
        Err(e) if e.kind() == io::ErrorKind::NotFound && options.size.is_some() => open_file(at, options),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Err(OpenError::NotFound { path: path.to_owned() }),
        Err(e) => Err(at.system("look at it", e)),
    }
}

/// Largest transfer of one command to a file, in bytes. The file system cuts it further as its disk needs.
const FILE_MAX_TRANSFER: u32 = 4 << 20;

fn open_file(at: At<'_>, options: &OpenOptions) -> Result<OpenDisk, OpenError> {
    let block_size = at.logical_block(options.block_size.unwrap_or(512), 512)?;
    let create = if options.size.is_some() && !options.read_only { OFlags::CREATE } else { OFlags::empty() };
    let file = at.open(options.read_only, create)?;
    let lock = if options.read_only {
        FlockOperation::NonBlockingLockShared
    } else {
        FlockOperation::NonBlockingLockExclusive
    };
    rustix::fs::flock(&file, lock).map_err(|e| match e {
        Errno::WOULDBLOCK => at.in_use("another process has locked it; perhaps it is served already".into()),
        e => at.system("lock it", e),
    })?;
    let mut stat = at.stat(&file, FileType::RegularFile)?;
    if let (0, Some(size), false) = (stat.st_size, options.size, options.read_only) {
        at.check_size(size, block_size, None)?;
        at.give_size(&file, size, options.preallocate)?;
        stat = at.stat(&file, FileType::RegularFile)?;
    }
    let bytes = stat.st_size.cast_unsigned();
    at.check_size(bytes, block_size, options.size)?;

    let fs_block = u32::try_from(stat.st_blksize)
        .ok()
        .filter(|b| b.is_power_of_two() && (block_size..=65536).contains(b))
        .unwrap_or(block_size.max(4096));
    let physical_block = at.physical_block(options.physical_block.unwrap_or(fs_block), block_size)?;
    // The disk below may be found, or not (a file system over several, or over none).
    let below = sysfs::device(&options.sysfs, rustix::fs::major(stat.st_dev), rustix::fs::minor(stat.st_dev)).ok();
    let rotation = options.rotation.or_else(|| below.as_ref().map(rotation_of)).unwrap_or(Rotation::Unknown);
    let discard = (options.discard && !options.read_only && punches_holes(&file, bytes, fs_block)).then_some(Discard {
        granularity: fs_block / block_size,
        alignment: 0,
        max_blocks: u32::MAX,
        reads_zeroes: true,
    });
    let (direct, why_not_direct) = at.direct(&file, options.direct, block_size)?;
    let info = DiskInfo {
        block_size,
        physical_block,
        blocks: bytes / u64::from(block_size),
        volatile_cache: true,
        fua: Fua::None,
        rotation,
        discard,
        write_zeroes: true,
        max_transfer: FILE_MAX_TRANSFER / block_size,
        read_only: options.read_only,
    };
    Ok(OpenDisk { file, info, path: at.0.to_owned(), direct, why_not_direct, kind: DiskKind::File })
}

fn open_device(at: At<'_>, options: &OpenOptions) -> Result<OpenDisk, OpenError> {
    // O_EXCL without O_CREAT on a block device: fails while somebody else holds it exclusively, a mount for instance.
    let file = at.open(options.read_only, OFlags::EXCL)?;
    let stat = at.stat(&file, FileType::BlockDevice)?;
    let device = sysfs::device(&options.sysfs, rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev))
        .map_err(|e| OpenError::Sysfs { path: at.0.to_owned(), attribute: e.attribute, problem: e.problem })?;
    if device.host_managed {
        return Err(OpenError::Zoned { path: at.0.to_owned() });
    }
    if device.read_only && !options.read_only {
        return Err(OpenError::ReadOnly { path: at.0.to_owned(), source: Errno::ROFS.into() });
    }
    let block_size = at.logical_block(options.block_size.unwrap_or(device.logical_block), device.logical_block)?;
    let physical_block =
        at.physical_block(options.physical_block.unwrap_or(device.physical_block.max(block_size)), block_size)?;
    at.check_size(device.size, block_size, options.size)?;
    let (direct, why_not_direct) = at.direct(&file, options.direct, block_size)?;
    let info = DiskInfo {
        block_size,
        physical_block,
        blocks: device.size / u64::from(block_size),
        volatile_cache: device.write_back || !direct,
        fua: if device.fua && direct { Fua::Native } else { Fua::None },
        rotation: options.rotation.unwrap_or_else(|| rotation_of(&device)),
        discard: discard_of(&device, block_size).filter(|_| options.discard && !options.read_only),
        write_zeroes: true,
        max_transfer: clamped(device.max_transfer / u64::from(block_size)).max(1),
        read_only: options.read_only,
    };
    Ok(OpenDisk { file, info, path: at.0.to_owned(), direct, why_not_direct, kind: DiskKind::BlockDevice })
}

const fn rotation_of(device: &sysfs::Device) -> Rotation {
    match (device.rotational, device.rpm) {
        (false, _) => Rotation::NonRotating,
        (true, Some(rpm)) => Rotation::Rpm(rpm),
        // Also what a virtual disk says that does not know.
        (true, None) => Rotation::Unknown,
    }
}

fn discard_of(device: &sysfs::Device, block_size: u32) -> Option<Discard> {
    let blocks = |bytes: u64| clamped(bytes / u64::from(block_size));
    let granularity = blocks(device.discard_granularity).max(1);
    (blocks(device.discard_max) > 0).then(|| Discard {
        granularity,
        alignment: blocks(device.discard_alignment) % granularity,
        max_blocks: blocks(device.discard_max),
        reads_zeroes: device.discard_zeroes,
    })
}

/// Whether the file system deallocates: asked of one block behind the end of the file, where there is nothing to lose.
fn punches_holes(file: &File, end: u64, fs_block: u32) -> bool {
    let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(file, mode, end.next_multiple_of(u64::from(fs_block)), u64::from(fs_block)).is_ok()
}

fn clamped(n: u64) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// The path, for errors that name it.
#[derive(Clone, Copy)]
struct At<'a>(&'a Path);

impl At<'_> {
    fn open(self, read_only: bool, flags: OFlags) -> Result<File, OpenError> {
        let access = if read_only { OFlags::RDONLY } else { OFlags::RDWR };
        let mode = Mode::RUSR | Mode::WUSR;
        let fd: OwnedFd = rustix::fs::open(self.0, access | flags | OFlags::CLOEXEC, mode).map_err(|e| match e {
            Errno::BUSY => self.in_use(self.holder()),
            Errno::ROFS => OpenError::ReadOnly { path: self.0.to_owned(), source: e.into() },
            e => self.system(if read_only { "open it" } else { "open it for writing" }, e),
        })?;
        Ok(fd.into())
    }

    fn stat(self, file: &File, expected: FileType) -> Result<Stat, OpenError> {
        let stat = rustix::fs::fstat(file).map_err(|e| self.system("look at it", e))?;
        match FileType::from_raw_mode(stat.st_mode) {
            found if found == expected => Ok(stat),
            found => Err(self.not_a_disk(found)),
        }
    }

    /// Makes an empty file `size` bytes long, durably; on failure it is empty again.
    fn give_size(self, file: &File, size: u64, preallocate: bool) -> Result<(), OpenError> {
        let sized = if preallocate {
            rustix::fs::fallocate(file, FallocateFlags::empty(), 0, size).map_err(io::Error::from)
        } else {
            file.set_len(size)
        };
        let folder = match self.0.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        sized.and_then(|()| file.sync_all()).and_then(|()| File::open(folder)?.sync_all()).map_err(|e| {
            // The size is what marks a file as finished.
            let _ = file.set_len(0);
            self.system(format!("give it {size} bytes"), e)
        })
    }

    fn check_size(self, bytes: u64, block_size: u32, asked: Option<u64>) -> Result<(), OpenError> {
        let path = self.0.to_owned();
        if let Some(asked) = asked.filter(|&asked| asked != bytes) {
            return Err(OpenError::SizeMismatch { path, bytes, asked });
        }
        if bytes == 0 {
            return Err(OpenError::Empty { path });
        }
        if !bytes.is_multiple_of(u64::from(block_size)) {
            return Err(OpenError::PartialBlock { path, bytes, block_size });
        }
        Ok(())
    }

    fn logical_block(self, bytes: u32, least: u32) -> Result<u32, OpenError> {
        self.block("logical", bytes, least)
    }

    fn physical_block(self, bytes: u32, least: u32) -> Result<u32, OpenError> {
        self.block("physical", bytes, least)
    }

    fn block(self, what: &'static str, bytes: u32, least: u32) -> Result<u32, OpenError> {
        if bytes.is_power_of_two() && (least.max(512)..=65536).contains(&bytes) {
            Ok(bytes)
        } else {
            Err(OpenError::BlockSize { path: self.0.to_owned(), what, bytes, least: least.max(512) })
        }
    }

    /// Switches the page cache off if wanted and possible; the reason if not.
    fn direct(self, file: &File, wanted: Direct, block_size: u32) -> Result<(bool, Option<String>), OpenError> {
        if wanted == Direct::Off {
            return Ok((false, Some("switched off by configuration".into())));
        }
        match try_direct(file, block_size) {
            Ok(()) => Ok((true, None)),
            Err(reason) if wanted == Direct::On => Err(OpenError::NotDirect { path: self.0.to_owned(), reason }),
            Err(reason) => Ok((false, Some(reason))),
        }
    }

    /// Who holds a block device that is busy.
    fn holder(self) -> String {
        let mounted = fs::canonicalize(self.0).ok().and_then(|device| {
            let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
            let line = mounts.lines().find(|line| line.split(' ').next() == device.to_str())?;
            line.split(' ').nth(1).map(str::to_owned)
        });
        match mounted {
            Some(folder) => format!("mounted at {folder}; unmount it first"),
            None => "mounted, or held by LVM, RAID, swap or another program (see lsblk); free it first".into(),
        }
    }

    fn not_a_disk(self, found: FileType) -> OpenError {
        let what = match found {
            FileType::RegularFile => "a regular file now",
            FileType::BlockDevice => "a block device now",
            FileType::Directory => "a folder",
            FileType::CharacterDevice => "a character device",
            FileType::Fifo => "a pipe",
            FileType::Socket => "a socket",
            _ => "something else",
        };
        OpenError::NotADisk { path: self.0.to_owned(), what }
    }

    fn in_use(self, who: String) -> OpenError {
        OpenError::InUse { path: self.0.to_owned(), who }
    }

    fn system(self, doing: impl Into<String>, source: impl Into<io::Error>) -> OpenError {
        OpenError::System { path: self.0.to_owned(), doing: doing.into(), source: source.into() }
    }
}

/// Switches `O_DIRECT` on, if single blocks at any block boundary can then be read and written.
fn try_direct(file: &File, block_size: u32) -> Result<(), String> {
    if let Ok(statx) = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN)
        && statx.stx_mask & StatxFlags::DIOALIGN.bits() != 0
    {
        let (offset, memory) = (statx.stx_dio_offset_align, statx.stx_dio_mem_align);
        if offset == 0 {
            return Err("the file system does not support O_DIRECT here".into());
        }
        if offset > block_size || memory > block_size {
            let needed = offset.max(memory);
            return Err(format!("O_DIRECT needs an alignment of {needed} bytes, the block size is {block_size}"));
        }
    }
    let flags = rustix::fs::fcntl_getfl(file).map_err(|e| format!("cannot read the open flags: {e}"))?;
    rustix::fs::fcntl_setfl(file, flags | OFlags::DIRECT).map_err(|e| format!("O_DIRECT is refused: {e}"))?;
    // Where the kernel does not tell the alignment, a read of the second-best aligned block does.
    read_one_block(file, block_size).map_err(|e| {
        let _ = rustix::fs::fcntl_setfl(file, flags);
        format!("a direct read of one block of {block_size} bytes failed: {e}")
    })
}

/// Reads block 1 (block 0 of a disk of one block) into memory that is aligned to the block size and no better.
fn read_one_block(file: &File, block_size: u32) -> Result<(), Errno> {
    let block = block_size as usize;
    let mut pool = BufPool::new(1 << 20);
    let buf = pool.alloc(2 * block).expect("two blocks of at most 64 KiB fit in 1 MiB");
    let slice = pool.slice(buf, block..2 * block);
    match raw::pread(file, &slice, 0, u64::from(block_size))? {
        0 => raw::pread(file, &slice, 0, 0).map(|_| ()),
        _ => Ok(()),
    }
}
