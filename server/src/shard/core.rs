//! The heart of a shard, without sockets or waiting: protocol, engine and backends, and what flows between them.
//!
//! ```text
//!  bytes ─► Node ─► Submit ─► Engine ─► Io ─► backends ─► Ended ─► Engine ─► Done ─► Node ─► bytes
//! ```
//!
//! [`Core::turn`] carries everything along that line until nothing moves, hands the disks all that was queued at once, and
//! leaves in [`Core::errands`] what the owner of sockets, state and log has to do.

use super::clock::Clock;
use super::disks::Disks;
use platter_backends::Ended;
use platter_block::{BufPool, DiskId, DiskOp, Instant, Op, Status, Tag, VolumeId};
use platter_engine::{Engine, Input, Output as EngineOutput};
use platter_proto::iscsi::{ConnId, Node, Output as NodeOutput};

pub(super) struct Core {
    pub(super) clock: Clock,
    pub(super) node: Node,
    pub(super) engine: Engine,
    pub(super) pool: BufPool,
    pub(super) disks: Disks,
    /// What the owner of the sockets has to do; drained by it after every turn.
    pub(super) errands: Vec<Errand>,
    /// Reused between turns.
    ended: Vec<Ended>,
    /// Ops that this shard itself submitted (the flush at the end) and that have not ended.
    own_ops: Vec<(Tag, Option<Status>)>,
    next_own: u64,
}

/// What a turn leaves to do for the owner of sockets, state and log.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Errand {
    /// This connection has something to write.
    Write(ConnId),
    /// Close this socket, perhaps after what is queued was written.
    Close { conn: ConnId, flush: bool },
    /// The login of this connection names a target of another shard.
    Move { conn: ConnId, target: String },
    /// An op found that this disk is not there any more.
    Gone(DiskId),
    /// A flush failed: store the mark.
    Poisoned(DiskId),
    /// The operator cleared the mark.
    Healed(DiskId),
}

/// Tags of ops that the shard itself submits. The protocols use other values of the top 16 bits.
pub(super) const OWN_TAGS: u16 = 0;
/// Tags of the iSCSI node.
pub(super) const ISCSI_TAGS: u16 = 1;

impl Core {
    pub(super) fn new(clock: Clock, node: Node, engine: Engine, pool: BufPool, disks: Disks) -> Self {
        Self {
            clock,
            node,
            engine,
            pool,
            disks,
            errands: Vec::new(),
            ended: Vec::new(),
            own_ops: Vec::new(),
            next_own: 0,
        }
    }

    /// Carries everything as far as it goes without waiting.
    pub(super) fn turn(&mut self) {
        loop {
            while self.drain_node() | self.drain_engine() {}
            self.disks.kick();
            self.disks.reap(&mut self.ended);
            if self.ended.is_empty() {
                return;
            }
            let now = self.clock.now();
            for Ended { io, disk, status, report } in self.ended.drain(..) {
                if status == Status::Gone && !self.errands.contains(&Errand::Gone(disk)) {
                    self.errands.push(Errand::Gone(disk));
                }
                self.engine.handle(now, Input::Completed { io, status, report });
            }
        }
    }

    /// Submits an op of the shard itself; ask [`own_ops_ended`](Self::own_ops_ended) for its end.
    pub(super) fn submit_own(&mut self, volume: VolumeId, op: Op) {
        self.next_own += 1;
        let tag = Tag(u64::from(OWN_TAGS) << 48 | self.next_own);
        self.own_ops.push((tag, None));
        self.engine.handle(self.clock.now(), Input::Submit { tag, volume, op });
    }

    /// The statuses of the shard's own ops once all have ended.
    pub(super) fn own_ops_ended(&self) -> Option<Vec<Status>> {
        self.own_ops.iter().map(|(_, status)| *status).collect()
    }

    /// Runs what is due by the clock.
    pub(super) fn tick(&mut self) {
        let now = self.clock.now();
        if self.node.poll_timeout().is_some_and(|at| at <= now) {
            self.node.tick(now, &mut self.pool);
        }
        if self.engine.poll_timeout().is_some_and(|at| at <= now) {
            self.engine.handle(now, Input::Tick);
        }
    }

    /// When [`tick`](Self::tick) has something to do next.
    pub(super) fn next_tick(&self) -> Option<Instant> {
        [self.node.poll_timeout(), self.engine.poll_timeout()].into_iter().flatten().min()
    }

    fn drain_node(&mut self) -> bool {
        let mut moved = false;
        while let Some(output) = self.node.poll_output() {
            moved = true;
            match output {
                NodeOutput::Submit { tag, volume, op } => {
                    self.engine.handle(self.clock.now(), Input::Submit { tag, volume, op });
                }
                NodeOutput::Abort { tag } => self.engine.handle(self.clock.now(), Input::Abort { tag }),
                NodeOutput::Transmit { conn } => self.errands.push(Errand::Write(conn)),
                NodeOutput::Close { conn, flush } => self.errands.push(Errand::Close { conn, flush }),
                NodeOutput::Event(event) => tracing::info!("{event}"),
                NodeOutput::Elsewhere { conn, name } => self.errands.push(Errand::Move { conn, target: name }),
            }
        }
        moved
    }

    fn drain_engine(&mut self) -> bool {
        let mut moved = false;
        while let Some(output) = self.engine.poll_output() {
            moved = true;
            match output {
                EngineOutput::Io { io, disk, op } => {
                    let data = match op {
                        DiskOp::Read { count, buf, at, .. } | DiskOp::Write { count, buf, at, .. } => {
                            let at = at as usize;
                            let len = count.bytes(self.disks.block_size(disk)) as usize;
                            Some(self.pool.slice(buf, at..at + len))
                        }
                        _ => None,
                    };
                    self.disks.submit(io, disk, op, data);
                }
                EngineOutput::Compare { io, buf, left_at, right_at, len } => {
                    let bytes = self.pool.bytes(buf);
                    let (left, right) = (&bytes[left_at..left_at + len], &bytes[right_at..right_at + len]);
                    let differs_at = left.iter().zip(right).position(|(l, r)| l != r).map(|at| at as u64);
                    self.engine.handle(self.clock.now(), Input::Compared { io, differs_at });
                }
                EngineOutput::Combine { io, buf, into_at, from_at, len } => {
                    let bytes = self.pool.bytes_mut(buf);
                    for i in 0..len {
                        bytes[into_at + i] |= bytes[from_at + i];
                    }
                    self.engine.handle(self.clock.now(), Input::Combined { io });
                }
                EngineOutput::Done { tag, status, report } => {
                    if (tag.0 >> 48) as u16 == ISCSI_TAGS {
                        self.node.completed(self.clock.now(), tag, status, report, &mut self.pool);
                    } else if let Some((_, end)) = self.own_ops.iter_mut().find(|(own, _)| *own == tag) {
                        *end = Some(status);
                    }
                }
                EngineOutput::VolumeChanged { volume } => {
                    if let Some(info) = self.engine.volume_info(volume) {
                        self.node.volume_changed(volume, &info);
                    }
                }
                EngineOutput::Poisoned { disk } => self.errands.push(Errand::Poisoned(disk)),
                EngineOutput::Healed { disk } => self.errands.push(Errand::Healed(disk)),
            }
        }
        moved
    }
}
