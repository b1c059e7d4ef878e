//! The server's truth, for the bots to compare with: a file in memory, written beside the server's work.
//!
//! ```text
//! ticks    the last TICKS that did not begin as planned, each at its number modulo TICKS: [tick + 1: u64][time in µs: u64]
//! places   two, used in turn: [version: u64][tick: u64][time in µs: u64][next: u64][interval in ns: u64][count: u32][final: u32]
//!          then for each object [index: u32][generation: u32][owner: u32][kind: u32][words: 12 x u32]
//!          words: of a character the game's own numbers, f32 each: position, velocity, yaw, pitch, and its stance; of others their
//!          quantised fields
//!          then [version: u64]
//! ```
//!
//! `next` is the time for which the tick after `tick` is planned, 0 without a plan; the others follow in its interval. A tick
//! that begins at another time is written before its packets are sent, so every reader of a packet finds its tick's time here.
//! A call of the system costs a server that has just woken up ten times what it costs in a loop, so a tick that begins as
//! planned costs none, and a snapshot one.
//!
//! A snapshot is written while the server waits to be measured, so characters are quantised by the reader.
//!
//! A place is written from its beginning to its end. So a reader reads the version at the end first, then the objects, and the
//! version at the beginning last: if both are the same, all of it is of that version. In the other order, a writer that overtakes
//! the reader would leave it with old objects between two new versions. That holds as long as the kernel copies a write from its
//! beginning to its end, as Linux does.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use throng::schema::ValuesMut;
use throng::{ObjectId, Tick, Time};

use crate::kinds::{Character, LabKind, Stance, velocity_of};
use crate::scenario::Scenario;
use crate::unnamed::Unnamed;

/// Words of the kind with the most.
pub const WORDS: usize = 12;
const ENTRY_BYTES: usize = 16 + WORDS * 4;
const HEAD_BYTES: usize = 48;
const VERSION_BYTES: usize = 8;
const NO_OWNER: u32 = u32::MAX;
const TICK_BYTES: u64 = 16;
/// Ticks whose time is kept.
pub const TICKS: u64 = 512;
const PLACES_AT: u64 = TICKS * TICK_BYTES;
/// A tick that begins so long before or after its planned time began as planned.
const PUNCTUAL_US: u64 = 50;
/// A plan holds for so many ticks at most. The next snapshot brings another one.
const PLANNED_MAX: u64 = 64;

/// Each process that takes the place of a server counts its ticks from so many further on, which are 25 days at 30 Hz. So a tick
/// tells which process it is of.
pub const LIFE_TICKS: u64 = 1 << 26;

/// The objects for which the file of a scenario has room.
pub fn room(scenario: &Scenario) -> usize {
    let own = scenario.players as usize * (1 + scenario.chests_per_player as usize);
    own + scenario.idle_objects as usize
}

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

/// An object as the game has it, to be written.
#[derive(Clone, Copy, Debug)]
pub struct GameObject {
    id: ObjectId,
    owner: Option<u32>,
    kind: u16,
    words: [u32; WORDS],
}

impl GameObject {
    /// A character. It is not quantised here: that is left to the reader.
    #[inline]
    pub fn character(id: ObjectId, owner: Option<u32>, value: &Character) -> GameObject {
        let Character { position: [x, y, z], velocity: [u, v, w], yaw, pitch, stance } = *value;
        let mut words = [0; WORDS];
        for (word, number) in words.iter_mut().zip([x, y, z, u, v, w, yaw, pitch]) {
            *word = number.to_bits();
        }
        words[8] = stance as u32;
        GameObject { id, owner, kind: Character::NUMBER, words }
    }

    /// An object of another kind.
    pub fn of<K: LabKind>(id: ObjectId, owner: Option<u32>, value: &K) -> GameObject {
        let TrueObject { words, .. } = TrueObject::of(id, owner, value);
        debug_assert_ne!(K::NUMBER, Character::NUMBER, "characters are written as the game has them");
        GameObject { id, owner, kind: K::NUMBER, words }
    }

    fn quantised(self) -> TrueObject {
        let GameObject { id, owner, kind, words } = self;
        if kind != Character::NUMBER {
            return TrueObject { id, owner, kind, words };
        }
        let numbers: [f32; 8] = std::array::from_fn(|at| f32::from_bits(words[at]));
        let [x, y, z, u, v, w, yaw, pitch] = numbers;
        let stance = match words[8] {
            0 => Stance::Standing,
            1 => Stance::Walking,
            _ => Stance::Airborne,
        };
        TrueObject::of(id, owner, &Character { position: [x, y, z], velocity: [u, v, w], yaw, pitch, stance })
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

/// When the ticks after a snapshot are planned to begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The first tick that is planned.
    pub tick: Tick,
    /// It is to begin then.
    pub time: Time,
    /// The others follow in this interval.
    pub interval: Duration,
}

impl Plan {
    fn time_of(&self, tick: Tick) -> Option<Time> {
        let later = tick.0.checked_sub(self.tick.0).filter(|later| *later < PLANNED_MAX)?;
        Some(Time(self.time.0 + (self.interval.as_nanos() as u64).saturating_mul(later) / 1_000))
    }
}

/// Keeps the file of a process, which may end: another one can [go on](TruthWriter::go_on) with it.
#[derive(Debug)]
pub struct TruthKeeper(Unnamed);

impl TruthKeeper {
    /// Of a process that lives.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn open(path: &Path) -> io::Result<TruthKeeper> {
        Unnamed::join(path).map(TruthKeeper)
    }

    /// Where other processes open it, as long as this one lives.
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

/// Writes snapshots.
#[derive(Debug)]
pub struct TruthWriter {
    file: Unnamed,
    version: u64,
    place_bytes: u64,
    bytes: Vec<u8>,
    plan: Option<Plan>,
}

impl TruthWriter {
    /// Creates the file, with room for `objects`, in memory if the machine has a place for that.
    pub fn create(objects: usize) -> io::Result<TruthWriter> {
        let file = Unnamed::create()?;
        let place_bytes = (HEAD_BYTES + objects * ENTRY_BYTES + VERSION_BYTES) as u64;
        let bytes = Vec::with_capacity(place_bytes as usize);
        Ok(TruthWriter { file, version: 0, place_bytes, bytes, plan: None })
    }

    /// Goes on with the file of a process that has ended in the middle of anything. Readers that have it open read on.
    ///
    /// # Errors
    /// The file cannot be opened or read.
    pub fn go_on(path: &Path, objects: usize) -> io::Result<TruthWriter> {
        let reader = TruthReader::open(path, objects)?;
        // The head may be there without the rest of its snapshot.
        let version = reader.heads().map(|(head, _)| long(&head[..8])).max().unwrap_or(0);
        let (file, place_bytes) = (Unnamed::join(path)?, reader.place_bytes);
        Ok(TruthWriter { file, version, place_bytes, bytes: Vec::with_capacity(place_bytes as usize), plan: None })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Notes when a tick begins. To be called before its packets are sent.
    pub fn note_tick(&mut self, tick: Tick, time: Time) -> io::Result<()> {
        let planned = self.plan.and_then(|plan| plan.time_of(tick));
        if planned.is_some_and(|planned| planned.0.abs_diff(time.0) <= PUNCTUAL_US) {
            return Ok(());
        }
        let mut entry = [0; TICK_BYTES as usize];
        entry[..8].copy_from_slice(&(tick.0 + 1).to_le_bytes());
        entry[8..].copy_from_slice(&time.0.to_le_bytes());
        self.file.file().write_all_at(&entry, tick.0 % TICKS * TICK_BYTES)
    }

    /// Writes a snapshot of these objects, as many as the file has room for. `tick` is the one that was sent last, and `plan` tells
    /// when the ticks after it are to begin: only if the server is on time.
    pub fn write(
        &mut self,
        (tick, time): (Tick, Time),
        plan: Option<Plan>,
        is_final: bool,
        objects: impl Iterator<Item = GameObject>,
    ) -> io::Result<()> {
        self.version += 1;
        // The ticks follow each other: what is planned for another one is no plan.
        self.plan = plan.filter(|plan| plan.tick.0 == tick.0 + 1);
        let Plan { time: next, interval, .. } = self.plan.unwrap_or_default();
        let room = (self.place_bytes as usize - HEAD_BYTES - VERSION_BYTES) / ENTRY_BYTES;
        let head = [self.version, tick.0, time.0, next.0, interval.as_nanos() as u64];
        encode(&mut self.bytes, (head, is_final), objects.take(room));
        self.file.file().write_all_at(&self.bytes, self.place_at(self.version))
    }

    /// The snapshot that was written last, for a [`TruthMirror`].
    pub fn written(&self) -> &[u8] {
        &self.bytes
    }

    fn place_at(&self, version: u64) -> u64 {
        PLACES_AT + version % 2 * self.place_bytes
    }
}

/// Writes the file again on another machine, from what the writer has written. All times have to be those of the clock there.
#[derive(Debug)]
pub struct TruthMirror(TruthWriter);

impl TruthMirror {
    /// Creates the file, with room for `objects`, in memory if the machine has a place for that.
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn create(objects: usize) -> io::Result<TruthMirror> {
        TruthWriter::create(objects).map(TruthMirror)
    }

    /// The file.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Notes when a tick has begun.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn note_tick(&mut self, tick: Tick, time: Time) -> io::Result<()> {
        self.0.plan = None;
        self.0.note_tick(tick, time)
    }

    /// Writes a snapshot. One that has no room, or makes no sense, is refused.
    ///
    /// # Errors
    /// The file cannot be written, or the snapshot is refused.
    pub fn write(&mut self, snapshot: &[u8]) -> io::Result<()> {
        let has_room = snapshot.len() as u64 <= self.0.place_bytes;
        let version = head_of(snapshot).filter(|_| has_room).map(|head| long(&head[..8]));
        let version = version.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "it is no snapshot"))?;
        self.0.file.file().write_all_at(snapshot, self.0.place_at(version))
    }
}

/// The head of a snapshot as it is written; `None` if it is not whole.
fn head_of(snapshot: &[u8]) -> Option<&[u8]> {
    let (head, rest) = snapshot.split_at_checked(HEAD_BYTES)?;
    let (entries, version) = rest.split_at_checked(rest.len().checked_sub(VERSION_BYTES)?)?;
    let is_whole = word(&head[40..44]) as usize * ENTRY_BYTES == entries.len() && version == &head[..8];
    is_whole.then_some(head)
}

/// A snapshot with its times on a clock that is ahead by so many microseconds.
pub fn shifted(snapshot: &[u8], ahead_us: i64) -> Vec<u8> {
    let mut snapshot = snapshot.to_vec();
    // When its tick began, and when the next one is planned, if it is.
    for at in [16, 24] {
        if let Some(place) = snapshot.get_mut(at..at + 8).filter(|place| place.iter().any(|&byte| byte != 0)) {
            let time = long(place).saturating_add_signed(ahead_us);
            place.copy_from_slice(&time.to_le_bytes());
        }
    }
    snapshot
}

/// Whether a snapshot is the last one.
pub fn is_last(snapshot: &[u8]) -> bool {
    head_of(snapshot).is_some_and(|head| word(&head[44..HEAD_BYTES]) == 1)
}

/// Writes a snapshot to `bytes`.
fn encode(bytes: &mut Vec<u8>, (head, is_final): ([u64; 5], bool), objects: impl Iterator<Item = GameObject>) {
    bytes.clear();
    bytes.resize(HEAD_BYTES, 0);
    // From the inside: an iterator of several parts is slow to ask one by one.
    objects.for_each(|object| bytes.extend_from_slice(&entry(&object)));
    let count = (bytes.len() - HEAD_BYTES) / ENTRY_BYTES;
    for (place, number) in bytes.chunks_exact_mut(8).zip(head) {
        place.copy_from_slice(&number.to_le_bytes());
    }
    bytes[40..44].copy_from_slice(&(count as u32).to_le_bytes());
    bytes[44..HEAD_BYTES].copy_from_slice(&u32::from(is_final).to_le_bytes());
    bytes.extend_from_slice(&head[0].to_le_bytes());
}

/// The last snapshot, to be sent to bots that cannot read the file.
pub fn last_snapshot((tick, time): (Tick, Time), objects: impl Iterator<Item = GameObject>) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(&mut bytes, ([1, tick.0, time.0, 0, 0], true), objects);
    bytes
}

/// Reads a snapshot that another machine has sent; `None` if it is none.
pub fn read_snapshot(bytes: &[u8]) -> Option<Snapshot> {
    let head = head_of(bytes)?;
    let mut snapshot = Snapshot::default();
    snapshot.fill(head, &bytes[HEAD_BYTES..bytes.len() - VERSION_BYTES]);
    Some(snapshot)
}

impl Snapshot {
    fn fill(&mut self, head: &[u8], entries: &[u8]) {
        let [version, tick, time] = [0, 8, 16].map(|from| long(&head[from..from + 8]));
        (self.version, self.tick, self.time) = (version, Tick(tick), Time(time));
        self.is_final = word(&head[44..HEAD_BYTES]) == 1;
        self.objects.clear();
        let objects = entries.chunks_exact(ENTRY_BYTES).map(|entry| GameObject {
            id: ObjectId { index: word(&entry[..4]), generation: word(&entry[4..8]) },
            owner: Some(word(&entry[8..12])).filter(|&owner| owner != NO_OWNER),
            kind: word(&entry[12..16]) as u16,
            words: std::array::from_fn(|at| word(&entry[16 + at * 4..][..4])),
        });
        self.objects.extend(objects.map(GameObject::quantised));
    }
}

/// An object as the file has it.
fn entry(object: &GameObject) -> [u8; ENTRY_BYTES] {
    let mut entry = [0; ENTRY_BYTES];
    let owner = object.owner.unwrap_or(NO_OWNER);
    let head = [object.id.index, object.id.generation, owner, u32::from(object.kind)];
    for (place, number) in entry.chunks_exact_mut(4).zip(head.into_iter().chain(object.words)) {
        place.copy_from_slice(&number.to_le_bytes());
    }
    entry
}

/// Reads snapshots.
#[derive(Debug)]
pub struct TruthReader {
    file: File,
    place_bytes: u64,
    bytes: Vec<u8>,
    newest: Snapshot,
    /// Of the newest snapshot, and of the one before it.
    plans: [Option<Plan>; 2],
    /// The ticks before this one were told, and their times stand.
    settled: Tick,
}

impl TruthReader {
    /// Opens the file of a writer that has made room for `objects`.
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub fn open(path: &Path, objects: usize) -> io::Result<TruthReader> {
        let place_bytes = (HEAD_BYTES + objects * ENTRY_BYTES + VERSION_BYTES) as u64;
        let (bytes, newest) = (Vec::new(), Snapshot::default());
        Ok(TruthReader { file: File::open(path)?, place_bytes, bytes, newest, plans: [None; 2], settled: Tick(0) })
    }

    /// The ticks that have begun until `now`, oldest first. Those after the newest snapshot are told again with each call: of a
    /// tick whose packets have not come yet, the time may be that of a plan which it does not keep.
    pub fn poll_ticks(&mut self, now: Time, mut each: impl FnMut(Tick, Time)) {
        let newest = self.newest.tick;
        let first = self.settled.0.max(newest.0.saturating_sub(TICKS));
        for tick in (first..).map(Tick).take((TICKS + PLANNED_MAX) as usize) {
            // The newest plan alone tells of what comes, also if there is none; the one before it, of what was.
            let plan = self.plans[usize::from(tick < newest)];
            let planned = || plan.and_then(|plan| plan.time_of(tick));
            let of_snapshot = || (self.newest.version > 0 && tick == newest).then_some(self.newest.time);
            match self.noted(tick).or_else(of_snapshot).or_else(planned) {
                Some(time) if time <= now => each(tick, time),
                // Its time was never read: this reader was away for too long.
                None if tick < newest => {}
                _ => break,
            }
        }
        self.settled = self.settled.max(Tick(newest.0.saturating_sub(1)));
    }

    /// The time that was written for a tick.
    fn noted(&self, tick: Tick) -> Option<Time> {
        let mut entry = [0; TICK_BYTES as usize];
        self.file.read_exact_at(&mut entry, tick.0 % TICKS * TICK_BYTES).ok()?;
        (long(&entry[..8]) == tick.0 + 1).then(|| Time(long(&entry[8..])))
    }

    /// The newest snapshot, if it is newer than the last that was returned.
    pub fn poll(&mut self) -> Option<&Snapshot> {
        let (head, at) = self.heads().max_by_key(|(head, _)| long(&head[..8]))?;
        let version = long(&head[..8]);
        if version <= self.newest.version {
            return None;
        }
        let bytes = (word(&head[40..44]) as usize).checked_mul(ENTRY_BYTES)?;
        let end_at = HEAD_BYTES.checked_add(bytes)? as u64;
        if end_at + VERSION_BYTES as u64 > self.place_bytes {
            return None;
        }
        // The order matters: see the top of this file.
        let mut end = [0; VERSION_BYTES];
        self.file.read_exact_at(&mut end, at + end_at).ok()?;
        self.bytes.resize(bytes, 0);
        self.file.read_exact_at(&mut self.bytes, at + HEAD_BYTES as u64).ok()?;
        if long(&end) != version || self.head(at)? != head {
            return None;
        }
        self.newest.fill(&head, &self.bytes);
        let [next, interval_ns] = [24, 32].map(|from| long(&head[from..from + 8]));
        let interval = Duration::from_nanos(interval_ns);
        let tick = Tick(self.newest.tick.0 + 1);
        let plan = (next > 0).then_some(Plan { tick, time: Time(next), interval });
        self.plans = [plan, self.plans[0]];
        Some(&self.newest)
    }

    /// The heads of both places, as far as they are there, and where.
    fn heads(&self) -> impl Iterator<Item = ([u8; HEAD_BYTES], u64)> + '_ {
        let places = [0, 1].map(|place| PLACES_AT + place * self.place_bytes);
        places.into_iter().filter_map(|at| Some((self.head(at)?, at)))
    }

    fn head(&self, at: u64) -> Option<[u8; HEAD_BYTES]> {
        let mut head = [0; HEAD_BYTES];
        self.file.read_exact_at(&mut head, at).ok()?;
        Some(head)
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

    const INTERVAL: Duration = Duration::from_micros(100);

    #[test]
    fn a_copy_on_a_machine_with_another_clock_tells_the_same_by_that_clock() {
        for ahead_us in [0, 7_000_000_i64, -3_000_000] {
            let mut writer = TruthWriter::create(3).unwrap();
            let mut mirror = TruthMirror::create(3).unwrap();
            let mut reader = TruthReader::open(mirror.path(), 3).unwrap();
            let there = |time: u64| Time(time.saturating_add_signed(ahead_us));
            let plan = Plan { tick: Tick(8), time: Time(9_000_100), interval: INTERVAL };
            let objects = [object(1), object(2)];
            writer.write((Tick(7), Time(9_000_000)), Some(plan), true, objects.into_iter()).unwrap();
            mirror.note_tick(Tick(6), there(8_999_000)).unwrap();
            mirror.write(&shifted(writer.written(), ahead_us)).unwrap();
            let snapshot = reader.poll().unwrap().clone();
            assert_eq!((snapshot.tick, snapshot.time, snapshot.is_final), (Tick(7), there(9_000_000), true));
            assert_eq!(snapshot.objects, objects.map(GameObject::quantised));
            assert!(is_last(writer.written()));
            let mut ticks = Vec::new();
            reader.poll_ticks(there(9_000_150), |tick, time| ticks.push((tick.0, time)));
            assert_eq!(ticks, [(6, there(8_999_000)), (7, there(9_000_000)), (8, there(9_000_100))]);
            // From another machine may come anything.
            writer.write((Tick(9), Time(1)), None, false, objects.into_iter()).unwrap();
            let whole = writer.written().to_vec();
            let large = [&whole[..HEAD_BYTES], &vec![0; 4 * ENTRY_BYTES], &whole[..8]].concat();
            for bytes in [&[][..], &whole[..whole.len() - 1], &whole[8..], &large] {
                assert!(mirror.write(bytes).is_err() && !is_last(bytes));
                assert!(reader.poll().is_none());
            }
        }
    }

    fn object(index: u32) -> GameObject {
        let (id, owner) = (ObjectId { index, generation: 1 }, (index == 2).then_some(7));
        GameObject { id, owner, kind: 2, words: [index; WORDS] }
    }

    #[test]
    fn a_character_is_read_as_the_schema_quantises_it() {
        let mut writer = TruthWriter::create(1).unwrap();
        let mut reader = TruthReader::open(writer.path(), 1).unwrap();
        for version in 1..200 {
            let mut step = version;
            let mut within = |most: f32| {
                step = step * 7_919 % 10_007;
                (step as f32 / 5_003.0 - 1.0) * most
            };
            let character = Character {
                position: [within(200.0), within(200.0), within(20.0)],
                velocity: [within(20.0), within(20.0), within(20.0)],
                yaw: within(7.0),
                pitch: within(1.5),
                stance: [Stance::Standing, Stance::Walking, Stance::Airborne][version % 3],
            };
            let id = ObjectId { index: 3, generation: 9 };
            let objects = std::iter::once(GameObject::character(id, Some(4), &character));
            writer.write((Tick(version as u64), Time(1)), None, false, objects).unwrap();
            let expected = TrueObject::of(id, Some(4), &character);
            assert_eq!(reader.poll().map(|snapshot| &snapshot.objects[..]), Some(&[expected][..]), "{character:?}");
        }
    }

    fn ticks(reader: &mut TruthReader, now: u64) -> Vec<(u64, u64)> {
        let mut ticks = Vec::new();
        reader.poll_ticks(Time(now), |tick, time| ticks.push((tick.0, time.0)));
        ticks
    }

    /// Writes a snapshot of a tick at its time, with a plan for the next one.
    fn write(writer: &mut TruthWriter, (tick, time): (u64, u64), next: Option<u64>) {
        let plan = next.map(|next| Plan { tick: Tick(tick + 1), time: Time(next), interval: INTERVAL });
        writer.write((Tick(tick), Time(time)), plan, false, (1..=3).map(object)).unwrap();
    }

    #[test]
    fn a_snapshot_from_another_machine_is_read_and_any_other_bytes_are_refused() {
        let bytes = last_snapshot((Tick(7), Time(9)), (1..=3).map(object));
        let snapshot = read_snapshot(&bytes).unwrap();
        assert_eq!((snapshot.tick, snapshot.time, snapshot.is_final), (Tick(7), Time(9), true));
        assert_eq!(snapshot.objects, [1, 2, 3].map(|index| object(index).quantised()));
        for length in 0..bytes.len() {
            assert!(read_snapshot(&bytes[..length]).is_none(), "{length} bytes");
        }
        let mut counted = bytes.clone();
        counted[40..44].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(read_snapshot(&counted).is_none() && read_snapshot(&[bytes, vec![0; 64]].concat()).is_none());
    }

    #[test]
    fn a_snapshot_is_read_as_it_was_written_and_once() {
        let mut writer = TruthWriter::create(2).unwrap();
        let mut reader = TruthReader::open(writer.path(), 2).unwrap();
        assert!(reader.poll().is_none());
        for version in 1..=5 {
            write(&mut writer, (version * 10, version * 1_000), None);
            let snapshot = reader.poll().unwrap();
            assert_eq!((snapshot.version, snapshot.tick.0, snapshot.time.0), (version, version * 10, version * 1_000));
            assert_eq!(
                (snapshot.is_final, &snapshot.objects[..]),
                (false, &[object(1).quantised(), object(2).quantised()][..]),
                "room for two"
            );
            assert!(reader.poll().is_none());
        }
        writer.write((Tick(60), Time(6_000)), None, true, std::iter::empty()).unwrap();
        assert!(reader.poll().is_some_and(|snapshot| snapshot.is_final && snapshot.objects.is_empty()));
    }

    #[test]
    fn a_snapshot_that_is_being_written_is_none() {
        let mut writer = TruthWriter::create(2).unwrap();
        let mut reader = TruthReader::open(writer.path(), 2).unwrap();
        write(&mut writer, (10, 1_000), None);
        let file = File::options().write(true).open(writer.path()).unwrap();
        // The head of the next one is there, its end is not.
        let mut head = [0; HEAD_BYTES];
        head[..8].copy_from_slice(&2u64.to_le_bytes());
        head[40..44].copy_from_slice(&2u32.to_le_bytes());
        file.write_all_at(&head, PLACES_AT).unwrap();
        assert!(reader.poll().is_none());
        // Nor does a count beyond the place lead anywhere.
        head[40..44].copy_from_slice(&u32::MAX.to_le_bytes());
        file.write_all_at(&head, PLACES_AT).unwrap();
        assert!(reader.poll().is_none());
        write(&mut writer, (13, 1_300), None);
        assert!(reader.poll().is_some_and(|snapshot| snapshot.tick == Tick(13)));
    }

    #[test]
    fn the_file_of_a_process_that_was_killed_is_gone_on_with_wherever_it_was_cut() {
        let snapshot_bytes = HEAD_BYTES + 2 * ENTRY_BYTES + VERSION_BYTES;
        for (cut, versions) in [0, 8, HEAD_BYTES + 20, snapshot_bytes - VERSION_BYTES].into_iter().zip(1..) {
            let mut writer = TruthWriter::create(2).unwrap();
            let mut reader = TruthReader::open(writer.path(), 2).unwrap();
            for tick in 1..=versions {
                write(&mut writer, (tick, tick * 100), None);
                assert_eq!(reader.poll().map(|snapshot| snapshot.tick), Some(Tick(tick)));
            }
            // It was killed after so many bytes of the next one.
            let mut whole = Vec::new();
            encode(&mut whole, ([versions + 1, versions + 1, 7, 0, 0], false), (1..=2).map(object));
            assert_eq!(whole.len(), snapshot_bytes);
            writer.file.file().write_all_at(&whole[..cut], writer.place_at(versions + 1)).unwrap();
            assert!(reader.poll().is_none());
            let keeper = TruthKeeper::open(writer.path()).unwrap();
            drop(writer);
            let mut again = TruthWriter::go_on(keeper.path(), 2).unwrap();
            for tick in LIFE_TICKS..LIFE_TICKS + 3 {
                again.note_tick(Tick(tick), Time(tick + 1)).unwrap();
                write(&mut again, (tick, tick), None);
                assert_eq!(reader.poll().map(|snapshot| snapshot.tick), Some(Tick(tick)), "cut after {cut} bytes");
            }
            assert_eq!(ticks(&mut reader, u64::MAX).last(), Some(&(LIFE_TICKS + 2, LIFE_TICKS + 3)));
        }
        assert!(TruthWriter::go_on(Path::new("/nowhere"), 2).is_err());
    }

    /// The reader is faster at the beginning of a place than the writer, and slower at its end, sooner or later.
    #[test]
    fn a_snapshot_that_is_read_while_it_is_written_is_whole_or_none() {
        const OBJECTS: u32 = 20_000;
        let mut writer = TruthWriter::create(OBJECTS as usize).unwrap();
        let mut reader = TruthReader::open(writer.path(), OBJECTS as usize).unwrap();
        let writing = std::thread::spawn(move || {
            for version in 1..=400 {
                let all = (0..OBJECTS).map(|index| GameObject { words: [version as u32; WORDS], ..object(index) });
                writer.write((Tick(version), Time(version)), None, version == 400, all).unwrap();
            }
            // The file ends with the writer.
            writer
        });
        let mut read = 0;
        while !writing.is_finished() {
            let Some(snapshot) = reader.poll() else { continue };
            read += 1;
            let versions = snapshot.objects.iter().map(|object| object.words[0]);
            assert_eq!(versions.filter(|&version| u64::from(version) != snapshot.tick.0).count(), 0);
        }
        writing.join().expect("the writer");
        assert!(read > 0);
    }

    #[test]
    fn ticks_have_their_planned_times_unless_others_were_noted() {
        let mut writer = TruthWriter::create(3).unwrap();
        let mut reader = TruthReader::open(writer.path(), 3).unwrap();
        let note = |writer: &mut TruthWriter, tick: u64, time: u64| writer.note_tick(Tick(tick), Time(time)).unwrap();
        // Without a plan, each tick is written.
        note(&mut writer, 9, 850);
        write(&mut writer, (9, 850), None);
        note(&mut writer, 10, 1_000);
        write(&mut writer, (10, 1_000), Some(1_100));
        reader.poll();
        assert_eq!(ticks(&mut reader, 1_099), [(9, 850), (10, 1_000)]);
        // As planned, to within 50 µs: nothing is written.
        note(&mut writer, 11, 1_120);
        assert_eq!(ticks(&mut reader, 1_150), [(9, 850), (10, 1_000), (11, 1_100)]);
        // Later than planned. Until then, nobody could know.
        assert_eq!(ticks(&mut reader, 1_210).last(), Some(&(12, 1_200)));
        note(&mut writer, 12, 1_260);
        assert_eq!(ticks(&mut reader, 1_280).last(), Some(&(12, 1_260)));
        note(&mut writer, 13, 1_300);
        // The next snapshot has no plan, because the server is late. The plan before it still tells of the ticks before.
        write(&mut writer, (13, 1_300), None);
        reader.poll();
        note(&mut writer, 14, 1_555);
        assert_eq!(
            ticks(&mut reader, 2_000),
            [(9, 850), (10, 1_000), (11, 1_100), (12, 1_260), (13, 1_300), (14, 1_555)]
        );
        assert_eq!(ticks(&mut reader, 2_000), [(12, 1_260), (13, 1_300), (14, 1_555)], "those before stand");
    }

    #[test]
    fn a_reader_that_was_away_goes_on_with_what_is_there() {
        let mut writer = TruthWriter::create(3).unwrap();
        let mut reader = TruthReader::open(writer.path(), 3).unwrap();
        for tick in (100..200).step_by(10) {
            write(&mut writer, (tick, tick * 100), Some(tick * 100 + 100));
        }
        reader.poll();
        // Of the ticks before 190, no plan was ever read.
        let found = ticks(&mut reader, 19_250);
        assert_eq!(found, [(190, 19_000), (191, 19_100), (192, 19_200)]);
        // A writer that has ended plans nothing for ever.
        assert_eq!(ticks(&mut reader, u64::MAX).len() as u64, 2 + PLANNED_MAX - 1);
    }
}
