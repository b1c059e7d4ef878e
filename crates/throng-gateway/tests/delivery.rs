//! Whatever writers write, however often subscribers are served, whoever comes and goes: everybody ends with the
//! state, and is told each change once and in order.

mod stage;

use std::collections::BTreeMap;

use stage::{Peer, Stage, settings};
use throng_channeld::proto::unrealpb::unreal_object_ref::GuidCachedObject;
use throng_channeld::proto::unrealpb::{SpatialChannelData, SpatialEntityState, UnrealObjectRef};
use throng_channeld::proto::{
    Any, ChannelDataAccess, ChannelDataMergeOptions, ChannelSubscriptionOptions, ChannelType, CreateChannelMessage,
};
use throng_channeld::{Header, message_type};
use throng_gateway::engine::port::{EndCause, Side};

/// Entities that writers fight over.
const ENTITIES: u32 = 6;

/// One of those who write and read.
struct Player {
    peer: Peer,
    side: Side,
    /// Under which it signs what it writes; no two players have the same.
    name: u32,
    skips_self: bool,
    is_stuck: bool,
    /// It has been told everything once. What it wrote before that is in it.
    has_begun: bool,
    view: View,
}

/// What somebody has been told.
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

/// The entity that lists grow in: nobody removes it.
const LEDGER: u32 = 1_000;

struct World {
    stage: Stage,
    random: fastrand::Rng,
    players: Vec<Player>,
    channel: u32,
    /// What the state is, made from what was written, in order.
    truth: View,
    names: u32,
    sequences: BTreeMap<u32, u32>,
}

impl World {
    fn new(seed: u64) -> World {
        let mut stage = Stage::new(settings(&["-dev", "-cfsm=client_authoratative_fsm.json", "-threads=1"]));
        let owner = stage.server();
        let options = ChannelDataMergeOptions { should_check_removable_map_field: true, ..Default::default() };
        let create = CreateChannelMessage {
            channel_type: ChannelType::Test.into(),
            merge_options: Some(options),
            ..Default::default()
        };
        stage.say(&owner, Header::new(0, message_type::CREATE_CHANNEL), &create);
        let random = fastrand::Rng::with_seed(seed);
        let (truth, sequences) = (View::default(), BTreeMap::new());
        let mut world = World { stage, random, players: Vec::new(), channel: 1, truth, names: 0, sequences };
        for _ in 0..6 {
            world.join();
        }
        world
    }

    /// Somebody comes, and subscribes with whatever options.
    fn join(&mut self) {
        let side = if self.random.u8(..4) == 0 { Side::Server } else { Side::Client };
        let peer = self.stage.join_as(side, "player");
        self.names += 1;
        let player = Player {
            peer,
            side,
            name: self.names,
            skips_self: self.random.bool(),
            is_stuck: false,
            has_begun: false,
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
    }

    fn write(&mut self) {
        let place = self.random.usize(..self.players.len());
        let name = self.players[place].name;
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
                    class_path: (kind < 7).then(|| format!("{name}: {stamp}")),
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
        // Who skips its own updates knows them already.
        if self.players[place].skips_self {
            self.hear();
            let player = &mut self.players[place];
            player.view.take(SpatialChannelData { entities: update.entities.clone() });
        }
        self.truth.take(update);
    }

    fn hear(&mut self) {
        for player in &mut self.players {
            if !player.is_stuck {
                for update in self.stage.updates::<SpatialChannelData>(&player.peer, self.channel) {
                    if !std::mem::replace(&mut player.has_begun, true) {
                        player.view = View::default();
                    }
                    player.view.take(update);
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
            _ => self.write(),
        }
        let ms = *self.random.choice(&[0, 0, 0, 1, 1, 2, 7, 30, 120]).expect("some");
        if ms > 0 {
            self.stage.pass(ms);
        }
        self.hear();
    }

    /// Somebody's network stops for a while, or goes on.
    fn toggle_stuck(&mut self) {
        let place = self.random.usize(..self.players.len());
        let player = &mut self.players[place];
        player.is_stuck = !player.is_stuck;
        if player.is_stuck {
            // More than is waited for, less than is endured.
            player.peer.stall(if player.side == Side::Server { 8 << 20 } else { 1 << 20 });
        } else {
            player.peer.read_on();
        }
    }

    /// Nobody writes any more, and everybody reads.
    fn settle(&mut self) {
        for player in &mut self.players {
            player.is_stuck = false;
            player.peer.read_on();
        }
        self.stage.pass(5_000);
        self.hear();
    }
}

#[test]
fn everybody_ends_with_the_state_and_is_told_each_change_once_and_in_order() {
    let seeds = std::env::var("DELIVERY_SEED").ok().and_then(|seed| seed.parse().ok()).map_or(0..60, |s: u64| s..s + 1);
    for seed in seeds {
        let mut world = World::new(seed);
        for _ in 0..500 {
            world.step();
        }
        world.settle();
        let again = format!("seed {seed}: again with DELIVERY_SEED={seed}");
        for player in &world.players {
            for (writer, expected) in &world.truth.told {
                let told = player.view.told.get(writer).map_or(&[][..], Vec::as_slice);
                assert_eq!(told, expected, "{again}: player {} of writer {writer}", player.name);
            }
            assert_eq!(player.view.told.len(), world.truth.told.len(), "{again}: somebody made something up");
        }
    }
}

#[test]
fn everybody_ends_with_the_same_entities_also_who_skips_its_own_words() {
    for seed in 0..60 {
        let mut world = World::new(seed);
        for _ in 0..500 {
            world.step();
        }
        world.settle();
        for player in &world.players {
            assert_eq!(player.view.entities, world.truth.entities, "seed {seed}, player {}", player.name);
        }
    }
}

#[test]
fn who_skips_its_own_words_is_told_all_others_even_in_the_same_entry() {
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
    // All within one millisecond: the newcomer gets the place that the writer leaves.
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
