//! Which server of a world has which part of it: strips along x, equally wide.
//!
//! ```text
//!   0        1        2        3       servers
//!   |      ::|::    ::|::    ::|::      |
//!   ----------------------------------- x
//!          ^^ ^^ cells here may have objects of both: a character is handed over when it is BEYOND_M past the border
//! ```

use crate::scenario::Scenario;

/// A character is handed over when it is so far past a border, in metres: one that stands on it does not go to and fro.
pub const BEYOND_M: f32 = 1.0;
/// Within this distance of a border both servers may have objects, in metres: a character that runs past it, as long as handing
/// it over may take.
pub const SHARED_M: f32 = 10.0;

/// The parts of a world. Positions count from the corner of the area, as clients are told them.
#[derive(Clone, Debug, PartialEq)]
pub struct Regions {
    servers: u16,
    width_m: f32,
    cell_m: f64,
}

impl Regions {
    /// As many as the scenario has servers.
    pub fn new(scenario: &Scenario) -> Regions {
        let servers = u16::try_from(scenario.servers.max(1)).unwrap_or(u16::MAX);
        Regions { servers, width_m: scenario.area_m[0], cell_m: f64::from(scenario.cell_m[0]) }
    }

    /// Whether one server has it all.
    pub fn is_whole(&self) -> bool {
        self.servers == 1
    }

    fn strip_m(&self) -> f32 {
        self.width_m / f32::from(self.servers)
    }

    /// The server of a place.
    pub fn at(&self, x: f32) -> u16 {
        // Places outside of the area belong to the nearest strip. The cast saturates.
        ((x / self.strip_m()) as u16).min(self.servers - 1)
    }

    /// The server that has to take over from server `number` what is at a place, if there is one.
    pub fn beyond(&self, number: u16, x: f32) -> Option<u16> {
        let (from, to) = (f32::from(number) * self.strip_m(), f32::from(number + 1) * self.strip_m());
        let is_beyond = x < from - BEYOND_M || x > to + BEYOND_M;
        Some(self.at(x)).filter(|&at| is_beyond && at != number)
    }

    /// Pushes the servers that may have objects in a cell.
    pub fn of_cell(&self, cell: [i32; 3], servers: &mut Vec<usize>) {
        let from = f64::from(cell[0]) * self.cell_m;
        let first = self.at((from as f32) - SHARED_M);
        let last = self.at((from + self.cell_m) as f32 + SHARED_M);
        servers.extend((first..=last).map(usize::from));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Overrides;

    fn regions(servers: u32) -> Regions {
        let scenario = Scenario::resolve("crowd", &Overrides::default()).unwrap();
        Regions::new(&Scenario { servers, area_m: [120.0, 50.0], cell_m: [10.0; 3], ..scenario })
    }

    #[test]
    fn every_place_has_one_server_and_every_server_an_equal_part() {
        let four = regions(4);
        let at: Vec<u16> =
            [-5.0, 0.0, 29.9, 30.1, 59.0, 61.0, 119.9, 120.0, 500.0, f32::NAN].map(|x| four.at(x)).into();
        assert_eq!(at, [0, 0, 0, 1, 1, 2, 3, 3, 3, 0]);
        assert!(!four.is_whole() && regions(1).is_whole() && regions(0).is_whole());
        assert!((0..1200).all(|dm| regions(1).at(dm as f32 / 10.0) == 0));
    }

    #[test]
    fn a_character_is_handed_over_beyond_a_border_and_not_on_it() {
        let four = regions(4);
        assert_eq!([29.0, 30.5, 31.1, 95.0].map(|x| four.beyond(0, x)), [None, None, Some(1), Some(3)]);
        assert_eq!([29.5, 28.9, 61.1, -3.0].map(|x| four.beyond(1, x)), [None, Some(0), Some(2), Some(0)]);
        assert_eq!([-30.0, 150.0].map(|x| (four.beyond(0, x), four.beyond(3, x))), [(None, Some(0)), (Some(3), None)]);
        // It is not handed back at once.
        for dm in 0..1_200 {
            let x = dm as f32 / 10.0;
            for to in (0..4).filter_map(|number| four.beyond(number, x)) {
                assert_eq!(four.beyond(to, x), None, "at {x} m");
            }
        }
    }

    #[test]
    fn the_cells_of_a_place_are_sent_by_its_server_and_by_those_that_have_not_handed_over_yet() {
        let four = regions(4);
        let of = |cell: i32| {
            let mut servers = Vec::new();
            four.of_cell([cell, 7, 0], &mut servers);
            servers
        };
        assert_eq!((of(0), of(1), of(2), of(3), of(4)), (vec![0], vec![0, 1], vec![0, 1], vec![0, 1], vec![1, 2]));
        assert_eq!((of(-3), of(11), of(40)), (vec![0], vec![3], vec![3]));
        for dm in 0..1_200 {
            let x = dm as f32 / 10.0;
            let servers = of((x / 10.0) as i32);
            for number in (0..4).filter(|&number| four.beyond(number, x - SHARED_M + BEYOND_M).is_none()) {
                let is_near = (x - 30.0 * f32::from(number)).abs() < SHARED_M || four.at(x) == number;
                assert!(!is_near || servers.contains(&usize::from(number)), "{number} at {x} m");
            }
        }
    }
}
