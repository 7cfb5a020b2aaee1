//! What a log should say about peers.

use std::fmt;
use std::sync::Arc;

/// Something worth a line in a log. `Display` names the peer, the field and the value; bytes of a peer are escaped.
#[derive(Clone, Debug)]
pub struct Event {
    /// The peer, as given to [`Node::accept`](super::Node::accept).
    pub peer: Arc<str>,
    /// The line.
    pub text: String,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.peer, self.text)
    }
}
