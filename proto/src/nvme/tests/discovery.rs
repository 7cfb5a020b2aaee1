//! The discovery log, byte by byte, and who sees what of it.

use super::fields::*;
use super::rig::*;
use crate::nvme::{DISCOVERY_NQN, DirectoryEntry, Hosts, PortalInfo, QueueId, TargetConfig};

const A: &str = "nqn.2026-11.org.example:a";
const B: &str = "nqn.2026-11.org.example:b";

fn at(address: &str, port: u16, number: u16) -> PortalInfo {
    PortalInfo { address: address.to_owned(), port, number }
}

fn listed(nqn: &str, portals: Vec<PortalInfo>) -> DirectoryEntry {
    DirectoryEntry { nqn: nqn.to_owned(), hosts: Hosts::Any, portals, through: Vec::new() }
}

fn rig(directory: Vec<DirectoryEntry>, referrals: Vec<PortalInfo>) -> Rig {
    Rig::with(TargetConfig { directory, referrals, ..config() })
}

/// The whole log, as hosts read it: the header first, then as much as that says.
fn read_log(rig: &mut Rig, queue: QueueId) -> Vec<u8> {
    let header = rig.ask(queue, &log_page(0x70, 1024)).data;
    let records = u64::from_le_bytes(header[8..16].try_into().unwrap()) as usize;
    let len = 1024 * (1 + records);
    let log = rig.ask(queue, &log_page(0x70, len)).data;
    assert_eq!(log[..1024], header);
    assert_eq!(rig.status(queue, &log_page(0x70, 4).u64(48, len as u64 + 4)), 0x002, "there is no more");
    log
}

/// Subtype, NQN, address and port of every entry.
fn entries(rig: &mut Rig, queue: QueueId) -> Vec<(u8, String, String)> {
    let text = |field: &[u8]| {
        let text = String::from_utf8(field.to_vec()).unwrap();
        text.trim_end_matches([' ', '\0']).to_owned()
    };
    let entry = |e: &[u8]| (e[2], text(&e[256..512]), format!("{} {}", text(&e[512..768]), text(&e[32..64])));
    read_log(rig, queue)[1024..].chunks_exact(1024).map(entry).collect()
}

#[test]
fn discovery_log_header_and_entries() {
    let mut rig = rig(vec![listed(A, vec![at("2001:db8::7", 4421, 0x0102)])], vec![at("192.0.2.9", 8009, 3)]);
    let discovery = rig.discovery(0);
    let log = read_log(&mut rig, discovery);
    assert_eq!(log.len(), 4096);
    assert_fields(
        &log[..1024],
        &[(0, &1_u64.to_le_bytes(), "GENCTR"), (8, &3_u64.to_le_bytes(), "NUMREC"), (16, &[0, 0], "RECFMT")],
    );
    let entry =
        |bytes: &[u8], family: u8, subtype: u8, port: u16, flags: u8, service: &str, nqn: &str, address: &str| {
            assert_fields(
                bytes,
                &[
                    (0, &[3], "TRTYPE: TCP"),
                    (1, &[family], "ADRFAM"),
                    (2, &[subtype], "SUBTYPE"),
                    (3, &[0x06], "TREQ: no secure channel, SQ flow control may be disabled"),
                    (4, &port.to_le_bytes(), "PORTID"),
                    (6, &[0xff, 0xff], "CNTLID: dynamic"),
                    (8, &1024_u16.to_le_bytes(), "ASQSZ"),
                    (10, &[flags, 0], "EFLAGS"),
                    (32, &padded(service, 32, b' '), "TRSVCID"),
                    (256, &padded(nqn, 256, 0), "SUBNQN"),
                    (512, &padded(address, 256, b' '), "TRADDR"),
                    (768, &[0], "TSAS: SECTYPE none"),
                ],
            );
        };
    entry(&log[1024..2048], 1, 3, 0, 0x03, "4420", DISCOVERY_NQN, "192.0.2.1");
    entry(&log[2048..3072], 1, 1, 3, 0, "8009", DISCOVERY_NQN, "192.0.2.9");
    entry(&log[3072..], 2, 2, 0x0102, 0, "4421", A, "2001:db8::7");
    rig.wind_up();
}

#[test]
fn a_host_sees_what_it_may_use() {
    let only = |host: &str| DirectoryEntry { hosts: Hosts::Listed(vec![host.to_owned()]), ..listed(B, Vec::new()) };
    for (host, expected) in [(HOST, vec![A, B]), ("nqn.2014-08.org.nvmexpress:uuid:other", vec![A])] {
        let mut rig = rig(vec![listed(A, Vec::new()), only(host)], Vec::new());
        let discovery = rig.discovery(0);
        let found: Vec<String> = entries(&mut rig, discovery).into_iter().skip(1).map(|(_, nqn, _)| nqn).collect();
        let expected = if host == HOST { expected } else { vec![A] };
        assert_eq!(found, expected, "{host}");
        rig.wind_up();
    }
}

#[test]
fn a_subsystem_without_portals_of_its_own_is_where_the_host_came_in() {
    let mut rig = rig(vec![listed(A, Vec::new())], Vec::new());
    let queue = rig.open_through(7);
    assert_eq!(rig.ask(queue, &Connect::admin().text(256, DISCOVERY_NQN).cmd).status.0, 0);
    rig.enable(queue);
    let here = "192.0.2.1 4427".to_owned();
    assert_eq!(entries(&mut rig, queue), [(3, DISCOVERY_NQN.to_owned(), here.clone()), (2, A.to_owned(), here)]);
    rig.wind_up();
}

#[test]
fn a_portal_for_every_address_is_told_by_the_address_that_the_host_used() {
    let portals = vec![at("0.0.0.0", 4420, 1), at("::", 4430, 2), at("198.51.100.7", 4440, 3)];
    let mut rig = rig(vec![listed(A, portals)], Vec::new());
    let discovery = rig.discovery(0);
    let found: Vec<String> = entries(&mut rig, discovery).into_iter().skip(1).map(|(.., place)| place).collect();
    assert_eq!(found, ["192.0.2.1 4420", "192.0.2.1 4430", "198.51.100.7 4440"]);
    rig.wind_up();
}

#[test]
fn portals_that_do_not_lead_to_a_subsystem_are_left_out() {
    let portals = vec![at("192.0.2.1", 4420, 0), at("192.0.2.2", 4420, 1)];
    let through = |numbers: Vec<u16>, portals| DirectoryEntry { through: numbers, ..listed(A, portals) };
    for (entry, expected) in [
        (through(vec![1], portals.clone()), vec!["192.0.2.2 4420"]),
        (through(vec![0, 1], portals), vec!["192.0.2.1 4420", "192.0.2.2 4420"]),
        (through(vec![1], Vec::new()), vec![]),
    ] {
        let mut rig = rig(vec![entry], Vec::new());
        let discovery = rig.discovery(0);
        let found: Vec<String> = entries(&mut rig, discovery).into_iter().skip(1).map(|(.., place)| place).collect();
        assert_eq!(found, expected);
        rig.wind_up();
    }
}

#[test]
fn the_log_is_the_same_in_pieces_of_any_size() {
    let names = (0..9).map(|n| listed(&format!("{A}{n}"), Vec::new())).collect();
    let mut rig = rig(names, vec![portal(3)]);
    let discovery = rig.discovery(0);
    let whole = read_log(&mut rig, discovery);
    assert_eq!(whole.len(), 12 * 1024);
    for size in [4, 512, 1024, 4092, 4096] {
        let pieces = (0..whole.len()).step_by(size).flat_map(|at| {
            let len = size.min(whole.len() - at);
            rig.ask(discovery, &log_page(0x70, len).u64(48, at as u64)).data
        });
        assert_eq!(pieces.collect::<Vec<u8>>(), whole, "{size}");
    }
    rig.wind_up();
}

#[test]
fn the_generation_moves_with_every_change() {
    let mut rig = rig(vec![listed(A, Vec::new())], Vec::new());
    let discovery = rig.discovery(0);
    let generation = |rig: &mut Rig| rig.ask(discovery, &log_page(0x70, 16)).data[0];
    assert_eq!(generation(&mut rig), 1);
    rig.target.set_directory(rig.now, vec![listed(A, Vec::new())], Vec::new(), &mut rig.pool);
    assert_eq!(generation(&mut rig), 1, "nothing has changed");
    rig.target.set_directory(rig.now, vec![listed(B, Vec::new())], Vec::new(), &mut rig.pool);
    assert_eq!(generation(&mut rig), 2);
    rig.target.set_directory(rig.now, vec![listed(B, Vec::new())], vec![portal(1)], &mut rig.pool);
    assert_eq!(generation(&mut rig), 3);
    rig.wind_up();
}
