//! What is claimed, what is read from it, and what is refused with which words.

mod common;

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

use common::{LoopDevice, Mounted, disk_folder, no_children};
use platter_backends::{Direct, DiskKind, OpenError, OpenOptions, open};
use platter_block::{Discard, Fua, Rotation};

fn sized(size: u64) -> OpenOptions {
    OpenOptions { size: Some(size), ..OpenOptions::default() }
}

/// The words of the refusal, which name the path.
fn refusal(path: &Path, options: &OpenOptions) -> String {
    let text = open(path, options).expect_err("refused").to_string();
    assert!(text.contains(path.to_str().expect("a plain path")), "{text:?} does not name {path:?}");
    text
}

#[test]
fn a_file_is_a_disk_with_a_volatile_cache_and_without_fua() {
    let folder = disk_folder();
    let disk = open(&folder.path().join("disk"), &sized(1 << 20)).unwrap();
    assert_eq!(disk.kind, DiskKind::File);
    assert_eq!((disk.info.block_size, disk.info.blocks), (512, 2048));
    assert!(disk.info.volatile_cache);
    assert_eq!(disk.info.fua, Fua::None);
    assert!(disk.info.physical_block >= 512 && disk.info.write_zeroes && !disk.info.read_only);
    assert_eq!(disk.direct, disk.why_not_direct.is_none());
}

#[test]
fn a_new_file_is_sparse_unless_its_space_is_wanted_at_once() {
    let folder = disk_folder();
    let sparse = open(&folder.path().join("sparse"), &sized(1 << 20)).unwrap();
    assert_eq!(sparse.file.metadata().unwrap().blocks(), 0);
    let full = OpenOptions { preallocate: true, discard: false, ..sized(1 << 20) };
    let full = open(&folder.path().join("full"), &full).unwrap();
    assert!(full.file.metadata().unwrap().blocks() * 512 >= 1 << 20);
    assert_eq!(full.info.discard, None, "preallocated space is kept if asked");
}

#[test]
fn a_file_that_exists_keeps_its_content_and_must_have_the_size() {
    let _guard = no_children();
    let folder = disk_folder();
    let path = folder.path().join("disk");
    fs::write(&path, vec![7; 8192]).unwrap();
    drop(open(&path, &sized(8192)).unwrap());
    drop(open(&path, &OpenOptions::default()).unwrap());
    assert_eq!(fs::read(&path).unwrap(), vec![7; 8192]);
    let text = refusal(&path, &sized(4096));
    assert!(text.contains("8192") && text.contains("4096"), "{text}");
    assert_eq!(fs::read(&path).unwrap(), vec![7; 8192]);
}

#[test]
fn a_size_that_is_no_number_of_blocks_names_both_and_creates_nothing() {
    let _guard = no_children();
    let folder = disk_folder();
    let path = folder.path().join("disk");
    fs::write(&path, vec![0; 5000]).unwrap();
    let text = refusal(&path, &OpenOptions::default());
    assert!(text.contains("5000") && text.contains("512"), "{text}");
    let new = folder.path().join("new");
    let text = refusal(&new, &OpenOptions { block_size: Some(4096), ..sized(4096 + 512) });
    assert!(text.contains("4608") && text.contains("4096"), "{text}");
    assert!(fs::metadata(&new).map_or(0, |m| m.len()) == 0);
}

#[test]
fn what_is_missing_empty_or_no_disk_is_refused() {
    let _guard = no_children();
    let folder = disk_folder();
    let missing = folder.path().join("missing");
    assert!(matches!(open(&missing, &OpenOptions::default()), Err(OpenError::NotFound { .. })));
    assert!(!missing.exists());
    let read_only = OpenOptions { read_only: true, ..sized(4096) };
    assert!(open(&missing, &read_only).is_err(), "a read-only disk is not created");
    assert!(!missing.exists());
    assert!(refusal(folder.path(), &OpenOptions::default()).contains("folder"));
    assert!(refusal(Path::new("/dev/null"), &OpenOptions::default()).contains("character device"));
    let empty = folder.path().join("empty");
    File::create(&empty).unwrap();
    assert!(matches!(open(&empty, &OpenOptions::default()), Err(OpenError::Empty { .. })));
    assert_eq!(open(&empty, &sized(4096)).unwrap().info.blocks, 8, "an empty file is as good as none");
}

#[test]
fn block_sizes_are_powers_of_two_from_512_to_65536_and_the_physical_one_is_no_smaller() {
    let _guard = no_children();
    let folder = disk_folder();
    let path = folder.path().join("disk");
    for bad in [0, 256, 513, 131_072] {
        let options = OpenOptions { block_size: Some(bad), ..sized(1 << 20) };
        assert!(matches!(open(&path, &options), Err(OpenError::BlockSize { .. })), "{bad}");
    }
    let options = OpenOptions { block_size: Some(4096), physical_block: Some(512), ..sized(1 << 20) };
    assert!(refusal(&path, &options).contains("physical"));
    let options = OpenOptions { block_size: Some(65536), ..sized(1 << 20) };
    let disk = open(&path, &options).unwrap();
    assert_eq!((disk.info.blocks, disk.info.physical_block), (16, 65536));
}

#[test]
fn a_second_writer_is_refused_and_readers_share() {
    let _guard = no_children();
    let folder = disk_folder();
    let path = folder.path().join("disk");
    let first = open(&path, &sized(4096)).unwrap();
    let read_only = OpenOptions { read_only: true, ..OpenOptions::default() };
    for options in [&OpenOptions::default(), &read_only] {
        assert!(matches!(open(&path, options), Err(OpenError::InUse { .. })));
    }
    assert!(refusal(&path, &OpenOptions::default()).contains("in use"));
    drop(first);
    let reader = open(&path, &read_only).unwrap();
    assert!(reader.info.read_only && reader.info.discard.is_none());
    drop(open(&path, &read_only).unwrap());
    assert!(matches!(open(&path, &OpenOptions::default()), Err(OpenError::InUse { .. })));
}

#[test]
fn the_page_cache_is_used_when_asked_or_needed_and_the_reason_is_told() {
    let folder = disk_folder();
    let off = OpenOptions { direct: Direct::Off, ..sized(1 << 20) };
    let disk = open(&folder.path().join("disk"), &off).unwrap();
    assert!(!disk.direct && disk.why_not_direct.unwrap().contains("configuration"));

    // A file system on a disk with 4096-byte blocks cannot do direct I/O of 512 bytes.
    let Some(ext4) = Mounted::ext4(32 << 20, 4096) else { return };
    let _guard = no_children();
    let path = ext4.path().join("disk");
    let disk = open(&path, &sized(1 << 20)).unwrap();
    let reason = disk.why_not_direct.clone().unwrap();
    assert!(!disk.direct && reason.contains("4096") && reason.contains("512"), "{reason}");
    drop(disk);
    let text = refusal(&path, &OpenOptions { direct: Direct::On, ..sized(1 << 20) });
    assert!(text.contains(&reason), "{text}");
    let disk = open(&path, &OpenOptions { block_size: Some(4096), direct: Direct::On, ..sized(1 << 20) }).unwrap();
    assert!(disk.direct);
}

#[test]
fn a_mounted_or_served_block_device_is_refused() {
    let Some(ext4) = Mounted::ext4(32 << 20, 512) else { return };
    let text = refusal(ext4.device(), &OpenOptions::default());
    assert!(text.contains("mounted at") && text.contains(ext4.path().to_str().unwrap()), "{text}");

    let Some(device) = LoopDevice::new(1 << 20, 512) else { return };
    let _guard = no_children();
    let first = open(&device.path, &OpenOptions::default()).unwrap();
    assert!(matches!(open(&device.path, &OpenOptions::default()), Err(OpenError::InUse { .. })));
    drop(first);
    drop(open(&device.path, &OpenOptions::default()).unwrap());
}

#[test]
fn a_block_device_has_its_own_block_size_or_a_multiple() {
    for own in [512, 4096] {
        let Some(device) = LoopDevice::new(1 << 20, own) else { return };
        let guard = no_children();
        let disk = open(&device.path, &OpenOptions::default()).unwrap();
        assert_eq!((disk.kind, disk.info.block_size), (DiskKind::BlockDevice, own));
        assert_eq!(disk.info.blocks, (1 << 20) / u64::from(own));
        assert!(disk.direct, "{:?}", disk.why_not_direct);
        drop(disk);
        let disk = open(&device.path, &OpenOptions { block_size: Some(4096), ..OpenOptions::default() }).unwrap();
        assert_eq!((disk.info.block_size, disk.info.blocks), (4096, 256));
        drop(disk);
        if own == 4096 {
            let text = refusal(&device.path, &OpenOptions { block_size: Some(512), ..OpenOptions::default() });
            assert!(text.contains("512") && text.contains("4096"), "{text}");
        }
        // Before the device is detached by a child.
        drop(guard);
    }
}

#[test]
fn what_the_kernel_says_of_a_block_device_is_what_the_disk_promises() {
    let Some(device) = LoopDevice::new(1 << 20, 512) else { return };
    let _guard = no_children();
    let number = fs::metadata(&device.path).unwrap().rdev();
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let sysfs = tempfile::tempdir().unwrap();
    let folder = sysfs.path().join("devices/disk");
    fs::create_dir_all(folder.join("queue")).unwrap();
    fs::create_dir_all(sysfs.path().join("dev/block")).unwrap();
    symlink("../../devices/disk", sysfs.path().join(format!("dev/block/{major}:{minor}"))).unwrap();
    let set = |name: &str, value: &str| fs::write(folder.join(name), format!("{value}\n")).unwrap();
    set("size", "2048");
    set("ro", "0");
    set("discard_alignment", "512");
    for (name, value) in [
        ("logical_block_size", "512"),
        ("physical_block_size", "4096"),
        ("write_cache", "write back"),
        ("fua", "1"),
        ("rotational", "0"),
        ("discard_granularity", "4096"),
        ("discard_max_bytes", "1048576"),
        ("max_sectors_kb", "1280"),
    ] {
        set(&format!("queue/{name}"), value);
    }
    let options = OpenOptions { sysfs: sysfs.path().to_owned(), ..OpenOptions::default() };

    let info = open(&device.path, &options).unwrap().info;
    assert_eq!((info.block_size, info.physical_block, info.blocks), (512, 4096, 2048));
    assert_eq!((info.volatile_cache, info.fua, info.rotation), (true, Fua::Native, Rotation::NonRotating));
    assert_eq!(info.max_transfer, 2560);
    let discard = Discard { granularity: 8, alignment: 1, max_blocks: 2048, reads_zeroes: false };
    assert_eq!(info.discard, Some(discard));

    set("queue/write_cache", "write through");
    set("queue/discard_max_bytes", "0");
    let info = open(&device.path, &options).unwrap().info;
    assert_eq!((info.volatile_cache, info.discard), (false, None));
    let buffered = OpenOptions { direct: Direct::Off, ..options.clone() };
    let info = open(&device.path, &buffered).unwrap().info;
    assert_eq!((info.volatile_cache, info.fua), (true, Fua::None), "the page cache is volatile");

    set("ro", "1");
    assert!(matches!(open(&device.path, &options), Err(OpenError::ReadOnly { .. })));
    assert!(open(&device.path, &OpenOptions { read_only: true, ..options.clone() }).unwrap().info.read_only);
    set("queue/zoned", "host-managed");
    assert!(matches!(open(&device.path, &options), Err(OpenError::Zoned { .. })));
    set("queue/fua", "perhaps");
    assert!(refusal(&device.path, &options).contains("queue/fua"));
}
