//! Queries and the fog do not allocate.

use glam::{Vec3, vec3};
use throng_counting::allocations;
use throng_sight::fog::{Fog, FogAudit, FogOptions, FogWalls, FogWorld, Occluder, Target, Viewer};
use throng_sight::{Hit, Layers, Processor, Ray, bake, town};

#[test]
fn the_allocator_counts() {
    assert_eq!(allocations(|| drop(std::hint::black_box(Box::new(1)))), 1);
}

#[test]
fn no_query_allocates_on_any_processor() {
    let map = bake(&town::town(1, 20_000)).unwrap();
    let mut random = fastrand::Rng::with_seed(1);
    let mut point = || vec3(60.0 * (random.f32() - 0.5), 3.0 * random.f32(), 60.0 * (random.f32() - 0.5));
    let rays: Vec<Ray> = (0..500).map(|_| Ray::between(point(), point()).unwrap()).collect();
    let (mut hits, mut blocked): (Vec<Option<Hit>>, Vec<bool>) = (vec![None; 500], vec![false; 500]);
    for processor in Processor::available() {
        let map = map.clone().with_processor(processor);
        let (mut found, mut near) = (0, 0);
        let allocations = allocations(|| {
            for ray in &rays {
                let hit = map.closest(ray, Layers::ALL);
                found += usize::from(hit.is_some());
                let corners = hit.and_then(|hit| map.corners(hit.triangle).zip(map.normal(hit.triangle)));
                assert_eq!(corners.is_some(), map.is_blocked(ray, Layers::ALL));
                let place = ray.origin();
                map.for_each_triangle_in(place - 2.0, place + 2.0, town::BODIES, |_, _| near += 1);
            }
            map.closest_batch(&rays, town::SIGHT, &mut hits);
            map.is_blocked_batch(&rays, Layers::ALL, &mut blocked);
        });
        assert!(found > 100 && near > 100, "{found} rays hit something, {near} triangles were near");
        assert_eq!(allocations, 0, "{processor:?}");
    }
}

#[test]
fn a_fog_and_its_audit_allocate_nothing_after_the_beginning() {
    let map = bake(&town::town(2, 20_000)).unwrap();
    let walls = FogWalls::new(&map, town::SIGHT, town::BODIES).unwrap();
    let mut fog = Fog::new(FogOptions::default(), 10, 10);
    let mut audit = FogAudit::new(&fog, 2);
    let (mut viewers, mut targets) = ([None; 10], [None; 10]);
    let allocations = allocations(|| {
        for tick in 0..400 {
            for place in 0..10 {
                let turn = tick as f32 / 128.0 + place as f32;
                let feet =
                    vec3(4.0 * place as f32 - 18.0 + turn.sin(), 0.0, 14.0 * (place as f32 - 4.5) * turn.cos() / 4.5);
                let (group, velocity, speed_max_mps) = ((place % 2) as u8, Vec3::ZERO, 14.0);
                let eye = feet + 1.6 * Vec3::Y;
                viewers[place] = Some(Viewer { group, eye, velocity, speed_max_mps, latency_ms: 60.0 });
                let (lowest, highest) = (feet - vec3(0.4, 0.0, 0.4), feet + vec3(0.4, 1.8, 0.4));
                targets[place] = Some(Target { group, lowest, highest, velocity, speed_max_mps });
            }
            let smoke = Occluder::Ball { middle: vec3(0.0, 1.0, tick as f32 / 20.0), radius_m: 3.0 };
            fog.update(tick, &FogWorld { walls: &walls, occluders: &[smoke] }, &viewers, &targets);
            audit.watch(tick, &fog, (&map, town::SIGHT), &viewers, &targets);
        }
    });
    let (counts, looks) = (fog.counts(), audit.counts());
    assert!(counts.free > 100 && counts.hidden > 100 && counts.rays > 1_000, "{counts:?}");
    assert!(looks.sent > 100 && looks.hidden_but_visible == 0, "{looks:?}");
    assert_eq!(allocations, 0);
}
