//! A frame that says that a whole channel is empty costs as much as any other.

use std::sync::Arc;

use throng_replica::{ChannelKey, ClientOptions, Inline, Placement, ReplicaClient, Replicator, ReplicatorOptions};
use throng_schema::{Replicate, Schema};
use throng_wire::{ConnectionId, KindId, ObjectId};

const KEY: ChannelKey = ChannelKey::Global(0);

#[derive(Clone, Debug, Default, PartialEq, Replicate)]
struct Thing {
    #[replicate(bool)]
    open: bool,
}

struct World {
    server: Replicator,
    connection: ConnectionId,
    sequence: u64,
}

impl World {
    fn new(schema: &Arc<Schema>) -> World {
        let options = ReplicatorOptions { retention_ticks: 4, ..ReplicatorOptions::default() };
        let mut server = Replicator::new(Arc::clone(schema), options);
        server.begin_tick();
        let connection = server.hub().connect().expect("room for one");
        let channel = server.channel(KEY).expect("room for one");
        server.hub().subscribe(connection, channel, 1, 1).expect("room for one");
        World { server, connection, sequence: 0 }
    }

    fn spawn(&mut self) -> ObjectId {
        let placement = Placement::Channel(KEY);
        self.server.spawn(KindId(0), placement, None, |to| Thing::default().quantise(to)).expect("room for one")
    }

    /// Ends the tick: the packet with all there is to say.
    fn write(&mut self) -> Vec<u8> {
        self.server.plan();
        self.server.encode(&Inline);
        let (outgoing, slots) = self.server.hub().writers();
        let mut connection = slots[self.connection.index as usize].writer().expect("it stays");
        let mut packet = vec![0; 1_150];
        connection.begin_write(outgoing, packet.len());
        self.sequence += 1;
        let written = connection.write_packet(outgoing, self.sequence, &mut packet);
        packet.truncate(written);
        packet
    }
}

#[test]
fn a_lost_frame_that_empties_a_channel_is_sent_again() {
    let schema = Arc::new(Schema::builder().kind::<Thing>().build().expect("one good kind"));
    let mut world = World::new(&schema);
    let mut client = ReplicaClient::new(schema, &[], ClientOptions::default()).expect("no grids");

    let first = world.spawn();
    let packet = world.write();
    client.apply(world.server.now(), &packet).expect("genuine");
    world.server.hub().delivered(world.connection, world.sequence);
    assert_eq!(client.object_count(), 1);

    // It ends while nothing is written, and its tombstone is forgotten when the next one enters.
    world.server.begin_tick();
    world.server.despawn(first);
    for _ in 0..6 {
        world.server.begin_tick();
    }
    let second = world.spawn();
    world.server.despawn(second);
    assert!(!world.write().is_empty());
    world.server.lost(world.connection, world.sequence);

    world.server.begin_tick();
    let packet = world.write();
    client.apply(world.server.now(), &packet).expect("genuine");
    assert_eq!(client.object_count(), 0);
}
