//! CmdSN and StatSN (4.2.2), immediate commands, NOP-Out, and task attributes.

use super::rig::*;
use super::wire::{self, NO_TAG, Pdu, Request, opcode};
use crate::iscsi::Limits;

fn rejected(reply: &Pdu, reason: u8) {
    assert_eq!((reply.opcode(), reply.header[2]), (opcode::REJECT, reason), "{reply:?}");
}

fn narrow(window: u32) -> Rig {
    Rig::with_limits(Limits { command_window: window, ..Limits::default() })
}

#[test]
fn a11_what_is_outside_the_window_is_ignored() {
    let mut rig = narrow(8);
    let mut session = rig.login(&[]);
    let request = session.read(0, 1);
    for cmd_sn in [session.cmd_sn - 2, session.cmd_sn + 7, session.cmd_sn + 8, session.cmd_sn.wrapping_add(1 << 31)] {
        assert_eq!(rig.ask(session.conn, &request.clone().cmd_sn(cmd_sn)), [], "CmdSN {cmd_sn}");
        assert_eq!(rig.ask(session.conn, &wire::nop_out(7, NO_TAG, cmd_sn, b"x")), []);
    }
    assert!(rig.submitted.is_empty() && rig.pool.in_use() == 0);
    assert_eq!(rig.ask_one(session.conn, &request).header[3], 0);
}

#[test]
fn a11_duplicates_are_ignored_wherever_they_are() {
    let mut rig = Rig::new();
    let mut session = rig.login(&[]);
    rig.disk = Disk::Held;
    let first = session.read(0, 1);
    let second = session.read(0, 1);
    let third = session.read(0, 1);
    // One that waits for the first.
    assert_eq!(rig.ask(session.conn, &second), []);
    assert_eq!(rig.ask(session.conn, &second), []);
    assert_eq!(rig.ask(session.conn, &second.clone().itt(0x7777)), [], "another task with its CmdSN");
    // One that runs.
    assert_eq!(rig.ask(session.conn, &first), []);
    assert_eq!(rig.ask(session.conn, &first), []);
    assert_eq!(rig.submitted.len(), 2);
    rig.release_all();
    assert_eq!(rig.replies(session.conn).len(), 2);
    // One that has ended.
    assert_eq!(rig.ask(session.conn, &first), []);
    rig.disk = Disk::Fast;
    assert_eq!(rig.ask_one(session.conn, &third).header[3], 0);
}

#[test]
fn a12_commands_in_any_order_are_done_in_the_order_of_cmd_sn_across_the_wrap() {
    for start in [1, u32::MAX - 3, u32::MAX, 0x7fff_fffe] {
        let mut rig = Rig::new();
        let conn = rig.connect();
        let answer = rig.ask_one(conn, &wire::login(OPERATIONAL_TO_FULL, &NAMES).cmd_sn(start));
        assert_eq!((answer.exp_cmd_sn(), answer.max_cmd_sn()), (start, start.wrapping_add(127)));
        let mut session = rig.logged_in(conn, answer);
        rig.take_attentions(&mut session);
        let reads: Vec<Request> = (0..6).map(|lba| session.read(lba, 1)).collect();
        for n in [3, 1, 5, 2, 4] {
            assert_eq!(rig.ask(conn, &reads[n]), []);
        }
        let replies = rig.ask(conn, &reads[0]);
        let itts: Vec<u32> = replies.iter().map(Pdu::itt).collect();
        assert_eq!(itts, (0..6).map(|n| session.itt - 5 + n).collect::<Vec<_>>(), "start {start:#x}");
        assert_eq!(replies.last().map(Pdu::exp_cmd_sn), Some(session.cmd_sn));
        rig.good(&mut session, READ, 512, &read10(0, 1));
    }
}

#[test]
fn the_window_is_as_wide_as_the_commands_that_may_be_outstanding() {
    let mut rig = narrow(4);
    let mut session = rig.login(&[]);
    rig.disk = Disk::Held;
    let reads: Vec<Request> = (0..5).map(|_| session.read(0, 1)).collect();
    for read in &reads {
        rig.send(session.conn, read);
    }
    assert_eq!(rig.submitted.len(), 4, "the fifth is outside");
    let ping = rig.ask_one(session.conn, &wire::nop_out(1, NO_TAG, session.cmd_sn, &[]).immediate());
    assert_eq!(ping.max_cmd_sn(), ping.exp_cmd_sn() - 1, "closed");
    rig.release(0, platter_block::Status::Good);
    let reply = rig.replies(session.conn).remove(0);
    assert_eq!(reply.max_cmd_sn(), reply.exp_cmd_sn(), "open for one");
    rig.send(session.conn, &reads[4]);
    assert_eq!(rig.submitted.len(), 5);
    rig.release_all();
    assert_eq!(rig.replies(session.conn).len(), 4);
}

#[test]
fn a10_immediate_commands_are_limited_and_a_function_is_always_taken() {
    let mut rig = Rig::with_limits(Limits { immediate_commands: 3, ..Limits::default() });
    let mut session = rig.login(&[]);
    rig.disk = Disk::Held;
    for n in 0..1000 {
        let request = session.read(0, 1).immediate().cmd_sn(3);
        session.cmd_sn -= 1;
        let replies = rig.ask(session.conn, &request);
        match n {
            0..3 => assert_eq!(replies, []),
            _ => rejected(&replies[0], 0x06),
        }
    }
    assert_eq!(rig.submitted.len(), 3);
    let abort = wire::task_management(1, 1, session.itt - 999, session.cmd_sn, session.cmd_sn);
    let reply = rig.ask_one(session.conn, &abort);
    assert_eq!((reply.opcode(), reply.header[2]), (opcode::TASK_MANAGEMENT_RESPONSE, 0));
    let ping = wire::nop_out(2, NO_TAG, session.cmd_sn, &[]).immediate();
    assert_eq!(rig.ask_one(session.conn, &ping).opcode(), opcode::NOP_IN);
}

#[test]
fn immediate_commands_do_not_move_the_window() {
    let mut rig = Rig::new();
    let mut session = rig.login(&[]);
    let request = session.read(0, 1).immediate();
    session.cmd_sn -= 1;
    let reply = rig.ask_one(session.conn, &request);
    assert_eq!((reply.header[3], reply.exp_cmd_sn()), (0, session.cmd_sn));
    rig.good(&mut session, READ, 512, &read10(0, 1));
}

#[test]
fn s26_a_tag_in_use_is_rejected_and_the_first_command_goes_on() {
    let mut rig = Rig::new();
    let mut session = rig.login(&[]);
    rig.disk = Disk::Held;
    let first = session.write(0, &pattern(BLOCK, 1));
    rig.send(session.conn, &first);
    let second = session.write(0, &pattern(BLOCK, 2)).itt(session.itt - 1);
    session.cmd_sn -= 1;
    rejected(&rig.ask_one(session.conn, &second), 0x07);
    rig.release_all();
    assert_eq!(rig.replies(session.conn).len(), 1);
    assert_eq!(rig.medium[..BLOCK], pattern(BLOCK, 1));
}

#[test]
fn stat_sn_counts_every_response() {
    let mut rig = Rig::new();
    let mut session = rig.login(&[]);
    let mut expected = 4;
    for _ in 0..3 {
        let read = session.read(0, 1);
        for request in [
            read,
            wire::nop_out(1, NO_TAG, session.cmd_sn, &[]).immediate(),
            Request::new(opcode::SNACK),
            wire::text_request(1, NO_TAG, session.cmd_sn, &[]).immediate(),
            wire::task_management(8, 1, 5, session.cmd_sn, 0),
        ] {
            assert_eq!(rig.ask_one(session.conn, &request).stat_sn(), expected);
            expected += 1;
        }
    }
}

#[test]
fn w01_a_nop_out_without_tag_must_be_immediate() {
    let mut rig = Rig::new();
    let session = rig.login(&[]);
    assert_eq!(rig.ask(session.conn, &wire::nop_out(NO_TAG, NO_TAG, 1, b"x").immediate()), [], "wants no answer");
    rig.send(session.conn, &wire::nop_out(NO_TAG, NO_TAG, session.cmd_sn, &[]));
    assert!(rig.is_closed(session.conn));
    rig.assert_idle();
}

#[test]
fn w02_ping_data_come_back_up_to_the_segment_length_of_the_initiator() {
    let mut rig = Rig::new();
    let session = rig.login(&[("MaxRecvDataSegmentLength", "1000")]);
    let data = pattern(256 << 10, 1);
    let reply = rig.ask_one(session.conn, &wire::nop_out(1, NO_TAG, session.cmd_sn, &data));
    assert_eq!(reply.data, data[..1000]);
    assert_eq!(rig.pool.in_use(), 0);
}

#[test]
fn requests_of_every_kind_wait_for_their_turn() {
    let mut rig = Rig::new();
    let mut session = rig.login(&[]);
    let first = session.command(SIMPLE, 0, &[0; 6]);
    let at = session.cmd_sn;
    let text = wire::text_request(1, NO_TAG, at, &[("SendTargets", "")]);
    let ping = wire::nop_out(2, NO_TAG, at + 1, b"hello");
    let function = Request::new(opcode::TASK_MANAGEMENT).byte(1, 0x88).itt(3).u32(20, 9).cmd_sn(at + 2);
    let logout = Request::new(opcode::LOGOUT).itt(4).cmd_sn(at + 3);
    for request in [&logout, &function, &ping, &text] {
        assert_eq!(rig.ask(session.conn, request), []);
    }
    let ops: Vec<u8> = rig.ask(session.conn, &first).iter().map(Pdu::opcode).collect();
    assert_eq!(
        ops,
        [
            opcode::SCSI_RESPONSE,
            opcode::TEXT_RESPONSE,
            opcode::NOP_IN,
            opcode::TASK_MANAGEMENT_RESPONSE,
            opcode::LOGOUT_RESPONSE
        ]
    );
    rig.assert_idle();
}

#[test]
fn a_held_write_keeps_its_unsolicited_data() {
    for digests in [&[][..], &[("DataDigest", "CRC32C")]] {
        let mut rig = Rig::new();
        let keys: Vec<_> =
            digests.iter().copied().chain([("InitialR2T", "No"), ("FirstBurstLength", "2048")]).collect();
        let mut session = rig.login(&keys);
        let first = session.read(0, 1);
        let data = pattern(4 * BLOCK, 8);
        let mut write = session.write_solicited(2, data.len()).data(&data[..BLOCK]);
        write.header[1] &= 0x7f;
        assert_eq!(rig.ask(session.conn, &write), []);
        let unsolicited = wire::data_out(session.itt, NO_TAG, 0, 512, &data[BLOCK..], true);
        assert_eq!(rig.ask(session.conn, &unsolicited), []);
        let replies = rig.ask(session.conn, &first);
        assert_eq!(replies.iter().map(|r| r.header[3]).collect::<Vec<_>>(), [0, 0], "{:?}", rig.events);
        assert_eq!(rig.medium[2 * BLOCK..][..data.len()], data);
        assert_eq!(rig.pool.in_use(), 0);
    }
}

#[test]
fn k28_an_ordered_command_waits_for_older_ones_and_holds_back_younger_ones() {
    let mut rig = Rig::new();
    let mut session = rig.login(&[]);
    rig.disk = Disk::Held;
    let simple = session.read(0, 1);
    let data = pattern(BLOCK, 3);
    let ordered = session.command(WRITE | 2, 512, &write10(1, 1)).data(&data[..]);
    let younger = session.read(1, 1);
    let other_unit = session.read(5, 1).lun(1);
    let head = session.command(READ | 3, 512, &read10(6, 1));
    for request in [&simple, &ordered, &younger, &other_unit, &head] {
        rig.send(session.conn, request);
    }
    let lbas = |rig: &Rig| rig.submitted.iter().map(|op| op.range().unwrap().start.0).collect::<Vec<_>>();
    assert_eq!(lbas(&rig), [0, 5, 6]);
    rig.release(0, platter_block::Status::Good);
    assert_eq!(lbas(&rig), [0, 5, 6], "a head of queue command is older than what has not started");
    rig.release_all();
    assert_eq!(lbas(&rig), [0, 5, 6, 1, 1]);
    let replies = rig.replies(session.conn);
    assert_eq!(replies.len(), 5);
    assert_eq!(replies[4].data, data, "the younger read sees the write");
    assert_eq!(rig.pool.in_use(), 0);
}

#[test]
fn a_parked_command_may_start_in_the_middle_of_its_data() {
    for digests in [&[][..], &[("DataDigest", "CRC32C")]] {
        let mut rig = Rig::new();
        let mut session = rig.login(digests);
        rig.disk = Disk::Held;
        let read = session.read(0, 1);
        rig.send(session.conn, &read);
        let data = pattern(8 * BLOCK, 9);
        let ordered = session.command(WRITE | 2, data.len() as u32, &write10(3, 8)).data(&data[..]);
        let on = wire::Digests { header: false, data: !digests.is_empty() };
        let bytes = ordered.encode(on);
        rig.send_bytes(session.conn, &bytes[..1000]);
        // The older command ends, so the ordered one starts; it goes on with the rest of the PDU.
        rig.release_all();
        rig.disk = Disk::Fast;
        rig.send_bytes(session.conn, &bytes[1000..]);
        assert_eq!(
            rig.replies(session.conn).iter().map(|r| r.header[3]).collect::<Vec<_>>(),
            [0, 0],
            "{:?}",
            rig.events
        );
        assert_eq!(rig.medium[3 * BLOCK..][..data.len()], data);
        assert_eq!(rig.pool.in_use(), 0);
    }
}
