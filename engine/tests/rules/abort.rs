//! Pitfall P14: abort at every point of every command.
//!
//! For each op, on each kind of disk: submit it, take outputs one at a time, end disk ops as they come, and abort after the
//! n-th step, for every n until the op ends by itself. In the middle of a turn as well: with outputs still in the engine.

use platter_block::{DiskInfo, DiskOp, Op, Status, Tag, VolumeId};
use platter_engine::{ABORT_GRACE, Input};

use crate::rig::*;

/// What is done between the submission and the abort: one output is taken, or else the oldest disk op ends, or else a
/// question is answered. False if there is nothing to do.
fn one_step(rig: &mut Rig) -> bool {
    if rig.step() {
        return true;
    }
    if !rig.open.is_empty() {
        let sent = rig.open.remove(0);
        rig.handle_only(Input::Completed { io: sent.io, status: Status::Good, report: None });
        return true;
    }
    if let Some(question) = rig.questions.pop() {
        match question {
            platter_engine::Output::Compare { io, .. } => rig.handle_only(Input::Compared { io, differs_at: None }),
            platter_engine::Output::Combine { io, .. } => rig.handle_only(Input::Combined { io }),
            other => panic!("{other:?} is no question"),
        }
        return true;
    }
    false
}

fn writes(sent: &[Sent]) -> usize {
    let is_write =
        |sent: &&Sent| matches!(sent.op, DiskOp::Write { .. } | DiskOp::WriteZeroes { .. } | DiskOp::Unmap { .. });
    sent.iter().filter(is_write).count()
}

/// Aborts `op` after `steps` steps. Returns whether it was still in flight then.
fn abort_after(disks: &[DiskInfo], op: Op, steps: usize, stuck: bool) -> bool {
    let case = format!("{op:?}, abort after {steps} steps, stuck {stuck}");
    let mut rig = Rig::new(disks);
    rig.run(1, write(0, 1)); // something to flush
    let before = rig.sent.len();
    rig.handle_only(Input::Submit { tag: Tag(2), volume: VolumeId(0), op });
    for _ in 0..steps {
        if !one_step(&mut rig) {
            assert!(rig.status(2).is_some(), "{case}: it ends by itself");
            return false;
        }
    }
    if rig.status(2).is_some() {
        return false;
    }
    let sent_before_abort = rig.sent.len();
    let writing = writes(&rig.open);
    rig.abort(2);

    // Nothing of it is handed out any more, except a flush: that belongs to the disk.
    let later = &rig.sent[sent_before_abort..];
    assert!(later.iter().all(|sent| sent.op == DiskOp::Flush), "{case}: {later:?}");
    if writing == 0 {
        assert!(rig.status(2).is_some(), "{case}: nothing can touch the medium, so it ends at once");
    } else {
        assert_eq!(rig.status(2), None, "{case}: a piece can still touch the medium");
    }
    if stuck && writing > 0 {
        rig.advance(ABORT_GRACE);
        assert_eq!(rig.status(2), Some(Status::Aborted), "{case}");
        rig.submit(3, read(0, 1001));
        let reads = |rig: &Rig| rig.sent.iter().filter(|sent| matches!(sent.op, DiskOp::Read { .. })).count();
        let reads_before = reads(&rig);
        while let Some(write) = rig.open.iter().position(|sent| writes(&[*sent]) == 1) {
            assert_eq!(reads(&rig), reads_before, "{case}: the fence holds");
            rig.end(write, Status::Good);
        }
        assert!(reads(&rig) > reads_before, "{case}: the fence is lifted");
    }
    rig.settle();
    let status = rig.status(2).unwrap();
    assert!(status == Status::Aborted || status == Status::Good, "{case}: {status:?}");

    // What landed is owed a flush if the disk keeps it in a cache, whatever was told. Only `op` writes to disk 1.
    let plain = |sent: &&Sent| sent.disk == 1 && !matches!(sent.op, DiskOp::Write { fua: true, .. });
    let plain: Vec<Sent> = rig.sent[before..].iter().filter(plain).copied().collect();
    rig.run(4, Op::Flush);
    if writes(&plain) > 0 {
        assert!(rig.flushes(1) > 0, "{case}: owed a flush");
    } else if !matches!(op, Op::SetWriteCache { .. }) {
        assert_eq!(rig.flushes(1), 0, "{case}: owed nothing");
    }
    rig.run(5, write(0, 1001)); // no fence, no lock is left
    rig.assert_at_rest();
    true
}

#[test]
fn p14_abort_at_every_point_of_every_command_ends_it_once_and_leaves_nothing_behind() {
    let small = |info: DiskInfo| DiskInfo { max_transfer: 2, ..info };
    let ops = [
        read(997, 8),
        write(997, 8),
        fua_write(997, 8),
        zeroes(997, 8, false),
        zeroes(997, 8, true),
        unmap(997, 8),
        compare_and_write(997, 8, false),
        compare_and_write(997, 8, true),
        or_write(997, 8, false),
        or_write(997, 8, true),
        block_status(997, 8),
        Op::Flush,
        Op::SetWriteCache { enabled: false },
        Op::SetWriteCache { enabled: true },
    ];
    let mut points = 0;
    for disks in
        [[small(no_fua()), small(no_fua())], [small(native()), small(no_fua())], [small(native()), small(native())]]
    {
        for op in ops {
            for stuck in [false, true] {
                let mut steps = 0;
                while abort_after(&disks, op, steps, stuck) {
                    steps += 1;
                    points += 1;
                }
                assert!(steps > 0, "{op:?} can be aborted somewhere");
            }
        }
    }
    assert!(points > 500, "{points} points");
}

#[test]
fn p14_an_abort_that_comes_too_late_or_means_nobody_is_ignored() {
    let mut rig = Rig::new(&[native()]);
    rig.run(1, write(0, 1));
    rig.abort(1);
    rig.abort(99);
    assert_eq!(rig.done, [(1, Status::Good)]);
    // The answer is in the engine and not taken yet.
    rig.submit(2, write(0, 1));
    let sent = rig.open.remove(0);
    rig.handle_only(Input::Completed { io: sent.io, status: Status::Good, report: None });
    rig.abort(2);
    assert_eq!(rig.status(2), Some(Status::Good));
    rig.assert_at_rest();
}

#[test]
fn p14_an_aborted_flush_does_not_take_the_flush_from_those_who_share_it() {
    let mut rig = Rig::new(&[no_fua()]);
    rig.run(1, write(0, 1));
    rig.handle_only(Input::Submit { tag: Tag(2), volume: VolumeId(0), op: Op::Flush });
    rig.handle_only(Input::Submit { tag: Tag(3), volume: VolumeId(0), op: Op::Flush });
    rig.abort(2);
    assert_eq!((rig.status(2), rig.status(3)), (Some(Status::Aborted), None));
    rig.end_flush(0, Status::Good);
    assert_eq!(rig.status(3), Some(Status::Good));
    rig.assert_at_rest();
}

#[test]
fn p14_an_aborted_waiter_keeps_its_place_until_the_flush_ends_so_that_waiters_are_bounded() {
    let mut rig = Rig::new(&[no_fua()]);
    rig.run(1, write(0, 1));
    for tag in 10..20 {
        rig.submit(tag, Op::Flush);
        rig.abort(tag);
    }
    assert_eq!(rig.engine.volume_stats(VolumeId(0)).unwrap().in_flight, 10);
    rig.end_flush(0, Status::Good);
    rig.assert_at_rest();
}
