//! The recorder tells what the disks were asked; the faults do what they are told.

mod common;

use common::{DISK, Rig, disk_folder, mem_info, on_every_backend};
use platter_backends::{
    Backend, Counts, Faults, Faulty, FileBackend, Kind, Mem, OpenOptions, Recorder, Recording, Step,
};
use platter_block::{BlockCount, DiskId, DiskOp, IoId, Lba, Status};

const OTHER: DiskId = DiskId(DISK.0 + 1);

fn mem() -> Mem {
    let mut mem = Mem::new();
    mem.add(DISK, mem_info(512, 1024));
    mem
}

fn recorded() -> (Rig<Recorder<Mem>>, Recording) {
    let recorder = Recorder::new(mem(), Recording::default());
    let recording = recorder.recording();
    (Rig::new("recorded".into(), mem_info(512, 1024), Box::new(recorder), None), recording)
}

fn faulty() -> (Rig<Faulty<Recorder<Mem>>>, Faults, Recording) {
    let recorder = Recorder::new(mem(), Recording::default());
    let recording = recorder.recording();
    let faulty = Faulty::new(recorder).expect("descriptors are left");
    let faults = faulty.faults();
    (Rig::new("faulty".into(), mem_info(512, 1024), Box::new(faulty), None), faults, recording)
}

#[test]
fn the_recorder_counts_each_kind_and_its_blocks() {
    let (mut rig, recording) = recorded();
    let bytes = rig.pattern(0, 3, 1);
    rig.write(0, &bytes, false);
    rig.write(0, &bytes[..512], true);
    rig.read(0, 2).unwrap();
    rig.run(DiskOp::Flush);
    rig.zero(0, 1, true);
    rig.unmap(0, 1);
    rig.extents(0, 9);
    assert_eq!(rig.read(1024, 1), Err(Status::LbaOutOfRange));
    let expected = Counts {
        reads: 2,
        writes: 1,
        fua_writes: 1,
        flushes: 1,
        write_zeroes: 1,
        unmaps: 1,
        block_status: 1,
        blocks_read: 3,
        blocks_written: 4,
        failed: 1,
        failed_flushes: 0,
    };
    assert_eq!(recording.counts(DISK), expected);
    assert_eq!(recording.counts(OTHER), Counts::default());
    assert!(recording.log().is_empty(), "no log unless asked");
}

#[test]
fn the_log_has_the_order_and_drops_the_oldest_beyond_its_limit() {
    let (mut rig, recording) = recorded();
    recording.keep_log(3);
    rig.run(DiskOp::Flush);
    rig.run(DiskOp::Flush);
    let log = recording.take_log();
    let disk = DISK;
    let expected = [
        Step::Ended { io: IoId(0), disk, status: Status::Good },
        Step::Sent { io: IoId(1), disk, op: DiskOp::Flush },
        Step::Ended { io: IoId(1), disk, status: Status::Good },
    ];
    assert_eq!(log, expected);
    assert_eq!(recording.log_dropped(), 1);
    assert!(recording.log().is_empty());
}

#[test]
fn the_nth_flush_fails_once_and_never_reaches_the_disk() {
    let (mut rig, faults, recording) = faulty();
    faults.fail_nth(DISK, Kind::Flush, 2, Status::DurabilityLost);
    let ends: Vec<_> = (0..3).map(|_| rig.run(DiskOp::Flush).0).collect();
    assert_eq!(ends, [Status::Good, Status::DurabilityLost, Status::Good]);
    assert_eq!(recording.counts(DISK).flushes, 2);
}

#[test]
fn a_bad_block_fails_what_touches_it_and_nothing_else() {
    let (mut rig, faults, _) = faulty();
    let bytes = rig.pattern(0, 8, 1);
    assert_eq!(rig.write(0, &bytes, false), Status::Good);
    faults.fail_reads_at(DISK, Lba(5));
    faults.fail_writes_at(DISK, Lba(6));
    let bad = |lba| Status::MediumError { lba: Lba(lba) };
    assert_eq!(rig.read(0, 8), Err(bad(5)));
    assert_eq!(rig.read(0, 5), Ok(bytes[..5 * 512].to_vec()));
    assert_eq!(rig.read(6, 2), Ok(bytes[6 * 512..].to_vec()));
    assert_eq!(rig.write(4, &bytes, true), bad(6));
    assert_eq!(rig.zero(6, 1, false), bad(6));
    assert_eq!(rig.unmap(0, 7), bad(6));
    assert_eq!(rig.write(5, &bytes[..512], false), Status::Good, "only reads fail there");
    faults.heal();
    assert_eq!(rig.read(6, 2), Ok(bytes[6 * 512..].to_vec()), "what failed has written nothing");
}

#[test]
fn held_ops_have_not_reached_the_disk_and_go_in_order_when_released() {
    let (mut rig, faults, recording) = faulty();
    recording.keep_log(100);
    faults.hold(DISK, Kind::Write);
    let bytes = rig.pattern(0, 1, 1);
    let writes: Vec<_> = (0..3).map(|i| rig.submit_write(i, &bytes, false)).collect();
    rig.backend.kick();
    assert!(rig.reap().is_empty());
    assert_eq!((faults.held(DISK, Kind::Write), recording.counts(DISK).writes), (3, 0));
    let read = rig.submit_read(0, 1);
    rig.backend.kick();
    let ends = rig.reap();
    assert_eq!((ends.len(), ends[0].io), (1, read), "other kinds pass");

    assert!(faults.release_one(DISK, Kind::Write));
    rig.sleep();
    let ends = rig.reap();
    assert_eq!((ends.len(), ends[0].io), (1, writes[0]));
    assert_eq!(faults.release(DISK, Kind::Write), 2);
    let ends: Vec<_> = rig.finish().iter().map(|e| e.io).collect();
    assert_eq!(ends, writes[1..]);
    assert!(!faults.release_one(DISK, Kind::Write));
    assert_eq!(rig.write(9, &bytes, false), Status::Good, "the gate is open");
}

#[test]
fn a_release_from_another_thread_wakes_the_owner_of_any_backend() {
    let options = OpenOptions { size: Some(1 << 20), ..OpenOptions::default() };
    for rig in on_every_backend("released", &options, disk_folder) {
        let mut rig = rig.map(|backend| Faulty::new(backend).unwrap());
        let faults = rig.backend.faults();
        faults.hold(DISK, Kind::Flush);
        rig.submit(DiskOp::Flush, None);
        rig.backend.kick();
        assert!(rig.reap().is_empty());
        let other = faults.clone();
        let thread = std::thread::spawn(move || other.release(DISK, Kind::Flush));
        let ends = rig.finish();
        assert_eq!((ends.len(), ends[0].status), (1, Status::Good), "{}", rig.name);
        assert_eq!(thread.join().unwrap(), 1);
    }
}

#[test]
fn held_ops_of_a_removed_disk_end_gone() {
    let options = OpenOptions { size: Some(1 << 20), ..OpenOptions::default() };
    for rig in on_every_backend("removed", &options, disk_folder) {
        let mut rig = rig.map(|backend| Faulty::new(backend).unwrap());
        rig.backend.faults().hold(DISK, Kind::WriteZeroes);
        rig.submit(DiskOp::WriteZeroes { lba: Lba(0), count: BlockCount(1), may_unmap: true }, None);
        rig.backend.kick();
        assert!(rig.backend.remove(DISK));
        assert_eq!(rig.finish()[0].status, Status::Gone, "{}", rig.name);
    }
}
