//! Paths: as short as can be over the links, within a budget, and free to walk.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use fastrand::Rng;
use throng_agent::{CellId, Navigation, Path, PathFinder, Progress, Reach};
use throng_seeds::for_seeds;

use crate::support::{any_cell, floor, has_room, survey, town_map};

/// The costs from `start` to all cells (Dijkstra 1959). None where there is no way.
fn costs(navigation: &Navigation, start: CellId) -> Vec<Option<u32>> {
    let mut costs = vec![None; navigation.cell_count()];
    let mut open = BinaryHeap::from([Reverse((0, start))]);
    while let Some(Reverse((cost, cell))) = open.pop() {
        if costs[cell.0 as usize].is_some() {
            continue;
        }
        costs[cell.0 as usize] = Some(cost);
        open.extend(navigation.links(cell).map(|link| Reverse((cost + link.cost_mm, link.to))));
    }
    costs
}

#[test]
fn a_path_costs_as_much_as_the_cheapest_one() {
    for_seeds(3, |seed| {
        let navigation = survey(&town_map(seed, 8_000));
        let mut finder = PathFinder::new(&navigation);
        let (mut random, mut path, mut found) = (Rng::with_seed(seed), Path::default(), 0);
        for _ in 0..20 {
            let from = any_cell(&mut random, &navigation);
            let costs = costs(&navigation, from);
            for _ in 0..20 {
                let to = any_cell(&mut random, &navigation);
                let progress = finder.find(from, to);
                finder.path(&mut path);
                match costs[to.0 as usize] {
                    Some(cost) => {
                        assert_eq!((progress, path.cost_mm()), (Progress::Found, cost), "{from:?} to {to:?}");
                        assert!(path.length_m() * 1_000.0 <= cost as f32 + 1.0, "straightened, it is not longer");
                        found += 1;
                    }
                    None => {
                        assert_eq!((progress, path.points().len()), (Progress::Unreachable, 0), "{from:?} to {to:?}");
                    }
                }
            }
        }
        assert!(found > 40, "{found} paths are too few");
    });
}

#[test]
fn a_search_in_pieces_finds_the_same_and_keeps_its_budget() {
    let navigation = survey(&town_map(3, 8_000));
    let mut random = Rng::with_seed(3);
    let (mut whole, mut pieces) = (PathFinder::new(&navigation), PathFinder::new(&navigation));
    let (mut a, mut b) = (Path::default(), Path::default());
    for _ in 0..100 {
        let (from, to) = (any_cell(&mut random, &navigation), any_cell(&mut random, &navigation));
        whole.find(from, to);
        whole.path(&mut a);
        let budget = random.u32(1..200);
        pieces.begin(from, to);
        while pieces.progress() == Progress::Searching {
            let before = pieces.expanded();
            pieces.advance(budget);
            assert!(pieces.expanded() - before <= u64::from(budget), "more nodes than the budget");
        }
        pieces.path(&mut b);
        assert_eq!(a, b);
        assert_eq!(whole.expanded(), pieces.expanded());
    }
}

#[test]
fn a_body_that_follows_a_path_touches_nothing() {
    for_seeds(3, |seed| {
        let map = town_map(seed, 8_000);
        let navigation = survey(&map);
        let mut finder = PathFinder::new(&navigation);
        let (mut random, mut path, mut walked) = (Rng::with_seed(seed), Path::default(), 0.0);
        for _ in 0..40 {
            let (from, to) = (any_cell(&mut random, &navigation), any_cell(&mut random, &navigation));
            finder.find(from, to);
            finder.path(&mut path);
            let Some(mut height) = path.points().first().map(|point| point.y) else { continue };
            for line in path.points().windows(2) {
                let level = |place: glam::Vec3| glam::vec2(place.x, place.z);
                let strides = (level(line[0]).distance(level(line[1])) / 0.1).ceil();
                let mut hovers = 0;
                for stride in 1..=strides as u32 {
                    let place = line[0].lerp(line[1], stride as f32 / strides);
                    let at = |height: f32| glam::vec3(place.x, height, place.z);
                    // Falls are part of paths; a step up is at most 0.4 m.
                    let below = floor(&map, at(height + 0.41), 2.6).unwrap_or_else(|| panic!("no floor at {place}"));
                    if below < height - 0.4 && !has_room(&map, at(below), 0.34) {
                        // A part of the body still stands on the edge.
                        hovers += 1;
                        assert!(hovers <= 4, "the body stands in the air at {place}");
                    } else {
                        height = below;
                    }
                    let (from, to) = (line[0], line[1]);
                    assert!(has_room(&map, at(height), 0.34), "no room at {} between {from} and {to}", at(height));
                }
                assert!((height - line[1].y).abs() < 0.06, "the line to {} ends at {height}", line[1]);
            }
            walked += path.length_m();
        }
        assert!(walked > 100.0, "{walked} m are too few");
    });
}

#[test]
fn straight_lines_replace_many_cells() {
    let navigation = survey(&town_map(1, 8_000));
    let mut finder = PathFinder::new(&navigation);
    let (mut random, mut path, mut cells, mut points) = (Rng::with_seed(1), Path::default(), 0, 0);
    for _ in 0..50 {
        finder.find(any_cell(&mut random, &navigation), any_cell(&mut random, &navigation));
        finder.path(&mut path);
        cells += if path.points().is_empty() { 0 } else { finder.cells().len() };
        points += path.points().len();
    }
    assert!(points > 50 && points * 3 < cells * 2, "{points} points instead of {cells}");
}

#[test]
fn an_unreachable_goal_costs_no_search() {
    let navigation = survey(&town_map(2, 8_000));
    let mut finder = PathFinder::new(&navigation);
    let main = navigation.cells().find(|cell| navigation.is_in_main(*cell)).expect("there is a largest area");
    let off = navigation.cells().filter(|cell| navigation.reach(main, *cell) == Reach::No);
    let mut tried = 0;
    for goal in off {
        assert_eq!(finder.begin(main, goal), Progress::Unreachable);
        tried += 1;
    }
    assert!(tried > 0, "the town has places that nobody reaches");
    assert_eq!(finder.expanded(), 0);
}
