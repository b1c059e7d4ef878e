//! A network of datagrams over the bus: servers and edges that cannot reach each other by UDP meet at the bus.
//!
//! ```text
//!  origin: Server -- BusDriver, port 1 --.                                          .-- BusDriver, port 1 -- Client --.
//!                                         >-- BusNetwork -- the bus -- BusNetwork --<                                  >-- edge
//!                                        '                                          '-- BusDriver, port 2 -- Client --'
//! ```
//!
//! A message has up to 64 datagrams of one transmit. Its subject is `world.NAME.link.RECEIVER.SENDER`, with both members as 16 hexadecimal
//! digits. The publisher that the envelope of the bus names has to be the sender, or the message is refused: so a bus that lets each member
//! publish on its own subjects only proves who has sent a datagram. The content, little endian:
//!
//! ```text
//! [port of the sender: u16][port of the receiver: u16][length: u16][datagrams, each of this length; the last may be shorter]
//! ```
//!
//! Such a network is no more trusted than any other one: whoever may publish on a subject can send anything there in the name of its
//! sender. The link above it has its keys, its handshake and its resends, as over UDP. `docs/edges.md` has the permissions of each process.

use std::net::{Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use rustc_hash::FxHashMap;
use throng::Time;
use throng::net::{
    Driver, DriverCounters, InFlight, InFlightLimit, MAX_DATAGRAM_BYTES, ReceiveError, SendError, Transmit,
};
use throng_bus::{Bus, Event, MemberId, Message, Subject, SubscriptionId};

use crate::roster::WorldName;

/// The upper half of the addresses of members: from the range that everybody may use without asking (RFC 4193).
const PREFIX: [u16; 4] = [0xFD74, 0x6872, 0x6F6E, 0x6700];
/// The two ports and the length.
const HEAD_BYTES: usize = 6;
/// Endpoints of one member at most.
const ENDPOINTS_MAX: usize = 4_096;
/// A call takes about as many datagrams from the bus at most, and hands over no more than this: others must have their turn.
const RECEIVE_LIMIT_DATAGRAMS: usize = 65_536;
/// Datagrams of one message at most.
const MAX_SEGMENTS: usize = 64;
/// All that may wait for one endpoint. Of one sender it is [`InFlightLimit::PEER`], so that none takes the room of the others.
const INBOX: InFlightLimit = InFlightLimit { datagrams: 65_536, bytes: 64 << 20 };
/// Members whose subjects are remembered.
const SUBJECTS_MAX: usize = 4_096;
/// The only subscription of the member.
const OWN: SubscriptionId = SubscriptionId(1);
/// The bus is asked again so long after it refused the subscription.
const SUBSCRIBE_AGAIN: Duration = Duration::from_millis(100);

/// The member's part of a network over the bus. A handle; clones share it.
///
/// The bus is for this network alone: nobody else takes its events. A process that also has a [`Balance`](crate::Balance) or a
/// [`BorderWatch`](crate::BorderWatch) joins the bus twice, with two numbers.
///
/// ```
/// use throng::Time;
/// use throng::net::{Driver, Transmit};
/// use throng_bus::{Limits, LocalHub, MemberId};
/// use throng_edge::{BusNetwork, WorldName};
///
/// let (hub, world, now) = (LocalHub::new(), WorldName::new("harbour")?, Time(0));
/// let here = BusNetwork::new(hub.join(MemberId(1), Limits::default()), &world);
/// let there = BusNetwork::new(hub.join(MemberId(2), Limits::default()), &world);
/// let (mut server, mut client) = (here.endpoint()?, there.endpoint()?);
/// // A member hears what was sent after its first look at the bus.
/// server.receive(now, &mut |_, _, _| {})?;
///
/// client.send(now, &Transmit::single(server.local_address(), b"hello"))?;
/// let mut arrived = Vec::new();
/// server.receive(now, &mut |_, from, bytes| arrived.push((from, bytes.to_vec())))?;
/// assert_eq!(arrived, [(client.local_address(), b"hello".to_vec())]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct BusNetwork<B> {
    shared: Arc<Mutex<Ports<B>>>,
}

/// One endpoint of a [`BusNetwork`]. Dropping it closes its port.
pub struct BusDriver<B> {
    network: BusNetwork<B>,
    local: SocketAddr,
    /// The datagram being delivered.
    scratch: Vec<u8>,
    counters: DriverCounters,
}

/// The counts of a network over the bus since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BusNetworkCounters {
    /// Messages that make no sense.
    pub refused: u64,
    /// Messages whose publisher is another member than the sender that their subject names.
    pub forged: u64,
    /// Datagrams for a port that nobody has.
    pub no_port: u64,
    /// Datagrams for an endpoint that takes too little: 4,096 of them, or 4 MiB, waited from the same sender, or 16 times as many from all.
    pub dropped: u64,
    /// Times that messages of another member were missing on the bus.
    pub gaps: u64,
    /// Times that the bus refused the subscription. It is tried again after 100 ms.
    pub subscriptions_refused: u64,
}

impl BusNetworkCounters {
    /// All counters with stable names, for metrics.
    pub fn named(&self) -> [(&'static str, u64); 6] {
        [
            ("refused", self.refused),
            ("forged", self.forged),
            ("no_port", self.no_port),
            ("dropped", self.dropped),
            ("gaps", self.gaps),
            ("subscriptions_refused", self.subscriptions_refused),
        ]
    }
}

/// Why an endpoint was not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a member of the bus has {ENDPOINTS_MAX} endpoints at most: drop one first")]
pub struct TooManyEndpoints;

impl TooManyEndpoints {
    /// A stable word for this error.
    pub fn tag(self) -> &'static str {
        "too_many_endpoints"
    }
}

struct Ports<B> {
    bus: B,
    world: WorldName,
    /// There has been a connection.
    was_connected: bool,
    is_subscribed: bool,
    /// A refused subscription is not tried again before.
    subscribes_at: Time,
    inboxes: FxHashMap<u16, Inbox>,
    /// Of members that were sent to.
    subjects: FxHashMap<MemberId, Subject>,
    /// The port that was opened last. One that was closed is not opened again soon: something may still be on its way to it.
    last_port: u16,
    counters: BusNetworkCounters,
}

/// The datagrams that wait for one endpoint.
struct Inbox {
    waiting: InFlight<(MemberId, u16)>,
    /// How many of them, and how many bytes, each sender has there.
    by_sender: FxHashMap<MemberId, (usize, usize)>,
}

impl Inbox {
    fn new() -> Inbox {
        Inbox { waiting: InFlight::new(INBOX), by_sender: FxHashMap::default() }
    }

    /// Returns false if there is no room.
    fn push(&mut self, now: Time, from: (MemberId, u16), datagram: &[u8]) -> bool {
        let (datagrams, bytes) = self.by_sender.get(&from.0).copied().unwrap_or_default();
        let InFlightLimit { datagrams: datagrams_max, bytes: bytes_max } = InFlightLimit::PEER;
        if datagrams >= datagrams_max || bytes + datagram.len() > bytes_max || !self.waiting.push(now, from, datagram) {
            return false;
        }
        self.by_sender.insert(from.0, (datagrams + 1, bytes + datagram.len()));
        true
    }

    /// Moves the next datagram into `contents`, and returns its arrival and its sender.
    fn pop(&mut self, now: Time, contents: &mut Vec<u8>) -> Option<(Time, (MemberId, u16))> {
        let arrival = self.waiting.pop(now)?;
        contents.clear();
        contents.extend_from_slice(arrival.bytes);
        let (at, from) = (arrival.at, arrival.tag);
        if let Some((datagrams, bytes)) = self.by_sender.get_mut(&from.0) {
            (*datagrams, *bytes) = (*datagrams - 1, *bytes - contents.len());
            if *datagrams == 0 {
                self.by_sender.remove(&from.0);
            }
        }
        Some((at, from))
    }
}

impl<B: Bus> BusNetwork<B> {
    /// The part of this member of the bus. The members of one network name the same world.
    pub fn new(bus: B, world: &WorldName) -> BusNetwork<B> {
        let ports = Ports {
            bus,
            world: world.clone(),
            was_connected: false,
            is_subscribed: false,
            subscribes_at: Time(0),
            inboxes: FxHashMap::default(),
            subjects: FxHashMap::default(),
            last_port: 0,
            counters: BusNetworkCounters::default(),
        };
        BusNetwork { shared: Arc::new(Mutex::new(ports)) }
    }

    /// Opens the next free port.
    ///
    /// # Errors
    /// The member has 4,096 endpoints.
    pub fn endpoint(&self) -> Result<BusDriver<B>, TooManyEndpoints> {
        let mut ports = self.lock();
        let port = ports.open()?;
        let local = address_on_bus(ports.bus.member(), port);
        drop(ports);
        Ok(BusDriver { network: self.clone(), local, scratch: Vec::new(), counters: DriverCounters::default() })
    }

    /// The counts so far.
    pub fn counters(&self) -> BusNetworkCounters {
        self.lock().counters
    }
}

impl<B> BusNetwork<B> {
    fn lock(&self) -> MutexGuard<'_, Ports<B>> {
        // A panic under the lock is one of the bus: its state is as whole as the bus keeps it.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<B> Clone for BusNetwork<B> {
    fn clone(&self) -> BusNetwork<B> {
        BusNetwork { shared: self.shared.clone() }
    }
}

impl<B: Bus> Ports<B> {
    fn open(&mut self) -> Result<u16, TooManyEndpoints> {
        if self.inboxes.len() >= ENDPOINTS_MAX {
            return Err(TooManyEndpoints);
        }
        loop {
            self.last_port = self.last_port.checked_add(1).unwrap_or(1);
            if !self.inboxes.contains_key(&self.last_port) {
                self.inboxes.insert(self.last_port, Inbox::new());
                return Ok(self.last_port);
            }
        }
    }

    /// Sends messages until the bus takes one not. Returns how many datagrams it took.
    fn publish(&mut self, now: Time, from_port: u16, to: (MemberId, u16), transmit: &Transmit<'_>) -> usize {
        let each = transmit.segment_bytes.min(transmit.bytes.len()).max(1);
        let subject = self.subject(to.0);
        let mut taken = 0;
        for datagrams in transmit.bytes.chunks(each * MAX_SEGMENTS) {
            let mut message = Vec::with_capacity(HEAD_BYTES + datagrams.len());
            for number in [from_port, to.1, each as u16] {
                message.extend_from_slice(&number.to_le_bytes());
            }
            message.extend_from_slice(datagrams);
            if self.bus.publish(now, &subject, Bytes::from(message)).is_err() {
                break;
            }
            taken += datagrams.len().div_ceil(each);
        }
        taken
    }

    fn subject(&mut self, member: MemberId) -> Subject {
        if self.subjects.len() >= SUBJECTS_MAX {
            self.subjects.clear();
        }
        let own = self.bus.member();
        self.subjects.entry(member).or_insert_with(|| self.world.link_subject(member, own)).clone()
    }

    /// Takes what the bus has, and sorts it by port.
    fn take(&mut self, now: Time) {
        self.bus.handle_timeout(now);
        let mut taken = 0;
        while taken < RECEIVE_LIMIT_DATAGRAMS
            && let Some(event) = self.bus.poll_event(now)
        {
            taken += 1;
            match event {
                Event::Connected => self.was_connected = true,
                Event::Message(message) => taken += self.sort(now, &message),
                Event::Gap(_) => self.counters.gaps += 1,
                // A bus that is away is a network that loses everything. The subscription stays.
                _ => {}
            }
        }
        self.subscribe(now);
    }

    fn subscribe(&mut self, now: Time) {
        if self.was_connected && !self.is_subscribed && now >= self.subscribes_at {
            let own = self.world.link_pattern(self.bus.member());
            self.is_subscribed = self.bus.subscribe(now, OWN, &own).is_ok();
            if !self.is_subscribed {
                self.counters.subscriptions_refused += 1;
                self.subscribes_at = now.after(SUBSCRIBE_AGAIN);
            }
        }
    }

    /// Puts the datagrams of a message into their inbox. Returns how many there were.
    fn sort(&mut self, now: Time, message: &Message) -> usize {
        if WorldName::link_sender(&message.subject) != Some(message.publisher) {
            self.counters.forged += 1;
            return 0;
        }
        let Some((from_port, to_port, datagrams)) = parts(&message.payload) else {
            self.counters.refused += 1;
            return 0;
        };
        let count = datagrams.len();
        let from = (message.publisher, from_port);
        match self.inboxes.get_mut(&to_port) {
            Some(inbox) => {
                let dropped = datagrams.filter(|datagram| !inbox.push(now, from, datagram)).count();
                self.counters.dropped += dropped as u64;
            }
            None => self.counters.no_port += count as u64,
        }
        count
    }
}

/// The ports and the datagrams of a message, if it is one.
fn parts(payload: &[u8]) -> Option<(u16, u16, std::slice::Chunks<'_, u8>)> {
    let (head, bytes) = payload.split_at_checked(HEAD_BYTES)?;
    let [from, to, each] = [0, 2, 4].map(|at| u16::from_le_bytes([head[at], head[at + 1]]));
    let length = usize::from(each);
    if from == 0 || !(1..=MAX_DATAGRAM_BYTES.min(bytes.len())).contains(&length) {
        return None;
    }
    let datagrams = bytes.chunks(length);
    (datagrams.len() <= MAX_SEGMENTS).then_some((from, to, datagrams))
}

/// The address of a port of a member of a [`BusNetwork`], as it stands in connect tokens and leases. The first endpoint of a member has
/// port 1.
pub fn address_on_bus(member: MemberId, port: u16) -> SocketAddr {
    let [a, b, c, d] = PREFIX;
    let [e, f, g, h] = [48, 32, 16, 0].map(|shift| (member.0 >> shift) as u16);
    (Ipv6Addr::new(a, b, c, d, e, f, g, h), port).into()
}

/// The member of an address, if it is one of this network.
fn member_of(address: SocketAddr) -> Option<MemberId> {
    let SocketAddr::V6(address) = address else { return None };
    let segments = address.ip().segments();
    let (prefix, member) = segments.split_at(PREFIX.len());
    let number = member.iter().fold(0, |number, &segment| number << 16 | u64::from(segment));
    (prefix == PREFIX).then_some(MemberId(number))
}

impl<B: Bus + Send> Driver for BusDriver<B> {
    /// Up to 64 datagrams are one message. The bus does not take them if it has no connection or no room: then they are dropped and counted as
    /// [`send_dropped`](DriverCounters::send_dropped). An address that is none of this network is refused.
    fn send(&mut self, now: Time, transmit: &Transmit<'_>) -> Result<usize, SendError> {
        transmit.check()?;
        self.counters.send_calls += 1;
        let datagrams = transmit.datagrams();
        let Some(member) = member_of(transmit.to) else {
            self.counters.bad_destination += datagrams as u64;
            return Err(SendError::BadDestination { to: transmit.to });
        };
        let to = (member, transmit.to.port());
        let taken = self.network.lock().publish(now, self.local.port(), to, transmit);
        self.counters.send_dropped += (datagrams - taken) as u64;
        self.counters.sent_datagrams += taken as u64;
        self.counters.sent_bytes += (taken * transmit.segment_bytes).min(transmit.bytes.len()) as u64;
        Ok(taken)
    }

    /// Delivers at most 65,536 datagrams per call. Those of other endpoints of the same member wait for their calls.
    fn receive(&mut self, now: Time, sink: &mut dyn FnMut(Time, SocketAddr, &mut [u8])) -> Result<usize, ReceiveError> {
        self.counters.receive_calls += 1;
        self.network.lock().take(now);
        for delivered in 0..RECEIVE_LIMIT_DATAGRAMS {
            let mut ports = self.network.lock();
            let inbox = ports.inboxes.get_mut(&self.local.port());
            let arrival = inbox.and_then(|inbox| inbox.pop(now, &mut self.scratch));
            let Some((arrived, (member, port))) = arrival else { return Ok(delivered) };
            // The sink may send through another endpoint.
            drop(ports);
            self.counters.received_datagrams += 1;
            self.counters.received_bytes += self.scratch.len() as u64;
            sink(arrived, address_on_bus(member, port), &mut self.scratch);
        }
        self.counters.receive_limited += 1;
        Ok(RECEIVE_LIMIT_DATAGRAMS)
    }

    fn local_address(&self) -> SocketAddr {
        self.local
    }

    fn max_segments(&self) -> usize {
        MAX_SEGMENTS
    }

    fn counters(&self) -> &DriverCounters {
        &self.counters
    }
}

impl<B> Drop for BusDriver<B> {
    fn drop(&mut self) {
        self.network.lock().inboxes.remove(&self.local.port());
    }
}

#[cfg(test)]
mod tests {
    use throng_bus::{Command, CommandError, Counters};

    use super::*;

    #[test]
    fn an_address_names_its_member_and_others_name_none() {
        for number in [0, 1, 0xFFFF, 0x0123_4567_89AB_CDEF, u64::MAX] {
            let address = address_on_bus(MemberId(number), 7);
            assert_eq!((member_of(address), address.port()), (Some(MemberId(number)), 7));
        }
        assert_eq!(address_on_bus(MemberId(0x1_0002), 9).to_string(), "[fd74:6872:6f6e:6700::1:2]:9");
        for other in ["127.0.0.1:7", "[::1]:7", "[fd74:6872:6f6e:6701::1]:7"] {
            assert_eq!(member_of(other.parse().unwrap()), None, "{other}");
        }
    }

    #[test]
    fn a_message_that_makes_no_sense_has_no_parts() {
        let whole = [1, 0, 2, 0, 3, 0, 7, 7, 7, 8, 8];
        let (from, to, datagrams) = parts(&whole).unwrap();
        assert_eq!((from, to, datagrams.collect::<Vec<_>>()), (1, 2, vec![&[7, 7, 7][..], &[8, 8]]));
        assert!((0..9).all(|bytes| parts(&whole[..bytes]).is_none()), "shorter than one datagram");
        assert!(parts(&[0, 0, 2, 0, 3, 0, 7, 7, 7]).is_none(), "a sender that cannot be answered");
        assert!(parts(&[1, 0, 2, 0, 0, 0, 7, 7, 7]).is_none(), "no length");
        let of = |datagrams: usize| [&[1, 0, 2, 0, 2, 0][..], &vec![7; 2 * datagrams - 1]].concat();
        assert_eq!((parts(&of(64)).map(|parts| parts.2.len()), parts(&of(65)).is_none()), (Some(64), true));
        let long = [&[1, 0, 2, 0, 0xFF, 0xFF][..], &[7; 65_535]].concat();
        assert!(parts(&long).is_none(), "longer than a datagram can be");
    }

    /// A bus with a connection that refuses the first subscriptions.
    struct Refusing {
        refusals: u32,
        subscriptions: u32,
        events: Vec<Event>,
    }

    impl Bus for Refusing {
        fn handle_command(&mut self, _: Time, command: Command) -> Result<(), CommandError> {
            if matches!(command, Command::Subscribe { .. }) {
                self.refusals = self.refusals.checked_sub(1).map_or(Ok(0), |left| {
                    self.refusals = left;
                    Err(CommandError::Limit { limit: "outgoing" })
                })?;
                self.subscriptions += 1;
            }
            Ok(())
        }

        fn handle_timeout(&mut self, _: Time) {}

        fn poll_event(&mut self, _: Time) -> Option<Event> {
            self.events.pop()
        }

        fn member(&self) -> MemberId {
            MemberId(1)
        }

        fn counters(&self) -> Counters {
            Counters::default()
        }
    }

    #[test]
    fn a_member_whose_subscription_was_refused_subscribes_again_and_then_no_more() {
        let bus = Refusing { refusals: 2, subscriptions: 0, events: Vec::new() };
        let network = BusNetwork::new(bus, &WorldName::new("w").unwrap());
        network.lock().take(Time(0));
        assert_eq!(network.lock().bus.refusals, 2, "there is no connection yet");
        network.lock().bus.events.push(Event::Connected);
        for (ms, left) in [(0, 1), (99, 1), (100, 0), (199, 0)] {
            network.lock().take(Time::from_millis(ms));
            let ports = network.lock();
            assert_eq!((ports.bus.refusals, ports.bus.subscriptions), (left, 0), "{ms} ms");
        }
        (200..400).for_each(|ms| network.lock().take(Time::from_millis(ms)));
        assert_eq!(
            network.counters(),
            BusNetworkCounters { subscriptions_refused: 2, ..BusNetworkCounters::default() }
        );
        assert_eq!(network.lock().bus.subscriptions, 1);
    }
}
