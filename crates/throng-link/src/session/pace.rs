//! How fast to send: a token bucket whose rate follows what the path delivers.
//!
//! A game's stream is not a download. It has a rate of its own (the configured limit), it is mostly made of bytes that
//! are worthless when late, and some packets are lost on every radio link for reasons that sending less does not cure.
//! A controller that answers each loss (NewReno, RFC 9002 section 7) starves such a stream at 1 % loss; so this one
//! looks at *rounds* of at least 250 ms, two round trips and 32 packets, and asks whether the path is full:
//!
//! ```text
//! too much is lost    more than 15 % plus one and a half times what was lost in every one of the last rounds (of that
//!                     at most 30 %): loss that does not go away while we send less is not ours
//! a queue builds up   the smallest round trip of the round is far above the smallest of the last seconds
//! ```
//!
//! Then the rate falls to 0.9 of what was acknowledged per second (not below half of itself), which lets a queue drain,
//! and the next round, whose verdicts are about packets from before, does not count. Otherwise the rate rises, if it was
//! used up: by a quarter until it reaches what the last fall came from, by a twentieth beyond. A rate-limited link is
//! so held between 0.9 and about 1.2 of its rate; a loss-free link is held at the configured limit.
//!
//! The idea to follow the delivery rate, and the reasons against loss as the sole signal, are from BBR (Cardwell et
//! al., "BBR: Congestion-Based Congestion Control", ACM Queue 2016); the controller is much simpler.

use throng_wire::Time;

use super::options::SessionOptions;
use super::windowed_min::WindowedMin;
use super::wire::MAX_PAYLOAD_BYTES;

const MIN_ROUND_MICROS: u64 = 250_000;
const MIN_ROUND_VERDICTS: u32 = 32;
/// A round without loss ends after this time, so that a slow stream need not wait for 32 packets to become faster.
const QUIET_ROUND_MICROS: u64 = 1_000_000;
/// A round ends after this time whatever it has seen.
const MAX_ROUND_MICROS: u64 = 4_000_000;
/// Fewer losses than this in a round say nothing.
const MIN_LOSSES: u32 = 5;
const LOSS_TOLERANCE_PERCENT: u32 = 15;
const MAX_STANDING_LOSS_PERCENT: u32 = 30;
/// The standing loss is the smallest of one to two times this many rounds.
const STANDING_LOSS_ROUNDS: u64 = 4;
/// A peer that answers a burst with one acknowledgement reaches back over 64 packets; more at once would count as lost.
const MAX_BURST_PACKETS: i64 = 48;
const MICROS_PER_S: i64 = 1_000_000;

#[derive(Debug)]
pub(super) struct Pacer {
    limit: u32,
    /// The congestion estimate, bytes per second, from `floor` to `limit`.
    rate: u32,
    floor: u32,
    /// What the rate was when it last had to fall.
    ceiling: u32,
    /// Added to each packet's payload.
    overhead_bytes: usize,
    burst_micros: i64,
    queue_delay_tolerance_micros: u32,
    /// Bytes times a million, so that no microsecond is rounded away. Below 0 while in debt.
    tokens: i64,
    refilled_at: Time,
    round: Round,
    /// Rounds that said something about loss.
    rounds: u64,
    is_settling: bool,
    standing_loss_percent: WindowedMin,
    delivered_bytes_per_s: u32,
}

#[derive(Debug)]
struct Round {
    began: Time,
    sent_bytes: u64,
    delivered_bytes: u64,
    delivered: u32,
    lost: u32,
    smallest_round_trip_micros: u32,
}

impl Round {
    fn new(began: Time) -> Round {
        Round { began, sent_bytes: 0, delivered_bytes: 0, delivered: 0, lost: 0, smallest_round_trip_micros: u32::MAX }
    }

    fn loss_percent(&self) -> u32 {
        100 * self.lost / (self.lost + self.delivered).max(1)
    }
}

impl Pacer {
    pub(super) fn new(options: &SessionOptions, now: Time) -> Pacer {
        let interval_micros = (options.min_packet_interval.as_micros() as u64).max(1);
        let floor =
            (MAX_PAYLOAD_BYTES as u64 * MICROS_PER_S as u64 / interval_micros).clamp(1, u64::from(u32::MAX)) as u32;
        let mut pacer = Pacer {
            limit: options.rate_bytes_per_s,
            rate: options.initial_rate_bytes_per_s.max(floor),
            floor,
            ceiling: options.rate_bytes_per_s,
            overhead_bytes: usize::from(options.packet_overhead_bytes),
            burst_micros: options.burst.as_micros().min(10_000_000) as i64,
            queue_delay_tolerance_micros: options.queue_delay_tolerance.as_micros().min(10_000_000) as u32,
            tokens: 0,
            refilled_at: now,
            round: Round::new(now),
            rounds: 0,
            is_settling: false,
            standing_loss_percent: WindowedMin::new(STANDING_LOSS_ROUNDS, 0),
            delivered_bytes_per_s: 0,
        };
        pacer.tokens = pacer.capacity();
        pacer
    }

    pub(super) fn set_limit(&mut self, now: Time, bytes_per_s: u32) {
        self.refill(now);
        self.limit = bytes_per_s.max(1);
        self.tokens = self.tokens.min(self.capacity());
    }

    /// Bytes per second at which the bucket fills.
    pub(super) fn rate(&self) -> u32 {
        self.rate.min(self.limit)
    }

    pub(super) fn delivered_bytes_per_s(&self) -> u32 {
        self.delivered_bytes_per_s
    }

    pub(super) fn allowance_bytes(&self, now: Time) -> usize {
        (self.tokens_at(now) / MICROS_PER_S).max(0) as usize
    }

    /// When the allowance will have reached `bytes`, which must not exceed a packet.
    pub(super) fn allows_at(&self, bytes: usize) -> Time {
        let missing = (bytes as i64 * MICROS_PER_S - self.tokens).max(0);
        let micros = (missing as u64).div_ceil(u64::from(self.rate()));
        Time(self.refilled_at.0.saturating_add(micros))
    }

    fn capacity(&self) -> i64 {
        let packet = (MAX_PAYLOAD_BYTES + self.overhead_bytes) as i64 * MICROS_PER_S;
        (i64::from(self.rate()) * self.burst_micros).clamp(packet, MAX_BURST_PACKETS * packet)
    }

    fn tokens_at(&self, now: Time) -> i64 {
        // No longer than it takes to fill the bucket from any debt that one burst can make.
        let micros = now.micros_since(self.refilled_at).min(1 << 40) as i64;
        self.tokens.saturating_add(i64::from(self.rate()).saturating_mul(micros)).min(self.capacity())
    }

    fn refill(&mut self, now: Time) {
        self.tokens = self.tokens_at(now);
        self.refilled_at = self.refilled_at.max(now);
    }

    pub(super) fn on_sent(&mut self, now: Time, payload_bytes: usize) {
        self.refill(now);
        let bytes = payload_bytes + self.overhead_bytes;
        // A caller that does not ask for its allowance is not answered by silence for hours.
        self.tokens = (self.tokens - bytes as i64 * MICROS_PER_S).max(-self.capacity());
        self.round.sent_bytes += bytes as u64;
    }

    pub(super) fn on_delivered(&mut self, payload_bytes: usize) {
        self.round.delivered_bytes += (payload_bytes + self.overhead_bytes) as u64;
        self.round.delivered += 1;
    }

    pub(super) fn on_lost(&mut self) {
        self.round.lost += 1;
    }

    pub(super) fn on_round_trip(&mut self, micros: u32) {
        self.round.smallest_round_trip_micros = self.round.smallest_round_trip_micros.min(micros);
    }

    /// Ends the round if it is time. `smoothed` and `smallest` are the round trip estimates in microseconds.
    pub(super) fn advance(&mut self, now: Time, smoothed: u32, smallest: u32) {
        let micros = now.micros_since(self.round.began);
        let verdicts = self.round.delivered + self.round.lost;
        let is_quiet = self.round.lost == 0 && verdicts > 0 && micros >= QUIET_ROUND_MICROS;
        let is_telling = verdicts >= MIN_ROUND_VERDICTS || is_quiet;
        let is_over = is_telling && micros >= MIN_ROUND_MICROS.max(2 * u64::from(smoothed));
        if !is_over && (micros < MAX_ROUND_MICROS || verdicts == 0) {
            return;
        }
        let round = std::mem::replace(&mut self.round, Round::new(now));
        self.judge(now, &round, micros.max(1), smallest);
    }

    fn judge(&mut self, now: Time, round: &Round, micros: u64, smallest: u32) {
        let per_s = |bytes: u64| (bytes * MICROS_PER_S as u64 / micros).min(u64::from(u32::MAX)) as u32;
        let (sent, delivered) = (per_s(round.sent_bytes), per_s(round.delivered_bytes));
        self.delivered_bytes_per_s = delivered;
        let standing = self.standing_loss_percent.value().min(MAX_STANDING_LOSS_PERCENT);
        if round.delivered + round.lost >= MIN_ROUND_VERDICTS / 2 {
            self.rounds += 1;
            self.standing_loss_percent.sample(self.rounds, round.loss_percent());
        }
        if std::mem::take(&mut self.is_settling) {
            return;
        }
        let loses_much = round.lost >= MIN_LOSSES && round.loss_percent() > LOSS_TOLERANCE_PERCENT + standing * 3 / 2;
        let round_trip = round.smallest_round_trip_micros;
        let queues = round_trip != u32::MAX
            && round_trip.saturating_sub(smallest) > self.queue_delay_tolerance_micros.max(smallest / 2);
        let before = self.rate();
        if loses_much || (queues && sent > delivered) {
            self.fall(now, delivered);
        } else if queues {
            // The queue stands although no more comes in than goes out: it may be another's, so only drift.
            self.set_rate(now, before - before / 50);
        } else if u64::from(sent) * 10 >= u64::from(before) * 7 {
            let step = if before < self.ceiling { before / 4 } else { before / 20 };
            self.set_rate(now, before.saturating_add(step.max(100)));
        }
    }

    fn fall(&mut self, now: Time, delivered: u32) {
        let before = self.rate();
        // A row of falls, as when a path goes dark, must not make the way back a slow one.
        self.ceiling = before.max(self.ceiling - self.ceiling / 4);
        self.is_settling = true;
        self.set_rate(now, (delivered - delivered / 10).clamp(before / 2, before));
    }

    fn set_rate(&mut self, now: Time, bytes_per_s: u32) {
        self.refill(now);
        self.rate = bytes_per_s.min(self.limit).max(self.floor);
        self.tokens = self.tokens.min(self.capacity());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pacer() -> Pacer {
        Pacer::new(&SessionOptions::default(), Time(0))
    }

    /// Sends at the full allowance for `seconds`, each packet judged at once by `is_lost`.
    fn run(pacer: &mut Pacer, from: u64, seconds: u64, mut is_lost: impl FnMut() -> bool) -> u64 {
        let mut sent = 0;
        for tick in from * 30..(from + seconds) * 30 {
            let now = Time(tick * 1_000_000 / 30);
            while pacer.allowance_bytes(now) >= 1000 {
                pacer.on_sent(now, 1000);
                sent += 1000;
                if is_lost() { pacer.on_lost() } else { pacer.on_delivered(1000) }
            }
            pacer.on_round_trip(50_000);
            pacer.advance(now, 50_000, 50_000);
        }
        sent / seconds
    }

    #[test]
    fn an_idle_bucket_holds_one_burst_and_no_more() {
        let mut pacer = pacer();
        let burst = 125_000 / 4;
        assert_eq!(pacer.allowance_bytes(Time::from_secs(100)), burst);
        pacer.on_sent(Time::from_secs(100), burst + 500);
        assert_eq!(pacer.allowance_bytes(Time::from_secs(100)), 0);
        let at = pacer.allows_at(1000);
        assert_eq!(pacer.allowance_bytes(at), 1000);
        assert_eq!(at.micros_since(Time::from_secs(100)), 12_000);
    }

    #[test]
    fn small_packets_pay_for_their_headers() {
        let options = SessionOptions { packet_overhead_bytes: 47, ..SessionOptions::default() };
        let mut pacer = Pacer::new(&options, Time(0));
        let mut sent = 0;
        for tick in 0..3000u64 {
            let now = Time(tick * 10_000);
            while pacer.allowance_bytes(now) >= 147 {
                pacer.on_sent(now, 100);
                pacer.on_delivered(100);
                sent += 147;
            }
            pacer.advance(now, 50_000, 50_000);
        }
        assert!((sent as i64 - 125_000 * 30).abs() < 40_000, "{sent} bytes in 30 seconds");
    }

    #[test]
    fn random_loss_of_a_radio_link_costs_little() {
        for (percent, least) in [(1, 118_000), (5, 100_000), (25, 60_000)] {
            let mut random = fastrand::Rng::with_seed(percent);
            let mut pacer = pacer();
            run(&mut pacer, 0, 20, || random.u64(0..100) < percent);
            let rate = run(&mut pacer, 20, 60, || random.u64(0..100) < percent);
            assert!(rate > least, "{rate} bytes per second at {percent} % loss");
        }
    }

    #[test]
    fn a_path_that_goes_dark_is_sent_the_floor_and_comes_back() {
        let mut pacer = pacer();
        run(&mut pacer, 0, 5, || false);
        run(&mut pacer, 5, 15, || true);
        assert_eq!(pacer.rate(), 4800);
        run(&mut pacer, 20, 40, || false);
        assert_eq!(pacer.rate(), 125_000);
    }

    #[test]
    fn a_stream_below_its_rate_is_left_alone() {
        let mut pacer = pacer();
        for tick in 0..3000u64 {
            let now = Time(tick * 33_333);
            pacer.on_sent(now, 100);
            pacer.on_delivered(100);
            pacer.advance(now, 50_000, 50_000);
        }
        assert_eq!(pacer.rate(), 125_000);
    }
}
