//! The middle of a run's own bus: its store, and who hears what.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use throng::Time;
use throng_bus::envelope::Envelope;
use throng_bus::{Bus, Command, Event, Limits, LocalBus, LocalHub, MemberId, Pattern, Subject, Ticket, WatchId};
use throng_machine::clock;
use throng_machine::piped::Unsaid;

use super::{BEAT_EVERY, Down, Failure, Up};

/// The middle looks this often for what has come to its end by itself.
const OFTEN: Duration = Duration::from_millis(5);
/// Most words that wait for their member to be joined.
const EARLY_MAX: usize = 1_024;
/// Most words that wait for the middle.
pub(super) const NOTES_MAX: usize = 16_384;
/// The middle takes this many of them at most, and then looks at all ends. So each end learns that its connection is there, however many
/// words wait.
const NOTES_AT_ONCE: usize = 1_024;

/// The thread between all ends. It ends when nobody can say anything to it any more.
#[derive(Clone)]
pub(crate) struct Middle {
    notes: SyncSender<Note>,
    counts: Arc<Counts>,
}

enum Note {
    Join(MemberId, Tell),
    Up(MemberId, Up),
}

/// Tells a member something.
type Tell = Box<dyn FnMut(Down) -> Result<(), Unsaid> + Send>;

#[derive(Debug, Default)]
struct Counts {
    lost: AtomicU64,
    anew: AtomicU64,
    refused: AtomicU64,
    forged: AtomicU64,
    /// Members of which a word found no room, since the middle looked for them.
    unheard: Mutex<BTreeSet<MemberId>>,
}

/// Counters of a run's own bus.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MiddleCounters {
    /// Words that found no room on their way to a process, to the middle, or on the way from a process that was not joined yet.
    pub(crate) lost: u64,
    /// Connections that began anew because of that.
    pub(crate) anew: u64,
    /// Words of processes that make no sense, or that the store does not take.
    pub(crate) refused: u64,
    /// Of those, messages in the name of another process.
    pub(crate) forged: u64,
}

impl MiddleCounters {
    /// A line if anything was lost or refused.
    pub(crate) fn line(self) -> Option<String> {
        let MiddleCounters { lost, anew, refused, forged } = self;
        (self != MiddleCounters::default()).then(|| {
            format!(
                "the bus of the run lost {lost} lines, and {anew} connections began anew; it refused {refused} words, of which {forged} \
                 were in the name of another process"
            )
        })
    }
}

impl Middle {
    pub(crate) fn start() -> std::io::Result<Middle> {
        let (sender, notes) = sync_channel(NOTES_MAX);
        let counts = Arc::new(Counts::default());
        let ends = Ends { counts: counts.clone(), ..Ends::default() };
        std::thread::Builder::new().name("throng-bus".to_owned()).spawn(move || ends.run(&notes))?;
        Ok(Middle { notes: sender, counts })
    }

    /// Adds a member. `tell` carries the middle's words to it.
    pub(crate) fn join(&self, member: u64, tell: Tell) {
        // The thread is there as long as this is.
        let _ = self.notes.send(Note::Join(MemberId(member), tell));
    }

    /// A member has said something.
    pub(crate) fn hear(&self, member: u64, up: Up) {
        // A word that finds no room is lost, and its member learns that. Nobody waits: the pipe of a process has more to carry.
        if let Err(TrySendError::Full(_)) = self.notes.try_send(Note::Up(MemberId(member), up)) {
            count(&self.counts.lost);
            self.counts.unheard().insert(MemberId(member));
        }
    }

    pub(crate) fn counters(&self) -> MiddleCounters {
        let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
        let Counts { lost, anew, refused, forged, .. } = &*self.counts;
        MiddleCounters { lost: count(lost), anew: count(anew), refused: count(refused), forged: count(forged) }
    }
}

impl Counts {
    fn unheard(&self) -> MutexGuard<'_, BTreeSet<MemberId>> {
        self.unheard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

#[derive(Default)]
struct Ends {
    hub: LocalHub,
    ends: BTreeMap<MemberId, End>,
    /// The words of processes that were not joined yet.
    early: Vec<(MemberId, Up)>,
    /// Processes that were not joined yet, and of which not all words found room.
    unheard: BTreeSet<MemberId>,
    counts: Arc<Counts>,
}

/// A member: its operations of the store and its watches are those of a member of a bus in process.
struct End {
    tell: Tell,
    bus: LocalBus,
    subscriptions: BTreeMap<u32, Pattern>,
    /// The number of the listing of each watch.
    listings: BTreeMap<u32, u32>,
    line: Line,
    told: Time,
    counts: Arc<Counts>,
}

/// The way to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    Open,
    /// Something was lost. The process is told that before anything else.
    Broken,
    /// The process has ended.
    Gone,
}

impl Ends {
    fn run(mut self, notes: &Receiver<Note>) {
        loop {
            match notes.recv_timeout(OFTEN) {
                Ok(note) => self.take(note),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            // All that has come counts before anything ends by its time, as far as it is not endless.
            for _ in 1..NOTES_AT_ONCE {
                match notes.try_recv() {
                    Ok(note) => self.take(note),
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => return,
                }
            }
            for member in std::mem::take(&mut *self.counts.unheard()) {
                match self.ends.get_mut(&member) {
                    Some(end) if end.line == Line::Open => end.line = Line::Broken,
                    Some(_) => {}
                    None => drop(self.unheard.insert(member)),
                }
            }
            self.ends.values_mut().for_each(|end| end.turn(clock::now()));
        }
    }

    fn take(&mut self, note: Note) {
        match note {
            Note::Join(member, tell) => {
                let line = if self.unheard.remove(&member) { Line::Broken } else { Line::Open };
                let end = End {
                    tell,
                    bus: self.hub.join(member, Limits::default()),
                    subscriptions: BTreeMap::new(),
                    listings: BTreeMap::new(),
                    line,
                    told: clock::now(),
                    counts: self.counts.clone(),
                };
                self.ends.insert(member, end);
                for (member, up) in std::mem::take(&mut self.early) {
                    self.take(Note::Up(member, up));
                }
            }
            Note::Up(member, up) => match (self.ends.get_mut(&member), up) {
                (None, up) if self.early.len() < EARLY_MAX => self.early.push((member, up)),
                (None, _) => {
                    count(&self.counts.lost);
                    self.unheard.insert(member);
                }
                (Some(_), Up::Publish { subject, bytes }) => self.publish(member, &subject, bytes),
                (Some(end), up) => end.take(up),
            },
        }
    }

    /// The pipe says who has published: nobody speaks in the name of another one.
    fn publish(&mut self, member: MemberId, subject: &str, bytes: Vec<u8>) {
        let bytes = bytes.into();
        let publisher = Envelope::decode(&bytes).map(|envelope| envelope.publisher);
        let Some(subject) = Subject::new(subject).ok().filter(|_| publisher == Ok(member)) else {
            count(&self.counts.refused);
            if publisher.is_ok_and(|publisher| publisher != member) {
                count(&self.counts.forged);
            }
            return;
        };
        for end in self.ends.values_mut() {
            end.deliver(&subject, &bytes);
        }
    }
}

impl End {
    /// Tells what has happened, and that the connection is there.
    fn turn(&mut self, now: Time) {
        self.pass_on();
        if self.line == Line::Broken {
            match (self.tell)(Down::Anew) {
                Ok(()) => {
                    (self.line, self.told) = (Line::Open, now);
                    count(&self.counts.anew);
                }
                Err(Unsaid::Full) => {}
                Err(Unsaid::Gone) => self.line = Line::Gone,
            }
        }
        if self.line == Line::Open && now.since(self.told) >= BEAT_EVERY {
            self.say(Down::Beat);
        }
    }

    fn say(&mut self, down: Down) {
        if self.line == Line::Open {
            match (self.tell)(down) {
                Ok(()) => self.told = clock::now(),
                Err(Unsaid::Full) => self.line = Line::Broken,
                Err(Unsaid::Gone) => self.line = Line::Gone,
            }
        }
        if self.line == Line::Broken {
            count(&self.counts.lost);
        }
    }

    fn deliver(&mut self, subject: &Subject, bytes: &[u8]) {
        let wanted = self.subscriptions.iter().filter(|(_, pattern)| pattern.matches(subject));
        let wanted: Vec<u32> = wanted.map(|(&subscription, _)| subscription).collect();
        for subscription in wanted {
            let (subject, bytes) = (subject.as_str().to_owned(), bytes.to_vec());
            self.say(Down::Delivery { subscription, subject, bytes });
        }
    }

    /// A question that cannot be carried out has an answer all the same.
    fn take(&mut self, up: Up) {
        let refusal = up.refusal();
        if self.carry_out(up).is_none() {
            count(&self.counts.refused);
            refusal.into_iter().for_each(|down| self.say(down));
        }
    }

    /// `None` if a name is none, or the store does not take it.
    fn carry_out(&mut self, up: Up) -> Option<()> {
        let command = match up {
            Up::Publish { .. } => return None,
            Up::Subscribe { subscription, pattern } => {
                self.subscriptions.insert(subscription, Pattern::new(&pattern).ok()?);
                return Some(());
            }
            Up::Unsubscribe { subscription } => return self.subscriptions.remove(&subscription).map(|_| ()),
            Up::Watch { watch, pattern, listing } => {
                let pattern = Pattern::new(&pattern).ok()?;
                if self.listings.remove(&watch).is_some() {
                    self.operate(Command::Unwatch { watch: WatchId(watch) })?;
                    // All that was told of the former listing is not of this one.
                    self.pass_on();
                }
                self.operate(Command::Watch { watch: WatchId(watch), pattern })?;
                self.listings.insert(watch, listing);
                return Some(());
            }
            Up::Unwatch { watch } => {
                self.listings.remove(&watch)?;
                Command::Unwatch { watch: WatchId(watch) }
            }
            Up::Get { ticket, key } => Command::Get { ticket: Ticket(ticket), key: Subject::new(&key).ok()? },
            Up::Put { ticket, key, value, expect, lives_s } => {
                let (ticket, key, expect) = (Ticket(ticket), Subject::new(&key).ok()?, expect.expect());
                Command::Put { ticket, key, value: value.into(), expect, lives_for: lives_s.map(Duration::from_secs) }
            }
            Up::Delete { ticket, key, expect } => {
                Command::Delete { ticket: Ticket(ticket), key: Subject::new(&key).ok()?, expect: expect.expect() }
            }
        };
        self.operate(command)
    }

    fn operate(&mut self, command: Command) -> Option<()> {
        self.bus.handle_command(clock::now(), command).ok()
    }

    fn pass_on(&mut self) {
        let now = clock::now();
        self.bus.handle_timeout(now);
        while let Some(event) = self.bus.poll_event(now) {
            let down = match event {
                Event::Got { ticket, result } => {
                    let of = |entry: throng_bus::Entry| (entry.revision.0, entry.value.to_vec());
                    let entry = result.map(|entry| entry.map(of)).map_err(Failure::of);
                    Down::Got { ticket: ticket.0, entry }
                }
                Event::Written { ticket, result } => {
                    let revision = result.map(|revision| revision.0).map_err(Failure::of);
                    Down::Written { ticket: ticket.0, revision }
                }
                Event::Changed { watch, key, revision, value } => {
                    let Some(&listing) = self.listings.get(&watch.0) else { continue };
                    let (watch, key) = (watch.0, key.as_str().to_owned());
                    let value = value.map(|value| value.to_vec());
                    Down::Entry { watch, listing, key, revision: revision.0, value }
                }
                Event::Listed { watch } => {
                    let Some(&listing) = self.listings.get(&watch.0) else { continue };
                    Down::Listed { watch: watch.0, listing }
                }
                _ => continue,
            };
            self.say(down);
        }
    }
}
