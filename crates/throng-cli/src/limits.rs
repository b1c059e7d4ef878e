//! Limits of a run's figures from the command line, files for build servers, and the exit code that follows.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use serde::Deserialize;
use throng_report::{Kind, MetricLimit, Verdicts, check_limits};

use crate::exit::{self, Failure};
use crate::play::Figures;
use crate::toml_file;

/// Arguments of all commands that play one run.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct LimitArguments {
    /// Limits of figures of this run; one that is exceeded gives exit code 4 (docs/lab.md)
    #[arg(long, value_name = "FILE.toml")]
    limits: Option<PathBuf>,
    /// A limit of a figure, as 'server.frame_ms.p99<=12' or 'server.held_hz>=29.9'; may be repeated
    #[arg(long, value_name = "METRIC<=VALUE")]
    pub(crate) limit: Vec<MetricLimit>,
    /// Also write the verdicts on the limits as JUnit XML, for a build server; a file that exists is overwritten
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Also write the verdicts on the limits as a table in Markdown; a file that exists is overwritten
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LimitFile {
    limits: Vec<MetricLimit>,
}

/// The limits of a run, and the files for the build server. Those are opened before the run: a wrong path costs no run, and the
/// results of an earlier one go, so that they are not taken for those of a run that was cut off.
pub(crate) struct Gate {
    kind: Kind,
    limits: Vec<MetricLimit>,
    junit: Option<(PathBuf, File)>,
    markdown: Option<(PathBuf, File)>,
}

/// The run that was played.
pub(crate) struct Played<'a, T> {
    /// Its name.
    pub(crate) name: &'a str,
    /// Its figures.
    pub(crate) figures: &'a T,
    /// Its folder, if it has one.
    pub(crate) folder: Option<&'a Path>,
}

impl LimitArguments {
    /// Reads and checks the limits; `own` are those that the workload has already.
    pub(crate) fn open(&self, kind: Kind, own: &[MetricLimit]) -> Result<Gate, Failure> {
        let mut limits = own.to_vec();
        if let Some(path) = &self.limits {
            let file: LimitFile = toml_file::read("limits", path).map_err(Failure::Usage)?;
            limits.extend(file.limits);
        }
        limits.extend(self.limit.iter().cloned());
        check_limits(kind, &limits).map_err(Failure::usage)?;
        let open = |flag: &str, path: &Option<PathBuf>| {
            let Some(path) = path else { return Ok(None) };
            let file = File::create(path).with_context(|| format!("cannot write {flag} {}", path.display()));
            file.map(|file| Some((path.clone(), file))).map_err(Failure::Usage)
        };
        let (junit, markdown) = (open("--junit", &self.junit)?, open("--markdown", &self.markdown)?);
        Ok(Gate { kind, limits, junit, markdown })
    }
}

impl Gate {
    /// Judges a run, writes the verdicts, and makes its page again with them. The exit code of the run.
    pub(crate) fn judge(self, played: &Played<'_, impl Figures>) -> Result<ExitCode, Failure> {
        let figures = serde_json::to_value(played.figures).context("cannot read the figures of the run")?;
        let head = played.figures.head();
        let of = (played.name, &head.invalid_reasons[..]);
        let verdicts = Verdicts::new(self.kind, of, &self.limits, &figures);
        // Each that can be written is, also after one that cannot.
        let put = [
            put(self.junit, &verdicts.to_junit(head.seconds, played.figures.cases())),
            put(self.markdown, &(verdicts.to_markdown() + &played.figures.markdown())),
        ];
        if !verdicts.limits.is_empty() {
            err!("{}", verdicts.table());
            errln!("limits: {}", verdicts.words());
            if let Some(folder) = played.folder {
                let written = verdicts.write(folder);
                written.with_context(|| format!("cannot write the verdicts to {}", folder.display()))?;
                crate::pages::page(folder)?;
            }
        }
        put.into_iter().collect::<Result<(), Failure>>()?;
        Ok(ExitCode::from(code(&verdicts, played.figures.answer().transpose()?)))
    }
}

fn put(file: Option<(PathBuf, File)>, text: &str) -> Result<(), Failure> {
    let Some((path, mut file)) = file else { return Ok(()) };
    file.write_all(text.as_bytes()).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(())
}

/// The exit code of a run: that of its answer or, if it is none, of its validity. A run that counts is judged by its limits, and
/// a figure that was not measured says nothing about its own.
fn code(verdicts: &Verdicts, answer: Option<u8>) -> u8 {
    let validity = if verdicts.invalid_reasons.is_empty() { exit::SUCCESS } else { exit::INVALID_RUN };
    match (answer.unwrap_or(validity), verdicts.exceeded(), verdicts.unknown()) {
        (exit::SUCCESS, 0, 0) => exit::SUCCESS,
        (exit::SUCCESS, 0, _) => exit::INVALID_RUN,
        (exit::SUCCESS, _, _) => exit::LIMIT,
        (other, _, _) => other,
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use serde::Serialize;
    use serde_json::{Value, json};
    use throng_report::RunHead;

    use super::*;

    #[derive(Serialize)]
    struct Held {
        #[serde(flatten)]
        head: RunHead,
        server: Value,
    }

    impl Figures for Held {
        fn head(&self) -> &RunHead {
            &self.head
        }

        fn text(&self) -> String {
            String::new()
        }
    }

    #[test]
    fn the_files_for_a_build_server_are_written_though_the_verdicts_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let [junit, markdown] = ["junit.xml", "limits.md"].map(|name| folder.path().join(name));
        let limit = vec!["server.held_hz>=30".parse().unwrap()];
        let of = |path: &PathBuf| Some(path.clone());
        let arguments = LimitArguments { limits: None, limit, junit: of(&junit), markdown: of(&markdown) };
        let gate = arguments.open(Kind::Crowd, &[]).map_err(|_| "usage").unwrap();
        let head = RunHead::new(Kind::Crowd, "crowd", SystemTime::now());
        let figures = Held { head, server: json!({ "held_hz": 30.0 }) };
        let gone = folder.path().join("gone");
        let judged = gate.judge(&Played { name: "crowd", figures: &figures, folder: Some(&gone) });
        assert!(judged.is_err());
        for path in [junit, markdown] {
            let text = std::fs::read_to_string(&path).unwrap();
            assert!(text.contains("server.held_hz"), "{}: {text}", path.display());
        }
    }

    #[test]
    fn the_exit_code_tells_an_exceeded_limit_from_a_run_that_says_nothing() {
        let code_of = |limits: &[&str], reasons: &[String], answer| {
            let limits: Vec<MetricLimit> = limits.iter().map(|text| text.parse().unwrap()).collect();
            let figures = json!({ "server": { "held_hz": 30.0 } });
            code(&Verdicts::new(Kind::Crowd, ("crowd", reasons), &limits, &figures), answer)
        };
        let (kept, exceeded, unknown) = ("server.held_hz>=30", "server.held_hz>=31", "server.world_speed>=1");
        assert_eq!(code_of(&[], &[], None), exit::SUCCESS);
        assert_eq!(code_of(&[kept], &[], None), exit::SUCCESS);
        assert_eq!(code_of(&[kept, exceeded, unknown], &[], None), exit::LIMIT);
        assert_eq!(code_of(&[kept, unknown], &[], None), exit::INVALID_RUN);
        let saturated = ["the bots are saturated".to_owned()];
        assert_eq!(code_of(&[exceeded], &saturated, None), exit::INVALID_RUN);
        assert_eq!(code_of(&[kept], &saturated, Some(exit::SUCCESS)), exit::SUCCESS);
        assert_eq!(code_of(&[exceeded], &saturated, Some(exit::SUCCESS)), exit::LIMIT);
        assert_eq!(code_of(&[exceeded], &[], Some(exit::INVALID_RUN)), exit::INVALID_RUN);
        assert_eq!(code_of(&[kept], &[], Some(exit::LIMIT)), exit::LIMIT);
    }
}
