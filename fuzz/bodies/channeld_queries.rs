//! Queries of interest in grids of any shape: answered within their limit, or refused.
#![allow(dead_code)] // each target and test takes a part of it

use prost::Message as _;
use throng_channeld::proto::spatial_interest_query::{BoxAoi, ConeAoi, SphereAoi, SpotsAoi};
use throng_channeld::proto::{SpatialInfo, SpatialInterestQuery};
use throng_gateway_engine::spatial::{Axis, Damping, Grid, InterestLimits, InterestScratch};

use super::choices::Choices;

/// Points and cells that a query may look at here.
const SAMPLES: u32 = 5_000;

/// Numbers on which arithmetic stumbles.
const ODD: [f64; 16] = [
    0.0,
    -0.0,
    1e18,
    -1e18,
    f64::MAX,
    f64::MIN,
    f64::MIN_POSITIVE,
    5e-324,
    f64::NAN,
    f64::INFINITY,
    f64::NEG_INFINITY,
    1e-9,
    12.5,
    0.1,
    100.0,
    std::f64::consts::PI,
];

/// A grid, and a query of which the first byte says whether it is any bytes or made of right parts.
pub(crate) fn run(input: &[u8]) {
    let mut choices = Choices::new(input);
    let Some(grid) = grid(&mut choices) else { return };
    let limits = InterestLimits { samples: SAMPLES, radius_m: choices.number().max(1) };
    match choices.below(2) {
        0 => {
            let body = choices.bytes(input.len());
            if let Ok(query) = SpatialInterestQuery::decode(body) {
                check(&grid, &query, &limits);
            }
        }
        _ => check(&grid, &query(&mut choices), &limits),
    }
}

/// A query from the network, in worlds of 16 x 12 cells, with and without layers.
pub(crate) fn run_body(body: &[u8]) {
    if let Ok(query) = SpatialInterestQuery::decode(body) {
        check_usual(&query);
    }
}

pub(crate) fn check_usual(query: &SpatialInterestQuery) {
    let axis = |offset_m, cell_m, cells| Axis { offset_m, cell_m, cells, servers: 2 };
    let limits = InterestLimits { samples: SAMPLES, ..InterestLimits::default() };
    for layers in [None, Some(axis(-5.0, 2.5, 4))] {
        let ground = [axis(-100.0, 12.5, 16), axis(0.0, 10.0, 12)];
        let grid = Grid::new(ground, layers, 0x1_0000..0x8_0000, 1, Damping::default()).expect("a good grid");
        check(&grid, query, &limits);
    }
}

fn check(grid: &Grid, query: &SpatialInterestQuery, limits: &InterestLimits) {
    let (mut scratch, mut found) = (InterestScratch::default(), Vec::new());
    let answer = grid.interest(query, limits, &mut scratch, &mut found);
    assert!(scratch.samples() <= limits.samples);
    assert!(answer.is_ok() || found.is_empty());
    assert!(found.is_sorted_by(|a, b| a.channel < b.channel));
    assert!(found.iter().all(|interest| grid.channels().contains(&interest.channel)));
    // Asking again with the rest of the first answer gives the same result.
    let first = found.clone();
    let again = grid.interest(query, limits, &mut scratch, &mut found);
    assert_eq!((answer.is_ok(), first), (again.is_ok(), found));
}

fn grid(choices: &mut Choices<'_>) -> Option<Grid> {
    let ground = [axis(choices), axis(choices)];
    let layers = (choices.below(2) == 1).then(|| axis(choices));
    let border = u32::from(choices.byte());
    Grid::new(ground, layers, 0x1_0000..0x8_0000, border, Damping::default()).ok()
}

fn axis(choices: &mut Choices<'_>) -> Axis {
    Axis {
        offset_m: number(choices),
        cell_m: number(choices),
        cells: u32::from(choices.byte()),
        servers: u32::from(choices.byte() % 8),
    }
}

fn query(choices: &mut Choices<'_>) -> SpatialInterestQuery {
    let parts = choices.byte();
    let has = |bit: u8| parts & (1 << bit) != 0;
    SpatialInterestQuery {
        spots_aoi: has(0).then(|| SpotsAoi {
            spots: (0..choices.below(6)).filter_map(|_| position(choices)).collect(),
            dists: (0..choices.below(6)).map(|_| choices.number()).collect(),
        }),
        box_aoi: has(1).then(|| BoxAoi { center: position(choices), extent: position(choices) }),
        sphere_aoi: has(2).then(|| SphereAoi { center: position(choices), radius: number(choices) }),
        cone_aoi: has(3).then(|| ConeAoi {
            center: position(choices),
            direction: position(choices),
            angle: number(choices),
            radius: number(choices),
        }),
    }
}

fn position(choices: &mut Choices<'_>) -> Option<SpatialInfo> {
    if choices.below(10) == 9 {
        return None;
    }
    Some(SpatialInfo { x: number(choices), y: number(choices), z: number(choices) })
}

/// An ordinary number, an odd one, or any eight bytes.
fn number(choices: &mut Choices<'_>) -> f64 {
    match choices.below(4) {
        0 => ODD[choices.below(ODD.len())],
        1 => f64::from_bits(u64::from(choices.number()) << 32 | u64::from(choices.number())),
        _ => f64::from(choices.number() as i32 >> 16) / 16.0,
    }
}
