//! Rows P and T: PDUs that are malformed, or cut anywhere.

use super::rig::*;
use super::wire::{self, Digests, NO_TAG, Request, opcode};

const BOTH: [(&str, &str); 2] = [("HeaderDigest", "CRC32C"), ("DataDigest", "CRC32C")];

fn rejected(rig: &mut Rig, session: &Session, request: &Request, reason: u8) {
    let reply = rig.ask_one(session.conn, request);
    assert_eq!((reply.opcode(), reply.header[2]), (opcode::REJECT, reason), "{:?}", rig.events);
    assert_eq!(reply.data[..4], request.header[..4], "carries the header of the bad PDU");
}

#[test]
fn p01_unknown_opcodes_are_rejected_and_the_session_goes_on() {
    let mut rig = Rig::new();
    let mut session = rig.login(&[]);
    for op in [0x07, 0x0f, 0x11, 0x1f, 0x20, 0x21, 0x25, 0x3f] {
        rejected(&mut rig, &session, &Request::new(op).data(b"abc"), 0x05);
    }
    rig.good(&mut session, READ, 512, &read10(0, 1));
}

#[test]
fn p02_a_segment_longer_than_declared_ends_the_connection() {
    let mut rig = Rig::new();
    let session = rig.login(&[]);
    // 256 KiB are declared.
    let header = wire::nop_out(1, NO_TAG, 1, &[]).byte(5, 0x04).byte(6, 0x00).byte(7, 0x01);
    rig.send_bytes(session.conn, &header.encode(Digests::default()));
    assert!(rig.is_closed(session.conn));
    rig.assert_idle();
}

#[test]
fn p03_additional_headers_where_there_are_none_end_the_connection() {
    let mut rig = Rig::new();
    let session = rig.login(&[]);
    rig.send(session.conn, &wire::nop_out(1, NO_TAG, 1, &[]).byte(4, 255));
    assert!(rig.is_closed(session.conn));
}

#[test]
fn p04_malformed_additional_headers_are_rejected() {
    let mut rig = Rig::new();
    let mut session = rig.login(&[]);
    let cdb = read10(0, 1);
    let bad: [&[u8]; 8] = [
        &[0xff, 0xff, 1, 0],
        &[0, 0, 1, 0],
        &[0, 5, 0, 0, 1, 2, 3, 4],
        &[0, 5, 3, 0, 1, 2, 3, 4],
        &[0, 5, 63, 0, 1, 2, 3, 4],
        &[0, 1, 1, 0],
        &[0, 5, 1, 0, 1, 2, 3, 4, 0, 5, 1, 0, 1, 2, 3, 4],
        &[0, 6, 2, 0, 1, 2, 3, 4, 5, 0, 0, 0],
    ];
    for ahs in bad {
        let request = session.command(READ | SIMPLE, 512, &cdb).ahs(ahs);
        session.cmd_sn -= 1;
        rejected(&mut rig, &session, &request, 0x09);
    }
    rig.good(&mut session, READ, 512, &cdb);
}

#[test]
fn an_extended_cdb_reaches_the_device_server() {
    let mut rig = Rig::new();
    let mut session = rig.login(&[]);
    // READ(32) of a unit that has no such command: what counts is that the opcode of 32 bytes is understood as one.
    let request = session.command(READ | SIMPLE, 512, &[0x7f, 0, 0, 0, 0, 0, 0, 0x18, 0, 9]);
    let request = request.ahs([&[0, 17, 1, 0][..], &[0; 16]].concat());
    let reply = rig.ask_one(session.conn, &request);
    assert_eq!((reply.opcode(), reply.header[3]), (opcode::SCSI_RESPONSE, 2), "{reply:?}");
    assert_eq!(reply.sense().map(|s| s[0]), Some(5));
}

#[test]
fn p06_non_zero_padding_is_accepted() {
    let mut rig = Rig::new();
    let session = rig.login(&[]);
    let mut bytes = wire::nop_out(1, NO_TAG, session.cmd_sn, b"abcde").encode(Digests::default());
    let len = bytes.len();
    bytes[len - 3..].fill(0xee);
    rig.send_bytes(session.conn, &bytes);
    assert_eq!(rig.replies(session.conn)[0].data, b"abcde");
}

#[test]
fn p07_a_wrong_header_digest_ends_the_connection_without_a_word() {
    let mut rig = Rig::new();
    let session = rig.login(&BOTH);
    let mut bytes = wire::nop_out(1, NO_TAG, 1, &[]).encode(Digests { header: true, data: true });
    bytes[50] ^= 1;
    rig.send_bytes(session.conn, &bytes);
    assert!(rig.is_closed(session.conn) && rig.replies(session.conn).is_empty());
    rig.assert_idle();
}

#[test]
fn p08_wrong_immediate_data_were_never_received_and_may_be_sent_again() {
    let mut rig = Rig::new();
    let mut session = rig.login(&BOTH);
    let request = session.write(3, &pattern(BLOCK, 1));
    let digests = Digests { header: true, data: true };
    let mut bytes = request.encode(digests);
    bytes[60] ^= 1;
    rig.send_bytes(session.conn, &bytes);
    let reply = rig.replies(session.conn).remove(0);
    assert_eq!((reply.opcode(), reply.header[2]), (opcode::REJECT, 0x02));
    assert_eq!(reply.exp_cmd_sn(), session.cmd_sn - 1, "the gap stays");
    assert_eq!((rig.submitted.len(), rig.pool.in_use()), (0, 0));

    // A later command waits for the gap; the retry fills it, and both are done, once each.
    let later = session.read(3, 1);
    assert_eq!(rig.ask(session.conn, &later), []);
    let replies = rig.ask(session.conn, &request);
    assert_eq!(
        replies.iter().map(|r| (r.opcode(), r.header[3])).collect::<Vec<_>>(),
        [(opcode::SCSI_RESPONSE, 0), (opcode::DATA_IN, 0)]
    );
    assert_eq!(replies[1].data, pattern(BLOCK, 1));
    assert_eq!(rig.submitted.len(), 2);
}

#[test]
fn p09_wrong_data_out_fails_the_write_after_its_last_sequence_and_nothing_is_written() {
    let mut rig = Rig::new();
    let mut session = rig.login(&[BOTH[0], BOTH[1], ("ImmediateData", "No"), ("MaxBurstLength", "1024")]);
    let request = session.write_solicited(0, 4 * BLOCK);
    let r2t = rig.ask_one(session.conn, &request);
    let digests = Digests { header: true, data: true };
    let mut bytes = wire::data_out(session.itt, r2t.ttt(), 0, 0, &pattern(BLOCK, 1), false).encode(digests);
    bytes[70] ^= 1;
    rig.send_bytes(session.conn, &bytes);
    let reply = rig.replies(session.conn).remove(0);
    assert_eq!((reply.opcode(), reply.header[2]), (opcode::REJECT, 0x02));
    let last = wire::data_out(session.itt, r2t.ttt(), 1, 512, &pattern(BLOCK, 1), true);
    let reply = rig.ask_one(session.conn, &last);
    assert_eq!((reply.opcode(), reply.sense()), (opcode::SCSI_RESPONSE, Some([0x0b, 0x47, 0x05])));
    assert_eq!((rig.submitted.len(), rig.pool.in_use()), (0, 0));
    rig.good(&mut session, READ, 512, &read10(0, 1));
}

#[test]
fn p10_the_reserved_tag_on_a_command_ends_the_connection() {
    let mut rig = Rig::new();
    let mut session = rig.login(&[]);
    let request = session.read(0, 1).itt(NO_TAG);
    rig.send(session.conn, &request);
    assert!(rig.is_closed(session.conn));
}

#[test]
fn p11_wrong_ping_and_text_data_are_rejected_and_freed() {
    let mut rig = Rig::new();
    let session = rig.login(&BOTH);
    let requests = [
        wire::nop_out(1, NO_TAG, session.cmd_sn, &[7; 1000]),
        wire::text_request(2, NO_TAG, session.cmd_sn, &[("SendTargets", "")]),
    ];
    for request in requests {
        let mut bytes = request.encode(Digests { header: true, data: true });
        bytes[55] ^= 1;
        rig.send_bytes(session.conn, &bytes);
        let reply = rig.replies(session.conn).remove(0);
        assert_eq!((reply.opcode(), reply.header[2]), (opcode::REJECT, 0x02));
        assert_eq!(rig.pool.in_use(), 0);
    }
}

#[test]
fn p3_digests_cover_every_kind_of_pdu_in_both_directions() {
    for keys in [&BOTH[..1], &BOTH[1..], &BOTH] {
        let mut rig = Rig::new();
        let mut session = rig.login(keys);
        // The reader checks digests and padding; the deframer checks ours.
        let data = pattern(8 * BLOCK, 3);
        let write = session.write(5, &data);
        assert_eq!(rig.ask_one(session.conn, &write).header[3], 0);
        assert_eq!(rig.good(&mut session, READ, 8 * 512, &read10(5, 8)), data);
        for len in 0..6 {
            let ping = wire::nop_out(1, NO_TAG, session.cmd_sn, &data[..len]).immediate();
            assert_eq!(rig.ask_one(session.conn, &ping).data, data[..len]);
        }
        assert_eq!(rig.good(&mut session, READ, 5, &[0x12, 0, 0, 0, 5, 0]).len(), 5, "padded data");
        let check = session.command(SIMPLE, 0, &[0xff; 6]);
        assert!(rig.ask_one(session.conn, &check).sense().is_some());
        let ended = rig.ask_one(session.conn, &wire::logout(0, 9, 0, session.cmd_sn));
        assert_eq!(ended.opcode(), opcode::LOGOUT_RESPONSE);
        rig.assert_idle();
    }
}

/// A conversation with every kind of data transfer, sent in pieces of any size, must give the same answers.
#[test]
fn p20_a_session_does_not_depend_on_how_its_bytes_are_cut() {
    for digests in [&[][..], &BOTH] {
        let mut expected = None;
        for step in [1, 2, 3, 5, 47, 48, 49, 511, 4096, 1 << 20] {
            let mut rig = Rig::new();
            let more = [("InitialR2T", "No"), ("FirstBurstLength", "2048"), ("MaxRecvDataSegmentLength", "65536")];
            let keys: Vec<_> = digests.iter().copied().chain(more).collect();
            let mut session = rig.login(&keys);
            let on = Digests { header: !digests.is_empty(), data: !digests.is_empty() };
            let data = pattern(40 * BLOCK, 9);
            let mut requests = vec![session.write(0, &data[..BLOCK])];
            // Immediate, unsolicited, and solicited data: 512 + 1536 + 18432 bytes.
            let mut write = session.write_solicited(8, 40 * BLOCK).data(&data[..BLOCK]);
            write.header[1] &= 0x7f;
            let itt = session.itt;
            requests.push(write);
            requests.push(wire::data_out(itt, NO_TAG, 0, 512, &data[512..1024], false));
            requests.push(wire::data_out(itt, NO_TAG, 1, 1024, &data[1024..2048], true));
            requests.push(wire::data_out(itt, 0, 0, 2048, &data[2048..10_000], false));
            requests.push(wire::data_out(itt, 0, 1, 10_000, &data[10_000..], true));
            requests.push(session.read(8, 40));
            let bytes: Vec<u8> = requests.iter().flat_map(|r| r.encode(on)).collect();
            let pieces: Vec<&[u8]> = bytes.chunks(step).collect();
            rig.send_pieces(session.conn, &pieces);
            let mut replies = rig.replies(session.conn);
            // Which command ended first, and what had been received by then, is a matter of time.
            replies.sort_by_key(|r| (r.itt(), r.opcode() == opcode::SCSI_RESPONSE));
            replies.iter_mut().for_each(|r| r.header[24..36].fill(0));
            let seen: Vec<_> = replies.iter().map(|r| (r.opcode(), r.header[3])).collect();
            let ops = [opcode::SCSI_RESPONSE, opcode::R2T, opcode::SCSI_RESPONSE, opcode::DATA_IN];
            assert_eq!(seen, ops.map(|op| (op, 0)), "step {step}, {:?}", rig.events);
            assert_eq!(replies[3].data, data);
            assert_eq!(*expected.get_or_insert_with(|| replies.clone()), replies, "step {step}");
            rig.hang_up(session.conn);
            rig.assert_idle();
        }
    }
}

#[test]
fn payload_goes_straight_into_the_buffer_of_the_write() {
    for digests in [&[][..], &BOTH] {
        let mut rig = Rig::new();
        let mut session = rig.login(digests);
        let on = Digests { header: !digests.is_empty(), data: !digests.is_empty() };
        let data = pattern(64 << 10, 5);
        let request = session.write_solicited(16, data.len());
        let r2t = rig.ask_one(session.conn, &request);
        let bytes = wire::data_out(session.itt, r2t.ttt(), 0, 0, &data, true).encode(on);
        let header = if on.header { 52 } else { 48 };
        assert_eq!(rig.node.payload_space(session.conn), None);
        rig.send_bytes(session.conn, &bytes[..header + 100]);
        // A read that is cut, then the rest.
        let mut at = header + 100;
        for n in [20_000, usize::MAX] {
            let (buf, range) = rig.node.payload_space(session.conn).unwrap();
            assert_eq!(range, at - header..data.len());
            let n = n.min(range.len());
            rig.pool.bytes_mut(buf)[range.start..range.start + n].copy_from_slice(&bytes[at..at + n]);
            rig.node.placed(rig.now, session.conn, n, &mut rig.pool);
            rig.pump();
            at += n;
        }
        rig.send_bytes(session.conn, &bytes[at..]);
        assert_eq!(rig.replies(session.conn)[0].header[3], 0, "{:?}", rig.events);
        assert_eq!(rig.medium[16 * BLOCK..][..data.len()], data);
    }
}

#[test]
fn small_payloads_are_not_worth_a_read_of_their_own() {
    let mut rig = Rig::new();
    let mut session = rig.login(&[]);
    let bytes = session.write(0, &pattern(8 * BLOCK, 1)).encode(Digests::default());
    rig.send_bytes(session.conn, &bytes[..60]);
    assert_eq!(rig.node.payload_space(session.conn), None);
    rig.send_bytes(session.conn, &bytes[60..]);
    assert_eq!(rig.replies(session.conn)[0].header[3], 0);
}

#[test]
fn t04_a_connection_lost_in_the_middle_of_data_writes_nothing_and_leaves_nothing() {
    let mut rig = Rig::new();
    let mut session = rig.login(&[]);
    let bytes = session.write(0, &pattern(4 * BLOCK, 1)).encode(Digests::default());
    rig.send_bytes(session.conn, &bytes[..700]);
    rig.hang_up(session.conn);
    assert!(rig.submitted.is_empty());
    rig.assert_idle();
}

#[test]
fn events_about_bad_pdus_are_limited() {
    let mut rig = Rig::new();
    let session = rig.login(&[]);
    for _ in 0..1000 {
        rig.ask_one(session.conn, &Request::new(0x1f));
    }
    let told = rig.events.iter().filter(|e| matches!(e, crate::iscsi::EventKind::Rejected { .. })).count();
    assert!((1..100).contains(&told), "{told}");
    assert!(rig.events.contains(&crate::iscsi::EventKind::Suppressed));
}
