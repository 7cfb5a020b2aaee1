//! Identify: every structure byte by byte, and which question is refused how.

use platter_block::{Discard, Rotation};

use super::fields::*;
use super::rig::*;
use crate::nvme::{AnaGroup, AnaState, DISCOVERY_NQN, Limits, NamespaceConfig, QueueId, TargetConfig};

fn identify(cns: u8) -> Cmd {
    Cmd::new(0x06).cdw(10, cns.into()).room(4096)
}

/// The structure, which has to be there.
#[track_caller]
fn get(rig: &mut Rig, queue: QueueId, cmd: &Cmd) -> Vec<u8> {
    let reply = rig.ask(queue, cmd);
    assert_eq!(reply.status.0, 0);
    assert_eq!(reply.data.len(), 4096);
    reply.data
}

fn with_namespaces(namespaces: Vec<NamespaceConfig>) -> Rig {
    let mut config = config();
    config.subsystems[0].namespaces = namespaces;
    Rig::with(config)
}

/// Subsequent 32-bit numbers up to a zero.
fn numbers(list: &[u8]) -> Vec<u32> {
    let numbers = list.chunks_exact(4).map(|n| u32::from_le_bytes(n.try_into().unwrap()));
    numbers.take_while(|&n| n != 0).collect()
}

#[test]
fn identify_controller_of_an_io_controller() {
    let limits = Limits { async_events: 6, aborts: 5, namespaces: 300, ana_groups: 77, ..Limits::default() };
    let mut rig = Rig::with_limits(limits);
    let session = rig.session();
    let bytes = get(&mut rig, session.admin, &identify(0x01));
    assert_fields(
        &bytes,
        &[
            (4, &padded("serial", 20, b' '), "SN"),
            (24, &padded("model", 40, b' '), "MN"),
            (64, &padded("1", 8, b' '), "FR"),
            (76, &[0x0b], "CMIC: ports, controllers, ANA"),
            (77, &[8], "MDTS: 1 MiB"),
            (78, &session.cntlid.to_le_bytes(), "CNTLID"),
            (80, &[0x00, 0x01, 0x02, 0x00], "VER 2.1"),
            (92, &0x0900_u32.to_le_bytes(), "OAES: namespace attributes, ANA"),
            (96, &0x0051_u32.to_le_bytes(), "CTRATT: 128 bit host identifier, endurance groups, TBKAS"),
            (111, &[1], "CNTRLTYPE: I/O"),
            (256, &[0, 0], "OACS"),
            (258, &[4], "ACL"),
            (259, &[5], "AERL"),
            (260, &[0x03], "FRMW: one slot, read only"),
            (261, &[0x26], "LPA: effects, extended, logs of logs"),
            (262, &[63], "ELPE"),
            (263, &[0], "NPSS"),
            (320, &[1, 0], "KAS: 100 ms"),
            (340, &300_u16.to_le_bytes(), "ENDGIDMAX"),
            (342, &[60], "ANATT"),
            (343, &[0x1f], "ANACAP"),
            (344, &77_u32.to_le_bytes(), "ANAGRPMAX"),
            (348, &77_u32.to_le_bytes(), "NANAGRPID"),
            (512, &[0x66], "SQES"),
            (513, &[0x44], "CQES"),
            (514, &1024_u16.to_le_bytes(), "MAXCMD"),
            (516, &300_u32.to_le_bytes(), "NN"),
            (520, &0x01dd_u16.to_le_bytes(), "ONCS: Compare, DSM, Write Zeroes, Select, Timestamp, Verify, Copy"),
            (522, &[1, 0], "FUSES"),
            (524, &[0], "FNA"),
            (525, &[0x07], "VWC: flush all, present"),
            (526, &[0, 0], "AWUN"),
            (528, &[0, 0], "AWUPF"),
            (531, &[0], "NWPC"),
            (532, &[0, 0], "ACWU"),
            (534, &[1, 0], "OCFS"),
            (536, &0x0030_0001_u32.to_le_bytes(), "SGLS"),
            (540, &300_u32.to_le_bytes(), "MNAN"),
            (768, &padded(NQN, 256, 0), "SUBNQN"),
            (1792, &516_u32.to_le_bytes(), "IOCCSZ: 64 + 8192 bytes"),
            (1796, &1_u32.to_le_bytes(), "IORCSZ"),
            (1800, &[0, 0], "ICDOFF"),
            (1802, &[0], "FCATT: dynamic"),
            (1803, &[1], "MSDBD"),
            (1804, &[1, 0], "OFCS: Disconnect"),
            (1806, &[0], "DCTYPE"),
        ],
    );
    rig.wind_up();
}

#[test]
fn identify_controller_of_a_discovery_controller() {
    let mut rig = Rig::new();
    let discovery = rig.discovery(0);
    let bytes = get(&mut rig, discovery, &identify(0x01));
    assert_fields(
        &bytes,
        &[
            (4, &[b' '; 20], "SN"),
            (24, &padded("Platter", 40, b' '), "MN"),
            (64, &padded(env!("CARGO_PKG_VERSION"), 8, b' '), "FR"),
            (77, &[8], "MDTS"),
            (78, &[1, 0], "CNTLID"),
            (80, &[0x00, 0x01, 0x02, 0x00], "VER"),
            (92, &0x8000_0000_u32.to_le_bytes(), "OAES: discovery log"),
            (96, &0x0041_u32.to_le_bytes(), "CTRATT"),
            (111, &[2], "CNTRLTYPE: discovery"),
            (258, &[3, 3], "ACL, AERL"),
            (261, &[0x26], "LPA"),
            (262, &[63], "ELPE"),
            (320, &[1, 0], "KAS"),
            (514, &1024_u16.to_le_bytes(), "MAXCMD"),
            (536, &0x0030_0001_u32.to_le_bytes(), "SGLS"),
            (768, &padded(DISCOVERY_NQN, 256, 0), "SUBNQN"),
            (1806, &[1], "DCTYPE: direct"),
        ],
    );
    for cns in (0..=255).filter(|&cns| cns != 0x01) {
        assert_eq!(rig.status(discovery, &identify(cns).nsid(1)), 0x002, "{cns:#x}");
    }
    rig.wind_up();
}

#[test]
fn text_that_does_not_fit_is_cut_and_what_is_not_ascii_replaced() {
    let mut config = config();
    config.subsystems[0].serial = "x".repeat(21);
    config.subsystems[0].firmware = "a\u{e4}\tb".to_owned();
    let mut rig = Rig::with(config);
    let session = rig.session();
    let bytes = get(&mut rig, session.admin, &identify(0x01));
    assert_eq!(bytes[4..24], [b'x'; 20]);
    assert_eq!(bytes[24..29], *b"model");
    assert_eq!(bytes[64..72], *b"a???b   ");
    rig.wind_up();
}

#[test]
fn the_write_cache_is_present_if_a_volume_has_one_whether_or_not_it_is_on() {
    for (changeable, on, vwc) in [(false, false, 0x06), (true, false, 0x07), (true, true, 0x07)] {
        let mut namespaces = vec![namespace(1), namespace(2)];
        for namespace in &mut namespaces {
            namespace.info.write_cache_changeable = false;
            namespace.info.write_cache = false;
        }
        namespaces[1].info.write_cache_changeable = changeable;
        namespaces[1].info.write_cache = on;
        let mut rig = with_namespaces(namespaces);
        let session = rig.session();
        assert_eq!(get(&mut rig, session.admin, &identify(0x01))[525], vwc);
        let of = |nsid| identify(0x08).nsid(nsid);
        assert_eq!(get(&mut rig, session.admin, &of(1))[0] & 0x20, 0x20, "VWCNP");
        assert_eq!(get(&mut rig, session.admin, &of(2))[0] & 0x20, if changeable { 0 } else { 0x20 });
        rig.wind_up();
    }
}

#[test]
fn identify_namespace() {
    let mut namespace = namespace(5);
    namespace.info.block_size = 4096;
    namespace.info.physical_block = 16384;
    namespace.info.blocks = 0x0102_0304;
    namespace.info.discard = Some(Discard { granularity: 256, alignment: 0, max_blocks: 9, reads_zeroes: true });
    namespace.ana_group = 9;
    let mut rig = with_namespaces(vec![namespace]);
    let session = rig.session();
    let bytes = get(&mut rig, session.admin, &identify(0x00).nsid(5));
    let blocks = 0x0102_0304_u64.to_le_bytes();
    let fields: &[Field<'_>] = &[
        (0, &blocks, "NSZE"),
        (8, &blocks, "NCAP"),
        (16, &blocks, "NUSE"),
        (24, &[0x12], "NSFEAT: own atomic units, optimal performance"),
        (25, &[0, 0, 0, 0, 0], "NLBAF, FLBAS, MC, DPC, DPS"),
        (30, &[1], "NMIC: shared"),
        (31, &[0, 0], "RESCAP, FPI"),
        (33, &[0x09], "DLFEAT: zeroes, Write Zeroes deallocates"),
        (34, &[0, 0], "NAWUN"),
        (36, &[0, 0], "NAWUPF"),
        (38, &15_u16.to_le_bytes(), "NACWU: 64 KiB"),
        (40, &[0; 8], "NABSN, NABO, NABSPF, NOIOB"),
        (48, &0x10_2030_4000_u128.to_le_bytes(), "NVMCAP"),
        (64, &[3, 0], "NPWG"),
        (66, &[3, 0], "NPWA"),
        (68, &[255, 0], "NPDG"),
        (70, &[255, 0], "NPDA"),
        (72, &[3, 0], "NOWS"),
        (74, &16384_u16.to_le_bytes(), "MSSRL: 64 MiB"),
        (76, &16384_u32.to_le_bytes(), "MCL: 64 MiB"),
        (80, &[127], "MSRC"),
        (92, &9_u32.to_le_bytes(), "ANAGRPID"),
        (99, &[0], "NSATTR"),
        (102, &[5, 0], "ENDGID"),
        (104, &[0; 24], "NGUID, EUI64"),
        (128, &[0, 0, 12, 0], "LBAF0: 4096 bytes, no metadata"),
    ];
    assert_fields(&bytes, fields);
    let allocated = [identify(0x11).nsid(5), identify(0x1b).nsid(5)].map(|cmd| get(&mut rig, session.admin, &cmd));
    assert_eq!(allocated, [bytes.clone(), bytes]);
    rig.wind_up();
}

#[test]
fn what_a_namespace_can_deallocate_is_told_as_far_as_it_can_be() {
    let cases = [
        (None, 0x00, 0, 0),
        (Some((1, 0, false)), 0x08, 0, 0),
        (Some((8, 0, true)), 0x09, 7, 7),
        (Some((8, 4, true)), 0x09, 7, 3),
        (Some((8, 3, true)), 0x09, 7, 0),
        (Some((65536, 0, true)), 0x09, 65535, 65535),
        (Some((1 << 20, 0, true)), 0x09, 65535, 65535),
    ];
    for (discard, dlfeat, npdg, npda) in cases {
        let mut namespace = namespace(1);
        namespace.info.discard = discard.map(|(granularity, alignment, reads_zeroes)| Discard {
            granularity,
            alignment,
            max_blocks: u32::MAX,
            reads_zeroes,
        });
        let mut rig = with_namespaces(vec![namespace]);
        let session = rig.session();
        let bytes = get(&mut rig, session.admin, &identify(0x00).nsid(1));
        let u16_at = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        assert_eq!((bytes[33], u16_at(68), u16_at(70)), (dlfeat, npdg, npda), "{discard:?}");
        rig.wind_up();
    }
}

#[test]
fn write_protection_is_told_wherever_it_comes_from() {
    for (own, of_volume) in [(false, false), (true, false), (false, true)] {
        let mut namespace = namespace(1);
        namespace.read_only = own;
        namespace.info.read_only = of_volume;
        let mut rig = with_namespaces(vec![namespace]);
        let session = rig.session();
        let expected = u8::from(own || of_volume);
        assert_eq!(get(&mut rig, session.admin, &identify(0x00).nsid(1))[99], expected);
        assert_eq!(get(&mut rig, session.admin, &identify(0x08).nsid(1))[8], expected);
        rig.wind_up();
    }
}

#[test]
fn what_is_used_cannot_be_told_through_an_inaccessible_path() {
    let states = [
        (AnaState::Optimized, BLOCKS),
        (AnaState::NonOptimized, BLOCKS),
        (AnaState::Change, BLOCKS),
        (AnaState::Inaccessible, 0),
        (AnaState::PersistentLoss, 0),
    ];
    for (state, used) in states {
        let mut config = config();
        config.subsystems[0].ana_groups.insert(1, AnaGroup { through: [(0, state)].into() });
        let mut rig = Rig::with(config);
        let session = rig.session();
        let bytes = get(&mut rig, session.admin, &identify(0x00).nsid(1));
        assert_eq!(bytes[..8], BLOCKS.to_le_bytes());
        assert_eq!(bytes[16..24], used.to_le_bytes(), "{state:?}");
        rig.wind_up();
    }
}

#[test]
fn command_set_independent_identify_namespace() {
    let mut namespace = namespace(5);
    namespace.info.rotation = Rotation::Rpm(7200);
    namespace.ana_group = 9;
    for (rotation, nsfeat) in [(Rotation::Rpm(7200), 0x10), (Rotation::NonRotating, 0), (Rotation::Unknown, 0)] {
        namespace.info.rotation = rotation;
        let mut rig = with_namespaces(vec![namespace.clone()]);
        let session = rig.session();
        let bytes = get(&mut rig, session.admin, &identify(0x08).nsid(5));
        assert_fields(
            &bytes,
            &[
                (0, &[nsfeat], "NSFEAT"),
                (1, &[1], "NMIC"),
                (2, &[0, 0], "RESCAP, FPI"),
                (4, &9_u32.to_le_bytes(), "ANAGRPID"),
                (8, &[0], "NSATTR"),
                (12, &[5, 0], "ENDGID"),
                (14, &[1], "NSTAT: ready"),
            ],
        );
        rig.wind_up();
    }
}

#[test]
fn namespace_identification_descriptors() {
    let mut rig = Rig::new();
    let session = rig.session();
    let bytes = get(&mut rig, session.admin, &identify(0x03).nsid(2));
    let fields: &[Field<'_>] =
        &[(0, &[3, 16], "NIDT, NIDL"), (4, &[2; 16], "UUID"), (20, &[4, 1], "NIDT, NIDL"), (24, &[0], "CSI")];
    assert_fields(&bytes, fields);
    for nsid in [0, 3, u32::MAX] {
        assert_eq!(rig.status(session.admin, &identify(0x03).nsid(nsid)), 0x00b, "{nsid:#x}");
    }
    rig.wind_up();
}

#[test]
fn what_is_particular_to_the_nvm_command_set() {
    let mut rig = Rig::new();
    let session = rig.session();
    assert_fields(&get(&mut rig, session.admin, &identify(0x06)), &[(1, &[13], "WZSL: 32 MiB")]);
    assert_fields(&get(&mut rig, session.admin, &identify(0x05).nsid(1)), &[]);
    for (cns, csi) in [(0x05, 1), (0x05, 2), (0x06, 2), (0x07, 1), (0x1a, 2), (0x1b, 0xff)] {
        let cmd = identify(cns).nsid(1).cdw(11, csi << 24);
        assert_eq!(rig.status(session.admin, &cmd), 0x002, "CNS {cns:#x} CSI {csi}");
    }
    rig.wind_up();
}

#[test]
fn io_command_sets() {
    let mut rig = Rig::new();
    let session = rig.session();
    for cntid in [0xffff, session.cntlid] {
        let cmd = identify(0x1c).u16(42, cntid);
        assert_fields(&get(&mut rig, session.admin, &cmd), &[(0, &[1], "the NVM command set")]);
    }
    assert_eq!(rig.status(session.admin, &identify(0x1c).u16(42, 99)), 0x002);
    rig.wind_up();
}

#[test]
fn lists_of_namespaces_begin_behind_the_one_that_is_named() {
    let mut rig = with_namespaces([7, 1, 900].map(namespace).into());
    let session = rig.session();
    for cns in [0x02, 0x07, 0x10, 0x1a] {
        for (after, expected) in [(0, vec![1, 7, 900]), (1, vec![7, 900]), (6, vec![7, 900]), (900, vec![])] {
            let list = get(&mut rig, session.admin, &identify(cns).nsid(after));
            assert_eq!(numbers(&list), expected, "{cns:#x} {after}");
            assert!(list[4 * expected.len()..].iter().all(|&b| b == 0));
        }
        for after in [u32::MAX - 1, u32::MAX] {
            assert_eq!(rig.status(session.admin, &identify(cns).nsid(after)), 0x00b);
        }
        assert_eq!(numbers(&get(&mut rig, session.admin, &identify(cns).nsid(u32::MAX - 2))), []);
    }
    rig.wind_up();
}

#[test]
fn a_list_has_as_many_namespaces_as_fit() {
    let mut config = config();
    config.limits.namespaces = 2000;
    config.subsystems[0].namespaces = (1..=1500).map(namespace).collect();
    let mut rig = Rig::with(config);
    let session = rig.session();
    let list = get(&mut rig, session.admin, &identify(0x02));
    assert_eq!(numbers(&list), (1..=1024).collect::<Vec<u32>>());
    let list = get(&mut rig, session.admin, &identify(0x02).nsid(1024));
    assert_eq!(numbers(&list), (1025..=1500).collect::<Vec<u32>>());
    let groups = get(&mut rig, session.admin, &identify(0x19));
    assert_eq!(groups[..6], [220, 5, 1, 0, 2, 0], "1500, 1, 2, ...");
    rig.wind_up();
}

#[test]
fn lists_of_controllers_and_endurance_groups_begin_with_the_one_that_is_named() {
    let mut rig = Rig::new();
    let session = rig.session();
    let other = rig.session();
    rig.discovery(0);
    assert_eq!((session.cntlid, other.cntlid), (1, 2));
    for cns in [0x12, 0x13] {
        let from = |cntid| identify(cns).nsid(1).u16(42, cntid);
        assert_fields(&get(&mut rig, session.admin, &from(0)), &[(0, &[2, 0, 1, 0, 2, 0], "both")]);
        assert_fields(&get(&mut rig, session.admin, &from(2)), &[(0, &[1, 0, 2, 0], "the second")]);
        assert_fields(&get(&mut rig, session.admin, &from(3)), &[]);
    }
    assert_fields(&get(&mut rig, session.admin, &identify(0x12).nsid(3)), &[]);
    let groups = |from| identify(0x19).cdw(11, from);
    assert_fields(&get(&mut rig, session.admin, &groups(0)), &[(0, &[2, 0, 1, 0, 2, 0], "both")]);
    assert_fields(&get(&mut rig, session.admin, &groups(2)), &[(0, &[1, 0, 2, 0], "the second")]);
    rig.wind_up();
}

#[test]
fn a_namespace_that_is_not_active_is_all_zeroes_and_one_that_cannot_be_is_invalid() {
    let mut rig = Rig::new();
    let session = rig.session();
    for cns in [0x00, 0x05, 0x08, 0x11, 0x1b] {
        for nsid in [3, 1024] {
            assert_fields(&get(&mut rig, session.admin, &identify(cns).nsid(nsid)), &[]);
        }
        for nsid in [0, 1025, u32::MAX] {
            assert_eq!(rig.status(session.admin, &identify(cns).nsid(nsid)), 0x00b, "{cns:#x} {nsid:#x}");
        }
    }
    rig.wind_up();
}

#[test]
fn structures_that_are_not_there_are_an_invalid_field() {
    let mut rig = Rig::new();
    let session = rig.session();
    let known = [0x00, 0x01, 0x02, 0x03, 0x05, 0x06, 0x07, 0x08, 0x10, 0x11, 0x12, 0x13, 0x19, 0x1a, 0x1b, 0x1c];
    for cns in 0..=255u8 {
        let expected = if known.contains(&cns) { 0x000 } else { 0x002 };
        assert_eq!(rig.status(session.admin, &identify(cns).nsid(1).u16(42, 0xffff)), expected, "{cns:#x}");
    }
    rig.wind_up();
}

#[test]
fn a_namespace_beyond_the_endurance_groups_is_in_none() {
    let mut config = TargetConfig { limits: Limits { namespaces: 70_000, ..Limits::default() }, ..config() };
    config.subsystems[0].namespaces = vec![namespace(65_535), namespace(65_536)];
    let mut rig = Rig::with(config);
    let session = rig.session();
    let mut group = |nsid| get(&mut rig, session.admin, &identify(0x00).nsid(nsid))[102..104].to_vec();
    assert_eq!((group(65_535), group(65_536)), (vec![0xff, 0xff], vec![0, 0]));
    rig.wind_up();
}
