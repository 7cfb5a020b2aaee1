//! Log pages, byte by byte.

use std::time::Duration;

use platter_block::{BlockCount, Lba, Op, Rotation, Status as OpStatus};

use super::fields::*;
use super::rig::*;
use crate::nvme::{AnaGroup, AnaState, Limits, QueueId};

#[track_caller]
fn get(rig: &mut Rig, queue: QueueId, cmd: &Cmd) -> Vec<u8> {
    let reply = rig.ask(queue, cmd);
    assert_eq!(reply.status.0, 0);
    reply.data
}

/// A log of an endurance group.
fn of_group(lid: u8, group: u32) -> Cmd {
    log_page(lid, 512).cdw(11, group << 16)
}

/// The dwords that are not zero, with their index.
fn dwords(log: &[u8]) -> Vec<(usize, u32)> {
    let dwords = log.chunks_exact(4).map(|d| u32::from_le_bytes(d.try_into().unwrap()));
    dwords.enumerate().filter(|(_, d)| *d != 0).collect()
}

#[test]
fn supported_log_pages_are_those_that_are_answered() {
    let mut rig = Rig::new();
    let session = rig.session();
    let discovery = rig.discovery(0);
    let of_io = [0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x09, 0x0c, 0x12, 0x13, 0x16];
    let of_discovery = [0x00, 0x01, 0x05, 0x12, 0x13, 0x70];
    for (queue, lids) in [(session.admin, &of_io[..]), (discovery, &of_discovery[..])] {
        let log = get(&mut rig, queue, &log_page(0x00, 1024));
        assert_eq!(dwords(&log), lids.iter().map(|&lid| (lid, 1)).collect::<Vec<_>>());
        for lid in 0..256 {
            let cmd = log_page(lid as u8, 64).cdw(11, 1 << 16);
            let expected = if lids.contains(&lid) { 0x000 } else { 0x109 };
            assert_eq!(rig.status(queue, &cmd), expected, "{lid:#x}");
        }
    }
    rig.wind_up();
}

#[test]
fn smart_tells_what_the_controller_did() {
    let mut rig = Rig::new();
    let session = rig.session();
    let empty = get(&mut rig, session.admin, &log_page(0x02, 512));
    assert_fields(&empty, &[(3, &[100], "available spare")]);
    for _ in 0..3 {
        rig.ask(session.io, &read(0, 1001));
    }
    rig.ask(session.io, &compare(0, &[0; 512]));
    rig.ask(session.io, &write(0, &[0; 1000 * 512]));
    rig.wait(Duration::from_secs(2 * 3600 + 1));
    for nsid in [0, u32::MAX] {
        let log = get(&mut rig, session.admin, &log_page(0x02, 512).nsid(nsid));
        let fields: &[Field<'_>] = &[
            (0, &[0], "critical warning"),
            (3, &[100, 0], "available spare, threshold"),
            (5, &[0], "percentage used"),
            (32, &4_u128.to_le_bytes(), "data units read: 3003 rounded up"),
            (48, &1_u128.to_le_bytes(), "data units written"),
            (64, &4_u128.to_le_bytes(), "host read commands"),
            (80, &1_u128.to_le_bytes(), "host write commands"),
            (128, &2_u128.to_le_bytes(), "power on hours"),
        ];
        assert_fields(&log, fields);
    }
    assert_eq!(rig.status(session.admin, &log_page(0x02, 512).nsid(1)), 0x002, "there is none of a namespace");
    rig.wind_up();
}

#[test]
fn a_volume_with_a_disk_missing_is_a_warning() {
    let mut rig = Rig::new();
    let session = rig.session();
    let mut info = volume_info();
    info.ready = false;
    rig.target.volume_changed(rig.now, platter_block::VolumeId(2), &info, &mut rig.pool);
    rig.pump();
    assert_eq!(get(&mut rig, session.admin, &log_page(0x02, 512))[0], 0x04);
    info.ready = true;
    rig.target.volume_changed(rig.now, platter_block::VolumeId(2), &info, &mut rig.pool);
    rig.pump();
    assert_eq!(get(&mut rig, session.admin, &log_page(0x02, 512))[0], 0x00);
    rig.wind_up();
}

#[test]
fn faults_of_disks_are_in_the_error_log_and_in_smart_and_mistakes_of_hosts_are_not() {
    let mut rig = Rig::new();
    let session = rig.session();
    assert_fields(&get(&mut rig, session.admin, &log_page(0x01, 4096)), &[]);
    assert_eq!(rig.status(session.io, &read(BLOCKS, 1)), 0x080);
    assert_eq!(rig.status(session.io, &compare(0, &[9; 512])), 0x285);
    rig.disk = Disk::Held;
    let failed = rig.send(session.io, &read(0x123, 2));
    assert_eq!(rig.waiting[0].2.range().map(|r| (r.start, r.count)), Some((Lba(0x123), BlockCount(2))));
    rig.release(0, OpStatus::MediumError { lba: Lba(0x124) });
    let lost = rig.send(session.io, &flush(2));
    assert!(matches!(rig.waiting[0].2, Op::Flush));
    rig.release(0, OpStatus::DurabilityLost);
    let log = get(&mut rig, session.admin, &log_page(0x01, 4096));
    let fields: &[Field<'_>] = &[
        (0, &2_u64.to_le_bytes(), "error count, the newest first"),
        (8, &1_u16.to_le_bytes(), "SQID"),
        (10, &lost.to_le_bytes(), "CID"),
        (12, &0x800c_u16.to_le_bytes(), "status 0/06h, DNR"),
        (14, &[0xff, 0xff], "parameter error location"),
        (24, &2_u32.to_le_bytes(), "NSID"),
        (31, &[0x00], "opcode"),
        (63, &[1], "log page version"),
        (64, &1_u64.to_le_bytes(), "error count"),
        (72, &1_u16.to_le_bytes(), "SQID"),
        (74, &failed.to_le_bytes(), "CID"),
        (76, &0x8502_u16.to_le_bytes(), "status 2/81h, DNR"),
        (78, &[0xff, 0xff], "parameter error location"),
        (80, &0x123_u64.to_le_bytes(), "LBA"),
        (88, &1_u32.to_le_bytes(), "NSID"),
        (95, &[0x02], "opcode"),
        (127, &[1], "log page version"),
    ];
    assert_fields(&log, fields);
    let smart = get(&mut rig, session.admin, &log_page(0x02, 512));
    assert_eq!(smart[0], 0x04, "degraded");
    assert_eq!(smart[160..176], 1_u128.to_le_bytes(), "media errors");
    assert_eq!(smart[176..192], 2_u128.to_le_bytes(), "error log entries");
    rig.wind_up();
}

#[test]
fn the_error_log_keeps_the_last_64() {
    let mut rig = Rig::new();
    let session = rig.session();
    rig.disk = Disk::Held;
    for lba in 1..=70 {
        rig.send(session.io, &read(lba, 1));
        rig.release(0, OpStatus::MediumError { lba: Lba(lba) });
    }
    let log = get(&mut rig, session.admin, &log_page(0x01, 4096));
    let counts: Vec<u64> = log.chunks_exact(64).map(|e| u64::from_le_bytes(e[..8].try_into().unwrap())).collect();
    let lbas: Vec<u64> = log.chunks_exact(64).map(|e| u64::from_le_bytes(e[16..24].try_into().unwrap())).collect();
    assert_eq!(counts, (7..=70).rev().collect::<Vec<u64>>());
    assert_eq!(lbas, counts);
    rig.wind_up();
}

#[test]
fn firmware_slot_information() {
    let mut rig = Rig::new();
    let session = rig.session();
    let log = get(&mut rig, session.admin, &log_page(0x03, 512));
    assert_fields(&log, &[(0, &[1], "AFI: slot 1"), (8, &padded("1", 8, b' '), "FRS1")]);
    rig.wind_up();
}

#[test]
fn commands_supported_and_effects() {
    let mut rig = Rig::new();
    let session = rig.session();
    let admin = [0x02, 0x06, 0x08, 0x09, 0x0a, 0x0c, 0x18, 0x7f].map(|opcode| (opcode, 0x0020_0001));
    let io = [
        (0x00, 0x0010_0001),
        (0x01, 0x0010_0003),
        (0x02, 0x0010_0001),
        (0x05, 0x0010_0001),
        (0x08, 0x0010_0003),
        (0x09, 0x0010_0003),
        (0x0c, 0x0010_0001),
        (0x19, 0x0010_0003),
        (0x7f, 0x0020_0001),
    ];
    let io = io.map(|(opcode, effects)| (256 + opcode, effects));
    let log = get(&mut rig, session.admin, &log_page(0x05, 4096));
    assert_eq!(dwords(&log), [&admin[..], &io[..]].concat());
    for opcode in 0..=255u8 {
        let is_there = log[1024 + 4 * usize::from(opcode)] & 1 == 1;
        let is_invalid = rig.status(session.io, &Cmd::new(opcode).byte(4, 4)) == 0x001;
        assert_eq!(is_there, !is_invalid || opcode == 0x7f, "{opcode:#x}");
    }
    let discovery = rig.discovery(0);
    assert_eq!(dwords(&get(&mut rig, discovery, &log_page(0x05, 4096))), admin);
    assert_eq!(rig.status(session.admin, &log_page(0x05, 4096).cdw(14, 2 << 24)), 0x002, "CSI");
    rig.wind_up();
}

#[test]
fn feature_identifiers_supported_and_effects() {
    let mut rig = Rig::new();
    let session = rig.session();
    let discovery = rig.discovery(0);
    let of_controller = [0x01, 0x02, 0x04, 0x06, 0x07, 0x0a, 0x0b, 0x0e, 0x0f, 0x16, 0x81];
    let mut of_io: Vec<(usize, u32)> = of_controller.map(|fid| (fid, 0x0020_0001)).to_vec();
    of_io.insert(3, (0x05, 0x0010_0001));
    assert_eq!(dwords(&get(&mut rig, session.admin, &log_page(0x12, 1024))), of_io);
    let of_discovery = [0x0b, 0x0f, 0x81].map(|fid| (fid, 0x0020_0001));
    assert_eq!(dwords(&get(&mut rig, discovery, &log_page(0x12, 1024))), of_discovery);
    rig.wind_up();
}

#[test]
fn nothing_is_managed_through_nvme_mi() {
    let mut rig = Rig::new();
    let session = rig.session();
    assert_fields(&get(&mut rig, session.admin, &log_page(0x13, 4096)), &[]);
    rig.wind_up();
}

#[test]
fn endurance_group_information() {
    let mut rig = Rig::new();
    let session = rig.session();
    let log = get(&mut rig, session.admin, &of_group(0x09, 2));
    let capacity = (u128::from(BLOCKS) * BLOCK as u128).to_le_bytes();
    assert_fields(&log, &[(0, &[0, 0, 0], "warnings"), (3, &[100], "spare"), (160, &capacity, "TEGCAP")]);
    for group in [0, 3, 0xffff] {
        assert_eq!(rig.status(session.admin, &of_group(0x09, group)), 0x002);
    }
    rig.wind_up();
}

#[test]
fn rotational_media_information_is_of_groups_that_rotate() {
    let mut config = config();
    config.subsystems[0].namespaces = [1, 2, 3].map(namespace).into();
    config.subsystems[0].namespaces[0].info.rotation = Rotation::Rpm(5400);
    config.subsystems[0].namespaces[1].info.rotation = Rotation::NonRotating;
    config.subsystems[0].namespaces[2].info.rotation = Rotation::Unknown;
    let mut rig = Rig::with(config);
    let session = rig.session();
    let log = get(&mut rig, session.admin, &of_group(0x16, 1));
    let fields: &[Field<'_>] =
        &[(0, &[1, 0], "ENDGID"), (2, &[1, 0], "NUMA"), (4, &5400_u16.to_le_bytes(), "NRS"), (6, &[0, 0], "reserved")];
    assert_fields(&log, fields);
    for group in [0, 2, 3, 4] {
        assert_eq!(rig.status(session.admin, &of_group(0x16, group)), 0x002);
    }
    rig.wind_up();
}

/// Namespaces 1 and 3 in group 4, namespace 2 in group 2; group 9 is empty. Group 4 is inaccessible through portal 1.
fn grouped() -> Rig {
    let mut config = config();
    let subsystem = &mut config.subsystems[0];
    subsystem.namespaces = [1, 2, 3].map(namespace).into();
    for (at, group) in [4, 2, 4].into_iter().enumerate() {
        subsystem.namespaces[at].ana_group = group;
    }
    subsystem.ana_groups.insert(4, AnaGroup { through: [(1, AnaState::Inaccessible)].into() });
    subsystem.ana_groups.insert(9, AnaGroup::default());
    Rig::with(config)
}

#[test]
fn asymmetric_namespace_access() {
    let mut rig = grouped();
    let here = rig.session();
    let there = rig.session_as(&Connect::admin(), &|cntlid| Connect::io(1, cntlid), 1);
    for (session, state) in [(here, 0x01), (there, 0x03)] {
        let log = get(&mut rig, session.admin, &log_page(0x0c, 128));
        let fields: &[Field<'_>] = &[
            (0, &1_u64.to_le_bytes(), "change count"),
            (8, &2_u16.to_le_bytes(), "NGRPS"),
            (16, &2_u32.to_le_bytes(), "ANAGRPID"),
            (20, &1_u32.to_le_bytes(), "NNSIDS"),
            (24, &1_u64.to_le_bytes(), "change count"),
            (32, &[0x01], "state"),
            (48, &2_u32.to_le_bytes(), "NSID"),
            (52, &4_u32.to_le_bytes(), "ANAGRPID"),
            (56, &2_u32.to_le_bytes(), "NNSIDS"),
            (60, &1_u64.to_le_bytes(), "change count"),
            (68, &[state], "state"),
            (84, &1_u32.to_le_bytes(), "NSID"),
            (88, &3_u32.to_le_bytes(), "NSID"),
        ];
        assert_fields(&log, fields);
        let groups = get(&mut rig, session.admin, &log_page(0x0c, 128).byte(41, 1));
        let fields: &[Field<'_>] = &[
            (0, &1_u64.to_le_bytes(), "change count"),
            (8, &2_u16.to_le_bytes(), "NGRPS"),
            (16, &2_u32.to_le_bytes(), "ANAGRPID"),
            (20, &0_u32.to_le_bytes(), "NNSIDS"),
            (24, &1_u64.to_le_bytes(), "change count"),
            (32, &[0x01], "state"),
            (48, &4_u32.to_le_bytes(), "ANAGRPID"),
            (56, &1_u64.to_le_bytes(), "change count"),
            (64, &[state], "state"),
        ];
        assert_fields(&groups, fields);
    }
    rig.wind_up();
}

#[test]
fn every_ana_state_has_its_number_and_every_change_is_counted() {
    let mut rig = grouped();
    let session = rig.session();
    let states = [
        (AnaState::NonOptimized, 0x2),
        (AnaState::Inaccessible, 0x3),
        (AnaState::PersistentLoss, 0x4),
        (AnaState::Change, 0xf),
        (AnaState::Optimized, 0x1),
    ];
    for (changes, (state, number)) in (2..).zip(states) {
        rig.target.set_ana(rig.now, NQN, 4, AnaGroup { through: [(0, state)].into() }, &mut rig.pool);
        rig.pump();
        let log = get(&mut rig, session.admin, &log_page(0x0c, 128));
        assert_eq!((log[0], log[32], log[68]), (changes, 0x1, number), "{state:?}");
    }
    rig.target.remove_namespace(rig.now, NQN, 2, &mut rig.pool);
    rig.pump();
    let log = get(&mut rig, session.admin, &log_page(0x0c, 128));
    assert_eq!((log[0], log[8], log[16]), (7, 1, 4), "the group is gone with its last namespace");
    rig.wind_up();
}

#[test]
fn the_ana_log_of_everything_fits_what_identify_says() {
    let mut config = config();
    let limits = Limits { namespaces: 1024, ana_groups: 128, ..Limits::default() };
    config.subsystems[0].namespaces = (1..=limits.namespaces).map(namespace).collect();
    for namespace in &mut config.subsystems[0].namespaces {
        namespace.ana_group = namespace.nsid % limits.ana_groups + 1;
    }
    // What Linux hosts make room for.
    let room = 16 + 32 * limits.ana_groups as usize + 4 * limits.namespaces as usize;
    config.limits = limits;
    let mut rig = Rig::with(config);
    let session = rig.session();
    let log = get(&mut rig, session.admin, &log_page(0x0c, room));
    assert_eq!(log[room - 4..], 1023_u32.to_le_bytes(), "the last of the last group");
    assert_eq!(rig.status(session.admin, &log_page(0x0c, 4).u64(48, room as u64 + 4)), 0x002, "there is no more");
    rig.wind_up();
}
