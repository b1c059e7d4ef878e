//! The models beside each other, as a user compares them: one table, one file, and a page made from it.

use std::path::Path;

use crate::lines::throng;
use serde_json::Value;

/// A part of a test of `command_line`.
pub(crate) fn a_comparison_leaves_a_table_a_file_and_a_page() {
    let runs = tempfile::tempdir().unwrap();
    let folder = runs.path().to_str().unwrap();
    let store = tempfile::tempdir().unwrap();
    let place = store.path().to_str().unwrap();
    let junit = store.path().join("limits.xml");
    let output = throng(&[
        "compare",
        "--store",
        place,
        "--limit",
        "advantages.throng.outgoing>=0.001",
        "--junit",
        junit.to_str().unwrap(),
        "--models",
        "legacy,throng",
        "--players",
        "8",
        "--seconds",
        "1",
        "--warmup",
        "0",
        "--repeat",
        "1",
        "--quiet",
        "--runs",
        folder,
    ]);
    let (table, complaints) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    // The figures of a debug build are never valid, and the run says that.
    assert_eq!(output.status.code(), Some(if cfg!(debug_assertions) { 3 } else { 0 }), "{table}{complaints}");
    for part in ["dense: 8 players", "times less than legacy", "Legacy + Replication Graph", "valid runs"] {
        assert!(table.contains(part), "no {part} in:\n{table}{complaints}");
    }
    let comparison =
        std::fs::read_dir(runs.path()).unwrap().flatten().map(|entry| entry.path()).find(|path| path.is_dir()).unwrap();
    check_file(&comparison);
    let index = std::fs::read_to_string(runs.path().join("index.html")).unwrap();
    assert!(index.contains("Models") && comparison.join("report.html").is_file(), "{index}");
    assert!(complaints.contains("limit  advantages.throng.outgoing  ≥ 0.001"), "{complaints}");
    let xml = std::fs::read_to_string(junit).unwrap();
    assert!(xml.contains("tests=\"2\" skipped=\"0\" failures=\"0\""), "{xml}");
    // The store has it, and lists it.
    let listed = throng(&["lab", "runs", place]);
    let (list, notes) = (String::from_utf8_lossy(&listed.stdout), String::from_utf8_lossy(&listed.stderr));
    assert!(list.contains("-compare  dense  ") && list.lines().count() == 1 && notes.is_empty(), "{list}{notes}");
    let page = runs.path().join("docs/page.md");
    let sources = throng_page::Sources::read(&[comparison], None).unwrap();
    sources.publish(&page, runs.path()).unwrap();
    let text = std::fs::read_to_string(&page).unwrap();
    assert!(text.contains("\n### dense, 8 players") && text.contains("plots/models-dense-8.svg"), "{text}");
    assert!(page.with_file_name("plots").join("models-dense-8.svg").is_file());
}

/// Both runs are in the file, and as folders beside it.
fn check_file(comparison: &Path) {
    let text = std::fs::read_to_string(comparison.join("summary.json")).unwrap();
    let file: Value = serde_json::from_str(&text).unwrap();
    crate::schema::check("models", &file);
    let names: Vec<_> =
        file["runs"].as_array().unwrap().iter().map(|run| run["contestant"].as_str().unwrap()).collect();
    assert_eq!(names, ["legacy", "throng"]);
    assert!(file["runs"][0]["figures"]["frame_ms"].as_f64().unwrap() > 0.0);
    let folders = std::fs::read_dir(comparison).unwrap().filter(|entry| entry.as_ref().unwrap().path().is_dir());
    assert_eq!(folders.count(), 2);
}

#[test]
fn a_mistake_is_said_in_one_line_before_anything_is_played() {
    let complaint = |arguments: &[&str]| {
        let output = throng(arguments);
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(complaint(&["compare", "--workload", "dence"]).contains("dense"));
    let file = tempfile::NamedTempFile::new().unwrap();
    assert!(complaint(&["compare", "--quiet", "--runs", file.path().to_str().unwrap()]).contains("cannot write"));
    assert!(complaint(&["compare", "--models", "iris"]).contains("shared-state or throng"));
    assert!(complaint(&["compare", "--limit", "server.held_hz>=30"]).contains("a models run has no such figure"));
}
