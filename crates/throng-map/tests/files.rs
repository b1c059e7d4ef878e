//! Maps and meshes as files.

use std::fs;
use std::path::Path;

use glam::{Vec3, vec3};
use throng_map::{FileError, ReadError, ReadOptions, in_large_pages, open, read_mesh, save};
use throng_sight::fog::{CellError, CellOptions, CellVisibility, FogWalls};
use throng_sight::{Layers, MapError, Ray, bake, town};

#[test]
fn a_saved_map_opens_with_the_same_bytes_and_replaces_an_older_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("town.map");
    let (first, second) = (bake(&town::town(1, 5_000)).unwrap(), bake(&town::town(2, 5_000)).unwrap());
    save(&first, &path).unwrap();
    let opened = open(&path).unwrap();
    assert_eq!(opened.as_bytes(), first.as_bytes());
    save(&second, &path).unwrap();
    assert_eq!(open(&path).unwrap().checksum(), second.checksum());
    assert_eq!(opened.as_bytes(), first.as_bytes(), "an open map is not changed by the next one");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left behind");
}

#[test]
fn a_map_in_large_pages_is_the_same_map() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("town.map");
    save(&bake(&town::town(1, 20_000)).unwrap(), &path).unwrap();
    let opened = open(&path).unwrap();
    let large = in_large_pages(&opened).unwrap();
    assert_eq!((large.as_bytes(), large.processor()), (opened.as_bytes(), opened.processor()));
    assert_ne!(large.as_bytes().as_ptr(), opened.as_bytes().as_ptr(), "it is a copy");
    drop(opened);
    let down = Ray::new(vec3(0.0, 50.0, 0.0), vec3(0.0, -1.0, 0.0), 100.0).unwrap();
    assert!(large.is_blocked(&down, Layers::ALL));
}

#[test]
fn a_file_that_is_no_map_is_named_with_its_fault() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("broken.map");
    let fault = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        open(&path).unwrap_err()
    };
    let map = bake(&town::town(1, 5_000)).unwrap();
    let whole = map.as_bytes();
    assert!(matches!(fault(b""), FileError::Io { .. } | FileError::Map { cause: MapError::NotAMap, .. }));
    assert!(matches!(fault(b"hello"), FileError::Map { cause: MapError::NotAMap, .. }));
    let short = fault(&whole[..whole.len() / 2]);
    assert!(matches!(short, FileError::Map { cause: MapError::WrongLength { .. }, .. }));
    assert!(short.to_string().contains("broken.map"), "{short}");
    let mut damaged = whole.to_vec();
    damaged[5_000] ^= 4;
    assert!(matches!(fault(&damaged), FileError::Map { cause: MapError::Damaged { .. }, .. }));
    let absent = open(&folder.path().join("absent.map")).unwrap_err();
    assert!(matches!(absent, FileError::Io { .. }) && absent.to_string().contains("absent.map"), "{absent}");
}

#[test]
fn visible_cells_are_in_the_file_and_are_used_from_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("town.map");
    let bare = bake(&town::town(1, 5_000)).unwrap();
    let walls = FogWalls::new(&bare, town::SIGHT, town::BODIES).unwrap();
    assert!(walls.cell_count().is_none());
    let cells = CellVisibility::bake(&bare, &walls, &CellOptions::default()).unwrap();
    let whole = bare.with_cells(&cells).unwrap();
    save(&whole, &path).unwrap();
    let opened = open(&path).unwrap();
    let walls = FogWalls::new(&opened, town::SIGHT, town::BODIES).unwrap();
    assert_eq!(walls.cell_count(), Some(cells.cell_count()));
    assert_eq!(opened.cells().unwrap().hidden_share(), cells.hidden_share());
    let other = FogWalls::new(&opened, town::BULLETS, town::BODIES).unwrap();
    assert!(other.cell_count().is_none(), "they are for other layers");

    let fault = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        open(&path).unwrap_err()
    };
    let mut damaged = whole.as_bytes().to_vec();
    *damaged.last_mut().unwrap() ^= 1;
    let error = fault(&damaged);
    assert!(error.tag() == "cells_damaged" && error.to_string().contains("town.map"), "{error}");
    let end = bare.as_bytes().len();
    assert_eq!(fault(&whole.as_bytes()[..end]).tag(), "map_wrong_length", "cut before the cells");
    let other = bake(&town::town(2, 5_000)).unwrap();
    assert_eq!(other.with_cells(&cells).unwrap_err(), CellError::OtherMap);
}

fn written(folder: &Path, name: &str, text: &str) -> std::path::PathBuf {
    let path = folder.join(name);
    fs::write(&path, text).unwrap();
    path
}

const OBJ: &str =
    "o floor\nv 0 0 0\nv 4 0 0\nv 4 4 0\nv 0 4 0\nf 1 2 3 4\no Glass pane\nv 0 0 3\nv 1 0 3\nv 0 1 3\nf 5 6 7\n";

#[test]
fn an_obj_file_is_read_with_layers_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = written(folder.path(), "map.obj", OBJ);
    let options =
        ReadOptions { layers: vec![("glass".to_owned(), Layers(1))], otherwise: Some(Layers(7)), z_is_up: true };
    let mesh = read_mesh(&path, &options).unwrap();
    assert_eq!(mesh.layers, [Layers(7), Layers(7), Layers(1)]);
    let map = bake(&mesh).unwrap();
    let down = Ray::new(vec3(0.2, 9.0, -0.2), -Vec3::Y, 20.0).unwrap();
    let distance_m = |layers| map.closest(&down, layers).unwrap().distance_m;
    // Single precision: a millionth of the coordinates.
    assert!((distance_m(Layers(1)) - 6.0).abs() < 1e-5 && (distance_m(Layers(2)) - 9.0).abs() < 1e-5);
}

/// A triangle as glTF, moved by 10 along x, and an empty node. The positions are 36 bytes, the corners 6.
fn gltf(count: usize, buffer: &str, children: &str) -> String {
    format!(
        r#"{{"asset":{{"version":"2.0"}},"scene":0,"scenes":[{{"nodes":[0,1]}}],
        "nodes":[{{"mesh":0,"translation":[10,0,0],"name":"wall"{children}}},{{"name":"spawn/a","translation":[1,2,3]}}],
        "meshes":[{{"primitives":[{{"attributes":{{"POSITION":0}},"indices":1}}]}}],
        "accessors":[
            {{"bufferView":0,"componentType":5126,"count":{count},"type":"VEC3","min":[0,0,0],"max":[1,1,0]}},
            {{"bufferView":1,"componentType":5123,"count":3,"type":"SCALAR"}}],
        "bufferViews":[{{"buffer":0,"byteOffset":0,"byteLength":36}},{{"buffer":0,"byteOffset":36,"byteLength":6}}],
        "buffers":[{{"byteLength":42,"uri":"{buffer}"}}]}}"#
    )
}

fn gltf_bytes() -> Vec<u8> {
    let places: [f32; 9] = [0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0];
    let corners: [u16; 3] = [0, 1, 2];
    let places = places.iter().flat_map(|place| place.to_le_bytes());
    places.chain(corners.iter().flat_map(|corner| corner.to_le_bytes())).collect()
}

#[test]
fn a_gltf_file_is_read_with_its_places_and_marks() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a b.bin"), gltf_bytes()).unwrap();
    let path = written(folder.path(), "map.gltf", &gltf(3, "a%20b.bin", ""));
    let mesh = read_mesh(&path, &ReadOptions::default()).unwrap();
    assert_eq!(mesh.corners(0), [vec3(10.0, 0.0, 0.0), vec3(11.0, 0.0, 0.0), vec3(10.0, 1.0, 0.0)]);
    assert_eq!(mesh.marks.len(), 1);
    // Two metres wide, as its tool shows it: its scale would make it larger.
    let around = [vec3(0.0, 1.0, 2.0), vec3(2.0, 3.0, 4.0)];
    assert_eq!((mesh.marks[0].name.as_str(), mesh.marks[0].bounds), ("spawn/a", around));
    let hit = bake(&mesh).unwrap().closest(&Ray::new(vec3(10.2, 0.2, 5.0), -Vec3::Z, 9.0).unwrap(), Layers::ALL);
    assert_eq!(hit.unwrap().distance_m, 5.0);
}

#[test]
fn buffers_of_a_gltf_file_are_read_as_far_as_it_says_and_only_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("inner")).unwrap();
    fs::write(folder.path().join("a.bin"), gltf_bytes()).unwrap();
    let outside = folder.path().join("a.bin");
    for uri in ["../a.bin", "./../a.bin", outside.to_str().unwrap(), "/dev/zero"] {
        let path = written(&folder.path().join("inner"), "map.gltf", &gltf(3, uri, ""));
        let error = read_mesh(&path, &ReadOptions::default()).unwrap_err();
        assert!(error.to_string().contains("outside of the folder"), "{uri}: {error}");
    }
    // Bytes behind the length of a buffer are no part of it.
    fs::write(folder.path().join("long.bin"), [gltf_bytes(), vec![0; 36]].concat()).unwrap();
    let path = written(folder.path(), "map.gltf", &gltf(6, "long.bin", ""));
    assert!(matches!(read_mesh(&path, &ReadOptions::default()), Err(ReadError::Malformed { .. })));
}

#[test]
fn nodes_that_share_a_mesh_are_counted_before_they_are_read() {
    // A hundred nodes with a mesh of a million triangles, all with the same corner.
    let nodes: Vec<&str> = [r#"{"mesh":0}"#; 100].to_vec();
    let places: Vec<String> = (0..100).map(|node| node.to_string()).collect();
    let text = format!(
        r#"{{"asset":{{"version":"2.0"}},"scene":0,"scenes":[{{"nodes":[{}]}}],"nodes":[{}],
        "meshes":[{{"primitives":[{{"attributes":{{"POSITION":0}},"indices":1}}]}}],
        "accessors":[
            {{"bufferView":0,"componentType":5126,"count":1,"type":"VEC3","min":[0,0,0],"max":[0,0,0]}},
            {{"bufferView":0,"componentType":5121,"count":3000000,"type":"SCALAR"}}],
        "bufferViews":[{{"buffer":0,"byteLength":3000000}}],"buffers":[{{"byteLength":3000000,"uri":"a.bin"}}]}}"#,
        places.join(","),
        nodes.join(",")
    );
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.bin"), vec![0; 3_000_000]).unwrap();
    let error = read_mesh(&written(folder.path(), "map.gltf", &text), &ReadOptions::default()).unwrap_err();
    assert!(error.to_string().contains("its nodes have 100000000 triangles"), "{error}");
}

#[test]
fn faulty_meshes_are_named_with_their_fault_and_never_panic() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.bin"), gltf_bytes()).unwrap();
    fs::write(folder.path().join("short.bin"), &gltf_bytes()[..20]).unwrap();
    let fault = |name: &str, text: &str| {
        let error = read_mesh(&written(folder.path(), name, text), &ReadOptions::default()).unwrap_err();
        assert!(!error.to_string().contains('\n'), "{error}");
        error
    };
    assert!(matches!(fault("map.txt", ""), ReadError::UnknownFormat { .. }));
    assert!(matches!(fault("map.obj", "v 1 2 x\n"), ReadError::Malformed { .. }));
    assert!(matches!(fault("map.obj", "v 1 2 3\nf 1 2 3\n"), ReadError::Malformed { .. }));
    assert!(matches!(fault("map.gltf", "{}"), ReadError::Malformed { .. }));
    assert!(matches!(fault("map.glb", "glTF"), ReadError::Malformed { .. }));
    assert!(matches!(fault("map.gltf", &gltf(3, "absent.bin", "")), ReadError::Io { .. }));
    assert!(matches!(fault("map.gltf", &gltf(3, "short.bin", "")), ReadError::Malformed { .. }));
    assert!(matches!(fault("map.gltf", &gltf(4_000_000_000, "a.bin", "")), ReadError::Malformed { .. }));
    assert!(matches!(
        fault("map.gltf", &gltf(3, "data:application/octet-stream;base64,!", "")),
        ReadError::Malformed { .. }
    ));
    assert!(matches!(fault("map.gltf", &gltf(3, "a.bin", r#","children":[0]"#)), ReadError::Malformed { .. }));
    let absent = read_mesh(Path::new("absent.obj"), &ReadOptions::default()).unwrap_err();
    assert!(matches!(absent, ReadError::Io { .. }));
}
