//! Pages of runs, made again from their figures.

use std::fs;
use std::path::Path;

use crate::lines::throng;
use serde_json::{Value, json};
use throng_report::{Kind, RunFile, RunHead};

/// A folder of a run with these figures.
fn stored(runs: &Path, name: &str, head: &RunHead, figures: Value) {
    let folder = runs.join(name);
    fs::create_dir(&folder).expect("a folder");
    RunFile::write(&folder, &head.with(figures)).expect("a file");
}

#[test]
fn the_pages_of_a_folder_and_their_index_are_made_again_and_a_damaged_run_is_a_note() {
    let folder = tempfile::tempdir().expect("a folder");
    let runs = folder.path();
    let sides = json!({
        "first": ["a"], "second": ["b"], "runs": [1, 1], "runs_missing": [4, 4], "values": "seconds", "least": 0.05, "moved_together": false,
        "parts": [], "notes": [],
    });
    stored(runs, "20260131-120000-comparison", &RunHead::example(Kind::Comparison), sides);
    stored(runs, "20260131-130000-crowd", &RunHead::example(Kind::Crowd), json!({}));
    stored(runs, "20260131-140000-match", &RunHead::example(Kind::Match), json!({ "matches": 1 }));
    let output = throng(&["lab", "report", runs.to_str().expect("a path")]);
    let (told, notes) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && told.trim().ends_with("index.html"), "{told}{notes}");
    assert_eq!(notes.matches("note: ").count(), 2, "{notes}");
    let index = fs::read_to_string(runs.join("index.html")).expect("an index").replace("&#x2f;", "/");
    assert!(index.contains("href=\"20260131-120000-comparison/report.html\""), "{index}");
    assert!(index.contains("20260131-130000-crowd") && !index.contains("href=\"20260131-130000-crowd"), "{index}");
    let page = runs.join("20260131-120000-comparison/report.html");
    assert!(fs::read_to_string(&page).expect("a page").contains("href=\"..&#x2f;index.html\""));
    // Both commands make the page of one run.
    for command in [&["report"][..], &["lab", "report"]] {
        fs::remove_file(&page).expect("it is there");
        let run = page.parent().expect("its folder").to_str().expect("a path");
        assert!(throng(&[command, &[run]].concat()).status.success());
        assert!(page.is_file());
    }
}

#[test]
fn two_sides_are_kept_with_a_page() {
    let folder = tempfile::tempdir().expect("a folder");
    let runs = folder.path().join("runs");
    let run = |side: &str, number: u32, ms: f64| {
        let ms = ms + 0.01 * f64::from(number);
        let curve: Vec<f64> = (0..60).map(|frame| ms + f64::from(frame % 3) * 0.01).collect();
        let head = RunHead { valid: true, revision: side.to_owned(), ..RunHead::default() };
        let figures = json!({
            "server": { "us_per_connection": { "send": ms, "total": ms }, "frame_ms": { "p50": ms } },
            "series": { "frames": { "time_s": curve, "total": curve, "send": curve } },
        });
        let sides = folder.path().join(side);
        fs::create_dir_all(&sides).expect("a folder");
        stored(&sides, &number.to_string(), &head, figures);
        sides.to_str().expect("a path").to_owned()
    };
    let side =
        |name: &str, ms: f64| (0..5).map(|number| run(name, number, ms)).collect::<Vec<_>>().pop().expect("runs");
    let (before, after) = (side("before", 5.0), side("after", 8.0));
    let output = throng(&["lab", "compare", &before, &after, "--runs", runs.to_str().expect("a path")]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let kept =
        fs::read_dir(&runs).expect("runs").flatten().find(|entry| entry.path().is_dir()).expect("a folder").path();
    let page = fs::read_to_string(kept.join("report.html")).expect("a page");
    assert!(page.contains("slower") && page.contains("✗ missed") && page.contains("<polyline"), "{page}");
    assert!(kept.join("summary.json").is_file() && runs.join("index.html").is_file());
}
