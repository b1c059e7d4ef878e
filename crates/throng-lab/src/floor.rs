//! The floor: the cost of encrypting and sending the run's own packets, without any other work.
//!
//! ```text
//! in the run     [ interest | quantise | plan | encode | write | seal | send ]   a recorder beside the driver notes each send call:
//!                                                                   |             address, bytes, segment length
//!                                                                   v
//! after the run  the same calls, in the same order, for the same number of ticks at the same rate:  [ seal | send ]
//! ```
//!
//! No server can do the work for less than that, so the floor is the smaller of the replay and of the run's own time
//! for sealing and sending in those ticks. The ratio of outgoing work to the floor is therefore never below 1.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use std::collections::HashMap;
use throng::Time;
use throng::net::{Driver, SendError, Transmit, Wrapper};
use throng_link::netcode::{Key, Sealer, Suite, TAG_LEN};

use throng_machine::clock;

/// Connections whose packets are sealed together before they are sent, as in the server.
const GROUP: usize = 16;
/// The replay is repeated; the smallest mean counts, because other programs only ever add time.
pub(crate) const ROUNDS: usize = 2;
/// The last part of a wait is spent awake, as in the run: a processor that has slept begins its tick slower.
const SPIN: Duration = Duration::from_micros(300);
/// Send calls that are kept; a recording ends when it is full. 24 bytes each.
const SENDS_MAX: usize = 2_000_000;

/// One send call: one or more datagrams for one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    to: SocketAddr,
    bytes: u32,
    segment_bytes: u32,
}

/// The send calls of some ticks of a run, and their time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recording {
    sent: Vec<Sent>,
    /// For each tick: where its calls end, and the time it took.
    ticks: Vec<RecordedTick>,
}

#[derive(Clone, Copy, Debug)]
struct RecordedTick {
    end: usize,
    spent: Spent,
}

/// Time of one tick in the run, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spent {
    /// Sealing and sending.
    pub(crate) seal_and_send_ns: u64,
    /// All sending work: interest, quantise, plan, encode, write, seal and send.
    pub(crate) outgoing_ns: u64,
}

/// The floor of a run, mean of the recorded ticks in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct FloorTime {
    /// The smaller of the replay and of the run's own sealing and sending.
    pub(crate) floor_ms: f64,
    /// The run's own sealing and sending in the recorded ticks.
    pub(crate) run_ms: f64,
    /// All outgoing work of the recorded ticks, by the floor: at least 1.
    pub(crate) ratio: f64,
}

/// A driver that records all send calls while recording is on.
pub(crate) struct Recorder<D> {
    inner: D,
    /// Each send call takes this share longer, to check measurements with.
    slowdown: f64,
    tape: Arc<Tape>,
}

/// The part of a [`Recorder`] that stays with the host.
#[derive(Debug, Default)]
pub(crate) struct Tape {
    is_on: AtomicBool,
    recording: Mutex<Recording>,
}

impl Tape {
    /// Begins to record, with memory for this many ticks and clients, so that recording does not allocate.
    pub(crate) fn begin(&self, ticks: usize, clients: usize) {
        let sends = ticks.saturating_mul(clients).saturating_mul(2).min(SENDS_MAX);
        let mut recording = self.recording.lock().unwrap_or_else(PoisonError::into_inner);
        *recording = Recording { sent: Vec::with_capacity(sends), ticks: Vec::with_capacity(ticks) };
        self.is_on.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// A tick is over. Recording ends with the tick for which no room is left.
    pub(crate) fn end_tick(&self, spent: Spent) {
        let mut recording = self.recording.lock().unwrap_or_else(PoisonError::into_inner);
        if recording.sent.len() == recording.sent.capacity() {
            let end = recording.ticks.last().map_or(0, |tick| tick.end);
            recording.sent.truncate(end);
            self.is_on.store(false, Ordering::Relaxed);
            return;
        }
        let end = recording.sent.len();
        recording.ticks.push(RecordedTick { end, spent });
        if recording.ticks.len() == recording.ticks.capacity() {
            self.is_on.store(false, Ordering::Relaxed);
        }
    }

    /// Ends the recording and takes it.
    pub(crate) fn take(&self) -> Recording {
        self.is_on.store(false, Ordering::Relaxed);
        std::mem::take(&mut self.recording.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn note(&self, transmit: &Transmit<'_>) {
        let mut recording = self.recording.lock().unwrap_or_else(PoisonError::into_inner);
        if recording.sent.len() < recording.sent.capacity() {
            let (bytes, segment_bytes) = (transmit.bytes.len() as u32, transmit.segment_bytes as u32);
            recording.sent.push(Sent { to: transmit.to, bytes, segment_bytes });
        }
    }
}

impl<D: Driver> Recorder<D> {
    /// Send calls take this many per cent longer, to check measurements with; 0 for none.
    pub(crate) fn new(inner: D, slowdown_percent: u32) -> (Recorder<D>, Arc<Tape>) {
        let tape = Arc::new(Tape::default());
        (Recorder { inner, slowdown: f64::from(slowdown_percent) / 100.0, tape: Arc::clone(&tape) }, tape)
    }
}

impl<D: Driver> Wrapper for Recorder<D> {
    type Inner = D;

    fn inner(&self) -> &D {
        &self.inner
    }

    fn inner_mut(&mut self) -> &mut D {
        &mut self.inner
    }

    fn wrap_send(&mut self, now: Time, transmit: &Transmit<'_>) -> Result<usize, SendError> {
        if self.tape.is_on() {
            self.tape.note(transmit);
        }
        if self.slowdown == 0.0 {
            return self.inner.send(now, transmit);
        }
        let began = Instant::now();
        let sent = self.inner.send(now, transmit);
        let end = began.elapsed().mul_f64(1.0 + self.slowdown);
        while began.elapsed() < end {
            std::hint::spin_loop();
        }
        sent
    }
}

/// Seals and sends the recorded packets again, with the run's cipher and at the same rate, and returns the time. The receivers cannot open the
/// packets, and drop them. `None` if nothing was recorded.
pub(crate) fn measure(
    driver: &mut dyn Driver,
    recording: &Recording,
    (interval, suite): (Duration, Suite),
) -> Option<FloorTime> {
    let rounds = (0..ROUNDS).map(|_| {
        replay(driver, recording, suite, |tick, start: &mut Option<Time>| {
            let due = start.get_or_insert_with(clock::now).after(interval * tick);
            std::thread::sleep(due.since(clock::now()).saturating_sub(SPIN));
            while clock::now() < due {
                std::hint::spin_loop();
            }
        })
    });
    conclude(recording, rounds.min()?)
}

fn conclude(recording: &Recording, replayed: Duration) -> Option<FloorTime> {
    let ticks = recording.ticks.len() as f64;
    let sum = |part: fn(&Spent) -> u64| recording.ticks.iter().map(|tick| part(&tick.spent)).sum::<u64>() as f64;
    let run_ms = sum(|spent| spent.seal_and_send_ns) / 1e6 / ticks;
    let outgoing_ms = sum(|spent| spent.outgoing_ns.max(spent.seal_and_send_ns)) / 1e6 / ticks;
    let floor_ms = run_ms.min(replayed.as_secs_f64() * 1e3 / ticks);
    (floor_ms > 0.0 && floor_ms.is_finite()).then(|| FloorTime { floor_ms, run_ms, ratio: outgoing_ms / floor_ms })
}

/// Plays all ticks of the recording, calling `wait` before each, and returns the time that sealing and sending took.
fn replay(
    driver: &mut dyn Driver,
    recording: &Recording,
    suite: Suite,
    mut wait: impl FnMut(u32, &mut Option<Time>),
) -> Duration {
    let mut sealers: HashMap<SocketAddr, Sealer> = HashMap::default();
    for sent in &recording.sent {
        sealers.entry(sent.to).or_insert_with(|| Sealer::new(suite, &Key::new([7; 32]), 0));
    }
    let mut buffer = Vec::new();
    let (mut spent, mut start, mut from) = (Duration::ZERO, None, 0);
    for (number, tick) in recording.ticks.iter().enumerate() {
        wait(number as u32, &mut start);
        let began = Instant::now();
        for group in recording.sent[from..tick.end].chunks(GROUP) {
            send_group(driver, &mut sealers, group, &mut buffer);
        }
        spent += began.elapsed();
        from = tick.end;
    }
    spent
}

fn send_group(
    driver: &mut dyn Driver,
    sealers: &mut HashMap<SocketAddr, Sealer>,
    group: &[Sent],
    buffer: &mut Vec<u8>,
) {
    buffer.resize(group.iter().map(|sent| sent.bytes as usize).sum(), 0x5A);
    let mut rest = buffer.as_mut_slice();
    for sent in group {
        let (packets, behind) = rest.split_at_mut(sent.bytes as usize);
        rest = behind;
        let Some(sealer) = sealers.get_mut(&sent.to) else { continue };
        for packet in packets.chunks_mut((sent.segment_bytes as usize).max(1)) {
            // A datagram that is too short for a seal was not a payload packet in the run either; it is sent as it is.
            if packet.len() > sealer.header_len() + TAG_LEN {
                let _ = sealer.seal_payload(packet);
            }
        }
    }
    let mut at = 0;
    for sent in group {
        let bytes = &buffer[at..at + sent.bytes as usize];
        at += sent.bytes as usize;
        // The driver counts failed sends, as in the run itself.
        let _ = driver.send(Time(0), &Transmit { to: sent.to, bytes, segment_bytes: sent.segment_bytes as usize });
    }
}

#[cfg(test)]
mod tests {
    use throng::net::{DriverCounters, ReceiveError};

    use super::*;

    /// A driver that only records its calls.
    #[derive(Default)]
    struct Notes {
        sent: Vec<(SocketAddr, usize, usize)>,
        sealed: usize,
        counters: DriverCounters,
    }

    impl Driver for Notes {
        fn send(&mut self, _: Time, transmit: &Transmit<'_>) -> Result<usize, SendError> {
            self.sent.push((transmit.to, transmit.bytes.len(), transmit.segment_bytes));
            self.sealed += transmit.iter().filter(|packet| packet.iter().any(|&byte| byte != 0x5A)).count();
            Ok(transmit.datagrams())
        }

        fn receive(&mut self, _: Time, _: &mut dyn FnMut(Time, SocketAddr, &mut [u8])) -> Result<usize, ReceiveError> {
            Ok(0)
        }

        fn local_address(&self) -> SocketAddr {
            client(0)
        }

        fn max_segments(&self) -> usize {
            64
        }

        fn counters(&self) -> &DriverCounters {
            &self.counters
        }
    }

    fn client(number: u16) -> SocketAddr {
        ([127, 0, 0, 1], 1_000 + number).into()
    }

    /// Three ticks for 40 clients: no packets, three packets to each client, one short packet to every second client.
    fn record() -> (Recorder<Notes>, Arc<Tape>) {
        let (mut recorder, tape) = Recorder::new(Notes::default(), 0);
        let long = vec![0x5A; 2 * 1_200 + 300];
        let _ = recorder.send(Time(0), &Transmit { to: client(9), bytes: &long, segment_bytes: 1_200 });
        tape.begin(3, 40);
        tape.end_tick(Spent { seal_and_send_ns: 0, outgoing_ns: 20_000 });
        for number in 0..40 {
            let _ = recorder.send(Time(0), &Transmit { to: client(number), bytes: &long, segment_bytes: 1_200 });
        }
        tape.end_tick(Spent { seal_and_send_ns: 900_000, outgoing_ns: 1_500_000 });
        for number in (0..40).step_by(2) {
            let _ = recorder.send(Time(0), &Transmit::single(client(number), &long[..90]));
        }
        tape.end_tick(Spent { seal_and_send_ns: 300_000, outgoing_ns: 400_000 });
        assert!(!tape.is_on(), "three ticks were asked for");
        let _ = recorder.send(Time(0), &Transmit::single(client(1), &long[..90]));
        (recorder, tape)
    }

    #[test]
    fn the_replay_makes_the_same_calls_with_sealed_packets() {
        let (recorder, tape) = record();
        let recording = tape.take();
        let mut notes = Notes::default();
        let mut waits = 0;
        replay(&mut notes, &recording, Suite::default(), |tick, _| {
            assert_eq!(tick, waits);
            waits += 1;
        });
        let in_run = &recorder.inner.sent;
        assert_eq!(
            notes.sent,
            in_run[1..in_run.len() - 1],
            "the call before the recording and the one after it are not in it"
        );
        assert_eq!((waits, notes.sealed), (3, 40 * 3 + 20));
    }

    #[test]
    fn the_floor_is_never_above_what_the_run_itself_spent() {
        let (_, tape) = record();
        let recording = tape.take();
        let slow = conclude(&recording, Duration::from_millis(60)).expect("there are ticks");
        assert!((slow.floor_ms - 0.4).abs() < 1e-9 && slow.floor_ms == slow.run_ms, "{slow:?}");
        let fast = conclude(&recording, Duration::from_micros(600)).expect("there are ticks");
        assert!((fast.floor_ms - 0.2).abs() < 1e-9 && (fast.ratio - 3.2).abs() < 1e-9, "{fast:?}");
        for floor in [slow, fast] {
            assert!(floor.ratio >= 1.0, "{floor:?}");
        }
    }

    #[test]
    fn a_run_that_sent_nothing_has_no_floor() {
        assert_eq!(conclude(&Recording::default(), Duration::ZERO), None);
    }

    #[test]
    fn a_full_recording_ends_with_its_last_whole_tick() {
        let (mut recorder, tape) = Recorder::new(Notes::default(), 0);
        tape.begin(100, 1);
        for _ in 0..3 {
            for _ in 0..80 {
                let _ = recorder.send(Time(0), &Transmit::single(client(1), &[0x5A; 90]));
            }
            tape.end_tick(Spent { seal_and_send_ns: 10, outgoing_ns: 10 });
        }
        let recording = tape.take();
        assert_eq!((recording.ticks.len(), recording.sent.len()), (2, 160));
    }
}
