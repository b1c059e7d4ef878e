//! The program that docs/match.md builds in steps: the code of that page, and nothing else.

use std::error::Error;
use std::fs::File;
use std::sync::Arc;
use std::time::{Duration, Instant};

use throng::prelude::*;
use throng::{ChannelKey, ConnectionId};
use throng_match::{
    Digest, Flow, Game, GameError, Host, HostOptions, InputLog, Match, MatchOptions, Phase, Recording, Scopes, Seats,
    Subsystem, TickInput, build_id,
};
use throng_telemetry::{Telemetry, TelemetryOptions};

const PLAYERS: usize = 4;
const RATE_HZ: u32 = 128;
const EVERYBODY: ChannelKey = ChannelKey::Global(0);

#[derive(Clone, Copy, Default, Replicate)]
struct Climber {
    #[replicate(position(step = 0.01))]
    position: [f32; 3],
    #[replicate(integer(min = 0, max = 10_000))]
    points: u32,
    #[replicate(integer(min = 0, max = 3), initial_only)]
    seat: u8,
}

/// A client's command, sent in each of its frames: a direction, as two numbers from -127 to 127.
fn command(right: i8, forward: i8) -> [u8; 2] {
    [right as u8, forward as u8]
}

struct Hill {
    climbers: [Climber; PLAYERS],
    directions: [[f32; 2]; PLAYERS],
    wind: fastrand::Rng,
    points_to_win: u32,
    // The part of it that clients see: not read by `step`.
    objects: Vec<ObjectId>,
    subscribed: [Option<ConnectionId>; PLAYERS],
}

impl Hill {
    fn new(seed: u64, points_to_win: u32) -> Hill {
        let corners = [[-9.0, -9.0], [9.0, -9.0], [9.0, 9.0], [-9.0, 9.0]];
        let climber =
            |seat: usize| Climber { position: [corners[seat][0], corners[seat][1], 0.0], points: 0, seat: seat as u8 };
        Hill {
            climbers: std::array::from_fn(climber),
            directions: [[0.0; 2]; PLAYERS],
            wind: fastrand::Rng::with_seed(seed),
            points_to_win,
            objects: Vec::new(),
            subscribed: [None; PLAYERS],
        }
    }

    fn winner(&self) -> Option<usize> {
        self.climbers.iter().position(|climber| climber.points >= self.points_to_win)
    }
}

impl Game for Hill {
    fn step(&mut self, input: &TickInput<'_>, scopes: &mut Scopes) -> Flow {
        for seat in input.left {
            self.directions[seat.index()] = [0.0; 2]; // a player that is away stands still
        }
        for command in input.commands {
            // Any bytes may come. A command that is none of ours changes nothing.
            if let [right, forward] = command.bytes {
                let share = |byte: u8| f32::from((byte as i8).max(-127)) / 127.0;
                self.directions[command.seat.index()] = [share(*right), share(*forward)];
            }
        }
        scopes.time(Subsystem::MOVEMENT, |_| {
            for (climber, direction) in self.climbers.iter_mut().zip(&self.directions) {
                for (at, along) in climber.position.iter_mut().zip(direction) {
                    let gust = (self.wind.f32() - 0.5) * 2.0; // metres per second
                    *at = (*at + (along * 5.0 + gust) / RATE_HZ as f32).clamp(-10.0, 10.0);
                }
            }
        });
        let on_top = |climber: &&mut Climber| climber.position.iter().all(|at| at.abs() < 2.0);
        self.climbers.iter_mut().filter(on_top).for_each(|climber| climber.points += 1);
        if self.winner().is_some() { Flow::Over } else { Flow::Continue }
    }

    fn publish(&mut self, server: &mut Server, seats: &Seats, _scopes: &mut Scopes) -> Result<(), GameError> {
        if self.objects.is_empty() {
            for climber in self.climbers {
                self.objects.push(server.spawn(climber, Placement::Channel(EVERYBODY))?);
            }
        }
        for (seat, connection) in seats.connected() {
            let subscribed = &mut self.subscribed[seat.index()];
            if *subscribed != Some(connection) {
                server.subscribe(connection, EVERYBODY, 1)?;
                *subscribed = Some(connection);
            }
        }
        for (climber, &id) in self.climbers.iter().zip(&self.objects) {
            if let Some(shown) = server.get_mut::<Climber>(id) {
                *shown = *climber;
            }
        }
        Ok(())
    }

    fn phase(&self) -> Phase {
        let is_climbing = self.climbers.iter().all(|climber| climber.points == 0);
        Phase::new(if is_climbing { "climb" } else { "hold" })
    }

    fn digest(&self) -> u64 {
        let mut digest = Digest::new();
        digest.add(self.wind.get_seed());
        for (climber, direction) in self.climbers.iter().zip(&self.directions) {
            digest.add(climber.points.into());
            for at in climber.position.iter().chain(direction) {
                digest.add_f32(*at);
            }
        }
        digest.finish()
    }

    fn outcome(&self) -> Option<String> {
        let winner = self.winner()?;
        Some(format!("player {winner} wins with {} points", self.climbers[winner].points))
    }
}

fn options() -> ServerOptions {
    let tick_interval = Duration::from_secs(1) / RATE_HZ;
    ServerOptions { tick_interval, max_clients: 16, ..ServerOptions::new(0x6869_6C6C, random_key()) }
}

fn start(host: &mut Host, telemetry: &Telemetry, server: Server, log: File) -> Result<(), Box<dyn Error>> {
    let (seed, points_to_win) = (7, 256_u32);
    let recording = Recording {
        sink: Box::new(log),
        build: build_id()?,
        game: "hill".to_owned(),
        seed,
        map_checksum: 0,
        settings: points_to_win.to_le_bytes().to_vec(),
    };
    let options = MatchOptions {
        rate_hz: RATE_HZ,
        seats: Seats::reserved(&[1, 2, 3, 4]), // these client ids, in this order
        recording: Some(recording),
        ..MatchOptions::new("hill 1")
    };
    let game = Box::new(Hill::new(seed, points_to_win));
    host.add(Match::new(options, game, server, telemetry.recorder("hill 1"))?);
    Ok(())
}

fn replay(log: &[u8]) -> Result<String, Box<dyn Error>> {
    let log = InputLog::open(log)?;
    log.check(&build_id()?, "hill", 0)?;
    let points_to_win = u32::from_le_bytes(log.head().settings[..].try_into()?);
    let mut game = Hill::new(log.head().seed, points_to_win);
    let replayed = log.replay(&mut game)?;
    Ok(format!("{} ticks, {} digests equal", replayed.ticks, replayed.digests))
}

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let schema = Arc::new(Schema::builder().kind::<Climber>().build()?);
    let options = options();
    let issuer = options.token_issuer();
    let telemetry = Telemetry::start(TelemetryOptions::default())?;
    let _collecting = telemetry.collect_in_background()?;
    let mut host = Host::start(HostOptions::default(), telemetry.clock().clone())?;

    let server = Server::bind("127.0.0.1:0".parse()?, Arc::clone(&schema), options)?;
    let address = server.local_address();
    let path = std::env::temp_dir().join(format!("hill-{}.log", std::process::id()));
    start(&mut host, &telemetry, server, File::create(&path)?)?;

    // Players, in place of programs of their own. Each walks to the top of the hill.
    let began = Instant::now();
    let now = || Time::from(began.elapsed());
    let mut clients = Vec::new();
    for client_id in 1..=PLAYERS as u64 {
        let token = issuer.issue(client_id, &[address])?;
        clients.push(Client::connect(token, Arc::clone(&schema), ClientOptions::default(), now())?);
    }
    let (_, end) = loop {
        for (number, client) in clients.iter_mut().enumerate() {
            client.update(now())?;
            while client.poll_event().is_some() {}
            let own = client.objects::<Climber>().find(|(_, climber)| usize::from(climber.seat) == number);
            if let (true, Some((_, climber))) = (client.is_connected(), own) {
                let [right, forward, _] = climber.position.map(|at| (-at * 127.0).clamp(-127.0, 127.0) as i8);
                client.send_input(&command(right, forward))?;
            }
        }
        if let Some(end) = host.wait_end(Duration::from_secs(1) / RATE_HZ) {
            break end;
        }
    };

    println!("{end}");
    let figures = telemetry.snapshot();
    println!("{} frames, p99 {:.3} ms", figures.frames, figures.frame_ns.p99 as f64 / 1e6);
    println!("replay: {}", replay(&std::fs::read(&path)?)?);
    std::fs::remove_file(&path)?;
    Ok(())
}
