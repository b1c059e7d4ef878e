//! A run for Prometheus, while it plays.

use std::sync::{Arc, OnceLock};

use prometheus::{Gauge, IntCounter, IntGauge, Registry, TextEncoder};
use throng::Replication;
use throng_telemetry::Telemetry;

use crate::bots::Progress;
use crate::host::Host;

/// The metrics of one run, in Prometheus' text format. Clones show the same run.
#[derive(Clone, Debug)]
pub struct LiveMetrics(Arc<Metrics>);

#[derive(Debug)]
struct Metrics {
    registry: Registry,
    telemetry: OnceLock<Telemetry>,
    connections: IntGauge,
    sent_bytes: IntCounter,
    sent_packets: IntCounter,
    missed_ticks: IntCounter,
    late_ticks: IntCounter,
    near_age_s: Gauge,
}

impl LiveMetrics {
    /// Metrics of a run that has not begun.
    ///
    /// # Errors
    /// Prometheus' library refuses a name, which is a defect of this program.
    pub fn new() -> prometheus::Result<LiveMetrics> {
        let metrics = Metrics {
            registry: Registry::new(),
            telemetry: OnceLock::new(),
            connections: IntGauge::new("throng_crowd_connections", "Clients that play.")?,
            sent_bytes: IntCounter::new("throng_crowd_sent_bytes_total", "UDP payload to all clients.")?,
            sent_packets: IntCounter::new("throng_crowd_sent_packets_total", "Datagrams to all clients.")?,
            missed_ticks: IntCounter::new("throng_crowd_missed_ticks_total", "Ticks that were due and never played.")?,
            late_ticks: IntCounter::new("throng_crowd_late_ticks_total", "Ticks that ended after the next was due.")?,
            near_age_s: Gauge::new("throng_crowd_near_age_p99_seconds", "Age of state within 10 m, 99th percentile.")?,
        };
        let Metrics { registry, connections, sent_bytes, sent_packets, missed_ticks, late_ticks, near_age_s, .. } =
            &metrics;
        registry.register(Box::new(connections.clone()))?;
        registry.register(Box::new(near_age_s.clone()))?;
        for counter in [sent_bytes, sent_packets, missed_ticks, late_ticks] {
            registry.register(Box::new(counter.clone()))?;
        }
        Ok(LiveMetrics(Arc::new(metrics)))
    }

    /// The newest metrics: those of this run, and the frames of its measured part by subsystem.
    pub fn text(&self) -> String {
        let mut text = TextEncoder::new().encode_to_string(&self.0.registry.gather()).unwrap_or_default();
        text += &self.0.telemetry.get().map(Telemetry::prometheus).unwrap_or_default();
        text
    }

    pub(super) fn begin(&self, telemetry: &Telemetry) {
        // A second run of the same metrics shows the frames of the first.
        let _ = self.0.telemetry.set(telemetry.clone());
    }

    /// Notes the tick that the host has just played. Does not allocate.
    pub(super) fn take(&self, host: &Host<impl Replication>, bots: Progress) {
        let (metrics, counters) = (&self.0, &host.server().last_tick().counters);
        metrics.connections.set(host.connected().into());
        metrics.sent_bytes.inc_by(counters.bytes_sent);
        metrics.sent_packets.inc_by(counters.packets_sent);
        let raise = |counter: &IntCounter, to: u64| counter.inc_by(to.saturating_sub(counter.get()));
        raise(&metrics.missed_ticks, host.skipped_ticks());
        raise(&metrics.late_ticks, host.late_ticks());
        metrics.near_age_s.set(bots.near_age_p99_ms.map_or(f64::NAN, |ms| ms / 1e3));
    }
}
