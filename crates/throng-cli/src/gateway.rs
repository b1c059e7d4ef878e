//! `throng gateway`: reads channeld's flags and runs the gateway.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::anyhow;
use clap::Args;
use throng_gateway::serve::{Gateway, Signals};
use throng_gateway::settings::{self, Settings, SettingsError};
use throng_gateway::{files, log};
use throng_http::ListenerLimits;
use tracing::{error, info, warn};

use crate::exit::{Failure, Outcome};
use crate::gateway_memory;
use crate::gateway_profile::Profiling;

/// Arguments of `throng gateway`: channeld's flags in channeld's syntax, and further ones.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct GatewayArguments {
    /// channeld's flags, as `-dev -ca=:12108 -chs config/channel_settings_hifi.json`; -help lists all
    #[arg(value_name = "FLAGS", trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

const ABOUT: &str = "\
Run a gateway between many servers and many clients. It speaks channeld's protocol and takes its flags.

Usage: throng gateway [FLAGS]

  throng gateway -dev -ca=127.0.0.1:12108 -sa=127.0.0.1:11288     every login is accepted: for development
  throng gateway -auth=tokens:tokens.json -chs ue                  who may log in stands in a file; for Unreal's plugin

Stop it with SIGTERM or Ctrl-C; SIGHUP reads its files again (docs/gateway.md).

";

/// Serves until SIGTERM or Ctrl-C; SIGHUP reads the files again.
pub(crate) fn serve(arguments: &GatewayArguments) -> Outcome {
    // First of all: a signal that comes while files are read must not kill the process.
    let signals = Signals::listen().map_err(|error| Failure::Run(error.into()))?;
    throng_machine::subprocess::end_with_parent();
    let settings = match settings::load(&arguments.words) {
        Ok(settings) => settings,
        Err(SettingsError::HelpWanted) => {
            out!("{ABOUT}{}", settings::usage());
            return Ok(ExitCode::SUCCESS);
        }
        Err(error) => return Err(Failure::Usage(error.into())),
    };
    log::open(&settings).map_err(Failure::usage)?;
    say_notes(&settings);
    let profiling = Profiling::begin(&settings);
    let unix_ns = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as i64);
    let gateway = Gateway::from_settings(settings.clone(), unix_ns as u64, unix_ns)
        .map_err(|error| Failure::Usage(anyhow!(error)))?;
    gateway_memory::watch(&gateway.counters().memory);
    info!("peers may use {} MiB of memory", gateway.counters().memory.limit_bytes() >> 20);
    let files = files::raise();
    let pages = [gateway.http_address(), gateway.admin_address()].into_iter().flatten().count();
    let others = OTHER_FILES + (pages * ListenerLimits::default().connections) as u64;
    if let Some(files) = files.filter(|&files| files < u64::from(settings.engine.limits.max_connections) + others) {
        warn!(
            "the process may have {files} open files, which is too few for max_connections = {}: raise the limit \
             (ulimit -n, LimitNOFILE), or lower max_connections",
            settings.engine.limits.max_connections
        );
    }
    for (door, address) in doors(&settings).zip(gateway.addresses()) {
        info!("listening for {door} at {address}");
    }
    if let Some(address) = gateway.edges_address() {
        info!("listening for edges at {address}");
    }
    if let Some(home) = &settings.home {
        info!("an edge of the gateway at {home}: clients can come when that is reached");
    }
    if let Some(address) = gateway.http_address() {
        info!("health and metrics at http://{address}");
    }
    if let Some(address) = gateway.admin_address() {
        info!("page for operators at http://{address}");
    }
    let mut current = settings;
    let read = move || match current.reload() {
        Ok(settings) => {
            say_notes(&settings);
            current = settings.clone();
            Some(Arc::new(settings))
        }
        Err(error) => {
            error!(tag = error.tag(), "{error}");
            None
        }
    };
    let end = gateway.run(signals, read);
    profiling.end();
    let was_quiet = end.map_err(|error| Failure::Run(error.into()))?;
    if !was_quiet {
        warn!("some connections were closed before all data was sent");
    }
    Ok(ExitCode::SUCCESS)
}

/// Open files other than connections of players, servers and pages: listeners, logs, files of the runtime.
const OTHER_FILES: u64 = 64;

fn doors(settings: &Settings) -> impl Iterator<Item = String> + '_ {
    let servers = settings.server_listeners().map(|door| format!("servers ({})", door.network.tag()));
    let clients = settings.client_listeners().map(|door| format!("clients ({})", door.network.tag()));
    servers.chain(clients)
}

fn say_notes(settings: &Settings) {
    for note in &settings.notes {
        warn!("{note}");
    }
}
