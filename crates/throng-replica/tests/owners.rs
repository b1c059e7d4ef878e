//! An object that is given away and back: what its owner holds.

use std::sync::Arc;

use throng_replica::{ChannelKey, ClientOptions, Inline, Placement, ReplicaClient, Replicator, ReplicatorOptions};
use throng_schema::{Replicate, Schema};
use throng_wire::{ConnectionId, ObjectId, Tick};

#[derive(Clone, Copy, Debug, Default, PartialEq, Replicate)]
struct Chest {
    #[replicate(integer)]
    gold: u32,
    #[replicate(integer)]
    silver: u32,
}

/// Ends the tick. Returns its packets, of which the first has little room.
fn packets(server: &mut Replicator, connection: ConnectionId, sequence: &mut u64) -> (Tick, Vec<Vec<u8>>) {
    server.plan();
    server.encode(&Inline);
    let tick = server.now();
    let (outgoing, slots) = server.writers();
    let connection = slots[connection.index as usize].connection.as_mut().expect("it stays");
    connection.begin_objects(outgoing, 1_000);
    let mut packets = Vec::new();
    for room in [32, 400] {
        *sequence += 1;
        let mut packet = vec![0; room];
        let written = connection.write_objects(outgoing, *sequence, &mut packet);
        packet.truncate(written);
        packets.push(packet);
    }
    server.begin_tick();
    (tick, packets)
}

#[test]
fn a_late_record_from_before_an_object_was_given_away_and_back_does_not_undo_what_its_owner_holds() {
    let schema = Arc::new(Schema::builder().kind::<Chest>().build().expect("a good kind"));
    let mut server = Replicator::new(Arc::clone(&schema), ReplicatorOptions::default());
    let mut client = ReplicaClient::new(Arc::clone(&schema), &[], ClientOptions::default()).expect("no grids");
    server.begin_tick();
    let owner = server.hub().connect().expect("room");
    server.admit(owner);
    let mut sequence = 0;
    let kind = schema.kind_id::<Chest>().expect("in the schema");
    let placement = Placement::Channel(ChannelKey::Custom(1));
    let spawned = server.spawn(kind, placement, Some(owner), |to| Chest::default().quantise(to));
    let chest: ObjectId = spawned.expect("room");
    let set = |server: &mut Replicator, chest_now: Chest| {
        server.update(chest, |to| chest_now.quantise(to)).expect("room");
    };

    let (tick, first) = packets(&mut server, owner, &mut sequence);
    for packet in &first {
        client.apply(tick, packet).expect("genuine");
    }
    (sequence - 1..=sequence).for_each(|sequence| server.hub().delivered(owner, sequence));

    set(&mut server, Chest { gold: 2, silver: 0 });
    let (late_tick, late) = packets(&mut server, owner, &mut sequence);

    server.set_owner(chest, None).expect("it exists");
    let _lost = packets(&mut server, owner, &mut sequence);

    server.set_owner(chest, Some(owner)).expect("it exists");
    let now = Chest { gold: 4, silver: 4 };
    set(&mut server, now);
    let (tick, again) = packets(&mut server, owner, &mut sequence);
    assert!(
        again.iter().all(|packet| !packet.is_empty()),
        "given away in one record, introduced in another: {again:?}"
    );
    client.apply(tick, &again[1]).expect("genuine");
    let held = |client: &ReplicaClient| {
        let object = client.object(chest).expect("it is its own");
        assert!(object.is_own());
        let mut chest = Chest::default();
        chest.apply(object.known_fields(), object.values());
        chest
    };
    assert_eq!(held(&client), now);
    for packet in &late {
        client.apply(late_tick, packet).expect("genuine");
    }
    assert_eq!(held(&client), now, "the late record is of before");
}
