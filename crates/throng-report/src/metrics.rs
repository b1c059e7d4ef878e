//! The table of metrics: path, name, and which direction is better. The page of a kind of runs has the unit and the meaning of each
//! path, and the table takes them from there.

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::metric::{Better, Kind, Metric};

use Better::{Less, More, Neither};

/// A part of a path that stands for any name.
pub(crate) const ANY_NAME: &str = "NAME";

/// Which direction is better, path, name.
type Row = (Better, &'static str, &'static str);

/// The few figures that comparisons and the index of runs look at.
const KEYS: [(Kind, &str); 17] = [
    (Kind::Crowd, "server.frame_ms.p50"),
    (Kind::Crowd, "server.frame_ms.p99"),
    (Kind::Crowd, "server.rss_bytes_per_connection"),
    (Kind::Crowd, "neighbours.near.age_ms.p99"),
    (Kind::Crowd, "client.kbit_per_s.mean"),
    (Kind::Match, "frame_ms.p50"),
    (Kind::Match, "frame_ms.p99"),
    (Kind::Match, "lateness_us.p99"),
    (Kind::Match, "rewind.us_per_shot"),
    (Kind::Ai, "frame_ms.p99"),
    (Kind::Ai, "matches_per_core"),
    (Kind::Ai, "memory_bytes_per_match"),
    (Kind::Gateway, "gateway.cpu_s_per_million_updates"),
    (Kind::Gateway, "gateway.rss_bytes_per_connection"),
    (Kind::Gateway, "client.latency_p99_ms"),
    (Kind::Capacity, "kept"),
    (Kind::Capacity, "memory_bytes_per_unit"),
];

/// Figures in the head of every run.
const HEAD: &[Row] = &[(Neither, "seconds", "measured"), (Less, "others_cpu_cores", "other programs")];

const CROWD: &[Row] = &[
    (Less, "server.frame_ms.mean", "frame, mean"),
    (Less, "server.frame_ms.p50", "frame, median"),
    (Less, "server.frame_ms.p90", "frame, p90"),
    (Less, "server.frame_ms.p99", "frame, p99"),
    (Less, "server.frame_ms.p999", "frame, p99.9"),
    (Less, "server.frame_ms.max", "frame, longest"),
    (Less, "server.after_plan_ms.p99", "planned start to end, p99"),
    (Neither, "server.tick_ms", "tick"),
    (Neither, "server.ticks", "ticks"),
    (Less, "server.missed_ticks", "missed ticks"),
    (Less, "server.late_ticks", "late ticks"),
    (More, "server.held_hz", "rate held"),
    (More, "server.world_speed", "speed of the world"),
    (Neither, "server.connections", "connections"),
    (Less, "server.us_per_connection.simulate", "simulate, per connection"),
    (Less, "server.us_per_connection.interest", "interest, per connection"),
    (Less, "server.us_per_connection.quantise", "quantise, per connection"),
    (Less, "server.us_per_connection.plan", "plan, per connection"),
    (Less, "server.us_per_connection.encode", "encode, per connection"),
    (Less, "server.us_per_connection.write", "write, per connection"),
    (Less, "server.us_per_connection.seal", "seal, per connection"),
    (Less, "server.us_per_connection.send", "send, per connection"),
    (Less, "server.us_per_connection.receive", "receive, per connection"),
    (Less, "server.us_per_connection.open", "open, per connection"),
    (Less, "server.us_per_connection.settle", "settle, per connection"),
    (Less, "server.us_per_connection.other", "other, per connection"),
    (Less, "server.us_per_connection.total", "per connection"),
    (Less, "server.send_on_loopback.local_us", "send, the sender's work"),
    (Less, "server.send_on_loopback.receiver_us", "send, the receiver's work"),
    (Less, "server.cpu_cores", "server"),
    (Less, "server.rss_bytes", "memory"),
    (Less, "server.rss_bytes_per_connection", "memory per connection"),
    (Less, "server.events_dropped", "events dropped"),
    (Less, "server.measuring_us_per_tick", "measuring"),
    (Less, "server.measuring_share", "measuring by frame"),
    (Less, "server.steady_state_allocations_per_tick", "heap allocations per tick"),
    (Less, "floor.ms_per_tick", "floor"),
    (Less, "floor.ratio", "outgoing work by the floor"),
    (Neither, "floor.packets_per_tick", "packets per tick"),
    (Less, "client.kbit_per_s.mean", "data to a client"),
    (Less, "client.kbit_per_s.p99", "data to a client, p99"),
    (Less, "client.kbit_per_s_with_headers_p99", "data to a client with headers, p99"),
    (Neither, "client.budget_kbit_per_s", "budget of a client"),
    (Less, "client.object_update_bytes.mean", "bytes per object update"),
    (More, "client.object_updates_per_s", "object updates per client"),
    (More, "client.known_objects.p1", "objects known, p1"),
    (More, "client.known_objects.p50", "objects known, median"),
    (More, "client.known_within_40_m", "neighbours within 40 m known"),
    (Less, "neighbours.near.age_ms.p50", "age within 10 m, median"),
    (Less, "neighbours.near.age_ms.p99", "age within 10 m, p99"),
    (Less, "neighbours.near.position_error_m.p50", "position error within 10 m, median"),
    (Less, "neighbours.near.position_error_m.p99", "position error within 10 m, p99"),
    (Less, "neighbours.middle.age_ms.p50", "age from 10 to 50 m, median"),
    (Less, "neighbours.middle.age_ms.p99", "age from 10 to 50 m, p99"),
    (Less, "neighbours.far.age_ms.p50", "age beyond 50 m, median"),
    (Less, "neighbours.far.age_ms.p99", "age beyond 50 m, p99"),
    (Neither, "bots.connected", "bots connected"),
    (Less, "bots.disconnects", "connections ended"),
    (Less, "bots.bad_inputs", "inputs not readable"),
    (Neither, "bots.decoded", "bots decoding"),
    (Less, "bots.state_mismatches", "state mismatches"),
    (Neither, "bots.objects_compared", "objects compared at the end"),
    (Less, "bots.not_compared", "bots not compared"),
    (Neither, "bots.compared_in_play", "objects compared in play"),
    (Less, "bots.mismatches_in_play", "state mismatches in play"),
    (Less, "bots.stalled", "bots stalled"),
    (Less, "bots.cpu_cores", "bots"),
    (Neither, "bots.cores_available", "cores for bots"),
    (More, "bots.inputs_sent_ratio", "inputs sent"),
    (Less, "bots.input_delay_p99_ms", "inputs late, p99"),
    (Neither, "network.sent_packets", "datagrams sent"),
    (Neither, "network.received_packets", "datagrams received"),
    (Less, "network.loss_ratio", "packet loss"),
    (Less, "network.resent_segments", "segments resent"),
    (Neither, "network.superseded_segments", "outdated before a resend"),
    (Less, "network.rtt_ms.p50", "round trip, median"),
    (Less, "network.rtt_ms.p99", "round trip, p99"),
    (Less, "network.send_errors", "send errors"),
    (Neither, "replication.objects", "objects"),
    (Neither, "replication.objects_touched_per_tick", "objects changed per tick"),
    (Neither, "replication.channels", "channels"),
    (Neither, "replication.subscriptions_per_connection", "subscriptions per connection"),
    (Less, "replication.frames_encoded_per_tick", "frames encoded per tick"),
    (More, "replication.subscriptions_per_frame", "subscriptions per frame"),
    (More, "replication.frames_shared_ratio", "frames reused"),
    (Less, "replication.cohorts_per_channel", "cohorts per channel"),
    (Less, "replication.longest_wait_ticks", "longest update delay"),
    (Less, "replication.budget_overruns", "budget overruns"),
    (Neither, "series.seconds.players_wanted", "players wanted"),
    (Neither, "series.seconds.connections", "connections"),
    (Less, "series.seconds.kbit_per_s", "to a client"),
    (Less, "series.seconds.near_age_p99_ms", "age within 10 m, p99"),
    (Less, "series.seconds.loss_ratio", "packet loss"),
    (Less, "series.seconds.resent_segments_per_s", "segments resent"),
    (Less, "series.seconds.cohorts_per_channel", "cohorts per channel"),
    (Less, "series.seconds.frames_encoded_per_tick", "frames encoded per tick"),
    (More, "series.seconds.subscriptions_per_frame", "subscriptions per frame"),
    (Less, "series.seconds.server_cpu_cores", "server"),
    (Less, "series.seconds.bots_cpu_cores", "bots"),
];

const MATCH: &[Row] = &[
    (Less, "frame_ms.mean", "frame, mean"),
    (Less, "frame_ms.p50", "frame, median"),
    (Less, "frame_ms.p99", "frame, p99"),
    (Less, "frame_ms.max", "frame, longest"),
    (Less, "not_running_ms", "not running, mean"),
    (Less, "missed_ticks", "missed ticks"),
    (Less, "lateness_us.p50", "lateness, median"),
    (Less, "lateness_us.p99", "lateness, p99"),
    (Less, "wake_lateness_us.p99", "woken late, p99"),
    (Less, "cpu_cores", "server"),
    (Less, "rss_bytes", "memory"),
    (Less, "memory_bytes_per_match", "memory per match"),
    (Less, "measuring_us_per_frame", "measuring"),
    (Less, "measuring_share", "measuring by frame"),
    (Less, "subsystems.NAME.mean_ms", "subsystem, mean"),
    (Less, "subsystems.NAME.p99_ms", "subsystem, p99"),
    (Less, "subsystems.NAME.breaches", "frames over the subsystem's budget"),
    (More, "matches_per_core", "matches per core"),
    (Less, "rewind.us_per_shot", "time per shot"),
    (Less, "rewind.history_bytes_per_player", "pose history of a player"),
    (More, "rewind.verdicts_equal_share", "verdicts equal with a pose for each tick"),
    (Neither, "rewind.compared_shots", "shots compared"),
    (Neither, "rewind.shots", "shots"),
    (Neither, "rewind.hits", "hits"),
    (Less, "rewind.clamped", "claims clamped"),
    (Less, "fog.hidden_but_visible", "enemies hidden who could be seen"),
    (Less, "fog.sent_needlessly_share", "enemies sent who could not be seen"),
    (Neither, "fog.pairs_checked", "pairs checked"),
    (Less, "fog.cpu_share", "fog of war"),
    (More, "sight.rays_per_s", "rays through the map"),
    (Neither, "ai.decisions", "decisions of bots"),
    (Less, "ai.late_share", "decisions late"),
    (Neither, "animation.poses", "poses evaluated"),
    (More, "animation.saved_by_cadence", "poses spared by cadence"),
    (More, "animation.saved_by_phase", "poses spared by phase"),
    (Neither, "commands.taken", "commands taken"),
    (Less, "commands.refused", "commands refused"),
    (Less, "commands.refused_by_game", "commands refused by the game"),
    (Neither, "bots.joined", "bots joined"),
    (Less, "bots.skipped", "commands missed"),
    (Less, "bots.late", "commands late"),
    (Less, "bots.late_p99_us", "bots late, p99"),
    (Less, "bots.cpu_cores", "bots"),
    (Neither, "replay.ticks", "ticks played again"),
    (Less, "samples.cpu_share", "processor"),
    (Neither, "samples.frames", "frames"),
    (Less, "samples.frames_over", "frames over the budget"),
    (Neither, "samples.matches", "matches"),
    (Neither, "samples.matches_wanted", "matches wanted"),
];

const AI: &[Row] = &[
    (Less, "frame_ms.p50", "tick of a match, median"),
    (Less, "frame_ms.p99", "tick of a match, p99"),
    (Less, "lateness_us.p99", "lateness, p99"),
    (More, "matches_per_core", "matches per core"),
    (Less, "memory_bytes_per_match", "memory per match"),
    (Less, "cpu_share", "processor"),
    (Less, "ai.late_share", "decisions late"),
    (More, "sight.rays_per_s", "rays"),
];

const CAPACITY: &[Row] = &[
    (More, "kept", "capacity"),
    (Neither, "beyond", "too many"),
    (More, "per_core", "per core"),
    (More, "per_physical_core", "per physical core"),
    (Neither, "cores", "cores under load"),
    (Neither, "threads_per_core", "threads per core"),
    (Less, "memory_bytes_per_unit", "memory per unit"),
    (Less, "wall_s", "time of everything"),
];

const GATEWAY: &[Row] = &[
    (Less, "gateway.cpu_cores", "gateway"),
    (Less, "gateway.rss_bytes", "memory"),
    (Less, "gateway.rss_bytes_per_connection", "memory per connection"),
    (Less, "gateway.cpu_s_per_million_updates", "processor time per million updates"),
    (Less, "gateway.channel_tick_max_ms", "longest channel tick"),
    (Neither, "gateway.channels", "channels"),
    (Neither, "gateway.connections", "connections"),
    (Less, "gateway.measuring_ms_per_s", "answers about its figures"),
    (Less, "gateway.measuring_share", "the same by the time"),
    (Neither, "world.servers", "world servers"),
    (More, "world.frame_hz", "frames of a world server"),
    (Less, "world.stalled_frames", "frames stalled"),
    (Neither, "world.handovers_per_s", "handovers"),
    (Neither, "world.resubscriptions_per_s", "subscription changes"),
    (Neither, "client.joined", "clients joined"),
    (Less, "client.lost", "connections lost"),
    (More, "client.update_hz_median", "updates, median client"),
    (More, "client.update_hz_min", "updates, slowest client"),
    (More, "client.delivered_ratio", "updates delivered"),
    (Less, "client.latency_p50_ms", "latency, median"),
    (Less, "client.latency_p99_ms", "latency, p99"),
    (Less, "client.latency_max_ms", "latency, longest"),
    (Neither, "traffic.messages_in_per_s", "messages in"),
    (Neither, "traffic.messages_out_per_s", "messages out"),
    (Neither, "traffic.bytes_in_per_s", "bytes in"),
    (Neither, "traffic.bytes_out_per_s", "bytes out"),
    (Neither, "calls.made", "calls made"),
    (Less, "calls.lost", "calls lost"),
    (Less, "calls.doubled", "calls doubled"),
    (Less, "calls.out_of_order", "calls out of order"),
    (Less, "calls.latency_p50_ms", "call latency, median"),
    (Less, "calls.latency_p99_ms", "call latency, p99"),
    (Less, "outage.restart_ms", "back after a kill"),
    (Less, "outage.silence_ms_median", "silence, median client"),
    (Less, "outage.silence_ms_max", "silence, worst client"),
    (Less, "outage.unanswered_ms_median", "no answer, median client"),
    (Less, "outage.unanswered_ms_max", "no answer, worst client"),
    (Less, "outage.state_off_m_max", "recovered place off"),
    (Less, "outage.owned_twice", "players with two servers"),
    (Less, "outage.owned_by_none", "players without a server"),
    (Less, "outage.unexcused_calls_lost", "calls lost beside the outage"),
    (Neither, "outage.players_before", "players before"),
    (Neither, "outage.players_after", "players after"),
    (Less, "outage.connections_lost", "connections not made again"),
    (Less, "idle.cpu_cores_before", "idle, before the clients"),
    (Less, "idle.cpu_cores", "idle, with all clients"),
    (Less, "idle.rss_bytes_per_connection", "memory per idle client"),
    (Less, "driver.clients_cpu_cores", "clients"),
    (Less, "driver.world_cpu_cores", "world servers"),
    (Less, "driver.late_p99_ms", "clients late, p99"),
    (More, "driver.sent_ratio", "calls and updates sent"),
    (Less, "driver.garbled", "malformed frames"),
    (More, "driver.world_in_time_ratio", "frames of world servers in time"),
    (Less, "series.*.channel_tick_ms", "channel tick"),
    (Less, "series.*.latency_p50_ms", "latency, median"),
    (Less, "series.*.latency_p99_ms", "latency, p99"),
    (More, "series.*.updates_per_s", "updates"),
    (Neither, "series.*.ideal_updates_per_s", "updates due"),
    (Less, "series.*.gateway_cpu_cores", "gateway"),
    (Less, "series.*.clients_cpu_cores", "clients"),
    (Less, "series.*.world_cpu_cores", "world servers"),
    (Neither, "series.*.messages_out_per_s", "messages out"),
    (Neither, "series.*.messages_in_per_s", "messages in"),
    (Neither, "series.*.bytes_out_per_s", "bytes out"),
    (Neither, "series.*.bytes_in_per_s", "bytes in"),
    (Less, "series.*.gateway_rss_bytes", "memory of the gateway"),
    (Neither, "series.*.connections", "connections"),
    (Neither, "series.*.channels", "channels"),
    (More, "series.*.world_frame_hz", "frames of a world server"),
    (Neither, "series.*.handovers_per_s", "handovers"),
];

const MODELS: &[Row] = &[
    (More, "advantages.NAME.outgoing", "outgoing work, times less"),
    (More, "advantages.NAME.outside_kernel", "outgoing work outside the kernel, times less"),
    (More, "advantages.NAME.bytes", "data to a client, times less"),
];

/// The page that has the units and the meanings of a kind's figures.
fn page(kind: Kind) -> &'static str {
    const MATCHES: &str = include_str!("../../../docs/match-summary.md");
    match kind {
        Kind::Crowd => include_str!("../../../docs/run-summary.md"),
        Kind::Match => MATCHES,
        Kind::Ai => MATCHES.split_once("## AI server").map_or("", |(_, agents)| agents),
        Kind::Capacity => include_str!("../../../docs/capacity.md"),
        Kind::Gateway => include_str!("../../../docs/gateway-summary.md"),
        Kind::Models => include_str!("../../../docs/models.md"),
        Kind::Comparison | Kind::Index => "",
    }
}

/// Unit and meaning by path, from tables of three columns. The first row of a path counts.
fn meanings(page: &'static str) -> HashMap<&'static str, (&'static str, &'static str)> {
    let mut meanings = HashMap::new();
    for line in page.lines() {
        let cells = line.strip_prefix("| `").and_then(|line| line.strip_suffix(" |")?.split_once("` | "));
        if let Some((path, cells)) = cells.and_then(|(path, rest)| Some((path, rest.split_once(" | ")?))) {
            meanings.entry(path).or_insert(cells);
        }
    }
    meanings
}

/// All metrics of all kinds of runs. Those of the head are documented once.
pub(crate) fn all() -> impl Iterator<Item = Metric> {
    static ALL: LazyLock<Vec<Metric>> = LazyLock::new(|| {
        let kinds = [
            (Kind::Crowd, CROWD),
            (Kind::Match, MATCH),
            (Kind::Ai, AI),
            (Kind::Capacity, CAPACITY),
            (Kind::Gateway, GATEWAY),
            (Kind::Models, MODELS),
        ];
        let heads = meanings(page(Kind::Crowd));
        let of_kind = |(kind, own): (Kind, &'static [Row])| {
            let own_meanings = meanings(page(kind));
            let row = |from: &HashMap<_, _>, &(better, path, name): &Row| {
                let (unit, explanation) = from.get(path).copied().unwrap_or_default();
                Metric { path, name, unit, better, explanation, kind, is_key: KEYS.contains(&(kind, path)) }
            };
            let own = own.iter().map(|own| row(&own_meanings, own));
            own.chain(HEAD.iter().map(|head| row(&heads, head))).collect::<Vec<_>>()
        };
        kinds.into_iter().flat_map(of_kind).collect()
    });
    ALL.iter().copied()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_metric_is_there_once_and_explained_by_its_page_and_each_key_figure_exists() {
        let mut known = BTreeSet::new();
        for metric in all() {
            assert!(known.insert((metric.kind.name(), metric.path)), "{} is there twice", metric.path);
            let Metric { path, kind, explanation, .. } = metric;
            assert!(
                !explanation.is_empty() && !explanation.ends_with('.'),
                "the page of {kind:?} does not explain {path}"
            );
            assert!(!metric.name.is_empty());
        }
        assert_eq!(all().filter(|metric| metric.is_key).count(), KEYS.len());
    }

    #[test]
    fn values_have_the_unit_of_the_size_that_is_shown() {
        let show = |path: &str, value: f64| crate::metric(Kind::Crowd, path).show(Some(value));
        assert_eq!(show("network.loss_ratio", 0.0123), "1.23 %");
        assert_eq!(show("server.rss_bytes_per_connection", 38_400.0), "37.5 KiB");
        assert_eq!(show("server.held_hz", 30.0), "30 Hz");
        assert_eq!(show("network.sent_packets", 1_234.0), "1,234");
        assert_eq!(crate::metric(Kind::Crowd, "floor.ratio").show(None), "–");
    }
}
