//! All that the bots of a process have counted, so that the counts of several processes become the figures of one run.
//!
//! Histograms stay histograms until all are there: a percentile of percentiles would be the percentile of nothing.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use throng_judge::{mean, quantile};
use throng_summary::neighbours::{Looks, NeighbourLog};
use throng_summary::{Counted, DIFFERENCES, Difference, FaultFigures, FieldBytes, Known, WorstClient};

use super::fleet::late_histogram;
use super::witness::known_histogram;
use super::{BotsReport, outage, worst};
use crate::control::Progress;

/// The counts of a process, or of several.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Gathered {
    pub(super) connected: u32,
    pub(super) disconnects: u32,
    pub(super) reconnected: u32,
    pub(super) faults: Vec<FaultFigures>,
    pub(super) ends: Vec<(String, u32)>,
    pub(super) decoded: u32,
    pub(super) objects_compared: u64,
    pub(super) state_mismatches: u64,
    pub(super) compared_in_play: u64,
    #[serde(default)]
    pub(super) without_truth_in_play: bool,
    pub(super) mismatches_in_play: u64,
    #[serde(default)]
    pub(super) not_compared: u32,
    #[serde(default)]
    pub(super) without_last: Vec<u32>,
    #[serde(default)]
    pub(super) differences: Vec<Difference>,
    pub(super) stalled: u32,
    pub(super) cpu_cores: f64,
    pub(super) inputs_due: u64,
    pub(super) inputs_sent: u64,
    /// How late inputs were, in microseconds; one of each process, as all lists of counts here.
    pub(super) late_us: Vec<Counted>,
    /// Payload to each bot, and the same with headers, in kbit/s.
    pub(super) rates: Vec<(f64, f64)>,
    pub(super) known: Vec<Counted>,
    pub(super) known_within_40_m: Option<f64>,
    pub(super) looks: Vec<Looks>,
    pub(super) age_error_ms: Option<f64>,
    /// Kind, field, and bits of it that decoding bots were sent in `decoded_s` seconds.
    pub(super) bits: Vec<(String, String, u64)>,
    pub(super) decoded_s: f64,
    pub(super) worst: Vec<WorstClient>,
}

/// The counts of a second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct SecondCounts {
    pub(crate) progress: Progress,
    /// Of state of near neighbours, in microseconds.
    pub(crate) near_ages: Counted,
}

impl Gathered {
    /// Adds the counts of another process. From another machine may come any count: a sum stays at the largest number.
    pub(crate) fn add(&mut self, other: Gathered) {
        // The most at one time: of bots on several machines this is the most of each.
        self.connected = self.connected.saturating_add(other.connected);
        self.disconnects = self.disconnects.saturating_add(other.disconnects);
        self.reconnected = self.reconnected.saturating_add(other.reconnected);
        outage::join(&mut self.faults, other.faults);
        for (reason, count) in other.ends {
            match self.ends.iter_mut().find(|(known, _)| *known == reason) {
                Some((_, sum)) => *sum = sum.saturating_add(count),
                None => self.ends.push((reason, count)),
            }
        }
        self.decoded = self.decoded.saturating_add(other.decoded);
        self.objects_compared = self.objects_compared.saturating_add(other.objects_compared);
        self.state_mismatches = self.state_mismatches.saturating_add(other.state_mismatches);
        self.compared_in_play = self.compared_in_play.saturating_add(other.compared_in_play);
        self.without_truth_in_play |= other.without_truth_in_play;
        self.mismatches_in_play = self.mismatches_in_play.saturating_add(other.mismatches_in_play);
        self.not_compared = self.not_compared.saturating_add(other.not_compared);
        self.without_last.extend(other.without_last);
        self.without_last.sort_unstable();
        self.without_last.dedup();
        self.differences.extend(other.differences);
        self.differences.truncate(DIFFERENCES);
        self.stalled = self.stalled.saturating_add(other.stalled);
        self.cpu_cores += other.cpu_cores;
        self.inputs_due = self.inputs_due.saturating_add(other.inputs_due);
        self.inputs_sent = self.inputs_sent.saturating_add(other.inputs_sent);
        self.late_us.extend(other.late_us);
        self.rates.extend(other.rates);
        self.known.extend(other.known);
        self.known_within_40_m = least(self.known_within_40_m, other.known_within_40_m);
        self.looks.extend(other.looks);
        self.age_error_ms = self.age_error_ms.into_iter().chain(other.age_error_ms).reduce(f64::max);
        for (kind, field, bits) in other.bits {
            match self.bits.iter_mut().find(|(of, known, _)| (of, known) == (&kind, &field)) {
                Some((_, _, sum)) => *sum = sum.saturating_add(bits),
                None => self.bits.push((kind, field, bits)),
            }
        }
        self.decoded_s += other.decoded_s;
        self.worst.extend(other.worst);
    }

    /// The ages of these bots are not part of the figures.
    pub(crate) fn forget_ages(&mut self) {
        self.looks.clear();
        self.worst.retain(|client| client.near_age_p99_ms.is_none());
    }

    /// The figures.
    pub(crate) fn report(&self) -> BotsReport {
        let mut neighbours = NeighbourLog::default();
        self.looks.iter().for_each(|looks| neighbours.add(looks));
        let late_us = joined(late_histogram(), &self.late_us);
        let known = joined(known_histogram(), &self.known);
        let at = |share| (!known.is_empty()).then(|| known.value_at_quantile(share) as f64);
        let (payload, with_headers): (Vec<f64>, Vec<f64>) = self.rates.iter().copied().unzip();
        BotsReport {
            connected: self.connected,
            disconnects: self.disconnects,
            reconnected: self.reconnected,
            faults: self.faults.clone(),
            ends: self.ends.clone(),
            decoded: self.decoded,
            objects_compared: self.objects_compared,
            state_mismatches: self.state_mismatches,
            compared_in_play: self.compared_in_play,
            without_truth_in_play: self.without_truth_in_play,
            mismatches_in_play: self.mismatches_in_play,
            not_compared: self.not_compared,
            without_last: self.without_last.clone(),
            differences: self.differences.clone(),
            stalled: self.stalled,
            cpu_cores: self.cpu_cores,
            inputs_sent_ratio: self.inputs_sent as f64 / self.inputs_due.max(1) as f64,
            input_delay_p99_ms: (!late_us.is_empty()).then(|| late_us.value_at_quantile(0.99) as f64 / 1e3),
            kbit_per_s: (mean(&payload).unwrap_or(0.0), quantile(&payload, 0.99).unwrap_or(0.0)),
            kbit_per_s_with_headers_p99: quantile(&with_headers, 0.99).unwrap_or(0.0),
            known: Known { p1: at(0.01), p50: at(0.5) },
            known_within_40_m: self.known_within_40_m,
            neighbours: neighbours.figures(),
            age_error_ms: self.age_error_ms,
            fields: self.fields(),
            worst: worst::of_all(&self.worst),
            kept_in: None,
        }
    }

    /// Bytes per decoding client and second by kind and field, the largest first.
    fn fields(&self) -> Vec<FieldBytes> {
        let seconds = self.decoded_s.max(1e-9);
        let bytes = |(kind, field, bits): &(String, String, u64)| FieldBytes {
            kind: kind.clone(),
            field: field.clone(),
            bytes_per_s: *bits as f64 / 8.0 / seconds,
        };
        let mut fields: Vec<FieldBytes> = self.bits.iter().map(bytes).collect();
        fields.retain(|field| field.bytes_per_s > 0.0);
        fields.sort_by(|a, b| b.bytes_per_s.total_cmp(&a.bytes_per_s));
        fields
    }
}

impl SecondCounts {
    /// The newest seconds of several processes as one.
    pub(crate) fn joined(seconds: &[SecondCounts]) -> Progress {
        let all = || seconds.iter().map(|second| second.progress);
        let connected = all().map(|of| of.connected).fold(0, u32::saturating_add);
        let kbit: f64 = all().map(|of| of.kbit_per_s * f64::from(of.connected)).sum();
        Progress {
            connected,
            ended: all().map(|of| of.ended).fold(0, u32::saturating_add),
            kbit_per_s: kbit / f64::from(connected.max(1)),
            near_age_p99_ms: NeighbourLog::near_age_p99_ms(seconds.iter().map(|second| &second.near_ages)),
            cpu_cores: all().map(|of| of.cpu_cores).sum(),
            late_p99_ms: all().map(|of| of.late_p99_ms).fold(0.0, f64::max),
        }
    }
}

fn joined(mut histogram: Histogram<u64>, all: &[Counted]) -> Histogram<u64> {
    all.iter().for_each(|counted| counted.add_to(&mut histogram));
    histogram
}

fn least(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    a.into_iter().chain(b).reduce(f64::min)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(ages_ms: std::ops::Range<u32>, client: u32) -> Gathered {
        let (mut late_us, mut log) = (late_histogram(), NeighbourLog::default());
        for ms in ages_ms {
            late_us.saturating_record(u64::from(ms) * 1_000);
            log.look(3.0, f64::from(ms), 0.0);
        }
        let clients = (0..7).map(|place| WorstClient {
            client: client + place,
            because: "most data".to_owned(),
            kbit_per_s: Some(f64::from(client + place)),
            near_age_p99_ms: None,
            known_within_40_m: None,
        });
        Gathered {
            connected: 10,
            ends: vec![("timeout".to_owned(), client)],
            inputs_due: 100,
            inputs_sent: 80 + u64::from(client),
            late_us: vec![Counted::of(&late_us)],
            rates: vec![(f64::from(client), 0.0)],
            known_within_40_m: Some(1.0 / f64::from(client)),
            looks: vec![log.looks()],
            bits: vec![("Character".to_owned(), "yaw".to_owned(), 800)],
            decoded_s: 10.0,
            worst: clients.collect(),
            ..Gathered::default()
        }
    }

    #[test]
    fn the_counts_of_two_processes_give_the_figures_of_one_that_had_all_bots() {
        let mut all = of(1..501, 2);
        all.add(of(501..1_001, 4));
        let report = all.report();
        let near = report.neighbours.near;
        let close = |measured: Option<f64>, ms: f64| measured.is_some_and(|of| (of - ms).abs() <= ms * 0.01);
        assert!(near.samples == 1_000 && close(near.age_ms.p50, 500.0) && close(near.age_ms.p99, 990.0), "{near:?}");
        assert!(close(report.input_delay_p99_ms, 990.0), "{report:?}");
        assert_eq!((report.connected, report.inputs_sent_ratio, report.kbit_per_s.0), (20, 0.83, 3.0));
        assert_eq!((report.ends, report.known_within_40_m), (vec![("timeout".to_owned(), 6)], Some(0.25)));
        assert_eq!(report.fields[0].bytes_per_s, 10.0, "per client");
        let worst: Vec<u32> = report.worst.iter().map(|client| client.client).collect();
        assert_eq!(worst, [10, 9, 8, 8, 7], "of both");
        all.forget_ages();
        assert_eq!(all.report().neighbours.near.samples, 0);
    }

    #[test]
    fn counts_that_cannot_be_do_no_harm() {
        let absurd = || Gathered {
            connected: u32::MAX,
            disconnects: u32::MAX,
            reconnected: u32::MAX,
            faults: vec![FaultFigures { bots: u32::MAX, unserved: u32::MAX, ..FaultFigures::default() }],
            ends: vec![("timeout".to_owned(), u32::MAX)],
            decoded: u32::MAX,
            objects_compared: u64::MAX,
            state_mismatches: u64::MAX,
            compared_in_play: u64::MAX,
            without_truth_in_play: true,
            mismatches_in_play: u64::MAX,
            not_compared: u32::MAX,
            differences: vec![Difference::default(); DIFFERENCES],
            stalled: u32::MAX,
            inputs_due: u64::MAX,
            inputs_sent: u64::MAX,
            bits: vec![("Character".to_owned(), "yaw".to_owned(), u64::MAX)],
            ..Gathered::default()
        };
        let mut all = absurd();
        all.add(absurd());
        let report = all.report();
        assert_eq!((report.connected, report.objects_compared, report.ends[0].1), (u32::MAX, u64::MAX, u32::MAX));
        assert_eq!((report.faults[0].unserved, report.differences.len()), (u32::MAX, DIFFERENCES));
        let progress = Progress { connected: u32::MAX, ended: u32::MAX, ..Progress::default() };
        let second = || SecondCounts { progress, near_ages: Counted::default() };
        let joined = SecondCounts::joined(&[second(), second()]);
        assert_eq!((joined.connected, joined.ended), (u32::MAX, u32::MAX));
    }

    #[test]
    fn a_second_of_two_processes_has_the_percentile_of_all_ages() {
        let second = |ages_ms: std::ops::Range<u32>, connected: u32| {
            let mut log = NeighbourLog::default();
            ages_ms.for_each(|ms| log.look(1.0, f64::from(ms), 0.0));
            let progress =
                Progress { connected, kbit_per_s: f64::from(connected), cpu_cores: 0.5, ..Progress::default() };
            SecondCounts { progress, near_ages: log.take_near_ages() }
        };
        let joined = SecondCounts::joined(&[second(0..10, 30), second(10..1_000, 10)]);
        assert_eq!((joined.connected, joined.kbit_per_s, joined.cpu_cores), (40, 25.0, 1.0));
        assert!(joined.near_age_p99_ms.is_some_and(|ms| (985.0..995.0).contains(&ms)), "{joined:?}");
        assert_eq!(SecondCounts::joined(&[]).near_age_p99_ms, None);
    }
}
