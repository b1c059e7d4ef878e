//! Parts of tests that wait for networks, for providers and for time to pass: beside each other, with a gateway for each.
//! They take longest, and their name lets them begin among the first.

use crate::serving::beside_each_other;
use crate::{false_addresses, health, limits, link, movement_link, proxies, reload, slow_readers, transports};

#[test]
fn over_bad_networks_and_to_slow_readers_everything_comes() {
    beside_each_other(&[
        &transports::kcp_carries_messages_both_ways_over_a_network_that_loses_some,
        &link::the_link_carries_messages_both_ways_over_a_network_that_loses_some,
        &link::a_player_whose_address_changes_keeps_the_connection,
        &slow_readers::the_link_gives_a_slow_reader_the_newest_state,
        &slow_readers::kcp_gives_a_slow_reader_the_newest_state,
        &false_addresses::what_comes_under_the_address_of_a_conversation_does_not_end_it,
        &movement_link::movement_comes_in_order_where_some_is_lost_and_the_rest_is_complete,
        &link::a_client_that_takes_nothing_keeps_its_session_no_longer_than_its_last_bytes_may_take,
    ]);
}

#[test]
fn what_takes_seconds_by_the_clock() {
    beside_each_other(&[
        &health::after_an_outage_of_the_provider_nobody_is_shut_out,
        &health::an_engine_that_is_busy_for_many_seconds_is_alive_and_ready_and_probes_do_not_wait_for_it,
        &health::an_engine_that_does_one_thing_for_too_long_is_not_alive,
        &limits::an_address_that_misbehaves_is_shut_out_and_later_forgiven,
        &reload::rates_change_for_those_who_are_inside_too,
        &reload::what_may_wait_changes_for_those_who_are_inside_too,
        &limits::one_packet_of_many_messages_reaches_the_engine_at_the_rate_and_no_faster,
        &limits::what_a_packet_unpacks_to_counts_against_the_rate_of_its_sender,
        &limits::a_client_that_sends_too_fast_is_read_later_and_loses_nothing,
        &health::a_slow_provider_lets_everybody_in_and_dismisses_nobody,
        &transports::encrypted_connections_begin_at_a_limited_rate_and_those_that_would_wait_too_long_are_refused,
        &transports::a_shut_down_gives_a_slow_client_the_time_that_it_may_take_in_all,
        &proxies::newcomers_of_all_addresses_together_are_let_in_at_a_rate,
    ]);
}
