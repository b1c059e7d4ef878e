//! Paths for several brains from one finder, a bounded number of cells per tick.

use std::sync::{Arc, Mutex, PoisonError};

use glam::Vec3;
use throng_agent::{CellId, Navigation, PathFinder, Progress};

use super::Brain;

/// Feet are on the grid within this distance.
const ON_GRID_M: f32 = 1.5;
/// Feet that stand off the grid, on a fence for example, begin at the nearest cell within this distance.
const OFF_GRID_M: f32 = 5.0;

/// One for whom paths are found.
pub(crate) trait Walker {
    fn brain(&mut self) -> &mut Brain;
    fn feet(&self) -> Vec3;
}

#[derive(Clone)]
enum Finder {
    /// A search may go on over several ticks.
    Own(PathFinder),
    /// A search ends in the tick in which it began.
    Shared(Arc<Mutex<PathFinder>>),
}

/// The finder, and whom it serves.
#[derive(Clone)]
pub(crate) struct Search {
    navigation: Navigation,
    finder: Finder,
    serves: Option<(usize, CellId)>,
    next: usize,
}

impl Search {
    pub(crate) fn new(navigation: &Navigation) -> Search {
        let finder = Finder::Own(PathFinder::new(navigation));
        Search { navigation: navigation.clone(), finder, serves: None, next: 0 }
    }

    pub(crate) fn shared(navigation: &Navigation, finder: Arc<Mutex<PathFinder>>) -> Search {
        Search { navigation: navigation.clone(), finder: Finder::Shared(finder), serves: None, next: 0 }
    }

    /// Goes on with the search that runs, or begins the next one: walkers take turns.
    pub(crate) fn tick<W: Walker>(&mut self, walkers: &mut [W], nodes_max: u32) {
        let begun = if self.serves.is_none() { self.next_wish(walkers) } else { None };
        if let Some((served, _, goal)) = begun {
            self.serves = Some((served, goal));
        }
        let Some((served, goal)) = self.serves else { return };
        let Some(walker) = walkers.get_mut(served) else {
            self.serves = None;
            return;
        };
        if walker.brain().wants_path_to() != Some(goal) {
            // Its goal is another one now.
            self.serves = None;
            return;
        }
        let mut shared;
        let (finder, nodes_max) = match &mut self.finder {
            Finder::Own(finder) => (finder, nodes_max),
            Finder::Shared(finder) => {
                // A finder is whole between two calls, whatever became of its other user.
                shared = finder.lock().unwrap_or_else(PoisonError::into_inner);
                (&mut *shared, u32::MAX)
            }
        };
        if let Some((_, from, to)) = begun {
            finder.begin(from, to);
        }
        if finder.advance(nodes_max) != Progress::Searching {
            walker.brain().take_path(|path| finder.path(path));
            self.serves = None;
        }
    }

    /// The next walker who wants a path: who, from where, to where.
    fn next_wish<W: Walker>(&mut self, walkers: &mut [W]) -> Option<(usize, CellId, CellId)> {
        for turn in 0..walkers.len() {
            let index = (self.next + turn) % walkers.len();
            let Some(walker) = walkers.get_mut(index) else { continue };
            let Some(goal) = walker.brain().wants_path_to() else { continue };
            self.next = index + 1;
            let feet = walker.feet();
            let from = self.navigation.nearest(feet, ON_GRID_M);
            let from = from.or_else(|| self.navigation.nearest(feet, OFF_GRID_M));
            if from.is_none() {
                walker.brain().take_path(throng_agent::Path::clear);
            }
            return from.map(|from| (index, from, goal));
        }
        None
    }
}
