//! Messages arrive in order, none twice, and none is missing without a gap: in any storm, for thousands of seeds. The oracle
//! knows what was published, and reads what was delivered; it knows nothing of numbers or envelopes.

use std::collections::BTreeMap;
use std::time::Duration;

use throng_bus::endpoint::{Endpoint, Outgoing};
use throng_bus::sim::{SimBus, SimNet, Weather};
use throng_bus::{Bus, Command, Event, Gap, Limits, MemberId, Message, Missing, Subject, SubscriptionId};
use throng_wire::Time;

use crate::{pattern, subject};

const SUBJECTS: u64 = 3;

/// One publisher's messages on one subject, at one subscriber.
#[derive(Default)]
struct Stream {
    delivered: u64,
    has_gap: bool,
}

/// The events of one subscriber.
struct Reader {
    streams: BTreeMap<(MemberId, Subject), Stream>,
    told: u64,
    gaps: u64,
}

impl Reader {
    /// It knows all streams: a gap anywhere is one in each of them.
    fn new() -> Reader {
        let streams = (1..=3).flat_map(|id| (0..SUBJECTS).map(move |topic| (MemberId(id), topic)));
        let streams = streams.map(|(id, topic)| ((id, subject(&format!("news.{topic}"))), Stream::default()));
        Reader { streams: streams.collect(), told: 0, gaps: 0 }
    }

    fn handle(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::Message(Message { publisher, subject, payload, .. }) => {
                let number = u64::from_le_bytes(payload[..8].try_into().expect("the oracle's own payload"));
                let stream = self.streams.entry((publisher, subject.clone())).or_default();
                if number <= stream.delivered {
                    return Err(format!("{publisher:?} {subject}: {number} came after {}", stream.delivered));
                }
                if number != stream.delivered + 1 && !stream.has_gap {
                    return Err(format!("{publisher:?} {subject}: {number} after {} without a gap", stream.delivered));
                }
                (stream.delivered, stream.has_gap) = (number, false);
                self.told += 1;
            }
            Event::Gap(Gap { missing: Missing::Of { subject, publisher, .. }, .. }) => {
                self.streams.entry((publisher, subject)).or_default().has_gap = true;
                self.gaps += 1;
            }
            Event::Gap(Gap { missing: Missing::Anywhere, .. }) => {
                self.streams.values_mut().for_each(|stream| stream.has_gap = true);
                self.gaps += 1;
            }
            _ => {}
        }
        Ok(())
    }
}

struct Storm {
    rng: fastrand::Rng,
    net: SimNet,
    members: Vec<SimBus>,
    readers: Vec<Reader>,
    published: BTreeMap<(MemberId, Subject), u64>,
    is_up: bool,
}

impl Storm {
    fn new(seed: u64) -> Storm {
        let mut rng = fastrand::Rng::with_seed(seed);
        // A member that forgets numbers takes a second delivery for a first one, so nothing comes twice there.
        let remembered_subjects = [3, 5, 20][rng.usize(0..3)];
        let weather = Weather {
            twice: if remembered_subjects < 9 { 0.0 } else { rng.f64() * 0.2 },
            lost: rng.f64() * 0.1,
            delay: Duration::from_micros(100)..Duration::from_millis(rng.u64(1..60)),
            drift_ppm: 5_000,
            ..Weather::default()
        };
        let net = SimNet::new(seed, weather);
        // Some members are slow: they hold few events.
        let waiting_events = if rng.bool() { 8 } else { 10_000 };
        let limits = Limits { waiting_events, remembered_subjects, ..Limits::default() };
        let mut members: Vec<SimBus> = (1..=3).map(|id| net.join(MemberId(id), limits.clone())).collect();
        for bus in &mut members {
            let now = bus.clock();
            bus.subscribe(now, SubscriptionId(7), &pattern("news.*")).expect("there is room");
        }
        net.pass(Duration::from_millis(500));
        let readers = members.iter().map(|_| Reader::new()).collect();
        Storm { rng, net, members, readers, published: BTreeMap::new(), is_up: true }
    }

    fn publish(&mut self, member: usize, topic: u64) {
        let topic = subject(&format!("news.{topic}"));
        let bus = &mut self.members[member];
        let count = self.published.entry((bus.member(), topic.clone())).or_default();
        let now = bus.clock();
        if bus.publish(now, &topic, (*count + 1).to_le_bytes().to_vec().into()).is_ok() {
            *count += 1;
        }
    }

    fn read(&mut self, member: usize) -> Result<(), String> {
        let bus = &mut self.members[member];
        let now = bus.clock();
        bus.handle_timeout(now);
        while let Some(event) = bus.poll_event(now) {
            self.readers[member].handle(event)?;
        }
        Ok(())
    }

    fn fault(&mut self) {
        let member = self.members[self.rng.usize(0..3)].member();
        match self.rng.u8(0..100) {
            0 => self.net.reset(member),
            1 => self.net.cut(member, true),
            2..=5 => self.net.cut(member, false),
            6 => {
                self.is_up = !self.is_up;
                self.net.run_server(self.is_up);
            }
            7 if !self.is_up => {
                self.is_up = true;
                self.net.run_server(true);
            }
            _ => {}
        }
    }

    fn run(mut self) -> Result<(u64, u64), String> {
        for _ in 0..150 {
            let (member, topic) = (self.rng.usize(0..3), self.rng.u64(0..SUBJECTS));
            self.publish(member, topic);
            self.fault();
            self.net.pass(Duration::from_millis(self.rng.u64(0..60)));
            if self.rng.u8(0..4) > 0 {
                let reader = self.rng.usize(0..3);
                self.read(reader)?;
            }
        }
        self.calm()?;
        // One more message of each after which single messages are not lost any more, only connections: the tips have to find it.
        for (member, topic) in (0..3).flat_map(|member| (0..SUBJECTS).map(move |topic| (member, topic))) {
            self.publish(member, topic);
        }
        for _ in 0..20 {
            self.fault();
            self.net.pass(Duration::from_millis(self.rng.u64(0..200)));
        }
        self.calm()?;
        self.check_ends()
    }

    fn calm(&mut self) -> Result<(), String> {
        self.net.set_weather(|weather| weather.lost = 0.0);
        self.net.run_server(true);
        self.is_up = true;
        for member in 1..=3 {
            self.net.cut(MemberId(member), false);
        }
        for _ in 0..120 {
            self.net.pass(Duration::from_millis(100));
            (0..3).try_for_each(|member| self.read(member))?;
        }
        Ok(())
    }

    fn check_ends(&self) -> Result<(u64, u64), String> {
        for (index, reader) in self.readers.iter().enumerate() {
            for ((publisher, topic), &count) in &self.published {
                let stream = reader.streams.get(&(*publisher, topic.clone()));
                let (delivered, has_gap) = stream.map_or((0, false), |stream| (stream.delivered, stream.has_gap));
                if delivered != count && !has_gap {
                    return Err(format!(
                        "reader {index}: {publisher:?} {topic} ends at {delivered} of {count} without a gap"
                    ));
                }
            }
        }
        Ok(self.readers.iter().fold((0, 0), |(told, gaps), reader| (told + reader.told, gaps + reader.gaps)))
    }
}

#[test]
fn messages_arrive_in_order_once_and_none_is_missing_without_a_gap() {
    let (mut told, mut gaps, mut seeds) = (0, 0, 0);
    throng_seeds::for_seeds(1_000, |seed| {
        let (more, holes) = Storm::new(seed).run()?;
        (told, gaps, seeds) = (told + more, gaps + holes, seeds + 1);
        Ok(())
    });
    if !throng_seeds::is_partial() {
        assert!(told > 150 * seeds, "the storms are too hard to say anything: {told} messages in {seeds} seeds");
        assert!(gaps > seeds, "the storms lose nothing: {gaps} gaps in {seeds} seeds");
    }
}

#[test]
fn without_faults_nothing_is_missing_and_nothing_is_said_of_gaps() {
    let net = SimNet::new(1, Weather { twice: 0.3, ..Weather::default() });
    let mut bus = net.join(MemberId(1), Limits::default());
    bus.subscribe(bus.clock(), SubscriptionId(1), &pattern(">")).unwrap();
    net.pass(Duration::from_secs(1));
    let mut reader = Reader::new();
    while let Some(event) = bus.poll_event(net.now()) {
        reader.handle(event).unwrap();
    }
    reader.gaps = 0; // the one of the first connection
    for number in 1..=500u64 {
        bus.publish(net.now(), &subject("news.1"), number.to_le_bytes().to_vec().into()).unwrap();
        net.pass(Duration::from_millis(10));
        bus.handle_timeout(net.now());
    }
    net.pass(Duration::from_secs(10));
    bus.handle_timeout(net.now());
    net.pass(Duration::from_secs(1));
    while let Some(event) = bus.poll_event(net.now()) {
        reader.handle(event).unwrap();
    }
    assert_eq!((reader.told, reader.gaps), (500, 0));
    assert!(bus.counters().duplicates > 50, "{:?}", bus.counters());
}

/// The reader always has events left to read. When it reads a gap, it takes the present state of the subject.
fn slow_reader(seed: u64) -> Result<u64, String> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let subjects = [subject("news.0"), subject("news.1"), subject("other")];
    let subscription = |at: usize| SubscriptionId(1 + u32::from(at == 2));
    let mut publisher = Endpoint::new(MemberId(1), Limits::default());
    publisher.handle_connected(Time(0));
    let mut reader = Endpoint::new(MemberId(2), Limits { waiting_events: 6, ..Limits::default() });
    for (number, text) in [(1, "news.*"), (2, "other")] {
        let (subscription, pattern) = (SubscriptionId(number), pattern(text));
        reader.handle_command(Time(0), Command::Subscribe { subscription, pattern }).expect("there is room");
    }
    let (mut published, mut known, mut gaps) = ([0u64; 3], [0u64; 3], 0);
    let mut take = |event: Event, published: &[u64; 3], known: &mut [u64; 3]| {
        match event {
            Event::Gap(Gap { subscription: of, missing }) => {
                gaps += 1;
                for at in (0..3).filter(|&at| subscription(at) == of) {
                    let is_it = match &missing {
                        Missing::Of { subject, .. } => *subject == subjects[at],
                        _ => true,
                    };
                    if is_it {
                        known[at] = published[at];
                    }
                }
            }
            Event::Message(Message { subject, payload, .. }) => {
                let at = subjects.iter().position(|known| *known == subject).expect("one of the three");
                let number = u64::from_le_bytes(payload[..8].try_into().expect("the test's own payload"));
                if number > known[at] + 1 {
                    return Err(format!("{subject}: {number} after {} without a gap", known[at]));
                }
                known[at] = known[at].max(number);
            }
            _ => {}
        }
        Ok(())
    };
    for _ in 0..400 {
        let at = rng.usize(0..3);
        published[at] += 1;
        let payload = published[at].to_le_bytes().to_vec().into();
        let publish = Command::Publish { subject: subjects[at].clone(), payload };
        publisher.handle_command(Time(0), publish).expect("there is room");
        while let Some(Outgoing::Publish { subject, bytes }) = publisher.poll_outgoing() {
            reader.handle_delivery(subscription(at), subject.as_str(), &bytes, None);
        }
        match rng.u8(0..100) {
            0 => reader.handle_dropped(),
            1..=80 => {
                for event in (0..rng.u8(0..3)).map_while(|_| reader.poll_event()).collect::<Vec<_>>() {
                    take(event, &published, &mut known)?;
                }
            }
            _ => {}
        }
    }
    while let Some(event) = reader.poll_event() {
        take(event, &published, &mut known)?;
    }
    if known == published { Ok(gaps) } else { Err(format!("{known:?} of {published:?} are known")) }
}

#[test]
fn a_reader_that_is_never_done_is_told_of_each_loss_after_the_one_that_it_knows() {
    let mut gaps = 0;
    throng_seeds::for_seeds(200, |seed| {
        gaps += slow_reader(seed)?;
        Ok(())
    });
    assert!(gaps > 1_000 || throng_seeds::is_partial(), "{gaps}");
}
