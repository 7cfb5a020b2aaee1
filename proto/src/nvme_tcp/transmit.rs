//! What waits to be written on one connection: headers, padding, pieces of pool buffers and digests, in wire order.

use std::io;

use platter_block::BufPool;

use super::pdu::{CapsuleResp, CommonHeader, DIGEST_LEN, Data, R2t, SHORT_HEADER_LEN, digest, flag, pdu_type};
use crate::nvme::ReplyData;
use crate::pieces::{INLINE, Piece, Pieces};

/// The queue of one connection, and what was agreed on for it.
#[derive(Debug)]
pub(super) struct TransmitQueue {
    pieces: Pieces,
    header_digest: bool,
    data_digest: bool,
    /// Data start at a multiple of this: (HPDA + 1) * 4.
    alignment: usize,
}

impl TransmitQueue {
    pub(super) const fn new() -> Self {
        Self { pieces: Pieces::new(), header_digest: false, data_digest: false, alignment: 4 }
    }

    /// What was agreed on, for the PDUs queued from now on. `alignment` is 4 to 128.
    pub(super) const fn configure(&mut self, header_digest: bool, data_digest: bool, alignment: usize) {
        (self.header_digest, self.data_digest, self.alignment) = (header_digest, data_digest, alignment);
    }

    /// A PDU as it stands, without digests: those of the beginning and of the end of a connection.
    pub(super) fn push_long(&mut self, pdu: Vec<u8>) {
        self.pieces.push(Piece::Boxed(pdu.into_boxed_slice()));
    }

    /// CapsuleResp.
    pub(super) fn push_response(&mut self, cqe: [u8; 16]) {
        let (common, pad) = self.common(pdu_type::CAPSULE_RESP, 0, 0);
        self.push_header(zerocopy::transmute!(CapsuleResp { common, cqe }), pad);
    }

    /// R2T for `len` bytes from the first one on.
    pub(super) fn push_r2t(&mut self, cid: u16, ttag: u16, len: u32) {
        let (common, pad) = self.common(pdu_type::R2T, 0, 0);
        let r2t =
            R2t { common, cccid: cid.into(), ttag: ttag.into(), r2to: 0.into(), r2tl: len.into(), reserved: [0; 4] };
        self.push_header(zerocopy::transmute!(r2t), pad);
    }

    /// C2HData: all data of a command in one, whose length nothing but PLEN limits. Frees the buffer when it is written.
    pub(super) fn push_data(&mut self, cid: u16, ReplyData { buf, at, len }: ReplyData, success: bool, pool: &BufPool) {
        let flags = if success { flag::LAST | flag::SUCCESS } else { flag::LAST };
        let (common, pad) = self.common(pdu_type::C2H_DATA, flags, len);
        let data = Data {
            common,
            cccid: cid.into(),
            ttag: 0.into(),
            datao: 0.into(),
            datal: (len as u32).into(),
            reserved: [0; 4],
        };
        self.push_header(zerocopy::transmute!(data), pad);
        self.pieces.push(Piece::Pool { buf, at, len, release: true });
        if self.data_digest {
            self.pieces.push(Piece::inline(&digest(crc32c::crc32c(&pool.bytes(buf)[at..at + len]))));
        }
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

    /// The common header of a PDU with `len` bytes of data, and how much padding comes before them.
    fn common(&self, pdu_type: u8, flags: u8, len: usize) -> (CommonHeader, usize) {
        let header_end = SHORT_HEADER_LEN + if self.header_digest { DIGEST_LEN } else { 0 };
        let mut flags = flags | if self.header_digest { flag::HEADER_DIGEST } else { 0 };
        let (mut pdo, mut plen) = (0, header_end);
        if len > 0 {
            pdo = header_end.next_multiple_of(self.alignment);
            plen = pdo + len;
            if self.data_digest {
                flags |= flag::DATA_DIGEST;
                plen += DIGEST_LEN;
            }
        }
        let plen = u32::try_from(plen).expect("a command moves far less than 4 GiB");
        let common = CommonHeader { pdu_type, flags, hlen: SHORT_HEADER_LEN as u8, pdo: pdo as u8, plen: plen.into() };
        (common, pdo.saturating_sub(header_end))
    }

    /// Header, header digest and padding.
    fn push_header(&mut self, header: [u8; SHORT_HEADER_LEN], pad: usize) {
        let mut bytes = [0; INLINE];
        bytes[..SHORT_HEADER_LEN].copy_from_slice(&header);
        let mut len = SHORT_HEADER_LEN;
        if self.header_digest {
            bytes[len..len + DIGEST_LEN].copy_from_slice(&digest(crc32c::crc32c(&header)));
            len += DIGEST_LEN;
        }
        if len + pad <= INLINE {
            return self.pieces.push(Piece::Inline { bytes, len: (len + pad) as u8 });
        }
        let mut long = bytes[..len].to_vec();
        long.resize(len + pad, 0);
        self.push_long(long);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CQE: [u8; 16] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16];

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

    fn reply(pool: &mut BufPool, bytes: &[u8]) -> ReplyData {
        let buf = pool.alloc(bytes.len() + 3).unwrap();
        pool.bytes_mut(buf)[3..].copy_from_slice(bytes);
        ReplyData { buf, at: 3, len: bytes.len() }
    }

    #[test]
    fn golden_capsule_resp_cqe_at_8() {
        let mut pool = BufPool::new(1 << 20);
        let mut queue = TransmitQueue::new();
        queue.push_response(CQE);
        let expected = [&[5, 0, 24, 0, 24, 0, 0, 0][..], &CQE].concat();
        assert_eq!(drain(&mut queue, &mut pool, 100), expected);
        queue.configure(true, true, 128);
        queue.push_response(CQE);
        let expected = [&[5, 1, 24, 0, 28, 0, 0, 0][..], &CQE].concat();
        let wire = drain(&mut queue, &mut pool, 100);
        assert_eq!(wire, [&expected[..], &crc32c::crc32c(&expected).to_le_bytes()].concat());
    }

    #[test]
    fn golden_r2t_cccid_at_8_ttag_at_10_r2to_at_12_r2tl_at_16() {
        let mut pool = BufPool::new(1 << 20);
        let mut queue = TransmitQueue::new();
        queue.push_r2t(0x0102, 0x0304, 0x0506_0708);
        let expected = [9, 0, 24, 0, 24, 0, 0, 0, 2, 1, 4, 3, 0, 0, 0, 0, 8, 7, 6, 5, 0, 0, 0, 0];
        assert_eq!(drain(&mut queue, &mut pool, 100), expected);
    }

    #[test]
    fn golden_c2h_data_cccid_at_8_datao_at_12_datal_at_16_data_at_24() {
        let mut pool = BufPool::new(1 << 20);
        let mut queue = TransmitQueue::new();
        let data = reply(&mut pool, b"abcde");
        queue.push_data(0x0102, data, false, &pool);
        let header = [7, 4, 24, 24, 29, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(drain(&mut queue, &mut pool, 100), [&header[..], b"abcde"].concat());
        let data = reply(&mut pool, b"abcde");
        queue.push_data(0x0102, data, true, &pool);
        assert_eq!(drain(&mut queue, &mut pool, 100)[1], 0x0c, "LAST_PDU and SUCCESS");
        assert_eq!(pool.in_use(), 0);
    }

    #[test]
    fn golden_c2h_data_with_digests_hdgst_at_24_data_at_28_ddgst_at_the_end() {
        let mut pool = BufPool::new(1 << 20);
        let mut queue = TransmitQueue::new();
        queue.configure(true, true, 4);
        let data = reply(&mut pool, b"abcde");
        queue.push_data(0x0102, data, false, &pool);
        let header = [7, 7, 24, 28, 37, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0];
        let hdgst = crc32c::crc32c(&header).to_le_bytes();
        let ddgst = crc32c::crc32c(b"abcde").to_le_bytes();
        assert_eq!(drain(&mut queue, &mut pool, 100), [&header[..], &hdgst, b"abcde", &ddgst].concat());
    }

    #[test]
    fn s30_data_start_where_the_host_wants_them_and_padding_is_zero() {
        for digests in [false, true] {
            for hpda in 0..32 {
                let mut pool = BufPool::new(1 << 20);
                let mut queue = TransmitQueue::new();
                queue.configure(digests, digests, (hpda + 1) * 4);
                let data = reply(&mut pool, b"abcde");
                queue.push_data(1, data, false, &pool);
                let wire = drain(&mut queue, &mut pool, 1000);
                let (pdo, header_end) = (usize::from(wire[3]), if digests { 28 } else { 24 });
                assert!(pdo % ((hpda + 1) * 4) == 0 && pdo >= header_end && pdo < header_end + (hpda + 1) * 4);
                assert!(wire[header_end..pdo].iter().all(|&b| b == 0));
                assert_eq!(wire[pdo..pdo + 5], *b"abcde");
                assert_eq!(u32::from_le_bytes([wire[4], wire[5], wire[6], wire[7]]) as usize, wire.len());
            }
        }
    }

    #[test]
    fn pieces_come_in_order_however_they_are_written_and_buffers_are_freed() {
        let mut expected = None;
        for step in [1, 3, 24, 1000] {
            let mut pool = BufPool::new(1 << 20);
            let mut queue = TransmitQueue::new();
            queue.configure(true, true, 128);
            for _ in 0..2 {
                let data = reply(&mut pool, &[7; 700]);
                queue.push_data(3, data, false, &pool);
                queue.push_response(CQE);
            }
            let wire = drain(&mut queue, &mut pool, step);
            assert_eq!(*expected.get_or_insert_with(|| wire.clone()), wire);
            assert_eq!(pool.in_use(), 0);
        }
    }
}
