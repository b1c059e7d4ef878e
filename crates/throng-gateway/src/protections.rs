//! The gateway's protections: one table of all limits that can be set. For each: what happens beyond it, which metric
//! counts that, where it is enforced, and a test that exceeds it.
//!
//! `-help` and the table in docs/gateway.md are made from it. A test looks whether each limit has a row, and whether the
//! files, the metrics and the tests that the rows name exist.

use std::fmt;

use throng_gateway_engine::limits::{LimitInfo, Limits};

/// One limit that protects the gateway.
#[derive(Clone, Copy, Debug)]
pub struct Protection {
    /// Its name, as on the command line.
    pub limit: &'static str,
    /// The consequence of going beyond it.
    pub answer: Answer,
    /// The metric that counts that.
    pub counted: Counted,
    /// The file that enforces it, below `crates`.
    pub enforced_in: &'static str,
    /// The name of a test that exceeds it.
    pub test: &'static str,
}

/// The consequence of going beyond a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The message is not done. A peer that wants to be told of refusals is told.
    Refused,
    /// It is done later; until then the peer is not read, or waits.
    Later,
    /// The login is answered with *not now*.
    NotNow,
    /// The value is moved to the limit.
    Moved,
    /// Updates are merged until the peer has caught up.
    Merged,
    /// The part beyond the limit is left out.
    Cut,
    /// The connection is refused or closed.
    Closed,
    /// The connection is closed, and its name or address refused for a while.
    Banned,
    /// The least important, or the oldest, is forgotten.
    Forgotten,
    /// It is not done, and what was done before it stays.
    GivenUp,
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Answer::Refused => "the message is refused",
            Answer::Later => "it is done later",
            Answer::NotNow => "the login is answered with *not now*",
            Answer::Moved => "the value is moved to the limit",
            Answer::Merged => "updates are merged",
            Answer::Cut => "the rest is left out",
            Answer::Closed => "the connection is closed",
            Answer::Banned => "the connection is closed, its name or address banned",
            Answer::Forgotten => "the oldest or least important is forgotten",
            Answer::GivenUp => "it is given up, the last one stays",
        })
    }
}

/// The metric that counts that a limit was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// `gateway_drops_total` with this reason.
    Drops(&'static str),
    /// `gateway_refused_total` with this reason.
    Refusals(&'static str),
    /// This metric.
    Metric(&'static str),
    /// Nothing: it is not a refusal.
    Nothing,
}

impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Counted::Drops(reason) => write!(f, "gateway_drops_total{{reason=\"{reason}\"}}"),
            Counted::Refusals(reason) => write!(f, "gateway_refused_total{{reason=\"{reason}\"}}"),
            Counted::Metric(name) => f.write_str(name),
            Counted::Nothing => f.write_str("nothing"),
        }
    }
}

const fn row(
    limit: &'static str,
    answer: Answer,
    counted: Counted,
    [enforced_in, test]: [&'static str; 2],
) -> Protection {
    Protection { limit, answer, counted, enforced_in, test }
}

use Answer::*;
use Counted::*;

/// All of them, in the order of [`Limits::ALL`].
#[rustfmt::skip]
pub const PROTECTIONS: &[Protection] = &[
    row("min_interval_ms", Moved, Nothing, ["throng-gateway-engine/src/engine/channel.rs", "intervals_and_delays_beyond_the_limits_are_cut_and_the_answer_says_so"]),
    row("max_interval_ms", Moved, Nothing, ["throng-gateway-engine/src/engine/channel.rs", "an_interval_of_50_days_is_cut_to_a_minute_and_keeps_no_updates"]),
    row("min_delay_ms", Moved, Nothing, ["throng-gateway-engine/src/engine/channel.rs", "w03_a_delay_far_in_the_past_brings_one_first_update_and_nothing_to_catch_up"]),
    row("max_delay_ms", Moved, Nothing, ["throng-gateway-engine/src/engine/channel.rs", "intervals_and_delays_beyond_the_limits_are_cut_and_the_answer_says_so"]),
    row("max_field_masks", Refused, Drops("field_masks"), ["throng-gateway-engine/src/engine/subscribe.rs", "field_masks_are_bounded"]),
    row("max_mask_sets", Refused, Drops("mask_sets"), ["throng-gateway-engine/src/engine/subscribe.rs", "field_masks_are_bounded"]),
    row("max_field_mask_bytes", Refused, Drops("field_mask_bytes"), ["throng-gateway-engine/src/engine/subscribe.rs", "field_masks_are_bounded"]),
    row("max_client_subscriptions", Refused, Drops("client_subscriptions"), ["throng-gateway-engine/src/engine/subscribe.rs", "the_limits_of_subscriptions_channels_and_state_are_kept"]),
    row("max_server_subscriptions", Refused, Drops("server_subscriptions"), ["throng-gateway-engine/src/engine/subscribe.rs", "a_server_that_may_not_subscribe_to_all_it_owns_any_more_is_told_the_time_of_its_return"]),
    row("max_client_channels", Refused, Drops("channels_created"), ["throng-gateway-engine/src/engine/lifecycle.rs", "what_was_created_counts_until_it_is_gone"]),
    row("max_server_channels", Refused, Drops("channels_created"), ["throng-gateway-engine/src/engine/lifecycle.rs", "an_entity_needs_an_id_of_its_own_a_creator_with_the_right_and_room"]),
    row("max_channels", Refused, Drops("channels"), ["throng-gateway-engine/src/engine/mod.rs", "the_limits_of_subscriptions_channels_and_state_are_kept"]),
    row("max_metadata_bytes", Refused, Drops("metadata_bytes"), ["throng-gateway-engine/src/engine/lifecycle.rs", "the_limits_of_subscriptions_channels_and_state_are_kept"]),
    row("max_state_bytes", Refused, Drops("too_large"), ["throng-gateway-engine/src/engine/log.rs", "a_new_limit_of_a_state_holds_for_the_channels_that_are_there_already"]),
    row("max_memory_bytes", Closed, Refusals("no_memory"), ["throng-gateway/src/serve/memory.rs", "those_for_whom_most_waits_are_ended_first_and_servers_last"]),
    row("max_total_state_bytes", Refused, Drops("total_state_bytes"), ["throng-gateway-engine/src/engine/state_memory.rs", "the_bounds_of_states_and_channels_hold_for_all_engines_together"]),
    row("reserved_server_state_bytes", Refused, Drops("client_states_bytes"), ["throng-gateway-engine/src/engine/state_memory.rs", "clients_fill_their_share_of_the_memory_and_the_world_goes_on"]),
    row("max_client_state_bytes", Refused, Drops("client_state_bytes"), ["throng-gateway-engine/src/engine/state_memory.rs", "a_client_whose_share_is_full_keeps_what_it_has_and_gets_no_more"]),
    row("reserved_server_channel_ids", Refused, Drops("channel_ids"), ["throng-gateway-engine/src/engine/lifecycle.rs", "clients_do_not_take_the_last_numbers_of_channels"]),
    row("max_list_filters", Refused, Drops("list_filters"), ["throng-gateway-engine/src/engine/lifecycle.rs", "a_list_has_few_short_filters_and_a_long_answer_costs_more_than_one_request"]),
    row("max_list_filter_bytes", Refused, Drops("list_filters"), ["throng-gateway-engine/src/engine/lifecycle.rs", "a_list_has_few_short_filters_and_a_long_answer_costs_more_than_one_request"]),
    row("max_client_messages_per_s", Later, Refusals("too_fast"), ["throng-gateway/src/serve/intake.rs", "a_client_that_sends_too_fast_is_read_later_and_loses_nothing"]),
    row("client_burst_messages", Later, Refusals("too_fast"), ["throng-gateway/src/serve/intake.rs", "one_packet_of_many_messages_reaches_the_engine_at_the_rate_and_no_faster"]),
    row("max_client_bytes_per_s", Later, Refusals("too_fast"), ["throng-gateway/src/serve/intake.rs", "what_a_packet_unpacks_to_counts_against_the_rate_of_its_sender"]),
    row("client_burst_bytes", Later, Refusals("too_fast"), ["throng-gateway/src/serve/intake.rs", "what_a_packet_unpacks_to_counts_against_the_rate_of_its_sender"]),
    row("max_server_messages_per_s", Later, Refusals("too_fast"), ["throng-gateway/src/serve/intake.rs", "a_burst_passes_and_then_the_rate_holds"]),
    row("max_client_requests_per_s", Refused, Drops("client_requests"), ["throng-gateway-engine/src/engine/mod.rs", "refused_lists_queries_and_news_are_not_answered"]),
    row("max_radius", Moved, Nothing, ["throng-gateway-engine/src/engine/spatial.rs", "w15_an_interest_without_centre_or_with_an_endless_radius_is_answered_in_bounded_time"]),
    row("max_query_samples", Moved, Nothing, ["throng-gateway-engine/src/engine/spatial.rs", "a_query_that_makes_no_sense_changes_nothing_and_one_without_end_costs_no_more_than_the_world"]),
    row("max_query_positions", Refused, Drops("query_positions"), ["throng-gateway-engine/src/engine/spatial.rs", "positions_are_answered_with_their_cells_and_with_zero_outside_of_the_world"]),
    row("max_group_entities", Refused, Drops("entity_group_full"), ["throng-gateway-engine/src/group.rs", "limits_refuse_and_change_nothing"]),
    row("max_grouped_entities", Refused, Drops("entity_groups_full"), ["throng-gateway-engine/src/group.rs", "limits_refuse_and_change_nothing"]),
    row("max_entity_handovers_per_s", Later, Drops("entity_handovers_per_s"), ["throng-gateway-engine/src/engine/pace.rs", "an_entity_that_jitters_on_a_border_waits_for_the_next_second_and_then_is_where_it_belongs"]),
    row("max_handovers_per_s", Later, Drops("handovers_per_s"), ["throng-gateway-engine/src/engine/pace.rs", "the_handovers_of_a_second_are_limited_and_all_are_made_up_for"]),
    row("max_handover_actions_per_s", Later, Drops("handover_actions_per_s"), ["throng-gateway-engine/src/engine/pace.rs", "a_group_whose_handover_takes_more_than_the_rest_of_a_second_waits_for_the_next_one"]),
    row("max_unauthenticated_ms", Closed, Drops("unauthenticated"), ["throng-gateway-engine/src/engine/logins.rs", "w11_strangers_are_sent_away_by_default_and_cost_nothing_until_then"]),
    row("max_failed_auth", Banned, Drops("login_failed"), ["throng-gateway-engine/src/engine/session.rs", "a_refused_login_gets_the_reason_and_may_be_repeated"]),
    row("max_fsm_violations", Banned, Drops("state_machine"), ["throng-gateway-engine/src/engine/mod.rs", "a_client_that_violates_its_state_machine_too_often_is_banned_for_a_while"]),
    row("max_malformed", Banned, Drops("malformed"), ["throng-gateway-engine/src/engine/mod.rs", "nonsense_is_counted_and_a_client_that_goes_on_with_it_is_sent_away"]),
    row("violation_window_ms", Forgotten, Nothing, ["throng-gateway-engine/src/engine/connection.rs", "mistakes_that_are_made_slowly_are_forgotten"]),
    row("max_strikes", Banned, Refusals("banned"), ["throng-gateway/src/serve/gate.rs", "an_address_that_misbehaves_is_shut_out_and_later_forgiven"]),
    row("block_ms", Forgotten, Drops("blocked"), ["throng-gateway-engine/src/engine/blocked.rs", "names_are_refused_until_their_time_is_over"]),
    row("max_blocked", Forgotten, Metric("gateway_bans_forgotten_total"), ["throng-gateway-engine/src/engine/blocked.rs", "of_too_many_the_oldest_are_forgotten"]),
    row("max_token_bytes", Refused, Drops("token_bytes"), ["throng-gateway-engine/src/engine/session.rs", "tokens_are_bounded_and_the_refusal_is_answered"]),
    row("max_unauthenticated_bytes", Later, Refusals("stranger"), ["throng-gateway/src/serve/intake.rs", "a_stranger_may_claim_little_and_say_little_before_anybody_lets_it_in"]),
    row("max_pending_auth", NotNow, Refusals("auth_unavailable"), ["throng-gateway/src/auth/desk.rs", "a_slow_provider_holds_nobody_up_and_too_many_questions_are_not_held_against_those_who_ask"]),
    row("max_pending_auth_per_address", NotNow, Refusals("auth_unavailable"), ["throng-gateway/src/auth/desk.rs", "sixteen_addresses_that_ask_all_the_time_leave_room_for_everybody_else"]),
    row("max_auth_calls", Later, Metric("gateway_auth_pending"), ["throng-gateway/src/auth/desk.rs", "a_slow_provider_holds_nobody_up_and_too_many_questions_are_not_held_against_those_who_ask"]),
    row("max_auth_wait_ms", NotNow, Refusals("auth_unavailable"), ["throng-gateway/src/auth/desk.rs", "a_login_that_waited_too_long_gets_an_answer_and_one_whose_peer_left_is_dropped"]),
    row("auth_timeout_ms", NotNow, Refusals("auth_unavailable"), ["throng-gateway/src/auth/http.rs", "a_service_that_does_not_answer_in_time_is_not_waited_for"]),
    row("max_connections", Closed, Refusals("no_room"), ["throng-gateway-engine/src/engine/mod.rs", "clients_cannot_take_the_places_of_servers"]),
    row("reserved_server_connections", Closed, Drops("connections"), ["throng-gateway-engine/src/engine/mod.rs", "clients_cannot_take_the_places_of_servers"]),
    row("max_unreachable_ms", Closed, Metric("connection_closed"), ["throng-gateway/src/serve/tcp.rs", "a_peer_that_vanished_is_noticed_within_the_limit_and_not_within_hours"]),
    row("max_connections_per_address", Closed, Refusals("connections_per_address"), ["throng-gateway/src/serve/gate.rs", "one_address_has_its_share_of_connections"]),
    row("max_new_connections_per_address_per_s", Closed, Refusals("arrives_too_fast"), ["throng-gateway/src/serve/gate.rs", "connections_that_come_too_fast_have_to_wait"]),
    row("max_new_connections_per_s", Later, Refusals("busy"), ["throng-gateway/src/serve/life.rs", "newcomers_of_all_addresses_together_are_let_in_at_a_rate"]),
    row("max_handshakes_per_s", Later, Refusals("busy"), ["throng-gateway/src/serve/door.rs", "encrypted_connections_begin_at_a_limited_rate_and_those_that_would_wait_too_long_are_refused"]),
    row("queue_soft_bytes", Merged, Metric("gateway_paused_total"), ["throng-gateway-engine/src/engine/connection.rs", "w01_a_client_that_stops_reading_delays_nobody_and_logins_go_on"]),
    row("queue_hard_bytes", Closed, Refusals("too_slow"), ["throng-gateway/src/serve/outbox.rs", "more_than_the_limit_ends_the_connection_at_once"]),
    row("server_queue_soft_bytes", Merged, Metric("gateway_paused_total"), ["throng-gateway-engine/src/engine/connection.rs", "notices_that_wait_are_bounded_and_what_is_left_out_is_counted"]),
    row("server_queue_hard_bytes", Closed, Refusals("too_slow"), ["throng-gateway/src/serve/outbox.rs", "a_server_over_its_queue_bound_is_lost_and_recovered"]),
    row("server_queue_client_bytes", Refused, Drops("owner_queue"), ["throng-gateway-engine/src/engine/connection.rs", "clients_that_flood_a_server_lose_their_messages_and_not_the_server"]),
    row("max_hold_ms", Moved, Nothing, ["throng-gateway-engine/src/engine/hold.rs", "no_message_waits_longer_than_the_limit_whatever_happens_meanwhile"]),
    row("max_slow_ms", Closed, Metric("gateway_too_slow_total"), ["throng-gateway-engine/src/engine/connection.rs", "a_server_that_hangs_comes_back_as_who_it_was"]),
    row("max_backlog_ms", Closed, Metric("gateway_too_slow_total"), ["throng-gateway-engine/src/engine/connection.rs", "a_client_that_reads_a_little_again_and_again_is_disconnected_before_removals_are_forgotten"]),
    row("max_backlog_bytes", Closed, Drops("backlog_bytes"), ["throng-gateway-engine/src/engine/fanout.rs", "what_is_kept_for_all_backlogs_together_is_bounded"]),
    row("max_decompressed_bytes", Closed, Refusals("unpacked_too_long"), ["throng-gateway/src/serve/intake.rs", "w10_a_claimed_length_is_refused_before_anything_is_allocated"]),
    row("max_inbound_events", Later, Metric("gateway_memory_bytes"), ["throng-gateway/src/serve/event.rs", "what_waits_for_all_engines_together_is_bounded_and_who_has_no_room_waits"]),
    row("max_recording_bytes", Cut, Metric("gateway_recordings_limited_total"), ["throng-gateway/src/serve/record.rs", "a_recording_reads_as_it_was_written_and_is_bounded"]),
    row("max_recordings", Cut, Metric("gateway_recordings_limited_total"), ["throng-gateway/src/serve/record.rs", "a_recording_reads_as_it_was_written_and_is_bounded"]),
    row("max_snapshot_bytes", GivenUp, Metric("gateway_snapshots_failed_total"), ["throng-gateway/src/serve/snapshots.rs", "a_snapshot_that_grows_beyond_its_limit_is_given_up_and_the_last_one_stays"]),
    row("client_resume_ms", Forgotten, Metric("gateway_awaited"), ["throng-gateway-engine/src/engine/recovery.rs", "a_client_whose_network_broke_goes_on_where_it_was"]),
    row("max_recoverable", Forgotten, Drops("recoverable"), ["throng-gateway-engine/src/engine/recovery.rs", "names_that_own_nothing_do_not_push_a_world_server_out_of_its_place"]),
    row("max_list_bytes", Cut, Drops("list_bytes"), ["throng-gateway-engine/src/engine/lifecycle.rs", "a_list_ends_at_its_limit_and_what_is_left_out_is_counted"]),
    row("lame_duck_ms", Closed, Nothing, ["throng-gateway/src/serve/signals.rs", "a_gateway_that_is_told_to_end_is_not_ready_first_and_lets_people_in_until_its_doors_close"]),
    row("drain_ms", Closed, Refusals("flush_late"), ["throng-gateway/src/serve/gateway.rs", "a_shut_down_does_not_wait_for_ever_for_who_does_not_read"]),
];

/// A limit with its row.
fn described() -> impl Iterator<Item = (&'static LimitInfo, &'static Protection)> {
    let row_of = |limit: &LimitInfo| PROTECTIONS.iter().find(|row| row.limit == limit.name);
    Limits::ALL.iter().filter_map(move |limit| Some((limit, row_of(limit)?)))
}

/// The part of `-help` about limits.
pub fn help() -> String {
    let line = |(limit, row): (&LimitInfo, &Protection)| {
        let LimitInfo { name, default, min, max, text, .. } = limit;
        let (answer, counted) = (row.answer, row.counted);
        format!("  {name} = {default} ({min} to {max})\n     {text}\n     Beyond: {answer}. Counted: {counted}.\n")
    };
    described().map(line).collect()
}

/// The table of docs/gateway.md.
pub fn table() -> String {
    let line = |(limit, row): (&LimitInfo, &Protection)| {
        let (name, default, answer) = (limit.name, limit.default, row.answer);
        let counted = match row.counted {
            Counted::Nothing => String::new(),
            counted => format!("`{counted}`"),
        };
        let (file, test) = (row.enforced_in, row.test);
        let short = file.rsplit_once("src/").map_or(file, |(_, short)| short);
        format!("| `{name}` | {default} | {answer} | {counted} | [{short}](../crates/{file}) | `{test}` |\n")
    };
    let head = "| limit | default | beyond it | counted as | enforced in | test |\n|---|---|---|---|---|---|\n";
    std::iter::once(head.to_owned()).chain(described().map(line)).collect()
}
