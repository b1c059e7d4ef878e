//! After any storm of changes, losses, duplicates and reordering, each client holds what the server holds for it.

use crate::storm::{Storm, StormOptions};

fn run_seeds(count: u64, options: impl Fn(u64) -> StormOptions) {
    throng_seeds::for_seeds(count, |seed| Storm::new(seed, options(seed)).run());
}

#[test]
fn r01_clients_converge_after_any_storm() {
    run_seeds(3_000, |seed| StormOptions { loss: [0.0, 0.1, 0.3][seed as usize % 3], ..StormOptions::default() });
}

#[test]
fn clients_converge_when_losses_come_in_bursts() {
    run_seeds(1_500, |_| StormOptions { burst_ticks: 12, ..StormOptions::default() });
}

#[test]
fn clients_converge_with_little_budget_and_short_memory() {
    run_seeds(1_500, |seed| StormOptions {
        budget_bytes: 60 + (seed as usize % 5) * 40,
        retention_ticks: 4 + (seed as u32 % 3) * 8,
        ..StormOptions::default()
    });
}

#[test]
fn clients_converge_across_the_wrap_of_the_tick() {
    run_seeds(1_000, |_| StormOptions { first_tick: (1 << 32) - 60, ..StormOptions::default() });
}

#[test]
fn nothing_is_lost_when_delivered_packets_are_taken_for_lost() {
    run_seeds(1_000, |_| StormOptions { spurious_loss: 0.3, loss: 0.1, ..StormOptions::default() });
}
