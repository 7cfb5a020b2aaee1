//! Rows I: discovery sessions, SendTargets, and other text.

use super::rig::*;
use super::wire::{self, NO_TAG, Pdu, Request, opcode};
use crate::iscsi::{ConnId, DirectoryEntry, Initiators, NodeConfig, PortalInfo};

fn discovery(rig: &mut Rig, keys: &[(&str, &str)]) -> ConnId {
    let conn = rig.connect();
    let pairs: Vec<_> = [NAMES[0], ("SessionType", "Discovery")].into_iter().chain(keys.iter().copied()).collect();
    let reply = rig.ask_one(conn, &wire::login(OPERATIONAL_TO_FULL, &pairs).cmd_sn(1));
    assert_eq!((reply.u16(36), reply.flags()), (0, 0x87), "{:?}", rig.events);
    assert_eq!(reply.value("TargetAlias"), None);
    conn
}

fn rejected(reply: &Pdu, reason: u8) {
    assert_eq!((reply.opcode(), reply.header[2]), (opcode::REJECT, reason), "{reply:?}");
}

fn names(reply: &Pdu) -> Vec<String> {
    reply.pairs().into_iter().filter(|(k, _)| k == "TargetName").map(|(_, v)| v).collect()
}

fn entry(name: &str, initiators: Initiators, portals: &[(&str, u16)]) -> DirectoryEntry {
    let portals =
        portals.iter().map(|&(address, tag)| PortalInfo { address: address.to_owned(), tag, number: 0 }).collect();
    DirectoryEntry { name: name.to_owned(), initiators, portals, through: Vec::new() }
}

#[test]
fn a_target_is_used_only_through_its_portals() {
    let through = |number, portals: &[(&str, u16)]| {
        let directory = vec![DirectoryEntry { through: vec![number], ..entry(TARGET, Initiators::Any, portals) }];
        Rig::with(NodeConfig { directory, ..config() })
    };
    for (number, status, told) in [(0, 0, 1), (1, 0x0203, 0)] {
        let mut rig = through(number, &[]);
        let conn = rig.connect();
        let reply = rig.ask_one(conn, &wire::login(OPERATIONAL_TO_FULL, &NAMES).cmd_sn(1));
        assert_eq!(reply.u16(36), status, "{:?}", rig.events);
        let conn = discovery(&mut rig, &[]);
        let reply = rig.ask_one(conn, &wire::text_request(1, NO_TAG, 1, &[("SendTargets", "All")]));
        assert_eq!(names(&reply).len(), told);
    }
    let mut rig = through(1, &[("192.0.2.9:3260", 1)]);
    let conn = discovery(&mut rig, &[]);
    let reply = rig.ask_one(conn, &wire::text_request(1, NO_TAG, 1, &[("SendTargets", "All")]));
    assert_eq!(reply.value("TargetAddress").as_deref(), Some("192.0.2.9:3260,1"));
}

#[test]
fn send_targets_lists_what_the_initiator_may_see_with_the_configured_portals() {
    let hidden = Initiators::Listed(vec!["iqn.2026-11.org.example:host2".to_owned()]);
    let mine = Initiators::Listed(vec![INITIATOR.to_owned()]);
    let directory = vec![
        entry(TARGET, Initiators::Any, &[]),
        entry("iqn.2026-11.org.example:b", hidden, &[]),
        entry("iqn.2026-11.org.example:c", mine, &[("nas.example.org:3260", 1), ("[2001:db8::1]:3260", 2)]),
    ];
    let mut rig = Rig::with(NodeConfig { directory, ..config() });
    let conn = discovery(&mut rig, &[]);
    let reply = rig.ask_one(conn, &wire::text_request(1, NO_TAG, 1, &[("SendTargets", "All")]));
    let expected = [
        ("TargetName", TARGET),
        ("TargetAddress", "192.0.2.1:3260,1"),
        ("TargetName", "iqn.2026-11.org.example:c"),
        ("TargetAddress", "nas.example.org:3260,1"),
        ("TargetAddress", "[2001:db8::1]:3260,2"),
    ];
    assert_eq!(reply.pairs(), expected.map(|(k, v)| (k.to_owned(), v.to_owned())));

    let one = wire::text_request(2, NO_TAG, 2, &[("SendTargets", "iqn.2026-11.org.example:c")]);
    assert_eq!(names(&rig.ask_one(conn, &one)), ["iqn.2026-11.org.example:c"]);
    let hidden = wire::text_request(3, NO_TAG, 3, &[("SendTargets", "iqn.2026-11.org.example:b")]);
    let reply = rig.ask_one(conn, &hidden);
    assert_eq!((reply.opcode(), reply.data.len()), (opcode::TEXT_RESPONSE, 0));
    let reply = rig.ask_one(conn, &wire::logout(0, 4, 0, 4));
    assert_eq!(reply.opcode(), opcode::LOGOUT_RESPONSE);
    rig.assert_idle();
}

#[test]
fn i01_a_discovery_session_takes_text_and_logout_only() {
    let mut rig = Rig::new();
    let conn = discovery(&mut rig, &[]);
    for request in [
        wire::command(1, 1, SIMPLE, 0, &[0; 6]),
        wire::task_management(5, 1, NO_TAG, 1, 0),
        wire::nop_out(1, NO_TAG, 1, b"x").immediate(),
        wire::data_out(1, NO_TAG, 0, 0, b"abcd", true),
    ] {
        rejected(&rig.ask_one(conn, &request), 0x04);
    }
    let text = wire::text_request(1, NO_TAG, 1, &[("SendTargets", "All")]);
    assert_eq!(names(&rig.ask_one(conn, &text)), [TARGET]);
}

#[test]
fn i02_a_normal_session_is_told_of_its_own_target_only() {
    let directory = vec![entry(TARGET, Initiators::Any, &[]), entry("iqn.2026-11.org.example:b", Initiators::Any, &[])];
    let mut rig = Rig::with(NodeConfig { directory, ..config() });
    let session = rig.login(&[]);
    let ask = |value| wire::text_request(1, NO_TAG, session.cmd_sn, &[("SendTargets", value)]).immediate();
    rejected(&rig.ask_one(session.conn, &ask("All")), 0x04);
    assert_eq!(names(&rig.ask_one(session.conn, &ask(""))), [TARGET]);
    assert_eq!(names(&rig.ask_one(session.conn, &ask(TARGET))), [TARGET]);
    assert!(names(&rig.ask_one(session.conn, &ask("iqn.2026-11.org.example:b"))).is_empty());
}

#[test]
fn i04_long_answers_are_continued() {
    let directory: Vec<_> =
        (0..5000).map(|n| entry(&format!("iqn.2026-11.org.example:t{n:04}"), Initiators::Any, &[])).collect();
    let mut rig = Rig::with(NodeConfig { directory, ..config() });
    let conn = discovery(&mut rig, &[("MaxRecvDataSegmentLength", "4096")]);
    let mut reply = rig.ask_one(conn, &wire::text_request(9, NO_TAG, 1, &[("SendTargets", "All")]));
    let mut found = Vec::new();
    let mut cmd_sn = 2;
    loop {
        assert!(reply.data.len() <= 4096 && reply.data.ends_with(b"\0"), "whole pairs");
        found.extend(names(&reply));
        if reply.flags() & 0x80 != 0 {
            break;
        }
        assert_eq!(reply.flags(), 0x40);
        assert_ne!(reply.ttt(), NO_TAG);
        reply = rig.ask_one(conn, &wire::text_request(9, reply.ttt(), cmd_sn, &[]));
        cmd_sn += 1;
    }
    assert_eq!(reply.ttt(), NO_TAG);
    assert_eq!((found.len(), found[4999].as_str()), (5000, "iqn.2026-11.org.example:t4999"));
    assert_eq!(rig.pool.in_use(), 0);
}

fn unfinished(text: &[(&str, &str)]) -> Request {
    wire::text_request(9, NO_TAG, 1, text).byte(1, 0).immediate()
}

#[test]
fn i05_a_stale_tag_continues_nothing() {
    let mut rig = Rig::new();
    let session = rig.login(&[]);
    let reply = rig.ask_one(session.conn, &unfinished(&[("MaxRecvDataSegmentLength", "16384")]));
    assert_eq!((reply.flags(), reply.data.len()), (0, 0));
    let next = |itt, ttt| wire::text_request(itt, ttt, 1, &[]).immediate();
    rejected(&rig.ask_one(session.conn, &next(9, reply.ttt() + 1)), 0x09);
    rejected(&rig.ask_one(session.conn, &next(8, reply.ttt())), 0x04);
    let last = rig.ask_one(session.conn, &next(9, reply.ttt()));
    assert_eq!((last.flags(), last.ttt()), (0x80, NO_TAG));
    rejected(&rig.ask_one(session.conn, &next(9, reply.ttt())), 0x09);
}

#[test]
fn i06_a_new_request_resets_the_negotiation() {
    let mut rig = Rig::new();
    let session = rig.login(&[]);
    let first = rig.ask_one(session.conn, &unfinished(&[("InitiatorAlias", "a")]));
    let again = rig.ask_one(session.conn, &unfinished(&[("InitiatorAlias", "b")]));
    assert_eq!(again.flags(), 0, "not the same key twice in one negotiation");
    rejected(&rig.ask_one(session.conn, &wire::text_request(9, first.ttt(), 1, &[]).immediate()), 0x09);
}

#[test]
fn i07_a_second_text_request_is_rejected() {
    let mut rig = Rig::new();
    let session = rig.login(&[]);
    let first = rig.ask_one(session.conn, &unfinished(&[]));
    rejected(&rig.ask_one(session.conn, &wire::text_request(8, NO_TAG, 1, &[]).immediate()), 0x04);
    assert_eq!(rig.ask_one(session.conn, &wire::text_request(9, first.ttt(), 1, &[]).immediate()).flags(), 0x80);
}

#[test]
fn s13_endless_text_is_rejected_at_64_kib() {
    let mut rig = Rig::new();
    let session = rig.login(&[]);
    let piece = |ttt| wire::text_request(9, ttt, 1, &[]).byte(1, 0x40).immediate().data(vec![b'A'; 32 << 10]);
    let first = rig.ask_one(session.conn, &piece(NO_TAG));
    assert_eq!((first.flags(), first.data.len()), (0, 0));
    rig.ask_one(session.conn, &piece(first.ttt()));
    rejected(&rig.ask_one(session.conn, &piece(first.ttt())), 0x04);
    assert_eq!(rig.pool.in_use(), 0);
}

#[test]
fn text_errors_are_rejected_and_their_cmd_sn_is_not_used_up() {
    let mut rig = Rig::new();
    let mut session = rig.login(&[]);
    for pairs in [
        &[("MaxBurstLength", "65536")][..],
        &[("HeaderDigest", "CRC32C")],
        &[("InitiatorAlias", "a"), ("InitiatorAlias", "b")],
        &[("SendTargets", ""), ("InitiatorAlias", "b")],
        &[("MaxRecvDataSegmentLength", "1")],
        &[("MaxRecvDataSegmentLength", "Reject")],
    ] {
        let reply = rig.ask_one(session.conn, &wire::text_request(1, NO_TAG, session.cmd_sn, pairs));
        rejected(&reply, 0x04);
        assert_eq!(reply.exp_cmd_sn(), session.cmd_sn);
    }
    let malformed = wire::text_request(1, NO_TAG, session.cmd_sn, &[]).data(b"no pair\0");
    rejected(&rig.ask_one(session.conn, &malformed), 0x04);
    let unknown = wire::text_request(1, NO_TAG, session.cmd_sn, &[("X-foo", "1")]);
    assert_eq!(rig.ask_one(session.conn, &unknown).value("X-foo").as_deref(), Some("NotUnderstood"));
    session.cmd_sn += 1;
    rig.good(&mut session, READ, 512, &read10(0, 1));
    rig.send(session.conn, &wire::text_request(1, NO_TAG, session.cmd_sn, &[]).byte(1, 0xc0));
    assert!(rig.is_closed(session.conn), "F and C together");
}

#[test]
fn a_new_segment_length_counts_from_the_end_of_its_negotiation() {
    let mut rig = Rig::new();
    let mut session = rig.login(&[]);
    let first = rig.ask_one(session.conn, &unfinished(&[("MaxRecvDataSegmentLength", "512")]));
    let read = session.read(0, 4);
    assert_eq!(rig.ask(session.conn, &read).len(), 1);
    rig.ask_one(session.conn, &wire::text_request(9, first.ttt(), 1, &[]).immediate());
    let read = session.read(0, 4);
    assert_eq!(rig.ask(session.conn, &read).len(), 4);
}

#[test]
fn discovery_sessions_are_reinstated_and_named_ones_need_a_target_that_is_there() {
    let mut rig = Rig::new();
    let first = discovery(&mut rig, &[]);
    discovery(&mut rig, &[]);
    assert!(rig.is_closed(first), "7.4.2.1");
    discovery(&mut rig, &[NAMES[1]]);
    assert_eq!(rig.node.sessions().len(), 2);
    let conn = rig.connect();
    let pairs = [NAMES[0], ("SessionType", "Discovery"), ("TargetName", "iqn.2026-11.org.example:none")];
    assert_eq!(rig.ask_one(conn, &wire::login(OPERATIONAL_TO_FULL, &pairs)).u16(36), 0x0203);
}

#[test]
fn an_idle_discovery_session_is_closed_without_pings() {
    let mut rig = Rig::new();
    let conn = discovery(&mut rig, &[]);
    rig.wait(std::time::Duration::from_secs(59));
    assert!(!rig.is_closed(conn) && rig.replies(conn).is_empty());
    rig.wait(std::time::Duration::from_secs(1));
    assert!(rig.is_closed(conn));
}
