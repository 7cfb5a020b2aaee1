//! Commands as CDBs (SPC-5, SBC-4), sense data back.

use std::sync::Arc;

/// SCSI status codes (SAM-5 5.3.1) that the tests name.
pub mod status {
    #![allow(missing_docs, reason = "the names are the documentation")]
    pub const GOOD: u8 = 0x00;
    pub const CHECK_CONDITION: u8 = 0x02;
    pub const BUSY: u8 = 0x08;
    pub const RESERVATION_CONFLICT: u8 = 0x18;
    pub const TASK_SET_FULL: u8 = 0x28;
    pub const TASK_ABORTED: u8 = 0x40;
}

/// Sense keys (SPC-5 4.4.8) that the tests name.
pub mod key {
    #![allow(missing_docs, reason = "the names are the documentation")]
    pub const NOT_READY: u8 = 0x2;
    pub const MEDIUM_ERROR: u8 = 0x3;
    pub const HARDWARE_ERROR: u8 = 0x4;
    pub const ILLEGAL_REQUEST: u8 = 0x5;
    pub const UNIT_ATTENTION: u8 = 0x6;
    pub const DATA_PROTECT: u8 = 0x7;
    pub const ABORTED_COMMAND: u8 = 0xb;
}

/// The data that go with a command. Their length is the Expected Data Transfer Length.
#[derive(Clone, Debug)]
pub enum Transfer {
    /// Neither way.
    None,
    /// So many bytes from the target.
    In(u32),
    /// These bytes to the target.
    Out(Arc<[u8]>),
}

impl Transfer {
    /// Expected Data Transfer Length.
    pub fn len(&self) -> u32 {
        match self {
            Self::None => 0,
            Self::In(len) => *len,
            Self::Out(data) => u32::try_from(data.len()).expect("tests send less than 4 GiB at once"),
        }
    }

    /// Whether no byte goes either way.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// One SCSI command.
#[derive(Clone, Debug)]
pub struct Command {
    /// Logical unit, 0 to 16383.
    pub lun: u16,
    /// Command descriptor block, padded with zeroes.
    pub cdb: [u8; 16],
    /// What goes with it.
    pub transfer: Transfer,
    /// ATTR of the header: 1 simple, 2 ordered, 3 head of queue (RFC 7143 11.3.1).
    pub attribute: u8,
    /// Sent for immediate delivery, outside of the CmdSN order.
    pub immediate: bool,
}

impl Command {
    /// Any command.
    pub fn new(lun: u16, cdb: &[u8], transfer: Transfer) -> Self {
        let mut padded = [0; 16];
        padded[..cdb.len()].copy_from_slice(cdb);
        Self { lun, cdb: padded, transfer, attribute: 1, immediate: false }
    }

    /// READ(10), or READ(16) where that cannot express it.
    pub fn read(lun: u16, lba: u64, blocks: u32, block_size: u32) -> Self {
        Self::new(lun, &by_size(0x28, 0x88, lba, blocks), Transfer::In(blocks * block_size))
    }

    /// WRITE(10) or (16) of `data`, a multiple of `block_size`.
    pub fn write(lun: u16, lba: u64, data: impl Into<Arc<[u8]>>, block_size: u32) -> Self {
        let data = data.into();
        let blocks = data.len() as u32 / block_size;
        assert_eq!(blocks as usize * block_size as usize, data.len(), "whole blocks");
        Self::new(lun, &by_size(0x2a, 0x8a, lba, blocks), Transfer::Out(data))
    }

    /// Sets FUA of a read or write.
    #[must_use]
    pub fn fua(mut self) -> Self {
        self.cdb[1] |= 0x08;
        self
    }

    /// SYNCHRONIZE CACHE(10) of the whole unit.
    pub fn synchronize_cache(lun: u16) -> Self {
        Self::new(lun, &by_size(0x35, 0x91, 0, 0), Transfer::None)
    }

    /// Sets IMMED of SYNCHRONIZE CACHE: the status does not wait for the flush.
    #[must_use]
    pub fn immed(mut self) -> Self {
        self.cdb[1] |= 0x02;
        self
    }

    /// TEST UNIT READY.
    pub fn test_unit_ready(lun: u16) -> Self {
        Self::new(lun, &[0; 6], Transfer::None)
    }

    /// INQUIRY of standard data.
    pub fn inquiry(lun: u16) -> Self {
        Self::new(lun, &[0x12, 0, 0, 0, 96, 0], Transfer::In(96))
    }

    /// READ CAPACITY(16).
    pub fn read_capacity(lun: u16) -> Self {
        let mut cdb = [0; 16];
        (cdb[0], cdb[1], cdb[13]) = (0x9e, 0x10, 32);
        Self::new(lun, &cdb, Transfer::In(32))
    }

    /// MODE SENSE(10) of the caching page, current values, no block descriptors.
    pub fn mode_sense_caching(lun: u16) -> Self {
        Self::new(lun, &[0x5a, 0x08, 0x08, 0, 0, 0, 0, 0, 64, 0], Transfer::In(64))
    }

    /// MODE SELECT(10) of the caching page that [`mode_sense_caching`](Self::mode_sense_caching) returned, with WCE
    /// replaced. `None` if the answer holds no caching page.
    pub fn mode_select_write_cache(lun: u16, sensed: &[u8], on: bool) -> Option<Self> {
        let descriptors = usize::from(u16::from_be_bytes([*sensed.get(6)?, *sensed.get(7)?]));
        let page = sensed.get(8 + descriptors..)?;
        let len = usize::from(*page.get(1)?) + 2;
        let mut list = vec![0; 8];
        list.extend_from_slice(page.get(..len)?);
        let page = &mut list[8..];
        if page[0] & 0x3f != 0x08 {
            return None;
        }
        page[0] &= 0x3f;
        page[2] = page[2] & !0x04 | if on { 0x04 } else { 0 };
        let cdb = [0x55, 0x10, 0, 0, 0, 0, 0, 0, list.len() as u8, 0];
        Some(Self::new(lun, &cdb, Transfer::Out(list.into())))
    }
}

fn by_size(ten: u8, sixteen: u8, lba: u64, blocks: u32) -> Vec<u8> {
    match (u32::try_from(lba), u16::try_from(blocks)) {
        (Ok(lba), Ok(blocks)) => {
            let mut cdb = vec![ten, 0];
            cdb.extend_from_slice(&lba.to_be_bytes());
            cdb.push(0);
            cdb.extend_from_slice(&blocks.to_be_bytes());
            cdb.push(0);
            cdb
        }
        _ => {
            let mut cdb = vec![sixteen, 0];
            cdb.extend_from_slice(&lba.to_be_bytes());
            cdb.extend_from_slice(&blocks.to_be_bytes());
            cdb.extend_from_slice(&[0, 0]);
            cdb
        }
    }
}

/// What sense data say (SPC-5 4.4), fixed and descriptor format alike.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sense {
    /// Sense key.
    pub key: u8,
    /// Additional sense code.
    pub asc: u8,
    /// Additional sense code qualifier.
    pub ascq: u8,
    /// About an earlier command.
    pub deferred: bool,
}

impl Sense {
    /// `None` if these are no sense data.
    pub fn parse(data: &[u8]) -> Option<Self> {
        let code = data.first()? & 0x7f;
        let (key, asc, ascq) = match code {
            0x70 | 0x71 => (*data.get(2)?, *data.get(12)?, *data.get(13)?),
            0x72 | 0x73 => (*data.get(1)?, *data.get(2)?, *data.get(3)?),
            _ => return None,
        };
        Some(Self { key: key & 0x0f, asc, ascq, deferred: code & 1 != 0 })
    }

    /// Key, ASC, ASCQ.
    pub fn triple(&self) -> (u8, u8, u8) {
        (self.key, self.asc, self.ascq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cdbs_of_either_size() {
        assert_eq!(Command::read(0, 0x0102_0304, 0x0506, 1).cdb[..10], [0x28, 0, 1, 2, 3, 4, 0, 5, 6, 0]);
        let long = Command::write(0, 1 << 32, vec![0; 512], 512).fua();
        assert_eq!(long.cdb, [0x8a, 8, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0]);
    }

    #[test]
    fn sense_of_both_formats() {
        let mut fixed = [0; 18];
        (fixed[0], fixed[2], fixed[12], fixed[13]) = (0x70, 0x04, 0x44, 0x01);
        assert_eq!(Sense::parse(&fixed).unwrap().triple(), (4, 0x44, 1));
        let descriptor = Sense::parse(&[0x73, 0x03, 0x11, 0x02, 0, 0, 0, 0]).unwrap();
        assert_eq!(descriptor.triple(), (3, 0x11, 2));
        assert!(descriptor.deferred);
        assert_eq!(Sense::parse(&[0x70, 0]), None);
    }

    #[test]
    fn the_caching_page_goes_back_with_one_bit_changed() {
        let mut sensed = vec![0, 26, 0, 0x10, 0, 0, 0, 0, 0x88, 0x12, 0x14];
        sensed.resize(28, 0);
        let select = Command::mode_select_write_cache(0, &sensed, false).unwrap();
        let Transfer::Out(list) = select.transfer else { panic!("data go out") };
        assert_eq!(list[..11], [0, 0, 0, 0, 0, 0, 0, 0, 0x08, 0x12, 0x10]);
        assert_eq!((list.len(), select.cdb[8]), (28, 28));
    }
}
