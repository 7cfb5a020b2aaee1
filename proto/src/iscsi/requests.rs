//! Full feature phase: which request is it, whose turn is it, and the short ones: NOP-Out and Logout.

use std::fmt;

use platter_block::BufPool;

use super::connection::{Incoming, Sink, Staged, StatSn};
use super::node::{Cx, Node, SessionKind};
use super::pdu::{Bhs, LogoutRequest, LogoutResponse, NO_TAG, NopIn, NopOut, RejectReason, TextRequest, flag, opcode};
use super::sessions::{Ending, Held, HeldRequest};
use super::text_request::TextAnswer;
use super::transmit::Segment;
use super::window::Place;
use crate::slab::Key;

/// A rejection and its reason for the log.
pub(super) type Rejection = (RejectReason, String);

pub(super) fn rejection(reason: RejectReason, why: impl fmt::Display) -> Rejection {
    (reason, why.to_string())
}

/// Answers of an initiator to pings that are this much older than the last one are still known.
const REMEMBERED_PINGS: u32 = 16;

/// A request that was found to be right. It is acknowledged before it is answered (4.2.2.1).
enum Accepted {
    Nop,
    Text(TextAnswer),
    TaskManagement,
    Logout(LogoutRequest),
}

impl Node {
    /// The header of a PDU in full feature phase.
    pub(super) fn request_header(&mut self, cx: &mut Cx<'_>, key: Key, session: Key) {
        let Some(conn) = self.conns.get(key) else { return };
        let Some(s) = self.sessions.get(session) else { return };
        let bhs = conn.rx.bhs();
        if s.ending.is_some() {
            if bhs.op() == opcode::SCSI_COMMAND {
                self.reject_current(cx, key, RejectReason::WaitingForLogout, "a command after the logout");
            }
            return;
        }
        let discovery = s.kind == SessionKind::Discovery;
        match bhs.op() {
            opcode::NOP_OUT | opcode::SCSI_COMMAND | opcode::TASK_MANAGEMENT | opcode::DATA_OUT if discovery => {
                // 4.3: everything but Text and Logout.
                self.reject_current(cx, key, RejectReason::Protocol, "not in a discovery session");
            }
            opcode::SCSI_COMMAND => self.command_header(cx, key, session),
            opcode::DATA_OUT => self.data_out_header(cx, key, session),
            opcode::NOP_OUT | opcode::TASK_MANAGEMENT | opcode::TEXT | opcode::LOGOUT => match format_error(&bhs) {
                None => self.stage_request(cx, key, &bhs),
                Some(why) => self.drop_connection(cx, key, why),
            },
            opcode::LOGIN => self.reject_current(cx, key, RejectReason::Protocol, "a login in full feature phase"),
            opcode::SNACK => {
                self.reject_current(cx, key, RejectReason::NotSupported, "a SNACK at error recovery level 0");
            }
            op => self.reject_current(cx, key, RejectReason::NotSupported, format_args!("opcode {op:#04x}")),
        }
    }

    /// A request other than a SCSI Command is complete. `lost`: there was no memory for its data.
    pub(super) fn request_complete(&mut self, cx: &mut Cx<'_>, key: Key, data: Option<Staged>, lost: bool) {
        let Some(conn) = self.conns.get(key) else { return cx.free_staged(data) };
        let Some(session) = conn.session() else { return cx.free_staged(data) };
        let bhs = conn.rx.bhs();
        if lost {
            return self.reject(cx, key, &bhs, RejectReason::TooManyImmediate, "no memory for its data");
        }
        if bhs.immediate() {
            self.deliver(cx, key, session, &bhs, data);
            return;
        }
        let cmd_sn = bhs.cmd_sn.get();
        let Some(s) = self.sessions.get_mut(session) else { return cx.free_staged(data) };
        match s.window.place(cmd_sn) {
            Place::Next => {
                if self.deliver(cx, key, session, &bhs, data) {
                    self.deliver_held(cx, session);
                }
            }
            Place::Ahead if s.held.iter().all(|h| h.cmd_sn != cmd_sn) => {
                self.hold(cx, session, cmd_sn, HeldRequest::Other { bhs, data });
            }
            // Duplicates and what is outside the window are ignored (4.2.2.1).
            Place::Ahead | Place::Outside => cx.free_staged(data),
        }
    }

    /// Keeps a request until those before it have come.
    pub(super) fn hold(&mut self, cx: &mut Cx<'_>, session: Key, cmd_sn: u32, what: HeldRequest) {
        let Some(s) = self.sessions.get_mut(session) else { return };
        s.held.push(Held { cmd_sn, what });
        if s.gap_since.is_none() {
            s.gap_since = Some(cx.now);
            self.schedule(cx.now + self.limits.data_timeout);
        }
    }

    /// Delivers the requests whose turn has come.
    pub(super) fn deliver_held(&mut self, cx: &mut Cx<'_>, session: Key) {
        while let Some(s) = self.sessions.get_mut(session).filter(|s| !s.held.is_empty()) {
            let expected = s.window.expected();
            let Some(at) = s.held.iter().position(|h| h.cmd_sn == expected) else { break };
            match s.held.swap_remove(at).what {
                HeldRequest::Command(task) => {
                    s.window.receive();
                    self.admit(cx, task);
                }
                HeldRequest::Other { bhs, data } => {
                    let Some(conn) = s.conn else { return cx.free_staged(data) };
                    if !self.deliver(cx, conn, session, &bhs, data) {
                        break;
                    }
                }
                HeldRequest::Nothing { ended } => {
                    s.window.receive();
                    if !ended {
                        s.window.end();
                    }
                }
            }
        }
        let Some(s) = self.sessions.get_mut(session) else { return };
        s.gap_since = if s.held.is_empty() { None } else { Some(cx.now) };
        self.commands_received(cx, session);
    }

    pub(super) fn logout_response(&mut self, cx: &mut Cx<'_>, key: Key, itt: u32, response: u8) {
        let header = LogoutResponse {
            opcode: opcode::LOGOUT_RESPONSE,
            flags: flag::FINAL,
            response,
            itt: itt.into(),
            ..zerocopy::FromZeros::new_zeroed()
        };
        self.send(cx, key, zerocopy::transmute!(header), Segment::Empty, StatSn::Use);
    }

    /// Finds a place for the data segment.
    fn stage_request(&mut self, cx: &mut Cx<'_>, key: Key, bhs: &Bhs) {
        let len = bhs.data_len() as usize;
        let data = stage(cx.pool, len);
        let Some(conn) = self.conns.get_mut(key) else { return cx.free_staged(data) };
        if let Some(Staged { buf, len }) = data {
            conn.sink = Sink::Buffer { buf, at: 0, limit: len };
        }
        conn.incoming = Incoming::Request { lost: len > 0 && data.is_none(), data };
    }

    /// It is this request's turn. False if it is rejected: then its CmdSN has not been received (7.3).
    fn deliver(&mut self, cx: &mut Cx<'_>, key: Key, session: Key, bhs: &Bhs, data: Option<Staged>) -> bool {
        let accepted = match bhs.op() {
            opcode::NOP_OUT => self.check_nop(key, bhs).map(|()| Accepted::Nop),
            opcode::TASK_MANAGEMENT => self.check_task_management(session, bhs).map(|()| Accepted::TaskManagement),
            opcode::TEXT => self.text_request(cx, key, session, bhs, data).map(Accepted::Text),
            _ => check_logout(bhs).map(Accepted::Logout),
        };
        let accepted = match accepted {
            Ok(accepted) => accepted,
            Err((reason, why)) => {
                cx.free_staged(data);
                self.reject(cx, key, bhs, reason, why);
                return false;
            }
        };
        if !bhs.immediate()
            && let Some(s) = self.sessions.get_mut(session)
        {
            s.window.receive();
            s.window.end();
        }
        match accepted {
            Accepted::Nop => self.nop_out(cx, key, session, bhs, data),
            Accepted::Text(answer) => {
                cx.free_staged(data);
                self.text_response(cx, key, answer);
            }
            Accepted::TaskManagement => self.task_management(cx, session, bhs),
            Accepted::Logout(request) => self.logout(cx, key, session, &request),
        }
        true
    }

    /// An answer to a ping names a ping (11.18.2).
    fn check_nop(&self, key: Key, bhs: &Bhs) -> Result<(), Rejection> {
        let ttt = bhs.ttt.get();
        let last = self.conns.get(key).map_or(0, |c| c.last_ping);
        if ttt == NO_TAG || (ttt <= last && last - ttt < REMEMBERED_PINGS && ttt != 0) {
            return Ok(());
        }
        Err(rejection(RejectReason::InvalidField, format_args!("Target Transfer Tag {ttt:#x} is of no NOP-In")))
    }

    /// NOP-Out (11.18): answers a ping, or is one.
    fn nop_out(&mut self, cx: &mut Cx<'_>, key: Key, session: Key, bhs: &Bhs, data: Option<Staged>) {
        let nop: NopOut = zerocopy::transmute!(*bhs);
        let Some(conn) = self.conns.get_mut(key) else { return cx.free_staged(data) };
        if conn.ping.is_some_and(|p| p.ttt == nop.ttt.get()) {
            conn.ping = None;
        }
        if nop.itt.get() == NO_TAG {
            return cx.free_staged(data);
        }
        let max = self.sessions.get(session).map_or(0, |s| s.params.max_send_segment) as usize;
        let segment = match data {
            Some(Staged { buf, len }) => Segment::Pool { buf, at: 0, len: len.min(max), release: true },
            None => Segment::Empty,
        };
        let header = NopIn {
            opcode: opcode::NOP_IN,
            flags: flag::FINAL,
            itt: nop.itt,
            ttt: NO_TAG.into(),
            ..zerocopy::FromZeros::new_zeroed()
        };
        self.send(cx, key, zerocopy::transmute!(header), segment, StatSn::Use);
    }

    /// Logout (11.14).
    fn logout(&mut self, cx: &mut Cx<'_>, key: Key, session: Key, request: &LogoutRequest) {
        let Some(s) = self.sessions.get(session) else { return };
        let itt = request.itt.get();
        match request.reason & 0x7f {
            // Connection recovery needs error recovery level 2.
            REMOVE_FOR_RECOVERY => self.logout_response(cx, key, itt, 2),
            CLOSE_CONNECTION if request.cid.get() != s.cid => self.logout_response(cx, key, itt, 1),
            _ => self.end_session(cx, session, Ending::Logout { conn: key, itt }),
        }
    }
}

const CLOSE_CONNECTION: u8 = 1;
const REMOVE_FOR_RECOVERY: u8 = 2;

fn check_logout(bhs: &Bhs) -> Result<LogoutRequest, Rejection> {
    let request: LogoutRequest = zerocopy::transmute!(*bhs);
    match request.reason & 0x7f {
        ..=REMOVE_FOR_RECOVERY => Ok(request),
        reason => Err(rejection(RejectReason::InvalidField, format_args!("logout reason {reason}"))),
    }
}

/// Header fields that contradict each other end the session (7.7).
fn format_error(bhs: &Bhs) -> Option<String> {
    match bhs.op() {
        opcode::NOP_OUT if bhs.itt.get() == NO_TAG && !bhs.immediate() => {
            Some("NOP-Out with ITT FFFFFFFFh and I=0".to_owned())
        }
        opcode::TEXT => {
            let text: TextRequest = zerocopy::transmute!(*bhs);
            let both = flag::FINAL | flag::CONTINUE;
            (text.flags & both == both).then(|| "Text Request with F=1 and C=1".to_owned())
        }
        opcode::TASK_MANAGEMENT | opcode::LOGOUT if bhs.data_len() != 0 => {
            Some(format!("DataSegmentLength {} in a PDU with opcode {:#04x}", bhs.data_len(), bhs.op()))
        }
        _ => None,
    }
}

/// A buffer for a data segment. `None` if it is empty or there is no memory.
pub(super) fn stage(pool: &mut BufPool, len: usize) -> Option<Staged> {
    if len == 0 { None } else { pool.alloc(len).map(|buf| Staged { buf, len }) }
}
