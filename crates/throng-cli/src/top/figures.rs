//! The figures of the time between two pages of metrics.

use std::collections::BTreeMap;
use std::time::Duration;

use super::page::Page;

/// A gateway over one interval. `None` for figures that the gateway does not have, or that need two pages while there
/// is one.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Figures {
    pub(super) servers: SideFigures,
    pub(super) clients: SideFigures,
    /// Channels by the name of their type.
    pub(super) channels: BTreeMap<String, f64>,
    pub(super) queued_bytes: Option<f64>,
    pub(super) cpu_cores: Option<f64>,
    pub(super) memory_bytes: Option<f64>,
    /// How long steps of the engine took.
    pub(super) step: Spread,
    /// How much later than due subscribers were served.
    pub(super) lag: Spread,
    pub(super) updates_per_s: Option<f64>,
    pub(super) delivered_per_s: Option<f64>,
    pub(super) encodings_per_s: Option<f64>,
    pub(super) handovers_per_s: Option<f64>,
    pub(super) recovered_per_s: Option<f64>,
    /// How often slow connections were sent no state.
    pub(super) paused_per_s: Option<f64>,
    /// Connections that were ended for being slow.
    pub(super) too_slow_per_s: Option<f64>,
    /// Drops and refusals, the most frequent first.
    pub(super) drops: Vec<Dropped>,
}

/// One door over an interval; everything but `connections` is per second.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct SideFigures {
    pub(super) connections: Option<f64>,
    pub(super) closed: Option<f64>,
    pub(super) messages_in: Option<f64>,
    pub(super) messages_out: Option<f64>,
    pub(super) bytes_in: Option<f64>,
    pub(super) bytes_out: Option<f64>,
    pub(super) packets_in: Option<f64>,
    pub(super) packets_out: Option<f64>,
}

/// Percentiles of durations.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Spread {
    pub(super) p50: Option<Percentile>,
    pub(super) p99: Option<Percentile>,
}

/// A duration that a part of all did not exceed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Percentile {
    pub(super) ms: f64,
    /// It is longer than that: the histogram ends there.
    pub(super) is_longer: bool,
}

/// Something that was not done as asked.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Dropped {
    pub(super) reason: String,
    pub(super) per_s: Option<f64>,
    /// Since the gateway's start.
    pub(super) total: f64,
}

impl Figures {
    /// The values of `now`, and their rates of change since the page before it.
    pub(super) fn between(before: Option<(&Page, Duration)>, now: &Page) -> Figures {
        Change { before, now }.figures()
    }
}

struct Change<'a> {
    before: Option<(&'a Page, Duration)>,
    now: &'a Page,
}

impl Change<'_> {
    fn figures(&self) -> Figures {
        Figures {
            servers: self.side("SERVER"),
            clients: self.side("CLIENT"),
            channels: self.now.totals_by("channel_num", &["type"]),
            queued_bytes: self.now.total("gateway_queued_bytes"),
            cpu_cores: self.per_s(|page| page.total("process_cpu_seconds_total")),
            memory_bytes: self.now.total("process_resident_memory_bytes"),
            step: self.spread("gateway_step_seconds"),
            lag: self.spread("gateway_turn_lag_seconds"),
            updates_per_s: self.per_s(|page| page.total("gateway_updates_total")),
            delivered_per_s: self.per_s(|page| page.total("gateway_delivered_updates_total")),
            encodings_per_s: self.per_s(|page| page.total("gateway_frames_total")),
            handovers_per_s: self.per_s(|page| page.total("gateway_handovers_total")),
            recovered_per_s: self.per_s(|page| page.total("gateway_recovered_total")),
            paused_per_s: self.per_s(|page| page.total("gateway_paused_total")),
            too_slow_per_s: self.per_s(|page| page.total("gateway_too_slow_total")),
            drops: self.drops(),
        }
    }

    fn side(&self, side: &str) -> SideFigures {
        let per_s = |name: &str| self.per_s(|page| page.total_where(name, "connType", side));
        SideFigures {
            connections: self.now.total_where("connection_num", "type", side),
            closed: per_s("connection_closed"),
            messages_in: per_s("messages_in"),
            messages_out: per_s("messages_out"),
            bytes_in: per_s("bytes_in"),
            bytes_out: per_s("bytes_out"),
            packets_in: per_s("packets_in"),
            packets_out: per_s("packets_out"),
        }
    }

    /// How fast a counter grows.
    fn per_s(&self, read: impl Fn(&Page) -> Option<f64>) -> Option<f64> {
        let (before, elapsed) = self.before?;
        let now = read(self.now)?;
        let growth = growth(read(before).unwrap_or(0.0), now);
        (!elapsed.is_zero()).then(|| growth / elapsed.as_secs_f64())
    }

    fn spread(&self, name: &str) -> Spread {
        let Some((before, _)) = self.before else { return Spread::default() };
        let before: BTreeMap<u64, f64> =
            before.buckets(name).into_iter().map(|(bound, count)| (bound.to_bits(), count)).collect();
        let counted =
            |(bound, count): (f64, f64)| (bound, growth(before.get(&bound.to_bits()).copied().unwrap_or(0.0), count));
        let buckets: Vec<(f64, f64)> = self.now.buckets(name).into_iter().map(counted).collect();
        Spread { p50: percentile(&buckets, 0.5), p99: percentile(&buckets, 0.99) }
    }

    fn drops(&self) -> Vec<Dropped> {
        let sources =
            [("gateway_drops_total", ["reason"].as_slice()), ("gateway_refused_total", &["connType", "reason"])];
        let mut drops = Vec::new();
        for (name, labels) in sources {
            let before = self.before.map(|(page, elapsed)| (page.totals_by(name, labels), elapsed.as_secs_f64()));
            for (reason, total) in self.now.totals_by(name, labels).into_iter().filter(|&(_, total)| total > 0.0) {
                let per_s = before
                    .as_ref()
                    .filter(|(_, elapsed_s)| *elapsed_s > 0.0)
                    .map(|(before, elapsed_s)| growth(before.get(&reason).copied().unwrap_or(0.0), total) / elapsed_s);
                drops.push(Dropped { reason: reason.to_lowercase(), per_s, total });
            }
        }
        let rate = |drop: &Dropped| drop.per_s.unwrap_or(0.0);
        drops.sort_by(|one, other| rate(other).total_cmp(&rate(one)).then(other.total.total_cmp(&one.total)));
        drops
    }
}

/// By how much a counter has grown. A counter that is smaller than before has restarted from zero.
fn growth(before: f64, now: f64) -> f64 {
    if now < before { now } else { now - before }
}

/// As Prometheus' `histogram_quantile`: linear within a bucket.
fn percentile(buckets: &[(f64, f64)], part: f64) -> Option<Percentile> {
    let total = buckets.last().map(|&(_, count)| count).filter(|&count| count > 0.0)?;
    let wanted = part * total;
    let (mut lower_s, mut below) = (0.0, 0.0);
    for &(bound_s, count) in buckets {
        if count >= wanted && count > below {
            return Some(match bound_s.is_infinite() {
                true => Percentile { ms: lower_s * 1e3, is_longer: true },
                false => {
                    let share = (wanted - below) / (count - below);
                    Percentile { ms: (lower_s + (bound_s - lower_s) * share) * 1e3, is_longer: false }
                }
            });
        }
        (lower_s, below) = (bound_s, count);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn between(before: &str, now: &str, elapsed: Duration) -> Figures {
        Figures::between(Some((&Page::parse(before).unwrap(), elapsed)), &Page::parse(now).unwrap())
    }

    #[test]
    fn counters_become_rates_and_gauges_stay() {
        let before = "bytes_in{connType=\"SERVER\"} 100\nprocess_cpu_seconds_total 10\n";
        let now = "bytes_in{connType=\"SERVER\"} 500\nprocess_cpu_seconds_total 11\ngateway_queued_bytes 9\n\
                   channel_num{type=\"ENTITY\"} 4\nconnection_num{type=\"CLIENT\"} 2\n";
        let figures = between(before, now, SECOND * 2);
        assert_eq!(figures.servers.bytes_in, Some(200.0));
        assert_eq!(figures.cpu_cores, Some(0.5));
        assert_eq!(figures.queued_bytes, Some(9.0));
        assert_eq!(figures.clients.connections, Some(2.0));
        assert_eq!(figures.channels, BTreeMap::from([("ENTITY".to_owned(), 4.0)]));
        assert_eq!(figures.clients.bytes_in, None);
    }

    #[test]
    fn a_counter_that_begins_anew_grows_from_zero() {
        let figures = between("gateway_updates_total 900\n", "gateway_updates_total 30\n", SECOND);
        assert_eq!(figures.updates_per_s, Some(30.0));
    }

    #[test]
    fn one_page_alone_has_no_rates() {
        let page = Page::parse("gateway_updates_total 900\nx_bucket{le=\"+Inf\"} 1\n").unwrap();
        let figures = Figures::between(None, &page);
        assert_eq!((figures.updates_per_s, figures.step), (None, Spread::default()));
    }

    #[test]
    fn percentiles_are_those_of_the_interval_and_not_of_the_past() {
        let before = "gateway_step_seconds_bucket{le=\"0.001\"} 1000\ngateway_step_seconds_bucket{le=\"0.01\"} 1000\n\
                      gateway_step_seconds_bucket{le=\"+Inf\"} 1000\n";
        let now = "gateway_step_seconds_bucket{le=\"0.001\"} 1000\ngateway_step_seconds_bucket{le=\"0.01\"} 1010\n\
                   gateway_step_seconds_bucket{le=\"+Inf\"} 1010\n";
        let step = between(before, now, SECOND).step;
        let p50 = step.p50.unwrap();
        assert!((p50.ms - 5.5).abs() < 1e-9 && !p50.is_longer, "{p50:?}");
        assert!((step.p99.unwrap().ms - 9.91).abs() < 1e-9, "{step:?}");
    }

    #[test]
    fn a_percentile_beyond_the_last_bound_says_so() {
        let beyond = percentile(&[(0.1, 1.0), (f64::INFINITY, 10.0)], 0.99);
        assert_eq!(beyond, Some(Percentile { ms: 100.0, is_longer: true }));
        assert_eq!(percentile(&[(0.1, 0.0), (f64::INFINITY, 0.0)], 0.5), None);
        assert_eq!(percentile(&[], 0.5), None);
    }

    #[test]
    fn the_most_frequent_drops_come_first_and_none_that_never_happened() {
        let before = "gateway_drops_total{reason=\"acl\"} 100\n\
                      gateway_refused_total{connType=\"CLIENT\",reason=\"banned\"} 1\n";
        let now = "gateway_drops_total{reason=\"acl\"} 100\n\
                   gateway_refused_total{connType=\"CLIENT\",reason=\"banned\"} 4\n\
                   gateway_refused_total{connType=\"SERVER\",reason=\"banned\"} 0\n";
        let drops = between(before, now, SECOND).drops;
        let shown: Vec<_> = drops.iter().map(|drop| (drop.reason.as_str(), drop.per_s, drop.total)).collect();
        assert_eq!(shown, [("client banned", Some(3.0), 4.0), ("acl", Some(0.0), 100.0)]);
    }
}
