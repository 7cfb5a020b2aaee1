//! What each command does. The only file that prints.
//!
//! Exit codes: 0 done; 1 it failed while running; 2 the configuration or the command line is wrong; 3 the server stopped,
//! but not everything it had acknowledged is known to be durable.

#![allow(clippy::print_stdout, clippy::print_stderr)]

use crate::cli::{Cli, Command, LogFormat, Serve};
use crate::config::{self, Plan};
use crate::serve::{BackendHook, Server, StartError};
use crate::status::Status;
use crate::{admin, demo};
use std::fmt::Display;
use std::path::Path;
use std::process::ExitCode;
use tokio::signal::unix::{SignalKind, signal};

const FAILED: u8 = 1;
const WRONG: u8 = 2;
const NOT_DURABLE: u8 = 3;

/// Runs one command to its end.
pub fn run(cli: Cli) -> ExitCode {
    match cli.command {
        Command::Serve(options) => serve(&options),
        Command::Check { config } => check(&config),
        Command::Status { admin, json } => status(&admin, json),
        Command::ClearFault { disk, admin } => clear_fault(&admin, &disk),
    }
}

/// Starts a server from configuration text, with a hook between engine and disks. For tests: call inside a runtime.
pub async fn start_for_tests(text: &str, hook: Option<BackendHook>) -> Result<Server, Box<dyn std::error::Error>> {
    let plan = config::parse(Path::new("(test)"), text)?;
    Ok(Server::start(plan, hook).await?)
}

fn fail(code: u8, message: impl Display) -> ExitCode {
    eprintln!("platter: {message}");
    ExitCode::from(code)
}

fn serve(options: &Serve) -> ExitCode {
    start_log(options.log_format);
    let plan = match &options.config {
        Some(path) => config::load(path),
        None => demo::plan(),
    };
    let plan = match plan {
        Ok(plan) => plan,
        Err(e) => return fail(WRONG, e),
    };
    if options.demo
        && let Err(e) = demo::make_folder()
    {
        return fail(FAILED, e);
    }
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(e) => return fail(FAILED, e),
    };
    match runtime.block_on(serve_until_told(plan, options.demo)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => fail(NOT_DURABLE, "stopped, but not everything acknowledged is known to be durable"),
        Err(e) => fail(WRONG, e),
    }
}

/// Whether everything acknowledged is durable.
async fn serve_until_told(plan: Plan, demo: bool) -> Result<bool, StartError> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let server = Server::start(plan, None).await?;
    if demo {
        println!("{}", demo::lines());
    }
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    tracing::info!("stopping: finishing what is in flight, then flushing");
    tokio::select! {
        clean = server.stop() => Ok(clean),
        _ = terminate.recv() => Ok(false),
        _ = interrupt.recv() => Ok(false),
    }
}

fn start_log(format: LogFormat) {
    let filter = tracing_subscriber::EnvFilter::try_from_env("PLATTER_LOG").unwrap_or_else(|_| "info".into());
    let colours = std::io::IsTerminal::is_terminal(&std::io::stderr());
    let log = tracing_subscriber::fmt()
        .with_ansi(colours)
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_target(false);
    match format {
        LogFormat::Text => log.init(),
        LogFormat::Json => log.json().init(),
    }
}

fn check(path: &Path) -> ExitCode {
    match config::load(path) {
        Ok(plan) => {
            println!("{}: {}", path.display(), plan.summary());
            ExitCode::SUCCESS
        }
        Err(e) => fail(WRONG, e),
    }
}

fn status(socket: &Path, json: bool) -> ExitCode {
    let body = match admin::request(socket, "GET", "/v1/status") {
        Ok((200, body)) => body,
        Ok((code, _)) => return fail(FAILED, format_args!("the server answered {code}")),
        Err(e) => return fail(FAILED, format_args!("no server answers at {}: {e}", socket.display())),
    };
    if json {
        println!("{body}");
        return ExitCode::SUCCESS;
    }
    match serde_json::from_str::<Status>(&body) {
        Ok(status) => {
            print!("{status}");
            ExitCode::SUCCESS
        }
        Err(e) => fail(FAILED, format_args!("the server's answer is of another version: {e}")),
    }
}

fn clear_fault(socket: &Path, disk: &str) -> ExitCode {
    if disk.contains(['/', ' ', '?', '#', '%', '\r', '\n']) {
        return fail(WRONG, format_args!("`{disk}` is not the name of a disk"));
    }
    match admin::request(socket, "POST", &format!("/v1/disks/{disk}/clear-fault")) {
        Ok((204, _)) => {
            println!("disk {disk}: fault cleared");
            ExitCode::SUCCESS
        }
        Ok((404, _)) => fail(FAILED, format_args!("there is no poisoned disk `{disk}`")),
        Ok((code, _)) => fail(FAILED, format_args!("the server answered {code}")),
        Err(e) => fail(FAILED, format_args!("no server answers at {}: {e}", socket.display())),
    }
}
