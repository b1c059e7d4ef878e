//! Cells never hide what is seen, their bytes are those that are drawn, and other bytes are refused.

use fastrand::Rng;
use glam::{UVec3, Vec3, vec3};
use throng_seeds::for_seeds;
use throng_sight::fog::{CellError, CellOptions, CellVisibility, Fog, FogOptions, FogWalls, FogWorld};
use throng_sight::{Layers, Map, Ray, aligned, town};

use super::{Town, target, viewer, wall};

/// A closed wall, with cells of 10 m and 5 m height.
fn sample() -> (Map, FogWalls, CellVisibility) {
    let (map, walls) = wall(0.0);
    let options = CellOptions { sides_m: vec3(10.0, 5.0, 10.0), rays_max: 100, ..CellOptions::default() };
    let cells = CellVisibility::bake(&map, &walls, &options).unwrap();
    (map, walls, cells)
}

fn seal(bytes: &mut [u8]) {
    let sum = xxhash_rust::xxh3::xxh3_64(&bytes[32..]);
    bytes[24..32].copy_from_slice(&sum.to_le_bytes());
}

#[test]
fn cells_behind_a_wall_are_hidden_and_cost_no_ray() {
    let (_, walls, cells) = sample();
    let (eye, feet) = (vec3(-15.0, 1.6, 2.0), vec3(15.0, 0.0, 2.0));
    assert!(!cells.may_see(eye, feet + Vec3::Y));
    assert!(cells.may_see(eye, feet.with_x(-8.0)), "on the same side");
    assert!(cells.may_see(eye.with_z(40.0), feet), "past the end of the wall");
    assert!(cells.may_see(eye.with_y(100.0), feet), "outside of all cells");
    assert!(cells.may_see(eye, Vec3::NAN));
    let walls = walls.with_cells(cells);
    let mut fog = Fog::new(FogOptions::default(), 1, 1);
    fog.update(0, &FogWorld { walls: &walls, occluders: &[] }, &[viewer(eye, 50.0)], &[target(feet)]);
    assert_eq!((fog.may_see(0, 0), fog.counts().by_cells), (false, 1));
}

#[test]
fn no_line_between_cells_of_a_town_is_free_that_cannot_see_each_other() {
    let town = Town::new(8, 50_000);
    let options = CellOptions::default();
    let cells = CellVisibility::bake(&town.map, &town.walls, &options).unwrap();
    let [low, high] = town.map.bounds();
    let mut tried = 0;
    for_seeds(4, |seed| {
        let mut random = Rng::with_seed(seed);
        for _ in 0..100_000 {
            let mut point = || low + (high - low) * vec3(random.f32(), random.f32(), random.f32());
            let (from, to) = (point(), point());
            if !cells.may_see(from, to) {
                tried += 1;
                let ray = Ray::between(from, to).unwrap();
                if !town.map.is_blocked(&ray, town::SIGHT) {
                    return Err(format!("{from} sees {to}, and the cells say that it does not"));
                }
            }
        }
        Ok(())
    });
    println!("{} cells, {:.1} % of their pairs hidden", cells.cell_count(), 100.0 * cells.hidden_share());
    assert!(throng_seeds::is_partial() || tried > 200, "only {tried} lines were tried");
}

#[test]
fn the_bytes_are_those_that_the_page_draws() {
    let (map, _, cells) = sample();
    let bytes = cells.as_bytes();
    let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let real = |at: usize| f32::from_bits(number(at));
    assert_eq!(&bytes[..8], b"THRNGVIS");
    assert_eq!([8, 12, 16, 20].map(number), [1, 96, bytes.len() as u32, 0]);
    assert_eq!(bytes[24..32], xxhash_rust::xxh3::xxh3_64(&bytes[32..]).to_le_bytes());
    assert_eq!(bytes[32..40], map.checksum().to_le_bytes());
    assert_eq!((number(40), number(44)), (cells.cell_count(), 0xffff));
    let (low, high) = (map.bounds()[0] - 0.5, map.bounds()[1] + 0.5);
    assert_eq!([48, 52, 56].map(real), low.to_array());
    assert_eq!([60, 64, 68].map(real), [10.0, 5.0, 10.0]);
    let counts = UVec3::from_array([72, 76, 80].map(number));
    assert_eq!(counts, ((high - low) / vec3(10.0, 5.0, 10.0)).floor().as_uvec3() + 1);
    assert!(bytes[84..96].iter().all(|byte| *byte == 0));
    let boxes = counts.element_product() as usize;
    let row = cells.cell_count().div_ceil(8) as usize;
    assert_eq!(bytes.len(), 96 + 4 * boxes + (4 + row) * cells.cell_count() as usize);
    // The bit of the two cells beside the wall in the middle.
    let cell = |place: Vec3| {
        let place = ((place - low) / vec3(10.0, 5.0, 10.0)).as_uvec3();
        number(96 + 4 * ((place.z * counts.y + place.y) * counts.x + place.x) as usize) as usize
    };
    assert_eq!(real(96 + 4 * boxes), -0.002, "the floor of the first cell");
    let bit =
        |a: usize, b: usize| bytes[96 + 4 * (boxes + cells.cell_count() as usize) + a * row + b / 8] >> (b % 8) & 1;
    let (left, right) = (cell(vec3(-15.0, 1.0, 2.0)), cell(vec3(15.0, 1.0, 2.0)));
    assert_eq!([bit(left, right), bit(right, left), bit(left, left)], [0, 0, 1]);
}

#[test]
fn maps_whose_cells_differ_have_different_checksums() {
    let (bare, walls, many) = sample();
    let options = CellOptions { sides_m: vec3(10.0, 5.0, 10.0), rays_max: 0, ..CellOptions::default() };
    let few = CellVisibility::bake(&bare, &walls, &options).unwrap();
    assert!(few.hidden_share() < many.hidden_share());
    let [few, many] = [few, many].map(|cells| bare.with_cells(&cells).unwrap());
    let len = few.as_bytes().len();
    assert_eq!((len, &few.as_bytes()[24..32]), (many.as_bytes().len(), &many.as_bytes()[24..32]), "the heads agree");
    assert_ne!(few.checksum(), many.checksum());
    // A copy has the same, and its cells belong to it.
    let copy = Map::new(aligned(many.as_bytes())).unwrap();
    assert_eq!(copy.checksum(), many.checksum());
    let cells = copy.cells().unwrap();
    assert!(CellVisibility::new(aligned(cells.as_bytes()), &copy, &walls).is_ok());
}

#[test]
fn each_fault_of_a_file_is_named() {
    let (map, walls, cells) = sample();
    let changed = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = cells.as_bytes().to_vec();
        change(&mut bytes);
        CellVisibility::new(aligned(&bytes), &map, &walls).unwrap_err()
    };
    let sealed = |at: usize, value: u8| {
        changed(&|bytes| {
            bytes[at] = value;
            seal(bytes);
        })
    };
    assert!(CellVisibility::new(aligned(cells.as_bytes()), &map, &walls).is_ok());
    assert_eq!(changed(&|bytes| bytes[0] = b'X'), CellError::NotCells);
    assert_eq!(changed(&|bytes| bytes[8] = 2), CellError::OtherVersion { found: 2 });
    let len = cells.as_bytes().len() as u64;
    assert_eq!(changed(&|bytes| bytes.truncate(100)), CellError::WrongLength { expected: len, found: 100 });
    assert_eq!(changed(&|bytes| bytes.push(0)), CellError::WrongLength { expected: len, found: len + 1 });
    assert_eq!(changed(&|bytes| bytes[200] ^= 1), CellError::Damaged);
    assert_eq!(sealed(32, !cells.as_bytes()[32]), CellError::OtherMap);
    assert_eq!(sealed(44, 1), CellError::OtherMap);
    assert_eq!(sealed(90, 1), CellError::Broken { what: "reserved bytes of the head" });
    assert_eq!(sealed(63, 0xbf), CellError::Broken { what: "sides of the boxes" });
    let infinite = changed(&|bytes| {
        bytes[48..52].copy_from_slice(&f32::INFINITY.to_le_bytes());
        seal(bytes);
    });
    assert_eq!(infinite, CellError::Broken { what: "a place that is no number" });
    assert_eq!(sealed(43, 1), CellError::Broken { what: "number of cells" });
    assert_eq!(sealed(99, 1), CellError::Broken { what: "unknown cell of a box" });
    assert!(matches!(sealed(40, 1), CellError::WrongLength { .. }));
    let (_, other) = wall(5.0);
    let (other_map, _) = wall(5.0);
    let error = CellVisibility::new(aligned(cells.as_bytes()), &other_map, &other).unwrap_err();
    assert_eq!((&error, error.tag()), (&CellError::OtherMap, "cells_other_map"));
    let small = CellOptions { sides_m: Vec3::ONE, ..CellOptions::default() };
    let large = throng_sight::Mesh { positions: vec![Vec3::ZERO, 5e5 * Vec3::X, 5e5 * Vec3::Z], ..Default::default() };
    let large = throng_sight::bake(&throng_sight::Mesh { triangles: vec![[0, 2, 1]], ..large }).unwrap();
    let large_walls = FogWalls::new(&large, Layers::ALL, Layers::ALL).unwrap();
    let error = CellVisibility::bake(&large, &large_walls, &small).unwrap_err();
    assert!(matches!(error, CellError::TooMany { .. }));
}

#[test]
fn any_bytes_are_refused_or_harmless() {
    let (map, walls, cells) = sample();
    let mut used = 0;
    for_seeds(3_000, |seed| {
        let mut random = Rng::with_seed(seed);
        let mut bytes = cells.as_bytes().to_vec();
        if random.u8(..8) == 0 {
            bytes.truncate(random.usize(..bytes.len()));
        }
        for _ in 0..1 + random.usize(..3) {
            let place = if random.bool() { random.usize(40..96) } else { random.usize(40..4_000) };
            if let Some(byte) = bytes.get_mut(place) {
                *byte = [0, 1, 0x7f, 0x80, 0xff, random.u8(..)][random.usize(..6)];
            }
        }
        if bytes.len() > 32 {
            let len = bytes.len() as u64;
            bytes[16..24].copy_from_slice(&len.to_le_bytes());
            seal(&mut bytes);
        }
        if let Ok(cells) = CellVisibility::new(aligned(&bytes), &map, &walls) {
            used += 1;
            for _ in 0..20 {
                let mut point = || 80.0 * (vec3(random.f32(), random.f32(), random.f32()) - 0.5);
                cells.may_see(point(), point());
            }
            cells.hidden_share();
        }
    });
    assert!(throng_seeds::is_partial() || used > 100, "only {used} changed files were accepted: nothing was tried");
}
