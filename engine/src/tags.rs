//! From the submitter's tag to the op in flight.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use platter_block::Tag;

use crate::slab::Key;

/// Never iterated: nothing depends on its order.
pub(crate) type Tags = HashMap<Tag, Key, BuildHasherDefault<TagHasher>>;

/// Tags are chosen by our own protocols, not by a peer: one multiplication spreads them well enough.
#[derive(Default)]
pub(crate) struct TagHasher(u64);

impl Hasher for TagHasher {
    fn write_u64(&mut self, tag: u64) {
        // 2^64 divided by the golden ratio, made odd.
        let product = u128::from(tag) * 0x9e37_79b9_7f4a_7c15;
        self.0 = (product >> 64) as u64 ^ product as u64;
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(self.0 << 8 ^ u64::from(byte));
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
