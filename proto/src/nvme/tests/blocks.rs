//! I/O commands: what reaches the engine, what is refused, and how ops that fail are told.

use platter_block::{BlockCount, Lba, Op, Status as OpStatus, VolumeId};

use super::rig::*;
use crate::nvme::{AnaGroup, AnaState, Limits, QueueId, Status, Transfer};

fn dsm(ranges: &[(u64, u32)]) -> Cmd {
    let mut list = Vec::new();
    for &(lba, count) in ranges {
        list.extend_from_slice(&[0; 4]);
        list.extend_from_slice(&count.to_le_bytes());
        list.extend_from_slice(&lba.to_le_bytes());
    }
    Cmd::new(0x09).nsid(1).cdw(10, ranges.len() as u32 - 1).cdw(11, 4).send(&list)
}

fn copy(to: u64, ranges: &[(u64, u16)]) -> Cmd {
    let mut list = Vec::new();
    for &(lba, blocks) in ranges {
        let mut descriptor = [0; 32];
        descriptor[8..16].copy_from_slice(&lba.to_le_bytes());
        descriptor[16..18].copy_from_slice(&(blocks - 1).to_le_bytes());
        list.extend_from_slice(&descriptor);
    }
    Cmd::new(0x19).nsid(1).u64(40, to).cdw(12, ranges.len() as u32 - 1).send(&list)
}

#[test]
fn what_is_written_is_read_back() {
    let mut rig = Rig::new();
    let session = rig.session();
    let data = pattern(5 * BLOCK, 3);
    assert_eq!(rig.status(session.io, &write(7, &data).in_capsule()), 0);
    assert_eq!(rig.medium(1, 7, data.len()), data);
    let reply = rig.ask(session.io, &read(6, 6));
    assert_eq!((reply.status.0, reply.sqid, reply.result), (0, 1, 0));
    assert_eq!(&reply.data[BLOCK..], data);
    assert_eq!(rig.ask(session.io, &read(7, 1).nsid(2)).data, vec![2; BLOCK], "another namespace");
    let info = &rig.target.controllers()[0];
    assert_eq!((info.commands, info.bytes_received, info.bytes_sent), (3, 5 * 512, 7 * 512));
    rig.wind_up();
}

#[test]
fn fua_reaches_the_engine_only_where_it_was_asked_for() {
    let mut rig = Rig::new();
    let session = rig.session();
    let fua = |cmd: Cmd| {
        let cdw12 = u32::from_le_bytes(cmd.sqe[48..52].try_into().unwrap());
        cmd.cdw(12, cdw12 | 1 << 30)
    };
    for (cmd, expected) in [(write(0, &pattern(512, 1)), false), (fua(write(0, &pattern(512, 1))), true)] {
        rig.ask(session.io, &cmd);
        let Op::Write { fua, .. } = rig.last_op() else { panic!("{:?}", rig.last_op()) };
        assert_eq!(fua, expected);
    }
    rig.ask(session.io, &fua(blocks_of(0x08, 3, 5)));
    let zeroes = Op::WriteZeroes { lba: Lba(3), count: BlockCount(5), fua: true, may_unmap: false };
    assert_eq!(rig.last_op(), zeroes);
    assert_eq!(rig.status(session.io, &fua(read(0, 1))), 0);
    rig.wind_up();
}

#[test]
fn write_zeroes_deallocates_only_if_asked() {
    let mut rig = Rig::new();
    let session = rig.session();
    assert_eq!(rig.status(session.io, &blocks_of(0x08, 0, 4096).cdw(12, 4095 | 1 << 25)), 0);
    let zeroes = Op::WriteZeroes { lba: Lba(0), count: BlockCount(4096), fua: false, may_unmap: true };
    assert_eq!(rig.last_op(), zeroes);
    assert_eq!(rig.status(session.io, &blocks_of(0x08, 1, 4096)), 0x080);
    rig.wind_up();
}

#[test]
fn opcodes_that_are_not_advertised_are_invalid() {
    let mut rig = Rig::new();
    let session = rig.session();
    for opcode in 0..=255u8 {
        if ![0, 1, 2, 5, 8, 9, 0x0c, 0x19, 0x7f].contains(&opcode) {
            assert_eq!(rig.status(session.io, &Cmd::new(opcode).nsid(1)), 0x001, "{opcode:#x}");
        }
    }
    assert!(rig.submitted.is_empty());
    rig.wind_up();
}

#[test]
fn namespaces_that_are_not_there_are_invalid() {
    let mut rig = Rig::new();
    let session = rig.session();
    for nsid in [0, 3, u32::MAX] {
        for cmd in [read(0, 1), write(0, &[0; 512]), compare(0, &[0; 512]), blocks_of(0x08, 0, 1), dsm(&[(0, 1)])] {
            assert_eq!(rig.status(session.io, &cmd.nsid(nsid)), 0x00b, "{nsid:#x}");
        }
    }
    for nsid in [0, 3] {
        assert_eq!(rig.status(session.io, &flush(nsid)), 0x00b);
    }
    assert!(rig.submitted.is_empty());
    rig.wind_up();
}

#[test]
fn flush_is_of_one_namespace_or_of_all() {
    let mut rig = Rig::new();
    let session = rig.session();
    assert_eq!(rig.status(session.io, &flush(2)), 0);
    assert_eq!(rig.status(session.io, &flush(u32::MAX)), 0);
    assert_eq!(rig.submitted, [2, 1, 2].map(|n| (VolumeId(n), Op::Flush)));
    rig.disk = Disk::Held;
    let cid = rig.send(session.io, &flush(u32::MAX));
    rig.release(0, OpStatus::DurabilityLost);
    let status = rig.reply_to(session.io, cid).status;
    assert_eq!(status, Status::new(0, 0x06), "with DNR");
    rig.wind_up();
}

#[test]
fn ranges_outside_of_the_namespace_are_out_of_range() {
    let mut rig = Rig::new();
    let session = rig.session();
    for (lba, blocks) in [(BLOCKS, 1), (BLOCKS - 1, 2), (u64::MAX, 1), (u64::MAX, 2), (1 << 63, 1)] {
        let data = vec![0; blocks as usize * BLOCK];
        for cmd in [read(lba, blocks), write(lba, &data), compare(lba, &data), blocks_of(0x0c, lba, blocks)] {
            assert_eq!(rig.status(session.io, &cmd), 0x080, "{lba:#x} + {blocks}");
        }
        for cmd in [dsm(&[(0, 1), (lba, blocks)]), copy(lba, &[(0, blocks as u16)]), copy(0, &[(lba, blocks as u16)])] {
            assert_eq!(rig.status(session.io, &cmd), 0x080, "{lba:#x} + {blocks}");
        }
    }
    assert_eq!(rig.status(session.io, &read(BLOCKS - 1, 1)), 0);
    assert_eq!(rig.submitted.len(), 1);
    rig.wind_up();
}

#[test]
fn more_than_mdts_is_refused() {
    let mut rig = Rig::with_limits(Limits { max_transfer: 8192, ..Limits::default() });
    let session = rig.session();
    assert_eq!(rig.status(session.io, &read(0, 16)), 0);
    for cmd in [read(0, 17), write(0, &vec![0; 17 * BLOCK]), compare(0, &vec![0; 17 * BLOCK])] {
        assert_eq!(rig.status(session.io, &cmd), 0x002);
    }
    assert_eq!(rig.status(session.io, &blocks_of(0x0c, 0, 4096)), 0, "Verify moves no data");
    rig.wind_up();
}

#[test]
fn the_length_of_the_data_has_to_be_that_of_the_blocks() {
    let mut rig = Rig::new();
    let session = rig.session();
    for len in [0, 1, 511, 513, 1024, u32::MAX as usize] {
        for cmd in [read(0, 1), write(0, &[0; 512]), compare(0, &[0; 512])] {
            assert_eq!(rig.status(session.io, &cmd.room(len)), 0x00f, "{len}");
        }
    }
    for cmd in [flush(1), blocks_of(0x08, 0, 1), blocks_of(0x0c, 0, 1)] {
        assert_eq!(rig.status(session.io, &cmd.room(512)), 0x00f, "no data at all");
    }
    assert_eq!(rig.status(session.io, &read(0, 1).in_capsule()), 0x011, "a read has nothing in the capsule");
    assert!(rig.submitted.is_empty() && rig.wanted.is_empty());
    rig.wind_up();
}

#[test]
fn what_the_transport_found_wrong_is_answered() {
    let mut rig = Rig::new();
    let session = rig.session();
    let wrong = Status::new(0, 0x11);
    for cmd in [read(0, 1), write(0, &[0; 512]), flush(1)] {
        let transfer: Result<Transfer, Status> = Err(wrong);
        rig.target.command(rig.now, session.io, &cmd.cid(5).sqe, transfer, &mut rig.pool).unwrap();
        rig.pump();
        assert_eq!(rig.reply_to(session.io, 5).status, wrong);
    }
    rig.wire = Wire::Held;
    let cid = rig.send(session.io, &write(0, &[0; 512]));
    let lost = Status::new(0, 0x22).retryable();
    rig.spoil(0, lost);
    assert_eq!(rig.reply_to(session.io, cid).status, lost);
    assert!(rig.submitted.is_empty());
    rig.wind_up();
}

#[test]
fn protection_information_metadata_and_directives_are_refused() {
    let mut rig = Rig::new();
    let session = rig.session();
    for bit in [16, 20, 24, 26, 27, 28, 29] {
        for cmd in [read(0, 1), write(0, &[0; 512]), compare(0, &[0; 512]), blocks_of(0x0c, 0, 1)] {
            assert_eq!(rig.status(session.io, &cmd.cdw(12, 1 << bit)), 0x002, "bit {bit}");
        }
    }
    assert_eq!(rig.status(session.io, &read(0, 1).u64(16, 0x1000)), 0x002, "MPTR");
    assert!(rig.submitted.is_empty());
    rig.wind_up();
}

#[test]
fn a_write_protected_namespace_is_read_only() {
    let mut config = config();
    config.subsystems[0].namespaces[0].read_only = true;
    config.subsystems[0].namespaces[1].info.read_only = true;
    let mut rig = Rig::with(config);
    let session = rig.session();
    for nsid in [1, 2] {
        for cmd in [write(0, &[0; 512]), blocks_of(0x08, 0, 1), dsm(&[(0, 1)]), copy(8, &[(0, 1)])] {
            assert_eq!(rig.status(session.io, &cmd.nsid(nsid)), 0x020);
        }
        for cmd in [read(0, 1), compare(0, &[nsid as u8; 512]), blocks_of(0x0c, 0, 1), flush(1)] {
            assert_eq!(rig.status(session.io, &cmd.nsid(nsid)), 0);
        }
    }
    rig.wind_up();
}

#[test]
fn ends_of_ops_are_told_by_their_status() {
    let mut rig = Rig::new();
    let session = rig.session();
    rig.disk = Disk::Held;
    let bad = OpStatus::MediumError { lba: Lba(0) };
    let cases = [
        (read(0, 1), bad, Status::new(2, 0x81)),
        (write(0, &[0; 512]), bad, Status::new(2, 0x80)),
        (blocks_of(0x08, 0, 1), bad, Status::new(2, 0x80)),
        (write(0, &[0; 512]), OpStatus::NoSpace, Status::new(0, 0x81)),
        (write(0, &[0; 512]), OpStatus::WriteProtected, Status::new(0, 0x20)),
        (read(0, 1), OpStatus::LbaOutOfRange, Status::new(0, 0x80)),
        (read(0, 1), OpStatus::Busy, Status::new(0, 0x21).retryable()),
        (read(0, 1), OpStatus::NotReady, Status::new(0, 0x82).retryable()),
        (read(0, 1), OpStatus::Gone, Status::new(0, 0x82).retryable()),
        (flush(1), OpStatus::DurabilityLost, Status::new(0, 0x06)),
        (dsm(&[(0, 8)]), OpStatus::Unsupported, Status::new(0, 0x01)),
    ];
    for (cmd, end, expected) in cases {
        let cid = rig.send(session.io, &cmd);
        rig.release(0, end);
        let reply = rig.reply_to(session.io, cid);
        assert_eq!((reply.status, reply.data.len()), (expected, 0), "{end:?}");
    }
    rig.wind_up();
}

#[test]
fn compare_looks_at_every_byte() {
    let mut rig = Rig::new();
    let session = rig.session();
    let mut data = pattern(4 * BLOCK, 9);
    rig.ask(session.io, &write(0, &data));
    assert_eq!(rig.status(session.io, &compare(0, &data)), 0);
    data[4 * BLOCK - 1] ^= 1;
    assert_eq!(rig.ask(session.io, &compare(0, &data)).status, Status::new(2, 0x85));
    rig.disk = Disk::Held;
    let cid = rig.send(session.io, &compare(0, &data));
    rig.release(0, OpStatus::MediumError { lba: Lba(0) });
    assert_eq!(rig.reply_to(session.io, cid).status, Status::new(2, 0x81));
    rig.wind_up();
}

#[test]
fn verify_reads_everything_in_pieces() {
    let mut rig = Rig::new();
    let session = rig.session();
    assert_eq!(rig.status(session.io, &blocks_of(0x0c, 10, 4080)), 0);
    let read: Vec<(u64, u32)> =
        rig.submitted.iter().map(|(_, op)| op.range().unwrap()).map(|r| (r.start.0, r.count.0)).collect();
    assert_eq!(read, [(10, 2048), (2058, 2032)]);
    rig.disk = Disk::Held;
    let cid = rig.send(session.io, &blocks_of(0x0c, 0, 4096));
    rig.release(0, OpStatus::Good);
    rig.release(0, OpStatus::MediumError { lba: Lba(3000) });
    assert_eq!(rig.reply_to(session.io, cid).status, Status::new(2, 0x81));
    rig.wind_up();
}

#[test]
fn deallocation_is_one_op_per_range_after_all_were_checked() {
    let mut rig = Rig::new();
    let session = rig.session();
    assert_eq!(rig.status(session.io, &dsm(&[(8, 8), (0, 0), (100, 3)])), 0);
    let unmap = |lba, count| (VolumeId(1), Op::Unmap { lba: Lba(lba), count: BlockCount(count) });
    assert_eq!(rig.submitted, [unmap(8, 8), unmap(100, 3)]);
    assert_eq!(rig.status(session.io, &dsm(&[(0, 8), (BLOCKS, 1)])), 0x080);
    assert_eq!(rig.submitted.len(), 2, "nothing before all are checked");
    assert_eq!(rig.status(session.io, &dsm(&[(0, 8)]).cdw(11, 3)), 0, "hints only");
    assert_eq!(rig.submitted.len(), 2);
    rig.wind_up();
}

#[test]
fn a_list_of_ranges_may_have_more_room_but_not_less() {
    let mut rig = Rig::new();
    let session = rig.session();
    let ranges = [(0u64, 1u32); 256];
    assert_eq!(rig.status(session.io, &dsm(&ranges)), 0);
    assert_eq!(rig.status(session.io, &dsm(&ranges[..1]).room(4096)), 0, "as Linux hosts do");
    assert_eq!(rig.status(session.io, &dsm(&ranges).room(16)), 0x00f);
    assert_eq!(rig.status(session.io, &dsm(&ranges[..1]).room(15)), 0x00f);
    assert_eq!(rig.status(session.io, &dsm(&ranges[..1]).room(4097)), 0x00f);
    rig.wind_up();
}

#[test]
fn a_volume_that_cannot_deallocate_takes_the_hint() {
    let mut config = config();
    config.subsystems[0].namespaces[0].info.discard = None;
    let mut rig = Rig::with(config);
    let session = rig.session();
    assert_eq!(rig.status(session.io, &dsm(&[(0, 8)])), 0);
    assert!(rig.submitted.is_empty());
    rig.wind_up();
}

#[test]
fn copy_puts_its_ranges_one_after_the_other() {
    let mut rig = Rig::new();
    let session = rig.session();
    let data = pattern(8 * BLOCK, 4);
    rig.ask(session.io, &write(0, &data));
    let cmd = copy(100, &[(4, 4), (0, 2)]);
    assert_eq!(rig.status(session.io, &cmd.cdw(12, 1 | 1 << 30)), 0);
    assert_eq!(rig.medium(1, 100, 4 * BLOCK), &data[4 * BLOCK..]);
    assert_eq!(rig.medium(1, 104, 2 * BLOCK), &data[..2 * BLOCK]);
    assert!(matches!(rig.last_op(), Op::Write { fua: true, .. }), "{:?}", rig.last_op());
    rig.wind_up();
}

#[test]
fn a_long_copy_goes_in_pieces() {
    let mut config = config();
    config.subsystems[0].namespaces[0].info.blocks = 1 << 20;
    let mut rig = Rig::with(config);
    rig.media[1] = pattern(BLOCK << 14, 5);
    let session = rig.session();
    assert_eq!(rig.status(session.io, &copy(8192, &[(0, 5000)])), 0);
    assert_eq!(rig.submitted.len(), 20);
    assert_eq!(rig.medium(1, 8192, 5000 * BLOCK).to_vec(), rig.medium(1, 0, 5000 * BLOCK));
    rig.wind_up();
}

#[test]
fn copies_that_are_too_long_or_overlap_are_refused() {
    let mut config = config();
    config.subsystems[0].namespaces[0].info.blocks = 1 << 20;
    let mut rig = Rig::with(config);
    let session = rig.session();
    assert_eq!(rig.status(session.io, &copy(0, &[(300, 1); 129])), 0x183, "MSRC");
    assert_eq!(rig.status(session.io, &copy(500_000, &[(0, 65535), (0, 65535), (0, 65535)])), 0x183, "MCL");
    let reply = rig.ask(session.io, &copy(4, &[(100, 1), (3, 2)]));
    assert_eq!((reply.status.0 & 0x7ff, reply.result), (0x187, 1));
    assert_eq!(rig.status(session.io, &copy(4, &[(8, 1)]).cdw(12, 1 << 8)), 0x002, "format 1h");
    assert!(rig.submitted.is_empty());
    rig.wind_up();
}

#[test]
fn a_copy_that_fails_says_where() {
    let mut rig = Rig::new();
    let session = rig.session();
    rig.disk = Disk::Held;
    let cid = rig.send(session.io, &copy(100, &[(0, 1), (1, 1)]));
    rig.release(0, OpStatus::Good);
    rig.release(0, OpStatus::Good);
    rig.release(0, OpStatus::Good);
    rig.release(0, OpStatus::MediumError { lba: Lba(101) });
    let reply = rig.reply_to(session.io, cid);
    assert_eq!((reply.status, reply.result), (Status::new(2, 0x80), 1));
    rig.wind_up();
}

#[test]
fn what_the_group_is_through_the_portal_decides_whether_the_medium_is_reached() {
    let states = [
        (AnaState::Optimized, Status::SUCCESS),
        (AnaState::NonOptimized, Status::SUCCESS),
        (AnaState::Inaccessible, Status::new(3, 0x02).retryable()),
        (AnaState::PersistentLoss, Status::new(3, 0x01)),
        (AnaState::Change, Status::new(3, 0x03).retryable()),
    ];
    let mut rig = Rig::new();
    let session = rig.session();
    for (state, expected) in states {
        let group = AnaGroup { through: [(0, state), (1, AnaState::Inaccessible)].into() };
        assert!(rig.target.set_ana(rig.now, NQN, 1, group, &mut rig.pool));
        rig.pump();
        for cmd in
            [read(0, 1), write(0, &[1; 512]), flush(1), flush(u32::MAX), blocks_of(0x0c, 0, 1), compare(0, &[1; 512])]
        {
            assert_eq!(rig.ask(session.io, &cmd).status, expected, "{state:?}");
        }
    }
    rig.wind_up();
}

#[test]
fn an_identifier_that_is_in_use_is_a_conflict_and_the_first_command_goes_on() {
    let mut rig = Rig::new();
    let session = rig.session();
    rig.disk = Disk::Held;
    let data = pattern(512, 1);
    rig.try_send(session.io, &write(0, &data).cid(5)).unwrap();
    rig.try_send(session.io, &write(1, &pattern(512, 2)).cid(5)).unwrap();
    assert_eq!(rig.reply_to(session.io, 5).status, Status::new(0, 0x03));
    rig.try_send(session.admin, &property_get(0x1c, false).cid(5)).unwrap();
    assert_eq!(rig.reply_to(session.admin, 5).status.0, 0, "another queue");
    rig.release_all();
    assert_eq!(rig.reply_to(session.io, 5).status.0, 0);
    assert_eq!((rig.medium(1, 0, 512), rig.medium(1, 1, 512)), (&data[..], &[1; 512][..]));
    rig.wind_up();
}

#[test]
fn the_head_moves_with_every_reply_and_wraps() {
    let mut rig = Rig::new();
    let session = rig.session_as(&Connect::admin(), &|c| Connect::to(1, c, 2), 0);
    let heads: Vec<u16> = (0..5).map(|_| rig.ask(session.io, &read(0, 1)).sqhd).collect();
    assert_eq!(heads, [2, 0, 1, 2, 0]);
    rig.wind_up();
}

#[test]
fn more_commands_than_the_queue_has_entries_are_an_overrun() {
    let mut rig = Rig::new();
    let session = rig.session_as(&Connect::admin(), &|c| Connect::to(1, c, 3), 0);
    rig.disk = Disk::Held;
    let send = |rig: &mut Rig, queue: QueueId, cid| rig.try_send(queue, &read(0, 1).cid(cid));
    assert!((0..4).all(|cid| send(&mut rig, session.io, cid).is_ok()));
    assert!(send(&mut rig, session.io, 4).is_err());
    rig.release(0, OpStatus::Good);
    assert!(send(&mut rig, session.io, 4).is_ok());
    rig.wind_up();
}

#[test]
fn no_byte_of_an_earlier_user_gets_to_a_host() {
    let mut rig = Rig::new();
    let session = rig.session();
    for (cmd, queue) in [
        (Cmd::new(0x06).cdw(10, 1).room(4096), session.admin),
        (log_page(2, 4096), session.admin),
        (log_page(2, 65536), session.admin),
        (read(0, 3), session.io),
    ] {
        let data = rig.ask(queue, &cmd).data;
        assert_eq!(data.len(), cmd.len as usize);
        assert!(data.windows(4).all(|w| w != [0xa5; 4]), "stale bytes");
    }
    rig.wind_up();
}
