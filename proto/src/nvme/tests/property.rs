//! Properties: CAP, CC, CSTS, and what enabling, resetting and shutting down do.

use platter_block::{Op, Status as OpStatus};

use super::rig::*;
use crate::nvme::{DISCOVERY_NQN, QueueId};

const CC: u32 = 0x14;
const CSTS: u32 = 0x1c;

fn get(rig: &mut Rig, queue: QueueId, offset: u32) -> u64 {
    let reply = rig.ask(queue, &property_get(offset, offset == 0));
    assert_eq!(reply.status.0, 0, "{offset:#x}");
    reply.result
}

#[test]
fn capabilities_tell_the_queue_size_and_nothing_that_is_not_there() {
    let mut rig = Rig::new();
    let (admin, _) = rig.connect(&Connect::admin());
    let cap = get(&mut rig, admin, 0);
    assert_eq!(cap & 0xffff, 1023, "MQES");
    assert_eq!(cap >> 16 & 1, 1, "CQR");
    assert_eq!(cap >> 37 & 0xff, 1, "CSS: the NVM command set");
    assert_eq!(cap >> 48 & 0xff, 0, "MPSMIN, MPSMAX: 4 KiB");
    let low = rig.ask(admin, &property_get(0, false)).result;
    let high = rig.ask(admin, &property_get(4, false)).result;
    assert_eq!(high << 32 | low, cap);
    assert_eq!((get(&mut rig, admin, CC), get(&mut rig, admin, CSTS)), (0, 0));
    rig.wind_up();
}

#[test]
fn offsets_and_sizes_that_are_not_there_are_refused() {
    let mut rig = Rig::new();
    let session = rig.session();
    for (offset, eight) in
        [(CC, true), (CSTS, true), (8, true), (4, true), (0x0c, false), (0x20, false), (0x1000, true)]
    {
        assert_eq!(rig.status(session.admin, &property_get(offset, eight)), 0x182, "{offset:#x}");
    }
    assert_eq!(rig.status(session.admin, &property_get(0, true).byte(40, 2)), 0x182);
    for offset in [0, 8, CSTS, 0x20, 0x24] {
        assert_eq!(rig.status(session.admin, &property_set(offset, 0)), 0x182, "{offset:#x}");
    }
    assert_eq!(rig.status(session.admin, &property_set(CC, 0).byte(40, 1)), 0x182);
    assert_eq!(rig.status(session.io, &property_get(CC, false)), 0x002, "on an I/O queue");
    assert_eq!(get(&mut rig, session.admin, CC), u64::from(ENABLED));
    rig.wind_up();
}

#[test]
fn a_wrong_configuration_never_enables() {
    let mut rig = Rig::new();
    let (admin, _) = rig.connect(&Connect::admin());
    for wrong in [
        0x0045_0001,       // IOSQES 5
        0x0056_0001,       // IOCQES 5
        0x0000_0001,       // neither
        ENABLED | 1 << 4,  // CSS
        ENABLED | 1 << 7,  // MPS
        ENABLED | 1 << 11, // AMS
        ENABLED | 1 << 24, // CRIME
        ENABLED | 1 << 31,
        ENABLED | 3 << 14, // SHN
    ] {
        assert_eq!(rig.status(admin, &property_set(CC, wrong.into())), 0x002, "{wrong:#x}");
        assert_eq!(get(&mut rig, admin, CSTS), 0);
    }
    rig.enable(admin);
    assert_eq!(get(&mut rig, admin, CSTS), 1);
    rig.wind_up();
}

#[test]
fn admin_commands_have_to_wait_until_the_controller_is_enabled() {
    let mut rig = Rig::new();
    let (admin, _) = rig.connect(&Connect::admin().kato(1000));
    for cmd in [Cmd::new(0x06).room(4096), event_request(), Cmd::new(0x18), abort(0, 0), get_feature(7)] {
        assert_eq!(rig.status(admin, &cmd), 0x00c);
    }
    rig.enable(admin);
    assert_eq!(rig.status(admin, &Cmd::new(0x18)), 0);
    rig.wind_up();
}

#[test]
fn a_reset_ends_io_queues_and_is_complete_when_the_engine_is_quiet() {
    let mut rig = Rig::new();
    let session = rig.session();
    let event = rig.send(session.admin, &event_request());
    rig.disk = Disk::Stuck;
    let io = rig.send(session.io, &write(0, &pattern(512, 1)));
    assert_eq!(rig.status(session.admin, &property_set(CC, u64::from(ENABLED & !1))), 0);
    assert_eq!(rig.closes, [session.io]);
    assert_eq!(rig.aborts.len(), 1);
    assert_eq!(rig.reply_to(session.admin, event).status.0 & 0x7ff, 0x007);
    assert_eq!(get(&mut rig, session.admin, CSTS), 1, "an op is left");
    assert_eq!(rig.status(session.admin, &property_set(CC, ENABLED.into())), 0x00c);
    rig.release(0, OpStatus::Aborted);
    assert_eq!(rig.take_reply(session.io, io), None);
    assert_eq!(get(&mut rig, session.admin, CSTS), 0);
    rig.close_all();
    rig.enable(session.admin);
    let (queue, reply) = rig.connect(&Connect::io(1, session.cntlid));
    assert_eq!(reply.status.0, 0, "the identifier of the queue is free");
    rig.disk = Disk::Fast;
    assert_eq!(rig.status(queue, &read(0, 1)), 0);
    rig.wind_up();
}

#[test]
fn a_shutdown_is_complete_when_the_caches_are_flushed() {
    let mut rig = Rig::new();
    let session = rig.session();
    rig.disk = Disk::Held;
    let cid = rig.send(session.admin, &property_set(CC, u64::from(ENABLED | 1 << 14)));
    assert_eq!(get(&mut rig, session.admin, CSTS), 1);
    rig.release(0, OpStatus::Good);
    rig.release(0, OpStatus::Good);
    assert_eq!(rig.reply_to(session.admin, cid).status.0, 0);
    assert_eq!(rig.submitted, [1, 2].map(|n| (platter_block::VolumeId(n), Op::Flush)));
    assert_eq!(get(&mut rig, session.admin, CSTS), 0b1001, "SHST 10b");
    assert_eq!(rig.status(session.io, &read(0, 1)), 0x00c);
    assert_eq!(rig.status(session.admin, &event_request()), 0x00c);
    assert_eq!(rig.status(session.admin, &property_set(CC, u64::from(ENABLED & !1))), 0);
    assert_eq!(get(&mut rig, session.admin, CSTS), 0, "a reset ends the shutdown");
    rig.wind_up();
}

#[test]
fn a_shutdown_whose_flush_fails_says_so() {
    let mut rig = Rig::new();
    let session = rig.session();
    rig.disk = Disk::Held;
    let cid = rig.send(session.admin, &property_set(CC, u64::from(ENABLED | 2 << 14)));
    rig.release(0, OpStatus::DurabilityLost);
    rig.release(0, OpStatus::Good);
    assert_eq!(rig.reply_to(session.admin, cid).status.0, 0);
    assert_eq!(get(&mut rig, session.admin, CSTS), 0b1011, "SHST 10b, CFS");
    rig.wind_up();
}

#[test]
fn a_discovery_controller_does_not_mind_the_entry_sizes() {
    let mut rig = Rig::new();
    let (admin, _) = rig.connect(&Connect::admin().text(256, DISCOVERY_NQN));
    assert_eq!(rig.status(admin, &property_set(CC, 1)), 0);
    assert_eq!(get(&mut rig, admin, CSTS), 1);
    rig.wind_up();
}

#[test]
fn disconnect_ends_an_io_queue_and_frees_its_identifier() {
    let mut rig = Rig::new();
    let session = rig.session();
    rig.disk = Disk::Held;
    rig.send(session.io, &read(0, 8));
    assert_eq!(rig.status(session.io, &fabrics(0x08).u16(40, 1)), 0x180, "RECFMT");
    let reply = rig.ask(session.io, &fabrics(0x08));
    assert_eq!((reply.status.0, reply.sqid), (0, 1));
    assert_eq!(rig.closes, [session.io]);
    assert_eq!(rig.connect(&Connect::io(1, session.cntlid)).1.status.0, 0);
    assert_eq!(rig.status(session.admin, &fabrics(0x08)), 0x185);
    rig.wind_up();
}

#[test]
fn authentication_and_unknown_fabrics_commands_are_refused() {
    let mut rig = Rig::new();
    let session = rig.session();
    for queue in [session.admin, session.io] {
        for fctype in [0x02, 0x05, 0x06, 0x09, 0xff] {
            assert_eq!(rig.status(queue, &fabrics(fctype)), 0x001, "{fctype:#x}");
        }
    }
    rig.wind_up();
}
