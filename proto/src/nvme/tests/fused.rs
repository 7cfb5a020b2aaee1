//! Compare and Write as one.

use platter_block::{BlockCount, BufPool, Lba, Op, Status as OpStatus};

use super::rig::*;
use crate::nvme::Status;

const MISSING: u16 = 0x00a;
const FAILED: u16 = 0x009;

fn first(lba: u64, data: &[u8]) -> Cmd {
    compare(lba, data).fuse(1)
}

fn second(lba: u64, data: &[u8]) -> Cmd {
    write(lba, data).fuse(2)
}

fn code(rig: &mut Rig, session: Session, cid: u16) -> u16 {
    rig.reply_to(session.io, cid).status.0 & 0x7ff
}

#[test]
fn the_two_become_one_op_with_one_buffer() {
    let mut rig = Rig::new();
    let session = rig.session();
    let (old, new) = (pattern(1024, 1), pattern(1024, 2));
    rig.ask(session.io, &write(4, &old));
    let (a, b) = (rig.send(session.io, &first(4, &old)), rig.send(session.io, &second(4, &new)));
    assert!(matches!(rig.last_op(), Op::CompareAndWrite { lba: Lba(4), count: BlockCount(2), fua: false, .. }));
    let order: Vec<u16> = rig.replies.iter().map(|(_, r)| r.cid).collect();
    assert_eq!(order, [a, b]);
    assert_eq!((code(&mut rig, session, a), code(&mut rig, session, b)), (0, 0));
    assert_eq!(rig.medium(1, 4, 1024), new);
    let cdw12 = 1 | 1 << 30;
    rig.send(session.io, &first(4, &new));
    rig.send(session.io, &second(4, &old).cdw(12, cdw12));
    assert!(matches!(rig.last_op(), Op::CompareAndWrite { fua: true, .. }), "FUA of the Write");
    rig.wind_up();
}

#[test]
fn a_miscompare_fails_both_and_writes_nothing() {
    let mut rig = Rig::new();
    let session = rig.session();
    let (a, b) =
        (rig.send(session.io, &first(0, &pattern(512, 1))), rig.send(session.io, &second(0, &pattern(512, 2))));
    assert_eq!(rig.reply_to(session.io, a).status, Status::new(2, 0x85));
    assert_eq!(code(&mut rig, session, b), FAILED);
    assert_eq!(rig.medium(1, 0, 512), [1; 512]);
    rig.wind_up();
}

#[test]
fn one_without_the_other_is_missing_it() {
    let mut rig = Rig::new();
    let session = rig.session();
    let a = rig.send(session.io, &first(0, &[1; 512]));
    assert_eq!(rig.take_reply(session.io, a), None, "the second may still come");
    assert_eq!(rig.status(session.io, &read(0, 1)), 0);
    assert_eq!(code(&mut rig, session, a), MISSING);
    assert_eq!(rig.status(session.io, &second(0, &[2; 512])), MISSING);
    let a = rig.send(session.io, &first(0, &[1; 512]));
    let b = rig.send(session.io, &first(0, &[1; 512]));
    assert_eq!(code(&mut rig, session, a), MISSING);
    let c = rig.send(session.io, &second(0, &[2; 512]));
    assert_eq!((code(&mut rig, session, b), code(&mut rig, session, c)), (0, 0));
    assert_eq!(rig.status(session.io, &read(0, 1).fuse(3)), 0x002);
    assert_eq!(rig.status(session.admin, &Cmd::new(0x18).fuse(1)), 0x002, "not on the admin queue");
    rig.wind_up();
}

#[test]
fn a_first_command_that_is_refused_takes_its_second_with_it() {
    let mut rig = Rig::new();
    let session = rig.session();
    assert_eq!(rig.status(session.io, &first(BLOCKS, &[1; 512])), 0x080);
    assert_eq!(rig.status(session.io, &second(BLOCKS, &[1; 512])), FAILED);
    assert_eq!(rig.status(session.io, &read(0, 1).fuse(1)), 0x002, "only Compare comes first");
    assert_eq!(rig.status(session.io, &read(0, 1)), 0, "a command of its own");
    assert_eq!(rig.status(session.io, &second(0, &[1; 512])), MISSING);
    let long = vec![1; 65 << 10];
    assert_eq!(rig.status(session.io, &first(0, &long)), 0x014);
    rig.wind_up();
}

#[test]
fn a_second_command_that_does_not_match_fails_the_first() {
    let mut rig = Rig::new();
    let session = rig.session();
    let wrong = [
        second(1, &[2; 512]),
        second(0, &[2; 1024]),
        second(0, &[2; 512]).nsid(2),
        read(0, 1).fuse(2),
        compare(0, &[2; 512]).fuse(2),
    ];
    for cmd in wrong {
        let a = rig.send(session.io, &first(0, &[1; 512]));
        assert_eq!(rig.status(session.io, &cmd), 0x002);
        assert_eq!(code(&mut rig, session, a), FAILED);
    }
    assert!(rig.submitted.is_empty());
    rig.wind_up();
}

#[test]
fn data_come_in_any_order() {
    let mut rig = Rig::new();
    let session = rig.session();
    rig.wire = Wire::Held;
    let a = rig.send(session.io, &first(0, &[1; 512]));
    let b = rig.send(session.io, &second(0, &[9; 512]));
    rig.deliver(1);
    assert!(rig.submitted.is_empty());
    rig.deliver(0);
    assert_eq!((code(&mut rig, session, a), code(&mut rig, session, b)), (0, 0));
    assert_eq!(rig.medium(1, 0, 512), [9; 512]);
    rig.wind_up();
}

#[test]
fn whichever_data_are_wrong_the_buffer_stays_until_the_others_have_come() {
    let lost = Status::new(0, 0x22).retryable();
    for spoilt in [0, 1] {
        let mut rig = Rig::new();
        let session = rig.session();
        rig.wire = Wire::Held;
        let cids = [rig.send(session.io, &first(0, &[1; 512])), rig.send(session.io, &second(0, &[9; 512]))];
        rig.spoil(spoilt, lost);
        assert_eq!(rig.reply_to(session.io, cids[spoilt]).status, lost);
        assert_eq!(rig.take_reply(session.io, cids[1 - spoilt]), None);
        rig.deliver(0);
        assert_eq!(code(&mut rig, session, cids[1 - spoilt]), FAILED);
        rig.wind_up();
    }
}

#[test]
fn both_wait_for_memory_together() {
    for gives_up in [false, true] {
        let mut rig = Rig::new();
        let session = rig.session();
        rig.pool = BufPool::new(4096);
        let foreign = rig.pool.alloc(4096).unwrap();
        let a = rig.send(session.io, &first(0, &[1; 512]));
        let b = rig.send(session.io, &second(0, &[9; 512]));
        assert!(rig.wanted.is_empty());
        if gives_up {
            rig.wait(std::time::Duration::from_secs(11));
            assert_eq!((code(&mut rig, session, a), code(&mut rig, session, b)), (0x021, FAILED));
        }
        rig.pool.free(foreign);
        rig.wait(std::time::Duration::from_millis(10));
        if !gives_up {
            assert_eq!((code(&mut rig, session, a), code(&mut rig, session, b)), (0, 0));
        }
        rig.wind_up();
    }
}

#[test]
fn an_abort_of_either_ends_both_when_the_engine_is_done() {
    for which in [0, 1] {
        let mut rig = Rig::new();
        let session = rig.session();
        rig.disk = Disk::Stuck;
        let cids = [rig.send(session.io, &first(0, &[1; 512])), rig.send(session.io, &second(0, &[9; 512]))];
        let abort = rig.send(session.admin, &abort(1, cids[which]));
        assert!(rig.replies.is_empty() && rig.aborts.len() == 1);
        rig.release(0, OpStatus::Aborted);
        assert_eq!((code(&mut rig, session, cids[0]), code(&mut rig, session, cids[1])), (0x007, FAILED));
        assert_eq!(rig.reply_to(session.admin, abort).status.0, 0);
        rig.wind_up();
    }
}

#[test]
fn an_abort_before_the_second_is_there() {
    let mut rig = Rig::new();
    let session = rig.session();
    let a = rig.send(session.io, &first(0, &[1; 512]));
    assert_eq!(rig.ask(session.admin, &abort(1, a)).result, 0);
    assert_eq!(code(&mut rig, session, a), 0x007);
    assert_eq!(rig.status(session.io, &second(0, &[9; 512])), FAILED);
    rig.wind_up();
}

#[test]
fn a_connection_that_ends_at_any_point_leaves_nothing() {
    for step in 0..5 {
        let mut rig = Rig::new();
        let session = rig.session();
        rig.wire = Wire::Held;
        rig.disk = Disk::Held;
        rig.send(session.io, &first(0, &[1; 512]));
        if step > 0 {
            rig.send(session.io, &second(0, &[9; 512]));
        }
        for _ in 1..step.min(3) {
            rig.deliver(0);
        }
        if step == 4 {
            rig.close_controller();
            rig.deliver_all();
        }
        rig.hang_up(session.io);
        rig.wind_up();
    }
}

#[test]
fn a_namespace_that_goes_while_data_come_fails_both() {
    let mut rig = Rig::new();
    let session = rig.session();
    rig.wire = Wire::Held;
    let a = rig.send(session.io, &first(0, &[1; 512]));
    let b = rig.send(session.io, &second(0, &[9; 512]));
    rig.deliver(0);
    rig.target.remove_namespace(rig.now, NQN, 1, &mut rig.pool);
    rig.pump();
    rig.deliver_all();
    assert_eq!(code(&mut rig, session, a), 0x00b);
    assert!([0x00b, FAILED].contains(&code(&mut rig, session, b)));
    assert!(rig.submitted.is_empty());
    rig.wind_up();
}
