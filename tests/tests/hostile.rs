//! Hostile peers at the live server: each attack runs beside a healthy session that must notice nothing, and leaves a log line
//! that names the peer and what was wrong.

use platter_tests::initiator::pdu::{FINAL, Header, IMMEDIATE, NO_TAG, field, opcode};
use platter_tests::initiator::scsi::Transfer;
use platter_tests::initiator::{Command, Error, LoginOptions, RawPdu, Session, Wire};
use platter_tests::server_process::{ServerProcess, Setup};
use platter_tests::sim::rng::Rng;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const TARGET: &str = "iqn.2026-11.org.platter.test:hostile";
const BLOCK: u32 = 512;
const PATIENCE: Duration = Duration::from_secs(30);
/// Pause between two looks at a server that is cleaning up.
const RETRY: Duration = Duration::from_millis(10);
/// Blocks below this are the healthy session's.
const HEALTHY_BLOCKS: u64 = 1024;
/// Payload memory of the server, in bytes.
const MEMORY: u64 = 64 << 20;

/// A server and a session that works while the attack goes on.
struct Scene {
    server: ServerProcess,
    healthy: Healthy,
    _setup: Setup,
}

impl Scene {
    fn new() -> Self {
        let setup = Setup::new(&format!(
            "memory: {MEMORY}
disks: {{ d: {{ memory: {{ size: 64MiB, volatile_cache: true }} }} }}
volumes:
  v: {{ disk: d, hosts: {{ allow_any: true }}, iscsi: {{ target: '{TARGET}', lun: 0 }} }}
"
        ));
        let server = setup.start();
        let healthy = Healthy::start(&server);
        Self { server, healthy, _setup: setup }
    }

    fn connect(&self) -> Wire {
        Wire::connect(self.server.address(), PATIENCE).expect("the server accepts connections")
    }

    fn login(&self, options: &LoginOptions) -> Session {
        let mut session = Session::login(self.server.address(), options).expect("the login is accepted");
        session.ready(0).expect("the unit is ready");
        session
    }

    /// Waits for the log line about `wire` that says `words`.
    fn logged(&self, wire: &Wire, words: &[&str]) -> String {
        let peer = wire.local_address().expect("a connected socket has an address").to_string();
        self.server.log().wait_for(0, &[&[peer.as_str()], words].concat())
    }

    /// The healthy session has worked on after the attack and saw nothing but success.
    fn unharmed(self) {
        self.healthy.works_on(&self.server);
        self.healthy.finish();
    }
}

/// Writes, reads back and flushes, one command at a time, until told to stop.
struct Healthy {
    rounds: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Healthy {
    fn start(server: &ServerProcess) -> Self {
        let (rounds, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (counted, stopped) = (rounds.clone(), stop.clone());
        let options = LoginOptions::to(TARGET).with_isid(1).with_digests();
        let mut session = Session::login(server.address(), &options).expect("the login is accepted");
        let thread = std::thread::spawn(move || {
            session.ready(0).expect("the unit is ready");
            while !stopped.load(Ordering::Acquire) {
                let round = counted.fetch_add(1, Ordering::AcqRel);
                let data: Vec<u8> = (0..8 * u64::from(BLOCK)).map(|i| (i * 7 + round) as u8).collect();
                let lba = round * 8 % HEALTHY_BLOCKS;
                let wrote = session.execute(&Command::write(0, lba, data.clone(), BLOCK)).expect("write");
                assert!(wrote.is_good(), "{wrote:?}");
                let read = session.execute(&Command::read(0, lba, 8, BLOCK)).expect("read");
                assert!(read.is_good() && read.data == data, "block {lba} is not what was written");
                let flushed = session.execute(&Command::synchronize_cache(0)).expect("flush");
                assert!(flushed.is_good(), "{flushed:?}");
            }
            session.logout().expect("logout");
        });
        Self { rounds, stop, thread }
    }

    /// Waits for some more rounds.
    fn works_on(&self, server: &ServerProcess) {
        let (from, started) = (self.rounds.load(Ordering::Acquire), Instant::now());
        while self.rounds.load(Ordering::Acquire) < from + 20 {
            assert!(!self.thread.is_finished(), "the healthy session failed; its panic is above");
            assert!(started.elapsed() < PATIENCE, "the healthy session stands still:\n{}", server.log().tail());
            std::thread::sleep(RETRY);
        }
    }

    fn finish(self) {
        self.stop.store(true, Ordering::Release);
        self.thread.join().expect("the healthy session saw nothing");
    }
}

/// What the target still says before it closes the connection, which it must do.
fn until_closed(wire: &mut Wire) -> Vec<RawPdu> {
    let mut said = Vec::new();
    loop {
        match wire.recv() {
            Ok(pdu) => said.push(pdu),
            Err(Error::Closed) => return said,
            Err(e) => panic!("not closed, but: {e}"),
        }
    }
}

/// Sends bytes as they are. The server may close before they are all out.
fn throw(wire: &mut Wire, bytes: &[u8]) {
    wire.queue_bytes(bytes);
    match wire.flush() {
        Ok(()) | Err(Error::Closed) => {}
        Err(e) => panic!("{e}"),
    }
}

/// The header of a SCSI command outside of [`Session::submit`], next in its session.
fn command_header(session: &Session, command: &Command, tag: u32) -> Header {
    let direction = match command.transfer {
        Transfer::None => 0,
        Transfer::In(_) => 0x40,
        Transfer::Out(_) => 0x20,
    };
    let mut header = Header::new(opcode::COMMAND, FINAL | direction | 1)
        .with(field::TASK_TAG, tag)
        .with(field::EXPECTED_LENGTH, command.transfer.len())
        .with(field::CMD_SN, session.next_cmd_sn())
        .with(field::EXP_STAT_SN, session.exp_stat_sn());
    header.0[32..48].copy_from_slice(&command.cdb);
    header
}

fn digest(bytes: &[u8]) -> [u8; 4] {
    crc32c::crc32c(bytes).to_le_bytes()
}

/// Waits until `holds`, for what the server does after the fact.
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(RETRY);
    }
}

fn connections(server: &ServerProcess) -> u64 {
    server.status()["shards"][0]["connections"].as_u64().expect("a number")
}

fn memory_in_use(server: &ServerProcess) -> u64 {
    server.status()["shards"][0]["memory_in_use"].as_u64().expect("a number")
}

/// An orderly close would send the rest first; this does not.
fn reset(wire: &Wire) {
    rustix::net::sockopt::set_socket_linger(wire.stream(), Some(Duration::ZERO)).expect("a socket has this option");
}

#[test]
fn a_login_that_trickles_in_is_cut_off_by_a_deadline_for_the_whole_of_it() {
    let scene = Scene::new();
    let mut wire = scene.connect();
    let header = LoginOptions::to(TARGET).first_header();
    // 48 bytes at one a second would take three times as long as a login may.
    let mut sent = 0;
    for byte in header.0 {
        if wire.stream().write_all(&[byte]).is_err() {
            break;
        }
        sent += 1;
        wire.stream().set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        match wire.recv() {
            Err(Error::TimedOut) => {}
            Err(Error::Closed) => break,
            other => panic!("{other:?}"),
        }
    }
    assert!(sent < header.0.len(), "the login was never cut off");
    scene.logged(&wire, &["login took too long"]);
    scene.unharmed();
}

#[test]
fn bytes_that_are_no_iscsi_are_not_answered_and_the_log_says_what_they_were() {
    let scene = Scene::new();
    let mut rng = Rng::new(3260);
    let noise: Vec<u8> = (0..4096).map(|n| if n == 0 { 0x1f } else { rng.word() as u8 }).collect();
    let hello = [&[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3][..], &[0x5a; 506]].concat();
    let request = b"GET / HTTP/1.1\r\nHost: target\r\nUser-Agent: a-browser\r\nAccept: */*\r\n\r\n";
    // Whatever stands where a header has its fields: the first one that is wrong is named.
    for (bytes, field) in
        [(&noise[..], "opcode 0x1f"), (&hello[..], "DataSegmentLength"), (&request[..], "opcode 0x07")]
    {
        let mut wire = scene.connect();
        throw(&mut wire, bytes);
        assert_eq!(until_closed(&mut wire), []);
        scene.logged(&wire, &["connection dropped", field]);
    }
    scene.unharmed();
}

#[test]
fn a_command_before_the_login_is_refused_by_status() {
    let scene = Scene::new();
    let mut wire = scene.connect();
    wire.send(Header::new(opcode::COMMAND, FINAL), &[]).unwrap();
    let said = until_closed(&mut wire);
    assert_eq!(said.len(), 1, "{said:?}");
    assert_eq!(
        (said[0].header.opcode(), said[0].header.0[36], said[0].header.0[37]),
        (opcode::LOGIN_RESPONSE, 2, 0x0b)
    );
    scene.logged(&wire, &["020bh"]);
    scene.unharmed();
}

#[test]
fn a_data_segment_longer_than_was_declared_is_refused_before_it_is_read() {
    let scene = Scene::new();
    let base = scene.server.usage().resident;
    for len in [8193, (1 << 24) - 1] {
        let mut wire = scene.connect();
        let mut header = LoginOptions::to(TARGET).first_header();
        header.set_data_len(len);
        throw(&mut wire, &header.0);
        until_closed(&mut wire);
        scene.logged(&wire, &["DataSegmentLength", &len.to_string()]);
    }
    for isid in 0..4 {
        let mut session = scene.login(&LoginOptions::to(TARGET).with_isid(10 + isid));
        let mut header = command_header(&session, &Command::write(0, 2048, vec![0; 512], BLOCK), 1);
        header.set_data_len((1 << 24) - 1);
        throw(session.wire(), &header.0);
        until_closed(session.wire());
        scene.logged(session.wire(), &["DataSegmentLength", "16777215"]);
    }
    let grown = scene.server.usage().resident.saturating_sub(base);
    assert!(grown < 8 << 20, "memory grew by {grown} bytes for segments that were refused");
    scene.unharmed();
}

#[test]
fn a_wrong_header_digest_ends_the_connection_without_an_answer() {
    let scene = Scene::new();
    let mut session = scene.login(&LoginOptions::to(TARGET).with_isid(2).with_digests());
    let header = command_header(&session, &Command::test_unit_ready(0), 1);
    let mut wrong = digest(&header.0);
    wrong[0] ^= 1;
    throw(session.wire(), &[&header.0[..], &wrong].concat());
    assert_eq!(until_closed(session.wire()), []);
    scene.logged(session.wire(), &["header digest"]);
    scene.unharmed();
}

#[test]
fn a_wrong_data_digest_writes_nothing_and_the_command_may_be_sent_again() {
    let scene = Scene::new();
    let mut session = scene.login(&LoginOptions::to(TARGET).with_isid(2).with_digests());
    let (old, new) = ([0xaa; 512], [0xbb; 512]);
    assert!(session.execute(&Command::write(0, 2048, old.to_vec(), BLOCK)).unwrap().is_good());
    let write = Command::write(0, 2048, new.to_vec(), BLOCK);
    let mut header = command_header(&session, &write, 0x7000_0001);
    header.set_data_len(new.len());
    let mut wrong = digest(&new);
    wrong[3] ^= 0x80;
    throw(session.wire(), &[&header.0[..], &digest(&header.0), &new, &wrong].concat());
    let reject = session.wire().recv().unwrap();
    assert_eq!((reject.header.opcode(), reject.header.0[2]), (opcode::REJECT, 0x02), "{reject:?}");
    assert_eq!(reject.data[..48], header.0, "the rejected header comes back");
    scene.logged(session.wire(), &["rejected", "data digest"]);

    // The CmdSN was not taken: the same command again fills its place.
    let again = [&header.0[..], &digest(&header.0), &new, &digest(&new)].concat();
    let mut other = scene.login(&LoginOptions::to(TARGET).with_isid(3));
    assert_eq!(other.execute(&Command::read(0, 2048, 1, BLOCK)).unwrap().data, old);
    throw(session.wire(), &again);
    let response = session.wire().recv().unwrap().header;
    assert_eq!((response.opcode(), response.0[2], response.0[3]), (opcode::RESPONSE, 0, 0), "{response:?}");
    assert_eq!(other.execute(&Command::read(0, 2048, 1, BLOCK)).unwrap().data, new);
    scene.unharmed();
}

#[test]
fn a_data_out_with_a_transfer_tag_that_was_not_given_is_rejected_and_the_write_goes_on() {
    let scene = Scene::new();
    let mut options = LoginOptions::to(TARGET).with_isid(2);
    options.immediate_data = false;
    let mut session = scene.login(&options);
    let data = vec![0xcc; 4096];
    let tag = 0x7000_0001;
    let header = command_header(&session, &Command::write(0, 2048, data.clone(), BLOCK), tag);
    session.wire().send(header, &[]).unwrap();
    let r2t = session.wire().recv().unwrap().header;
    assert_eq!((r2t.opcode(), r2t.get(field::DESIRED_LENGTH)), (opcode::R2T, 4096));
    let transfer_tag = r2t.get(field::TRANSFER_TAG);
    let data_out = Header::new(opcode::DATA_OUT, FINAL).with(field::TASK_TAG, tag);
    for stray in [transfer_tag.wrapping_add(1), transfer_tag ^ 0x8000_0000, transfer_tag.wrapping_sub(3)] {
        session.wire().send(data_out.with(field::TRANSFER_TAG, stray), &data).unwrap();
        let reject = session.wire().recv().unwrap().header;
        assert_eq!((reject.opcode(), reject.0[2]), (opcode::REJECT, 0x09), "{stray:08x}: {reject:?}");
    }
    scene.logged(session.wire(), &["rejected", "Target Transfer Tag"]);
    session.wire().send(data_out.with(field::TRANSFER_TAG, transfer_tag), &data).unwrap();
    let response = session.wire().recv().unwrap().header;
    assert_eq!((response.opcode(), response.0[2], response.0[3]), (opcode::RESPONSE, 0, 0), "{response:?}");
    let mut other = scene.login(&LoginOptions::to(TARGET).with_isid(3));
    assert_eq!(other.execute(&Command::read(0, 2048, 8, BLOCK)).unwrap().data, data);
    scene.unharmed();
}

#[test]
fn a_session_in_one_byte_segments_works() {
    let scene = Scene::new();
    let mut session = scene.login(&LoginOptions::to(TARGET).with_isid(2));
    let data: Vec<u8> = (0..512).map(|i| i as u8).collect();
    let mut header = command_header(&session, &Command::write(0, 2048, data.clone(), BLOCK), 1);
    header.set_data_len(data.len());
    for byte in [&header.0[..], &data].concat() {
        session.wire().stream().write_all(&[byte]).unwrap();
    }
    let response = session.wire().recv().unwrap().header;
    assert_eq!((response.opcode(), response.0[2], response.0[3]), (opcode::RESPONSE, 0, 0), "{response:?}");
    scene.unharmed();
}

#[test]
fn a_reset_in_the_middle_of_a_writes_data_writes_nothing_and_frees_everything() {
    const BLOCKS: u32 = 512;
    let scene = Scene::new();
    let mut other = scene.login(&LoginOptions::to(TARGET).with_isid(3));
    let old: Vec<u8> = (0..BLOCKS * BLOCK).map(|i| (i * 3) as u8).collect();
    assert!(other.execute(&Command::write(0, 2048, old.clone(), BLOCK)).unwrap().is_good());
    for (isid, pieces) in (10..).zip([0, 1, 3, 7]) {
        let mut options = LoginOptions::to(TARGET).with_isid(isid);
        options.immediate_data = false;
        let mut session = scene.login(&options);
        let data = vec![0xee; (BLOCKS * BLOCK) as usize];
        let header = command_header(&session, &Command::write(0, 2048, data.clone(), BLOCK), 1);
        session.wire().send(header, &[]).unwrap();
        let r2t = session.wire().recv().unwrap().header;
        assert_eq!(r2t.get(field::DESIRED_LENGTH) as usize, data.len());
        let piece = data.len() / 8;
        for n in 0..pieces {
            let data_out = Header::new(opcode::DATA_OUT, 0)
                .with(field::TASK_TAG, 1)
                .with(field::TRANSFER_TAG, r2t.get(field::TRANSFER_TAG))
                .with(field::DATA_SN, n)
                .with(field::BUFFER_OFFSET, n * piece as u32);
            session.wire().send(data_out, &data[..piece]).unwrap();
        }
        // And half of the next one.
        let mut cut = Header::new(opcode::DATA_OUT, 0).with(field::TASK_TAG, 1);
        cut.set_data_len(piece);
        throw(session.wire(), &[&cut.0[..], &data[..piece / 2]].concat());
        reset(session.wire());
        let tsih = session.parameters().tsih;
        drop(session);
        scene.server.log().wait_for(0, &["session of", &format!("TSIH {tsih},"), "ended"]);
        let read = other.execute(&Command::read(0, 2048, BLOCKS, BLOCK)).unwrap();
        assert!(read.is_good() && read.data == old, "half a write was written");
    }
    drop(other);
    let Scene { server, healthy, _setup } = scene;
    healthy.works_on(&server);
    healthy.finish();
    eventually("all payload memory is free", || memory_in_use(&server) == 0);
}

#[test]
fn clients_that_never_read_leave_the_memory_to_others() {
    let scene = Scene::new();
    // Many commands, and few that are large: each client asks for more than its share of the memory.
    let deaf: Vec<Session> = [(120, 512), (120, 512), (120, 512), (40, 8192)]
        .into_iter()
        .zip(10..)
        .map(|((commands, blocks), isid)| {
            let mut session = scene.login(&LoginOptions::to(TARGET).with_isid(isid));
            // Little is taken off the server's hands by the sockets between us.
            rustix::net::sockopt::set_socket_recv_buffer_size(session.wire().stream(), 4096).unwrap();
            let read = Command::read(0, 2048, blocks, BLOCK);
            let mut burst = Vec::new();
            for tag in 0..commands {
                let mut header = command_header(&session, &read, tag);
                header.set(field::CMD_SN, session.next_cmd_sn().wrapping_add(tag));
                burst.extend_from_slice(&header.0);
            }
            throw(session.wire(), &burst);
            session
        })
        .collect();
    // Some rounds, so that the server has had the time to go as far as it will.
    for _ in 0..5 {
        scene.healthy.works_on(&scene.server);
    }
    let mut other = scene.login(&LoginOptions::to(TARGET).with_isid(3));
    for command in [Command::read(0, 2048, 512, BLOCK), Command::write(0, 2048, vec![7; 256 << 10], BLOCK)] {
        let end = other.execute(&command).unwrap();
        assert!(end.is_good(), "{end:?} with {} of {MEMORY} bytes held", memory_in_use(&scene.server));
    }
    drop((deaf, other));
    let Scene { server, healthy, _setup } = scene;
    healthy.works_on(&server);
    healthy.finish();
    eventually("all payload memory is free", || memory_in_use(&server) == 0);
}

#[test]
fn two_thousand_connections_that_come_and_go_leave_nothing_behind() {
    let scene = Scene::new();
    let churn = |from: u32, to: u32| {
        for n in from..to {
            let options = LoginOptions::to(TARGET).with_isid(100 + n % 50);
            match n % 5 {
                0 => drop(scene.connect()),
                1 => throw(&mut scene.connect(), &options.first_header().0[..20]),
                2 => {
                    // A login that is accepted or, in a burst, not yet: nobody waits for the answer.
                    let mut wire = scene.connect();
                    let text = platter_tests::initiator::keys::encode([("InitiatorName", "iqn.2026-11.org.x:y")]);
                    wire.queue(options.first_header(), &text);
                    let _ = wire.flush();
                    reset(&wire);
                }
                3 => drop(Session::login(scene.server.address(), &options).expect("the login is accepted")),
                _ => {
                    let mut session = Session::login(scene.server.address(), &options).expect("the login is accepted");
                    session.submit(&Command::read(0, 2048, 512, BLOCK)).unwrap();
                    session.flush().unwrap();
                    reset(session.wire());
                }
            }
        }
        eventually("only the healthy connection is left", || connections(&scene.server) == 1);
    };
    // First the caches of the allocator and of the runtime fill.
    churn(0, 500);
    let base = scene.server.usage();
    churn(500, 2500);
    eventually("descriptors are back at their base", || scene.server.usage().descriptors <= base.descriptors);
    let grown = scene.server.usage().resident.saturating_sub(base.resident);
    assert!(grown < 4 << 20, "memory grew by {grown} bytes over 2,000 connections");
    scene.unharmed();
}

#[test]
fn a_flood_of_immediate_commands_is_limited_and_ends() {
    let scene = Scene::new();
    let mut session = scene.login(&LoginOptions::to(TARGET).with_isid(2));
    let mut flood = Vec::new();
    for tag in 0..1000 {
        let mut header = command_header(&session, &Command::test_unit_ready(0), tag);
        header.0[0] |= IMMEDIATE;
        flood.extend_from_slice(&header.0);
    }
    throw(session.wire(), &flood);
    // Each is answered or rejected, in whatever number.
    for _ in 0..1000 {
        let answer = session.wire().recv().unwrap().header;
        let rejected = answer.opcode() == opcode::REJECT && answer.0[2] == 0x06;
        assert!(answer.opcode() == opcode::RESPONSE || rejected, "{answer:?}");
    }
    let ping = Header::new(opcode::NOP_OUT | IMMEDIATE, FINAL)
        .with(field::TASK_TAG, 5)
        .with(field::TRANSFER_TAG, NO_TAG)
        .with(field::CMD_SN, session.next_cmd_sn());
    session.wire().send(ping, b"still there").unwrap();
    assert_eq!(session.wire().recv().unwrap().data, b"still there");
    scene.unharmed();
}
