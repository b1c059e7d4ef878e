//! The rows of a comparison's table.

use super::Figures;

/// A row: what is measured, and where a run's figures have it.
#[derive(Clone, Copy, Debug)]
pub struct Measure {
    /// What is measured.
    pub name: &'static str,
    /// Its unit; empty for counts.
    pub unit: &'static str,
    /// The value in a run's figures.
    pub of: fn(&Figures) -> Option<f64>,
}

impl Measure {
    /// Name and unit: `outgoing, ms`.
    pub fn title(&self) -> String {
        if self.unit.is_empty() { self.name.to_owned() } else { format!("{}, {}", self.name, self.unit) }
    }
}

/// The work of sending state by connection and tick, the kernel's part included.
pub const OUTGOING: Measure =
    Measure { name: "outgoing per connection", unit: "µs", of: |figures| Some(figures.us_per_connection.outgoing()) };
/// The same without the kernel's part: the figure by which models are held against each other.
pub const OUTSIDE_KERNEL: Measure =
    Measure { name: "  outside the kernel", unit: "µs", of: |figures| Some(figures.outside_kernel_us()) };

/// What is shown of a workload. `converge` begins as its published table does: incoming, world, outgoing.
pub fn measures(workload: &str) -> Vec<Measure> {
    let frame = Measure { name: "frame", unit: "ms", of: |figures| Some(figures.frame_ms) };
    let frame_p99 = Measure { name: "  p99", unit: "ms", of: |figures| Some(figures.frame_p99_ms) };
    let incoming = Measure { name: "incoming", unit: "ms", of: |figures| Some(figures.incoming_ms()) };
    let world = Measure { name: "world", unit: "ms", of: |figures| Some(figures.world_ms()) };
    let outgoing = Measure { name: "outgoing", unit: "ms", of: |figures| Some(figures.outgoing_ms()) };
    let mut rows = match workload {
        "converge" => vec![frame, frame_p99, incoming, world, outgoing],
        _ => vec![frame, frame_p99, outgoing],
    };
    rows.extend([
        OUTGOING,
        OUTSIDE_KERNEL,
        Measure { name: "  model alone, not sealed", unit: "µs", of: |figures| Some(figures.model_us()) },
        Measure { name: "outgoing by the floor", unit: "", of: Figures::by_floor },
        Measure { name: "to a client", unit: "kbit/s", of: |figures| Some(figures.kbit_per_s) },
        Measure { name: "object update", unit: "B", of: |figures| figures.update_bytes },
        Measure { name: "updates to a client", unit: "1/s", of: |figures| Some(figures.updates_per_s) },
        Measure { name: "age within 10 m, p50", unit: "ms", of: |figures| figures.near_age_ms.p50 },
        Measure { name: "  p99", unit: "ms", of: |figures| figures.near_age_ms.p99 },
        Measure { name: "age at 10 to 50 m, p50", unit: "ms", of: |figures| figures.middle_age_ms.p50 },
        Measure { name: "  p99", unit: "ms", of: |figures| figures.middle_age_ms.p99 },
        Measure { name: "age beyond, p50", unit: "ms", of: |figures| figures.far_age_ms.p50 },
        Measure { name: "  p99", unit: "ms", of: |figures| figures.far_age_ms.p99 },
        Measure { name: "objects known to a client", unit: "", of: |figures| figures.known_objects },
        Measure { name: "allocations per tick", unit: "", of: |figures| figures.allocations_per_tick },
        Measure {
            name: "memory per connection",
            unit: "KiB",
            of: |figures| Some(figures.rss_bytes_per_connection / 1024.0),
        },
        Measure { name: "missed ticks", unit: "%", of: missed_percent },
    ]);
    rows
}

fn missed_percent(figures: &Figures) -> Option<f64> {
    let due = figures.ticks + figures.missed_ticks;
    (due > 0).then(|| figures.missed_ticks as f64 / due as f64 * 100.0)
}
