//! Which server of a world has which part of it: strips along x, at first equally wide. Their borders follow the load.
//!
//! ```text
//!   0        1        2        3       servers
//!   |      ::|::    ::|::    ::|::      |
//!   ----------------------------------- x
//!          ^^ ^^ cells here may have objects of both: a character is handed over when it is BEYOND_M past the border
//! ```

use throng_edge::{BorderWatch, Borders, Division};

use crate::scenario::Scenario;

/// A character is handed over when it is so far past a border, in metres: one that stands on it does not go to and fro.
pub const BEYOND_M: f32 = 1.0;
/// Within this distance of a border both servers may have objects, in metres: a character that runs past it, as long as handing
/// it over may take.
pub const SHARED_M: f32 = 10.0;
/// Borders move by this much, in metres, or by more in a wide area.
const STEP_M: f32 = 1.0;
/// The least width of a part, in metres: who is handed over does not stand at the next border already.
const WIDTH_MIN_M: f32 = 3.0;
/// Steps of an area at most.
const STEPS_MAX: u16 = 1_000;

/// The measures of a world's parts. Positions count from the corner of the area, as clients are told them.
#[derive(Clone, Debug, PartialEq)]
pub struct Regions {
    division: Division,
    step_m: f32,
    cell_m: f64,
    first: Borders,
    /// Some objects never move.
    has_fixed: bool,
}

impl Regions {
    /// As many as the scenario has servers.
    pub fn new(scenario: &Scenario) -> Regions {
        let servers = scenario.servers.clamp(1, 64) as u16;
        let width_m = scenario.area_m[0].max(f32::MIN_POSITIVE);
        // The cast saturates.
        let steps = ((width_m / STEP_M) as u16).clamp(servers, STEPS_MAX);
        let step_m = width_m / f32::from(steps);
        let min_steps = ((WIDTH_MIN_M / step_m).ceil() as u16).clamp(1, steps / servers);
        let division = Division::new(servers, steps, min_steps).expect("there are as many steps as servers");
        let first = Borders::equal(&division);
        let has_fixed = scenario.idle_objects > 0;
        Regions { division, step_m, cell_m: f64::from(scenario.cell_m[0]), first, has_fixed }
    }

    /// Whether one server has it all.
    pub fn is_whole(&self) -> bool {
        self.division.servers() == 1
    }

    /// In how many steps borders move, and for how many servers.
    pub fn division(&self) -> Division {
        self.division
    }

    /// The step of a place. Places outside of the area belong to the nearest one.
    pub fn step(&self, x: f32) -> u16 {
        // The cast saturates.
        ((x / self.step_m) as u16).min(self.division.steps() - 1)
    }

    /// The server that has a place at first. Objects that never move stay there.
    pub fn first(&self, x: f32) -> u16 {
        self.first.home(self.step(x))
    }

    /// The step of a place if another server than `number` has to take over what is there.
    pub fn beyond(&self, borders: &Borders, number: u16, x: f32) -> Option<u16> {
        let strip = borders.strip(number);
        let (from, to) = (f32::from(strip.start) * self.step_m, f32::from(strip.end) * self.step_m);
        let is_beyond = x < from - BEYOND_M || x > to + BEYOND_M || strip.is_empty();
        Some(self.step(x)).filter(|&step| is_beyond && borders.home(step) != number)
    }

    /// Pushes the servers that may have objects in a cell.
    pub fn of_cell(&self, watch: &BorderWatch, cell: [i32; 3], servers: &mut Vec<usize>) {
        let from = f64::from(cell[0]) * self.cell_m;
        let first = self.step(from as f32 - SHARED_M);
        let last = self.step((from + self.cell_m) as f32 + SHARED_M);
        watch.homes(first, last, servers);
        let fixed = self.first(from as f32)..=self.first((from + self.cell_m) as f32);
        for server in fixed.filter(|_| self.has_fixed).map(usize::from) {
            if !servers.contains(&server) {
                servers.push(server);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Overrides;
    use throng::Time;
    use throng_bus::{Event, Revision, WatchId};
    use throng_edge::WorldName;

    fn regions(servers: u32) -> Regions {
        let scenario = Scenario::resolve("crowd", &Overrides::default()).unwrap();
        Regions::new(&Scenario { servers, area_m: [120.0, 50.0], cell_m: [10.0; 3], ..scenario })
    }

    fn watch(regions: &Regions) -> BorderWatch {
        BorderWatch::new(WorldName::new("crowd").unwrap(), regions.division())
    }

    #[test]
    fn every_place_has_one_server_and_every_server_an_equal_part() {
        let four = regions(4);
        let at: Vec<u16> =
            [-5.0, 0.0, 29.9, 30.1, 59.0, 61.0, 119.9, 120.0, 500.0, f32::NAN].map(|x| four.first(x)).into();
        assert_eq!(at, [0, 0, 0, 1, 1, 2, 3, 3, 3, 0]);
        assert!(!four.is_whole() && regions(1).is_whole() && regions(0).is_whole());
    }

    #[test]
    fn a_narrow_area_and_a_wide_one_have_steps_for_all_servers() {
        let scenario = Scenario::resolve("crowd", &Overrides::default()).unwrap();
        for (width_m, servers, steps) in [(1.0, 16, 16), (100.0, 4, 100), (100_000.0, 16, 1_000), (2_000.0, 1, 1_000)] {
            let regions = Regions::new(&Scenario { servers, area_m: [width_m, 50.0], ..scenario.clone() });
            assert_eq!(regions.division().steps(), steps, "{width_m} m");
            assert_eq!((regions.step(0.0), regions.step(width_m)), (0, steps - 1));
        }
    }

    #[test]
    fn a_character_is_handed_over_beyond_a_border_and_not_on_it() {
        let four = regions(4);
        let borders = Borders::equal(&four.division());
        let beyond = |number: u16, x: f32| Some(borders.home(four.beyond(&borders, number, x)?));
        assert_eq!([29.0, 30.5, 31.1, 95.0].map(|x| beyond(0, x)), [None, None, Some(1), Some(3)]);
        assert_eq!([29.5, 28.9, 61.1, -3.0].map(|x| beyond(1, x)), [None, Some(0), Some(2), Some(0)]);
        assert_eq!([-30.0, 150.0].map(|x| (beyond(0, x), beyond(3, x))), [(None, Some(0)), (Some(3), None)]);
        // It is not handed back at once.
        for dm in 0..1_200 {
            let x = dm as f32 / 10.0;
            for to in (0..4).filter_map(|number| beyond(number, x)) {
                assert_eq!(beyond(to, x), None, "at {x} m");
            }
        }
    }

    #[test]
    fn the_cells_of_a_place_are_sent_by_its_server_and_by_those_that_have_not_handed_over_yet() {
        let four = regions(4);
        let watch = watch(&four);
        let of = |regions: &Regions, cell: i32| {
            let mut servers = Vec::new();
            regions.of_cell(&watch, [cell, 7, 0], &mut servers);
            servers
        };
        let found: Vec<_> = (0..5).map(|cell| of(&four, cell)).collect();
        assert_eq!(found, [vec![0], vec![0, 1], vec![0, 1], vec![0, 1], vec![1, 2]]);
        assert_eq!((of(&four, -3), of(&four, 11), of(&four, 40)), (vec![0], vec![3], vec![3]));
        for dm in 0..1_200 {
            let x = dm as f32 / 10.0;
            let servers = of(&four, (x / 10.0) as i32);
            for number in 0..4_u16 {
                let strip_m = 30.0 * f32::from(number);
                let is_near = (strip_m - SHARED_M + 1.0..strip_m + 29.0 + SHARED_M).contains(&x);
                assert!(!is_near || servers.contains(&usize::from(number)), "{number} at {x} m");
            }
        }
        // Borders have moved away from objects that never move.
        let mut moved = self::watch(&four);
        let cuts = [110_u16, 113, 116].into_iter().flat_map(u16::to_le_bytes);
        let value: Vec<u8> =
            [1].into_iter().chain([3_u64, 1, 1, 0].into_iter().flat_map(u64::to_le_bytes)).chain(cuts).collect();
        let key = WorldName::new("crowd").unwrap().borders_key();
        let (watch, value) = (WatchId(u32::MAX - 1), Some(value.into()));
        moved.handle_event(Time(0), &Event::Changed { watch, key, revision: Revision(4), value });
        // A second later nobody looks by the borders of before.
        for now in [Time(0), Time(1_000_000)] {
            moved.handle_event(now, &Event::Listed { watch });
        }
        let mut servers = Vec::new();
        four.of_cell(&moved, [7, 0, 0], &mut servers);
        Regions { has_fixed: true, ..four }.of_cell(&moved, [7, 0, 0], &mut servers);
        assert_eq!(servers, [0, 0, 2]);
    }
}
