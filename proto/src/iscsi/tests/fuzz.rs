//! Arbitrary bytes and arbitrary requests, before and after the login: never a panic, and nothing is left behind.

use std::time::Duration;

use platter_block::Status;
use proptest::prelude::*;

use super::rig::*;
use super::wire::{self, Digests, NO_TAG, Pdu, Request, opcode};
use crate::iscsi::ConnId;

/// One thing that happens to a session.
#[derive(Clone, Debug)]
enum Happens {
    /// A command, mostly right.
    Command { itt: u32, flags: u8, cdb: usize, immediate: bool, data: usize, skip: u32 },
    /// Data that answer an R2T, mostly right.
    Answer { which: usize, data_sn: u32, offset: u32, len: u32, last: bool },
    /// Unsolicited data.
    Unsolicited { itt: u32, data_sn: u32, offset: u32, len: usize, last: bool },
    /// Task management, of this session or of another.
    Function { other: bool, function: u8, referenced: u32, skip: u32 },
    /// A request with some fields of its own.
    Odd(Request),
    /// Anything.
    Bytes(Vec<u8>),
    /// An op ends.
    Release(usize, bool),
    /// The peer stops or starts to read.
    Listen(bool),
    /// Time passes.
    Wait(u64),
    /// The initiator logs in again.
    Login,
    /// It logs out.
    Logout,
    /// The connection is lost.
    Lost,
}

fn happens() -> impl Strategy<Value = Happens> {
    let itt = 0..12u32;
    let mostly_0 = || prop_oneof![9 => Just(0u32), 1 => 0..4u32, 1 => any::<u32>()];
    let flags = prop_oneof![
        4 => Just(0xc1u8), // read
        4 => Just(0xa1),   // write
        2 => Just(0x21),   // write with unsolicited data
        1 => Just(0xa2),   // ordered write
        1 => Just(0xc3),   // read, head of queue
        1 => Just(0x81),   // neither
        1 => any::<u8>(),
    ];
    let command = (itt.clone(), flags, 0..6usize, prop::bool::weighted(0.1), 0..5usize, mostly_0()).prop_map(
        |(itt, flags, cdb, immediate, data, skip)| Happens::Command { itt, flags, cdb, immediate, data, skip },
    );
    let answer = (any::<usize>(), mostly_0(), mostly_0(), mostly_0(), prop::bool::weighted(0.9))
        .prop_map(|(which, data_sn, offset, len, last)| Happens::Answer { which, data_sn, offset, len, last });
    let unsolicited =
        (itt.clone(), mostly_0(), 0..3u32, 0..3usize, any::<bool>()).prop_map(|(itt, data_sn, offset, len, last)| {
            Happens::Unsolicited { itt, data_sn, offset: offset * 512, len, last }
        });
    let function = (any::<bool>(), 1..9u8, itt, mostly_0()).prop_map(|(other, function, referenced, skip)| {
        let function = if function == 7 { 1 } else { function };
        Happens::Function { other, function, referenced, skip }
    });
    prop_oneof![
        60 => command,
        40 => answer,
        15 => unsolicited,
        10 => function,
        10 => request().prop_map(Happens::Odd),
        1 => proptest::collection::vec(any::<u8>(), 0..200).prop_map(Happens::Bytes),
        50 => (any::<usize>(), prop::bool::weighted(0.8)).prop_map(|(at, good)| Happens::Release(at, good)),
        3 => any::<bool>().prop_map(Happens::Listen),
        5 => (0..3000u64).prop_map(Happens::Wait),
        2 => Just(Happens::Login),
        1 => Just(Happens::Logout),
        1 => Just(Happens::Lost),
    ]
}

/// A request of any kind that keeps the framing.
fn request() -> impl Strategy<Value = Request> {
    let op = prop_oneof![
        Just(opcode::NOP_OUT),
        Just(opcode::TEXT),
        Just(opcode::SCSI_COMMAND),
        Just(opcode::DATA_OUT),
        Just(opcode::SNACK),
        Just(opcode::LOGIN),
        any::<u8>().prop_filter("commands have other ways to end", |&op| op & 0x3f != opcode::LOGOUT),
    ];
    let word = || prop_oneof![Just(0u32), 1..5u32, Just(512), Just(NO_TAG), any::<u32>()];
    let words = (word(), word(), word(), word(), word());
    (op, any::<u8>(), 0..8u32, words, proptest::collection::vec(any::<u8>(), 0..600)).prop_map(
        |(op, flags, itt, (a, b, c, d, e), data)| {
            let request =
                Request::new(op).byte(1, flags).itt(itt).u32(20, a).u32(24, b).u32(32, c).u32(36, d).u32(40, e);
            if op & 0x3f == opcode::TASK_MANAGEMENT { request } else { request.data(data) }
        },
    )
}

/// The initiator of the fuzzed session: it follows the protocol where it is not told to do otherwise.
struct Player {
    rig: Rig,
    digests: Digests,
    session: Session,
    other: Session,
    conns: Vec<ConnId>,
    expected: u32,
    r2ts: Vec<Pdu>,
}

impl Player {
    fn new(keys: &[(&str, &str)], disk: Disk) -> Self {
        let mut rig = Rig::new();
        let session = rig.login(keys);
        let other = rig.login_as([9; 6], &[]);
        rig.disk = disk;
        let on = keys.contains(&("DataDigest", "CRC32C"));
        Self {
            digests: Digests { header: on, data: on },
            conns: vec![session.conn, other.conn],
            expected: session.cmd_sn,
            session,
            other,
            rig,
            r2ts: Vec::new(),
        }
    }

    fn conn(&self) -> ConnId {
        self.session.conn
    }

    fn send(&mut self, request: &Request) {
        self.rig.send_bytes(self.session.conn, &request.encode(self.digests));
    }

    fn listen(&mut self) {
        let conn = self.conn();
        for pdu in self.rig.some_replies(conn) {
            self.expected = pdu.exp_cmd_sn();
            if pdu.opcode() == opcode::R2T {
                self.r2ts.push(pdu);
            }
        }
    }

    fn play(&mut self, event: Happens) {
        match event {
            Happens::Command { itt, flags, cdb, immediate, data, skip } => {
                let cdbs = [
                    &read10(0, 1)[..],
                    &read10(4, 16),
                    &write10(0, 4),
                    &write10(8, 16),
                    &[0; 6],
                    &[0x12, 0, 0, 0, 255, 0],
                ];
                let cdb = match flags & 0x60 {
                    READ => cdbs[cdb % 2],
                    WRITE => cdbs[2 + cdb % 2],
                    _ => cdbs[cdb],
                };
                let len = u32::from(cdb.get(8).copied().unwrap_or(0)) * 512;
                let mut request = wire::command(itt, self.expected.wrapping_add(skip), flags, len, cdb);
                request.header[1] = flags;
                if flags & WRITE != 0 {
                    request = request.data(vec![itt as u8; (data * 512).min(len as usize)]);
                }
                self.send(&if immediate { request.immediate() } else { request });
            }
            Happens::Answer { which, data_sn, offset, len, last } if !self.r2ts.is_empty() => {
                let at = if which % 7 == 0 { which % self.r2ts.len() } else { 0 };
                let r2t = self.r2ts.remove(at);
                let len = r2t.u32(44).saturating_sub(len);
                let offset = r2t.u32(40).wrapping_add(offset);
                self.send(&wire::data_out(r2t.itt(), r2t.ttt(), data_sn, offset, &vec![3; len as usize], last));
            }
            Happens::Unsolicited { itt, data_sn, offset, len, last } => {
                self.send(&wire::data_out(itt, NO_TAG, data_sn, offset, &vec![4; len * 512], last));
            }
            Happens::Function { other, function, referenced, skip } => {
                let cmd_sn = if other { self.other.cmd_sn } else { self.expected.wrapping_add(skip) };
                let request = wire::task_management(function, 100 + referenced, referenced, cmd_sn, self.expected);
                if other {
                    self.rig.send(self.other.conn, &request);
                } else {
                    self.send(&request);
                }
            }
            Happens::Odd(request) => self.send(&request),
            Happens::Bytes(bytes) => self.rig.send_bytes(self.session.conn, &bytes),
            Happens::Release(at, good) if !self.rig.waiting.is_empty() => {
                let at = at % self.rig.waiting.len();
                self.rig.release(at, if good { Status::Good } else { Status::Aborted });
            }
            Happens::Listen(true) => self.rig.listen(self.session.conn),
            Happens::Listen(false) => self.rig.deaf.push(self.session.conn),
            Happens::Wait(ms) => self.rig.wait(Duration::from_millis(ms)),
            Happens::Login => {
                let conn = self.rig.connect();
                let mut request = wire::login(OPERATIONAL_TO_FULL, &NAMES).cmd_sn(1);
                request.header[8..14].copy_from_slice(&[1, 2, 3, 4, 5, 6]);
                self.rig.send(conn, &request);
                self.conns.push(conn);
                self.session.conn = conn;
                (self.digests, self.expected) = (Digests::default(), 1);
                self.r2ts.clear();
            }
            Happens::Logout => self.send(&wire::logout(0, 99, 0, self.expected)),
            Happens::Lost => self.rig.hang_up(self.session.conn),
            Happens::Answer { .. } | Happens::Release(..) => {}
        }
        self.listen();
    }
}

/// Lets everything end, and looks for what is left.
fn wind_up(rig: &mut Rig, conns: &[ConnId]) {
    for &conn in conns {
        rig.hang_up(conn);
    }
    while !rig.waiting.is_empty() {
        rig.release(0, Status::Aborted);
    }
    rig.assert_idle();
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_bytes_before_the_login(pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..300), 0..8)) {
        let mut rig = Rig::new();
        let conn = rig.connect();
        for piece in &pieces {
            rig.send_bytes(conn, piece);
        }
        wind_up(&mut rig, &[conn]);
    }

    #[test]
    fn arbitrary_login_requests(
        requests in proptest::collection::vec((any::<u8>(), "[A-Za-z=,0-9~\0]{0,60}", any::<bool>()), 1..12)
    ) {
        let mut rig = Rig::new();
        let conn = rig.connect();
        for (flags, text, names) in &requests {
            let mut data = if *names { wire::text(&NAMES) } else { Vec::new() };
            data.extend_from_slice(text.as_bytes());
            rig.send(conn, &wire::login(*flags, &[]).data(data));
            if rig.is_closed(conn) {
                break;
            }
        }
        wind_up(&mut rig, &[conn]);
    }

    #[test]
    fn arbitrary_bytes_after_the_login(
        pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..300), 0..8),
        digests in any::<bool>(),
    ) {
        let mut rig = Rig::new();
        let keys: &[_] = if digests { &[("HeaderDigest", "CRC32C"), ("DataDigest", "CRC32C")] } else { &[] };
        let session = rig.login(keys);
        for piece in &pieces {
            rig.send_bytes(session.conn, piece);
        }
        wind_up(&mut rig, &[session.conn]);
    }

    #[test]
    fn anything_may_happen_in_any_order(
        history in proptest::collection::vec(happens(), 1..80),
        digests in any::<bool>(),
        stuck in any::<bool>(),
        r2t in any::<bool>(),
        immediate in any::<bool>(),
    ) {
        let yes_no = |yes| if yes { "Yes" } else { "No" };
        let digest = if digests { "CRC32C" } else { "None" };
        let keys = [
            ("HeaderDigest", digest),
            ("DataDigest", digest),
            ("InitialR2T", yes_no(r2t)),
            ("ImmediateData", yes_no(immediate)),
            ("MaxBurstLength", "1024"),
            ("FirstBurstLength", "1024"),
            ("MaxOutstandingR2T", "2"),
        ];
        let mut player = Player::new(&keys, if stuck { Disk::Stuck } else { Disk::Held });
        for event in history {
            player.play(event);
        }
        let conns = player.conns;
        wind_up(&mut player.rig, &conns);
    }
}

/// The test above would be worth nothing if its histories went nowhere.
#[test]
fn the_histories_of_the_fuzzer_reach_everything() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let histories = proptest::collection::vec(happens(), 1..80);
    let mut events = std::collections::BTreeMap::new();
    let (mut ops, mut aborts, mut r2ts) = (0, 0, 0);
    for n in 0..150 {
        let unsolicited = if n % 2 == 0 { "No" } else { "Yes" };
        let keys = [("InitialR2T", unsolicited), ("MaxBurstLength", "1024"), ("FirstBurstLength", "1024")];
        let mut player = Player::new(&keys, if n % 3 == 0 { Disk::Stuck } else { Disk::Held });
        for event in histories.new_tree(&mut runner).unwrap().current() {
            player.play(event);
            r2ts += usize::from(!player.r2ts.is_empty());
        }
        for event in &player.rig.events {
            let name = format!("{event:?}");
            *events.entry(name.split([' ', '(']).next().unwrap_or_default().to_owned()).or_insert(0) += 1;
        }
        ops += player.rig.submitted.len();
        aborts += player.rig.aborts.len();
        let conns = player.conns;
        wind_up(&mut player.rig, &conns);
    }
    assert!(ops > 150 && aborts > 30 && r2ts > 200, "{ops} ops, {aborts} aborts, {r2ts} times an R2T, {events:?}");
    for kind in ["LoggedIn", "SessionEnded", "Rejected", "DataOutFailed", "TaskManagement", "Dropped"] {
        assert!(events.get(kind).is_some_and(|&n| n > 5), "{kind}: {events:?}");
    }
}
