//! The progress output of a run.

use std::time::Duration;

use throng_report::{Phases, ProgressLine, optional};

use crate::clients::CONNECTS_PER_S;
use crate::run::{BenchOptions, SECOND, SETTLE_MIN};
use crate::summary::Second;

const STARTING: &str = "starting";

/// The first line of a run.
pub(super) fn announcement(options: &BenchOptions) -> String {
    let (scene, clients) = (options.scene.name(), options.clients);
    let kill = options.kill.map(|victim| format!(", {} killed", victim.said())).unwrap_or_default();
    let way = options.transport.said_with(options.edges);
    phases(options).announcement(&format!("{scene}: {clients} clients{way}{kill}"))
}

/// The phases of a run.
pub(super) fn phases(options: &BenchOptions) -> Phases {
    // Each process that is waited for takes about a second.
    let processes = 1 + options.edges;
    let idle_s = if options.connect_only { 2 } else { 0 };
    let connecting = SECOND * options.clients / CONNECTS_PER_S;
    Phases(vec![
        (STARTING, SECOND * (processes + idle_s) + connecting),
        (Phases::WARM_UP, SECOND * options.warmup_s),
        (Phases::MEASURING, SECOND * options.seconds),
        (Phases::SETTLING, SETTLE_MIN + SECOND),
    ])
}

/// So many clients are in.
pub(super) fn joining(line: &ProgressLine, joined: u32, clients: u32, pending: u64) {
    line.show_share(STARTING, f64::from(joined) / f64::from(clients.max(1)), || {
        format!("{joined} of {clients} clients are in, {pending} subscriptions to come")
    });
}

/// The measured part goes on for so long.
pub(super) fn measuring(line: &ProgressLine, elapsed: Duration, last: Option<&Second>) {
    line.show(Phases::MEASURING, elapsed, || {
        let Some(second) = last else { return String::new() };
        let (updates, ideal) = (second.updates_per_s, second.ideal_updates_per_s);
        let (cores, p99) = (optional(second.gateway_cpu_cores), optional(second.latency_p99_ms));
        format!("{updates:.0} updates/s of {ideal:.0}  gateway {cores} cores  latency p99 {p99} ms")
    });
}
