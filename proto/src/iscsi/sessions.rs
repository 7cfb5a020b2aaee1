//! Sessions: what belongs to one I_T nexus, and how it ends.
//!
//! A session ends in two steps. First all its commands are aborted; those with an op in the engine stay until that op has
//! ended. Only then is the nexus given up, and only then goes on what waited for it: a Logout Response, or the login of the
//! session that takes its place (6.3.5). So no command of a dead session can change the medium after that.

use std::collections::VecDeque;
use std::sync::Arc;

use platter_block::Instant;

use super::connection::Staged;
use super::event::{Event, EventKind};
use super::login::{LoginStatus, Refusal};
use super::negotiate::Params;
use super::node::{Cx, Node, Output, SessionInfo, SessionKind};
use super::pdu::Bhs;
use super::window::CommandWindow;
use crate::front::ConnId;
use crate::scsi::NexusId;
use crate::slab::Key;

/// Who a session is with: no two sessions share this (4.4.3, ISID RULE; 7.4.2 for discovery sessions).
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct SessionIdentity {
    pub(super) initiator: String,
    pub(super) isid: [u8; 6],
    /// Target name; `None` for an unnamed discovery session.
    pub(super) target: Option<String>,
    /// Target portal group tag.
    pub(super) tag: u16,
    /// The portal, of an unnamed discovery session.
    pub(super) portal: Option<String>,
}

#[derive(Debug)]
pub(super) struct Session {
    pub(super) identity: SessionIdentity,
    pub(super) kind: SessionKind,
    pub(super) tsih: u16,
    pub(super) cid: u16,
    pub(super) alias: Option<String>,
    /// Index of the target; `None` for discovery sessions.
    pub(super) target: Option<usize>,
    pub(super) nexus: NexusId,
    pub(super) params: Params,
    pub(super) window: CommandWindow,
    /// `None` while the session ends, after its connection has gone.
    pub(super) conn: Option<Key>,
    pub(super) peer: Arc<str>,
    pub(super) since: Instant,
    /// Commands in progress: at most the command window and the immediate limit.
    pub(super) tasks: Vec<TaskRef>,
    /// Immediate commands among them.
    pub(super) immediate: u32,
    /// Requests that came before one with a smaller CmdSN. At most one for each CmdSN of the window.
    pub(super) held: Vec<Held>,
    /// Since when a gap in CmdSN has been open.
    pub(super) gap_since: Option<Instant>,
    /// Commands that ended while data for them were on their way. At most [`MAX_RETIRED`].
    pub(super) retired: VecDeque<Retired>,
    /// Top half of the next command's Target Transfer Tags.
    pub(super) next_transfer: u16,
    pub(super) ending: Option<Ending>,
    /// Commands aborted by the end of the session or its connection.
    pub(super) aborted: usize,
    pub(super) commands: u64,
    pub(super) bytes_received: u64,
    pub(super) bytes_sent: u64,
}

/// Ended commands whose late data are known and dropped quietly. Late data of older ones are rejected.
pub(super) const MAX_RETIRED: usize = 256;

/// A command in progress, found by its Initiator Task Tag.
#[derive(Clone, Copy, Debug)]
pub(super) struct TaskRef {
    pub(super) itt: u32,
    pub(super) task: Key,
}

/// A non-immediate request that waits for the CmdSNs before it.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) cmd_sn: u32,
    pub(super) what: HeldRequest,
}

#[derive(Debug)]
pub(super) enum HeldRequest {
    /// A SCSI command, which is a task already.
    Command(Key),
    /// Any other request.
    Other { bhs: Bhs, data: Option<Staged> },
    /// It was aborted: received, and nothing to do (11.6.1 b).
    Nothing {
        /// Its end has moved MaxCmdSN already.
        ended: bool,
    },
}

/// A command that ended while data for it were on their way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Retired {
    pub(super) itt: u32,
    /// Top half of its Target Transfer Tags, if it has any.
    pub(super) transfer: Option<u16>,
    /// Sequences whose F bit has not been seen.
    pub(super) sequences: u32,
}

/// What happens when the last command of a session has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ending {
    /// The session is forgotten.
    Gone,
    /// Its logout is answered, then it is forgotten (11.15).
    Logout { conn: Key, itt: u32 },
    /// It is forgotten, then the login of this connection succeeds (6.3.5).
    Replaced { by: Key },
    /// The login of this connection succeeds, and takes over the session (6.3.4).
    Continued { by: Key },
}

impl Session {
    /// The command with this Initiator Task Tag.
    pub(super) fn find(&self, itt: u32) -> Option<Key> {
        self.tasks.iter().find(|t| t.itt == itt).map(|t| t.task)
    }

    /// Notes that data of an ended command may still come.
    pub(super) fn retire(&mut self, retired: Retired) {
        if self.retired.len() == MAX_RETIRED {
            self.retired.pop_front();
        }
        self.retired.push_back(retired);
    }

    /// For status displays.
    pub(super) fn info(&self) -> SessionInfo {
        SessionInfo {
            kind: self.kind,
            target: self.identity.target.clone(),
            initiator: self.identity.initiator.clone(),
            initiator_alias: self.alias.clone(),
            isid: self.identity.isid,
            tsih: self.tsih,
            conn: self.conn.map(|c| ConnId(c.to_bits())),
            peer: self.peer.to_string(),
            since: self.since,
            tasks: self.tasks.len(),
            commands: self.commands,
            bytes_received: self.bytes_received,
            bytes_sent: self.bytes_sent,
            header_digest: self.params.header_digest,
            data_digest: self.params.data_digest,
        }
    }

    /// SCSI initiator port name (4.4.2): initiator name and ISID.
    pub(super) fn initiator_port(&self) -> String {
        let isid = self.identity.isid.iter().fold(String::new(), |hex, b| format!("{hex}{b:02x}"));
        format!("{},i,0x{isid}", self.identity.initiator)
    }
}

/// How sessions end.
impl Node {
    /// Ends a session: aborts its commands and goes on when they have ended. If it was ending already, the new reason
    /// counts: the last login wins.
    pub(super) fn end_session(&mut self, cx: &mut Cx<'_>, key: Key, ending: Ending) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        let superseded = session.ending.replace(ending);
        let taken_from = match ending {
            Ending::Replaced { .. } | Ending::Continued { .. } => session.conn.take(),
            Ending::Gone | Ending::Logout { .. } => None,
        };
        if let Some(conn) = taken_from {
            self.shut(cx, conn, false);
        }
        if let Some(Ending::Replaced { by } | Ending::Continued { by }) = superseded {
            let refusal = Refusal::new(LoginStatus::SERVICE_UNAVAILABLE, "another login of this session came later");
            self.refuse_login(cx, by, refusal);
        }
        self.clear_held(cx, key);
        self.abort_session_tasks(cx, key);
        self.check_drained(cx, key);
    }

    /// The connection that a session's end waits for is gone.
    pub(super) fn login_abandoned(&mut self, cx: &mut Cx<'_>, conn: Key) {
        for key in self.sessions.keys() {
            let Some(session) = self.sessions.get_mut(key) else { continue };
            if matches!(session.ending, Some(Ending::Replaced { by } | Ending::Continued { by }) if by == conn) {
                session.ending = Some(Ending::Gone);
                self.check_drained(cx, key);
            }
        }
    }

    /// Goes on with what waits for the end of a session, if its last command has ended.
    pub(super) fn check_drained(&mut self, cx: &mut Cx<'_>, key: Key) {
        let Some(session) = self.sessions.get(key) else { return };
        let Some(ending) =
            session.ending.filter(|_| session.tasks.is_empty() && self.tmfs.iter().all(|t| t.session != key))
        else {
            return;
        };
        match ending {
            Ending::Gone => self.forget_session(key),
            Ending::Logout { conn, itt } => {
                self.logout_response(cx, conn, itt, 0);
                self.shut(cx, conn, true);
                self.forget_session(key);
            }
            Ending::Replaced { by } => {
                let peer = session.peer.clone();
                self.forget_session(key);
                self.finish_login(cx, by, None, Some(peer));
            }
            Ending::Continued { by } => {
                let peer = session.peer.clone();
                self.finish_login(cx, by, Some(key), Some(peer));
            }
        }
    }

    /// Drops the requests that wait for their turn. Commands among them are tasks, aborted as such.
    pub(super) fn clear_held(&mut self, cx: &mut Cx<'_>, key: Key) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        session.gap_since = None;
        for held in std::mem::take(&mut session.held) {
            if let HeldRequest::Other { data, .. } = held.what {
                cx.free_staged(data);
            }
        }
    }

    /// The session is over: its nexus is lost (6.3.5.1).
    fn forget_session(&mut self, key: Key) {
        let Some(session) = self.sessions.remove(key) else { return };
        if let Some(target) = session.target {
            self.targets[target].device.nexus_lost(session.nexus);
        }
        let kind = EventKind::SessionEnded {
            initiator: session.identity.initiator,
            tsih: session.tsih,
            aborted: session.aborted,
        };
        self.outputs.push_back(Output::Event(Event { peer: session.peer, kind }));
    }
}
