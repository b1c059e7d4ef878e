//! `throng lab serve`: the live page.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use throng_live::{Hub, HubError, HubOptions};
use throng_machine::{LastAct, last_act, subprocess};

use crate::exit::{self, Failure, Outcome};
use crate::live;

pub(super) const LONG_ABOUT: &str = "\
Show loads in a web page while they run

The page shows the map with its players, the frame by subsystem, data, ages, and the steps of a search as marks. Its field \
sets the number of players of a crowd while it runs. Runs that have ended are listed with their reports.

  throng lab serve                                  then, in another terminal: throng crowd --live 127.0.0.1:8090
  throng lab serve crowd --players 2000 --seconds 600     the page, and a load beside it
  throng lab serve lab search crowd                 the same for a search and all its trials
  throng top --live 127.0.0.1:8090                  the same figures in a terminal

Only this machine can open the page. There is no password: with --allow-others, anybody who reaches the address sees the \
figures, and can set the load.";

/// Time between two looks at the load and at Ctrl-C.
const LOOK: Duration = Duration::from_millis(50);
/// A load that was asked to end has so long for its report.
const END_PATIENCE: Duration = Duration::from_secs(30);

#[derive(Debug, Args)]
pub(super) struct ServeArguments {
    /// Where the page is
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8090", value_parser = crate::args::address)]
    address: SocketAddr,
    /// Allow an address that other machines reach
    #[arg(long)]
    allow_others: bool,
    /// The folder whose runs are listed
    #[arg(long, value_name = "DIR", default_value = "runs")]
    runs: PathBuf,
    /// A throng command that is shown, as crowd --players 300. The page ends with Ctrl-C, not with the load
    #[arg(value_name = "LOAD", trailing_var_arg = true, allow_hyphen_values = true)]
    load: Vec<String>,
}

pub(super) fn serve(arguments: &ServeArguments, stop: &AtomicBool) -> Outcome {
    let ServeArguments { address, allow_others, ref runs, ref load } = *arguments;
    throng_report::check_runs(runs).map_err(Failure::usage)?;
    let hub =
        Hub::start(&HubOptions { address, runs: Some(runs.clone()), allow_others }).map_err(|error| match error {
            HubError::Start(_) => Failure::Run(error.into()),
            _ => Failure::Usage(error.into()),
        })?;
    errln!("the live page is at http://{}/; press Ctrl-C to stop", hub.address());
    let mut shown = if load.is_empty() { None } else { Some(start(load, hub.address())?) };
    while !stop.load(Ordering::Relaxed) {
        if let Some((child, _)) = &mut shown
            && let Some(status) = child.try_wait().context("cannot look at the load")?
        {
            errln!("the load has ended ({status}); the page goes on until Ctrl-C");
            shown = None;
        }
        std::thread::sleep(LOOK);
    }
    if let Some((child, _)) = &mut shown {
        errln!("the load ends, too, and writes its report");
        subprocess::interrupt(child);
        let status = subprocess::wait(child, END_PATIENCE);
        // After a second Ctrl-C, the load may be gone before this program is.
        if status.and_then(|status| status.code()) == Some(exit::INTERRUPTED.into()) {
            return Ok(ExitCode::from(exit::INTERRUPTED));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Starts a command of this program, which finds the page by a variable. A second Ctrl-C ends it, too, with the commands that it runs.
fn start(load: &[String], hub: SocketAddr) -> anyhow::Result<(Child, LastAct)> {
    let program = std::env::current_exe().context("the path of this program is unknown")?;
    let mut command = Command::new(program);
    command.args(load).env(live::VARIABLE, hub.to_string()).stdin(Stdio::null());
    let child = subprocess::own_group(&mut command).spawn().context("cannot start the load")?;
    let id = child.id();
    Ok((child, last_act(move || subprocess::end_at_once(id))))
}
