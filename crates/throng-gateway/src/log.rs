//! The log: lines with a level, to standard error and to a file, and counters for each level.
//!
//! ```text
//!   tracing's events --> as loud as -loglevel --> counted, for the metric logs{level}
//!                                            |--> standard error
//!                                            '--> the file of -logfile
//!
//!   2026-11-21T17:08:13.123456Z  WARN security: refused side=CLIENT address=203.0.113.7:4711 connection=7 reason=banned
//!
//!   {"timestamp":"2026-11-21T17:08:13.123456Z","level":"WARN","message":"refused","side":"CLIENT",
//!    "address":"203.0.113.7:4711","connection":7,"reason":"banned","target":"security"}        with -logformat json
//! ```
//! Lines of the target `security` say which peer was refused and why. Peers can cause many refusals, so the rate of
//! such lines is limited, and a line says how many were left out.
//!
//! The subscriber of `tracing` is one for the whole process, and so are these counts.

use std::fs::{File, OpenOptions};
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use thiserror::Error;
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{fmt, registry};

use crate::calendar;
use crate::settings::{LogFormat, LogLevel, Settings};

/// A log that cannot be written. The operator is at fault, or we are, who wanted two.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LogError {
    /// The file cannot be made or appended to.
    #[error("-logfile: cannot write {file}: {cause}")]
    File {
        /// Its name, with the time in it.
        file: String,
        /// Why not.
        cause: io::Error,
    },
    /// The process has a subscriber already. Our misuse.
    #[error("the log is open already")]
    Taken,
}

impl LogError {
    /// A stable name for logs.
    pub fn tag(&self) -> &'static str {
        match self {
            LogError::File { .. } => "log_file",
            LogError::Taken => "log_taken",
        }
    }
}

/// Levels as `logs{level}` names them, and the lines of each since the process began.
const LEVELS: [(&str, Level); 5] = [
    ("trace", Level::TRACE),
    ("debug", Level::DEBUG),
    ("info", Level::INFO),
    ("warn", Level::WARN),
    ("error", Level::ERROR),
];
static LINES: [AtomicU64; LEVELS.len()] = [const { AtomicU64::new(0) }; LEVELS.len()];

/// Begins to write what [`tracing`]'s macros say, as settings have it: `-loglevel`, `-logfile`. Once for a process.
///
/// # Errors
/// The file cannot be written, or another process was faster.
pub fn open(settings: &Settings) -> Result<(), LogError> {
    let file = settings.log_file.as_deref().map(append_to).transpose()?;
    registry()
        .with(filter(settings.log_level))
        .with(Count)
        .with(lines_to(io::stderr, settings.log_format))
        .with(file.map(|file| lines_to(Mutex::new(file), settings.log_format)))
        .try_init()
        .map_err(|_| LogError::Taken)
}

/// A failed write of a log line is ignored: standard error may be gone.
fn lines_to<S, W>(writer: W, format: LogFormat) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
    W: for<'writer> MakeWriter<'writer> + Send + Sync + 'static,
{
    let lines = fmt::layer().with_ansi(false).log_internal_errors(false).with_writer(writer);
    match format {
        LogFormat::Text => Box::new(lines),
        LogFormat::Json => Box::new(lines.json().flatten_event(true).with_current_span(false).with_span_list(false)),
    }
}

/// The lines written so far, by level.
pub(crate) fn lines() -> impl Iterator<Item = (&'static str, u64)> {
    LEVELS.iter().zip(&LINES).map(|(&(name, _), lines)| (name, lines.load(Ordering::Relaxed)))
}

/// `{time}` in the name becomes the time of start, as channeld has it.
fn append_to(name: &str) -> Result<File, LogError> {
    let file = name.replace("{time}", &calendar::stamp(calendar::unix_s()));
    let opened = OpenOptions::new().create(true).append(true).open(&file);
    opened.map_err(|cause| LogError::File { file, cause })
}

/// channeld's levels are zap's and two more below; what is fatal is said by the command as its last line.
fn filter(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::VeryVerbose | LogLevel::Verbose => LevelFilter::TRACE,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Fatal => LevelFilter::OFF,
    }
}

/// Counts lines.
struct Count;

impl<S: Subscriber> Layer<S> for Count {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let level = event.metadata().level();
        if let Some(index) = LEVELS.iter().position(|(_, known)| known == level) {
            LINES[index].fetch_add(1, Ordering::Relaxed);
        }
    }
}
