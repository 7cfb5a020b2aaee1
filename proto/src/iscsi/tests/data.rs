//! Rows D: data transfers in both directions, and residual counts.

use super::rig::*;
use super::wire::{self, NO_TAG, Pdu, Request, opcode};
use crate::iscsi::Limits;

const R2T_ONLY: [(&str, &str); 2] = [("ImmediateData", "No"), ("InitialR2T", "Yes")];
const UNEXPECTED: Option<[u8; 3]> = Some([0x0b, 0x0c, 0x0c]);
const INCORRECT_AMOUNT: Option<[u8; 3]> = Some([0x0b, 0x0c, 0x0d]);
const CRC: Option<[u8; 3]> = Some([0x0b, 0x47, 0x05]);

fn failed(rig: &mut Rig, reply: &Pdu, sense: Option<[u8; 3]>) {
    assert_eq!((reply.opcode(), reply.header[3], reply.sense()), (opcode::SCSI_RESPONSE, 2, sense), "{:?}", rig.events);
    assert_eq!(rig.submitted.len(), 0, "nothing was written");
    assert_eq!(rig.pool.in_use(), 0);
}

fn rejected(reply: &Pdu, reason: u8) {
    assert_eq!((reply.opcode(), reply.header[2]), (opcode::REJECT, reason), "{reply:?}");
}

/// A write of `blocks` blocks that has been answered by its first R2Ts.
fn solicited(rig: &mut Rig, session: &mut Session, blocks: usize) -> Vec<Pdu> {
    let request = session.write_solicited(0, blocks * BLOCK);
    let r2ts = rig.ask(session.conn, &request);
    assert!(!r2ts.is_empty() && r2ts.iter().all(|r| r.opcode() == opcode::R2T), "{r2ts:?}");
    r2ts
}

#[test]
fn a_write_takes_immediate_unsolicited_and_solicited_data() {
    for (immediate, first_burst) in [("Yes", "Yes"), ("Yes", "No"), ("No", "Yes"), ("No", "No")] {
        let mut rig = Rig::new();
        let keys = [
            ("ImmediateData", immediate),
            ("InitialR2T", first_burst),
            ("FirstBurstLength", "1024"),
            ("MaxBurstLength", "1024"),
        ];
        let mut session = rig.login(&keys);
        let data = pattern(8 * BLOCK, 7);
        let mut request = session.write_solicited(3, data.len());
        let mut sent = 0;
        if immediate == "Yes" {
            request = request.data(&data[..BLOCK]);
            sent = BLOCK;
        }
        let unsolicited = first_burst == "No";
        if unsolicited {
            request.header[1] &= 0x7f;
        }
        let mut replies = rig.ask(session.conn, &request);
        if unsolicited {
            assert_eq!(replies, []);
            let more = wire::data_out(session.itt, NO_TAG, 0, sent as u32, &data[sent..1024], true);
            replies = rig.ask(session.conn, &more);
        }
        let mut r2t_sn = 0;
        while replies[0].opcode() == opcode::R2T {
            assert_eq!(replies.len(), 1, "MaxOutstandingR2T is 1 unless negotiated");
            let (offset, len) = (replies[0].u32(40), replies[0].u32(44));
            assert_eq!((replies[0].u32(36), len), (r2t_sn, 1024.min(data.len() as u32 - offset)));
            r2t_sn += 1;
            let piece = &data[offset as usize..][..len as usize];
            let answer = wire::data_out(session.itt, replies[0].ttt(), 0, offset, piece, true);
            replies = rig.ask(session.conn, &answer);
        }
        assert_eq!((replies[0].opcode(), replies[0].header[3], replies[0].flags()), (opcode::SCSI_RESPONSE, 0, 0x80));
        assert_eq!(rig.medium[3 * BLOCK..][..data.len()], data);
        assert_eq!((rig.submitted.len(), rig.pool.in_use()), (1, 0));
    }
}

#[test]
fn several_r2ts_are_outstanding_if_negotiated() {
    let mut rig = Rig::new();
    let mut session = rig.login(&[("MaxOutstandingR2T", "3"), ("MaxBurstLength", "1024"), R2T_ONLY[0]]);
    let data = pattern(10 * BLOCK, 4);
    let request = session.write_solicited(0, data.len());
    let mut r2ts = rig.ask(session.conn, &request);
    assert_eq!(r2ts.iter().map(|r| r.u32(40)).collect::<Vec<_>>(), [0, 1024, 2048]);
    let mut answered = 0;
    while answered < 5 {
        let r2t = r2ts.remove(0);
        let (offset, len) = (r2t.u32(40) as usize, r2t.u32(44) as usize);
        let answer = wire::data_out(session.itt, r2t.ttt(), 0, offset as u32, &data[offset..offset + len], true);
        r2ts.extend(rig.ask(session.conn, &answer));
        answered += 1;
    }
    assert_eq!((r2ts.len(), r2ts[0].opcode(), r2ts[0].header[3]), (1, opcode::SCSI_RESPONSE, 0));
    assert_eq!(rig.medium[..data.len()], data);
}

#[test]
fn d14_never_more_r2ts_than_negotiated() {
    let mut rig = Rig::with_limits(Limits { max_outstanding_r2t: 64, ..Limits::default() });
    let mut session = rig.login(&[("MaxOutstandingR2T", "2"), ("MaxBurstLength", "512"), R2T_ONLY[0]]);
    assert_eq!(solicited(&mut rig, &mut session, 16).len(), 2);
}

#[test]
fn a_read_is_cut_at_the_segment_and_burst_lengths_of_the_initiator() {
    let mut rig = Rig::new();
    let mut session = rig.login(&[("MaxRecvDataSegmentLength", "1024"), ("MaxBurstLength", "2560")]);
    rig.medium[..16 * BLOCK].copy_from_slice(&pattern(16 * BLOCK, 6));
    let request = session.read(0, 16);
    let pdus = rig.ask(session.conn, &request);
    let cut: Vec<_> = pdus.iter().map(|p| (p.u32(40), p.data.len(), p.flags(), p.u32(36))).collect();
    assert_eq!(
        cut,
        [
            (0, 1024, 0x00, 0),
            (1024, 1024, 0x00, 1),
            (2048, 512, 0x80, 2),
            (2560, 1024, 0x00, 3),
            (3584, 1024, 0x00, 4),
            (4608, 512, 0x80, 5),
            (5120, 1024, 0x00, 6),
            (6144, 1024, 0x00, 7),
            (7168, 512, 0x80, 8),
            (7680, 512, 0x81, 9),
        ]
    );
    let data: Vec<u8> = pdus.iter().flat_map(|p| p.data.clone()).collect();
    assert_eq!(data, pattern(16 * BLOCK, 6));
    let stat_sns: Vec<_> = pdus.iter().map(Pdu::stat_sn).collect();
    assert_eq!((&stat_sns[..9], stat_sns[9] != 0), (&[0; 9][..], true), "StatSN only with status");
    assert_eq!(rig.pool.in_use(), 0);
}

#[test]
fn a_failed_read_has_its_status_in_a_response() {
    let mut rig = Rig::new();
    let mut session = rig.login(&[]);
    rig.disk = Disk::Held;
    let request = session.read(0, 1);
    rig.send(session.conn, &request);
    rig.release(0, platter_block::Status::MediumError { lba: platter_block::Lba(0) });
    let replies = rig.replies(session.conn);
    assert_eq!((replies.len(), replies[0].opcode(), replies[0].header[3]), (1, opcode::SCSI_RESPONSE, 2));
    assert_eq!((replies[0].flags(), replies[0].u32(44)), (0x82, 512), "underflow of everything");
    assert_eq!(rig.pool.in_use(), 0);
}

#[test]
fn k06_residuals_are_exact() {
    let mut rig = Rig::new();
    let mut session = rig.login(&[]);
    for (cdb, flags) in [(read10(0, 2), READ), (write10(0, 2), WRITE)] {
        for (expected, residual_flags, residual) in [
            (1024, 0, 0),
            (512, 0x04, 512),
            (1000, 0x04, 24),
            (1536, 0x02, 512),
            (1025, 0x02, 1),
            (100_000, 0x02, 98_976),
        ] {
            let mut request = session.command(flags | SIMPLE, expected, &cdb);
            if flags == WRITE {
                request = request.data(vec![9; expected.min(65536) as usize]);
            }
            let replies = rig.ask(session.conn, &request);
            let last = replies.last().unwrap();
            assert_eq!(
                (last.header[3], last.flags() & 0x06, last.u32(44)),
                (0, residual_flags, residual),
                "{cdb:02x?} with {expected} bytes: {replies:?}"
            );
            if flags == READ {
                assert_eq!(replies.iter().map(|r| r.data.len()).sum::<usize>(), expected.min(1024) as usize);
            }
        }
        // Neither R nor W, and no data: everything is overflow.
        let request = session.command(SIMPLE, 0, &cdb);
        let reply = rig.ask_one(session.conn, &request);
        assert_eq!((reply.header[3], reply.flags(), reply.u32(44)), (0, 0x84, 1024), "{cdb:02x?}");
    }
    assert_eq!(rig.pool.in_use(), 0);
}

#[test]
fn k07_contradictory_flags_are_rejected() {
    let mut rig = Rig::new();
    let mut session = rig.login(&[]);
    let no_final = |mut r: Request| {
        r.header[1] &= 0x7f;
        r
    };
    let bad = [
        session.command(SIMPLE, 512, &read10(0, 1)),
        no_final(session.command(SIMPLE, 0, &[0; 6])),
        no_final(session.read(0, 1)),
        session.read(0, 1).data(b"abcd"),
        session.write_solicited(0, 512).data([0; 516]),
        no_final(session.write(0, &[0; 512])),
    ];
    session.cmd_sn -= bad.len() as u32;
    for request in bad {
        let request = request.cmd_sn(session.cmd_sn);
        rejected(&rig.ask_one(session.conn, &request), 0x09);
    }
    for attribute in 5..8 {
        let request = session.command(attribute, 0, &[0; 6]);
        session.cmd_sn -= 1;
        rejected(&rig.ask_one(session.conn, &request), 0x09);
    }
    rig.good(&mut session, READ, 512, &read10(0, 1));
}

#[test]
fn k07_bidirectional_commands_are_refused() {
    let mut rig = Rig::new();
    let mut session = rig.login(&[]);
    let bidi = session.command(READ | WRITE | SIMPLE, 512, &[0x53, 0, 0, 0, 0, 0, 0, 0, 1, 0]);
    let bidi = bidi.ahs([0, 5, 2, 0, 0, 0, 2, 0]);
    let reply = rig.ask_one(session.conn, &bidi);
    assert_eq!((reply.header[3], reply.sense(), reply.flags(), reply.u32(44)), (2, Some([5, 0x20, 0]), 0x82, 512));
    let read = session.command(READ | WRITE | SIMPLE, 512, &read10(0, 1));
    assert_eq!(rig.ask_one(session.conn, &read).sense(), Some([5, 0x20, 0]));
    assert!(rig.submitted.is_empty());
}

#[test]
fn k08_the_wrong_direction_writes_nothing() {
    let mut rig = Rig::new();
    let mut session = rig.login(&[]);
    let write = session.command(READ | SIMPLE, 512, &write10(0, 1));
    rig.ask(session.conn, &write);
    assert!(rig.submitted.iter().all(|op| !op.is_write()), "{:?}", rig.submitted);
    let read = session.command(WRITE | SIMPLE, 512, &read10(0, 1)).data([1; 512]);
    let replies = rig.ask(session.conn, &read);
    assert_eq!(replies.iter().map(|r| r.data.len()).filter(|&n| n >= 512).count(), 0, "no data to a writer");
    assert_eq!(rig.pool.in_use(), 0);
}

#[test]
fn d01_data_for_an_unknown_transfer_tag_are_rejected() {
    let mut rig = Rig::new();
    let mut session = rig.login(&R2T_ONLY);
    let r2t = solicited(&mut rig, &mut session, 1).remove(0);
    let data = pattern(BLOCK, 1);
    for ttt in [r2t.ttt() + 1, 0x1234_5678, r2t.ttt() ^ 0x10000] {
        let stray = wire::data_out(session.itt, ttt, 0, 0, &data, true);
        rejected(&rig.ask_one(session.conn, &stray), 0x09);
    }
    let right = wire::data_out(session.itt, r2t.ttt(), 0, 0, &data, true);
    assert_eq!(rig.ask_one(session.conn, &right).header[3], 0, "the write goes on");
    rejected(&rig.ask_one(session.conn, &right), 0x09);
}

#[test]
fn d02_data_of_the_wrong_task_or_unit_are_rejected() {
    let mut rig = Rig::new();
    let mut session = rig.login(&R2T_ONLY);
    let r2t = solicited(&mut rig, &mut session, 1).remove(0);
    let data = pattern(BLOCK, 1);
    let right = wire::data_out(session.itt, r2t.ttt(), 0, 0, &data, true);
    rejected(&rig.ask_one(session.conn, &right.clone().itt(0x9999)), 0x09);
    rejected(&rig.ask_one(session.conn, &right.clone().lun(1)), 0x09);
    assert_eq!(rig.ask_one(session.conn, &right).header[3], 0);
}

#[test]
fn d03_data_outside_the_transfer_are_rejected_and_fail_the_write() {
    for (offset, len) in [(0, 2 * BLOCK), (512, BLOCK), (0xffff_fe00, BLOCK), (4, BLOCK)] {
        let mut rig = Rig::new();
        let mut session = rig.login(&R2T_ONLY);
        let r2t = solicited(&mut rig, &mut session, 1).remove(0);
        let bad = wire::data_out(session.itt, r2t.ttt(), 0, offset, &pattern(len, 1), true);
        let replies = rig.ask(session.conn, &bad);
        rejected(&replies[0], 0x09);
        failed(&mut rig, &replies[1], INCORRECT_AMOUNT);
    }
}

#[test]
fn d04_data_that_go_backwards_are_rejected_and_fail_the_write() {
    let mut rig = Rig::new();
    let mut session = rig.login(&R2T_ONLY);
    let r2t = solicited(&mut rig, &mut session, 2).remove(0);
    let data = pattern(BLOCK, 1);
    assert_eq!(rig.ask(session.conn, &wire::data_out(session.itt, r2t.ttt(), 0, 0, &data, false)), []);
    let replies = rig.ask(session.conn, &wire::data_out(session.itt, r2t.ttt(), 1, 0, &data, false));
    rejected(&replies[0], 0x04);
    assert_eq!(replies.len(), 1, "the response waits for the F bit");
    // However wrong the rest is, one rejection is enough.
    let replies = rig.ask(session.conn, &wire::data_out(session.itt, r2t.ttt(), 7, 0, &data, true));
    failed(&mut rig, &replies[0], INCORRECT_AMOUNT);
}

#[test]
fn d05_a_gap_or_repeat_in_data_sn_counts_as_lost_data() {
    // The order of the last is that of the conformance test iSCSIDataSnInvalid: (1, 0).
    for data_sns in [&[27][..], &[0xffff_ffff], &[0, 0], &[0, 2], &[1, 0]] {
        for solicited_data in [true, false] {
            let mut rig = Rig::new();
            let mut session = rig.login(&[("ImmediateData", "No"), ("InitialR2T", "No")]);
            let len = data_sns.len() * BLOCK;
            let mut request = session.write_solicited(0, len);
            let mut ttt = NO_TAG;
            if solicited_data {
                ttt = rig.ask_one(session.conn, &request).ttt();
            } else {
                request.header[1] &= 0x7f;
                assert_eq!(rig.ask(session.conn, &request), []);
            }
            let mut replies = Vec::new();
            for (n, &data_sn) in data_sns.iter().enumerate() {
                let last = n + 1 == data_sns.len();
                assert_eq!(replies, [], "not before the F bit");
                let pdu = wire::data_out(session.itt, ttt, data_sn, (n * BLOCK) as u32, &pattern(BLOCK, 1), last);
                replies = rig.ask(session.conn, &pdu);
            }
            assert_eq!(replies.len(), 1, "{data_sns:?}");
            failed(&mut rig, &replies[0], CRC);
            rig.good(&mut session, READ, 512, &read10(0, 1));
        }
    }
}

#[test]
fn d06_too_little_data_fail_the_write() {
    let mut rig = Rig::new();
    let mut session = rig.login(&R2T_ONLY);
    let r2t = solicited(&mut rig, &mut session, 2).remove(0);
    let reply = rig.ask_one(session.conn, &wire::data_out(session.itt, r2t.ttt(), 0, 0, &pattern(BLOCK, 1), true));
    failed(&mut rig, &reply, INCORRECT_AMOUNT);
}

#[test]
fn d07_unsolicited_data_that_were_not_agreed_fail_the_write() {
    let mut rig = Rig::new();
    let mut session = rig.login(&[("InitialR2T", "Yes")]);
    let mut request = session.write_solicited(0, 2 * BLOCK).data(pattern(BLOCK, 1));
    request.header[1] &= 0x7f;
    assert_eq!(rig.ask(session.conn, &request), [], "waits for the data that will come (11.4.2)");
    let reply = rig.ask_one(session.conn, &wire::data_out(session.itt, NO_TAG, 0, 512, &pattern(BLOCK, 1), true));
    failed(&mut rig, &reply, UNEXPECTED);
}

#[test]
fn d07_unsolicited_data_after_the_first_burst_fail_the_write() {
    let mut rig = Rig::new();
    let mut session = rig.login(&[("InitialR2T", "No")]);
    let r2t = solicited(&mut rig, &mut session, 2).remove(0);
    let data = pattern(BLOCK, 1);
    assert_eq!(rig.ask(session.conn, &wire::data_out(session.itt, NO_TAG, 0, 0, &data, true)), []);
    let rest = wire::data_out(session.itt, r2t.ttt(), 0, 0, &pattern(2 * BLOCK, 1), true);
    let reply = rig.ask_one(session.conn, &rest);
    failed(&mut rig, &reply, UNEXPECTED);
}

#[test]
fn d08_immediate_data_that_were_not_agreed_fail_the_write() {
    let mut rig = Rig::new();
    let mut session = rig.login(&R2T_ONLY);
    let request = session.write(0, &pattern(BLOCK, 1));
    let reply = rig.ask_one(session.conn, &request);
    failed(&mut rig, &reply, UNEXPECTED);
}

#[test]
fn more_unsolicited_data_than_first_burst_length_fail_the_write() {
    let keys = [("FirstBurstLength", "1024"), ("InitialR2T", "No")];
    let mut rig = Rig::new();
    let mut session = rig.login(&keys);
    let request = session.write(0, &pattern(3 * BLOCK, 1));
    let reply = rig.ask_one(session.conn, &request);
    failed(&mut rig, &reply, INCORRECT_AMOUNT);

    let mut request = session.write_solicited(0, 4 * BLOCK);
    request.header[1] &= 0x7f;
    rig.ask(session.conn, &request);
    let replies = rig.ask(session.conn, &wire::data_out(session.itt, NO_TAG, 0, 0, &pattern(3 * BLOCK, 1), true));
    rejected(&replies[0], 0x09);
    failed(&mut rig, &replies[1], INCORRECT_AMOUNT);
}

#[test]
fn less_unsolicited_data_than_first_burst_length_fail_the_write() {
    let mut rig = Rig::new();
    let mut session = rig.login(&[("FirstBurstLength", "1024"), ("InitialR2T", "No")]);
    let mut request = session.write_solicited(0, 4 * BLOCK);
    request.header[1] &= 0x7f;
    rig.ask(session.conn, &request);
    let reply = rig.ask_one(session.conn, &wire::data_out(session.itt, NO_TAG, 0, 0, &pattern(BLOCK, 1), true));
    failed(&mut rig, &reply, INCORRECT_AMOUNT);
}

#[test]
fn a_command_that_wants_no_data_is_answered_after_the_data_that_come() {
    let mut rig = Rig::new();
    let mut session = rig.login(&[("InitialR2T", "No")]);
    let mut request = session.command(WRITE | SIMPLE, 1024, &[0xff; 10]).data(pattern(BLOCK, 1));
    request.header[1] &= 0x7f;
    assert_eq!(rig.ask(session.conn, &request), []);
    let reply = rig.ask_one(session.conn, &wire::data_out(session.itt, NO_TAG, 0, 512, &pattern(BLOCK, 1), true));
    assert_eq!((reply.header[3], reply.sense()), (2, Some([5, 0x20, 0])));
    assert_eq!(rig.pool.in_use(), 0);
}

#[test]
fn d11_empty_data_out_is_allowed_and_costs_nothing() {
    let mut rig = Rig::new();
    let mut session = rig.login(&R2T_ONLY);
    let r2t = solicited(&mut rig, &mut session, 1).remove(0);
    let held = rig.pool.in_use();
    for n in 0..1000 {
        assert_eq!(rig.ask(session.conn, &wire::data_out(session.itt, r2t.ttt(), n, 0, &[], false)), []);
    }
    assert_eq!(rig.pool.in_use(), held);
    let last = wire::data_out(session.itt, r2t.ttt(), 1000, 0, &pattern(BLOCK, 1), true);
    assert_eq!(rig.ask_one(session.conn, &last).header[3], 0);
}

#[test]
fn without_memory_a_write_is_answered_task_set_full() {
    let mut rig = Rig::new();
    let mut session = rig.login(&[]);
    rig.pool = platter_block::BufPool::new(4096);
    let hog = rig.pool.alloc(4096).unwrap();
    let request = session.write(0, &pattern(BLOCK, 1));
    let reply = rig.ask_one(session.conn, &request);
    assert_eq!((reply.header[3], reply.exp_cmd_sn()), (0x28, session.cmd_sn), "received, and refused");
    let request = session.read(0, 1);
    assert_eq!(rig.ask_one(session.conn, &request).header[3], 0x28);
    let ping = wire::nop_out(1, NO_TAG, session.cmd_sn, b"ping");
    rejected(&rig.ask_one(session.conn, &ping), 0x06);
    rig.pool.free(hog);
    rig.good(&mut session, READ, 512, &read10(0, 1));
}

#[test]
fn s30_nothing_but_answers_is_on_the_wire() {
    let mut rig = Rig::new();
    let mut session = rig.login(&[]);
    // Memory that somebody else has used.
    let dirty: Vec<_> = (0..8).map(|_| rig.pool.alloc(65536).unwrap()).collect();
    for buf in dirty {
        rig.pool.bytes_mut(buf).fill(0xa5);
        rig.pool.free(buf);
    }
    for (len, cdb) in [
        (255, vec![0x12, 0, 0, 0, 255, 0]),
        (65535, vec![0x12, 0, 0, 0xff, 0xff, 0]),
        (255, vec![0x03, 0, 0, 0, 255, 0]),
        (4096, vec![0xa0, 0, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0]),
        (255, vec![0x1a, 0, 0x3f, 0, 255, 0]),
        (512, read10(0, 1).to_vec()),
    ] {
        let data = rig.good(&mut session, READ, len, &cdb);
        assert!(!data.windows(2).any(|w| w == [0xa5, 0xa5]), "{cdb:02x?}");
    }
}

#[test]
fn t06_a_peer_that_does_not_read_is_not_served() {
    let mut rig = Rig::with_limits(Limits { transmit_queue: 64 << 10, ..Limits::default() });
    let mut session = rig.login(&[]);
    rig.deaf.push(session.conn);
    for _ in 0..100 {
        let request = session.read(0, 32);
        rig.send(session.conn, &request);
    }
    assert!(!rig.node.wants_bytes(session.conn));
    assert_eq!(rig.submitted.len(), 4, "the queue is full after 64 KiB");
    assert!(rig.pool.in_use() <= 128 << 10);
    rig.listen(session.conn);
    assert!(rig.node.wants_bytes(session.conn));
    assert_eq!(rig.replies(session.conn).len(), 8, "two PDUs each");
    assert_eq!(rig.pool.in_use(), 0);
}
