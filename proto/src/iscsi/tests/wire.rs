//! The initiator's side of the wire, for tests: requests are made byte by byte, so that they can be wrong in any way.
//!
//! Offsets are those of the figures in RFC 7143 section 11.

/// Opcodes of requests.
pub(super) mod opcode {
    /// NOP-Out.
    pub(in super::super) const NOP_OUT: u8 = 0x00;
    /// SCSI Command.
    pub(in super::super) const SCSI_COMMAND: u8 = 0x01;
    /// Task Management Function Request.
    pub(in super::super) const TASK_MANAGEMENT: u8 = 0x02;
    /// Login Request.
    pub(in super::super) const LOGIN: u8 = 0x03;
    /// Text Request.
    pub(in super::super) const TEXT: u8 = 0x04;
    /// SCSI Data-Out.
    pub(in super::super) const DATA_OUT: u8 = 0x05;
    /// Logout Request.
    pub(in super::super) const LOGOUT: u8 = 0x06;
    /// SNACK Request.
    pub(in super::super) const SNACK: u8 = 0x10;
    /// NOP-In.
    pub(in super::super) const NOP_IN: u8 = 0x20;
    /// SCSI Response.
    pub(in super::super) const SCSI_RESPONSE: u8 = 0x21;
    /// Task Management Function Response.
    pub(in super::super) const TASK_MANAGEMENT_RESPONSE: u8 = 0x22;
    /// Login Response.
    pub(in super::super) const LOGIN_RESPONSE: u8 = 0x23;
    /// Text Response.
    pub(in super::super) const TEXT_RESPONSE: u8 = 0x24;
    /// SCSI Data-In.
    pub(in super::super) const DATA_IN: u8 = 0x25;
    /// Logout Response.
    pub(in super::super) const LOGOUT_RESPONSE: u8 = 0x26;
    /// Ready To Transfer.
    pub(in super::super) const R2T: u8 = 0x31;
    /// Asynchronous Message.
    pub(in super::super) const ASYNC: u8 = 0x32;
    /// Reject.
    pub(in super::super) const REJECT: u8 = 0x3f;
}

/// The reserved tag.
pub(super) const NO_TAG: u32 = 0xffff_ffff;

/// Which digests PDUs carry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Digests {
    /// CRC32C over headers.
    pub(super) header: bool,
    /// CRC32C over data.
    pub(super) data: bool,
}

/// A request being made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Request {
    /// Basic Header Segment. DataSegmentLength and TotalAHSLength are filled in by [`encode`](Self::encode) unless set.
    pub(super) header: [u8; 48],
    /// Additional header segments.
    pub(super) ahs: Vec<u8>,
    /// Data segment.
    pub(super) data: Vec<u8>,
    lengths_set: bool,
}

impl Request {
    /// A header with this opcode and the F bit, all else 0.
    pub(super) fn new(opcode: u8) -> Self {
        let mut header = [0; 48];
        header[0] = opcode;
        header[1] = 0x80;
        Self { header, ahs: Vec::new(), data: Vec::new(), lengths_set: false }
    }

    /// Sets one byte of the header.
    pub(super) fn byte(mut self, at: usize, value: u8) -> Self {
        self.header[at] = value;
        self.lengths_set |= (4..8).contains(&at);
        self
    }

    /// Sets two bytes of the header.
    pub(super) fn u16(mut self, at: usize, value: u16) -> Self {
        self.header[at..at + 2].copy_from_slice(&value.to_be_bytes());
        self
    }

    /// Sets four bytes of the header.
    pub(super) fn u32(mut self, at: usize, value: u32) -> Self {
        self.header[at..at + 4].copy_from_slice(&value.to_be_bytes());
        self
    }

    /// Initiator Task Tag.
    pub(super) fn itt(self, itt: u32) -> Self {
        self.u32(16, itt)
    }

    /// CmdSN.
    pub(super) fn cmd_sn(self, cmd_sn: u32) -> Self {
        self.u32(24, cmd_sn)
    }

    /// LUN by peripheral device addressing.
    pub(super) fn lun(self, lun: u8) -> Self {
        self.byte(9, lun)
    }

    /// The I bit.
    pub(super) fn immediate(mut self) -> Self {
        self.header[0] |= 0x40;
        self
    }

    /// Data segment.
    pub(super) fn data(mut self, data: impl Into<Vec<u8>>) -> Self {
        self.data = data.into();
        self
    }

    /// Additional header segments, padded.
    pub(super) fn ahs(mut self, ahs: impl Into<Vec<u8>>) -> Self {
        self.ahs = ahs.into();
        self
    }

    /// The bytes on the wire.
    pub(super) fn encode(&self, digests: Digests) -> Vec<u8> {
        let mut header = self.header.to_vec();
        if !self.lengths_set {
            header[4] = (self.ahs.len() / 4) as u8;
            header[5..8].copy_from_slice(&(self.data.len() as u32).to_be_bytes()[1..]);
        }
        header.extend_from_slice(&self.ahs);
        let mut wire = with_digest(header, digests.header);
        if !self.data.is_empty() {
            let mut data = self.data.clone();
            data.resize(data.len().next_multiple_of(4), 0);
            wire.extend(with_digest(data, digests.data));
        }
        wire
    }
}

/// A Login Request: T and stages in `flags` (byte 1), text as pairs.
pub(super) fn login(flags: u8, pairs: &[(&str, &str)]) -> Request {
    Request::new(opcode::LOGIN).immediate().byte(1, flags).data(text(pairs))
}

/// A SCSI Command: `flags` is byte 1 without F, which is set.
pub(super) fn command(itt: u32, cmd_sn: u32, flags: u8, expected_len: u32, cdb: &[u8]) -> Request {
    let mut request = Request::new(opcode::SCSI_COMMAND).itt(itt).cmd_sn(cmd_sn).u32(20, expected_len);
    request.header[1] = 0x80 | flags;
    request.header[32..32 + cdb.len().min(16)].copy_from_slice(&cdb[..cdb.len().min(16)]);
    request
}

/// A SCSI Data-Out.
pub(super) fn data_out(itt: u32, ttt: u32, data_sn: u32, offset: u32, data: &[u8], last: bool) -> Request {
    Request::new(opcode::DATA_OUT)
        .byte(1, if last { 0x80 } else { 0 })
        .itt(itt)
        .u32(20, ttt)
        .u32(36, data_sn)
        .u32(40, offset)
        .data(data)
}

/// A NOP-Out.
pub(super) fn nop_out(itt: u32, ttt: u32, cmd_sn: u32, data: &[u8]) -> Request {
    Request::new(opcode::NOP_OUT).itt(itt).u32(20, ttt).cmd_sn(cmd_sn).data(data)
}

/// An immediate Task Management Function Request.
pub(super) fn task_management(function: u8, itt: u32, referenced: u32, cmd_sn: u32, ref_cmd_sn: u32) -> Request {
    Request::new(opcode::TASK_MANAGEMENT)
        .immediate()
        .byte(1, 0x80 | function)
        .itt(itt)
        .u32(20, referenced)
        .cmd_sn(cmd_sn)
        .u32(32, ref_cmd_sn)
}

/// A Text Request with F=1.
pub(super) fn text_request(itt: u32, ttt: u32, cmd_sn: u32, pairs: &[(&str, &str)]) -> Request {
    Request::new(opcode::TEXT).itt(itt).u32(20, ttt).cmd_sn(cmd_sn).data(text(pairs))
}

/// An immediate Logout Request.
pub(super) fn logout(reason: u8, itt: u32, cid: u16, cmd_sn: u32) -> Request {
    Request::new(opcode::LOGOUT).immediate().byte(1, 0x80 | reason).itt(itt).u16(20, cid).cmd_sn(cmd_sn)
}

/// `key=value` pairs, each ended by a NUL.
pub(super) fn text(pairs: &[(&str, &str)]) -> Vec<u8> {
    pairs.iter().flat_map(|(key, value)| format!("{key}={value}\0").into_bytes()).collect()
}

/// A PDU of the target.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Pdu {
    /// Basic Header Segment.
    pub(super) header: [u8; 48],
    /// Data segment without padding.
    pub(super) data: Vec<u8>,
}

impl Pdu {
    /// Opcode.
    pub(super) fn opcode(&self) -> u8 {
        self.header[0]
    }

    /// Byte 1.
    pub(super) fn flags(&self) -> u8 {
        self.header[1]
    }

    /// Two bytes of the header.
    pub(super) fn u16(&self, at: usize) -> u16 {
        u16::from_be_bytes([self.header[at], self.header[at + 1]])
    }

    /// Four bytes of the header.
    pub(super) fn u32(&self, at: usize) -> u32 {
        u32::from(self.u16(at)) << 16 | u32::from(self.u16(at + 2))
    }

    /// Initiator Task Tag.
    pub(super) fn itt(&self) -> u32 {
        self.u32(16)
    }

    /// Target Transfer Tag.
    pub(super) fn ttt(&self) -> u32 {
        self.u32(20)
    }

    /// StatSN.
    pub(super) fn stat_sn(&self) -> u32 {
        self.u32(24)
    }

    /// ExpCmdSN.
    pub(super) fn exp_cmd_sn(&self) -> u32 {
        self.u32(28)
    }

    /// MaxCmdSN.
    pub(super) fn max_cmd_sn(&self) -> u32 {
        self.u32(32)
    }

    /// The text of the data segment, as pairs.
    pub(super) fn pairs(&self) -> Vec<(String, String)> {
        let text = String::from_utf8_lossy(&self.data);
        text.split_terminator('\0').filter_map(|p| p.split_once('=')).map(|(k, v)| (k.into(), v.into())).collect()
    }

    /// The value of a text key.
    pub(super) fn value(&self, key: &str) -> Option<String> {
        self.pairs().into_iter().find(|(k, _)| k == key).map(|(_, v)| v)
    }

    /// Sense key, additional sense code and qualifier of a SCSI Response with fixed format sense data.
    pub(super) fn sense(&self) -> Option<[u8; 3]> {
        let sense = self.data.get(2..)?;
        Some([sense.get(2)? & 0x0f, *sense.get(12)?, *sense.get(13)?])
    }
}

impl std::fmt::Debug for Pdu {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let op = match self.opcode() {
            opcode::NOP_IN => "NOP-In",
            opcode::SCSI_RESPONSE => "SCSI Response",
            opcode::TASK_MANAGEMENT_RESPONSE => "Task Management Response",
            opcode::LOGIN_RESPONSE => "Login Response",
            opcode::TEXT_RESPONSE => "Text Response",
            opcode::DATA_IN => "Data-In",
            opcode::LOGOUT_RESPONSE => "Logout Response",
            opcode::R2T => "R2T",
            opcode::ASYNC => "Async Message",
            opcode::REJECT => "Reject",
            _ => "?",
        };
        write!(f, "{op} flags {:02x} bytes 2-3 {:02x?} ", self.flags(), &self.header[2..4])?;
        write!(f, "ITT {:x} TTT {:x} StatSN {} ", self.itt(), self.ttt(), self.stat_sn())?;
        write!(f, "36.. {:x?} data {} bytes", &self.header[36..], self.data.len())
    }
}

/// Cuts what the target sends into PDUs.
#[derive(Debug, Default)]
pub(super) struct PduReader {
    bytes: Vec<u8>,
    /// What was negotiated; set it when the login is over.
    pub(super) digests: Digests,
}

impl PduReader {
    /// Adds bytes from the wire.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next complete PDU. Panics if a digest is wrong.
    pub(super) fn next_pdu(&mut self) -> Option<Pdu> {
        let header: [u8; 48] = self.bytes.get(..48)?.try_into().ok()?;
        let len = u32::from_be_bytes([0, header[5], header[6], header[7]]) as usize;
        let data_at = 48 + if self.digests.header { 4 } else { 0 };
        let padded = len.next_multiple_of(4);
        let end = data_at + padded + if self.digests.data && len > 0 { 4 } else { 0 };
        if self.bytes.len() < end {
            return None;
        }
        let wire: Vec<u8> = self.bytes.drain(..end).collect();
        if self.digests.header {
            assert_eq!(with_digest(wire[..48].to_vec(), true), wire[..52], "header digest");
        }
        let data = wire[data_at..data_at + padded].to_vec();
        if self.digests.data && len > 0 {
            assert_eq!(with_digest(data.clone(), true), wire[data_at..], "data digest");
        }
        assert!(data[len..].iter().all(|&b| b == 0), "padding is zero");
        Some(Pdu { header, data: data[..len].to_vec() })
    }

    /// Bytes that are no complete PDU yet.
    pub(super) fn rest(&self) -> &[u8] {
        &self.bytes
    }
}

fn with_digest(mut bytes: Vec<u8>, digest: bool) -> Vec<u8> {
    if digest {
        let crc = crc32c::crc32c(&bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
    }
    bytes
}
