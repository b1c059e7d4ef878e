//! A curve through measured points, and its forecasts.

/// A load and what was measured there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// The load, as instances on a host.
    pub load: f64,
    /// The value, as milliseconds of a frame.
    pub value: f64,
}

/// `value = base + slope × load + bend × load²`, by least squares. The base is the cost of one alone, the slope what each more
/// adds, as by sharing a cache, and the bend what grows faster, as waiting for a processor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Curve {
    /// The value without load.
    pub base: f64,
    /// Its growth for each unit of load.
    pub slope: f64,
    /// The growth of the growth, 0 of fewer than four points.
    pub bend: f64,
    /// The largest distance of a point from the curve, as a share of the point's value.
    pub largest_error: f64,
    /// Loads between these were measured; a forecast outside is an extrapolation.
    pub measured: (f64, f64),
}

impl Curve {
    /// Fits a curve; `None` with fewer than two different loads, or values that are not finite.
    pub fn fit(points: &[Point]) -> Option<Curve> {
        let mut loads: Vec<f64> = points.iter().map(|point| point.load).collect();
        loads.sort_unstable_by(f64::total_cmp);
        loads.dedup();
        let (first, last) = (*loads.first()?, *loads.last()?);
        let is_finite = points.iter().all(|point| point.load.is_finite() && point.value.is_finite());
        if loads.len() < 2 || !is_finite {
            return None;
        }
        let [base, slope, bend] = solve(points, if loads.len() >= 4 { 3 } else { 2 }, last.abs().max(first.abs()))?;
        let mut curve = Curve { base, slope, bend, largest_error: 0.0, measured: (first, last) };
        let error = |point: &Point| ((curve.forecast(point.load) - point.value) / point.value).abs();
        curve.largest_error = points.iter().map(error).filter(|error| error.is_finite()).fold(0.0, f64::max);
        Some(curve)
    }

    /// The value at a load.
    pub fn forecast(&self, load: f64) -> f64 {
        self.base + self.slope * load + self.bend * load * load
    }

    /// Whether a load lies outside of those that were measured.
    pub fn is_extrapolated(&self, load: f64) -> bool {
        load < self.measured.0 || load > self.measured.1
    }
}

/// The normal equations of a polynomial of up to three terms, by elimination. Loads are scaled to 1, so that their fourth
/// powers lose no digits.
fn solve(points: &[Point], terms: usize, scale: f64) -> Option<[f64; 3]> {
    let scale = if scale > 0.0 { scale } else { 1.0 };
    let mut rows = [[0.0_f64; 4]; 3];
    for point in points {
        let powers = [1.0, point.load / scale, (point.load / scale).powi(2)];
        for (row, power) in rows.iter_mut().zip(powers).take(terms) {
            row.iter_mut().zip(powers).take(terms).for_each(|(sum, other)| *sum += power * other);
            row[3] += power * point.value;
        }
    }
    for pivot in 0..terms {
        let best = (pivot..terms).max_by(|a, b| rows[*a][pivot].abs().total_cmp(&rows[*b][pivot].abs()))?;
        rows.swap(pivot, best);
        if rows[pivot][pivot].abs() < 1e-12 {
            return None;
        }
        for other in 0..terms {
            if other != pivot {
                let factor = rows[other][pivot] / rows[pivot][pivot];
                let row = rows[pivot];
                rows[other].iter_mut().zip(row).for_each(|(value, pivot)| *value -= factor * pivot);
            }
        }
    }
    let of = |term: usize| if term < terms { rows[term][3] / rows[term][term] / scale.powi(term as i32) } else { 0.0 };
    Some([of(0), of(1), of(2)])
}
