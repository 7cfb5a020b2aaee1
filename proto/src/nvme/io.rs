//! The commands of I/O queues (NVM command set, and Flush of the base specification). One row of the table is everything
//! that is known about a command before it runs.
//!
//! Not in the table, and so answered Invalid Command Opcode: Write Uncorrectable, reservations, zones, I/O management.

use platter_block::{BlockRange, BufId, Op, VolumeInfo};

use super::config::{Limits, NamespaceConfig};
use super::identify;
use super::status::Status;
use super::target::ReplyData;
use super::task::{Direction, Memory, Next, Outcome, Stop, Task, Work};
use super::{compare, copy, dsm};

/// NSID that means every namespace.
pub(super) const ALL_NAMESPACES: u32 = u32::MAX;

/// One command.
pub(super) struct Row {
    pub(super) opcode: u8,
    /// Bits of CDW12 that are looked at; others (protection information, directives, storage tags: nothing of that is
    /// advertised) are refused.
    cdw12: u32,
    pub(super) direction: Direction,
    traits: u8,
    handler: fn(&mut Call<'_>) -> Outcome,
}

/// Refused on a write-protected namespace.
const WRITES: u8 = 1 << 0;
/// The NSID may be FFFFFFFFh.
const ALL: u8 = 1 << 1;

/// NLB, FUA and Limited Retry.
const BLOCKS: u32 = 0xc000_ffff;
/// DEAC of Write Zeroes.
const DEAC: u32 = 1 << 25;
/// NR, descriptor format, FUA and Limited Retry of Copy.
const COPY: u32 = 0xc000_0fff;

pub(super) const FLUSH: u8 = 0x00;
pub(super) const WRITE: u8 = 0x01;
pub(super) const READ: u8 = 0x02;
pub(super) const COMPARE: u8 = 0x05;
pub(super) const MANAGE: u8 = 0x09;

/// All commands, by opcode.
#[rustfmt::skip]
static ROWS: [Row; 8] = [
    Row { opcode: FLUSH, cdw12: 0, direction: Direction::None, traits: ALL, handler: flush },
    Row { opcode: WRITE, cdw12: BLOCKS, direction: Direction::FromHost, traits: WRITES, handler: write },
    Row { opcode: READ, cdw12: BLOCKS, direction: Direction::ToHost, traits: 0, handler: read },
    Row { opcode: COMPARE, cdw12: BLOCKS, direction: Direction::FromHost, traits: 0, handler: compare::compare },
    Row { opcode: 0x08, cdw12: BLOCKS | DEAC, direction: Direction::None, traits: WRITES, handler: write_zeroes },
    Row { opcode: MANAGE, cdw12: u32::MAX, direction: Direction::FromHost, traits: WRITES, handler: dsm::manage },
    Row { opcode: 0x0c, cdw12: BLOCKS, direction: Direction::None, traits: 0, handler: compare::verify },
    Row { opcode: 0x19, cdw12: COPY, direction: Direction::FromHost, traits: WRITES, handler: copy::copy },
];

const NO_ROW: u8 = 0xff;

/// Where in the table an opcode is.
static INDEX: [u8; 256] = index();

const fn index() -> [u8; 256] {
    let mut index = [NO_ROW; 256];
    let mut i = 0;
    while i < ROWS.len() {
        index[ROWS[i].opcode as usize] = i as u8;
        i += 1;
    }
    index
}

/// The row of an opcode.
pub(super) fn find(opcode: u8) -> Result<&'static Row, Status> {
    ROWS.get(usize::from(INDEX[usize::from(opcode)])).ok_or(Status::INVALID_OPCODE)
}

/// Every command.
pub(super) fn rows() -> &'static [Row] {
    &ROWS
}

impl Row {
    /// What can be refused before the namespace is known.
    pub(super) fn check(&self, task: &Task) -> Result<(), Status> {
        let sqe = &task.sqe;
        if sqe.cdw(12) & !self.cdw12 != 0 || sqe.mptr() != 0 {
            return Err(Status::INVALID_FIELD);
        }
        match self.direction {
            Direction::None => task.expect_len(0, Direction::None),
            Direction::FromHost | Direction::ToHost => task.transfer.map(|_| ()),
        }
    }

    /// Whether it can change what is in blocks.
    pub(super) const fn changes_content(&self) -> bool {
        self.traits & WRITES != 0
    }

    pub(super) const fn is_for_all(&self) -> bool {
        self.traits & ALL != 0
    }

    pub(super) fn run(&self, call: &mut Call<'_>) -> Outcome {
        if self.traits & WRITES != 0 && call.namespace.is_read_only() {
            return Err(Status::WRITE_PROTECTED.into());
        }
        (self.handler)(call)
    }
}

/// Everything that the handler of a command for one namespace works on.
pub(super) struct Call<'a> {
    pub(super) namespace: &'a NamespaceConfig,
    pub(super) task: &'a mut Task,
    pub(super) memory: Memory<'a>,
    pub(super) limits: &'a Limits,
}

impl Call<'_> {
    pub(super) const fn info(&self) -> &VolumeInfo {
        &self.namespace.info
    }

    pub(super) const fn block_size(&self) -> u32 {
        self.namespace.info.block_size
    }

    /// A range, if it lies within the namespace.
    pub(super) fn in_range(&self, range: BlockRange) -> Result<BlockRange, Status> {
        if range.within(self.info().blocks) { Ok(range) } else { Err(Status::LBA_OUT_OF_RANGE) }
    }

    /// The blocks that the command names, and their bytes, for commands that move data: at most MDTS.
    pub(super) fn data_range(&self, direction: Direction) -> Result<(BlockRange, usize), Status> {
        let range = self.in_range(self.task.sqe.blocks())?;
        let len = range.count.bytes(self.block_size());
        if len > u64::from(self.limits.max_transfer) {
            return Err(Status::INVALID_FIELD);
        }
        self.task.expect_len(len, direction)?;
        Ok((range, len as usize))
    }

    pub(super) fn alloc(&mut self, len: usize) -> Result<BufId, Stop> {
        self.task.alloc(len, &mut self.memory)
    }

    pub(super) fn submit(&self, op: Op, then: Work) -> Outcome {
        Ok(Next::Submit { volume: self.namespace.volume, op, then })
    }
}

/// Flush of one namespace (NVMe base, Flush command).
fn flush(call: &mut Call<'_>) -> Outcome {
    call.submit(Op::Flush, Work::Succeed(None))
}

/// Read. FUA asks for the medium's own data; a cache of the disk holds nothing older, so a plain read does.
fn read(call: &mut Call<'_>) -> Outcome {
    let (range, len) = call.data_range(Direction::ToHost)?;
    let buf = call.alloc(len)?;
    let data = Some(ReplyData { buf, at: 0, len });
    call.submit(Op::Read { lba: range.start, count: range.count, buf }, Work::Succeed(data))
}

fn write(call: &mut Call<'_>) -> Outcome {
    let (range, len) = call.data_range(Direction::FromHost)?;
    let buf = call.alloc(len)?;
    let op = Op::Write { lba: range.start, count: range.count, fua: call.task.sqe.fua(), buf };
    Ok(Next::Receive { buf, at: 0, len, then: Work::Submit(call.namespace.volume, op) })
}

/// Write Zeroes. Deallocation only where the host asks for it by DEAC.
fn write_zeroes(call: &mut Call<'_>) -> Outcome {
    let sqe = &call.task.sqe;
    let (fua, may_unmap) = (sqe.fua(), sqe.cdw(12) & DEAC != 0);
    let range = call.in_range(sqe.blocks())?;
    if range.count.bytes(call.block_size()) > u64::from(identify::MAX_ZEROES) {
        return Err(Status::INVALID_FIELD.into());
    }
    let op = Op::WriteZeroes { lba: range.start, count: range.count, fua, may_unmap };
    call.submit(op, Work::Succeed(None))
}
