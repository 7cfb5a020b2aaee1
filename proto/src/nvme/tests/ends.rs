//! How things end: connections, controllers, the whole target; and that nothing is left.

use platter_block::Status as OpStatus;

use super::rig::*;
use crate::nvme::EventKind;

#[test]
fn an_io_connection_that_ends_leaves_the_controller() {
    let mut rig = Rig::new();
    let session = rig.session();
    rig.disk = Disk::Held;
    rig.send(session.io, &read(0, 1));
    rig.hang_up(session.io);
    assert_eq!(rig.aborts.len(), 1);
    assert_eq!(rig.target.controllers()[0].io_queues, 0);
    let (queue, reply) = rig.connect(&Connect::io(1, session.cntlid));
    assert_eq!(reply.status.0, 0);
    rig.disk = Disk::Fast;
    assert_eq!(rig.status(queue, &read(0, 1)), 0);
    rig.wind_up();
}

#[test]
fn an_admin_connection_that_ends_takes_the_io_queues_with_it() {
    let mut rig = Rig::new();
    let session = rig.session();
    rig.hang_up(session.admin);
    assert_eq!(rig.closes, [session.io]);
    rig.try_send(session.io, &read(0, 1).cid(1)).unwrap();
    assert!(rig.submitted.is_empty() && rig.replies.iter().all(|(q, _)| *q != session.io), "nothing is taken any more");
    assert!(matches!(rig.events.last(), Some(EventKind::ControllerEnded { aborted: 0, .. })), "{:?}", rig.events);
    rig.wind_up();
}

#[test]
fn a_command_in_every_state_is_gone_with_its_connection() {
    for stuck in [false, true] {
        let mut rig = Rig::new();
        let session = rig.session();
        rig.send(session.admin, &event_request());
        rig.wire = Wire::Held;
        rig.send(session.io, &write(0, &pattern(4096, 1)));
        rig.send(session.io, &compare(0, &pattern(4096, 1)));
        rig.wire = Wire::Fast;
        rig.disk = if stuck { Disk::Stuck } else { Disk::Held };
        let io = rig.send(session.io, &read(0, 8));
        rig.send(session.io, &blocks_of(0x0c, 0, 4096));
        rig.send(session.io, &compare(0, &pattern(512, 1)));
        rig.send(session.io, &compare(0, &pattern(512, 1)).fuse(1));
        if stuck {
            rig.send(session.admin, &abort(1, io));
        }
        rig.send(session.admin, &set_feature(0x06, 0));
        rig.hang_up(session.io);
        rig.hang_up(session.admin);
        rig.wind_up();
    }
}

#[test]
fn data_of_a_command_whose_controller_ended_still_have_their_buffer() {
    let mut rig = Rig::new();
    let session = rig.session();
    rig.wire = Wire::Held;
    rig.send(session.io, &write(0, &pattern(512, 1)));
    rig.send(session.io, &write(8, &pattern(512, 1)));
    rig.hang_up(session.admin);
    rig.deliver(0);
    assert!(rig.submitted.is_empty());
    rig.close_all();
    rig.wind_up();
}

#[test]
fn a_drain_finishes_what_is_in_progress_and_takes_nothing_new() {
    let mut rig = Rig::new();
    let busy = rig.session();
    let idle = rig.session();
    let unconnected = rig.open();
    rig.send(idle.admin, &event_request());
    rig.disk = Disk::Held;
    let cid = rig.send(busy.io, &write(0, &pattern(512, 1)));
    rig.target.drain(rig.now, &mut rig.pool);
    rig.pump();
    assert_eq!(rig.closes, [unconnected, idle.admin, idle.io]);
    let late = rig.ask(busy.io, &read(0, 1));
    assert_eq!(late.status.0, 0x300, "on another path, or later");
    let (_, refused) = rig.connect(&Connect::admin());
    assert_eq!(refused.status.0, 0x181);
    rig.release_all();
    assert_eq!(rig.reply_to(busy.io, cid).status.0, 0);
    assert_eq!(rig.closes.len(), 5);
    rig.close_all();
    rig.wind_up();
}

#[test]
fn an_op_that_ends_after_everything_is_gone_is_the_last_thing() {
    let mut rig = Rig::new();
    let session = rig.session();
    rig.disk = Disk::Stuck;
    rig.send(session.io, &write(0, &pattern(512, 1)));
    rig.hang_up(session.admin);
    rig.close_all();
    assert!(rig.target.controllers().is_empty(), "nobody sees it");
    assert!(rig.pool.in_use() > 0, "but its buffer is in the engine");
    assert!(!rig.events.iter().any(|e| matches!(e, EventKind::ControllerEnded { .. })));
    rig.release(0, OpStatus::Good);
    assert!(matches!(rig.events.last(), Some(EventKind::ControllerEnded { aborted: 1, .. })));
    rig.assert_idle();
}
