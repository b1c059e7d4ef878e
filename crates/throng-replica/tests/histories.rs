//! The order of the states that a client sees, while packets are lost and overtake each other.
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

/// An object that says how often it was changed, in fields of several sorts and for several audiences that always change
/// together, and which object it follows.
#[derive(Clone, Debug, Default, PartialEq, Replicate)]
struct Stamp {
    #[replicate(integer)]
    version: u32,
    #[replicate(integer, owner_only)]
    owners_version: u32,
    #[replicate(text(max_bytes = 8))]
    spelled_version: String,
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
/// Packets are lost in the first half of each round.
const ROUND_TICKS: u32 = 40;
/// A packet is on its way for less than this.
const DELAY_TICKS: u32 = 12;
/// Its verdict comes less than this after it.
const VERDICT_TICKS: u32 = 4;
/// All that was true at a moment has arrived after so long: what is lost in one round is noticed and sent again in the
/// calm of it or of the next one, at the turn of the slowest subscription. (A subscription with old pieces under way gets
/// no new frame, so the end of one round may be lost in the next.)
const LATE_TICKS: u32 = ROUND_TICKS + ROUND_TICKS / 2 + 2 * DELAY_TICKS + VERDICT_TICKS + 4;

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
    step: u32,
    /// The channel of each object, and of those that have gone the channel and the step of the end.
    homes: BTreeMap<ObjectId, ChannelKey>,
    ended: BTreeMap<ObjectId, (ChannelKey, u32)>,
    /// Ends in channels that the client was not subscribed to.
    missed_ends: u32,
    /// The objects that the client owns. They are in no channel for it.
    owned: BTreeSet<ObjectId>,
    /// Those that it has owned at any time.
    owned_once: BTreeSet<ObjectId>,
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
        server.admit(connection);
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
            step: 0,
            homes: BTreeMap::new(),
            ended: BTreeMap::new(),
            missed_ends: 0,
            owned: BTreeSet::new(),
            owned_once: BTreeSet::new(),
            births: 0,
            references_followed: 0,
        }
    }

    /// A storm, and calm until everything has arrived. `look` is asked after each packet. In the end the client shows what
    /// there is in its channels, and nothing else.
    fn run(&mut self, mut look: impl FnMut(&mut Play) -> Result<(), String>) -> Result<(), String> {
        for step in 0..STORM_TICKS + LATE_TICKS {
            self.step = step;
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
        self.compare()
    }

    /// The client shows the objects in its channels and its own as they are, and no others.
    fn compare(&self) -> Result<(), String> {
        let mut shown: BTreeMap<ObjectId, Stamp> = self.all_seen().into_iter().collect();
        for (id, stamp) in &self.stamps {
            let is_own = self.owned.contains(id);
            if !is_own && !self.subscriptions.contains_key(&self.homes[id]) {
                continue;
            }
            let expected = Stamp { owners_version: if is_own { stamp.version } else { 0 }, ..stamp.clone() };
            match shown.remove(id) {
                Some(seen) if seen == expected => {}
                seen => return Err(format!("in the end {id} is {expected:?}, and the client has {seen:?}")),
            }
        }
        match shown.first_key_value() {
            Some((id, stamp)) => Err(format!("in the end the client shows {id}, {stamp:?}")),
            None => Ok(()),
        }
    }

    fn change_something(&mut self) {
        let some = |rng: &mut Rng, stamps: &BTreeMap<ObjectId, Stamp>| rng.choice(stamps.keys()).copied();
        let key = ChannelKey::Custom(self.rng.u32(..CHANNELS));
        match (self.rng.u32(..11), some(&mut self.rng, &self.stamps)) {
            (0..2, _) | (_, None) => {
                self.births += 1;
                let stamp = Stamp { number: self.births, spelled_version: "0".to_owned(), ..Stamp::default() };
                let kind = self.server.store().schema().kind_id::<Stamp>().expect("in the schema");
                let placement = Placement::Channel(key);
                let id = self.server.spawn(kind, placement, None, |to| stamp.quantise(to)).expect("room");
                assert_eq!(self.numbers.insert(id, self.births), None, "{id} was given twice");
                self.stamps.insert(id, stamp);
                self.homes.insert(id, key);
            }
            (2, Some(id)) => {
                self.server.despawn(id);
                self.stamps.remove(&id);
                let home = self.homes.remove(&id).expect("it had one");
                let is_missed = !self.owned.remove(&id) && !self.subscriptions.contains_key(&home);
                self.missed_ends += u32::from(is_missed);
                self.ended.insert(id, (home, self.step));
            }
            (3, Some(id)) => {
                self.server.set_placement(id, Placement::Channel(key)).expect("room");
                self.homes.insert(id, key);
            }
            (4, Some(id)) => {
                let owns = !self.owned.remove(&id);
                self.server.set_owner(id, owns.then_some(self.connection)).expect("room");
                self.owned.extend(owns.then_some(id));
                self.owned_once.insert(id);
            }
            (dice, Some(id)) => {
                let leader = some(&mut self.rng, &self.stamps).expect("one at least");
                let stamp = self.stamps.get_mut(&id).expect("it is alive");
                stamp.version += 1;
                stamp.owners_version = stamp.version;
                stamp.spelled_version = stamp.version.to_string();
                if dice < 7 {
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
        let mut connection = slots[self.connection.index as usize].writer().expect("it stays");
        connection.begin_objects(outgoing, 1_000);
        while connection.has_more_objects() {
            let mut bytes = vec![0; throng_replica::PIECE_MAX_BYTES];
            if connection.write_objects(outgoing, self.sequence, &mut bytes) == 0 {
                break;
            }
            let is_lost = is_storm && step % ROUND_TICKS < ROUND_TICKS / 2 && self.rng.u32(..10) < 5;
            let due = step + if is_storm { self.rng.u32(..DELAY_TICKS) } else { 1 };
            // The layer below drops copies, so each packet arrives once at most.
            if !is_lost {
                self.under_way.push(Packet { due, tick, bytes });
            }
            self.verdicts.push((due + self.rng.u32(1..VERDICT_TICKS), self.sequence, !is_lost));
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

    /// The state of an object at the client: the fields that the client knows, and defaults for the others.
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

const SEEDS: u64 = 400;

#[test]
fn r02_a_value_never_goes_back() {
    let mut highest = 0;
    throng_seeds::for_seeds(SEEDS, |seed| {
        let mut play = Play::new(seed);
        play.run(|play| {
            while let Some(event) = play.client.poll_event() {
                match event {
                    // The first record of an own object may be older than the newest that its channel told.
                    ClientEvent::Owned(id) => _ = play.shown.remove(&id),
                    // A late packet of its channel may show an object that has been given away, from the beginning.
                    ClientEvent::Despawned { id, .. } if play.owned_once.contains(&id) => _ = play.shown.remove(&id),
                    _ => {}
                }
            }
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
    assert!(highest > 20 || throng_seeds::is_partial(), "version {highest} is the highest: nothing is tested");
}

#[test]
fn r05_what_was_destroyed_never_comes_back() {
    let (mut destroyed, mut missed) = (0, 0);
    throng_seeds::for_seeds(SEEDS, |seed| {
        let mut play = Play::new(seed);
        play.run(|play| {
            let is_long_over = |id: &ObjectId| play.ended.get(id).is_some_and(|end| end.1 + LATE_TICKS < play.step);
            while let Some(event) = play.client.poll_event() {
                match event {
                    ClientEvent::Despawned { id, reason: DespawnReason::Destroyed } => {
                        if play.stamps.contains_key(&id) {
                            return Err(format!("{id} is said to be destroyed, and lives"));
                        }
                        play.destroyed.insert(id);
                    }
                    // The client was away at its end.
                    ClientEvent::Spawned(id) if is_long_over(&id) => {
                        return Err(format!("{id} begins, and {:?} was its end", play.ended[&id]));
                    }
                    _ => {}
                }
            }
            if let Some(id) = play.client.objects().map(|object| object.id()).find(is_long_over) {
                return Err(format!("{id} is held, and {:?} was its end", play.ended[&id]));
            }
            match play.destroyed.iter().find(|&&id| play.client.object(id).is_some()) {
                Some(id) => Err(format!("{id} came back after its end")),
                None => Ok(()),
            }
        })?;
        destroyed += play.destroyed.len();
        missed += play.missed_ends;
        Ok(())
    });
    assert!(destroyed > 400 || throng_seeds::is_partial(), "only {destroyed} ends were seen");
    assert!(missed > 400 || throng_seeds::is_partial(), "the client was away at {missed} ends only");
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
    let mut own = 0;
    throng_seeds::for_seeds(SEEDS, |seed| {
        Play::new(seed).run(|play| {
            for object in play.client.objects() {
                let stamp = play.seen(object.id()).expect("it is there");
                let owners = if object.is_own() { stamp.version } else { 0 };
                if stamp.spelled_version != stamp.version.to_string() || stamp.owners_version != owners {
                    return Err(format!("{} shows two versions at once: {stamp:?}", object.id()));
                }
                own += u32::from(object.is_own());
            }
            Ok(())
        })
    });
    assert!(own > 5_000 || throng_seeds::is_partial(), "only {own} looks at own objects");
}

#[test]
fn r11_a_reference_names_the_object_that_was_meant_or_none() {
    let (mut followed, mut replaced) = (0, 0);
    throng_seeds::for_seeds(SEEDS, |seed| {
        let mut play = Play::new(seed);
        play.run(|play| {
            let living: BTreeMap<u32, ObjectId> = play.client.objects().map(|o| (o.id().index, o.id())).collect();
            for (id, stamp) in play.all_seen().into_iter().filter(|(_, stamp)| stamp.leader_number != 0) {
                let (leader, number) = (stamp.leader, stamp.leader_number);
                if play.numbers.get(&leader) != Some(&number) {
                    return Err(format!("{id} follows number {number}, and is said to follow {leader}"));
                }
                // The index of the leader may be another one's by now.
                replaced += u32::from(living.get(&leader.index).is_some_and(|&other| other != leader));
                let Some(found) = play.seen(leader) else { continue };
                if found.number != number {
                    return Err(format!("{id} follows number {number}, and the client finds {found:?}"));
                }
                play.references_followed += 1;
            }
            Ok(())
        })?;
        followed += play.references_followed;
        Ok(())
    });
    assert!(followed > 5_000 || throng_seeds::is_partial(), "only {followed} references were followed");
    assert!(replaced > 500 || throng_seeds::is_partial(), "only {replaced} references to a former owner of an index");
}
