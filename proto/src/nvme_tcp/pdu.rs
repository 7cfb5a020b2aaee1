//! PDU layouts (PDU Definitions): each struct reads like the figure of its PDU. All numbers are little-endian.

use zerocopy::byteorder::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Length of the common header in bytes.
pub(super) const COMMON_LEN: usize = 8;
/// Length of the longest header, that of ICReq.
pub(super) const MAX_HEADER_LEN: usize = 128;
/// Length of every header that a controller sends once the connection is initialized.
pub(super) const SHORT_HEADER_LEN: usize = 24;
/// HDGST and DDGST: CRC32C.
pub(super) const DIGEST_LEN: usize = 4;

/// PDU-Type. Even from the host, odd from the controller.
pub(super) mod pdu_type {
    pub(crate) const IC_REQ: u8 = 0x00;
    pub(crate) const IC_RESP: u8 = 0x01;
    pub(crate) const H2C_TERM_REQ: u8 = 0x02;
    pub(crate) const C2H_TERM_REQ: u8 = 0x03;
    pub(crate) const CAPSULE_CMD: u8 = 0x04;
    pub(crate) const CAPSULE_RESP: u8 = 0x05;
    pub(crate) const H2C_DATA: u8 = 0x06;
    pub(crate) const C2H_DATA: u8 = 0x07;
    pub(crate) const R2T: u8 = 0x09;
}

/// FLAGS.
pub(super) mod flag {
    /// HDGSTF: a header digest follows the header.
    pub(crate) const HEADER_DIGEST: u8 = 1 << 0;
    /// DDGSTF: a data digest follows the data.
    pub(crate) const DATA_DIGEST: u8 = 1 << 1;
    /// LAST_PDU of H2CData: the last that answers its R2T; of C2HData: the last of its command.
    pub(crate) const LAST: u8 = 1 << 2;
    /// SUCCESS of C2HData: the command has succeeded, no CapsuleResp follows.
    pub(crate) const SUCCESS: u8 = 1 << 3;
}

/// DGST of ICReq and ICResp.
pub(super) mod dgst {
    /// HDGST_ENABLE.
    pub(crate) const HEADER: u8 = 1 << 0;
    /// DDGST_ENABLE.
    pub(crate) const DATA: u8 = 1 << 1;
}

/// PDU Common Header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct CommonHeader {
    /// Byte 0: PDU-Type.
    pub(super) pdu_type: u8,
    /// Byte 1: FLAGS.
    pub(super) flags: u8,
    /// Byte 2: HLEN, length of the header without its digest.
    pub(super) hlen: u8,
    /// Byte 3: PDO, where the data start; 0 if there are none.
    pub(super) pdo: u8,
    /// Bytes 4 to 7: PLEN, length of the whole PDU.
    pub(super) plen: U32,
}

/// Initialize Connection Request.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct IcReq {
    pub(super) common: CommonHeader,
    /// Bytes 8 and 9: PFV, PDU Format Version.
    pub(super) pfv: U16,
    /// Byte 10: HPDA; data from the controller start at a multiple of (HPDA + 1) * 4, HPDA 0 to 31.
    pub(super) hpda: u8,
    /// Byte 11: DGST, which digests the host wants.
    pub(super) dgst: u8,
    /// Bytes 12 to 15: MAXR2T; the host takes MAXR2T + 1 outstanding R2Ts of one command.
    pub(super) maxr2t: U32,
    pub(super) reserved: [u8; 112],
}

/// Initialize Connection Response.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct IcResp {
    pub(super) common: CommonHeader,
    /// Bytes 8 and 9: PFV.
    pub(super) pfv: U16,
    /// Byte 10: CPDA, as HPDA, for data from the host.
    pub(super) cpda: u8,
    /// Byte 11: DGST, which digests are used.
    pub(super) dgst: u8,
    /// Bytes 12 to 15: MAXH2CDATA, the most data of one H2CData.
    pub(super) maxh2cdata: U32,
    pub(super) reserved: [u8; 112],
}

/// Host to Controller, or Controller to Host, Terminate Connection Request.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct TermReq {
    pub(super) common: CommonHeader,
    /// Bytes 8 and 9: FES, Fatal Error Status.
    pub(super) fes: U16,
    /// Bytes 10 to 13: FEI, Fatal Error Information.
    pub(super) fei: U32,
    pub(super) reserved: [u8; 10],
}

/// Command Capsule.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct CapsuleCmd {
    pub(super) common: CommonHeader,
    /// Bytes 8 to 71: submission queue entry.
    pub(super) sqe: [u8; 64],
}

/// Response Capsule.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct CapsuleResp {
    pub(super) common: CommonHeader,
    /// Bytes 8 to 23: completion queue entry.
    pub(super) cqe: [u8; 16],
}

/// Host to Controller, or Controller to Host, Data Transfer.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct Data {
    pub(super) common: CommonHeader,
    /// Bytes 8 and 9: CCCID, identifier of the command.
    pub(super) cccid: U16,
    /// Bytes 10 and 11: TTAG of the R2T; reserved in C2HData.
    pub(super) ttag: U16,
    /// Bytes 12 to 15: DATAO, offset from the start of the data of the command.
    pub(super) datao: U32,
    /// Bytes 16 to 19: DATAL, length of the data in this PDU.
    pub(super) datal: U32,
    pub(super) reserved: [u8; 4],
}

/// Ready to Transfer.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct R2t {
    pub(super) common: CommonHeader,
    /// Bytes 8 and 9: CCCID, identifier of the command.
    pub(super) cccid: U16,
    /// Bytes 10 and 11: TTAG, which the answers carry.
    pub(super) ttag: U16,
    /// Bytes 12 to 15: R2TO, first byte asked for.
    pub(super) r2to: U32,
    /// Bytes 16 to 19: R2TL, how many.
    pub(super) r2tl: U32,
    pub(super) reserved: [u8; 4],
}

/// A CRC32C as it stands on the wire.
pub(super) const fn digest(crc: u32) -> [u8; DIGEST_LEN] {
    crc.to_le_bytes()
}

#[cfg(test)]
mod tests {
    use std::mem::{offset_of, size_of};

    use super::*;

    #[test]
    fn every_layout_has_the_length_and_the_offsets_of_its_figure() {
        assert_eq!(size_of::<CommonHeader>(), COMMON_LEN);
        assert_eq!((size_of::<IcReq>(), size_of::<IcResp>()), (MAX_HEADER_LEN, MAX_HEADER_LEN));
        assert_eq!(size_of::<CapsuleCmd>(), 72);
        let short = [size_of::<TermReq>(), size_of::<CapsuleResp>(), size_of::<Data>(), size_of::<R2t>()];
        assert_eq!(short, [SHORT_HEADER_LEN; 4]);
        assert_eq!((offset_of!(TermReq, fes), offset_of!(TermReq, fei)), (8, 10));
        assert_eq!((offset_of!(IcReq, hpda), offset_of!(IcReq, dgst), offset_of!(IcReq, maxr2t)), (10, 11, 12));
        assert_eq!((offset_of!(Data, ttag), offset_of!(Data, datao), offset_of!(Data, datal)), (10, 12, 16));
    }
}
