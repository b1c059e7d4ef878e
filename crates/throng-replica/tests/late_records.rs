//! A late record that names a former home of an object does not show the object again.

use std::sync::Arc;

use throng_replica::{
    ChannelKey, ClientEvent, ClientOptions, Inline, Placement, ReplicaClient, Replicator, ReplicatorOptions,
};
use throng_schema::{Replicate, Schema};
use throng_wire::{ConnectionId, Tick};

#[derive(Clone, Copy, Debug, Default, PartialEq, Replicate)]
struct Chest {
    #[replicate(integer)]
    gold: u32,
}

/// Ends the tick. Returns it, and all that there is to say.
fn packet(server: &mut Replicator, connection: ConnectionId, sequence: u64) -> (Tick, Vec<u8>) {
    server.plan();
    server.encode(&Inline);
    let tick = server.now();
    let (outgoing, slots) = server.writers();
    let mut connection = slots[connection.index as usize].writer().expect("it stays");
    connection.begin_objects(outgoing, 1_000);
    let mut packet = vec![0; 1_000];
    let written = connection.write_objects(outgoing, sequence, &mut packet);
    packet.truncate(written);
    drop(connection);
    server.begin_tick();
    (tick, packet)
}

#[test]
fn a_late_introduction_from_before_an_object_was_seen_elsewhere_does_not_show_it_again() {
    const SELDOM_TICKS: u16 = 60;
    let schema = Arc::new(Schema::builder().kind::<Chest>().build().expect("a good kind"));
    let mut server = Replicator::new(Arc::clone(&schema), ReplicatorOptions::default());
    let mut client = ReplicaClient::new(Arc::clone(&schema), &[], ClientOptions::default()).expect("no grids");
    server.begin_tick();
    let viewer = server.hub().connect().expect("room");
    server.admit(viewer);
    let [first, second, unseen] = [1, 2, 3].map(|number| Placement::Channel(ChannelKey::Custom(number)));
    for (number, interval_ticks) in [(1, SELDOM_TICKS), (2, 1)] {
        let channel = server.channel(ChannelKey::Custom(number)).expect("room");
        server.hub().subscribe(viewer, channel, interval_ticks, 1).expect("room");
    }
    let kind = schema.kind_id::<Chest>().expect("in the schema");
    let chest = server.spawn(kind, first, None, |to| Chest::default().quantise(to)).expect("room");

    let (late_tick, late) = packet(&mut server, viewer, 0);
    server.set_placement(chest, second).expect("room");
    let (tick, comes) = packet(&mut server, viewer, 1);
    client.apply(tick, &comes).expect("genuine");
    assert!(client.object(chest).is_some());
    server.set_placement(chest, unseen).expect("room");
    let (tick, goes) = packet(&mut server, viewer, 2);
    client.apply(tick, &goes).expect("genuine");
    assert!(client.object(chest).is_none());
    while client.poll_event().is_some() {}

    client.apply(late_tick, &late).expect("genuine");
    assert!(client.object(chest).is_none(), "it was there before it was where it has left");
    assert_eq!(client.object_count(), 0);

    // It comes back as a whole, and is forgotten when it has been away for long enough.
    server.set_placement(chest, second).expect("room");
    let (tick, comes) = packet(&mut server, viewer, 3);
    client.apply(tick, &comes).expect("genuine");
    assert_eq!(client.poll_event(), Some(ClientEvent::Spawned(chest)));
    server.despawn(chest);
    for sequence in 4..200 {
        let (tick, packet) = packet(&mut server, viewer, sequence);
        client.apply(tick, &packet).expect("genuine");
    }
    assert_eq!(client.occupancy().objects, 0);
}
