//! `throng bake` as a user meets it: a map, or one line that says what is wrong.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn bake(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_throng"));
    command.arg("bake").args(arguments).current_dir(folder).output().expect("the program starts")
}

/// The line about a mistake.
fn complaint(folder: &Path, arguments: &[&str], code: i32) -> String {
    let output = bake(folder, arguments);
    let text = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {text}");
    assert!(!text.contains("panicked"), "{text}");
    text
}

#[test]
fn a_town_becomes_a_map() {
    let folder = tempfile::tempdir().unwrap();
    let output = bake(folder.path(), &["--town", "7", "--triangles", "5000", "out.map"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let map = throng_map::open(&folder.path().join("out.map")).unwrap();
    assert!(map.triangle_count() >= 5_000);
    let cells = map.cells().expect("the file holds cells").cell_count();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(cells > 20 && said.contains(&format!("{cells} cells of 6 m")), "{said}");
    assert!(said.contains("out.map") && said.contains(&format!("{:016x}", map.checksum())), "{said}");
}

#[test]
fn a_mesh_becomes_a_map_with_layers() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.obj"), "o glass\nv 0 0 0\nv 1 0 0\nv 0 1 0\nf 1 2 3\n").unwrap();
    let output = bake(folder.path(), &["a.obj", "a.map", "--layer", "Glass=1", "--other-layers", "7", "--up", "z"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let map = throng_map::open(&folder.path().join("a.map")).unwrap();
    assert_eq!((map.triangle_count(), map.layers()), (1, throng_sight::Layers(1)));
    assert!(map.cells().is_none() && String::from_utf8_lossy(&output.stdout).contains("no cells, because"));
}

#[test]
fn each_mistake_is_one_line_that_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("line.obj"), "v 0 0 0\nv 1 0 0\nv 2 0 0\nf 1 2 3\n").unwrap();
    fs::write(folder.join("nan.obj"), "v nan 0 0\nv 1 0 0\nv 0 1 0\nf 1 2 3\n").unwrap();
    let absent = complaint(folder, &["absent.obj", "out.map"], 2);
    assert!(absent.contains("absent.obj") && !absent.contains('\n'), "{absent}");
    let onto_itself = complaint(folder, &["line.obj", "./line.obj"], 2);
    assert!(onto_itself.contains("give the map another name") && !onto_itself.contains('\n'), "{onto_itself}");
    for width in ["0", "-1", "nan", "0.5", "1e9"] {
        let width = complaint(folder, &["--town", "7", &format!("--cell-m={width}"), "out.map"], 2);
        assert!(width.contains("from 1 to 1000"), "{width}");
    }
    let line = complaint(folder, &["line.obj", "out.map"], 2);
    assert!(line.contains("triangle 0 has no area") && !line.contains('\n'), "{line}");
    let nan = complaint(folder, &["nan.obj", "out.map"], 2);
    assert!(nan.contains("not a number") && !nan.contains('\n'), "{nan}");
    let nothing_left = complaint(folder, &["line.obj", "out.map", "--drop-degenerate"], 2);
    assert!(nothing_left.contains("no triangles"), "{nothing_left}");
    let format = complaint(folder, &["map.fbx", "out.map"], 2);
    assert!(format.contains(".obj, .gltf or .glb") && !format.contains('\n'), "{format}");
    let single = complaint(folder, &["line.obj"], 2);
    assert!(single.contains("--town SEED") && !single.contains('\n'), "{single}");
    let layer = complaint(folder, &["line.obj", "out.map", "--layer", "glass"], 2);
    assert!(layer.contains("glass=1"), "{layer}");
    let unwritable = complaint(folder, &["--town", "1", "--triangles", "5000", "no/such/folder/out.map"], 1);
    assert!(unwritable.contains("no/such/folder") && !unwritable.contains('\n'), "{unwritable}");
}
