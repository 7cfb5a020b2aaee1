//! kill -9 of the real server loses no acknowledged write; and the checker would notice if it did.

use platter_tests::kill::{self, ledger::Ledger, stamp::BLOCK};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

#[test]
fn no_acknowledged_write_is_lost_by_kill_9() {
    let report = kill::run(5, 20_261_130, |_, _| {});
    assert!(report.violations.is_empty(), "{report}");
    assert!(report.writes >= 5 && report.verified == 5 * 2048, "{report}");
}

#[test]
fn a_lost_write_a_torn_block_and_a_misplaced_block_are_each_noticed() {
    let written = |ledgers: &[Ledger]| {
        let mut blocks = ledgers.iter().flat_map(|l| l.range().map(move |lba| (lba, l)));
        let found = blocks.find(|(lba, l)| l.settled(*lba) > 0 && !l.is_written(*lba..*lba + 1));
        found.expect("some block was written and is not in flight").0
    };
    type Damage = fn(&File, u64);
    let damages: [(&str, Damage); 3] = [
        ("but", |disk, at| disk.write_all_at(&[0; BLOCK], at).unwrap()),
        ("torn or damaged", |disk, at| disk.write_all_at(&[0; 512], at + 1024).unwrap()),
        ("holds block", |disk, at| disk.write_all_at(&kill::stamp::block(1_000_000, 1), at).unwrap()),
    ];
    for (expected, damage) in damages {
        let mut lba = 0;
        let report = kill::run(1, 7, |disk: &Path, ledgers| {
            lba = written(ledgers);
            damage(&File::options().write(true).open(disk).unwrap(), lba * BLOCK as u64);
        });
        assert_eq!(report.violations.len(), 1, "{report}");
        let violation = &report.violations[0];
        assert!(violation.contains(&format!("block {lba} ")) && violation.contains(expected), "{violation}");
    }
}
