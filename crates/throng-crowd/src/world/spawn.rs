use std::f32::consts::TAU;

use crate::scenario::{Scenario, Spawn};

use super::{family, mix};

/// Where the character of a slot starts. Slots beyond the scenario's players start where slots within it did.
pub(super) fn point(scenario: &Scenario, slot: u32) -> [f32; 2] {
    let slot = slot % scenario.players.max(1);
    let mut rng = fastrand::Rng::with_seed(mix(scenario.seed, family::SPAWN, u64::from(slot)));
    let [width, depth] = scenario.area_m;
    match scenario.spawn {
        Spawn::Uniform => anywhere(&mut rng, [width, depth]),
        Spawn::Spread => lattice(slot, scenario.players, width, depth),
        Spawn::Disc { radius_m } => within(&mut rng, radius_m),
        Spawn::Hot { share, at_m, radius_m } => {
            // Of any players with numbers in a row, as many as the share says.
            let in_place = |slots: u32| (slots as f32 * share) as u32;
            match in_place(slot + 1) > in_place(slot) {
                true => {
                    let [x, y] = within(&mut rng, radius_m);
                    [at_m[0] + x, at_m[1] + y]
                }
                false => anywhere(&mut rng, [width, depth]),
            }
        }
        Spawn::Line { spacing_m } => [(slot as f32 - (scenario.players - 1) as f32 / 2.0) * spacing_m, 0.0],
    }
}

fn anywhere(rng: &mut fastrand::Rng, [width, depth]: [f32; 2]) -> [f32; 2] {
    [(rng.f32() - 0.5) * width, (rng.f32() - 0.5) * depth]
}

fn within(rng: &mut fastrand::Rng, radius_m: f32) -> [f32; 2] {
    let (distance_m, angle) = (radius_m * rng.f32().sqrt(), rng.f32() * TAU);
    [distance_m * angle.cos(), distance_m * angle.sin()]
}

/// Middles of equal rectangles that cover the area, row by row.
fn lattice(slot: u32, players: u32, width: f32, depth: f32) -> [f32; 2] {
    let columns = ((players as f32 * width / depth).sqrt().ceil() as u32).clamp(1, players);
    let rows = players.div_ceil(columns);
    let middle = |number: u32, count: u32, side: f32| ((number as f32 + 0.5) / count as f32 - 0.5) * side;
    [middle(slot % columns, columns, width), middle(slot / columns, rows, depth)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Overrides;

    fn points(spawn: Spawn) -> (Scenario, Vec<[f32; 2]>) {
        let scenario = Scenario { spawn, ..Scenario::resolve("converge", &Overrides::default()).unwrap() };
        let points = (0..scenario.players).map(|slot| point(&scenario, slot)).collect();
        (scenario, points)
    }

    #[test]
    fn every_shape_stays_within_the_area() {
        let hot = Spawn::Hot { share: 0.5, at_m: [-990.0, 0.0], radius_m: 10.0 };
        let others = [Spawn::Spread, Spawn::Disc { radius_m: 800.0 }, Spawn::Line { spacing_m: 5.0 }];
        for spawn in [Spawn::Uniform, hot].into_iter().chain(others) {
            let (scenario, points) = points(spawn);
            for [x, y] in points {
                assert!(x.abs() <= scenario.area_m[0] / 2.0 && y.abs() <= scenario.area_m[1] / 2.0, "{spawn:?}");
            }
        }
    }

    #[test]
    fn a_disc_is_filled_evenly() {
        let (_, points) = points(Spawn::Disc { radius_m: 800.0 });
        let inner = points.iter().filter(|[x, y]| x.hypot(*y) < 800.0 / 2.0_f32.sqrt()).count();
        assert!(points.iter().all(|[x, y]| x.hypot(*y) <= 800.5));
        assert!((35..=65).contains(&inner), "{inner} of 100 in the inner half");
    }

    #[test]
    fn a_hot_place_has_its_share_of_the_players() {
        let (_, points) = points(Spawn::Hot { share: 0.75, at_m: [-500.0, 300.0], radius_m: 20.0 });
        let inner = points.iter().filter(|[x, y]| (x + 500.0).hypot(y - 300.0) <= 20.1).count();
        assert_eq!((inner, points.len()), (75, 100));
    }

    #[test]
    fn a_lattice_keeps_its_distance_and_a_line_its_spacing() {
        let (_, points) = points(Spawn::Spread);
        for (i, a) in points.iter().enumerate() {
            for b in &points[..i] {
                assert!((a[0] - b[0]).hypot(a[1] - b[1]) >= 199.9);
            }
        }
        let line = super::tests::points(Spawn::Line { spacing_m: 3.0 }).1;
        assert_eq!(line[0], [-148.5, 0.0]);
        assert_eq!(line[99], [148.5, 0.0]);
    }
}
