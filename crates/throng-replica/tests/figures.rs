//! Server and connections tell true figures of themselves.

use std::sync::Arc;

use throng_replica::{CellGrid, ChannelKey, Connection, GridShape, Inline, Placement, Replicator, ReplicatorOptions};
use throng_schema::{Facet, Replicate, Schema};
use throng_wire::{ConnectionId, ObjectId};

#[derive(Clone, Copy, Debug, Default, PartialEq, Replicate)]
struct Cart {
    #[replicate(position(step = 0.01))]
    position: [f32; 3],
}

struct Yard {
    server: Replicator,
    connection: ConnectionId,
}

impl Yard {
    fn new() -> Yard {
        let schema = Arc::new(Schema::builder().kind::<Cart>().build().expect("a good kind"));
        let options = ReplicatorOptions { retention_ticks: 300, ..ReplicatorOptions::default() };
        let mut server = Replicator::new(schema, options);
        server.add_grid(GridShape::stacked([8.0; 3])).expect("a good grid");
        let connection = server.hub().connect().expect("room");
        server.begin_tick();
        Yard { server, connection }
    }

    fn spawn(&mut self, placement: Placement, owner: Option<ConnectionId>, x_m: f32) -> ObjectId {
        let kind = self.server.store().schema().kind_id::<Cart>().expect("in the schema");
        let cart = Cart { position: [x_m, 1.0, 1.0] };
        self.server.spawn(kind, placement, owner, |to| cart.quantise(to)).expect("room")
    }

    fn connection(&self) -> &Connection {
        self.server.hub_ref().connection(self.connection).expect("it stays")
    }
}

#[test]
fn connections_have_the_lowest_free_numbers() {
    let mut yard = Yard::new();
    let others = [(); 3].map(|()| yard.server.hub().connect().expect("room").index);
    assert_eq!((yard.connection.index, others), (0, [1, 2, 3]));
    yard.server.hub().disconnect(yard.connection);
    assert_eq!([(); 2].map(|()| yard.server.hub().connect().expect("room").index), [0, 4]);
}

#[test]
fn channels_are_counted_until_a_sweep_removes_those_that_nobody_needs() {
    let mut yard = Yard::new();
    let channels = [0, 1, 2, 3, 4].map(|number| yard.server.channel(ChannelKey::Custom(number)).expect("room"));
    yard.server.hub().subscribe(yard.connection, channels[2], 1, 1).expect("room");
    assert_eq!(yard.server.hub_ref().channel_count(), 5);
    for _ in 0..400 {
        yard.server.begin_tick();
    }
    yard.server.sweep(5);
    assert_eq!(yard.server.hub_ref().channel_count(), 1);
    assert_eq!(yard.server.hub_ref().key(channels[2]), ChannelKey::Custom(2));
}

#[test]
fn a_server_that_was_suspended_goes_on_at_the_tick_of_the_clock() {
    let mut yard = Yard::new();
    let before = yard.server.now();
    yard.server.skip_ticks(100);
    yard.server.begin_tick();
    assert_eq!(yard.server.now(), before.after(101));
}

#[test]
fn an_object_strays_as_far_beyond_its_cell_as_the_grid_says() {
    let mut yard = Yard::new();
    let grid = CellGrid::new(GridShape::stacked([8.0; 3]), yard.server.store().schema()).expect("a good grid");
    let [stray_m, ..] = grid.stray_m();
    assert!((0.1..4.0).contains(&stray_m), "{stray_m} m");
    let cart = yard.spawn(Placement::Cell(0), None, 1.0);
    for (beyond_m, cell) in [(stray_m - 0.05, 0), (stray_m + 0.05, 1)] {
        let moved = Cart { position: [8.0 + beyond_m as f32, 1.0, 1.0] };
        yard.server.update(cart, |to| moved.quantise(to)).expect("room");
        let home = yard.server.home(cart, Facet::Public).expect("it has a home");
        assert_eq!(yard.server.hub_ref().key(home), ChannelKey::Cell { grid: 0, cell: [cell, 0, 0] });
    }
}

#[test]
fn a_connection_holds_memory_for_its_subscriptions_its_packets_and_its_objects() {
    let mut yard = Yard::new();
    let mut before = yard.connection().memory_bytes();
    let mut grown = |yard: &Yard| {
        let grown = yard.connection().memory_bytes() - before;
        before += grown;
        grown
    };
    let channel = yard.server.channel(ChannelKey::Custom(0)).expect("room");
    yard.server.hub().subscribe(yard.connection, channel, 1, 1).expect("room");
    let cart = yard.spawn(Placement::Channel(ChannelKey::Custom(0)), None, 0.0);
    for sequence in 1..=256 {
        let moved = Cart { position: [sequence as f32, 1.0, 1.0] };
        yard.server.update(cart, |to| moved.quantise(to)).expect("room");
        yard.server.plan();
        yard.server.encode(&Inline);
        let (outgoing, slots) = yard.server.hub().writers();
        let mut connection = slots[yard.connection.index as usize].writer().expect("it stays");
        connection.begin_write(outgoing, 1_000);
        assert!(connection.write_packet(outgoing, sequence, &mut [0; 1_000]) > 0);
        drop(connection);
        yard.server.begin_tick();
    }
    assert_eq!(yard.connection().packets_in_flight(), 256);
    let each = grown(&yard) / 256;
    assert!((48..=200).contains(&each), "{each} bytes for a packet of one piece");
    for number in 1..=256 {
        let channel = yard.server.channel(ChannelKey::Custom(number)).expect("room");
        yard.server.hub().subscribe(yard.connection, channel, 1, 1).expect("room");
    }
    let each = grown(&yard) / 256;
    assert!((40..=60).contains(&each), "{each} bytes for a subscription");
    yard.server.admit(yard.connection);
    for _ in 0..256 {
        yard.spawn(Placement::Entity, Some(yard.connection), 1.0);
    }
    let each = grown(&yard) / 256;
    assert!((16..=400).contains(&each), "{each} bytes for an object of its own");
    // In the first of them it is told of all channels, too.
    for sequence in 257..=1_024 {
        if sequence == 513 {
            grown(&yard);
        }
        yard.server.acknowledge_input(yard.connection, sequence as u32);
        yard.server.plan();
        yard.server.encode(&Inline);
        let (outgoing, slots) = yard.server.writers();
        let mut connection = slots[yard.connection.index as usize].writer().expect("it stays");
        connection.begin_objects(outgoing, 1_000);
        assert!(connection.write_objects(outgoing, sequence, &mut [0; 64]) > 0);
        drop(connection);
        yard.server.begin_tick();
    }
    let each = grown(&yard) / 512;
    assert!((16..=200).contains(&each), "{each} bytes for a record of them");
}

#[test]
fn a_subscription_sleeps_while_its_channel_has_nothing_new() {
    let mut yard = Yard::new();
    let channel = yard.server.channel(ChannelKey::Custom(0)).expect("room");
    yard.server.hub().subscribe(yard.connection, channel, 1, 1).expect("room");
    let cart = yard.spawn(Placement::Channel(ChannelKey::Custom(0)), None, 0.0);
    let mut sequence = 0;
    let mut tick = |yard: &mut Yard| {
        yard.server.plan();
        let sleepers = yard.server.hub_ref().sleeper_count();
        yard.server.encode(&Inline);
        let (outgoing, slots) = yard.server.hub().writers();
        let mut connection = slots[yard.connection.index as usize].writer().expect("it stays");
        connection.begin_write(outgoing, 1_000);
        sequence += 1;
        connection.write_packet(outgoing, sequence, &mut [0; 1_000]);
        drop(connection);
        yard.server.hub().delivered(yard.connection, sequence);
        yard.server.begin_tick();
        sleepers
    };
    for x_m in 1..5 {
        let moved = Cart { position: [x_m as f32, 1.0, 1.0] };
        yard.server.update(cart, |to| moved.quantise(to)).expect("room");
        assert_eq!([(); 3].map(|()| tick(&mut yard)), [0, 1, 1]);
    }
}
