//! The objects of an edge and those of its origin: a file in memory, written by the edge, read by the bots that compare.
//!
//! ```text
//! records of 24 bytes, little endian, each appended once
//! [1: u32][index here: u32][generation here: u32][index there: u32][generation there: u32][0: u32]   an object and its copy here
//! [2: u32][0: u32][tick here: u64][tick there: u64]                                                 ticks, whenever they shift
//! ```
//!
//! *Here* is the edge, *there* is the origin.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use tempfile::NamedTempFile;
use throng::{ObjectId, Tick};

use crate::truth::memory_folder;

const RECORD_BYTES: usize = 24;
const OBJECT: u32 = 1;
const TICKS: u32 = 2;
/// Records that are read at once.
const READ_RECORDS: usize = 4_096;
/// Objects of a run that a reader remembers. More are not found.
const OBJECTS_MAX: usize = 1 << 24;

/// Writes the file.
#[derive(Debug)]
pub struct CopiesWriter {
    /// Is removed when the writer is dropped.
    file: NamedTempFile,
    bytes: Vec<u8>,
    /// Ticks there minus ticks here.
    shift: Option<i64>,
}

impl CopiesWriter {
    /// Creates an empty file, in memory if the machine has a place for that.
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn create() -> io::Result<CopiesWriter> {
        let file = tempfile::Builder::new().prefix("throng-copies-").tempfile_in(memory_folder())?;
        Ok(CopiesWriter { file, bytes: Vec::new(), shift: None })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// The object `here` is a copy of the one `there`.
    pub fn note(&mut self, here: ObjectId, there: ObjectId) {
        let numbers = [OBJECT, here.index, here.generation, there.index, there.generation, 0];
        numbers.iter().for_each(|number| self.bytes.extend_from_slice(&number.to_le_bytes()));
    }

    /// The tick `here` stands for the one `there`.
    pub fn note_ticks(&mut self, here: Tick, there: Tick) {
        let shift = there.0 as i64 - here.0 as i64;
        if self.shift.replace(shift) != Some(shift) {
            self.bytes.extend_from_slice(&TICKS.to_le_bytes());
            self.bytes.extend_from_slice(&[0; 4]);
            self.bytes.extend_from_slice(&here.0.to_le_bytes());
            self.bytes.extend_from_slice(&there.0.to_le_bytes());
        }
    }

    /// Writes the notes since the last call.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn flush(&mut self) -> io::Result<()> {
        if self.bytes.is_empty() {
            return Ok(());
        }
        self.file.as_file_mut().write_all(&self.bytes)?;
        self.bytes.clear();
        Ok(())
    }
}

/// Reads the file.
#[derive(Debug)]
pub struct CopiesReader {
    file: File,
    /// The beginning of a record whose end is not written yet.
    rest: Vec<u8>,
    there: HashMap<ObjectId, ObjectId>,
    shift: Option<i64>,
    /// The tick there from which on the shift holds.
    shift_from: Tick,
}

impl CopiesReader {
    /// Opens a file that is being written.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn open(path: &Path) -> io::Result<CopiesReader> {
        Ok(CopiesReader {
            file: File::open(path)?,
            rest: Vec::new(),
            there: HashMap::new(),
            shift: None,
            shift_from: Tick(0),
        })
    }

    /// Reads all that is new.
    ///
    /// # Errors
    /// The file cannot be read, or has a record of another kind.
    pub fn poll(&mut self) -> io::Result<()> {
        loop {
            let read = (&mut self.file).take((READ_RECORDS * RECORD_BYTES) as u64).read_to_end(&mut self.rest)?;
            let records = self.rest.len() / RECORD_BYTES * RECORD_BYTES;
            let rest = self.rest.split_off(records);
            let bytes = std::mem::replace(&mut self.rest, rest);
            bytes.chunks_exact(RECORD_BYTES).try_for_each(|record| self.take(record))?;
            if read == 0 {
                return Ok(());
            }
        }
    }

    fn take(&mut self, record: &[u8]) -> io::Result<()> {
        let word = |at: usize| record[at * 4..].first_chunk::<4>().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 1)) << 32;
        match word(0) {
            OBJECT if self.there.len() < OBJECTS_MAX => {
                let id = |at: usize| ObjectId { index: word(at), generation: word(at + 1) };
                self.there.insert(id(1), id(3));
            }
            OBJECT => {}
            TICKS => {
                self.shift = Some(long(4).wrapping_sub(long(2)) as i64);
                self.shift_from = Tick(long(4));
            }
            _ => return Err(io::Error::new(io::ErrorKind::InvalidData, "an unknown record about copies")),
        }
        Ok(())
    }

    /// The object there of which the one here is a copy.
    pub fn there(&self, here: ObjectId) -> Option<ObjectId> {
        self.there.get(&here).copied()
    }

    /// The tick there since which ticks have stood for each other as they do now.
    pub fn steady_from(&self) -> Tick {
        self.shift_from
    }

    /// The tick here that stands for the one there; `None` before any is known.
    pub fn tick_here(&self, there: Tick) -> Option<Tick> {
        Some(Tick(there.0.checked_add_signed(self.shift?.checked_neg()?)?))
    }

    /// The tick there for which the one here stands; `None` before any is known.
    pub fn tick_there(&self, here: Tick) -> Option<Tick> {
        Some(Tick(here.0.checked_add_signed(self.shift?)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(index: u32, generation: u32) -> ObjectId {
        ObjectId { index, generation }
    }

    #[test]
    fn notes_are_read_as_they_were_written_however_they_are_cut() {
        let mut writer = CopiesWriter::create().unwrap();
        let mut reader = CopiesReader::open(writer.path()).unwrap();
        for number in 0..10_000 {
            writer.note(id(number, 1), id(number + 7, number));
            if number % 3_000 == 0 {
                writer.flush().unwrap();
                reader.poll().unwrap();
                assert_eq!(reader.there(id(number, 1)), Some(id(number + 7, number)));
            }
        }
        assert_eq!((reader.there(id(9_500, 1)), reader.tick_here(Tick(5))), (None, None));
        writer.note_ticks(Tick(10), Tick(1_000));
        writer.note_ticks(Tick(11), Tick(1_001));
        writer.flush().unwrap();
        assert_eq!(std::fs::metadata(writer.path()).unwrap().len(), 10_001 * RECORD_BYTES as u64);
        reader.poll().unwrap();
        assert_eq!(reader.there(id(9_500, 1)), Some(id(9_507, 9_500)));
        assert_eq!(reader.tick_here(Tick(1_500)), Some(Tick(510)));
        assert_eq!(reader.tick_there(Tick(510)), Some(Tick(1_500)));
        assert_eq!((reader.tick_here(Tick(3)), reader.steady_from()), (None, Tick(1_000)));
        // A record of which the end is missing, and one that is none.
        let mut file = File::options().append(true).open(writer.path()).unwrap();
        file.write_all(&[9; 20]).unwrap();
        reader.poll().unwrap();
        file.write_all(&[9; 4]).unwrap();
        assert!(reader.poll().is_err());
    }
}
