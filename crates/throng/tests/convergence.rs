//! After any storm over any network, each client holds what the server holds for its audience.

use crate::harness::WorldOptions;
use crate::harness::storm::{Storm, StormOptions};
use throng::Tick;
use throng_seeds::for_seeds;

#[test]
fn r01_clients_converge_after_any_storm() {
    for_seeds(2_000, |seed| Storm::new(WorldOptions::new(seed), StormOptions::default()).run().map(drop));
}

#[test]
fn clients_converge_with_little_budget_and_short_memory() {
    for_seeds(600, |seed| {
        let mut options = WorldOptions::new(seed);
        options.server.client_bytes_per_s = [3_000, 6_000, 12_000][seed as usize % 3];
        options.server.replicator.retention_ticks = [4, 16, 64][seed as usize / 3 % 3];
        Storm::new(options, StormOptions { calm_ticks: 3_000, ..StormOptions::default() }).run().map(drop)
    });
}

#[test]
fn clients_converge_across_the_wrap_of_the_tick() {
    for_seeds(600, |seed| {
        let mut options = WorldOptions::new(seed);
        options.server.replicator.first_tick = Tick((1 << 32) - 80);
        Storm::new(options, StormOptions::default()).run().map(drop)
    });
}
