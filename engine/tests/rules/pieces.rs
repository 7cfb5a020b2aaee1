//! How an op becomes pieces: segment ends, transfer limits, buffer offsets, errors, limits, block status.

use platter_block::{BlockCount, BufId, DiskId, DiskInfo, DiskOp, Extent, Lba, Op, Report, Status, Tag, VolumeId};
use platter_engine::{FuaPolicy, Input, MAX_OPS, MAX_OPS_PER_VOLUME, MapError, Segment};

use crate::rig::*;

/// `(disk, first block, count, byte offset)` of reads and writes.
fn shape(rig: &Rig) -> Vec<(u32, u64, u32, u32)> {
    let of = |sent: &Sent| match sent.op {
        DiskOp::Read { lba, count, at, .. } | DiskOp::Write { lba, count, at, .. } => {
            (sent.disk, lba.0, count.0, at / 512)
        }
        DiskOp::WriteZeroes { lba, count, .. } | DiskOp::Unmap { lba, count } | DiskOp::BlockStatus { lba, count } => {
            (sent.disk, lba.0, count.0, 0)
        }
        DiskOp::Flush => panic!("no flush expected"),
    };
    rig.sent.iter().map(of).collect()
}

#[test]
fn pieces_are_cut_at_segment_ends_and_at_what_the_disk_takes() {
    let mut rig = Rig::bare();
    rig.engine.add_disk(DiskId(0), Some(DiskInfo { max_transfer: 8, ..native() }), FuaPolicy::Native, false);
    rig.engine.add_disk(DiskId(1), Some(DiskInfo { max_transfer: 4, ..native() }), FuaPolicy::Native, false);
    rig.volume(0, &[(0, 10, 0, 100), (10, 6, 1, 50), (16, 100, 0, 0)]);
    for op in [read(1, 20), write(1, 20)] {
        rig.sent.clear();
        rig.run(op.is_write().into(), op);
        let expected = [(0, 101, 8, 0), (0, 109, 1, 8), (1, 50, 4, 9), (1, 54, 2, 13), (0, 0, 5, 15)];
        assert_eq!(shape(&rig), expected, "{op:?}");
    }
    rig.sent.clear();
    rig.run(2, zeroes(1, 10, false));
    assert_eq!(shape(&rig), [(0, 101, 8, 0), (0, 109, 1, 0), (1, 50, 1, 0)]);
    rig.assert_at_rest();
}

#[test]
fn exclusive_ops_use_the_parts_of_their_buffer_as_documented() {
    let mut rig = Rig::new(&[DiskInfo { max_transfer: 2, ..native() }]);
    rig.run(1, compare_and_write(5, 3, false));
    assert_eq!(shape(&rig), [(0, 5, 2, 6), (0, 7, 1, 8), (0, 5, 2, 3), (0, 7, 1, 5)]);
    rig.sent.clear();
    rig.run(2, or_write(5, 3, false));
    assert_eq!(shape(&rig), [(0, 5, 2, 3), (0, 7, 1, 5), (0, 5, 2, 3), (0, 7, 1, 5)]);
    let kinds: Vec<_> = rig.sent.iter().map(|sent| matches!(sent.op, DiskOp::Write { .. })).collect();
    assert_eq!(kinds, [false, false, true, true]);
}

#[test]
fn an_unmap_is_cut_at_its_own_limit_and_sent_only_where_it_can_be_done() {
    let discard = platter_block::Discard { max_blocks: 10, ..native().discard.unwrap() };
    let mut rig = Rig::new(&[DiskInfo { discard: Some(discard), max_transfer: 2, ..native() }]);
    rig.run(1, unmap(0, 25));
    assert_eq!(shape(&rig), [(0, 0, 10, 0), (0, 10, 10, 0), (0, 20, 5, 0)]);
    let mut rig = Rig::new(&[native(), DiskInfo { discard: None, ..native() }]);
    rig.submit(1, unmap(0, 8));
    assert_eq!((rig.status(1), rig.sent.len()), (Some(Status::Unsupported), 0));
    rig.run(2, zeroes(1000, 8, false));
}

#[test]
fn a_large_op_has_32_pieces_out_at_a_time() {
    let mut rig = Rig::new(&[DiskInfo { max_transfer: 1, ..native() }]);
    rig.submit(1, write(0, 100));
    assert_eq!(rig.open.len(), 32);
    rig.end(7, Status::Good);
    assert_eq!(rig.open.len(), 32);
    rig.settle();
    assert_eq!((rig.sent.len(), rig.status(1)), (100, Some(Status::Good)));
    let mut blocks: Vec<_> = shape(&rig).iter().map(|&(_, lba, _, at)| (lba, at)).collect();
    blocks.sort_unstable();
    assert!(blocks.iter().enumerate().all(|(n, &(lba, at))| lba == n as u64 && at == n as u32));
}

#[test]
fn a_range_outside_the_volume_is_refused_however_it_wraps() {
    let mut rig = Rig::new(&[native()]);
    let outside = [(1000, 1), (999, 2), (1001, 0), (u64::MAX, 1), (u64::MAX, u32::MAX), (u64::MAX - 1, 2)];
    let mut tag = 0;
    for (lba, count) in outside {
        for op in [read(lba, count), write(lba, count), zeroes(lba, count, true), unmap(lba, count)] {
            tag += 1;
            rig.submit(tag, op);
            assert_eq!(rig.status(tag), Some(Status::LbaOutOfRange), "{op:?}");
        }
    }
    assert!(rig.sent.is_empty());
    rig.run(1000, read(999, 1));
    rig.assert_at_rest();
}

#[test]
fn a_buffer_of_more_than_4_gib_is_refused() {
    let mut rig = Rig::bare();
    let info = DiskInfo { blocks: u64::MAX, max_transfer: u32::MAX, ..native() };
    rig.engine.add_disk(DiskId(0), Some(info), FuaPolicy::Native, false);
    rig.volume(0, &[(0, u64::MAX, 0, 0)]);
    let most = u32::MAX / 512;
    for (tag, op, fits) in [
        (1, read(0, most), true),
        (2, read(0, most + 1), false),
        (3, write(0, u32::MAX), false),
        (4, or_write(0, most / 2 + 1, false), false),
        (5, compare_and_write(0, most / 3 + 1, false), false),
        (6, compare_and_write(0, most / 3, false), true),
        (7, zeroes(0, u32::MAX, false), true),
        (8, read(u64::MAX - 1, 1), true),
    ] {
        rig.submit(tag, op);
        rig.settle();
        let expected = if fits { Status::Good } else { Status::Unsupported };
        assert_eq!(rig.status(tag), Some(expected), "{op:?}");
    }
}

#[test]
fn a_bad_block_is_named_as_the_volume_counts() {
    let mut rig = Rig::bare();
    rig.engine.add_disk(DiskId(0), Some(native()), FuaPolicy::Native, false);
    rig.volume(0, &[(0, 10, 0, 100), (10, 10, 0, 500)]);
    rig.submit(1, read(5, 10));
    rig.end(1, Status::MediumError { lba: Lba(503) });
    rig.end(0, Status::Good);
    assert_eq!(rig.status(1), Some(Status::MediumError { lba: Lba(13) }));
    rig.submit(2, read(5, 2));
    rig.end_only(Status::MediumError { lba: Lba(7) });
    assert_eq!(rig.status(2), Some(Status::MediumError { lba: Lba(5) }), "outside the piece: its first block");
}

#[test]
fn the_first_error_stays_and_no_more_pieces_are_sent_after_it() {
    let mut rig = Rig::new(&[DiskInfo { max_transfer: 1, ..native() }]);
    rig.submit(1, write(0, 100));
    rig.end(3, Status::NoSpace);
    rig.end(0, Status::Busy);
    rig.settle();
    assert_eq!((rig.status(1), rig.sent.len()), (Some(Status::NoSpace), 32));
    assert_eq!(rig.stats(0).undurable, 30);
    rig.assert_at_rest();
}

#[test]
fn writes_to_a_read_only_volume_are_refused() {
    let mut rig = Rig::new(&[native(), DiskInfo { read_only: true, ..native() }]);
    for (tag, op) in [write(0, 1), zeroes(0, 1, false), unmap(0, 8), or_write(0, 1, false)].into_iter().enumerate() {
        rig.submit(tag as u64, op);
        assert_eq!(rig.status(tag as u64), Some(Status::WriteProtected), "{op:?}");
    }
    rig.run(10, read(0, 1));
    rig.run(11, Op::Flush);
}

#[test]
fn an_unknown_volume_is_not_ready() {
    let mut rig = Rig::new(&[native()]);
    rig.submit_to(9, 1, read(0, 1));
    assert_eq!(rig.status(1), Some(Status::NotReady));
    assert!(rig.engine.volume_info(VolumeId(9)).is_none() && rig.engine.volume_stats(VolumeId(9)).is_none());
    assert!(rig.engine.disk_stats(DiskId(9)).is_none());
}

#[test]
fn a_refused_volume_changes_nothing() {
    let mut rig = Rig::new(&[native()]);
    let segment = |volume_lba, disk_lba| Segment {
        volume_lba: Lba(volume_lba),
        count: 10,
        disk: DiskId(0),
        disk_lba: Lba(disk_lba),
    };
    let refused = |rig: &mut Rig, id, list| rig.engine.add_volume(VolumeId(id), list).unwrap_err();
    assert_eq!(refused(&mut rig, 0, vec![segment(0, 2000)]), MapError::VolumeExists);
    assert_eq!(refused(&mut rig, 1, vec![segment(0, 2000), segment(10, 995)]), MapError::Overlaps { index: 1 });
    assert!(rig.engine.volume_info(VolumeId(1)).is_none());
    rig.volume(1, &[(0, 10, 0, 2000)]);
}

#[test]
fn one_op_too_many_is_busy_and_other_volumes_are_not() {
    let mut rig = Rig::new(&[native()]);
    rig.volume(1, &[(0, 10, 0, 1000)]);
    let most = u64::from(MAX_OPS_PER_VOLUME);
    for tag in 0..most {
        rig.submit(tag, read(tag % 1000, 1));
    }
    assert!(rig.done.is_empty());
    rig.submit(most, read(0, 1));
    rig.submit(most + 1, Op::Flush);
    assert_eq!(rig.done, [(most, Status::Busy), (most + 1, Status::Busy)]);
    rig.abort(0);
    rig.submit(most + 2, read(0, 1));
    assert_eq!(rig.status(most + 2), Some(Status::Busy), "an aborted read keeps its place until its disk is through");
    rig.submit_to(1, most + 3, read(0, 1));
    assert_eq!(rig.status(most + 3), None);
    rig.end(0, Status::Good);
    rig.submit(most + 4, read(0, 1));
    assert_eq!(rig.status(most + 4), None);
}

#[test]
fn the_engine_as_a_whole_is_limited_too() {
    let mut rig = Rig::new(&[native()]);
    let volumes = MAX_OPS as u64 / u64::from(MAX_OPS_PER_VOLUME);
    for volume in 1..=volumes {
        rig.volume(volume as u32, &[(0, 10, 0, 1000 + 10 * volume)]);
    }
    for tag in 0..MAX_OPS as u64 {
        rig.submit_to((tag % volumes) as u32, tag, read(0, 1));
    }
    assert!(rig.done.is_empty());
    rig.submit_to(volumes as u32, MAX_OPS as u64, read(0, 1));
    assert_eq!(rig.done, [(MAX_OPS as u64, Status::Busy)]);
}

#[test]
fn a_tag_may_be_used_again_once_it_has_ended() {
    let mut rig = Rig::new(&[native()]);
    rig.run(1, read(0, 1));
    rig.done.clear();
    rig.submit(1, read(0, 1));
    rig.abort(1);
    rig.done.clear();
    rig.submit(1, write(0, 1)); // the disk still works on the aborted read
    rig.end(0, Status::Good);
    assert!(rig.done.is_empty());
    rig.end_only(Status::Good);
    assert_eq!(rig.done, [(1, Status::Good)]);
    rig.assert_at_rest();
}

#[test]
#[should_panic(expected = "in flight already")]
fn a_tag_in_flight_twice_is_a_bug() {
    let mut rig = Rig::new(&[native()]);
    rig.submit(1, read(0, 1));
    rig.submit(1, read(0, 1));
}

#[test]
#[should_panic(expected = "ends once")]
fn a_disk_op_that_ends_twice_is_a_bug() {
    let mut rig = Rig::new(&[native()]);
    rig.submit(1, read(0, 2));
    let io = rig.open[0].io;
    rig.end_only(Status::Good);
    rig.handle(Input::Completed { io, status: Status::Good, report: None });
}

fn extent(lba: u64, count: u32, mapped: bool) -> Extent {
    Extent { lba: Lba(lba), count: BlockCount(count), mapped }
}

/// Ends the only open disk op with these extents.
fn end_with(rig: &mut Rig, extents: &[Extent]) {
    assert_eq!(rig.open.len(), 1);
    let sent = rig.open.remove(0);
    let report = Some(Box::new(Report::Extents(extents.to_vec())));
    rig.handle(Input::Completed { io: sent.io, status: Status::Good, report });
}

#[test]
fn block_status_is_translated_and_joined_over_segments() {
    let mut rig = Rig::bare();
    rig.engine.add_disk(DiskId(0), Some(native()), FuaPolicy::Native, false);
    rig.volume(0, &[(0, 10, 0, 100), (10, 10, 0, 500)]);
    rig.submit(1, block_status(5, 12));
    assert_eq!(shape(&rig), [(0, 105, 5, 0)], "piece by piece");
    end_with(&mut rig, &[extent(105, 2, true), extent(107, 3, false)]);
    end_with(&mut rig, &[extent(500, 4, false), extent(504, 100, true)]);
    assert_eq!(rig.done, [(1, Status::Good)]);
    let expected = vec![extent(5, 2, true), extent(7, 7, false), extent(14, 3, true)];
    assert_eq!(rig.reports, [(1, Report::Extents(expected))]);
    rig.assert_at_rest();
}

#[test]
fn a_short_or_garbled_block_status_ends_the_answer_and_is_never_called_unmapped() {
    for (found, expected) in [
        (vec![extent(0, 4, false)], extent(0, 4, false)),
        (vec![extent(0, 4, false), extent(5, 1, false)], extent(0, 4, false)),
        (vec![extent(0, 4, false), extent(4, 0, false), extent(4, 4, false)], extent(0, 4, false)),
        (vec![extent(3, 4, false)], extent(0, 10, true)),
        (vec![], extent(0, 10, true)),
    ] {
        let mut rig = Rig::new(&[native()]);
        rig.submit(1, block_status(0, 10));
        end_with(&mut rig, &found);
        assert_eq!(rig.reports, [(1, Report::Extents(vec![expected]))], "{found:?}");
        rig.assert_at_rest();
    }
}

#[test]
fn a_block_status_answer_is_bounded() {
    let mut rig = Rig::new(&[DiskInfo { blocks: 1 << 20, ..native() }]);
    rig.volume(1, &[(0, 100_000, 0, 2000)]);
    rig.submit_to(1, 1, block_status(0, 100_000));
    let found: Vec<_> = (0..5000).map(|n| extent(2000 + n, 1, n % 2 == 0)).collect();
    end_with(&mut rig, &found);
    let Report::Extents(extents) = &rig.reports[0].1;
    assert_eq!(extents.len(), 1024);
    rig.assert_at_rest();
}

#[test]
fn counters_count_what_was_sent_and_what_ended() {
    let mut rig = Rig::new(&[DiskInfo { max_transfer: 4, ..native() }]);
    rig.run(1, read(0, 8));
    rig.run(2, fua_write(0, 8));
    rig.run(3, write(0, 1));
    rig.run(4, Op::Flush);
    rig.submit(5, read(2000, 1));
    rig.handle(Input::Submit { tag: Tag(6), volume: VolumeId(0), op: read(0, 1) });
    rig.end_only(Status::MediumError { lba: Lba(0) });
    rig.submit(7, read(0, 1));
    rig.abort(7);
    let disk = rig.stats(0);
    assert_eq!((disk.reads, disk.blocks_read, disk.writes, disk.blocks_written), (4, 10, 3, 9));
    assert_eq!((disk.fua_native, disk.fua_emulated, disk.errors, disk.in_flight), (2, 0, 1, 1));
    let volume = rig.engine.volume_stats(VolumeId(0)).unwrap();
    assert_eq!((volume.reads, volume.blocks_read, volume.writes, volume.blocks_written), (1, 8, 2, 9));
    assert_eq!((volume.flushes, volume.errors, volume.aborted, volume.in_flight), (1, 2, 1, 1));
}

#[test]
fn buffers_are_named_as_the_submitter_named_them() {
    let mut rig = Rig::new(&[native()]);
    let op = Op::Read { lba: Lba(3), count: BlockCount(2), buf: BufId(77) };
    rig.submit(1, op);
    assert_eq!(rig.open[0].op, DiskOp::Read { lba: Lba(3), count: BlockCount(2), buf: BufId(77), at: 0 });
}
