//! The commands of the admin queue.

use platter_block::BufPool;

use super::data;
use super::data::{Change, Features, Notice, View};
use super::fabrics;
use super::sqe::{Fuse, Sqe};
use super::status::Status;
use super::target::Target;
use super::task::{Awaits, Direction, Memory, Next, Outcome, Work};
use super::timers::round_kato;
use super::walk::{Errand, Walk};
use crate::slab::Key;

const GET_LOG_PAGE: u8 = 0x02;
const IDENTIFY: u8 = 0x06;
const ABORT: u8 = 0x08;
const SET_FEATURES: u8 = 0x09;
const GET_FEATURES: u8 = 0x0a;
const ASYNC_EVENT_REQUEST: u8 = 0x0c;
const KEEP_ALIVE: u8 = 0x18;

/// All of them, for the effects log.
pub(super) static OPCODES: [u8; 8] =
    [GET_LOG_PAGE, IDENTIFY, ABORT, SET_FEATURES, GET_FEATURES, ASYNC_EVENT_REQUEST, KEEP_ALIVE, fabrics::OPCODE];

/// Retain Asynchronous Event (Get Log Page CDW10 bit 15).
const RAE: u32 = 1 << 15;

/// Offset Type (Get Log Page CDW14 bit 23): the offset counts entries.
const OFFSET_TYPE: u32 = 1 << 23;

/// Length of every Identify data structure.
const IDENTIFY_LEN: usize = 4096;

impl Target {
    /// A command on an admin queue. Those of a discovery controller are the same; what it does not have, it refuses by the
    /// field that asks for it.
    pub(super) fn begin_admin(&mut self, key: Key, pool: &mut BufPool) -> Outcome {
        let task = self.tasks.get(key).expect("only commands in progress begin");
        let sqe = task.sqe;
        if sqe.fuse() != Fuse::None {
            return Err(Status::INVALID_FIELD.into());
        }
        let no_data = task.expect_len(0, Direction::None);
        if sqe.opcode() == fabrics::OPCODE {
            return self.begin_fabrics(key, pool);
        }
        if !self.controller_of(key).is_ready() {
            return Err(Status::SEQUENCE_ERROR.into());
        }
        match sqe.opcode() {
            GET_LOG_PAGE => self.get_log_page(key, &sqe, pool),
            IDENTIFY => self.identify(key, &sqe, pool),
            ABORT => no_data.map_err(Into::into).and_then(|()| self.abort(key, &sqe, pool)),
            SET_FEATURES => self.begin_set_features(key, &sqe, pool),
            GET_FEATURES => self.get_features(key, &sqe, pool),
            ASYNC_EVENT_REQUEST => no_data.map_err(Into::into).and_then(|()| self.async_event_request(key)),
            KEEP_ALIVE if self.controller_of(key).kato == 0 => Err(Status::KEEP_ALIVE_INVALID.into()),
            KEEP_ALIVE => Ok(Next::SUCCESS),
            _ => Err(Status::INVALID_OPCODE.into()),
        }
    }

    /// What is to be known about the controller of a command, to answer questions about it.
    pub(super) fn view(&self, key: Key) -> View<'_> {
        let controller = self.controller_of(key);
        let subsystem = controller.subsystem.and_then(|s| self.subsystems.get(s));
        View { controller, subsystem, directory: &self.directory, limits: &self.limits, now: self.now }
    }

    fn identify(&mut self, key: Key, sqe: &Sqe, pool: &mut BufPool) -> Outcome {
        let data = data::identify(&self.view(key), &self.cntlids_beside(key), sqe)?;
        self.reply_with(key, &data, IDENTIFY_LEN, pool)
    }

    /// Controller identifiers of the subsystem, ascending.
    fn cntlids_beside(&self, key: Key) -> Vec<u16> {
        let live = self.controllers_of(self.controller_of(key).subsystem);
        let mut cntlids: Vec<u16> =
            live.into_iter().filter_map(|c| self.controllers.get(c)).map(|c| c.cntlid).collect();
        cntlids.sort_unstable();
        cntlids
    }

    /// Get Log Page: NUMD dwords from byte LPO on, and zeroes after the end of the log.
    fn get_log_page(&mut self, key: Key, sqe: &Sqe, pool: &mut BufPool) -> Outcome {
        let (cdw10, cdw11) = (sqe.cdw(10), sqe.cdw(11));
        let lid = cdw10 as u8;
        let dwords = u64::from(cdw10 >> 16 | cdw11 << 16) + 1;
        let len = dwords * 4;
        let offset = sqe.u64(48);
        if len > u64::from(self.limits.max_transfer) || !offset.is_multiple_of(4) || sqe.cdw(14) & OFFSET_TYPE != 0 {
            return Err(Status::INVALID_FIELD.into());
        }
        let log = data::log_page(&self.view(key), sqe)?;
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        let rest = log.get(offset..).ok_or(Status::INVALID_FIELD)?;
        let outcome = self.reply_with(key, rest, len as usize, pool)?;
        if cdw10 & RAE == 0 {
            self.controller_of_mut(key).log_read(lid);
        }
        Ok(outcome)
    }

    fn begin_set_features(&mut self, key: Key, sqe: &Sqe, pool: &mut BufPool) -> Outcome {
        let len = Features::data_len(sqe);
        let taken = self.memory.is_taken();
        let task = self.tasks.get_mut(key).expect("only commands in progress begin");
        task.expect_len(len as u64, Direction::FromHost)?;
        if len == 0 {
            return self.set_feature(key, pool);
        }
        let buf = task.alloc(len, &mut Memory { pool, taken })?;
        Ok(Next::Receive { buf, at: 0, len, then: Work::SetFeature })
    }

    /// The data of Set Features, if it has any, are there.
    pub(super) fn set_feature(&mut self, key: Key, pool: &mut BufPool) -> Outcome {
        let task = self.tasks.get(key).expect("only commands in progress go on");
        let sqe = task.sqe;
        let data = task.buffers[0].map(|b| pool.bytes(b)).unwrap_or_default();
        let change = data::set_feature(&self.view(key), &sqe, data)?;
        let controller = self.controller_of_mut(key);
        match change {
            Change::Done(features, result) => {
                controller.features = features;
                let controller = self.tasks.get(key).and_then(|t| t.controller);
                controller.into_iter().for_each(|c| self.tell_events(c, pool));
                Ok(Next::Done { result: result.into(), data: None })
            }
            Change::WriteCache(enabled) => self.walk(key, Walk::new(Errand::WriteCache { enabled })),
            Change::KeepAlive(kato) => {
                controller.kato = round_kato(kato);
                let controller = self.tasks.get(key).and_then(|t| t.controller);
                controller.into_iter().for_each(|c| self.start_timer(c));
                Ok(Next::SUCCESS)
            }
        }
    }

    fn get_features(&mut self, key: Key, sqe: &Sqe, pool: &mut BufPool) -> Outcome {
        let (result, data) = data::get_feature(&self.view(key), sqe)?;
        if data.is_empty() {
            let task = self.tasks.get(key).expect("only commands in progress begin");
            task.expect_len(0, Direction::None)?;
            return Ok(Next::Done { result: result.into(), data: None });
        }
        match self.reply_with(key, &data, data.len(), pool)? {
            Next::Done { data, .. } => Ok(Next::Done { result: result.into(), data }),
            next => Ok(next),
        }
    }

    fn reply_with(&mut self, key: Key, data: &[u8], len: usize, pool: &mut BufPool) -> Outcome {
        let taken = self.memory.is_taken();
        let task = self.tasks.get_mut(key).expect("only commands in progress are answered");
        task.reply_with(data, len, &mut Memory { pool, taken })
    }

    /// Asynchronous Event Request: waits for something to tell.
    fn async_event_request(&mut self, key: Key) -> Outcome {
        let limit = usize::from(self.limits.async_events);
        let controller = self.controller_of_mut(key);
        if controller.event_requests.len() >= limit {
            return Err(Status::EVENT_LIMIT.into());
        }
        match controller.next_event() {
            Some(event) => Ok(Next::Done { result: event.into(), data: None }),
            None => Ok(Next::Wait(Awaits::Event, Work::Begin)),
        }
    }

    /// Something happened that a controller may be told.
    pub(super) fn raise(&mut self, controller: Key, notice: Notice, pool: &mut BufPool) {
        if let Some(c) = self.controllers.get_mut(controller) {
            c.raise(notice);
        }
        self.tell_events(controller, pool);
    }

    /// Answers Asynchronous Event Requests, as far as there are both requests and events.
    pub(super) fn tell_events(&mut self, controller: Key, pool: &mut BufPool) {
        while let Some(controller) = self.controllers.get_mut(controller).filter(|c| c.is_ready())
            && let Some(&request) = controller.event_requests.first()
            && let Some(event) = controller.next_event()
        {
            self.end(request, Status::SUCCESS, event.into(), None, pool);
        }
    }

    /// Abort (NVMe base, Abort command): of a command of any queue of the controller. Its own end comes after that of the
    /// other command. DW0 bit 0 is 1 if that was not aborted.
    fn abort(&mut self, key: Key, sqe: &Sqe, pool: &mut BufPool) -> Outcome {
        const NOT_ABORTED: Outcome = Ok(Next::Done { result: 1, data: None });
        let (sqid, cid) = (sqe.cdw(10) as u16, (sqe.cdw(10) >> 16) as u16);
        let limit = usize::from(self.limits.aborts);
        let controller = self.controller_of(key);
        if controller.aborts >= limit {
            return Err(Status::ABORT_LIMIT.into());
        }
        let queue = match sqid {
            0 => Some(controller.admin),
            qid => controller.io.get(usize::from(qid) - 1).copied().flatten(),
        };
        let found = queue.and_then(|q| self.queues.get(q)).and_then(|q| q.active.find(cid));
        let Some(target) = found.filter(|&t| t != key) else { return NOT_ABORTED };
        let Some(task) = self.tasks.get_mut(target) else { return NOT_ABORTED };
        if task.aborter.is_some() || matches!(task.awaits, Awaits::End) {
            return NOT_ABORTED;
        }
        task.aborter = Some(key);
        self.apply(key, Ok(Next::Wait(Awaits::End, Work::Begin)), pool);
        self.stop(target, Status::ABORTED, pool);
        // Answered already, if the other command has ended.
        Ok(Next::Stay)
    }
}
