//! With any bytes as a map, nothing panics, and every query ends.

use std::sync::Arc;

use fastrand::Rng;
use glam::{Vec3, vec3};
use proptest::prelude::*;
use throng_seeds::for_seeds;
use throng_sight::{Layers, Map, MapError, Processor, Ray, aligned, bake};

use crate::support::soup;

#[path = "../../../fuzz/bodies/cells.rs"]
mod cells;
#[path = "../../../fuzz/bodies/map.rs"]
mod map;

/// Writes the checksum that fits the bytes, so that the checks behind it are reached.
fn seal(bytes: &mut [u8]) {
    if bytes.len() >= 32 {
        let sum = xxhash_rust::xxh3::xxh3_64(&bytes[32..]);
        bytes[24..32].copy_from_slice(&sum.to_le_bytes());
    }
}

fn sample(seed: u64) -> Vec<u8> {
    let mut random = Rng::with_seed(seed);
    let count = 1 + random.usize(..200);
    let mut mesh = soup(&mut random, count, 50.0);
    mesh.layers = mesh.triangles.iter().map(|_| Layers(random.u16(..8))).collect();
    mesh.marks = vec![throng_sight::NamedBox { name: "a".to_owned(), bounds: [Vec3::ZERO; 2] }];
    bake(&mesh).unwrap().as_bytes().to_vec()
}

/// Every kind of query, some times.
fn use_it(map: &Map, random: &mut Rng) {
    for processor in Processor::available() {
        let map = map.clone().with_processor(processor);
        let mut rays = Vec::new();
        for _ in 0..10 {
            let mut point = || 60.0 * (vec3(random.f32(), random.f32(), random.f32()) - 0.5);
            let ray = Ray::between(point(), point()).unwrap();
            for layers in [Layers::ALL, Layers(2)] {
                let hit = map.closest(&ray, layers);
                if let Some(hit) = hit {
                    map.corners(hit.triangle);
                    map.normal(hit.triangle);
                }
                map.is_blocked(&ray, layers);
            }
            rays.push(ray);
        }
        map.closest_batch(&rays, Layers::ALL, &mut [None; 10]);
        map.is_blocked_batch(&rays, Layers(1), &mut [false; 10]);
        map.for_each_triangle_in(Vec3::splat(-9.0), Vec3::splat(9.0), Layers::ALL, |_, _| {});
        assert!(map.triangles().count() <= map.as_bytes().len());
        map.marks().for_each(|mark| assert!(mark.name.len() <= 40));
    }
}

#[test]
fn a_changed_map_is_refused_or_harmless() {
    let mut used = 0;
    for_seeds(1_500, |seed| {
        let mut random = Rng::with_seed(seed);
        let mut bytes = sample(seed % 20);
        for _ in 0..1 + random.usize(..4) {
            let place = match random.u8(..4) {
                0 => random.usize(32..128),
                1 => 128 + random.usize(..bytes.len() - 128) / 128 * 128 + random.usize(..64),
                _ => random.usize(32..bytes.len()),
            }
            .min(bytes.len() - 1);
            bytes[place] = [0, 1, 0x7f, 0x80, 0xff, random.u8(..)][random.usize(..6)];
        }
        seal(&mut bytes);
        if let Ok(map) = Map::new(aligned(&bytes)) {
            used += 1;
            use_it(&map, &mut random);
        }
    });
    assert!(throng_seeds::is_partial() || used > 300, "only {used} changed maps were accepted: nothing was tried");
}

#[test]
fn a_map_of_any_counts_is_refused_unless_they_fit() {
    for_seeds(300, |seed| {
        let mut random = Rng::with_seed(seed);
        let mut bytes = sample(seed % 20);
        let field = [16, 20, 32, 36, 40, 44, 72, 76][random.usize(..8)];
        let number = [0, 1, 2, 1 << 16, 1 << 28, 1 << 31, u32::MAX, random.u32(..)][random.usize(..8)];
        bytes[field..field + 4].copy_from_slice(&number.to_le_bytes());
        seal(&mut bytes);
        if let Ok(map) = Map::new(aligned(&bytes)) {
            use_it(&map, &mut random);
        }
    });
}

#[test]
fn a_map_that_is_cut_short_is_refused_at_every_length() {
    let bytes = sample(1);
    for len in 0..bytes.len() {
        let error = Map::new(aligned(&bytes[..len])).unwrap_err();
        let is_named = matches!(error, MapError::NotAMap | MapError::WrongLength { .. });
        assert!(is_named, "{len} of {} bytes: {error}", bytes.len());
    }
}

#[test]
fn a_tree_that_leads_back_to_itself_is_refused() {
    // The first child of the root becomes the root itself, then a node beyond the end.
    for child in [0_u32, 1 << 20] {
        let mut bytes = sample(3);
        bytes[160..164].copy_from_slice(&child.to_le_bytes());
        seal(&mut bytes);
        let error = Map::new(aligned(&bytes)).unwrap_err();
        assert_eq!(error, MapError::Broken { what: "child out of order in node", index: 0 });
    }
}

#[test]
fn bytes_that_begin_anywhere_are_refused_or_work() {
    let bytes = sample(2);
    let mut accepted = 0;
    for shift in 0..64 {
        let mut room = vec![0; bytes.len() + 64];
        room[shift..shift + bytes.len()].copy_from_slice(&bytes);
        /// A part of some bytes.
        struct Part(Vec<u8>, usize, usize);
        impl AsRef<[u8]> for Part {
            fn as_ref(&self) -> &[u8] {
                &self.0[self.1..self.1 + self.2]
            }
        }
        match Map::new(Arc::new(Part(room, shift, bytes.len()))) {
            Ok(map) => {
                accepted += 1;
                use_it(&map, &mut Rng::with_seed(1));
            }
            Err(error) => assert_eq!(error, MapError::Misaligned),
        }
    }
    assert_eq!(accepted, 1);
}

proptest! {
    #![proptest_config(throng_seeds::cases(300))]

    #[test]
    fn bytes_that_are_no_map_are_refused(mut bytes in proptest::collection::vec(any::<u8>(), 0..600), sealed: bool) {
        if sealed && bytes.len() >= 128 {
            bytes[..8].copy_from_slice(b"THRNGMAP");
            bytes[8..16].copy_from_slice(&[2, 0, 0, 0, 128, 0, 0, 0]);
            let len = bytes.len() as u64;
            bytes[16..24].copy_from_slice(&len.to_le_bytes());
            seal(&mut bytes);
        }
        prop_assert!(Map::new(aligned(&bytes)).is_err());
    }

    #[test]
    fn what_the_fuzzer_tries_is_harmless(input in proptest::collection::vec(any::<u8>(), 0..60)) {
        map::run(&input);
    }

    #[test]
    fn what_the_fuzzer_tries_as_cells_is_harmless(input in proptest::collection::vec(any::<u8>(), 0..60)) {
        cells::run(&input);
    }
}
