//! What a client sees in the course of time, while packets are lost and overtake each other.
//!
//! Versions and names are counted by the test itself, and the server's store is not asked: every field of a [`Stamp`]
//! follows from the number of its changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fastrand::Rng;
use throng_replica::{
    ChannelKey, ClientEvent, ClientOptions, DespawnReason, Inline, Placement, ReplicaClient, Replicator,
    ReplicatorOptions, SubscriptionId,
};
use throng_schema::{Replicate, Schema};
use throng_wire::{ConnectionId, ObjectId, Tick};

/// An object that says how often it was changed, in two fields that always change together, and which object it follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Replicate)]
struct Stamp {
    #[replicate(integer)]
    version: u32,
    #[replicate(integer)]
    same_version: u32,
    /// The test's own number of the object, which is never used twice.
    #[replicate(integer, initial_only)]
    number: u32,
    #[replicate(object)]
    leader: ObjectId,
    /// The test's own number of the leader. It changes with the leader.
    #[replicate(integer)]
    leader_number: u32,
}

const CHANNELS: u32 = 3;
const STORM_TICKS: u32 = 400;

struct Packet {
    due: u32,
    tick: Tick,
    bytes: Vec<u8>,
}

/// One server, one client, and the history of what the client has seen.
struct Play {
    rng: Rng,
    server: Replicator,
    client: ReplicaClient,
    connection: ConnectionId,
    subscriptions: BTreeMap<ChannelKey, SubscriptionId>,
    sequence: u64,
    under_way: Vec<Packet>,
    verdicts: Vec<(u32, u64, bool)>,
    /// All objects that are alive.
    stamps: BTreeMap<ObjectId, Stamp>,
    /// The numbers of all objects that ever were.
    numbers: BTreeMap<ObjectId, u32>,
    /// By object: the highest version that the client has shown.
    shown: BTreeMap<ObjectId, u32>,
    in_sight: BTreeSet<ObjectId>,
    destroyed: BTreeSet<ObjectId>,
    births: u32,
    references_followed: u32,
}

impl Play {
    fn new(seed: u64) -> Play {
        let schema = Arc::new(Schema::builder().kind::<Stamp>().build().expect("a good kind"));
        // So short a memory that slots and indices are used again while old packets are under way.
        let options = ReplicatorOptions { retention_ticks: 6, ..ReplicatorOptions::default() };
        let mut server = Replicator::new(Arc::clone(&schema), options);
        let client = ReplicaClient::new(schema, &[], ClientOptions::default()).expect("no grids");
        let connection = server.hub().connect().expect("room");
        Play {
            rng: Rng::with_seed(seed),
            server,
            client,
            connection,
            subscriptions: BTreeMap::new(),
            sequence: 0,
            under_way: Vec::new(),
            verdicts: Vec::new(),
            stamps: BTreeMap::new(),
            numbers: BTreeMap::new(),
            shown: BTreeMap::new(),
            in_sight: BTreeSet::new(),
            destroyed: BTreeSet::new(),
            births: 0,
            references_followed: 0,
        }
    }

    /// A storm, and calm until everything has arrived. `look` is asked after each packet.
    fn run(&mut self, mut look: impl FnMut(&mut Play) -> Result<(), String>) -> Result<(), String> {
        for step in 0..STORM_TICKS + 60 {
            let is_storm = step < STORM_TICKS;
            self.hear_verdicts(step);
            self.server.begin_tick();
            if is_storm {
                (0..self.rng.usize(..5)).for_each(|_| self.change_something());
                self.change_subscriptions();
            }
            self.server.plan();
            self.server.encode(&Inline);
            self.send(step, is_storm);
            self.rng.shuffle(&mut self.under_way);
            for packet in self.under_way.extract_if(.., |packet| packet.due <= step).collect::<Vec<_>>() {
                self.client.apply(packet.tick, &packet.bytes).map_err(|error| error.to_string())?;
                look(self).map_err(|fault| format!("step {step}: {fault}"))?;
            }
        }
        Ok(())
    }

    fn change_something(&mut self) {
        let some = |rng: &mut Rng, stamps: &BTreeMap<ObjectId, Stamp>| rng.choice(stamps.keys()).copied();
        let key = ChannelKey::Custom(self.rng.u32(..CHANNELS));
        match (self.rng.u32(..10), some(&mut self.rng, &self.stamps)) {
            (0..2, _) | (_, None) => {
                self.births += 1;
                let stamp = Stamp { number: self.births, ..Stamp::default() };
                let kind = self.server.store().schema().kind_id::<Stamp>().expect("in the schema");
                let placement = Placement::Channel(key);
                let id = self.server.spawn(kind, placement, None, |to| stamp.quantise(to)).expect("room");
                assert_eq!(self.numbers.insert(id, self.births), None, "{id} was given twice");
                self.stamps.insert(id, stamp);
            }
            (2, Some(id)) => {
                self.server.despawn(id);
                self.stamps.remove(&id);
            }
            (3, Some(id)) => self.server.set_placement(id, Placement::Channel(key)).expect("room"),
            (dice, Some(id)) => {
                let leader = some(&mut self.rng, &self.stamps).expect("one at least");
                let stamp = self.stamps.get_mut(&id).expect("it is alive");
                stamp.version += 1;
                stamp.same_version = stamp.version;
                if dice < 6 {
                    (stamp.leader, stamp.leader_number) = (leader, self.numbers[&leader]);
                }
                self.server.update(id, |to| stamp.quantise(to)).expect("room");
            }
        }
    }

    fn change_subscriptions(&mut self) {
        if !self.subscriptions.is_empty() && self.rng.u32(..12) != 0 {
            return;
        }
        let key = ChannelKey::Custom(self.rng.u32(..CHANNELS));
        match self.subscriptions.remove(&key) {
            Some(subscription) => self.server.hub().unsubscribe(self.connection, subscription),
            None => {
                let (channel, interval) = (self.server.channel(key).expect("room"), self.rng.u16(1..4));
                let subscription = self.server.hub().subscribe(self.connection, channel, interval, 1).expect("room");
                self.subscriptions.insert(key, subscription);
            }
        }
    }

    fn send(&mut self, step: u32, is_storm: bool) {
        let tick = self.server.now();
        let (outgoing, slots) = self.server.writers();
        let connection = slots[self.connection.index as usize].connection.as_mut().expect("it stays");
        connection.begin_objects(outgoing, 1_000);
        while connection.has_more_objects() {
            let mut bytes = vec![0; 300];
            if connection.write_objects(outgoing, self.sequence, &mut bytes) == 0 {
                break;
            }
            let is_lost = is_storm && self.rng.u32(..10) < 3;
            let due = step + if is_storm { self.rng.u32(..12) } else { 1 };
            // The layer below drops copies, so each packet arrives once at most.
            if !is_lost {
                self.under_way.push(Packet { due, tick, bytes });
            }
            self.verdicts.push((due + self.rng.u32(1..4), self.sequence, !is_lost));
            self.sequence += 1;
        }
    }

    fn hear_verdicts(&mut self, step: u32) {
        for (_, sequence, is_delivered) in self.verdicts.extract_if(.., |verdict| verdict.0 <= step).collect::<Vec<_>>()
        {
            match is_delivered {
                true => self.server.hub().delivered(self.connection, sequence),
                false => self.server.lost(self.connection, sequence),
            }
        }
    }

    /// What the client shows of an object, as far as it is told.
    fn seen(&self, id: ObjectId) -> Option<Stamp> {
        let object = self.client.object(id)?;
        let mut stamp = Stamp::default();
        stamp.apply(object.known_fields(), object.values());
        Some(stamp)
    }

    fn all_seen(&self) -> Vec<(ObjectId, Stamp)> {
        self.client.objects().filter_map(|object| Some((object.id(), self.seen(object.id())?))).collect()
    }
}

const SEEDS: u64 = 40;

#[test]
fn r02_a_value_never_goes_back() {
    let mut highest = 0;
    throng_seeds::for_seeds(SEEDS, |seed| {
        let mut play = Play::new(seed);
        play.run(|play| {
            for (id, stamp) in play.all_seen() {
                let shown = play.shown.entry(id).or_default();
                if stamp.version < *shown {
                    return Err(format!("{id} went back from version {shown} to {}", stamp.version));
                }
                *shown = stamp.version;
            }
            Ok(())
        })?;
        highest = highest.max(play.shown.values().max().copied().unwrap_or(0));
        Ok(())
    });
    assert!(highest > 20 || throng_seeds::is_replay(), "version {highest} is the highest: nothing is tested");
}

#[test]
fn r05_what_was_destroyed_never_comes_back() {
    let mut destroyed = 0;
    throng_seeds::for_seeds(SEEDS, |seed| {
        let mut play = Play::new(seed);
        play.run(|play| {
            while let Some(event) = play.client.poll_event() {
                if let ClientEvent::Despawned { id, reason: DespawnReason::Destroyed } = event {
                    if play.stamps.contains_key(&id) {
                        return Err(format!("{id} is said to be destroyed, and lives"));
                    }
                    play.destroyed.insert(id);
                }
            }
            match play.destroyed.iter().find(|&&id| play.client.object(id).is_some()) {
                Some(id) => Err(format!("{id} came back after its end")),
                None => Ok(()),
            }
        })?;
        destroyed += play.destroyed.len();
        Ok(())
    });
    assert!(destroyed > 400 || throng_seeds::is_replay(), "only {destroyed} ends were seen");
}

#[test]
fn r06_each_time_in_sight_begins_with_one_event_and_ends_with_one() {
    throng_seeds::for_seeds(SEEDS, |seed| {
        let mut play = Play::new(seed);
        play.run(|play| {
            while let Some(event) = play.client.poll_event() {
                let is_as_before = match event {
                    ClientEvent::Spawned(id) => play.in_sight.insert(id),
                    ClientEvent::Despawned { id, .. } => play.in_sight.remove(&id),
                    ClientEvent::Changed { id, .. } => play.in_sight.contains(&id),
                    _ => true,
                };
                if !is_as_before {
                    return Err(format!("{event:?} is told at a wrong time"));
                }
            }
            let seen: BTreeSet<ObjectId> = play.client.objects().map(|object| object.id()).collect();
            if seen == play.in_sight { Ok(()) } else { Err("events and objects differ".to_owned()) }
        })
    });
}

#[test]
fn r08_fields_that_always_change_together_arrive_together() {
    throng_seeds::for_seeds(SEEDS, |seed| {
        Play::new(seed).run(|play| {
            for (id, stamp) in play.all_seen() {
                if stamp.version != stamp.same_version {
                    return Err(format!("{id} shows two versions at once: {stamp:?}"));
                }
            }
            Ok(())
        })
    });
}

#[test]
fn r11_a_reference_names_the_object_that_was_meant_or_none() {
    let mut followed = 0;
    throng_seeds::for_seeds(SEEDS, |seed| {
        let mut play = Play::new(seed);
        play.run(|play| {
            for (id, stamp) in play.all_seen() {
                let Some(leader) = play.seen(stamp.leader) else { continue };
                play.references_followed += 1;
                if stamp.leader_number != 0 && leader.number != 0 && leader.number != stamp.leader_number {
                    return Err(format!(
                        "{id} follows {}, and the client finds {}",
                        stamp.leader_number, leader.number
                    ));
                }
            }
            Ok(())
        })?;
        followed += play.references_followed;
        Ok(())
    });
    assert!(followed > 5_000 || throng_seeds::is_replay(), "only {followed} references were followed");
}
