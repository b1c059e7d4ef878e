//! A world as the bus tells it: its servers, its borders, and where the load is.
//!
//! ```text
//! store     world.NAME.server.3   the lease of server 3; its note says where edges reach it
//!           world.NAME.decider    the lease of the server that decides on borders
//!           world.NAME.borders    the borders, written by the decider with its fencing number
//! subjects  world.NAME.load.3     reports of server 3
//!           world.NAME.saved.3    states of the players of server 3 (saved.rs)
//!           world.NAME.recall.3.>  questions for server 3 about states that it has kept, and answers to its own (recall.rs)
//!           world.NAME.link.M.S   datagrams for member M from member S, if they go over the bus (network.rs)
//! ```
//!
//! The content of `borders`, little endian: `[base: u64][cuts between the servers: u16 each]`. The number of the write in the store and the
//! base together are the version, so there is one order of versions. The base is 0, unless the store came back older than it was: then it
//! makes the next version newer than all before. An empty content stands for the base 0 and strips of equal width.
//!
//! A report, little endian:
//!
//! ```text
//! [fencing number of its server: u64][knows: u64][ready: u64][edges: u16][steps with objects, each: step u16, objects u16]
//! ```
//!
//! A report counts only if its sender is the member that holds the lease of this server, and names the lease's fencing number. Nothing
//! that comes from the bus is trusted: anything else is refused and counted, and nothing grows with what others say.

use std::collections::VecDeque;
use std::net::SocketAddr;

use bytes::Bytes;
use thiserror::Error;
use throng::Time;
use throng_bus::{
    Command, Event, Fence, Fenced, Holder, MemberId, Message, NameError, Pattern, Revision, Subject, SubscriptionId,
    WatchId,
};

use crate::borders::{Borders, BordersVersion, Division};

const HEAD_BYTES: usize = 26;
const LOAD_BYTES: usize = 4;
/// Addresses as text are shorter.
const ADDRESS_BYTES_MAX: usize = 64;

/// The name of a world on the bus. Its servers and edges have the same; worlds of one cluster have different ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorldName(String);

impl WorldName {
    /// Checks a name.
    ///
    /// # Errors
    /// It is no token of a subject, or too long for one.
    pub fn new(name: &str) -> Result<WorldName, NameError> {
        if name.contains('.') {
            return Err(NameError::Token { index: 0 });
        }
        // The longest subject of the world.
        Subject::new(&format!("world.{name}.link.{0}.{0}", MemberId(0)))?;
        Ok(WorldName(name.to_owned()))
    }

    /// The key of the lease of a server.
    pub fn server_key(&self, number: u16) -> Subject {
        self.subject(&format!("server.{number}"))
    }

    /// The key of the lease of the server that decides.
    pub fn decider_key(&self) -> Subject {
        self.subject("decider")
    }

    /// The key of the borders.
    pub fn borders_key(&self) -> Subject {
        self.subject("borders")
    }

    /// The subject of the reports of a server.
    pub fn load_subject(&self, number: u16) -> Subject {
        self.subject(&format!("load.{number}"))
    }

    /// The subject of the states of a server's players.
    pub(crate) fn saved_subject(&self, number: u16) -> Subject {
        self.subject(&format!("saved.{number}"))
    }

    /// The server of such a subject.
    pub(crate) fn saved_number(&self, subject: &Subject) -> Option<u16> {
        number_of(self.rest(subject)?, "saved.")
    }

    /// The subject of questions of a server for another one, and of answers.
    pub(crate) fn recall_subject(&self, to: u16, what: &str, from: u16) -> Subject {
        self.subject(&format!("recall.{to}.{what}.{from}"))
    }

    /// The parts of such a subject: for which server, what, and from which.
    pub(crate) fn recall_parts<'a>(&self, subject: &'a Subject) -> Option<(u16, &'a str, u16)> {
        let (to, rest) = self.rest(subject)?.strip_prefix("recall.")?.split_once('.')?;
        let (what, from) = rest.split_once('.')?;
        Some((number_of(to, "")?, what, number_of(from, "")?))
    }

    /// The subject of the datagrams of a member for another one.
    pub(crate) fn link_subject(&self, to: MemberId, from: MemberId) -> Subject {
        self.subject(&format!("link.{to}.{from}"))
    }

    /// The subjects of all datagrams for a member.
    pub(crate) fn link_pattern(&self, to: MemberId) -> Pattern {
        self.pattern(&format!("link.{to}.*"))
    }

    /// The sender that the subject of datagrams for a member names.
    pub(crate) fn link_sender(subject: &Subject) -> Option<MemberId> {
        let (_, sender) = subject.as_str().rsplit_once('.')?;
        let is_number = sender.len() == 16 && sender.bytes().all(|digit| digit.is_ascii_hexdigit());
        u64::from_str_radix(sender, 16).ok().filter(|_| is_number).map(MemberId)
    }

    fn subject(&self, rest: &str) -> Subject {
        let text = format!("world.{}.{rest}", self.0);
        Subject::new(&text).unwrap_or_else(|error| unreachable!("the name was checked: {error}"))
    }

    pub(crate) fn pattern(&self, rest: &str) -> Pattern {
        let text = format!("world.{}.{rest}", self.0);
        Pattern::new(&text).unwrap_or_else(|error| unreachable!("the name was checked: {error}"))
    }

    /// The part of a subject after the name, if it is of this world.
    fn rest<'a>(&self, subject: &'a Subject) -> Option<&'a str> {
        subject.as_str().strip_prefix("world.")?.strip_prefix(self.0.as_str())?.strip_prefix('.')
    }
}

/// Counters of what the bus has said to a [`Balance`](crate::Balance) or a [`BorderWatch`](crate::BorderWatch), since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorldCounters {
    /// Reports of servers.
    pub reports: u64,
    /// Entries and reports that make no sense in this world.
    pub refused: u64,
    /// Reports whose sender does not hold the lease of the server that they are about. One that overtakes the news of its lease is one of
    /// them, too.
    pub forged: u64,
    /// Borders of before that an edge has forgotten while a server could still hand over by them.
    pub forgotten: u64,
}

impl WorldCounters {
    /// All of them with stable names, for metrics.
    pub fn named(&self) -> [(&'static str, u64); 4] {
        let WorldCounters { reports, refused, forged, forgotten } = *self;
        [("reports", reports), ("refused", refused), ("forged", forged), ("forgotten", forgotten)]
    }
}

/// Why the borders of a world do not follow its servers. The world goes on with the borders that it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum WorldProblem {
    /// The store has the borders of a world with other numbers.
    #[error(
        "the store has borders of another world than one of {servers} servers and {steps} steps: start all servers and edges with the same \
         numbers, or give the world another name"
    )]
    Foreign {
        /// The servers of this world.
        servers: u16,
        /// Its steps.
        steps: u16,
    },
    /// The entry of the borders is something else.
    #[error(
        "the entry of the world's borders in the store is something else: remove it, or give the world another name"
    )]
    NoBorders,
}

impl WorldProblem {
    /// A stable short name.
    pub fn tag(self) -> &'static str {
        match self {
            WorldProblem::Foreign { .. } => "foreign",
            WorldProblem::NoBorders => "no_borders",
        }
    }
}

/// The report of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LoadReport {
    /// Of its lease.
    pub(crate) fence: Fence,
    /// The version of the borders that it knows.
    pub(crate) knows: BordersVersion,
    /// All its edges look at it by this version.
    pub(crate) ready: BordersVersion,
    /// How many edges it has.
    pub(crate) edges: u16,
    /// The steps that have objects, in order, and how many.
    pub(crate) load: Vec<(u16, u16)>,
}

impl LoadReport {
    pub(crate) fn bytes(&self) -> Bytes {
        let numbers = [self.fence.0, self.knows.0, self.ready.0];
        let mut bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        bytes.extend(self.edges.to_le_bytes());
        let load = self.load.iter().flat_map(|&(step, objects)| [step, objects]);
        load.for_each(|short| bytes.extend(short.to_le_bytes()));
        bytes.into()
    }

    /// `None` if it makes no sense in this world.
    pub(crate) fn read(body: &[u8], division: &Division) -> Option<LoadReport> {
        let (head, load) = body.split_at_checked(HEAD_BYTES)?;
        let (numbers, edges) = head.as_chunks::<8>();
        let [fence, knows, ready] = <[[u8; 8]; 3]>::try_from(numbers).ok()?.map(u64::from_le_bytes);
        let edges = u16::from_le_bytes(<[u8; 2]>::try_from(edges).ok()?);
        let (load, rest) = load.as_chunks::<LOAD_BYTES>();
        let pair = |[a, b, c, d]: &[u8; LOAD_BYTES]| (u16::from_le_bytes([*a, *b]), u16::from_le_bytes([*c, *d]));
        // Steps rise, so there are at most as many as the world has; a longer body is refused before anything is kept of it.
        if load.len() > usize::from(division.steps()) || !rest.is_empty() {
            return None;
        }
        let load: Vec<(u16, u16)> = load.iter().map(pair).collect();
        let is_sound = ready <= knows
            && load.is_sorted_by(|a, b| a.0 < b.0)
            && load.last().is_none_or(|&(step, _)| step < division.steps());
        let (knows, ready) = (BordersVersion(knows), BordersVersion(ready));
        is_sound.then_some(LoadReport { fence: Fence(fence), knows, ready, edges, load })
    }
}

/// No entry has a higher base: there is room for all writes that follow.
const BASE_MAX: u64 = 1 << 62;

/// A report raises the base to no more than this, so that the base can be raised again whatever anybody reports.
const REPORTED_MAX: u64 = 1 << 61;

/// The content of the entry with the borders.
pub(crate) fn borders_bytes(borders: &Borders, base: u64) -> Bytes {
    let cuts = borders.inner().iter().flat_map(|cut| cut.to_le_bytes());
    base.to_le_bytes().into_iter().chain(cuts).collect::<Vec<u8>>().into()
}

/// The base of an entry, and its borders without it. An empty entry has the base 0 and strips of equal width. `None` if it is none.
fn read_base(content: &[u8]) -> Option<(u64, &[u8])> {
    if content.is_empty() {
        return Some((0, content));
    }
    let (base, cuts) = content.split_first_chunk()?;
    let base = u64::from_le_bytes(*base);
    (base <= BASE_MAX).then_some((base, cuts))
}

/// The version of an entry with this content, also if its borders make no sense in this world.
pub(crate) fn version_of(content: &[u8], revision: Revision) -> BordersVersion {
    let base = read_base(content).map_or(0, |(base, _)| base);
    BordersVersion(base.saturating_add(revision.0))
}

/// The borders of an entry; `None` if they make no sense in this world.
pub(crate) fn read_borders(content: &[u8], revision: Revision, division: &Division) -> Option<Borders> {
    let version = version_of(content, revision);
    if content.is_empty() {
        return Some(Borders::equal(division).renamed(version));
    }
    let (_, cuts) = read_base(content)?;
    let (cuts, rest) = cuts.as_chunks::<2>();
    if cuts.len() + 1 != usize::from(division.servers()) || !rest.is_empty() {
        return None;
    }
    let inner: Vec<u16> = cuts.iter().map(|cut| u16::from_le_bytes(*cut)).collect();
    Borders::new(division, version, &inner)
}

/// Where edges reach a server, as the note of its lease says.
pub(crate) fn address_note(address: Option<SocketAddr>) -> Bytes {
    address.map_or_else(Bytes::new, |address| address.to_string().into())
}

/// The newest write of the entry with the borders.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Written {
    pub(crate) revision: Revision,
    pub(crate) version: BordersVersion,
    /// When it was heard of.
    pub(crate) at: Time,
}

/// A server of the world.
#[derive(Clone, Debug, Default)]
pub(crate) struct SeatOf {
    /// The holder of its lease.
    pub(crate) holder: Option<Holder>,
    /// Somebody has held it.
    pub(crate) was_held: bool,
    /// Since when nobody holds it, as far as is known.
    pub(crate) empty_since: Time,
    /// The newest report of the holder, and when it came.
    pub(crate) report: Option<LoadReport>,
    pub(crate) reported: Time,
    /// A holder of before had objects, and nobody has reported since. If its lease has ended and it still serves its edges, they can be
    /// anywhere.
    pub(crate) is_unseen: bool,
    /// Since when it says that it has no edge.
    pub(crate) edgeless_since: Option<Time>,
}

impl SeatOf {
    /// The fencing number of its lease.
    pub(crate) fn fence(&self) -> Option<Fence> {
        self.holder.as_ref().map(|holder| holder.fence)
    }

    fn is_held_by(&self, member: MemberId, fence: Fence) -> bool {
        self.holder.as_ref().is_some_and(|holder| (holder.member, holder.fence) == (member, fence))
    }

    /// Its holder has reported that all its edges look at it by this version, or a newer one.
    pub(crate) fn is_ready(&self, version: BordersVersion) -> bool {
        self.report.as_ref().is_some_and(|report| report.ready >= version)
    }

    /// It may hand over by older borders than this version.
    pub(crate) fn may_be_behind(&self, version: BordersVersion) -> bool {
        self.holder.is_some() && self.report.as_ref().is_none_or(|report| report.knows < version)
    }
}

/// The entry of the borders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BordersEntry {
    /// There is none, or it is not known yet.
    Missing,
    Readable,
    Foreign,
    NoBorders,
}

/// See the head of the file.
#[derive(Clone, Debug)]
pub(crate) struct Roster {
    name: WorldName,
    division: Division,
    subscription: SubscriptionId,
    watch: WatchId,
    seats: Vec<SeatOf>,
    decider: Option<Holder>,
    borders: Borders,
    /// The base of these borders.
    base: u64,
    entry: BordersEntry,
    entry_written: Written,
    /// The leases and borders that there are have all been told, and the connection holds.
    is_current: bool,
    /// Entries that were known when the watch failed, and that no listing has named since.
    unnamed: Vec<Subject>,
    to_send: VecDeque<Command>,
    counters: WorldCounters,
}

impl Roster {
    /// Knows nothing yet: strips of equal width, and nobody there. `subscription` and `watch` are numbers on the member's bus that nothing
    /// else uses.
    pub(crate) fn new(name: WorldName, division: Division, subscription: SubscriptionId, watch: WatchId) -> Roster {
        let subscribe = Command::Subscribe { subscription, pattern: name.pattern("load.*") };
        let watching = Command::Watch { watch, pattern: name.pattern(">") };
        Roster {
            seats: vec![SeatOf::default(); division.servers().into()],
            borders: Borders::equal(&division),
            entry: BordersEntry::Missing,
            base: 0,
            entry_written: Written::default(),
            decider: None,
            is_current: false,
            unnamed: Vec::new(),
            to_send: VecDeque::from([subscribe, watching]),
            counters: WorldCounters::default(),
            name,
            division,
            subscription,
            watch,
        }
    }

    pub(crate) fn division(&self) -> &Division {
        &self.division
    }

    pub(crate) fn borders(&self) -> &Borders {
        &self.borders
    }

    pub(crate) fn entry(&self) -> BordersEntry {
        self.entry
    }

    pub(crate) fn entry_written(&self) -> Written {
        self.entry_written
    }

    /// The newest version that anybody who holds a lease knows, or the store has.
    pub(crate) fn newest_version(&self) -> BordersVersion {
        let reported = self.seats.iter().filter_map(|seat| seat.report.as_ref()).map(|report| report.knows.0);
        let reported = reported.max().unwrap_or_default().min(REPORTED_MAX);
        BordersVersion(reported).max(self.borders.version()).max(self.entry_written.version)
    }

    /// Whether the store has older borders than somebody knows.
    pub(crate) fn is_old(&self) -> bool {
        self.entry_written.version < self.newest_version()
    }

    /// The base of the next write, which makes it newer than all that anybody knows. It stays as it is, unless the store came back older
    /// than it was. The write has a higher number than `fence`, and than the entry that is there.
    pub(crate) fn next_base(&self, fence: Fence) -> u64 {
        let newest = self.newest_version().0;
        // An entry that is gone may have been in a store that is gone too.
        let written = if self.entry == BordersEntry::Missing { 0 } else { self.entry_written.revision.0 };
        let is_newer = self.base.saturating_add(fence.0.max(written)) >= newest;
        if is_newer { self.base } else { newest.min(BASE_MAX) }
    }

    /// Why nobody can agree on borders.
    pub(crate) fn problem(&self) -> Option<WorldProblem> {
        match self.entry {
            BordersEntry::Missing | BordersEntry::Readable => None,
            BordersEntry::Foreign => {
                Some(WorldProblem::Foreign { servers: self.division.servers(), steps: self.division.steps() })
            }
            BordersEntry::NoBorders => Some(WorldProblem::NoBorders),
        }
    }

    pub(crate) fn counters(&self) -> WorldCounters {
        self.counters
    }

    pub(crate) fn is_current(&self) -> bool {
        self.is_current
    }

    pub(crate) fn seat(&self, number: u16) -> Option<&SeatOf> {
        self.seats.get(usize::from(number))
    }

    /// The fencing number of a server's lease, while somebody holds it.
    pub(crate) fn fence(&self, number: u16) -> Option<Fence> {
        self.seat(number)?.fence()
    }

    /// Whether the sender of a message holds the lease of a server, with the fencing number that the message names.
    pub(crate) fn is_from(&self, number: u16, message: &Message, fence: Fence) -> bool {
        self.seat(number).is_some_and(|seat| seat.is_held_by(message.publisher, fence))
    }

    pub(crate) fn seats(&self) -> impl Iterator<Item = &SeatOf> + Clone {
        self.seats.iter()
    }

    /// The holder of the deciding lease.
    pub(crate) fn decider(&self) -> Option<&Holder> {
        self.decider.as_ref()
    }

    /// Where edges reach a server: by the lease of it that is held now.
    pub(crate) fn address(&self, number: u16) -> Option<SocketAddr> {
        let note = &self.seat(number)?.holder.as_ref()?.note;
        std::str::from_utf8(note).ok().filter(|text| text.len() <= ADDRESS_BYTES_MAX)?.parse().ok()
    }

    /// Takes an event of the bus. Events of others are ignored.
    pub(crate) fn handle_event(&mut self, now: Time, event: &Event) {
        match event {
            Event::Connected | Event::Disconnected => self.is_current = false,
            Event::Listed { watch } if *watch == self.watch => {
                self.is_current = true;
                for key in std::mem::take(&mut self.unnamed) {
                    self.see(now, &key, self.entry_written.revision, None);
                }
                // A member that was cut off from the bus, or has just come, waits before it takes anybody for gone.
                self.seats.iter_mut().for_each(|seat| seat.empty_since = now);
            }
            // Somebody fills the store with keys of this world, or the store does not list them.
            Event::WatchFailed { watch } if *watch == self.watch => {
                self.is_current = false;
                self.unnamed = self.known_keys();
                self.to_send.push_back(Command::Watch { watch: self.watch, pattern: self.name.pattern(">") });
            }
            Event::Changed { watch, key, revision, value } if *watch == self.watch => {
                self.unnamed.retain(|unnamed| unnamed != key);
                let is_sound = self.see(now, key, *revision, value.as_ref());
                self.counters.refused += u64::from(!is_sound);
            }
            Event::Message(message) if message.subscription == self.subscription => match self.hear(now, message) {
                Some(()) => self.counters.reports += 1,
                None => self.counters.refused += 1,
            },
            _ => {}
        }
    }

    /// The next command for the bus.
    pub(crate) fn poll_command(&mut self) -> Option<Command> {
        self.to_send.pop_front()
    }

    /// Says that the bus refused a command: it is tried again.
    pub(crate) fn handle_refusal(&mut self, command: &Command) {
        let is_ours = match command {
            Command::Subscribe { subscription, .. } => *subscription == self.subscription,
            Command::Watch { watch, .. } => *watch == self.watch,
            _ => false,
        };
        if is_ours {
            self.to_send.push_back(command.clone());
        }
    }

    /// The entries that there are, as far as is known.
    fn known_keys(&self) -> Vec<Subject> {
        let held = (0..).zip(&self.seats).filter(|(_, seat)| seat.holder.is_some());
        let leases = held.map(|(number, _)| self.name.server_key(number));
        let decider = self.decider.iter().map(|_| self.name.decider_key());
        let borders = (self.entry != BordersEntry::Missing).then(|| self.name.borders_key());
        leases.chain(decider).chain(borders).collect()
    }

    /// Takes an entry of the store, or its end. False if it makes no sense.
    fn see(&mut self, now: Time, key: &Subject, revision: Revision, value: Option<&Bytes>) -> bool {
        let holder = value.and_then(|value| Holder::read(value, revision));
        let is_readable = value.is_none() || holder.is_some();
        match self.name.rest(key) {
            Some("borders") => {
                // Nobody removes them. If somebody does, they stay as they were, until the decider has written them again.
                let fenced = value.and_then(|value| Fenced::read(value, revision));
                let is_fenced = fenced.is_some();
                let borders =
                    fenced.as_ref().and_then(|fenced| read_borders(&fenced.content, revision, &self.division));
                let is_sound = borders.is_some();
                let content = fenced.as_ref().map_or(&[][..], |fenced| &fenced.content);
                self.entry_written = Written { revision, version: version_of(content, revision), at: now };
                self.entry = match value {
                    None => BordersEntry::Missing,
                    Some(_) if is_sound => BordersEntry::Readable,
                    Some(_) if is_fenced => BordersEntry::Foreign,
                    Some(_) => BordersEntry::NoBorders,
                };
                if let Some(borders) = borders.filter(|borders| borders.version() > self.borders.version()) {
                    self.borders = borders;
                    self.base = self.borders.version().0 - revision.0;
                }
                is_sound
            }
            Some("decider") => {
                self.decider = holder;
                is_readable
            }
            Some(rest) => {
                let Some(number) = number_of(rest, "server.") else { return false };
                let Some(seat) = self.seats.get_mut(usize::from(number)) else { return false };
                if seat.fence() != holder.as_ref().map(|holder| holder.fence) {
                    seat.is_unseen |= seat.report.as_ref().is_some_and(|report| !report.load.is_empty());
                    (seat.report, seat.edgeless_since) = (None, None);
                    if holder.is_none() {
                        seat.empty_since = now;
                    }
                }
                seat.was_held |= holder.is_some();
                seat.holder = holder;
                is_readable
            }
            None => false,
        }
    }

    /// Takes a report. `None` if it makes no sense. One of a member that may not make it is counted here.
    fn hear(&mut self, now: Time, message: &Message) -> Option<()> {
        let number = number_of(self.name.rest(&message.subject)?, "load.")?;
        let report = LoadReport::read(&message.payload, &self.division)?;
        let seat = self.seats.get_mut(usize::from(number))?;
        if !seat.is_held_by(message.publisher, report.fence) {
            self.counters.forged += 1;
            return None;
        }
        seat.edgeless_since = match report.edges {
            0 => seat.edgeless_since.or(Some(now)),
            _ => None,
        };
        (seat.report, seat.reported, seat.is_unseen) = (Some(report), now, false);
        Some(())
    }
}

/// The number of a server at the end of a subject, in its one spelling.
fn number_of(rest: &str, row: &str) -> Option<u16> {
    let text = rest.strip_prefix(row)?;
    text.parse::<u16>().ok().filter(|number| number.to_string() == text)
}

#[cfg(test)]
mod tests {
    use throng_bus::{MemberId, Sequence};

    use super::*;

    fn division() -> Division {
        Division::new(3, 90, 3).unwrap()
    }

    fn roster() -> Roster {
        Roster::new(WorldName::new("w").unwrap(), division(), SubscriptionId(1), WatchId(1))
    }

    fn report(fence: u64) -> LoadReport {
        let (knows, ready) = (BordersVersion(9), BordersVersion(7));
        LoadReport { fence: Fence(fence), knows, ready, edges: 2, load: vec![(3, 9), (80, 1)] }
    }

    fn changed(roster: &mut Roster, key: &str, revision: u64, value: Option<Vec<u8>>) {
        let event = Event::Changed {
            watch: WatchId(1),
            key: Subject::new(key).unwrap(),
            revision: Revision(revision),
            value: value.map(Bytes::from),
        };
        roster.handle_event(Time(5), &event);
    }

    fn lease(member: u64, note: &str) -> Vec<u8> {
        [&[1][..], &member.to_le_bytes(), &0_u64.to_le_bytes(), note.as_bytes()].concat()
    }

    fn said(roster: &mut Roster, publisher: u64, subject: &str, payload: Bytes) {
        let (subject, publisher) = (Subject::new(subject).unwrap(), MemberId(publisher));
        let subscription = SubscriptionId(1);
        let message = Message { subscription, subject, publisher, sequence: Sequence(1), payload, reply_to: None };
        roster.handle_event(Time(6), &Event::Message(message));
    }

    #[test]
    fn a_report_is_read_as_it_was_written_and_nonsense_is_not() {
        let bytes = report(4).bytes();
        assert_eq!(LoadReport::read(&bytes, &division()), Some(report(4)));
        for length in (0..bytes.len()).filter(|length| ![26, 30].contains(length)) {
            assert_eq!(LoadReport::read(&bytes[..length], &division()), None, "{length} bytes");
        }
        let bad = |change: fn(&mut LoadReport)| {
            let mut bad = report(4);
            change(&mut bad);
            LoadReport::read(&bad.bytes(), &division())
        };
        assert_eq!(bad(|report| report.ready = BordersVersion(10)), None);
        assert_eq!(bad(|report| report.load = vec![(4, 1), (4, 1)]), None);
        assert_eq!(bad(|report| report.load = vec![(90, 1)]), None);
        assert_eq!(bad(|report| report.load = vec![(0, 1); 91]), None);
    }

    #[test]
    fn borders_are_read_as_they_were_written_and_nonsense_is_not() {
        let borders = Borders::new(&division(), BordersVersion(8), &[20, 60]).unwrap();
        for base in [0, 5] {
            let bytes = borders_bytes(&borders, base);
            assert_eq!(read_borders(&bytes, Revision(8 - base), &division()), Some(borders.clone()));
        }
        let equal = read_borders(&[], Revision(3), &division()).unwrap();
        assert_eq!((equal.inner(), equal.version()), (&[30, 60][..], BordersVersion(3)));
        assert!(read_borders(&borders_bytes(&equal, BASE_MAX), Revision(8), &division()).is_some());
        assert_eq!(read_borders(&borders_bytes(&equal, BASE_MAX + 1), Revision(8), &division()), None);
        for nonsense in [&[1, 0][..], &[1, 0, 2], &[1, 0, 2, 0, 3, 0], &[61, 0, 60, 0], &[1, 0, 91, 0]] {
            let with_base = [&[0; 8][..], nonsense].concat();
            for nonsense in [nonsense, &with_base] {
                assert_eq!(read_borders(nonsense, Revision(8), &division()), None, "{nonsense:?}");
            }
        }
    }

    #[test]
    fn a_name_that_could_reach_another_world_is_refused() {
        for name in ["", "a.b", "*", ">", "a b", "ä", &"a".repeat(190)] {
            assert!(WorldName::new(name).is_err(), "{name}");
        }
        let world = WorldName::new("a").unwrap();
        assert_eq!(world.server_key(3).as_str(), "world.a.server.3");
        assert_eq!(world.rest(&Subject::new("world.ab.borders").unwrap()), None);
    }

    #[test]
    fn only_the_holder_of_a_lease_reports_for_its_server() {
        let mut roster = roster();
        changed(&mut roster, "world.w.server.1", 4, Some(lease(70, "127.0.0.1:9")));
        assert_eq!((roster.address(1), roster.address(0)), (Some(([127, 0, 0, 1], 9).into()), None));
        said(&mut roster, 70, "world.w.load.1", report(4).bytes());
        assert_eq!(roster.counters(), WorldCounters { reports: 1, ..WorldCounters::default() });
        let forged = [(71, "world.w.load.1", 4), (70, "world.w.load.1", 3), (70, "world.w.load.2", 4)];
        for (number, (publisher, subject, fence)) in (1..).zip(forged) {
            said(&mut roster, publisher, subject, LoadReport { load: vec![], ..report(fence) }.bytes());
            let counters = WorldCounters { reports: 1, refused: number, forged: number, forgotten: 0 };
            assert_eq!(roster.counters(), counters, "{publisher} {subject} {fence}");
        }
        assert_eq!(roster.seat(1).unwrap().report, Some(report(4)));
        // Another process has the number now, and nothing was heard of it.
        changed(&mut roster, "world.w.server.1", 5, Some(lease(71, "")));
        let seat = roster.seat(1).unwrap();
        assert_eq!((&seat.report, seat.holder.as_ref().map(|holder| holder.member)), (&None, Some(MemberId(71))));
        assert_eq!(roster.address(1), None);
    }

    /// The next watch does not tell what has ended before it.
    #[test]
    fn after_a_watch_that_failed_a_listing_tells_also_what_it_does_not_name() {
        let mut roster = roster();
        let listed = Event::Listed { watch: WatchId(1) };
        changed(&mut roster, "world.w.server.0", 4, Some(lease(70, "")));
        changed(&mut roster, "world.w.server.1", 5, Some(lease(71, "")));
        changed(&mut roster, "world.w.decider", 6, Some(lease(70, "")));
        roster.handle_event(Time(5), &listed);
        let holders = |roster: &Roster| {
            let seats = roster.seats().map(|seat| seat.holder.is_some());
            seats.chain([roster.decider().is_some()]).collect::<Vec<_>>()
        };
        // A connection that comes again tells only what is new.
        roster.handle_event(Time(6), &Event::Connected);
        roster.handle_event(Time(7), &listed);
        assert_eq!(holders(&roster), [true, true, false, true]);
        roster.handle_event(Time(8), &Event::WatchFailed { watch: WatchId(1) });
        changed(&mut roster, "world.w.server.1", 5, Some(lease(71, "")));
        assert!(!roster.is_current());
        assert_eq!(holders(&roster), [true, true, false, true]);
        roster.handle_event(Time(9), &listed);
        assert_eq!(holders(&roster), [false, true, false, false]);
        assert!(roster.is_current() && roster.seat(0).unwrap().empty_since == Time(9));
        assert_eq!(roster.counters().refused, 0);
    }

    #[test]
    fn what_makes_no_sense_is_refused_and_changes_nothing() {
        let mut roster = roster();
        let fenced = |fence: u64, content: &[u8]| {
            let numbers = [fence, 70, 1].map(u64::to_le_bytes).concat();
            Some([&[1][..], &numbers, &[0; 8], content].concat())
        };
        changed(&mut roster, "world.w.borders", 9, fenced(8, &[10, 0, 20, 0]));
        assert_eq!((roster.borders().inner(), roster.counters().refused), (&[10, 20][..], 0));
        let nonsense = [
            ("world.w.borders", 10, fenced(11, &[1, 0, 2, 0])),
            ("world.w.borders", 10, fenced(8, &[5, 0, 2, 0])),
            ("world.w.borders", 10, Some(vec![7; 40])),
            ("world.w.borders", 10, None),
            ("world.w.server.3", 10, Some(lease(70, ""))),
            ("world.w.server.01", 10, Some(lease(70, ""))),
            ("world.w.server.1", 10, Some(vec![2; 30])),
            ("world.w.decider", 10, Some(vec![2; 3])),
            ("world.w.other", 10, Some(lease(70, ""))),
        ];
        for (number, (key, revision, value)) in (1..).zip(nonsense) {
            changed(&mut roster, key, revision, value);
            assert_eq!(roster.counters().refused, number, "{key}");
        }
        // An older write that comes late is no news, and no nonsense.
        changed(&mut roster, "world.w.borders", 8, fenced(7, &[1, 0, 2, 0]));
        assert_eq!((roster.borders().inner(), roster.counters().refused), (&[10, 20][..], 9));
        assert!(roster.seats().all(|seat| seat.holder.is_none()) && roster.decider().is_none());
    }
}
