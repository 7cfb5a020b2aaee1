//! The simulator on the real engine: every invariant holds, runs repeat exactly, and disks that lie are found out.

use platter_tests::sim::fleet::{Campaign, Summary};
use platter_tests::sim::plan::Lie;
use platter_tests::sim::verdict::Checker;
use platter_tests::sim::{Options, run};

fn campaign(seeds: std::ops::Range<u64>, lie: Option<Lie>, stop_early: bool, threads: usize) -> Summary {
    Campaign { seeds, lie, stop_early, threads }.run()
}

#[test]
fn every_invariant_holds_in_many_worlds() {
    let summary = campaign(1..1001, None, false, 2);
    let lines: Vec<String> = summary.violations.iter().map(ToString::to_string).collect();
    assert!(lines.is_empty(), "{}\nreplay: sim --seed {} --trace", lines.join("\n"), summary.violations[0].seed);
    assert_eq!(summary.seeds, 1000);
    assert!(summary.ops > 100_000, "the worlds are busy: {} ops", summary.ops);
}

#[test]
fn the_same_seed_is_the_same_run_on_one_thread_and_on_four() {
    let one = campaign(1..101, None, false, 1);
    let four = campaign(1..101, None, false, 4);
    assert_eq!((one.hash, one.ops, one.events), (four.hash, four.ops, four.events));
}

#[test]
fn a_trace_that_is_kept_has_the_hash_of_one_that_is_not_and_other_seeds_have_others() {
    let hash = |seed, trace| run(Options { seed, lie: None, trace }).hash;
    assert_eq!(hash(7, true), hash(7, false));
    assert_ne!(hash(7, false), hash(8, false));
}

/// The checkers that judge by data alone must find out what no counter shows.
fn is_found_out(lie: Lie) {
    let summary = campaign(1..51, Some(lie), true, 1);
    let violation = summary.violations.first().expect("50 seeds are enough to find a lying disk out");
    assert_eq!(violation.fault.checker, Checker::Survival, "{violation}");
}

#[test]
fn a_disk_that_lies_about_flushes_is_found_out() {
    is_found_out(Lie::Flush);
}

#[test]
fn a_disk_that_lies_about_fua_is_found_out() {
    is_found_out(Lie::Fua);
}

#[test]
fn a_disk_that_hides_its_cache_is_found_out() {
    is_found_out(Lie::NoCache);
}
