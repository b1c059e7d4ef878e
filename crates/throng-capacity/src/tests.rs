use throng_report::Outcome::{Failed, Skipped};
use throng_report::{Environment, SUMMARY_FILE};

use super::*;
use crate::figures::Capacity;

/// A server that a shell plays: 85 % of its processor at 400, with a little noise that depends on the load alone.
const SHELL: &str = r#"
about = "a shell"
unit = "clients"
command = ["sh", "-c", '''
    awk -v n={amount} 'BEGIN { printf "{\"cpu\": ["; for (i = 0; i < 60; i++) printf "%s%.5f", (i ? "," : ""), 0.85 * n / 400.5 * (1 + ((i * 7) % 5 - 2) / 1000); print "], \"cores\": [1, 2]}" }'
''']
start = 50
most = 10000
around_seconds = 20
simulated = true
no_faults = ["throttled"]
cores = "cores"
[[limits]]
name = "cpu"
about = "share"
at_most = 0.85
level = "cpu"
"#;

fn options(load: Load, runs: &Path) -> CapacityOptions {
    let search = SearchOptions {
        start: load.start,
        most: load.most,
        trial: Duration::from_secs(1),
        confirm: Duration::from_secs(2),
        ..SearchOptions::default()
    };
    let (program, runs) = ("throng".into(), runs.to_owned());
    CapacityOptions {
        load,
        method: Method::Search(search),
        runs,
        program,
        note: |_| (),
        shows_progress: false,
        live: None,
    }
}

fn measured(text: &str) -> (Capacity, tempfile::TempDir, PathBuf) {
    let runs = tempfile::tempdir().unwrap();
    let options = options(Load::parse("shell.toml", text).unwrap(), runs.path());
    let (capacity, folder) = measure(&options, &AtomicBool::new(false)).unwrap();
    (capacity, runs, folder)
}

#[test]
fn a_command_of_ones_own_is_searched_like_any_other() {
    let (capacity, _runs, folder) = measured(SHELL);
    assert_eq!((capacity.verdict.as_str(), capacity.load.as_str()), ("accepted", "shell"));
    let kept = capacity.kept.unwrap();
    assert!((394..=400).contains(&kept), "{kept}");
    assert_eq!((capacity.limited_by.as_deref(), capacity.cores), (Some("cpu"), Some(2.0)));
    assert_eq!(capacity.per_core, Some(f64::from(kept) / 2.0));
    assert!(capacity.estimate.is_some_and(|load| (load - 400.5).abs() < 0.5), "{:?}", capacity.estimate);
    // The files hold the same.
    let read: Capacity = serde_json::from_str(&std::fs::read_to_string(folder.join(SUMMARY_FILE)).unwrap()).unwrap();
    let amounts =
        |of: &Capacity| of.trials.iter().map(|trial| (trial.amount, trial.verdict.clone())).collect::<Vec<_>>();
    assert_eq!(amounts(&read), amounts(&capacity));
    assert!(capacity.trials.len() <= 8, "{:?}", amounts(&capacity));
    let lines = std::fs::read_to_string(folder.join(TRIALS_FILE)).unwrap();
    assert_eq!(lines.lines().count(), capacity.trials.len());
    assert_eq!((&read.head.environment, read.head.valid), (&Environment::capture(), !cfg!(debug_assertions)));
    assert_eq!(read.head.workload, "shell by search, cpu 0.85");
    let settings = read.settings;
    assert_eq!((settings.start, settings.command.len(), settings.limits[0].at_most), (50, 3, 0.85));
    let text = page(&capacity).text();
    assert!(text.contains("confirm beyond") && text.contains("not measured"), "{text}");
    assert!(text.contains("best estimate without a bound: 400.5"), "{text}");
}

#[test]
fn the_answer_is_given_by_physical_core_and_with_the_memory_of_each_unit() {
    let text =
        SHELL.replace("[1, 2]}", "[0], \\\"bytes\\\": 5000}").replace("cores = ", "memory_bytes = \"bytes\"\ncores = ");
    let (capacity, _runs, _) = measured(&text);
    assert_eq!(capacity.memory_bytes_per_unit, Some(5_000.0));
    assert_eq!(capacity.physical_cores, throng_machine::physical_cores(&[0]).map(|cores| cores as f64));
    assert_eq!(capacity.per_physical_core, capacity.per_core.filter(|_| capacity.physical_cores.is_some()));
    let shown = page(&capacity).text();
    let line = |name: &str| shown.lines().find(|line| line.starts_with(name)).unwrap_or_default();
    assert!(line("memory per unit").contains("4.88 KiB"), "{shown}");
    assert_eq!(line("per physical core").contains(" clients"), capacity.physical_cores.is_some(), "{shown}");
    // A list says which cores; a number says it only where there is no choice.
    let load = Load::parse("shell.toml", &text).unwrap();
    let of = |printed: &str| load.physical_cores(&serde_json::from_str(printed).unwrap());
    let is_sure = throng_machine::threads_per_core() == Some(1.0);
    assert_eq!((of(r#"{"cores": 1}"#), of(r#"{"cores": 2}"#)), (Some(1.0), is_sure.then_some(2.0)));
    assert_eq!((of(r#"{"cores": ["a"]}"#), of("{}")), (None, None));
}

#[test]
fn a_trial_says_from_when_on_it_is_steady_and_judges_that_part() {
    // The first 12 of the 60 readings are half as high again.
    let cold = SHELL.replace("(1 + ((i", "(i < 12 ? 1.5 : 1) * (1 + ((i");
    let (capacity, _runs, folder) = measured(&cold);
    let kept = capacity.kept.unwrap();
    assert!((394..=400).contains(&kept), "{kept}: {}", capacity.why);
    // Trials are 1 s long, confirming holds 2 s.
    let is_cut =
        |trial: &TrialFigures| trial.steady_from_s.is_some_and(|from_s| (0.2..=0.3).contains(&(from_s / trial.held_s)));
    assert!(capacity.trials.iter().all(|trial| trial.steadiness == "steady" && is_cut(trial)), "{capacity:?}");
    let lines = std::fs::read_to_string(folder.join(SAMPLES_FILE)).unwrap();
    let samples: Vec<serde_json::Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    // The samples that are not judged are kept too.
    let is_whole = |line: &serde_json::Value| line["limits"][0]["level"].as_array().is_some_and(|all| all.len() == 60);
    assert!(samples.len() == capacity.trials.len() && samples.iter().all(is_whole), "{lines}");
    assert_eq!((&samples[0]["trial"], &samples[0]["amount"]), (&1.into(), &50.into()));
    let read = std::fs::read_to_string(folder.join(SUMMARY_FILE)).unwrap();
    assert!(read.contains("\"steady_from_s\"") && page(&capacity).text().contains("steady"), "{read}");
    // The published method counts its newest 30 samples, and only says it.
    let runs = tempfile::tempdir().unwrap();
    let mut options = options(Load::parse("shell.toml", &cold).unwrap(), runs.path());
    options.method = Method::Holds(HoldOptions { amounts: vec![300], repeats: 1, hold: Duration::from_secs(1) });
    let (held, _) = measure(&options, &AtomicBool::new(false)).unwrap();
    let hold = Duration::from_secs(1);
    options.method = Method::Steps(StepOptions { start: 300, step: 50, most: 300, hold });
    let (steps, _) = measure(&options, &AtomicBool::new(false)).unwrap();
    let value = |of: &Capacity| of.trials[0].limits[0].value.unwrap();
    assert!((value(&held) / value(&steps) - 1.0).abs() < 0.01 && steps.trials[0].steadiness == "steady");
}

#[test]
fn steps_find_the_same_load() {
    let runs = tempfile::tempdir().unwrap();
    let mut options = options(Load::parse("shell.toml", SHELL).unwrap(), runs.path());
    let hold = Duration::from_secs(1);
    options.method = Method::Steps(StepOptions { start: 50, step: 50, most: 10_000, hold });
    let (capacity, _) = measure(&options, &AtomicBool::new(false)).unwrap();
    assert!(capacity.kept.is_some_and(|kept| (396..=400).contains(&kept)), "{:?}", capacity.kept);
    assert_eq!(capacity.method, "steps");
    assert!(capacity.estimate.is_some_and(|load| (load - 400.5).abs() < 0.5), "{:?}", capacity.estimate);
}

#[test]
fn a_command_that_fails_makes_trials_invalid_and_says_why() {
    for (script, why) in [
        ("echo {amount} of no use >&2; exit 7", "exit code 7: 50 of no use"),
        ("echo hello", "no JSON object"),
        (r#"echo "{}""#, "no numbers at cpu"),
        (r#"echo '{"cpu": [0.1, 0.1], "invalid_reasons": ["the bots were late"]}'; exit 3"#, "the bots were late"),
        (r#"echo '{"cpu": [0.1, 0.1]}'; exit 3"#, "does not say why"),
        (r#"printf 'bad \033[31m\007words' >&2; exit 7"#, "bad  [31m words"),
        ("kill -9 $$", "killed by a signal"),
    ] {
        let mut load = Load::parse("shell.toml", SHELL).unwrap();
        load.command = vec!["sh".into(), "-c".into(), script.into()];
        let runs = tempfile::tempdir().unwrap();
        let (capacity, _) = measure(&options(load, runs.path()), &AtomicBool::new(false)).unwrap();
        assert_eq!((capacity.verdict.as_str(), capacity.kept, capacity.trials.len()), ("undecided", None, 3));
        assert!(capacity.why.contains(why), "{script}: {}", capacity.why);
    }
}

#[test]
fn a_command_that_refuses_its_arguments_ends_the_measurement_at_once() {
    let runs = tempfile::tempdir().unwrap();
    // Loads from 100 on are refused.
    let script = "[ {amount} -lt 100 ] || { echo no such amount >&2; exit 2; }\n    awk";
    let options = options(Load::parse("shell.toml", &SHELL.replace("awk", script)).unwrap(), runs.path());
    let error = measure(&options, &AtomicBool::new(false)).unwrap_err().to_string();
    assert!(error.contains("no such amount") && error.contains("trials before it"), "{error}");
    let folder = std::fs::read_dir(runs.path()).unwrap().next().unwrap().unwrap().path();
    let read: Capacity = serde_json::from_str(&std::fs::read_to_string(folder.join(SUMMARY_FILE)).unwrap()).unwrap();
    assert_eq!(read.trials.iter().map(|trial| trial.amount).collect::<Vec<_>>(), [50]);
    assert!(read.head.partial);
}

#[test]
fn thirty_thirtieths_fit_into_a_hold() {
    let runs = tempfile::tempdir().unwrap();
    let script =
        r#"awk 'BEGIN { exit {seconds} < 30 * {thirtieth} || {seconds} > 30 * {thirtieth} + 0.03 }' || exit 2; awk"#;
    let mut options = options(Load::parse("shell.toml", &SHELL.replace("awk", script)).unwrap(), runs.path());
    // Every thirtieth of 20 s is 0.666... s: thirty of them, rounded up, are longer.
    let times = [1, 7, 20, 23].map(Duration::from_secs);
    for hold in times {
        options.method = Method::Holds(HoldOptions { amounts: vec![50], repeats: 1, hold });
        measure(&options, &AtomicBool::new(false)).unwrap();
    }
}

#[test]
fn what_a_command_leaves_behind_holds_up_nothing_and_is_ended() {
    let runs = tempfile::tempdir().unwrap();
    let file = runs.path().join("left");
    // Both outputs of the command stay open in the process that it leaves.
    let script = format!("sleep 1000 & echo $! >{}; awk", file.display());
    let mut options = options(Load::parse("shell.toml", &SHELL.replace("awk", &script)).unwrap(), runs.path());
    options.method = Method::Holds(HoldOptions { amounts: vec![50], repeats: 1, hold: Duration::from_secs(1) });
    let began = Instant::now();
    let (capacity, _) = measure(&options, &AtomicBool::new(false)).unwrap();
    assert_eq!(capacity.verdict, "accepted");
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    let left = std::fs::read_to_string(file).unwrap();
    let until = Instant::now() + Duration::from_secs(10);
    while std::fs::read_to_string(format!("/proc/{}/cmdline", left.trim())).is_ok_and(|line| !line.is_empty()) {
        assert!(Instant::now() < until, "process {left} is left behind");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn figures_that_make_no_sense_are_refused_with_their_path() {
    let share = SHELL.replace("level = \"cpu\"", "over = \"late\"\nof = \"all\"");
    let load = Load::parse("shell.toml", &share).unwrap();
    let judge = |late: &str, all: &str| {
        let printed = serde_json::from_str(&format!("{{\"late\": {late}, \"all\": {all}}}")).unwrap();
        let judged = load.judge(&printed)?;
        let samples = serde_json::to_string(&figures::LimitSamples::of(&judged[0])).unwrap();
        assert_eq!(samples, format!(r#"{{"name":"cpu","over":{late},"of":{all}}}"#).replace(", ", ","));
        Ok::<f64, String>(judged[0].estimate.value)
    };
    assert_eq!(judge("[1, 2]", "[100, 200]"), Ok(0.01));
    for (late, all, why) in [
        ("[1, 2]", "[100]", "late has 2 counts, and all has 1"),
        ("[1, null]", "[100, 100]", "late: null is no count"),
        ("[0.5]", "[100]", "late: 0.5 is no count"),
        ("[-1]", "[100]", "late: -1 is no count"),
        ("[1]", "[1e30]", "all: 1e"),
        ("[3]", "[2]", "3 events of 2"),
    ] {
        let error = judge(late, all).unwrap_err();
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn limits_that_are_none_are_refused() {
    let parse = |from: &str, to: &str| Load::parse("shell.toml", &SHELL.replace(from, to)).map(|_| ());
    let share = "at_most = 2.0\nvalues = \"cpu\"\nabove = 1.0";
    let twice = "level = \"cpu\"\n[[limits]]\nname = \"cpu\"\nabout = \"s\"\nat_most = 1.0\nlevel = \"x\"";
    for (from, to, why) in [
        ("level = \"cpu\"", "level = \"cpu\"\nover = \"late\"", "either level"),
        ("level = \"cpu\"", "values = \"cpu\"\nabove = nan", "finite"),
        ("level = \"cpu\"", "values = \"cpu\"\nabove = inf", "finite"),
        ("at_most = 0.85\nlevel = \"cpu\"", share, "at most 1"),
        ("level = \"cpu\"", twice, "two with the name cpu"),
    ] {
        let error = parse(from, to).unwrap_err().to_string();
        assert!(error.contains(why), "{to}: {error}");
    }
    assert!(Load::resolve("/dev/zero").is_err(), "a file without an end");
}

#[test]
fn faults_that_are_none_for_this_load_do_not_spoil_a_trial() {
    let mut load = Load::parse("shell.toml", SHELL).unwrap();
    load.most = 50;
    load.no_faults.push("raise --most".to_owned());
    let script = r#"echo '{"cpu": [0.1, 0.11, 0.1, 0.12], "n": {amount}, "invalid_reasons": ["not reached: raise --most"]}'; exit 3"#;
    load.command = vec!["sh".into(), "-c".into(), script.into()];
    let runs = tempfile::tempdir().unwrap();
    let (capacity, _) = measure(&options(load, runs.path()), &AtomicBool::new(false)).unwrap();
    assert_eq!((capacity.verdict.as_str(), capacity.kept), ("accepted", Some(50)));
}

#[test]
fn a_trial_that_the_system_throttled_is_invalid_and_not_failed() {
    let load = Load { no_faults: Vec::new(), ..Load::parse("shell.toml", SHELL).unwrap() };
    let printed = serde_json::json!({ "invalid_reasons": ["the bots were late"] });
    let (hold, hours) = (Duration::from_secs(30), Duration::from_secs(8 * 3_600));
    let throttled = |periods, ms| throng_machine::Throttled { periods, time: Duration::from_millis(ms) };
    let of = |throttled, hold| hold::fault(&load, &serde_json::Value::Null, throttled, hold);
    assert_eq!([of(throttled(0, 0), hold), of(throttled(1, 30), hold)], [None, None]);
    assert_eq!(of(throttled(1, 100), hours), None, "a period spoils no soak");
    assert!(of(throttled(300, 30_000), hours).is_some());
    let throttled = throttled(3, 210);
    let fault = of(throttled, hold).unwrap_or_default();
    assert!(fault.contains("throttled the processes 3 times, 0.21 s in all"), "{fault}");
    // The command's own reason is the cause, and a load file may say that throttling is none.
    assert_eq!(hold::fault(&load, &printed, throttled, hold).as_deref(), Some("the bots were late"));
    let load = Load { no_faults: vec!["throttled".to_owned(), "late".to_owned()], ..load };
    assert_eq!(hold::fault(&load, &printed, throttled, hold), None);
}

#[test]
fn memory_that_grows_while_a_soak_is_invalid_says_nothing() {
    let grows = || MemoryFigures {
        name: "server".to_owned(),
        samples: 100,
        bytes: 2e9,
        first_half_bytes_per_hour: Some(1e8),
        bytes_per_hour: Some(1e8),
        low: Some(9e7),
        high: Some(1.1e8),
        forecast_bytes: Some(4.4e9),
        verdict: "rejected".to_owned(),
    };
    for (fault, verdict, why) in [
        (r#", "invalid_reasons": ["the bots were late"]"#, "undecided", "the bots were late"),
        ("", "rejected", "the memory of server grows"),
    ] {
        let mut load = Load::parse("shell.toml", SHELL).unwrap();
        let script = format!(r#"echo '{{"cpu": [0.1, 0.11, 0.1, 0.12], "n": {{amount}}{fault}}}'"#);
        load.command = vec!["sh".into(), "-c".into(), script];
        let runs = tempfile::tempdir().unwrap();
        let mut options = options(load, runs.path());
        options.method = Method::Soak(SoakOptions { amount: 50, hold: Duration::from_secs(1), growth_max: 0.1 });
        let (mut capacity, _) = measure(&options, &AtomicBool::new(false)).unwrap();
        capacity.take_memory(vec![grows()]);
        assert_eq!(capacity.verdict, verdict, "{}", capacity.why);
        let memory = [MemoryFigures { verdict: verdict.to_owned(), ..grows() }];
        assert!(capacity.why.contains(why) && capacity.memory == memory, "{capacity:?}");
    }
}

#[test]
fn the_sampler_of_memory_ends_though_a_sample_takes_longer_than_its_interval() {
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let folder = tempfile::tempdir().unwrap();
        let mut file = LineFile::create(folder.path(), MEMORY_FILE).unwrap();
        let times = (Duration::from_nanos(1), Duration::ZERO);
        memory::sample(&mut file, times, &AtomicBool::new(true), &std::sync::Mutex::default());
        let _ = tell.send(());
    });
    assert_eq!(told.recv_timeout(Duration::from_secs(10)), Ok(()));
}

#[test]
fn a_trial_without_the_samples_of_one_limit_keeps_those_of_the_others() {
    let text = format!("{SHELL}[[limits]]\nname = \"late\"\nabout = \"share\"\nat_most = 0.01\nlevel = \"late\"\n");
    let (capacity, _runs, folder) = measured(&text);
    assert!(capacity.trials.iter().all(|trial| trial.fault.as_ref().is_some_and(|why| why.contains("at late"))));
    let lines = std::fs::read_to_string(folder.join(SAMPLES_FILE)).unwrap();
    for line in lines.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()) {
        let limits = line["limits"].as_array().unwrap();
        assert!(limits.len() == 1 && limits[0]["level"].as_array().is_some_and(|all| all.len() == 60), "{line}");
    }
    assert!(!lines.is_empty());
}

#[test]
fn a_load_that_prints_one_number_again_and_again_is_not_believed() {
    let mut load = Load::parse("shell.toml", SHELL).unwrap();
    load.most = 50;
    load.command = vec!["sh".into(), "-c".into(), r#"echo '{"cpu": [0.1, 0.1], "n": {amount}}'"#.into()];
    let runs = tempfile::tempdir().unwrap();
    let (capacity, _) = measure(&options(load, runs.path()), &AtomicBool::new(false)).unwrap();
    assert_eq!((capacity.verdict.as_str(), capacity.kept), ("undecided", None));
    assert!(capacity.why.contains("is not sure to keep the limits"), "{}", capacity.why);
}

#[test]
fn a_command_that_never_ends_is_killed() {
    let mut load = Load::parse("shell.toml", SHELL).unwrap();
    // It ignores the request to end, too. The number makes it findable.
    load.command = vec!["sh".into(), "-c".into(), "trap '' INT; while :; do sleep 0.2; done; : {amount}".into()];
    load.around_seconds = 0;
    let runs = tempfile::tempdir().unwrap();
    let mut options = options(load, runs.path());
    let hold = Duration::from_millis(300);
    options.method = Method::Steps(StepOptions { start: 1, step: 1, most: 1, hold });
    let began = Instant::now();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_secs(3));
            stop.store(true, Ordering::Relaxed);
        });
        let (capacity, _) = measure(&options, &stop).unwrap();
        assert_eq!(capacity.kept, None);
        let first = capacity.trials.first().and_then(|trial| trial.fault.clone()).unwrap_or_default();
        assert!(first.contains("did not end in time"), "{first}");
    });
    assert!(began.elapsed() < Duration::from_secs(40));
}

#[test]
fn a_stop_leaves_the_trials_so_far() {
    let runs = tempfile::tempdir().unwrap();
    let (capacity, folder) =
        measure(&options(Load::parse("shell.toml", SHELL).unwrap(), runs.path()), &AtomicBool::new(true)).unwrap();
    assert!(capacity.head.partial && capacity.trials.is_empty() && capacity.verdict == "undecided");
    assert!(folder.join(SUMMARY_FILE).is_file() && capacity.why.contains("interrupted"));
}

#[test]
fn a_hold_that_is_interrupted_leaves_what_it_has_measured() {
    if throng_machine::subprocess::ignores_interrupts() {
        println!("!!! SIGINT is ignored here, as in the background of a script: NOT tested");
        return;
    }
    let mut load = Load::parse("shell.toml", SHELL).unwrap();
    // As the programs of this workspace: it prints its figures when it is asked to end. It forks once, at its start: a shell
    // that is asked while it forks answers twice, and one that is asked before it has set its trap does not answer.
    let script = r#"trap 'echo "{\"cpu\": [0.1, 0.2, 0.1], \"n\": {amount}}"; exit 0' INT; sleep 60 & : >"$0"; wait"#;
    let runs = tempfile::tempdir().unwrap();
    let is_ready = runs.path().join("ready");
    load.command = vec!["sh".into(), "-c".into(), script.into(), is_ready.display().to_string()];
    load.add_arguments(&["--cores".to_owned(), "2,3".to_owned()]);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let until = Instant::now() + Duration::from_secs(60);
            while !is_ready.exists() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(20));
            }
            std::thread::sleep(Duration::from_millis(500));
            stop.store(true, Ordering::Relaxed);
        });
        let (capacity, _) = measure(&options(load, runs.path()), &stop).unwrap();
        assert!(capacity.head.partial && capacity.kept.is_none(), "{capacity:?}");
        assert_eq!(capacity.arguments, ["--cores", "2,3"]);
        let [trial] = &capacity.trials[..] else { panic!("{} trials", capacity.trials.len()) };
        assert!(trial.fault.as_deref().is_some_and(|fault| fault.starts_with("interrupted after")), "{trial:?}");
        let values: Vec<Option<f64>> = trial.limits.iter().map(|limit| limit.value).collect();
        assert!(values.iter().flatten().any(|value| (0.1..0.2).contains(value)), "{trial:?}");
    });
}

#[test]
fn a_command_that_refuses_its_arguments_is_quoted_in_the_answer() {
    let mut load = Load::parse("shell.toml", SHELL).unwrap();
    load.command = vec!["sh".into(), "-c".into(), "echo 'no such scenario: {amount}' >&2; exit 2".into()];
    let runs = tempfile::tempdir().unwrap();
    let error = measure(&options(load, runs.path()), &AtomicBool::new(false)).unwrap_err().to_string();
    assert!(error.contains("no such scenario"), "{error}");
    let folder = std::fs::read_dir(runs.path()).unwrap().next().unwrap().unwrap().path();
    let text = std::fs::read_to_string(folder.join(SUMMARY_FILE)).unwrap();
    assert!(text.contains("no such scenario") && !text.contains("interrupted"), "{text}");
}

#[test]
fn a_load_is_put_on_cores_only_if_its_command_takes_them() {
    let mut load = Load::resolve("ai").unwrap();
    assert!(load.takes_cores());
    load.pin("0,2").unwrap();
    assert!(load.command.join(" ").ends_with("--cores 0,2") && !load.takes_cores(), "{:?}", load.command);
    let error = Load::resolve("crowd").unwrap().pin("0").unwrap_err().to_string();
    assert!(error.contains("load file crowd: its command has no {cores}"), "{error}");
}

#[test]
fn load_files_that_make_no_sense_say_what_to_change() {
    let of = |from: &str, to: &str| Load::parse("mine.toml", &SHELL.replace(from, to)).unwrap_err().to_string();
    for (from, to, part) in [
        ("{amount}", "7", "{amount} is missing"),
        ("start = 50", "start = 0", "1 <= start <= most"),
        ("level = \"cpu\"", "", "either level"),
        ("level = \"cpu\"", "level = \"cpu\"\nover = \"a\"\nof = \"b\"", "either level"),
        ("at_most = 0.85", "at_most = -1", "above 0"),
        ("unit = \"clients\"", "units = \"clients\"", "unknown key `units`: did you mean `unit`?"),
        ("[[limits]]", "[[limitz]]", "mine.toml"),
    ] {
        let text = of(from, to);
        assert!(text.contains(part) && !text.contains('\n'), "{text}");
    }
    assert_eq!(Load::resolve("crowds").unwrap_err().tag(), "unknown");
    assert_eq!(Load::resolve("/nowhere/mine.toml").unwrap_err().tag(), "read");
}

#[test]
fn the_loads_of_this_program_are_right_and_their_limits_can_be_set() {
    for name in names() {
        let mut load = Load::resolve(name).unwrap();
        load.set_limit("cpu", 0.5).unwrap();
        assert!(load.limits.iter().any(|limit| limit.at_most == 0.5));
        let error = load.set_limit("memory", 0.5).unwrap_err().to_string();
        assert!(error.contains("only cpu, "), "{error}");
        assert!(load.set_limit("cpu", f64::NAN).is_err());
    }
}

#[test]
fn a_command_that_ends_before_its_hold_is_over_has_held_nothing() {
    let hold = Duration::from_secs(3);
    let verdict = |text: &str| {
        let runs = tempfile::tempdir().unwrap();
        let mut options = options(Load::parse("shell.toml", text).unwrap(), runs.path());
        options.method = Method::Soak(SoakOptions { amount: 100, hold, growth_max: 10.0 });
        let (capacity, _) = measure(&options, &AtomicBool::new(false)).unwrap();
        let [trial] = &capacity.trials[..] else { panic!("{:?}", capacity.trials) };
        (capacity.verdict.clone(), trial.fault.clone().unwrap_or_default(), trial.held_s, capacity.head.seconds)
    };
    let early = SHELL.replace("simulated = true\n", "");
    let (answer, fault, held_s, seconds) = verdict(&early);
    assert_eq!(answer, "undecided");
    assert!(fault.contains("the command ended after ") && fault.ends_with("of 3 s"), "{fault}");
    assert!(held_s < 2.0 && seconds < 2.0, "it was held {held_s} s, {seconds} s in all");
    let whole = early.replace("awk ", "sleep {seconds}; awk ");
    assert_eq!(verdict(&whole).1, "");
    // The command itself says why it ended.
    let reason = early.replace(r#"\"cores\":"#, r#"\"invalid_reasons\": [\"the match was over\"], \"cores\":"#);
    assert_eq!(verdict(&reason).1, "the match was over");
}

#[test]
fn a_search_that_found_its_answer_is_no_failed_build() {
    let (found, _runs, _) = measured(SHELL);
    let failed = |of: &Capacity| of.cases().iter().filter(|case| matches!(case.outcome, Failed(_))).count();
    let beyond = |case: &throng_report::Case| matches!(&case.outcome, Skipped(words) if words.contains("beyond"));
    assert_eq!((found.verdict.as_str(), failed(&found)), ("accepted", 0));
    assert!(found.cases().iter().any(beyond), "{:?}", found.cases());
    // Long holds keep more than short ones: the answer is a load that a short trial rejected.
    let (longer, ..) = measured(&SHELL.replace("400.5", "({seconds} > 1 ? 410.5 : 400.5)"));
    let rejected = |trial: &TrialFigures| trial.verdict == "rejected" && Some(trial.amount) <= longer.kept;
    assert_eq!((longer.verdict.as_str(), failed(&longer)), ("accepted", 0), "{}", longer.why);
    assert!(longer.trials.iter().any(rejected), "{:?}", longer.trials);
    // Nothing is kept: there is no answer that they could be beyond.
    let (none, ..) = measured(&SHELL.replace("0.85 * n", "850 * n"));
    assert_eq!(none.verdict, "rejected");
    assert!(failed(&none) > 0);
}

#[test]
fn a_load_that_was_held_on_is_shown_as_it_was_judged() {
    let runs = tempfile::tempdir().unwrap();
    let mut load = Load::parse("shell.toml", SHELL).unwrap();
    // The first hold is undecided. The second one would be accepted by itself.
    let script = r#"if [ -e "$0" ]; then a=0.850 b=0.846; else : >"$0"; a=0.87 b=0.83; fi; awk -v a=$a -v b=$b 'BEGIN {
        printf "{\"cpu\": [" a; for (i = 1; i < 30; i++) printf ", " (i % 2 ? b : a); print "], \"n\": {amount}}" }'"#;
    load.command = vec!["sh".into(), "-c".into(), script.into(), runs.path().join("again").display().to_string()];
    load.most = 50;
    let (capacity, _) = measure(&options(load, runs.path()), &AtomicBool::new(false)).unwrap();
    let told: Vec<_> = capacity.trials.iter().map(|trial| (trial.purpose.as_str(), trial.verdict.as_str())).collect();
    assert_eq!(told[..2], [("raise", "undecided"), ("hold on", "undecided")], "{capacity:?}");
    assert!(capacity.trials[1].limits[0].high.is_some_and(|high| high > 0.85), "{capacity:?}");
}
