//! Rows A: task management, and that nothing follows the answer.

use std::time::Duration;

use platter_block::Status;

use super::rig::*;
use super::wire::{self, NO_TAG, Pdu, Request, opcode};

const ABORT_TASK: u8 = 1;
const ABORT_TASK_SET: u8 = 2;
const CLEAR_ACA: u8 = 3;
const CLEAR_TASK_SET: u8 = 4;
const LOGICAL_UNIT_RESET: u8 = 5;
const TARGET_WARM_RESET: u8 = 6;
const TARGET_COLD_RESET: u8 = 7;
const TASK_REASSIGN: u8 = 8;

fn response(reply: &Pdu) -> u8 {
    assert_eq!(reply.opcode(), opcode::TASK_MANAGEMENT_RESPONSE, "{reply:?}");
    reply.header[2]
}

fn function(session: &Session, function: u8, lun: u8) -> Request {
    wire::task_management(function, 0xf000 + u32::from(function), NO_TAG, session.cmd_sn, 0).lun(lun)
}

fn abort(session: &Session, itt: u32, cmd_sn: u32) -> Request {
    wire::task_management(ABORT_TASK, 0xf000, itt, session.cmd_sn, cmd_sn)
}

/// The sense of the next TEST UNIT READY.
fn attention(rig: &mut Rig, session: &mut Session, lun: u8) -> Option<[u8; 3]> {
    let request = session.command(SIMPLE, 0, &[0; 6]).lun(lun);
    rig.ask_one(session.conn, &request).sense()
}

#[test]
fn a01_aborting_a_command_that_never_came_takes_it_as_received() {
    let mut rig = Rig::new();
    let mut session = rig.login(&[]);
    let lost = session.read(0, 1);
    let held = session.read(0, 1);
    assert_eq!(rig.ask(session.conn, &held), []);
    let replies = rig.ask(session.conn, &abort(&session, session.itt - 1, session.cmd_sn - 2));
    // The one behind the gap is done now.
    assert_eq!(
        replies.iter().map(Pdu::opcode).collect::<Vec<_>>(),
        [opcode::TASK_MANAGEMENT_RESPONSE, opcode::DATA_IN]
    );
    assert_eq!((response(&replies[0]), replies[0].exp_cmd_sn()), (0, session.cmd_sn));
    assert_eq!(replies[1].max_cmd_sn(), session.cmd_sn + 127);
    assert_eq!(rig.ask(session.conn, &lost), [], "the late command is ignored");
    rig.good(&mut session, READ, 512, &read10(0, 1));
}

#[test]
fn a02_a_command_outside_the_window_does_not_exist() {
    let mut rig = Rig::new();
    let mut session = rig.login(&[]);
    rig.good(&mut session, READ, 512, &read10(0, 1));
    for cmd_sn in [session.cmd_sn - 1, session.cmd_sn, session.cmd_sn + 1, session.cmd_sn + 1000] {
        assert_eq!(response(&rig.ask_one(session.conn, &abort(&session, 0x5555, cmd_sn))), 1);
    }
}

#[test]
fn a03_a_function_cannot_be_aborted() {
    let mut rig = Rig::new();
    let mut session = rig.login(&[]);
    rig.disk = Disk::Stuck;
    let write = session.write(0, &[1; BLOCK]);
    rig.send(session.conn, &write);
    assert_eq!(rig.ask(session.conn, &function(&session, LOGICAL_UNIT_RESET, 0)), []);
    let itt = 0xf000 + u32::from(LOGICAL_UNIT_RESET);
    assert_eq!(response(&rig.ask_one(session.conn, &abort(&session, itt, session.cmd_sn))), 255);
    rig.release(0, Status::Aborted);
    assert_eq!(response(&rig.replies(session.conn)[0]), 0);
}

#[test]
fn a05_a06_unknown_and_unsupported_functions() {
    let mut rig = Rig::new();
    let session = rig.login(&[]);
    for code in [0, 9, 10, 11, 12, 13, 127, CLEAR_ACA] {
        assert_eq!(response(&rig.ask_one(session.conn, &function(&session, code, 0))), 5, "function {code}");
    }
    assert_eq!(response(&rig.ask_one(session.conn, &function(&session, TASK_REASSIGN, 0))), 4);
}

#[test]
fn a07_functions_on_an_unknown_unit() {
    let mut rig = Rig::new();
    let session = rig.login(&[]);
    for code in [ABORT_TASK_SET, CLEAR_ACA, CLEAR_TASK_SET, LOGICAL_UNIT_RESET] {
        assert_eq!(response(&rig.ask_one(session.conn, &function(&session, code, 9))), 2, "function {code}");
    }
}

#[test]
fn a08_a_cold_reset_is_answered_and_ends_all_sessions_of_the_target() {
    let mut rig = Rig::new();
    let mut session = rig.login(&[]);
    let other = rig.login_as([9; 6], &[]);
    rig.disk = Disk::Held;
    let read = session.read(0, 1);
    rig.send(session.conn, &read);
    let replies = rig.ask(session.conn, &function(&session, TARGET_COLD_RESET, 0));
    assert_eq!(response(&replies[0]), 0);
    assert_eq!((replies[1].opcode(), replies[1].header[36]), (opcode::ASYNC, 3));
    assert_eq!(rig.replies(other.conn)[0].opcode(), opcode::ASYNC);
    assert!(rig.is_closed(session.conn) && rig.is_closed(other.conn));
    rig.assert_idle();
}

#[test]
fn abort_task_ends_a_running_command_without_a_response() {
    let mut rig = Rig::new();
    let mut session = rig.login(&[]);
    rig.disk = Disk::Held;
    let write = session.write(0, &pattern(BLOCK, 1));
    rig.send(session.conn, &write);
    let reply = rig.ask_one(session.conn, &abort(&session, session.itt, session.cmd_sn - 1));
    assert_eq!((response(&reply), reply.max_cmd_sn()), (0, session.cmd_sn + 127), "its place in the window is free");
    assert_eq!((rig.aborts.len(), rig.pool.in_use()), (1, 0));
    assert_eq!(rig.medium[..BLOCK], [0; BLOCK]);
}

#[test]
fn a18_p2_the_answer_waits_until_a_stuck_write_has_ended_whatever_its_end() {
    for status in [Status::Aborted, Status::Good] {
        for code in [ABORT_TASK, ABORT_TASK_SET, CLEAR_TASK_SET, LOGICAL_UNIT_RESET, TARGET_WARM_RESET] {
            let mut rig = Rig::new();
            let mut session = rig.login(&[]);
            rig.disk = Disk::Stuck;
            let write = session.write(0, &pattern(BLOCK, 1));
            rig.send(session.conn, &write);
            let request = match code {
                ABORT_TASK => abort(&session, session.itt, session.cmd_sn - 1),
                _ => function(&session, code, 0),
            };
            assert_eq!(rig.ask(session.conn, &request), [], "function {code}");
            assert_eq!(rig.aborts.len(), 1);
            // The session lives on meanwhile.
            let ping = wire::nop_out(3, NO_TAG, session.cmd_sn, &[]).immediate();
            assert_eq!(rig.ask_one(session.conn, &ping).opcode(), opcode::NOP_IN);
            rig.release(0, status);
            let replies = rig.replies(session.conn);
            assert_eq!((replies.len(), response(&replies[0])), (1, 0), "no response of the write, {status:?}");
            assert_eq!(rig.pool.in_use(), 0);
            let write = session.write(0, &pattern(BLOCK, 2));
            rig.disk = Disk::Fast;
            rig.ask(session.conn, &write);
        }
    }
}

/// What libiscsi's LUNResetSimpleAsync and AbortTaskSimpleAsync do: a write and at once the function. Either the write
/// is answered first and good, or never.
#[test]
fn a_function_right_behind_a_write() {
    for (code, together) in [(ABORT_TASK, 1), (ABORT_TASK, 2), (LOGICAL_UNIT_RESET, 1), (LOGICAL_UNIT_RESET, 2)] {
        let mut rig = Rig::new();
        let mut session = rig.login(&[]);
        let write = session.write(0, &pattern(8 * BLOCK, 1));
        let request = match code {
            ABORT_TASK => abort(&session, session.itt, session.cmd_sn - 1),
            _ => function(&session, code, 0),
        };
        let both = [write, request].map(|r| r.encode(Default::default()));
        // In one read of the socket, or the function after the write has ended.
        for piece in both.chunks(together) {
            rig.send_bytes(session.conn, &piece.concat());
        }
        let replies = rig.replies(session.conn);
        let last = response(replies.last().unwrap());
        match (code, together) {
            (_, 2) => assert_eq!((replies.len(), last), (1, 0)),
            (ABORT_TASK, _) => assert_eq!((replies.len(), replies[0].header[3], last), (2, 0, 1)),
            _ => assert_eq!((replies.len(), replies[0].header[3], last), (2, 0, 0)),
        }
    }
}

#[test]
fn abort_task_set_ends_only_older_commands_of_this_session_and_unit() {
    let mut rig = Rig::new();
    let mut session = rig.login(&[]);
    let mut other = rig.login_as([9; 6], &[]);
    rig.take_attentions(&mut other);
    rig.disk = Disk::Held;
    let older = session.read(0, 1);
    let request = function(&session, ABORT_TASK_SET, 0);
    let younger = session.read(1, 1);
    let elsewhere = session.read(2, 1).lun(1);
    let foreign = other.read(3, 1);
    for read in [&older, &younger, &elsewhere] {
        rig.send(session.conn, read);
    }
    rig.send(other.conn, &foreign);
    assert_eq!(response(&rig.ask_one(session.conn, &request)), 0);
    assert_eq!(rig.aborts.len(), 1);
    rig.release_all();
    assert_eq!(rig.replies(session.conn).len(), 2);
    assert_eq!(rig.replies(other.conn).len(), 1);
    assert_eq!(attention(&mut rig, &mut other, 0), None);
}

#[test]
fn clear_task_set_ends_the_commands_of_all_and_tells_the_others() {
    let mut rig = Rig::new();
    let mut session = rig.login(&[]);
    let mut other = rig.login_as([9; 6], &[]);
    let mut idle = rig.login_as([8; 6], &[]);
    rig.take_attentions(&mut other);
    rig.take_attentions(&mut idle);
    rig.disk = Disk::Held;
    let (mine, theirs, elsewhere) = (session.read(0, 1), other.read(1, 1), other.read(2, 1).lun(1));
    rig.send(session.conn, &mine);
    rig.send(other.conn, &theirs);
    rig.send(other.conn, &elsewhere);
    assert_eq!(response(&rig.ask_one(session.conn, &function(&session, CLEAR_TASK_SET, 0))), 0);
    assert_eq!(rig.aborts.len(), 2);
    rig.release_all();
    assert_eq!(rig.replies(other.conn).len(), 1, "the one on the other unit");
    assert_eq!(attention(&mut rig, &mut other, 0), Some([6, 0x2f, 0]));
    assert_eq!(attention(&mut rig, &mut idle, 0), None);
    assert_eq!(attention(&mut rig, &mut session, 0), None);
}

#[test]
fn a_reset_ends_the_commands_of_all_and_tells_everybody() {
    for (code, on_other_unit) in [(LOGICAL_UNIT_RESET, 0), (TARGET_WARM_RESET, 1)] {
        let mut rig = Rig::new();
        let mut session = rig.login(&[]);
        let mut other = rig.login_as([9; 6], &[]);
        rig.take_attentions(&mut other);
        rig.disk = Disk::Held;
        let (mine, theirs, elsewhere) = (session.read(0, 1), other.read(1, 1), other.read(2, 1).lun(1));
        rig.send(session.conn, &mine);
        rig.send(other.conn, &theirs);
        rig.send(other.conn, &elsewhere);
        assert_eq!(response(&rig.ask_one(session.conn, &function(&session, code, 0))), 0);
        assert_eq!(rig.aborts.len(), 2 + on_other_unit);
        rig.release_all();
        assert_eq!(rig.replies(other.conn).len(), 1 - on_other_unit);
        assert_eq!(attention(&mut rig, &mut other, 0).map(|s| s[1]), Some(0x29));
        assert_eq!(attention(&mut rig, &mut session, 0).map(|s| s[1]), Some(0x29));
        let seen = attention(&mut rig, &mut other, 1).map(|s| s[1]);
        assert_eq!(seen, (on_other_unit == 1).then_some(0x29));
    }
}

#[test]
fn s28_two_resets_at_once_both_wait_for_everything() {
    let mut rig = Rig::new();
    let mut session = rig.login(&[]);
    let mut other = rig.login_as([9; 6], &[]);
    rig.take_attentions(&mut other);
    rig.disk = Disk::Stuck;
    for s in [&mut session, &mut other] {
        for lba in 0..3 {
            let write = s.write(lba, &[1; BLOCK]);
            rig.send(s.conn, &write);
        }
    }
    assert_eq!(rig.ask(session.conn, &function(&session, LOGICAL_UNIT_RESET, 0)), []);
    assert_eq!(rig.ask(other.conn, &function(&other, LOGICAL_UNIT_RESET, 0)), []);
    for left in (0..6).rev() {
        rig.release(0, Status::Aborted);
        let answers = (rig.replies(session.conn).len(), rig.replies(other.conn).len());
        assert_eq!(answers, if left == 0 { (1, 1) } else { (0, 0) });
    }
    assert_eq!(rig.pool.in_use(), 0);
}

#[test]
fn s27_a_tag_may_be_used_again_after_the_answer_and_the_old_write_does_not_land() {
    let mut rig = Rig::new();
    let mut session = rig.login(&[]);
    rig.disk = Disk::Held;
    let old = session.write(0, &pattern(BLOCK, 1));
    rig.send(session.conn, &old);
    let (itt, old_tag) = (session.itt, rig.waiting[0].0);
    assert_eq!(response(&rig.ask_one(session.conn, &abort(&session, itt, session.cmd_sn - 1))), 0);
    rig.disk = Disk::Fast;
    let new = session.write(0, &pattern(BLOCK, 2)).itt(itt);
    assert_eq!(rig.ask_one(session.conn, &new).header[3], 0);
    assert_eq!(rig.medium[..BLOCK], pattern(BLOCK, 2));
    // A second end of the old op is known as such.
    rig.node.completed(rig.now, old_tag, Status::Good, None, &mut rig.pool);
    rig.pump();
    assert_eq!(rig.replies(session.conn), []);
}

#[test]
fn a09_task_set_functions_wait_for_the_data_of_open_r2ts() {
    for code in [ABORT_TASK_SET, CLEAR_TASK_SET, LOGICAL_UNIT_RESET] {
        let mut rig = Rig::new();
        let mut session = rig.login(&[("ImmediateData", "No"), ("MaxBurstLength", "512"), ("MaxOutstandingR2T", "2")]);
        let request = session.write_solicited(0, 4 * BLOCK);
        let r2ts = rig.ask(session.conn, &request);
        assert_eq!(r2ts.len(), 2);
        assert_eq!(rig.ask(session.conn, &function(&session, code, 0)), []);
        assert_eq!(rig.pool.in_use(), 0, "the buffer is free already");
        let data = pattern(BLOCK, 1);
        let first = wire::data_out(session.itt, r2ts[0].ttt(), 0, 0, &data, true);
        assert_eq!(rig.ask(session.conn, &first), []);
        // As early as possible, so with less data than asked for.
        let second = wire::data_out(session.itt, r2ts[1].ttt(), 0, 512, &data[..4], true);
        let replies = rig.ask(session.conn, &second);
        assert_eq!((replies.len(), response(&replies[0])), (1, 0), "function {code}");
        assert!(rig.submitted.is_empty());
    }
}

#[test]
fn a09_d12_an_initiator_that_stops_sending_is_answered_and_late_data_are_dropped() {
    let mut rig = Rig::new();
    let mut session = rig.login(&[("ImmediateData", "No")]);
    let request = session.write_solicited(0, 4 * BLOCK);
    let r2t = rig.ask_one(session.conn, &request);
    assert_eq!(rig.ask(session.conn, &function(&session, LOGICAL_UNIT_RESET, 0)), []);
    rig.wait(Duration::from_millis(999));
    assert_eq!(rig.replies(session.conn), []);
    rig.wait(Duration::from_millis(1));
    assert_eq!(response(&rig.replies(session.conn)[0]), 0);
    let data = pattern(2 * BLOCK, 1);
    assert_eq!(rig.ask(session.conn, &wire::data_out(session.itt, r2t.ttt(), 0, 0, &data, false)), []);
    assert_eq!(rig.ask(session.conn, &wire::data_out(session.itt, r2t.ttt(), 1, 1024, &data, true)), []);
    let again = wire::data_out(session.itt, r2t.ttt(), 0, 0, &data, true);
    assert_eq!(rig.ask_one(session.conn, &again).header[2], 0x09, "the sequence is over");
}

#[test]
fn d12_abort_task_does_not_wait_for_data_and_drops_them() {
    let mut rig = Rig::new();
    let mut session = rig.login(&[("ImmediateData", "No"), ("InitialR2T", "No")]);
    let mut unsolicited = session.write_solicited(0, 4 * BLOCK);
    unsolicited.header[1] &= 0x7f;
    rig.send(session.conn, &unsolicited);
    let itt = session.itt;
    assert_eq!(response(&rig.ask_one(session.conn, &abort(&session, itt, session.cmd_sn - 1))), 0);
    assert_eq!(rig.pool.in_use(), 0);
    // The same tag again, with data of its own, while data of the old one still come.
    let request = session.write_solicited(0, BLOCK).itt(itt);
    let r2t = rig.ask_one(session.conn, &request);
    let new = wire::data_out(itt, r2t.ttt(), 0, 0, &pattern(BLOCK, 2), true);
    assert_eq!(rig.ask_one(session.conn, &new).header[3], 0);
    let late = wire::data_out(itt, NO_TAG, 0, 0, &pattern(4 * BLOCK, 1), true);
    assert_eq!(rig.ask(session.conn, &late), []);
    assert_eq!(rig.medium[..BLOCK], pattern(BLOCK, 2));
}

#[test]
fn an_abort_in_the_middle_of_a_data_pdu_leaves_the_buffer_alone() {
    let mut rig = Rig::new();
    let mut session = rig.login(&[("ImmediateData", "No")]);
    let mut other = rig.login_as([9; 6], &[]);
    rig.take_attentions(&mut other);
    let request = session.write_solicited(0, 64 * BLOCK);
    let r2t = rig.ask_one(session.conn, &request);
    let bytes = wire::data_out(session.itt, r2t.ttt(), 0, 0, &pattern(64 * BLOCK, 1), true).encode(Default::default());
    rig.send_bytes(session.conn, &bytes[..1000]);
    assert!(rig.node.payload_space(session.conn).is_some());
    assert_eq!(response(&rig.ask_one(other.conn, &function(&other, LOGICAL_UNIT_RESET, 0))), 0);
    assert_eq!((rig.node.payload_space(session.conn), rig.pool.in_use()), (None, 0));
    rig.send_bytes(session.conn, &bytes[1000..]);
    assert_eq!(rig.replies(session.conn), []);
    assert_eq!(attention(&mut rig, &mut session, 0).map(|s| s[1]), Some(0x29));
}

#[test]
fn a_function_ends_older_commands_that_come_only_later() {
    for code in [ABORT_TASK_SET, LOGICAL_UNIT_RESET] {
        let mut rig = Rig::new();
        let mut session = rig.login(&[]);
        let late = session.read(0, 1);
        let held = session.read(1, 1);
        assert_eq!(rig.ask(session.conn, &held), []);
        assert_eq!(rig.ask(session.conn, &function(&session, code, 0)), [], "waits for the gap (4.2.3.3 b)");
        let replies = rig.ask(session.conn, &late);
        assert_eq!((replies.len(), response(&replies[0])), (1, 0), "function {code}");
        assert_eq!(replies[0].exp_cmd_sn(), session.cmd_sn);
        assert!(rig.submitted.is_empty());
        rig.take_reset(&mut session);
        rig.good(&mut session, READ, 512, &read10(0, 1));
    }
}

#[test]
fn a_target_reset_takes_missing_commands_as_received() {
    let mut rig = Rig::new();
    let mut session = rig.login(&[]);
    let lost = session.read(0, 1);
    let held = session.read(1, 1);
    rig.send(session.conn, &held);
    let reply = rig.ask_one(session.conn, &function(&session, TARGET_WARM_RESET, 0));
    assert_eq!((response(&reply), reply.exp_cmd_sn(), reply.max_cmd_sn()), (0, session.cmd_sn, session.cmd_sn + 127));
    assert_eq!(rig.ask(session.conn, &lost), []);
    rig.take_reset(&mut session);
    rig.good(&mut session, READ, 512, &read10(0, 1));
}

#[test]
fn a_function_with_a_cmd_sn_that_no_command_can_have_waits_for_nothing() {
    for code in [ABORT_TASK_SET, LOGICAL_UNIT_RESET, TARGET_WARM_RESET] {
        for cmd_sn in [1000, 0x7fff_ffff, 0x8000_0001, u32::MAX] {
            let mut rig = Rig::new();
            let mut session = rig.login(&[]);
            let reply = rig.ask_one(session.conn, &function(&session, code, 0).cmd_sn(cmd_sn));
            assert_eq!((response(&reply), reply.exp_cmd_sn()), (0, session.cmd_sn), "function {code}, CmdSN {cmd_sn}");
            rig.take_reset(&mut session);
            rig.good(&mut session, READ, 512, &read10(0, 1));
        }
    }
}

#[test]
fn a_parked_command_is_aborted_and_lets_others_go() {
    let mut rig = Rig::new();
    let mut session = rig.login(&[]);
    rig.disk = Disk::Held;
    let first = session.read(0, 1);
    let ordered = session.command(WRITE | 2, 512, &write10(1, 1)).data(pattern(BLOCK, 1));
    let ordered_itt = session.itt;
    let last = session.read(2, 1);
    for request in [&first, &ordered, &last] {
        rig.send(session.conn, request);
    }
    assert_eq!(rig.submitted.len(), 1);
    assert_eq!(response(&rig.ask_one(session.conn, &abort(&session, ordered_itt, session.cmd_sn - 2))), 0);
    assert_eq!(rig.submitted.len(), 2, "the last one runs beside the first");
    rig.release_all();
    assert_eq!(rig.replies(session.conn).len(), 2);
    assert_eq!(rig.pool.in_use(), 0);
}

#[test]
fn a_window_that_a_reset_opens_is_told_to_the_session_that_waits_for_it() {
    let mut rig = Rig::with_limits(crate::iscsi::Limits { command_window: 2, ..Default::default() });
    let session = rig.login(&[]);
    let mut other = rig.login_as([9; 6], &[]);
    rig.take_attentions(&mut other);
    rig.disk = Disk::Held;
    for lba in 0..2 {
        let read = other.read(lba, 1);
        rig.send(other.conn, &read);
    }
    rig.ask(session.conn, &function(&session, LOGICAL_UNIT_RESET, 0));
    let told = rig.replies(other.conn);
    assert_eq!((told.len(), told[0].opcode(), told[0].itt(), told[0].ttt()), (1, opcode::NOP_IN, NO_TAG, NO_TAG));
    assert_eq!((told[0].exp_cmd_sn(), told[0].max_cmd_sn()), (other.cmd_sn, other.cmd_sn));
    assert_eq!(attention(&mut rig, &mut other, 0).map(|s| s[1]), Some(0x29));
}

#[test]
fn functions_in_progress_are_limited() {
    let mut rig = Rig::new();
    let mut session = rig.login(&[]);
    rig.disk = Disk::Stuck;
    let write = session.write(0, &[1; BLOCK]);
    rig.send(session.conn, &write);
    for itt in 0..16 {
        assert_eq!(rig.ask(session.conn, &function(&session, LOGICAL_UNIT_RESET, 0).itt(itt)), []);
    }
    let reply = rig.ask_one(session.conn, &function(&session, LOGICAL_UNIT_RESET, 0).itt(16));
    assert_eq!((reply.opcode(), reply.header[2]), (opcode::REJECT, 0x06));
    let reply = rig.ask_one(session.conn, &function(&session, LOGICAL_UNIT_RESET, 0).itt(3));
    assert_eq!((reply.opcode(), reply.header[2]), (opcode::REJECT, 0x07));
    rig.release(0, Status::Aborted);
    assert_eq!(rig.replies(session.conn).len(), 16);
}
