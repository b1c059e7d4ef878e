//! The newest figures of all loads, for Prometheus.

use std::collections::BTreeMap;

use prometheus::{GaugeVec, Opts, Registry, TextEncoder};

use crate::message::{Event, Hello, Message, Sample};

/// Labels of all metrics: the number of the load, and its workload.
const LABELS: [&str; 2] = ["load", "workload"];
/// The loads that are there, with their newest sample. The hub takes few loads, and only messages with few and short names.
#[derive(Debug, Default)]
pub(crate) struct Latest(BTreeMap<u64, (Hello, Option<Sample>)>);

/// A figure: its name, its help, and its value in seconds, bits or a count.
type Figure = (&'static str, &'static str, fn(&Sample) -> Option<f64>);

const FIGURES: [Figure; 9] = [
    ("throng_load_wanted", "the load that is wanted: players, matches", |of| Some(of.wanted.into())),
    ("throng_load_connected", "the load that is there", |of| Some(of.connected.into())),
    ("throng_load_frame_p50_seconds", "median frame since the sample before; of matches, of all frames so far", |of| {
        Some(of.frame_p50_ms / 1e3)
    }),
    (
        "throng_load_frame_p99_seconds",
        "99th percentile of a frame since the sample before; of matches, of all frames so far",
        |of| Some(of.frame_p99_ms / 1e3),
    ),
    ("throng_load_breaches", "frames over their budget since the load began", |of| Some(of.breaches as f64)),
    ("throng_load_missed_ticks", "ticks that were due and never played", |of| {
        of.missed_ticks.map(|ticks| ticks as f64)
    }),
    ("throng_load_client_bits_per_second", "payload to each client", |of| of.kbit_per_s.map(|kbit| kbit * 1e3)),
    ("throng_load_near_age_p99_seconds", "age of state within 10 m, 99th percentile", |of| {
        of.near_age_p99_ms.map(|ms| ms / 1e3)
    }),
    ("throng_load_generator_cores", "processor time of the load generator by wall time", |of| of.generator_cores),
];

impl Latest {
    pub(crate) fn take(&mut self, event: &Event) {
        match &event.message {
            Message::Hello(hello) => drop(self.0.insert(event.feed, (hello.clone(), None))),
            Message::Sample(sample) => {
                if let Some((_, newest)) = self.0.get_mut(&event.feed) {
                    *newest = Some(sample.clone());
                }
            }
            Message::End => drop(self.0.remove(&event.feed)),
            Message::Points(_) | Message::Mark(_) => {}
        }
    }

    /// The text that Prometheus reads. A load that ends is gone from it.
    pub(crate) fn text(&self) -> prometheus::Result<String> {
        let registry = Registry::new();
        let samples = || self.0.iter().filter_map(|(number, (hello, sample))| Some((number, hello, sample.as_ref()?)));
        for (name, help, value) in FIGURES {
            let gauges = GaugeVec::new(Opts::new(name, help), &LABELS)?;
            registry.register(Box::new(gauges.clone()))?;
            for (number, hello, sample) in samples() {
                if let Some(value) = value(sample) {
                    gauges.with_label_values(&[&number.to_string(), &hello.workload]).set(value);
                }
            }
        }
        let help = "mean time of a subsystem in a frame since the sample before";
        let opts = Opts::new("throng_load_subsystem_seconds", help);
        let parts = GaugeVec::new(opts, &[LABELS[0], LABELS[1], "subsystem"])?;
        registry.register(Box::new(parts.clone()))?;
        for (number, hello, sample) in samples() {
            for (name, ms) in &sample.subsystems_ms {
                parts.with_label_values(&[number.to_string().as_str(), &hello.workload, name]).set(ms / 1e3);
            }
        }
        TextEncoder::new().encode_to_string(&registry.gather())
    }
}
