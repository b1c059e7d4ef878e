//! How evenly the players are spread over several servers in the measured part, and since when.

use std::time::Duration;

/// The load is even while no server has more players than so many times the mean.
pub(super) const EVEN: f64 = 1.5;

/// The players of each server, watched over time.
#[derive(Debug, Default)]
pub(super) struct Evenness {
    /// By server: its players at the beginning of each second.
    by_second: Vec<Vec<u32>>,
    seconds: u64,
    /// The newest moment at which they were not spread evenly.
    uneven: Option<Duration>,
    newest: Option<Duration>,
}

impl Evenness {
    /// Notes the players of each server at a moment of the measured part; `None` of one that was killed.
    pub(super) fn take(&mut self, elapsed: Duration, players: impl Iterator<Item = Option<u32>> + Clone) {
        let living = players.clone().flatten();
        let (servers, all) = (living.clone().count().max(1), living.clone().map(u64::from).sum::<u64>());
        let most = living.max().unwrap_or(0);
        if f64::from(most) > EVEN * all as f64 / servers as f64 {
            self.uneven = Some(elapsed);
        }
        self.newest = Some(elapsed);
        if self.by_second.is_empty() || elapsed.as_secs() >= self.seconds {
            self.seconds = elapsed.as_secs() + 1;
            self.by_second.resize_with(players.clone().count(), Vec::new);
            // A tick may be longer than a second: each of them has its place.
            let seconds = self.seconds as usize;
            self.by_second.iter_mut().zip(players).for_each(|(row, players)| row.resize(seconds, players.unwrap_or(0)));
        }
    }

    /// The players of a server at the beginning of each second.
    pub(super) fn of(&self, server: usize) -> Vec<u32> {
        self.by_second.get(server).cloned().unwrap_or_default()
    }

    /// When the load had become even for the rest of the measured part, in seconds from its beginning; `None` if it never had.
    pub(super) fn even_after_s(&self) -> Option<f64> {
        let newest = self.newest?;
        match self.uneven {
            None => Some(0.0),
            Some(uneven) => (uneven < newest).then_some(uneven.as_secs_f64()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_load_is_even_after_the_last_moment_at_which_it_was_not() {
        let mut evenness = Evenness::default();
        assert_eq!(evenness.even_after_s(), None);
        let mut take = |ms: u64, players: [u32; 4]| {
            // One that was killed has no part in it.
            evenness.take(
                Duration::from_millis(ms),
                players.into_iter().map(|players| (players < 1_000).then_some(players)),
            );
            evenness.even_after_s()
        };
        assert_eq!(take(0, [100; 4]), Some(0.0));
        assert_eq!(take(500, [151, 83, 83, 83]), None);
        assert_eq!(take(1_200, [150, 100, 75, 75]), Some(0.5));
        assert_eq!(take(1_900, [400, 0, 0, 0]), None);
        assert_eq!(take(2_000, [0, 0, 0, 0]), Some(1.9), "nobody is anywhere");
        assert_eq!(take(3_000, [200, 199, 100, 1_000]), Some(1.9), "the mean of three");
        // A tick that takes longer than two seconds.
        assert_eq!(take(6_100, [7, 8, 9, 10]), Some(1.9));
        assert_eq!(
            (evenness.of(0), evenness.of(3), evenness.of(4)),
            (vec![100, 150, 0, 200, 7, 7, 7], vec![100, 75, 0, 0, 10, 10, 10], vec![])
        );
    }
}
