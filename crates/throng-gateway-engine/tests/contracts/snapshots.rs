//! A gateway that starts from a snapshot: it is as if everybody had been lost at that moment.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use prost::Message as _;
use throng_channeld::proto::unrealpb::{SpatialChannelData, SpatialEntityState};
use throng_channeld::proto::{
    AddEntityGroupMessage, Any, ChannelDataRecoveryMessage, ChannelSubscriptionOptions, ChannelType,
    CreateChannelMessage, CreateChannelResultMessage, CreateEntityChannelMessage, EntityGroupType,
    RemoveChannelMessage, TransformState, UnsubscribedFromChannelMessage, Vector3f,
};
use throng_channeld::{Header, Message, message_type};
use throng_gateway_engine::port::{AuthVerdict, EndCause, Side};
use throng_gateway_engine::settings::EngineSettings;
use throng_gateway_engine::shards::Shards;
use throng_gateway_engine::snapshot::{Framing, Records, SnapshotError, Survey};
use throng_gateway_engine::{Engine, Restored, Row, Subject};
use throng_protostate::Schemas;
use throng_wire::Time;

use crate::stage::world::{Cut, ENTITY, FIRST, middle, sphere, standing, world_settings};
use crate::stage::{Peer, Stage, every, settings};

const TWO: Cut = Cut { cells: [4, 1, 0], servers: [2, 1, 0], border: 1 };

/// How long the gateway is away.
const AWAY: Duration = Duration::from_secs(5);

/// Everybody may come back.
const RETURNS: [&str; 3] = ["-scr", "-scrt=10000", "-limit=client_resume_ms=10000"];

fn schemas() -> Arc<Schemas> {
    Arc::new(Schemas::from_descriptor_set(throng_channeld::proto::DESCRIPTORS).expect("our own files are sound"))
}

/// The parts of a snapshot from here on, and how many there are.
fn put_rest(engine: &mut Engine, budget_bytes: usize, (framing, file): (&mut Framing, &mut Vec<u8>)) -> usize {
    for parts in 1.. {
        let part = engine.snapshot_part(budget_bytes);
        framing.put(&part, file);
        if part.is_last() {
            return parts;
        }
    }
    unreachable!("a snapshot has a last part")
}

/// A whole snapshot in parts of about this many bytes, and how many parts it took.
fn snapshot(engines: &mut [Engine], budget_bytes: usize) -> (Vec<u8>, usize) {
    let (mut file, mut parts) = (Vec::new(), 0);
    let mut framing = Framing::begin(&mut file);
    for engine in engines {
        engine.begin_snapshot();
        parts += put_rest(engine, budget_bytes, (&mut framing, &mut file));
    }
    framing.end(&mut file);
    (file, parts)
}

/// Engines that start from a snapshot, as the shell makes them.
fn start(
    file: &[u8],
    settings: EngineSettings,
    (now, unix_ns): (Time, i64),
    count: u32,
) -> Result<Vec<(Engine, Restored)>, SnapshotError> {
    let survey = Survey::of(file)?;
    let (settings, schemas) = (Arc::new(settings), schemas());
    let shards = Shards::new(count, settings.spatial_channel_start);
    let engine = |number| {
        let (settings, schemas) = (Arc::clone(&settings), Arc::clone(&schemas));
        let mut engine = Engine::restored(settings, schemas, 7, (now, unix_ns), &survey);
        engine.set_share(number, shards.clone());
        engine
    };
    let mut engines: Vec<Engine> = (0..count).map(engine).collect();
    let mut records = Records::new(file);
    while let Some(record) = records.read_next()? {
        for engine in &mut engines {
            engine.restore(&record)?;
        }
    }
    let mut started = Vec::new();
    for mut engine in engines {
        let restored = engine.finish_restore();
        started.push((engine, restored));
    }
    Ok(started)
}

/// One engine that starts from a snapshot `AWAY` after it was made, as a stage.
fn restart(stage: &Stage, file: &[u8], settings: EngineSettings) -> (Stage, Restored) {
    let survey = Survey::of(file).expect("it is whole");
    let times = (stage.now.after(AWAY), survey.unix_ns() + AWAY.as_nanos() as i64);
    let mut engines = start(file, settings, times, 1).expect("it is sound");
    let (engine, restored) = engines.remove(0);
    (Stage { engine, edge: None, now: times.0, verdict: AuthVerdict::Accepted }, restored)
}

/// Rows of all channels and entities for comparison, without the figures that restart on purpose.
fn facts(engine: &Engine) -> BTreeMap<(u8, u32), String> {
    let mut facts = BTreeMap::new();
    for (number, subject) in [(0, Subject::Channels), (1, Subject::Cells), (2, Subject::Entities)] {
        for row in engine.slice(subject, 0, 10_000).rows {
            let (id, fact) = match row {
                // Memory depends on how a state has come to be.
                Row::Channel(mut row) => {
                    row.state_bytes = 0;
                    (row.channel, format!("{row:?}"))
                }
                Row::Cell(row) => (row.channel, format!("{row:?}")),
                Row::Entity(row) => (row.channel, format!("{row:?}")),
                Row::Connection(_) => continue,
            };
            facts.insert((number, id), fact);
        }
    }
    facts
}

/// A state with its entries in order.
fn readable(data: Option<Any>) -> String {
    let Some(Any { type_url, value }) = data else { return String::new() };
    match type_url.ends_with("SpatialChannelData") {
        true => {
            let cell = SpatialChannelData::decode(value).expect("the state of a cell");
            let entities: BTreeMap<_, _> = cell.entities.into_iter().collect();
            format!("{entities:?}")
        }
        false => format!("{type_url} {value:?}"),
    }
}

/// Comes back under a name; what it was told of each channel: owner, options, time, state.
fn come_back(stage: &mut Stage, side: Side, name: &str) -> (Peer, BTreeMap<u32, String>) {
    let mut peer = stage.connect(side);
    let auth = throng_channeld::proto::AuthMessage {
        player_identifier_token: name.into(),
        login_token: "new".into(),
        ..Default::default()
    };
    stage.say(&peer, Header::new(0, message_type::AUTH), &auth);
    stage.pass(200);
    let mut told: BTreeMap<u32, String> = BTreeMap::new();
    for message in stage.read(&peer) {
        let Message { channel_id, msg_type, .. } = message;
        let text = match msg_type {
            message_type::AUTH => {
                peer.id = message.decode::<throng_channeld::proto::AuthResultMessage>().expect("a result").conn_id;
                continue;
            }
            message_type::RECOVERY_CHANNEL_DATA => {
                let mut told: ChannelDataRecoveryMessage = message.decode().expect("a channel");
                let state = readable(told.channel_data.take());
                format!("{told:?} {state}")
            }
            message_type::CHANNEL_DATA_UPDATE => {
                let update: throng_channeld::proto::ChannelDataUpdateMessage = message.decode().expect("an update");
                readable(update.data)
            }
            _ => format!("{:?}", message.body),
        };
        told.entry(channel_id).or_default().push_str(&format!("{msg_type}: {text}\n"));
    }
    (peer, told)
}

/// A world with rooms, in which anything happens.
struct Busy {
    stage: Stage,
    servers: Vec<Peer>,
    clients: Vec<Peer>,
    rooms: Vec<(usize, u32)>,
    entities: Vec<u32>,
    next_entity: u32,
    random: fastrand::Rng,
}

impl Busy {
    fn new(seed: u64) -> Busy {
        let mut stage = Stage::world(TWO, &RETURNS);
        stage.join_as(Side::Server, "master");
        let servers = stage.spatial_servers(TWO);
        let clients = (0..4).map(|number| stage.join_as(Side::Client, &format!("c{number}"))).collect();
        let (rooms, entities) = (Vec::new(), Vec::new());
        let random = fastrand::Rng::with_seed(seed);
        Busy { stage, servers, clients, rooms, entities, next_entity: ENTITY, random }
    }

    /// The server that owns an entity, if there is one.
    fn owner(&self, entity: u32) -> Option<Peer> {
        let (owner, _) = self.stage.place_of(entity)?;
        self.servers.iter().find(|server| Some(server.id) == owner).cloned()
    }

    fn some_entity(&mut self) -> Option<(u32, Peer)> {
        let entity = *self.entities.get(self.random.usize(0..self.entities.len().max(1)))?;
        self.owner(entity).map(|owner| (entity, owner))
    }

    fn step(&mut self) {
        let client = self.clients[self.random.usize(0..4)].clone();
        let place = [self.random.f32() * 38.0 + 1.0, 1.0, 5.0];
        match self.random.u32(0..12) {
            0..=2 => {
                let id = self.next_entity;
                self.next_entity += 1;
                let server = self.servers[self.random.usize(0..2)].clone();
                self.stage.create_entity(&server, 0, id, Some(standing(place)));
                self.entities.push(id);
            }
            3 | 4 => {
                if let Some((entity, owner)) = self.some_entity() {
                    self.stage.walk(&owner, entity, place);
                }
            }
            5 => {
                if let Some((entity, owner)) = self.some_entity() {
                    let options = ChannelSubscriptionOptions { data_access: Some(2), ..every(50) };
                    self.stage.subscribe(&owner, &client, entity, options);
                }
            }
            6 => {
                let server = self.servers[0].clone();
                self.stage.set_interest(&server, &client, sphere(place, 12.0));
            }
            7 => self.make_room(),
            8 => self.write_into_a_room(),
            9 => self.remove_something(),
            10 => {
                if let (Some((one, owner)), Some((other, _))) = (self.some_entity(), self.some_entity()) {
                    let kind = if self.random.bool() { EntityGroupType::Handover } else { EntityGroupType::Lock };
                    let add = AddEntityGroupMessage { r#type: kind.into(), entities_to_add: vec![one, other] };
                    self.stage.say(&owner, Header::new(one, message_type::ENTITY_GROUP_ADD), &add);
                }
            }
            _ => self.stage.pass(self.random.u64(1..100)),
        }
    }

    fn make_room(&mut self) {
        let number = self.random.usize(0..4);
        let client = self.clients[number].clone();
        let create = CreateChannelMessage {
            channel_type: ChannelType::Subworld.into(),
            metadata: format!("room {}", self.random.u32(..)),
            data: self.random.bool().then(|| standing([self.random.f32() + 1.0, 2.0, 3.0])),
            ..Default::default()
        };
        let header = Header::new(0, message_type::CREATE_CHANNEL);
        if let Some(made) = self.stage.answer::<CreateChannelResultMessage>(&client, header, &create) {
            self.rooms.push((number, made.channel_id));
        }
    }

    fn write_into_a_room(&mut self) {
        let some = self.random.usize(0..self.rooms.len().max(1));
        let Some(&(owner, room)) = self.rooms.get(some) else { return };
        let client = self.clients[owner].clone();
        let velocity = Some(Vector3f { x: self.random.f32() + 1.0, ..Default::default() });
        self.stage.update(&client, room, Any::pack(&TransformState { scale: velocity, ..Default::default() }));
        let reader = self.clients[self.random.usize(0..4)].clone();
        let masks = if self.random.bool() { vec!["scale".to_owned()] } else { Vec::new() };
        let options = ChannelSubscriptionOptions { data_field_masks: masks, ..every(100) };
        self.stage.subscribe(&client, &reader, room, options);
    }

    fn remove_something(&mut self) {
        let header = Header::new(0, message_type::REMOVE_CHANNEL);
        if self.random.bool() && !self.rooms.is_empty() {
            let (owner, room) = self.rooms.swap_remove(self.random.usize(0..self.rooms.len()));
            let client = self.clients[owner].clone();
            self.stage.say(&client, header, &RemoveChannelMessage { channel_id: room });
        } else if let Some((entity, owner)) = self.some_entity() {
            self.stage.say(&owner, header, &RemoveChannelMessage { channel_id: entity });
            self.entities.retain(|&known| known != entity);
        }
    }

    /// Everybody is lost, as when the gateway dies.
    fn lose_everybody(&mut self) {
        let peers: Vec<Peer> = self.servers.iter().chain(&self.clients).cloned().collect();
        for peer in peers {
            self.stage.engine.closed(self.stage.now, peer.key, EndCause::Lost);
        }
        self.stage.settle();
    }
}

#[test]
fn a_gateway_that_starts_from_its_snapshot_is_one_that_has_lost_everybody() {
    let mut rooms = 0;
    throng_seeds::for_seeds(40, |seed| {
        let mut busy = Busy::new(seed);
        (0..busy.random.usize(5..120)).for_each(|_| busy.step());
        // One is away already, and much happens to what it has.
        if busy.random.bool() {
            busy.stage.drop_connection(&busy.clients[3], EndCause::Lost);
            (0..busy.random.usize(0..60)).for_each(|_| busy.step());
        }
        rooms += busy.rooms.len();
        let budget_bytes = busy.random.usize(1..4_000);
        let (file, _) = snapshot(std::slice::from_mut(&mut busy.stage.engine), budget_bytes);
        let (mut other, restored) = restart(&busy.stage, &file, world_settings(TWO, &RETURNS));
        busy.lose_everybody();
        busy.stage.pass(AWAY.as_millis() as u64);
        assert_eq!(facts(&other.engine), facts(&busy.stage.engine), "seed {seed}");
        assert_eq!(restored.sessions, 7, "seed {seed}: master, two servers, four clients");
        assert_eq!(other.engine.counters().refused, BTreeMap::new(), "seed {seed}");
        for name in ["w1", "w0", "c0", "c1", "c2", "c3"] {
            let side = if name.starts_with('w') { Side::Server } else { Side::Client };
            let (is, told) = come_back(&mut other, side, name);
            let (should, before) = come_back(&mut busy.stage, side, name);
            assert_eq!(is.id, should.id, "seed {seed}: {name}");
            assert!(told.keys().eq(before.keys()), "seed {seed}: {name} is told of the same channels");
            for (channel, text) in &told {
                assert_eq!(text, &before[channel], "seed {seed}: {name} in {channel}");
            }
        }
        assert_eq!(facts(&other.engine), facts(&busy.stage.engine), "seed {seed}: when everybody is back");
        assert_eq!(other.audit(), busy.entities.len(), "seed {seed}");
    });
    assert!(rooms > 40 || throng_seeds::is_partial(), "only {rooms} rooms");
}

#[test]
fn a_channel_that_was_taken_from_a_client_that_is_away_is_not_its_own_after_a_restart() {
    let mut stage = Stage::world(TWO, &RETURNS);
    let master = stage.join_as(Side::Server, "master");
    let ada = stage.join_as(Side::Client, "ada");
    let room = stage.create(&ada, ChannelType::Subworld, Some(standing([1.0; 3])));
    stage.drop_connection(&ada, EndCause::Lost);
    let leave = UnsubscribedFromChannelMessage { conn_id: ada.id };
    assert_eq!(stage.ask(&master, Header::new(room, message_type::UNSUB_FROM_CHANNEL), &leave).len(), 1);
    let (file, _) = snapshot(std::slice::from_mut(&mut stage.engine), 1_000);
    let (mut other, _) = restart(&stage, &file, world_settings(TWO, &RETURNS));
    let (back, _) = come_back(&mut other, Side::Client, "ada");
    assert_eq!(back.id, ada.id);
    let owner = other.engine.slice(Subject::Channels, 0, 10_000).rows.into_iter().find_map(|row| match row {
        Row::Channel(row) if row.channel == room => Some(row.owner),
        _ => None,
    });
    assert_ne!(owner.flatten(), Some(ada.id));
}

#[test]
fn channels_that_a_client_has_created_count_for_it_after_each_restart() {
    let arguments = [&RETURNS[..], &["-limit=max_client_channels=2"]].concat();
    let create = CreateChannelMessage { channel_type: ChannelType::Subworld.into(), ..Default::default() };
    let header = Header::new(0, message_type::CREATE_CHANNEL);
    for is_away in [false, true] {
        let mut stage = Stage::world(TWO, &arguments);
        stage.join_as(Side::Server, "master");
        let mut ada = stage.join_as(Side::Client, "ada");
        let bob = stage.join_as(Side::Client, "bob");
        stage.create(&bob, ChannelType::Subworld, None);
        let rooms = [(); 2].map(|()| stage.create(&ada, ChannelType::Subworld, None));
        for restarts in 1..=3 {
            // The restart before the second one left everybody away.
            if is_away && restarts != 2 {
                stage.drop_connection(&ada, EndCause::Lost);
            }
            let (file, _) = snapshot(std::slice::from_mut(&mut stage.engine), 1_000);
            stage = restart(&stage, &file, world_settings(TWO, &arguments)).0;
            // Nobody comes back before the second restart.
            if restarts == 1 {
                continue;
            }
            ada = come_back(&mut stage, Side::Client, "ada").0;
            assert_eq!(stage.answer::<CreateChannelResultMessage>(&ada, header, &create), None);
            assert_eq!(stage.refused("channels_created"), 1, "restart {restarts}");
        }
        let bob = come_back(&mut stage, Side::Client, "bob").0;
        stage.create(&bob, ChannelType::Subworld, None);
        // A room that is removed makes room for another one.
        let remove = RemoveChannelMessage { channel_id: rooms[0] };
        stage.say(&ada, Header::new(0, message_type::REMOVE_CHANNEL), &remove);
        stage.create(&ada, ChannelType::Subworld, None);
    }
}

/// The snapshot has the client's subscription and not the channel.
#[test]
fn a_channel_that_is_made_while_the_snapshot_is_written_is_removed_for_its_reader() {
    let mut stage = Stage::world(TWO, &RETURNS);
    let master = stage.join_as(Side::Server, "master");
    let ada = stage.join_as(Side::Client, "ada");
    let mut file = Vec::new();
    let mut framing = Framing::begin(&mut file);
    stage.engine.begin_snapshot();
    let room = stage.create(&master, ChannelType::Subworld, Some(standing([1.0; 3])));
    stage.subscribe(&master, &ada, room, every(50));
    put_rest(&mut stage.engine, 1, (&mut framing, &mut file));
    framing.end(&mut file);
    let (mut other, _) = restart(&stage, &file, world_settings(TWO, &RETURNS));
    let (back, told) = come_back(&mut other, Side::Client, "ada");
    assert_eq!(back.id, ada.id);
    assert!(told[&room].starts_with(&format!("{}: ", message_type::REMOVE_CHANNEL)), "{:?}", told[&room]);
}

/// The file as a gateway of before wrote it, which did not say that sessions have what has become well known.
fn as_before(file: &[u8]) -> Vec<u8> {
    const HEAD: u8 = 1;
    let (start, mut rest) = file.split_at(12);
    let (mut older, mut number) = (start.to_vec(), 0_u64);
    while let [kind, l0, l1, l2, l3, _, _, _, _, _, _, _, _, ..] = *rest {
        let (content, others) = rest[13..].split_at(u32::from_le_bytes([l0, l1, l2, l3]) as usize);
        let content = match kind {
            HEAD => content.strip_suffix(&[7 << 3, 1]).expect("the field is the last"),
            _ => content,
        };
        let sum = xxhash_rust::xxh3::xxh3_64_with_seed(content, number << 8 | u64::from(kind));
        older.push(kind);
        older.extend_from_slice(&(content.len() as u32).to_le_bytes());
        older.extend_from_slice(&sum.to_le_bytes());
        older.extend_from_slice(content);
        (rest, number) = (others, number + 1);
    }
    older
}

/// Brings ada back. Which of the first three entities she is subscribed to then.
fn entities_seen(stage: &mut Stage, ada: &Peer) -> [bool; 3] {
    let (back, told) = come_back(stage, Side::Client, "ada");
    assert_eq!(back.id, ada.id);
    let subscribed = format!("{}: ", message_type::SUB_TO_CHANNEL);
    let is_seen = |entity: u32| told.get(&entity).is_some_and(|told| told.contains(&subscribed));
    [ENTITY, ENTITY + 1, ENTITY + 2].map(is_seen)
}

#[test]
fn a_client_of_an_earlier_gateway_sees_what_had_become_well_known_while_it_was_away() {
    let narrow = [&RETURNS[..], &["-limit=max_client_subscriptions=2"]].concat();
    let mut stage = Stage::world(TWO, &narrow);
    let master = stage.join_as(Side::Server, "master");
    let servers = stage.spatial_servers(TWO);
    let well_known = |entity_id: u32| CreateEntityChannelMessage {
        entity_id,
        data: Some(standing(middle(0, 0))),
        is_well_known: true,
        ..Default::default()
    };
    let header = Header::new(FIRST, message_type::CREATE_ENTITY_CHANNEL);
    let ada = stage.join_as(Side::Client, "ada");
    stage.say(&servers[0], header, &well_known(ENTITY));
    let room = stage.create(&master, ChannelType::Subworld, Some(standing([1.0; 3])));
    stage.subscribe(&master, &ada, room, every(50));
    let leave = UnsubscribedFromChannelMessage { conn_id: ada.id };
    stage.drop_connection(&ada, EndCause::Lost);
    stage.say(&servers[0], Header::new(ENTITY, message_type::UNSUB_FROM_CHANNEL), &leave);
    // An earlier gateway would have shown these when she is back. This one has no room for the second.
    (1..3).for_each(|more| stage.say(&servers[0], header, &well_known(ENTITY + more)));
    assert_eq!(stage.refused("client_subscriptions"), 1);
    let (file, _) = snapshot(std::slice::from_mut(&mut stage.engine), 1_000);
    for (file, sees) in [(&file, [false, true, false]), (&as_before(&file), [false, true, true])] {
        let (mut other, _) = restart(&stage, file, world_settings(TWO, &RETURNS));
        assert_eq!(entities_seen(&mut other, &ada), sees);
    }
}

/// That an entity was removed says nothing about the one that came in its place.
#[test]
fn a_client_of_an_earlier_gateway_sees_an_entity_that_was_removed_and_made_anew_while_it_was_away() {
    let narrow = [&RETURNS[..], &["-limit=max_client_subscriptions=1"]].concat();
    let mut stage = Stage::world(TWO, &narrow);
    let _master = stage.join_as(Side::Server, "master");
    let servers = stage.spatial_servers(TWO);
    let make = |stage: &mut Stage, entity_id: u32| {
        let data = Some(standing(middle(0, 0)));
        let entity = CreateEntityChannelMessage { entity_id, data, is_well_known: true, ..Default::default() };
        stage.say(&servers[0], Header::new(FIRST, message_type::CREATE_ENTITY_CHANNEL), &entity);
    };
    let ada = stage.join_as(Side::Client, "ada");
    make(&mut stage, ENTITY);
    stage.drop_connection(&ada, EndCause::Lost);
    let removal = RemoveChannelMessage { channel_id: ENTITY };
    stage.say(&servers[0], Header::new(0, message_type::REMOVE_CHANNEL), &removal);
    make(&mut stage, ENTITY + 1);
    // There is no room for it, as in a gateway that gives nothing to clients that are away.
    make(&mut stage, ENTITY);
    assert_eq!(stage.refused("client_subscriptions"), 1);
    let (file, _) = snapshot(std::slice::from_mut(&mut stage.engine), 1_000);
    for (file, sees) in [(&file, [false, true, false]), (&as_before(&file), [true, true, false])] {
        let (mut other, _) = restart(&stage, file, world_settings(TWO, &RETURNS));
        assert_eq!(entities_seen(&mut other, &ada), sees);
    }
}

#[test]
fn what_happens_while_a_snapshot_is_made_leaves_a_world_that_fits_together() {
    let mut moved = 0;
    throng_seeds::for_seeds(40, |seed| {
        let mut busy = Busy::new(seed);
        (0..100).for_each(|_| busy.step());
        let before = busy.entities.clone();
        let mut file = Vec::new();
        let mut framing = Framing::begin(&mut file);
        busy.stage.engine.begin_snapshot();
        let handovers = busy.stage.engine.counters().handovers;
        loop {
            let part = busy.stage.engine.snapshot_part(1);
            assert!(part.record_count() <= 256 && part.len_bytes() < 8_192, "a part is small");
            framing.put(&part, &mut file);
            if part.is_last() {
                break;
            }
            busy.step();
        }
        framing.end(&mut file);
        moved += busy.stage.engine.counters().handovers - handovers;
        let (mut other, _) = restart(&busy.stage, &file, world_settings(TWO, &RETURNS));
        for name in ["w0", "w1", "c0", "c1", "c2", "c3"] {
            let side = if name.starts_with('w') { Side::Server } else { Side::Client };
            come_back(&mut other, side, name);
        }
        other.audit();
        let there: Vec<u32> = other.engine.entities().map(|entity| entity.channel).collect();
        for entity in before.iter().filter(|entity| busy.entities.contains(entity)) {
            assert!(there.contains(entity), "seed {seed}: {entity} was there all the time");
        }
        assert_eq!(other.refused("not_there"), 0, "seed {seed}");
    });
    assert!(moved > 20 || throng_seeds::is_partial(), "only {moved} entities moved meanwhile");
}

#[test]
fn a_room_keeps_its_number_and_no_other_gets_it() {
    let flags = ["-dev", "-cfsm=client_authoratative_fsm.json", "-scr"];
    let mut stage = Stage::new(settings(&flags));
    let server = stage.join_as(Side::Server, "world");
    let rooms: Vec<u32> = (0..4).map(|_| stage.create(&server, ChannelType::Subworld, None)).collect();
    let header = Header::new(0, message_type::REMOVE_CHANNEL);
    stage.say(&server, header, &RemoveChannelMessage { channel_id: rooms[1] });
    let (file, _) = snapshot(std::slice::from_mut(&mut stage.engine), 1 << 20);
    let (mut other, restored) = restart(&stage, &file, settings(&flags));
    assert_eq!((restored.channels, restored.given_up), (4, 0), "GLOBAL and three rooms");
    let stranger = other.join_as(Side::Server, "stranger");
    assert_ne!(stranger.id, server.id, "that number is kept for its bearer");
    let made: Vec<u32> = (0..2).map(|_| other.create(&stranger, ChannelType::Subworld, None)).collect();
    assert_eq!(made, [rooms[1], rooms[3] + 1]);
}

#[test]
fn who_cannot_come_back_leaves_what_a_lost_connection_leaves() {
    let file = r#"{"100": {"RemoveChannelAfterOwnerRemoved": true}}"#;
    let words = ["-dev", "-cfsm=client_authoratative_fsm.json", "-chs=types.json"];
    let settings = || crate::stage::settings_with(&words, &[("types.json", file)]);
    let mut stage = Stage::new(settings());
    let server = stage.join_as(Side::Server, "world");
    let kept = stage.create(&server, ChannelType::Subworld, Some(standing([1.0, 2.0, 3.0])));
    stage.create(&server, ChannelType::Test, None);
    let (file, _) = snapshot(std::slice::from_mut(&mut stage.engine), 1 << 20);
    let (mut other, restored) = restart(&stage, &file, settings());
    assert_eq!(restored, Restored { channels: 2, sessions: 0, given_up: 1 });
    let reader = other.join_as(Side::Client, "reader");
    other.subscribe(&reader, &reader, kept, every(50));
    other.pass(100);
    let state: TransformState = other.updates(&reader, kept).pop().expect("its state is there");
    assert_eq!(state.position.expect("it").y, 2.0);
}

#[test]
fn channels_of_several_engines_are_found_by_any_other_number_of_engines() {
    let words = ["-dev", "-cfsm=client_authoratative_fsm.json", "-chs=types.json"];
    let settings = || crate::stage::settings_with(&words, &[("types.json", "{}")]);
    let cells_begin = settings().spatial_channel_start;
    let mut stage = Stage::new(settings());
    let server = stage.join_as(Side::Server, "world");
    let rooms: Vec<u32> = (0..30).map(|_| stage.create(&server, ChannelType::Subworld, None)).collect();
    for &room in &rooms {
        stage.update(&server, room, standing([room as f32, 1.0, 1.0]));
    }
    let (whole, _) = snapshot(std::slice::from_mut(&mut stage.engine), 1 << 20);
    let times = (Time::from_secs(2_000), 0);
    let mut three: Vec<Engine> =
        start(&whole, settings(), times, 3).expect("it is sound").into_iter().map(|(engine, _)| engine).collect();
    let spread: Vec<usize> = three.iter().map(|engine| engine.occupancy().channels.values().sum()).collect();
    assert_eq!(spread, [11, 10, 10], "GLOBAL is in the first");
    let (parts, _) = snapshot(&mut three, 700);
    let two = start(&parts, settings(), times, 2).expect("it is sound");
    let found: usize = two.iter().map(|(engine, _)| engine.occupancy().channels.values().sum::<usize>()).sum();
    assert_eq!(found, 31);
    for (number, (engine, _)) in (0..).zip(&two) {
        let home = Shards::new(2, cells_begin);
        for row in engine.slice(Subject::Channels, 0, 100).rows {
            let Row::Channel(row) = row else { panic!("channels were asked for") };
            assert!(row.channel == 0 || home.home(row.channel) == number, "{row:?} in {number}");
        }
    }
}

#[test]
fn a_file_that_is_not_whole_is_refused_wherever_it_ends_and_whatever_was_changed() {
    let mut busy = Busy::new(3);
    (0..60).for_each(|_| busy.step());
    let (file, _) = snapshot(std::slice::from_mut(&mut busy.stage.engine), 2_000);
    let refused = |bytes: &[u8]| Survey::of(bytes).expect_err("it is damaged").tag();
    for length in 0..file.len() {
        let expected = if length < 8 { "snapshot_foreign" } else { "snapshot_cut_off" };
        assert_eq!(refused(&file[..length]), expected, "cut off after {length} bytes");
    }
    let mut random = fastrand::Rng::with_seed(5);
    for _ in 0..2_000 {
        let (place, bit) = (random.usize(0..file.len()), random.u32(0..8));
        let mut bent = file.clone();
        bent[place] ^= 1 << bit;
        let tag = refused(&bent);
        assert!(tag.starts_with("snapshot_"), "{tag}");
    }
    assert_eq!(refused(&[&file[..], &[0]].concat()), "snapshot_damaged", "something follows");
    let mut newer = file.clone();
    newer[8] = 2;
    let error = Survey::of(&newer[..]).expect_err("it is of another version").to_string();
    assert_eq!(error, "it has version 2 of the format, and this gateway reads version 1");
}

#[test]
fn a_file_of_a_gateway_with_other_settings_is_refused_with_one_line() {
    let mut busy = Busy::new(1);
    (0..30).for_each(|_| busy.step());
    let (file, _) = snapshot(std::slice::from_mut(&mut busy.stage.engine), 2_000);
    let refused = |settings: EngineSettings| match start(&file, settings, (Time(0), 0), 1) {
        Ok(_) => panic!("it does not fit"),
        Err(error) => error.to_string(),
    };
    let other_cut = Cut { cells: [5, 1, 0], ..TWO };
    assert!(refused(world_settings(other_cut, &RETURNS)).ends_with("the file of -scc cuts the world otherwise"));
    assert!(refused(settings(&["-dev", "-scr"])).ends_with("it has a world of cells, and there is no -scc"));
    let moved = [&RETURNS[..], &["-scs=0x20000"]].concat();
    assert!(refused(world_settings(TWO, &moved)).contains("-scs and -ecs"));
}

#[test]
fn what_there_was_is_there_again_though_the_limits_were_lowered_meanwhile() {
    let mut stage = Stage::world(TWO, &RETURNS);
    let servers = stage.spatial_servers(TWO);
    for entity in 0..6 {
        stage.create_entity(&servers[0], FIRST, ENTITY + entity, Some(standing(middle(0, 0))));
    }
    let all: Vec<u32> = (0..6).map(|number| ENTITY + number).collect();
    for kind in [EntityGroupType::Handover, EntityGroupType::Lock] {
        let add = AddEntityGroupMessage { r#type: kind.into(), entities_to_add: all.clone() };
        stage.say(&servers[0], Header::new(ENTITY, message_type::ENTITY_GROUP_ADD), &add);
    }
    let (file, _) = snapshot(std::slice::from_mut(&mut stage.engine), 1 << 20);
    let lowered = ["-limit=max_channels=3", "-limit=max_group_entities=2", "-limit=max_grouped_entities=3"];
    let (mut other, restored) = restart(&stage, &file, world_settings(TWO, &[&RETURNS[..], &lowered].concat()));
    assert_eq!(restored, Restored { channels: 11, sessions: 2, given_up: 0 });
    let (back, _) = come_back(&mut other, Side::Server, "w0");
    other.create_entity(&back, FIRST, ENTITY + 7, Some(standing(middle(0, 0))));
    assert_eq!(other.refused("channels"), 1, "and no more than there was");
    let add = AddEntityGroupMessage { r#type: EntityGroupType::Lock.into(), entities_to_add: vec![ENTITY] };
    other.say(&back, Header::new(ENTITY, message_type::ENTITY_GROUP_ADD), &add);
    assert_eq!(other.refused("entity_groups_full"), 1);
    other.audit();
}

#[test]
fn who_is_lost_or_comes_back_while_a_snapshot_is_made_is_in_it() {
    let mut stage = Stage::world(TWO, &RETURNS);
    let away = stage.join_as(Side::Client, "away");
    let servers = stage.spatial_servers(TWO);
    let other_client = stage.join_as(Side::Client, "changed");
    stage.drop_connection(&away, EndCause::Lost);
    let mut file = Vec::new();
    let mut framing = Framing::begin(&mut file);
    stage.engine.begin_snapshot();
    framing.put(&stage.engine.snapshot_part(1), &mut file);
    // One is lost, one is back, one has logged in again from elsewhere, and one was lost and is back.
    stage.drop_connection(&servers[0], EndCause::Lost);
    stage.join_as(Side::Client, "away");
    stage.join_as(Side::Server, "w1");
    stage.drop_connection(&other_client, EndCause::Lost);
    stage.join_as(Side::Client, "changed");
    put_rest(&mut stage.engine, 1, (&mut framing, &mut file));
    framing.end(&mut file);
    let (mut other, restored) = restart(&stage, &file, world_settings(TWO, &RETURNS));
    assert_eq!((restored.sessions, restored.given_up), (4, 0));
    let ids = [("w0", Side::Server), ("w1", Side::Server), ("away", Side::Client), ("changed", Side::Client)]
        .map(|(name, side)| come_back(&mut other, side, name).0.id);
    assert_eq!(ids, [servers[0].id, servers[1].id, away.id, other_client.id]);
}

#[test]
fn groups_of_entities_that_are_gone_are_not_restored() {
    let mut stage = Stage::world(TWO, &RETURNS);
    let servers = stage.spatial_servers(TWO);
    for entity in 0..3 {
        stage.create_entity(&servers[0], FIRST + 1, ENTITY + entity, Some(standing(middle(1, 0))));
    }
    for (kind, members) in [(EntityGroupType::Handover, vec![ENTITY + 1]), (EntityGroupType::Lock, vec![ENTITY + 2])] {
        let add = AddEntityGroupMessage { r#type: kind.into(), entities_to_add: members };
        stage.say(&servers[0], Header::new(ENTITY, message_type::ENTITY_GROUP_ADD), &add);
    }
    let mut file = Vec::new();
    let mut framing = Framing::begin(&mut file);
    stage.engine.begin_snapshot();
    framing.put(&stage.engine.snapshot_part(1), &mut file);
    let gone = RemoveChannelMessage { channel_id: ENTITY };
    stage.say(&servers[0], Header::new(0, message_type::REMOVE_CHANNEL), &gone);
    framing.put(&stage.engine.snapshot_part(1 << 20), &mut file);
    framing.end(&mut file);
    let (mut other, _) = restart(&stage, &file, world_settings(TWO, &RETURNS));
    let back = ["w0", "w1"].map(|name| come_back(&mut other, Side::Server, name).0);
    other.create_entity(&back[0], FIRST + 1, ENTITY, Some(standing(middle(1, 0))));
    other.walk(&back[0], ENTITY + 1, middle(2, 0));
    other.walk(&back[0], ENTITY + 2, middle(2, 0));
    let cells = [0, 1, 2].map(|number| other.place_of(ENTITY + number).expect("it exists").1);
    assert_eq!(cells, [Some(FIRST + 1), Some(FIRST + 2), Some(FIRST + 2)]);
}

#[test]
fn a_cell_forgets_who_left_also_after_a_reload_a_restart_and_a_second_announcement() {
    let mut stage = Stage::world(TWO, &RETURNS);
    let servers = stage.spatial_servers(TWO);
    for entity in 0..4 {
        stage.create_entity(&servers[0], FIRST + 1, ENTITY + entity, Some(standing(middle(1, 0))));
    }
    // The server writes that an entity has left, as the gateway does.
    let leaves = |stage: &mut Stage, server: &Peer, entity: u32| {
        let state = SpatialEntityState { removed: true, ..Default::default() };
        let data = SpatialChannelData { entities: [(entity, state)].into() };
        stage.update(server, FIRST + 1, Any::pack(&data));
        let cell = stage.engine.cells().find(|cell| cell.channel == FIRST + 1).expect("it exists");
        assert!(!cell.entities.contains(&entity), "{entity} in {:?}", cell.entities);
    };
    leaves(&mut stage, &servers[0], ENTITY);
    stage.engine.reload(Arc::new(world_settings(TWO, &RETURNS)));
    leaves(&mut stage, &servers[0], ENTITY + 1);
    let create = CreateChannelMessage {
        channel_type: ChannelType::Spatial.into(),
        merge_options: Some(Default::default()),
        ..Default::default()
    };
    stage.say(&servers[0], Header::new(0, message_type::CREATE_CHANNEL), &create);
    leaves(&mut stage, &servers[0], ENTITY + 2);
    let (file, _) = snapshot(std::slice::from_mut(&mut stage.engine), 1 << 20);
    let (mut other, _) = restart(&stage, &file, world_settings(TWO, &RETURNS));
    let (back, _) = come_back(&mut other, Side::Server, "w0");
    leaves(&mut other, &back, ENTITY + 3);
}

#[test]
fn states_go_on_in_ticks_later_than_all_before_and_times_stay_what_they_were() {
    let mut stage = Stage::world(TWO, &RETURNS);
    let servers = stage.spatial_servers(TWO);
    stage.create_entity(&servers[0], FIRST, ENTITY, Some(standing(middle(0, 0))));
    stage.pass(60_000);
    let (file, _) = snapshot(std::slice::from_mut(&mut stage.engine), 1 << 20);
    // The calendar was put back meanwhile.
    let mut engines = start(&file, world_settings(TWO, &RETURNS), (Time(0), -77), 1).expect("it is sound");
    let (engine, _) = engines.remove(0);
    let mut other = Stage { engine, edge: None, now: Time(0), verdict: AuthVerdict::Accepted };
    let (back, _) = come_back(&mut other, Side::Server, "w0");
    let reader = other.join_as(Side::Client, "reader");
    other.subscribe(&back, &reader, ENTITY, every(50));
    other.pass(100);
    assert_eq!(other.updates::<TransformState>(&reader, ENTITY).len(), 1, "the state");
    other.walk(&back, ENTITY, [7.0, 1.0, 5.0]);
    other.pass(100);
    let changes = other.updates::<TransformState>(&reader, ENTITY);
    assert_eq!(changes.len(), 1, "and what is changed");
    assert_eq!(changes[0].position.expect("it").x, 7.0);
}

#[test]
fn any_bytes_are_no_snapshot_or_one_that_a_gateway_can_start_from() {
    throng_seeds::for_seeds(150, |seed| {
        let mut random = fastrand::Rng::with_seed(seed);
        let length = random.usize(0..400);
        let input: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(length).collect();
        crate::snapshot_body::run(&input);
    });
}
