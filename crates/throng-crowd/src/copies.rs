//! The objects of an edge and those of its origins: a file in memory, written by the edge, read by the bots that compare.
//!
//! ```text
//! records of 40 bytes, little endian, each appended once
//! [1: u32][origin: u32][index here: u32][generation here: u32][index there: u32][generation there: u32][tick here: u64][tick there: u64]
//!                                                                               an object here copies that one from now on
//! [2: u32][origin: u32][tick here: u64][tick there: u64][0: u64][0: u64]        ticks, whenever they shift
//! [3: u32][origin: u32][tick here: u64][ticks: u64][0: u64][0: u64]             the edge was so many ticks beyond the news
//! ```
//!
//! *Here* is the edge, *there* is the origin. An object that goes from one origin to another stays the same one here.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use throng::{ObjectId, Tick};

use crate::unnamed::Unnamed;

const RECORD_BYTES: usize = 40;
const OBJECT: u32 = 1;
const TICKS: u32 = 2;
const BEYOND: u32 = 3;
/// Records that are read at once.
const READ_RECORDS: usize = 4_096;
/// Objects of a run that a reader remembers. More are not found.
const OBJECTS_MAX: usize = 1 << 24;
/// Origins of an edge.
const ORIGINS_MAX: usize = 1 << 10;
/// Former origins of an object that a reader remembers. A state that is older than those belongs to nothing that is known.
const FORMER_MAX: usize = 16;

/// Ticks of an origin that a reader remembers in which the edge was beyond the news.
const BEYOND_MAX: usize = 1 << 12;

/// The object of which one at an edge is a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Original {
    /// The number of the origin.
    pub origin: usize,
    /// The object there.
    pub id: ObjectId,
    /// The first tick here in which it is.
    pub since: Tick,
    /// The tick there for which that one stood then.
    pub there: Tick,
}

/// All that is known of where an object at an edge comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Where it comes from now.
    pub now: Original,
    /// Where it came from before, oldest first. In a few ticks it can be handed over several times.
    former: VecDeque<Original>,
    /// There were others before those.
    has_forgotten: bool,
}

impl Source {
    /// Of which object a state is that was sent here in a tick; `None` if that was too many origins ago.
    pub fn at(&self, here: Tick) -> Option<Original> {
        let all = std::iter::once(&self.now).chain(self.former.iter().rev());
        let found = all.copied().find(|original| !original.since.is_newer_than(here));
        // Before the first of all, a state is nobody else's.
        found.or_else(|| (!self.has_forgotten).then(|| self.former.front().copied().unwrap_or(self.now)))
    }

    fn of(now: Original) -> Source {
        Source { now, former: VecDeque::new(), has_forgotten: false }
    }

    fn go_on_as(&mut self, now: Original) {
        self.former.push_back(std::mem::replace(&mut self.now, now));
        if self.former.len() > FORMER_MAX {
            self.former.pop_front();
            self.has_forgotten = true;
        }
    }
}

/// Writes the file.
#[derive(Debug)]
pub struct CopiesWriter {
    file: Unnamed,
    bytes: Vec<u8>,
    /// By origin, ticks there minus ticks here.
    shifts: Vec<Option<i64>>,
}

impl CopiesWriter {
    /// Creates an empty file for an edge of so many origins, in memory if the machine has a place for that.
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn create(origins: usize) -> io::Result<CopiesWriter> {
        let file = Unnamed::create()?;
        Ok(CopiesWriter { file, bytes: Vec::new(), shifts: vec![None; origins] })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// The object `here` is a copy of that one from now on.
    pub fn note(&mut self, here: ObjectId, there: Original) {
        let Original { origin, id, since, there } = there;
        let numbers = [OBJECT, origin as u32, here.index, here.generation, id.index, id.generation];
        numbers.iter().for_each(|number| self.bytes.extend_from_slice(&number.to_le_bytes()));
        [since.0, there.0].iter().for_each(|tick| self.bytes.extend_from_slice(&tick.to_le_bytes()));
    }

    /// The tick `here` stands for the one `there`, at one of the origins.
    pub fn note_ticks(&mut self, origin: usize, here: Tick, there: Tick) {
        let shift = there.0 as i64 - here.0 as i64;
        let Some(known) = self.shifts.get_mut(origin) else { return };
        if known.replace(shift) != Some(shift) {
            [TICKS, origin as u32].iter().for_each(|number| self.bytes.extend_from_slice(&number.to_le_bytes()));
            [here.0, there.0, 0, 0].iter().for_each(|number| self.bytes.extend_from_slice(&number.to_le_bytes()));
        }
    }

    /// In the tick `here` the edge shows the objects of an origin so many ticks later than the newest tick that has come from there.
    pub fn note_beyond(&mut self, origin: usize, here: Tick, ticks: u64) {
        [BEYOND, origin as u32].iter().for_each(|number| self.bytes.extend_from_slice(&number.to_le_bytes()));
        [here.0, ticks, 0, 0].iter().for_each(|number| self.bytes.extend_from_slice(&number.to_le_bytes()));
    }

    /// Writes the notes since the last call.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn flush(&mut self) -> io::Result<()> {
        if self.bytes.is_empty() {
            return Ok(());
        }
        self.file.file().write_all(&self.bytes)?;
        self.bytes.clear();
        Ok(())
    }
}

/// How the ticks of an origin stand to those of the edge.
#[derive(Clone, Copy, Debug, Default)]
struct Shift {
    /// Ticks there minus ticks here.
    ticks: i64,
    /// The tick there from which on that holds.
    from: Tick,
}

/// Reads the file.
#[derive(Debug)]
pub struct CopiesReader {
    file: File,
    /// The beginning of a record whose end is not written yet.
    rest: Vec<u8>,
    there: HashMap<ObjectId, Source>,
    origins: Vec<OriginTicks>,
}

/// The ticks of an origin.
#[derive(Clone, Debug, Default)]
struct OriginTicks {
    shift: Option<Shift>,
    /// Ticks here, and how far beyond the news the edge was in each; the latest ones.
    beyond: VecDeque<(Tick, u64)>,
}

impl CopiesReader {
    /// Opens a file that is being written.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn open(path: &Path) -> io::Result<CopiesReader> {
        let (rest, there, origins) = (Vec::new(), HashMap::new(), Vec::new());
        Ok(CopiesReader { file: File::open(path)?, rest, there, origins })
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
        let origin = word(1) as usize;
        match word(0) {
            OBJECT | TICKS | BEYOND if origin >= ORIGINS_MAX => {
                return Err(invalid("a record about copies of no origin"));
            }
            OBJECT if self.there.len() < OBJECTS_MAX => {
                let id = |at: usize| ObjectId { index: word(at), generation: word(at + 1) };
                let now = Original { origin, id: id(4), since: Tick(long(6)), there: Tick(long(8)) };
                match self.there.entry(id(2)) {
                    Entry::Occupied(known) => known.into_mut().go_on_as(now),
                    Entry::Vacant(free) => drop(free.insert(Source::of(now))),
                }
            }
            OBJECT => {}
            TICKS => {
                let ticks = long(4).wrapping_sub(long(2)) as i64;
                self.ticks_of(origin).shift = Some(Shift { ticks, from: Tick(long(4)) });
            }
            BEYOND => {
                let beyond = &mut self.ticks_of(origin).beyond;
                if beyond.len() >= BEYOND_MAX {
                    beyond.pop_front();
                }
                beyond.push_back((Tick(long(2)), long(4)));
            }
            _ => return Err(invalid("an unknown record about copies")),
        }
        Ok(())
    }

    fn ticks_of(&mut self, origin: usize) -> &mut OriginTicks {
        if self.origins.len() <= origin {
            self.origins.resize_with(origin + 1, OriginTicks::default);
        }
        &mut self.origins[origin]
    }

    /// The object of which the one here is a copy.
    pub fn there(&self, here: ObjectId) -> Option<&Source> {
        self.there.get(&here)
    }

    fn shift(&self, origin: usize) -> Option<Shift> {
        self.origins.get(origin)?.shift
    }

    /// The tick of an origin since which its ticks have stood for the same ones here as they do now.
    pub fn steady_from(&self, origin: usize) -> Tick {
        self.shift(origin).map_or(Tick(0), |shift| shift.from)
    }

    /// How many ticks beyond the news of an origin the edge was in a tick here, as far as it has noted that.
    pub fn beyond(&self, origin: usize, here: Tick) -> u64 {
        let Some(OriginTicks { beyond, .. }) = self.origins.get(origin) else { return 0 };
        beyond.binary_search_by_key(&here, |(tick, _)| *tick).map_or(0, |place| beyond[place].1)
    }

    /// The tick here that stands for the one there; `None` before any is known.
    pub fn tick_here(&self, origin: usize, there: Tick) -> Option<Tick> {
        Some(Tick(there.0.checked_add_signed(self.shift(origin)?.ticks.checked_neg()?)?))
    }

    /// The tick there for which the one here stands; `None` before any is known.
    pub fn tick_there(&self, origin: usize, here: Tick) -> Option<Tick> {
        Some(Tick(here.0.checked_add_signed(self.shift(origin)?.ticks)?))
    }
}

fn invalid(words: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(index: u32, generation: u32) -> ObjectId {
        ObjectId { index, generation }
    }

    fn original(origin: usize, id: ObjectId, since: u64) -> Original {
        Original { origin, id, since: Tick(since), there: Tick(since ^ 7) }
    }

    fn now(source: Option<&Source>) -> Option<Original> {
        source.map(|source| source.now)
    }

    #[test]
    fn notes_are_read_as_they_were_written_however_they_are_cut() {
        let mut writer = CopiesWriter::create(3).unwrap();
        let mut reader = CopiesReader::open(writer.path()).unwrap();
        for number in 0..10_000 {
            let there = original(number as usize % 3, id(number + 7, number), u64::from(number) << 30);
            writer.note(id(number, 1), there);
            if number % 3_000 == 0 {
                writer.flush().unwrap();
                reader.poll().unwrap();
                assert_eq!(now(reader.there(id(number, 1))), Some(there));
            }
        }
        assert_eq!((reader.there(id(9_500, 1)), reader.tick_here(2, Tick(5))), (None, None));
        writer.note_ticks(2, Tick(10), Tick(1_000));
        writer.note_ticks(2, Tick(11), Tick(1_001));
        writer.note_ticks(1, Tick(11), Tick(4));
        writer.note_ticks(3, Tick(11), Tick(4));
        writer.flush().unwrap();
        assert_eq!(std::fs::metadata(writer.path()).unwrap().len(), 10_002 * RECORD_BYTES as u64);
        reader.poll().unwrap();
        assert_eq!(now(reader.there(id(9_500, 1))), Some(original(2, id(9_507, 9_500), 9_500 << 30)));
        assert_eq!(
            (reader.tick_here(2, Tick(1_500)), reader.tick_there(2, Tick(510))),
            (Some(Tick(510)), Some(Tick(1_500)))
        );
        assert_eq!((reader.tick_here(2, Tick(3)), reader.steady_from(2)), (None, Tick(1_000)));
        assert_eq!((reader.tick_here(1, Tick(3)), reader.tick_here(0, Tick(3))), (Some(Tick(10)), None));
        // Far beyond what came, in some ticks. The oldest notes are forgotten.
        for (origin, here, ticks) in [(1, 12, 7), (1, 14, 9), (2, 14, 1)] {
            writer.note_beyond(origin, Tick(here), ticks);
        }
        writer.flush().unwrap();
        reader.poll().unwrap();
        let beyond = |reader: &CopiesReader| [12, 13, 14].map(|here| reader.beyond(1, Tick(here)));
        assert_eq!((beyond(&reader), reader.beyond(2, Tick(14)), reader.beyond(0, Tick(14))), ([7, 0, 9], 1, 0));
        (0..BEYOND_MAX as u64 - 1).for_each(|number| writer.note_beyond(1, Tick(20 + number), 5));
        writer.flush().unwrap();
        reader.poll().unwrap();
        assert_eq!(beyond(&reader), [0, 0, 9]);
        // It goes on at other origins, twice before anybody reads.
        let (first, since) = (original(2, id(9_507, 9_500), 9_500 << 30), 10_000 << 30);
        let moved = [original(0, id(1, 2), since), original(1, id(1, 3), since + 4)];
        moved.iter().for_each(|moved| writer.note(id(9_500, 1), *moved));
        writer.flush().unwrap();
        reader.poll().unwrap();
        let source = reader.there(id(9_500, 1)).unwrap();
        let at = [0, since - 1, since, since + 3, since + 4, u64::MAX].map(|tick| source.at(Tick(tick)));
        assert_eq!(at, [first, first, moved[0], moved[0], moved[1], moved[1]].map(Some));
        // A record of which the end is missing, and one that is none.
        let mut file = File::options().append(true).open(writer.path()).unwrap();
        file.write_all(&[9; 20]).unwrap();
        reader.poll().unwrap();
        file.write_all(&[9; RECORD_BYTES - 20]).unwrap();
        assert!(reader.poll().is_err());
    }

    #[test]
    fn of_an_object_with_many_origins_the_last_are_remembered() {
        let of = |number: usize| original(number % 4, id(number as u32, 1), 10 * number as u64);
        let mut source = Source::of(of(0));
        for number in 1..=FORMER_MAX {
            source.go_on_as(of(number));
        }
        assert_eq!((source.at(Tick(0)), source.former.len()), (Some(of(0)), FORMER_MAX));
        source.go_on_as(of(FORMER_MAX + 1));
        assert_eq!((source.at(Tick(9)), source.at(Tick(10)), source.former.len()), (None, Some(of(1)), FORMER_MAX));
    }

    #[test]
    fn a_record_of_an_origin_that_cannot_be_is_an_error() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let mut record = [0; RECORD_BYTES];
        (record[0], record[7]) = (TICKS as u8, 255);
        file.write_all(&record).unwrap();
        assert!(CopiesReader::open(file.path()).unwrap().poll().is_err());
    }
}
