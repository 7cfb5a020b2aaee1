//! Rows L of the catalogue, and every legal way through the login phase (6.3).

use platter_block::Status;

use super::rig::*;
use super::wire::{self, Digests, Request, opcode};
use crate::iscsi::{DirectoryEntry, EventKind, Initiators, Limits, NodeConfig, Refused};

/// T=1, security to operational stage.
const SECURITY_TO_OPERATIONAL: u8 = 0x81;
/// T=1, security stage to full feature phase.
const SECURITY_TO_FULL: u8 = 0x83;
const OPERATIONAL: u8 = 0x04;
const CONTINUE: u8 = 0x40;

/// Sends one login request; the login must be refused with `status` and the connection closed.
fn refused(request: &Request, status: u16) -> Rig {
    let mut rig = Rig::new();
    let conn = rig.connect();
    refused_on(&mut rig, conn, request, status);
    rig
}

fn refused_on(rig: &mut Rig, conn: crate::iscsi::ConnId, request: &Request, status: u16) {
    let reply = rig.ask_one(conn, request);
    assert_eq!((reply.opcode(), reply.u16(36)), (opcode::LOGIN_RESPONSE, status), "{:?}", rig.events);
    assert_eq!(reply.flags() & 0x8f, 0, "T, CSG and NSG are reserved");
    assert!(rig.is_closed(conn));
    let told = rig.events.iter().any(|e| matches!(e, EventKind::LoginRefused { status: s, .. } if *s == status));
    assert!(told, "{:?}", rig.events);
}

fn with_keys<'a>(keys: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    NAMES.iter().copied().chain(keys.iter().copied()).collect()
}

/// What one key is answered in a login of one PDU.
fn answer(key: &str, value: &str) -> Option<String> {
    let mut rig = Rig::new();
    rig.login_as([0; 6], &[(key, value)]).answer.value(key)
}

#[test]
fn a_login_takes_one_two_or_many_requests() {
    let mut rig = Rig::new();
    rig.login_as([1; 6], &[]);

    // Security, then straight to full feature phase.
    let conn = rig.connect();
    let mut first = wire::login(SECURITY_TO_FULL, &with_keys(&[("AuthMethod", "CHAP,None")]));
    first.header[13] = 2;
    let reply = rig.ask_one(conn, &first);
    assert_eq!((reply.flags(), reply.value("AuthMethod")), (0x83, Some("None".into())));
    assert_ne!(reply.u16(14), 0, "a TSIH");

    // Security, operational, full feature; each first without T.
    let conn = rig.connect();
    let mut tsihs = Vec::new();
    let steps = [
        (0x00, &NAMES[..], 0x00),
        (SECURITY_TO_OPERATIONAL, &[], 0x81),
        (OPERATIONAL, &[("MaxBurstLength", "65536")], 0x04),
        (OPERATIONAL, &[("InitialR2T", "Yes")], 0x04),
        (OPERATIONAL_TO_FULL, &[], 0x87),
    ];
    for (n, (flags, pairs, expected)) in steps.into_iter().enumerate() {
        let mut request = wire::login(flags, pairs);
        request.header[13] = 3;
        let reply = rig.ask_one(conn, &request);
        assert_eq!((reply.flags(), reply.u16(36), reply.stat_sn()), (expected, 0, n as u32 + 1), "{:?}", rig.events);
        tsihs.push(reply.u16(14));
        assert_eq!(reply.value("TargetPortalGroupTag").is_some(), n == 0, "told once, in the first response");
        assert_eq!(reply.value("MaxRecvDataSegmentLength").is_some(), n == 2, "declared once");
    }
    assert_eq!(tsihs[..4], [0; 4], "only the final response carries the TSIH");
    assert_eq!(rig.node.sessions().len(), 3);
}

#[test]
fn p9_a_login_is_the_same_however_its_bytes_are_cut() {
    let bytes = wire::login(OPERATIONAL_TO_FULL, &with_keys(&[("HeaderDigest", "CRC32C")])).encode(Digests::default());
    for cut in 1..bytes.len() {
        let mut rig = Rig::new();
        let conn = rig.connect();
        rig.send_pieces(conn, &[&bytes[..cut], &bytes[cut..]]);
        let reply = rig.replies(conn).remove(0);
        assert_eq!((reply.flags(), reply.value("HeaderDigest")), (0x87, Some("CRC32C".into())), "cut at {cut}");
    }
    let mut rig = Rig::new();
    let conn = rig.connect();
    let single: Vec<&[u8]> = bytes.chunks(1).collect();
    rig.send_pieces(conn, &single);
    assert_eq!(rig.replies(conn).len(), 1);
}

#[test]
fn text_may_be_continued_in_the_middle_of_a_pair() {
    let mut rig = Rig::new();
    let conn = rig.connect();
    let text = wire::text(&with_keys(&[("MaxBurstLength", "65536")]));
    let (first, second) = text.split_at(text.len() - 9);
    let reply = rig.ask_one(conn, &wire::login(OPERATIONAL | CONTINUE, &[]).data(first));
    assert_eq!((reply.flags(), reply.data.len()), (OPERATIONAL, 0), "answered by an empty response (6.2)");
    let reply = rig.ask_one(conn, &wire::login(OPERATIONAL_TO_FULL, &[]).data(second));
    assert_eq!((reply.flags(), reply.value("MaxBurstLength")), (0x87, Some("65536".into())));
}

#[test]
fn s12_a_long_answer_is_continued_by_the_c_bit() {
    let mut rig = Rig::new();
    let conn = rig.connect();
    let names: Vec<String> = (0..60).map(|n| format!("X-{}{n}", "k".repeat(60 - format!("{n}").len()))).collect();
    let mut text = wire::text(&NAMES);
    for name in &names {
        text.extend(wire::text(&[(name, &"v".repeat(200))]));
    }
    // The text itself is longer than one PDU.
    let mut pieces = text.chunks(8192).peekable();
    let mut replies = Vec::new();
    while let Some(piece) = pieces.next() {
        let flags = if pieces.peek().is_some() { OPERATIONAL | CONTINUE } else { OPERATIONAL_TO_FULL };
        replies = rig.ask(conn, &wire::login(flags, &[]).data(piece));
    }
    let mut answer = Vec::new();
    while replies[0].flags() & CONTINUE != 0 {
        assert_eq!(replies[0].flags(), OPERATIONAL | CONTINUE);
        assert!(replies[0].data.len() <= 8192);
        answer.extend_from_slice(&replies[0].data);
        replies = rig.ask(conn, &wire::login(OPERATIONAL_TO_FULL, &[]));
    }
    answer.extend_from_slice(&replies[0].data);
    let answered = String::from_utf8(answer).unwrap().matches("=NotUnderstood\0").count();
    assert_eq!((answered, replies[0].flags()), (60, 0x87));
}

#[test]
fn s12_more_unknown_keys_than_anybody_has_are_refused() {
    let pairs: Vec<String> = (0..100).map(|n| format!("K{n}")).collect();
    let keys: Vec<(&str, &str)> = pairs.iter().map(|k| (k.as_str(), "1")).collect();
    refused(&wire::login(OPERATIONAL_TO_FULL, &with_keys(&keys)), 0x0200);
    let bomb = wire::text(&NAMES).into_iter().chain(b"A=b\0".repeat(2048)).collect::<Vec<u8>>();
    refused(&wire::login(OPERATIONAL_TO_FULL, &[]).data(&bomb[..8192]), 0x0200);
}

#[test]
fn s13_endless_continuation_is_refused_at_64_kib() {
    let mut rig = Rig::new();
    let conn = rig.connect();
    for _ in 0..8 {
        let reply = rig.ask_one(conn, &wire::login(OPERATIONAL | CONTINUE, &[]).data([b'A'; 8192]));
        assert_eq!((reply.u16(36), reply.data.len()), (0, 0));
    }
    refused_on(&mut rig, conn, &wire::login(OPERATIONAL | CONTINUE, &[]).data([b'A'; 8192]), 0x0200);
    assert_eq!(rig.pool.in_use(), 0, "the login takes no buffers");
}

#[test]
fn s13_empty_continuation_is_answered_until_the_exchanges_run_out() {
    let mut rig = Rig::new();
    let conn = rig.connect();
    for _ in 0..32 {
        let reply = rig.ask_one(conn, &wire::login(OPERATIONAL | CONTINUE, &[]));
        assert_eq!((reply.u16(36), reply.data.len()), (0, 0));
    }
    refused_on(&mut rig, conn, &wire::login(OPERATIONAL | CONTINUE, &[]), 0x0200);
}

#[test]
fn l01_the_first_pdu_must_be_a_login() {
    for op in [opcode::SCSI_COMMAND, opcode::NOP_OUT, opcode::TEXT, opcode::DATA_OUT, opcode::SNACK] {
        refused(&Request::new(op).itt(1), 0x020b);
    }
}

#[test]
fn t10_bytes_that_are_no_iscsi_end_the_connection() {
    let mut rig = Rig::new();
    let conn = rig.connect();
    rig.send_bytes(conn, b"GET /index.html HTTP/1.1\r\nHost: storage.example.org\r\n\r\n");
    assert!(rig.is_closed(conn) && rig.replies(conn).is_empty());
    rig.assert_idle();
}

#[test]
fn l02_a_login_segment_over_8192_bytes_is_refused_unread() {
    let mut request = wire::login(OPERATIONAL_TO_FULL, &NAMES);
    request.data.resize(8193, 0);
    let mut rig = Rig::new();
    let conn = rig.connect();
    rig.send_bytes(conn, &request.encode(Digests::default())[..48]);
    assert_eq!(rig.replies(conn)[0].u16(36), 0x0200);
    assert!(rig.is_closed(conn));
}

#[test]
fn l03_version_1_only_is_unsupported() {
    let rig = refused(&wire::login(OPERATIONAL_TO_FULL, &NAMES).byte(2, 1).byte(3, 1), 0x0205);
    assert_eq!(rig.node.sessions().len(), 0);
    let mut rig = Rig::new();
    let conn = rig.connect();
    let reply = rig.ask_one(conn, &wire::login(OPERATIONAL_TO_FULL, &NAMES).byte(2, 9));
    assert_eq!((reply.u16(36), reply.header[2], reply.header[3]), (0, 0, 0), "0 to 9 contains ours");
}

#[test]
fn l05_names_are_required() {
    refused(&wire::login(OPERATIONAL_TO_FULL, &NAMES[..1]), 0x0207);
    refused(&wire::login(OPERATIONAL_TO_FULL, &NAMES[1..]), 0x0207);
    refused(&wire::login(OPERATIONAL_TO_FULL, &[]), 0x0207);
}

#[test]
fn l06_unknown_and_hidden_targets_are_not_found() {
    let unknown = [NAMES[0], ("TargetName", "iqn.2026-11.org.example:other")];
    refused(&wire::login(OPERATIONAL_TO_FULL, &unknown), 0x0203);

    let mut config = config();
    config.targets[0].initiators = Initiators::Listed(vec!["iqn.2026-11.org.example:host2".to_owned()]);
    let mut rig = Rig::with(config);
    let conn = rig.connect();
    refused_on(&mut rig, conn, &wire::login(OPERATIONAL_TO_FULL, &NAMES), 0x0203);
    let allowed = [("InitiatorName", "iqn.2026-11.org.example:host2"), NAMES[1]];
    let conn = rig.connect();
    assert_eq!(rig.ask_one(conn, &wire::login(OPERATIONAL_TO_FULL, &allowed)).u16(36), 0);
}

#[test]
fn l07_t_and_c_together_are_refused() {
    refused(&wire::login(OPERATIONAL_TO_FULL | CONTINUE, &NAMES), 0x0200);
}

#[test]
fn l08_reserved_and_backward_stages_are_refused() {
    for flags in [0x08, 0x88, 0x8b, 0x82, 0x80, 0x86, 0x84, 0x85, 0x0c, 0x8c, 0x8f] {
        refused(&wire::login(flags, &NAMES), 0x0200);
    }
}

#[test]
fn l09_no_way_back_to_an_earlier_stage() {
    let mut rig = Rig::new();
    let conn = rig.connect();
    assert_eq!(rig.ask_one(conn, &wire::login(SECURITY_TO_OPERATIONAL, &NAMES)).flags(), 0x81);
    refused_on(&mut rig, conn, &wire::login(SECURITY_TO_OPERATIONAL, &[]), 0x0200);
}

#[test]
fn l11_chap_only_is_rejected_and_refused() {
    let mut rig = Rig::new();
    let conn = rig.connect();
    let reply = rig.ask_one(conn, &wire::login(SECURITY_TO_OPERATIONAL, &with_keys(&[("AuthMethod", "CHAP")])));
    assert_eq!((reply.u16(36), reply.value("AuthMethod")), (0x0201, Some("Reject".into())));
    assert!(rig.is_closed(conn));
}

#[test]
fn l12_a_key_twice_in_one_stage_is_refused() {
    let twice = [("MaxBurstLength", "65536"), ("MaxBurstLength", "65536")];
    refused(&wire::login(OPERATIONAL_TO_FULL, &with_keys(&twice)), 0x0200);
    refused(&wire::login(OPERATIONAL_TO_FULL, &with_keys(&NAMES)), 0x0200);
    refused(&wire::login(OPERATIONAL_TO_FULL, &with_keys(&[("X-a", "1"), ("X-a", "2")])), 0x0200);

    let mut rig = Rig::new();
    let conn = rig.connect();
    rig.ask_one(conn, &wire::login(OPERATIONAL, &with_keys(&[("InitialR2T", "Yes")])));
    refused_on(&mut rig, conn, &wire::login(OPERATIONAL_TO_FULL, &[("InitialR2T", "Yes")]), 0x0200);
}

#[test]
fn names_may_be_repeated_in_the_next_stage_but_not_changed() {
    let mut rig = Rig::new();
    let conn = rig.connect();
    rig.ask_one(conn, &wire::login(SECURITY_TO_OPERATIONAL, &with_keys(&[("SessionType", "Normal")])));
    let again = wire::login(OPERATIONAL_TO_FULL, &with_keys(&[("SessionType", "Normal")]));
    assert_eq!(rig.ask_one(conn, &again).u16(36), 0, "some initiators do that");

    let conn = rig.connect();
    rig.ask_one(conn, &wire::login(SECURITY_TO_OPERATIONAL, &NAMES));
    let other = [("InitiatorName", "iqn.2026-11.org.example:host2")];
    refused_on(&mut rig, conn, &wire::login(OPERATIONAL_TO_FULL, &other), 0x0200);
}

#[test]
fn l14_malformed_text_is_refused() {
    for text in [&b"Abc\0"[..], b"=x\0", b"abc=1\0", b"Abc=1", b"\0"] {
        let data = [wire::text(&NAMES), text.to_vec()].concat();
        refused(&wire::login(OPERATIONAL_TO_FULL, &[]).data(data), 0x0200);
    }
}

#[test]
fn l15_unknown_keys_are_not_understood_and_the_login_goes_on() {
    let mut rig = Rig::new();
    let session = rig.login_as([0; 6], &[("X-com.example.foo", "1"), ("Foo", "1")]);
    assert_eq!(session.answer.value("X-com.example.foo").as_deref(), Some("NotUnderstood"));
    assert_eq!(session.answer.value("Foo").as_deref(), Some("NotUnderstood"));
}

#[test]
fn l16_l18_values_are_negotiated_or_rejected() {
    for (key, value, expected) in [
        ("MaxBurstLength", "0", "Reject"),
        ("MaxBurstLength", "0x200", "512"),
        ("MaxBurstLength", "16777215", "1048576"),
        ("FirstBurstLength", "16777215", "65536"),
        ("MaxOutstandingR2T", "65535", "4"),
        ("MaxConnections", "4", "1"),
        ("ErrorRecoveryLevel", "2", "0"),
        ("InitialR2T", "No", "No"),
        ("InitialR2T", "Yes", "Yes"),
        ("ImmediateData", "No", "No"),
        ("DataPDUInOrder", "No", "Yes"),
        ("DefaultTime2Retain", "20", "0"),
        ("HeaderDigest", "SHA1,CRC32C", "CRC32C"),
        ("DataDigest", "SHA1", "Reject"),
        ("IFMarker", "No", "No"),
        ("OFMarkInt", "1~2", "Reject"),
        ("TaskReporting", "RFC3720,ResponseFence,FastAbort", "RFC3720"),
        ("iSCSIProtocolLevel", "2", "1"),
    ] {
        assert_eq!(answer(key, value).as_deref(), Some(expected), "{key}={value}");
    }
    refused(&wire::login(OPERATIONAL_TO_FULL, &with_keys(&[("MaxRecvDataSegmentLength", "511")])), 0x0200);
}

#[test]
fn l17_first_burst_is_never_more_than_max_burst() {
    let mut rig = Rig::new();
    let keys = [("FirstBurstLength", "65536"), ("MaxBurstLength", "4096")];
    assert_eq!(rig.login_as([0; 6], &keys).answer.value("FirstBurstLength").as_deref(), Some("4096"));

    let conn = rig.connect();
    rig.ask_one(conn, &wire::login(OPERATIONAL, &with_keys(&[("FirstBurstLength", "65536")])));
    refused_on(&mut rig, conn, &wire::login(OPERATIONAL_TO_FULL, &[("MaxBurstLength", "4096")]), 0x0200);
}

#[test]
fn l19_answers_are_no_proposals() {
    for value in ["Reject", "Irrelevant", "NotUnderstood"] {
        refused(&wire::login(OPERATIONAL_TO_FULL, &with_keys(&[("MaxBurstLength", value)])), 0x0200);
    }
}

#[test]
fn keys_in_the_wrong_stage_are_refused() {
    refused(&wire::login(SECURITY_TO_OPERATIONAL, &with_keys(&[("MaxBurstLength", "65536")])), 0x0200);
    refused(&wire::login(OPERATIONAL_TO_FULL, &with_keys(&[("AuthMethod", "None")])), 0x0200);
    refused(&wire::login(OPERATIONAL_TO_FULL, &with_keys(&[("SendTargets", "All")])), 0x0200);
    refused(&wire::login(OPERATIONAL_TO_FULL, &with_keys(&[("TargetPortalGroupTag", "1")])), 0x0200);
}

#[test]
fn l20_an_unknown_tsih_is_no_session() {
    refused(&wire::login(OPERATIONAL_TO_FULL, &NAMES).u16(14, 0x4242), 0x020a);

    // Nor is one of another initiator port.
    let mut rig = Rig::new();
    let session = rig.login(&[]);
    let conn = rig.connect();
    let mut other = wire::login(OPERATIONAL_TO_FULL, &NAMES).u16(14, session.tsih);
    other.header[8..14].copy_from_slice(&[9; 6]);
    refused_on(&mut rig, conn, &other, 0x020a);
}

#[test]
fn l21_a_second_connection_is_too_many() {
    let mut rig = Rig::new();
    let mut session = rig.login(&[]);
    let conn = rig.connect();
    let mut second = wire::login(OPERATIONAL_TO_FULL, &NAMES).u16(14, session.tsih).u16(20, 1);
    second.header[8..14].copy_from_slice(&[1, 2, 3, 4, 5, 6]);
    refused_on(&mut rig, conn, &second, 0x0206);
    rig.good(&mut session, READ, 512, &read10(0, 1));
}

#[test]
fn l23_what_identifies_the_login_must_not_change() {
    let change: [fn(Request) -> Request; 5] =
        [|r| r.byte(13, 1), |r| r.u16(14, 5), |r| r.itt(77), |r| r.u16(20, 1), |r| r.byte(2, 1)];
    for change in change {
        let mut rig = Rig::new();
        let conn = rig.connect();
        rig.ask_one(conn, &wire::login(OPERATIONAL, &NAMES));
        refused_on(&mut rig, conn, &change(wire::login(OPERATIONAL_TO_FULL, &[])), 0x0200);
    }
}

#[test]
fn l24_a_second_request_before_the_answer_ends_the_connection() {
    let mut rig = Rig::new();
    let conn = rig.connect();
    let both = [wire::login(OPERATIONAL, &NAMES), wire::login(OPERATIONAL_TO_FULL, &[])];
    let bytes: Vec<u8> = both.iter().flat_map(|r| r.encode(Digests::default())).collect();
    rig.send_bytes(conn, &bytes);
    assert!(rig.is_closed(conn));
    rig.assert_idle();
}

#[test]
fn l25_exchanges_without_progress_are_limited() {
    let mut rig = Rig::new();
    let conn = rig.connect();
    rig.ask_one(conn, &wire::login(OPERATIONAL, &NAMES));
    for _ in 1..32 {
        assert_eq!(rig.ask_one(conn, &wire::login(OPERATIONAL, &[])).u16(36), 0);
    }
    refused_on(&mut rig, conn, &wire::login(OPERATIONAL, &[]), 0x0200);
}

#[test]
fn l26_a_login_in_full_feature_phase_is_rejected() {
    let mut rig = Rig::new();
    let mut session = rig.login(&[]);
    let reply = rig.ask_one(session.conn, &wire::login(OPERATIONAL_TO_FULL, &NAMES));
    assert_eq!((reply.opcode(), reply.header[2]), (opcode::REJECT, 0x04));
    rig.good(&mut session, READ, 512, &read10(0, 1));
}

#[test]
fn l27_every_isid_type_is_accepted() {
    let mut rig = Rig::new();
    for kind in [0x00, 0x40, 0x80, 0xc0] {
        rig.login_as([kind, 0, 0, 0, 0, 0], &[]);
    }
    assert_eq!(rig.node.sessions().len(), 4);
}

#[test]
fn l28_hostile_names_are_refused() {
    let long = format!("iqn.2026-11.org.example:{}", "x".repeat(200));
    assert_eq!(long.len(), 224);
    for name in [long.as_str(), "iqn.", "", "host1", "iqn.2026-11.a:%n%n", "iqn.a\u{7f}b", "iqn.a\tb", "iqn.a b"] {
        let text = [format!("InitiatorName={name}\0").into_bytes(), wire::text(&NAMES[1..])].concat();
        refused(&wire::login(OPERATIONAL_TO_FULL, &[]).data(text), 0x0200);
    }
    // Overlong UTF-8.
    let text = [b"InitiatorName=iqn.\xc0\xaf\0".to_vec(), wire::text(&NAMES[1..])].concat();
    refused(&wire::login(OPERATIONAL_TO_FULL, &[]).data(text), 0x0200);
    // The longest.
    let longest = [("InitiatorName", &long[..223]), NAMES[1]];
    let mut rig = Rig::new();
    let conn = rig.connect();
    assert_eq!(rig.ask_one(conn, &wire::login(OPERATIONAL_TO_FULL, &longest)).u16(36), 0);
}

#[test]
fn l29_a_stopping_or_full_target_says_so() {
    let mut rig = Rig::new();
    rig.node.drain(rig.now, std::time::Duration::from_secs(5), &mut rig.pool);
    let conn = rig.connect();
    refused_on(&mut rig, conn, &wire::login(OPERATIONAL_TO_FULL, &NAMES), 0x0301);

    let mut rig = Rig::with_limits(Limits { sessions: 1, ..Limits::default() });
    rig.login(&[]);
    let conn = rig.connect();
    refused_on(&mut rig, conn, &wire::login(OPERATIONAL_TO_FULL, &NAMES), 0x0302);
}

#[test]
fn connections_are_limited() {
    let mut rig = Rig::with_limits(Limits { connections: 2, ..Limits::default() });
    let (first, _) = (rig.connect(), rig.connect());
    let portal = crate::iscsi::PortalInfo { address: PORTAL.to_owned(), tag: 1, number: 0 };
    assert_eq!(rig.node.accept(rig.now, "x", portal.clone()), Err(Refused::TooManyConnections));
    rig.hang_up(first);
    assert!(rig.node.accept(rig.now, "x", portal).is_ok());
}

#[test]
fn l30_unknown_session_types_are_refused() {
    refused(&wire::login(OPERATIONAL_TO_FULL, &with_keys(&[("SessionType", "Foo")])), 0x0200);
}

#[test]
fn a_login_for_a_target_of_another_node_moves_there() {
    const OTHER: &str = "iqn.2026-11.org.example:disk2";
    let directory = [TARGET, OTHER].map(|name| DirectoryEntry {
        name: name.to_owned(),
        initiators: Initiators::Any,
        portals: Vec::new(),
        through: Vec::new(),
    });
    let mut here = Rig::with(NodeConfig { directory: directory.to_vec(), ..config() });
    let mut there =
        Rig::with(NodeConfig { targets: vec![target(OTHER, 2)], directory: directory.to_vec(), ..config() });

    let conn = here.connect();
    let names = [NAMES[0], ("TargetName", OTHER)];
    let pairs: Vec<_> = names.into_iter().chain([("HeaderDigest", "CRC32C")]).collect();
    assert_eq!(here.ask(conn, &wire::login(OPERATIONAL_TO_FULL, &pairs).cmd_sn(1)), []);
    assert_eq!(here.elsewhere, [(conn, OTHER.to_owned())]);
    assert!(!here.node.wants_bytes(conn));

    let detached = here.node.detach(conn).unwrap();
    assert_eq!(detached.target(), OTHER);
    let moved = there.node.attach(there.now, detached, &mut there.pool).unwrap();
    there.adopt(moved);
    let reply = there.replies(moved).remove(0);
    assert_eq!((reply.flags(), reply.u16(36)), (0x87, 0), "{:?}", there.events);
    let mut session = there.logged_in(moved, reply);
    there.take_attentions(&mut session);
    there.good(&mut session, READ, 512, &read10(0, 1));
    here.assert_idle();
}

#[test]
fn a_connection_that_moved_in_vain_is_refused() {
    const OTHER: &str = "iqn.2026-11.org.example:disk2";
    let entry = DirectoryEntry {
        name: OTHER.to_owned(),
        initiators: Initiators::Any,
        portals: Vec::new(),
        through: Vec::new(),
    };
    let mut rig = Rig::with(NodeConfig { directory: vec![entry], ..config() });
    let conn = rig.connect();
    rig.ask(conn, &wire::login(OPERATIONAL_TO_FULL, &[NAMES[0], ("TargetName", OTHER)]));
    let detached = rig.node.detach(conn).unwrap();
    let moved = rig.node.attach(rig.now, detached, &mut rig.pool).unwrap();
    rig.adopt(moved);
    assert_eq!(rig.replies(moved)[0].u16(36), 0x0203);
}

#[test]
fn a_removed_target_is_gone_for_its_sessions_and_for_new_logins() {
    let mut rig = Rig::new();
    let session = rig.login(&[]);
    rig.node.set_directory(Vec::new());
    assert!(rig.node.remove_target(rig.now, TARGET, &mut rig.pool));
    rig.pump();
    assert_eq!(rig.replies(session.conn)[0].opcode(), opcode::ASYNC);
    assert!(rig.is_closed(session.conn));
    rig.assert_idle();
    let conn = rig.connect();
    refused_on(&mut rig, conn, &wire::login(OPERATIONAL_TO_FULL, &NAMES), 0x0203);
    assert!(!rig.node.remove_target(rig.now, TARGET, &mut rig.pool));
}

#[test]
fn a_target_removed_while_a_login_waits_is_not_found() {
    let mut rig = Rig::new();
    let mut session = rig.login(&[]);
    rig.disk = Disk::Stuck;
    let write = session.write(0, &[1; BLOCK]);
    rig.send(session.conn, &write);
    let conn = rig.connect();
    let mut again = wire::login(OPERATIONAL_TO_FULL, &NAMES);
    again.header[8..14].copy_from_slice(&[1, 2, 3, 4, 5, 6]);
    assert_eq!(rig.ask(conn, &again), []);
    rig.node.remove_target(rig.now, TARGET, &mut rig.pool);
    rig.release(0, Status::Aborted);
    assert_eq!(rig.replies(conn)[0].u16(36), 0x0203);
    rig.assert_idle();
}
