//! The table of metrics. `docs/run-summary.md`, `docs/match-summary.md` and `docs/capacity.md` have the same rows: a test
//! compares them.

use crate::metric::{Better, Kind, Metric};

use Better::{Less, More, Neither};

/// A part of a path that stands for any name.
pub(crate) const ANY_NAME: &str = "NAME";

/// The rows of one kind: path, name, unit, which direction is better, explanation.
macro_rules! rows {
    ($kind:ident: $($better:ident $path:literal, $name:literal, $unit:literal, $explanation:literal;)*) => {
        &[$(Metric {
            path: $path, name: $name, unit: $unit, better: $better, explanation: $explanation, kind: Kind::$kind, is_key: false,
        }),*]
    };
}

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
const HEAD: &[Metric] = rows![Crowd:
    Neither "seconds", "measured", "s",
        "length of the measured part";
    Less "others_cpu_cores", "other programs", "cores",
        "processor use of other programs during the measured part; `null` if unknown; above 0.25 the run is not valid";
];

const CROWD: &[Metric] = rows![Crowd:
    Less "server.frame_ms.mean", "frame, mean", "ms",
        "working time of a tick, without the wait for the next one: mean";
    Less "server.frame_ms.p50", "frame, median", "ms",
        "working time of a tick, without the wait for the next one: half of the ticks take less";
    Less "server.frame_ms.p90", "frame, p90", "ms",
        "working time of a tick: one of ten takes longer";
    Less "server.frame_ms.p99", "frame, p99", "ms",
        "working time of a tick: one of a hundred takes longer";
    Less "server.frame_ms.p999", "frame, p99.9", "ms",
        "working time of a tick: one of a thousand takes longer; `null` with fewer than 1,000 frames";
    Less "server.frame_ms.max", "frame, longest", "ms",
        "working time of the longest tick";
    Less "server.after_plan_ms.p99", "planned start to end, p99", "ms",
        "time from the planned start of a tick to its end, 99th percentile; a missed tick counts with the end of the tick that replaced it";
    Neither "server.tick_ms", "tick", "ms",
        "length of a tick: a frame that takes longer makes the next one late";
    Neither "server.ticks", "ticks", "ticks",
        "ticks that were played in the measured part";
    Less "server.missed_ticks", "missed ticks", "ticks",
        "ticks that were due but never played, because earlier ticks took too long";
    Less "server.late_ticks", "late ticks", "ticks",
        "ticks that were played and ended after the next one was due";
    More "server.held_hz", "rate held", "Hz",
        "ticks played per second";
    More "server.world_speed", "speed of the world", "share",
        "how fast the world played: 100 % is real time, less is slow motion";
    Neither "server.connections", "connections", "",
        "connections, mean of the measured part";
    Less "server.us_per_connection.simulate", "simulate, per connection", "µs",
        "mean per connection and tick: game code: moving the characters";
    Less "server.us_per_connection.interest", "interest, per connection", "µs",
        "mean per connection and tick: deciding who is subscribed to what";
    Less "server.us_per_connection.quantise", "quantise, per connection", "µs",
        "mean per connection and tick: quantising and comparing touched objects";
    Less "server.us_per_connection.plan", "plan, per connection", "µs",
        "mean per connection and tick: deciding which updates are due";
    Less "server.us_per_connection.encode", "encode, per connection", "µs",
        "mean per connection and tick: encoding frames of channels";
    Less "server.us_per_connection.write", "write, per connection", "µs",
        "mean per connection and tick: putting segments into connections' packets";
    Less "server.us_per_connection.seal", "seal, per connection", "µs",
        "mean per connection and tick: encrypting packets";
    Less "server.us_per_connection.send", "send, per connection", "µs",
        "mean per connection and tick: handing packets to the kernel";
    Less "server.us_per_connection.receive", "receive, per connection", "µs",
        "mean per connection and tick: taking packets from the kernel";
    Less "server.us_per_connection.open", "open, per connection", "µs",
        "mean per connection and tick: finding the connections of packets, and decrypting them";
    Less "server.us_per_connection.settle", "settle, per connection", "µs",
        "mean per connection and tick: acknowledgements, delivery records, inputs and messages of the packets";
    Less "server.us_per_connection.other", "other, per connection", "µs",
        "mean per connection and tick: the rest of the frame";
    Less "server.us_per_connection.total", "per connection", "µs",
        "working time of a tick divided by connections: the cost of one more player";
    Less "server.send_on_loopback.local_us", "send, the sender's work", "µs",
        "mean per connection and tick: the part of `send` that is the sender's work; `null` if it cannot be told apart";
    Less "server.send_on_loopback.receiver_us", "send, the receiver's work", "µs",
        "mean per connection and tick: the part of `send` that a real network leaves to the receiver's machine; `null` if it cannot be told apart";
    Less "server.cpu_cores", "server", "cores",
        "processor time divided by wall time; includes the 0.3 ms of spinning before each tick, and writing the state for the bots";
    Less "server.rss_bytes", "memory", "B",
        "resident memory at the end of the measured part";
    Less "server.rss_bytes_per_connection", "memory per connection", "B",
        "growth of resident memory since before the first connection, divided by connections";
    Less "server.events_dropped", "events dropped", "",
        "events and inputs that the server dropped because a limit was reached; above 0 the run is not valid";
    Less "server.measuring_us_per_tick", "measuring", "µs",
        "time per tick that the lab spends outside of the frame on counting, on samples for files, and on the server's state for the bots";
    Less "server.measuring_share", "measuring by frame", "share",
        "time of measuring outside of the frame, divided by the mean frame; the aim is 0.5 %. The stopwatch's own reads of the clock are in the frame itself";
    Less "server.steady_state_allocations_per_tick", "heap allocations per tick", "1/tick",
        "heap allocations in a tick of the measured part; `null` if the program does not count them";
    Less "floor.ms_per_tick", "floor", "ms",
        "encrypting and sending the packets of a tick once more without other work: the minimum that any server must pay";
    Less "floor.ratio", "outgoing work by the floor", "",
        "the whole sending work (interest, quantise, plan, encode, write, seal, send), divided by the floor in the same ticks; at least 1";
    Neither "floor.packets_per_tick", "packets per tick", "1/tick",
        "datagrams to clients per tick";
    Less "client.kbit_per_s.mean", "data to a client", "kbit/s",
        "UDP payload that a client receives, mean of the clients; 1 kbit is 1,000 bits";
    Less "client.kbit_per_s.p99", "data to a client, p99", "kbit/s",
        "UDP payload of the client at the 99th percentile";
    Less "client.kbit_per_s_with_headers_p99", "data to a client with headers, p99", "kbit/s",
        "the client at the 99th percentile, with the headers of IP and UDP, which the limit includes";
    Neither "client.budget_kbit_per_s", "budget of a client", "kbit/s",
        "the limit of the data to a client, with the headers of IP and UDP";
    Less "client.object_update_bytes.mean", "bytes per object update", "B",
        "all bytes except packet header and encryption, divided by object updates; `null` without updates";
    More "client.object_updates_per_s", "object updates per client", "1/s",
        "object updates that a client receives per second";
    More "client.known_objects.p1", "objects known, p1", "objects",
        "objects that a decoding client holds, 1st percentile over clients and samples; `null` if none decoded";
    More "client.known_objects.p50", "objects known, median", "objects",
        "objects that a decoding client holds, median over clients and samples; `null` if none decoded";
    More "client.known_within_40_m", "neighbours within 40 m known", "share",
        "smallest share, over decoding clients and samples, of the objects within 40 m that the client held; `null` if none decoded";
    Less "neighbours.near.age_ms.p50", "age within 10 m, median", "ms",
        "how old the newest applied state of characters within 10 m is at a bot, median";
    Less "neighbours.near.age_ms.p99", "age within 10 m, p99", "ms",
        "how old the newest applied state of characters within 10 m is at a bot, 99th percentile";
    Less "neighbours.near.position_error_m.p50", "position error within 10 m, median", "m",
        "distance from shown to true position of characters within 10 m, median";
    Less "neighbours.near.position_error_m.p99", "position error within 10 m, p99", "m",
        "distance from shown to true position of characters within 10 m, 99th percentile";
    Less "neighbours.middle.age_ms.p50", "age from 10 to 50 m, median", "ms",
        "how old the newest applied state of characters from 10 to 50 m is at a bot, median";
    Less "neighbours.middle.age_ms.p99", "age from 10 to 50 m, p99", "ms",
        "how old the newest applied state of characters from 10 to 50 m is at a bot, 99th percentile";
    Less "neighbours.far.age_ms.p50", "age beyond 50 m, median", "ms",
        "how old the newest applied state of characters beyond 50 m is at a bot, median";
    Less "neighbours.far.age_ms.p99", "age beyond 50 m, p99", "ms",
        "how old the newest applied state of characters beyond 50 m is at a bot, 99th percentile";
    Neither "bots.connected", "bots connected", "bots",
        "bots that connected: of those that were there at the same time, the most";
    Less "bots.disconnects", "connections ended", "",
        "connections that ended before the run did";
    Less "bots.bad_inputs", "inputs not readable", "",
        "inputs that the server could not read; above 0 the run is not valid";
    Neither "bots.decoded", "bots decoding", "bots",
        "bots that decoded everything";
    Less "bots.state_mismatches", "state mismatches", "objects",
        "objects whose decoded state differs from the server's state, or that a bot lacks within 40 m";
    Neither "bots.objects_compared", "objects compared at the end", "objects",
        "objects that were compared with the server's state at the end; with 0 the run is invalid";
    Less "bots.not_compared", "bots not compared", "bots",
        "bots that decode and were compared with nothing at the end; above 0 the run is not valid";
    Neither "bots.compared_in_play", "objects compared in play", "objects",
        "objects that were compared with the server's state while everything moved; 0 on a path that loses packets";
    Less "bots.mismatches_in_play", "state mismatches in play", "objects",
        "objects whose decoded state differed from the server's state while everything moved; above 0 the run is not valid";
    Less "bots.stalled", "bots stalled", "bots",
        "bots that were more than 250 ms late with an input; above 0 the run is not valid";
    Less "bots.cpu_cores", "bots", "cores",
        "processor time of all bots by wall time";
    Neither "bots.cores_available", "cores for bots", "cores",
        "cores that the bots may use";
    More "bots.inputs_sent_ratio", "inputs sent", "share",
        "inputs sent, divided by inputs due";
    Less "bots.input_delay_p99_ms", "inputs late, p99", "ms",
        "how late an input was sent, 99th percentile; `null` if not measured";
    Neither "network.sent_packets", "datagrams sent", "",
        "datagrams to clients";
    Neither "network.received_packets", "datagrams received", "",
        "datagrams from clients";
    Less "network.loss_ratio", "packet loss", "share",
        "datagrams that counted as lost, divided by datagrams sent";
    Less "network.resent_segments", "segments resent", "",
        "segments sent again, because their packet was lost";
    Neither "network.superseded_segments", "outdated before a resend", "",
        "lost segments that needed no resend because newer state was on its way";
    Less "network.rtt_ms.p50", "round trip, median", "ms",
        "round-trip time as the server estimates it (includes the wait for ticks on both sides), median";
    Less "network.rtt_ms.p99", "round trip, p99", "ms",
        "round-trip time as the server estimates it, 99th percentile";
    Less "network.send_errors", "send errors", "",
        "datagrams that the server's kernel did not accept in the measured part; above 0 on a network without simulated loss, the run is not valid";
    Neither "replication.objects", "objects", "objects",
        "objects that exist";
    Neither "replication.objects_touched_per_tick", "objects changed per tick", "1/tick",
        "objects that the game touched";
    Neither "replication.channels", "channels", "channels",
        "channels with at least one subscriber; a channel is the log of changes of a cell";
    Neither "replication.subscriptions_per_connection", "subscriptions per connection", "",
        "channels that a client follows, mean";
    Less "replication.frames_encoded_per_tick", "frames encoded per tick", "1/tick",
        "changes of a channel that were encoded; one encoding serves all subscriptions at the same point of the log";
    More "replication.subscriptions_per_frame", "subscriptions per frame", "",
        "frames sent to subscriptions, divided by frames encoded: how many clients shared one encoding";
    More "replication.frames_shared_ratio", "frames reused", "share",
        "share of the used frames that another subscription had requested before";
    Less "replication.cohorts_per_channel", "cohorts per channel", "",
        "groups of clients at the same point of a channel's log, by channel and frame";
    Less "replication.longest_wait_ticks", "longest update delay", "ticks",
        "longest delay of a due update, in the whole run";
    Less "replication.budget_overruns", "budget overruns", "",
        "number of seconds, summed over connections, in which a connection was sent more than its budget, in the whole run";
    Neither "series.seconds.players_wanted", "players wanted", "", "players that were to play";
    Neither "series.seconds.connections", "connections", "", "connections";
    Less "series.seconds.kbit_per_s", "to a client", "kbit/s",
        "UDP payload sent to a client, mean of the clients";
    Less "series.seconds.near_age_p99_ms", "age within 10 m, p99", "ms",
        "how old the newest applied state of characters within 10 m is at a bot, 99th percentile of each second; `null` without samples";
    Less "series.seconds.loss_ratio", "packet loss", "share",
        "datagrams that counted as lost, divided by datagrams sent";
    Less "series.seconds.resent_segments_per_s", "segments resent", "1/s",
        "segments sent again, because their packet was lost";
    Less "series.seconds.cohorts_per_channel", "cohorts per channel", "",
        "groups of clients at the same point of a channel's log, by channel and frame";
    Less "series.seconds.frames_encoded_per_tick", "frames encoded per tick", "1/tick",
        "changes of a channel that were encoded; one encoding serves all subscriptions at the same point of the log";
    More "series.seconds.subscriptions_per_frame", "subscriptions per frame", "",
        "frames sent to subscriptions, divided by frames encoded: how many clients shared one encoding";
    Less "series.seconds.server_cpu_cores", "server", "cores",
        "processor time of the server by wall time";
    Less "series.seconds.bots_cpu_cores", "bots", "cores",
        "processor time of the bots by wall time";
];

const MATCH: &[Metric] = rows![Match:
    Less "frame_ms.mean", "frame, mean", "ms",
        "wall time of a frame, from receiving to sending: mean";
    Less "frame_ms.p50", "frame, median", "ms",
        "wall time of a frame, from receiving to sending: half of the frames take less";
    Less "frame_ms.p99", "frame, p99", "ms",
        "wall time of a frame: one of a hundred takes longer";
    Less "frame_ms.max", "frame, longest", "ms",
        "wall time of the longest frame";
    Less "not_running_ms", "not running, mean", "ms",
        "part of a frame in which its thread did not run, mean";
    Less "missed_ticks", "missed ticks", "ticks",
        "deadlines that were skipped, because frames were too late";
    Less "lateness_us.p50", "lateness, median", "µs",
        "how long after its deadline a frame began, median";
    Less "lateness_us.p99", "lateness, p99", "µs",
        "how long after its deadline a frame began, 99th percentile";
    Less "wake_lateness_us.p99", "woken late, p99", "µs",
        "how late the system woke up a worker that slept until a deadline, 99th percentile";
    Less "cpu_cores", "server", "cores",
        "processor use of the processes with matches; bots in a thread of the same process count too";
    Less "rss_bytes", "memory", "B",
        "resident memory of the processes with matches at the end; pages that processes share count in each";
    Less "memory_bytes_per_match", "memory per match", "B",
        "growth of that memory since before the matches were made, for each of them: with the telemetry of the run, with pages of the map that are read for the first time, and with bots in a thread of the same process. `null` in `throng density` without `--processes`: its steps share a process, whose heap keeps memory of the steps before";
    Less "measuring_us_per_frame", "measuring", "µs",
        "time per frame that the run spends on measuring itself: scopes, the collector with its files, and what the report wants to know of each match. The time of a scope is its price, measured at the start, times their number";
    Less "measuring_share", "measuring by frame", "share",
        "the same divided by the mean frame; the aim is 0.5 %";
    Less "subsystems.NAME.mean_ms", "subsystem, mean", "ms",
        "exclusive time of a subsystem in a frame, mean; the subsystems add up to the frame";
    Less "subsystems.NAME.p99_ms", "subsystem, p99", "ms",
        "the same, 99th percentile";
    Less "subsystems.NAME.breaches", "frames over the subsystem's budget", "frames",
        "frames over the budget";
    More "matches_per_core", "matches per core", "",
        "`matches` / `workers` if the run is valid, `frame_ms.p99` is at most 2.34 ms and at most 0.1 % of the ticks were missed; else `null`. It is shown by this run, and not extrapolated. `throng density`: of the answer, `density_answer.kept`";
    Less "rewind.us_per_shot", "time per shot", "µs",
        "replay: the time that a shot adds to the part of a step that judges shots, the rays through the map included";
    Less "rewind.history_bytes_per_player", "pose history of a player", "B",
        "memory of one player's pose history";
    More "rewind.verdicts_equal_share", "verdicts equal with a pose for each tick", "share",
        "replay: share of the verdicts that are the same with a pose for each tick";
    Neither "rewind.compared_shots", "shots compared", "shots",
        "replay: shots compared for it";
    Neither "rewind.shots", "shots", "shots",
        "shots judged in all matches";
    Neither "rewind.hits", "hits", "shots",
        "of the shots judged, hits";
    Less "rewind.clamped", "claims clamped", "shots",
        "of the shots judged, shots whose view time was clamped";
    Less "fog.hidden_but_visible", "enemies hidden who could be seen", "pairs",
        "replay: pairs in which the fog hid an enemy whom one of 360 rays reached, from the viewer's eye at the time when its screen shows the enemy, with the latency of the run; must be 0";
    Less "fog.sent_needlessly_share", "enemies sent who could not be seen", "share",
        "replay: share of the pairs with an enemy sent in which no such ray reached it";
    Neither "fog.pairs_checked", "pairs checked", "pairs",
        "replay: pairs of a viewer and an enemy, both alive, that were looked at: two in each live tick";
    Less "fog.cpu_share", "fog of war", "cores",
        "share of a core that the fog of one match takes, mean over all phases";
    More "sight.rays_per_s", "rays through the map", "1/s",
        "closest hits of single rays of up to 50 m through the map, on one core, after the run";
    Neither "ai.decisions", "decisions of bots", "",
        "decisions of the bots' brains";
    Less "ai.late_share", "decisions late", "share",
        "share of them that were made more than a tick after their time";
    Neither "animation.poses", "poses evaluated", "poses",
        "poses evaluated";
    More "animation.saved_by_cadence", "poses spared by cadence", "poses",
        "poses spared, because poses are evaluated every fourth tick";
    More "animation.saved_by_phase", "poses spared by phase", "poses",
        "poses spared in phases that need none";
    Neither "commands.taken", "commands taken", "",
        "commands that reached a game";
    Less "commands.refused", "commands refused", "",
        "commands that the runtime refused: repeated, old, too many, too fast, or without a seat";
    Less "commands.refused_by_game", "commands refused by the game", "",
        "commands and shots that the games refused: malformed, or with impossible view times";
    Neither "bots.joined", "bots joined", "bots",
        "bots that got a character";
    Less "bots.skipped", "commands missed", "",
        "commands that were due and that bots did not send: a match takes four of a player in one tick";
    Less "bots.late", "commands late", "",
        "commands that bots made more than a tick after the instants for which they were planned, and those that they did not send";
    Less "bots.late_p99_us", "bots late, p99", "µs",
        "how long after its planned instant a command was made, 99th percentile; one that was not sent is as late as its bot was when it came back";
    Less "bots.cpu_cores", "bots", "cores",
        "processor use of the bots";
    Neither "replay.ticks", "ticks played again", "ticks",
        "ticks played again";
    Less "samples.cpu_share", "processor", "share",
        "processor time by wall time and worker in about each second; empty with `--processes`";
    Neither "samples.frames", "frames", "frames",
        "frames in each of these seconds";
    Less "samples.frames_over", "frames over the budget", "frames",
        "of these, the frames over the budget of a whole frame";
    Neither "samples.matches", "matches", "matches",
        "matches that played at the end of each of these seconds";
    Neither "samples.matches_wanted", "matches wanted", "matches",
        "matches that were to play then";
];

const AI: &[Metric] = rows![Ai:
    Less "frame_ms.p50", "tick of a match, median", "ms",
        "wall time of one tick of one match: half of them take less";
    Less "frame_ms.p99", "tick of a match, p99", "ms",
        "wall time of one tick of one match: one of a hundred takes longer";
    Less "lateness_us.p99", "lateness, p99", "µs",
        "how long after its planned moment a tick began, 99th percentile";
    More "matches_per_core", "matches per core", "",
        "the largest number of matches that kept both bounds, divided by the cores";
    Less "memory_bytes_per_match", "memory per match", "B",
        "resident memory that each match added";
    Less "cpu_share", "processor", "share",
        "processor time of all threads by all of their time";
    Less "ai.late_share", "decisions late", "share",
        "share of the decisions that came after their deadline";
    More "sight.rays_per_s", "rays", "1/s",
        "rays of the agents and of the fog per second";
];

const CAPACITY: &[Metric] = rows![Capacity:
    More "kept", "capacity", "units",
        "the largest load that keeps all limits";
    Neither "beyond", "too many", "units",
        "the smallest load above the answer that was not accepted";
    More "per_core", "per core", "units",
        "the answer by core that was under load";
    More "per_physical_core", "per physical core", "units",
        "the answer by physical core that was under load; `null` where the machine does not tell how many these cores are";
    Neither "cores", "cores under load", "cores",
        "cores that were under load";
    Neither "threads_per_core", "threads per core", "",
        "hardware threads of a physical core: 1 means that a core here is a physical core";
    Less "memory_bytes_per_unit", "memory per unit", "B",
        "memory that each unit added: growth of the server's resident memory since before its matches, players or clients, by their number";
    Less "wall_s", "time of everything", "s",
        "time of everything";
];

const GATEWAY: &[Metric] = rows![Gateway:
    Less "gateway.cpu_cores", "gateway", "cores",
        "processor time of the gateway by wall time; `null` if the process is not known";
    Less "gateway.rss_bytes", "memory", "B",
        "resident memory of the gateway at the end";
    Less "gateway.rss_bytes_per_connection", "memory per connection", "B",
        "growth of the gateway's resident memory since before the clients came, for each of them";
    Less "gateway.cpu_s_per_million_updates", "processor time per million updates", "s",
        "processor time for a million updates that reached clients";
    Less "gateway.channel_tick_max_ms", "longest channel tick", "ms",
        "the longest channel tick that the gateway reported";
    Neither "gateway.channels", "channels", "",
        "channels as the gateway counts them";
    Neither "gateway.connections", "connections", "",
        "connections as the gateway counts them";
    Less "gateway.measuring_ms_per_s", "answers about its figures", "ms",
        "time in a second until the gateway had answered what it counts: the most that being measured can cost it";
    Less "gateway.measuring_share", "the same by the time", "share",
        "the time until those answers as a share of all time";
    Neither "world.servers", "world servers", "",
        "how many world servers there were";
    More "world.frame_hz", "frames of a world server", "1/s",
        "frames per second, the mean of the world servers; 30 are due";
    Less "world.stalled_frames", "frames stalled", "",
        "frames that could not be played because the gateway had not taken the one before";
    Neither "world.handovers_per_s", "handovers", "1/s",
        "entities that went to another cell, per second";
    Neither "world.resubscriptions_per_s", "subscription changes", "1/s",
        "subscriptions that were made, changed or ended, per second";
    Neither "client.joined", "clients joined", "",
        "clients that played";
    Less "client.lost", "connections lost", "",
        "connections of clients that ended early";
    More "client.update_hz_median", "updates, median client", "1/s",
        "updates per second of the median client";
    More "client.update_hz_min", "updates, slowest client", "1/s",
        "updates per second of the slowest client";
    More "client.delivered_ratio", "updates delivered", "share",
        "updates of all clients, by those that there should have been";
    Less "client.latency_p50_ms", "latency, median", "ms",
        "age of what decoding clients see, median; includes the fan-out's window and up to 2 ms until the client looks";
    Less "client.latency_p99_ms", "latency, p99", "ms",
        "age of what decoding clients see, 99th percentile; includes the fan-out's window and up to 2 ms until the client looks";
    Less "client.latency_max_ms", "latency, longest", "ms",
        "age of the oldest that decoding clients saw";
    Neither "traffic.messages_in_per_s", "messages in", "1/s",
        "messages to the gateway";
    Neither "traffic.messages_out_per_s", "messages out", "1/s",
        "messages from the gateway";
    Neither "traffic.bytes_in_per_s", "bytes in", "B",
        "bytes to the gateway per second";
    Neither "traffic.bytes_out_per_s", "bytes out", "B",
        "bytes from the gateway per second";
    Neither "calls.made", "calls made", "",
        "numbered calls that clients made";
    Less "calls.lost", "calls lost", "",
        "calls that arrived at no world server";
    Less "calls.doubled", "calls doubled", "",
        "arrivals of calls that had arrived already";
    Less "calls.out_of_order", "calls out of order", "",
        "arrivals after a later call of the same client";
    Less "calls.latency_p50_ms", "call latency, median", "ms",
        "from the client to its server, median";
    Less "calls.latency_p99_ms", "call latency, p99", "ms",
        "from the client to its server, 99th percentile";
    Less "outage.restart_ms", "back after a kill", "ms",
        "from the kill until the new process was there: the gateway answered, or the world server had got everything back";
    Less "outage.silence_ms_median", "silence, median client", "ms",
        "the longest time without an update of the median client; about 33 if nothing happens";
    Less "outage.silence_ms_max", "silence, worst client", "ms",
        "the longest time without an update of the client that waited longest";
    Neither "outage.players_before", "players before", "",
        "players of the world server before the kill";
    Neither "outage.players_after", "players after", "",
        "players of the world server at the end";
    Less "outage.connections_lost", "connections not made again", "",
        "connections of clients that broke and were not made again";
    Less "idle.cpu_cores_before", "idle, before the clients", "cores",
        "processor time of the gateway by wall time, before the clients came";
    Less "idle.cpu_cores", "idle, with all clients", "cores",
        "processor time of the gateway by wall time, with all idle clients";
    Less "idle.rss_bytes_per_connection", "memory per idle client", "B",
        "growth of resident memory for each idle client";
    Less "driver.clients_cpu_cores", "clients", "cores",
        "processor time of the simulated clients by wall time; they have one thread";
    Less "driver.world_cpu_cores", "world servers", "cores",
        "processor time of the world servers by wall time; they have one thread";
    Less "driver.late_p99_ms", "clients late, p99", "ms",
        "how late the clients looked at their sockets, 99th percentile";
    More "driver.sent_ratio", "calls and updates sent", "share",
        "calls or updates that clients sent, by those that were due";
    Less "driver.garbled", "malformed frames", "",
        "frames that clients could not read";
    Less "series.*.channel_tick_ms", "channel tick", "ms",
        "the longest of the gateway's last channel ticks";
    Less "series.*.latency_p50_ms", "latency, median", "ms",
        "age of what decoding clients saw, median of each second";
    Less "series.*.latency_p99_ms", "latency, p99", "ms",
        "age of what decoding clients saw, 99th percentile of each second";
    More "series.*.updates_per_s", "updates", "1/s",
        "updates that reached clients";
    Neither "series.*.ideal_updates_per_s", "updates due", "1/s",
        "updates that there should have been";
    Less "series.*.gateway_cpu_cores", "gateway", "cores",
        "processor time of the gateway by wall time";
    Less "series.*.clients_cpu_cores", "clients", "cores",
        "processor time of the simulated clients by wall time";
    Less "series.*.world_cpu_cores", "world servers", "cores",
        "processor time of the world servers by wall time";
    Neither "series.*.messages_out_per_s", "messages out", "1/s",
        "messages from the gateway";
    Neither "series.*.messages_in_per_s", "messages in", "1/s",
        "messages to the gateway";
    Neither "series.*.bytes_out_per_s", "bytes out", "B/s",
        "bytes from the gateway";
    Neither "series.*.bytes_in_per_s", "bytes in", "B/s",
        "bytes to the gateway";
    Less "series.*.gateway_rss_bytes", "memory of the gateway", "B",
        "resident memory of the gateway";
    Neither "series.*.connections", "connections", "",
        "connections of clients that stand";
    Neither "series.*.channels", "channels", "",
        "channels as the gateway counts them";
    More "series.*.world_frame_hz", "frames of a world server", "1/s",
        "frames per second of a world server";
    Neither "series.*.handovers_per_s", "handovers", "1/s",
        "entities that went to another cell";
];

const MODELS: &[Metric] = rows![Models:
    More "advantages.NAME.outgoing", "outgoing work, times less", "",
        "how many times less outgoing work than the base the model NAME has, by connection and tick: the smallest of all workloads";
    More "advantages.NAME.outside_kernel", "outgoing work outside the kernel, times less", "",
        "the same without the kernel's part";
    More "advantages.NAME.bytes", "data to a client, times less", "",
        "how many times less data than the base it sends to a client: the smallest of all workloads";
];

/// All metrics of all kinds of runs.
pub(crate) fn all() -> impl Iterator<Item = Metric> {
    let kinds = [
        (Kind::Crowd, CROWD),
        (Kind::Match, MATCH),
        (Kind::Ai, AI),
        (Kind::Capacity, CAPACITY),
        (Kind::Gateway, GATEWAY),
        (Kind::Models, MODELS),
    ];
    let rows = kinds.into_iter().flat_map(|(kind, own)| own.iter().chain(HEAD).map(move |row| Metric { kind, ..*row }));
    rows.map(|metric| Metric { is_key: KEYS.contains(&(metric.kind, metric.path)), ..metric })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn page(kind: Kind) -> &'static str {
        match kind {
            Kind::Crowd => include_str!("../../../docs/run-summary.md"),
            Kind::Match => include_str!("../../../docs/match-summary.md"),
            Kind::Capacity => include_str!("../../../docs/capacity.md"),
            _ => "",
        }
    }

    #[test]
    fn the_documents_have_the_same_rows() {
        let documented = |metric: &Metric| {
            let row = format!("| `{}` | {} | {} |", metric.path, metric.unit, metric.explanation);
            // Those of the head are documented once.
            page(metric.kind).lines().chain(page(Kind::Crowd).lines()).any(|line| line == row)
        };
        let is_documented = |metric: &Metric| [Kind::Crowd, Kind::Match, Kind::Capacity].contains(&metric.kind);
        let gone: Vec<&str> =
            all().filter(|metric| is_documented(metric) && !documented(metric)).map(|metric| metric.path).collect();
        assert!(gone.is_empty(), "other words or units in the documents: {gone:#?}");
    }

    #[test]
    fn each_metric_is_there_once_and_each_key_figure_exists() {
        let mut known = BTreeSet::new();
        for metric in all() {
            assert!(known.insert((metric.kind.name(), metric.path)), "{} is there twice", metric.path);
            assert!(!metric.name.is_empty() && !metric.explanation.is_empty() && !metric.explanation.ends_with('.'));
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
