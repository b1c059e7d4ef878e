/// How many of the newest sequence numbers a receiver remembers. Older packets count as replayed.
pub const REPLAY_WINDOW: u64 = 256;

const WORD_BITS: u64 = 64;
/// Twice the window, so that a word is cleared long before the window reaches it (RFC 6479 explains the method).
const WORDS: u64 = 2 * REPLAY_WINDOW / WORD_BITS;

/// Which sequence numbers have been received: a bit for each of the newest [`REPLAY_WINDOW`] of them.
///
/// Asking and marking are separate, because only an authenticated packet may move the window.
#[derive(Debug, Clone, Default)]
pub struct ReplayWindow {
    newest: u64,
    words: [u64; WORDS as usize],
}

impl ReplayWindow {
    /// The newest that was marked, 0 before any.
    pub fn newest(&self) -> u64 {
        self.newest
    }

    /// Whether `sequence` was marked before, or is too old to tell.
    #[inline]
    pub fn is_replayed(&self, sequence: u64) -> bool {
        if sequence > self.newest {
            return false;
        }
        self.newest - sequence >= REPLAY_WINDOW || self.words[word(sequence)] & bit(sequence) != 0
    }

    /// Marks `sequence` as received. Does nothing when it is older than the window.
    #[inline]
    pub fn mark(&mut self, sequence: u64) {
        if sequence > self.newest {
            let steps = (sequence / WORD_BITS - self.newest / WORD_BITS).min(WORDS);
            for step in 0..steps {
                self.words[word(sequence - step * WORD_BITS)] = 0;
            }
            self.newest = sequence;
        } else if self.newest - sequence >= REPLAY_WINDOW {
            return;
        }
        self.words[word(sequence)] |= bit(sequence);
    }
}

fn word(sequence: u64) -> usize {
    (sequence / WORD_BITS % WORDS) as usize
}

fn bit(sequence: u64) -> u64 {
    1 << (sequence % WORD_BITS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_sequence_number_is_new_once() {
        let mut window = ReplayWindow::default();
        for sequence in 0..4 * REPLAY_WINDOW {
            assert!(!window.is_replayed(sequence), "{sequence}");
            window.mark(sequence);
            assert!(window.is_replayed(sequence), "{sequence}");
        }
    }

    #[test]
    fn the_window_is_256_wide_and_reaches_the_last_number() {
        let mut window = ReplayWindow::default();
        window.mark(u64::MAX - 1);
        assert!(!window.is_replayed(u64::MAX));
        assert!(!window.is_replayed(u64::MAX - 256));
        assert!(window.is_replayed(u64::MAX - 257));
        window.mark(u64::MAX);
        assert!(window.is_replayed(u64::MAX));
        assert!(window.is_replayed(u64::MAX - 256));
    }

    proptest! {
        #![proptest_config(throng_seeds::cases(256))]

        #[test]
        fn the_window_agrees_with_a_set(
            start in prop_oneof![Just(0), any::<u64>(), Just(u64::MAX - 2000)],
            steps in proptest::collection::vec((0u64..3, 0u64..700), 1..300),
        ) {
            let mut window = ReplayWindow::default();
            let mut seen = BTreeSet::new();
            let mut newest: Option<u64> = None;
            for (way, distance) in steps {
                let from = newest.unwrap_or(start);
                let sequence = if way == 0 { from.saturating_add(distance) } else { from.saturating_sub(distance) };
                let expected =
                    newest.is_some_and(|n| n >= REPLAY_WINDOW && sequence <= n - REPLAY_WINDOW) || seen.contains(&sequence);
                prop_assert_eq!(window.is_replayed(sequence), expected, "{} after {:?}", sequence, newest);
                if !expected {
                    window.mark(sequence);
                    seen.insert(sequence);
                    newest = newest.max(Some(sequence));
                }
            }
        }
    }
}
