//! One server, some clients, a bad network between them.

use std::collections::BTreeMap;
use std::f32::consts::TAU;
use std::hash::Hash;
use std::sync::Arc;

use fastrand::Rng;
use rustc_hash::FxHasher;
use throng_replica::{
    ChannelKey, ClientOptions, Executor, GridShape, Layers, Placement, ReplicaClient, ReplicaObject, Replicator,
    ReplicatorOptions, SubscriptionId,
};
use throng_schema::{Facet, Kind, Replicate, Schema, Values, ValuesMut};
use throng_wire::{ConnectionId, ObjectId, Tick};

use self::far::{FAR_CELLS, FAR_GRID, FAR_GRID_NUMBER};
use self::runners::{Gait, Runner};
use crate::homes::Homes;

mod far;
mod runners;

const CELL_M: f64 = 8.0;
const GRID: GridShape = GridShape { cell_m: [CELL_M; 3], layers: Layers::Stacked, up: throng_replica::Up::Z };
const WORLD_M: f32 = 24.0;

/// A kind with every sort of audience.
#[derive(Clone, Debug, Default, PartialEq, Replicate)]
pub(crate) struct Walker {
    #[replicate(position(step = 0.01), far(step = 0.5))]
    pub position: [f32; 3],
    #[replicate(integer(min = 0, max = 1000), far)]
    pub health: u16,
    #[replicate(text(max_bytes = 40))]
    pub name: String,
    #[replicate(integer(min = 0, max = 9), initial_only)]
    pub team: u8,
    #[replicate(integer, owner_only)]
    pub ammunition: u32,
    #[replicate(angle(bits = 9), skip_owner)]
    pub yaw: f32,
    #[replicate(integer, hide_from_owner)]
    pub rumour: u32,
}

/// A kind without a position.
#[derive(Clone, Debug, Default, PartialEq, Replicate)]
pub(crate) struct Score {
    #[replicate(integer(min = 0, max = 100_000))]
    pub points: u32,
    #[replicate(bool)]
    pub open: bool,
}

/// Code tables that fit badly, so that all of their branches are taken. Half of the storms have them.
const CODES: &str = "
    kind Walker
    entries public 0=2 1=2 3=2 else=2
    entries others 1=1 else=1
    entries far 0=1 1=2 else=2
    gaps far 0=1 1/2=2 else=2
    gaps public 0=1 1/1=2 else=2
    gaps others 0=1 else=1
    field position 0 -256/8=2 0/8=1 else=2
    field position 2 0/4=1 else=1
    field position_far 0 0/4=1 else=1
    field health 0 0/3=2 496/4=2 1000=2 else=2
    field yaw 0 0=1 256/6=2 else=2
    kind Score
    entries public 1=1 else=1
    field points 0 0=1 1/4=2 else=2
    field open 0 1=1 else=1
";

#[derive(Clone, Debug)]
pub(crate) struct StormOptions {
    pub clients: usize,
    pub loss: f64,
    pub spurious_loss: f64,
    pub burst_ticks: u32,
    pub budget_bytes: usize,
    pub retention_ticks: u32,
    pub storm_ticks: u32,
    pub first_tick: u64,
    /// The clients look from one of a few places each, so that some have the same subscriptions.
    pub is_crowd: bool,
    /// Shared views are switched off and on again in so many of 100 ticks; 0 for always on.
    pub view_switches: u32,
    /// So many walkers go to another place in each tick, so that slots are soon used again.
    pub bustle: u32,
    /// So many objects with a predicted position, in calm too. In the calm of a storm with a memory of
    /// [`WATCHFUL_TICKS`], what clients show of them is compared in each tick.
    pub runners: usize,
    /// Clients see walkers from afar as well, in cells with so many parts; 0: they do not.
    pub far_parts: u16,
    /// Plans divide the connections into so many rows.
    pub rows: usize,
}

/// Does the last rows first, as threads might.
struct Rows(usize);

impl Executor for Rows {
    fn for_each<T: Send, F: Fn(&mut T) + Send + Sync>(&self, items: &mut [T], job: F) {
        items.iter_mut().rev().for_each(job);
    }

    fn parts(&self) -> usize {
        self.0
    }

    fn for_each_part<T: Send>(&self, parts: impl Iterator<Item = T>, job: impl Fn(T) + Copy + Send) {
        let mut parts: Vec<T> = parts.collect();
        while let Some(part) = parts.pop() {
            job(part);
        }
    }
}

/// A memory so long that no subscription is held back: then a client has been told everything in each tick of a calm.
pub(crate) const WATCHFUL_TICKS: u32 = 600;
/// The ticks of a calm. After the first of them all that a storm has done has arrived; in the last ones all runners rest.
const CALM_TICKS: u32 = 140;
const SETTLED_TICKS: u32 = 60;
const RESTED_TICKS: u32 = 40;

impl Default for StormOptions {
    fn default() -> StormOptions {
        StormOptions {
            clients: 3,
            loss: 0.2,
            spurious_loss: 0.0,
            burst_ticks: 0,
            budget_bytes: 2_000,
            retention_ticks: 24,
            storm_ticks: 150,
            first_tick: 0,
            is_crowd: false,
            view_switches: 0,
            bustle: 0,
            runners: 0,
            far_parts: 0,
            rows: 1,
        }
    }
}

pub(crate) struct Storm {
    rng: Rng,
    options: StormOptions,
    server: Replicator,
    walkers: Walkers,
    /// By walker: where it was put, and whose it is.
    roles: BTreeMap<ObjectId, Role>,
    /// Whether walkers or runners came or went, or changed their channels or owners, since clients followed the roles.
    have_roles_changed: bool,
    scores: BTreeMap<ObjectId, Score>,
    clients: Vec<Option<Peer>>,
    runners: BTreeMap<ObjectId, (Runner, Gait)>,
    history: Vec<Moment>,
    /// How often a runner was compared in a tick of a calm: another one's, and an own one.
    pub(crate) looks: [u64; 2],
    /// How many walkers were compared that their clients saw from afar.
    pub(crate) far_looks: u64,
    /// Plans of connections that the hub did not have to look at.
    pub(crate) regular: u64,
    /// A hash of every packet that was written, in order.
    pub(crate) written: FxHasher,
}

/// A tick in which nothing changes shares them with the one before.
type Walkers = Arc<BTreeMap<ObjectId, Arc<Quantised>>>;

/// A walker, and its quantised values: they are compared with those of clients much more often than they change.
#[derive(Clone)]
struct Quantised {
    walker: Walker,
    words: Vec<u32>,
    blobs: Vec<Vec<u8>>,
}

impl Quantised {
    fn new(walker: Walker, kind: &Kind) -> Quantised {
        let (words, blobs) = kind.empty_values();
        let mut new = Quantised { walker, words, blobs };
        new.update();
        new
    }

    /// Quantises the walker again, which has changed.
    fn update(&mut self) {
        self.walker.quantise(ValuesMut { words: &mut self.words, blobs: &mut self.blobs });
    }
}

/// The values of the game at the end of a tick.
struct Moment {
    tick: Tick,
    walkers: Walkers,
    /// With their owners.
    runners: BTreeMap<ObjectId, (Runner, Option<ConnectionId>)>,
    /// Whether an input of the tick's number was acknowledged in it.
    acknowledges: bool,
}

/// The owner and the channels that the storm chose for a walker.
struct Role {
    owner: Option<ConnectionId>,
    /// It has a channel of its own, and no cell.
    is_entity: bool,
    homes: Homes,
}

struct Peer {
    id: ConnectionId,
    replica: ReplicaClient,
    subscriptions: BTreeMap<ChannelKey, SubscriptionId>,
    /// Whether it has followed the roles since it came.
    follows: bool,
    /// Of a crowd: where it stands.
    stand: i32,
    sequence: u64,
    to_client: Vec<(u32, u32, Tick, Vec<u8>)>,
    verdicts: Vec<(u32, u64, bool)>,
    burst_until: u32,
}

impl Storm {
    pub(crate) fn new(seed: u64, options: StormOptions) -> Storm {
        let codes = if seed.is_multiple_of(2) { CODES } else { "" };
        let schema = Schema::builder().kind::<Walker>().kind::<Score>().kind::<Runner>().codes(codes).build();
        let schema = Arc::new(schema.expect("a good schema"));
        let replicator_options = ReplicatorOptions {
            retention_ticks: options.retention_ticks,
            first_tick: Tick(options.first_tick),
            ..ReplicatorOptions::default()
        };
        let mut server = Replicator::new(schema, replicator_options);
        server.add_grid(GRID).expect("a good grid");
        server.add_grid(FAR_GRID).expect("a good grid");
        if options.far_parts > 0 {
            server.set_far_grid(FAR_GRID_NUMBER, options.far_parts).expect("a good grid for far facets");
        }
        let clients = (0..options.clients).map(|_| None).collect();
        Storm {
            rng: Rng::with_seed(seed),
            options,
            server,
            walkers: Walkers::default(),
            roles: BTreeMap::new(),
            have_roles_changed: false,
            scores: BTreeMap::new(),
            clients,
            runners: BTreeMap::new(),
            history: Vec::new(),
            looks: [0; 2],
            far_looks: 0,
            regular: 0,
            written: FxHasher::default(),
        }
    }

    pub(crate) fn run(mut self) -> Result<(), String> {
        self.weather()
    }

    /// This many ticks pass without any change.
    pub(crate) fn skip_ticks(&mut self, steps: u64) {
        self.server.skip_ticks(steps);
    }

    /// A storm, then calm, then everybody holds what the server holds.
    pub(crate) fn weather(&mut self) -> Result<(), String> {
        let ticks = self.options.storm_ticks;
        for step in 0..ticks {
            self.tick(step, true)?;
        }
        let is_watched = self.options.runners > 0 && self.options.retention_ticks >= WATCHFUL_TICKS;
        if is_watched {
            self.hurry();
        }
        for step in ticks..ticks + CALM_TICKS {
            if step == ticks + CALM_TICKS - RESTED_TICKS {
                self.stop_runners();
            }
            self.tick(step, false)?;
            if is_watched && step >= ticks + SETTLED_TICKS {
                self.check_runners().map_err(|error| format!("step {step}: {error}"))?;
            }
        }
        for client in 0..self.clients.len() {
            self.far_looks += self.compare(client)?;
        }
        Ok(())
    }

    /// From now on each subscription has its turn in each tick.
    fn hurry(&mut self) {
        for peer in self.clients.iter().flatten() {
            let connection = self.server.hub().connection_mut(peer.id).unwrap();
            connection.set_send_interval(1, 0);
            peer.subscriptions.values().for_each(|&subscription| connection.set_interval(subscription, 1));
        }
    }

    /// The same storm, with a row of figures after every 25 ticks: of this tick's frames, then sums over the connections
    /// and the clients that are present.
    pub(crate) fn ledger(mut self) -> String {
        let mut text = String::from(
            "  tick  frames shared  bytes | segm updates  bytes  resent bytes super  back  ctrl  held  wait | \
             applied stale  own  objects slots places waits\n",
        );
        for step in 0..self.options.storm_ticks + 100 {
            self.tick(step, step < self.options.storm_ticks).expect("each packet is applied");
            if step % 25 == 24 {
                text += &self.ledger_row(step + 1);
            }
        }
        text
    }

    fn ledger_row(&mut self, step: u32) -> String {
        let hub = self.server.hub().counters();
        let (mut sent, mut longest_wait_ticks) = ([0; 9], 0);
        let (mut held, mut seen) = ([0; 3], [0; 4]);
        for peer in self.clients.iter().flatten() {
            let of = self.server.hub().connection_mut(peer.id).expect("it is connected").counters();
            let counts = [
                of.segments,
                of.object_updates,
                of.object_bytes,
                of.resent_segments,
                of.resent_bytes,
                of.superseded_segments,
                of.frames_taken_back,
                of.control_bytes,
                of.held_back,
            ];
            sent.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
            longest_wait_ticks = of.longest_wait_ticks.max(longest_wait_ticks);
            let (of, holds) = (peer.replica.counters(), peer.replica.occupancy());
            held.iter_mut().zip([of.updates, of.stale_segments, of.own_records]).for_each(|(sum, count)| *sum += count);
            let counts = [holds.objects, holds.slots, holds.own_places, holds.waits];
            seen.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        }
        format!(
            "{step:>6} {:>7} {:>6} {:>6} | {:>4} {:>7} {:>6} {:>7} {:>5} {:>5} {:>5} {:>5} {:>5} {:>5} | \
             {:>7} {:>5} {:>4} {:>8} {:>5} {:>6} {:>5}\n",
            hub.frames_encoded,
            hub.frames_shared,
            hub.frame_bytes,
            sent[0],
            sent[1],
            sent[2],
            sent[3],
            sent[4],
            sent[5],
            sent[6],
            sent[7],
            sent[8],
            longest_wait_ticks,
            held[0],
            held[1],
            held[2],
            seen[0],
            seen[1],
            seen[2],
            seen[3],
        )
    }

    fn tick(&mut self, step: u32, storm: bool) -> Result<(), String> {
        self.settle_verdicts(step);
        self.server.begin_tick();
        if storm {
            self.join_and_leave();
            for _ in 0..self.rng.usize(..6) {
                self.change_something();
            }
            for _ in 0..self.options.bustle {
                self.move_walker();
            }
            match self.options.is_crowd {
                true => self.walk_about(),
                false => self.change_subscriptions(),
            }
        }
        self.run_about(storm);
        if self.options.view_switches > 0 {
            let is_on = self.rng.u32(..100) >= self.options.view_switches;
            self.server.hub().set_view_sharing(is_on);
        }
        if self.options.is_crowd {
            self.set_allowances(storm);
        }
        self.follow_entities();
        self.acknowledge_inputs();
        self.server.plan_with(&Rows(self.options.rows));
        self.regular += self.server.hub_ref().counters().regular_connections;
        self.server.encode(&Rows(self.options.rows));
        self.write(step, storm);
        self.deliver(step)
    }

    fn join_and_leave(&mut self) {
        for index in 0..self.clients.len() {
            if self.clients[index].is_some() && self.rng.f64() < 0.01 {
                let peer = self.clients[index].take().expect("just seen");
                for (&object, role) in self.roles.iter_mut().filter(|(_, role)| role.owner == Some(peer.id)) {
                    self.server.set_owner(object, None).unwrap();
                    role.owner = None;
                    self.have_roles_changed = true;
                }
                self.server.hub().disconnect(peer.id);
            } else if self.clients[index].is_none() && self.rng.f64() < 0.2 {
                let id = self.server.hub().connect().unwrap();
                let schema = Arc::clone(self.server.store().schema());
                let options = ClientOptions { limbo_ticks: Some(20), ..ClientOptions::default() };
                let peer = Peer {
                    id,
                    replica: ReplicaClient::new(schema, &[GRID, FAR_GRID], options).unwrap(),
                    subscriptions: BTreeMap::new(),
                    follows: false,
                    stand: 0,
                    sequence: 0,
                    to_client: Vec::new(),
                    verdicts: Vec::new(),
                    burst_until: 0,
                };
                self.server.admit(id);
                self.clients[index] = Some(peer);
            }
        }
    }

    fn change_something(&mut self) {
        let dice = self.rng.f64();
        if dice < 0.15 || self.walkers.is_empty() {
            self.spawn_walker();
        } else if dice < 0.2 {
            let score = Score { points: self.rng.u32(..100_000), open: self.rng.bool() };
            let kind = self.server.store().schema().kind_id::<Score>().unwrap();
            let placement = Placement::Channel(ChannelKey::Global(0));
            let id = self.server.spawn(kind, placement, None, |to| score.quantise(to)).unwrap();
            self.scores.insert(id, score);
        } else if dice < 0.27 {
            self.despawn_something();
        } else if dice < 0.35 && !self.scores.is_empty() {
            let id = *self.rng.choice(self.scores.keys()).unwrap();
            let score = self.scores.get_mut(&id).unwrap();
            score.points = self.rng.u32(..100_000);
            self.server.update(id, |to| score.quantise(to)).unwrap();
        } else {
            self.change_walker();
        }
    }

    fn spawn_walker(&mut self) {
        let walker = Walker {
            position: self.anywhere(),
            health: self.rng.u16(..1000),
            name: self.a_name(),
            team: self.rng.u8(..10),
            ammunition: self.rng.u32(..),
            yaw: self.rng.f32(),
            rumour: self.rng.u32(..),
        };
        let kind = self.server.store().schema().kind_id::<Walker>().unwrap();
        let is_entity = self.rng.f64() < 0.2;
        let placement = if is_entity { Placement::Entity } else { Placement::Cell(0) };
        let owner = self.some_client();
        let id = self.server.spawn(kind, placement, owner, |to| walker.quantise(to)).unwrap();
        let homes = Homes::new([CELL_M; 3], 3, walker.position);
        self.insert_role(id, Role { owner, is_entity, homes });
        let walker = Quantised::new(walker, self.server.store().schema().kind(kind));
        Arc::make_mut(&mut self.walkers).insert(id, Arc::new(walker));
    }

    fn insert_role(&mut self, id: ObjectId, role: Role) {
        self.roles.insert(id, role);
        self.have_roles_changed = true;
    }

    fn remove_role(&mut self, id: ObjectId) {
        self.roles.remove(&id);
        self.have_roles_changed = true;
    }

    fn despawn_something(&mut self) {
        let all: Vec<ObjectId> = self.walkers.keys().chain(self.scores.keys()).copied().collect();
        let id = *self.rng.choice(&all).unwrap();
        self.server.despawn(id);
        Arc::make_mut(&mut self.walkers).remove(&id);
        self.remove_role(id);
        self.scores.remove(&id);
    }

    fn change_walker(&mut self) {
        let id = *self.rng.choice(self.walkers.keys()).unwrap();
        let (position, name, owner) = (self.anywhere(), self.a_name(), self.some_client());
        let quantised = Arc::make_mut(Arc::make_mut(&mut self.walkers).get_mut(&id).unwrap());
        let walker = &mut quantised.walker;
        let role = self.roles.get_mut(&id).unwrap();
        match self.rng.u32(..9) {
            7 => walker.rumour = self.rng.u32(..),
            0 => walker.position = position,
            1 | 2 => walker.position[0] = (walker.position[0] + self.rng.f32() * 4.0 - 2.0).clamp(-WORLD_M, WORLD_M),
            3 => walker.health = self.rng.u16(..1000),
            4 => walker.name = name,
            5 => walker.ammunition = self.rng.u32(..),
            6 => walker.yaw = self.rng.f32() * 6.0,
            _ => {
                self.server.set_owner(id, owner).unwrap();
                let is_entity = self.rng.bool();
                let placement = if is_entity { Placement::Entity } else { Placement::Cell(0) };
                self.server.set_placement(id, placement).unwrap();
                role.homes.settle(walker.position);
                (role.owner, role.is_entity) = (owner, is_entity);
                self.have_roles_changed = true;
            }
        }
        self.server.update(id, |to| walker.quantise(to)).unwrap();
        role.homes.note(walker.position);
        quantised.update();
    }

    fn change_subscriptions(&mut self) {
        let cells = (WORLD_M / CELL_M as f32) as i32;
        for index in 0..self.clients.len() {
            for _ in 0..2 {
                let is_far = self.options.far_parts > 0 && self.rng.bool();
                let key = match self.rng.u32(..4) {
                    _ if is_far => self.some_far_key(),
                    0 => ChannelKey::Global(0),
                    _ => ChannelKey::Cell {
                        grid: 0,
                        cell: [self.rng.i32(-cells..cells), self.rng.i32(-1..1), self.rng.i32(-1..1)],
                    },
                };
                let interval = [1, 1, 2, 5][self.rng.usize(..4)];
                let leave = self.rng.f64() < 0.3;
                let Some(peer) = &mut self.clients[index] else { continue };
                match (peer.subscriptions.get(&key).copied(), leave) {
                    (Some(subscription), true) => {
                        self.server.hub().unsubscribe(peer.id, subscription);
                        peer.subscriptions.remove(&key);
                    }
                    (Some(subscription), false) => {
                        self.server.hub().connection_mut(peer.id).unwrap().set_interval(subscription, interval);
                    }
                    (None, false) => subscribe(&mut self.server, peer, key, interval),
                    (None, true) => {}
                }
            }
        }
    }

    fn move_walker(&mut self) {
        let Some(&id) = self.rng.choice(self.walkers.keys()) else { return };
        let position = self.anywhere();
        let quantised = Arc::make_mut(Arc::make_mut(&mut self.walkers).get_mut(&id).unwrap());
        quantised.walker.position = position;
        quantised.update();
        self.server.update(id, |to| quantised.walker.quantise(to)).unwrap();
        self.roles.get_mut(&id).unwrap().homes.note(position);
    }

    /// Clients step from place to place. A client sees the cells around its place, and scores.
    fn walk_about(&mut self) {
        for index in 0..self.clients.len() {
            let (steps, stand) = (self.rng.f64() < 0.03, self.rng.i32(-1..1));
            let changes_ticks = (self.rng.f64() < 0.004).then(|| (self.rng.u16(1..3), self.rng.u32(..2)));
            let asks_again = self.rng.f64() < 0.02;
            let Some(peer) = &mut self.clients[index] else { continue };
            if asks_again {
                // The end of a subscription, and another one of the same channel at the same time.
                let key = ChannelKey::Global(0);
                if let Some(subscription) = peer.subscriptions.remove(&key) {
                    self.server.hub().unsubscribe(peer.id, subscription);
                }
            }
            if steps {
                peer.stand = stand;
            }
            if let Some((interval, offset)) = changes_ticks {
                self.server.hub().connection_mut(peer.id).unwrap().set_send_interval(interval, offset);
            }
            let mut wanted = BTreeMap::from([(ChannelKey::Global(0), 2)]);
            for (x, y, z) in
                (peer.stand - 1..=peer.stand + 1).flat_map(|x| [(x, -1, -1), (x, 0, -1), (x, -1, 0), (x, 0, 0)])
            {
                let interval = if x == peer.stand { 1 } else { 5 };
                wanted.insert(ChannelKey::Cell { grid: 0, cell: [x, y, z] }, interval);
            }
            for cell in self.rng.i32(-3..0)..3 {
                let part = (0..i32::from(self.options.far_parts)).map(|part| [cell, self.rng.i32(-1..1), part]);
                wanted.extend(part.map(|cell| (ChannelKey::Cell { grid: FAR_GRID_NUMBER, cell }, 7)));
            }
            let is_left = |key: &ChannelKey| !matches!(key, ChannelKey::Entity { .. }) && !wanted.contains_key(key);
            for (_, subscription) in peer.subscriptions.extract_if(.., |key, _| is_left(key)) {
                self.server.hub().unsubscribe(peer.id, subscription);
            }
            for (key, interval) in wanted {
                match peer.subscriptions.get(&key) {
                    Some(&id) => self.server.hub().connection_mut(peer.id).unwrap().set_interval(id, interval),
                    None => subscribe(&mut self.server, peer, key, interval),
                }
            }
        }
    }

    /// Tells the server beforehand what each connection may be sent: less than usual now and then, or nothing.
    fn set_allowances(&mut self, storm: bool) {
        for peer in self.clients.iter().flatten() {
            let budget_bytes = match self.rng.u32(..20) {
                _ if !storm => 20_000,
                0 => 0,
                1 => self.rng.usize(..self.options.budget_bytes),
                _ => self.options.budget_bytes,
            };
            self.server.hub().set_allowance(peer.id, budget_bytes);
        }
    }

    /// Segments sent for the first time, and those of them that were shared.
    pub(crate) fn segments(&mut self) -> [u64; 2] {
        let hub = self.server.hub_ref();
        let counters = self.clients.iter().flatten().filter_map(|peer| Some(hub.connection(peer.id)?.counters()));
        counters.fold([0, 0], |sum, of| [sum[0] + of.segments, sum[1] + of.shared_segments])
    }

    /// Everybody sees every entity channel and everyone else's facet, but the owner does not get what is for others.
    fn follow_entities(&mut self) {
        let have_changed = std::mem::take(&mut self.have_roles_changed);
        let mut peers = self.clients.iter_mut().flatten().filter(|peer| have_changed || !peer.follows).peekable();
        if peers.peek().is_none() {
            return;
        }
        let of_role = |(&object, role): (&ObjectId, &Role)| {
            let entity = role.is_entity.then_some((ChannelKey::Entity { object, facet: Facet::Public }, None));
            entity.into_iter().chain([(ChannelKey::Entity { object, facet: Facet::Others }, role.owner)])
        };
        // They are in order, as the objects and the facets are.
        let channels: Vec<(ChannelKey, Option<ConnectionId>)> = self.roles.iter().flat_map(of_role).collect();
        for peer in peers {
            peer.follows = true;
            let is_gone = |key: &ChannelKey, _: &mut SubscriptionId| {
                let channel = channels.binary_search_by_key(key, |&(key, _)| key);
                matches!(key, ChannelKey::Entity { .. })
                    && channel.ok().is_none_or(|channel| channels[channel].1 == Some(peer.id))
            };
            for (_, subscription) in peer.subscriptions.extract_if(.., is_gone) {
                self.server.hub().unsubscribe(peer.id, subscription);
            }
            for &(key, but) in &channels {
                if but != Some(peer.id) && !peer.subscriptions.contains_key(&key) {
                    subscribe(&mut self.server, peer, key, 1);
                }
            }
        }
    }

    fn write(&mut self, step: u32, storm: bool) {
        let tick = self.server.now();
        let (outgoing, slots) = self.server.writers();
        for peer in self.clients.iter_mut().flatten() {
            if storm && self.options.view_switches > 0 && self.rng.f64() < 0.01 {
                // Its path takes nothing in this tick.
                continue;
            }
            let mut connection = slots[peer.id.index as usize].writer().unwrap();
            let budget = if storm { self.options.budget_bytes } else { 20_000 };
            connection.begin_objects(outgoing, budget);
            let mut sent = 0;
            if storm && self.options.burst_ticks > 0 && self.rng.f64() < 0.03 {
                peer.burst_until = step + self.options.burst_ticks;
            }
            if !storm {
                // A real connection says the tick at least now and then, with nothing else to say.
                peer.to_client.push((step + 1, 0, tick, Vec::new()));
            }
            while connection.has_more_objects() && sent < budget {
                let mut packet = vec![0; 1_150.min(budget.max(200))];
                let written = connection.write_objects(outgoing, peer.sequence, &mut packet);
                if written == 0 {
                    break;
                }
                sent += written;
                (peer.id, peer.sequence, &packet[..written]).hash(&mut self.written);
                let lost = storm && (self.rng.f64() < self.options.loss || step < peer.burst_until);
                let delay = if storm { self.rng.u32(0..8) } else { 1 };
                if !lost {
                    let order = self.rng.u32(..);
                    if storm && self.rng.f64() < 0.1 {
                        let late = self.rng.u32(0..30);
                        peer.to_client.push((step + late, self.rng.u32(..), tick, packet.clone()));
                    }
                    peer.to_client.push((step + delay, order, tick, packet));
                }
                let spurious = storm && self.rng.f64() < self.options.spurious_loss;
                let report = step + delay + self.rng.u32(1..6);
                peer.verdicts.push((report, peer.sequence, !lost && !spurious));
                peer.sequence += 1;
            }
        }
    }

    fn deliver(&mut self, step: u32) -> Result<(), String> {
        for (index, peer) in self.clients.iter_mut().enumerate() {
            let Some(peer) = peer else { continue };
            peer.to_client.sort_by_key(|&(due, order, ..)| (due, order));
            let due = peer.to_client.partition_point(|packet| packet.0 <= step);
            for (_, _, tick, bytes) in peer.to_client.drain(..due) {
                peer.replica.apply(tick, &bytes).map_err(|error| format!("client {index}, step {step}: {error}"))?;
                while peer.replica.poll_event().is_some() {}
                check_inputs(&self.history, &peer.replica)
                    .map_err(|error| format!("client {index}, step {step}: {error}"))?;
            }
        }
        Ok(())
    }

    /// Every client's input of this tick's number is in the state of this tick, unless it sent none.
    fn acknowledge_inputs(&mut self) {
        let acknowledges = self.history.is_empty() || self.rng.f64() < 0.8;
        for peer in self.clients.iter().flatten().filter(|_| acknowledges) {
            self.server.acknowledge_input(peer.id, self.history.len() as u32);
        }
        self.history.push(Moment {
            tick: self.server.now(),
            walkers: Arc::clone(&self.walkers),
            runners: self
                .runners
                .iter()
                .map(|(&id, (runner, _))| (id, (runner.clone(), self.roles[&id].owner)))
                .collect(),
            acknowledges,
        });
    }

    fn settle_verdicts(&mut self, step: u32) {
        for peer in self.clients.iter_mut().flatten() {
            let mut due: Vec<_> = peer.verdicts.extract_if(.., |verdict| verdict.0 <= step).collect();
            due.sort_unstable();
            for (_, sequence, delivered) in due {
                match delivered {
                    true => self.server.hub().delivered(peer.id, sequence),
                    false => self.server.lost(peer.id, sequence),
                }
            }
        }
    }

    /// Compares what a client holds with what the storm did: the server is not asked. Returns how many walkers it sees from
    /// afar.
    fn compare(&self, index: usize) -> Result<u64, String> {
        let Some(peer) = &self.clients[index] else { return Ok(0) };
        let mut far_looks = 0;
        let mut held: BTreeMap<ObjectId, &ReplicaObject> =
            peer.replica.objects().map(|seen| (seen.id(), seen)).collect();
        let wrong = |id: ObjectId, what: String| format!("client {index}: {id} {what}");
        for (&id, quantised) in &*self.walkers {
            let walker = &quantised.walker;
            let role = &self.roles[&id];
            let is_own = role.owner == Some(peer.id);
            let hears_cell = |cell| peer.subscriptions.contains_key(&ChannelKey::Cell { grid: 0, cell });
            let is_seen = |cell| is_own || role.is_entity || hears_cell(cell);
            let (is_near, may_be_near) = (role.homes.cells().all(is_seen), role.homes.cells().any(is_seen));
            let (is_far, may_be_far) = self.far_sight(peer, (id, walker), role);
            let seen = match held.remove(&id) {
                None if is_near || is_far => return Err(wrong(id, format!("is not seen: {walker:?}"))),
                Some(_) if !may_be_near && !may_be_far => return Err(wrong(id, format!("is still seen: {walker:?}"))),
                None => continue,
                Some(seen) => seen,
            };
            if is_near && !far::is_near(seen) || !may_be_near && far::is_near(seen) {
                return Err(wrong(id, format!("is seen as near: {}, {walker:?}", far::is_near(seen))));
            }
            if !far::is_near(seen) {
                far_looks += 1;
                far::check(walker, seen, peer.replica.schema()).map_err(|difference| wrong(id, difference))?;
                continue;
            }
            check_walker(walker, seen, is_own).map_err(|difference| wrong(id, difference))?;
            check_whole(peer.replica.schema(), seen, is_own).map_err(|difference| wrong(id, difference))?;
        }
        self.compare_runners(peer, &mut held).map_err(|error| format!("client {index}: {error}"))?;
        let hears_scores = peer.subscriptions.contains_key(&ChannelKey::Global(0));
        for (&id, score) in self.scores.iter().filter(|_| hears_scores) {
            let Some(seen) = held.remove(&id) else { return Err(wrong(id, format!("is not seen: {score:?}"))) };
            let mut shown = Score::default();
            shown.apply(seen.known_fields(), seen.values());
            if shown != *score {
                return Err(wrong(id, format!("is {score:?}, not {shown:?}")));
            }
            check_whole(peer.replica.schema(), seen, false).map_err(|difference| wrong(id, difference))?;
        }
        match held.keys().next() {
            Some(&id) => Err(format!("client {index}: {id} is still seen, and is not there")),
            None => Ok(far_looks),
        }
    }

    /// Whether a client sees a walker from afar, and whether it may: its far facet is in one of several cells.
    fn far_sight(&self, peer: &Peer, (id, walker): (ObjectId, &Walker), role: &Role) -> (bool, bool) {
        let parts = self.options.far_parts;
        if parts == 0 || role.is_entity {
            return (false, false);
        }
        let is_heard = |key| peer.subscriptions.contains_key(&key);
        (far::homes(id, walker.position, parts).all(is_heard), far::homes(id, walker.position, parts).any(is_heard))
    }

    fn some_far_key(&mut self) -> ChannelKey {
        let [columns, rows] = FAR_CELLS;
        let cell = [self.rng.i32(columns), self.rng.i32(rows), self.rng.i32(0..i32::from(self.options.far_parts))];
        ChannelKey::Cell { grid: FAR_GRID_NUMBER, cell }
    }

    fn anywhere(&mut self) -> [f32; 3] {
        [0.0, -4.0, -4.0].map(|low| match low == 0.0 {
            true => (self.rng.f32() * 2.0 - 1.0) * WORLD_M,
            false => low + self.rng.f32() * 8.0,
        })
    }

    fn a_name(&mut self) -> String {
        (0..self.rng.usize(..40)).map(|_| self.rng.alphanumeric()).collect()
    }

    fn some_client(&mut self) -> Option<ConnectionId> {
        let index = self.rng.usize(..self.clients.len());
        self.clients[index].as_ref().map(|peer| peer.id)
    }
}

/// A client shows the values that the storm has set, and of the private ones those of its role. Half a step may be lost,
/// and some slack for single precision.
fn check_walker(truth: &Walker, seen: &ReplicaObject, is_own: bool) -> Result<(), String> {
    let mut shown = Walker::default();
    shown.apply(seen.known_fields(), seen.values());
    let around = (shown.yaw - truth.yaw).rem_euclid(TAU);
    let is_near = (0..3).all(|axis| (shown.position[axis] - truth.position[axis]).abs() < 0.006);
    let is_turned_so = around.min(TAU - around) < TAU / 1024.0 * 1.01;
    let (ammunition, rumour) = if is_own { (truth.ammunition, 0) } else { (0, truth.rumour) };
    let is_same = (shown.health, &shown.name, shown.team, shown.ammunition, shown.rumour)
        == (truth.health, &truth.name, truth.team, ammunition, rumour);
    // The owner predicts the yaw.
    if is_same && is_near && (is_own || is_turned_so) {
        return Ok(());
    }
    Err(format!("is {truth:?}, not {shown:?}"))
}

/// A client knows the fields of its role, all of them and no others.
fn check_whole(schema: &Schema, seen: &ReplicaObject, is_own: bool) -> Result<(), String> {
    let kind = schema.kind(seen.kind());
    let visible = match is_own {
        true => kind.own_update_mask(),
        false => kind.facet_mask(Facet::Public) | kind.facet_mask(Facet::Others),
    };
    let hidden = kind.facet_mask(if is_own { Facet::Others } else { Facet::Owner });
    let known = seen.known_fields();
    if known & hidden != 0 || visible & !known != 0 || seen.is_awaited() || seen.is_own() != is_own {
        return Err(format!("is own: {}, it knows {known:b}, it is awaited: {}", seen.is_own(), seen.is_awaited()));
    }
    Ok(())
}

/// A client's own objects are in the state of a tick in which its newest acknowledged input was the one that the client
/// takes for it.
fn check_inputs(history: &[Moment], replica: &ReplicaClient) -> Result<(), String> {
    for object in replica.owned() {
        let Some(number) = replica.input_acked_by(object.id()) else { continue };
        let kind = replica.schema().kind(object.kind());
        let until = history[number as usize + 1..].iter().position(|moment| moment.acknowledges);
        let until = until.map_or(history.len(), |ticks| number as usize + 1 + ticks);
        let matches = history[number as usize..until].iter().any(|moment| {
            if let Some((runner, _)) = moment.runners.get(&object.id()) {
                return runners::is_exactly(runner, object, replica);
            }
            let Some(Quantised { words, blobs, .. }) = moment.walkers.get(&object.id()).map(|walker| &**walker) else {
                return false;
            };
            kind.compare(object.values(), Values { words, blobs }) & kind.own_update_mask() == 0
        });
        if !matches {
            return Err(format!("{} is not as it was when input {number} was acknowledged", object.id()));
        }
    }
    Ok(())
}

fn subscribe(server: &mut Replicator, peer: &mut Peer, key: ChannelKey, interval_ticks: u16) {
    let channel = server.channel(key).unwrap();
    let subscription = server.hub().subscribe(peer.id, channel, interval_ticks, 1).unwrap();
    peer.subscriptions.insert(key, subscription);
}
