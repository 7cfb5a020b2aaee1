//! Blocks that say what they are: number, version, and a checksum over everything, filler included.

use crate::sim::rng::mix;

/// Length of a block.
pub const BLOCK: usize = 4096;
const LBA: std::ops::Range<usize> = 0..8;
const VERSION: std::ops::Range<usize> = 8..16;
const CRC: std::ops::Range<usize> = 16..20;
const FILLER: std::ops::Range<usize> = 24..BLOCK;

/// The content of block `lba` in `version`, which is at least 1.
pub fn block(lba: u64, version: u64) -> [u8; BLOCK] {
    assert!(version > 0, "version 0 is a block that was never written");
    let mut bytes = [0; BLOCK];
    bytes[LBA].copy_from_slice(&lba.to_be_bytes());
    bytes[VERSION].copy_from_slice(&version.to_be_bytes());
    let seed = mix(lba) ^ version;
    for (word, filler) in (0..).zip(bytes[FILLER].chunks_mut(8)) {
        filler.copy_from_slice(&mix(seed.wrapping_add(word)).to_be_bytes());
    }
    let crc = crc32c::crc32c(&bytes);
    bytes[CRC].copy_from_slice(&crc.to_be_bytes());
    bytes
}

/// The version of block `lba` that `bytes` are; 0 if they are all zero.
///
/// # Errors
///
/// What is wrong, if they are no version of this block: torn, damaged, or another block.
pub fn version(lba: u64, bytes: &[u8]) -> Result<u64, String> {
    if bytes.iter().all(|b| *b == 0) {
        return Ok(0);
    }
    let word = |range: std::ops::Range<usize>| bytes[range].iter().fold(0, |word, b| word << 8 | u64::from(*b));
    let (said_lba, version, crc) = (word(LBA), word(VERSION), word(CRC));
    let mut unsealed = bytes.to_vec();
    unsealed[CRC].fill(0);
    if u64::from(crc32c::crc32c(&unsealed)) != crc {
        return Err(format!("block {lba} is torn or damaged: it says block {said_lba} version {version}"));
    }
    if said_lba != lba {
        return Err(format!("block {lba} holds block {said_lba} version {version}"));
    }
    Ok(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_tells_its_version_and_every_damage_shows() {
        let old = block(7, 41);
        let new = block(7, 42);
        assert_eq!(version(7, &new), Ok(42));
        assert_eq!(version(7, &[0; BLOCK]), Ok(0));
        assert!(version(8, &new).is_err());
        for torn_at in (512..BLOCK).step_by(512) {
            let torn = [&new[..torn_at], &old[torn_at..]].concat();
            assert!(version(7, &torn).is_err(), "torn at {torn_at}");
        }
    }
}
