//! All bots of a run: a process beside the server, or load workers on several machines.

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use throng::{Key, Tick, Time};
use throng_bus::{NameError, Subject};
use throng_crowd::scenario::Scenario;
use throng_machine::clock;
use throng_machine::piped::{Gone, Piped};
use throng_summary::{RunSummary, WorkerFigures};

use super::ledger;
use super::remote::{Heard, Remote, Say};
use super::word::{self, WorkOrder};
use crate::bots::{BotsReport, Gathered, Progress, SecondCounts, Share};
use crate::bus::WorkersOnBus;
use crate::control::{BotsLine, Command};

/// A worker has so long to answer, and to start its bots.
const PATIENCE: Duration = Duration::from_secs(10);
const OFTEN: Duration = Duration::from_millis(2);
/// All workers begin to connect, and to measure, so long after they were told.
const AHEAD: Duration = Duration::from_millis(500);

/// The name of a load worker on the bus: one token of a [`Subject`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WorkerName(Subject);

/// The keys of load workers in the store begin with this.
const KEYS: &str = "load-workers.";

impl WorkerName {
    /// The key of its lease.
    pub(crate) fn key(&self) -> Subject {
        self.0.clone()
    }
}

impl FromStr for WorkerName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<WorkerName, NameError> {
        if text.contains('.') {
            return Err(NameError::Token { index: 0 });
        }
        Subject::new(&format!("{KEYS}{text}")).map(WorkerName)
    }
}

impl fmt::Display for WorkerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_str().trim_start_matches(KEYS))
    }
}

/// Where a run finds a load worker.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WorkerPlace {
    /// At a UDP address.
    Address(SocketAddr),
    /// On the bus.
    Name(WorkerName),
}

impl WorkerPlace {
    fn name(&self) -> Option<&WorkerName> {
        match self {
            WorkerPlace::Name(name) => Some(name),
            WorkerPlace::Address(_) => None,
        }
    }
}

impl FromStr for WorkerPlace {
    type Err = NameError;

    fn from_str(text: &str) -> Result<WorkerPlace, NameError> {
        match text.parse() {
            Ok(address) => Ok(WorkerPlace::Address(address)),
            Err(_) => text.parse().map(WorkerPlace::Name),
        }
    }
}

impl fmt::Display for WorkerPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WorkerPlace::Address(address) => address.fmt(f),
            WorkerPlace::Name(name) => name.fmt(f),
        }
    }
}

/// The load workers of a run.
#[derive(Clone, Debug)]
pub struct WorkersOptions {
    /// Where they are: at least one, and none twice.
    pub places: Vec<WorkerPlace>,
    /// The nats-server at which those with names are (feature `nats`), as `nats://127.0.0.1:4222`.
    pub nats: Option<String>,
    /// The key that they were started with.
    pub key: Key,
    /// The address of this machine to which their bots connect.
    pub server: IpAddr,
}

impl WorkersOptions {
    /// Whether a run of the scenario can be played by them.
    ///
    /// # Errors
    /// It cannot, with the reason.
    pub fn check(&self, scenario: &Scenario) -> Result<()> {
        let count = self.places.len();
        ensure!((1..=Share::MAX as usize).contains(&count), "a run has 1 to {} load workers, not {count}", Share::MAX);
        ensure!(self.places.iter().collect::<BTreeSet<_>>().len() == count, "a load worker is named twice");
        match (self.places.iter().find_map(WorkerPlace::name), &self.nats) {
            (Some(name), None) => {
                bail!("load worker {name} has no address: add --bus with the nats-server that it uses")
            }
            (None, Some(_)) => bail!("all load workers have addresses: leave out --bus"),
            _ => {}
        }
        ensure!(scenario.edges == 0, "load workers play against one server: leave out --edges");
        ensure!(count <= scenario.players as usize, "{count} load workers are more than the players");
        word::check_world(scenario)
    }

    /// Begins to connect to all of them.
    fn connect(&self) -> Result<Vec<Remote>> {
        let mut bus = self.nats.as_deref().map(WorkersOnBus::join).transpose()?;
        let connect = |place: &WorkerPlace| match place {
            WorkerPlace::Address(address) => Remote::connect(*address, &self.key),
            WorkerPlace::Name(name) => {
                let bus =
                    bus.as_mut().with_context(|| format!("load worker {name} has no address, and there is no bus"))?;
                Remote::connect_over(bus.endpoint()?, name, bus.find(name)?, &self.key)
            }
        };
        self.places.iter().map(connect).collect()
    }
}

/// The bots of a run.
pub(super) struct Crew(Vec<Worker>);

/// Some bots of a run: a process beside the server, or a load worker.
pub(super) struct Worker {
    link: Link,
    second: SecondCounts,
    report: Option<Gathered>,
    fault: Option<String>,
}

enum Link {
    Here(Piped),
    Remote(Remote),
}

impl Crew {
    /// Of a process beside the server.
    pub(super) fn here(process: Piped) -> Crew {
        Crew(vec![Worker::new(Link::Here(process))])
    }

    /// Has all workers play their share against a server. They begin at the same moment.
    pub(super) fn of_workers(
        options: &WorkersOptions,
        scenario: &Scenario,
        server: (SocketAddr, &Key),
    ) -> Result<Crew> {
        options.check(scenario)?;
        let remotes = options.connect()?;
        await_all(&remotes, |heard| matches!(heard, Heard::Met))?;
        let begin = clock::now().after(AHEAD);
        let (address, key) = server;
        for (index, remote) in (0..).zip(&remotes) {
            let share = Share { index, of: remotes.len() as u32 };
            let (key, scenario) = (*key.as_bytes(), scenario.clone());
            let order = WorkOrder { server: address, key, scenario, share, begin_us: 0 };
            remote.say(Say::Order(Box::new(order), begin));
        }
        await_all(&remotes, |heard| matches!(heard, Heard::Ready))?;
        Ok(Crew(remotes.into_iter().map(|remote| Worker::new(Link::Remote(remote))).collect()))
    }

    pub(super) fn tell(&mut self, command: Command) {
        self.0.iter_mut().for_each(|worker| worker.tell(command));
    }

    /// Has all measure from the same moment on, which is returned.
    pub(super) fn measure(&mut self) -> Time {
        if self.remotes().next().is_none() {
            self.tell(Command::Measure);
            return clock::now();
        }
        self.remotes().for_each(Remote::forget_errors);
        let at = clock::now().after(AHEAD);
        self.tell(Command::MeasureAt(at.0));
        at
    }

    /// A tick begins. To be called before its packets are sent.
    pub(super) fn note_tick(&self, tick: Tick, began: Time) {
        for remote in self.remotes() {
            remote.say(Say::Tick(tick, began));
        }
    }

    /// The server's state, as it was written for local bots.
    pub(super) fn note_snapshot(&self, bytes: &[u8]) {
        let mut shared = None;
        for remote in self.remotes() {
            let bytes = shared.get_or_insert_with(|| Arc::new(bytes.to_vec()));
            remote.say(Say::Snapshot(bytes.clone()));
        }
    }

    /// Hears what has been said.
    pub(super) fn listen(&mut self) {
        self.0.iter_mut().for_each(|worker| while worker.hear() {});
    }

    /// Why some bots are gone, if they are.
    pub(super) fn fault(&self) -> Option<String> {
        let faults: Vec<&str> = self.0.iter().filter_map(|worker| worker.fault.as_deref()).collect();
        (!faults.is_empty()).then(|| faults.join("; "))
    }

    /// Whether nobody is left.
    pub(super) fn is_gone(&self) -> bool {
        self.0.iter().all(|worker| worker.fault.is_some())
    }

    /// Whether all that are left have reported.
    pub(super) fn has_reported(&self) -> bool {
        self.0.iter().all(|worker| worker.report.is_some() || worker.fault.is_some())
    }

    /// A worker that has not reported by now will not do it any more.
    pub(super) fn give_up(&mut self, patience: Duration) {
        for worker in self.0.iter_mut().filter(|worker| worker.report.is_none()) {
            worker.fail(&format!("no report within {} s", patience.as_secs()));
        }
    }

    /// The newest second of all.
    pub(super) fn progress(&self) -> Progress {
        if let [Worker { link: Link::Here(_), second, .. }] = &self.0[..] {
            return second.progress;
        }
        // The bots of a worker that is gone play no more.
        let left = self.0.iter().filter(|worker| worker.fault.is_none());
        let seconds: Vec<SecondCounts> = left.map(Worker::second).collect();
        SecondCounts::joined(&seconds)
    }

    /// The figures of all that have reported, and what there is to say of each load worker.
    pub(super) fn report(&mut self) -> (BotsReport, Vec<WorkerFigures>) {
        let figures = self.0.iter_mut().filter_map(Worker::figures).collect();
        let mut all = Gathered::default();
        self.0.iter_mut().filter_map(|worker| worker.report.take()).for_each(|report| all.add(report));
        (all.report(), figures)
    }

    fn remotes(&self) -> impl Iterator<Item = &Remote> {
        self.0.iter().filter_map(Worker::remote)
    }
}

/// Names the load workers that are missing in a summary, and adds the figures of each.
pub(super) fn note_workers(summary: &mut RunSummary, workers: Vec<WorkerFigures>) {
    if workers.is_empty() {
        return;
    }
    let missing = workers.iter().filter(|worker| worker.missing);
    summary.head.missing.extend(missing.map(|worker| format!("load worker {}", worker.address)));
    summary.bots.cores_available = workers.len() as f64;
    summary.workers = workers;
    for worker in &mut summary.workers {
        worker.saturated = ledger::is_too_late(&summary.settings, worker.input_delay_p99_ms);
    }
}

impl Worker {
    fn new(link: Link) -> Worker {
        Worker { link, second: SecondCounts::default(), report: None, fault: None }
    }

    fn remote(&self) -> Option<&Remote> {
        match &self.link {
            Link::Here(_) => None,
            Link::Remote(remote) => Some(remote),
        }
    }

    fn tell(&mut self, command: Command) {
        let is_told = match &mut self.link {
            Link::Here(process) => {
                process.tell(&command);
                true
            }
            Link::Remote(remote) => remote.say(Say::Command(command)),
        };
        if !is_told {
            // If it is gone, it has said why.
            while self.hear() {}
            self.fail("it takes no commands");
        }
    }

    fn fail(&mut self, why: &str) {
        let name = self.remote().map_or_else(|| "the bots' process".to_owned(), name_of);
        self.fault.get_or_insert(format!("{name}: {why}"));
    }

    /// Takes what it has said. False if that is nothing, or it is gone.
    fn hear(&mut self) -> bool {
        if self.fault.is_some() {
            return false;
        }
        let heard = match &self.link {
            Link::Here(process) => match process.next_line(Duration::ZERO) {
                Ok(line) => line.map(Heard::Line),
                Err(Gone) => Some(Heard::Ended("it ended without a report".to_owned())),
            },
            Link::Remote(remote) => remote.hear(),
        };
        match heard {
            None => return false,
            Some(Heard::Line(line)) => match serde_json::from_str(&line) {
                Ok(BotsLine::Second(second)) => self.second = *second,
                Ok(BotsLine::Done(report)) => self.report = Some(*report),
                Ok(BotsLine::Failed(error)) => self.fail(&format!("its bots failed: {error}")),
                Err(error) => self.fail(&format!("it says what nobody knows: {error}: {line:.200}")),
            },
            // After the report, that is as it should be.
            Some(Heard::Ended(_)) if self.report.is_some() => return false,
            Some(Heard::Ended(why) | Heard::Refused(why)) => self.fail(&why),
            Some(Heard::Met | Heard::Ready) => {}
        }
        true
    }

    /// Its newest second. Ages that are less than their error are none.
    fn second(&self) -> SecondCounts {
        let mut second = self.second.clone();
        let offset = self.remote().and_then(|remote| remote.clock().offset);
        let error_ms = offset.map_or(f64::INFINITY, |offset| offset.error_us / 1e3);
        if second.progress.near_age_p99_ms.is_some_and(|age_ms| age_ms < error_ms) {
            second.near_ages = Default::default();
        }
        second
    }

    /// Its own figures, if it is a load worker. Takes ages that cannot be used out of its report.
    fn figures(&mut self) -> Option<WorkerFigures> {
        let remote = self.remote()?;
        let clock = remote.clock();
        let error_ms = clock.offset.map(|_| clock.largest_error_us / 1e3);
        let (address, snapshots) = (remote.place.to_string(), remote.snapshots());
        let clock_offset_ms = clock.offset.map(|offset| offset.us / 1e3);
        let missing = self.report.is_none();
        let figures = WorkerFigures {
            address,
            missing,
            clock_offset_ms,
            clock_error_ms: error_ms,
            snapshots,
            ..Default::default()
        };
        let Some(gathered) = &mut self.report else { return Some(figures) };
        let report = gathered.report();
        let ages_usable = has_usable_ages(&report, error_ms);
        if !ages_usable {
            gathered.forget_ages();
        }
        Some(WorkerFigures {
            connected: report.bots.connected,
            cpu_cores: report.bots.cpu_cores,
            inputs_sent_ratio: report.bots.inputs_sent_ratio,
            input_delay_p99_ms: report.bots.input_delay_p99_ms,
            ages_usable,
            ..figures
        })
    }
}

/// Ages with an error larger than the median of the nearest that were seen say nothing.
fn has_usable_ages(report: &BotsReport, error_ms: Option<f64>) -> bool {
    let bands = [report.neighbours.near, report.neighbours.middle, report.neighbours.far];
    let age_ms = bands.into_iter().find_map(|band| band.age_ms.p50);
    age_ms.is_none_or(|age_ms| error_ms.is_some_and(|error_ms| error_ms <= age_ms))
}

fn name_of(remote: &Remote) -> String {
    format!("load worker {}", remote.place)
}

/// Waits until each worker has said something.
fn await_all(remotes: &[Remote], is_it: impl Fn(&Heard) -> bool) -> Result<()> {
    let until = clock::now().after(PATIENCE);
    for remote in remotes {
        let name = name_of(remote);
        loop {
            match remote.hear() {
                Some(heard) if is_it(&heard) => break,
                Some(Heard::Refused(why)) => bail!("{name} refuses: {why}"),
                Some(Heard::Ended(why)) => {
                    return Err(anyhow::anyhow!(why)).with_context(|| {
                        format!(
                            "{name} does not answer: check that `throng lab worker` runs there, with the same --key"
                        )
                    });
                }
                Some(_) | None => {}
            }
            ensure!(clock::now() < until, "{name} did not begin within {} s", PATIENCE.as_secs());
            std::thread::sleep(OFTEN);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use throng_summary::{Band, Spread};

    use super::*;

    #[test]
    fn the_bots_of_a_worker_that_is_gone_are_no_part_of_the_live_figures() {
        let worker = |port: u16, connected: u32| {
            let remote = Remote::connect(([127, 0, 0, 1], port).into(), &Key::new([7; 32])).unwrap();
            let progress = Progress { connected, ..Progress::default() };
            Worker { second: SecondCounts { progress, ..SecondCounts::default() }, ..Worker::new(Link::Remote(remote)) }
        };
        let mut crew = Crew(vec![worker(9, 30), worker(10, 12)]);
        assert_eq!(crew.progress().connected, 42);
        crew.0[0].fail("it is gone");
        assert_eq!(crew.progress().connected, 12);
    }

    #[test]
    fn ages_are_usable_if_their_error_is_not_larger_than_they_are() {
        let mut report = BotsReport::default();
        assert!(has_usable_ages(&report, None), "there are none");
        report.neighbours.middle = Band { age_ms: Spread { p50: Some(40.0), p99: None }, ..Band::default() };
        let usable = |error_ms| has_usable_ages(&report, error_ms);
        assert_eq!([Some(1.0), Some(40.0), Some(40.1), None].map(usable), [true, true, false, false]);
    }
}
