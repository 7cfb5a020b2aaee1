//! Framing: a byte stream cut anywhere becomes headers, pieces of data, and ends of PDUs (PDU Definitions).
//!
//! Data are not collected here: each piece is handed on as it comes, so that it can be placed where it belongs.
//! The fields of a common header are checked in their order, so the lowest wrong one is reported.

use zerocopy::FromBytes;

use super::pdu::{COMMON_LEN, CommonHeader, DIGEST_LEN, MAX_HEADER_LEN, digest, flag, pdu_type};
use super::term::{Fatal, Fes};

/// The longest H2CTermReq.
const MAX_TERM_REQ: u32 = 152;

/// What the next bytes are.
#[derive(Debug)]
pub(super) enum Frame<'a> {
    /// A header is complete and its digest is right: see [`Deframer::header`].
    Header,
    /// A piece of the data, the next in order.
    Data(&'a [u8]),
    /// The PDU is complete.
    End {
        /// The data digest is right, or there is none.
        digest_ok: bool,
    },
}

/// How the peer is broken. The connection ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum FrameError {
    /// The host is told.
    Fatal(Fatal),
    /// It is an H2CTermReq that is wrong: the host is not told.
    BadTermReq,
}

impl From<Fatal> for FrameError {
    fn from(fatal: Fatal) -> Self {
        Self::Fatal(fatal)
    }
}

/// What may come now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Expects {
    /// ICReq has come: commands and data may come, and it may not.
    pub(super) initialized: bool,
    /// Headers have digests.
    pub(super) header_digest: bool,
    /// Data have digests.
    pub(super) data_digest: bool,
    /// The most data in a command capsule.
    pub(super) max_capsule_data: u32,
}

/// The parts of a PDU, in wire order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Layout {
    hlen: u8,
    header_digest: bool,
    pad: u8,
    data: u32,
    data_digest: bool,
}

/// The receiving end of one connection's framing.
#[derive(Debug)]
pub(super) struct Deframer {
    /// Header and header digest.
    header: [u8; MAX_HEADER_LEN + DIGEST_LEN],
    have: usize,
    stage: Stage,
    layout: Layout,
    /// Bytes of padding still to come.
    pad_left: u8,
    /// Bytes of data still to come.
    data_left: u32,
    /// CRC32C over the data so far.
    crc: u32,
    data_digest: [u8; DIGEST_LEN],
    data_digest_have: u8,
    expects: Expects,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Common,
    Header,
    Pad,
    Data,
    Digest,
}

impl Deframer {
    pub(super) fn new(expects: Expects) -> Self {
        Self {
            header: [0; MAX_HEADER_LEN + DIGEST_LEN],
            have: 0,
            stage: Stage::Common,
            layout: Layout::default(),
            pad_left: 0,
            data_left: 0,
            crc: 0,
            data_digest: [0; DIGEST_LEN],
            data_digest_have: 0,
            expects,
        }
    }

    /// From the next PDU on.
    pub(super) const fn expect(&mut self, expects: Expects) {
        self.expects = expects;
    }

    pub(super) const fn expects(&self) -> Expects {
        self.expects
    }

    /// Takes from the front of `bytes`. `None`: all of them are used, and more are needed.
    pub(super) fn next<'a>(&mut self, bytes: &mut &'a [u8]) -> Result<Option<Frame<'a>>, FrameError> {
        if self.stage == Stage::Common {
            if !self.fill_header(bytes, COMMON_LEN) {
                return Ok(None);
            }
            self.layout = check(&self.common(), &self.expects)?;
            self.stage = Stage::Header;
        }
        if self.stage == Stage::Header {
            let hlen = usize::from(self.layout.hlen);
            let digest_len = if self.layout.header_digest { DIGEST_LEN } else { 0 };
            if !self.fill_header(bytes, hlen + digest_len) {
                return Ok(None);
            }
            self.check_header_digest(hlen)?;
            self.begin_data();
            return Ok(Some(Frame::Header));
        }
        if self.stage == Stage::Pad {
            self.pad_left -= take(bytes, self.pad_left.into()).len() as u8;
            if self.pad_left > 0 {
                return Ok(None);
            }
            self.stage = Stage::Data;
        }
        if self.stage == Stage::Data {
            if self.data_left > 0 {
                let piece = take(bytes, self.data_left as usize);
                self.data_taken(piece);
                return Ok((!piece.is_empty()).then_some(Frame::Data(piece)));
            }
            self.stage = Stage::Digest;
        }
        if self.layout.data_digest {
            let have = usize::from(self.data_digest_have);
            let piece = take(bytes, DIGEST_LEN - have);
            self.data_digest[have..have + piece.len()].copy_from_slice(piece);
            self.data_digest_have += piece.len() as u8;
            if usize::from(self.data_digest_have) < DIGEST_LEN {
                return Ok(None);
            }
        }
        self.stage = Stage::Common;
        self.have = 0;
        Ok(Some(Frame::End { digest_ok: !self.layout.data_digest || self.data_digest == digest(self.crc) }))
    }

    /// As much of the header of the PDU in progress as has come.
    pub(super) fn header(&self) -> &[u8] {
        let hlen = if self.stage == Stage::Common { COMMON_LEN } else { usize::from(self.layout.hlen) };
        &self.header[..self.have.min(hlen)]
    }

    /// The header of the PDU in progress, which is complete.
    ///
    /// # Panics
    /// If it has not this length.
    pub(super) fn header_as<T: FromBytes>(&self) -> T {
        T::read_from_bytes(self.header()).expect("the length of a header was checked against its type")
    }

    /// The common header of the PDU in progress.
    pub(super) fn common(&self) -> CommonHeader {
        let bytes: [u8; COMMON_LEN] = self.header[..COMMON_LEN].try_into().expect("8 bytes are 8 bytes");
        zerocopy::transmute!(bytes)
    }

    /// Bytes of data in the PDU in progress, whose header is complete.
    pub(super) const fn data_len(&self) -> u32 {
        self.layout.data
    }

    /// Bytes of data that come next.
    pub(super) const fn data_left(&self) -> usize {
        match self.stage {
            Stage::Data => self.data_left as usize,
            Stage::Common | Stage::Header | Stage::Pad | Stage::Digest => 0,
        }
    }

    /// The next piece of data was placed without coming through [`next`](Self::next).
    pub(super) fn data_taken(&mut self, piece: &[u8]) {
        let n = u32::try_from(piece.len()).ok().filter(|&n| n <= self.data_left);
        self.data_left -= n.expect("a piece is part of the data");
        if self.layout.data_digest {
            self.crc = crc32c::crc32c_append(self.crc, piece);
        }
    }

    /// Whether the next byte is the first of a PDU.
    pub(super) const fn between_pdus(&self) -> bool {
        matches!(self.stage, Stage::Common) && self.have == 0
    }

    fn fill_header(&mut self, bytes: &mut &[u8], len: usize) -> bool {
        let piece = take(bytes, len - self.have);
        self.header[self.have..self.have + piece.len()].copy_from_slice(piece);
        self.have += piece.len();
        self.have == len
    }

    /// The header digest covers the header, common part included.
    fn check_header_digest(&self, hlen: usize) -> Result<(), Fatal> {
        if !self.layout.header_digest {
            return Ok(());
        }
        let came: [u8; DIGEST_LEN] = self.header[hlen..hlen + DIGEST_LEN].try_into().expect("4 bytes are 4 bytes");
        if came == digest(crc32c::crc32c(&self.header[..hlen])) {
            return Ok(());
        }
        let why = "the header digest is wrong".to_owned();
        Err(Fatal { fes: Fes::HeaderDigest, fei: u32::from_le_bytes(came), why })
    }

    const fn begin_data(&mut self) {
        self.pad_left = self.layout.pad;
        self.data_left = self.layout.data;
        self.crc = 0;
        self.data_digest_have = 0;
        self.stage = if self.pad_left > 0 { Stage::Pad } else { Stage::Data };
    }
}

/// Checks a common header, field by field.
fn check(common: &CommonHeader, expects: &Expects) -> Result<Layout, FrameError> {
    let &CommonHeader { pdu_type: kind, flags, hlen, pdo, plen } = common;
    let plen = plen.get();
    let (known_flags, right_hlen) = match kind {
        pdu_type::IC_REQ if expects.initialized => return Err(Fatal::of(Fes::Sequence, "a second ICReq").into()),
        pdu_type::IC_REQ => (0, 128),
        pdu_type::H2C_TERM_REQ if hlen == 24 && (24..=MAX_TERM_REQ).contains(&plen) => {
            return Ok(Layout { hlen, data: plen - 24, ..Layout::default() });
        }
        pdu_type::H2C_TERM_REQ => return Err(FrameError::BadTermReq),
        pdu_type::CAPSULE_CMD | pdu_type::H2C_DATA if !expects.initialized => {
            return Err(Fatal::of(Fes::Sequence, format_args!("PDU type {kind:#04x} before ICReq")).into());
        }
        pdu_type::CAPSULE_CMD => (flag::HEADER_DIGEST | flag::DATA_DIGEST, 72),
        pdu_type::H2C_DATA => (flag::HEADER_DIGEST | flag::DATA_DIGEST | flag::LAST, 24),
        _ => return Err(Fatal::field(0, format_args!("PDU type {kind:#04x}")).into()),
    };
    let has_digests = kind != pdu_type::IC_REQ;
    let header_digest = expects.header_digest && has_digests;
    let header_end = u32::from(right_hlen) + if header_digest { DIGEST_LEN as u32 } else { 0 };
    let data_digest = flags & flag::DATA_DIGEST != 0;
    let lacks_digest = expects.data_digest && has_digests && plen > header_end && !data_digest;
    if flags & !known_flags != 0
        || (flags & flag::HEADER_DIGEST != 0) != header_digest
        || (data_digest && !expects.data_digest)
        || lacks_digest
    {
        return Err(Fatal::field(1, format_args!("FLAGS {flags:#04x} of PDU type {kind:#04x}")).into());
    }
    if hlen != right_hlen {
        return Err(Fatal::field(2, format_args!("HLEN {hlen} of PDU type {kind:#04x}")).into());
    }
    let bad_plen = || Err(Fatal::field(4, format_args!("PLEN {plen} of PDU type {kind:#04x}")).into());
    if kind == pdu_type::IC_REQ {
        // PDO is reserved there.
        return if plen == 128 { Ok(Layout { hlen, ..Layout::default() }) } else { bad_plen() };
    }
    // We ask for no more alignment than to 4 bytes (CPDA 0). What is wrong for every PLEN comes before what is for this one.
    let is_aligned = pdo == 0 || (u32::from(pdo) >= header_end && pdo % 4 == 0);
    let is_inside = plen < header_end || u32::from(pdo) <= plen && (pdo != 0 || plen == header_end);
    if !is_aligned || !is_inside {
        return Err(Fatal::field(3, format_args!("PDO {pdo} with HLEN {hlen} and PLEN {plen}")).into());
    }
    let start = if pdo == 0 { header_end } else { pdo.into() };
    let digest_len = if data_digest { DIGEST_LEN as u32 } else { 0 };
    // A data digest is of at least one byte.
    let Some(data) = plen.checked_sub(start + digest_len).filter(|&d| d > 0 || !data_digest) else { return bad_plen() };
    if kind == pdu_type::CAPSULE_CMD && data > expects.max_capsule_data {
        return bad_plen();
    }
    Ok(Layout { hlen, header_digest, pad: (start - header_end) as u8, data, data_digest })
}

/// Takes up to `n` bytes from the front.
fn take<'a>(bytes: &mut &'a [u8], n: usize) -> &'a [u8] {
    let (piece, rest) = bytes.split_at(n.min(bytes.len()));
    *bytes = rest;
    piece
}
