//! Connect (NVMe base, Fabrics Connect command): which queue of which controller a connection becomes.

use std::sync::Arc;

use platter_block::BufPool;

use super::DISCOVERY_NQN;
use super::controller::{Controller, Counters};
use super::data::{AsyncEvents, ChangedNamespaces, Features};
use super::event::{Event, EventKind};
use super::fabrics;
use super::logs::ErrorLog;
use super::property::Properties;
use super::queue::Role;
use super::sqe::Sqe;
use super::status::Status;
use super::target::{Output, QueueId, Target};
use super::task::{Awaits, Direction, Memory, Next, Outcome, Stop, Work};
use super::timers::round_kato;
use crate::slab::Key;

/// Connect data.
const DATA_LEN: usize = 1024;
const CNTLID_AT: usize = 16;
const SUBNQN_AT: usize = 256;
const HOSTNQN_AT: usize = 512;
const NAME_FIELD: usize = 256;
const MAX_NAME: usize = 223;

/// CNTLID that asks for any controller.
const ANY_CONTROLLER: u16 = 0xffff;

/// CATTR: disable SQ flow control.
const NO_FLOW_CONTROL: u8 = 1 << 2;

/// A Connect whose names have been read.
#[derive(Debug)]
pub(super) struct ConnectRequest {
    host_id: [u8; 16],
    cntlid: u16,
    subsystem: String,
    host: String,
    /// It came from another target: that is not asked again.
    pub(super) adopted: bool,
}

/// Why a Connect is refused: Dwords 0 and 1, and what the log says.
struct Refusal {
    status: Status,
    result: u32,
    why: String,
}

/// A field of the submission queue entry (IATTR 0).
fn in_sqe(at: usize, why: String) -> Refusal {
    Refusal { status: Status::CONNECT_INVALID, result: at as u32, why }
}

/// A field of the data (IATTR 1).
fn in_data(at: usize, why: String) -> Refusal {
    Refusal { status: Status::CONNECT_INVALID, result: 1 << 16 | at as u32, why }
}

fn plain(status: Status, why: &str) -> Refusal {
    Refusal { status, result: 0, why: why.to_owned() }
}

impl Target {
    /// A command on a connection that is not a queue yet.
    pub(super) fn begin_unconnected(&mut self, key: Key, pool: &mut BufPool) -> Outcome {
        let taken = self.memory.is_taken();
        let task = self.tasks.get_mut(key).expect("only commands in progress begin");
        let is_only = self.queues.get(task.queue).is_some_and(|q| q.active.len() == 1);
        let sqe = task.sqe;
        if sqe.opcode() != fabrics::OPCODE || sqe.fctype() != fabrics::CONNECT || !is_only {
            return Err(Status::SEQUENCE_ERROR.into());
        }
        if sqe.u16(40) != 0 {
            return Err(Status::CONNECT_FORMAT.into());
        }
        task.expect_len(DATA_LEN as u64, Direction::FromHost)?;
        let buf = task.alloc(DATA_LEN, &mut Memory { pool, taken })?;
        Ok(Next::Receive { buf, at: 0, len: DATA_LEN, then: Work::ConnectData })
    }

    /// The Connect data are there.
    pub(super) fn connect_data(&mut self, key: Key, pool: &mut BufPool) -> Outcome {
        let task = self.tasks.get_mut(key).expect("only commands in progress go on");
        let buf = task.buffers[0].take().expect("the data of Connect are in a buffer");
        let request = parse(pool.bytes(buf));
        pool.free(buf);
        match request {
            Ok(request) => self.connect(key, Box::new(request)),
            Err(refusal) => Err(self.refuse(key, "", "", refusal)),
        }
    }

    /// Makes the queue, or waits for what is in its way.
    pub(super) fn connect(&mut self, key: Key, request: Box<ConnectRequest>) -> Outcome {
        let sqe = self.tasks.get(key).expect("only commands in progress go on").sqe;
        match self.try_connect(key, &sqe, &request) {
            Ok(Connected::Now(cntlid)) => Ok(Next::Done { result: cntlid.into(), data: None }),
            Ok(Connected::AfterOthers) => {
                self.waiting_connects.push(key);
                Ok(Next::Wait(Awaits::Quiet, Work::Connect(request)))
            }
            Ok(Connected::Elsewhere) => {
                let queue = QueueId(self.queue_of(key).to_bits());
                self.outputs.push_back(Output::Elsewhere { queue, subsystem: request.subsystem.clone() });
                Ok(Next::Wait(Awaits::Elsewhere, Work::Connect(request)))
            }
            Err(refusal) => Err(self.refuse(key, &request.host, &request.subsystem, refusal)),
        }
    }

    fn refuse(&mut self, key: Key, host: &str, subsystem: &str, refusal: Refusal) -> Stop {
        let peer = self.queues.get(self.queue_of(key)).map(|q| q.peer.clone()).unwrap_or_else(|| Arc::from(""));
        let kind = EventKind::ConnectRefused {
            host: host.to_owned(),
            subsystem: subsystem.to_owned(),
            status: refusal.status.code(),
            why: refusal.why,
        };
        self.outputs.push_back(Output::Event(Event { peer, kind }));
        Stop::FailedWith(refusal.status, refusal.result.into())
    }

    fn queue_of(&self, key: Key) -> Key {
        self.tasks.get(key).expect("only commands in progress go on").queue
    }

    fn try_connect(&mut self, key: Key, sqe: &Sqe, request: &ConnectRequest) -> Result<Connected, Refusal> {
        const QID_AT: usize = 42;
        const SQSIZE_AT: usize = 44;
        let queue_key = self.queue_of(key);
        let portal = self.queues.get(queue_key).map_or(0, |q| q.portal.number);
        let Some(subsystem) = self.find_subsystem(request, portal)? else { return Ok(Connected::Elsewhere) };
        if self.draining {
            return Err(plain(Status::CONNECT_BUSY, "the server stops"));
        }
        let sqsize = sqe.u16(SQSIZE_AT);
        if sqsize == 0 || u32::from(sqsize) >= self.limits.queue_entries {
            return Err(in_sqe(SQSIZE_AT, format!("SQSIZE {sqsize}, largest {}", self.limits.queue_entries - 1)));
        }
        let qid = sqe.u16(QID_AT);
        let controller = if qid == 0 {
            if request.cntlid != ANY_CONTROLLER {
                return Err(in_data(CNTLID_AT, format!("CNTLID {:#06x}: controllers are dynamic", request.cntlid)));
            }
            if self.is_host_busy(subsystem, request) {
                return Ok(Connected::AfterOthers);
            }
            self.make_controller(queue_key, subsystem, sqe, request)?
        } else {
            let controller = self.find_controller(subsystem, portal, request)?;
            let place = self.controllers.get_mut(controller).and_then(|c| c.io.get_mut(usize::from(qid) - 1));
            match place {
                Some(place @ None) => *place = Some(queue_key),
                Some(Some(_)) => return Err(in_sqe(QID_AT, format!("QID {qid} is connected already"))),
                None => return Err(in_sqe(QID_AT, format!("QID {qid}, largest {}", self.limits.io_queues))),
            }
            controller
        };
        let role = if qid == 0 { Role::Admin(controller) } else { Role::Io(controller, qid) };
        let flow_control = sqe.0[46] & NO_FLOW_CONTROL == 0;
        if let Some(queue) = self.queues.get_mut(queue_key) {
            queue.connected(role, u32::from(sqsize) + 1, flow_control);
        }
        Ok(Connected::Now(self.controllers.get(controller).map_or(0, |c| c.cntlid)))
    }

    /// The subsystem, `Some(None)` for discovery; `None` if another target has it.
    fn find_subsystem(&self, request: &ConnectRequest, portal: u16) -> Result<Option<Option<Key>>, Refusal> {
        let name = request.subsystem.as_str();
        if name == DISCOVERY_NQN {
            return Ok(Some(None));
        }
        let unknown = |why: &str| in_data(SUBNQN_AT, format!("SUBNQN: {why}"));
        if !self.directory.is_through(name, portal) {
            return Err(unknown("not through this portal"));
        }
        match self.subsystems.iter().find(|(_, s)| s.nqn == name) {
            Some((key, subsystem)) if subsystem.hosts.allows(&request.host) => Ok(Some(Some(key))),
            Some(_) => Err(unknown("not for this host")),
            None if !request.adopted && self.directory.lists(name, &request.host) => Ok(None),
            None => Err(unknown("unknown to this host")),
        }
    }

    /// Whether an earlier controller of the host has ended, but not yet its last op.
    fn is_host_busy(&self, subsystem: Option<Key>, request: &ConnectRequest) -> bool {
        self.controllers.iter().any(|(_, c)| {
            c.ended.is_some() && c.subsystem == subsystem && c.host_id == request.host_id && *c.host == *request.host
        })
    }

    /// The controller of an I/O queue.
    fn find_controller(&self, subsystem: Option<Key>, portal: u16, request: &ConnectRequest) -> Result<Key, Refusal> {
        let cntlid = request.cntlid;
        let found = self.controllers.iter().find(|(_, c)| {
            c.ended.is_none() && c.cntlid == cntlid && c.subsystem == subsystem && c.portal.number == portal
        });
        let Some((key, controller)) = found else {
            return Err(in_data(CNTLID_AT, format!("CNTLID {cntlid:#06x}: no such controller through this portal")));
        };
        if *controller.host != *request.host {
            return Err(in_data(HOSTNQN_AT, format!("HOSTNQN is not that of controller {cntlid:#06x}")));
        }
        if controller.host_id != request.host_id {
            return Err(in_data(0, format!("HOSTID is not that of controller {cntlid:#06x}")));
        }
        if !controller.is_ready() {
            return Err(plain(Status::SEQUENCE_ERROR, "an I/O queue of a controller that is not enabled"));
        }
        Ok(key)
    }

    fn make_controller(
        &mut self,
        admin: Key,
        subsystem: Option<Key>,
        sqe: &Sqe,
        request: &ConnectRequest,
    ) -> Result<Key, Refusal> {
        if self.controllers.len() >= self.limits.controllers {
            return Err(plain(Status::CONNECT_BUSY, "as many controllers as there may be"));
        }
        let cntlid = self.free_cntlid().ok_or_else(|| plain(Status::CONNECT_BUSY, "no free controller identifier"))?;
        let queue = self.queues.get(admin).expect("its Connect is in progress");
        let (peer, portal) = (queue.peer.clone(), queue.portal.clone());
        let kato = round_kato(sqe.u32(48));
        let io = if subsystem.is_some() { vec![None; usize::from(self.limits.io_queues)] } else { Vec::new() };
        self.made += 1;
        let controller = Controller {
            number: self.made,
            subsystem,
            nqn: Arc::from(request.subsystem.as_str()),
            cntlid,
            host: Arc::from(request.host.as_str()),
            host_id: request.host_id,
            peer: peer.clone(),
            portal,
            since: self.now,
            admin,
            io,
            properties: Properties::default(),
            is_resetting: false,
            kato,
            heard: self.now,
            timer: None,
            features: Features::default(),
            events: AsyncEvents::default(),
            changed: ChangedNamespaces::default(),
            event_requests: Vec::new(),
            aborts: 0,
            tasks: 0,
            ops: 0,
            counters: Counters::default(),
            errors: ErrorLog::default(),
            ended: None,
            aborted: 0,
        };
        let key = self.controllers.insert(controller);
        self.start_timer(key);
        let kind =
            EventKind::Connected { host: request.host.clone(), subsystem: request.subsystem.clone(), cntlid, kato };
        self.outputs.push_back(Output::Event(Event { peer, kind }));
        Ok(key)
    }

    /// The next controller identifier, in turn, so that one that has just ended is not given out again at once.
    fn free_cntlid(&mut self) -> Option<u16> {
        let (first, last) = (*self.cntlid.start(), *self.cntlid.end());
        let mut candidate = self.last_cntlid;
        for _ in self.cntlid.clone() {
            candidate = if (first..last).contains(&candidate) { candidate + 1 } else { first };
            if self.controllers.iter().all(|(_, c)| c.cntlid != candidate) {
                self.last_cntlid = candidate;
                return Some(candidate);
            }
        }
        None
    }
}

/// How far a Connect got.
enum Connected {
    /// The queue is there, of this controller.
    Now(u16),
    AfterOthers,
    Elsewhere,
}

fn parse(data: &[u8]) -> Result<ConnectRequest, Refusal> {
    Ok(ConnectRequest {
        host_id: data[..CNTLID_AT].try_into().expect("sixteen bytes"),
        cntlid: u16::from_le_bytes([data[CNTLID_AT], data[CNTLID_AT + 1]]),
        subsystem: name(data, SUBNQN_AT, "SUBNQN")?,
        host: name(data, HOSTNQN_AT, "HOSTNQN")?,
        adopted: false,
    })
}

/// An NQN: UTF-8, ended by a NUL, 1 to 223 bytes.
fn name(data: &[u8], at: usize, field: &str) -> Result<String, Refusal> {
    let bytes = &data[at..at + NAME_FIELD];
    let end = bytes.iter().position(|&b| b == 0);
    let name = end.filter(|n| (1..=MAX_NAME).contains(n)).and_then(|n| std::str::from_utf8(&bytes[..n]).ok());
    name.map(str::to_owned).ok_or_else(|| in_data(at, format!("{field} is not a name of 1 to 223 bytes")))
}
