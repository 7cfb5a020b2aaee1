//! How sessions begin again and end: reinstatement, logout, lost connections.

use platter_block::Status;

use super::rig::*;
use super::wire::{self, Request, opcode};
use crate::iscsi::{ConnId, EventKind};

fn login_request(isid: [u8; 6], tsih: u16, cid: u16) -> Request {
    let mut request = wire::login(OPERATIONAL_TO_FULL, &NAMES).u16(14, tsih).u16(20, cid).cmd_sn(1);
    request.header[8..14].copy_from_slice(&isid);
    request
}

const ISID: [u8; 6] = [1, 2, 3, 4, 5, 6];

/// A session with one write that the disk does not end.
fn with_stuck_write(rig: &mut Rig) -> Session {
    let mut session = rig.login(&[]);
    rig.disk = Disk::Stuck;
    let write = session.write(0, &pattern(BLOCK, 1));
    rig.send(session.conn, &write);
    assert_eq!(rig.waiting.len(), 1);
    session
}

#[test]
fn reinstatement_answers_only_when_the_old_write_has_ended() {
    for status in [Status::Aborted, Status::Good] {
        let mut rig = Rig::new();
        let old = with_stuck_write(&mut rig);
        let conn = rig.connect();
        assert_eq!(rig.ask(conn, &login_request(ISID, 0, 0)), [], "the zombie write is still there");
        assert!(rig.is_closed(old.conn), "the old connection is gone at once");
        assert_eq!(rig.aborts.len(), 1);
        assert!(!rig.node.wants_bytes(conn));
        rig.release(0, status);
        let reply = rig.replies(conn).remove(0);
        assert_eq!((reply.flags(), reply.u16(36)), (0x87, 0));
        let mut session = rig.logged_in(conn, reply);
        assert_ne!(session.tsih, old.tsih);
        let replaces = Some("198.51.100.1:1000".to_owned());
        assert!(
            rig.events.iter().any(|e| matches!(e, EventKind::LoggedIn { replaces: r, .. } if *r == replaces)),
            "P24"
        );
        rig.take_attentions(&mut session);
        rig.disk = Disk::Fast;
        let write = session.write(0, &pattern(BLOCK, 2));
        rig.ask_one(conn, &write);
        assert_eq!(rig.medium[..BLOCK], pattern(BLOCK, 2), "new data, whatever became of the old write");
        assert_eq!(rig.node.sessions().len(), 1);
        rig.hang_up(conn);
        rig.assert_idle();
    }
}

#[test]
fn p8_the_same_after_the_old_connection_was_lost() {
    let mut rig = Rig::new();
    let old = with_stuck_write(&mut rig);
    rig.hang_up(old.conn);
    assert_eq!((rig.aborts.len(), rig.node.sessions().len()), (1, 1), "it ends when its write has");
    let conn = rig.connect();
    assert_eq!(rig.ask(conn, &login_request(ISID, 0, 0)), []);
    rig.release(0, Status::Aborted);
    assert_eq!(rig.replies(conn)[0].flags(), 0x87);
}

#[test]
fn a19_the_last_login_wins() {
    let mut rig = Rig::new();
    let old = with_stuck_write(&mut rig);
    let conns: Vec<ConnId> = (0..4).map(|_| rig.connect()).collect();
    for &conn in &conns {
        assert_eq!(rig.ask(conn, &login_request(ISID, 0, 0)), []);
    }
    for &conn in &conns[..3] {
        assert_eq!(rig.replies(conn)[0].u16(36), 0x0301);
        assert!(rig.is_closed(conn));
    }
    assert!(rig.is_closed(old.conn));
    rig.release(0, Status::Aborted);
    assert_eq!(rig.replies(conns[3])[0].flags(), 0x87);
    assert_eq!(rig.node.sessions().len(), 1);
}

#[test]
fn a_waiting_login_that_hangs_up_leaves_nothing() {
    for tsih in [false, true] {
        let mut rig = Rig::new();
        let old = with_stuck_write(&mut rig);
        let conn = rig.connect();
        assert_eq!(rig.ask(conn, &login_request(ISID, if tsih { old.tsih } else { 0 }, 0)), []);
        rig.hang_up(conn);
        assert_eq!(rig.node.sessions().len(), 1, "the write goes on");
        rig.release(0, Status::Good);
        rig.assert_idle();
    }
}

#[test]
fn p7_other_initiator_ports_are_other_sessions() {
    let mut rig = Rig::new();
    let mut first = rig.login(&[]);
    let other = [("InitiatorName", "iqn.2026-11.org.example:host2"), NAMES[1]];
    let conn = rig.connect();
    let mut request = wire::login(OPERATIONAL_TO_FULL, &other);
    request.header[8..14].copy_from_slice(&ISID);
    assert_eq!(rig.ask_one(conn, &request).u16(36), 0);
    rig.login_as([9; 6], &[]);
    assert_eq!(rig.node.sessions().len(), 3);
    rig.good(&mut first, READ, 512, &read10(0, 1));
}

#[test]
fn connection_reinstatement_continues_the_session() {
    let mut rig = Rig::new();
    let mut old = with_stuck_write(&mut rig);
    // One that was never received: its number stays open.
    let lost = old.read(0, 1);
    let conn = rig.connect();
    assert_eq!(rig.ask(conn, &login_request(ISID, old.tsih, 0)), []);
    assert!(rig.is_closed(old.conn));
    rig.release(0, Status::Aborted);
    let reply = rig.replies(conn).remove(0);
    assert_eq!((reply.flags(), reply.u16(14), reply.exp_cmd_sn()), (0x87, old.tsih, old.cmd_sn - 1));
    rig.disk = Disk::Fast;
    let reply = rig.ask_one(conn, &lost);
    assert_eq!((reply.itt(), reply.opcode()), (old.itt, opcode::DATA_IN), "no attention: it is the same nexus");
    assert_eq!(rig.node.sessions().len(), 1);
    rig.hang_up(conn);
    rig.assert_idle();
}

#[test]
fn a_session_that_ends_cannot_be_continued() {
    let mut rig = Rig::new();
    let old = with_stuck_write(&mut rig);
    rig.hang_up(old.conn);
    let conn = rig.connect();
    assert_eq!(rig.ask_one(conn, &login_request(ISID, old.tsih, 0)).u16(36), 0x020a);
    rig.release(0, Status::Aborted);
    rig.assert_idle();
}

#[test]
fn a16_logout_of_session_and_connection_and_what_is_neither() {
    for reason in [0, 1] {
        let mut rig = Rig::new();
        let session = rig.login(&[]);
        assert_eq!(rig.ask_one(session.conn, &wire::logout(reason, 5, 0, session.cmd_sn)).header[2], 0);
        assert!(rig.is_closed(session.conn));
        rig.assert_idle();
    }
    let mut rig = Rig::new();
    let mut session = rig.login(&[]);
    let reply = rig.ask_one(session.conn, &wire::logout(1, 5, 7, session.cmd_sn));
    assert_eq!((reply.opcode(), reply.header[2]), (opcode::LOGOUT_RESPONSE, 1), "no such CID");
    let reply = rig.ask_one(session.conn, &wire::logout(2, 5, 0, session.cmd_sn));
    assert_eq!((reply.opcode(), reply.header[2]), (opcode::LOGOUT_RESPONSE, 2), "no recovery");
    for reason in [3, 127] {
        let reply = rig.ask_one(session.conn, &wire::logout(reason, 5, 0, session.cmd_sn));
        assert_eq!((reply.opcode(), reply.header[2]), (opcode::REJECT, 0x09));
    }
    rig.good(&mut session, READ, 512, &read10(0, 1));
}

#[test]
fn a_logout_is_answered_when_the_commands_have_ended() {
    let mut rig = Rig::new();
    let mut session = with_stuck_write(&mut rig);
    assert_eq!(rig.ask(session.conn, &wire::logout(0, 5, 0, session.cmd_sn)), []);
    let late = session.read(0, 1);
    let reply = rig.ask_one(session.conn, &late);
    assert_eq!((reply.opcode(), reply.header[2]), (opcode::REJECT, 0x0c), "waiting for logout");
    assert_eq!(rig.ask(session.conn, &wire::nop_out(1, wire::NO_TAG, 1, &[]).immediate()), []);
    rig.release(0, Status::Good);
    let replies = rig.replies(session.conn);
    assert_eq!((replies.len(), replies[0].opcode()), (1, opcode::LOGOUT_RESPONSE), "and not the write");
    assert!(rig.is_closed(session.conn));
    rig.assert_idle();
}

#[test]
fn a_connection_lost_during_its_logout_leaves_nothing() {
    let mut rig = Rig::new();
    let session = with_stuck_write(&mut rig);
    rig.send(session.conn, &wire::logout(0, 5, 0, session.cmd_sn));
    rig.hang_up(session.conn);
    rig.release(0, Status::Aborted);
    rig.assert_idle();
}

#[test]
fn a_login_during_a_logout_takes_the_place() {
    let mut rig = Rig::new();
    let session = with_stuck_write(&mut rig);
    rig.send(session.conn, &wire::logout(0, 5, 0, session.cmd_sn));
    let conn = rig.connect();
    assert_eq!(rig.ask(conn, &login_request(ISID, 0, 0)), []);
    assert!(rig.is_closed(session.conn));
    rig.release(0, Status::Aborted);
    assert_eq!(rig.replies(conn)[0].flags(), 0x87);
}

#[test]
fn a_session_with_a_reset_in_progress_ends_after_the_reset() {
    let mut rig = Rig::new();
    let session = rig.login(&[]);
    let mut other = rig.login_as([9; 6], &[]);
    rig.take_attentions(&mut other);
    rig.disk = Disk::Stuck;
    let write = other.write(0, &[1; BLOCK]);
    rig.send(other.conn, &write);
    rig.send(session.conn, &wire::task_management(5, 1, wire::NO_TAG, session.cmd_sn, 0));
    rig.hang_up(session.conn);
    assert_eq!(rig.node.sessions().len(), 2);
    rig.release(0, Status::Aborted);
    assert_eq!(rig.node.sessions().len(), 1);
    assert_eq!(rig.replies(other.conn), []);
    let request = other.command(SIMPLE, 0, &[0; 6]);
    assert_eq!(rig.ask_one(other.conn, &request).sense(), Some([6, 0x29, 3]), "the reset was done");
}

#[test]
fn every_way_a_connection_ends_frees_what_it_held() {
    // A command in every state: gathering, running, answered but waiting for data, parked, held, in the transmit queue.
    let mut rig = Rig::new();
    let mut session = rig.login(&[("InitialR2T", "No"), ("ImmediateData", "Yes")]);
    rig.disk = Disk::Held;
    let mut requests = vec![session.write_solicited(0, 4 * BLOCK), session.read(0, 8)];
    let mut refused = session.command(WRITE | SIMPLE, 1024, &[0xff; 10]);
    refused.header[1] &= 0x7f;
    requests.push(refused);
    let mut ordered = session.command(WRITE | 2, 2048, &write10(0, 4)).data(pattern(BLOCK, 1));
    ordered.header[1] &= 0x7f;
    requests.push(ordered);
    session.cmd_sn += 1;
    let mut held = session.write_solicited(0, 4 * BLOCK).data(pattern(BLOCK, 1));
    held.header[1] &= 0x7f;
    requests.push(held);
    requests.push(wire::nop_out(0x77, wire::NO_TAG, session.cmd_sn, &[1; 4000]));
    for request in &requests {
        rig.send(session.conn, request);
    }
    rig.deaf.push(session.conn);
    rig.send(session.conn, &wire::nop_out(0x78, wire::NO_TAG, 1, &[1; 4000]).immediate());
    rig.send_bytes(
        session.conn,
        &wire::nop_out(0x79, wire::NO_TAG, 1, &[1; 4000]).immediate().encode(Default::default())[..99],
    );
    assert!(rig.pool.in_use() > 0 && rig.waiting.len() == 1);
    rig.hang_up(session.conn);
    rig.assert_idle();
}

#[test]
fn s09_connections_that_come_and_go_leave_nothing() {
    let mut rig = Rig::new();
    for n in 0..1000u32 {
        let conn = rig.connect();
        let bytes = login_request(ISID, 0, 0).encode(Default::default());
        rig.send_bytes(conn, &bytes[..(n as usize * 7) % bytes.len()]);
        rig.hang_up(conn);
    }
    for _ in 0..200 {
        let mut session = rig.login(&[]);
        rig.good(&mut session, READ, 512, &read10(0, 1));
        rig.hang_up(session.conn);
    }
    rig.assert_idle();
}

#[test]
fn t07_an_idle_connection_is_small() {
    let size = size_of::<crate::iscsi::connection::Connection>() + size_of::<crate::iscsi::sessions::Session>();
    assert!(size < 4096, "{size} bytes");
}
