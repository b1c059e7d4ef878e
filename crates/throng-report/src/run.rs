//! The head of a run, which is the same for every kind of run, and the file that begins with it.
//!
//! ```text
//!  runs/20260131-120000-crowd/summary.json
//!    format, kind, workload                        which figures these are
//!    valid, invalid_reasons, missing, partial      whether they count
//!    started_at, seconds, others_cpu_cores         when, how long, and beside whom
//!    revision, environment                         the program and the machine
//!    ...                                           the figures of the kind
//! ```

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use thiserror::Error;
use throng_file::write_whole;
use throng_machine::{Moment, Throttled, UNKNOWN};

use crate::json::to_json;
use crate::metric::Kind;
use crate::page::{Cell, Page, Table, Validity};
use crate::words::{bytes, printable};

/// The file with the figures of a run, in its folder.
pub const SUMMARY_FILE: &str = "summary.json";
/// The largest that is read.
pub const SUMMARY_BYTES_MAX: u64 = 64 << 20;
/// If other programs use more cores than this, they may be the cause of bad results.
const OTHERS_CORES_MAX: f64 = 0.25;
/// The system may stop processes for so large a share of the time: the frames that this makes late are far below a limit of 1 %.
const THROTTLED_SHARE_MAX: f64 = 0.001;
/// The layout of crowds before they had a head.
const CROWD_WITHOUT_HEAD: u64 = 3;

/// The head that every kind of run has, at the top level of its figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunHead {
    /// Number of the layout of this kind of figures.
    pub format: u32,
    /// The kind of run.
    pub kind: Kind,
    /// The load, its size, and the settings that change what is measured: only runs with the same words can be compared.
    pub workload: String,
    /// Whether the figures are valid.
    pub valid: bool,
    /// Why not.
    pub invalid_reasons: Vec<String>,
    /// The parts of the run that left no report, and the files that are not whole.
    pub missing: Vec<String>,
    /// Whether it ended early.
    pub partial: bool,
    /// When it began, in UTC: `2026-01-31T12:00:00Z`.
    pub started_at: String,
    /// Length of the measured part.
    pub seconds: f64,
    /// Cores that other programs of the machine took during the measured part; `null` if it is not known.
    pub others_cpu_cores: Option<f64>,
    /// Revision of the program, as git names it, `-dirty` if the tree was changed; or `unknown`.
    pub revision: String,
    /// The machine and the program.
    pub environment: Environment,
}

/// The machine, the program, and how it was called; without them a figure has no meaning. Facts that the system does not tell
/// are `unknown`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Environment {
    /// Model of the processor.
    pub cpu: String,
    /// Cores that this process may use.
    pub cores: u32,
    /// Whether the processor says that it is a hypervisor's.
    pub virtual_machine: bool,
    /// Memory of the machine; 0 if unknown.
    pub memory_bytes: u64,
    /// Name and release of the kernel.
    pub kernel: String,
    /// Frequency governor of the first core.
    pub governor: String,
    /// Clock source of the kernel.
    pub clocksource: String,
    /// `release` or `debug`.
    pub profile: String,
    /// Architecture and operating system.
    pub target: String,
    /// Version of the program.
    pub version: String,
    /// The program's arguments, without the program itself.
    pub command_line: Vec<String>,
}

impl Environment {
    /// Asks the system.
    pub fn capture() -> Environment {
        Environment {
            cpu: throng_machine::processor(),
            cores: throng_machine::cores(),
            virtual_machine: throng_machine::is_virtual_machine(),
            memory_bytes: throng_machine::memory_bytes(),
            kernel: throng_machine::kernel(),
            governor: throng_machine::governor(),
            clocksource: throng_machine::clocksource(),
            profile: throng_machine::profile(),
            target: throng_machine::target(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            command_line: throng_machine::arguments(),
        }
    }

    /// Whether figures of both are of the same machine and version.
    pub fn is_same_machine(&self, other: &Environment) -> bool {
        let of = |of: &Environment| (of.cpu.clone(), of.cores, of.memory_bytes, of.kernel.clone(), of.version.clone());
        of(self) == of(other)
    }
}

impl Default for Environment {
    /// An invented machine, for tests and examples.
    fn default() -> Environment {
        Environment {
            cpu: "Example CPU @ 3.0 GHz".to_owned(),
            cores: 2,
            virtual_machine: true,
            memory_bytes: 8 << 30,
            kernel: "Linux 6.12.0".to_owned(),
            governor: "performance".to_owned(),
            clocksource: "tsc".to_owned(),
            profile: "release".to_owned(),
            target: "x86_64-linux".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            command_line: Vec::new(),
        }
    }
}

impl Default for RunHead {
    /// The head of an invented crowd, for tests and examples.
    fn default() -> RunHead {
        RunHead {
            format: Kind::Crowd.format(),
            kind: Kind::Crowd,
            workload: "an example".to_owned(),
            valid: false,
            invalid_reasons: Vec::new(),
            missing: Vec::new(),
            partial: false,
            started_at: "2026-01-31T12:00:00Z".to_owned(),
            seconds: 20.0,
            others_cpu_cores: None,
            revision: "0123456789ab".to_owned(),
            environment: Environment::default(),
        }
    }
}

impl RunHead {
    /// The head of a run of this program on this machine. It is not valid before [`conclude`](RunHead::conclude).
    pub fn new(kind: Kind, workload: &str, began: SystemTime) -> RunHead {
        RunHead {
            workload: workload.to_owned(),
            started_at: Moment::of(began).long(),
            seconds: 0.0,
            revision: throng_machine::revision(),
            environment: Environment::capture(),
            ..RunHead::example(kind)
        }
    }

    /// The head of an invented run, for tests and examples.
    pub fn example(kind: Kind) -> RunHead {
        RunHead { format: kind.format(), kind, ..RunHead::default() }
    }

    /// Makes the run invalid for each of these reasons, and for those that hold for every kind: a debug build, and other
    /// programs. Without any, it is valid. May be called again, with further reasons.
    pub fn conclude(&mut self, reasons: impl IntoIterator<Item = String>) {
        let profile = &self.environment.profile;
        let debug = (profile != "release").then(|| format!("this is a {profile} build: use cargo run --release"));
        let others = self.others_cpu_cores.filter(|cores| *cores > OTHERS_CORES_MAX);
        let others = others
            .map(|cores| format!("other programs used {cores:.2} cores of this machine: stop them and run again"));
        for reason in reasons.into_iter().chain(others).chain(debug) {
            if !self.invalid_reasons.contains(&reason) {
                self.invalid_reasons.push(reason);
            }
        }
        self.valid = self.invalid_reasons.is_empty();
    }

    /// These figures, a JSON object, below the head.
    pub fn with(&self, figures: Value) -> Value {
        let mut json = json!(self);
        if let (Value::Object(all), Value::Object(figures)) = (&mut json, figures) {
            all.extend(figures);
        }
        json
    }

    /// A page of the run with what its head says; `checked` are the checks of a valid run, in a sentence.
    pub fn page(&self, title: &str, checked: &str) -> Page {
        let environment = &self.environment;
        let mut page = Page::new(self.kind, title);
        page.facts = vec![
            self.started_at.clone(),
            format!("revision {}", self.revision),
            format!("{}, {} cores", environment.cpu, environment.cores),
            environment.kernel.clone(),
            format!("{} build", environment.profile),
        ];
        page.validity =
            Some(Validity { is_valid: self.valid, words: checked.to_owned(), reasons: self.invalid_reasons.clone() });
        page.source = format!("{SUMMARY_FILE} in the same folder has these figures and more.");
        page
    }

    /// The machine and the program, for a page.
    pub fn machine(&self) -> Table {
        let environment = &self.environment;
        let machine = if environment.virtual_machine { ", in a virtual machine" } else { "" };
        let mut table = Table::new("Machine and program", "");
        for (name, value) in [
            ("processor", environment.cpu.clone()),
            ("cores", format!("{}{machine}", environment.cores)),
            ("memory", bytes(environment.memory_bytes as f64)),
            ("kernel", environment.kernel.clone()),
            ("governor", environment.governor.clone()),
            ("clock source", environment.clocksource.clone()),
            ("program", format!("throng {}, {}, {}", environment.version, environment.profile, environment.target)),
            ("revision", self.revision.clone()),
            ("arguments", environment.command_line.join(" ")),
        ] {
            table.push([Cell::from(name), Cell::from(value)]);
        }
        table
    }
}

/// Why figures of so long a time are not valid, if the system has stopped the processes so often meanwhile.
pub fn throttled(of: Throttled, length: Duration) -> Option<String> {
    (of.time > length.mul_f64(THROTTLED_SHARE_MAX)).then(|| {
        let (times, seconds) = (of.periods, of.time.as_secs_f64());
        format!(
            "the system throttled the processes {times} times, {seconds:.2} s in all: raise the processor limit of their control group"
        )
    })
}

/// The file of a run, as it was read.
#[derive(Clone, Debug)]
pub struct RunFile {
    /// Where it is.
    pub path: PathBuf,
    /// Its head.
    pub head: RunHead,
    /// All of it.
    pub json: Value,
}

/// Why the file of a run cannot be read or written. Each text is one line that says what to do.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RunFileError {
    /// It cannot be read.
    #[error("cannot read {}: {source}; give the folder of a run, such as runs/20260131-120000-crowd", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A folder has none.
    #[error("{} has no {SUMMARY_FILE}: give the folder of a run, such as runs/20260131-120000-crowd; a run that is still played, or was killed, has none", folder.display())]
    Absent {
        /// The folder.
        folder: PathBuf,
    },
    /// It cannot be written.
    #[error("cannot write {}: {source}; check the free space and the permissions, or choose another directory", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// It is not a run's, or damaged.
    #[error("{} has no figures of a run: {reason}; measure again", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The error, fit for a terminal: it quotes the file.
        reason: String,
    },
    /// It is of another kind, or of another version of the program.
    #[error("{} has format {found} of a {} run, this program reads format {expected}: use the program that wrote it", path.display(), kind.name())]
    Format {
        /// The file.
        path: PathBuf,
        /// The kind.
        kind: Kind,
        /// The format found.
        found: u32,
        /// The format that this program writes.
        expected: u32,
    },
}

impl RunFileError {
    /// A stable short name.
    pub fn tag(&self) -> &'static str {
        match self {
            RunFileError::Read { .. } => "read",
            RunFileError::Absent { .. } => "absent",
            RunFileError::Write { .. } => "write",
            RunFileError::Malformed { .. } => "malformed",
            RunFileError::Format { .. } => "format",
        }
    }
}

impl RunFile {
    /// The file in a folder; `None` if there is none.
    ///
    /// # Errors
    /// It cannot be read, or is none of a run.
    pub fn find(folder: &Path) -> Result<Option<RunFile>, RunFileError> {
        folder.join(SUMMARY_FILE).is_file().then(|| RunFile::open(folder)).transpose()
    }

    /// The file in a folder.
    ///
    /// # Errors
    /// There is none, it cannot be read, or is none of a run.
    pub fn open(folder: &Path) -> Result<RunFile, RunFileError> {
        let path = folder.join(SUMMARY_FILE);
        let text = || match fs::metadata(&path)?.len() {
            0..=SUMMARY_BYTES_MAX => fs::read_to_string(&path),
            _ => Err(io::Error::new(io::ErrorKind::FileTooLarge, "longer than 64 MiB")),
        };
        match text() {
            Ok(text) => RunFile::parse(&text, &path),
            Err(source) if source.kind() == io::ErrorKind::NotFound && folder.is_dir() => {
                Err(RunFileError::Absent { folder: folder.to_owned() })
            }
            Err(source) => Err(RunFileError::Read { path, source }),
        }
    }

    /// The text of such a file; `path` names it in errors.
    ///
    /// # Errors
    /// It is none of a run.
    pub fn parse(text: &str, path: &Path) -> Result<RunFile, RunFileError> {
        let malformed = |error| malformed(path, &error);
        let json = with_head(serde_json::from_str(text).map_err(malformed)?);
        let head = RunHead::deserialize(&json).map_err(malformed)?;
        Ok(RunFile { path: path.to_owned(), head, json })
    }

    /// The figures of a kind in a folder.
    ///
    /// # Errors
    /// There is no file, or it is none of this kind and of the format that this program writes.
    pub fn figures<T: DeserializeOwned>(folder: &Path, kind: Kind) -> Result<T, RunFileError> {
        RunFile::open(folder)?.into_figures(kind)
    }

    /// Its figures, if it is of this kind.
    ///
    /// # Errors
    /// It is of another kind or format, or damaged.
    pub fn into_figures<T: DeserializeOwned>(self, kind: Kind) -> Result<T, RunFileError> {
        let RunFile { path, head, json } = self;
        if (head.kind, head.format) != (kind, kind.format()) {
            let expected = kind.format();
            return Err(RunFileError::Format { path, kind: head.kind, found: head.format, expected });
        }
        serde_json::from_value(json).map_err(|error| malformed(&path, &error))
    }

    /// Writes the figures of a run into its folder. The path of the file.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(folder: &Path, figures: &impl Serialize) -> Result<PathBuf, RunFileError> {
        let path = folder.join(SUMMARY_FILE);
        match write_whole(&path, to_json(figures)) {
            Ok(()) => Ok(path),
            Err(source) => Err(RunFileError::Write { path, source }),
        }
    }
}

/// So many characters of an error that quotes a file are shown.
const REASON_MAX: usize = 300;

fn malformed(path: &Path, error: &serde_json::Error) -> RunFileError {
    let reason = printable(&error.to_string()).chars().take(REASON_MAX).collect();
    RunFileError::Malformed { path: path.to_owned(), reason }
}

/// Crowds of format 3, as docs/benchmarks/runs has them, get a head: they were the same figures without kind and workload, and
/// their settings were in the environment. This is the only place that knows them.
fn with_head(mut json: Value) -> Value {
    if json["format"] != CROWD_WITHOUT_HEAD || json["scenario"].is_null() {
        return json;
    }
    let workload = format!("{} {}", json["scenario"].as_str().unwrap_or(UNKNOWN), json["players"]);
    let settings = json.get_mut("environment").and_then(|of| of.get_mut("settings")).map(Value::take);
    json["settings"] = settings.unwrap_or_default();
    for (key, value) in [
        ("format", json!(Kind::Crowd.format())),
        ("kind", json!(Kind::Crowd)),
        ("workload", json!(workload)),
        ("missing", json!([])),
        ("partial", json!(false)),
    ] {
        json[key] = value;
    }
    json
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A head without fault.
    fn sound() -> RunHead {
        RunHead::example(Kind::Crowd)
    }

    #[test]
    fn every_kind_of_run_is_spoilt_by_a_debug_build_and_by_other_programs() {
        let of = |change: fn(&mut RunHead), own: Option<&str>| {
            let mut head = sound();
            change(&mut head);
            head.conclude(own.map(str::to_owned));
            head.conclude(None);
            assert_eq!(head.valid, head.invalid_reasons.is_empty());
            head.invalid_reasons
        };
        assert!(of(|_| (), None).is_empty() && of(|head| head.others_cpu_cores = Some(0.2), None).is_empty());
        let spoilt = |head: &mut RunHead| {
            head.others_cpu_cores = Some(0.3);
            head.environment.profile = "debug".to_owned();
        };
        let reasons = of(spoilt, Some("the bots were late"));
        assert_eq!(reasons.len(), 3, "each once: {reasons:?}");
        assert!(reasons[1].contains("used 0.30 cores") && reasons[2].contains("--release"), "{reasons:?}");
        let time = |millis| Throttled { periods: 1, time: Duration::from_millis(millis) };
        let [little, much] = [time(10), time(11)].map(|of| throttled(of, Duration::from_secs(10)));
        assert!(little.is_none() && much.is_some_and(|words| words.contains("1 times, 0.01 s")));
    }

    #[test]
    fn a_file_comes_back_as_it_was_and_what_is_none_is_refused_in_one_line() {
        let folder = tempfile::tempdir().unwrap();
        assert!(RunFile::find(folder.path()).unwrap().is_none());
        let refused = |kind| {
            let error = RunFile::figures::<RunHead>(folder.path(), kind).unwrap_err();
            assert!(!error.to_string().contains('\n'));
            error.tag()
        };
        assert_eq!(refused(Kind::Crowd), "absent");
        let path = RunFile::write(folder.path(), &sound()).unwrap();
        assert_eq!(RunFile::figures::<RunHead>(folder.path(), Kind::Crowd).unwrap(), sound());
        assert_eq!(refused(Kind::Match), "format");
        RunFile::write(folder.path(), &RunHead { format: 99, ..sound() }).unwrap();
        assert_eq!(refused(Kind::Crowd), "format");
        for text in ["{", "{}", "[1]", "3"] {
            fs::write(&path, text).unwrap();
            assert_eq!(refused(Kind::Crowd), "malformed", "{text}");
        }
        // A terminal obeys nothing of a foreign file, and is not filled by it.
        let kind = format!(r#"{{"kind": "\u001b[31mX\u0007\nall fine{}"}}"#, "x".repeat(100_000));
        fs::write(&path, kind).unwrap();
        let words = RunFile::open(folder.path()).unwrap_err().to_string();
        assert!(words.contains("all fine") && words.len() < 600 && !words.contains(char::is_control), "{words}");
        fs::File::create(&path).unwrap().set_len(SUMMARY_BYTES_MAX + 1).unwrap();
        assert_eq!(refused(Kind::Crowd), "read");
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert_eq!(RunFile::write(folder.path(), &sound()).unwrap_err().tag(), "write");
        let left: Vec<_> = fs::read_dir(folder.path()).unwrap().flatten().map(|entry| entry.file_name()).collect();
        assert_eq!(left, [SUMMARY_FILE], "a part of a file stays");
    }

    #[test]
    fn the_newest_run_comes_last_and_folders_without_figures_are_none() {
        let runs = tempfile::tempdir().unwrap();
        let noon = SystemTime::UNIX_EPOCH + Duration::from_secs(1_769_860_800);
        let made = ["crowd", "crowd", "none"].map(|name| crate::new_folder(runs.path(), noon, name).unwrap());
        made[..2].iter().for_each(|folder| drop(RunFile::write(folder, &sound()).unwrap()));
        assert!(made[1].ends_with("20260131-120000-crowd-2"), "{made:?}");
        let found = crate::run_folders(runs.path()).unwrap();
        assert_eq!((&found.folders[..], found.left_out), (&made[..2], 0));
        let file = made[0].join(SUMMARY_FILE);
        let error = crate::new_folder(&file, noon, "crowd").unwrap_err();
        assert!(error.to_string().contains("choose another directory"), "{error}");
    }
}
