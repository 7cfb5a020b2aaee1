//! A small iSCSI initiator (RFC 7143), written for tests and benches, that shares no protocol code with the product: a
//! mistake there is not repeated here.
//!
//! [`Session`] is one session with one connection at error recovery level 0. Commands are pipelined: [`Session::submit`]
//! queues one, [`Session::next_event`] returns what ends, in whatever order it ends; [`Session::execute`] does both for one
//! command. R2Ts and pings of the target are answered inside. Every PDU that arrives is checked against the rules that bind
//! a target: sequence numbers, offsets, bursts, residual counts, digests, padding. A broken rule is [`Error::Violation`],
//! which names the field and the section.
//!
//! For attacks, [`Wire`] sends any bytes at all, with or without a login before.
//!
//! | file | idea |
//! |---|---|
//! | `pdu.rs` | the 48 bytes of a header, and what its fields are called |
//! | `wire.rs` | PDUs on a TCP connection: framing, padding, digests, batching |
//! | `keys.rs` | `Key=Value` text, and what an answer to an offer may be |
//! | `login.rs` | from a connection to full feature phase |
//! | `session.rs` | commands in flight, sequence numbers, events |
//! | `transfer.rs` | the data of one command, both ways |
//! | `scsi.rs` | commands as CDBs, sense data back |

pub mod keys;
mod login;
pub mod pdu;
pub mod scsi;
mod session;
mod transfer;
mod wire;

pub use login::{Digests, LoginOptions, Parameters};
pub use scsi::{Command, Sense, Transfer};
pub use session::{End, Event, ReceivedData, Session, TaskFunction};
pub use wire::{RawPdu, Wire};

use std::fmt;
use std::io;

/// What can go wrong on the initiator's side.
#[derive(Debug)]
pub enum Error {
    /// The socket.
    Io(io::Error),
    /// The target closed or reset the connection.
    Closed,
    /// Nothing came for as long as the options allow.
    TimedOut,
    /// Login Response with a status class other than 0 (11.13.5).
    LoginRefused {
        /// Status-Class.
        class: u8,
        /// Status-Detail.
        detail: u8,
    },
    /// A Reject PDU where an answer was awaited (11.17).
    Rejected {
        /// Reason code.
        reason: u8,
    },
    /// The target broke a rule.
    Violation(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(e) => write!(f, "socket: {e}"),
            Self::Closed => f.write_str("the target closed the connection"),
            Self::TimedOut => f.write_str("the target did not answer in time"),
            Self::LoginRefused { class, detail } => write!(f, "login refused: {class:02x}{detail:02x}h"),
            Self::Rejected { reason } => write!(f, "rejected, reason {reason:02x}h"),
            Self::Violation(what) => write!(f, "the target broke the protocol: {what}"),
        }
    }
}

impl std::error::Error for Error {}

impl From<io::Error> for Error {
    fn from(e: io::Error) -> Self {
        match e.kind() {
            io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionAborted => {
                Self::Closed
            }
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Self::TimedOut,
            _ => Self::Io(e),
        }
    }
}

impl From<rustix::io::Errno> for Error {
    fn from(e: rustix::io::Errno) -> Self {
        io::Error::from(e).into()
    }
}

/// Result of the initiator's calls.
pub type Result<T> = std::result::Result<T, Error>;

/// `Err(Violation)` unless `holds`.
fn require(holds: bool, what: impl FnOnce() -> String) -> Result<()> {
    if holds { Ok(()) } else { Err(Error::Violation(what())) }
}
