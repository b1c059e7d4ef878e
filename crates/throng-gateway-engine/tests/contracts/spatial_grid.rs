//! Cells, servers and neighbours. The worlds `W..` are those of channeld's own tests, with the same answers.

use std::collections::BTreeSet;

use throng_gateway_engine::spatial::{Axis, Damping, Grid, GridError, Position, Slots, SlotsError};

const FIRST: u32 = 0x1_0000;

fn axis(offset_m: f64, cell_m: f64, cells: u32, servers: u32) -> Axis {
    Axis { offset_m, cell_m, cells, servers }
}

fn flat(columns: Axis, rows: Axis, border_cells: u32) -> Grid {
    Grid::new([columns, rows], None, FIRST..0x8_0000, border_cells, Damping::default()).unwrap()
}

fn at(x: f64, z: f64) -> Position {
    Position { x, y: 1e30, z }
}

/// Indices of channels, from 0.
fn indices(channels: impl Iterator<Item = u32>) -> Vec<u32> {
    channels.map(|channel| channel - FIRST).collect()
}

#[test]
fn a_position_is_in_the_cell_whose_lower_borders_it_has_passed() {
    for (x0, z0) in [(0.0, 0.0), (-450.0, -200.0)] {
        let grid = flat(axis(x0, 100.0, 9, 3), axis(z0, 50.0, 8, 4), 2);
        let index = |x: f64, z: f64| grid.channel_at(at(x0 + x, z0 + z)).map(|channel| channel - FIRST);
        assert_eq!(index(0.0, 0.0), Some(0));
        assert_eq!(index(100.0, 0.0), Some(1));
        assert_eq!(index(0.0, 50.0), Some(9));
        assert_eq!(index(450.0, 200.0), Some(9 * 4 + 4));
        assert_eq!(index(899.99, 399.99), Some(9 * 8 - 1));
        for (x, z) in
            [(-1.0, 0.0), (-50.0, 200.0), (0.0, -1.0), (900.0, 0.0), (0.0, 400.0), (900.0, 400.0), (1e308, 0.0)]
        {
            assert_eq!(index(x, z), None, "{x} {z}");
        }
        for odd in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert_eq!(grid.channel_at(at(odd, 0.0)), None);
            assert_eq!(grid.channel_at(at(0.0, odd)), None);
        }
    }
}

#[test]
fn neighbours_are_the_cells_around_without_the_one_in_the_middle() {
    let one = flat(axis(0.0, 10.0, 1, 1), axis(0.0, 10.0, 1, 1), 1);
    assert_eq!(indices(one.adjacent(FIRST)), [0; 0]);
    let four = flat(axis(-5.0, 5.0, 2, 1), axis(-5.0, 5.0, 2, 1), 0);
    assert_eq!(indices(four.adjacent(FIRST)), [1, 2, 3]);
    let twenty = flat(axis(0.0, 1.0, 5, 1), axis(0.0, 1.0, 4, 1), 0);
    assert_eq!(indices(twenty.adjacent(FIRST + 6)), [0, 1, 2, 5, 7, 10, 11, 12]);
    assert_eq!(indices(twenty.adjacent(FIRST + 19)), [13, 14, 18]);
    assert_eq!(twenty.adjacent(FIRST + 20).count(), 0, "not of this grid");
    assert_eq!(twenty.adjacent(FIRST - 1).count(), 0);

    let layer = axis(0.0, 1.0, 3, 1);
    let cube = Grid::new([layer, layer], Some(layer), FIRST..0x8_0000, 0, Damping::default()).unwrap();
    assert_eq!(cube.adjacent(FIRST + 13).count(), 26);
    assert_eq!(indices(cube.adjacent(FIRST)), [1, 3, 4, 9, 10, 12, 13]);
}

#[test]
fn one_server_takes_a_world_of_one_cell_and_a_second_one_is_refused() {
    let grid = flat(axis(0.0, 10.0, 1, 1), axis(0.0, 10.0, 1, 1), 1);
    let mut slots = Slots::new(&grid);
    assert_eq!(slots.take('a'), Ok(0));
    assert_eq!(indices(grid.cells_of(0)), [0]);
    assert_eq!(grid.border_of(0).count(), 0);
    assert_eq!(slots.take('b'), Err(SlotsError::Taken { servers: 1 }));
    assert_eq!(slots.free('a'), Some(0));
    assert_eq!(slots.take('b'), Ok(0));
}

#[test]
fn four_servers_take_four_cells_without_borders() {
    let grid = flat(axis(0.0, 33.0, 2, 2), axis(0.0, 77.0, 2, 2), 0);
    for server in 0..4 {
        assert_eq!(indices(grid.cells_of(server)), [server]);
        assert_eq!(grid.border_of(server).count(), 0);
    }
    assert_eq!(grid.cells_of(4).count(), 0);
    assert_eq!(grid.border_of(4).count(), 0);
}

#[test]
fn six_servers_see_one_cell_beyond_their_sides() {
    let grid = flat(axis(-40.0, 20.0, 4, 2), axis(-60.0, 40.0, 3, 3), 1);
    let cells: Vec<_> = (0..6).map(|server| indices(grid.cells_of(server))).collect();
    assert_eq!(cells, [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9], [10, 11]]);
    let borders =
        [vec![2, 4, 5], vec![1, 6, 7], vec![0, 1, 6, 8, 9], vec![2, 3, 5, 10, 11], vec![4, 5, 10], vec![6, 7, 9]];
    for (server, border) in (0..).zip(borders) {
        assert_eq!(indices(grid.border_of(server)), border, "server {server}");
    }
}

#[test]
fn nine_servers_take_nine_blocks() {
    let grid = flat(axis(-150.0, 20.0, 15, 3), axis(-150.0, 20.0, 15, 3), 0);
    let mut seen = BTreeSet::new();
    for server in 0..9 {
        let cells = indices(grid.cells_of(server));
        assert_eq!(cells.len(), 25);
        assert_eq!(cells[0], server % 3 * 5 + server / 3 * 75);
        assert!(cells.iter().all(|&cell| grid.server_of(FIRST + cell) == Some(server)));
        seen.extend(cells);
    }
    assert_eq!(seen.len(), 225);
}

#[test]
fn w_9_1b_a_grid_that_does_not_divide_by_the_servers_leaves_no_cell_without_server() {
    for (columns, rows, layers, border) in
        [((7, 3), (5, 2), (1, 1), 1), ((10, 4), (9, 5), (5, 3), 2), ((5, 4), (3, 2), (2, 2), 9)]
    {
        let [columns, rows, layers] = [columns, rows, layers].map(|(cells, servers)| axis(-3.0, 2.0, cells, servers));
        let grid = Grid::new([columns, rows], Some(layers), FIRST..0x8_0000, border, Damping::default()).unwrap();
        let mut owner = vec![None; grid.cells() as usize];
        for server in 0..grid.servers() {
            let own: BTreeSet<u32> = grid.cells_of(server).collect();
            for &channel in &own {
                assert_eq!(owner[(channel - FIRST) as usize].replace(server), None, "dealt twice");
                assert_eq!(grid.server_of(channel), Some(server));
            }
            let seen: Vec<u32> = grid.border_of(server).collect();
            assert!(seen.is_sorted_by(|a, b| a < b) && seen.iter().all(|channel| !own.contains(channel)));
        }
        assert!(owner.iter().all(Option::is_some));
    }
}

#[test]
fn the_table_of_cells_covers_the_world_without_gaps() {
    let grid = flat(axis(-40.0, 20.0, 4, 2), axis(-60.0, 40.0, 3, 3), 1);
    let regions: Vec<_> = grid.regions().collect();
    assert_eq!(regions.len(), 12);
    for region in &regions {
        let (min, max) = (region.min.unwrap(), region.max.unwrap());
        assert_eq!((max.x - min.x, max.z - min.z), (20.0, 40.0));
        assert_eq!(max.y, 3.402_823_47e38 / 2.0);
        assert_eq!(min.y, -max.y);
        assert_eq!(grid.channel_at(at(min.x, min.z)), Some(region.channel_id));
        assert_eq!(grid.channel_at(at(max.x - 0.01, max.z - 0.01)), Some(region.channel_id));
        assert_eq!(grid.server_of(region.channel_id), Some(region.server_index));
    }
    assert_eq!((regions[0].min.unwrap().x, regions[11].max.unwrap().z), (-40.0, 60.0));
}

#[test]
fn with_layers_height_counts() {
    let ground = axis(0.0, 10.0, 2, 1);
    let grid =
        Grid::new([ground, ground], Some(axis(-5.0, 5.0, 3, 3)), FIRST..0x8_0000, 1, Damping::default()).unwrap();
    let index = |y: f64| grid.channel_at(Position { x: 1.0, y, z: 11.0 }).map(|channel| channel - FIRST);
    assert_eq!(
        [index(-5.1), index(-5.0), index(0.0), index(9.9), index(10.0)],
        [None, Some(2), Some(6), Some(10), None]
    );
    assert_eq!(index(f64::NAN), None);
    assert_eq!(indices(grid.cells_of(1)), [4, 5, 6, 7]);
    assert_eq!(indices(grid.border_of(1)), [0, 1, 2, 3, 8, 9, 10, 11]);
    assert_eq!(grid.bounds(FIRST + 6).map(|[min, max]| (min.y, max.y)), Some((0.0, 5.0)));
}

#[test]
fn a_grid_that_cannot_be_is_refused() {
    let good = axis(0.0, 10.0, 4, 2);
    let refused = |bad: Axis, channels| Grid::new([good, bad], None, channels, 0, Damping::default()).unwrap_err();
    let ids = FIRST..0x8_0000;
    for size_m in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert!(matches!(refused(axis(0.0, size_m, 4, 2), ids.clone()), GridError::CellSize { .. }));
    }
    for offset_m in [f64::NAN, f64::NEG_INFINITY, 1e300] {
        assert!(matches!(refused(axis(offset_m, 1.0, 4, 2), ids.clone()), GridError::TooFar { .. }));
    }
    assert_eq!(refused(axis(0.0, 1.0, 0, 1), ids.clone()), GridError::Empty);
    assert_eq!(refused(axis(0.0, 1.0, 1, 0), ids.clone()), GridError::Empty);
    assert_eq!(refused(axis(0.0, 1.0, 2, 3), ids.clone()), GridError::IdleServers { servers: 3, cells: 2 });
    assert_eq!(refused(axis(0.0, 1.0, 3, 1), 10..21), GridError::TooManyCells { cells: 12, room: 11 });
    assert!(matches!(refused(axis(0.0, 1e-9, u32::MAX, 1), ids), GridError::TooManyCells { .. }));
}

#[test]
fn a_place_is_given_once_and_completeness_is_told_once() {
    let grid = flat(axis(0.0, 1.0, 2, 2), axis(0.0, 1.0, 2, 2), 0);
    let mut slots = Slots::new(&grid);
    for (server, connection) in (0..3).zip("abc".chars()) {
        assert_eq!(slots.take(connection), Ok(server));
        assert!(!slots.poll_complete());
    }
    assert_eq!(slots.take('b'), Err(SlotsError::Again { server: 1 }));
    assert_eq!(slots.take('d'), Ok(3));
    assert!(slots.poll_complete() && !slots.poll_complete() && slots.is_complete());
    assert_eq!(slots.free('b'), Some(1));
    assert_eq!(slots.free('b'), None);
    assert!(!slots.is_complete() && slots.connection(1).is_none());
    assert_eq!(slots.replace('c', 'x'), Some(2));
    assert_eq!(slots.take('e'), Ok(1));
    assert!(slots.poll_complete());
    assert_eq!(slots.iter().collect::<Vec<_>>(), [(0, 'a'), (1, 'e'), (2, 'x'), (3, 'd')]);
}
