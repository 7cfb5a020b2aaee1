//! Commands on blocks: what the volume is asked, what ends up on the medium, what the residual figures are.

use super::*;

const READS: [u8; 3] = [0x28, 0xa8, 0x88];
const WRITES: [u8; 3] = [0x2a, 0xaa, 0x8a];

/// READ or WRITE of any length of CDB.
fn cdb(opcode: u8, flags: u8, lba: u32, count: u8) -> Vec<u8> {
    match opcode >> 5 {
        0 => vec![opcode, 0, (lba >> 8) as u8, lba as u8, count, 0],
        1 => cdb10(opcode, flags, lba, u16::from(count)).to_vec(),
        5 => [&[opcode, flags][..], &lba.to_be_bytes(), &[0, 0, 0, count, 0, 0]].concat(),
        _ => cdb16(opcode, flags, u64::from(lba), u32::from(count)).to_vec(),
    }
}

fn pattern(blocks: usize, seed: u8) -> Vec<u8> {
    (0..blocks * BLOCK).map(|i| (i / 3) as u8 ^ seed).collect()
}

#[test]
fn what_is_written_by_any_write_is_read_by_any_read() {
    let mut bench = Bench::new();
    for (i, write) in [0x0a].into_iter().chain(WRITES).enumerate() {
        let data = pattern(3, i as u8);
        let ended = bench.write(&cdb(write, 0, 40, 3), &data).good();
        assert_eq!((ended.out_transfer, ended.in_transfer), (3 * 512, 0));
        for read in [0x08].into_iter().chain(READS) {
            let ended = bench.read(&cdb(read, 0, 40, 3), 3 * 512).good();
            assert_eq!(ended.data, data);
            assert_eq!((ended.out_transfer, ended.in_transfer), (0, 3 * 512));
        }
    }
}

#[test]
fn fua_reaches_the_volume_and_dpo_is_a_hint() {
    let mut bench = Bench::new();
    for (flags, fua) in [(0x00, false), (0x08, true), (0x10, false), (0x18, true)] {
        for write in WRITES {
            bench.write(&cdb(write, flags, 0, 1), &pattern(1, 0)).good();
            let Some(Op::Write { fua: asked, .. }) = bench.ops.pop() else { panic!() };
            assert_eq!(asked, fua, "{write:02x} {flags:02x}");
        }
        for read in READS {
            bench.read(&cdb(read, flags, 0, 1), 512).good();
        }
    }
}

#[test]
fn k06_read_residuals_follow_the_cdb_whatever_the_initiator_expects() {
    let mut bench = Bench::new();
    for read in READS {
        for (count, in_len, sent, ops) in
            [(1, 0, 0, 0), (1, 10000, 512, 1), (1, 200, 512, 1), (2, 512, 512, 1), (3, 513, 1024, 1), (0, 512, 0, 0)]
        {
            bench.ops.clear();
            let ended = bench.read(&cdb(read, 0, 0, count), in_len).good();
            assert_eq!(ended.in_transfer, u64::from(count) * 512);
            assert_eq!(ended.data.len(), sent, "{count} blocks, {in_len} expected");
            assert_eq!(bench.ops.len(), ops);
        }
    }
}

#[test]
fn k06_write_residuals_follow_the_cdb_and_only_whole_offered_blocks_are_written() {
    for opcode in WRITES.into_iter().chain([0x2e, 0xae, 0x8e]) {
        for (count, offered, written) in
            [(1, 0, 0), (1, 10000, 1), (1, 200, 0), (2, 512, 1), (2, 1000, 1), (1, 1024, 1)]
        {
            let mut bench = Bench::new();
            bench.medium.fill(b'a');
            let ended = bench.write(&cdb(opcode, 0, 5, count), &vec![b'b'; offered]).good();
            assert_eq!(ended.out_transfer, u64::from(count) * 512, "{opcode:02x}");
            let at = 5 * BLOCK;
            assert!(bench.medium[at..at + written * BLOCK].iter().all(|&b| b == b'b'));
            assert_eq!(bench.medium.iter().filter(|&&b| b == b'b').count(), written * BLOCK);
        }
    }
}

#[test]
fn k08_a_read_flagged_as_a_write_asks_for_no_data_and_reports_what_it_had_to_send() {
    let mut bench = Bench::new();
    let ended = bench.write(&cdb10(0x28, 0, 0, 1), &[1; 512]).good();
    assert_eq!((ended.out_transfer, ended.in_transfer), (0, 512));
    let ended = bench.read(&cdb10(0x2a, 0, 0, 1), 512).good();
    assert_eq!((ended.out_transfer, ended.in_transfer), (512, 0));
    assert_eq!(bench.ops, [], "nothing read, nothing written");
}

#[test]
fn zero_blocks_are_good_up_to_the_end_and_out_of_range_beyond() {
    let mut bench = Bench::new();
    for opcode in [0x28, 0x2a, 0x2e, 0x2f, 0x34, 0x35, 0x88, 0x8a, 0x8b, 0x8e, 0x8f, 0x90, 0x91, 0xa8, 0xaa, 0xae, 0xaf]
    {
        bench.none(&cdb(opcode, 0, BLOCKS as u32, 0)).good();
        assert_eq!(bench.none(&cdb(opcode, 0, BLOCKS as u32 + 1, 0)).code(), LBA_OUT_OF_RANGE, "{opcode:02x}");
        assert_eq!(bench.none(&cdb(opcode, 0, u32::MAX, 0)).code(), LBA_OUT_OF_RANGE);
    }
}

#[test]
fn no_command_reaches_beyond_the_end() {
    let mut bench = Bench::new();
    let out = pattern(2, 0);
    for opcode in [0x28, 0x2a, 0x2e, 0x2f, 0x34, 0x35, 0x88, 0x8a, 0x8b, 0x8e, 0x8f, 0x90, 0x91, 0xa8, 0xaa, 0xae, 0xaf]
    {
        let ended = bench.run_as(ONE, &cdb(opcode, 0, BLOCKS as u32 - 1, 2), &out, 1024);
        assert_eq!(ended.code(), LBA_OUT_OF_RANGE, "{opcode:02x}");
        assert_eq!((ended.out_transfer, ended.in_transfer), (0, 0), "a refused command moves nothing");
    }
    for opcode in [0x88, 0x8a, 0x8b, 0x8e, 0x8f, 0x90, 0x91, 0x93] {
        let ended = bench.run_as(ONE, &cdb16(opcode, 0, u64::MAX, 2), &out[..512], 1024);
        assert_eq!(ended.code(), LBA_OUT_OF_RANGE, "{opcode:02x}: the range wraps");
    }
    assert_eq!(bench.ops, []);
}

#[test]
fn verify_with_data_tells_where_the_medium_differs() {
    let mut bench = Bench::new();
    let data = pattern(4, 7);
    bench.write(&cdb16(0x8a, 0, 8, 4), &data).good();
    for opcode in [0x2f, 0xaf, 0x8f] {
        bench.write(&cdb(opcode, 0x02, 8, 4), &data).good();
        let mut wrong = data.clone();
        wrong[1300] ^= 1;
        let ended = bench.write(&cdb(opcode, 0x02, 8, 4), &wrong);
        assert_eq!((ended.code(), ended.information()), ((0xe, 0x1d, 0), Some(1300)));
        let ended = bench.write(&cdb(opcode, 0x00, 8, 4), &wrong).good();
        assert_eq!(ended.out_transfer, 0, "BYTCHK 00b: the data are not asked for");
    }
}

#[test]
fn verify_with_one_block_compares_each_block_with_it() {
    let mut bench = Bench::new();
    let block = pattern(1, 3);
    for lba in 0..5000 / 512 {
        bench.store(Lba(lba), &block, true);
    }
    bench.write(&cdb16(0x8f, 0x06, 0, 9), &block).good();
    bench.medium[3 * BLOCK + 17] ^= 0x80;
    let ended = bench.write(&cdb16(0x8f, 0x06, 0, 9), &block);
    assert_eq!((ended.code(), ended.information()), ((0xe, 0x1d, 0), Some(3 * 512 + 17)));
    assert_eq!(ended.out_transfer, 512);
}

#[test]
fn verify_reads_a_long_range_in_pieces_of_bounded_size() {
    let mut bench = Bench::new();
    bench.none(&cdb16(0x8f, 0, 0, BLOCKS as u32)).good();
    let mut next = 0;
    for op in &bench.ops {
        let Op::Read { lba, count, .. } = *op else { panic!("{op:?}") };
        assert_eq!(lba.0, next);
        assert!(count.0 <= 2048);
        next += u64::from(count.0);
    }
    assert_eq!(next, BLOCKS);
    bench.medium[3000 * BLOCK] = 1;
    let ended = bench.write(&cdb16(0x8f, 0x06, 0, BLOCKS as u32), &[0; BLOCK]);
    assert_eq!(ended.information(), Some(3000 * 512), "offset over pieces");
}

#[test]
fn verify_with_less_data_than_it_needs_is_refused() {
    let mut bench = Bench::new();
    for (flags, count) in [(0x02, 2), (0x06, 2)] {
        let ended = bench.write(&cdb10(0x2f, flags, 0, count), &[0; 511]);
        assert_eq!(ended.code(), WRONG_DATA_LENGTH);
    }
    assert_eq!(bench.write(&cdb10(0x2f, 0x04, 0, 1), &[0; 512]).field(), (1, Some(2)), "BYTCHK 10b");
    assert_eq!(bench.ops, []);
}

#[test]
fn write_and_verify_writes_to_the_medium_then_reads_it_back() {
    for bytchk in [0x00, 0x02] {
        let mut bench = Bench::new();
        let data = pattern(3, 9);
        bench.write(&cdb16(0x8e, bytchk, 16, 3), &data).good();
        assert!(matches!(bench.ops[..], [Op::Write { fua: true, .. }, Op::Read { .. }]), "{:?}", bench.ops);
        assert_eq!(bench.read(&cdb16(0x88, 0, 16, 3), 1536).data, data);
    }
    assert_eq!(Bench::new().write(&cdb16(0x8e, 0x06, 0, 1), &[0; 512]).code(), INVALID_FIELD_IN_CDB);
}

#[test]
fn compare_and_write_writes_only_what_matched() {
    let mut bench = Bench::new();
    let old = pattern(2, 1);
    bench.store(Lba(4), &old, true);
    let new = pattern(2, 2);
    let mut cdb = cdb16(0x89, 0x08, 4, 0);
    cdb[13] = 2;
    let ended = bench.write(&cdb, &[old.clone(), new.clone()].concat()).good();
    assert_eq!(ended.out_transfer, 2048);
    assert!(matches!(bench.ops[..], [Op::CompareAndWrite { fua: true, count: BlockCount(2), .. }]));
    let ended = bench.write(&cdb, &[old, new.clone()].concat());
    assert_eq!((ended.code(), ended.information()), ((0xe, 0x1d, 0), Some(0)));
    assert_eq!(bench.medium[4 * BLOCK..6 * BLOCK], new[..]);
}

#[test]
fn or_write_sets_bits() {
    let mut bench = Bench::new();
    bench.store(Lba(0), &[0x0f; BLOCK], true);
    bench.write(&cdb16(0x8b, 0, 0, 1), &[0xf0; BLOCK]).good();
    assert!(bench.medium[..BLOCK].iter().all(|&b| b == 0xff));
}

#[test]
fn synchronize_cache_waits_for_the_flush_whatever_immed_says_and_tells_of_its_failure() {
    let mut bench = Bench::new();
    for flags in [0x00, 0x02, 0x06] {
        for opcode in [0x35, 0x91] {
            bench.ops.clear();
            bench.none(&cdb(opcode, flags, 0, 0)).good();
            assert_eq!(bench.ops, [Op::Flush]);
            bench.fail_next = Some(Status::DurabilityLost);
            assert_eq!(bench.none(&cdb(opcode, flags, 8, 8)).code(), (4, 0x44, 0));
        }
    }
}

#[test]
fn pre_fetch_reads_nothing_and_claims_nothing() {
    let mut bench = Bench::new();
    bench.none(&cdb10(0x34, 0x02, 0, 100)).good();
    assert_eq!(bench.ops, []);
}

#[test]
fn write_same_of_zeroes_sends_none() {
    let mut bench = Bench::new();
    bench.medium.fill(0xee);
    let ended = bench.write(&cdb16(0x93, 0, 10, 20), &[0; BLOCK]).good();
    assert_eq!(ended.out_transfer, 512);
    let zeroes = Op::WriteZeroes { lba: Lba(10), count: BlockCount(20), fua: false, may_unmap: false };
    assert_eq!(bench.ops, [zeroes]);
    let zeroed = &bench.medium[10 * BLOCK..30 * BLOCK];
    assert!(zeroed.iter().all(|&b| b == 0));
}

#[test]
fn write_same_of_a_pattern_is_written_in_pieces() {
    let mut bench = Bench::new();
    let block = pattern(1, 0x42);
    bench.write(&cdb16(0x93, 0, 1, 4000), &block).good();
    let counts: Vec<u32> = bench.ops.iter().map(|op| op.range().unwrap().count.0).collect();
    assert_eq!(counts, [2048, 1952], "1 MiB at a time");
    assert!(bench.ops.iter().all(|op| matches!(op, Op::Write { .. })));
    for lba in 1..4001 {
        assert_eq!(bench.medium[lba * BLOCK..(lba + 1) * BLOCK], block[..], "{lba}");
    }
    assert!(bench.medium[..BLOCK].iter().chain(&bench.medium[4001 * BLOCK..]).all(|&b| b == 0));
}

#[test]
fn write_same_of_no_blocks_goes_to_the_end() {
    let mut bench = Bench::new();
    bench.write(&cdb10(0x41, 0, 4090, 0), &[7; BLOCK]).good();
    assert!(bench.medium[4090 * BLOCK..].iter().all(|&b| b == 7));
    bench.ops.clear();
    bench.write(&cdb10(0x41, 0, BLOCKS as u32, 0), &[7; BLOCK]).good();
    assert_eq!(bench.ops, []);
}

#[test]
fn write_same_with_unmap_deallocates_with_or_without_a_block() {
    let mut bench = Bench::new();
    let unmapped = Op::WriteZeroes { lba: Lba(8), count: BlockCount(8), fua: false, may_unmap: true };
    bench.write(&cdb16(0x93, 0x08, 8, 8), &[0; BLOCK]).good();
    bench.write(&cdb10(0x41, 0x08, 8, 8), &[0xff; BLOCK]).good();
    bench.none(&cdb16(0x93, 0x09, 8, 8)).good();
    assert_eq!(bench.ops, [unmapped; 3]);
}

#[test]
fn unmap_deallocates_each_descriptor_in_turn_and_skips_empty_ones() {
    let mut bench = Bench::new();
    let mut list = vec![0, 54, 0, 48, 0, 0, 0, 0];
    for (lba, count) in [(8u64, 8u32), (100, 0), (16, 1)] {
        list.extend_from_slice(&lba.to_be_bytes());
        list.extend_from_slice(&count.to_be_bytes());
        list.extend_from_slice(&[0; 4]);
    }
    let ended = bench.write(&[0x42, 0, 0, 0, 0, 0, 0, 0, 56, 0], &list).good();
    assert_eq!(ended.out_transfer, 56);
    let unmap = |lba, count| Op::Unmap { lba: Lba(lba), count: BlockCount(count) };
    assert_eq!(bench.ops, [unmap(8, 8), unmap(16, 1)]);
}

#[test]
fn a_failing_step_ends_a_command_of_several_steps() {
    let mut bench = Bench::new();
    bench.fail_next = Some(Status::NoSpace);
    let ended = bench.write(&cdb16(0x93, 0, 0, 4000), &[1; BLOCK]);
    assert_eq!(ended.code(), (7, 0x27, 7));
    assert_eq!(ended.out_transfer, 512, "the data were taken");
    assert_eq!(bench.ops.len(), 1);
}

#[test]
fn medium_errors_tell_the_block_and_whether_it_was_a_read() {
    let mut bench = Bench::new();
    bench.fail_next = Some(Status::MediumError { lba: Lba(3) });
    let ended = bench.read(&cdb10(0x28, 0, 0, 8), 4096);
    assert_eq!((ended.code(), ended.information(), ended.in_transfer), ((3, 0x11, 0), Some(3), 0));
    bench.fail_next = Some(Status::MediumError { lba: Lba(3) });
    let ended = bench.write(&cdb10(0x2a, 0, 0, 8), &[0; 4096]);
    assert_eq!((ended.code(), ended.information()), ((3, 0x0c, 0), Some(3)));
}

#[test]
fn d19_a_transient_condition_has_a_status_that_initiators_retry() {
    let mut bench = Bench::new();
    bench.fail_next = Some(Status::Busy);
    assert_eq!(bench.read(&cdb10(0x28, 0, 0, 8), 4096).status, ScsiStatus::BUSY);
}

#[test]
fn k25_an_exhausted_pool_is_task_set_full_and_leaks_nothing() {
    let mut bench = Bench::new();
    bench.pool = BufPool::new(8 << 10);
    let zeroes = [0; 16 << 10];
    for cdb in [cdb16(0x88, 0, 0, 32), cdb16(0x8a, 0, 0, 32), cdb16(0x8e, 2, 0, 16), cdb16(0x8f, 2, 0, 16)] {
        let ended = bench.run_as(ONE, &cdb, &zeroes, 16 << 10);
        assert_eq!(ended.status, ScsiStatus::TASK_SET_FULL);
        assert_eq!((ended.out_transfer, ended.in_transfer), (0, 0));
    }
    bench.write(&cdb16(0x8a, 0, 0, 8), &zeroes).good();
}

#[test]
fn an_abandoned_task_gives_its_buffers_back() {
    let mut bench = Bench::new();
    let (task, step) = bench.start(ONE, &cdb16(0x8e, 2, 0, 16), 8192, 0);
    assert!(matches!(step, Step::Receive { len: 8192, .. }));
    assert!(bench.pool.in_use() > 0);
    bench.device.abandon(task, &mut bench.pool);
    assert_eq!(bench.pool.in_use(), 0);
}

#[test]
fn p17_read_defect_data_is_an_empty_list() {
    let mut bench = Bench::new();
    assert_eq!(bench.read(&[0x37, 0, 0x1d, 0, 0, 0, 0, 0, 32, 0], 32).good().data, [0, 0x1d, 0, 0]);
    let twelve = [0xb7, 0x18, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0];
    assert_eq!(bench.read(&twelve, 32).good().data, [0, 0x18, 0, 0, 0, 0, 0, 0]);
}
