//! A target, its disk, and the hosts at the other end.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use platter_block::{BufId, BufPool, Discard, Instant, Op, Status as OpStatus, Tag, VolumeId, VolumeInfo};

use crate::nvme::task::Awaits;
use crate::nvme::{
    AnaGroup, DISCOVERY_NQN, DirectoryEntry, EventKind, Hosts, Limits, NamespaceConfig, Output, Overrun, PortalInfo,
    QueueId, Status, SubsystemConfig, Target, TargetConfig, TaskId, Transfer,
};
use crate::slab::Key;
use crate::test_disk;
pub(super) use crate::test_disk::{BLOCK, BLOCKS, Disk, pattern};

pub(super) const NQN: &str = "nqn.2026-11.org.example:disks";
pub(super) const OTHER_NQN: &str = "nqn.2026-11.org.example:elsewhere";
pub(super) const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:host1";
pub(super) const TAG_BASE: u16 = 9;
pub(super) const CNTLIDS: RangeInclusive<u16> = 1..=100;

/// How the data of hosts come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Wire {
    /// At once.
    #[default]
    Fast,
    /// When released.
    Held,
}

/// What a host gets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Reply {
    pub(super) cid: u16,
    pub(super) status: Status,
    pub(super) result: u64,
    pub(super) sqhd: u16,
    pub(super) sqid: u16,
    pub(super) data: Vec<u8>,
    pub(super) plain: bool,
}

/// A Receive that waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) queue: QueueId,
    pub(super) task: TaskId,
    pub(super) cid: u16,
    buf: BufId,
    at: usize,
    len: usize,
}

pub(super) struct Rig {
    pub(super) target: Target,
    pub(super) pool: BufPool,
    pub(super) now: Instant,
    pub(super) disk: Disk,
    pub(super) wire: Wire,
    /// By volume number.
    pub(super) media: Vec<Vec<u8>>,
    pub(super) submitted: Vec<(VolumeId, Op)>,
    pub(super) waiting: Vec<(Tag, VolumeId, Op)>,
    pub(super) wanted: Vec<Wanted>,
    pub(super) aborts: Vec<Tag>,
    pub(super) events: Vec<EventKind>,
    pub(super) elsewhere: Vec<(QueueId, String)>,
    pub(super) closes: Vec<QueueId>,
    /// Everything that came, in order.
    pub(super) replies: Vec<(QueueId, Reply)>,
    /// Data that hosts send, by queue and CID.
    outgoing: BTreeMap<(QueueId, u16), Vec<u8>>,
    open: BTreeSet<QueueId>,
    answered: BTreeSet<TaskId>,
    next_cid: u16,
}

/// A command as a host makes it.
#[derive(Clone, Debug)]
pub(super) struct Cmd {
    pub(super) sqe: [u8; 64],
    pub(super) data: Vec<u8>,
    pub(super) len: u32,
    pub(super) in_capsule: bool,
}

impl Cmd {
    pub(super) fn new(opcode: u8) -> Self {
        let mut sqe = [0; 64];
        sqe[0] = opcode;
        sqe[1] = 0x40;
        Self { sqe, data: Vec::new(), len: 0, in_capsule: false }
    }

    pub(super) fn byte(mut self, at: usize, value: u8) -> Self {
        self.sqe[at] = value;
        self
    }

    pub(super) fn u16(mut self, at: usize, value: u16) -> Self {
        self.sqe[at..at + 2].copy_from_slice(&value.to_le_bytes());
        self
    }

    pub(super) fn u32(mut self, at: usize, value: u32) -> Self {
        self.sqe[at..at + 4].copy_from_slice(&value.to_le_bytes());
        self
    }

    pub(super) fn u64(mut self, at: usize, value: u64) -> Self {
        self.sqe[at..at + 8].copy_from_slice(&value.to_le_bytes());
        self
    }

    pub(super) fn cid(self, cid: u16) -> Self {
        self.u16(2, cid)
    }

    pub(super) fn nsid(self, nsid: u32) -> Self {
        self.u32(4, nsid)
    }

    pub(super) fn cdw(self, n: usize, value: u32) -> Self {
        self.u32(4 * n, value)
    }

    /// FUSE 1 or 2.
    pub(super) fn fuse(self, fuse: u8) -> Self {
        let flags = self.sqe[1] | fuse;
        self.byte(1, flags)
    }

    /// Data for the controller.
    pub(super) fn send(mut self, data: &[u8]) -> Self {
        self.data = data.to_vec();
        self.len = data.len() as u32;
        self
    }

    pub(super) fn in_capsule(mut self) -> Self {
        self.in_capsule = true;
        self
    }

    /// Room for data from the controller.
    pub(super) fn room(mut self, len: usize) -> Self {
        self.len = len as u32;
        self
    }
}

pub(super) fn read(lba: u64, blocks: u32) -> Cmd {
    blocks_of(0x02, lba, blocks).room(blocks as usize * BLOCK)
}

pub(super) fn write(lba: u64, data: &[u8]) -> Cmd {
    blocks_of(0x01, lba, (data.len() / BLOCK) as u32).send(data)
}

pub(super) fn compare(lba: u64, data: &[u8]) -> Cmd {
    blocks_of(0x05, lba, (data.len() / BLOCK) as u32).send(data)
}

/// A command with SLBA and NLB.
pub(super) fn blocks_of(opcode: u8, lba: u64, blocks: u32) -> Cmd {
    Cmd::new(opcode).nsid(1).u64(40, lba).cdw(12, blocks - 1)
}

pub(super) fn flush(nsid: u32) -> Cmd {
    Cmd::new(0x00).nsid(nsid)
}

/// A fabrics command.
pub(super) fn fabrics(fctype: u8) -> Cmd {
    Cmd::new(0x7f).byte(4, fctype)
}

pub(super) fn property_get(offset: u32, eight: bool) -> Cmd {
    fabrics(0x04).byte(40, eight.into()).u32(44, offset)
}

pub(super) fn property_set(offset: u32, value: u64) -> Cmd {
    fabrics(0x00).u32(44, offset).u64(48, value)
}

pub(super) fn abort(sqid: u16, cid: u16) -> Cmd {
    Cmd::new(0x08).u16(40, sqid).u16(42, cid)
}

pub(super) fn set_feature(fid: u8, value: u32) -> Cmd {
    Cmd::new(0x09).cdw(10, fid.into()).cdw(11, value)
}

pub(super) fn get_feature(fid: u8) -> Cmd {
    Cmd::new(0x0a).cdw(10, fid.into())
}

pub(super) fn event_request() -> Cmd {
    Cmd::new(0x0c)
}

pub(super) fn log_page(lid: u8, len: usize) -> Cmd {
    let dwords = (len / 4 - 1) as u32;
    Cmd::new(0x02).cdw(10, u32::from(lid) | dwords << 16).cdw(11, dwords >> 16).room(len)
}

/// CC with everything as it has to be, and EN.
pub(super) const ENABLED: u32 = 0x0046_0001;

/// What a Connect says.
#[derive(Clone, Debug)]
pub(super) struct Connect {
    pub(super) cmd: Cmd,
}

impl Connect {
    /// To the admin queue.
    pub(super) fn admin() -> Self {
        Self::to(0, 0xffff, 31)
    }

    pub(super) fn io(qid: u16, cntlid: u16) -> Self {
        Self::to(qid, cntlid, 127)
    }

    pub(super) fn to(qid: u16, cntlid: u16, sqsize: u16) -> Self {
        let mut data = vec![0; 1024];
        data[..16].fill(0x77);
        data[16..18].copy_from_slice(&cntlid.to_le_bytes());
        let cmd = fabrics(0x01).u16(42, qid).u16(44, sqsize).send(&data).in_capsule();
        Self { cmd }.text(256, NQN).text(512, HOST)
    }

    pub(super) fn kato(mut self, ms: u32) -> Self {
        self.cmd = self.cmd.u32(48, ms);
        self
    }

    pub(super) fn no_flow_control(mut self) -> Self {
        self.cmd = self.cmd.byte(46, 0x04);
        self
    }

    pub(super) fn text(self, at: usize, text: &str) -> Self {
        self.bytes(at, &vec![0; 256]).bytes(at, text.as_bytes())
    }

    pub(super) fn bytes(mut self, at: usize, bytes: &[u8]) -> Self {
        self.cmd.data[at..at + bytes.len()].copy_from_slice(bytes);
        self
    }
}

pub(super) fn volume_info() -> VolumeInfo {
    VolumeInfo {
        physical_block: 4096,
        write_cache: true,
        write_cache_changeable: true,
        discard: Some(Discard { granularity: 8, alignment: 0, max_blocks: u32::MAX, reads_zeroes: true }),
        ..test_disk::volume_info()
    }
}

/// A namespace on the volume of the same number.
pub(super) fn namespace(nsid: u32) -> NamespaceConfig {
    NamespaceConfig {
        nsid,
        volume: VolumeId(nsid),
        info: volume_info(),
        uuid: [nsid as u8; 16],
        read_only: false,
        ana_group: 1,
    }
}

pub(super) fn subsystem(nqn: &str) -> SubsystemConfig {
    SubsystemConfig {
        nqn: nqn.to_owned(),
        serial: "serial".to_owned(),
        model: "model".to_owned(),
        firmware: "1".to_owned(),
        hosts: Hosts::Any,
        namespaces: vec![namespace(1), namespace(2)],
        ana_groups: BTreeMap::from([(7, AnaGroup::default())]),
    }
}

pub(super) fn entry(nqn: &str) -> DirectoryEntry {
    DirectoryEntry { nqn: nqn.to_owned(), hosts: Hosts::Any, portals: Vec::new(), through: Vec::new() }
}

pub(super) fn config() -> TargetConfig {
    TargetConfig {
        subsystems: vec![subsystem(NQN)],
        directory: vec![entry(NQN), entry(OTHER_NQN)],
        referrals: Vec::new(),
        cntlid: CNTLIDS,
        limits: Limits::default(),
        tag_base: TAG_BASE,
    }
}

pub(super) fn portal(number: u16) -> PortalInfo {
    PortalInfo { address: "192.0.2.1".to_owned(), port: 4420 + number, number }
}

/// An admin queue and an I/O queue, enabled.
#[derive(Clone, Copy, Debug)]
pub(super) struct Session {
    pub(super) admin: QueueId,
    pub(super) io: QueueId,
    pub(super) cntlid: u16,
}

impl Rig {
    pub(super) fn new() -> Self {
        Self::with(config())
    }

    pub(super) fn with_limits(limits: Limits) -> Self {
        Self::with(TargetConfig { limits, ..config() })
    }

    pub(super) fn with(config: TargetConfig) -> Self {
        let mut pool = BufPool::new(64 << 20);
        // What an earlier user left.
        let stale: Vec<BufId> = [4 << 10, 4 << 10, 16 << 10, 64 << 10, 1 << 20].map(|n| pool.alloc(n).unwrap()).into();
        for buf in stale {
            pool.bytes_mut(buf).fill(0xa5);
            pool.free(buf);
        }
        Self {
            target: Target::new(config),
            pool,
            now: Instant(1_000_000_000),
            disk: Disk::Fast,
            wire: Wire::Fast,
            media: (0..4).map(|n| vec![n; BLOCK * BLOCKS as usize]).collect(),
            submitted: Vec::new(),
            waiting: Vec::new(),
            wanted: Vec::new(),
            aborts: Vec::new(),
            events: Vec::new(),
            elsewhere: Vec::new(),
            closes: Vec::new(),
            replies: Vec::new(),
            outgoing: BTreeMap::new(),
            open: BTreeSet::new(),
            answered: BTreeSet::new(),
            next_cid: 0x100,
        }
    }

    pub(super) fn open(&mut self) -> QueueId {
        self.open_through(0)
    }

    pub(super) fn open_through(&mut self, number: u16) -> QueueId {
        let queue = self.target.open(self.now, Arc::from("198.51.100.1:1000"), portal(number));
        self.open.insert(queue);
        queue
    }

    /// A queue came from another target.
    pub(super) fn took_over(&mut self, queue: QueueId) {
        self.open.insert(queue);
        self.pump();
    }

    /// Sends a command under its own CID.
    pub(super) fn try_send(&mut self, queue: QueueId, cmd: &Cmd) -> Result<(), Overrun> {
        self.try_send_with(queue, cmd, Ok(Transfer { len: cmd.len, in_capsule: cmd.in_capsule }))
    }

    pub(super) fn try_send_with(
        &mut self,
        queue: QueueId,
        cmd: &Cmd,
        transfer: Result<Transfer, Status>,
    ) -> Result<(), Overrun> {
        let cid = u16::from_le_bytes([cmd.sqe[2], cmd.sqe[3]]);
        self.outgoing.insert((queue, cid), cmd.data.clone());
        let result = self.target.command(self.now, queue, &cmd.sqe, transfer, &mut self.pool);
        self.pump();
        result
    }

    /// Sends a command under a new CID, which it returns.
    pub(super) fn send(&mut self, queue: QueueId, cmd: &Cmd) -> u16 {
        self.next_cid += 1;
        let cid = self.next_cid;
        self.try_send(queue, &cmd.clone().cid(cid)).unwrap();
        cid
    }

    /// Sends, and gives the one reply.
    pub(super) fn ask(&mut self, queue: QueueId, cmd: &Cmd) -> Reply {
        let cid = self.send(queue, cmd);
        self.reply_to(queue, cid)
    }

    /// Sends, and gives the status as SCT << 8 | SC.
    pub(super) fn status(&mut self, queue: QueueId, cmd: &Cmd) -> u16 {
        self.ask(queue, cmd).status.0 & 0x7ff
    }

    pub(super) fn reply_to(&mut self, queue: QueueId, cid: u16) -> Reply {
        self.take_reply(queue, cid).unwrap_or_else(|| panic!("no reply to {cid:#x}, {:?}", self.events))
    }

    pub(super) fn take_reply(&mut self, queue: QueueId, cid: u16) -> Option<Reply> {
        let at = self.replies.iter().position(|(q, r)| *q == queue && r.cid == cid)?;
        Some(self.replies.remove(at).1)
    }

    pub(super) fn connect(&mut self, connect: &Connect) -> (QueueId, Reply) {
        let queue = self.open();
        let reply = self.ask(queue, &connect.cmd);
        (queue, reply)
    }

    /// A controller that is enabled, with one I/O queue.
    pub(super) fn session(&mut self) -> Session {
        self.session_as(&Connect::admin(), &|cntlid| Connect::io(1, cntlid), 0)
    }

    pub(super) fn session_as(&mut self, admin: &Connect, io: &dyn Fn(u16) -> Connect, portal: u16) -> Session {
        let queue = self.open_through(portal);
        let reply = self.ask(queue, &admin.cmd);
        assert_eq!(reply.status, Status::SUCCESS, "{:?}", self.events);
        let cntlid = reply.result as u16;
        self.enable(queue);
        let io_queue = self.open_through(portal);
        let reply = self.ask(io_queue, &io(cntlid).cmd);
        assert_eq!(reply.status, Status::SUCCESS, "{:?}", self.events);
        Session { admin: queue, io: io_queue, cntlid }
    }

    pub(super) fn enable(&mut self, admin: QueueId) {
        assert_eq!(self.status(admin, &property_set(0x14, ENABLED.into())), 0);
    }

    pub(super) fn discovery(&mut self, kato: u32) -> QueueId {
        let (queue, reply) = self.connect(&Connect::admin().text(256, DISCOVERY_NQN).kato(kato));
        assert_eq!(reply.status, Status::SUCCESS, "{:?}", self.events);
        self.enable(queue);
        queue
    }

    /// The host's end of the connection is gone.
    pub(super) fn hang_up(&mut self, queue: QueueId) {
        if self.open.remove(&queue) {
            self.wanted.retain(|w| w.queue != queue);
            self.target.closed(self.now, queue, &mut self.pool);
            self.pump();
        }
    }

    pub(super) fn is_open(&self, queue: QueueId) -> bool {
        self.open.contains(&queue)
    }

    /// Whether a command has nothing to wait for but something that the host or the controller may do later.
    pub(super) fn may_wait(&self, queue: QueueId, cid: u16) -> bool {
        let queue = self.target.queues.get(Key::from_bits(queue.0));
        let task = queue.and_then(|q| q.active.find(cid)).and_then(|t| self.target.tasks.get(t));
        task.is_some_and(|t| matches!(t.awaits, Awaits::Event | Awaits::Partner | Awaits::Elsewhere))
    }

    /// Time passes, and every timer runs when it is due.
    pub(super) fn wait(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(due) = self.target.poll_timeout().filter(|&t| t <= end) {
            self.now = self.now.max(due);
            self.target.tick(self.now, &mut self.pool);
            self.pump();
        }
        self.now = end;
    }

    /// Does everything the target wants done.
    pub(super) fn pump(&mut self) {
        while let Some(output) = self.target.poll_output() {
            match output {
                Output::Receive { queue, task, cid, in_capsule: _, buf, at, len } => {
                    assert!(len > 0 && at + len <= self.pool.len_of(buf), "{at} + {len}");
                    self.wanted.push(Wanted { queue, task, cid, buf, at, len });
                    if self.wire == Wire::Fast {
                        self.deliver_all();
                    }
                }
                Output::Submit { tag, volume, op } => {
                    assert_eq!(tag.0 >> 48, u64::from(TAG_BASE));
                    assert!(self.waiting.iter().all(|(t, ..)| *t != tag), "one op of a command at a time");
                    self.submitted.push((volume, op));
                    self.waiting.push((tag, volume, op));
                    if self.disk == Disk::Fast {
                        self.release_all();
                    }
                }
                Output::Abort { tag } => {
                    self.aborts.push(tag);
                    if self.disk != Disk::Stuck
                        && let Some(at) = self.waiting.iter().position(|(t, ..)| *t == tag)
                    {
                        self.waiting.remove(at);
                        self.target.completed(self.now, tag, OpStatus::Aborted, None, &mut self.pool);
                    }
                }
                Output::Reply { queue, task, cqe, data, plain_success } => {
                    assert!(self.answered.insert(task), "answered twice: {task:?}");
                    assert!(self.open.contains(&queue), "a reply on a connection that has ended");
                    assert!(!self.closes.contains(&queue), "a reply after Close");
                    let data = data.map(|d| {
                        let bytes = self.pool.bytes(d.buf)[d.at..d.at + d.len].to_vec();
                        self.pool.free(d.buf);
                        bytes
                    });
                    let u16_at = |at: usize| u16::from_le_bytes([cqe[at], cqe[at + 1]]);
                    assert_eq!(cqe[14] & 1, 0, "the phase bit");
                    let reply = Reply {
                        cid: u16_at(12),
                        status: Status(u16_at(14) >> 1),
                        result: u64::from_le_bytes(cqe[..8].try_into().unwrap()),
                        sqhd: u16_at(8),
                        sqid: u16_at(10),
                        data: data.unwrap_or_default(),
                        plain: plain_success,
                    };
                    self.replies.push((queue, reply));
                }
                Output::Close { queue } => {
                    assert!(self.open.contains(&queue), "Close of a connection that has ended");
                    assert!(!self.closes.contains(&queue), "Close twice");
                    self.closes.push(queue);
                }
                Output::Elsewhere { queue, subsystem } => self.elsewhere.push((queue, subsystem)),
                Output::Event(event) => self.events.push(event.kind),
            }
        }
    }

    /// The subsystem, and with it every controller, is taken away; the connections are still there.
    pub(super) fn close_controller(&mut self) {
        self.target.remove_subsystem(self.now, NQN, &mut self.pool);
        self.pump();
    }

    /// Closes the connections that the target wants closed.
    pub(super) fn close_all(&mut self) {
        for queue in std::mem::take(&mut self.closes) {
            self.hang_up(queue);
        }
    }

    pub(super) fn deliver_all(&mut self) {
        while !self.wanted.is_empty() {
            self.deliver(0);
        }
    }

    /// The data of one command come: its own, or zeroes where it sent too few.
    pub(super) fn deliver(&mut self, at: usize) {
        let Wanted { queue, task, cid, buf, at, len } = self.wanted.remove(at);
        let mut data = self.outgoing.get(&(queue, cid)).cloned().unwrap_or_default();
        data.resize(len, 0);
        self.pool.bytes_mut(buf)[at..at + len].copy_from_slice(&data);
        self.target.received(self.now, task, &mut self.pool);
        self.pump();
    }

    /// The data of one command come wrongly.
    pub(super) fn spoil(&mut self, at: usize, status: Status) {
        let wanted = self.wanted.remove(at);
        self.target.transfer_failed(self.now, wanted.task, status, &mut self.pool);
        self.pump();
    }

    pub(super) fn release_all(&mut self) {
        while !self.waiting.is_empty() {
            self.release(0, OpStatus::Good);
        }
    }

    /// One op happens, or fails.
    pub(super) fn release(&mut self, at: usize, status: OpStatus) {
        let (tag, volume, op) = self.waiting.remove(at);
        let status = if status.is_good() { self.execute(volume, op) } else { status };
        self.target.completed(self.now, tag, status, None, &mut self.pool);
        self.pump();
    }

    fn execute(&mut self, volume: VolumeId, op: Op) -> OpStatus {
        let medium = &mut self.media[volume.0 as usize];
        let bytes = |range: platter_block::BlockRange| range.start.0 as usize * BLOCK..range.end() as usize * BLOCK;
        if op.range().is_some_and(|r| !r.within((medium.len() / BLOCK) as u64)) {
            return OpStatus::LbaOutOfRange;
        }
        let place = op.range().map(bytes).unwrap_or(0..0);
        match op {
            Op::Read { buf, .. } => self.pool.bytes_mut(buf)[..place.len()].copy_from_slice(&medium[place]),
            Op::Write { buf, .. } => {
                let len = place.len();
                medium[place].copy_from_slice(&self.pool.bytes(buf)[..len]);
            }
            Op::WriteZeroes { .. } | Op::Unmap { .. } => medium[place].fill(0),
            Op::CompareAndWrite { buf, .. } => {
                let len = place.len();
                let data = self.pool.bytes(buf);
                if let Some(offset) = medium[place.clone()].iter().zip(data).position(|(a, b)| a != b) {
                    return OpStatus::MiscompareAt { offset: offset as u64 };
                }
                medium[place].copy_from_slice(&data[len..2 * len]);
            }
            Op::Flush | Op::SetWriteCache { .. } => {}
            other => panic!("{other:?} is not made by NVMe"),
        }
        OpStatus::Good
    }

    /// Ends every connection, then what is left in the engine, and checks that nothing is left behind.
    pub(super) fn wind_up(mut self) {
        for queue in self.open.clone() {
            self.hang_up(queue);
        }
        while !self.waiting.is_empty() {
            self.release(0, OpStatus::Aborted);
        }
        self.assert_idle();
    }

    pub(super) fn assert_idle(&self) {
        assert_eq!(self.pool.in_use(), 0, "buffers are left");
        assert_eq!(self.target.queues.len(), 0, "queues are left");
        assert_eq!(self.target.controllers.len(), 0, "controllers are left");
        assert_eq!(self.target.tasks.len(), 0, "commands are left");
        assert!(self.target.timers.is_empty(), "timers are left");
    }

    /// The last op that was submitted.
    pub(super) fn last_op(&self) -> Op {
        self.submitted.last().expect("no op was submitted").1
    }

    /// The medium of a volume, from a block on.
    pub(super) fn medium(&self, volume: usize, lba: usize, len: usize) -> &[u8] {
        &self.media[volume][lba * BLOCK..lba * BLOCK + len]
    }
}
