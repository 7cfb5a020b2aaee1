//! Keep alive.

use std::time::Duration;

use super::rig::*;
use crate::nvme::EventKind;

const MS: Duration = Duration::from_millis(1);

#[test]
fn a_silent_host_loses_its_controller_and_all_its_connections() {
    let mut rig = Rig::new();
    let session = rig.session_as(&Connect::admin().kato(5000), &|c| Connect::io(1, c), 0);
    rig.send(session.admin, &event_request());
    rig.disk = Disk::Held;
    rig.send(session.io, &write(0, &pattern(512, 1)));
    rig.wait(4999 * MS);
    assert!(rig.closes.is_empty());
    rig.wait(MS);
    assert_eq!(rig.closes, [session.admin, session.io]);
    assert_eq!(rig.aborts.len(), 1);
    assert!(rig.replies.is_empty(), "nobody is there to be told");
    let Some(EventKind::ControllerEnded { aborted: 1, why, .. }) = rig.events.last() else {
        panic!("{:?}", rig.events)
    };
    assert!(why.contains("keep alive"), "{why}");
    rig.close_all();
    assert_eq!(rig.target.poll_timeout(), None);
    rig.wind_up();
}

#[test]
fn every_command_counts_as_a_sign_of_life() {
    let mut rig = Rig::new();
    let session = rig.session_as(&Connect::admin().kato(1000), &|c| Connect::io(1, c), 0);
    for n in 0..20 {
        rig.wait(900 * MS);
        match n % 3 {
            0 => assert_eq!(rig.status(session.io, &read(0, 1)), 0),
            1 => assert_eq!(rig.status(session.admin, &Cmd::new(0x18)), 0),
            _ => assert_eq!(rig.status(session.admin, &property_get(0x1c, false)), 0),
        }
    }
    rig.wait(1000 * MS);
    assert_eq!(rig.closes.len(), 2);
    rig.wind_up();
}

#[test]
fn without_a_timeout_nothing_ends_and_keep_alive_is_refused() {
    let mut rig = Rig::new();
    let session = rig.session();
    assert_eq!(rig.target.poll_timeout(), None);
    assert_eq!(rig.status(session.admin, &Cmd::new(0x18)), 0x01a);
    rig.wait(Duration::from_secs(1_000_000));
    assert_eq!(rig.status(session.io, &read(0, 1)), 0);
    rig.wind_up();
}

#[test]
fn the_timeout_is_rounded_up_and_may_be_as_long_as_it_likes() {
    let mut rig = Rig::new();
    let session = rig.session_as(&Connect::admin().kato(1), &|c| Connect::io(1, c), 0);
    assert_eq!(rig.target.controllers()[0].kato, 100);
    assert_eq!(rig.status(session.admin, &set_feature(0x0f, u32::MAX)), 0);
    assert_eq!(rig.ask(session.admin, &get_feature(0x0f)).result, 4_294_967_200);
    rig.wait(Duration::from_secs(40 * 24 * 3600));
    assert_eq!(rig.status(session.io, &read(0, 1)), 0);
    assert_eq!(rig.status(session.admin, &set_feature(0x0f, 1)), 0);
    assert_eq!(rig.ask(session.admin, &get_feature(0x0f)).result, 100);
    rig.wait(100 * MS);
    assert_eq!(rig.closes.len(), 2);
    rig.wind_up();
}

#[test]
fn a_discovery_controller_never_lives_forever() {
    let mut rig = Rig::new();
    let without = rig.discovery(0);
    let with = rig.discovery(500_000);
    rig.wait(Duration::from_secs(120));
    assert_eq!(rig.closes, [without]);
    rig.wait(Duration::from_secs(380));
    assert_eq!(rig.closes, [without, with]);
    rig.wind_up();
}

#[test]
fn a_server_that_was_stopped_reads_what_hosts_sent_before_it_gives_them_up() {
    let mut rig = Rig::new();
    rig.session_as(&Connect::admin().kato(5000), &|c| Connect::io(1, c), 0);
    rig.now = rig.now + Duration::from_secs(60);
    rig.target.tick(rig.now, &mut rig.pool);
    rig.pump();
    assert!(rig.closes.is_empty());
    rig.wait(Duration::from_secs(1));
    assert_eq!(rig.closes.len(), 2, "they sent nothing");
    rig.wind_up();
}
