//! What the initiators ask for: one random op at a time, crowded on few blocks so that ops overlap.

use platter_block::{BlockCount, BlockRange, BufId, Lba, Op};

use super::medium::Value;
use super::plan::{MAX_OP_BLOCKS, Plan};
use super::registers::Registers;
use super::rng::Rng;

/// An op to submit.
#[derive(Debug)]
pub struct Wish {
    /// Number of the volume.
    pub volume: usize,
    /// The op; its buffer is named after the op's number.
    pub op: Op,
    /// What is in the buffer at first, one value per block.
    pub values: Vec<Value>,
}

/// What a buffer holds where nobody has written: no op ever writes this value.
pub const BLANK: Value = Value::MAX;

/// The value that op `number` writes to its block `index`, below `MAX_OP_BLOCKS`. `derived`: the result of an or-write.
pub const fn value_of(number: u64, index: u64, derived: bool) -> Value {
    assert!(index < MAX_OP_BLOCKS && MAX_OP_BLOCKS < 64, "the index has six bits");
    number << 7 | (derived as u64) << 6 | (index + 1)
}

/// The op that wrote a value; 0 for the initial content and zeroes.
pub const fn writer_of(value: Value) -> u64 {
    value >> 7
}

/// A read of `count` blocks.
pub fn read(number: u64, volume: usize, lba: u64, count: u64) -> Wish {
    let op = Op::Read { lba: Lba(lba), count: BlockCount(count as u32), buf: BufId(number) };
    Wish { volume, op, values: vec![BLANK; count as usize] }
}

/// The next op, with `number`. `bare`: the volume and range of each op in flight that has a range and no buffer; to tell
/// their disk ops apart, no two of them overlap.
pub fn next(plan: &Plan, rng: &mut Rng, registers: &Registers, number: u64, bare: &[(usize, BlockRange)]) -> Wish {
    let mix = &plan.mix;
    let volume = rng.below(plan.volumes.len() as u64) as usize;
    let blocks = plan.volumes[volume].blocks;
    let mut range = range(rng, blocks);
    let (lba, mut count) = (range.start, range.count);
    let buf = BufId(number);
    let fua = rng.chance(mix.fua);
    let fresh = |count: BlockCount| (0..u64::from(count.0)).map(|i| value_of(number, i, false));
    let blanks = |count: BlockCount| std::iter::repeat_n(BLANK, count.0 as usize);

    if rng.chance(mix.outside) {
        let lba = *rng.pick(&[Lba(blocks), Lba(blocks - 1), Lba(u64::MAX), Lba(u64::MAX - 1)]);
        let count = BlockCount(2);
        let op = if rng.chance(500) { Op::Read { lba, count, buf } } else { Op::Write { lba, count, fua, buf } };
        return Wish { volume, op, values: vec![BLANK; 2] };
    }
    let kinds = [
        mix.read,
        mix.write,
        mix.flush,
        mix.zero,
        mix.unmap,
        mix.compare_and_write,
        mix.or_write,
        mix.write_cache,
        mix.block_status,
    ];
    let mut ticket = rng.below(kinds.iter().sum());
    let mut kind = 0;
    while ticket >= kinds[kind] {
        ticket -= kinds[kind];
        kind += 1;
    }
    if matches!(kind, 3 | 4 | 8) && bare.iter().any(|&(v, r)| v == volume && r.overlaps(range)) {
        kind = 1;
    }
    if kind == 5 || kind == 6 {
        count = BlockCount(count.0.min(4));
        range = BlockRange::new(lba, count);
    }
    let (op, values) = match kind {
        0 => return read(number, volume, lba.0, u64::from(count.0)),
        1 => (Op::Write { lba, count, fua, buf }, fresh(count).collect()),
        2 => (Op::Flush, Vec::new()),
        3 => (Op::WriteZeroes { lba, count, fua, may_unmap: rng.chance(500) }, Vec::new()),
        4 => (Op::Unmap { lba, count }, Vec::new()),
        5 => {
            let mut values: Vec<Value> = (range.start.0..range.end()).map(|b| registers.guess(volume, b)).collect();
            if rng.chance(150) && !values.is_empty() {
                let i = rng.below(values.len() as u64) as usize;
                values[i] = BLANK;
            }
            values.extend(fresh(count));
            values.extend(blanks(count));
            (Op::CompareAndWrite { lba, count, fua, buf }, values)
        }
        6 => (Op::OrWrite { lba, count, fua, buf }, fresh(count).chain(blanks(count)).collect()),
        7 => (Op::SetWriteCache { enabled: rng.chance(500) }, Vec::new()),
        _ => (Op::BlockStatus { lba, count }, Vec::new()),
    };
    Wish { volume, op, values }
}

/// Half of all ranges lie in the first few blocks; a few are empty.
fn range(rng: &mut Rng, blocks: u64) -> BlockRange {
    let lba = if rng.chance(500) { rng.below(blocks.min(6)) } else { rng.below(blocks) };
    let longest = *rng.pick(&[1, 1, 2, 2, 4, 4, 24, MAX_OP_BLOCKS]);
    let count = if rng.chance(5) { 0 } else { rng.between(1, longest).min(blocks - lba) };
    BlockRange::new(Lba(lba), BlockCount(count as u32))
}
