//! The runs from which a verdict is drawn.

use throng_lab::compare::{Comparison, Figures, Sample, advantage};

/// A ratio, and where it is from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Evidence {
    /// The ratio, a value for each round.
    pub(super) sample: Sample,
    /// Number of the comparison, as the page numbers them, from 1.
    pub(super) run: usize,
}

impl Evidence {
    /// `run 1, 2 rounds`.
    pub(super) fn origin(&self) -> String {
        format!("run {}, {}", self.run, rounds(self.sample.runs))
    }
}

/// `1 round`, `2 rounds`.
pub(super) fn rounds(count: usize) -> String {
    if count == 1 { "1 round".to_owned() } else { format!("{count} rounds") }
}

/// How many times less `ours` spends or sends than `base` in a workload, in the first comparison in which both have a
/// sound run in one round.
pub(super) fn between(
    comparisons: &[Comparison],
    place: (&str, u32),
    [base, ours]: [&str; 2],
    of: fn(&Figures) -> Option<f64>,
) -> Option<Evidence> {
    comparisons.iter().enumerate().find_map(|(number, comparison)| {
        let sample = advantage(&comparison.sound(place, base), &comparison.sound(place, ours), of)?;
        Some(Evidence { sample, run: number + 1 })
    })
}
