//! A member with a directory and a small application: homes hold a log of numbered messages, and senders repeat a message until
//! it is acknowledged.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use throng_bus::sim::{SimBus, SimNet};
use throng_bus::{
    Bus, Command, CommandError, Event, Fence, Limits, MemberId, Message, Pattern, ReplyTo, Subject, SubscriptionId,
    Tickets,
};
use throng_directory::{Directory, DirectoryOptions, HomeChange, HomeKey};
use throng_wire::Time;

const INBOX: SubscriptionId = SubscriptionId(1);

/// A message: its sender, and its number among those of the sender to this home.
pub(crate) type Entry = (u64, u64);

/// The application's state of one home.
#[derive(Default)]
pub(crate) struct App {
    pub(crate) log: Vec<Entry>,
    /// Answers that wait for a checkpoint, and those that wait for the one under way.
    replies: Vec<ReplyTo>,
    covered: Vec<ReplyTo>,
    is_writing: bool,
    pub(crate) is_frozen: bool,
}

/// A message that waits for its acknowledgement.
struct Pending {
    number: u64,
    is_asked: bool,
}

pub(crate) struct Node {
    pub(crate) bus: SimBus,
    pub(crate) directory: Directory,
    pub(crate) apps: BTreeMap<HomeKey, App>,
    /// Whether messages are acknowledged only when a checkpoint holds them.
    is_durable: bool,
    tickets: Tickets,
    asked: BTreeMap<throng_bus::Ticket, HomeKey>,
    pending: BTreeMap<HomeKey, Pending>,
    next: BTreeMap<HomeKey, u64>,
    pub(crate) acknowledged: BTreeSet<(HomeKey, Entry)>,
    pub(crate) moved: u64,
    pub(crate) kept: u64,
    pub(crate) lost: u64,
    pub(crate) too_long: u64,
    pub(crate) has_had_term: bool,
    pub(crate) claimed: Vec<(HomeKey, Fence)>,
    /// The bus has no room for operations on this entry.
    pub(crate) refused: Option<Subject>,
    /// The store does not answer operations on this entry.
    pub(crate) unanswered: Option<Subject>,
}

fn key_of(command: &Command) -> Option<&Subject> {
    match command {
        Command::Get { key, .. } | Command::Put { key, .. } | Command::Delete { key, .. } => Some(key),
        _ => None,
    }
}

fn inbox(member: MemberId) -> Subject {
    Subject::new(&format!("inbox.{member}")).expect("a name")
}

pub(crate) fn encode(log: &[Entry], padding: usize) -> Bytes {
    let mut bytes = (log.len() as u64).to_le_bytes().to_vec();
    bytes.extend(log.iter().flat_map(|(sender, number)| [sender.to_le_bytes(), number.to_le_bytes()].concat()));
    bytes.extend(vec![7; padding]);
    bytes.into()
}

pub(crate) fn decode(bytes: &[u8]) -> Vec<Entry> {
    let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("it was encoded here"));
    let count = if bytes.is_empty() { 0 } else { number(0) as usize };
    (0..count).map(|index| (number(8 + 16 * index), number(16 + 16 * index))).collect()
}

impl Node {
    pub(crate) fn new(net: &SimNet, id: u64, is_durable: bool) -> Node {
        Node::with_limits(net, id, is_durable, Limits::default())
    }

    pub(crate) fn with_limits(net: &SimNet, id: u64, is_durable: bool, limits: Limits) -> Node {
        let mut bus = net.join(MemberId(id), limits);
        let now = bus.clock();
        bus.subscribe(now, INBOX, &Pattern::from(&inbox(MemberId(id)))).expect("there is room");
        Node {
            bus,
            directory: Directory::new(MemberId(id), DirectoryOptions::default()),
            apps: BTreeMap::new(),
            is_durable,
            tickets: Tickets::new(1),
            asked: BTreeMap::new(),
            pending: BTreeMap::new(),
            next: BTreeMap::new(),
            acknowledged: BTreeSet::new(),
            moved: 0,
            kept: 0,
            lost: 0,
            too_long: 0,
            has_had_term: false,
            claimed: Vec::new(),
            refused: None,
            unanswered: None,
        }
    }

    pub(crate) fn now(&self) -> Time {
        self.bus.clock()
    }

    pub(crate) fn serves(&self, key: HomeKey) -> Option<Fence> {
        self.directory.fence(key, self.now())
    }

    /// One pass of a member's loop.
    pub(crate) fn run(&mut self) {
        let now = self.now();
        self.bus.handle_timeout(now);
        while let Some(event) = self.bus.poll_event(now) {
            self.directory.handle_event(now, &event);
            self.follow();
            match event {
                Event::Message(message) if message.subscription == INBOX => self.take(now, message),
                Event::Answer { ticket, result } => self.end_message(ticket, result.is_ok()),
                _ => {}
            }
        }
        self.directory.handle_timeout(now);
        self.has_had_term |= self.directory.term(now).is_some();
        self.follow();
        self.write_checkpoints(now);
        self.send_messages(now);
        while let Some(command) = self.directory.poll_command(now) {
            if self.unanswered.is_some() && key_of(&command) == self.unanswered.as_ref() {
                continue;
            }
            let is_full = self.refused.is_some() && key_of(&command) == self.refused.as_ref();
            let full = is_full.then_some(CommandError::Limit { limit: "open_tickets" });
            if let Err(error) = full.map_or_else(|| self.bus.handle_command(now, command.clone()), Err) {
                self.directory.handle_refusal(now, &command, error);
            }
        }
    }

    pub(crate) fn claim(&mut self, key: HomeKey) {
        let now = self.now();
        let _ = self.directory.claim(key, now);
    }

    pub(crate) fn move_to(&mut self, key: HomeKey, to: MemberId, padding: usize) {
        let now = self.now();
        if let Some(app) = self.apps.get_mut(&key)
            && self.directory.move_to(key, to, encode(&app.log, padding), now).is_ok()
        {
            app.is_frozen = true;
        }
    }

    pub(crate) fn release(&mut self, key: HomeKey) {
        let now = self.now();
        let _ = self.directory.release(key, now);
    }

    /// Begins to send the next message to a home, unless one waits.
    pub(crate) fn send(&mut self, key: HomeKey) {
        let next = self.next.entry(key).or_default();
        self.pending.entry(key).or_insert_with(|| {
            *next += 1;
            Pending { number: *next, is_asked: false }
        });
    }

    pub(crate) fn is_waiting(&self) -> bool {
        !self.pending.is_empty()
    }

    fn follow(&mut self) {
        while let Some(change) = self.directory.poll_change() {
            match change {
                HomeChange::Claimed { key, checkpoint, fence } => {
                    self.apps.insert(key, App { log: decode(&checkpoint), ..App::default() });
                    self.claimed.push((key, fence));
                }
                HomeChange::Arrived { key, state, fence } => {
                    self.apps.insert(key, App { log: decode(&state), ..App::default() });
                    self.claimed.push((key, fence));
                }
                HomeChange::Moved { key, .. } => {
                    self.apps.remove(&key);
                    self.moved += 1;
                }
                HomeChange::Lost { key } => {
                    self.apps.remove(&key);
                    self.lost += 1;
                }
                HomeChange::Kept { key } => {
                    self.kept += 1;
                    if let Some(app) = self.apps.get_mut(&key) {
                        app.is_frozen = false;
                    }
                }
                HomeChange::Checkpointed { key } => self.acknowledge(key),
                HomeChange::CheckpointTooLong { .. } => self.too_long += 1,
                HomeChange::NotCheckpointed { key } => {
                    if let Some(app) = self.apps.get_mut(&key) {
                        app.is_writing = false;
                        let covered = std::mem::take(&mut app.covered);
                        app.replies.extend(covered);
                    }
                }
                _ => {}
            }
        }
    }

    fn acknowledge(&mut self, key: HomeKey) {
        let now = self.now();
        let Some(app) = self.apps.get_mut(&key) else { return };
        app.is_writing = false;
        for to in std::mem::take(&mut app.covered) {
            let _ = self.bus.handle_command(now, Command::Reply { to, payload: Bytes::new() });
        }
    }

    /// A message for a home: applied once, and only while we serve it.
    fn take(&mut self, now: Time, message: Message) {
        let Some(to) = message.reply_to else { return };
        let number = u64::from_le_bytes(message.payload[..8].try_into().expect("it was written here"));
        let name = std::str::from_utf8(&message.payload[8..]).expect("it was written here");
        let key = HomeKey::read(&Subject::new(name).expect("a name")).expect("a key");
        if self.directory.fence(key, now).is_none() {
            return;
        }
        let Some(app) = self.apps.get_mut(&key).filter(|app| !app.is_frozen) else { return };
        let sender = message.publisher.0;
        let newest = app.log.iter().filter(|(other, _)| *other == sender).map(|(_, number)| *number).max();
        if newest.is_none_or(|newest| number > newest) {
            app.log.push((sender, number));
        }
        if self.is_durable {
            app.replies.push(to);
        } else {
            let _ = self.bus.handle_command(now, Command::Reply { to, payload: Bytes::new() });
        }
    }

    fn write_checkpoints(&mut self, now: Time) {
        for (&key, app) in &mut self.apps {
            if app.replies.is_empty() || app.is_writing {
                continue;
            }
            if self.directory.checkpoint(key, encode(&app.log, 0), now).is_ok() {
                app.is_writing = true;
                app.covered = std::mem::take(&mut app.replies);
            }
        }
    }

    fn send_messages(&mut self, now: Time) {
        for (&key, pending) in self.pending.iter_mut().filter(|(_, pending)| !pending.is_asked) {
            let Some(home) = self.directory.home(key) else { continue };
            let mut payload = pending.number.to_le_bytes().to_vec();
            payload.extend(key.home_subject().as_str().as_bytes());
            let ticket = self.tickets.issue();
            let (subject, patience) = (inbox(home.owner), Duration::from_secs(4));
            let ask = Command::Request { ticket, subject, payload: payload.into(), patience };
            if self.bus.handle_command(now, ask).is_ok() {
                self.asked.insert(ticket, key);
                pending.is_asked = true;
            }
        }
    }

    fn end_message(&mut self, ticket: throng_bus::Ticket, is_acknowledged: bool) {
        let Some(key) = self.asked.remove(&ticket) else { return };
        if is_acknowledged {
            let number = self.pending.remove(&key).map_or(0, |pending| pending.number);
            self.acknowledged.insert((key, (self.bus.member().0, number)));
        } else if let Some(pending) = self.pending.get_mut(&key) {
            pending.is_asked = false;
        }
    }
}
