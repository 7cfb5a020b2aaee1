//! The data of one command: what a Data-In may say, and which Data-Outs answer an R2T (RFC 7143 11.7, 11.8).

use super::login::Parameters;
use super::pdu::{FINAL, Header, NO_TAG, field, opcode};
use super::scsi::{Command, Transfer};
use super::session::Link;
use super::{Result, require};
use std::sync::Arc;

/// Byte 1 of a Data-In: status follows in the same PDU.
const STATUS: u8 = 0x01;

/// A command in flight.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) lun: [u8; 8],
    pub(super) cmd_sn: u32,
    /// Expected Data Transfer Length.
    expected: u32,
    out: Option<Arc<[u8]>>,
    /// Bytes taken out of `out`: sent unsolicited or asked for by an R2T.
    asked: u32,
    /// Data-In bytes so far.
    pub(super) received: u32,
    /// Data-In bytes of the current sequence.
    burst: u32,
    /// DataSN or R2TSN that comes next; also how many came.
    next_sn: u32,
    keep: bool,
    pub(super) data: Vec<u8>,
}

impl Task {
    pub(super) fn new(command: &Command, lun: [u8; 8], cmd_sn: u32, keep: bool) -> Self {
        let reads = match &command.transfer {
            Transfer::In(len) if keep => *len as usize,
            _ => 0,
        };
        Self {
            lun,
            cmd_sn,
            expected: command.transfer.len(),
            out: match &command.transfer {
                Transfer::Out(data) => Some(data.clone()),
                _ => None,
            },
            asked: 0,
            received: 0,
            burst: 0,
            next_sn: 0,
            keep,
            data: Vec::with_capacity(reads),
        }
    }

    /// Queues the command with as much unsolicited data as was agreed (13.10, 13.11).
    pub(super) fn queue_command(&mut self, mut header: Header, link: &mut Link) {
        let Some(data) = self.out.clone() else { return link.wire.queue(header, &[]) };
        let parameters = &link.parameters;
        let first_burst = self.expected.min(parameters.first_burst);
        let immediate = if parameters.immediate_data { first_burst.min(parameters.max_send_segment) } else { 0 };
        let unsolicited = if parameters.initial_r2t { immediate } else { first_burst };
        // F: no unsolicited Data-Out follows (11.3.1).
        if unsolicited > immediate {
            header.0[1] &= !FINAL;
        }
        link.wire.queue_shared(header, &data, 0..immediate as usize);
        self.asked = unsolicited;
        if unsolicited > immediate {
            let ask = Ask { tag: header.tag(), transfer_tag: NO_TAG, offset: immediate, len: unsolicited - immediate };
            self.queue_data(ask, link);
        }
    }

    /// Answers an R2T.
    pub(super) fn on_r2t(&mut self, r2t: &Header, link: &mut Link) -> Result<()> {
        require(r2t.data_len() == 0, || "R2T with data (11.8.1)".into())?;
        require(r2t.lun() == self.lun, || format!("LUN {:02x?} of the R2T (11.8)", r2t.lun()))?;
        let sn = r2t.get(field::DATA_SN);
        require(sn == self.next_sn, || format!("R2TSN {sn} where {} was due (11.8.2)", self.next_sn))?;
        self.next_sn += 1;
        let (offset, len) = (r2t.get(field::BUFFER_OFFSET), r2t.get(field::DESIRED_LENGTH));
        require(self.out.is_some(), || "R2T for a command without data out (11.8)".into())?;
        let max_burst = link.parameters.max_burst;
        require(len > 0 && len <= max_burst, || {
            format!("R2T for {len} bytes with MaxBurstLength {max_burst} (11.8.4)")
        })?;
        require(offset == self.asked, || format!("R2T at {offset} where {} was due (13.19)", self.asked))?;
        require(u64::from(offset) + u64::from(len) <= u64::from(self.expected), || {
            format!("R2T {offset}+{len} beyond the {} bytes of the command (11.8.4)", self.expected)
        })?;
        let transfer_tag = r2t.get(field::TRANSFER_TAG);
        require(transfer_tag != NO_TAG, || "Target Transfer Tag ffffffffh in an R2T (11.8.5)".into())?;
        self.asked = offset + len;
        self.queue_data(Ask { tag: r2t.tag(), transfer_tag, offset, len }, link);
        Ok(())
    }

    /// Takes a Data-In. Whether it carries the status as well.
    pub(super) fn on_data_in(&mut self, header: &Header, data: &[u8], parameters: &Parameters) -> Result<bool> {
        let (sn, offset) = (header.get(field::DATA_SN), header.get(field::BUFFER_OFFSET));
        require(sn == self.next_sn, || format!("DataSN {sn} where {} was due (11.7.5)", self.next_sn))?;
        self.next_sn += 1;
        require(self.out.is_none(), || "Data-In for a write (11.7)".into())?;
        require(offset == self.received, || format!("Data-In at {offset} where {} was due (13.18)", self.received))?;
        self.received += data.len() as u32;
        self.burst += data.len() as u32;
        require(self.received <= self.expected, || {
            format!("{} bytes of Data-In for a command of {} (11.7)", self.received, self.expected)
        })?;
        require(self.burst <= parameters.max_burst || !parameters.strict, || {
            format!("a Data-In sequence of {} bytes with MaxBurstLength {} (13.13)", self.burst, parameters.max_burst)
        })?;
        let status = header.flags() & STATUS != 0;
        require(header.is_final() || !status, || "S without F in a Data-In (11.7.3)".into())?;
        if header.is_final() {
            self.burst = 0;
        }
        if self.keep {
            self.data.extend_from_slice(data);
        }
        Ok(status)
    }

    /// Checks the numbers of the PDU that ends the command: the residual counts (11.4.5) and, in a SCSI Response,
    /// ExpDataSN. Returns underflow and overflow.
    pub(super) fn on_end(&self, header: &Header, good: bool) -> Result<(u32, u32)> {
        let flags = header.flags();
        require(flags & 0x06 != 0x06, || "O and U both set (11.4.1)".into())?;
        let residual = header.get(field::RESIDUAL);
        let (under, over) =
            (if flags & 0x02 != 0 { residual } else { 0 }, if flags & 0x04 != 0 { residual } else { 0 });
        require(under <= self.expected, || format!("underflow of {under} in {} bytes (11.4.5)", self.expected))?;
        if good && self.out.is_none() {
            require(self.received == self.expected - under, || {
                format!(
                    "{} bytes of Data-In, but {} expected with a residual underflow of {under} (11.4.5)",
                    self.received, self.expected
                )
            })?;
        }
        if header.opcode() == opcode::RESPONSE {
            let (said, sent) = (header.get(field::DATA_SN), if self.out.is_none() { self.next_sn } else { 0 });
            require(said == sent, || format!("ExpDataSN {said} after {sent} Data-In PDUs (11.4.8)"))?;
        }
        Ok((under, over))
    }

    fn queue_data(&self, ask: Ask, link: &mut Link) {
        let Some(data) = &self.out else { return };
        let (mut at, end) = (ask.offset, ask.offset + ask.len);
        let mut sn = 0;
        while at < end {
            let len = (end - at).min(link.parameters.max_send_segment);
            let last = at + len == end;
            let mut header = Header::new(opcode::DATA_OUT, if last { FINAL } else { 0 })
                .with(field::TASK_TAG, ask.tag)
                .with(field::TRANSFER_TAG, ask.transfer_tag)
                .with(field::EXP_STAT_SN, link.exp_stat_sn)
                .with(field::DATA_SN, sn)
                .with(field::BUFFER_OFFSET, at);
            header.set_lun(self.lun);
            link.wire.queue_shared(header, data, at as usize..(at + len) as usize);
            (at, sn) = (at + len, sn + 1);
        }
    }
}

/// A stretch of data that the target may have.
struct Ask {
    tag: u32,
    transfer_tag: u32,
    offset: u32,
    len: u32,
}
