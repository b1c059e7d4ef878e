//! Areas of interest: channeld's own cases, a slow answer to compare with, and what no world should have to endure.

use std::collections::BTreeMap;
use std::f64::consts::{FRAC_PI_4, PI};

use proptest::prelude::*;
use throng_channeld::proto::spatial_interest_query::{BoxAoi, ConeAoi, SphereAoi, SpotsAoi};
use throng_channeld::proto::{SpatialInfo, SpatialInterestQuery};
use throng_gateway_engine::spatial::{
    Axis, Damping, Grid, Interest, InterestError, InterestLimits, InterestScratch, Position,
};

const FIRST: u32 = 0x1_0000;

fn world(x: (f64, f64, u32), z: (f64, f64, u32)) -> Grid {
    let axis = |(offset_m, cell_m, cells)| Axis { offset_m, cell_m, cells, servers: 1 };
    Grid::new([axis(x), axis(z)], None, FIRST..0x8_0000, 0, Damping::default()).unwrap()
}

fn square(offset_m: f64, cell_m: f64, cells: u32) -> Grid {
    world((offset_m, cell_m, cells), (offset_m, cell_m, cells))
}

fn at(x: f64, z: f64) -> Option<SpatialInfo> {
    Some(SpatialInfo { x, y: 0.0, z })
}

fn sphere(center: Option<SpatialInfo>, radius: f64) -> SpatialInterestQuery {
    SpatialInterestQuery { sphere_aoi: Some(SphereAoi { center, radius }), ..Default::default() }
}

fn cuboid(center: Option<SpatialInfo>, extent: Option<SpatialInfo>) -> SpatialInterestQuery {
    SpatialInterestQuery { box_aoi: Some(BoxAoi { center, extent }), ..Default::default() }
}

fn cone(center: Option<SpatialInfo>, direction: (f64, f64), angle: f64, radius: f64) -> SpatialInterestQuery {
    let direction = at(direction.0, direction.1);
    SpatialInterestQuery { cone_aoi: Some(ConeAoi { center, direction, angle, radius }), ..Default::default() }
}

fn ask(grid: &Grid, query: &SpatialInterestQuery) -> Result<Vec<Interest>, InterestError> {
    let mut found = Vec::new();
    grid.interest(query, &InterestLimits::default(), &mut InterestScratch::default(), &mut found)?;
    Ok(found)
}

/// Indices of the cells, from 0.
fn cells(grid: &Grid, query: &SpatialInterestQuery) -> Vec<u32> {
    ask(grid, query).unwrap().iter().map(|interest| interest.channel - FIRST).collect()
}

/// Index and distance.
fn distances(grid: &Grid, query: &SpatialInterestQuery) -> Vec<(u32, u32)> {
    ask(grid, query).unwrap().iter().map(|interest| (interest.channel - FIRST, interest.distance)).collect()
}

#[test]
fn spheres_as_in_channeld_s_test() {
    let one = square(0.0, 10.0, 1);
    assert_eq!(cells(&one, &sphere(at(5.0, 5.0), 1.0)), [0]);
    assert_eq!(cells(&one, &sphere(at(5.0, 5.0), 100.0)), [0]);
    let four = square(-5.0, 5.0, 2);
    assert_eq!(cells(&four, &sphere(at(0.0, 0.0), 1.0)), [0, 1, 2, 3]);
    assert_eq!(cells(&four, &sphere(at(4.9, 4.9), 1.0)), [3]);
    assert_eq!(cells(&four, &sphere(at(4.9, 4.9), 4.9)), [3]);
    assert_eq!(cells(&four, &sphere(at(4.9, 4.9), 10.0)), [0, 1, 2, 3]);
    let nine = square(-150.0, 100.0, 3);
    assert_eq!(cells(&nine, &sphere(at(0.0, 0.0), 150.0)), [0, 1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(cells(&nine, &sphere(at(0.0, 0.0), 99.0)), [1, 3, 4, 5, 7]);
}

#[test]
fn boxes_as_in_channeld_s_test() {
    let one = square(0.0, 10.0, 1);
    assert_eq!(cells(&one, &cuboid(at(5.0, 5.0), at(1.0, 1.0))), [0]);
    assert_eq!(cells(&one, &cuboid(at(5.0, 5.0), at(100.0, 100.0))), [0]);
    let four = square(-5.0, 5.0, 2);
    assert_eq!(cells(&four, &cuboid(at(0.0, 0.0), at(1.0, 1.0))), [0, 1, 2, 3]);
    assert_eq!(cells(&four, &cuboid(at(4.9, 4.9), at(1.0, 1.0))), [3]);
    assert_eq!(cells(&four, &cuboid(at(4.9, 4.9), at(4.9, 4.9))), [3]);
    assert_eq!(cells(&four, &cuboid(at(4.9, 4.9), at(4.9, 10.0))), [1, 3]);
    let nine = square(-150.0, 100.0, 3);
    assert_eq!(cells(&nine, &cuboid(at(0.0, 0.0), at(150.0, 150.0))).len(), 9);
    assert_eq!(cells(&nine, &cuboid(at(0.0, 0.0), at(100.0, 100.0))).len(), 9);
}

#[test]
fn cones_as_in_channeld_s_test() {
    let one = square(0.0, 10.0, 1);
    assert_eq!(cells(&one, &cone(at(5.0, 5.0), (1.0, 0.0), FRAC_PI_4, 1.0)), [0]);
    let row = world((0.0, 10.0, 4), (0.0, 10.0, 1));
    assert_eq!(cells(&row, &cone(at(0.0, 5.0), (1.0, 0.0), FRAC_PI_4, 1.0)), [0]);
    assert_eq!(cells(&row, &cone(at(0.0, 5.0), (1.0, 0.0), FRAC_PI_4, 25.0)), [0, 1, 2]);
    assert_eq!(cells(&row, &cone(at(0.0, 5.0), (1.0, 0.0), FRAC_PI_4, 100.0)), [0, 1, 2, 3]);
    assert_eq!(cells(&row, &cone(at(0.0, 5.0), (0.0, 1.0), FRAC_PI_4, 100.0)), [0]);
    let nine = square(0.0, 10.0, 3);
    assert_eq!(cells(&nine, &cone(at(5.0, 5.0), (1.0, 0.0), 0.1, 100.0)), [0, 1, 2]);
    assert_eq!(cells(&nine, &cone(at(5.0, 5.0), (1.0, 0.0), FRAC_PI_4, 100.0)), [0, 1, 2, 4, 5, 8]);
    assert_eq!(cells(&nine, &cone(at(15.0, 15.0), (-1.0, 0.0), FRAC_PI_4, 100.0)), [0, 3, 4, 6]);
    assert_eq!(cells(&nine, &cone(at(5.0, 15.0), (0.0, -1.0), FRAC_PI_4, 100.0)), [0, 1, 3]);
    let wide = world((-2000.0, 1000.0, 4), (-500.0, 1000.0, 1));
    assert_eq!(cells(&wide, &cone(at(1250.0, 0.0), (-0.087, 0.996), PI / 6.0, 30_000.0)), [3]);
}

#[test]
fn the_published_benchmark_s_sphere_has_three_distances() {
    // 30 m around the middle of a cell of 20 m: one diagonal is 28.3 m.
    let grid = square(-150.0, 20.0, 15);
    let query = sphere(at(0.0, 0.0), 30.0);
    let middle = 7 * 15 + 7;
    let found = distances(&grid, &query);
    // Three by three, and two that points at exactly 30 m just reach: cells own their lower borders, not their upper.
    assert_eq!(found.len(), 11);
    for (cell, distance) in found {
        let apart = (cell % 15).abs_diff(7).max((cell / 15).abs_diff(7));
        assert_eq!(distance, apart, "cell {cell}");
        assert_eq!(distance == 0, cell == middle);
    }
}

#[test]
fn spots_carry_their_distances_and_those_outside_are_passed_over() {
    let grid = square(0.0, 10.0, 3);
    let spots = [at(5.0, 5.0), at(-1.0, 5.0), at(25.0, 5.0), at(26.0, 5.0), at(5.0, 25.0)];
    let spots = SpotsAoi { spots: spots.into_iter().flatten().collect(), dists: vec![7, 1, 9, 4] };
    let query = SpatialInterestQuery { spots_aoi: Some(spots), ..Default::default() };
    assert_eq!(distances(&grid, &query), [(0, 7), (2, 4), (6, 0)]);
}

#[test]
fn areas_are_united_and_the_least_distance_holds() {
    let grid = world((0.0, 10.0, 8), (0.0, 10.0, 1));
    let mut query = sphere(at(5.0, 5.0), 20.0);
    query.cone_aoi = cone(at(75.0, 5.0), (-1.0, 0.0), 0.1, 20.0).cone_aoi;
    query.spots_aoi = Some(SpotsAoi { spots: vec![at(15.0, 5.0).unwrap(), at(45.0, 5.0).unwrap()], dists: vec![9, 9] });
    assert_eq!(distances(&grid, &query), [(0, 0), (1, 1), (2, 2), (4, 9), (5, 2), (6, 1), (7, 0)]);
}

#[test]
fn nothing_asked_for_is_nothing_found() {
    assert_eq!(ask(&square(0.0, 10.0, 3), &SpatialInterestQuery::default()), Ok(Vec::new()));
}

#[test]
fn w15_a_query_without_a_centre_is_refused() {
    let grid = square(0.0, 10.0, 3);
    let inside = at(5.0, 5.0);
    for query in [sphere(None, 5.0), cuboid(None, inside), cuboid(inside, None), cone(None, (1.0, 0.0), 1.0, 5.0)] {
        assert!(matches!(ask(&grid, &query), Err(InterestError::Missing { .. })), "{query:?}");
    }
    assert!(matches!(
        ask(&grid, &cone(inside, (0.0, 0.0), 1.0, 5.0)),
        Err(InterestError::Missing { part: "direction", .. })
    ));
}

#[test]
fn w15_a_radius_of_1e18_is_the_whole_world_and_costs_no_more() {
    let grid = square(-150.0, 20.0, 15);
    for radius in [1e18, f64::MAX] {
        for query in [
            sphere(at(3.0, 4.0), radius),
            cuboid(at(3.0, 4.0), at(radius, radius)),
            cone(at(3.0, 4.0), (1.0, 0.0), PI, radius),
        ] {
            let (mut scratch, mut found) = (InterestScratch::default(), Vec::new());
            grid.interest(&query, &InterestLimits::default(), &mut scratch, &mut found).unwrap();
            assert_eq!(found.len(), 225);
            assert!(scratch.samples() < 2_000, "{}", scratch.samples());
        }
    }
}

#[test]
fn w15_what_is_not_a_number_or_has_no_size_is_refused() {
    let grid = square(0.0, 10.0, 3);
    let inside = at(5.0, 5.0);
    for odd in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        for query in [
            sphere(inside, odd),
            sphere(at(odd, 5.0), 5.0),
            cuboid(inside, at(5.0, odd)),
            cone(inside, (1.0, 0.0), odd, 5.0),
            cone(inside, (odd, 0.0), 1.0, 5.0),
        ] {
            assert!(matches!(ask(&grid, &query), Err(InterestError::NotFinite { .. })), "{query:?}");
        }
    }
    for none in [0.0, -1.0, 5e-324] {
        assert!(matches!(ask(&grid, &sphere(inside, none)), Err(InterestError::Size { .. })), "{none}");
        assert!(matches!(ask(&grid, &cuboid(inside, at(none, 5.0))), Err(InterestError::Size { .. })), "{none}");
    }
    assert!(matches!(ask(&grid, &cone(inside, (1.0, 0.0), -1.0, 5.0)), Err(InterestError::Size { .. })));
}

#[test]
fn a_centre_outside_of_the_world_is_refused() {
    let grid = square(0.0, 10.0, 3);
    for query in
        [sphere(at(-1.0, 5.0), 50.0), cuboid(at(30.0, 5.0), at(50.0, 50.0)), cone(at(5.0, 1e18), (1.0, 0.0), 1.0, 9.0)]
    {
        assert!(matches!(ask(&grid, &query), Err(InterestError::Outside { .. })), "{query:?}");
    }
}

#[test]
fn a_query_over_its_limit_is_refused_and_a_radius_over_its_limit_is_cut_down() {
    let grid = square(0.0, 1.0, 300);
    let query = sphere(at(150.0, 150.0), 1e6);
    let (mut scratch, mut found) = (InterestScratch::default(), Vec::new());
    let answer = grid.interest(&query, &InterestLimits::default(), &mut scratch, &mut found);
    assert_eq!(answer, Err(InterestError::TooLarge { limit: 65_536 }));
    assert!(found.is_empty() && scratch.samples() <= 65_536);
    let limits = InterestLimits { radius_m: 2, ..InterestLimits::default() };
    grid.interest(&query, &limits, &mut scratch, &mut found).unwrap();
    assert_eq!(found.len(), ask(&grid, &sphere(at(150.0, 150.0), 2.0)).unwrap().len());
    let many = SpotsAoi { spots: vec![SpatialInfo::default(); 70_000], dists: Vec::new() };
    let query = SpatialInterestQuery { spots_aoi: Some(many), ..Default::default() };
    assert!(matches!(ask(&grid, &query), Err(InterestError::TooLarge { .. })));
}

#[test]
fn with_layers_height_counts() {
    let axis = Axis { offset_m: 0.0, cell_m: 10.0, cells: 3, servers: 1 };
    let grid = Grid::new([axis, axis], Some(axis), FIRST..0x8_0000, 0, Damping::default()).unwrap();
    let centre = Some(SpatialInfo { x: 15.0, y: 15.0, z: 15.0 });
    assert_eq!(cells(&grid, &sphere(centre, 9.0)), [4, 10, 12, 13, 14, 16, 22]);
    assert_eq!(cells(&grid, &cuboid(centre, Some(SpatialInfo { x: 1.0, y: 10.0, z: 1.0 }))), [4, 13, 22]);
    let up = SpatialInterestQuery {
        cone_aoi: Some(ConeAoi {
            center: centre,
            direction: Some(SpatialInfo { x: 0.0, y: 2.0, z: 0.0 }),
            angle: 0.1,
            radius: 20.0,
        }),
        ..Default::default()
    };
    assert_eq!(cells(&grid, &up), [13, 22]);
}

/// An area in the simplest words: what to sample, and which points of it count.
#[derive(Debug)]
struct Area {
    centre: [f64; 3],
    extent: [f64; 3],
    radius: f64,
    /// Direction and half-angle.
    cone: Option<([f64; 3], f64)>,
}

impl Area {
    fn query(&self, kind: u8) -> SpatialInterestQuery {
        let info = |[x, y, z]: [f64; 3]| Some(SpatialInfo { x, y, z });
        match (kind, self.cone) {
            (0, _) => cuboid(info(self.centre), info(self.extent)),
            (_, None) => sphere(info(self.centre), self.radius),
            (_, Some((direction, angle))) => SpatialInterestQuery {
                cone_aoi: Some(ConeAoi {
                    center: info(self.centre),
                    direction: info(direction),
                    angle,
                    radius: self.radius,
                }),
                ..Default::default()
            },
        }
    }
}

/// Walks over the whole lattice from `centre - extent` on, one point after the other.
fn slowly(grid: &Grid, cell_m: [f64; 3], layered: bool, area: &Area, kind: u8) -> BTreeMap<u32, u32> {
    let axes = if layered { 3 } else { 2 };
    // x, z, y: with two axes, y does not count.
    let order = [0, 2, 1];
    let coordinates = |axis: usize| {
        let axis = order[axis];
        let step = area.extent[axis].min(cell_m[axis]) / 2.0;
        let mut at = area.centre[axis] - area.extent[axis];
        let mut list = Vec::new();
        while at <= area.centre[axis] + area.extent[axis] {
            list.push(at);
            at += step;
        }
        list
    };
    let diagonal = (0..axes).map(|axis| cell_m[order[axis]].powi(2)).sum::<f64>().sqrt();
    let centre = Position { x: area.centre[0], y: area.centre[1], z: area.centre[2] };
    let mut found = BTreeMap::from([(grid.channel_at(centre).unwrap(), 0)]);
    let heights = if layered { coordinates(2) } else { vec![area.centre[1]] };
    for &x in &coordinates(0) {
        for &z in &coordinates(1) {
            for &y in &heights {
                let Some(channel) = grid.channel_at(Position { x, y, z }) else { continue };
                let offset = [x - centre.x, y - centre.y, z - centre.z];
                let square: f64 = offset.iter().map(|part| part * part).sum();
                if kind != 0 && square > area.radius * area.radius {
                    continue;
                }
                if let (1, Some((direction, angle))) = (kind, area.cone) {
                    let mut direction = direction;
                    if !layered {
                        direction[1] = 0.0;
                    }
                    let norm = direction.iter().map(|part| part * part).sum::<f64>().sqrt();
                    let along: f64 = (0..3).map(|axis| offset[axis] * direction[axis] / norm).sum();
                    if square == 0.0 || along / square.sqrt() < angle.cos() {
                        continue;
                    }
                }
                let distance = (square.sqrt() / diagonal).ceil() as u32;
                found.entry(channel).and_modify(|least| *least = distance.min(*least)).or_insert(distance);
            }
        }
    }
    found
}

/// Eighths: sums of them are exact, so that both ways see the same points.
fn eighths(range: std::ops::Range<i32>) -> impl Strategy<Value = f64> {
    range.prop_map(|eighths| f64::from(eighths) / 8.0)
}

proptest! {
    #![proptest_config(throng_seeds::cases(600))]

    #[test]
    fn the_quick_answer_is_the_slow_one(
        cell_m in prop::array::uniform3(prop::sample::select(&[2.0, 4.0, 8.0, 16.0][..])),
        counts in prop::array::uniform3(1..7u32),
        centre in prop::array::uniform3(0.0..1.0f64),
        extent in prop::array::uniform3(eighths(1..400)),
        direction in prop::array::uniform3(-1.0..1.0f64),
        angle in 0.0..PI,
        layered: bool,
        kind in 0..3u8,
    ) {
        let axis = |axis: usize| Axis { offset_m: -7.0, cell_m: cell_m[axis], cells: counts[axis], servers: 1 };
        let layers = layered.then(|| axis(1));
        let grid = Grid::new([axis(0), axis(2)], layers, FIRST..0x8_0000, 0, Damping::default()).unwrap();
        let inside = |axis: usize| -7.0 + (centre[axis] * cell_m[axis] * f64::from(counts[axis]) * 8.0).floor() / 8.0;
        let radius = extent[0];
        let area = Area {
            centre: [inside(0), inside(1), inside(2)],
            extent: if kind == 0 { extent } else { [radius; 3] },
            radius,
            cone: (kind == 1).then_some((direction, angle)),
        };
        let found = ask(&grid, &area.query(kind)).unwrap();
        let found: BTreeMap<u32, u32> = found.iter().map(|interest| (interest.channel, interest.distance)).collect();
        prop_assert_eq!(found, slowly(&grid, cell_m, layered, &area, kind));
    }
}
