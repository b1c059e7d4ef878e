use throng_schema::Replicate;

#[derive(Default)]
struct Plain;

#[derive(Default, Replicate)]
struct Inner {
    #[replicate(position(step = 0.1))]
    position: [f32; 3],
    #[replicate(bool, owner_only)]
    is_secret: bool,
}

#[derive(Default, Replicate)]
struct TwoPlaces {
    #[replicate(nested)]
    first: Inner,
    #[replicate(position(step = 0.1))]
    second: [f32; 3],
}

#[derive(Default, Replicate)]
struct TwoConditions {
    #[replicate(nested, skip_owner)]
    inner: Inner,
}

#[derive(Default, Replicate)]
struct NoPart {
    #[replicate(nested)]
    plain: Plain,
}

#[derive(Default, Replicate)]
struct LongList {
    #[replicate(bool, list(max = 100))]
    rows: Vec<[bool; 3]>,
}

#[derive(Default, Replicate)]
struct Motion {
    #[replicate(position(step = 0.01), predict(by = "velocity", error_m = 0.03))]
    position: [f32; 3],
    #[replicate(fixed(min = -9, max = 9, step = 0.1))]
    velocity: [f32; 3],
}

#[derive(Default, Replicate)]
struct PredictedOnce {
    #[replicate(nested, initial_only)]
    motion: Motion,
}

#[derive(Default, Replicate)]
struct PredictedForTheOwner {
    #[replicate(nested, owner_only)]
    motion: Motion,
}

#[derive(Default, Replicate)]
struct PredictedForAll {
    #[replicate(nested, skip_owner)]
    motion: Motion,
}

fn main() {}
