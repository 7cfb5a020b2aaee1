//! Framing: a byte stream cut anywhere becomes headers, pieces of data segments, and ends of PDUs (11.2).
//!
//! The data segment is not collected here: each piece is handed on as it comes, so that it can be placed where it belongs.
//! Digests are computed over bytes that only we hold: the caller's slice, or a pool buffer that no disk works on.

use std::fmt;

use super::pdu::{BHS_LEN, Bhs, opcode};

/// TotalAHSLength is one byte and counts 4-byte words (11.2.1.5).
const MAX_AHS_LEN: usize = 255 * 4;
const DIGEST_LEN: usize = 4;

/// The largest data segment before full feature phase: the default MaxRecvDataSegmentLength (13.12).
pub(super) const LOGIN_DATA_SEGMENT: u32 = 8192;

/// What the next bytes are.
#[derive(Debug)]
pub(super) enum Frame<'a> {
    /// A header is complete and its digest is right: see [`Deframer::bhs`] and [`Deframer::ahs`].
    Header,
    /// A piece of the data segment, the next in order.
    Data(&'a [u8]),
    /// The PDU is complete.
    End {
        /// The data digest is right, or there is none.
        digest_ok: bool,
    },
}

/// How the peer is broken: the next PDU cannot be found. The connection ends (7.7, 7.8).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FrameError {
    /// The header digest is wrong.
    HeaderDigest,
    /// DataSegmentLength is larger than we declared (13.12).
    DataTooLong { len: u32, max: u32 },
    /// TotalAHSLength of a PDU that has no AHS (11.2.1.5).
    UnexpectedAhs { opcode: u8, words: u8 },
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HeaderDigest => f.write_str("header digest is wrong"),
            Self::DataTooLong { len, max } => write!(f, "DataSegmentLength {len} is more than {max}"),
            Self::UnexpectedAhs { opcode, words } => {
                write!(f, "TotalAHSLength {words} in a PDU with opcode {opcode:#04x}")
            }
        }
    }
}

/// The receiving end of one connection's framing.
#[derive(Debug)]
pub(super) struct Deframer {
    /// BHS, AHS and header digest.
    header: [u8; BHS_LEN + MAX_AHS_LEN + DIGEST_LEN],
    have: usize,
    stage: Stage,
    /// Bytes of the data segment still to come.
    data_left: u32,
    /// Bytes of padding and data digest.
    tail: [u8; 3 + DIGEST_LEN],
    tail_have: u8,
    tail_len: u8,
    /// CRC32C over the data segment so far.
    crc: u32,
    header_digest: bool,
    data_digest: bool,
    max_data: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Header,
    Data,
    Tail,
}

impl Deframer {
    /// Without digests, for the login phase.
    pub(super) const fn new() -> Self {
        Self {
            header: [0; BHS_LEN + MAX_AHS_LEN + DIGEST_LEN],
            have: 0,
            stage: Stage::Header,
            data_left: 0,
            tail: [0; 3 + DIGEST_LEN],
            tail_have: 0,
            tail_len: 0,
            crc: 0,
            header_digest: false,
            data_digest: false,
            max_data: LOGIN_DATA_SEGMENT,
        }
    }

    /// What was negotiated, from the next PDU on.
    pub(super) fn configure(&mut self, header_digest: bool, data_digest: bool, max_data: u32) {
        debug_assert!(self.between_pdus());
        self.header_digest = header_digest;
        self.data_digest = data_digest;
        self.max_data = max_data;
    }

    /// Takes from the front of `bytes`. `None`: all of them are used, and more are needed.
    pub(super) fn next<'a>(&mut self, bytes: &mut &'a [u8]) -> Result<Option<Frame<'a>>, FrameError> {
        match self.stage {
            Stage::Header => {
                // The BHS tells how long the AHS is, so the header comes in two steps.
                if !self.fill_header(bytes, BHS_LEN) {
                    return Ok(None);
                }
                let bhs = self.bhs();
                self.check(&bhs)?;
                let len = self.header_len(&bhs);
                if !self.fill_header(bytes, len) {
                    return Ok(None);
                }
                if self.header_digest && !self.header_digest_ok(&bhs) {
                    return Err(FrameError::HeaderDigest);
                }
                self.begin_data(bhs.data_len());
                Ok(Some(Frame::Header))
            }
            Stage::Data if self.data_left > 0 => {
                let n = bytes.len().min(self.data_left as usize);
                if n == 0 {
                    return Ok(None);
                }
                let (piece, rest) = bytes.split_at(n);
                *bytes = rest;
                self.data_taken(piece);
                Ok(Some(Frame::Data(piece)))
            }
            Stage::Data => {
                self.stage = Stage::Tail;
                self.next(bytes)
            }
            Stage::Tail => {
                let want = usize::from(self.tail_len - self.tail_have).min(bytes.len());
                let (piece, rest) = bytes.split_at(want);
                *bytes = rest;
                self.tail[usize::from(self.tail_have)..][..want].copy_from_slice(piece);
                self.tail_have += want as u8;
                if self.tail_have < self.tail_len {
                    return Ok(None);
                }
                self.stage = Stage::Header;
                self.have = 0;
                Ok(Some(Frame::End { digest_ok: self.data_digest_ok() }))
            }
        }
    }

    /// The header of the PDU in progress.
    pub(super) fn bhs(&self) -> Bhs {
        let bytes: [u8; BHS_LEN] = self.header[..BHS_LEN].try_into().expect("48 bytes are 48 bytes");
        zerocopy::transmute!(bytes)
    }

    /// The additional header segments of the PDU in progress.
    pub(super) fn ahs(&self) -> &[u8] {
        &self.header[BHS_LEN..][..usize::from(self.bhs().ahs_words) * 4]
    }

    /// Bytes of the data segment that are still to come.
    pub(super) const fn data_left(&self) -> usize {
        match self.stage {
            Stage::Data => self.data_left as usize,
            Stage::Header | Stage::Tail => 0,
        }
    }

    /// The next piece of the data segment was placed without coming through [`next`](Self::next).
    pub(super) fn data_taken(&mut self, piece: &[u8]) {
        let n = u32::try_from(piece.len()).ok().filter(|&n| n <= self.data_left);
        self.data_left -= n.expect("a piece is part of the data segment");
        if self.data_digest {
            self.crc = crc32c::crc32c_append(self.crc, piece);
        }
    }

    /// Whether the next byte is the first of a PDU.
    pub(super) const fn between_pdus(&self) -> bool {
        matches!(self.stage, Stage::Header) && self.have == 0
    }

    /// Whether data segments are covered by a digest.
    pub(super) const fn has_data_digest(&self) -> bool {
        self.data_digest
    }

    fn fill_header(&mut self, bytes: &mut &[u8], len: usize) -> bool {
        let want = len.saturating_sub(self.have).min(bytes.len());
        let (piece, rest) = bytes.split_at(want);
        *bytes = rest;
        self.header[self.have..][..want].copy_from_slice(piece);
        self.have += want;
        self.have >= len
    }

    fn check(&self, bhs: &Bhs) -> Result<(), FrameError> {
        if bhs.ahs_words != 0 && bhs.op() != opcode::SCSI_COMMAND {
            return Err(FrameError::UnexpectedAhs { opcode: bhs.op(), words: bhs.ahs_words });
        }
        if bhs.data_len() > self.max_data {
            return Err(FrameError::DataTooLong { len: bhs.data_len(), max: self.max_data });
        }
        Ok(())
    }

    const fn header_len(&self, bhs: &Bhs) -> usize {
        BHS_LEN + bhs.ahs_words as usize * 4 + if self.header_digest { DIGEST_LEN } else { 0 }
    }

    /// The header digest covers BHS and AHS (11.2.3).
    fn header_digest_ok(&self, bhs: &Bhs) -> bool {
        let covered = BHS_LEN + usize::from(bhs.ahs_words) * 4;
        self.header[covered..][..DIGEST_LEN] == digest(crc32c::crc32c(&self.header[..covered]))
    }

    fn begin_data(&mut self, len: u32) {
        self.stage = Stage::Data;
        self.data_left = len;
        self.crc = 0;
        self.tail_have = 0;
        // A data segment of length zero has neither padding nor digest (11.2.3).
        let digest = if self.data_digest && len > 0 { DIGEST_LEN } else { 0 };
        self.tail_len = (padding(len as usize) + digest) as u8;
    }

    /// The data digest covers data and padding (11.2.3).
    fn data_digest_ok(&self) -> bool {
        let pad = usize::from(self.tail_len) % 4;
        match &self.tail[pad..usize::from(self.tail_len)] {
            [] => true,
            received => digest(crc32c::crc32c_append(self.crc, &self.tail[..pad])) == received,
        }
    }
}

/// Padding after `len` bytes, up to a multiple of 4 (11.2.4).
pub(super) const fn padding(len: usize) -> usize {
    len.wrapping_neg() % 4
}

/// A CRC32C as it stands on the wire (13.1).
pub(super) const fn digest(crc: u32) -> [u8; DIGEST_LEN] {
    crc.to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nop_out(data: &[u8], digests: bool) -> Vec<u8> {
        let mut pdu = vec![0u8; BHS_LEN];
        pdu[7] = data.len() as u8;
        if digests {
            pdu.extend(digest(crc32c::crc32c(&pdu)));
        }
        let mut segment = data.to_vec();
        segment.resize(data.len() + padding(data.len()), 0);
        pdu.extend(&segment);
        if digests && !data.is_empty() {
            pdu.extend(digest(crc32c::crc32c(&segment)));
        }
        pdu
    }

    /// Feeds pieces of `step` bytes; gives the data and whether the digest was right, for each PDU.
    fn run(deframer: &mut Deframer, stream: &[u8], step: usize) -> Result<Vec<(Vec<u8>, bool)>, FrameError> {
        let mut pdus = Vec::new();
        let mut data = Vec::new();
        for mut piece in stream.chunks(step) {
            while let Some(frame) = deframer.next(&mut piece)? {
                match frame {
                    Frame::Header => {}
                    Frame::Data(bytes) => data.extend(bytes),
                    Frame::End { digest_ok } => pdus.push((std::mem::take(&mut data), digest_ok)),
                }
            }
            assert!(piece.is_empty());
        }
        Ok(pdus)
    }

    #[test]
    fn crc32c_test_vectors_of_rfc_7143_appendix_a4() {
        assert_eq!(digest(crc32c::crc32c(&[0; 32])), [0xaa, 0x36, 0x91, 0x8a]);
        assert_eq!(digest(crc32c::crc32c(&[0xff; 32])), [0x43, 0xab, 0xa8, 0x62]);
    }

    #[test]
    fn t03_framing_does_not_depend_on_segmentation() {
        for digests in [false, true] {
            let stream: Vec<u8> =
                [&b""[..], b"a", b"ab", b"abc", b"abcd", b"abcde"].iter().flat_map(|d| nop_out(d, digests)).collect();
            for step in 1..stream.len() {
                let mut deframer = Deframer::new();
                deframer.configure(digests, digests, 100);
                let pdus = run(&mut deframer, &stream, step).unwrap();
                let lengths: Vec<_> = pdus.iter().map(|(d, ok)| (d.len(), *ok)).collect();
                assert_eq!(lengths, (0..6).map(|n| (n, true)).collect::<Vec<_>>(), "step {step}");
                assert!(deframer.between_pdus());
            }
        }
    }

    #[test]
    fn p02_data_segments_are_bounded_before_any_of_them_is_read() {
        let mut deframer = Deframer::new();
        let mut header = [0u8; BHS_LEN];
        header[5..8].copy_from_slice(&[0, 0x20, 0x01]);
        assert_eq!(
            run(&mut deframer, &header, BHS_LEN).unwrap_err(),
            FrameError::DataTooLong { len: 8193, max: LOGIN_DATA_SEGMENT }
        );
    }

    #[test]
    fn p03_additional_headers_belong_to_scsi_commands_only() {
        let mut header = [0u8; BHS_LEN];
        header[4] = 255;
        let expected = FrameError::UnexpectedAhs { opcode: opcode::NOP_OUT, words: 255 };
        assert_eq!(run(&mut Deframer::new(), &header, BHS_LEN).unwrap_err(), expected);
        header[0] = opcode::SCSI_COMMAND;
        assert!(run(&mut Deframer::new(), &header, BHS_LEN).unwrap().is_empty(), "waits for the AHS");
    }

    #[test]
    fn p06_padding_need_not_be_zero_and_is_covered_by_the_digest() {
        let mut pdu = nop_out(b"a", true);
        let at = pdu.len() - 7;
        pdu[at] = 0x55;
        let mut deframer = Deframer::new();
        deframer.configure(true, true, 100);
        assert_eq!(run(&mut deframer, &pdu, 7).unwrap(), [(b"a".to_vec(), false)], "digest over other padding");
        let crc = digest(crc32c::crc32c(&pdu[52..56]));
        pdu[56..].copy_from_slice(&crc);
        assert_eq!(run(&mut deframer, &pdu, 7).unwrap(), [(b"a".to_vec(), true)]);
    }

    #[test]
    fn p07_a_wrong_header_digest_is_an_error() {
        let mut pdu = nop_out(b"", true);
        pdu[20] ^= 1;
        let mut deframer = Deframer::new();
        deframer.configure(true, true, 100);
        assert_eq!(run(&mut deframer, &pdu, 48).unwrap_err(), FrameError::HeaderDigest);
    }

    #[test]
    fn data_placed_directly_counts_and_is_covered_by_the_digest() {
        let pdu = nop_out(b"abcdef", true);
        let mut deframer = Deframer::new();
        deframer.configure(true, true, 100);
        let mut bytes = &pdu[..52];
        assert!(matches!(deframer.next(&mut bytes), Ok(Some(Frame::Header))));
        assert_eq!(deframer.data_left(), 6);
        deframer.data_taken(b"abcd");
        assert_eq!(run(&mut deframer, &pdu[56..], 3).unwrap(), [(b"ef".to_vec(), true)]);
    }
}
