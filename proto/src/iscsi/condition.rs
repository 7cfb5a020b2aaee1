//! What a command is answered, by the device server or by this layer (11.4.7.2).

use platter_block::BufPool;

use crate::scsi::{DataIn, Reply, ScsiStatus};

/// The end of a command.
#[derive(Debug)]
pub(super) enum Verdict {
    /// From the device server.
    Reply(Reply),
    /// CHECK CONDITION from this layer.
    Condition(Condition),
    /// There is no memory for its data, or no room in the task set.
    TaskSetFull,
}

/// Why this layer ends a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Condition {
    /// Unsolicited data that were not agreed upon.
    UnexpectedUnsolicitedData,
    /// More or less data than asked for.
    IncorrectAmount,
    /// A Data-Out PDU was lost or damaged.
    ProtocolServiceCrc,
    /// R=W=1: no command of any unit is bidirectional.
    Bidirectional,
}

impl Condition {
    /// Sense key, additional sense code and qualifier.
    const fn sense(self) -> [u8; 3] {
        const ILLEGAL_REQUEST: u8 = 0x05;
        const ABORTED_COMMAND: u8 = 0x0b;
        match self {
            Self::UnexpectedUnsolicitedData => [ABORTED_COMMAND, 0x0c, 0x0c],
            Self::IncorrectAmount => [ABORTED_COMMAND, 0x0c, 0x0d],
            Self::ProtocolServiceCrc => [ABORTED_COMMAND, 0x47, 0x05],
            Self::Bidirectional => [ILLEGAL_REQUEST, 0x20, 0x00],
        }
    }
}

impl Verdict {
    pub(super) const fn status(&self) -> ScsiStatus {
        match self {
            Self::Reply(reply) => reply.status,
            Self::Condition(_) => ScsiStatus::CHECK_CONDITION,
            Self::TaskSetFull => ScsiStatus::TASK_SET_FULL,
        }
    }

    /// Data to send, which the transport frees.
    pub(super) const fn data(&self) -> Option<DataIn> {
        match self {
            Self::Reply(reply) => reply.data,
            Self::Condition(_) | Self::TaskSetFull => None,
        }
    }

    /// What the command wanted to move out and in: the SCSI-Presented Data Transfer Length of each direction (11.4.5.2).
    pub(super) const fn transfers(&self) -> (u64, u64) {
        match self {
            Self::Reply(reply) => (reply.out_transfer, reply.in_transfer),
            Self::Condition(_) | Self::TaskSetFull => (0, 0),
        }
    }

    /// The data segment of a SCSI Response: SenseLength and sense data (11.4.7).
    pub(super) fn sense_segment(&self) -> Vec<u8> {
        match self {
            Self::Reply(reply) => reply.sense.as_ref().map(|s| prefixed(s.as_bytes())).unwrap_or_default(),
            Self::Condition(condition) => prefixed(&fixed(condition.sense())),
            Self::TaskSetFull => Vec::new(),
        }
    }

    /// Frees the data unsent.
    pub(super) fn free(&self, pool: &mut BufPool) {
        if let Some(data) = self.data() {
            pool.free(data.buf);
        }
    }
}

fn prefixed(sense: &[u8]) -> Vec<u8> {
    let len = u16::try_from(sense.len()).expect("sense data are at most 252 bytes");
    [&len.to_be_bytes()[..], sense].concat()
}

/// Fixed format sense data (SPC-5 4.4.3).
fn fixed([key, code, qualifier]: [u8; 3]) -> [u8; 18] {
    let mut sense = [0; 18];
    sense[0] = 0x70;
    sense[2] = key;
    sense[7] = 10;
    (sense[12], sense[13]) = (code, qualifier);
    sense
}
