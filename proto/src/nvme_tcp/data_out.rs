//! Data from the host: in the capsule of their command, or asked for by R2T (Data Transfer Model).
//!
//! One R2T asks for all data of a command: the buffer is there, and many hosts take one at a time anyway (MAXR2T 0). So
//! whatever MAXR2T says is kept. The host answers in order, with as many H2CData as MAXH2CDATA makes necessary.
//!
//! A wrong data digest fails the command, not the connection, and not before all of its data have come.

use platter_block::{BufId, Instant};

use super::connection::{Connection, Incoming, Sink};
use super::node::{Cx, Node};
use super::pdu::{self, flag};
use super::term::{Fatal, Fes};
use crate::nvme::{QueueId, Status, TaskId};
use crate::slab::Key;

/// Transient Transport Error, to be retried.
const TRANSIENT_TRANSPORT_ERROR: Status = Status::new(0, 0x22).retryable();

/// What the target wants to have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) queue: QueueId,
    pub(super) task: TaskId,
    pub(super) cid: u16,
    pub(super) in_capsule: bool,
    pub(super) buf: BufId,
    pub(super) at: usize,
    pub(super) len: usize,
}

/// An R2T that has not been answered completely.
#[derive(Clone, Copy, Debug)]
pub(super) struct Transfer {
    task: TaskId,
    cid: u16,
    ttag: u16,
    buf: BufId,
    /// Where in the buffer.
    at: usize,
    len: u32,
    /// Bytes that have come, those of the PDU in progress included.
    taken: u32,
    /// A data digest was wrong.
    failed: bool,
    /// When the R2T was sent, or the last answer to it was complete.
    pub(super) since: Instant,
}

impl Node {
    /// The target wants the data of a command.
    pub(super) fn receive(&mut self, cx: &mut Cx<'_>, wanted: Wanted) {
        let Wanted { queue, task, cid, in_capsule, buf, at, len } = wanted;
        let Some(&key) = self.queues.get(&queue) else { return };
        let Some(conn) = self.conns.get_mut(key) else { return };
        if in_capsule {
            debug_assert!(matches!(conn.incoming, Incoming::Undecided { .. }), "one capsule comes at a time");
            conn.incoming = Incoming::InCapsule { task };
            conn.sink = Sink::Buffer { buf, at, limit: at + len };
            conn.alive = cx.now;
            self.wake(key);
        } else {
            let ttag = conn.free_ttag();
            let len = u32::try_from(len).expect("a command moves far less than 4 GiB");
            conn.tx.push_r2t(cid, ttag, len);
            conn.transfers.push(Transfer { task, cid, ttag, buf, at, len, taken: 0, failed: false, since: cx.now });
            self.announce(key);
        }
        self.schedule(cx.now + self.limits.data_timeout);
    }

    /// The header of an H2CData.
    pub(super) fn h2c_data_header(&mut self, key: Key) -> Result<(), Fatal> {
        let max = self.limits.max_h2c_data;
        let Some(conn) = self.conns.get_mut(key) else { return Ok(()) };
        let header: pdu::Data = conn.rx.header_as();
        let transfer = conn.check_h2c_data(&header, max)?;
        let (at, len) = (transfer.at + transfer.taken as usize, header.datal.get());
        transfer.taken += len;
        let Transfer { buf, ttag, .. } = *transfer;
        conn.sink = Sink::Buffer { buf, at, limit: at + len as usize };
        conn.incoming = Incoming::H2cData { ttag };
        Ok(())
    }

    /// An H2CData is complete.
    pub(super) fn h2c_data_complete(&mut self, cx: &mut Cx<'_>, key: Key, ttag: u16, digest_ok: bool) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        let Some(at) = conn.transfers.iter().position(|t| t.ttag == ttag) else { return };
        let transfer = &mut conn.transfers[at];
        transfer.failed |= !digest_ok;
        transfer.since = cx.now;
        if transfer.taken == transfer.len {
            let Transfer { task, failed, .. } = conn.transfers.remove(at);
            self.data_came(cx, task, !failed);
        }
    }

    /// All data of a command have come.
    pub(super) fn data_came(&mut self, cx: &mut Cx<'_>, task: TaskId, digest_ok: bool) {
        if digest_ok {
            self.target.received(cx.now, task, cx.pool);
        } else {
            self.target.transfer_failed(cx.now, task, TRANSIENT_TRANSPORT_ERROR, cx.pool);
        }
        self.settle(cx);
    }
}

impl Connection {
    /// Checks what an H2CData says against its R2T.
    fn check_h2c_data(&mut self, header: &pdu::Data, max: u32) -> Result<&mut Transfer, Fatal> {
        let (ttag, cid) = (header.ttag.get(), header.cccid.get());
        let (datao, datal, came) = (header.datao.get(), header.datal.get(), self.rx.data_len());
        if came > max && datal <= max {
            return Err(Fatal::field(4, format_args!("PLEN has {came} bytes of data, DATAL {datal}")));
        }
        let Some(transfer) = self.transfers.iter_mut().find(|t| t.ttag == ttag) else {
            return Err(Fatal::field(10, format_args!("TTAG {ttag:#x} is of no R2T")));
        };
        if cid != transfer.cid {
            return Err(Fatal::field(8, format_args!("CCCID {cid:#x} instead of {:#x}", transfer.cid)));
        }
        if datal > max {
            return Err(Fatal::of(Fes::LimitExceeded, format_args!("DATAL {datal} is more than MAXH2CDATA {max}")));
        }
        if datal != came || datal == 0 {
            return Err(Fatal::field(16, format_args!("DATAL {datal}, but {came} bytes of data by PLEN")));
        }
        let end = u64::from(datao) + u64::from(datal);
        if end > u64::from(transfer.len) {
            let why = format_args!("DATAO {datao} and DATAL {datal} are beyond R2TL {}", transfer.len);
            return Err(Fatal::of(Fes::OutOfRange, why));
        }
        if datao != transfer.taken {
            return Err(Fatal::of(Fes::Sequence, format_args!("DATAO {datao} instead of {}", transfer.taken)));
        }
        let is_last = header.common.flags & flag::LAST != 0;
        if is_last != (end == u64::from(transfer.len)) {
            let why = format_args!("LAST_PDU is {is_last} at {end} of {} bytes", transfer.len);
            return Err(Fatal::of(Fes::Sequence, why));
        }
        Ok(transfer)
    }

    /// A Transfer Tag that no R2T has. There are fewer R2Ts than tags: each is of a command of its own, and commands have
    /// identifiers of the same width.
    fn free_ttag(&mut self) -> u16 {
        loop {
            self.last_ttag = self.last_ttag.wrapping_add(1);
            if self.transfers.iter().all(|t| t.ttag != self.last_ttag) {
                return self.last_ttag;
            }
        }
    }
}
