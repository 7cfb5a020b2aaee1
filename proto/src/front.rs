//! What the nodes of both protocols have in common toward their owner: connections by number, and what they want done.

use std::fmt;

use platter_block::{Op, Tag, VolumeId};

/// Names a connection of one node. Never used again after its end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConnId(pub u64);

/// Which peers see a target or subsystem, by initiator name or host NQN. To all others it does not exist: they are answered
/// "not found" and discovery hides it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Peers {
    /// Everybody.
    #[default]
    Any,
    /// These names only.
    Listed(Vec<String>),
}

impl Peers {
    /// Whether `name` is one of them.
    pub fn allows(&self, name: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Listed(names) => names.iter().any(|n| n == name),
        }
    }
}

/// Why a connection was not accepted: close the socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// As many as the node's limit are there already.
    TooManyConnections,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooManyConnections => f.write_str("too many connections"),
        }
    }
}

impl std::error::Error for Refused {}

/// What a node wants done. `E` is what it tells the log.
#[derive(Debug)]
pub enum Output<E> {
    /// Run `op` on `volume` and call the node's `completed` when it has ended.
    Submit {
        /// Unique among the ops in flight of this node; its top 16 bits are the node's `tag_base`.
        tag: Tag,
        /// Which volume.
        volume: VolumeId,
        /// What to do.
        op: Op,
    },
    /// End this op early if possible; `completed` is still called for it, exactly once.
    Abort {
        /// Which op.
        tag: Tag,
    },
    /// There is something to write on a connection that had nothing.
    Transmit {
        /// Which connection.
        conn: ConnId,
    },
    /// Close the socket, then call the node's `closed`.
    Close {
        /// Which connection.
        conn: ConnId,
        /// First write what `transmit` still gives, for a few seconds at most.
        flush: bool,
    },
    /// For the log.
    Event(E),
    /// The connection asks for a target or subsystem of another node: `detach` it here, `attach` it there. No bytes are
    /// taken until then.
    Elsewhere {
        /// Which connection.
        conn: ConnId,
        /// Name of the target or subsystem, as in the directory.
        name: String,
    },
}

/// Cuts and escapes what a peer sent.
pub(crate) fn printable(text: &str) -> String {
    const MAX: usize = 240;
    text.chars().flat_map(char::escape_debug).take(MAX).collect()
}
