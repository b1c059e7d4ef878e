//! Anything that comes from the bus: the same check as the fuzz target `directory`, for a moment.

#[path = "../../../../fuzz/bodies/choices.rs"]
mod choices;
#[path = "../../../../fuzz/bodies/directory.rs"]
mod directory;

use proptest::prelude::*;

proptest! {
    #![proptest_config(throng_seeds::cases(1_000))]

    #[test]
    fn nothing_from_the_bus_harms_a_directory(input in proptest::collection::vec(any::<u8>(), 0..400)) {
        directory::run(&input);
    }
}
