//! A node, its disk, and the other ends of its connections.

use std::collections::BTreeMap;
use std::time::Duration;

use platter_block::{BufPool, Instant, Op, Status, Tag, VolumeId};

use super::wire::{self, Digests, Pdu, PduReader, Request, opcode};
use crate::iscsi::{
    ConnId, DirectoryEntry, EventKind, Initiators, Limits, Node, NodeConfig, Output, PortalInfo, TargetConfig,
};
use crate::scsi::{DeviceConfig, Identity, UnitConfig};
use crate::test_disk;
pub(super) use crate::test_disk::{BLOCK, BLOCKS, Disk, pattern, volume_info};

pub(super) const TARGET: &str = "iqn.2026-11.org.example:disk1";
pub(super) const INITIATOR: &str = "iqn.2026-11.org.example:host1";
pub(super) const PORTAL: &str = "192.0.2.1:3260";

/// T=1, operational stage to full feature phase.
pub(super) const OPERATIONAL_TO_FULL: u8 = 0x87;
pub(super) const READ: u8 = 0x40;
pub(super) const WRITE: u8 = 0x20;
pub(super) const SIMPLE: u8 = 0x01;

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
    /// Connections whose peers do not read.
    pub(super) deaf: Vec<ConnId>,
}

#[derive(Default)]
struct End {
    reader: PduReader,
    closed: bool,
}

pub(super) fn target(name: &str, luns: u16) -> TargetConfig {
    let unit = |lun: u16| {
        let mut naa = [0x30; 8];
        naa[7] = lun as u8;
        let identity = Identity {
            vendor: *b"PLATTER ",
            product: *b"TEST            ",
            revision: *b"0001",
            serial: format!("serial{lun}"),
            naa,
        };
        UnitConfig::new(lun, VolumeId(u32::from(lun)), volume_info(), identity)
    };
    TargetConfig {
        name: name.to_owned(),
        alias: Some("a disk".to_owned()),
        initiators: Initiators::Any,
        device: DeviceConfig { name: name.to_owned(), portal_group: 1, units: (0..luns).map(unit).collect() },
    }
}

pub(super) fn config() -> NodeConfig {
    NodeConfig {
        targets: vec![target(TARGET, 2)],
        directory: vec![DirectoryEntry {
            name: TARGET.to_owned(),
            initiators: Initiators::Any,
            portals: Vec::new(),
            through: Vec::new(),
        }],
        limits: Limits::default(),
        tsih_seed: 0x100,
        tag_base: 7,
    }
}

impl Rig {
    pub(super) fn new() -> Self {
        Self::with(config())
    }

    pub(super) fn with_limits(limits: Limits) -> Self {
        Self::with(NodeConfig { limits, ..config() })
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
        }
    }

    pub(super) fn connect(&mut self) -> ConnId {
        let portal = PortalInfo { address: PORTAL.to_owned(), tag: 1, number: 0 };
        let conn = self.node.accept(self.now, "198.51.100.1:1000", portal).unwrap();
        self.ends.insert(conn, End::default());
        conn
    }

    /// Adopts a connection that another node gave away.
    pub(super) fn adopt(&mut self, conn: ConnId) {
        self.ends.insert(conn, End::default());
        self.pump();
    }

    /// What the initiator sends, in one piece.
    pub(super) fn send_bytes(&mut self, conn: ConnId, bytes: &[u8]) {
        self.send_pieces(conn, &[bytes]);
    }

    pub(super) fn send_pieces(&mut self, conn: ConnId, pieces: &[&[u8]]) {
        for piece in pieces {
            let mut rest = *piece;
            while !rest.is_empty() && !self.is_closed(conn) && self.node.wants_bytes(conn) {
                let taken = self.node.received(self.now, conn, rest, &mut self.pool);
                rest = &rest[taken..];
                self.pump();
            }
        }
        self.pump();
    }

    pub(super) fn send(&mut self, conn: ConnId, request: &Request) {
        let digests = self.ends.get(&conn).map(|e| e.reader.digests).unwrap_or_default();
        self.send_bytes(conn, &request.encode(digests));
    }

    /// Sends, and gives everything that comes back.
    pub(super) fn ask(&mut self, conn: ConnId, request: &Request) -> Vec<Pdu> {
        self.send(conn, request);
        self.replies(conn)
    }

    /// Sends, and gives the one PDU that comes back.
    pub(super) fn ask_one(&mut self, conn: ConnId, request: &Request) -> Pdu {
        let mut replies = self.ask(conn, request);
        assert_eq!(replies.len(), 1, "{replies:?} {:?}", self.events);
        replies.remove(0)
    }

    pub(super) fn replies(&mut self, conn: ConnId) -> Vec<Pdu> {
        let pdus = self.some_replies(conn);
        assert!(self.ends[&conn].reader.rest().is_empty(), "half a PDU");
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

    /// The peer's socket is gone.
    pub(super) fn hang_up(&mut self, conn: ConnId) {
        if !self.is_closed(conn) {
            self.ends.get_mut(&conn).unwrap().closed = true;
            self.node.closed(self.now, conn, &mut self.pool);
            self.pump();
        }
    }

    /// Does everything the node wants done.
    pub(super) fn pump(&mut self) {
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
                Output::Transmit { conn } => self.write_out(conn),
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
            self.ends.get_mut(&conn).unwrap().reader.push(&bytes[..n]);
            self.node.transmitted(self.now, conn, n, &mut self.pool);
        }
    }

    /// The peer reads again.
    pub(super) fn listen(&mut self, conn: ConnId) {
        self.deaf.retain(|&c| c != conn);
        self.write_out(conn);
        self.pump();
    }

    /// Lets every op that waits happen.
    pub(super) fn release_all(&mut self) {
        while !self.waiting.is_empty() {
            self.release(0, Status::Good);
        }
    }

    /// Lets one op happen, or fail.
    pub(super) fn release(&mut self, at: usize, status: Status) {
        let (tag, op) = self.waiting.remove(at);
        if status.is_good() {
            test_disk::execute(op, &mut self.medium, &mut self.pool);
        }
        self.node.completed(self.now, tag, status, None, &mut self.pool);
        self.pump();
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
        assert!(self.node.sessions().is_empty(), "{:?}", self.node.sessions());
    }
}

/// A session, from the initiator's side.
#[derive(Clone, Debug)]
pub(super) struct Session {
    pub(super) conn: ConnId,
    pub(super) tsih: u16,
    pub(super) cmd_sn: u32,
    pub(super) itt: u32,
    /// The final Login Response.
    pub(super) answer: Pdu,
}

pub(super) const NAMES: [(&str, &str); 2] = [("InitiatorName", INITIATOR), ("TargetName", TARGET)];

impl Rig {
    /// Logs in with one PDU and takes the unit attentions.
    pub(super) fn login(&mut self, keys: &[(&str, &str)]) -> Session {
        let mut session = self.login_as([1, 2, 3, 4, 5, 6], keys);
        self.take_attentions(&mut session);
        session
    }

    pub(super) fn login_as(&mut self, isid: [u8; 6], keys: &[(&str, &str)]) -> Session {
        let conn = self.connect();
        let pairs: Vec<_> = NAMES.iter().chain(keys).copied().collect();
        let mut request = wire::login(OPERATIONAL_TO_FULL, &pairs).cmd_sn(1);
        request.header[8..14].copy_from_slice(&isid);
        let answer = self.ask_one(conn, &request);
        assert_eq!((answer.opcode(), answer.u16(36)), (opcode::LOGIN_RESPONSE, 0), "{:?}", self.events);
        self.logged_in(conn, answer)
    }

    pub(super) fn logged_in(&mut self, conn: ConnId, answer: Pdu) -> Session {
        assert_eq!(answer.flags() & 0x83, 0x83);
        let on = |key: &str| answer.value(key).as_deref() == Some("CRC32C");
        self.ends.get_mut(&conn).unwrap().reader.digests =
            Digests { header: on("HeaderDigest"), data: on("DataDigest") };
        Session { conn, tsih: answer.u16(14), cmd_sn: answer.exp_cmd_sn(), itt: 0x1000, answer }
    }

    pub(super) fn take_attentions(&mut self, session: &mut Session) {
        for lun in 0..2 {
            let request = session.command(SIMPLE, 0, &[0; 6]).lun(lun);
            let reply = self.ask_one(session.conn, &request);
            assert_eq!((reply.header[3], reply.sense().map(|s| s[1])), (2, Some(0x29)), "{reply:?}");
        }
    }

    /// Takes the unit attention of a reset, if there is one.
    pub(super) fn take_reset(&mut self, session: &mut Session) {
        let request = session.command(SIMPLE, 0, &[0; 6]);
        self.ask_one(session.conn, &request);
    }

    /// Sends a command that must end with GOOD, and gives its data.
    pub(super) fn good(&mut self, session: &mut Session, flags: u8, len: u32, cdb: &[u8]) -> Vec<u8> {
        let request = session.command(flags | SIMPLE, len, cdb);
        let replies = self.ask(session.conn, &request);
        let last = replies.last().expect("a reply");
        assert_eq!((last.header[3], last.itt()), (0, session.itt), "{replies:?}");
        replies.into_iter().flat_map(|p| p.data).collect()
    }
}

impl Session {
    /// The next command.
    pub(super) fn command(&mut self, flags: u8, len: u32, cdb: &[u8]) -> Request {
        self.itt += 1;
        self.cmd_sn = self.cmd_sn.wrapping_add(1);
        wire::command(self.itt, self.cmd_sn.wrapping_sub(1), flags, len, cdb)
    }

    pub(super) fn read(&mut self, lba: u32, blocks: u16) -> Request {
        self.command(READ | SIMPLE, u32::from(blocks) * BLOCK as u32, &read10(lba, blocks))
    }

    /// A write with all of its data immediate, if that is allowed.
    pub(super) fn write(&mut self, lba: u32, data: &[u8]) -> Request {
        self.write_solicited(lba, data.len()).data(data)
    }

    /// A write without its data.
    pub(super) fn write_solicited(&mut self, lba: u32, len: usize) -> Request {
        self.command(WRITE | SIMPLE, len as u32, &write10(lba, (len / BLOCK) as u16))
    }
}

pub(super) fn read10(lba: u32, blocks: u16) -> [u8; 10] {
    let ([a, b, c, d], [e, f]) = (lba.to_be_bytes(), blocks.to_be_bytes());
    [0x28, 0, a, b, c, d, 0, e, f, 0]
}

pub(super) fn write10(lba: u32, blocks: u16) -> [u8; 10] {
    let mut cdb = read10(lba, blocks);
    cdb[0] = 0x2a;
    cdb
}
