//! Faults that a run has on purpose: an edge that is killed or drained, a server that is killed and starts again, a process that
//! stands still or is cut off, a disk or a reader that is slow.

use std::fmt::{self, Display, Formatter};
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Scenario;

/// An event that a process of a run has to bear, and its moment. Written as `kill:edge-1:4s` or `pause:server-2:4s:1.5s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Fault {
    /// To which process.
    pub part: Part,
    /// When it begins, from the beginning of the measured part.
    pub at: Duration,
    /// Its kind.
    pub kind: FaultKind,
}

/// The kind of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// It is killed, as by `kill -9`, and does not come back.
    Kill,
    /// It is killed in the same way, and a new process takes its place after so long. It knows nothing of the former one.
    Restart(Duration),
    /// It sends its clients away, and ends in an orderly manner.
    Drain,
    /// It does not run for so long: to the others it is as if the network to it was cut.
    Pause(Duration),
    /// It goes on, but everything that it sends or is sent is lost for so long.
    Cut(Duration),
    /// Each write of the run's own files takes much longer for so long.
    SlowDisk(Duration),
    /// It reads only a little of what servers send to it for so long.
    SlowConsumer(Duration),
}

impl FaultKind {
    /// Whether packets may be lost by it.
    pub fn loses_packets(self) -> bool {
        !matches!(self, FaultKind::SlowDisk(_))
    }
}

/// A process of a run, by its number in the report, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// An edge.
    Edge(u32),
    /// A server. The first one is in the process of the run itself, and is written `server`.
    Server(u32),
}

/// How faults are written.
pub const FAULT_FORMS: &str = "kill:edge-1:4s, kill:server-2:4s, drain:edge-1:4s, pause:edge-1:4s:2s, pause:server-2:4s:1.5s, \
    restart:server-2:4s:1s, cut:edge-1:4s:30s, slow-consumer:edge-1:4s:3s or slow-disk:server:4s:3s";
/// Faults of a run at most.
const FAULTS_MAX: usize = 32;
/// Faults begin, and pauses last, so long at most.
const SECONDS_MAX: f64 = 86_400.0;

impl Fault {
    /// When it is over, from the beginning of the measured part.
    pub fn ends(&self) -> Duration {
        match self.kind {
            FaultKind::Kill | FaultKind::Drain => self.at,
            FaultKind::Restart(length)
            | FaultKind::Pause(length)
            | FaultKind::Cut(length)
            | FaultKind::SlowDisk(length)
            | FaultKind::SlowConsumer(length) => self.at + length,
        }
    }

    /// Whether it has an end. A process that is killed or drained does not come back.
    pub fn lasts(&self) -> bool {
        !matches!(self.kind, FaultKind::Kill | FaultKind::Drain)
    }

    /// Whether it kills a server, and others have to serve its players for a while at least.
    pub fn ends_a_server(&self) -> bool {
        matches!((self.part, self.kind), (Part::Server(_), FaultKind::Kill | FaultKind::Restart(_)))
    }

    /// Whether it makes a process slow, which a process is once in a run: so the report can say what was lost by it.
    fn slows(&self) -> bool {
        matches!(self.kind, FaultKind::SlowDisk(_) | FaultKind::SlowConsumer(_))
    }
}

/// Why a scenario's faults are impossible, in words.
pub(super) fn obstacle(scenario: &Scenario) -> Option<String> {
    let Scenario { faults, edges, servers, seconds, .. } = scenario;
    if faults.len() > FAULTS_MAX {
        return Some(format!("{} faults are more than {FAULTS_MAX}", faults.len()));
    }
    let mut gone = Vec::new();
    for (number, fault) in faults.iter().enumerate() {
        let overlaps = |other: &Fault| other.part == fault.part && other.at <= fault.ends() && fault.at <= other.ends();
        let is_there = match fault.part {
            Part::Edge(number) => (1..=*edges).contains(&number),
            Part::Server(number) => (1..=*servers).contains(&number),
        };
        let is_slow_again = |other: &Fault| other.part == fault.part && other.slows() && fault.slows();
        let why = match (fault.part, fault.kind) {
            (part, FaultKind::SlowDisk(_)) if part != Part::Server(1) => {
                "only the process of the run itself writes files: name `server`"
            }
            (Part::Edge(_), FaultKind::Restart(_)) => {
                "clients know the edges of a run from its beginning: name a server"
            }
            (Part::Server(_), FaultKind::SlowConsumer(_)) => "edges read what servers send: name an edge",
            (Part::Server(1), kind) if !matches!(kind, FaultKind::SlowDisk(_)) => {
                "server 1 is in the process of the run itself: name another one"
            }
            _ if !is_there => "the run has no such process (--edges, --servers)",
            (Part::Server(_), FaultKind::Drain) => "a server is not drained: kill or pause it, or cut its network",
            (_, FaultKind::Cut(_)) if scenario.server_threads > 1 => {
                "each of several threads has a socket of its own, whose network is not cut: --server-threads 1"
            }
            (part, _) if gone.contains(&part) => "it is gone before",
            _ if faults[..number].iter().any(is_slow_again) => "a process is slow once in a run",
            _ if faults[..number].iter().any(overlaps) => "another fault of the same process is not over by then",
            _ if fault.ends() >= Duration::from_secs((*seconds).into()) => {
                "it does not end in the measured part (--seconds)"
            }
            _ => "",
        };
        if !why.is_empty() {
            return Some(format!("{fault}: {why}"));
        }
        if matches!(fault.kind, FaultKind::Kill | FaultKind::Drain) {
            gone.push(fault.part);
        }
    }
    let edges_gone = gone.iter().filter(|part| matches!(part, Part::Edge(_))).count();
    let nobody_left = edges_gone > 0 && edges_gone >= *edges as usize;
    nobody_left.then(|| "no edge is left: leave one to which the clients can go".to_owned())
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Fault, String> {
        let words: Vec<&str> = text.split(':').collect();
        let (part, at, kind) = match words[..] {
            ["kill", part, at] => (part, at, FaultKind::Kill),
            ["restart", part, at, length] => (part, at, FaultKind::Restart(time(length)?)),
            ["drain", part, at] => (part, at, FaultKind::Drain),
            ["pause", part, at, length] => (part, at, FaultKind::Pause(time(length)?)),
            ["cut", part, at, length] => (part, at, FaultKind::Cut(time(length)?)),
            ["slow-disk", part, at, length] => (part, at, FaultKind::SlowDisk(time(length)?)),
            ["slow-consumer", part, at, length] => (part, at, FaultKind::SlowConsumer(time(length)?)),
            _ => return Err(format!("`{text}`: a fault is written as {FAULT_FORMS}")),
        };
        Ok(Fault { part: part.parse()?, at: time(at)?, kind })
    }
}

impl FromStr for Part {
    type Err = String;

    fn from_str(text: &str) -> Result<Part, String> {
        let number = |number: &str| number.parse().ok().filter(|number: &u32| *number > 0);
        let numbered = || {
            text.split_once('-').and_then(|(name, digits)| match name {
                "edge" => number(digits).map(Part::Edge),
                "server" => number(digits).map(Part::Server),
                _ => None,
            })
        };
        let part = if text == "server" { Some(Part::Server(1)) } else { numbered() };
        part.ok_or_else(|| format!("`{text}`: a process is edge-1, edge-2, server, server-2 and so on"))
    }
}

/// A time in seconds, of a millisecond or more.
fn time(text: &str) -> Result<Duration, String> {
    let seconds = text.strip_suffix('s').and_then(|number| number.parse::<f64>().ok());
    // NaN is in no range.
    let seconds = seconds.filter(|seconds| (0.001..=SECONDS_MAX).contains(seconds));
    let whole_ms = seconds.map(|seconds| Duration::from_millis((seconds * 1e3).round() as u64));
    whole_ms.ok_or_else(|| format!("`{text}`: a time in seconds is expected, as 4s or 1.5s"))
}

impl Display for Fault {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Fault { part, at, kind } = self;
        let (word, length) = match kind {
            FaultKind::Kill => ("kill", None),
            FaultKind::Restart(length) => ("restart", Some(length)),
            FaultKind::Drain => ("drain", None),
            FaultKind::Pause(length) => ("pause", Some(length)),
            FaultKind::Cut(length) => ("cut", Some(length)),
            FaultKind::SlowDisk(length) => ("slow-disk", Some(length)),
            FaultKind::SlowConsumer(length) => ("slow-consumer", Some(length)),
        };
        write!(f, "{word}:{part}:{}s", at.as_secs_f64())?;
        length.map_or(Ok(()), |length| write!(f, ":{}s", length.as_secs_f64()))
    }
}

impl Display for Part {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Part::Edge(number) => write!(f, "edge-{number}"),
            Part::Server(1) => f.write_str("server"),
            Part::Server(number) => write!(f, "server-{number}"),
        }
    }
}

impl TryFrom<String> for Fault {
    type Error = String;

    fn try_from(text: String) -> Result<Fault, String> {
        text.parse()
    }
}

impl From<Fault> for String {
    fn from(fault: Fault) -> String {
        fault.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::super::Overrides;
    use super::*;

    #[test]
    fn a_fault_is_read_as_it_is_written() {
        for text in [
            "kill:edge-1:4s",
            "kill:server-2:4s",
            "restart:server-3:4s:0.5s",
            "drain:edge-3:4s",
            "pause:edge-12:0.5s:2s",
            "pause:server-2:4s:1.5s",
            "cut:edge-1:4s:30s",
            "slow-disk:server:4s:3s",
            "slow-consumer:edge-2:4s:0.5s",
        ] {
            assert_eq!(text.parse::<Fault>().map(String::from).as_deref(), Ok(text));
        }
        let fault: Fault = "pause:server-2:4s:1.5s".parse().unwrap();
        assert_eq!((fault.part, fault.at, fault.ends().as_millis()), (Part::Server(2), Duration::from_secs(4), 5_500));
        for text in [
            "",
            "kill",
            "kill:edge-1",
            "kill:edge-1:4",
            "kill:edge-0:4s",
            "kill:edge:4s",
            "kill:bots-1:4s",
            "kill:edge-1:0s",
            "kill:edge-1:-1s",
            "kill:edge-1:NaNs",
            "kill:edge-1:infs",
            "kill:edge-1:1e9s",
            "kill:edge-99999999999:4s",
            "pause:edge-1:4s",
            "pause:edge-1:4s:0s",
            "kill:edge-1:4s:2s",
            "restart:server-2:4s",
            "cut:edge-1:4s",
            "stop:edge-1:4s",
            "slow-disk:server:4s",
            "slow-consumer:bots:4s:1s",
        ] {
            let error = text.parse::<Fault>().expect_err(text);
            assert!(error.contains("as ") || error.contains("is edge-1"), "{error}");
        }
    }

    #[test]
    fn faults_of_processes_that_are_not_there_or_that_never_end_are_refused() {
        let of = |faults: &[&str]| {
            let faults = faults.iter().map(|text| text.parse().unwrap()).collect();
            let (edges, servers, seconds) = (Some(2), Some(3), Some(10));
            let overrides = Overrides { edges, servers, seconds, faults, ..Overrides::default() };
            Scenario::resolve("crowd", &overrides)
                .map(|scenario| scenario.faults.len())
                .map_err(|error| error.to_string())
        };
        assert_eq!(
            of(&["kill:edge-1:4s", "pause:edge-2:5s:2s", "pause:server-3:1s:8.9s", "cut:server-2:4s:2s"]),
            Ok(4)
        );
        assert_eq!(
            of(&["restart:server-2:1s:1s", "restart:server-2:4s:1s", "kill:server-2:6s"]),
            Ok(3),
            "it is there again"
        );
        assert_eq!(of(&["slow-disk:server:1s:3s", "slow-consumer:edge-1:1s:3s", "slow-consumer:edge-2:2s:3s"]), Ok(3));
        assert_eq!(
            of(&["kill:server-2:4s", "kill:server-3:4s", "kill:edge-1:4s"]),
            Ok(3),
            "the first server and an edge stay"
        );
        for (faults, words) in [
            (&["kill:edge-3:4s"][..], "no such process"),
            (&["pause:server-4:4s:1s"], "no such process"),
            (&["pause:server-1:4s:1s"], "the process of the run itself"),
            (&["drain:server-2:4s"], "pause it"),
            (&["kill:server-1:4s"], "the process of the run itself"),
            (&["kill:server-2:4s", "pause:server-2:5s:1s"], "gone before"),
            (&["kill:edge-1:10s"], "measured part"),
            (&["pause:edge-1:4s:6s"], "measured part"),
            (&["kill:edge-1:4s", "pause:edge-1:5s:1s"], "gone before"),
            (&["cut:server-2:2s:6s", "cut:server-2:3s:1s"], "not over by then"),
            (&["pause:edge-1:2s:2s", "kill:edge-1:3s"], "not over by then"),
            (&["kill:edge-1:4s", "drain:edge-2:5s"], "no edge is left"),
            (&["slow-disk:server-2:1s:1s"], "name `server`"),
            (&["slow-disk:edge-1:1s:1s"], "name `server`"),
            (&["slow-disk:server:9s:1s"], "measured part"),
            (&["slow-consumer:server-2:1s:1s"], "name an edge"),
            (&["slow-consumer:edge-3:1s:1s"], "no such process"),
            (&["slow-disk:server:1s:1s", "slow-disk:server:4s:1s"], "slow once"),
            (&["slow-consumer:edge-1:1s:3s", "pause:edge-1:3s:1s"], "not over by then"),
            (&["restart:edge-1:1s:1s"], "name a server"),
            (&["restart:server-1:1s:1s"], "the process of the run itself"),
            (&["restart:server-4:1s:1s"], "no such process"),
            (&["restart:server-2:4s:6s"], "measured part"),
            (&["restart:server-2:4s:2s", "pause:server-2:5s:2s"], "not over by then"),
            (&["kill:server-2:1s", "restart:server-2:2s:1s"], "gone before"),
            (&["pause:edge-1:1s:1s"; 33], "more than 32"),
        ] {
            let error = of(faults).expect_err(words);
            assert!(error.contains(words) && error.contains("faults (--fault)"), "{error}");
        }
        let faults = vec!["cut:edge-1:4s:1s".parse().unwrap()];
        let (edges, server_threads) = (Some(2), Some(2));
        let threads = Overrides { edges, server_threads, seconds: Some(10), faults, ..Overrides::default() };
        let error = Scenario::resolve("crowd", &threads).expect_err("two threads").to_string();
        assert!(error.contains("--server-threads 1"), "{error}");
    }
}
