//! Embeds the revision that the program is built from.

#[path = "build/revision.rs"]
mod revision;

use std::path::Path;

/// The sources of the program, relative to the workspace.
const SOURCES: [&str; 4] = ["crates", "scenarios", "Cargo.toml", "Cargo.lock"];

fn main() {
    let workspace = Path::new("../..");
    let revision = revision::of(workspace, &SOURCES);
    println!("cargo::rustc-env=THRONG_REVISION={}", revision.unwrap_or_else(|| "unknown".to_owned()));
    let sources = SOURCES.iter().map(|source| workspace.join(source)).filter(|path| path.exists());
    for path in sources.chain(revision::marks(workspace)) {
        println!("cargo::rerun-if-changed={}", path.display());
    }
}
