//! Players: a socket, a client and a brain each, as programs of people would have. They know what their clients were sent.

mod pace;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use throng::{Client, ClientOptions, Key, Schema, Time};
use throng_agent::Navigation;
use throng_machine::piped;
use throng_match::Deadlines;
use throng_tactical::brain::{self, Player, Skill};
use throng_tactical::client::Eyes;
use throng_tactical::{Arena, Rules, kinds};

use crate::RangeError;
use crate::summary::Bots;
use pace::Planned;

/// A step that the bots tell of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// They know the map, and are about to connect.
    Ready,
    /// All bots that come first play.
    Joined,
}

/// The orders for bots. It goes to a second process as one line of JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// The servers, one for each match.
    pub servers: Vec<SocketAddr>,
    /// The key of their tokens.
    pub key: [u8; 32],
    /// Matches whose bots come first. Those of the others come when they are wanted.
    pub first: u32,
    /// Bots in each match.
    pub bots_per_match: u16,
    /// Seats of a match, also those of agents: the lower half attacks.
    pub seats: u16,
    /// Ticks, and commands of each bot, per second.
    pub tick_hz: u32,
    /// The seed of the brains.
    pub seed: u64,
    /// The map file.
    pub map: PathBuf,
    /// The core on which they run; `None`: any.
    pub core: Option<usize>,
}

/// How the bots did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BotsReport {
    /// Their figures, without the use of the processor.
    #[serde(flatten)]
    pub bots: Bots,
    /// Commands sent.
    pub commands: u64,
    /// Decisions of brains.
    pub decisions: u64,
    /// Decisions that were made more than a tick after their time.
    pub late_decisions: u64,
    /// Processor time of the bots' thread, in seconds; `None` where the system does not tell it.
    pub cpu_s: Option<f64>,
}

/// The wishes of the run while its bots play.
#[derive(Debug)]
pub struct Wanted {
    is_over: AtomicBool,
    matches: AtomicU32,
}

impl Wanted {
    /// The bots of so many matches. They never become fewer: a match that ends sends its bots away.
    pub fn new(matches: u32) -> Wanted {
        Wanted { is_over: AtomicBool::new(false), matches: AtomicU32::new(matches) }
    }

    /// The bots of so many matches are to play.
    pub fn want(&self, matches: u32) {
        self.matches.fetch_max(matches, Ordering::Relaxed);
    }

    /// All are to end.
    pub fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

struct Bot {
    client: Client,
    eyes: Eyes,
    player: Option<Player>,
    deadlines: Deadlines,
    seed: u64,
    was_in: bool,
    is_done: bool,
}

/// The second process: reads an [`Order`] from the standard input, writes each [`Step`], plays until the input ends, and writes
/// a [`BotsReport`]. A line `3` has the bots of the first three matches play.
///
/// # Errors
/// The order makes no sense, the map cannot be opened, or a socket.
pub fn serve() -> Result<(), RangeError> {
    let order: Order = piped::read_order().map_err(|error| RangeError::Bots(error.to_string()))?;
    let wanted = Arc::new(Wanted::new(order.first));
    let told = Arc::clone(&wanted);
    let numbers = piped::hear(|line| line.parse().ok());
    std::thread::spawn(move || {
        // The host closes the pipe at the end, and so does its death.
        numbers.into_iter().for_each(|matches| told.want(matches));
        told.end();
    });
    let report = play(&order, &wanted, |step| piped::answer(&step))?;
    piped::last_answer(&report).map_err(|error| RangeError::Bots(format!("the report cannot be written: {error}")))
}

/// Plays until it is [over](Wanted::end), or all matches are that were wanted. Tells each
/// [`Step`].
///
/// # Errors
/// The map cannot be opened or walked on, or a socket cannot be opened.
pub fn play(order: &Order, wanted: &Wanted, mut tell: impl FnMut(Step)) -> Result<BotsReport, RangeError> {
    if let Some(id) = order.core {
        core_affinity::set_for_current(core_affinity::CoreId { id });
    }
    let arena = Arena::new(throng_map::open(&order.map)?)?;
    let navigation = brain::navigation(arena.map())?;
    tell(Step::Ready);
    let mut crowd = Crowd::new(order, navigation)?;
    let mut has_told = false;
    while !wanted.is_over.load(Ordering::Relaxed) {
        crowd.begin(order, &arena, wanted.matches.load(Ordering::Relaxed))?;
        if crowd.bots.iter().all(|bot| bot.is_done) {
            break;
        }
        crowd.turn(order, &arena)?;
        if !has_told && crowd.report.bots.joined == crowd.bots.len() as u64 {
            has_told = true;
            tell(Step::Joined);
        }
    }
    Ok(crowd.report())
}

struct Crowd {
    bots: Vec<Bot>,
    /// Matches whose bots are among them.
    matches: usize,
    schema: Arc<Schema>,
    issuer: throng::TokenIssuer,
    navigation: Navigation,
    began: Instant,
    /// The processor time of this thread then: the map had been read and surveyed.
    cpu_s: Option<f64>,
    report: BotsReport,
    planned: Planned,
}

impl Crowd {
    fn new(order: &Order, navigation: Navigation) -> Result<Crowd, RangeError> {
        Ok(Crowd {
            bots: Vec::new(),
            matches: 0,
            schema: crate::site::schema()?,
            issuer: kinds::server_options(&Rules::default(), Key::new(order.key)).token_issuer(),
            navigation,
            began: Instant::now(),
            cpu_s: thread_cpu_s(),
            report: BotsReport::default(),
            planned: Planned::new(order.tick_hz),
        })
    }

    /// Has the bots of the first matches play, as many as are wanted.
    fn begin(&mut self, order: &Order, arena: &Arena, matches: u32) -> Result<(), RangeError> {
        let new = self.matches..order.servers.len().min(matches as usize);
        self.matches = self.matches.max(new.end);
        let (interval_ns, now_ns) = (self.planned.interval_ns(), self.began.elapsed().as_nanos() as u64);
        let count = order.servers.len() as u64 * u64::from(order.bots_per_match);
        for number in new {
            let server = order.servers[number];
            for bot in 0..u64::from(order.bots_per_match) {
                let place = number as u64 * u64::from(order.bots_per_match) + bot;
                let failed = |error: String| RangeError::Bots(format!("bot {bot} of match {number}: {error}"));
                let token = self.issuer.issue(bot + 1, &[server]).map_err(|error| failed(error.to_string()))?;
                let (schema, now) = (Arc::clone(&self.schema), Time(now_ns / 1_000));
                let client = Client::connect(token, schema, ClientOptions::default(), now);
                let client = client.map_err(|error| failed(error.to_string()))?;
                // Spread over a tick, as the commands of people are.
                let start_ns = now_ns + 1_000_000 + interval_ns * place / count.max(1);
                self.bots.push(Bot {
                    client,
                    eyes: Eyes::new(arena.clone()),
                    player: None,
                    deadlines: Deadlines::new(start_ns, order.tick_hz, Planned::overrun()),
                    seed: order.seed.wrapping_add(number as u64),
                    was_in: false,
                    is_done: false,
                });
            }
        }
        Ok(())
    }

    /// Waits for the bot that is due next, and plays its tick.
    fn turn(&mut self, order: &Order, arena: &Arena) -> Result<(), RangeError> {
        let waiting = self.bots.iter_mut().filter(|bot| !bot.is_done);
        let Some(bot) = waiting.min_by_key(|bot| bot.deadlines.next_ns()) else { return Ok(()) };
        let elapsed = |began: Instant| began.elapsed().as_nanos() as u64;
        let wait_ns = bot.deadlines.next_ns().saturating_sub(elapsed(self.began));
        if wait_ns > 0 {
            std::thread::sleep(Duration::from_nanos(wait_ns));
        }
        let now_ns = elapsed(self.began);
        let due = bot.deadlines.begin(now_ns);
        let now = Time(now_ns / 1_000);
        bot.client.update(now).map_err(|error| RangeError::Bots(error.to_string()))?;
        while let Some(event) = bot.client.poll_event() {
            bot.eyes.hear(&event);
        }
        if bot.client.end_reason().is_some() {
            bot.is_done = true;
            self.report.bots.lost += u64::from(!bot.was_in);
            return Ok(());
        }
        let Some(senses) = bot.eyes.look(&bot.client) else { return Ok(()) };
        self.planned.take(due);
        if !bot.was_in {
            bot.was_in = true;
            self.report.bots.joined += 1;
        }
        if bot.player.is_none() {
            let seats = usize::from(order.seats);
            let stage =
                brain::Stage { arena, navigation: &self.navigation, seats, tick_hz: order.tick_hz, seed: bot.seed };
            let player = Player::new(&stage, senses.me.seat, Skill::default());
            bot.player = Some(player.map_err(|error| RangeError::Bots(error.to_string()))?);
        }
        let Some(player) = &mut bot.player else { return Ok(()) };
        let before = player.brain().decisions();
        let command = player.tick(&senses);
        let decided = player.brain().decisions() - before;
        self.report.decisions += decided;
        if self.planned.is_late(due.late_ns) {
            self.report.late_decisions += decided;
        }
        if bot.client.is_connected() && bot.client.send_input(&command.encode()).is_ok() {
            self.report.commands += 1;
        }
        bot.client.flush(now);
        Ok(())
    }

    fn report(self) -> BotsReport {
        let cpu_s = thread_cpu_s().zip(self.cpu_s).map(|(now, before)| now - before);
        let Planned { late_us, late, missed, .. } = self.planned;
        let bots = Bots { late_p99_us: late_us.quantile(0.99), late, skipped: missed, ..self.report.bots };
        BotsReport { bots, cpu_s, ..self.report }
    }
}

/// Processor time of this thread, in seconds.
fn thread_cpu_s() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    Some(text.split_whitespace().next()?.parse::<f64>().ok()? / 1e9)
}
