//! Arbitrary bytes and arbitrary PDUs: never a panic, and nothing is left behind.

use std::time::Duration;

use platter_block::Status;
use proptest::prelude::*;

use super::rig::{BLOCK, Disk, Host, Options, Rig, config, read, write, write_in_capsule};
use super::wire::{self, BOTH, NONE, Pdu, Request};

/// MAXH2CDATA here: large enough that some data are read straight into their buffer.
const MAX_H2C: usize = 18 << 10;

/// One thing that happens to a host's connections.
#[derive(Clone, Debug)]
enum Happens {
    /// A command, mostly right: which, how many blocks, whether its data are in the capsule.
    Command { kind: u8, cid: u16, lba: u32, blocks: u16, in_capsule: bool },
    /// Data that answer an R2T, mostly right.
    Answer { which: usize, cid: u16, ttag: u16, offset: u32, len: u32, flags: u8 },
    /// A command on the admin queue.
    Admin { opcode: u8, cid: u16, words: [u32; 6] },
    /// An I/O command with any fields.
    Odd { header: Vec<u8>, data: Vec<u8>, pad: usize },
    /// A PDU of any kind, with one byte changed after its digests were made.
    Flip { at: usize, bits: u8 },
    /// Anything.
    Bytes(Vec<u8>),
    /// An op ends.
    Release(usize, bool),
    /// The host stops or starts to read.
    Listen(bool),
    /// Memory becomes short, or not.
    Memory(bool),
    /// Time passes.
    Wait(u64),
    /// A connection is lost.
    Lost { admin: bool },
}

fn happens() -> impl Strategy<Value = Happens> {
    let mostly_0 = || prop_oneof![30 => Just(0u32), 1 => 0..4u32, 1 => any::<u32>()];
    let cid = || 0..10u16;
    let command = (0..4u8, cid(), 0..64u32, 1..40u16, any::<bool>())
        .prop_map(|(kind, cid, lba, blocks, in_capsule)| Happens::Command { kind, cid, lba, blocks, in_capsule });
    let answer = (
        any::<usize>(),
        mostly_0(),
        mostly_0(),
        mostly_0(),
        mostly_0(),
        prop_oneof![30 => Just(0u8), 1 => Just(4u8), 1 => any::<u8>()],
    )
        .prop_map(|(which, cid, ttag, offset, len, flags)| Happens::Answer {
            which,
            cid: cid as u16,
            ttag: ttag as u16,
            offset,
            len,
            flags,
        });
    let word = || prop_oneof![Just(0u32), 1..10u32, any::<u32>()];
    let opcode =
        prop_oneof![Just(0x02u8), Just(0x06), Just(0x08), Just(0x09), Just(0x0a), Just(0x0c), Just(0x7f), any::<u8>()];
    let admin = (opcode, cid(), [word(), word(), word(), word(), word(), word()])
        .prop_map(|(opcode, cid, words)| Happens::Admin { opcode, cid, words });
    let header = proptest::collection::vec(prop_oneof![3 => Just(0u8), 2 => any::<u8>()], 64);
    let odd = (header, proptest::collection::vec(any::<u8>(), 0..600), 0..40usize)
        .prop_map(|(header, data, pad)| Happens::Odd { header, data, pad: pad * 4 });
    prop_oneof![
        60 => command,
        60 => answer,
        15 => admin,
        20 => odd,
        4 => (any::<usize>(), any::<u8>()).prop_map(|(at, bits)| Happens::Flip { at, bits }),
        1 => proptest::collection::vec(any::<u8>(), 0..200).prop_map(Happens::Bytes),
        50 => (any::<usize>(), prop::bool::weighted(0.8)).prop_map(|(at, good)| Happens::Release(at, good)),
        6 => any::<bool>().prop_map(Happens::Listen),
        6 => any::<bool>().prop_map(Happens::Memory),
        8 => (0..9000u64).prop_map(Happens::Wait),
        1 => any::<bool>().prop_map(|admin| Happens::Lost { admin }),
    ]
}

/// A host that follows the protocol where it is not told to do otherwise.
struct Player {
    rig: Rig,
    host: Host,
    options: Options,
    r2ts: Vec<Pdu>,
    taken: Vec<platter_block::BufId>,
}

impl Player {
    fn new(options: Options, disk: Disk, direct: bool) -> Self {
        let mut config = config();
        (config.limits.transmit_queue, config.limits.max_h2c_data) = (16 << 10, MAX_H2C as u32);
        let mut rig = Rig::with(config);
        let host = rig.host(options);
        (rig.disk, rig.direct) = (disk, direct);
        Self { rig, host, options, r2ts: Vec::new(), taken: Vec::new() }
    }

    /// A host whose connections have ended connects again.
    fn revive(&mut self) {
        if self.rig.is_closed(self.host.admin) || self.rig.is_closed(self.host.io) {
            self.r2ts.clear();
            if self.taken.is_empty() && self.rig.waiting.is_empty() {
                self.rig.hang_up(self.host.admin);
                self.rig.hang_up(self.host.io);
                self.host = self.rig.host(self.options);
            }
        }
    }

    fn play(&mut self, event: Happens) {
        let io = self.host.io;
        match event {
            Happens::Command { kind, cid, lba, blocks, in_capsule } => {
                let data = vec![cid as u8; usize::from(blocks) * BLOCK];
                let request = match kind {
                    0 => read(cid, lba, blocks),
                    1 | 2 if in_capsule && data.len() <= 8192 => write_in_capsule(cid, lba, &data),
                    1 | 2 => write(cid, lba, data.len()),
                    _ => wire::command(0x00, cid, 1),
                };
                self.rig.send(io, &request);
            }
            Happens::Answer { which, cid, ttag, offset, len, flags } if !self.r2ts.is_empty() => {
                let r2t = self.r2ts.remove(which % self.r2ts.len());
                let data = vec![3; r2t.u32(16) as usize];
                let pieces = data.len().div_ceil(MAX_H2C);
                for (n, piece) in data.chunks(MAX_H2C).enumerate() {
                    let at = ((n * MAX_H2C) as u32).wrapping_add(offset);
                    let pdu = wire::h2c_data(r2t.u16(8) ^ cid, r2t.u16(10) ^ ttag, at, piece, n + 1 == pieces);
                    let pdu = pdu.u32(16, (piece.len() as u32).wrapping_sub(len));
                    let known = pdu.header[1];
                    self.rig.send(io, &pdu.byte(1, known ^ flags));
                }
            }
            Happens::Admin { opcode, cid, words } => {
                let request = (10..).zip(words).fold(wire::command(opcode, cid, 1), |r, (n, w)| r.cdw(n, w));
                self.rig.send(self.host.admin, &request);
            }
            Happens::Odd { header, data, pad } => {
                let mut request = Request::new(4, 72);
                request.header[8..].copy_from_slice(&header);
                self.rig.send(io, &request.data(&data).pad(pad));
            }
            Happens::Flip { at, bits } => {
                let mut bytes = write_in_capsule(1, 0, &[1; 512]).encode(self.options.digests);
                let at = at % bytes.len();
                bytes[at] ^= bits;
                self.rig.send_bytes(io, &bytes);
            }
            Happens::Bytes(bytes) => self.rig.send_bytes(io, &bytes),
            Happens::Release(at, good) if !self.rig.waiting.is_empty() => {
                let at = at % self.rig.waiting.len();
                self.rig.release(at, if good { Status::Good } else { Status::Aborted });
            }
            Happens::Listen(true) => self.rig.listen(io),
            Happens::Listen(false) => self.rig.deaf.push(io),
            Happens::Memory(true) => self.taken.drain(..).for_each(|b| self.rig.pool.free(b)),
            Happens::Memory(false) => {
                while let Some(buf) = self.rig.pool.alloc(1 << 20) {
                    self.taken.push(buf);
                }
                self.taken.extend(self.rig.pool.alloc(4096));
            }
            Happens::Wait(ms) => self.rig.wait(Duration::from_millis(ms)),
            Happens::Lost { admin } => self.rig.hang_up(if admin { self.host.admin } else { io }),
            Happens::Answer { .. } | Happens::Release(..) => {}
        }
        self.r2ts.extend(self.rig.some_replies(io).into_iter().filter(|p| p.kind() == 9));
        self.rig.some_replies(self.host.admin);
        self.revive();
    }

    fn end(mut self) {
        self.taken.drain(..).for_each(|b| self.rig.pool.free(b));
        self.rig.wind_up();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_bytes_before_ic_req(pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..300), 0..8)) {
        let mut rig = Rig::new();
        let conn = rig.dial();
        pieces.iter().for_each(|p| rig.send_bytes(conn, p));
        rig.wind_up();
    }

    #[test]
    fn arbitrary_bytes_after_ic_req_and_after_connect(
        pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..300), 0..8),
        digests in any::<bool>(),
        kind in prop_oneof![Just(4u8), Just(6), any::<u8>()],
    ) {
        let mut rig = Rig::new();
        let digests = if digests { BOTH } else { NONE };
        let options = Options { digests, ..Options::default() };
        let host = rig.host(options);
        for conn in [rig.initialized(options), host.io, host.admin] {
            if !rig.is_closed(conn) {
                rig.send_bytes(conn, &[kind]);
            }
            for piece in &pieces {
                if !rig.is_closed(conn) {
                    rig.send_bytes(conn, piece);
                }
            }
        }
        rig.wind_up();
    }

    #[test]
    fn anything_may_happen_in_any_order(
        history in proptest::collection::vec(happens(), 1..80),
        digests in any::<bool>(),
        hpda in prop_oneof![Just(0u8), 0..32u8],
        flow_control in any::<bool>(),
        stuck in any::<bool>(),
        direct in any::<bool>(),
    ) {
        let options = Options { digests: if digests { BOTH } else { NONE }, hpda, flow_control };
        let mut player = Player::new(options, if stuck { Disk::Stuck } else { Disk::Held }, direct);
        history.into_iter().for_each(|event| player.play(event));
        player.end();
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
    let (mut ops, mut aborts, mut r2ts, mut placed) = (0, 0, 0, 0);
    for n in 0..150 {
        let digests = if n % 2 == 0 { NONE } else { BOTH };
        let disk = if n % 3 == 0 { Disk::Stuck } else { Disk::Held };
        let mut player = Player::new(Options { digests, ..Options::default() }, disk, n % 2 == 0);
        for event in histories.new_tree(&mut runner).unwrap().current() {
            player.play(event);
            r2ts += usize::from(!player.r2ts.is_empty());
        }
        for event in &player.rig.events {
            let mut name = format!("{event:?}");
            if !name.starts_with("Dropped") {
                name.truncate(name.find(' ').unwrap_or(name.len()));
            }
            let fes = name.find("FES").map_or_else(String::new, |at| name[at..at + 8].to_owned());
            let name = name.split(' ').next().unwrap_or_default();
            *events.entry(format!("{name} {fes}")).or_insert(0) += 1;
        }
        ops += player.rig.submitted.len();
        aborts += player.rig.aborts.len();
        placed += player.rig.placed;
        player.end();
    }
    let reached = format!("{ops} ops, {aborts} aborts, {r2ts} times an R2T, {placed} bytes placed, {events:?}");
    assert!(ops > 300 && aborts > 50 && r2ts > 200 && placed > 100 << 10, "{reached}");
    let fatal = ["Dropped FES 0x01", "Dropped FES 0x02", "Dropped FES 0x03", "Dropped FES 0x04", "Dropped FES 0x05"];
    for kind in ["Connected ", "ControllerEnded "].iter().chain(&fatal) {
        assert!(events.contains_key(*kind), "{kind}: {reached}");
    }
}
