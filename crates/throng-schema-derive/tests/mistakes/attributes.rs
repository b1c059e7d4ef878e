//! Words that are unknown, missing, or one too many.

use throng_schema::{Replicate, ReplicateEnum};

#[derive(Default, Replicate)]
struct Words {
    #[replicate(fixt(min = 0, max = 1, step = 0.1))]
    unknown_quantiser: f32,
    no_attribute: f32,
    #[replicate(owner_only)]
    no_quantiser: f32,
    #[replicate(bool, integer)]
    two_quantisers: u8,
    #[replicate(bool, owners)]
    unknown_condition: bool,
    #[replicate(bool, owner_only, skip_owner)]
    two_conditions: bool,
    #[replicate(bool, skip)]
    skipped_and_sent: bool,
    #[replicate(enum)]
    keyword: u8,
    #[replicate]
    empty: bool,
    #[replicate(float16(bits = 16))]
    parameters_for_none: f32,
    #[replicate(bool, notify = 3)]
    notified: bool,
    #[replicate(fixed(min = 0, max = 1, step = 0.1), threshold = 0.2, threshold = 0.3)]
    two_thresholds: f32,
    #[replicate(bool, far, far)]
    two_copies: bool,
    #[replicate(bool, notify)]
    #[replicate(notify)]
    notified_twice: bool,
    #[replicate(bool, list(max = 3), list(max = 4))]
    two_lists: Vec<bool>,
}

#[derive(Default, Replicate)]
struct TwoPredictions {
    #[replicate(position(step = 0.01), predict(by = "a", error_m = 0.03), predict(by = "b", error_m = 0.03))]
    position: [f32; 3],
}

#[derive(Default, Replicate)]
#[replicate(name = "One", name = "Two")]
struct TwoNames {}

#[derive(Clone, Copy, Default, ReplicateEnum)]
#[replicate(crate = "throng_schema", crate = "throng_schema")]
enum TwoPaths {
    #[default]
    One,
}

fn main() {}
