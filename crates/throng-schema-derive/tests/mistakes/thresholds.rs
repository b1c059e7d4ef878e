//! Thresholds that are not possible.

use throng_schema::Replicate;

#[derive(Default, Replicate)]
struct NoNumber {
    #[replicate(fixed(min = 0, max = 1, step = 0.1), threshold)]
    heat: f32,
}

#[derive(Default, Replicate)]
struct LessThanAStep {
    #[replicate(fixed(min = 0, max = 1, step = 0.1), threshold = 0.05)]
    heat: f32,
}

#[derive(Default, Replicate)]
struct MoreThanTheRange {
    #[replicate(fixed(min = 0, max = 1, step = 0.1), threshold = 1.5)]
    heat: f32,
}

#[derive(Default, Replicate)]
struct NoSteps {
    #[replicate(float32, threshold = 0.5)]
    heat: f32,
}

#[derive(Default, Replicate)]
struct MoreThanHalfATurn {
    #[replicate(angle(bits = 9), threshold = 3.2)]
    heading: f32,
}

#[derive(Default, Replicate)]
struct LessThanAStepOfATurn {
    #[replicate(angle(bits = 9), threshold = 0.012)]
    heading: f32,
}

#[derive(Default, Replicate)]
struct NotAlwaysThere {
    #[replicate(fixed(min = 0, max = 1, step = 0.1), threshold = 0.2)]
    heat: Option<f32>,
}

fn main() {}
