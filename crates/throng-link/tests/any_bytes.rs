//! Any bytes at a door or a session do no harm and use bounded memory.

#[path = "../../../fuzz/bodies/choices.rs"]
mod choices;
#[path = "../../../fuzz/bodies/door.rs"]
mod door;
#[path = "../../../fuzz/bodies/packet.rs"]
mod packet;
#[path = "../../../fuzz/bodies/token.rs"]
mod token;

use proptest::prelude::*;

proptest! {
    #![proptest_config(throng_seeds::cases(512))]

    #[test]
    fn a_token_is_refused_or_reads_the_same_again(input in prop::collection::vec(any::<u8>(), 0..1200)) {
        token::run(&input);
    }

    #[test]
    fn nobody_gets_in_twice_or_without_a_token(input in prop::collection::vec(any::<u8>(), 0..700)) {
        door::run(&input);
    }

    #[test]
    fn a_pair_of_sessions_stands_any_packets(input in prop::collection::vec(any::<u8>(), 0..1500)) {
        packet::run(&input);
    }
}
