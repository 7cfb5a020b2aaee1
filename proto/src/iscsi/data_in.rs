//! The end of a command on the wire: Data-In PDUs, status, sense data, residual counts (11.4, 11.7).

use super::command::Task;
use super::condition::Verdict;
use super::connection::StatSn;
use super::node::{Cx, Node};
use super::pdu::{DataIn, NO_TAG, ScsiResponse, flag, opcode};
use super::transmit::Segment;
use crate::scsi::ScsiStatus;
use crate::slab::Key;

impl Node {
    /// Sends the data and the status of a command. The task is out of its session already, so that the window told with
    /// the status has room for the next command.
    pub(super) fn send_reply(&mut self, cx: &mut Cx<'_>, conn: Key, task: &Task, verdict: Verdict) {
        let residual = residual(task, &verdict);
        let mut data_sn = 0;
        if let Some(data) = verdict.data() {
            let len = data.len.min(task.in_len as usize);
            if len == 0 {
                cx.pool.free(data.buf);
            } else {
                let segment = Segment::Pool { buf: data.buf, at: data.at, len, release: true };
                if self.send_data(cx, conn, task, segment, verdict.status(), residual, &mut data_sn) {
                    return;
                }
            }
        }
        let (flags, count) = residual;
        let header = ScsiResponse {
            opcode: opcode::SCSI_RESPONSE,
            flags: flag::FINAL | flags,
            status: verdict.status().0,
            itt: task.itt.into(),
            exp_data_sn: data_sn.into(),
            residual: count.into(),
            ..zerocopy::FromZeros::new_zeroed()
        };
        self.send(cx, conn, zerocopy::transmute!(header), Segment::from(verdict.sense_segment()), StatSn::Use);
    }

    /// Cuts the data at MaxRecvDataSegmentLength of the initiator, and into sequences of MaxBurstLength (11.7.1). True if
    /// the last PDU carries the status, which it may if that is good (11.7.3).
    #[expect(clippy::too_many_arguments, reason = "private, and called once")]
    fn send_data(
        &mut self,
        cx: &mut Cx<'_>,
        conn: Key,
        task: &Task,
        data: Segment,
        status: ScsiStatus,
        (residual_flags, residual): (u8, u32),
        data_sn: &mut u32,
    ) -> bool {
        let Segment::Pool { buf, at, len, .. } = data else { return false };
        let Some(session) = self.sessions.get_mut(task.session) else { return false };
        session.bytes_sent += len as u64;
        // Segments but the last of a sequence are whole 4-byte words (11.7.7).
        let max_burst = session.params.max_burst as usize & !3;
        let max_segment = (session.params.max_send_segment as usize & !3).min(max_burst);
        let with_status = status == ScsiStatus::GOOD || status == ScsiStatus::CONDITION_MET;
        let (mut sent, mut in_burst) = (0, 0);
        while sent < len {
            let n = max_segment.min(len - sent).min(max_burst - in_burst);
            let last = sent + n == len;
            in_burst += n;
            let mut header = DataIn {
                opcode: opcode::DATA_IN,
                itt: task.itt.into(),
                ttt: NO_TAG.into(),
                data_sn: (*data_sn).into(),
                offset: (sent as u32).into(),
                ..zerocopy::FromZeros::new_zeroed()
            };
            if last || in_burst == max_burst {
                header.flags |= flag::FINAL;
                in_burst = 0;
            }
            let mut stat_sn = StatSn::Reserved;
            if last && with_status {
                header.flags |= flag::STATUS | residual_flags;
                header.status = status.0;
                header.residual = residual.into();
                stat_sn = StatSn::Use;
            }
            let piece = Segment::Pool { buf, at: at + sent, len: n, release: last };
            self.send(cx, conn, zerocopy::transmute!(header), piece, stat_sn);
            *data_sn += 1;
            sent += n;
        }
        with_status
    }
}

/// Overflow or underflow, and by how much (11.4.5). Without R and W, whatever the command wanted to move was too much.
fn residual(task: &Task, verdict: &Verdict) -> (u8, u32) {
    let (out, input) = verdict.transfers();
    let (wanted, expected) = match (task.read, task.out.write) {
        (false, true) | (true, true) => (out, task.out_len),
        (true, false) => (input, task.in_len),
        (false, false) => (out.max(input), 0),
    };
    let expected = u64::from(expected);
    let count = u32::try_from(wanted.abs_diff(expected)).unwrap_or(u32::MAX);
    match wanted.cmp(&expected) {
        std::cmp::Ordering::Equal => (0, 0),
        std::cmp::Ordering::Less => (flag::UNDERFLOW, count),
        std::cmp::Ordering::Greater => (flag::OVERFLOW, count),
    }
}
