//! Each home has at most one owner at every moment, and no acknowledged message is lost or doubled: under moves, crash, delay,
//! partition, late commands and clocks of different speed. The oracle asks all members at each step, and keeps its own list of
//! acknowledged messages.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use throng_bus::sim::{SimNet, Weather};
use throng_bus::{Bus, Fence};
use throng_directory::HomeKey;
use throng_wire::Time;

use crate::node::{Entry, Node};

const KEYS: [HomeKey; 4] = [HomeKey::Channel(7), HomeKey::Cell(-3, 12), HomeKey::Entity(1), HomeKey::Session(9)];

#[derive(Default)]
struct Figures {
    moved: u64,
    kept: u64,
    lost: u64,
    acknowledged: u64,
    /// Seeds that say nothing: a lease has ended that should not.
    void: u64,
}

struct Storm {
    rng: fastrand::Rng,
    net: SimNet,
    nodes: Vec<Node>,
    sleeps_until: Vec<Time>,
    next_id: u64,
    is_up: bool,
    /// Without hard faults, connections are lost so rarely that no lease ends.
    next_reset: Time,
    /// The longest way of a message in good times.
    slowest: Duration,
    /// With faults that end leases: then only checkpoints survive.
    is_hard: bool,
    newest: BTreeMap<HomeKey, Fence>,
    acknowledged: BTreeSet<(HomeKey, Entry)>,
    figures: Figures,
}

impl Storm {
    fn new(seed: u64, is_hard: bool) -> Storm {
        let mut rng = fastrand::Rng::with_seed(seed);
        let most = if is_hard { [5, 50, 300][rng.usize(0..3)] } else { [5, 60][rng.usize(0..2)] };
        let weather = Weather {
            delay: Duration::from_micros(100)..Duration::from_millis(most),
            twice: 0.1,
            lost: 0.03,
            lost_answers: [0.0, if is_hard { 0.2 } else { 0.02 }][rng.usize(0..2)],
            lost_operations: [0.0, if is_hard { 0.1 } else { 0.01 }][rng.usize(0..2)],
            drift_ppm: 40_000,
            server_drift_ppm: 40_000,
            ..Weather::default()
        };
        let net = SimNet::new(seed, weather);
        let nodes: Vec<Node> = (1..=3).map(|id| Node::new(&net, id, is_hard)).collect();
        Storm {
            rng,
            net,
            sleeps_until: vec![Time(0); nodes.len()],
            nodes,
            next_id: 4,
            is_up: true,
            next_reset: Time(0),
            slowest: Duration::from_millis(most),
            is_hard,
            newest: BTreeMap::new(),
            acknowledged: BTreeSet::new(),
            figures: Figures::default(),
        }
    }

    fn fault(&mut self) {
        let index = self.rng.usize(0..self.nodes.len());
        let id = self.nodes[index].bus.member();
        match self.rng.u16(0..400) {
            0..=2 if self.is_hard || self.net.now() >= self.next_reset => {
                self.next_reset = self.net.now().after(Duration::from_secs(3));
                self.net.reset(id);
            }
            _ if !self.is_hard => {}
            3 | 4 => self.net.cut(id, true),
            5..=20 => self.net.cut(id, false),
            21 => {
                self.is_up = false;
                self.net.run_server(false);
            }
            22..=40 if !self.is_up => {
                self.is_up = true;
                self.net.run_server(true);
            }
            41 => {
                self.collect(index);
                self.nodes[index] = Node::new(&self.net, self.next_id, true);
                self.next_id += 1;
            }
            42 | 43 => self.sleeps_until[index] = self.net.now().after(Duration::from_millis(self.rng.u64(100..9_000))),
            // So slow that answers come after everybody has given them up, or leases have ended.
            45 => self.net.set_weather(|weather| weather.delay.end = Duration::from_millis(1_500)),
            46..=60 => self.net.set_weather(|weather| weather.delay.end = self.slowest),
            44 => self.net.jump_server_clock(Duration::from_millis(self.rng.u64(0..100))),
            _ => {}
        }
    }

    /// The wishes of the members: homes, moves, messages.
    fn act(&mut self, is_calm: bool) {
        for index in 0..self.nodes.len() {
            let key = KEYS[self.rng.usize(0..KEYS.len())];
            if self.rng.u8(0..10) == 0 {
                self.nodes[index].claim(key);
            }
            if is_calm {
                continue;
            }
            if self.rng.u8(0..3) == 0 {
                self.nodes[index].send(key);
            }
            if self.rng.u8(0..15) == 0 {
                let to = self.rng.usize(0..self.nodes.len());
                let to = self.nodes[to].bus.member();
                let padding = if self.rng.u8(0..8) == 0 { 300_000 } else { 0 };
                if to != self.nodes[index].bus.member() {
                    self.nodes[index].move_to(key, to, padding);
                }
            }
            // Without checkpoints, what is given up is gone.
            if self.is_hard && self.rng.u8(0..20) == 0 {
                self.nodes[index].release(key);
            }
        }
    }

    fn step(&mut self) -> Result<(), String> {
        let now = self.net.now();
        for (node, sleeps_until) in self.nodes.iter_mut().zip(&self.sleeps_until) {
            if now >= *sleeps_until {
                node.run();
            }
            if !self.is_hard && node.has_had_term && node.directory.term(node.now()).is_none() {
                self.figures.void = 1;
                return Ok(());
            }
            for (key, fence) in node.claimed.drain(..) {
                let newest = self.newest.entry(key).or_default();
                if fence <= *newest {
                    return Err(format!("{key:?} was taken with {fence:?} after {newest:?}"));
                }
                *newest = fence;
            }
        }
        for key in KEYS {
            let owners: Vec<_> = self.nodes.iter().filter(|node| node.serves(key).is_some()).collect();
            if owners.len() > 1 {
                let owners: Vec<_> = owners.iter().map(|node| node.bus.member()).collect();
                return Err(format!("{key:?} is served by {owners:?} at {now:?}"));
            }
        }
        Ok(())
    }

    /// Keeps what a member knows of acknowledged messages.
    fn collect(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        self.acknowledged.append(&mut node.acknowledged);
        self.figures.moved += node.moved;
        self.figures.kept += node.kept;
        self.figures.lost += node.lost;
    }

    fn run(mut self) -> Result<Figures, String> {
        for _ in 0..400 {
            self.fault();
            self.act(false);
            self.net.pass(Duration::from_millis(self.rng.u64(1..60)));
            self.step()?;
            if self.figures.void > 0 {
                return Ok(self.figures);
            }
        }
        self.net.run_server(true);
        self.net.set_weather(|weather| {
            (weather.lost, weather.lost_answers, weather.lost_operations) = (0.0, 0.0, 0.0);
            weather.delay.end = self.slowest;
        });
        for node in &self.nodes {
            self.net.cut(node.bus.member(), false);
        }
        self.sleeps_until.fill(Time(0));
        for round in 0..1_500 {
            self.act(true);
            self.net.pass(Duration::from_millis(20));
            self.step()?;
            let is_settled = KEYS.iter().all(|key| self.nodes.iter().any(|node| node.serves(*key).is_some()));
            if self.figures.void > 0 {
                return Ok(self.figures);
            }
            if round > 100 && is_settled && !self.nodes.iter().any(Node::is_waiting) {
                break;
            }
        }
        for index in 0..self.nodes.len() {
            self.collect(index);
        }
        self.check()?;
        self.figures.acknowledged = self.acknowledged.len() as u64;
        Ok(self.figures)
    }

    fn check(&self) -> Result<(), String> {
        if self.nodes.iter().any(Node::is_waiting) {
            return Err("30 s after the last fault a message has no acknowledgement".to_owned());
        }
        for key in KEYS {
            let owner = self.nodes.iter().find(|node| node.serves(key).is_some());
            let owner = owner.ok_or_else(|| format!("30 s after the last fault nobody serves {key:?}"))?;
            let log = &owner.apps[&key].log;
            let mut newest: BTreeMap<u64, u64> = BTreeMap::new();
            for (sender, number) in log {
                let before = newest.insert(*sender, *number).unwrap_or(0);
                if *number <= before {
                    return Err(format!("{key:?}: {number} of {sender} was applied after {before}"));
                }
            }
            let applied: BTreeSet<Entry> = log.iter().copied().collect();
            let acknowledged = self.acknowledged.iter().filter(|(of, _)| *of == key).map(|(_, entry)| *entry);
            let missing: Vec<Entry> = acknowledged.filter(|entry| !applied.contains(entry)).collect();
            if !missing.is_empty() {
                return Err(format!("{key:?}: acknowledged and lost: {missing:?}"));
            }
        }
        Ok(())
    }
}

fn run(seeds: u64, is_hard: bool) -> (Figures, u64) {
    let (mut all, mut played) = (Figures::default(), 0);
    throng_seeds::for_seeds(seeds, |seed| {
        let figures = Storm::new(seed, is_hard).run()?;
        played += 1;
        all.moved += figures.moved;
        all.kept += figures.kept;
        all.lost += figures.lost;
        all.acknowledged += figures.acknowledged;
        all.void += figures.void;
        Ok(())
    });
    (all, played)
}

#[test]
fn a_home_has_one_owner_and_keeps_what_it_acknowledged_in_any_storm() {
    let (all, seeds) = run(600, true);
    if !throng_seeds::is_partial() {
        assert!(all.moved > 2 * seeds, "hardly a home moved: {} in {seeds}", all.moved);
        assert!(all.kept > seeds / 4, "hardly a move was given up: {} in {seeds}", all.kept);
        assert!(all.lost > 2 * seeds, "hardly a home was lost: {} in {seeds}", all.lost);
        assert!(all.acknowledged > 20 * seeds, "hardly a message came through: {} in {seeds}", all.acknowledged);
    }
}

#[test]
fn while_leases_hold_moves_lose_and_double_nothing_without_any_checkpoint() {
    let (all, seeds) = run(1_000, false);
    if !throng_seeds::is_partial() {
        assert!(all.moved > 10 * seeds, "hardly a home moved: {} in {seeds}", all.moved);
        assert!(all.acknowledged > 50 * seeds, "hardly a message came through: {} in {seeds}", all.acknowledged);
        assert!(all.void < seeds / 50, "{} of {seeds} seeds say nothing", all.void);
    }
}
