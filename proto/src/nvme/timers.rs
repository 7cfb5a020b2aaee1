//! Time: the keep alive timer of each controller, and the look at who waits for memory.
//!
//! Every command restarts the timer of its controller (Traffic Based Keep Alive, CTRATT.TBKAS). That only notes the time:
//! where a timer is due, it is looked at whether the host was heard meanwhile.

use std::collections::VecDeque;
use std::time::Duration;

use platter_block::{BufPool, Instant};

use super::status::Status;
use super::target::Target;
use super::task::{Awaits, Stop};
use crate::slab::Key;

/// KATO is rounded up to this many milliseconds (KAS, which is in units of 100 ms, is 1).
pub(super) const KATO_GRANULARITY: u32 = 100;

/// How often it is looked for memory while commands wait for some.
const MEMORY_TICK: Duration = Duration::from_millis(10);

/// A timer that is looked at later than this was held up by ourselves (the process was stopped), and what hosts sent
/// meanwhile is still unread: they get as much time again.
const HELD_UP: Duration = Duration::from_secs(1);

/// The Keep Alive Timeout that a host gets, in milliseconds: what it asked for, rounded up; the largest multiple of the
/// granularity that fits where that does not.
pub(super) const fn round_kato(asked: u32) -> u32 {
    const LARGEST: u32 = u32::MAX / KATO_GRANULARITY * KATO_GRANULARITY;
    if asked > LARGEST { LARGEST } else { asked.next_multiple_of(KATO_GRANULARITY) }
}

/// Commands that wait for payload memory, oldest first.
#[derive(Debug, Default)]
pub(super) struct MemoryWait {
    /// With the time at which they are given up. Those that ended otherwise are still in it.
    waiting: VecDeque<(Instant, Key)>,
    /// The first one is being tried again.
    retrying: bool,
    next: Instant,
}

impl MemoryWait {
    /// Whether a command has to wait behind others.
    pub(super) fn is_taken(&self) -> bool {
        !self.retrying && !self.waiting.is_empty()
    }

    pub(super) fn wait(&mut self, now: Instant, task: Key, limit: Duration) {
        if self.waiting.is_empty() {
            self.next = now + MEMORY_TICK;
        }
        self.waiting.push_back((now + limit, task));
    }
}

impl Target {
    /// See [`Target::tick`].
    pub(super) fn run_timers(&mut self, pool: &mut BufPool) {
        while let Some(&(due, key)) = self.timers.first().filter(|(due, _)| *due <= self.now) {
            self.timers.remove(&(due, key));
            let Some(controller) = self.controllers.get_mut(key) else { continue };
            controller.timer = None;
            let late = self.now.since(due);
            if late > HELD_UP {
                controller.heard = controller.heard + late + HELD_UP;
            }
            let limit = self.keep_alive_of(key);
            if self.controllers.get(key).is_some_and(|c| limit.is_some_and(|l| c.heard + l <= self.now)) {
                self.end_controller(key, "keep alive timeout", pool);
            } else {
                self.start_timer(key);
            }
        }
    }

    /// See [`Target::poll_timeout`].
    pub(super) fn next_timer(&self) -> Option<Instant> {
        let memory = self.memory.waiting.front().map(|_| self.memory.next);
        let keep_alive = self.timers.first().map(|&(due, _)| due);
        memory.into_iter().chain(keep_alive).min()
    }

    /// Starts the keep alive timer of a controller, or starts it anew with another limit.
    pub(super) fn start_timer(&mut self, key: Key) {
        self.stop_timer(key);
        let limit = self.keep_alive_of(key);
        if let (Some(limit), Some(controller)) = (limit, self.controllers.get_mut(key)) {
            let due = controller.heard + limit;
            controller.timer = Some(due);
            self.timers.insert((due, key));
        }
    }

    pub(super) fn stop_timer(&mut self, key: Key) {
        if let Some(due) = self.controllers.get_mut(key).and_then(|c| c.timer.take()) {
            self.timers.remove(&(due, key));
        }
    }

    /// How long a controller lives without a command; a discovery controller never forever.
    fn keep_alive_of(&self, key: Key) -> Option<Duration> {
        let controller = self.controllers.get(key)?;
        match controller.kato {
            0 => controller.subsystem.is_none().then_some(self.limits.keep_alive),
            kato => Some(Duration::from_millis(kato.into())),
        }
    }

    /// Goes on with commands that waited for memory, in their order, and gives up those that waited too long.
    pub(super) fn retry_memory(&mut self, pool: &mut BufPool) {
        while let Some(&(deadline, key)) = self.memory.waiting.front() {
            if self.tasks.get(key).is_none_or(|t| t.awaits != Awaits::Memory) {
                self.memory.waiting.pop_front();
                continue;
            }
            self.memory.retrying = true;
            let outcome = self.begin(key, pool);
            self.memory.retrying = false;
            if matches!(outcome, Err(Stop::NoMemory)) {
                if self.now < deadline {
                    if let Some(task) = self.tasks.get_mut(key) {
                        task.free_buffers(None, pool);
                    }
                    self.memory.next = self.now + MEMORY_TICK;
                    return;
                }
                self.memory.waiting.pop_front();
                self.end(key, Status::INTERRUPTED, 0, None, pool);
                continue;
            }
            self.memory.waiting.pop_front();
            self.apply(key, outcome, pool);
        }
    }

    /// What may go on after anything that happened: Connects that waited for an earlier controller, then commands that wait
    /// for memory.
    pub(super) fn settle(&mut self, pool: &mut BufPool) {
        while std::mem::take(&mut self.quiet) {
            for key in std::mem::take(&mut self.waiting_connects) {
                if self.tasks.get(key).is_some_and(|t| t.awaits == Awaits::Quiet) {
                    self.advance(key, pool);
                }
            }
        }
        self.retry_memory(pool);
    }
}
