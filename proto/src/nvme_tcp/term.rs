//! Fatal errors: what they are called on the wire, and the C2HTermReq that tells the host (Error Handling Model).

use std::fmt;

use super::connection::Phase;
use super::node::{Cx, Node};
use super::pdu::{CommonHeader, SHORT_HEADER_LEN, TermReq, pdu_type};
use crate::nvme::EventKind;
use crate::slab::Key;

/// FES: Fatal Error Status of a C2HTermReq.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub(super) enum Fes {
    /// Invalid PDU Header Field; FEI is the offset of the lowest one.
    InvalidHeaderField = 0x01,
    /// PDU Sequence Error.
    Sequence = 0x02,
    /// Header Digest Error; FEI is the digest that came.
    HeaderDigest = 0x03,
    /// Data Transfer Out of Range.
    OutOfRange = 0x04,
    /// Data Transfer Limit Exceeded.
    LimitExceeded = 0x05,
}

/// The peer is broken: the connection ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Fatal {
    pub(super) fes: Fes,
    /// FEI: Fatal Error Information.
    pub(super) fei: u32,
    /// Which field and value, for the log.
    pub(super) why: String,
}

impl Fatal {
    /// A header field at this offset is wrong.
    pub(super) fn field(offset: u32, why: impl fmt::Display) -> Self {
        Self { fes: Fes::InvalidHeaderField, fei: offset, why: why.to_string() }
    }

    /// An error whose FEI is reserved.
    pub(super) fn of(fes: Fes, why: impl fmt::Display) -> Self {
        Self { fes, fei: 0, why: why.to_string() }
    }
}

impl fmt::Display for Fatal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (FES {:#04x}, FEI {:#x})", self.why, self.fes as u16, self.fei)
    }
}

impl Node {
    /// Tells the host what is wrong with the PDU in progress, and ends the connection. Nothing that it still sends counts.
    pub(super) fn terminate(&mut self, cx: &mut Cx<'_>, key: Key, fatal: &Fatal) {
        let Some(conn) = self.conns.get_mut(key).filter(|c| !matches!(c.phase, Phase::Closed)) else { return };
        let pdu = c2h_term_req(fatal, conn.rx.header());
        conn.tx.push_long(pdu);
        self.announce(key);
        self.event(key, EventKind::Dropped { why: fatal.to_string() });
        self.close_connection(cx, key, true);
    }
}

/// The PDU; its data are as much as has come of the header that is in error, so its length is 24 to 152.
fn c2h_term_req(fatal: &Fatal, bad: &[u8]) -> Vec<u8> {
    let header = TermReq {
        common: CommonHeader {
            pdu_type: pdu_type::C2H_TERM_REQ,
            flags: 0,
            hlen: SHORT_HEADER_LEN as u8,
            pdo: 0,
            plen: (SHORT_HEADER_LEN as u32 + bad.len() as u32).into(),
        },
        fes: (fatal.fes as u16).into(),
        fei: fatal.fei.into(),
        reserved: [0; 10],
    };
    let header: [u8; SHORT_HEADER_LEN] = zerocopy::transmute!(header);
    [&header, bad].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_c2h_term_req_fes_at_8_fei_at_10_bad_header_at_24() {
        let pdu = c2h_term_req(&Fatal::field(0x0302_0104, "x"), &[9, 8, 7, 6, 5, 4, 3, 2]);
        let mut expected = vec![3, 0, 24, 0, 32, 0, 0, 0, 1, 0, 4, 1, 2, 3];
        expected.resize(24, 0);
        expected.extend([9, 8, 7, 6, 5, 4, 3, 2]);
        assert_eq!(pdu, expected);
        let numbers = [Fes::Sequence, Fes::HeaderDigest, Fes::OutOfRange, Fes::LimitExceeded].map(|f| f as u16);
        assert_eq!(numbers, [2, 3, 4, 5]);
    }

    #[test]
    fn p19_the_length_of_a_c2h_term_req_is_24_to_152() {
        let fatal = Fatal::of(Fes::Sequence, "x");
        for len in [0, 1, 128] {
            let pdu = c2h_term_req(&fatal, &[7; 128][..len]);
            assert_eq!(u32::from_le_bytes([pdu[4], pdu[5], pdu[6], pdu[7]]) as usize, pdu.len());
            assert_eq!(pdu.len(), 24 + len);
        }
    }
}
