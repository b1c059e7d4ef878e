//! Names of subjects and keys, and patterns of them.

use std::fmt;
use std::sync::Arc;

use thiserror::Error;

/// Most bytes of a subject, a key or a pattern.
pub const NAME_BYTES_MAX: usize = 200;
/// Most tokens of a subject, a key or a pattern.
pub const NAME_TOKENS_MAX: usize = 16;

/// Why a text is no subject, key or pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NameError {
    /// It has no bytes.
    #[error("a name has at least one token: write it as in `channel.7`")]
    Empty,
    /// It has more than [`NAME_BYTES_MAX`] bytes.
    #[error("a name has at most {NAME_BYTES_MAX} bytes, and this one has {bytes}")]
    TooLong {
        /// Its bytes.
        bytes: usize,
    },
    /// It has more than [`NAME_TOKENS_MAX`] tokens.
    #[error("a name has at most {NAME_TOKENS_MAX} tokens between dots")]
    TooManyTokens,
    /// A token is empty, or has a character that is not allowed.
    #[error("token {index} of a name (counted from 0) is empty or has other characters than A-Z, a-z, 0-9, - and _")]
    Token {
        /// The place of the token, from 0.
        index: usize,
    },
}

impl NameError {
    /// A stable word for each kind of error.
    pub fn tag(self) -> &'static str {
        match self {
            NameError::Empty => "empty",
            NameError::TooLong { .. } => "too_long",
            NameError::TooManyTokens => "too_many_tokens",
            NameError::Token { .. } => "token",
        }
    }
}

/// The address of a message, or the key of an entry: tokens between dots, as `channel.7`.
///
/// A token has the characters A-Z, a-z, 0-9, `-` and `_`. Cloning is cheap: clones share the text.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Subject(Arc<str>);

impl Subject {
    /// Checks a text.
    ///
    /// # Errors
    /// If it is no name.
    pub fn new(text: &str) -> Result<Subject, NameError> {
        check(text, |_, _| false)?;
        Ok(Subject(text.into()))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A set of subjects: `*` stands for any token, and `>` at the end for one or more tokens.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pattern(Arc<str>);

impl Pattern {
    /// Checks a text.
    ///
    /// # Errors
    /// If it is no name apart from `*` and a `>` at the end.
    pub fn new(text: &str) -> Result<Pattern, NameError> {
        check(text, |token, is_last| token == "*" || (is_last && token == ">"))?;
        Ok(Pattern(text.into()))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether a subject is in the set.
    pub fn matches(&self, subject: &Subject) -> bool {
        let (mut tokens, mut wanted) = (subject.0.split('.'), self.0.split('.'));
        loop {
            match (wanted.next(), tokens.next()) {
                (None, None) => return true,
                (Some(">"), Some(_)) => return true,
                (Some("*"), Some(_)) => {}
                (Some(wanted), Some(token)) if wanted == token => {}
                _ => return false,
            }
        }
    }
}

impl From<&Subject> for Pattern {
    /// The set of this one subject.
    fn from(subject: &Subject) -> Pattern {
        Pattern(subject.0.clone())
    }
}

fn check(text: &str, is_wildcard: impl Fn(&str, bool) -> bool) -> Result<(), NameError> {
    if text.is_empty() {
        return Err(NameError::Empty);
    }
    if text.len() > NAME_BYTES_MAX {
        return Err(NameError::TooLong { bytes: text.len() });
    }
    let last = text.split('.').count() - 1;
    if last >= NAME_TOKENS_MAX {
        return Err(NameError::TooManyTokens);
    }
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    for (index, token) in text.split('.').enumerate() {
        let is_word = !token.is_empty() && token.bytes().all(is_allowed);
        if !is_word && !is_wildcard(token, index == last) {
            return Err(NameError::Token { index });
        }
    }
    Ok(())
}

impl fmt::Debug for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_those_of_nats() {
        let cases = [
            ("a.b", "a.b", true),
            ("a.b", "a", false),
            ("a.b", "a.b.c", false),
            ("a.*", "a.b", true),
            ("a.*", "a.b.c", false),
            ("*.b", "a.b", true),
            ("a.>", "a", false),
            ("a.>", "a.b.c", true),
            (">", "a", true),
            ("a.*.c", "a.b.c", true),
        ];
        for (pattern, subject, expected) in cases {
            let matches = Pattern::new(pattern).unwrap().matches(&Subject::new(subject).unwrap());
            assert_eq!(matches, expected, "{pattern} {subject}");
        }
    }

    #[test]
    fn a_name_that_could_reach_another_subject_is_refused() {
        assert_eq!(Subject::new(""), Err(NameError::Empty));
        for (text, index) in [("a.*", 1), (">", 0), ("a..b", 1), ("a b", 0), ("a.$SYS", 1), ("a\r\nPUB", 0), ("ä", 0)]
        {
            assert_eq!(Subject::new(text), Err(NameError::Token { index }), "{text}");
        }
        assert_eq!(Pattern::new("a.>.b"), Err(NameError::Token { index: 1 }));
        assert_eq!(Subject::new(&"a".repeat(201)), Err(NameError::TooLong { bytes: 201 }));
        assert_eq!(Subject::new(&["a"; 17].join(".")), Err(NameError::TooManyTokens));
        assert!(Subject::new(&["a"; 16].join(".")).is_ok());
    }
}
