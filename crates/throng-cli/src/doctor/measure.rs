//! `throng doctor --measure`: a load without and with a setting, in turns.

use std::process::{Command, ExitCode};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use throng_doctor::{Check, Host, PerProcess, Setting, Topology, Trial, allowed_cpus, compare, undo};

use super::load::{ForChild, Load};
use super::{DoctorArguments, failure};
use crate::exit::{Failure, Outcome};

/// The scheduler's slice that is tried.
const SLICE_NS: &str = "100000";
const TIMER_SLACK_NS: u64 = 1;

pub(crate) fn measure(arguments: &DoctorArguments, host: &Host, check: &Check, stop: &AtomicBool) -> Outcome {
    let load = load(arguments, check)?;
    let setting = match check.setting {
        Setting::None => refuse!("{} only reports: there is nothing to measure", check.name),
        Setting::Process(setting) => Some(for_child(host, setting).map_err(Failure::Usage)?),
        Setting::Host(_) => None,
    };
    if setting.is_none() {
        // A setting that cannot be written is told before the first load.
        Applied::apply(host, check)?.undo()?;
    }
    let repeats = usize::from(arguments.repeats);
    let runs = 2 * repeats + 1;
    errln!("{runs} loads, without (A) and with (B) {}; press Ctrl-C to stop", check.name);
    let mut trial = Trial::default();
    let begin = Instant::now();
    for index in 0..runs {
        let is_with = index % 2 == 1;
        let figure = match (is_with, &setting) {
            (false, _) => load.run(&ForChild::Nothing, stop)?,
            (true, Some(setting)) => load.run(setting, stop)?,
            (true, None) => {
                let applied = Applied::apply(host, check)?;
                let figure = load.run(&ForChild::Nothing, stop);
                applied.undo()?;
                figure?
            }
        };
        let (side, name) = if is_with { (&mut trial.with, "B") } else { (&mut trial.without, "A") };
        side.push(figure);
        let (done, left) = (index + 1, runs - index - 1);
        let left_s = begin.elapsed().as_secs_f64() / done as f64 * left as f64;
        errln!("  {done} of {runs}: {name} {} {figure}, about {left_s:.0} s left", load.metric);
    }
    let wrong = || anyhow!("{} has to be above zero in each load, to be compared as a share", load.metric);
    let comparison = compare(&trial).ok_or_else(wrong)?;
    let verdict = comparison.verdict(&load.metric);
    if arguments.json {
        crate::out::json(&serde_json::json!({
            "format": 1,
            "check": check.name,
            "load": load.command.join(" "),
            "metric": load.metric,
            "trial": trial,
            "comparison": comparison,
            "verdict": verdict,
        }))?;
    } else {
        out!("{}", throng_doctor::wrapped(&format!("{}: ", check.name), &verdict));
    }
    Ok(ExitCode::SUCCESS)
}

fn load(arguments: &DoctorArguments, check: &Check) -> Result<Load> {
    let own = std::env::current_exe().context("the path of this program is unknown")?;
    let own = own.to_str().context("the path of this program is not UTF-8")?;
    let played = [own, "match", "--json", "--quiet", "--no-report", "--no-check", "--seconds", "8"];
    let (command, metric) = match &arguments.load {
        Some(command) => (["sh", "-c", command].map(str::to_owned).to_vec(), "frame_ms.p99"),
        None => (played.map(str::to_owned).to_vec(), figure_of(check)),
    };
    let metric = arguments.metric.clone().unwrap_or_else(|| metric.to_owned());
    Ok(Load { command, metric, limit: Duration::from_secs(arguments.limit.into()) })
}

/// The figure of a match on which a check has its effect.
fn figure_of(check: &Check) -> &'static str {
    match check.setting {
        Setting::Process(PerProcess::TimerSlack) => "wake_lateness_us.p50",
        Setting::Process(PerProcess::Slice) => "lateness_us.p99",
        _ => "frame_ms.p99",
    }
}

fn for_child(host: &Host, setting: PerProcess) -> Result<ForChild> {
    let topology = || Topology::read(host).context("cannot read the processors");
    let allowed = || allowed_cpus(host).context("cannot read the processors that this process may use");
    let cpus = match setting {
        PerProcess::TimerSlack => return Ok(ForChild::TimerSlackNs(TIMER_SLACK_NS)),
        PerProcess::Slice => return slice(),
        PerProcess::OneCache => {
            topology()?.near(&allowed()?).context("all processors share one cache: nothing to compare")
        }
        PerProcess::OnePerCore => {
            topology()?.one_per_core(&allowed()?).context("each core has one thread: nothing to compare")
        }
    };
    Ok(ForChild::Cpus(cpus?))
}

/// There is no safe call for a slice, so `chrt` sets it. Older ones take the option and ignore it.
fn slice() -> Result<ForChild> {
    let prefix = ["chrt", "--other", "--sched-runtime", SLICE_NS, "0"].map(str::to_owned).to_vec();
    let output = Command::new(&prefix[0]).args(&prefix[1..]).args(["cat", "/proc/self/sched"]).output();
    let shown = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let line = shown.lines().find(|line| line.starts_with("se.slice"));
    let is_set = line.is_some_and(|line| line.ends_with(&format!(" {SLICE_NS}")));
    let missing = || anyhow!("`chrt` cannot set a slice here: kernel 6.12 and util-linux 2.41 or newer are needed");
    is_set.then_some(ForChild::Prefix(prefix)).ok_or_else(missing)
}

/// A setting of the host that goes with this value, also on an error.
struct Applied<'a>(Option<(&'a Host, &'a Check)>);

impl<'a> Applied<'a> {
    fn apply(host: &'a Host, check: &'a Check) -> Result<Applied<'a>, Failure> {
        throng_doctor::apply(host, check).map_err(failure)?;
        Ok(Applied(Some((host, check))))
    }

    fn undo(mut self) -> Result<(), Failure> {
        let undone = self.0.take().map(|(host, check)| undo(host, check));
        undone.transpose().map(|_| ()).map_err(failure)
    }
}

impl Drop for Applied<'_> {
    fn drop(&mut self) {
        let Some((host, check)) = self.0.take() else { return };
        if let Err(error) = undo(host, check) {
            errln!("throng: {} is still applied: {error}", check.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_setting_of_the_host_is_put_back_also_when_the_load_fails() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("proc/sys/vm/swappiness");
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, "60\n").unwrap();
        let host = Host::at(folder.path());
        let swap = throng_doctor::check("swap").unwrap();
        let panicked = std::panic::catch_unwind(|| {
            let _applied = Applied::apply(&host, swap).unwrap();
            assert_eq!(fs::read_to_string(&file).unwrap(), "1");
            panic!("the load failed");
        });
        assert!(panicked.is_err());
        assert_eq!(fs::read_to_string(&file).unwrap(), "60");
        Applied::apply(&host, swap).unwrap().undo().unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "60");
    }
}
