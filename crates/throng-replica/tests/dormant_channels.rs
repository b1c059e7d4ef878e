//! Unchanged channels cost nothing, and a new change is sent at the turn of its class, to all at once.

use std::sync::Arc;

use throng_replica::{ChannelKey, Inline, Placement, Replicator, ReplicatorOptions, SubscriptionId};
use throng_schema::{Replicate, Schema};
use throng_wire::{ConnectionId, ObjectId};

const CHANNEL: ChannelKey = ChannelKey::Global(3);

#[derive(Clone, Debug, Default, PartialEq, Replicate)]
struct Door {
    #[replicate(bool)]
    open: bool,
}

struct House {
    server: Replicator,
    visitors: Vec<ConnectionId>,
    sequence: u64,
}

impl House {
    fn new() -> House {
        let schema = Arc::new(Schema::builder().kind::<Door>().build().expect("a good schema"));
        let server = Replicator::new(schema, ReplicatorOptions::default());
        House { server, visitors: Vec::new(), sequence: 0 }
    }

    fn door(&mut self) -> ObjectId {
        let kind = self.server.store().schema().kind_id::<Door>().expect("in the schema");
        let door = Door::default();
        self.server.spawn(kind, Placement::Channel(CHANNEL), None, |to| door.quantise(to)).expect("room")
    }

    fn visitor(&mut self, interval_ticks: u16) -> (ConnectionId, SubscriptionId) {
        let id = self.server.hub().connect().expect("room");
        self.visitors.push(id);
        let channel = self.server.channel(CHANNEL).expect("room");
        (id, self.server.hub().subscribe(id, channel, interval_ticks, 1).expect("room"))
    }

    /// Sends what is due, has it delivered, and tells how many frames were encoded, and how many subscriptions got one.
    fn send(&mut self) -> (u64, u64) {
        self.server.plan();
        self.server.encode(&Inline);
        let (outgoing, slots) = self.server.hub().writers();
        let first = self.sequence;
        for mut connection in slots.iter_mut().filter_map(|slot| slot.writer()) {
            connection.begin_write(outgoing, 1_000);
            while connection.has_more() {
                assert!(connection.write_packet(outgoing, self.sequence, &mut [0; 1_000]) > 0);
                self.sequence += 1;
            }
        }
        // A connection does not know the others' sequences, and one that is gone knows none.
        for (&id, sequence) in self.visitors.iter().flat_map(|id| (first..self.sequence).map(move |s| (id, s))) {
            self.server.hub().delivered(id, sequence);
        }
        let counters = self.server.hub_ref().counters();
        (counters.frames_encoded, counters.frames_shared)
    }
}

#[test]
fn r26_a_door_that_is_opened_after_a_long_time_is_told_of_once_to_all_at_the_turn_of_the_class() {
    let mut house = House::new();
    house.server.begin_tick();
    let door = house.door();
    let mut open = false;
    for visitors in 1..8 {
        house.visitor(6);
        let mut told = Vec::new();
        for step in 0..40 {
            house.server.begin_tick();
            if step == 21 {
                open = !open;
                house.server.update(door, |to| Door { open }.quantise(to)).expect("room");
            }
            let (frames, shared) = house.send();
            if step > 0 && shared > 0 {
                told.push((step, frames, shared));
            }
        }
        assert_eq!(told.len(), 1, "{visitors} visitors: {told:?}");
        let (step, frames, shared) = told[0];
        assert!((21..27).contains(&step), "{step}");
        assert_eq!((frames, shared), (1, visitors));
    }
}

#[test]
fn a_visitor_who_left_while_nothing_happened_is_not_woken() {
    let mut house = House::new();
    house.server.begin_tick();
    let door = house.door();
    for round in 0..100 {
        let (id, subscription) = house.visitor(1);
        for _ in 0..3 {
            house.server.begin_tick();
            house.send();
        }
        match round % 2 {
            0 => house.server.hub().unsubscribe(id, subscription),
            _ => house.server.hub().disconnect(id),
        }
        house.server.begin_tick();
        house.send();
    }
    house.server.begin_tick();
    house.server.update(door, |to| Door { open: true }.quantise(to)).expect("room");
    assert_eq!(house.send(), (0, 0));
}
