//! Everything at once: a world that changes at random, clients that come and go, changing network conditions, and
//! audits all the while.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use fastrand::Rng;
use throng::net::Condition;
use throng::replica::LimitReached;
use throng::{ChannelKey, Channels, ConnectionId, Facet, GridOptions, ObjectId, Placement};
use throng_testkit::{Beacon, BudgetAudit, Mode, Score, Steering, Walker, storm};

use super::oracle::Audience;
use super::truth::{Thing, Truth};
use super::{Contender, World, WorldOptions};

const WORLD_M: f32 = 30.0;

/// A beacon's new number in a piece of its own: what stands before a segment, and the update.
const BEACON_PIECE_BYTES: u32 = 16;

/// Ticks between two packets at the least rate: 250 ms.
const PACKET_INTERVAL_TICKS: u32 = 8;

/// The largest burst at this rate: the session's burst of 250 ms, at least a packet, and permitted excess: the packet
/// that began while there was still room, and urgent packets (handshake, close) within a burst.
pub fn burst_bytes(rate_bytes_per_s: u32) -> f64 {
    const PACKET_BYTES: f64 = 1_228.0;
    (f64::from(rate_bytes_per_s) * 0.25).max(PACKET_BYTES) + PACKET_BYTES
}

/// The parameters of the storms.
#[derive(Clone, Copy, Debug)]
pub struct StormOptions {
    pub clients: usize,
    pub storm_ticks: usize,
    /// Settling is given up after this many ticks.
    pub calm_ticks: usize,
    pub changes_per_tick: usize,
    /// Whether clients come and go.
    pub churn: bool,
    /// Whether network conditions change.
    pub weather: bool,
    /// Whether clients send inputs.
    pub inputs: bool,
    /// Send intervals of subscriptions made by hand, one of which is taken.
    pub intervals_ticks: [u16; 4],
}

impl Default for StormOptions {
    fn default() -> StormOptions {
        StormOptions {
            clients: 3,
            storm_ticks: 120,
            calm_ticks: 900,
            changes_per_tick: 5,
            churn: true,
            weather: true,
            inputs: true,
            intervals_ticks: [1, 1, 2, 5],
        }
    }
}

/// A world in a storm.
pub struct Storm<R: Contender = Channels> {
    pub world: World<R>,
    pub audiences: BTreeMap<u64, Audience>,
    pub walkers: Vec<ObjectId>,
    pub scores: Vec<ObjectId>,
    pub beacons: Vec<ObjectId>,
    pub truth: Truth,
    /// On what each client was sent.
    pub audits: BTreeMap<SocketAddr, BudgetAudit>,
    /// On what each client has sent.
    pub client_audits: BTreeMap<SocketAddr, BudgetAudit>,
    grids: Vec<GridOptions>,
    rate_bytes_per_s: u32,
    client_rate_bytes_per_s: u32,
    options: StormOptions,
    rng: Rng,
}

impl Storm {
    pub fn new(world_options: WorldOptions, options: StormOptions) -> Storm {
        Storm::over(World::new(world_options), options)
    }
}

impl<R: Contender> Storm<R> {
    /// A storm over a world without clients.
    pub fn over(mut world: World<R>, options: StormOptions) -> Storm<R> {
        let world_options = world.options();
        let grids = world_options.server.grids.clone();
        let rate_bytes_per_s = world_options.server.client_bytes_per_s;
        let client_rate_bytes_per_s = world_options.client.bytes_per_s;
        let rng = Rng::with_seed(world_options.seed ^ 0x5707);
        world.tap.open();
        world.hears_guests = true;
        for _ in 0..options.clients {
            world.join();
        }
        Storm {
            world,
            audiences: BTreeMap::new(),
            walkers: Vec::new(),
            scores: Vec::new(),
            beacons: Vec::new(),
            truth: Truth::new(grids.clone()),
            audits: BTreeMap::new(),
            client_audits: BTreeMap::new(),
            grids,
            rate_bytes_per_s,
            client_rate_bytes_per_s,
            options,
            rng,
        }
    }

    /// The storm, the calm after it, and the comparison. Returns the ticks that it took to settle.
    pub fn run(&mut self) -> Result<usize, String> {
        self.run_watched(|_| Ok(()))
    }

    /// The same. `watch` is called after each stormy tick.
    pub fn run_watched(&mut self, mut watch: impl FnMut(&Self) -> Result<(), String>) -> Result<usize, String> {
        for step in 0..self.options.storm_ticks {
            if self.options.weather && step % 40 == 0 {
                let condition = storm(&mut self.rng);
                self.world.set_condition(condition);
            }
            self.stormy_tick();
            watch(self)?;
            self.check_ends()?;
        }
        self.world.set_condition(Condition::NONE);
        let ticks = self.settle();
        self.compare()?;
        self.watch_ages()?;
        (0..2 * self.age_bound_ticks()).for_each(|_| self.calm_tick());
        self.compare()?;
        self.check_audits()?;
        Ok(ticks)
    }

    /// Calm, until everything has arrived and late packets and forgotten things have not undone it, or patience ends.
    fn settle(&mut self) -> usize {
        for ticks in 0..self.options.calm_ticks {
            self.calm_tick();
            if ticks % 10 == 9 && self.compare().is_ok() {
                (0..30).for_each(|_| self.calm_tick());
                return ticks;
            }
        }
        self.options.calm_ticks
    }

    /// All beacons change in each tick, and each client sees each of them change: nothing that it is subscribed to has been
    /// forgotten in the storm, nor waits longer than the configuration says.
    fn watch_ages(&mut self) -> Result<(), String> {
        let bound_ticks = self.age_bound_ticks();
        for tick in 1..=bound_ticks + 30 {
            self.world.begin_step();
            for &id in &self.beacons {
                self.truth.change_beacon(&mut self.world.server, id, |beacon| beacon.number = tick);
            }
            self.world.end_step();
            self.note_datagrams();
            for guest in self.world.guests.iter().filter(|_| tick > bound_ticks) {
                let audience = self.audiences.get(&guest.client_id).cloned().unwrap_or_default();
                for &id in self.beacons.iter().filter(|&&id| self.is_near(&audience, id)) {
                    let seen = guest.client.get::<Beacon>(id).map_or(0, |seen| seen.number);
                    if tick - seen > bound_ticks {
                        let age_ticks = tick - seen;
                        return Err(format!(
                            "client {}: {id} is {age_ticks} ticks old, not {bound_ticks}",
                            guest.client_id
                        ));
                    }
                }
            }
        }
        Ok(())
    }

    /// How old a beacon may be that changes in every tick, on a path without delay: see the longest wait at the head of
    /// throng-replica's `connection.rs`. Sent is at the least rate that a bad path is given: one packet in 250 ms.
    fn age_bound_ticks(&self) -> u32 {
        const LEAST_BYTES_PER_TICK: f64 = 4_000.0 / 30.0;
        // All packets cost 59 bytes besides, and the smallest have 380.
        let bytes_per_tick = (f64::from(self.rate_bytes_per_s) / 30.0).min(LEAST_BYTES_PER_TICK) * 380.0 / 440.0;
        let wanted_bytes = self.beacons.len() as u32 * BEACON_PIECE_BYTES;
        let intervals = (f64::from(wanted_bytes) / bytes_per_tick).max(1.0);
        let rings = self.grids[0].rings.iter().map(|ring| ring.interval_ticks);
        let slowest = rings.chain(self.options.intervals_ticks.map(u32::from)).max().unwrap_or(1);
        (intervals * f64::from(slowest)) as u32 + slowest + PACKET_INTERVAL_TICKS
    }

    /// Whether a beacon is within the reach of the last ring, so that it has to be seen.
    fn is_near(&self, audience: &Audience, beacon: ObjectId) -> bool {
        let reach_m = self.grids[0].rings.last().expect("a grid has rings").radius_m;
        let position = self.world.server.get::<Beacon>(beacon).expect("the game keeps it").position;
        audience.viewpoint.is_some_and(|viewpoint| {
            let squares = viewpoint.iter().zip(position).map(|(&from, to)| (from - f64::from(to)).powi(2));
            squares.sum::<f64>().sqrt() < reach_m
        })
    }

    /// Every client was sent, and has sent, at most its rate and one burst in any window.
    pub fn check_audits(&self) -> Result<(), String> {
        for (to, audit) in &self.audits {
            let allowed_bytes = burst_bytes(self.rate_bytes_per_s);
            if audit.burst_bytes() > allowed_bytes {
                return Err(format!("{to} was sent {} bytes in a burst, not {allowed_bytes}", audit.burst_bytes()));
            }
        }
        for (from, audit) in &self.client_audits {
            let allowed_bytes = burst_bytes(self.client_rate_bytes_per_s);
            if audit.burst_bytes() > allowed_bytes {
                return Err(format!("{from} sent {} bytes in a burst, not {allowed_bytes}", audit.burst_bytes()));
            }
        }
        Ok(())
    }

    /// A tick in which nothing changes.
    pub fn calm_tick(&mut self) {
        self.world.step();
        self.note_datagrams();
    }

    /// A tick in which everything may happen.
    pub fn stormy_tick(&mut self) {
        self.stormy_tick_unaudited();
        self.note_datagrams();
    }

    /// The same, and the tap is left to the caller.
    pub fn stormy_tick_unaudited(&mut self) {
        self.world.begin_step();
        if self.options.churn {
            self.come_and_go();
        }
        for _ in 0..self.rng.usize(..=self.options.changes_per_tick) {
            self.change_something();
        }
        for guest in 0..self.world.guests.len() {
            self.change_audience(guest);
            if self.options.inputs {
                let input = Steering { number: self.rng.u32(..), direction: 1.0 };
                // Before the connection is open and after its end there is no peer to send to.
                let _ = self.world.guests[guest].client.send_typed_input(&input);
            }
        }
        self.truth.end_tick();
        self.world.end_step();
    }

    /// Compares the state of every connected client with the server's, and with what the storm did to the world.
    pub fn compare(&self) -> Result<(), String> {
        for guest in &self.world.guests {
            let Some(connection) = guest.connection else {
                return Err(format!("client {} is not connected: {:?}", guest.client_id, guest.end()));
            };
            let audience = self.audiences.get(&guest.client_id).cloned().unwrap_or_default();
            R::compare(&self.world.server, &self.grids, &audience, connection, &guest.client)
                .and_then(|()| self.truth.compare::<R>(&audience, connection, &guest.client))
                .map_err(|difference| format!("client {}: {difference}", guest.client_id))?;
        }
        Ok(())
    }

    /// A storm closes no connection, except for silence.
    fn check_ends(&self) -> Result<(), String> {
        for guest in &self.world.guests {
            if let Some(end) = guest.end().filter(|end| end.tag() != "idle_timeout") {
                return Err(format!("client {} ended: {end}", guest.client_id));
            }
        }
        Ok(())
    }

    fn note_datagrams(&mut self) {
        for wire in self.world.tap.take() {
            let audit = self.audits.entry(wire.to).or_insert_with(|| BudgetAudit::new(self.rate_bytes_per_s));
            audit.note(wire.at, wire.bytes.len());
        }
        for guest in &self.world.guests {
            let new = || BudgetAudit::new(self.client_rate_bytes_per_s);
            let audit = self.client_audits.entry(guest.address).or_insert_with(new);
            guest.tap.take().iter().for_each(|wire| audit.note(wire.at, wire.bytes.len()));
        }
    }

    fn come_and_go(&mut self) {
        if self.rng.f64() < 0.01 && !self.world.guests.is_empty() {
            let guest = self.rng.usize(..self.world.guests.len());
            let now = self.world.now;
            match (self.rng.u32(..3), self.world.guests[guest].connection) {
                (0, _) => self.world.guests[guest].client.close(now, "had enough"),
                (1, Some(connection)) => self.world.server.disconnect(connection, now, "thrown out"),
                _ => {}
            }
            // Clients that the server has closed are not waited for: their last packets are part of the storm.
            self.world.kill(guest);
        }
        if self.world.guests.len() < self.options.clients && self.rng.f64() < 0.1 {
            self.world.join();
        }
    }

    fn change_something(&mut self) {
        match self.rng.u32(..100) {
            0..=14 => self.spawn_walker(),
            15..=18 => {
                let score = Score { points: self.rng.u32(..100_000), open: self.rng.bool() };
                let key = if self.rng.bool() { ChannelKey::Global(0) } else { ChannelKey::Custom(self.rng.u32(..3)) };
                let placement = Placement::Channel(key);
                self.scores.push(self.truth.spawn(&mut self.world.server, Thing::Score(score), placement, None));
            }
            19..=22 => {
                let beacon = Beacon { position: self.anywhere(), number: 0 };
                let placement = Placement::Cell(0);
                self.beacons.push(self.truth.spawn(&mut self.world.server, Thing::Beacon(beacon), placement, None));
            }
            23..=29 => self.despawn_something(),
            30..=37 if !self.scores.is_empty() => {
                let id = self.scores[self.rng.usize(..self.scores.len())];
                let points = self.rng.u32(..100_000);
                self.truth.change_score(&mut self.world.server, id, |score| score.points = points);
            }
            38..=45 if !self.beacons.is_empty() => {
                let id = self.beacons[self.rng.usize(..self.beacons.len())];
                let position = self.anywhere();
                self.truth.change_beacon(&mut self.world.server, id, |beacon| beacon.position = position);
            }
            _ if !self.walkers.is_empty() => self.change_walker(),
            _ => {}
        }
    }

    fn spawn_walker(&mut self) {
        let walker = Walker {
            position: self.anywhere(),
            health: self.rng.u16(..1000),
            name: self.a_name(),
            team: self.rng.u8(..10),
            ammunition: self.rng.u32(..),
            secret: self.some_bytes(),
            yaw: self.rng.f32() * 6.0,
            rumour: self.some_bytes(),
            ..Walker::default()
        };
        let (placement, owner) = (self.a_placement(), self.somebody());
        self.walkers.push(self.truth.spawn(&mut self.world.server, Thing::Walker(walker), placement, owner));
    }

    fn despawn_something(&mut self) {
        let list = match self.rng.u32(..3) {
            0 => &mut self.scores,
            1 => &mut self.beacons,
            _ => &mut self.walkers,
        };
        if !list.is_empty() {
            let id = list.swap_remove(self.rng.usize(..list.len()));
            self.truth.despawn(&mut self.world.server, id);
        }
    }

    fn change_walker(&mut self) {
        let id = self.walkers[self.rng.usize(..self.walkers.len())];
        let (position, name, bytes) = (self.anywhere(), self.a_name(), self.some_bytes());
        let target = self.walkers[self.rng.usize(..self.walkers.len())];
        let (dice, aside, health) = (self.rng.u32(..10), self.rng.f32() * 4.0 - 2.0, self.rng.u16(..1000));
        let (yaw, ammunition) = (self.rng.f32() * 6.0, self.rng.u32(..));
        let mode = [Mode::Standing, Mode::Walking, Mode::Flying][self.rng.usize(..3)];
        match self.rng.u32(..12) {
            0 => {
                let owner = self.somebody();
                return self.truth.set_owner(&mut self.world.server, id, owner);
            }
            1 => {
                let placement = self.a_placement();
                return self.truth.set_placement(&mut self.world.server, id, placement);
            }
            _ => {}
        }
        self.truth.change_walker(&mut self.world.server, id, |walker| match dice {
            0 => walker.position = position,
            1 | 2 => walker.position[0] = (walker.position[0] + aside).clamp(-WORLD_M, WORLD_M),
            3 => walker.ammunition = ammunition,
            4 => walker.health = health,
            5 => walker.name.clone_from(&name),
            6 => walker.secret.clone_from(&bytes),
            7 => walker.yaw = yaw,
            8 => walker.rumour.clone_from(&bytes),
            _ => (walker.target, walker.mode) = (target, mode),
        });
    }

    fn change_audience(&mut self, guest: usize) {
        let Some(connection) = self.world.guests[guest].connection else { return };
        let client_id = self.world.guests[guest].client_id;
        let is_new = !self.audiences.contains_key(&client_id);
        if is_new || self.rng.f64() < 0.15 {
            let step = |rng: &mut Rng, from: f64| from + rng.f64() * 12.0 - 6.0;
            let before = self.audiences.get(&client_id).and_then(|audience| audience.viewpoint);
            let viewpoint = match before.filter(|_| self.rng.f64() < 0.8) {
                Some(before) => before.map(|from| step(&mut self.rng, from)),
                None => self.anywhere().map(f64::from),
            };
            self.world.server.set_viewpoint(connection, viewpoint);
            self.audiences.entry(client_id).or_default().viewpoint = Some(viewpoint);
        }
        if is_new || self.rng.f64() < 0.1 {
            self.change_subscription(client_id, connection);
        }
    }

    fn change_subscription(&mut self, client_id: u64, connection: ConnectionId) {
        let key = match self.rng.u32(..6) {
            0 => ChannelKey::Global(0),
            1 | 2 => ChannelKey::Custom(self.rng.u32(..3)),
            3 => {
                let cell = [self.rng.i32(-4..4), self.rng.i32(-4..4), self.rng.i32(-1..1)];
                ChannelKey::Cell { grid: 0, cell }
            }
            _ if self.walkers.is_empty() => return,
            _ => {
                let object = self.walkers[self.rng.usize(..self.walkers.len())];
                ChannelKey::Entity { object, facet: Facet::Public }
            }
        };
        let audience = self.audiences.entry(client_id).or_default();
        if audience.channels.contains(&key) && self.rng.f64() < 0.5 {
            self.world.server.unsubscribe(connection, key);
            audience.channels.remove(&key);
        } else {
            let interval_ticks = self.options.intervals_ticks[self.rng.usize(..4)];
            match self.world.server.subscribe(connection, key, interval_ticks) {
                Ok(()) => drop(audience.channels.insert(key)),
                // In the dark no end is acknowledged, and numbers run out. The game may ask again.
                Err(limit) => assert!(matches!(limit, LimitReached::Subscriptions(_)), "{limit}"),
            }
        }
    }

    fn a_placement(&mut self) -> Placement {
        match self.rng.u32(..8) {
            0 => Placement::Entity,
            1 => Placement::Channel(ChannelKey::Custom(self.rng.u32(..3))),
            _ => Placement::Cell(0),
        }
    }

    fn somebody(&mut self) -> Option<ConnectionId> {
        let guests = &self.world.guests;
        if guests.is_empty() { None } else { guests[self.rng.usize(..guests.len())].connection }
    }

    fn anywhere(&mut self) -> [f32; 3] {
        [WORLD_M, WORLD_M, 6.0].map(|half| (self.rng.f32() * 2.0 - 1.0) * half)
    }

    fn a_name(&mut self) -> String {
        (0..self.rng.usize(..40)).map(|_| self.rng.alphanumeric()).collect()
    }

    fn some_bytes(&mut self) -> Vec<u8> {
        (0..self.rng.usize(..16)).map(|_| self.rng.u8(..)).collect()
    }
}
