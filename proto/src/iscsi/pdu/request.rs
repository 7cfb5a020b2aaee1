//! What initiators send.

use zerocopy::byteorder::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::opcode;

/// What all headers have in common (11.2.1).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct Bhs {
    /// Byte 0: I bit and opcode (11.2.1.1, 11.2.1.2).
    pub(crate) opcode: u8,
    /// Byte 1: F bit and flags of the opcode (11.2.1.3).
    pub(crate) flags: u8,
    /// Bytes 2 and 3: of the opcode.
    pub(crate) specific: [u8; 2],
    /// Byte 4: length of all Additional Header Segments in 4-byte words (11.2.1.5).
    pub(crate) ahs_words: u8,
    /// Bytes 5 to 7: DataSegmentLength in bytes, without padding (11.2.1.6).
    pub(crate) data_len: [u8; 3],
    /// Bytes 8 to 15: LUN (11.2.1.7) or of the opcode.
    pub(crate) lun: [u8; 8],
    /// Bytes 16 to 19: Initiator Task Tag (11.2.1.8).
    pub(crate) itt: U32,
    /// Bytes 20 to 23: of the opcode; Target Transfer Tag where there is one.
    pub(crate) ttt: U32,
    /// Bytes 24 to 27: CmdSN of a request (11.3.2), reserved in Data-Out.
    pub(crate) cmd_sn: U32,
    /// Bytes 28 to 31: ExpStatSN of a request (11.3.3).
    pub(crate) exp_stat_sn: U32,
    /// Bytes 32 to 47: of the opcode.
    pub(crate) rest: [u8; 16],
}

impl Bhs {
    /// The opcode without the I bit.
    pub(crate) const fn op(&self) -> u8 {
        self.opcode & opcode::MASK
    }

    /// The I bit: for immediate delivery.
    pub(crate) const fn immediate(&self) -> bool {
        self.opcode & opcode::IMMEDIATE != 0
    }

    /// DataSegmentLength.
    pub(crate) const fn data_len(&self) -> u32 {
        let [a, b, c] = self.data_len;
        u32::from_be_bytes([0, a, b, c])
    }
}

/// SCSI Command (11.3).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct ScsiCommand {
    /// Byte 0: I bit and 01h.
    pub(crate) opcode: u8,
    /// Byte 1: F, R, W in bits 7 to 5, task attribute in bits 2 to 0 (11.3.1).
    pub(crate) flags: u8,
    pub(crate) reserved: [u8; 2],
    /// Byte 4.
    pub(crate) ahs_words: u8,
    /// Bytes 5 to 7: length of the immediate data (11.3.6).
    pub(crate) data_len: [u8; 3],
    /// Bytes 8 to 15.
    pub(crate) lun: [u8; 8],
    /// Bytes 16 to 19.
    pub(crate) itt: U32,
    /// Bytes 20 to 23: Expected Data Transfer Length in bytes (11.3.4); of the write part if both R and W are set.
    pub(crate) expected_len: U32,
    /// Bytes 24 to 27 (11.3.2).
    pub(crate) cmd_sn: U32,
    /// Bytes 28 to 31 (11.3.3).
    pub(crate) exp_stat_sn: U32,
    /// Bytes 32 to 47: the CDB or its first 16 bytes (11.3.5).
    pub(crate) cdb: [u8; 16],
}

/// Task Management Function Request (11.5).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct TaskManagementRequest {
    /// Byte 0: I bit and 02h.
    pub(crate) opcode: u8,
    /// Byte 1: 1 in bit 7, function in bits 6 to 0 (11.5.1).
    pub(crate) function: u8,
    pub(crate) reserved: [u8; 2],
    /// Byte 4: 0.
    pub(crate) ahs_words: u8,
    /// Bytes 5 to 7: 0 (11.5.2).
    pub(crate) data_len: [u8; 3],
    /// Bytes 8 to 15 (11.5.3).
    pub(crate) lun: [u8; 8],
    /// Bytes 16 to 19.
    pub(crate) itt: U32,
    /// Bytes 20 to 23: Referenced Task Tag (11.5.4).
    pub(crate) referenced_tag: U32,
    /// Bytes 24 to 27.
    pub(crate) cmd_sn: U32,
    /// Bytes 28 to 31.
    pub(crate) exp_stat_sn: U32,
    /// Bytes 32 to 35 (11.5.5).
    pub(crate) ref_cmd_sn: U32,
    /// Bytes 36 to 39 (11.5.6): for TASK REASSIGN only.
    pub(crate) exp_data_sn: U32,
    pub(crate) reserved2: [u8; 8],
}

/// SCSI Data-Out (11.7).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct DataOut {
    /// Byte 0: 05h.
    pub(crate) opcode: u8,
    /// Byte 1: F in bit 7: the last of its sequence (11.7.1).
    pub(crate) flags: u8,
    pub(crate) reserved: [u8; 2],
    /// Byte 4: 0.
    pub(crate) ahs_words: u8,
    /// Bytes 5 to 7 (11.7.7).
    pub(crate) data_len: [u8; 3],
    /// Bytes 8 to 15: as in the R2T, if it answers one (11.7.4).
    pub(crate) lun: [u8; 8],
    /// Bytes 16 to 19.
    pub(crate) itt: U32,
    /// Bytes 20 to 23: as in the R2T; FFFFFFFFh for unsolicited data (11.7.4).
    pub(crate) ttt: U32,
    pub(crate) reserved2: [u8; 4],
    /// Bytes 28 to 31.
    pub(crate) exp_stat_sn: U32,
    pub(crate) reserved3: [u8; 4],
    /// Bytes 36 to 39: number within its sequence (11.7.5).
    pub(crate) data_sn: U32,
    /// Bytes 40 to 43: where the data belong in the whole transfer (11.7.6).
    pub(crate) offset: U32,
    pub(crate) reserved4: [u8; 4],
}

/// Text Request (11.10).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct TextRequest {
    /// Byte 0: I bit and 04h.
    pub(crate) opcode: u8,
    /// Byte 1: F in bit 7 (11.10.1), C in bit 6 (11.10.2).
    pub(crate) flags: u8,
    pub(crate) reserved: [u8; 2],
    /// Byte 4: 0.
    pub(crate) ahs_words: u8,
    /// Bytes 5 to 7.
    pub(crate) data_len: [u8; 3],
    /// Bytes 8 to 15: as in the Text Response that it continues.
    pub(crate) lun: [u8; 8],
    /// Bytes 16 to 19: the same in a whole sequence (11.10.3).
    pub(crate) itt: U32,
    /// Bytes 20 to 23: FFFFFFFFh starts anew, else as in the Text Response that it continues (11.10.4).
    pub(crate) ttt: U32,
    /// Bytes 24 to 27.
    pub(crate) cmd_sn: U32,
    /// Bytes 28 to 31.
    pub(crate) exp_stat_sn: U32,
    pub(crate) reserved2: [u8; 16],
}

/// Login Request (11.12).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct LoginRequest {
    /// Byte 0: 43h; logins are always immediate.
    pub(crate) opcode: u8,
    /// Byte 1: T in bit 7 (11.12.1), C in bit 6 (11.12.2), CSG in bits 3 and 2, NSG in bits 1 and 0 (11.12.3).
    pub(crate) flags: u8,
    /// Byte 2 (11.12.4.1).
    pub(crate) version_max: u8,
    /// Byte 3 (11.12.4.2).
    pub(crate) version_min: u8,
    /// Byte 4: 0.
    pub(crate) ahs_words: u8,
    /// Bytes 5 to 7.
    pub(crate) data_len: [u8; 3],
    /// Bytes 8 to 13 (11.12.5).
    pub(crate) isid: [u8; 6],
    /// Bytes 14 and 15: 0 for a new session (11.12.6).
    pub(crate) tsih: U16,
    /// Bytes 16 to 19: the same in the whole login.
    pub(crate) itt: U32,
    /// Bytes 20 and 21: connection ID (11.12.7).
    pub(crate) cid: U16,
    pub(crate) reserved: [u8; 2],
    /// Bytes 24 to 27: of the first command of the session (11.12.8).
    pub(crate) cmd_sn: U32,
    /// Bytes 28 to 31 (11.12.9).
    pub(crate) exp_stat_sn: U32,
    pub(crate) reserved2: [u8; 16],
}

/// Logout Request (11.14).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct LogoutRequest {
    /// Byte 0: I bit and 06h.
    pub(crate) opcode: u8,
    /// Byte 1: 1 in bit 7, reason code in bits 6 to 0 (11.14.1).
    pub(crate) reason: u8,
    pub(crate) reserved: [u8; 2],
    /// Byte 4: 0.
    pub(crate) ahs_words: u8,
    /// Bytes 5 to 7: 0.
    pub(crate) data_len: [u8; 3],
    pub(crate) reserved2: [u8; 8],
    /// Bytes 16 to 19.
    pub(crate) itt: U32,
    /// Bytes 20 and 21: which connection, unless the session is closed (11.14.3).
    pub(crate) cid: U16,
    pub(crate) reserved3: [u8; 2],
    /// Bytes 24 to 27.
    pub(crate) cmd_sn: U32,
    /// Bytes 28 to 31.
    pub(crate) exp_stat_sn: U32,
    pub(crate) reserved4: [u8; 16],
}

/// NOP-Out (11.18).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct NopOut {
    /// Byte 0: I bit and 00h.
    pub(crate) opcode: u8,
    /// Byte 1: 80h.
    pub(crate) flags: u8,
    pub(crate) reserved: [u8; 2],
    /// Byte 4: 0.
    pub(crate) ahs_words: u8,
    /// Bytes 5 to 7: length of the ping data (11.18.3).
    pub(crate) data_len: [u8; 3],
    /// Bytes 8 to 15: as in the NOP-In that it answers.
    pub(crate) lun: [u8; 8],
    /// Bytes 16 to 19: FFFFFFFFh if no answer is wanted (11.18.1).
    pub(crate) itt: U32,
    /// Bytes 20 to 23: as in the NOP-In that it answers, else FFFFFFFFh (11.18.2).
    pub(crate) ttt: U32,
    /// Bytes 24 to 27.
    pub(crate) cmd_sn: U32,
    /// Bytes 28 to 31.
    pub(crate) exp_stat_sn: U32,
    pub(crate) reserved2: [u8; 16],
}
