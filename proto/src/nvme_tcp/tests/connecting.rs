//! Rows C: ICReq and Connect, and connections that end before they have begun.

use std::time::Duration;

use super::rig::*;
use super::wire::{self, BOTH, Digests, NONE, Request};
use crate::nvme::{DirectoryEntry, EventKind};
use crate::nvme_tcp::{Limits, NodeConfig, Refused};

/// FES and FEI for the first bytes of a connection.
fn first(bytes: &[u8]) -> (u16, u32) {
    let mut rig = Rig::new();
    let conn = rig.dial();
    let fatal = rig.fatal(conn, bytes);
    rig.assert_idle();
    fatal
}

#[test]
fn golden_ic_req_pfv_at_8_hpda_at_10_dgst_at_11_maxr2t_at_12() {
    for (dgst, digests) in
        [(0, NONE), (1, Digests { header: true, data: false }), (2, Digests { header: false, data: true }), (3, BOTH)]
    {
        let mut rig = Rig::new();
        let conn = rig.dial();
        let mut request = vec![0, 0, 128, 0, 128, 0, 0, 0, 0, 0, 31, dgst, 0xff, 0xff, 0xff, 0xff];
        request.resize(128, 0);
        rig.send_bytes(conn, &request);
        let mut expected = vec![1, 0, 128, 0, 128, 0, 0, 0, 0, 0, 0, dgst, 0, 0x20, 0, 0];
        expected.resize(128, 0);
        assert_eq!(rig.reply(conn).header, expected);
        rig.agree(conn, Options { digests, hpda: 31, flow_control: true });
        assert_eq!(rig.ask_one(conn, &connect(0, 0xffff, true)).status(), 0);
    }
}

#[test]
fn c01_commands_before_ic_req_are_out_of_sequence() {
    assert_eq!(first(&connect(0, 0xffff, true).encode(NONE)), (2, 0));
    assert_eq!(first(&wire::h2c_data(0, 0, 0, &[1; 8], true).encode(NONE)), (2, 0));
}

#[test]
fn c02_a_second_ic_req_is_out_of_sequence() {
    let mut rig = Rig::new();
    let conn = rig.initialized(Options::default());
    assert_eq!(rig.fatal(conn, &wire::ic_req(NONE, 0, 0).encode(NONE)), (2, 0));
    let mut rig = Rig::new();
    let host = rig.plain_host();
    assert_eq!(rig.fatal(host.io, &wire::ic_req(NONE, 0, 0).encode(NONE)), (2, 0));
    rig.wind_up();
}

#[test]
fn c03_an_ic_req_has_128_bytes_and_no_more_are_waited_for() {
    let request = wire::ic_req(NONE, 0, 0).encode(NONE);
    for plen in [0u32, 127, 129, u32::MAX] {
        let mut bad = request.clone();
        bad[4..8].copy_from_slice(&plen.to_le_bytes());
        assert_eq!(first(&bad[..8]), (1, 4), "{plen}");
    }
    for hlen in [0, 127, 129, 255] {
        let mut bad = request.clone();
        bad[2] = hlen;
        assert_eq!(first(&bad[..8]), (1, 2), "{hlen}");
    }
}

#[test]
fn c04_there_is_no_pdu_format_version_but_0() {
    for version in [1, 0x0100, 0xffff] {
        assert_eq!(first(&wire::ic_req(NONE, 0, 0).u16(8, version).encode(NONE)), (1, 8));
    }
}

#[test]
fn c05_hpda_is_31_at_most() {
    for hpda in [32, 128, 255] {
        assert_eq!(first(&wire::ic_req(NONE, hpda, 0).encode(NONE)), (1, 10));
    }
}

#[test]
fn c06_c08_reserved_bytes_and_bits_of_ic_req_are_ignored() {
    let mut rig = Rig::new();
    let conn = rig.dial();
    let mut request = wire::ic_req(NONE, 0, 0);
    request.header[16..].fill(0xff);
    (request.header[3], request.header[11]) = (0xff, 0xfc);
    let reply = rig.ask_one(conn, &request);
    assert_eq!((reply.kind(), reply.header[11]), (1, 0), "only what is supported is answered");
}

#[test]
fn p13_flags_of_ic_req_are_invalid_at_offset_1() {
    for flags in [1, 2, 4, 0x80] {
        let mut request = wire::ic_req(NONE, 0, 0).encode(NONE);
        request[1] = flags;
        assert_eq!(first(&request), (1, 1));
    }
}

#[test]
fn c09_ic_req_and_connect_in_one_segment_are_answered_in_order() {
    let mut rig = Rig::new();
    let conn = rig.dial();
    let stream = [wire::ic_req(NONE, 0, 0).encode(NONE), connect(0, 0xffff, true).encode(NONE)].concat();
    rig.send_bytes(conn, &stream);
    let kinds: Vec<u8> = rig.replies(conn).iter().map(|p| p.kind()).collect();
    assert_eq!(kinds, [1, 5]);
}

#[test]
fn c11_connect_twice_on_one_queue_is_a_sequence_error_and_the_queue_goes_on() {
    let mut rig = Rig::new();
    let host = rig.plain_host();
    for conn in [host.admin, host.io] {
        assert_eq!(rig.ask_one(conn, &connect(0, 0xffff, true)).status(), 0x400c);
    }
    assert_eq!(rig.read_good(host.io, 1, 0, 1).len(), 512);
}

#[test]
fn other_commands_before_connect_are_a_sequence_error() {
    let mut rig = Rig::new();
    let conn = rig.initialized(Options::default());
    assert_eq!(rig.ask_one(conn, &read(1, 0, 1)).status(), 0x400c);
    assert_eq!(rig.ask_one(conn, &write_in_capsule(2, 0, &[1; 512])).status(), 0x400c);
    assert!(rig.submitted.is_empty());
    assert_eq!(rig.ask_one(conn, &connect(0, 0xffff, true)).status(), 0);
}

#[test]
fn c20_connect_data_are_1024_bytes() {
    for len in [512, 1023, 1025, 4096] {
        let mut rig = Rig::new();
        let conn = rig.initialized(Options::default());
        let request = connect(0, 0xffff, true).in_capsule(&vec![0; len]);
        assert_eq!(rig.ask_one(conn, &request).status(), 0x400f, "{len}");
        assert_eq!(rig.ask_one(conn, &connect(0, 0xffff, true)).status(), 0, "the next may be right");
    }
}

#[test]
fn connect_data_may_come_by_r2t() {
    let mut rig = Rig::new();
    let conn = rig.initialized(Options::default());
    let mut request = connect(0, 0xffff, true).transport(1024);
    let data = std::mem::take(&mut request.data);
    let r2t = rig.ask_one(conn, &request);
    rig.answer(conn, &r2t, &data);
    assert_eq!(rig.reply(conn).status(), 0);
}

#[test]
fn t01_a_host_that_says_nothing_is_closed_after_the_connect_timeout() {
    let mut rig = Rig::new();
    let conns = [rig.dial(), rig.initialized(Options::default())];
    rig.wait(Duration::from_millis(14_999));
    assert!(conns.iter().all(|&c| !rig.is_closed(c)));
    rig.wait(Duration::from_millis(2));
    assert!(conns.iter().all(|&c| rig.is_closed(c)));
    rig.assert_idle();
}

#[test]
fn t02_one_byte_at_a_time_does_not_hold_the_connect_timer() {
    let mut rig = Rig::new();
    let conn = rig.dial();
    let stream = [wire::ic_req(NONE, 0, 0).encode(NONE), connect(0, 0xffff, true).encode(NONE)].concat();
    for byte in &stream[..15] {
        rig.send_bytes(conn, &[*byte]);
        rig.wait(Duration::from_secs(1));
    }
    assert!(rig.is_closed(conn));
    rig.assert_idle();
}

#[test]
fn a_failed_connect_does_not_stop_the_connect_timer_and_a_good_one_does() {
    let mut rig = Rig::new();
    let conn = rig.initialized(Options::default());
    assert_ne!(rig.ask_one(conn, &connect(0, 5, true)).status(), 0);
    let other = rig.initialized(Options::default());
    assert_eq!(rig.ask_one(other, &connect(0, 0xffff, true)).status(), 0);
    rig.wait(Duration::from_secs(16));
    assert!(rig.is_closed(conn) && !rig.is_closed(other));
}

#[test]
fn connections_have_a_limit() {
    let config = config();
    let limits = Limits { connections: 2, ..config.limits };
    let mut rig = Rig::with(NodeConfig { limits, ..config });
    let conn = rig.dial();
    rig.dial();
    assert_eq!(rig.node.accept(rig.now, "x", portal()), Err(Refused::TooManyConnections));
    rig.hang_up(conn);
    rig.dial();
}

#[test]
fn s09_c23_connections_that_end_anywhere_in_their_beginning_leave_nothing() {
    let stream = [wire::ic_req(BOTH, 3, 0).encode(NONE), connect(0, 0xffff, true).encode(BOTH)].concat();
    let mut rig = Rig::new();
    for end in (0..=stream.len()).chain(0..=stream.len()) {
        let conn = rig.dial();
        rig.send_bytes(conn, &stream[..end]);
        rig.hang_up(conn);
        rig.assert_idle();
    }
    let connected = rig.events.iter().filter(|e| matches!(e, EventKind::Connected { .. })).count();
    assert_eq!(connected, 2, "only the whole of it connects");
}

#[test]
fn s09_garbage_after_connect_ends_the_controller() {
    let mut rig = Rig::new();
    let host = rig.plain_host();
    rig.send_bytes(host.admin, &[0xa5; 100]);
    assert_eq!(rig.reply(host.admin).fatal(), (1, 0));
    assert!(rig.is_closed(host.admin) && rig.is_closed(host.io), "both queues");
    rig.assert_idle();
}

const ELSEWHERE: &str = "nqn.2026-11.org.example:elsewhere";

/// Two nodes; the directory of both names a subsystem that only the second has.
fn two_nodes() -> (Rig, Rig) {
    let directory: Vec<DirectoryEntry> = vec![entry(NQN), entry(ELSEWHERE)];
    let (mut first, mut second) = (config(), config());
    first.target.directory = directory.clone();
    second.target.directory = directory;
    second.target.subsystems[0].nqn = ELSEWHERE.to_owned();
    (Rig::with(first), Rig::with(second))
}

fn connect_elsewhere() -> Request {
    connect(0, 0xffff, true).in_capsule(&connect_data(0xffff, ELSEWHERE))
}

#[test]
fn a_connect_to_a_subsystem_of_another_node_moves_there() {
    for digests in [NONE, BOTH] {
        let (mut here, mut there) = two_nodes();
        let conn = here.initialized(Options { digests, hpda: 1, flow_control: true });
        // The next command comes with it, and waits.
        let next = property_set(1, 0x14, 0x0046_0001).encode(digests);
        here.send_bytes(conn, &[connect_elsewhere().encode(digests), next.clone()].concat());
        assert_eq!(here.elsewhere, [(conn, ELSEWHERE.to_owned())]);
        assert!(here.replies(conn).is_empty());
        assert!(!here.node.wants_bytes(conn));
        assert_eq!(here.take_unread(conn), next);
        let detached = here.node.detach(conn).unwrap();
        assert_eq!(detached.subsystem(), ELSEWHERE);
        assert!(here.node.detach(conn).is_none());
        here.assert_idle();
        let moved = there.node.attach(there.now, detached, &mut there.pool).unwrap();
        there.adopt(moved);
        there.agree(moved, Options { digests, hpda: 1, flow_control: true });
        there.send_bytes(moved, &next);
        let statuses: Vec<u16> = there.replies(moved).iter().map(|p| p.status()).collect();
        assert_eq!(statuses, [0, 0], "{:?}", there.events);
        there.wind_up();
    }
}

#[test]
fn what_was_not_written_before_a_move_is_written_after_it() {
    let (mut here, mut there) = two_nodes();
    let conn = here.dial();
    here.deaf.push(conn);
    here.send_bytes(conn, &[wire::ic_req(NONE, 0, 0).encode(NONE), connect_elsewhere().encode(NONE)].concat());
    let detached = here.node.detach(conn).unwrap();
    let moved = there.node.attach(there.now, detached, &mut there.pool).unwrap();
    there.adopt(moved);
    there.pump();
    let kinds: Vec<u8> = there.replies(moved).iter().map(|p| p.kind()).collect();
    assert_eq!(kinds, [1, 5]);
}

#[test]
fn the_connect_timer_goes_on_after_a_move() {
    let (mut here, mut there) = two_nodes();
    // An earlier controller of the host, whose last op does not end: Connect waits for it.
    there.disk = Disk::Stuck;
    let old = there.initialized(Options::default());
    let cntlid = there.ask_one(old, &connect_elsewhere()).u16(8);
    assert_eq!(there.ask_one(old, &property_set(1, 0x14, 0x0046_0001)).status(), 0);
    let io = there.initialized(Options::default());
    let request = connect(1, 0, true).in_capsule(&connect_data(cntlid, ELSEWHERE));
    assert_eq!(there.ask_one(io, &request).status(), 0);
    there.send(io, &read(1, 0, 1));
    there.hang_up(old);
    here.wait(Duration::from_secs(100));
    there.wait(Duration::from_secs(100));
    let conn = here.initialized(Options::default());
    here.send(conn, &connect_elsewhere());
    let detached = here.node.detach(conn).unwrap();
    let moved = there.node.attach(there.now, detached, &mut there.pool).unwrap();
    there.adopt(moved);
    there.wait(Duration::from_secs(14));
    assert!(!there.is_closed(moved) && there.replies(moved).is_empty());
    there.wait(Duration::from_secs(2));
    assert!(there.is_closed(moved));
    there.wind_up();
}

#[test]
fn a_move_may_be_overtaken_by_the_end_of_the_connection() {
    let (mut here, _) = two_nodes();
    let conn = here.initialized(Options::default());
    here.send(conn, &connect_elsewhere());
    here.hang_up(conn);
    assert!(here.node.detach(conn).is_none());
    here.assert_idle();
    let conn = here.initialized(Options::default());
    here.send(conn, &connect_elsewhere());
    here.wait(Duration::from_secs(20));
    assert!(here.is_closed(conn) && here.node.detach(conn).is_none());
    here.assert_idle();
}

#[test]
fn a_node_that_is_full_takes_no_connection_of_another() {
    let (mut here, mut there) = two_nodes();
    there.node.limits.connections = 0;
    let conn = here.initialized(Options::default());
    here.send(conn, &connect_elsewhere());
    let detached = here.node.detach(conn).unwrap();
    let refused = there.node.attach(there.now, detached, &mut there.pool);
    assert_eq!(refused.unwrap_err(), Refused::TooManyConnections);
    there.assert_idle();
}
