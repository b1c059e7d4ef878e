//! Servers that start again on a simulated bus, and ask the others for the states of their players. The oracle is what each process itself
//! has told, written down when it told it.

use std::collections::BTreeMap;
use std::time::Duration;

use throng::{ConnectionId, Time};
use throng_bus::sim::{SimBus, SimNet, Weather};
use throng_bus::{Bus, Command, Event, Limits, LocalHub, MemberId, Pattern, SubscriptionId};
use throng_edge::{
    Balance, BalanceCounters, BalanceOptions, Division, Origin, OriginEvent, OriginOptions, PlayerId, WorldName,
};
use throng_seeds::for_seeds;

use crate::worlds::calm;

const SERVERS: u16 = 4;
const STEP: Duration = Duration::from_millis(25);
/// Players of each server, with these numbers and those after them.
const PLAYERS: u64 = 500;
/// A question or a round that overtakes the news of its lease.
const REFUSED_MAX: u64 = 12;
/// Bytes of a state after its version: an answer takes several messages.
const FILLING: usize = 60;

struct Process {
    bus: SimBus,
    balance: Balance,
    origin: Origin,
    /// The version of each of its players, and whether it has any.
    version: u32,
    has_players: bool,
}

struct Stage {
    net: SimNet,
    servers: Vec<Option<Process>>,
    members: u64,
    /// The versions that the first process of each server has told.
    told: BTreeMap<u16, Vec<u32>>,
}

impl Stage {
    fn new(seed: u64, weather: Weather) -> Stage {
        let mut stage =
            Stage { net: SimNet::new(seed, weather), servers: Vec::new(), members: 0, told: BTreeMap::new() };
        stage.servers.resize_with(usize::from(SERVERS), || None);
        (0..SERVERS).for_each(|number| stage.start(number));
        stage
    }

    fn start(&mut self, number: u16) {
        self.members += 1;
        let bus = self.net.join(MemberId(self.members), Limits::default());
        let balance = balance(number, &bus);
        let origin = Origin::new(OriginOptions::default());
        let process = Process { bus, balance, origin, version: 0, has_players: false };
        self.servers[usize::from(number)] = Some(process);
    }

    fn process(&mut self, number: u16) -> &mut Process {
        self.servers[usize::from(number)].as_mut().unwrap()
    }

    fn now(&mut self, number: u16) -> Time {
        self.process(number).bus.clock()
    }

    fn pass(&mut self) {
        self.net.pass(STEP);
        for (number, process) in (0..).zip(&mut self.servers) {
            let Some(process) = process else { continue };
            let now = process.bus.clock();
            process.version += 1;
            let (version, count) = (process.version, if process.has_players { PLAYERS } else { 0 });
            let mut has_told = false;
            let ids = players(number).take(count as usize);
            let states = ids.inspect(|_| has_told = true).map(|id| (id, state(version)));
            process.balance.save(now, states);
            if has_told {
                self.told.entry(number).or_default().push(version);
            }
            let Process { bus, balance, origin, .. } = process;
            balance.settle(bus, origin, now, std::iter::empty());
        }
    }

    fn pass_for(&mut self, ms: u64) {
        (0..ms / STEP.as_millis() as u64).for_each(|_| self.pass());
    }

    /// How long it takes until a server may take players.
    fn until_ready(&mut self, number: u16) -> Result<Duration, String> {
        let began = self.net.now();
        while !self.process(number).balance.is_ready() {
            self.pass();
            if self.net.now().since(began) > Duration::from_secs(20) {
                return Err(format!("server {number} does not begin: {:?}", self.counters(number)));
            }
        }
        Ok(self.net.now().since(began))
    }

    fn counters(&mut self, number: u16) -> BalanceCounters {
        self.process(number).balance.counters()
    }

    /// The players of `of` whose states server `number` gives, which are of so many of its last rounds.
    fn taken(&mut self, number: u16, of: u16, rounds: usize) -> Result<usize, String> {
        let (now, told) = (self.now(number), &self.told[&of]);
        let told = told[told.len().saturating_sub(rounds)..].to_vec();
        let process = self.process(number);
        let states: Vec<Vec<u8>> = players(of).filter_map(|id| process.balance.take_saved(now, id)).collect();
        match states.iter().find(|given| !told.iter().any(|version| **given == state(*version))) {
            Some(wrong) => Err(format!("{wrong:?} was not told in the last rounds: {told:?}")),
            None => Ok(states.len()),
        }
    }
}

fn balance(number: u16, bus: &impl Bus) -> Balance {
    let division = Division::new(SERVERS, 64, 2).unwrap();
    Balance::new(BalanceOptions::new(WorldName::new("again").unwrap(), division, number), bus.member())
}

fn players(number: u16) -> impl Iterator<Item = u64> {
    (0..PLAYERS).map(move |player| u64::from(number) * 10_000 + player)
}

fn state(version: u32) -> Vec<u8> {
    let mut state = version.to_le_bytes().to_vec();
    state.resize(4 + FILLING, version as u8);
    state
}

fn has_players(stage: &mut Stage) {
    (0..SERVERS).for_each(|number| stage.process(number).has_players = true);
}

#[test]
fn the_servers_of_a_new_world_do_not_wait_for_each_other() {
    for_seeds(50, |seed| {
        let mut stage = Stage::new(seed, calm());
        let began = stage.net.now();
        for number in 0..SERVERS {
            stage.until_ready(number)?;
        }
        let took = stage.net.now().since(began);
        let counters: Vec<BalanceCounters> = (0..SERVERS).map(|number| stage.counters(number)).collect();
        if took > Duration::from_secs(1) || counters.iter().any(|counters| counters.recalls_unanswered > 0) {
            return Err(format!("{took:?}, {counters:?}"));
        }
        Ok(())
    });
}

#[test]
fn a_server_that_starts_again_at_once_knows_the_last_states_of_its_players() {
    for_seeds(60, |seed| {
        let mut stage = Stage::new(seed, calm());
        has_players(&mut stage);
        stage.pass_for(4_000 + seed * 17);
        // Two at once, of which each may ask the other one first.
        let gone = if seed % 3 == 0 { vec![0, 1] } else { vec![seed as u16 % SERVERS] };
        gone.iter().for_each(|&number| stage.servers[usize::from(number)] = None);
        stage.pass_for(seed % 5 * 150);
        gone.iter().for_each(|&number| stage.start(number));
        for &number in &gone {
            let took = stage.until_ready(number)?;
            // The lease of the former process ends within 3 s, and is looked for every 0.4 s.
            if took > Duration::from_millis(3_900) {
                return Err(format!("server {number} began after {took:?}"));
            }
            let refused: u64 = (0..SERVERS).map(|number| stage.counters(number).states_refused).sum();
            let (own, others) = (stage.taken(number, number, 2)?, stage.taken(number, (number + 2) % SERVERS, 2)?);
            let counters = stage.counters(number);
            if (own, others) != (PLAYERS as usize, 0) || counters.recalls_unanswered > 0 || refused > REFUSED_MAX {
                return Err(format!("{own} own states, {others} of a living server, {counters:?}"));
            }
            // They play there again. The others hear it, and give nobody away.
            stage.process(number).has_players = true;
        }
        stage.pass_for(1_500);
        for number in (0..SERVERS).filter(|number| !gone.contains(number)) {
            if stage.taken(number, gone[0], 2)? > 0 {
                return Err(format!("server {number} gives players away who are somewhere"));
            }
        }
        Ok(())
    });
}

/// Messages are lost and doubled, and the server that is asked dies: another one is asked, or it begins with what it has.
#[test]
fn in_any_storm_a_server_begins_and_is_given_no_state_that_is_wrong() {
    let (mut all, mut some) = (0, 0);
    for_seeds(200, |seed| {
        let weather = Weather {
            delay: Duration::from_millis(1)..Duration::from_millis(60),
            twice: 0.05,
            lost: if seed % 2 == 0 { 0.03 } else { 0.3 },
            lost_answers: 0.03,
            drift_ppm: 20_000,
            ..Weather::default()
        };
        let mut stage = Stage::new(seed, weather);
        has_players(&mut stage);
        stage.pass_for(5_000);
        stage.servers[3] = None;
        stage.start(3);
        let began = stage.net.now();
        while !stage.process(3).balance.is_ready() {
            stage.pass();
            let waited = stage.net.now().since(began).as_millis() as u64;
            // Around the time at which it asks.
            if waited / 25 == 100 + seed % 40 {
                stage.servers[0] = None;
            }
            if waited > 20_000 {
                return Err(format!("it does not begin: {:?}", stage.counters(3)));
            }
        }
        // Messages of its last rounds may be lost.
        let (own, others) = (stage.taken(3, 3, 6)?, stage.taken(3, 1, 6)?);
        // With so many losses, server 1 may have lost its lease.
        let others = if seed % 2 == 0 { others } else { 0 };
        if others > 0 {
            return Err(format!("{others} states of a living server"));
        }
        all += usize::from(own == PLAYERS as usize);
        some += usize::from(own > 0);
        Ok(())
    });
    eprintln!("{all} servers knew all of their players, {some} some");
    assert!(throng_seeds::is_partial() || (all > 90 && some > 150), "the storms say little: {all}, {some}");
}

/// A player who was away for less than a second has come anew: others take its stay for the later one.
#[test]
fn a_server_tells_since_when_it_has_a_player_of_its_last_stay() {
    let hub = LocalHub::new();
    let [mut bus, mut listener] = [1, 2].map(|member| hub.join(MemberId(member), Limits::default()));
    let pattern = Pattern::new("world.again.saved.*").unwrap();
    listener.handle_command(Time(0), Command::Subscribe { subscription: SubscriptionId(1), pattern }).unwrap();
    let (mut balance, mut origin) = (balance(0, &bus), Origin::new(OriginOptions::default()));
    let (mut now, mut told) = (Time(0), Vec::new());
    while told.len() < 6 {
        now = now.after(STEP);
        assert!(now < Time::from_secs(20), "{told:?}");
        balance.save(now, [(7, [1u8; 3])].into_iter());
        balance.settle(&mut bus, &mut origin, now, std::iter::empty());
        listener.handle_timeout(now);
        while let Some(event) = listener.poll_event(now) {
            let Event::Message(message) = event else { continue };
            // After the heads of the message and of the client.
            told.push(u32::from_le_bytes(*message.payload[20..].first_chunk().unwrap()));
            if told.len() == 3 {
                let player = PlayerId { edge: ConnectionId { index: 0, generation: 1 }, session: 1 };
                let joined = OriginEvent::Joined { player, client_id: 7, user_data: Box::new([0; 256]) };
                assert!(!balance.take(&joined, now), "it is the game's event");
            }
        }
    }
    assert_eq!(told, [0, 1_000, 2_000, 0, 1_000, 2_000]);
}
