//! Scenario files of the commands whose load is not a crowd: options of the command line by name, and limits.
//!
//! ```toml
//! description = "four matches, half of the players are agents"
//! matches = 4
//! agents = 5
//! seconds = 60
//!
//! [[limits]]
//! metric = "frame_ms.p99"
//! at_most = 2.34
//! ```
//!
//! The file becomes arguments before those of the command line, and the last one counts. So a key means the same as the option,
//! and has the same bounds.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use clap::{Arg, ArgAction, Args, Command};
use throng_report::MetricLimit;
use toml::{Table, Value};

use crate::exit::Failure;
use crate::toml_file;

/// The commands with such files. The scenarios of a crowd describe a world, and have keys of their own.
const COMMANDS: [&str; 4] = ["match", "density", "gateway-bench", "ai-server"];
/// Options that say where results go, or confirm something: they belong to the call and not to the load.
const NOT_IN_FILES: [&str; 16] = [
    "scenario",
    "agones",
    "json",
    "quiet",
    "runs",
    "store",
    "no-report",
    "junit",
    "markdown",
    "limit",
    "limits",
    "record",
    "replay",
    "live",
    "metrics",
    "i-own-this-target",
];
const SCENARIO: &str = "--scenario";

/// The argument of these commands.
#[derive(Clone, Debug, Args)]
pub(crate) struct ScenarioArgument {
    /// A file with options of this command, and with limits; the command line overrides it (scenarios/README.md)
    #[arg(long, value_name = "FILE.toml")]
    scenario: Option<std::path::PathBuf>,
}

/// The arguments of the program, with those of a scenario file before the command's own.
pub(crate) fn expand(mut arguments: Vec<OsString>, program: &Command) -> Result<Vec<OsString>, Failure> {
    let Some(command) = arguments.get(1).and_then(|name| name.to_str()).filter(|name| COMMANDS.contains(name)) else {
        return Ok(arguments);
    };
    let Some(path) = file_of(&arguments[2..]).map_err(Failure::Usage)? else { return Ok(arguments) };
    // All names are those of subcommands: a test parses each.
    let Some(command) = program.find_subcommand(command) else { return Ok(arguments) };
    let names = command.get_positionals().flat_map(Arg::get_possible_values).map(|value| value.get_name().to_owned());
    let names: Vec<String> = names.collect();
    let has_positional = arguments[2..].iter().any(|argument| names.iter().any(|name| argument == name.as_str()));
    let path = Path::new(&path);
    let table = toml_file::read("scenario", path).map_err(Failure::Usage)?;
    let options = options(table, command, has_positional).with_context(|| format!("scenario {}", path.display()));
    arguments.splice(2..2, options.map_err(Failure::Usage)?);
    Ok(arguments)
}

/// The value of `--scenario`. Without one, the error is that of the command line.
fn file_of(arguments: &[OsString]) -> Result<Option<OsString>> {
    let mut path = None;
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next().filter(|argument| *argument != "--") {
        let with_equals = argument.to_str().and_then(|text| text.strip_prefix(SCENARIO)?.strip_prefix('='));
        let value = match with_equals {
            Some(value) => Some(OsStr::new(value)),
            None if argument == SCENARIO => rest.next().map(OsString::as_os_str),
            None => continue,
        };
        if path.is_some() {
            bail!("{SCENARIO} is given twice: use one file");
        }
        path = value.map(OsStr::to_owned);
    }
    Ok(path)
}

fn options(table: Table, command: &Command, has_positional: bool) -> Result<Vec<OsString>> {
    let (mut options, mut positional) = (Vec::new(), None);
    for (key, value) in table {
        match (key.as_str(), value) {
            ("description", Value::String(_)) => {}
            ("description", _) => bail!("description: a text is expected"),
            ("limits", value) => options.extend(limits(value)?),
            (key, value) => {
                let name = key.replace('_', "-");
                let is_it = |arg: &&Arg| arg.get_long() == Some(&*name) || arg.is_positional() && arg.get_id() == key;
                let known = command.get_arguments().find(is_it).filter(|_| !NOT_IN_FILES.contains(&&*name));
                let Some(known) = known else { bail!("there is no key {key}: use one of {}", keys(command)) };
                let texts = texts(known, value).with_context(|| key.to_owned())?;
                match known.is_positional() {
                    true => positional = texts.into_iter().next(),
                    false => options.extend(texts),
                }
            }
        }
    }
    let positional = positional.filter(|_| !has_positional);
    Ok(positional.into_iter().chain(options).map(OsString::from).collect())
}

/// An option as it stands on the command line, once for each of its values.
fn texts(known: &Arg, value: Value) -> Result<Vec<String>> {
    let option = |text: String| match known.get_long() {
        Some(long) => format!("--{long}={text}"),
        None => text,
    };
    let plain = |value: Value| match value {
        Value::String(text) => Ok(option(text)),
        Value::Integer(number) => Ok(option(number.to_string())),
        Value::Float(number) => Ok(option(number.to_string())),
        _ => Err(anyhow!("a number or a text is expected")),
    };
    match (known.get_action(), value) {
        (ArgAction::SetTrue, Value::Boolean(false)) => Ok(Vec::new()),
        (ArgAction::SetTrue, Value::Boolean(true)) => Ok(vec![format!("--{}", known.get_long().unwrap_or_default())]),
        (ArgAction::SetTrue, _) => bail!("true or false is expected"),
        (ArgAction::Append, Value::Array(values)) => values.into_iter().map(plain).collect(),
        (_, value) => plain(value).map(|text| vec![text]),
    }
}

/// Limits as on the command line, one for each bound.
fn limits(value: Value) -> Result<Vec<String>> {
    let limits: Vec<MetricLimit> =
        value.try_into().map_err(|error: toml::de::Error| anyhow!("limits: {}", error.message()))?;
    let mut options = Vec::new();
    for MetricLimit { metric, at_most, at_least } in limits {
        if at_most.is_none() && at_least.is_none() {
            bail!("limit {metric}: it needs at_most, at_least or both");
        }
        options.extend(at_most.map(|value| format!("--limit={metric}<={value}")));
        options.extend(at_least.map(|value| format!("--limit={metric}>={value}")));
    }
    Ok(options)
}

fn keys(command: &Command) -> String {
    let named = command.get_arguments().filter(|arg| !arg.is_hide_set()).map(|arg| match arg.get_long() {
        Some(long) => long.to_owned(),
        None => arg.get_id().to_string(),
    });
    let keys = named.filter(|name| !NOT_IN_FILES.contains(&&**name)).map(|name| name.replace('-', "_"));
    ["description".to_owned()].into_iter().chain(keys).chain(["limits".to_owned()]).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;
    use crate::args::Arguments;

    /// The arguments of `throng COMMAND --scenario FILE REST`, with a file of this text, or the error in one line.
    fn expanded(command: &str, text: &str, rest: &[&str]) -> Result<Vec<String>, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mine.toml");
        std::fs::write(&path, text).unwrap();
        let arguments = ["throng", command].into_iter().chain(rest.iter().copied()).map(OsString::from);
        let arguments = arguments.chain([SCENARIO.into(), path.into_os_string()]).collect();
        match expand(arguments, &Arguments::command()) {
            Ok(arguments) => {
                Ok(arguments[2..].iter().map(|argument| argument.to_string_lossy().into_owned()).collect())
            }
            Err(Failure::Usage(error)) => Err(format!("{error:#}")),
            Err(error) => panic!("{error:?}"),
        }
    }

    #[test]
    fn keys_are_options_and_the_command_line_comes_after_them() {
        let text = "description = \"x\"\nmatches = 4\nbuy_seconds = 2.5\nprocesses = true\nno_check = false\n\
            [[limits]]\nmetric = \"frame_ms.p99\"\nat_most = 2.34\n\
            [[limits]]\nmetric = \"matches\"\nat_least = 1\nat_most = 9\n";
        let arguments = expanded("match", text, &["--matches", "7"]).unwrap();
        let before = arguments.iter().position(|argument| argument == "7").unwrap();
        for option in [
            "--matches=4",
            "--buy-seconds=2.5",
            "--processes",
            "--limit=frame_ms.p99<=2.34",
            "--limit=matches<=9",
            "--limit=matches>=1",
        ] {
            let at = arguments.iter().position(|argument| argument == option);
            assert!(at.is_some_and(|at| at < before), "{option} in {arguments:?}");
        }
        assert!(!arguments.contains(&"--no-check".to_owned()), "{arguments:?}");
        let all = ["throng", "match"].into_iter().map(str::to_owned).chain(arguments);
        Arguments::try_parse_from(all).expect("an option that is given twice is no error");
    }

    #[test]
    fn the_scene_of_a_file_is_that_of_the_command_line_if_there_is_one() {
        let text = "scene = \"spatial\"\nclients = 300\ngateway_arg = [\"-dev\", \"-a=b\"]\n";
        let arguments = expanded("gateway-bench", text, &[]).unwrap();
        assert_eq!(arguments[0], "spatial");
        assert!(
            ["--clients=300", "--gateway-arg=-dev", "--gateway-arg=-a=b"]
                .iter()
                .all(|&option| arguments.iter().any(|argument| argument == option))
        );
        let arguments = expanded("gateway-bench", text, &["--seconds", "3", "single"]).unwrap();
        assert!(
            !arguments.iter().any(|argument| argument == "spatial")
                && arguments.iter().any(|argument| argument == "single"),
            "{arguments:?}"
        );
    }

    #[test]
    fn the_files_of_this_repository_are_accepted() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
        for (command, file) in [("match", "matches.toml"), ("gateway-bench", "clients.toml")] {
            let path = folder.join("commands").join(file);
            let arguments = ["throng".into(), command.into(), SCENARIO.into(), path.into_os_string()];
            let arguments = expand(arguments.into(), &Arguments::command()).unwrap_or_else(|error| panic!("{error:?}"));
            Arguments::try_parse_from(arguments).unwrap_or_else(|error| panic!("{file}: {error}"));
        }
    }

    #[test]
    fn a_file_that_makes_no_sense_is_refused_with_what_to_change() {
        for (text, words) in [
            ("matchs = 4", "there is no key matchs: use one of description, "),
            ("json = true", "there is no key json"),
            ("i_own_this_target = true", "there is no key i_own_this_target"),
            ("scenario = \"other.toml\"", "there is no key scenario"),
            ("description = 4", "description: a text is expected"),
            ("processes = 1", "processes: true or false is expected"),
            ("matches = true", "matches: a number or a text is expected"),
            ("matches = [1, 2]", "matches: a number or a text is expected"),
            ("matches = 1\nmatches = 2", "line 2: duplicate key"),
            ("limits = 4", "limits: "),
            ("[[limits]]\nmetric = \"matches\"", "it needs at_most, at_least or both"),
            ("[[limits]]\nmetric = \"matches\"\nat_mots = 4", "limits: unknown field `at_mots`"),
        ] {
            let error = expanded("match", text, &[]).expect_err(text);
            assert!(error.contains(words) && error.starts_with("scenario ") && !error.contains('\n'), "{error}");
        }
        let long = format!("description = \"{}\"", "x".repeat(toml_file::BYTES_MAX as usize));
        assert!(expanded("match", &long, &[]).unwrap_err().contains("longer than 1 MiB"));
        let absent = ["throng", "match", "--scenario=/nowhere/a.toml"].map(OsString::from);
        assert!(matches!(expand(absent.into(), &Arguments::command()), Err(Failure::Usage(_))));
        let twice = ["throng", "match", "--scenario=a", "--scenario", "b"].map(OsString::from);
        assert!(
            matches!(expand(twice.into(), &Arguments::command()), Err(Failure::Usage(error)) if error.to_string().contains("twice"))
        );
        // Those of other commands, and calls without a file, stay as they are.
        for call in [
            &["throng", "crowd", "--scenario", "dense"][..],
            &["throng", "match"],
            &["throng"],
            &["throng", "match", "--scenario"],
        ] {
            let call: Vec<OsString> = call.iter().map(OsString::from).collect();
            assert_eq!(expand(call.clone(), &Arguments::command()).unwrap(), call);
        }
    }
}
