//! The page of a gateway under load.

use serde_json::Value;
use throng_report::{Cell, Figures, Kind, Page, Section, Table, figure, grouped, optional};

use crate::published::finding;
use crate::summary::GatewaySummary;

/// The page of a run.
pub fn page(run: &GatewaySummary) -> Page {
    let json: Value = serde_json::to_value(run).unwrap_or_default();
    let figures = &Figures::new(Kind::Gateway, &json);
    let checked = "Clients and world servers were quick enough to be witnesses.";
    let mut page = run.head.page(run.scene.name(), checked);
    let (clients, length_s) = (grouped(run.clients.into()), figure(run.head.seconds));
    page.subtitle = format!("{clients} clients{} for {length_s} s", run.transport.said_with(run.edges));
    if !run.profile.is_empty() && run.profile != "constant" {
        page.subtitle += &format!(", {}", run.profile);
    }
    page.lead = run.gateway.name.clone();
    let (gateway, client) = (&run.gateway, run.client.as_ref());
    page.tiles = vec![
        figures.tile(
            "gateway.cpu_cores",
            format!("{} s per million updates", optional(gateway.cpu_s_per_million_updates)),
        ),
        figures.tile("gateway.rss_bytes_per_connection", String::new()),
        figures.tile("gateway.channel_tick_max_ms", "updates are due every 33 ms".to_owned()),
    ];
    if let Some(client) = client {
        page.tiles.extend([
            figures.tile("client.update_hz_median", format!("slowest client {}", figure(client.update_hz_min))),
            figures.tile("client.delivered_ratio", format!("{} connections lost", client.lost)),
            figures.tile("client.latency_p99_ms", format!("median {} ms", optional(client.latency_p50_ms))),
        ]);
    }
    page.sections = vec![seconds(figures), counts(run, figures)];
    page.sections.extend(references(run));
    page.sections.push(Section::new("Environment").with(run.head.machine()));
    page
}

fn seconds(figures: &Figures<'_>) -> Section {
    let chart = |curves: &[(&str, &str)]| figures.chart("series.*.time_s", curves);
    Section::new("By second")
        .with(chart(&[("series.*.channel_tick_ms", "quantise")]).limit(1e3 / 30.0, "a frame"))
        .with(chart(&[("series.*.latency_p50_ms", "send"), ("series.*.latency_p99_ms", "encode")]))
        .with(chart(&[("series.*.updates_per_s", "send"), ("series.*.ideal_updates_per_s", "encode")]))
        .with(chart(&[
            ("series.*.gateway_cpu_cores", "send"),
            ("series.*.clients_cpu_cores", "encode"),
            ("series.*.world_cpu_cores", "seal"),
        ]))
        .with(chart(&[("series.*.messages_out_per_s", "send"), ("series.*.messages_in_per_s", "encode")]))
        .with(chart(&[("series.*.bytes_out_per_s", "send"), ("series.*.bytes_in_per_s", "encode")]))
        .with(chart(&[("series.*.gateway_rss_bytes", "seal")]))
        .with(chart(&[("series.*.connections", "plan")]))
        .with(chart(&[("series.*.channels", "interest")]))
        .with(chart(&[("series.*.world_frame_hz", "simulate")]))
        .with(chart(&[("series.*.handovers_per_s", "settle")]))
}

/// The tables of what a run has.
fn counts(run: &GatewaySummary, figures: &Figures<'_>) -> Section {
    let tables: [(&str, bool, &[&str]); 7] = [
        ("Gateway", true, &["gateway.", "traffic."]),
        ("Clients", run.client.is_some(), &["client."]),
        ("World servers", true, &["world."]),
        ("Calls", run.calls.is_some(), &["calls."]),
        ("Outage", run.outage.is_some(), &["outage."]),
        ("Idle", run.idle.is_some(), &["idle."]),
        ("The load itself", true, &["driver.", "others_cpu_cores"]),
    ];
    let there = tables.into_iter().filter(|(_, is_there, _)| *is_there);
    let cost = run.gateway.measuring_ms_per_s.map(|ms| ms * 1e3).zip(run.gateway.measuring_share);
    let measuring = throng_report::measuring(cost, "second, until the gateway had told its figures,", "the time");
    let section =
        there.fold(Section::new("Figures"), |all, (title, _, paths)| all.with(figures.facts(title, paths).brief()));
    section.with(measuring)
}

fn references(run: &GatewaySummary) -> Option<Section> {
    let head = " | #clients | #updates/s | #delivered | #p50 ms | #p99 ms | #messages/s | #cores";
    let mut table = Table::new("", head).wide().brief();
    for of in &run.references {
        let numbers = [
            grouped(of.clients.into()),
            optional(of.update_hz_median),
            format!("{} %", figure(of.delivered_ratio * 100.0)),
            figure(of.latency_p50_ms),
            figure(of.latency_p99_ms),
            figure(of.messages_out_per_s),
            figure(of.cpu_cores),
        ];
        table.push(std::iter::once(Cell::from("channeld")).chain(numbers.map(Cell::number)));
    }
    let origin = run.references.first().map_or("", |of| &of.origin);
    table.note = format!("{origin}. Published (8 vCPU): {}.", finding(run.scene));
    let note = "Figures from elsewhere, for orientation: a comparison needs both gateways in turns on one machine.";
    (!run.references.is_empty()).then(|| Section::new("Elsewhere").note(note).with(table))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Scene, Transport};

    #[test]
    fn the_terminal_has_one_screen_of_it_that_says_what_matters() {
        for scene in [Scene::SingleRelay, Scene::SingleUnreal, Scene::Spatial, Scene::EntityLod] {
            let text = page(&GatewaySummary::example(scene)).text();
            assert!(text.lines().count() <= 40, "{} lines:\n{text}", text.lines().count());
            assert!(text.lines().all(|line| line.chars().count() <= 120), "{text}");
            for word in ["450 clients", "calls lost 3", "latency, p99", "41.5 ms", "12.5 s", "channeld"] {
                assert!(text.contains(word), "no {word} in:\n{text}");
            }
            assert!(!text.contains("NaN"), "{text}");
        }
    }

    #[test]
    fn the_page_says_how_the_clients_reach_the_gateway() {
        let example = GatewaySummary::example(Scene::Spatial);
        assert_eq!(page(&example).subtitle, "450 clients for 20 s");
        let run = GatewaySummary { transport: Transport::Throng, edges: 2, ..example };
        assert_eq!(page(&run).subtitle, "450 clients over throng at 2 edges for 20 s");
    }
}
