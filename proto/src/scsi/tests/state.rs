//! What lasts from one command to the next: unit attentions, reservations, medium, resets, changes of the volume.

use super::*;
use crate::scsi::ResetScope;

const TUR: [u8; 6] = [0; 6];
const RESERVE: [u8; 6] = [0x16, 0, 0, 0, 0, 0];
const RELEASE: [u8; 6] = [0x17, 0, 0, 0, 0, 0];
const THREE: NexusId = NexusId(3);

fn tur(bench: &mut Bench, nexus: NexusId) -> Ended {
    bench.run_as(nexus, &TUR, &[], 0)
}

#[test]
fn k23_a_new_nexus_is_told_once_for_each_unit() {
    let mut bench = Bench::with_units(vec![unit(0), unit(1)]);
    bench.device.nexus_established(THREE, "iqn.2026-01.net.example:i,i,0x3");
    for lun in [0, 1] {
        bench.lun[1] = lun;
        assert_eq!(tur(&mut bench, THREE).code(), (6, 0x29, 0));
        tur(&mut bench, THREE).good();
    }
}

#[test]
fn inquiry_report_luns_and_request_sense_pass_a_unit_attention() {
    let mut bench = Bench::new();
    bench.device.nexus_established(THREE, "");
    bench.run_as(THREE, &[0x12, 0, 0, 0, 36, 0], &[], 36).good();
    bench.run_as(THREE, &[0xa0, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0], &[], 16).good();
    let sense = bench.run_as(THREE, &[0x03, 0, 0, 0, 18, 0], &[], 18).good().data;
    assert_eq!((sense[0], sense[2], sense[12], sense[13]), (0x70, 6, 0x29, 0), "reported as data, and thereby cleared");
    tur(&mut bench, THREE).good();
}

#[test]
fn a_unit_attention_comes_before_any_other_fault_of_the_command() {
    let mut bench = Bench::new();
    bench.device.nexus_established(THREE, "");
    assert_eq!(bench.run_as(THREE, &[0xff; 16], &[], 0).code(), (6, 0x29, 0));
    assert_eq!(bench.run_as(THREE, &[0xff; 16], &[], 0).code(), INVALID_OPCODE);
}

#[test]
fn p16_a_grown_volume_is_told_to_every_nexus_and_read_capacity_follows() {
    let mut bench = Bench::new();
    bench.device.volume_changed(VolumeId(7), VolumeInfo { blocks: 8192, ..info() });
    assert_eq!(bench.clear_attentions(ONE), [(0x2a, 0x09)]);
    assert_eq!(bench.clear_attentions(TWO), [(0x2a, 0x09)]);
    let data = bench.read(&[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0], 8).good().data;
    assert_eq!(data[..4], 8191u32.to_be_bytes());
}

#[test]
fn each_change_of_a_volume_has_its_unit_attention() {
    let cases = [
        (info(), vec![]),
        (VolumeInfo { write_cache: false, ..info() }, vec![(0x2a, 0x01)]),
        (VolumeInfo { read_only: true, ..info() }, vec![(0x2a, 0x01)]),
        (VolumeInfo { ready: false, ..info() }, vec![]),
        (VolumeInfo { rotation: Rotation::NonRotating, ..info() }, vec![(0x3f, 0x03)]),
        (VolumeInfo { discard: None, blocks: 1, ..info() }, vec![(0x2a, 0x09), (0x3f, 0x03)]),
    ];
    for (new, told) in cases {
        let mut bench = Bench::new();
        bench.device.volume_changed(VolumeId(7), new.clone());
        assert_eq!(bench.clear_attentions(ONE), told, "{new:?}");
        bench.device.volume_changed(VolumeId(8), info());
        assert_eq!(bench.clear_attentions(ONE), [], "another volume");
    }
}

#[test]
fn a_volume_without_its_disks_is_not_ready_until_they_are_back() {
    let mut bench = Bench::new();
    bench.device.volume_changed(VolumeId(7), VolumeInfo { ready: false, ..info() });
    assert_eq!(tur(&mut bench, ONE).code(), (2, 4, 0));
    assert_eq!(bench.read(&cdb10(0x28, 0, 0, 1), 512).code(), (2, 4, 0));
    bench.read(&[0x12, 0, 0, 0, 36, 0], 36).good();
    bench.read(&[0x1a, 0, 0x3f, 0, 255, 0], 255).good();
    bench.device.volume_changed(VolumeId(7), info());
    assert_eq!(tur(&mut bench, ONE).code(), (6, 0x28, 0));
    tur(&mut bench, ONE).good();
    assert_eq!(bench.ops, []);
}

#[test]
fn p10_adding_a_unit_tells_of_it_and_report_luns_ends_that_on_every_unit() {
    let mut bench = Bench::with_units(vec![unit(0), unit(1)]);
    bench.device.add_unit(unit(5));
    assert_eq!(bench.clear_attentions(TWO), [(0x3f, 0x0e)]);
    let luns = bench.read(&[0xa0, 0, 0, 0, 0, 0, 0, 0, 64, 0, 0, 0], 64).good().data;
    assert_eq!(luns.len(), 8 + 3 * 8);
    for lun in [0, 1, 5] {
        bench.lun[1] = lun;
        tur(&mut bench, ONE).good();
    }
}

#[test]
fn p23_a_removed_unit_is_not_supported_even_in_the_middle_of_a_command() {
    let mut bench = Bench::new();
    let (mut task, step) = bench.start(ONE, &cdb10(0x2a, 0, 0, 1), 512, 0);
    assert!(matches!(step, Step::Receive { .. }));
    assert!(bench.device.remove_unit(0));
    assert!(!bench.device.remove_unit(0));
    let Step::Reply(reply) = bench.device.received(&mut task, &mut bench.pool) else { panic!() };
    assert_eq!(bench.end(reply).code(), (5, 0x25, 0));
    assert_eq!(tur(&mut bench, ONE).code(), (5, 0x25, 0));
    bench.device.add_unit(unit(0));
    assert_eq!(bench.device.unit_index(LUN0), Some(1), "indices are not used again");
}

#[test]
fn a_reservation_holds_off_other_nexuses_until_it_is_released() {
    let mut bench = Bench::new();
    for (reserve, release) in
        [(&RESERVE[..], &RELEASE[..]), (&[0x56, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[0x57, 0, 0, 0, 0, 0, 0, 0, 0, 0])]
    {
        bench.none(reserve).good();
        bench.none(reserve).good();
        tur(&mut bench, ONE).good();
        for cdb in [&TUR[..], reserve, &[0x1a, 0, 0x3f, 0, 255, 0], &cdb10(0x2a, 0, 0, 1), &[0xff; 6]] {
            let ended = bench.run_as(TWO, cdb, &[0; 512], 255);
            assert_eq!(ended.status, ScsiStatus::RESERVATION_CONFLICT, "{cdb:02x?}");
        }
        bench.run_as(TWO, &[0x12, 0, 0, 0, 36, 0], &[], 36).good();
        bench.run_as(TWO, &[0x03, 0, 0, 0, 18, 0], &[], 18).good();
        bench.run_as(TWO, &[0xa0, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0], &[], 16).good();
        bench.run_as(TWO, release, &[], 0).good();
        assert_eq!(tur(&mut bench, TWO).status, ScsiStatus::RESERVATION_CONFLICT, "a release by another does nothing");
        bench.none(release).good();
        tur(&mut bench, TWO).good();
    }
    assert_eq!(bench.ops, []);
}

#[test]
fn a_reservation_ends_with_its_nexus_and_with_resets() {
    let mut bench = Bench::new();
    bench.none(&RESERVE).good();
    bench.device.nexus_lost(ONE);
    tur(&mut bench, TWO).good();
    for scope in [ResetScope::Unit(LUN0), ResetScope::Device] {
        bench.run_as(TWO, &RESERVE, &[], 0).good();
        bench.device.nexus_established(THREE, "");
        bench.device.reset(scope, THREE);
        bench.clear_attentions(THREE);
        tur(&mut bench, THREE).good();
        bench.device.nexus_lost(THREE);
        bench.clear_attentions(TWO);
    }
}

#[test]
fn a_reset_attention_is_told_before_a_reservation_conflict_and_others_after_it() {
    let mut bench = Bench::new();
    bench.none(&RESERVE).good();
    bench.device.volume_changed(VolumeId(7), VolumeInfo { blocks: 8192, ..info() });
    assert_eq!(tur(&mut bench, TWO).status, ScsiStatus::RESERVATION_CONFLICT);
    bench.device.nexus_lost(TWO);
    bench.device.nexus_established(TWO, "");
    assert_eq!(tur(&mut bench, TWO).code(), (6, 0x29, 0));
    assert_eq!(tur(&mut bench, TWO).status, ScsiStatus::RESERVATION_CONFLICT);
}

#[test]
fn a_reset_sets_mode_parameters_back_and_is_told_to_all_nexuses() {
    let mut bench = Bench::with_units(vec![unit(0), unit(1)]);
    let list = [0, 0, 0, 0, 0x0a, 0x0a, 0x06, 0x10, 0x08, 0, 0, 0, 0xff, 0xff, 0, 0];
    bench.write(&[0x15, 0x10, 0, 0, 16, 0], &list).good();
    bench.device.reset(ResetScope::Unit(LUN0), ONE);
    assert_eq!(bench.clear_attentions(ONE), [(0x29, 0x03)]);
    assert_eq!(bench.clear_attentions(TWO), [(0x29, 0x03)], "and MODE PARAMETERS CHANGED is contained in it");
    assert_eq!(bench.read(&[0x1a, 8, 0x0a, 0, 255, 0], 255).data[6..9], [0x02, 0x10, 0]);
    bench.lun[1] = 1;
    assert_eq!(bench.clear_attentions(ONE), [], "another unit");
    bench.device.reset(ResetScope::Device, ONE);
    assert_eq!(bench.clear_attentions(ONE), [(0x29, 0x02)]);
}

#[test]
fn cleared_commands_are_told_to_their_nexus() {
    let mut bench = Bench::new();
    bench.device.commands_cleared(LUN0, TWO);
    assert_eq!(bench.clear_attentions(ONE), []);
    assert_eq!(bench.clear_attentions(TWO), [(0x2f, 0x00)]);
}

const EJECT: [u8; 6] = [0x1b, 0, 0, 0, 0x02, 0];
const LOAD: [u8; 6] = [0x1b, 0, 0, 0, 0x03, 0];
const PREVENT: [u8; 6] = [0x1e, 0, 0, 0, 1, 0];
const ALLOW: [u8; 6] = [0x1e, 0, 0, 0, 0, 0];

#[test]
fn an_ejected_medium_is_flushed_first_and_missing_until_it_is_loaded() {
    let mut bench = Bench::with(UnitConfig { removable: true, ..unit(0) });
    bench.none(&EJECT).good();
    assert_eq!(bench.ops, [Op::Flush]);
    for cdb in [
        &TUR[..],
        &cdb10(0x28, 0, 0, 1),
        &cdb10(0x2a, 0, 0, 1),
        &cdb10(0x35, 2, 0, 1),
        &[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    ] {
        assert_eq!(bench.run_as(ONE, cdb, &[0; 512], 512).code(), (2, 0x3a, 0), "{cdb:02x?}");
    }
    bench.none(&EJECT).good();
    bench.none(&LOAD).good();
    tur(&mut bench, ONE).good();
    assert_eq!(bench.clear_attentions(TWO), [(0x28, 0x00)]);
    assert_eq!(bench.ops, [Op::Flush]);
}

#[test]
fn an_eject_whose_flush_fails_ejects_nothing() {
    let mut bench = Bench::with(UnitConfig { removable: true, ..unit(0) });
    bench.fail_next = Some(Status::DurabilityLost);
    assert_eq!(bench.none(&EJECT).code(), (4, 0x44, 0));
    tur(&mut bench, ONE).good();
}

#[test]
fn prevention_counts_per_nexus_and_ends_with_it_and_with_resets() {
    let mut bench = Bench::with(UnitConfig { removable: true, ..unit(0) });
    bench.none(&PREVENT).good();
    bench.run_as(TWO, &PREVENT, &[], 0).good();
    bench.none(&ALLOW).good();
    assert_eq!(bench.none(&EJECT).code(), (5, 0x53, 2), "TWO still prevents it");
    bench.device.nexus_lost(TWO);
    bench.none(&EJECT).good();
    bench.none(&PREVENT).good();
    assert_eq!(bench.none(&LOAD).code(), (5, 0x53, 2));
    bench.device.reset(ResetScope::Unit(LUN0), ONE);
    bench.clear_attentions(ONE);
    bench.none(&LOAD).good();
    tur(&mut bench, ONE).good();
}

#[test]
fn a_prevention_in_the_middle_of_an_eject_wins() {
    let mut bench = Bench::with(UnitConfig { removable: true, ..unit(0) });
    let (mut task, step) = bench.start(ONE, &EJECT, 0, 0);
    assert!(matches!(step, Step::Submit { op: Op::Flush, .. }));
    bench.run_as(TWO, &PREVENT, &[], 0).good();
    let Step::Reply(reply) = bench.device.completed(&mut task, Status::Good, None, &mut bench.pool) else { panic!() };
    assert_eq!(bench.end(reply).code(), (5, 0x53, 2));
    tur(&mut bench, ONE).good();
}

#[test]
fn start_stop_unit_stops_nothing_that_others_use() {
    let mut bench = Bench::new();
    bench.none(&[0x1b, 0, 0, 0, 0x00, 0]).good();
    assert_eq!(bench.ops, [Op::Flush], "STOP makes durable");
    for flags in [0x04, 0x01, 0x10, 0x30, 0xf0] {
        bench.none(&[0x1b, 1, 0, 0, flags, 0]).good();
    }
    assert_eq!(bench.ops.len(), 1, "NO_FLUSH, START, power conditions");
    tur(&mut bench, TWO).good();
    assert_eq!(bench.none(&EJECT).field(), (4, Some(1)), "LOEJ of a unit that is not removable");
}
