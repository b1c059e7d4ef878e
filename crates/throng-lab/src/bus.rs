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
//!
//! Lines are never lost one by one. If the middle cannot tell a process something, it tells nothing more until that process knows: it
//! begins its connection [anew](Down::Anew). A process that hears nothing for a while takes its connection for lost.

mod middle;
mod proxy;
mod workers;

use std::fmt::Display;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use throng::Time;
use throng::net::Driver;
use throng_bus::endpoint::{Endpoint, Outgoing};
use throng_bus::{
    Bus, Command, CommandError, Counters, Entry, Event, Expect, Limits, MemberId, RequestError, Revision, StoreError,
    Subject, SubscriptionId, Ticket, WatchId,
};
#[cfg(feature = "nats")]
use throng_bus_nats::{NatsBus, NatsOptions};
use throng_edge::{BusNetworkCounters, WorldName, WorldProblem};
use throng_machine::clock;
use throng_report::ArgumentError;

use crate::cut::Cut;
pub(crate) use middle::Middle;
#[cfg(test)]
use middle::MiddleCounters;
pub(crate) use workers::{Registration, WorkersOnBus};

/// The middle says something to each process at least this often.
const BEAT_EVERY: Duration = Duration::from_millis(500);
/// A process that has listened for so long and has heard nothing has lost its connection.
const SILENCE: Duration = Duration::from_secs(3);
/// From one look at the lines to the next, a process has listened so long at most. One that stood still has not listened, and its first
/// look may come before the thread of its pipe has passed on what waits there.
const LISTENED_AT_ONCE: Duration = Duration::from_millis(500);

/// Lines that are taken at once: more than a pipe holds.
const LINES_MAX: usize = 65_536;

/// Which bus a process of a run is on.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct BusOrder {
    /// The member of the bus.
    pub(crate) member: u64,
    /// The name of the run's world.
    pub(crate) world: String,
    /// Addresses of NATS; `None`: standard input and output.
    pub(crate) nats: Option<String>,
    /// Whether servers and edges send each other everything over NATS, and have no UDP between them.
    pub(crate) carries_links: bool,
    /// Whether a fault of the run cuts the network of a process. Connections to NATS go through a proxy then.
    pub(crate) is_cut: bool,
}

/// A process joins the bus a second time for its links, with its number and this bit. No run has so many processes.
const LINKS: u64 = 0x8000;

impl BusOrder {
    /// For another process of the same run.
    pub(crate) fn of(&self, number: u64) -> BusOrder {
        BusOrder { member: self.member + number, ..self.clone() }
    }
}

/// How a process of a run reaches the bus, by a network that can be cut.
pub(crate) struct Access {
    order: BusOrder,
    pub(crate) cut: Cut,
    /// The network of its links, if they go over the bus.
    links: Option<LinkNetwork>,
}

/// A network over the bus, whatever the bus is.
struct LinkNetwork {
    open: Box<dyn Fn() -> Result<Box<dyn Driver>> + Send>,
    counters: Box<dyn Fn() -> BusNetworkCounters + Send>,
}

impl LinkNetwork {
    /// A line of what was lost or refused, if that is anything.
    pub(crate) fn line(&self) -> Option<String> {
        let some = (self.counters)().named().into_iter().filter(|(_, count)| *count > 0);
        let words: Vec<String> = some.map(|(name, count)| format!("{name} {count}")).collect();
        (!words.is_empty()).then(|| format!("links over the bus: {}", words.join(", ")))
    }
}

impl Access {
    /// # Errors
    /// The addresses of NATS are none, or no socket can be had, or links go over a nats-server that is not there or does not fit.
    pub(crate) fn new(order: &BusOrder, cut: &Cut) -> Result<Access> {
        let nats = match &order.nats {
            Some(servers) if order.is_cut => Some(proxy::proxied(servers, cut)?),
            nats => nats.clone(),
        };
        let order = BusOrder { nats, ..order.clone() };
        let links = links(&order)?;
        Ok(Access { order, cut: cut.clone(), links })
    }

    /// The end of the process: over NATS, or over lines that go out by `say` and come in by `lines`.
    ///
    /// # Errors
    /// The nats-server is not there, or does not fit.
    pub(crate) fn open(&self, say: Box<dyn FnMut(Up) + Send>, lines: Receiver<Down>) -> Result<Box<dyn Bus + Send>> {
        match &self.order.nats {
            None => Ok(Box::new(BusEnd::new(MemberId(self.order.member), (say, lines), &self.cut))),
            Some(servers) => over_nats(servers, self.order.member),
        }
    }

    /// A new endpoint of the links of the process; `None` if they do not go over the bus.
    ///
    /// # Errors
    /// The process has too many.
    pub(crate) fn endpoint(&self) -> Result<Option<Box<dyn Driver>>> {
        self.links.as_ref().map(|links| (links.open)()).transpose()
    }

    /// A line of what the links over the bus have lost or refused, if that is anything.
    pub(crate) fn line(&self) -> Option<String> {
        self.links.as_ref().and_then(LinkNetwork::line)
    }
}

/// The id of the lab's cluster: all runs at a nats-server share one.
#[cfg(feature = "nats")]
const NATS_CLUSTER: u64 = 0x7468_726F_6E67_6C62;

#[cfg(feature = "nats")]
fn join_nats(servers: &str, member: u64, limits: Limits) -> Result<NatsBus> {
    let cluster = throng_bus::Cluster::new("throng-lab", NATS_CLUSTER)?;
    let options = NatsOptions::new(servers, cluster, MemberId(member));
    // The error names the addresses as they were given, with their passwords.
    let shown = |error: throng_bus_nats::StartError| {
        let told = error.to_string().replace(servers, &throng_machine::masked_servers(servers));
        anyhow::Error::from(ArgumentError(told))
    };
    let note = |line: &str| eprintln!("the bus cannot be used: {line}");
    NatsBus::start(NatsOptions { creates: true, limits, note, ..options }).map_err(shown)
}

#[cfg(feature = "nats")]
fn over_nats(servers: &str, member: u64) -> Result<Box<dyn Bus + Send>> {
    Ok(Box::new(join_nats(servers, member, Limits::default())?))
}

#[cfg(feature = "nats")]
fn network(servers: &str, member: u64, world: &WorldName) -> Result<LinkNetwork> {
    // A datagram that has waited for long is of no use to a link: it has been sent again.
    let limits = Limits { outgoing: 1_024, waiting_events: 4_096, waiting_bytes: 16 << 20, ..Limits::default() };
    let network = throng_edge::BusNetwork::new(join_nats(servers, member, limits)?, world);
    let counted = network.clone();
    let open = Box::new(move || Ok(Box::new(network.endpoint()?) as Box<dyn Driver>));
    Ok(LinkNetwork { open, counters: Box::new(move || counted.counters()) })
}

#[cfg(not(feature = "nats"))]
fn over_nats(servers: &str, _: u64) -> Result<Box<dyn Bus + Send>> {
    Err(without_nats(servers))
}

#[cfg(not(feature = "nats"))]
fn network(servers: &str, _: u64, _: &WorldName) -> Result<LinkNetwork> {
    Err(without_nats(servers))
}

#[cfg(not(feature = "nats"))]
fn without_nats(servers: &str) -> anyhow::Error {
    let servers = throng_machine::masked_servers(servers);
    let words = format!("cannot use {servers}: this program was built without NATS; build it with --features nats");
    ArgumentError(words).into()
}

fn links(order: &BusOrder) -> Result<Option<LinkNetwork>> {
    let Some(servers) = order.nats.as_ref().filter(|_| order.carries_links) else { return Ok(None) };
    network(servers, order.member | LINKS, &WorldName::new(&order.world)?).map(Some)
}

/// Says why borders do not follow the servers, if that is news.
pub(crate) fn tell_problem(who: impl Display, before: Option<WorldProblem>, now: Option<WorldProblem>) {
    if let Some(problem) = now.filter(|problem| Some(*problem) != before) {
        eprintln!("{who}: {problem}");
    }
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
    Delivery {
        subscription: u32,
        subject: String,
        bytes: Vec<u8>,
    },
    Entry {
        watch: u32,
        listing: u32,
        key: String,
        revision: u64,
        value: Option<Vec<u8>>,
    },
    Listed {
        watch: u32,
        listing: u32,
    },
    Unwatched {
        watch: u32,
        listing: u32,
    },
    Got {
        ticket: u64,
        entry: Result<Option<(u64, Vec<u8>)>, Failure>,
    },
    Written {
        ticket: u64,
        revision: Result<u64, Failure>,
    },
    /// Something was not told: the connection begins anew.
    Anew,
    /// The connection is there.
    Beat,
}

/// Why an operation of the store has no result.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Failure {
    Refused,
    Full,
    /// Also if the middle does not take the operation.
    Unknown,
}

impl Failure {
    fn of(error: StoreError) -> Failure {
        match error {
            StoreError::Refused => Failure::Refused,
            StoreError::Full => Failure::Full,
            _ => Failure::Unknown,
        }
    }

    fn error(self) -> StoreError {
        match self {
            Failure::Refused => StoreError::Refused,
            Failure::Full => StoreError::Full,
            Failure::Unknown => StoreError::Unknown,
        }
    }
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

    /// The answer if it cannot be carried out, to one that has an answer.
    fn refusal(&self) -> Option<Down> {
        match *self {
            Up::Get { ticket, .. } => Some(Down::Got { ticket, entry: Err(Failure::Unknown) }),
            Up::Put { ticket, .. } | Up::Delete { ticket, .. } => {
                Some(Down::Written { ticket, revision: Err(Failure::Unknown) })
            }
            Up::Watch { watch, listing, .. } => Some(Down::Unwatched { watch, listing }),
            Up::Publish { .. } | Up::Subscribe { .. } | Up::Unsubscribe { .. } | Up::Unwatch { .. } => None,
        }
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
    /// The last look at the lines.
    looked: Time,
    /// It has listened for so long since it heard something.
    silence: Duration,
    /// While its network is cut, everything is lost that is sent or comes.
    cut: Cut,
    was_cut: bool,
}

impl BusEnd {
    fn new(member: MemberId, (say, lines): (Box<dyn FnMut(Up) + Send>, Receiver<Down>), cut: &Cut) -> BusEnd {
        let mut endpoint = Endpoint::new(member, Limits::default());
        let looked = clock::now();
        endpoint.handle_connected(looked);
        BusEnd { endpoint, say, lines, looked, silence: Duration::ZERO, cut: cut.clone(), was_cut: false }
    }

    fn send(&mut self) {
        while let Some(packet) = self.endpoint.poll_outgoing() {
            let request = match &packet {
                Outgoing::Request { ticket, .. } => Some(*ticket),
                _ => None,
            };
            match Up::of(packet) {
                Some(up) if !self.cut.is_cut() => (self.say)(up),
                _ => {}
            }
            if let Some(ticket) = request {
                self.endpoint.handle_answer(ticket, Err(RequestError::NobodyListens));
            }
        }
    }

    fn take(&mut self, now: Time, down: Down) {
        self.silence = Duration::ZERO;
        let endpoint = &mut self.endpoint;
        if down == Down::Anew {
            endpoint.handle_disconnected();
        }
        if !endpoint.is_connected() {
            endpoint.handle_connected(now);
        }
        match down {
            Down::Delivery { subscription, subject, bytes } => {
                endpoint.handle_delivery(SubscriptionId(subscription), &subject, &bytes.into(), None);
            }
            Down::Entry { watch, listing, key, revision, value } => {
                endpoint.handle_entry(WatchId(watch), listing, &key, Revision(revision), value.map(Into::into));
            }
            Down::Listed { watch, listing } => endpoint.handle_listed(WatchId(watch), listing),
            Down::Unwatched { watch, listing } => endpoint.handle_refused_watch(WatchId(watch), listing),
            Down::Anew | Down::Beat => {}
            Down::Got { ticket, entry } => {
                let entry_of =
                    |(revision, value): (u64, Vec<u8>)| Entry { value: value.into(), revision: Revision(revision) };
                let result = entry.map(|entry| entry.map(entry_of)).map_err(Failure::error);
                endpoint.handle_result(Event::Got { ticket: Ticket(ticket), result });
            }
            Down::Written { ticket, revision } => {
                let result = revision.map(Revision).map_err(Failure::error);
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
        let looked = std::mem::replace(&mut self.looked, now);
        self.silence = self.silence.saturating_add(now.since(looked).min(LISTENED_AT_ONCE));
        let is_cut = self.cut.is_cut();
        if std::mem::replace(&mut self.was_cut, is_cut) && !is_cut {
            // After a cut, the connection is a new one, and lines of before are lost. A longer one is noticed before its end, by the silence.
            self.lines.try_iter().take(LINES_MAX).for_each(drop);
            self.silence = Duration::ZERO;
            self.endpoint.handle_disconnected();
            self.endpoint.handle_connected(now);
        }
        for _ in 0..LINES_MAX {
            let Ok(down) = self.lines.try_recv() else { break };
            if !is_cut {
                self.take(now, down);
            }
        }
        // After all that has come: a process that stood still has lost nothing.
        if self.silence > SILENCE {
            self.endpoint.handle_disconnected();
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc::{TrySendError, channel, sync_channel};

    use throng_bus::envelope::{Envelope, Kind};
    use throng_bus::{Lease, LeaseOptions, Pattern, Sequence};
    use throng_machine::piped::Unsaid;

    use super::*;
    use crate::control::bus_line;

    /// An end over lines, as another process has it. So many of them wait at most.
    fn end_with(middle: &Middle, member: u64, most: usize) -> BusEnd {
        let (to_end, lines) = sync_channel(most);
        middle.join(
            member,
            Box::new(move |down| {
                let line = bus_line(&down).unwrap();
                let read: Down = serde_json::from_str(line.strip_prefix("bus ").unwrap()).unwrap();
                assert_eq!(read, down);
                to_end.try_send(read).map_err(|error| match error {
                    TrySendError::Full(_) => Unsaid::Full,
                    TrySendError::Disconnected(_) => Unsaid::Gone,
                })
            }),
        );
        let middle = middle.clone();
        let say = move |up: Up| {
            let read: Up = serde_json::from_str(&serde_json::to_string(&up).unwrap()).unwrap();
            assert_eq!(read, up);
            middle.hear(member, read);
        };
        BusEnd::new(MemberId(member), (Box::new(say), lines), &Cut::default())
    }

    fn end(middle: &Middle, member: u64) -> BusEnd {
        end_with(middle, member, 10_000)
    }

    /// Until the middle has counted so.
    fn counted(middle: &Middle, wanted: impl Fn(MiddleCounters) -> bool) -> MiddleCounters {
        let end = clock::now().after(Duration::from_secs(10));
        while !wanted(middle.counters()) {
            assert!(clock::now() < end, "{:?}", middle.counters());
            std::thread::sleep(Duration::from_millis(1));
        }
        middle.counters()
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
        second.cut.set(true);
        first.publish(clock::now(), &subject, "nobody hears this".into()).unwrap();
        let (ticket, value) = (Ticket(77), "x".into());
        let put = Command::Put { ticket, key: subject.clone(), value, expect: Expect::Absent, lives_for: None };
        first.handle_command(clock::now(), put).unwrap();
        until(&mut first, |event| matches!(event, Event::Written { ticket: Ticket(77), .. }));
        std::thread::sleep(Duration::from_millis(20));
        second.handle_timeout(clock::now());
        second.cut.set(false);
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
        assert_eq!(middle.counters(), MiddleCounters::default());
    }

    /// It has not read for so long that lines found no room: it learns that, and knows all that there is afterwards.
    #[test]
    fn a_member_whose_lines_are_lost_begins_its_connection_anew() {
        let middle = Middle::start().unwrap();
        let (mut first, mut second) = (end(&middle, 1), end_with(&middle, 2, 8));
        watch(&mut second, "a.*");
        let pattern = Pattern::new("a.word").unwrap();
        second.subscribe(clock::now(), SubscriptionId(4), &pattern).unwrap();
        until(&mut second, |event| matches!(event, Event::Listed { .. }));
        let question = Command::Get { ticket: Ticket(5), key: Subject::new("a.key").unwrap() };
        for number in 0..50 {
            first.publish(clock::now(), &Subject::new("a.word").unwrap(), "x".into()).unwrap();
            let (ticket, key) = (Ticket(number), Subject::new("a.key").unwrap());
            let put = Command::Put { ticket, key, value: "x".into(), expect: Expect::Anything, lives_for: None };
            first.handle_command(clock::now(), put).unwrap();
        }
        until(&mut first, |event| matches!(event, Event::Written { ticket: Ticket(49), .. }));
        counted(&middle, |counters| counters.lost > 0);
        second.handle_command(clock::now(), question).unwrap();
        // In any order.
        let mut events = until(&mut second, |event| *event == Event::Disconnected);
        for _ in 0..2 {
            events.extend(until(&mut second, |event| matches!(event, Event::Listed { .. } | Event::Gap(_))));
        }
        let unknown = Event::Got { ticket: Ticket(5), result: Err(StoreError::Unknown) };
        assert!(events.contains(&Event::Connected) && events.contains(&unknown), "{events:?}");
        let newest = |event: &Event| match event {
            Event::Changed { revision, .. } => Some(*revision),
            _ => None,
        };
        assert_eq!(events.iter().filter_map(newest).max(), Some(Revision(50)), "{events:?}");
        assert!(events.iter().any(|event| matches!(event, Event::Gap(_))), "{events:?}");
        let MiddleCounters { lost, refused, forged, .. } = counted(&middle, |counters| counters.anew > 0);
        assert!(lost > 0 && (refused, forged) == (0, 0), "{:?}", middle.counters());
        assert!(middle.counters().line().unwrap().contains("began anew"));
    }

    #[test]
    fn every_question_has_an_answer_and_nobody_speaks_in_the_name_of_another() {
        let middle = Middle::start().unwrap();
        let (to_end, lines) = channel();
        middle.join(1, Box::new(move |down| to_end.send(down).map_err(|_| Unsaid::Gone)));
        let expect = Expected::Anything;
        let (key, name) = ("a.key".to_owned(), "no name".to_owned());
        middle.hear(1, Up::Get { ticket: 1, key: name.clone() });
        middle.hear(1, Up::Put { ticket: 2, key: key.clone(), value: Vec::new(), expect, lives_s: Some(0) });
        middle.hear(1, Up::Delete { ticket: 3, key: name.clone(), expect });
        middle.hear(1, Up::Watch { watch: 4, pattern: "no pattern".to_owned(), listing: 9 });
        middle.hear(1, Up::Subscribe { subscription: 5, pattern: key.clone() });
        let envelope = |publisher| {
            let kind = Kind::Tip { sequence: Sequence(1) };
            Envelope { publisher: MemberId(publisher), kind, payload: Vec::new().into() }.encode().to_vec()
        };
        for bytes in [envelope(2), vec![7; 40], envelope(1)] {
            middle.hear(1, Up::Publish { subject: key.clone(), bytes });
        }
        let (mut heard, end) = (Vec::new(), clock::now().after(Duration::from_secs(10)));
        while heard.len() < 5 && clock::now() < end {
            heard.extend(lines.recv_timeout(Duration::from_secs(1)).ok().filter(|down| *down != Down::Beat));
        }
        let unknown = Failure::Unknown;
        let answers = [
            Down::Got { ticket: 1, entry: Err(unknown) },
            Down::Written { ticket: 2, revision: Err(unknown) },
            Down::Written { ticket: 3, revision: Err(unknown) },
            Down::Unwatched { watch: 4, listing: 9 },
            Down::Delivery { subscription: 5, subject: key, bytes: envelope(1) },
        ];
        assert_eq!(heard, answers);
        assert_eq!(middle.counters(), MiddleCounters { refused: 6, forged: 1, ..MiddleCounters::default() });
    }

    #[test]
    fn words_of_a_process_that_is_not_joined_yet_are_bounded_and_their_loss_is_told() {
        let middle = Middle::start().unwrap();
        let subscribe = |subscription| Up::Subscribe { subscription, pattern: "a.*".to_owned() };
        (0..1_030).for_each(|number| middle.hear(1, subscribe(number)));
        counted(&middle, |counters| counters.lost == 6);
        let (to_end, lines) = channel();
        middle.join(1, Box::new(move |down| to_end.send(down).map_err(|_| Unsaid::Gone)));
        assert_eq!(lines.recv_timeout(Duration::from_secs(10)), Ok(Down::Anew));
        let told = counted(&middle, |counters| counters.anew > 0);
        assert_eq!(told, MiddleCounters { lost: 6, anew: 1, ..MiddleCounters::default() });
    }

    /// The first member answers each word with the next one, so words always wait for the middle. The second member still learns that it has
    /// lost one.
    #[test]
    fn ends_are_looked_at_while_words_keep_coming() {
        let middle = Middle::start().unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        let (has_ended, mut talks) = (is_over.clone(), Some(middle.clone()));
        let kind = Kind::Tip { sequence: Sequence(1) };
        let bytes = Envelope { publisher: MemberId(1), kind, payload: Vec::new().into() }.encode().to_vec();
        let word = Up::Publish { subject: "a.word".to_owned(), bytes };
        let next = word.clone();
        let talk = move |down| {
            if has_ended.load(Ordering::Relaxed) {
                talks = None;
            }
            if let (Down::Delivery { .. }, Some(middle)) = (down, &talks) {
                middle.hear(1, next.clone());
            }
            Ok(())
        };
        let ((told, anew), mut is_full) = (channel(), true);
        let listen = move |down| match down {
            Down::Delivery { .. } if std::mem::take(&mut is_full) => Err(Unsaid::Full),
            Down::Anew => told.send(()).map_err(|_| Unsaid::Gone),
            _ => Ok(()),
        };
        middle.join(1, Box::new(talk));
        middle.join(2, Box::new(listen));
        for member in [2, 1] {
            middle.hear(member, Up::Subscribe { subscription: 1, pattern: "a.*".to_owned() });
        }
        middle.hear(1, word);
        let is_told = anew.recv_timeout(Duration::from_secs(10));
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(is_told, Ok(()));
    }

    #[test]
    fn words_that_wait_for_the_middle_are_bounded_and_their_loss_is_told() {
        let middle = Middle::start().unwrap();
        let ((go_on, gate), (told, heard), (begun, stands)) = (channel::<()>(), channel(), channel());
        let tell = move |down| {
            // The middle stands still in its first word to the member.
            let _ = begun.send(());
            let _ = gate.recv_timeout(Duration::from_secs(10));
            told.send(down).map_err(|_| Unsaid::Gone)
        };
        middle.join(1, Box::new(tell));
        middle.hear(1, Up::Get { ticket: 1, key: "no name".to_owned() });
        stands.recv_timeout(Duration::from_secs(10)).unwrap();
        let subscribe = |subscription| Up::Subscribe { subscription, pattern: "a.*".to_owned() };
        (0..middle::NOTES_MAX as u32 + 3).for_each(|number| middle.hear(1, subscribe(number)));
        assert_eq!(middle.counters().lost, 3);
        drop(go_on);
        let answer = Down::Got { ticket: 1, entry: Err(Failure::Unknown) };
        let words = [(); 2].map(|()| heard.recv_timeout(Duration::from_secs(10)).unwrap());
        assert_eq!(words, [answer, Down::Anew]);
    }

    /// A cut that nobody tells of is noticed by the silence, and its end by the next word.
    #[test]
    fn a_member_that_hears_nothing_has_lost_its_connection_until_it_hears_something() {
        let (to_middle, said) = channel();
        let (to_end, lines) = channel();
        let mut bus =
            BusEnd::new(MemberId(1), (Box::new(move |up| to_middle.send(up).unwrap()), lines), &Cut::default());
        watch(&mut bus, "a.*");
        let begin = clock::now();
        let events = |bus: &mut BusEnd, now: Time| {
            bus.handle_timeout(now);
            std::iter::from_fn(|| bus.poll_event(now)).collect::<Vec<_>>()
        };
        assert_eq!(events(&mut bus, begin), [Event::Connected]);
        to_end.send(Down::Beat).unwrap();
        let at = |ms| begin.after(Duration::from_millis(ms));
        assert_eq!(events(&mut bus, at(2_000)), []);
        for ms in (2_100..=5_000).step_by(100) {
            assert_eq!(events(&mut bus, at(ms)), [], "{ms}");
        }
        bus.cut.set(true);
        to_end.send(Down::Beat).unwrap();
        assert_eq!(events(&mut bus, at(5_001)), [Event::Disconnected]);
        // A line of before the end of the cut is lost with it.
        to_end.send(Down::Anew).unwrap();
        bus.cut.set(false);
        assert_eq!(said.try_iter().count(), 1);
        to_end.send(Down::Beat).unwrap();
        assert_eq!(events(&mut bus, at(6_000)), [Event::Connected]);
        let watching = Up::Watch { watch: 3, pattern: "a.*".to_owned(), listing: 2 };
        assert_eq!(said.try_iter().collect::<Vec<_>>(), [watching]);
        // A process that stood still has lost nothing, even if it finds what came meanwhile only at its second look.
        assert_eq!(events(&mut bus, at(60_000)), []);
        to_end.send(Down::Beat).unwrap();
        assert_eq!(events(&mut bus, at(60_001)), []);
        // One that looks seldom notices the silence too.
        let lost = (61_000..=70_000).step_by(1_000).find(|ms| !events(&mut bus, at(*ms)).is_empty());
        assert_eq!(lost, Some(67_000));
    }
}
