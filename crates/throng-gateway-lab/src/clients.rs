//! The clients of a run: thousands of players in one thread.
//!
//! Each has its own connection, logs in, is subscribed, walks, and calls its server 30 times a second. All of them
//! count received updates; four of them also decode the updates and measure their age.

mod client;
mod report;

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use hdrhistogram::Histogram;
use throng_machine::clock;
use throng_machine::piped::answer;
use throng_wire::Time;

use crate::control::{Command, Commands, Line};
use crate::light::Message;
use crate::link::{RETRY, Reader, Rounds, SCRATCH_BYTES};
use crate::load::{Load, Transport};
use crate::times::histogram;
use client::{Client, Context};
pub(super) use report::{ClientsProgress, ClientsReport};

/// Shortest time between two reads of a client's socket: a game with 60 frames per second reads less often.
const ROUND: Duration = Duration::from_millis(2);
/// Clients that connect per second.
pub(super) const CONNECTS_PER_S: u32 = 250;
const CONNECT_INTERVAL: Duration = Duration::from_micros(1_000_000 / CONNECTS_PER_S as u64);
/// A gateway accepts clients within this time after the world servers are ready.
const DOOR_PATIENCE: Duration = Duration::from_secs(5);
/// Clients that decode.
const SAMPLES: usize = 4;
/// Number of different end reasons that are counted separately.
const REASONS: usize = 16;

/// The clients' type of line.
pub(super) type ClientsLine = Line<ClientsProgress, ClientsReport>;

/// Plays until told to stop.
pub(super) fn play(load: Load) -> io::Result<()> {
    let commands = Commands::listen();
    let mut crowd = Crowd::new(load)?;
    loop {
        crowd.round()?;
        if let Some(progress) = crowd.take_progress() {
            answer(&ClientsLine::Progress(progress));
        }
        match commands.poll() {
            Some(Command::Players(number)) => crowd.want(number),
            Some(Command::Go) => crowd.begin(),
            Some(Command::Measure) => crowd.measure(),
            Some(Command::Settle) => crowd.settle(),
            Some(Command::Stop) => break,
            // That is for world servers.
            Some(Command::Kill) | None => {}
        }
    }
    answer(&ClientsLine::Done(Box::new(crowd.report())));
    Ok(())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Before the measured part.
    Gathering,
    Measuring,
    Settling,
}

struct Crowd {
    load: Load,
    rounds: Rounds,
    clients: Vec<Client>,
    ready: Vec<usize>,
    scratch: Vec<u8>,
    phase: Phase,
    /// Whether they have begun to play; before that they are connected and silent.
    plays: bool,
    started: Time,
    wanted: Wanted,
    /// The earliest moment of the next connection.
    next_connect: Time,
    seen: Seen,
    ends: BTreeMap<String, u32>,
    /// Clients that reconnect, and the time of their next attempt.
    returning: Vec<(Time, usize)>,
    second: Second,
    window: Window,
}

/// The number of clients that are to play: those with the first indices. And how long each of them was to.
struct Wanted {
    number: u32,
    since: Time,
    /// By client, in the measured part.
    times: Vec<Duration>,
}

impl Wanted {
    fn new(number: u32, now: Time) -> Wanted {
        Wanted { number, since: now, times: Vec::new() }
    }

    /// From now on so many. The number before.
    fn set(&mut self, number: u32, now: Time) -> u32 {
        let passed = now.since(self.since);
        self.since = now;
        self.times.resize(self.times.len().max(self.number as usize), Duration::ZERO);
        self.times[..self.number as usize].iter_mut().for_each(|time| *time += passed);
        std::mem::replace(&mut self.number, number)
    }

    /// The measured part begins.
    fn begin(&mut self, now: Time) {
        self.times.clear();
        self.since = now;
    }
}

/// The ages that the decoding clients measured, in microseconds.
struct Seen {
    age_us: Histogram<u32>,
    second_us: Histogram<u32>,
}

/// Counted since the last progress.
struct Second {
    since: Time,
    cpu_s: f64,
    sums: Sums,
}

/// The measured part.
struct Window {
    began: Time,
    ended: Time,
    cpu_s: f64,
    late_us: Histogram<u32>,
    sums: Sums,
    /// By client: updates when it began, and then those in it.
    updates: Vec<u64>,
    /// By client: the longest times without an update and without an answer.
    silences: Vec<[Duration; 2]>,
}

/// Sums over the clients.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    updates: u64,
    actor_states: u64,
    messages_in: u64,
    bytes_in: u64,
    messages_out: u64,
    bytes_out: u64,
    acknowledgements: u64,
    due: u64,
    sent: u64,
}

impl Crowd {
    fn new(load: Load) -> io::Result<Crowd> {
        let now = clock::now();
        Ok(Crowd {
            rounds: Rounds::new(ROUND)?,
            clients: Vec::with_capacity(load.clients as usize),
            ready: Vec::new(),
            scratch: vec![0; SCRATCH_BYTES],
            phase: Phase::Gathering,
            plays: false,
            started: now,
            wanted: Wanted::new(load.first, now),
            next_connect: now,
            seen: Seen { age_us: histogram(), second_us: histogram() },
            ends: BTreeMap::new(),
            second: Second { since: now, cpu_s: clock::process_cpu_s(), sums: Sums::default() },
            window: Window {
                began: now,
                ended: now,
                cpu_s: 0.0,
                late_us: histogram(),
                sums: Sums::default(),
                updates: Vec::new(),
                silences: Vec::new(),
            },
            returning: Vec::new(),
            load,
        })
    }

    fn round(&mut self) -> io::Result<()> {
        self.ready.clear();
        let late = self.rounds.wait(&mut self.ready)?;
        if self.phase == Phase::Measuring {
            self.window.late_us.saturating_record(late.as_micros() as u64);
        }
        let now = clock::now();
        self.connect(now)?;
        self.come_again(now)?;
        self.receive(now);
        for index in 0..self.clients.len() {
            let client = &mut self.clients[index];
            if self.plays && self.phase != Phase::Settling {
                client.act(&self.load, now);
            }
            if let Err(error) = client.flush() {
                self.end(index, &error.to_string());
            }
        }
        Ok(())
    }

    fn connect(&mut self, now: Time) -> io::Result<()> {
        if self.clients.len() >= self.wanted.number as usize {
            self.next_connect = now;
        }
        while self.clients.len() < self.wanted.number as usize && now >= self.next_connect {
            self.next_connect = self.next_connect.after(CONNECT_INTERVAL);
            let index = self.clients.len();
            let step = (self.load.clients as usize / SAMPLES).max(1);
            let is_sample = index.is_multiple_of(step) && index / step < SAMPLES;
            let (door, client) = (self.load.door_of(index as u32, 0), index as u32);
            let reader = match Reader::connect_client(door, self.load.transport, client) {
                // Some gateways accept no clients before a server owns GLOBAL, so wait a moment.
                Err(error) if index == 0 && error.kind() == io::ErrorKind::ConnectionRefused => {
                    if now.since(self.started) < DOOR_PATIENCE {
                        return Ok(());
                    }
                    return Err(error);
                }
                reader => reader?,
            };
            let client = Client::new(reader, index as u32, is_sample);
            self.rounds.watch(client.reader(), index)?;
            self.clients.push(client);
            if self.load.transport == Transport::Throng {
                // That took two round trips, in which the others had to wait: the next one comes in another round.
                self.next_connect = self.next_connect.max(clock::now());
                return Ok(());
            }
        }
        Ok(())
    }

    /// So many clients play from now on. Those that were there before connect first.
    fn want(&mut self, number: u32) {
        let number = number.min(self.load.clients);
        let now = clock::now();
        let before = self.wanted.set(number, now);
        self.returning.retain(|(_, index)| *index < number as usize);
        let Crowd { clients, rounds, .. } = self;
        for client in clients.iter_mut().take(before as usize).skip(number as usize).filter(|client| client.is_open()) {
            rounds.forget(client.reader());
            client.leave();
        }
        let known = (self.clients.len() as u32).min(number);
        let back = (before..known).enumerate();
        self.returning.extend(back.map(|(place, index)| (now.after(CONNECT_INTERVAL * place as u32), index as usize)));
    }

    fn come_again(&mut self, now: Time) -> io::Result<()> {
        let Crowd { returning, clients, rounds, load, .. } = self;
        let (mut watched, mut is_over) = (Ok(()), false);
        returning.retain_mut(|(due, index)| {
            if *due > now || is_over {
                return true;
            }
            // As for those that come for the first time.
            is_over = load.transport == Transport::Throng;
            *due = now.after(RETRY);
            let client = &mut clients[*index];
            if client.come_again(load, *index as u32, now).is_err() {
                return true;
            }
            if let Err(error) = rounds.watch(client.reader(), *index) {
                watched = Err(error);
            }
            false
        });
        watched
    }

    fn receive(&mut self, now: Time) {
        for place in 0..self.ready.len() {
            let index = self.ready[place];
            let is_measuring = self.phase == Phase::Measuring;
            let (load, seen) = (&self.load, &mut self.seen);
            let mut context = Context {
                load,
                now,
                take_age: |age_us: u64| {
                    seen.second_us.saturating_record(age_us);
                    if is_measuring {
                        seen.age_us.saturating_record(age_us);
                    }
                },
            };
            if let Err(reason) = self.clients[index].receive(&mut self.scratch, &mut context) {
                self.end(index, &reason);
            }
        }
    }

    fn end(&mut self, index: usize, reason: &str) {
        let client = &mut self.clients[index];
        if !client.is_open() {
            return;
        }
        self.rounds.forget(client.reader());
        client.close();
        if self.load.outlives_gateway() {
            return self.returning.push((clock::now().after(RETRY), index));
        }
        if self.ends.len() < REASONS || self.ends.contains_key(reason) {
            *self.ends.entry(reason.to_owned()).or_default() += 1;
        }
    }

    fn begin(&mut self) {
        self.plays = true;
        let count = self.clients.len().max(1) as u64;
        let now = clock::now();
        for (index, client) in self.clients.iter_mut().enumerate() {
            client.begin(now, index as u64, count);
        }
    }

    fn measure(&mut self) {
        self.phase = Phase::Measuring;
        let sums = self.sums();
        self.window.began = clock::now();
        self.window.cpu_s = clock::process_cpu_s();
        self.window.sums = sums;
        self.wanted.begin(self.window.began);
        self.window.updates = self.clients.iter().map(|client| client.counts.updates).collect();
        for client in &mut self.clients {
            client.watch_silence(self.window.began);
        }
    }

    fn settle(&mut self) {
        if self.phase != Phase::Measuring {
            self.measure();
        }
        self.phase = Phase::Settling;
        self.window.ended = clock::now();
        self.window.cpu_s = clock::process_cpu_s() - self.window.cpu_s;
        self.window.sums = self.sums().minus(self.window.sums);
        self.wanted.set(self.wanted.number, self.window.ended);
        // Clients that came later had none before.
        self.window.updates.resize(self.clients.len(), 0);
        for (before, client) in self.window.updates.iter_mut().zip(&self.clients) {
            *before = client.counts.updates - *before;
        }
        let ended = self.window.ended;
        self.window.silences = self.clients.iter_mut().map(|client| client.longest_silences(ended)).collect();
    }

    fn sums(&self) -> Sums {
        let mut sums = Sums::default();
        for client in &self.clients {
            let (reader, counts) = (client.reader(), &client.counts);
            sums.updates += counts.updates;
            sums.actor_states += counts.actor_states;
            sums.messages_in += reader.messages;
            sums.bytes_in += reader.bytes;
            sums.messages_out += client.messages_out();
            sums.bytes_out += counts.bytes_out;
            sums.acknowledgements += counts.acknowledgements;
            sums.due += counts.due;
            sums.sent += counts.sent;
        }
        sums
    }
}

impl Sums {
    fn minus(self, before: Sums) -> Sums {
        Sums {
            updates: self.updates - before.updates,
            actor_states: self.actor_states - before.actor_states,
            messages_in: self.messages_in - before.messages_in,
            bytes_in: self.bytes_in - before.bytes_in,
            messages_out: self.messages_out - before.messages_out,
            bytes_out: self.bytes_out - before.bytes_out,
            acknowledgements: self.acknowledgements - before.acknowledgements,
            due: self.due - before.due,
            sent: self.sent - before.sent,
        }
    }
}

/// Whether a message is an update that counts: of a single channel, or of an entity.
fn is_update(load: &Load, message: &Message<'_>) -> bool {
    use throng_channeld::{FIRST_ENTITY_CHANNEL, message_type::CHANNEL_DATA_UPDATE};
    let is_entity = message.channel >= FIRST_ENTITY_CHANNEL;
    message.kind == CHANNEL_DATA_UPDATE && is_entity == load.scene.has_entities()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_client_is_judged_by_the_time_in_which_it_was_to_play() {
        let at = |seconds: u64| Time(seconds * 1_000_000);
        let mut wanted = Wanted::new(2, at(0));
        assert_eq!(wanted.set(3, at(5)), 2);
        wanted.begin(at(10));
        assert_eq!(wanted.set(4, at(11)), 3);
        assert_eq!(wanted.set(1, at(14)), 4);
        wanted.set(1, at(20));
        assert_eq!(wanted.times, [10, 4, 4, 3].map(Duration::from_secs), "the warm-up does not count");
    }
}
