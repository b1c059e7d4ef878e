//! The cost of one packet in a session and in the cipher. See docs/benchmarking.md.
#![allow(missing_docs)]

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use throng_link::netcode::{Key, KeyForm, Opener, Sealer, Side, Suite, TAG_LEN};
use throng_link::session::{Envelope, Rest, Session, SessionOptions};
use throng_wire::{Tick, Time};

const TICK_US: u64 = 33_333;

/// Payloads of a client's input packet, of a middling packet and of a full one, in bytes.
const PAYLOAD_BYTES: [usize; 3] = [60, 600, 1_200];

/// Connections whose keys do not stay in a core's own caches.
const CONNECTIONS: usize = 10_000;

/// A server's session and a client's, which exchange a packet each way per tick.
struct Pair {
    server: Session,
    client: Session,
    packet: Vec<u8>,
    sequence: u64,
    now: Time,
}

/// The steps of a server's tick with one client.
#[derive(Clone, Copy, PartialEq)]
enum Step {
    /// Begin and finish a packet.
    Write,
    /// Take in the client's packet with an input, and everything polled after it.
    Handle,
}

impl Pair {
    fn new() -> Pair {
        let options = Arc::new(SessionOptions::default());
        let session = || Session::new(Arc::clone(&options), Time(0)).expect("good options");
        let mut pair = Pair { server: session(), client: session(), packet: Vec::new(), sequence: 0, now: Time(0) };
        pair.time_of(Step::Write, 1_000);
        pair
    }

    /// Runs this many ticks and adds up the time of one step.
    fn time_of(&mut self, step: Step, ticks: u64) -> Duration {
        let mut total = Duration::ZERO;
        for _ in 0..ticks {
            for (name, run) in [(Step::Write, Pair::write as fn(&mut Pair)), (Step::Handle, Pair::handle)] {
                match name {
                    Step::Write => {}
                    Step::Handle => self.answer(),
                }
                let start = Instant::now();
                run(self);
                if name == step {
                    total += start.elapsed();
                }
            }
        }
        total
    }

    fn write(&mut self) {
        self.now = self.now.after(Duration::from_micros(TICK_US));
        self.packet.clear();
        let envelope = Envelope::bare(self.sequence);
        let plan = self.server.poll_packet(self.now, envelope, Rest::Waiting).expect("an allowance");
        let mut packet = plan.begin(Tick(self.sequence), &mut self.packet);
        let buffer = packet.rest().0;
        buffer.resize(buffer.len() + black_box(1_000), 0);
        packet.finish();
    }

    fn answer(&mut self) {
        self.client.handle_packet(self.now, self.sequence, &self.packet).expect("a good packet");
        self.client.push_input(&[7; 8]).expect("an open session");
        self.packet.clear();
        let envelope = Envelope::bare(self.sequence);
        let plan = self.client.poll_packet(self.now, envelope, Rest::Empty).expect("there is an input");
        plan.begin(Tick(self.sequence), &mut self.packet).finish();
        self.client.handle_timeout(self.now);
        while self.client.poll_delivery().is_some() {}
    }

    fn handle(&mut self) {
        self.server.handle_packet(self.now, self.sequence, black_box(&self.packet)).expect("a good packet");
        self.server.handle_timeout(self.now);
        while self.server.poll_delivery().is_some() {}
        while self.server.poll_input().is_some() {}
        assert!(self.server.poll_message().is_none() && self.server.poll_close().is_none());
        self.sequence += 1;
    }
}

fn session(c: &mut Criterion) {
    let mut pair = Pair::new();
    c.bench_function("session/begin_finish", |b| b.iter_custom(|ticks| pair.time_of(Step::Write, ticks)));
    c.bench_function("session/handle_input_and_ack", |b| b.iter_custom(|ticks| pair.time_of(Step::Handle, ticks)));
}

fn cipher(c: &mut Criterion) {
    let key = Key::new([7; 32]);
    let mut group = c.benchmark_group("cipher");
    let forms = [(KeyForm::Prepared, "prepared"), (KeyForm::Bare, "bare")];
    let cases = Suite::ALL.into_iter().flat_map(|suite| forms.map(|form| (suite, form)));
    for ((suite, (form, name)), payload) in cases.flat_map(|case| PAYLOAD_BYTES.map(|payload| (case, payload))) {
        let new_sealer = || Sealer::new(suite, &key, 1).in_form(form);
        let mut sealer = new_sealer();
        let mut packet = vec![0; 9 + payload + TAG_LEN];
        group.throughput(Throughput::Bytes(payload as u64));
        group.bench_function(BenchmarkId::new(format!("seal {} {name}", suite.tag()), payload), |b| {
            b.iter(|| {
                let len = sealer.header_len() + payload + TAG_LEN;
                sealer.seal_payload(black_box(&mut packet[..len])).expect("a good length")
            })
        });
        let mut sealer = new_sealer();
        let mut opener = Opener::new(suite, &key, 1, Side::Server).in_form(form);
        group.bench_function(BenchmarkId::new(format!("open {} {name}", suite.tag()), payload), |b| {
            b.iter_custom(|packets| {
                let mut total = Duration::ZERO;
                for _ in 0..packets {
                    let len = sealer.header_len() + payload + TAG_LEN;
                    sealer.seal_payload(&mut packet[..len]).expect("a good length");
                    let start = Instant::now();
                    black_box(opener.open(black_box(&mut packet[..len])).expect("just sealed"));
                    total += start.elapsed();
                }
                total
            })
        });
        let mut sealers: Vec<_> = (0..CONNECTIONS).map(|_| Box::new((new_sealer(), [0_u8; 2_048]))).collect();
        let mut next = 0;
        group.bench_function(BenchmarkId::new(format!("seal cold {} {name}", suite.tag()), payload), |b| {
            b.iter(|| {
                // Far from the last one, so that nothing fetches it ahead.
                next = (next + 3_989) % CONNECTIONS;
                let sealer = &mut sealers[next].0;
                let len = sealer.header_len() + payload + TAG_LEN;
                sealer.seal_payload(black_box(&mut packet[..len])).expect("a good length")
            })
        });
    }
    group.finish();
}

criterion_group! {
    name = parts;
    config = Criterion::default().warm_up_time(Duration::from_secs(1)).measurement_time(Duration::from_secs(3));
    targets = session, cipher
}
criterion_main!(parts);
