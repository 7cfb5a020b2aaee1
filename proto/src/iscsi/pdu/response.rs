//! What targets send. Every header starts with the opcode, without the I bit; TotalAHSLength is always 0.
//! `StatSn`, ExpCmdSN and MaxCmdSN are filled in when a PDU is queued.

use zerocopy::byteorder::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// SCSI Response (11.4).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct ScsiResponse {
    /// Byte 0: 21h.
    pub(crate) opcode: u8,
    /// Byte 1: 1 in bit 7, o, u, O, U in bits 4 to 1 (11.4.1).
    pub(crate) flags: u8,
    /// Byte 2: 00h, command completed at target (11.4.3).
    pub(crate) response: u8,
    /// Byte 3: SCSI status (11.4.2).
    pub(crate) status: u8,
    /// Bytes 4 to 7: length of the sense data and their prefix (11.4.7).
    pub(crate) lengths: U32,
    pub(crate) reserved: [u8; 8],
    /// Bytes 16 to 19.
    pub(crate) itt: U32,
    /// Bytes 20 to 23: SNACK Tag (11.4.4), not used at error recovery level 0.
    pub(crate) snack_tag: U32,
    /// Bytes 24 to 27 (11.4.9).
    pub(crate) stat_sn: U32,
    /// Bytes 28 to 31 (11.4.10).
    pub(crate) exp_cmd_sn: U32,
    /// Bytes 32 to 35 (11.4.11).
    pub(crate) max_cmd_sn: U32,
    /// Bytes 36 to 39: Data-In PDUs sent for the command (11.4.8).
    pub(crate) exp_data_sn: U32,
    /// Bytes 40 to 43: for bidirectional commands (11.4.6).
    pub(crate) bidi_residual: U32,
    /// Bytes 44 to 47 (11.4.5).
    pub(crate) residual: U32,
}

/// Task Management Function Response (11.6).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct TaskManagementResponse {
    /// Byte 0: 22h.
    pub(crate) opcode: u8,
    /// Byte 1: 80h.
    pub(crate) flags: u8,
    /// Byte 2 (11.6.1).
    pub(crate) response: u8,
    pub(crate) reserved: u8,
    /// Bytes 4 to 7: 0.
    pub(crate) lengths: U32,
    pub(crate) reserved2: [u8; 8],
    /// Bytes 16 to 19.
    pub(crate) itt: U32,
    pub(crate) reserved3: [u8; 4],
    /// Bytes 24 to 27.
    pub(crate) stat_sn: U32,
    /// Bytes 28 to 31.
    pub(crate) exp_cmd_sn: U32,
    /// Bytes 32 to 35.
    pub(crate) max_cmd_sn: U32,
    pub(crate) reserved4: [u8; 12],
}

/// SCSI Data-In (11.7).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct DataIn {
    /// Byte 0: 25h.
    pub(crate) opcode: u8,
    /// Byte 1: F in bit 7, A in bit 6, O, U in bits 2 and 1, S in bit 0 (11.7.3).
    pub(crate) flags: u8,
    pub(crate) reserved: u8,
    /// Byte 3: SCSI status, if S is set.
    pub(crate) status: u8,
    /// Bytes 4 to 7: DataSegmentLength.
    pub(crate) lengths: U32,
    /// Bytes 8 to 15: not used without the A bit (11.7.4).
    pub(crate) lun: [u8; 8],
    /// Bytes 16 to 19.
    pub(crate) itt: U32,
    /// Bytes 20 to 23: FFFFFFFFh without the A bit (11.7.4).
    pub(crate) ttt: U32,
    /// Bytes 24 to 27: if S is set.
    pub(crate) stat_sn: U32,
    /// Bytes 28 to 31.
    pub(crate) exp_cmd_sn: U32,
    /// Bytes 32 to 35.
    pub(crate) max_cmd_sn: U32,
    /// Bytes 36 to 39: number within the command (11.7.5).
    pub(crate) data_sn: U32,
    /// Bytes 40 to 43: where the data belong in the whole transfer (11.7.6).
    pub(crate) offset: U32,
    /// Bytes 44 to 47: if S is set (11.4.5).
    pub(crate) residual: U32,
}

/// Ready To Transfer (11.8).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct R2t {
    /// Byte 0: 31h.
    pub(crate) opcode: u8,
    /// Byte 1: 80h.
    pub(crate) flags: u8,
    pub(crate) reserved: [u8; 2],
    /// Bytes 4 to 7: 0.
    pub(crate) lengths: U32,
    /// Bytes 8 to 15: of the command.
    pub(crate) lun: [u8; 8],
    /// Bytes 16 to 19.
    pub(crate) itt: U32,
    /// Bytes 20 to 23 (11.8.5).
    pub(crate) ttt: U32,
    /// Bytes 24 to 27: the next one; not used up by this PDU (11.8.3).
    pub(crate) stat_sn: U32,
    /// Bytes 28 to 31.
    pub(crate) exp_cmd_sn: U32,
    /// Bytes 32 to 35.
    pub(crate) max_cmd_sn: U32,
    /// Bytes 36 to 39: number within the command (11.8.2).
    pub(crate) r2t_sn: U32,
    /// Bytes 40 to 43 (11.8.4).
    pub(crate) offset: U32,
    /// Bytes 44 to 47: Desired Data Transfer Length (11.8.4).
    pub(crate) desired_len: U32,
}

/// Asynchronous Message (11.9).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct AsyncMessage {
    /// Byte 0: 32h.
    pub(crate) opcode: u8,
    /// Byte 1: 80h.
    pub(crate) flags: u8,
    pub(crate) reserved: [u8; 2],
    /// Bytes 4 to 7: 0.
    pub(crate) lengths: U32,
    /// Bytes 8 to 15: for SCSI events only (11.9.3).
    pub(crate) lun: [u8; 8],
    /// Bytes 16 to 19: FFFFFFFFh.
    pub(crate) itt: U32,
    pub(crate) reserved2: [u8; 4],
    /// Bytes 24 to 27.
    pub(crate) stat_sn: U32,
    /// Bytes 28 to 31.
    pub(crate) exp_cmd_sn: U32,
    /// Bytes 32 to 35.
    pub(crate) max_cmd_sn: U32,
    /// Byte 36 (11.9.1).
    pub(crate) event: u8,
    /// Byte 37: for vendors (11.9.2).
    pub(crate) vendor_code: u8,
    /// Bytes 38 to 43: Parameter1 to Parameter3, of the event (11.9.1).
    pub(crate) parameters: [U16; 3],
    pub(crate) reserved3: [u8; 4],
}

/// Text Response (11.11).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct TextResponse {
    /// Byte 0: 24h.
    pub(crate) opcode: u8,
    /// Byte 1: F in bit 7 (11.11.1), C in bit 6 (11.11.2).
    pub(crate) flags: u8,
    pub(crate) reserved: [u8; 2],
    /// Bytes 4 to 7: DataSegmentLength.
    pub(crate) lengths: U32,
    /// Bytes 8 to 15: 0, to be copied into the next request.
    pub(crate) lun: [u8; 8],
    /// Bytes 16 to 19.
    pub(crate) itt: U32,
    /// Bytes 20 to 23: FFFFFFFFh with the last one (11.11.4).
    pub(crate) ttt: U32,
    /// Bytes 24 to 27.
    pub(crate) stat_sn: U32,
    /// Bytes 28 to 31.
    pub(crate) exp_cmd_sn: U32,
    /// Bytes 32 to 35.
    pub(crate) max_cmd_sn: U32,
    pub(crate) reserved2: [u8; 12],
}

/// Login Response (11.13).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct LoginResponse {
    /// Byte 0: 23h.
    pub(crate) opcode: u8,
    /// Byte 1: T in bit 7 (11.13.6), C in bit 6 (11.13.7), CSG in bits 3 and 2, NSG in bits 1 and 0.
    pub(crate) flags: u8,
    /// Byte 2: 00h (11.13.1).
    pub(crate) version_max: u8,
    /// Byte 3: 00h (11.13.2).
    pub(crate) version_active: u8,
    /// Bytes 4 to 7: DataSegmentLength.
    pub(crate) lengths: U32,
    /// Bytes 8 to 13: as in the request.
    pub(crate) isid: [u8; 6],
    /// Bytes 14 and 15: as in the request, but a new session's in the final response (11.13.3).
    pub(crate) tsih: U16,
    /// Bytes 16 to 19.
    pub(crate) itt: U32,
    pub(crate) reserved: [u8; 4],
    /// Bytes 24 to 27 (11.13.4).
    pub(crate) stat_sn: U32,
    /// Bytes 28 to 31.
    pub(crate) exp_cmd_sn: U32,
    /// Bytes 32 to 35.
    pub(crate) max_cmd_sn: U32,
    /// Bytes 36 and 37: Status-Class and Status-Detail (11.13.5).
    pub(crate) status: U16,
    pub(crate) reserved2: [u8; 10],
}

/// Logout Response (11.15).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct LogoutResponse {
    /// Byte 0: 26h.
    pub(crate) opcode: u8,
    /// Byte 1: 80h.
    pub(crate) flags: u8,
    /// Byte 2 (11.15.1).
    pub(crate) response: u8,
    pub(crate) reserved: u8,
    /// Bytes 4 to 7: 0.
    pub(crate) lengths: U32,
    pub(crate) reserved2: [u8; 8],
    /// Bytes 16 to 19.
    pub(crate) itt: U32,
    pub(crate) reserved3: [u8; 4],
    /// Bytes 24 to 27.
    pub(crate) stat_sn: U32,
    /// Bytes 28 to 31.
    pub(crate) exp_cmd_sn: U32,
    /// Bytes 32 to 35.
    pub(crate) max_cmd_sn: U32,
    pub(crate) reserved4: [u8; 4],
    /// Bytes 40 and 41, seconds (11.15.3).
    pub(crate) time2wait: U16,
    /// Bytes 42 and 43, seconds (11.15.4).
    pub(crate) time2retain: U16,
    pub(crate) reserved5: [u8; 4],
}

/// Reject (11.17). Its data segment is the header of the bad PDU (11.17.4).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct Reject {
    /// Byte 0: 3Fh.
    pub(crate) opcode: u8,
    /// Byte 1: 80h.
    pub(crate) flags: u8,
    /// Byte 2 (11.17.1).
    pub(crate) reason: u8,
    pub(crate) reserved: u8,
    /// Bytes 4 to 7: DataSegmentLength, 48.
    pub(crate) lengths: U32,
    pub(crate) reserved2: [u8; 8],
    /// Bytes 16 to 19: FFFFFFFFh.
    pub(crate) itt: U32,
    pub(crate) reserved3: [u8; 4],
    /// Bytes 24 to 27.
    pub(crate) stat_sn: U32,
    /// Bytes 28 to 31.
    pub(crate) exp_cmd_sn: U32,
    /// Bytes 32 to 35.
    pub(crate) max_cmd_sn: U32,
    /// Bytes 36 to 39: for SNACKs only (11.17.2).
    pub(crate) data_sn: U32,
    pub(crate) reserved4: [u8; 8],
}

/// NOP-In (11.19).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct NopIn {
    /// Byte 0: 20h.
    pub(crate) opcode: u8,
    /// Byte 1: 80h.
    pub(crate) flags: u8,
    pub(crate) reserved: [u8; 2],
    /// Bytes 4 to 7: DataSegmentLength of the ping data returned.
    pub(crate) lengths: U32,
    /// Bytes 8 to 15: of a ping, to be copied into the answer (11.19.3).
    pub(crate) lun: [u8; 8],
    /// Bytes 16 to 19: FFFFFFFFh unless it answers a NOP-Out.
    pub(crate) itt: U32,
    /// Bytes 20 to 23: of a ping, else FFFFFFFFh (11.19.1).
    pub(crate) ttt: U32,
    /// Bytes 24 to 27: used up only by an answer (11.19.2).
    pub(crate) stat_sn: U32,
    /// Bytes 28 to 31.
    pub(crate) exp_cmd_sn: U32,
    /// Bytes 32 to 35.
    pub(crate) max_cmd_sn: U32,
    pub(crate) reserved2: [u8; 12],
}
