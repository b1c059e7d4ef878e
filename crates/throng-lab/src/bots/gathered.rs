//! All that the bots of a process have counted, so that the counts of several processes become the figures of one run.
//!
//! Histograms stay histograms until all are there: a percentile of percentiles would be the percentile of nothing.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use throng_judge::{mean, quantile};
use throng_summary::neighbours::{Looks, NeighbourLog};
use throng_summary::{Bots, Counted, DIFFERENCES, FieldBytes, Known};

use super::fleet::late_histogram;
use super::witness::known_histogram;
use super::{BotsReport, outage, worst};
use crate::control::Progress;

/// The counts of a process, or of several.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Gathered {
    /// The figures but for those that come from the lists below.
    pub(super) report: BotsReport,
    pub(super) inputs_due: u64,
    pub(super) inputs_sent: u64,
    /// How late inputs were, in microseconds; one of each process, as all lists of counts here.
    pub(super) late_us: Vec<Counted>,
    /// Payload to each bot, and the same with headers, in kbit/s.
    pub(super) rates: Vec<(f64, f64)>,
    pub(super) known: Vec<Counted>,
    pub(super) looks: Vec<Looks>,
    /// Kind, field, and bits of it that decoding bots were sent in `decoded_s` seconds.
    pub(super) bits: Vec<(String, String, u64)>,
    pub(super) decoded_s: f64,
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
        let (sum, of) = (&mut self.report, other.report);
        outage::join(&mut sum.faults, of.faults);
        for (reason, count) in of.ends {
            match sum.ends.iter_mut().find(|(known, _)| *known == reason) {
                Some((_, sum)) => *sum = sum.saturating_add(count),
                None => sum.ends.push((reason, count)),
            }
        }
        sum.without_last.extend(of.without_last);
        sum.without_last.sort_unstable();
        sum.without_last.dedup();
        sum.differences.extend(of.differences);
        sum.differences.truncate(DIFFERENCES);
        sum.cpu_cores_of.extend(of.cpu_cores_of);
        sum.known_within_40_m = sum.known_within_40_m.into_iter().chain(of.known_within_40_m).reduce(f64::min);
        sum.age_error_ms = sum.age_error_ms.into_iter().chain(of.age_error_ms).reduce(f64::max);
        sum.worst.extend(of.worst);
        let (sum, of) = (&mut sum.bots, of.bots);
        // The most at one time: of bots on several machines this is the most of each.
        sum.connected = sum.connected.saturating_add(of.connected);
        sum.disconnects = sum.disconnects.saturating_add(of.disconnects);
        sum.reconnected = sum.reconnected.saturating_add(of.reconnected);
        sum.decoded = sum.decoded.saturating_add(of.decoded);
        sum.objects_compared = sum.objects_compared.saturating_add(of.objects_compared);
        sum.state_mismatches = sum.state_mismatches.saturating_add(of.state_mismatches);
        sum.compared_in_play = sum.compared_in_play.saturating_add(of.compared_in_play);
        sum.without_truth_in_play |= of.without_truth_in_play;
        sum.mismatches_in_play = sum.mismatches_in_play.saturating_add(of.mismatches_in_play);
        sum.not_compared = sum.not_compared.saturating_add(of.not_compared);
        sum.stalled = sum.stalled.saturating_add(of.stalled);
        sum.cpu_cores += of.cpu_cores;
        self.inputs_due = self.inputs_due.saturating_add(other.inputs_due);
        self.inputs_sent = self.inputs_sent.saturating_add(other.inputs_sent);
        self.late_us.extend(other.late_us);
        self.rates.extend(other.rates);
        self.known.extend(other.known);
        self.looks.extend(other.looks);
        for (kind, field, bits) in other.bits {
            match self.bits.iter_mut().find(|(of, known, _)| (of, known) == (&kind, &field)) {
                Some((_, _, sum)) => *sum = sum.saturating_add(bits),
                None => self.bits.push((kind, field, bits)),
            }
        }
        self.decoded_s += other.decoded_s;
    }

    /// The ages of these bots are not part of the figures.
    pub(crate) fn forget_ages(&mut self) {
        self.looks.clear();
        self.report.worst.retain(|client| client.near_age_p99_ms.is_none());
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
            bots: Bots {
                inputs_sent_ratio: self.inputs_sent as f64 / self.inputs_due.max(1) as f64,
                input_delay_p99_ms: (!late_us.is_empty()).then(|| late_us.value_at_quantile(0.99) as f64 / 1e3),
                ..self.report.bots
            },
            kbit_per_s: (mean(&payload).unwrap_or(0.0), quantile(&payload, 0.99).unwrap_or(0.0)),
            kbit_per_s_with_headers_p99: quantile(&with_headers, 0.99).unwrap_or(0.0),
            known: Known { p1: at(0.01), p50: at(0.5) },
            neighbours: neighbours.figures(),
            fields: self.fields(),
            worst: worst::of_all(&self.report.worst),
            ..self.report.clone()
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

#[cfg(test)]
mod tests {
    use throng_summary::{Difference, FaultFigures, WorstClient};

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
            report: BotsReport {
                bots: Bots { connected: 10, ..Bots::default() },
                ends: vec![("timeout".to_owned(), client)],
                known_within_40_m: Some(1.0 / f64::from(client)),
                worst: clients.collect(),
                ..BotsReport::default()
            },
            inputs_due: 100,
            inputs_sent: 80 + u64::from(client),
            late_us: vec![Counted::of(&late_us)],
            rates: vec![(f64::from(client), 0.0)],
            looks: vec![log.looks()],
            bits: vec![("Character".to_owned(), "yaw".to_owned(), 800)],
            decoded_s: 10.0,
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
        assert!(close(report.bots.input_delay_p99_ms, 990.0), "{report:?}");
        let (connected, sent) = (report.bots.connected, report.bots.inputs_sent_ratio);
        assert_eq!((connected, sent, report.kbit_per_s.0), (20, 0.83, 3.0));
        assert_eq!((report.ends, report.known_within_40_m), (vec![("timeout".to_owned(), 6)], Some(0.25)));
        assert_eq!(report.fields[0].bytes_per_s, 10.0, "per client");
        let worst: Vec<u32> = report.worst.iter().map(|client| client.client).collect();
        assert_eq!(worst, [10, 9, 8, 8, 7], "of both");
        all.forget_ages();
        assert_eq!(all.report().neighbours.near.samples, 0);
    }

    #[test]
    fn bots_use_this_machine_if_they_are_on_it_whatever_their_address() {
        let on = |machine: Option<String>, cpu_cores| {
            let bots = Bots { cpu_cores, ..Bots::default() };
            let cpu_cores_of = vec![(machine, cpu_cores)];
            Gathered { report: BotsReport { bots, cpu_cores_of, ..BotsReport::default() }, ..Gathered::default() }
        };
        let mut all = on(throng_machine::boot_id(), 0.5);
        all.add(on(Some("another".to_owned()), 4.0));
        all.add(on(throng_machine::boot_id(), 0.25));
        let report = all.report();
        assert_eq!((report.bots.cpu_cores, report.cpu_cores_here()), (4.75, Some(0.75)));
        all.add(on(None, 1.0));
        assert_eq!(all.report().cpu_cores_here(), None, "a machine without a name may be this one");
    }

    #[test]
    fn counts_that_cannot_be_do_no_harm() {
        let bots = Bots {
            connected: u32::MAX,
            disconnects: u32::MAX,
            reconnected: u32::MAX,
            decoded: u32::MAX,
            objects_compared: u64::MAX,
            state_mismatches: u64::MAX,
            compared_in_play: u64::MAX,
            without_truth_in_play: true,
            mismatches_in_play: u64::MAX,
            not_compared: u32::MAX,
            stalled: u32::MAX,
            ..Bots::default()
        };
        let absurd = || Gathered {
            report: BotsReport {
                bots,
                faults: vec![FaultFigures { bots: u32::MAX, unserved: u32::MAX, ..FaultFigures::default() }],
                ends: vec![("timeout".to_owned(), u32::MAX)],
                differences: vec![Difference::default(); DIFFERENCES],
                ..BotsReport::default()
            },
            inputs_due: u64::MAX,
            inputs_sent: u64::MAX,
            bits: vec![("Character".to_owned(), "yaw".to_owned(), u64::MAX)],
            ..Gathered::default()
        };
        let mut all = absurd();
        all.add(absurd());
        let report = all.report();
        let (connected, compared) = (report.bots.connected, report.bots.objects_compared);
        assert_eq!((connected, compared, report.ends[0].1), (u32::MAX, u64::MAX, u32::MAX));
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
