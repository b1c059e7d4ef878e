//! Where and how the rows came to be.

use std::process::Command;

use serde::Serialize;

use crate::rows::Row;

/// The whole of `results.json`.
#[derive(Serialize)]
pub(crate) struct Report<'a> {
    machine: Machine,
    /// The commit of this repository, with `-dirty` if files differed from it.
    revision: String,
    /// UTC, RFC 3339.
    started_at: String,
    command_line: String,
    rows: &'a [Row],
}

/// Facts about machine and sources, taken when the runs begin.
pub(crate) struct Provenance {
    machine: Machine,
    revision: String,
    started_at: String,
}

#[derive(Clone, Serialize)]
struct Machine {
    /// The model's name.
    cpu: String,
    cores: usize,
    kernel: String,
}

const UNKNOWN: &str = "unknown";

impl Provenance {
    pub(crate) fn now() -> Provenance {
        // `--exclude '*'`: no tag is a revision.
        let revision =
            ["-C", env!("CARGO_MANIFEST_DIR"), "describe", "--always", "--dirty", "--abbrev=40", "--exclude", "*"];
        Provenance {
            machine: Machine::this(),
            revision: said("git", &revision),
            started_at: said("date", &["-u", "+%Y-%m-%dT%H:%M:%SZ"]),
        }
    }

    pub(crate) fn report<'a>(&self, rows: &'a [Row]) -> Report<'a> {
        let words: Vec<String> = std::env::args().skip(1).collect();
        Report {
            machine: self.machine.clone(),
            revision: self.revision.clone(),
            started_at: self.started_at.clone(),
            command_line: format!("bench/peers/run {}", words.join(" ")).trim_end().to_owned(),
            rows,
        }
    }
}

impl Machine {
    fn this() -> Machine {
        let processors = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = processors.lines().find(|line| line.starts_with("model name"));
        let cpu = model.and_then(|line| line.split_once(':')).map_or(UNKNOWN, |(_, name)| name.trim());
        Machine {
            cpu: cpu.to_owned(),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            kernel: said("uname", &["-r"]),
        }
    }
}

/// The output of a program in one line; `unknown` if the program fails.
fn said(program: &str, words: &[&str]) -> String {
    let output = Command::new(program).args(words).output().ok().filter(|output| output.status.success());
    output.map_or(UNKNOWN.to_owned(), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
