//! How long datagrams may be: the search for what the path carries, after RFC 8899 (DPLPMTUD).
//!
//! A session begins with datagrams of 1,200 bytes, which nearly every path carries. When they do not arrive, it sends
//! datagrams as long as the handshake's request, which has just passed the path, and tries longer ones with *size probes*:
//! packets of padding that ask for an acknowledgement. Nothing else is lost with a probe, and its loss says nothing about
//! congestion.
//!
//! ```text
//!        long packets vanish              the probe is lost three times
//! Sure ----------------------> Doubt --------------------------------------> Search
//! 1,200 <--------------------- 1,078, and probes as long as before           1,078, and probes in between
//!        the probe arrives                                                     |   ^
//!                                                        a gap of 16 bytes     v   |   full packets, 10 minutes later
//!                                                                             Done
//! ```
//!
//! - *Doubt* begins when [`DOUBTED_LOSSES`] long packets in a row are lost and none that was sent after them has arrived
//!   (a black hole: RFC 8899 section 4.3); at the first loss before any long packet has arrived. From then on packets are
//!   short, so that data flows whatever the reason is. Full queues lose long packets too, but not one after the other
//!   without end; and then the first probe ends the doubt. So congestion does not shrink the path.
//! - *Search* halves the gap between what has arrived and what has not. Three probes of one length have to be lost. A lost
//!   probe counts only if a packet that was sent after it has arrived: an outage loses probes of every length.
//! - A local interface that refuses a length is believed at once ([`PathSize::on_refused`]).
//!
//! A peer that lies about what has arrived gets datagrams that are too long for its own path, or too short.

use throng_wire::Time;

use super::flight::Sent;
use super::wire::HEADER_MAX_BYTES;

/// Datagrams of this length pass: the request that opened the connection has it. The session never goes below.
pub const MIN_DATAGRAM_BYTES: usize = crate::netcode::REQUEST_LEN;

/// The longest datagram, and what a session begins with (RFC 8899 section 5.1.2, BASE_PLPMTU). The standard would allow 18
/// bytes more.
pub const MAX_DATAGRAM_BYTES: usize = 1_200;

/// The room behind the session's own part of a whole packet, on every path, if it has neither messages nor inputs.
pub const MIN_REST_BYTES: usize = MIN_DATAGRAM_BYTES - crate::netcode::SEAL_OVERHEAD_MAX - HEADER_MAX_BYTES;

/// This many probes of one length have to be lost (RFC 8899 section 5.1.2, MAX_PROBES).
const MAX_TRIES: u8 = 3;

/// A gap of this many bytes is not worth a probe.
const NARROW_BYTES: u16 = 16;

/// A path that carries less than the longest is searched again after this time (RFC 8899 section 5.1.1,
/// PMTU_RAISE_TIMER).
const SEARCH_AGAIN_MICROS: u64 = 600_000_000;

/// Long packets that are lost in a row before the path is doubted, once one has arrived.
const DOUBTED_LOSSES: u8 = 6;

const MIN: u16 = MIN_DATAGRAM_BYTES as u16;
const MAX: u16 = MAX_DATAGRAM_BYTES as u16;

/// The known limits of the path.
#[derive(Debug)]
pub(super) struct PathSize {
    /// Datagrams of this length have arrived, or are taken to.
    proven: u16,
    /// A long packet has arrived on this path.
    has_passed: bool,
    /// Datagrams of this length do not arrive.
    fails: u16,
    /// Full packets are sent, so longer ones would be of use.
    is_wanted: bool,
    /// Long packets vanish, and it is not known why.
    is_doubted: bool,
    /// Lost probes of the present length.
    tries: u8,
    /// Long packets lost in a row.
    losses: u8,
    /// The shortest of them.
    shortest_lost: u16,
    /// The probe in flight, and its length.
    probe: Option<(u64, u16)>,
    /// No probe is sent before a packet with this number or a later one has arrived.
    heard_from: u64,
    is_heard: bool,
    /// The newest long packet that has arrived.
    newest_long: Option<u64>,
    /// When the search may begin again.
    search_again_at: Time,
}

/// The conclusion from a lost packet about the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SizeVerdict {
    /// Nothing.
    Nothing,
    /// It may have become shorter.
    Doubted,
    /// It has become shorter.
    Shrunk,
}

/// Whether a packet may have been too long for the path.
fn is_long(sent: &Sent) -> bool {
    sent.datagram_bytes > MIN
}

impl PathSize {
    pub(super) fn new() -> PathSize {
        PathSize {
            proven: MAX,
            has_passed: false,
            fails: MAX + 1,
            is_wanted: false,
            is_doubted: false,
            tries: 0,
            losses: 0,
            shortest_lost: MAX,
            probe: None,
            heard_from: 0,
            is_heard: false,
            newest_long: None,
            search_again_at: Time(0),
        }
    }

    /// The length of full datagrams.
    pub(super) fn datagram_bytes(&self) -> usize {
        usize::from(if self.is_doubted { MIN } else { self.proven })
    }

    /// The length of the next probe, and when it may be sent.
    pub(super) fn due(&self) -> Option<(usize, Time)> {
        if self.proven == MAX && !self.is_doubted || self.probe.is_some() || !self.is_heard {
            return None;
        }
        if self.is_doubted {
            return Some((usize::from(self.proven), Time(0)));
        }
        if !self.is_wanted {
            return None;
        }
        match self.is_done() {
            // The path may have become another one.
            true => Some((usize::from(MAX), self.search_again_at)),
            false => Some((usize::from(self.candidate()), Time(0))),
        }
    }

    /// Nothing longer is left to try.
    fn is_done(&self) -> bool {
        self.proven == MAX || self.fails - self.proven <= NARROW_BYTES
    }

    fn candidate(&self) -> u16 {
        match self.fails > MAX {
            true => MAX,
            false => self.proven + (self.fails - self.proven) / 2,
        }
    }

    /// A packet has become as long as it may be, or nearly.
    pub(super) fn on_full(&mut self) {
        self.is_wanted = true;
    }

    /// The probe that is due is sent.
    pub(super) fn on_probe(&mut self, sequence: u64) {
        let Some((bytes, _)) = self.due() else { return };
        if !self.is_doubted && self.is_done() {
            self.fails = MAX + 1;
            self.tries = 0;
        }
        self.probe = Some((sequence, bytes as u16));
    }

    pub(super) fn on_delivered(&mut self, sent: &Sent) {
        self.is_heard |= sent.sequence >= self.heard_from;
        if let Some((sequence, bytes)) = self.probe
            && sequence == sent.sequence
        {
            self.probe = None;
            self.tries = 0;
            self.proven = self.proven.max(bytes);
            self.fails = self.fails.max(self.proven + 1);
            self.end_if_done(sent.sent_at);
        }
        self.has_passed |= is_long(sent);
        // A packet shorter than the lost ones, or than full packets, says nothing about them.
        let is_row = self.losses > 0 || self.is_doubted;
        let least_bytes = if is_row { self.shortest_lost } else { self.proven - NARROW_BYTES };
        if is_long(sent) && sent.datagram_bytes >= least_bytes {
            self.newest_long = self.newest_long.max(Some(sent.sequence));
            self.losses = 0;
            self.is_doubted = false;
        }
    }

    /// `newest_sent` is the newest packet that was sent so far.
    pub(super) fn on_lost(&mut self, sent: &Sent, newest_sent: u64) -> SizeVerdict {
        match self.probe {
            Some((sequence, bytes)) if sequence == sent.sequence => {
                self.probe = None;
                self.on_probe_lost(sent, bytes, newest_sent)
            }
            _ if is_long(sent) && !sent.is_size_probe => self.on_long_lost(sent, newest_sent),
            _ => SizeVerdict::Nothing,
        }
    }

    fn on_probe_lost(&mut self, sent: &Sent, bytes: u16, newest_sent: u64) -> SizeVerdict {
        if !sent.is_overtaken {
            // Perhaps nothing passes at all.
            self.wait_for(newest_sent);
            return SizeVerdict::Nothing;
        }
        if self.is_doubted && bytes != self.proven {
            return SizeVerdict::Nothing;
        }
        self.tries += 1;
        if self.tries < MAX_TRIES {
            return SizeVerdict::Nothing;
        }
        self.tries = 0;
        self.fails = bytes;
        let is_shrunk = self.is_doubted;
        if is_shrunk {
            self.forget_proof();
        }
        self.end_if_done(sent.sent_at);
        if is_shrunk { SizeVerdict::Shrunk } else { SizeVerdict::Nothing }
    }

    fn on_long_lost(&mut self, sent: &Sent, newest_sent: u64) -> SizeVerdict {
        // The loss of those that were sent before the length fell says nothing new.
        let is_known = sent.datagram_bytes > self.proven;
        if is_known || self.is_doubted || self.newest_long.is_some_and(|newest| sent.sequence < newest) {
            return SizeVerdict::Nothing;
        }
        self.shortest_lost = match self.losses {
            0 => sent.datagram_bytes,
            _ => self.shortest_lost.min(sent.datagram_bytes),
        };
        self.losses += 1;
        if self.has_passed && self.losses < DOUBTED_LOSSES {
            return SizeVerdict::Nothing;
        }
        self.losses = 0;
        self.tries = 0;
        self.is_doubted = true;
        self.wait_for(newest_sent);
        SizeVerdict::Doubted
    }

    /// The local interface does not take datagrams of this length. False if the shortest are too long for it.
    pub(super) fn on_refused(&mut self, datagram_bytes: usize, now: Time) -> bool {
        if datagram_bytes <= MIN_DATAGRAM_BYTES {
            return false;
        }
        self.fails = self.fails.min(datagram_bytes.min(MAX_DATAGRAM_BYTES) as u16);
        self.tries = 0;
        if self.probe.is_some_and(|(_, bytes)| bytes >= self.fails) {
            self.probe = None;
        }
        if self.proven >= self.fails {
            self.forget_proof();
        }
        self.end_if_done(now);
        true
    }

    fn forget_proof(&mut self) {
        self.proven = MIN;
        self.has_passed = true;
        self.is_doubted = false;
        self.losses = 0;
        // They may have been lost for their length alone.
        self.is_wanted = true;
    }

    fn end_if_done(&mut self, now: Time) {
        if self.is_done() {
            self.search_again_at = Time(now.0.saturating_add(SEARCH_AGAIN_MICROS));
            // A session without data to send does not search.
            self.is_wanted = false;
        }
    }

    fn wait_for(&mut self, newest_sent: u64) {
        self.heard_from = newest_sent + 1;
        self.is_heard = false;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A path that carries datagrams up to a length, and a sender of full packets.
    struct Way {
        size: PathSize,
        carried: usize,
        sequence: u64,
        now: Time,
        probes: u32,
        shrinks: u32,
    }

    impl Way {
        fn new(carried: usize) -> Way {
            Way { size: PathSize::new(), carried, sequence: 0, now: Time(0), probes: 0, shrinks: 0 }
        }

        /// The next packet, and its verdict. It does not arrive if it is too long or `is_lost`; `is_overtaken` says whether
        /// later ones do.
        fn turn(&mut self, is_lost: bool, is_overtaken: bool) {
            self.now = Time(self.now.0 + 10_000);
            self.sequence += 1;
            let probe = self.size.due().filter(|&(_, at)| at <= self.now).map(|(bytes, _)| bytes);
            let bytes = probe.unwrap_or(self.size.datagram_bytes());
            match probe {
                Some(_) => self.size.on_probe(self.sequence),
                None => self.size.on_full(),
            }
            self.probes += u32::from(probe.is_some());
            let sent = Sent::in_a_test(self.sequence, self.now, bytes, probe.is_some(), is_overtaken);
            if bytes <= self.carried && !is_lost {
                self.size.on_delivered(&sent);
            } else {
                let verdict = self.size.on_lost(&sent, self.sequence);
                self.shrinks += u32::from(verdict == SizeVerdict::Shrunk);
            }
        }

        fn turns(&mut self, count: u32) {
            (0..count).for_each(|_| self.turn(false, true));
        }

        /// The length is found within 60 turns, and nobody probes in so many turns after that.
        fn finds_and_ends(&mut self, turns: u32) {
            self.turns(60);
            assert!(self.is_found(), "{} of {}", self.size.datagram_bytes(), self.carried);
            let probes = self.probes;
            self.turns(turns);
            assert_eq!(self.probes, probes, "the search has an end");
        }

        fn is_found(&self) -> bool {
            let bytes = self.size.datagram_bytes();
            bytes <= self.carried && bytes + usize::from(NARROW_BYTES) >= self.carried.min(MAX_DATAGRAM_BYTES)
        }
    }

    #[test]
    fn packets_that_the_interface_has_refused_leave_no_doubt_when_they_count_as_lost() {
        for (carried, turns) in (MIN_DATAGRAM_BYTES..MAX_DATAGRAM_BYTES).flat_map(|bytes| [(bytes, 0), (bytes, 3)]) {
            let mut way = Way::new(carried);
            let refused: Vec<Sent> = (1..=8)
                .map(|sequence| {
                    way.size.on_full();
                    assert!(way.size.on_refused(MAX_DATAGRAM_BYTES, way.now));
                    Sent::in_a_test(sequence, way.now, MAX_DATAGRAM_BYTES, false, true)
                })
                .collect();
            way.sequence = 8;
            way.turns(turns);
            for sent in &refused {
                assert_eq!(way.size.on_lost(sent, way.sequence), SizeVerdict::Nothing);
            }
            way.finds_and_ends(1_000);
        }
    }

    #[test]
    fn packets_from_before_a_refusal_leave_no_doubt_although_they_are_shorter_than_it() {
        let mut way = Way::new(MAX_DATAGRAM_BYTES);
        way.turns(20);
        let earlier: Vec<Sent> = (21..=30)
            .map(|sequence| Sent::in_a_test(sequence, way.now, MAX_DATAGRAM_BYTES - 50, false, true))
            .collect();
        way.sequence = 30;
        assert!(way.size.on_refused(MAX_DATAGRAM_BYTES, way.now));
        way.carried = MIN_DATAGRAM_BYTES + 20;
        for sent in &earlier {
            assert_eq!(way.size.on_lost(sent, way.sequence), SizeVerdict::Nothing);
        }
        way.finds_and_ends(1_000);
    }

    #[test]
    fn what_a_path_carries_is_found_whatever_it_is() {
        for carried in MIN_DATAGRAM_BYTES..MAX_DATAGRAM_BYTES + 20 {
            let mut way = Way::new(carried);
            way.finds_and_ends(10_000);
            assert!(way.probes <= 24, "{} probes for {carried}", way.probes);
        }
    }

    #[test]
    fn a_path_that_becomes_shorter_or_longer_is_found() {
        let mut way = Way::new(MAX_DATAGRAM_BYTES);
        way.turns(100);
        assert_eq!((way.probes, way.shrinks), (0, 0), "nothing is asked where everything arrives");
        way.carried = 1_150;
        way.turns(60);
        assert!(way.is_found() && way.shrinks == 1, "{}", way.size.datagram_bytes());
        way.carried = 1_100;
        way.turns(60);
        assert!(way.is_found() && way.shrinks == 2, "{}", way.size.datagram_bytes());
        way.carried = MAX_DATAGRAM_BYTES;
        way.turns(50_000);
        assert!(!way.is_found(), "it is asked again after ten minutes");
        way.turns(10_200);
        assert_eq!(way.size.datagram_bytes(), MAX_DATAGRAM_BYTES);
    }

    #[test]
    fn losses_that_have_nothing_to_do_with_the_length_do_not_shrink_the_path() {
        let mut random = fastrand::Rng::with_seed(2);
        let mut way = Way::new(MAX_DATAGRAM_BYTES);
        for _ in 0..2_000 {
            // Long enough for a doubt, and for one probe.
            let burst = random.u32(1..9);
            (0..burst).for_each(|_| way.turn(true, true));
            way.turns(random.u32(2..10));
        }
        assert!(way.probes > 100, "{} probes", way.probes);
        assert_eq!(way.shrinks, 0);
    }

    #[test]
    fn nobody_probes_while_nothing_arrives() {
        let mut way = Way::new(MAX_DATAGRAM_BYTES);
        way.turns(20);
        (0..1_000).for_each(|_| way.turn(true, false));
        assert_eq!(way.probes, 0);
        way.turns(3);
        assert_eq!((way.probes, way.shrinks, way.size.datagram_bytes()), (1, 0, MAX_DATAGRAM_BYTES));
    }

    #[test]
    fn a_refusal_of_a_longer_datagram_leaves_a_shorter_proof() {
        let mut way = Way::new(1_120);
        way.turns(60);
        assert!(way.is_found());
        let proven = way.size.datagram_bytes();
        assert!(way.size.on_refused(1_190, way.now));
        assert_eq!(way.size.datagram_bytes(), proven, "it was refused for another length");
    }

    #[test]
    fn what_the_interface_refuses_is_not_tried() {
        let mut way = Way::new(MAX_DATAGRAM_BYTES);
        assert!(way.size.on_refused(1_150, way.now));
        assert_eq!(way.size.datagram_bytes(), MIN_DATAGRAM_BYTES);
        way.carried = 1_149;
        way.turns(60);
        assert!(way.is_found(), "{}", way.size.datagram_bytes());
        assert!(!way.size.on_refused(MIN_DATAGRAM_BYTES, way.now), "there is nothing shorter");
    }

    #[test]
    fn the_shortest_datagrams_say_nothing_about_longer_ones() {
        let mut size = PathSize::new();
        for sequence in 0..20 {
            let sent = Sent::in_a_test(sequence, Time(0), MIN_DATAGRAM_BYTES, false, true);
            assert_eq!(size.on_lost(&sent, sequence), SizeVerdict::Nothing);
        }
        assert_eq!(size.datagram_bytes(), MAX_DATAGRAM_BYTES);
    }

    #[test]
    fn packets_that_are_shorter_than_the_lost_ones_do_not_prove_the_path() {
        let mut way = Way::new(MAX_DATAGRAM_BYTES);
        way.turns(20);
        for _ in 0..DOUBTED_LOSSES {
            way.turn(true, true);
            let shorter = Sent::in_a_test(way.sequence, way.now, MAX_DATAGRAM_BYTES - 100, false, true);
            way.size.on_delivered(&shorter);
        }
        assert_eq!(way.size.datagram_bytes(), MIN_DATAGRAM_BYTES);
    }

    #[test]
    fn a_probe_that_the_interface_refuses_meanwhile_is_not_waited_for() {
        let mut size = PathSize::new();
        size.on_refused(1_150, Time(0));
        size.on_delivered(&Sent::in_a_test(1, Time(0), MIN_DATAGRAM_BYTES, false, true));
        let (probe_bytes, _) = size.due().expect("the path may carry more");
        size.on_probe(2);
        size.on_refused(probe_bytes + 1, Time(0));
        assert_eq!(size.due(), None, "the probe is under way");
        size.on_refused(probe_bytes, Time(0));
        assert!(size.due().is_some_and(|(bytes, _)| bytes < probe_bytes), "{:?}", size.due());
    }

    proptest! {
        #![proptest_config(throng_seeds::cases(256))]

        #[test]
        fn no_pattern_of_verdicts_takes_the_length_out_of_its_bounds(
            words in prop::collection::vec((0u8..5, 0u64..40, 0usize..1_400, any::<bool>()), 1..400),
        ) {
            let mut size = PathSize::new();
            for (number, (word, back, bytes, flag)) in (0u64..).zip(words) {
                let now = Time(number * 20_000_000);
                let is_probe = size.due().is_some_and(|(_, at)| at <= now);
                if is_probe {
                    size.on_probe(number);
                }
                let sent = Sent::in_a_test(number.saturating_sub(back), now, bytes, flag, !flag);
                match word {
                    0 => size.on_full(),
                    1 | 2 => drop(size.on_lost(&sent, number)),
                    3 => size.on_delivered(&sent),
                    _ => drop(size.on_refused(bytes, now)),
                }
                prop_assert!((MIN_DATAGRAM_BYTES..=MAX_DATAGRAM_BYTES).contains(&size.datagram_bytes()));
                prop_assert!(size.proven < size.fails);
            }
        }
    }
}
