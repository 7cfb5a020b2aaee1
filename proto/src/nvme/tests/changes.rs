//! Changes while hosts are connected.

use platter_block::{Lba, VolumeId, VolumeInfo};

use super::rig::*;
use crate::nvme::{AnaGroup, AnaState, EventKind, Hosts, QueueId};

const NAMESPACE_CHANGED: u64 = 0x0004_0002;
const ANA_CHANGED: u64 = 0x000c_0302;
const DISCOVERY_CHANGED: u64 = 0x0070_f002;

/// A session that asks for all events.
fn listening(rig: &mut Rig) -> (Session, u16) {
    let session = rig.session();
    assert_eq!(rig.status(session.admin, &set_feature(0x0b, 0x900)), 0);
    let request = rig.send(session.admin, &event_request());
    (session, request)
}

#[track_caller]
fn assert_told(rig: &mut Rig, queue: QueueId, request: u16, event: u64) {
    rig.pump();
    assert_eq!(rig.reply_to(queue, request).result, event);
}

#[test]
fn a_namespace_that_is_added_can_be_used_when_its_event_comes() {
    let mut rig = Rig::new();
    let (session, request) = listening(&mut rig);
    assert_eq!(rig.status(session.io, &read(0, 1).nsid(3)), 0x00b);
    assert!(rig.target.add_namespace(rig.now, NQN, namespace(3), &mut rig.pool));
    assert_told(&mut rig, session.admin, request, NAMESPACE_CHANGED);
    assert_eq!(rig.ask(session.io, &read(0, 1).nsid(3)).data, vec![3; BLOCK]);
    assert!(!rig.target.add_namespace(rig.now, "nqn.none", namespace(4), &mut rig.pool));
    rig.wind_up();
}

#[test]
fn a_namespace_that_is_removed_takes_its_commands_with_it() {
    let mut rig = Rig::new();
    let (session, request) = listening(&mut rig);
    rig.disk = Disk::Held;
    rig.wire = Wire::Held;
    let reading = rig.send(session.io, &read(0, 1));
    let writing = rig.send(session.io, &write(0, &pattern(512, 1)));
    let other = rig.send(session.io, &read(0, 1).nsid(2));
    assert!(rig.target.remove_namespace(rig.now, NQN, 1, &mut rig.pool));
    assert_told(&mut rig, session.admin, request, NAMESPACE_CHANGED);
    assert_eq!(rig.reply_to(session.io, reading).status.0 & 0x7ff, 0x00b);
    assert_eq!(rig.status(session.io, &read(0, 1)), 0x00b);
    assert!(rig.target.add_namespace(rig.now, NQN, namespace(1), &mut rig.pool));
    rig.deliver_all();
    assert_eq!(rig.reply_to(session.io, writing).status.0 & 0x7ff, 0x00b, "it was for the earlier one");
    rig.release_all();
    assert_eq!(rig.reply_to(session.io, other).status.0, 0);
    assert!(!rig.target.remove_namespace(rig.now, NQN, 9, &mut rig.pool));
    rig.wind_up();
}

#[test]
fn a_volume_that_grows_is_larger_when_the_event_comes() {
    let mut rig = Rig::new();
    let (session, request) = listening(&mut rig);
    let grown = VolumeInfo { blocks: 2 * BLOCKS, ..volume_info() };
    rig.media[1].resize(2 * BLOCK * BLOCKS as usize, 0);
    rig.target.volume_changed(rig.now, VolumeId(1), &grown, &mut rig.pool);
    assert_told(&mut rig, session.admin, request, NAMESPACE_CHANGED);
    assert_eq!(rig.status(session.io, &read(BLOCKS, 1)), 0);
    assert_eq!(rig.status(session.io, &read(BLOCKS, 1).nsid(2)), 0x080);
    rig.wind_up();
}

#[test]
fn what_identify_does_not_show_is_no_event() {
    let mut rig = Rig::new();
    let (session, request) = listening(&mut rig);
    for info in [VolumeInfo { write_cache: false, ..volume_info() }, VolumeInfo { ready: false, ..volume_info() }] {
        rig.target.volume_changed(rig.now, VolumeId(1), &info, &mut rig.pool);
    }
    rig.target.volume_changed(rig.now, VolumeId(3), &volume_info(), &mut rig.pool);
    rig.pump();
    assert_eq!(rig.take_reply(session.admin, request), None);
    rig.wind_up();
}

#[test]
fn ana_states_change_for_those_who_see_them() {
    let mut rig = Rig::new();
    let (here, request) = listening(&mut rig);
    let there = rig.session_as(&Connect::admin(), &|c| Connect::io(1, c), 1);
    assert_eq!(rig.status(there.admin, &set_feature(0x0b, 0x900)), 0);
    let silent = rig.send(there.admin, &event_request());
    let group = AnaGroup { through: [(0, AnaState::Inaccessible)].into() };
    assert!(rig.target.set_ana(rig.now, NQN, 1, group.clone(), &mut rig.pool));
    assert_told(&mut rig, here.admin, request, ANA_CHANGED);
    assert_eq!(rig.take_reply(there.admin, silent), None, "nothing changed through its portal");
    assert_eq!((rig.status(here.io, &read(0, 1)), rig.status(there.io, &read(0, 1))), (0x302, 0));
    assert!(rig.target.set_ana(rig.now, NQN, 1, group.clone(), &mut rig.pool));
    assert!(rig.target.set_ana(rig.now, NQN, 5, group.clone(), &mut rig.pool), "a group without namespaces");
    rig.pump();
    assert_eq!(rig.take_reply(there.admin, silent), None);
    assert!(!rig.target.set_ana(rig.now, "nqn.none", 1, group, &mut rig.pool));
    rig.wind_up();
}

#[test]
fn commands_in_the_engine_end_well_after_their_group_became_inaccessible() {
    let mut rig = Rig::new();
    let session = rig.session();
    rig.disk = Disk::Held;
    let cid = rig.send(session.io, &read(0, 1));
    let group = AnaGroup { through: [(0, AnaState::Change)].into() };
    rig.target.set_ana(rig.now, NQN, 1, group, &mut rig.pool);
    rig.release_all();
    assert_eq!(rig.reply_to(session.io, cid).status.0, 0);
    rig.wind_up();
}

#[test]
fn discovery_controllers_are_told_of_a_changed_directory_and_only_then() {
    let mut rig = Rig::new();
    let discovery = rig.discovery(60_000);
    assert_eq!(rig.status(discovery, &set_feature(0x0b, 1 << 31)), 0);
    let (session, other) = listening(&mut rig);
    let request = rig.send(discovery, &event_request());
    let same = vec![entry(NQN), entry(OTHER_NQN)];
    rig.target.set_directory(rig.now, same, Vec::new(), &mut rig.pool);
    rig.pump();
    assert_eq!(rig.take_reply(discovery, request), None);
    rig.target.set_directory(rig.now, vec![entry(NQN)], Vec::new(), &mut rig.pool);
    assert_told(&mut rig, discovery, request, DISCOVERY_CHANGED);
    assert_eq!(rig.take_reply(session.admin, other), None);
    rig.wind_up();
}

#[test]
fn subsystems_come_and_go() {
    let mut rig = Rig::new();
    let session = rig.session();
    rig.disk = Disk::Stuck;
    rig.send(session.io, &read(0, 1));
    assert!(rig.target.remove_subsystem(rig.now, NQN, &mut rig.pool));
    assert!(!rig.target.remove_subsystem(rig.now, NQN, &mut rig.pool));
    rig.pump();
    assert_eq!(rig.closes, [session.admin, session.io]);
    rig.close_all();
    rig.release(0, platter_block::Status::Aborted);
    assert!(matches!(rig.events.last(), Some(EventKind::ControllerEnded { aborted: 1, .. })), "{:?}", rig.events);
    rig.target.add_subsystem(subsystem(NQN));
    rig.disk = Disk::Fast;
    let session = rig.session();
    assert_eq!(rig.status(session.io, &read(0, 1)), 0);
    rig.wind_up();
}

#[test]
fn a_host_that_is_taken_from_the_list_keeps_its_controllers() {
    let mut rig = Rig::new();
    let session = rig.session();
    assert!(rig.target.set_hosts(NQN, Hosts::Listed(Vec::new())));
    assert!(!rig.target.set_hosts("nqn.none", Hosts::Any));
    assert_eq!(rig.status(session.io, &read(0, 1)), 0);
    assert_eq!(rig.connect(&Connect::admin()).1.status.0 & 0x7ff, 0x182);
    rig.wind_up();
}

#[test]
fn a_multi_step_command_does_not_go_on_with_a_namespace_of_the_same_number() {
    let mut rig = Rig::new();
    let session = rig.session();
    rig.disk = Disk::Stuck;
    let cid = rig.send(session.io, &blocks_of(0x0c, 0, 4096));
    rig.target.remove_namespace(rig.now, NQN, 1, &mut rig.pool);
    let mut other = namespace(1);
    other.volume = VolumeId(3);
    rig.target.add_namespace(rig.now, NQN, other, &mut rig.pool);
    rig.pump();
    rig.release(0, platter_block::Status::Good);
    assert_eq!(rig.reply_to(session.io, cid).status.0 & 0x7ff, 0x00b);
    assert_eq!(rig.submitted.len(), 1);
    rig.disk = Disk::Held;
    let cid = rig.send(session.io, &read(0, 1));
    rig.release(0, platter_block::Status::MediumError { lba: Lba(0) });
    assert_eq!(rig.reply_to(session.io, cid).status.0 & 0x7ff, 0x281);
    assert_eq!(rig.submitted[1].0, VolumeId(3));
    rig.wind_up();
}
