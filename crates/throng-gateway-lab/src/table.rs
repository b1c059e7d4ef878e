//! The output in the terminal after a run.

use std::path::Path;

use comfy_table::{ContentArrangement, Table, presets};
use throng_report::{bytes, figure, grouped, optional};

use crate::published::finding;
use crate::summary::{GatewaySummary, Reference};

/// The run in one screen of text, with a line break at its end.
pub fn table(run: &GatewaySummary, folder: Option<&Path>) -> String {
    let rule = "─".repeat(96);
    let (name, clients, seconds) = (run.scene.name(), grouped(u64::from(run.clients)), figure(run.head.seconds));
    let mut text = format!("\n{name}: {clients} clients for {seconds} s, revision {}\n{rule}\n", run.head.revision);
    let mut table = plain_table();
    for (label, line) in lines(run) {
        table.add_row([label.to_owned(), line]);
    }
    text += &format!("{}\n", table.trim_fmt());
    if run.idle.is_none() {
        text += &references(run);
    }
    text += &verdict(run);
    if let Some(folder) = folder {
        text += &format!("folder: {}\n", folder.display());
    }
    text
}

fn lines(run: &GatewaySummary) -> Vec<(&'static str, String)> {
    let mut lines = vec![("gateway", run.gateway.name.clone()), ("", gateway(run))];
    if let Some(idle) = &run.idle {
        let per_connection = idle.rss_bytes_per_connection.map_or("–".to_owned(), bytes);
        let (with, before) = (optional(idle.cpu_cores), optional(idle.cpu_cores_before));
        lines.push(("idle clients", format!("{with} cores ({before} without clients), {per_connection} per client")));
    }
    if let Some(client) = &run.client {
        let [median, least] = [client.update_hz_median, client.update_hz_min].map(figure);
        let delivered = figure(client.delivered_ratio * 100.0);
        let states = client.actor_states_ratio.map(|ratio| format!(" ({} % of the states)", figure(ratio * 100.0)));
        let states = states.unwrap_or_default();
        lines.push(("clients", format!("{median} updates/s (min {least}), {delivered} % of the due updates{states}")));
        let [p50, p99, max] = [client.latency_p50_ms, client.latency_p99_ms, client.latency_max_ms].map(optional);
        let lost = client.lost;
        lines.push(("latency", format!("p50 {p50}  p99 {p99}  max {max} ms; {lost} connections lost")));
    }
    let traffic = &run.traffic;
    let [messages_in, messages_out] = [traffic.messages_in_per_s, traffic.messages_out_per_s].map(figure);
    let [bytes_in, bytes_out] = [traffic.bytes_in_per_s, traffic.bytes_out_per_s].map(bytes);
    lines.push(("per second", format!("in {messages_in} messages, {bytes_in}; out {messages_out}, {bytes_out}")));
    let world = &run.world;
    let [frame_hz, handovers] = [world.frame_hz, world.handovers_per_s].map(figure);
    let changes = optional(world.resubscriptions_per_s);
    let stalled = world.stalled_frames.map_or(optional(None), grouped);
    lines.push(("world servers", format!("{} at {frame_hz} frames/s, {stalled} stalled", world.servers)));
    lines.push(("", format!("{handovers} handovers/s, {changes} subscription changes/s")));
    if let Some(calls) = &run.calls {
        let [made, lost, doubled, late] = [calls.made, calls.lost, calls.doubled, calls.out_of_order].map(grouped);
        let handovers = grouped(calls.handovers);
        lines.push(("calls", format!("{made}, lost {lost}, doubled {doubled}, out of order {late}")));
        let [p50, p99] = [calls.latency_p50_ms, calls.latency_p99_ms].map(optional);
        lines.push(("", format!("{handovers} handovers meanwhile; latency to the server p50 {p50}  p99 {p99} ms")));
    }
    if let Some(outage) = &run.outage {
        let [restart, median, max] = [outage.restart_ms, outage.silence_ms_median, outage.silence_ms_max].map(figure);
        let (before, after, joined) = (outage.players_before, outage.players_after, outage.joined);
        let killed = format!("{} killed, back after {restart} ms; ", outage.killed.name());
        lines.push(("outage", format!("{killed}no update for {median} ms (median client), {max} ms (worst client)")));
        let lost = outage.connections_lost;
        let players = format!("players {before} before, {after} after");
        lines.push(("", format!("{players}; {joined} clients subscribed, {lost} connections lost")));
    }
    let driver = &run.driver;
    let [clients, servers] = [driver.clients_cpu_cores, driver.world_cpu_cores].map(figure);
    let [late, others] = [driver.late_p99_ms, run.head.others_cpu_cores].map(optional);
    lines.push((
        "load",
        format!(
            "clients {clients} cores, world servers {servers}; clients late by {late} ms (p99); other programs {others}"
        ),
    ));
    lines
}

fn gateway(run: &GatewaySummary) -> String {
    let gateway = &run.gateway;
    let memory = |value: Option<f64>| value.map_or("–".to_owned(), bytes);
    format!(
        "{} cores, {} s per million updates, {} ({} per client), channel tick {} ms",
        optional(gateway.cpu_cores),
        optional(gateway.cpu_s_per_million_updates),
        memory(gateway.rss_bytes.map(|bytes| bytes as f64)),
        memory(gateway.rss_bytes_per_connection),
        optional(gateway.channel_tick_max_ms),
    )
}

fn references(run: &GatewaySummary) -> String {
    let mut table = plain_table();
    table.add_row(["", "clients", "updates/s", "delivered", "p50 ms", "p99 ms", "messages/s", "cores"]);
    if let Some(client) = &run.client {
        let row = Reference {
            clients: run.clients,
            update_hz_median: Some(client.update_hz_median),
            update_hz_min: Some(client.update_hz_min),
            delivered_ratio: client.delivered_ratio,
            latency_p50_ms: client.latency_p50_ms.unwrap_or(f64::NAN),
            latency_p99_ms: client.latency_p99_ms.unwrap_or(f64::NAN),
            messages_out_per_s: run.traffic.messages_out_per_s,
            cpu_cores: run.gateway.cpu_cores.unwrap_or(f64::NAN),
            origin: String::new(),
        };
        add(&mut table, "  this run", &row);
    }
    run.references.iter().for_each(|row| add(&mut table, "  channeld", row));
    let origin = run.references.first().map(|row| row.origin.as_str()).unwrap_or_default();
    let finding = finding(run.scene);
    format!("\n{}\n  channeld's rows: {origin}\n  published (8 vCPU): {finding}\n", table.trim_fmt())
}

fn add(table: &mut Table, name: &str, row: &Reference) {
    table.add_row([
        name.to_owned(),
        grouped(u64::from(row.clients)),
        optional(row.update_hz_median),
        format!("{:.2}", row.delivered_ratio),
        figure(row.latency_p50_ms),
        figure(row.latency_p99_ms),
        figure(row.messages_out_per_s),
        figure(row.cpu_cores),
    ]);
}

fn verdict(run: &GatewaySummary) -> String {
    if run.head.valid {
        return "\nvalid run\n".to_owned();
    }
    let mut text = "\nNOT VALID: do not quote these figures\n".to_owned();
    run.head.invalid_reasons.iter().for_each(|reason| text += &format!("  {reason}\n"));
    text
}

fn plain_table() -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Scene;

    const SCENES: [Scene; 4] = [Scene::SingleRelay, Scene::SingleUnreal, Scene::Spatial, Scene::EntityLod];

    #[test]
    fn it_fits_one_screen() {
        for scene in SCENES {
            let text = table(&GatewaySummary::example(scene), Some(Path::new("runs/20260131-120000-gateway-spatial")));
            assert!(text.lines().count() <= 40, "{} lines:\n{text}", text.lines().count());
            let widest = text.lines().map(|line| line.trim_end().chars().count()).max().unwrap();
            assert!(widest <= 120, "{widest} columns:\n{text}");
        }
    }

    #[test]
    fn it_says_what_matters() {
        let text = table(&GatewaySummary::example(Scene::SingleUnreal), None);
        for word in ["450 clients", "lost 3", "p99 41.5", "12.5 s per million", "channeld", "61fa8ad", "NOT VALID"] {
            assert!(text.contains(word), "no {word} in:\n{text}");
        }
        assert!(!text.contains("NaN"), "{text}");
    }
}
