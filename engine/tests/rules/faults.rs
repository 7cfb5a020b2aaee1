//! Failed flushes and poisoned disks (F3, pitfall P4); lost, attached and reset disks (F6).

use platter_block::{DiskId, DiskInfo, DiskOp, Fua, Lba, Op, Status, Tag, VolumeId};
use platter_engine::{FuaPolicy, Input, Output};

use crate::rig::*;

const EIO: Status = Status::MediumError { lba: Lba(0) };

fn poisoned(disk: u32) -> Output {
    Output::Poisoned { disk: DiskId(disk) }
}

fn changed(volume: u32) -> Output {
    Output::VolumeChanged { volume: VolumeId(volume) }
}

/// A rig whose disk 0 is poisoned by a failed flush of volume 0.
fn poisoned_rig(disks: &[DiskInfo]) -> Rig {
    let mut rig = Rig::new(disks);
    rig.run(1, write(0, 1));
    rig.submit(2, Op::Flush);
    rig.end_flush(0, EIO);
    assert_eq!(rig.status(2), Some(Status::DurabilityLost));
    rig
}

#[test]
fn p4_f3_a_failed_flush_fails_its_group_and_everything_queued_behind_it() {
    let mut rig = Rig::new(&[no_fua()]);
    rig.volume(1, &[(0, 10, 0, 1000)]);
    rig.run(1, write(0, 1));
    rig.submit(2, Op::Flush);
    rig.submit(3, Op::Flush); // shares the running one
    rig.submit_to(1, 4, write(0, 1));
    rig.end(1, Status::Good);
    rig.submit_to(1, 5, Op::Flush); // waits for the next
    rig.submit(6, fua_write(1, 1));
    rig.end(1, Status::Good); // now waits for the next
    rig.end_flush(0, EIO);
    for tag in [2, 3, 5, 6] {
        assert_eq!(rig.status(tag), Some(Status::DurabilityLost), "op {tag}");
    }
    assert_eq!(rig.told, [poisoned(0)]);
    assert_eq!(rig.flushes(0), 1, "what was queued behind is not sent");
    let flush = rig.stats(0).flush;
    assert_eq!((flush.requested, flush.issued, flush.joined, flush.refused, flush.failed), (4, 1, 1, 2, 1));
    rig.assert_at_rest();
}

#[test]
fn f3_the_fault_is_told_before_the_ops_that_fail_by_it() {
    let mut rig = Rig::new(&[no_fua()]);
    rig.run(1, write(0, 1));
    rig.submit(2, Op::Flush);
    let sent = rig.open.remove(0);
    rig.handle_only(Input::Completed { io: sent.io, status: EIO, report: None });
    assert_eq!(rig.engine.poll_output(), Some(poisoned(0)), "so that the owner stores the mark first");
}

#[test]
fn p4_f3_poison_sticks_to_the_disk_for_every_volume_and_plain_ops_go_on() {
    let mut rig = poisoned_rig(&[native(), native()]);
    rig.volume(1, &[(0, 10, 0, 1000)]);
    for (tag, op) in [(10, Op::Flush), (11, fua_write(0, 1)), (12, zeroes(0, 8, true)), (13, or_write(0, 1, true))] {
        rig.submit(tag, op);
        rig.submit_to(1, tag + 10, op);
        assert_eq!(rig.status(tag), Some(Status::DurabilityLost), "{op:?}");
        assert_eq!(rig.status(tag + 10), Some(Status::DurabilityLost), "{op:?} on a volume that lost nothing");
    }
    assert!(rig.open.is_empty(), "nothing was sent");
    rig.run(30, write(0, 1));
    rig.run(31, read(0, 1));
    rig.run(32, unmap(0, 8));
    rig.run(33, fua_write(1000, 1)); // the other disk
    rig.submit(34, fua_write(999, 2)); // both disks
    assert_eq!(rig.status(34), Some(Status::DurabilityLost));
    assert_eq!(rig.told, [poisoned(0)], "told once");
    rig.assert_at_rest();
}

#[test]
fn f3_a_flush_over_two_disks_still_flushes_the_healthy_one_and_reports_the_loss() {
    let mut rig = poisoned_rig(&[no_fua(), no_fua()]);
    rig.run(3, write(1000, 1));
    rig.submit(4, Op::Flush);
    assert_eq!((rig.flushes(1), rig.status(4)), (1, None));
    rig.end_flush(1, Status::Good);
    assert_eq!(rig.status(4), Some(Status::DurabilityLost));
}

#[test]
fn f3_after_the_fault_is_cleared_the_next_flush_is_sent() {
    let mut rig = poisoned_rig(&[no_fua()]);
    rig.handle(Input::ClearFault { disk: DiskId(0) });
    assert_eq!(rig.told, [poisoned(0), Output::Healed { disk: DiskId(0) }]);
    rig.submit(3, Op::Flush);
    assert_eq!((rig.status(3), rig.flushes(0)), (None, 2), "the failed flush made nothing durable");
    rig.end_flush(0, Status::Good);
    rig.run(4, Op::Flush);
    assert_eq!(rig.flushes(0), 2, "the second flush did");
    rig.run(6, fua_write(0, 1));
    rig.assert_at_rest();
}

#[test]
fn f3_what_a_good_flush_covered_before_the_fault_stays_durable() {
    let mut rig = Rig::new(&[no_fua()]);
    rig.volume(1, &[(0, 10, 0, 1000)]);
    rig.run(1, write(0, 1));
    rig.run(2, Op::Flush);
    rig.run_on(1, 3, write(0, 1));
    rig.submit_to(1, 4, Op::Flush);
    rig.end_flush(0, EIO);
    rig.handle(Input::ClearFault { disk: DiskId(0) });
    rig.submit(5, Op::Flush);
    assert_eq!((rig.status(5), rig.flushes(0)), (Some(Status::Good), 2), "elided");
    rig.submit_to(1, 6, Op::Flush);
    assert_eq!((rig.status(6), rig.flushes(0)), (None, 3), "sent");
}

#[test]
fn f3_a_flush_that_ran_into_a_fault_proves_nothing_even_if_it_ends_well() {
    let mut rig = Rig::new(&[native()]);
    rig.run(1, write(0, 1));
    rig.submit(2, fua_write(1, 1));
    rig.submit(3, Op::Flush);
    rig.end(0, Status::DurabilityLost); // the FUA write; it may have taken write 1 along
    rig.handle(Input::ClearFault { disk: DiskId(0) });
    rig.submit(4, Op::Flush);
    rig.end_flush(0, Status::Good);
    assert_eq!((rig.status(3), rig.status(4)), (Some(Status::DurabilityLost), None));
    rig.end_flush(0, Status::Good);
    assert_eq!(rig.status(4), Some(Status::Good), "sent after the operator took the loss");
    rig.assert_at_rest();
}

#[test]
fn f3_a_flush_that_fails_again_after_clearing_poisons_again() {
    let mut rig = poisoned_rig(&[no_fua()]);
    rig.handle(Input::ClearFault { disk: DiskId(0) });
    rig.submit(3, Op::Flush);
    rig.end_flush(0, EIO);
    assert_eq!(rig.status(3), Some(Status::DurabilityLost));
    assert_eq!(rig.told, [poisoned(0), Output::Healed { disk: DiskId(0) }, poisoned(0)]);
}

#[test]
fn f3_a_stored_mark_survives_a_restart_and_clearing_a_healthy_disk_does_nothing() {
    let mut rig = Rig::bare();
    rig.engine.add_disk(DiskId(0), Some(no_fua()), FuaPolicy::Native, true);
    rig.engine.add_disk(DiskId(1), Some(no_fua()), FuaPolicy::Native, false);
    rig.volume(0, &[(0, 10, 0, 0)]);
    rig.handle(Input::ClearFault { disk: DiskId(1) });
    rig.handle(Input::ClearFault { disk: DiskId(7) });
    rig.submit(1, Op::Flush);
    assert_eq!(rig.status(1), Some(Status::DurabilityLost));
    assert!(rig.told.is_empty() && rig.sent.is_empty());
    rig.handle(Input::ClearFault { disk: DiskId(0) });
    rig.submit(2, Op::Flush);
    assert_eq!(rig.flushes(0), 1, "nothing is known of what was written before");
}

#[test]
fn f3_every_error_of_a_flush_is_a_loss() {
    for status in [EIO, Status::NoSpace, Status::Gone, Status::WriteProtected, Status::Unsupported, Status::Aborted] {
        let mut rig = Rig::new(&[no_fua()]);
        rig.run(1, write(0, 1));
        rig.submit(2, Op::Flush);
        rig.end_flush(0, status);
        assert_eq!((rig.status(2), rig.stats(0).poisoned), (Some(Status::DurabilityLost), true), "{status:?}");
    }
}

#[test]
fn f3_a_flush_that_was_not_given_to_the_disk_is_busy_and_loses_nothing() {
    let mut rig = Rig::new(&[no_fua()]);
    rig.run(1, write(0, 1));
    rig.submit(2, Op::Flush);
    rig.end_flush(0, Status::Busy);
    assert_eq!(rig.status(2), Some(Status::Busy));
    rig.submit(3, fua_write(1, 1));
    rig.end_only(Status::Good);
    rig.end_flush(0, Status::Busy);
    assert_eq!(rig.status(3), Some(Status::Busy), "landed, not durable");
    assert_eq!((rig.stats(0).undurable, rig.stats(0).poisoned), (2, false));
    rig.run(4, Op::Flush);
    assert_eq!(rig.flushes(0), 3);
    assert!(rig.told.is_empty());
    rig.assert_at_rest();
}

#[test]
fn f3_a_fua_write_whose_disk_could_not_keep_it_poisons_and_a_bad_block_does_not() {
    let mut rig = Rig::new(&[native()]);
    rig.submit(1, fua_write(0, 1));
    rig.end_only(EIO);
    assert!(!rig.stats(0).poisoned, "only that block");
    rig.submit(2, fua_write(0, 1));
    rig.end_only(Status::DurabilityLost);
    assert_eq!((rig.status(2), rig.stats(0).poisoned), (Some(Status::DurabilityLost), true));
}

#[test]
fn f3_a_fua_write_that_waited_for_its_range_is_refused_when_the_disk_was_poisoned_meanwhile() {
    let mut rig = Rig::new(&[no_fua()]);
    rig.run(1, write(0, 1));
    rig.submit(2, compare_and_write(8, 1, false));
    rig.submit(3, fua_write(8, 1));
    rig.submit(4, Op::Flush);
    rig.end_flush(0, EIO);
    rig.settle();
    assert_eq!((rig.status(2), rig.status(3)), (Some(Status::Good), Some(Status::DurabilityLost)));
    rig.assert_at_rest();
}

#[test]
fn f3_a_write_that_began_before_a_fault_was_cleared_is_part_of_the_loss() {
    for (op, tag) in [(fua_write(990, 20), 10), (write(990, 20), 11)] {
        let mut rig = Rig::new(&[no_fua(), no_fua()]);
        rig.run(1, write(0, 1));
        rig.submit(tag, op);
        rig.end(0, Status::Good); // its piece on disk 0 lands
        rig.submit(2, Op::Flush);
        rig.end_flush(0, EIO); // and is lost
        rig.handle(Input::ClearFault { disk: DiskId(0) });
        rig.end_only(Status::Good); // its piece on disk 1 lands
        assert_eq!(rig.status(tag), Some(Status::DurabilityLost), "{op:?}");
        assert_eq!((rig.flushes(0), rig.flushes(1)), (1, 0), "a flush now would prove nothing");
        rig.run(3, op);
        rig.assert_at_rest();
    }
}

#[test]
fn f3_no_flush_is_sent_to_a_missing_disk_when_its_fault_is_cleared_meanwhile() {
    let mut rig = Rig::new(&[no_fua(), no_fua()]);
    rig.submit(1, fua_write(990, 20));
    rig.end(0, Status::Good); // its piece on disk 0 lands
    rig.handle(Input::DiskLost { disk: DiskId(0) }); // and is lost
    rig.handle(Input::ClearFault { disk: DiskId(0) });
    rig.end_only(Status::Good);
    assert_eq!((rig.status(1), rig.flushes(0)), (Some(Status::DurabilityLost), 0));
    rig.assert_at_rest();
}

#[test]
fn f3_an_aborted_flush_still_decides_for_the_disk() {
    let mut rig = Rig::new(&[no_fua()]);
    rig.run(1, write(0, 1));
    rig.submit(2, Op::Flush);
    rig.abort(2);
    assert_eq!(rig.status(2), Some(Status::Aborted));
    rig.end_flush(0, EIO);
    assert!(rig.stats(0).poisoned);
    rig.assert_at_rest();
}

#[test]
fn f6_a_reset_flushes_once_and_forgets_every_claim() {
    let mut rig = Rig::new(&[no_fua()]);
    rig.volume(1, &[(0, 10, 0, 1000)]);
    rig.run(1, write(0, 1));
    rig.run(2, Op::Flush);
    rig.handle(Input::DiskReset { disk: DiskId(0), info: no_fua() });
    assert_eq!(rig.flushes(0), 2);
    rig.submit_to(1, 3, Op::Flush);
    assert_eq!((rig.status(3), rig.flushes(0)), (None, 2), "not elided: joins the flush of the reset");
    rig.end_flush(0, Status::Good);
    assert_eq!(rig.status(3), Some(Status::Good));
    rig.run(4, Op::Flush);
    assert_eq!(rig.flushes(0), 2);
    assert!(rig.told.is_empty());
    rig.assert_at_rest();
}

#[test]
fn f6_a_flush_sent_before_the_reset_does_not_cover_what_is_asked_after_it() {
    let mut rig = Rig::new(&[no_fua()]);
    rig.run(1, write(0, 1));
    rig.submit(2, Op::Flush);
    rig.handle(Input::DiskReset { disk: DiskId(0), info: no_fua() });
    rig.submit(3, Op::Flush);
    rig.end_flush(0, Status::Good);
    assert_eq!((rig.status(2), rig.status(3)), (Some(Status::Good), None));
    rig.end_flush(0, Status::Good);
    assert_eq!((rig.status(3), rig.flushes(0)), (Some(Status::Good), 2));
    rig.assert_at_rest();
}

#[test]
fn f6_a_fua_claim_from_before_a_reset_is_void() {
    let mut rig = Rig::new(&[native()]);
    rig.submit(1, fua_write(0, 1));
    rig.handle(Input::DiskReset { disk: DiskId(0), info: no_fua() });
    rig.end_flush(0, Status::Good);
    rig.end_only(Status::Good);
    assert_eq!((rig.status(1), rig.flushes(0)), (None, 2), "made durable by a flush");
    rig.end_flush(0, Status::Good);
    assert_eq!(rig.status(1), Some(Status::Good));
    rig.run(2, fua_write(0, 1));
    assert_eq!(rig.flushes(0), 3, "the info was read anew");
    rig.assert_at_rest();
}

#[test]
fn f6_a_piece_made_before_a_reset_and_handed_out_after_it_follows_the_new_info() {
    let mut rig = Rig::new(&[native()]);
    rig.handle_only(Input::Submit { tag: Tag(1), volume: VolumeId(0), op: fua_write(0, 1) });
    rig.handle_only(Input::DiskReset { disk: DiskId(0), info: no_fua() });
    rig.drain();
    rig.end_flush(0, Status::Good);
    assert!(matches!(rig.open[0].op, DiskOp::Write { fua: false, .. }), "no FUA for a disk that has none");
    rig.end_only(Status::Good);
    assert_eq!((rig.status(1), rig.flushes(0)), (None, 2));
    rig.end_flush(0, Status::Good);
    assert_eq!(rig.status(1), Some(Status::Good));
    rig.assert_at_rest();
}

#[test]
fn f6_a_change_of_the_disks_write_cache_flushes_once_and_is_told() {
    let mut rig = Rig::new(&[no_fua()]);
    rig.run(1, write(0, 1));
    rig.handle(Input::DiskReset { disk: DiskId(0), info: no_cache() });
    assert_eq!((rig.flushes(0), &rig.told[..]), (1, &[changed(0)][..]));
    rig.end_flush(0, Status::Good);
    rig.run(2, write(0, 1));
    rig.run(3, Op::Flush);
    assert_eq!(rig.flushes(0), 1, "no cache, nothing to flush");
    rig.handle(Input::DiskReset { disk: DiskId(0), info: no_cache() });
    assert_eq!(rig.flushes(0), 1);
    rig.handle(Input::DiskReset { disk: DiskId(0), info: no_fua() });
    assert_eq!(rig.flushes(0), 2);
}

#[test]
fn f6_a_failed_flush_of_a_reset_poisons() {
    let mut rig = Rig::new(&[no_fua()]);
    rig.handle(Input::DiskReset { disk: DiskId(0), info: no_fua() });
    rig.end_flush(0, EIO);
    assert_eq!(rig.told, [poisoned(0)]);
    rig.assert_at_rest();
}

#[test]
fn a_volume_on_a_missing_disk_is_not_ready_until_the_disk_is_attached() {
    let mut rig = Rig::bare();
    rig.engine.add_disk(DiskId(0), Some(no_fua()), FuaPolicy::Native, false);
    rig.engine.add_disk(DiskId(1), None, FuaPolicy::Native, false);
    rig.volume(0, &[(0, 10, 0, 0), (10, 10, 1, 0)]);
    rig.volume(1, &[(0, 10, 0, 10)]);
    for (tag, op) in [(1, Op::Flush), (2, read(0, 1)), (3, write(0, 1)), (4, Op::SetWriteCache { enabled: false })] {
        rig.submit(tag, op);
        assert_eq!(rig.status(tag), Some(Status::NotReady), "{op:?}");
    }
    assert_eq!((rig.stats(1).flush.refused, rig.stats(0).flush.requested), (1, 0));
    rig.run_on(1, 5, write(0, 1));
    rig.handle(Input::DiskAttached { disk: DiskId(1), info: no_fua() });
    assert_eq!(rig.told, [changed(0)]);
    assert_eq!((rig.flushes(0), rig.flushes(1)), (0, 1), "F6: flushes once");
    rig.settle();
    rig.run(6, write(0, 20));
    rig.run(7, Op::Flush);
    rig.assert_at_rest();
}

#[test]
fn f6_a_disk_lost_with_nothing_in_its_cache_comes_back_clean() {
    let mut rig = Rig::new(&[no_fua()]);
    rig.run(1, fua_write(0, 1));
    rig.handle(Input::DiskLost { disk: DiskId(0) });
    rig.handle(Input::DiskLost { disk: DiskId(0) });
    rig.submit(2, Op::Flush);
    assert_eq!(rig.status(2), Some(Status::NotReady));
    assert!(!rig.engine.volume_info(VolumeId(0)).unwrap().ready && !rig.stats(0).present);
    rig.handle(Input::DiskAttached { disk: DiskId(0), info: no_fua() });
    assert_eq!(rig.flushes(0), 2);
    rig.submit(3, Op::Flush);
    assert_eq!(rig.status(3), None, "not elided");
    rig.settle();
    assert_eq!((rig.status(3), rig.flushes(0)), (Some(Status::Good), 2));
    assert_eq!(rig.told, [changed(0), changed(0)]);
    rig.assert_at_rest();
}

#[test]
fn f6_f3_acknowledged_writes_in_the_cache_of_a_lost_disk_are_lost() {
    let mut rig = Rig::new(&[no_fua()]);
    rig.run(1, write(0, 1));
    rig.handle(Input::DiskLost { disk: DiskId(0) });
    assert_eq!(rig.told, [poisoned(0), changed(0)]);
    rig.handle(Input::DiskAttached { disk: DiskId(0), info: no_fua() });
    rig.submit(2, Op::Flush);
    assert_eq!(rig.status(2), Some(Status::DurabilityLost), "a flush now would prove nothing");
    assert_eq!(rig.flushes(0), 0);
    rig.handle(Input::ClearFault { disk: DiskId(0) });
    rig.run(3, Op::Flush);
    assert_eq!(rig.flushes(0), 1);
    rig.assert_at_rest();
}

#[test]
fn f6_a_disk_replaced_in_place_is_a_lost_one_and_a_new_one() {
    let mut rig = Rig::new(&[no_fua()]);
    rig.run(1, write(0, 1));
    rig.submit(2, read(0, 1));
    rig.handle(Input::DiskAttached { disk: DiskId(0), info: no_fua() });
    assert!(rig.stats(0).poisoned);
    rig.end_only(Status::Good);
    assert_eq!(rig.status(2), Some(Status::Gone), "what the old disk said does not count");
}

#[test]
fn what_is_in_flight_when_a_disk_is_lost_ends_gone_once_and_leaves_nothing_behind() {
    for late in [Status::Gone, Status::Good] {
        let mut rig = Rig::new(&[DiskInfo { max_transfer: 1, ..no_fua() }]);
        rig.submit(1, read(0, 4));
        rig.submit(2, write(8, 100)); // more pieces than go out at once
        rig.submit(3, fua_write(200, 1));
        rig.submit(4, compare_and_write(300, 1, false));
        rig.submit(5, read(300, 1)); // waits
        rig.submit(6, block_status(400, 10));
        rig.handle(Input::DiskLost { disk: DiskId(0) });
        while !rig.open.is_empty() {
            rig.end(0, late);
        }
        for tag in [1, 2, 3, 4, 6] {
            assert_eq!(rig.status(tag), Some(Status::Gone), "op {tag}");
        }
        assert_eq!(rig.status(5), Some(Status::NotReady));
        assert_eq!(rig.stats(0).undurable, 0, "a late success proves nothing");
        rig.assert_at_rest();
    }
}

#[test]
fn what_was_not_handed_out_when_a_disk_is_lost_never_is() {
    let mut rig = Rig::new(&[no_fua()]);
    rig.handle_only(Input::Submit { tag: Tag(1), volume: VolumeId(0), op: write(0, 1) });
    rig.handle_only(Input::DiskLost { disk: DiskId(0) });
    rig.drain();
    assert!(rig.sent.is_empty());
    assert_eq!(rig.status(1), Some(Status::Gone));
    rig.assert_at_rest();
}

#[test]
fn a_flush_in_flight_when_its_disk_is_lost_fails_with_all_that_waited() {
    let mut rig = Rig::new(&[no_fua()]);
    rig.run(1, write(0, 1));
    rig.submit(2, Op::Flush);
    rig.submit(3, write(1, 1));
    rig.end(1, Status::Good);
    rig.submit(4, Op::Flush);
    rig.handle(Input::DiskLost { disk: DiskId(0) });
    assert_eq!((rig.status(2), rig.status(4)), (None, Some(Status::DurabilityLost)));
    rig.end_only(Status::Gone);
    assert_eq!(rig.status(2), Some(Status::DurabilityLost));
    assert_eq!(rig.told, [poisoned(0), changed(0)]);
    rig.assert_at_rest();
}

#[test]
fn a_flush_that_outlives_its_disk_does_not_end_the_flush_of_the_next() {
    let mut rig = Rig::new(&[no_fua()]);
    rig.run(1, fua_write(0, 1));
    rig.handle(Input::DiskReset { disk: DiskId(0), info: no_fua() }); // its flush runs
    rig.handle(Input::DiskLost { disk: DiskId(0) });
    rig.handle(Input::ClearFault { disk: DiskId(0) });
    rig.handle(Input::DiskAttached { disk: DiskId(0), info: no_fua() });
    rig.submit(2, Op::Flush);
    assert_eq!(rig.open.iter().filter(|sent| sent.op == DiskOp::Flush).count(), 1, "one at a time");
    rig.end_flush(0, Status::Good);
    assert_eq!(rig.status(2), Some(Status::DurabilityLost), "queued behind one that failed");
    rig.assert_at_rest();
}

#[test]
fn an_unknown_disk_is_ignored() {
    let mut rig = Rig::new(&[native()]);
    let disk = DiskId(9);
    rig.handle(Input::DiskLost { disk });
    rig.handle(Input::DiskAttached { disk, info: native() });
    rig.handle(Input::DiskReset { disk, info: native() });
    assert!(rig.told.is_empty() && rig.sent.is_empty());
}

#[test]
fn f9_what_a_disk_says_after_a_reset_is_told_to_the_protocols() {
    let mut rig = Rig::new(&[no_fua()]);
    rig.handle(Input::DiskReset { disk: DiskId(0), info: DiskInfo { fua: Fua::Native, ..no_fua() } });
    assert!(rig.told.is_empty(), "FUA is promised either way");
    rig.handle(Input::DiskReset { disk: DiskId(0), info: DiskInfo { read_only: true, ..no_fua() } });
    assert_eq!(rig.told, [changed(0)]);
    rig.submit(1, write(0, 1));
    assert_eq!(rig.status(1), Some(Status::WriteProtected));
}
