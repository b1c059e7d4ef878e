//! From the settings to a running gateway.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use thiserror::Error;
use throng_file::WholeFile;
use throng_wire::Time;

use crate::auth::{self, AlwaysFail, DeskLimits, Provider, ProviderError};
use crate::metrics;
use crate::serve::{Gateway, Parts, ServeError, ServeOptions, helpers};
use crate::settings::Settings;
use crate::snapshots;
use throng_gateway_engine::shards::Shards;
use throng_gateway_engine::snapshot::{SnapshotError, Survey};
use throng_gateway_engine::{Engine, Stopwatch};
use throng_protostate::{SchemaError, Schemas};

/// Why a gateway does not start. The operator is at fault, or the machine.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StartError {
    /// A file of message types cannot be read.
    #[error("-descriptors: cannot read {file}: {error}")]
    Read {
        /// Its name.
        file: String,
        /// The system's error.
        error: std::io::Error,
    },
    /// A `.proto` file does not compile.
    #[error("-descriptors: {file}: {error}")]
    Proto {
        /// Its name.
        file: String,
        /// The error.
        error: protox::Error,
    },
    /// A file of message types is none.
    #[error("-descriptors: {file}: {error}")]
    Schema {
        /// Its name.
        file: String,
        /// The error.
        error: SchemaError,
    },
    /// The file of `-snapshot` cannot be used.
    #[error("-snapshot: {file}: {error}; to start without it, move it away, or add -snapshot-discard")]
    Snapshot {
        /// Its name.
        file: String,
        /// The error.
        error: SnapshotError,
    },
    /// The provider of authentication cannot be used.
    #[error(transparent)]
    Provider(#[from] ProviderError),
    /// A door cannot be opened.
    #[error(transparent)]
    Serve(#[from] ServeError),
}

impl StartError {
    /// A stable name for logs.
    pub fn tag(&self) -> &'static str {
        match self {
            StartError::Read { .. } => "descriptors_read",
            StartError::Proto { .. } => "proto",
            StartError::Schema { error, .. } => error.tag(),
            StartError::Snapshot { error, .. } => error.tag(),
            StartError::Provider(error) => error.tag(),
            StartError::Serve(error) => error.tag(),
        }
    }
}

impl Gateway {
    /// Starts a gateway. `unix_ns` is what the calendar says, in ns since 1970; `seed` decides connection ids.
    ///
    /// # Errors
    /// A file, a provider or a door that cannot be used. Nothing runs then.
    pub fn from_settings(settings: Settings, seed: u64, unix_ns: i64) -> Result<Gateway, StartError> {
        let schemas = schemas(&settings)?;
        let provider = provider(&settings)?;
        let options = ServeOptions::from_settings(&settings)?;
        let desk = DeskLimits::from_settings(&settings);
        // A gateway that still ends may write a newer snapshot while this one reads. So the file is claimed before.
        let claim = |file: &String| WholeFile::claim(Path::new(file)).map_err(ServeError::Snapshots);
        let snapshot_file = settings.snapshot_file.as_ref().map(claim).transpose()?;
        let engines = engines_of_settings(settings, Arc::new(schemas), seed, unix_ns)?;
        Ok(Gateway::start(
            &options,
            Parts { engines, provider, desk, render: Arc::new(metrics::render), snapshot_file },
        )?)
    }

    /// Takes over settings that were [read again](Settings::reload), with the tokens and certificates that they name:
    /// all of it, or nothing. Rate limits, queue sizes and timeouts also apply to existing connections; doors, message types,
    /// threads and recordings stay as they were at the start.
    ///
    /// # Errors
    /// A file that cannot be used. Everything stays as it was.
    pub fn reload(&self, settings: Arc<Settings>) -> Result<(), StartError> {
        let provider = provider(&settings)?;
        Ok(self.take_over(settings, provider)?)
    }
}

/// The provider of authentication. An edge asks none: its home does.
fn provider(settings: &Settings) -> Result<Arc<dyn Provider>, ProviderError> {
    match settings.home {
        Some(_) => Ok(Arc::new(AlwaysFail)),
        None => auth::from_settings(settings),
    }
}

/// The engines, as they were in the snapshot if there is one.
fn engines_of_settings(
    settings: Settings,
    schemas: Arc<Schemas>,
    seed: u64,
    unix_ns: i64,
) -> Result<Vec<Engine>, StartError> {
    let shards = Shards::new(settings.engine_threads, settings.engine.spatial_channel_start);
    // Several engines are enough threads, unless somebody wants more.
    let threads = if shards.count() > 1 && settings.threads == 0 { 1 } else { settings.threads };
    let is_edge = settings.home.is_some();
    let (file, discards) = (settings.snapshot_file, settings.snapshot_discard);
    let engine_settings = Arc::new(settings.engine);
    let new_engines = |survey: Option<&Survey>| {
        let engine = |number| {
            let (settings, schemas, times) = (Arc::clone(&engine_settings), Arc::clone(&schemas), (Time(0), unix_ns));
            let mut engine = match survey {
                Some(survey) => Engine::restored(settings, schemas, seed, times, survey),
                None => Engine::new(settings, schemas, seed, times),
            };
            engine.set_share(number, shards.clone());
            if is_edge {
                engine.set_edge();
            }
            engine
        };
        (0..shards.count()).map(engine).collect::<Vec<Engine>>()
    };
    let mut engines = match file.map(|file| (snapshots::read(Path::new(&file), new_engines), file)) {
        None => new_engines(None),
        Some((Ok(engines), _)) => engines,
        Some((Err(error), file)) if discards => {
            snapshots::put_aside(Path::new(&file), &error);
            new_engines(None)
        }
        Some((Err(error), file)) => return Err(StartError::Snapshot { file, error }),
    };
    let begin = Instant::now();
    for engine in &mut engines {
        engine.set_helpers(helpers(threads).map_err(|error| ServeError::Threads(std::io::Error::other(error)))?);
        engine.set_stopwatch(Stopwatch::new(move || begin.elapsed().as_nanos() as u64));
    }
    Ok(engines)
}

/// The types of the protocol itself, and those of the files that the operator names: `.proto`, or a descriptor set.
fn schemas(settings: &Settings) -> Result<Schemas, StartError> {
    let failed = |file: &str, error| StartError::Schema { file: file.to_owned(), error };
    let mut schemas =
        Schemas::from_descriptor_set(throng_channeld::proto::DESCRIPTORS).map_err(|error| failed("built in", error))?;
    for file in &settings.descriptor_files {
        let path = Path::new(file);
        let more = match path.extension().is_some_and(|extension| extension == "proto") {
            true => compiled(path).map_err(|error| StartError::Proto { file: file.clone(), error })?,
            false => std::fs::read(path).map_err(|error| StartError::Read { file: file.clone(), error })?,
        };
        schemas.add(Schemas::from_descriptor_set(&more).map_err(|error| failed(file, error))?);
    }
    Ok(schemas)
}

/// The descriptor set of a `.proto` file and of those that it imports from its own folder.
fn compiled(file: &Path) -> Result<Vec<u8>, protox::Error> {
    let mut compiler = protox::Compiler::new([file.parent().unwrap_or(Path::new("."))])?;
    compiler.include_imports(true);
    compiler.open_file(file)?;
    Ok(compiler.encode_file_descriptor_set())
}
