//! Reads any recording within bounds, and reads back every written one.

#[path = "../../../fuzz/bodies/channeld_recordings.rs"]
mod channeld_recordings;

use proptest::prelude::*;

use crate::choices;

proptest! {
    #![proptest_config(throng_seeds::cases(2_048))]

    #[test]
    fn any_bytes_are_read_as_recordings(input in prop::collection::vec(any::<u8>(), 0..300)) {
        channeld_recordings::run(&input);
    }

    #[test]
    fn bytes_that_are_nearly_recordings_are_read(
        input in prop::collection::vec(prop_oneof![Just(0x0A), Just(0x12), Just(0x08), 0..8u8, any::<u8>()], 0..60),
    ) {
        channeld_recordings::run(&input);
    }
}
