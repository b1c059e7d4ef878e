//! The received packets, and the acknowledgements for them.

use throng_wire::Time;

use super::wire::{ACK_REACH, ACK_WAITING_MAX, Ack, AckBits, AckDelay, Width};

/// Sequences behind the newest that are remembered. As wide as netcode's replay window, so that what passes there is
/// never too old here.
pub(super) const HISTORY_PACKETS: u64 = ACK_REACH;
const WORDS: usize = (HISTORY_PACKETS / 64) as usize;

/// The history's answer about a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Novelty {
    New,
    Duplicate,
    TooOld,
}

/// The newest received sequence and the [`HISTORY_PACKETS`] before it.
#[derive(Debug, Default)]
pub(super) struct Received {
    newest: Option<u64>,
    newest_at: Time,
    /// Bit i of the whole: `newest - 1 - i` was received.
    before: [u64; WORDS],
    /// The oldest sequence whose arrival (or absence) the peer may not know.
    untold: u64,
    /// Only our packets from this sequence on tell of everything up to their `told`: a packet that came late was not
    /// mentioned in those before.
    telling_from: u64,
    /// Packets since we last sent one whose sender waits for an acknowledgement.
    waiting: u32,
    /// When the first of those came.
    waiting_since: Time,
}

impl Received {
    /// See [`Session::fetch`](super::Session::fetch).
    pub(super) fn fetch(&self) -> u64 {
        self.newest_at.0 ^ self.untold ^ self.waiting_since.0
    }

    pub(super) fn newest(&self) -> Option<u64> {
        self.newest
    }

    pub(super) fn novelty(&self, sequence: u64) -> Novelty {
        let Some(newest) = self.newest else { return Novelty::New };
        if sequence > newest {
            return Novelty::New;
        }
        let behind = newest - sequence;
        if behind == 0 {
            return Novelty::Duplicate;
        }
        if behind > HISTORY_PACKETS {
            return Novelty::TooOld;
        }
        let bit = behind - 1;
        if self.before[(bit / 64) as usize] >> (bit % 64) & 1 == 1 { Novelty::Duplicate } else { Novelty::New }
    }

    /// Enters a sequence that is [`Novelty::New`]. `next_sent` is the lowest sequence that our next packet can have.
    pub(super) fn insert(&mut self, now: Time, sequence: u64, next_sent: u64) {
        match self.newest {
            Some(newest) if sequence < newest => {
                let bit = newest - sequence - 1;
                self.before[(bit / 64) as usize] |= 1 << (bit % 64);
                self.untold = self.untold.min(sequence);
                self.telling_from = next_sent;
            }
            Some(newest) => {
                self.shift(sequence - newest);
                self.newest = Some(sequence);
                self.newest_at = now;
            }
            None => {
                self.newest = Some(sequence);
                self.newest_at = now;
                self.untold = sequence;
            }
        }
    }

    /// Moves the window on by `by`, at least 1, and enters the former newest.
    fn shift(&mut self, by: u64) {
        if by > HISTORY_PACKETS {
            self.before = [0; WORDS];
            return;
        }
        if by < 64 {
            for i in (1..WORDS).rev() {
                self.before[i] = self.before[i] << by | self.before[i - 1] >> (64 - by);
            }
            self.before[0] = self.before[0] << by | 1 << (by - 1);
            return;
        }
        let (words, bits) = ((by / 64) as usize, by % 64);
        for i in (0..WORDS).rev() {
            let low = if i >= words { self.before[i - words] } else { 0 };
            let lower = if i > words { self.before[i - words - 1] } else { 0 };
            self.before[i] = if bits == 0 { low } else { low << bits | lower >> (64 - bits) };
        }
        let former = by - 1;
        self.before[(former / 64) as usize] |= 1 << (former % 64);
    }

    /// Notes that the sender of a received packet waits for an acknowledgement.
    pub(super) fn note_waiting(&mut self, now: Time) {
        if self.waiting == 0 {
            self.waiting_since = now;
        }
        self.waiting += 1;
    }

    /// Packets that wait for an acknowledgement, and since when; `None` if there are none.
    pub(super) fn waiting(&self) -> Option<(u32, Time)> {
        (self.waiting > 0).then_some((self.waiting, self.waiting_since))
    }

    /// The acknowledgement for a packet that is sent now has been written, and nothing waits for one any more.
    pub(super) fn note_answered(&mut self) {
        self.waiting = 0;
    }

    /// The acknowledgement for a packet that is sent now: the narrowest that covers everything that the peer may not
    /// know.
    pub(super) fn acknowledge(&self, now: Time) -> Option<Ack> {
        let newest = self.newest?;
        let span = newest.saturating_sub(self.untold);
        let required = u64::from(u32::MAX) >> 32u64.saturating_sub(newest);
        let width = match span <= 32 && self.before[0] & required == required {
            true => Width::All32,
            false => Width::reaching(span),
        };
        let delay = AckDelay::from_micros(now.micros_since(self.newest_at));
        Some(Ack { newest: newest as u16, delay, width, bits: AckBits(self.before) })
    }

    /// Our packet `sequence`, written when `told` was the newest received, has arrived.
    pub(super) fn confirm(&mut self, sequence: u64, told: u64) {
        if sequence >= self.telling_from {
            self.untold = self.untold.max(told + 1);
        }
    }

    /// Whether so many packets wait that an acknowledgement soon would not reach back to the first.
    pub(super) fn is_overdue(&self) -> bool {
        self.waiting >= ACK_WAITING_MAX
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(throng_seeds::cases(256))]

        #[test]
        fn the_history_agrees_with_a_set(steps in prop::collection::vec((0u64..400, 0u64..300), 1..300)) {
            let mut received = Received::default();
            let mut oracle = BTreeSet::new();
            let mut head = 0u64;
            for (forward, back) in steps {
                head += forward / 20;
                let sequence = (head + 3).saturating_sub(back);
                let newest = oracle.last().copied();
                let expected = match newest {
                    _ if oracle.contains(&sequence) && newest.unwrap() - sequence <= HISTORY_PACKETS => Novelty::Duplicate,
                    Some(newest) if sequence + HISTORY_PACKETS < newest => Novelty::TooOld,
                    _ => Novelty::New,
                };
                prop_assert_eq!(received.novelty(sequence), expected);
                if expected == Novelty::New {
                    received.insert(Time(0), sequence, 0);
                    oracle.insert(sequence);
                }
                let newest = *oracle.last().unwrap();
                let ack = received.acknowledge(Time(0)).unwrap();
                for behind in 1..=newest.min(256) {
                    prop_assert_eq!(ack.bits.has(behind), oracle.contains(&(newest - behind)), "{} behind", behind);
                }
                if ack.width == Width::All32 {
                    prop_assert!((1..=newest.min(32)).all(|i| oracle.contains(&(newest - i))));
                }
            }
        }
    }

    #[test]
    fn the_acknowledgement_is_no_wider_than_needed() {
        let mut received = Received::default();
        let width = |r: &mut Received| r.acknowledge(Time(0)).unwrap().width;
        for sequence in 0..5 {
            received.insert(Time(0), sequence, 0);
        }
        assert_eq!(width(&mut received), Width::All32);
        received.insert(Time(0), 6, 0);
        assert_eq!(width(&mut received), Width::Bits8);
        received.insert(Time(0), 20, 0);
        assert_eq!(width(&mut received), Width::Bits32);
        received.insert(Time(0), 50, 0);
        assert_eq!(width(&mut received), Width::Wide(7));
        received.confirm(7, 50);
        received.insert(Time(0), 52, 8);
        assert_eq!(width(&mut received), Width::Bits8);
        // 30 comes late: our packets before sequence 12 did not tell of it, whatever they confirm.
        received.insert(Time(0), 30, 12);
        received.confirm(11, 52);
        assert_eq!(width(&mut received), Width::Bits32);
        received.confirm(12, 52);
        assert_eq!(width(&mut received), Width::Bits8);
        received.insert(Time(0), 53 + 1_000, 13);
        assert_eq!(width(&mut received), Width::Wide(32));
    }
}
