//! An action that a limit prevents happens when the limit allows it.

use std::sync::Arc;

use throng_replica::{
    ApplyError, ChannelKey, ClientOptions, GridShape, HubLimits, Inline, LimitReached, Placement, ReplicaClient,
    Replicator, ReplicatorOptions,
};
use throng_schema::{Facet, Replicate, Schema};
use throng_wire::ObjectId;

#[derive(Clone, Debug, Default, PartialEq, Replicate)]
struct Cart {
    #[replicate(position(step = 0.01))]
    position: [f32; 3],
}

fn cart(x_m: f32) -> Cart {
    Cart { position: [x_m, 1.0, 1.0] }
}

/// A server with room for two channels, and an object in each of them.
fn full_server() -> (Replicator, [ObjectId; 2]) {
    let schema = Arc::new(Schema::builder().kind::<Cart>().build().expect("a good schema"));
    let limits = HubLimits { channels: 2, ..HubLimits::default() };
    let mut server = Replicator::new(schema, ReplicatorOptions { limits, retention_ticks: 4, ..Default::default() });
    server.add_grid(GridShape::stacked([8.0; 3])).expect("a good grid");
    let kind = server.store().schema().kind_id::<Cart>().expect("in the schema");
    server.begin_tick();
    let carts =
        [1.0, 9.0].map(|x_m| server.spawn(kind, Placement::Cell(0), None, |to| cart(x_m).quantise(to)).expect("room"));
    (server, carts)
}

#[test]
fn an_object_that_could_not_change_its_cell_moves_when_it_can() {
    let (mut server, [stays, moves]) = full_server();
    let refused = server.update(moves, |to| cart(21.0).quantise(to));
    assert_eq!(refused, Err(LimitReached::Channels(2)));
    assert_eq!(server.misplaced_count(), 1);
    let cell_of = |server: &Replicator| {
        let home = server.home(moves, Facet::Public).expect("it has a home");
        server.hub_ref().key(home)
    };
    assert_eq!(cell_of(&server), ChannelKey::Cell { grid: 0, cell: [1, 0, 0] });
    server.despawn(stays);
    for _ in 0..8 {
        server.plan();
        server.sweep(8);
        server.begin_tick();
    }
    assert_eq!(cell_of(&server), ChannelKey::Cell { grid: 0, cell: [2, 0, 0] }, "though it has not moved again");
    assert_eq!(server.misplaced_count(), 0);
}

#[test]
fn an_object_that_could_not_be_hidden_is_hidden_when_there_is_room() {
    let (mut server, [stays, hides]) = full_server();
    assert_eq!(server.set_placement(hides, Placement::Entity), Err(LimitReached::Channels(2)));
    server.despawn(stays);
    for _ in 0..8 {
        server.plan();
        server.sweep(8);
        server.begin_tick();
    }
    let home = server.home(hides, Facet::Public).expect("it has a home");
    assert_eq!(server.hub_ref().key(home), ChannelKey::Entity { object: hides, facet: Facet::Public });
}

#[test]
fn channels_that_nobody_needs_go_as_fast_as_others_are_made() {
    const MADE: u32 = 300;
    const RETENTION_TICKS: u32 = 4;
    let schema = Arc::new(Schema::builder().kind::<Cart>().build().expect("a good schema"));
    let options = ReplicatorOptions { retention_ticks: RETENTION_TICKS, ..Default::default() };
    let mut server = Replicator::new(schema, options);
    let mut most = 0;
    for tick in 0..200 {
        server.begin_tick();
        for number in 0..MADE {
            server.channel(ChannelKey::Custom(tick * MADE + number)).expect("room");
        }
        server.plan();
        server.sweep(MADE as usize / 2);
        most = most.max(server.hub_ref().channel_count());
    }
    // Each goes when it has rested for the retention, at the latest with the next round. A round takes as long as half of
    // the table takes to be made.
    let limit = 2 * MADE * (RETENTION_TICKS + 2);
    assert!(most <= limit as usize, "{most} channels at once, and {limit} are enough");
    // Without new ones the rest goes as well.
    for _ in 0..RETENTION_TICKS + 1 + limit.div_ceil(MADE / 2) {
        server.begin_tick();
        server.plan();
        server.sweep(MADE as usize / 2);
    }
    assert_eq!(server.hub_ref().channel_count(), 0);
}

#[test]
fn a_client_holds_as_many_objects_as_it_may_and_those_that_ended_make_room() {
    let schema = Arc::new(Schema::builder().kind::<Cart>().build().expect("a good schema"));
    let mut server = Replicator::new(Arc::clone(&schema), ReplicatorOptions::default());
    let options = ClientOptions { objects: 2, ..ClientOptions::default() };
    let mut client = ReplicaClient::new(Arc::clone(&schema), &[], options).expect("no grids");
    let (kind, key) = (schema.kind_id::<Cart>().expect("in the schema"), ChannelKey::Custom(1));
    server.begin_tick();
    let connection = server.hub().connect().expect("room");
    let channel = server.channel(key).expect("room");
    server.hub().subscribe(connection, channel, 1, 1).expect("room");
    let mut sequence = 0;
    let mut told = |server: &mut Replicator| {
        server.plan();
        server.encode(&Inline);
        let tick = server.now();
        let (outgoing, slots) = server.hub().writers();
        let mut writer = slots[connection.index as usize].writer().expect("it stays");
        let mut packet = vec![0; 400];
        writer.begin_write(outgoing, packet.len());
        sequence += 1;
        let written = writer.write_packet(outgoing, sequence, &mut packet);
        drop(writer);
        server.hub().delivered(connection, sequence);
        server.begin_tick();
        client.apply(tick, &packet[..written]).map(|_| client.object_count())
    };
    let spawn = |server: &mut Replicator| {
        server.spawn(kind, Placement::Channel(key), None, |to| cart(1.0).quantise(to)).expect("room")
    };
    let first = spawn(&mut server);
    spawn(&mut server);
    assert_eq!(told(&mut server), Ok(2));
    server.despawn(first);
    assert_eq!(told(&mut server), Ok(1));
    spawn(&mut server);
    assert_eq!(told(&mut server), Ok(2), "the place of the one that ended is free");
    spawn(&mut server);
    assert_eq!(told(&mut server), Err(ApplyError::Limit { what: "objects", limit: 2 }));
}
