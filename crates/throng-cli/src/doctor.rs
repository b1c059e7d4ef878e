//! `throng doctor`: the machine's settings, what one of them is worth, and noisy neighbours.

mod load;
mod measure;
mod neighbours;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow};
use clap::Args;
use serde_json::Value;
use throng_doctor::{
    ApplyError, CHECKS, Check, Host, LiveProbes, NoProbes, PROCESS_CHECKS, Probes, ReadError, Verdict, Written, check,
    examine, examine_process,
};

use crate::exit::{Failure, Outcome};
use crate::number::number;
use crate::out;

pub(crate) const LONG_ABOUT: &str = "\
Check this machine's settings, measure what one is worth, or find the programs that make frames slow

  throng doctor                            all checks, warnings first; changes nothing, takes under 2 s
  throng doctor thp clock                  only these two, with all details
  throng doctor --json                     the same for programs (docs/doctor.md)
  throng doctor --apply clock              write this setting; the former value is printed and recorded
  throng doctor --undo clock               put the former value back
  throng doctor --measure timer-slack      matches without and with it, in turns: its worth on this machine
  throng doctor --measure thp --load './my-load --json' --metric frame_ms.p99
  throng doctor --neighbours               half a minute of a 128 Hz loop: who ran when its frames were late?
  throng doctor --pid PID                  a process that runs: affinity, class, limits, large pages, sockets
  throng doctor --root DIR                 a recorded machine: DIR/proc and DIR/sys

The readings come from this machine. What a setting is worth comes from the source that is named with it, and from this \
machine only with --measure.

Exit codes: 0 success, also with warnings; 1 the setting could not be written, or the load failed; 2 a wrong argument, or \
a check that has nothing to apply, to undo or to compare here.";

#[derive(Debug, Args)]
pub(crate) struct DoctorArguments {
    /// Show only these checks, with all details
    #[arg(value_name = "CHECK", value_parser = check_name, conflicts_with_all = ["apply", "undo", "measure", "neighbours"])]
    checks: Vec<&'static str>,
    /// Print JSON (docs/doctor.md)
    #[arg(long)]
    json: bool,
    /// Examine a recorded machine below this folder
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Examine the process of this id while it runs, and not the machine
    #[arg(long, value_name = "PID", group = "task", value_parser = number(1u32..))]
    pid: Option<u32>,
    /// Write the setting of this check
    #[arg(long, value_name = "CHECK", value_parser = check_name, group = "task")]
    apply: Option<&'static str>,
    /// Put the setting of this check back
    #[arg(long, value_name = "CHECK", value_parser = check_name, group = "task")]
    undo: Option<&'static str>,
    /// Run a load without and with the setting of this check, in turns
    #[arg(long, value_name = "CHECK", value_parser = check_name, group = "task")]
    measure: Option<&'static str>,
    /// With --measure: a shell command that prints a JSON object; without it, a match with ten bots for 8 s
    #[arg(long, value_name = "COMMAND", requires = "measure")]
    load: Option<String>,
    /// With --measure: the figure in that object (default: frame_ms.p99, or the lateness that the check is about)
    #[arg(long, value_name = "PATH", requires = "measure")]
    metric: Option<String>,
    /// With --measure: loads with the setting; those without are one more
    #[arg(long, value_name = "N", requires = "measure", default_value_t = throng_doctor::REPEATS as u16, value_parser = number(throng_doctor::REPEATS_MIN as u16..=99))]
    repeats: u16,
    /// With --measure: longest time of one load, in seconds
    #[arg(long, value_name = "S", requires = "measure", default_value_t = 120, value_parser = number(1u16..))]
    limit: u16,
    /// Find the programs that run when the frames of a 128 Hz loop are late
    #[arg(long, group = "task")]
    neighbours: bool,
    /// With --neighbours: how long to look, in seconds
    #[arg(long, value_name = "S", requires = "neighbours", default_value_t = 30, value_parser = number(2u16..=600))]
    seconds: u16,
    /// With --neighbours: the processors to look at, as 1 or 0,2-3; without it, all that this process may use
    #[arg(long, value_name = "LIST", requires = "neighbours")]
    cpus: Option<neighbours::Cpus>,
}

fn check_name(text: &str) -> Result<&'static str, String> {
    let names: Vec<&str> = CHECKS.iter().chain(PROCESS_CHECKS).map(|check| check.name).collect();
    check(text).map(|check| check.name).ok_or_else(|| format!("the checks are {}", names.join(", ")))
}

fn named(name: &str) -> Result<&'static Check> {
    check(name).with_context(|| format!("there is no check {name}"))
}

pub(crate) fn run(arguments: &DoctorArguments) -> Outcome {
    let is_task =
        arguments.apply.is_some() || arguments.undo.is_some() || arguments.measure.is_some() || arguments.neighbours;
    if is_task && arguments.root.is_some() {
        refuse!("--root names a recorded machine, which can only be examined: leave out the other option");
    }
    let host = Host::at(arguments.root.as_deref().unwrap_or(Path::new("/")));
    if let Some(name) = arguments.apply {
        change(arguments.json, named(name)?, throng_doctor::apply(&host, named(name)?), Way::Apply)
    } else if let Some(name) = arguments.undo {
        change(arguments.json, named(name)?, throng_doctor::undo(&host, named(name)?), Way::Undo)
    } else if let Some(name) = arguments.measure {
        // A second Ctrl-C does not end the program: a setting may have to be put back first.
        let stop = crate::on_interrupt("stopping", || ())?;
        measure::measure(arguments, &host, named(name)?, &stop)
    } else if arguments.neighbours {
        let stop = crate::on_interrupt("stopping", || ())?;
        neighbours::find(arguments, &host, &stop)
    } else {
        show(arguments, &host)
    }
}

fn show(arguments: &DoctorArguments, host: &Host) -> Outcome {
    if let Some(root) = arguments.root.as_deref().filter(|root| !root.is_dir()) {
        refuse!("--root {}: this is not a folder", root.display());
    }
    let probes: &dyn Probes = if arguments.root.is_some() { &NoProbes } else { &LiveProbes };
    let mut report = match arguments.pid {
        Some(pid) => examine_process(host, probes, pid)
            .map_err(|error| Failure::Usage(anyhow!("--pid {pid}: {error}: there is no such process")))?,
        None => examine(host, probes),
    };
    if let Some(other) = arguments.checks.iter().find(|name| !report.rows.iter().any(|row| row.check == **name)) {
        let words = if arguments.pid.is_some() { "is about the machine: leave out" } else { "is about a process: add" };
        refuse!("the check {other} {words} --pid PID");
    }
    if !arguments.checks.is_empty() {
        report.rows.retain(|row| arguments.checks.contains(&row.check));
    }
    if arguments.json {
        let summary = serde_json::json!({
            "format": 1,
            "pid": arguments.pid,
            "warnings": report.count(Verdict::Warning),
            "advice": report.count(Verdict::Advice),
            "cannot_read": report.count(Verdict::CannotRead),
            "ok": report.count(Verdict::Ok),
            "checks": report.rows,
        });
        out::json(&summary)?;
    } else {
        out!("{}", report.text(&arguments.checks));
    }
    Ok(ExitCode::SUCCESS)
}

#[derive(Clone, Copy)]
enum Way {
    Apply,
    Undo,
}

fn change(json: bool, check: &Check, written: Result<Vec<Written>, ApplyError>, way: Way) -> Outcome {
    let written = written.map_err(failure)?;
    if json {
        out::json(&changed(check, &written))?;
        return Ok(ExitCode::SUCCESS);
    }
    const SHOWN: usize = 8;
    for Written { path, before, now } in written.iter().take(SHOWN) {
        outln!("{path}: was \"{before}\", is \"{now}\"");
    }
    if written.len() > SHOWN {
        outln!("and {} more files", written.len() - SHOWN);
    }
    if written.is_empty() {
        outln!("all files had their former values already: the record is removed");
    }
    if let Way::Apply = way {
        outln!("to undo: throng doctor --undo {} (until the machine restarts; then it is undone anyway)", check.name);
    }
    Ok(ExitCode::SUCCESS)
}

fn changed(check: &Check, written: &[Written]) -> Value {
    let files = written
        .iter()
        .map(|Written { path, before, now }| serde_json::json!({ "path": path, "before": before, "now": now }));
    serde_json::json!({ "format": 1, "check": check.name, "files": files.collect::<Vec<_>>() })
}

/// A check that has nothing to write or to put back on this machine is a wrong argument.
fn failure(error: ApplyError) -> Failure {
    let is_nothing = match &error {
        ApplyError::Unread(error) => matches!(error, ReadError::Absent { .. } | ReadError::NoCall { .. }),
        error => {
            ["nothing-to-apply", "per-process", "set-already", "applied-before", "not-applied"].contains(&error.tag())
        }
    };
    if is_nothing { Failure::Usage(error.into()) } else { Failure::Run(error.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_that_has_nothing_to_do_here_is_a_wrong_argument() {
        let folder = tempfile::tempdir().unwrap();
        let host = Host::at(folder.path());
        let swap = check("swap").unwrap();
        let is_usage = |error: ApplyError| matches!(failure(error), Failure::Usage(_));
        assert!(is_usage(throng_doctor::apply(&host, swap).unwrap_err()), "this machine has no such file");
        assert!(is_usage(throng_doctor::undo(&host, swap).unwrap_err()), "it was not applied");
        let file = folder.path().join("proc/sys/vm/swappiness");
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, "1\n").unwrap();
        assert!(is_usage(throng_doctor::apply(&host, swap).unwrap_err()), "it is set already");
        std::fs::write(&file, "60\n").unwrap();
        throng_doctor::apply(&host, swap).unwrap();
        assert!(is_usage(throng_doctor::apply(&host, swap).unwrap_err()), "it was applied before");
        std::fs::write(&file, "\x07").unwrap();
        let _ = std::fs::remove_dir_all(folder.path().join("run"));
        assert!(!is_usage(throng_doctor::apply(&host, swap).unwrap_err()), "the file makes no sense");
    }

    #[test]
    fn the_page_names_all_keys_of_a_changed_setting() {
        let written = Written { path: "/a".to_owned(), before: "1".to_owned(), now: "0".to_owned() };
        let value = changed(check("swap").unwrap(), &[written]);
        let own = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        let files = own(&value["files"][0]).into_iter().map(|key| format!("files[].{key}"));
        let keys: Vec<String> =
            own(&value).into_iter().filter(|key| key != "files").chain(files).map(|key| format!("`{key}`")).collect();
        assert_eq!(keys.len(), 5);
        let page = include_str!("../../../docs/doctor.md");
        let (_, from) = page.split_once("\n`throng doctor --apply CHECK --json` and `--undo`:\n").unwrap();
        let table = from.split("\n`throng doctor ").next().unwrap();
        let missing: Vec<&String> = keys.iter().filter(|key| !table.contains(&***key)).collect();
        assert!(missing.is_empty(), "docs/doctor.md does not explain {missing:?}");
    }
}
