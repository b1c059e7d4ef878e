//! Figures in the text format of Prometheus.

use prometheus::proto::{Bucket, Counter, Gauge, Histogram, LabelPair, Metric, MetricFamily, MetricType};
use prometheus::{Encoder, TextEncoder};
use throng_meter::Subsystems;

use crate::FrameBudgets;
use crate::figures::{BOUNDS_NS, Cause, Distribution, Figures, PHASES_MAX};

/// Counts from outside of frames.
pub(crate) struct Around {
    pub(crate) recorders: usize,
    pub(crate) dumps: u64,
    pub(crate) dumps_suppressed: u64,
    pub(crate) write_errors: u64,
}

/// The text of a scrape.
pub(crate) fn text(figures: &Figures, around: &Around, names: &Subsystems, budgets: &FrameBudgets) -> String {
    let mut families = frames(figures, around, budgets);
    families.extend(subsystems(figures, names, budgets));
    families.retain(|family| !family.get_metric().is_empty());
    let mut text = Vec::new();
    // Only a family without metrics or a writer that fails is an error, and there is neither.
    let _ = TextEncoder::new().encode(&families, &mut text);
    String::from_utf8(text).unwrap_or_default()
}

fn frames(figures: &Figures, around: &Around, budgets: &FrameBudgets) -> Vec<MetricFamily> {
    let slow = Cause::ALL.map(|cause| counter(&[("cause", cause.name())], figures.slow_frames[cause as usize] as f64));
    let frame_budget = budgets.frame_ns.map(|ns| gauge(&[], seconds(ns.into())));
    let count = |value: u64| vec![counter(&[], value as f64)];
    let cpu = vec![counter(&[], seconds(figures.cpu.sum()))];
    let not_running = vec![counter(&[], seconds(figures.not_running_ns.into()))];
    let wall = vec![histogram(&[], &figures.frame)];
    let late = vec![histogram(&[], &figures.late)];
    let recorders = vec![gauge(&[], around.recorders as f64)];
    use MetricType::{COUNTER, GAUGE, HISTOGRAM};
    vec![
        family("throng_frame_seconds", "Wall time of frames.", HISTOGRAM, wall),
        family("throng_frame_cpu_seconds_total", "Processor time of frames.", COUNTER, cpu),
        family(
            "throng_frame_not_running_seconds_total",
            "Time in which the threads of frames did not run.",
            COUNTER,
            not_running,
        ),
        family("throng_frame_late_seconds", "How late frames began.", HISTOGRAM, late),
        family("throng_frame_budget_seconds", "The budget of a frame.", GAUGE, frame_budget.into_iter().collect()),
        family("throng_frame_breaches_total", "Frames over their budget.", COUNTER, count(figures.frame_breaches)),
        family("throng_slow_frames_total", "Slow frames.", COUNTER, slow.into()),
        family("throng_frames_lost_total", "Frames without figures.", COUNTER, count(figures.lost_frames)),
        family("throng_recorders", "Matches that are recorded now.", GAUGE, recorders),
        family("throng_flight_files_total", "Slow frames written to files.", COUNTER, count(around.dumps)),
        family(
            "throng_flight_suppressed_total",
            "Slow frames not written, because one was tried shortly before.",
            COUNTER,
            count(around.dumps_suppressed),
        ),
        family("throng_telemetry_write_errors_total", "Files not written.", COUNTER, count(around.write_errors)),
    ]
}

fn subsystems(figures: &Figures, names: &Subsystems, budgets: &FrameBudgets) -> Vec<MetricFamily> {
    let (mut times, mut limits, mut breaches) = (Vec::new(), Vec::new(), Vec::new());
    for subsystem in names.iter() {
        let name = names.name(subsystem);
        let sums = &figures.subsystems[subsystem.index()];
        times.extend(sums.time.as_ref().map(|time| histogram(&[("subsystem", name)], time)));
        let limit_ns = budgets.subsystems.limit_ns(subsystem);
        limits.extend(limit_ns.map(|ns| gauge(&[("subsystem", name)], seconds(ns.into()))));
        for place in (0..=PHASES_MAX).filter(|&place| sums.breaches[place] > 0) {
            let labels = [("phase", figures.phase_name(place)), ("subsystem", name)];
            breaches.push(counter(&labels, sums.breaches[place] as f64));
        }
    }
    vec![
        family(
            "throng_subsystem_seconds",
            "Exclusive wall time of a subsystem in the frames in which it ran.",
            MetricType::HISTOGRAM,
            times,
        ),
        family("throng_subsystem_budget_seconds", "The budget of a subsystem in a frame.", MetricType::GAUGE, limits),
        family(
            "throng_subsystem_breaches_total",
            "Frames in which a subsystem was over its budget.",
            MetricType::COUNTER,
            breaches,
        ),
    ]
}

fn seconds(ns: u128) -> f64 {
    ns as f64 / 1e9
}

fn family(name: &str, help: &str, kind: MetricType, metrics: Vec<Metric>) -> MetricFamily {
    let mut family = MetricFamily::default();
    family.set_name(name.to_owned());
    family.set_help(help.to_owned());
    family.set_field_type(kind);
    family.set_metric(metrics);
    family
}

fn labelled(labels: &[(&str, &str)]) -> Metric {
    let pair = |&(name, value): &(&str, &str)| {
        let mut pair = LabelPair::default();
        pair.set_name(name.to_owned());
        pair.set_value(value.to_owned());
        pair
    };
    Metric::from_label(labels.iter().map(pair).collect())
}

fn counter(labels: &[(&str, &str)], value: f64) -> Metric {
    let (mut metric, mut counter) = (labelled(labels), Counter::default());
    counter.set_value(value);
    metric.set_counter(counter);
    metric
}

fn gauge(labels: &[(&str, &str)], value: f64) -> Metric {
    let (mut metric, mut gauge) = (labelled(labels), Gauge::default());
    gauge.set_value(value);
    metric.set_gauge(gauge);
    metric
}

fn histogram(labels: &[(&str, &str)], distribution: &Distribution) -> Metric {
    let (mut metric, mut histogram) = (labelled(labels), Histogram::default());
    let mut cumulative = 0;
    let buckets = BOUNDS_NS.iter().zip(distribution.buckets).map(|(&bound_ns, count)| {
        cumulative += count;
        let mut bucket = Bucket::default();
        bucket.set_upper_bound(seconds(bound_ns.into()));
        bucket.set_cumulative_count(cumulative);
        bucket
    });
    histogram.set_bucket(buckets.collect());
    histogram.set_sample_count(distribution.histogram.len());
    histogram.set_sample_sum(seconds(distribution.histogram.sum()));
    metric.set_histogram(histogram);
    metric
}
