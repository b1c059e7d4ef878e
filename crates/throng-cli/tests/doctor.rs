//! `throng doctor` as its users run it: this machine, recorded ones, loads of their own, and a planted neighbour.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::Value;

use crate::lines::{SIGINT, children, handles};
use crate::summary_keys::keys;

fn doctor(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_throng")).arg("doctor").args(arguments).output().expect("the program starts")
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The single line of a complaint, after checking its exit code.
fn complaint(arguments: &[&str], code: i32) -> String {
    let output = doctor(arguments);
    let text = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {text}");
    text
}

fn json(output: &Output) -> Value {
    let complaints = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {complaints}"))
}

/// Asserts that docs/doctor.md explains every key of a value below the line that names its command.
fn is_documented(value: &Value, command: &str) {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/doctor.md")).unwrap();
    let (_, from) = page.split_once(&format!("\n`throng doctor {command}`:\n")).expect("a table for the command");
    let table = from.split("\n`throng doctor ").next().unwrap();
    let explained: BTreeSet<&str> = table.split('`').skip(1).step_by(2).collect();
    let mut found = BTreeSet::new();
    keys(value, "", &mut found);
    // A list that is empty on this machine shows none of its keys.
    let is_explained = |key: &str| {
        let of_items = format!("{key}[].");
        explained.contains(key) || explained.iter().any(|explained| explained.starts_with(&of_items))
    };
    let missing: Vec<&String> = found.iter().filter(|key| !is_explained(key.trim_end_matches("[]"))).collect();
    assert!(found.len() > 3 && missing.is_empty(), "docs/doctor.md does not explain {missing:?} of {command}");
}

#[test]
fn all_checks_of_this_machine_take_under_two_seconds() {
    // Other tests keep the machine busy: the quickest of some counts.
    let (mut report, mut took) = (Value::Null, Duration::MAX);
    for _ in 0..5 {
        let begin = Instant::now();
        report = json(&doctor(&["--json"]));
        took = took.min(begin.elapsed());
        if took < Duration::from_secs(2) {
            break;
        }
    }
    assert!(took < Duration::from_secs(2), "it took {took:?}");
    is_documented(&report, "--json");
    let checks = report["checks"].as_array().unwrap();
    assert!(checks.len() >= 24, "{} checks", checks.len());
    let readable = checks.iter().filter(|check| check["verdict"] != "cannot-read").count();
    assert!(readable >= 8, "only {readable} checks could be read on this machine");
    let slack = checks.iter().find(|check| check["check"] == "timer-slack").unwrap();
    assert!(slack["read"].as_str().unwrap().ends_with(" us"), "{slack}");
}

#[test]
fn a_recorded_machine_is_examined_and_never_changed() {
    let machine = tempfile::tempdir().unwrap();
    let root = machine.path().to_str().unwrap();
    let file = machine.path().join("proc/sys/vm/swappiness");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, "60\n").unwrap();
    fs::write(machine.path().join("proc/meminfo"), "SwapTotal: 2048 kB\nSwapFree: 1024 kB\n").unwrap();
    let text = out(&doctor(&["--root", root]));
    assert!(text.starts_with("advice       swap             1 of 2 MB used, swappiness 60\n"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    assert!(text.ends_with("\nwarnings 0, advice 1, cannot read 24, ok 0; nothing was changed\n"), "{text}");
    let refused = complaint(&["--root", root, "--apply", "swap"], 2);
    assert!(refused.contains("recorded machine") && !refused.contains('\n'), "{refused}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "60\n");
    assert!(complaint(&["--root", "/no/such/folder"], 2).contains("not a folder"));
}

#[test]
fn a_process_is_examined_while_it_runs_and_a_wrong_one_is_refused() {
    let own = std::process::id().to_string();
    let report = json(&doctor(&["--pid", &own, "--json"]));
    is_documented(&report, "--json");
    assert_eq!(report["pid"], std::process::id());
    let read = |name: &str| {
        let check = report["checks"].as_array().unwrap().iter().find(|check| check["check"] == name);
        check.unwrap_or_else(|| panic!("no {name}: {report:#}"))["read"].as_str().unwrap().to_owned()
    };
    assert!(read("affinity").contains("thread") && read("limits").contains("open files"), "{report:#}");
    let one = out(&doctor(&["--pid", &own, "scheduler"]));
    assert!(one.contains("scheduler        threads by class: "), "{one}");
    assert!(complaint(&["--pid", "4194305"], 2).contains("no such process"));
    assert!(complaint(&["--pid", &own, "thp"], 2).contains("is about the machine"));
    assert!(complaint(&["affinity"], 2).contains("add --pid PID"));
    complaint(&["--pid", "0"], 2);
    complaint(&["--pid", &own, "--apply", "thp"], 2);
}

#[test]
fn a_check_without_a_setting_is_refused_with_advice() {
    let per_process = complaint(&["--apply", "timer-slack"], 2);
    assert!(per_process.contains("each process") && per_process.contains("--timer-slack 1"), "{per_process}");
    let reports = complaint(&["--apply", "steal"], 2);
    assert!(reports.contains("only reports") && !reports.contains('\n'), "{reports}");
    assert!(complaint(&["--measure", "steal"], 2).contains("nothing to measure"));
    assert!(complaint(&["--apply", "clok"], 2).contains("clock"), "an unknown check names the known ones");
    complaint(&["--apply", "thp", "--measure", "thp"], 2);
    complaint(&["--repeats", "5"], 2);
    complaint(&["--measure", "thp", "--repeats", "2"], 2);
}

/// A load that prints its own timer slack, with some noise from a counter in a file.
fn slack_load(folder: &Path) -> String {
    let note = folder.join("runs");
    let count = format!("echo x >> {0}; n=$(wc -l < {0})", note.display());
    format!("{count}; echo \"{{\\\"slack\\\": $(cat /proc/self/timerslack_ns), \\\"noise\\\": $((100 + n * 7 % 5))}}\"")
}

#[test]
fn a_worth_is_claimed_where_there_is_one_and_none_where_there_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let load = slack_load(folder.path());
    let measure =
        |metric: &str| json(&doctor(&["--measure", "timer-slack", "--load", &load, "--metric", metric, "--json"]));
    let real = measure("slack");
    is_documented(&real, "--measure CHECK --json");
    assert_eq!(real["comparison"]["is_claimed"], true, "{real}");
    assert_eq!(real["trial"]["with"], serde_json::json!(vec![1.0; 6]), "{real}");
    let none = measure("noise");
    assert_eq!(none["comparison"]["is_claimed"], false, "{none}");
    assert!(none["verdict"].as_str().unwrap().starts_with("none: "), "{none}");
    let failed = complaint(&["--measure", "timer-slack", "--load", "echo out of ammunition >&2; exit 3"], 1);
    assert!(failed.ends_with("do not count: out of ammunition"), "{failed}");
}

/// Ends a group of processes in any case.
struct Group(Child);

impl Drop for Group {
    fn drop(&mut self) {
        let _ = kill_process_group(Pid::from_child(&self.0), Signal::KILL);
        let _ = self.0.wait();
    }
}

#[test]
fn an_interrupted_measurement_ends_its_load() {
    let mut program = Command::new(env!("CARGO_BIN_EXE_throng"));
    program.args(["doctor", "--measure", "timer-slack", "--load", "sleep 300; echo {}"]);
    let mut run = Group(program.stderr(Stdio::null()).process_group(0).spawn().unwrap());
    let until = Instant::now() + Duration::from_secs(30);
    while !handles(run.0.id(), SIGINT) || children(run.0.id()).is_empty() {
        assert!(Instant::now() < until, "the load does not begin");
        std::thread::sleep(Duration::from_millis(20));
    }
    let load = children(run.0.id())[0];
    kill_process(Pid::from_child(&run.0), Signal::INT).unwrap();
    assert_eq!(run.0.wait().unwrap().code(), Some(1));
    assert!(!Path::new(&format!("/proc/{load}")).exists(), "the load still runs");
}

/// Starts a program of this name that wakes up on one processor every five seconds, and then computes with six processes.
fn plant(folder: &Path, name: &str, cpu: u32) -> Group {
    let script = folder.join(name);
    // The sleep begins with the burst, so the period is five seconds however long the burst takes.
    let burst = "( i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done ) &";
    let text = format!("#!/bin/sh\nwhile :; do sleep 5 & for n in 1 2 3 4 5 6; do {burst} done; wait; done\n");
    fs::write(&script, text).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new("taskset");
    command.args(["-c", &cpu.to_string()]).arg(script).stdout(Stdio::null()).stderr(Stdio::null());
    Group(command.process_group(0).spawn().expect("taskset is installed"))
}

#[test]
fn a_program_that_wakes_every_five_seconds_is_found_by_its_name_and_its_period() {
    /// One is enough, but on a machine that is busy with other tests.
    const ATTEMPTS: usize = 4;
    const NAME: &str = "5-second-waker";
    let folder = tempfile::tempdir().unwrap();
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
    let cpu: u32 = list.trim().rsplit([',', '-']).next().unwrap().parse().unwrap();
    let _waker = plant(folder.path(), NAME, cpu);
    let mut last = Value::Null;
    for _ in 0..ATTEMPTS {
        // Five bursts: the doctor needs four.
        last = json(&doctor(&["--neighbours", "--seconds", "25", "--cpus", &cpu.to_string(), "--json"]));
        is_documented(&last, "--neighbours --json");
        let suspects = last["ranking"]["suspects"].as_array().unwrap();
        let found = suspects.iter().find(|suspect| suspect["name"] == NAME);
        if found.and_then(|waker| waker["period_s"].as_f64()).is_some_and(|period_s| (period_s - 5.0).abs() < 0.3) {
            return;
        }
    }
    panic!("the waker was not named with its period: {last}");
}
