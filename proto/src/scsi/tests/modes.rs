//! Mode pages: golden bytes, and changes that take effect.

use super::*;

fn sense_6(bench: &mut Bench, control: u8, page: u8) -> Vec<u8> {
    bench.read(&[0x1a, 0x08, control << 6 | page, 0, 255, 0], 255).good().data
}

fn select_6(bench: &mut Bench, nexus: NexusId, list: &[u8]) -> Ended {
    bench.run_as(nexus, &[0x15, 0x10, 0, 0, list.len() as u8, 0], list, 0)
}

/// A MODE SELECT(6) list that sets WCE.
fn caching(enabled: bool) -> Vec<u8> {
    let mut list = vec![0, 0, 0, 0, 0x08, 0x12, if enabled { 0x04 } else { 0 }];
    list.resize(24, 0);
    list
}

/// A MODE SELECT(6) list that sets D_SENSE and SWP.
fn control(descriptor_sense: bool, write_protect: bool) -> [u8; 16] {
    let byte_2 = 0x02 | if descriptor_sense { 0x04 } else { 0 };
    let byte_4 = if write_protect { 0x08 } else { 0 };
    [0, 0, 0, 0, 0x0a, 0x0a, byte_2, 0x10, byte_4, 0, 0, 0, 0xff, 0xff, 0, 0]
}

#[test]
fn mode_sense_6_header_block_descriptor_and_all_pages_in_order() {
    let data = Bench::new().read(&[0x1a, 0, 0x3f, 0, 255, 0], 255).good().data;
    assert_eq!(data[..4], [(data.len() - 1) as u8, 0, 0x10, 8], "DPOFUA, not WP");
    assert_eq!(data[4..12], [0, 0, 0x10, 0, 0, 0, 2, 0]);
    assert_eq!(data[12..24], [0x01, 0x0a, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(data[24..28], [0x08, 0x12, 0x04, 0]);
    assert_eq!(data[44..56], [0x0a, 0x0a, 0x02, 0x10, 0, 0, 0, 0, 0xff, 0xff, 0, 0]);
    assert_eq!(data[56..68], [0x1c, 0x0a, 0x08, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(data.len(), 68);
}

#[test]
fn mode_sense_10_header_and_both_block_descriptors() {
    let mut bench = Bench::new();
    let short = bench.read(&[0x5a, 0, 0x08, 0, 0, 0, 0, 1, 0, 0], 256).good().data;
    assert_eq!(short[..8], [0, 34, 0, 0x10, 0, 0, 0, 8]);
    let long = bench.read(&[0x5a, 0x10, 0x08, 0, 0, 0, 0, 1, 0, 0], 256).good().data;
    assert_eq!(long[..8], [0, 42, 0, 0x10, 1, 0, 0, 16]);
    assert_eq!(long[8..24], [0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0, 0, 2, 0]);
    let none = bench.read(&[0x5a, 0x18, 0x08, 0, 0, 0, 0, 1, 0, 0], 256).good().data;
    assert_eq!(none[..8], [0, 26, 0, 0x10, 0, 0, 0, 0], "DBD wins over LLBAA");
}

#[test]
fn mode_sense_changeable_default_and_saved_values() {
    let mut bench = Bench::new();
    assert_eq!(sense_6(&mut bench, 1, 0x08)[4..8], [0x08, 0x12, 0x04, 0]);
    assert_eq!(sense_6(&mut bench, 1, 0x0a)[4..10], [0x0a, 0x0a, 0x04, 0, 0x08, 0]);
    select_6(&mut bench, ONE, &control(false, true)).good();
    assert_eq!(sense_6(&mut bench, 0, 0x0a)[8], 0x08);
    assert_eq!(sense_6(&mut bench, 2, 0x0a)[8], 0, "default");
    assert_eq!(bench.read(&[0x1a, 0, 0xc8, 0, 255, 0], 255).code(), (5, 0x39, 0));
}

#[test]
fn mode_sense_of_unknown_pages_and_subpages_is_refused() {
    let mut bench = Bench::new();
    assert_eq!(bench.read(&[0x1a, 0, 0x02, 0, 255, 0], 255).field(), (2, Some(5)));
    assert_eq!(bench.read(&[0x1a, 0, 0x0a, 1, 255, 0], 255).field(), (3, None));
    bench.read(&[0x1a, 0, 0x3f, 0xff, 255, 0], 255).good();
}

#[test]
fn wp_is_set_for_a_read_only_volume_a_read_only_unit_and_swp() {
    let mut config = unit(0);
    config.info.read_only = true;
    assert_eq!(sense_6(&mut Bench::with(config), 0, 0x08)[2], 0x90);
    assert_eq!(sense_6(&mut Bench::with(UnitConfig { read_only: true, ..unit(0) }), 0, 0x08)[2], 0x90);
    let mut bench = Bench::new();
    select_6(&mut bench, ONE, &control(false, true)).good();
    assert_eq!(sense_6(&mut bench, 0, 0x08)[2], 0x90);
    assert_eq!(bench.write(&cdb10(0x2a, 0, 0, 1), &[1; BLOCK]).code(), (7, 0x27, 2));
    assert_eq!(bench.ops, []);
}

#[test]
fn k17_switching_wce_off_switches_the_volume_and_tells_the_other_nexus_only() {
    let mut bench = Bench::new();
    select_6(&mut bench, ONE, &caching(false)).good();
    assert_eq!(bench.ops, [Op::SetWriteCache { enabled: false }]);
    assert_eq!(sense_6(&mut bench, 0, 0x08)[6], 0);
    assert_eq!(bench.clear_attentions(ONE), []);
    assert_eq!(bench.clear_attentions(TWO), [(0x2a, 0x01)]);
    select_6(&mut bench, ONE, &caching(false)).good();
    assert_eq!(bench.ops.len(), 1, "no change, no op");
    assert_eq!(bench.clear_attentions(TWO), []);
}

#[test]
fn the_news_from_the_volume_about_a_switch_under_way_is_no_news_to_who_asked() {
    let mut bench = Bench::new();
    let list = caching(false);
    let (mut task, step) = bench.start(ONE, &[0x15, 0x10, 0, 0, 24, 0], 24, 0);
    let Step::Receive { buf, len } = step else { panic!("{step:?}") };
    bench.pool.bytes_mut(buf)[..len].copy_from_slice(&list);
    let step = bench.device.received(&mut task, &mut bench.pool);
    assert!(matches!(step, Step::Submit { op: Op::SetWriteCache { enabled: false }, .. }));
    bench.device.volume_changed(VolumeId(7), VolumeInfo { write_cache: false, blocks: 100, ..info() });
    let step = bench.device.completed(&mut task, Status::Good, None, &mut bench.pool);
    assert!(matches!(step, Step::Reply(Reply { status: ScsiStatus::GOOD, .. })));
    assert_eq!(bench.clear_attentions(ONE), [(0x2a, 0x09)], "the capacity is news to all");
    assert_eq!(bench.clear_attentions(TWO), [(0x2a, 0x09), (0x2a, 0x01)]);
}

#[test]
fn a_switch_that_fails_changes_nothing() {
    let mut bench = Bench::new();
    bench.fail_next = Some(Status::DurabilityLost);
    let mut list = caching(false);
    list.extend_from_slice(&control(true, true)[4..]);
    assert_eq!(select_6(&mut bench, ONE, &list).code(), (4, 0x44, 0));
    assert_eq!(sense_6(&mut bench, 0, 0x08)[6], 0x04);
    assert_eq!(sense_6(&mut bench, 0, 0x0a)[6..9], [0x02, 0x10, 0]);
    assert_eq!(bench.clear_attentions(TWO), []);
}

#[test]
fn wce_cannot_be_changed_without_a_volatile_cache() {
    let mut config = unit(0);
    (config.info.write_cache, config.info.write_cache_changeable) = (false, false);
    let mut bench = Bench::with(config);
    assert_eq!(sense_6(&mut bench, 1, 0x08)[6], 0);
    let ended = select_6(&mut bench, ONE, &caching(true));
    assert_eq!((ended.code(), ended.field()), (INVALID_FIELD_IN_LIST, (6, None)));
}

#[test]
fn d_sense_makes_sense_data_descriptors() {
    let mut bench = Bench::new();
    select_6(&mut bench, ONE, &control(true, false)).good();
    let ended = bench.read(&cdb16(0x88, 0, u64::MAX, 1), 512);
    assert_eq!(ended.sense, [0x72, 5, 0x21, 0, 0, 0, 0, 0]);
    bench.fail_next = Some(Status::MediumError { lba: Lba(9) });
    let ended = bench.read(&cdb16(0x88, 0, 8, 4), 2048);
    assert_eq!(ended.sense, [0x72, 3, 0x11, 0, 0, 0, 0, 12, 0, 10, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 9]);
    let fixed = bench.read(&[0x03, 0, 0, 0, 252, 0], 252).good().data;
    assert_eq!((fixed.len(), fixed[0]), (18, 0x70), "REQUEST SENSE goes by DESC");
    assert_eq!(bench.read(&[0x03, 1, 0, 0, 252, 0], 252).good().data, [0x72, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn mode_select_accepts_what_mode_sense_gave() {
    let mut bench = Bench::new();
    let mut list = bench.read(&[0x5a, 0x10, 0x3f, 0, 0, 0, 0, 1, 0, 0], 256).good().data;
    list[..2].fill(0);
    let len = list.len() as u8;
    bench.write(&[0x55, 0x10, 0, 0, 0, 0, 0, 0, len, 0], &list).good();
    assert_eq!(bench.ops, []);
    assert_eq!(bench.clear_attentions(TWO), []);
}

#[test]
fn mode_select_refuses_to_change_the_block_length_or_the_number_of_blocks() {
    let mut bench = Bench::new();
    for (descriptor, accepted) in [
        ([0, 0, 0x10, 0, 0, 0, 2, 0], true),
        ([0, 0, 0, 0, 0, 0, 2, 0], true),
        ([0xff, 0xff, 0xff, 0xff, 0, 0, 2, 0], true),
        ([0, 0, 0x08, 0, 0, 0, 2, 0], false),
        ([0, 0, 0x10, 0, 0, 0, 0x10, 0], false),
    ] {
        let list = [&[0, 0, 0, 8][..], &descriptor].concat();
        let ended = select_6(&mut bench, ONE, &list);
        assert_eq!(ended.status == ScsiStatus::GOOD, accepted, "{descriptor:02x?}");
    }
}

#[test]
fn k17_mode_select_lists_of_every_wrong_shape() {
    let mut bench = Bench::new();
    for len in 1..4 {
        assert_eq!(select_6(&mut bench, ONE, &vec![0; len]).code(), PARAMETER_LIST_LENGTH, "{len}");
    }
    let cut = &caching(false)[..20];
    assert_eq!(select_6(&mut bench, ONE, cut).code(), PARAMETER_LIST_LENGTH, "page cut off");
    assert_eq!(select_6(&mut bench, ONE, &[0, 0, 0, 0, 0x08]).code(), PARAMETER_LIST_LENGTH, "no page length");
    let mut list = caching(false);
    list[5] = 0x11;
    assert_eq!(select_6(&mut bench, ONE, &list).code(), INVALID_FIELD_IN_LIST, "PAGE LENGTH");
    assert_eq!(select_6(&mut bench, ONE, &[0, 0, 0, 0, 0x02, 0]).code(), INVALID_FIELD_IN_LIST, "unknown page");
    assert_eq!(select_6(&mut bench, ONE, &[0, 0, 0, 0, 0x4a, 0, 0, 0]).code(), INVALID_FIELD_IN_LIST, "subpage");
    assert_eq!(select_6(&mut bench, ONE, &[0, 0, 0, 9, 0, 0]).code(), INVALID_FIELD_IN_LIST, "descriptor length");
    assert_eq!(select_6(&mut bench, ONE, &[0, 0, 0, 8, 0, 0]).code(), PARAMETER_LIST_LENGTH, "descriptor cut off");
    let mut list = control(false, false);
    list[7] = 0;
    assert_eq!(select_6(&mut bench, ONE, &list).field(), (7, None), "not changeable: queue algorithm");
    assert_eq!(bench.write(&[0x15, 0x11, 0, 0, 24, 0], &caching(false)).field(), (1, Some(0)), "SP");
    assert_eq!(bench.write(&[0x15, 0x00, 0, 0, 24, 0], &caching(false)).field(), (1, Some(4)), "PF");
    assert_eq!(bench.write(&[0x15, 0x10, 0, 0, 24, 0], &[0; 10]).code(), PARAMETER_LIST_LENGTH, "fewer bytes offered");
    bench.none(&[0x15, 0x10, 0, 0, 0, 0]).good();
    assert_eq!(bench.ops, []);
}
