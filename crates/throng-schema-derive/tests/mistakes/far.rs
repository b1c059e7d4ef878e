//! Copies of fields for clients far away that are not possible.

use throng_schema::Replicate;

#[derive(Default, Replicate)]
struct NoStep {
    #[replicate(position(step = 0.01), far(radius = 3))]
    position: [f32; 3],
}

#[derive(Default, Replicate)]
struct SmallerStep {
    #[replicate(position(step = 0.01), far(step = 0.001))]
    position: [f32; 3],
}

#[derive(Default, Replicate)]
struct NothingToStep {
    #[replicate(integer, far(step = 2))]
    health: u8,
}

#[derive(Default, Replicate)]
struct Secret {
    #[replicate(integer, owner_only, far)]
    ammunition: u8,
}

#[derive(Default, Replicate)]
struct SentOnce {
    #[replicate(integer, initial_only, far)]
    team: u8,
}

#[derive(Default, Replicate)]
struct Inner {
    #[replicate(integer, far)]
    heat: u8,
}

#[derive(Default, Replicate)]
struct Outer {
    #[replicate(nested, far)]
    inner: Inner,
}

#[derive(Default, Replicate)]
struct StepOfMoreThanTheRange {
    #[replicate(fixed(min = 0, max = 1, step = 0.1), far(step = 5))]
    speed: f32,
}

fn main() {}
