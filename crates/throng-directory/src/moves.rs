//! A home moves in two phases: prepare with the state, commit.
//!
//! ```text
//!  source                                  store                          target
//!  frozen; part 0, part 1, ...  ------------------------------------------>  keeps the parts; answers with its term
//!  write the entry: owner = target, if unchanged  -->  the one moment of the move
//!                                                      |-- watch ----------->  serves from now on, with the state
//!  moved  <--------------------------------------------+
//! ```
//!
//! Before the write, the source may give up and serve on. After it has sent the write, it may not, until it knows the outcome: the
//! write may still happen. It sends the same write again until it knows. The target serves only what the store says is its own,
//! and only with the parts of that very offer.
//!
//! The target keeps the parts until the store says whose the home is, or the source gives up. A source that dies says nothing, and its
//! words may be lost. So the target forgets the parts of a source that is silent for longer than the source would try to send a part.
//! From the first attempt of the write until it knows the outcome, the source asks it each second to hold them.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use throng_bus::{Command, Event, Expect, Fence, MemberId, Message, Revision, StoreError, Subject, Ticket, Tickets};
use throng_wire::Time;

use crate::HomeKey;
use crate::record::{Content, Home, Note, read_answer};

/// Most bytes of a part.
pub const PART_BYTES_MAX: usize = 128 << 10;
/// Most parts of a state: 64 MiB.
pub const PARTS_MAX: u16 = 512;
/// Most states that a member keeps for homes that are about to come.
pub const ARRIVALS_MAX: usize = 64;
/// Most bytes of all these states.
pub const ARRIVING_BYTES_MAX: usize = 256 << 20;
/// How often a part is sent before the move is given up.
pub const PART_ATTEMPTS_MAX: u8 = 5;
/// The time in which a part has to be answered.
pub const PART_PATIENCE: Duration = Duration::from_secs(1);
/// The time between two attempts to send a part or to write the entry.
pub const RETRY_AFTER: Duration = Duration::from_millis(200);
/// A source that is silent for longer has given up, or is dead.
const SILENCE_MAX: Duration = PART_PATIENCE.saturating_add(RETRY_AFTER).saturating_mul(PART_ATTEMPTS_MAX as u32);

/// The time between two requests to hold a state.
const HOLD_EVERY: Duration = PART_PATIENCE;

/// The subject on which a member takes the messages of moves.
pub(crate) fn moves_subject(member: MemberId) -> Subject {
    Subject::new(&format!("moves.{member}")).unwrap_or_else(|error| unreachable!("a number is a name: {error}"))
}

/// A home that leaves.
#[derive(Clone, Debug)]
pub(crate) struct Departure {
    key: HomeKey,
    pub(crate) to: MemberId,
    fence: Fence,
    offer: u64,
    state: Bytes,
    part: u16,
    attempts: u8,
    step: Step,
    ticket: Option<Ticket>,
    not_before: Time,
    /// When the target is asked next to hold the state.
    hold_at: Time,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Send,
    /// The write, with the term of the target. From here on nobody may serve on without knowing its outcome.
    Commit(Fence),
    Look(Fence),
}

/// The end of a departure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Departed {
    /// The target is the home.
    Moved,
    /// We still are; the target did not take it.
    Kept,
    /// Somebody else has taken it.
    Lost,
}

impl Departure {
    /// `None` if the state is too long.
    pub(crate) fn new(key: HomeKey, to: MemberId, fence: Fence, offer: u64, state: Bytes) -> Option<Departure> {
        let is_short = state.len() <= PART_BYTES_MAX * usize::from(PARTS_MAX);
        is_short.then_some(Departure {
            key,
            to,
            fence,
            offer,
            state,
            part: 0,
            attempts: 0,
            step: Step::Send,
            ticket: None,
            not_before: Time(0),
            hold_at: Time(0),
        })
    }

    fn parts(&self) -> u16 {
        self.state.len().div_ceil(PART_BYTES_MAX).max(1) as u16
    }

    pub(crate) fn is_waiting_for(&self, ticket: Ticket) -> bool {
        self.ticket == Some(ticket)
    }

    /// The write of the move was not sent yet.
    pub(crate) fn is_sending(&self) -> bool {
        matches!(self.step, Step::Send)
    }

    pub(crate) fn poll_command(&mut self, now: Time, tickets: &mut Tickets) -> Option<Command> {
        if self.ticket.is_some() || now < self.not_before {
            return None;
        }
        let ticket = tickets.issue();
        self.ticket = Some(ticket);
        let key = self.key.home_subject();
        Some(match self.step {
            Step::Send => {
                let from = usize::from(self.part) * PART_BYTES_MAX;
                let bytes = self.state.slice(from..self.state.len().min(from + PART_BYTES_MAX));
                let content = Content::Part { part: self.part, parts: self.parts(), bytes };
                let payload = self.note(content).encode();
                Command::Request { ticket, subject: moves_subject(self.to), payload, patience: PART_PATIENCE }
            }
            Step::Commit(term) => {
                let value = Home::value(self.to, term, self.offer);
                let expect = Expect::Revision(Revision(self.fence.0));
                Command::Put { ticket, key, value, expect, lives_for: None }
            }
            Step::Look(_) => Command::Get { ticket, key },
        })
    }

    /// Tells the target that it may forget the state.
    pub(crate) fn abort(&self) -> Command {
        self.say(Content::Abort)
    }

    /// Tells the target from time to time that the state is still needed, if the move is being written.
    pub(crate) fn poll_hold(&mut self, now: Time) -> Option<Command> {
        if self.is_sending() || now < self.hold_at {
            return None;
        }
        self.hold_at = now.after(HOLD_EVERY);
        Some(self.say(Content::Hold))
    }

    fn say(&self, content: Content) -> Command {
        Command::Publish { subject: moves_subject(self.to), payload: self.note(content).encode() }
    }

    pub(crate) fn handle_refusal(&mut self, now: Time) -> Option<Departed> {
        match self.step {
            Step::Send => self.send_again(now),
            _ => self.go(self.step, now.after(RETRY_AFTER)),
        }
    }

    pub(crate) fn handle_event(&mut self, now: Time, event: &Event) -> Option<Departed> {
        match (self.step, event) {
            (Step::Send, Event::Answer { result: Ok(bytes), .. }) => match read_answer(bytes) {
                None => self.send_again(now),
                Some(term) if self.part + 1 == self.parts() => self.go(Step::Commit(term), now),
                Some(_) => {
                    (self.part, self.attempts) = (self.part + 1, 0);
                    self.go(Step::Send, now)
                }
            },
            (Step::Send, _) => self.send_again(now),
            (Step::Commit(_), Event::Written { result: Ok(_), .. }) => Some(Departed::Moved),
            (Step::Commit(term), Event::Written { result: Err(StoreError::Full), .. }) => {
                self.go(Step::Commit(term), now.after(RETRY_AFTER))
            }
            (Step::Commit(term), _) => self.go(Step::Look(term), now),
            (Step::Look(term), Event::Got { result: Ok(entry), .. }) => {
                let home = entry.as_ref().and_then(|entry| Home::read(&entry.value, entry.revision));
                match home {
                    Some(home) if (home.owner, home.offer) == (self.to, self.offer) => Some(Departed::Moved),
                    Some(home) if home.fence == self.fence => self.go(Step::Commit(term), now.after(RETRY_AFTER)),
                    _ => Some(Departed::Lost),
                }
            }
            (Step::Look(term), _) => self.go(Step::Look(term), now.after(RETRY_AFTER)),
        }
    }

    fn note(&self, content: Content) -> Note {
        Note { key: self.key, offer: self.offer, fence: self.fence, content }
    }

    fn go(&mut self, step: Step, not_before: Time) -> Option<Departed> {
        (self.step, self.ticket, self.not_before) = (step, None, not_before);
        None
    }

    fn send_again(&mut self, now: Time) -> Option<Departed> {
        self.attempts += 1;
        if self.attempts >= PART_ATTEMPTS_MAX {
            return Some(Departed::Kept);
        }
        self.go(Step::Send, now.after(RETRY_AFTER))
    }
}

/// States of homes that are about to come.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    prepared: BTreeMap<HomeKey, Prepared>,
    bytes: usize,
    /// This member hears what is said.
    is_connected: bool,
    /// The time of the newest sweep.
    swept: Time,
}

#[derive(Debug)]
struct Prepared {
    from: MemberId,
    offer: u64,
    fence: Fence,
    parts: u16,
    state: Vec<Bytes>,
    /// When the source was heard last.
    heard: Time,
}

impl Arrivals {
    /// Takes a message of a move. Whether a part was taken; `home` is what the store says of the key.
    pub(crate) fn handle(&mut self, now: Time, message: &Message, note: Note, home: Option<&Home>) -> bool {
        // Only the member that serves a home may offer it, and only as it is now.
        let is_owner = home.is_some_and(|home| home.owner == message.publisher && home.fence == note.fence);
        if !is_owner {
            return false;
        }
        let is_it = |prepared: &&mut Prepared| prepared.offer == note.offer && prepared.from == message.publisher;
        let known = self.prepared.get_mut(&note.key).filter(is_it);
        let (part, parts, bytes) = match (note.content, known) {
            (Content::Part { part, parts, bytes }, _) => (part, parts, bytes),
            (Content::Hold, Some(known)) => {
                known.heard = now;
                return false;
            }
            (Content::Abort, Some(_)) => {
                self.remove(note.key);
                return false;
            }
            (Content::Abort | Content::Hold, None) => return false,
        };
        if parts > PARTS_MAX || bytes.len() > PART_BYTES_MAX {
            return false;
        }
        let is_new =
            self.prepared.get(&note.key).is_none_or(|known| (known.fence, known.offer) < (note.fence, note.offer));
        if is_new {
            // The parts before were forgotten, or never came.
            if part != 0 {
                return false;
            }
            if self.prepared.len() >= ARRIVALS_MAX && !self.prepared.contains_key(&note.key) {
                return false;
            }
            let (from, state) = (message.publisher, Vec::new());
            let prepared = Prepared { from, offer: note.offer, fence: note.fence, parts, state, heard: now };
            self.remove(note.key);
            self.prepared.insert(note.key, prepared);
        }
        let Some(prepared) = self.prepared.get_mut(&note.key) else { return false };
        if (prepared.fence, prepared.offer, prepared.parts) != (note.fence, note.offer, parts) {
            return false;
        }
        prepared.heard = now;
        let at = usize::from(part);
        if at == prepared.state.len() && self.bytes + bytes.len() <= ARRIVING_BYTES_MAX {
            self.bytes += bytes.len();
            prepared.state.push(bytes);
        }
        at < prepared.state.len() // Also one that came again.
    }

    /// The store has a new entry of a key: the state, if it is complete and of the offer that was committed. Anything else of
    /// the key is forgotten.
    pub(crate) fn take(&mut self, key: HomeKey, home: Option<&Home>) -> Option<Bytes> {
        let prepared = self.prepared.get(&key)?;
        if home.is_some_and(|home| home.fence <= prepared.fence) {
            return None;
        }
        let prepared = self.remove(key)?;
        let is_whole = prepared.state.len() == usize::from(prepared.parts);
        let is_it = home.is_some_and(|home| home.offer == prepared.offer) && is_whole;
        is_it.then(|| {
            prepared
                .state
                .iter()
                .fold(BytesMut::new(), |mut state, part| {
                    state.extend_from_slice(part);
                    state
                })
                .freeze()
        })
    }

    /// There is a connection, or none any more.
    pub(crate) fn connect(&mut self, now: Time, is_connected: bool) {
        self.is_connected = is_connected;
        self.begin_silence(now);
    }

    /// Forgets the states of sources that are silent. Call it after all that was said was handled.
    pub(crate) fn sweep(&mut self, now: Time) {
        // This member may still hear what was said while it stood still or was cut off.
        if !self.is_connected || now.since(self.swept) > PART_PATIENCE {
            self.begin_silence(now);
        }
        self.swept = now;
        let is_silent = |prepared: &Prepared| now.since(prepared.heard) > SILENCE_MAX;
        let silent: Vec<HomeKey> =
            self.prepared.iter().filter(|(_, prepared)| is_silent(prepared)).map(|(key, _)| *key).collect();
        for key in silent {
            self.remove(key);
        }
    }

    fn begin_silence(&mut self, now: Time) {
        self.prepared.values_mut().for_each(|prepared| prepared.heard = now);
    }

    /// The term that was promised to the sources has ended.
    pub(crate) fn clear(&mut self) {
        self.prepared.clear();
        self.bytes = 0;
    }

    fn remove(&mut self, key: HomeKey) -> Option<Prepared> {
        let prepared = self.prepared.remove(&key)?;
        self.bytes -= prepared.state.iter().map(Bytes::len).sum::<usize>();
        Some(prepared)
    }

    pub(crate) fn count(&self) -> usize {
        self.prepared.len()
    }
}
