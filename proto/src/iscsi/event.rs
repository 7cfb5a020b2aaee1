//! What a log should say about peers.

use std::fmt;
use std::sync::Arc;

use super::node::SessionKind;
use crate::front::printable;

/// Something worth a line in a log. `Display` names the peer, the field and the value; what a peer sent is escaped and cut.
///
/// A connection gives at most a few dozen of those that its peer can cause at will, then one that says so, then none for a
/// minute.
#[derive(Clone, Debug)]
pub struct Event {
    /// The peer, as given to [`Node::accept`](super::Node::accept).
    pub peer: Arc<str>,
    /// What happened.
    pub kind: EventKind,
}

/// What happened.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum EventKind {
    /// A session reached full feature phase.
    LoggedIn {
        /// Initiator name.
        initiator: String,
        /// Target name; `None` for a discovery session without one.
        target: Option<String>,
        /// What for.
        kind: SessionKind,
        /// Session handle.
        tsih: u16,
        /// The peer of the session or connection of the same initiator port whose place it took (6.3.4, 6.3.5). If that is
        /// another machine, two initiators have one name, and will throw each other out for ever.
        replaces: Option<String>,
    },
    /// A login failed.
    LoginRefused {
        /// Status-Class and Status-Detail (11.13.5).
        status: u16,
        /// Initiator name, if known by then.
        initiator: Option<String>,
        /// Target name, if known by then.
        target: Option<String>,
        /// Which field and value.
        why: String,
    },
    /// A session ended, after all its commands did.
    SessionEnded {
        /// Initiator name.
        initiator: String,
        /// Session handle.
        tsih: u16,
        /// Commands that were aborted by its end.
        aborted: usize,
    },
    /// We close the connection.
    Dropped {
        /// Which field and value, or which timer.
        why: String,
    },
    /// A PDU was rejected (11.17).
    Rejected {
        /// Its opcode.
        opcode: u8,
        /// Its Initiator Task Tag.
        itt: u32,
        /// Reason code.
        reason: u8,
        /// Which field and value.
        why: String,
    },
    /// A write ends with CHECK CONDITION because its data came wrongly (11.4.7.2).
    DataOutFailed {
        /// Initiator Task Tag of the command.
        itt: u32,
        /// Which field and value.
        why: String,
    },
    /// A task management function was answered.
    TaskManagement {
        /// Function code (11.5.1).
        function: u8,
        /// LUN field.
        lun: [u8; 8],
        /// Response code (11.6.1).
        response: u8,
        /// Commands that it ended, of all sessions.
        aborted: usize,
    },
    /// Further events about PDUs of this connection are not told for a while.
    Suppressed,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.peer, self.kind)
    }
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |n: &Option<String>| n.as_deref().map_or_else(|| "(none)".to_owned(), printable);
        match self {
            Self::LoggedIn { initiator, target, kind, tsih, replaces } => {
                let what = match kind {
                    SessionKind::Normal => "logged in to",
                    SessionKind::Discovery => "discovery session with",
                };
                write!(f, "{} {what} {}, TSIH {tsih}", printable(initiator), name(target))?;
                replaces.as_ref().map_or(Ok(()), |peer| write!(f, ", in place of its session from {peer}"))
            }
            Self::LoginRefused { status, initiator, target, why } => {
                let why = printable(why);
                write!(f, "login of {} to {} refused, status {status:04x}h: {why}", name(initiator), name(target))
            }
            Self::SessionEnded { initiator, tsih, aborted } => {
                write!(f, "session of {}, TSIH {tsih}, ended; {aborted} commands aborted", printable(initiator))
            }
            Self::Dropped { why } => write!(f, "connection dropped: {}", printable(why)),
            Self::Rejected { opcode, itt, reason, why } => {
                write!(f, "PDU {opcode:#04x} with ITT {itt:#x} rejected, reason {reason:#04x}: {}", printable(why))
            }
            Self::DataOutFailed { itt, why } => write!(f, "data of the write with ITT {itt:#x}: {}", printable(why)),
            Self::TaskManagement { function, lun, response, aborted } => {
                write!(f, "task management function {function} on LUN ")?;
                lun.iter().try_for_each(|b| write!(f, "{b:02x}"))?;
                write!(f, " answered {response}; {aborted} commands aborted")
            }
            Self::Suppressed => f.write_str("further events about PDUs of this connection are not logged for a while"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn l28_what_a_peer_sent_is_escaped_and_cut() {
        let event = Event {
            peer: "10.0.0.1:5".into(),
            kind: EventKind::Dropped { why: format!("a\n\u{1b}[2J%n\0{}", "x".repeat(10_000)) },
        };
        let line = event.to_string();
        assert!(line.starts_with("10.0.0.1:5: connection dropped: a\\n\\u{1b}[2J%n\\0xxx"), "{line}");
        assert!(line.len() < 400 && !line.chars().any(char::is_control));
    }
}
