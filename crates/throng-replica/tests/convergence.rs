//! After any storm of changes, losses, duplicates and reordering, each client holds what the server holds for it.

use std::hash::Hasher;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::storm::{Storm, StormOptions, WATCHFUL_TICKS};

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

/// Storms in which clients see walkers from afar as well; returns how many of those were compared.
fn far(count: u64, options: impl Fn(u64) -> StormOptions + Sync) -> u64 {
    let looks = AtomicU64::new(0);
    throng_seeds::for_seeds(count, |seed| {
        let mut storm = Storm::new(seed, StormOptions { far_parts: 1 + seed as u16 / 2 % 3, ..options(seed) });
        let calm = storm.weather();
        looks.fetch_add(storm.far_looks, Ordering::Relaxed);
        calm
    });
    println!("{} walkers seen from afar", looks.load(Ordering::Relaxed));
    looks.into_inner()
}

#[test]
fn clients_converge_that_see_from_afar_as_well() {
    let storm = |seed: u64| StormOptions { loss: [0.0, 0.1, 0.3][seed as usize % 3], ..StormOptions::default() };
    assert!(far(600, storm) > 1_000);
    let short = |seed| StormOptions { budget_bytes: 220, retention_ticks: 8, ..storm(seed) };
    assert!(far(300, short) > 500);
    let crowd =
        |seed| StormOptions { clients: 6, is_crowd: true, view_switches: 20 * (seed as u32 % 2), ..storm(seed) };
    assert!(far(300, crowd) > 500);
}

#[test]
fn what_is_sent_does_not_depend_on_the_rows_into_which_connections_are_divided() {
    throng_seeds::for_seeds(12, |seed| {
        let written = |rows: usize| {
            let is_crowd = seed % 4 != 3;
            let budget_bytes = [2_000, 300][seed as usize % 2];
            let view_switches = [0, 20][seed as usize / 2 % 2];
            let common = StormOptions { clients: 9, storm_ticks: 80, is_crowd, ..StormOptions::default() };
            let mut storm = Storm::new(seed, StormOptions { rows, budget_bytes, view_switches, ..common });
            storm.weather().map(|()| storm.written.finish())
        };
        let one = written(1)?;
        match [2, 4, 20].into_iter().find(|&rows| written(rows) != Ok(one)) {
            Some(rows) => Err(format!("with {rows} rows other bytes are sent")),
            None => Ok(()),
        }
    });
}

/// Storms over a crowd, in which most connections are members of a shared view most of the time. Returns the part of the
/// segments that was shared.
fn crowd(count: u64, options: impl Fn(u64) -> StormOptions + Sync) -> f64 {
    let sums = [AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0)];
    throng_seeds::for_seeds(count, |seed| {
        let mut storm = Storm::new(seed, StormOptions { clients: 6, is_crowd: true, ..options(seed) });
        let calm = storm.weather();
        let [all, shared] = storm.segments();
        sums.iter()
            .zip([all, shared, storm.regular])
            .for_each(|(sum, segments)| _ = sum.fetch_add(segments, Ordering::Relaxed));
        calm
    });
    let [all, shared, regular] = sums.map(|sum| sum.into_inner() as f64);
    println!("{shared} of {all} segments shared, {regular} plans without a look at the connection");
    assert!(regular > 100.0 * count as f64 || throng_seeds::is_partial(), "hardly any");
    shared / all
}

#[test]
fn clients_of_shared_views_converge() {
    assert!(crowd(300, |_| StormOptions { loss: 0.0, ..StormOptions::default() }) > 0.15);
    assert!(crowd(600, |seed| StormOptions { loss: [0.05, 0.2][seed as usize % 2], ..StormOptions::default() }) > 0.12);
}

#[test]
fn clients_that_leave_shared_views_and_come_back_converge() {
    let switches = |seed: u64| [2, 20, 50][seed as usize % 3];
    assert!(crowd(500, |seed| StormOptions { view_switches: switches(seed), ..StormOptions::default() }) > 0.09);
    crowd(500, |seed| StormOptions {
        budget_bytes: 60 + (seed as usize % 5) * 60,
        retention_ticks: 4 + (seed as u32 % 3) * 8,
        view_switches: 5,
        ..StormOptions::default()
    });
    crowd(300, |_| StormOptions { burst_ticks: 12, first_tick: (1 << 32) - 60, ..StormOptions::default() });
    // The fate of a packet is known long after the slots that it speaks of are used again.
    crowd(400, |seed| StormOptions {
        loss: [0.0, 0.05][seed as usize % 2],
        retention_ticks: [3, 5, 8][seed as usize % 3],
        bustle: 3,
        ..StormOptions::default()
    });
    crowd(300, |_| StormOptions { spurious_loss: 0.3, loss: 0.1, ..StormOptions::default() });
}

/// Storms with objects whose positions are predicted. In calm, in each tick in which a client has been told everything, they
/// are where the game has them, within the declared error. Returns how often that was looked at, for other clients' and for
/// own objects.
fn runners(count: u64, options: impl Fn(u64) -> StormOptions + Sync) -> [u64; 2] {
    let sums = [AtomicU64::new(0), AtomicU64::new(0)];
    throng_seeds::for_seeds(count, |seed| {
        let mut storm = Storm::new(seed, StormOptions { runners: 12, ..options(seed) });
        let calm = storm.weather();
        sums.iter().zip(storm.looks).for_each(|(sum, looks)| _ = sum.fetch_add(looks, Ordering::Relaxed));
        calm
    });
    let looks = sums.map(AtomicU64::into_inner);
    println!("{looks:?} looks");
    looks
}

/// Whether that was often enough to mean something.
fn are_many([others, own]: [u64; 2]) -> bool {
    others > 20_000 && own > 5_000 || throng_seeds::is_partial()
}

#[test]
fn predicted_positions_are_within_their_error_in_each_tick_of_a_calm() {
    let watchful = || StormOptions { retention_ticks: WATCHFUL_TICKS, ..StormOptions::default() };
    assert!(are_many(runners(400, |seed| StormOptions { loss: [0.0, 0.1, 0.3][seed as usize % 3], ..watchful() })));
    assert!(are_many(runners(200, |_| StormOptions {
        spurious_loss: 0.3,
        loss: 0.1,
        first_tick: (1 << 32) - 160,
        ..watchful()
    })));
    assert!(are_many(runners(200, |seed| StormOptions {
        budget_bytes: 60 + (seed as usize % 5) * 40,
        burst_ticks: 12,
        ..watchful()
    })));
}

#[test]
fn predicted_positions_are_within_their_error_in_shared_views() {
    let crowd = || StormOptions { clients: 6, is_crowd: true, retention_ticks: WATCHFUL_TICKS, ..Default::default() };
    assert!(are_many(runners(200, |seed| StormOptions { loss: [0.0, 0.05, 0.2][seed as usize % 3], ..crowd() })));
    assert!(are_many(runners(150, |seed| StormOptions {
        view_switches: [2, 20, 50][seed as usize % 3],
        bustle: 2,
        ..crowd()
    })));
}

#[test]
fn predicted_positions_converge_with_little_budget_and_short_memory() {
    let short = |seed: u64| 4 + (seed as u32 % 3) * 8;
    let budget_bytes = |seed: u64| 60 + (seed as usize % 5) * 40;
    runners(300, |seed| StormOptions {
        budget_bytes: budget_bytes(seed),
        retention_ticks: short(seed),
        ..Default::default()
    });
    runners(200, |seed| StormOptions {
        clients: 6,
        is_crowd: true,
        retention_ticks: short(seed),
        view_switches: 5,
        bustle: 3,
        ..StormOptions::default()
    });
}
