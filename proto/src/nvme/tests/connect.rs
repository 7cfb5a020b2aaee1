//! Connect: what makes a queue, and how everything else is refused.

use std::time::Duration;

use super::rig::*;
use crate::nvme::{DISCOVERY_NQN, EventKind, Hosts, Limits, Status, Target, TargetConfig};

const INVALID: u16 = 0x182;

/// DW0 of a Connect that is refused for a field of the data.
const fn in_data(at: u64) -> u64 {
    1 << 16 | at
}

#[track_caller]
fn assert_refused(rig: &mut Rig, connect: &Connect, status: u16, result: u64) {
    let (_, reply) = rig.connect(connect);
    assert_eq!((reply.status.0 & 0x7ff, reply.result), (status, result), "{:?}", rig.events);
    assert!(matches!(rig.events.last(), Some(EventKind::ConnectRefused { .. })), "{:?}", rig.events);
}

#[test]
fn an_admin_queue_gives_a_controller_and_io_queues_join_it() {
    let mut rig = Rig::new();
    let (admin, reply) = rig.connect(&Connect::admin().kato(5000));
    assert_eq!((reply.status, reply.result, reply.sqhd, reply.sqid), (Status::SUCCESS, 1, 1, 0));
    let connected = EventKind::Connected { host: HOST.to_owned(), subsystem: NQN.to_owned(), cntlid: 1, kato: 5000 };
    assert_eq!(rig.events, [connected]);
    rig.enable(admin);
    let (_, reply) = rig.connect(&Connect::io(3, 1));
    assert_eq!((reply.status, reply.result, reply.sqid), (Status::SUCCESS, 1, 3));
    let infos = rig.target.controllers();
    assert_eq!((infos.len(), infos[0].io_queues, infos[0].kato), (1, 1, 5000));
    rig.wind_up();
}

#[test]
fn only_connect_is_taken_before_connect() {
    let mut rig = Rig::new();
    let queue = rig.open();
    for cmd in [read(0, 1), event_request(), property_get(0, true), fabrics(0x05), fabrics(0x08), flush(1)] {
        assert_eq!(rig.status(queue, &cmd), 0x00c);
    }
    assert_eq!(rig.status(queue, &Connect::admin().cmd), 0);
    assert_eq!(rig.status(queue, &Connect::admin().cmd), 0x00c, "twice");
    rig.wind_up();
}

#[test]
fn a_second_connect_beside_the_first_is_refused() {
    let mut rig = Rig::new();
    rig.wire = Wire::Held;
    let queue = rig.open();
    let first = rig.send(queue, &Connect::admin().cmd);
    assert_eq!(rig.status(queue, &Connect::admin().cmd), 0x00c);
    rig.deliver_all();
    assert_eq!(rig.reply_to(queue, first).status, Status::SUCCESS);
    rig.wind_up();
}

#[test]
fn fields_that_are_wrong_are_named() {
    let mut rig = Rig::new();
    let admin = rig.session();
    let cntlid = admin.cntlid;
    for size in [0, 1024, 0xffff] {
        assert_refused(&mut rig, &Connect::to(0, 0xffff, size), INVALID, 44);
        assert_refused(&mut rig, &Connect::to(2, cntlid, size), INVALID, 44);
    }
    for wrong in [cntlid, 0, 0xfffe] {
        assert_refused(&mut rig, &Connect::to(0, wrong, 31), INVALID, in_data(16));
    }
    assert_refused(&mut rig, &Connect::io(1, 0xffff), INVALID, in_data(16));
    assert_refused(&mut rig, &Connect::io(1, cntlid + 1), INVALID, in_data(16));
    assert_refused(&mut rig, &Connect::io(1, cntlid), INVALID, 42);
    assert_refused(&mut rig, &Connect::io(129, cntlid), INVALID, 42);
    assert_refused(&mut rig, &Connect::io(0xffff, cntlid), INVALID, 42);
    assert_refused(&mut rig, &Connect::io(2, cntlid).text(512, "nqn.other"), INVALID, in_data(512));
    assert_refused(&mut rig, &Connect::io(2, cntlid).bytes(0, &[1; 16]), INVALID, in_data(0));
    let (_, reply) = rig.connect(&Connect::io(128, cntlid));
    assert_eq!(reply.status, Status::SUCCESS);
    rig.wind_up();
}

#[test]
fn names_that_are_wrong_or_not_for_the_host_do_not_exist() {
    let mut rig = Rig::new();
    for (at, wrong) in [(256, vec![b'a'; 256]), (512, vec![b'a'; 256]), (512, vec![0; 256]), (256, vec![0xff, 0])] {
        assert_refused(&mut rig, &Connect::admin().bytes(at, &wrong), INVALID, in_data(at as u64));
    }
    let long = "a".repeat(224);
    assert_refused(&mut rig, &Connect::admin().text(512, &long), INVALID, in_data(512));
    assert_refused(&mut rig, &Connect::admin().text(256, "nqn.unknown"), INVALID, in_data(256));
    rig.target.set_hosts(NQN, Hosts::Listed(vec!["nqn.other".to_owned()]));
    assert_refused(&mut rig, &Connect::admin(), INVALID, in_data(256));
    let (_, reply) = rig.connect(&Connect::admin().text(512, "nqn.other"));
    assert_eq!(reply.status, Status::SUCCESS);
    rig.wind_up();
}

#[test]
fn a_subsystem_is_reached_only_through_its_portals() {
    let mut config = config();
    config.directory[0].through = vec![4];
    let mut rig = Rig::with(config);
    assert_refused(&mut rig, &Connect::admin(), INVALID, in_data(256));
    let session = rig.session_as(&Connect::admin(), &|cntlid| Connect::io(1, cntlid), 4);
    let queue = rig.open();
    let reply = rig.ask(queue, &Connect::io(2, session.cntlid).cmd);
    assert_eq!(reply.result, in_data(256), "an I/O queue through another portal");
    rig.wind_up();
}

#[test]
fn the_format_and_the_length_are_checked_before_the_data_come() {
    let mut rig = Rig::new();
    let queue = rig.open();
    assert_eq!(rig.status(queue, &Connect::admin().cmd.u16(40, 1)), 0x180);
    assert_eq!(rig.status(queue, &Connect::admin().cmd.room(1023)), 0x00f);
    assert_eq!(rig.status(queue, &Connect::admin().cmd.room(2048)), 0x00f);
    assert!(rig.wanted.is_empty());
    rig.wind_up();
}

#[test]
fn an_io_queue_needs_a_controller_that_is_enabled() {
    let mut rig = Rig::new();
    let (admin, reply) = rig.connect(&Connect::admin());
    let cntlid = reply.result as u16;
    assert_refused(&mut rig, &Connect::io(1, cntlid), 0x00c, 0);
    rig.enable(admin);
    assert_eq!(rig.connect(&Connect::io(1, cntlid)).1.status, Status::SUCCESS);
    assert_eq!(rig.status(admin, &property_set(0x14, u64::from(ENABLED) | 1 << 14)), 0, "shutdown");
    assert_refused(&mut rig, &Connect::io(2, cntlid), 0x00c, 0);
    rig.wind_up();
}

#[test]
fn without_flow_control_the_head_is_not_told_and_success_may_be_left_out() {
    let mut rig = Rig::new();
    let session = rig.session_as(&Connect::admin(), &|c| Connect::io(1, c).no_flow_control(), 0);
    let (queue, reply) = rig.connect(&Connect::io(2, session.cntlid).no_flow_control());
    assert_eq!(reply.sqhd, 0xffff);
    let reply = rig.ask(queue, &read(0, 1));
    assert_eq!((reply.sqhd, reply.plain), (0, true));
    assert!(!rig.ask(queue, &flush(1)).plain, "there is no data to carry it");
    assert!(!rig.ask(session.admin, &read(0, 1)).plain);
    let with = rig.session();
    assert!(!rig.ask(with.io, &read(0, 1)).plain);
    rig.wind_up();
}

#[test]
fn discovery_is_for_everybody_and_has_no_io_queues() {
    let mut rig = Rig::new();
    rig.target.set_hosts(NQN, Hosts::Listed(Vec::new()));
    rig.discovery(0);
    let cntlid = rig.target.controllers()[0].cntlid;
    assert_refused(&mut rig, &Connect::io(1, cntlid).text(256, DISCOVERY_NQN), INVALID, 42);
    rig.wind_up();
}

#[test]
fn too_many_controllers_are_refused_for_now() {
    let mut rig = Rig::with_limits(Limits { controllers: 2, ..Limits::default() });
    let first = rig.session();
    rig.discovery(0);
    let (_, reply) = rig.connect(&Connect::admin());
    assert_eq!(reply.status, Status::new(1, 0x81).retryable());
    rig.hang_up(first.admin);
    assert_eq!(rig.connect(&Connect::admin()).1.status, Status::SUCCESS);
    rig.wind_up();
}

#[test]
fn controller_identifiers_are_given_out_in_turn() {
    let mut rig = Rig::with(TargetConfig { cntlid: 5..=7, ..config() });
    let mut given = Vec::new();
    for _ in 0..4 {
        let (queue, reply) = rig.connect(&Connect::admin());
        given.push(reply.result);
        rig.hang_up(queue);
    }
    assert_eq!(given, [5, 6, 7, 5]);
    let all: Vec<u64> = (0..4).map(|_| rig.connect(&Connect::admin()).1.result).collect();
    assert_eq!(all, [6, 7, 5, 0], "none is left for the fourth");
    rig.wind_up();
}

#[test]
fn a_new_association_waits_for_the_last_op_of_the_earlier_one() {
    let mut rig = Rig::new();
    let old = rig.session();
    rig.disk = Disk::Stuck;
    rig.send(old.io, &write(0, &pattern(512, 1)));
    rig.hang_up(old.io);
    rig.hang_up(old.admin);
    let queue = rig.open();
    let cid = rig.send(queue, &Connect::admin().cmd);
    assert_eq!(rig.take_reply(queue, cid), None, "the write is still in the engine");
    let (_, other) = rig.connect(&Connect::admin().text(512, "nqn.other"));
    assert_eq!(other.status, Status::SUCCESS, "another host does not wait");
    rig.wait(Duration::from_secs(1));
    assert_eq!(rig.take_reply(queue, cid), None);
    rig.release_all();
    assert_eq!(rig.reply_to(queue, cid).status, Status::SUCCESS);
    assert!(rig.events.iter().any(|e| matches!(e, EventKind::ControllerEnded { aborted: 1, .. })), "{:?}", rig.events);
    rig.wind_up();
}

#[test]
fn a_waiting_connect_whose_connection_ends_is_forgotten() {
    let mut rig = Rig::new();
    let old = rig.session();
    rig.disk = Disk::Stuck;
    rig.send(old.io, &write(0, &pattern(512, 1)));
    rig.hang_up(old.admin);
    let queue = rig.open();
    rig.send(queue, &Connect::admin().cmd);
    rig.hang_up(queue);
    rig.release_all();
    assert_eq!(rig.target.controllers().len(), 0);
    rig.wind_up();
}

#[test]
fn a_connect_for_another_target_moves_there_with_its_data() {
    let mut here = Rig::new();
    let queue = here.open();
    let cid = here.send(queue, &Connect::admin().text(256, OTHER_NQN).cmd);
    assert_eq!(here.elsewhere, [(queue, OTHER_NQN.to_owned())]);
    assert_eq!(here.take_reply(queue, cid), None);
    let pending = here.target.take(queue).unwrap();
    assert!(here.target.take(queue).is_none());
    here.assert_idle();

    let mut there = Rig::with(TargetConfig { subsystems: vec![subsystem(OTHER_NQN)], ..config() });
    let (moved, _) = there.target.adopt(there.now, pending, &mut there.pool);
    there.took_over(moved);
    let reply = there.reply_to(moved, cid);
    assert_eq!((reply.status, reply.sqhd), (Status::SUCCESS, 1));
    assert_eq!(there.target.controllers()[0].subsystem, OTHER_NQN);
    there.wind_up();
}

#[test]
fn a_connect_that_is_sent_on_to_a_target_without_the_subsystem_is_refused() {
    let mut here = Rig::new();
    let queue = here.open();
    let cid = here.send(queue, &Connect::admin().text(256, OTHER_NQN).cmd);
    let pending = here.target.take(queue).unwrap();
    let mut there = Rig::new();
    let (moved, _) = there.target.adopt(there.now, pending, &mut there.pool);
    there.took_over(moved);
    assert_eq!(there.reply_to(moved, cid).result, in_data(256));
    assert!(there.elsewhere.is_empty(), "it would go round in circles");
    there.wind_up();
}

#[test]
fn a_connection_that_ends_on_its_way_elsewhere_leaves_nothing() {
    let mut rig = Rig::new();
    let queue = rig.open();
    rig.send(queue, &Connect::admin().text(256, OTHER_NQN).cmd);
    rig.hang_up(queue);
    assert!(rig.target.take(queue).is_none());
    rig.wind_up();
}

#[test]
fn disconnecting_in_the_middle_of_connect_leaves_nothing() {
    let mut rig = Rig::new();
    rig.wire = Wire::Held;
    for _ in 0..50 {
        let queue = rig.open();
        rig.send(queue, &Connect::admin().cmd);
        rig.hang_up(queue);
    }
    rig.assert_idle();
    let target: &Target = &rig.target;
    assert!(target.controllers().is_empty());
}
