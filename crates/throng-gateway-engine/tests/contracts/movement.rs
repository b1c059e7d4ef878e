//! Movement in the simulated network: whatever is lost, late or out of order, each subscriber ends with the owner's state,
//! sees no value after a newer one, and nothing that never was.
//!
//! The ends of the link are played here by their rules ([`Datagrams`], [`Freshness`]); the real ones are in
//! `movement_link.rs`.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::stage::{Peer, Stage, settings};
use bytes::Bytes;
use prost::Message as _;
use throng_channeld::link::Freshness;
use throng_channeld::proto::unrealpb::unreal_object_ref::GuidCachedObject;
use throng_channeld::proto::unrealpb::{SpatialChannelData, SpatialEntityState, UnrealObjectRef};
use throng_channeld::proto::{
    Any, ChannelDataUpdateMessage, ChannelSubscriptionOptions, ChannelType, SubscribedToChannelResultMessage,
    UnsubscribedFromChannelMessage, UnsubscribedFromChannelResultMessage,
};
use throng_channeld::{Header, Message, Messages, message_type};
use throng_gateway_engine::port::{Datagrams, Fate, Outbox, Side, Ticket};
use throng_wire::Time;

const CHANNELS: [u32; 3] = [1, 2, 3];
/// Two entities that are only ever written together, with the same number.
const TWINS: [u32; 2] = [1, 2];
/// The entity that a list grows in.
const LEDGER: u32 = 3;
/// The entity whose updates fit into no datagram.
const GIANT: u32 = 4;
/// Entities that come and go.
const GUESTS: std::ops::Range<u32> = 10..14;

/// The gateway's end of one link.
#[derive(Default)]
struct Line {
    entries: Vec<u8>,
    waiting: Vec<(Ticket, u64, Vec<u8>)>,
    fates: Vec<(Ticket, Fate)>,
    settled_bytes: u64,
}

struct LinkOutbox(Arc<Mutex<Line>>);

impl Outbox for LinkOutbox {
    fn queued_bytes(&self) -> usize {
        0
    }

    fn send(&self, entries: &mut Vec<u8>) {
        self.0.lock().unwrap().entries.append(entries);
    }

    fn close(&self) {}

    fn datagrams(&self) -> Option<&dyn Datagrams> {
        Some(self)
    }
}

impl Datagrams for LinkOutbox {
    fn settled_bytes(&self) -> u64 {
        self.0.lock().unwrap().settled_bytes
    }

    fn send(&self, ticket: Ticket, after_bytes: u64, entries: &[u8]) {
        let mut line = self.0.lock().unwrap();
        line.waiting.retain(|(elder, ..)| !elder.is_sibling(&ticket));
        line.waiting.push((ticket, after_bytes, entries.to_vec()));
    }

    fn take_fates(&self, into: &mut Vec<(Ticket, Fate)>) {
        into.append(&mut self.0.lock().unwrap().fates);
    }
}

/// The data in flight between the gateway and one client.
#[derive(Default)]
struct Path {
    /// Messages of the reliable lane, with when they arrive and where they end.
    messages: VecDeque<(Time, Vec<u8>, u64)>,
    /// Acknowledgements of those.
    acknowledged: VecDeque<(Time, u64)>,
    /// Ends of messages that are not acknowledged.
    ends: VecDeque<u64>,
    handed: u32,
    handed_bytes: u64,
    sequence: u64,
    /// Datagrams: when they arrive, sequence, `after`, entries.
    datagrams: Vec<(Time, u64, u32, Vec<u8>)>,
    verdicts: Vec<(Time, Ticket, Fate)>,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct View {
    /// By entity: the number that was written last.
    numbers: BTreeMap<u32, u32>,
    told: Vec<u32>,
}

impl View {
    fn take(&mut self, update: &SpatialChannelData) {
        for (&id, state) in &update.entities {
            if state.removed {
                self.numbers.remove(&id);
                continue;
            }
            let Some(object) = &state.obj_ref else { continue };
            if let Some(number) = object.owning_conn_id {
                self.numbers.insert(id, number);
            }
            self.told.extend(object.context.iter().map(|item| item.outer_guid));
        }
    }
}

struct Client {
    peer: Peer,
    line: Arc<Mutex<Line>>,
    path: Path,
    fresh: Freshness,
    /// Shows everything that comes, whatever its order.
    is_careless: bool,
    subscribed: BTreeSet<u32>,
    views: BTreeMap<u32, View>,
    /// By channel and entity: the newest number that was ever shown.
    newest: HashMap<(u32, u32), u32>,
    stale: u32,
    shown: u32,
    faults: Vec<String>,
}

impl Client {
    fn take_packet(&mut self, packet: Vec<u8>) {
        self.fresh.next_packet();
        for message in Messages::new(packet.into()) {
            let message = message.expect("sound");
            self.fresh.note(&message);
            self.take(&message);
        }
    }

    fn take_datagram(&mut self, sequence: u64, after: u32, entries: Vec<u8>) {
        for message in Messages::new(entries.into()) {
            let message = message.expect("sound");
            if self.fresh.take(sequence, after, &message) || self.is_careless {
                self.shown += 1;
                self.take(&message);
            } else {
                self.stale += 1;
            }
        }
    }

    fn take(&mut self, message: &Message) {
        let channel = message.channel_id;
        match message.msg_type {
            message_type::SUB_TO_CHANNEL => {
                let result: SubscribedToChannelResultMessage = message.decode().expect("a result");
                if result.conn_id == self.peer.id && self.subscribed.insert(channel) {
                    self.views.insert(channel, View::default());
                }
            }
            message_type::UNSUB_FROM_CHANNEL => {
                let result: UnsubscribedFromChannelResultMessage = message.decode().expect("a result");
                if result.conn_id == self.peer.id {
                    self.subscribed.remove(&channel);
                }
            }
            message_type::CHANNEL_DATA_UPDATE => {
                let update: ChannelDataUpdateMessage = message.decode().expect("an update");
                let update = SpatialChannelData::decode(update.data.expect("data").value).expect("its type");
                self.show(channel, &update);
            }
            _ => {}
        }
    }

    fn show(&mut self, channel: u32, update: &SpatialChannelData) {
        if !self.subscribed.contains(&channel) {
            self.faults.push(format!("an update of channel {channel} without a subscription"));
            return;
        }
        let view = self.views.entry(channel).or_default();
        view.take(update);
        for (&id, state) in &update.entities {
            let number = state.obj_ref.as_ref().and_then(|object| object.owning_conn_id);
            let newest = self.newest.entry((channel, id)).or_default();
            match number {
                Some(number) if number < *newest => {
                    self.faults.push(format!("channel {channel} entity {id}: {number} after {newest}"));
                }
                Some(number) => *newest = number,
                None => {}
            }
        }
        if view.numbers.get(&TWINS[0]) != view.numbers.get(&TWINS[1]) {
            self.faults.push(format!("channel {channel}: a state that never was, {:?}", view.numbers));
        }
    }
}

struct World {
    stage: Stage,
    random: fastrand::Rng,
    owner: Peer,
    clients: Vec<Client>,
    truth: BTreeMap<u32, View>,
    number: u32,
    /// The network does its worst.
    is_bad: bool,
    waiting_max: usize,
}

impl World {
    fn new(seed: u64, is_careless: bool) -> World {
        let arguments = ["-dev", "-cfsm=client_authoratative_fsm.json", "-threads=1", "-movement=test"];
        let mut stage = Stage::new(settings(&arguments));
        let owner = stage.server();
        for _ in CHANNELS {
            stage.create_with_removals(&owner);
        }
        let random = fastrand::Rng::with_seed(seed);
        let truth = CHANNELS.into_iter().map(|channel| (channel, View::default())).collect();
        let mut world =
            World { stage, random, owner, clients: Vec::new(), truth, number: 0, is_bad: true, waiting_max: 0 };
        for number in 0..4 {
            world.join(number, is_careless);
        }
        world
    }

    fn join(&mut self, number: usize, is_careless: bool) {
        let line = Arc::new(Mutex::new(Line::default()));
        let address = "127.0.0.1:40000".parse().expect("an address");
        let outbox = Box::new(LinkOutbox(Arc::clone(&line)));
        let key = self.stage.engine.open(self.stage.now, Side::Client, address, outbox).expect("room");
        // `-dev` counts: the owner is 1.
        let peer = Peer { key, side: Side::Client, id: number as u32 + 2, line: Arc::default() };
        let auth =
            throng_channeld::proto::AuthMessage { player_identifier_token: format!("c{number}"), ..Default::default() };
        self.stage.say(&peer, Header::new(0, message_type::AUTH), &auth);
        self.clients.push(Client {
            peer,
            line,
            path: Path::default(),
            fresh: Freshness::default(),
            is_careless,
            subscribed: BTreeSet::new(),
            views: BTreeMap::new(),
            newest: HashMap::new(),
            stale: 0,
            shown: 0,
            faults: Vec::new(),
        });
        for channel in CHANNELS {
            self.subscribe(number, channel);
        }
    }

    fn subscribe(&mut self, client: usize, channel: u32) {
        let options = ChannelSubscriptionOptions {
            fan_out_interval_ms: Some(*self.random.choice(&[5, 20, 33, 50, 100]).expect("some")),
            reliable_fan_out: Some(self.random.u8(..8) == 0),
            ..Default::default()
        };
        let peer = self.clients[client].peer.clone();
        self.stage.subscribe(&peer, &peer, channel, options);
    }

    fn unsubscribe(&mut self, client: usize, channel: u32) {
        let peer = self.clients[client].peer.clone();
        let unsubscribe = UnsubscribedFromChannelMessage { conn_id: peer.id };
        self.stage.say(&peer, Header::new(channel, message_type::UNSUB_FROM_CHANNEL), &unsubscribe);
    }

    fn write(&mut self) {
        self.number += 1;
        let number = self.number;
        let holding = |object| SpatialEntityState { obj_ref: Some(object), ..Default::default() };
        let numbered = UnrealObjectRef { owning_conn_id: Some(number), ..Default::default() };
        let guest = self.random.u32(GUESTS);
        let entities: BTreeMap<u32, SpatialEntityState> = match self.random.u8(..250) {
            0..5 => [(guest, SpatialEntityState { removed: true, ..Default::default() })].into(),
            5..7 => {
                let item = GuidCachedObject { outer_guid: number, ..Default::default() };
                let list = UnrealObjectRef { context: vec![item], ..Default::default() };
                [(LEDGER, holding(list))].into()
            }
            7 => {
                let class_path = Some("far".repeat(700));
                [(GIANT, holding(UnrealObjectRef { class_path, ..numbered }))].into()
            }
            8..60 => [(guest, holding(numbered))].into(),
            _ => TWINS.map(|twin| (twin, holding(numbered.clone()))).into(),
        };
        let channel = *self.random.choice(&CHANNELS).expect("some");
        let update = SpatialChannelData { entities };
        let before = self.stage.engine.counters().updates;
        self.stage.update(&self.owner.clone(), channel, Any::pack(&update));
        assert_eq!(self.stage.engine.counters().updates, before + 1);
        self.truth.entry(channel).or_default().take(&update);
    }

    fn ms(&mut self, range: std::ops::Range<u64>) -> Time {
        self.stage.now.after(Duration::from_millis(self.random.u64(range)))
    }

    /// The gateway's data is put on its way.
    fn hand_over(&mut self, client: usize) {
        let line = Arc::clone(&self.clients[client].line);
        let mut line = line.lock().unwrap();
        if !line.entries.is_empty() {
            let entries = std::mem::take(&mut line.entries);
            let last = self.clients[client].path.messages.back().map_or(Time(0), |&(at, ..)| at);
            let at = if self.is_bad && self.random.u8(..6) == 0 { self.ms(100..600) } else { self.ms(5..60) }.max(last);
            let path = &mut self.clients[client].path;
            path.handed += 1;
            path.handed_bytes += entries.len() as u64;
            path.ends.push_back(path.handed_bytes);
            path.messages.push_back((at, entries, path.handed_bytes));
        }
        self.waiting_max = self.waiting_max.max(line.waiting.len());
        if self.is_bad && self.random.u8(..4) == 0 {
            // The path takes nothing now.
            return;
        }
        for (ticket, after_bytes, entries) in std::mem::take(&mut line.waiting) {
            if after_bytes < line.settled_bytes {
                let now = self.stage.now;
                self.clients[client].path.verdicts.push((now, ticket, Fate::Lost));
                continue;
            }
            let is_lost = self.is_bad && self.random.u8(..5) == 0;
            let at = if self.is_bad { self.ms(5..250) } else { self.ms(5..60) };
            let told = at.after(Duration::from_millis(self.random.u64(5..120)));
            // Sometimes the acknowledgement is lost.
            let fate = if is_lost || (self.is_bad && self.random.u8(..12) == 0) { Fate::Lost } else { Fate::Delivered };
            let path = &mut self.clients[client].path;
            path.sequence += 1;
            let newer = path.ends.iter().filter(|&&end| end > after_bytes).count() as u32;
            if !is_lost {
                path.datagrams.push((at, path.sequence, path.handed - newer, entries));
            }
            path.verdicts.push((told, ticket, fate));
        }
    }

    /// Data that is due by now arrives.
    fn arrive(&mut self, client: usize) {
        let now = self.stage.now;
        let client = &mut self.clients[client];
        while client.path.messages.front().is_some_and(|&(at, ..)| at <= now) {
            let (at, packet, end) = client.path.messages.pop_front().expect("it is there");
            client.path.acknowledged.push_back((at.after(Duration::from_millis(30)), end));
            client.take_packet(packet);
        }
        let (due, rest) = std::mem::take(&mut client.path.datagrams).into_iter().partition(|&(at, ..)| at <= now);
        client.path.datagrams = rest;
        let mut due: Vec<(Time, u64, u32, Vec<u8>)> = due;
        due.sort_by_key(|&(at, ..)| at);
        for (_, sequence, after, entries) in due {
            client.take_datagram(sequence, after, entries);
        }
    }

    /// The gateway learns what has arrived.
    fn acknowledge(&mut self, client: usize) {
        let now = self.stage.now;
        let Client { path, line, peer, .. } = &mut self.clients[client];
        let mut line = line.lock().unwrap();
        while path.acknowledged.front().is_some_and(|&(at, _)| at <= now) {
            let (_, end) = path.acknowledged.pop_front().expect("it is there");
            path.ends.pop_front();
            line.settled_bytes = end;
        }
        let (due, rest): (Vec<_>, Vec<_>) = path.verdicts.drain(..).partition(|&(at, ..)| at <= now);
        path.verdicts = rest;
        let has_losses = due.iter().any(|&(.., fate)| fate == Fate::Lost);
        line.fates.extend(due.into_iter().map(|(_, ticket, fate)| (ticket, fate)));
        drop(line);
        if has_losses {
            self.stage.engine.datagrams_settled(now, peer.key);
        }
    }

    fn pass(&mut self, ms: u64) {
        for _ in 0..ms {
            self.stage.pass(1);
            for client in 0..self.clients.len() {
                self.hand_over(client);
                self.arrive(client);
                self.acknowledge(client);
            }
        }
    }

    fn step(&mut self) {
        let client = self.random.usize(..self.clients.len());
        let channel = *self.random.choice(&CHANNELS).expect("some");
        match self.random.u8(..200) {
            0 => self.unsubscribe(client, channel),
            1..4 => self.subscribe(client, channel),
            _ => self.write(),
        }
        let ms = *self.random.choice(&[0, 1, 1, 2, 3, 7, 15, 40]).expect("some");
        self.pass(ms);
    }

    /// All writers stop, and data in flight arrives.
    fn settle(&mut self) {
        for client in 0..self.clients.len() {
            for channel in CHANNELS {
                self.subscribe(client, channel);
            }
        }
        self.pass(600);
        self.is_bad = false;
        self.pass(2_000);
    }

    fn play(seed: u64, is_careless: bool) -> World {
        let mut world = World::new(seed, is_careless);
        for _ in 0..1_000 {
            world.step();
        }
        world.settle();
        world
    }
}

#[test]
fn everybody_ends_with_the_state_and_sees_nothing_old_and_nothing_that_never_was() {
    let (mut shown, mut stale, mut lost, mut delivered) = (0, 0, 0, 0);
    throng_seeds::for_seeds(400, |seed| {
        let world = World::play(seed, false);
        for client in &world.clients {
            assert!(client.faults.is_empty(), "client {}: {:?}", client.peer.id, client.faults);
            assert_eq!(client.views, world.truth, "client {}", client.peer.id);
            shown += client.shown;
            stale += client.stale;
        }
        // The newest of each subscription waits, and of those that have just ended.
        assert!(world.waiting_max <= 2 * CHANNELS.len(), "{} frames wait", world.waiting_max);
        lost += world.stage.engine.counters().datagrams_lost;
        delivered += world.stage.engine.counters().datagrams_delivered;
    });
    println!("{shown} shown, {stale} stale, {delivered} known to have arrived, {lost} lost");
    let is_hard = shown > 5_000 && stale > 500 && lost > 500 && delivered > 5_000;
    assert!(is_hard || throng_seeds::is_partial(), "the network was too good");
}

#[test]
fn a_client_that_shows_all_that_comes_sees_old_values() {
    let faults: usize = (0..5)
        .map(|seed| World::play(seed, true).clients.iter().map(|client| client.faults.len()).sum::<usize>())
        .sum();
    assert!(faults > 0, "the order of things does not matter here, so the other test proves nothing");
}

#[test]
fn a_client_without_movement_gets_none() {
    let mut stage = Stage::new(settings(&["-dev", "-cfsm=client_authoratative_fsm.json", "-movement=none"]));
    let owner = stage.server();
    let channel = stage.create(&owner, ChannelType::Test, Some(Any::pack(&SpatialChannelData::default())));
    let line = Arc::new(Mutex::new(Line { settled_bytes: u64::MAX, ..Line::default() }));
    let address = "127.0.0.1:40000".parse().expect("an address");
    let outbox = Box::new(LinkOutbox(Arc::clone(&line)));
    let key = stage.engine.open(stage.now, Side::Client, address, outbox).expect("room");
    let peer = Peer { key, side: Side::Client, id: 2, line: Arc::default() };
    let auth = throng_channeld::proto::AuthMessage::default();
    stage.say(&peer, Header::new(0, message_type::AUTH), &auth);
    stage.subscribe(&peer, &peer, channel, crate::stage::every(20));
    for _ in 0..20 {
        let state = SpatialEntityState { removed: false, ..Default::default() };
        stage.update(&owner, channel, Any::pack(&SpatialChannelData { entities: [(1, state)].into() }));
        stage.pass(20);
    }
    let line = line.lock().unwrap();
    let updates = Messages::new(Bytes::copy_from_slice(&line.entries))
        .filter(|message| message.as_ref().is_ok_and(|message| message.msg_type == message_type::CHANNEL_DATA_UPDATE));
    assert!(updates.count() > 10);
    assert!(line.waiting.is_empty());
}
