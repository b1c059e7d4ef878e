//! How fast the path can be used: congestion control for a stream with a limit of its own.
//!
//! A game's stream is not a download: it has a configured limit, most of its bytes are worthless when late, and a queue at
//! the bottleneck costs every player more than a lost packet does. So the queue is the first signal and loss the second,
//! and loss counts only as far as it grows with the rate: radio links lose packets whatever is sent.
//!
//! Sent packets are judged in rounds of at least a round trip, when the last packet of the round has its verdict. A pause of
//! more than a second ends a round 200 ms after its last packet, since little arrives when little is sent:
//!
//! ```text
//! Start     twice as fast per round, until there is trouble
//! Rise      after trouble: up by the same number of bytes per second for all flows; beyond the last trouble ever faster
//! Drain     a queue stands: 0.75 of what arrived, until the queue is gone; then Rise from 0.8
//! Compete   the queue does not shrink, so others fill it: what Cubic would do, until the queue goes
//! Dark      nothing was heard for three probe timeouts: the floor; then Start, from a quarter of the rate before
//!
//! loss in Start and Rise: 0.8 of what arrived, then Rise
//! ```
//!
//! - *A queue stands*: even the smallest round trip of a round is above the path's own by the tolerance. (Target delay:
//!   RFC 6817, LEDBAT. The smallest of a round: Copa, Arun and Balakrishnan, NSDI 2018.) The owner of the session should
//!   spread packets over the tick ([`PacketPlan::spread`](super::PacketPlan::spread)). If it cannot, packets of one tick
//!   queue behind each other, and a sample counts from the moment at which an even stream would have sent the packet.
//! - *A long queue slows the stream at once*, in proportion to the round trip, as a window would. So a verdict that comes a
//!   second late does no harm, and all flows that see the queue slow down by the same factor.
//! - *Rise* adds the same to small and large flows, and *Drain* and loss take away a share. That makes flows equal (Chiu
//!   and Jain 1989). The closer the queue is to the tolerance, the slower is the rise.
//! - *Drain* empties the queue, so that the path's own round trip is seen again every few seconds and a queue does not
//!   become the base (ProbeRTT of BBR, Cardwell et al., ACM Queue 2016). Flows of this kind see the queue at the same
//!   time and drain it together. If it stops shrinking, it is not ours. Then politeness starves (Copa section 2.2). A
//!   short residue is taken to belong to the path for some seconds instead: long packets on a slow path look like that.
//! - *Compete* does what RFC 9438 does, with a rate of window by round trip. Now and then, after losses, a drain shows
//!   whether the queue is ours after all: all flows that fill a queue lose packets at the same time, so several
//!   sessions that compete only with each other drain it together. A path that became longer looks like a foreign queue
//!   for as long as the old base is remembered, and costs two or three short drains.
//! - *Loss* counts when its sum above a tolerated share passes a bound. Share and bound are small where packets wait in a
//!   queue. Loss that stays when the rate has fallen to about half is the path's own, and is tolerated from then on.
//! - A rate that is not used up does not rise, and nothing but trouble makes it fall (RFC 7661).
//!
//! Limit of it: a rate takes effect with the packets of the next tick, so at 10 ticks per second several sessions answer
//! loss and queue later than at 30.
//!
//! | constant | value | what moved when it was changed (tests in `throng/tests/bottleneck`) |
//! |---|---|---|
//! | [`MIN_ROUND_MICROS`] | 200 ms | 100 ms: four sessions on 500 kB/s less equal (index 0.85 at 30 Hz) |
//! | [`DRAIN_SHARE`] | 0.75 | 0.6: no shorter queue |
//! | [`AFTER_DRAIN_SHARE`] | 0.8 | 0.9: less equal after 45 s, 4 % more of the path used |
//! | [`AFTER_LOSS_SHARE`] | 0.8 | 0.7: data stops for more than 3 s when the path becomes shorter for long packets |
//! | [`SLOPE`], [`BEYOND_SLOPE`] | 2,000, 800 B/s per s | 3,000, 750: 3.4 % instead of 2.5 % lost at a policer at 10 Hz |
//! | [`RISE`] | 120 B/s per s³ | 250: 4 % lost by four sessions in a shallow buffer at 10 Hz |
//! | [`LONG_QUEUE_MICROS`] | 150 ms | none: four sessions that begin together keep up to 480 ms of queue |
//! | [`LOSS_SHARE`], [`LOSS_EXCESS`] | 6 %, 6 packets | 5 % of random loss keep 80 % of the limit |
//! | [`QUEUE_LOSS_SHARE`], [`QUEUE_LOSS_EXCESS`] | 2 %, 1.5 packets | 3 packets: 4.3 % lost by four sessions in a shallow buffer at 10 Hz |
//! | [`MIN_PATIENCE_MICROS`], [`PATIENCE_ROUND_TRIPS`] | 1 s, 2 | 3 round trips: a third less beside Cubic in a buffer of 1 s |
//! | [`SHORT_RESIDUE_MICROS`] | 60 ms | 0: alone on a slow path at 10 Hz a session competes, and keeps 1.9 s of queue |
//! | [`TEST_EVERY_MICROS`] | 6 s | 10 s: no change |

use std::collections::VecDeque;

use throng_wire::Time;

/// A round takes at least this long, and a round trip.
const MIN_ROUND_MICROS: u64 = 200_000;
/// A longer round trip does not make the round longer.
const MAX_ROUND_MICROS: u64 = 1_000_000;
/// A round has at least this many packets, unless that takes longer than [`MAX_ROUND_MICROS`].
const MIN_ROUND_PACKETS: u32 = 8;
/// Rounds that wait for their verdicts. The oldest is judged by what is known when there are more, and forgotten when there
/// are twice as many.
const MAX_ROUNDS: usize = 8;
/// A rate counts as used from this share on.
const USED_SHARE: f64 = 0.7;
const DRAIN_SHARE: f64 = 0.75;
const AFTER_DRAIN_SHARE: f64 = 0.8;
const AFTER_LOSS_SHARE: f64 = 0.8;
/// A queue that did not become shorter for so long, and for so many round trips, does not become shorter by our doing.
const MIN_PATIENCE_MICROS: u64 = 1_000_000;
const PATIENCE_ROUND_TRIPS: u64 = 2;
/// A drain that leaves no more than this is over. The delay that is left counts as a part of the path for
/// [`RESIDUE_MICROS`].
const SHORT_RESIDUE_MICROS: u32 = 60_000;
const RESIDUE_MICROS: u64 = 15_000_000;
/// A longer queue slows the stream at once.
const LONG_QUEUE_MICROS: u32 = 150_000;
/// Bytes per second, per second: up to the rate of the last trouble, and beyond it.
const SLOPE: f64 = 2_000.0;
const BEYOND_SLOPE: f64 = 800.0;
/// Bytes per second, per second cubed, in addition beyond it.
const RISE: f64 = 120.0;
/// The share of the rise that is left when the queue is as long as is tolerated.
const LEAST_RISE: f64 = 0.1;
/// No round makes the rate rise by more than this factor, but in `Start`.
const MAX_STEP: f64 = 1.1;
/// The share of packets whose loss is tolerated, above the path's own loss.
const LOSS_SHARE: f64 = 0.06;
/// The same while packets wait in a queue.
const QUEUE_LOSS_SHARE: f64 = 0.02;
/// Packets lost above the share, after which the rate falls.
const LOSS_EXCESS: f64 = 6.0;
const QUEUE_LOSS_EXCESS: f64 = 1.5;
const MAX_STANDING_LOSS: f64 = 0.3;
/// Packets that wait for no longer than this do not show a queue.
const QUIET_MICROS: f64 = 10_000.0;
/// Loss that stays when the rate has fallen to this share is not ours.
const INNOCENT_SHARE: f64 = 0.55;
/// Packets over which the standing loss is seen to become less.
const LEARNED_PACKETS: f64 = 128.0;
/// While competing, a drain looks this often whether the queue has become ours.
const TEST_EVERY_MICROS: u64 = 6_000_000;
/// RFC 9438: windows in packets, seconds.
const CUBIC_C: f64 = 0.4;
const CUBIC_BETA: f64 = 0.7;
const CUBIC_ALPHA: f64 = 3.0 * (1.0 - CUBIC_BETA) / (1.0 + CUBIC_BETA);
const PACKET_BYTES: f64 = 1_250.0;
/// After silence, the rate before is reached again from this share of it.
const RESUME_SHARE: f64 = 0.25;
/// A fall that is no older than this may have been for long packets that vanish.
const RECENT_FALL_MICROS: u64 = 3_000_000;
/// Packets that must be lost in silence before it means that nothing gets through.
const MIN_SILENT_LOSSES: u32 = 3;

const MICROS_PER_S: f64 = 1e6;

/// The properties of the path, as far as round trips show them.
#[derive(Clone, Copy, Debug)]
pub(super) struct PathTimes {
    pub(super) smoothed_micros: u32,
    /// The smallest of the last 10 to 20 seconds.
    pub(super) smallest_micros: u32,
    /// If nothing at all is received for this long, nothing gets through.
    pub(super) silence_micros: u64,
}

#[derive(Debug)]
pub(super) struct Control {
    /// Bytes per second, from `floor` to `limit`.
    rate: f64,
    floor: f64,
    limit: f64,
    tolerance_micros: u32,
    state: State,
    rounds: VecDeque<Round>,
    /// Number of the first of `rounds`.
    first_round: u32,
    /// Rounds that began before this do not show what the present rate does.
    valid_from: Time,
    loss: LossTally,
    heard_at: Time,
    /// Packets lost since the last received one.
    silent_losses: u32,
    /// The path's own round trip: what it was before others filled the queue, while they do.
    base_micros: u32,
    /// The newest round trip.
    latest_micros: u32,
    /// The part of the queue that a drain has left, and until when it counts as a part of the path.
    residue: (u32, Time),
    /// The rate before it last fell for loss, and when that was.
    fallen: (f64, Time),
    /// The rate before long packets began to vanish.
    undoubted: f64,
    delivered_bytes_per_s: u32,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// Doubles. Up to `proven` the path has carried before.
    Start {
        proven: f64,
    },
    /// Trouble was last met at the rate `ceiling`, which was reached again `beyond_s` seconds ago.
    Rise {
        ceiling: f64,
        beyond_s: f64,
    },
    /// The smallest round trip of any round since it began, and when it was last less than before. `rival` is gone back to
    /// if the queue is not ours.
    Drain {
        ceiling: f64,
        lowest_micros: u32,
        lowest_at: Time,
        rival: Rival,
    },
    Compete(Rival),
    /// Nothing gets through.
    Dark {
        resume: f64,
    },
}

/// A Cubic window, in packets.
#[derive(Clone, Copy, Debug)]
struct Rival {
    window: f64,
    largest: f64,
    return_s: f64,
    cut_at: Time,
    /// Reno's window (RFC 9438 section 4.3).
    friendly: f64,
    test_at: Time,
}

/// The bytes sent in about a round trip.
#[derive(Debug)]
struct Round {
    began: Time,
    last_sent: Time,
    ended: Option<Time>,
    rate: f64,
    sent: u32,
    sent_bytes: u64,
    delivered: u32,
    delivered_bytes: u64,
    lost: u32,
    samples: u32,
    smallest_micros: u32,
    largest_micros: u32,
    first_micros: u32,
    last_micros: u32,
}

impl Round {
    fn new(began: Time, rate: f64) -> Round {
        Round {
            began,
            last_sent: began,
            ended: None,
            rate,
            sent: 0,
            sent_bytes: 0,
            delivered: 0,
            delivered_bytes: 0,
            lost: 0,
            samples: 0,
            smallest_micros: u32::MAX,
            largest_micros: 0,
            first_micros: 0,
            last_micros: 0,
        }
    }

    fn is_over(&self, now: Time, least_micros: u64) -> bool {
        let micros = now.micros_since(self.began);
        let least = least_micros.clamp(MIN_ROUND_MICROS, MAX_ROUND_MICROS);
        micros >= least && (self.sent >= MIN_ROUND_PACKETS || micros >= MAX_ROUND_MICROS)
    }

    /// When it ends, if the next packet is sent at `now`: a pause of more than the longest round after its last packet is no part of it.
    fn end(&self, now: Time) -> Time {
        match now.micros_since(self.last_sent) > MAX_ROUND_MICROS {
            true => Time(self.last_sent.0.saturating_add(MIN_ROUND_MICROS)),
            false => now,
        }
    }

    fn is_decided(&self) -> bool {
        self.ended.is_some() && self.delivered + self.lost >= self.sent
    }

    fn seconds(&self, now: Time) -> f64 {
        self.ended.unwrap_or(now).micros_since(self.began).max(1_000) as f64 / MICROS_PER_S
    }

    /// The bytes that arrived per second: a growing queue stretches the time that the round took to arrive.
    fn arrived_bytes_per_s(&self, seconds: f64) -> f64 {
        let stretched = (f64::from(self.last_micros) - f64::from(self.first_micros)) / MICROS_PER_S;
        self.delivered_bytes as f64 / (seconds + stretched).clamp(seconds / 2.0, seconds * 2.0)
    }
}

/// Loss above the path's own loss.
#[derive(Debug, Default)]
struct LossTally {
    /// Packets lost above the share that is tolerated, summed up; never below 0 (Page, "Continuous Inspection Schemes",
    /// Biometrika 1954: a sum that shows a change of the mean soon, and is not held back by a long good past).
    excess: f64,
    /// Since the last fall.
    sent: f64,
    lost: f64,
    /// The longest that a packet waited lately, in microseconds.
    queue_micros: f64,
    /// The share that is lost even when less is sent.
    standing: f64,
    /// The rate from which it began to fall for loss, until the loss goes or is learned.
    blamed_rate: Option<f64>,
}

impl LossTally {
    fn note(&mut self, round: &Round) {
        let (sent, lost) = (f64::from(round.sent), f64::from(round.lost));
        self.queue_micros = f64::from(round.largest_micros).max(self.queue_micros * 0.75);
        self.sent += sent;
        self.lost += lost;
        let share = self.standing + if self.has_queue() { QUEUE_LOSS_SHARE } else { LOSS_SHARE };
        self.excess = (self.excess + lost - share * sent).max(0.0);
        if self.sent >= LEARNED_PACKETS {
            // Loss that has become less is learned at once, more only by a fall that does not help.
            self.standing = self.standing.min(self.lost / self.sent);
            if self.excess < 1.0 {
                self.blamed_rate = None;
            }
            (self.sent, self.lost) = (self.sent / 2.0, self.lost / 2.0);
        }
    }

    fn has_queue(&self) -> bool {
        self.queue_micros > QUIET_MICROS
    }

    fn is_too_much(&self) -> bool {
        self.excess > if self.has_queue() { QUEUE_LOSS_EXCESS } else { LOSS_EXCESS }
    }

    /// The rate has to fall from `rate` for loss. False if it has fallen far enough to know that this is no cure; then the
    /// path is taken to lose so much. Where packets wait, others may send too much: that is no property of the path.
    fn blame(&mut self, rate: f64) -> bool {
        let first = *self.blamed_rate.get_or_insert(rate);
        let is_innocent = rate <= first * INNOCENT_SHARE;
        if is_innocent {
            self.standing = (self.lost / self.sent.max(1.0)).min(MAX_STANDING_LOSS);
            self.blamed_rate = None;
        }
        self.forget();
        !is_innocent
    }

    /// Losses so far do not predict later losses.
    fn forget(&mut self) {
        (self.excess, self.sent, self.lost) = (0.0, 0.0, 0.0);
    }
}

impl Control {
    /// See [`Session::fetch`](super::Session::fetch).
    pub(super) fn fetch(&self) -> u64 {
        let times = self.valid_from.0 ^ self.heard_at.0 ^ self.residue.1.0 ^ self.fallen.1.0;
        times ^ self.rate.to_bits() ^ self.loss.sent.to_bits() ^ self.undoubted.to_bits() ^ self.rounds.len() as u64
    }

    /// See [`Session::fetch_behind`](super::Session::fetch_behind).
    pub(super) fn fetch_behind(&self) -> u64 {
        self.rounds.back().map_or(0, |round| round.began.0 ^ u64::from(round.samples))
    }

    pub(super) fn new(initial: u32, limit: u32, floor: u32, tolerance_micros: u32, now: Time) -> Control {
        let (limit, floor) = (f64::from(limit), f64::from(floor));
        Control {
            rate: f64::from(initial).max(floor),
            floor,
            limit,
            tolerance_micros,
            state: State::Start { proven: 0.0 },
            rounds: VecDeque::new(),
            first_round: 0,
            valid_from: now,
            loss: LossTally::default(),
            heard_at: now,
            silent_losses: 0,
            fallen: (0.0, now),
            undoubted: 0.0,
            base_micros: u32::MAX,
            latest_micros: 0,
            residue: (0, now),
            delivered_bytes_per_s: 0,
        }
    }

    pub(super) fn set_limit(&mut self, bytes_per_s: u32) {
        self.limit = f64::from(bytes_per_s);
    }

    /// Bytes per second, at least 1.
    pub(super) fn rate(&self) -> u32 {
        let rate = match self.state {
            State::Compete(_) | State::Dark { .. } => self.rate,
            _ => self.rate * self.slowness().min(1.0),
        };
        rate.max(self.floor).min(self.limit).max(1.0) as u32
    }

    /// Below 1 while the queue is long.
    fn slowness(&self) -> f64 {
        f64::from(self.base_micros.saturating_add(LONG_QUEUE_MICROS)) / f64::from(self.latest_micros.max(1))
    }

    pub(super) fn delivered_bytes_per_s(&self) -> u32 {
        self.delivered_bytes_per_s
    }

    /// A packet that will have a verdict; rounds take at least `least_micros`. Returns the number of its round.
    pub(super) fn on_sent(&mut self, now: Time, bytes: usize, least_micros: u64) -> u32 {
        let is_new = match self.rounds.back_mut() {
            Some(round) if round.ended.is_none() => {
                let is_over = round.is_over(now, least_micros) || (round.began < self.valid_from && round.began < now);
                round.ended = is_over.then(|| round.end(now));
                is_over
            }
            _ => true,
        };
        if is_new {
            if self.rounds.is_empty() && self.silent_losses == 0 {
                // Silence is counted from the first packet that could have been answered.
                self.heard_at = self.heard_at.max(now);
            }
            if self.rounds.len() >= 2 * MAX_ROUNDS {
                self.rounds.pop_front();
                self.first_round = self.first_round.wrapping_add(1);
            }
            self.rounds.push_back(Round::new(now, f64::from(self.rate())));
        }
        if let Some(round) = self.rounds.back_mut() {
            round.last_sent = now;
            round.sent += 1;
            round.sent_bytes += bytes as u64;
        }
        self.first_round.wrapping_add(self.rounds.len() as u32).wrapping_sub(1)
    }

    fn round_mut(&mut self, number: u32) -> Option<&mut Round> {
        self.rounds.get_mut(number.wrapping_sub(self.first_round) as usize)
    }

    /// Something arrived at the other end, as an acknowledgement says that came at `now`.
    pub(super) fn on_heard(&mut self, now: Time) {
        self.heard_at = self.heard_at.max(now);
        self.silent_losses = 0;
        if let State::Dark { resume } = self.state {
            self.state = State::Start { proven: resume };
            self.set_rate(resume * RESUME_SHARE);
            self.valid_from = now;
            self.loss.forget();
        }
    }

    pub(super) fn on_delivered(&mut self, round: u32, bytes: usize) {
        if let Some(round) = self.round_mut(round) {
            round.delivered += 1;
            round.delivered_bytes += bytes as u64;
        }
    }

    pub(super) fn on_lost(&mut self, round: u32) {
        self.silent_losses = self.silent_losses.saturating_add(1);
        if let Some(round) = self.round_mut(round) {
            round.lost += 1;
        }
    }

    /// Several long packets in a row are lost: perhaps for their length, which is no reason to send less.
    pub(super) fn on_path_doubted(&mut self, now: Time) {
        let (before, at) = self.fallen;
        let is_recent = now.micros_since(at) < RECENT_FALL_MICROS;
        self.undoubted = self.rate.max(if is_recent { before } else { 0.0 });
    }

    /// They were lost because of their length: the former rate is possible again.
    pub(super) fn on_path_shrunk(&mut self, now: Time) {
        let resume = self.undoubted.min(self.limit);
        if self.rate < resume && !matches!(self.state, State::Dark { .. }) {
            self.state = State::Start { proven: resume };
            self.set_rate(self.rate.max(resume * RESUME_SHARE));
            self.valid_from = now;
            self.loss.forget();
        }
    }

    /// A packet was acknowledged that had been declared lost.
    pub(super) fn on_spurious(&mut self, packets: u64) {
        self.loss.excess = (self.loss.excess - packets as f64).max(0.0);
    }

    /// How long a packet of `round` and its acknowledgement were under way, without what its own tick's packets before it
    /// and the ends took; and how long it waited somewhere, those packets included.
    pub(super) fn on_round_trip(&mut self, round: u32, micros: u32, waited_micros: u32) {
        self.latest_micros = micros;
        let Some(round) = self.round_mut(round) else { return };
        if round.samples == 0 {
            round.first_micros = micros;
        }
        round.samples += 1;
        round.last_micros = micros;
        round.smallest_micros = round.smallest_micros.min(micros);
        round.largest_micros = round.largest_micros.max(waited_micros);
    }

    /// Whether nothing gets through.
    pub(super) fn is_dark(&self) -> bool {
        matches!(self.state, State::Dark { .. })
    }

    /// Whether [`Control::advance`] may have something to judge.
    pub(super) fn may_judge(&self) -> bool {
        self.has_decided_round() || self.silent_losses >= MIN_SILENT_LOSSES
    }

    fn has_decided_round(&self) -> bool {
        self.rounds.front().is_some_and(Round::is_decided) || self.rounds.len() > MAX_ROUNDS
    }

    /// Judges the rounds that have all their verdicts.
    pub(super) fn advance(&mut self, now: Time, times: PathTimes) {
        let is_silent = now.micros_since(self.heard_at) >= times.silence_micros;
        if is_silent && self.silent_losses >= MIN_SILENT_LOSSES {
            self.go_dark();
        }
        while self.has_decided_round() {
            let Some(round) = self.rounds.pop_front() else { return };
            self.first_round = self.first_round.wrapping_add(1);
            self.judge(now, &round, times);
        }
    }

    fn go_dark(&mut self) {
        if !matches!(self.state, State::Dark { .. }) {
            let proven = if let State::Start { proven } = self.state { proven } else { 0.0 };
            // The first losses of the silence looked like those of a queue.
            let before = if self.fallen.1 > self.heard_at { self.fallen.0 } else { 0.0 };
            self.state = State::Dark { resume: self.rate.max(before).min(self.limit).max(proven) };
            self.set_rate(0.0);
        }
    }

    fn judge(&mut self, now: Time, round: &Round, times: PathTimes) {
        let seconds = round.seconds(now);
        let arrived = round.arrived_bytes_per_s(seconds);
        self.delivered_bytes_per_s = arrived as u32;
        if round.began < self.valid_from || matches!(self.state, State::Dark { .. }) {
            return;
        }
        self.note_base(times);
        let own_micros = self.base_micros.saturating_add(self.residue_micros(now));
        let queue_micros = (round.samples > 0).then(|| round.smallest_micros.saturating_sub(own_micros));
        self.loss.note(round);
        let is_used = round.sent_bytes as f64 >= USED_SHARE * round.rate.min(self.limit) * seconds;
        let judged = Judged { now, seconds, arrived, queue_micros, is_used, lost: round.lost, times };
        match self.state {
            State::Drain { .. } => self.drain(&judged, round),
            State::Compete(rival) => self.compete(&judged, rival),
            _ if queue_micros > Some(self.tolerance_micros) => self.begin_drain(&judged, arrived, self.rival(&judged)),
            _ if self.loss.is_too_much() => self.fall(&judged),
            State::Start { proven } => self.start(&judged, proven),
            State::Rise { ceiling, beyond_s } => self.rise(&judged, ceiling, beyond_s),
            State::Dark { .. } => {}
        }
    }

    /// While others may fill the queue, the smallest round trip that was seen stays the path's own, unless the round trip
    /// no longer changes with the traffic: then the path itself has become longer.
    fn note_base(&mut self, times: PathTimes) {
        let is_rivalled = matches!(self.state, State::Compete(_) | State::Drain { .. });
        let is_flat = times.smoothed_micros.saturating_sub(times.smallest_micros) < self.tolerance_micros / 2;
        if !is_rivalled || is_flat || times.smallest_micros < self.base_micros {
            self.base_micros = times.smallest_micros;
        }
    }

    fn start(&mut self, judged: &Judged, proven: f64) {
        if judged.is_used || self.rate < proven {
            self.set_rate(self.rate * 2.0);
        }
        if proven > 0.0 && self.rate >= proven {
            self.set_rate(proven);
            self.begin_rise(proven);
        }
    }

    fn fall(&mut self, judged: &Judged) {
        let before = self.rate;
        if self.loss.blame(before) {
            self.fallen = (before, judged.now);
            self.set_rate(AFTER_LOSS_SHARE * judged.arrived.min(before));
            self.valid_from = judged.now;
        }
        self.begin_rise(judged.arrived.min(before).max(self.rate));
    }

    fn begin_rise(&mut self, ceiling: f64) {
        self.state = State::Rise { ceiling, beyond_s: 0.0 };
    }

    fn rise(&mut self, judged: &Judged, ceiling: f64, beyond_s: f64) {
        if !judged.is_used {
            return;
        }
        let is_beyond = self.rate >= ceiling;
        let beyond_s = if is_beyond { beyond_s + judged.seconds } else { 0.0 };
        let slope = if is_beyond { BEYOND_SLOPE + 3.0 * RISE * beyond_s * beyond_s } else { SLOPE };
        let share = 1.0 - f64::from(judged.queue_micros.unwrap_or(0)) / f64::from(self.tolerance_micros.max(1));
        let step = slope * judged.seconds * share.max(LEAST_RISE);
        self.set_rate((self.rate + step).min(self.rate * MAX_STEP));
        self.state = State::Rise { ceiling, beyond_s };
    }

    fn residue_micros(&self, now: Time) -> u32 {
        let (micros, until) = self.residue;
        if now < until { micros } else { 0 }
    }

    fn is_queue_gone(&self, judged: &Judged) -> bool {
        judged.queue_micros.is_some_and(|micros| micros < self.tolerance_micros / 2)
    }

    fn begin_drain(&mut self, judged: &Judged, ceiling: f64, rival: Rival) {
        self.set_rate(DRAIN_SHARE * judged.arrived.min(self.rate));
        self.valid_from = judged.now;
        self.state = State::Drain { ceiling, lowest_micros: u32::MAX, lowest_at: judged.now, rival };
    }

    fn drain(&mut self, judged: &Judged, round: &Round) {
        let State::Drain { ceiling, lowest_micros, lowest_at, rival } = self.state else { return };
        if self.is_queue_gone(judged) {
            return self.end_drain(judged, ceiling);
        }
        let queue_micros = judged.queue_micros.unwrap_or(0);
        let least_micros = self.tolerance_micros / 8 + queue_micros / 20;
        let is_shrinking = lowest_micros.saturating_sub(round.smallest_micros) > least_micros;
        let patience_micros = MIN_PATIENCE_MICROS.max(PATIENCE_ROUND_TRIPS * u64::from(judged.times.smoothed_micros));
        if is_shrinking {
            let (lowest_micros, lowest_at) = (round.smallest_micros, judged.now);
            self.state = State::Drain { ceiling, lowest_micros, lowest_at, rival };
        } else if judged.now.micros_since(lowest_at) > patience_micros {
            let residue_micros = self.residue_micros(judged.now) + queue_micros;
            if residue_micros < SHORT_RESIDUE_MICROS {
                self.residue = (residue_micros, Time(judged.now.0.saturating_add(RESIDUE_MICROS)));
                self.end_drain(judged, ceiling);
            } else {
                self.state = State::Compete(rival);
                self.set_window(judged, rival.window);
                self.valid_from = judged.now;
            }
        }
    }

    fn end_drain(&mut self, judged: &Judged, ceiling: f64) {
        self.set_rate(AFTER_DRAIN_SHARE * ceiling);
        self.begin_rise(ceiling);
        self.valid_from = judged.now;
    }

    /// A window that gives the present rate.
    fn rival(&self, judged: &Judged) -> Rival {
        let window = (self.rate.min(self.limit) * judged.round_trip_s() / PACKET_BYTES).max(2.0);
        let test_at = judged.test_at();
        Rival { window, largest: window, return_s: 0.0, cut_at: judged.now, friendly: window, test_at }
    }

    fn compete(&mut self, judged: &Judged, mut rival: Rival) {
        if self.is_queue_gone(judged) {
            return self.begin_rise(self.rate);
        }
        let is_lossy = judged.lost > 0;
        if is_lossy {
            rival.cut(judged.now);
            self.valid_from = judged.now;
        } else if judged.is_used {
            rival.grow(judged.now, judged.seconds, judged.round_trip_s());
        }
        rival.window = rival.window.min(self.limit * judged.round_trip_s() / PACKET_BYTES).max(2.0);
        self.state = State::Compete(rival);
        self.set_window(judged, rival.window);
        // All who fill the queue lose at the same time: if they are like us, they drain it together.
        if judged.now >= rival.test_at && (is_lossy || judged.now.micros_since(rival.test_at) >= TEST_EVERY_MICROS) {
            rival.test_at = judged.test_at();
            self.begin_drain(judged, judged.arrived.min(self.rate), rival);
        }
    }

    fn set_window(&mut self, judged: &Judged, packets: f64) {
        self.set_rate(packets * PACKET_BYTES / judged.round_trip_s());
    }

    fn set_rate(&mut self, bytes_per_s: f64) {
        self.rate = bytes_per_s.min(self.limit).max(self.floor);
    }
}

impl Rival {
    fn cut(&mut self, now: Time) {
        self.largest = if self.window < self.largest { self.window * (1.0 + CUBIC_BETA) / 2.0 } else { self.window };
        self.window *= CUBIC_BETA;
        self.friendly = self.window;
        self.return_s = ((self.largest - self.window).max(0.0) / CUBIC_C).cbrt();
        self.cut_at = now;
    }

    fn grow(&mut self, now: Time, seconds: f64, round_trip_s: f64) {
        let grown_s = now.micros_since(self.cut_at) as f64 / MICROS_PER_S;
        self.friendly += CUBIC_ALPHA * seconds / round_trip_s;
        let cubic = self.largest + CUBIC_C * (grown_s - self.return_s).powi(3);
        self.window = cubic.max(self.friendly).clamp(self.window, self.window * 1.5);
    }
}

/// A round, and what it says.
struct Judged {
    now: Time,
    seconds: f64,
    arrived: f64,
    /// `None` if there was no sample.
    queue_micros: Option<u32>,
    is_used: bool,
    lost: u32,
    times: PathTimes,
}

impl Judged {
    /// When a rival's queue is to be tested next.
    fn test_at(&self) -> Time {
        Time(self.now.0.saturating_add(TEST_EVERY_MICROS))
    }

    fn round_trip_s(&self) -> f64 {
        f64::from(self.times.smoothed_micros.max(1_000)) / MICROS_PER_S
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMIT: u32 = 100_000;
    const FLOOR: u32 = 4_800;

    /// The calls of a session to its control, in any order that a hostile peer can cause.
    #[derive(Clone, Debug)]
    enum Word {
        Send(usize),
        Delivered(u32, usize),
        Lost(u32),
        Spurious(u64),
        RoundTrip(u32, u32, u32),
        Heard,
        Wait(u64),
        Limit(u32),
    }

    fn word() -> impl Strategy<Value = Word> {
        prop_oneof![
            4 => (1usize..1_300).prop_map(Word::Send),
            3 => (any::<u32>().prop_map(|round| round % 40), 0usize..100_000).prop_map(|(r, b)| Word::Delivered(r, b)),
            2 => (0u32..40).prop_map(Word::Lost),
            1 => any::<u64>().prop_map(Word::Spurious),
            2 => (0u32..40, 0u32..60_000_000, 0u32..60_000_000).prop_map(|(r, a, b)| Word::RoundTrip(r, a, b)),
            1 => Just(Word::Heard),
            3 => (0u64..3_000_000).prop_map(Word::Wait),
            1 => (1u32..LIMIT).prop_map(Word::Limit),
        ]
    }

    /// A control whose stream has used its rate for a second, and lost nothing.
    fn busy() -> (Control, Time) {
        let (mut control, mut now) = (Control::new(LIMIT, LIMIT, FLOOR, 40_000, Time(0)), Time(0));
        for _ in 0..100 {
            let round = control.on_sent(now, 1_000, 50_000);
            control.on_delivered(round, 1_000);
            control.on_round_trip(round, 20_000, 0);
            control.on_heard(now);
            now = Time(now.0 + 10_000);
            control.advance(now, TIMES);
        }
        (control, now)
    }

    const TIMES: PathTimes = PathTimes { smoothed_micros: 20_000, smallest_micros: 20_000, silence_micros: 200_000 };

    #[test]
    fn a_pause_after_a_burst_that_lost_packets_does_not_count_as_time_in_which_little_arrived() {
        let rate_after = |pause_micros: u64| {
            let (mut control, mut now) = busy();
            now = Time(now.0 + 1_000_000);
            let rounds: Vec<u32> = (0..30).map(|_| control.on_sent(now, 1_000, 50_000)).collect();
            for (number, &round) in rounds.iter().enumerate() {
                match number % 2 {
                    0 => control.on_delivered(round, 1_000),
                    _ => control.on_lost(round),
                }
            }
            control.on_heard(now);
            now = Time(now.0 + pause_micros);
            control.on_sent(now, 1_000, 50_000);
            control.advance(now, TIMES);
            control.rate()
        };
        let at_once = rate_after(MIN_ROUND_MICROS);
        assert!((FLOOR + 1..LIMIT).contains(&at_once), "it falls for the losses: {at_once}");
        for pause_micros in [2_000_000, 10_000_000, 600_000_000] {
            assert_eq!(rate_after(pause_micros), at_once, "{pause_micros} us");
        }
    }

    proptest! {
        #![proptest_config(throng_seeds::cases(256))]

        #[test]
        fn no_pattern_of_acknowledgements_takes_the_rate_out_of_its_bounds(
            words in prop::collection::vec(word(), 1..400),
            times in (0u32..60_000_000, 0u32..60_000_000, 0u64..5_000_000),
        ) {
            let mut control = Control::new(64_000, LIMIT, FLOOR, 40_000, Time(0));
            let (mut now, mut limit) = (Time(0), LIMIT);
            let times = PathTimes { smoothed_micros: times.0, smallest_micros: times.1, silence_micros: times.2 };
            for word in words {
                match word {
                    Word::Send(bytes) => drop(control.on_sent(now, bytes, 50_000)),
                    Word::Delivered(round, bytes) => control.on_delivered(round, bytes),
                    Word::Lost(round) => control.on_lost(round),
                    Word::Spurious(packets) => control.on_spurious(packets),
                    Word::RoundTrip(round, micros, waited) => control.on_round_trip(round, micros, waited),
                    Word::Heard => control.on_heard(now),
                    Word::Wait(micros) => now = Time(now.0 + micros),
                    Word::Limit(bytes_per_s) => {
                        limit = bytes_per_s;
                        control.set_limit(limit);
                    }
                }
                control.advance(now, times);
                prop_assert!((1..=limit).contains(&control.rate()), "{} of {limit}", control.rate());
                prop_assert!(control.rate() >= FLOOR.min(limit) - 1, "{} with {limit}", control.rate());
                prop_assert!(control.rounds.len() <= 2 * MAX_ROUNDS);
            }
        }
    }

    #[test]
    fn a_stream_below_its_rate_neither_gains_nor_loses() {
        let mut control = Control::new(64_000, LIMIT, FLOOR, 40_000, Time(0));
        let times = PathTimes { smoothed_micros: 50_000, smallest_micros: 50_000, silence_micros: 500_000 };
        for tick in 0..3_000 {
            let now = Time(tick * 33_333);
            let round = control.on_sent(now, 150, 50_000);
            control.on_delivered(round, 150);
            control.on_heard(now);
            control.on_round_trip(round, 50_000, 0);
            control.advance(now, times);
        }
        assert_eq!(control.rate(), 64_000);
    }

    #[test]
    fn losses_that_turn_out_to_be_none_do_not_slow_the_stream() {
        let rate_after = |spurious| {
            let mut control = Control::new(64_000, LIMIT, FLOOR, 40_000, Time(0));
            let times = PathTimes { smoothed_micros: 50_000, smallest_micros: 50_000, silence_micros: 500_000 };
            for tick in 0..300 {
                let now = Time(tick * 33_333);
                let round = control.on_sent(now, 150, 50_000);
                if tick % 5 == 0 {
                    control.on_lost(round);
                    control.on_spurious(spurious);
                } else {
                    control.on_delivered(round, 150);
                    control.on_heard(now);
                    control.on_round_trip(round, 50_000, 0);
                }
                control.advance(now, times);
            }
            control.rate()
        };
        assert_eq!(rate_after(1), 64_000);
        assert!(rate_after(0) < 20_000, "{}", rate_after(0));
    }

    /// RFC 9438, section 4.6 and 4.7.
    #[test]
    fn a_rival_returns_to_the_window_at_which_it_lost_and_makes_room_after_a_second_loss() {
        let now = Time::from_secs(1);
        let mut rival =
            Rival { window: 100.0, largest: 100.0, return_s: 0.0, cut_at: now, friendly: 100.0, test_at: now };
        rival.cut(now);
        assert_eq!((rival.window, rival.largest), (70.0, 100.0));
        let returns = now.after(std::time::Duration::from_secs_f64(rival.return_s));
        rival.grow(returns, 0.0, 0.1);
        assert!((99.9..=100.0).contains(&rival.window), "{}", rival.window);
        rival.window = 80.0;
        rival.cut(returns);
        assert_eq!((rival.window, rival.largest), (56.0, 68.0));
    }
}
