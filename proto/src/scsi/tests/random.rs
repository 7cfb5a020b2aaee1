//! Any bytes, in any order, on any state: no panic, no leak, no byte too many.

use proptest::prelude::*;

use super::*;
use crate::scsi::opcodes::ROWS;
use crate::scsi::{MAX_TASKS, ResetScope, TaskSet};

/// What may happen to a device.
#[derive(Clone, Debug)]
enum Event {
    Command { nexus: bool, lun: u8, cdb: Vec<u8>, out: Vec<u8>, in_len: u32, ends: Vec<Option<Status>>, abandon: u8 },
    Reset { unit: bool },
    Reconnect,
    Volume { blocks: u64, ready: bool, write_cache: bool, thin: bool },
}

fn status() -> impl Strategy<Value = Status> {
    prop_oneof![
        Just(Status::LbaOutOfRange),
        Just(Status::MediumError { lba: Lba(5) }),
        Just(Status::WriteProtected),
        Just(Status::NoSpace),
        Just(Status::Busy),
        Just(Status::MiscompareAt { offset: 1 << 40 }),
        Just(Status::NotReady),
        Just(Status::Aborted),
        Just(Status::Gone),
        Just(Status::DurabilityLost),
        Just(Status::Unsupported),
    ]
}

/// A CDB: mostly of known commands, mostly with bits that mean something, mostly in range.
fn cdb() -> impl Strategy<Value = Vec<u8>> {
    let known = (0..ROWS.len(), any::<[u8; 16]>(), any::<[u8; 16]>(), any::<bool>()).prop_map(|(row, a, b, near)| {
        let usage = ROWS[row].usage_data(None);
        let mut cdb: Vec<u8> = usage.iter().zip(a).map(|(u, r)| u & r).collect();
        cdb[0] = ROWS[row].opcode;
        cdb[1] |= ROWS[row].action.unwrap_or(0);
        if near {
            // Small numbers: the upper bytes of LBA and length are zero.
            let zero: &[usize] = match cdb.len() {
                6 => &[],
                10 => &[2, 3, 7],
                12 => &[2, 3, 6, 7, 8],
                _ => &[2, 3, 4, 5, 6, 7, 10, 11, 12],
            };
            zero.iter().for_each(|&i| cdb[i] = 0);
        }
        if b[0] < 8 {
            let at = usize::from(b[1]) % cdb.len();
            cdb[at] = b[2];
        }
        cdb
    });
    prop_oneof![9 => known, 1 => prop::collection::vec(any::<u8>(), 0..20)]
}

fn event() -> impl Strategy<Value = Event> {
    let out = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..40),
        (0usize..9000, any::<u8>()).prop_map(|(len, byte)| vec![byte; len]),
        (0usize..20).prop_map(|blocks| vec![0; blocks * BLOCK]),
    ];
    let ends = prop::collection::vec(prop::option::weighted(0.1, status()), 4);
    let in_len = prop_oneof![Just(0), 0u32..5000, any::<u32>()];
    let command = (any::<bool>(), prop_oneof![4 => Just(0u8), 1 => 0u8..4], cdb(), out, in_len, ends, any::<u8>())
        .prop_map(|(nexus, lun, cdb, out, in_len, ends, abandon)| Event::Command {
            nexus,
            lun,
            cdb,
            out,
            in_len,
            ends,
            abandon,
        });
    let volume = (1..=BLOCKS, any::<[bool; 3]>()).prop_map(|(blocks, [ready, write_cache, thin])| Event::Volume {
        blocks,
        ready,
        write_cache,
        thin,
    });
    prop_oneof![
        30 => command,
        1 => any::<bool>().prop_map(|unit| Event::Reset { unit }),
        1 => Just(Event::Reconnect),
        1 => volume,
    ]
}

/// ALLOCATION LENGTH, or the length of the blocks asked for.
fn most_bytes(cdb: &[u8]) -> u64 {
    let mut padded = [0; 16];
    let len = cdb.len().min(16);
    padded[..len].copy_from_slice(&cdb[..len]);
    let cdb = crate::scsi::cdb::Cdb::new(&padded);
    match cdb.opcode() {
        0x03 | 0x1a => u64::from(cdb.byte(4)),
        0x12 => u64::from(cdb.u16(3)),
        0x25 => 8,
        0x37 | 0x5a => u64::from(cdb.u16(7)),
        0xa0 | 0xa3 | 0xb7 => u64::from(cdb.u32(6)),
        0x9e => u64::from(cdb.u32(10)),
        0x08 | 0x28 | 0x88 | 0xa8 => u64::from(cdb.blocks().count) * BLOCK as u64,
        _ => 0,
    }
}

fn play(bench: &mut Bench, event: Event) {
    match event {
        Event::Command { nexus, lun, cdb, out, in_len, ends, abandon } => {
            bench.lun[1] = lun;
            let nexus = if nexus { ONE } else { TWO };
            let (mut task, mut step) = bench.start(nexus, &cdb, out.len() as u32, in_len);
            let mut ends = ends.into_iter();
            let mut steps = 0;
            let reply = loop {
                steps += 1;
                assert!(steps < 1000, "endless: {cdb:02x?}");
                if steps == u32::from(abandon) && !matches!(step, Step::Reply(_)) {
                    bench.device.abandon(task, &mut bench.pool);
                    assert_eq!(bench.pool.in_use(), 0);
                    return;
                }
                step = match step {
                    Step::Receive { buf, len } => {
                        assert!(len > 0 && len <= out.len());
                        bench.pool.bytes_mut(buf)[..len].copy_from_slice(&out[..len]);
                        bench.device.received(&mut task, &mut bench.pool)
                    }
                    Step::Submit { op, .. } => {
                        bench.fail_next = ends.next().flatten();
                        let (status, report) = bench.perform(op);
                        bench.device.completed(&mut task, status, report, &mut bench.pool)
                    }
                    Step::Reply(reply) => break reply,
                }
            };
            let ended = bench.end(reply);
            assert!(ended.data.len() as u64 <= most_bytes(&cdb), "{cdb:02x?}: {} bytes", ended.data.len());
            assert!(ended.status == ScsiStatus::GOOD || ended.data.is_empty());
        }
        Event::Reset { unit } => {
            bench.device.reset(if unit { ResetScope::Unit(LUN0) } else { ResetScope::Device }, ONE)
        }
        Event::Reconnect => {
            bench.device.nexus_lost(TWO);
            bench.device.nexus_established(TWO, "");
        }
        Event::Volume { blocks, ready, write_cache, thin } => {
            let discard = info().discard.filter(|_| thin);
            bench.device.volume_changed(VolumeId(7), VolumeInfo { blocks, ready, write_cache, discard, ..info() });
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_sequence_of_commands_and_events_ends_every_command_and_leaks_nothing(
        events in prop::collection::vec(event(), 1..60),
    ) {
        let mut bench = Bench::with_units(vec![UnitConfig { removable: true, ..unit(0) }, unit(2)]);
        for event in events {
            play(&mut bench, event);
        }
    }

    #[test]
    fn a_task_set_starts_every_task_once_and_never_beside_one_that_excludes_it(
        steps in prop::collection::vec((0u8..4, any::<prop::sample::Index>()), 1..200),
    ) {
        let mut set = TaskSet::new();
        // In order of arrival: id, attribute, running.
        let mut tasks: Vec<(u64, Attribute, bool)> = Vec::new();
        for (id, (kind, pick)) in (0u64..).zip(steps) {
            if kind == 3 {
                if tasks.is_empty() {
                    continue;
                }
                let gone = tasks.remove(pick.index(tasks.len()));
                let mut started = Vec::new();
                set.leave(gone.0, &mut started);
                for id in started {
                    let task = tasks.iter_mut().find(|t| t.0 == id).expect("a task of the set");
                    prop_assert!(!task.2, "started twice");
                    task.2 = true;
                }
            } else {
                let attribute = [Attribute::Simple, Attribute::Ordered, Attribute::HeadOfQueue][usize::from(kind)];
                let started = set.enter(id, attribute) == crate::scsi::Entered::Started;
                tasks.push((id, attribute, started));
            }
            prop_assert!(tasks.len() <= MAX_TASKS);
            let heads = tasks.iter().any(|t| t.1 == Attribute::HeadOfQueue);
            for (i, &(_, attribute, running)) in tasks.iter().enumerate() {
                let older = &tasks[..i];
                let may_run = match attribute {
                    Attribute::HeadOfQueue => true,
                    Attribute::Ordered => !heads && older.is_empty(),
                    _ => !heads && older.iter().all(|t| t.1 != Attribute::Ordered),
                };
                // A task that ran before a head of queue task came goes on running.
                prop_assert!(running || !may_run, "{tasks:?}");
                if running && !heads {
                    prop_assert!(may_run, "{tasks:?}");
                }
            }
        }
    }
}
