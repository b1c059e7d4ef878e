//! The progress output of a run.

use std::time::Duration;

use throng_report::{Phases, ProgressLine, optional};

use crate::clients::CONNECTS_PER_S;
use crate::run::{BenchOptions, SECOND, SETTLE_MIN};
use crate::summary::Second;

const STARTING: &str = "starting";
const SETTLING: &str = "settling";
/// The time until nothing more arrives.
const SETTLE: Duration = SETTLE_MIN.saturating_add(SECOND);

/// The first line of a run.
pub(super) fn announcement(options: &BenchOptions) -> String {
    let (scene, clients) = (options.scene.name(), options.clients);
    let edges = match options.edges {
        0 => String::new(),
        1 => " at an edge".to_owned(),
        edges => format!(" at {edges} edges"),
    };
    let kill = options.kill.map(|victim| format!(", one {} is killed", victim.name())).unwrap_or_default();
    phases(options).announcement(&format!("{scene}: {clients} clients{edges}{kill}"))
}

fn phases(options: &BenchOptions) -> Phases {
    // Each process that is waited for takes about a second.
    let processes = 1 + options.edges;
    let idle_s = if options.connect_only { 2 } else { 0 };
    let connecting = SECOND * options.clients / CONNECTS_PER_S;
    Phases(vec![
        (STARTING, SECOND * (processes + idle_s) + connecting),
        (Phases::WARM_UP, SECOND * options.warmup_s),
        (Phases::MEASURING, SECOND * options.seconds),
        (SETTLING, SETTLE),
    ])
}

pub(super) struct Display(ProgressLine);

impl Display {
    pub(super) fn new(options: &BenchOptions) -> Display {
        let line = ProgressLine::new(options.show_progress, phases(options));
        line.show(STARTING, 0.0, || "the gateway and the world servers".to_owned());
        Display(line)
    }

    pub(super) fn joining(&self, joined: u32, clients: u32, pending: u64) {
        self.0.show(STARTING, f64::from(joined) / f64::from(clients.max(1)), || {
            format!("{joined} of {clients} clients are in, {pending} subscriptions to come")
        });
    }

    pub(super) fn warming(&self, elapsed: Duration, length: Duration) {
        self.0.show(Phases::WARM_UP, elapsed.div_duration_f64(length), || "warming up, not measuring yet".to_owned());
    }

    pub(super) fn measuring(&self, elapsed: Duration, length: Duration, last: Option<&Second>) {
        self.0.show(Phases::MEASURING, elapsed.div_duration_f64(length), || {
            let Some(second) = last else { return String::new() };
            let (updates, ideal) = (second.updates_per_s, second.ideal_updates_per_s);
            let (cores, p99) = (optional(second.gateway_cpu_cores), optional(second.latency_p99_ms));
            format!("{updates:.0} updates/s of {ideal:.0}  gateway {cores} cores  latency p99 {p99} ms")
        });
    }

    pub(super) fn settling(&self, elapsed: Duration) {
        self.0.show(SETTLING, elapsed.div_duration_f64(SETTLE), || "waiting until nothing more arrives".to_owned());
    }
}
