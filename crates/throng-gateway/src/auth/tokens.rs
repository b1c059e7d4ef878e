//! Tokens from a file: the players who may log in, with their login tokens.
//!
//! ```text
//! [tokens]                            {"tokens": {"ada": "a long secret"}}
//! ada = "a long secret"
//! ```

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use thiserror::Error;

use super::{Check, Credentials, Provider, is_same};
use throng_gateway_engine::port::AuthVerdict;

/// The longest file that is read.
const FILE_BYTES: u64 = 64 << 20;

/// A file of tokens that cannot be used. The operator is at fault.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TokenError {
    /// It cannot be read.
    #[error("{path}: {cause}")]
    Io {
        /// Which file.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// It holds something else.
    #[error("{path}: {cause}")]
    Format {
        /// Which file.
        path: PathBuf,
        /// The expected content, and its place.
        cause: String,
    },
}

impl TokenError {
    /// A stable name for logs.
    pub fn tag(&self) -> &'static str {
        match self {
            TokenError::Io { .. } => "tokens_io",
            TokenError::Format { .. } => "tokens_format",
        }
    }
}

/// A fixed list of players who may log in.
#[derive(Clone)]
pub struct Tokens {
    by_player: HashMap<String, String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    tokens: HashMap<String, String>,
}

impl Tokens {
    /// Reads a file: JSON if its name ends so, TOML otherwise.
    ///
    /// # Errors
    /// It cannot be read, or holds something else.
    pub fn load(path: &Path) -> Result<Tokens, TokenError> {
        let io = |cause| TokenError::Io { path: path.to_path_buf(), cause };
        let format = |cause| TokenError::Format { path: path.to_path_buf(), cause };
        if fs::metadata(path).map_err(io)?.len() > FILE_BYTES {
            return Err(format(format!("the file is longer than {FILE_BYTES} bytes")));
        }
        let text = fs::read_to_string(path).map_err(io)?;
        let document: Document = match path.extension().is_some_and(|extension| extension == "json") {
            true => serde_json::from_str(&text)
                .map_err(|cause| format(format!("line {}: {}", cause.line(), without_values(cause.is_data()))))?,
            false => toml::from_str(&text).map_err(|cause| {
                let line = throng_file::line_of(&text, cause.span().unwrap_or_default().start);
                format(format!("line {line}: {}", without_values(toml::from_str::<toml::Table>(&text).is_ok())))
            })?,
        };
        Ok(Tokens { by_player: document.tokens })
    }
}

/// A reader's own words quote the value that they are about, which may be a secret.
fn without_values(is_content: bool) -> &'static str {
    match is_content {
        true => "one key `tokens` is expected, with the names of players and a text for each",
        false => "the file is cut off, or no TOML or JSON",
    }
}

impl Provider for Tokens {
    fn check(&self, credentials: Credentials) -> Check {
        Check::Now(Ok(match self.by_player.get(&credentials.player_identifier_token) {
            Some(secret) if is_same(secret, &credentials.login_token) => AuthVerdict::Accepted,
            Some(_) => AuthVerdict::InvalidLogin,
            None => AuthVerdict::InvalidIdentifier,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{credentials, decide};
    use super::*;

    fn load(name: &str, text: &str) -> Result<Tokens, TokenError> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(name);
        fs::write(&path, text).expect("it can be written");
        Tokens::load(&path)
    }

    #[test]
    fn both_formats_say_the_same() {
        for (name, text) in [("t.toml", "[tokens]\nada = 'secret'"), ("t.json", r#"{"tokens": {"ada": "secret"}}"#)] {
            let tokens = load(name, text).expect("it is sound");
            assert_eq!(decide(&tokens, credentials("ada", "secret")), Ok(AuthVerdict::Accepted));
            assert_eq!(decide(&tokens, credentials("ada", "guess")), Ok(AuthVerdict::InvalidLogin));
            assert_eq!(decide(&tokens, credentials("bob", "secret")), Ok(AuthVerdict::InvalidIdentifier));
        }
    }

    #[test]
    fn what_is_no_list_of_tokens_is_refused_with_its_name() {
        for (name, text) in [
            ("t.toml", "ada = 'secret'"),
            ("t.json", "[]"),
            ("t.toml", "[tokens]\nada = 3"),
            ("t.toml", "[tokens]\nada = 48392017"),
            ("t.toml", "tokens = 'a secret'"),
            ("t.toml", "[tokens]\nada = 'secret"),
            ("t.json", r#"{"tokens": {"ada": 48392017}}"#),
            ("t.json", r#"{"tokens": "a secret"}"#),
            ("t.json", r#"{"tokens": {"ada": "secret" "bob"}}"#),
        ] {
            let error = load(name, text).err().expect("it is none");
            assert_eq!(error.tag(), "tokens_format");
            let words = error.to_string();
            let has_secret = words.contains("secret") || words.contains("48392017");
            assert!(words.contains(name) && words.contains("line ") && !has_secret, "{error}");
        }
        assert_eq!(Tokens::load(Path::new("/nowhere.toml")).err().map(|error| error.tag()), Some("tokens_io"));
    }
}
