//! What happened, as lines of text: hashed always, kept when someone wants to read it. Two runs are the same run exactly
//! when their hashes are.

use std::fmt::{self, Write as _};

use platter_block::{BlockCount, DiskOp, Instant, Lba, Op};

/// The lines of one run.
#[derive(Debug)]
pub struct Trace {
    hash: Fnv,
    text: Option<String>,
}

impl Trace {
    /// An empty trace that keeps its text if `keep`.
    pub fn new(keep: bool) -> Self {
        Self { hash: Fnv(0xcbf2_9ce4_8422_2325), text: keep.then(String::new) }
    }

    /// Adds a line. `what` is a word that says who acts.
    pub fn line(&mut self, at: Instant, what: &str, details: fmt::Arguments<'_>) {
        // Neither sink can fail.
        let _ = writeln!(self.hash, "{} {what} {details}", at.0);
        if let Some(text) = &mut self.text {
            let _ = writeln!(text, "{:>12}.{:03} us {what:<8} {details}", at.0 / 1000, at.0 % 1000);
        }
    }

    /// Hash of all lines so far.
    pub const fn hash(&self) -> u64 {
        self.hash.0
    }

    /// The text, if it was kept.
    pub fn into_text(self) -> Option<String> {
        self.text
    }
}

/// FNV-1a, 64 bits.
#[derive(Debug)]
struct Fnv(u64);

impl fmt::Write for Fnv {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        for &byte in s.as_bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        Ok(())
    }
}

/// An op in few words, such as `write 12+4 fua b7`.
pub struct Brief<T>(pub T);

impl fmt::Display for Brief<&Op> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self.0 {
            Op::Read { lba, count, buf } => write!(f, "read {} b{}", Range(lba, count), buf.0),
            Op::Write { lba, count, fua, buf } => write!(f, "write {}{} b{}", Range(lba, count), Flag(fua), buf.0),
            Op::Flush => f.write_str("flush"),
            Op::WriteZeroes { lba, count, fua, may_unmap } => {
                let unmap = if may_unmap { " may-unmap" } else { "" };
                write!(f, "zero {}{}{unmap}", Range(lba, count), Flag(fua))
            }
            Op::Unmap { lba, count } => write!(f, "unmap {}", Range(lba, count)),
            Op::CompareAndWrite { lba, count, fua, buf } => {
                write!(f, "compare-and-write {}{} b{}", Range(lba, count), Flag(fua), buf.0)
            }
            Op::OrWrite { lba, count, fua, buf } => write!(f, "or-write {}{} b{}", Range(lba, count), Flag(fua), buf.0),
            Op::BlockStatus { lba, count } => write!(f, "block-status {}", Range(lba, count)),
            Op::SetWriteCache { enabled } => write!(f, "write-cache {}", if enabled { "on" } else { "off" }),
        }
    }
}

impl fmt::Display for Brief<&DiskOp> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self.0 {
            DiskOp::Read { lba, count, buf, at } => write!(f, "read {} b{}@{at}", Range(lba, count), buf.0),
            DiskOp::Write { lba, count, fua, buf, at } => {
                write!(f, "write {}{} b{}@{at}", Range(lba, count), Flag(fua), buf.0)
            }
            DiskOp::Flush => f.write_str("flush"),
            DiskOp::WriteZeroes { lba, count, may_unmap } => {
                write!(f, "zero {}{}", Range(lba, count), if may_unmap { " may-unmap" } else { "" })
            }
            DiskOp::Unmap { lba, count } => write!(f, "unmap {}", Range(lba, count)),
            DiskOp::BlockStatus { lba, count } => write!(f, "block-status {}", Range(lba, count)),
        }
    }
}

struct Range(Lba, BlockCount);

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", self.0, self.1)
    }
}

struct Flag(bool);

impl fmt::Display for Flag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0 { " fua" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_depends_on_time_and_text_and_not_on_keeping_it() {
        let of = |keep, at, word| {
            let mut trace = Trace::new(keep);
            trace.line(Instant(at), "disk", format_args!("{word}"));
            trace.hash()
        };
        assert_eq!(of(true, 1, "a"), of(false, 1, "a"));
        assert_ne!(of(true, 1, "a"), of(true, 2, "a"));
        assert_ne!(of(true, 1, "a"), of(true, 1, "b"));
    }
}
