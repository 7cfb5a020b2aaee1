//! What `platter status` shows: the admin API's answer as data, and as a table for people.

use serde::{Deserialize, Serialize};
use std::fmt::{self, Write as _};

/// The whole answer.
#[derive(Serialize, Deserialize, Debug, Clone, Default)]
pub struct Status {
    /// Version of the server.
    pub version: String,
    /// Seconds since it started.
    pub uptime_seconds: u64,
    /// One per I/O thread.
    pub shards: Vec<ShardStatus>,
}

/// One I/O thread.
#[derive(Serialize, Deserialize, Debug, Clone, Default)]
pub struct ShardStatus {
    /// Which one.
    pub shard: usize,
    /// `uring`, or `threads` and why.
    pub backend: String,
    /// Payload memory in use, in bytes.
    pub memory_in_use: u64,
    /// Payload memory that may be used, in bytes.
    pub memory_budget: u64,
    /// TCP connections.
    pub connections: usize,
    /// Logged-in sessions.
    pub sessions: Vec<SessionStatus>,
    /// Volumes of this thread.
    pub volumes: Vec<VolumeStatus>,
    /// Disks of this thread.
    pub disks: Vec<DiskStatus>,
}

/// One session.
#[derive(Serialize, Deserialize, Debug, Clone, Default)]
pub struct SessionStatus {
    /// Target name; empty in a discovery session.
    pub target: String,
    /// Initiator name.
    pub initiator: String,
    /// Address of the peer.
    pub peer: String,
    /// Commands in progress.
    pub tasks: usize,
}

/// One volume.
#[derive(Serialize, Deserialize, Debug, Clone, Default)]
pub struct VolumeStatus {
    /// Name in the configuration.
    pub name: String,
    /// Every disk is there.
    pub ready: bool,
    /// Capacity in bytes.
    pub bytes: u64,
    /// Logical block size in bytes.
    pub block_size: u32,
    /// What initiators are told: an acknowledged write may be volatile until a flush.
    pub write_cache: bool,
    /// Where it is exported.
    pub export: String,
}

/// One disk.
#[derive(Serialize, Deserialize, Debug, Clone, Default)]
pub struct DiskStatus {
    /// Name in the configuration.
    pub name: String,
    /// Where it is.
    pub path: String,
    /// `ok`, `missing: why`, or `POISONED: why`.
    pub state: String,
    /// What it is: file or block device, direct or buffered and why, volatile cache, FUA.
    pub kind: String,
    /// Flushes that volumes asked of this disk; the sum of the next four.
    pub flush_requested: u64,
    /// Had nothing to do.
    pub flush_elided: u64,
    /// Shared another's flush.
    pub flush_joined: u64,
    /// Sent to the disk.
    pub flush_issued: u64,
    /// Refused, because the disk is missing or poisoned.
    pub flush_refused: u64,
    /// Flushes that the disk failed.
    pub flush_failed: u64,
    /// What the disk was asked, counted below the engine.
    pub asked: Asked,
}

/// Commands that reached a disk.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq)]
pub struct Asked {
    /// Reads.
    pub reads: u64,
    /// Writes, those with FUA included.
    pub writes: u64,
    /// Writes with FUA.
    pub fua_writes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Write-zeroes commands.
    pub write_zeroes: u64,
    /// Deallocations.
    pub unmaps: u64,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "platter {}, up {} s", self.version, self.uptime_seconds)?;
        for s in &self.shards {
            let (used, budget) = (s.memory_in_use >> 20, s.memory_budget >> 20);
            writeln!(
                f,
                "\nshard {}: {}, {} connections, memory {used} of {budget} MiB",
                s.shard, s.backend, s.connections
            )?;
        }
        let disks = self.shards.iter().flat_map(|s| &s.disks);
        let header =
            ["DISK", "STATE", "FLUSHES ASKED", "ELIDED", "JOINED", "ISSUED", "REFUSED", "FAILED", "FUA WRITES", "KIND"];
        let rows = disks.map(|d| {
            let n = |v: u64| v.to_string();
            vec![
                d.name.clone(),
                d.state.clone(),
                n(d.flush_requested),
                n(d.flush_elided),
                n(d.flush_joined),
                n(d.flush_issued),
                n(d.flush_refused),
                n(d.flush_failed),
                n(d.asked.fua_writes),
                d.kind.clone(),
            ]
        });
        table(f, &header, rows.collect())?;
        let volumes = self.shards.iter().flat_map(|s| &s.volumes).map(|v| {
            let state = if v.ready { "ready" } else { "NOT READY" };
            let cache = if v.write_cache { "volatile until flush" } else { "durable" };
            let size = format!("{} MiB", v.bytes >> 20);
            vec![v.name.clone(), state.into(), size, v.block_size.to_string(), cache.into(), v.export.clone()]
        });
        table(f, &["VOLUME", "STATE", "SIZE", "BLOCK", "WRITES ARE", "EXPORT"], volumes.collect())?;
        let sessions = self.shards.iter().flat_map(|s| &s.sessions).map(|s| {
            let target = if s.target.is_empty() { "(discovery)".into() } else { s.target.clone() };
            vec![s.initiator.clone(), s.peer.clone(), target, s.tasks.to_string()]
        });
        table(f, &["INITIATOR", "PEER", "TARGET", "TASKS"], sessions.collect())
    }
}

/// Left-aligned columns as wide as their widest cell.
fn table(f: &mut fmt::Formatter<'_>, header: &[&str], rows: Vec<Vec<String>>) -> fmt::Result {
    let header: Vec<String> = header.iter().map(|h| (*h).to_owned()).collect();
    let lines: Vec<_> = std::iter::once(header).chain(rows).collect();
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<_> = (0..lines[0].len()).map(width).collect();
    f.write_char('\n')?;
    for line in &lines {
        let mut text = String::new();
        for (cell, width) in line.iter().zip(&widths) {
            let _ = write!(text, "{cell:width$}  ");
        }
        writeln!(f, "{}", text.trim_end())?;
    }
    Ok(())
}
