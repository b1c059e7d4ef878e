//! A thread that plays matches by their deadlines.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex, OnceLock};

use throng::Time;
use throng::meter::Histogram;
use throng_telemetry::Clock;

use crate::balance::Balance;
use crate::host::{lock, wait_for};
use crate::{Deadlines, Match, MatchEnd, MatchError, MatchId, Scheduling, Stage, WorkerFigures, panics};

/// How often a worker reports its load, and may give a match away.
const REPORT_INTERVAL_NS: u64 = 1_000_000_000;

/// A match of a worker.
#[derive(Debug)]
pub(crate) struct Slot {
    id: MatchId,
    game: Match,
    deadlines: Deadlines,
    /// Time in frames since the last report.
    busy_ns: u64,
    /// The reason for which it is to end, if somebody asks for that.
    pub(crate) asked: Arc<OnceLock<String>>,
}

impl Slot {
    pub(crate) fn new(id: MatchId, game: Match, deadlines: Deadlines) -> Slot {
        Slot { id, game, deadlines, busy_ns: 0, asked: Arc::default() }
    }

    /// Ends its match, for the reason that somebody asked for if that was earlier.
    fn stop(&mut self, now: Time, reason: &str) {
        self.game.stop(now, self.asked.get().map_or(reason, String::as_str));
    }
}

/// A request to a worker.
#[derive(Debug)]
pub(crate) enum Control {
    /// To play a match.
    Take(Box<Slot>),
    /// To end all matches, and itself.
    Stop(String),
    /// To die, as by a fault of the runtime.
    #[cfg(test)]
    Die,
}

/// The part of a worker that others see.
#[derive(Debug, Default)]
pub(crate) struct WorkerState {
    figures: WorkerFigures,
    late: Histogram,
    wake_late: Histogram,
    /// The match whose frame runs; empty between frames.
    playing: String,
}

impl WorkerState {
    pub(crate) fn figures(&self) -> WorkerFigures {
        let (late_ns, wake_late_ns) = (self.late.percentiles(), self.wake_late.percentiles());
        let wake_late_values = self.wake_late.values().collect();
        WorkerFigures { late_ns, wake_late_ns, wake_late_values, ..self.figures.clone() }
    }

    pub(crate) fn reset(&mut self) {
        let WorkerFigures { matches, load, ref mut refused, .. } = self.figures;
        self.figures = WorkerFigures { matches, load, refused: refused.take(), ..WorkerFigures::default() };
        self.late.clear();
        self.wake_late.clear();
    }

    /// The match whose frame runs now.
    pub(crate) fn playing(&self) -> Option<String> {
        (!self.playing.is_empty()).then(|| self.playing.clone())
    }
}

/// The parts of a worker that do not change.
pub(crate) struct Worker {
    pub(crate) number: usize,
    pub(crate) clock: Clock,
    pub(crate) controls: Receiver<Control>,
    /// All workers by number, itself included.
    pub(crate) others: Vec<Sender<Control>>,
    pub(crate) ends: Sender<(MatchId, MatchEnd)>,
    pub(crate) state: Arc<Mutex<WorkerState>>,
    pub(crate) balance: Arc<Balance>,
    pub(crate) core: Option<usize>,
    pub(crate) scheduling: Scheduling,
    pub(crate) spin_ns: u64,
}

/// The parts that change.
struct Queue {
    slots: Vec<Box<Slot>>,
    /// The match whose frame runs, outside of `slots`: it alone is lost if the worker dies.
    current: Option<Box<Slot>>,
    stopping: Option<String>,
    reported_ns: u64,
}

impl Worker {
    pub(crate) fn run(self) {
        if let Some(id) = self.core {
            core_affinity::set_for_current(core_affinity::CoreId { id });
        }
        lock(&self.state).figures.refused = self.scheduling.apply().err();
        let reported_ns = self.clock.now_ns();
        let mut queue = Queue { slots: Vec::new(), current: None, stopping: None, reported_ns };
        loop {
            let played = panics::caught(|| catch_unwind(AssertUnwindSafe(|| self.play(&mut queue))));
            match played {
                Ok(()) => return,
                Err(message) => self.revive(&mut queue, &message),
            }
        }
    }

    /// The worker died in the middle of its work. The match that it played is over; the others go on.
    fn revive(&self, queue: &mut Queue, message: &str) {
        self.balance.note_frame(self.number, None);
        {
            let mut state = lock(&self.state);
            state.figures.deaths += 1;
            state.playing.clear();
        }
        if let Some(slot) = queue.current.take() {
            self.dispose(slot, || MatchError::Worker { message: message.to_owned() });
            lock(&self.state).figures.matches = queue.slots.len();
        }
    }

    /// Plays until all matches have ended after a stop, or the host is gone.
    fn play(&self, queue: &mut Queue) {
        loop {
            while let Ok(control) = self.controls.try_recv() {
                self.handle(control, queue);
            }
            let earliest = (0..queue.slots.len()).min_by_key(|&place| queue.slots[place].deadlines.next_ns());
            let Some(place) = earliest else {
                if queue.stopping.is_some() {
                    return;
                }
                // Nobody has to wait for the next frame to learn that it has nothing to do.
                self.report(queue);
                let Ok(control) = self.controls.recv() else { return };
                // The time without a match says nothing about the load of the next one.
                queue.reported_ns = self.clock.now_ns();
                self.handle(control, queue);
                continue;
            };
            let due_ns = queue.slots[place].deadlines.next_ns();
            let mut now_ns = self.clock.now_ns();
            let sleep_ns = due_ns.saturating_sub(now_ns).saturating_sub(self.spin_ns);
            if sleep_ns > 0 {
                match wait_for(&self.controls, sleep_ns) {
                    Ok(Some(control)) => {
                        self.handle(control, queue);
                        continue;
                    }
                    Ok(None) => {}
                    Err(()) if queue.stopping.is_some() => {
                        std::thread::sleep(std::time::Duration::from_nanos(sleep_ns))
                    }
                    Err(()) => queue.stop(&self.clock, "the host is gone"),
                }
                now_ns = self.clock.now_ns();
                let wake_late_ns = now_ns.saturating_sub(due_ns - self.spin_ns.min(due_ns));
                lock(&self.state).wake_late.record(wake_late_ns);
            }
            while now_ns < due_ns {
                std::hint::spin_loop();
                now_ns = self.clock.now_ns();
            }
            let slot = queue.slots.swap_remove(place);
            self.frame(slot, queue, now_ns);
            if self.clock.now_ns().saturating_sub(queue.reported_ns) >= REPORT_INTERVAL_NS {
                self.report(queue);
            }
        }
    }

    fn handle(&self, control: Control, queue: &mut Queue) {
        match control {
            Control::Take(mut slot) => {
                if let Some(reason) = &queue.stopping {
                    slot.stop(Time(self.clock.now_ns() / 1_000), reason);
                }
                slot.busy_ns = 0;
                queue.slots.push(slot);
                lock(&self.state).figures.matches = queue.slots.len();
            }
            Control::Stop(reason) => queue.stop(&self.clock, &reason),
            #[cfg(test)]
            Control::Die => {
                queue.current = queue.slots.pop();
                panic!("a fault of the runtime");
            }
        }
    }

    fn frame(&self, slot: Box<Slot>, queue: &mut Queue, now_ns: u64) {
        let slot = queue.current.insert(slot);
        let due = slot.deadlines.begin(now_ns);
        slot.game.note_missed(due.skipped);
        {
            let mut state = lock(&self.state);
            state.late.record(due.late_ns);
            state.figures.missed_ticks += due.skipped;
            state.figures.frames += 1;
            state.playing.push_str(slot.game.name());
        }
        if let Some(reason) = slot.asked.get() {
            slot.game.stop(Time(now_ns / 1_000), reason);
        }
        self.balance.note_frame(self.number, Some(now_ns));
        let stage = slot.game.frame(Time(now_ns / 1_000), due.late_ns);
        self.balance.note_frame(self.number, None);
        let spent_ns = self.clock.now_ns().saturating_sub(now_ns);
        slot.busy_ns += spent_ns;
        {
            let mut state = lock(&self.state);
            state.figures.busy_ns += spent_ns;
            state.playing.clear();
        }
        let Some(slot) = queue.current.take() else { return };
        match stage {
            Stage::Ended => {
                self.dispose(slot, || MatchError::Stopped { reason: "ended".to_owned() });
                lock(&self.state).figures.matches = queue.slots.len();
            }
            Stage::Playing | Stage::Leaving => queue.slots.push(slot),
        }
    }

    fn dispose(&self, slot: Box<Slot>, error: impl FnOnce() -> MatchError) {
        self.balance.remove(self.number);
        // Nobody listens if the host is gone.
        let _ = self.ends.send((slot.id, slot.game.into_end(error)));
    }

    /// Tells the load of the last second, and gives a match away if another worker is less busy.
    fn report(&self, queue: &mut Queue) {
        let now_ns = self.clock.now_ns();
        let passed_ns = now_ns.saturating_sub(queue.reported_ns).max(1) as f64;
        queue.reported_ns = now_ns;
        let costs: Vec<f64> = queue.slots.iter_mut().map(|slot| std::mem::take(&mut slot.busy_ns) as f64).collect();
        let costs: Vec<f64> = costs.iter().map(|busy_ns| busy_ns / passed_ns).collect();
        let load = costs.iter().sum();
        let slots = &mut queue.slots;
        let moved = self.balance.report((self.number, now_ns), load, &costs, |place, target| {
            let slot = slots.swap_remove(place);
            // A worker listens until the host ends, and then no match moves.
            if let Err(refused) = self.others[target].send(Control::Take(slot))
                && let Control::Take(slot) = refused.0
            {
                slots.push(slot);
            }
        });
        let mut state = lock(&self.state);
        state.figures.load = load;
        state.figures.migrated += u64::from(moved);
        state.figures.matches = queue.slots.len();
    }
}

impl Queue {
    fn stop(&mut self, clock: &Clock, reason: &str) {
        let now = Time(clock.now_ns() / 1_000);
        self.slots.iter_mut().for_each(|slot| slot.stop(now, reason));
        self.stopping = Some(reason.to_owned());
    }
}

impl Scheduling {
    /// Applies it to the calling thread.
    ///
    /// # Errors
    /// The parts that the system refused, in one line.
    pub fn apply(&self) -> Result<(), String> {
        let Some(slack_ns) = self.timer_slack_ns else { return Ok(()) };
        set_timer_slack(slack_ns).map_err(|error| format!("a timer slack of {slack_ns} ns is not possible: {error}"))
    }
}

#[cfg(target_os = "linux")]
fn set_timer_slack(slack_ns: std::num::NonZeroU64) -> std::io::Result<()> {
    Ok(rustix::thread::set_current_timer_slack(Some(slack_ns))?)
}

#[cfg(not(target_os = "linux"))]
fn set_timer_slack(_slack_ns: std::num::NonZeroU64) -> std::io::Result<()> {
    Err(std::io::ErrorKind::Unsupported.into())
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use throng::net::{Condition, MemoryNetwork};
    use throng::{Schema, Server, ServerOptions, random_key};
    use throng_telemetry::{Phase, Scopes, Telemetry, TelemetryOptions};

    use super::*;
    use crate::{Flow, Game, GameError, MatchOptions, Overrun, Seats, TickInput};

    /// Ends after some steps.
    struct Countdown(u64);

    impl Game for Countdown {
        fn step(&mut self, _: &TickInput<'_>, _: &mut Scopes) -> Flow {
            self.0 -= 1;
            if self.0 == 0 { Flow::Over } else { Flow::Continue }
        }
        fn publish(&mut self, _: &mut Server, _: &Seats, _: &mut Scopes) -> Result<(), GameError> {
            Ok(())
        }
        fn phase(&self) -> Phase {
            Phase::new("count")
        }
        fn digest(&self) -> u64 {
            self.0
        }
        fn outcome(&self) -> Option<String> {
            (self.0 == 0).then(|| "counted".to_owned())
        }
    }

    #[test]
    fn a_worker_that_dies_loses_one_match_at_most_and_plays_the_others_on() {
        let telemetry = Telemetry::start(TelemetryOptions::default()).expect("no files");
        let network = MemoryNetwork::new(Condition::NONE, 1).expect("a condition");
        let (control, controls) = channel();
        let (ends, ended) = channel();
        let worker = Worker {
            number: 0,
            clock: telemetry.clock().clone(),
            controls,
            others: vec![control.clone()],
            ends,
            state: Arc::default(),
            balance: Arc::new(Balance::new(1, true)),
            core: None,
            scheduling: Scheduling::default(),
            spin_ns: 0,
        };
        let state = worker.state.clone();
        let game = |number: u64| {
            let address = std::net::SocketAddr::from(([10, 0, 0, 1], 40_000 + number as u16));
            let driver = Box::new(network.endpoint(address).expect("a free address"));
            let schema = Arc::new(Schema::builder().build().expect("a schema"));
            let server = Server::new(driver, schema, ServerOptions::new(1, random_key())).expect("options");
            let options = MatchOptions { rate_hz: 1_000, ..MatchOptions::new(format!("match {number}")) };
            let game = Match::new(options, Box::new(Countdown(50)), server, telemetry.recorder("m")).expect("no log");
            let deadlines = Deadlines::new(telemetry.clock().now_ns(), 1_000, Overrun::CatchUp { at_most: 9 });
            Box::new(Slot::new(MatchId(number), game, deadlines))
        };
        for number in 0..3_u64 {
            control.send(Control::Take(game(number))).expect("it listens");
        }
        control.send(Control::Die).expect("it listens");
        // One dies in a frame: from then on it plays nothing.
        let mut queue = Queue { slots: vec![game(8)], current: Some(game(9)), stopping: None, reported_ns: 0 };
        lock(&state).figures.matches = 2;
        lock(&state).playing.push_str("match 9");
        worker.revive(&mut queue, "a fault of the runtime");
        assert_eq!(lock(&state).figures().matches, 1);
        assert_eq!(lock(&state).playing(), None);
        assert_eq!(ended.try_recv().map(|(id, _)| id), Ok(MatchId(9)));
        let thread = std::thread::spawn(move || worker.run());
        let end = || ended.recv_timeout(Duration::from_secs(60)).expect("it ends");
        let mut ends: Vec<_> = (0..3).map(|_| end()).collect();
        ends.sort_by_key(|(id, _)| *id);
        let lines: Vec<String> = ends.iter().map(|(_, end)| end.to_string()).collect();
        assert_eq!(lines[..2], ["match 0, tick 50: counted", "match 1, tick 50: counted"]);
        assert!(lines[2].contains("its worker died: a fault of the runtime (") && lines[2].contains("worker.rs:"));
        assert_eq!(lock(&state).figures().deaths, 2);
        control.send(Control::Stop("done".to_owned())).expect("it listens");
        thread.join().expect("its panic was caught");
    }
}
