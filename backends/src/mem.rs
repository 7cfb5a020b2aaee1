//! Disks in memory, for demonstrations and tests. Every op ends within `submit`.

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;

use platter_block::{BlockCount, BlockRange, DiskId, DiskInfo, DiskOp, Extent, IoId, IoSlice, Lba, Report, Status};

use crate::{Backend, Ended, MAX_EXTENTS, MAX_IN_FLIGHT};

/// Disks in memory: sparse, and gone with the process.
///
/// A disk is whatever its [`DiskInfo`] says, a volatile cache included; the memory keeps every write at once, so a flush
/// has nothing to do. [`Backend::event_fd`] is `None`: reap right after kick.
#[derive(Debug, Default)]
pub struct Mem {
    disks: BTreeMap<DiskId, MemDisk>,
    ended: Vec<Ended>,
}

/// Bytes that are allocated together. A multiple of every block size.
const CHUNK: usize = 64 << 10;

#[derive(Debug)]
struct MemDisk {
    info: DiskInfo,
    /// By number; a missing chunk reads as zeroes. A block is deallocated only as part of a whole chunk.
    chunks: BTreeMap<u64, Box<[u8]>>,
}

impl Mem {
    /// No disks yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Add an empty disk: all zeroes, nothing allocated.
    ///
    /// # Panics
    ///
    /// If `disk` is in use, or the block size is not a power of two from 512 to 65536.
    pub fn add(&mut self, disk: DiskId, info: DiskInfo) {
        assert!(
            info.block_size.is_power_of_two() && (512..=CHUNK as u32).contains(&info.block_size),
            "block size {}",
            info.block_size
        );
        let before = self.disks.insert(disk, MemDisk { info, chunks: BTreeMap::new() });
        assert!(before.is_none(), "{disk:?} is in use");
    }

    /// Forget a disk and its content. Returns whether there was one. Ops that ended before keep their status.
    pub fn remove(&mut self, disk: DiskId) -> bool {
        self.disks.remove(&disk).is_some()
    }

    /// Bytes of memory that hold blocks of `disk`.
    pub fn allocated(&self, disk: DiskId) -> usize {
        self.disks.get(&disk).map_or(0, |d| d.chunks.len() * CHUNK)
    }
}

impl Backend for Mem {
    fn submit(&mut self, io: IoId, disk: DiskId, op: DiskOp, data: Option<IoSlice>) {
        if self.ended.len() >= MAX_IN_FLIGHT {
            self.ended.push(Ended::new(io, disk, Status::Busy));
            return;
        }
        let (status, report) = match self.disks.get_mut(&disk) {
            Some(served) => served.run(op, data),
            None => (Status::Gone, None),
        };
        self.ended.push(Ended { io, disk, status, report });
    }

    fn kick(&mut self) {}

    fn reap(&mut self, ended: &mut Vec<Ended>) {
        ended.append(&mut self.ended);
    }

    fn event_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn in_flight(&self) -> usize {
        self.ended.len()
    }
}

impl MemDisk {
    fn run(&mut self, op: DiskOp, data: Option<IoSlice>) -> (Status, Option<Box<Report>>) {
        if let Err(status) = crate::job::check(&self.info, &op, data.as_ref()) {
            return (status, None);
        }
        let mut report = None;
        match op {
            DiskOp::Read { lba, .. } => self.read(lba, &data.expect("check() saw the data")),
            DiskOp::Write { lba, .. } => self.write(lba, data.expect("check() saw the data").bytes()),
            DiskOp::Flush => {}
            DiskOp::WriteZeroes { lba, count, .. } | DiskOp::Unmap { lba, count } => self.zero(lba, count),
            DiskOp::BlockStatus { lba, count } => {
                report = Some(Box::new(Report::Extents(self.extents(BlockRange::new(lba, count)))));
            }
        }
        (Status::Good, report)
    }

    fn read(&self, lba: Lba, into: &IoSlice) {
        static ZEROES: [u8; CHUNK] = [0; CHUNK];
        let mut bytes = Vec::with_capacity(into.len());
        for piece in pieces(self.offset(lba), into.len() as u64) {
            let chunk = self.chunks.get(&piece.chunk).map_or(&ZEROES[..], |c| c);
            bytes.extend_from_slice(&chunk[piece.start..piece.end]);
        }
        into.fill_from(&bytes);
    }

    fn write(&mut self, lba: Lba, mut bytes: &[u8]) {
        for piece in pieces(self.offset(lba), bytes.len() as u64) {
            let chunk = self.chunks.entry(piece.chunk).or_insert_with(|| vec![0; CHUNK].into_boxed_slice());
            let (now, rest) = bytes.split_at(piece.end - piece.start);
            chunk[piece.start..piece.end].copy_from_slice(now);
            bytes = rest;
        }
    }

    fn zero(&mut self, lba: Lba, count: BlockCount) {
        for piece in pieces(self.offset(lba), count.bytes(self.info.block_size)) {
            if piece.end - piece.start == CHUNK {
                self.chunks.remove(&piece.chunk);
            } else if let Some(chunk) = self.chunks.get_mut(&piece.chunk) {
                chunk[piece.start..piece.end].fill(0);
            }
        }
    }

    fn extents(&self, range: BlockRange) -> Vec<Extent> {
        let mut extents: Vec<Extent> = Vec::new();
        let mut lba = range.start;
        for piece in pieces(self.offset(range.start), range.count.bytes(self.info.block_size)) {
            let mapped = self.chunks.contains_key(&piece.chunk);
            let count = ((piece.end - piece.start) / self.info.block_size as usize) as u32;
            if let Some(last) = extents.last_mut().filter(|last| last.mapped == mapped) {
                last.count.0 += count;
            } else if extents.len() == MAX_EXTENTS {
                break;
            } else {
                extents.push(Extent { lba, count: BlockCount(count), mapped });
            }
            lba.0 += u64::from(count);
        }
        extents
    }

    const fn offset(&self, lba: Lba) -> u64 {
        lba.0 * self.info.block_size as u64
    }
}

/// Bytes `start..end` of one chunk.
struct Piece {
    chunk: u64,
    start: usize,
    end: usize,
}

/// The bytes `offset .. offset + len` of a disk, cut at chunk ends.
fn pieces(offset: u64, len: u64) -> impl Iterator<Item = Piece> {
    let end = offset + len;
    let mut at = offset;
    std::iter::from_fn(move || {
        let chunk = at / CHUNK as u64;
        let start = (at % CHUNK as u64) as usize;
        let piece_end = CHUNK.min(start + usize::try_from(end - at).unwrap_or(usize::MAX - CHUNK));
        at += (piece_end - start) as u64;
        (piece_end > start).then_some(Piece { chunk, start, end: piece_end })
    })
}
