//! Text Requests: SendTargets (Appendix C) and negotiation in full feature phase (6.4).

use platter_block::BufPool;

use super::connection::{Staged, StatSn};
use super::negotiate::{Outcome, Params, Seen, Stage, negotiate};
use super::node::{Cx, Node, SessionKind};
use super::pdu::{Bhs, NO_TAG, RejectReason, TextRequest, TextResponse, flag, opcode};
use super::requests::{Rejection, rejection};
use super::text;
use super::transmit::Segment;
use crate::slab::Key;

/// Most text in one Text Response, whatever the initiator could take.
const MAX_PIECE: usize = 64 << 10;

/// A sequence of Text Requests with one Initiator Task Tag. At most one on a connection (11.10).
#[derive(Debug)]
pub(super) struct TextExchange {
    itt: u32,
    /// Names it in the next request of the sequence (11.10.4).
    ttt: u32,
    /// Text of requests with C=1 so far.
    received: Vec<u8>,
    /// Text that is still to be sent.
    reply: Vec<u8>,
    seen: Seen,
    /// What was declared; takes effect at the end (6.4).
    params: Params,
}

/// A Text Response.
#[derive(Debug)]
pub(super) struct TextAnswer {
    itt: u32,
    ttt: u32,
    flags: u8,
    text: Vec<u8>,
}

impl Node {
    /// Works out the answer to a Text Request. The data stay with the caller.
    pub(super) fn text_request(
        &mut self,
        cx: &mut Cx<'_>,
        key: Key,
        session: Key,
        bhs: &Bhs,
        data: Option<Staged>,
    ) -> Result<TextAnswer, Rejection> {
        let request: TextRequest = zerocopy::transmute!(*bhs);
        let mut exchange = self.exchange(key, session, request.itt.get(), request.ttt.get())?;
        let last = request.flags & flag::FINAL != 0;
        if exchange.reply.is_empty() {
            append(&mut exchange.received, data, cx.pool)?;
            if request.flags & flag::CONTINUE == 0 {
                self.answer_text(key, session, &mut exchange)?;
            }
        } else if data.is_some() {
            return Err(rejection(RejectReason::Protocol, "text instead of an empty request for the rest of ours"));
        }
        let Some(s) = self.sessions.get_mut(session) else {
            return Err(rejection(RejectReason::Protocol, "no session"));
        };
        let n = text::cut(&exchange.reply, (s.params.max_send_segment as usize).min(MAX_PIECE));
        let rest = exchange.reply.split_off(n);
        let piece = std::mem::replace(&mut exchange.reply, rest);
        if last && exchange.reply.is_empty() {
            s.params.max_send_segment = exchange.params.max_send_segment;
            return Ok(TextAnswer { itt: exchange.itt, ttt: NO_TAG, flags: flag::FINAL, text: piece });
        }
        let flags = if exchange.reply.is_empty() { 0 } else { flag::CONTINUE };
        let answer = TextAnswer { itt: exchange.itt, ttt: exchange.ttt, flags, text: piece };
        if let Some(conn) = self.conns.get_mut(key) {
            conn.text = Some(exchange);
        }
        Ok(answer)
    }

    pub(super) fn text_response(&mut self, cx: &mut Cx<'_>, key: Key, answer: TextAnswer) {
        let header = TextResponse {
            opcode: opcode::TEXT_RESPONSE,
            flags: answer.flags,
            itt: answer.itt.into(),
            ttt: answer.ttt.into(),
            ..zerocopy::FromZeros::new_zeroed()
        };
        self.send(cx, key, zerocopy::transmute!(header), Segment::from(answer.text), StatSn::Use);
    }

    /// The sequence that a request starts or continues. It is taken off the connection: an error resets it (6.4).
    fn exchange(&mut self, key: Key, session: Key, itt: u32, ttt: u32) -> Result<TextExchange, Rejection> {
        let (Some(conn), Some(s)) = (self.conns.get_mut(key), self.sessions.get(session)) else {
            return Err(rejection(RejectReason::Protocol, "no session"));
        };
        match &conn.text {
            Some(old) if old.itt != itt => {
                let why = format_args!("the text request with ITT {:#x} is outstanding", old.itt);
                return Err(rejection(RejectReason::Protocol, why));
            }
            Some(old) if ttt == old.ttt => {}
            _ if ttt == NO_TAG => {
                self.last_text = self.last_text.wrapping_add(1) & 0x7fff_ffff;
                conn.text = Some(TextExchange {
                    itt,
                    ttt: self.last_text,
                    received: Vec::new(),
                    reply: Vec::new(),
                    seen: Seen::default(),
                    params: s.params.clone(),
                });
            }
            _ => {
                let why = format_args!("Target Transfer Tag {ttt:#x} is of no Text Response");
                return Err(rejection(RejectReason::InvalidField, why));
            }
        }
        conn.text.take().ok_or_else(|| rejection(RejectReason::Protocol, "no sequence"))
    }

    /// Answers a complete logical text data segment.
    fn answer_text(&mut self, key: Key, session: Key, exchange: &mut TextExchange) -> Result<(), Rejection> {
        let protocol = |why: String| rejection(RejectReason::Protocol, why);
        let Some(kind) = self.sessions.get(session).map(|s| s.kind) else { return Ok(()) };
        let received = std::mem::take(&mut exchange.received);
        let pairs = text::parse(&received).map_err(|e| protocol(e.to_string()))?;
        let alone = pairs.len() == 1;
        for (name, value) in pairs {
            if !exchange.seen.note(name) || matches!(value, "Reject" | "Irrelevant" | "NotUnderstood") {
                return Err(protocol(format!("{name}={value} again, or no proposal")));
            }
            match negotiate(name, value, Stage::FullFeature, kind, &self.limits, &mut exchange.params) {
                Outcome::Taken => {}
                Outcome::Answer(answer) => text::push(&mut exchange.reply, name, answer),
                Outcome::Caller if alone => self.send_targets(key, session, value, &mut exchange.reply)?,
                Outcome::Caller => return Err(protocol(format!("{name} is not the only key"))),
                Outcome::Misplaced | Outcome::Unacceptable => return Err(protocol(format!("{name}={value}"))),
            }
        }
        Ok(())
    }

    /// SendTargets (Appendix C).
    fn send_targets(&self, key: Key, session: Key, which: &str, reply: &mut Vec<u8>) -> Result<(), Rejection> {
        let (Some(conn), Some(s)) = (self.conns.get(key), self.sessions.get(session)) else { return Ok(()) };
        let own = s.identity.target.as_deref();
        let wanted = |name: &str| match (s.kind, which) {
            (SessionKind::Discovery, "All") => true,
            (SessionKind::Discovery, "") => own == Some(name),
            (SessionKind::Discovery, one) => one == name,
            (SessionKind::Normal, one) => own == Some(name) && (one.is_empty() || one == name),
        };
        if s.kind == SessionKind::Normal && which == "All" {
            return Err(rejection(RejectReason::Protocol, "SendTargets=All in a normal session"));
        }
        for entry in &self.directory {
            if !wanted(&entry.name) || !entry.initiators.allows(&s.identity.initiator) {
                continue;
            }
            let here = std::slice::from_ref(&conn.portal);
            let portals = match &entry.portals[..] {
                [] if entry.is_behind(&conn.portal) => here,
                [] => continue,
                portals => portals,
            };
            text::push(reply, "TargetName", &entry.name);
            for portal in portals {
                text::push(reply, "TargetAddress", format_args!("{},{}", portal.address, portal.tag));
            }
        }
        Ok(())
    }
}

fn append(text: &mut Vec<u8>, data: Option<Staged>, pool: &BufPool) -> Result<(), Rejection> {
    let Some(Staged { buf, len }) = data else { return Ok(()) };
    if text.len() + len > text::MAX_TEXT {
        return Err(rejection(RejectReason::Protocol, format_args!("more than {} bytes of text", text::MAX_TEXT)));
    }
    text.extend_from_slice(&pool.bytes(buf)[..len]);
    Ok(())
}
