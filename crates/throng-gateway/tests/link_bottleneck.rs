//! The effect of a session of the link on a bottleneck, with the options and the turns of the gateway, on virtual time.
//!
//! Throng's own servers have more rows in `crates/throng/tests/bottleneck`. Here the gateway looks at its session in
//! each millisecond, as its door does, and the client once in a frame, without knowing when its packets came.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use throng_gateway::serve::link_session_options;
use throng_link::session::{Envelope, LaneId, Rest, Session};
use throng_net::{Bottleneck, Condition, Driver, MemoryDriver, MemoryNetwork, RateLimit, Transmit};
use throng_wire::{Tick, Time};

/// Prefix, sequence and seal of netcode.
const HEAD_BYTES: usize = 4;
const TAIL_BYTES: usize = 16;
/// Headers of IPv4 and UDP.
const IP_BYTES: u64 = 28;
/// Bytes that the gateway gives a session before the peer has taken them.
const OFFERED_BYTES: usize = 256 << 10;
const RUNS: u64 = 3;

/// One end of a session, on a network in memory.
struct End {
    session: Session,
    driver: MemoryDriver,
    to: SocketAddr,
    sequence: u64,
    knows_arrivals: bool,
    received_bytes: u64,
}

impl End {
    fn turn(&mut self, now: Time) {
        let (session, knows_arrivals) = (&mut self.session, self.knows_arrivals);
        let (sequence, received_bytes) = (&mut self.sequence, &mut self.received_bytes);
        let mut answers = Vec::new();
        let mut take = |arrived: Time, _: SocketAddr, datagram: &mut [u8]| {
            *received_bytes += datagram.len() as u64 + IP_BYTES;
            let arrived = if knows_arrivals { arrived } else { now };
            let number = u64::from(u32::from_le_bytes(*datagram.first_chunk().expect("it is long enough")));
            let payload = &datagram[HEAD_BYTES..datagram.len() - TAIL_BYTES];
            session.handle_packet_of(now, arrived, number, payload).expect("sound");
            if session.is_answer_due() {
                answers.extend(packet(session, now, sequence));
            }
        };
        self.driver.receive(now, &mut take).expect("in memory");
        session.handle_timeout(now);
        while session.poll_delivery().is_some() {}
        while session.poll_message().is_some() {}
        while let Some(datagram) = packet(session, now, sequence) {
            answers.push(datagram);
        }
        for datagram in answers {
            self.driver.send(now, &Transmit::single(self.to, &datagram)).expect("in memory");
        }
    }

    fn offer(&mut self) {
        while self.session.pending_message_bytes() < OFFERED_BYTES {
            self.session.send(LaneId(0), &[7; 4_000]).expect("there is room");
        }
    }
}

fn packet(session: &mut Session, now: Time, sequence: &mut u64) -> Option<Vec<u8>> {
    let envelope = Envelope { sequence: *sequence, head_bytes: HEAD_BYTES, tail_bytes: TAIL_BYTES };
    let plan = session.poll_packet(now, envelope, Rest::Empty)?;
    let mut datagram = Vec::new();
    plan.begin(Tick(0), &mut datagram).finish();
    let number = (*sequence as u32).to_le_bytes();
    datagram[..HEAD_BYTES].copy_from_slice(&number);
    *sequence += 1;
    Some(datagram)
}

#[derive(Clone, Copy, Debug)]
struct Row {
    bytes_per_s: u64,
    queue_ms: u64,
    frames_per_s: u64,
}

/// The medians of several runs.
#[derive(Debug)]
struct Measured {
    loss: f64,
    /// The standing queue: the least in 100 ms (RFC 8289 section 3.2). In 95 % of the time it is no longer.
    queue_p95_ms: f64,
    /// Of the path.
    used: f64,
}

fn measure(row: Row) -> Measured {
    let runs: Vec<[f64; 3]> = (0..RUNS).map(|seed| run(row, seed)).collect();
    let [loss, queue_p95_ms, used] = [0, 1, 2].map(|figure| {
        let mut figures: Vec<f64> = runs.iter().map(|run| run[figure]).collect();
        figures.sort_unstable_by(f64::total_cmp);
        figures[figures.len() / 2]
    });
    let measured = Measured { loss, queue_p95_ms, used };
    println!("{row:?}: {measured:?}");
    measured
}

/// Loss, standing queue and use of the path, from 15 to 30 s after the begin.
fn run(row: Row, seed: u64) -> [f64; 3] {
    let condition = Condition { delay_us: 25_000, jitter_us: 2_000, ..Condition::NONE };
    let network = MemoryNetwork::new(condition, seed).expect("a good condition");
    let rate = RateLimit { bytes_per_s: row.bytes_per_s, queue_bytes: row.bytes_per_s * row.queue_ms / 1_000 };
    let bottleneck = Bottleneck::new(rate, None).expect("a good rate");
    let addresses: [SocketAddr; 2] = [([10, 0, 0, 1], 40_000).into(), ([10, 1, 0, 1], 50_000).into()];
    network.share_way(addresses[0], addresses[1], &bottleneck);
    let options = Arc::new(link_session_options());
    let begin = Time::from_secs(1);
    let [mut gateway, mut client] = [0, 1].map(|end| End {
        session: Session::new(Arc::clone(&options), begin).expect("good options"),
        driver: network.endpoint(addresses[end]).expect("a free address"),
        to: addresses[1 - end],
        sequence: 0,
        knows_arrivals: end == 0,
        received_bytes: 0,
    });
    let frame = Duration::from_micros(1_000_000 / row.frames_per_s);
    let mut next_frame = begin.after(Duration::from_micros(fastrand::Rng::with_seed(seed).u64(..16_000)));
    let (mut waits_us, mut marked) = (Vec::new(), ((0, 0), 0));
    for ms in 1..=30_000 {
        let now = begin.after(Duration::from_millis(ms));
        gateway.offer();
        gateway.turn(now);
        if now >= next_frame {
            next_frame = next_frame.after(frame);
            client.turn(now);
        }
        match ms {
            ..15_000 => {}
            15_000 => marked = (bottleneck.passed_and_dropped(), client.received_bytes),
            _ => waits_us.push(bottleneck.wait_us(now)),
        }
    }
    let ((passed_before, dropped_before), received_before) = marked;
    let (passed, dropped) = bottleneck.passed_and_dropped();
    let (passed, dropped) = ((passed - passed_before) as f64, (dropped - dropped_before) as f64);
    let mut standing: Vec<u64> = waits_us.chunks(100).filter_map(|waits| waits.iter().min().copied()).collect();
    standing.sort_unstable();
    let queue_p95_ms = standing[(standing.len() - 1) * 95 / 100] as f64 / 1e3;
    let received_bytes = (client.received_bytes - received_before) as f64;
    [dropped / (passed + dropped), queue_p95_ms, received_bytes / (15 * row.bytes_per_s) as f64]
}

#[test]
fn a_deep_buffer_stays_nearly_empty() {
    for (bytes_per_s, queue_ms) in [(32_000, 2_000), (250_000, 1_000)] {
        for frames_per_s in [30, 60] {
            let row = Row { bytes_per_s, queue_ms, frames_per_s };
            let measured = measure(row);
            assert!(measured.queue_p95_ms <= 100.0 && measured.used >= 0.75, "{row:?}: {measured:?}");
        }
    }
}

#[test]
fn a_shallow_buffer_loses_little() {
    for (bytes_per_s, queue_ms) in [(125_000, 50), (500_000, 20)] {
        let row = Row { bytes_per_s, queue_ms, frames_per_s: 60 };
        let measured = measure(row);
        assert!(measured.loss <= 0.03, "{row:?}: {measured:?}");
    }
}
