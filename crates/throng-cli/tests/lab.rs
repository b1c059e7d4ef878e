//! `throng lab` as its users run it, with a shell as the server.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use throng_capacity::Load;
use throng_report::{RunFile, RunHead};

use crate::lines::throng;

/// The command of a built-in load has printed `figures`: all that the load file names is in it.
pub(crate) fn has_samples_of(load: &str, figures: &Value) {
    let load = Load::resolve(load).expect("it is built in");
    if let Err(missing) = load.judge(figures) {
        panic!("scenarios/loads/{}.toml does not fit: {missing}", load.name);
    }
    let (memory_bytes, cores) = (load.memory_bytes(figures), load.cores(figures));
    assert!(memory_bytes.is_some() && cores.is_some(), "{}: {memory_bytes:?}, {cores:?}", load.name);
}

fn lab(arguments: &[&str], folder: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_throng"));
    command.arg("lab").args(arguments).current_dir(folder).output().expect("the program starts")
}

/// A load that uses `at_400` of its processor at 400 clients.
pub(crate) fn load_file(folder: &Path, at_400: f64) {
    let script = format!(
        r#"awk -v n={{amount}} 'BEGIN {{ printf "{{\"cpu\": ["; for (i = 0; i < 40; i++) printf "%s%.4f", (i ? "," : ""), {at_400} * n / 400.5 + (i % 2) * 0.0001; print "]}}" }}'"#
    );
    let text = format!(
        "about = \"a shell\"\nunit = \"clients\"\ncommand = [\"sh\", \"-c\", '''{script}''', \"shell\"]\nstart = 50\n\
         most = 5000\nsimulated = true\nno_faults = [\"throttled\"]\n[[limits]]\nname = \"cpu\"\nabout = \"share\"\nat_most = 0.85\nlevel = \"cpu\"\n"
    );
    fs::write(folder.join("shell.toml"), text).expect("it can be written");
}

/// The folders in a folder, without its files.
pub(crate) fn folders(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path).expect("there are runs").flatten().map(|entry| entry.path());
    entries.filter(|path| path.is_dir()).collect()
}

#[test]
fn ones_own_server_is_searched_and_leaves_its_figures() {
    let folder = tempfile::tempdir().expect("there is a temporary folder");
    load_file(folder.path(), 0.85);
    let search = ["search", "shell.toml", "--hold", "1s", "--confirm", "2s", "--json", "--", "one more argument"];
    let output = lab(&search, folder.path());
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let figures: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(figures["kept"].as_u64().is_some_and(|kept| (394..=400).contains(&kept)), "{figures:#}");
    crate::schema::check("capacity", &figures);
    assert_eq!((&figures["verdict"], &figures["limited_by"]), (&"accepted".into(), &"cpu".into()));
    // Its progress is on the side.
    assert!(String::from_utf8_lossy(&output.stderr).contains("(confirm beyond)"));
    let runs = folders(&folder.path().join("runs"));
    assert_eq!(runs.len(), 1);
    for file in ["summary.json", "trials.jsonl", "samples.jsonl", "report.html"] {
        assert!(runs[0].join(file).is_file(), "no {file}");
    }
    // A limit of the command line counts instead.
    let output =
        lab(&["step", "shell.toml", "--hold", "1s", "--step", "100", "--cpu", "42.5", "--json", "-q"], folder.path());
    let figures: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(figures["kept"].as_u64().is_some_and(|kept| (197..=200).contains(&kept)), "{figures:#}");
    assert!(output.stderr.is_empty());
}

#[test]
fn given_loads_are_held_with_a_curve_and_a_file_for_the_build_server() {
    let folder = tempfile::tempdir().expect("there is a temporary folder");
    load_file(folder.path(), 0.85);
    let files = ["--junit", "limits.xml", "--markdown", "limits.md"];
    let holds = [&["run", "shell.toml", "--hold", "1s", "--amounts", "100,200,300", "-q"], &files[..]].concat();
    let output = lab(&holds, folder.path());
    let table = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{table}");
    assert!(table.contains("all holds keep all limits"), "{table}");
    let growth = table.lines().find(|line| line.starts_with("cpu ") && line.contains(" 300 "));
    assert!(growth.is_some_and(|line| line.matches("63.").count() == 2), "forecast and measured: {table}");
    let xml = fs::read_to_string(folder.path().join("limits.xml")).expect("it is written");
    assert!(xml.contains("tests=\"4\" skipped=\"0\" failures=\"0\"") && xml.contains("trial 2: cpu"), "{xml}");
    let markdown = fs::read_to_string(folder.path().join("limits.md")).expect("it is written");
    assert!(markdown.contains("accepted: all holds keep all limits"), "{markdown}");
    // The table of `throng report` is that of a crowd: nothing is written before that is said.
    let run = folders(&folder.path().join("runs")).remove(0);
    fs::remove_file(run.join("report.html")).expect("it is written");
    let output = throng(&["report", run.to_str().expect("a plain path"), "--table"]);
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && words.contains("capacity") && words.contains("crowd"), "{words}");
    assert!(!run.join("report.html").exists() && output.stdout.is_empty());
    assert_eq!(
        markdown.lines().filter(|line| line.starts_with("| ")).count(),
        6,
        "a head and three trials, a head and a row of growth: {markdown}"
    );
    let output = lab(&[&holds[..], &["--amounts", "500", "--cpu", "85"]].concat(), folder.path());
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    // Limits of the samples judge each hold, and those of the answer judge it afterwards.
    let once = ["run", "shell.toml", "--hold", "1s", "--amounts", "100", "-q"];
    let output = lab(&[&once[..], &["--limit", "cpu<=0.9", "--limit", "wall_s<=0.001"]].concat(), folder.path());
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(4) && words.contains("wall_s") && !words.contains("cpu<="), "{words}");
    let xml = fs::read_to_string(folder.path().join("limits.xml")).expect("it is written");
    assert!(xml.contains("tests=\"5\" skipped=\"0\" failures=\"1\"") && xml.contains("), at most 85 %"), "{xml}");
}

#[test]
fn a_server_that_carries_nothing_is_a_result_and_a_mistake_is_one_line() {
    let folder = tempfile::tempdir().expect("there is a temporary folder");
    load_file(folder.path(), 4_000.0);
    let output = lab(&["search", "shell.toml", "--hold", "1s", "-q"], folder.path());
    let table = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(4), "{table}");
    assert!(table.contains("no load keeps the limits"), "{table}");
    for (arguments, part) in [
        (["search", "crowds", "--hold", "1s"], "use one of ai, match, crowd, gateway"),
        (["search", "shell.toml", "--hold", "5"], "write it as 90s"),
        (["search", "shell.toml", "--limit", "memory<=2"], "only cpu"),
        (["search", "shell.toml", "--limit", "cpu>=0.1"], "have an upper limit alone"),
        (["step", "shell.toml", "--start=9000", "--most=10"], "--start 9000 is above --most 10"),
    ] {
        let output = lab(&arguments, folder.path());
        let words = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words}");
        assert!(words.contains(part) && !words.contains("panicked"), "{words}");
    }
}

pub(crate) fn a_soak_tells_growing_memory_from_steady_memory() {
    let folder = tempfile::tempdir().expect("there is a temporary folder");
    // It gets 262 kB more each 0.2 s: gigabytes in a day.
    // The process that grows starts no other one: a copy of it would count twice for a moment.
    let grows = r#"timeout {seconds} sh -c "while :; do head -c 200000 /dev/zero; echo; sleep 0.2; done" | sort -S 512M >/dev/null"#;
    for (name, script) in [("steady", "sleep {seconds}"), ("grows", grows)] {
        let text = format!(
            "about = \"a shell\"\nunit = \"clients\"\ncommand = [\"sh\", \"-c\", '''{script}; echo '{{\"cpu\": [0.1, 0.1]}}' # {{amount}}''']\n\
             start = 50\nmost = 50\naround_seconds = 60\nno_faults = [\"throttled\"]\n[[limits]]\nname = \"cpu\"\nabout = \"share\"\nat_most = 0.85\n\
             level = \"cpu\"\n"
        );
        fs::write(folder.path().join(format!("{name}.toml")), text).expect("it can be written");
    }
    let soak = |name: &str| {
        let file = format!("{name}.toml");
        let output =
            lab(&["soak", &file, "--hours", "0.006", "--json", "-q", "--runs", &format!("runs-{name}")], folder.path());
        let figures: Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
        (output.status.code(), figures)
    };
    let (steady, grows) = std::thread::scope(|scope| {
        let steady = scope.spawn(|| soak("steady"));
        let grows = soak("grows");
        (steady.join().expect("it ends"), grows)
    });
    let of = |figures: &Value, name: &str| -> Value {
        let all = figures["memory"].as_array().expect("a list");
        all.iter().find(|of| of["name"] == name).unwrap_or_else(|| panic!("no {name}: {figures:#}")).clone()
    };
    let (_, figures) = steady;
    assert_eq!(of(&figures, "sleep")["verdict"], "accepted", "{figures:#}");
    assert!(of(&figures, "throng lab")["bytes"].as_f64().is_some_and(|bytes| bytes > 1e6), "{figures:#}");
    let (code, figures) = grows;
    assert_eq!((code, &figures["verdict"]), (Some(4), &"rejected".into()), "{figures:#}");
    assert!(figures["why"].as_str().is_some_and(|why| why.contains("sort")), "{figures:#}");
    let growth = of(&figures, "sort")["bytes_per_hour"].as_f64().expect("a number");
    // 1 MB/s, or less on a busy machine.
    assert!((5e8..5e9).contains(&growth), "{figures:#}");
    let runs = folders(&folder.path().join("runs-grows"));
    let lines = fs::read_to_string(runs[0].join("memory.jsonl")).expect("samples");
    assert!(lines.lines().count() >= 16 && lines.lines().all(|line| line.contains("\"throng lab\"")), "{lines}");
}

pub(crate) fn a_measurement_goes_on_when_its_files_cannot_be_written() {
    let folder = tempfile::tempdir().expect("there is a temporary folder");
    load_file(folder.path(), 0.85);
    // No file can have a byte.
    let output = Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 0; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_throng"), "lab"])
        .args(["run", "shell.toml", "--hold", "1s", "--amounts", "100", "-q"])
        .current_dir(folder.path())
        .output()
        .expect("the program starts");
    let (table, words) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{table}{words}");
    assert!(
        table.contains("all holds keep all limits") && table.contains("trials.jsonl is not whole"),
        "{table}{words}"
    );
    assert!(words.contains("trials.jsonl is not whole"), "{words}");
}

/// Six runs whose `send` takes so long; the machine wobbles by 1 %.
fn runs(folder: &Path, name: &str, send_us: f64) {
    for index in 0..6 {
        let run = folder.join(name).join(format!("20260131-12000{index}-crowd"));
        fs::create_dir_all(&run).expect("it can be made");
        let wobble = 1.0 + 0.002 * f64::from(index);
        let started_at = format!("2026-01-31T12:00:0{index}Z");
        let mut head = RunHead { revision: format!("{name}{index}"), valid: true, started_at, ..RunHead::default() };
        head.environment.cpu = "a | cpu".to_owned();
        let figures = serde_json::json!({
            "server": { "us_per_connection": { "send": send_us * wobble, "encode": 0.8 * wobble } },
        });
        RunFile::write(&run, &head.with(figures)).expect("it can be written");
    }
}

#[test]
fn two_sides_of_runs_are_compared_in_words_as_a_table_and_as_a_gate() {
    let folder = tempfile::tempdir().expect("there is a temporary folder");
    runs(folder.path(), "before", 2.0);
    runs(folder.path(), "after", 2.2);
    let compare = |arguments: &[&str]| {
        let output = lab(&[&["compare"], arguments].concat(), folder.path());
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let (code, text) = compare(&["before", "after"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(
        text.contains("send") && text.contains("slower: 10.0 % higher") && text.ends_with("worse: send\n"),
        "{text}"
    );
    assert_eq!(compare(&["before", "after", "--gate"]).0, Some(4));
    assert_eq!(compare(&["after", "before", "--gate"]).0, Some(0));
    let (code, few) = compare(&["before/20260131-120000-crowd", "after/20260131-120000-crowd", "--gate"]);
    assert!(code == Some(3) && few.contains("undecided: 4 more runs on each side"), "{few}");
    assert!(few.contains("\nundecided: too few runs\n") && few.contains("4 more of A and 4 more of B"), "{few}");
    let (code, same) = compare(&["before", "before", "--gate"]);
    assert!(code == Some(0) && same.contains("nothing became worse"), "{same}");
    let (_, markdown) = compare(&["before", "after", "--markdown"]);
    assert!(markdown.starts_with("**worse: send**") && markdown.contains("| send | 2.010 | 2.211 |"), "{markdown}");
    let (_, text) = compare(&["before", "after", "--json"]);
    let json: Value = serde_json::from_str(&text).expect("JSON");
    crate::schema::check("comparison", &json);
    assert_eq!((&json["values"], &json["parts"][0]["verdict"]), (&"runs".into(), &"slower".into()), "{json:#}");
    for (arguments, part) in [(["before", "nowhere"], "nowhere"), (["before", "."], "has no run")] {
        let output = lab(&[&["compare"][..], &arguments].concat(), folder.path());
        let words = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && words.contains(part), "{words}");
    }
    let output = lab(&["trend", "before"], folder.path());
    assert!(String::from_utf8_lossy(&output.stdout).contains("6 revisions, 6 runs\n  no change"), "{output:?}");
}

#[test]
fn damaged_runs_are_left_out_and_named_and_the_others_are_compared() {
    let folder = tempfile::tempdir().expect("there is a temporary folder");
    runs(folder.path(), "before", 2.0);
    runs(folder.path(), "after", 2.2);
    let before = folder.path().join("before");
    fs::write(before.join("20260131-120001-crowd/frames.parquet"), "PAR1").expect("it can be written");
    fs::write(before.join("20260131-120004-crowd/summary.json"), "{\"scenario\": \"cro").expect("it can be written");
    let said = |arguments: &[&str]| {
        let output = lab(arguments, folder.path());
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let (code, text, notes) = said(&["trend", "before"]);
    assert!(code == Some(0) && text.contains("4 revisions, 4 runs"), "{code:?} {text}{notes}");
    for part in ["2 of 6 runs are left out", "20260131-120001-crowd/frames.parquet", "20260131-120004-crowd"] {
        assert!(notes.contains(part), "no {part}: {notes}");
    }
    let (code, text, _) = said(&["compare", "before", "after", "--json"]);
    let json: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!((code, &json["runs"]), (Some(0), &serde_json::json!([4, 6])), "{json:#}");
    let of = |notes: &Value| {
        notes.as_array().is_some_and(|notes| {
            notes.iter().any(|note| note.as_str().is_some_and(|note| note.contains("2 of 6 runs are left out")))
        })
    };
    assert!(of(&json["notes"]), "{json:#}");
    // Nothing is left to compare.
    for index in 0..6 {
        let summary = before.join(format!("20260131-12000{index}-crowd/summary.json"));
        fs::write(summary, "").expect("it can be written");
    }
    let (code, _, words) = said(&["trend", "before"]);
    assert!(code == Some(2) && words.contains("none of the 6 runs") && words.contains("measure again"), "{words}");
    assert_eq!(words.lines().count(), 1, "{words}");
}

#[test]
fn a_file_or_folder_that_cannot_be_written_is_found_before_the_run() {
    let folder = tempfile::tempdir().expect("there is a temporary folder");
    load_file(folder.path(), 0.85);
    let holds = ["run", "shell.toml", "--hold", "1s", "--amounts", "100", "-q", "--junit"];
    let output = lab(&[&holds[..], &["nowhere/limits.xml"]].concat(), folder.path());
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && words.contains("--junit nowhere/limits.xml"), "{words}");
    let output = lab(&["run", "shell.toml", "--hold", "1s", "-q", "--runs", "shell.toml"], folder.path());
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && words.contains("cannot write shell.toml"), "{words}");
    assert!(!folder.path().join("runs").exists(), "it was measured");
}

#[cfg(target_os = "linux")]
#[test]
fn a_file_for_the_build_server_on_a_full_disk_takes_neither_table_nor_page() {
    let folder = tempfile::tempdir().expect("there is a temporary folder");
    load_file(folder.path(), 0.85);
    let holds = ["run", "shell.toml", "--hold", "1s", "--amounts", "100", "--junit", "/dev/full"];
    let output = lab(&holds, folder.path());
    let (table, words) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.code() == Some(1) && words.contains("/dev/full"), "{words}");
    assert!(table.contains("all holds keep all limits"), "{table}{words}");
    assert!(folders(&folder.path().join("runs"))[0].join("report.html").is_file());
}

#[test]
fn a_load_runs_on_the_cores_of_the_command_line() {
    let folder = tempfile::tempdir().expect("there is a temporary folder");
    load_file(folder.path(), 0.85);
    let pinned = fs::read_to_string(folder.path().join("shell.toml")).expect("it is there");
    let pinned = pinned.replace("awk -v", "echo {cores} >cores; awk -v");
    fs::write(folder.path().join("pinned.toml"), pinned).expect("it can be written");
    let own = core_affinity::get_core_ids().unwrap_or_default();
    let (first, last) = (own[0].id.to_string(), own[own.len() - 1].id.to_string());
    for (cores, expected) in [(&["--cores", &first][..], &first), (&[], &last)] {
        let run = [&["run", "pinned.toml", "--hold", "1s", "--amounts", "100", "-q", "--json"], cores].concat();
        let output = lab(&run, folder.path());
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(fs::read_to_string(folder.path().join("cores")).expect("it ran").trim(), expected);
        let figures: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(figures["arguments"], serde_json::json!(cores));
        assert!(
            figures["settings"]["command"][2].as_str().is_some_and(|text| text.contains(&format!("echo {expected} ")))
        );
    }
    for (cores, words) in [(&first[..], "has no {cores}"), ("1023", "may not use core 1023"), ("x", "0,2-3")] {
        let output = lab(&["run", "shell.toml", "--cores", cores, "-q"], folder.path());
        assert_eq!(output.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&output.stderr).contains(words), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn limits_in_per_cent_are_refused_for_samples_that_have_a_unit() {
    let folder = tempfile::tempdir().expect("a folder");
    load_file(folder.path(), 0.85);
    let file = folder.path().join("shell.toml");
    let text =
        fs::read_to_string(&file).expect("it is there").replace("at_most = 0.85", "unit = \"ms\"\nat_most = 0.85");
    fs::write(&file, text).expect("it can be written");
    let hold = ["run", "shell.toml", "--amounts", "100", "--hold", "1s", "-q"];
    let output = lab(&[&hold[..], &["--cpu", "70"]].concat(), folder.path());
    let words = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{words}");
    assert!(words.contains("the limit cpu of shell is in ms: use --limit 'cpu<=N'"), "{words}");
    let output = lab(&[&hold[..], &["--limit", "cpu<=0.7"]].concat(), folder.path());
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn given_loads_have_no_largest_load() {
    let folder = tempfile::tempdir().expect("there is a temporary folder");
    load_file(folder.path(), 0.85);
    for arguments in [&["run", "shell.toml", "--hold=1s"][..], &["soak", "shell.toml", "--hours=0.001"]] {
        let output = lab(&[arguments, &["--most", "100"]].concat(), folder.path());
        let words = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && words.contains("--most"), "{output:?}");
    }
}
