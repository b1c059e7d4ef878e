//! The bytes of a map are those that are drawn in `format.rs` and in docs/sight.md.

use glam::{Vec3, vec3};
use throng_sight::fog::{CellOptions, CellVisibility, FogWalls};
use throng_sight::{Layers, Map, MapError, Mesh, MeshError, NamedBox, aligned, bake};

use crate::support::push;

fn sample() -> Mesh {
    let mut mesh = Mesh::default();
    push(&mut mesh, [vec3(1.0, 2.0, 3.0), vec3(4.0, 2.0, 3.0), vec3(1.0, 7.0, -3.0)]);
    push(&mut mesh, [vec3(1.0, 2.0, 3.0), vec3(4.0, 2.0, 3.0), vec3(1.0, 7.0, 8.0)]);
    mesh.layers = vec![Layers(5), Layers(8)];
    mesh.marks = vec![NamedBox { name: "spawn/a".to_owned(), bounds: [Vec3::ZERO, Vec3::ONE] }];
    mesh
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn f32_at(bytes: &[u8], at: usize) -> f32 {
    f32::from_bits(u32_at(bytes, at))
}

#[test]
fn a_small_map_has_the_bytes_that_the_page_draws() {
    let map = bake(&sample()).unwrap();
    let bytes = map.as_bytes();
    assert_eq!(bytes.len(), 128 + 128 + 2 * (160 + 16) + 64);
    assert_eq!(&bytes[..8], b"THRNGMAP");
    assert_eq!([8, 12, 16, 20].map(|at| u32_at(bytes, at)), [2, 128, bytes.len() as u32, 0]);
    assert_eq!(bytes[24..32], xxhash_rust::xxh3::xxh3_64(&bytes[32..]).to_le_bytes());
    assert_eq!([32, 36, 40, 44, 72].map(|at| u32_at(bytes, at)), [1, 2, 2, 13 | 1 << 16, 1]);
    let bounds = [1.0, 2.0, -3.0, 4.0, 7.0, 8.0];
    assert_eq!([48, 52, 56, 60, 64, 68].map(|at| f32_at(bytes, at)), bounds);
    assert!(bytes[76..128].iter().all(|byte| *byte == 0));
    let node = &bytes[128..256];
    assert!(
        [0, 1].iter().all(|child| u32_at(node, 32 + 4 * child) == 0x8000_0000 + *child as u32),
        "leaves of one block"
    );
    assert!((2..8).all(|child| u32_at(node, 32 + 4 * child) == u32::MAX));
    let mesh = sample();
    for leaf in 0..2 {
        let source = u32_at(bytes, 576 + 16 * leaf) as usize;
        assert_eq!([580, 584, 588].map(|at| u32_at(bytes, at + 16 * leaf)), [u32::MAX; 3]);
        let (block, corners) = (&bytes[256 + 160 * leaf..416 + 160 * leaf], mesh.corners(source));
        for axis in 0..3 {
            for (corner, place) in corners.iter().enumerate() {
                let lanes = [0, 1, 2, 3].map(|lane| f32_at(block, 48 * corner + 16 * axis + 4 * lane));
                assert_eq!(lanes, [place[axis], 0.0, 0.0, 0.0]);
            }
            let (origin, step) = (f32_at(node, 4 * axis), f32_at(node, 16 + 4 * axis));
            let place = |at: usize| origin + f32::from(node[at + leaf]) * step;
            let (low, high) = (place(64 + 16 * axis), place(64 + 16 * axis + 8));
            let [lowest, highest] =
                [f32::min, f32::max].map(|pick| corners.map(|c| c[axis]).into_iter().reduce(pick).unwrap());
            assert!(low < lowest && lowest - low < 2.0 * step, "axis {axis}: {low}");
            assert!(high > highest && high - highest < 2.0 * step, "axis {axis}: {high}");
        }
        let layers = mesh.layers[source].0;
        assert_eq!(u16::from_le_bytes([block[144], block[145]]), layers);
        assert!(block[146..].iter().all(|byte| *byte == 0));
        assert_eq!(u16::from_le_bytes([node[112 + 2 * leaf], node[113 + 2 * leaf]]), layers);
    }
    let mark = &bytes[608..];
    assert_eq!(&mark[..8], b"spawn/a\0");
    assert_eq!([40, 44, 48, 52, 56, 60].map(|at| f32_at(mark, at)), [0.0, 0.0, 0.0, 1.0, 1.0, 1.0]);
}

#[test]
fn cells_are_the_last_part_of_a_map_and_name_it() {
    let bare = bake(&sample()).unwrap();
    let walls = FogWalls::new(&bare, Layers::ALL, Layers::ALL).unwrap();
    let cells = CellVisibility::bake(&bare, &walls, &CellOptions::default()).unwrap();
    let whole = bare.with_cells(&cells).unwrap();
    let (bytes, len, at) = (whole.as_bytes(), cells.as_bytes().len(), bare.as_bytes().len());
    assert_eq!((bytes.len(), u32_at(bytes, 16), u32_at(bytes, 76)), (at + len, (at + len) as u32, len as u32));
    assert!(bytes[80..128].iter().all(|byte| *byte == 0));
    assert_eq!(bytes[24..32], xxhash_rust::xxh3::xxh3_64(&bytes[32..at]).to_le_bytes());
    assert_eq!(bytes[128..at], bare.as_bytes()[128..]);
    assert_eq!((&bytes[at..at + 8], &bytes[at + 32..at + 40]), (&b"THRNGVIS"[..], &bytes[24..32]));
    assert_eq!(bytes[at + 40..], cells.as_bytes()[40..]);
    assert_ne!(whole.checksum(), bare.checksum(), "a match on the one is no match on the other");
    // Cells that replace others give the same bytes.
    assert_eq!(whole.with_cells(&whole.cells().unwrap()).unwrap().as_bytes(), bytes);
}

#[test]
fn what_was_baked_is_read_back() {
    let baked = bake(&sample()).unwrap();
    let map = Map::new(aligned(baked.as_bytes())).unwrap();
    assert_eq!((map.triangle_count(), map.depth(), map.layers()), (2, 1, Layers(13)));
    assert_eq!(map.bounds(), [vec3(1.0, 2.0, -3.0), vec3(4.0, 7.0, 8.0)]);
    assert_eq!(map.checksum(), baked.checksum());
    let marks: Vec<_> = map.marks().map(|mark| (mark.name, mark.bounds)).collect();
    assert_eq!(marks, [("spawn/a", [Vec3::ZERO, Vec3::ONE])]);
    let mesh = sample();
    for triangle in map.triangles() {
        let source = map.source(triangle).unwrap() as usize;
        assert_eq!(map.corners(triangle), Some(mesh.corners(source)));
        assert_eq!(map.layers_of(triangle), Some(mesh.layers[source]));
    }
    assert_eq!(map.triangles().count(), 2);
}

#[test]
fn the_same_mesh_gives_the_same_bytes() {
    let mesh = throng_sight::town::town(5, 5_000);
    assert_eq!(bake(&mesh).unwrap().as_bytes(), bake(&mesh).unwrap().as_bytes());
}

#[test]
fn each_fault_of_a_mesh_is_named() {
    let fault = |change: &dyn Fn(&mut Mesh)| {
        let mut mesh = sample();
        change(&mut mesh);
        bake(&mesh).unwrap_err()
    };
    assert_eq!(fault(&|mesh| mesh.triangles.clear()), MeshError::Empty);
    assert_eq!(fault(&|mesh| mesh.layers.truncate(1)), MeshError::LayersMissing { triangles: 2, layers: 1 });
    let corner = MeshError::NoSuchCorner { triangle: 1, corner: 9, positions: 6 };
    assert_eq!(fault(&|mesh| mesh.triangles[1][2] = 9), corner);
    assert_eq!(fault(&|mesh| mesh.positions[4].y = f32::NAN), MeshError::NotFinite { triangle: 1 });
    assert_eq!(fault(&|mesh| mesh.positions[0].x = f32::INFINITY), MeshError::NotFinite { triangle: 0 });
    assert_eq!(fault(&|mesh| mesh.positions[0].x = 1e7), MeshError::TooFar { triangle: 0 });
    let line = |mesh: &mut Mesh| mesh.positions[2] = mesh.positions[0].midpoint(mesh.positions[1]);
    assert_eq!(fault(&line), MeshError::Degenerate { triangle: 0, others: 0 });
    assert_eq!(fault(&|mesh| mesh.marks[0].name = "x".repeat(41)), MeshError::BadMark { mark: 0 });
    assert_eq!(fault(&|mesh| mesh.marks[0].bounds[1].z = f32::NAN), MeshError::BadMark { mark: 0 });

    let mut mesh = sample();
    line(&mut mesh);
    assert_eq!((mesh.drop_degenerate(), mesh.triangles.len(), mesh.layers.clone()), (1, 1, vec![Layers(8)]));
    assert!(bake(&mesh).is_ok());
}

#[test]
fn each_fault_of_a_file_is_named() {
    let map = bake(&sample()).unwrap();
    let changed = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = map.as_bytes().to_vec();
        change(&mut bytes);
        Map::new(aligned(&bytes)).unwrap_err()
    };
    assert_eq!(changed(&|bytes| bytes[0] = b'X'), MapError::NotAMap);
    assert_eq!(changed(&|bytes| bytes.clear()), MapError::NotAMap);
    assert_eq!(changed(&|bytes| bytes[8] = 1), MapError::OtherVersion { found: 1 });
    assert_eq!(changed(&|bytes| bytes.truncate(100)), MapError::WrongLength { expected: 128, found: 100 });
    assert_eq!(changed(&|bytes| bytes.truncate(300)), MapError::WrongLength { expected: 672, found: 300 });
    assert_eq!(changed(&|bytes| bytes.push(0)), MapError::WrongLength { expected: 672, found: 673 });
    assert!(matches!(changed(&|bytes| bytes[300] ^= 1), MapError::Damaged { .. }));
    let text = changed(&|bytes| bytes[8] = 1).to_string();
    assert!(text.contains("format 1") && text.contains("bake the map again"), "{text}");
}
