//! Arbitrary bytes and arbitrary requests, before and after the login: never a panic, and nothing is left behind.

use std::time::Duration;

use platter_block::Status;
use proptest::prelude::*;

use super::rig::*;
use super::wire::{self, Digests, Request, opcode};

/// One thing that happens to a session.
#[derive(Clone, Debug)]
enum Happens {
    /// The initiator sends a request, mostly right, with some fields of its own.
    Send(Request),
    /// Anything.
    Bytes(Vec<u8>),
    /// An op ends.
    Release(usize, bool),
    /// The peer stops or starts to read.
    Listen(bool),
    /// Time passes.
    Wait(u64),
    /// The other session asks for a reset.
    Reset(u8),
    /// Another login of the same session.
    Login(bool),
}

fn request() -> impl Strategy<Value = Request> {
    let op = prop_oneof![
        4 => Just(opcode::SCSI_COMMAND),
        4 => Just(opcode::DATA_OUT),
        2 => Just(opcode::TASK_MANAGEMENT),
        1 => Just(opcode::NOP_OUT),
        1 => Just(opcode::TEXT),
        1 => Just(opcode::LOGOUT),
        1 => Just(opcode::SNACK),
        1 => Just(opcode::LOGIN),
        1 => any::<u8>(),
    ];
    let cdb = prop_oneof![
        Just(read10(0, 1).to_vec()),
        Just(read10(4, 16).to_vec()),
        Just(write10(0, 1).to_vec()),
        Just(write10(8, 16).to_vec()),
        Just(vec![0; 6]),
        proptest::collection::vec(any::<u8>(), 16),
    ];
    let small = prop_oneof![Just(0u32), 1..5u32, Just(512), Just(8192), any::<u32>()];
    let flags = prop_oneof![Just(0x80u8), Just(0xc1), Just(0xa1), Just(0x21), Just(0xa2), any::<u8>()];
    let data = proptest::collection::vec(any::<u8>(), 0..1600);
    (op, any::<bool>(), flags, 0..6u32, small, 0..8u32, cdb, data).prop_map(
        |(op, immediate, flags, itt, word, cmd_sn, cdb, data)| {
            let mut request = Request::new(op).byte(1, flags).itt(itt).u32(20, word).cmd_sn(cmd_sn);
            match op {
                opcode::SCSI_COMMAND => {
                    let n = cdb.len().min(16);
                    request.header[32..32 + n].copy_from_slice(&cdb[..n]);
                }
                opcode::DATA_OUT => {
                    // Transfer tags of the first few writes.
                    request = request.u32(20, (word % 5) << 16 | word >> 30).u32(36, word % 3).u32(40, word % 9 * 512);
                }
                _ => {}
            }
            if immediate {
                request = request.immediate();
            }
            if op == opcode::TASK_MANAGEMENT || op == opcode::LOGOUT { request } else { request.data(data) }
        },
    )
}

fn happens() -> impl Strategy<Value = Happens> {
    prop_oneof![
        12 => request().prop_map(Happens::Send),
        1 => proptest::collection::vec(any::<u8>(), 0..200).prop_map(Happens::Bytes),
        6 => (any::<usize>(), any::<bool>()).prop_map(|(at, good)| Happens::Release(at, good)),
        1 => any::<bool>().prop_map(Happens::Listen),
        1 => (0..5000u64).prop_map(Happens::Wait),
        1 => (0..9u8).prop_map(Happens::Reset),
        1 => any::<bool>().prop_map(Happens::Login),
    ]
}

/// Lets everything end, and looks for what is left.
fn wind_up(rig: &mut Rig, conns: &[crate::iscsi::ConnId]) {
    for &conn in conns {
        rig.hang_up(conn);
    }
    while !rig.waiting.is_empty() {
        rig.release(0, Status::Aborted);
    }
    rig.assert_idle();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

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
        history in proptest::collection::vec(happens(), 1..60),
        digests in any::<bool>(),
        stuck in any::<bool>(),
        keys in (any::<bool>(), any::<bool>()),
    ) {
        let mut rig = Rig::new();
        let yes_no = |yes| if yes { "Yes" } else { "No" };
        let digest = if digests { "CRC32C" } else { "None" };
        let keys = [
            ("HeaderDigest", digest),
            ("DataDigest", digest),
            ("InitialR2T", yes_no(keys.0)),
            ("ImmediateData", yes_no(keys.1)),
            ("MaxBurstLength", "1024"),
            ("FirstBurstLength", "1024"),
            ("MaxOutstandingR2T", "2"),
        ];
        let session = rig.login(&keys);
        let other = rig.login_as([9; 6], &[]);
        rig.disk = if stuck { Disk::Stuck } else { Disk::Held };
        let mut conns = vec![session.conn, other.conn];
        for event in history {
            let conn = *conns.last().filter(|_| conns.len() > 2).unwrap_or(&session.conn);
            match event {
                Happens::Send(request) => {
                    let on = Digests { header: digests, data: digests };
                    rig.send_bytes(conn, &request.encode(on));
                }
                Happens::Bytes(bytes) => rig.send_bytes(conn, &bytes),
                Happens::Release(at, good) if !rig.waiting.is_empty() => {
                    let at = at % rig.waiting.len();
                    rig.release(at, if good { Status::Good } else { Status::Aborted });
                }
                Happens::Release(..) => {}
                Happens::Listen(true) => rig.listen(conn),
                Happens::Listen(false) => rig.deaf.push(conn),
                Happens::Wait(ms) => rig.wait(Duration::from_millis(ms)),
                Happens::Reset(function) => {
                    rig.send(other.conn, &wire::task_management(function, 1, 1, 3, 1));
                }
                Happens::Login(new) => {
                    let conn = rig.connect();
                    let mut request = wire::login(OPERATIONAL_TO_FULL, &NAMES);
                    request.header[8..14].copy_from_slice(&[1, 2, 3, 4, 5, 6]);
                    rig.send(conn, &request.u16(14, if new { 0 } else { session.tsih }).cmd_sn(1));
                    if new {
                        conns.push(conn);
                    } else {
                        rig.hang_up(conn);
                    }
                }
            }
        }
        wind_up(&mut rig, &conns);
    }
}
