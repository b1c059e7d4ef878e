//! Whether two contestants differ, or only their runs do.
//!
//! Each round gives a ratio. Their logarithms scatter around the true one, so Student's t-distribution tells how far the
//! mean of a few of them can be off. Of a contestant against itself, 99 of 100 intervals contain 1.

use super::{Figures, Run, by_round};

/// A ratio that is closer to 1 than this counts as none, however certain it is.
const LEAST: f64 = 0.01;

/// Two-sided 99 % quantiles of Student's t-distribution, for 1, 2, 3 .. degrees of freedom.
const STUDENT_99: [f64; 30] = [
    63.657, 9.925, 5.841, 4.604, 4.032, 3.707, 3.499, 3.355, 3.250, 3.169, 3.106, 3.055, 3.012, 2.977, 2.947, 2.921,
    2.898, 2.878, 2.861, 2.845, 2.831, 2.819, 2.807, 2.797, 2.787, 2.779, 2.771, 2.763, 2.756, 2.750,
];

/// The ratio of a figure of two contestants, and how far it is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Difference {
    /// The factor by which the figure is smaller than the base's: the geometric mean of the rounds.
    pub times_less: f64,
    /// The interval that contains the true factor with 99 % certainty.
    pub interval: (f64, f64),
    /// Rounds that have both figures.
    pub rounds: usize,
}

/// The meaning of a [`Difference`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The figure is smaller than the base's.
    Less,
    /// It is larger.
    More,
    /// The rounds differ from each other at least as much as the contestants do.
    Same,
}

impl Difference {
    /// The difference of `ours` from `base`, by rounds. `None` with fewer than two of them: one round has no noise to
    /// compare with.
    pub fn of(base: &[&Run], ours: &[&Run], figure: fn(&Figures) -> Option<f64>) -> Option<Difference> {
        let ratios: Vec<f64> = by_round(base, ours, figure).into_iter().map(|(_, times)| times).collect();
        Difference::of_ratios(&ratios)
    }

    fn of_ratios(ratios: &[f64]) -> Option<Difference> {
        let count = ratios.len();
        if count < 2 {
            return None;
        }
        let logs: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
        let mean = logs.iter().sum::<f64>() / count as f64;
        let variance = logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / (count - 1) as f64;
        let student = STUDENT_99[(count - 2).min(STUDENT_99.len() - 1)];
        let reach = student * (variance / count as f64).sqrt();
        Some(Difference {
            times_less: mean.exp(),
            interval: ((mean - reach).exp(), (mean + reach).exp()),
            rounds: count,
        })
    }

    /// Its meaning.
    pub fn outcome(&self) -> Outcome {
        let (low, high) = self.interval;
        match () {
            () if low > 1.0 && self.times_less > 1.0 + LEAST => Outcome::Less,
            () if high < 1.0 && self.times_less < 1.0 / (1.0 + LEAST) => Outcome::More,
            () => Outcome::Same,
        }
    }

    /// The noise of the rounds: the smallest share by which a figure must differ to be told apart, 0.05 for 5 %.
    pub fn noise(&self) -> f64 {
        ((self.interval.1 / self.interval.0).sqrt() - 1.0).max(LEAST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two contestants in `rounds` rounds: a machine whose speed changes from round to round, and 2 % of scatter in each
    /// run. The second one does `factor` times the work.
    fn play(rng: &mut fastrand::Rng, rounds: u32, factor: f64) -> [Vec<Run>; 2] {
        let scatter = |rng: &mut fastrand::Rng| (0..12).map(|_| rng.f64()).sum::<f64>() - 6.0;
        let mut all = [Vec::new(), Vec::new()];
        for round in 0..rounds {
            let machine = 1.0 + 0.5 * rng.f64();
            for (runs, work) in all.iter_mut().zip([1.0, factor]) {
                let frame_ms = 5.0 * machine * work * (0.02 * scatter(rng)).exp();
                let figures = Some(Figures { frame_ms, ..Figures::default() });
                runs.push(Run { round, figures, ..Run::default() });
            }
        }
        all
    }

    fn outcomes(rounds: u32, factor: f64) -> [usize; 3] {
        let mut rng = fastrand::Rng::with_seed(u64::from(rounds));
        let mut counts = [0; 3];
        for _ in 0..1_000 {
            let [base, ours] = play(&mut rng, rounds, factor);
            let (base, ours): (Vec<&Run>, Vec<&Run>) = (base.iter().collect(), ours.iter().collect());
            let difference = Difference::of(&base, &ours, |figures| Some(figures.frame_ms)).expect("enough rounds");
            counts[match difference.outcome() {
                Outcome::Less => 0,
                Outcome::Same => 1,
                Outcome::More => 2,
            }] += 1;
        }
        counts
    }

    #[test]
    fn a_contestant_does_not_differ_from_itself() {
        for rounds in [2, 3, 5, 8, 40] {
            let [less, same, more] = outcomes(rounds, 1.0);
            assert!(same >= 980, "{rounds} rounds: {less} times less and {more} times more of 1,000");
        }
    }

    #[test]
    fn ten_per_cent_more_work_is_found_and_on_the_right_side() {
        for (rounds, least) in [(5, 900), (8, 990)] {
            let [less, same, more] = outcomes(rounds, 1.1);
            assert!(more >= least && less == 0, "{rounds} rounds: {more} of 1,000, {same} not found");
        }
    }

    #[test]
    fn a_difference_is_no_smaller_than_the_noise_that_is_stated() {
        let difference = Difference::of_ratios(&[1.25, 1.35, 1.3]).expect("three rounds");
        assert_eq!((difference.outcome(), difference.rounds), (Outcome::Less, 3));
        assert!(difference.times_less > 1.0 + difference.noise(), "{difference:?}, noise {}", difference.noise());
        let noisy = Difference::of_ratios(&[1.0, 1.5, 1.2]).expect("three rounds");
        assert_eq!(noisy.outcome(), Outcome::Same);
        assert!(noisy.noise() > 1.0, "{}", noisy.noise());
    }

    #[test]
    fn one_round_says_nothing_and_half_a_per_cent_is_nothing() {
        assert_eq!(Difference::of_ratios(&[1.5]), None);
        assert_eq!(Difference::of_ratios(&[]), None);
        let tiny = Difference::of_ratios(&[1.005, 1.005, 1.005]).expect("three rounds");
        assert_eq!((tiny.outcome(), tiny.noise()), (Outcome::Same, LEAST));
    }
}
