//! One run of a load: a child process with a time limit, its settings, and the figure that it prints.

use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::thread::{CpuSet, current_timer_slack, sched_getaffinity, sched_setaffinity, set_current_timer_slack};
use serde_json::Value;
use throng_machine::bounded::{Cut, Limits, Running};

/// The most bytes that a load may print, and as many again that it may complain.
const OUTPUT_MAX: u64 = 16 << 20;
/// How long a load may take to end by itself when it is told to.
const GRACE: Duration = Duration::from_secs(2);

/// A load.
pub(crate) struct Load {
    /// Program and arguments.
    pub(crate) command: Vec<String>,
    /// The path of the figure, with dots.
    pub(crate) metric: String,
    pub(crate) limit: Duration,
}

/// The setting of a child.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ForChild {
    Nothing,
    TimerSlackNs(u64),
    Cpus(Vec<u32>),
    /// A program that sets something and then becomes the load.
    Prefix(Vec<String>),
}

impl Load {
    /// Runs the load once, and returns its figure.
    pub(crate) fn run(&self, setting: &ForChild, stop: &AtomicBool) -> Result<f64> {
        let prefix = if let ForChild::Prefix(prefix) = setting { &prefix[..] } else { &[] };
        let words: Vec<&String> = prefix.iter().chain(&self.command).collect();
        let mut command = Command::new(words[0]);
        command.args(&words[1..]);
        let running = {
            let _own = Inherited::set(setting)?;
            Running::start(&mut command).with_context(|| format!("cannot start {}", words[0]))?
        };
        let limits = Limits { patience: self.limit, grace: GRACE, output_max: OUTPUT_MAX, errors_max: OUTPUT_MAX };
        let finished = running.wait(&limits, stop, |_| ());
        match (finished.cut, finished.status) {
            (Some(Cut::TooMuch), _) => {
                bail!("the load printed more than {} MB: let it print less", OUTPUT_MAX >> 20)
            }
            (Some(Cut::Stopped), _) => bail!("interrupted: no worth was measured"),
            (None, Some(status)) if status.success() => figure(&finished.output, &self.metric),
            (None, Some(status)) => {
                bail!("the load ended with {status}, so its figures do not count: {}", finished.last_words)
            }
            (Some(Cut::Late), _) | (None, None) => {
                bail!("the load took longer than {} s: shorten it, or raise --limit", self.limit.as_secs())
            }
        }
    }
}

/// The figure at a path with dots, of the JSON object that is the whole output or its last line.
fn figure(output: &str, metric: &str) -> Result<f64> {
    let last = output.trim_end().lines().last().unwrap_or_default();
    let object: Value = serde_json::from_str(output)
        .or_else(|_| serde_json::from_str(last))
        .context("the load printed no JSON object")?;
    let found = object.pointer(&format!("/{}", metric.replace('.', "/")));
    let figure = found.and_then(Value::as_f64);
    figure.with_context(|| format!("the load's JSON has no number at {metric}: name another one with --metric"))
}

/// Settings of this thread while a child is started: it inherits them.
struct Inherited {
    slack_ns: Option<u64>,
    cpus: Option<CpuSet>,
}

impl Inherited {
    fn set(setting: &ForChild) -> Result<Inherited> {
        let mut own = Inherited { slack_ns: None, cpus: None };
        match setting {
            ForChild::TimerSlackNs(ns) => {
                own.slack_ns = Some(current_timer_slack().context("cannot read the timer slack")?);
                set_current_timer_slack(std::num::NonZeroU64::new(*ns)).context("cannot set the timer slack")?;
            }
            ForChild::Cpus(cpus) => {
                own.cpus = Some(sched_getaffinity(None).context("cannot read the affinity")?);
                sched_setaffinity(None, &cpu_set(cpus)).context("cannot set the affinity")?;
            }
            ForChild::Nothing | ForChild::Prefix(_) => {}
        }
        Ok(own)
    }
}

impl Drop for Inherited {
    fn drop(&mut self) {
        // Both were this thread's own a moment ago, so the system takes them again.
        if let Some(ns) = self.slack_ns {
            let _ = set_current_timer_slack(std::num::NonZeroU64::new(ns));
        }
        if let Some(cpus) = &self.cpus {
            let _ = sched_setaffinity(None, cpus);
        }
    }
}

/// Processors beyond those that a set can hold are left out.
pub(crate) fn cpu_set(cpus: &[u32]) -> CpuSet {
    let mut set = CpuSet::new();
    cpus.iter().map(|cpu| *cpu as usize).filter(|cpu| *cpu < CpuSet::MAX_CPU).for_each(|cpu| set.set(cpu));
    set
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    const LOOK: Duration = Duration::from_millis(10);

    fn load(script: &str) -> Load {
        let command = ["sh", "-c", script].map(str::to_owned).to_vec();
        Load { command, metric: "frame_ms.p99".to_owned(), limit: Duration::from_secs(20) }
    }

    fn run(script: &str, setting: &ForChild) -> Result<f64> {
        load(script).run(setting, &AtomicBool::new(false))
    }

    #[test]
    fn a_load_tells_its_figure_in_its_whole_output_or_in_the_last_line() {
        let whole = "printf '{\\n\"frame_ms\": {\"p99\": 1.5}}\\n'";
        assert_eq!(run(whole, &ForChild::Nothing).unwrap(), 1.5);
        assert_eq!(run("echo hello; echo '{\"frame_ms\":{\"p99\":2}}'", &ForChild::Nothing).unwrap(), 2.0);
        for (script, words) in [
            ("echo hello", "no JSON object"),
            ("echo '{\"frame_ms\":{\"p99\":null}}'", "no number at frame_ms.p99"),
            ("echo '{\"frame_ms\":{\"p99\":1}}'; echo it broke >&2; exit 3", "it broke"),
        ] {
            let error = run(script, &ForChild::Nothing).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn a_child_has_the_setting_and_this_thread_has_its_own_again() {
        let before = (current_timer_slack().unwrap(), sched_getaffinity(None).unwrap());
        let slack = "echo \"{\\\"frame_ms\\\":{\\\"p99\\\":$(cat /proc/self/timerslack_ns)}}\"";
        assert_eq!(run(slack, &ForChild::TimerSlackNs(777)).unwrap(), 777.0);
        let cpus: Vec<u32> = (0..CpuSet::MAX_CPU as u32).filter(|cpu| before.1.is_set(*cpu as usize)).collect();
        let count = "echo \"{\\\"frame_ms\\\":{\\\"p99\\\":$(nproc)}}\"";
        assert_eq!(run(count, &ForChild::Cpus(cpus[..1].to_vec())).unwrap(), 1.0);
        assert_eq!((current_timer_slack().unwrap(), sched_getaffinity(None).unwrap()), before);
        let prefix = ["env", "FIGURE=5"].map(str::to_owned).to_vec();
        let script = "echo \"{\\\"frame_ms\\\":{\\\"p99\\\":$FIGURE}}\"";
        assert_eq!(run(script, &ForChild::Prefix(prefix)).unwrap(), 5.0);
    }

    #[test]
    fn neither_a_load_that_hangs_nor_its_children_outlive_the_limit() {
        let folder = tempfile::tempdir().unwrap();
        let note = folder.path().join("child");
        let script = format!("sh -c 'trap \"\" TERM; sleep 60 & echo $! > {0}; wait; wait' & wait", note.display());
        let hanging = Load { limit: Duration::from_millis(500), ..load(&script) };
        let error = hanging.run(&ForChild::Nothing, &AtomicBool::new(false)).unwrap_err().to_string();
        assert!(error.contains("longer than"), "{error}");
        let child = std::fs::read_to_string(&note).unwrap();
        let process = format!("/proc/{}/stat", child.trim());
        let is_running = || std::fs::read_to_string(&process).is_ok_and(|stat| !stat.contains(") Z "));
        let begin = Instant::now();
        while is_running() && begin.elapsed() < Duration::from_secs(5) {
            std::thread::sleep(LOOK);
        }
        assert!(!is_running(), "{process} still runs");
    }

    #[test]
    fn a_load_that_prints_without_end_is_ended_at_the_limit_of_its_files() {
        let chatty = |script: &str| Load { limit: Duration::from_secs(3), ..load(script) };
        let good = "echo '{\"frame_ms\":{\"p99\":1}}'";
        for script in ["yes", "yes >&2", "trap '' INT; yes >&2", &format!("yes | head -c 20000000 >&2; {good}")] {
            let error = chatty(script).run(&ForChild::Nothing, &AtomicBool::new(false)).unwrap_err().to_string();
            assert_eq!(error, "the load printed more than 16 MB: let it print less", "{script}");
        }
        let short = format!("yes | head -c 15000000 >&2; {good}");
        assert_eq!(run(&short, &ForChild::Nothing).unwrap(), 1.0);
    }

    #[test]
    fn a_complaint_is_short_and_steers_no_terminal() {
        let script = "printf 'at first\\n\\033[2J\\033]0;mine\\007broken\\n\\n' >&2; exit 3";
        let error = run(script, &ForChild::Nothing).unwrap_err().to_string();
        assert!(error.ends_with("do not count: [2J ]0;mine broken"), "{error}");
    }

    #[test]
    fn an_interrupted_load_ends_at_once() {
        let begin = Instant::now();
        let error = load("sleep 60").run(&ForChild::Nothing, &AtomicBool::new(true)).unwrap_err().to_string();
        assert!(error.contains("interrupted") && begin.elapsed() < Duration::from_secs(10), "{error}");
    }
}
