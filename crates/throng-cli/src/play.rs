//! A load that a command plays once, and the steps that all such commands share.
//!
//! ```text
//!  arguments checked -> store, limits and files opened -> Load::play -> figures printed -> limits judged -> page, index -> store
//!                       (a mistake costs no run)                       (before anything can fail)                  exit code
//! ```

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use clap::Args;
use serde::Serialize;
use throng_report::{Case, Kind, MetricLimit, RunHead, SUMMARY_FILE, to_json};
use throng_store::RunAge;

use crate::exit::{Failure, Outcome};
use crate::limits::{LimitArguments, Played};
use crate::pages;
use crate::store::{self, StoreArgument};

/// The players of a crowd, matches, matches of agents, the clients of a gateway, models in turns, or loads of growing size.
pub(crate) trait Load {
    /// The figures of a run.
    type Figures: Figures;

    /// The kind of its runs.
    const KIND: Kind;

    /// Its name in verdicts.
    fn name(&self) -> &str;

    /// Limits that it brings along.
    fn limits(&self) -> &[MetricLimit] {
        &[]
    }

    /// Plays it until it is over or `stop` is set. Figures and page are in the run's folder afterwards.
    fn play(&mut self, stop: &Arc<AtomicBool>) -> Result<Run<Self::Figures>, Failure>;
}

/// The figures of a kind of run, as they are written and as a terminal shows them.
pub(crate) trait Figures: Serialize {
    /// Their head.
    fn head(&self) -> &RunHead;

    /// Their text for a terminal.
    fn text(&self) -> String;

    /// The exit code of the answer that they are, or why they are not whole. `None`: they are no answer, and their head says
    /// whether they count.
    fn answer(&self) -> Option<Result<u8, Failure>> {
        None
    }

    /// Cases for a build server beside those of the limits.
    fn cases(&self) -> Vec<Case> {
        Vec::new()
    }

    /// Their text in Markdown, below the verdicts on the limits.
    fn markdown(&self) -> String {
        String::new()
    }
}

/// A run that was played.
pub(crate) struct Run<T> {
    /// Its figures.
    pub(crate) figures: T,
    /// Its folder, if it has one.
    pub(crate) folder: Option<PathBuf>,
    /// The page in that folder; or why it, or the file of the figures, is not there.
    pub(crate) page: Option<anyhow::Result<PathBuf>>,
}

/// Where the results of every load go.
#[derive(Clone, Debug, Args)]
pub(crate) struct OutputArguments {
    /// Parent folder of the run's folder
    #[arg(long, value_name = "DIR", default_value = "runs")]
    pub(crate) runs: PathBuf,
    #[command(flatten)]
    store: StoreArgument,
    #[command(flatten)]
    pub(crate) limits: LimitArguments,
    /// Print the figures as JSON instead of the table
    #[arg(long)]
    pub(crate) json: bool,
    /// Show no progress
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

impl OutputArguments {
    /// Gets the lines of a load that tell how far it is.
    pub(crate) fn note(&self) -> fn(&str) {
        if self.quiet { |_| () } else { |line| errln!("{line}") }
    }

    /// Plays a load, and does everything with its figures that the arguments say.
    pub(crate) fn play<L: Load>(&self, mut load: L, stop: &Arc<AtomicBool>) -> Outcome {
        let store = self.store.open(stop)?;
        if let Some(store) = store.as_ref().filter(|store| store.is_folder(&self.runs)) {
            let place = store.place();
            refuse!("--store {place} is the folder of --runs: use another folder for one of them");
        }
        let gate = self.limits.open(L::KIND, load.limits())?;
        let Run { figures, folder, page } = load.play(stop)?;
        match self.json {
            true => out!("{}", to_json(&figures)),
            false => out!("{}", figures.text()),
        }
        let folder = folder.filter(|folder| folder.join(SUMMARY_FILE).is_file());
        // The figures count without their page, and a build server without both.
        let words = if folder.is_some() { "the page is not written" } else { "the figures above are on no disk" };
        let (page, broken) = match page.transpose().context(words) {
            Ok(page) => (page, None),
            Err(error) => (None, Some(error)),
        };
        let folder = folder.as_deref();
        // A verdict that cannot be written keeps the run from neither the index nor the store.
        let code = gate.judge(&Played { name: load.name(), figures: &figures, folder });
        if let Some(page) = page.as_ref().filter(|_| !self.quiet) {
            errln!("report: {}", page.display());
        }
        if let Some(folder) = folder {
            pages::list(&self.runs);
            if let Some(store) = &store {
                // A run that was interrupted is sent, too. A second Ctrl-C ends the program.
                let (is_interrupted, goes_on) = (stop.load(Ordering::Relaxed), AtomicBool::new(false));
                let stop = if is_interrupted { &goes_on } else { stop };
                store::upload(store, folder, RunAge::New, self.quiet, stop)?;
            }
        }
        broken.map_or(code, |error| Err(error.into()))
    }
}
