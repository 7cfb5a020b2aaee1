//! What crosses the border between a transport and the device server: a command in, steps and one reply out.

use platter_block::{BufId, Op, VolumeId};

use super::sense::SenseData;

/// A SCSI command as the transport received it (SAM-5 5.1, Execute Command).
#[derive(Clone, Copy, Debug)]
pub struct Command<'a> {
    /// The eight bytes of the LUN field (SAM-5 4.7), not yet interpreted.
    pub lun: [u8; 8],
    /// The CDB: 16 bytes, or more for an extended one. Shorter ones are taken as padded with zeroes.
    pub cdb: &'a [u8],
    /// Task attribute.
    pub attribute: Attribute,
    /// Bytes the initiator is ready to send: the Expected Data Transfer Length of a command with W=1, else 0.
    pub out_len: u32,
    /// Bytes the initiator is ready to receive: the Expected Data Transfer Length of a command with R=1, else 0.
    pub in_len: u32,
}

/// Task attribute (SAM-5 8.2; RFC 7143 11.3.1, ATTR).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Attribute {
    /// Treated as [`Simple`](Self::Simple).
    Untagged,
    /// May be reordered with other simple tasks.
    Simple,
    /// Starts after everything older, and before everything younger.
    Ordered,
    /// Starts at once.
    HeadOfQueue,
    /// Only valid during an ACA condition, which this device server never has: refused.
    Aca,
}

/// What a command wants next.
#[derive(Debug)]
#[must_use = "a command waits until its step is done"]
pub enum Step {
    /// Get `len` bytes (1 to `out_len`) from the initiator into `buf[0..len]`, then call [`received`](super::Device::received).
    Receive {
        /// Where to; stays owned by the task.
        buf: BufId,
        /// How many bytes.
        len: usize,
    },
    /// Run `op` on `volume`, then call [`completed`](super::Device::completed).
    Submit {
        /// The volume behind the logical unit.
        volume: VolumeId,
        /// What to do.
        op: Op,
    },
    /// The command has ended; the task holds no buffer any more.
    Reply(Reply),
}

/// The one end of a command.
#[derive(Debug)]
pub struct Reply {
    /// Status byte.
    pub status: ScsiStatus,
    /// Autosense, present exactly with [`ScsiStatus::CHECK_CONDITION`]; encoded as D_SENSE of the unit says.
    pub sense: Option<SenseData>,
    /// Data-In, not longer than the allocation length. The transport cuts it to what the initiator expects, sends it and
    /// frees the buffer.
    pub data: Option<DataIn>,
    /// Data-Out bytes that the CDB asks for, whatever the initiator offered: the transport compares it with `out_len` of the
    /// command to report residuals (RFC 7143 11.4.5.1). Zero when the command was refused.
    pub out_transfer: u64,
    /// Data-In bytes that the command has to send, whatever the initiator expects; likewise for `in_len`.
    pub in_transfer: u64,
}

/// A piece of a buffer to send. Whoever holds it frees the buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DataIn {
    /// The buffer, now owned by the transport.
    pub buf: BufId,
    /// First byte.
    pub at: usize,
    /// How many bytes, at least 1.
    pub len: usize,
}

/// Status byte (SAM-5 5.3.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ScsiStatus(pub u8);

impl ScsiStatus {
    /// Done.
    pub const GOOD: Self = Self(0x00);
    /// Sense data tell why not.
    pub const CHECK_CONDITION: Self = Self(0x02);
    /// PRE-FETCH: everything asked for fits in the cache.
    pub const CONDITION_MET: Self = Self(0x04);
    /// Try again later.
    pub const BUSY: Self = Self(0x08);
    /// Another I_T nexus holds the reservation.
    pub const RESERVATION_CONFLICT: Self = Self(0x18);
    /// No room for one more task now.
    pub const TASK_SET_FULL: Self = Self(0x28);
}
