//! Whatever a server sends, a client holds no more than it may, says what is wrong, and can be used on.

#[path = "../../../fuzz/bodies/choices.rs"]
mod choices;
#[path = "../../../fuzz/bodies/genuine.rs"]
mod genuine;
#[path = "../../../fuzz/bodies/kinds.rs"]
mod kinds;
#[path = "../../../fuzz/bodies/segment.rs"]
mod segment;

use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 1024, ..ProptestConfig::default() })]

    #[test]
    fn a_client_stands_any_packets(input in prop::collection::vec(any::<u8>(), 0..900)) {
        segment::run(&kinds::schema(), &input);
    }

    #[test]
    fn a_client_stands_bent_packets(input in prop::collection::vec(any::<u8>(), 0..1200)) {
        genuine::run_bent(&kinds::schema(), &input);
    }

    #[test]
    fn genuine_packets_are_never_refused(input in prop::collection::vec(any::<u8>(), 0..1200)) {
        genuine::run_unbent(&kinds::schema(), &input);
    }
}
