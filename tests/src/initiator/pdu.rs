//! The basic header segment (RFC 7143 11.2): 48 bytes, and what its fields are called.

/// Length of the basic header segment.
pub const HEADER: usize = 48;
/// The reserved value of task tags: no task (11.2.1.8, 11.7.4).
pub const NO_TAG: u32 = 0xffff_ffff;
/// Byte 0: immediate delivery.
pub const IMMEDIATE: u8 = 0x40;
/// Byte 1 of most PDUs: the last one of a sequence.
pub const FINAL: u8 = 0x80;

/// Opcodes (11.2.1.2).
pub mod opcode {
    #![allow(missing_docs, reason = "the names are the documentation")]
    pub const NOP_OUT: u8 = 0x00;
    pub const COMMAND: u8 = 0x01;
    pub const TASK_MANAGEMENT: u8 = 0x02;
    pub const LOGIN: u8 = 0x03;
    pub const TEXT: u8 = 0x04;
    pub const DATA_OUT: u8 = 0x05;
    pub const LOGOUT: u8 = 0x06;
    pub const SNACK: u8 = 0x10;
    pub const NOP_IN: u8 = 0x20;
    pub const RESPONSE: u8 = 0x21;
    pub const TASK_MANAGEMENT_RESPONSE: u8 = 0x22;
    pub const LOGIN_RESPONSE: u8 = 0x23;
    pub const TEXT_RESPONSE: u8 = 0x24;
    pub const DATA_IN: u8 = 0x25;
    pub const LOGOUT_RESPONSE: u8 = 0x26;
    pub const R2T: u8 = 0x31;
    pub const ASYNC: u8 = 0x32;
    pub const REJECT: u8 = 0x3f;
}

/// Byte offsets of 32-bit fields; several PDUs reuse a place under another name.
pub mod field {
    #![allow(missing_docs, reason = "the names are the documentation")]
    pub const TASK_TAG: usize = 16;
    /// Target Transfer Tag; Referenced Task Tag of a task management request; EDTL of a command.
    pub const TRANSFER_TAG: usize = 20;
    pub const EXPECTED_LENGTH: usize = 20;
    pub const REFERENCED_TAG: usize = 20;
    /// From the initiator.
    pub const CMD_SN: usize = 24;
    pub const EXP_STAT_SN: usize = 28;
    pub const REF_CMD_SN: usize = 32;
    /// From the target.
    pub const STAT_SN: usize = 24;
    pub const EXP_CMD_SN: usize = 28;
    pub const MAX_CMD_SN: usize = 32;
    /// DataSN, R2TSN or ExpDataSN.
    pub const DATA_SN: usize = 36;
    pub const BUFFER_OFFSET: usize = 40;
    pub const DESIRED_LENGTH: usize = 44;
    pub const RESIDUAL: usize = 44;
}

/// One basic header segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header(pub [u8; HEADER]);

impl Header {
    /// All zero but the opcode (with the I bit, if any) and byte 1.
    pub fn new(opcode: u8, flags: u8) -> Self {
        let mut bytes = [0; HEADER];
        bytes[0] = opcode;
        bytes[1] = flags;
        Self(bytes)
    }

    /// Without the I bit.
    pub fn opcode(&self) -> u8 {
        self.0[0] & 0x3f
    }

    /// Byte 1.
    pub fn flags(&self) -> u8 {
        self.0[1]
    }

    /// Whether F (T in login) is set.
    pub fn is_final(&self) -> bool {
        self.0[1] & FINAL != 0
    }

    /// TotalAHSLength in bytes.
    pub fn ahs_len(&self) -> usize {
        usize::from(self.0[4]) * 4
    }

    /// DataSegmentLength in bytes, without padding.
    pub fn data_len(&self) -> usize {
        usize::from(self.0[5]) << 16 | usize::from(self.0[6]) << 8 | usize::from(self.0[7])
    }

    /// Sets DataSegmentLength: 24 bits.
    pub fn set_data_len(&mut self, len: usize) {
        assert!(len < 1 << 24, "{len} bytes do not fit into DataSegmentLength");
        self.0[5..8].copy_from_slice(&(len as u32).to_be_bytes()[1..]);
    }

    /// Initiator Task Tag.
    pub fn tag(&self) -> u32 {
        self.get(field::TASK_TAG)
    }

    /// A 32-bit field; see [`field`].
    pub fn get(&self, at: usize) -> u32 {
        u32::from_be_bytes([self.0[at], self.0[at + 1], self.0[at + 2], self.0[at + 3]])
    }

    /// Sets a 32-bit field; see [`field`].
    pub fn set(&mut self, at: usize, value: u32) {
        self.0[at..at + 4].copy_from_slice(&value.to_be_bytes());
    }

    /// A header with one more 32-bit field set.
    #[must_use]
    pub fn with(mut self, at: usize, value: u32) -> Self {
        self.set(at, value);
        self
    }

    /// The LUN field as it stands (8 bytes at offset 8).
    pub fn lun(&self) -> [u8; 8] {
        let mut lun = [0; 8];
        lun.copy_from_slice(&self.0[8..16]);
        lun
    }

    /// Sets the LUN field.
    pub fn set_lun(&mut self, lun: [u8; 8]) {
        self.0[8..16].copy_from_slice(&lun);
    }
}

/// A LUN as the 8 bytes of the header: peripheral addressing below 256, flat above (SAM-5 4.7).
pub fn lun_bytes(lun: u16) -> [u8; 8] {
    let [high, low] = lun.to_be_bytes();
    assert!(high < 0x40, "LUN {lun} does not fit into flat addressing");
    let method = if lun < 256 { 0 } else { 0x40 };
    [method | high, low, 0, 0, 0, 0, 0, 0]
}

/// Bytes of padding after `len` bytes (11.1).
pub fn padding(len: usize) -> usize {
    len.wrapping_neg() & 3
}

/// Serial-number order of RFC 1982: whether `a` is at or before `b`.
pub fn at_or_before(a: u32, b: u32) -> bool {
    (b.wrapping_sub(a) as i32) >= 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_24_bit_length_and_the_padding_of_it() {
        let mut header = Header::new(opcode::TEXT, FINAL);
        header.set_data_len(0x01_0203);
        assert_eq!(header.0[4..8], [0, 1, 2, 3]);
        assert_eq!(header.data_len(), 0x01_0203);
        assert_eq!([0, 1, 2, 3, 4].map(padding), [0, 3, 2, 1, 0]);
    }

    #[test]
    fn luns_above_255_are_flat() {
        assert_eq!(lun_bytes(255)[..2], [0, 255]);
        assert_eq!(lun_bytes(256)[..2], [0x41, 0]);
    }

    #[test]
    fn serial_numbers_wrap() {
        assert!(at_or_before(0xffff_ffff, 0));
        assert!(!at_or_before(0, 0xffff_ffff));
        assert!(at_or_before(7, 7));
    }
}
