//! Abort: what ends how, and in which order.

use platter_block::Status as OpStatus;

use super::rig::*;

fn codes(rig: &Rig) -> Vec<(u16, u16, u64)> {
    rig.replies.iter().map(|(_, r)| (r.cid, r.status.0 & 0x7ff, r.result)).collect()
}

#[test]
fn an_aborted_command_ends_before_the_abort() {
    let mut rig = Rig::new();
    let session = rig.session();
    rig.disk = Disk::Held;
    let io = rig.send(session.io, &write(0, &pattern(512, 1)));
    let cid = rig.send(session.admin, &abort(1, io));
    assert_eq!(codes(&rig), [(io, 0x007, 0), (cid, 0, 0)]);
    assert_eq!(rig.replies[0].1.status.0 & 1 << 14, 0, "to be retried");
    rig.wind_up();
}

#[test]
fn a_stuck_write_is_not_aborted_before_the_engine_says_so() {
    let mut rig = Rig::new();
    let session = rig.session();
    rig.disk = Disk::Stuck;
    let io = rig.send(session.io, &write(0, &pattern(512, 1)));
    let first = rig.send(session.admin, &abort(1, io));
    assert_eq!(rig.aborts.len(), 1);
    assert!(rig.replies.is_empty());
    let second = rig.ask(session.admin, &abort(1, io));
    assert_eq!((second.status.0, second.result), (0, 1), "it is being aborted already");
    rig.release(0, OpStatus::Aborted);
    assert_eq!(codes(&rig), [(io, 0x007, 0), (first, 0, 0)]);
    rig.wind_up();
}

#[test]
fn a_command_that_ends_well_all_the_same_was_not_aborted() {
    let mut rig = Rig::new();
    let session = rig.session();
    rig.disk = Disk::Stuck;
    let io = rig.send(session.io, &read(0, 1));
    let cid = rig.send(session.admin, &abort(1, io));
    rig.release(0, OpStatus::Good);
    assert_eq!(codes(&rig), [(io, 0, 0), (cid, 0, 1)]);
    rig.wind_up();
}

#[test]
fn a_command_of_several_steps_ends_at_the_next_one() {
    let mut rig = Rig::new();
    let session = rig.session();
    rig.disk = Disk::Stuck;
    let io = rig.send(session.io, &blocks_of(0x0c, 0, 4096));
    rig.send(session.admin, &abort(1, io));
    rig.release(0, OpStatus::Good);
    assert_eq!(rig.submitted.len(), 1);
    assert_eq!(rig.reply_to(session.io, io).status.0 & 0x7ff, 0x007);
    rig.wind_up();
}

#[test]
fn a_command_whose_data_are_still_to_come_is_aborted_when_they_have_come() {
    let mut rig = Rig::new();
    let session = rig.session();
    rig.wire = Wire::Held;
    let io = rig.send(session.io, &write(0, &pattern(512, 1)));
    let cid = rig.send(session.admin, &abort(1, io));
    assert!(rig.replies.is_empty());
    rig.deliver_all();
    assert_eq!(codes(&rig), [(io, 0x007, 0), (cid, 0, 0)]);
    assert!(rig.submitted.is_empty());
    rig.wind_up();
}

#[test]
fn an_event_request_can_be_aborted() {
    let mut rig = Rig::new();
    let session = rig.session();
    let event = rig.send(session.admin, &event_request());
    let cid = rig.send(session.admin, &abort(0, event));
    assert_eq!(codes(&rig), [(event, 0x007, 0), (cid, 0, 0)]);
    rig.wind_up();
}

#[test]
fn what_is_not_there_was_not_aborted() {
    let mut rig = Rig::new();
    let session = rig.session();
    let done = rig.send(session.io, &read(0, 1));
    for cmd in [abort(1, done), abort(1, 0x4242), abort(0, 0x4242), abort(2, 1), abort(0xffff, 1)] {
        let reply = rig.ask(session.admin, &cmd);
        assert_eq!((reply.status.0, reply.result), (0, 1));
    }
    let itself = rig.ask(session.admin, &abort(0, 7).cid(7));
    assert_eq!(itself.result, 1);
    rig.wind_up();
}

#[test]
fn an_abort_of_an_abort_does_nothing_and_there_is_a_limit() {
    let mut rig = Rig::new();
    let session = rig.session();
    rig.disk = Disk::Stuck;
    let stuck: Vec<u16> = (0..5).map(|n| rig.send(session.io, &read(n, 1))).collect();
    let aborts: Vec<u16> = stuck[..4].iter().map(|&cid| rig.send(session.admin, &abort(1, cid))).collect();
    assert_eq!(rig.status(session.admin, &abort(1, stuck[4])), 0x103);
    assert_eq!(rig.status(session.admin, &abort(0, aborts[0])), 0x103);
    rig.release(0, OpStatus::Aborted);
    assert_eq!(rig.reply_to(session.admin, aborts[0]).result, 0);
    assert_eq!(rig.ask(session.admin, &abort(0, aborts[1])).result, 1);
    assert_eq!(rig.aborts.len(), 4);
    rig.wind_up();
}

#[test]
fn an_abort_ends_when_the_queue_of_its_command_goes() {
    let mut rig = Rig::new();
    let session = rig.session();
    rig.disk = Disk::Stuck;
    let io = rig.send(session.io, &read(0, 1));
    let cid = rig.send(session.admin, &abort(1, io));
    rig.hang_up(session.io);
    assert_eq!(rig.aborts.len(), 1, "asked for once");
    rig.release(0, OpStatus::Aborted);
    assert_eq!(rig.reply_to(session.admin, cid).status.0, 0);
    rig.wind_up();
}
