//! Fields of other libraries' vectors, nested structs, optional values and lists, from a server to its clients.

use std::sync::Arc;

use throng::net::Condition;
use throng::{ClientEvent, ObjectId, Placement, Replicate, Schema};
use throng_seeds::for_seeds;
use throng_testkit::storm;

use crate::harness::{World, WorldOptions};

#[derive(Clone, Debug, Default, PartialEq, Replicate)]
struct Body {
    #[replicate(position(step = 0.01))]
    at: glam::Vec3,
    #[replicate(quaternion(bits = 12))]
    turned: glam::Quat,
    #[replicate(fixed(min = -32, max = 32, step = 0.25))]
    velocity: glam::Vec2,
    #[replicate(float32)]
    colours: [glam::DVec4; 2],
}

#[derive(Clone, Debug, Default, PartialEq, Replicate)]
struct Bag {
    #[replicate(object, list(max = 4))]
    items: Vec<ObjectId>,
    #[replicate(text(max_bytes = 20))]
    note: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Replicate)]
struct Traveller {
    #[replicate(nested)]
    body: Body,
    #[replicate(nested, owner_only)]
    bag: Bag,
    #[replicate(object)]
    target: Option<ObjectId>,
    #[replicate(fixed(min = -512, max = 512, step = 0.5), list(max = 3))]
    path: Vec<glam::Vec3>,
}

/// Vectors that other libraries exchange.
#[derive(Clone, Debug, PartialEq, Replicate)]
struct Exchanged {
    #[replicate(position(step = 0.01))]
    at: mint::Point3<f64>,
    #[replicate(quaternion(bits = 12))]
    turned: mint::Quaternion<f32>,
    #[replicate(fixed(min = -32, max = 32, step = 0.25))]
    velocity: mint::Vector3<f32>,
    #[replicate(unit_vector(bits = 12))]
    facing: mint::Vector3<f64>,
}

impl Default for Exchanged {
    fn default() -> Exchanged {
        Exchanged {
            at: [0.0; 3].into(),
            turned: [0.0, 0.0, 0.0, 1.0].into(),
            velocity: [0.0; 3].into(),
            facing: [0.0, 0.0, 1.0].into(),
        }
    }
}

fn options(seed: u64) -> WorldOptions {
    let schema = Schema::builder().kind::<Traveller>().kind::<Exchanged>().build().expect("good kinds");
    WorldOptions { schema: Arc::new(schema), ..WorldOptions::new(seed) }
}

/// Another value that the quantisers keep exactly, but for the rotation.
fn any_traveller(rng: &mut fastrand::Rng) -> Traveller {
    let mut number = |range: i32| rng.i32(-range..=range) as f32;
    let (at, velocity) = (glam::vec3(number(8), number(8), 4.0), glam::vec2(number(20), number(20) / 4.0));
    let colour = glam::DVec4::new(f64::from(number(9)), 0.5, -1.0, f64::from(number(3)));
    let path = (0..3).map(|_| glam::vec3(number(500), number(500) / 2.0, 0.0)).collect::<Vec<_>>();
    let turned = glam::Quat::from_rotation_z(number(3));
    let mut id = || ObjectId { index: rng.u32(..100), generation: rng.u32(..9) };
    let items = (0..4).map(|_| id()).collect::<Vec<_>>();
    Traveller {
        body: Body { at, turned, velocity, colours: [colour, -colour] },
        bag: Bag { items: items[..rng.usize(..=4)].to_vec(), note: rng.bool().then(|| "x".repeat(rng.usize(..20))) },
        target: rng.bool().then(|| items[0]),
        path: path[..rng.usize(..=3)].to_vec(),
    }
}

fn check(seen: &Traveller, truth: &Traveller, is_owner: bool) -> Result<(), String> {
    let bag = if is_owner { truth.bag.clone() } else { Bag::default() };
    let wanted = Traveller { body: Body { turned: seen.body.turned, ..truth.body.clone() }, bag, ..truth.clone() };
    if (*seen != wanted) || seen.body.turned.angle_between(truth.body.turned) > 0.002 {
        return Err(format!("{seen:?} is not {truth:?}"));
    }
    Ok(())
}

#[test]
fn composed_fields_arrive_as_the_game_wrote_them_in_any_weather_and_for_their_audience_only() {
    for_seeds(200, |seed| {
        let mut world = World::with_guests(options(seed), 2);
        let mut rng = fastrand::Rng::with_seed(seed);
        let owner = world.connection(0);
        let mut truth = any_traveller(&mut rng);
        let id = world.server.spawn_owned(truth.clone(), Placement::Cell(0), Some(owner)).expect("room");
        for guest in 0..2 {
            world.server.set_viewpoint(world.connection(guest), [0.0, 0.0, 4.0]);
        }
        for round in 0..60 {
            if round % 20 == 0 {
                world.set_condition(Condition { loss: 0.3, ..storm(&mut rng) });
            }
            let next = any_traveller(&mut rng);
            // Often only a part changes.
            match rng.u8(0..4) {
                0 => truth = next,
                1 => truth.bag.note = next.bag.note,
                2 => truth.body.velocity = next.body.velocity,
                _ => truth.path = next.path,
            }
            world.server.get_mut::<Traveller>(id).expect("it is there").clone_from(&truth);
            world.step();
        }
        world.set_condition(Condition::NONE);
        world.steps(40);
        for guest in 0..2 {
            if world.guests[guest].connection.is_none() {
                continue; // given up in the storm
            }
            let seen = world.guests[guest].client.get::<Traveller>(id).ok_or("it is not in sight")?;
            check(&seen, &truth, guest == 0).map_err(|error| format!("guest {guest}: {error}"))?;
        }
        Ok(())
    });
}

#[test]
fn a_change_of_an_inner_field_is_told_with_its_own_bit() {
    let mut world = World::with_guests(options(1), 1);
    world.server.set_viewpoint(world.connection(0), [0.0, 0.0, 4.0]);
    let id = world.server.spawn(Traveller::default(), Placement::Cell(0)).expect("room");
    world.steps(10);
    world.guests[0].events.clear();
    let traveller = world.server.get_mut::<Traveller>(id).expect("it is there");
    traveller.body.velocity = glam::vec2(1.0, 2.0);
    traveller.target = Some(id);
    world.steps(5);
    let velocity = Body::FIELD_VELOCITY << Traveller::FIELD_BODY.trailing_zeros();
    let wanted = ClientEvent::Changed { id, fields: velocity | Traveller::FIELD_TARGET };
    assert_eq!(world.guests[0].events, [wanted]);
    assert_eq!(world.guests[0].client.get::<Traveller>(id).expect("in sight").target, Some(id));
}

#[test]
fn vectors_of_mint_are_fields() {
    let mut world = World::with_guests(options(2), 1);
    world.server.set_viewpoint(world.connection(0), [0.0, 0.0, 4.0]);
    let sent = Exchanged {
        at: [1.25, -2.5, 4.0].into(),
        velocity: [1.0, -32.0, 0.25].into(),
        facing: [0.0, -1.0, 0.0].into(),
        ..Exchanged::default()
    };
    let id = world.server.spawn(sent.clone(), Placement::Cell(0)).expect("room");
    world.guests[0].client.send(0, &sent).expect("connected");
    world.steps(10);
    assert_eq!(world.guests[0].client.get::<Exchanged>(id), Some(sent));
}
