//! For any writes, any rates and any joins and leaves, every subscriber ends with the state, and gets each change once
//! and in order.

use std::collections::BTreeMap;

use super::stage::{Peer, Stage, settings};
use throng_channeld::proto::unrealpb::unreal_object_ref::GuidCachedObject;
use throng_channeld::proto::unrealpb::{SpatialChannelData, SpatialEntityState, UnrealObjectRef};
use throng_channeld::proto::{
    Any, AuthMessage, AuthResultMessage, ChannelDataAccess, ChannelDataUpdateMessage, ChannelSubscriptionOptions,
    ChannelType, UnsubscribedFromChannelResultMessage,
};
use throng_channeld::{Header, Messages, message_type};
use throng_gateway::serve::helpers;
use throng_gateway_engine::port::{EndCause, Side};

/// Entities that writers fight over.
const ENTITIES: u32 = 6;

/// One of the peers that write and read.
struct Player {
    peer: Peer,
    side: Side,
    /// Under which it signs what it writes; no two players have the same.
    name: u32,
    skips_self: bool,
    is_stuck: bool,
    /// Its network takes a little in each step.
    trickles: bool,
    /// It has received everything once. Its own earlier writes are in it.
    has_begun: bool,
    /// The channel was empty when it subscribed.
    found_nothing: bool,
    view: View,
}

/// The data that a subscriber has received.
#[derive(Default)]
struct View {
    entities: BTreeMap<u32, Entity>,
    /// By writer: the sequence numbers of what it appended, as they came.
    told: BTreeMap<u32, Vec<u32>>,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Entity {
    /// `classPath`: who wrote it last, and when.
    signed: Option<String>,
    /// `owningConnId`: the same for a second field, so that an entry has fields of several writers.
    tagged: Option<u32>,
}

impl View {
    fn take(&mut self, update: SpatialChannelData) {
        for (id, state) in update.entities {
            if state.removed {
                self.entities.remove(&id);
                continue;
            }
            let entity = self.entities.entry(id).or_default();
            let Some(object) = state.obj_ref else { continue };
            if object.class_path.is_some() {
                entity.signed = object.class_path;
            }
            if object.owning_conn_id.is_some() {
                entity.tagged = object.owning_conn_id;
            }
            for item in object.context {
                self.told.entry(item.net_guid).or_default().push(item.outer_guid);
            }
        }
    }
}

/// Between two steps.
const WAITS_MS: [u64; 9] = [0, 0, 0, 1, 1, 2, 7, 30, 120];

/// The entity whose lists grow; it is never removed.
const LEDGER: u32 = 1_000;

/// The differences between worlds.
struct Weather {
    threads: u32,
    /// For how long a client may come back; 0: not at all.
    resume_ms: u32,
    /// Bytes of filling in what is signed: then frames do not fit into queues.
    filling_bytes: usize,
    /// Now and then nothing happens for so long: removals are forgotten.
    long_ms: u64,
}

impl Weather {
    fn of(seed: u64) -> Weather {
        Weather {
            threads: 1 + (seed % 2) as u32,
            resume_ms: if seed.is_multiple_of(3) { 0 } else { 40_000 },
            filling_bytes: if seed % 4 == 1 { 9_000 } else { 0 },
            long_ms: if seed.is_multiple_of(5) { 0 } else { 25_000 },
        }
    }

    /// Short waits, so that removals are forgotten after 18 s, and small queues if much is written.
    fn settings(&self) -> throng_gateway_engine::settings::EngineSettings {
        let mut settings = settings(&["-dev", "-cfsm=client_authoratative_fsm.json"]);
        let limits = &mut settings.limits;
        limits.client_resume_ms = self.resume_ms;
        (limits.max_interval_ms, limits.max_delay_ms, limits.min_delay_ms) = (1_000, 1_000, -1_000);
        (limits.max_slow_ms, limits.max_backlog_ms) = (2_000, 4_000);
        if self.filling_bytes > 0 {
            (limits.queue_soft_bytes, limits.queue_hard_bytes) = (16_384, 65_536);
            (limits.server_queue_soft_bytes, limits.server_queue_hard_bytes) = (16_384, 65_536);
        }
        settings
    }
}

struct World {
    stage: Stage,
    random: fastrand::Rng,
    weather: Weather,
    players: Vec<Player>,
    /// Those who may come back.
    lost: Vec<Player>,
    /// Events: connections that came back, and that were closed.
    returns: u32,
    ends: u32,
    channel: u32,
    /// The expected state, made from the writes, in order.
    truth: View,
    names: u32,
    sequences: BTreeMap<u32, u32>,
}

impl World {
    fn new(seed: u64) -> World {
        let weather = Weather::of(seed);
        let mut stage = Stage::new(weather.settings());
        stage.engine.set_helpers(helpers(weather.threads).expect("there are threads"));
        let owner = stage.server();
        stage.create_with_removals(&owner);
        let random = fastrand::Rng::with_seed(seed);
        let (truth, sequences) = (View::default(), BTreeMap::new());
        let (players, lost) = (Vec::new(), Vec::new());
        let mut world = World {
            stage,
            random,
            weather,
            players,
            lost,
            returns: 0,
            ends: 0,
            channel: 1,
            truth,
            names: 0,
            sequences,
        };
        for _ in 0..6 {
            world.join();
        }
        world
    }

    /// Somebody comes, and subscribes with whatever options.
    fn join(&mut self) {
        let side = if self.random.u8(..4) == 0 { Side::Server } else { Side::Client };
        self.names += 1;
        let peer = self.stage.join_as(side, &format!("player{}", self.names));
        let player = Player {
            peer,
            side,
            name: self.names,
            // Slices in flight are older than writes that come meanwhile: only a subscriber that also gets its own
            // updates can notice.
            skips_self: self.weather.filling_bytes == 0 && self.random.bool(),
            is_stuck: false,
            trickles: false,
            has_begun: false,
            found_nothing: self.truth.entities.is_empty() && self.truth.told.is_empty(),
            view: View::default(),
        };
        self.subscribe(&player);
        self.players.push(player);
    }

    fn subscribe(&mut self, player: &Player) {
        let options = ChannelSubscriptionOptions {
            data_access: Some(ChannelDataAccess::WriteAccess.into()),
            fan_out_interval_ms: Some(*self.random.choice(&[0, 5, 20, 33, 50, 100, 250, 1_000]).expect("some")),
            fan_out_delay_ms: Some(*self.random.choice(&[-5_000, -7, 0, 0, 3, 120]).expect("some")),
            skip_self_update_fan_out: Some(player.skips_self),
            ..Default::default()
        };
        self.stage.subscribe(&player.peer, &player.peer, self.channel, options);
    }

    /// Somebody goes, in one way or another.
    fn leave(&mut self) {
        let gone = self.players.swap_remove(self.random.usize(..self.players.len()));
        let cause = if self.random.bool() { EndCause::Lost } else { EndCause::PeerClosed };
        self.stage.drop_connection(&gone.peer, cause);
        self.lost.push(gone);
    }

    /// A connection comes back under its name, with its old copy; if it is too late, as a new connection.
    fn come_back(&mut self) {
        if self.lost.is_empty() {
            return;
        }
        let mut player = self.lost.swap_remove(self.random.usize(..self.lost.len()));
        let former = player.peer.id;
        player.peer = self.stage.connect(player.side);
        let auth = AuthMessage {
            player_identifier_token: format!("player{}", player.name),
            login_token: "x".into(),
            ..Default::default()
        };
        self.stage.say(&player.peer, Header::new(0, message_type::AUTH), &auth);
        // Everything received on the way counts: it is read with the rest.
        let bytes = player.peer.line.lock().unwrap().bytes.clone();
        let mut told = Messages::new(bytes.into()).map(|message| message.expect("a sound message"));
        let answer = told.next().expect("an answer").decode::<AuthResultMessage>().expect("an answer to a login");
        player.peer.id = answer.conn_id;
        (player.is_stuck, player.trickles) = (false, false);
        if answer.conn_id == former {
            assert!(player.side == Side::Client && !answer.should_recover);
            self.returns += 1;
        } else {
            (player.has_begun, player.view) = (false, View::default());
            self.subscribe(&player);
        }
        self.players.push(player);
    }

    /// A connection that did not read for too long was closed.
    fn part_with_the_ended(&mut self) {
        let (gone, present): (Vec<Player>, Vec<Player>) =
            std::mem::take(&mut self.players).into_iter().partition(|player| player.peer.is_closed());
        assert!(gone.iter().all(|player| player.is_stuck || player.trickles), "nobody else is ended");
        self.ends += gone.len() as u32;
        self.players = present;
        self.lost.extend(gone);
        while self.players.len() < 3 {
            self.join();
        }
    }

    fn write(&mut self) {
        let place = self.random.usize(..self.players.len());
        let player = &self.players[place];
        if player.skips_self && player.found_nothing && !player.has_begun {
            // There is no first state that could contain this write: the first update has only the writes of others.
            return;
        }
        let name = player.name;
        let (id, state) = match self.random.u8(..8) {
            0 => (self.random.u32(..ENTITIES), SpatialEntityState { removed: true, ..Default::default() }),
            1..4 => {
                let sequence = self.sequences.entry(name).or_default();
                let items = self.random.u32(1..4);
                let context = (*sequence..*sequence + items).map(|outer_guid| GuidCachedObject {
                    net_guid: name,
                    outer_guid,
                    path_name: String::new(),
                });
                let object = UnrealObjectRef { context: context.collect(), ..Default::default() };
                *sequence += items;
                (LEDGER, SpatialEntityState { obj_ref: Some(object), ..Default::default() })
            }
            kind => {
                let stamp = self.random.u32(..1_000_000);
                let object = UnrealObjectRef {
                    class_path: (kind < 7).then(|| self.signature(name, stamp)),
                    owning_conn_id: (kind > 5).then_some(stamp),
                    ..Default::default()
                };
                (self.random.u32(..ENTITIES), SpatialEntityState { obj_ref: Some(object), ..Default::default() })
            }
        };
        let update = SpatialChannelData { entities: [(id, state)].into() };
        let before = self.stage.engine.counters().updates;
        self.stage.update(&self.players[place].peer, self.channel, Any::pack(&update));
        assert_eq!(self.stage.engine.counters().updates, before + 1);
        // A subscriber that skips its own updates knows them already.
        if self.players[place].skips_self {
            self.hear();
            let player = &mut self.players[place];
            player.view.take(SpatialChannelData { entities: update.entities.clone() });
        }
        self.truth.take(update);
    }

    fn signature(&self, name: u32, stamp: u32) -> String {
        format!("{name}: {stamp}{}", " ".repeat(self.weather.filling_bytes))
    }

    fn hear(&mut self) {
        let channel = self.channel;
        for player in self.players.iter_mut().filter(|player| !player.is_stuck) {
            for message in self.stage.read(&player.peer).into_iter().filter(|message| message.channel_id == channel) {
                match message.msg_type {
                    // Its copy is void.
                    message_type::UNSUB_FROM_CHANNEL => {
                        let ended: UnsubscribedFromChannelResultMessage = message.decode().expect("a result");
                        player.has_begun &= ended.conn_id != player.peer.id;
                    }
                    message_type::CHANNEL_DATA_UPDATE => {
                        let update: ChannelDataUpdateMessage = message.decode().expect("an update");
                        if !std::mem::replace(&mut player.has_begun, true) {
                            player.view = View::default();
                        }
                        let value = update.data.expect("state").value;
                        player.view.take(prost::Message::decode(value).expect("the type of the channel"));
                    }
                    _ => {}
                }
            }
        }
    }

    fn step(&mut self) {
        match self.random.u8(..100) {
            0..2 if self.players.len() > 3 => self.leave(),
            2..4 if self.players.len() < 12 => self.join(),
            4 => {
                let player = self.players.swap_remove(0);
                self.subscribe(&player);
                self.players.push(player);
            }
            5 => self.toggle_stuck(),
            6..8 => self.come_back(),
            8 => self.toggle_trickle(),
            _ => self.write(),
        }
        let is_long = self.random.u8(..100) == 0;
        let ms = if is_long { self.weather.long_ms } else { *self.random.choice(&WAITS_MS).expect("some") };
        if ms > 0 {
            self.stage.pass(ms);
        }
        for player in self.players.iter().filter(|player| player.trickles) {
            player.peer.takes(6_000);
        }
        self.hear();
        self.part_with_the_ended();
    }

    /// Somebody's network becomes bad, or good again.
    fn toggle_trickle(&mut self) {
        let place = self.random.usize(..self.players.len());
        let player = &mut self.players[place];
        if player.is_stuck {
            return;
        }
        player.trickles = !player.trickles;
        match player.trickles {
            true => player.peer.stop_reading(),
            false => player.peer.read_on(),
        }
    }

    /// The network of a connection stops for a while, or works again.
    fn toggle_stuck(&mut self) {
        let place = self.random.usize(..self.players.len());
        let player = &mut self.players[place];
        player.is_stuck = !player.is_stuck;
        player.trickles = false;
        if player.is_stuck {
            // More than is waited for, less than is endured.
            player.peer.stall(match player.side {
                _ if self.weather.filling_bytes > 0 => 20_000,
                Side::Server => 8 << 20,
                Side::Client => 1 << 20,
            });
        } else {
            player.peer.read_on();
        }
    }

    /// All writers stop, and all readers read.
    fn settle(&mut self) {
        for player in &mut self.players {
            (player.is_stuck, player.trickles) = (false, false);
            player.peer.read_on();
        }
        self.stage.pass(5_000);
        self.hear();
        assert!(self.players.iter().all(|player| !player.peer.is_closed()));
        assert_eq!(self.stage.engine.counters().renewed, 0, "nobody missed a removal that is forgotten");
    }
}

#[test]
fn everybody_ends_with_the_state_and_is_told_each_change_once_and_in_order() {
    let (mut returns, mut ends) = (0, 0);
    throng_seeds::for_seeds(super::stage::WORLDS, |seed| {
        let mut world = World::new(seed);
        for _ in 0..500 {
            world.step();
        }
        world.settle();
        (returns, ends) = (returns + world.returns, ends + world.ends);
        for player in &world.players {
            assert_eq!(player.view.entities, world.truth.entities, "player {}", player.name);
            for (writer, expected) in &world.truth.told {
                let told = player.view.told.get(writer).map_or(&[][..], Vec::as_slice);
                assert_eq!(told, expected, "player {} of writer {writer}", player.name);
            }
            assert_eq!(player.view.told.len(), world.truth.told.len(), "somebody made something up");
        }
    });
    assert!(throng_seeds::is_partial() || returns > 50 && ends > 50, "{returns} came back, {ends} were ended");
}

#[test]
fn a_subscriber_that_skips_its_own_updates_gets_all_others_even_in_the_same_entry() {
    let mut stage = Stage::new(settings(&["-dev", "-cfsm=client_authoratative_fsm.json"]));
    let (owner, a, b) = (stage.server(), stage.client(), stage.client());
    let channel = stage.create(&owner, ChannelType::Test, None);
    let options = ChannelSubscriptionOptions {
        data_access: Some(ChannelDataAccess::WriteAccess.into()),
        fan_out_interval_ms: Some(50),
        ..Default::default()
    };
    for peer in [&a, &b] {
        stage.subscribe(peer, peer, channel, options.clone());
    }
    let entry = |object: UnrealObjectRef| {
        let state = SpatialEntityState { obj_ref: Some(object), ..Default::default() };
        Any::pack(&SpatialChannelData { entities: [(5, state)].into() })
    };
    stage.update(&owner, channel, entry(UnrealObjectRef { net_guid: Some(5), ..Default::default() }));
    stage.pass(200);
    for peer in [&a, &b, &owner] {
        stage.read(peer);
    }
    // Three writers in one entry, within one window.
    let of_a = UnrealObjectRef { class_path: Some("a".into()), ..Default::default() };
    let of_b = UnrealObjectRef { owning_conn_id: Some(7), ..Default::default() };
    let of_owner = UnrealObjectRef { bunch_bits_num: Some(9), ..Default::default() };
    for (peer, object) in [(&a, &of_a), (&b, &of_b), (&owner, &of_owner)] {
        stage.update(peer, channel, entry(object.clone()));
    }
    stage.pass(200);
    let merged = |parts: &[&UnrealObjectRef]| UnrealObjectRef {
        class_path: parts.iter().find_map(|part| part.class_path.clone()),
        owning_conn_id: parts.iter().find_map(|part| part.owning_conn_id),
        bunch_bits_num: parts.iter().find_map(|part| part.bunch_bits_num),
        ..Default::default()
    };
    for (peer, expected) in [(&a, [&of_b, &of_owner]), (&b, [&of_a, &of_owner]), (&owner, [&of_a, &of_b])] {
        let mut seen = UnrealObjectRef::default();
        for update in stage.updates::<SpatialChannelData>(peer, channel) {
            let object = update.entities[&5].obj_ref.clone().expect("the object");
            assert_eq!(object.net_guid, None, "nobody changed that");
            prost::Message::merge(&mut seen, &prost::Message::encode_to_vec(&object)[..]).expect("it merges");
        }
        assert_eq!(seen, merged(&expected));
    }
}

#[test]
fn a_newcomer_in_the_place_of_a_writer_is_told_what_that_one_wrote() {
    let mut stage = Stage::new(settings(&["-dev", "-cfsm=client_authoratative_fsm.json"]));
    let owner = stage.server();
    let channel = stage.create(&owner, ChannelType::Test, None);
    let options = ChannelSubscriptionOptions {
        data_access: Some(ChannelDataAccess::WriteAccess.into()),
        skip_first_fan_out: Some(true),
        fan_out_interval_ms: Some(20),
        ..Default::default()
    };
    stage.pass(100);
    let former = stage.client();
    stage.subscribe(&former, &former, channel, options.clone());
    let word = UnrealObjectRef { net_guid: Some(1), ..Default::default() };
    // All within one millisecond: the new connection gets the place of the writer that leaves.
    stage.update(&former, channel, Any::pack(&word));
    stage.drop_connection(&former, EndCause::Lost);
    let newcomer = stage.client();
    stage.subscribe(&newcomer, &newcomer, channel, options);
    let second = UnrealObjectRef { bunch_bits_num: Some(2), ..Default::default() };
    stage.update(&owner, channel, Any::pack(&second));
    stage.pass(100);
    let told = stage.updates::<UnrealObjectRef>(&newcomer, channel);
    assert!(told.iter().any(|update| update.bunch_bits_num == Some(2)), "{told:?}");
    stage.update(&owner, channel, Any::pack(&word));
    stage.pass(100);
    assert_eq!(stage.updates::<UnrealObjectRef>(&newcomer, channel), [word]);
}

#[test]
fn what_went_out_before_a_subscription_that_skips_the_first_is_not_told_again() {
    let mut stage = Stage::new(settings(&["-dev", "-cfsm=client_authoratative_fsm.json"]));
    let (owner, client) = (stage.server(), stage.client());
    let channel = stage.create(&owner, ChannelType::Test, None);
    stage.pass(1_000);
    let item = |sequence: u32| {
        let context = vec![GuidCachedObject { outer_guid: sequence, ..Default::default() }];
        Any::pack(&UnrealObjectRef { context, ..Default::default() })
    };
    stage.update(&owner, channel, item(1));
    let options = ChannelSubscriptionOptions {
        skip_first_fan_out: Some(true),
        fan_out_interval_ms: Some(20),
        ..Default::default()
    };
    stage.subscribe(&client, &client, channel, options);
    stage.update(&owner, channel, item(2));
    stage.pass(100);
    let told: Vec<u32> = stage
        .updates::<UnrealObjectRef>(&client, channel)
        .iter()
        .flat_map(|update| update.context.iter().map(|item| item.outer_guid))
        .collect();
    assert_eq!(told, [2]);
}
