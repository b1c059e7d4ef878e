//! The further processes of a run: its edges, and its servers after the first.

use std::ffi::OsString;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::Serialize;
use serde::de::DeserializeOwned;
use throng_machine::clock;
use throng_machine::piped::{Ear, Gone, Piped, Signal, Unsaid};

use crate::bus::Middle;
use crate::control::{Command, PartLine, PlayerCount, bus_line};

/// A process has so long to open its sockets.
const START_PATIENCE: Duration = Duration::from_secs(20);
/// All processes together have so long to report.
const REPORT_PATIENCE: Duration = Duration::from_secs(5);
const OFTEN: Duration = Duration::from_millis(5);

/// Processes of one kind. `P` is where one is reached, `F` are its figures.
pub(super) struct Parts<P, F> {
    parts: Vec<Part<P, F>>,
    again: Option<Again>,
}

/// Starts a process that takes the place of another one: which, and how many had that place before.
pub(super) type Again = Box<dyn Fn(usize, u32) -> Result<Piped>>;

struct Part<P, F> {
    name: String,
    process: Piped,
    /// Where it is reached; `None` until it can be connected to for the first time.
    point: Option<P>,
    players: PlayerCount,
    figures: Option<F>,
    fault: Option<String>,
    /// It is gone on purpose.
    is_killed: bool,
    /// The processes that had its place before it.
    life: u32,
    /// It can be connected to.
    is_ready: bool,
    /// The faults of those processes.
    former_faults: Vec<String>,
    /// Its processor time at the moment from which it counts, in seconds; `None` while it does not.
    cpu_from_s: Option<f64>,
    /// The processor time that has counted, also of those processes, in seconds.
    cpu_s: f64,
}

impl<P, F> Default for Parts<P, F> {
    fn default() -> Parts<P, F> {
        Parts { parts: Vec::new(), again: None }
    }
}

impl<P: DeserializeOwned + Clone, F: DeserializeOwned + Default> Parts<P, F> {
    /// Starts one for each name, member of the bus and order, and waits until all can be connected to. Members are joined to the bus by
    /// their lines, if the run has one of its own.
    pub(super) fn start<O: Serialize>(
        command: &[OsString],
        middle: Option<&Middle>,
        orders: impl Iterator<Item = (String, u64, O)>,
    ) -> Result<Parts<P, F>> {
        let start = |(name, member, order): (String, u64, O)| {
            let process = spawn(command, middle, member, &order).with_context(|| format!("cannot start {name}"))?;
            Ok(Part::new(name, process))
        };
        let mut parts = orders.map(start).collect::<Result<Vec<Part<P, F>>>>()?;
        parts.iter_mut().try_for_each(Part::wait)?;
        Ok(Parts { parts, again: None })
    }

    /// From now on [`restart`](Parts::restart) can start one anew.
    pub(super) fn set_again(&mut self, again: Again) {
        self.again = Some(again);
    }

    /// Starts a process in the place of one that was killed, and sends it the commands. Does not wait until it can be connected to.
    pub(super) fn restart(&mut self, index: usize, commands: &[Command]) {
        let (Some(part), Some(again)) = (self.parts.get_mut(index), &self.again) else { return };
        part.life += 1;
        (part.is_killed, part.is_ready, part.figures) = (false, false, None);
        part.former_faults.extend(part.fault.take());
        match again(index, part.life) {
            Ok(process) => {
                part.process = process;
                // All of its time is of the measured part.
                part.cpu_from_s = Some(0.0);
                commands.iter().for_each(|command| part.process.tell(command));
            }
            Err(error) => part.fault = Some(format!("{} did not start again: {error:#}", part.name)),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Where they are reached.
    pub(super) fn points(&self) -> Vec<P> {
        self.parts.iter().filter_map(|part| part.point.clone()).collect()
    }

    /// The players of all of them.
    pub(super) fn players(&self) -> PlayerCount {
        self.parts.iter().fold(PlayerCount::default(), |sum, part| PlayerCount {
            connected: sum.connected + part.players.connected,
            ended: sum.ended + part.players.ended,
        })
    }

    /// The players of each; `None` of one that was killed, until another process can be connected to in its place.
    pub(super) fn players_of_each(&self) -> impl Iterator<Item = Option<u32>> + Clone + '_ {
        self.parts.iter().map(|part| (part.is_ready && !part.is_killed).then_some(part.players.connected))
    }

    pub(super) fn tell(&mut self, command: Command) {
        self.parts.iter_mut().for_each(|part| part.process.tell(&command));
    }

    /// The measured part begins.
    pub(super) fn measure(&mut self) {
        self.parts.iter_mut().for_each(Part::begin_cpu);
        self.tell(Command::Measure);
    }

    /// The measured part has ended. Returns the processor time of all processes in it, in seconds, also of those that are gone.
    pub(super) fn settle(&mut self) -> f64 {
        self.tell(Command::Settle);
        self.parts.iter_mut().for_each(Part::end_cpu);
        self.parts.iter().map(|part| part.cpu_s).sum()
    }

    /// Tells one of them something, by its place.
    pub(super) fn tell_one(&mut self, index: usize, command: Command) {
        if let Some(part) = self.parts.get_mut(index) {
            part.process.tell(&command);
        }
    }

    /// Sends a signal to one of them, by its place.
    pub(super) fn signal(&mut self, index: usize, signal: Signal) {
        let Some(part) = self.parts.get_mut(index) else { return };
        part.is_killed |= signal == Signal::Kill;
        if part.is_killed {
            part.players = PlayerCount::default();
            part.end_cpu();
        }
        part.process.signal(signal);
    }

    /// Hears what they say. One that has ended is named by [`finish`](Parts::finish).
    pub(super) fn listen(&mut self) {
        for part in &mut self.parts {
            while part.fault.is_none() && part.figures.is_none() && part.hear() {}
        }
    }

    /// Ends them. Returns the figures of each that has reported, and the faults of others.
    pub(super) fn finish(mut self) -> (Vec<Option<F>>, Vec<String>) {
        self.tell(Command::Stop);
        let until = Instant::now() + REPORT_PATIENCE;
        let is_awaited = |part: &Part<P, F>| part.figures.is_none() && part.fault.is_none() && !part.is_killed;
        while self.parts.iter().any(is_awaited) && Instant::now() < until {
            self.listen();
            std::thread::sleep(OFTEN);
        }
        let mut faults = Vec::new();
        let figures = self.parts.into_iter().map(|part| {
            faults.extend(part.former_faults);
            if part.figures.is_none() {
                let is_silent = part.fault.is_none() && !part.is_killed;
                faults
                    .extend(part.fault.or_else(|| is_silent.then(|| format!("{} did not report in time", part.name))));
            }
            part.figures
        });
        (figures.collect(), faults)
    }
}

/// Starts a process with its order. It is joined to the bus by its lines, if the run has one of its own.
pub(super) fn spawn(
    command: &[OsString],
    middle: Option<&Middle>,
    member: u64,
    order: &impl Serialize,
) -> Result<Piped> {
    let ear = middle.cloned().map_or_else(|| -> Ear { Box::new(|_| false) }, |middle| ear(middle, member));
    let process = Piped::start_heard(command, order, ear)?;
    if let Some(middle) = middle {
        let mouth = process.mouth();
        // A word that is no line is lost like one that finds no room.
        middle.join(member, Box::new(move |down| bus_line(&down).map_err(|_| Unsaid::Full).and_then(&mouth)));
    }
    Ok(process)
}

/// Takes the lines for the bus, as soon as they come.
fn ear(middle: Middle, member: u64) -> Ear {
    Box::new(move |line| match serde_json::from_str(line) {
        Ok(PartLine::<serde::de::IgnoredAny, serde::de::IgnoredAny>::Bus(up)) => {
            middle.hear(member, up);
            true
        }
        _ => false,
    })
}

impl<P, F> Part<P, F> {
    fn new(name: String, process: Piped) -> Part<P, F> {
        Part {
            name,
            process,
            point: None,
            players: PlayerCount::default(),
            figures: None,
            fault: None,
            is_killed: false,
            life: 0,
            is_ready: false,
            former_faults: Vec::new(),
            cpu_from_s: None,
            cpu_s: 0.0,
        }
    }

    fn begin_cpu(&mut self) {
        self.cpu_from_s = self.total_cpu_s();
    }

    /// A process that has ended by itself has a time until it was waited for.
    fn end_cpu(&mut self) {
        let spent_s = self.cpu_from_s.take().zip(self.total_cpu_s()).map(|(from_s, now_s)| now_s - from_s);
        self.cpu_s += spent_s.unwrap_or_default();
    }

    fn total_cpu_s(&self) -> Option<f64> {
        clock::cpu_s_of(&self.process.id().to_string())
    }
}

impl<P: DeserializeOwned, F: DeserializeOwned> Part<P, F> {
    /// Waits until it can be connected to for the first time.
    fn wait(&mut self) -> Result<()> {
        let (name, until) = (&self.name, Instant::now() + START_PATIENCE);
        while Instant::now() < until {
            let line = match self.process.next_line(OFTEN) {
                Ok(Some(line)) => line,
                Ok(None) => continue,
                Err(Gone) => bail!("{name} ended before it had begun"),
            };
            match serde_json::from_str::<PartLine<P, F>>(&line) {
                Ok(PartLine::Ready(point)) => {
                    (self.point, self.is_ready) = (Some(point), true);
                    return Ok(());
                }
                Ok(PartLine::Failed(error)) => bail!("{name} could not start: {error}"),
                _ => bail!("{name} wrote an unknown line: {line}"),
            }
        }
        bail!("{name} did not start within {} s", START_PATIENCE.as_secs())
    }

    /// Takes a line. False if there is none.
    fn hear(&mut self) -> bool {
        let line = match self.process.next_line(Duration::ZERO) {
            Ok(Some(line)) => line,
            Ok(None) => return false,
            Err(Gone) if self.is_killed => return false,
            Err(Gone) => {
                self.fault = Some(format!("{} has ended: its clients were cut off", self.name));
                return false;
            }
        };
        match serde_json::from_str::<PartLine<P, F>>(&line) {
            // The last words of one that was killed come too late, and may be cut off.
            _ if self.is_killed => {}
            Ok(PartLine::Players(players)) => self.players = players,
            // The first process of a place was waited for. Edges find the others by their leases.
            Ok(PartLine::Ready(_)) if !self.is_ready => self.is_ready = true,
            Ok(PartLine::Done(figures)) => self.figures = Some(figures),
            Ok(PartLine::Failed(error)) => self.fault = Some(format!("{} failed: {error}", self.name)),
            _ => self.fault = Some(format!("{} wrote an unknown line", self.name)),
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The process says at once that it is ready. It runs these commands. It writes its figures when it gets `stop`.
    fn script(commands: &str, figures: u32) -> Vec<OsString> {
        let text = format!(
            r#"read order; echo '{{"ready":null}}'; {commands}
            while read line; do if [ "$line" = '"stop"' ]; then echo '{{"done":{figures}}}'; exit; fi; done"#
        );
        ["sh", "-c", &text].map(OsString::from).to_vec()
    }

    fn parts(commands: &str) -> Parts<(), u32> {
        Parts::start(&script(commands, 1), None, std::iter::once(("server 2".to_owned(), 1, ()))).expect("it starts")
    }

    fn players(connected: u32) -> String {
        format!(r#"echo '{{"players":{{"connected":{connected},"ended":0}}}}';"#)
    }

    /// Listens until the players of the only process are so many.
    fn until(parts: &mut Parts<(), u32>, players: Option<u32>) {
        let end = Instant::now() + Duration::from_secs(20);
        while parts.players_of_each().next() != Some(players) {
            assert!(Instant::now() < end, "{:?}", parts.players_of_each().next());
            parts.listen();
            std::thread::sleep(OFTEN);
        }
    }

    #[test]
    fn a_process_takes_the_place_of_one_that_was_killed_and_is_heard_instead() {
        let mut parts = parts(&players(5));
        until(&mut parts, Some(5));
        let lives = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
        let noted = lives.clone();
        parts.set_again(Box::new(move |index, life| {
            noted.borrow_mut().push((index, life));
            spawn(&script(&players(life + 10), 100 + life), None, 2, &())
        }));
        for life in 1..=2 {
            parts.signal(0, Signal::Kill);
            parts.listen();
            until(&mut parts, None);
            parts.restart(0, &[Command::Begin]);
            assert_eq!(parts.players_of_each().next(), Some(None), "it is not there yet");
            until(&mut parts, Some(life + 10));
        }
        parts.restart(7, &[]);
        assert_eq!(*lives.borrow(), [(0, 1), (0, 2)]);
        assert_eq!(parts.finish(), (vec![Some(102)], Vec::new()), "nothing has gone wrong");
    }

    /// Waits until the only process has so much more processor time than `from_s`. Returns what it has.
    #[cfg(target_os = "linux")]
    fn burnt(parts: &Parts<(), u32>, from_s: f64) -> f64 {
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            let now_s = parts.parts[0].total_cpu_s().expect("it is there");
            if now_s >= from_s + 0.05 {
                return now_s;
            }
            assert!(Instant::now() < end, "{now_s} s");
            std::thread::sleep(OFTEN);
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn processor_time_of_the_measured_part_counts_also_of_processes_that_are_gone() {
        let burner = "while :; do :; done;";
        let mut parts = parts(burner);
        parts.set_again(Box::new(move |_, _| spawn(&script(burner, 1), None, 2, &())));
        burnt(&parts, 0.0);
        parts.measure();
        let from_s = parts.parts[0].cpu_from_s.expect("it is measured");
        burnt(&parts, from_s);
        parts.signal(0, Signal::Kill);
        let first_s = parts.parts[0].cpu_s;
        assert!(first_s > 0.0, "{first_s}");
        parts.restart(0, &[Command::Measure]);
        let second_s = burnt(&parts, 0.0);
        parts.signal(0, Signal::Kill);
        let both_s = parts.parts[0].cpu_s;
        assert!(both_s >= first_s + second_s, "{both_s} of {first_s} and {second_s}");
        assert_eq!(parts.settle(), both_s, "nothing is counted twice");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn processor_time_before_the_measured_part_does_not_count() {
        let mut parts = parts("while :; do :; done;");
        burnt(&parts, 0.0);
        parts.signal(0, Signal::Stop);
        // It stands still once its time does.
        let stands = |parts: &Parts<(), u32>| {
            let before_s = parts.parts[0].total_cpu_s();
            std::thread::sleep(OFTEN * 10);
            before_s == parts.parts[0].total_cpu_s()
        };
        assert!((0..1_000).any(|_| stands(&parts)), "it does not stand still");
        parts.measure();
        assert_eq!(parts.settle(), 0.0);
        parts.signal(0, Signal::Kill);
    }

    #[test]
    fn nobody_waits_for_the_report_of_a_process_that_was_killed() {
        let mut parts = parts(&players(5));
        until(&mut parts, Some(5));
        parts.signal(0, Signal::Kill);
        parts.listen();
        let began = Instant::now();
        assert_eq!(parts.finish(), (vec![None], Vec::new()), "it was killed on purpose");
        assert!(began.elapsed() < REPORT_PATIENCE / 2, "{:?}", began.elapsed());
    }

    #[test]
    fn a_process_that_does_not_start_again_and_one_that_had_ended_before_are_named() {
        let mut parts = parts("exit 3;");
        let end = Instant::now() + Duration::from_secs(20);
        while parts.parts[0].fault.is_none() {
            assert!(Instant::now() < end);
            parts.listen();
            std::thread::sleep(OFTEN);
        }
        parts.signal(0, Signal::Kill);
        parts.set_again(Box::new(|_, _| bail!("no such program")));
        parts.restart(0, &[]);
        parts.listen();
        assert_eq!(parts.players_of_each().next(), Some(None));
        let (figures, faults) = parts.finish();
        let words = ["server 2 has ended: its clients were cut off", "server 2 did not start again: no such program"];
        assert_eq!((figures, faults), (vec![None], words.map(str::to_owned).to_vec()));
    }
}
