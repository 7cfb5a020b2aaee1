//! Rows P and T: PDUs that are malformed, or cut anywhere.

use super::rig::*;
use super::wire::{self, BOTH, NONE, Pdu, Request};
use crate::nvme::EventKind;
use crate::nvme_tcp::ConnId;

const DIGESTS: Options = Options { digests: BOTH, hpda: 0, flow_control: true };

/// FES and FEI for bytes that come on a connection that has been initialized.
fn fatal(options: Options, bytes: &[u8]) -> (u16, u32) {
    let mut rig = Rig::new();
    let conn = rig.initialized(options);
    let fatal = rig.fatal(conn, bytes);
    rig.assert_idle();
    fatal
}

fn plain(bytes: &[u8]) -> (u16, u32) {
    fatal(Options::default(), bytes)
}

/// The first bytes of a PDU.
fn common(kind: u8, flags: u8, hlen: u8, pdo: u8, plen: u32) -> Vec<u8> {
    [&[kind, flags, hlen, pdo][..], &plen.to_le_bytes()].concat()
}

/// What comes back for an I/O connection's whole life, sent in pieces that end at these offsets.
fn life_of_a_connection(options: Options, cuts: impl Fn(usize) -> Vec<usize>) -> (Vec<Pdu>, Vec<u8>) {
    let mut rig = Rig::new();
    rig.plain_host();
    let mut stream = wire::ic_req(options.digests, 0, 0).encode(NONE);
    let requests = [
        connect(2, 1, true),
        write_in_capsule(1, 4, &pattern(512, 1)).pad(8),
        read(2, 4, 1),
        wire::command(0x00, 3, 1),
        write_in_capsule(4, 5, &pattern(512, 2)),
    ];
    requests.iter().for_each(|r| stream.extend(r.encode(options.digests)));
    let conn = rig.dial();
    rig.agree(conn, options);
    let mut start = 0;
    for end in cuts(stream.len()).into_iter().chain([stream.len()]) {
        rig.send_bytes(conn, &stream[start..end]);
        start = end;
    }
    (rig.replies(conn), rig.medium[..4096].to_vec())
}

#[test]
fn t03_framing_does_not_depend_on_segmentation() {
    for options in [Options::default(), DIGESTS] {
        let len = std::cell::Cell::new(0);
        let whole = life_of_a_connection(options, |n| {
            len.set(n);
            Vec::new()
        });
        assert_eq!(whole.0.iter().map(|p| p.kind()).collect::<Vec<_>>(), [1, 5, 5, 7, 5, 5, 5]);
        assert_eq!(whole.1[4 * 512..6 * 512], [pattern(512, 1), pattern(512, 2)].concat());
        for step in [1, 3, 8, 24, 72, 100] {
            assert_eq!(life_of_a_connection(options, |n| (step..n).step_by(step).collect()), whole, "steps of {step}");
        }
        for cut in 1..len.get() {
            assert_eq!(life_of_a_connection(options, |_| vec![cut]), whole, "cut at {cut}");
        }
    }
}

#[test]
fn p12_types_that_a_host_does_not_send_are_invalid_at_offset_0() {
    for kind in (0..=255).filter(|k| ![0, 2, 4, 6].contains(k)) {
        assert_eq!(plain(&common(kind, 0, 24, 0, 24)), (1, 0), "{kind:#x}");
    }
}

#[test]
fn t10_other_protocols_are_invalid_at_offset_0() {
    for hello in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc]] {
        let mut rig = Rig::new();
        let conn = rig.dial();
        assert_eq!(rig.fatal(conn, hello), (1, 0));
        rig.assert_idle();
    }
}

#[test]
fn p13_flags_that_a_pdu_does_not_have_are_invalid_at_offset_1() {
    for flags in [0x01, 0x02, 0x04, 0x08, 0x10, 0x80, 0xff] {
        assert_eq!(plain(&common(4, flags, 72, 0, 72)), (1, 1), "CapsuleCmd {flags:#x}");
    }
    for flags in [0x01, 0x02, 0x08, 0x10, 0x80] {
        assert_eq!(plain(&common(6, flags, 24, 24, 32)), (1, 1), "H2CData {flags:#x}");
    }
    // HDGSTF is missing, then DDGSTF where there are data.
    assert_eq!(fatal(DIGESTS, &common(4, 0, 72, 0, 76)), (1, 1));
    assert_eq!(fatal(DIGESTS, &common(4, 1, 72, 76, 92)), (1, 1));
    assert_eq!(fatal(DIGESTS, &common(6, 1, 24, 28, 92)), (1, 1));
}

#[test]
fn a_capsule_without_data_needs_no_data_digest() {
    let mut rig = Rig::new();
    let host = rig.host(DIGESTS);
    let flush = wire::command(0, 3, 1).encode(BOTH);
    assert_eq!(flush[1], 1);
    rig.send_bytes(host.io, &flush);
    assert_eq!(rig.reply(host.io).status(), 0);
}

#[test]
fn p14_header_lengths_are_those_of_their_type_or_invalid_at_offset_2() {
    for hlen in [0, 1, 8, 24, 71, 73, 128, 255] {
        assert_eq!(plain(&common(4, 0, hlen, 0, 72)), (1, 2), "CapsuleCmd {hlen}");
    }
    for hlen in [0, 23, 25, 72, 255] {
        assert_eq!(plain(&common(6, 0, hlen, 0, 72)), (1, 2), "H2CData {hlen}");
    }
}

#[test]
fn p15_data_offsets_within_the_header_beyond_the_end_or_unaligned_are_invalid_at_offset_3() {
    for pdo in [0, 4, 68, 73, 74, 75, 88, 252, 255] {
        assert_eq!(plain(&common(4, 0, 72, pdo, 84)), (1, 3), "CapsuleCmd {pdo}");
    }
    for pdo in [0, 20, 25, 40] {
        assert_eq!(plain(&common(6, 0, 24, pdo, 36)), (1, 3), "H2CData {pdo}");
    }
    assert_eq!(plain(&common(4, 0, 72, 76, 72)), (1, 3), "there are no data");
    assert_eq!(fatal(DIGESTS, &common(4, 3, 72, 72, 96)), (1, 3), "in the header digest");
}

#[test]
fn p16_lengths_that_cannot_be_are_invalid_at_offset_4() {
    for plen in [0, 1, 8, 71] {
        assert_eq!(plain(&common(4, 0, 72, 0, plen)), (1, 4), "CapsuleCmd {plen}");
    }
    for plen in [72 + 8192 + 1, 1 << 20, u32::MAX] {
        assert_eq!(plain(&common(4, 0, 72, 72, plen)), (1, 4), "CapsuleCmd {plen}");
    }
    // A data digest is of at least one byte.
    for plen in [77, 79, 80] {
        assert_eq!(fatal(DIGESTS, &common(4, 3, 72, 76, plen)), (1, 4), "with a digest, {plen}");
    }
    assert_eq!(fatal(DIGESTS, &common(4, 1, 72, 0, 72)), (1, 4), "no room for the header digest");
}

#[test]
fn p16_data_transfers_that_cannot_be_are_invalid_at_offset_4() {
    let mut header = Request::new(6, 24).u32(16, 4096).header;
    for plen in [24 + MAX_H2C as u32 + 4, u32::MAX] {
        header[3] = 24;
        header[4..8].copy_from_slice(&plen.to_le_bytes());
        assert_eq!(plain(&header), (1, 4), "{plen}");
    }
}

#[test]
fn the_lowest_wrong_field_is_reported() {
    assert_eq!(plain(&common(8, 0xff, 1, 1, 1)), (1, 0));
    assert_eq!(plain(&common(4, 0xff, 1, 1, 1)), (1, 1));
    assert_eq!(plain(&common(4, 0, 1, 1, 1)), (1, 2));
    assert_eq!(plain(&common(4, 0, 72, 1, 1)), (1, 3));
    assert_eq!(plain(&common(4, 0, 72, 0, 1)), (1, 4));
}

fn sends_term_req(bytes: &[u8]) -> (Rig, ConnId) {
    let mut rig = Rig::new();
    let host = rig.plain_host();
    rig.send_bytes(host.io, bytes);
    assert!(rig.is_closed(host.io));
    assert!(rig.replies(host.io).is_empty(), "no C2HTermReq");
    (rig, host.io)
}

#[test]
fn p17_an_h2c_term_req_with_a_wrong_length_is_not_answered() {
    for plen in [0, 8, 23, 153, u32::MAX] {
        let (rig, _) = sends_term_req(&common(2, 0, 24, 0, plen));
        assert!(matches!(rig.events.last(), Some(EventKind::Dropped { .. })));
    }
    sends_term_req(&common(2, 0, 23, 0, 24));
}

#[test]
fn p18_golden_h2c_term_req_fes_at_8_fei_at_10_is_logged_and_ends_the_connection() {
    let request = Request::new(2, 24).u16(8, 0x0201).u32(10, 0x0605_0403).data(&[7; 128]);
    let (rig, _) = sends_term_req(&request.encode(NONE));
    assert_eq!(rig.events.last(), Some(&EventKind::TerminatedByHost { fes: 0x0201, fei: 0x0605_0403 }));
    sends_term_req(&Request::new(2, 24).encode(NONE));
}

#[test]
fn p18_a_host_may_give_up_before_it_has_begun() {
    let mut rig = Rig::new();
    let conn = rig.dial();
    rig.send(conn, &Request::new(2, 24).u16(8, 1));
    assert!(rig.is_closed(conn) && rig.replies(conn).is_empty());
    assert!(matches!(rig.events[..], [EventKind::TerminatedByHost { fes: 1, fei: 0 }]));
}

#[test]
fn p19_errors_carry_the_header_that_is_wrong() {
    let mut rig = Rig::new();
    let conn = rig.initialized(Options::default());
    let bad = wire::h2c_data(1, 5, 0, &[1; 8], true).encode(NONE);
    rig.send_bytes(conn, &bad);
    let reply = rig.reply(conn);
    assert_eq!(reply.data, bad[..24], "the whole header");
    assert_eq!(reply.u32(4), 48);
    let mut rig = Rig::new();
    let conn = rig.dial();
    let bad = wire::ic_req(NONE, 32, 0).encode(NONE);
    rig.send_bytes(conn, &bad);
    let reply = rig.reply(conn);
    assert_eq!((reply.data, reply.header[4]), (bad, 152), "the longest there is");
}

#[test]
fn s11_a_wrong_header_digest_is_reported_with_the_digest_that_came() {
    let mut rig = Rig::new();
    let host = rig.host(DIGESTS);
    let mut bad = read(1, 0, 1).encode(BOTH);
    bad[40] ^= 1;
    let came = u32::from_le_bytes(bad[72..76].try_into().unwrap());
    rig.submitted.clear();
    assert_eq!(rig.fatal(host.io, &bad), (3, came));
    assert!(rig.submitted.is_empty(), "not executed");
    rig.wind_up();
}

#[test]
fn d13_nothing_counts_after_a_c2h_term_req() {
    let mut rig = Rig::new();
    let host = rig.plain_host();
    let mut stream = common(9, 0, 24, 0, 24);
    stream.extend(write_in_capsule(1, 0, &[1; 512]).encode(NONE));
    rig.send_bytes(host.io, &stream);
    assert_eq!(rig.reply(host.io).fatal(), (1, 0));
    assert!(rig.submitted.is_empty() && rig.is_closed(host.io));
    rig.wind_up();
}

#[test]
fn padding_need_not_be_zero_and_no_digest_covers_it() {
    for options in [Options::default(), DIGESTS] {
        let mut rig = Rig::new();
        let host = rig.host(options);
        for pad in [4, 52, 176] {
            let data = pattern(512, pad as u8);
            let reply = rig.ask_one(host.io, &write_in_capsule(1, 0, &data).pad(pad));
            assert_eq!((reply.status(), &rig.medium[..512]), (0, &data[..]));
        }
    }
}

#[test]
fn a_digest_error_in_a_capsule_fails_the_command_only() {
    let mut rig = Rig::new();
    let host = rig.host(DIGESTS);
    let mut bad = write_in_capsule(1, 0, &[5; 512]).encode(BOTH);
    bad[100] ^= 1;
    rig.send_bytes(host.io, &bad);
    let reply = rig.reply(host.io);
    assert_eq!((reply.cid(), reply.status()), (1, 0x22), "Transient Transport Error, to be retried");
    assert_eq!(rig.medium[..512], [0; 512]);
    assert_eq!(rig.ask_one(host.io, &write_in_capsule(1, 0, &[5; 512])).status(), 0);
    assert_eq!(rig.medium[..512], [5; 512]);
    rig.wind_up();
}
