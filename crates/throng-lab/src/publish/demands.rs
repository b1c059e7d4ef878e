//! What is demanded of our model against the others, and what came of it.

use super::peers::{self, Kind, PeerRow};
use crate::compare::{Comparison, Figures, OUTSIDE_KERNEL, Sample, advantage};
use crate::terminal::figure;

/// A demand with its verdict.
pub(super) struct Demand {
    pub(super) what: String,
    pub(super) limit: String,
    pub(super) measured: String,
    pub(super) verdict: &'static str,
}

/// The size at which the models are held against each other.
const PLAYERS: u32 = 100;
/// Two measurements of the same bytes or the same age differ by as much.
const EQUAL: f64 = 1.02;

/// Every demand for which there are figures or might be.
pub(super) fn all(comparisons: &[Comparison], rows: &[PeerRow]) -> Vec<Demand> {
    let mut demands =
        vec![model(comparisons, "shared-state", 10.0), model(comparisons, "legacy", 50.0), order(comparisons)];
    if !rows.is_empty() {
        demands.extend([filtering(rows, 100, 20.0), filtering(rows, 400, 40.0), bytes(rows), broadcast(rows)]);
    }
    demands
}

/// How many times less `ours` spends or sends than `base` in a workload, in the first comparison that has both.
pub(super) fn ratio(
    comparisons: &[Comparison],
    (workload, players): (&str, u32),
    [base, ours]: [&str; 2],
    of: fn(&Figures) -> Option<f64>,
) -> Option<Sample> {
    comparisons.iter().find_map(|comparison| {
        let runs = |who| comparison.counted(workload, players, who);
        advantage(&runs(base), &runs(ours), of)
    })
}

fn model(comparisons: &[Comparison], base: &str, limit: f64) -> Demand {
    let measured = ratio(comparisons, ("dense", PLAYERS), [base, "throng"], OUTSIDE_KERNEL.of);
    Demand {
        what: format!("`dense` with {PLAYERS}: cheaper per connection than `{base}` outside the kernel"),
        limit: format!("at least {limit} times"),
        measured: measured.map_or("–".to_owned(), |sample| {
            format!("{} times ({}–{})", figure(sample.median), figure(sample.min), figure(sample.max))
        }),
        verdict: verdict(measured.map(|sample| sample.median >= limit)),
    }
}

/// `legacy`, `shared-state` and `throng`, in this order of cost.
fn order(comparisons: &[Comparison]) -> Demand {
    let costs = comparisons.iter().find_map(|comparison| {
        let median = |who| {
            let runs = comparison.counted("dense", PLAYERS, who);
            Some(Sample::of(runs.iter().filter_map(|run| run.figures.as_ref().and_then(OUTSIDE_KERNEL.of)))?.median)
        };
        Some([median("legacy")?, median("shared-state")?, median("throng")?])
    });
    Demand {
        what: format!("`dense` with {PLAYERS}: cheaper than `shared-state`, and that than `legacy`"),
        limit: "in this order".to_owned(),
        measured: costs.map_or("–".to_owned(), |costs| format!("{} µs", costs.map(figure).join(" > "))),
        verdict: verdict(costs.map(|[legacy, shared, ours]| legacy > shared && shared > ours)),
    }
}

/// The peer that is cheapest of a kind, and ours at equal terms.
fn best_and_ours(rows: &[PeerRow], players: u32, kind: Kind) -> Option<(&PeerRow, &PeerRow)> {
    let rows = peers::of(rows, "dense", players);
    let ours = rows.iter().find(|row| row.is_ours_not_sealed() && row.checked)?;
    let others = rows.iter().filter(|row| row.kind() == kind && row.checked && row.us_per_client > 0.0);
    let best = others.min_by(|a, b| a.us_per_client.total_cmp(&b.us_per_client))?;
    Some((best, ours))
}

fn filtering(rows: &[PeerRow], players: u32, limit: f64) -> Demand {
    let pair = best_and_ours(rows, players, Kind::Filters);
    let factor = pair.map(|(best, ours)| best.us_per_client / ours.us_per_client);
    Demand {
        what: format!("`dense` with {players}: cheaper per client than the best peer that filters for each client"),
        limit: format!("at least {limit} times"),
        measured: pair.zip(factor).map_or("–".to_owned(), |((best, _), factor)| {
            format!("{} times ({}: {} µs)", figure(factor), best.name(), figure(best.us_per_client))
        }),
        verdict: verdict(factor.map(|factor| factor >= limit)),
    }
}

fn bytes(rows: &[PeerRow]) -> Demand {
    let pair = best_and_ours(rows, PLAYERS, Kind::Filters);
    let bytes = pair.map(|(best, ours)| [best.bytes_per_client_tick, ours.bytes_per_client_tick]);
    let ages = pair.map(|(best, ours)| [best.state_age_ticks, ours.state_age_ticks]);
    Demand {
        what: format!("`dense` with {PLAYERS}: no more bytes and no older state than that peer"),
        limit: "at most as much".to_owned(),
        measured: bytes.zip(ages).map_or("–".to_owned(), |([theirs, ours], [their_age, our_age])| {
            let [theirs, ours, their_age, our_age] = [theirs, ours, their_age, our_age].map(figure);
            format!("{ours} against {theirs} B a tick, {our_age} against {their_age} ticks")
        }),
        verdict: verdict(bytes.zip(ages).map(|([theirs, ours], [their_age, our_age])| {
            ours <= theirs * EQUAL && our_age <= their_age.max(0.01) * EQUAL
        })),
    }
}

fn broadcast(rows: &[PeerRow]) -> Demand {
    let shared = peers::of(rows, "dense", PLAYERS);
    let shared = shared.into_iter().find(|row| row.peer.ends_with("one patch") && row.checked);
    let ours = best_and_ours(rows, PLAYERS, Kind::Filters).map(|(_, ours)| ours);
    let factor = shared.zip(ours).map(|(shared, ours)| ours.us_per_client / shared.us_per_client);
    Demand {
        what: format!(
            "`dense` with {PLAYERS}: time of one patch for all, without filters or recovery from loss (Colyseus)"
        ),
        limit: "at most 4 times".to_owned(),
        measured: factor.map_or("–".to_owned(), |factor| format!("{} times", figure(factor))),
        verdict: verdict(factor.map(|factor| factor <= 4.0)),
    }
}

fn verdict(is_kept: Option<bool>) -> &'static str {
    match is_kept {
        Some(true) => "kept",
        Some(false) => "**missed**",
        None => "not measured",
    }
}
