//! The fuzz target's body with random bytes.

#[path = "../../../../fuzz/bodies/choices.rs"]
mod choices;
#[path = "../../../../fuzz/bodies/origin.rs"]
mod origin;

use throng_seeds::for_seeds;

#[test]
fn an_origin_stands_edges_that_say_anything() {
    for_seeds(400, |seed| {
        let mut rng = fastrand::Rng::with_seed(seed);
        let bytes: Vec<u8> = (0..rng.usize(..2_000)).map(|_| rng.u8(..)).collect();
        origin::run(&bytes);
        Ok(())
    });
}
