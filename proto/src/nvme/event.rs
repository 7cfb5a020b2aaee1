//! What a log should say about hosts.

use std::fmt;
use std::sync::Arc;

use crate::front::printable;

/// Something worth a line in a log. `Display` names the peer, the field and the value; what a peer sent is escaped and cut.
#[derive(Clone, Debug)]
pub struct Event {
    /// The peer, as given to `accept`.
    pub peer: Arc<str>,
    /// What happened.
    pub kind: EventKind,
}

/// What happened.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum EventKind {
    /// An admin queue was connected: a controller was made.
    Connected {
        /// Host NQN.
        host: String,
        /// Subsystem NQN.
        subsystem: String,
        /// Controller identifier.
        cntlid: u16,
        /// Keep Alive Timeout in milliseconds; 0 if none.
        kato: u32,
    },
    /// A Connect was refused.
    ConnectRefused {
        /// Host NQN.
        host: String,
        /// Subsystem NQN.
        subsystem: String,
        /// SCT << 8 | SC.
        status: u16,
        /// Which field and value.
        why: String,
    },
    /// A controller ended, after all its commands did.
    ControllerEnded {
        /// Host NQN.
        host: String,
        /// Controller identifier.
        cntlid: u16,
        /// Commands that were aborted by its end.
        aborted: usize,
        /// What ended it.
        why: String,
    },
    /// We close the connection.
    Dropped {
        /// Which field and value, or which timer.
        why: String,
    },
    /// The host ended the connection with an H2CTermReq.
    TerminatedByHost {
        /// Fatal Error Status.
        fes: u16,
        /// Fatal Error Information.
        fei: u32,
    },
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.peer, self.kind)
    }
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connected { host, subsystem, cntlid, kato } => {
                let (host, subsystem) = (printable(host), printable(subsystem));
                write!(f, "{host} connected to {subsystem}, controller {cntlid:#06x}, keep alive {kato} ms")
            }
            Self::ConnectRefused { host, subsystem, status, why } => {
                let (host, subsystem, why) = (printable(host), printable(subsystem), printable(why));
                write!(f, "Connect of {host} to {subsystem} refused, status {status:03x}h: {why}")
            }
            Self::ControllerEnded { host, cntlid, aborted, why } => {
                let (host, why) = (printable(host), printable(why));
                write!(f, "controller {cntlid:#06x} of {host} ended: {why}; {aborted} commands aborted")
            }
            Self::Dropped { why } => write!(f, "connection dropped: {}", printable(why)),
            Self::TerminatedByHost { fes, fei } => {
                write!(f, "connection ended by the host: FES {fes:#06x}, FEI {fei:#010x}")
            }
        }
    }
}
