//! JSON files written by people: every error names the file, the line and the key.
//!
//! Keys are found as Go's `encoding/json` finds them, exactly first and then without regard to case, because files that
//! were written for channeld have to work unchanged. `null` stands for a missing key. Unknown keys are noted and
//! skipped.

use std::fmt;
use std::ops::RangeInclusive;

use serde_json::{Map, Value};
use thiserror::Error;

/// Largest settings file, in bytes. A file of thousands of states and channel types is a hundredth of this.
pub const MAX_FILE_BYTES: usize = 1024 * 1024;

/// Something odd about the settings that stops nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// One sentence, with the place.
    pub text: String,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Why a settings file cannot be used. Its author is at fault.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileError {
    /// A file is larger than settings are.
    #[error("{file} is larger than {limit_bytes} bytes")]
    FileTooLarge {
        /// Its name.
        file: String,
        /// The limit.
        limit_bytes: usize,
    },
    /// A file is not JSON.
    #[error("{file}, line {line}, column {column}: {reason}")]
    Syntax {
        /// Its name.
        file: String,
        /// Counted from 1.
        line: usize,
        /// Counted from 1, in bytes.
        column: usize,
        /// The error.
        reason: String,
    },
    /// A file is JSON, but not what it should be.
    #[error("{file}, line {line}: {key}: {reason}")]
    Content {
        /// Its name.
        file: String,
        /// Counted from 1.
        line: usize,
        /// Which value, as `1.ACLSettings.Sub`.
        key: String,
        /// The error.
        reason: String,
    },
}

impl FileError {
    /// A short stable name, for metric labels.
    pub fn tag(&self) -> &'static str {
        match self {
            FileError::FileTooLarge { .. } => "settings_file_too_large",
            FileError::Syntax { .. } => "settings_syntax",
            FileError::Content { .. } => "settings_content",
        }
    }
}

/// A settings file that has been read.
pub struct Document<'a> {
    file: &'a str,
    text: &'a str,
    root: Value,
}

impl<'a> Document<'a> {
    /// Reads a text.
    ///
    /// # Errors
    /// A file that is not JSON, not UTF-8, or larger than [`MAX_FILE_BYTES`]: the file's author is at fault.
    pub fn parse(file: &'a str, bytes: &'a [u8]) -> Result<Document<'a>, FileError> {
        if bytes.len() > MAX_FILE_BYTES {
            return Err(FileError::FileTooLarge { file: file.into(), limit_bytes: MAX_FILE_BYTES });
        }
        let text = std::str::from_utf8(bytes).map_err(|error| FileError::Syntax {
            file: file.into(),
            line: 1 + bytes[..error.valid_up_to()].iter().filter(|&&byte| byte == b'\n').count(),
            column: 1,
            reason: "the text is not UTF-8".into(),
        })?;
        let root = serde_json::from_str(text).map_err(|error| FileError::Syntax {
            file: file.into(),
            line: error.line(),
            column: error.column(),
            reason: without_place(&error.to_string()),
        })?;
        Ok(Document { file, text, root })
    }

    /// The value that is the whole file.
    pub fn root(&self) -> Node<'_> {
        Node { document: self, path: Vec::new(), value: &self.root }
    }
}

/// `serde_json` ends its messages with the place, which we name ourselves.
fn without_place(message: &str) -> String {
    message.split(" at line ").next().unwrap_or(message).into()
}

/// One value of a document, and where it is.
#[derive(Clone)]
pub struct Node<'d> {
    document: &'d Document<'d>,
    path: Vec<Step>,
    value: &'d Value,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Key(String),
    Index(usize),
}

impl<'d> Node<'d> {
    /// The children of an object, in the order of their keys.
    pub fn members(&self) -> Result<Vec<(&'d str, Node<'d>)>, FileError> {
        let map = self.object()?;
        Ok(map.iter().map(|(key, value)| (key.as_str(), self.child(Step::Key(key.clone()), value))).collect())
    }

    /// The elements of a list.
    pub fn elements(&self) -> Result<Vec<Node<'d>>, FileError> {
        let Value::Array(list) = self.value else { return Err(self.error("a list is expected here")) };
        Ok(list.iter().enumerate().map(|(index, value)| self.child(Step::Index(index), value)).collect())
    }

    /// The child of that name, unless it is missing or `null`.
    pub fn get(&self, name: &str) -> Result<Option<Node<'d>>, FileError> {
        let map = self.object()?;
        let found = map
            .get_key_value(name)
            .or_else(|| map.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)))
            .filter(|(_, value)| !value.is_null());
        Ok(found.map(|(key, value)| self.child(Step::Key(key.clone()), value)))
    }

    /// Notes keys that are none of `known`.
    pub fn note_unknown(&self, known: &[&str], notes: &mut Vec<Note>) -> Result<(), FileError> {
        for (key, child) in self.members()? {
            if !known.iter().any(|name| name.eq_ignore_ascii_case(key)) {
                notes.push(child.note("this key means nothing here and is passed over"));
            }
        }
        Ok(())
    }

    /// A text.
    pub fn string(&self) -> Result<&'d str, FileError> {
        self.value.as_str().ok_or_else(|| self.error("a text in quotation marks is expected here"))
    }

    /// True or false.
    pub fn boolean(&self) -> Result<bool, FileError> {
        self.value.as_bool().ok_or_else(|| self.error("true or false is expected here"))
    }

    /// A finite number.
    pub fn number(&self) -> Result<f64, FileError> {
        let number = self.value.as_f64().filter(|number| number.is_finite());
        number.ok_or_else(|| self.error("a number is expected here"))
    }

    /// A whole number within a range.
    pub fn integer<T>(&self, range: RangeInclusive<T>) -> Result<T, FileError>
    where
        T: TryFrom<i64> + PartialOrd + fmt::Display,
    {
        let number = self.value.as_i64().and_then(|number| T::try_from(number).ok());
        number.filter(|number| range.contains(number)).ok_or_else(|| {
            self.error(format!("a whole number from {} to {} is expected here", range.start(), range.end()))
        })
    }

    /// A complaint about this value.
    pub fn error(&self, reason: impl Into<String>) -> FileError {
        FileError::Content {
            file: self.document.file.into(),
            line: self.line(),
            key: self.key(),
            reason: reason.into(),
        }
    }

    /// A remark about this value that does not stop anything.
    pub fn note(&self, text: impl fmt::Display) -> Note {
        Note { text: format!("{}, line {}: {}: {text}", self.document.file, self.line(), self.key()) }
    }

    fn object(&self) -> Result<&'d Map<String, Value>, FileError> {
        self.value.as_object().ok_or_else(|| self.error("an object in braces is expected here"))
    }

    fn child(&self, step: Step, value: &'d Value) -> Node<'d> {
        let mut path = self.path.clone();
        path.push(step);
        Node { document: self.document, path, value }
    }

    fn key(&self) -> String {
        let mut key = String::new();
        for step in &self.path {
            match step {
                Step::Key(name) if key.is_empty() => key.push_str(name),
                Step::Key(name) => key.extend([".", name]),
                Step::Index(index) => key.push_str(&format!("[{index}]")),
            }
        }
        if key.is_empty() { "the file".into() } else { key }
    }

    fn line(&self) -> usize {
        line_of(self.document.text, &self.path)
    }
}

/// The line, counted from 1, on which the value at `path` of a sound JSON text begins: that of its key, if it has one.
/// Only asked for when there is something to complain about, so it reads the text again from the start.
fn line_of(text: &str, path: &[Step]) -> usize {
    let bytes = text.as_bytes();
    let (mut line, mut at) = (1, 0);
    let mut here: Vec<Step> = Vec::new();
    let mut found = 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\n' => line += 1,
            // A place holder that no path contains, until the first key has been seen.
            b'{' => here.push(Step::Index(usize::MAX)),
            b'[' => {
                here.push(Step::Index(0));
                if here == path {
                    found = line_of_next(bytes, at + 1, line);
                }
            }
            b'}' | b']' => {
                here.pop();
            }
            b',' => {
                if let Some(Step::Index(index)) = here.last_mut() {
                    *index += 1;
                    if here == path {
                        found = line_of_next(bytes, at + 1, line);
                    }
                }
            }
            b'"' => {
                let end = end_of_string(bytes, at);
                if is_key(bytes, end) {
                    let key = serde_json::from_str(&text[at..end]).unwrap_or_default();
                    here.pop();
                    here.push(Step::Key(key));
                    if here == path {
                        found = line; // the last of several keys of one name is the one that counts
                    }
                }
                at = end;
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    found
}

/// Behind the closing quotation mark of the string that begins at `at`.
fn end_of_string(bytes: &[u8], at: usize) -> usize {
    let mut at = at + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

fn is_key(bytes: &[u8], end_of_string: usize) -> bool {
    bytes[end_of_string..].iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b':')
}

fn line_of_next(bytes: &[u8], from: usize, line: usize) -> usize {
    line + bytes[from..].iter().take_while(|byte| byte.is_ascii_whitespace()).filter(|&&byte| byte == b'\n').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_complaint_names_file_line_and_key() {
        let text = b"{\n  \"a\\n\": [1, {\"b\": 2},\n   {\n \"b\" : -3}],\n \"c\": \"{[,\"\n}";
        let document = Document::parse("some.json", text).unwrap();
        let list = document.root().get("A\n").unwrap().unwrap().elements().unwrap();
        let error = list[2].get("b").unwrap().unwrap().integer(0..=5u32).unwrap_err();
        assert_eq!(error.to_string(), "some.json, line 4: a\n[2].b: a whole number from 0 to 5 is expected here");
        assert_eq!(list[2].line(), 3);
        assert_eq!(document.root().get("c").unwrap().unwrap().line(), 5);
    }

    #[test]
    fn a_text_that_is_not_json_is_refused_with_its_line() {
        let error = Document::parse("x.json", b"{\n\n  \"a\": ,\n}").err().expect("refused");
        assert!(error.to_string().starts_with("x.json, line 3"), "{error}");
        let error = Document::parse("x.json", b"{}\n\xff").err().expect("refused");
        assert!(error.to_string().starts_with("x.json, line 2"), "{error}");
        assert!(Document::parse("x.json", &vec![b' '; MAX_FILE_BYTES + 1]).is_err());
    }

    #[test]
    fn keys_are_found_as_go_finds_them() {
        let document = Document::parse("x.json", br#"{"NAME": 1, "Name": 2, "other": null}"#).unwrap();
        let root = document.root();
        assert_eq!(root.get("Name").unwrap().unwrap().integer(0..=9u8).unwrap(), 2);
        assert_eq!(root.get("name").unwrap().unwrap().integer(0..=9u8).unwrap(), 1);
        assert!(root.get("Other").unwrap().is_none());
    }
}
