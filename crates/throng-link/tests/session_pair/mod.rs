//! Two sessions, joined by a link that loses, delays, doubles and reorders, in virtual time.
//!
//! The pair checks the invariants of every run: each packet gets one verdict, no packet that was not handled is
//! reported as delivered, and no end returns an error.
#![allow(dead_code)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use throng_link::session::{
    CloseCause, Delivery, Envelope, Input, LaneId, MAX_PACKETS_PER_FLUSH, Rest, Session, SessionOptions,
};
use throng_wire::{Tick, Time};

pub(crate) const CLIENT: usize = 0;
pub(crate) const SERVER: usize = 1;

/// One direction of the link.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Link {
    pub(crate) delay_ms: u64,
    pub(crate) jitter_ms: u64,
    pub(crate) loss_percent: u64,
    pub(crate) duplicate_percent: u64,
    /// Bytes per second, 0 for unlimited. Packets that would wait longer than `queue_ms` are dropped.
    pub(crate) rate_bytes_per_s: u64,
    pub(crate) queue_ms: u64,
    /// The longest payload that gets through, 0 for no limit.
    pub(crate) longest_bytes: usize,
}

pub(crate) struct End {
    pub(crate) session: Session,
    pub(crate) link: Link,
    pub(crate) next_sequence: u64,
    pub(crate) sent: BTreeMap<u64, Time>,
    pub(crate) verdicts: BTreeMap<u64, Delivery>,
    /// Sequences of the peer's packets that this end took in.
    pub(crate) taken: BTreeSet<u64>,
    pub(crate) messages: Vec<(LaneId, Vec<u8>)>,
    pub(crate) inputs: Vec<Input>,
    pub(crate) close: Option<CloseCause>,
    /// Replication bytes offered per tick.
    pub(crate) offered_bytes: usize,
    /// How they are offered.
    pub(crate) offered_as: Rest,
    /// Whether the end polls messages.
    pub(crate) is_reading: bool,
    /// Whether the end acknowledges the inputs that it takes.
    pub(crate) is_processing_inputs: bool,
    /// Whether the end does anything at all.
    pub(crate) is_running: bool,
    pub(crate) replication_bytes_sent: u64,
    pub(crate) replication_bytes_received: u64,
    link_free_at: Time,
}

pub(crate) struct Pair {
    pub(crate) now: Time,
    pub(crate) tick: Duration,
    pub(crate) ends: [End; 2],
    random: fastrand::Rng,
    wire: BTreeMap<(Time, u64), (usize, u64, Vec<u8>)>,
    put_on_wire: u64,
    ticks: u32,
}

impl Pair {
    pub(crate) fn new(seed: u64, options: SessionOptions, link: Link) -> Pair {
        Pair::starting_at(seed, options, link, 0)
    }

    pub(crate) fn starting_at(seed: u64, options: SessionOptions, link: Link, first_sequence: u64) -> Pair {
        let options = Arc::new(options);
        let end = || End {
            session: Session::new(options.clone(), Time(0)).expect("good options"),
            link,
            next_sequence: first_sequence,
            sent: BTreeMap::new(),
            verdicts: BTreeMap::new(),
            taken: BTreeSet::new(),
            messages: Vec::new(),
            inputs: Vec::new(),
            close: None,
            offered_bytes: 0,
            offered_as: Rest::Waiting,
            is_reading: true,
            is_processing_inputs: true,
            is_running: true,
            replication_bytes_sent: 0,
            replication_bytes_received: 0,
            link_free_at: Time(0),
        };
        Pair {
            now: Time(0),
            tick: Duration::from_millis(10),
            ends: [end(), end()],
            random: fastrand::Rng::with_seed(seed),
            wire: BTreeMap::new(),
            put_on_wire: 0,
            ticks: 0,
        }
    }

    /// One tick of both ends.
    pub(crate) fn step(&mut self) {
        self.now = self.now.after(self.tick);
        self.ticks += 1;
        self.deliver();
        for end in 0..2 {
            if self.ends[end].is_running {
                self.ends[end].session.handle_timeout(self.now);
                self.drain(end);
                self.transmit(end);
            }
        }
    }

    pub(crate) fn run(&mut self, seconds: u64) {
        let end = self.now.after(Duration::from_secs(seconds));
        while self.now < end {
            self.step();
        }
    }

    /// Steps until `done`, at most for `seconds`. Returns whether it came to pass.
    pub(crate) fn run_until(&mut self, seconds: u64, mut done: impl FnMut(&mut Pair) -> bool) -> bool {
        let end = self.now.after(Duration::from_secs(seconds));
        while self.now < end {
            if done(self) {
                return true;
            }
            self.step();
        }
        false
    }

    fn deliver(&mut self) {
        while let Some(entry) = self.wire.first_entry().filter(|entry| entry.key().0 <= self.now) {
            let arrived = entry.key().0;
            let (to, sequence, payload) = entry.remove();
            let end = &mut self.ends[to];
            if !end.is_running {
                continue;
            }
            match end.session.handle_packet_of(self.now, arrived, sequence, &payload) {
                Ok(Some(packet)) => {
                    assert!(end.taken.insert(sequence), "packet {sequence} was taken twice");
                    // Zeros at the end are padding.
                    let padding = packet.rest.iter().rev().take_while(|&&byte| byte == 0).count();
                    let rest = &packet.rest[..packet.rest.len() - padding];
                    end.replication_bytes_received += rest.len() as u64;
                    assert!(rest.iter().all(|&byte| byte == 0xEE), "replication bytes were changed");
                }
                Ok(None) => {}
                Err(error) => panic!("an honest packet was refused: {error}"),
            }
        }
    }

    fn drain(&mut self, index: usize) {
        let [client, server] = &mut self.ends;
        let (end, peer) = if index == CLIENT { (client, server) } else { (server, client) };
        while let Some((sequence, delivery)) = end.session.poll_delivery() {
            assert!(end.sent.contains_key(&sequence), "a verdict on packet {sequence}, which was never sent");
            assert!(end.verdicts.insert(sequence, delivery).is_none(), "two verdicts on packet {sequence}");
            if delivery == Delivery::Delivered {
                assert!(peer.taken.contains(&sequence), "packet {sequence} did not arrive");
            }
        }
        while end.is_reading
            && let Some((lane, message)) = end.session.poll_message()
        {
            end.messages.push((lane, message));
        }
        while let Some(input) = end.session.poll_input() {
            if end.is_processing_inputs {
                end.session.set_input_ack(input.number);
            }
            end.inputs.push(input);
        }
        if let Some(cause) = end.session.poll_close() {
            assert!(end.close.replace(cause).is_none(), "closed twice");
        }
    }

    fn transmit(&mut self, index: usize) {
        let now = self.now;
        let mut offered = self.ends[index].offered_bytes;
        for count in 0.. {
            let end = &mut self.ends[index];
            let sequence = end.next_sequence;
            let rest = if offered > 0 { end.offered_as } else { Rest::Empty };
            let Some(plan) = end.session.poll_packet(now, Envelope::bare(sequence), rest) else { return };
            assert!(count < MAX_PACKETS_PER_FLUSH, "more than {count} packets at once");
            let mut payload = Vec::new();
            let mut packet = plan.begin(Tick(self.ticks.into()), &mut payload);
            let (buffer, room_bytes) = packet.rest();
            assert!(buffer.len() <= room_bytes, "{} bytes in a room of {room_bytes}", buffer.len());
            let replication = offered.min(room_bytes - buffer.len());
            buffer.resize(buffer.len() + replication, 0xEE);
            packet.finish();
            offered -= replication;
            end.replication_bytes_sent += replication as u64;
            end.next_sequence += 1;
            end.sent.insert(sequence, now);
            self.put_on_wire(index, sequence, payload);
        }
    }

    fn put_on_wire(&mut self, from: usize, sequence: u64, payload: Vec<u8>) {
        let link = self.ends[from].link;
        let mut sent_at = self.now;
        if link.longest_bytes > 0 && payload.len() > link.longest_bytes {
            return;
        }
        let transfer_micros = (payload.len() as u64 * 1_000_000).checked_div(link.rate_bytes_per_s);
        if let Some(micros) = transfer_micros {
            let free_at = self.ends[from].link_free_at.max(self.now);
            if free_at.micros_since(self.now) > link.queue_ms * 1000 {
                return;
            }
            sent_at = Time(free_at.0 + micros);
            self.ends[from].link_free_at = sent_at;
        }
        let copies = if self.random.u64(0..100) < link.duplicate_percent { 2 } else { 1 };
        for _ in 0..copies {
            if self.random.u64(0..100) < link.loss_percent {
                continue;
            }
            let delay = link.delay_ms * 1000 + self.random.u64(0..=link.jitter_ms * 1000);
            self.put_on_wire += 1;
            self.wire.insert((Time(sent_at.0 + delay), self.put_on_wire), (1 - from, sequence, payload.clone()));
        }
    }

    /// Others send over the same link: its queue holds at least so much.
    pub(crate) fn fill_queue(&mut self, from: usize, queue_ms: u64) {
        let until = Time(self.now.0 + queue_ms * 1_000);
        self.ends[from].link_free_at = self.ends[from].link_free_at.max(until);
    }

    /// Lets the link carry everything from now on and both ends come to rest; then every packet must have its verdict.
    pub(crate) fn settle(&mut self) {
        for end in &mut self.ends {
            end.link = Link { delay_ms: end.link.delay_ms, ..Link::default() };
            end.offered_bytes = 0;
        }
        self.run(8);
        for end in &self.ends {
            for (sequence, sent_at) in &end.sent {
                let is_late = self.now.micros_since(*sent_at) > 5_100_000;
                assert!(!is_late || end.verdicts.contains_key(sequence), "packet {sequence} has no verdict after 5 s");
            }
        }
    }
}

/// A message that says its number and has `length` bytes, at least 4.
pub(crate) fn numbered(number: u32, length: usize) -> Vec<u8> {
    let mut bytes = number.to_le_bytes().to_vec();
    let mut random = fastrand::Rng::with_seed(u64::from(number));
    while bytes.len() < length {
        bytes.push(random.u8(..));
    }
    bytes
}

/// A packet of the session's own and `rest` bytes behind it.
///
/// # Panics
/// If the session does not plan one.
pub(crate) fn packet(session: &mut Session, now: Time, sequence: u64, rest: usize) -> Vec<u8> {
    let mut payload = Vec::new();
    let plan = session.poll_packet(now, Envelope::bare(sequence), Rest::Waiting).expect("a packet is planned");
    let mut packet = plan.begin(Tick(0), &mut payload);
    let buffer = packet.rest().0;
    buffer.resize(buffer.len() + rest, 0);
    packet.finish();
    payload
}

pub(crate) fn number_of(message: &[u8]) -> u32 {
    u32::from_le_bytes(message[..4].try_into().expect("four bytes"))
}
