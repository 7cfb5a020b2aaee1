//! What the kernel says, once, as a [`Status`].

use platter_block::{Lba, Status};
use rustix::io::Errno;

/// The end of a read, write or other op on blocks that failed with `errno` at `lba`: the first block not known to be done.
pub(crate) fn status(errno: Errno, lba: Lba) -> Status {
    match errno {
        Errno::NOSPC | Errno::DQUOT => Status::NoSpace,
        Errno::ROFS | Errno::PERM => Status::WriteProtected,
        Errno::NODEV | Errno::NXIO => Status::Gone,
        Errno::OPNOTSUPP => Status::Unsupported,
        Errno::AGAIN | Errno::NOMEM | Errno::NOBUFS => Status::Busy,
        _ => Status::MediumError { lba },
    }
}

/// The end of a flush that failed with `errno`. Every failure means lost durability, "no space" and "try again" too: what
/// was cached may be gone, and the next flush may say that all is well.
pub(crate) fn flush_status(errno: Errno) -> Status {
    match errno {
        Errno::NODEV | Errno::NXIO => Status::Gone,
        _ => Status::DurabilityLost,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_space_is_no_space_for_a_write_and_lost_durability_for_a_flush() {
        assert_eq!(status(Errno::NOSPC, Lba(7)), Status::NoSpace);
        assert_eq!(status(Errno::DQUOT, Lba(7)), Status::NoSpace);
        assert_eq!(status(Errno::IO, Lba(7)), Status::MediumError { lba: Lba(7) });
        assert_eq!(status(Errno::TIMEDOUT, Lba(7)), Status::MediumError { lba: Lba(7) });
        for errno in [Errno::NOSPC, Errno::DQUOT, Errno::IO, Errno::ROFS, Errno::AGAIN, Errno::TIMEDOUT] {
            assert_eq!(flush_status(errno), Status::DurabilityLost);
        }
        assert_eq!(flush_status(Errno::NODEV), Status::Gone);
    }
}
