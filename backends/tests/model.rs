//! Random ops against a reference image.

mod common;

use common::rigs;
use platter_block::{BlockCount, DiskOp, Lba, Status};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Act {
    Read,
    Write { fua: bool },
    Zero { may_unmap: bool },
    Unmap,
    Flush,
    Status,
}

/// What is done in one place, in a batch whose places do not overlap: `slot` of a batch is a region of its own.
#[derive(Clone, Debug)]
struct Step {
    act: Act,
    /// Start within the region, in 1/256 of it.
    start: u8,
    /// Length, in 1/256 of what is left of the region.
    len: u8,
}

/// Regions of a batch. Their borders are at odd blocks, different in each batch.
const REGIONS: usize = 8;

fn step() -> impl Strategy<Value = Step> {
    let act = prop_oneof![
        4 => Just(Act::Read),
        4 => any::<bool>().prop_map(|fua| Act::Write { fua }),
        2 => any::<bool>().prop_map(|may_unmap| Act::Zero { may_unmap }),
        1 => Just(Act::Unmap),
        1 => Just(Act::Flush),
        1 => Just(Act::Status),
    ];
    (act, any::<u8>(), any::<u8>()).prop_map(|(act, start, len)| Step { act, start, len })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn the_disk_is_what_the_reference_says(
        batches in prop::collection::vec((any::<u8>(), prop::collection::vec(step(), REGIONS)), 30..60),
    ) {
        for mut rig in rigs() {
            let block = rig.info.block_size as usize;
            let mut image = vec![0u8; rig.info.blocks as usize * block];
            let reads_zeroes = rig.info.discard.is_some_and(|d| d.reads_zeroes);
            for (number, (shift, steps)) in batches.iter().enumerate() {
                let mut reads = Vec::new();
                let borders = |i: usize| {
                    let even = i as u64 * (rig.info.blocks - 256) / REGIONS as u64;
                    if i == 0 { 0 } else if i == REGIONS { rig.info.blocks } else { even + u64::from(*shift) }
                };
                let places: Vec<_> = (0..REGIONS).map(|i| (borders(i), borders(i + 1))).collect();
                for (step, (from, to)) in steps.iter().zip(places) {
                    let lba = from + (to - from - 1) * u64::from(step.start) / 256;
                    let count = (1 + (to - lba - 1) * u64::from(step.len) / 256) as u32;
                    let bytes = lba as usize * block..(lba as usize + count as usize) * block;
                    match step.act {
                        Act::Read => reads.push((rig.submit_read(lba, count), bytes)),
                        Act::Write { fua } => {
                            let data = rig.pattern(lba, count, number as u64);
                            image[bytes].copy_from_slice(&data);
                            rig.submit_write(lba, &data, fua);
                        }
                        Act::Zero { may_unmap } => {
                            image[bytes].fill(0);
                            rig.submit(DiskOp::WriteZeroes { lba: Lba(lba), count: BlockCount(count), may_unmap }, None);
                        }
                        // Where it does not read as zeroes it says nothing about what is read.
                        Act::Unmap if reads_zeroes => {
                            image[bytes].fill(0);
                            rig.submit(DiskOp::Unmap { lba: Lba(lba), count: BlockCount(count) }, None);
                        }
                        Act::Unmap | Act::Flush => {
                            rig.submit(DiskOp::Flush, None);
                        }
                        Act::Status => {
                            rig.submit(DiskOp::BlockStatus { lba: Lba(lba), count: BlockCount(count) }, None);
                        }
                    }
                }
                for end in rig.finish() {
                    prop_assert_eq!(end.status, Status::Good, "{}", rig.name);
                    if let Some((_, bytes)) = reads.iter().find(|(io, _)| *io == end.io) {
                        let found = &rig.pool.bytes(end.buf.unwrap())[..bytes.len()];
                        prop_assert!(found == &image[bytes.clone()], "{}: batch {}, bytes {:?}", rig.name, number, bytes);
                    }
                    if let Some(buf) = end.buf {
                        rig.pool.free(buf);
                    }
                }
            }
            let blocks = rig.info.blocks as u32;
            prop_assert!(rig.read(0, blocks).unwrap() == image, "{}: at the end", rig.name);
        }
    }
}
