//! Disks that go away, or get stuck, while ops are in flight.

mod common;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{DISK, Mounted, Rig, disk_folder, file_backends, mem_info, no_children, on_every_backend, rig, run, say};
use platter_backends::{Backend, Direct, DiskKind, FileBackend, OpenDisk, OpenError, OpenOptions, Uring, open};
use platter_block::{BlockCount, BufPool, DiskId, DiskOp, IoId, Lba, Status};

fn options() -> OpenOptions {
    OpenOptions { size: Some(4 << 20), ..OpenOptions::default() }
}

/// Reaps, expecting nothing, until `path` can be claimed anew.
fn wait_for_release(rig: &mut Rig<dyn FileBackend>, path: &Path, options: &OpenOptions) -> OpenDisk {
    let _guard = no_children();
    loop {
        assert!(rig.reap().is_empty(), "{}: an op ended twice", rig.name);
        match open(path, options) {
            Ok(opened) => return opened,
            Err(OpenError::InUse { .. }) => rig.sleep(),
            Err(e) => panic!("{}: {e}", rig.name),
        }
    }
}

#[test]
fn every_op_of_a_removed_disk_ends_gone_once_and_the_file_is_released_after_the_last() {
    for mut rig in on_every_backend("removed at work", &options(), disk_folder) {
        let path = rig.path.clone();
        let mut ops = 0;
        for round in 0..2 {
            for i in 0..300u64 {
                match i % 6 {
                    0 => rig.submit(DiskOp::Flush, None),
                    1 => rig.submit(DiskOp::WriteZeroes { lba: Lba(i), count: BlockCount(8), may_unmap: false }, None),
                    2 => rig.submit_read(i, 3),
                    _ => {
                        let bytes = rig.pattern(i, 1, 1);
                        rig.submit_write(i, &bytes, i % 2 == 0)
                    }
                };
                ops += 1;
            }
            // The second half is never handed over.
            if round == 0 {
                rig.backend.kick();
            }
        }
        assert!(rig.backend.remove(DISK));
        assert!(!rig.backend.remove(DISK), "{}: there is none any more", rig.name);
        rig.sleep();
        let ends = rig.reap();
        assert_eq!(ends.len(), ops, "{}", rig.name);
        assert!(ends.iter().all(|e| e.status == Status::Gone), "{}", rig.name);
        assert_eq!(rig.backend.in_flight(), 0, "{}", rig.name);
        rig.backend.kick();
        let opened = wait_for_release(&mut rig, &path, &options());
        // The same id, the same op ids: nothing of before shows.
        rig.backend.add(DISK, opened).unwrap();
        rig.submit_as(IoId(0), DiskOp::Flush, None);
        assert_eq!(rig.finish()[0].status, Status::Good, "{}", rig.name);
    }
}

#[test]
fn a_read_that_the_kernel_never_ends_does_not_keep_its_disk_from_going() {
    // A pipe stands for a disk that is stuck until something is written into it. Only the ring reads from pipes.
    let Ok(uring) = Uring::new(8) else { return say("SKIPPED: a stuck read, because io_uring is not allowed here") };
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    let info = mem_info(512, 8);
    let opened = OpenDisk {
        file: File::from(reader),
        info: info.clone(),
        path: PathBuf::from("pipe"),
        direct: false,
        why_not_direct: None,
        kind: DiskKind::File,
    };
    let mut uring = Box::new(uring);
    uring.add(DISK, opened).unwrap();
    let mut rig: Rig<dyn FileBackend> = Rig::new("stuck".into(), info, uring, None);
    rig.pool = BufPool::new(8 << 10);
    let io = rig.submit_read(0, 1);
    rig.backend.kick();
    assert!(rig.reap().is_empty());

    assert!(rig.backend.remove(DISK));
    let ends = rig.finish();
    assert_eq!((ends.len(), ends[0].io, ends[0].status), (1, io, Status::Gone));
    rig.pool.free(ends[0].buf.unwrap());
    assert_eq!(rig.pool.in_use(), 4096, "the kernel may still write into it");
    assert_eq!(rustix::io::write(&writer, b"late").unwrap(), 4, "the kernel still holds the other end");
    while rig.pool.in_use() > 0 {
        rig.sleep();
        assert!(rig.reap().is_empty(), "the late end is not told");
        let buf = rig.pool.alloc(1).unwrap();
        rig.pool.free(buf);
    }
    assert_eq!(rustix::io::write(&writer, b"later").unwrap_err(), rustix::io::Errno::PIPE, "the file is released");
}

#[test]
fn a_backend_dropped_with_a_read_in_the_kernel_leaves_its_memory_alone() {
    let Ok(mut uring) = Uring::new(8) else {
        return say("SKIPPED: a stuck read, because io_uring is not allowed here");
    };
    let (reader, _writer) = rustix::pipe::pipe().unwrap();
    let info = mem_info(512, 8);
    let (path, file) = (PathBuf::from("pipe"), File::from(reader));
    let opened = OpenDisk { file, info, path, direct: false, why_not_direct: None, kind: DiskKind::File };
    uring.add(DISK, opened).unwrap();
    let mut pool = BufPool::new(4 << 10);
    let buf = pool.alloc(512).unwrap();
    let op = DiskOp::Read { lba: Lba(0), count: BlockCount(1), buf, at: 0 };
    uring.submit(IoId(1), DISK, op, Some(pool.slice(buf, 0..512)));
    uring.kick();
    drop(uring);
    pool.free(buf);
    assert_eq!(pool.alloc(1), None, "the kernel may still write into it");
}

#[test]
fn a_stuck_disk_holds_up_no_other_and_can_be_removed() {
    // Writes to a frozen file system wait in the kernel until it is thawed.
    for make in file_backends() {
        let Some(ice) = Mounted::ext4(32 << 20, 512) else { return };
        let free = disk_folder();
        let path = ice.path().join("disk");
        let opened = open(&path, &options()).unwrap();
        let other = DiskId(9);
        let mut backend = make();
        backend.add(other, open(&free.path().join("disk"), &options()).unwrap()).unwrap();
        let mut rig = rig("frozen".into(), backend, opened, Box::new(free));
        let Some(frozen) = Frozen::new(&ice) else { return };

        // More writes than the disk has threads, or may have in the kernel.
        for i in 0..200 {
            let bytes = rig.pattern(i, 1, 1);
            rig.submit_write(i, &bytes, false);
        }
        rig.backend.kick();
        let buf = rig.pool.alloc(512).unwrap();
        for round in 0..20 {
            let op = match round % 3 {
                0 => DiskOp::Flush,
                1 => DiskOp::WriteZeroes { lba: Lba(round), count: BlockCount(1), may_unmap: false },
                _ => DiskOp::Read { lba: Lba(round), count: BlockCount(1), buf, at: 0 },
            };
            let data = matches!(op, DiskOp::Read { .. }).then(|| rig.pool.slice(buf, 0..512));
            rig.backend.submit(IoId(1000), other, op, data);
            rig.backend.kick();
            let mut ended = Vec::new();
            loop {
                rig.backend.reap(&mut ended);
                if !ended.is_empty() {
                    break;
                }
                rig.sleep();
            }
            let ends: Vec<_> = ended.iter().map(|e| (e.io, e.status)).collect();
            assert_eq!(ends, [(IoId(1000), Status::Good)], "{}", rig.name);
        }

        assert!(rig.backend.remove(DISK));
        let ends = rig.reap();
        assert!(ends.len() == 200 && ends.iter().all(|e| e.status == Status::Gone), "{}", rig.name);
        assert!(
            matches!(open(&path, &OpenOptions::default()), Err(OpenError::InUse { .. })),
            "{}: nobody may claim the file while a write may still land in it",
            rig.name
        );
        drop(frozen);
        drop(wait_for_release(&mut rig, &path, &OpenOptions::default()));
    }
}

#[test]
fn a_file_that_was_cut_off_fails_at_the_first_missing_block() {
    for direct in [Direct::Auto, Direct::Off] {
        let options = OpenOptions { direct, block_size: Some(4096), ..options() };
        for mut rig in on_every_backend("cut off", &options, disk_folder) {
            File::options().write(true).open(rig.path.clone()).unwrap().set_len(10 * 4096).unwrap();
            assert_eq!(rig.read(8, 8), Err(Status::MediumError { lba: Lba(10) }), "{}", rig.name);
            assert_eq!(rig.read(100, 1), Err(Status::MediumError { lba: Lba(100) }), "{}", rig.name);
            assert_eq!(rig.read(8, 2), Ok(vec![0; 8192]), "{}", rig.name);
        }
    }
}

#[test]
fn a_full_file_system_ends_writes_with_no_space_and_keeps_what_was_written() {
    for make in file_backends() {
        let Some(tmpfs) = Mounted::tmpfs(1 << 20) else { return };
        let opened = open(&tmpfs.path().join("disk"), &options()).unwrap();
        let mut rig = rig("full tmpfs".into(), make(), opened, Box::new(tmpfs));
        let mut good = Vec::new();
        for i in 0..64u64 {
            let bytes = rig.pattern(i * 128, 128, 2);
            match rig.write(i * 128, &bytes, false) {
                Status::Good => good.push(i * 128),
                status => assert_eq!(status, Status::NoSpace, "{}", rig.name),
            }
        }
        assert!(good.len() > 8 && good.len() < 17, "{}: 1 MiB holds no {} x 64 KiB", rig.name, good.len());
        for lba in &good {
            assert_eq!(rig.read(*lba, 128), Ok(rig.pattern(*lba, 128, 2)), "{}", rig.name);
        }
        // Zeroes that must be written need space as well; deallocation makes some.
        assert_eq!(rig.zero(6000, 512, false), Status::NoSpace, "{}", rig.name);
        assert_eq!(rig.unmap(good[0], 128), Status::Good, "{}", rig.name);
        let bytes = rig.pattern(7000, 64, 3);
        assert_eq!(rig.write(7000, &bytes, false), Status::Good, "{}", rig.name);
    }
}

#[test]
fn a_fua_write_for_which_there_is_no_room_keeps_what_was_written_and_blames_the_rest() {
    for make in file_backends() {
        for kind in [DiskKind::File, DiskKind::BlockDevice] {
            let Some(tmpfs) = Mounted::tmpfs(1 << 20) else { return };
            // A file that passes for a block device is written like one, and can be short of room.
            let opened = open(&tmpfs.path().join("disk"), &options()).unwrap();
            let mut rig = rig("full tmpfs".into(), make(), OpenDisk { kind, direct: true, ..opened }, Box::new(tmpfs));
            let bytes = rig.pattern(0, 4096, 5);
            assert_eq!(rig.write(0, &bytes, true), Status::NoSpace, "{}, {kind:?}", rig.name);
            assert_eq!(rig.read(0, 1024).as_deref(), Ok(&bytes[..512 << 10]), "{}, {kind:?}", rig.name);
            assert_eq!(rig.write(0, &bytes[..4096], true), Status::Good, "{}, {kind:?}", rig.name);
        }
    }
}

#[test]
fn a_read_only_disk_is_write_protected_and_can_be_read_and_flushed() {
    for mut writer in on_every_backend("read-only", &options(), disk_folder) {
        let bytes = writer.pattern(4, 2, 4);
        assert_eq!(writer.write(4, &bytes, false), Status::Good);
        let path = writer.path.clone();
        assert!(writer.backend.remove(DISK));
        let read_only = OpenOptions { read_only: true, ..OpenOptions::default() };
        let opened = wait_for_release(&mut writer, &path, &read_only);
        writer.info = opened.info.clone();
        writer.backend.add(DISK, opened).unwrap();
        let mut rig = writer;
        assert_eq!(rig.read(4, 2), Ok(bytes.clone()), "{}", rig.name);
        assert_eq!(rig.write(4, &bytes, false), Status::WriteProtected, "{}", rig.name);
        assert_eq!(rig.zero(4, 1, true), Status::WriteProtected, "{}", rig.name);
        assert_eq!(rig.unmap(4, 1), Status::WriteProtected, "{}", rig.name);
        assert_eq!(rig.run(DiskOp::Flush).0, Status::Good, "{}", rig.name);
    }
}

/// Frozen until dropped.
struct Frozen(PathBuf);

impl Frozen {
    fn new(mounted: &Mounted) -> Option<Self> {
        let frozen = Self(mounted.path().to_owned());
        let ran = run(Command::new("fsfreeze").arg("--freeze").arg(&frozen.0));
        if ran.as_ref().is_ok_and(|r| r.status.success()) {
            return Some(frozen);
        }
        std::mem::forget(frozen);
        say(&format!("SKIPPED: a stuck disk, because fsfreeze failed: {ran:?}"));
        None
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        let _ = run(Command::new("fsfreeze").arg("--unfreeze").arg(&self.0));
    }
}
