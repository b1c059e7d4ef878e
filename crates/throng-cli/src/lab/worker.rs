//! `throng lab worker`.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use throng_lab::run::{self, Listen, WorkerName, WorkerOptions, WorkerPlace};

use crate::args::{BOTS_FOR_RUN, CLOCK_AHEAD, KeyArgument};
use crate::exit::Outcome;
use crate::number::number;

pub(super) const LONG_ABOUT: &str = "\
Play a part of the bots of runs on other machines.

  on each machine with bots     throng lab worker --listen 10.0.0.6:7790 --key KEY --own 10.0.0.5
  on the server's machine       throng crowd --address 10.0.0.5 --workers 10.0.0.6:7790,10.0.0.7:7790 --key KEY

  or found by name over NATS    throng lab worker --bus nats://10.0.0.9:4222 --name east --key KEY --own 10.0.0.5
                                throng crowd --address 10.0.0.5 --bus nats://10.0.0.9:4222 --workers east,west --key KEY

KEY is 64 hexadecimal digits that you choose, the same everywhere; on loopback there is a default. The bots load loopback and the \
addresses of --own, and no others. One run at a time is played (docs/lab.md#load-workers).";

/// Arguments of `throng lab worker`.
#[derive(Debug, Args)]
pub(crate) struct WorkerArguments {
    /// The UDP address at which runs find this load worker
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7790", value_parser = crate::args::address)]
    listen: SocketAddr,
    /// Let runs find this load worker at a nats-server, as nats://127.0.0.1:4222, instead of at an address; needs a build with
    /// --features nats
    #[arg(long, value_name = "URL", requires = "name", conflicts_with = "listen")]
    bus: Option<String>,
    /// With --bus: the name by which runs find it, which no other load worker has there
    #[arg(long, value_name = "NAME", requires = "bus")]
    name: Option<WorkerName>,
    /// Addresses beside loopback that you own and that may be put under load, with commas between them
    #[arg(long, value_name = "IP", value_delimiter = ',')]
    own: Vec<IpAddr>,
    #[command(flatten)]
    key: KeyArgument,
    /// For tests of the lab: the clock is ahead by so many milliseconds
    #[arg(long, value_name = "MS", default_value_t = 0, hide = true, value_parser = number::<u64>(..))]
    clock_ahead: u64,
}

pub(super) fn work(arguments: &WorkerArguments, stop: &AtomicBool) -> Outcome {
    let WorkerArguments { listen, bus, name, own, key, clock_ahead } = arguments;
    let (listen, place) = match (bus, name) {
        (Some(nats), Some(name)) => {
            (Listen::Bus { nats: nats.clone(), name: name.clone() }, WorkerPlace::Name(name.clone()))
        }
        _ => (Listen::Address(*listen), WorkerPlace::Address(*listen)),
    };
    if matches!(listen, Listen::Address(address) if address.ip().is_unspecified()) {
        refuse!("{place} stands for every address of the machine: listen at the one that runs use");
    }
    key.check([&place])?;
    throng_machine::clock::set_ahead(Duration::from_millis(*clock_ahead));
    let program = std::env::current_exe().context("the path of this program is unknown")?;
    let mut bots_command = vec![program.into(), BOTS_FOR_RUN.into()];
    if *clock_ahead > 0 {
        bots_command.extend([CLOCK_AHEAD.into(), clock_ahead.to_string().into()]);
    }
    let options =
        WorkerOptions { listen, key: key.get(), own: own.clone(), bots_command, note: |line| errln!("{line}") };
    run::work(&options, stop)?;
    Ok(std::process::ExitCode::SUCCESS)
}
