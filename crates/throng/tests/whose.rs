//! Which objects there are, of which type and whose, at both ends.

use std::collections::BTreeSet;

use throng::replica::LimitReached;
use throng::{ChannelKey, Facet, ObjectId, Placement, Replicate, Replication};
use throng_seeds::for_seeds;
use throng_testkit::{Beacon, Score, Walker};

use crate::harness::{World, WorldOptions};

fn sorted(ids: impl Iterator<Item = ObjectId>) -> Vec<ObjectId> {
    let mut ids: Vec<ObjectId> = ids.collect();
    ids.sort_unstable();
    ids
}

#[test]
fn all_objects_of_a_type_and_of_an_owner_are_found_through_births_and_deaths() {
    for_seeds(200, |seed| {
        let mut world = World::with_guests(WorldOptions::new(seed), 2);
        let mut rng = fastrand::Rng::with_seed(seed);
        // The truth of the game: number and owner of each beacon, and the scores.
        let mut beacons: Vec<(ObjectId, u32, Option<usize>)> = Vec::new();
        let mut scores: Vec<ObjectId> = Vec::new();
        for number in 0..200 {
            let owner = [None, Some(0), Some(1)][rng.usize(0..3)];
            let connection = owner.map(|guest| world.connection(guest));
            match rng.u8(0..4) {
                0 if !beacons.is_empty() => {
                    let (id, ..) = beacons.swap_remove(rng.usize(..beacons.len()));
                    world.server.despawn(id);
                }
                1 if !beacons.is_empty() => {
                    let index = rng.usize(..beacons.len());
                    world.server.set_owner(beacons[index].0, connection).expect("room");
                    beacons[index].2 = owner;
                }
                2 => scores.push(world.server.spawn(Score::default(), Placement::Entity).expect("room")),
                _ => {
                    let beacon = Beacon { number, ..Beacon::default() };
                    let id = world.server.spawn_owned(beacon, Placement::Cell(0), connection).expect("room");
                    beacons.push((id, number, owner));
                }
            }
            let found = world.server.objects::<Beacon>().map(|(id, beacon)| (id, beacon.number));
            let found: BTreeSet<_> = found.collect();
            assert_eq!(found, beacons.iter().map(|&(id, number, _)| (id, number)).collect(), "of one type");
            assert_eq!(world.server.objects::<Walker>().count(), 0);
            assert_eq!(world.server.objects::<Score>().count(), scores.len());
            let all = beacons.iter().map(|&(id, ..)| id).chain(scores.iter().copied());
            assert_eq!(sorted(world.server.ids()), sorted(all), "of all types");
            for guest in 0..2 {
                let own = || beacons.iter().filter(|&&(.., owner)| owner == Some(guest)).map(|&(id, ..)| id);
                let connection = world.connection(guest);
                assert_eq!(sorted(world.server.owned(connection)), sorted(own()));
                let typed = world.server.owned_objects::<Beacon>(connection).map(|(id, _)| id);
                assert_eq!(sorted(typed), sorted(own()));
                assert_eq!(world.server.owned_objects::<Score>(connection).count(), 0);
            }
        }
        for id in scores {
            assert_eq!(world.server.kind(id), Some(Score::KIND));
            world.server.despawn(id);
            assert_eq!((world.server.kind(id), world.server.owner(id)), (None, None));
        }
        Ok(())
    });
}

#[test]
fn what_is_changed_through_the_iterator_is_sent_and_what_it_did_not_reach_is_not() {
    let mut world = World::with_guests(WorldOptions::new(1), 1);
    world.server.set_viewpoint(world.connection(0), [0.0; 3]);
    for _ in 0..10 {
        world.server.spawn(Beacon::default(), Placement::Cell(0)).expect("room");
    }
    world.steps(5);
    for (_, beacon) in world.server.objects_mut::<Beacon>().take(4) {
        beacon.number = 7;
    }
    world.steps(5);
    let seen = |number| world.guests[0].client.objects::<Beacon>().filter(|(_, seen)| seen.number == number).count();
    assert_eq!((seen(7), seen(0)), (4, 6));
    let [first, second] =
        [0, 1].map(|skipped| world.server.objects::<Beacon>().nth(skipped).map(|(id, _)| id).expect("ten of them"));
    // One that is touched in both ways is quantised once.
    world.server.get_mut::<Beacon>(first).expect("it is there").number = 8;
    world.server.objects_mut::<Beacon>().for_each(|(id, beacon)| beacon.number += u32::from(id == second));
    world.step();
    assert_eq!(world.server.last_tick().counters.objects_quantised, 10);
}

#[test]
fn a_client_finds_all_that_it_sees_and_what_of_it_is_its_own() {
    let mut world = World::with_guests(WorldOptions::new(2), 2);
    let me = world.connection(0);
    for guest in 0..2 {
        world.server.set_viewpoint(world.connection(guest), [0.0; 3]);
    }
    let mine = world.server.spawn_owned(Beacon::default(), Placement::Cell(0), Some(me)).expect("room");
    let others = world.server.spawn(Beacon::default(), Placement::Cell(0)).expect("room");
    let walker = world.server.spawn(Walker::default(), Placement::Cell(0)).expect("room");
    let hidden = world.server.spawn(Score::default(), Placement::Entity).expect("room");
    world.steps(10);
    let client = &world.guests[0].client;
    assert_eq!(sorted(client.ids()), sorted([mine, others, walker].into_iter()));
    assert_eq!(client.owned().collect::<Vec<_>>(), [mine]);
    assert_eq!((client.is_mine(mine), client.is_mine(others)), (true, false));
    assert_eq!(client.kind(walker), Some(Walker::KIND));
    assert_eq!((client.kind(mine), client.kind(hidden)), (Some("Beacon"), None));
    assert_eq!(client.schema().hash(), world.schema.hash());
    assert_eq!(world.guests[1].client.owned().count(), 0);
}

#[test]
fn what_a_player_leaves_behind_is_found_after_it_has_gone() {
    let mut world = World::with_guests(WorldOptions::new(3), 2);
    let gone = world.connection(0);
    let left =
        [(); 3].map(|()| world.server.spawn_owned(Beacon::default(), Placement::Cell(0), Some(gone)).expect("room"));
    world.server.spawn_owned(Beacon::default(), Placement::Cell(0), Some(world.connection(1))).expect("room");
    world.server.disconnect(gone, world.now, "bye");
    world.steps_until(60, |world| world.guests[0].connection.is_none()).expect("it ends");
    assert_eq!(sorted(world.server.owned(gone)), sorted(left.into_iter()));
    for id in sorted(world.server.owned(gone)) {
        world.server.despawn(id);
    }
    assert_eq!((world.server.owned(gone).count(), world.server.objects::<Beacon>().count()), (0, 1));
}

/// The channel of an object's fields for everybody but its owner.
fn others(object: ObjectId) -> ChannelKey {
    ChannelKey::Entity { object, facet: Facet::Others }
}

#[test]
fn an_owner_cannot_be_subscribed_to_what_is_hidden_from_it() {
    let mut world = World::with_guests(WorldOptions::new(4), 2);
    let (me, other) = (world.connection(0), world.connection(1));
    world.server.set_viewpoint(me, [0.0; 3]);
    let walker = |rumour| Walker { rumour, ..Walker::default() };
    let mine = world.server.spawn_owned(walker(vec![1]), Placement::Cell(0), Some(me)).expect("room");
    assert_eq!(world.server.subscribe(me, others(mine), 1), Err(LimitReached::ForeignOwner));
    assert_eq!(world.server.subscribe(other, others(mine), 1), Ok(()));
    // The owner of the other one comes later than its subscription.
    let given = world.server.spawn(walker(vec![2]), Placement::Cell(0)).expect("room");
    world.server.subscribe(me, others(given), 1).expect("room");
    world.steps(10);
    let heard = |world: &World, id| world.guests[0].client.get::<Walker>(id).expect("in view").rumour;
    assert_eq!((heard(&world, mine), heard(&world, given)), (vec![], vec![2]));
    world.server.set_owner(given, Some(me)).expect("room");
    assert!(!world.server.replication().is_reader(me, others(given)), "the subscription has ended");
    world.server.get_mut::<Walker>(given).expect("it is there").rumour = vec![3];
    world.steps(10);
    assert_eq!((heard(&world, mine), heard(&world, given)), (vec![], vec![]));
    // The former owner still sees it, and may know it now.
    world.server.set_owner(given, Some(other)).expect("room");
    world.steps(10);
    assert_eq!(heard(&world, given), [3]);
}

#[test]
fn the_fields_for_others_of_an_object_in_view_can_be_subscribed_to_by_hand() {
    let mut world = World::with_guests(WorldOptions::new(5), 1);
    let me = world.connection(0);
    let walker = Walker { rumour: vec![1], ..Walker::default() };
    let seen = world.server.spawn(walker, Placement::Cell(0)).expect("room");
    world.server.set_viewpoint(me, [0.0; 3]);
    world.steps(10);
    let followed = |world: &World| world.server.replication().followed_count(me);
    let before = followed(&world);
    assert_eq!(world.server.subscribe(me, others(seen), 2), Ok(()));
    world.steps(10);
    assert_eq!(followed(&world), before, "it has one subscription for both reasons");
    // By hand it stays when the object has left the view.
    world.server.set_viewpoint(me, [500.0; 3]);
    world.steps(10);
    assert!(world.server.replication().is_reader(me, others(seen)));
    world.server.set_viewpoint(me, [0.0; 3]);
    world.steps(10);
    world.server.get_mut::<Walker>(seen).expect("it is there").rumour = vec![2];
    world.steps(10);
    let heard = |world: &World| world.guests[0].client.get::<Walker>(seen).expect("in view").rumour;
    assert_eq!(heard(&world), [2]);
    // And it is followed because of the view when the game has ended it.
    world.server.unsubscribe(me, others(seen));
    world.server.get_mut::<Walker>(seen).expect("it is there").rumour = vec![3];
    world.steps(10);
    assert_eq!((heard(&world), followed(&world)), (vec![3], before));
}
