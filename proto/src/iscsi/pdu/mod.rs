//! PDU layouts (11): each struct reads like the figure of its section, each is the 48 bytes of a Basic Header Segment.

mod request;
mod response;

pub(super) use request::{
    Bhs, DataOut, LoginRequest, LogoutRequest, NopOut, ScsiCommand, TaskManagementRequest, TextRequest,
};
pub(super) use response::{
    AsyncMessage, DataIn, LoginResponse, LogoutResponse, NopIn, R2t, Reject, ScsiResponse, TaskManagementResponse,
    TextResponse,
};

/// Length of a Basic Header Segment in bytes (11.2.1).
pub(super) const BHS_LEN: usize = 48;

/// The tag that means "no tag": Initiator Task Tag 11.2.1.8, Target Transfer Tag 11.7.4.
pub(super) const NO_TAG: u32 = 0xffff_ffff;

/// Opcodes (11.2.1.2), without the I bit.
pub(super) mod opcode {
    /// Bit of byte 0 that marks a request for immediate delivery (11.2.1.1).
    pub(crate) const IMMEDIATE: u8 = 0x40;
    /// Bits of byte 0 that are the opcode.
    pub(crate) const MASK: u8 = 0x3f;

    pub(crate) const NOP_OUT: u8 = 0x00;
    pub(crate) const SCSI_COMMAND: u8 = 0x01;
    pub(crate) const TASK_MANAGEMENT: u8 = 0x02;
    pub(crate) const LOGIN: u8 = 0x03;
    pub(crate) const TEXT: u8 = 0x04;
    pub(crate) const DATA_OUT: u8 = 0x05;
    pub(crate) const LOGOUT: u8 = 0x06;
    pub(crate) const SNACK: u8 = 0x10;

    pub(crate) const NOP_IN: u8 = 0x20;
    pub(crate) const SCSI_RESPONSE: u8 = 0x21;
    pub(crate) const TASK_MANAGEMENT_RESPONSE: u8 = 0x22;
    pub(crate) const LOGIN_RESPONSE: u8 = 0x23;
    pub(crate) const TEXT_RESPONSE: u8 = 0x24;
    pub(crate) const DATA_IN: u8 = 0x25;
    pub(crate) const LOGOUT_RESPONSE: u8 = 0x26;
    pub(crate) const R2T: u8 = 0x31;
    pub(crate) const ASYNC: u8 = 0x32;
    pub(crate) const REJECT: u8 = 0x3f;
}

/// Bits of byte 1.
pub(super) mod flag {
    /// F, the last of a sequence (11.2.1.3); T of a login PDU (11.12.1).
    pub(crate) const FINAL: u8 = 0x80;
    /// C, more text follows (11.10.2, 11.12.2).
    pub(crate) const CONTINUE: u8 = 0x40;
    /// R of a SCSI Command: data are expected in (11.3.1).
    pub(crate) const READ: u8 = 0x40;
    /// W of a SCSI Command: data are expected out (11.3.1).
    pub(crate) const WRITE: u8 = 0x20;
    /// O of a SCSI Response or Data-In: residual overflow (11.4.1).
    pub(crate) const OVERFLOW: u8 = 0x04;
    /// U of a SCSI Response or Data-In: residual underflow (11.4.1).
    pub(crate) const UNDERFLOW: u8 = 0x02;
    /// S of a Data-In: status is valid (11.7.3).
    pub(crate) const STATUS: u8 = 0x01;
}

/// Why a PDU is rejected (11.17.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum RejectReason {
    /// The data digest is wrong.
    DataDigest = 0x02,
    /// The PDU comes at a wrong time.
    Protocol = 0x04,
    /// No such request here.
    NotSupported = 0x05,
    /// Too many immediate commands.
    TooManyImmediate = 0x06,
    /// The Initiator Task Tag names a task in progress.
    TaskInProgress = 0x07,
    /// A field that describes a task, a response or a transfer is wrong.
    InvalidField = 0x09,
    /// A logout is in progress.
    WaitingForLogout = 0x0c,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_layout_is_48_bytes() {
        fn len<T>() -> usize {
            std::mem::size_of::<T>()
        }
        let requests = [
            len::<Bhs>(),
            len::<NopOut>(),
            len::<ScsiCommand>(),
            len::<TaskManagementRequest>(),
            len::<LoginRequest>(),
            len::<TextRequest>(),
            len::<DataOut>(),
            len::<LogoutRequest>(),
        ];
        let responses = [
            len::<NopIn>(),
            len::<ScsiResponse>(),
            len::<TaskManagementResponse>(),
            len::<LoginResponse>(),
            len::<TextResponse>(),
            len::<DataIn>(),
            len::<LogoutResponse>(),
            len::<R2t>(),
            len::<AsyncMessage>(),
            len::<Reject>(),
        ];
        assert!(requests.iter().chain(&responses).all(|&n| n == BHS_LEN));
    }
}
