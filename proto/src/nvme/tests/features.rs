//! Features: what can be set, what is told, and what is refused how.

use std::time::Duration;

use platter_block::VolumeId;

use super::fields::*;
use super::rig::*;
use crate::nvme::{Limits, QueueId};

const SAVE: u8 = 0x80;

/// The value, which has to be there.
#[track_caller]
fn value(rig: &mut Rig, queue: QueueId, cmd: &Cmd) -> u64 {
    let reply = rig.ask(queue, cmd);
    assert_eq!((reply.status.0, reply.data), (0, Vec::new()));
    reply.result
}

fn select(cmd: &Cmd, select: u8) -> Cmd {
    cmd.clone().byte(41, select)
}

#[test]
fn what_is_set_is_told_until_a_reset() {
    let mut rig = Rig::new();
    let session = rig.session();
    for (fid, selector, default, new) in [
        (0x01, 0, 0x07, 0xff03_0205),
        (0x02, 0, 0x00, 0xe0),
        (0x04, 0x0000_0000, 0xffff, 0x0000_0155),
        (0x04, 0x0010_0000, 0x0000, 0x0010_0111),
        (0x04, 0x000f_0000, 0xffff, 0x000f_0166),
        (0x0a, 0, 0, 1),
        (0x0b, 0, 0x0900, 0x083f),
    ] {
        let get = get_feature(fid).cdw(11, selector);
        assert_eq!(value(&mut rig, session.admin, &get), default, "{fid:#x}");
        assert_eq!(value(&mut rig, session.admin, &set_feature(fid, new)), 0);
        let expected = if fid == 0x04 { u64::from(new & 0xffff) } else { new.into() };
        assert_eq!(value(&mut rig, session.admin, &get), expected, "{fid:#x}");
        for sel in [1, 2] {
            assert_eq!(value(&mut rig, session.admin, &select(&get, sel)), default, "default and saved value");
        }
        assert_eq!(rig.status(session.admin, &property_set(0x14, 0)), 0);
        rig.enable(session.admin);
        assert_eq!(value(&mut rig, session.admin, &get), default, "{fid:#x}");
    }
    rig.wind_up();
}

#[test]
fn what_a_feature_can_do_is_told_and_nothing_can_be_saved() {
    let mut rig = Rig::new();
    let session = rig.session();
    for fid in [0x01, 0x02, 0x04, 0x06, 0x07, 0x0a, 0x0b, 0x0e, 0x0f, 0x16] {
        assert_eq!(value(&mut rig, session.admin, &select(&get_feature(fid), 3)), 0b100, "{fid:#x}");
        let len = [(0x0e, 8), (0x16, 512)].into_iter().find(|(f, _)| *f == fid).map_or(0, |(_, len)| len);
        let save = set_feature(fid, 0).byte(43, SAVE).send(&vec![0; len]);
        assert_eq!(rig.status(session.admin, &save), 0x10d, "{fid:#x}");
    }
    assert_eq!(value(&mut rig, session.admin, &select(&get_feature(0x05), 3)), 0b010, "of a namespace, fixed");
    assert_eq!(value(&mut rig, session.admin, &select(&get_feature(0x81), 3)), 0b000, "set by Connect");
    for sel in 4..8 {
        assert_eq!(rig.status(session.admin, &select(&get_feature(0x01), sel)), 0x002);
    }
    rig.wind_up();
}

#[test]
fn features_that_are_not_there_are_an_invalid_field() {
    let mut rig = Rig::new();
    let session = rig.session();
    let discovery = rig.discovery(1000);
    let of_io = [0x01, 0x02, 0x04, 0x05, 0x06, 0x07, 0x0a, 0x0b, 0x0e, 0x0f, 0x16, 0x81];
    for (queue, known) in [(session.admin, &of_io[..]), (discovery, &[0x0b, 0x0f, 0x81][..])] {
        for fid in (0..=255).filter(|fid| !known.contains(fid)) {
            assert_eq!(rig.status(queue, &get_feature(fid)), 0x002, "{fid:#x}");
            assert_eq!(rig.status(queue, &select(&get_feature(fid), 3)), 0x002, "{fid:#x}");
            let len = [(0x0e, 8), (0x16, 512)].into_iter().find(|(f, _)| *f == fid).map_or(0, |(_, len)| len);
            assert_eq!(rig.status(queue, &set_feature(fid, 0).send(&vec![0; len])), 0x002, "{fid:#x}");
        }
    }
    rig.wind_up();
}

#[test]
fn a_namespace_is_named_only_where_each_has_its_own_value() {
    let mut rig = Rig::new();
    let session = rig.session();
    for nsid in [1, 5] {
        assert_eq!(rig.status(session.admin, &set_feature(0x0b, 0).nsid(nsid)), 0x10f);
    }
    assert_eq!(rig.status(session.admin, &set_feature(0x0b, 0).nsid(u32::MAX)), 0);
    let get = |nsid| get_feature(0x05).nsid(nsid);
    let set = |nsid, value| set_feature(0x05, value).nsid(nsid);
    for (nsid, on_get, on_set) in [(1, 0, 0), (0, 0x00b, 0x00b), (5, 0x00b, 0x00b), (u32::MAX, 0x00b, 0)] {
        assert_eq!(rig.status(session.admin, &get(nsid)), on_get, "{nsid}");
        assert_eq!(rig.status(session.admin, &set(nsid, 0)), on_set, "{nsid}");
    }
    for value in [1, 1 << 16] {
        assert_eq!(rig.status(session.admin, &set(1, value)), 0x10e, "TLER and DULBE are not to be had");
    }
    rig.wind_up();
}

#[test]
fn values_that_mean_nothing_here_are_an_invalid_field() {
    let mut rig = Rig::new();
    let session = rig.session();
    for (fid, value) in [
        (0x01, 0x08),
        (0x02, 0x01),
        (0x02, 0x100),
        (0x04, 0x0001_0000),
        (0x04, 0x0020_0000),
        (0x04, 0x0040_0000),
        (0x06, 0x02),
        (0x0a, 0x02),
        (0x0b, 0x0200),
        (0x0b, 0x8000_0000),
        (0x0b, 0x0040),
    ] {
        assert_eq!(rig.status(session.admin, &set_feature(fid, value)), 0x002, "{fid:#x} {value:#x}");
    }
    let discovery = rig.discovery(1000);
    assert_eq!(rig.status(discovery, &set_feature(0x0b, 0x0100)), 0x002);
    assert_eq!(rig.status(discovery, &set_feature(0x0b, 0x8000_0000)), 0);
    rig.wind_up();
}

#[test]
fn a_host_gets_all_queues_as_long_as_it_has_none() {
    let mut rig = Rig::with_limits(Limits { io_queues: 9, ..Limits::default() });
    let (admin, reply) = rig.connect(&Connect::admin());
    rig.enable(admin);
    for asked in [0x0000_0000, 0x0003_0003, 0xfffe_fffe] {
        assert_eq!(value(&mut rig, admin, &set_feature(0x07, asked)), 0x0008_0008);
    }
    assert_eq!(value(&mut rig, admin, &get_feature(0x07)), 0x0008_0008);
    for asked in [0xffff_0000, 0x0000_ffff] {
        assert_eq!(rig.status(admin, &set_feature(0x07, asked)), 0x002);
    }
    let (io, _) = rig.connect(&Connect::io(1, reply.result as u16));
    assert_eq!(rig.status(admin, &set_feature(0x07, 0)), 0x00c);
    assert_eq!(value(&mut rig, admin, &get_feature(0x07)), 0x0008_0008);
    rig.hang_up(io);
    assert_eq!(rig.status(admin, &set_feature(0x07, 0)), 0);
    rig.wind_up();
}

#[test]
fn the_write_cache_is_a_feature_of_subsystems_that_have_one() {
    let mut rig = Rig::new();
    let session = rig.session();
    assert_eq!(value(&mut rig, session.admin, &get_feature(0x06)), 1);
    let mut info = volume_info();
    info.write_cache = false;
    rig.target.volume_changed(rig.now, VolumeId(1), &info, &mut rig.pool);
    assert_eq!(value(&mut rig, session.admin, &get_feature(0x06)), 1, "the other is on");
    rig.target.volume_changed(rig.now, VolumeId(2), &info, &mut rig.pool);
    assert_eq!(value(&mut rig, session.admin, &get_feature(0x06)), 0);
    info.write_cache_changeable = false;
    rig.target.volume_changed(rig.now, VolumeId(1), &info, &mut rig.pool);
    rig.target.volume_changed(rig.now, VolumeId(2), &info, &mut rig.pool);
    assert_eq!(rig.status(session.admin, &get_feature(0x06)), 0x002);
    assert_eq!(rig.status(session.admin, &set_feature(0x06, 1)), 0x002);
    let effects = rig.ask(session.admin, &log_page(0x12, 1024)).data;
    assert_eq!(effects[4 * 0x06], 0);
    rig.wind_up();
}

#[test]
fn the_timestamp_goes_on_from_what_was_set() {
    let mut rig = Rig::new();
    let session = rig.session();
    let get = get_feature(0x0e).room(8);
    rig.wait(Duration::from_millis(1500));
    assert_fields(&rig.ask(session.admin, &get).data, &[(0, &[0xdc, 0x05], "1500 ms"), (6, &[0], "since a reset")]);
    let set = set_feature(0x0e, 0).send(&[0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 0x55, 0x55]);
    assert_eq!(rig.status(session.admin, &set), 0);
    rig.wait(Duration::from_millis(3));
    let fields: &[Field<'_>] = &[(0, &[2, 0, 0, 0, 0, 0x80], "two more and a carry"), (6, &[0x02], "set by the host")];
    assert_fields(&rig.ask(session.admin, &get).data, fields);
    for wrong in [set_feature(0x0e, 0), set_feature(0x0e, 0).send(&[0; 7]), set_feature(0x0e, 0).send(&[0; 16])] {
        assert_eq!(rig.status(session.admin, &wrong), 0x00f);
    }
    assert_eq!(rig.status(session.admin, &get_feature(0x0e).room(16)), 0x00f);
    rig.wind_up();
}

#[test]
fn keep_alive_is_told_as_it_is() {
    let mut rig = Rig::new();
    let session = rig.session();
    assert_eq!(value(&mut rig, session.admin, &get_feature(0x0f)), 0);
    assert_eq!(rig.status(session.admin, &set_feature(0x0f, 1)), 0);
    assert_eq!(value(&mut rig, session.admin, &get_feature(0x0f)), 100);
    rig.wind_up();
}

#[test]
fn host_behavior_that_asks_for_what_there_is_not_is_refused() {
    let mut rig = Rig::new();
    let session = rig.session();
    let get = get_feature(0x16).room(512);
    let set = |bytes: &[u8]| {
        let mut data = vec![0; 512];
        data[..bytes.len()].copy_from_slice(bytes);
        set_feature(0x16, 0).send(&data)
    };
    assert_fields(&rig.ask(session.admin, &get).data, &[]);
    assert_eq!(rig.status(session.admin, &set(&[1, 1])), 0);
    assert_fields(&rig.ask(session.admin, &get).data, &[(0, &[1, 1], "ACRE, ETDAS")]);
    assert_fields(&rig.ask(session.admin, &select(&get, 1)).data, &[]);
    for wrong in [&[2][..], &[0, 2], &[0, 0, 1], &[0, 0, 0, 1], &[0, 0, 0, 0, 4], &[0, 0, 0, 0, 0, 1]] {
        assert_eq!(rig.status(session.admin, &set(wrong)), 0x002, "{wrong:?}");
    }
    assert_eq!(rig.status(session.admin, &set_feature(0x16, 0).send(&[0; 511])), 0x00f);
    assert_fields(&rig.ask(session.admin, &get).data, &[(0, &[1, 1], "as it was")]);
    rig.wind_up();
}

#[test]
fn the_host_identifier_is_that_of_connect() {
    let mut rig = Rig::new();
    let session = rig.session();
    let discovery = rig.discovery(1000);
    for queue in [session.admin, discovery] {
        let reply = rig.ask(queue, &get_feature(0x81).cdw(11, 1).room(16));
        assert_eq!((reply.status.0, reply.result, reply.data), (0, 1, vec![0x77; 16]));
        assert_eq!(rig.status(queue, &get_feature(0x81).room(8)), 0x002, "64 bits");
        assert_eq!(rig.status(queue, &set_feature(0x81, 1)), 0x00c);
    }
    rig.wind_up();
}
