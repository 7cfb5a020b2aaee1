//! One TCP connection: what is being received, what waits to be sent, and in which phase it is.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use platter_block::{BufId, Instant};

use super::config::PortalInfo;
use super::deframe::{Deframer, Frame};
use super::event::{Event, EventKind};
use super::login::{Answer, Login, LoginStatus, Refusal};
use super::node::{Cx, Node, Output};
use super::pdu::{BHS_LEN, Bhs, NO_TAG, Reject, RejectReason, opcode};
use super::sessions::Ending;
use super::text_request::TextExchange;
use super::transmit::{Segment, TransmitQueue};
use crate::front::ConnId;
use crate::slab::Key;

/// Events about its PDUs that one connection gives in [`EVENT_PERIOD`].
const EVENTS: u32 = 32;
const EVENT_PERIOD: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) peer: Arc<str>,
    /// The portal it came in by, as initiators are told.
    pub(super) portal: PortalInfo,
    pub(super) phase: Phase,
    pub(super) rx: Deframer,
    /// Where the data segment of the PDU in progress goes.
    pub(super) sink: Sink,
    /// What to do when the PDU in progress is complete.
    pub(super) incoming: Incoming,
    pub(super) tx: TransmitQueue,
    /// [`Output::Transmit`] was given, and the queue has not been empty since.
    announced: bool,
    /// The next StatSN (4.2.2.2).
    pub(super) stat_sn: u32,
    /// Full feature phase has to be reached by then.
    pub(super) login_deadline: Instant,
    /// When bytes last came in, or went out while some were waiting.
    pub(super) alive: Instant,
    /// The NOP-In that waits for its NOP-Out.
    pub(super) ping: Option<Ping>,
    /// Target Transfer Tag of the last ping.
    pub(super) last_ping: u32,
    pub(super) text: Option<TextExchange>,
    /// It came from another node: it does not go to a third.
    pub(super) moved: bool,
    events_left: u32,
    events_since: Instant,
}

/// A NOP-In sent to see whether the initiator is there (11.19).
#[derive(Clone, Copy, Debug)]
pub(super) struct Ping {
    pub(super) ttt: u32,
    pub(super) sent: Instant,
}

#[derive(Debug)]
pub(super) enum Phase {
    /// Login requests are awaited.
    Login(Box<Login>),
    /// The login names a target of another node.
    Elsewhere(Box<Login>),
    /// The login has succeeded, but commands of an old session have to end before that is told.
    Waiting(Box<Login>, Answer),
    /// Requests are awaited.
    FullFeature {
        /// Which session.
        session: Key,
    },
    /// [`Output::Close`] was given.
    Closed,
}

/// Where the data segment of the PDU in progress goes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Sink {
    /// Nowhere.
    Discard,
    /// To the login.
    Login,
    /// To `buf[at..limit]`; what does not fit is dropped.
    Buffer { buf: BufId, at: usize, limit: usize },
}

/// What to do when the PDU in progress is complete.
#[derive(Debug)]
pub(super) enum Incoming {
    /// Nothing.
    Ignore,
    /// It is a Login Request.
    Login,
    /// It is a SCSI Command that is looked at only then, with its immediate data.
    Command { staged: Option<Staged> },
    /// It is a SCSI Command that has started, and its immediate data are complete.
    Immediate { task: Key },
    /// It is a Data-Out of this task.
    DataOut { task: Key, last: bool, solicited: bool },
    /// It is another request.
    Request { data: Option<Staged>, lost: bool },
}

/// Data that wait in a buffer of their own until somebody knows where they belong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Staged {
    pub(super) buf: BufId,
    pub(super) len: usize,
}

/// Which StatSN a PDU carries (4.2.2.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum StatSn {
    /// The next one, which is used up.
    Use,
    /// The next one, which is not.
    Peek,
    /// None.
    Reserved,
}

impl Connection {
    pub(super) fn new(now: Instant, peer: &str, portal: PortalInfo, login_deadline: Instant) -> Self {
        Self {
            peer: peer.into(),
            portal,
            phase: Phase::Login(Box::new(Login::new())),
            rx: Deframer::new(),
            sink: Sink::Discard,
            incoming: Incoming::Ignore,
            tx: TransmitQueue::new(),
            announced: false,
            stat_sn: 1,
            login_deadline,
            alive: now,
            ping: None,
            last_ping: 0,
            text: None,
            moved: false,
            events_left: EVENTS,
            events_since: now,
        }
    }

    /// The session, in full feature phase.
    pub(super) const fn session(&self) -> Option<Key> {
        match self.phase {
            Phase::FullFeature { session } => Some(session),
            _ => None,
        }
    }

    /// Whether a PDU may begin now.
    pub(super) const fn takes_pdus(&self, transmit_limit: usize) -> bool {
        matches!(self.phase, Phase::Login(_) | Phase::FullFeature { .. }) && self.tx.len() < transmit_limit
    }

    /// Takes no part in anything any more. Gives the phase it was in.
    fn retire(&mut self, cx: &mut Cx<'_>) -> Phase {
        self.sink = Sink::Discard;
        self.text = None;
        match std::mem::replace(&mut self.incoming, Incoming::Ignore) {
            Incoming::Command { staged: data } | Incoming::Request { data, .. } => cx.free_staged(data),
            Incoming::Ignore | Incoming::Login | Incoming::Immediate { .. } | Incoming::DataOut { .. } => {}
        }
        std::mem::replace(&mut self.phase, Phase::Closed)
    }

    /// What the PDU in progress still brings for one buffer goes into another, of `len` bytes.
    pub(super) fn replace_buffer(&mut self, old: BufId, new: BufId, len: usize) {
        if let Sink::Buffer { buf, at, limit } = self.sink
            && buf == old
        {
            let limit = limit.min(len);
            self.sink = if at < limit { Sink::Buffer { buf: new, at, limit } } else { Sink::Discard };
        }
    }

    /// The PDU in progress must not touch this buffer any more.
    pub(super) fn forget_buffer(&mut self, gone: BufId) {
        if matches!(self.sink, Sink::Buffer { buf, .. } if buf == gone) {
            self.sink = Sink::Discard;
        }
    }
}

/// Receiving and closing.
impl Node {
    /// Takes bytes until they are used up or no PDU may begin.
    pub(super) fn take(&mut self, cx: &mut Cx<'_>, key: Key, bytes: &[u8]) -> usize {
        let mut rest = bytes;
        loop {
            let Some(conn) = self.conns.get_mut(key) else { return bytes.len() };
            if matches!(conn.phase, Phase::Closed) {
                return bytes.len();
            }
            if conn.rx.between_pdus() && !conn.takes_pdus(self.limits.transmit_queue) {
                break;
            }
            match conn.rx.next(&mut rest) {
                Ok(None) => break,
                Ok(Some(Frame::Header)) => self.header(cx, key),
                Ok(Some(Frame::Data(piece))) => self.data(cx, key, piece),
                Ok(Some(Frame::End { digest_ok })) => self.end_of_pdu(cx, key, digest_ok),
                Err(error) => {
                    let login = matches!(conn.phase, Phase::Login(_)) && conn.rx.bhs().op() == opcode::LOGIN;
                    if login {
                        self.refuse_login(cx, key, Refusal::new(LoginStatus::INITIATOR_ERROR, error));
                    } else {
                        self.drop_connection(cx, key, error);
                    }
                }
            }
        }
        bytes.len() - rest.len()
    }

    /// A header is complete: what does it want, and where do its data go?
    fn header(&mut self, cx: &mut Cx<'_>, key: Key) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        conn.sink = Sink::Discard;
        conn.incoming = Incoming::Ignore;
        match conn.phase {
            Phase::Login(_) => self.login_header(cx, key),
            Phase::FullFeature { session } => self.request_header(cx, key, session),
            Phase::Elsewhere(_) | Phase::Waiting(..) | Phase::Closed => {}
        }
    }

    fn data(&mut self, cx: &mut Cx<'_>, key: Key, piece: &[u8]) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        match &mut conn.sink {
            Sink::Discard => {}
            Sink::Login => {
                if let Phase::Login(login) = &mut conn.phase {
                    login.text(piece);
                }
            }
            Sink::Buffer { buf, at, limit } => {
                let n = piece.len().min(limit.saturating_sub(*at));
                cx.pool.bytes_mut(*buf)[*at..*at + n].copy_from_slice(&piece[..n]);
                *at += n;
            }
        }
    }

    fn end_of_pdu(&mut self, cx: &mut Cx<'_>, key: Key, digest_ok: bool) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        conn.sink = Sink::Discard;
        let incoming = std::mem::replace(&mut conn.incoming, Incoming::Ignore);
        match incoming {
            Incoming::Ignore => {}
            Incoming::Login => self.login_request(cx, key),
            Incoming::Command { staged } if digest_ok => self.command_complete(cx, key, staged),
            Incoming::Request { data, lost } if digest_ok => self.request_complete(cx, key, data, lost),
            Incoming::Command { staged: data } | Incoming::Request { data, .. } => {
                // 7.8: the PDU never came; a gap in CmdSN stays (7.3).
                cx.free_staged(data);
                self.reject_current(cx, key, RejectReason::DataDigest, "the data digest is wrong");
            }
            Incoming::Immediate { task } => self.immediate_complete(cx, key, task),
            Incoming::DataOut { task, last, solicited } => {
                self.data_out_complete(cx, key, task, last, solicited, digest_ok);
            }
        }
    }

    /// Queues a PDU. Fills in StatSN, ExpCmdSN, MaxCmdSN, which have the same place in every header (11).
    pub(super) fn send(&mut self, cx: &mut Cx<'_>, key: Key, header: [u8; BHS_LEN], segment: Segment, stat_sn: StatSn) {
        let Some(conn) = self.conns.get_mut(key) else { return segment.free(cx.pool) };
        let (expected, max) = match &conn.phase {
            Phase::FullFeature { session } => {
                let session = self.sessions.get(*session).expect("a connection in full feature phase has a session");
                (session.window.expected(), session.window.max())
            }
            Phase::Login(login) | Phase::Elsewhere(login) | Phase::Waiting(login, _) => {
                (login.cmd_sn(), login.cmd_sn())
            }
            Phase::Closed => return segment.free(cx.pool),
        };
        let mut header = header;
        if stat_sn != StatSn::Reserved {
            header[24..28].copy_from_slice(&conn.stat_sn.to_be_bytes());
        }
        if stat_sn == StatSn::Use {
            conn.stat_sn = conn.stat_sn.wrapping_add(1);
        }
        header[28..32].copy_from_slice(&expected.to_be_bytes());
        header[32..36].copy_from_slice(&max.to_be_bytes());
        conn.tx.push(header, segment, cx.pool);
        self.announce(key);
    }

    fn announce(&mut self, key: Key) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        if !conn.announced {
            conn.announced = true;
            self.outputs.push_back(Output::Transmit { conn: ConnId(key.to_bits()) });
        }
    }

    /// Bytes were written.
    pub(super) fn wrote(&mut self, cx: &mut Cx<'_>, key: Key, n: usize) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        if n == 0 || conn.tx.is_empty() {
            return;
        }
        conn.tx.advance(n, cx.pool);
        if conn.tx.is_empty() {
            conn.announced = false;
        } else {
            conn.alive = cx.now;
        }
    }

    /// Rejects the PDU in progress (11.17).
    pub(super) fn reject_current(&mut self, cx: &mut Cx<'_>, key: Key, reason: RejectReason, why: impl fmt::Display) {
        if let Some(bhs) = self.conns.get(key).map(|c| c.rx.bhs()) {
            self.reject(cx, key, &bhs, reason, why);
        }
    }

    pub(super) fn reject(
        &mut self,
        cx: &mut Cx<'_>,
        key: Key,
        bad: &Bhs,
        reason: RejectReason,
        why: impl fmt::Display,
    ) {
        self.limited_event(cx.now, key, || EventKind::Rejected {
            opcode: bad.op(),
            itt: bad.itt.get(),
            reason: reason as u8,
            why: why.to_string(),
        });
        let header = Reject {
            opcode: opcode::REJECT,
            flags: super::pdu::flag::FINAL,
            reason: reason as u8,
            itt: NO_TAG.into(),
            ..zerocopy::FromZeros::new_zeroed()
        };
        let bad: [u8; BHS_LEN] = zerocopy::transmute!(*bad);
        self.send(cx, key, zerocopy::transmute!(header), Segment::Bytes(bad.to_vec()), StatSn::Use);
    }

    pub(super) fn event(&mut self, key: Key, kind: EventKind) {
        if let Some(conn) = self.conns.get(key) {
            self.outputs.push_back(Output::Event(Event { peer: conn.peer.clone(), kind }));
        }
    }

    /// An event that the peer can cause at will, if this connection has not given too many.
    pub(super) fn limited_event(&mut self, now: Instant, key: Key, kind: impl FnOnce() -> EventKind) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        if now.since(conn.events_since) >= EVENT_PERIOD {
            (conn.events_left, conn.events_since) = (EVENTS, now);
        }
        if conn.events_left == 0 {
            return;
        }
        conn.events_left -= 1;
        let kind = if conn.events_left == 0 { EventKind::Suppressed } else { kind() };
        self.event(key, kind);
    }

    /// Closes the connection at once, and with it its session.
    pub(super) fn drop_connection(&mut self, cx: &mut Cx<'_>, key: Key, why: impl fmt::Display) {
        self.event(key, EventKind::Dropped { why: why.to_string() });
        self.close_connection(cx, key, false);
    }

    /// Closes the connection, after what is queued has been written if `flush`, and ends what depends on it.
    pub(super) fn close_connection(&mut self, cx: &mut Cx<'_>, key: Key, flush: bool) {
        let phase = self.shut(cx, key, flush);
        self.left(cx, key, phase);
    }

    /// The socket is gone: the connection is forgotten.
    pub(super) fn forget_connection(&mut self, cx: &mut Cx<'_>, key: Key) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        let phase = conn.retire(cx);
        conn.tx.clear(cx.pool);
        self.conns.remove(key);
        self.left(cx, key, phase);
    }

    /// Tells the shell to close the connection, without ending its session. Gives the phase it was in.
    pub(super) fn shut(&mut self, cx: &mut Cx<'_>, key: Key, flush: bool) -> Phase {
        let Some(conn) = self.conns.get_mut(key) else { return Phase::Closed };
        if matches!(conn.phase, Phase::Closed) {
            return Phase::Closed;
        }
        let phase = conn.retire(cx);
        if !flush {
            conn.tx.clear(cx.pool);
        }
        self.outputs.push_back(Output::Close { conn: ConnId(key.to_bits()), flush });
        phase
    }

    /// Ends what depended on a connection that was in this phase.
    fn left(&mut self, cx: &mut Cx<'_>, key: Key, phase: Phase) {
        match phase {
            Phase::FullFeature { session } => {
                if let Some(s) = self.sessions.get_mut(session) {
                    s.conn = None;
                }
                self.end_session(cx, session, Ending::Gone);
            }
            Phase::Waiting(..) => self.login_abandoned(cx, key),
            Phase::Login(_) | Phase::Elsewhere(_) | Phase::Closed => {}
        }
    }
}
