//! The worked example of docs/wire-format.md is what the program writes.

use std::sync::Arc;

use throng::replica::{ClientOptions, Connection, Inline, Outgoing, ReplicaClient, Replicator, ReplicatorOptions};
use throng::{ChannelKey, GridShape, Placement, Replicate, Schema};

#[derive(Default, Replicate)]
struct Walker {
    #[replicate(position(step = 0.01))]
    position: [f32; 3],
    #[replicate(integer(min = 0, max = 100))]
    health: u8,
}

fn document() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/wire-format.md");
    std::fs::read_to_string(path).expect("the document is there")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
}

fn packet<S: throng::replica::ChannelState>(
    writer: &mut Connection,
    outgoing: Outgoing<'_, S>,
    sequence: u64,
) -> Vec<u8> {
    let mut room = [0; 1_170];
    writer.begin_write(outgoing, room.len());
    let written = writer.write_packet(outgoing, sequence, &mut room);
    room[..written].to_vec()
}

#[test]
fn the_packets_of_the_example_are_those_of_the_document() {
    let schema = Arc::new(Schema::builder().kind::<Walker>().build().unwrap());
    let kind = schema.kind_id::<Walker>().unwrap();
    let grid = GridShape::flat(throng::Up::Z, [10.0, 10.0, 20.0]);
    let mut server = Replicator::new(Arc::clone(&schema), ReplicatorOptions::default());
    server.add_grid(grid).unwrap();
    let mut client = ReplicaClient::new(schema, &[grid], ClientOptions::default()).unwrap();

    let mut walker = Walker { position: [3.0, 4.0, 0.0], health: 100 };
    let id = server.spawn(kind, Placement::Cell(0), None, |to| walker.quantise(to)).unwrap();
    let cell = server.channel(ChannelKey::Cell { grid: 0, cell: [0, 0, 0] }).unwrap();
    let connection = server.hub().connect().unwrap();
    let subscription = server.hub().subscribe(connection, cell, 1, 1).unwrap();

    let text = document();
    for (sequence, what) in ["introduction", "step", "end of the object", "end of the subscription"].iter().enumerate()
    {
        let tick = server.begin_tick();
        match sequence {
            1 => walker.position[0] += 0.25,
            2 => server.despawn(id),
            3 => server.hub().unsubscribe(connection, subscription),
            _ => {}
        }
        server.update(id, |to| walker.quantise(to)).unwrap();
        server.plan();
        server.encode(&Inline);
        let (outgoing, slots) = server.hub().writers();
        let mut writer = slots[connection.index as usize].writer().unwrap();
        let bytes = packet(&mut writer, outgoing, sequence as u64);
        client.apply(tick, &bytes).unwrap();
        drop(writer);
        server.hub().delivered(connection, sequence as u64);
        assert!(text.contains(&format!("{what}: `{}`", hex(&bytes))), "{what}: `{}`", hex(&bytes));
    }
    assert_eq!(client.object_count(), 0);
}

#[test]
fn the_hashes_of_the_example_are_those_of_the_document() {
    let schema = Schema::builder().kind::<Walker>().build().unwrap();
    let mut summary = Vec::new();
    schema.summary().encode(&mut summary);
    let kind = schema.kind(schema.kind_id::<Walker>().unwrap());
    let text = document();
    for wanted in [
        format!("hash of the kind: `{:016x}`", kind.hash),
        format!("hash of the schema: `{:016x}`", schema.hash()),
        format!("summary: `{}`", hex(&summary)),
    ] {
        assert!(text.contains(&wanted), "{wanted}");
    }
}
