//! What a server does when the world around it fails: disks that are missing, file systems that are full, clients that
//! vanish, configurations that are wrong, and a stop in the middle of work.

use platter_tests::initiator::scsi::key;
use platter_tests::initiator::{Command, LoginOptions, Session};
use platter_tests::server_process::{ServerProcess, Setup, platter};
use std::path::Path;

const TARGET: &str = "iqn.2026-11.org.platter.test:bad-days";
const BLOCK: u32 = 512;

/// LUN 0 on `FOLDER/here`, LUN 1 on `FOLDER/away` without a size: a file that must be there by itself.
const ONE_MISSING: &str = "disks:
  here: { path: FOLDER/here, size: 16MiB }
  away: { path: FOLDER/away }
volumes:
  v0: { disk: here, hosts: { allow_any: true }, iscsi: { target: 'iqn.2026-11.org.platter.test:bad-days', lun: 0 } }
  v1: { disk: away, hosts: { allow_any: true }, iscsi: { target: 'iqn.2026-11.org.platter.test:bad-days', lun: 1 } }
";

fn session(server: &ServerProcess, isid: u32) -> Session {
    Session::login(server.address(), &LoginOptions::to(TARGET).with_isid(isid)).expect("the login is accepted")
}

fn write(lun: u16, lba: u64, blocks: u32) -> Command {
    Command::write(lun, lba, vec![0xa5; (blocks * BLOCK) as usize], BLOCK)
}

fn unit<'a>(status: &'a serde_json::Value, list: &str, name: &str) -> &'a serde_json::Value {
    let entries = status["shards"][0][list].as_array().expect("status lists them");
    entries.iter().find(|entry| entry["name"] == name).expect("the name is listed")
}

#[test]
fn a_missing_disk_is_not_ready_the_rest_serves_and_it_heals_when_it_appears() {
    let setup = Setup::new(ONE_MISSING);
    let server = setup.start();
    let mut session = session(&server, 1);
    session.ready(0).expect("the unit on the present disk is ready");
    assert!(session.execute(&write(0, 0, 8)).unwrap().is_good());

    // The first answer is the unit attention of the new nexus.
    let _ = session.execute(&Command::test_unit_ready(1)).unwrap();
    let end = session.execute(&Command::test_unit_ready(1)).unwrap();
    assert_eq!(end.sense_triple().map(|(key, asc, _)| (key, asc)), Some((key::NOT_READY, 0x04)));
    let end = session.execute(&write(1, 0, 8)).unwrap();
    assert_eq!(end.sense_triple().map(|(key, asc, _)| (key, asc)), Some((key::NOT_READY, 0x04)));
    let status = server.status();
    assert!(unit(&status, "disks", "away")["state"].as_str().unwrap().starts_with("missing: "));
    assert_eq!(unit(&status, "volumes", "v1")["ready"], false);
    assert_eq!(unit(&status, "volumes", "v0")["ready"], true);

    let from = server.log().len();
    let file = std::fs::File::create(setup.folder().join("away")).unwrap();
    file.set_len(8 << 20).unwrap();
    server.log().wait_for(from, &["disk is there", "away"]);
    session.ready(1).expect("the unit is ready once its disk is there");
    assert!(session.execute(&write(1, 0, 8)).unwrap().is_good());
    assert!(session.execute(&write(0, 0, 8)).unwrap().is_good());
    session.logout().unwrap();
    assert!(server.stop().success());
}

#[test]
fn a_full_file_system_is_data_protect_space_allocation_failed() {
    let setup = Setup::new(&format!(
        "disks: {{ d: {{ path: FOLDER/small/disk, size: 64MiB }} }}
volumes:
  v: {{ disk: d, hosts: {{ allow_any: true }}, iscsi: {{ target: '{TARGET}', lun: 0 }} }}
"
    ));
    let small = setup.folder().join("small");
    let Some(_mount) = SmallFileSystem::mount(&small) else {
        eprintln!("skipped: a file system of 4 MiB cannot be mounted here (needs root)");
        return;
    };
    let server = setup.start();
    let mut session = session(&server, 1);
    session.ready(0).unwrap();
    let mut full = None;
    for lba in (0..65536).step_by(2048) {
        let end = session.execute(&write(0, lba, 2048)).unwrap();
        if !end.is_good() {
            full = end.sense_triple();
            break;
        }
    }
    assert_eq!(full, Some((key::DATA_PROTECT, 0x27, 0x07)));
    assert!(session.execute(&Command::read(0, 0, 8, BLOCK)).unwrap().is_good(), "the session goes on");
    session.logout().unwrap();
    server.stop();
}

/// A tmpfs of 4 MiB, unmounted on drop.
struct SmallFileSystem<'a>(&'a Path);

impl<'a> SmallFileSystem<'a> {
    fn mount(at: &'a Path) -> Option<Self> {
        std::fs::create_dir_all(at).ok()?;
        let done = std::process::Command::new("mount").args(["-t", "tmpfs", "-o", "size=4m", "none"]).arg(at).status();
        done.is_ok_and(|status| status.success()).then_some(Self(at))
    }
}

impl Drop for SmallFileSystem<'_> {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(self.0).status();
    }
}

#[test]
fn a_client_that_vanishes_gives_its_memory_back_and_others_go_on() {
    let setup = Setup::new(ONE_MISSING);
    let server = setup.start();
    let mut stays = session(&server, 1);
    stays.ready(0).unwrap();
    for round in 0..20 {
        let mut vanishes = session(&server, 100 + round);
        vanishes.ready(0).unwrap();
        // A write of 1 MiB whose data never come in full: a buffer is held for them.
        vanishes.submit(&write(0, 4096, 2048)).unwrap();
        vanishes.flush().unwrap();
        let from = server.log().len();
        drop(vanishes);
        server.log().wait_for(from, &["session of", "ended"]);
        assert!(stays.execute(&write(0, u64::from(round), 1)).unwrap().is_good());
    }
    let status = server.status();
    assert_eq!(status["shards"][0]["memory_in_use"], 0);
    assert_eq!(status["shards"][0]["sessions"].as_array().unwrap().len(), 1);
    stays.logout().unwrap();
    assert!(server.stop().success());
}

#[test]
fn a_stop_in_the_middle_of_work_is_clean_and_what_was_acknowledged_is_there() {
    let setup = Setup::new(ONE_MISSING);
    let server = setup.start();
    let mut writer = session(&server, 1);
    writer.ready(0).unwrap();
    for lba in 0..64 {
        assert!(writer.execute(&write(0, lba, 1)).unwrap().is_good());
    }
    // The session is not logged out: the server asks for it, and ends all the same.
    assert!(server.stop().success());
    let bytes = std::fs::read(setup.folder().join("here")).unwrap();
    assert!(bytes[..64 * BLOCK as usize].iter().all(|&b| b == 0xa5));
}

#[test]
fn a_wrong_configuration_starts_nothing_and_says_where() {
    let setup = Setup::new("disks: { d: { path: FOLDER/disk, size: 1MiB, fuaa: native } }\nvolumes: {}\n");
    for command in ["serve", "check"] {
        let output = platter(&[command, setup.config().to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(2));
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.contains("platter.yaml:4:"), "{text}");
        assert!(text.contains("fuaa") && text.contains("fua"), "{text}");
    }
    assert!(!setup.folder().join("state").exists(), "nothing was started");
}

#[test]
fn an_initiator_that_is_not_listed_sees_no_target() {
    let setup = Setup::new(&format!(
        "disks: {{ d: {{ path: FOLDER/disk, size: 1MiB }} }}
volumes:
  v: {{ disk: d, hosts: {{ iqn: ['iqn.2026-11.org.platter.test:friend'] }}, iscsi: {{ target: '{TARGET}', lun: 0 }} }}
"
    ));
    let server = setup.start();
    let refused = Session::login(server.address(), &LoginOptions::to(TARGET)).unwrap_err();
    assert_eq!(refused.to_string(), platter_tests::initiator::Error::LoginRefused { class: 2, detail: 3 }.to_string());
    let mut discovery = Session::login(server.address(), &LoginOptions::discovery()).unwrap();
    assert_eq!(discovery.send_targets("All").unwrap(), []);
}
