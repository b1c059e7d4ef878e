//! `--live`: where a load that runs is shown. `throng lab serve` is the other end.

use std::net::SocketAddr;

use clap::Args;
use throng_live::View;

use crate::exit::Failure;

/// The live page's address for programs that another one starts: a search and its trials are shown at the same page.
pub(crate) const VARIABLE: &str = throng_live::VARIABLE;

#[derive(Clone, Debug, Args)]
pub(crate) struct LiveArgument {
    /// Show the run while it goes on, at the live page of `throng lab serve` at this address (docs/live.md)
    #[arg(long, value_name = "ADDR", value_parser = crate::args::address)]
    live: Option<SocketAddr>,
}

impl LiveArgument {
    /// The address of a live page. One that was asked for has to be there; one of the environment may be gone.
    pub(crate) fn address(&self) -> Result<Option<SocketAddr>, Failure> {
        if let Some(address) = self.live {
            View::open(address).map_err(Failure::usage)?;
            return Ok(Some(address));
        }
        Ok(std::env::var(VARIABLE).ok().and_then(|text| text.parse().ok()))
    }
}
