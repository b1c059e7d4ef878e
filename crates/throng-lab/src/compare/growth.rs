//! How cost grows with the number of players.

use super::{Comparison, Figures, Measure, OUTGOING, OUTSIDE_KERNEL, Sample};

/// The measures whose growth with the number of players is shown.
pub const GROWTHS: [Measure; 3] = [
    Measure { name: "outside the kernel, per connection and tick", ..OUTSIDE_KERNEL },
    Measure { name: "outgoing, per connection and tick", ..OUTGOING },
    Measure { name: "to a client", unit: "kbit/s", is_cost: true, of: |figures: &Figures| Some(figures.kbit_per_s) },
];

/// One contestant's values of a measure at growing numbers of players.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// The contestant.
    pub contestant: String,
    /// At each size of [`Comparison::sizes`]; `None` where no run ended.
    pub points: Vec<Option<Point>>,
    /// The power law through the points; `None` with fewer than three.
    pub fit: Option<Fit>,
}

/// A measure at a number of players.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// The number of players.
    pub players: u32,
    /// The values of the runs.
    pub sample: Sample,
    /// Whether the runs are valid. Invalid runs are not used for the fit.
    pub is_valid: bool,
    /// Whether the server was overloaded. Then the value lacks the missed ticks, so it is not used for the fit.
    pub is_overloaded: bool,
}

impl Point {
    /// Whether the power law is to go through it.
    pub fn is_fitted(&self) -> bool {
        self.is_valid && !self.is_overloaded
    }
}

/// `value = factor * players ^ exponent`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fit {
    /// The exponent.
    pub exponent: f64,
    /// The value at one player.
    pub factor: f64,
    /// How many points it was fitted to.
    pub points: usize,
}

/// The fewest points that are fitted.
const POINTS_MIN: usize = 3;

/// Every contestant's curve of a measure in a workload.
pub fn curves(comparison: &Comparison, workload: &str, measure: &Measure) -> Vec<Curve> {
    let sizes = comparison.sizes(workload);
    let point = |players: u32, contestant: &str| {
        let runs = comparison.counted(workload, players, contestant);
        let sample = Sample::of(runs.iter().filter_map(|run| run.figures.as_ref().and_then(measure.of)))?;
        let is_overloaded = comparison.is_overloaded(workload, players, contestant);
        Some(Point { players, sample, is_valid: runs.iter().any(|run| run.valid), is_overloaded })
    };
    let curve = |contestant: &String| {
        let points: Vec<_> = sizes.iter().map(|&players| point(players, contestant)).collect();
        let fitted: Vec<(f64, f64)> = points
            .iter()
            .flatten()
            .filter(|point| point.is_fitted())
            .map(|point| (f64::from(point.players), point.sample.median))
            .collect();
        Curve { contestant: contestant.clone(), points, fit: fit(&fitted) }
    };
    comparison.contestants.iter().map(curve).collect()
}

/// The power law with the least squares of the differences between logarithms. Points that are not above 0 are left out;
/// `None` if fewer than three are left, or all have the same number of players.
pub fn fit(points: &[(f64, f64)]) -> Option<Fit> {
    let logs: Vec<(f64, f64)> =
        points.iter().filter(|(x, y)| *x > 0.0 && *y > 0.0).map(|(x, y)| (x.ln(), y.ln())).collect();
    if logs.len() < POINTS_MIN {
        return None;
    }
    let count = logs.len() as f64;
    let mean_x = logs.iter().map(|(x, _)| x).sum::<f64>() / count;
    let mean_y = logs.iter().map(|(_, y)| y).sum::<f64>() / count;
    let variance: f64 = logs.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
    if variance <= f64::EPSILON {
        return None;
    }
    let exponent = logs.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum::<f64>() / variance;
    Some(Fit { exponent, factor: (mean_y - exponent * mean_x).exp(), points: logs.len() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_of_an_overloaded_server_is_kept_and_not_fitted() {
        let mut comparison = crate::compare::example();
        let exponent = |comparison: &Comparison| curves(comparison, "dense", &GROWTHS[0])[0].fit.map(|fit| fit.points);
        assert_eq!(exponent(&comparison), Some(3));
        for run in comparison.runs.iter_mut().filter(|run| run.players == 400 && run.contestant == "legacy") {
            let figures = run.figures.as_mut().unwrap();
            figures.missed_ticks = figures.ticks;
        }
        let curves = curves(&comparison, "dense", &GROWTHS[0]);
        let point = curves[0].points[2].unwrap();
        assert!(point.is_valid && point.is_overloaded && !point.is_fitted());
        assert_eq!((curves[0].fit, curves[1].fit.unwrap().points), (None, 3), "two points are left of three");
    }

    #[test]
    fn a_power_law_is_found_again() {
        let points: Vec<_> = [25.0f64, 50.0, 100.0, 400.0].iter().map(|&x| (x, 0.3 * x.powf(1.25))).collect();
        let found = fit(&points).unwrap();
        assert!((found.exponent - 1.25).abs() < 1e-9 && (found.factor - 0.3).abs() < 1e-9, "{found:?}");
        assert_eq!(found.points, 4);
    }

    #[test]
    fn a_constant_has_the_exponent_0() {
        assert!(fit(&[(25.0, 2.0), (50.0, 2.0), (100.0, 2.0)]).unwrap().exponent.abs() < 1e-12);
    }

    #[test]
    fn too_few_points_or_a_single_size_have_no_exponent() {
        assert_eq!(fit(&[(25.0, 1.0), (50.0, 2.0)]), None);
        assert_eq!(fit(&[(25.0, 1.0), (50.0, 2.0), (100.0, 0.0)]), None);
        assert_eq!(fit(&[(25.0, 1.0), (25.0, 2.0), (25.0, 3.0)]), None);
    }
}
