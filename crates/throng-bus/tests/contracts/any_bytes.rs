//! Anything that comes from the bus: the same check as the fuzz target `bus`, for a moment.

#[path = "../../../../fuzz/bodies/bus.rs"]
mod bus;
#[path = "../../../../fuzz/bodies/choices.rs"]
mod choices;

use proptest::prelude::*;

proptest! {
    #![proptest_config(throng_seeds::cases(2_000))]

    #[test]
    fn nothing_from_the_bus_does_harm(input in proptest::collection::vec(any::<u8>(), 0..400)) {
        bus::run(&input);
    }
}
