//! What waits to be written on one connection, in wire order: small pieces that are kept here, and pieces of pool buffers.

use std::collections::VecDeque;
use std::io;

use platter_block::{BufId, BufPool};

/// Most pieces that one call of [`Pieces::gather`] gives; well below the IOV_MAX of every system.
const MAX_PIECES: usize = 256;

/// About how many bytes one call of [`Pieces::gather`] gives.
const MAX_GATHER: usize = 1 << 20;

/// An empty queue keeps room for this many pieces.
const KEPT_PIECES: usize = 64;

/// Bytes of a piece that needs no allocation: every header with its digest, and padding with a data digest.
pub(crate) const INLINE: usize = 52;

/// The queue. Every piece that names a buffer borrows it until the piece that releases it has been written.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    pieces: VecDeque<Piece>,
    /// Bytes of the front piece that have been written.
    written: usize,
    /// Bytes that have not.
    len: usize,
}

/// One piece.
#[derive(Debug)]
pub(crate) enum Piece {
    /// The first `len` bytes.
    Inline {
        /// The bytes, and room.
        bytes: [u8; INLINE],
        /// How many count.
        len: u8,
    },
    /// Anything longer that is not in the pool.
    Boxed(Box<[u8]>),
    /// A piece of a pool buffer that nobody changes any more.
    Pool {
        /// The buffer.
        buf: BufId,
        /// First byte.
        at: usize,
        /// How many.
        len: usize,
        /// Free the buffer when this has been written: the last piece of it.
        release: bool,
    },
}

impl Pieces {
    pub(crate) const fn new() -> Self {
        Self { pieces: VecDeque::new(), written: 0, len: 0 }
    }

    /// Bytes waiting.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Queues a piece.
    pub(crate) fn push(&mut self, piece: Piece) {
        self.len += piece.len();
        self.pieces.push_back(piece);
    }

    /// Appends what is to be written next.
    pub(crate) fn gather<'a>(&'a self, pool: &'a BufPool, iov: &mut Vec<io::IoSlice<'a>>) {
        let mut skip = self.written;
        let mut bytes = 0;
        for piece in self.pieces.iter().take(MAX_PIECES) {
            let piece = &piece.bytes(pool)[skip..];
            skip = 0;
            bytes += piece.len();
            iov.push(io::IoSlice::new(piece));
            if bytes >= MAX_GATHER {
                break;
            }
        }
    }

    /// The first `n` bytes have been written.
    pub(crate) fn advance(&mut self, n: usize, pool: &mut BufPool) {
        assert!(n <= self.len, "{n} bytes written, but only {} were there", self.len);
        self.len -= n;
        self.written += n;
        while let Some(front) = self.pieces.front() {
            let len = front.len();
            if self.written < len {
                break;
            }
            self.written -= len;
            if let Some(buf) = front.releases() {
                pool.free(buf);
            }
            self.pieces.pop_front();
        }
        if self.pieces.is_empty() {
            self.pieces.shrink_to(KEPT_PIECES);
        }
    }

    /// Drops everything.
    pub(crate) fn clear(&mut self, pool: &mut BufPool) {
        for buf in self.pieces.drain(..).filter_map(|c| c.releases()) {
            pool.free(buf);
        }
        self.written = 0;
        self.len = 0;
    }
}

impl Piece {
    /// A short piece.
    pub(crate) fn inline(of: &[u8]) -> Self {
        let mut bytes = [0; INLINE];
        bytes[..of.len()].copy_from_slice(of);
        Self::Inline { bytes, len: of.len() as u8 }
    }

    fn len(&self) -> usize {
        match self {
            Self::Inline { len, .. } => usize::from(*len),
            Self::Boxed(bytes) => bytes.len(),
            Self::Pool { len, .. } => *len,
        }
    }

    fn bytes<'a>(&'a self, pool: &'a BufPool) -> &'a [u8] {
        match self {
            Self::Inline { bytes, len } => &bytes[..usize::from(*len)],
            Self::Boxed(bytes) => bytes,
            Self::Pool { buf, at, len, .. } => &pool.bytes(*buf)[*at..*at + *len],
        }
    }

    const fn releases(&self) -> Option<BufId> {
        match self {
            Self::Pool { buf, release: true, .. } => Some(*buf),
            _ => None,
        }
    }
}
