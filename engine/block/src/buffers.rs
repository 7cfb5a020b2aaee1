//! Aligned payload buffers under one byte budget.
//!
//! A buffer is named by a [`BufId`], so that the engine and the simulator handle a number. The bytes live in a [`BufPool`]
//! that belongs to one shard. A backend borrows a piece as an [`IoSlice`], which keeps the memory alive by itself: when a
//! buffer is freed while a disk still works on it (an aborted write on a stuck disk), its memory is neither returned to the
//! system nor handed out again before the last slice is dropped.
//!
//! Rules
//! * B1 A buffer's memory is handed out again only when no `IoSlice` of it exists.
//! * B2 Bytes of memory in use, lent memory of freed buffers included, never exceed the budget; `alloc` says `None` at it.
//! * B3 A `BufId` is used after `free` only by a bug of ours: that panics.

// The memory is shared with the kernel, and with disk threads, while the pool owns it: raw pointers are the honest type.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

/// Alignment of every buffer in bytes: enough for O_DIRECT on disks with 4096-byte blocks.
pub const BUFFER_ALIGNMENT: usize = 4096;

/// Names a buffer of a [`BufPool`]. The simulator makes its own numbers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BufId(pub u64);

/// A pool of aligned buffers. Single-threaded; its [`IoSlice`]s may travel.
#[derive(Debug)]
pub struct BufPool {
    slots: Vec<Slot>,
    vacant: Vec<u32>,
    /// Recycled memory by size class, ready to be handed out.
    spare: [Vec<Arc<Memory>>; CLASSES.len()],
    /// Memory of freed buffers that a disk still works on.
    lent: Vec<Arc<Memory>>,
    budget: usize,
    /// Bytes in slots, in `spare` and in `lent`.
    held: usize,
    spare_bytes: usize,
}

/// Sizes that are recycled. Larger requests get memory of their own, returned to the system when freed.
const CLASSES: [usize; 6] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20];

#[derive(Debug)]
struct Slot {
    generation: u32,
    memory: Option<Arc<Memory>>,
    len: usize,
}

impl BufPool {
    /// A pool that holds at most `budget` bytes. Nothing is allocated yet.
    pub fn new(budget: usize) -> Self {
        Self {
            slots: Vec::new(),
            vacant: Vec::new(),
            spare: Default::default(),
            lent: Vec::new(),
            budget,
            held: 0,
            spare_bytes: 0,
        }
    }

    /// A buffer of `len` bytes, or `None` when the budget is used up (B2). Its content is unspecified but initialised:
    /// zeroes or what an earlier user left, so a caller sends only bytes that it or a disk wrote.
    pub fn alloc(&mut self, len: usize) -> Option<BufId> {
        self.reclaim();
        let class = CLASSES.iter().position(|&c| len <= c);
        let recycled = class.and_then(|c| self.spare[c].pop());
        let memory = match recycled {
            Some(memory) => {
                self.spare_bytes -= memory.len();
                memory
            }
            None => {
                let size = class.map_or_else(|| len.next_multiple_of(BUFFER_ALIGNMENT), |c| CLASSES[c]);
                self.make_room(size)?;
                self.held += size;
                Arc::new(Memory::new(size))
            }
        };
        let index = self.vacant.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, memory: None, len: 0 });
            u32::try_from(self.slots.len() - 1).expect("fewer than 2^32 buffers fit in memory")
        });
        let slot = &mut self.slots[index as usize];
        slot.memory = Some(memory);
        slot.len = len;
        Some(BufId(u64::from(slot.generation) << 32 | u64::from(index)))
    }

    /// Like [`alloc`](Self::alloc), filled with zeroes.
    pub fn alloc_zeroed(&mut self, len: usize) -> Option<BufId> {
        let id = self.alloc(len)?;
        self.bytes_mut(id).fill(0);
        Some(id)
    }

    /// Gives the buffer back. Memory that a disk still works on stays out of use until it ends (B1).
    pub fn free(&mut self, id: BufId) {
        let index = self.index(id);
        let slot = &mut self.slots[index];
        slot.generation = slot.generation.wrapping_add(1);
        let memory = slot.memory.take().expect("index() checked that the slot is in use");
        self.vacant.push(index as u32);
        self.retire(memory);
    }

    /// Length in bytes, as asked of `alloc`.
    pub fn len_of(&self, id: BufId) -> usize {
        self.slots[self.index(id)].len
    }

    /// The bytes. Not to be called while a disk writes into the buffer.
    pub fn bytes(&self, id: BufId) -> &[u8] {
        let slot = &self.slots[self.index(id)];
        let memory = slot.memory.as_ref().expect("index() checked that the slot is in use");
        // SAFETY: the memory is `memory.len() >= slot.len` initialised bytes and lives as long as the slot, which `&self`
        // keeps from being freed. Nobody writes to it: the only writers are `bytes_mut`, which needs `&mut self`, and a
        // disk read, during which the caller of this function stays away (documented above).
        unsafe { std::slice::from_raw_parts(memory.start.as_ptr(), slot.len) }
    }

    /// The bytes, to fill. Not to be called while a disk works on the buffer.
    pub fn bytes_mut(&mut self, id: BufId) -> &mut [u8] {
        let index = self.index(id);
        let slot = &self.slots[index];
        let memory = slot.memory.as_ref().expect("index() checked that the slot is in use");
        // SAFETY: as in `bytes`, and `&mut self` excludes every other slice made by this pool.
        unsafe { std::slice::from_raw_parts_mut(memory.start.as_ptr(), slot.len) }
    }

    /// A piece for a disk to work on. Keeps the memory alive until dropped.
    pub fn slice(&self, id: BufId, range: Range<usize>) -> IoSlice {
        let slot = &self.slots[self.index(id)];
        assert!(range.start <= range.end && range.end <= slot.len, "slice {range:?} of a buffer of {} bytes", slot.len);
        let memory = slot.memory.clone().expect("index() checked that the slot is in use");
        IoSlice { memory, offset: range.start, len: range.end - range.start }
    }

    /// Bytes of memory that hold or may still receive payload; recycled memory that waits for a user does not count.
    pub fn in_use(&self) -> usize {
        let returned = self.lent.iter().filter(|m| Arc::strong_count(m) == 1);
        self.held - self.spare_bytes - returned.map(|m| m.len()).sum::<usize>()
    }

    /// The budget in bytes.
    pub const fn budget(&self) -> usize {
        self.budget
    }

    fn index(&self, id: BufId) -> usize {
        let index = (id.0 & 0xffff_ffff) as usize;
        let generation = (id.0 >> 32) as u32;
        let slot = self.slots.get(index).filter(|s| s.generation == generation && s.memory.is_some());
        assert!(slot.is_some(), "{id:?} is not a buffer in use");
        index
    }

    /// Moves lent memory whose disk has ended back into circulation.
    fn reclaim(&mut self) {
        let mut i = 0;
        while i < self.lent.len() {
            // Not `strong_count`, which does not order our use after that of the thread that held the slice.
            if Arc::get_mut(&mut self.lent[i]).is_some() {
                let memory = self.lent.swap_remove(i);
                self.retire(memory);
            } else {
                i += 1;
            }
        }
    }

    fn retire(&mut self, mut memory: Arc<Memory>) {
        if Arc::get_mut(&mut memory).is_none() {
            self.lent.push(memory);
            return;
        }
        match CLASSES.iter().position(|&c| c == memory.len()) {
            Some(class) => {
                self.spare_bytes += memory.len();
                self.spare[class].push(memory);
            }
            None => self.held -= memory.len(),
        }
    }

    /// Frees spare memory of other classes, largest first, until `size` more bytes fit in the budget.
    fn make_room(&mut self, size: usize) -> Option<()> {
        for class in (0..CLASSES.len()).rev() {
            while self.held + size > self.budget {
                let Some(memory) = self.spare[class].pop() else { break };
                self.spare_bytes -= memory.len();
                self.held -= memory.len();
            }
        }
        (self.held + size <= self.budget).then_some(())
    }
}

/// A piece of a buffer that a disk reads from or writes into.
#[derive(Clone, Debug)]
pub struct IoSlice {
    memory: Arc<Memory>,
    offset: usize,
    len: usize,
}

impl IoSlice {
    /// First byte. Valid for [`len`](Self::len) bytes while `self` (or a clone) lives.
    pub fn as_ptr(&self) -> *mut u8 {
        // SAFETY: `offset <= memory.len()` was checked when the slice was made.
        unsafe { self.memory.start.as_ptr().add(self.offset) }
    }

    /// Length in bytes.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there is nothing to move.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes, for a backend that reads them (a disk write). The engine issues no two ops that touch the same bytes of
    /// a buffer at once unless both only read it.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: in bounds (checked when made), initialised, alive while `self` lives; nobody writes (contract above).
        unsafe { std::slice::from_raw_parts(self.as_ptr(), self.len) }
    }

    /// Copies `bytes` into the slice from its start, for a backend that fills it (a disk read).
    pub fn fill_from(&self, bytes: &[u8]) {
        assert!(bytes.len() <= self.len, "{} bytes into a slice of {}", bytes.len(), self.len);
        // SAFETY: in bounds by the assertion; `bytes` cannot overlap, since no safe slice of this memory exists while a
        // disk works on it (contract of `BufPool::bytes`).
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.as_ptr(), bytes.len()) }
    }
}

#[derive(Debug)]
struct Memory {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: `Memory` is plain bytes without thread affinity; who may touch them when is the contract of `BufPool` and `IoSlice`.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    fn new(size: usize) -> Self {
        let layout = Layout::from_size_align(size.max(1), BUFFER_ALIGNMENT).expect("a buffer size fits in isize");
        // SAFETY: the layout has a non-zero size.
        let start = unsafe { alloc_zeroed(layout) };
        let Some(start) = NonNull::new(start) else { handle_alloc_error(layout) };
        Self { start, layout }
    }

    const fn len(&self) -> usize {
        self.layout.size()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout, freed once.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_and_recycled_within_the_budget() {
        let mut pool = BufPool::new(128 << 10);
        let a = pool.alloc(5000).unwrap();
        assert_eq!(pool.slice(a, 0..5000).as_ptr() as usize % BUFFER_ALIGNMENT, 0);
        assert_eq!(pool.in_use(), 16 << 10);
        pool.free(a);
        assert_eq!(pool.in_use(), 0);
        let all: Vec<_> = std::iter::from_fn(|| pool.alloc(64 << 10)).collect();
        assert_eq!(all.len(), 2, "spare memory of another class makes room, the budget holds");
        assert_eq!(pool.alloc(1), None);
    }

    #[test]
    fn lent_memory_is_neither_reused_nor_forgotten() {
        let mut pool = BufPool::new(8 << 10);
        let a = pool.alloc(4096).unwrap();
        let slice = pool.slice(a, 0..4096);
        pool.free(a);
        assert_eq!(pool.in_use(), 4096, "still lent");
        let b = pool.alloc(4096).unwrap();
        assert_ne!(pool.slice(b, 0..1).as_ptr(), slice.as_ptr());
        assert_eq!(pool.alloc(4096), None, "lent memory counts against the budget");
        drop(slice);
        assert_eq!(pool.in_use(), 4096, "only the second one");
        assert!(pool.alloc(4096).is_some());
    }

    #[test]
    #[should_panic(expected = "not a buffer in use")]
    fn a_stale_id_panics() {
        let mut pool = BufPool::new(8 << 10);
        let a = pool.alloc(1).unwrap();
        pool.free(a);
        let _ = pool.alloc(1);
        pool.bytes(a);
    }
}
