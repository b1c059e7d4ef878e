//! A client stands whatever its server says, and a server whatever its clients say.

#[path = "../../../fuzz/bodies/choices.rs"]
mod choices;
#[path = "../../../fuzz/bodies/control.rs"]
mod control;
#[path = "../../../fuzz/bodies/kinds.rs"]
mod kinds;

use proptest::prelude::*;

proptest! {
    #![proptest_config(throng_seeds::cases(256))]

    #[test]
    fn both_ends_stand_whatever_the_other_says(input in prop::collection::vec(any::<u8>(), 0..600)) {
        control::run(&kinds::schema(), &input);
    }
}
