//! Any bytes are refused, or written again exactly as they were read.

#[path = "../../../fuzz/bodies/kinds.rs"]
mod kinds;
#[path = "../../../fuzz/bodies/summary.rs"]
mod summary;
#[path = "../../../fuzz/bodies/values.rs"]
mod values;

use proptest::prelude::*;

proptest! {
    #![proptest_config(throng_seeds::cases(1024))]

    #[test]
    fn any_bytes_are_a_value_or_refused(input in prop::collection::vec(any::<u8>(), 0..200)) {
        values::run(&kinds::schema(), &input);
    }

    #[test]
    fn any_bytes_are_a_summary_or_refused(input in prop::collection::vec(any::<u8>(), 0..120)) {
        summary::run(&kinds::schema(), &input);
    }
}
