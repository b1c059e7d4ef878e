//! When to send: a token bucket that fills at the rate of the congestion control.
//!
//! All packets of a tick are written at once. While the limit is the only bound, they also leave at once: one system call.
//! While the path is the bound, each should leave when an even stream would send it: a short buffer has no room for a
//! tick's packets, and in a long one every other stream waits for them.

use throng_wire::Time;

use super::control::{Control, PathTimes};
use super::options::SessionOptions;
use super::plan::MAX_PACKETS_PER_FLUSH;
use super::wire::MAX_PAYLOAD_BYTES;

const MICROS_PER_S: i64 = 1_000_000;
/// A round of the congestion control has at least this many ticks.
const MIN_ROUND_BURSTS: u64 = 3;
/// A packet is taken to have waited behind those of its own tick for no longer than this.
const MAX_BEHIND_MICROS: u64 = 250_000;
/// A stream that had no balance left for a full packet is short for so many times the bucket's span.
const SHORT_FOR_BURSTS: u64 = 2;

#[derive(Debug)]
pub(super) struct Pacer {
    control: Control,
    limit: u32,
    /// The rate of the control, and what the bucket holds at it: both are asked for several times per packet and change
    /// about once per round trip.
    rate: u32,
    capacity: i64,
    /// Added to each packet's payload.
    overhead_bytes: u32,
    burst_micros: u32,
    /// Bytes times a million, so that no microsecond is rounded away. Below 0 while in debt.
    tokens: i64,
    refilled_at: Time,
    /// Until then the stream counts as short of balance.
    short_until: Time,
    burst: Burst,
}

/// The packets of one moment, usually those of a tick.
#[derive(Clone, Copy, Debug)]
struct Burst {
    at: Time,
    /// Since the burst before.
    interval_micros: u32,
    bytes: u32,
    /// The path's rate holds the stream back: a burst at once would be too much.
    is_held_back: bool,
}

/// The facts about a packet that congestion control needs at its verdict.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stamp {
    round: u32,
    /// How much later a sender that spaces its packets evenly would have sent it.
    behind_micros: u32,
}

impl Pacer {
    /// See [`Session::fetch`](super::Session::fetch).
    pub(super) fn fetch(&self) -> u64 {
        self.tokens as u64
            ^ self.refilled_at.0
            ^ self.short_until.0
            ^ u64::from(self.burst.bytes)
            ^ self.control.fetch()
    }

    /// See [`Session::fetch_behind`](super::Session::fetch_behind).
    pub(super) fn fetch_behind(&self) -> u64 {
        self.control.fetch_behind()
    }

    pub(super) fn new(options: &SessionOptions, now: Time) -> Pacer {
        let interval_micros = (options.min_packet_interval.as_micros() as u64).max(1);
        let floor =
            (MAX_PAYLOAD_BYTES as u64 * MICROS_PER_S as u64 / interval_micros).clamp(1, u64::from(u32::MAX)) as u32;
        let tolerance_micros = options.queue_delay_tolerance.as_micros().min(10_000_000) as u32;
        let (initial, limit) = (options.initial_rate_bytes_per_s, options.rate_bytes_per_s);
        let mut pacer = Pacer {
            control: Control::new(initial, limit, floor, tolerance_micros, now),
            limit,
            rate: 1,
            capacity: 0,
            overhead_bytes: u32::from(options.packet_overhead_bytes),
            burst_micros: options.burst.as_micros().min(10_000_000) as u32,
            tokens: 0,
            refilled_at: now,
            short_until: Time(0),
            burst: Burst { at: now, interval_micros: 0, bytes: 0, is_held_back: false },
        };
        pacer.take_rate();
        pacer.tokens = pacer.capacity;
        pacer
    }

    pub(super) fn set_limit(&mut self, now: Time, bytes_per_s: u32) {
        self.refill(now);
        self.limit = bytes_per_s.max(1);
        self.control.set_limit(self.limit);
        self.take_rate();
    }

    /// Forgets what was learned of the path. Limit and unused allowance stay: a new path is no reason to send more.
    pub(super) fn on_new_path(&mut self, options: &SessionOptions, now: Time) {
        self.refill(now);
        let (limit, tokens) = (self.limit, self.tokens);
        *self = Pacer::new(options, now);
        self.limit = limit;
        self.control.set_limit(limit);
        self.tokens = tokens;
        self.take_rate();
    }

    /// Bytes per second at which the bucket fills.
    pub(super) fn rate(&self) -> u32 {
        self.rate
    }

    /// Uses the control's rate from now on. The tokens saved at the former rate have been added before.
    fn take_rate(&mut self) {
        let packet = self.cost_bytes(MAX_PAYLOAD_BYTES) * MICROS_PER_S;
        self.rate = self.control.rate().min(self.limit);
        self.capacity = (i64::from(self.rate) * i64::from(self.burst_micros))
            .clamp(packet, i64::from(MAX_PACKETS_PER_FLUSH) * packet);
        self.tokens = self.tokens.min(self.capacity);
    }

    pub(super) fn delivered_bytes_per_s(&self) -> u32 {
        self.control.delivered_bytes_per_s()
    }

    /// The bytes that may be sent now; negative if more was sent.
    pub(super) fn balance_bytes(&self, now: Time) -> i64 {
        self.tokens_at(now).div_euclid(MICROS_PER_S)
    }

    /// The cost of a packet in the balance.
    pub(super) fn cost_bytes(&self, payload_bytes: usize) -> i64 {
        (payload_bytes + self.overhead_bytes as usize) as i64
    }

    /// When the balance will have reached `bytes`, which must not exceed a packet.
    pub(super) fn allows_at(&self, bytes: i64) -> Time {
        let missing = (bytes * MICROS_PER_S - self.tokens).max(0);
        let micros = (missing as u64).div_ceil(u64::from(self.rate()));
        Time(self.refilled_at.0.saturating_add(micros))
    }

    fn tokens_at(&self, now: Time) -> i64 {
        // No longer than it takes to fill the bucket from any debt that one burst can make.
        let micros = now.micros_since(self.refilled_at).min(1 << 40) as i64;
        self.tokens.saturating_add(i64::from(self.rate).saturating_mul(micros)).min(self.capacity)
    }

    fn refill(&mut self, now: Time) {
        self.tokens = self.tokens_at(now);
        self.refilled_at = self.refilled_at.max(now);
    }

    /// Pays for a packet.
    pub(super) fn on_sent(&mut self, now: Time, payload_bytes: usize) {
        self.begin_burst(now);
        self.refill(now);
        self.tokens -= self.cost_bytes(payload_bytes) * MICROS_PER_S;
        if self.tokens < self.cost_bytes(MAX_PAYLOAD_BYTES) * MICROS_PER_S {
            self.short_until = Time(now.0.saturating_add(SHORT_FOR_BURSTS * u64::from(self.burst_micros)));
        }
    }

    /// The packet that was paid for last is a size probe: those behind it wait for it, and nothing is judged by it.
    pub(super) fn on_size_probe(&mut self, now: Time, payload_bytes: usize) {
        self.begin_burst(now);
        self.burst.bytes = self.burst.bytes.saturating_add(self.cost_bytes(payload_bytes) as u32);
    }

    fn begin_burst(&mut self, now: Time) {
        if now > self.burst.at {
            let interval_micros = now.micros_since(self.burst.at).min(u64::from(u32::MAX)) as u32;
            let is_held_back = self.rate < self.limit && now < self.short_until;
            self.burst = Burst { at: now, interval_micros, bytes: 0, is_held_back };
        }
    }

    /// How much later a sender that spaces its packets evenly would send the next packet of this burst.
    fn behind_micros(&self) -> u64 {
        let ahead_micros = u64::from(self.burst.bytes) * MICROS_PER_S as u64 / u64::from(self.rate);
        ahead_micros.min(u64::from(self.burst.interval_micros)).min(MAX_BEHIND_MICROS)
    }

    /// When the next packet should leave: now, or at most `within_micros` later.
    pub(super) fn departs(&mut self, now: Time, within_micros: u64) -> Time {
        self.begin_burst(now);
        let wait_micros = if self.burst.is_held_back { self.behind_micros().min(within_micros) } else { 0 };
        Time(now.0.saturating_add(wait_micros))
    }

    /// The packet that was paid for last asks for an acknowledgement: the path is judged by it. It leaves at `departs`.
    pub(super) fn on_eliciting(
        &mut self,
        (now, departs): (Time, Time),
        payload_bytes: usize,
        smoothed_micros: u32,
    ) -> Stamp {
        let bytes = payload_bytes + self.overhead_bytes as usize;
        self.begin_burst(now);
        let behind_micros = self.behind_micros().saturating_sub(departs.micros_since(now)) as u32;
        self.burst.bytes = self.burst.bytes.saturating_add(bytes as u32);
        let least_micros = u64::from(smoothed_micros).max(MIN_ROUND_BURSTS * u64::from(self.burst.interval_micros));
        Stamp { round: self.control.on_sent(now, bytes, least_micros), behind_micros }
    }

    pub(super) fn on_heard(&mut self, now: Time) {
        if self.control.is_dark() {
            self.refill(now);
            self.control.on_heard(now);
            self.take_rate();
        } else {
            self.control.on_heard(now);
        }
    }

    pub(super) fn on_delivered(&mut self, stamp: Stamp, payload_bytes: usize) {
        self.control.on_delivered(stamp.round, payload_bytes + self.overhead_bytes as usize);
    }

    pub(super) fn on_lost(&mut self, stamp: Stamp) {
        self.control.on_lost(stamp.round);
    }

    /// Long packets may have been lost for their length.
    pub(super) fn on_path_doubted(&mut self, now: Time) {
        self.control.on_path_doubted(now);
    }

    /// They were.
    pub(super) fn on_path_shrunk(&mut self, now: Time) {
        self.refill(now);
        self.control.on_path_shrunk(now);
        self.take_rate();
    }

    pub(super) fn on_spurious(&mut self, packets: u64) {
        self.control.on_spurious(packets);
    }

    /// A packet with this stamp was under way for `micros`, both ways and without the ends. `smallest_micros` is the path's
    /// own round trip.
    pub(super) fn on_round_trip(&mut self, now: Time, stamp: Stamp, micros: u32, smallest_micros: u32) {
        self.refill(now);
        let waited_micros = micros.saturating_sub(smallest_micros);
        let queued_micros = waited_micros.saturating_sub(stamp.behind_micros);
        self.control.on_round_trip(stamp.round, smallest_micros + queued_micros, waited_micros);
        self.take_rate();
    }

    /// Whether [`Pacer::advance`] may have something to do.
    pub(super) fn may_judge(&self) -> bool {
        self.control.may_judge()
    }

    /// Judges the path.
    pub(super) fn advance(&mut self, now: Time, times: PathTimes) {
        self.refill(now);
        self.control.advance(now, times);
        self.take_rate();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pacer() -> Pacer {
        Pacer::new(&SessionOptions::default(), Time(0))
    }

    #[test]
    fn an_idle_bucket_holds_one_burst_and_no_more() {
        let mut pacer = pacer();
        let burst = 125_000 / 4;
        assert_eq!(pacer.balance_bytes(Time::from_secs(100)), burst);
        pacer.on_sent(Time::from_secs(100), burst as usize + 500);
        assert_eq!(pacer.balance_bytes(Time::from_secs(100)), -500);
        let at = pacer.allows_at(1000);
        assert_eq!(pacer.balance_bytes(at), 1000);
        assert_eq!(at.micros_since(Time::from_secs(100)), 12_000);
    }

    #[test]
    fn small_packets_pay_for_their_headers() {
        let options = SessionOptions { packet_overhead_bytes: 47, ..SessionOptions::default() };
        let mut pacer = Pacer::new(&options, Time(0));
        let mut sent = 0;
        for tick in 0..3000u64 {
            let now = Time(tick * 10_000);
            while pacer.balance_bytes(now) >= 147 {
                pacer.on_sent(now, 100);
                sent += 147;
            }
        }
        assert!((sent as i64 - 125_000 * 30).abs() < 40_000, "{sent} bytes in 30 seconds");
    }

    #[test]
    fn packets_of_one_burst_are_measured_as_if_they_had_been_spaced() {
        let mut pacer = pacer();
        let mut send = |at| pacer.on_eliciting((Time(at), Time(at)), 1_250, 50_000).behind_micros;
        // 125 kB/s are 10 ms per packet; nothing waits for longer than from tick to tick.
        assert_eq!([33_000; 5].map(&mut send), [0, 10_000, 20_000, 30_000, 33_000]);
        assert_eq!([90_000; 2].map(&mut send), [0, 10_000]);
    }

    /// All that a stream of 62.5 kB/s may send in a tick: how long each packet waits, in ms, and how far behind an even stream it
    /// then is, in µs.
    fn send_tick(pacer: &mut Pacer, millis: u64, within_micros: u64) -> Vec<(u64, u32)> {
        let now = Time::from_millis(millis);
        let mut packets = Vec::new();
        while pacer.balance_bytes(now) >= 1_250 {
            let departs = pacer.departs(now, within_micros);
            pacer.on_sent(now, 1_250);
            let stamp = pacer.on_eliciting((now, departs), 1_250, 50_000);
            packets.push((departs.micros_since(now) / 1_000, stamp.behind_micros));
        }
        packets
    }

    fn held_back() -> Pacer {
        let options = SessionOptions { initial_rate_bytes_per_s: 62_500, ..SessionOptions::default() };
        Pacer::new(&options, Time(0))
    }

    #[test]
    fn a_stream_that_the_path_holds_back_is_spread_over_the_tick() {
        let mut pacer = held_back();
        let mut tick = |millis: u64| {
            let packets = send_tick(&mut pacer, millis, 100_000);
            for &(wait_ms, behind_micros) in &packets {
                assert!(wait_ms == 0 || behind_micros == 0, "the wait is not taken for a queue again");
            }
            packets.into_iter().map(|(wait_ms, _)| wait_ms).collect::<Vec<_>>()
        };
        // It has not been short of allowance yet.
        assert_eq!(tick(1_000), [0; 12]);
        // 62.5 kB/s are 20 ms per packet.
        assert_eq!(tick(1_100), [0, 20, 40, 60, 80]);
        assert_eq!(tick(1_140), [0, 20]);
        // It has said nothing for a while.
        assert_eq!(tick(5_000), [0; 12]);
    }

    #[test]
    fn no_packet_waits_for_longer_than_its_sender_can_wait() {
        let mut pacer = held_back();
        send_tick(&mut pacer, 1_000, 33_000);
        // It sends in every third tick: the rest of the way to an even stream counts as a wait behind the others.
        assert_eq!(send_tick(&mut pacer, 1_100, 33_000), [(0, 0), (20, 0), (33, 7_000), (33, 27_000), (33, 47_000)]);
    }

    #[test]
    fn a_raised_limit_stays_when_the_path_changes() {
        let options = SessionOptions {
            rate_bytes_per_s: 64_000,
            initial_rate_bytes_per_s: 1_000_000,
            ..SessionOptions::default()
        };
        let mut pacer = Pacer::new(&options, Time(0));
        assert_eq!(pacer.rate(), 64_000);
        pacer.set_limit(Time(0), 500_000);
        assert_eq!(pacer.rate(), 500_000);
        pacer.on_new_path(&options, Time::from_millis(10));
        assert_eq!(pacer.rate(), 500_000);
    }

    #[test]
    fn a_stream_at_its_limit_leaves_at_once() {
        let mut pacer = pacer();
        for tick in 1..20 {
            let now = Time::from_millis(100 * tick);
            while pacer.balance_bytes(now) >= 1_250 {
                assert_eq!(pacer.departs(now, 100_000), now);
                pacer.on_sent(now, 1_250);
            }
        }
    }
}
