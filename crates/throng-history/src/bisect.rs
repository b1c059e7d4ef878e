//! Which revision made it slower? Builds and measures the revisions between a good and a bad one by itself.
//!
//! ```text
//!  good ----------- ? ----------- bad      both ends are measured first: they have to differ
//!  good ----- ? --- bad                    then always the middle, until good and bad are neighbours
//! ```
//!
//! A revision is measured in a work tree of its own, several times. It is good if its median is nearer to that of the good end.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde::Serialize;
use serde_json::Value;
use throng_judge::{ChangeKind, ChangeOptions, compare, median};

use super::at;
use throng_machine::bounded::{Cut, Limits, Running};
use throng_machine::{LastAct, TemporaryFolder, last_act};

/// A bisection has at most so many revisions.
const REVISIONS_MAX: usize = 100_000;
/// A command may print so many bytes to each of its two outputs.
const OUTPUT_MAX: u64 = 64 << 20;
/// A command that is asked to end has so long.
const GRACE: Duration = Duration::from_secs(2);

/// The variables that name a repository, or a part of one, after `git rev-parse --local-env-vars`. Git sets some of them where it
/// runs hooks, and what is measured lies in another work tree. Settings are no part of a repository.
const OF_A_REPOSITORY: [&str; 13] = [
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_DIR",
    "GIT_GRAFT_FILE",
    "GIT_IMPLICIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_INTERNAL_SUPER_PREFIX",
    "GIT_NO_REPLACE_OBJECTS",
    "GIT_OBJECT_DIRECTORY",
    "GIT_PREFIX",
    "GIT_REPLACE_REF_BASE",
    "GIT_SHALLOW_FILE",
    "GIT_WORK_TREE",
];

/// Settings of a bisection.
#[derive(Clone, Debug)]
pub struct BisectOptions {
    /// The repository.
    pub repository: PathBuf,
    /// A revision that is quick.
    pub good: String,
    /// A later revision that is slow.
    pub bad: String,
    /// Builds a revision, by `sh -c` in its work tree; empty: nothing is built.
    pub build: String,
    /// Measures a revision, by `sh -c` in its work tree: prints a JSON object.
    pub run: String,
    /// Path of the figure in that object, as `frame_ms.p50`.
    pub metric: String,
    /// Runs of each revision, at least 5.
    pub repeats: u32,
    /// Each build and each run takes at most so long.
    pub patience: Duration,
    /// Gets a line for each step: what is built and run, its figure, and the time left.
    pub note: fn(&str),
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bisected {
    /// The last good revision.
    pub last_good: String,
    /// The first bad revision that could be measured: it made the change, or one of `between` did.
    pub first_bad: String,
    /// The subject of its message.
    pub subject: String,
    /// The metric of the first bad revision divided by that of the last good one.
    pub ratio: f64,
    /// Revisions between the two that could not be measured, or were not because it was interrupted.
    pub between: Vec<String>,
    /// The two compared, in words: how sure the difference between them is.
    pub certainty: String,
    /// Whether it was interrupted before two neighbours were left.
    pub partial: bool,
    /// The revisions that were measured, in their order.
    pub tried: Vec<Tried>,
    /// Revisions that could not be built or measured.
    pub skipped: Vec<String>,
}

/// A measured revision.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tried {
    /// The revision.
    pub revision: String,
    /// Its figures, in the order of the runs.
    pub values: Vec<f64>,
    /// Whether it is on the bad side.
    pub is_bad: bool,
}

/// Finds the first bad revision. If it is stopped after both ends were measured, the answer is partial.
///
/// # Errors
/// The repository or its revisions cannot be used, the ends do not differ beyond noise, or it was stopped before they were
/// measured.
pub fn bisect(options: &BisectOptions, stop: &AtomicBool) -> Result<Bisected> {
    ensure!(options.repeats >= 5, "--repeats {}: fewer than 5 runs do not show a difference", options.repeats);
    let all = revisions(options)?;
    let tree = Tree::add(options, &all[0])?;
    let mut course = Course { options, tree, began: Instant::now(), tried: Vec::new(), skipped: Vec::new() };
    let last = all.len() - 1;
    (options.note)(&format!("{} revisions: about {} are measured", all.len(), 2 + rounds(all.len())));
    let good = course.measure(&all[0], stop);
    let good = good.with_context(|| format!("the good revision {} cannot be measured", all[0]))?;
    course.take(&all[0], good.clone(), false, 1 + rounds(all.len()));
    let bad = course.measure(&all[last], stop);
    let bad = bad.with_context(|| format!("the bad revision {} cannot be measured", all[last]))?;
    let change = compare(&good, &bad, &ChangeOptions::default());
    let is_told_apart = matches!(change.kind, ChangeKind::Higher | ChangeKind::Lower);
    ensure!(is_told_apart, "{} and {} do not differ beyond noise: {}", options.good, options.bad, change.words());
    let (good_median, bad_median) = (median(&good).unwrap_or(0.0), median(&bad).unwrap_or(0.0));
    course.take(&all[last], bad, true, rounds(all.len()));
    let mut open: Vec<usize> = (0..all.len()).collect();
    while open.len() > 2 && !stop.load(Ordering::Relaxed) {
        let place = open.len() / 2;
        let revision = &all[open[place]];
        let values = match course.measure(revision, stop) {
            Ok(values) => values,
            // The measurements so far tell between which revisions the change lies.
            Err(_) if stop.load(Ordering::Relaxed) => break,
            Err(error) => {
                (options.note)(&format!("{revision}: left out: {error:#}"));
                course.skipped.push(revision.clone());
                open.remove(place);
                continue;
            }
        };
        let middle = median(&values).unwrap_or(0.0);
        let is_bad = (middle - bad_median).abs() < (middle - good_median).abs();
        if is_bad {
            open.truncate(place + 1);
        } else {
            open.drain(..place);
        }
        course.take(&all[open[if is_bad { open.len() - 1 } else { 0 }]], values, is_bad, rounds(open.len()));
    }
    let (from, to) = (open[0], open[open.len() - 1]);
    course.found((&all[from], &all[to]), all[from + 1..to].to_vec(), open.len() > 2)
}

/// Measurements until two neighbours are left of so many revisions.
fn rounds(open: usize) -> u32 {
    (open.max(2) - 1).next_power_of_two().trailing_zeros()
}

/// A bisection that goes on.
struct Course<'a> {
    options: &'a BisectOptions,
    tree: Tree<'a>,
    began: Instant,
    tried: Vec<Tried>,
    skipped: Vec<String>,
}

impl Course<'_> {
    fn measure(&self, revision: &str, stop: &AtomicBool) -> Result<Vec<f64>> {
        self.tree.measure(revision, stop)
    }

    /// Notes a measured revision. So many more are expected to be measured.
    fn take(&mut self, revision: &str, values: Vec<f64>, is_bad: bool, more: u32) {
        let middle = median(&values).unwrap_or(f64::NAN);
        self.tried.push(Tried { revision: revision.to_owned(), values, is_bad });
        let each = self.began.elapsed() / (self.tried.len() + self.skipped.len()).max(1) as u32;
        let (metric, left_min) = (&self.options.metric, (each * more).as_secs_f64() / 60.0);
        let side = if is_bad { "bad" } else { "good" };
        (self.options.note)(&format!("{revision}: {metric} {middle}, {side}; about {left_min:.1} min left"));
    }

    /// The change lies after the first revision and not later than the second one. `between` were not measured.
    fn found(self, (good, bad): (&str, &str), between: Vec<String>, is_partial: bool) -> Result<Bisected> {
        let Course { options, tried, skipped, .. } = self;
        let values = |revision: &str| {
            let tried = tried.iter().find(|tried| tried.revision == revision);
            tried.map_or(&[][..], |tried| &tried.values[..])
        };
        let of = |revision: &str| median(values(revision)).unwrap_or(f64::NAN);
        let certainty = compare(values(good), values(bad), &ChangeOptions::default()).words();
        let subject = git(&options.repository, &["log", "-1", "--format=%s", bad])?;
        let (ratio, last_good, first_bad) = (of(bad) / of(good), good.to_owned(), bad.to_owned());
        Ok(Bisected { last_good, first_bad, subject, ratio, between, certainty, partial: is_partial, tried, skipped })
    }
}

/// From the good to the bad revision, both included.
fn revisions(options: &BisectOptions) -> Result<Vec<String>> {
    let resolve = |name: &str| {
        ensure!(!name.starts_with('-'), "{name:?} is no revision");
        git(&options.repository, &["rev-parse", "--verify", "--short=12", &format!("{name}^{{commit}}")])
            .with_context(|| format!("there is no revision {name:?}"))
    };
    let (good, bad) = (resolve(&options.good)?, resolve(&options.bad)?);
    let is_before = git(&options.repository, &["merge-base", "--is-ancestor", &good, &bad]).is_ok();
    ensure!(is_before && good != bad, "{} is not before {}", options.good, options.bad);
    let range = format!("{good}..{bad}");
    let list = git(
        &options.repository,
        &["rev-list", "--first-parent", "--reverse", "--abbrev-commit", "--abbrev=12", &range],
    )?;
    let mut all = vec![good];
    all.extend(list.lines().map(str::to_owned));
    ensure!(all.len() <= REVISIONS_MAX, "there are {} revisions between the two: at most {REVISIONS_MAX}", all.len());
    Ok(all)
}

/// A command in which git finds the repository by the folder.
pub(crate) fn at_home(command: &mut Command) -> &mut Command {
    OF_A_REPOSITORY.iter().fold(command, |command, name| command.env_remove(name))
}

fn git(folder: &Path, arguments: &[&str]) -> Result<String> {
    let mut git = Command::new("git");
    let output = at_home(&mut git).arg("-C").arg(folder).args(arguments).output().context("cannot start git")?;
    if !output.status.success() {
        bail!("git {}: {}", arguments[0], String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// A work tree that goes when it is dropped.
struct Tree<'a> {
    options: &'a BisectOptions,
    folder: TemporaryFolder,
    _act: LastAct,
}

impl<'a> Tree<'a> {
    fn add(options: &'a BisectOptions, revision: &str) -> Result<Tree<'a>> {
        let folder = TemporaryFolder::new().context("cannot make a temporary folder")?;
        let path = folder.path().join("tree");
        let path = path.to_str().context("the temporary folder's name is no text")?;
        let (repository, registered) = (options.repository.clone(), path.to_owned());
        let act = last_act(move || remove(&repository, &registered));
        git(&options.repository, &["worktree", "add", "--detach", "--quiet", path, revision])?;
        Ok(Tree { options, folder, _act: act })
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("tree")
    }

    fn measure(&self, revision: &str, stop: &AtomicBool) -> Result<Vec<f64>> {
        git(&self.path(), &["checkout", "--quiet", "--detach", "--force", revision])?;
        if !self.options.build.is_empty() {
            (self.options.note)(&format!("  {revision}: it is built"));
            self.shell(&self.options.build, stop).context("it cannot be built")?;
        }
        let mut values = Vec::new();
        for number in 1..=self.options.repeats {
            (self.options.note)(&format!("  {revision}: run {number} of {}", self.options.repeats));
            let printed = self.shell(&self.options.run, stop).context("it cannot be measured")?;
            let object: Value = serde_json::from_str(&printed).context("its run printed no JSON object")?;
            let value = at(&object, &self.options.metric).and_then(Value::as_f64);
            values.push(value.with_context(|| format!("its run printed no number at {}", self.options.metric))?);
        }
        Ok(values)
    }

    /// Runs a command to its end. Its output.
    fn shell(&self, command: &str, stop: &AtomicBool) -> Result<String> {
        let mut shell = Command::new("sh");
        let running = Running::start(at_home(&mut shell).args(["-c", command]).current_dir(self.path()))
            .context("cannot start sh")?;
        let patience = self.options.patience;
        let limits = Limits { patience, grace: GRACE, output_max: OUTPUT_MAX, errors_max: OUTPUT_MAX };
        let finished = running.wait(&limits, stop, |_| ());
        match finished.cut {
            Some(Cut::TooMuch) => bail!("it printed more than {} MB, and was ended", OUTPUT_MAX >> 20),
            Some(Cut::Late) => bail!("it was ended after {} s", patience.as_secs()),
            Some(Cut::Stopped) => bail!("it was interrupted"),
            None => {}
        }
        let status = finished.status.context("it was ended")?;
        ensure!(status.success(), "{status}: {}", finished.last_words);
        Ok(finished.output)
    }
}

impl Drop for Tree<'_> {
    fn drop(&mut self) {
        if let Some(path) = self.path().to_str() {
            remove(&self.options.repository, path);
        }
    }
}

/// Removes a work tree. Nobody waits for the answer.
fn remove(repository: &Path, tree: &str) {
    let _ = git(repository, &["worktree", "remove", "--force", tree]);
}
