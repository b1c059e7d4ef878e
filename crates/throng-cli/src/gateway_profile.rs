//! `throng gateway -profile cpu`: where the processor's time goes, sampled from the start to the end.
//!
//! The file is what pprof and its relatives read, as channeld's is.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use throng_gateway::settings::{Profile, Settings};

/// The name that Go's profiler gives its files too.
const FILE: &str = "cpu.pprof";

/// A profile that is being taken, if one was asked for.
pub(crate) struct Profiling(Option<Running>);

struct Running {
    sampler: Sampler,
    file: PathBuf,
}

impl Profiling {
    /// Begins to sample. The folder is made now, so that it does not turn out at the end that it cannot be.
    pub(crate) fn begin(settings: &Settings) -> Result<Profiling> {
        if settings.profile != Some(Profile::Processor) {
            return Ok(Profiling(None));
        }
        let folder = Path::new(&settings.profile_path);
        std::fs::create_dir_all(folder).with_context(|| format!("-profilepath: {}", folder.display()))?;
        Ok(Profiling(Some(Running { sampler: Sampler::begin()?, file: folder.join(FILE) })))
    }

    /// Writes down what was seen; where.
    pub(crate) fn end(self) -> Result<Option<PathBuf>> {
        let Some(Running { sampler, file }) = self.0 else { return Ok(None) };
        std::fs::write(&file, sampler.end()?).with_context(|| format!("-profilepath: {}", file.display()))?;
        Ok(Some(file))
    }
}

#[cfg(unix)]
struct Sampler(pprof::ProfilerGuard<'static>);

#[cfg(unix)]
impl Sampler {
    /// Samples per second of processor time. Go's profiler takes 100; a prime does not beat with what happens each tick.
    const HZ: i32 = 97;

    fn begin() -> Result<Sampler> {
        // A sample is taken in a signal handler, which cannot unwind what holds the loader's lock.
        let unsafe_to_unwind = ["libc", "libgcc", "pthread", "vdso"];
        let guard = pprof::ProfilerGuardBuilder::default().frequency(Self::HZ).blocklist(&unsafe_to_unwind).build();
        Ok(Sampler(guard.context("-profile cpu")?))
    }

    fn end(self) -> Result<Vec<u8>> {
        use pprof::protos::Message as _;
        let profile = self.0.report().build().and_then(|report| report.pprof()).context("-profile cpu")?;
        Ok(profile.encode_to_vec())
    }
}

#[cfg(not(unix))]
struct Sampler;

#[cfg(not(unix))]
impl Sampler {
    fn begin() -> Result<Sampler> {
        anyhow::bail!("-profile cpu works on Unix only")
    }

    fn end(self) -> Result<Vec<u8>> {
        Ok(Vec::new())
    }
}
