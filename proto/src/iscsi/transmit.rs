//! What waits to be written on one connection: header bytes, pieces of pool buffers, padding and digests, in wire order.

use std::io;

use platter_block::{BufId, BufPool};

use super::deframe::{digest, padding};
use super::pdu::BHS_LEN;
use crate::pieces::{INLINE, Piece, Pieces};

/// The queue of one connection, and what was negotiated for it.
#[derive(Debug)]
pub(super) struct TransmitQueue {
    pieces: Pieces,
    header_digest: bool,
    data_digest: bool,
}

/// The data segment of a PDU.
#[derive(Debug)]
pub(super) enum Segment {
    /// None.
    Empty,
    /// Small: text, sense data, a rejected header.
    Bytes(Vec<u8>),
    /// A piece of a pool buffer that nobody changes any more.
    Pool {
        /// The buffer.
        buf: BufId,
        /// First byte.
        at: usize,
        /// How many, at least 1.
        len: usize,
        /// Free the buffer when this has been written: the last PDU that carries a part of it.
        release: bool,
    },
}

impl From<Vec<u8>> for Segment {
    fn from(bytes: Vec<u8>) -> Self {
        if bytes.is_empty() { Self::Empty } else { Self::Bytes(bytes) }
    }
}

impl Segment {
    /// It will not be sent.
    pub(super) fn free(self, pool: &mut BufPool) {
        if let Self::Pool { buf, release: true, .. } = self {
            pool.free(buf);
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Empty => 0,
            Self::Bytes(bytes) => bytes.len(),
            Self::Pool { len, .. } => *len,
        }
    }
}

impl TransmitQueue {
    pub(super) const fn new() -> Self {
        Self { pieces: Pieces::new(), header_digest: false, data_digest: false }
    }

    /// What was negotiated, for the PDUs queued from now on.
    pub(super) const fn configure(&mut self, header_digest: bool, data_digest: bool) {
        self.header_digest = header_digest;
        self.data_digest = data_digest;
    }

    /// Queues a PDU. Fills in its DataSegmentLength.
    pub(super) fn push(&mut self, mut header: [u8; BHS_LEN], segment: Segment, pool: &BufPool) {
        let len = segment.len();
        header[4..8].copy_from_slice(&u32::try_from(len).expect("a data segment is shorter than 2^24").to_be_bytes());
        let mut bytes = [0; INLINE];
        bytes[..BHS_LEN].copy_from_slice(&header);
        let mut inline_len = BHS_LEN;
        if self.header_digest {
            bytes[BHS_LEN..].copy_from_slice(&digest(crc32c::crc32c(&header)));
            inline_len = INLINE;
        }
        self.pieces.push(Piece::Inline { bytes, len: inline_len as u8 });
        if len == 0 {
            return;
        }
        let crc = if self.data_digest {
            match &segment {
                Segment::Empty => 0,
                Segment::Bytes(bytes) => crc32c::crc32c(bytes),
                Segment::Pool { buf, at, len, .. } => crc32c::crc32c(&pool.bytes(*buf)[*at..*at + *len]),
            }
        } else {
            0
        };
        match segment {
            Segment::Empty => {}
            Segment::Bytes(bytes) => self.pieces.push(Piece::Boxed(bytes.into_boxed_slice())),
            Segment::Pool { buf, at, len, release } => self.pieces.push(Piece::Pool { buf, at, len, release }),
        }
        self.push_tail(padding(len), crc);
    }

    /// Bytes waiting.
    pub(super) const fn len(&self) -> usize {
        self.pieces.len()
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Appends what is to be written next.
    pub(super) fn gather<'a>(&'a self, pool: &'a BufPool, iov: &mut Vec<io::IoSlice<'a>>) {
        self.pieces.gather(pool, iov);
    }

    /// The first `n` bytes have been written.
    pub(super) fn advance(&mut self, n: usize, pool: &mut BufPool) {
        self.pieces.advance(n, pool);
    }

    /// Drops everything.
    pub(super) fn clear(&mut self, pool: &mut BufPool) {
        self.pieces.clear(pool);
    }

    fn push_tail(&mut self, pad: usize, crc: u32) {
        let digest_len = if self.data_digest { 4 } else { 0 };
        if pad + digest_len == 0 {
            return;
        }
        let mut bytes = [0; 8];
        if self.data_digest {
            let covered = crc32c::crc32c_append(crc, &bytes[..pad]);
            bytes[pad..pad + 4].copy_from_slice(&digest(covered));
        }
        self.pieces.push(Piece::inline(&bytes[..pad + digest_len]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(queue: &mut TransmitQueue, pool: &mut BufPool, step: usize) -> Vec<u8> {
        let mut wire = Vec::new();
        while !queue.is_empty() {
            let mut iov = Vec::new();
            queue.gather(pool, &mut iov);
            let all: Vec<u8> = iov.iter().flat_map(|s| s.iter().copied()).collect();
            let n = step.min(all.len());
            wire.extend(&all[..n]);
            queue.advance(n, pool);
        }
        wire
    }

    #[test]
    fn pieces_come_in_order_however_they_are_written_and_the_buffer_is_freed_at_the_end() {
        let mut expected = None;
        for step in [1, 3, 48, 1000] {
            let mut pool = BufPool::new(1 << 20);
            let buf = pool.alloc(10).unwrap();
            pool.bytes_mut(buf).copy_from_slice(b"0123456789");
            let mut queue = TransmitQueue::new();
            queue.configure(true, true);
            queue.push([1; BHS_LEN], Segment::Pool { buf, at: 0, len: 8, release: false }, &pool);
            queue.push([2; BHS_LEN], Segment::Pool { buf, at: 8, len: 2, release: true }, &pool);
            queue.push([3; BHS_LEN], Segment::Bytes(b"x".to_vec()), &pool);
            let wire = drain(&mut queue, &mut pool, step);
            assert_eq!(wire.len(), (52 + 8 + 4) + (52 + 4 + 4) + (52 + 4 + 4));
            assert_eq!(wire[4..8], [0, 0, 0, 8]);
            assert_eq!(wire[64 + 52..][..4], *b"89\0\0", "padding is zero");
            assert_eq!(pool.in_use(), 0);
            assert_eq!(*expected.get_or_insert_with(|| wire.clone()), wire);
        }
    }

    #[test]
    fn dropping_the_queue_frees_the_buffers() {
        let mut pool = BufPool::new(1 << 20);
        let buf = pool.alloc(10).unwrap();
        let mut queue = TransmitQueue::new();
        queue.push([1; BHS_LEN], Segment::Pool { buf, at: 0, len: 8, release: true }, &pool);
        queue.advance(50, &mut pool);
        queue.clear(&mut pool);
        assert_eq!((queue.len(), pool.in_use()), (0, 0));
    }
}
