//! Surveys a generated town and walks between its marks: `cargo run -p throng-agent --example walk -- [triangles] [seed]`.

use std::time::Instant;

use glam::vec3;
use throng_agent::{BodyShape, Navigation, NavigationOptions, Path, PathFinder, Progress};
use throng_sight::{bake, town};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let triangles = arguments.next().map_or(Ok(5_000), |word| word.parse())?;
    let seed = arguments.next().map_or(Ok(1), |word| word.parse())?;
    let map = bake(&town::town(seed, triangles))?;

    let start = Instant::now();
    let mut options = NavigationOptions::new(town::BODIES);
    options.body = BodyShape { radius_m: 0.4, ..options.body };
    let navigation = Navigation::survey(&map, &options)?;
    println!("{} triangles in {:.2} s: {navigation:?}", map.triangle_count(), start.elapsed().as_secs_f64());

    let mut finder = PathFinder::new(&navigation);
    let mut path = Path::default();
    for goal in map.marks() {
        for from in map.marks().filter(|from| from.name != goal.name) {
            let cell = |[low, high]: [glam::Vec3; 2]| {
                navigation.nearest_in_main(low.midpoint(high) - vec3(0.0, (high - low).y / 2.0, 0.0), 4.0)
            };
            let (Some(a), Some(b)) = (cell(from.bounds), cell(goal.bounds)) else { continue };
            let (start, expanded) = (Instant::now(), finder.expanded());
            let mut calls = 1;
            finder.begin(a, b);
            while finder.advance(1_000) == Progress::Searching {
                calls += 1;
            }
            finder.path(&mut path);
            println!(
                "{} to {}: {:.1} m in {} points; {} cells in {calls} calls, {:.2} ms",
                from.name,
                goal.name,
                path.length_m(),
                path.points().len(),
                finder.expanded() - expanded,
                start.elapsed().as_secs_f64() * 1e3
            );
        }
    }
    Ok(())
}
