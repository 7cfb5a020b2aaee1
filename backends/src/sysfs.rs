//! What the kernel knows of a block device: its size and its request queue.
//!
//! `/sys/dev/block/MAJOR:MINOR` links to the device's folder. A partition has a size, a read-only mark and a discard
//! alignment of its own; the queue is the one of its disk, the folder above.

use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// One block device, in bytes where nothing else is said.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Device {
    pub(crate) size: u64,
    pub(crate) read_only: bool,
    pub(crate) logical_block: u32,
    pub(crate) physical_block: u32,
    pub(crate) write_back: bool,
    pub(crate) fua: bool,
    pub(crate) rotational: bool,
    /// From the Block Device Characteristics VPD page, where the kernel shows it (SBC-4, byte 4).
    pub(crate) rpm: Option<u16>,
    pub(crate) discard_granularity: u64,
    pub(crate) discard_alignment: u64,
    /// 0: the device cannot discard.
    pub(crate) discard_max: u64,
    /// A discard can be made to leave zeroes (Linux 6.17, `write_zeroes_unmap_max_bytes`).
    pub(crate) discard_zeroes: bool,
    pub(crate) max_transfer: u64,
    /// Zones that take only sequential writes.
    pub(crate) host_managed: bool,
}

/// An attribute that is missing or cannot be understood.
#[derive(Debug)]
pub(crate) struct SysfsError {
    pub(crate) attribute: PathBuf,
    pub(crate) problem: String,
}

/// Reads device `major:minor` below `root` (`/sys`).
pub(crate) fn device(root: &Path, major: u32, minor: u32) -> Result<Device, SysfsError> {
    let link = root.join(format!("dev/block/{major}:{minor}"));
    let folder = fs::canonicalize(&link).map_err(|e| SysfsError { attribute: link, problem: e.to_string() })?;
    let disk = match folder.parent() {
        Some(parent) if folder.join("partition").exists() => parent,
        _ => &folder,
    };
    let queue = disk.join("queue");
    let logical_block = required(&queue.join("logical_block_size"))?;
    Ok(Device {
        // In units of 512 bytes, whatever the block size.
        size: required::<u64>(&folder.join("size"))?.saturating_mul(512),
        read_only: required::<u8>(&folder.join("ro"))? != 0,
        logical_block,
        physical_block: optional(&queue.join("physical_block_size"))?.unwrap_or(logical_block),
        // Unknown: a cache that may be there must be flushed.
        write_back: optional::<String>(&queue.join("write_cache"))?.is_none_or(|mode| mode != "write through"),
        fua: optional::<u8>(&queue.join("fua"))?.is_some_and(|fua| fua != 0),
        rotational: optional::<u8>(&queue.join("rotational"))?.is_some_and(|r| r != 0),
        rpm: rpm(&disk.join("device/vpd_pgb1")),
        discard_granularity: optional(&queue.join("discard_granularity"))?.unwrap_or(0),
        discard_alignment: optional(&folder.join("discard_alignment"))?.unwrap_or(0),
        discard_max: optional(&queue.join("discard_max_bytes"))?.unwrap_or(0),
        discard_zeroes: optional::<u64>(&queue.join("write_zeroes_unmap_max_bytes"))?.is_some_and(|max| max > 0),
        max_transfer: optional::<u64>(&queue.join("max_sectors_kb"))?.unwrap_or(512).saturating_mul(1024),
        host_managed: optional::<String>(&queue.join("zoned"))?.is_some_and(|zoned| zoned == "host-managed"),
    })
}

fn required<T: FromStr<Err: Display>>(attribute: &Path) -> Result<T, SysfsError> {
    optional(attribute)?
        .ok_or_else(|| SysfsError { attribute: attribute.to_owned(), problem: "there is no such attribute".into() })
}

fn optional<T: FromStr<Err: Display>>(attribute: &Path) -> Result<Option<T>, SysfsError> {
    let failed = |problem| SysfsError { attribute: attribute.to_owned(), problem };
    match fs::read_to_string(attribute) {
        Ok(text) => {
            let text = text.trim();
            text.parse().map(Some).map_err(|e| failed(format!("{text:?}: {e}")))
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        // Attributes of a kind of device that has no such property.
        Err(e) if e.raw_os_error() == Some(rustix::io::Errno::INVAL.raw_os_error()) => Ok(None),
        Err(e) => Err(failed(e.to_string())),
    }
}

/// MEDIUM ROTATION RATE, bytes 4 and 5 of the page; only values that are a speed.
fn rpm(page: &Path) -> Option<u16> {
    let page = fs::read(page).ok()?;
    let rate = u16::from_be_bytes([*page.get(4)?, *page.get(5)?]);
    (0x0401..=0xfffe).contains(&rate).then_some(rate)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A disk 8:0 with a partition 8:1 in a tree like the kernel's.
    fn tree(attributes: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let disk = root.path().join("devices/x/block/sda");
        for folder in ["queue", "sda1", "device"] {
            fs::create_dir_all(disk.join(folder)).unwrap();
        }
        fs::create_dir_all(root.path().join("dev/block")).unwrap();
        symlink("../../devices/x/block/sda", root.path().join("dev/block/8:0")).unwrap();
        symlink("../../devices/x/block/sda/sda1", root.path().join("dev/block/8:1")).unwrap();
        let basic = [
            ("size", "4096"),
            ("ro", "0"),
            ("sda1/partition", "1"),
            ("sda1/size", "2048"),
            ("sda1/ro", "0"),
            ("queue/logical_block_size", "512"),
        ];
        for (name, value) in basic.iter().chain(attributes) {
            fs::write(disk.join(name), format!("{value}\n")).unwrap();
        }
        root
    }

    #[test]
    fn every_attribute_is_read_from_where_the_kernel_has_it() {
        let root = tree(&[
            ("queue/physical_block_size", "4096"),
            ("queue/write_cache", "write through"),
            ("queue/fua", "1"),
            ("queue/rotational", "1"),
            ("queue/discard_granularity", "4096"),
            ("queue/discard_max_bytes", "1048576"),
            ("queue/write_zeroes_unmap_max_bytes", "65536"),
            ("queue/max_sectors_kb", "1280"),
            ("queue/zoned", "host-managed"),
            ("discard_alignment", "512"),
        ]);
        fs::write(root.path().join("dev/block/8:0/device/vpd_pgb1"), [0, 0xb1, 0, 60, 0x1c, 0x20]).unwrap();
        let device = device(root.path(), 8, 0).unwrap();
        let expected = Device {
            size: 4096 * 512,
            read_only: false,
            logical_block: 512,
            physical_block: 4096,
            write_back: false,
            fua: true,
            rotational: true,
            rpm: Some(7200),
            discard_granularity: 4096,
            discard_alignment: 512,
            discard_max: 1 << 20,
            discard_zeroes: true,
            max_transfer: 1280 << 10,
            host_managed: true,
        };
        assert_eq!(device, expected);
    }

    #[test]
    fn a_partition_has_its_own_size_and_alignment_and_the_queue_of_its_disk() {
        let root = tree(&[("sda1/discard_alignment", "1024"), ("sda1/ro", "1"), ("queue/fua", "1")]);
        let part = device(root.path(), 8, 1).unwrap();
        assert_eq!((part.size, part.discard_alignment, part.read_only), (2048 * 512, 1024, true));
        assert!(part.fua);
    }

    #[test]
    fn an_unknown_cache_is_taken_for_a_volatile_one_without_fua() {
        let root = tree(&[]);
        let disk = device(root.path(), 8, 0).unwrap();
        assert!(disk.write_back && !disk.fua);
        let root = tree(&[("queue/write_cache", "write back"), ("queue/fua", "0")]);
        let disk = device(root.path(), 8, 0).unwrap();
        assert!(disk.write_back && !disk.fua);
    }

    #[test]
    fn a_value_that_cannot_be_understood_names_the_attribute() {
        let root = tree(&[("queue/fua", "maybe")]);
        let error = device(root.path(), 8, 0).unwrap_err();
        assert!(error.attribute.ends_with("queue/fua"), "{error:?}");
        assert!(error.problem.contains("maybe"));
        assert!(device(root.path(), 8, 7).unwrap_err().attribute.ends_with("dev/block/8:7"));
    }
}
