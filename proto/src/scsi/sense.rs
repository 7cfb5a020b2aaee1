//! Sense data (SPC-4 4.5): what went wrong, and its two encodings. Errors are always current, never deferred: a command is
//! answered when its work is done, so there is nothing left to report later.

use platter_block::Status;

use super::command::ScsiStatus;

/// Encoded sense data, fixed or descriptor format.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SenseData {
    bytes: [u8; Self::MAX],
    len: u8,
}

impl SenseData {
    /// Longest sense data made here.
    pub const MAX: usize = 32;

    /// The bytes of the SENSE DATA.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl std::fmt::Debug for SenseData {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:02x?}", self.as_bytes())
    }
}

/// What sense data say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Sense {
    key: Key,
    code: Code,
    information: Option<u64>,
    field: Option<Field>,
}

/// SENSE KEY.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum Key {
    NoSense = 0x0,
    NotReady = 0x2,
    MediumError = 0x3,
    HardwareError = 0x4,
    IllegalRequest = 0x5,
    UnitAttention = 0x6,
    DataProtect = 0x7,
    AbortedCommand = 0xb,
    Miscompare = 0xe,
}

/// ADDITIONAL SENSE CODE and its qualifier (SPC-4 annex F).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Code(pub(super) u8, pub(super) u8);

impl Code {
    pub(super) const NONE: Self = Self(0x00, 0x00);
    pub(super) const NOT_READY: Self = Self(0x04, 0x00);
    pub(super) const WRITE_ERROR: Self = Self(0x0c, 0x00);
    pub(super) const INVALID_FIELD_IN_COMMAND_INFORMATION_UNIT: Self = Self(0x0e, 0x03);
    pub(super) const UNRECOVERED_READ_ERROR: Self = Self(0x11, 0x00);
    pub(super) const PARAMETER_LIST_LENGTH_ERROR: Self = Self(0x1a, 0x00);
    pub(super) const MISCOMPARE_DURING_VERIFY: Self = Self(0x1d, 0x00);
    pub(super) const INVALID_OPERATION_CODE: Self = Self(0x20, 0x00);
    pub(super) const LBA_OUT_OF_RANGE: Self = Self(0x21, 0x00);
    pub(super) const INVALID_FIELD_IN_CDB: Self = Self(0x24, 0x00);
    pub(super) const LOGICAL_UNIT_NOT_SUPPORTED: Self = Self(0x25, 0x00);
    pub(super) const INVALID_FIELD_IN_PARAMETER_LIST: Self = Self(0x26, 0x00);
    pub(super) const WRITE_PROTECTED: Self = Self(0x27, 0x00);
    pub(super) const SOFTWARE_WRITE_PROTECTED: Self = Self(0x27, 0x02);
    pub(super) const SPACE_ALLOCATION_FAILED: Self = Self(0x27, 0x07);
    pub(super) const SAVING_PARAMETERS_NOT_SUPPORTED: Self = Self(0x39, 0x00);
    pub(super) const MEDIUM_NOT_PRESENT: Self = Self(0x3a, 0x00);
    pub(super) const INTERNAL_TARGET_FAILURE: Self = Self(0x44, 0x00);
    pub(super) const MEDIUM_REMOVAL_PREVENTED: Self = Self(0x53, 0x02);
}

/// Where the offending bytes are: the field pointer of ILLEGAL REQUEST (SPC-4 4.5.2.4.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Field {
    in_cdb: bool,
    byte: u16,
    /// Most significant bit of the field; `None` if it begins with the byte.
    bit: Option<u8>,
}

impl Sense {
    pub(super) const fn new(key: Key, code: Code) -> Self {
        Self { key, code, information: None, field: None }
    }

    pub(super) const fn illegal(code: Code) -> Self {
        Self::new(Key::IllegalRequest, code)
    }

    /// INVALID FIELD IN CDB, the field beginning with byte `byte`.
    pub(super) const fn cdb_byte(byte: u16) -> Self {
        let field = Some(Field { in_cdb: true, byte, bit: None });
        Self { field, ..Self::illegal(Code::INVALID_FIELD_IN_CDB) }
    }

    /// INVALID FIELD IN CDB, the field whose most significant bit is `bit` of byte `byte`.
    pub(super) const fn cdb_bit(byte: u16, bit: u8) -> Self {
        let field = Some(Field { in_cdb: true, byte, bit: Some(bit) });
        Self { field, ..Self::illegal(Code::INVALID_FIELD_IN_CDB) }
    }

    /// INVALID FIELD IN PARAMETER LIST, the field beginning with byte `byte`.
    pub(super) const fn list_byte(byte: u16) -> Self {
        let field = Some(Field { in_cdb: false, byte, bit: None });
        Self { field, ..Self::illegal(Code::INVALID_FIELD_IN_PARAMETER_LIST) }
    }

    /// With the INFORMATION field, for what the code gives it a meaning: an LBA, or a byte offset of a miscompare.
    pub(super) const fn with_information(self, information: u64) -> Self {
        Self { information: Some(information), ..self }
    }

    /// Fixed format (70h, SPC-4 4.5.3) or descriptor format (72h, SPC-4 4.5.2). Information that does not fit in the 32 bits
    /// of the fixed format is left out, as VALID then says.
    pub(super) fn encode(&self, descriptor: bool) -> SenseData {
        let mut bytes = [0; SenseData::MAX];
        let len = if descriptor { self.encode_descriptor(&mut bytes) } else { self.encode_fixed(&mut bytes) };
        SenseData { bytes, len }
    }

    fn encode_fixed(&self, bytes: &mut [u8; SenseData::MAX]) -> u8 {
        const LEN: u8 = 18;
        bytes[0] = 0x70;
        bytes[2] = self.key as u8;
        if let Some(information) = self.information.and_then(|i| u32::try_from(i).ok()) {
            bytes[0] |= 0x80;
            bytes[3..7].copy_from_slice(&information.to_be_bytes());
        }
        bytes[7] = LEN - 8;
        (bytes[12], bytes[13]) = (self.code.0, self.code.1);
        if let Some(field) = self.field {
            bytes[15..18].copy_from_slice(&field.encode());
        }
        LEN
    }

    fn encode_descriptor(&self, bytes: &mut [u8; SenseData::MAX]) -> u8 {
        bytes[0] = 0x72;
        bytes[1] = self.key as u8;
        (bytes[2], bytes[3]) = (self.code.0, self.code.1);
        let mut len = 8;
        if let Some(information) = self.information {
            bytes[len..len + 4].copy_from_slice(&[0x00, 0x0a, 0x80, 0x00]);
            bytes[len + 4..len + 12].copy_from_slice(&information.to_be_bytes());
            len += 12;
        }
        if let Some(field) = self.field {
            bytes[len..len + 4].copy_from_slice(&[0x02, 0x06, 0x00, 0x00]);
            bytes[len + 4..len + 7].copy_from_slice(&field.encode());
            len += 8;
        }
        bytes[7] = (len - 8) as u8;
        len as u8
    }
}

impl Field {
    /// The three bytes of sense key specific data.
    const fn encode(self) -> [u8; 3] {
        let [high, low] = self.byte.to_be_bytes();
        let bit = match self.bit {
            Some(bit) => 0x08 | bit,
            None => 0,
        };
        [0x80 | if self.in_cdb { 0x40 } else { 0 } | bit, high, low]
    }
}

/// How a command ends when it does not end GOOD.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fail {
    /// CHECK CONDITION with this sense data.
    Check(Sense),
    /// Another status, without sense data.
    Status(ScsiStatus),
}

impl From<Sense> for Fail {
    fn from(sense: Sense) -> Self {
        Self::Check(sense)
    }
}

impl Fail {
    /// The one place where the end of an op becomes a SCSI status. `wrote`: the op was one that changes the medium.
    ///
    /// A lost flush is a HARDWARE ERROR and not a MEDIUM ERROR, because initiators retry the latter on their own, and a
    /// retried flush that succeeds would hide the loss.
    pub(super) const fn of(status: Status, wrote: bool) -> Self {
        let (key, code) = match status {
            Status::Busy => return Self::Status(ScsiStatus::BUSY),
            Status::MediumError { lba } => {
                let code = if wrote { Code::WRITE_ERROR } else { Code::UNRECOVERED_READ_ERROR };
                return Self::Check(Sense::new(Key::MediumError, code).with_information(lba.0));
            }
            Status::MiscompareAt { offset } => return Self::miscompare(offset),
            Status::LbaOutOfRange => (Key::IllegalRequest, Code::LBA_OUT_OF_RANGE),
            Status::Unsupported => (Key::IllegalRequest, Code::INVALID_OPERATION_CODE),
            Status::WriteProtected => (Key::DataProtect, Code::WRITE_PROTECTED),
            Status::NoSpace => (Key::DataProtect, Code::SPACE_ALLOCATION_FAILED),
            Status::NotReady => (Key::NotReady, Code::NOT_READY),
            Status::Gone | Status::DurabilityLost => (Key::HardwareError, Code::INTERNAL_TARGET_FAILURE),
            // `Good` is not a failure; taking it for one loses nothing.
            Status::Aborted | Status::Good => (Key::AbortedCommand, Code::NONE),
        };
        Self::Check(Sense::new(key, code))
    }

    /// The data differ first at byte `offset` (SBC-3 5.2).
    pub(super) const fn miscompare(offset: u64) -> Self {
        Self::Check(Sense::new(Key::Miscompare, Code::MISCOMPARE_DURING_VERIFY).with_information(offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use platter_block::Lba;

    fn fixed(fail: Fail) -> Vec<u8> {
        let Fail::Check(sense) = fail else { panic!("{fail:?}") };
        sense.encode(false).as_bytes().to_vec()
    }

    #[test]
    fn fixed_format_spc4_4_5_3_valid_information_code_and_field_pointer() {
        let bytes = fixed(Fail::of(Status::MediumError { lba: Lba(0x1234) }, false));
        assert_eq!(bytes, [0xf0, 0, 3, 0, 0, 0x12, 0x34, 10, 0, 0, 0, 0, 0x11, 0, 0, 0, 0, 0]);
        let bytes = fixed(Sense::cdb_bit(1, 7).into());
        assert_eq!(bytes, [0x70, 0, 5, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x24, 0, 0, 0xcf, 0, 1]);
        let bytes = fixed(Sense::list_byte(300).into());
        assert_eq!(bytes[12..], [0x26, 0, 0, 0x80, 1, 44]);
    }

    #[test]
    fn fixed_format_leaves_out_information_of_more_than_32_bits() {
        let bytes = fixed(Fail::of(Status::MediumError { lba: Lba(1 << 32) }, true));
        assert_eq!(bytes[..8], [0x70, 0, 3, 0, 0, 0, 0, 10]);
    }

    #[test]
    fn descriptor_format_spc4_4_5_2_information_and_sense_key_specific_descriptors() {
        let Fail::Check(sense) = Fail::of(Status::MediumError { lba: Lba(1 << 32) }, true) else { panic!() };
        let bytes = sense.encode(true);
        assert_eq!(bytes.as_bytes(), [0x72, 3, 0x0c, 0, 0, 0, 0, 12, 0, 10, 0x80, 0, 0, 0, 0, 1, 0, 0, 0, 0]);
        let bytes = Sense::cdb_byte(10).encode(true);
        assert_eq!(bytes.as_bytes(), [0x72, 5, 0x24, 0, 0, 0, 0, 8, 2, 6, 0, 0, 0xc0, 0, 10, 0]);
        let both = Sense::cdb_byte(1).with_information(1).encode(true);
        assert_eq!(both.as_bytes().len(), 28);
        assert_eq!(both.as_bytes()[7], 20);
    }

    #[test]
    fn each_status_has_its_sense() {
        let cases = [
            (Status::DurabilityLost, true, [0x4, 0x44, 0x00]),
            (Status::Gone, false, [0x4, 0x44, 0x00]),
            (Status::MediumError { lba: Lba(0) }, true, [0x3, 0x0c, 0x00]),
            (Status::MediumError { lba: Lba(0) }, false, [0x3, 0x11, 0x00]),
            (Status::NoSpace, true, [0x7, 0x27, 0x07]),
            (Status::WriteProtected, true, [0x7, 0x27, 0x00]),
            (Status::NotReady, false, [0x2, 0x04, 0x00]),
            (Status::LbaOutOfRange, false, [0x5, 0x21, 0x00]),
            (Status::MiscompareAt { offset: 7 }, true, [0xe, 0x1d, 0x00]),
            (Status::Unsupported, true, [0x5, 0x20, 0x00]),
            (Status::Aborted, true, [0xb, 0x00, 0x00]),
        ];
        for (status, wrote, [key, asc, ascq]) in cases {
            let bytes = fixed(Fail::of(status, wrote));
            assert_eq!([bytes[2], bytes[12], bytes[13]], [key, asc, ascq], "{status:?}");
        }
        assert_eq!(Fail::of(Status::Busy, false), Fail::Status(ScsiStatus::BUSY));
    }
}
