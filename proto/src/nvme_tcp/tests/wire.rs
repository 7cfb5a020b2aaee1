//! The host's side of the wire, written from the figures and not from the code under test.

use std::collections::VecDeque;

/// Which digests a connection uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Digests {
    pub(super) header: bool,
    pub(super) data: bool,
}

pub(super) const NONE: Digests = Digests { header: false, data: false };
pub(super) const BOTH: Digests = Digests { header: true, data: true };

/// A PDU to be sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Request {
    /// HLEN bytes; FLAGS, PDO and PLEN are filled in.
    pub(super) header: Vec<u8>,
    pub(super) data: Vec<u8>,
    /// Bytes between header and data.
    pub(super) pad: usize,
}

impl Request {
    pub(super) fn new(kind: u8, hlen: usize) -> Self {
        let mut header = vec![0; hlen];
        (header[0], header[2]) = (kind, hlen as u8);
        Self { header, data: Vec::new(), pad: 0 }
    }

    pub(super) fn byte(mut self, at: usize, value: u8) -> Self {
        self.header[at] = value;
        self
    }

    pub(super) fn u16(mut self, at: usize, value: u16) -> Self {
        self.header[at..at + 2].copy_from_slice(&value.to_le_bytes());
        self
    }

    pub(super) fn u32(mut self, at: usize, value: u32) -> Self {
        self.header[at..at + 4].copy_from_slice(&value.to_le_bytes());
        self
    }

    pub(super) fn u64(mut self, at: usize, value: u64) -> Self {
        self.header[at..at + 8].copy_from_slice(&value.to_le_bytes());
        self
    }

    pub(super) fn data(mut self, data: &[u8]) -> Self {
        self.data = data.to_vec();
        self
    }

    pub(super) fn pad(mut self, pad: usize) -> Self {
        self.pad = pad;
        self
    }

    /// ICReq and H2CTermReq never have digests.
    pub(super) fn encode(&self, digests: Digests) -> Vec<u8> {
        let plain = self.header[0] < 4;
        let digests = if plain { NONE } else { digests };
        let mut header = self.header.clone();
        let header_end = header.len() + if digests.header { 4 } else { 0 };
        let mut plen = header_end;
        header[1] |= u8::from(digests.header);
        if !self.data.is_empty() {
            if !plain {
                header[3] = (header_end + self.pad) as u8;
            }
            plen += self.pad + self.data.len();
            if digests.data {
                header[1] |= 2;
                plen += 4;
            }
        }
        header[4..8].copy_from_slice(&(plen as u32).to_le_bytes());
        let mut wire = header;
        if digests.header {
            wire.extend(crc32c::crc32c(&wire).to_le_bytes());
        }
        if !self.data.is_empty() {
            wire.resize(wire.len() + self.pad, 0xa5);
            wire.extend(&self.data);
            if digests.data {
                wire.extend(crc32c::crc32c(&self.data).to_le_bytes());
            }
        }
        wire
    }
}

pub(super) fn ic_req(digests: Digests, hpda: u8, maxr2t: u32) -> Request {
    let dgst = u8::from(digests.header) | u8::from(digests.data) << 1;
    Request::new(0, 128).byte(10, hpda).byte(11, dgst).u32(12, maxr2t)
}

/// A command capsule. Its SGL is a transport data block of no bytes.
pub(super) fn command(opcode: u8, cid: u16, nsid: u32) -> Request {
    Request::new(4, 72).byte(8, opcode).byte(9, 0x40).u16(10, cid).u32(12, nsid).byte(8 + 39, 0x5a)
}

impl Request {
    /// The data move in PDUs of their own.
    pub(super) fn transport(self, len: u32) -> Self {
        self.u32(8 + 32, len).byte(8 + 39, 0x5a)
    }

    /// The data are in the capsule.
    pub(super) fn in_capsule(self, data: &[u8]) -> Self {
        self.u32(8 + 32, data.len() as u32).byte(8 + 39, 0x01).data(data)
    }

    pub(super) fn cdw(self, n: usize, value: u32) -> Self {
        self.u32(8 + 4 * n, value)
    }
}

pub(super) fn h2c_data(cid: u16, ttag: u16, offset: u32, data: &[u8], last: bool) -> Request {
    let header = Request::new(6, 24).byte(1, if last { 4 } else { 0 });
    header.u16(8, cid).u16(10, ttag).u32(12, offset).u32(16, data.len() as u32).data(data)
}

/// A PDU that came.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Pdu {
    pub(super) header: Vec<u8>,
    pub(super) data: Vec<u8>,
    /// Bytes between header and data.
    pub(super) pad: Vec<u8>,
}

impl Pdu {
    pub(super) fn kind(&self) -> u8 {
        self.header[0]
    }

    pub(super) fn flags(&self) -> u8 {
        self.header[1]
    }

    pub(super) fn u16(&self, at: usize) -> u16 {
        u16::from_le_bytes([self.header[at], self.header[at + 1]])
    }

    pub(super) fn u32(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.header[at..at + 4].try_into().unwrap())
    }

    /// CID of a CapsuleResp.
    pub(super) fn cid(&self) -> u16 {
        self.u16(8 + 12)
    }

    /// Status of a CapsuleResp, with DNR in bit 14.
    pub(super) fn status(&self) -> u16 {
        assert_eq!(self.kind(), 5, "{self:?}");
        self.u16(8 + 14) >> 1
    }

    /// FES and FEI of a C2HTermReq.
    pub(super) fn fatal(&self) -> (u16, u32) {
        assert_eq!(self.kind(), 3, "{self:?}");
        (self.u16(8), self.u32(10))
    }
}

/// Cuts a stream into PDUs, and checks what has to hold for all of them.
#[derive(Debug, Default)]
pub(super) struct PduReader {
    bytes: VecDeque<u8>,
    pub(super) digests: Digests,
    /// Data start at a multiple of this.
    pub(super) alignment: usize,
}

impl PduReader {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(super) fn next_pdu(&mut self) -> Option<Pdu> {
        let bytes = self.bytes.make_contiguous();
        let plen = u32::from_le_bytes(bytes.get(4..8)?.try_into().unwrap()) as usize;
        let pdu = bytes.get(..plen)?.to_vec();
        self.bytes.drain(..plen);
        let (kind, flags, hlen, pdo) = (pdu[0], pdu[1], usize::from(pdu[2]), usize::from(pdu[3]));
        assert_eq!(hlen, if kind == 1 { 128 } else { 24 }, "{pdu:02x?}");
        if kind == 3 {
            assert!((24..=152).contains(&plen) && flags == 0 && pdo == 0, "{pdu:02x?}");
            return Some(Pdu { header: pdu[..24].to_vec(), data: pdu[24..].to_vec(), pad: Vec::new() });
        }
        let digests = if kind == 1 { NONE } else { self.digests };
        assert_eq!(flags & 1 != 0, digests.header, "{pdu:02x?}");
        let mut header_end = hlen;
        if digests.header {
            header_end += 4;
            assert_eq!(pdu[hlen..header_end], crc32c::crc32c(&pdu[..hlen]).to_le_bytes(), "header digest");
        }
        let header = pdu[..hlen].to_vec();
        if kind != 7 {
            assert_eq!((flags & !1, pdo, plen), (0, 0, header_end), "{pdu:02x?}");
            return Some(Pdu { header, data: Vec::new(), pad: Vec::new() });
        }
        assert!(pdo >= header_end && pdo % self.alignment == 0, "{pdu:02x?}");
        assert_eq!(flags & 2 != 0, digests.data, "{pdu:02x?}");
        let end = plen - if digests.data { 4 } else { 0 };
        let data = pdu[pdo..end].to_vec();
        if digests.data {
            assert_eq!(pdu[end..], crc32c::crc32c(&data).to_le_bytes(), "data digest");
        }
        Some(Pdu { header, data, pad: pdu[header_end..pdo].to_vec() })
    }
}
