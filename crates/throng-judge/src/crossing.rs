//! The load at which the measured values meet their limits: a best estimate beside an answer that bounds prove.

use crate::trial::Trial;

/// The line to the limit goes between two loads that are at most so far apart, as a share of the larger one.
const GAP_MAX: f64 = 0.1;

/// The load at which the first limit is met, by the measured values without their bounds. The values of a limit are made to grow with
/// the load: neighbours that fall are pooled, weighted by the time of their holds (Ayer and others, 1955). The line between the last
/// value that keeps the limit and the first that exceeds it gives the load. `None` if no limit was exceeded, if the smallest load
/// exceeded one, or if the two loads are more than a tenth apart. A limit that keeps up to the answer and is met at an unknown load above
/// it changes nothing. Trials with a fault do not count.
pub fn load_at_limits(trials: &[Trial]) -> Option<f64> {
    let mut trials: Vec<&Trial> = trials.iter().filter(|trial| trial.fault.is_none()).collect();
    trials.sort_by_key(|trial| trial.amount);
    let mut names: Vec<&str> = Vec::new();
    for judged in trials.iter().flat_map(|trial| &trial.judged) {
        if !names.contains(&judged.criterion.name.as_str()) {
            names.push(&judged.criterion.name);
        }
    }
    let (mut first, mut unknown_from) = (f64::INFINITY, f64::INFINITY);
    for name in names {
        match meeting(&trials, name) {
            Meeting::Never => {}
            Meeting::Unknown { from } => unknown_from = unknown_from.min(from),
            Meeting::At(load) => first = first.min(load),
        }
    }
    (first.is_finite() && first <= unknown_from).then_some(first)
}

enum Meeting {
    /// All loads keep the limit.
    Never,
    /// The loads do not tell; up to this one, the limit is kept.
    Unknown {
        from: f64,
    },
    At(f64),
}

/// Trials that are pooled: the mean of their loads, the largest of them, and the mean of their values as shares of the limit.
#[derive(Clone, Copy)]
struct Pool {
    load: f64,
    largest: f64,
    used: f64,
    weight: f64,
}

impl Pool {
    fn and(self, other: Pool) -> Pool {
        let weight = self.weight + other.weight;
        let mean = |a: f64, b: f64| (a * self.weight + b * other.weight) / weight;
        let largest = self.largest.max(other.largest);
        Pool { load: mean(self.load, other.load), largest, used: mean(self.used, other.used), weight }
    }
}

/// Where one limit is met, by trials in the order of their loads.
fn meeting(trials: &[&Trial], name: &str) -> Meeting {
    let mut pools: Vec<Pool> = Vec::new();
    for trial in trials {
        let judged = trial.judged.iter().find(|judged| judged.criterion.name == name);
        let Some(used) = judged.and_then(|judged| judged.used()) else { continue };
        let (load, weight) = (f64::from(trial.amount), trial.held.as_secs_f64().max(1e-3));
        let mut pool = Pool { load, largest: load, used, weight };
        while let Some(former) = pools.pop_if(|former| former.used >= pool.used || former.load >= pool.load) {
            pool = former.and(pool);
        }
        pools.push(pool);
    }
    let Some(above) = pools.iter().position(|pool| pool.used > 1.0) else { return Meeting::Never };
    let Some(below) = above.checked_sub(1) else { return Meeting::Unknown { from: 0.0 } };
    let (below, above) = (pools[below], pools[above]);
    if above.load - below.load > GAP_MAX * above.load {
        return Meeting::Unknown { from: below.largest };
    }
    Meeting::At(below.load + (above.load - below.load) * (1.0 - below.used) / (above.used - below.used))
}
