//! Thousands of entities walk over random worlds while servers crash, come back and are replaced.
//!
//! At every step: each entity has one owner, present or awaited, and is on the list of one cell; every server believes
//! to own exactly what it owns, from the received messages alone; and each client message to its entity arrives at
//! once, at the server that believes to own the entity and at no other, or is refused because there is none.

use std::collections::{BTreeMap, BTreeSet};

use super::stage::world::{CELL_M, Cut, ENTITY, FIRST, forwarded, sphere, standing};
use super::stage::{Peer, Stage};
use prost::Message as _;
use throng_channeld::proto::unrealpb::DestroyObjectMessage;
use throng_channeld::proto::{
    ChannelDataAccess, ChannelDataRecoveryMessage, ChannelSubscriptionOptions, ChannelType, CreateChannelResultMessage,
    ServerForwardMessage, SubscribedToChannelResultMessage, UnsubscribedFromChannelResultMessage,
};
use throng_channeld::{Header, Message, message_type};
use throng_gateway_engine::port::{EndCause, Side};

const CLIENTS: u32 = 12;
const STEP_MS: u64 = 33;
const RPC: u32 = 102;

/// How long the gateway waits for a lost server.
const PATIENCE_MS: u64 = 1_000;

struct WorldServer {
    name: String,
    peer: Option<Peer>,
    /// The entities that it believes to own.
    owns: BTreeSet<u32>,
    /// The step at which it comes back, and whether as another one.
    returns: Option<(u64, bool)>,
}

struct Player {
    peer: Peer,
    entity: u32,
    next: u32,
    /// Its messages as they came, and the servers that got them.
    heard: Vec<(usize, u32)>,
}

struct Storm {
    stage: Stage,
    rng: fastrand::Rng,
    cut: Cut,
    servers: Vec<WorldServer>,
    players: Vec<Player>,
    places: BTreeMap<u32, [f32; 3]>,
    step: u64,
    heirs: u32,
}

impl Storm {
    fn begin(seed: u64, entities: u32) -> Storm {
        let mut rng = fastrand::Rng::with_seed(seed);
        let layers = if rng.bool() { 0 } else { rng.u32(2..4) };
        let cells = [rng.u32(4..9), rng.u32(4..9), layers];
        let servers = [rng.u32(1..4), rng.u32(2..4), if layers > 0 { rng.u32(1..3) } else { 0 }];
        let cut = Cut { cells, servers, border: rng.u32(0..2) };
        let patience = format!("-scrt={PATIENCE_MS}");
        let mut stage = Stage::world(cut, &["-scr", &patience]);
        stage.master();
        let servers = (0..cut.server_count()).map(|number| {
            let name = format!("w{number}");
            let peer = Some(stage.spatial_server(&name));
            WorldServer { name, peer, owns: BTreeSet::new(), returns: None }
        });
        let servers = servers.collect();
        let mut storm =
            Storm { stage, rng, cut, servers, players: Vec::new(), places: BTreeMap::new(), step: 0, heirs: 0 };
        for entity in ENTITY..ENTITY + entities {
            storm.make_entity(entity);
        }
        for number in 0..CLIENTS {
            storm.make_player(ENTITY + number);
        }
        storm.listen();
        storm
    }

    fn anywhere(&mut self) -> [f32; 3] {
        let size = [self.cut.cells[0], self.cut.cells[2], self.cut.cells[1]];
        size.map(|cells| (self.rng.f32() * cells.max(1) as f32 * CELL_M).max(0.01))
    }

    /// The master's way: the entity belongs to who owns the cell that it stands in.
    fn make_entity(&mut self, entity: u32) {
        let at = self.anywhere();
        self.places.insert(entity, at);
        let by = self.servers.iter().find_map(|server| server.peer.clone()).expect("one is there");
        let cell = self.cell_at(at);
        let owner = self.stage.engine.cells().find(|known| known.channel == cell).and_then(|known| known.owner);
        let by = self.present().find(|peer| Some(peer.id) == owner).unwrap_or(by);
        if owner == Some(by.id) {
            self.stage.create_entity(&by, cell, entity, Some(standing(at)));
        }
    }

    fn make_player(&mut self, entity: u32) {
        let peer = self.stage.client();
        let server = self.present().next().expect("one is there");
        let options = ChannelSubscriptionOptions {
            data_access: Some(ChannelDataAccess::WriteAccess.into()),
            ..Default::default()
        };
        self.stage.subscribe(&server, &peer, entity, options);
        self.players.push(Player { peer, entity, next: 0, heard: Vec::new() });
        self.look_around(self.players.len() - 1);
    }

    fn present(&self) -> impl Iterator<Item = Peer> {
        let peers: Vec<Peer> = self.servers.iter().filter_map(|server| server.peer.clone()).collect();
        peers.into_iter()
    }

    fn cell_at(&self, [x, y, z]: [f32; 3]) -> u32 {
        let [columns, rows, layers] = self.cut.cells;
        let along = |at: f32, cells: u32| ((f64::from(at) / f64::from(CELL_M)) as u32).min(cells.max(1) - 1);
        let layer = if layers == 0 { 0 } else { along(y, layers) };
        FIRST + along(x, columns) + columns * (along(z, rows) + rows * layer)
    }

    fn look_around(&mut self, player: usize) {
        let Some(server) = self.present().next() else { return };
        let at = self.places[&self.players[player].entity];
        let radius = self.rng.f64() * 25.0 + 1.0;
        let peer = self.players[player].peer.clone();
        self.stage.set_interest(&server, &peer, sphere(at, radius));
    }

    /// One step of the world.
    fn walk(&mut self) {
        self.step += 1;
        self.crash_and_return();
        for number in 0..self.servers.len() {
            let Some(peer) = self.servers[number].peer.clone() else { continue };
            for entity in self.servers[number].owns.clone() {
                let to = self.next_place(entity);
                self.stage.walk(&peer, entity, to);
            }
        }
        for number in 0..self.players.len() {
            self.call(number);
            if self.rng.u32(0..4) == 0 {
                let (peer, entity) = (self.players[number].peer.clone(), self.players[number].entity);
                let (from, updates) = (self.places[&entity], self.stage.engine.counters().updates);
                let to = self.next_place(entity);
                self.stage.walk(&peer, entity, to);
                if self.stage.engine.counters().updates == updates {
                    // It may only read since it has gone to another server.
                    self.places.insert(entity, from);
                }
            }
            self.call(number);
            if self.rng.u32(0..6) == 0 {
                self.look_around(number);
            }
        }
        self.replace_some_entity();
        self.listen();
        self.stage.pass(STEP_MS);
        self.listen();
        self.check();
    }

    fn next_place(&mut self, entity: u32) -> [f32; 3] {
        let size = [self.cut.cells[0], self.cut.cells[2], self.cut.cells[1]];
        let mut at = self.places[&entity];
        for (at, cells) in at.iter_mut().zip(size) {
            *at = (*at + self.rng.f32() * 10.0 - 5.0).clamp(0.01, cells.max(1) as f32 * CELL_M - 0.01);
        }
        self.places.insert(entity, at);
        at
    }

    fn call(&mut self, number: usize) {
        self.listen();
        let player = &mut self.players[number];
        let (peer, entity, call) = (player.peer.clone(), player.entity, player.next);
        player.next += 1;
        // The truth is what servers were told, and not what the gateway believes.
        let owners = self.servers.iter().enumerate().filter(|(_, server)| server.owns.contains(&entity));
        let owners: Vec<usize> = owners.map(|(server, _)| server).collect();
        assert!(owners.len() <= 1, "step {}: {owners:?} believe to own {entity}", self.step);
        let refused = self.stage.refused("no_owner");
        self.stage.say_bytes(&peer, Header::new(entity, RPC), call.to_be_bytes().to_vec());
        self.listen();
        let heard = std::mem::take(&mut self.players[number].heard);
        let expected: Vec<(usize, u32)> = owners.iter().map(|&server| (server, call)).collect();
        assert_eq!(heard, expected, "step {}: a call to {entity}", self.step);
        let refused = self.stage.refused("no_owner") - refused;
        assert_eq!(refused, u64::from(owners.is_empty()), "step {}: a call to {entity} of {owners:?}", self.step);
    }

    /// An entity without a player is destroyed, and created again.
    fn replace_some_entity(&mut self) {
        let number = self.rng.usize(..self.servers.len());
        let Some(peer) = self.servers[number].peer.clone() else { return };
        let Some(&entity) = self.servers[number].owns.iter().next_back() else { return };
        if entity < ENTITY + CLIENTS {
            return;
        }
        let gone = DestroyObjectMessage { net_id: entity, reason: 0 }.encode_to_vec();
        let header = Header { channel_id: entity, broadcast: 4, stub_id: 0, msg_type: message_type::UNREAL_DESTROY };
        self.stage.say(&peer, header, &forwarded(0, gone));
        assert!(self.stage.place_of(entity).is_none());
        self.listen();
        let at = self.places[&entity];
        let cell = self.cell_at(at);
        let is_mine = |known: &throng_gateway_engine::CellInfo| known.channel == cell && known.owner == Some(peer.id);
        if self.stage.engine.cells().any(|known| is_mine(&known)) {
            self.stage.create_entity(&peer, cell, entity, Some(standing(at)));
        } else {
            self.places.remove(&entity);
        }
    }

    fn crash_and_return(&mut self) {
        for number in 0..self.servers.len() {
            let server = &mut self.servers[number];
            match (server.peer.clone(), server.returns) {
                (Some(peer), _) if self.rng.u32(0..30) == 0 => {
                    let is_replaced = self.rng.u32(0..3) == 0;
                    let steps = match is_replaced {
                        true => PATIENCE_MS / STEP_MS + 3,
                        false => self.rng.u64(1..20),
                    };
                    server.returns = Some((self.step + steps, is_replaced));
                    server.peer = None;
                    server.owns.clear();
                    self.stage.drop_connection(&peer, EndCause::Lost);
                }
                (None, Some((step, is_replaced))) if step <= self.step => self.bring_back(number, is_replaced),
                _ => {}
            }
        }
    }

    fn bring_back(&mut self, number: usize, is_replaced: bool) {
        if is_replaced {
            self.heirs += 1;
            self.servers[number].name = format!("heir{}", self.heirs);
        }
        let mut peer = self.stage.connect(Side::Server);
        let auth = throng_channeld::proto::AuthMessage {
            player_identifier_token: self.servers[number].name.clone(),
            ..Default::default()
        };
        self.stage.say(&peer, Header::new(0, message_type::AUTH), &auth);
        let messages = self.stage.read(&peer);
        let answer: throng_channeld::proto::AuthResultMessage = messages[0].decode().expect("an answer");
        assert_eq!(answer.should_recover, !is_replaced);
        peer.id = answer.conn_id;
        if is_replaced {
            self.stage.ask_for_cells(&peer);
        }
        self.servers[number].peer = Some(peer);
        self.servers[number].returns = None;
        for message in messages {
            self.hear(number, &message);
        }
    }

    /// Servers read their messages; clients, too, and discard them.
    fn listen(&mut self) {
        for number in 0..self.servers.len() {
            let Some(peer) = self.servers[number].peer.clone() else { continue };
            for message in self.stage.read(&peer) {
                self.hear(number, &message);
            }
        }
        for player in &self.players {
            player.peer.line.lock().unwrap().bytes.clear();
        }
    }

    fn hear(&mut self, number: usize, message: &Message) {
        let me = self.servers[number].peer.as_ref().expect("it is there").id;
        let owns = &mut self.servers[number].owns;
        let channel = message.channel_id;
        match message.msg_type {
            message_type::SUB_TO_CHANNEL if channel >= ENTITY => {
                let result: SubscribedToChannelResultMessage = message.decode().expect("a result");
                let access = result.sub_options.expect("options").data_access();
                match result.conn_id == me {
                    true if access == ChannelDataAccess::WriteAccess => drop(owns.insert(channel)),
                    true => drop(owns.remove(&channel)),
                    false => {}
                }
            }
            message_type::UNSUB_FROM_CHANNEL => {
                let result: UnsubscribedFromChannelResultMessage = message.decode().expect("a result");
                if result.conn_id == me {
                    owns.remove(&channel);
                }
            }
            message_type::REMOVE_CHANNEL => drop(owns.remove(&channel)),
            message_type::CREATE_ENTITY_CHANNEL => {
                let result: CreateChannelResultMessage = message.decode().expect("a result");
                if result.owner_conn_id == me {
                    owns.insert(result.channel_id);
                }
            }
            message_type::RECOVERY_CHANNEL_DATA => {
                let known: ChannelDataRecoveryMessage = message.decode().expect("a channel");
                if known.owner_conn_id == me && known.channel_type == i32::from(ChannelType::Entity) {
                    owns.insert(channel);
                }
            }
            RPC => {
                let call: ServerForwardMessage = message.decode().expect("a forwarded message");
                let player = &mut self.players[(channel - ENTITY) as usize];
                assert_eq!(call.client_conn_id, player.peer.id);
                let bytes = <[u8; 4]>::try_from(&call.payload[..]).expect("a number");
                player.heard.push((number, u32::from_be_bytes(bytes)));
            }
            _ => {}
        }
    }

    fn check(&mut self) {
        assert_eq!(self.stage.audit(), self.places.len());
        let mut owned: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
        for entity in self.stage.engine.entities() {
            if let Some(owner) = entity.owner {
                owned.entry(owner).or_default().insert(entity.channel);
            }
        }
        for server in &self.servers {
            if let Some(peer) = &server.peer {
                let truth = owned.remove(&peer.id).unwrap_or_default();
                assert_eq!(server.owns, truth, "step {}: what {} believes to own", self.step, server.name);
            }
        }
        assert!(owned.is_empty(), "owned by who is not there: {owned:?}");
        for player in &self.players {
            assert_eq!(player.heard, [], "step {}: calls to {} that come late or again", self.step, player.entity);
        }
    }

    /// Everybody comes back, and everything ends where it stands.
    fn calm_down(&mut self) {
        self.stage.pass(PATIENCE_MS + 100);
        for number in 0..self.servers.len() {
            if self.servers[number].returns.is_some() {
                self.bring_back(number, true);
            }
        }
        self.stage.pass(3_000);
        self.listen();
        self.check();
        for (entity, place) in self.places.clone() {
            let at = self.stage.place_of(entity).expect("it exists").1;
            assert_eq!(at, Some(self.cell_at(place)), "entity {entity} at {place:?}");
        }
    }
}

fn storm(seed: u64, entities: u32, steps: u64) -> u64 {
    let mut storm = Storm::begin(seed, entities);
    storm.check();
    for _ in 0..steps {
        storm.walk();
    }
    storm.calm_down();
    let counters = storm.stage.engine.counters();
    println!(
        "{} servers, {} handovers, {} recoveries, {} heirs, refused {:?}",
        storm.cut.server_count(),
        counters.handovers,
        counters.recovered,
        storm.heirs,
        counters.refused
    );
    counters.handovers
}

#[test]
fn r23_every_entity_has_one_owner_and_one_cell_at_every_moment() {
    let mut handovers = 0;
    throng_seeds::for_seeds(4, |seed| handovers += storm(seed, 2_000, 45));
    assert!(handovers > 60_000 || throng_seeds::is_partial(), "{handovers}");
}

#[test]
fn many_small_worlds_with_many_crashes() {
    throng_seeds::for_seeds(12, |seed| {
        storm(seed, 50, 120);
    });
}
