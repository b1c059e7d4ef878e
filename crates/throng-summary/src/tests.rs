use std::collections::BTreeSet;

use serde_json::Value;
use throng_crowd::scenario::{Cipher, Far, LooksFrom, Movement, NetPreset, Overrides, Profile, Scratch, Spawn, View};
use throng_report::to_json;

use super::*;

/// Paths of all leaves; lists of objects are `name[]`, the effective settings and plain lists are leaves.
fn leaves(value: &Value, path: &str, into: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) if path != "settings" => {
            for (key, value) in map {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                leaves(value, &path, into);
            }
        }
        Value::Array(items) if items.first().is_some_and(Value::is_object) => {
            items.iter().for_each(|item| leaves(item, &format!("{path}[]"), into));
        }
        _ => {
            into.insert(path.to_owned());
        }
    }
}

/// The first column of every table row that begins with code.
fn documented(text: &str) -> BTreeSet<String> {
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.filter_map(|row| row.split('`').next()).map(str::to_owned).collect()
}

#[test]
fn every_key_is_documented_and_every_documented_key_exists() {
    let mut written = BTreeSet::new();
    leaves(&serde_json::to_value(RunSummary::example()).unwrap(), "", &mut written);
    let documented = documented(include_str!("../../../docs/run-summary.md"));
    let undocumented: Vec<_> = written.difference(&documented).collect();
    let gone: Vec<_> = documented.difference(&written).collect();
    assert!(undocumented.is_empty(), "not in docs/run-summary.md: {undocumented:#?}");
    assert!(gone.is_empty(), "in docs/run-summary.md but not written: {gone:#?}");
}

#[test]
fn every_setting_is_documented() {
    let settings = serde_json::to_value(RunSummary::example().settings).unwrap();
    let written: BTreeSet<String> = settings.as_object().unwrap().keys().cloned().collect();
    let text = include_str!("../../../scenarios/README.md");
    assert_eq!(documented(text.split("## Keys").nth(1).unwrap()), written);
}

#[test]
fn a_summary_survives_json_and_a_newer_key_is_ignored() {
    let text = to_json(&RunSummary::example());
    let read = RunSummary::from_json(&text).unwrap();
    assert!(text == to_json(&read), "the second writing differs from the first");
    assert_eq!((&read.head, &read.settings), (&RunSummary::example().head, &RunSummary::example().settings));
    let mut value: Value = serde_json::from_str(&text).unwrap();
    value["a_key_of_tomorrow"] = Value::Bool(true);
    assert!(RunSummary::from_json(&value.to_string()).is_ok());
    value["format"] = Value::from(read.head.format + 1);
    assert_eq!(RunSummary::from_json(&value.to_string()).unwrap_err().tag(), "format");
}

#[test]
fn the_published_summaries_are_still_read() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/benchmarks/runs");
    let mut count = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        let run = RunSummary::from_json(&text).unwrap();
        assert_eq!(
            (run.head.workload, run.settings.players),
            (format!("{} {}", run.scenario, run.players), run.players)
        );
        count += 1;
    }
    assert!(count > 20, "{count} summaries");
}

#[test]
fn crowds_with_another_network_rate_or_profile_are_another_workload() {
    let mut run = RunSummary::example();
    let workers = std::mem::take(&mut run.workers);
    let mut workload = |change: &dyn Fn(&mut RunSummary)| {
        change(&mut run);
        run.conclude();
        run.head.workload.clone()
    };
    let rings = ", rings 9/2 49/8 150/40";
    assert_eq!(workload(&|_| ()), format!("crowd 1000 at 30 Hz{rings}"));
    assert_eq!(workload(&|of| of.tick_hz = 60), format!("crowd 1000 at 60 Hz{rings}"));
    assert_eq!(workload(&|of| of.settings.net = NetPreset::Mobile4g), format!("crowd 1000 at 60 Hz{rings}, net 4g"));
    let profile = "ramp:10..100:60s";
    let with = workload(&|of| of.settings.profile = profile.parse().unwrap());
    assert_eq!(with, format!("crowd 1000 at 60 Hz{rings}, net 4g, profile {profile}"));
    let few = workload(&|of| {
        of.settings.rings.clear();
        (of.settings.edges, of.model) = (2, "legacy".to_owned());
    });
    assert_eq!(few, format!("crowd 1000 at 60 Hz, net 4g, profile {profile}, model legacy, 2 edges"));
    assert!(workload(&|of| of.workers.clone_from(&workers)).ends_with("2 edges, bots of 1 load workers"));
}

/// Keys of a scenario that change nothing of what is measured.
const NO_LOAD: [&str; 9] = [
    "name",
    "description",
    "seconds",
    "warmup_seconds",
    "start_when_connected",
    "seed",
    "pin",
    "limits",
    "send_slowdown_percent",
];

type Change<'a> = &'a dyn Fn(&mut Scenario);

#[test]
fn the_words_name_every_key_of_a_scenario_that_changes_the_load() {
    let other_cipher = |cipher| match cipher {
        Cipher::Aes256Gcm => Cipher::Chacha20Poly1305,
        _ => Cipher::Aes256Gcm,
    };
    let far = Far { cell_m: [60.0; 3], parts: 2, rings: Vec::new() };
    let changes: [(&str, Change, &str); 33] = [
        ("players", &|of| of.players = 7, "crowd 7 at"),
        ("tick_hz", &|of| of.tick_hz = 60, "at 60 Hz"),
        ("input_hz", &|of| of.input_hz = 10, ", input_hz 10"),
        ("profile", &|of| of.profile = "ramp:100..900:5s".parse().unwrap(), ", profile ramp:100..900:5s"),
        ("budget_kbit_per_s", &|of| of.budget_kbit_per_s = 64, ", budget_kbit_per_s 64"),
        ("view", &|of| of.view = View::Everything, ", view everything"),
        ("rings", &|of| of.rings.truncate(1), "rings 9/2"),
        ("looks_from", &|of| of.looks_from = LooksFrom::Position, ", looks_from position"),
        ("far", &|of| of.far = Some(far.clone()), ", far cell_m 60 60 60 parts 2 rings"),
        ("area_m", &|of| of.area_m = [200.0, 150.5], ", area_m 200 150.5"),
        ("height_m", &|of| of.height_m = 30.0, ", height_m 30"),
        ("cell_m", &|of| of.cell_m = [20.0, 20.0, 20.0], ", cell_m 20 20 20"),
        ("obstacles", &|of| of.obstacles = 0, ", obstacles 0"),
        ("movement", &|of| of.movement = Movement::Idle, ", movement idle"),
        ("leash_m", &|of| of.leash_m = 5.0, ", leash_m 5"),
        ("spawn", &|of| of.spawn = Spawn::Disc { radius_m: 20.0 }, ", spawn radius_m 20 shape disc"),
        ("chests_per_player", &|of| of.chests_per_player = 3, ", chests_per_player 3"),
        ("chest_change_ticks", &|of| of.chest_change_ticks = 9, ", chest_change_ticks 9"),
        ("idle_objects", &|of| of.idle_objects = 500, ", idle_objects 500"),
        ("net", &|of| of.net = NetPreset::Mobile4g, ", net 4g"),
        ("decoded_fraction", &|of| of.decoded_fraction = 0.1, ", decoded_fraction 0.1"),
        ("decoded_min", &|of| of.decoded_min = 11, ", decoded_min 11"),
        ("server_threads", &|of| of.server_threads = 2, ", server_threads 2"),
        ("truth_hz", &|of| of.truth_hz = 30, ", truth_hz 30"),
        ("servers", &|of| of.servers = 2, ", 2 servers"),
        ("edges", &|of| of.edges = 2, ", 2 edges"),
        ("faults", &|of| of.faults = vec!["kill:edge-1:4s".parse().unwrap()], ", faults kill:edge-1:4s"),
        ("faults", &|of| of.faults = vec!["kill:edge-1:5s".parse().unwrap()], ", faults kill:edge-1:5s"),
        ("cipher", &|of| of.cipher = other_cipher(of.cipher), ", cipher "),
        ("model", &|of| of.model = Model::SharedState, ", model shared-state"),
        ("scratch", &|of| of.scratch = Scratch::PerConnection, ", scratch per-connection"),
        ("baselines", &|of| of.baselines = true, ", baselines true"),
        ("input_hz", &|of| of.input_hz = 60, ", input_hz 60"),
    ];
    let words = |change: Change| {
        let mut run = RunSummary::example();
        run.workers.clear();
        change(&mut run.settings);
        let Scenario { players, tick_hz, model, .. } = run.settings;
        (run.players, run.tick_hz, run.model) = (players, tick_hz, model.name().to_owned());
        run.conclude();
        run.head.workload
    };
    let usual = words(&|_| ());
    let all: BTreeSet<String> = changes.iter().map(|(_, change, _)| words(*change)).chain([usual.clone()]).collect();
    assert_eq!(all.len(), changes.len() + 1, "{all:#?}");
    for (key, change, told) in &changes {
        let words = words(*change);
        assert!(words.contains(told), "{key}: {words}");
    }
    let with_pin = words(&|of| (of.pin, of.seed, of.seconds, of.send_slowdown_percent) = (true, 9, 99, 20));
    assert_eq!(with_pin, usual);
    let settings = serde_json::to_value(RunSummary::example().settings).unwrap();
    let known: BTreeSet<&str> = changes.iter().map(|(key, ..)| *key).chain(NO_LOAD).collect();
    let keys: BTreeSet<&str> = settings.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(known, keys, "a key is a part of the load, or it is not");
}

#[test]
fn the_words_of_a_named_scenario_are_short_whatever_it_sets() {
    for (name, _) in Scenario::named() {
        let settings = Scenario::resolve(name, &Overrides::default()).unwrap();
        let mut run = RunSummary { scenario: name.to_owned(), ..RunSummary::example() };
        run.workers.clear();
        (run.players, run.tick_hz) = (settings.players, settings.tick_hz);
        let plain = settings.rings.is_empty() && settings.profile == Profile::Constant;
        run.settings = settings;
        run.conclude();
        let words = run.head.workload.clone();
        assert!(!words.contains(", spawn") && !words.contains(", movement"), "{words}");
        assert!(!plain || words == format!("{name} {} at {} Hz", run.players, run.tick_hz), "{words}");
        // More inputs with more ticks is what the rate means.
        (run.tick_hz, run.settings.tick_hz, run.settings.input_hz) = (60, 60, 60);
        run.conclude();
        assert!(!run.head.workload.contains("input_hz"), "{}", run.head.workload);
        // The words of a user's own file name what differs from the usual scenario.
        run.scenario = "mine".to_owned();
        run.settings.obstacles = 63;
        run.conclude();
        assert!(run.head.workload.contains(", obstacles 63"), "{}", run.head.workload);
    }
}

#[test]
fn the_parts_of_a_split_add_up() {
    let parts = Split::ORDER.into_iter().zip((1..).map(f64::from));
    let split = Split::new(parts, 70.0);
    assert_eq!((split.other, split.total), (4.0, 70.0));
    assert_eq!((split.outgoing(), split.incoming(), split.replicating()), (35.0, 30.0, 18.0));
    let sum: f64 = split.scaled(0.001).parts().map(|(_, part)| part).sum();
    assert!((sum - split.scaled(0.001).total).abs() < 1e-12);
    let overfull = Split::new(Split::ORDER.map(|subsystem| (subsystem, 10.0)), 40.0);
    assert_eq!((overfull.other, overfull.total), (0.0, 110.0));
    let subsystems: BTreeSet<Subsystem> = split.parts().map(|(subsystem, _)| subsystem).collect();
    assert_eq!(subsystems, Subsystem::STAGES.into_iter().collect());
}

#[test]
fn whatever_spoils_a_run_is_named() {
    let spoilt = |change: fn(&mut RunSummary)| {
        let mut run = RunSummary::example();
        run.head.invalid_reasons.clear();
        run.network.refused.clear();
        run.faults.clear();
        change(&mut run);
        run.conclude();
        assert_eq!(run.head.valid, run.head.invalid_reasons.is_empty());
        run.head.invalid_reasons.join("; ")
    };
    assert_eq!(spoilt(|_| {}), "");
    assert!(spoilt(|run| run.bots.saturated = true).contains("overloaded"));
    assert!(spoilt(|run| run.bots.inputs_sent_ratio = 0.5).contains("50.0 %"));
    assert!(spoilt(|run| run.bots.connected = 3).contains("only 3 of 1000"));
    assert!(spoilt(|run| run.bots.disconnects = 2).contains("2 connections"));
    assert!(spoilt(|run| run.bots.state_mismatches = 1).contains("differed"));
    assert!(spoilt(|run| run.bots.not_compared = 3).contains("3 bots that decode were compared with nothing"));
    let nothing = |run: &mut RunSummary| (run.bots.objects_compared, run.bots.decoded) = (0, 0);
    assert!(spoilt(nothing).contains("no decoded object was compared"), "all that decode have left");
    assert!(spoilt(|run| run.bots.compared_in_play = 0).contains("while everything moved"));
    assert_eq!(spoilt(|run| (run.bots.compared_in_play, run.bots.without_truth_in_play) = (0, true)), "");
    assert!(spoilt(|run| run.bots.mismatches_in_play = 1).contains("while everything moved"));
    assert!(spoilt(|run| run.bots.stalled = 1).contains("were stalled"));
    assert!(spoilt(|run| run.head.others_cpu_cores = Some(0.3)).contains("other programs used 0.30 cores"));
    assert_eq!(spoilt(|run| run.head.others_cpu_cores = Some(0.2)), "");
    assert!(spoilt(|run| run.network.loss_ratio = 0.01).contains("1.00 % of the packets were lost"));
    assert_eq!(spoilt(|run| (run.network.loss_ratio, run.network.preset) = (0.01, "4g".into())), "");
    fn fault(unserved: u32) -> Vec<FaultFigures> {
        vec![FaultFigures { fault: "kill:edge-1:4s".to_owned(), unserved, ..FaultFigures::default() }]
    }
    assert_eq!(spoilt(|run| (run.network.loss_ratio, run.faults) = (0.01, fault(0))), "");
    // A slow disk loses no packets.
    fn slow() -> Vec<FaultFigures> {
        vec![FaultFigures { fault: "slow-disk:server:1s:1s".to_owned(), ..FaultFigures::default() }]
    }
    assert_eq!(spoilt(|run| run.faults = slow()), "");
    assert!(spoilt(|run| (run.network.loss_ratio, run.faults) = (0.01, slow())).contains("packets were lost"));
    assert!(spoilt(|run| run.workers[0].saturated = true).contains("load worker 10.0.0.5:7790 was overloaded"));
    assert!(
        spoilt(|run| run.workers[0].inputs_sent_ratio = 0.5).contains("load worker 10.0.0.5:7790 sent only 50.0 %")
    );
    assert!(spoilt(|run| run.workers[0].ages_usable = false).contains("its clock is known to 0.4 ms only"));
    assert!(spoilt(|run| run.faults = fault(3)).contains("3 bots were not served again after kill:edge-1:4s"));
    fn refused() -> Vec<Count> {
        vec![Count { tag: "replayed".to_owned(), count: 2 }]
    }
    assert!(spoilt(|run| run.network.refused = refused()).contains("refused datagrams"));
    assert_eq!(spoilt(|run| (run.network.refused, run.network.preset) = (refused(), "4g".into())), "");
    assert!(spoilt(|run| run.network.send_errors = 7).contains("did not accept 7 datagrams"));
    assert!(spoilt(|run| run.server.events_dropped = 4).contains("dropped 4 events"));
    let without_news = |run: &mut RunSummary| run.edges[0].ticks_without_news = run.server.ticks / 10;
    assert!(spoilt(without_news).contains("no news of a server in "));
    assert!(spoilt(|run| run.bots.bad_inputs = 5).contains("could not read 5 inputs"));
    assert!(spoilt(|run| run.head.environment.profile = "debug".into()).contains("--release"));
    assert!(spoilt(|run| run.server.ticks = 0).contains("before the measured part"));
}

#[test]
fn targets_and_published_figures_follow_the_scenario() {
    let of = |scenario: &str| {
        let mut run = RunSummary { scenario: scenario.to_owned(), ..RunSummary::example() };
        if let Ok(settings) = Scenario::resolve(scenario, &Overrides::default()) {
            run.settings = settings;
        }
        run.conclude();
        (run.targets.len(), run.published.len())
    };
    let (crowd, _) = of("crowd");
    assert!(crowd >= 5);
    for name in ["dense", "sparse", "sparse-10", "sparse-20", "converge"] {
        assert!(of(name).1 >= 2, "{name} has published figures");
    }
    assert!(of("dense").0 >= 3 && of("sparse").0 >= 1 && of("crowd-10k").0 >= 3);
    assert_eq!(of("mine"), (0, 0), "a scenario of one's own is compared with nothing");
}

#[test]
fn a_run_without_neighbours_has_nothing_to_compare_while_it_moves() {
    let mut run = RunSummary::example();
    run.head.invalid_reasons.clear();
    run.network.refused.clear();
    run.bots.compared_in_play = 0;
    run.neighbours = Neighbours::default();
    run.conclude();
    assert!(run.head.valid, "{:?}", run.head.invalid_reasons);
}

#[test]
fn targets_belong_to_the_scenario_with_its_own_settings() {
    let with = |change: fn(&mut Scenario)| {
        let mut run = RunSummary::example();
        run.settings = Scenario::resolve("crowd", &Overrides::default()).unwrap();
        change(&mut run.settings);
        run.conclude();
        run.targets.len()
    };
    assert!(
        with(|_| {}) >= 5 && with(|settings| settings.seconds = 77) >= 5 && with(|settings| settings.pin ^= true) >= 5
    );
    assert_eq!(with(|settings| settings.players = 50), 0);
    assert_eq!(with(|settings| settings.area_m = [500.0; 2]), 0);
    assert_eq!(with(|settings| settings.net = NetPreset::Bad), 0);
}

#[test]
fn a_target_without_a_measurement_is_neither_met_nor_missed() {
    let mut run = RunSummary::example();
    run.neighbours.near.age_ms.p99 = None;
    run.conclude();
    let age = run.targets.iter().find(|target| target.name.contains("10 m")).unwrap();
    assert_eq!((age.measured, age.met), (None, None));
    run.neighbours.near.age_ms.p99 = Some(150.0);
    run.conclude();
    let age = run.targets.iter().find(|target| target.name.contains("10 m")).unwrap();
    assert_eq!(age.met, Some(false));
}

/// A test of the list that joins names and subsystems: two exchanged names would exchange their curves on every page.
#[test]
fn each_stage_is_read_by_the_subsystem_of_its_name() {
    let mut stages: Vec<&str> = Split::ORDER.iter().map(|stage| stage.built_in_name()).collect();
    for (place, stage) in Split::ORDER.into_iter().enumerate() {
        let name = stage.built_in_name();
        let mut split = serde_json::to_value(Split::default()).unwrap();
        split[name] = 1.0.into();
        let split: Split = serde_json::from_value(split).unwrap();
        let only: Vec<_> = split.parts().filter(|(_, part)| *part != 0.0).collect();
        assert_eq!(only, [(stage, 1.0)], "{name}");
        let mut series = serde_json::to_value(FrameSeries::default()).unwrap();
        series[name] = vec![place as f64].into();
        let series: FrameSeries = serde_json::from_value(series).unwrap();
        assert_eq!(series.curve(stage), [place as f64], "{name}");
    }
    // Every field but the total is one of them, so that none was added by its name above.
    stages.push("total");
    let fields = serde_json::to_value(Split::default()).unwrap();
    let fields: BTreeSet<&str> = fields.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(fields, stages.into_iter().collect());
}

#[test]
fn a_run_takes_the_memory_of_its_seconds_at_its_beginning() {
    let (mut seconds, mut samples) = (SecondSeries::with_room(), Samples::with_room(500));
    let places = |seconds: &SecondSeries, samples: &Samples| {
        (seconds.time_s.as_ptr(), seconds.near_age_p99_ms.as_ptr(), samples.frames.as_ptr(), samples.late.as_ptr())
    };
    let before = places(&seconds, &samples);
    (0..Series::MAX_POINTS).for_each(|_| seconds.push(&Second::default()));
    (0..500).for_each(|second| samples.frames.push(second));
    assert_eq!(places(&seconds, &samples), before, "nothing had to move to a larger place");
    assert_eq!((seconds.time_s.len(), samples.frames.len(), samples.late.len()), (Series::MAX_POINTS, 500, 0));
}
