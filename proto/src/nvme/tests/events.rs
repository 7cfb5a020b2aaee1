//! Asynchronous events: what is told, when, and what of it is remembered until then.

use platter_block::{Status as OpStatus, VolumeId};

use super::fields::*;
use super::rig::*;
use crate::nvme::{AnaGroup, AnaState, DirectoryEntry, Hosts, Limits, QueueId};

const NAMESPACE_EVENT: u64 = 0x0004_0002;
const ANA_EVENT: u64 = 0x000c_0302;
const DISCOVERY_EVENT: u64 = 0x0070_f002;
const RELIABILITY_EVENT: u64 = 0x0002_0001;

const RETAIN: u8 = 0x80;

/// What the controller tells now, if anything.
fn told(rig: &mut Rig, queue: QueueId) -> Option<u64> {
    let cid = rig.send(queue, &event_request());
    if let Some(reply) = rig.take_reply(queue, cid) {
        return Some(reply.result);
    }
    assert_eq!(rig.ask(queue, &abort(0, cid)).result, 0, "it waits, and can be aborted");
    rig.reply_to(queue, cid);
    None
}

fn grow(rig: &mut Rig, nsid: u32) {
    let mut info = volume_info();
    info.blocks = rig.now.0;
    rig.now.0 += 1;
    rig.target.volume_changed(rig.now, VolumeId(nsid), &info, &mut rig.pool);
    rig.pump();
}

fn change_ana(rig: &mut Rig, state: AnaState) {
    rig.target.set_ana(rig.now, NQN, 1, AnaGroup { through: [(0, state)].into() }, &mut rig.pool);
    rig.pump();
}

#[test]
fn an_event_is_told_once_until_its_log_is_read() {
    let mut rig = Rig::new();
    let session = rig.session();
    grow(&mut rig, 1);
    assert_eq!(told(&mut rig, session.admin), Some(NAMESPACE_EVENT));
    grow(&mut rig, 2);
    assert_eq!(told(&mut rig, session.admin), None, "the host knows that there is something to read");
    let log = rig.ask(session.admin, &log_page(0x04, 4096)).data;
    assert_fields(&log, &[(0, &1_u32.to_le_bytes(), "NSID"), (4, &2_u32.to_le_bytes(), "NSID")]);
    assert_eq!(told(&mut rig, session.admin), None, "what the log said is not told again");
    assert_fields(&rig.ask(session.admin, &log_page(0x04, 4096)).data, &[]);
    grow(&mut rig, 2);
    assert_eq!(told(&mut rig, session.admin), Some(NAMESPACE_EVENT));
    rig.wind_up();
}

#[test]
fn a_log_that_is_read_with_its_event_retained_stays_unread() {
    let mut rig = Rig::new();
    let session = rig.session();
    grow(&mut rig, 1);
    assert_eq!(told(&mut rig, session.admin), Some(NAMESPACE_EVENT));
    for _ in 0..2 {
        let log = rig.ask(session.admin, &log_page(0x04, 4096).byte(41, RETAIN)).data;
        assert_fields(&log, &[(0, &1_u32.to_le_bytes(), "NSID")]);
    }
    grow(&mut rig, 2);
    assert_eq!(told(&mut rig, session.admin), None);
    rig.wind_up();
}

#[test]
fn a_log_that_could_not_be_given_stays_unread() {
    let mut rig = Rig::new();
    let session = rig.session();
    grow(&mut rig, 1);
    assert_eq!(rig.status(session.admin, &log_page(0x04, 4096).room(8)), 0x00f);
    assert_eq!(rig.status(session.admin, &log_page(0x04, 4).u64(48, 5000)), 0x002);
    assert_eq!(told(&mut rig, session.admin), Some(NAMESPACE_EVENT));
    rig.wind_up();
}

#[test]
fn an_unread_log_does_not_hide_events_of_another() {
    let mut rig = Rig::new();
    let session = rig.session();
    grow(&mut rig, 1);
    change_ana(&mut rig, AnaState::NonOptimized);
    assert_eq!(told(&mut rig, session.admin), Some(NAMESPACE_EVENT));
    assert_eq!(told(&mut rig, session.admin), Some(ANA_EVENT));
    grow(&mut rig, 2);
    change_ana(&mut rig, AnaState::Optimized);
    assert_eq!(told(&mut rig, session.admin), None);
    rig.ask(session.admin, &log_page(0x0c, 64));
    change_ana(&mut rig, AnaState::NonOptimized);
    assert_eq!(told(&mut rig, session.admin), Some(ANA_EVENT));
    assert_eq!(told(&mut rig, session.admin), None);
    rig.wind_up();
}

#[test]
fn events_that_the_host_does_not_want_are_not_remembered() {
    let mut rig = Rig::new();
    let session = rig.session();
    assert_eq!(rig.ask(session.admin, &get_feature(0x0b)).result, 0x0900, "notices from the beginning");
    assert_eq!(rig.status(session.admin, &set_feature(0x0b, 0)), 0);
    grow(&mut rig, 1);
    change_ana(&mut rig, AnaState::NonOptimized);
    assert_eq!(told(&mut rig, session.admin), None);
    assert_eq!(rig.status(session.admin, &set_feature(0x0b, 0x0900)), 0);
    assert_eq!(told(&mut rig, session.admin), None);
    grow(&mut rig, 1);
    assert_eq!(rig.status(session.admin, &set_feature(0x0b, 0x0800)), 0);
    assert_eq!(told(&mut rig, session.admin), None, "no longer wanted");
    change_ana(&mut rig, AnaState::Optimized);
    assert_eq!(told(&mut rig, session.admin), Some(ANA_EVENT));
    let log = rig.ask(session.admin, &log_page(0x04, 4096)).data;
    assert_fields(&log, &[(0, &1_u32.to_le_bytes(), "NSID")]);
    rig.wind_up();
}

#[test]
fn a_reset_forgets_events_and_their_configuration() {
    let mut rig = Rig::new();
    let session = rig.session();
    assert_eq!(rig.status(session.admin, &set_feature(0x0b, 0x0100)), 0);
    grow(&mut rig, 1);
    assert_eq!(told(&mut rig, session.admin), Some(NAMESPACE_EVENT));
    grow(&mut rig, 1);
    assert_eq!(rig.status(session.admin, &property_set(0x14, 0)), 0);
    rig.enable(session.admin);
    assert_eq!(told(&mut rig, session.admin), None);
    assert_fields(&rig.ask(session.admin, &log_page(0x04, 4096)).data, &[]);
    assert_eq!(rig.ask(session.admin, &get_feature(0x0b)).result, 0x0900);
    grow(&mut rig, 1);
    assert_eq!(told(&mut rig, session.admin), Some(NAMESPACE_EVENT));
    rig.wind_up();
}

#[test]
fn more_changed_namespaces_than_fit_are_told_as_all() {
    let mut config = config();
    config.limits = Limits { namespaces: 2000, ..Limits::default() };
    config.subsystems[0].namespaces = (1..=1025).map(namespace).collect();
    let mut rig = Rig::with(config);
    let session = rig.session();
    for nsid in 1..=1024 {
        grow(&mut rig, nsid);
        grow(&mut rig, nsid);
    }
    let list = rig.ask(session.admin, &log_page(0x04, 4096).byte(41, RETAIN)).data;
    assert_eq!(list, (1..=1024_u32).flat_map(u32::to_le_bytes).collect::<Vec<u8>>());
    grow(&mut rig, 1025);
    let list = rig.ask(session.admin, &log_page(0x04, 4096)).data;
    assert_fields(&list, &[(0, &[0xff; 4], "all")]);
    grow(&mut rig, 7);
    let list = rig.ask(session.admin, &log_page(0x04, 4096)).data;
    assert_fields(&list, &[(0, &7_u32.to_le_bytes(), "NSID")]);
    rig.wind_up();
}

#[test]
fn the_first_write_that_may_be_lost_is_told_to_those_who_want_it() {
    let mut rig = Rig::new();
    let session = rig.session();
    rig.disk = Disk::Held;
    rig.send(session.io, &flush(1));
    rig.release(0, OpStatus::DurabilityLost);
    assert_eq!(told(&mut rig, session.admin), None, "not wanted");
    let session = rig.session();
    assert_eq!(rig.status(session.admin, &set_feature(0x0b, 0x04)), 0);
    let waiting = rig.send(session.admin, &event_request());
    for _ in 0..2 {
        rig.send(session.io, &flush(1));
        rig.release(0, OpStatus::DurabilityLost);
    }
    assert_eq!(rig.reply_to(session.admin, waiting).result, RELIABILITY_EVENT);
    rig.ask(session.admin, &log_page(0x02, 512));
    rig.send(session.io, &flush(1));
    rig.release(0, OpStatus::DurabilityLost);
    assert_eq!(told(&mut rig, session.admin), None, "it is known");
    rig.wind_up();
}

#[test]
fn a_change_of_the_discovery_log_is_told_to_discovery_controllers() {
    let mut rig = Rig::new();
    let session = rig.session();
    let discovery = rig.discovery(1000);
    let entry = DirectoryEntry {
        nqn: "nqn.2026-11.org.example:new".to_owned(),
        hosts: Hosts::Any,
        portals: Vec::new(),
        through: Vec::new(),
    };
    rig.target.set_directory(rig.now, vec![entry], Vec::new(), &mut rig.pool);
    rig.pump();
    assert_eq!(told(&mut rig, session.admin), None);
    assert_eq!(told(&mut rig, discovery), Some(DISCOVERY_EVENT));
    rig.target.set_directory(rig.now, Vec::new(), Vec::new(), &mut rig.pool);
    rig.pump();
    assert_eq!(told(&mut rig, discovery), None);
    rig.ask(discovery, &log_page(0x70, 1024));
    rig.target.set_directory(rig.now, Vec::new(), vec![portal(5)], &mut rig.pool);
    rig.pump();
    assert_eq!(told(&mut rig, discovery), Some(DISCOVERY_EVENT));
    rig.wind_up();
}
