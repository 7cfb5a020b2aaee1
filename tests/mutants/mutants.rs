//! Planted bugs. Each is what a reasonable person might write by mistake; each must be caught by the simulator within
//! `seeds` seeds. Texts are exact and must occur exactly once in their file: a change of the engine that touches one of
//! them has to say here what the mistake looks like now.

/// One planted bug.
pub(crate) struct Mutant {
    /// What goes wrong.
    pub(crate) name: &'static str,
    /// All are made together.
    pub(crate) edits: &'static [Edit],
    /// Within how many seeds it is caught, with room to spare.
    pub(crate) seeds: u64,
}

/// A replacement of text in a source file of the engine.
pub(crate) struct Edit {
    /// Under `engine/src`.
    pub(crate) file: &'static str,
    /// Occurs exactly once.
    pub(crate) old: &'static str,
    /// Takes its place.
    pub(crate) new: &'static str,
}

const fn edit(file: &'static str, old: &'static str, new: &'static str) -> Edit {
    Edit { file, old, new }
}

/// The suite.
pub(crate) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "a FUA write to a disk without FUA is answered without a flush",
        edits: &[edit("run.rs", "if task.fua || !volume.write_cache {", "if !volume.write_cache {")],
        seeds: 100,
    },
    Mutant {
        name: "a request joins a flush that was sent before its write ended (F2)",
        edits: &[edit("flush_gate.rs", "!running.void && running.covers >= need", "!running.void")],
        seeds: 500,
    },
    Mutant {
        name: "the snapshot is taken when the flush ends (F1)",
        edits: &[edit(
            "flush_gate.rs",
            "self.durable_seq = self.durable_seq.max(running.covers); // F1",
            "self.durable_seq = self.ack_seq;",
        )],
        seeds: 500,
    },
    Mutant {
        name: "a flush goes to the first disk of the volume only",
        edits: &[edit(
            "run.rs",
            "let every_disk = volume.all_slots();\n                self.make_durable(key, every_disk);",
            "self.make_durable(key, 1);",
        )],
        seeds: 200,
    },
    Mutant {
        name: "submitted writes are counted instead of completed ones (F1)",
        edits: &[
            edit(
                "run.rs",
                "let seq = disk.gate.wrote(); // F1: before the op can end",
                "let seq = disk.gate.ack_seq();",
            ),
            edit(
                "engine.rs",
                "                piece.kind = IoKind::Write { fua: *fua };\n",
                "                piece.kind = IoKind::Write { fua: *fua };\n                disk.gate.wrote();\n",
            ),
        ],
        seeds: 500,
    },
    Mutant {
        name: "a failed flush makes its writes count as durable",
        edits: &[edit(
            "flush_gate.rs",
            "let queued_behind = self.poison(); // F3\n                running.waiters.extend(queued_behind);",
            "self.durable_seq = running.covers;",
        )],
        seeds: 500,
    },
    Mutant {
        name: "a failed flush does not poison the disk (F3)",
        edits: &[edit("flush_gate.rs", "        self.poisoned = true;\n", "")],
        seeds: 500,
    },
    Mutant {
        name: "the owner is told of the poison, and flushes go on (F3)",
        edits: &[edit("flush_gate.rs", "        if self.poisoned {\n", "        if false {\n")],
        seeds: 500,
    },
    Mutant {
        name: "who waits behind a failed flush is not failed (F3)",
        edits: &[edit(
            "flush_gate.rs",
            "let queued_behind = self.poison(); // F3\n                running.waiters.extend(queued_behind);",
            "self.poisoned = true;",
        )],
        seeds: 1000,
    },
    Mutant {
        name: "FUA writes go to a poisoned disk (F3)",
        edits: &[edit("run.rs", "if op.is_write() && fua && self.writes_to_poisoned(position, op) {", "if false {")],
        seeds: 1000,
    },
    Mutant {
        name: "the stored mark of a poisoned disk is ignored at start (F3)",
        edits: &[edit("disk.rs", "if poisoned {", "if false {")],
        seeds: 1000,
    },
    Mutant {
        name: "a flush that ran into a fault is believed (F3)",
        edits: &[edit(
            "flush_gate.rs",
            "            Status::Good if running.void => (running.waiters, Status::DurabilityLost), // F3\n",
            "",
        )],
        seeds: 5000,
    },
    Mutant {
        name: "a write whose landed piece was lost is answered after the fault was cleared (F3)",
        edits: &[edit("run.rs", "if volume.map.disks().iter().enumerate().any(lost) {", "if false && lost((0, &0)) {")],
        seeds: 5000,
    },
    Mutant {
        name: "a write with native FUA makes older writes count as durable",
        edits: &[
            edit(
                "run.rs",
                "                    task.owes |= 1 << io.slot;\n                }",
                "                    task.owes |= 1 << io.slot;\n                } else if fua {\n                    disk.gate.all_is_durable();\n                }",
            ),
            edit(
                "flush_gate.rs",
                "    /// Counts requests that fail without a flush.\n",
                "    /// Wrong.\n    pub(crate) fn all_is_durable(&mut self) {\n        self.durable_seq = self.ack_seq;\n    }\n\n    /// Counts requests that fail without a flush.\n",
            ),
        ],
        seeds: 500,
    },
    Mutant {
        name: "the answer to a write leaves before its volume owes a flush (F1)",
        edits: &[
            edit(
                "run.rs",
                "                    let volume = &mut self.volumes[task.volume];\n                    volume.last_undurable[usize::from(io.slot)] = seq;\n",
                "                    self.late.push((task.volume, usize::from(io.slot), seq));\n",
            ),
            edit(
                "engine.rs",
                "    pub(crate) tasks: Slab<Task>,\n",
                "    pub(crate) tasks: Slab<Task>,\n    pub(crate) late: Vec<(usize, usize, u64)>,\n",
            ),
            edit(
                "engine.rs",
                "        match input {\n            Input::Submit",
                "        let late = std::mem::take(&mut self.late);\n        match input {\n            Input::Submit",
            ),
            edit(
                "engine.rs",
                "        self.start_runnable();\n        self.expire_graces(now);\n",
                "        for (volume, slot, seq) in late {\n            self.volumes[volume].last_undurable[slot] = seq;\n        }\n        self.start_runnable();\n        self.expire_graces(now);\n",
            ),
        ],
        seeds: 1000,
    },
    Mutant {
        name: "write zeroes does not count as a write (F5)",
        edits: &[edit(
            "task.rs",
            "DiskOp::WriteZeroes { .. } => Self::Write { fua: false }, // F5",
            "DiskOp::WriteZeroes { .. } => Self::Write { fua: true },",
        )],
        seeds: 1000,
    },
    Mutant {
        name: "unmap does not count as a write (F5)",
        edits: &[edit(
            "task.rs",
            "DiskOp::Unmap { .. } => Self::Write { fua: false },       // F5",
            "DiskOp::Unmap { .. } => Self::Write { fua: true },",
        )],
        seeds: 2000,
    },
    Mutant {
        name: "elision looks at the mark of another volume (P8)",
        edits: &[edit(
            "run.rs",
            "disk.gate.request(volume.last_undurable[slot], Waiter::Op(key))",
            "disk.gate.request(self.volumes[0].last_undurable.get(slot).map_or(0, |&s| s), Waiter::Op(key))",
        )],
        seeds: 500,
    },
    Mutant {
        name: "an aborted write leaves no fence behind",
        edits: &[edit("run.rs", "self.volumes[volume].ranges.fence(range);", "let _ = (volume, range);")],
        seeds: 2000,
    },
    Mutant {
        name: "an aborted write is answered while its disk still works on it",
        edits: &[edit("run.rs", "if task.is_writing() {", "if false {")],
        seeds: 1000,
    },
    Mutant {
        name: "pieces of an aborted write are still made and sent",
        edits: &[
            edit("run.rs", "while task.goes_on() && task.next", "while task.error.is_none() && task.next"),
            edit("engine.rs", "filter(|task| task.goes_on())", "filter(|task| task.error.is_none() && !task.answered)"),
        ],
        seeds: 2000,
    },
    Mutant {
        name: "a failed piece is forgotten, and the op ends well (F4)",
        edits: &[edit("run.rs", "self.task_mut(io.task).fail(Status::MediumError { lba });", "let _ = lba;")],
        seeds: 500,
    },
    Mutant {
        name: "compare-and-write is not exclusive",
        edits: &[edit(
            "run.rs",
            "let access = if is_exclusive(&op) { Access::Exclusive } else { Access::Shared };",
            "let access = Access::Shared;",
        )],
        seeds: 500,
    },
    Mutant {
        name: "claims survive an attach and a reset (F6)",
        edits: &[edit(
            "disk_events.rs",
            "let everything = self.forget_claims(position);",
            "let everything = self.disks[position].gate.ack_seq();",
        )],
        seeds: 2000,
    },
    Mutant {
        name: "a flush that was sent before a disk went away is believed afterwards (F6)",
        edits: &[edit("run.rs", "if disk.has_gone_since(io.epoch) { Status::Gone }", "if false { Status::Gone }")],
        seeds: 5000,
    },
    Mutant {
        name: "a disk that is unplugged with acknowledged writes in its cache is not poisoned (F6)",
        edits: &[edit("disk_events.rs", "if disk.gate.undurable() > 0 {", "if false {")],
        seeds: 2000,
    },
    Mutant {
        name: "a write sent before a reset is durable by what the disk says after it (F6)",
        edits: &[edit("disk.rs", "claim && sent_in >= self.read_in", "claim")],
        seeds: 5000,
    },
    Mutant {
        name: "a write made with FUA keeps it when the disk loses FUA before it is handed out (F6)",
        edits: &[edit(
            "engine.rs",
            "                *fua &= disk.sends_fua(); // F6: the disk may have been reset since the piece was made\n",
            "",
        )],
        seeds: 5000,
    },
    Mutant {
        name: "writes are not made durable although the write cache is off (F9)",
        edits: &[
            edit(
                "run.rs",
                "task.fua = asks_fua(&task.op) || !volume.write_cache; // F9",
                "task.fua = asks_fua(&task.op);",
            ),
            edit("run.rs", "if task.fua || !volume.write_cache {", "if task.fua {"),
        ],
        seeds: 2000,
    },
    Mutant {
        name: "a flush that was turned away is taken for done",
        edits: &[edit(
            "flush_gate.rs",
            "Status::Busy if !running.void => (running.waiters, Status::Busy)",
            "Status::Busy if !running.void => (running.waiters, Status::Good)",
        )],
        seeds: 1000,
    },
    Mutant {
        name: "a second flush is sent while one runs (F2)",
        edits: &[edit(
            "flush_gate.rs",
            "self.running.is_none() && !self.pending.is_empty()",
            "!self.pending.is_empty()",
        )],
        seeds: 500,
    },
    Mutant {
        name: "a waiter is forgotten when its flush ends",
        edits: &[edit(
            "flush_gate.rs",
            "Some(Running { covers, void: false, waiters });",
            "Some(Running { covers, void: false, waiters: waiters.into_iter().take(1).collect() });",
        )],
        seeds: 2000,
    },
    Mutant {
        name: "an op that waited for a range is not started",
        edits: &[edit(
            "ranges.rs",
            "if later.blockers == 0 {",
            "if later.blockers == 0 && later.access == Access::Shared {",
        )],
        seeds: 2000,
    },
    Mutant {
        name: "nothing is elided",
        edits: &[edit("flush_gate.rs", "if need <= self.durable_seq {", "if false {")],
        seeds: 200,
    },
];
