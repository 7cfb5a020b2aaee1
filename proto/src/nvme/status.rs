//! The Status field of a completion queue entry.

use platter_block::Status as OpStatus;

/// SCT, SC, More and DNR as in CQE Dword 3 bits 31:17, so bit 0 is the lowest bit of SC (NVMe base, Status Field).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Status(pub u16);

impl Status {
    /// 0/00h.
    pub const SUCCESS: Self = Self(0);

    /// `sct` 0 to 7, `sc` as the specification numbers it; DNR set.
    pub const fn new(sct: u8, sc: u8) -> Self {
        Self(1 << 14 | (sct as u16) << 8 | sc as u16)
    }

    /// The same without Do Not Retry.
    #[must_use]
    pub const fn retryable(self) -> Self {
        Self(self.0 & !(1 << 14))
    }

    /// SCT << 8 | SC, for logs.
    pub(super) const fn code(self) -> u16 {
        self.0 & 0x7ff
    }
}

/// Generic command status (NVMe base, Generic Command Status Definition).
impl Status {
    pub(super) const INVALID_OPCODE: Self = Self::new(0, 0x01);
    pub(super) const INVALID_FIELD: Self = Self::new(0, 0x02);
    pub(super) const CID_CONFLICT: Self = Self::new(0, 0x03);
    pub(super) const INTERNAL: Self = Self::new(0, 0x06);
    /// To be retried: Linux hosts abort what takes long, and give an error up to the file system only for DNR.
    pub(super) const ABORTED: Self = Self::new(0, 0x07).retryable();
    /// To be retried, as the other command of the pair may be.
    pub(super) const FAILED_FUSED: Self = Self::new(0, 0x09).retryable();
    pub(super) const MISSING_FUSED: Self = Self::new(0, 0x0a);
    pub(super) const INVALID_NAMESPACE: Self = Self::new(0, 0x0b);
    pub(super) const SEQUENCE_ERROR: Self = Self::new(0, 0x0c);
    pub(super) const SGL_LENGTH_INVALID: Self = Self::new(0, 0x0f);
    pub(super) const SGL_TYPE_INVALID: Self = Self::new(0, 0x11);
    pub(super) const ATOMIC_UNIT_EXCEEDED: Self = Self::new(0, 0x14);
    pub(super) const KEEP_ALIVE_INVALID: Self = Self::new(0, 0x1a);
    pub(super) const WRITE_PROTECTED: Self = Self::new(0, 0x20);
    /// To be retried.
    pub(super) const INTERRUPTED: Self = Self::new(0, 0x21).retryable();
    pub(super) const LBA_OUT_OF_RANGE: Self = Self::new(0, 0x80);
    pub(super) const CAPACITY_EXCEEDED: Self = Self::new(0, 0x81);
    /// To be retried.
    pub(super) const NOT_READY: Self = Self::new(0, 0x82).retryable();
}

/// Command specific status: of the base specification, of fabrics, of the NVM command set.
impl Status {
    pub(super) const ABORT_LIMIT: Self = Self::new(1, 0x03);
    pub(super) const EVENT_LIMIT: Self = Self::new(1, 0x05);
    pub(super) const INVALID_LOG_PAGE: Self = Self::new(1, 0x09);
    pub(super) const NOT_SAVEABLE: Self = Self::new(1, 0x0d);
    pub(super) const NOT_CHANGEABLE: Self = Self::new(1, 0x0e);
    pub(super) const NOT_PER_NAMESPACE: Self = Self::new(1, 0x0f);
    pub(super) const CONNECT_FORMAT: Self = Self::new(1, 0x80);
    /// To be retried.
    pub(super) const CONNECT_BUSY: Self = Self::new(1, 0x81).retryable();
    /// Also of Property Get and Set.
    pub(super) const CONNECT_INVALID: Self = Self::new(1, 0x82);
    pub(super) const INVALID_QUEUE_TYPE: Self = Self::new(1, 0x85);
    pub(super) const COMMAND_SIZE_LIMIT: Self = Self::new(1, 0x83);
    pub(super) const OVERLAPPING_RANGE: Self = Self::new(1, 0x87);
}

/// Media and data integrity errors, and path related status. Those of ANA are retried on another path, or on this one later.
impl Status {
    pub(super) const WRITE_FAULT: Self = Self::new(2, 0x80);
    pub(super) const UNRECOVERED_READ: Self = Self::new(2, 0x81);
    pub(super) const COMPARE_FAILURE: Self = Self::new(2, 0x85);
    pub(super) const INTERNAL_PATH: Self = Self::new(3, 0x00).retryable();
    pub(super) const ANA_PERSISTENT_LOSS: Self = Self::new(3, 0x01);
    pub(super) const ANA_INACCESSIBLE: Self = Self::new(3, 0x02).retryable();
    pub(super) const ANA_TRANSITION: Self = Self::new(3, 0x03).retryable();
}

impl Status {
    /// How the end of an op is told; `writes` if the op could change the medium.
    pub(super) const fn of(status: OpStatus, writes: bool) -> Self {
        match status {
            OpStatus::Good => Self::SUCCESS,
            OpStatus::LbaOutOfRange => Self::LBA_OUT_OF_RANGE,
            OpStatus::MediumError { .. } if writes => Self::WRITE_FAULT,
            OpStatus::MediumError { .. } => Self::UNRECOVERED_READ,
            OpStatus::WriteProtected => Self::WRITE_PROTECTED,
            OpStatus::NoSpace => Self::CAPACITY_EXCEEDED,
            OpStatus::Busy => Self::INTERRUPTED,
            OpStatus::MiscompareAt { .. } => Self::COMPARE_FAILURE,
            OpStatus::NotReady | OpStatus::Gone => Self::NOT_READY,
            OpStatus::Aborted => Self::ABORTED,
            OpStatus::DurabilityLost => Self::INTERNAL,
            OpStatus::Unsupported => Self::INVALID_OPCODE,
        }
    }
}
