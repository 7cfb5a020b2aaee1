//! The bytes of every PDU the target sends, by the offsets of the figures in section 11.

use std::time::Duration;

use super::rig::*;
use super::wire::{self, NO_TAG, Pdu, opcode};

/// Every header as hexadecimal words, so that a change of any byte is seen.
fn words(pdu: &Pdu) -> Vec<String> {
    pdu.header.chunks(4).map(|w| w.iter().fold(String::new(), |hex, b| format!("{hex}{b:02x}"))).collect()
}

#[test]
fn login_response_11_13() {
    let mut rig = Rig::new();
    let conn = rig.connect();
    let mut request = wire::login(OPERATIONAL_TO_FULL, &NAMES).itt(0xaabb_ccdd).cmd_sn(0x10);
    request.header[8..14].copy_from_slice(&[0x40, 1, 2, 3, 4, 5]);
    request.header[20..22].copy_from_slice(&[0x12, 0x34]);
    let pdu = rig.ask_one(conn, &request);
    assert_eq!(
        words(&pdu),
        [
            "23870000", // opcode; T=1 C=0 CSG=1 NSG=3; Version-max, Version-active
            "0000004a", // DataSegmentLength
            "40010203", // ISID
            "04050101", // ISID, TSIH
            "aabbccdd", // ITT
            "00000000", "00000001", // StatSN
            "00000010", // ExpCmdSN
            "0000008f", // MaxCmdSN: a window of 128
            "00000000", // Status
            "00000000", "00000000",
        ]
    );
    assert_eq!(
        pdu.data,
        b"TargetPortalGroupTag=1\0TargetAlias=a disk\0MaxRecvDataSegmentLength=262144\0"[..],
        "{:?}",
        pdu.pairs()
    );
}

#[test]
fn scsi_response_11_4() {
    let mut rig = Rig::new();
    let mut session = rig.login_as([0; 6], &[]);
    let request = session.command(SIMPLE, 0, &[0; 6]);
    let pdu = rig.ask_one(session.conn, &request);
    assert_eq!(
        words(&pdu),
        [
            "21800002", // opcode; F; Response; Status CHECK CONDITION
            "00000014", // DataSegmentLength: SenseLength and 18 bytes
            "00000000", "00000000", "00001001", // ITT
            "00000000", // SNACK Tag
            "00000002", // StatSN
            "00000002", // ExpCmdSN
            "00000081", // MaxCmdSN
            "00000000", // ExpDataSN
            "00000000", // Bidirectional Read Residual Count
            "00000000", // Residual Count
        ]
    );
    assert_eq!(pdu.data[..2], [0, 18], "SenseLength");
    assert_eq!(pdu.sense(), Some([6, 0x29, 0]));
}

#[test]
fn data_in_11_7() {
    let mut rig = Rig::new();
    let mut session = rig.login(&[]);
    rig.medium[BLOCK..3 * BLOCK].copy_from_slice(&pattern(2 * BLOCK, 1));
    let request = session.read(1, 2);
    let pdu = rig.ask_one(session.conn, &request);
    assert_eq!(
        words(&pdu),
        [
            "25810000", // opcode; F, S; Status GOOD
            "00000400", // DataSegmentLength
            "00000000", "00000000", // LUN
            "00001003", // ITT
            "ffffffff", // TTT
            "00000004", // StatSN
            "00000004", // ExpCmdSN
            "00000083", // MaxCmdSN
            "00000000", // DataSN
            "00000000", // Buffer Offset
            "00000000", // Residual Count
        ]
    );
    assert_eq!(pdu.data, pattern(2 * BLOCK, 1));
}

#[test]
fn r2t_11_8() {
    let mut rig = Rig::new();
    let mut session = rig.login(&[]);
    let request = session.write_solicited(0, 4 * BLOCK).lun(1);
    let pdu = rig.ask_one(session.conn, &request);
    assert_eq!(
        words(&pdu),
        [
            "31800000", "00000000", // DataSegmentLength
            "00010000", // LUN
            "00000000", "00001003", // ITT
            "00000000", // TTT
            "00000004", // StatSN: the next one
            "00000004", // ExpCmdSN
            "00000082", // MaxCmdSN: the write has not ended
            "00000000", // R2TSN
            "00000000", // Buffer Offset
            "00000800", // Desired Data Transfer Length
        ]
    );
    let data = wire::data_out(pdu.itt(), pdu.ttt(), 0, 0, &pattern(4 * BLOCK, 2), true).lun(1);
    let reply = rig.ask_one(session.conn, &data);
    assert_eq!((reply.header[3], reply.stat_sn()), (0, 4), "R2T has used no StatSN");
}

#[test]
fn task_management_response_11_6() {
    let mut rig = Rig::new();
    let session = rig.login(&[]);
    let pdu = rig.ask_one(session.conn, &wire::task_management(5, 0x77, NO_TAG, session.cmd_sn, 0));
    assert_eq!(
        words(&pdu),
        [
            "22800000", // opcode; F; Response: function complete
            "00000000", "00000000", "00000000", "00000077", // ITT
            "00000000", "00000004", "00000003", "00000082", "00000000", "00000000", "00000000",
        ]
    );
}

#[test]
fn nop_in_11_19() {
    let mut rig = Rig::new();
    let session = rig.login(&[]);
    let pdu = rig.ask_one(session.conn, &wire::nop_out(0x55, NO_TAG, session.cmd_sn, b"ping!"));
    assert_eq!(
        words(&pdu),
        [
            "20800000", "00000005", "00000000", "00000000", "00000055", // ITT
            "ffffffff", // TTT
            "00000004", "00000004", // ExpCmdSN: not immediate
            "00000083", "00000000", "00000000", "00000000",
        ]
    );
    assert_eq!(pdu.data, b"ping!");

    rig.wait(Duration::from_secs(30));
    let pdu = rig.replies(session.conn).remove(0);
    assert_eq!(
        words(&pdu),
        [
            "20800000", "00000000", "00000000", "00000000", "ffffffff", // ITT
            "00000001", // TTT
            "00000005", // StatSN: the next one
            "00000004", "00000083", "00000000", "00000000", "00000000",
        ]
    );
}

#[test]
fn text_response_11_11() {
    let mut rig = Rig::new();
    let session = rig.login(&[]);
    let pdu = rig.ask_one(session.conn, &wire::text_request(9, NO_TAG, session.cmd_sn, &[("SendTargets", "")]));
    let len = format!("{:08x}", pdu.data.len());
    assert_eq!(
        words(&pdu),
        [
            "24800000", &len, "00000000", "00000000", "00000009", "ffffffff", "00000004", "00000004", "00000083",
            "00000000", "00000000", "00000000",
        ]
    );
    assert_eq!(pdu.pairs(), [("TargetName".into(), TARGET.into()), ("TargetAddress".into(), format!("{PORTAL},1"))]);
}

#[test]
fn logout_response_11_15() {
    let mut rig = Rig::new();
    let session = rig.login(&[]);
    let pdu = rig.ask_one(session.conn, &wire::logout(0, 0x66, 0, session.cmd_sn));
    assert_eq!(
        words(&pdu),
        [
            "26800000", // opcode; F; Response: closed
            "00000000", "00000000", "00000000", "00000066", "00000000", "00000004", "00000003", "00000082", "00000000",
            "00000000", // Time2Wait, Time2Retain
            "00000000",
        ]
    );
    assert!(rig.is_closed(session.conn));
    rig.assert_idle();
}

#[test]
fn a15_reject_11_17() {
    let mut rig = Rig::new();
    let session = rig.login(&[]);
    let snack = wire::Request::new(opcode::SNACK).itt(0x88);
    let pdu = rig.ask_one(session.conn, &snack);
    assert_eq!(
        words(&pdu),
        [
            "3f800500", // opcode; F; Reason: command not supported
            "00000030", // DataSegmentLength
            "00000000", "00000000", "ffffffff", "00000000", "00000004", "00000003", "00000082", "00000000", "00000000",
            "00000000",
        ]
    );
    assert_eq!(pdu.data, snack.header, "the header of the bad PDU (11.17.4)");
}

#[test]
fn asynchronous_message_11_9() {
    let mut rig = Rig::new();
    let session = rig.login(&[]);
    rig.node.drain(rig.now, Duration::from_secs(10), &mut rig.pool);
    rig.pump();
    let pdu = rig.replies(session.conn).remove(0);
    assert_eq!(
        words(&pdu),
        [
            "32800000", "00000000", "00000000", "00000000", "ffffffff", "00000000", "00000004", "00000003", "00000082",
            "01000000", // AsyncEvent: logout request
            "0000000a", // Parameter2, Parameter3: seconds
            "00000000",
        ]
    );
}
