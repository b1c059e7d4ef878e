//! `throng scale` as its users run it.

use std::fs;
use std::process::{Command, Output};

use serde_json::Value;

fn scale(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_throng")).arg("scale").args(arguments).output().expect("the program starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn the_printed_file_gives_the_same_forecast_and_more_players_need_more() {
    let printed = scale(&["--print"]);
    assert!(printed.status.success());
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("mine.toml");
    fs::write(&file, &printed.stdout).unwrap();
    let path = file.to_str().unwrap();
    let built_in = scale(&["--players", "20000", "--json"]);
    let mine = scale(&[path, "--players", "20000", "--json"]);
    assert!(built_in.status.success(), "{}", text(&built_in.stderr));
    assert_eq!(text(&built_in.stdout), text(&mine.stdout));
    let forecast: Value = serde_json::from_slice(&mine.stdout).expect("JSON");
    let rows = forecast["forecast"].as_array().expect("rows");
    let of = |key: &str| rows.iter().map(|row| row[key].as_f64().expect("a number")).collect::<Vec<_>>();
    assert_eq!(of("players"), [1_000.0, 10_000.0, 20_000.0]);
    assert!(of("cores").is_sorted_by(|a, b| a < b), "{forecast}");
    // Of cores that are twice as fast, half as many are used.
    fs::write(&file, text(&printed.stdout).replace("speed = 1.0", "speed = 2.0")).unwrap();
    let fast: Value = serde_json::from_slice(&scale(&[path, "--players", "1000", "--json"]).stdout).expect("JSON");
    let used = fast["forecast"][0]["cores"].as_f64().expect("a number");
    assert!((used / of("cores")[0] - 0.5).abs() < 1e-9, "{fast}");
    let table = text(&scale(&["--players", "20000"]).stdout);
    assert!(table.starts_with("FORECAST") && table.contains("\n      20000 "), "{table}");
}

#[test]
fn what_breaks_is_named_and_a_wrong_file_is_one_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("mine.toml");
    let path = file.to_str().unwrap();
    let printed = text(&scale(&["--print"]).stdout);
    let one_server =
        printed.replace("bus_servers_max = 32", "bus_servers_max = 1").replace("bus_cores = 4.0", "bus_cores = 0.01");
    fs::write(&file, one_server).unwrap();
    let output = scale(&[path, "--players", "20000"]);
    assert_eq!(output.status.code(), Some(4), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("bus servers: "), "{}", text(&output.stdout));
    assert!(text(&output.stdout).contains("BREAKS"));
    fs::write(&file, printed.replace("utilisation = 0.7", "utilisation = 7.0")).unwrap();
    let output = scale(&[path]);
    assert_eq!(output.status.code(), Some(2));
    let complaint = text(&output.stderr);
    assert!(complaint.lines().count() == 1 && complaint.contains("mine.toml: `utilisation` is 7"), "{complaint}");
}
