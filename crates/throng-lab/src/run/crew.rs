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
use throng_summary::{RunSummary, WorkerFigures};

use super::child::Child;
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
pub(super) enum Crew {
    Here(Box<Child>),
    Workers(Vec<Worker>),
}

/// A load worker of a run.
pub(super) struct Worker {
    remote: Remote,
    second: SecondCounts,
    report: Option<Gathered>,
    fault: Option<String>,
}

impl Crew {
    /// Has all workers play their share against a server. They begin at the same moment.
    pub(super) fn of_workers(
        options: &WorkersOptions,
        scenario: &Scenario,
        server: (SocketAddr, &Key),
    ) -> Result<Crew> {
        options.check(scenario)?;
        let mut workers: Vec<Worker> = options.connect()?.into_iter().map(Worker::new).collect();
        await_all(&mut workers, |heard| matches!(heard, Heard::Met))?;
        let begin = clock::now().after(AHEAD);
        let (address, key) = server;
        for (index, worker) in (0..).zip(&workers) {
            let share = Share { index, of: workers.len() as u32 };
            let (key, scenario) = (*key.as_bytes(), scenario.clone());
            let order = WorkOrder { server: address, key, scenario, share, begin_us: 0 };
            worker.remote.say(Say::Order(Box::new(order), begin));
        }
        await_all(&mut workers, |heard| matches!(heard, Heard::Ready))?;
        Ok(Crew::Workers(workers))
    }

    pub(super) fn tell(&mut self, command: Command) {
        match self {
            Crew::Here(child) => child.tell(command),
            Crew::Workers(workers) => workers.iter_mut().for_each(|worker| worker.tell(command)),
        }
    }

    /// Has all measure from the same moment on, which is returned.
    pub(super) fn measure(&mut self) -> Time {
        let at = match self {
            Crew::Here(_) => clock::now(),
            Crew::Workers(workers) => {
                workers.iter().for_each(|worker| worker.remote.forget_errors());
                clock::now().after(AHEAD)
            }
        };
        self.tell(match self {
            Crew::Here(_) => Command::Measure,
            Crew::Workers(_) => Command::MeasureAt(at),
        });
        at
    }

    /// A tick begins. To be called before its packets are sent.
    pub(super) fn note_tick(&self, tick: Tick, began: Time) {
        for worker in self.workers() {
            worker.remote.say(Say::Tick(tick, began));
        }
    }

    /// The server's state, as it was written for local bots.
    pub(super) fn note_snapshot(&self, bytes: &[u8]) {
        if !self.workers().is_empty() {
            let bytes = Arc::new(bytes.to_vec());
            for worker in self.workers() {
                worker.remote.say(Say::Snapshot(bytes.clone()));
            }
        }
    }

    /// Hears what has been said.
    pub(super) fn listen(&mut self) {
        match self {
            Crew::Here(child) => child.listen(),
            Crew::Workers(workers) => workers.iter_mut().for_each(|worker| while worker.hear() {}),
        }
    }

    /// Why some bots are gone, if they are.
    pub(super) fn fault(&self) -> Option<String> {
        match self {
            Crew::Here(child) => child.fault().map(str::to_owned),
            Crew::Workers(workers) => {
                let faults: Vec<&str> = workers.iter().filter_map(|worker| worker.fault.as_deref()).collect();
                (!faults.is_empty()).then(|| faults.join("; "))
            }
        }
    }

    /// Whether nobody is left.
    pub(super) fn is_gone(&self) -> bool {
        match self {
            Crew::Here(child) => child.fault().is_some(),
            Crew::Workers(workers) => workers.iter().all(|worker| worker.fault.is_some()),
        }
    }

    /// Whether all that are left have reported.
    pub(super) fn has_reported(&self) -> bool {
        match self {
            Crew::Here(child) => child.report().is_some(),
            Crew::Workers(workers) => workers.iter().all(|worker| worker.report.is_some() || worker.fault.is_some()),
        }
    }

    /// A worker that has not reported by now will not do it any more.
    pub(super) fn give_up(&mut self, patience: Duration) {
        let why = |who: &str| format!("{who} did not report within {} s", patience.as_secs());
        match self {
            Crew::Here(child) => child.fail(why("the bots")),
            Crew::Workers(workers) => {
                for worker in workers.iter_mut().filter(|worker| worker.report.is_none()) {
                    let why = why(&worker.name());
                    worker.fault.get_or_insert(why);
                }
            }
        }
    }

    /// The newest second of all.
    pub(super) fn progress(&self) -> Progress {
        match self {
            Crew::Here(child) => child.progress(),
            Crew::Workers(workers) => {
                // The bots of a worker that is gone play no more.
                let left = workers.iter().filter(|worker| worker.fault.is_none());
                let seconds: Vec<SecondCounts> = left.map(Worker::second).collect();
                SecondCounts::joined(&seconds)
            }
        }
    }

    /// The figures of all that have reported, and what there is to say of each load worker.
    pub(super) fn report(&mut self) -> (BotsReport, Vec<WorkerFigures>) {
        match self {
            Crew::Here(child) => (child.report().map(Gathered::report).unwrap_or_default(), Vec::new()),
            Crew::Workers(workers) => {
                let figures = workers.iter_mut().map(Worker::figures).collect();
                let mut all = Gathered::default();
                workers.iter_mut().filter_map(|worker| worker.report.take()).for_each(|report| all.add(report));
                (all.report(), figures)
            }
        }
    }

    /// Whether the bots of a worker use this machine.
    pub(super) fn is_near(address: &str) -> bool {
        matches!(address.parse(), Ok(WorkerPlace::Address(address)) if address.ip().is_loopback())
    }

    fn workers(&self) -> &[Worker] {
        match self {
            Crew::Here(_) => &[],
            Crew::Workers(workers) => workers,
        }
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
    fn new(remote: Remote) -> Worker {
        Worker { remote, second: SecondCounts::default(), report: None, fault: None }
    }

    fn name(&self) -> String {
        format!("load worker {}", self.remote.place)
    }

    fn tell(&mut self, command: Command) {
        if !self.remote.say(Say::Command(command)) {
            // If it is gone, it has said why.
            while self.hear() {}
            self.fail("it takes no commands");
        }
    }

    fn fail(&mut self, why: &str) {
        let fault = format!("{}: {why}", self.name());
        self.fault.get_or_insert(fault);
    }

    /// Takes what it has said. False if that is nothing, or it is gone.
    fn hear(&mut self) -> bool {
        if self.fault.is_some() {
            return false;
        }
        match self.remote.hear() {
            None => return false,
            Some(Heard::Line(line)) => match serde_json::from_str(&line) {
                Ok(BotsLine::Second(second)) => self.second = *second,
                Ok(BotsLine::Done(report)) => self.report = Some(*report),
                Ok(BotsLine::Failed(error)) => self.fail(&format!("its bots failed: {error}")),
                Err(error) => self.fail(&format!("it says what nobody knows: {error}")),
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
        let error_ms = self.remote.clock().offset.map_or(f64::INFINITY, |offset| offset.error_us / 1e3);
        if second.progress.near_age_p99_ms.is_some_and(|age_ms| age_ms < error_ms) {
            second.near_ages = Default::default();
        }
        second
    }

    /// Its own figures. Takes ages that cannot be used out of its report.
    fn figures(&mut self) -> WorkerFigures {
        let clock = self.remote.clock();
        let error_ms = clock.offset.map(|_| clock.largest_error_us / 1e3);
        let (address, snapshots) = (self.remote.place.to_string(), self.remote.snapshots());
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
        let Some(gathered) = &mut self.report else { return figures };
        let report = gathered.report();
        let ages_usable = has_usable_ages(&report, error_ms);
        if !ages_usable {
            gathered.forget_ages();
        }
        WorkerFigures {
            connected: report.connected,
            cpu_cores: report.cpu_cores,
            inputs_sent_ratio: report.inputs_sent_ratio,
            input_delay_p99_ms: report.input_delay_p99_ms,
            ages_usable,
            ..figures
        }
    }
}

/// Ages with an error larger than the median of the nearest that were seen say nothing.
fn has_usable_ages(report: &BotsReport, error_ms: Option<f64>) -> bool {
    let bands = [report.neighbours.near, report.neighbours.middle, report.neighbours.far];
    let age_ms = bands.into_iter().find_map(|band| band.age_ms.p50);
    age_ms.is_none_or(|age_ms| error_ms.is_some_and(|error_ms| error_ms <= age_ms))
}

/// Waits until each worker has said something.
fn await_all(workers: &mut [Worker], is_it: impl Fn(&Heard) -> bool) -> Result<()> {
    let until = clock::now().after(PATIENCE);
    for worker in workers {
        let name = worker.name();
        loop {
            match worker.remote.hear() {
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
            Worker { second: SecondCounts { progress, ..SecondCounts::default() }, ..Worker::new(remote) }
        };
        let mut crew = Crew::Workers(vec![worker(9, 30), worker(10, 12)]);
        assert_eq!(crew.progress().connected, 42);
        let Crew::Workers(workers) = &mut crew else { unreachable!("it was made of workers") };
        workers[0].fail("it is gone");
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
