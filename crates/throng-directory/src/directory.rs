//! One member's end of the directory.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound::{Excluded, Unbounded};

use bytes::Bytes;
use throng_bus::{
    Command, CommandError, Event, Fence, FencedError, FencedWrites, Lease, LeaseChange, LeaseOptions, MemberId,
    Message, Pattern, Revision, SubscriptionId, Ticket, Tickets, WatchId, WriteId,
};
use throng_wire::Time;

use crate::HomeKey;
use crate::claim::{Claim, Claimed, lease_subject};
use crate::moves::{Arrivals, Departed, Departure, RETRY_AFTER, moves_subject};
use crate::record::{Home, Note, answer};
use crate::release::Release;

/// Most homes of a member, with those that it claims.
pub const HOMES_MAX: usize = 1 << 18;

/// Settings of a member.
#[derive(Clone, Debug)]
pub struct DirectoryOptions {
    /// The member's own lease. All its homes end with it.
    pub lease: LeaseOptions,
    /// The directory's subscription on the bus.
    pub subscription: SubscriptionId,
    /// The directory's watch on the bus.
    pub watch: WatchId,
    /// The first of the three desks that the directory takes for its tickets, see [`Tickets`].
    pub desk: u16,
}

impl Default for DirectoryOptions {
    /// A lease of 5 s; numbers that are unlikely to be in use.
    fn default() -> DirectoryOptions {
        DirectoryOptions {
            lease: LeaseOptions::default(),
            subscription: SubscriptionId(u32::MAX),
            watch: WatchId(u32::MAX),
            desk: 0xFF00,
        }
    }
}

/// A change of what this member is the home of.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HomeChange {
    /// It is ours from now on: begin with this checkpoint, which is empty if there is none.
    Claimed {
        /// The key.
        key: HomeKey,
        /// Its number.
        fence: Fence,
        /// The newest one of the last owner.
        checkpoint: Bytes,
    },
    /// A claim failed.
    Refused {
        /// The key.
        key: HomeKey,
        /// The owner, if it is known.
        owner: Option<MemberId>,
    },
    /// It is ours from now on, with the state that its last owner froze.
    Arrived {
        /// The key.
        key: HomeKey,
        /// Its number.
        fence: Fence,
        /// The state.
        state: Bytes,
    },
    /// It has moved to another member. Forget it.
    Moved {
        /// The key.
        key: HomeKey,
        /// The new owner.
        to: MemberId,
    },
    /// A move was given up. It is still ours: serve on from the state that was frozen.
    Kept {
        /// The key.
        key: HomeKey,
    },
    /// It is not ours any more. Forget it.
    Lost {
        /// The key.
        key: HomeKey,
    },
    /// A checkpoint is written: everything in it may be acknowledged.
    Checkpointed {
        /// The key.
        key: HomeKey,
    },
    /// A checkpoint may be written or not: the store did not answer. Write it again.
    NotCheckpointed {
        /// The key.
        key: HomeKey,
    },
    /// A checkpoint is not written: it is too long for the bus. Write a shorter one.
    CheckpointTooLong {
        /// The key.
        key: HomeKey,
        /// The bytes of the entry with it.
        bytes: usize,
        /// The limit of the bus.
        most: usize,
    },
}

/// Why the directory does not do something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DirectoryError {
    /// The member's lease is not held.
    #[error("this member's own lease is not held: wait until Directory::term says that it is")]
    NoTerm,
    /// The home is not ours, or is moving, or is being claimed.
    #[error("this member does not serve that home, or is about to get or give it: wait for the next HomeChange")]
    NotServed,
    /// A checkpoint of the home is under way.
    #[error("a checkpoint of that home is under way: wait for HomeChange::Checkpointed")]
    Busy,
    /// A limit is reached.
    #[error("the limit `{limit}` of the directory is reached: serve fewer homes in this process, or smaller ones")]
    Limit {
        /// Its name.
        limit: &'static str,
    },
}

impl DirectoryError {
    /// A stable word for each kind of error.
    pub fn tag(self) -> &'static str {
        match self {
            DirectoryError::NoTerm => "no_term",
            DirectoryError::NotServed => "not_served",
            DirectoryError::Busy => "busy",
            DirectoryError::Limit { .. } => "limit",
        }
    }
}

/// One member's end of the directory: its homes, and where all others are.
///
/// In each pass: [`Directory::handle_event`] for all events of the bus, [`Directory::handle_timeout`],
/// [`Directory::poll_change`] until `None`, then your commands, then [`Directory::poll_command`] until `None`. A command that the bus
/// refuses goes to [`Directory::handle_refusal`].
#[derive(Debug)]
pub struct Directory {
    member: MemberId,
    options: DirectoryOptions,
    lease: Lease,
    checkpoints: FencedWrites,
    writes: BTreeMap<WriteId, HomeKey>,
    tickets: Tickets,
    ours: BTreeMap<HomeKey, Ours>,
    open: BTreeMap<Ticket, HomeKey>,
    /// Homes whose next command is to be polled, and the one that was polled last.
    busy: BTreeSet<HomeKey>,
    polled: Option<HomeKey>,
    known: BTreeMap<HomeKey, Home>,
    /// Homes that were known when the watch failed, and that no listing has named since.
    unnamed: BTreeSet<HomeKey>,
    arrivals: Arrivals,
    offers: u64,
    to_send: VecDeque<Command>,
    /// Subscriptions and watches that the bus had no room for, and when they are tried again.
    refused: Vec<Command>,
    again_at: Time,
    changes: VecDeque<HomeChange>,
}

/// A home of this member, or one that it is about to get or give.
#[derive(Debug)]
struct Ours {
    term: Fence,
    fence: Fence,
    stage: Stage,
    checkpoint: Option<WriteId>,
}

#[derive(Debug)]
enum Stage {
    Claiming(Claim),
    /// The entry is ours; the number is being put on the checkpoint, or waits for room among the writes.
    Fencing,
    Serving,
    Leaving(Departure),
    Releasing(Release),
}

impl Stage {
    /// Whether the member serves the home, or is to serve it next, and does not look at its entry before. A move in which
    /// nothing was written yet ends in `Serving` if it is given up, so it counts.
    fn would_serve_on(&self) -> bool {
        match self {
            Stage::Serving | Stage::Fencing => true,
            Stage::Leaving(departure) => departure.is_sending(),
            Stage::Claiming(_) | Stage::Releasing(_) => false,
        }
    }
}

impl Directory {
    /// A member without homes.
    pub fn new(member: MemberId, options: DirectoryOptions) -> Directory {
        let lease = Lease::new(lease_subject(member), member, Bytes::new(), options.lease, options.desk);
        let checkpoints = FencedWrites::new(member, options.desk.wrapping_add(1));
        let tickets = Tickets::new(options.desk.wrapping_add(2));
        let subscription = options.subscription;
        let subscribe = Command::Subscribe { subscription, pattern: Pattern::from(&moves_subject(member)) };
        let watch = Command::Watch { watch: options.watch, pattern: homes_pattern() };
        let to_send = VecDeque::from([subscribe, watch]);
        Directory {
            member,
            options,
            lease,
            checkpoints,
            writes: BTreeMap::new(),
            tickets,
            ours: BTreeMap::new(),
            open: BTreeMap::new(),
            busy: BTreeSet::new(),
            polled: None,
            known: BTreeMap::new(),
            unnamed: BTreeSet::new(),
            arrivals: Arrivals::default(),
            offers: 0,
            to_send,
            refused: Vec::new(),
            again_at: Time(0),
            changes: VecDeque::new(),
        }
    }

    /// The number of this member's own lease, while it is held.
    pub fn term(&self, now: Time) -> Option<Fence> {
        self.lease.fence(now)
    }

    /// The number of a home, while this member serves it at `now`. Ask anew before each act for it. `None` also while it moves.
    pub fn fence(&self, key: HomeKey, now: Time) -> Option<Fence> {
        let ours = self.ours.get(&key)?;
        let is_served = matches!(ours.stage, Stage::Serving) && self.lease.fence(now) == Some(ours.term);
        is_served.then_some(ours.fence)
    }

    /// The home of a key, as far as this member knows. It may have moved meanwhile.
    pub fn home(&self, key: HomeKey) -> Option<Home> {
        self.known.get(&key).copied()
    }

    /// All homes that this member knows.
    pub fn homes(&self) -> impl Iterator<Item = (HomeKey, Home)> + '_ {
        self.known.iter().map(|(key, home)| (*key, *home))
    }

    /// How many states of homes wait that are about to come.
    pub fn arriving(&self) -> usize {
        self.arrivals.count()
    }

    /// Begins to claim a home. It ends with [`HomeChange::Claimed`], [`HomeChange::Refused`] or [`HomeChange::Lost`].
    ///
    /// # Errors
    /// If this member has no term, too many homes, or the home already.
    pub fn claim(&mut self, key: HomeKey, now: Time) -> Result<(), DirectoryError> {
        let term = self.lease.fence(now).ok_or(DirectoryError::NoTerm)?;
        if self.ours.contains_key(&key) {
            return Err(DirectoryError::NotServed);
        }
        if self.ours.len() >= HOMES_MAX {
            return Err(DirectoryError::Limit { limit: "HOMES_MAX" });
        }
        let stage = Stage::Claiming(Claim::new(key, self.member, term));
        self.ours.insert(key, Ours { term, fence: Fence(0), stage, checkpoint: None });
        self.busy.insert(key);
        Ok(())
    }

    /// Begins to move a home, which is frozen from now on, to another member. It ends with [`HomeChange::Moved`],
    /// [`HomeChange::Kept`] or [`HomeChange::Lost`]. Messages that were not acknowledged go to the new home.
    ///
    /// # Errors
    /// If this member does not serve it, or the state is too long.
    pub fn move_to(&mut self, key: HomeKey, to: MemberId, state: Bytes, now: Time) -> Result<(), DirectoryError> {
        let fence = self.fence(key, now).ok_or(DirectoryError::NotServed)?;
        self.offers += 1;
        let departure = Departure::new(key, to, fence, self.offers, state);
        let departure = departure.ok_or(DirectoryError::Limit { limit: "PARTS_MAX" })?;
        if let Some(ours) = self.ours.get_mut(&key) {
            ours.stage = Stage::Leaving(departure);
        }
        self.busy.insert(key);
        Ok(())
    }

    /// Writes a checkpoint, from which the next owner begins if this one dies. It ends with [`HomeChange::Checkpointed`],
    /// [`HomeChange::NotCheckpointed`], [`HomeChange::CheckpointTooLong`] or the end of the home. Acknowledge nothing before that if no
    /// acknowledged message may be lost.
    ///
    /// # Errors
    /// If this member does not serve it, or a checkpoint is under way.
    pub fn checkpoint(&mut self, key: HomeKey, content: Bytes, now: Time) -> Result<(), DirectoryError> {
        let fence = self.fence(key, now).ok_or(DirectoryError::NotServed)?;
        let Some(ours) = self.ours.get_mut(&key) else { return Err(DirectoryError::NotServed) };
        if ours.checkpoint.is_some() {
            return Err(DirectoryError::Busy);
        }
        let id = self.checkpoints.write(key.state_subject(), content, fence);
        let id = id.ok_or(DirectoryError::Limit { limit: "FENCED_WRITES_MAX" })?;
        ours.checkpoint = Some(id);
        self.writes.insert(id, key);
        Ok(())
    }

    /// Gives a home up: it is not served from now on. [`HomeChange::Lost`] follows as soon as others can claim it.
    ///
    /// # Errors
    /// If this member does not serve it.
    pub fn release(&mut self, key: HomeKey, now: Time) -> Result<(), DirectoryError> {
        let fence = self.fence(key, now).ok_or(DirectoryError::NotServed)?;
        if let Some(ours) = self.ours.get_mut(&key) {
            ours.stage = Stage::Releasing(Release::new(key, fence));
        }
        self.busy.insert(key);
        Ok(())
    }

    /// Takes an event of the bus. Events of others are ignored.
    pub fn handle_event(&mut self, now: Time, event: &Event) {
        // A member that was stopped learns first that its time is over.
        self.end_lease(now);
        self.lease.handle_event(now, event);
        self.checkpoints.handle_event(event);
        self.follow_lease();
        match event {
            Event::Message(message) if message.subscription == self.options.subscription => self.take(now, message),
            Event::Changed { watch, key, revision, value } if *watch == self.options.watch => {
                if let Some(key) = HomeKey::read(key) {
                    self.unnamed.remove(&key);
                    self.see(now, key, *revision, value.as_ref());
                }
            }
            Event::Listed { watch } if *watch == self.options.watch => {
                for key in std::mem::take(&mut self.unnamed) {
                    self.see(now, key, Revision(0), None);
                }
            }
            Event::WatchFailed { watch } if *watch == self.options.watch => {
                self.unnamed = self.known.keys().copied().collect();
                self.try_again(now, Command::Watch { watch: *watch, pattern: homes_pattern() });
            }
            Event::Connected => self.arrivals.connect(now, true),
            Event::Disconnected => self.arrivals.connect(now, false),
            Event::Got { ticket, .. } | Event::Written { ticket, .. } | Event::Answer { ticket, .. } => {
                if let Some(key) = self.open.remove(ticket) {
                    self.advance(now, key, *ticket, event);
                }
            }
            _ => {}
        }
        self.end_writes();
    }

    /// Notices the end of the member's lease, and of moves to it whose sources are silent.
    pub fn handle_timeout(&mut self, now: Time) {
        self.end_lease(now);
        self.arrivals.sweep(now);
    }

    fn end_lease(&mut self, now: Time) {
        self.lease.handle_timeout(now);
        self.follow_lease();
    }

    /// The next change.
    pub fn poll_change(&mut self) -> Option<HomeChange> {
        self.changes.pop_front()
    }

    /// The next command for the bus.
    pub fn poll_command(&mut self, now: Time) -> Option<Command> {
        if now >= self.again_at {
            self.to_send.extend(self.refused.drain(..));
        }
        if let Some(command) = self.to_send.pop_front() {
            return Some(command);
        }
        if let Some(command) = self.lease.poll_command(now).or_else(|| self.checkpoints.poll_command()) {
            return Some(command);
        }
        for _ in 0..self.busy.len() {
            let last = self.polled.map_or(Unbounded, Excluded);
            let key = *self.busy.range((last, Unbounded)).next().or_else(|| self.busy.first())?;
            self.polled = Some(key);
            let ours = self.ours.get_mut(&key);
            if let Some(Ours { stage: Stage::Fencing, checkpoint: checkpoint @ None, fence, .. }) = ours {
                // Others have all the room: it is tried again in the next pass.
                let Some(id) = self.checkpoints.fence(key.state_subject(), *fence) else { continue };
                *checkpoint = Some(id);
                self.writes.insert(id, key);
                self.busy.remove(&key);
                match self.checkpoints.poll_command() {
                    None => continue,
                    command => return command,
                }
            }
            let command = match ours.map(|ours| &mut ours.stage) {
                Some(Stage::Claiming(claim)) => claim.poll_command(now, &mut self.tickets),
                Some(Stage::Leaving(departure)) => {
                    departure.poll_command(now, &mut self.tickets).or_else(|| departure.poll_hold(now))
                }
                Some(Stage::Releasing(release)) => release.poll_command(now, &mut self.tickets),
                _ => {
                    self.busy.remove(&key);
                    continue;
                }
            };
            if let Some(command) = command {
                if let Some(ticket) = ticket_of(&command) {
                    self.open.insert(ticket, key);
                }
                return Some(command);
            }
        }
        None
    }

    /// Says that the bus refused a command, and why: it is tried again where that matters.
    pub fn handle_refusal(&mut self, now: Time, command: &Command, error: CommandError) {
        let Some(ticket) = ticket_of(command) else {
            if matches!(command, Command::Subscribe { .. } | Command::Watch { .. }) {
                self.try_again(now, command.clone());
            }
            return;
        };
        if let Some(key) = self.open.remove(&ticket) {
            self.refuse(now, key);
        } else if command_is_lease(command, self.member) {
            self.lease.handle_refusal(now);
        } else {
            self.checkpoints.handle_refusal(command, error);
        }
        self.end_writes();
    }

    fn try_again(&mut self, now: Time, command: Command) {
        self.refused.push(command);
        self.again_at = now.after(RETRY_AFTER);
    }

    fn refuse(&mut self, now: Time, key: HomeKey) {
        let Some(ours) = self.ours.get_mut(&key) else { return };
        match &mut ours.stage {
            Stage::Claiming(claim) => claim.handle_refusal(now),
            Stage::Leaving(departure) => {
                if let Some(end) = departure.handle_refusal(now) {
                    self.end_departure(key, end);
                }
            }
            Stage::Releasing(release) => release.handle_refusal(now),
            Stage::Fencing | Stage::Serving => {}
        }
    }

    /// All homes of a term end with it.
    fn follow_lease(&mut self) {
        while let Some(change) = self.lease.poll_change() {
            let LeaseChange::Lost(term) = change else { continue };
            self.arrivals.clear();
            let lost: Vec<HomeKey> =
                self.ours.iter().filter(|(_, ours)| ours.term == term).map(|(key, _)| *key).collect();
            lost.into_iter().for_each(|key| self.lose(key));
        }
    }

    fn lose(&mut self, key: HomeKey) {
        if let Some(ours) = self.ours.remove(&key) {
            self.abandon(ours.checkpoint);
            self.changes.push_back(HomeChange::Lost { key });
        }
    }

    /// Nobody waits for the write of a home any more.
    fn abandon(&mut self, write: Option<WriteId>) {
        if let Some(id) = write {
            self.writes.remove(&id);
            self.checkpoints.abandon(id);
        }
    }

    /// A home whose entry is ours, and that cannot be served. Others can claim it when the entry is removed.
    fn give_up(&mut self, key: HomeKey) {
        if let Some(ours) = self.ours.get_mut(&key) {
            ours.stage = Stage::Releasing(Release::new(key, ours.fence));
            let write = ours.checkpoint.take();
            self.abandon(write);
            self.busy.insert(key);
        }
    }

    fn advance(&mut self, now: Time, key: HomeKey, ticket: Ticket, event: &Event) {
        let Some(ours) = self.ours.get_mut(&key) else { return };
        match &mut ours.stage {
            Stage::Claiming(claim) if claim.is_waiting_for(ticket) => {
                if let Some(end) = claim.handle_event(event) {
                    self.end_claim(key, end);
                }
            }
            Stage::Leaving(departure) if departure.is_waiting_for(ticket) => {
                if let Some(end) = departure.handle_event(now, event) {
                    self.end_departure(key, end);
                }
            }
            Stage::Releasing(release) => {
                let is_over = release.handle_answer(now, ticket, event);
                if is_over {
                    self.lose(key);
                }
            }
            _ => {}
        }
    }

    fn end_claim(&mut self, key: HomeKey, end: Claimed) {
        match end {
            Claimed::Refused(owner) => {
                self.ours.remove(&key);
                self.changes.push_back(HomeChange::Refused { key, owner });
            }
            Claimed::Arrived(home) => match self.arrivals.take(key, Some(&home)) {
                Some(state) => self.arrive(key, &home, state),
                // Its state has been taken before, or is gone: it begins with the checkpoint.
                None => {
                    if let Some(Stage::Claiming(claim)) = self.ours.get_mut(&key).map(|ours| &mut ours.stage) {
                        claim.replace(home.fence);
                    }
                }
            },
            Claimed::Ours(fence) => {
                let Some(ours) = self.ours.get_mut(&key) else { return };
                (ours.stage, ours.fence) = (Stage::Fencing, fence);
                self.busy.insert(key);
            }
        }
    }

    fn end_departure(&mut self, key: HomeKey, end: Departed) {
        let Some(ours) = self.ours.get_mut(&key) else { return };
        let Stage::Leaving(departure) = &ours.stage else { return };
        match end {
            Departed::Moved => {
                let (to, write) = (departure.to, ours.checkpoint);
                self.abandon(write);
                self.ours.remove(&key);
                self.changes.push_back(HomeChange::Moved { key, to });
            }
            Departed::Kept => {
                self.to_send.push_back(departure.abort());
                ours.stage = Stage::Serving;
                self.changes.push_back(HomeChange::Kept { key });
            }
            Departed::Lost => self.lose(key),
        }
    }

    /// Checkpoints that were written, and numbers that were put on them.
    fn end_writes(&mut self) {
        while let Some((id, result)) = self.checkpoints.poll_result() {
            let Some(key) = self.writes.remove(&id) else { continue };
            let Some(ours) = self.ours.get_mut(&key) else { continue };
            ours.checkpoint = None;
            let is_fencing = matches!(ours.stage, Stage::Fencing);
            match result {
                Ok(written) if is_fencing => {
                    ours.stage = Stage::Serving;
                    let (fence, checkpoint) = (ours.fence, written.content);
                    self.changes.push_back(HomeChange::Claimed { key, fence, checkpoint });
                }
                Ok(_) => self.changes.push_back(HomeChange::Checkpointed { key }),
                // A home that cannot begin or go on with its checkpoint is given up, whatever the reason.
                Err(FencedError::Old { .. } | FencedError::NotFenced) => self.give_up(key),
                Err(_) if is_fencing => self.give_up(key),
                Err(FencedError::TooLong { bytes, most }) => {
                    self.changes.push_back(HomeChange::CheckpointTooLong { key, bytes, most });
                }
                Err(_) => self.changes.push_back(HomeChange::NotCheckpointed { key }),
            }
        }
    }

    /// A message of a move.
    fn take(&mut self, now: Time, message: &Message) {
        let note = Note::read(&message.payload);
        let term = self.lease.fence(now);
        let is_taken = match (note, term) {
            (Some(note), Some(_)) => {
                let home = self.known.get(&note.key).copied();
                self.arrivals.handle(now, message, note, home.as_ref())
            }
            _ => false,
        };
        if let Some(to) = message.reply_to.clone() {
            let payload = answer(term.filter(|_| is_taken));
            self.to_send.push_back(Command::Reply { to, payload });
        }
    }

    /// An entry of the store, as it is now.
    fn see(&mut self, now: Time, key: HomeKey, revision: Revision, value: Option<&Bytes>) {
        let home = value.and_then(|value| Home::read(value, revision));
        match home {
            Some(home) => self.known.insert(key, home),
            None => self.known.remove(&key),
        };
        if let Some(ours) = self.ours.get(&key)
            && let Some(home) = home
            && (home.owner, home.term) != (self.member, ours.term)
            && home.fence > ours.fence
            && ours.stage.would_serve_on()
        {
            // Somebody took it. That needs a fault of that member, or of our clock, or a store that came back older.
            self.lose(key);
        }
        let state = self.arrivals.take(key, home.as_ref());
        if let (Some(state), Some(home)) = (state, home)
            && home.owner == self.member
            && self.lease.fence(now) == Some(home.term)
        {
            self.arrive(key, &home, state);
        }
    }

    /// The store says that the home is ours, and we have its state. A claim that is under way ends with that.
    fn arrive(&mut self, key: HomeKey, home: &Home, state: Bytes) {
        let (term, fence) = (home.term, home.fence);
        let former = self.ours.insert(key, Ours { term, fence, stage: Stage::Serving, checkpoint: None });
        self.abandon(former.and_then(|ours| ours.checkpoint));
        self.changes.push_back(HomeChange::Arrived { key, fence, state });
    }
}

fn homes_pattern() -> Pattern {
    Pattern::new("home.>").unwrap_or_else(|error| unreachable!("this is a pattern: {error}"))
}

fn ticket_of(command: &Command) -> Option<Ticket> {
    match command {
        Command::Get { ticket, .. }
        | Command::Put { ticket, .. }
        | Command::Delete { ticket, .. }
        | Command::Request { ticket, .. } => Some(*ticket),
        _ => None,
    }
}

fn command_is_lease(command: &Command, member: MemberId) -> bool {
    match command {
        Command::Get { key, .. } | Command::Put { key, .. } | Command::Delete { key, .. } => {
            *key == lease_subject(member)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use throng_bus::Entry;

    use super::*;

    const KEY: HomeKey = HomeKey::Channel(1);

    /// Answers the next command, a question for an entry.
    fn answer(directory: &mut Directory, entry: Option<Entry>) {
        let Some(Command::Get { ticket, .. }) = directory.poll_command(Time(1)) else { panic!("it asks") };
        directory.handle_event(Time(1), &Event::Got { ticket, result: Ok(entry) });
    }

    /// Its lease is over for everybody but the member, for example because the store came back older than it was.
    #[test]
    fn a_home_that_somebody_takes_while_its_state_is_sent_away_is_lost_at_once() {
        let mut directory = Directory::new(MemberId(1), DirectoryOptions::default());
        directory.handle_event(Time(1), &Event::Connected);
        let mut revision = 2;
        let mut settle = |directory: &mut Directory| {
            while let Some(command) = directory.poll_command(Time(1)) {
                revision += 1;
                let event = match command {
                    Command::Get { ticket, .. } => Event::Got { ticket, result: Ok(None) },
                    Command::Put { ticket, .. } => Event::Written { ticket, result: Ok(Revision(revision)) },
                    _ => continue,
                };
                directory.handle_event(Time(1), &event);
            }
        };
        settle(&mut directory);
        directory.claim(KEY, Time(1)).unwrap();
        settle(&mut directory);
        assert!(matches!(directory.poll_change(), Some(HomeChange::Claimed { .. })));
        directory.move_to(KEY, MemberId(2), Bytes::new(), Time(1)).unwrap();
        settle(&mut directory);
        let value = Some(Home::value(MemberId(3), Fence(40), 0));
        let (watch, key) = (DirectoryOptions::default().watch, KEY.home_subject());
        directory.handle_event(Time(1), &Event::Changed { watch, key, revision: Revision(41), value });
        assert_eq!(directory.poll_change(), Some(HomeChange::Lost { key: KEY }));
        assert_eq!(directory.fence(KEY, Time(1)), None);
    }

    #[test]
    fn a_home_that_is_claimed_again_and_again_waits_once_to_be_polled() {
        let mut directory = Directory::new(MemberId(1), DirectoryOptions::default());
        directory.handle_event(Time(1), &Event::Connected);
        let lease = std::iter::from_fn(|| directory.poll_command(Time(1))).find_map(|command| ticket_of(&command));
        let written = Event::Written { ticket: lease.unwrap(), result: Ok(Revision(3)) };
        directory.handle_event(Time(1), &written);
        // Another member has it: its entry, and its lease.
        let home = Entry { value: Home::value(MemberId(2), Fence(4), 0), revision: Revision(5) };
        let holder = [&[1][..], &2_u64.to_le_bytes(), &0_u64.to_le_bytes()].concat();
        let holder = Entry { value: holder.into(), revision: Revision(4) };
        for _ in 0..9 {
            directory.claim(KEY, Time(1)).unwrap();
            answer(&mut directory, Some(home.clone()));
            answer(&mut directory, Some(holder.clone()));
            let refused = HomeChange::Refused { key: KEY, owner: Some(MemberId(2)) };
            assert_eq!(directory.poll_change(), Some(refused));
            assert_eq!(directory.busy.len(), 1);
        }
        assert!(directory.poll_command(Time(1)).is_none() && directory.busy.is_empty());
    }
}
