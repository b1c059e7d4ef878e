//! The rows of a comparison's table.

use super::Figures;

/// A row: what is measured, and where a run's figures have it.
#[derive(Clone, Copy, Debug)]
pub struct Measure {
    /// The name of the measure.
    pub name: &'static str,
    /// Its unit; empty for counts.
    pub unit: &'static str,
    /// Whether less of it is better; otherwise more is.
    pub is_cost: bool,
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
pub const OUTGOING: Measure = Measure {
    name: "outgoing per connection",
    unit: "µs",
    is_cost: true,
    of: |figures| Some(figures.us_per_connection.outgoing()),
};
/// The same without the kernel's part: the figure by which models are compared.
pub const OUTSIDE_KERNEL: Measure = Measure {
    name: "  outside the kernel",
    unit: "µs",
    is_cost: true,
    of: |figures| Some(figures.outside_kernel_us()),
};

/// Data to a client. A server that misses ticks sends less; that is not an advantage.
pub fn bytes_if_not_overloaded(figures: &Figures) -> Option<f64> {
    (!figures.is_overloaded()).then_some(figures.kbit_per_s)
}

/// The work for each connection, the kernel's part included.
pub const PER_CONNECTION: Measure = Measure {
    name: "work for a connection",
    unit: "µs",
    is_cost: true,
    of: |figures| Some(figures.per_connection_us()),
};
/// The same without the kernel's part.
pub const PER_CONNECTION_OUTSIDE_KERNEL: Measure = Measure {
    name: "  outside the kernel",
    unit: "µs",
    is_cost: true,
    of: |figures| Some(figures.per_connection_us() - figures.us_per_connection.send),
};

/// The rows for a workload. `converge` begins as its published table does: incoming, world, outgoing.
pub fn measures(workload: &str) -> Vec<Measure> {
    let frame = cost("frame", "ms", |figures| Some(figures.frame_ms));
    let frame_p99 = cost("frame p99", "ms", |figures| Some(figures.frame_p99_ms));
    let incoming = cost("incoming", "ms", |figures| Some(figures.incoming_ms()));
    let world = cost("world", "ms", |figures| Some(figures.world_ms()));
    let outgoing = cost("outgoing", "ms", |figures| Some(figures.outgoing_ms()));
    let mut rows = match workload {
        "converge" => vec![frame, frame_p99, incoming, world, outgoing],
        _ => vec![frame, frame_p99, outgoing],
    };
    rows.extend([
        OUTGOING,
        OUTSIDE_KERNEL,
        cost("  model alone, not sealed", "µs", |figures| Some(figures.model_us())),
        cost("outgoing by the floor", "", |figures| figures.floor_ratio),
        cost("to a client", "kbit/s", |figures| Some(figures.kbit_per_s)),
        cost("object update", "B", |figures| figures.update_bytes),
        gain("updates to a client", "1/s", |figures| Some(figures.updates_per_s)),
        cost("age within 10 m, p50", "ms", |figures| figures.near_age_ms.p50),
        cost("age within 10 m, p99", "ms", |figures| figures.near_age_ms.p99),
        cost("age at 10 to 50 m, p50", "ms", |figures| figures.middle_age_ms.p50),
        cost("age at 10 to 50 m, p99", "ms", |figures| figures.middle_age_ms.p99),
        cost("age beyond, p50", "ms", |figures| figures.far_age_ms.p50),
        cost("age beyond, p99", "ms", |figures| figures.far_age_ms.p99),
        gain("objects known to a client", "", |figures| figures.known_objects),
        cost("allocations per tick", "", |figures| figures.allocations_per_tick),
        cost("memory per connection", "KiB", |figures| Some(figures.rss_bytes_per_connection / 1024.0)),
        cost("missed ticks", "%", missed_percent),
    ]);
    rows
}

fn cost(name: &'static str, unit: &'static str, of: fn(&Figures) -> Option<f64>) -> Measure {
    Measure { name, unit, is_cost: true, of }
}

fn gain(name: &'static str, unit: &'static str, of: fn(&Figures) -> Option<f64>) -> Measure {
    Measure { is_cost: false, ..cost(name, unit, of) }
}

fn missed_percent(figures: &Figures) -> Option<f64> {
    (figures.ticks + figures.missed_ticks > 0).then(|| figures.missed_share() * 100.0)
}
