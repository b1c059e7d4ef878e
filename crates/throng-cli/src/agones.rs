//! `throng match --agones`: the sidecar is told what this process plays.

use std::sync::Arc;

use anyhow::Context;
use throng_fleet::{FleetOptions, FleetState, PORT_VARIABLE, Sidecar};
use throng_range::{Playing, RunOptions};

use crate::exit::Failure;

/// A process in a fleet, for the time of a run.
pub(crate) struct Agones {
    sidecar: Arc<Sidecar>,
}

impl Agones {
    /// Gives signs of life from now on. The process is ready when the run tells its first matches: everything that can fail
    /// has succeeded then.
    ///
    /// # Errors
    /// The variable of the port is wrong, or there is no thread.
    pub(crate) fn start(options: &mut RunOptions) -> Result<Agones, Failure> {
        let text = std::env::var(PORT_VARIABLE).ok();
        let port = Sidecar::port(text.as_deref()).map_err(Failure::usage)?;
        let sidecar = Sidecar::start(port, FleetOptions::default()).context("--agones")?;
        let sidecar = Arc::new(sidecar);
        let told = sidecar.clone();
        options.playing = Some(Playing(Arc::new(move |matches: &[u32]| {
            // After the last match comes the report: until then the process must not count as ready for others.
            if !matches.is_empty() {
                told.set_matches(matches.iter().map(|number| format!("match-{number}")));
            }
        })));
        Ok(Agones { sidecar })
    }

    /// The run is over and stored: asks Agones to end the process. A sidecar that does not answer is named, and is no failure of
    /// the run.
    pub(crate) fn end(self) {
        let (counters, state) = self.sidecar.end();
        if state != FleetState::Ended {
            errln!("the Agones sidecar did not take the shutdown: {} requests failed", counters.failed);
        }
        if counters.refused > 0 {
            errln!("the Fleet has no counter and list `matches`, or they are full: {} refusals", counters.refused);
        }
    }
}
