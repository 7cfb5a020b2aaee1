//! What happens to a disk as a whole: its flush ends, it fails, is lost, comes back, is reset, is cleared.

use platter_block::{DiskId, DiskInfo, Status};

use crate::disk::Epoch;
use crate::engine::{Engine, Output};
use crate::flush_gate::{Answer, Waiter};

impl Engine {
    /// A device flush ended.
    pub(crate) fn flush_ended(&mut self, position: usize, status: Status) {
        let disk = &mut self.disks[position];
        let was_poisoned = disk.gate.is_poisoned();
        let (waiters, status) = disk.gate.ended(status);
        self.flushes.schedule(position, &disk.gate); // F7: nothing else holds the next one back
        self.tell_if_poisoned(position, was_poisoned);
        self.release(waiters, status);
    }

    /// F3. Acknowledged writes on the disk may be lost.
    pub(crate) fn poison(&mut self, position: usize) {
        let disk = &mut self.disks[position];
        let was_poisoned = disk.gate.is_poisoned();
        let waiters = disk.gate.poison();
        self.tell_if_poisoned(position, was_poisoned);
        self.release(waiters, Status::DurabilityLost);
    }

    /// F3. The operator takes the loss of what was written so far: flushes and FUA writes work again. What no good flush
    /// covered is still owed one, so the next flush is sent.
    pub(crate) fn clear_fault(&mut self, disk: DiskId) {
        let Some(position) = self.disks.position(disk) else { return };
        if !self.disks[position].gate.is_poisoned() {
            return;
        }
        let now = self.next_epoch();
        self.disks[position].clear_fault(now);
        self.outputs.push_back(Output::Healed { disk });
    }

    /// F6. The disk goes, with what is in its cache.
    pub(crate) fn disk_lost(&mut self, disk: DiskId) {
        let Some(position) = self.disks.position(disk) else { return };
        self.lose(position);
        self.refresh_volumes_on(position);
    }

    /// F6. A disk comes, in the place of a missing or a present one.
    pub(crate) fn disk_attached(&mut self, disk: DiskId, info: DiskInfo) {
        let Some(position) = self.disks.position(disk) else { return };
        self.lose(position);
        self.begin_anew(position, info);
    }

    /// F6. The disk stays, and with it what is in its cache; its info and every claim are new. A reset of a missing disk
    /// means that it is back.
    pub(crate) fn disk_reset(&mut self, disk: DiskId, info: DiskInfo) {
        let Some(position) = self.disks.position(disk) else { return };
        self.begin_anew(position, info);
    }

    /// Counts a flush op that fails because disks are missing.
    pub(crate) fn refuse_flush(&mut self, volume: usize) {
        for &position in self.volumes[volume].map.disks() {
            if !self.disks[position].is_present() {
                self.disks[position].gate.refuse(1);
            }
        }
    }

    /// Derives the volume's info again and tells if it changed (F9).
    pub(crate) fn refresh_volume(&mut self, volume: usize) {
        if self.volumes[volume].refresh(&self.disks) {
            self.outputs.push_back(Output::VolumeChanged { volume: self.volumes[volume].id });
        }
    }

    fn next_epoch(&mut self) -> Epoch {
        self.epoch += 1;
        self.epoch
    }

    fn lose(&mut self, position: usize) {
        if !self.disks[position].is_present() {
            return;
        }
        let now = self.next_epoch();
        let disk = &mut self.disks[position];
        disk.lose(now);
        if disk.gate.undurable() > 0 {
            self.poison(position); // F3
        }
    }

    /// F6. Reads the info anew, forgets every claim and flushes once, if there is or was a cache to flush.
    fn begin_anew(&mut self, position: usize, info: DiskInfo) {
        let was_volatile = self.disks[position].is_volatile();
        let now = self.next_epoch();
        self.disks[position].believe(info, now);
        if was_volatile || self.disks[position].is_volatile() {
            let everything = self.forget_claims(position);
            let gate = &mut self.disks[position].gate;
            if gate.request(everything, Waiter::Engine) == Answer::Waits {
                self.flushes.schedule(position, gate);
            }
        }
        self.refresh_volumes_on(position);
    }

    /// F6. Every volume on the disk owes it a flush. Returns what they owe.
    fn forget_claims(&mut self, position: usize) -> u64 {
        let everything = self.disks[position].gate.forget();
        for volume in &mut self.volumes {
            if let Ok(slot) = volume.map.disks().binary_search(&position) {
                volume.last_undurable[slot] = everything;
            }
        }
        everything
    }

    fn refresh_volumes_on(&mut self, position: usize) {
        for volume in 0..self.volumes.len() {
            if self.volumes[volume].map.disks().binary_search(&position).is_ok() {
                self.refresh_volume(volume);
            }
        }
    }

    /// Before the ops that fail are told, so that the owner can store the mark first.
    fn tell_if_poisoned(&mut self, position: usize, was_poisoned: bool) {
        let disk = &self.disks[position];
        if disk.gate.is_poisoned() && !was_poisoned {
            self.outputs.push_back(Output::Poisoned { disk: disk.id() });
        }
    }

    fn release(&mut self, waiters: Vec<Waiter>, status: Status) {
        for waiter in waiters {
            match waiter {
                Waiter::Op(key) => self.gate_opened(key, status),
                Waiter::Engine => {}
            }
        }
    }
}
