//! Words that are unknown, missing, or one too many.

use throng_schema::Replicate;

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
}

fn main() {}
