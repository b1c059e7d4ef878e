//! A small town, short rounds, bots over UDP on loopback. Time is real here, and nothing is said about how long it takes.

use std::sync::atomic::AtomicBool;

use throng_range::site::RulesText;
use throng_range::{DensityOptions, Finished, MapSource, RangeError, RunOptions, density, play, rebuild, replay_file};
use throng_tactical::Rules;

fn options() -> RunOptions {
    RunOptions {
        map: MapSource::Town { seed: 7, triangles: 5_000 },
        rules: Rules { tick_hz: 32, rounds_to_win: 1, buy_s: 1.0, live_s: 12.0, end_s: 0.5, ..Rules::default() },
        is_pinned: false,
        ..RunOptions::default()
    }
}

fn played(options: &RunOptions) -> Finished {
    play(options, &AtomicBool::new(false)).expect("it is played")
}

#[test]
fn ten_bots_play_a_match_to_its_result_and_it_replays_identically() {
    let folder = tempfile::tempdir().expect("a folder");
    let options = RunOptions { folder: Some(folder.path().to_owned()), ..options() };
    let finished = played(&options);
    let summary = &finished.summary;
    assert!(summary.result.is_some(), "{:?}", summary.ends);
    assert_eq!((summary.matches, summary.players, summary.bots.joined), (1, 10, 10));
    assert_eq!(summary.replay.identical, Some(true), "{:?}", summary.replay);
    assert_eq!(summary.fog.hidden_but_visible, Some(0));
    assert!(summary.fog.pairs_checked > 0 && summary.commands.taken > 1_000 && summary.ai.decisions > 100);
    assert!(summary.frame_ms.p99 > 0.0 && summary.lateness_us.max > 0.0);
    for name in ["network", "replication", "movement", "fog_of_war", "animation", "gameplay"] {
        assert!(summary.subsystems.get(name).is_some_and(|subsystem| subsystem.mean_ms > 0.0), "{name}");
    }
    assert!(summary.sight.rays_per_s.is_some_and(|rate| rate > 1_000.0));
    let path = finished.page.expect("a page").expect("it is written");
    let page = std::fs::read_to_string(&path).expect("it is there");
    assert!(page.contains("<polyline") && page.contains("By subsystem") && page.contains("verdict"));
    // The files of the folder are enough for the same page.
    std::fs::remove_file(&path).expect("it is there");
    let workload = "match 1, 10 players each at 32 Hz, 1 workers, a town of 5000 triangles";
    assert_eq!(summary.head.workload, workload);
    assert_eq!(rebuild(folder.path()).expect("its files are there"), path);
    assert!(std::fs::read_to_string(&path).expect("it is there") == page, "the page made again differs");
    // The log in the folder is replayed by itself, and on another map it is refused.
    let log = folder.path().join("match-1.log");
    let replayed = replay_file(&log, &options.map).expect("it is the same");
    assert_eq!(replayed.outcome, summary.result);
    let error = replay_file(&log, &MapSource::Town { seed: 8, triangles: 5_000 }).expect_err("another map");
    assert!(matches!(&error, RangeError::Log { .. }) && error.to_string().contains("give the same map"), "{error}");
}

#[test]
fn a_report_that_cannot_be_written_takes_no_figures_away() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(folder.path().join("summary.json")).expect("a folder in the way");
    let finished = played(&RunOptions { folder: Some(folder.path().to_owned()), seconds: Some(1), ..options() });
    assert_eq!(finished.summary.bots.joined, 10);
    let error = finished.page.expect("there was to be one").expect_err("it cannot be written");
    assert!(error.to_string().contains("summary.json"), "{error}");
}

#[test]
fn agents_play_the_seats_that_bots_leave_and_the_match_replays_identically() {
    let summary = played(&RunOptions { agents: 4, ..options() }).summary;
    assert!(summary.result.is_some(), "{:?}", summary.ends);
    assert_eq!((summary.players, summary.bots.joined), (10, 6));
    assert_eq!(summary.replay.identical, Some(true), "{:?}", summary.replay);
    let of_agents = &summary.subsystems["ai"];
    assert!(of_agents.mean_ms > 0.0, "{of_agents:?}");
}

/// A load of one match, three, and one again, each for a second.
fn spike() -> RunOptions {
    let profile = "spike:1..3:1s:1s".parse().expect("a profile");
    let rules = Rules { rounds_to_win: 100, ..options().rules };
    RunOptions { matches: 3, profile, rules, workers: 2, seconds: Some(3), is_checked: false, ..options() }
}

#[test]
fn matches_come_and_go_by_the_profile_until_the_time_is_over() {
    let folder = tempfile::tempdir().expect("a folder");
    let finished = played(&RunOptions { folder: Some(folder.path().to_owned()), ..spike() });
    let summary = finished.summary;
    assert!(summary.head.invalid_reasons.iter().all(|reason| !reason.contains("profile")), "{summary:?}");
    let ends: Vec<&str> = summary.ends.iter().map(|end| end.rsplit(": ").next().unwrap_or_default()).collect();
    // In the order of the matches, however they ended; the first one was stopped, so there is no result.
    assert_eq!(ends, ["the time is over", "the load falls", "the load falls"], "{:?}", summary.ends);
    assert_eq!((summary.result, summary.matches_per_core), (None, None), "fewer played than there were");
    let levels: Vec<_> = summary.steps.iter().map(|step| (step.matches, step.from_s, step.to_s)).collect();
    assert_eq!(levels, [(1, 0.0, 1.0), (3, 1.2, 2.0), (1, 2.2, 3.0)]);
    assert!(summary.steps.iter().all(|step| step.frame_ms.p99 > 0.0 && step.cpu_cores > 0.0), "{:?}", summary.steps);
    let page = std::fs::read_to_string(finished.page.expect("a page").expect("it is written")).expect("it is there");
    assert!(page.contains("Load steps") && page.contains("spike:1..3:1s:1s"));
    assert_eq!((summary.matches, summary.players, summary.bots.joined), (3, 30, 30));
    assert_eq!(summary.ends.len(), 3);
    assert_eq!(summary.replay.identical, None, "it was not asked for");
    assert!(summary.cpu_cores.is_some_and(|cores| cores > 0.0));
    let [of_match, of_player] = [summary.memory_bytes_per_match, summary.memory_bytes_per_player].map(Option::unwrap);
    assert!(of_match > 10_000.0 && (of_match / of_player - 10.0).abs() < 0.01, "{of_match} and {of_player}");
    assert!(summary.rss_bytes.is_some_and(|bytes| bytes as f64 > 3.0 * of_match));
}

#[test]
fn a_match_that_is_over_before_its_profile_makes_the_run_invalid() {
    let rules = Rules { buy_s: 0.5, live_s: 0.5, fuse_s: 60.0, rounds_to_win: 1, ..options().rules };
    let profile = "soak:1m".parse().expect("a profile");
    let summary = played(&RunOptions { rules, profile, matches: 1, seconds: Some(60), ..spike() }).summary;
    let reason = "match 1 was over before the profile let it go, so the run was stopped; give it more --rounds";
    assert_eq!(summary.head.invalid_reasons[0], reason);
    assert!(summary.head.seconds < 30.0);
}

#[test]
fn matches_that_are_over_before_the_time_are_no_load_of_all_the_time() {
    let rules = Rules { buy_s: 0.5, live_s: 0.5, fuse_s: 0.5, rounds_to_win: 1, ..options().rules };
    let of = |matches, seconds| {
        let summary = played(&RunOptions { rules, matches, seconds, is_checked: false, ..options() }).summary;
        assert!(summary.result.is_some(), "{:?}", summary.ends);
        // The machine may have other work, and that makes a run invalid, too.
        let early = |reason: &&String| reason.contains("were over before the time was, so fewer played");
        (summary.head.invalid_reasons.iter().find(early).cloned(), summary.matches_per_core)
    };
    let (reason, per_core) = of(2, Some(60));
    assert!(reason.is_some_and(|reason| reason.starts_with("2 of 2 matches were over before")) && per_core.is_none());
    assert_eq!(of(2, None), (None, None), "they are played to their ends, which are not at the same time");
    assert_eq!(of(1, Some(60)).0, None, "one match was all of the load until its end");
}

#[test]
fn a_profile_that_is_longer_than_any_match_is_refused_before_the_run() {
    let of = |profile: &str, seconds| {
        let rules = Rules { rounds_to_win: 100, ..Rules::default() };
        let profile = profile.parse().expect("a profile");
        RunOptions { rules, profile, seconds: Some(seconds), ..RunOptions::default() }.check()
    };
    // 199 rounds of 8 s, 100 s, 40 s and 3 s.
    of("soak:30049s", 30_049).expect("it is possible");
    let error = of("soak:30050s", 30_050).expect_err("no match is so long");
    assert_eq!(error.tag(), "options");
    let words = "30050 s are longer than a match to 100 won rounds can last: at most 30049 s";
    assert!(error.to_string().contains(words) && !error.to_string().contains('\n'), "{error}");
    // Without a profile, a run ends with its matches.
    of("constant", 30_050).expect("it is possible");
}

#[test]
fn steps_of_a_search_in_one_process_do_not_tell_the_memory_of_a_match() {
    let run = RunOptions { seconds: Some(1), is_checked: false, ..options() };
    let finished = density(&DensityOptions { run, first: 1, most: 1 }, &AtomicBool::new(false)).expect("it is played");
    let summary = finished.summary;
    assert!(summary.rss_bytes.is_some() || throng_machine::rss_bytes().is_none());
    assert_eq!((summary.memory_bytes_per_match, summary.memory_bytes_per_player), (None, None));
}

/// A program that keeps a core busy, until this is dropped.
#[cfg(target_os = "linux")]
struct Busy(std::process::Child);

#[cfg(target_os = "linux")]
impl Busy {
    fn start() -> Busy {
        Busy(std::process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn().expect("it starts"))
    }
}

#[cfg(target_os = "linux")]
impl Drop for Busy {
    fn drop(&mut self) {
        // An error here means that it has already ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_run_beside_a_busy_program_is_not_valid() {
    let busy = Busy::start();
    let summary = played(&RunOptions { seconds: Some(2), is_checked: false, ..options() }).summary;
    drop(busy);
    assert!(summary.head.others_cpu_cores.is_some_and(|cores| cores > 0.25), "{:?}", summary.head.others_cpu_cores);
    let reasons = summary.head.invalid_reasons.join("; ");
    assert!(!summary.head.valid && reasons.contains("other programs used"), "{reasons}");
}

#[test]
fn the_rules_come_back_whole_from_the_text_of_a_log() {
    let rules = Rules {
        tick_hz: 64,
        team_size: 3,
        rounds_to_win: 2,
        buy_s: 1.5,
        live_s: 31.0,
        end_s: 2.5,
        fuse_s: 11.0,
        plant_s: 1.25,
        defuse_s: 2.25,
        money: 123,
        has_fog: false,
        interpolation_ticks: 5,
    };
    let written = RulesText { rules, has_agents: true };
    let text = serde_json::to_string(&written).expect("it is text");
    let read: RulesText = serde_json::from_str(&text).expect("it is read");
    assert_eq!(read, written);
    assert!(text.starts_with(r#"{"tick_hz":64,"team_size":3,"#), "{text}");
}

#[test]
fn options_that_are_not_possible_are_refused() {
    let refused = |options: RunOptions| play(&options, &AtomicBool::new(false)).expect_err("not possible").to_string();
    assert_eq!(refused(RunOptions { matches: 0, ..options() }), "a run has 1 to 1000 matches, and not 0");
    assert!(refused(RunOptions { agents: 10, ..options() }).starts_with("a match has 0 to 9 agents"));
    assert!(refused(RunOptions { seconds: Some(0), ..options() }).starts_with("a run has 1 to "));
    let line = "profile spike:1..3:1s:1s: peak 3 is more than the 2 matches (--matches)";
    assert_eq!(refused(RunOptions { matches: 2, ..spike() }), line);
    assert!(refused(RunOptions { seconds: None, ..spike() }).contains("--seconds"));
    let rules = Rules { tick_hz: 5, ..Rules::default() };
    assert!(refused(RunOptions { rules, ..options() }).contains("tick_hz"));
    let nowhere = MapSource::File("/nowhere/a.map".into());
    assert!(refused(RunOptions { map: nowhere, ..options() }).contains("/nowhere/a.map"));
    let folder = tempfile::tempdir().expect("a folder");
    let budgets = folder.path().join("budgets.toml");
    std::fs::write(&budgets, "[subsystem_ms]\nbullets = 1.0\n").expect("a file");
    let line = refused(RunOptions { budgets: Some(budgets), ..options() });
    assert!(line.contains("there is no subsystem \"bullets\""), "{line}");
}
