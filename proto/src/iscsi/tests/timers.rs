//! Timers: logins, pings, data that do not come, the planned stop. Time is an argument, so nothing here waits.

use std::time::Duration;

use platter_block::Status;

use super::rig::*;
use super::wire::{self, NO_TAG, opcode};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn t01_a_silent_connection_is_closed_by_the_login_timer() {
    let mut rig = Rig::new();
    let conn = rig.connect();
    rig.wait(15 * SECOND - Duration::from_millis(1));
    assert!(!rig.is_closed(conn));
    rig.wait(Duration::from_millis(1));
    assert!(rig.is_closed(conn));
    rig.assert_idle();
}

#[test]
fn t02_the_login_timer_counts_from_the_start_whatever_comes() {
    let mut rig = Rig::new();
    let conn = rig.connect();
    let bytes = wire::login(OPERATIONAL_TO_FULL, &NAMES).encode(Default::default());
    for byte in bytes.chunks(1).take(14) {
        rig.send_bytes(conn, byte);
        rig.wait(SECOND);
    }
    assert!(!rig.is_closed(conn));
    rig.wait(SECOND);
    assert!(rig.is_closed(conn));
}

#[test]
fn s14_a_short_login_is_closed_by_the_login_timer() {
    let mut rig = Rig::new();
    let conn = rig.connect();
    rig.send_bytes(conn, &wire::login(OPERATIONAL_TO_FULL, &NAMES).encode(Default::default())[..60]);
    rig.wait(15 * SECOND);
    assert!(rig.is_closed(conn));
    rig.assert_idle();
}

#[test]
fn a_login_that_waits_for_a_stuck_write_is_closed_by_the_login_timer() {
    let mut rig = Rig::new();
    let mut session = rig.login(&[]);
    rig.disk = Disk::Stuck;
    let write = session.write(0, &[1; BLOCK]);
    rig.send(session.conn, &write);
    let conn = rig.connect();
    let mut request = wire::login(OPERATIONAL_TO_FULL, &NAMES);
    request.header[8..14].copy_from_slice(&[1, 2, 3, 4, 5, 6]);
    assert_eq!(rig.ask(conn, &request), []);
    rig.wait(15 * SECOND);
    assert!(rig.is_closed(conn));
    rig.release(0, Status::Aborted);
    rig.assert_idle();
}

#[test]
fn w04_an_initiator_that_ignores_pings_is_closed() {
    let mut rig = Rig::new();
    let session = rig.login(&[]);
    rig.wait(30 * SECOND);
    let ping = rig.replies(session.conn).remove(0);
    assert_eq!((ping.opcode(), ping.itt()), (opcode::NOP_IN, NO_TAG));
    rig.wait(29 * SECOND);
    assert!(!rig.is_closed(session.conn));
    rig.wait(SECOND);
    assert!(rig.is_closed(session.conn));
    rig.assert_idle();
}

#[test]
fn an_initiator_that_answers_pings_stays_for_ever() {
    let mut rig = Rig::new();
    let session = rig.login(&[]);
    for n in 1..100 {
        rig.wait(30 * SECOND);
        let ping = rig.replies(session.conn).remove(0);
        assert_eq!(ping.ttt(), n);
        assert_eq!(rig.ask(session.conn, &wire::nop_out(NO_TAG, ping.ttt(), 1, &[]).immediate()), []);
    }
    let stray = wire::nop_out(NO_TAG, 0x4444, 1, &[]).immediate();
    let reply = rig.ask_one(session.conn, &stray);
    assert_eq!((reply.opcode(), reply.header[2]), (opcode::REJECT, 0x09), "the answer to no ping");
}

#[test]
fn traffic_is_as_good_as_an_answer() {
    let mut rig = Rig::new();
    let mut session = rig.login(&[]);
    for _ in 0..20 {
        rig.wait(25 * SECOND);
        rig.good(&mut session, READ, 512, &read10(0, 1));
    }
    assert!(!rig.is_closed(session.conn));
}

#[test]
fn t06_a_peer_that_does_not_read_is_closed_by_the_pings() {
    let mut rig = Rig::new();
    let mut session = rig.login(&[]);
    rig.deaf.push(session.conn);
    let read = session.read(0, 64);
    rig.send(session.conn, &read);
    rig.wait(61 * SECOND);
    assert!(rig.is_closed(session.conn));
    rig.assert_idle();
}

#[test]
fn w09_peers_are_forgiven_when_it_was_us_who_slept() {
    let mut rig = Rig::new();
    let session = rig.login(&[]);
    rig.wait(30 * SECOND);
    rig.replies(session.conn);
    // Nothing runs for ten minutes; then the timers come before what the peer has sent.
    rig.now = rig.now + 600 * SECOND;
    rig.node.tick(rig.now, &mut rig.pool);
    rig.pump();
    assert!(!rig.is_closed(session.conn));
    rig.wait(61 * SECOND);
    assert!(rig.is_closed(session.conn), "but not for ever");
}

#[test]
fn d10_data_that_never_come_end_the_connection() {
    let mut rig = Rig::new();
    let mut session = rig.login(&[("ImmediateData", "No")]);
    let write = session.write_solicited(0, 2 * BLOCK);
    let r2t = rig.ask_one(session.conn, &write);
    rig.wait(25 * SECOND);
    let part = wire::data_out(session.itt, r2t.ttt(), 0, 0, &[0; BLOCK], false);
    rig.send(session.conn, &part);
    for _ in 0..3 {
        // Pings are answered, data are not sent.
        rig.wait(19 * SECOND);
        rig.send(session.conn, &wire::nop_out(NO_TAG, NO_TAG, 1, &[]).immediate());
        assert!(!rig.is_closed(session.conn));
    }
    rig.wait(4 * SECOND);
    assert!(rig.is_closed(session.conn));
    rig.assert_idle();
}

#[test]
fn a14_a_gap_in_cmd_sn_ends_the_connection() {
    let mut rig = Rig::new();
    let mut session = rig.login(&[]);
    session.cmd_sn += 1;
    let held = session.read(0, 1);
    rig.send(session.conn, &held);
    for _ in 0..3 {
        rig.wait(19 * SECOND);
        rig.send(session.conn, &wire::nop_out(NO_TAG, NO_TAG, 1, &[]).immediate());
        assert!(!rig.is_closed(session.conn));
    }
    rig.wait(4 * SECOND);
    assert!(rig.is_closed(session.conn));
    rig.assert_idle();
}

#[test]
fn a14_so_does_a_function_that_waits_for_missing_commands() {
    let mut rig = Rig::new();
    let session = rig.login(&[]);
    let reset = wire::task_management(5, 1, NO_TAG, session.cmd_sn + 1, 0);
    assert_eq!(rig.ask(session.conn, &reset), []);
    for _ in 0..3 {
        rig.wait(19 * SECOND);
        rig.send(session.conn, &wire::nop_out(NO_TAG, NO_TAG, 1, &[]).immediate());
        assert!(!rig.is_closed(session.conn));
    }
    rig.wait(30 * SECOND);
    assert!(rig.is_closed(session.conn));
    rig.assert_idle();
}

#[test]
fn a_disk_that_takes_its_time_is_not_the_initiators_fault() {
    let mut rig = Rig::new();
    let mut session = rig.login(&[]);
    rig.disk = Disk::Stuck;
    let write = session.write(0, &[1; BLOCK]);
    rig.send(session.conn, &write);
    for _ in 0..20 {
        rig.wait(20 * SECOND);
        rig.send(session.conn, &wire::nop_out(NO_TAG, NO_TAG, 1, &[]).immediate());
    }
    rig.release(0, Status::Good);
    assert_eq!(rig.replies(session.conn)[0].header[3], 0);
}

#[test]
fn a_planned_stop_asks_for_logouts_and_then_drops() {
    let mut rig = Rig::new();
    let polite = rig.login(&[]);
    let mut busy = rig.login_as([9; 6], &[]);
    rig.take_attentions(&mut busy);
    let discovery = rig.connect();
    let names = [NAMES[0], ("SessionType", "Discovery")];
    rig.ask_one(discovery, &wire::login(OPERATIONAL_TO_FULL, &names));
    rig.node.drain(rig.now, 10 * SECOND, &mut rig.pool);
    rig.pump();
    assert!(rig.is_closed(discovery));
    for conn in [polite.conn, busy.conn] {
        let asked = rig.replies(conn).remove(0);
        assert_eq!((asked.opcode(), asked.header[36], asked.u16(42)), (opcode::ASYNC, 1, 10));
    }
    assert_eq!(rig.ask_one(polite.conn, &wire::logout(0, 1, 0, polite.cmd_sn)).opcode(), opcode::LOGOUT_RESPONSE);
    rig.good(&mut busy, READ, 512, &read10(0, 1));
    rig.wait(10 * SECOND);
    let told = rig.replies(busy.conn).remove(0);
    assert_eq!((told.opcode(), told.header[36]), (opcode::ASYNC, 3));
    assert!(rig.is_closed(busy.conn));
    rig.assert_idle();
}
