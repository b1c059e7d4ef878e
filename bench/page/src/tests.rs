use std::fs;

use super::*;
use throng_lab::compare::example;

fn peers() -> Peers {
    let row = |peer: &str, players: u32, us_per_client: f64| PeerRow {
        peer: peer.to_owned(),
        version: "1.0".to_owned(),
        workload: "dense".to_owned(),
        players,
        rounds: 3,
        us_per_client,
        receive_ms_per_tick: Some(0.1),
        assign_ms_per_tick: Some(0.2),
        client_us_per_client: Some(0.7),
        packets_per_client_tick: Some(2.0),
        bytes_per_client_tick: 1_600.0,
        checked: true,
        ..PeerRow::default()
    };
    let failed = PeerRow { checked: false, notes: "failed: it was not built".to_owned(), ..row("naia", 100, 0.0) };
    let rows = vec![
        row("naive broadcast", 100, 0.1),
        row("throng, not sealed", 100, 1.0),
        row("colyseus, one patch", 100, 0.3),
        row("bevy_replicon", 100, 32.0),
        failed,
        row("throng, not sealed", 400, 2.0),
        row("bevy_replicon", 400, 60.0),
    ];
    let machine = PeerMachine { cpu: "Example CPU @ 3.0 GHz".to_owned(), cores: 2, kernel: "Linux 6.12.0".to_owned() };
    Peers {
        machine: Some(machine),
        revision: "0123456789ab-dirty".to_owned(),
        started_at: "2026-01-31T13:00:00Z".to_owned(),
        command_line: "bench/peers/run --rounds 3".to_owned(),
        rows,
    }
}

fn sources(comparisons: Vec<Comparison>) -> Sources {
    let folders = vec!["/src/throng/runs/20260131-120000-compare".into(); comparisons.len()];
    let peers_file = Some("bench/peers/results/results.json".into());
    Sources { comparisons, peers: peers(), folders, peers_file }
}

fn rendered(comparisons: Vec<Comparison>) -> (String, Vec<Plot>) {
    let (blocks, plots) = page::render(&sources(comparisons), Path::new("/src/throng"));
    (blocks::replaced(blocks::SKELETON, &blocks).unwrap(), plots)
}

fn page() -> (String, Vec<Plot>) {
    rendered(vec![example()])
}

/// The cells of the first row that begins so.
fn cells_of(text: &str, start: &str) -> Vec<String> {
    let row = text.lines().find(|line| line.starts_with(&format!("| {start}")));
    let row = row.unwrap_or_else(|| panic!("no row {start} in:\n{text}"));
    row.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned()).collect()
}

#[test]
fn the_page_of_a_small_comparison_is_the_expected_one() {
    let (text, plots) = page();
    let expected = include_str!("expected-page.txt");
    assert!(text == expected, "the page differs from expected-page.txt:\n{text}");
    let names: Vec<_> = plots.iter().map(|plot| plot.name.as_str()).collect();
    let expected = ["models-dense-100", "growth-dense", "peers-dense", "peers-dense-100"];
    assert_eq!(names, expected.map(|name| format!("plots/{name}.svg")));
}

#[test]
fn demands_are_judged_by_the_figures() {
    let (text, _) = page();
    let verdict = |start: &str| cells_of(&text, start).pop().unwrap();
    assert_eq!(verdict("`dense` with 100: cheaper per connection than `shared-state`"), "not measured");
    assert_eq!(verdict("`dense` with 100: cheaper per connection than `legacy`"), "kept");
    assert_eq!(verdict("`dense` with 100: cheaper per client"), "kept");
    assert_eq!(verdict("`dense` with 400: cheaper per client"), "**missed**");
    assert_eq!(verdict("`dense` with 100: time of one patch"), "kept");
    assert_eq!(verdict("`dense` with 100: time of the naive broadcast"), "**missed**");
}

#[test]
fn what_failed_and_what_we_lose_at_stays_on_the_page() {
    let (text, _) = page();
    assert_eq!(cells_of(&text, "naia 1.0")[1], "failed: it was not built");
    let lost = text.split("## What we lose at").nth(1).unwrap();
    let row = cells_of(lost, "dense, 100 (peers, 3 rounds) | time per client");
    let who = "naive broadcast 1.0: 0.1; colyseus, one patch 1.0: 0.3";
    assert_eq!(row[2..], ["1", who, "10"].map(str::to_owned));
}

#[test]
fn two_comparisons_of_one_workload_have_plots_of_their_own() {
    let (text, plots) = rendered(vec![example(), example()]);
    let mut names: Vec<_> = plots.iter().map(|plot| plot.name.clone()).collect();
    let count = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), count, "{names:?}");
    for part in ["### dense, 100 players (run 2)", "(plots/models-dense-100-2.svg)", "(plots/growth-dense-2.svg)"] {
        assert!(text.contains(part), "no {part} in:\n{text}");
    }
}

#[test]
fn an_overloaded_server_is_marked_left_out_of_the_fit_and_said_so() {
    let mut comparison = example();
    for run in comparison.runs.iter_mut().filter(|run| run.contestant == "legacy" && run.players == 400) {
        run.figures.as_mut().unwrap().missed_ticks = 500;
    }
    let (text, plots) = rendered(vec![comparison]);
    assert!(text.contains("Left out of the fits: `legacy` at 400."), "{text}");
    assert!(text.contains("| 400 | 204 (200–208) † |") && text.contains("† The server was overloaded"), "{text}");
    let growth = plots.iter().find(|plot| plot.name.contains("growth")).unwrap();
    assert!(growth.svg.contains("ring: overloaded"), "{}", growth.svg);
    assert!(!page().0.contains('†'));
}

#[test]
fn files_are_written_where_the_page_looks_for_them() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("docs/page.md");
    let publish = || sources(vec![example()]).publish(&out, Path::new("/src/throng"));
    let written = publish().unwrap();
    assert_eq!(written[0], out);
    let text = fs::read_to_string(&out).unwrap();
    fs::write(&out, text.replace("# Models and peers, measured", "# My own heading")).unwrap();
    publish().unwrap();
    assert!(fs::read_to_string(&out).unwrap().starts_with("# My own heading"));
    fs::write(&out, "# No place for blocks\n").unwrap();
    assert_eq!(publish().unwrap_err().tag(), "page");
    for path in &written[1..] {
        let svg = fs::read_to_string(path).unwrap();
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>") && !svg.contains("NaN"), "{svg}");
        let name = path.file_name().unwrap().to_string_lossy();
        assert!(text.contains(&format!("(plots/{name})")), "{name} is not on the page");
    }
}

#[test]
fn peers_of_another_machine_are_refused_and_those_that_do_not_say_are_not() {
    let read = |peers: &Peers| is_same_machine(&[example()], peers, Path::new("results.json"));
    let mut peers = peers();
    assert!(read(&peers).is_ok());
    peers.machine.as_mut().unwrap().cpu = "Another CPU".to_owned();
    let error = read(&peers).unwrap_err();
    assert_eq!(error.tag(), "peers_machine");
    assert!(error.to_string().contains("Another CPU") && !error.to_string().contains('\n'), "{error}");
    peers.machine = None;
    assert!(read(&peers).is_ok());
}

#[test]
fn what_cannot_be_read_is_said_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let peers = folder.path().join("results.json");
    let refused = |folders: &[PathBuf], peers: Option<&Path>| {
        let error = Sources::read(folders, peers).err().expect("it is refused");
        assert!(!error.to_string().contains('\n'));
        error.tag()
    };
    assert_eq!(refused(&[folder.path().to_owned()], None), "absent");
    assert_eq!(refused(&[], Some(&peers)), "peers");
    fs::write(&peers, "{}").unwrap();
    assert_eq!(refused(&[], Some(&peers)), "peers");
}
