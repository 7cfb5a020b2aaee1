//! Command descriptor blocks (SPC-4 4.2): fields by position.

/// A CDB of up to 16 bytes, padded with zeroes. No longer one is supported.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Cdb([u8; 16]);

/// LOGICAL BLOCK ADDRESS and the length field of a medium command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Blocks {
    /// First block.
    pub(super) lba: u64,
    /// TRANSFER LENGTH, VERIFICATION LENGTH, NUMBER OF LOGICAL BLOCKS, PREFETCH LENGTH. 0 became 256 in 6-byte CDBs.
    pub(super) count: u32,
    /// Where the length field begins, for field pointers.
    pub(super) count_at: u16,
}

impl Cdb {
    /// Takes the first 16 bytes.
    pub(super) fn new(bytes: &[u8]) -> Self {
        let mut cdb = [0; 16];
        let len = bytes.len().min(16);
        cdb[..len].copy_from_slice(&bytes[..len]);
        Self(cdb)
    }

    /// Byte 0.
    pub(super) const fn opcode(&self) -> u8 {
        self.0[0]
    }

    /// SERVICE ACTION, where the operation code has them: bits 4 to 0 of byte 1.
    pub(super) const fn action(&self) -> u16 {
        (self.0[1] & 0x1f) as u16
    }

    pub(super) const fn byte(&self, at: usize) -> u8 {
        self.0[at]
    }

    /// Whether any bit of `mask` is set in byte `at`.
    pub(super) const fn has(&self, at: usize, mask: u8) -> bool {
        self.0[at] & mask != 0
    }

    pub(super) const fn u16(&self, at: usize) -> u16 {
        u16::from_be_bytes([self.0[at], self.0[at + 1]])
    }

    pub(super) const fn u32(&self, at: usize) -> u32 {
        u32::from_be_bytes([self.0[at], self.0[at + 1], self.0[at + 2], self.0[at + 3]])
    }

    pub(super) const fn u64(&self, at: usize) -> u64 {
        (self.u32(at) as u64) << 32 | self.u32(at + 4) as u64
    }

    /// The block range of a medium command: its CDB length, told by the group code (SPC-4 4.2.5.1), fixes where it is.
    pub(super) const fn blocks(&self) -> Blocks {
        match self.0[0] >> 5 {
            0 => {
                let count = if self.0[4] == 0 { 256 } else { self.0[4] as u32 };
                Blocks { lba: (self.u32(0) & 0x1f_ffff) as u64, count, count_at: 4 }
            }
            1 | 2 => Blocks { lba: self.u32(2) as u64, count: self.u16(7) as u32, count_at: 7 },
            5 => Blocks { lba: self.u32(2) as u64, count: self.u32(6), count_at: 6 },
            _ => Blocks { lba: self.u64(2), count: self.u32(10), count_at: 10 },
        }
    }

    /// FUA of READ and WRITE; 6-byte CDBs have none.
    pub(super) const fn fua(&self) -> bool {
        self.0[0] >> 5 != 0 && self.has(1, 0x08)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cdb_length_has_its_range_where_the_standard_puts_it() {
        let six = Cdb::new(&[0x08, 0xff, 0x02, 0x03, 0x00, 0x00]).blocks();
        assert_eq!((six.lba, six.count), (0x1f_0203, 256), "21 bits of LBA; a length of 0 means 256");
        let ten = Cdb::new(&[0x28, 0, 1, 2, 3, 4, 0, 5, 6, 0]).blocks();
        assert_eq!((ten.lba, ten.count), (0x0102_0304, 0x0506));
        let twelve = Cdb::new(&[0xa8, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0]).blocks();
        assert_eq!((twelve.lba, twelve.count), (0x0102_0304, 0x0506_0708));
        let sixteen = Cdb::new(&[0x88, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0, 0]).blocks();
        assert_eq!((sixteen.lba, sixteen.count), (0x0102_0304_0506_0708, 0x090a_0b0c));
    }
}
