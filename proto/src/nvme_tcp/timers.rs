//! What happens because time passes: the connect timer, and the data timer.

use std::time::Duration;

use platter_block::Instant;

use super::connection::Phase;
use super::node::{Cx, Node};
use crate::slab::Key;

/// A tick that comes later than this was kept from coming: hosts are not to blame for a silence that we did not listen to.
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
        for key in self.conns.keys() {
            self.connection_timers(cx, key);
        }
    }

    fn connection_timers(&mut self, cx: &mut Cx<'_>, key: Key) {
        let timeout = self.limits.data_timeout;
        let Some(conn) = self.conns.get(key).filter(|c| !matches!(c.phase, Phase::Closed)) else { return };
        let connect = (!conn.is_connected).then_some(conn.connect_deadline);
        // Bytes that we do not want now are not missed.
        let is_waiting = !conn.rx.between_pdus() && conn.takes_bytes(self.limits.transmit_queue);
        let pdu = is_waiting.then_some(conn.alive);
        let data = conn.transfers.iter().map(|t| t.since).chain(pdu).min().map(|since| since + timeout);
        let Some(due) = connect.into_iter().chain(data).min() else { return };
        if due > cx.now {
            self.schedule(due);
        } else if connect == Some(due) {
            self.drop_connection(cx, key, "Connect took too long");
        } else {
            self.drop_connection(cx, key, format_args!("data did not come for {} s", timeout.as_secs()));
        }
    }

    /// We did not run for a while: everybody gets time again.
    fn forgive(&mut self, now: Instant) {
        for key in self.conns.keys() {
            if let Some(conn) = self.conns.get_mut(key) {
                conn.alive = now;
                conn.connect_deadline = conn.connect_deadline.max(now + STALL);
                conn.transfers.iter_mut().for_each(|t| t.since = now);
            }
        }
    }
}
