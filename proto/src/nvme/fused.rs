//! Compare and Write as one (NVM command set, Fused Operation): two commands that follow each other in one queue and become
//! one op, for which the first holds the buffer: compare data, write data, scratch.
//!
//! The data of the first are received before the second is there, because in a stream the second cannot come before them.
//! Whichever of the two fails first takes the other with it.

use platter_block::{BlockRange, BufPool, Op};

use super::io;
use super::queue::FusedState;
use super::sqe::Fuse;
use super::status::Status;
use super::target::Target;
use super::task::{Awaits, Direction, Next, Outcome, Stop, Task, Work};
use crate::slab::Key;

/// Bytes that are compared and written at most: ACWU and NACWU follow from it.
pub(super) const MAX_BYTES: u32 = 64 << 10;

impl Target {
    /// Begins a command that says that it is part of a fused operation, or that follows one that said so.
    pub(super) fn begin_fused(&mut self, key: Key, fuse: Fuse, pool: &mut BufPool) -> Outcome {
        let queue = self.tasks.get(key).map(|t| t.queue);
        let queue = queue.and_then(|q| self.queues.get_mut(q)).expect("commands come on queues");
        let next = if fuse == Fuse::First { FusedState::First(key) } else { FusedState::Idle };
        let before = std::mem::replace(&mut queue.fused, next);
        match (before, fuse) {
            (FusedState::First(first), Fuse::Second) => self.join(first, key),
            (FusedState::First(first), _) => self.stop(first, Status::MISSING_FUSED, pool),
            (FusedState::Refused, Fuse::Second) => return Err(Status::FAILED_FUSED.into()),
            (FusedState::Idle, Fuse::Second) => return Err(Status::MISSING_FUSED.into()),
            (FusedState::Idle | FusedState::Refused, _) => {}
        }
        if fuse == Fuse::Reserved { Err(Status::INVALID_FIELD.into()) } else { self.begin(key, pool) }
    }

    fn join(&mut self, first: Key, second: Key) {
        if let Some(task) = self.tasks.get_mut(first) {
            task.partner = Some(second);
        }
        if let Some(task) = self.tasks.get_mut(second) {
            task.partner = Some(first);
        }
    }

    /// Takes a command out of its pair. Data that are still to come for the other go to the same buffer.
    pub(super) fn part(&mut self, key: Key) -> Option<Key> {
        let task = self.tasks.get_mut(key)?;
        let partner = task.partner.take()?;
        let buf = task.buffers[0].take();
        let other = self.tasks.get_mut(partner)?;
        other.partner = None;
        if other.awaits == Awaits::Data && other.buffers[0].is_none() {
            other.buffers[0] = buf;
        } else if let Some(task) = self.tasks.get_mut(key) {
            task.buffers[0] = buf;
        }
        Some(partner)
    }

    /// The first command: Compare.
    pub(super) fn begin_first(&mut self, key: Key, pool: &mut BufPool) -> Outcome {
        let mut call = self.call(key, pool)?;
        if call.task.sqe.opcode() != io::COMPARE {
            return Err(Status::INVALID_FIELD.into());
        }
        let (_, len) = call.data_range(Direction::FromHost)?;
        if len > MAX_BYTES as usize {
            return Err(Status::ATOMIC_UNIT_EXCEEDED.into());
        }
        let buf = call.alloc(3 * len)?;
        if let Some(second) = call.task.partner {
            // It came while this one waited for memory.
            self.apply(second, Ok(Next::Receive { buf, at: len, len, then: Work::Fused }), pool);
        }
        Ok(Next::Receive { buf, at: 0, len, then: Work::Fused })
    }

    /// The second command: Write, of the same blocks.
    pub(super) fn begin_second(&mut self, key: Key, pool: &mut BufPool) -> Outcome {
        let call = self.call(key, pool)?;
        let (_, len) = call.data_range(Direction::FromHost)?;
        if call.namespace.is_read_only() {
            return Err(Status::WRITE_PROTECTED.into());
        }
        let (second, partner) = (call.task.sqe, call.task.partner);
        let first = partner.and_then(|p| self.tasks.get(p)).ok_or(Stop::Failed(Status::MISSING_FUSED))?;
        let same = first.sqe.nsid() == second.nsid() && first.sqe.blocks() == second.blocks();
        if second.opcode() != io::WRITE || !same {
            return Err(Status::INVALID_FIELD.into());
        }
        match first.buffers[0] {
            Some(buf) => Ok(Next::Receive { buf, at: len, len, then: Work::Fused }),
            None => Ok(Next::Wait(Awaits::Partner, Work::Begin)),
        }
    }

    /// The data of one of the two are there; when those of both are, they become an op of the first.
    pub(super) fn proceed_fused(&mut self, key: Key, pool: &mut BufPool) -> Outcome {
        let wait = Ok(Next::Wait(Awaits::Partner, Work::Fused));
        let task = self.tasks.get(key).expect("only commands in progress go on");
        let Some(partner) = task.partner else { return wait };
        let is_there = |t: &Task| t.awaits == Awaits::Partner && matches!(t.work, Work::Fused);
        if !self.tasks.get(partner).is_some_and(is_there) {
            return wait;
        }
        let first = if task.sqe.fuse() == Fuse::First { key } else { partner };
        let second = if first == key { partner } else { key };
        let fua = self.tasks.get(second).is_some_and(|t| t.sqe.fua());
        let call = self.call(first, pool)?;
        let BlockRange { start: lba, count } = call.task.sqe.blocks();
        let buf = call.task.buffers[0].expect("the first command holds the buffer from its beginning");
        let op = Op::CompareAndWrite { lba, count, fua, buf };
        let submit = call.submit(op, Work::FusedDone);
        if first == key {
            return submit;
        }
        self.apply(first, submit, pool);
        wait
    }

    /// The op of the first is done, and so are both.
    pub(super) fn end_fused(&mut self, key: Key, pool: &mut BufPool) -> Outcome {
        let second = self.part(key);
        self.end(key, Status::SUCCESS, 0, None, pool);
        if let Some(second) = second {
            self.end(second, Status::SUCCESS, 0, None, pool);
        }
        Ok(Next::Stay)
    }
}
