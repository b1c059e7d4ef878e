//! The state of other characters at decoding bots, by distance.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::{Band, Counted, Neighbours, Spread};

/// Up to this distance a neighbour is near.
pub const NEAR_M: f64 = 10.0;
/// Up to this distance a neighbour that is not near is in the middle.
pub const MIDDLE_M: f64 = 50.0;
/// Ages above an hour count as an hour, position errors above a hundred kilometres as that.
const MAX_AGE_US: u64 = 3_600_000_000;
const MAX_ERROR_MM: u64 = 100_000_000;

/// Gathers looks at neighbours. Its memory, some hundred kilobytes, is taken at the start.
#[derive(Clone, Debug)]
pub struct NeighbourLog {
    /// Near, middle, far.
    bands: [BandLog; 3],
    near_age_us: Histogram<u64>,
}

/// The looks of a process, by band: ages in microseconds, and errors in millimetres.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Looks([[Counted; 2]; 3]);

#[derive(Clone, Debug)]
struct BandLog {
    age_us: Histogram<u64>,
    error_mm: Histogram<u64>,
}

impl Default for NeighbourLog {
    fn default() -> NeighbourLog {
        let band = || BandLog { age_us: histogram(MAX_AGE_US), error_mm: histogram(MAX_ERROR_MM) };
        NeighbourLog { bands: [band(), band(), band()], near_age_us: histogram(MAX_AGE_US) }
    }
}

/// Values from 0 to `max`, to 0.1 %.
fn histogram(max: u64) -> Histogram<u64> {
    Histogram::new_with_bounds(1, max, 3).expect("1 <= 2 * 1 <= max and 3 digits are allowed")
}

impl NeighbourLog {
    /// A decoding bot held state of a neighbour that was `age_ms` old and `error_m` off, `distance_m` away in truth.
    /// Does not allocate. Values that are not numbers are skipped.
    pub fn look(&mut self, distance_m: f64, age_ms: f64, error_m: f64) {
        if !(distance_m.is_finite() && age_ms.is_finite() && error_m.is_finite()) {
            return;
        }
        let band = self.note_age(distance_m, age_ms);
        band.error_mm.saturating_record((error_m * 1e3).round() as u64);
    }

    /// The same where the true position is not known: only an age.
    pub fn look_at_age(&mut self, distance_m: f64, age_ms: f64) {
        if distance_m.is_finite() && age_ms.is_finite() {
            self.note_age(distance_m, age_ms);
        }
    }

    /// Notes the age, and returns its band.
    fn note_age(&mut self, distance_m: f64, age_ms: f64) -> &mut BandLog {
        let near = distance_m <= NEAR_M;
        // A negative age becomes 0: the conversion from float saturates.
        let age_us = (age_ms * 1e3).round() as u64;
        if near {
            self.near_age_us.saturating_record(age_us);
        }
        let band = if near { 0 } else { 1 + usize::from(distance_m > MIDDLE_M) };
        self.bands[band].age_us.saturating_record(age_us);
        &mut self.bands[band]
    }

    /// The ages of near neighbours since the last call.
    pub fn take_near_ages(&mut self) -> Counted {
        let ages = Counted::of(&self.near_age_us);
        self.near_age_us.reset();
        ages
    }

    /// 99th percentile of the age of near neighbours in milliseconds, by what several processes have
    /// [taken](Self::take_near_ages); `None` without a look.
    pub fn near_age_p99_ms<'a>(taken: impl Iterator<Item = &'a Counted>) -> Option<f64> {
        let mut all = histogram(MAX_AGE_US);
        taken.for_each(|ages| ages.add_to(&mut all));
        percentile(&all, 0.99, 1e3)
    }

    /// All looks so far, to be joined with those of other processes.
    pub fn looks(&self) -> Looks {
        Looks(self.bands.each_ref().map(|band| [Counted::of(&band.age_us), Counted::of(&band.error_mm)]))
    }

    /// Adds the looks of another process.
    pub fn add(&mut self, looks: &Looks) {
        for (band, [ages, errors]) in self.bands.iter_mut().zip(&looks.0) {
            ages.add_to(&mut band.age_us);
            errors.add_to(&mut band.error_mm);
        }
    }

    /// The figures so far.
    pub fn figures(&self) -> Neighbours {
        let [near, middle, far] = self.bands.each_ref().map(BandLog::figures);
        Neighbours { near, middle, far }
    }

    /// Forgets everything, at the end of the warm-up.
    pub fn clear(&mut self) {
        self.near_age_us.reset();
        for band in &mut self.bands {
            band.age_us.reset();
            band.error_mm.reset();
        }
    }
}

impl BandLog {
    fn figures(&self) -> Band {
        let spread = |histogram: &Histogram<u64>| Spread {
            p50: percentile(histogram, 0.5, 1e3),
            p99: percentile(histogram, 0.99, 1e3),
        };
        Band { age_ms: spread(&self.age_us), position_error_m: spread(&self.error_mm), samples: self.age_us.len() }
    }
}

fn percentile(histogram: &Histogram<u64>, share: f64, divisor: f64) -> Option<f64> {
    (!histogram.is_empty()).then(|| histogram.value_at_quantile(share) as f64 / divisor)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(measured: Option<f64>, expected: f64) -> bool {
        measured.is_some_and(|measured| (measured - expected).abs() <= expected * 0.002)
    }

    #[test]
    fn looks_are_sorted_by_distance() {
        let mut log = NeighbourLog::default();
        for (distance_m, age_ms) in
            [(0.0, 10.0), (10.0, 10.0), (10.1, 20.0), (50.0, 20.0), (50.1, 30.0), (9_000.0, 30.0)]
        {
            log.look(distance_m, age_ms, age_ms / 100.0);
        }
        let figures = log.figures();
        for (band, age_ms) in [(figures.near, 10.0), (figures.middle, 20.0), (figures.far, 30.0)] {
            assert_eq!(band.samples, 2);
            assert!(close(band.age_ms.p50, age_ms) && close(band.age_ms.p99, age_ms), "{band:?}");
            assert!(close(band.position_error_m.p50, age_ms / 100.0), "{band:?}");
        }
    }

    #[test]
    fn percentiles_are_those_of_the_looks() {
        let mut log = NeighbourLog::default();
        (1..=1000).for_each(|age_ms| log.look(3.0, f64::from(age_ms), 0.0));
        let near = log.figures().near;
        assert!(close(near.age_ms.p50, 500.0) && close(near.age_ms.p99, 990.0), "{near:?}");
        assert_eq!(near.position_error_m.p99, Some(0.0));
        assert_eq!(log.figures().far, Band::default());
    }

    #[test]
    fn the_near_age_starts_anew_with_each_taking() {
        let mut log = NeighbourLog::default();
        let p99_ms = |log: &mut NeighbourLog| NeighbourLog::near_age_p99_ms([log.take_near_ages()].iter());
        assert_eq!(p99_ms(&mut log), None);
        log.look(1.0, 40.0, 0.0);
        log.look(20.0, 4_000.0, 0.0);
        assert!(close(p99_ms(&mut log), 40.0));
        assert_eq!(p99_ms(&mut log), None);
        assert_eq!(log.figures().near.samples, 1);
        log.clear();
        assert_eq!(log.figures(), Neighbours::default());
    }

    #[test]
    fn the_looks_of_two_processes_are_those_of_one_and_no_mean_of_percentiles() {
        let [mut first, mut second] = [NeighbourLog::default(), NeighbourLog::default()];
        // One process sees young state, and the other a few old states.
        (0..990).for_each(|_| first.look(3.0, 20.0, 0.5));
        (0..30).for_each(|_| second.look(3.0, 900.0, 2.0));
        let mut joined = NeighbourLog::default();
        [first.looks(), second.looks()].iter().for_each(|looks| joined.add(looks));
        let near = joined.figures().near;
        assert_eq!((near.samples, joined.figures().far.samples), (1_020, 0));
        assert!(close(near.age_ms.p50, 20.0) && close(near.age_ms.p99, 900.0), "{near:?}");
        assert!(close(near.position_error_m.p99, 2.0), "{near:?}");
        let taken = [first.take_near_ages(), second.take_near_ages()];
        assert!(close(NeighbourLog::near_age_p99_ms(taken.iter()), 900.0));
    }

    #[test]
    fn absurd_values_do_no_harm() {
        let mut log = NeighbourLog::default();
        log.look(f64::NAN, 1.0, 1.0);
        log.look(1.0, f64::INFINITY, 1.0);
        log.look(1.0, -5.0, 1e300);
        let near = log.figures().near;
        assert_eq!((near.samples, near.age_ms.p50), (1, Some(0.0)));
        assert!(close(near.position_error_m.p50, 100_000.0));
    }
}
