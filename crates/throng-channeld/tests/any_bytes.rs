//! Reads any bytes of a peer within bounds, with the same result as other implementations.

#[path = "../../../fuzz/bodies/channeld_frames.rs"]
mod channeld_frames;
#[path = "../../../fuzz/bodies/channeld_movement.rs"]
mod channeld_movement;
#[path = "../../../fuzz/bodies/channeld_packets.rs"]
mod channeld_packets;

use proptest::prelude::*;

use crate::choices;

/// Bytes that are packets for the most part: keys and short lengths are likely.
fn near_packets() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![Just(0x0A), Just(0x2A), Just(0x20), Just(0x08), 0..8u8, any::<u8>()];
    prop::collection::vec(byte, 0..60)
}

proptest! {
    #![proptest_config(throng_seeds::cases(4_096))]

    #[test]
    fn packets_are_read_as_protobuf_has_it(input in near_packets()) {
        channeld_packets::run(&input);
    }

    #[test]
    fn any_bytes_are_read_as_movement(input in prop::collection::vec(prop_oneof![0..4u8, any::<u8>()], 0..300)) {
        channeld_movement::run(&input);
    }

    #[test]
    fn any_bytes_are_read_as_packets(input in prop::collection::vec(any::<u8>(), 0..300)) {
        channeld_packets::run(&input);
    }
}

proptest! {
    #![proptest_config(throng_seeds::cases(512))]

    #[test]
    fn frames_are_read_in_any_pieces(input in prop::collection::vec(any::<u8>(), 0..400)) {
        channeld_frames::run(&input);
    }
}
