//! How many flushes a disk is asked for, counted at the disk through the real server (engine conditions F1 to F9).

mod in_process;

use in_process::InProcess;
use platter_backends::Kind;
use platter_block::{DiskId, Status};
use platter_tests::initiator::scsi::key;
use platter_tests::initiator::{Command, Event, LoginOptions, Session};
use platter_tests::server_process::{DiskCounts, ServerProcess, Setup, disk, disk_status, platter};
use std::net::SocketAddr;

const TARGET: &str = "iqn.2026-11.org.platter.test:counts";
const BLOCK: u32 = 512;
/// The disk of every configuration here.
const DISK: DiskId = DiskId(0);
/// HARDWARE ERROR, INTERNAL TARGET FAILURE: what a flush that failed is answered.
const FLUSH_FAILED: Option<(u8, u8, u8)> = Some((key::HARDWARE_ERROR, 0x44, 0x00));

/// One volume on the whole of one memory disk with a volatile cache.
fn memory_disk(fua: bool) -> Setup {
    Setup::new(&format!(
        "disks: {{ d: {{ memory: {{ size: 16MiB, volatile_cache: true, fua: {fua} }} }} }}
volumes:
  v: {{ disk: d, hosts: {{ allow_any: true }}, iscsi: {{ target: '{TARGET}', lun: 0 }} }}
"
    ))
}

/// Sixteen volumes, LUN 0 to 15 of one target, on one file (a volatile cache, no FUA).
fn sixteen_units() -> Setup {
    let mut body = String::from("disks: { d: { path: FOLDER/disk, size: 16MiB } }\nvolumes:\n");
    for lun in 0..16 {
        body += &format!(
            "  v{lun}:
    segments: [{{ disk: d, offset: {lun}MiB, size: 1MiB }}]
    hosts: {{ allow_any: true }}
    iscsi: {{ target: '{TARGET}', lun: {lun} }}
"
        );
    }
    Setup::new(&body)
}

/// One volume of 64 pieces of one memory disk, with gaps between them.
fn sixty_four_segments() -> Setup {
    let mut body = String::from(
        "disks: { d: { memory: { size: 128MiB, volatile_cache: true } } }\nvolumes:\n  v:\n    segments:\n",
    );
    for segment in 0..64 {
        body += &format!("      - {{ disk: d, offset: {}MiB, size: 1MiB }}\n", 2 * segment);
    }
    body += &format!("    hosts: {{ allow_any: true }}\n    iscsi: {{ target: '{TARGET}', lun: 0 }}\n");
    Setup::new(&body)
}

/// A session whose units have reported their unit attentions.
fn session(address: SocketAddr, isid: u32, units: u16) -> Session {
    let mut session =
        Session::login(address, &LoginOptions::to(TARGET).with_isid(isid)).expect("the login is accepted");
    for lun in 0..units {
        session.ready(lun).expect("the unit is ready");
    }
    session
}

fn good(session: &mut Session, command: &Command) {
    let end = session.execute(command).expect("the target keeps to the protocol");
    assert!(end.is_good(), "{end:?}");
}

fn write(lun: u16, lba: u64) -> Command {
    Command::write(lun, lba, vec![lba as u8; BLOCK as usize], BLOCK)
}

fn sync(lun: u16) -> Command {
    Command::synchronize_cache(lun)
}

/// What the disk of a real server was asked while `work` ran in a session.
fn counted(setup: &Setup, work: impl FnOnce(&mut Session, &ServerProcess)) -> DiskCounts {
    let server = setup.start();
    let mut session = session(server.address(), 1, 1);
    let before = server.disk("d");
    work(&mut session, &server);
    let counts = server.disk("d").since(&before);
    session.logout().expect("the logout is answered");
    assert!(server.stop().success());
    counts
}

#[test]
fn a_flush_after_each_fua_write_is_elided_on_a_disk_with_fua() {
    let counts = counted(&memory_disk(true), |session, _| {
        for lba in 0..100 {
            good(session, &write(0, lba).fua());
            good(session, &sync(0));
        }
    });
    assert_eq!((counts.asked_flushes, counts.asked_fua_writes), (0, 100));
    assert_eq!((counts.flush_requested, counts.flush_elided), (100, 100));
}

#[test]
fn a_flush_after_each_fua_write_is_elided_on_a_disk_without_fua_and_each_write_costs_one() {
    let counts = counted(&memory_disk(false), |session, _| {
        for lba in 0..100 {
            good(session, &write(0, lba).fua());
            good(session, &sync(0));
        }
    });
    assert_eq!((counts.asked_flushes, counts.asked_writes, counts.asked_fua_writes), (100, 100, 0));
    assert_eq!((counts.flush_requested, counts.flush_elided), (200, 100));
}

#[test]
fn a_hundred_fua_writes_and_then_a_hundred_flushes_cost_no_more() {
    for (fua, flushes, requested) in [(true, 0, 100), (false, 100, 200)] {
        let counts = counted(&memory_disk(fua), |session, _| {
            for lba in 0..100 {
                good(session, &write(0, lba).fua());
            }
            for _ in 0..100 {
                good(session, &sync(0));
            }
        });
        assert_eq!((counts.asked_flushes, counts.flush_requested, counts.flush_elided), (flushes, requested, 100));
    }
}

#[test]
fn a_flush_after_a_plain_write_is_sent_even_if_a_fua_write_came_between() {
    let counts = counted(&memory_disk(true), |session, _| {
        good(session, &write(0, 0));
        good(session, &write(0, 1).fua());
        good(session, &sync(0));
        good(session, &sync(0));
    });
    assert_eq!((counts.asked_flushes, counts.flush_elided), (1, 1));
}

#[test]
fn a_volume_of_64_segments_on_one_disk_costs_one_flush() {
    let counts = counted(&sixty_four_segments(), |session, _| {
        let blocks_per_segment = (1 << 20) / u64::from(BLOCK);
        for segment in 0..64 {
            good(session, &write(0, segment * blocks_per_segment));
        }
        good(session, &sync(0));
    });
    assert_eq!((counts.asked_writes, counts.asked_flushes, counts.flush_requested), (64, 1, 1));
}

#[test]
fn with_the_write_cache_off_every_write_is_durable_and_flushes_are_elided() {
    for (fua, flushes, fua_writes) in [(true, 0, 50), (false, 50, 0)] {
        let counts = counted(&memory_disk(fua), |session, server| {
            let sensed = session.execute(&Command::mode_sense_caching(0)).unwrap();
            let off = Command::mode_select_write_cache(0, &sensed.data, false).expect("there is a caching page");
            let before = server.disk("d");
            good(session, &off);
            let sensed = session.execute(&Command::mode_sense_caching(0)).unwrap();
            assert_eq!(sensed.data[10] & 0x04, 0, "WCE is off");
            let switched = server.disk("d").since(&before);
            for lba in 0..50 {
                good(session, &write(0, lba));
                good(session, &sync(0));
            }
            let counts = server.disk("d").since(&before);
            assert_eq!(counts.asked_flushes - switched.asked_flushes, flushes);
            assert_eq!(counts.asked_fua_writes, fua_writes);
            assert_eq!(counts.flush_elided - switched.flush_elided, 50);
        });
        assert_eq!(counts.asked_writes, 50);
    }
}

#[test]
fn a_flush_with_immed_is_accepted_and_answered_when_the_disk_has_flushed() {
    let setup = sixteen_units();
    let server = InProcess::start(&setup);
    let mut session = session(server.address(), 1, 1);
    let before = disk(&setup.admin(), "d");
    good(&mut session, &write(0, 0));
    server.gate.hold(DISK, Kind::Flush);
    session.submit(&sync(0).immed()).unwrap();
    session.ping(b"running").unwrap();
    assert_eq!(server.gate.held(DISK, Kind::Flush), 1);
    assert!(session.poll_event().unwrap().is_none(), "an early GOOD could be a lie");
    server.gate.release(DISK, Kind::Flush);
    assert!(session.next_end().unwrap().is_good());
    assert_eq!(disk(&setup.admin(), "d").since(&before).asked_flushes, 1);

    good(&mut session, &write(0, 0));
    server.disk.fail_nth(DISK, Kind::Flush, 1, Status::DurabilityLost);
    assert_eq!(session.execute(&sync(0).immed()).unwrap().sense_triple(), FLUSH_FAILED);
}

#[test]
fn flushes_of_sixteen_units_share_one_running_and_one_pending_flush() {
    let setup = sixteen_units();
    let server = InProcess::start(&setup);
    let mut session = session(server.address(), 1, 16);
    let before = disk(&setup.admin(), "d");
    for lun in 0..16 {
        good(&mut session, &write(lun, 0));
    }
    server.gate.hold(DISK, Kind::Flush);
    let first = session.submit(&sync(0)).unwrap();
    // The echo of a ping says that what was sent before it has reached the engine, and its flush the gate.
    session.ping(b"running").unwrap();
    assert_eq!(server.gate.held(DISK, Kind::Flush), 1);
    for lun in 1..16 {
        // Acknowledged after the first flush was sent: that one does not cover it.
        good(&mut session, &write(lun, 1));
        session.submit(&sync(lun)).unwrap();
    }
    session.ping(b"pending").unwrap();
    assert_eq!(server.gate.held(DISK, Kind::Flush), 1, "a second flush waits in the engine, not at the disk");
    assert!(session.poll_event().unwrap().is_none());

    server.gate.release_one(DISK, Kind::Flush);
    let end = session.next_end().unwrap();
    assert!(end.tag == first && end.is_good(), "{end:?}");
    session.ping(b"second").unwrap();
    assert_eq!(server.gate.held(DISK, Kind::Flush), 1);
    assert_eq!(session.in_flight(), 15);
    server.gate.release(DISK, Kind::Flush);
    for _ in 0..15 {
        assert!(session.next_end().unwrap().is_good());
    }
    let counts = disk(&setup.admin(), "d").since(&before);
    assert_eq!((counts.flush_requested, counts.asked_flushes, counts.flush_joined), (16, 2, 14), "{counts:?}");
    session.logout().unwrap();
    assert!(server.stop());
}

/// All write first: the flush of the first covers everybody. Each writes just before its own flush: the rest share a second.
#[test]
fn sixteen_sessions_that_flush_together_cost_one_flush_or_two() {
    for (write_first, flushes) in [(true, 1), (false, 2)] {
        let setup = sixteen_units();
        let server = InProcess::start(&setup);
        let mut sessions: Vec<_> = (0..16).map(|n| session(server.address(), n + 1, 16)).collect();
        let before = disk(&setup.admin(), "d");
        if write_first {
            for (session, lun) in sessions.iter_mut().zip(0..) {
                good(session, &write(lun, 0));
            }
        }
        server.gate.hold(DISK, Kind::Flush);
        for (session, lun) in sessions.iter_mut().zip(0..) {
            if !write_first {
                good(session, &write(lun, 0));
            }
            session.submit(&sync(lun)).unwrap();
            session.ping(b"asked").unwrap();
        }
        assert_eq!(server.gate.held(DISK, Kind::Flush), 1);
        server.gate.release(DISK, Kind::Flush);
        for session in &mut sessions {
            assert!(session.next_end().unwrap().is_good());
        }
        let counts = disk(&setup.admin(), "d").since(&before);
        assert_eq!((counts.flush_requested, counts.asked_flushes), (16, flushes), "{counts:?}");
        assert_eq!(counts.flush_joined, 16 - flushes);
    }
}

#[test]
fn a_write_acknowledged_while_a_flush_runs_needs_the_next_flush() {
    let setup = sixteen_units();
    let server = InProcess::start(&setup);
    let mut session = session(server.address(), 1, 1);
    let before = disk(&setup.admin(), "d");
    good(&mut session, &write(0, 0));
    server.gate.hold(DISK, Kind::Flush);
    session.submit(&sync(0)).unwrap();
    session.ping(b"running").unwrap();
    good(&mut session, &write(0, 1));
    session.submit(&sync(0)).unwrap();
    session.ping(b"pending").unwrap();
    server.gate.release(DISK, Kind::Flush);
    for _ in 0..2 {
        assert!(session.next_end().unwrap().is_good());
    }
    let counts = disk(&setup.admin(), "d").since(&before);
    assert_eq!((counts.asked_flushes, counts.flush_elided, counts.flush_joined), (2, 0, 0), "{counts:?}");
}

#[test]
fn a_failed_flush_fails_every_waiter_and_all_that_follow_until_the_operator_clears_it() {
    let setup = sixteen_units();
    let server = InProcess::start(&setup);
    let mut one = session(server.address(), 1, 4);
    let mut two = session(server.address(), 2, 4);
    let before = disk(&setup.admin(), "d");
    for lun in 0..4 {
        good(&mut one, &write(lun, 0));
    }
    server.gate.hold(DISK, Kind::Flush);
    server.disk.fail_nth(DISK, Kind::Flush, 1, Status::DurabilityLost);
    one.submit(&sync(0)).unwrap();
    one.ping(b"running").unwrap();
    for command in [sync(1), sync(2), write(3, 1).fua()] {
        two.submit(&command).unwrap();
    }
    two.ping(b"pending").unwrap();
    server.gate.release(DISK, Kind::Flush);
    assert_eq!(one.next_end().unwrap().sense_triple(), FLUSH_FAILED);
    for _ in 0..3 {
        assert_eq!(two.next_end().unwrap().sense_triple(), FLUSH_FAILED);
    }

    let failed = disk(&setup.admin(), "d").since(&before);
    assert_eq!((failed.asked_flushes, failed.flush_failed), (1, 1), "{failed:?}");
    for command in [sync(0), write(0, 2).fua(), sync(3)] {
        assert_eq!(one.execute(&command).unwrap().sense_triple(), FLUSH_FAILED);
    }
    let refused = disk(&setup.admin(), "d").since(&before);
    assert_eq!(refused.asked_flushes, 1, "nothing is retried: {refused:?}");
    assert!(refused.flush_refused >= 3, "{refused:?}");

    clear_fault(&setup);
    good(&mut two, &sync(0));
    let healed = disk(&setup.admin(), "d").since(&before);
    assert_eq!(healed.asked_flushes, 2, "the next flush is sent, whatever was written since: {healed:?}");
    for session in [one, two] {
        session.logout().unwrap();
    }
    assert!(server.stop());
}

#[test]
fn the_mark_of_a_failed_flush_survives_restarts_until_it_is_cleared() {
    let setup = sixteen_units();
    let server = InProcess::start(&setup);
    let mut one = session(server.address(), 1, 1);
    good(&mut one, &write(0, 0));
    server.disk.fail_nth(DISK, Kind::Flush, 1, Status::DurabilityLost);
    assert_eq!(one.execute(&sync(0)).unwrap().sense_triple(), FLUSH_FAILED);
    one.logout().unwrap();
    assert!(!server.stop(), "not everything acknowledged is durable");
    in_process::wait_until_released(&setup);

    let server = setup.start();
    assert!(is_poisoned(&setup));
    server.kill();
    let server = setup.start();
    assert!(is_poisoned(&setup));
    let mut one = session(server.address(), 1, 1);
    assert_eq!(one.execute(&sync(0)).unwrap().sense_triple(), FLUSH_FAILED);
    clear_fault(&setup);
    assert!(!is_poisoned(&setup));
    let before = server.disk("d");
    good(&mut one, &sync(0));
    assert_eq!(server.disk("d").since(&before).asked_flushes, 1);
    server.kill();

    let _server = setup.start();
    assert!(!is_poisoned(&setup));
}

#[test]
fn an_abort_of_a_flush_that_waits_leaves_the_others_alone() {
    let setup = sixteen_units();
    let server = InProcess::start(&setup);
    let mut session = session(server.address(), 1, 2);
    good(&mut session, &write(0, 0));
    good(&mut session, &write(1, 0));
    server.gate.hold(DISK, Kind::Flush);
    let running = session.submit(&sync(0)).unwrap();
    session.ping(b"running").unwrap();
    let waiting = session.submit(&sync(1)).unwrap();
    session.ping(b"waiting").unwrap();
    assert_eq!(session.manage(platter_tests::initiator::TaskFunction::AbortTask(waiting)).unwrap(), 0);
    assert!(matches!(session.next_event().unwrap(), Event::Aborted { tag } if tag == waiting));
    server.gate.release(DISK, Kind::Flush);
    let end = session.next_end().unwrap();
    assert!(end.tag == running && end.is_good(), "{end:?}");
}

fn is_poisoned(setup: &Setup) -> bool {
    disk_status(&setup.admin(), "d")["state"].as_str().is_some_and(|state| state.starts_with("POISONED"))
}

fn clear_fault(setup: &Setup) {
    let output = platter(&["clear-fault", "d", "--admin", &setup.admin().display().to_string()]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
