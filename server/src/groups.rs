//! Disk groups: which disks, volumes and targets must live on one shard.
//!
//! Two disks belong to one group if a volume spans them, or if volumes on them are LUNs of one target: then a session
//! never needs a volume of another shard, and a flush gate is never shared between threads.

use crate::config::Plan;

/// The shard of each disk of a plan, and with it of each volume and target.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Groups {
    shard_of_disk: Vec<usize>,
}

impl Groups {
    /// Deals the disk groups out to the shards in turn, in the order of their first disk.
    pub(crate) fn deal(plan: &Plan) -> Self {
        let mut parent: Vec<usize> = (0..plan.disks.len()).collect();
        for volume in &plan.volumes {
            for pair in volume.segments.windows(2) {
                join(&mut parent, pair[0].disk, pair[1].disk);
            }
            let same_target = |other: &&crate::config::Volume| match (&volume.iscsi, &other.iscsi) {
                (Some(a), Some(b)) => a.target == b.target,
                _ => false,
            };
            if let Some(sibling) = plan.volumes.iter().find(same_target) {
                join(&mut parent, volume.segments[0].disk, sibling.segments[0].disk);
            }
        }
        let mut shard_of_root = vec![None; parent.len()];
        let mut groups = 0;
        let mut shard_of_disk = Vec::new();
        for disk in 0..parent.len() {
            let root = root(&parent, disk);
            let shard = *shard_of_root[root].get_or_insert_with(|| {
                groups += 1;
                (groups - 1) % usize::from(plan.shards)
            });
            shard_of_disk.push(shard);
        }
        Self { shard_of_disk }
    }

    pub(crate) fn of_disk(&self, disk: usize) -> usize {
        self.shard_of_disk[disk]
    }

    pub(crate) fn of_volume(&self, volume: &crate::config::Volume) -> usize {
        self.shard_of_disk[volume.segments[0].disk]
    }
}

fn root(parent: &[usize], mut disk: usize) -> usize {
    while parent[disk] != disk {
        disk = parent[disk];
    }
    disk
}

fn join(parent: &mut [usize], a: usize, b: usize) {
    let (a, b) = (root(parent, a), root(parent, b));
    parent[a.max(b)] = a.min(b);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse;

    #[test]
    fn disks_of_one_volume_or_one_target_share_a_shard_and_others_spread() {
        let mut text = String::from("shards: 2\nportals: { p: { listen: '127.0.0.1:1' } }\ndisks:\n");
        for d in 0..5 {
            text.push_str(&format!("  d{d}: {{ path: /nowhere/d{d} }}\n"));
        }
        text.push_str("volumes:\n");
        for (volume, disks, target) in [("a", [0, 2], "x"), ("b", [1, 1], "y"), ("c", [3, 3], "y"), ("d", [4, 4], "z")]
        {
            text.push_str(&format!("  {volume}:\n    hosts: {{ allow_any: true }}\n    segments:\n"));
            for (i, disk) in disks.into_iter().enumerate() {
                text.push_str(&format!("      - {{ disk: d{disk}, offset: {}MiB, size: 1MiB }}\n", i + 1));
            }
            let lun = u8::from(volume == "c");
            text.push_str(&format!("    iscsi: {{ target: 'iqn.2026-11.com.example:{target}', lun: {lun} }}\n"));
        }
        let plan = parse(std::path::Path::new("p.yaml"), &text).unwrap();
        assert_eq!(Groups::deal(&plan).shard_of_disk, [0, 1, 0, 1, 0]);
    }
}
