//! Shapes visit every cell they touch, and hardly any other.

use crate::support::Ledger;
use proptest::prelude::*;
use std::collections::BTreeMap;
use throng_interest::{
    CellId, Grid, MAX_SHAPE_CELLS, Ring, RingInterest, RingOptions, Rings, Scratch, Shape, ShapeError, Sources, Viewer,
};

type Position = [f64; 3];

fn rings() -> Rings {
    Rings::new(&[Ring { radius_m: 10.0, interval_ticks: 1 }, Ring { radius_m: 30.0, interval_ticks: 3 }]).unwrap()
}

fn visited(grid: &Grid, shape: &Shape) -> BTreeMap<CellId, u8> {
    let mut cells = BTreeMap::new();
    let mut last = None;
    let count = grid
        .cells_in(shape, &rings(), |cell, ring| {
            assert!(last < Some(cell), "cells come in their order, once each");
            last = Some(cell);
            cells.insert(cell, ring);
        })
        .unwrap();
    assert_eq!(count, cells.len());
    cells
}

fn minus(a: Position, b: Position) -> Position {
    [a[0] - b[0], a[1] - b[1], a[2] - b[2]]
}

fn dot(a: Position, b: Position) -> f64 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

fn length(a: Position) -> f64 {
    dot(a, a).sqrt()
}

/// Whether the shape, grown by `slack_m` (and for a cone by that much at its tip), contains the point.
fn contains(shape: &Shape, point: Position, slack_m: f64) -> bool {
    match *shape {
        Shape::Sphere { centre, radius_m } => length(minus(point, centre)) <= radius_m + slack_m,
        Shape::Box { min, max } => (0..3).all(|i| min[i] - slack_m <= point[i] && point[i] <= max[i] + slack_m),
        Shape::Cone { apex, axis, half_angle_rad, range_m } => {
            let away = minus(point, apex);
            let along = dot(away, axis) / length(axis);
            let across = (dot(away, away) - along * along).max(0.0).sqrt();
            // Signed distance to the cone's side, positive outside.
            let outside = across * half_angle_rad.cos() - along * half_angle_rad.sin();
            length(away) <= range_m + slack_m && outside <= slack_m
        }
    }
}

fn viewpoint(shape: &Shape) -> Position {
    match *shape {
        Shape::Sphere { centre, .. } => centre,
        Shape::Box { min, max } => [0, 1, 2].map(|i| (min[i] + max[i]) / 2.0),
        Shape::Cone { apex, .. } => apex,
    }
}

fn points(reach_m: f64) -> impl Strategy<Value = Position> {
    [-reach_m..reach_m, -reach_m..reach_m, -reach_m..reach_m]
}

fn shapes() -> impl Strategy<Value = Shape> {
    let sphere = (points(50.0), 0.0..40.0f64).prop_map(|(centre, radius_m)| Shape::Sphere { centre, radius_m });
    let brick = (points(50.0), [0.0..60.0f64, 0.0..60.0f64, 0.0..60.0f64])
        .prop_map(|(min, size)| Shape::Box { min, max: [0, 1, 2].map(|i| min[i] + size[i]) });
    let cone = (points(50.0), points(1.0), 0.02..1.57f64, 0.0..60.0f64)
        .prop_filter("a direction", |(_, axis, _, _)| length(*axis) > 1e-3)
        .prop_map(|(apex, axis, half_angle_rad, range_m)| Shape::Cone { apex, axis, half_angle_rad, range_m });
    prop_oneof![sphere, brick, cone]
}

fn grids() -> impl Strategy<Value = Grid> {
    let height = prop_oneof![Just(f64::INFINITY), Just(1_000.0), 5.0..20.0f64];
    (5.0..20.0f64, 5.0..20.0f64, height).prop_map(|(x, y, z)| Grid::new([x, y, z]).unwrap())
}

proptest! {
    #![proptest_config(throng_seeds::cases(256))]

    #[test]
    fn no_point_of_a_shape_lies_in_a_cell_that_was_not_visited(
        grid in grids(),
        shape in shapes(),
        points in prop::collection::vec(points(60.0), 300),
    ) {
        let cells = visited(&grid, &shape);
        let from = viewpoint(&shape);
        prop_assert!(cells.contains_key(&grid.cell_of(from)), "the point from which distances count is inside");
        for point in points.iter().map(|point| [0, 1, 2].map(|i| from[i] + point[i])) {
            if contains(&shape, point, 0.0) {
                let ring = cells.get(&grid.cell_of(point)).copied();
                let away_m = length(minus(point, from));
                let most = u8::from(away_m > 10.0);
                prop_assert!(ring.is_some_and(|ring| ring <= most), "{point:?}, {away_m} m away, is in {ring:?}");
            }
        }
    }

    #[test]
    fn every_visited_cell_has_a_point_in_or_next_to_the_shape(shape in shapes()) {
        // Sample each visited cell densely: one of the samples must be within a sample's spacing of the shape.
        const SAMPLES: i32 = 8;
        let cell_m = 8.0;
        let grid = Grid::new([cell_m; 3]).unwrap();
        let spacing_m = cell_m / f64::from(SAMPLES);
        for &cell in visited(&grid, &shape).keys() {
            let origin = grid.origin(cell);
            let near = (0..SAMPLES.pow(3)).any(|n| {
                let part = [n % SAMPLES, n / SAMPLES % SAMPLES, n / SAMPLES / SAMPLES];
                let point = [0, 1, 2].map(|i| origin[i] + (f64::from(part[i]) + 0.5) * spacing_m);
                contains(&shape, point, spacing_m)
            });
            prop_assert!(near, "{cell} was visited");
        }
    }
}

#[test]
fn a_box_visits_exactly_the_cells_of_its_corners_and_between() {
    let grid = Grid::new([10.0; 3]).unwrap();
    let cells = visited(&grid, &Shape::Box { min: [-0.1, 0.0, 0.0], max: [9.9, 10.0, 0.0] });
    let expected = [[-1, 0], [0, 0], [-1, 1], [0, 1]].map(|[x, y]| CellId { x, y, z: 0 });
    assert_eq!(cells.into_keys().collect::<Vec<_>>(), expected);
}

#[test]
fn a_cone_looks_forward_only() {
    let grid = Grid::new([10.0, 10.0, f64::INFINITY]).unwrap();
    let cone = Shape::Cone { apex: [5.0, 5.0, 1.0], axis: [3.0, 0.0, 0.0], half_angle_rad: 0.2, range_m: 50.0 };
    let cells = visited(&grid, &cone);
    assert!(cells.keys().all(|cell| cell.x >= 0 && (-1..=1).contains(&cell.y)), "{cells:?}");
    assert_eq!(cells[&CellId { x: 0, y: 0, z: 0 }], 0);
    assert_eq!(cells[&CellId { x: 5, y: 0, z: 0 }], 1, "beyond the last ring counts as the last");
    assert!(!cells.contains_key(&CellId { x: 1, y: 1, z: 0 }), "10 m ahead the cone is 4 m wide");
}

#[test]
fn wrong_and_oversized_shapes_visit_nothing() {
    let grid = Grid::new([10.0; 3]).unwrap();
    let refused = |shape: Shape| grid.cells_in(&shape, &rings(), |_, _| panic!("visited")).unwrap_err();
    let sphere = |radius_m| Shape::Sphere { centre: [0.0; 3], radius_m };
    let cone = |axis, half_angle_rad| Shape::Cone { apex: [0.0; 3], axis, half_angle_rad, range_m: 10.0 };
    assert_eq!(refused(sphere(-1.0)).tag(), "shape_size");
    assert_eq!(refused(sphere(f64::NAN)).tag(), "shape_not_finite");
    assert_eq!(refused(Shape::Box { min: [1.0; 3], max: [0.0; 3] }).tag(), "shape_size");
    assert_eq!(refused(Shape::Box { min: [f64::NEG_INFINITY; 3], max: [0.0; 3] }).tag(), "shape_not_finite");
    assert_eq!(refused(cone([0.0; 3], 0.5)).tag(), "shape_size");
    assert_eq!(refused(cone([1.0, 0.0, 0.0], 1.6)).tag(), "shape_size");
    assert_eq!(refused(cone([1.0, 0.0, 0.0], f64::NAN)).tag(), "shape_size");
    for radius_m in [1_000.0, 1e12, f64::MAX] {
        let ShapeError::TooManyCells { cells } = refused(sphere(radius_m)) else { panic!("another error") };
        assert!(cells > MAX_SHAPE_CELLS);
    }
}

#[test]
fn a_viewer_holds_positions_shapes_and_named_cells_at_the_nearest_ring() {
    let grid = Grid::new([10.0, 10.0, f64::INFINITY]).unwrap();
    let interest = RingInterest::new(grid, rings(), RingOptions::default()).unwrap();
    let (mut viewer, mut scratch, mut ledger) = (Viewer::new(), Scratch::new(), Ledger::default());
    let cone = Shape::Cone { apex: [5.0, 5.0, 1.0], axis: [1.0, 0.0, 0.0], half_angle_rad: 0.05, range_m: 200.0 };
    let far = CellId { x: 1_000, y: -1_000, z: 0 };
    let beside = CellId { x: 2, y: 0, z: 0 };
    let sources = Sources { positions: &[[5.0, 5.0, 1.0]], shapes: &[cone], cells: &[(far, 1), (beside, 1), (far, 0)] };

    assert!(interest.update_from(&mut viewer, &sources, &mut scratch, &mut ledger).unwrap());
    ledger.assert_agrees_with(&viewer);
    assert_eq!(viewer.ring_of(far), Some(0), "named twice: the nearer ring");
    assert_eq!(viewer.ring_of(CellId { x: 0, y: 1, z: 0 }), Some(0), "from the position");
    assert_eq!(viewer.ring_of(CellId { x: 19, y: 0, z: 0 }), Some(1), "from the cone");

    // The same wish again is looked at again, and changes nothing.
    ledger.start();
    assert!(interest.update_from(&mut viewer, &sources, &mut scratch, &mut ledger).unwrap());
    assert_eq!(ledger.calls(), 0);

    // Without the shape and the names only what surrounds the position stays, at once.
    ledger.start();
    assert!(interest.update(&mut viewer, [5.0, 5.0, 1.0], &mut scratch, &mut ledger));
    assert_eq!((viewer.ring_of(far), ledger.enters), (None, 0));
    ledger.assert_agrees_with(&viewer);

    let wrong = Sources { cells: &[(far, 2)], ..Sources::default() };
    let error = interest.update_from(&mut viewer, &wrong, &mut scratch, &mut ledger).unwrap_err();
    assert_eq!(error.tag(), "interest_no_such_ring");
    ledger.assert_agrees_with(&viewer);
}
