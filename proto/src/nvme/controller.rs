//! Controllers: made by Connect on an admin queue, ended with it, and not quite gone before their last op is.

use std::sync::Arc;

use platter_block::{BufPool, Instant};

use super::config::PortalInfo;
use super::data::{AsyncEvents, ChangedNamespaces, Features};
use super::event::{Event, EventKind};
use super::io;
use super::logs::ErrorLog;
use super::property::Properties;
use super::queue::Role;
use super::status::Status;
use super::target::{ControllerInfo, Output, QueueId, Target};
use super::task::Awaits;
use crate::slab::Key;

/// One controller.
#[derive(Debug)]
pub(super) struct Controller {
    /// Counts up over all controllers of the target.
    pub(super) number: u64,
    /// `None`: a discovery controller.
    pub(super) subsystem: Option<Key>,
    pub(super) nqn: Arc<str>,
    pub(super) cntlid: u16,
    pub(super) host: Arc<str>,
    pub(super) host_id: [u8; 16],
    pub(super) peer: Arc<str>,
    pub(super) portal: PortalInfo,
    pub(super) since: Instant,
    pub(super) admin: Key,
    /// By QID - 1.
    pub(super) io: Vec<Option<Key>>,
    pub(super) properties: Properties,
    /// CC.EN was cleared: CSTS.RDY follows when the last op has ended.
    pub(super) is_resetting: bool,
    /// Keep Alive Timeout in milliseconds; 0 if none.
    pub(super) kato: u32,
    /// When the host last showed that it is there.
    pub(super) heard: Instant,
    /// When its timer is looked at next.
    pub(super) timer: Option<Instant>,
    pub(super) features: Features,
    pub(super) events: AsyncEvents,
    pub(super) changed: ChangedNamespaces,
    /// Asynchronous Event Requests, oldest first.
    pub(super) event_requests: Vec<Key>,
    /// Abort commands that wait for the end of what they abort.
    pub(super) aborts: usize,
    /// Commands in progress, waiting Asynchronous Event Requests not counted.
    pub(super) tasks: usize,
    /// Ops in the engine.
    pub(super) ops: usize,
    pub(super) counters: Counters,
    pub(super) errors: ErrorLog,
    /// Why it has ended.
    pub(super) ended: Option<String>,
    /// Ops that were aborted by its end, or by that of one of its queues.
    pub(super) aborted: usize,
}

/// What the I/O commands of a controller did.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counters {
    pub(super) commands: u64,
    /// Read commands, and Compare and Verify, which read too.
    pub(super) reads: u64,
    pub(super) writes: u64,
    /// To the host.
    pub(super) bytes_read: u64,
    /// From the host.
    pub(super) bytes_written: u64,
}

impl Counters {
    /// A command ended; `bytes` is 0 if it failed.
    pub(super) const fn count(&mut self, opcode: u8, bytes: u64) {
        self.commands += 1;
        match opcode {
            io::READ => {
                self.reads += 1;
                self.bytes_read += bytes;
            }
            io::WRITE => {
                self.writes += 1;
                self.bytes_written += bytes;
            }
            io::COMPARE => self.reads += 1,
            _ => {}
        }
    }
}

impl Controller {
    /// Whether commands other than those of fabrics are taken.
    pub(super) const fn is_ready(&self) -> bool {
        self.properties.is_ready()
    }

    pub(super) fn io_queues(&self) -> impl Iterator<Item = Key> {
        self.io.iter().flatten().copied()
    }

    fn info(&self) -> ControllerInfo {
        ControllerInfo {
            host: self.host.to_string(),
            host_id: self.host_id,
            subsystem: self.nqn.to_string(),
            cntlid: self.cntlid,
            peer: self.peer.to_string(),
            portal: self.portal.number,
            since: self.since,
            kato: self.kato,
            io_queues: self.io_queues().count(),
            tasks: self.tasks,
            commands: self.counters.commands,
            bytes_received: self.counters.bytes_written,
            bytes_sent: self.counters.bytes_read,
        }
    }
}

impl Target {
    /// The controller of a command in progress.
    pub(super) fn controller_of(&self, task: Key) -> &Controller {
        let controller = self.tasks.get(task).and_then(|t| t.controller);
        controller.and_then(|c| self.controllers.get(c)).expect("commands of a controller that is gone do not go on")
    }

    pub(super) fn controller_of_mut(&mut self, task: Key) -> &mut Controller {
        let controller = self.tasks.get(task).and_then(|t| t.controller);
        controller
            .and_then(|c| self.controllers.get_mut(c))
            .expect("commands of a controller that is gone do not go on")
    }

    /// Ends a controller: its connections are closed, its commands end without a reply.
    pub(super) fn end_controller(&mut self, key: Key, why: &str, pool: &mut BufPool) {
        let Some(controller) = self.controllers.get_mut(key).filter(|c| c.ended.is_none()) else { return };
        controller.ended = Some(why.to_owned());
        let queues: Vec<Key> = std::iter::once(controller.admin).chain(controller.io_queues()).collect();
        self.stop_timer(key);
        let mut aborted = 0;
        for queue in queues {
            aborted += self.cut(queue, None, pool);
            self.close_queue(queue);
        }
        if let Some(controller) = self.controllers.get_mut(key) {
            controller.aborted += aborted;
            controller.io.clear();
        }
        self.bury(key);
    }

    /// Lets go of a controller that has ended, if its last op has.
    pub(super) fn bury(&mut self, key: Key) {
        if self.controllers.get(key).is_none_or(|c| c.ended.is_none() || c.ops > 0) {
            return;
        }
        let Some(controller) = self.controllers.remove(key) else { return };
        let kind = EventKind::ControllerEnded {
            host: controller.host.to_string(),
            cntlid: controller.cntlid,
            aborted: controller.aborted,
            why: controller.ended.unwrap_or_default(),
        };
        self.outputs.push_back(Output::Event(Event { peer: controller.peer, kind }));
        self.quiet = true;
    }

    /// CC.EN was cleared by this command: a Controller Level Reset. The I/O queues go with their commands, and of the admin
    /// queue all commands but this one end.
    pub(super) fn reset(&mut self, by: Key, pool: &mut BufPool) {
        let controller = self.controller_of_mut(by);
        controller.is_resetting = true;
        controller.features = Features::default();
        controller.events = AsyncEvents::default();
        controller.changed = ChangedNamespaces::default();
        let io: Vec<Key> = controller.io.iter_mut().filter_map(Option::take).collect();
        let admin = controller.admin;
        for queue in io {
            self.cut(queue, None, pool);
            self.close_queue(queue);
        }
        let commands = self.queues.get(admin).map(|q| q.active.tasks().to_vec()).unwrap_or_default();
        for command in commands.into_iter().filter(|&t| t != by) {
            self.stop(command, Status::ABORTED, pool);
        }
    }

    /// Ends the commands of the queue without a reply, but for `except`; those of the engine are aborted. Returns how many
    /// those are.
    pub(super) fn cut(&mut self, queue: Key, except: Option<Key>, pool: &mut BufPool) -> usize {
        let Some(tasks) = self.queues.get(queue).map(|q| q.active.tasks().to_vec()) else { return 0 };
        let mut aborted = 0;
        for key in tasks.into_iter().filter(|&t| Some(t) != except) {
            let Some(task) = self.tasks.get_mut(key) else { continue };
            match task.awaits {
                Awaits::Op { .. } => {
                    task.silent = true;
                    aborted += 1;
                    self.stop(key, Status::ABORTED, pool);
                }
                Awaits::Data => task.silent = true,
                _ => self.drop_task(key, pool),
            }
        }
        aborted
    }

    /// See [`Target::closed`].
    pub(super) fn queue_closed(&mut self, key: Key, pool: &mut BufPool) {
        let Some(role) = self.queues.get(key).map(|q| q.role) else { return };
        self.forget_io_queue(key);
        if let Some(queue) = self.queues.get_mut(key) {
            queue.closing = true;
        }
        if let Role::Admin(controller) = role {
            self.end_controller(controller, "its connection ended", pool);
        }
        let aborted = self.cut(key, None, pool);
        if let Role::Io(controller, _) = role
            && let Some(controller) = self.controllers.get_mut(controller)
        {
            controller.aborted += aborted;
        }
        // What is left has an op in the engine, or waited for data that do not come any more.
        let left = self.queues.remove(key).map(|q| q.active.tasks().to_vec()).unwrap_or_default();
        for task in left {
            if self.tasks.get(task).is_some_and(|t| t.awaits == Awaits::Data) {
                self.drop_task(task, pool);
            }
        }
    }

    /// Ends the connection of a queue, if it has not ended.
    pub(super) fn close_queue(&mut self, key: Key) {
        if let Some(queue) = self.queues.get_mut(key) {
            queue.role = Role::Ended;
            if !queue.closing {
                queue.closing = true;
                self.outputs.push_back(Output::Close { queue: QueueId(key.to_bits()) });
            }
        }
    }

    /// Takes an I/O queue from its controller.
    pub(super) fn forget_io_queue(&mut self, key: Key) {
        if let Some(Role::Io(controller, qid)) = self.queues.get(key).map(|q| q.role)
            && let Some(place) = self.controllers.get_mut(controller).and_then(|c| c.io.get_mut(usize::from(qid) - 1))
        {
            *place = None;
        }
    }

    /// Live controllers of one subsystem.
    pub(super) fn controllers_of(&self, subsystem: Option<Key>) -> Vec<Key> {
        let live = self.controllers.iter().filter(|(_, c)| c.ended.is_none() && c.subsystem == subsystem);
        live.map(|(key, _)| key).collect()
    }

    /// See [`Target::controllers`].
    pub(super) fn controller_infos(&self) -> Vec<ControllerInfo> {
        let mut live: Vec<&Controller> =
            self.controllers.iter().map(|(_, c)| c).filter(|c| c.ended.is_none()).collect();
        live.sort_unstable_by_key(|c| c.number);
        live.into_iter().map(Controller::info).collect()
    }

    /// Ends a draining controller that has answered everything.
    pub(super) fn drain_controller(&mut self, key: Key, pool: &mut BufPool) {
        if self.draining && self.controllers.get(key).is_some_and(|c| c.tasks == 0) {
            self.end_controller(key, "the server stops", pool);
        }
    }
}
