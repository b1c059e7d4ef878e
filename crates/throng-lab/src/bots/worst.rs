//! The clients that fare worst.

use std::collections::HashMap;

use hdrhistogram::Histogram;

use throng_summary::WorstClient;

/// So many clients are named for each reason.
const NAMED: usize = 5;

/// The reasons, in their order.
const REASONS: [&str; 3] = [MOST_DATA, OLDEST, LEAST_KNOWN];
const MOST_DATA: &str = "most data";
const OLDEST: &str = "oldest state";
const LEAST_KNOWN: &str = "least known";

/// For each reason the five worst of the worst clients of several processes, the worst first.
pub(super) fn of_all(worst: &[WorstClient]) -> Vec<WorstClient> {
    let of = |why: &&str| {
        // A smaller rank is worse.
        let rank = |client: &WorstClient| match *why {
            MOST_DATA => client.kbit_per_s.map(|rate| -rate),
            OLDEST => client.near_age_p99_ms.map(|age| -age),
            _ => client.known_within_40_m,
        };
        let mut all: Vec<&WorstClient> = worst.iter().filter(|client| client.because == *why).collect();
        all.sort_by(|a, b| rank(a).unwrap_or(f64::INFINITY).total_cmp(&rank(b).unwrap_or(f64::INFINITY)));
        all.into_iter().take(NAMED).cloned().collect::<Vec<_>>()
    };
    REASONS.iter().flat_map(of).collect()
}

/// The sight of decoding bots, by the index of their connection at the server. Bots that share an index one after the other
/// count as one client.
#[derive(Default)]
pub(super) struct Sights(HashMap<u32, Sight>);

struct Sight {
    near_age_us: Histogram<u64>,
    least_known: f64,
}

impl Sights {
    /// State of a near neighbour was so old.
    pub(super) fn note_near_age(&mut self, client: u32, age_ms: f64) {
        let sight = self.of(client);
        sight.near_age_us.saturating_record((age_ms.max(0.0) * 1e3) as u64);
    }

    /// The client held this share of the objects close by.
    pub(super) fn note_known(&mut self, client: u32, share: f64) {
        let sight = self.of(client);
        sight.least_known = sight.least_known.min(share);
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    fn of(&mut self, client: u32) -> &mut Sight {
        self.0.entry(client).or_insert_with(|| Sight {
            near_age_us: Histogram::new_with_bounds(1, 60_000_000, 2).expect("the bounds are possible"),
            least_known: 1.0,
        })
    }

    /// For each reason the five worst: by data of all clients, by age and knowledge of those that decode. In the order of [`of_all`].
    pub(super) fn worst(&self, rates: &[(u32, f64)]) -> Vec<WorstClient> {
        let rate_of = |client: u32| rates.iter().find(|(of, _)| *of == client).map(|(_, rate)| *rate);
        let client = |client: u32| {
            let sight = self.0.get(&client);
            let ages = sight.map(|sight| &sight.near_age_us).filter(|ages| !ages.is_empty());
            WorstClient {
                client,
                because: String::new(),
                kbit_per_s: rate_of(client),
                near_age_p99_ms: ages.map(|ages| ages.value_at_quantile(0.99) as f64 / 1e3),
                known_within_40_m: sight.map(|sight| sight.least_known),
            }
        };
        let mut by_rate: Vec<(u32, f64)> = rates.to_vec();
        by_rate.sort_by(|a, b| b.1.total_cmp(&a.1));
        let mut decoding: Vec<WorstClient> = self.0.keys().map(|of| client(*of)).collect();
        decoding.sort_by_key(|of| of.client);
        let because = |why: &str, mut of: Vec<WorstClient>| {
            of.truncate(NAMED);
            of.iter_mut().for_each(|of| why.clone_into(&mut of.because));
            of
        };
        let of_rates = by_rate.iter().take(NAMED).map(|(of, _)| client(*of)).collect();
        let mut by_age = decoding.clone();
        by_age.retain(|of| of.near_age_p99_ms.is_some());
        by_age.sort_by(|a, b| b.near_age_p99_ms.partial_cmp(&a.near_age_p99_ms).unwrap_or(std::cmp::Ordering::Equal));
        decoding.retain(|of| of.known_within_40_m.is_some_and(|share| share < 1.0));
        decoding
            .sort_by(|a, b| a.known_within_40_m.partial_cmp(&b.known_within_40_m).unwrap_or(std::cmp::Ordering::Equal));
        [because(MOST_DATA, of_rates), because(OLDEST, by_age), because(LEAST_KNOWN, decoding)].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_five_worst_of_each_reason_are_named_with_all_that_is_known_of_them() {
        let mut sights = Sights::default();
        for client in 0..20 {
            (0..100).for_each(|_| sights.note_near_age(client, f64::from(client * 10)));
            sights.note_known(client, 1.0);
        }
        sights.note_known(3, 0.5);
        sights.note_known(3, 0.9);
        let rates: Vec<(u32, f64)> = (0..100).map(|client| (client, f64::from(200 - client))).collect();
        let worst = sights.worst(&rates);
        let of = |why: &str| -> Vec<u32> { worst.iter().filter(|of| of.because == why).map(|of| of.client).collect() };
        assert_eq!(of("most data"), [0, 1, 2, 3, 4]);
        assert_eq!(of("oldest state"), [19, 18, 17, 16, 15]);
        assert_eq!(of("least known"), [3], "the others knew everything");
        let third = worst.iter().find(|of| of.because == "least known").unwrap();
        assert_eq!((third.kbit_per_s, third.known_within_40_m), (Some(197.0), Some(0.5)));
        assert!((third.near_age_p99_ms.unwrap() - 30.0).abs() < 0.5);
        sights.clear();
        assert_eq!(sights.worst(&rates[..2]).len(), 2, "nothing was seen");
    }
}
