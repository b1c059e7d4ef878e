//! Which revision made it slower? Builds and measures the revisions between a good and a bad one by itself.
//!
//! ```text
//!  good ----------- ? ----------- bad      both ends are measured first: they have to differ
//!  good ----- ? --- bad                    then always the middle, until good and bad are neighbours
//! ```
//!
//! A revision is measured in a work tree of its own, several times. It is good if its median is nearer to that of the good end.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde::Serialize;
use serde_json::Value;
use throng_judge::{ChangeKind, ChangeOptions, compare, median};

use super::at;
use throng_machine::subprocess;

/// A bisection has at most so many revisions.
const REVISIONS_MAX: usize = 100_000;
/// A command may print so many bytes to each of its two outputs.
const OUTPUT_MAX: u64 = 64 << 20;
/// The last words of a command are looked for in so many bytes at the end.
const WORDS_MAX: u64 = 64 << 10;
/// They are at most so long.
const WORDS_CHARS_MAX: usize = 300;
/// A command that runs is looked at so often.
const LOOK: Duration = Duration::from_millis(20);

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
    /// Gets a line for each revision.
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
    /// Revisions between the two that could not be measured.
    pub between: Vec<String>,
    /// The two compared, in words: how sure the difference between them is.
    pub certainty: String,
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

/// Finds the first bad revision.
///
/// # Errors
/// The repository or its revisions cannot be used, the ends do not differ beyond noise, or it was stopped.
pub fn bisect(options: &BisectOptions, stop: &AtomicBool) -> Result<Bisected> {
    ensure!(options.repeats >= 5, "--repeats {}: fewer than 5 runs do not show a difference", options.repeats);
    let all = revisions(options)?;
    let tree = Tree::add(options, &all[0])?;
    let mut tried: Vec<Tried> = Vec::new();
    let mut skipped = Vec::new();
    let measure = |revision: &str| -> Result<Vec<f64>> {
        let values = tree.measure(revision, stop)?;
        let middle = median(&values).unwrap_or(f64::NAN);
        (options.note)(&format!("{revision}: {} {middle}", options.metric));
        Ok(values)
    };
    let good = measure(&all[0]).with_context(|| format!("the good revision {} cannot be measured", all[0]))?;
    let last = all.len() - 1;
    let bad = measure(&all[last]).with_context(|| format!("the bad revision {} cannot be measured", all[last]))?;
    let change = compare(&good, &bad, &ChangeOptions::default());
    let is_told_apart = matches!(change.kind, ChangeKind::Higher | ChangeKind::Lower);
    ensure!(is_told_apart, "{} and {} do not differ beyond noise: {}", options.good, options.bad, change.words());
    let (good_median, bad_median) = (median(&good).unwrap_or(0.0), median(&bad).unwrap_or(0.0));
    tried.push(Tried { revision: all[0].clone(), values: good, is_bad: false });
    tried.push(Tried { revision: all[last].clone(), values: bad, is_bad: true });
    let mut open: Vec<usize> = (0..all.len()).collect();
    while open.len() > 2 {
        ensure!(
            !stop.load(Ordering::Relaxed),
            "interrupted between {} and {}",
            all[open[0]],
            all[open[open.len() - 1]]
        );
        let place = open.len() / 2;
        let revision = &all[open[place]];
        let values = match measure(revision) {
            Ok(values) => values,
            Err(error) if stop.load(Ordering::Relaxed) => {
                let (from, to) = (&all[open[0]], &all[open[open.len() - 1]]);
                return Err(error.context(format!("interrupted between {from} and {to}")));
            }
            Err(error) => {
                (options.note)(&format!("{revision}: left out: {error:#}"));
                skipped.push(revision.clone());
                open.remove(place);
                continue;
            }
        };
        let middle = median(&values).unwrap_or(0.0);
        let is_bad = (middle - bad_median).abs() < (middle - good_median).abs();
        tried.push(Tried { revision: revision.clone(), values, is_bad });
        if is_bad {
            open.truncate(place + 1);
        } else {
            open.drain(..place);
        }
    }
    let (last_good, first_bad) = (all[open[0]].clone(), all[open[1]].clone());
    let between = all[open[0] + 1..open[1]].to_vec();
    let values = |revision: &str| {
        let tried = tried.iter().find(|tried| tried.revision == revision);
        tried.map_or(&[][..], |tried| &tried.values[..])
    };
    let of = |revision: &str| median(values(revision)).unwrap_or(f64::NAN);
    let certainty = compare(values(&last_good), values(&first_bad), &ChangeOptions::default()).words();
    let subject = git(&options.repository, &["log", "-1", "--format=%s", &first_bad])?;
    let ratio = of(&first_bad) / of(&last_good);
    Ok(Bisected { last_good, first_bad, subject, ratio, between, certainty, tried, skipped })
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

fn git(folder: &Path, arguments: &[&str]) -> Result<String> {
    let output = Command::new("git").arg("-C").arg(folder).args(arguments).output().context("cannot start git")?;
    if !output.status.success() {
        bail!("git {}: {}", arguments[0], String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// A work tree that goes when it is dropped.
struct Tree<'a> {
    options: &'a BisectOptions,
    folder: tempfile::TempDir,
}

impl<'a> Tree<'a> {
    fn add(options: &'a BisectOptions, revision: &str) -> Result<Tree<'a>> {
        let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
        let path = folder.path().join("tree");
        let path = path.to_str().context("the temporary folder's name is no text")?;
        git(&options.repository, &["worktree", "add", "--detach", "--quiet", path, revision])?;
        Ok(Tree { options, folder })
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("tree")
    }

    fn measure(&self, revision: &str, stop: &AtomicBool) -> Result<Vec<f64>> {
        git(&self.path(), &["checkout", "--quiet", "--detach", "--force", revision])?;
        if !self.options.build.is_empty() {
            self.shell(&self.options.build, stop).context("it cannot be built")?;
        }
        let mut values = Vec::new();
        for _ in 0..self.options.repeats {
            let printed = self.shell(&self.options.run, stop).context("it cannot be measured")?;
            let object: Value = serde_json::from_str(&printed).context("its run printed no JSON object")?;
            let value = at(&object, &self.options.metric).and_then(Value::as_f64);
            values.push(value.with_context(|| format!("its run printed no number at {}", self.options.metric))?);
        }
        Ok(values)
    }

    /// Runs a command to its end. Its output.
    fn shell(&self, command: &str, stop: &AtomicBool) -> Result<String> {
        let output = self.folder.path().join("output");
        let errors = self.folder.path().join("errors");
        let file = |path: &Path| File::create(path).with_context(|| format!("cannot write {}", path.display()));
        let mut shell = Command::new("sh");
        shell.args(["-c", command]).current_dir(self.path()).stdin(Stdio::null());
        shell.stdout(file(&output)?).stderr(file(&errors)?);
        let mut child = subprocess::own_group(&mut shell).spawn().context("cannot start sh")?;
        let began = Instant::now();
        let is_long = |path: &PathBuf| path.metadata().is_ok_and(|file| file.len() > OUTPUT_MAX);
        let is_too_long = || is_long(&output) || is_long(&errors);
        let status = loop {
            if let Some(status) = child.try_wait().context("cannot wait for the command")? {
                break Some(status);
            }
            if stop.load(Ordering::Relaxed) || began.elapsed() > self.options.patience || is_too_long() {
                break None;
            }
            std::thread::sleep(LOOK);
        };
        // Processes that it has left behind would disturb the next revision.
        subprocess::kill(&mut child);
        ensure!(!is_too_long(), "it printed more than {} MB, and was ended", OUTPUT_MAX >> 20);
        let Some(status) = status else { bail!("it was ended after {} s", began.elapsed().as_secs()) };
        ensure!(status.success(), "{status}: {}", last_words(&errors).unwrap_or_default());
        let mut text = String::new();
        File::open(&output)?.take(OUTPUT_MAX).read_to_string(&mut text).context("its output is no text")?;
        Ok(text)
    }
}

/// The last line of a file that is not empty, fit for a terminal.
fn last_words(path: &Path) -> std::io::Result<String> {
    let mut file = File::open(path)?;
    let end = file.metadata()?.len();
    file.seek(SeekFrom::Start(end.saturating_sub(WORDS_MAX)))?;
    let mut bytes = Vec::new();
    file.take(WORDS_MAX).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let last = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
    Ok(last.chars().map(|c| if c.is_control() { ' ' } else { c }).take(WORDS_CHARS_MAX).collect())
}

impl Drop for Tree<'_> {
    fn drop(&mut self) {
        if let Some(path) = self.path().to_str() {
            let _ = git(&self.options.repository, &["worktree", "remove", "--force", path]);
        }
    }
}
