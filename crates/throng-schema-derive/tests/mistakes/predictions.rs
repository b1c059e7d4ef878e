//! Positions that cannot be predicted as they say.

use throng_schema::Replicate;

#[derive(Default, Replicate)]
struct NoParameters {
    #[replicate(position(step = 0.01), predict)]
    position: [f32; 3],
}

#[derive(Default, Replicate)]
struct NoError {
    #[replicate(position(step = 0.01), predict(by = "velocity"))]
    position: [f32; 3],
}

#[derive(Default, Replicate)]
struct Another {
    #[replicate(position(step = 0.01), predict(by = "velocity", error_m = 0.03, after = 3))]
    position: [f32; 3],
}

#[derive(Default, Replicate)]
struct NoPosition {
    #[replicate(float32, predict(by = "velocity", error_m = 0.03))]
    heat: f32,
}

#[derive(Default, Replicate)]
struct SentOnce {
    #[replicate(position(step = 0.01), predict(by = "velocity", error_m = 0.03), initial_only)]
    position: [f32; 3],
}

#[derive(Default, Replicate)]
struct TooExact {
    #[replicate(position(step = 0.01), predict(by = "velocity", error_m = 0.001))]
    position: [f32; 3],
    #[replicate(fixed(min = -9, max = 9, step = 0.1))]
    velocity: [f32; 3],
}

#[derive(Default, Replicate)]
struct NoVelocity {
    #[replicate(position(step = 0.01), predict(by = "velocity", error_m = 0.03))]
    position: [f32; 3],
    #[replicate(skip)]
    velocity: [f32; 3],
}

#[derive(Default, Replicate)]
struct AnotherQuantiser {
    #[replicate(position(step = 0.01), predict(by = "velocity", error_m = 0.03))]
    position: [f32; 3],
    #[replicate(float32)]
    velocity: [f32; 3],
}

#[derive(Default, Replicate)]
struct AnotherAudience {
    #[replicate(position(step = 0.01), predict(by = "velocity", error_m = 0.03))]
    position: [f32; 3],
    #[replicate(fixed(min = -9, max = 9, step = 0.1), owner_only)]
    velocity: [f32; 3],
}

#[derive(Default, Replicate)]
struct VelocitySentOnce {
    #[replicate(position(step = 0.01), predict(by = "velocity", error_m = 0.03))]
    position: [f32; 3],
    #[replicate(fixed(min = -9, max = 9, step = 0.1), initial_only)]
    velocity: [f32; 3],
}

#[derive(Default, Replicate)]
struct TwoElements {
    #[replicate(position(step = 0.01), predict(by = "velocity", error_m = 0.03))]
    position: [f32; 3],
    #[replicate(fixed(min = -9, max = 9, step = 0.1))]
    velocity: [f32; 2],
}

fn main() {}
