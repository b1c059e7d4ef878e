//! Snapshots of a server: any bytes, and a genuine one with any bytes changed, also with a checksum put right.
//!
//! The checks: nothing panics; a refusal is one line; whatever is accepted can be spawned in another server, or is refused there with
//! an error; the snapshot of that server is read again and has as many objects.

use std::sync::{Arc, LazyLock};

use throng::net::{Condition, MemoryNetwork};
use throng::{ChannelKey, GridOptions, Placement, Schema, Server, ServerOptions, Snapshot, Up, random_key};
use throng_wire::ObjectId;
use xxhash_rust::xxh3::xxh3_64;

use super::choices::Choices;
use super::kinds::{self, Composed, Everything, Label, Score};

static SCHEMA: LazyLock<Arc<Schema>> = LazyLock::new(kinds::schema);
static GENUINE: LazyLock<Vec<u8>> = LazyLock::new(genuine);

/// Magic, version and hash of the schema.
const HEAD_BYTES: usize = 16;
const CHECKSUM_BYTES: usize = 8;

pub(crate) fn run(input: &[u8]) {
    let mut choices = Choices::new(input);
    let file = match choices.below(8) {
        0 => choices.bytes(usize::MAX).to_vec(),
        1 => {
            let mut file = GENUINE.clone();
            choices.bend(&mut file);
            file
        }
        _ => bent_within(&mut choices),
    };
    let snapshot = match Snapshot::read(file, &SCHEMA) {
        Ok(snapshot) => snapshot,
        Err(error) => return assert!(!error.tag().is_empty() && !error.to_string().contains('\n')),
    };
    let mut server = server();
    let mut spawned = 0;
    for object in snapshot.objects() {
        let _ = (object.get::<Everything>(), object.get::<Composed>(), object.get::<Score>(), object.get::<Label>());
        let placement = object.placement.unwrap_or(Placement::Entity);
        let result = object.quantised(|kind, values| server.spawn_quantised(kind, values, placement, None));
        spawned += usize::from(result.is_some_and(|result| result.is_ok()));
    }
    let again = Snapshot::read(server.snapshot(snapshot.game()), &SCHEMA).expect("what a server writes it can read");
    assert_eq!((again.objects().count(), again.game()), (spawned, snapshot.game()));
}

/// The content changed, with a checksum that fits.
fn bent_within(choices: &mut Choices<'_>) -> Vec<u8> {
    let (head, rest) = GENUINE.split_at(HEAD_BYTES);
    let mut content = rest[..rest.len() - CHECKSUM_BYTES].to_vec();
    choices.bend(&mut content);
    let mut file = [head, &content].concat();
    file.extend(xxh3_64(&file).to_le_bytes());
    file
}

fn server() -> Server {
    let network = MemoryNetwork::new(Condition::NONE, 1).expect("a good condition");
    let driver = network.endpoint(([10, 0, 0, 1], 1).into()).expect("a free address");
    let options = ServerOptions { grids: vec![GridOptions::new(Up::Z)], ..ServerOptions::new(1, random_key()) };
    Server::new(Box::new(driver), Arc::clone(&SCHEMA), options).expect("good options")
}

fn genuine() -> Vec<u8> {
    let mut server = server();
    let everything = Everything {
        position: [1.0, -2.5, 300.0],
        health: 40,
        name: "ada".to_owned(),
        blob: vec![7; 20],
        targets: [ObjectId { index: 1, generation: 2 }; 2],
        ..Everything::default()
    };
    server.spawn(everything, Placement::Cell(0)).expect("room");
    let composed = Composed { path: vec![[1.0; 3]; 3], title: Some("captain".to_owned()), ..Composed::default() };
    server.spawn(composed, Placement::Entity).expect("room");
    server.spawn(Score { points: 99, open: true }, Placement::Channel(ChannelKey::Global(0))).expect("room");
    server.spawn(Label { text: "harbour".to_owned() }, Placement::Channel(ChannelKey::Custom(7))).expect("room");
    server.snapshot(b"the game")
}
