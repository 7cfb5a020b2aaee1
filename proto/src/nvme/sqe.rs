//! Submission queue entries (NVMe base, Common Command Format), and the fields of the commands that have them in common.

use platter_block::{BlockCount, BlockRange, Lba};

/// A submission queue entry as it came. Little endian.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sqe(pub(super) [u8; 64]);

/// FUSE: what a command is part of (CDW0 bits 9:8).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fuse {
    None,
    First,
    Second,
    Reserved,
}

impl Sqe {
    pub(super) const fn opcode(&self) -> u8 {
        self.0[0]
    }

    pub(super) const fn fuse(&self) -> Fuse {
        match self.0[1] & 0b11 {
            0b00 => Fuse::None,
            0b01 => Fuse::First,
            0b10 => Fuse::Second,
            _ => Fuse::Reserved,
        }
    }

    /// Command identifier.
    pub(super) const fn cid(&self) -> u16 {
        self.u16(2)
    }

    /// FCTYPE of a fabrics command.
    pub(super) const fn fctype(&self) -> u8 {
        self.0[4]
    }

    pub(super) const fn nsid(&self) -> u32 {
        self.u32(4)
    }

    /// Metadata pointer.
    pub(super) const fn mptr(&self) -> u64 {
        self.u64(16)
    }

    /// Command dword 10 to 15.
    pub(super) const fn cdw(&self, n: usize) -> u32 {
        self.u32(4 * n)
    }

    /// Starting LBA (CDW10, 11).
    pub(super) const fn slba(&self) -> u64 {
        self.u64(40)
    }

    /// SLBA and NLB, which counts from 0, of the commands of the NVM command set that have them.
    pub(super) const fn blocks(&self) -> BlockRange {
        BlockRange::new(Lba(self.slba()), BlockCount(self.u16(48) as u32 + 1))
    }

    /// Force Unit Access (CDW12 bit 30).
    pub(super) const fn fua(&self) -> bool {
        self.cdw(12) & 1 << 30 != 0
    }

    pub(super) const fn u16(&self, at: usize) -> u16 {
        u16::from_le_bytes([self.0[at], self.0[at + 1]])
    }

    pub(super) const fn u32(&self, at: usize) -> u32 {
        u32::from_le_bytes([self.0[at], self.0[at + 1], self.0[at + 2], self.0[at + 3]])
    }

    pub(super) const fn u64(&self, at: usize) -> u64 {
        self.u32(at) as u64 | (self.u32(at + 4) as u64) << 32
    }
}
