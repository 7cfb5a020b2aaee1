//! Arbitrary commands and arbitrary orders of events: never a panic, one reply for each command, and nothing is left.

use std::collections::BTreeMap;
use std::time::Duration;

use platter_block::{BufPool, Lba, Status as OpStatus, VolumeId, VolumeInfo};
use proptest::prelude::*;

use super::rig::*;
use crate::nvme::{AnaGroup, AnaState, Limits, QueueId, Status, TargetConfig, Transfer};

/// One thing that happens.
#[derive(Clone, Debug)]
enum Happens {
    /// A command that makes sense, on one of the I/O queues, perhaps part of a fused operation.
    Io {
        queue: usize,
        cid: u16,
        what: usize,
        lba: u64,
        blocks: u32,
        fuse: u8,
    },
    /// A fused operation, mostly right.
    Pair {
        queue: usize,
        cid: u16,
        lba: u64,
        blocks: u32,
        slip: u64,
        right: bool,
    },
    /// One on an admin queue.
    Admin {
        queue: usize,
        cid: u16,
        what: usize,
        which: u16,
    },
    /// Anything at all.
    Odd {
        queue: usize,
        sqe: Vec<u8>,
        len: u32,
        in_capsule: bool,
        wrong: bool,
    },
    Deliver(usize),
    Spoil(usize),
    Release(usize, usize),
    Wait(u64),
    HangUp(usize),
    /// The transport closes what it was told to.
    CloseAll,
    /// A host connects, and enables its controller.
    Connect {
        host: u8,
        queues: u16,
        flow_control: bool,
        entries: u16,
    },
    /// A queue more, of a controller that may not be there.
    ConnectIo {
        cntlid: u16,
        qid: u16,
        host: u8,
    },
    Namespace {
        nsid: u32,
        add: bool,
    },
    Grow {
        volume: u32,
        blocks: u64,
    },
    Ana {
        group: u32,
        portal: u16,
        state: usize,
    },
    Directory(bool),
    Subsystem(bool),
    /// Somebody else takes or returns memory.
    Memory(bool),
}

fn happens() -> impl Strategy<Value = Happens> {
    let queue = || 0..6usize;
    let cid = || 0..24u16;
    let lba = prop_oneof![8 => 0..64u64, 1 => BLOCKS - 4..BLOCKS + 2, 1 => any::<u64>()];
    let blocks = prop_oneof![8 => 1..17u32, 1 => Just(4096u32), 1 => 1..65537u32];
    let fuse = prop_oneof![6 => Just(0u8), 2 => Just(1), 2 => Just(2), 1 => Just(3)];
    let io = (queue(), cid(), 0..9usize, lba, blocks, fuse)
        .prop_map(|(queue, cid, what, lba, blocks, fuse)| Happens::Io { queue, cid, what, lba, blocks, fuse });
    let slip = prop_oneof![9 => Just(0u64), 1 => 1..3u64];
    let pair = (queue(), cid(), 0..8u64, 1..20u32, slip, any::<bool>())
        .prop_map(|(queue, cid, lba, blocks, slip, right)| Happens::Pair { queue, cid, lba, blocks, slip, right });
    let admin = (queue(), cid(), 0..12usize, 0..24u16).prop_map(|(queue, cid, what, which)| Happens::Admin {
        queue,
        cid,
        what,
        which,
    });
    let opcode = prop_oneof![0..0x20u8, Just(0x7fu8), any::<u8>()];
    let bytes = prop::collection::vec(prop_oneof![4 => Just(0u8), 1 => any::<u8>()], 64);
    let len = prop_oneof![Just(0u32), Just(512), Just(1024), Just(4096), any::<u32>()];
    let odd = (queue(), opcode, cid(), bytes, len, any::<bool>(), prop::bool::weighted(0.1)).prop_map(
        |(queue, opcode, cid, mut sqe, len, in_capsule, wrong)| {
            sqe[0] = opcode;
            sqe[2..4].copy_from_slice(&cid.to_le_bytes());
            Happens::Odd { queue, sqe, len, in_capsule, wrong }
        },
    );
    let connect = (0..3u8, 0..4u16, any::<bool>(), prop_oneof![Just(31u16), Just(3u16)])
        .prop_map(|(host, queues, flow_control, entries)| Happens::Connect { host, queues, flow_control, entries });
    prop_oneof![
        60 => io,
        12 => pair,
        25 => admin,
        15 => odd,
        40 => any::<usize>().prop_map(Happens::Deliver),
        3 => any::<usize>().prop_map(Happens::Spoil),
        50 => (any::<usize>(), 0..8usize).prop_map(|(at, how)| Happens::Release(at, how)),
        6 => (0..3000u64).prop_map(Happens::Wait),
        1 => Just(Happens::Wait(11_000)),
        2 => any::<usize>().prop_map(Happens::HangUp),
        3 => Just(Happens::CloseAll),
        6 => connect,
        3 => (0..6u16, 0..5u16, 0..3u8).prop_map(|(cntlid, qid, host)| Happens::ConnectIo { cntlid, qid, host }),
        3 => (1..4u32, any::<bool>()).prop_map(|(nsid, add)| Happens::Namespace { nsid, add }),
        2 => (1..4u32, 1000..5000u64).prop_map(|(volume, blocks)| Happens::Grow { volume, blocks }),
        2 => (1..3u32, 0..2u16, 0..5usize).prop_map(|(group, portal, state)| Happens::Ana { group, portal, state }),
        1 => any::<bool>().prop_map(Happens::Directory),
        1 => any::<bool>().prop_map(Happens::Subsystem),
        6 => prop::bool::weighted(0.6).prop_map(Happens::Memory),
    ]
}

/// What becomes of the history.
struct Player {
    rig: Rig,
    admins: Vec<QueueId>,
    ios: Vec<QueueId>,
    foreign: Vec<platter_block::BufId>,
    namespaces: Vec<u32>,
    has_subsystem: bool,
    /// Commands sent and replies that came, by queue and CID.
    sent: BTreeMap<(QueueId, u16), usize>,
    statuses: BTreeMap<u16, usize>,
}

impl Player {
    fn new(disk: Disk, wire: Wire) -> Self {
        let limits = Limits { max_transfer: 64 << 10, controllers: 6, ..Limits::default() };
        let mut rig = Rig::with(TargetConfig { limits, cntlid: 1..=8, ..config() });
        (rig.disk, rig.wire) = (disk, wire);
        rig.pool = BufPool::new(1 << 20);
        Self {
            rig,
            admins: Vec::new(),
            ios: Vec::new(),
            foreign: Vec::new(),
            namespaces: vec![1, 2],
            has_subsystem: true,
            sent: BTreeMap::new(),
            statuses: BTreeMap::new(),
        }
    }

    fn send(&mut self, queue: QueueId, cmd: &Cmd) {
        let transfer = Ok(Transfer { len: cmd.len, in_capsule: cmd.in_capsule });
        self.send_with(queue, cmd, transfer);
    }

    fn send_with(&mut self, queue: QueueId, cmd: &Cmd, transfer: Result<Transfer, Status>) {
        let cid = u16::from_le_bytes([cmd.sqe[2], cmd.sqe[3]]);
        *self.sent.entry((queue, cid)).or_insert(0) += 1;
        if self.rig.try_send_with(queue, cmd, transfer).is_err() {
            self.rig.hang_up(queue);
        }
    }

    /// Replies that came: no more than commands were sent.
    fn listen(&mut self) {
        for (queue, reply) in std::mem::take(&mut self.rig.replies) {
            let sent = self.sent.get_mut(&(queue, reply.cid)).expect("a reply to a command that was sent");
            *sent = sent.checked_sub(1).expect("not more replies than commands");
            *self.statuses.entry(reply.status.0 & 0x7ff).or_insert(0) += 1;
        }
    }

    fn host(connect: Connect, host: u8) -> Connect {
        connect.text(512, &format!("nqn.host{host}"))
    }

    fn play(&mut self, event: Happens) {
        match event {
            Happens::Io { queue, cid, what, lba, blocks, fuse } if !self.ios.is_empty() => {
                let queue = self.ios[queue % self.ios.len()];
                let len = blocks.min(1 << 10) as usize * BLOCK;
                let cmd = match what {
                    0 | 1 => blocks_of(2, lba, blocks).room(blocks as usize * BLOCK),
                    2 | 3 => blocks_of(1, lba, blocks).send(&pattern(len, cid as u8)),
                    4 => blocks_of(5, lba, blocks).send(&vec![1; len]),
                    5 => blocks_of(8, lba, blocks),
                    6 => blocks_of(0x0c, lba, blocks),
                    7 => flush(if cid % 2 == 0 { 1 } else { u32::MAX }),
                    _ => fused_or_list(fuse, lba, cid),
                };
                let cmd = if what < 7 && cid % 5 == 0 { cmd.nsid(2) } else { cmd };
                let opcode = cmd.sqe[0];
                let cmd = match (fuse, opcode) {
                    (1, 5) | (2, 1) => cmd.fuse(fuse),
                    (3, _) if cid == 3 => cmd.fuse(3),
                    _ => cmd,
                };
                self.send(queue, &cmd.cid(cid));
            }
            Happens::Pair { queue, cid, lba, blocks, slip, right } if !self.ios.is_empty() => {
                let queue = self.ios[queue % self.ios.len()];
                let len = blocks as usize * BLOCK;
                let place = lba as usize * BLOCK;
                let data = if right { self.rig.media[1][place..place + len].to_vec() } else { vec![7; len] };
                self.send(queue, &compare(lba, &data).fuse(1).cid(cid));
                self.send(queue, &write(lba + slip, &pattern(len, cid as u8)).fuse(2).cid(cid + 1));
            }
            Happens::Admin { queue, cid, what, which } if !self.admins.is_empty() => {
                let queue = self.admins[queue % self.admins.len()];
                let cmd = match what {
                    0..=2 => abort(which % 4, which),
                    3 => event_request(),
                    4 => Cmd::new(0x06).cdw(10, (which % 4).into()).nsid(1).room(4096),
                    5 => log_page([2, 4, 12, 0x70][usize::from(which % 4)], 512),
                    6 => set_feature([6, 7, 0x0b, 0x0f][usize::from(which % 4)], which.into()),
                    7 => get_feature([6, 7, 0x0b, 0x0f][usize::from(which % 4)]),
                    8 => Cmd::new(0x18),
                    9 if which == 0 => property_set(0x14, u64::from(ENABLED & !1)),
                    9 if which == 1 => property_set(0x14, u64::from(ENABLED | 1 << 14)),
                    9 => property_set(0x14, ENABLED.into()),
                    10 => property_get(0x1c, false),
                    _ => fabrics([1, 5, 8, 0x42][usize::from(which % 4)]),
                };
                self.send(queue, &cmd.cid(cid));
            }
            Happens::Odd { queue, sqe, len, in_capsule, wrong } => {
                let all: Vec<QueueId> = self.admins.iter().chain(&self.ios).copied().collect();
                let Some(&queue) = all.get(queue % all.len().max(1)) else { return };
                let mut cmd = Cmd::new(0);
                cmd.sqe.copy_from_slice(&sqe);
                let transfer = if wrong { Err(Status::new(0, 0x11)) } else { Ok(Transfer { len, in_capsule }) };
                self.send_with(queue, &cmd, transfer);
            }
            Happens::Deliver(at) if !self.rig.wanted.is_empty() => self.rig.deliver(at % self.rig.wanted.len()),
            Happens::Spoil(at) if !self.rig.wanted.is_empty() => {
                self.rig.spoil(at % self.rig.wanted.len(), Status::new(0, 0x22).retryable());
            }
            Happens::Release(at, how) if !self.rig.waiting.is_empty() => {
                let at = at % self.rig.waiting.len();
                let status = match how {
                    0 => OpStatus::Aborted,
                    1 => OpStatus::MediumError { lba: Lba(0) },
                    2 => OpStatus::Busy,
                    _ => OpStatus::Good,
                };
                self.rig.release(at, status);
            }
            Happens::Wait(ms) => self.rig.wait(Duration::from_millis(ms)),
            Happens::HangUp(at) => {
                let all: Vec<QueueId> = self.admins.iter().chain(&self.ios).copied().collect();
                if let Some(&queue) = all.get(at % all.len().max(1)) {
                    self.rig.hang_up(queue);
                }
            }
            Happens::CloseAll => self.rig.close_all(),
            Happens::Connect { host, queues, flow_control, entries } => {
                let queue = self.rig.open_through(u16::from(host % 2));
                let kato = if host == 2 { 2000 } else { 200_000 };
                self.admins.push(queue);
                let connect = Self::host(Connect::to(0, 0xffff, entries).kato(kato), host);
                self.send(queue, &connect.cmd.cid(900));
                while let Some(at) = self.rig.wanted.iter().position(|w| w.queue == queue) {
                    self.rig.deliver(at);
                }
                let reply = self.rig.replies.iter().find(|(q, r)| *q == queue && r.cid == 900);
                let Some(cntlid) = reply.filter(|(_, r)| r.status.0 == 0).map(|(_, r)| r.result as u16) else { return };
                self.send(queue, &property_set(0x14, ENABLED.into()).cid(901));
                for qid in 1..=queues {
                    let queue = self.rig.open_through(u16::from(host % 2));
                    self.ios.push(queue);
                    let connect = Self::host(Connect::to(qid, cntlid, entries), host);
                    let connect = if flow_control { connect } else { connect.no_flow_control() };
                    self.send(queue, &connect.cmd.cid(900));
                    while let Some(at) = self.rig.wanted.iter().position(|w| w.queue == queue) {
                        self.rig.deliver(at);
                    }
                }
            }
            Happens::ConnectIo { cntlid, qid, host } => {
                let queue = self.rig.open();
                self.ios.push(queue);
                let connect = Self::host(Connect::to(qid, cntlid, 15), host);
                self.send(queue, &connect.cmd.cid(900));
            }
            Happens::Namespace { nsid, add } if self.has_subsystem => {
                let (rig, is_there) = (&mut self.rig, self.namespaces.contains(&nsid));
                if add && !is_there {
                    self.namespaces.push(nsid);
                    rig.target.add_namespace(rig.now, NQN, namespace(nsid), &mut rig.pool);
                } else if !add {
                    self.namespaces.retain(|&n| n != nsid);
                    assert_eq!(rig.target.remove_namespace(rig.now, NQN, nsid, &mut rig.pool), is_there);
                }
                rig.pump();
            }
            Happens::Grow { volume, blocks } => {
                let info = VolumeInfo { blocks, ..volume_info() };
                self.rig.media[volume as usize].resize(blocks as usize * BLOCK, 0);
                self.rig.target.volume_changed(self.rig.now, VolumeId(volume), &info, &mut self.rig.pool);
                self.rig.pump();
            }
            Happens::Ana { group, portal, state } => {
                use AnaState::*;
                let state = [Optimized, Optimized, NonOptimized, Inaccessible, Change][state];
                let states = AnaGroup { through: [(portal, state)].into() };
                self.rig.target.set_ana(self.rig.now, NQN, group, states, &mut self.rig.pool);
                self.rig.pump();
            }
            Happens::Directory(both) => {
                let entries = if both { vec![entry(NQN), entry(OTHER_NQN)] } else { vec![entry(NQN)] };
                self.rig.target.set_directory(self.rig.now, entries, Vec::new(), &mut self.rig.pool);
                self.rig.pump();
            }
            Happens::Subsystem(add) => {
                let rig = &mut self.rig;
                if add && !self.has_subsystem {
                    rig.target.add_subsystem(subsystem(NQN));
                    self.namespaces = vec![1, 2];
                } else if !add {
                    assert_eq!(rig.target.remove_subsystem(rig.now, NQN, &mut rig.pool), self.has_subsystem);
                }
                self.has_subsystem = add;
                rig.pump();
            }
            Happens::Memory(true) => self.foreign.extend(self.rig.pool.alloc(256 << 10)),
            Happens::Memory(false) => self.foreign.drain(..).for_each(|b| self.rig.pool.free(b)),
            _ => {}
        }
        self.listen();
    }

    /// Everything that waits goes on, without anything new: every command of an open connection is answered, but for
    /// event requests, which are aborted, and the first of a fused operation that lacks its second.
    fn finish(mut self) -> BTreeMap<u16, usize> {
        self.foreign.drain(..).for_each(|b| self.rig.pool.free(b));
        self.rig.close_all();
        for _ in 0..10_000 {
            self.rig.wait(Duration::from_millis(20));
            self.rig.close_all();
            if self.rig.wanted.is_empty() && self.rig.waiting.is_empty() {
                // Nobody waits for memory longer than this.
                self.rig.wait(Duration::from_secs(11));
                self.rig.close_all();
            }
            match (self.rig.wanted.is_empty(), self.rig.waiting.is_empty()) {
                (false, _) => self.rig.deliver(0),
                (true, false) => self.rig.release(0, OpStatus::Good),
                (true, true) => break,
            }
        }
        assert!(self.rig.wanted.is_empty() && self.rig.waiting.is_empty());
        self.listen();
        for (&(queue, cid), &left) in &self.sent {
            if self.rig.is_open(queue) && left > 0 {
                assert_eq!(left, 1, "{queue:?} {cid:#x}");
                assert!(self.rig.may_wait(queue, cid), "{queue:?} {cid:#x} was not answered");
            }
        }
        self.rig.wind_up();
        self.statuses
    }
}

/// Dataset Management or Copy.
fn fused_or_list(what: u8, lba: u64, cid: u16) -> Cmd {
    let mut list = vec![0; 32];
    if what.is_multiple_of(2) {
        list[4] = 8;
        list[8..16].copy_from_slice(&lba.to_le_bytes());
        return Cmd::new(0x09).nsid(1).cdw(10, u32::from(cid % 2)).cdw(11, 4).send(&list);
    }
    list[8..16].copy_from_slice(&lba.to_le_bytes());
    list[16] = cid as u8;
    Cmd::new(0x19).nsid(1).u64(40, 200).cdw(12, 0).send(&list)
}

fn any_disk() -> impl Strategy<Value = Disk> {
    prop_oneof![Just(Disk::Fast), Just(Disk::Held), Just(Disk::Stuck)]
}

fn any_wire() -> impl Strategy<Value = Wire> {
    prop_oneof![Just(Wire::Fast), Just(Wire::Held)]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn anything_may_happen_in_any_order(
        history in prop::collection::vec(happens(), 1..150),
        disk in any_disk(),
        wire in any_wire(),
    ) {
        let mut player = Player::new(disk, wire);
        player.play(Happens::Connect { host: 0, queues: 3, flow_control: true, entries: 31 });
        for event in history {
            player.play(event);
        }
        player.finish();
    }

    #[test]
    fn arbitrary_connect_data(
        pieces in prop::collection::vec((0..1024usize, prop::collection::vec(any::<u8>(), 1..40)), 0..6),
        qid in prop_oneof![Just(0u16), any::<u16>()],
        sqsize in prop_oneof![Just(31u16), any::<u16>()],
        cattr in any::<u8>(),
        kato in any::<u32>(),
    ) {
        let mut rig = Rig::new();
        let mut connect = Connect::to(qid, 0xffff, sqsize).kato(kato);
        for (at, bytes) in pieces {
            let end = (at + bytes.len()).min(1024);
            connect = connect.bytes(at, &bytes[..end - at]);
        }
        let queue = rig.open();
        let cid = rig.send(queue, &connect.cmd.byte(46, cattr));
        prop_assert!(rig.take_reply(queue, cid).is_some());
        rig.wind_up();
    }
}

/// The test above would be worth nothing if its histories went nowhere.
#[test]
fn the_histories_of_the_fuzzer_reach_everything() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let histories = prop::collection::vec(happens(), 1..150);
    let mut statuses = BTreeMap::new();
    for n in 0..200 {
        let disk = [Disk::Fast, Disk::Held, Disk::Stuck][n % 3];
        let mut player = Player::new(disk, if n % 2 == 0 { Wire::Fast } else { Wire::Held });
        player.play(Happens::Connect { host: 0, queues: 3, flow_control: true, entries: 31 });
        for event in histories.new_tree(&mut runner).unwrap().current() {
            player.play(event);
        }
        for (status, n) in player.finish() {
            *statuses.entry(status).or_insert(0) += n;
        }
    }
    let expected = [
        0x000, 0x001, 0x002, 0x003, 0x007, 0x009, 0x00a, 0x00b, 0x00c, 0x00f, 0x011, 0x021, 0x022, 0x080, 0x182, 0x280,
        0x281, 0x285, 0x302, 0x303,
    ];
    for status in expected {
        assert!(statuses.get(&status).is_some_and(|&n| n > 2), "{status:#x}: {statuses:x?}");
    }
}
