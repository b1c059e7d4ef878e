//! Lists the runs that were made and those that were not, so that a missing row is visible.

use super::markdown::table;
use super::peers::PeerRow;
use throng_lab::compare::{Comparison, Contestant};
use throng_report::grouped;

/// The workloads that models are compared in.
const WORKLOADS: [&str; 6] = ["dense", "sparse", "sparse-10", "sparse-20", "converge", "crowd"];

/// Each row of `bench/peers`, and in how many versions.
const PEERS: [(&str, usize); 8] = [
    ("naive broadcast", 1),
    ("throng", 1),
    ("throng, not sealed", 1),
    ("bevy_replicon", 2),
    ("colyseus, one patch", 1),
    ("colyseus, a view each", 1),
    ("naia", 1),
    ("lightyear", 1),
];

/// The workload that is played with several numbers of players, and with which, by models and by peers.
const GROWTH: &str = "dense";
const SIZES: [u32; 6] = [25, 50, 100, 200, 400, 1_000];
const PEER_SIZES: [u32; 5] = [25, 50, 100, 200, 400];

/// A table of the valid runs of each model in each workload, and a list of what is missing.
pub(super) fn render(comparisons: &[Comparison], rows: &[PeerRow]) -> String {
    let contestants = contestants(comparisons);
    let mut lines = Vec::new();
    for comparison in comparisons {
        for (workload, players) in comparison.cells() {
            let valid = contestants.iter().map(|who| valid_runs(comparison, (workload, players), who));
            let place = format!("{workload}, {}", grouped(u64::from(players)));
            lines.push(std::iter::once(place).chain(valid).collect::<Vec<_>>());
        }
    }
    let header: Vec<String> =
        std::iter::once("valid runs".to_owned()).chain(contestants.iter().map(|who| format!("`{who}`"))).collect();
    let absent: String = absent(comparisons, &contestants, rows).iter().map(|line| format!("- {line}\n")).collect();
    let absent = match absent.is_empty() {
        true => "Nothing of what there is was left out.\n".to_owned(),
        false => format!("Not run, or failed:\n\n{absent}"),
    };
    format!("{}\n{absent}", table(&header, &lines))
}

/// Every model there is, variants included, and then whatever else was compared.
fn contestants(comparisons: &[Comparison]) -> Vec<String> {
    let mut names: Vec<String> = Contestant::usual().iter().map(ToString::to_string).collect();
    let place = names.iter().position(|name| name == "shared-state").map_or(names.len(), |place| place + 1);
    names.splice(place..place, Contestant::variants().iter().map(ToString::to_string));
    for name in comparisons.iter().flat_map(|comparison| &comparison.contestants) {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    names
}

fn valid_runs(comparison: &Comparison, (workload, players): (&str, u32), who: &str) -> String {
    let is_asked =
        |run: &&throng_lab::compare::Run| run.workload == workload && run.players == players && run.contestant == who;
    let all = comparison.runs.iter().filter(is_asked).count();
    let valid = comparison.runs.iter().filter(is_asked).filter(|run| run.valid).count();
    match (valid, all) {
        (_, 0) => "–".to_owned(),
        (valid, all) if valid == all => all.to_string(),
        (valid, all) => format!("{valid} of {all}"),
    }
}

/// A line for each workload and peer that has nothing on the page, or not all.
fn absent(comparisons: &[Comparison], contestants: &[String], rows: &[PeerRow]) -> Vec<String> {
    let has_run = |workload: &str, who: Option<&str>| {
        let mut runs = comparisons.iter().flat_map(|comparison| &comparison.runs);
        runs.any(|run| run.workload == workload && run.figures.is_some() && who.is_none_or(|who| run.contestant == who))
    };
    let mut lines = Vec::new();
    for workload in WORKLOADS {
        if !has_run(workload, None) {
            lines.push(format!("`{workload}`, with any model"));
            continue;
        }
        let missing = contestants.iter().filter(|who| !has_run(workload, Some(who)));
        let names: Vec<String> = missing.map(|who| format!("`{who}`")).collect();
        if !names.is_empty() {
            lines.push(format!("`{workload}` with {}", names.join(", ")));
        }
    }
    lines.extend(absent_sizes(comparisons));
    if rows.is_empty() {
        lines.push("the open peers".to_owned());
        return lines;
    }
    for (name, versions) in PEERS {
        let mut found: Vec<&str> =
            rows.iter().filter(|row| row.peer == name && row.checked).map(|row| row.version.as_str()).collect();
        found.sort_unstable();
        found.dedup();
        match found.len() {
            0 => lines.push(format!("the peer {name}")),
            some if some < versions => lines.push(format!("the peer {name} in {versions} versions: only {}", found[0])),
            _ => {}
        }
    }
    lines.extend(PEERS.iter().filter_map(|(name, _)| absent_peer_sizes(rows, name)));
    lines
}

/// A line for each size of the growing workload at which some model has no completed run.
fn absent_sizes(comparisons: &[Comparison]) -> Vec<String> {
    let has_ended = |players: u32| comparisons.iter().any(|comparison| comparison.has_ended((GROWTH, players)));
    let never: Vec<u32> = SIZES.into_iter().filter(|&players| !has_ended(players)).collect();
    let mut lines: Vec<String> = Vec::new();
    if !never.is_empty() && never.len() < SIZES.len() {
        lines.push(format!("`{GROWTH}` with {} players", listed(&never)));
    }
    let failed = comparisons.iter().flat_map(|comparison| {
        comparison.cells().into_iter().flat_map(move |cell| {
            let has_none = move |who: &&String| comparison.counted(cell.0, cell.1, who).is_empty();
            comparison.contestants.iter().filter(has_none).map(move |who| (cell, who))
        })
    });
    lines.extend(
        failed.map(|((workload, players), who)| format!("`{workload}` with {players} players and `{who}`: planned")),
    );
    lines
}

/// The sizes at which a peer that was run has no row that was checked.
fn absent_peer_sizes(rows: &[PeerRow], name: &str) -> Option<String> {
    let has = |players: &u32| {
        let mut rows = rows.iter().filter(|row| row.peer == name && row.checked && row.workload == GROWTH);
        rows.any(|row| row.players == *players)
    };
    let never: Vec<u32> = PEER_SIZES.into_iter().filter(|players| !has(players)).collect();
    let is_run = rows.iter().any(|row| row.peer == name && row.checked);
    (is_run && !never.is_empty()).then(|| format!("the peer {name}, `{GROWTH}` with {} players", listed(&never)))
}

fn listed(sizes: &[u32]) -> String {
    let sizes: Vec<String> = sizes.iter().map(|&players| grouped(u64::from(players))).collect();
    sizes.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use throng_lab::compare::example;

    #[test]
    fn what_was_not_run_is_named() {
        let row = |peer: &str| PeerRow { peer: peer.to_owned(), checked: true, ..PeerRow::default() };
        let text = render(&[example()], &[row("throng"), row("bevy_replicon")]);
        assert!(text.contains("| dense, 100 | 2 | – | – | – | – | – | 2 |"), "{text}");
        for part in [
            "`sparse`, with any model",
            "`dense` with `legacy-push`, `graph`, `shared-state`, `shared-state:per-connection`, `shared-state:baselines`",
            "- the peer naia",
            "bevy_replicon in 2 versions",
        ] {
            assert!(text.contains(part), "no {part} in:\n{text}");
        }
        assert!(!text.contains("the peer throng\n") && text.contains("the peer throng, `dense` with"), "{text}");
        assert!(render(&[example()], &[]).contains("- the open peers"));
    }

    #[test]
    fn sizes_that_are_absent_or_failed_are_named() {
        let mut comparison = example();
        for run in comparison.runs.iter_mut().filter(|run| run.players == 400) {
            (run.valid, run.figures) = (false, None);
        }
        let row = PeerRow {
            peer: "throng".to_owned(),
            workload: "dense".to_owned(),
            players: 100,
            checked: true,
            ..PeerRow::default()
        };
        let text = render(&[comparison], &[row]);
        for part in [
            "| dense, 400 | 0 of 2 | – | – | – | – | – | 0 of 2 |",
            "- `dense` with 50, 200, 400, 1,000 players\n",
            "- `dense` with 400 players and `legacy`: planned\n",
            "- the peer throng, `dense` with 25, 50, 200, 400 players\n",
        ] {
            assert!(text.contains(part), "no {part} in:\n{text}");
        }
    }

    #[test]
    fn runs_that_do_not_count_are_not_counted() {
        let mut comparison = example();
        comparison.runs[0].valid = false;
        assert!(render(&[comparison], &[]).contains("| dense, 100 | 1 of 2 |"));
    }
}
