//! Load files: what is under load, and its limits.

use std::io::Read;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use throng_file::{friendly, line_of};
use throng_judge::{Block, Criterion, Judged, Samples};

use super::pick;

/// The load files of this program.
const BUILT_IN: [(&str, &str); 4] = [
    ("ai", include_str!("../../../scenarios/loads/ai.toml")),
    ("match", include_str!("../../../scenarios/loads/match.toml")),
    ("crowd", include_str!("../../../scenarios/loads/crowd.toml")),
    ("gateway", include_str!("../../../scenarios/loads/gateway.toml")),
];
/// Where a command takes the cores to run on.
const CORES: &str = "{cores}";
/// A load file is at most so long.
const MAX_BYTES: u64 = 1 << 20;
/// A load has at most so many limits.
const MAX_LIMITS: usize = 16;

/// A server under load, and its limits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// Its name: that of the file.
    #[serde(skip)]
    pub name: String,
    /// Its description in a line.
    pub about: String,
    /// The unit of the load, in the plural: `matches`.
    pub unit: String,
    /// The program and its arguments. `{amount}` is the load, `{seconds}` the time to hold it, `{thirtieth}` a thirtieth of
    /// that, `{folder}` a folder that is deleted afterwards, `{throng}` this program. `{cores}` is for [`Load::pin`].
    pub command: Vec<String>,
    /// Arguments of a measurement that make another question of the file's: those of [`Load::add_arguments`], and `--cores` if the
    /// caller has chosen the cores of [`Load::pin`].
    #[serde(skip)]
    pub added: Vec<String>,
    /// The first load.
    pub start: u32,
    /// The largest load.
    pub most: u32,
    /// The command takes at most so long beside the hold itself, in seconds; then it is killed and its trial is invalid.
    #[serde(default = "around_default")]
    pub around_seconds: u32,
    /// The command may end before the hold is over, as one that simulates time. Without it, such a trial is invalid.
    #[serde(default)]
    pub simulated: bool,
    /// Reasons that are no faults here, as those in the command's `invalid_reasons`, or `throttled`: parts of their text.
    #[serde(default)]
    pub no_faults: Vec<String>,
    /// Path of the number of cores that were under load, or of a list of them. Without it: one.
    pub cores: Option<String>,
    /// Path of the memory of one unit, in bytes.
    pub memory_bytes: Option<String>,
    /// The limits, at least one.
    pub limits: Vec<Limit>,
}

/// A limit, and where its samples are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Limit {
    /// A short name, as `cpu`.
    pub name: String,
    /// Its description in a line.
    pub about: String,
    /// The largest value that is allowed. Of events, the share of them that may be over.
    pub at_most: f64,
    /// Unit of a level, as `ms`. Without it values are shares, and are shown in per cent.
    pub unit: Option<String>,
    /// Path of a list of levels, read at equal intervals.
    pub level: Option<String>,
    /// Path of a list: the events over the limit in each stretch of time. Needs `of`.
    pub over: Option<String>,
    /// Path of a list: all events in each stretch of time.
    pub of: Option<String>,
    /// Path of a list with a value for each event. Needs `above`.
    pub values: Option<String>,
    /// Events with a value above this are over the limit.
    pub above: Option<f64>,
    /// So many events in a row are a stretch of time.
    pub block: Option<u32>,
}

fn around_default() -> u32 {
    120
}

/// Why a load cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// There is none of that name.
    #[error("there is no load {name:?}: use one of {}, or the path of a load file (docs/capacity.md)", names().join(", "))]
    Unknown {
        /// The name.
        name: String,
    },
    /// Its file cannot be read.
    #[error("cannot read load file {}: {source}; check the path and its permissions", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// Its file makes no sense.
    #[error("load file {name}: {reason}")]
    Invalid {
        /// The file.
        name: String,
        /// The reason.
        reason: String,
    },
}

impl LoadError {
    /// A stable short name.
    pub fn tag(&self) -> &'static str {
        match self {
            LoadError::Unknown { .. } => "unknown",
            LoadError::Read { .. } => "read",
            LoadError::Invalid { .. } => "invalid",
        }
    }
}

/// The names of the built-in loads.
pub fn names() -> Vec<&'static str> {
    BUILT_IN.iter().map(|(name, _)| *name).collect()
}

impl Load {
    /// Adds arguments to the command. They are part of the question: measurements with others are no series.
    pub fn add_arguments(&mut self, arguments: &[String]) {
        self.command.extend_from_slice(arguments);
        self.added.extend_from_slice(arguments);
    }

    /// Whether its command takes the cores to run on.
    pub fn takes_cores(&self) -> bool {
        self.command.iter().any(|part| part.contains(CORES))
    }

    /// Fills `{cores}` of the command with a list of cores, as `0,2-3`.
    ///
    /// # Errors
    /// The command has no `{cores}`.
    pub fn pin(&mut self, cores: &str) -> Result<(), LoadError> {
        if !self.takes_cores() {
            let reason = "its command has no {cores}, so it cannot be put on some: without --cores, start this program on them, as with taskset";
            return Err(LoadError::Invalid { name: self.name.clone(), reason: reason.to_owned() });
        }
        self.command.iter_mut().for_each(|part| *part = part.replace(CORES, cores));
        Ok(())
    }

    /// A built-in load by its name, or one of a file.
    ///
    /// # Errors
    /// There is none, or it makes no sense: the error names what to change.
    pub fn resolve(name: &str) -> Result<Load, LoadError> {
        if let Some((_, text)) = BUILT_IN.iter().find(|(other, _)| *other == name) {
            return Load::parse(name, text);
        }
        let path = Path::new(name);
        if path.extension().is_none() && !path.exists() {
            return Err(LoadError::Unknown { name: name.to_owned() });
        }
        let error = |source| LoadError::Read { path: path.to_owned(), source };
        let mut text = String::new();
        let file = std::fs::File::open(path).map_err(error)?;
        // Devices and pipes say that they have no length.
        file.take(MAX_BYTES + 1).read_to_string(&mut text).map_err(error)?;
        if text.len() as u64 > MAX_BYTES {
            return Err(error(std::io::ErrorKind::FileTooLarge.into()));
        }
        Load::parse(name, &text)
    }

    /// The load in a file's text.
    ///
    /// # Errors
    /// The text is no TOML, or its settings make no sense.
    pub fn parse(name: &str, text: &str) -> Result<Load, LoadError> {
        let invalid = |reason: String| LoadError::Invalid { name: name.to_owned(), reason };
        let malformed = |error: toml::de::Error| {
            let line = line_of(text, error.span().unwrap_or_default().start);
            invalid(format!("line {line}: {}", friendly(error.message())))
        };
        let load: Load = toml::from_str(text).map_err(malformed)?;
        load.check().map_err(invalid)?;
        let stem = Path::new(name).file_stem().map(|stem| stem.to_string_lossy().into_owned());
        Ok(Load { name: stem.unwrap_or_else(|| name.to_owned()), ..load })
    }

    /// Judges one run of the command by the JSON that it printed.
    ///
    /// # Errors
    /// Samples of a limit are missing: the error names their path.
    pub fn judge(&self, printed: &Value) -> Result<Vec<Judged>, String> {
        self.limits.iter().map(|limit| limit.judge(printed)).collect()
    }

    /// As [`Load::judge`], of the limits alone whose samples are there.
    pub(super) fn judge_those_there(&self, printed: &Value) -> Vec<Judged> {
        self.limits.iter().filter_map(|limit| limit.judge(printed).ok()).collect()
    }

    /// Cores that were under load, by the JSON that one run of the command printed. Without a path: one.
    pub fn cores(&self, printed: &Value) -> Option<f64> {
        self.cores.as_deref().map_or(Some(1.0), |path| pick::number(printed, path))
    }

    /// Physical cores that these are threads of. Of a number of cores that is known only where it makes no difference.
    pub(super) fn physical_cores(&self, printed: &Value) -> Option<f64> {
        let list = self.cores.as_deref().and_then(|path| pick::list(printed, path));
        if let Some(list) = list {
            let cores: Option<Vec<usize>> = list.iter().map(|core| core.as_u64().map(|core| core as usize)).collect();
            return throng_machine::physical_cores(&cores?).map(|cores| cores as f64);
        }
        self.cores(printed).filter(|cores| *cores == 1.0 || throng_machine::threads_per_core() == Some(1.0))
    }

    /// Memory of one unit, in bytes, by the JSON that one run of the command printed; `None` without a path or a number there.
    pub fn memory_bytes(&self, printed: &Value) -> Option<f64> {
        self.memory_bytes.as_deref().and_then(|path| pick::number(printed, path))
    }

    /// Sets a limit to another value.
    ///
    /// # Errors
    /// There is no limit of that name, or the value is no limit.
    pub fn set_limit(&mut self, name: &str, at_most: f64) -> Result<(), LoadError> {
        let invalid = |reason: String| LoadError::Invalid { name: self.name.clone(), reason };
        let known: Vec<&str> = self.limits.iter().map(|limit| limit.name.as_str()).collect();
        let no_limit = format!("it has no limit {name:?}, only {}", known.join(", "));
        if !(at_most.is_finite() && at_most > 0.0) {
            return Err(invalid(format!("limit {name}: {at_most} must be a number above 0")));
        }
        let Some(index) = self.limits.iter().position(|limit| limit.name == name) else {
            return Err(invalid(no_limit));
        };
        let before = std::mem::replace(&mut self.limits[index].at_most, at_most);
        self.limits[index].check().map_err(|reason| {
            self.limits[index].at_most = before;
            LoadError::Invalid { name: self.name.clone(), reason }
        })
    }

    fn check(&self) -> Result<(), String> {
        if self.command.is_empty() {
            return Err("command: it needs at least a program".to_owned());
        }
        if !self.command.iter().any(|part| part.contains("{amount}")) {
            return Err("command: {amount} is missing, so each trial would hold the same load".to_owned());
        }
        if self.start == 0 || self.start > self.most {
            return Err(format!("start {} and most {}: they need 1 <= start <= most", self.start, self.most));
        }
        if self.limits.is_empty() || self.limits.len() > MAX_LIMITS {
            return Err(format!("limits: it needs 1 to {MAX_LIMITS}"));
        }
        let twice = self
            .limits
            .iter()
            .enumerate()
            .find(|(at, limit)| self.limits[..*at].iter().any(|other| other.name == limit.name));
        if let Some((_, limit)) = twice {
            return Err(format!("limits: there are two with the name {}", limit.name));
        }
        self.limits.iter().try_for_each(Limit::check)
    }
}

impl Limit {
    fn check(&self) -> Result<(), String> {
        let Limit { name, at_most, level, over, of, values, above, .. } = self;
        if !(at_most.is_finite() && *at_most > 0.0) {
            return Err(format!("limit {name}: at_most {at_most} must be a number above 0"));
        }
        let there = [level.is_some(), over.is_some(), of.is_some(), values.is_some(), above.is_some()];
        let kinds =
            [[true, false, false, false, false], [false, true, true, false, false], [false, false, false, true, true]];
        if !kinds.contains(&there) {
            return Err(format!("limit {name}: it needs either level, or over and of, or values and above"));
        }
        if above.is_some_and(|above| !above.is_finite()) {
            return Err(format!("limit {name}: above must be a finite number"));
        }
        if level.is_none() && *at_most > 1.0 {
            return Err(format!("limit {name}: a share of events is at most 1, not {at_most}"));
        }
        Ok(())
    }

    /// Judges what a command printed. The error says which samples are missing.
    fn judge(&self, printed: &Value) -> Result<Judged, String> {
        let samples = self.samples(printed).map_err(|reason| format!("limit {}: {reason}", self.name))?;
        let (is_empty, path) = match &samples {
            Samples::Level(levels) => (levels.is_empty(), &self.level),
            Samples::Share(blocks) => (blocks.is_empty(), if self.over.is_some() { &self.over } else { &self.values }),
        };
        if is_empty {
            let path = path.as_deref().unwrap_or_default();
            return Err(format!("limit {}: the command printed no numbers at {path}", self.name));
        }
        Ok(Criterion::new(&self.name, self.at_most).judge(samples))
    }

    fn samples(&self, printed: &Value) -> Result<Samples, String> {
        if let Some(path) = &self.level {
            return Ok(Samples::Level(pick::numbers(printed, path)));
        }
        if let (Some(over), Some(of)) = (&self.over, &self.of) {
            let (events, all) = (pick::counts(printed, over)?, pick::counts(printed, of)?);
            if events.len() != all.len() {
                return Err(format!("{over} has {} counts, and {of} has {}", events.len(), all.len()));
            }
            if let Some((over, of)) = events.iter().zip(&all).find(|(over, of)| over > of) {
                return Err(format!("{over} events of {of} are over the limit"));
            }
            let blocks = events.into_iter().zip(all).map(|(over, of)| Block { over, of });
            return Ok(Samples::Share(blocks.collect()));
        }
        let values = self.values.as_deref().map(|path| pick::numbers(printed, path)).unwrap_or_default();
        let above = self.above.unwrap_or(f64::INFINITY);
        let block = |values: &[f64]| Block {
            over: values.iter().filter(|value| **value > above).count() as u64,
            of: values.len() as u64,
        };
        Ok(Samples::Share(values.chunks(self.block.unwrap_or(1).max(1) as usize).map(block).collect()))
    }
}
