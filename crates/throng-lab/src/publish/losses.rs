//! Every figure in which another does better than we do.

use super::markdown::cells;
use super::peers::{self, Kind, PeerRow};
use crate::compare::{Comparison, Measure, Sample, measures};
use crate::terminal::figure;

/// Header of the rows.
pub(super) fn header() -> Vec<String> {
    cells(["where", "what", "ours", "who is better, best first", "factor of the best"])
}

/// A row for each size, measure and comparison in which others are better than `throng`, with all of them. Servers that
/// were overloaded are no others: what they did not do is not cheaper.
pub(super) fn models(comparisons: &[Comparison]) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for comparison in comparisons {
        for workload in &comparison.workloads {
            for players in comparison.sizes(workload) {
                let measures = measures(workload).into_iter().filter(|measure| measure.is_cost);
                rows.extend(measures.filter_map(|measure| of_models(comparison, (workload, players), &measure)));
            }
        }
    }
    rows
}

fn of_models(comparison: &Comparison, (workload, players): (&str, u32), measure: &Measure) -> Option<Vec<String>> {
    let median = |who: &str| {
        let runs = comparison.counted(workload, players, who);
        Some(Sample::of(runs.iter().filter_map(|run| run.figures.as_ref().and_then(measure.of)))?.median)
    };
    let ours = median("throng")?;
    let others = comparison.contestants.iter().filter(|who| *who != "throng");
    let others = others.filter(|who| !comparison.is_overloaded(workload, players, who));
    let others = others.filter_map(|who| Some((who.clone(), median(who)?))).collect();
    row((workload, players), &measure.title(), ours, others)
}

/// What is compared of a peer, and where its row has it.
type Titled = (&'static str, fn(&PeerRow) -> Option<f64>);

/// The same against the open peers, at equal terms: time, bytes, age and allocations.
pub(super) fn peers(rows: &[PeerRow]) -> Vec<Vec<String>> {
    let figures: [Titled; 4] = [
        ("time per client, µs", |row| Some(row.us_per_client)),
        ("bytes to a client a tick", |row| Some(row.bytes_per_client_tick)),
        ("age of what a client holds, ticks", |row| Some(row.state_age_ticks)),
        ("allocations per tick", |row| row.allocations_per_tick),
    ];
    let mut lost = Vec::new();
    for case in peers::cases(rows) {
        let rows = peers::of(rows, case.0, case.1);
        let Some(ours) = rows.iter().find(|row| row.is_ours_not_sealed() && row.checked) else { continue };
        let others = || rows.iter().filter(|row| row.kind() != Kind::Ours && row.checked);
        lost.extend(figures.iter().filter_map(|(what, of)| {
            row(case, what, of(ours)?, others().filter_map(|row| Some((row.name(), of(row)?))).collect())
        }));
    }
    lost
}

/// `None` if nobody is better. Figures that read the same are no loss.
fn row((workload, players): (&str, u32), what: &str, ours: f64, mut others: Vec<(String, f64)>) -> Option<Vec<String>> {
    others.retain(|(_, theirs)| *theirs < ours && figure(*theirs) != figure(ours));
    others.sort_by(|a, b| a.1.total_cmp(&b.1));
    let best = others.first()?.1;
    let factor = if best > 0.0 { figure(ours / best) } else { "–".to_owned() };
    let who: Vec<String> = others.iter().map(|(who, theirs)| format!("{who}: {}", figure(*theirs))).collect();
    Some(vec![format!("{workload}, {players}"), what.trim().to_owned(), figure(ours), who.join("; "), factor])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(ours: f64, others: &[(&str, f64)]) -> Option<Vec<String>> {
        let others = others.iter().map(|(who, theirs)| ((*who).to_owned(), *theirs)).collect();
        row(("dense", 100), "  outside the kernel, µs", ours, others)
    }

    #[test]
    fn everybody_who_is_better_is_named_the_best_first() {
        let listed = lost(2.0, &[("legacy", 1.5), ("throng's elder", 2.5), ("graph", 1.0)]).unwrap();
        assert_eq!(listed, ["dense, 100", "outside the kernel, µs", "2", "graph: 1; legacy: 1.5", "2"]);
        let nothing = lost(0.5, &[("legacy", 0.0)]).expect("nothing at all is better than something");
        assert_eq!(nothing[3..], ["legacy: 0", "–"]);
    }

    #[test]
    fn equal_figures_are_no_loss() {
        assert!(lost(1.0004, &[("legacy", 1.0)]).is_none(), "they read the same");
        assert!(lost(0.0, &[("legacy", 0.0)]).is_none());
        assert!(lost(1.0, &[("legacy", 2.0)]).is_none());
        assert!(lost(1.0, &[]).is_none());
    }

    #[test]
    fn a_peer_that_allocates_less_is_listed_even_if_it_is_slower() {
        let peer = |peer: &str, us_per_client: f64, allocations: Option<f64>| PeerRow {
            peer: peer.to_owned(),
            us_per_client,
            allocations_per_tick: allocations,
            checked: true,
            ..PeerRow::default()
        };
        let rows = [
            peer("throng, not sealed", 1.0, Some(0.4)),
            peer("naia", 9.0, Some(0.0)),
            peer("colyseus, one patch", 0.5, None),
            peer("naive broadcast", 0.2, Some(0.0)),
        ];
        let lost = peers(&rows);
        let told: Vec<_> = lost.iter().map(|row| (row[1].as_str(), row[3].as_str())).collect();
        let times = "naive broadcast: 0.2; colyseus, one patch: 0.5";
        assert_eq!(told, [("time per client, µs", times), ("allocations per tick", "naia: 0; naive broadcast: 0")]);
    }

    #[test]
    fn an_overloaded_server_is_not_better() {
        let mut comparison = crate::compare::example();
        for run in &mut comparison.runs {
            let figures = run.figures.as_mut().unwrap();
            figures.near_age_ms.p50 = Some(if run.contestant == "legacy" { 0.5 } else { 20.0 });
        }
        let is_age =
            |rows: &[Vec<String>], place: &str| rows.iter().any(|row| row[0] == place && row[1].starts_with("age"));
        assert!(is_age(&models(&[comparison.clone()]), "dense, 400"));
        for run in comparison.runs.iter_mut().filter(|run| run.contestant == "legacy" && run.players == 400) {
            run.figures.as_mut().unwrap().missed_ticks = 400;
        }
        let rows = models(&[comparison]);
        assert!(!is_age(&rows, "dense, 400") && is_age(&rows, "dense, 100"));
    }
}
