//! The bus between the processes of a run: servers hold leases on it, report their load, and agree on borders.
//!
//! ```text
//!  first server: BusEnd --.                                    .-- lines of standard input and output -- BusEnd: an edge
//!                          >--  Middle, a thread of the run  --<
//!                         '      store, subscriptions          '-- lines of standard input and output -- BusEnd: a server
//! ```
//!
//! So a run on one machine needs no other program. With [`BusOrder::Nats`] each process connects to a nats-server instead. Requests are
//! not carried: nothing in a run asks.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::time::Duration;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use throng::Time;
use throng_bus::endpoint::{Endpoint, Outgoing};
use throng_bus::{
    Bus, Command, CommandError, Counters, Entry, Event, Expect, Limits, LocalBus, LocalHub, MemberId, Pattern,
    RequestError, Revision, StoreError, Subject, SubscriptionId, Ticket, WatchId,
};
#[cfg(feature = "nats")]
use throng_bus_nats::{NatsBus, NatsOptions};
use throng_machine::clock;

/// The middle looks this often for what has come to its end by itself.
const OFTEN: Duration = Duration::from_millis(5);

/// Which bus a process of a run is on.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct BusOrder {
    /// The member of the bus.
    pub(crate) member: u64,
    /// The name of the run's world.
    pub(crate) world: String,
    /// Addresses of NATS; `None`: standard input and output.
    pub(crate) nats: Option<String>,
}

impl BusOrder {
    /// For another process of the same run.
    pub(crate) fn of(&self, number: u64) -> BusOrder {
        BusOrder { member: self.member + number, ..self.clone() }
    }
}

/// The end of a process: over NATS, or over lines that go out by `say` and come in by `lines`.
///
/// # Errors
/// The nats-server is not there, or does not fit.
pub(crate) fn open(
    order: &BusOrder,
    say: Box<dyn FnMut(Up) + Send>,
    lines: Receiver<Down>,
) -> Result<Box<dyn WorldBus>> {
    match &order.nats {
        None => Ok(Box::new(BusEnd::new(MemberId(order.member), say, lines))),
        Some(servers) => over_nats(order, servers),
    }
}

/// A bus whose network can be cut.
pub(crate) trait WorldBus: Bus + Send {
    /// While it is cut, everything is lost that is sent or comes.
    fn cut(&mut self, is_cut: bool);
}

/// The id of the lab's cluster: all runs at a nats-server share one.
#[cfg(feature = "nats")]
const NATS_CLUSTER: u64 = 0x7468_726F_6E67_6C62;

#[cfg(feature = "nats")]
impl WorldBus for NatsBus {
    /// The run refuses such faults.
    fn cut(&mut self, _: bool) {}
}

#[cfg(feature = "nats")]
fn over_nats(order: &BusOrder, servers: &str) -> Result<Box<dyn WorldBus>> {
    let cluster = throng_bus::Cluster::new("throng-lab", NATS_CLUSTER)?;
    let options = NatsOptions::new(servers, cluster, MemberId(order.member));
    Ok(Box::new(NatsBus::start(NatsOptions { creates: true, ..options })?))
}

#[cfg(not(feature = "nats"))]
fn over_nats(_: &BusOrder, servers: &str) -> Result<Box<dyn WorldBus>> {
    anyhow::bail!("cannot use {servers}: this program was built without NATS; build it with --features nats")
}

/// A member sends this to the middle. Bytes of messages are envelopes of the bus.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Up {
    Publish { subject: String, bytes: Vec<u8> },
    Subscribe { subscription: u32, pattern: String },
    Unsubscribe { subscription: u32 },
    Watch { watch: u32, pattern: String, listing: u32 },
    Unwatch { watch: u32 },
    Get { ticket: u64, key: String },
    Put { ticket: u64, key: String, value: Vec<u8>, expect: Expected, lives_s: Option<u64> },
    Delete { ticket: u64, key: String, expect: Expected },
}

/// The state that an entry must have.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Expected {
    Anything,
    Absent,
    Revision(u64),
}

/// The middle sends this to a member.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Down {
    Delivery { subscription: u32, subject: String, bytes: Vec<u8> },
    Entry { watch: u32, listing: u32, key: String, revision: u64, value: Option<Vec<u8>> },
    Listed { watch: u32, listing: u32 },
    Got { ticket: u64, entry: Option<(u64, Vec<u8>)> },
    Written { ticket: u64, revision: Result<u64, bool> },
}

impl Up {
    /// `None` of a request, which the middle does not carry.
    fn of(packet: Outgoing) -> Option<Up> {
        let text = |name: &Subject| name.as_str().to_owned();
        Some(match packet {
            Outgoing::Publish { subject, bytes } => Up::Publish { subject: text(&subject), bytes: bytes.to_vec() },
            Outgoing::Subscribe { subscription, pattern } => {
                Up::Subscribe { subscription: subscription.0, pattern: pattern.as_str().to_owned() }
            }
            Outgoing::Unsubscribe { subscription } => Up::Unsubscribe { subscription: subscription.0 },
            Outgoing::Watch { watch, pattern, listing } => {
                Up::Watch { watch: watch.0, pattern: pattern.as_str().to_owned(), listing }
            }
            Outgoing::Unwatch { watch } => Up::Unwatch { watch: watch.0 },
            Outgoing::Store(Command::Get { ticket, key }) => Up::Get { ticket: ticket.0, key: text(&key) },
            Outgoing::Store(Command::Put { ticket, key, value, expect, lives_for }) => Up::Put {
                ticket: ticket.0,
                key: text(&key),
                value: value.to_vec(),
                expect: Expected::of(expect),
                lives_s: lives_for.map(|life| life.as_secs()),
            },
            Outgoing::Store(Command::Delete { ticket, key, expect }) => {
                Up::Delete { ticket: ticket.0, key: text(&key), expect: Expected::of(expect) }
            }
            _ => return None,
        })
    }
}

impl Expected {
    fn of(expect: Expect) -> Expected {
        match expect {
            Expect::Anything => Expected::Anything,
            Expect::Absent => Expected::Absent,
            Expect::Revision(revision) => Expected::Revision(revision.0),
        }
    }

    fn expect(self) -> Expect {
        match self {
            Expected::Anything => Expect::Anything,
            Expected::Absent => Expect::Absent,
            Expected::Revision(revision) => Expect::Revision(Revision(revision)),
        }
    }
}

/// The end of one process.
struct BusEnd {
    endpoint: Endpoint,
    say: Box<dyn FnMut(Up) + Send>,
    lines: Receiver<Down>,
    is_cut: bool,
}

impl BusEnd {
    fn new(member: MemberId, say: Box<dyn FnMut(Up) + Send>, lines: Receiver<Down>) -> BusEnd {
        let mut endpoint = Endpoint::new(member, Limits::default());
        endpoint.handle_connected(clock::now());
        BusEnd { endpoint, say, lines, is_cut: false }
    }

    fn send(&mut self) {
        while let Some(packet) = self.endpoint.poll_outgoing() {
            let request = match &packet {
                Outgoing::Request { ticket, .. } => Some(*ticket),
                _ => None,
            };
            match Up::of(packet) {
                Some(up) if !self.is_cut => (self.say)(up),
                _ => {}
            }
            if let Some(ticket) = request {
                self.endpoint.handle_answer(ticket, Err(RequestError::NobodyListens));
            }
        }
    }

    fn take(&mut self, down: Down) {
        let endpoint = &mut self.endpoint;
        match down {
            Down::Delivery { subscription, subject, bytes } => {
                endpoint.handle_delivery(SubscriptionId(subscription), &subject, &bytes.into(), None);
            }
            Down::Entry { watch, listing, key, revision, value } => {
                endpoint.handle_entry(WatchId(watch), listing, &key, Revision(revision), value.map(Into::into));
            }
            Down::Listed { watch, listing } => endpoint.handle_listed(WatchId(watch), listing),
            Down::Got { ticket, entry } => {
                let entry = entry.map(|(revision, value)| Entry { value: value.into(), revision: Revision(revision) });
                endpoint.handle_result(Event::Got { ticket: Ticket(ticket), result: Ok(entry) });
            }
            Down::Written { ticket, revision } => {
                let error = |is_full| if is_full { StoreError::Full } else { StoreError::Refused };
                let result = revision.map(Revision).map_err(error);
                endpoint.handle_result(Event::Written { ticket: Ticket(ticket), result });
            }
        }
    }
}

impl Bus for BusEnd {
    fn handle_command(&mut self, now: Time, command: Command) -> Result<(), CommandError> {
        let result = self.endpoint.handle_command(now, command);
        self.send();
        result
    }

    fn handle_timeout(&mut self, now: Time) {
        while let Ok(down) = self.lines.try_recv() {
            if !self.is_cut {
                self.take(down);
            }
        }
        self.endpoint.handle_timeout(now);
        self.send();
    }

    fn poll_event(&mut self, _: Time) -> Option<Event> {
        self.endpoint.poll_event()
    }

    fn member(&self) -> MemberId {
        self.endpoint.member()
    }

    fn counters(&self) -> Counters {
        self.endpoint.counters()
    }
}

impl WorldBus for BusEnd {
    /// After a cut, the connection is a new one.
    fn cut(&mut self, is_cut: bool) {
        if std::mem::replace(&mut self.is_cut, is_cut) && !is_cut {
            self.endpoint.handle_disconnected();
            self.endpoint.handle_connected(clock::now());
            self.send();
        }
    }
}

/// The thread between all ends. It ends when nobody can say anything to it any more.
#[derive(Clone)]
pub(crate) struct Middle(Sender<Note>);

enum Note {
    Join(MemberId, Tell),
    Up(MemberId, Up),
}

/// Tells a member something. It is lost if the process has ended.
type Tell = Box<dyn FnMut(Down) + Send>;

impl Middle {
    pub(crate) fn start() -> std::io::Result<Middle> {
        let (sender, notes) = std::sync::mpsc::channel();
        std::thread::Builder::new().name("throng-bus".to_owned()).spawn(move || Ends::default().run(&notes))?;
        Ok(Middle(sender))
    }

    /// Adds a member. `tell` carries the middle's words to it.
    pub(crate) fn join(&self, member: u64, tell: Tell) {
        // The thread is there as long as this is.
        let _ = self.0.send(Note::Join(MemberId(member), tell));
    }

    /// A member has said something.
    pub(crate) fn hear(&self, member: u64, up: Up) {
        let _ = self.0.send(Note::Up(MemberId(member), up));
    }
}

#[derive(Default)]
struct Ends {
    hub: LocalHub,
    ends: BTreeMap<MemberId, End>,
    /// The words of processes that were not joined yet.
    early: Vec<(MemberId, Up)>,
}

/// Most words that wait for their member to be joined.
const EARLY_MAX: usize = 1_024;

/// A member: its operations of the store and its watches are those of a member of a bus in process.
struct End {
    tell: Tell,
    bus: LocalBus,
    subscriptions: BTreeMap<u32, Pattern>,
    /// The number of the listing of each watch.
    listings: BTreeMap<u32, u32>,
}

impl Ends {
    fn run(mut self, notes: &Receiver<Note>) {
        loop {
            match notes.recv_timeout(OFTEN) {
                Ok(note) => self.take(note),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            // All that has come counts before anything ends by its time.
            loop {
                match notes.try_recv() {
                    Ok(note) => self.take(note),
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => return,
                }
            }
            self.ends.values_mut().for_each(End::pass_on);
        }
    }

    fn take(&mut self, note: Note) {
        match note {
            Note::Join(member, tell) => {
                let bus = self.hub.join(member, Limits::default());
                let (subscriptions, listings) = (BTreeMap::new(), BTreeMap::new());
                self.ends.insert(member, End { tell, bus, subscriptions, listings });
                for (member, up) in std::mem::take(&mut self.early) {
                    self.take(Note::Up(member, up));
                }
            }
            Note::Up(member, up) if !self.ends.contains_key(&member) => {
                if self.early.len() < EARLY_MAX {
                    self.early.push((member, up));
                }
            }
            Note::Up(_, Up::Publish { subject, bytes }) => {
                let Ok(subject) = Subject::new(&subject) else { return };
                for end in self.ends.values_mut() {
                    end.deliver(&subject, &bytes);
                }
            }
            Note::Up(member, up) => {
                if let Some(end) = self.ends.get_mut(&member) {
                    end.take(up);
                }
            }
        }
    }
}

impl End {
    fn deliver(&mut self, subject: &Subject, bytes: &[u8]) {
        for (&subscription, _) in self.subscriptions.iter().filter(|(_, pattern)| pattern.matches(subject)) {
            let (subject, bytes) = (subject.as_str().to_owned(), bytes.to_vec());
            (self.tell)(Down::Delivery { subscription, subject, bytes });
        }
    }

    /// Names that are none, and operations that the store does not take, have no answer.
    fn take(&mut self, up: Up) {
        let command = match up {
            Up::Publish { .. } => return,
            Up::Subscribe { subscription, pattern } => {
                self.subscriptions.extend(Pattern::new(&pattern).ok().map(|pattern| (subscription, pattern)));
                return;
            }
            Up::Unsubscribe { subscription } => {
                self.subscriptions.remove(&subscription);
                return;
            }
            Up::Watch { watch, pattern, listing } => {
                let Ok(pattern) = Pattern::new(&pattern) else { return };
                if self.listings.contains_key(&watch) {
                    self.operate(Command::Unwatch { watch: WatchId(watch) });
                    // All that was told of the former listing is not of this one.
                    self.pass_on();
                }
                self.listings.insert(watch, listing);
                Command::Watch { watch: WatchId(watch), pattern }
            }
            Up::Unwatch { watch } => {
                self.listings.remove(&watch);
                Command::Unwatch { watch: WatchId(watch) }
            }
            Up::Get { ticket, key } => {
                let Ok(key) = Subject::new(&key) else { return };
                Command::Get { ticket: Ticket(ticket), key }
            }
            Up::Put { ticket, key, value, expect, lives_s } => {
                let Ok(key) = Subject::new(&key) else { return };
                let (ticket, expect) = (Ticket(ticket), expect.expect());
                Command::Put { ticket, key, value: value.into(), expect, lives_for: lives_s.map(Duration::from_secs) }
            }
            Up::Delete { ticket, key, expect } => {
                let Ok(key) = Subject::new(&key) else { return };
                Command::Delete { ticket: Ticket(ticket), key, expect: expect.expect() }
            }
        };
        self.operate(command);
    }

    fn operate(&mut self, command: Command) {
        // The members of a run keep to the limits.
        let _ = self.bus.handle_command(clock::now(), command);
    }

    fn pass_on(&mut self) {
        let now = clock::now();
        self.bus.handle_timeout(now);
        while let Some(event) = self.bus.poll_event(now) {
            let down = match event {
                Event::Got { ticket, result } => {
                    let entry = result.ok().flatten().map(|entry| (entry.revision.0, entry.value.to_vec()));
                    Down::Got { ticket: ticket.0, entry }
                }
                Event::Written { ticket, result } => {
                    let revision = result.map(|revision| revision.0).map_err(|error| error == StoreError::Full);
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
            (self.tell)(down);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use throng_bus::{Lease, LeaseOptions};

    use super::*;
    use crate::control::bus_line;

    /// An end over lines, as another process has it.
    fn end(middle: &Middle, member: u64) -> BusEnd {
        let (to_end, lines) = channel();
        middle.join(
            member,
            Box::new(move |down| {
                let line = bus_line(&down).unwrap();
                let read: Down = serde_json::from_str(line.strip_prefix("bus ").unwrap()).unwrap();
                assert_eq!(read, down);
                drop(to_end.send(read));
            }),
        );
        let middle = middle.clone();
        let say = move |up: Up| {
            let read: Up = serde_json::from_str(&serde_json::to_string(&up).unwrap()).unwrap();
            assert_eq!(read, up);
            middle.hear(member, read);
        };
        BusEnd::new(MemberId(member), Box::new(say), lines)
    }

    /// The events of an end until one is wanted.
    fn until(bus: &mut BusEnd, wanted: impl Fn(&Event) -> bool) -> Vec<Event> {
        let mut events = Vec::new();
        let end = clock::now().after(Duration::from_secs(10));
        loop {
            assert!(clock::now() < end, "it has not come: {events:?}");
            bus.handle_timeout(clock::now());
            while let Some(event) = bus.poll_event(clock::now()) {
                let is_it = wanted(&event);
                events.push(event);
                if is_it {
                    return events;
                }
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn watch(bus: &mut BusEnd, pattern: &str) {
        let pattern = Pattern::new(pattern).unwrap();
        bus.handle_command(clock::now(), Command::Watch { watch: WatchId(3), pattern }).unwrap();
    }

    #[test]
    fn messages_leases_and_watches_pass_the_middle_and_a_cut_is_a_new_connection() {
        let middle = Middle::start().unwrap();
        let [mut first, mut second] = [1, 2].map(|member| end(&middle, member));
        let (key, subject) = (Subject::new("a.lease").unwrap(), Subject::new("a.word").unwrap());
        watch(&mut second, "a.*");
        let pattern = Pattern::new("a.word").unwrap();
        second.subscribe(clock::now(), SubscriptionId(4), &pattern).unwrap();
        until(&mut second, |event| matches!(event, Event::Listed { .. }));
        let mut lease = Lease::new(key.clone(), MemberId(1), "note".into(), LeaseOptions::default(), 1);
        lease.handle_event(clock::now(), &Event::Connected);
        first.handle_command(clock::now(), lease.poll_command(clock::now()).unwrap()).unwrap();
        let written = until(&mut first, |event| matches!(event, Event::Written { .. }));
        written.iter().for_each(|event| lease.handle_event(clock::now(), event));
        assert!(lease.fence(clock::now()).is_some());
        until(&mut second, |event| matches!(event, Event::Changed { key: changed, .. } if *changed == key));
        first.publish(clock::now(), &subject, "three bears".into()).unwrap();
        let is_word = |event: &Event| matches!(event, Event::Message(message) if message.payload == "three bears");
        until(&mut second, is_word);
        // While it is cut off, it misses messages. Afterwards it learns of the gap, and gets the listing again.
        second.cut(true);
        first.publish(clock::now(), &subject, "nobody hears this".into()).unwrap();
        let (ticket, value) = (Ticket(77), "x".into());
        let put = Command::Put { ticket, key: subject.clone(), value, expect: Expect::Absent, lives_for: None };
        first.handle_command(clock::now(), put).unwrap();
        until(&mut first, |event| matches!(event, Event::Written { ticket: Ticket(77), .. }));
        std::thread::sleep(Duration::from_millis(20));
        second.handle_timeout(clock::now());
        second.cut(false);
        let mut events = Vec::new();
        // In any order.
        for _ in 0..2 {
            events.extend(until(&mut second, |event| matches!(event, Event::Listed { .. } | Event::Gap(_))));
        }
        let has = |wanted: fn(&Event) -> bool| events.iter().any(wanted);
        assert!(has(|event| *event == Event::Disconnected) && has(|event| *event == Event::Connected), "{events:?}");
        assert!(has(|event| matches!(event, Event::Gap(_))) && !has(|event| matches!(event, Event::Message(_))));
        let is_put = |event: &Event| matches!(event, Event::Changed { key, .. } if key.as_str() == "a.word");
        assert!(events.iter().any(is_put), "{events:?}");
        // A question has an answer: nobody listens.
        let ask =
            Command::Request { ticket: Ticket(9), subject, payload: "?".into(), patience: Duration::from_secs(1) };
        first.handle_command(clock::now(), ask).unwrap();
        let unheard = Event::Answer { ticket: Ticket(9), result: Err(RequestError::NobodyListens) };
        until(&mut first, |event| *event == unheard);
    }
}
