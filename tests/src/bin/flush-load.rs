//! `flush-load ADDRESS TARGET N`: N FUA writes of one block to LUN 0, each followed by SYNCHRONIZE CACHE. For tools that
//! count from outside what the server makes of them.

#![allow(clippy::print_stderr)]

use platter_tests::initiator::{Command, LoginOptions, Session};
use std::process::ExitCode;

const BLOCK: u32 = 512;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("flush-load: {e}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> Result<(), Box<dyn std::error::Error>> {
    let [address, target, count] = arguments else { return Err("usage: flush-load ADDRESS TARGET N".into()) };
    let mut session = Session::login(address.parse()?, &LoginOptions::to(target))?;
    session.ready(0)?;
    for lba in 0..count.parse()? {
        let write = Command::write(0, lba, vec![lba as u8; BLOCK as usize], BLOCK).fua();
        for command in [write, Command::synchronize_cache(0)] {
            let end = session.execute(&command)?;
            if !end.is_good() {
                return Err(format!("{end:?}").into());
            }
        }
    }
    session.logout()?;
    Ok(())
}
