//! Where the parts of the server meet: sockets, shards, sessions, memory, disks, and the way down.

mod in_process;

use in_process::{InProcess, wait_until_released};
use platter_backends::Kind;
use platter_block::{DiskId, Status};
use platter_tests::initiator::pdu::{FINAL, Header, IMMEDIATE, NO_TAG, field, opcode};
use platter_tests::initiator::{Command, Error, LoginOptions, Session, TaskFunction, Transfer, Wire};
use platter_tests::server_process::{ServerProcess, Setup, free_address};
use std::io::Write;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

const BLOCK: u32 = 512;
const DISK: DiskId = DiskId(0);
const TARGET: &str = "iqn.2026-11.org.platter.test:seams";

fn memory_disk() -> Setup {
    Setup::new(&format!(
        "disks: {{ d: {{ memory: {{ size: 16MiB, volatile_cache: true }} }} }}
volumes:
  v: {{ disk: d, hosts: {{ allow_any: true }}, iscsi: {{ target: '{TARGET}', lun: 0 }} }}
"
    ))
}

fn file_disk() -> Setup {
    Setup::new(&format!(
        "disks: {{ d: {{ path: FOLDER/disk, size: 64MiB }} }}
volumes:
  v: {{ disk: d, hosts: {{ allow_any: true }}, iscsi: {{ target: '{TARGET}', lun: 0 }} }}
"
    ))
}

fn session(address: SocketAddr, isid: u32) -> Session {
    let mut session =
        Session::login(address, &LoginOptions::to(TARGET).with_isid(isid)).expect("the login is accepted");
    session.ready(0).expect("the unit is ready");
    session
}

fn good(session: &mut Session, command: &Command) {
    let end = session.execute(command).expect("the target keeps to the protocol");
    assert!(end.is_good(), "{end:?}");
}

/// Tells the others to stop, also when the test fails: they are waited for.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Sends NOP-Outs that want no answer, as fast as the server takes them, until told to stop.
fn flood(address: SocketAddr, isid: u32, sent: &AtomicU64, stop: &AtomicBool) {
    let mut session = session(address, isid);
    let nop = Header::new(opcode::NOP_OUT | IMMEDIATE, FINAL)
        .with(field::TASK_TAG, NO_TAG)
        .with(field::TRANSFER_TAG, NO_TAG)
        .with(field::CMD_SN, session.next_cmd_sn());
    let many = nop.0.repeat(2048);
    let mut stream = session.wire().stream();
    while !stop.load(Ordering::Relaxed) {
        stream.write_all(&many).expect("pings are taken");
        sent.fetch_add(many.len() as u64, Ordering::Relaxed);
    }
}

#[test]
fn a_peer_that_never_stops_sending_keeps_nobody_waiting() {
    /// What two peers may get in while another logs in and reads: far more than sockets hold, far less than they could send
    /// if the server came to the others only when they pause.
    const MOST: u64 = 512 << 20;
    let setup = memory_disk();
    let server = setup.start();
    let address = server.address();
    let (sent, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let took = thread::scope(|scope| {
        let _stop = StopAtEnd(&stop);
        for isid in 2..4 {
            let (sent, stop) = (&sent, &stop);
            scope.spawn(move || flood(address, isid, sent, stop));
        }
        while sent.load(Ordering::Relaxed) < 64 << 20 {
            thread::yield_now();
        }
        let before = sent.load(Ordering::Relaxed);
        let mut session = session(address, 1);
        for _ in 0..10 {
            good(&mut session, &Command::read(0, 0, 8, BLOCK));
        }
        sent.load(Ordering::Relaxed) - before
    });
    assert!(took < MOST, "two peers had {took} bytes taken before the third was through");
}

/// Two disks that share nothing, on two shards, each behind a target of its own.
fn two_shards() -> Setup {
    let mut body = String::from("shards: 2\ndisks:\n");
    for d in 0..2 {
        body += &format!("  d{d}: {{ memory: {{ size: 16MiB, volatile_cache: true }} }}\n");
    }
    body += "volumes:\n";
    for d in 0..2 {
        body += &format!(
            "  v{d}: {{ disk: d{d}, hosts: {{ allow_any: true }}, iscsi: {{ target: '{TARGET}-{d}', lun: 0 }} }}\n"
        );
    }
    Setup::new(&body)
}

#[test]
fn a_login_goes_to_the_shard_of_its_target_with_digests_and_all_that_was_sent_behind_it() {
    let setup = two_shards();
    let server = setup.start();
    for target in 0..2 {
        let name = format!("{TARGET}-{target}");
        for digests in [false, true] {
            for isid in 0..10 {
                let options = LoginOptions::to(&name).with_isid(isid);
                let options = if digests { options.with_digests() } else { options };
                let mut session = Session::login(server.address(), &options).expect("the login is accepted");
                session.ready(0).expect("the unit is ready");
                let data = vec![target as u8 + 1; 256 << 10];
                good(&mut session, &Command::write(0, 0, data.clone(), BLOCK));
                let end = session.execute(&Command::read(0, 0, 512, BLOCK)).expect("protocol");
                assert!(end.is_good() && end.data == data);
            }
        }
        // The whole login and a ping in one piece: what is behind the login waits until it has got there.
        let options = LoginOptions::to(&name).with_isid(99);
        let mut wire = Wire::connect(server.address(), options.timeout).expect("the server listens");
        let mut login = options.first_header();
        login.0[1] = FINAL | 1 << 2 | 3;
        let text: Vec<u8> = options
            .security_keys()
            .iter()
            .filter(|(k, _)| *k != "AuthMethod")
            .flat_map(|(k, v)| format!("{k}={v}\0").into_bytes())
            .collect();
        wire.queue(login, &text);
        let ping = Header::new(opcode::NOP_OUT | IMMEDIATE, FINAL)
            .with(field::TASK_TAG, 7)
            .with(field::TRANSFER_TAG, NO_TAG)
            .with(field::CMD_SN, login.get(field::CMD_SN));
        for _ in 0..100 {
            wire.queue(ping, b"behind");
        }
        wire.flush().expect("sent");
        let answer = wire.recv().expect("a login response");
        assert_eq!((answer.header.opcode(), answer.header.0[36]), (opcode::LOGIN_RESPONSE, 0));
        for _ in 0..100 {
            let pong = wire.recv().expect("a pong");
            assert_eq!((pong.header.opcode(), &pong.data[..]), (opcode::NOP_IN, &b"behind"[..]));
        }
    }
    assert!(server.stop().success());
}

#[test]
fn concurrent_compare_and_writes_of_many_sessions_lose_no_increment() {
    const EACH: u64 = 300;
    for setup in [memory_disk(), file_disk()] {
        let server = setup.start();
        let address = server.address();
        thread::scope(|scope| {
            for isid in 0..4 {
                scope.spawn(move || {
                    let mut session = session(address, isid);
                    for _ in 0..EACH {
                        loop {
                            let old = session.execute(&Command::read(0, 8, 1, BLOCK)).expect("protocol").data;
                            let count = u64::from_be_bytes(old[..8].try_into().unwrap()) + 1;
                            let mut new = old.clone();
                            new[..8].copy_from_slice(&count.to_be_bytes());
                            new[8..16].copy_from_slice(&u64::from(isid).to_be_bytes());
                            let mut cdb = [0; 16];
                            (cdb[0], cdb[9], cdb[13]) = (0x89, 8, 1);
                            let both: Vec<u8> = [old, new].concat();
                            let caw = Command::new(0, &cdb, Transfer::Out(both.into()));
                            let end = session.execute(&caw).expect("protocol");
                            if end.is_good() {
                                break;
                            }
                            assert_eq!(end.sense_triple(), Some((0x0e, 0x1d, 0)), "MISCOMPARE");
                        }
                    }
                });
            }
        });
        let mut session = session(address, 9);
        let end = session.execute(&Command::read(0, 8, 1, BLOCK)).expect("protocol");
        assert_eq!(u64::from_be_bytes(end.data[..8].try_into().unwrap()), 4 * EACH);
    }
}

/// What the shard says of the memory of its buffers, once its connections are gone.
fn memory_in_use_when_idle(server: &ServerProcess) -> u64 {
    loop {
        let shard = &server.status()["shards"][0];
        if shard["connections"] == 0 {
            return shard["memory_in_use"].as_u64().expect("a number");
        }
        thread::yield_now();
    }
}

fn write(lba: u64, byte: u8) -> Command {
    Command::write(0, lba, vec![byte; BLOCK as usize], BLOCK)
}

#[test]
fn a_late_write_of_an_ended_command_cannot_overwrite_newer_data() {
    #[derive(Debug)]
    enum Ends {
        Reinstatement,
        AbortTask,
        LunReset,
    }
    let setup = file_disk();
    let server = InProcess::start(&setup);
    for ends in [Ends::Reinstatement, Ends::AbortTask, Ends::LunReset] {
        let mut old = session(server.address(), 1);
        server.gate.hold(DISK, Kind::Write);
        let tag = old.submit(&write(16, 0xaa)).expect("sent");
        old.flush().expect("sent");
        while server.gate.held(DISK, Kind::Write) < 1 {
            thread::yield_now();
        }
        // Each of these is answered although the disk has not ended the write.
        let mut new = match ends {
            Ends::Reinstatement => session(server.address(), 1),
            Ends::AbortTask => {
                assert_eq!(old.manage(TaskFunction::AbortTask(tag)).expect("answered"), 0);
                session(server.address(), 2)
            }
            Ends::LunReset => {
                assert_eq!(old.manage(TaskFunction::LunReset(0)).expect("answered"), 0);
                session(server.address(), 2)
            }
        };
        let newer = new.submit(&write(16, 0xbb)).expect("sent");
        good(&mut new, &Command::read(0, 100, 1, BLOCK));
        assert_eq!(server.gate.held(DISK, Kind::Write), 1, "{ends:?}: the newer write waits for the old one");
        server.gate.release(DISK, Kind::Write);
        let end = new.next_end().expect("the target keeps to the protocol");
        assert!(end.tag == newer && end.is_good());
        let end = new.execute(&Command::read(0, 16, 1, BLOCK)).expect("the target keeps to the protocol");
        assert!(end.data.iter().all(|&byte| byte == 0xbb), "{ends:?}");
    }
    assert!(server.stop());
}

#[test]
fn a_stop_beside_a_stuck_disk_ends_and_tells_whether_what_was_acknowledged_is_durable() {
    for (kind, clean) in [(Kind::Read, true), (Kind::Write, true), (Kind::Flush, false)] {
        let setup = file_disk();
        let server = InProcess::start(&setup);
        let mut session = session(server.address(), 1);
        good(&mut session, &write(0, 1));
        server.gate.hold(DISK, kind);
        for command in [write(16, 2), Command::read(0, 16, 1, BLOCK), Command::synchronize_cache(0)] {
            session.submit(&command).expect("sent");
        }
        session.flush().expect("sent");
        while server.gate.held(DISK, kind) < 1 {
            thread::yield_now();
        }
        assert_eq!(server.stop(), clean, "{kind:?}");
        wait_until_released(&setup);
    }
}

#[test]
fn a_stop_is_not_called_clean_while_a_missing_disk_owes_what_was_acknowledged() {
    let setup = file_disk();
    let server = InProcess::start(&setup);
    let mut session = session(server.address(), 1);
    good(&mut session, &write(0, 1));
    // The disk goes, with what its cache holds, and is not found again.
    std::fs::remove_file(setup.folder().join("disk")).expect("the file is there");
    server.disk.fail_nth(DISK, Kind::Read, 1, Status::Gone);
    let end = session.execute(&Command::read(0, 0, 1, BLOCK)).expect("the target keeps to the protocol");
    assert!(!end.is_good());
    drop(session);
    assert!(!server.stop(), "an acknowledged write is gone");
}

#[test]
fn a_peer_that_takes_all_memory_and_sends_no_data_hurts_nobody_once_it_is_gone() {
    const TASK_SET_FULL: u8 = 0x28;
    let setup = Setup::new(&format!(
        "memory: 16MiB
disks: {{ d: {{ memory: {{ size: 64MiB, volatile_cache: true }} }} }}
volumes:
  v: {{ disk: d, hosts: {{ allow_any: true }}, iscsi: {{ target: '{TARGET}', lun: 0 }} }}
"
    ));
    let server = setup.start();
    let mut greedy = session(server.address(), 1);
    for n in 0..20 {
        let mut write = Header::new(opcode::COMMAND, FINAL | 0x20)
            .with(field::TASK_TAG, n)
            .with(field::EXPECTED_LENGTH, 1 << 20)
            .with(field::CMD_SN, greedy.next_cmd_sn() + n);
        write.0[32..42].copy_from_slice(&[0x2a, 0, 0, 0, 0, 0, 0, 0x08, 0, 0]);
        greedy.wire().queue(write, &[]);
    }
    greedy.wire().flush().expect("sent");
    let answers: Vec<_> = (0..20).map(|_| greedy.wire().recv().expect("an R2T or a response").header).collect();
    let full = answers.iter().filter(|a| (a.opcode(), a.0[3]) == (opcode::RESPONSE, TASK_SET_FULL)).count();
    let asked = answers.iter().filter(|a| a.opcode() == opcode::R2T).count();
    assert_eq!((asked, full), (16, 4));

    let mut other = session(server.address(), 2);
    let read = Command::read(0, 0, 2048, BLOCK);
    assert_eq!(other.execute(&read).expect("the target keeps to the protocol").status, TASK_SET_FULL);
    other.ping(b"").expect("a pong");
    drop(greedy);
    while other.execute(&read).expect("the target keeps to the protocol").status == TASK_SET_FULL {}

    // Much more than sockets hold: the replies wait for a reader.
    let mut slow = session(server.address(), 3);
    let reads: Vec<_> = (0..100).map(|_| slow.submit(&read).expect("sent")).collect();
    slow.flush().expect("sent");
    for _ in 0..20 {
        good(&mut other, &Command::read(0, 0, 8, BLOCK));
    }
    for _ in reads {
        let end = slow.next_end().expect("the target keeps to the protocol");
        assert!(end.is_good() || end.status == TASK_SET_FULL, "{end:?}");
    }
    drop((slow, other));
    assert_eq!(memory_in_use_when_idle(&server), 0);
    assert!(server.stop().success());
}

#[test]
fn sessions_that_reset_each_other_under_load_are_all_answered_and_leave_nothing() {
    let setup = file_disk();
    let server = setup.start();
    let address = server.address();
    thread::scope(|scope| {
        for isid in 0..3 {
            scope.spawn(move || {
                for _ in 0..10 {
                    let options = LoginOptions::to(TARGET).with_isid(isid);
                    let mut session = Session::login(address, &options).expect("the login is accepted");
                    for round in 0..10 {
                        for lba in 0..8 {
                            session.submit(&write(lba, round as u8)).expect("sent");
                        }
                        session.flush().expect("sent");
                        match (round + isid) % 4 {
                            0 => assert_eq!(session.manage(TaskFunction::TargetWarmReset).expect("answered"), 0),
                            2 => assert_eq!(session.manage(TaskFunction::LunReset(0)).expect("answered"), 0),
                            // Commands that another's reset ended have no end of their own: nobody waits for them.
                            _ => session.ping(b"there").expect("a pong"),
                        }
                    }
                }
            });
        }
    });
    assert_eq!(memory_in_use_when_idle(&server), 0);
    assert!(server.stop().success());
}

#[test]
fn a_target_cannot_be_used_through_a_portal_that_it_is_not_given_to() {
    let other = free_address();
    let setup = memory_disk();
    let text = std::fs::read_to_string(setup.config()).expect("the setup wrote it");
    let text = text.replace("portals: { main:", &format!("portals: {{ other: {{ listen: '{other}' }}, main:"));
    std::fs::write(setup.config(), text.replace("lun: 0 }", "lun: 0, portals: [main] }")).expect("written");
    let server = setup.start();
    session(server.address(), 1);
    let refused = Session::login(other, &LoginOptions::to(TARGET)).err();
    assert!(matches!(refused, Some(Error::LoginRefused { class: 2, detail: 3 })), "{refused:?}");
}
