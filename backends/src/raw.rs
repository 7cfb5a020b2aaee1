//! System calls that take raw memory or raw arguments: the `unsafe` of the blocking side, in one place.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;
use std::os::fd::AsFd;

use platter_block::IoSlice;
use rustix::io::Errno;

/// Reads at `offset` into `slice` from byte `from` on. May be short; 0 is the end of the file.
pub(crate) fn pread(fd: impl AsFd, slice: &IoSlice, from: usize, offset: u64) -> Result<usize, Errno> {
    assert!(from <= slice.len(), "byte {from} of a slice of {}", slice.len());
    // SAFETY: `from..len` is in bounds by the assertion and alive while `slice` is borrowed. Nobody else touches the bytes
    // of a slice that a disk reads into (contract of `IoSlice`), so this is the only reference; the kernel only writes.
    let bytes = unsafe {
        std::slice::from_raw_parts_mut(slice.as_ptr().add(from).cast::<MaybeUninit<u8>>(), slice.len() - from)
    };
    rustix::io::pread(fd, bytes, offset).map(|(read, _)| read.len())
}

/// Discards `len` bytes at `offset` of a block device (the `BLKDISCARD` ioctl).
pub(crate) fn block_discard(fd: impl AsFd, offset: u64, len: u64) -> Result<(), Errno> {
    const BLKDISCARD: rustix::ioctl::Opcode = rustix::ioctl::opcode::none(0x12, 119);
    // SAFETY: BLKDISCARD reads two u64, start and length in bytes, through its argument, and nothing else of this process.
    // A descriptor that is no block device answers ENOTTY.
    unsafe {
        let setter = rustix::ioctl::Setter::<BLKDISCARD, [u64; 2]>::new([offset, len]);
        rustix::ioctl::ioctl(fd, setter)
    }
}
