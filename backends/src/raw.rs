//! System calls that take raw memory or raw arguments: the `unsafe` of the blocking side, in one place.
#![allow(unsafe_code)]

use std::ffi::{c_long, c_ulong};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;

use platter_block::IoSlice;
use rustix::io::{Errno, ReadWriteFlags};

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

/// A context of Linux native AIO (io_setup(2)), for one write at a time.
#[derive(Debug)]
pub(crate) struct Aio {
    /// The kernel's name for it.
    context: c_ulong,
}

impl Aio {
    /// A new context.
    ///
    /// # Errors
    ///
    /// Whatever keeps any of its calls from working: a kernel without AIO or a filter (`ENOSYS`, `EPERM`), the limit of the
    /// whole system (`EAGAIN`, `fs.aio-max-nr`).
    pub(crate) fn new() -> Result<Self, Errno> {
        let (requests, mut context): (c_long, c_ulong) = (1, 0);
        // SAFETY: io_setup takes a number and writes one word through the pointer.
        answer(unsafe { libc::syscall(libc::SYS_io_setup, requests, &raw mut context) })?;
        let mut aio = Self { context };
        // A filter may refuse some of the calls only: better known now, with nothing to do, than with a write on its way.
        // SAFETY: there is no request.
        unsafe { aio.submit(None)? };
        aio.next_event(0)?;
        Ok(aio)
    }

    /// Writes `slice` from byte `from` on at `offset` with `RWF_DSYNC`, and waits for the end. May be short.
    pub(crate) fn write_dsync(
        &mut self,
        fd: impl AsFd,
        slice: &IoSlice,
        from: usize,
        offset: u64,
    ) -> Result<usize, Errno> {
        let bytes = &slice.bytes()[from..];
        let request = Request {
            rw_flags: ReadWriteFlags::DSYNC.bits(),
            opcode: PWRITE,
            fd: fd.as_fd().as_raw_fd().cast_unsigned(),
            start: bytes.as_ptr() as u64,
            len: bytes.len() as u64,
            offset: offset.cast_signed(),
            ..Request::default()
        };
        // SAFETY: the memory is alive while `slice` is borrowed, and the borrow lasts until the event is there, or else the
        // memory is leaked below. Nobody writes into it meanwhile (contract of `IoSlice`).
        unsafe { self.submit(Some(request))? };
        let event = loop {
            match self.next_event(1) {
                Ok(Some(event)) => break event,
                Err(Errno::INTR) => {}
                unexpected => {
                    std::mem::forget(slice.clone());
                    panic!("the kernel does not tell how a write ended: {unexpected:?}");
                }
            }
        };
        usize::try_from(event.result).map_err(|_| Errno::from_raw_os_error(-event.result as i32))
    }

    /// Hands one request to the kernel, or none.
    ///
    /// # Safety
    ///
    /// The memory that the request names must stay alive, and unchanged, until its event is there.
    unsafe fn submit(&mut self, mut request: Option<Request>) -> Result<(), Errno> {
        let mut list = [request.as_mut().map_or(ptr::null_mut(), ptr::from_mut)];
        let count = c_long::from(!list[0].is_null());
        // SAFETY: io_submit takes `count` pointers, and reads and writes the request that each points to. All of that is
        // alive here and done with when the call returns. The memory is the caller's promise; the kernel holds the file.
        let taken = answer(unsafe { libc::syscall(libc::SYS_io_submit, self.context, count, list.as_mut_ptr()) })?;
        assert_eq!(taken as c_long, count, "io_submit takes a request or says why not");
        Ok(())
    }

    /// The next event, after waiting for it if `least` is 1. `None` if `least` is 0 and there is none.
    fn next_event(&mut self, least: c_long) -> Result<Option<Event>, Errno> {
        let (most, mut event): (c_long, _) = (1, Event::default());
        let no_limit = ptr::null_mut::<libc::timespec>();
        // SAFETY: io_getevents writes at most `most` events through the pointer. No time limit is a null pointer.
        let count = answer(unsafe {
            libc::syscall(libc::SYS_io_getevents, self.context, least, most, &raw mut event, no_limit)
        })?;
        Ok((count > 0).then_some(event))
    }
}

impl Drop for Aio {
    fn drop(&mut self) {
        // SAFETY: io_destroy takes the name of a context. It waits for what is still in the kernel.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.context) };
    }
}

/// `IOCB_CMD_PWRITE`.
const PWRITE: u16 = 1;

/// What io_submit(2) takes: `struct iocb` of `linux/aio_abi.h`.
#[derive(Debug, Default)]
#[repr(C)]
struct Request {
    /// Comes back in the event.
    data: u64,
    /// The kernel's own.
    #[cfg(target_endian = "little")]
    key: u32,
    /// `RWF_*` as for pwritev2(2).
    rw_flags: u32,
    #[cfg(target_endian = "big")]
    key: u32,
    /// `IOCB_CMD_*`.
    opcode: u16,
    /// Only with a flag.
    priority: i16,
    /// File to write to.
    fd: u32,
    /// Address of the memory.
    start: u64,
    /// Bytes to write.
    len: u64,
    /// Byte of the file to write at.
    offset: i64,
    /// 0.
    reserved: u64,
    /// `IOCB_FLAG_*`.
    flags: u32,
    /// An eventfd to signal. Only with a flag.
    event_fd: u32,
}

/// What io_getevents(2) gives: `struct io_event` of `linux/aio_abi.h`.
#[derive(Debug, Default)]
#[repr(C)]
struct Event {
    /// As in the request.
    data: u64,
    /// Address of the request.
    request: u64,
    /// Bytes written, or an error number below 0.
    result: i64,
    /// 0.
    result2: i64,
}

/// What a system call answered: a number, or -1 and the reason in `errno`.
fn answer(returned: c_long) -> Result<usize, Errno> {
    usize::try_from(returned).map_err(|_| {
        let error = io::Error::last_os_error();
        Errno::from_io_error(&error).expect("an error of the system has a number")
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    use platter_block::BufPool;

    use super::*;

    /// Runs `task` on a thread of its own, on which `call` is refused as a container's filter refuses calls.
    pub(crate) fn without<T: Send>(call: c_long, task: impl FnOnce() -> T + Send) -> T {
        const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
        const IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
        const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
        let refuse = || {
            let step = |code, jt, k| libc::sock_filter { code, jt, jf: 0, k };
            let mut steps = [
                step(LOAD, 0, 0),
                libc::sock_filter { jf: 1, ..step(IF_EQUAL, 0, call as u32) },
                step(RETURN, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
                step(RETURN, 0, libc::SECCOMP_RET_ALLOW),
            ];
            let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
            // SAFETY: the first takes numbers only, the second reads `program` and the steps it points to, which are alive.
            unsafe {
                assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
                assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program), 0);
            }
        };
        std::thread::scope(|scope| {
            let thread = scope.spawn(move || {
                refuse();
                task()
            });
            thread.join().unwrap()
        })
    }

    fn slice(bytes: &[u8]) -> IoSlice {
        let mut pool = BufPool::new(1 << 20);
        let buf = pool.alloc(bytes.len()).unwrap();
        pool.bytes_mut(buf).copy_from_slice(bytes);
        pool.slice(buf, 0..bytes.len())
    }

    #[test]
    fn the_structures_are_as_long_as_the_kernels() {
        assert_eq!((size_of::<Request>(), size_of::<Event>()), (64, 32));
    }

    #[test]
    fn aio_writes_what_is_left_where_it_belongs_one_write_after_the_other() {
        let Ok(mut aio) = Aio::new() else { return };
        let file = tempfile::tempfile().unwrap();
        assert_eq!(aio.write_dsync(&file, &slice(b"abcdef"), 2, 3), Ok(4));
        assert_eq!(aio.write_dsync(&file, &slice(b"xy"), 0, 4), Ok(2));
        let mut found = [1; 7];
        file.read_exact_at(&mut found, 0).unwrap();
        assert_eq!(&found, b"\0\0\0cxyf");
    }

    #[test]
    fn aio_tells_why_a_write_failed_and_goes_on() {
        let Ok(mut aio) = Aio::new() else { return };
        let file = tempfile::NamedTempFile::new().unwrap();
        let read_only = File::open(file.path()).unwrap();
        // The first is refused when it is submitted, the second ends so.
        assert_eq!(aio.write_dsync(&read_only, &slice(b"a"), 0, 0), Err(Errno::BADF));
        assert_eq!(aio.write_dsync(&file, &slice(b"a"), 0, i64::MAX as u64 - 4096), Err(Errno::FBIG));
        assert_eq!(aio.write_dsync(&file, &slice(b"a"), 0, 0), Ok(1));
    }

    #[test]
    fn there_is_no_context_where_any_of_its_calls_is_refused() {
        for call in [libc::SYS_io_setup, libc::SYS_io_submit, libc::SYS_io_getevents] {
            assert!(without(call, || Aio::new().is_err()), "call {call}");
        }
    }
}
