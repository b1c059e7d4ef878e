//! Figures of several runs as one.

use throng_report::figure;

use super::Run;

/// Median and range of a figure over repeated runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// The middle value; between two, their mean.
    pub median: f64,
    /// The lowest.
    pub min: f64,
    /// The highest.
    pub max: f64,
    /// How many runs.
    pub runs: usize,
}

impl Sample {
    /// `None` without values. Values that are not numbers are left out.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Sample> {
        let mut values: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        let (&min, &max) = (values.first()?, values.last()?);
        let middle = values.len() / 2;
        let median = if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 };
        Some(Sample { median, min, max, runs: values.len() })
    }
}

/// The factor by which `of` is smaller in `ours` than in `base`, taken in each round. Rounds in which only one of them
/// has the figure do not count.
pub fn advantage(base: &[&Run], ours: &[&Run], of: fn(&super::Figures) -> Option<f64>) -> Option<Sample> {
    Sample::of(by_round(base, ours, of).into_iter().map(|(_, times)| times))
}

/// The same as numbers of rounds, each with its ratio.
pub fn by_round(base: &[&Run], ours: &[&Run], of: fn(&super::Figures) -> Option<f64>) -> Vec<(u32, f64)> {
    let value = |run: &Run| run.figures.as_ref().and_then(of).filter(|&value| value > 0.0);
    let in_round = |round: u32| base.iter().find(|run| run.round == round).and_then(|run| value(run));
    ours.iter().filter_map(|run| Some((run.round, in_round(run.round)? / value(run)?))).collect()
}

/// A figure of several runs in words: `12.3 (11.9–12.8)`, `12.3` of a single run, or a dash.
pub fn spoken(sample: Option<Sample>) -> String {
    let Some(Sample { median, min, max, runs }) = sample else { return "–".to_owned() };
    if runs < 2 || figure(min) == figure(max) {
        return figure(median);
    }
    format!("{} ({}–{})", figure(median), figure(min), figure(max))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::Figures;

    #[test]
    fn the_median_of_an_even_number_of_runs_lies_between_the_middle_two() {
        let sample = Sample::of([4.0, 1.0, 3.0, 2.0]).unwrap();
        assert_eq!((sample.median, sample.min, sample.max, sample.runs), (2.5, 1.0, 4.0, 4));
        assert_eq!(Sample::of([7.0, 1.0, 3.0]).unwrap().median, 3.0);
    }

    #[test]
    fn nothing_has_no_median_and_what_is_no_number_is_left_out() {
        assert_eq!(Sample::of([]), None);
        assert_eq!(Sample::of([f64::NAN]), None);
        assert_eq!(Sample::of([f64::NAN, 2.0]).unwrap().median, 2.0);
    }

    #[test]
    fn an_advantage_is_taken_within_each_round() {
        let run = |round, frame_ms| Run {
            round,
            figures: Some(Figures { frame_ms, ..Figures::default() }),
            ..Run::default()
        };
        // The machine was twice as slow in the second round, and the third has no partner.
        let (base, ours) = ([run(0, 10.0), run(1, 20.0)], [run(0, 2.0), run(1, 4.0), run(2, 1.0)]);
        let sample = advantage(&base.each_ref(), &ours.each_ref(), |figures| Some(figures.frame_ms)).unwrap();
        assert_eq!((sample.median, sample.min, sample.max, sample.runs), (5.0, 5.0, 5.0, 2));
    }

    #[test]
    fn a_single_run_has_no_spread_and_nothing_has_a_dash() {
        assert_eq!(spoken(Sample::of([3.0])), "3");
        assert_eq!(spoken(Sample::of([3.0, 4.0])), "3.5 (3–4)");
        assert_eq!(spoken(None), "–");
    }
}
