//! The last two minutes, for curves.

use std::collections::VecDeque;
use std::time::Duration;

use throng_report::bytes;

use super::figures::Figures;
use super::panels::{count, milliseconds};

/// How far back curves go.
const SPAN: Duration = Duration::from_secs(120);

/// A curve: its name, where its values come from, and how the latest one is written.
struct Curve {
    name: &'static str,
    read: fn(&Figures) -> Option<f64>,
    write: fn(f64) -> String,
}

/// The most telling first: a small terminal does not show all.
const CURVES: [Curve; 6] = [
    Curve { name: "delivered/s", read: |figures| figures.delivered_per_s, write: count },
    Curve { name: "lag p99", read: |figures| figures.lag.p99.map(|p99| p99.ms), write: milliseconds },
    Curve { name: "messages out/s", read: |figures| figures.clients.messages_out, write: count },
    Curve { name: "bytes out/s", read: |figures| figures.clients.bytes_out, write: bytes },
    Curve { name: "step p99", read: |figures| figures.step.p99.map(|p99| p99.ms), write: milliseconds },
    Curve { name: "clients", read: |figures| figures.clients.connections, write: count },
];

/// Values of all curves, one for each interval, the newest last.
#[derive(Clone)]
pub(super) struct History {
    values: [VecDeque<Option<f64>>; CURVES.len()],
    capacity: usize,
}

/// One curve, cut to the columns that there are for it.
#[derive(Debug, PartialEq)]
pub(super) struct Columns {
    pub(super) name: &'static str,
    /// Heights between 0 and [`Columns::HEIGHT`], the newest last. `None`: nothing is known.
    pub(super) heights: Vec<Option<u64>>,
    /// The newest value, written out.
    pub(super) latest: String,
    /// The largest value of the span, written out.
    pub(super) largest: String,
}

impl Columns {
    /// The height of the largest value of the span.
    pub(super) const HEIGHT: u64 = 1_000;
}

impl History {
    pub(super) fn new(interval: Duration) -> History {
        let capacity = (SPAN.as_secs_f64() / interval.as_secs_f64()).ceil().max(1.0) as usize;
        History { values: Default::default(), capacity }
    }

    pub(super) fn push(&mut self, figures: &Figures) {
        for (values, curve) in self.values.iter_mut().zip(&CURVES) {
            if values.len() == self.capacity {
                values.pop_front();
            }
            values.push_back((curve.read)(figures));
        }
    }

    /// All curves. Each column is the largest value of the time that it stands for.
    pub(super) fn columns(&self, width: usize) -> Vec<Columns> {
        let draw = |(values, curve): (&VecDeque<Option<f64>>, &Curve)| {
            let largest = values.iter().flatten().copied().reduce(f64::max);
            let peak = |range| values.range(range).flatten().copied().reduce(f64::max);
            let heights = (0..width).map(|column| self.samples_of(column, width, values.len()).and_then(peak));
            let scale = |value: f64| match largest {
                Some(largest) if largest > 0.0 => (value / largest * Columns::HEIGHT as f64).round() as u64,
                _ => 0,
            };
            let written = |value: Option<f64>| value.map_or("-".to_owned(), curve.write);
            Columns {
                name: curve.name,
                heights: heights.map(|value| value.map(scale)).collect(),
                latest: written(values.back().copied().flatten()),
                largest: written(largest),
            }
        };
        self.values.iter().zip(&CURVES).map(draw).collect()
    }

    /// Which of `len` samples a column stands for. The last column ends with the newest sample.
    fn samples_of(&self, column: usize, width: usize, len: usize) -> Option<std::ops::Range<usize>> {
        let missing = self.capacity - len;
        let start = column * self.capacity / width;
        let end = ((column + 1) * self.capacity / width).max(start + 1);
        (end > missing).then(|| start.saturating_sub(missing)..end - missing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(interval_s: u64, values: impl IntoIterator<Item = Option<f64>>) -> History {
        let mut history = History::new(Duration::from_secs(interval_s));
        for delivered_per_s in values {
            history.push(&Figures { delivered_per_s, ..Figures::default() });
        }
        history
    }

    fn delivered(history: &History, width: usize) -> Columns {
        history.columns(width).into_iter().find(|columns| columns.name == "delivered/s").unwrap()
    }

    #[test]
    fn the_newest_value_is_at_the_right_whatever_the_width() {
        let history = filled(40, [Some(1.0), Some(4.0)]);
        assert_eq!(delivered(&history, 3).heights, [None, Some(250), Some(1_000)]);
        assert_eq!(delivered(&history, 6).heights, [None, None, Some(250), Some(250), Some(1_000), Some(1_000)]);
        assert_eq!(delivered(&history, 1).heights, [Some(1_000)]);
        assert!(delivered(&history, 0).heights.is_empty());
    }

    #[test]
    fn a_peak_is_seen_however_narrow_the_curve() {
        let history = filled(1, (0..500).map(|second| Some(if second == 450 { 100.0 } else { 1.0 })));
        let columns = delivered(&history, 10);
        assert_eq!(columns.heights.iter().filter(|&&height| height == Some(1_000)).count(), 1);
        assert_eq!((columns.latest.as_str(), columns.largest.as_str()), ("1", "100"));
    }

    #[test]
    fn what_is_older_than_two_minutes_is_forgotten() {
        let history = filled(1, (0..121).map(|second| Some(if second == 0 { 100.0 } else { 1.0 })));
        assert_eq!(delivered(&history, 120).heights, [Some(1_000); 120]);
        assert_eq!(history.values[0].len(), 120);
    }

    #[test]
    fn gaps_and_zeros_are_not_the_same() {
        let columns = delivered(&filled(40, [Some(0.0), None, Some(0.0)]), 3);
        assert_eq!(columns.heights, [Some(0), None, Some(0)]);
        assert_eq!(delivered(&filled(40, [None]), 3).largest, "-");
    }
}
