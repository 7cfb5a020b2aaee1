//! Hostile and broken input, one test for each kind.

use super::*;

fn unmap_list(descriptors: &[(u64, u32)]) -> Vec<u8> {
    let len = (16 * descriptors.len()) as u16;
    let mut list = [&(len.wrapping_add(6)).to_be_bytes()[..], &len.to_be_bytes(), &[0; 4]].concat();
    for (lba, count) in descriptors {
        list.extend_from_slice(&lba.to_be_bytes());
        list.extend_from_slice(&count.to_be_bytes());
        list.extend_from_slice(&[0; 4]);
    }
    list
}

fn unmap(bench: &mut Bench, list: &[u8]) -> Ended {
    let len = (list.len() as u16).to_be_bytes();
    bench.write(&[0x42, 0, 0, 0, 0, 0, 0, len[0], len[1], 0], list)
}

#[test]
fn k01_unknown_operation_codes() {
    let mut bench = Bench::new();
    for opcode in [0x04, 0x1d, 0x48, 0x5e, 0x5f, 0x7f, 0x83, 0x84, 0x9c, 0xff] {
        assert_eq!(bench.none(&[opcode, 0, 0, 0, 0, 0]).code(), INVALID_OPCODE, "{opcode:02x}");
    }
    let ended = bench.none(&[0x9e, 0x1f, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!((ended.code(), ended.field()), (INVALID_FIELD_IN_CDB, (1, Some(4))), "unknown service action");
}

#[test]
fn k02_a_unit_that_is_not_there() {
    let mut bench = Bench::new();
    bench.lun[1] = 9;
    assert_eq!(bench.read(&[0x12, 0, 0, 0, 36, 0], 36).good().data[0], 0x7f);
    assert_eq!(bench.none(&[0; 6]).code(), (5, 0x25, 0));
    assert_eq!(bench.read(&[0xa0, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0], 16).code(), (5, 0x25, 0));
    let sense = bench.read(&[0x03, 0, 0, 0, 18, 0], 18).good().data;
    assert_eq!((sense[2], sense[12]), (5, 0x25));
    assert_eq!(bench.read(&[0x12, 1, 0x83, 0, 36, 0], 36).code(), INVALID_FIELD_IN_CDB);
}

#[test]
fn k03_a_lun_of_another_method_or_level_names_no_unit() {
    let mut bench = Bench::new();
    for lun in [[0xc0, 0, 0, 0, 0, 0, 0, 0], [0, 0, 0, 1, 0, 0, 0, 0], [0x80, 0, 0, 0, 0, 0, 0, 0]] {
        bench.lun = lun;
        assert_eq!(bench.none(&[0; 6]).code(), (5, 0x25, 0), "{lun:02x?}");
        assert!(!bench.device.unit_exists(lun));
    }
    bench.lun = [0x40, 0, 0, 0, 0, 0, 0, 0];
    bench.none(&[0; 6]).good();
}

#[test]
fn k05_a_transfer_longer_than_the_limit() {
    let mut config = unit(0);
    config.info.blocks = 1 << 40;
    let mut bench = Bench::with(config);
    let limit = 16384;
    for opcode in [0x88, 0x8a, 0x8b, 0x8e] {
        let ended = bench.run_as(ONE, &cdb16(opcode, 0, 0, limit + 1), &[0; 512], 512);
        assert_eq!((ended.code(), ended.field()), (INVALID_FIELD_IN_CDB, (10, None)), "{opcode:02x}");
    }
    assert_eq!(bench.write(&cdb16(0x8f, 2, 0, limit + 1), &[0; 512]).field(), (10, None));
    assert_eq!(bench.write(&cdb10(0x2a, 0, 0, limit as u16 + 1), &[0; 512]).field(), (7, None));
    assert_eq!(bench.ops, []);
}

#[test]
fn k09_protection_without_protection_information() {
    let mut bench = Bench::new();
    for opcode in [0x28, 0x2a, 0x2e, 0x2f, 0x41, 0x88, 0x89, 0x8a, 0x8b, 0x8e, 0x8f, 0x93, 0xa8, 0xaa, 0xae, 0xaf] {
        let mut cdb = [0; 16];
        (cdb[0], cdb[1]) = (opcode, 0x20);
        let ended = bench.write(&cdb, &[0; 512]);
        assert_eq!((ended.code(), ended.field()), (INVALID_FIELD_IN_CDB, (1, Some(5))), "{opcode:02x}");
    }
}

#[test]
fn k10_reserved_bits_and_naca() {
    let mut bench = Bench::new();
    assert_eq!(bench.none(&[0, 0, 0, 0, 0, 0x04]).field(), (5, Some(2)), "NACA");
    assert_eq!(bench.none(&[0, 0x80, 0, 0, 0, 0]).field(), (1, Some(7)));
    assert_eq!(bench.read(&[0x25, 0, 0, 0, 0, 0, 0, 0, 1, 0], 8).field(), (8, Some(0)), "PMI");
    let mut read_16 = cdb16(0x88, 0, 0, 1);
    read_16[14] = 0x7f;
    assert_eq!(bench.read(&read_16, 512).field(), (14, Some(6)));
}

#[test]
fn k12_synchronize_cache_out_of_range_flushes_nothing() {
    let mut bench = Bench::new();
    assert_eq!(bench.none(&cdb10(0x35, 0x02, BLOCKS as u32, 1)).code(), LBA_OUT_OF_RANGE);
    assert_eq!(bench.none(&cdb16(0x91, 0, u64::MAX, 1)).code(), LBA_OUT_OF_RANGE);
    assert_eq!(bench.ops, []);
}

#[test]
fn k14_s22_unmap_is_checked_as_a_whole_before_anything_happens() {
    let mut bench = Bench::new();
    let good = (0, 8);
    assert_eq!(unmap(&mut bench, &unmap_list(&[good, (u64::MAX, 2)])).code(), LBA_OUT_OF_RANGE, "wraps");
    assert_eq!(unmap(&mut bench, &unmap_list(&[good, (BLOCKS, 1)])).code(), LBA_OUT_OF_RANGE);
    assert_eq!(unmap(&mut bench, &unmap_list(&[(0, 1); 257])).code(), INVALID_FIELD_IN_LIST);
    assert_eq!(unmap(&mut bench, &unmap_list(&[(0, 1); 4000])).code(), INVALID_FIELD_IN_LIST);
    let mut list = unmap_list(&[good]);
    list[3] = 17;
    assert_eq!(unmap(&mut bench, &list).field(), (2, None), "BLOCK DESCRIPTOR DATA LENGTH beyond the list");
    assert_eq!(bench.ops, []);
    unmap(&mut bench, &unmap_list(&[])).good();
    bench.none(&[0x42, 0, 0, 0, 0, 0, 0, 0, 0, 0]).good();
    assert_eq!(unmap(&mut bench, &[0; 7]).code(), PARAMETER_LIST_LENGTH);
    assert_eq!(
        bench.write(&[0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0], &[0; 8]).code(),
        PARAMETER_LIST_LENGTH,
        "fewer offered"
    );
    assert_eq!(bench.write(&[0x42, 1, 0, 0, 0, 0, 0, 0, 8, 0], &[0; 8]).field(), (1, Some(0)), "ANCHOR");
    assert_eq!(bench.ops, []);
}

#[test]
fn k14_unmap_of_more_blocks_than_the_limit() {
    let mut config = unit(0);
    config.info.blocks = 1 << 40;
    let mut bench = Bench::with(config);
    let ended = unmap(&mut bench, &unmap_list(&[(0, 1 << 19), (1 << 30, (1 << 19) + 1)]));
    assert_eq!((ended.code(), ended.field()), (INVALID_FIELD_IN_LIST, (32, None)));
    assert_eq!(bench.ops, []);
}

#[test]
fn unmap_ignores_an_incomplete_descriptor_at_the_end() {
    let mut bench = Bench::new();
    let mut list = unmap_list(&[(8, 8)]);
    list.extend_from_slice(&[0xff; 10]);
    list[3] += 10;
    unmap(&mut bench, &list).good();
    assert_eq!(bench.ops, [Op::Unmap { lba: Lba(8), count: BlockCount(8) }]);
}

#[test]
fn k15_s23_write_same_limits_and_data_lengths() {
    let mut config = unit(0);
    config.info.blocks = 1 << 40;
    let mut bench = Bench::with(config);
    let block = [0; BLOCK];
    assert_eq!(bench.write(&cdb16(0x93, 0, 0, 65536), &block).field(), (10, None), "MAXIMUM WRITE SAME LENGTH");
    assert_eq!(bench.write(&cdb16(0x93, 0, 0, 0), &block).field(), (10, None), "all of a large volume");
    assert_eq!(bench.write(&cdb10(0x41, 0, 0, 0), &block).field(), (7, None));
    for offered in [0, 1, 511, 513, 1024] {
        let ended = bench.write(&cdb16(0x93, 0x08, 0, 8), &vec![0; offered]);
        assert_eq!(ended.code(), WRONG_DATA_LENGTH, "{offered}");
    }
    assert_eq!(bench.write(&cdb16(0x93, 0x10, 0, 8), &block).field(), (1, Some(4)), "ANCHOR");
    assert_eq!(bench.write(&cdb16(0x93, 0x18, 0, 8), &block).field(), (1, Some(4)), "UNMAP and ANCHOR");
    assert_eq!(bench.write(&cdb10(0x41, 0x01, 0, 8), &block).field(), (1, Some(0)), "WRITE SAME(10) has no NDOB");
    assert_eq!(bench.ops, []);
}

#[test]
fn k16_compare_and_write_limits_and_data_lengths() {
    let mut bench = Bench::new();
    let mut cdb = cdb16(0x89, 0, 0, 0);
    for (blocks, offered, code) in [
        (1, 1023, WRONG_DATA_LENGTH),
        (1, 2048, WRONG_DATA_LENGTH),
        (3, 2048, WRONG_DATA_LENGTH),
        (0, 2 * 256 * BLOCK, INVALID_FIELD_IN_CDB),
    ] {
        cdb[13] = blocks;
        assert_eq!(bench.write(&cdb, &vec![0; offered]).code(), code, "{blocks} blocks, {offered} bytes");
    }
    cdb[13] = 0;
    bench.write(&cdb, &[0; BLOCK]).good();
    cdb[2] = 0xff;
    cdb[13] = 1;
    assert_eq!(bench.write(&cdb, &[0; 2 * BLOCK]).code(), LBA_OUT_OF_RANGE);
    assert_eq!(bench.ops, []);
    let mut config = unit(0);
    (config.info.block_size, config.info.physical_block) = (65536, 65536);
    let mut bench = Bench::with(config);
    let mut cdb = cdb16(0x89, 0, 0, 0);
    cdb[13] = 17;
    assert_eq!(bench.write(&cdb, &[0; 512]).field(), (13, None), "more than the limit of this block size");
}

#[test]
fn k20_report_luns_of_an_unknown_selection() {
    let mut bench = Bench::new();
    for select in [0x03, 0x0f, 0x12, 0xff] {
        let ended = bench.read(&[0xa0, 0, select, 0, 0, 0, 0, 0, 16, 0, 0, 0], 16);
        assert_eq!((ended.code(), ended.field()), (INVALID_FIELD_IN_CDB, (2, None)));
    }
}

#[test]
fn k21_inquiry_of_what_is_not_there_and_of_no_bytes() {
    let mut bench = Bench::new();
    assert_eq!(bench.read(&[0x12, 1, 0xc0, 0, 255, 0], 255).field(), (2, None));
    assert_eq!(bench.read(&[0x12, 0, 0x80, 0, 255, 0], 255).field(), (2, None));
    assert_eq!(bench.read(&[0x12, 2, 0, 0, 255, 0], 255).field(), (1, Some(1)), "CMDDT is obsolete");
    let ended = bench.read(&[0x12, 0, 0, 0, 0, 0], 255).good();
    assert_eq!((ended.data.len(), ended.in_transfer), (0, 0));
}

#[test]
fn k24_no_space_is_what_linux_takes_for_no_space() {
    let mut bench = Bench::new();
    bench.fail_next = Some(Status::NoSpace);
    assert_eq!(bench.write(&cdb10(0x2a, 0, 0, 1), &[1; 512]).code(), (7, 0x27, 7));
}

#[test]
fn k28_the_aca_attribute_is_refused() {
    let mut bench = Bench::new();
    let command = Command { lun: LUN0, cdb: &[0; 16], attribute: Attribute::Aca, out_len: 0, in_len: 0 };
    let (_task, step) = bench.device.start(ONE, command, &mut bench.pool);
    let Step::Reply(reply) = step else { panic!("{step:?}") };
    assert_eq!(bench.end(reply).code(), INVALID_FIELD_IN_CDB);
}

#[test]
fn s24_extended_copy_is_no_deputy() {
    let mut bench = Bench::new();
    let cdb = [0x83, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 0, 0];
    assert_eq!(bench.write(&cdb, &[0xff; 255]).code(), INVALID_OPCODE);
}

#[test]
fn s25_supported_opcodes_of_an_impossible_service_action() {
    let mut bench = Bench::new();
    let data = bench.read(&[0xa3, 0x0c, 0x03, 0x9e, 0xff, 0xff, 0, 0, 1, 0, 0, 0], 256).good().data;
    assert_eq!(data, [0, 1, 0, 0]);
    let data = bench.read(&[0xa3, 0x0c, 0x03, 0x28, 0, 1, 0, 0, 1, 0, 0, 0], 256).good().data;
    assert_eq!(data, [0, 1, 0, 0]);
    for option in 4..8 {
        assert_eq!(bench.read(&[0xa3, 0x0c, option, 0x28, 0, 0, 0, 0, 1, 0, 0, 0], 256).field(), (2, Some(2)));
    }
}

#[test]
fn s30_no_answer_holds_what_an_earlier_one_left() {
    let mut bench = Bench::new();
    let cdbs: [&[u8]; 8] = [
        &[0x12, 0, 0, 0xff, 0xff, 0],
        &[0x12, 1, 0x83, 0xff, 0xff, 0],
        &[0x12, 1, 0xb0, 0xff, 0xff, 0],
        &[0x03, 0, 0, 0, 0xff, 0],
        &[0x1a, 0, 0x3f, 0xff, 0xff, 0],
        &[0x37, 0, 0x18, 0, 0, 0, 0, 0xff, 0xff, 0],
        &[0xa0, 0, 2, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0],
        &[0xa3, 0x0c, 0x80, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0],
    ];
    for cdb in cdbs {
        let data = bench.read(cdb, u32::MAX).good().data;
        assert!(!data.contains(&0xa5), "{cdb:02x?}: {data:02x?}");
    }
}

#[test]
fn a_short_cdb_is_padded_and_a_long_one_is_cut() {
    let mut bench = Bench::new();
    bench.none(&[]).good();
    bench.none(&[0; 260]).good();
}
