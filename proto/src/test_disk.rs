//! The disk of every test rig: what it says of itself, how it behaves, and what it does to a medium in memory.

use platter_block::{BufPool, Op, Rotation, VolumeInfo};

pub(crate) const BLOCK: usize = 512;
pub(crate) const BLOCKS: u64 = 4096;

/// How the disk behaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Disk {
    /// Every op is done at once.
    #[default]
    Fast,
    /// Ops wait until released; an abort ends them at once, untouched.
    Held,
    /// Ops wait until released; an abort changes nothing.
    Stuck,
}

pub(crate) fn volume_info() -> VolumeInfo {
    VolumeInfo {
        block_size: BLOCK as u32,
        physical_block: BLOCK as u32,
        blocks: BLOCKS,
        write_cache: false,
        write_cache_changeable: false,
        rotation: Rotation::Rpm(7200),
        discard: None,
        max_transfer: 2048,
        read_only: false,
        ready: true,
    }
}

/// Does what reads and writes do; other ops change nothing.
pub(crate) fn execute(op: Op, medium: &mut [u8], pool: &mut BufPool) {
    let place = op.range().map_or(0..0, |r| r.start.0 as usize * BLOCK..r.end() as usize * BLOCK);
    match op {
        Op::Read { buf, .. } => pool.bytes_mut(buf)[..place.len()].copy_from_slice(&medium[place]),
        Op::Write { buf, .. } => {
            let len = place.len();
            medium[place].copy_from_slice(&pool.bytes(buf)[..len]);
        }
        Op::WriteZeroes { .. } => medium[place].fill(0),
        _ => {}
    }
}

/// Bytes that differ from place to place and from seed to seed.
pub(crate) fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i / 7) as u8 ^ (i as u8).wrapping_mul(31) ^ seed).collect()
}
