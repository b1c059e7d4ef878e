use std::fs;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::json;
use throng_judge::TrendOptions;
use throng_report::RunHead;

use super::*;

/// Writes the folder of a run with these times of its subsystems, in µs per connection.
fn write(runs: &Path, name: &str, revision: &str, parts: &[(&str, f64)]) -> PathBuf {
    let folder = runs.join(name);
    fs::create_dir_all(&folder).unwrap();
    let times: serde_json::Map<String, Value> = parts.iter().map(|(name, us)| ((*name).into(), json!(us))).collect();
    let sum: f64 = parts.iter().map(|(_, us)| us).sum();
    let started_at = format!("2026-01-01T{name}");
    let head = RunHead { revision: revision.to_owned(), valid: true, started_at, ..RunHead::default() };
    let figures = json!({
        "server": { "us_per_connection": times, "frame_ms": { "p50": sum, "p99": 1.5 * sum } },
    });
    RunFile::write(&folder, &head.with(figures)).unwrap();
    folder
}

/// A machine whose speed wobbles a little from run to run.
struct Machine(fastrand::Rng);

impl Machine {
    fn times(&mut self, send: f64) -> Vec<(&'static str, f64)> {
        let mut wobble = |us: f64| us * (1.0 + 0.02 * (self.0.f64() + self.0.f64() - 1.0));
        vec![
            ("encode", wobble(0.8)),
            ("write", wobble(1.9)),
            ("seal", wobble(0.7)),
            ("send", wobble(send)),
            ("open", wobble(1.2)),
        ]
    }
}

fn side(machine: &mut Machine, count: usize, send: f64) -> (tempfile::TempDir, Vec<StoredRun>) {
    let folder = tempfile::tempdir().unwrap();
    for index in 0..count {
        write(folder.path(), &format!("{index:03}"), "abc", &machine.times(send));
    }
    let runs = runs(folder.path()).unwrap().runs;
    (folder, runs)
}

fn verdict<'a>(comparison: &'a Comparison, part: &str) -> &'a str {
    &comparison.parts.iter().find(|of| of.name == part).unwrap().verdict
}

#[test]
fn a_against_a_says_no_change_and_a_planted_slowdown_is_named() {
    throng_seeds::for_seeds(20, |seed| {
        let mut machine = Machine(fastrand::Rng::with_seed(seed));
        let ((_a, first), (_b, second)) = (side(&mut machine, 8, 2.0), side(&mut machine, 8, 2.0));
        let same = compare(&first, &second, 0.03).unwrap();
        assert!(same.parts.iter().all(|part| part.verdict == "no change"), "{same:?}");
        assert_eq!((same.worse().count(), same.values.as_str(), same.moved_together), (0, "runs", false));
        let (_c, slow) = side(&mut machine, 8, 2.12);
        let slower = compare(&first, &slow, 0.03).unwrap();
        assert_eq!(verdict(&slower, "send"), "slower", "{slower:?}");
        assert_eq!(slower.worse().map(|part| part.name.as_str()).collect::<Vec<_>>(), ["send"]);
        assert_eq!(verdict(&compare(&slow, &first, 0.03).unwrap(), "send"), "faster");
    });
}

#[test]
fn few_runs_decide_nothing_and_their_seconds_show_how_much_they_differ() {
    let folder = tempfile::tempdir().unwrap();
    let mut random = fastrand::Rng::with_seed(1);
    let mut write_run = |name: &str, send: f64| {
        let path = folder.path().join(name);
        fs::create_dir_all(&path).unwrap();
        let mut list = |ms: f64| (0..600).map(|_| ms * (0.9 + 0.2 * random.f64())).collect::<Vec<f64>>();
        let head = RunHead { valid: true, ..RunHead::default() };
        let figures = json!({
            "server": { "us_per_connection": { "send": send, "encode": 1.0 } },
            "series": { "frames": { "send": list(send), "encode": list(1.0), "total": list(send + 1.0), "time_s": list(1.0) } },
        });
        RunFile::write(&path, &head.with(figures)).unwrap();
        runs(&path).unwrap().runs
    };
    // Two runs of one program differ by 15 %: their seconds are certain of it, and it means nothing.
    let (first, slow) = (write_run("a", 2.0), write_run("c", 2.3));
    let few = compare(&first, &slow, 0.03).unwrap();
    assert_eq!((few.values.as_str(), few.runs_missing, few.worse().count()), ("seconds", (4, 4), 0));
    assert!(few.parts.iter().all(|part| part.verdict == "undecided" && part.more == Some(4)), "{few:?}");
    let send = few.parts.iter().find(|part| part.name == "send").unwrap();
    assert!(send.interval.is_some_and(|(low, high)| low < 1.15 && 1.15 < high && low > 1.1 && high < 1.2), "{send:?}");
    assert!(send.words.starts_with("undecided: 4 more runs on each side (+1"), "{}", send.words);
    assert!(few.notes.iter().any(|note| note.contains("4 more of A and 4 more of B")), "{:?}", few.notes);
    // Enough runs on one side do not make up for few on the other.
    let many: Vec<StoredRun> = (0..6).map(|index| write_run(&format!("m{index}"), 2.0).remove(0)).collect();
    assert_eq!(compare(&many, &slow, 0.03).unwrap().runs_missing, (0, 4));
    assert!(!compare(&many, &many, 0.03).unwrap().has_too_few_runs());
}

#[test]
fn a_machine_that_became_slower_is_not_blamed_on_the_program() {
    let mut machine = Machine(fastrand::Rng::with_seed(4));
    let (_a, first) = side(&mut machine, 6, 2.0);
    let folder = tempfile::tempdir().unwrap();
    for index in 0..6 {
        let times: Vec<_> = machine.times(2.0).into_iter().map(|(name, us)| (name, us * 1.2)).collect();
        write(folder.path(), &format!("{index:03}"), "abc", &times);
    }
    let comparison = compare(&first, &runs(folder.path()).unwrap().runs, 0.03).unwrap();
    assert!(comparison.moved_together, "{comparison:?}");
    assert!(comparison.notes.iter().any(|note| note.contains("the machine has probably changed")));
}

#[test]
fn a_planted_slowdown_of_one_subsystem_is_found_among_a_hundred_revisions() {
    throng_seeds::for_seeds(10, |seed| {
        let mut machine = Machine(fastrand::Rng::with_seed(seed));
        let folder = tempfile::tempdir().unwrap();
        let slow_from = 20 + (seed as usize * 7) % 60;
        for index in 0..100 {
            let send = if index < slow_from { 2.0 } else { 2.1 };
            write(folder.path(), &format!("{index:03}"), &format!("r{index:03}"), &machine.times(send));
        }
        let trends =
            trend(&runs(folder.path()).unwrap().runs, &TrendOptions::default(), &AtomicBool::new(false)).unwrap();
        assert_eq!((trends.len(), trends[0].revisions.len(), trends[0].runs), (1, 100, 100));
        let [change] = &trends[0].changes[..] else { panic!("{:?}", trends[0].changes) };
        assert!(change.part == "send" && change.is_worse, "{change:?}");
        let number = |revision: &str| revision[1..].parse::<usize>().unwrap();
        assert!(number(&change.last_before) < slow_from && slow_from <= number(&change.first_after), "{change:?}");
        assert!(number(&change.first_after) - number(&change.last_before) <= 15, "{change:?}");
        assert!(change.words().starts_with("send: +"), "{}", change.words());
    });
}

#[test]
fn a_run_against_itself_says_no_change_and_against_its_copy_that_more_runs_are_needed() {
    let folder = tempfile::tempdir().unwrap();
    let run = runs(&write(folder.path(), "1", "a", &[("send", 1.0), ("write", 2.0)])).unwrap().runs;
    let comparison = compare(&run, &run, 0.03).unwrap();
    assert!(!comparison.has_too_few_runs() && comparison.parts.len() >= 2, "{comparison:?}");
    for part in &comparison.parts {
        assert_eq!((&part.verdict[..], part.ratio), ("no change", Some(1.0)), "{part:?}");
    }
    assert!(comparison.notes[0].contains("the same runs"));
    let copy = runs(&write(folder.path(), "2", "a", &[("send", 1.0), ("write", 2.0)])).unwrap().runs;
    assert!(compare(&run, &copy, 0.03).unwrap().has_too_few_runs());
}

#[test]
fn runs_that_cannot_be_compared_are_refused_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let error = |result: Result<Found, HistoryError>| {
        let error = result.unwrap_err();
        assert!(!error.to_string().contains('\n'));
        (error.tag(), error.to_string())
    };
    assert_eq!(error(runs(folder.path())).0, "nothing");
    assert_eq!(error(runs(&folder.path().join("none"))).0, "read");
    let bad = folder.path().join("bad");
    fs::create_dir_all(&bad).unwrap();
    for text in ["{", "[1]"] {
        fs::write(bad.join("summary.json"), text).unwrap();
        assert_eq!(error(runs(&bad)).0, "malformed");
    }
    RunFile::write(&bad, &RunHead::default()).unwrap();
    fs::write(bad.join(FRAMES_FILE), "PAR1").unwrap();
    let (tag, words) = error(runs(&bad));
    assert!(tag == "frames" && words.contains(FRAMES_FILE), "{words}");
    let first = runs(&write(folder.path(), "1", "a", &[("send", 1.0)])).unwrap().runs;
    let mut other = first.clone();
    other[0].workload = "dense 100".to_owned();
    assert!(compare(&first, &other, 0.03).unwrap_err().to_string().contains("only runs of one workload"));
    other[0].is_valid = false;
    assert!(compare(&first, &other, 0.03).unwrap_err().to_string().contains("no valid run"));
    assert!(trend(&other, &TrendOptions::default(), &AtomicBool::new(false)).is_err());
}

/// A repository of 30 revisions whose program prints its time. From the revision `slow_from` on it takes a tenth longer.
/// Revision 20 cannot be measured.
fn repository(slow_from: usize) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let git = |arguments: &[&str]| {
        let identity = ["-c", "user.name=n", "-c", "user.email=e@example.com", "-c", "commit.gpgsign=false"];
        let mut git = Command::new("git");
        let git = bisect::at_home(&mut git).arg("-C").arg(folder.path());
        let output = git.args(identity).args(arguments).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    git(&["init", "--quiet", "--initial-branch=main"]);
    for index in 0..30 {
        let ms = if index < slow_from { 100 } else { 110 };
        // A few last digits differ from run to run.
        let script = match index {
            20 => "echo broken >&2; exit 1".to_owned(),
            _ => format!("echo '{{\"frame_ms\": {{\"p50\": {ms}.'$(($$ % 10))'}}}}' # {index}"),
        };
        fs::write(folder.path().join("bench.sh"), script).unwrap();
        git(&["add", "-A"]);
        git(&["commit", "--quiet", "-m", &format!("revision {index}")]);
        git(&["tag", &format!("v{index}")]);
    }
    folder
}

fn options(repository: &Path) -> BisectOptions {
    BisectOptions {
        repository: repository.to_owned(),
        good: "v0".to_owned(),
        bad: "v29".to_owned(),
        build: "test -f bench.sh".to_owned(),
        run: "sh bench.sh".to_owned(),
        metric: "frame_ms.p50".to_owned(),
        repeats: 5,
        patience: Duration::from_secs(20),
        note: |_| (),
    }
}

#[test]
fn the_revision_that_made_it_slower_is_found_even_beside_a_broken_one() {
    for slow_from in [1, 13, 21, 29] {
        let repository = repository(slow_from);
        let found = bisect(&options(repository.path()), &AtomicBool::new(false)).unwrap();
        assert_eq!(found.subject, format!("revision {slow_from}"), "{found:?}");
        assert!((found.ratio - 1.1).abs() < 0.02 && found.tried.len() <= 8, "{found:?}");
        // The broken revision may be the one that did it.
        assert_eq!(found.between.len(), usize::from(slow_from == 21), "{found:?}");
        assert!(found.certainty.contains("higher"), "{found:?}");
        let trees = Command::new("git").arg("-C").arg(repository.path()).args(["worktree", "list"]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&trees.stdout).lines().count(), 1, "the work tree is gone");
    }
}

#[test]
fn a_bisection_without_a_difference_or_with_wrong_revisions_says_so() {
    let repository = repository(30);
    let said = |options: &BisectOptions| format!("{:#}", bisect(options, &AtomicBool::new(false)).unwrap_err());
    let same = options(repository.path());
    assert!(said(&same).contains("do not differ beyond noise"), "{}", said(&same));
    let cases = [
        (BisectOptions { bad: "v99".to_owned(), ..same.clone() }, "there is no revision \"v99\""),
        (BisectOptions { good: "v29".to_owned(), bad: "v0".to_owned(), ..same.clone() }, "is not before"),
        (BisectOptions { good: "--help".to_owned(), ..same.clone() }, "is no revision"),
        (BisectOptions { metric: "frame_ms.p99".to_owned(), ..same.clone() }, "no number at frame_ms.p99"),
        (BisectOptions { build: "echo no compiler >&2; false".to_owned(), ..same.clone() }, "no compiler"),
        (
            BisectOptions { patience: Duration::ZERO, run: "sleep 5".to_owned(), ..same.clone() },
            "it was ended after 0 s",
        ),
        (BisectOptions { repeats: 2, ..same }, "fewer than 5 runs"),
    ];
    for (options, part) in cases {
        assert!(said(&options).contains(part), "{part}: {}", said(&options));
    }
}

#[test]
fn an_interrupted_bisection_blames_nobody_and_tells_what_it_knows() {
    static STOP: AtomicBool = AtomicBool::new(false);
    let repository = repository(1);
    // Both ends are measured. The next of five revisions is interrupted.
    let note = |line: &str| STOP.store(line.contains(", bad; about"), Ordering::Relaxed);
    let options = BisectOptions { bad: "v4".to_owned(), note, ..options(repository.path()) };
    let found = bisect(&options, &STOP).unwrap();
    assert!(found.partial && found.tried.len() == 2 && found.between.len() == 3, "{found:?}");
    assert!(found.certainty.contains("higher") && (found.ratio - 1.1).abs() < 0.02, "{found:?}");
    // Before both ends are measured there is nothing to tell.
    let error = format!("{:#}", bisect(&options, &AtomicBool::new(true)).unwrap_err());
    assert!(error.contains("the good revision") && error.contains("interrupted"), "{error}");
}

#[test]
fn a_bisection_says_after_each_revision_how_much_is_left() {
    static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let repository = repository(13);
    let note = |line: &str| LINES.lock().unwrap().push(line.to_owned());
    bisect(&BisectOptions { note, ..options(repository.path()) }, &AtomicBool::new(false)).unwrap();
    let lines = LINES.lock().unwrap();
    assert_eq!(lines[0], "30 revisions: about 7 are measured");
    assert!(lines[1].ends_with("it is built") && lines[2].ends_with("run 1 of 5"), "{lines:?}");
    let left = lines.iter().filter(|line| line.contains("; about ")).collect::<Vec<_>>();
    assert!((5..=8).contains(&left.len()), "{left:?}");
    assert!(left.last().is_some_and(|line| line.ends_with("about 0.0 min left")), "{left:?}");
}

#[test]
fn parts_of_one_side_alone_are_named_and_growth_from_zero_is_growth() {
    let runs_with = |parts: &[(&str, f64)]| {
        let folder = tempfile::tempdir().unwrap();
        for index in 0..6 {
            write(folder.path(), &format!("{index:03}"), "abc", parts);
        }
        (runs(folder.path()).unwrap().runs, folder)
    };
    let (first, _a) = runs_with(&[("send", 2.0), ("seal", 0.0), ("gone", 1.0)]);
    let (second, _b) = runs_with(&[("send", 2.0), ("seal", 0.5), ("new", 1.0)]);
    let compared = compare(&first, &second, 0.03).unwrap();
    let words = |name: &str| compared.parts.iter().find(|part| part.name == name).unwrap().words.clone();
    assert_eq!((&*words("gone"), &*words("new")), ("only in the first side", "only in the second side"));
    assert_eq!((verdict(&compared, "seal"), &*words("seal")), ("slower", "higher, from zero"));
    let text = serde_json::to_string(&compared).unwrap();
    assert!(serde_json::from_str::<Comparison>(&text).is_ok(), "{text}");
    // Growth from zero in some of the runs alone has one bound.
    let folder = tempfile::tempdir().unwrap();
    for index in 0..6 {
        let seal = if index < 3 { 0.0 } else { 0.5 };
        write(folder.path(), &format!("{index:03}"), "abc", &[("send", 2.0), ("seal", seal), ("gone", 1.0)]);
    }
    let some = compare(&runs(folder.path()).unwrap().runs, &second, 0.03).unwrap();
    assert_eq!(some.parts.iter().find(|part| part.name == "seal").unwrap().interval, None);
    let text = serde_json::to_string(&some).unwrap();
    assert!(serde_json::from_str::<Comparison>(&text).is_ok(), "{text}");
}

#[test]
fn a_run_is_what_its_head_says_and_a_comparison_is_no_run() {
    let folder = tempfile::tempdir().unwrap();
    let stored = |kind: Kind, figures: Value| {
        let head = RunHead { workload: "ai by search".to_owned(), ..RunHead::example(kind) };
        RunFile::write(folder.path(), &head.with(figures)).unwrap();
        StoredRun::read(folder.path()).unwrap()
    };
    let run = stored(Kind::Capacity, json!({ "kept": 100, "server": { "frame_ms": { "p50": 1.0 } } })).unwrap();
    assert_eq!((&run.workload[..], &run.revision[..], run.is_valid), ("ai by search", "0123456789ab", false));
    assert_eq!((&run.cpu[..], &run.started_at[..]), ("Example CPU @ 3.0 GHz", "2026-01-31T12:00:00Z"));
    assert_eq!(run.parts.keys().collect::<Vec<_>>(), ["capacity"], "a crowd's figure is none of a capacity's");
    let mut sly = RunHead { workload: "\u{1b}[2Jai".to_owned(), ..RunHead::example(Kind::Crowd) };
    sly.environment.cpu = "\u{9b}2J".to_owned();
    let names = json!({ "server": { "us_per_connection": { "send": 1.0, "\u{1b}[2J": 2.0 } } });
    RunFile::write(folder.path(), &sly.with(names)).unwrap();
    let read = StoredRun::read(folder.path()).unwrap().unwrap();
    assert_eq!((&*read.workload, &*read.cpu), ("?[2Jai", "?2J"), "no terminal obeys it");
    assert_eq!(read.parts.keys().collect::<Vec<_>>(), ["send"]);
    assert_eq!(stored(Kind::Comparison, json!({})), None);
    let models = stored(Kind::Models, json!({ "advantages": { "throng": { "outgoing": 5.0 } } })).unwrap();
    assert_eq!((models.workload.as_str(), models.parts.len()), ("ai by search", 0));
    assert_eq!(runs(folder.path()).unwrap_err().tag(), "nothing", "it is listed, and has nothing to compare");
    let models = StoredRun { is_valid: true, ..models };
    assert_eq!(trend(&[models], &TrendOptions::default(), &AtomicBool::new(false)).unwrap_err().tag(), "nothing");
}

#[test]
fn a_run_is_a_line_of_an_index_and_a_damaged_line_is_no_run() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = StoredRun::read(&write(folder.path(), "007", "abc", &[("send", 2.0)])).unwrap().unwrap();
    run.parts.insert("odd".to_owned(), Part { value: f64::NAN, ..Part::default() });
    let line = run.to_line();
    let read = StoredRun::from_line(&line).unwrap();
    assert_eq!((read.name(), read.revision.as_str(), read.is_valid), ("007".to_owned(), "abc", true));
    assert_eq!(read.parts["send"].value, 2.0);
    assert_eq!(read.parts.len() + 1, run.parts.len(), "what is no number is left out");
    throng_seeds::for_seeds(20, |seed| {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut bytes = line.clone().into_bytes();
        let place = random.usize(..bytes.len());
        bytes[place] = random.u8(..);
        // It may still be a line; it never is one that a terminal obeys.
        if let Some(run) = StoredRun::from_line(&String::from_utf8_lossy(&bytes)) {
            assert!(![&run.workload, &run.revision, &run.cpu].iter().any(|text| text.contains(char::is_control)));
        }
    });
    for end in [0, 1, line.len() / 2, line.len() - 1] {
        assert_eq!(StoredRun::from_line(&line[..end]), None);
    }
    let sly = line.replace("abc", "\\u001b[2J");
    assert_eq!(StoredRun::from_line(&sly).unwrap().revision, "?[2J");
}

#[test]
fn a_folder_of_too_many_runs_loses_its_oldest_ones_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let mut head = serde_json::to_value(RunHead::default()).unwrap();
    head["server"] = json!({ "us_per_connection": { "send": 2.0 } });
    let head = head.to_string();
    for index in 0..RUNS_MAX + 3 {
        let run = folder.path().join(format!("{index:05}"));
        fs::create_dir(&run).unwrap();
        fs::write(run.join("summary.json"), if index == 7 { "{" } else { &head }).unwrap();
    }
    fs::create_dir(folder.path().join("99999-no-run")).unwrap();
    let found = runs(folder.path()).unwrap();
    assert_eq!((found.runs.len(), found.damaged.len(), found.not_read), (RUNS_MAX - 1, 1, 3));
    assert_eq!((found.runs[0].name(), found.runs[RUNS_MAX - 2].name()), ("00003".to_owned(), "10002".to_owned()));
    let notes = found.notes();
    assert_eq!(notes[0], "1 of 10003 runs are left out, because they are damaged");
    assert!(notes[1].contains("00007/summary.json"), "{notes:?}");
    assert_eq!(notes[2], "3 of 10003 runs are left out, the oldest by name: at most 10000 are read");
}

/// As in a hook of git, which runs with the variables of its own repository. The test is the parent of a process that has them.
#[test]
fn variables_that_lead_git_to_another_repository_are_not_passed_on() {
    let variables = ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"].map(|name| (name, "/nowhere"));
    if std::env::var_os("GIT_DIR").is_none_or(|value| value != "/nowhere") {
        let name = "tests::variables_that_lead_git_to_another_repository_are_not_passed_on";
        let mut again = Command::new(std::env::current_exe().unwrap());
        let output = again.args(["--exact", name]).envs(variables).output().unwrap();
        let told = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && told.contains("1 passed"), "{told}");
        return;
    }
    let repository = repository(13);
    let look = "git diff --quiet && git log -1 --format= && test -z \"$GIT_DIR$GIT_WORK_TREE$GIT_INDEX_FILE\"";
    let options =
        BisectOptions { build: look.to_owned(), run: format!("{look} && sh bench.sh"), ..options(repository.path()) };
    let found = bisect(&options, &AtomicBool::new(false)).unwrap();
    assert!(found.subject.ends_with("revision 13"), "{found:?}");
}

#[test]
fn a_command_that_prints_without_end_is_ended_and_the_end_of_its_words_is_told() {
    let repository = repository(1);
    let of = |build: &str, run: &str| {
        let options = BisectOptions {
            build: build.to_owned(),
            run: run.to_owned(),
            patience: Duration::from_secs(60),
            ..options(repository.path())
        };
        format!("{:#}", bisect(&options, &AtomicBool::new(false)).unwrap_err())
    };
    let zeros = "head -c 80000000 /dev/zero";
    for (build, run) in [("", zeros), (&*format!("{zeros} >&2"), "true"), ("", "yes"), ("yes >&2", "true")] {
        let words = of(build, run);
        assert!(words.contains("it printed more than 64 MB"), "{build:?} {run:?}: {words}");
    }
    let words = of("seq 1000000 >&2; printf 'no \\033[2Jcompiler\\n\\n' >&2; false", "true");
    assert!(words.ends_with("no  [2Jcompiler"), "{words}");
}

#[test]
fn a_part_of_more_than_a_hundredth_of_the_frame_matters() {
    let folder = tempfile::tempdir().unwrap();
    let mut random = fastrand::Rng::with_seed(3);
    let mut side = |name: &str, settle: f64| {
        for index in 0..10 {
            let path = folder.path().join(name).join(index.to_string());
            fs::create_dir_all(&path).unwrap();
            let mut value = |us: f64| us * (0.995 + 0.01 * random.f64());
            let (settle, send) = (value(settle), value(98.5));
            let head = RunHead { valid: true, ..RunHead::default() };
            let of = json!({ "settle": settle, "send": send, "total": settle + send });
            RunFile::write(&path, &head.with(json!({ "server": { "us_per_connection": of } }))).unwrap();
        }
        runs(&folder.path().join(name)).unwrap().runs
    };
    let found = compare(&side("a", 1.5), &side("b", 1.9), 0.03).unwrap();
    assert_eq!(found.worse().map(|part| part.name.as_str()).collect::<Vec<_>>(), ["settle"], "{found:?}");
    let small = compare(&side("c", 0.5), &side("d", 0.9), 0.03).unwrap();
    assert_eq!(small.worse().count(), 0, "{small:?}");
}
