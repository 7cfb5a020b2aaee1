//! Payload memory that is used up: commands wait, in order, but not forever.

use std::time::Duration;

use platter_block::BufPool;

use super::rig::*;

const MS: Duration = Duration::from_millis(1);

/// A rig whose pool holds two buffers of 4 KiB.
fn small(rig: &mut Rig) -> Session {
    let session = rig.session();
    rig.pool = BufPool::new(8 << 10);
    rig.disk = Disk::Held;
    session
}

#[test]
fn commands_wait_for_memory_and_go_on_in_their_order() {
    let mut rig = Rig::new();
    let session = small(&mut rig);
    let cids: Vec<u16> = (0..5).map(|n| rig.send(session.io, &read(n, 1))).collect();
    assert_eq!(rig.submitted.len(), 2);
    for _ in 0..5 {
        rig.release(0, platter_block::Status::Good);
    }
    let order: Vec<u16> = rig.replies.iter().map(|(_, r)| r.cid).collect();
    assert_eq!(order, cids);
    rig.wind_up();
}

#[test]
fn a_small_command_does_not_overtake_a_large_one() {
    let mut rig = Rig::new();
    let session = small(&mut rig);
    rig.pool = BufPool::new(16 << 10);
    rig.send(session.io, &read(0, 1));
    let large = rig.send(session.io, &read(0, 16));
    let after = rig.send(session.io, &read(0, 1));
    assert_eq!(rig.submitted.len(), 1);
    rig.release(0, platter_block::Status::Good);
    rig.wait(10 * MS);
    rig.release(0, platter_block::Status::Good);
    assert!(rig.take_reply(session.io, large).is_some());
    assert_eq!(rig.take_reply(session.io, after), None);
    rig.wind_up();
}

#[test]
fn what_waits_too_long_is_to_be_retried() {
    let mut rig = Rig::new();
    let session = small(&mut rig);
    for n in 0..2 {
        rig.send(session.io, &read(n, 1));
    }
    let waiting = rig.send(session.io, &write(0, &pattern(512, 1)));
    rig.wait(9_990 * MS);
    assert_eq!(rig.take_reply(session.io, waiting), None);
    rig.wait(20 * MS);
    assert_eq!(rig.reply_to(session.io, waiting).status.0, 0x021, "no DNR");
    assert_eq!(rig.target.poll_timeout(), None);
    rig.wind_up();
}

#[test]
fn memory_that_others_free_is_seen_by_the_tick() {
    let mut rig = Rig::new();
    let session = small(&mut rig);
    let foreign = [rig.pool.alloc(4096).unwrap(), rig.pool.alloc(4096).unwrap()];
    let cid = rig.send(session.admin, &Cmd::new(0x06).cdw(10, 1).room(4096));
    foreign.into_iter().for_each(|b| rig.pool.free(b));
    assert_eq!(rig.take_reply(session.admin, cid), None);
    rig.wait(10 * MS);
    assert_eq!(rig.reply_to(session.admin, cid).status.0, 0);
    rig.wind_up();
}

#[test]
fn commands_without_data_do_not_wait() {
    let mut rig = Rig::new();
    let session = small(&mut rig);
    for n in 0..3 {
        rig.send(session.io, &read(n, 1));
    }
    assert_eq!(rig.status(session.admin, &property_get(0x1c, false)), 0);
    rig.send(session.io, &flush(1));
    assert_eq!(rig.submitted.len(), 3);
    rig.wind_up();
}

#[test]
fn a_waiting_command_can_be_aborted_and_ends_with_its_queue() {
    let mut rig = Rig::new();
    let session = small(&mut rig);
    let cids: Vec<u16> = (0..5).map(|n| rig.send(session.io, &read(n, 1))).collect();
    assert_eq!(rig.ask(session.admin, &abort(1, cids[2])).result, 0);
    assert_eq!(rig.reply_to(session.io, cids[2]).status.0 & 0x7ff, 0x007);
    rig.hang_up(session.io);
    rig.wait(20 * MS);
    assert_eq!(rig.submitted.len(), 2);
    rig.wind_up();
}

#[test]
fn a_connect_waits_too() {
    let mut rig = Rig::new();
    rig.pool = BufPool::new(4 << 10);
    let foreign = rig.pool.alloc(4096).unwrap();
    let queue = rig.open();
    let cid = rig.send(queue, &Connect::admin().cmd);
    rig.pool.free(foreign);
    rig.wait(10 * MS);
    assert_eq!(rig.reply_to(queue, cid).status.0, 0);
    rig.wind_up();
}

#[test]
fn a_namespace_that_goes_takes_those_that_wait_with_it() {
    let mut rig = Rig::new();
    let session = small(&mut rig);
    for n in 0..2 {
        rig.send(session.io, &read(n, 1).nsid(2));
    }
    let waiting = rig.send(session.io, &read(0, 1));
    assert!(rig.target.remove_namespace(rig.now, NQN, 1, &mut rig.pool));
    rig.pump();
    assert_eq!(rig.reply_to(session.io, waiting).status.0 & 0x7ff, 0x00b);
    rig.wind_up();
}
