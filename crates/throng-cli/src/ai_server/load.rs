//! Matches of agents on a number of threads, each on a core of its own.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use throng::Tick;
use throng_agent::{Navigation, PathFinder, Rays};
use throng_gateway::process::resident_bytes;
use throng_machine::clock::{MachineUse, process_cpu_s};
use throng_match::{Flow, Game, Scopes, TickInput};
use throng_tactical::brain::{Skill, Squad, SquadOptions, Stage};
use throng_tactical::{AgentCounters, Arena, Rules, Tactical};
use throng_telemetry::{Collecting, Phase, Recorder, Snapshot, Telemetry, TelemetryOptions};

use super::AGENTS;
use super::figures::{CountedSample, Step};
use super::pace::{Pace, SAMPLES, Sample, Timing};
use crate::allocation;

/// Length of the live phase of a round, in seconds. Short, so that matches can be spread over whole rounds.
const LIVE_S: f32 = 30.0;
/// A match is played so long at most before it joins, in seconds: more than most rounds last. Dead agents cost nothing. With
/// matches that begin together, the load would fall while they are held.
const AHEAD_S: u64 = 40;
/// Records of verdicts are taken out of a match every so many ticks, as a server does that keeps them.
const VERDICTS_TICKS: u64 = 16;
/// Room for the records that a match can keep.
const VERDICTS_BYTES: usize = 512 * 1_024;
/// Each frame of telemetry is one tick of one match.
const FRAME: Phase = Phase::new("agents");
/// Nobody asks for a trace: so little is kept.
const KEPT: Duration = Duration::from_millis(200);
/// A match that would be older at the end of a hold is replaced by a new one before it, in seconds. None is over so soon:
/// a hundred rounds of 4 s to buy and 3 s at the end last longer.
const OLD_S: u64 = 700;
/// No hold is longer with its warm-up, so that a new match can play it to its end.
pub(super) const HOLD_S_MAX: u64 = OLD_S - AHEAD_S;
/// Ctrl-C is noticed within this time.
const LOOK: Duration = Duration::from_millis(100);

/// The parts and settings of each match.
#[derive(Clone)]
pub(super) struct Work {
    pub(super) arena: Arena,
    pub(super) navigation: Navigation,
    /// Another engine for rays than the map.
    pub(super) rays: Option<Arc<dyn Rays + Send + Sync>>,
    pub(super) fan_rays: u32,
    pub(super) timing: Timing,
    pub(super) seed: u64,
    pub(super) stop: Arc<AtomicBool>,
}

enum Order {
    /// Have so many matches at least.
    Make(usize),
    /// Play so many of them, from this moment on.
    Hold { matches: usize, start: Instant },
}

/// The measurements of a thread.
struct Report {
    samples: [Sample; SAMPLES],
    allocations: u64,
    work: AgentCounters,
    history_bytes: usize,
}

/// Nothing after [`Order::Make`], or if the hold was interrupted.
type Answer = Result<Option<Report>>;

/// The threads.
pub(super) struct Load {
    workers: Vec<Worker>,
    telemetry: Telemetry,
    _collecting: Collecting,
    timing: Timing,
    stop: Arc<AtomicBool>,
    matches_made: usize,
    bytes_grown: Option<u64>,
}

struct Worker {
    orders: Sender<Order>,
    answers: Receiver<Answer>,
    _thread: JoinHandle<()>,
}

impl Load {
    /// Threads without matches, one on each core.
    ///
    /// # Errors
    /// A thread cannot be started, or not on its core.
    pub(super) fn start(work: &Work, cores: &[usize]) -> Result<Load> {
        let telemetry = Telemetry::start(TelemetryOptions { keep: KEPT, ..TelemetryOptions::default() })?;
        let _collecting = telemetry.collect_in_background().context("cannot start a thread")?;
        let start = |(thread, &core): (usize, &usize)| {
            let recorder = telemetry.recorder(&format!("agents-{core}"));
            let (orders, inbox) = channel();
            let (outbox, answers) = channel();
            let work = Work { seed: work.seed ^ (thread as u64) << 32, ..work.clone() };
            let body = move || {
                if core_affinity::set_for_current(core_affinity::CoreId { id: core }) {
                    Player::new(work, recorder).serve(&inbox, &outbox);
                } else {
                    let _ = outbox.send(Err(anyhow!("a thread cannot be put on core {core}")));
                }
            };
            let builder = std::thread::Builder::new().name(format!("agents-{core}"));
            let _thread = builder.spawn(body).context("cannot start a thread")?;
            Ok(Worker { orders, answers, _thread })
        };
        let workers = cores.iter().enumerate().map(start).collect::<Result<Vec<Worker>>>()?;
        let (stop, bytes_grown) = (Arc::clone(&work.stop), resident_bytes().map(|_| 0));
        let timing = work.timing;
        Ok(Load { workers, telemetry, _collecting, timing, stop, matches_made: 0, bytes_grown })
    }

    /// Plays so many matches for a hold; `None` if it was interrupted.
    ///
    /// # Errors
    /// A match cannot be made, or a thread has ended.
    pub(super) fn hold(&mut self, matches: usize) -> Result<Option<Step>> {
        let resident = resident_bytes();
        let threads = self.workers.len();
        let share = |worker: usize| matches / threads + usize::from(worker < matches % threads);
        self.order(|worker| Order::Make(share(worker)))?;
        self.answers()?;
        if self.is_stopped() {
            return Ok(None);
        }
        self.telemetry.reset_figures();
        let start = Instant::now();
        self.order(|worker| Order::Hold { matches: share(worker), start })?;
        let machine = self.watch(start);
        let reports = self.answers()?;
        if reports.len() < threads {
            return Ok(None);
        }
        if matches > self.matches_made {
            let grown = resident_bytes().zip(resident).map(|(after, before)| after.saturating_sub(before));
            self.bytes_grown = self.bytes_grown.zip(grown).map(|(sum, grown)| sum + grown);
            self.matches_made = matches;
        }
        Ok(Some(self.step(matches, &machine, &reports, self.telemetry.snapshot())))
    }

    /// Resident memory that each match has added to the process.
    pub(super) fn bytes_per_match(&self) -> Option<u64> {
        self.bytes_grown?.checked_div(self.matches_made as u64)
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Looks at the processor time of each counted sample.
    fn watch(&self, start: Instant) -> Machine {
        let Timing { sample, .. } = self.timing;
        let cores = self.workers.len() as f64;
        self.sleep_until(start + self.timing.counted_from());
        let (began, mut cpu_s, machine) = (Instant::now(), process_cpu_s(), MachineUse::begin());
        let (first_s, mut before) = (cpu_s, began);
        let mut cpu_shares = [0.0; SAMPLES];
        for (index, share) in cpu_shares.iter_mut().enumerate() {
            self.sleep_until(began + sample * (index as u32 + 1));
            let (now, now_s) = (Instant::now(), process_cpu_s());
            *share = (now_s - cpu_s) / now.duration_since(before).as_secs_f64().max(1e-9) / cores;
            (cpu_s, before) = (now_s, now);
        }
        let (own_s, wall_s) = (cpu_s - first_s, began.elapsed().as_secs_f64().max(1e-9));
        Machine { cpu_shares, others_cores: machine.so_far().of_others([own_s / wall_s]) }
    }

    fn step(&self, matches: usize, machine: &Machine, reports: &[Report], frames: Snapshot) -> Step {
        let sum = |part: fn(&Sample) -> u64| {
            reports.iter().flat_map(|report| report.samples.iter().map(part)).sum::<u64>() * AGENTS as u64
        };
        let (decisions, missed) = (sum(|sample| sample.ticks), sum(|sample| sample.missed));
        Step {
            matches,
            seconds: (self.timing.sample * SAMPLES as u32).as_secs_f64(),
            cpu_share: machine.cpu_shares.iter().sum::<f64>() / SAMPLES as f64,
            cpu_share_most: machine.cpu_shares.iter().copied().fold(0.0, f64::max),
            others_cores: machine.others_cores,
            decisions,
            late: sum(|sample| sample.late),
            missed,
            samples: counted(machine, reports),
            decided: reports.iter().map(|report| report.work.decisions).sum(),
            frames,
            allocations: reports.iter().map(|report| report.allocations).sum(),
            rays: reports.iter().map(|report| report.work.rays).sum(),
            history_bytes: reports.iter().map(|report| report.history_bytes).max().unwrap_or_default(),
        }
    }

    fn sleep_until(&self, time: Instant) {
        while !self.is_stopped() {
            let left = time.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            std::thread::sleep(left.min(LOOK));
        }
    }

    fn order(&self, order: impl Fn(usize) -> Order) -> Result<()> {
        for (index, worker) in self.workers.iter().enumerate() {
            // A thread that has ended has said why.
            if worker.orders.send(order(index)).is_err() {
                worker.answer()?;
                return Err(anyhow!("a thread has ended"));
            }
        }
        Ok(())
    }

    fn answers(&self) -> Result<Vec<Report>> {
        let reports = self.workers.iter().map(Worker::answer).collect::<Result<Vec<Option<Report>>>>()?;
        Ok(reports.into_iter().flatten().collect())
    }
}

impl Worker {
    fn answer(&self) -> Answer {
        self.answers.recv().map_err(|_| anyhow!("a thread has ended"))?
    }
}

fn counted(machine: &Machine, reports: &[Report]) -> Vec<CountedSample> {
    let of = |index: usize| {
        let sum = |part: fn(&Sample) -> u64| {
            reports.iter().map(|report| part(&report.samples[index])).sum::<u64>() * AGENTS as u64
        };
        let (decisions, late) = (sum(|sample| sample.ticks), sum(|sample| sample.late));
        CountedSample { cpu_share: machine.cpu_shares[index], decisions, late }
    };
    (0..SAMPLES).map(of).collect()
}

/// The machine during the counted samples.
struct Machine {
    cpu_shares: [f64; SAMPLES],
    others_cores: Option<f64>,
}

struct Match {
    game: Tactical,
    tick: u64,
}

impl Match {
    fn step(&mut self, verdicts: &mut Vec<u8>, scopes: &mut Scopes) -> Flow {
        self.tick += 1;
        let flow = self.game.step(&TickInput { tick: Tick(self.tick), ..TickInput::default() }, scopes);
        if self.tick.is_multiple_of(VERDICTS_TICKS) {
            verdicts.clear();
            self.game.take_verdicts(verdicts);
        }
        flow
    }
}

/// The matches of a thread.
struct Player {
    work: Work,
    finder: Arc<Mutex<PathFinder>>,
    matches: Vec<Match>,
    made: u64,
    verdicts: Vec<u8>,
    recorder: Recorder,
}

impl Player {
    fn new(work: Work, recorder: Recorder) -> Player {
        let finder = Arc::new(Mutex::new(PathFinder::new(&work.navigation)));
        let verdicts = Vec::with_capacity(VERDICTS_BYTES);
        Player { work, finder, matches: Vec::new(), made: 0, verdicts, recorder }
    }

    fn serve(mut self, orders: &Receiver<Order>, answers: &Sender<Answer>) {
        while let Ok(order) = orders.recv() {
            let answer = match order {
                Order::Make(count) => self.make(count).map(|()| None),
                Order::Hold { matches, start } => self.hold(matches, start),
            };
            if answers.send(answer).is_err() {
                return;
            }
        }
    }

    fn is_stopped(&self) -> bool {
        self.work.stop.load(Ordering::Relaxed)
    }

    fn make(&mut self, count: usize) -> Result<()> {
        let Timing { tick_hz, .. } = self.work.timing;
        let hold_ticks = self.work.timing.end().as_secs_f64() * f64::from(tick_hz);
        let old_ticks = (OLD_S * u64::from(tick_hz)).saturating_sub(hold_ticks.ceil() as u64);
        for index in 0..self.matches.len() {
            if self.matches[index].tick > old_ticks && !self.is_stopped() {
                self.matches[index] = self.new_match()?;
            }
        }
        while self.matches.len() < count && !self.is_stopped() {
            let one = self.new_match()?;
            self.matches.push(one);
        }
        Ok(())
    }

    fn new_match(&mut self) -> Result<Match> {
        let Work { arena, navigation, timing: Timing { tick_hz, .. }, fan_rays, .. } = self.work.clone();
        self.made += 1;
        let seed = self.work.seed.wrapping_add(self.made.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let rules = Rules {
            tick_hz,
            team_size: 3,
            rounds_to_win: 100,
            buy_s: 4.0,
            live_s: LIVE_S,
            money: 9_000,
            ..Rules::default()
        };
        let stage = Stage { arena: &arena, navigation: &navigation, seats: rules.seats(), tick_hz, seed };
        // Rays for all pairs in each tick.
        let options = SquadOptions {
            rays_per_tick: 72,
            agents_max: AGENTS,
            skill: Skill { fan_rays, ..Skill::default() },
            ..SquadOptions::default()
        };
        let mut squad = Squad::new(&stage, options)?.with_finder(Arc::clone(&self.finder));
        if let Some(rays) = &self.work.rays {
            squad = squad.with_rays(Arc::clone(rays));
        }
        let game = Tactical::new(arena, rules, seed)?.with_agents(Box::new(squad));
        let mut one = Match { game, tick: 0 };
        for _ in 0..seed % (AHEAD_S * u64::from(tick_hz)) {
            one.step(&mut self.verdicts, &mut Scopes::off());
        }
        Ok(one)
    }

    /// Plays the first matches, each tick at its planned time: never earlier, and none is left out.
    fn hold(&mut self, matches: usize, start: Instant) -> Answer {
        let counted_from = self.work.timing.counted_from();
        let mut pace = Pace::new(self.work.timing, matches);
        let mut before = None;
        self.recorder.set_on(false);
        while let Some(planned) = pace.poll_tick(start.elapsed()) {
            if self.is_stopped() {
                return Ok(None);
            }
            if before.is_none() && planned.at >= counted_from {
                before = Some((self.work(), allocation::of_this_thread()));
                self.recorder.set_on(true);
            }
            while let Some(wait) = planned.at.checked_sub(start.elapsed()) {
                std::thread::sleep(wait.min(LOOK));
                if self.is_stopped() {
                    return Ok(None);
                }
            }
            let began = start.elapsed();
            let one = &mut self.matches[planned.index];
            let mut frame = self.recorder.begin(one.tick, FRAME);
            frame.note_lateness_ns(began.saturating_sub(planned.at).as_nanos() as u64);
            let flow = one.step(&mut self.verdicts, &mut frame);
            frame.finish();
            ensure!(flow != Flow::Over, "a match was over before the end of a hold: shorten --hold");
            pace.handle_done(planned, start.elapsed());
        }
        let now = (self.work(), allocation::of_this_thread());
        let (before, allocated) = before.unwrap_or(now);
        let work = AgentCounters { decisions: now.0.decisions - before.decisions, rays: now.0.rays - before.rays };
        let history_bytes = self.matches.first().map_or(0, |one| one.game.history_bytes());
        Ok(Some(Report { samples: *pace.samples(), allocations: now.1 - allocated, work, history_bytes }))
    }

    /// The work of all agents so far.
    fn work(&self) -> AgentCounters {
        let counters = self.matches.iter().filter_map(|one| one.game.agents()).map(|agents| agents.counters());
        counters.fold(AgentCounters::default(), |sum, of| AgentCounters {
            decisions: sum.decisions + of.decisions,
            rays: sum.rays + of.rays,
        })
    }
}
