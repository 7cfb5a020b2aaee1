//! What waits to be written on one connection: header bytes, pieces of pool buffers, padding and digests, in wire order.

use std::collections::VecDeque;
use std::io;

use platter_block::{BufId, BufPool};

use super::deframe::{digest, padding};
use super::pdu::BHS_LEN;

/// Most pieces that one call of [`TransmitQueue::gather`] gives; well below the IOV_MAX of every system.
const MAX_PIECES: usize = 256;

/// About how many bytes one call of [`TransmitQueue::gather`] gives.
const MAX_GATHER: usize = 1 << 20;

/// An empty queue keeps room for this many chunks.
const KEPT_CHUNKS: usize = 64;

/// The queue. Every chunk that names a buffer borrows it until the chunk that releases it has been written.
#[derive(Debug)]
pub(super) struct TransmitQueue {
    chunks: VecDeque<Chunk>,
    /// Bytes of the front chunk that have been written.
    written: usize,
    /// Bytes that have not.
    len: usize,
    header_digest: bool,
    data_digest: bool,
}

#[derive(Debug)]
enum Chunk {
    Inline { bytes: [u8; INLINE], len: u8 },
    Boxed(Box<[u8]>),
    Pool { buf: BufId, at: usize, len: usize, release: bool },
}

/// A header with its digest, or padding with the data digest.
const INLINE: usize = BHS_LEN + 4;

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
        Self { chunks: VecDeque::new(), written: 0, len: 0, header_digest: false, data_digest: false }
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
        self.push_chunk(Chunk::Inline { bytes, len: inline_len as u8 });
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
            Segment::Bytes(bytes) => self.push_chunk(Chunk::Boxed(bytes.into_boxed_slice())),
            Segment::Pool { buf, at, len, release } => self.push_chunk(Chunk::Pool { buf, at, len, release }),
        }
        self.push_tail(padding(len), crc);
    }

    /// Bytes waiting.
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends what is to be written next.
    pub(super) fn gather<'a>(&'a self, pool: &'a BufPool, iov: &mut Vec<io::IoSlice<'a>>) {
        let mut skip = self.written;
        let mut bytes = 0;
        for chunk in self.chunks.iter().take(MAX_PIECES) {
            let piece = &chunk.bytes(pool)[skip..];
            skip = 0;
            bytes += piece.len();
            iov.push(io::IoSlice::new(piece));
            if bytes >= MAX_GATHER {
                break;
            }
        }
    }

    /// The first `n` bytes have been written.
    pub(super) fn advance(&mut self, n: usize, pool: &mut BufPool) {
        assert!(n <= self.len, "{n} bytes written, but only {} were there", self.len);
        self.len -= n;
        self.written += n;
        while let Some(front) = self.chunks.front() {
            let len = front.len();
            if self.written < len {
                break;
            }
            self.written -= len;
            if let Some(buf) = front.releases() {
                pool.free(buf);
            }
            self.chunks.pop_front();
        }
        if self.chunks.is_empty() {
            self.chunks.shrink_to(KEPT_CHUNKS);
        }
    }

    /// Drops everything.
    pub(super) fn clear(&mut self, pool: &mut BufPool) {
        for buf in self.chunks.drain(..).filter_map(|c| c.releases()) {
            pool.free(buf);
        }
        self.written = 0;
        self.len = 0;
    }

    fn push_tail(&mut self, pad: usize, crc: u32) {
        let digest_len = if self.data_digest { 4 } else { 0 };
        if pad + digest_len == 0 {
            return;
        }
        let mut bytes = [0; INLINE];
        if self.data_digest {
            let covered = crc32c::crc32c_append(crc, &bytes[..pad]);
            bytes[pad..pad + 4].copy_from_slice(&digest(covered));
        }
        self.push_chunk(Chunk::Inline { bytes, len: (pad + digest_len) as u8 });
    }

    fn push_chunk(&mut self, chunk: Chunk) {
        self.len += chunk.len();
        self.chunks.push_back(chunk);
    }
}

impl Chunk {
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
