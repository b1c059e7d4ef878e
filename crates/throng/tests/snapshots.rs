//! A server has again all objects that another one has saved, and nothing from bytes that were changed.

use std::process::Command;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use throng::net::{Condition, MemoryNetwork};
use throng::schema::Values;
use throng::{
    ChannelKey, Facet, GridOptions, KindId, ObjectId, Placement, Replicate, Schema, Server, ServerOptions, Snapshot,
    SnapshotCounters, SnapshotError, SnapshotWriter, Up, random_key,
};
use throng_seeds::for_seeds;

use crate::harness::{World, WorldOptions};

#[derive(Clone, Debug, Default, PartialEq, Replicate)]
struct Hero {
    #[replicate(position(step = 0.25), predict(by = "velocity", error_m = 0.5))]
    position: [f32; 3],
    #[replicate(fixed(min = -8.0, max = 8.0, step = 0.25))]
    velocity: [f32; 3],
    #[replicate(integer(min = -5, max = 1_000_000), owner_only)]
    gold: i32,
    #[replicate(text(max_bytes = 40))]
    name: String,
    #[replicate(object)]
    target: ObjectId,
    #[replicate(list(max = 5), integer(min = 0, max = 99))]
    items: Vec<u8>,
    #[replicate(skip)]
    secret: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Replicate)]
struct Flag {
    #[replicate(bool)]
    is_up: bool,
    #[replicate(bytes(max_bytes = 9), initial_only)]
    pattern: Vec<u8>,
}

fn schema() -> Arc<Schema> {
    Arc::new(Schema::builder().kind::<Hero>().kind::<Flag>().build().expect("a good schema"))
}

fn server(schema: &Arc<Schema>) -> Server {
    let network = MemoryNetwork::new(Condition::NONE, 1).expect("a good condition");
    let options = ServerOptions { grids: vec![GridOptions::new(Up::Z)], ..ServerOptions::new(1, random_key()) };
    let driver = network.endpoint("10.0.0.1:1".parse().expect("an address")).expect("a free address");
    Server::new(Box::new(driver), Arc::clone(schema), options).expect("good options")
}

fn hero(rng: &mut fastrand::Rng) -> Hero {
    let quarter = |rng: &mut fastrand::Rng| rng.i32(-40_000..40_000) as f32 * 0.25;
    Hero {
        position: [quarter(rng), quarter(rng), quarter(rng)],
        velocity: [rng.i32(-32..=32) as f32 * 0.25, -8.0, 8.0],
        gold: rng.i32(-5..1_000_000),
        name: (0..rng.usize(..13)).map(|_| rng.alphabetic()).collect::<String>() + "ä",
        target: ObjectId { index: rng.u32(..), generation: rng.u32(..) },
        items: (0..rng.usize(..=5)).map(|_| rng.u8(..100)).collect(),
        secret: 7,
    }
}

fn flag(rng: &mut fastrand::Rng) -> Flag {
    Flag { is_up: rng.bool(), pattern: (0..rng.usize(..=9)).map(|_| rng.u8(..)).collect() }
}

fn placement(rng: &mut fastrand::Rng) -> Placement {
    let cell = ChannelKey::Cell { grid: 0, cell: [rng.i32(-9..9), i32::MIN, i32::MAX] };
    let all = [
        Placement::Entity,
        Placement::Channel(ChannelKey::Global(rng.u16(..))),
        Placement::Channel(ChannelKey::Custom(rng.u32(..))),
        Placement::Channel(cell),
    ];
    all[rng.usize(..all.len())]
}

/// An object with the game's own value.
type Wanted = (ObjectId, Placement, Result<Hero, Flag>);

/// A server with many objects, and those that a snapshot of it must have.
fn filled(seed: u64) -> (Server, Vec<Wanted>) {
    let rng = &mut fastrand::Rng::with_seed(seed);
    let (mut server, mut all) = (server(&schema()), Vec::new());
    for _ in 0..rng.usize(..60) {
        if rng.bool() {
            let (value, place) = (hero(rng), Placement::Cell(0));
            let id = server.spawn(value.clone(), place).expect("room");
            all.push((id, place, Ok(Hero { secret: 0, ..value })));
        } else {
            let (value, place) = (flag(rng), placement(rng));
            let id = server.spawn(value.clone(), place).expect("room");
            all.push((id, place, Err(value)));
        }
        // Some end, and some change without a tick after that.
        if rng.u8(..) < 60 {
            server.despawn(all.swap_remove(rng.usize(..all.len())).0);
        }
        if let Some((id, _, Ok(value))) = all.last_mut() {
            let changed = hero(rng);
            *server.get_mut::<Hero>(*id).expect("it is there") = changed.clone();
            *value = Hero { secret: 0, ..changed };
        }
    }
    all.sort_unstable_by_key(|(id, ..)| id.index);
    (server, all)
}

#[test]
fn all_objects_come_back_as_the_game_had_them() {
    for_seeds(50, |seed| {
        let (server, wanted) = filled(seed);
        let game = vec![seed as u8; seed as usize * 3];
        let snapshot = Snapshot::read(server.snapshot(&game), server.schema()).expect("it is whole");
        assert_eq!((snapshot.game(), snapshot.tick()), (&game[..], server.current_tick()));
        assert_eq!(snapshot.objects().len(), wanted.len(), "seed {seed}");
        for (object, (id, place, value)) in snapshot.objects().zip(&wanted) {
            assert_eq!((object.former, object.placement, object.owner), (*id, Some(*place), None), "seed {seed}");
            let (hero, flag) = (object.get::<Hero>(), object.get::<Flag>());
            assert_eq!((hero.as_ref(), flag.as_ref()), (value.as_ref().ok(), value.as_ref().err()), "seed {seed}");
            assert_eq!(object.kind, if value.is_ok() { Hero::KIND } else { Flag::KIND });
        }
    });
}

/// An object that a relay has added has no value of a type: its quantised ones come back.
#[test]
fn quantised_objects_come_back_word_by_word() {
    let schema = schema();
    let mut first = server(&schema);
    let (mut words, blobs) = schema.kind(KindId(0)).empty_values();
    (words[0], words[2]) = (77, 5);
    let values = Values { words: &words, blobs: &blobs };
    first.spawn_quantised(KindId(0), values, Placement::Cell(0), None).expect("room");
    let snapshot = Snapshot::read(first.snapshot(&[]), &schema).expect("it is whole");
    let mut second = server(&schema);
    for object in snapshot.objects() {
        let spawned = object.quantised(|kind, values| second.spawn_quantised(kind, values, Placement::Cell(0), None));
        spawned.expect("values").expect("room");
    }
    let again = Snapshot::read(second.snapshot(&[]), &schema).expect("it is whole");
    let words_of = |snapshot: &Snapshot| {
        let all = snapshot.objects().map(|object| object.quantised(|_, values| values.words.to_vec()));
        all.collect::<Vec<_>>()
    };
    assert_eq!((words_of(&again), words_of(&snapshot)), (vec![Some(words.clone())], vec![Some(words)]));
}

#[test]
fn owners_are_known_by_their_client_ids_while_they_are_connected() {
    let options = WorldOptions { schema: schema(), ..WorldOptions::new(1) };
    let mut world = World::with_guests(options, 2);
    let owners: Vec<_> = world.guests.iter().map(|guest| guest.connection.expect("it is connected")).collect();
    for owner in [Some(owners[1]), None, Some(owners[0])] {
        world.server.spawn_owned(Flag::default(), Placement::Entity, owner).expect("room");
    }
    let hidden = ChannelKey::Owner(owners[0]);
    world.server.spawn(Flag::default(), Placement::Channel(hidden)).expect("room");
    let of = |world: &World| {
        let snapshot = Snapshot::read(world.server.snapshot(&[]), &world.schema).expect("it is whole");
        snapshot.objects().map(|object| (object.owner, object.placement)).collect::<Vec<_>>()
    };
    let (entity, ids) = (Some(Placement::Entity), world.guests.iter().map(|guest| guest.client_id).collect::<Vec<_>>());
    let wanted = vec![(Some(ids[1]), entity), (None, entity), (Some(ids[0]), entity), (None, None)];
    assert_eq!(of(&world), wanted);
    assert_eq!(world.server.client_id(owners[1]), Some(ids[1]));
    world.server.disconnect(owners[1], world.now, "it goes");
    (0..40).for_each(|_| world.step());
    assert_eq!((of(&world)[0], world.server.client_id(owners[1])), ((None, entity), None));
    // A channel of another object has no name in the next process either.
    let other = world.server.spawn(Flag::default(), Placement::Entity).expect("room");
    let part = ChannelKey::Entity { object: other, facet: Facet::Public };
    world.server.spawn(Flag::default(), Placement::Channel(part)).expect("room");
    assert_eq!(of(&world).last(), Some(&(None, None)));
}

#[test]
fn changed_bytes_are_refused_and_those_with_a_right_checksum_do_no_harm() {
    let (server, all) = filled(3);
    assert!(all.len() > 5);
    let (bytes, schema) = (server.snapshot(b"the game"), server.schema());
    let read = |bytes: &[u8]| Snapshot::read(bytes.to_vec(), schema).map(|_| ());
    for end in 0..bytes.len() {
        assert!(read(&bytes[..end]).is_err(), "{end}");
    }
    assert_eq!(read(b"{\"json\": 1}"), Err(SnapshotError::NotASnapshot));
    let with = |at: usize, byte: u8| {
        let mut changed = bytes.clone();
        changed[at] = byte;
        changed
    };
    assert_eq!(read(&with(4, 9)), Err(SnapshotError::Version(9)));
    assert!(matches!(read(&with(30, 200)), Err(SnapshotError::Damaged(_))));
    let alone = Arc::new(Schema::builder().kind::<Flag>().build().expect("a good schema"));
    let error = Snapshot::read(bytes.clone(), &alone).map(|_| ()).expect_err("of another schema");
    let hashes = SnapshotError::Schema { snapshot: schema.hash(), program: alone.hash() };
    assert_eq!((error.tag(), error), ("schema", hashes));
    // An attacker who writes the file can write a right checksum, too.
    let (mut refused, mut taken) = (0, 0);
    for_seeds(4_000, |seed| {
        let rng = &mut fastrand::Rng::with_seed(seed);
        let mut changed = bytes.clone();
        for _ in 0..rng.usize(1..4) {
            let at = rng.usize(24..bytes.len() - 8);
            changed[at] = rng.u8(..);
        }
        if rng.u8(..) < 40 {
            changed.truncate(rng.usize(24..bytes.len()));
            changed.extend_from_slice(&[0; 8]);
        }
        let end = changed.len() - 8;
        let checksum = xxhash_rust::xxh3::xxh3_64(&changed[..end]);
        changed[end..].copy_from_slice(&checksum.to_le_bytes());
        match Snapshot::read(changed, schema) {
            Err(SnapshotError::Damaged(_)) => refused += 1,
            Err(error) => panic!("{error}"),
            Ok(snapshot) => {
                taken += 1;
                let of_a_type =
                    |object: throng::SavedObject<'_>| object.get::<Hero>().is_some() || object.get::<Flag>().is_some();
                assert!(snapshot.objects().all(of_a_type));
            }
        }
    });
    assert!(refused + taken < 4_000 || refused > 100 && taken > 100, "{refused} and {taken}");
}

#[test]
fn a_file_has_a_whole_snapshot_whatever_becomes_of_the_next_one() {
    let folder = std::env::temp_dir().join(format!("throng-snapshots-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let (file, draft) = (folder.join("world"), folder.join("world.new"));
    assert!(SnapshotWriter::start(&folder.join("nowhere/world")).is_err());
    let writer = SnapshotWriter::start(&file).expect("a file");
    let until = Instant::now() + Duration::from_secs(20);
    let wait = |wanted: &dyn Fn(SnapshotCounters) -> bool| {
        while !wanted(writer.counters()) {
            assert!(Instant::now() < until, "{:?}", writer.counters());
            sleep(Duration::from_millis(2));
        }
    };
    assert!(writer.write(vec![1; 10]));
    wait(&|counters| counters.written == 1);
    // A disk that does not answer: a pipe that nobody reads. It holds nobody up, and what comes meanwhile is skipped.
    assert!(Command::new("mkfifo").arg(&draft).status().expect("mkfifo").success());
    assert!(writer.write(vec![2; 20]));
    assert!(!writer.write(vec![3; 30]));
    assert_eq!(writer.counters(), SnapshotCounters { written: 1, failed: 0, skipped: 1, bytes: 10 });
    // A pipe takes the bytes, and is no file that can be brought to a disk.
    drop(std::fs::read(&draft).expect("the pipe"));
    wait(&|counters| counters.failed == 1);
    assert_eq!((std::fs::read(&file).expect("the file"), draft.exists()), (vec![1; 10], false));
    assert!(writer.write(vec![4; 40]));
    wait(&|counters| counters.written == 2);
    writer.end_with(vec![6; 60]).expect("the last one is written");
    assert_eq!(std::fs::read(&file).expect("the file"), vec![6; 60]);
    let writer = SnapshotWriter::start(&file).expect("a file");
    std::fs::create_dir(&draft).expect("a folder in the way");
    assert!(writer.write(vec![5; 50]));
    assert!(writer.end().is_err());
    assert_eq!(std::fs::read(&file).expect("the file"), vec![6; 60]);
    std::fs::remove_dir_all(&folder).expect("the folder");
}
