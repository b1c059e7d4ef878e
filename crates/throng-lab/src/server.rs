//! A process that is a further server of a run: it has a part of the area, and edges connect to it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::mpsc::TryRecvError;
use std::time::Duration;

use anyhow::Context;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use throng::{Channels, Key, Replication, Tick, Time};
use throng_crowd::scenario::Scenario;
use throng_crowd::truth::{self, TruthWriter};
use throng_machine::clock;
use throng_machine::piped::{answer, read_order};
use throng_summary::ServerFigures;

use crate::bots::pin;
use crate::bus::{Access, BusOrder};
use crate::control::{Command, PartLine, PlayerCount, listen, say_to_bus};
use crate::cut::Cut;
use crate::host::{Door, Handovers, Host, Socket};
use crate::losses::Losses;

/// The players are told this often at most.
const TOLD_INTERVAL: Duration = Duration::from_millis(50);
/// Frames are told apart up to this length, in microseconds.
const FRAME_US_MAX: u64 = 60_000_000;

/// The orders for a server, as one line of JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ServerOrder {
    pub(crate) number: u16,
    pub(crate) key: [u8; 32],
    pub(crate) scenario: Scenario,
    /// The core that it is pinned to.
    pub(crate) core: Option<usize>,
    pub(crate) bus: BusOrder,
    /// The processes that had its place before it.
    pub(crate) life: u32,
    /// The file with the state, if a process before it has begun it.
    pub(crate) truth: Option<PathBuf>,
}

/// Where a server is reached, and the file with its state.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ServerPoint {
    pub(crate) address: SocketAddr,
    pub(crate) truth: PathBuf,
}

/// The figures of a server, and what it has lost or refused.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct ServerReport {
    pub(crate) figures: ServerFigures,
    pub(crate) losses: Losses,
}

/// A line of a server.
type ServerLine = PartLine<ServerPoint, ServerReport>;

/// Runs as a further server of a run: it reads its order and commands from standard input, and writes to standard output. It
/// ends with its input.
///
/// # Errors
/// The order makes no sense, or the server cannot start or go on. The process that started it gets the words too.
pub fn play_server() -> anyhow::Result<()> {
    let played = play();
    if let Err(error) = &played {
        answer(&ServerLine::Failed(format!("{error:#}")));
    }
    played
}

fn play() -> anyhow::Result<()> {
    let ServerOrder { number, key, scenario, core, bus: order, life, truth: begun } = read_order()?;
    pin(core.as_slice());
    let room = truth::room(&scenario);
    let mut truth = begun.map_or_else(|| TruthWriter::create(room), |begun| TruthWriter::go_on(&begun, room))?;
    let bus = Access::new(&order, &Cut::default())?;
    let socket = Socket::open(Some(&bus), ([127, 0, 0, 1], 0).into())?;
    let place = (number, Tick(truth::LIFE_TICKS * u64::from(life)));
    let door = Door { socket, public: None, key: Key::new(key) };
    let mut host = Host::with_model(&scenario, place, door, Channels::new)?;
    let (commands, lines) = listen();
    host.join_world(&order.world, bus.open(Box::new(say_to_bus), lines)?)?;
    let point = ServerPoint { address: host.server().local_address(), truth: truth.path().to_owned() };
    answer(&ServerLine::Ready(point));
    let mut watch: Option<ServerWatch> = None;
    let (mut figures, mut losses) = (ServerFigures::default(), None);
    let mut told = (PlayerCount::default(), clock::now());
    let (mut is_last, mut has_ended) = (false, false);
    loop {
        host.wait();
        let began = clock::now();
        truth.note_tick(host.server().current_tick(), began)?;
        let written = host.tick_written(|host, tick, plan| match (has_ended, is_last) {
            // Nothing is written over the last state.
            (true, _) => Ok(()),
            (false, true) => truth.write((tick, began), None, true, host.true_objects()),
            (false, false) => truth.write((tick, began), plan, false, host.true_changing()),
        });
        let (_, writing) = written.context("cannot write the server's state")?;
        has_ended = is_last;
        if let Some(watch) = &mut watch {
            watch.take(&host, clock::now().since(began).saturating_sub(writing));
        }
        let players = PlayerCount { connected: host.connected(), ended: host.ended() };
        if players != told.0 && began.since(told.1) >= TOLD_INTERVAL {
            told = (players, began);
            answer(&ServerLine::Players(players));
        }
        match commands.try_recv() {
            Ok(Command::Begin) => host.begin(),
            Ok(Command::Measure) => watch = Some(ServerWatch::begin(&host)),
            Ok(Command::Settle) => {
                figures = watch.take().map_or(figures, |watch| watch.figures(&host));
                losses = Some(host.losses());
            }
            Ok(Command::Freeze) => host.freeze(),
            Ok(Command::Last) => is_last = true,
            Ok(Command::Stop) | Err(TryRecvError::Disconnected) => break,
            Ok(Command::Cut) => host.cut(true),
            Ok(Command::Mend) => host.cut(false),
            Ok(
                Command::Players(_) | Command::MeasureAt(_) | Command::Drain | Command::ReadSlowly | Command::ReadAll,
            )
            | Err(TryRecvError::Empty) => {}
        }
    }
    if let Some(line) = bus.line() {
        eprintln!("server {}: {line}", number + 1);
    }
    let figures = watch.map_or(figures, |watch| watch.figures(&host));
    answer(&ServerLine::Done(ServerReport { figures, losses: losses.unwrap_or_else(|| host.losses()) }));
    Ok(())
}

/// The work of a server in the measured part.
pub(crate) struct ServerWatch {
    began: Time,
    cpu_s: f64,
    skipped: u64,
    handovers: Handovers,
    ticks: u64,
    players: u64,
    frame_us: Histogram<u64>,
}

impl ServerWatch {
    pub(crate) fn begin<R: Replication>(host: &Host<R>) -> ServerWatch {
        ServerWatch {
            began: clock::now(),
            cpu_s: clock::process_cpu_s(),
            skipped: host.skipped_ticks(),
            handovers: host.handovers(),
            ticks: 0,
            players: 0,
            frame_us: Histogram::new_with_bounds(1, FRAME_US_MAX, 2).expect("the bounds are possible"),
        }
    }

    /// Notes a tick that took so long.
    pub(crate) fn take<R: Replication>(&mut self, host: &Host<R>, worked: Duration) {
        self.ticks += 1;
        self.players += u64::from(host.connected());
        self.frame_us.saturating_record(worked.as_micros() as u64);
    }

    pub(crate) fn figures<R: Replication>(&self, host: &Host<R>) -> ServerFigures {
        let elapsed_s = clock::now().since(self.began).as_secs_f64().max(1e-6);
        let Handovers { arrived, released, resumed } = host.handovers();
        ServerFigures {
            players: self.players as f64 / self.ticks.max(1) as f64,
            frame_p99_ms: (self.ticks > 0).then(|| self.frame_us.value_at_quantile(0.99) as f64 / 1e3),
            cpu_cores: (clock::process_cpu_s() - self.cpu_s) / elapsed_s,
            missed_ticks: host.skipped_ticks() - self.skipped,
            arrived: arrived - self.handovers.arrived,
            resumed: resumed - self.handovers.resumed,
            released: released - self.handovers.released,
            players_by_second: Vec::new(),
        }
    }
}
