//! A load that a command plays once, and the steps that all such commands share.
//!
//! ```text
//!  arguments checked -> store, limits and files opened -> Load::play -> figures printed -> limits judged -> page, index -> store
//!                       (a mistake costs no run)                       (before anything can fail)                  exit code
//! ```

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context;
use clap::Args;
use serde::Serialize;
use throng_report::{Kind, MetricLimit, RunHead, to_json};

use crate::exit::{Failure, Outcome};
use crate::limits::{LimitArguments, Played};
use crate::pages;
use crate::store::{self, StoreArgument};

/// The players of a crowd, matches, matches of agents, or the clients of a gateway.
pub(crate) trait Load {
    /// The figures of a run, which begin with its head.
    type Figures: Serialize;

    /// The kind of its runs.
    const KIND: Kind;

    /// Its name in verdicts.
    fn name(&self) -> &str;

    /// Limits that it brings along.
    fn limits(&self) -> &[MetricLimit] {
        &[]
    }

    /// Plays it until it is over or `stop` is set. The figures are in the run's folder afterwards.
    fn play(&mut self, stop: &Arc<AtomicBool>) -> Result<Run<Self::Figures>, Failure>;

    /// The head of figures.
    fn head(figures: &Self::Figures) -> &RunHead;

    /// Figures for a terminal.
    fn text(figures: &Self::Figures) -> String;
}

/// A run that was played.
pub(crate) struct Run<T> {
    /// Its figures.
    pub(crate) figures: T,
    /// Its folder, if it has one; or why the figures are not there.
    pub(crate) folder: Option<anyhow::Result<PathBuf>>,
}

/// Where the results of every load go.
#[derive(Debug, Args)]
pub(crate) struct OutputArguments {
    /// Parent folder of the run's folder
    #[arg(long, value_name = "DIR", default_value = "runs")]
    pub(crate) runs: PathBuf,
    #[command(flatten)]
    store: StoreArgument,
    #[command(flatten)]
    limits: LimitArguments,
    /// Print the figures as JSON instead of the table
    #[arg(long)]
    pub(crate) json: bool,
    /// Show no progress
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

impl OutputArguments {
    /// Plays a load, and does everything with its figures that the arguments say.
    pub(crate) fn play<L: Load>(&self, mut load: L, stop: &Arc<AtomicBool>) -> Outcome {
        let store = self.store.open(stop)?;
        let gate = self.limits.open(L::KIND, load.limits())?;
        let Run { figures, folder } = load.play(stop)?;
        match self.json {
            true => out!("{}", to_json(&figures)),
            false => out!("{}", L::text(&figures)),
        }
        let folder = folder.transpose().context("the figures above are on no disk")?;
        let played =
            Played { name: load.name(), head: L::head(&figures), figures: &figures, folder: folder.as_deref() };
        // A verdict that cannot be written takes no page away.
        let code = gate.judge(&played);
        if let Some(folder) = &folder {
            let page =
                pages::rebuild(folder).with_context(|| format!("the figures in {} have no page", folder.display()))?;
            if !self.quiet {
                errln!("report: {}", page.display());
            }
            pages::list(&self.runs);
            if let Some(store) = &store {
                store::upload(store, folder, self.quiet, stop)?;
            }
        }
        code
    }
}
