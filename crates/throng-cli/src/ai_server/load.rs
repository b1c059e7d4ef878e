//! Matches of agents on a number of threads, each with its own.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use throng::Tick;
use throng_agent::{Navigation, PathFinder, Rays};
use throng_lab::clock::{machine_cpu_s, process_cpu_s};
use throng_match::{Flow, Game, Scopes, TickInput};
use throng_tactical::brain::{Skill, Squad, SquadOptions, Stage};
use throng_tactical::{Arena, Rules, Tactical};

use super::AGENTS;
use super::figures::Step;
use crate::allocation;

/// The part of a step before its measured part, in seconds.
const WARM_UP_S: f64 = 1.0;
/// A match is played so many ticks at most before it joins, so that matches are in different phases.
const AHEAD_TICKS: u64 = 400;
/// Ticks whose length is kept, for percentiles.
const SAMPLES: usize = 1 << 20;

/// The parts and settings of each match.
#[derive(Clone)]
pub(super) struct Work {
    pub(super) arena: Arena,
    pub(super) navigation: Navigation,
    /// Another engine for rays than the map.
    pub(super) rays: Option<Arc<dyn Rays + Send + Sync>>,
    pub(super) fan_rays: u32,
    pub(super) tick_hz: u32,
    pub(super) deadline_us: u64,
    pub(super) seed: u64,
}

enum Order {
    /// From now on so many matches.
    Resize(usize),
    /// Play so long, the warm-up included.
    Hold { warm_up: Duration, measured: Duration },
}

/// The measurements of a thread.
#[derive(Default)]
struct Report {
    ticks: u64,
    late_ticks: u64,
    allocations: u64,
    tick_us: Vec<u32>,
    rays: u64,
}

type Answer = Result<Report>;

/// The threads.
pub(super) struct Load {
    workers: Vec<Worker>,
    matches: usize,
    fan_rays: u32,
}

struct Worker {
    orders: Sender<Order>,
    answers: Receiver<Answer>,
    _thread: JoinHandle<()>,
}

impl Load {
    pub(super) fn start(work: &Work, threads: usize) -> Result<Load> {
        let start = |thread: usize| {
            let (orders, inbox) = channel();
            let (outbox, answers) = channel();
            let work = Work { seed: work.seed ^ (thread as u64) << 32, ..work.clone() };
            let body = move || Player::new(work).serve(&inbox, &outbox);
            let builder = std::thread::Builder::new().name(format!("agents-{thread}"));
            let _thread = builder.spawn(body).context("cannot start a thread")?;
            Ok(Worker { orders, answers, _thread })
        };
        let workers = (0..threads).map(start).collect::<Result<Vec<Worker>>>()?;
        Ok(Load { workers, matches: 0, fan_rays: work.fan_rays })
    }

    /// From now on so many matches, spread over the threads.
    pub(super) fn resize(&mut self, matches: usize) -> Result<()> {
        let threads = self.workers.len();
        let share = |worker: usize| matches / threads + usize::from(worker < matches % threads);
        self.ask(|worker| Order::Resize(share(worker)))?;
        self.matches = matches;
        Ok(())
    }

    /// Plays for a while and says how it went.
    pub(super) fn hold(&mut self, seconds: f64) -> Result<Step> {
        let (warm_up, measured) = (Duration::from_secs_f64(WARM_UP_S), Duration::from_secs_f64(seconds));
        for worker in &self.workers {
            worker.orders.send(Order::Hold { warm_up, measured }).map_err(|_| anyhow!("a thread has ended"))?;
        }
        std::thread::sleep(warm_up);
        let (start, cpu_s, machine_s) = (Instant::now(), process_cpu_s(), machine_cpu_s());
        std::thread::sleep(measured);
        let (own_s, wall_s) = (process_cpu_s() - cpu_s, start.elapsed().as_secs_f64());
        let others_s = machine_cpu_s().zip(machine_s).map(|(after, before)| after - before - own_s);
        let share = own_s / wall_s / self.workers.len() as f64;
        let reports = self.workers.iter().map(Worker::answer).collect::<Result<Vec<Report>>>()?;
        let sum = |part: fn(&Report) -> u64| reports.iter().map(part).sum::<u64>();
        let mut tick_us: Vec<u32> = reports.iter().flat_map(|report| report.tick_us.iter().copied()).collect();
        tick_us.sort_unstable();
        let at = |share: f64| tick_us.get((tick_us.len() as f64 * share) as usize).copied().unwrap_or_default();
        let (ticks, late_ticks) = (sum(|report| report.ticks), sum(|report| report.late_ticks));
        Ok(Step {
            matches: self.matches,
            seconds,
            cpu_share: share,
            others_cores: others_s.map(|others_s| (others_s / wall_s).max(0.0)),
            decisions: ticks * AGENTS as u64,
            late: late_ticks * AGENTS as u64,
            tick_us: [at(0.5), at(0.99)],
            allocations: sum(|report| report.allocations),
            rays: sum(|report| report.rays) + ticks * AGENTS as u64 * u64::from(self.fan_rays),
        })
    }

    fn ask(&self, order: impl Fn(usize) -> Order) -> Result<()> {
        for (index, worker) in self.workers.iter().enumerate() {
            worker.orders.send(order(index)).map_err(|_| anyhow!("a thread has ended"))?;
        }
        self.workers.iter().try_for_each(|worker| worker.answer().map(|_| ()))
    }
}

impl Worker {
    fn answer(&self) -> Answer {
        self.answers.recv().map_err(|_| anyhow!("a thread has ended"))?
    }
}

/// One match, and when its next tick is planned.
struct Match {
    game: Tactical,
    tick: u64,
}

impl Match {
    fn step(&mut self) -> Flow {
        self.tick += 1;
        self.game.step(&TickInput { tick: Tick(self.tick), ..TickInput::default() }, &mut Scopes::off())
    }
}

/// The matches of a thread.
struct Player {
    work: Work,
    finder: Arc<Mutex<PathFinder>>,
    matches: Vec<Match>,
    made: u64,
}

impl Player {
    fn new(work: Work) -> Player {
        let finder = Arc::new(Mutex::new(PathFinder::new(&work.navigation)));
        Player { work, finder, matches: Vec::new(), made: 0 }
    }

    fn serve(mut self, orders: &Receiver<Order>, answers: &Sender<Answer>) {
        while let Ok(order) = orders.recv() {
            let answer = match order {
                Order::Resize(count) => self.resize(count).map(|()| Report::default()),
                Order::Hold { warm_up, measured } => Ok(self.hold(warm_up, measured)),
            };
            if answers.send(answer).is_err() {
                return;
            }
        }
    }

    fn resize(&mut self, count: usize) -> Result<()> {
        self.matches.truncate(count);
        while self.matches.len() < count {
            let one = self.new_match()?;
            self.matches.push(one);
        }
        Ok(())
    }

    fn new_match(&mut self) -> Result<Match> {
        let Work { arena, navigation, tick_hz, .. } = &self.work;
        self.made += 1;
        let seed = self.work.seed.wrapping_add(self.made.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let rules =
            Rules { tick_hz: *tick_hz, team_size: 3, rounds_to_win: 100, buy_s: 4.0, money: 9_000, ..Rules::default() };
        let stage = Stage { arena, navigation, seats: rules.seats(), tick_hz: *tick_hz, seed };
        // Rays for all pairs in each tick.
        let options = SquadOptions {
            rays_per_tick: 72,
            agents_max: AGENTS,
            skill: Skill { fan_rays: self.work.fan_rays, ..Skill::default() },
            ..SquadOptions::default()
        };
        let mut squad = Squad::new(&stage, options)?.with_finder(Arc::clone(&self.finder));
        if let Some(rays) = &self.work.rays {
            squad = squad.with_rays(Arc::clone(rays));
        }
        let game = Tactical::new(arena.clone(), rules, seed)?.with_agents(Box::new(squad));
        let mut one = Match { game, tick: 0 };
        for _ in 0..seed % AHEAD_TICKS {
            one.step();
        }
        Ok(one)
    }

    /// Plays all matches, each tick at its planned time: never earlier, and none is left out.
    fn hold(&mut self, warm_up: Duration, measured: Duration) -> Report {
        let interval = Duration::from_secs(1) / self.work.tick_hz;
        let count = self.matches.len().max(1) as u32;
        let mut due: BinaryHeap<Reverse<(Duration, usize)>> =
            (0..self.matches.len()).map(|index| Reverse((interval * index as u32 / count, index))).collect();
        let mut report = Report { tick_us: Vec::with_capacity(SAMPLES), ..Report::default() };
        let (mut rays, mut allocations) = (0, 0);
        let mut is_measured = false;
        let start = Instant::now();
        while let Some(Reverse((planned, index))) = due.pop() {
            if planned >= warm_up + measured {
                continue;
            }
            if !is_measured && planned >= warm_up {
                (is_measured, rays, allocations) = (true, self.rays(), allocation::of_this_thread());
            }
            if let Some(wait) = planned.checked_sub(start.elapsed()) {
                std::thread::sleep(wait);
            }
            let began = start.elapsed();
            if self.matches[index].step() == Flow::Over {
                // A hundred rounds: it is not awaited. A match that is over does nothing.
                continue;
            }
            let done = start.elapsed();
            if is_measured {
                report.ticks += 1;
                report.late_ticks += u64::from(done.saturating_sub(planned).as_micros() as u64 > self.work.deadline_us);
                if report.tick_us.len() < SAMPLES {
                    report.tick_us.push((done - began).as_micros() as u32);
                }
            }
            due.push(Reverse((planned + interval, index)));
        }
        report.allocations = allocation::of_this_thread() - allocations;
        report.rays = self.rays() - rays;
        report
    }

    /// Rays of perception so far.
    fn rays(&self) -> u64 {
        self.matches.iter().map(|one| one.game.agents().map_or(0, |agents| agents.rays())).sum()
    }
}
