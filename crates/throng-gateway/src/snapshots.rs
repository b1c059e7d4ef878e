//! The engines of a gateway as its last snapshot has them.

use std::fs::{self, File};
use std::io::{self, BufReader};
use std::path::Path;

use throng_gateway_engine::snapshot::{Records, SnapshotError, Survey};
use throng_gateway_engine::{Engine, Restored};
use tracing::{info, warn};

/// Bytes of a file that are read at once.
const READ_BYTES: usize = 1 << 20;

/// The engines that `make` makes, with what is in the file. It is read twice: nothing of it is believed before all of it
/// was found whole. Without a file they begin empty.
///
/// # Errors
/// The file is not whole, or does not fit the settings.
pub(crate) fn read(
    file: &Path,
    make: impl FnOnce(Option<&Survey>) -> Vec<Engine>,
) -> Result<Vec<Engine>, SnapshotError> {
    let survey = match open(file) {
        Ok(source) => Survey::of(source)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            info!(file = %file.display(), "there is no snapshot yet: the gateway starts empty");
            return Ok(make(None));
        }
        Err(error) => return Err(error.into()),
    };
    let mut engines = make(Some(&survey));
    let mut records = Records::new(open(file)?);
    while let Some(record) = records.read_next()? {
        for engine in &mut engines {
            engine.restore(&record)?;
        }
    }
    let mut all = Restored::default();
    for engine in &mut engines {
        let Restored { channels, sessions, given_up } = engine.finish_restore();
        all.channels += channels;
        all.sessions += sessions;
        all.given_up += given_up;
    }
    let Restored { channels, sessions, given_up } = all;
    info!(file = %file.display(), channels, sessions, given_up, "the gateway starts from a snapshot");
    Ok(engines)
}

fn open(file: &Path) -> io::Result<BufReader<File>> {
    Ok(BufReader::with_capacity(READ_BYTES, File::open(file)?))
}

/// Renames a file that cannot be used, so that the next snapshot does not take its place.
pub(crate) fn put_aside(file: &Path, error: &SnapshotError) {
    let mut aside = file.as_os_str().to_owned();
    aside.push(".unusable");
    warn!(tag = error.tag(), "-snapshot: {}: {error}; the gateway starts empty", file.display());
    if let Err(error) = fs::rename(file, &aside) {
        warn!("{} cannot be renamed: {error}", file.display());
    }
}
