//! What a controller says about itself, its subsystem and its namespaces: the structures that Identify, Get Log Page and
//! Get Features answer with, and what Set Features and events change of them. All of it follows from a [`View`].

use platter_block::Instant;

use super::config::Limits;
use super::controller::Controller;
use super::subsystem::{Directory, Subsystem};

pub(super) use super::events::{AsyncEvents, ChangedNamespaces, Notice};
pub(super) use super::features::{Change, Features, get_feature, set_feature};
pub(super) use super::identify::{VERSION, identify};
pub(super) use super::logs::log_page;

/// What there is to be known when a question is answered.
pub(super) struct View<'a> {
    pub(super) controller: &'a Controller,
    /// `None`: the controller is one of discovery.
    pub(super) subsystem: Option<&'a Subsystem>,
    pub(super) directory: &'a Directory,
    pub(super) limits: &'a Limits,
    pub(super) now: Instant,
}

/// A structure of `len` bytes with these fields, each at its offset; the rest is zero.
pub(super) fn structure(len: usize, fields: &[(usize, &[u8])]) -> Vec<u8> {
    let mut bytes = vec![0; len];
    for (at, field) in fields {
        bytes[*at..*at + field.len()].copy_from_slice(field);
    }
    bytes
}

/// A text field: ASCII, cut or padded with spaces to `LEN` bytes.
pub(super) fn ascii<const LEN: usize>(text: &str) -> [u8; LEN] {
    let mut field = [b' '; LEN];
    let printable = text.bytes().map(|b| if (b' '..=b'~').contains(&b) { b } else { b'?' });
    field.iter_mut().zip(printable).for_each(|(to, from)| *to = from);
    field
}
