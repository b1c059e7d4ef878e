//! Every figure in which another does better than we do.

use super::markdown::cells;
use super::peers::{self, Kind, PeerRow};
use crate::compare::{Comparison, Measure, Sample, measures};
use crate::terminal::figure;

/// Differences below this factor are noise.
const WORSE: f64 = 1.03;

/// Header of the rows.
pub(super) fn header() -> Vec<String> {
    cells(["where", "what", "ours", "better", "who", "factor"])
}

/// A row for each size, measure and comparison in which the best other is better than `throng`.
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
    let best = others.filter_map(|who| Some((who.as_str(), median(who)?))).min_by(|a, b| a.1.total_cmp(&b.1))?;
    row((workload, players), &measure.title(), ours, best)
}

/// What is compared of a peer, and where its row has it.
type Titled = (&'static str, fn(&PeerRow) -> f64);

/// The same against the open peers: time, bytes and age, at equal terms.
pub(super) fn peers(rows: &[PeerRow]) -> Vec<Vec<String>> {
    let figures: [Titled; 3] = [
        ("time per client, µs", |row| row.us_per_client),
        ("bytes to a client a tick", |row| row.bytes_per_client_tick),
        ("age of what a client holds, ticks", |row| row.state_age_ticks),
    ];
    let mut lost = Vec::new();
    for (workload, players) in peers::cases(rows) {
        let rows = peers::of(rows, workload, players);
        let Some(ours) = rows.iter().find(|row| row.is_ours_not_sealed() && row.checked) else { continue };
        for (what, of) in figures {
            let others = rows.iter().filter(|row| row.kind() != Kind::Ours && row.checked);
            let Some(best) = others.min_by(|a, b| of(a).total_cmp(&of(b))) else { continue };
            lost.extend(row((workload, players), what, of(ours), (&best.name(), of(best))));
        }
    }
    lost
}

fn row((workload, players): (&str, u32), what: &str, ours: f64, (who, best): (&str, f64)) -> Option<Vec<String>> {
    // Figures that read the same are no loss.
    let is_lost = ours > best.max(0.0) * WORSE && figure(ours) != figure(best);
    is_lost.then(|| {
        let factor = if best > 0.0 { figure(ours / best) } else { "–".to_owned() };
        vec![
            format!("{workload}, {players}"),
            what.trim().to_owned(),
            figure(ours),
            figure(best),
            who.to_owned(),
            factor,
        ]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_worse_is_listed_with_the_one_who_is_better() {
        let listed = row(("dense", 100), "  outside the kernel, µs", 2.0, ("legacy", 1.0)).unwrap();
        assert_eq!(listed, ["dense, 100", "outside the kernel, µs", "2", "1", "legacy", "2"]);
        assert!(row(("dense", 100), "x", 0.5, ("legacy", 0.0)).is_some(), "nothing at all is better than something");
    }

    #[test]
    fn noise_and_equal_figures_are_no_loss() {
        assert!(row(("dense", 100), "x", 1.02, ("legacy", 1.0)).is_none());
        assert!(row(("dense", 100), "x", 0.0, ("legacy", 0.0)).is_none());
        assert!(row(("dense", 100), "x", 1.0, ("legacy", 2.0)).is_none());
    }
}
