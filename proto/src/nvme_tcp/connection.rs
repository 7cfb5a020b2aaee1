//! One TCP connection: what is being received, what waits to be sent, and in which phase it is.

use std::fmt;
use std::sync::Arc;

use platter_block::{BufId, Instant};

use super::data_out::Transfer;
use super::deframe::{Deframer, Expects, Frame, FrameError};
use super::node::{Cx, Node, Output};
use super::pdu::{CapsuleCmd, CommonHeader, IcReq, IcResp, MAX_HEADER_LEN, TermReq, dgst, pdu_type};
use super::sgl;
use super::term::{Fatal, Fes};
use super::transmit::TransmitQueue;
use crate::front::ConnId;
use crate::nvme::{Event, EventKind, Overrun, PortalInfo, QueueId, TaskId};
use crate::slab::Key;

/// The largest HPDA.
const MAX_HPDA: u8 = 31;

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) peer: Arc<str>,
    /// The portal it came in by, as hosts are told.
    portal: PortalInfo,
    pub(super) phase: Phase,
    pub(super) rx: Deframer,
    /// Where the data of the PDU in progress go.
    pub(super) sink: Sink,
    /// What to do when the PDU in progress is complete.
    pub(super) incoming: Incoming,
    /// R2Ts that have not been answered, oldest first.
    pub(super) transfers: Vec<Transfer>,
    /// TTAG of the last R2T.
    pub(super) last_ttag: u16,
    pub(super) tx: TransmitQueue,
    /// [`Output::Transmit`] was given, and the queue has not been empty since.
    pub(super) announced: bool,
    /// Connect has succeeded.
    pub(super) is_connected: bool,
    /// By then it has to.
    pub(super) connect_deadline: Instant,
    /// When bytes last came in, or could come again.
    pub(super) alive: Instant,
}

#[derive(Debug)]
pub(super) enum Phase {
    /// ICReq is awaited.
    Initialize,
    /// Commands are taken.
    Commands {
        /// The queue that it is to the target.
        queue: QueueId,
    },
    /// Its Connect names a subsystem of another node.
    Elsewhere {
        /// The queue that it is to the target.
        queue: QueueId,
        /// Which subsystem.
        subsystem: String,
    },
    /// [`Output::Close`] was given.
    Closed,
}

/// Where the data of the PDU in progress go.
#[derive(Clone, Copy, Debug)]
pub(super) enum Sink {
    /// Nowhere.
    Discard,
    /// To `buf[at..limit]`; what does not fit is dropped.
    Buffer { buf: BufId, at: usize, limit: usize },
}

/// What to do when the PDU in progress is complete.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Incoming {
    /// Nothing.
    Ignore,
    /// It is a capsule with data, and the target wants them neither yet nor has it answered the command: it waits for
    /// memory. No bytes are taken.
    Undecided { cid: u16 },
    /// It is a capsule whose data this task gets.
    InCapsule { task: TaskId },
    /// It is an H2CData that answers this R2T.
    H2cData { ttag: u16 },
}

impl Connection {
    pub(super) fn new(
        now: Instant,
        peer: &str,
        portal: PortalInfo,
        connect_deadline: Instant,
        max_capsule_data: u32,
    ) -> Self {
        let expects = Expects { initialized: false, header_digest: false, data_digest: false, max_capsule_data };
        Self {
            peer: peer.into(),
            portal,
            phase: Phase::Initialize,
            rx: Deframer::new(expects),
            sink: Sink::Discard,
            incoming: Incoming::Ignore,
            transfers: Vec::new(),
            last_ttag: 0,
            tx: TransmitQueue::new(),
            announced: false,
            is_connected: false,
            connect_deadline,
            alive: now,
        }
    }

    /// Whether bytes may be taken now: within a PDU until its target has to decide, between PDUs while there is room for
    /// what they cause to be sent.
    pub(super) const fn takes_bytes(&self, transmit_limit: usize) -> bool {
        match self.phase {
            Phase::Initialize | Phase::Commands { .. } => {
                !matches!(self.incoming, Incoming::Undecided { .. })
                    && (!self.rx.between_pdus() || self.tx.len() < transmit_limit)
            }
            Phase::Elsewhere { .. } | Phase::Closed => false,
        }
    }

    /// The queue that it is to the target.
    pub(super) const fn queue(&self) -> Option<QueueId> {
        match self.phase {
            Phase::Commands { queue } | Phase::Elsewhere { queue, .. } => Some(queue),
            Phase::Initialize | Phase::Closed => None,
        }
    }
}

/// Receiving.
impl Node {
    /// Takes bytes until they are used up or no more are wanted.
    pub(super) fn take(&mut self, cx: &mut Cx<'_>, key: Key, bytes: &[u8]) -> usize {
        let mut rest = bytes;
        loop {
            let Some(conn) = self.conns.get_mut(key) else { return bytes.len() };
            if matches!(conn.phase, Phase::Closed) {
                return bytes.len();
            }
            if !conn.takes_bytes(self.limits.transmit_queue) {
                break;
            }
            match conn.rx.next(&mut rest) {
                Ok(None) => break,
                Ok(Some(Frame::Header)) => {
                    if let Err(fatal) = self.header(cx, key) {
                        self.terminate(cx, key, &fatal);
                    }
                }
                Ok(Some(Frame::Data(piece))) => conn.place(cx, piece),
                Ok(Some(Frame::End { digest_ok })) => self.end_of_pdu(cx, key, digest_ok),
                Err(FrameError::Fatal(fatal)) => self.terminate(cx, key, &fatal),
                Err(FrameError::BadTermReq) => self.drop_connection(cx, key, "an H2CTermReq with a wrong length"),
            }
        }
        bytes.len() - rest.len()
    }

    /// A header is complete: what does it want, and where do its data go?
    fn header(&mut self, cx: &mut Cx<'_>, key: Key) -> Result<(), Fatal> {
        let Some(conn) = self.conns.get_mut(key) else { return Ok(()) };
        conn.sink = Sink::Discard;
        conn.incoming = Incoming::Ignore;
        match conn.rx.common().pdu_type {
            pdu_type::IC_REQ => return self.initialize(cx, key),
            pdu_type::CAPSULE_CMD => return self.command_header(cx, key),
            pdu_type::H2C_DATA => return self.h2c_data_header(key),
            pdu_type::H2C_TERM_REQ => {
                let TermReq { fes, fei, .. } = conn.rx.header_as();
                self.event(key, EventKind::TerminatedByHost { fes: fes.get(), fei: fei.get() });
                self.close_connection(cx, key, false);
            }
            other => unreachable!("PDU type {other:#04x} was checked"),
        }
        Ok(())
    }

    /// A command. Its data, if it brings some, are still to come.
    fn command_header(&mut self, cx: &mut Cx<'_>, key: Key) -> Result<(), Fatal> {
        let Some(conn) = self.conns.get_mut(key) else { return Ok(()) };
        let Phase::Commands { queue } = conn.phase else { return Ok(()) };
        let CapsuleCmd { sqe, .. } = conn.rx.header_as();
        let len = conn.rx.data_len();
        if len > 0 {
            conn.incoming = Incoming::Undecided { cid: u16::from_le_bytes([sqe[2], sqe[3]]) };
        }
        let result = self.target.command(cx.now, queue, &sqe, sgl::transfer(&sqe, len), cx.pool);
        self.settle(cx);
        result.map_err(|Overrun| Fatal::of(Fes::Sequence, "more commands than the queue has entries"))
    }

    fn end_of_pdu(&mut self, cx: &mut Cx<'_>, key: Key, digest_ok: bool) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        conn.sink = Sink::Discard;
        match std::mem::replace(&mut conn.incoming, Incoming::Ignore) {
            Incoming::Ignore => {}
            Incoming::Undecided { .. } => unreachable!("the data of an undecided capsule are not taken"),
            Incoming::InCapsule { task } => self.data_came(cx, task, digest_ok),
            Incoming::H2cData { ttag } => self.h2c_data_complete(cx, key, ttag, digest_ok),
        }
    }

    /// ICReq: agrees on formats and digests, and makes the connection a queue.
    fn initialize(&mut self, cx: &mut Cx<'_>, key: Key) -> Result<(), Fatal> {
        let Some(conn) = self.conns.get_mut(key) else { return Ok(()) };
        let IcReq { pfv, hpda, dgst: wanted, .. } = conn.rx.header_as();
        if pfv.get() != 0 {
            return Err(Fatal::field(8, format_args!("PFV {pfv}")));
        }
        if hpda > MAX_HPDA {
            return Err(Fatal::field(10, format_args!("HPDA {hpda}")));
        }
        let digests = wanted & (dgst::HEADER | dgst::DATA);
        conn.tx.push_long(ic_resp(digests, self.limits.max_h2c_data));
        let (header_digest, data_digest) = (digests & dgst::HEADER != 0, digests & dgst::DATA != 0);
        conn.tx.configure(header_digest, data_digest, (usize::from(hpda) + 1) * 4);
        conn.rx.expect(Expects { initialized: true, header_digest, data_digest, ..conn.rx.expects() });
        let queue = self.target.open(cx.now, conn.peer.clone(), conn.portal.clone());
        conn.phase = Phase::Commands { queue };
        self.queues.insert(queue, key);
        self.announce(key);
        Ok(())
    }
}

/// Sending, and closing.
impl Node {
    /// There is something to write.
    pub(super) fn announce(&mut self, key: Key) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        if !conn.announced {
            conn.announced = true;
            self.outputs.push_back(Output::Transmit { conn: ConnId(key.to_bits()) });
        }
    }

    /// Bytes are wanted again.
    pub(super) fn wake(&mut self, key: Key) {
        self.outputs.push_back(Output::Transmit { conn: ConnId(key.to_bits()) });
    }

    /// Bytes were written.
    pub(super) fn wrote(&mut self, cx: &mut Cx<'_>, key: Key, n: usize) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        if n == 0 || conn.tx.is_empty() {
            return;
        }
        conn.tx.advance(n, cx.pool);
        conn.announced = !conn.tx.is_empty();
    }

    pub(super) fn event(&mut self, key: Key, kind: EventKind) {
        if let Some(conn) = self.conns.get(key) {
            self.outputs.push_back(Output::Event(Event { peer: conn.peer.clone(), kind }));
        }
    }

    /// Closes the connection at once, and with it its queue.
    pub(super) fn drop_connection(&mut self, cx: &mut Cx<'_>, key: Key, why: impl fmt::Display) {
        self.event(key, EventKind::Dropped { why: why.to_string() });
        self.close_connection(cx, key, false);
    }

    /// Closes the connection, after what is queued has been written if `flush`, and ends its queue.
    pub(super) fn close_connection(&mut self, cx: &mut Cx<'_>, key: Key, flush: bool) {
        let Some(conn) = self.conns.get_mut(key).filter(|c| !matches!(c.phase, Phase::Closed)) else { return };
        if !flush {
            conn.tx.clear(cx.pool);
        }
        self.outputs.push_back(Output::Close { conn: ConnId(key.to_bits()), flush });
        self.end_queue(cx, key);
    }

    /// The socket is gone: the connection is forgotten.
    pub(super) fn forget_connection(&mut self, cx: &mut Cx<'_>, key: Key) {
        self.end_queue(cx, key);
        if let Some(mut conn) = self.conns.remove(key) {
            conn.tx.clear(cx.pool);
        }
    }

    /// Takes no part in anything any more: the target takes back the buffers that its data went to.
    fn end_queue(&mut self, cx: &mut Cx<'_>, key: Key) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        let queue = conn.queue();
        conn.phase = Phase::Closed;
        conn.sink = Sink::Discard;
        conn.incoming = Incoming::Ignore;
        conn.transfers = Vec::new();
        if let Some(queue) = queue {
            self.queues.remove(&queue);
            self.target.closed(cx.now, queue, cx.pool);
        }
        self.settle(cx);
    }
}

impl Connection {
    fn place(&mut self, cx: &mut Cx<'_>, piece: &[u8]) {
        if let Sink::Buffer { buf, at, limit } = &mut self.sink {
            let n = piece.len().min(limit.saturating_sub(*at));
            cx.pool.bytes_mut(*buf)[*at..*at + n].copy_from_slice(&piece[..n]);
            *at += n;
        }
    }
}

fn ic_resp(digests: u8, max_h2c_data: u32) -> Vec<u8> {
    let common = CommonHeader {
        pdu_type: pdu_type::IC_RESP,
        flags: 0,
        hlen: MAX_HEADER_LEN as u8,
        pdo: 0,
        plen: (MAX_HEADER_LEN as u32).into(),
    };
    let response =
        IcResp { common, pfv: 0.into(), cpda: 0, dgst: digests, maxh2cdata: max_h2c_data.into(), reserved: [0; 112] };
    let bytes: [u8; MAX_HEADER_LEN] = zerocopy::transmute!(response);
    bytes.to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_ic_resp_cpda_at_10_dgst_at_11_maxh2cdata_at_12() {
        let mut expected = vec![1, 0, 128, 0, 128, 0, 0, 0, 0, 0, 0, 3, 0, 0, 4, 0];
        expected.resize(128, 0);
        assert_eq!(ic_resp(3, 256 << 10), expected);
    }
}
