//! A member of the bus over a network, whose server and neighbours send anything.

use std::time::Duration;

use throng_bus::endpoint::{Endpoint, Outgoing};
use throng_bus::envelope::{Envelope, Kind, Previous};
use throng_bus::{
    Bus, Cluster, Command, Event, Expect, Fence, Fenced, FencedWrites, Holder, Joining, Lease, LeaseOptions, Limits,
    LocalHub, MemberId, Pattern, RequestError, Revision, Sequence, StoreError, Subject, SubscriptionId, Ticket,
    WatchId,
};
use throng_wire::Time;

use super::choices::Choices;

const LIMITS: Limits = Limits {
    payload_bytes: 200,
    waiting_events: 8,
    waiting_bytes: 300,
    subscriptions: 2,
    watches: 2,
    watched_keys: 3,
    open_tickets: 6,
    answer_patience: Duration::from_secs(1),
    outgoing: 20,
    remembered_subjects: 4,
};

/// Commands of a member's state machines, and anything as answers, entries and messages, in any order. No limit is passed, and
/// each ticket ends at most once.
pub(crate) fn run(input: &[u8]) {
    let mut choices = Choices::new(input);
    decode(input);
    let mut member = Member::new();
    while !choices.is_empty() {
        member.step(&mut choices);
        member.drain();
    }
}

/// Everything that is read is written as the same again, or is refused with one line.
fn decode(input: &[u8]) {
    let bytes = bytes::Bytes::copy_from_slice(input);
    match Envelope::decode(&bytes) {
        Ok(envelope) => assert_eq!(envelope.encode(), bytes),
        Err(error) => assert!(!error.to_string().contains('\n') && !error.tag().is_empty()),
    }
    let revision = Revision(1_000);
    if let Some(holder) = Holder::read(&bytes, revision) {
        assert!(holder.fence.0 <= revision.0);
    }
    if let Some(fenced) = Fenced::read(&bytes, revision) {
        assert!(fenced.fence.0 < revision.0);
    }
    if let Err(error) = Cluster::new("fuzz", 1).expect("a name").compare(input) {
        assert!(!error.to_string().contains('\n') && !error.tag().is_empty());
    }
    let text = String::from_utf8_lossy(input);
    if let Ok(subject) = Subject::new(&text) {
        assert!(Pattern::from(&subject).matches(&subject) && Pattern::new(">").expect("a pattern").matches(&subject));
    }
    let mut local = LocalHub::new().join(MemberId(1), LIMITS);
    if let Ok(pattern) = Pattern::new(&text) {
        local.subscribe(Time(0), SubscriptionId(1), &pattern).expect("there is room");
    }
    if let Err(error) = Cluster::new(&text, 1) {
        assert!(!error.to_string().contains('\n'));
    }
}

struct Member {
    endpoint: Endpoint,
    lease: Lease,
    writes: FencedWrites,
    joining: Joining,
    now: Time,
    open: Vec<Ticket>,
}

impl Member {
    fn new() -> Member {
        let key = Subject::new("lease").expect("a name");
        let member = MemberId(1);
        let mut endpoint = Endpoint::new(member, LIMITS);
        for number in 1..=2 {
            let pattern = Pattern::new(["a.>", "b"][number as usize - 1]).expect("a pattern");
            let subscribe = Command::Subscribe { subscription: SubscriptionId(number), pattern: pattern.clone() };
            endpoint.handle_command(Time(0), subscribe).expect("there is room");
            endpoint
                .handle_command(Time(0), Command::Watch { watch: WatchId(number), pattern })
                .expect("there is room");
        }
        Member {
            endpoint,
            lease: Lease::new(key, member, bytes::Bytes::new(), LeaseOptions::default(), 1),
            writes: FencedWrites::new(member, 2),
            joining: Joining::new(Cluster::new("fuzz", 1).expect("a name"), true, 3),
            now: Time(0),
            open: Vec::new(),
        }
    }

    fn step(&mut self, choices: &mut Choices<'_>) {
        let now = self.now;
        match choices.below(12) {
            0 => self.endpoint.handle_connected(now),
            1 => self.endpoint.handle_disconnected(),
            2 => self.now = now.after(Duration::from_millis(u64::from(choices.byte()) * 20)),
            3 => drop(self.writes.write(Subject::new("a.w").expect("a name"), bytes::Bytes::new(), Fence(3))),
            4 => {
                let subject = Subject::new(["a.x", "b"][choices.below(2)]).expect("a name");
                let ticket = Ticket(u64::from(choices.byte() & 15));
                let payload = bytes::Bytes::copy_from_slice(choices.bytes(20));
                let patience = Duration::from_secs(1);
                if self.endpoint.handle_command(now, Command::Request { ticket, subject, payload, patience }).is_ok() {
                    self.open.push(ticket);
                }
            }
            5 | 6 => self.message(choices),
            7 => {
                let ticket = self.any_ticket(choices);
                let length = choices.below(60);
                let bytes = bytes::Bytes::copy_from_slice(choices.bytes(length));
                let answer = Envelope { publisher: MemberId(9), kind: Kind::Answer { ticket }, payload: bytes.clone() };
                match choices.below(3) {
                    0 => self.endpoint.handle_answer(ticket, Ok(&bytes)),
                    1 => self.endpoint.handle_answer(ticket, Ok(&answer.encode())),
                    _ => self.endpoint.handle_answer(ticket, Err(RequestError::NobodyListens)),
                }
            }
            8 | 9 => self.result(choices),
            _ => self.entry(choices),
        }
    }

    /// A message, a tip or a request with any numbers, or any bytes.
    fn message(&mut self, choices: &mut Choices<'_>) {
        let subscription = SubscriptionId(choices.below(4) as u32);
        let subject = ["a.x", "a.y", "b", "c", "a..", "\n"][choices.below(6)];
        let (number, before) = (u64::from(choices.byte()), u64::from(choices.byte()));
        let sequence = Sequence(number);
        let kind = match choices.below(6) {
            0 => Kind::Message { sequence, previous: Previous::First },
            1 => Kind::Message { sequence, previous: Previous::Forgotten },
            2 => Kind::Tip { sequence },
            3 => Kind::Request { ticket: Ticket(number) },
            _ => Kind::Message { sequence, previous: Previous::Is(Sequence(before)) },
        };
        let length = choices.byte();
        let payload = bytes::Bytes::copy_from_slice(choices.bytes(usize::from(length)));
        let mut bytes = Envelope { publisher: MemberId(number & 1), kind, payload }.encode().to_vec();
        if before & 3 == 0 {
            choices.bend(&mut bytes);
        }
        self.endpoint.handle_delivery(subscription, subject, &bytes.into(), None);
    }

    fn result(&mut self, choices: &mut Choices<'_>) {
        let ticket = self.any_ticket(choices);
        let error = [StoreError::Refused, StoreError::Unknown, StoreError::Full][choices.below(3)];
        let revision = Revision(choices.number().into());
        let length = choices.below(60);
        let value = bytes::Bytes::copy_from_slice(choices.bytes(length));
        let event = match choices.below(5) {
            0 => Event::Written { ticket, result: Ok(revision) },
            1 => Event::Written { ticket, result: Err(error) },
            2 => Event::Got { ticket, result: Err(error) },
            3 => Event::Got { ticket, result: Ok(None) },
            _ => Event::Got { ticket, result: Ok(Some(throng_bus::Entry { value, revision })) },
        };
        self.endpoint.handle_result(event);
    }

    fn entry(&mut self, choices: &mut Choices<'_>) {
        let watch = WatchId(choices.below(4) as u32);
        let listing = choices.below(3) as u32;
        let key = ["a.x", "a.y", "a.z", "a.q", "b", "c", ""][choices.below(7)];
        let revision = Revision(choices.byte().into());
        let value = (choices.byte() & 1 == 0).then(bytes::Bytes::new);
        self.endpoint.handle_entry(watch, listing, key, revision, value);
        if choices.below(4) == 0 {
            self.endpoint.handle_listed(watch, listing);
        }
    }

    /// A ticket that is open, or any.
    fn any_ticket(&self, choices: &mut Choices<'_>) -> Ticket {
        let at = usize::from(choices.byte());
        self.open.get(at).copied().unwrap_or(Ticket(at as u64))
    }

    fn drain(&mut self) {
        self.endpoint.handle_timeout(self.now);
        let mut messages = 0;
        while let Some(event) = self.endpoint.poll_event() {
            if let Event::Message(message) = &event {
                messages += 1;
                assert!(message.payload.len() <= LIMITS.payload_bytes);
            }
            if let Event::Answer { ticket, .. } | Event::Got { ticket, .. } | Event::Written { ticket, .. } = &event {
                let at =
                    self.open.iter().position(|open| open == ticket).expect("an answer to something that was asked");
                self.open.swap_remove(at);
            }
            self.lease.handle_event(self.now, &event);
            self.writes.handle_event(&event);
            drop(self.joining.handle_event(&event));
        }
        assert!(messages <= LIMITS.waiting_events);
        self.lease.handle_timeout(self.now);
        self.commands();
        let sent = std::iter::from_fn(|| self.endpoint.poll_outgoing());
        let count = sent.filter(|outgoing| !matches!(outgoing, Outgoing::Unwatch { .. })).count();
        // Subscriptions and watches come on top when a connection begins.
        assert!(count <= LIMITS.outgoing + 4);
        while self.lease.poll_change().is_some() {}
        while self.writes.poll_result().is_some() {}
    }

    fn commands(&mut self) {
        let mut commands = Vec::new();
        commands.extend(self.lease.poll_command(self.now));
        commands.extend(self.joining.poll_command());
        // A refused command waits again: so each is polled once.
        for _ in 0..4 {
            commands.extend(self.writes.poll_command());
        }
        for command in commands {
            let ticket = match &command {
                Command::Get { ticket, .. }
                | Command::Put { ticket, expect: Expect::Absent | Expect::Revision(_), .. } => *ticket,
                other => panic!("{other:?} is no command of a lease or a fenced write"),
            };
            match self.endpoint.handle_command(self.now, command.clone()) {
                Ok(()) => self.open.push(ticket),
                Err(error) => {
                    self.lease.handle_refusal(self.now);
                    self.writes.handle_refusal(&command, error);
                }
            }
        }
    }
}
