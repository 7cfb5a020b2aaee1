//! What happens because time passes: login and data timers, pings, and the planned stop. And the other PDUs that no request
//! asks for.

use std::time::Duration;

use platter_block::Instant;

use super::command::State;
use super::connection::{Phase, Ping, StatSn};
use super::node::{Cx, Node, SessionKind};
use super::pdu::{AsyncMessage, NO_TAG, NopIn, flag, opcode};
use super::transmit::Segment;
use crate::slab::Key;

/// AsyncEvent (11.9.1).
mod event {
    /// The initiator shall log out within Parameter3 seconds.
    pub(super) const LOGOUT_REQUEST: u8 = 1;
    /// All connections of the session will be dropped.
    pub(super) const SESSION_DROP: u8 = 3;
}

/// A tick that comes later than this was kept from coming: peers are not to blame for a silence that we did not listen to.
const STALL: Duration = Duration::from_secs(5);

impl Node {
    /// Makes sure that the timers are looked at by then.
    pub(super) fn schedule(&mut self, at: Instant) {
        self.timer = Some(self.timer.map_or(at, |t| t.min(at)));
    }

    /// Runs what is due and finds out when to look again.
    pub(super) fn run_timers(&mut self, cx: &mut Cx<'_>) {
        let Some(due) = self.timer.filter(|&due| due <= cx.now) else { return };
        if cx.now.since(due) > STALL {
            self.forgive(cx.now);
        }
        self.timer = None;
        if let Some(deadline) = self.drain_deadline {
            if deadline <= cx.now {
                self.drop_all(cx);
            } else {
                self.schedule(deadline);
            }
        }
        for key in self.conns.keys() {
            self.connection_timers(cx, key);
        }
        for key in self.sessions.keys() {
            self.session_timers(cx, key);
        }
        if let Some(next) = self.tmf_timers(cx) {
            self.schedule(next);
        }
    }

    /// A planned stop begins.
    pub(super) fn begin_drain(&mut self, cx: &mut Cx<'_>, grace: Duration) {
        let deadline = cx.now + grace;
        self.drain_deadline = Some(deadline);
        self.schedule(deadline);
        for key in self.conns.keys() {
            let Some(session) = self.conns.get(key).and_then(|c| c.session()) else { continue };
            match self.sessions.get(session).map(|s| s.kind) {
                Some(SessionKind::Normal) => {
                    let seconds = u16::try_from(grace.as_secs()).unwrap_or(u16::MAX);
                    self.async_message(cx, key, event::LOGOUT_REQUEST, [0, 0, seconds]);
                }
                // 7.4.3: no Async Messages there.
                _ => self.close_connection(cx, key, true),
            }
        }
    }

    /// Drops every session of a target, as a power-on does (11.5.1, TARGET COLD RESET).
    pub(super) fn close_target(&mut self, cx: &mut Cx<'_>, target: usize) {
        for key in self.sessions.keys() {
            let Some(s) = self.sessions.get(key).filter(|s| s.target == Some(target)) else { continue };
            let (conn, time2wait) = (s.conn, s.params.time2wait);
            if let Some(conn) = conn {
                self.async_message(cx, conn, event::SESSION_DROP, [0, time2wait, 0]);
                self.close_connection(cx, conn, true);
            }
        }
    }

    /// The drain is over: whoever has not logged out is told, and dropped.
    fn drop_all(&mut self, cx: &mut Cx<'_>) {
        for key in self.conns.keys() {
            let Some(conn) = self.conns.get(key) else { continue };
            let session = conn.session().and_then(|s| self.sessions.get(s));
            if let Some(time2wait) = session.map(|s| s.params.time2wait) {
                self.async_message(cx, key, event::SESSION_DROP, [0, time2wait, 0]);
            }
            self.close_connection(cx, key, true);
        }
    }

    fn async_message(&mut self, cx: &mut Cx<'_>, key: Key, event: u8, parameters: [u16; 3]) {
        let header = AsyncMessage {
            opcode: opcode::ASYNC,
            flags: flag::FINAL,
            itt: NO_TAG.into(),
            event,
            parameters: parameters.map(Into::into),
            ..zerocopy::FromZeros::new_zeroed()
        };
        self.send(cx, key, zerocopy::transmute!(header), Segment::Empty, StatSn::Use);
    }

    /// The login timer, or pings.
    fn connection_timers(&mut self, cx: &mut Cx<'_>, key: Key) {
        let Some(conn) = self.conns.get(key) else { return };
        let session = match conn.phase {
            Phase::Closed => return,
            Phase::FullFeature { session } => session,
            Phase::Login(_) | Phase::Elsewhere(_) | Phase::Waiting(..) => {
                let deadline = conn.login_deadline;
                if deadline <= cx.now {
                    self.drop_connection(cx, key, "the login took too long");
                } else {
                    self.schedule(deadline);
                }
                return;
            }
        };
        let (interval, timeout) = (self.limits.nop_interval, self.limits.nop_timeout);
        let discovery = self.sessions.get(session).is_some_and(|s| s.kind == SessionKind::Discovery);
        let answered = conn.ping.is_none_or(|p| conn.alive > p.sent);
        let due = match conn.ping {
            // 7.4.3: discovery sessions are not pinged.
            _ if discovery => conn.alive + interval + timeout,
            Some(ping) if !answered => ping.sent + timeout,
            _ => conn.alive + interval,
        };
        if due > cx.now {
            return self.schedule(due);
        }
        if discovery || !answered {
            let silence = cx.now.since(conn.alive).as_secs();
            return self.drop_connection(cx, key, format_args!("nothing was heard for {silence} s"));
        }
        self.ping(cx, key);
        self.schedule(cx.now + timeout);
    }

    /// MaxCmdSN has opened the window, and no response tells so: the initiator would wait for ever (11.4.11).
    pub(super) fn tell_window(&mut self, cx: &mut Cx<'_>, session: Key) {
        let Some(conn) = self.sessions.get(session).filter(|s| s.ending.is_none()).and_then(|s| s.conn) else { return };
        self.nop_in(cx, conn, NO_TAG);
    }

    fn ping(&mut self, cx: &mut Cx<'_>, key: Key) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        // Never 0, and never FFFFFFFFh.
        let ttt = (conn.last_ping + 1) & 0x7fff_ffff;
        conn.last_ping = ttt.max(1);
        let ttt = conn.last_ping;
        conn.ping = Some(Ping { ttt, sent: cx.now });
        self.nop_in(cx, key, ttt);
    }

    fn nop_in(&mut self, cx: &mut Cx<'_>, key: Key, ttt: u32) {
        let header = NopIn {
            opcode: opcode::NOP_IN,
            flags: flag::FINAL,
            itt: NO_TAG.into(),
            ttt: ttt.into(),
            ..zerocopy::FromZeros::new_zeroed()
        };
        self.send(cx, key, zerocopy::transmute!(header), Segment::Empty, StatSn::Peek);
    }

    /// Data and commands that do not come.
    fn session_timers(&mut self, cx: &mut Cx<'_>, key: Key) {
        let Some(s) = self.sessions.get(key) else { return };
        let Some(conn) = s.conn else { return };
        let timeout = self.limits.data_timeout;
        let oldest = s.tasks.iter().filter_map(|t| {
            let task = self.tasks.get(t.task)?;
            let waits = !matches!(task.state, State::Running | State::Aborting) && !task.out.quiet();
            waits.then_some(task.out.since)
        });
        let gap = s.gap_since.into_iter().chain(self.commands_missing_since(key)).min();
        let Some(oldest) = oldest.chain(gap).min() else { return };
        if oldest + timeout <= cx.now {
            let what = if gap == Some(oldest) { "a command before others" } else { "data of a write" };
            let why = format!("{what} did not come for {} s", timeout.as_secs());
            self.drop_connection(cx, conn, why);
        } else {
            self.schedule(oldest + timeout);
        }
    }

    /// We did not run for a while: everybody gets time again.
    fn forgive(&mut self, now: Instant) {
        for key in self.conns.keys() {
            if let Some(conn) = self.conns.get_mut(key) {
                conn.alive = now;
                conn.login_deadline = conn.login_deadline.max(now + STALL);
            }
        }
    }
}
