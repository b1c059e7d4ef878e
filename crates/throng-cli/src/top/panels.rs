//! Figures as text: the same lines for the screen and for `--once`.

use throng_report::bytes;

use super::figures::{Dropped, Figures, Percentile, SideFigures, Spread};

/// Subscribers that are served later than this feel it.
const LATE_MS: f64 = 60.0;

/// Some lines about one thing.
pub(super) struct Panel {
    pub(super) title: &'static str,
    pub(super) lines: Vec<Line>,
}

/// A line, and whether it is bad news.
pub(super) struct Line {
    pub(super) text: String,
    pub(super) is_bad: bool,
}

impl From<String> for Line {
    fn from(text: String) -> Line {
        Line { text, is_bad: false }
    }
}

/// All panels below each other.
pub(super) fn plain(figures: &Figures) -> String {
    let panels = [gateway(figures), channels(figures), traffic(figures), engine(figures), drops(figures)];
    let text = |panel: Panel| {
        let lines: String = panel.lines.iter().map(|line| format!("  {}\n", line.text.trim_end())).collect();
        format!("{}\n{lines}", panel.title)
    };
    panels.map(text).join("\n")
}

pub(super) fn gateway(figures: &Figures) -> Panel {
    let rows = [
        ("clients", written(figures.clients.connections, count)),
        ("world servers", written(figures.servers.connections, count)),
        ("processor", written(figures.cpu_cores, |cores| format!("{cores:.2} cores"))),
        ("memory", written(figures.memory_bytes, bytes)),
        ("queued", written(figures.queued_bytes, bytes)),
    ];
    Panel { title: "Gateway", lines: rows.map(|(name, value)| row(name, &value).into()).into() }
}

pub(super) fn channels(figures: &Figures) -> Panel {
    let lines = figures.channels.iter().map(|(kind, &number)| row(kind, &count(number)).into());
    Panel { title: "Channels", lines: lines.collect() }
}

pub(super) fn traffic(figures: &Figures) -> Panel {
    let head = ["per second", "messages in", "out", "packets in", "out", "bytes in", "out", "closed"];
    let side = |name: &str, side: &SideFigures| {
        [
            name.to_owned(),
            written(side.messages_in, count),
            written(side.messages_out, count),
            written(side.packets_in, count),
            written(side.packets_out, count),
            written(side.bytes_in, bytes),
            written(side.bytes_out, bytes),
            written(side.closed, count),
        ]
    };
    let rows = [head.map(str::to_owned), side("clients", &figures.clients), side("servers", &figures.servers)];
    let line = |[name, messages_in, messages_out, packets_in, packets_out, bytes_in, bytes_out, closed]: [String;
                    8]| {
        let messages = format!("{messages_in:>11} {messages_out:>7}");
        let packets = format!("{packets_in:>10} {packets_out:>7}");
        Line::from(format!("{name:<10} {messages} {packets} {bytes_in:>9} {bytes_out:>9} {closed:>6}"))
    };
    Panel { title: "Traffic", lines: rows.map(line).into() }
}

pub(super) fn engine(figures: &Figures) -> Panel {
    let ratio = figures.delivered_per_s.zip(figures.encodings_per_s).filter(|&(_, encodings)| encodings > 0.0);
    let shared =
        ratio.map_or(String::new(), |(delivered, encodings)| format!(", each for {:.1}", delivered / encodings));
    let slow = figures.paused_per_s.zip(figures.too_slow_per_s);
    let slow_text = slow.map_or("-".to_owned(), |(paused, ended)| {
        format!("{} updates held back, {} closed", count(paused), count(ended))
    });
    let is_late = figures.lag.p99.is_some_and(|p99| p99.ms > LATE_MS);
    let has_ended = figures.too_slow_per_s.is_some_and(|ended| ended > 0.0);
    let lines = vec![
        row("step", &spread(&figures.step)).into(),
        Line { text: row("lag", &spread(&figures.lag)), is_bad: is_late },
        row("updates/s", &written(figures.updates_per_s, count)).into(),
        row("delivered/s", &written(figures.delivered_per_s, count)).into(),
        row("encodings/s", &(written(figures.encodings_per_s, count) + &shared)).into(),
        row("handovers/s", &written(figures.handovers_per_s, count)).into(),
        row("recovered/s", &written(figures.recovered_per_s, count)).into(),
        Line { text: row("slow/s", &slow_text), is_bad: has_ended },
    ];
    Panel { title: "Engine", lines }
}

pub(super) fn drops(figures: &Figures) -> Panel {
    let line = |drop: &Dropped| Line {
        text: format!("{:>7}/s {:>7}  {}", written(drop.per_s, count), count(drop.total), drop.reason),
        is_bad: drop.per_s.is_some_and(|per_s| per_s > 0.0),
    };
    let mut lines: Vec<Line> = figures.drops.iter().map(line).collect();
    if lines.is_empty() {
        lines.push("none so far".to_owned().into());
    }
    Panel { title: "Dropped and refused, now and in total", lines }
}

fn row(name: &str, value: &str) -> String {
    format!("{name:<14} {value}")
}

fn spread(spread: &Spread) -> String {
    let percentile = |percentile: Option<Percentile>| {
        written(percentile.map(|percentile| percentile.ms), |ms| {
            let sign = if percentile.is_some_and(|percentile| percentile.is_longer) { "> " } else { "" };
            format!("{sign}{}", milliseconds(ms))
        })
    };
    format!("p50 {:>9}  p99 {:>9}", percentile(spread.p50), percentile(spread.p99))
}

fn written(value: Option<f64>, write: impl Fn(f64) -> String) -> String {
    value.map_or("-".to_owned(), write)
}

/// A number of at most six letters.
pub(super) fn count(value: f64) -> String {
    const UNITS: [(f64, f64, &str); 3] = [(1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")];
    match UNITS.iter().find(|&&(from, ..)| value >= from) {
        Some(&(_, size, unit)) => format!("{:.1}{unit}", value / size),
        None if value < 10.0 && value.fract() != 0.0 => format!("{value:.1}"),
        None => format!("{value:.0}"),
    }
}

pub(super) fn milliseconds(ms: f64) -> String {
    match ms {
        ..10.0 => format!("{ms:.2} ms"),
        ..1_000.0 => format!("{ms:.0} ms"),
        _ => format!("{:.1} s", ms / 1e3),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_short() {
        let counts =
            [(0.0, "0"), (0.25, "0.2"), (9_999.0, "9999"), (12_345.0, "12.3k"), (2.5e6, "2.5M"), (3e9, "3.0G")];
        for (value, text) in counts {
            assert_eq!(count(value), text);
        }
        assert_eq!([milliseconds(0.25), milliseconds(61.4), milliseconds(5_000.0)], ["0.25 ms", "61 ms", "5.0 s"]);
    }

    #[test]
    fn what_is_not_known_is_a_dash_and_not_zero() {
        let text = plain(&Figures::default());
        assert!(text.contains("delivered/s    -\n"), "{text}");
        assert!(text.contains("none so far"), "{text}");
        assert!(!text.contains(" 0"), "{text}");
    }

    #[test]
    fn subscribers_that_are_served_late_are_bad_news() {
        let mut figures = Figures::default();
        figures.lag.p99 = Some(Percentile { ms: 61.0, is_longer: false });
        let bad: Vec<String> =
            engine(&figures).lines.into_iter().filter(|line| line.is_bad).map(|line| line.text).collect();
        assert_eq!(bad, ["lag            p50         -  p99     61 ms"]);
    }
}
