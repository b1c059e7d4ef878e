use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Why a scenario cannot run. The user can correct each error; its text is one line that says how.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ScenarioError {
    /// No scenario has this name.
    #[error("there is no scenario `{name}`{}: choose one of {known}, or give the path of a .toml file", suggest(.nearest))]
    UnknownName {
        /// The name asked for.
        name: String,
        /// The known names, with commas.
        known: String,
        /// The known name that is most like it.
        nearest: Option<String>,
    },
    /// The file could not be read.
    #[error("cannot read scenario file {}: {source}; check the path and its permissions", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file is longer than [`MAX_FILE_BYTES`](super::MAX_FILE_BYTES).
    #[error("{} is longer than 64 KiB: this is not a scenario file", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
    },
    /// The file is not TOML, or not a scenario's.
    #[error("scenario {origin}, line {line}: {message}")]
    Malformed {
        /// Name or path.
        origin: String,
        /// Line, from 1.
        line: usize,
        /// The error there.
        message: String,
    },
    /// A value is out of its range, or two do not go together.
    #[error("scenario {origin}: {key}: {message}")]
    Invalid {
        /// Name or path.
        origin: String,
        /// The key (with the command-line option that sets it, if any).
        key: &'static str,
        /// The error, and the allowed values.
        message: String,
    },
}

impl ScenarioError {
    /// A stable short name.
    pub fn tag(&self) -> &'static str {
        match self {
            ScenarioError::UnknownName { .. } => "unknown_scenario",
            ScenarioError::Unreadable { .. } => "unreadable",
            ScenarioError::TooLong { .. } => "too_long",
            ScenarioError::Malformed { .. } => "malformed",
            ScenarioError::Invalid { .. } => "invalid",
        }
    }

    pub(super) fn unknown_name(name: &str, known: impl Iterator<Item = &'static str>) -> ScenarioError {
        let known: Vec<&str> = known.collect();
        let nearest = nearest(name, &known).map(str::to_owned);
        ScenarioError::UnknownName { name: name.to_owned(), known: known.join(", "), nearest }
    }

    pub(super) fn malformed(origin: &str, text: &str, error: &toml::de::Error) -> ScenarioError {
        let start = error.span().map_or(0, |span| span.start.min(text.len()));
        let line = 1 + text.as_bytes()[..start].iter().filter(|&&byte| byte == b'\n').count();
        let message = friendlier(error.message());
        ScenarioError::Malformed { origin: origin.to_owned(), line, message }
    }
}

/// Shortens "unknown field `a`, expected one of …" to the key that was probably meant.
fn friendlier(message: &str) -> String {
    let one_line = message.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut quoted = one_line.split('`').skip(1).step_by(2);
    if one_line.starts_with("unknown field") || one_line.starts_with("unknown variant") {
        let word = quoted.next().unwrap_or_default().to_owned();
        let allowed: Vec<&str> = quoted.collect();
        let what = if one_line.starts_with("unknown field") { "unknown key" } else { "unknown value" };
        return match nearest(&word, &allowed) {
            Some(nearest) => format!("{what} `{word}`: did you mean `{nearest}`?"),
            None => format!("{what} `{word}`: allowed are {}", allowed.join(", ")),
        };
    }
    match one_line.strip_prefix("missing field ") {
        Some(field) => format!("the key {field} is missing"),
        None => one_line,
    }
}

fn suggest(nearest: &Option<String>) -> String {
    nearest.as_ref().map(|nearest| format!(" (did you mean `{nearest}`?)")).unwrap_or_default()
}

/// The candidate that is at most a third of the word's letters away from `word`.
fn nearest<'a>(word: &str, candidates: &[&'a str]) -> Option<&'a str> {
    let limit = word.chars().count().div_ceil(3);
    let (distance, best) = candidates.iter().map(|&known| (edits(word, known), known)).min()?;
    (distance <= limit).then_some(best)
}

/// Levenshtein distance.
fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().take(64).enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, &y) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edit_distance_counts_single_letters() {
        assert_eq!(edits("players", "players"), 0);
        assert_eq!(edits("plyers", "players"), 1);
        assert_eq!(edits("", "abc"), 3);
        assert_eq!(edits("kitten", "sitting"), 3);
    }

    #[test]
    fn only_a_similar_word_is_suggested() {
        assert_eq!(nearest("tick", &["tick_hz", "players"]), None);
        assert_eq!(nearest("tik_hz", &["tick_hz", "players"]), Some("tick_hz"));
        assert_eq!(nearest("x", &[]), None);
    }
}
