//! The number of bans that hold, known without a look at each of them.

use std::collections::BTreeMap;

use throng_wire::Time;

const SECOND_US: u64 = 1_000_000;

/// Bans counted by the second in which they end, as they come and go. A count costs a step for each second since the last one, whatever the
/// number of bans is.
///
/// A ban counts up to the full second after its end.
#[derive(Clone, Debug, Default)]
pub struct Census {
    /// How many bans end with each second.
    ends: BTreeMap<u64, usize>,
    present: usize,
}

impl Census {
    /// Counts a ban.
    pub fn add(&mut self, now: Time, until: Time) {
        self.end_past(now);
        *self.ends.entry(last_second(until)).or_default() += 1;
        self.present += 1;
    }

    /// Counts a ban no more that was counted until then. One that is over is not counted any more: nothing happens.
    pub fn remove(&mut self, until: Time) {
        let second = last_second(until);
        let Some(bans) = self.ends.get_mut(&second) else { return };
        *bans -= 1;
        self.present -= 1;
        if *bans == 0 {
            self.ends.remove(&second);
        }
    }

    /// How many hold.
    pub fn present(&mut self, now: Time) -> usize {
        self.end_past(now);
        self.present
    }

    fn end_past(&mut self, now: Time) {
        while let Some(first) = self.ends.first_entry()
            && *first.key() <= now.0 / SECOND_US
        {
            self.present -= first.remove();
        }
    }
}

/// The first full second that is not before a time.
fn last_second(until: Time) -> u64 {
    until.0.div_ceil(SECOND_US)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bans of up to a minute come, are lifted and end; they are counted beside a list of them.
    #[test]
    fn a_census_counts_what_a_list_holds() {
        let (mut census, mut list) = (Census::default(), Vec::new());
        let mut random = fastrand::Rng::with_seed(1);
        let (mut now, mut most) = (Time(0), 0);
        for _ in 0..100_000 {
            now = Time(now.0 + random.u64(0..20_000));
            if random.bool() {
                let until = Time(now.0 + random.u64(0..60_000_000));
                census.add(now, until);
                list.push(until);
            } else if !list.is_empty() && random.u8(..) < 100 {
                // It may be over.
                census.remove(list.swap_remove(random.usize(..list.len())));
            }
            if random.u8(..) == 0 {
                list.retain(|&until| Time::from_secs(last_second(until)) > now);
                assert_eq!(census.present(now), list.len());
                most = most.max(list.len());
            }
        }
        assert!(most > 1_000, "{most}");
    }

    #[test]
    fn a_count_takes_steps_for_seconds_and_not_for_bans() {
        let mut census = Census::default();
        for number in 1..=65_536 {
            census.add(Time(number), Time(number + 300_000_000));
        }
        assert_eq!((census.present(Time(65_536)), census.ends.len()), (65_536, 1));
        assert_eq!(census.present(Time::from_secs(300)), 65_536);
        assert_eq!((census.present(Time::from_secs(301)), census.ends.len()), (0, 0));
    }
}
