//! `throng gateway -profile cpu`: samples processor time from the start to the end.
//!
//! The file has the format of pprof, as channeld's has. Errors here only go to the log: a gateway without a profile is
//! better than no gateway.

use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use throng_gateway::settings::{Profile, Settings};
use throng_machine::TemporaryFolder;
use tracing::{info, warn};

/// The name that Go's profiler gives its files too.
const FILE: &str = "cpu.pprof";

/// Sampling stops after this time, because rare samples go to a temporary file that grows.
const LONGEST: Duration = Duration::from_secs(3_600);

/// A profile that is being taken, if one was asked for.
#[derive(Default)]
pub(crate) struct Profiling {
    running: Option<Running>,
    /// The profiler keeps a file for rare samples in it, and never removes that. All temporary files of the process are made in
    /// it, also if the profiler did not begin. So it stays until the gateway has ended.
    samples: Option<TemporaryFolder>,
}

struct Running {
    stop: Sender<()>,
    thread: JoinHandle<()>,
}

impl Profiling {
    /// Begins to sample, if the settings ask for it. The folder is created now, so that an error shows at the start and
    /// not at the end.
    pub(crate) fn begin(settings: &Settings) -> Profiling {
        let mut profiling = Profiling::default();
        if settings.profile != Some(Profile::Processor) {
            return profiling;
        }
        let begin = |samples: &TemporaryFolder| {
            samples.take_others_files()?;
            Sampler::begin()
        };
        if let Err(error) = profiling.begin_with(Path::new(&settings.profile_path), begin) {
            warn!("-profile cpu: {error:#}");
        }
        profiling
    }

    fn begin_with(&mut self, folder: &Path, begin: impl FnOnce(&TemporaryFolder) -> Result<Sampler>) -> Result<()> {
        std::fs::create_dir_all(folder).with_context(|| format!("{}", folder.display()))?;
        let samples = self.samples.insert(TemporaryFolder::new().context("there is no temporary folder")?);
        let sampler = begin(samples)?;
        let file = folder.join(FILE);
        let (stop, stopped) = channel();
        let thread = std::thread::Builder::new().name("profile".to_owned());
        let thread = thread.spawn(move || run(sampler, &file, &stopped))?;
        self.running = Some(Running { stop, thread });
        Ok(())
    }

    /// Writes the profile.
    pub(crate) fn end(self) {
        let Some(Running { stop, thread }) = self.running else { return };
        drop(stop);
        if thread.join().is_err() {
            warn!("-profile cpu: no profile was written");
        }
    }
}

fn run(sampler: Sampler, file: &Path, stopped: &Receiver<()>) {
    if stopped.recv_timeout(LONGEST) == Err(RecvTimeoutError::Timeout) {
        info!("-profile cpu: stops after {} minutes", LONGEST.as_secs() / 60);
    }
    let written = sampler.end().and_then(|profile| Ok(std::fs::write(file, profile)?));
    match written {
        Ok(()) => info!("the processor profile is in {}", file.display()),
        Err(error) => warn!("-profile cpu: {}: {error:#}", file.display()),
    }
}

#[cfg(unix)]
struct Sampler(pprof::ProfilerGuard<'static>);

#[cfg(unix)]
impl Sampler {
    /// Samples per second of processor time. Go's profiler takes 100; a prime does not beat with what happens each
    /// tick.
    const HZ: i32 = 97;

    fn begin() -> Result<Sampler> {
        // A sample is taken in a signal handler, which cannot unwind what holds the loader's lock.
        let unsafe_to_unwind = ["libc", "libgcc", "pthread", "vdso"];
        let guard = pprof::ProfilerGuardBuilder::default().frequency(Self::HZ).blocklist(&unsafe_to_unwind).build();
        Ok(Sampler(guard?))
    }

    fn end(self) -> Result<Vec<u8>> {
        use pprof::protos::Message as _;
        Ok(self.0.report().build().and_then(|report| report.pprof())?.encode_to_vec())
    }
}

#[cfg(not(unix))]
struct Sampler;

#[cfg(not(unix))]
impl Sampler {
    fn begin() -> Result<Sampler> {
        anyhow::bail!("works on Unix only")
    }

    fn end(self) -> Result<Vec<u8>> {
        Ok(Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_for_temporary_files_stays_if_the_profiler_does_not_begin() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut profiling = Profiling::default();
        let begun = profiling.begin_with(folder.path(), |_| anyhow::bail!("another profile is being taken"));
        assert!(begun.is_err() && profiling.running.is_none());
        let samples = profiling.samples.as_ref().expect("temporary files go there").path().to_owned();
        assert!(samples.is_dir());
        profiling.end();
        assert!(!samples.exists());
    }
}
