//! Exclusive ops, and the fences that aborted writes leave on a stuck disk.

use std::time::Duration;

use platter_block::{DiskInfo, DiskOp, Lba, Op, Status, VolumeId};
use platter_engine::{ABORT_GRACE, Input, Output};

use crate::rig::*;

fn fences(rig: &Rig) -> u32 {
    rig.engine.volume_stats(VolumeId(0)).unwrap().fences
}

#[test]
fn compare_and_write_reads_compares_and_writes_if_equal() {
    let mut rig = Rig::new(&[native()]);
    rig.submit(1, compare_and_write(8, 2, true));
    assert!(matches!(rig.open[..], [Sent { op: DiskOp::Read { .. }, .. }]));
    rig.end_only(Status::Good);
    assert!(matches!(rig.questions[..], [Output::Compare { left_at: 0, right_at: 2048, len: 1024, .. }]));
    rig.answer();
    assert!(matches!(rig.open[..], [Sent { op: DiskOp::Write { fua: true, lba: Lba(8), .. }, .. }]));
    rig.end_only(Status::Good);
    assert_eq!(rig.done, [(1, Status::Good)]);
    rig.assert_at_rest();
}

#[test]
fn compare_and_write_writes_nothing_where_the_bytes_differ() {
    let mut rig = Rig::new(&[native()]);
    rig.submit(1, compare_and_write(8, 2, true));
    rig.end_only(Status::Good);
    let Output::Compare { io, .. } = rig.questions.remove(0) else { panic!("a compare") };
    rig.handle(Input::Compared { io, differs_at: Some(513) });
    assert_eq!(rig.done, [(1, Status::MiscompareAt { offset: 513 })]);
    assert_eq!(rig.sent.len(), 1);
    rig.assert_at_rest();
}

#[test]
fn compare_and_write_fails_as_its_read_does() {
    let mut rig = Rig::new(&[native()]);
    rig.submit(1, compare_and_write(8, 2, true));
    rig.end_only(Status::MediumError { lba: Lba(9) });
    assert_eq!(rig.done, [(1, Status::MediumError { lba: Lba(9) })]);
    assert_eq!((rig.sent.len(), rig.questions.len()), (1, 0));
    rig.assert_at_rest();
}

#[test]
fn or_write_reads_combines_and_writes() {
    let mut rig = Rig::new(&[no_fua()]);
    rig.submit(1, or_write(8, 2, true));
    rig.end_only(Status::Good);
    assert!(matches!(rig.questions[..], [Output::Combine { into_at: 1024, from_at: 0, len: 1024, .. }]));
    rig.answer();
    rig.end_only(Status::Good);
    assert_eq!(rig.status(1), None);
    rig.end_flush(0, Status::Good);
    assert_eq!(rig.done, [(1, Status::Good)]);
    rig.assert_at_rest();
}

#[test]
fn two_compare_and_writes_of_one_block_run_one_after_the_other() {
    let mut rig = Rig::new(&[no_fua()]);
    rig.submit(1, compare_and_write(8, 1, true));
    rig.submit(2, compare_and_write(8, 1, true));
    rig.end_only(Status::Good);
    rig.answer();
    rig.end_only(Status::Good);
    assert_eq!(rig.sent.len(), 3, "read, write, flush of the first");
    rig.end_flush(0, Status::Good);
    assert_eq!(rig.status(1), Some(Status::Good));
    assert!(matches!(rig.open[..], [Sent { op: DiskOp::Read { .. }, .. }]), "only now the second reads");
    rig.settle();
    assert_eq!(rig.status(2), Some(Status::Good));
    rig.assert_at_rest();
}

#[test]
fn an_exclusive_op_waits_for_what_is_in_flight_and_later_ops_wait_for_it() {
    for exclusive in [compare_and_write(8, 2, false), or_write(8, 2, false)] {
        for other in [read(9, 1), write(7, 2), zeroes(0, 100, false), unmap(8, 1), block_status(9, 8)] {
            let mut rig = Rig::new(&[native()]);
            rig.submit(1, other);
            rig.submit(2, exclusive);
            rig.submit(3, other);
            rig.submit(4, read(200, 1));
            rig.submit(5, Op::Flush);
            assert_eq!(rig.sent.len(), 2, "{other:?}: the first, and the one that does not overlap");
            assert_eq!(rig.status(5), Some(Status::Good), "a flush has no range");
            rig.end(0, Status::Good);
            assert!(matches!(rig.open.last(), Some(Sent { op: DiskOp::Read { lba: Lba(8), .. }, .. })));
            rig.settle();
            assert_eq!(rig.done.iter().filter(|&&(_, status)| status == Status::Good).count(), 5);
            let order: Vec<_> = rig.done.iter().map(|&(tag, _)| tag).filter(|tag| [1, 2, 3].contains(tag)).collect();
            assert_eq!(order, [1, 2, 3]);
            rig.assert_at_rest();
        }
    }
}

#[test]
fn exclusive_ops_of_other_volumes_do_not_wait() {
    let mut rig = Rig::new(&[native()]);
    rig.volume(1, &[(0, 100, 0, 1000)]);
    rig.submit(1, compare_and_write(8, 1, false));
    rig.submit_to(1, 2, compare_and_write(8, 1, false));
    assert_eq!(rig.open.len(), 2);
}

#[test]
fn an_aborted_write_ends_when_its_disk_is_through_with_what_was_sent() {
    let mut rig = Rig::new(&[DiskInfo { max_transfer: 1, ..native() }]);
    rig.submit(1, write(0, 40));
    rig.abort(1);
    rig.abort(1);
    assert_eq!(rig.status(1), None);
    for _ in 0..31 {
        rig.end(0, Status::Good);
    }
    assert_eq!(rig.status(1), None, "one piece can still change the medium");
    rig.end_only(Status::Good);
    assert_eq!(rig.status(1), Some(Status::Aborted));
    assert_eq!(rig.sent.len(), 32, "the rest was dropped");
    assert_eq!(rig.stats(0).undurable, 32, "what landed is owed a flush");
    rig.assert_at_rest();
}

#[test]
fn ops_that_overlap_an_aborted_write_wait_until_its_disk_is_through() {
    let mut rig = Rig::new(&[native()]);
    rig.submit(1, write(0, 8));
    rig.abort(1);
    rig.submit(2, write(7, 1));
    rig.submit(3, read(8, 1));
    assert_eq!(rig.open.len(), 2, "only the one beside it was sent");
    rig.end(0, Status::Good);
    assert_eq!((rig.status(1), rig.open.len()), (Some(Status::Aborted), 2));
    rig.settle();
    rig.assert_at_rest();
}

#[test]
fn a_stuck_disk_lets_the_abort_end_after_the_grace_behind_a_fence() {
    let mut rig = Rig::new(&[native()]);
    rig.submit(1, write(0, 8));
    rig.abort(1);
    assert_eq!(rig.engine.poll_timeout(), Some(rig.now + ABORT_GRACE));
    rig.advance(ABORT_GRACE - Duration::from_nanos(1));
    assert_eq!(rig.status(1), None);
    rig.advance(Duration::from_nanos(1));
    assert_eq!((rig.status(1), fences(&rig)), (Some(Status::Aborted), 1));
    assert_eq!(rig.engine.poll_timeout(), None);
    // The tag is free again, and the abort of it means the new op.
    rig.done.clear();
    rig.submit(1, read(100, 1));
    rig.abort(1);
    assert_eq!(rig.status(1), Some(Status::Aborted));
    for (tag, op) in [(2, read(0, 1)), (3, fua_write(7, 1)), (4, compare_and_write(0, 1, false)), (5, unmap(0, 8))] {
        rig.submit(tag, op);
    }
    rig.submit(6, Op::Flush);
    assert_eq!(rig.status(6), Some(Status::Good), "a flush sees no block");
    rig.submit(7, read(8, 1));
    assert_eq!(rig.open.len(), 3, "the stuck write, the aborted read and the read beside the fence");
    rig.advance(Duration::from_secs(3600));
    assert_eq!(rig.open.len(), 3, "no time lifts a fence");
    rig.end(0, Status::Good); // the stuck write lands at last
    assert_eq!(fences(&rig), 0);
    assert_eq!(rig.stats(0).undurable, 1, "it is owed a flush like any other");
    rig.settle();
    for tag in 2..8 {
        assert_eq!(rig.status(tag), Some(Status::Good), "op {tag}");
    }
    rig.assert_at_rest();
}

#[test]
fn a_fence_is_lifted_by_a_failed_or_gone_piece_too() {
    for status in [Status::Gone, Status::MediumError { lba: Lba(0) }] {
        let mut rig = Rig::new(&[native()]);
        rig.submit(1, write(0, 8));
        rig.abort(1);
        rig.advance(ABORT_GRACE);
        rig.submit(2, read(0, 1));
        rig.end_only(status);
        rig.settle();
        assert_eq!(rig.status(2), Some(Status::Good));
        rig.assert_at_rest();
    }
}

#[test]
fn an_op_that_waits_for_a_fence_can_be_aborted_at_once() {
    let mut rig = Rig::new(&[native()]);
    rig.submit(1, write(0, 8));
    rig.abort(1);
    rig.submit(2, write(0, 8));
    rig.abort(2);
    assert_eq!(rig.done, [(2, Status::Aborted)]);
    rig.settle();
    rig.assert_at_rest();
}

#[test]
fn graces_end_in_order_and_only_those_that_are_needed() {
    let mut rig = Rig::new(&[native()]);
    rig.submit(1, write(0, 1));
    rig.submit(2, write(8, 1));
    rig.submit(3, write(16, 1));
    rig.abort(1);
    rig.advance(Duration::from_millis(100));
    rig.abort(2);
    rig.abort(3);
    rig.end(0, Status::Good);
    assert_eq!(rig.engine.poll_timeout(), Some(rig.now + ABORT_GRACE), "the first has ended");
    rig.end(0, Status::Good);
    rig.advance(ABORT_GRACE);
    assert_eq!(rig.done, [(1, Status::Aborted), (2, Status::Aborted), (3, Status::Aborted)]);
    rig.settle();
    rig.assert_at_rest();
}

#[test]
fn an_exclusive_op_aborted_before_its_write_makes_room_at_once() {
    for has_read in [false, true] {
        let mut rig = Rig::new(&[native()]);
        rig.submit(1, compare_and_write(0, 1, false));
        rig.submit(2, write(0, 1));
        if has_read {
            rig.end(0, Status::Good); // read; now it compares
        }
        rig.abort(1);
        assert_eq!(rig.status(1), Some(Status::Aborted), "read: {has_read}");
        assert!(matches!(rig.open.last(), Some(Sent { op: DiskOp::Write { .. }, .. })), "read: {has_read}");
        rig.settle();
        assert_eq!(rig.sent.len(), 2, "the aborted one never wrote");
        rig.assert_at_rest();
    }
}
