//! How commands move: into their handlers, from step to step, to their one end.

use platter_block::{BufPool, Report, Status as OpStatus, Tag};

use super::data::Notice;
use super::fabrics;
use super::io::{self, Call};
use super::logs::ErrorEntry;
use super::queue::Role;
use super::sqe::{Fuse, Sqe};
use super::status::Status;
use super::target::{Output, Overrun, QueueId, ReplyData, Target, TaskId, Transfer};
use super::task::{Awaits, Memory, Next, Outcome, Stop, Task, Work};
use super::walk::{Errand, Walk};
use crate::slab::Key;

impl Target {
    /// See [`Target::command`].
    pub(super) fn take_command(
        &mut self,
        queue_key: Key,
        sqe: Sqe,
        transfer: Result<Transfer, Status>,
        pool: &mut BufPool,
    ) -> Result<(), Overrun> {
        let Some(queue) = self.queues.get_mut(queue_key).filter(|q| !q.closing) else { return Ok(()) };
        if queue.is_full() {
            return Err(Overrun);
        }
        let controller = queue.controller();
        let is_io = matches!(queue.role, Role::Io(..));
        let fuse = sqe.fuse();
        let plain = fuse == Fuse::None && queue.fused.is_idle();
        let key = self.tasks.insert(Task::new(queue_key, controller, sqe, transfer));
        let conflict = queue.active.contains(sqe.cid());
        if !conflict {
            queue.active.insert(sqe.cid(), key);
        }
        if let Some(controller) = controller.and_then(|c| self.controllers.get_mut(c)) {
            controller.tasks += 1;
            controller.heard = self.now;
        }
        let outcome = if conflict {
            Err(Status::CID_CONFLICT.into())
        } else if self.draining && controller.is_some() && sqe.opcode() != fabrics::OPCODE {
            Err(Status::INTERNAL_PATH.into())
        } else if plain {
            self.begin(key, pool)
        } else if is_io {
            self.begin_fused(key, fuse, pool)
        } else {
            Err(Status::INVALID_FIELD.into())
        };
        self.apply(key, outcome, pool);
        Ok(())
    }

    /// See [`Target::received`] and [`Target::transfer_failed`].
    pub(super) fn data_came(&mut self, key: Key, wrong: Option<Status>, pool: &mut BufPool) {
        // Of a command that ended meanwhile with its queue.
        let Some(task) = self.tasks.get_mut(key) else { return };
        assert_eq!(task.awaits, Awaits::Data, "data for a command that asked for none");
        task.awaits = Awaits::Nothing;
        if task.silent {
            return self.drop_task(key, pool);
        }
        if let Some(status) = task.abort.or(wrong) {
            return self.end(key, status, 0, None, pool);
        }
        if let Some(controller) = task.controller.and_then(|c| self.controllers.get_mut(c)) {
            controller.heard = self.now;
        }
        self.advance(key, pool);
    }

    /// See [`Target::completed`].
    pub(super) fn op_ended(&mut self, tag: Tag, status: OpStatus, _report: Option<Box<Report>>, pool: &mut BufPool) {
        let key = Key::from_bits(tag.0 & !(0xffff << 48));
        let task = self.tasks.get_mut(key).expect("a command with an op in the engine waits for it");
        let Awaits::Op { writes } = task.awaits else { panic!("an op ended of a command that submitted none") };
        task.awaits = Awaits::Nothing;
        let (silent, abort) = (task.silent, task.abort);
        let controller = task.controller;
        let is_last = matches!(task.work, Work::Succeed(_) | Work::FusedDone);
        if let Some(controller) = controller.and_then(|c| self.controllers.get_mut(c)) {
            controller.ops -= 1;
        }
        if silent {
            self.drop_task(key, pool);
        } else if status.is_good() && (is_last || abort.is_none()) {
            self.advance(key, pool);
        } else if let Some(status) = abort.filter(|_| matches!(status, OpStatus::Good | OpStatus::Aborted)) {
            self.end(key, status, 0, None, pool);
        } else {
            self.op_failed(key, status, writes, pool);
        }
        if let Some(controller) = controller {
            self.bury(controller);
        }
    }

    fn op_failed(&mut self, key: Key, status: OpStatus, writes: bool, pool: &mut BufPool) {
        let work = self.tasks.get_mut(key).map(|t| std::mem::replace(&mut t.work, Work::Begin));
        match work {
            Some(Work::Walk(walk)) => self.walk_failed(key, walk, status, pool),
            Some(Work::Copy(copy)) => self.end(key, Status::of(status, writes), copy.failed_range(), None, pool),
            _ => self.end(key, Status::of(status, writes), 0, None, pool),
        }
    }

    /// Goes on with a command.
    pub(super) fn advance(&mut self, key: Key, pool: &mut BufPool) {
        let outcome = self.proceed(key, pool);
        self.apply(key, outcome, pool);
    }

    fn proceed(&mut self, key: Key, pool: &mut BufPool) -> Outcome {
        let task = self.tasks.get_mut(key).expect("only commands in progress go on");
        match std::mem::replace(&mut task.work, Work::Begin) {
            Work::Begin => self.begin(key, pool),
            Work::Succeed(data) => Ok(Next::Done { result: 0, data }),
            Work::Submit(volume, op) => Ok(Next::Submit { volume, op, then: Work::Succeed(None) }),
            Work::Compare(compare) => compare.proceed(&mut self.call(key, pool)?),
            Work::Verify(verify) => verify.proceed(&mut self.call(key, pool)?),
            Work::Copy(copy) => copy.proceed(&mut self.call(key, pool)?),
            Work::Deallocate(deallocate) => deallocate.proceed(&mut self.call(key, pool)?),
            Work::Walk(walk) => self.walk(key, walk),
            Work::SetFeature => self.set_feature(key, pool),
            Work::ConnectData => self.connect_data(key, pool),
            Work::Connect(request) => self.connect(key, request),
            Work::Fused => self.proceed_fused(key, pool),
            Work::FusedDone => self.end_fused(key, pool),
        }
    }

    /// Runs a command from its beginning: once, and again each time that it had to wait for memory.
    pub(super) fn begin(&mut self, key: Key, pool: &mut BufPool) -> Outcome {
        let task = self.tasks.get(key).expect("only commands in progress begin");
        match self.queues.get(task.queue).map(|q| q.role) {
            Some(Role::Io(..)) => self.begin_io(key, pool),
            Some(Role::Admin(_)) => self.begin_admin(key, pool),
            Some(Role::Unconnected) => self.begin_unconnected(key, pool),
            Some(Role::Ended) | None => Err(Status::ABORTED.into()),
        }
    }

    fn begin_io(&mut self, key: Key, pool: &mut BufPool) -> Outcome {
        let sqe = self.tasks.get(key).expect("only commands in progress begin").sqe;
        if sqe.opcode() == fabrics::OPCODE {
            return self.begin_fabrics(key, pool);
        }
        if !self.controller_of(key).is_ready() {
            return Err(Status::SEQUENCE_ERROR.into());
        }
        let task = self.tasks.get(key).expect("as above");
        let row = io::find(sqe.opcode())?;
        row.check(task)?;
        match sqe.fuse() {
            Fuse::First => return self.begin_first(key, pool),
            Fuse::Second => return self.begin_second(key, pool),
            Fuse::None | Fuse::Reserved => {}
        }
        if sqe.nsid() == io::ALL_NAMESPACES && row.is_for_all() {
            return self.walk(key, Walk::new(Errand::Flush));
        }
        row.run(&mut self.call(key, pool)?)
    }

    /// What the handler of a command for one namespace works on.
    pub(super) fn call<'a>(&'a mut self, key: Key, pool: &'a mut BufPool) -> Result<Call<'a>, Status> {
        let task = self.tasks.get_mut(key).expect("only commands in progress have handlers");
        let controller = task.controller.and_then(|c| self.controllers.get(c)).ok_or(Status::ABORTED)?;
        let subsystem = controller.subsystem.and_then(|s| self.subsystems.get(s)).ok_or(Status::INVALID_NAMESPACE)?;
        let namespace = subsystem.medium(task.sqe.nsid(), controller.portal.number)?;
        let memory = Memory { pool, taken: self.memory.is_taken() };
        Ok(Call { namespace, task, memory, limits: &self.limits })
    }

    /// Does what a handler answered.
    pub(super) fn apply(&mut self, key: Key, outcome: Outcome, pool: &mut BufPool) {
        // Gone already: a handler may end its own command, together with others.
        let Some(task) = self.tasks.get_mut(key) else { return };
        match outcome {
            Ok(Next::Done { result, data }) => self.end(key, Status::SUCCESS, result, data, pool),
            Err(Stop::Failed(status)) => self.end(key, status, 0, None, pool),
            Err(Stop::FailedWith(status, result)) => self.end(key, status, result, None, pool),
            Ok(Next::Receive { buf, at, len, then }) => {
                (task.work, task.awaits) = (then, Awaits::Data);
                let (queue, cid) = (QueueId(task.queue.to_bits()), task.sqe.cid());
                let in_capsule = task.transfer.is_ok_and(|t| t.in_capsule);
                let task = TaskId(key.to_bits());
                self.outputs.push_back(Output::Receive { queue, task, cid, in_capsule, buf, at, len });
            }
            Ok(Next::Submit { volume, op, then }) => {
                (task.work, task.awaits) = (then, Awaits::Op { writes: op.is_write() });
                if let Some(controller) = task.controller.and_then(|c| self.controllers.get_mut(c)) {
                    controller.ops += 1;
                }
                let tag = self.tag(key);
                self.outputs.push_back(Output::Submit { tag, volume, op });
            }
            Ok(Next::Wait(awaits, then)) => {
                (task.work, task.awaits) = (then, awaits);
                if let Some(controller) = task.controller.and_then(|c| self.controllers.get_mut(c)) {
                    match awaits {
                        Awaits::Event => {
                            controller.event_requests.push(key);
                            controller.tasks -= 1;
                        }
                        Awaits::End => controller.aborts += 1,
                        _ => {}
                    }
                }
            }
            Ok(Next::Stay) => {}
            Err(Stop::NoMemory) => {
                (task.work, task.awaits) = (Work::Begin, Awaits::Memory);
                task.free_buffers(None, pool);
                self.memory.wait(self.now, key, self.limits.memory_wait);
            }
        }
    }

    /// The one end of a command: frees what it has, and tells the host.
    pub(super) fn end(&mut self, key: Key, status: Status, result: u64, data: Option<ReplyData>, pool: &mut BufPool) {
        let partner = self.part(key);
        let Some(mut task) = self.tasks.remove(key) else { return };
        task.free_buffers(data.map(|d| d.buf), pool);
        let is_bad_news = self.count(&task, status);
        self.leave(key, &task);
        self.reply(key, &task, status, result, data, pool);
        if let Some(controller) = task.controller.filter(|_| is_bad_news) {
            self.raise(controller, Notice::Reliability, pool);
        }
        if let Some(aborter) = task.aborter {
            // DW0 bit 0: the command was not aborted.
            let result = u64::from(status.code() != Status::ABORTED.code());
            self.end(aborter, Status::SUCCESS, result, None, pool);
        }
        if let Some(partner) = partner {
            self.stop(partner, Status::FAILED_FUSED, pool);
        }
        if let Some(controller) = task.controller
            && self.draining
        {
            self.drain_controller(controller, pool);
        }
    }

    /// Notes what an I/O command did. True if it tells of disks that are not reliable, and is the first to do so.
    fn count(&mut self, task: &Task, status: Status) -> bool {
        let Some(Role::Io(_, sqid)) = self.queues.get(task.queue).map(|q| q.role) else { return false };
        let Some(controller) = task.controller.and_then(|c| self.controllers.get_mut(c)) else { return false };
        let bytes = task.transfer.map_or(0, |t| u64::from(t.len));
        controller.counters.count(task.sqe.opcode(), if status == Status::SUCCESS { bytes } else { 0 });
        controller.errors.note(ErrorEntry { sqid, status, sqe: task.sqe })
    }

    fn reply(
        &mut self,
        key: Key,
        task: &Task,
        status: Status,
        result: u64,
        data: Option<ReplyData>,
        pool: &mut BufPool,
    ) {
        let Some(queue) = self.queues.get_mut(task.queue).filter(|q| !q.closing) else {
            if let Some(data) = data {
                pool.free(data.buf);
            }
            return;
        };
        let is_connect = task.sqe.opcode() == fabrics::OPCODE && task.sqe.fctype() == fabrics::CONNECT;
        let cqe = queue.completion(task.sqe.cid(), status, result, is_connect);
        let plain_success = !queue.has_flow_control() && status == Status::SUCCESS && result == 0 && data.is_some();
        let closes = queue.last == Some(key);
        let queue = QueueId(task.queue.to_bits());
        self.outputs.push_back(Output::Reply { queue, task: TaskId(key.to_bits()), cqe, data, plain_success });
        if closes {
            self.close_queue(task.queue);
        }
    }

    /// Ends a command without a reply. No op of it is in the engine.
    pub(super) fn drop_task(&mut self, key: Key, pool: &mut BufPool) {
        self.part(key);
        let Some(mut task) = self.tasks.remove(key) else { return };
        task.free_buffers(None, pool);
        self.leave(key, &task);
        if let Some(aborter) = task.aborter {
            self.end(aborter, Status::SUCCESS, 0, None, pool);
        }
    }

    /// Ends a command as soon as it may: now, or when its data have come, or its op has ended.
    pub(super) fn stop(&mut self, key: Key, status: Status, pool: &mut BufPool) {
        let partner = self.tasks.get(key).and_then(|t| t.partner);
        let partner_with_op = partner.filter(|&p| self.tasks.get(p).is_some_and(Task::has_op));
        let Some(task) = self.tasks.get_mut(key) else { return };
        match (task.awaits, partner_with_op) {
            (Awaits::Op { .. }, _) => {
                if task.abort.is_none() {
                    task.abort = Some(status);
                    let tag = self.tag(key);
                    self.outputs.push_back(Output::Abort { tag });
                }
            }
            (Awaits::Data, _) => task.abort = task.abort.or(Some(status)),
            // One half of a fused operation ends with the op, which the other half has.
            (Awaits::Partner, Some(partner)) => self.stop(partner, status, pool),
            _ => self.end(key, status, 0, None, pool),
        }
    }

    /// Takes a command out of all that knows of it.
    fn leave(&mut self, key: Key, task: &Task) {
        if let Some(queue) = self.queues.get_mut(task.queue) {
            queue.active.remove(task.sqe.cid(), key);
            queue.fused.ended(key);
        }
        if let Some(controller) = task.controller.and_then(|c| self.controllers.get_mut(c)) {
            match task.awaits {
                Awaits::Event => {
                    controller.event_requests.retain(|&k| k != key);
                    return;
                }
                Awaits::End => controller.aborts -= 1,
                _ => {}
            }
            controller.tasks -= 1;
        }
    }

    const fn tag(&self, key: Key) -> Tag {
        Tag((self.tag_base as u64) << 48 | key.to_bits())
    }
}
