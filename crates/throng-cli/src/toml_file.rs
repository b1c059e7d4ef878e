//! Files in TOML that the command line names.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use serde::de::DeserializeOwned;
use throng_file::{friendly, line_of};

/// A file is at most so long.
pub(crate) const BYTES_MAX: u64 = 1 << 20;

/// Reads such a file. `kind` names it in errors, which are one line: `limits mine.toml, line 3: ...`.
pub(crate) fn read<T: DeserializeOwned>(kind: &str, path: &Path) -> Result<T> {
    let file = || format!("{kind} {}", path.display());
    let mut text = String::new();
    // Devices and pipes say that they have no length.
    let read = File::open(path).and_then(|file| file.take(BYTES_MAX + 1).read_to_string(&mut text));
    read.with_context(|| format!("cannot read {}: check the path", file()))?;
    if text.len() as u64 > BYTES_MAX {
        bail!("{} is longer than 1 MiB", file());
    }
    toml::from_str(&text).map_err(|error| {
        let line = line_of(&text, error.span().unwrap_or_default().start);
        anyhow!("{}, line {line}: {}", file(), friendly(error.message()))
    })
}
