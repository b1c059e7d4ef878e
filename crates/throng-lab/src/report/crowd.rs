//! The page of a crowd.

use std::collections::HashMap;

use serde_json::Value;
use throng_crowd::scenario::{Overrides, Scenario};
use throng_report::{
    Bars, Cell, Figures, Frames, Histogram, Kind, Limit, Line, Page, RenderError, Section, Table, Term, Verdict, bytes,
    figure, grouped, optional,
};

use throng_summary::{Band, Bytes, Loss, RunSummary, Spread, WorkerFigures};

/// The page for a summary.
///
/// # Errors
/// If the template does not fit the page: a defect of this program.
pub fn render(run: &RunSummary) -> Result<String, RenderError> {
    page(run).render()
}

/// The page of a run.
pub(super) fn page(run: &RunSummary) -> Page {
    let json: Value = serde_json::to_value(run).unwrap_or_default();
    let figures = &Figures::new(Kind::Crowd, &json);
    let checked = "Every bot connected and kept up, and every decoded object matched the server's state.";
    let mut page = run.head.page(&run.scenario, checked);
    let (players, seconds) = (grouped(run.players.into()), figure(run.head.seconds));
    page.subtitle = format!("model {} · {players} players at {} Hz for {seconds} s", run.model, run.tick_hz);
    page.lead = lead(&run.settings);
    page.limits = run.targets.iter().map(limit).collect();
    if !page.limits.is_empty() {
        let note =
            "The limits are for the named scenario with its own settings, on two cores, for the median of three runs.";
        note.clone_into(&mut page.limits_note);
    }
    if run.server.ticks == 0 {
        // A table of zeros would look like figures.
        page.sections.push(environment(run));
        return page;
    }
    page.tiles = tiles(run, figures);
    page.sections.extend(steps(run, figures));
    page.sections.extend([frame(run, figures), clients(run, figures), sent(run, figures)]);
    page.sections.push(replication(run, figures));
    page.sections.extend(servers(run));
    page.sections.extend(edges(run));
    page.sections.extend(losses(run));
    page.sections.extend(workers(run));
    page.sections.extend(faults(run));
    page.sections.extend(published(run));
    page.sections.push(environment(run));
    page
}

fn lead(played: &Scenario) -> String {
    let changes = changes(played);
    match changes.is_empty() {
        true => format!("{}.", played.description),
        false => format!("{}. This run plays it with other settings: {}.", played.description, changes.join(", ")),
    }
}

fn limit(target: &throng_summary::Target) -> Limit {
    let known = target.path.as_deref().and_then(|path| throng_report::find(Kind::Crowd, path));
    Limit {
        term: known.map_or_else(|| Term::from(&target.name[..]), |metric| metric.term()),
        limit: format!("{} {}", target.bound.sign(), target.show(Some(target.limit))),
        value: target.show(target.measured),
        verdict: Verdict::of(target.met),
    }
}

fn tiles(run: &RunSummary, figures: &Figures<'_>) -> Vec<throng_report::Tile> {
    let (server, client) = (&run.server, &run.client);
    let slow = match server.world_speed < 0.99 {
        true => format!(", the world at {:.0} % of its speed", server.world_speed * 100.0),
        false => String::new(),
    };
    let tiles = [
        (
            "server.frame_ms.p99",
            format!("of a {} ms tick, {} missed{slow}", figure(server.tick_ms), server.missed_ticks),
        ),
        (
            "server.held_hz",
            format!(
                "of {} Hz; {} ticks late; from the planned beginning to the end of the work {} ms (p99)",
                run.tick_hz,
                server.late_ticks,
                figure(server.after_plan_ms.p99)
            ),
        ),
        (
            "server.us_per_connection.total",
            format!(
                "outgoing work {} µs, {} times the minimum ({}, send)",
                figure(server.us_per_connection.outgoing()),
                optional(run.floor.ratio),
                run.encryption()
            ),
        ),
        ("server.cpu_cores", format!("{} per connection", bytes(server.rss_bytes_per_connection))),
        (
            "client.kbit_per_s.mean",
            format!(
                "budget {}, {} B per update",
                figure(client.budget_kbit_per_s),
                optional(client.object_update_bytes.mean)
            ),
        ),
        (
            "neighbours.near.age_ms.p99",
            format!("position error {} m (p99)", optional(run.neighbours.near.position_error_m.p99)),
        ),
    ];
    let of = |(path, note): (&str, String)| {
        let mut tile = figures.tile(path, note);
        let target = run.targets.iter().find(|target| target.path.as_deref() == Some(path));
        tile.verdict = target.map(|target| Verdict::of(target.met));
        tile
    };
    tiles.map(of).into()
}

/// The parts of a load profile; none of a constant load.
fn steps(run: &RunSummary, figures: &Figures<'_>) -> Option<Section> {
    let head = "#from | #to | #players | #connected | #frame p50 | #frame p99 | #age within 10 m, p99 | #cores | #missed ticks | #steady from";
    let mut table = Table::new("", head).wide().brief();
    for step in &run.steps {
        let ms = |value: Option<f64>| format!("{} ms", optional(value));
        let cells = [
            format!("{} s", figure(step.from_s)),
            format!("{} s", figure(step.to_s)),
            figure(step.players),
            figure(step.connections),
            ms(step.frame_ms.p50),
            ms(step.frame_ms.p99),
            ms(step.near_age_p99_ms),
            figure(step.server_cpu_cores),
            step.missed_ticks.to_string(),
            step.steady_from_s.map_or("never".to_owned(), |seconds| format!("{} s", figure(seconds))),
        ];
        table.push(cells.map(Cell::number));
    }
    table.note =
        "The first fifth of a level after a change (10 s at most) is not judged. The age is the median of the 99th \
                  percentiles of the seconds."
            .to_owned();
    let curves = [("series.seconds.connections", "send"), ("series.seconds.players_wanted", "encode")];
    let section = Section::new("Load steps").with(table).with(figures.chart("series.seconds.time_s", &curves));
    (run.steps.len() > 1).then_some(section)
}

fn frame(run: &RunSummary, figures: &Figures<'_>) -> Section {
    let server = &run.server;
    let named = |split: &throng_summary::Split| {
        split.parts().map(|(part, value)| (part.built_in_name().to_owned(), value)).collect::<Vec<_>>()
    };
    let percentiles = Bars {
        title: "Frames at percentiles".to_owned(),
        unit: "ms".to_owned(),
        rows: server.frames_at.iter().map(|at| (at.percentile.clone(), named(&at.ms))).collect(),
        note: "Each bar is the mean of the frames around its percentile.".to_owned(),
    };
    let mut connection = Table::new("Per connection and tick", "part | #µs").brief();
    for (name, value) in named(&server.us_per_connection) {
        connection.push([Cell::part(&name), Cell::number(figure(value))]);
    }
    let (whole, value) = figures.fact("server.us_per_connection.total");
    connection.push([Cell::of(whole), Cell::number(value)]);
    let halves = &server.send_on_loopback;
    connection.note = match &halves.unknown_because {
        Some(why) => format!("The receiver's half of send on loopback is unknown: {why}."),
        None => format!(
            "Send on loopback: {} µs local work, and {} µs (± {}) of the receiver's work. A real network leaves the second to the \
             receiver's machine.",
            optional(halves.local_us),
            optional(halves.receiver_us),
            optional(halves.error_us)
        ),
    };
    let histogram = &run.series.histogram;
    let measuring = throng_report::measuring(
        server.measuring_us_per_tick.zip(server.measuring_share),
        "tick beside the frame",
        "a mean frame",
    );
    Section::new("Server frame")
        .note("Working time of a tick by part, without the wait for the next tick. In long runs each point is the longest frame of its time span.")
        .with(frames(run))
        .with(measuring)
        .with(Histogram {
            from: histogram.from_ms.clone(),
            counts: histogram.frames.clone(),
            budget: Some(Line { value: server.tick_ms, name: "one tick".to_owned() }),
        })
        .with(percentiles)
        .with(connection)
        .with(figures.facts(
            "Ticks",
            &[
                "server.ticks",
                "server.missed_ticks",
                "server.late_ticks",
                "server.frame_ms.",
                "server.after_plan_ms.p99",
                "server.measuring_us_per_tick",
                "server.measuring_share",
                "server.steady_state_allocations_per_tick",
            ],
        ))
}

fn frames(run: &RunSummary) -> Frames {
    let series = &run.series.frames;
    let parts = throng_summary::Split::ORDER
        .into_iter()
        .map(|part| (part.built_in_name().to_owned(), series.curve(part).to_vec()));
    Frames {
        x: series.time_s.clone(),
        // Older runs lack some of them.
        parts: parts.filter(|(_, values)| values.len() == series.time_s.len()).collect(),
        total: series.total.clone(),
        missed: series.missed.clone(),
        budget: Some(Line { value: run.server.tick_ms, name: "one tick".to_owned() }),
        point: "frame".to_owned(),
    }
}

/// The servers of the run; none if there is only one.
fn servers(run: &RunSummary) -> Option<Section> {
    let head =
        "#server | #players | #frame p99 | #cores | #missed ticks | #characters that came | #characters that went";
    let mut table = Table::new("", head).wide().brief();
    for (number, server) in run.servers.iter().enumerate() {
        let cells = [
            (number + 1).to_string(),
            figure(server.players),
            format!("{} ms", optional(server.frame_p99_ms)),
            figure(server.cpu_cores),
            grouped(server.missed_ticks),
            grouped(server.arrived),
            grouped(server.released),
        ];
        table.push(cells.map(Cell::number));
    }
    let even = match run.servers_even_after_s {
        Some(after_s) => format!("after {} s for good", figure(after_s)),
        None => "not at the end".to_owned(),
    };
    table.note = format!("No server had more than 1.5 times the mean of the players: {even}.");
    let note = "Each server has a strip of the area, and hands over characters who walk out of it. Borders follow the load. All other \
                figures of a server on this page are of the first one.";
    (!run.servers.is_empty()).then(|| Section::new("Servers").note(note).with(table))
}

/// The edges of the run; none if it has none.
fn edges(run: &RunSummary) -> Option<Section> {
    let head = "#edge | #clients | #frame p99 | #per client and tick | #cores | #from the server | #objects | #dropped";
    let mut table = Table::new("", head).wide().brief();
    for (number, edge) in run.edges.iter().enumerate() {
        let cells = [
            (number + 1).to_string(),
            figure(edge.connections),
            format!("{} ms", optional(edge.frame_p99_ms)),
            format!("{} µs", optional(edge.us_per_connection)),
            figure(edge.cpu_cores),
            format!("{} kbit/s", figure(edge.kbit_per_s_from_server)),
            grouped(edge.objects),
            grouped(edge.dropped),
        ];
        table.push(cells.map(Cell::number));
    }
    let note = "Clients connect to these processes, and the server sends its state to them alone. Ages count from the newest \
                tick of which the client has the state: the server's ticks are not known to it.";
    (!run.edges.is_empty()).then(|| Section::new("Edges").note(note).with(table))
}

/// Losses and refusals of edges and servers; none if there are none.
fn losses(run: &RunSummary) -> Option<Section> {
    let mut table = Table::new("", "process | counter | #count").brief();
    for Loss { process, counter, count } in &run.losses {
        table.push([process.as_str().into(), counter.as_str().into(), Cell::number(grouped(*count))]);
    }
    let note = "The counters of edges, and of servers towards their edges, that stand for something lost or refused, since the start of \
                their processes. Counters that are 0 are left out.";
    (!run.losses.is_empty()).then(|| Section::new("Lost and refused").note(note).with(table))
}

/// The load workers of the run; none if its bots were in one process beside the server.
fn workers(run: &RunSummary) -> Option<Section> {
    let head = "load worker | #bots | #cores | #inputs sent | #inputs late, p99 | #clock ahead | #known to";
    let mut table = Table::new("", head).wide().brief();
    for worker in &run.workers {
        let state = match worker {
            WorkerFigures { missing: true, .. } => " (no report)",
            WorkerFigures { saturated: true, .. } => " (overloaded)",
            WorkerFigures { ages_usable: false, .. } => " (ages unusable)",
            _ => "",
        };
        table.push([
            Cell::from(format!("{}{state}", worker.address).as_str()),
            Cell::number(grouped(u64::from(worker.connected))),
            Cell::number(format!("{:.2}", worker.cpu_cores)),
            Cell::number(format!("{:.1} %", worker.inputs_sent_ratio * 100.0)),
            Cell::number(format!("{} ms", optional(worker.input_delay_p99_ms))),
            Cell::number(format!("{} ms", optional(worker.clock_offset_ms))),
            Cell::number(format!("± {} ms", optional(worker.clock_error_ms))),
        ]);
    }
    let note = "These processes, on other machines perhaps, played the bots. Their clocks are compared with the clock of the run all the \
                time: each age of a bot may be off by the error of its clock.";
    (!run.workers.is_empty()).then(|| Section::new("Load workers").note(note).with(table))
}

/// The faults of the run; none if it has none.
fn faults(run: &RunSummary) -> Option<Section> {
    let head =
        "fault | #bots | #longest without service | #all served again after | #never served again | #delayed | #lost";
    let mut table = Table::new("", head).wide().brief();
    for fault in &run.faults {
        table.push([
            Cell::from(fault.fault.as_str()),
            Cell::number(grouped(u64::from(fault.bots))),
            Cell::number(format!("{} ms", optional(fault.longest_gap_ms))),
            Cell::number(format!("{} ms", optional(fault.served_again_ms))),
            Cell::number(grouped(u64::from(fault.unserved))),
            Cell::number(fault.delayed.map_or("-".to_owned(), grouped)),
            Cell::number(fault.lost.map_or("-".to_owned(), grouped)),
        ]);
    }
    let note = format!(
        "The run had these on purpose. A bot counts if it had no service for more than 500 ms: no acknowledgement of \
         an input of that time if it decodes, else no packet. The time until all were served again counts from the end of the fault. \
         Delayed and lost are writes of a slow disk (those that found no room are frames and seconds), or datagrams of a slow \
         consumer. Bots that had lost an edge connected again {} times.",
        run.bots.reconnected
    );
    (!run.faults.is_empty()).then(|| Section::new("Faults").note(&note).with(table))
}

/// Distances, and the names of their bands in the summary.
const BANDS: [(&str, &str); 3] = [("0 to 10 m", "near"), ("10 to 50 m", "middle"), ("beyond", "far")];

fn clients(run: &RunSummary, figures: &Figures<'_>) -> Section {
    let bots = &run.bots;
    let in_play = match bots.compared_in_play {
        0 => "While everything moved, nothing was compared.".to_owned(),
        compared => format!(
            "While everything moved, {} objects were compared with the server's state of the same tick.",
            figure(compared as f64)
        ),
    };
    let note = format!(
        "{} bots decode everything. At the end, with everything at rest, they compare it with the server's state. {in_play}",
        bots.decoded
    );
    let bands = || BANDS.into_iter().zip([run.neighbours.near, run.neighbours.middle, run.neighbours.far]);
    let mut table = Table::new("By distance", "distance | #age p50 | #p99 | #error p50 | #p99 | #samples").brief();
    for ((name, _), Band { age_ms, position_error_m, samples }) in bands() {
        let cell = |value: Option<f64>, unit: &str| Cell::number(format!("{} {unit}", optional(value)));
        table.push([
            Cell::from(name),
            cell(age_ms.p50, "ms"),
            cell(age_ms.p99, "ms"),
            cell(position_error_m.p50, "m"),
            cell(position_error_m.p99, "m"),
            Cell::number(grouped(samples)),
        ]);
    }
    // To the median, and on to the 99th percentile.
    let bars = |title: &str, unit: &str, of: fn(&Band) -> Spread| {
        let row = |((name, _), band): (_, Band)| {
            let Spread { p50, p99 } = of(&band);
            let (p50, p99) = (p50?, p99?);
            Some((str::to_owned(name), vec![("median".to_owned(), p50), ("p99".to_owned(), (p99 - p50).max(0.0))]))
        };
        Bars {
            title: title.to_owned(),
            unit: unit.to_owned(),
            rows: bands().filter_map(row).collect(),
            note: String::new(),
        }
    };
    Section::new("State at the clients")
        .note(&note)
        .with(table)
        .with(figures.chart("series.seconds.time_s", &[("series.seconds.near_age_p99_ms", "send")]))
        .with(bars("Age to the 99th percentile", "ms", |band| band.age_ms))
        .with(bars("Position error to the 99th percentile", "m", |band| band.position_error_m))
        .with(figures.facts(
            "Knowledge",
            &["client.known_objects.", "client.known_within_40_m", "bots.state_mismatches", "bots.mismatches_in_play"],
        ))
        .with(worst(run))
        .with(differences(run))
}

/// The first objects that differed, as far as a table can show them.
fn differences(run: &RunSummary) -> Table {
    let head = "when | because | #client | #edge | #server | #object there | #seen tick | #true tick | #off by";
    let mut table = Table::new("The first objects that differed", head).wide().brief();
    for of in &run.differences {
        let shown = |number: Option<String>| Cell::number(number.unwrap_or_else(|| "–".to_owned()));
        let off_m = of.seen_m.zip(of.true_m).map(|(seen, there)| {
            let squares = seen.iter().zip(there).map(|(seen, there)| (seen - there).powi(2));
            format!("{} m", figure(squares.sum::<f64>().sqrt()))
        });
        table.push([
            Cell::from(&of.when[..]),
            Cell::from(&of.because[..]),
            shown(of.client.map(|client| client.to_string())),
            shown(of.edge.map(|edge| edge.to_string())),
            shown(of.server.map(|server| server.to_string())),
            shown(of.object_there.clone()),
            shown(of.seen_tick_there.or(of.seen_tick).map(|tick| tick.to_string())),
            shown(of.true_tick.map(|tick| tick.to_string())),
            shown(off_m),
        ]);
    }
    table.note =
        "Ticks are those of the server. All values of these objects are in summary.json, under differences.".to_owned();
    table
}

fn worst(run: &RunSummary) -> Table {
    let head = "because | #client | #data | #age within 10 m, p99 | #neighbours within 40 m known";
    let mut table = Table::new("Worst clients", head).wide();
    for of in &run.worst_clients {
        let shown = |value: Option<f64>, factor: f64, unit: &str| match value {
            Some(value) => Cell::number(format!("{} {unit}", figure(value * factor))),
            None => Cell::number("–"),
        };
        table.push([
            Cell::from(&of.because[..]),
            Cell::number(of.client.to_string()),
            shown(of.kbit_per_s, 1.0, "kbit/s"),
            shown(of.near_age_p99_ms, 1.0, "ms"),
            shown(of.known_within_40_m, 100.0, "%"),
        ]);
    }
    table.note =
        "The number of a client is the index of its connection at the server. Only decoding bots know ages.".to_owned();
    table
}

fn sent(run: &RunSummary, figures: &Figures<'_>) -> Section {
    let client = &run.client;
    let parts = |bytes: &Bytes| {
        let parts =
            [("object", bytes.object), ("header", bytes.header), ("resend", bytes.resend), ("control", bytes.control)];
        parts.map(|(name, value)| (name.to_owned(), value)).to_vec()
    };
    let mut causes = Table::new("By purpose", "purpose | #per client and second | #per object update");
    for ((name, second), (_, update)) in
        parts(&client.bytes_per_s).into_iter().zip(parts(&client.bytes_per_object_update))
    {
        causes.push([
            Cell::part(&name),
            Cell::number(format!("{} B", figure(second))),
            Cell::number(format!("{} B", figure(update))),
        ]);
    }
    let second = Bars {
        title: "Per client and second".to_owned(),
        unit: "B".to_owned(),
        rows: vec![(String::new(), parts(&client.bytes_per_s))],
        note: "UDP payload.".to_owned(),
    };
    let rate = figures.chart("series.seconds.time_s", &[("series.seconds.kbit_per_s", "send")]);
    Section::new("Bytes")
        .with(second)
        .with(rate.limit(client.budget_kbit_per_s, "budget"))
        .with(causes)
        .with(fields(run))
        .with(
            figures
                .facts(
                    "To a client",
                    &[
                        "client.kbit_per_s.",
                        "client.kbit_per_s_with_headers_p99",
                        "client.budget_kbit_per_s",
                        "client.object_update_bytes.mean",
                        "client.object_updates_per_s",
                    ],
                )
                .brief(),
        )
}

/// State by kind and field, with its share.
fn fields(run: &RunSummary) -> Table {
    let all: f64 = run.fields.iter().map(|field| field.bytes_per_s).sum();
    let mut table = Table::new("State by kind and field", "kind | field | #per client and second | #share");
    for field in &run.fields {
        let share = field.bytes_per_s / all.max(1e-9);
        table.push([
            Cell::from(&field.kind[..]),
            Cell::from(&field.field[..]),
            Cell::number(format!("{} B", figure(field.bytes_per_s))),
            Cell { shade: Some(share), ..Cell::number(format!("{} %", figure(share * 100.0))) },
        ]);
    }
    table.note = format!(
        "As the decoding bots read it: {} B per client and second in all. Heads of packets and segments are not in it.",
        figure(all)
    );
    table
}

fn replication(run: &RunSummary, figures: &Figures<'_>) -> Section {
    let chart = |curves: &[(&str, &str)]| figures.chart("series.seconds.time_s", curves);
    let mut network = figures.facts(&format!("Network, preset {}", run.network.preset), &["network."]).brief();
    for refused in &run.network.refused {
        network.push([Cell::from(format!("refused: {}", refused.tag)), Cell::number(refused.count.to_string())]);
    }
    Section::new("Replication and network")
        .with(chart(&[("series.seconds.frames_encoded_per_tick", "encode")]))
        .with(chart(&[("series.seconds.subscriptions_per_frame", "seal")]))
        .with(chart(&[("series.seconds.cohorts_per_channel", "quantise")]))
        .with(chart(&[("series.seconds.loss_ratio", "encode")]))
        .with(chart(&[("series.seconds.resent_segments_per_s", "encode")]))
        .with(chart(&[("series.seconds.server_cpu_cores", "send"), ("series.seconds.bots_cpu_cores", "encode")]))
        .with(figures.facts("Replication", &["replication."]))
        .with(network)
        .with(
            figures
                .facts(
                    "Bots",
                    &[
                        "bots.connected",
                        "bots.cpu_cores",
                        "bots.cores_available",
                        "bots.inputs_sent_ratio",
                        "bots.input_delay_p99_ms",
                        "others_cpu_cores",
                    ],
                )
                .brief(),
        )
}

/// Published figures, each with the number of its origin, from 1.
fn published(run: &RunSummary) -> Option<Section> {
    let mut origins: Vec<&str> = Vec::new();
    let mut table = Table::new("", "measure | system | #published | #this run | #origin").wide();
    for row in &run.published {
        let place = origins.iter().position(|known| *known == row.origin).unwrap_or_else(|| {
            origins.push(&row.origin);
            origins.len() - 1
        });
        let exact = if row.value < 1e3 { row.value.to_string() } else { figure(row.value) };
        table.push([
            Cell::from(&row.measure[..]),
            Cell::from(&row.system[..]),
            Cell::number(format!("{exact} {}", row.unit)),
            Cell::number(format!("{} {}", optional(row.ours), row.unit)),
            Cell::number((place + 1).to_string()),
        ]);
    }
    let list: Vec<String> = origins.iter().zip(1..).map(|(origin, number)| format!("{number}: {origin}")).collect();
    table.note = list.join(" · ");
    let section = Section::new("Published figures").note(
        "These figures come from other machines and other programs and are for orientation only. A fair comparison runs both \
         systems on one machine at the same time.",
    );
    (!origins.is_empty()).then(|| section.with(table))
}

fn environment(run: &RunSummary) -> Section {
    let mut table = Table::new("Settings", "");
    for (key, value) in settings(&run.settings).into_iter().filter(|(key, _)| key != "name" && key != "description") {
        table.push([Cell::from(key), Cell::from(value)]);
    }
    Section::new("Environment").with(run.head.machine()).with(table)
}

/// The effective settings as key and value, by key.
fn settings(scenario: &Scenario) -> Vec<(String, String)> {
    let text = toml::to_string(scenario).unwrap_or_default();
    let table: toml::Table = text.parse().unwrap_or_default();
    table.into_iter().map(|(key, value)| (key, value.to_string())).collect()
}

/// The settings that differ from those of the shipped scenario of that name, in words.
fn changes(played: &Scenario) -> Vec<String> {
    let Ok(shipped) = Scenario::resolve(&played.name, &Overrides::default()) else { return Vec::new() };
    let shipped: HashMap<String, String> = settings(&shipped).into_iter().collect();
    let changed = settings(played).into_iter().filter_map(|(key, value)| {
        let of_scenario = shipped.get(&key).map_or("nothing", String::as_str);
        (of_scenario != value).then(|| format!("{key} {value} instead of {of_scenario}"))
    });
    changed.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use throng_summary::Split;

    #[test]
    fn a_run_with_other_settings_says_so_below_its_name() {
        let lead = |overrides: Overrides| {
            let mut run = RunSummary::example();
            run.settings = Scenario::resolve("crowd", &overrides).unwrap();
            let page = render(&run).unwrap();
            let lead = page.split("<p class=\"lead\">").nth(1).unwrap().split("</p>").next().unwrap();
            lead.to_owned()
        };
        assert!(!lead(Overrides::default()).contains("instead of"));
        let changed = lead(Overrides { players: Some(300), ..Overrides::default() });
        assert!(changed.ends_with("players 300 instead of 1000."), "{changed}");
    }

    #[test]
    fn losses_and_refusals_have_a_table_if_there_are_any() {
        let mut run = RunSummary::example();
        let text = page(&run).text();
        assert!(
            text.contains("Lost and refused") && text.contains("edge 1") && text.contains("inputs_dropped"),
            "{text}"
        );
        run.losses.clear();
        assert!(!page(&run).text().contains("Lost and refused"));
    }

    #[test]
    fn the_terminal_has_one_screen_of_it_that_says_what_matters() {
        let mut run = RunSummary::example();
        // A run of several servers, with faults or with objects that differed has a line more for each.
        run.differences.clear();
        run.servers.clear();
        run.faults.clear();
        run.workers.clear();
        run.edges.clear();
        run.losses.clear();
        run.head.invalid_reasons = vec!["some reason of ordinary length that spoils the figures".to_owned(); 9];
        let text = page(&run).text();
        assert!(text.lines().count() <= 40, "{} lines:\n{text}", text.lines().count());
        assert!(text.lines().all(|line| line.chars().count() <= 130), "{text}");
        for word in ["crowd: model throng", "1,000 players at 30 Hz", "0 missed", "encode", "NOT VALID", "0 to 10 m"] {
            assert!(text.contains(word), "no {word} in:\n{text}");
        }
        assert!(!text.contains("NaN") && !text.contains("steady from"), "a constant load has no steps:\n{text}");
        run.steps = vec![run.steps[0].clone(), throng_summary::LoadStep::default()];
        assert!(page(&run).text().contains("steady from"));
    }

    #[test]
    fn a_missed_target_is_red_on_top_and_in_its_tile_though_the_run_is_valid() {
        let mut run = RunSummary::example();
        (run.head.valid, run.head.invalid_reasons) = (true, Vec::new());
        run.server.frame_ms.p99 = 31.5;
        run.targets.clear();
        run.conclude();
        (run.head.valid, run.head.invalid_reasons) = (true, Vec::new());
        let page = render(&run).unwrap();
        let top = page.split("<div class=\"tiles\">").next().unwrap();
        assert!(top.contains("1 of 6 limits missed") && !top.contains("verdict kept"), "{top}");
        let tiles = page.split("<div class=\"tiles\">").nth(1).unwrap().split("<section").next().unwrap();
        assert_eq!(tiles.matches("tile missed").count(), 1, "{tiles}");
    }

    #[test]
    fn text_from_outside_cannot_become_markup() {
        let mut run = RunSummary::example();
        let attack = "</script><script>alert(1)</script><!--\"'><b>";
        run.head.environment.cpu = attack.to_owned();
        run.head.environment.command_line = vec![attack.to_owned()];
        run.settings.description = attack.to_owned();
        run.head.invalid_reasons = vec![attack.to_owned()];
        run.head.revision = attack.to_owned();
        run.network.preset = attack.to_owned();
        let clean = render(&RunSummary::example()).unwrap();
        let page = render(&run).unwrap();
        for sign in ["<script", "</script", "<!--", "<b>"] {
            let more = clean.matches(sign).count() + usize::from(sign == "<b>");
            assert!(page.matches(sign).count() <= more, "{sign}");
        }
    }

    #[test]
    fn levels_of_a_load_have_a_table_and_a_constant_load_has_none() {
        let mut run = RunSummary::example();
        assert!(!render(&run).unwrap().contains("Load steps"));
        let level = throng_summary::LoadStep { players: 250.0, steady_from_s: None, ..run.steps[0].clone() };
        run.steps.insert(0, level);
        let page = render(&run).unwrap();
        let (_, section) = page.rsplit_once("Load steps").unwrap();
        let (table, _) = section.split_once("</table>").unwrap();
        assert!(table.contains(">250<") && table.contains(">71 ms<") && table.contains(">never<"), "{table}");
    }

    #[test]
    fn a_run_without_measurements_still_makes_a_page() {
        let mut run = RunSummary::example();
        run.server.frames_at.clear();
        run.server.us_per_connection = Split::default();
        run.client = throng_summary::Client::default();
        run.neighbours = throng_summary::Neighbours::default();
        run.floor = throng_summary::Floor::default();
        run.series = throng_summary::Series::default();
        run.conclude();
        let page = render(&run).unwrap();
        assert!(!page.contains("data-plot=") && !page.contains(">NaN") && page.contains("–"));
    }
}
