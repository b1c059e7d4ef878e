//! The steps of a search for the largest load that keeps its bounds.
//!
//! ```text
//!   raise       start, start + step, start + 2 steps ...    until a load exceeds a bound, or the most is reached
//!   step back   the middle between the largest load that     until they are 1 % apart
//!               kept both bounds and the smallest that did not
//! ```
//!
//! The raising is that of a published test (docs/agents.md). It knows neither clocks nor loads:
//! hold the load of [`StepSearch::poll_load`], then hand what was measured to [`StepSearch::handle_held`].

/// The bounds of a load: its share of the processor, and its share of late decisions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Bounds {
    /// Share of the processor time, 0 to 1.
    pub(crate) cpu_share: f64,
    /// Share of the decisions, 0 to 1.
    pub(crate) late_share: f64,
}

/// Why the load was not raised any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    /// It took more processor time than allowed.
    Processor,
    /// Too much was late.
    Late,
    /// No larger load was to be tried.
    Most,
}

impl Limit {
    /// Its name in figures.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Limit::Processor => "processor",
            Limit::Late => "late",
            Limit::Most => "matches",
        }
    }
}

/// The measurements of one held load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Held {
    pub(crate) cpu_share: f64,
    pub(crate) late_share: f64,
}

/// Loads to try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Steps {
    /// The first load, at least 1.
    pub(crate) start: u32,
    /// The matches that a step adds, at least 1.
    pub(crate) step: u32,
    /// No larger load than this.
    pub(crate) most: u32,
}

/// A search that goes on.
#[derive(Clone, Debug)]
pub(crate) struct StepSearch {
    steps: Steps,
    bounds: Bounds,
    /// The largest load that kept both bounds; 0 if none did yet.
    kept: u32,
    /// The smallest load that did not.
    exceeded: Option<u32>,
    limit: Option<Limit>,
}

impl StepSearch {
    /// A search that has tried nothing yet.
    pub(crate) fn new(steps: Steps, bounds: Bounds) -> StepSearch {
        StepSearch { steps, bounds, kept: 0, exceeded: None, limit: None }
    }

    /// The load to hold next; `None` when the search is over.
    pub(crate) fn poll_load(&self) -> Option<u32> {
        let Steps { start, step, most } = self.steps;
        match self.exceeded {
            None if self.kept == 0 => Some(start.min(most)),
            None => (self.kept < most).then(|| self.kept.saturating_add(step).min(most)),
            Some(exceeded) => {
                let gap = exceeded - self.kept;
                (gap > (exceeded / 100).max(1)).then(|| self.kept + gap / 2)
            }
        }
    }

    /// The load of [`StepSearch::poll_load`] was held: the bound that it exceeded, if it did.
    pub(crate) fn handle_held(&mut self, held: Held) -> Option<Limit> {
        let load = self.poll_load()?;
        let limit = match () {
            () if held.cpu_share > self.bounds.cpu_share => Some(Limit::Processor),
            () if held.late_share > self.bounds.late_share => Some(Limit::Late),
            () => None,
        };
        if limit.is_some() {
            (self.exceeded, self.limit) = (Some(load), limit);
        } else {
            self.kept = load;
            if load == self.steps.most {
                self.limit = Some(Limit::Most);
            }
        }
        limit
    }

    /// The largest load that was held and kept both bounds.
    pub(crate) fn kept(&self) -> Option<u32> {
        (self.kept > 0).then_some(self.kept)
    }

    /// The bound that the smallest load beyond [`StepSearch::kept`] exceeded; `None` if none did yet.
    pub(crate) fn limit(&self) -> Option<Limit> {
        self.limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { cpu_share: 0.85, late_share: 0.02 };

    /// The loads that were held, until the search is over.
    fn search(steps: Steps, load: impl Fn(u32) -> Held) -> (Vec<u32>, StepSearch) {
        let mut search = StepSearch::new(steps, BOUNDS);
        let mut loads = Vec::new();
        while let Some(count) = search.poll_load() {
            loads.push(count);
            search.handle_held(load(count));
            assert!(loads.len() < 100, "{loads:?} has no end");
        }
        (loads, search)
    }

    fn by_processor(knee: u32) -> impl Fn(u32) -> Held {
        move |load| Held { cpu_share: 0.85 * f64::from(load) / (f64::from(knee) + 0.5), late_share: 0.0 }
    }

    #[test]
    fn the_load_is_raised_by_steps_and_then_taken_back() {
        let (loads, search) = search(Steps { start: 100, step: 50, most: 1_000 }, by_processor(230));
        assert_eq!(loads, [100, 150, 200, 250, 225, 237, 231, 228, 229]);
        assert_eq!((search.kept(), search.limit()), (Some(229), Some(Limit::Processor)));
    }

    #[test]
    fn every_knee_is_found_within_one_per_cent_wherever_the_start_is() {
        for knee in 1..2_000 {
            for start in [1, 100, 700] {
                let (_, search) = search(Steps { start, step: 50, most: 5_000 }, by_processor(knee));
                let kept = search.kept().unwrap_or_default();
                assert!(kept <= knee && knee - kept <= knee / 99, "{kept} of {knee}, from {start}");
            }
        }
    }

    #[test]
    fn the_most_ends_the_raising_and_is_held_itself() {
        let (loads, search) = search(Steps { start: 10, step: 50, most: 75 }, by_processor(900));
        assert_eq!(loads, [10, 60, 75]);
        assert_eq!((search.kept(), search.limit()), (Some(75), Some(Limit::Most)));
    }

    #[test]
    fn a_load_that_never_keeps_the_bounds_has_no_answer() {
        let late = |_| Held { cpu_share: 0.1, late_share: 0.5 };
        let (loads, search) = search(Steps { start: 100, step: 50, most: 1_000 }, late);
        assert_eq!(loads.last(), Some(&1));
        assert_eq!((search.kept(), search.limit()), (None, Some(Limit::Late)));
    }
}
