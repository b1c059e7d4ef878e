//! The visible cells in the file of a map.

use std::sync::LazyLock;

use glam::{Vec3, vec3};
use throng_sight::fog::{CellOptions, CellVisibility, FogWalls};
use throng_sight::{Layers, Map, Mesh, aligned, bake};

/// A map of a wall across the ground, and the place where its cells begin.
static GENUINE: LazyLock<(Vec<u8>, usize)> = LazyLock::new(|| {
    let mut mesh = Mesh::default();
    for [a, b] in [[vec3(-20.0, 0.0, -20.0), vec3(20.0, 0.0, 20.0)], [vec3(0.0, 0.0, -20.0), vec3(0.0, 6.0, 20.0)]] {
        let middle = if a.y == b.y { [a.with_x(b.x), a.with_z(b.z)] } else { [a.with_z(b.z), a.with_y(b.y)] };
        let first = mesh.positions.len() as u32;
        mesh.positions.extend([a, middle[0], b, middle[1]]);
        mesh.triangles.extend([[first, first + 1, first + 2], [first, first + 2, first + 3]]);
    }
    let map = bake(&mesh).expect("the mesh is sound");
    let walls = FogWalls::new(&map, Layers::ALL, Layers::ALL).expect("there is a wall");
    let cells = CellVisibility::bake(&map, &walls, &CellOptions::default()).expect("there are few cells");
    let whole = map.with_cells(&cells).expect("they were baked for it");
    (whole.as_bytes().to_vec(), map.as_bytes().len())
});

/// A genuine map in which the input's bytes replace some bytes of the cells, three bytes each: two for the place, one for
/// the value; or the input instead of its cells. The checksum is made to fit mostly, so that the checks behind it are
/// reached. Cells that are accepted answer questions.
pub(crate) fn run(input: &[u8]) {
    let Some((choice, rest)) = input.split_first() else { return };
    let (genuine, at) = &*GENUINE;
    let mut bytes = genuine.clone();
    if choice % 4 == 0 {
        bytes.truncate(*at);
        bytes.extend(rest);
        let (len, cells) = (bytes.len() as u64, rest.len() as u32);
        bytes[16..24].copy_from_slice(&len.to_le_bytes());
        bytes[76..80].copy_from_slice(&cells.to_le_bytes());
        let sum = xxhash_rust::xxh3::xxh3_64(&bytes[32..*at]);
        bytes[24..32].copy_from_slice(&sum.to_le_bytes());
    } else {
        for change in rest.chunks_exact(3) {
            let place = usize::from(u16::from_le_bytes([change[0], change[1]])) % (bytes.len() - at);
            bytes[at + place] = change[2];
        }
    }
    if choice % 4 != 3 && bytes.len() >= at + 32 {
        let sum = xxhash_rust::xxh3::xxh3_64(&bytes[at + 32..]);
        bytes[at + 24..at + 32].copy_from_slice(&sum.to_le_bytes());
    }
    let map = match Map::new(aligned(&bytes)) {
        Ok(map) => map,
        Err(error) => {
            assert!(!error.tag().is_empty() && !error.to_string().contains('\n'));
            return;
        }
    };
    let Some(cells) = map.cells() else { return };
    assert!(cells.hidden_share() <= 1.0);
    let places = [Vec3::ZERO, Vec3::splat(9.0), vec3(-15.0, 1.5, 5.0), vec3(15.0, 1.5, -5.0), Vec3::NAN];
    for from in places {
        for to in places {
            cells.may_see(from, to);
        }
    }
    if let Ok(walls) = FogWalls::new(&map, cells.sight(), Layers::ALL) {
        assert_eq!(walls.cell_count(), Some(cells.cell_count()));
    }
}
