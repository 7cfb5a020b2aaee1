//! Flushes: when they are sent, shared, not needed (F1, F2, F4, F5, F7, F8, F9; pitfalls P1, P2, P3, P5, P7, P8, P9, P10).

use platter_block::{BlockCount, BufId, DiskId, DiskInfo, DiskOp, Fua, Lba, Op, Status, Tag, VolumeId};
use platter_engine::{FuaPolicy, Input, Output};

use crate::rig::*;

fn is_fua(op: DiskOp) -> bool {
    matches!(op, DiskOp::Write { fua: true, .. })
}

#[test]
fn a_hundred_fua_writes_each_with_a_flush_cost_no_flush_on_a_disk_with_fua() {
    let mut rig = Rig::new(&[native()]);
    for n in 0..100 {
        rig.run(2 * n, fua_write(n, 1));
        rig.run(2 * n + 1, Op::Flush);
    }
    assert_eq!(rig.flushes(0), 0);
    assert!(rig.sent.iter().all(|sent| is_fua(sent.op)));
    let stats = rig.stats(0);
    assert_eq!((stats.flush.requested, stats.flush.elided, stats.fua_native), (100, 100, 100));
    rig.assert_at_rest();
}

#[test]
fn a_hundred_fua_writes_each_with_a_flush_cost_a_hundred_flushes_on_a_disk_without_fua() {
    let mut rig = Rig::new(&[no_fua()]);
    for n in 0..100 {
        rig.run(2 * n, fua_write(n, 1));
        rig.run(2 * n + 1, Op::Flush);
    }
    assert_eq!(rig.flushes(0), 100);
    assert!(!rig.sent.iter().any(|sent| is_fua(sent.op)));
    let stats = rig.stats(0);
    assert_eq!((stats.flush.requested, stats.flush.elided, stats.fua_emulated), (200, 100, 100));
    rig.assert_at_rest();
}

#[test]
fn a_flush_of_a_volume_that_wrote_nothing_is_elided() {
    let mut rig = Rig::new(&[no_fua(), native()]);
    rig.submit(1, Op::Flush);
    assert_eq!(rig.done, [(1, Status::Good)]);
    assert!(rig.sent.is_empty());
}

#[test]
fn one_flush_for_a_volume_of_many_segments_on_one_disk() {
    for segments in [64, 1024] {
        let mut rig = Rig::bare();
        rig.engine.add_disk(DiskId(0), Some(no_fua()), FuaPolicy::Native, false);
        let list: Vec<_> = (0..segments).map(|n| (n, 1, 0, 2 * n)).collect();
        rig.volume(0, &list);
        rig.run(1, write(0, segments as u32));
        rig.run(2, Op::Flush);
        assert_eq!(rig.flushes(0), 1);
        assert_eq!(rig.stats(0).flush.requested, 1);
        rig.assert_at_rest();
    }
}

#[test]
fn sixteen_volumes_that_flush_together_cost_one_disk_at_most_two_flushes() {
    let setup = || {
        let mut rig = Rig::new(&[no_fua()]);
        for n in 1..16_u32 {
            rig.volume(n, &[(0, 10, 0, 1000 + 10 * u64::from(n))]);
        }
        for n in 0..16 {
            rig.run_on(n, u64::from(n), write(0, 1));
        }
        rig
    };
    let flush = |n: u32| Input::Submit { tag: Tag(100 + u64::from(n)), volume: VolumeId(n), op: Op::Flush };

    let mut drained_between = setup();
    (0..16).for_each(|n| drained_between.handle(flush(n)));
    drained_between.settle();
    // The first flush covers them all: they all wrote before it was sent.
    assert_eq!(drained_between.flushes(0), 1);

    let mut in_one_turn = setup();
    (0..16).for_each(|n| in_one_turn.handle_only(flush(n)));
    in_one_turn.drain();
    in_one_turn.settle();
    assert_eq!(in_one_turn.flushes(0), 1);

    for mut rig in [drained_between, in_one_turn] {
        // Again, each with a write that completes after the flush of the one before was sent.
        for n in 0..16_u32 {
            rig.submit_to(n, 200 + u64::from(n), write(0, 1));
            rig.end(rig.open.len() - 1, Status::Good);
            rig.submit_to(n, 300 + u64::from(n), Op::Flush);
        }
        rig.settle();
        assert_eq!(rig.flushes(0), 1 + 2);
        assert!(rig.done.iter().all(|&(_, status)| status == Status::Good));
        rig.assert_at_rest();
    }
}

#[test]
fn p1_f1_the_snapshot_is_taken_when_the_flush_is_sent_not_when_it_is_asked_for() {
    let mut rig = Rig::new(&[no_fua()]);
    rig.volume(1, &[(0, 10, 0, 1000)]);
    rig.run(1, write(0, 1));
    rig.submit(2, Op::Flush); // runs
    rig.submit_to(1, 3, write(0, 1));
    rig.end(1, Status::Good);
    rig.submit_to(1, 4, Op::Flush); // waits for the next
    rig.submit(5, write(1, 1));
    rig.end(1, Status::Good); // completed after the request of 4, before its flush is sent
    rig.end_flush(0, Status::Good);
    assert_eq!(rig.status(2), Some(Status::Good));
    rig.end_flush(0, Status::Good);
    assert_eq!(rig.status(4), Some(Status::Good));
    rig.submit(6, Op::Flush);
    assert_eq!(rig.status(6), Some(Status::Good), "elided: the second flush covered write 5");
    assert_eq!(rig.flushes(0), 2);
}

#[test]
fn p2_f1_a_write_acknowledged_while_a_flush_runs_belongs_to_the_next() {
    let mut rig = Rig::new(&[no_fua()]);
    rig.run(1, write(0, 1));
    rig.submit(2, Op::Flush);
    rig.submit(3, write(1, 1));
    rig.end(1, Status::Good);
    rig.end_flush(0, Status::Good);
    assert_eq!((rig.status(2), rig.status(3)), (Some(Status::Good), Some(Status::Good)));
    assert_eq!(rig.stats(0).undurable, 1);
    rig.submit(4, Op::Flush);
    assert_eq!(rig.status(4), None, "not elided");
    rig.settle();
    assert_eq!(rig.flushes(0), 2);
    rig.assert_at_rest();
}

#[test]
fn p2_f1_a_write_in_flight_when_the_flush_is_sent_is_not_covered() {
    let mut rig = Rig::new(&[no_fua()]);
    rig.run(1, write(0, 1));
    rig.submit(2, write(1, 1)); // sent before the flush
    rig.submit(3, Op::Flush);
    rig.end(0, Status::Good); // completed after it
    rig.end_flush(0, Status::Good);
    rig.run(4, Op::Flush);
    assert_eq!(rig.flushes(0), 2);
}

#[test]
fn p3_f2_a_late_flush_does_not_join_a_running_one_that_does_not_cover_it() {
    let mut rig = Rig::new(&[no_fua()]);
    rig.run(1, write(0, 1));
    rig.submit(2, Op::Flush);
    rig.submit(3, write(1, 1));
    rig.end(1, Status::Good);
    rig.submit(4, Op::Flush);
    rig.submit(5, Op::Flush);
    assert_eq!(rig.flushes(0), 1, "one runs at a time");
    rig.end_flush(0, Status::Good);
    assert_eq!((rig.status(2), rig.status(4), rig.status(5)), (Some(Status::Good), None, None));
    rig.end_flush(0, Status::Good);
    assert_eq!((rig.status(4), rig.status(5)), (Some(Status::Good), Some(Status::Good)));
    let flush = rig.stats(0).flush;
    assert_eq!((flush.requested, flush.issued, flush.joined, flush.elided), (3, 2, 1, 0));
    rig.assert_at_rest();
}

#[test]
fn f2_a_flush_joins_a_running_one_that_covers_it() {
    let mut rig = Rig::new(&[no_fua()]);
    rig.run(1, write(0, 1));
    rig.submit(2, Op::Flush);
    rig.submit(3, Op::Flush);
    rig.end_flush(0, Status::Good);
    assert_eq!(rig.done[1..], [(2, Status::Good), (3, Status::Good)]);
    assert_eq!(rig.flushes(0), 1);
}

#[test]
fn f1_a_flush_is_not_answered_before_the_disk_has_answered() {
    let mut rig = Rig::new(&[no_fua()]);
    rig.run(1, write(0, 1));
    rig.submit(2, Op::Flush);
    rig.submit(3, Op::Flush);
    assert_eq!((rig.status(2), rig.status(3)), (None, None), "sent is not durable");
}

#[test]
fn f1_a_flush_submitted_as_soon_as_a_write_is_answered_is_not_elided() {
    let mut rig = Rig::new(&[no_fua()]);
    rig.submit(1, write(0, 1));
    let sent = rig.open.remove(0);
    rig.handle_only(Input::Completed { io: sent.io, status: Status::Good, report: None });
    // The first output after the completion is the answer; the submitter reacts to it at once.
    assert_eq!(rig.engine.poll_output(), Some(Output::Done { tag: Tag(1), status: Status::Good, report: None }));
    rig.submit(2, Op::Flush);
    assert_eq!((rig.flushes(0), rig.status(2)), (1, None));
}

#[test]
fn a_fua_write_without_native_fua_is_plain_pieces_then_one_flush_after_the_last() {
    let mut rig = Rig::new(&[eight_at_a_time(no_fua())]);
    rig.submit(1, fua_write(0, 24));
    assert_eq!(rig.open.len(), 3, "three pieces of 8");
    rig.end(2, Status::Good);
    rig.end(0, Status::Good);
    assert_eq!(rig.flushes(0), 0, "a piece is still out");
    rig.end(0, Status::Good);
    assert_eq!(rig.status(1), None, "not durable yet");
    rig.end_flush(0, Status::Good);
    assert_eq!(rig.status(1), Some(Status::Good));
    assert_eq!((rig.flushes(0), rig.stats(0).fua_emulated), (1, 1));
    rig.assert_at_rest();
}

#[test]
fn fua_writes_that_end_in_one_turn_share_one_flush() {
    let mut rig = Rig::new(&[no_fua()]);
    for n in 0..8 {
        rig.submit(n, fua_write(n, 1));
    }
    for sent in std::mem::take(&mut rig.open) {
        rig.handle_only(Input::Completed { io: sent.io, status: Status::Good, report: None });
    }
    rig.drain();
    rig.end_flush(0, Status::Good);
    assert_eq!((rig.done.len(), rig.flushes(0)), (8, 1));
    let flush = rig.stats(0).flush;
    assert_eq!((flush.requested, flush.issued, flush.joined), (8, 1, 7));
}

#[test]
fn p5_a_fua_write_over_two_disks_uses_fua_on_one_and_a_flush_on_the_other() {
    let mut rig = Rig::new(&[native(), no_fua()]);
    rig.submit(1, fua_write(990, 20));
    assert_eq!(rig.open.iter().map(|sent| (sent.disk, is_fua(sent.op))).collect::<Vec<_>>(), [(0, true), (1, false)]);
    rig.end(1, Status::Good);
    assert_eq!(rig.flushes(1), 0, "after all pieces");
    rig.end(0, Status::Good);
    assert_eq!((rig.flushes(0), rig.flushes(1), rig.status(1)), (0, 1, None));
    rig.end_flush(1, Status::Good);
    assert_eq!(rig.status(1), Some(Status::Good));
    rig.assert_at_rest();
}

#[test]
fn p5_f4_one_failed_piece_fails_a_fua_write_and_what_landed_is_still_owed() {
    let mut rig = Rig::new(&[no_fua(), no_fua()]);
    rig.submit(1, fua_write(990, 20));
    rig.end(0, Status::Good);
    rig.end(0, Status::MediumError { lba: Lba(3) });
    assert_eq!(rig.done, [(1, Status::MediumError { lba: Lba(1003) })]);
    assert_eq!((rig.flushes(0), rig.flushes(1)), (0, 0), "no durability to promise");
    assert_eq!((rig.stats(0).undurable, rig.stats(1).undurable), (1, 0));
    rig.run(2, Op::Flush);
    assert_eq!((rig.flushes(0), rig.flushes(1)), (1, 0), "the piece that landed");
    rig.assert_at_rest();
}

#[test]
fn p5_a_failed_flush_on_one_of_two_disks_fails_the_write_after_both_have_ended() {
    let mut rig = Rig::new(&[no_fua(), no_fua()]);
    rig.submit(1, fua_write(990, 20));
    rig.end(0, Status::Good);
    rig.end(0, Status::Good);
    rig.end_flush(0, Status::MediumError { lba: Lba(0) });
    assert_eq!(rig.status(1), None);
    rig.end_flush(1, Status::Good);
    assert_eq!(rig.status(1), Some(Status::DurabilityLost));
    assert!(rig.stats(0).poisoned && !rig.stats(1).poisoned);
}

#[test]
fn a_flush_goes_to_every_disk_with_undurable_data_and_to_no_other() {
    let mut rig = Rig::new(&[no_fua(), no_fua(), no_fua(), no_cache()]);
    rig.run(1, write(0, 1));
    rig.run(2, write(2000, 1));
    rig.run(3, write(3000, 1));
    rig.submit(4, Op::Flush);
    assert_eq!([0, 1, 2, 3].map(|disk| rig.flushes(disk)), [1, 0, 1, 0]);
    rig.end_flush(2, Status::Good);
    assert_eq!(rig.status(4), None);
    rig.end_flush(0, Status::Good);
    assert_eq!(rig.status(4), Some(Status::Good));
    rig.assert_at_rest();
}

#[test]
fn native_fua_says_nothing_about_older_plain_writes() {
    let mut rig = Rig::new(&[native()]);
    rig.run(1, write(0, 1));
    rig.run(2, fua_write(1, 1));
    rig.run(3, Op::Flush);
    assert_eq!(rig.flushes(0), 1);
}

#[test]
fn p7_f5_everything_that_changes_the_medium_is_owed_a_flush() {
    let caw = compare_and_write(0, 1, false);
    for op in [write(0, 1), zeroes(0, 8, false), unmap(0, 8), caw, or_write(0, 1, false)] {
        let mut rig = Rig::new(&[native()]);
        rig.run(1, op);
        assert_eq!((rig.flushes(0), rig.stats(0).undurable), (0, 1), "{op:?}");
        rig.run(2, Op::Flush);
        assert_eq!(rig.flushes(0), 1, "{op:?}");
        rig.assert_at_rest();
    }
    for op in [read(0, 1), block_status(0, 1)] {
        let mut rig = Rig::new(&[native()]);
        rig.run(1, op);
        rig.run(2, Op::Flush);
        assert_eq!(rig.flushes(0), 0, "{op:?}");
    }
}

#[test]
fn f5_a_fua_form_is_native_where_the_disk_has_one_and_a_flush_where_it_has_not() {
    // Zeroes have no FUA form on a disk.
    for (op, on_native) in
        [(fua_write(0, 1), 0), (compare_and_write(0, 1, true), 0), (or_write(0, 1, true), 0), (zeroes(0, 8, true), 1)]
    {
        for (info, flushes) in [(native(), on_native), (no_fua(), 1), (no_cache(), 0)] {
            let mut rig = Rig::new(std::slice::from_ref(&info));
            rig.run(1, op);
            assert_eq!(rig.flushes(0), flushes, "{op:?} on {info:?}");
            assert_eq!(rig.stats(0).undurable, 0, "{op:?} on {info:?}");
        }
    }
}

#[test]
fn p8_elision_is_per_volume_and_the_numbers_are_per_disk() {
    let mut rig = Rig::new(&[no_fua()]);
    rig.volume(1, &[(0, 10, 0, 1000)]);
    rig.run(1, write(0, 1));
    rig.submit_to(1, 2, Op::Flush);
    assert_eq!((rig.status(2), rig.flushes(0)), (Some(Status::Good), 0), "volume 1 owes nothing");
    rig.run_on(1, 3, write(0, 1));
    rig.run_on(1, 4, Op::Flush);
    assert_eq!(rig.flushes(0), 1);
    rig.submit(5, Op::Flush);
    assert_eq!((rig.status(5), rig.flushes(0)), (Some(Status::Good), 1), "volume 1's flush covered volume 0");
}

#[test]
fn p8_a_segment_carries_what_its_disk_owes_into_a_new_volume() {
    let mut rig = Rig::new(&[no_fua()]);
    rig.run(1, write(0, 1));
    rig.volume(1, &[(0, 10, 0, 1000)]);
    rig.run_on(1, 2, Op::Flush);
    assert_eq!(rig.flushes(0), 1);
}

#[test]
fn p9_flushes_that_come_while_one_runs_are_grouped() {
    let mut rig = Rig::new(&[no_fua()]);
    for n in 0..100 {
        rig.submit(2 * n, write(n, 1));
        let newest = rig.open.len() - 1;
        rig.end(newest, Status::Good);
        rig.submit(2 * n + 1, Op::Flush);
    }
    rig.settle();
    assert_eq!((rig.done.len(), rig.flushes(0)), (200, 2));
    rig.assert_at_rest();
}

#[test]
fn p10_f7_a_steady_stream_of_fua_writes_does_not_postpone_a_flush() {
    let mut rig = Rig::new(&[no_fua()]);
    // Sixteen FUA writes are always in flight; each that ends is followed by another.
    let mut next = 1000;
    for _ in 0..16 {
        rig.submit(next, fua_write(next % 900, 1));
        next += 1;
    }
    rig.end(0, Status::Good); // a flush runs
    rig.volume(1, &[(0, 10, 0, 1000)]);
    rig.submit_to(1, 1, write(0, 1));
    rig.end(rig.open.len() - 1, Status::Good);
    rig.submit_to(1, 2, Op::Flush);
    for round in 1..=2 {
        for _ in 0..100 {
            let write = rig.open.iter().position(|sent| sent.op != DiskOp::Flush).unwrap();
            rig.end(write, Status::Good);
            rig.submit(next, fua_write(next % 900, 1));
            next += 1;
        }
        assert_eq!(rig.status(2), None);
        rig.end_flush(0, Status::Good);
        assert_eq!(rig.status(2).is_some(), round == 2, "after flush {round}");
    }
}

#[test]
fn f7_a_flush_is_handed_out_before_anything_that_waits_in_the_queue() {
    let mut rig = Rig::new(&[no_fua()]);
    rig.run(1, write(0, 1));
    rig.handle_only(Input::Submit { tag: Tag(2), volume: VolumeId(0), op: read(0, 1) });
    rig.handle_only(Input::Submit { tag: Tag(3), volume: VolumeId(0), op: Op::Flush });
    rig.step();
    assert_eq!(rig.open[0].op, DiskOp::Flush);
}

#[test]
fn f8_the_policy_decides_what_is_sent() {
    // (policy, volatile cache, native FUA) -> (FUA sent, flushes of a FUA write, flushes of a plain write and a flush)
    let expected = [
        (FuaPolicy::Native, true, true, (true, 0, 1)),
        (FuaPolicy::Native, true, false, (false, 1, 1)),
        (FuaPolicy::Native, false, true, (false, 0, 0)),
        (FuaPolicy::Emulate, true, true, (false, 1, 1)),
        (FuaPolicy::Emulate, false, true, (false, 0, 0)),
        (FuaPolicy::Distrust, true, true, (false, 1, 1)),
        (FuaPolicy::Distrust, false, true, (false, 1, 1)),
        (FuaPolicy::Distrust, false, false, (false, 1, 1)),
    ];
    for (policy, volatile_cache, fua, (sends, of_fua_write, of_flush)) in expected {
        let case = format!("{policy:?}, cache {volatile_cache}, FUA {fua}");
        let fua = if fua { Fua::Native } else { Fua::None };
        let info = DiskInfo { volatile_cache, fua, ..native() };
        let mut rig = Rig::with_policy(std::slice::from_ref(&info), policy);
        rig.run(1, fua_write(0, 1));
        assert_eq!((is_fua(rig.sent[0].op), rig.flushes(0)), (sends, of_fua_write), "{case}");
        let mut rig = Rig::with_policy(&[info], policy);
        rig.run(1, write(0, 1));
        rig.run(2, Op::Flush);
        assert_eq!(rig.flushes(0), of_flush, "{case}");
    }
}

#[test]
fn f9_without_the_write_cache_every_write_is_durable_before_its_answer() {
    for op in [write(0, 1), zeroes(0, 8, false), unmap(0, 8), compare_and_write(0, 1, false), or_write(0, 1, false)] {
        for info in [native(), no_fua()] {
            let mut rig = Rig::new(&[info]);
            rig.run(1, Op::SetWriteCache { enabled: false });
            rig.run(2, op);
            assert_eq!(rig.stats(0).undurable, 0, "{op:?}");
            rig.run(3, Op::SetWriteCache { enabled: true });
            rig.run(4, op);
            assert_eq!(rig.stats(0).undurable, 1, "{op:?}");
        }
    }
}

#[test]
fn f9_without_the_write_cache_a_disk_with_fua_needs_no_flush() {
    let mut rig = Rig::new(&[native()]);
    rig.run(1, Op::SetWriteCache { enabled: false });
    let flushes = rig.flushes(0);
    rig.run(2, write(0, 1));
    assert!(is_fua(rig.sent.last().unwrap().op));
    assert_eq!(rig.flushes(0), flushes);
}

#[test]
fn f9_switching_the_write_cache_off_ends_when_earlier_writes_are_durable_and_is_told() {
    let mut rig = Rig::new(&[native(), no_fua()]);
    rig.run(1, write(0, 1));
    rig.submit(2, write(1, 1)); // in flight while the cache is switched off
    rig.submit(3, Op::SetWriteCache { enabled: false });
    assert_eq!((rig.flushes(0), rig.flushes(1)), (1, 1), "F6: really sent");
    assert_eq!(rig.told, [Output::VolumeChanged { volume: VolumeId(0) }]);
    let info = rig.engine.volume_info(VolumeId(0)).unwrap();
    assert!(!info.write_cache && info.write_cache_changeable);
    rig.end_flush(0, Status::Good);
    assert_eq!(rig.status(3), None);
    rig.end_flush(1, Status::Good);
    assert_eq!(rig.status(3), Some(Status::Good));
    rig.end_only(Status::Good); // write 2 was sent without FUA
    assert_eq!(rig.status(2), None, "from now on no answer before durability");
    rig.end_flush(0, Status::Good);
    assert_eq!(rig.status(2), Some(Status::Good));
    rig.run(4, Op::SetWriteCache { enabled: false });
    assert_eq!((rig.flushes(0), rig.flushes(1)), (2, 1), "no change, nothing owed");
    rig.run(5, Op::SetWriteCache { enabled: true });
    assert_eq!(rig.told.len(), 2);
    rig.assert_at_rest();
}

#[test]
fn f9_a_volume_without_a_volatile_cache_has_no_write_cache_to_switch_on() {
    let mut rig = Rig::new(&[no_cache()]);
    rig.submit(1, Op::SetWriteCache { enabled: true });
    assert_eq!(rig.status(1), Some(Status::Unsupported));
    rig.run(2, Op::SetWriteCache { enabled: false });
    assert!(rig.sent.is_empty() && rig.told.is_empty());
}

#[test]
fn f9_write_cache_settings_of_volumes_on_one_disk_do_not_mix() {
    let mut rig = Rig::new(&[no_fua()]);
    rig.volume(1, &[(0, 10, 0, 1000)]);
    rig.run(1, Op::SetWriteCache { enabled: false });
    let flushes = rig.flushes(0);
    rig.run_on(1, 2, write(0, 1));
    assert_eq!(rig.flushes(0), flushes);
    rig.run_on(0, 3, write(0, 1));
    assert_eq!(rig.flushes(0), flushes + 1);
}

#[test]
fn an_op_of_no_blocks_asks_nothing_of_the_disk() {
    let nothing = BlockCount(0);
    for op in [
        read(1000, 0),
        fua_write(1000, 0),
        zeroes(1000, 0, true),
        unmap(1000, 0),
        block_status(1000, 0),
        or_write(0, 0, true),
        Op::CompareAndWrite { lba: Lba(0), count: nothing, fua: true, buf: BufId(0) },
    ] {
        let mut rig = Rig::new(&[no_fua()]);
        rig.submit(1, op);
        assert_eq!(rig.done, [(1, Status::Good)], "{op:?}");
        assert!(rig.sent.is_empty() && rig.questions.is_empty());
        rig.assert_at_rest();
    }
}

/// A disk that takes 8 blocks at a time.
fn eight_at_a_time(info: DiskInfo) -> DiskInfo {
    DiskInfo { max_transfer: 8, ..info }
}
