use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use throng_summary::{RunSummary, Split, Spread};

/// A server that misses more of its ticks than this is overloaded.
pub const OVERLOADED_SHARE: f64 = 0.01;
/// The mark of such a server.
pub const OVERLOADED: &str = "†";

/// The part of a run's summary that a comparison keeps. Times are means over the measured part's ticks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Figures {
    /// Connections.
    pub connections: f64,
    /// Working time of a frame, in milliseconds.
    pub frame_ms: f64,
    /// The same at the 99th percentile.
    pub frame_p99_ms: f64,
    /// By connection and tick, in microseconds.
    pub us_per_connection: Split,
    /// Outgoing work of the ticks that the floor was measured from, by the floor: never below 1.
    #[serde(default)]
    pub floor_ratio: Option<f64>,
    /// Ticks.
    pub ticks: u64,
    /// Ticks that were not done when the next was due.
    pub missed_ticks: u64,
    /// Heap allocations per tick.
    pub allocations_per_tick: Option<f64>,
    /// Growth of resident memory by connection.
    pub rss_bytes_per_connection: f64,
    /// UDP payload to a client.
    pub kbit_per_s: f64,
    /// Object state by object updates, without packet header and seal.
    pub update_bytes: Option<f64>,
    /// Object updates to a client per second.
    pub updates_per_s: f64,
    /// Objects that a decoding client holds, median.
    pub known_objects: Option<f64>,
    /// Age in milliseconds of the state of neighbours within 10 m, at the bots.
    pub near_age_ms: Spread,
    /// From 10 to 50 m.
    pub middle_age_ms: Spread,
    /// Beyond.
    pub far_age_ms: Spread,
}

impl Figures {
    /// The figures of a run.
    pub fn of(run: &RunSummary) -> Figures {
        Figures {
            connections: run.server.connections,
            frame_ms: run.server.frame_ms.mean,
            frame_p99_ms: run.server.frame_ms.p99,
            us_per_connection: run.server.us_per_connection,
            floor_ratio: run.floor.ratio,
            ticks: run.server.ticks,
            missed_ticks: run.server.missed_ticks,
            allocations_per_tick: run.server.steady_state_allocations_per_tick,
            rss_bytes_per_connection: run.server.rss_bytes_per_connection,
            kbit_per_s: run.client.kbit_per_s.mean,
            update_bytes: run.client.object_update_bytes.mean,
            updates_per_s: run.client.object_updates_per_s,
            known_objects: run.client.known_objects.p50,
            near_age_ms: run.neighbours.near.age_ms,
            middle_age_ms: run.neighbours.middle.age_ms,
            far_age_ms: run.neighbours.far.age_ms,
        }
    }

    /// Taking, opening and reading packets, in milliseconds per tick.
    pub fn incoming_ms(&self) -> f64 {
        self.per_tick_ms(self.us_per_connection.incoming())
    }

    /// Game code, in milliseconds per tick.
    pub fn world_ms(&self) -> f64 {
        self.per_tick_ms(self.us_per_connection.simulate)
    }

    /// The work of sending state, in milliseconds per tick.
    pub fn outgoing_ms(&self) -> f64 {
        self.per_tick_ms(self.us_per_connection.outgoing())
    }

    /// Outgoing work without handing packets to the kernel, in microseconds by connection and tick: interest, quantise,
    /// plan, encode, write and seal.
    pub fn outside_kernel_us(&self) -> f64 {
        self.us_per_connection.outgoing() - self.us_per_connection.send
    }

    /// The replication model's own work, in microseconds by connection and tick: interest, quantise, plan, encode and
    /// write.
    pub fn model_us(&self) -> f64 {
        self.outside_kernel_us() - self.us_per_connection.seal
    }

    /// The work for each connection, in microseconds: all outgoing work except quantising and comparing touched
    /// objects. Models filter, mark and sort for each connection at different stages, so the sum includes these stages
    /// for all models. It also includes lists that some models keep for all connections together, because they cannot
    /// be separated.
    pub fn per_connection_us(&self) -> f64 {
        self.us_per_connection.outgoing() - self.us_per_connection.quantise
    }

    /// The share of due ticks that were not done when the next was due, 0 to 1.
    pub fn missed_share(&self) -> f64 {
        let due = self.ticks + self.missed_ticks;
        if due == 0 { 0.0 } else { self.missed_ticks as f64 / due as f64 }
    }

    /// Whether the server was overloaded: it missed more than [`OVERLOADED_SHARE`] of its ticks. Its figures are then
    /// those of the ticks that it managed: its clients are sent less, and what they hold is old between ticks, not in them.
    pub fn is_overloaded(&self) -> bool {
        self.missed_share() > OVERLOADED_SHARE
    }

    fn per_tick_ms(&self, us_per_connection: f64) -> f64 {
        us_per_connection * self.connections / 1e3
    }
}

#[cfg(test)]
mod tests {
    use throng::meter::Subsystem;

    use super::*;

    #[test]
    fn a_server_that_misses_more_than_one_tick_of_a_hundred_is_overloaded() {
        let figures = |ticks, missed_ticks| Figures { ticks, missed_ticks, ..Figures::default() };
        assert!(!figures(0, 0).is_overloaded() && !figures(239, 1).is_overloaded() && !figures(99, 1).is_overloaded());
        assert!(figures(98, 2).is_overloaded() && figures(111, 121).is_overloaded());
    }

    #[test]
    fn filters_masks_and_priorities_of_a_connection_are_work_for_it_wherever_a_model_does_them() {
        let figures = |parts: &[(Subsystem, f64)]| Figures {
            us_per_connection: Split::new(parts.iter().copied(), 0.0),
            ..Figures::default()
        };
        let around = [
            (Subsystem::SIMULATE, 9.0),
            (Subsystem::QUANTISE, 2.0),
            (Subsystem::SEAL, 1.0),
            (Subsystem::SEND, 4.0),
            (Subsystem::RECEIVE, 9.0),
        ];
        // Quantised 2 µs; the rest in its turn, or before it.
        let in_turn = figures(&[&around[..], &[(Subsystem::WRITE, 7.0)]].concat());
        let before = figures(
            &[
                &around[..],
                &[
                    (Subsystem::INTEREST, 2.0),
                    (Subsystem::PLAN, 1.0),
                    (Subsystem::ENCODE, 2.0),
                    (Subsystem::WRITE, 2.0),
                ],
            ]
            .concat(),
        );
        assert_eq!([in_turn.per_connection_us(), before.per_connection_us()], [12.0, 12.0]);
    }

    #[test]
    fn outgoing_work_falls_into_the_kernels_part_the_seal_and_the_model() {
        let run = RunSummary::example();
        let figures = Figures::of(&run);
        let us = &run.server.us_per_connection;
        assert!((figures.model_us() + us.seal + us.send - us.outgoing()).abs() < 1e-9);
        assert!((figures.outgoing_ms() - us.outgoing() * run.server.connections / 1e3).abs() < 1e-9);
        assert!((figures.floor_ratio.unwrap() - run.floor.ratio.unwrap()).abs() < 0.02);
    }
}
