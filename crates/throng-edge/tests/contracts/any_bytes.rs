//! The fuzz targets' bodies with random bytes.

#[path = "../../../../fuzz/bodies/choices.rs"]
mod choices;
#[path = "../../../../fuzz/bodies/origin.rs"]
mod origin;
#[path = "../../../../fuzz/bodies/world.rs"]
mod world;

use throng_seeds::for_seeds;

fn any_bytes(seed: u64) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(seed);
    (0..rng.usize(..2_000)).map(|_| rng.u8(..)).collect()
}

#[test]
fn an_origin_stands_edges_that_say_anything() {
    for_seeds(400, |seed| origin::run(&any_bytes(seed)));
}

#[test]
fn servers_and_edges_stand_a_bus_that_says_anything() {
    for_seeds(1_000, |seed| world::run(&any_bytes(seed)));
}
