//! One figure from the ticks of a run. `colyseus/spread.js` repeats it.

use serde::Serialize;

/// Of each this many ticks, begun or whole, the slowest one is left out of the mean: on a shared machine, other users
/// cause it.
const TICKS_PER_DISCARDED: usize = 100;

/// Times of the ticks of a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Spread {
    /// Over all ticks but the slowest hundredth: work that is done in every second tick only counts by half.
    pub(crate) mean: f64,
    /// The middle of all ticks.
    median: f64,
    /// The slowest tick that is in the mean.
    p99: f64,
    /// The fastest tick.
    min: f64,
    /// The slowest tick.
    max: f64,
}

impl Spread {
    /// In the values' unit.
    ///
    /// # Panics
    /// If there are no values.
    pub(crate) fn of(mut values: Vec<f64>) -> Spread {
        values.sort_by(f64::total_cmp);
        let count = values.len();
        let discarded = count.div_ceil(TICKS_PER_DISCARDED).min(count - 1);
        let kept = &values[..count - discarded];
        Spread {
            mean: kept.iter().sum::<f64>() / kept.len() as f64,
            median: (values[(count - 1) / 2] + values[count / 2]) / 2.0,
            p99: kept[kept.len() - 1],
            min: values[0],
            max: values[count - 1],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_of_every_second_tick_counts_by_half() {
        let spread = Spread::of((0..300).map(|tick| f64::from(1 + tick % 2)).collect());
        assert!((spread.mean - 1.5).abs() < 0.01, "{spread:?}");
    }

    #[test]
    fn the_slowest_hundredth_is_left_out_of_the_mean_and_kept_as_the_highest() {
        let mut ticks = vec![1.0; 200];
        (ticks[17], ticks[50]) = (90.0, 80.0);
        assert_eq!(Spread::of(ticks.clone()), Spread { mean: 1.0, median: 1.0, p99: 1.0, min: 1.0, max: 90.0 });
        ticks[51] = 3.0;
        assert!(Spread::of(ticks).mean > 1.0);
    }

    #[test]
    fn of_few_ticks_one_is_left_out_but_never_the_only_one() {
        assert_eq!(Spread::of(vec![4.0, 1.0, 2.0]), Spread { mean: 1.5, median: 2.0, p99: 2.0, min: 1.0, max: 4.0 });
        assert_eq!(Spread::of(vec![4.0]), Spread { mean: 4.0, median: 4.0, p99: 4.0, min: 4.0, max: 4.0 });
    }
}
