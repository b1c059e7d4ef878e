//! The figures in which another model or library is better than Throng.

use super::evidence::rounds;
use super::markdown::cells;
use super::peers::{self, Kind, PeerRow};
use throng_lab::compare::{Comparison, Difference, Figures, Measure, Outcome, Run, Sample, measures};
use throng_report::figure;

/// Times that were measured once differ by this factor for no reason on a virtual machine.
const NOISE_OF_ONE_ROUND: f64 = 4.0 / 3.0;

/// Header of the rows.
pub(super) fn header() -> Vec<String> {
    cells(["where", "what", "ours", "who is better, best first", "factor of the best"])
}

/// A row for each size, measure and comparison in which others are better than `throng`, with all of them. Invalid runs
/// and overloaded servers are not compared: skipped work is not cheaper work. Where only ours was, that is the loss.
pub(super) fn models(comparisons: &[Comparison]) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for (number, comparison) in comparisons.iter().enumerate() {
        for cell in comparison.cells() {
            rows.extend(not_managed(comparison, number + 1, cell));
            rows.extend(measures(cell.0).iter().filter_map(|measure| of_models(comparison, number + 1, cell, measure)));
        }
    }
    rows
}

fn of_models(comparison: &Comparison, number: usize, cell: (&str, u32), measure: &Measure) -> Option<Vec<String>> {
    let sample = |who: &str| {
        let runs = comparison.sound(cell, who);
        Sample::of(runs.iter().filter_map(|run| run.figures.as_ref().and_then(measure.of)))
    };
    let ours = sample("throng")?;
    let others = comparison.contestants.iter().filter(|who| *who != "throng");
    let better = if measure.is_cost { Better::Less } else { Better::More };
    let others = others.filter(|who| {
        let [base, theirs] = ["throng", who].map(|who| comparison.sound(cell, who));
        is_beyond_noise(&base, &theirs, measure.of, better)
    });
    let others = others.filter_map(|who| Some((who.clone(), sample(who)?.median))).collect();
    row(place(cell, number, ours.runs), &measure.title(), better, (ours.median, others))
}

/// Whether theirs is better with 99 % certainty or, where fewer than two rounds have both, by more than one round's noise.
/// A figure of 0 has no ratio, and always counts.
fn is_beyond_noise(ours: &[&Run], theirs: &[&Run], of: fn(&Figures) -> Option<f64>, better: Better) -> bool {
    let median = |runs: &[&Run]| Sample::of(runs.iter().filter_map(|run| run.figures.as_ref().and_then(of)));
    match (Difference::of(ours, theirs, of), median(ours), median(theirs)) {
        (Some(difference), ..) => {
            difference.outcome() == if better == Better::Less { Outcome::Less } else { Outcome::More }
        }
        (None, Some(ours), Some(theirs)) => is_far(ours.median, theirs.median),
        _ => false,
    }
}

fn is_far(one: f64, other: f64) -> bool {
    one.max(other) > one.min(other) * NOISE_OF_ONE_ROUND
}

/// Ours played and has no run that counts, and others have.
fn not_managed(comparison: &Comparison, number: usize, cell: (&str, u32)) -> Option<Vec<String>> {
    let is_ours = |run: &&Run| run.contestant == "throng" && (run.workload.as_str(), run.players) == cell;
    let played = comparison.runs.iter().filter(is_ours).count();
    if played == 0 || !comparison.sound(cell, "throng").is_empty() {
        return None;
    }
    let others = comparison.contestants.iter().filter(|who| !comparison.sound(cell, who).is_empty());
    let others: Vec<&str> = others.map(String::as_str).collect();
    (!others.is_empty()).then(|| {
        let what = "a valid run of a server that is not overloaded";
        vec![place(cell, number, played), what.to_owned(), "–".to_owned(), others.join("; "), "–".to_owned()]
    })
}

/// `dense, 100 (run 1, 2 rounds)`.
fn place((workload, players): (&str, u32), number: usize, count: usize) -> String {
    format!("{workload}, {players} (run {number}, {})", rounds(count))
}

/// Which figures are better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Better {
    Less,
    More,
}

/// A measure of a peer, whether it is exact or a time, and the function that reads it from a row. Less is better.
type Titled = (&'static str, Precision, fn(&PeerRow) -> Option<f64>);

/// How far the figures of two peers can be told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Precision {
    /// A count: any difference is one.
    Exact,
    /// A time.
    Time,
}

/// Every column of the peers.
const PEER_FIGURES: [Titled; 9] = [
    ("time per client, µs", Precision::Time, |row| Some(row.us_per_client)),
    ("receive per tick, ms", Precision::Time, |row| row.receive_ms_per_tick),
    ("assign per tick, ms", Precision::Time, |row| row.assign_ms_per_tick),
    ("receive, assign and replicate per tick, ms", Precision::Time, PeerRow::sum_ms),
    ("time at a client, µs", Precision::Time, |row| row.client_us_per_client),
    ("bytes to a client a tick", Precision::Exact, |row| Some(row.bytes_per_client_tick)),
    ("packets to a client a tick", Precision::Exact, |row| row.packets_per_client_tick),
    ("age of what a client holds, ticks", Precision::Exact, |row| Some(row.state_age_ticks)),
    ("allocations per tick", Precision::Exact, |row| row.allocations_per_tick),
];

/// The same against the open peers, at equal terms.
pub(super) fn peers(rows: &[PeerRow]) -> Vec<Vec<String>> {
    let mut lost = Vec::new();
    for case in peers::cases(rows) {
        let rows = peers::of(rows, case.0, case.1);
        let Some(ours) = rows.iter().find(|row| row.is_ours_not_sealed() && row.checked) else { continue };
        let others = || rows.iter().filter(|row| row.kind() != Kind::Ours && row.checked);
        let place = format!("{}, {} ({})", case.0, case.1, peers::origin(ours.rounds));
        lost.extend(PEER_FIGURES.iter().filter_map(|(what, precision, of)| {
            let ours = of(ours)?;
            let theirs = others().filter_map(|row| Some((row.name(), of(row)?)));
            let theirs = theirs.filter(|(_, theirs)| *precision == Precision::Exact || is_far(ours, *theirs));
            row(place.clone(), what, Better::Less, (ours, theirs.collect()))
        }));
    }
    lost
}

/// `None` if no other is better. Figures that read the same are no loss.
fn row(
    place: String,
    what: &str,
    better: Better,
    (ours, mut others): (f64, Vec<(String, f64)>),
) -> Option<Vec<String>> {
    let is_better = |theirs: f64| if better == Better::Less { theirs < ours } else { theirs > ours };
    others.retain(|(_, theirs)| is_better(*theirs) && figure(*theirs) != figure(ours));
    others.sort_by(|a, b| a.1.total_cmp(&b.1));
    if better == Better::More {
        others.reverse();
    }
    let best = others.first()?.1;
    let (more, less) = if better == Better::Less { (ours, best) } else { (best, ours) };
    let factor = if less > 0.0 { figure(more / less) } else { "–".to_owned() };
    let who: Vec<String> = others.iter().map(|(who, theirs)| format!("{who}: {}", figure(*theirs))).collect();
    Some(vec![place, what.trim().to_owned(), figure(ours), who.join("; "), factor])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(ours: f64, others: &[(&str, f64)]) -> Option<Vec<String>> {
        let others = others.iter().map(|(who, theirs)| ((*who).to_owned(), *theirs)).collect();
        row("dense, 100".to_owned(), "  outside the kernel, µs", Better::Less, (ours, others))
    }

    #[test]
    fn everybody_who_is_better_is_named_the_best_first() {
        let listed = lost(2.0, &[("legacy", 1.5), ("throng's elder", 2.5), ("graph", 1.0)]).unwrap();
        assert_eq!(listed, ["dense, 100", "outside the kernel, µs", "2", "graph: 1; legacy: 1.5", "2"]);
        let nothing = lost(0.5, &[("legacy", 0.0)]).expect("nothing at all is better than something");
        assert_eq!(nothing[3..], ["legacy: 0", "–"]);
    }

    #[test]
    fn where_more_is_better_less_is_a_loss() {
        let others = || vec![("legacy".to_owned(), 20.0), ("graph".to_owned(), 30.0), ("legacy-push".to_owned(), 5.0)];
        let listed = row("dense, 100".to_owned(), "updates to a client, 1/s", Better::More, (10.0, others())).unwrap();
        assert_eq!(listed[3..], ["graph: 30; legacy: 20", "3"]);
        let mut comparison = throng_lab::compare::example();
        for run in comparison.runs.iter_mut().filter(|run| run.contestant == "legacy") {
            run.figures.as_mut().unwrap().updates_per_s *= 2.0;
        }
        let rows = models(&[comparison]);
        assert!(
            rows.iter().any(|row| row[0] == "dense, 100 (run 1, 2 rounds)" && row[1].starts_with("updates")),
            "{rows:?}"
        );
    }

    #[test]
    fn where_only_ours_was_overloaded_that_is_the_loss() {
        let mut comparison = throng_lab::compare::example();
        for run in comparison.runs.iter_mut().filter(|run| run.contestant == "throng" && run.players == 400) {
            run.figures.as_mut().unwrap().missed_ticks = 1_000_000;
        }
        let rows = models(&[comparison.clone()]);
        let told: Vec<_> =
            rows.iter().filter(|row| row[0].starts_with("dense, 400")).map(|row| row[3].as_str()).collect();
        assert_eq!(told, ["legacy"]);
        comparison.runs.retain(|run| run.contestant != "throng");
        assert!(models(&[comparison]).is_empty(), "who did not play has lost nothing");
    }

    #[test]
    fn differences_within_the_noise_are_no_losses() {
        // The same work in both, with 10 % of scatter: better in one round, worse in the other.
        let with = |legacy: [f64; 2]| {
            let mut comparison = throng_lab::compare::example();
            for run in comparison.runs.iter_mut().filter(|run| run.players == 100) {
                let is_ours = run.contestant == "throng";
                run.figures.as_mut().unwrap().frame_ms = if is_ours { 10.0 } else { legacy[run.round as usize] };
            }
            comparison
        };
        let is_lost = |comparison: Comparison| {
            models(&[comparison]).iter().any(|row| row[0].starts_with("dense, 100") && row[1] == "frame, ms")
        };
        assert!(!is_lost(with([9.0, 10.5])), "its median is better by 2 %");
        assert!(is_lost(with([9.0, 9.001])), "10 % in both rounds");
        let single = |legacy: f64| {
            let mut comparison = with([legacy; 2]);
            comparison.runs.retain(|run| run.round == 0);
            comparison
        };
        assert!(!is_lost(single(9.0)) && is_lost(single(7.0)), "one round tells only large differences");
    }

    #[test]
    fn a_peers_time_within_the_noise_is_no_loss_and_its_bytes_are() {
        let peer = |peer: &str, us_per_client: f64, bytes: f64| PeerRow {
            peer: peer.to_owned(),
            us_per_client,
            bytes_per_client_tick: bytes,
            checked: true,
            ..PeerRow::default()
        };
        let lost = peers(&[peer("throng, not sealed", 1.0, 100.0), peer("naia", 0.8, 99.0)]);
        let told: Vec<_> = lost.iter().map(|row| row[1].as_str()).collect();
        assert_eq!(told, ["bytes to a client a tick"]);
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
        let mut comparison = throng_lab::compare::example();
        for run in &mut comparison.runs {
            let figures = run.figures.as_mut().unwrap();
            figures.near_age_ms.p50 = Some(if run.contestant == "legacy" { 0.5 } else { 20.0 });
        }
        let is_age = |rows: &[Vec<String>], place: &str| {
            rows.iter().any(|row| row[0].starts_with(place) && row[1].starts_with("age"))
        };
        assert!(is_age(&models(&[comparison.clone()]), "dense, 400"));
        for run in comparison.runs.iter_mut().filter(|run| run.contestant == "legacy" && run.players == 400) {
            run.figures.as_mut().unwrap().missed_ticks = 400;
        }
        let rows = models(&[comparison]);
        assert!(!is_age(&rows, "dense, 400") && is_age(&rows, "dense, 100"));
    }
}
