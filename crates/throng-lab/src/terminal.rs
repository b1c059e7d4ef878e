//! The output in the terminal after a run: one screen, at most 100 columns wide.

use std::path::Path;

use comfy_table::{ContentArrangement, Table, presets};
use throng_crowd::scenario::Model;

pub use throng_report::{bytes, figure, grouped, optional};

use throng_summary::{Band, EdgeFigures, FaultFigures, LoadStep, RunSummary, ServerFigures, Split, Target};

/// Parts of a split in one line.
const SPLIT_LINE: usize = 4;

/// The run in one screen of text, with a line break at its end.
pub fn table(run: &RunSummary, report: Option<&Path>) -> String {
    let mut text = headline(run);
    text += &rows(&[
        ("frame", frame(run)),
        ("", resources(run)),
        ("µs per connection", split(&run.server.us_per_connection)),
        ("", send(run)),
        ("", floor(run)),
        ("to a client", client(run)),
        (if run.edges.is_empty() { "bytes per second" } else { "bytes/s to an edge" }, per_second(run)),
        ("object update", per_update(run)),
        ("replication", replication(run)),
        ("network", network(run)),
        ("bots", bots(run)),
    ]);
    if !run.servers.is_empty() {
        text += &servers(&run.servers);
        if let Some(after_s) = run.servers_even_after_s {
            text +=
                &format!("   even for good after {} s: no server with more than 1.5 times the mean\n", figure(after_s));
        }
    }
    if !run.edges.is_empty() {
        text += &edges(&run.edges);
    }
    if !run.faults.is_empty() {
        text += &faults(&run.faults);
    }
    text += &neighbours(run);
    if run.steps.len() > 1 {
        text += &steps(&run.steps);
    }
    if !run.targets.is_empty() {
        text += &targets(&run.targets);
    }
    text += &verdict(run);
    if let Some(report) = report {
        text += &format!("report: {}\n", report.display());
    }
    text
}

fn servers(servers: &[ServerFigures]) -> String {
    let mut text = "\n servers       players  frame p99  cores  missed ticks  characters came    went\n".to_owned();
    for (number, server) in servers.iter().enumerate() {
        let number = number + 1;
        text += &format!(
            "   {number:<12}{:>7}  {:>9}  {:>5}  {:>12}  {:>15}  {:>6}\n",
            figure(server.players),
            format!("{} ms", optional(server.frame_p99_ms)),
            figure(server.cpu_cores),
            grouped(server.missed_ticks),
            grouped(server.arrived),
            grouped(server.released),
        );
    }
    text
}

fn edges(edges: &[EdgeFigures]) -> String {
    let mut text =
        "\n edges         clients  frame p99   per client and tick  cores  from the server  dropped\n".to_owned();
    for (number, edge) in edges.iter().enumerate() {
        let number = number + 1;
        text += &format!(
            "   {number:<12}{:>7}  {:>9}   {:>19}  {:>5}  {:>15}  {:>7}\n",
            figure(edge.connections),
            format!("{} ms", optional(edge.frame_p99_ms)),
            format!("{} µs", optional(edge.us_per_connection)),
            figure(edge.cpu_cores),
            format!("{} kbit/s", figure(edge.kbit_per_s_from_server)),
            grouped(edge.dropped),
        );
    }
    text
}

fn faults(faults: &[FaultFigures]) -> String {
    let mut text =
        "\n faults                     bots   longest without service   all served again after   never\n".to_owned();
    for fault in faults {
        text += &format!(
            "   {:<24}{:>5}   {:>23}   {:>22}   {:>5}\n",
            fault.fault,
            grouped(u64::from(fault.bots)),
            format!("{} ms", optional(fault.longest_gap_ms)),
            format!("{} ms", optional(fault.served_again_ms)),
            grouped(u64::from(fault.unserved)),
        );
    }
    text
}

fn headline(run: &RunSummary) -> String {
    let [width, depth] = run.environment.settings.area_m;
    let rule = "─".repeat(96);
    let model = if run.model == Model::Throng.name() { String::new() } else { format!(" with {}", run.model) };
    format!(
        "\n{}{model}: {} players at {} Hz for {} s in {width} m x {depth} m, revision {}\n{rule}\n",
        run.scenario,
        grouped(u64::from(run.players)),
        run.tick_hz,
        figure(run.seconds),
        run.revision,
    )
}

fn frame(run: &RunSummary) -> String {
    let ms = &run.server.frame_ms;
    let [p50, p90, p99, max] = [ms.p50, ms.p90, ms.p99, ms.max].map(figure);
    let p999 = optional(ms.p999);
    let tick = figure(run.server.tick_ms);
    format!("p50 {p50}  p90 {p90}  p99 {p99}  p99.9 {p999}  max {max} ms of a {tick} ms tick")
}

fn resources(run: &RunSummary) -> String {
    let server = &run.server;
    let per_connection = bytes(server.rss_bytes_per_connection);
    format!(
        "{} Hz reached{}: {} ticks, {} of them late, {} missed ticks\n{} cores, {} memory ({per_connection} per connection)",
        figure(server.held_hz),
        slow_motion(server.world_speed),
        grouped(server.ticks),
        grouped(server.late_ticks),
        grouped(server.missed_ticks),
        figure(server.cpu_cores),
        bytes(server.rss_bytes as f64),
    )
}

/// The world does not make up for ticks that were never played.
fn slow_motion(world_speed: f64) -> String {
    match world_speed < 0.99 {
        true => format!(" (the world played at {:.0} % of its speed)", world_speed * 100.0),
        false => String::new(),
    }
}

/// A few parts to a line.
fn split(split: &Split) -> String {
    let parts: Vec<_> =
        split.parts().map(|(subsystem, us)| format!("{} {}", subsystem.built_in_name(), figure(us))).collect();
    let lines: Vec<_> = parts.chunks(SPLIT_LINE).map(|parts| parts.join("  ")).collect();
    format!("{}  = {}", lines.join("\n"), figure(split.total))
}

fn send(run: &RunSummary) -> String {
    let halves = &run.server.send_on_loopback;
    match &halves.unknown_because {
        Some(why) => format!("the receiver's half of send on loopback is unknown: {why}"),
        None => format!(
            "send on loopback: local {}, receiver's half {} (± {})",
            optional(halves.local_us),
            optional(halves.receiver_us),
            optional(halves.error_us),
        ),
    }
}

fn floor(run: &RunSummary) -> String {
    format!(
        "outgoing work {}, {} times the minimum of {} ms per tick (encrypt, send)",
        figure(run.server.us_per_connection.outgoing()),
        optional(run.floor.ratio),
        optional(run.floor.ms_per_tick),
    )
}

fn client(run: &RunSummary) -> String {
    let client = &run.client;
    format!(
        "mean {}  p99 {} kbit/s, budget {}; known objects p1 {}  p50 {}",
        figure(client.kbit_per_s.mean),
        figure(client.kbit_per_s.p99),
        figure(client.budget_kbit_per_s),
        optional(client.known_objects.p1),
        optional(client.known_objects.p50),
    )
}

fn per_second(run: &RunSummary) -> String {
    let per_s = &run.client.bytes_per_s;
    let [object, header, resend, control, total] =
        [per_s.object, per_s.header, per_s.resend, per_s.control, per_s.total].map(figure);
    format!("object {object}  header {header}  resend {resend}  control {control}  = {total}")
}

fn per_update(run: &RunSummary) -> String {
    let mean = optional(run.client.object_update_bytes.mean);
    format!(
        "{mean} bytes without header and encryption; {} updates per second",
        figure(run.client.object_updates_per_s)
    )
}

fn replication(run: &RunSummary) -> String {
    let replication = &run.replication;
    format!(
        "{} frames encoded per tick, for {} subscriptions each; {} cohorts per channel",
        figure(replication.frames_encoded_per_tick),
        figure(replication.subscriptions_per_frame),
        figure(replication.cohorts_per_channel),
    )
}

fn network(run: &RunSummary) -> String {
    let network = &run.network;
    let cipher = if run.cipher.is_empty() { String::new() } else { format!(", {}", run.cipher) };
    format!(
        "{} ({} % lost, {} segments resent), round trip p50 {} ms{cipher}",
        network.preset,
        figure(network.loss_ratio * 100.0),
        grouped(network.resent_segments),
        optional(network.rtt_ms.p50),
    )
}

fn bots(run: &RunSummary) -> String {
    let bots = &run.bots;
    format!(
        "{} connected, {} decoding with {} state mismatches, {} of {} cores",
        grouped(u64::from(bots.connected)),
        grouped(u64::from(bots.decoded)),
        grouped(bots.state_mismatches),
        figure(bots.cpu_cores),
        figure(bots.cores_available),
    )
}

fn neighbours(run: &RunSummary) -> String {
    let mut table = plain_table();
    table.add_row(["neighbours", "age p50", "age p99", "error p50", "error p99", "samples"]);
    let bands =
        [("0 to 10 m", run.neighbours.near), ("10 to 50 m", run.neighbours.middle), ("beyond", run.neighbours.far)];
    for (name, Band { age_ms, position_error_m, samples }) in bands {
        let ms = |value: Option<f64>| format!("{} ms", optional(value));
        let metres = |value: Option<f64>| format!("{} m", optional(value));
        let [age, late, error, worst] =
            [ms(age_ms.p50), ms(age_ms.p99), metres(position_error_m.p50), metres(position_error_m.p99)];
        table.add_row([format!("  {name}"), age, late, error, worst, grouped(samples)]);
    }
    format!("\n{}\n", table.trim_fmt())
}

fn steps(steps: &[LoadStep]) -> String {
    let mut table = plain_table();
    table.add_row(["players", "connected", "frame p50", "p99", "age near p99", "cores", "missed ticks", "steady from"]);
    for step in steps {
        let ms = |value: Option<f64>| format!("{} ms", optional(value));
        table.add_row([
            format!("  {}", figure(step.players)),
            figure(step.connections),
            ms(step.frame_ms.p50),
            ms(step.frame_ms.p99),
            ms(step.near_age_p99_ms),
            figure(step.server_cpu_cores),
            grouped(step.missed_ticks),
            step.steady_from_s.map_or("never".to_owned(), |seconds| format!("{} s", figure(seconds))),
        ]);
    }
    format!("\n{}\n", table.trim_fmt())
}

fn targets(targets: &[Target]) -> String {
    let mut table = plain_table();
    table.add_row(["target", "limit", "measured", ""]);
    for target in targets {
        let limit = format!("{} {}", target.bound.sign(), target.show(Some(target.limit)));
        let verdict = match target.met {
            Some(true) => "pass",
            Some(false) => "fail",
            None => "not measured",
        };
        table.add_row([format!("  {}", target.name), limit, target.show(target.measured), verdict.to_owned()]);
    }
    format!("\n{}\n", table.trim_fmt())
}

fn verdict(run: &RunSummary) -> String {
    if run.valid {
        return match run.missed_targets() {
            0 => "\nvalid run\n".to_owned(),
            missed => format!("\nvalid run; it misses {missed} of {} targets\n", run.targets.len()),
        };
    }
    let mut reasons = run.invalid_reasons.clone();
    let more = reasons.len().saturating_sub(3);
    reasons.truncate(3);
    let mut text = "\nNOT VALID: do not quote these figures\n".to_owned();
    reasons.iter().for_each(|reason| text += &format!("  {reason}\n"));
    if more > 0 {
        text += &format!("  and {more} more reasons, see the report\n");
    }
    text
}

fn rows(rows: &[(&str, String)]) -> String {
    let mut table = plain_table();
    for (label, text) in rows {
        table.add_row([*label, text.as_str()]);
    }
    format!("{}\n", table.trim_fmt())
}

fn plain_table() -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_fits_one_screen() {
        let mut run = RunSummary::example();
        run.revision = "0123456789ab-dirty".to_owned();
        // A run of several servers or with faults has a line more for each.
        run.servers.clear();
        run.faults.clear();
        run.invalid_reasons = vec!["some reason of ordinary length that spoils the figures".to_owned(); 9];
        let text = table(&run, Some(Path::new("runs/20260131-120000-crowd/report.html")));
        assert!(text.lines().count() <= 40, "{} lines:\n{text}", text.lines().count());
        let widest = text.lines().map(|line| line.trim_end().chars().count()).max().unwrap();
        assert!(widest <= 100, "{widest} columns:\n{text}");
    }

    #[test]
    fn parts_that_an_older_program_did_not_measure_are_left_out() {
        let run = RunSummary::from_json(&RunSummary::example_of_format_2()).unwrap();
        let text = table(&run, None);
        assert!(text.contains("encode") && !text.contains("plan ") && !text.contains("settle "), "{text}");
        let page = crate::report::render(&run).unwrap();
        assert!(page.contains("var(--i-encode)") && !page.contains("background:var(--i-open)"));
    }

    #[test]
    fn it_says_what_matters() {
        let text = table(&RunSummary::example(), Some(Path::new("runs/x/report.html")));
        for word in
            ["crowd: 1,000 players at 30 Hz", "missed ticks", "µs per connection", "NOT VALID", "runs/x/report.html"]
        {
            assert!(text.contains(word), "no {word} in:\n{text}");
        }
        assert!(text.contains(" ms, aes-256-gcm"), "{text}");
        let older = RunSummary { cipher: String::new(), ..RunSummary::example() };
        assert!(!table(&older, None).contains("aes-256-gcm"));
        assert!(!text.contains("NaN"));
        assert!(!text.contains("steady from"), "a constant load has no steps");
        let mut stairs = RunSummary::example();
        stairs.steps = vec![LoadStep { players: 250.0, ..stairs.steps[0].clone() }, LoadStep::default()];
        let text = table(&stairs, None);
        assert!(text.contains("  250") && text.contains("71 ms") && text.contains("never"), "{text}");
        let run = RunSummary { valid: true, invalid_reasons: vec![], ..RunSummary::example() };
        assert!(table(&run, None).ends_with("valid run\n"));
        let mut slow = RunSummary { valid: true, invalid_reasons: vec![], ..RunSummary::example() };
        slow.targets[1].met = Some(false);
        assert!(table(&slow, None).ends_with("valid run; it misses 1 of 6 targets\n"));
    }
}
