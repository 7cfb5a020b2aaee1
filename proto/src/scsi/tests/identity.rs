//! Golden bytes of what the device says of itself: INQUIRY, VPD pages, capacity, LUNs, operation codes.

use super::*;

fn vpd(bench: &mut Bench, page: u8) -> Vec<u8> {
    bench.read(&[0x12, 1, page, 4, 0, 0], 1024).good().data
}

#[test]
fn standard_inquiry_spc4_6_6_2() {
    let data = Bench::new().read(&[0x12, 0, 0, 0, 255, 0], 255).good().data;
    assert_eq!(data.len(), 96);
    assert_eq!(data[..8], [0x00, 0x00, 0x06, 0x12, 91, 0, 0, 0x02]);
    assert_eq!(&data[8..36], b"PLATTER VIRTUAL DISK    0.1 ");
    assert_eq!(data[58..66], [0x00, 0xa0, 0x09, 0x60, 0x04, 0x60, 0x04, 0xc0], "SAM-5, iSCSI, SPC-4, SBC-3");
    assert!(data[36..58].iter().chain(&data[66..]).all(|&b| b == 0));
}

#[test]
fn standard_inquiry_byte_1_rmb_of_a_removable_unit() {
    let mut bench = Bench::with(UnitConfig { removable: true, ..unit(0) });
    assert_eq!(bench.read(&[0x12, 0, 0, 0, 36, 0], 36).good().data[1], 0x80);
}

#[test]
fn vpd_00_lists_exactly_the_pages_that_can_be_read() {
    let mut bench = Bench::new();
    let pages = vpd(&mut bench, 0x00);
    assert_eq!(pages, [0x00, 0x00, 0, 7, 0x00, 0x80, 0x83, 0x86, 0xb0, 0xb1, 0xb2]);
    for page in 0..=255 {
        let ended = bench.read(&[0x12, 1, page, 1, 0, 0], 256);
        assert_eq!(ended.status == ScsiStatus::GOOD, pages[4..].contains(&page), "page {page:02x}");
    }
}

#[test]
fn vpd_80_unit_serial_number() {
    assert_eq!(vpd(&mut Bench::new(), 0x80), *b"\x00\x80\x00\x08P1234567");
}

#[test]
fn vpd_83_designators_of_unit_port_and_device() {
    let data = vpd(&mut Bench::new(), 0x83);
    let mut rest = &data[4..];
    let mut designators = Vec::new();
    while !rest.is_empty() {
        let len = usize::from(rest[3]);
        designators.push((rest[0], rest[1], rest[4..4 + len].to_vec()));
        rest = &rest[4 + len..];
    }
    let naa = [0x30, 1, 2, 3, 4, 5, 6, 7];
    let expected: [(u8, u8, &[u8]); 6] = [
        (0x01, 0x03, &naa),
        (0x02, 0x01, b"PLATTER P1234567"),
        (0x03, 0x08, b"naa.3001020304050607\0\0\0\0"),
        (0x51, 0x94, &[0, 0, 0, 1]),
        (0x53, 0x98, b"iqn.2026-01.net.example:t,t,0x0001\0\0"),
        (0x53, 0xa8, b"iqn.2026-01.net.example:t\0\0\0"),
    ];
    for (got, (code_set, kind, bytes)) in designators.iter().zip(expected) {
        assert_eq!(*got, (code_set, kind, bytes.to_vec()));
    }
    assert_eq!(designators.len(), expected.len());
    assert_eq!(usize::from(u16::from_be_bytes([data[2], data[3]])), data.len() - 4);
}

#[test]
fn vpd_86_byte_5_task_attributes_and_byte_6_volatile_cache() {
    let data = vpd(&mut Bench::new(), 0x86);
    assert_eq!((data.len(), data[3], data[5], data[6]), (64, 0x3c, 0x07, 0x01));
}

#[test]
fn vpd_b0_block_limits_sbc3_6_6_3() {
    let data = vpd(&mut Bench::new(), 0xb0);
    assert_eq!((data.len(), data[3]), (64, 0x3c));
    assert_eq!(data[4..8], [0, 255, 0, 8], "WSNZ, MAXIMUM COMPARE AND WRITE LENGTH, GRANULARITY");
    assert_eq!(data[8..12], 16384u32.to_be_bytes(), "MAXIMUM TRANSFER LENGTH");
    assert_eq!(data[20..24], (1u32 << 20).to_be_bytes(), "MAXIMUM UNMAP LBA COUNT");
    assert_eq!(data[24..28], 256u32.to_be_bytes(), "MAXIMUM UNMAP BLOCK DESCRIPTOR COUNT");
    assert_eq!(data[28..32], 8u32.to_be_bytes(), "OPTIMAL UNMAP GRANULARITY");
    assert_eq!(data[32..36], [0x80, 0, 0, 0], "UGAVALID, UNMAP GRANULARITY ALIGNMENT");
    assert_eq!(data[36..44], 65535u64.to_be_bytes(), "MAXIMUM WRITE SAME LENGTH");
    assert!(data[44..].iter().all(|&b| b == 0));
}

#[test]
fn vpd_b1_bytes_4_and_5_medium_rotation_rate() {
    for (rotation, rate) in [
        (Rotation::Rpm(7200), 7200u16),
        (Rotation::NonRotating, 1),
        (Rotation::Unknown, 0),
        (Rotation::Rpm(1), 0),
        (Rotation::Rpm(0xffff), 0),
    ] {
        let mut config = unit(0);
        config.info.rotation = rotation;
        let data = vpd(&mut Bench::with(config), 0xb1);
        assert_eq!((data.len(), &data[4..6], data[8]), (64, &rate.to_be_bytes()[..], 0), "{rotation:?}");
    }
}

#[test]
fn vpd_b2_and_read_capacity_16_tell_of_deallocation_only_if_the_disks_can() {
    let mut thin = Bench::new();
    assert_eq!(vpd(&mut thin, 0xb2), [0x00, 0xb2, 0, 4, 0, 0xe4, 0x02, 0]);
    let mut config = unit(0);
    config.info.discard = None;
    let mut thick = Bench::with(config);
    assert_eq!(vpd(&mut thick, 0xb2), [0x00, 0xb2, 0, 4, 0, 0, 0, 0]);
    assert!(vpd(&mut thick, 0xb0)[20..36].iter().all(|&b| b == 0), "unmap limits");
    assert_eq!(thick.write(&[0x42, 0, 0, 0, 0, 0, 0, 0, 8, 0], &[0; 8]).code(), INVALID_OPCODE);
    let same = thick.write(&cdb16(0x93, 0x08, 0, 1), &[0; BLOCK]);
    assert_eq!((same.code(), same.field()), (INVALID_FIELD_IN_CDB, (1, Some(3))), "WRITE SAME with UNMAP");
}

#[test]
fn read_capacity_10_saturates() {
    let mut bench = Bench::new();
    let data = bench.read(&[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0], 8).good().data;
    assert_eq!(data, [0, 0, 0x0f, 0xff, 0, 0, 2, 0]);
    let mut config = unit(0);
    config.info.blocks = 1 << 33;
    let data = Bench::with(config).read(&[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0], 8).good().data;
    assert_eq!(data, [0xff, 0xff, 0xff, 0xff, 0, 0, 2, 0]);
}

#[test]
fn read_capacity_16_sbc3_5_16_exponent_lbpme_lbprz() {
    let mut cdb = [0; 16];
    (cdb[0], cdb[1], cdb[13]) = (0x9e, 0x10, 32);
    let data = Bench::new().read(&cdb, 32).good().data;
    assert_eq!(data.len(), 32);
    assert_eq!(data[..16], [0, 0, 0, 0, 0, 0, 0x0f, 0xff, 0, 0, 2, 0, 0, 3, 0xc0, 0]);
    assert!(data[16..].iter().all(|&b| b == 0));
}

#[test]
fn block_sizes_512n_512e_4kn_have_their_exponents_and_limits() {
    for (logical, physical, exponent, transfer, compare) in [
        (512, 512, 0, 16384u32, 255),
        (512, 4096, 3, 16384, 255),
        (4096, 4096, 0, 2048, 255),
        (65536, 65536, 0, 128, 16),
    ] {
        let mut config = unit(0);
        (config.info.block_size, config.info.physical_block) = (logical, physical);
        let mut bench = Bench::with(config);
        let mut cdb = [0; 16];
        (cdb[0], cdb[1], cdb[13]) = (0x9e, 0x10, 32);
        assert_eq!(bench.read(&cdb, 32).good().data[13], exponent);
        let limits = vpd(&mut bench, 0xb0);
        assert_eq!((&limits[8..12], limits[5]), (&transfer.to_be_bytes()[..], compare));
    }
}

#[test]
fn p13_report_luns_with_every_allocation_length_tells_the_full_length() {
    let mut bench = Bench::with_units(vec![unit(3), unit(0), unit(300)]);
    let full = [
        &[0u8, 0, 0, 24, 0, 0, 0, 0][..],
        &[0, 0, 0, 0, 0, 0, 0, 0],
        &[0, 3, 0, 0, 0, 0, 0, 0],
        &[0x41, 0x2c, 0, 0, 0, 0, 0, 0],
    ]
    .concat();
    for len in 0..=64u32 {
        let mut cdb = [0; 12];
        cdb[0] = 0xa0;
        cdb[6..10].copy_from_slice(&len.to_be_bytes());
        let ended = bench.read(&cdb, 64).good();
        assert_eq!(ended.data, full[..full.len().min(len as usize)]);
        assert_eq!(ended.in_transfer, ended.data.len() as u64);
    }
}

#[test]
fn report_luns_select_report() {
    let mut bench = Bench::with_units(vec![unit(1)]);
    let mut luns = |select: u8| {
        let data = bench.read(&[0xa0, 0, select, 0, 0, 0, 0, 0, 1, 0, 0, 0], 256).good().data;
        data[8..].chunks(8).map(|lun| [lun[0], lun[1]]).collect::<Vec<_>>()
    };
    assert_eq!(luns(0x00), [[0, 1]]);
    assert_eq!(luns(0x01), [[0xc1, 0x01]]);
    assert_eq!(luns(0x02), [[0, 1], [0xc1, 0x01]]);
    assert_eq!(luns(0x10), Vec::<[u8; 2]>::new());
    assert_eq!(luns(0x11), [[0, 1]]);
}

#[test]
fn p25_lun_0_answers_inquiry_and_report_luns_even_if_no_unit_is_there() {
    let mut bench = Bench::with_units(vec![unit(1)]);
    assert_eq!(bench.read(&[0x12, 0, 0, 0, 36, 0], 36).good().data[0], 0x7f);
    assert_eq!(bench.read(&[0xa0, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0], 16).good().data.len(), 16);
    assert_eq!(bench.none(&[0; 6]).code(), (5, 0x25, 0));
    assert!(!bench.device.unit_exists(LUN0));
}

#[test]
fn the_report_luns_well_known_unit_answers() {
    let mut bench = Bench::new();
    bench.lun = [0xc1, 0x01, 0, 0, 0, 0, 0, 0];
    assert!(bench.device.unit_exists(bench.lun));
    assert_eq!(bench.read(&[0x12, 0, 0, 0, 36, 0], 36).good().data[0], 0x1e);
    assert_eq!(vpd(&mut bench, 0x00), [0x1e, 0, 0, 2, 0x00, 0x83]);
    assert_eq!(vpd(&mut bench, 0x83)[..2], [0x1e, 0x83]);
    assert_eq!(bench.read(&[0xa0, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0], 16).good().data.len(), 16);
    bench.none(&[0; 6]).good();
    assert_eq!(bench.read(&cdb10(0x28, 0, 0, 1), 512).code(), INVALID_OPCODE);
}

#[test]
fn supported_opcodes_one_command_reports_usage_data_and_service_actions_in_place() {
    let mut bench = Bench::new();
    let data = bench.read(&[0xa3, 0x0c, 0x01, 0x28, 0, 0, 0, 0, 1, 0, 0, 0], 256).good().data;
    assert_eq!(data, [0, 3, 0, 10, 0x28, 0x18, 0xff, 0xff, 0xff, 0xff, 0x3f, 0xff, 0xff, 0]);
    let data = bench.read(&[0xa3, 0x0c, 0x82, 0x9e, 0, 0x10, 0, 0, 1, 0, 0, 0], 256).good().data;
    assert_eq!(data[..6], [0, 0x83, 0, 16, 0x9e, 0x10]);
    assert_eq!(data[20..], [0, 0x0a, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], "RCTD: the timeouts descriptor");
}

#[test]
fn supported_opcodes_all_lists_what_one_command_confirms() {
    let mut bench = Bench::new();
    let all = bench.read(&[0xa3, 0x0c, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0], 65535).good().data;
    assert_eq!(u32::from_be_bytes(all[..4].try_into().unwrap()) as usize, all.len() - 4);
    assert!(all.len() > 4 + 40 * 8);
    for entry in all[4..].chunks(8) {
        let option = if entry[5] & 1 != 0 { 0x02 } else { 0x01 };
        let one = bench.read(&[0xa3, 0x0c, option, entry[0], entry[2], entry[3], 0, 0, 1, 0, 0, 0], 256).good().data;
        assert_eq!((one[1], one[3], one[4]), (3, entry[7], entry[0]));
        let wrong = 0x03 - option;
        let ended = bench.read(&[0xa3, 0x0c, wrong, entry[0], entry[2], entry[3], 0, 0, 1, 0, 0, 0], 256);
        assert_eq!(ended.code(), INVALID_FIELD_IN_CDB, "{entry:02x?}");
    }
    let with_timeouts = bench.read(&[0xa3, 0x0c, 0x80, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0], 65535).good().data;
    assert_eq!(with_timeouts.len() - 4, (all.len() - 4) / 8 * 20);
}

#[test]
fn supported_task_management_functions() {
    let mut bench = Bench::new();
    assert_eq!(bench.read(&[0xa3, 0x0d, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0], 4).good().data, [0xda, 0, 0, 0]);
    let extended = bench.read(&[0xa3, 0x0d, 0x80, 0, 0, 0, 0, 0, 0, 64, 0, 0], 64).good().data;
    assert_eq!((extended.len(), extended[0], extended[3]), (16, 0xda, 0x0c));
}

#[test]
fn get_lba_status_reports_extents_from_the_lba_on() {
    let mut bench = Bench::new();
    bench.mapped[100..110].fill(true);
    let mut cdb = [0; 16];
    (cdb[0], cdb[1], cdb[9], cdb[13]) = (0x9e, 0x12, 104, 64);
    let data = bench.read(&cdb, 64).good().data;
    assert_eq!(data[..8], [0, 0, 0, 36, 0, 0, 0, 0]);
    assert_eq!(data[8..24], [0, 0, 0, 0, 0, 0, 0, 104, 0, 0, 0, 6, 0, 0, 0, 0]);
    assert_eq!(data[24..40], [0, 0, 0, 0, 0, 0, 0, 110, 0, 0, 0x0f, 0x92, 1, 0, 0, 0]);
}

#[test]
fn get_lba_status_of_a_volume_that_knows_nothing_of_allocation_is_mapped() {
    let mut bench = Bench::new();
    bench.fail_next = Some(Status::Unsupported);
    let mut cdb = [0; 16];
    (cdb[0], cdb[1], cdb[13]) = (0x9e, 0x12, 24);
    let data = bench.read(&cdb, 24).good().data;
    assert_eq!(data[16..], [0, 0, 0x10, 0, 0, 0, 0, 0]);
}
