//! A node, its disk, and the hosts at the other ends of its connections.

use std::collections::BTreeMap;
use std::time::Duration;

use platter_block::{BufPool, Instant, Op, Status, Tag, VolumeId};

use super::wire::{self, Digests, Pdu, PduReader, Request};
use crate::nvme::{self, DirectoryEntry, EventKind, Hosts, NamespaceConfig, PortalInfo, SubsystemConfig, TargetConfig};
use crate::nvme_tcp::{ConnId, Limits, Node, NodeConfig, Output};
use crate::test_disk;
pub(super) use crate::test_disk::{BLOCK, BLOCKS, Disk, pattern, volume_info};

pub(super) const NQN: &str = "nqn.2026-11.org.example:disks";
pub(super) const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:host1";
/// MAXH2CDATA.
pub(super) const MAX_H2C: usize = 8192;

pub(super) struct Rig {
    pub(super) node: Node,
    pub(super) pool: BufPool,
    pub(super) now: Instant,
    pub(super) disk: Disk,
    pub(super) medium: Vec<u8>,
    /// Ops that wait, oldest first.
    pub(super) waiting: Vec<(Tag, Op)>,
    pub(super) aborts: Vec<Tag>,
    /// Every op that was submitted.
    pub(super) submitted: Vec<Op>,
    pub(super) events: Vec<EventKind>,
    pub(super) elsewhere: Vec<(ConnId, String)>,
    ends: BTreeMap<ConnId, End>,
    /// Connections whose hosts do not read.
    pub(super) deaf: Vec<ConnId>,
    /// Hosts read straight into buffers where the node says so.
    pub(super) direct: bool,
    /// Bytes that went there.
    pub(super) placed: usize,
}

#[derive(Default)]
struct End {
    reader: PduReader,
    /// Sent, and not taken.
    unread: Vec<u8>,
    /// The node wanted no bytes: it is not asked again before it has something to write, or has written something.
    paused: bool,
    closed: bool,
}

pub(super) fn portal() -> PortalInfo {
    PortalInfo { address: "192.0.2.1".to_owned(), port: 4420, number: 1 }
}

pub(super) fn config() -> NodeConfig {
    let namespace = NamespaceConfig {
        nsid: 1,
        volume: VolumeId(1),
        info: volume_info(),
        uuid: [7; 16],
        read_only: false,
        ana_group: 1,
    };
    let subsystem = SubsystemConfig {
        nqn: NQN.to_owned(),
        serial: "1".to_owned(),
        model: "Platter".to_owned(),
        firmware: "1".to_owned(),
        hosts: Hosts::Any,
        namespaces: vec![namespace],
        ana_groups: BTreeMap::new(),
    };
    let target = TargetConfig {
        subsystems: vec![subsystem],
        directory: vec![entry(NQN)],
        referrals: Vec::new(),
        cntlid: 1..=100,
        limits: nvme::Limits { io_queues: 4, ..nvme::Limits::default() },
        tag_base: 7,
    };
    NodeConfig { target, limits: Limits { max_h2c_data: MAX_H2C as u32, ..Limits::default() } }
}

pub(super) fn entry(nqn: &str) -> DirectoryEntry {
    DirectoryEntry { nqn: nqn.to_owned(), hosts: Hosts::Any, portals: Vec::new(), through: Vec::new() }
}

impl Rig {
    pub(super) fn new() -> Self {
        Self::with(config())
    }

    pub(super) fn with(config: NodeConfig) -> Self {
        Self {
            node: Node::new(config),
            pool: BufPool::new(64 << 20),
            now: Instant(1_000_000_000),
            disk: Disk::Fast,
            medium: vec![0; BLOCK * BLOCKS as usize],
            waiting: Vec::new(),
            aborts: Vec::new(),
            submitted: Vec::new(),
            events: Vec::new(),
            elsewhere: Vec::new(),
            ends: BTreeMap::new(),
            deaf: Vec::new(),
            direct: false,
            placed: 0,
        }
    }

    /// A TCP connection.
    pub(super) fn dial(&mut self) -> ConnId {
        let conn = self.node.accept(self.now, "198.51.100.1:1000", portal()).unwrap();
        self.adopt(conn);
        conn
    }

    /// Takes over a connection that another node gave away.
    pub(super) fn adopt(&mut self, conn: ConnId) {
        self.ends.insert(conn, End::default());
        self.agree(conn, Options::default());
    }

    pub(super) fn send(&mut self, conn: ConnId, request: &Request) {
        let digests = self.ends[&conn].reader.digests;
        self.send_bytes(conn, &request.encode(digests));
    }

    pub(super) fn send_bytes(&mut self, conn: ConnId, bytes: &[u8]) {
        self.ends.get_mut(&conn).unwrap().unread.extend(bytes);
        self.pump();
    }

    /// Sends, and gives everything that comes back.
    pub(super) fn ask(&mut self, conn: ConnId, request: &Request) -> Vec<Pdu> {
        self.send(conn, request);
        self.replies(conn)
    }

    /// Sends, and gives the one PDU that comes back.
    pub(super) fn ask_one(&mut self, conn: ConnId, request: &Request) -> Pdu {
        self.send(conn, request);
        self.reply(conn)
    }

    /// The one PDU that came.
    pub(super) fn reply(&mut self, conn: ConnId) -> Pdu {
        let mut replies = self.replies(conn);
        assert_eq!(replies.len(), 1, "{replies:?} {:?}", self.events);
        replies.remove(0)
    }

    pub(super) fn replies(&mut self, conn: ConnId) -> Vec<Pdu> {
        let pdus = self.some_replies(conn);
        assert!(self.ends[&conn].reader.is_empty(), "half a PDU");
        pdus
    }

    /// The last PDU may be incomplete, if the connection was lost.
    pub(super) fn some_replies(&mut self, conn: ConnId) -> Vec<Pdu> {
        let end = self.ends.get_mut(&conn).unwrap();
        std::iter::from_fn(|| end.reader.next_pdu()).collect()
    }

    pub(super) fn is_closed(&self, conn: ConnId) -> bool {
        self.ends.get(&conn).is_none_or(|e| e.closed)
    }

    /// Bytes that were sent and not taken.
    pub(super) fn unread(&self, conn: ConnId) -> usize {
        self.ends[&conn].unread.len()
    }

    /// Takes the bytes out that were sent and not taken.
    pub(super) fn take_unread(&mut self, conn: ConnId) -> Vec<u8> {
        std::mem::take(&mut self.ends.get_mut(&conn).unwrap().unread)
    }

    /// The host's socket is gone.
    pub(super) fn hang_up(&mut self, conn: ConnId) {
        if !self.is_closed(conn) {
            self.ends.get_mut(&conn).unwrap().closed = true;
            self.node.closed(self.now, conn, &mut self.pool);
            self.pump();
        }
    }

    /// Does everything the node wants done, and gives it what was sent, until nothing moves.
    pub(super) fn pump(&mut self) {
        loop {
            self.drain_outputs();
            let has_bytes = |end: &End| !end.closed && !end.paused && !end.unread.is_empty();
            let Some((&conn, end)) = self.ends.iter_mut().find(|(_, end)| has_bytes(end)) else { return };
            end.paused = !self.node.wants_bytes(conn);
            if !end.paused {
                self.feed(conn);
            }
        }
    }

    fn feed(&mut self, conn: ConnId) {
        let mut unread = self.take_unread(conn);
        if self.direct
            && let Some((buf, range)) = self.node.payload_space(conn)
        {
            let n = range.len().min(unread.len());
            self.pool.bytes_mut(buf)[range.start..range.start + n].copy_from_slice(&unread[..n]);
            self.node.placed(self.now, conn, n, &mut self.pool);
            self.placed += n;
            unread.drain(..n);
        } else {
            // In two pieces, as sockets give what there is; the second is refused where the first has filled a queue.
            let n = if self.direct { unread.len().min(100) } else { unread.len() };
            let taken = self.node.received(self.now, conn, &unread[..n], &mut self.pool);
            assert!(taken > 0, "bytes were wanted");
            unread.drain(..taken);
        }
        if let Some(end) = self.ends.get_mut(&conn) {
            end.unread = unread;
        }
    }

    fn drain_outputs(&mut self) {
        while let Some(output) = self.node.poll_output() {
            match output {
                Output::Submit { tag, volume: VolumeId(_), op } => {
                    assert_eq!(tag.0 >> 48, 7, "the tag base");
                    self.submitted.push(op);
                    self.waiting.push((tag, op));
                    if self.disk == Disk::Fast {
                        self.release_all();
                    }
                }
                Output::Abort { tag } => {
                    self.aborts.push(tag);
                    if self.disk != Disk::Stuck
                        && let Some(at) = self.waiting.iter().position(|(t, _)| *t == tag)
                    {
                        self.waiting.remove(at);
                        self.node.completed(self.now, tag, Status::Aborted, None, &mut self.pool);
                    }
                }
                Output::Transmit { conn } => {
                    self.ends.get_mut(&conn).unwrap().paused = false;
                    self.write_out(conn);
                }
                Output::Close { conn, flush } => {
                    if flush {
                        self.write_out(conn);
                    }
                    self.ends.get_mut(&conn).unwrap().closed = true;
                    self.node.closed(self.now, conn, &mut self.pool);
                }
                Output::Event(event) => self.events.push(event.kind),
                Output::Elsewhere { conn, name } => self.elsewhere.push((conn, name)),
            }
        }
    }

    fn write_out(&mut self, conn: ConnId) {
        if self.deaf.contains(&conn) {
            return;
        }
        loop {
            let mut iov = Vec::new();
            self.node.transmit(conn, &self.pool, &mut iov);
            let bytes: Vec<u8> = iov.iter().flat_map(|s| s.iter().copied()).collect();
            if bytes.is_empty() {
                return;
            }
            // An odd number, so that PDUs are cut.
            let n = bytes.len().min(1001);
            let end = self.ends.get_mut(&conn).unwrap();
            end.reader.push(&bytes[..n]);
            end.paused = false;
            self.node.transmitted(self.now, conn, n, &mut self.pool);
        }
    }

    /// The host reads again.
    pub(super) fn listen(&mut self, conn: ConnId) {
        self.deaf.retain(|&c| c != conn);
        self.write_out(conn);
        self.pump();
    }

    /// Lets every op that waits happen.
    pub(super) fn release_all(&mut self) {
        while !self.waiting.is_empty() {
            self.finish(0, Status::Good);
        }
    }

    /// Lets one op happen, or fail.
    pub(super) fn release(&mut self, at: usize, status: Status) {
        self.finish(at, status);
        self.pump();
    }

    fn finish(&mut self, at: usize, status: Status) {
        let (tag, op) = self.waiting.remove(at);
        if status.is_good() {
            test_disk::execute(op, &mut self.medium, &mut self.pool);
        }
        self.node.completed(self.now, tag, status, None, &mut self.pool);
    }

    /// Time passes, tick by tick as the node wants it.
    pub(super) fn wait(&mut self, duration: Duration) {
        let until = self.now + duration;
        while let Some(next) = self.node.poll_timeout().filter(|&t| t <= until) {
            self.now = self.now.max(next);
            self.node.tick(self.now, &mut self.pool);
            self.pump();
        }
        self.now = until;
    }

    /// Nothing is held any more by anything.
    pub(super) fn assert_idle(&mut self) {
        assert_eq!(self.pool.in_use(), 0, "buffers are still in use");
        assert!(self.waiting.is_empty());
        assert!(self.node.target().controllers().is_empty());
        assert_eq!((self.node.conns.len(), self.node.queues.len()), (0, 0));
    }

    /// Everything ends, and nothing is left.
    pub(super) fn wind_up(&mut self) {
        let conns: Vec<ConnId> = self.ends.keys().copied().collect();
        conns.into_iter().for_each(|c| self.hang_up(c));
        while !self.waiting.is_empty() {
            self.release(0, Status::Aborted);
        }
        self.assert_idle();
    }
}

/// How a host connects.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Options {
    pub(super) digests: Digests,
    pub(super) hpda: u8,
    pub(super) flow_control: bool,
}

/// A host with an admin queue and an I/O queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Host {
    pub(super) admin: ConnId,
    pub(super) io: ConnId,
}

pub(super) fn connect_data(cntlid: u16, nqn: &str) -> Vec<u8> {
    let mut data = vec![0; 1024];
    data[..16].fill(9);
    data[16..18].copy_from_slice(&cntlid.to_le_bytes());
    data[256..256 + nqn.len()].copy_from_slice(nqn.as_bytes());
    data[512..512 + HOST.len()].copy_from_slice(HOST.as_bytes());
    data
}

/// Connect, with its data in the capsule.
pub(super) fn connect(qid: u16, cntlid: u16, flow_control: bool) -> Request {
    let fabrics = wire::command(0x7f, 0, 1).u16(8 + 42, qid).u16(8 + 44, 63);
    fabrics.byte(8 + 46, if flow_control { 0 } else { 4 }).in_capsule(&connect_data(cntlid, NQN))
}

/// Property Set.
pub(super) fn property_set(cid: u16, offset: u32, value: u64) -> Request {
    wire::command(0x7f, cid, 0).u32(8 + 44, offset).u64(8 + 48, value)
}

pub(super) fn read(cid: u16, lba: u32, blocks: u16) -> Request {
    let len = u32::from(blocks) * BLOCK as u32;
    wire::command(0x02, cid, 1).transport(len).cdw(10, lba).cdw(12, u32::from(blocks) - 1)
}

/// A write whose data are asked for.
pub(super) fn write(cid: u16, lba: u32, len: usize) -> Request {
    let blocks = (len / BLOCK) as u32;
    wire::command(0x01, cid, 1).transport(len as u32).cdw(10, lba).cdw(12, blocks - 1)
}

/// A write with its data.
pub(super) fn write_in_capsule(cid: u16, lba: u32, data: &[u8]) -> Request {
    write(cid, lba, data.len()).in_capsule(data)
}

impl Rig {
    /// A connection that has exchanged ICReq and ICResp.
    pub(super) fn initialized(&mut self, options: Options) -> ConnId {
        let conn = self.dial();
        let reply = self.ask_one(conn, &wire::ic_req(options.digests, options.hpda, 0));
        assert_eq!(reply.kind(), 1);
        self.agree(conn, options);
        conn
    }

    /// What is read from now on has these formats.
    pub(super) fn agree(&mut self, conn: ConnId, options: Options) {
        let reader = &mut self.ends.get_mut(&conn).unwrap().reader;
        reader.digests = options.digests;
        reader.alignment = (usize::from(options.hpda) + 1) * 4;
    }

    pub(super) fn host(&mut self, options: Options) -> Host {
        let admin = self.initialized(options);
        let reply = self.ask_one(admin, &connect(0, 0xffff, options.flow_control));
        assert_eq!(reply.status(), 0, "{:?}", self.events);
        let cntlid = reply.u16(8);
        assert_eq!(self.ask_one(admin, &property_set(1, 0x14, 0x0046_0001)).status(), 0);
        let io = self.initialized(options);
        let reply = self.ask_one(io, &connect(1, cntlid, options.flow_control));
        assert_eq!(reply.status(), 0, "{:?}", self.events);
        Host { admin, io }
    }

    pub(super) fn plain_host(&mut self) -> Host {
        self.host(Options { flow_control: true, ..Options::default() })
    }

    /// Sends a write and answers its R2T.
    pub(super) fn write_by_r2t(&mut self, conn: ConnId, cid: u16, lba: u32, data: &[u8]) -> Pdu {
        let r2t = self.ask_one(conn, &write(cid, lba, data.len()));
        self.answer(conn, &r2t, data);
        self.reply(conn)
    }

    /// Sends all that an R2T asks for, in pieces of MAXH2CDATA.
    pub(super) fn answer(&mut self, conn: ConnId, r2t: &Pdu, data: &[u8]) {
        assert_eq!((r2t.kind(), r2t.u32(12), r2t.u32(16) as usize), (9, 0, data.len()));
        let pieces = data.len().div_ceil(MAX_H2C);
        for (n, piece) in data.chunks(MAX_H2C).enumerate() {
            let offset = (n * MAX_H2C) as u32;
            self.send(conn, &wire::h2c_data(r2t.u16(8), r2t.u16(10), offset, piece, n + 1 == pieces));
        }
    }

    /// Reads, and gives the data of a read that succeeds.
    pub(super) fn read_good(&mut self, conn: ConnId, cid: u16, lba: u32, blocks: u16) -> Vec<u8> {
        let replies = self.ask(conn, &read(cid, lba, blocks));
        assert_eq!((replies[0].kind(), replies[0].u16(8)), (7, cid), "{replies:?}");
        match replies.get(1) {
            Some(response) => assert_eq!((response.status(), response.cid(), replies[0].flags() & 8), (0, cid, 0)),
            None => assert_eq!(replies[0].flags() & 0x0c, 0x0c, "LAST_PDU and SUCCESS"),
        }
        replies[0].data.clone()
    }

    /// Sends something that ends the connection, and gives FES and FEI.
    pub(super) fn fatal(&mut self, conn: ConnId, bytes: &[u8]) -> (u16, u32) {
        self.send_bytes(conn, bytes);
        let reply = self.reply(conn);
        let hlen = usize::from(bytes[2]).clamp(8, 128).min(bytes.len());
        assert!(reply.data.len() >= 8 && bytes[..hlen].starts_with(&reply.data), "carries the bad header: {reply:?}");
        assert!(self.is_closed(conn), "{:?}", self.events);
        reply.fatal()
    }
}
