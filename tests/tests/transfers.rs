//! What is written is read again, whatever was negotiated: by an initiator that checks every sequence number, offset, burst,
//! residual count and digest of the target.

use platter_tests::initiator::{Command, LoginOptions, Session, TaskFunction};
use platter_tests::server_process::{ServerProcess, Setup};

const TARGET: &str = "iqn.2026-11.org.platter.test:transfers";
const BLOCK: u32 = 512;

/// LUN 0 in memory, LUN 1 and LUN 300 (flat addressing) on files.
fn server(backend: &str) -> (Setup, ServerProcess) {
    let setup = Setup::new(&format!(
        "backend: {backend}
disks:
  memory: {{ memory: {{ size: 16MiB, volatile_cache: true }} }}
  file: {{ path: FOLDER/file, size: 16MiB }}
  other: {{ path: FOLDER/other, size: 16MiB }}
volumes:
  v0: {{ disk: memory, hosts: {{ allow_any: true }}, iscsi: {{ target: '{TARGET}', lun: 0 }} }}
  v1: {{ disk: file, hosts: {{ allow_any: true }}, iscsi: {{ target: '{TARGET}', lun: 1 }} }}
  v300: {{ disk: other, hosts: {{ allow_any: true }}, iscsi: {{ target: '{TARGET}', lun: 300 }} }}
"
    ));
    let server = setup.start();
    (setup, server)
}

/// Bytes that differ from block to block and from call to call.
fn pattern(len: usize, salt: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / BLOCK as usize + salt * 31) as u8).collect()
}

/// Writes and reads of many sizes around the limits of segments and bursts, one at a time.
fn transfer_all_sizes(session: &mut Session, lun: u16, salt: usize) {
    session.ready(lun).expect("the unit is ready");
    for (n, blocks) in [1, 8, 15, 16, 17, 64, 127, 128, 129, 512, 513, 2048, 4099].into_iter().enumerate() {
        let data = pattern(blocks * BLOCK as usize, salt + n);
        let wrote =
            session.execute(&Command::write(lun, 100, data.clone(), BLOCK)).expect("the target keeps to the protocol");
        assert!(wrote.is_good(), "{blocks} blocks: {wrote:?}");
        let read =
            session.execute(&Command::read(lun, 100, blocks as u32, BLOCK)).expect("the target keeps to the protocol");
        assert!(read.is_good() && read.data == data, "{blocks} blocks are not what was written");
    }
}

#[test]
fn every_combination_of_limits_carries_the_data() {
    for backend in ["uring", "threads"] {
        let (_setup, server) = server(backend);
        let mut salt = 0;
        for digests in [false, true] {
            for (immediate_data, initial_r2t) in [(true, true), (true, false), (false, true), (false, false)] {
                for (segment, first_burst, max_burst) in
                    [(512, 512, 512), (4096, 8192, 16384), (8192, 65536, 65536), (256 << 10, 64 << 10, 1 << 20)]
                {
                    let mut options = LoginOptions::to(TARGET);
                    if digests {
                        options = options.with_digests();
                    }
                    (options.immediate_data, options.initial_r2t) = (immediate_data, initial_r2t);
                    (options.max_recv_segment, options.first_burst, options.max_burst) =
                        (segment, first_burst, max_burst);
                    options.max_outstanding_r2t = 1 + salt as u32 % 4;
                    // The numbers wrap in the middle of the transfers.
                    options.first_cmd_sn = 0xffff_fff8;
                    let mut session = Session::login(server.address(), &options).unwrap();
                    let agreed = session.parameters();
                    assert_eq!((agreed.max_burst, agreed.first_burst), (max_burst, first_burst), "{options:?}");
                    for lun in [0, 1, 300] {
                        transfer_all_sizes(&mut session, lun, salt);
                    }
                    session.logout().unwrap();
                    salt += 1;
                }
            }
        }
        assert!(server.stop().success());
    }
}

#[test]
fn a_deep_queue_keeps_every_answer_apart() {
    for backend in ["uring", "threads"] {
        let (_setup, server) = server(backend);
        let mut session = Session::login(server.address(), &LoginOptions::to(TARGET).with_digests()).unwrap();
        for lun in [0, 1] {
            session.ready(lun).unwrap();
            for round in 0..4 {
                for n in 0..200 {
                    session.submit(&Command::write(lun, n * 16, pattern(8192, n as usize + round), BLOCK)).unwrap();
                }
                while session.in_flight() > 0 {
                    let end = session.next_end().unwrap();
                    assert!(end.is_good(), "{end:?}");
                }
                let tags: Vec<_> =
                    (0..200).map(|n| session.submit(&Command::read(lun, n * 16, 16, BLOCK)).unwrap()).collect();
                while session.in_flight() > 0 {
                    let end = session.next_end().unwrap();
                    let n = tags.iter().position(|tag| *tag == end.tag).expect("one of ours");
                    assert!(end.is_good() && end.data == pattern(8192, n + round), "read {n}");
                }
            }
        }
        session.logout().unwrap();
        assert!(server.stop().success());
    }
}

#[test]
fn data_from_one_lun_never_appear_on_another() {
    let (_setup, server) = server("auto");
    let mut session = Session::login(server.address(), &LoginOptions::to(TARGET)).unwrap();
    let luns = [0, 1, 300];
    for lun in luns {
        session.ready(lun).unwrap();
        let end = session.execute(&Command::write(lun, 7, vec![lun as u8 ^ 0x5a; 512], BLOCK)).unwrap();
        assert!(end.is_good());
    }
    for lun in luns {
        let read = session.execute(&Command::read(lun, 6, 3, BLOCK)).unwrap().data;
        let expected = [[0; 512], [lun as u8 ^ 0x5a; 512], [0; 512]].concat();
        assert!(read == expected, "LUN {lun}");
    }
}

#[test]
fn residual_counts_say_what_was_not_moved() {
    let (_setup, server) = server("auto");
    let mut session = Session::login(server.address(), &LoginOptions::to(TARGET)).unwrap();
    session.ready(0).unwrap();
    // The command wants 2 blocks; the header offers more, and less.
    for (offered, underflow, overflow) in [(1024, 0, 0), (1536, 512, 0), (512, 0, 512), (0, 0, 1024)] {
        let mut read = Command::read(0, 0, 2, BLOCK);
        read.transfer = platter_tests::initiator::Transfer::In(offered);
        let end = session.execute(&read).unwrap();
        assert!(end.is_good(), "{end:?}");
        assert_eq!((end.underflow, end.overflow, end.received), (underflow, overflow, offered.min(1024)));
    }
}

#[test]
fn after_a_lun_reset_the_session_goes_on() {
    let (_setup, server) = server("auto");
    let mut session = Session::login(server.address(), &LoginOptions::to(TARGET)).unwrap();
    transfer_all_sizes(&mut session, 1, 0);
    assert_eq!(session.manage(TaskFunction::LunReset(1)).unwrap(), 0);
    let attention = session.execute(&Command::test_unit_ready(1)).unwrap().sense_triple();
    assert_eq!(attention, Some((6, 0x29, 0x03)), "BUS DEVICE RESET FUNCTION OCCURRED");
    transfer_all_sizes(&mut session, 1, 1);
}

#[test]
fn discovery_names_the_target_and_where_it_listens() {
    let (_setup, server) = server("auto");
    let mut session = Session::login(server.address(), &LoginOptions::discovery()).unwrap();
    let answer = session.send_targets("All").unwrap();
    let expected = [("TargetName", TARGET.to_owned()), ("TargetAddress", format!("{},1", server.address()))];
    assert_eq!(answer, expected.map(|(key, value)| (key.to_owned(), value)));
    session.logout().unwrap();
}
