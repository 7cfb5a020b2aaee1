//! A shard's part of `platter status`.

use super::Shard;
use crate::status::{Asked, DiskStatus, SessionStatus, ShardStatus, VolumeStatus};

impl Shard {
    pub(super) fn report(&self) -> ShardStatus {
        let core = self.core.borrow();
        let sessions = core.node.sessions().into_iter().map(|s| SessionStatus {
            target: s.target.unwrap_or_default(),
            initiator: s.initiator,
            peer: s.peer,
            tasks: s.tasks,
        });
        let volumes = self.volumes.iter().map(|v| {
            let info = core.engine.volume_info(v.id);
            VolumeStatus {
                name: v.name.clone(),
                ready: info.as_ref().is_some_and(|i| i.ready),
                bytes: info.as_ref().map_or(0, |i| i.blocks * u64::from(i.block_size)),
                block_size: info.as_ref().map_or(0, |i| i.block_size),
                write_cache: info.as_ref().is_some_and(|i| i.write_cache),
                export: v.export.clone(),
            }
        });
        let poisoned = self.poisoned.borrow();
        let disks = core.disks.list().map(|(id, config, presence)| {
            let flush = core.engine.disk_stats(id).unwrap_or_default().flush;
            let asked = core.disks.recording().counts(id);
            DiskStatus {
                name: config.name.clone(),
                path: config.path.as_ref().map_or_else(String::new, |p| p.display().to_string()),
                state: match (presence, poisoned.get(&id)) {
                    (Err(why), _) => format!("missing: {why}"),
                    (Ok(_), Some(why)) => format!("POISONED: {why}"),
                    (Ok(_), None) => "ok".into(),
                },
                kind: presence.unwrap_or_default().to_owned(),
                flush_requested: flush.requested,
                flush_elided: flush.elided,
                flush_joined: flush.joined,
                flush_issued: flush.issued,
                flush_refused: flush.refused,
                flush_failed: flush.failed,
                asked: Asked {
                    reads: asked.reads,
                    writes: asked.writes + asked.fua_writes,
                    fua_writes: asked.fua_writes,
                    flushes: asked.flushes,
                    write_zeroes: asked.write_zeroes,
                    unmaps: asked.unmaps,
                },
            }
        });
        ShardStatus {
            shard: self.index,
            backend: self.backend.clone(),
            memory_in_use: core.pool.in_use() as u64,
            memory_budget: core.pool.budget() as u64,
            connections: self.sockets.borrow().len(),
            sessions: sessions.collect(),
            volumes: volumes.collect(),
            disks: disks.collect(),
        }
    }
}
