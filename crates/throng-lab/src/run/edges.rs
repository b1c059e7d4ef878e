//! The edges of a run, a process each.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use throng::Key;
use throng_summary::EdgeFigures;

use super::RunOptions;
use super::piped::{Gone, Piped};
use crate::bots::EdgePoint;
use crate::control::Command;
use crate::edge::{EdgeLine, EdgeOrder};

/// An edge has so long to open its sockets.
const START_PATIENCE: Duration = Duration::from_secs(20);
/// All edges together have so long to report.
const REPORT_PATIENCE: Duration = Duration::from_secs(5);
const OFTEN: Duration = Duration::from_millis(5);

/// The processes.
#[derive(Default)]
pub(super) struct Edges(Vec<EdgeProcess>);

struct EdgeProcess {
    process: Piped,
    point: EdgePoint,
    figures: Option<EdgeFigures>,
    fault: Option<String>,
}

impl Edges {
    /// Starts as many as the scenario has, for a server at an address.
    pub(super) fn start(options: &RunOptions, server: SocketAddr, key: &Key) -> Result<Edges> {
        let mut edges = Vec::new();
        for number in 0..options.scenario.edges {
            let order = EdgeOrder { number, server, key: *key.as_bytes(), scenario: options.scenario.clone() };
            let process = Piped::start(&options.edge_command, &name(number as usize), &order)?;
            edges.push((number as usize, process));
        }
        edges.into_iter().map(|(number, process)| EdgeProcess::new(number, process)).collect::<Result<_>>().map(Edges)
    }

    /// The places to which clients connect.
    pub(super) fn points(&self) -> Vec<EdgePoint> {
        self.0.iter().map(|edge| edge.point.clone()).collect()
    }

    pub(super) fn tell(&mut self, command: Command) {
        self.0.iter_mut().for_each(|edge| edge.process.say(&command.line()));
    }

    /// Hears what they say. One that has ended is named by [`finish`](Edges::finish).
    pub(super) fn listen(&mut self) {
        for (number, edge) in self.0.iter_mut().enumerate() {
            while edge.fault.is_none() && edge.figures.is_none() && edge.hear(number) {}
        }
    }

    /// Ends them. Returns the figures of each, and the faults of those that have none.
    pub(super) fn finish(mut self) -> (Vec<EdgeFigures>, Vec<String>) {
        self.tell(Command::Stop);
        let until = Instant::now() + REPORT_PATIENCE;
        while self.0.iter().any(|edge| edge.figures.is_none() && edge.fault.is_none()) && Instant::now() < until {
            self.listen();
            std::thread::sleep(OFTEN);
        }
        let (mut all, mut faults) = (Vec::new(), Vec::new());
        for (number, edge) in self.0.into_iter().enumerate() {
            match edge.figures {
                Some(figures) => all.push(figures),
                None => {
                    all.push(EdgeFigures::default());
                    faults.push(edge.fault.unwrap_or_else(|| format!("{} did not report in time", name(number))));
                }
            }
        }
        (all, faults)
    }
}

impl EdgeProcess {
    fn new(number: usize, process: Piped) -> Result<EdgeProcess> {
        let until = Instant::now() + START_PATIENCE;
        while Instant::now() < until {
            match process.next_line() {
                Ok(Some(line)) => match serde_json::from_str(&line) {
                    Ok(EdgeLine::Ready(point)) => {
                        return Ok(EdgeProcess { process, point, figures: None, fault: None });
                    }
                    Ok(EdgeLine::Failed(error)) => bail!("{} could not start: {error}", name(number)),
                    _ => bail!("{} wrote an unknown line: {line}", name(number)),
                },
                Ok(None) => std::thread::sleep(OFTEN),
                Err(Gone) => bail!("{} ended before it had begun", name(number)),
            }
        }
        bail!("{} did not start within {} s", name(number), START_PATIENCE.as_secs())
    }

    /// Takes a line. False if there is none.
    fn hear(&mut self, number: usize) -> bool {
        let line = match self.process.next_line() {
            Ok(Some(line)) => line,
            Ok(None) => return false,
            Err(Gone) => {
                self.fault = Some(format!("{} has ended: its clients were cut off", name(number)));
                return false;
            }
        };
        match serde_json::from_str(&line) {
            Ok(EdgeLine::Done(figures)) => self.figures = Some(figures),
            Ok(EdgeLine::Failed(error)) => self.fault = Some(format!("{} failed: {error}", name(number))),
            _ => self.fault = Some(format!("{} wrote an unknown line", name(number))),
        }
        true
    }
}

fn name(number: usize) -> String {
    format!("edge {}", number + 1)
}
