//! Reading /proc and /sys below a root folder. A file may hold anything: every read is bounded, and says why it failed.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use thiserror::Error;

/// The largest file that is read. `/proc/interrupts` of a host with 320 processors has about 3 MB.
pub const FILE_BYTES_MAX: usize = 8 << 20;
/// The most names of a folder that are read.
pub const NAMES_MAX: usize = 65_536;
/// The most processors of a host.
pub const CPUS_MAX: usize = 8_192;
/// The bytes of a number that a device gives.
const NUMBER_BYTES: u64 = 4;
/// The most characters of a file that a message repeats.
const QUOTED_MAX: usize = 40;

/// Why something could not be read.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReadError {
    /// There is no such file or folder.
    #[error("{path} does not exist")]
    Absent {
        /// The path on the machine that is examined.
        path: String,
    },
    /// The user of this program may not read it.
    #[error("no right to read {path}")]
    NoRight {
        /// The path on the machine that is examined.
        path: String,
    },
    /// The system refused for another reason.
    #[error("{path}: {reason}")]
    Failed {
        /// The path on the machine that is examined.
        path: String,
        /// The system's words.
        reason: String,
    },
    /// It is neither a file nor a folder, or the other of the two.
    #[error("{path} is not a plain file")]
    NotAFile {
        /// The path on the machine that is examined.
        path: String,
    },
    /// It is larger than [`FILE_BYTES_MAX`] or has more than [`NAMES_MAX`] names.
    #[error("{path} is too large")]
    TooLarge {
        /// The path on the machine that is examined.
        path: String,
    },
    /// The content is not what the kernel writes there.
    #[error("{path} is not understood: \"{text}\"")]
    NotUnderstood {
        /// The path on the machine that is examined.
        path: String,
        /// The beginning of the content, printable.
        text: String,
    },
    /// This program has no way to ask for it.
    #[error("{reason}")]
    NoCall {
        /// The cause in words.
        reason: &'static str,
    },
}

impl ReadError {
    /// A short name for counters and JSON.
    pub fn tag(&self) -> &'static str {
        match self {
            ReadError::Absent { .. } => "absent",
            ReadError::NoRight { .. } => "no-right",
            ReadError::Failed { .. } => "failed",
            ReadError::NotAFile { .. } => "not-a-file",
            ReadError::TooLarge { .. } => "too-large",
            ReadError::NotUnderstood { .. } => "not-understood",
            ReadError::NoCall { .. } => "no-call",
        }
    }

    pub(crate) fn not_understood(path: &str, text: &str) -> ReadError {
        ReadError::NotUnderstood { path: path.to_owned(), text: printable(text, QUOTED_MAX) }
    }

    fn of(path: &str, error: &std::io::Error) -> ReadError {
        let path = path.to_owned();
        match error.kind() {
            ErrorKind::NotFound | ErrorKind::NotADirectory => ReadError::Absent { path },
            ErrorKind::PermissionDenied => ReadError::NoRight { path },
            _ => ReadError::Failed { path, reason: reason(error) },
        }
    }
}

/// The system's words without the number that Rust adds.
pub(crate) fn reason(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_lowercase()
}

/// The beginning of a text in at most `most` characters that a terminal only shows: names of processes are chosen by
/// others.
pub(crate) fn printable(text: &str, most: usize) -> String {
    let mut shown: String = text.trim().chars().take(most).map(|c| if c.is_control() { '?' } else { c }).collect();
    if text.trim().chars().nth(most).is_some() {
        shown.push_str("...");
    }
    shown
}

/// A machine whose /proc and /sys lie below a root folder: `/` for this machine, another folder for a recorded one.
#[derive(Clone, Debug)]
pub struct Host {
    root: PathBuf,
}

impl Host {
    /// The machine whose file system begins at `root`.
    pub fn at(root: &Path) -> Host {
        Host { root: root.to_owned() }
    }

    fn real(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    pub(crate) fn exists(&self, path: &str) -> bool {
        self.real(path).exists()
    }

    /// The text of a file, with a mark in the place of bytes that are not UTF-8.
    ///
    /// # Errors
    ///
    /// Every way in which a file cannot be read. Pipes and devices are not opened.
    pub fn text(&self, path: &str) -> Result<String, ReadError> {
        let failed = |error: std::io::Error| ReadError::of(path, &error);
        let real = self.real(path);
        if !fs::metadata(&real).map_err(failed)?.is_file() {
            return Err(ReadError::NotAFile { path: path.to_owned() });
        }
        let mut bytes = Vec::new();
        let file = File::open(real).map_err(failed)?;
        file.take(FILE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
        if bytes.len() > FILE_BYTES_MAX {
            return Err(ReadError::TooLarge { path: path.to_owned() });
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The number of four bytes that a device of the kernel gives: no other file is opened, and no link followed.
    pub(crate) fn device_number(&self, path: &str) -> Result<i32, ReadError> {
        let failed = |error: std::io::Error| ReadError::of(path, &error);
        let real = self.real(path);
        let kind = fs::symlink_metadata(&real).map_err(failed)?.file_type();
        if !kind.is_char_device() && !kind.is_file() {
            return Err(ReadError::NotAFile { path: path.to_owned() });
        }
        let mut bytes = Vec::new();
        File::open(real).map_err(failed)?.take(NUMBER_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
        let number = bytes.as_slice().try_into().map(i32::from_ne_bytes);
        number.map_err(|_| ReadError::not_understood(path, &String::from_utf8_lossy(&bytes)))
    }

    /// The text to which a link leads.
    pub(crate) fn link(&self, path: &str) -> Result<String, ReadError> {
        let target = fs::read_link(self.real(path)).map_err(|error| ReadError::of(path, &error))?;
        Ok(target.to_string_lossy().into_owned())
    }

    /// The names in a folder, those that begin with a number by that number.
    pub(crate) fn names(&self, folder: &str) -> Result<Vec<String>, ReadError> {
        let failed = |error: std::io::Error| ReadError::of(folder, &error);
        let mut names = Vec::new();
        for entry in fs::read_dir(self.real(folder)).map_err(failed)? {
            if names.len() == NAMES_MAX {
                return Err(ReadError::TooLarge { path: folder.to_owned() });
            }
            names.push(entry.map_err(failed)?.file_name().to_string_lossy().into_owned());
        }
        names.sort();
        Ok(names)
    }

    /// The numbers of the names `prefix` + number in a folder, in order.
    pub(crate) fn numbered(&self, folder: &str, prefix: &str) -> Result<Vec<u32>, ReadError> {
        let names = self.names(folder)?;
        let mut numbers: Vec<u32> =
            names.iter().filter_map(|name| name.strip_prefix(prefix)?.parse().ok()).take(NAMES_MAX).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// The first line of a file as a number, or as whatever else is parsed.
    pub(crate) fn value<T: FromStr>(&self, path: &str) -> Result<T, ReadError> {
        let text = self.text(path)?;
        text.trim().parse().map_err(|_| ReadError::not_understood(path, &text))
    }

    /// One word of a file, printable.
    pub(crate) fn word(&self, path: &str) -> Result<String, ReadError> {
        let text = self.text(path)?;
        let is_word = !text.trim().is_empty() && text.trim().len() <= 64 && !text.contains('\u{fffd}');
        let fault = || ReadError::not_understood(path, &text);
        is_word.then(|| printable(&text, 64)).ok_or_else(fault)
    }

    /// The word in brackets: `madvise` of `always [madvise] never`.
    pub(crate) fn chosen(&self, path: &str) -> Result<String, ReadError> {
        let text = self.text(path)?;
        let word = text.split_once('[').and_then(|(_, rest)| Some(rest.split_once(']')?.0));
        word.map(|word| printable(word, 64)).ok_or_else(|| ReadError::not_understood(path, &text))
    }

    /// A list of processors: `0-3,8`.
    pub(crate) fn cpus(&self, path: &str) -> Result<Vec<u32>, ReadError> {
        let text = self.text(path)?;
        parse_cpus(&text).ok_or_else(|| ReadError::not_understood(path, &text))
    }

    /// The numbers of the first line of a file that begins with the word `name`, colon or not.
    pub(crate) fn row(&self, path: &str, name: &str) -> Result<Vec<u64>, ReadError> {
        let text = self.text(path)?;
        let row = text.lines().find_map(|line| {
            let (word, rest) = line.split_once([' ', '\t', ':'])?;
            (word == name).then(|| rest.trim_start_matches([' ', '\t', ':']))
        });
        let numbers: Option<Vec<u64>> =
            row.map(|row| row.split_whitespace().map_while(|word| word.parse().ok()).collect());
        numbers.filter(|numbers| !numbers.is_empty()).ok_or_else(|| ReadError::not_understood(path, &text))
    }

    pub(crate) fn write(&self, path: &str, value: &str) -> std::io::Result<()> {
        // One write: a file of the kernel takes the whole value at once.
        OpenOptions::new().write(true).truncate(true).open(self.real(path))?.write_all(value.as_bytes())
    }

    /// A new file with its whole text, or none.
    pub(crate) fn create(&self, path: &str, text: &str) -> std::io::Result<()> {
        let real = self.real(path);
        fs::create_dir_all(real.parent().unwrap_or(Path::new("/")))?;
        let written = File::create_new(&real)?.write_all(text.as_bytes());
        if written.is_err() {
            fs::remove_file(&real)?;
        }
        written
    }

    pub(crate) fn remove(&self, path: &str) -> std::io::Result<()> {
        fs::remove_file(self.real(path))
    }
}

/// The processors of a list as the kernel writes it. Empty is a list, too.
pub(crate) fn parse_cpus(text: &str) -> Option<Vec<u32>> {
    let mut cpus = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        if first > last || last as usize >= CPUS_MAX || cpus.len() > CPUS_MAX {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

/// A list of processors as the kernel writes it, from a sorted one.
pub fn cpu_list(cpus: &[u32]) -> String {
    let mut parts: Vec<(u32, u32)> = Vec::new();
    for &cpu in cpus {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == cpu => *last = cpu,
            _ => parts.push((cpu, cpu)),
        }
    }
    let show = |&(first, last): &(u32, u32)| if first == last { first.to_string() } else { format!("{first}-{last}") };
    parts.iter().map(show).collect::<Vec<_>>().join(",")
}
