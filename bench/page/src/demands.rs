//! The demands on our model against the others, and the results.

use super::evidence::{Evidence, between};
use super::peers::{self, Kind, PeerRow};
use throng_lab::compare::{Comparison, Figures, OUTSIDE_KERNEL, Run, Sample};
use throng_report::figure;

/// A demand with its verdict.
pub(super) struct Demand {
    pub(super) what: String,
    pub(super) limit: String,
    pub(super) measured: String,
    /// Where the figures are from.
    pub(super) from: String,
    pub(super) verdict: &'static str,
}

/// The number of players at which the models are compared.
const PLAYERS: u32 = 100;
/// Two measurements of the same bytes or the same age differ by as much.
const EQUAL: f64 = 1.02;
/// The allowed multiple of the time of the peer that sends everybody the same.
const BROADCAST_TIMES: f64 = 4.0;

/// Every demand for which there are figures or might be.
pub(super) fn all(comparisons: &[Comparison], rows: &[PeerRow]) -> Vec<Demand> {
    let mut demands =
        vec![model(comparisons, "shared-state", 10.0), model(comparisons, "legacy", 50.0), order(comparisons)];
    if !rows.is_empty() {
        demands.extend([filtering(rows, 100, 20.0), filtering(rows, 400, 40.0), bytes(rows)]);
        demands.extend(BROADCASTS.iter().map(|broadcast| within(rows, broadcast)));
    }
    demands
}

fn model(comparisons: &[Comparison], base: &str, limit: f64) -> Demand {
    let measured = between(comparisons, ("dense", PLAYERS), [base, "throng"], OUTSIDE_KERNEL.of);
    Demand {
        what: format!("`dense` with {PLAYERS}: cheaper per connection than `{base}` outside the kernel"),
        limit: format!("at least {limit} times"),
        measured: measured.as_ref().map_or("–".to_owned(), |Evidence { sample, .. }| {
            format!("{} times ({}–{})", figure(sample.median), figure(sample.min), figure(sample.max))
        }),
        from: measured.as_ref().map_or("–".to_owned(), Evidence::origin),
        verdict: verdict(measured.map(|evidence| evidence.sample.median >= limit)),
    }
}

/// `legacy`, `shared-state` and `throng`, in this order of cost.
fn order(comparisons: &[Comparison]) -> Demand {
    let sample = |runs: &[&Run]| Sample::of(runs.iter().filter_map(|run| outside_kernel(run.figures.as_ref()?)));
    let found = comparisons.iter().enumerate().find_map(|(place, comparison)| {
        let of = |who| sample(&comparison.sound(("dense", PLAYERS), who));
        Some((place + 1, [of("legacy")?, of("shared-state")?, of("throng")?]))
    });
    let costs = found.map(|(_, samples)| samples.map(|sample| sample.median));
    Demand {
        what: format!("`dense` with {PLAYERS}: cheaper than `shared-state`, and that than `legacy`"),
        limit: "in this order".to_owned(),
        measured: costs.map_or("–".to_owned(), |costs| format!("{} µs", costs.map(figure).join(" > "))),
        from: found.map_or("–".to_owned(), |(run, samples)| {
            let sample = samples.into_iter().min_by_key(|sample| sample.runs).unwrap_or(samples[0]);
            Evidence { sample, run }.origin()
        }),
        verdict: verdict(costs.map(|[legacy, shared, ours]| legacy > shared && shared > ours)),
    }
}

fn outside_kernel(figures: &Figures) -> Option<f64> {
    (OUTSIDE_KERNEL.of)(figures)
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
        from: origin(pair),
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
        from: origin(pair),
        verdict: verdict(bytes.zip(ages).map(|([theirs, ours], [their_age, our_age])| {
            ours <= theirs * EQUAL && our_age <= their_age.max(0.01) * EQUAL
        })),
    }
}

/// The peer that sends the same bytes to every client: its name, and whether a row belongs to it.
struct Broadcast {
    name: &'static str,
    is: fn(&PeerRow) -> bool,
}

/// Both are demanded: the one is the least that can be done, the other what a library does.
const BROADCASTS: [Broadcast; 2] = [
    Broadcast { name: "the naive broadcast", is: |row| row.peer.starts_with("naive") },
    Broadcast { name: "one patch for all (Colyseus)", is: |row| row.peer.ends_with("one patch") },
];

fn within(rows: &[PeerRow], broadcast: &Broadcast) -> Demand {
    let rows = peers::of(rows, "dense", PLAYERS);
    let shared = rows.iter().find(|row| (broadcast.is)(row) && row.checked && row.us_per_client > 0.0);
    let ours = rows.iter().find(|row| row.is_ours_not_sealed() && row.checked);
    let pair = shared.zip(ours).map(|(shared, ours)| (*shared, *ours));
    let factor = pair.map(|(shared, ours)| ours.us_per_client / shared.us_per_client);
    Demand {
        what: format!("`dense` with {PLAYERS}: time of {}, without filters or recovery from loss", broadcast.name),
        limit: format!("at most {BROADCAST_TIMES} times"),
        measured: factor.map_or("–".to_owned(), |factor| format!("{} times", figure(factor))),
        from: origin(pair),
        verdict: verdict(factor.map(|factor| factor <= BROADCAST_TIMES)),
    }
}

/// The rounds behind two rows of the peers: the fewer of them.
fn origin(pair: Option<(&PeerRow, &PeerRow)>) -> String {
    pair.map_or("–".to_owned(), |(theirs, ours)| peers::origin(theirs.rounds.min(ours.rounds)))
}

fn verdict(is_kept: Option<bool>) -> &'static str {
    match is_kept {
        Some(true) => "kept",
        Some(false) => "**missed**",
        None => "not measured",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use throng_lab::compare::example;

    fn against_legacy(comparisons: &[Comparison]) -> Demand {
        model(comparisons, "legacy", 50.0)
    }

    #[test]
    fn runs_that_do_not_count_are_not_measured_and_the_next_comparison_is_asked() {
        let mut spoilt = example();
        spoilt.runs.iter_mut().filter(|run| run.contestant == "legacy").for_each(|run| run.valid = false);
        let found = against_legacy(&[spoilt.clone()]);
        assert_eq!((found.verdict, found.from.as_str()), ("not measured", "–"));
        let found = against_legacy(&[spoilt, example()]);
        assert_eq!((found.verdict, found.from.as_str()), ("kept", "run 2, 2 rounds"));
    }

    #[test]
    fn an_overloaded_server_is_no_base() {
        let mut comparison = example();
        let overload = |run: &mut Run| run.figures.as_mut().unwrap().missed_ticks = 1_000_000;
        comparison.runs.iter_mut().filter(|run| run.contestant == "legacy" && run.round == 0).for_each(overload);
        assert_eq!(against_legacy(&[comparison.clone()]).from, "run 1, 1 round");
        comparison.runs.iter_mut().filter(|run| run.contestant == "legacy").for_each(overload);
        assert_eq!(against_legacy(&[comparison]).verdict, "not measured");
    }

    #[test]
    fn each_broadcast_is_a_demand_of_its_own() {
        let row = |peer: &str, us_per_client: f64| PeerRow {
            peer: peer.to_owned(),
            workload: "dense".to_owned(),
            players: PLAYERS,
            rounds: 2,
            us_per_client,
            checked: true,
            ..PeerRow::default()
        };
        let rows = [row("throng, not sealed", 1.0), row("naive broadcast", 0.1), row("colyseus, one patch", 1.0)];
        let verdicts =
            BROADCASTS.map(|broadcast| (within(&rows, &broadcast).measured, within(&rows, &broadcast).verdict));
        assert_eq!(verdicts, [("10 times".to_owned(), "**missed**"), ("1 times".to_owned(), "kept")]);
        assert_eq!(within(&rows[..1], &BROADCASTS[0]).verdict, "not measured");
    }
}
