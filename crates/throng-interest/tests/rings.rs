//! The guarantees of rings, on random grids, rings and walks, against a brute-force reading of the definition.

use crate::support::Ledger;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use throng_interest::{CellId, Grid, Ring, RingInterest, RingOptions, Rings, Scratch, Viewer};

type Position = [f64; 3];

#[derive(Clone, Debug)]
struct Setup {
    cell_m: Position,
    radii_m: Vec<f64>,
    subcells: [u8; 3],
    margin_m: Option<f64>,
}

impl Setup {
    fn interest(&self) -> RingInterest {
        let rings: Vec<Ring> = (self.radii_m.iter().zip(1..))
            .map(|(&radius_m, interval_ticks)| Ring { radius_m, interval_ticks })
            .collect();
        let options = RingOptions { subcells: self.subcells, margin_m: self.margin_m, ..RingOptions::default() };
        RingInterest::new(Grid::new(self.cell_m).unwrap(), Rings::new(&rings).unwrap(), options).unwrap()
    }

    /// Sub-cells per axis as they are used.
    fn effective_subcells(&self) -> [u8; 3] {
        [0, 1, 2].map(|axis| if self.cell_m[axis].is_infinite() { 1 } else { self.subcells[axis] })
    }
}

fn setups() -> impl Strategy<Value = Setup> {
    let height = prop_oneof![Just(f64::INFINITY), 5.0..2_000.0f64, Just(8.0)];
    let side = || prop_oneof![Just(10.0), 4.0..20.0f64];
    let steps = prop::collection::vec(prop_oneof![Just(10.0), 3.0..15.0f64], 1..4);
    let margin = prop_oneof![Just(None), Just(Some(0.0)), (0.0..8.0f64).prop_map(Some)];
    (side(), side(), height, steps, 1..5u8, 1..5u8, 1..3u8, margin).prop_map(
        |(x, y, z, steps, sx, sy, sz, margin_m)| {
            let radii_m = steps.iter().scan(0.0, |sum, step| Some(*sum + step).inspect(|next| *sum = *next)).collect();
            Setup { cell_m: [x, y, z], radii_m, subcells: [sx, sy, sz], margin_m }
        },
    )
}

fn offsets(reach_m: f64) -> impl Strategy<Value = Position> {
    [-reach_m..reach_m, -reach_m..reach_m, -reach_m..reach_m]
}

fn moved(position: Position, by: Position) -> Position {
    [0, 1, 2].map(|axis| position[axis] + by[axis])
}

fn distance_m(a: Position, b: Position) -> f64 {
    (0..3).map(|axis| (a[axis] - b[axis]).powi(2)).sum::<f64>().sqrt()
}

/// A walk of small steps with a long jump here and there.
fn walks() -> impl Strategy<Value = Vec<Position>> {
    let step = prop_oneof![9 => offsets(3.0), 1 => offsets(60.0)];
    (offsets(100.0), prop::collection::vec(step, 1..40)).prop_map(|(start, steps)| {
        let walk = steps.iter().scan(start, |at, &step| Some(moved(*at, step)).inspect(|next| *at = *next));
        std::iter::once(start).chain(walk).collect()
    })
}

/// The distance between the viewer's sub-cell and a cell, from their borders in the world.
fn gap_m(setup: &Setup, position: Position, cell: CellId) -> f64 {
    let subcells = setup.effective_subcells();
    let square = |axis: usize, index: i32| {
        let size_m = setup.cell_m[axis];
        if size_m.is_infinite() {
            return 0.0;
        }
        let sub_m = size_m / f64::from(subcells[axis]);
        let low = (position[axis] / sub_m).floor() * sub_m;
        let (cell_low, cell_high) = (f64::from(index) * size_m, (f64::from(index) + 1.0) * size_m);
        (cell_low - (low + sub_m)).max(low - cell_high).max(0.0).powi(2)
    };
    (square(0, cell.x) + square(1, cell.y) + square(2, cell.z)).sqrt()
}

/// The ring of every cell near `position`, by the definition. `None` as ring marks a cell too close to call.
fn by_definition(
    setup: &Setup,
    interest: &RingInterest,
    position: Position,
    before: &Viewer,
) -> Vec<(CellId, Option<Option<u8>>)> {
    let reach_m = interest.rings().reach_m() + interest.margin_m();
    let reach = [0, 1, 2].map(|axis| (reach_m / setup.cell_m[axis]).ceil() as i32 + 1);
    let home = interest.grid().cell_of(position);
    let ring = |gap: f64, margin_m: f64| setup.radii_m.iter().position(|radius| gap < radius + margin_m);
    let mut all = Vec::new();
    for z in -reach[2]..=reach[2] {
        for y in -reach[1]..=reach[1] {
            for x in -reach[0]..=reach[0] {
                let cell = CellId { x: home.x + x, y: home.y + y, z: home.z + z };
                if setup.cell_m[2].is_infinite() && z != 0 {
                    continue;
                }
                let gap = gap_m(setup, position, cell);
                let borders = [0.0, interest.margin_m()];
                let unclear = borders.iter().any(|m| setup.radii_m.iter().any(|r| (gap - r - m).abs() < 1e-6));
                let (enter, hold) = (ring(gap, 0.0), ring(gap, interest.margin_m()));
                let now = match (before.ring_of(cell), hold) {
                    (_, None) => None,
                    (None, _) => enter.map(|ring| ring as u8),
                    (Some(had), Some(hold)) => Some(had.clamp(hold as u8, enter.map_or(u8::MAX, |ring| ring as u8))),
                };
                all.push((cell, if unclear { None } else { Some(now) }));
            }
        }
    }
    all
}

proptest! {
    #![proptest_config(throng_seeds::cases(256))]

    #[test]
    fn a_viewer_holds_what_the_definition_says(setup in setups(), walk in walks()) {
        let interest = setup.interest();
        let (mut viewer, mut scratch, mut ledger) = (Viewer::new(), Scratch::new(), Ledger::default());
        for position in walk {
            let before = viewer.clone();
            ledger.start();
            let looked = interest.update(&mut viewer, position, &mut scratch, &mut ledger);
            prop_assert!(looked || ledger.calls() == 0);
            prop_assert!(viewer.held().len() <= interest.max_cells());
            ledger.assert_agrees_with(&viewer);
            let expected = by_definition(&setup, &interest, position, &before);
            for &(cell, ring) in &expected {
                if let Some(ring) = ring {
                    prop_assert_eq!(viewer.ring_of(cell), ring, "cell {} seen from {:?}", cell, position);
                }
            }
            let near = |cell| expected.iter().any(|&(other, _)| other == cell);
            prop_assert!(viewer.held().all(|held| near(held.cell)), "a cell far away is held");
        }
        ledger.start();
        viewer.clear(&mut ledger);
        prop_assert!(ledger.held.is_empty() && viewer.held().len() == 0);
    }

    #[test]
    fn everything_within_a_radius_is_in_that_ring_or_a_nearer_one(
        setup in setups(),
        walk in walks(),
        things in prop::collection::vec(offsets(40.0), 50),
    ) {
        let interest = setup.interest();
        let (mut viewer, mut scratch, mut ledger) = (Viewer::new(), Scratch::new(), Ledger::default());
        for position in walk {
            ledger.start();
            interest.update(&mut viewer, position, &mut scratch, &mut ledger);
            for thing in things.iter().map(|&offset| moved(position, offset)) {
                let away_m = distance_m(position, thing);
                let held = viewer.ring_of(interest.grid().cell_of(thing));
                if let Some(ring) = setup.radii_m.iter().position(|&radius| away_m <= radius) {
                    prop_assert!(held.is_some_and(|held| usize::from(held) <= ring), "{away_m} m away in {held:?}");
                }
            }
        }
    }

    #[test]
    fn a_cell_is_let_go_only_beyond_its_radius_and_the_margin(setup in setups(), walk in walks()) {
        let interest = setup.interest();
        let (mut viewer, mut scratch, mut ledger) = (Viewer::new(), Scratch::new(), Ledger::default());
        for position in walk {
            let before = viewer.clone();
            ledger.start();
            interest.update(&mut viewer, position, &mut scratch, &mut ledger);
            for had in before.held() {
                if viewer.ring_of(had.cell).is_none_or(|ring| ring > had.ring) {
                    let limit_m = setup.radii_m[usize::from(had.ring)] + interest.margin_m();
                    let away_m = gap_m(&setup, position, had.cell);
                    prop_assert!(away_m > limit_m - 1e-6, "{} left ring {} at {away_m} m", had.cell, had.ring);
                }
            }
        }
    }

    #[test]
    fn a_viewer_that_jitters_on_a_border_settles(
        mut setup in setups(),
        border in [-20..20i32, -20..20i32],
        way_m in offsets(50.0),
        jitter in prop::collection::vec([-0.45..0.45f64, -0.45..0.45f64], 50..100),
    ) {
        setup.margin_m = None;
        let interest = setup.interest();
        let side_m = [0, 1].map(|axis| setup.cell_m[axis] / f64::from(setup.subcells[axis]));
        let corner = [0, 1].map(|axis| f64::from(border[axis]) * side_m[axis]);
        let (mut viewer, mut scratch, mut ledger) = (Viewer::new(), Scratch::new(), Ledger::default());
        // Arrive from somewhere, then jitter within less than half a sub-cell around a corner of sub-cells.
        interest.update(&mut viewer, [corner[0] + way_m[0], corner[1] + way_m[1], 1.0], &mut scratch, &mut ledger);
        let ring_of = |viewer: &Viewer, cell| viewer.ring_of(cell).unwrap_or(u8::MAX);
        let mut given_up: BTreeSet<(CellId, u8)> = BTreeSet::new();
        for part in jitter {
            let position = [corner[0] + part[0] * side_m[0], corner[1] + part[1] * side_m[1], 1.0];
            let before = viewer.clone();
            ledger.start();
            interest.update(&mut viewer, position, &mut scratch, &mut ledger);
            for cell in before.held().chain(viewer.held()).map(|held| held.cell) {
                let (had, has) = (ring_of(&before, cell), ring_of(&viewer, cell));
                prop_assert!(had == has || !given_up.contains(&(cell, has)), "{cell} is back in ring {has}");
                if had != has {
                    given_up.insert((cell, had));
                }
            }
        }
    }

    #[test]
    fn several_positions_hold_the_union_at_the_nearest_ring(
        mut setup in setups(),
        positions in prop::collection::vec(offsets(60.0), 0..=8),
    ) {
        setup.margin_m = Some(0.0);
        let interest = setup.interest();
        let (mut scratch, mut ledger) = (Scratch::new(), Ledger::default());
        let mut together = Viewer::new();
        // First somewhere else, so that the union replaces something.
        interest.update(&mut together, [20.0, 0.0, 0.0], &mut scratch, &mut ledger);
        ledger.start();
        interest.update_many(&mut together, &positions, &mut scratch, &mut ledger).unwrap();
        ledger.assert_agrees_with(&together);

        let mut expected = BTreeMap::new();
        for &position in &positions {
            let (mut alone, mut own_ledger) = (Viewer::new(), Ledger::default());
            interest.update(&mut alone, position, &mut scratch, &mut own_ledger);
            for held in alone.held() {
                let ring = expected.entry(held.cell).or_insert(held.ring);
                *ring = held.ring.min(*ring);
            }
        }
        let holds: Vec<_> = together.held().map(|held| (held.cell, held.ring)).collect();
        prop_assert_eq!(holds, expected.into_iter().collect::<Vec<_>>());

        ledger.start();
        prop_assert!(!interest.update_many(&mut together, &positions, &mut scratch, &mut ledger).unwrap());
        prop_assert_eq!(ledger.calls(), 0);
    }

    #[test]
    fn no_position_is_too_strange(position in any::<[f64; 3]>(), setup in setups()) {
        let interest = setup.interest();
        let (mut viewer, mut scratch, mut ledger) = (Viewer::new(), Scratch::new(), Ledger::default());
        interest.update(&mut viewer, position, &mut scratch, &mut ledger);
        prop_assert_eq!(viewer.ring_of(interest.grid().cell_of(position)), Some(0));
    }
}

fn flat_interest() -> RingInterest {
    let setup =
        Setup { cell_m: [10.0, 10.0, f64::INFINITY], radii_m: vec![10.0, 50.0], subcells: [4, 4, 1], margin_m: None };
    setup.interest()
}

#[test]
fn a_still_viewer_causes_no_calls() {
    let interest = flat_interest();
    let (mut viewer, mut scratch, mut ledger) = (Viewer::new(), Scratch::new(), Ledger::default());
    assert!(interest.update(&mut viewer, [1.0, 1.0, 0.0], &mut scratch, &mut ledger));
    assert!(ledger.enters > 0);
    ledger.start();
    for x in [1.1, 2.0, 0.0, 2.4999] {
        assert!(!interest.update(&mut viewer, [x, 1.0, 99.0], &mut scratch, &mut ledger));
    }
    assert_eq!(ledger.calls(), 0);
}

#[test]
fn a_cleared_viewer_enters_everything_again() {
    let interest = flat_interest();
    let (mut viewer, mut scratch, mut ledger) = (Viewer::new(), Scratch::new(), Ledger::default());
    interest.update(&mut viewer, [1.0, 1.0, 0.0], &mut scratch, &mut ledger);
    let first = ledger.enters;
    ledger.start();
    viewer.clear(&mut ledger);
    assert_eq!(ledger.leaves, first);
    ledger.start();
    assert!(interest.update(&mut viewer, [1.0, 1.0, 0.0], &mut scratch, &mut ledger));
    assert_eq!(ledger.enters, first);
}

#[test]
fn the_outermost_cells_have_fewer_neighbours_and_nothing_overflows() {
    let interest = flat_interest();
    let (mut viewer, mut scratch, mut ledger) = (Viewer::new(), Scratch::new(), Ledger::default());
    for corner in [[f64::INFINITY; 3], [f64::NEG_INFINITY; 3], [f64::MAX, f64::MIN, 0.0]] {
        ledger.start();
        interest.update(&mut viewer, corner, &mut scratch, &mut ledger);
        ledger.assert_agrees_with(&viewer);
        let (x_end, y_end) = (corner[0] > 0.0, corner[1] > 0.0);
        assert!(viewer.held().all(|held| (held.cell.x > 0) == x_end && (held.cell.y > 0) == y_end));
        assert!(viewer.held().len() * 2 < interest.max_cells());
    }
}

#[test]
fn wrong_options_are_refused_with_their_reason() {
    let grid = Grid::new([10.0; 3]).unwrap();
    let rings = Rings::new(&[Ring { radius_m: 400.0, interval_ticks: 1 }]).unwrap();
    let tag = |subcells, margin_m| {
        let options = RingOptions { subcells, margin_m, ..RingOptions::default() };
        RingInterest::new(grid, rings.clone(), options).unwrap_err().tag()
    };
    assert_eq!(tag([0, 4, 1], None), "interest_subcells");
    assert_eq!(tag([8, 8, 2], None), "interest_subcells");
    assert_eq!(tag([4, 4, 1], Some(-1.0)), "interest_margin");
    assert_eq!(tag([4, 4, 1], Some(f64::NAN)), "interest_margin");
    assert_eq!(tag([4, 4, 1], Some(0.0)), "interest_too_many_cells");
}

#[test]
fn too_many_positions_change_nothing() {
    let interest = flat_interest();
    let (mut viewer, mut scratch, mut ledger) = (Viewer::new(), Scratch::new(), Ledger::default());
    interest.update(&mut viewer, [0.0; 3], &mut scratch, &mut ledger);
    ledger.start();
    let error = interest.update_many(&mut viewer, &[[500.0; 3]; 9], &mut scratch, &mut ledger).unwrap_err();
    assert_eq!(error.tag(), "interest_too_many_viewpoints");
    assert_eq!(ledger.calls(), 0);
    ledger.assert_agrees_with(&viewer);
}

#[test]
fn nobody_wants_cells_beyond_the_bounds() {
    use throng_interest::{
        CellBounds, CellId, Grid, Ring, RingInterest, RingOptions, Rings, Scratch, Shape, Sink, Sources, Viewer,
    };

    struct Inside(CellBounds);
    impl Sink for Inside {
        fn enter(&mut self, cell: CellId, _ring: u8) -> u32 {
            assert!(self.0.contains(cell), "{cell:?} is outside");
            0
        }
        fn change(&mut self, _cell: CellId, _tag: u32, _ring: u8) {}
        fn leave(&mut self, _cell: CellId, _tag: u32) {}
    }

    let bounds = CellBounds { min: CellId { x: 0, y: 0, z: 0 }, max: CellId { x: 9, y: 4, z: 0 } };
    let grid = Grid::new([10.0, 10.0, f64::INFINITY]).unwrap();
    let rings = Rings::new(&[Ring { radius_m: 10.0, interval_ticks: 1 }, Ring { radius_m: 150.0, interval_ticks: 9 }]);
    let options = RingOptions { bounds: Some(bounds), ..RingOptions::default() };
    let interest = RingInterest::new(grid, rings.unwrap(), options).unwrap();
    let (mut viewer, mut scratch, mut sink) = (Viewer::new(), Scratch::new(), Inside(bounds));
    for x_m in [5.0, 50.0, 99.0, 300.0] {
        interest.update(&mut viewer, [x_m, 20.0, 0.0], &mut scratch, &mut sink);
    }
    interest.update(&mut viewer, [50.0, 20.0, 0.0], &mut scratch, &mut sink);
    assert_eq!(viewer.held().len(), 50, "all cells there are, and no more");
    assert_eq!(interest.max_cells(), 50);

    // A shape beyond the bounds touches what is held at the border. A cell that is named is no other one.
    let beyond = Shape::Box { min: [-500.0, 12.0, 0.0], max: [-400.0, 18.0, 9.0] };
    let across = Shape::Sphere { centre: [100.0, 45.0, 0.0], radius_m: 12.0 };
    let cells = [(CellId { x: 3, y: 2, z: 0 }, 0), (CellId { x: 3, y: 5, z: 0 }, 0), (CellId { x: 3, y: 2, z: 1 }, 0)];
    let sources = Sources { shapes: &[beyond, across], cells: &cells, ..Sources::default() };
    interest.update_from(&mut viewer, &sources, &mut scratch, &mut sink).unwrap();
    let held: Vec<[i32; 2]> = viewer.held().map(|held| [held.cell.x, held.cell.y]).collect();
    assert_eq!(held, [[0, 1], [3, 2], [8, 3], [9, 3], [8, 4], [9, 4]]);
}

/// An interest in which viewers look from their cells, in all of which they may stay `stay_m` longer.
fn from_cells(setup: &Setup, stay_m: f64) -> RingInterest {
    let steps = setup.radii_m.iter().zip(1..);
    let rings: Vec<Ring> = steps.map(|(&radius_m, interval_ticks)| Ring { radius_m, interval_ticks }).collect();
    let options = RingOptions { subcells: [1; 3], margin_m: Some(0.0), stay_m, bounds: None };
    RingInterest::new(Grid::new(setup.cell_m).unwrap(), Rings::new(&rings).unwrap(), options).unwrap()
}

proptest! {
    #![proptest_config(throng_seeds::cases(256))]

    #[test]
    fn all_viewers_in_a_cell_want_the_same(
        setup in setups(), walk in walks(), stay_m in 0.0..2.0f64,
    ) {
        let interest = from_cells(&setup, stay_m);
        let (mut walker, mut scratch, mut ledger) = (Viewer::new(), Scratch::new(), Ledger::default());
        for &position in &walk {
            ledger.start();
            interest.update(&mut walker, position, &mut scratch, &mut ledger);
            // It may still look from a cell that it has left by no more than the stay.
            let mut is_as_from = |cell: CellId| {
                let centre = [(0, cell.x), (1, cell.y), (2, cell.z)].map(|(axis, index)| match setup.cell_m[axis] {
                    size_m if size_m.is_finite() => (f64::from(index) + 0.5) * size_m,
                    _ => 0.0,
                });
                let (mut other, mut theirs) = (Viewer::new(), Ledger::default());
                interest.update(&mut other, centre, &mut scratch, &mut theirs);
                other.held().map(|held| (held.cell, held.ring)).eq(walker.held().map(|held| (held.cell, held.ring)))
            };
            let near = [-stay_m, 0.0, stay_m];
            let mut around = (0..27).map(|number| [near[number % 3], near[number / 3 % 3], near[number / 9]]);
            prop_assert!(around.any(|by| is_as_from(interest.grid().cell_of(moved(position, by)))), "at {position:?}");
        }
    }

    #[test]
    fn everything_within_a_radius_is_in_that_ring_also_from_cells(
        setup in setups(), walk in walks(), stay_m in 0.0..2.0f64, by in offsets(40.0),
    ) {
        let interest = from_cells(&setup, stay_m);
        let (mut viewer, mut scratch, mut ledger) = (Viewer::new(), Scratch::new(), Ledger::default());
        for &position in &walk {
            ledger.start();
            interest.update(&mut viewer, position, &mut scratch, &mut ledger);
            let seen = moved(position, by);
            let wanted = setup.radii_m.iter().position(|&radius_m| distance_m(position, seen) < radius_m - 1e-6);
            if let Some(wanted) = wanted {
                let ring = viewer.ring_of(interest.grid().cell_of(seen));
                prop_assert!(ring.is_some_and(|ring| usize::from(ring) <= wanted), "{seen:?} from {position:?}: {ring:?}");
            }
        }
    }
}

#[test]
fn a_viewer_that_looks_from_its_cell_does_not_flap_at_the_border() {
    let setup =
        Setup { cell_m: [10.0, 10.0, f64::INFINITY], radii_m: vec![9.0, 30.0], subcells: [1; 3], margin_m: None };
    let interest = from_cells(&setup, 0.5);
    let (mut viewer, mut scratch, mut ledger) = (Viewer::new(), Scratch::new(), Ledger::default());
    interest.update(&mut viewer, [9.0, 5.0, 0.0], &mut scratch, &mut ledger);
    let cells = viewer.held().filter(|held| held.ring == 0).count();
    assert_eq!(cells, 9, "the cell and its neighbours");
    for x in [10.1, 9.9, 10.4, 9.6, 10.49] {
        ledger.start();
        assert!(!interest.update(&mut viewer, [x, 5.0, 0.0], &mut scratch, &mut ledger), "at {x}");
    }
    ledger.start();
    assert!(interest.update(&mut viewer, [10.6, 5.0, 0.0], &mut scratch, &mut ledger));
    ledger.start();
    assert!(!interest.update(&mut viewer, [9.6, 5.0, 0.0], &mut scratch, &mut ledger), "nor on the way back");
    let options = |stay_m| RingOptions { stay_m, ..RingOptions::default() };
    for stay_m in [-1.0, f64::NAN, f64::INFINITY] {
        let refused = RingInterest::new(*interest.grid(), interest.rings().clone(), options(stay_m)).unwrap_err();
        assert_eq!(refused.tag(), "interest_stay");
    }
}
