//! Where entities of a game's own types say where they are: what the settings of their channel type name.

use crate::stage::world::{Cut, ENTITY, FIRST};
use crate::stage::{Stage, grid_file, settings_with};
use throng_channeld::proto::Any;
use throng_gateway::settings::load_with;

const TWO: Cut = Cut { cells: [4, 1, 0], servers: [2, 1, 0], border: 0 };

/// `{2: {1: {1: x, 2: y, 3: z}}}` as floats, of an unknown type.
fn body(vector: [f32; 3]) -> Any {
    let mut components = Vec::new();
    for (number, component) in (1u8..).zip(vector) {
        components.push(number << 3 | 5);
        components.extend(component.to_le_bytes());
    }
    let position = [&[0x0A, components.len() as u8][..], &components].concat();
    let value = [&[0x12, position.len() as u8][..], &position].concat();
    Any { type_url: "type.googleapis.com/game.Robot".into(), value: value.into() }
}

fn stage_with(position: &str) -> Stage {
    let types = format!(
        r#"{{"1": {{"TickIntervalMs": 10}}, "5": {{"TickIntervalMs": 10{position},
            "ACLSettings": {{"Sub": 3, "Unsub": 3, "Remove": 3}}}}}}"#
    );
    let grid = grid_file((4, 1), (2, 1));
    let words = ["-dev", "-chs=types.json", "-scc=grid.json"];
    Stage::new(settings_with(&words, &[("types.json", &types), ("grid.json", &grid)]))
}

#[test]
fn an_entity_of_a_games_own_type_changes_cells_if_its_channel_type_names_the_path() {
    for (setting, moved) in [
        (r#", "PositionPath": "2.1""#, [15.0, 1.0, 5.0]),
        (r#", "PositionPath": "2.1", "PositionUp": "Z""#, [15.0, 5.0, 1.0]),
    ] {
        let mut stage = stage_with(setting);
        let servers = stage.spatial_servers(TWO);
        stage.create_entity(&servers[0], FIRST, ENTITY, Some(body([5.0, 5.0, 5.0])));
        stage.update(&servers[0], ENTITY, body(moved));
        assert_eq!(stage.place_of(ENTITY).expect("it exists").1, Some(FIRST + 1), "{setting}");
        assert_eq!(stage.refused("position_unknown"), 0);
    }
}

#[test]
fn an_entity_whose_type_is_unknown_stays_where_it_is_and_it_is_said_once() {
    let mut stage = stage_with("");
    let servers = stage.spatial_servers(TWO);
    // 11.3 of its first message, which is what Unreal's actors have, and means something else here.
    let velocity = [0x0Du8].into_iter().chain(15f32.to_le_bytes()).collect::<Vec<u8>>();
    let inner = [&[0x1A, velocity.len() as u8][..], &velocity].concat();
    let movement = [&[0x5A, inner.len() as u8][..], &inner].concat();
    let value = [&[0x0A, movement.len() as u8][..], &movement].concat();
    let data = Any { type_url: "type.googleapis.com/game.Rocket".into(), value: value.into() };
    stage.create_entity(&servers[0], FIRST, ENTITY, Some(data.clone()));
    for _ in 0..5 {
        stage.update(&servers[0], ENTITY, data.clone());
    }
    assert_eq!(stage.place_of(ENTITY).expect("it exists").1, Some(FIRST), "nobody has guessed");
    assert_eq!(stage.refused("position_unknown"), 1);
}

#[test]
fn types_beyond_those_that_are_remembered_are_counted() {
    const REMEMBERED: u32 = 1_024;
    let mut stage = stage_with(r#", "PositionPath": "2.1""#);
    let servers = stage.spatial_servers(TWO);
    let of_type =
        |number: u32, at: [f32; 3]| Any { type_url: format!("type.googleapis.com/game.T{number}"), ..body(at) };
    for number in 0..=REMEMBERED {
        stage.create_entity(&servers[0], FIRST, ENTITY + number, Some(of_type(number, [5.0, 5.0, 5.0])));
    }
    assert_eq!(stage.refused("position_types"), 0);
    for (number, cell, refused) in [(REMEMBERED - 1, FIRST + 1, 0), (REMEMBERED, FIRST, 1)] {
        stage.update(&servers[0], ENTITY + number, of_type(number, [15.0, 5.0, 5.0]));
        assert_eq!(stage.place_of(ENTITY + number).expect("it exists").1, Some(cell), "type {number}");
        assert_eq!(stage.refused("position_types"), refused);
    }
}

#[test]
fn an_axis_that_does_not_exist_is_an_error() {
    let types = r#"{"5": {"PositionPath": "2.1", "PositionUp": "X"}}"#;
    let read = |name: &str| match name {
        "types.json" => Ok(types.as_bytes().to_vec()),
        _ => Err(std::io::ErrorKind::NotFound.into()),
    };
    let error = load_with(["-dev", "-chs=types.json"], &read).expect_err("it is refused");
    assert!(error.to_string().contains("the axis that points up"), "{error}");
}
