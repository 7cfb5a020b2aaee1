//! What every backend promises, on every kind of disk.

mod common;

use std::path::PathBuf;

use common::{DISK, LoopDevice, file_backends, rig, rigs};
use platter_backends::{MAX_EXTENTS, OpenOptions, open};
use platter_block::{BlockCount, DiskId, DiskOp, Lba, Status};

#[test]
fn what_is_written_is_read_back_at_odd_places_and_sizes_and_its_neighbours_stay() {
    for mut rig in rigs() {
        for (lba, count) in [(0, 1), (1, 1), (3, 7), (13, 129), (500, 31)] {
            let bytes = rig.pattern(lba, count, 1);
            assert_eq!(rig.write(lba, &bytes, false), Status::Good, "{}", rig.name);
            assert_eq!(rig.read(lba, count), Ok(bytes), "{} at {lba}", rig.name);
        }
        let last = rig.info.blocks - 1;
        let bytes = rig.pattern(last, 1, 2);
        assert_eq!(rig.write(last, &bytes, false), Status::Good, "{}", rig.name);
        assert_eq!(rig.read(last, 1), Ok(bytes), "{}", rig.name);
        assert_eq!(rig.read(2, 1), Ok(vec![0; rig.bytes(1)]), "{}: between two writes", rig.name);
        assert_eq!(rig.read(499, 1), Ok(vec![0; rig.bytes(1)]), "{}: before a write", rig.name);
    }
}

#[test]
fn a_new_disk_reads_zeroes_from_end_to_end() {
    for mut rig in rigs() {
        let blocks = rig.info.blocks as u32;
        assert_eq!(rig.read(0, blocks), Ok(vec![0; rig.bytes(blocks)]), "{}", rig.name);
    }
}

#[test]
fn written_zeroes_and_unmapped_blocks_read_zero_and_their_neighbours_stay() {
    for mut rig in rigs() {
        let all = rig.pattern(0, 600, 3);
        let block = rig.bytes(1);
        for way in ["write zeroes", "write zeroes, may unmap", "unmap"] {
            // A single block, an odd range, and one that covers whole pages and chunks.
            for (lba, count) in [(5u64, 1u32), (17, 30), (64, 520)] {
                assert_eq!(rig.write(0, &all, false), Status::Good, "{}", rig.name);
                let status = match way {
                    "write zeroes" => rig.zero(lba, count, false),
                    "unmap" => rig.unmap(lba, count),
                    _ => rig.zero(lba, count, true),
                };
                assert_eq!(status, Status::Good, "{}: {way}", rig.name);
                let (start, end) = (lba as usize * block, (lba as usize + count as usize) * block);
                let found = rig.read(0, 600).unwrap();
                assert!(found[..start] == all[..start] && found[end..] == all[end..], "{}: {way} at {lba}", rig.name);
                if way != "unmap" || rig.info.discard.unwrap().reads_zeroes {
                    assert!(found[start..end].iter().all(|b| *b == 0), "{}: {way} at {lba}", rig.name);
                }
            }
        }
    }
}

#[test]
fn block_status_covers_the_range_in_order_and_calls_no_written_block_deallocated() {
    for mut rig in rigs() {
        let blocks = rig.info.blocks as u32;
        // 256 KiB in, 128 KiB long: whole pages and chunks for every backend.
        let (lba, count) = ((256 << 10) / u64::from(rig.info.block_size), (128 << 10) / rig.info.block_size);
        let bytes = rig.pattern(lba, count, 4);
        assert_eq!(rig.write(lba, &bytes, false), Status::Good);
        let extents = rig.extents(0, blocks);
        let mut next = 0;
        for extent in &extents {
            assert_eq!(extent.lba.0, next, "{}: {extents:?}", rig.name);
            assert!(extent.count.0 > 0);
            next += u64::from(extent.count.0);
        }
        assert_eq!(next, u64::from(blocks), "{}: {extents:?}", rig.name);
        for pair in extents.windows(2) {
            assert_ne!(pair[0].mapped, pair[1].mapped, "{}: {extents:?}", rig.name);
        }
        let within = rig.extents(lba, count);
        assert!(within.len() == 1 && within[0].mapped && within[0].count.0 == count, "{}: {within:?}", rig.name);

        let tells = !rig.name.contains("loop device") && !rig.name.contains("preallocated");
        if tells {
            let states: Vec<_> = extents.iter().map(|e| e.mapped).collect();
            assert_eq!(states, [false, true, false], "{}: {extents:?}", rig.name);
        }
        if tells || rig.name.contains("preallocated") {
            assert_eq!(rig.unmap(lba, count), Status::Good);
            let within = rig.extents(lba, count);
            assert!(within.len() == 1 && !within[0].mapped, "{}: {within:?}", rig.name);
        }
    }
}

#[test]
fn block_status_stops_at_its_limit_of_extents() {
    for mut rig in rigs() {
        if rig.name.contains("loop device") {
            continue;
        }
        // 64 KiB apart, so that every backend has a hole between.
        let step = (64 << 10) / u64::from(rig.info.block_size);
        for i in 0..MAX_EXTENTS as u64 {
            let lba = 2 * i * step;
            let bytes = rig.pattern(lba, 1, 5);
            rig.submit_write(lba, &bytes, false);
        }
        assert!(rig.finish().iter().all(|e| e.status.is_good()), "{}", rig.name);
        let blocks = rig.info.blocks as u32;
        let extents = rig.extents(0, blocks);
        assert_eq!(extents.len(), MAX_EXTENTS, "{}", rig.name);
        let covered: u64 = extents.iter().map(|e| u64::from(e.count.0)).sum();
        assert!(covered < rig.info.blocks, "{}: the limit was not what ended it", rig.name);
    }
}

#[test]
fn flushes_and_fua_writes_end_good_and_the_data_is_there() {
    for mut rig in rigs() {
        assert_eq!(rig.run(DiskOp::Flush), (Status::Good, None), "{}: nothing to flush", rig.name);
        let bytes = rig.pattern(9, 5, 6);
        assert_eq!(rig.write(9, &bytes, true), Status::Good, "{}", rig.name);
        assert_eq!(rig.read(9, 5), Ok(bytes), "{}", rig.name);
        // More than run at once.
        for _ in 0..20 {
            rig.submit(DiskOp::Flush, None);
        }
        assert!(rig.finish().iter().all(|e| e.status.is_good()), "{}", rig.name);
    }
}

#[test]
fn ranges_beyond_the_disk_are_refused_and_change_nothing() {
    for mut rig in rigs() {
        let blocks = rig.info.blocks;
        for (lba, count) in [(blocks, 1), (blocks - 1, 2), (u64::MAX, 1), (u64::MAX - 1, 8)] {
            let bytes = rig.pattern(0, count, 7);
            assert_eq!(rig.write(lba, &bytes, false), Status::LbaOutOfRange, "{} at {lba}", rig.name);
            assert_eq!(rig.read(lba, count), Err(Status::LbaOutOfRange), "{} at {lba}", rig.name);
            assert_eq!(rig.zero(lba, count, true), Status::LbaOutOfRange, "{} at {lba}", rig.name);
            assert_eq!(rig.unmap(lba, count), Status::LbaOutOfRange, "{} at {lba}", rig.name);
            let (status, report) = rig.run(DiskOp::BlockStatus { lba: Lba(lba), count: BlockCount(count) });
            assert_eq!((status, report), (Status::LbaOutOfRange, None), "{} at {lba}", rig.name);
        }
        assert_eq!(rig.read(blocks - 1, 1), Ok(vec![0; rig.bytes(1)]), "{}", rig.name);
    }
}

#[test]
fn an_op_for_a_disk_that_is_not_there_ends_gone() {
    for mut rig in rigs() {
        rig.backend.submit(platter_block::IoId(77), DiskId(DISK.0 + 1), DiskOp::Flush, None);
        rig.backend.kick();
        let mut ended = Vec::new();
        rig.backend.reap(&mut ended);
        assert_eq!(ended.len(), 1, "{}", rig.name);
        assert_eq!((ended[0].io.0, ended[0].status), (77, Status::Gone), "{}", rig.name);
    }
}

#[test]
fn a_refused_op_makes_the_event_descriptor_readable() {
    for mut rig in rigs() {
        if rig.backend.event_fd().is_none() {
            continue;
        }
        let blocks = rig.info.blocks;
        rig.submit(DiskOp::WriteZeroes { lba: Lba(blocks), count: BlockCount(1), may_unmap: false }, None);
        rig.backend.kick();
        rig.sleep();
        assert_eq!(rig.reap()[0].status, Status::LbaOutOfRange, "{}", rig.name);
    }
}

#[test]
fn a_thousand_ops_at_once_each_end_once() {
    // The rings have 8 entries, the pools 4 threads: most of these wait their turn.
    for mut rig in rigs() {
        for i in 0..1000u64 {
            match i % 10 {
                0 => rig.submit(DiskOp::Flush, None),
                1 => rig.submit(DiskOp::BlockStatus { lba: Lba(i), count: BlockCount(8) }, None),
                2 => rig.submit(DiskOp::WriteZeroes { lba: Lba(i), count: BlockCount(1), may_unmap: true }, None),
                3..6 => rig.submit_read(i, 1),
                _ => {
                    let bytes = rig.pattern(i, 1, 8);
                    rig.submit_write(i, &bytes, i % 10 == 9)
                }
            };
        }
        let ends = rig.finish();
        assert_eq!(ends.len(), 1000, "{}", rig.name);
        assert!(ends.iter().all(|e| e.status.is_good()), "{}", rig.name);
        for i in (0..1000).filter(|i| i % 10 >= 6) {
            assert_eq!(rig.read(i, 1), Ok(rig.pattern(i, 1, 8)), "{} at {i}", rig.name);
        }
    }
}

#[test]
fn flushes_and_fua_writes_reach_the_device_below_as_flushes_and_plain_writes_do_not() {
    for make in file_backends() {
        let Some(device) = LoopDevice::new(1 << 20, 512) else { return };
        let stat = PathBuf::from("/sys/block").join(device.path.file_name().unwrap()).join("stat");
        // The number of flush requests completed is the 16th figure.
        let flushes = || -> u64 {
            let text = std::fs::read_to_string(&stat).unwrap();
            text.split_whitespace().nth(15).unwrap().parse().unwrap()
        };
        let opened = open(&device.path, &OpenOptions::default()).unwrap();
        assert!(opened.info.volatile_cache && opened.info.fua == platter_block::Fua::None);
        let mut rig = rig("loop device".into(), make(), opened, Box::new(device));
        let bytes = rig.pattern(0, 8, 1);
        let before = flushes();
        assert_eq!(rig.write(0, &bytes, false), Status::Good);
        assert_eq!(flushes(), before, "{}: a plain write", rig.name);
        assert_eq!(rig.run(DiskOp::Flush).0, Status::Good);
        assert_eq!(flushes(), before + 1, "{}: a flush", rig.name);
        // The disk has no FUA: the kernel makes it of a write and a flush, and must not be led to add another.
        for writes in 1..=10 {
            assert_eq!(rig.write(writes, &bytes, true), Status::Good);
            assert_eq!(flushes(), before + 1 + writes, "{}: FUA write {writes}", rig.name);
        }
    }
}
