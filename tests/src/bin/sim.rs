//! Runs the simulator: `sim --seeds 10000 [--from S] [--lie flush|fua|cache] [--stop]`, or `sim --seed S [--trace]`.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command-line tool")]

use std::process::ExitCode;
use std::time::Instant;

use platter_tests::sim::fleet::{Campaign, Summary};
use platter_tests::sim::plan::Lie;
use platter_tests::sim::{Options, run};

const USAGE: &str = "\
usage: sim --seeds N [--from S] [--lie flush|fua|cache] [--threads N] [--stop]
       sim --seed S [--trace] [--lie flush|fua|cache]

  --seeds N     run N seeds
  --from S      beginning at S (default 1)
  --seed S      run one seed
  --trace       print what happens
  --lie KIND    one disk deceives: violations are expected
  --threads N   default: one per processor
  --stop        begin no new seed after the first violation

Exit status: 0 if every invariant held, 1 if not, 2 for wrong arguments.";

#[derive(Default)]
struct Arguments {
    seeds: Option<u64>,
    from: Option<u64>,
    seed: Option<u64>,
    threads: Option<usize>,
    lie: Option<Lie>,
    trace: bool,
    stop: bool,
}

fn main() -> ExitCode {
    let arguments = match parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(what) => {
            eprintln!("sim: {what}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    // Panics of the engine are caught and reported as violations, with their message.
    std::panic::set_hook(Box::new(|_| {}));
    let good = match arguments.seed {
        Some(seed) => one(seed, &arguments),
        None => many(&arguments),
    };
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn one(seed: u64, arguments: &Arguments) -> bool {
    let outcome = run(Options { seed, lie: arguments.lie, trace: arguments.trace });
    print!("{}", outcome.trace.unwrap_or_default());
    println!("seed {seed}: {} ops, {} events, trace hash {:016x}", outcome.ops, outcome.events, outcome.hash);
    if let Some(violation) = &outcome.violation {
        println!("{violation}");
    }
    outcome.violation.is_none()
}

fn many(arguments: &Arguments) -> bool {
    let from = arguments.from.unwrap_or(1);
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let campaign = Campaign {
        seeds: from..from + arguments.seeds.unwrap_or(1000),
        lie: arguments.lie,
        stop_early: arguments.stop,
        threads: arguments.threads.unwrap_or(processors).max(1),
    };
    let begun = Instant::now();
    let Summary { seeds, hash, ops, events, violations } = campaign.run();
    let took = begun.elapsed();
    for violation in violations.iter().take(20) {
        println!("{violation}");
    }
    println!(
        "{seeds} seeds, {} violations, hash {hash:016x}, {ops} ops, {events} events, {:.1} s",
        violations.len(),
        took.as_secs_f64()
    );
    if let Some(first) = violations.first() {
        println!("replay: cargo run --release -p platter-tests --bin sim -- --seed {} --trace", first.seed);
    }
    violations.is_empty()
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let mut arguments = Arguments::default();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        let number = |text: String| text.parse::<u64>().map_err(|_| format!("{text} is not a number"));
        match word.as_str() {
            "--seeds" => arguments.seeds = Some(number(value()?)?),
            "--from" => arguments.from = Some(number(value()?)?),
            "--seed" => arguments.seed = Some(number(value()?)?),
            "--threads" => arguments.threads = Some(number(value()?)? as usize),
            "--lie" => {
                arguments.lie = Some(match value()?.as_str() {
                    "flush" => Lie::Flush,
                    "fua" => Lie::Fua,
                    "cache" => Lie::NoCache,
                    other => return Err(format!("{other} is no lie that I know")),
                });
            }
            "--trace" => arguments.trace = true,
            "--stop" => arguments.stop = true,
            _ => return Err(format!("{word} is not known")),
        }
    }
    Ok(arguments)
}
