//! Rows S and D: data in both directions.

use super::rig::*;
use super::wire::{self, BOTH, NONE, Pdu, Request};
use crate::nvme_tcp::ConnId;

const NO_FLOW_CONTROL: Options = Options { digests: NONE, hpda: 0, flow_control: false };
const DIGESTS: Options = Options { digests: BOTH, hpda: 0, flow_control: true };

/// A host whose write of `len` bytes has CID 9 and waits for its data.
fn asked(len: usize) -> (Rig, ConnId, Pdu) {
    let mut rig = Rig::new();
    let host = rig.plain_host();
    let r2t = rig.ask_one(host.io, &write(9, 0, len));
    (rig, host.io, r2t)
}

/// FES and FEI for an H2CData when an R2T asks for `len` bytes; `change` makes it wrong.
fn fatal_data(len: usize, change: impl FnOnce(u16) -> Request) -> (u16, u32) {
    let (mut rig, conn, r2t) = asked(len);
    let fatal = rig.fatal(conn, &change(r2t.u16(10)).encode(NONE));
    assert!(rig.submitted.is_empty(), "nothing was written");
    rig.wind_up();
    fatal
}

#[test]
fn golden_h2c_data_cccid_at_8_ttag_at_10_datao_at_12_datal_at_16_data_at_pdo() {
    let (mut rig, conn, r2t) = asked(1024);
    assert_eq!(r2t.header[..10], [9, 0, 24, 0, 24, 0, 0, 0, 9, 0]);
    assert_eq!((r2t.u32(12), r2t.u32(16)), (0, 1024));
    let [low, high] = r2t.u16(10).to_le_bytes();
    let header = |flags, pdo, offset: u32| {
        let mut header = vec![6, flags, 24, pdo, pdo, 2, 0, 0, 9, 0, low, high];
        header.extend([offset.to_le_bytes(), 512u32.to_le_bytes(), [0; 4]].concat());
        header.resize(pdo.into(), 0xa5);
        header
    };
    rig.send_bytes(conn, &[header(0, 24, 0), vec![1; 512]].concat());
    assert!(rig.replies(conn).is_empty() && rig.submitted.is_empty());
    rig.send_bytes(conn, &[header(4, 128, 512), vec![2; 512]].concat());
    assert_eq!(rig.reply(conn).status(), 0);
    assert_eq!(rig.medium[..1024], [[1; 512], [2; 512]].concat());
}

#[test]
fn s01_transfer_tags_of_no_r2t_are_invalid_at_offset_10() {
    for ttag in [0, 1, 0xffff] {
        let mut rig = Rig::new();
        let host = rig.plain_host();
        assert_eq!(rig.fatal(host.io, &wire::h2c_data(9, ttag, 0, &[1; 8], true).encode(NONE)), (1, 10));
        rig.wind_up();
    }
    assert_eq!(fatal_data(512, |ttag| wire::h2c_data(9, ttag.wrapping_add(1), 0, &[1; 512], true)), (1, 10));
    assert_eq!(fatal_data(512, |ttag| wire::h2c_data(9, !ttag, 0, &[1; 512], true)), (1, 10));
}

#[test]
fn the_command_of_a_transfer_tag_is_invalid_at_offset_8() {
    assert_eq!(fatal_data(512, |ttag| wire::h2c_data(8, ttag, 0, &[1; 512], true)), (1, 8));
}

#[test]
fn s02_a_length_that_differs_from_that_of_the_pdu_is_invalid_at_offset_16() {
    assert_eq!(fatal_data(8192, |ttag| wire::h2c_data(9, ttag, 0, &[1; 8192], true).u32(16, 4096)), (1, 16));
    assert_eq!(fatal_data(8192, |ttag| wire::h2c_data(9, ttag, 0, &[1; 4096], false).u32(16, 8192)), (1, 16));
    assert_eq!(fatal_data(8192, |ttag| wire::h2c_data(9, ttag, 0, &[], true)), (1, 16), "no data at all");
}

#[test]
fn s03_more_than_maxh2cdata_exceeds_the_limit() {
    let data = vec![1; MAX_H2C + 4];
    assert_eq!(fatal_data(2 * MAX_H2C, |ttag| wire::h2c_data(9, ttag, 0, &data, false)), (5, 0));
    assert_eq!(fatal_data(2 * MAX_H2C, |ttag| wire::h2c_data(9, ttag, 0, &[1; 8], false).u32(16, u32::MAX)), (5, 0));
}

#[test]
fn s04_data_beyond_the_r2t_are_out_of_range() {
    assert_eq!(fatal_data(512, |ttag| wire::h2c_data(9, ttag, 0, &[1; 516], true)), (4, 0));
    assert_eq!(fatal_data(512, |ttag| wire::h2c_data(9, ttag, 512, &[1; 4], true)), (4, 0));
    assert_eq!(fatal_data(512, |ttag| wire::h2c_data(9, ttag, 0xffff_fffc, &[1; 8], true)), (4, 0), "wraps");
}

#[test]
fn s05_data_out_of_order_or_with_a_wrong_last_flag_are_out_of_sequence() {
    assert_eq!(fatal_data(1024, |ttag| wire::h2c_data(9, ttag, 512, &[1; 512], true)), (2, 0), "a gap");
    assert_eq!(fatal_data(1024, |ttag| wire::h2c_data(9, ttag, 0, &[1; 512], true)), (2, 0), "LAST_PDU early");
    assert_eq!(fatal_data(1024, |ttag| wire::h2c_data(9, ttag, 0, &[1; 1024], false)), (2, 0), "LAST_PDU missing");
    let (mut rig, conn, r2t) = asked(1024);
    rig.send(conn, &wire::h2c_data(9, r2t.u16(10), 0, &[1; 512], false));
    assert_eq!(rig.fatal(conn, &wire::h2c_data(9, r2t.u16(10), 0, &[1; 512], false).encode(NONE)), (2, 0), "repeated");
    rig.wind_up();
}

#[test]
fn s06_data_that_nothing_asked_for_end_the_connection() {
    let mut rig = Rig::new();
    let conn = rig.initialized(Options::default());
    assert_eq!(rig.fatal(conn, &wire::h2c_data(1, 1, 0, &[1; 8], true).encode(NONE)), (1, 10), "before Connect");
    let mut rig = Rig::new();
    rig.disk = Disk::Held;
    let host = rig.plain_host();
    rig.send(host.io, &read(3, 0, 1));
    assert_eq!(rig.fatal(host.io, &wire::h2c_data(3, 1, 0, &[1; 512], true).encode(NONE)), (1, 10), "of a read");
    rig.wind_up();
    let (mut rig, conn, r2t) = asked(512);
    rig.answer(conn, &r2t, &[1; 512]);
    assert_eq!(rig.reply(conn).status(), 0);
    let again = wire::h2c_data(9, r2t.u16(10), 0, &[2; 512], true).encode(NONE);
    assert_eq!(rig.fatal(conn, &again), (1, 10), "after the end of the command");
    assert_eq!(rig.medium[..512], [1; 512]);
    rig.wind_up();
}

#[test]
fn s07_a_huge_sgl_is_refused_without_memory() {
    let mut rig = Rig::new();
    let host = rig.plain_host();
    let status = rig.ask_one(host.io, &write(1, 0, 512).transport(u32::MAX)).status();
    assert!([0x400f, 0x4002].contains(&status), "{status:#x}");
    assert_eq!(rig.pool.in_use(), 0);
    assert_eq!(rig.read_good(host.io, 2, 0, 1).len(), 512);
}

#[test]
fn s08_wrong_in_capsule_descriptors_fail_the_command_and_its_data_are_dropped() {
    let mut rig = Rig::new();
    let host = rig.plain_host();
    let good = write_in_capsule(1, 0, &[7; 512]);
    let cases = [
        (good.clone().u64(8 + 24, 4), 0x4016),
        (good.clone().u32(8 + 32, 1024), 0x400f),
        (good.clone().u32(8 + 32, 0), 0x400f),
        (good.clone().byte(8 + 39, 0x5a), 0x400f),
        (good.clone().byte(8 + 39, 0x02), 0x4011),
        (good.clone().byte(9, 0), 0x4002),
    ];
    for (request, status) in cases {
        assert_eq!(rig.ask_one(host.io, &request).status(), status);
    }
    assert!(rig.submitted.is_empty());
    assert_eq!(rig.pool.in_use(), 0);
    assert_eq!(rig.ask_one(host.io, &good).status(), 0, "the framing was never lost");
    assert_eq!(rig.medium[..512], [7; 512]);
}

#[test]
fn n04_unknown_descriptors_fail_the_command() {
    let mut rig = Rig::new();
    let host = rig.plain_host();
    for kind in [0x00, 0x10, 0x20, 0x30, 0x40, 0x50, 0x5b, 0xf0] {
        assert_eq!(rig.ask_one(host.io, &read(1, 0, 1).byte(8 + 39, kind)).status(), 0x4011, "{kind:#x}");
    }
}

#[test]
fn s10_a_wrong_data_digest_fails_the_command_when_all_of_its_data_have_come() {
    for bad in 0..2 {
        let mut rig = Rig::new();
        let host = rig.host(DIGESTS);
        let r2t = rig.ask_one(host.io, &write(9, 0, 1024));
        for n in 0..2 {
            assert!(rig.replies(host.io).is_empty() && rig.submitted.is_empty());
            let mut pdu = wire::h2c_data(9, r2t.u16(10), 512 * n, &[3; 512], n == 1).encode(BOTH);
            pdu[200] ^= u8::from(n == bad);
            rig.send_bytes(host.io, &pdu);
        }
        assert_eq!(rig.reply(host.io).status(), 0x22, "Transient Transport Error, to be retried");
        assert_eq!(rig.medium[..1024], [0; 1024]);
        assert_eq!(rig.write_by_r2t(host.io, 9, 0, &[3; 1024]).status(), 0, "the identifier can be used again");
        assert_eq!(rig.medium[..1024], [3; 1024]);
        rig.wind_up();
    }
}

#[test]
fn s26_a_second_command_with_an_identifier_in_use_leaves_the_first_alone() {
    let (mut rig, conn, r2t) = asked(512);
    let reply = rig.ask_one(conn, &write_in_capsule(9, 1, &[2; 512]));
    assert_eq!((reply.cid(), reply.status()), (9, 0x4003));
    rig.answer(conn, &r2t, &[1; 512]);
    assert_eq!(rig.reply(conn).status(), 0);
    assert_eq!(rig.medium[..1024], [[1; 512], [0; 512]].concat());
}

#[test]
fn d14_a_command_never_has_more_than_one_r2t_so_no_maxr2t_is_exceeded() {
    let mut rig = Rig::new();
    let host = rig.plain_host();
    let data = pattern(256 << 10, 3);
    let r2t = rig.ask_one(host.io, &write(1, 8, data.len()));
    assert_eq!((r2t.u32(12), r2t.u32(16)), (0, 256 << 10), "one for all of it");
    rig.answer(host.io, &r2t, &data);
    assert_eq!(rig.reply(host.io).status(), 0);
    assert_eq!(rig.medium[8 * 512..][..data.len()], data);
}

#[test]
fn r2ts_of_several_commands_are_answered_in_any_order() {
    let mut rig = Rig::new();
    let host = rig.plain_host();
    let r2ts: Vec<Pdu> = (0..5).map(|n| rig.ask_one(host.io, &write(n, u32::from(n) * 8, 1024))).collect();
    for n in [3, 0, 4, 1, 2] {
        let half = |offset, last| wire::h2c_data(n, r2ts[usize::from(n)].u16(10), offset, &[n as u8 + 1; 512], last);
        let other = (n + 1) % 5;
        rig.send(host.io, &half(0, false));
        assert!(rig.replies(host.io).is_empty(), "{other}");
        rig.send(host.io, &half(512, true));
        let reply = rig.reply(host.io);
        assert_eq!((reply.cid(), reply.status()), (n, 0));
        assert_eq!(rig.medium[usize::from(n) * 4096..][..1024], [n as u8 + 1; 1024]);
    }
}

#[test]
fn reads_have_one_c2h_data_and_a_response() {
    let mut rig = Rig::new();
    let host = rig.plain_host();
    let data = pattern(128 << 10, 5);
    rig.medium[..data.len()].copy_from_slice(&data);
    let replies = rig.ask(host.io, &read(0x0102, 0, 256));
    assert_eq!(replies.iter().map(|p| (p.kind(), p.flags())).collect::<Vec<_>>(), [(7, 4), (5, 0)], "LAST_PDU");
    assert_eq!((replies[0].u16(8), replies[0].u32(12), replies[0].u32(16)), (0x0102, 0, 128 << 10));
    assert_eq!((&replies[0].data, replies[1].cid(), replies[1].status()), (&data, 0x0102, 0));
    assert_eq!(rig.pool.in_use(), 0);
}

#[test]
fn without_flow_control_a_good_read_has_no_response() {
    let mut rig = Rig::new();
    let host = rig.host(NO_FLOW_CONTROL);
    let replies = rig.ask(host.io, &read(1, 0, 1));
    assert_eq!(replies.iter().map(|p| (p.kind(), p.flags())).collect::<Vec<_>>(), [(7, 0x0c)], "LAST_PDU, SUCCESS");
    assert_eq!(rig.ask_one(host.io, &read(2, BLOCKS as u32, 1)).status(), 0x4080, "a bad one has");
    assert_eq!(rig.ask_one(host.io, &write_in_capsule(3, 0, &[1; 512])).status(), 0, "and a write has");
}

#[test]
fn s30_padding_of_data_for_the_host_is_zero() {
    for digests in [NONE, BOTH] {
        for hpda in [0, 1, 7, 12, 31] {
            let mut rig = Rig::new();
            let buf = rig.pool.alloc(4096).unwrap();
            rig.pool.bytes_mut(buf).fill(0xa5);
            rig.pool.free(buf);
            let host = rig.host(Options { digests, hpda, flow_control: true });
            rig.medium[..512].copy_from_slice(&pattern(512, 1));
            let replies = rig.ask(host.io, &read(1, 0, 1));
            assert!(replies[0].pad.iter().all(|&b| b == 0));
            assert_eq!(replies[0].data, pattern(512, 1));
            assert_eq!(replies[0].header[20..], [0; 4]);
        }
    }
}

#[test]
fn every_way_of_writing_is_read_back_under_every_format() {
    for digests in [NONE, BOTH] {
        for direct in [false, true] {
            let mut rig = Rig::new();
            let host = rig.host(Options { digests, hpda: 5, flow_control: true });
            rig.direct = direct;
            for (n, len) in [512, 4096, 8192, 65536, 128 << 10].into_iter().enumerate() {
                let data = pattern(len, n as u8);
                assert_eq!(rig.write_by_r2t(host.io, 1, 100, &data).status(), 0);
                assert_eq!(rig.read_good(host.io, 2, 100, (len / BLOCK) as u16), data);
                if len <= 8192 {
                    let data = pattern(len, 100 + n as u8);
                    assert_eq!(rig.ask_one(host.io, &write_in_capsule(3, 100, &data)).status(), 0);
                    assert_eq!(rig.read_good(host.io, 4, 100, (len / BLOCK) as u16), data);
                }
            }
            rig.wind_up();
        }
    }
}

#[test]
fn large_data_are_read_straight_into_their_buffer() {
    for digests in [NONE, BOTH] {
        let mut config = config();
        config.limits.max_h2c_data = 256 << 10;
        let mut rig = Rig::with(config);
        rig.direct = true;
        let host = rig.host(Options { digests, hpda: 0, flow_control: true });
        let data = pattern(128 << 10, 1);
        let r2t = rig.ask_one(host.io, &write(1, 0, data.len()));
        rig.send(host.io, &wire::h2c_data(1, r2t.u16(10), 0, &data, true));
        assert_eq!(rig.reply(host.io).status(), 0);
        assert!(rig.placed > 100 << 10, "{}", rig.placed);
        assert_eq!(rig.medium[..data.len()], data);
        let mut bad = wire::h2c_data(2, 0, 0, &[1; 128 << 10], true);
        let r2t = rig.ask_one(host.io, &write(2, 0, data.len()));
        bad = bad.u16(10, r2t.u16(10));
        let mut bytes = bad.encode(digests);
        *bytes.last_mut().unwrap() ^= 1;
        rig.send_bytes(host.io, &bytes);
        let expected = if digests == BOTH { 0x22 } else { 0 };
        assert_eq!(rig.reply(host.io).status(), expected, "the digest covers what was placed");
        rig.wind_up();
    }
}

#[test]
fn t04_a_connection_lost_in_the_middle_of_data_writes_nothing_and_frees_all() {
    for sent in [10, 24, 100, 535] {
        let (mut rig, conn, r2t) = asked(512);
        rig.send_bytes(conn, &wire::h2c_data(9, r2t.u16(10), 0, &[1; 512], true).encode(NONE)[..sent]);
        rig.hang_up(conn);
        assert!(rig.submitted.is_empty());
        assert_eq!(rig.pool.in_use(), 0);
        rig.wind_up();
    }
    for sent in [72, 100, 583] {
        let mut rig = Rig::new();
        let host = rig.plain_host();
        rig.send_bytes(host.io, &write_in_capsule(1, 0, &[1; 512]).encode(NONE)[..sent]);
        rig.hang_up(host.io);
        assert!(rig.submitted.is_empty());
        assert_eq!(rig.pool.in_use(), 0);
        rig.wind_up();
    }
}

#[test]
fn an_aborted_write_ends_when_its_data_have_come() {
    let mut rig = Rig::new();
    let host = rig.plain_host();
    let r2t = rig.ask_one(host.io, &write(9, 0, 1024));
    // Abort of CID 9 in queue 1.
    let aborted = rig.ask(host.admin, &wire::command(0x08, 5, 0).cdw(10, 9 << 16 | 1));
    assert!(rig.replies(host.io).is_empty());
    rig.answer(host.io, &r2t, &[1; 1024]);
    assert_eq!(rig.reply(host.io).status() & 0x7ff, 0x07, "Command Abort Requested");
    let aborted: Vec<u16> = aborted.iter().chain(&rig.replies(host.admin)).map(|p| p.status()).collect();
    assert_eq!(aborted, [0]);
    assert_eq!(rig.medium[..1024], [0; 1024]);
    rig.wind_up();
}
