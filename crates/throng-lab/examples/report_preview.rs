//! Writes the report of a made-up run, to look at the page without waiting for a real one.
//!
//! ```text
//! cargo run -p throng-lab --example report_preview [DIR]
//! ```

use std::path::PathBuf;
use std::time::SystemTime;

use throng_lab::report;
use throng_summary::RunSummary;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let runs = std::env::args_os().nth(1).map_or_else(|| PathBuf::from("runs"), PathBuf::from);
    let summary = RunSummary::example();
    let folder = throng_report::new_folder(&runs, SystemTime::now(), &summary.scenario)?;
    let page = report::write(&folder, &summary)?;
    println!("{}report: {}", report::text(&summary), page.display());
    Ok(())
}
