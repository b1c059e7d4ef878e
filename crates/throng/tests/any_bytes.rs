//! A client stands whatever its server says, a server whatever its clients say, and both whatever a snapshot says.

#[path = "../../../fuzz/bodies/choices.rs"]
mod choices;
#[path = "../../../fuzz/bodies/control.rs"]
mod control;
#[path = "../../../fuzz/bodies/kinds.rs"]
mod kinds;
#[path = "../../../fuzz/bodies/world_snapshot.rs"]
mod world_snapshot;

use proptest::prelude::*;

proptest! {
    #![proptest_config(throng_seeds::cases(256))]

    #[test]
    fn both_ends_stand_whatever_the_other_says(input in prop::collection::vec(any::<u8>(), 0..600)) {
        control::run(&kinds::schema(), &input);
    }

    #[test]
    fn a_snapshot_is_refused_or_stands_for_a_world(input in prop::collection::vec(any::<u8>(), 0..100)) {
        world_snapshot::run(&input);
    }
}
