//! The server's truth, for the bots to compare with: a file in memory, written beside the server's work.
//!
//! ```text
//! header   [version: u64][index of the newest snapshot: u64][ticks begun: u64]
//! ticks    the last TICKS, each at its number modulo TICKS: [tick + 1: u64][time of its beginning in µs: u64]
//! places   two, used in turn: [version: u64][tick: u64][time in µs: u64][count: u32][final: u32]
//!          then for each object [index: u32][generation: u32][owner: u32][kind: u32][words: 12 x u32]
//! ```
//!
//! A tick is written before its packets are sent, so that every reader of a packet finds its tick here.
//! The version is written before and after: a reader that finds the same in header and snapshot has a whole snapshot.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use throng::schema::ValuesMut;
use throng::{ObjectId, Tick, Time};

use crate::kinds::{LabKind, velocity_of};

/// Words of the kind with the most.
pub const WORDS: usize = 12;
const ENTRY_BYTES: usize = 16 + WORDS * 4;
const HEAD_BYTES: usize = 32;
const NO_OWNER: u32 = u32::MAX;
const HEADER_BYTES: u64 = 24;
const BEGUN_AT: u64 = 16;
const TICK_BYTES: u64 = 16;
/// Ticks whose time is kept.
pub const TICKS: u64 = 512;
const PLACES_AT: u64 = HEADER_BYTES + TICKS * TICK_BYTES;

/// One object at the moment of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrueObject {
    /// Its number.
    pub id: ObjectId,
    /// Index of the connection that owns it.
    pub owner: Option<u32>,
    /// [`LabKind::NUMBER`] of its kind.
    pub kind: u16,
    /// Its quantised fields; those that its kind does not have are 0.
    pub words: [u32; WORDS],
}

impl TrueObject {
    /// An object of the game with `value`. Clients are compared with the game's own values, not with what the server made
    /// of them.
    pub fn of<K: LabKind>(id: ObjectId, owner: Option<u32>, value: &K) -> TrueObject {
        let mut words = [0; WORDS];
        value.quantise(ValuesMut { words: &mut words[..K::WORDS], blobs: &mut [] });
        TrueObject { id, owner, kind: K::NUMBER, words }
    }

    /// In metres; the lab's kinds begin with a position in centimetres.
    pub fn position_m(&self) -> [f64; 3] {
        std::array::from_fn(|axis| f64::from(self.words[axis] as i32) / 100.0)
    }
}

impl TrueObject {
    /// Where it is some time later: a character walks on. In metres; the words after a character's position are its velocity.
    pub fn position_after(&self, seconds: f64) -> [f64; 3] {
        let velocity = |axis: usize| velocity_of(self.words[3 + axis]);
        let here = self.position_m();
        match self.kind {
            0 => std::array::from_fn(|axis| here[axis] + velocity(axis) * seconds),
            _ => here,
        }
    }
}

/// All objects at the end of a tick.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Counts snapshots, from 1.
    pub version: u64,
    /// The tick that was sent last.
    pub tick: Tick,
    /// When that tick began.
    pub time: Time,
    /// Nothing changes any more.
    pub is_final: bool,
    /// The objects, in any order.
    pub objects: Vec<TrueObject>,
}

/// Writes snapshots.
#[derive(Debug)]
pub struct TruthWriter {
    path: PathBuf,
    file: File,
    version: u64,
    place_bytes: u64,
    bytes: Vec<u8>,
}

impl TruthWriter {
    /// Creates the file, with room for `objects`, in memory if the machine has a place for that.
    pub fn create(objects: usize) -> io::Result<TruthWriter> {
        let memory = Path::new("/dev/shm");
        let folder = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let path = folder.join(format!("throng-truth-{}-{}", std::process::id(), throng_machine::clock::now().0));
        let file = File::options().read(true).write(true).create_new(true).open(&path)?;
        let place_bytes = (HEAD_BYTES + objects * ENTRY_BYTES) as u64;
        Ok(TruthWriter { path, file, version: 0, place_bytes, bytes: Vec::with_capacity(place_bytes as usize) })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes when a tick begins. To be called before its packets are sent.
    pub fn note_tick(&mut self, tick: Tick, time: Time) -> io::Result<()> {
        let mut entry = [0; TICK_BYTES as usize];
        entry[..8].copy_from_slice(&(tick.0 + 1).to_le_bytes());
        entry[8..].copy_from_slice(&time.0.to_le_bytes());
        self.file.write_all_at(&entry, HEADER_BYTES + tick.0 % TICKS * TICK_BYTES)?;
        self.file.write_all_at(&(tick.0 + 1).to_le_bytes(), BEGUN_AT)
    }

    /// Writes a snapshot of these objects, as many as the file has room for. `tick` is the one that was sent last.
    pub fn write(
        &mut self,
        (tick, time): (Tick, Time),
        is_final: bool,
        objects: impl Iterator<Item = TrueObject>,
    ) -> io::Result<()> {
        self.version += 1;
        self.bytes.clear();
        self.bytes.resize(HEAD_BYTES, 0);
        let mut count = 0u32;
        for object in objects {
            if self.bytes.len() + ENTRY_BYTES > self.place_bytes as usize {
                break;
            }
            let owner = object.owner.unwrap_or(NO_OWNER);
            for number in [object.id.index, object.id.generation, owner, u32::from(object.kind)] {
                self.bytes.extend_from_slice(&number.to_le_bytes());
            }
            for word in object.words {
                self.bytes.extend_from_slice(&word.to_le_bytes());
            }
            count += 1;
        }
        self.bytes[0..8].copy_from_slice(&self.version.to_le_bytes());
        self.bytes[8..16].copy_from_slice(&tick.0.to_le_bytes());
        self.bytes[16..24].copy_from_slice(&time.0.to_le_bytes());
        self.bytes[24..28].copy_from_slice(&count.to_le_bytes());
        self.bytes[28..32].copy_from_slice(&u32::from(is_final).to_le_bytes());
        let place = self.version % 2;
        self.file.write_all_at(&self.bytes, PLACES_AT + place * self.place_bytes)?;
        let mut header = [0; 16];
        header[..8].copy_from_slice(&self.version.to_le_bytes());
        header[8..].copy_from_slice(&(PLACES_AT + place * self.place_bytes).to_le_bytes());
        self.file.write_all_at(&header, 0)
    }
}

impl Drop for TruthWriter {
    fn drop(&mut self) {
        // Nothing can be done about a file that cannot be removed.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Reads snapshots.
#[derive(Debug)]
pub struct TruthReader {
    file: File,
    bytes: Vec<u8>,
    newest: Snapshot,
    /// Ticks that were read, and all before them.
    ticks_read: u64,
}

impl TruthReader {
    /// Opens the file of a writer.
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub fn open(path: &Path) -> io::Result<TruthReader> {
        Ok(TruthReader { file: File::open(path)?, bytes: Vec::new(), newest: Snapshot::default(), ticks_read: 0 })
    }

    /// The ticks that have begun since the last call, oldest first, as far as they are still in the file.
    pub fn poll_ticks(&mut self, mut each: impl FnMut(Tick, Time)) {
        let mut begun = [0; 8];
        if self.file.read_exact_at(&mut begun, BEGUN_AT).is_err() {
            return;
        }
        let begun = long(&begun);
        for tick in self.ticks_read.max(begun.saturating_sub(TICKS))..begun {
            let mut entry = [0; TICK_BYTES as usize];
            let at = HEADER_BYTES + tick % TICKS * TICK_BYTES;
            if self.file.read_exact_at(&mut entry, at).is_ok() && long(&entry[..8]) == tick + 1 {
                each(Tick(tick), Time(long(&entry[8..])));
            }
        }
        self.ticks_read = begun;
    }

    /// The newest snapshot, if it is newer than the last that was returned.
    pub fn poll(&mut self) -> Option<&Snapshot> {
        let mut header = [0; 16];
        self.file.read_exact_at(&mut header, 0).ok()?;
        let (version, place) = (long(&header[..8]), long(&header[8..]));
        if version <= self.newest.version {
            return None;
        }
        let mut head = [0; HEAD_BYTES];
        self.file.read_exact_at(&mut head, place).ok()?;
        let count = word(&head[24..28]) as usize;
        self.bytes.resize(count.checked_mul(ENTRY_BYTES).filter(|&bytes| bytes < 1 << 30)?, 0);
        self.file.read_exact_at(&mut self.bytes, place + HEAD_BYTES as u64).ok()?;
        let mut again = [0; 8];
        self.file.read_exact_at(&mut again, place).ok()?;
        if long(&head[..8]) != version || long(&again) != version {
            return None;
        }
        self.newest.version = version;
        self.newest.tick = Tick(long(&head[8..16]));
        self.newest.time = Time(long(&head[16..24]));
        self.newest.is_final = word(&head[28..]) == 1;
        self.newest.objects.clear();
        self.newest.objects.extend(self.bytes.chunks_exact(ENTRY_BYTES).map(|entry| TrueObject {
            id: ObjectId { index: word(&entry[..4]), generation: word(&entry[4..8]) },
            owner: Some(word(&entry[8..12])).filter(|&owner| owner != NO_OWNER),
            kind: word(&entry[12..16]) as u16,
            words: std::array::from_fn(|at| word(&entry[16 + at * 4..][..4])),
        }));
        Some(&self.newest)
    }
}

fn word(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(bytes.try_into().expect("four bytes"))
}

fn long(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tick_and_every_snapshot_is_read_as_it_was_written() {
        let mut writer = TruthWriter::create(2).unwrap();
        let mut reader = TruthReader::open(writer.path()).unwrap();
        let read = |reader: &mut TruthReader| {
            let mut ticks = Vec::new();
            reader.poll_ticks(|tick, time| ticks.push((tick.0, time.0)));
            ticks
        };
        assert!(read(&mut reader).is_empty() && reader.poll().is_none());
        writer.note_tick(Tick(5), Time(50)).unwrap();
        writer.note_tick(Tick(6), Time(75)).unwrap();
        // Of the ticks before the first, nothing was written.
        assert_eq!(read(&mut reader), [(5, 50), (6, 75)]);
        assert!(read(&mut reader).is_empty());
        let object =
            |index| TrueObject { id: ObjectId { index, generation: 1 }, owner: None, kind: 2, words: [index; WORDS] };
        writer.write((Tick(6), Time(75)), false, [object(1), object(2), object(3)].into_iter()).unwrap();
        let snapshot = reader.poll().unwrap();
        assert_eq!((snapshot.tick, snapshot.time, snapshot.is_final), (Tick(6), Time(75), false));
        assert_eq!(snapshot.objects, [object(1), object(2)], "there is room for two");
        assert!(reader.poll().is_none());
        (7..7 + 3 * TICKS).for_each(|tick| writer.note_tick(Tick(tick), Time(tick * 10)).unwrap());
        let ticks = read(&mut reader);
        assert_eq!((ticks.len() as u64, ticks[0]), (TICKS, (7 + 2 * TICKS, 10 * (7 + 2 * TICKS))));
    }
}
