//! A server that has run for years serves as one that was started a moment ago.

use std::sync::Arc;

use crate::storm::{Storm, StormOptions};
use throng_replica::{
    ChannelKey, ClientEvent, ClientOptions, Inline, Placement, ReplicaClient, Replicator, ReplicatorOptions,
};
use throng_schema::{Replicate, Schema};
use throng_seeds::for_seeds;
use throng_wire::{ConnectionId, ObjectId, Tick};

const CHANNEL: ChannelKey = ChannelKey::Global(3);

/// Quiet times around half of 32 bits, all of them, and far beyond.
const QUIET_TICKS: [u64; 9] =
    [(1 << 31) - 1, 1 << 31, (1 << 31) + 1, 3 << 30, (1 << 32) - 1, 1 << 32, (1 << 32) + 1, 1 << 33, 1 << 45];

#[derive(Clone, Debug, Default, PartialEq, Replicate)]
struct Sign {
    #[replicate(integer)]
    number: u32,
    #[replicate(text(max_bytes = 20))]
    text: String,
}

/// A server, and clients on a perfect network.
struct Town {
    server: Replicator,
    residents: Vec<(ConnectionId, ReplicaClient)>,
    sequence: u64,
    bytes: usize,
}

impl Town {
    fn new(first_tick: u64) -> Town {
        let schema = Arc::new(Schema::builder().kind::<Sign>().build().expect("a good schema"));
        let options = ReplicatorOptions { first_tick: Tick(first_tick), retention_ticks: 16, ..Default::default() };
        let server = Replicator::new(schema, options);
        Town { server, residents: Vec::new(), sequence: 0, bytes: 0 }
    }

    fn join(&mut self, interval_ticks: u16) -> usize {
        let id = self.server.hub().connect().expect("room");
        let channel = self.server.channel(CHANNEL).expect("room");
        self.server.hub().subscribe(id, channel, interval_ticks, 1).expect("room");
        let schema = Arc::clone(self.server.store().schema());
        let replica = ReplicaClient::new(schema, &[], ClientOptions::default()).expect("no grids");
        self.residents.push((id, replica));
        self.residents.len() - 1
    }

    fn spawn(&mut self, number: u32) -> ObjectId {
        let kind = self.server.store().schema().kind_id::<Sign>().expect("in the schema");
        let sign = Sign { number, text: format!("number {number}") };
        self.server.spawn(kind, Placement::Channel(CHANNEL), None, |to| sign.quantise(to)).expect("room")
    }

    fn change(&mut self, id: ObjectId, number: u32) {
        let sign = Sign { number, text: format!("number {number}") };
        self.server.update(id, |to| sign.quantise(to)).expect("room");
    }

    fn tick(&mut self) {
        self.server.plan();
        self.server.encode(&Inline);
        let now = self.server.now();
        let (outgoing, slots) = self.server.hub().writers();
        let mut delivered = Vec::new();
        for (id, replica) in &mut self.residents {
            let mut connection = slots[id.index as usize].writer().expect("connected");
            connection.begin_write(outgoing, 10_000);
            while connection.has_more() {
                let mut packet = [0; 1_100];
                let written = connection.write_packet(outgoing, self.sequence, &mut packet);
                replica.apply(now, &packet[..written]).expect("the server's packets are sound");
                delivered.push((*id, self.sequence));
                self.bytes += written;
                self.sequence += 1;
            }
        }
        for (id, sequence) in delivered {
            self.server.hub().delivered(id, sequence);
        }
        self.server.begin_tick();
    }

    fn ticks(&mut self, count: usize) -> usize {
        let before = self.bytes;
        (0..count).for_each(|_| self.tick());
        self.bytes - before
    }

    /// The content of a client: ids and numbers.
    fn held(&self, resident: usize) -> Vec<(ObjectId, u32)> {
        let replica = &self.residents[resident].1;
        let mut held: Vec<_> = replica.objects().map(|object| (object.id(), object.values().words[0])).collect();
        held.sort_unstable();
        held
    }
}

/// Signs of which one never changes again, readers at several rates; then nothing for `quiet_ticks`; then a change, an
/// end, and a new object. The cost of each of these in bytes, and the final state of everybody.
fn life(first_tick: u64, quiet_ticks: u64) -> ([usize; 4], Vec<Vec<(ObjectId, u32)>>) {
    let mut town = Town::new(first_tick);
    town.server.begin_tick();
    let signs: Vec<ObjectId> = (0..5).map(|number| town.spawn(number)).collect();
    for interval_ticks in [1, 2, 30] {
        town.join(interval_ticks);
    }
    town.ticks(40);
    town.server.despawn(signs[4]);
    town.ticks(60);
    town.server.skip_ticks(quiet_ticks);
    let quiet = town.ticks(60);
    town.change(signs[1], 100);
    let changed = town.ticks(60);
    town.server.despawn(signs[2]);
    town.spawn(200);
    let ended = town.ticks(60);
    town.join(2);
    let joined = town.ticks(60);
    let held = (0..4).map(|resident| town.held(resident)).collect();
    ([quiet, changed, ended, joined], held)
}

#[test]
fn after_years_without_a_change_everybody_is_sent_the_next_change_and_nothing_else() {
    let (cost, held) = life(0, 0);
    assert_eq!(cost[0], 0, "a quiet channel says nothing");
    assert!(held.iter().all(|one| one.len() == 4 && *one == held[0]), "{held:?}");
    for quiet_ticks in QUIET_TICKS {
        let quiet_ticks = quiet_ticks / 60 * 60;
        assert_eq!(life(0, quiet_ticks), (cost, held.clone()), "after {quiet_ticks} ticks");
    }
}

#[test]
fn a_server_may_begin_just_before_its_low_half_is_full() {
    let (cost, held) = life(0, 0);
    for first_tick in [1 << 31, 1 << 32, 1 << 33, 1 << 63] {
        // Turns lie at multiples of the interval, whatever the tick begins with.
        for before in [60, 120, 180, 240] {
            let (_, of_it) = life(first_tick - before, 0);
            assert_eq!(of_it, held, "from {first_tick} - {before}");
        }
        let aligned = first_tick / 60 * 60;
        assert_eq!(life(aligned, 0).0, cost, "from {aligned}");
    }
}

#[test]
fn storms_converge_before_and_after_any_number_of_quiet_ticks() {
    for_seeds(45, |seed| {
        let quiet_ticks = QUIET_TICKS[seed as usize % QUIET_TICKS.len()];
        let mut storm = Storm::new(seed, StormOptions { storm_ticks: 60, ..StormOptions::default() });
        (0..3).try_for_each(|round| {
            storm.weather().map_err(|error| format!("round {round}, {quiet_ticks} quiet ticks: {error}"))?;
            storm.skip_ticks(quiet_ticks);
            Ok(())
        })
    });
}

#[test]
fn a_reader_that_waits_for_a_channels_first_change_for_years_gets_it() {
    for quiet_ticks in QUIET_TICKS {
        let mut town = Town::new(0);
        town.server.begin_tick();
        town.join(1);
        town.join(7);
        town.ticks(20);
        town.server.skip_ticks(quiet_ticks);
        town.ticks(20);
        let id = town.spawn(1);
        town.ticks(20);
        assert_eq!([town.held(0), town.held(1)], [vec![(id, 1)], vec![(id, 1)]], "after {quiet_ticks} ticks");
        while let Some(event) = town.residents[0].1.poll_event() {
            assert!(matches!(event, ClientEvent::Spawned(seen) | ClientEvent::Changed { id: seen, .. } if seen == id));
        }
    }
}

#[test]
fn r24_two_hundred_thousand_lives_of_one_place_have_as_many_ids() {
    const LIVES: usize = 200_000;
    let mut town = Town::new(0);
    town.server.begin_tick();
    let resident = town.join(1);
    let mut ids = Vec::with_capacity(LIVES);
    for life in 0..LIVES {
        let id = town.spawn(life as u32);
        ids.push(id);
        if life % 1_000 == 0 {
            town.tick();
            assert_eq!(town.held(resident), [(id, life as u32)]);
            assert!(town.residents[resident].1.object(ids[life.saturating_sub(65_536)]).is_none_or(|o| o.id() == id));
        }
        town.server.despawn(id);
    }
    assert!(ids.iter().all(|&id| !town.server.store().contains(id)));
    let places = ids.iter().map(|id| id.index).max();
    assert!(places < Some(4), "it is one place, or few: {places:?}");
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), LIVES, "no id has come twice");
}
