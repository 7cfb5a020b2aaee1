//! Queues that are full, memory that is short, hosts that are silent, and ends of all kinds.

use std::time::Duration;

use platter_block::{BufPool, Status};

use super::rig::*;
use super::wire::{self, NONE};
use crate::nvme::EventKind;
use crate::nvme_tcp::{Limits, NodeConfig};

fn dropped(rig: &Rig, why: &str) -> bool {
    rig.events.iter().any(|e| matches!(e, EventKind::Dropped { why: w } if w.contains(why)))
}

#[test]
fn n09_more_commands_than_the_queue_has_entries_end_the_connection() {
    let mut rig = Rig::new();
    rig.disk = Disk::Held;
    let host = rig.plain_host();
    for cid in 0..64 {
        rig.send(host.io, &read(cid, 0, 1));
    }
    assert!(!rig.is_closed(host.io));
    assert_eq!(rig.fatal(host.io, &read(64, 0, 1).encode(NONE)), (2, 0));
    assert_eq!(rig.aborts.len(), 64, "and with it its commands");
    rig.wind_up();
}

#[test]
fn t06_a_host_that_does_not_read_is_not_read_from() {
    let config = config();
    let limits = Limits { transmit_queue: 64 << 10, ..config.limits };
    let mut rig = Rig::with(NodeConfig { limits, ..config });
    let host = rig.plain_host();
    let other = rig.plain_host_of_another();
    rig.deaf.push(host.io);
    for cid in 0..40 {
        rig.send(host.io, &read(cid, 0, 16));
    }
    assert!(!rig.node.wants_bytes(host.io));
    assert!(rig.submitted.len() < 12, "{} reads", rig.submitted.len());
    assert!(rig.unread(host.io) > 0);
    assert_eq!(rig.read_good(other, 1, 0, 1).len(), 512, "others go on");
    rig.listen(host.io);
    assert_eq!(rig.replies(host.io).iter().filter(|p| p.kind() == 5).count(), 40, "all come in the end");
    rig.wind_up();
}

#[test]
fn a_pdu_that_has_begun_is_taken_to_its_end_though_the_host_does_not_read() {
    let config = config();
    let limits = Limits { transmit_queue: 4 << 10, ..config.limits };
    let mut rig = Rig::with(NodeConfig { limits, ..config });
    rig.disk = Disk::Held;
    let host = rig.plain_host();
    let write = write_in_capsule(1, 0, &[1; 512]).encode(NONE);
    rig.send_bytes(host.io, &[read(2, 8, 16).encode(NONE), write[..80].to_vec()].concat());
    rig.deaf.push(host.io);
    rig.release(0, Status::Good);
    assert!(rig.node.wants_bytes(host.io));
    rig.send_bytes(host.io, &write[80..]);
    assert_eq!((rig.submitted.len(), rig.node.wants_bytes(host.io)), (2, false));
    rig.release(0, Status::Good);
    rig.listen(host.io);
    assert_eq!(rig.replies(host.io).iter().map(|p| p.kind()).collect::<Vec<_>>(), [7, 5, 5]);
    assert!(rig.node.wants_bytes(host.io));
    rig.wind_up();
}

#[test]
fn a_capsule_waits_for_memory_without_being_read_and_goes_on_when_there_is_some() {
    let mut rig = Rig::new();
    let host = rig.plain_host();
    let taken = rig.take_all_memory();
    let stream = [write_in_capsule(1, 0, &[5; 512]).encode(NONE), read(2, 0, 1).encode(NONE)].concat();
    rig.send_bytes(host.io, &stream);
    assert!(!rig.node.wants_bytes(host.io));
    assert_eq!(rig.unread(host.io), stream.len() - 72, "not a byte of its data");
    let property_get = wire::command(0x7f, 7, 4).u32(8 + 44, 0x1c);
    assert_eq!(rig.ask_one(host.admin, &property_get).status(), 0, "the admin queue does not wait");
    rig.wait(Duration::from_secs(1));
    assert!(rig.replies(host.io).is_empty());
    taken.into_iter().for_each(|b| rig.pool.free(b));
    rig.wait(Duration::from_millis(20));
    let replies = rig.replies(host.io);
    assert_eq!(replies.iter().map(|p| p.kind()).collect::<Vec<_>>(), [5, 7, 5]);
    assert_eq!(replies[1].data, [5; 512]);
    rig.wind_up();
}

#[test]
fn a_capsule_that_waited_too_long_for_memory_is_dropped_and_its_command_interrupted() {
    let mut rig = Rig::new();
    let host = rig.plain_host();
    let taken = rig.take_all_memory();
    rig.send(host.io, &write_in_capsule(1, 0, &[5; 512]));
    rig.wait(Duration::from_secs(11));
    let reply = rig.reply(host.io);
    assert_eq!((reply.cid(), reply.status()), (1, 0x21), "Command Interrupted, to be retried");
    assert_eq!(rig.unread(host.io), 0, "its data are dropped");
    taken.into_iter().for_each(|b| rig.pool.free(b));
    assert_eq!(rig.ask_one(host.io, &write_in_capsule(1, 0, &[5; 512])).status(), 0);
    rig.wind_up();
}

#[test]
fn a_write_waits_for_memory_before_its_r2t() {
    let mut rig = Rig::new();
    let host = rig.plain_host();
    let taken = rig.take_all_memory();
    assert!(rig.ask(host.io, &write(1, 0, 512)).is_empty());
    assert!(rig.node.wants_bytes(host.io));
    taken.into_iter().for_each(|b| rig.pool.free(b));
    rig.wait(Duration::from_millis(20));
    let r2t = rig.reply(host.io);
    rig.answer(host.io, &r2t, &[1; 512]);
    assert_eq!(rig.reply(host.io).status(), 0);
}

#[test]
fn d10_data_that_do_not_come_end_the_connection_after_the_data_timeout() {
    let mut rig = Rig::new();
    let host = rig.plain_host();
    let r2t = rig.ask_one(host.io, &write(1, 0, 1024));
    rig.wait(Duration::from_secs(59));
    rig.send(host.io, &wire::h2c_data(1, r2t.u16(10), 0, &[1; 512], false));
    rig.wait(Duration::from_secs(59));
    assert!(!rig.is_closed(host.io), "each answer starts the timer anew");
    rig.wait(Duration::from_secs(2));
    assert!(rig.is_closed(host.io) && dropped(&rig, "data did not come"));
    assert!(!rig.is_closed(host.admin));
    assert_eq!(rig.pool.in_use(), 0);
    rig.wind_up();
}

#[test]
fn d10_data_of_a_capsule_that_do_not_come_end_the_connection_too() {
    let mut rig = Rig::new();
    let host = rig.plain_host();
    rig.send_bytes(host.io, &write_in_capsule(1, 0, &[1; 512]).encode(NONE)[..100]);
    rig.wait(Duration::from_secs(61));
    assert!(rig.is_closed(host.io) && dropped(&rig, "data did not come"));
    assert_eq!(rig.pool.in_use(), 0);
    rig.wind_up();
}

#[test]
fn a_host_is_not_blamed_for_data_that_we_had_no_memory_for() {
    let config = config();
    let limits = Limits { data_timeout: Duration::from_secs(5), ..config.limits };
    let mut rig = Rig::with(NodeConfig { limits, ..config });
    let host = rig.plain_host();
    // Others that let the timers run after 15 and after 18 seconds.
    rig.dial();
    rig.wait(Duration::from_secs(3));
    rig.dial();
    rig.wait(Duration::from_secs(4));
    let taken = rig.take_all_memory();
    let write = write_in_capsule(1, 0, &[1; 512]).encode(NONE);
    rig.send_bytes(host.io, &write[..72]);
    rig.wait(Duration::from_secs(9));
    assert!(!rig.is_closed(host.io), "after 16 seconds");
    taken.into_iter().for_each(|b| rig.pool.free(b));
    rig.wait(Duration::from_secs(3));
    assert!(!rig.is_closed(host.io), "after 19 seconds");
    rig.send_bytes(host.io, &write[72..]);
    assert_eq!(rig.reply(host.io).status(), 0);
}

#[test]
fn a_host_is_not_blamed_for_a_time_in_which_we_did_not_run() {
    let mut rig = Rig::new();
    let host = rig.plain_host();
    let r2t = rig.ask_one(host.io, &write(1, 0, 512));
    let early = rig.dial();
    rig.now = rig.now + Duration::from_secs(100);
    rig.node.tick(rig.now, &mut rig.pool);
    rig.pump();
    assert!(!rig.is_closed(host.io) && !rig.is_closed(early));
    rig.answer(host.io, &r2t, &[1; 512]);
    assert_eq!(rig.reply(host.io).status(), 0);
    rig.wait(Duration::from_secs(6));
    assert!(rig.is_closed(early), "but it gets no more than a little");
}

#[test]
fn idle_connections_need_no_timer() {
    let mut rig = Rig::new();
    let host = rig.plain_host();
    assert_eq!(rig.write_by_r2t(host.io, 1, 0, &[1; 512]).status(), 0);
    rig.wait(Duration::from_secs(3600));
    assert!(!rig.is_closed(host.io));
    assert_eq!(rig.node.poll_timeout(), None);
}

#[test]
fn the_end_of_the_admin_queue_closes_the_io_queue_and_aborts_its_commands() {
    let mut rig = Rig::new();
    rig.disk = Disk::Stuck;
    let host = rig.plain_host();
    rig.send(host.io, &read(1, 0, 1));
    rig.ask_one(host.io, &write(2, 0, 512));
    rig.hang_up(host.admin);
    assert!(rig.is_closed(host.io));
    assert_eq!(rig.aborts.len(), 1);
    rig.release(0, Status::Good);
    rig.assert_idle();
}

#[test]
fn what_was_answered_is_written_before_the_connection_is_closed() {
    let mut rig = Rig::new();
    let host = rig.plain_host();
    rig.deaf.push(host.io);
    rig.send(host.io, &read(1, 0, 1));
    rig.deaf.clear();
    let (now, nqn) = (rig.now, NQN);
    assert!(rig.node.target_mut().remove_subsystem(now, nqn, &mut rig.pool));
    assert_eq!(rig.node.poll_timeout(), Some(rig.now), "a tick is due");
    rig.wait(Duration::ZERO);
    assert!(rig.is_closed(host.io) && rig.is_closed(host.admin));
    assert_eq!(rig.replies(host.io).iter().map(|p| p.kind()).collect::<Vec<_>>(), [7, 5]);
    rig.assert_idle();
}

#[test]
fn a_drain_answers_what_is_in_progress_and_closes() {
    let mut rig = Rig::new();
    rig.disk = Disk::Held;
    let host = rig.plain_host();
    rig.send(host.io, &read(1, 0, 1));
    rig.node.drain(rig.now, &mut rig.pool);
    rig.pump();
    assert!(!rig.is_closed(host.io));
    rig.release(0, Status::Good);
    assert_eq!(rig.replies(host.io).iter().map(|p| p.kind()).collect::<Vec<_>>(), [7, 5]);
    assert!(rig.is_closed(host.io) && rig.is_closed(host.admin));
    rig.assert_idle();
}

#[test]
fn answers_for_a_connection_that_was_ended_are_dropped() {
    let mut rig = Rig::new();
    rig.disk = Disk::Stuck;
    let host = rig.plain_host();
    rig.send(host.io, &read(1, 0, 1));
    assert_eq!(rig.fatal(host.io, &[0xff; 8]), (1, 0));
    rig.release(0, Status::Good);
    assert_eq!(rig.pool.in_use(), 0);
    rig.wind_up();
}

impl Rig {
    /// An I/O queue of a second host.
    fn plain_host_of_another(&mut self) -> crate::nvme_tcp::ConnId {
        let admin = self.initialized(Options::default());
        let mut data = connect_data(0xffff, NQN);
        data[0] = 1;
        let request = |qid, data: &[u8]| connect(qid, 0, true).in_capsule(data);
        let reply = self.ask_one(admin, &request(0, &data));
        data[16..18].copy_from_slice(&reply.u16(8).to_le_bytes());
        assert_eq!(self.ask_one(admin, &property_set(1, 0x14, 0x0046_0001)).status(), 0);
        let io = self.initialized(Options::default());
        assert_eq!(self.ask_one(io, &request(1, &data)).status(), 0);
        io
    }

    fn take_all_memory(&mut self) -> Vec<platter_block::BufId> {
        self.pool = BufPool::new(1 << 20);
        std::iter::from_fn(|| self.pool.alloc(4096)).collect()
    }
}
