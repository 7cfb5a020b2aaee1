//! Admin commands: how far the answers go, events, features that have to do with this layer.

use platter_block::{Op, Status as OpStatus, VolumeId};

use super::rig::*;
use crate::nvme::{AnaGroup, AnaState, Limits, Status};

fn inaccessible() -> AnaGroup {
    AnaGroup { through: [(0, AnaState::Inaccessible)].into() }
}

#[test]
fn opcodes_that_are_not_advertised_are_invalid() {
    let mut rig = Rig::new();
    let session = rig.session();
    let discovery = rig.discovery(0);
    for opcode in 0..=255u8 {
        if ![0x02, 0x06, 0x08, 0x09, 0x0a, 0x0c, 0x18, 0x7f].contains(&opcode) {
            for queue in [session.admin, discovery] {
                assert_eq!(rig.status(queue, &Cmd::new(opcode).nsid(1)), 0x001, "{opcode:#x}");
            }
        }
    }
    rig.wind_up();
}

#[test]
fn identify_is_always_4096_bytes() {
    let mut rig = Rig::new();
    let session = rig.session();
    let identify = Cmd::new(0x06).cdw(10, 1);
    assert_eq!(rig.ask(session.admin, &identify.clone().room(4096)).data.len(), 4096);
    for len in [0, 4095, 4097, 1 << 20] {
        assert_eq!(rig.status(session.admin, &identify.clone().room(len)), 0x00f);
    }
    rig.wind_up();
}

#[test]
fn a_log_page_is_cut_at_its_offset_and_filled_with_zeroes() {
    let mut rig = Rig::with_limits(Limits { max_transfer: 8192, ..Limits::default() });
    let session = rig.session();
    let whole = rig.ask(session.admin, &log_page(2, 512)).data;
    assert_eq!(whole.len(), 512);
    let tail = rig.ask(session.admin, &log_page(2, 1024).u64(48, 256)).data;
    assert_eq!((&tail[..256], &tail[256..]), (&whole[256..], &[0; 768][..]));
    let end = rig.ask(session.admin, &log_page(2, 8).u64(48, 512));
    assert_eq!((end.status.0, end.data), (0, vec![0; 8]));
    for offset in [516, 1 << 63, u64::MAX - 3, 2] {
        assert_eq!(rig.status(session.admin, &log_page(2, 8).u64(48, offset)), 0x002, "{offset:#x}");
    }
    assert_eq!(rig.status(session.admin, &log_page(2, 8196)), 0x002, "more than MDTS");
    let all = log_page(2, 8).cdw(10, 0xffff_0002).cdw(11, 0xffff);
    assert_eq!(rig.status(session.admin, &all), 0x002);
    assert_eq!(rig.status(session.admin, &log_page(2, 512).room(4096)), 0x00f);
    assert_eq!(rig.status(session.admin, &log_page(2, 512).cdw(14, 1 << 23)), 0x002, "OT");
    rig.wind_up();
}

#[test]
fn event_requests_have_a_limit() {
    let mut rig = Rig::new();
    let session = rig.session();
    for _ in 0..4 {
        rig.send(session.admin, &event_request());
    }
    assert_eq!(rig.status(session.admin, &event_request()), 0x105);
    assert_eq!(rig.target.controllers()[0].tasks, 0, "they do not count");
    rig.wind_up();
}

#[test]
fn an_event_waits_for_a_request_and_a_request_for_an_event() {
    let mut rig = Rig::new();
    let session = rig.session();
    assert_eq!(rig.status(session.admin, &set_feature(0x0b, 0x900)), 0);
    let waiting = rig.send(session.admin, &event_request());
    assert!(rig.target.set_ana(rig.now, NQN, 1, inaccessible(), &mut rig.pool));
    rig.pump();
    let reply = rig.reply_to(session.admin, waiting);
    assert_eq!((reply.status, reply.result), (Status::SUCCESS, 0x000c_0302));
    rig.target.remove_namespace(rig.now, NQN, 2, &mut rig.pool);
    rig.pump();
    assert_eq!(rig.ask(session.admin, &event_request()).result, 0x0004_0002, "raised before it was asked for");
    rig.wind_up();
}

#[test]
fn the_write_cache_of_every_volume_is_switched() {
    let mut rig = Rig::new();
    let session = rig.session();
    rig.disk = Disk::Held;
    let cid = rig.send(session.admin, &set_feature(0x06, 0));
    rig.release(0, OpStatus::Good);
    rig.release(0, OpStatus::Good);
    assert_eq!(rig.reply_to(session.admin, cid).status.0, 0);
    assert_eq!(rig.submitted, [1, 2].map(|n| (VolumeId(n), Op::SetWriteCache { enabled: false })));
    let cid = rig.send(session.admin, &set_feature(0x06, 1));
    rig.release(0, OpStatus::DurabilityLost);
    assert_eq!(rig.reply_to(session.admin, cid).status, Status::new(0, 0x06));
    rig.wind_up();
}

#[test]
fn the_head_of_the_admin_queue_moves_as_well() {
    let mut rig = Rig::new();
    let (admin, _) = rig.connect(&Connect::to(0, 0xffff, 3));
    let heads: Vec<u16> = (0..4).map(|_| rig.ask(admin, &property_get(0, true)).sqhd).collect();
    assert_eq!(heads, [2, 3, 0, 1]);
    rig.wind_up();
}
