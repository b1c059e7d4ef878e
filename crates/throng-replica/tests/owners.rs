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

#[derive(Clone, Copy, Debug, Default, PartialEq, Replicate)]
struct Cart {
    #[replicate(integer, skip_owner)]
    speed: u32,
    #[replicate(integer)]
    load: u32,
}

/// Ends the tick. Returns its packets, of which the first has little room.
fn packets(server: &mut Replicator, connection: ConnectionId, sequence: &mut u64) -> (Tick, Vec<Vec<u8>>) {
    server.plan();
    server.encode(&Inline);
    let tick = server.now();
    let (outgoing, slots) = server.writers();
    let mut connection = slots[connection.index as usize].writer().expect("it stays");
    connection.begin_objects(outgoing, 1_000);
    let mut packets = Vec::new();
    for room in [28, 400] {
        *sequence += 1;
        let mut packet = vec![0; room];
        let written = connection.write_objects(outgoing, *sequence, &mut packet);
        packet.truncate(written);
        packets.push(packet);
    }
    drop(connection);
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

#[test]
fn only_its_own_objects_are_predicted_and_tell_the_input_that_they_have_felt() {
    let schema = Arc::new(Schema::builder().kind::<Cart>().build().expect("a good kind"));
    let mut server = Replicator::new(Arc::clone(&schema), ReplicatorOptions::default());
    let mut client = ReplicaClient::new(Arc::clone(&schema), &[], ClientOptions::default()).expect("no grids");
    server.begin_tick();
    let owner = server.hub().connect().expect("room");
    server.admit(owner);
    let key = ChannelKey::Custom(1);
    let channel = server.channel(key).expect("room");
    server.hub().subscribe(owner, channel, 1, 1).expect("room");
    let kind = schema.kind_id::<Cart>().expect("in the schema");
    let [own, foreign] = [Some(owner), None].map(|owner| {
        let cart = Cart { speed: 5, load: 7 };
        server.spawn(kind, Placement::Channel(key), owner, |to| cart.quantise(to)).expect("room")
    });
    server.acknowledge_input(owner, 41);
    server.plan();
    server.encode(&Inline);
    let (tick, mut packet) = (server.now(), vec![0; 400]);
    let (outgoing, slots) = server.hub().writers();
    let mut writer = slots[owner.index as usize].writer().expect("it stays");
    writer.begin_write(outgoing, packet.len());
    let written = writer.write_packet(outgoing, 1, &mut packet);
    client.apply(tick, &packet[..written]).expect("genuine");
    let mut sequence = 1;
    drop(writer);
    for packet in packets(&mut server, owner, &mut sequence).1 {
        client.apply(tick, &packet).expect("genuine");
    }

    assert_eq!(client.input_acked(), Some(41));
    assert_eq!([own, foreign].map(|id| client.input_acked_by(id)), [Some(41), None]);
    let guess = Cart { speed: 6, load: 1 };
    let nobody = ObjectId { index: 99, generation: 1 };
    assert_eq!([own, foreign, nobody].map(|id| client.predict(id, |to| guess.quantise(to))), [true, false, false]);
    let seen = |id| {
        let object = client.object(id).expect("it is in sight");
        let mut cart = Cart::default();
        cart.apply(object.known_fields(), object.values());
        cart
    };
    assert_eq!(seen(foreign), Cart { speed: 5, load: 7 });
    assert_eq!(seen(own).load, 7, "the server tells it");
}
