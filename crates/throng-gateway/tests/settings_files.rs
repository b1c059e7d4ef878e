//! channeld's settings files, read unchanged; ours beside them.

use std::io;

use throng_gateway::settings::{Settings, load_with};
use throng_gateway_engine::channel_types::{AccessLevel, ChannelTypes};
use throng_gateway_engine::config_file::{FileError, Note};
use throng_gateway_engine::limits::Limits;
use throng_gateway_engine::spatial::{Position, SpatialConfig};

fn channels(text: &str) -> (Result<ChannelTypes, FileError>, Vec<String>) {
    let mut notes = Vec::new();
    let types = ChannelTypes::parse("chs.json", text.as_bytes(), &Limits::default(), &mut notes);
    (types, notes.iter().map(Note::to_string).collect())
}

fn spatial(text: &str) -> (Result<SpatialConfig, FileError>, Vec<String>) {
    let mut notes = Vec::new();
    let config = SpatialConfig::parse("scc.json", text.as_bytes(), 0x1_0000..0x8_0000, &mut notes);
    (config, notes.iter().map(Note::to_string).collect())
}

/// Files by name; all others do not exist.
fn files<'f>(known: &'f [(&'f str, &'f str)]) -> impl Fn(&str) -> io::Result<Vec<u8>> + 'f {
    move |name| match known.iter().find(|(file, _)| *file == name) {
        Some((_, text)) => Ok(text.as_bytes().to_vec()),
        None => Err(io::Error::new(io::ErrorKind::NotFound, "no such file")),
    }
}

#[test]
fn every_key_is_read() {
    let (types, notes) = channels(
        r#"{ "1": {}, "5": { "TickIntervalMs": 33, "DefaultFanOutIntervalMs": 50, "DefaultFanOutDelayMs": -7,
             "RemoveChannelAfterOwnerRemoved": true, "SendOwnerLostAndRecovered": true,
             "ACLSettings": { "Sub": 3, "Unsub": 2, "Remove": 1 }, "DataMsgFullName": "a.B" } }"#,
    );
    let types = types.unwrap();
    assert!(notes.is_empty(), "{notes:?}");
    let entity = types.of(5);
    assert_eq!((entity.tick_interval_ms, entity.default_fan_out_interval_ms), (33, 50));
    assert_eq!(entity.default_fan_out_delay_ms, -7);
    assert!(entity.remove_channel_after_owner_removed && entity.send_owner_lost_and_recovered);
    assert_eq!(entity.acl.sub, AccessLevel::Anybody);
    assert_eq!(entity.acl.unsub, AccessLevel::OwnerOrGlobalOwner);
    assert_eq!(entity.acl.remove, AccessLevel::Owner);
    assert_eq!(entity.data_msg_full_name.as_deref(), Some("a.B"));
    assert_eq!(types.of(1).acl.sub, AccessLevel::Nobody);
}

#[test]
fn w_9_1b_a_type_without_settings_has_those_of_global_and_its_access_rights() {
    let (types, _) = channels(r#"{ "1": { "TickIntervalMs": 77, "ACLSettings": { "Sub": 3 } } }"#);
    let types = types.unwrap();
    for channel_type in [0, 2, 5, 100] {
        assert_eq!(types.of(channel_type), types.of(1));
        assert_eq!(types.of(channel_type).acl.sub, AccessLevel::Anybody);
    }
}

#[test]
fn what_is_out_of_range_is_moved_into_it_and_noted() {
    let (types, notes) = channels(
        "{ \"1\": {\n \"TickIntervalMs\": 0,\n \"DefaultFanOutIntervalMs\": 4294967295,\n \"DefaultFanOutDelayMs\": -99999999 } }",
    );
    let types = types.unwrap();
    let limits = Limits::default();
    assert_eq!(types.of(1).tick_interval_ms, 1);
    assert_eq!(types.of(1).default_fan_out_interval_ms, limits.max_interval_ms);
    assert_eq!(types.of(1).default_fan_out_delay_ms, limits.min_delay_ms);
    assert_eq!(notes.len(), 3);
    assert_eq!(notes[0], "chs.json, line 2: 1.TickIntervalMs: 0 is out of range; 1 is used");
}

#[test]
fn what_is_not_known_is_noted_with_its_line() {
    let (types, notes) =
        channels("{ \"1\": {\n  \"TickIntervallMs\": 5 },\n \"2\": { \"ACLSettings\": {\n \"Kick\": 3 } } }");
    types.unwrap();
    assert_eq!(notes.len(), 2);
    assert!(notes[0].starts_with("chs.json, line 2: 1.TickIntervallMs: "), "{}", notes[0]);
    assert!(notes[1].starts_with("chs.json, line 4: 2.ACLSettings.Kick: "), "{}", notes[1]);
}

#[test]
fn a_complaint_names_file_line_and_key() {
    for (text, start) in [
        ("{ \"1\": {\n \"TickIntervalMs\": \"20\" } }", "chs.json, line 2: 1.TickIntervalMs: a whole number"),
        (
            "{ \"1\": { \"ACLSettings\": {\n\n \"Sub\": 4 } } }",
            "chs.json, line 3: 1.ACLSettings.Sub: a whole number from 0 to 3",
        ),
        ("{\n \"GLOBAL\": {} }", "chs.json, line 2: GLOBAL: the key is not the number"),
        ("{ \"1\": 5 }", "chs.json, line 1: 1: an object"),
        ("[]", "chs.json, line 1: the file: an object"),
        ("{\n\n \"1\": }", "chs.json, line 3, column"),
        ("", "chs.json, line 1, column"),
    ] {
        let error = channels(text).0.unwrap_err().to_string();
        assert!(error.starts_with(start), "{text}: {error}");
    }
}

#[test]
fn the_presets_are_channeld_s() {
    for (types, tick, interval) in [(ChannelTypes::hifi(), 20, 20), (ChannelTypes::lofi(), 100, 200)] {
        for channel_type in 1..=5 {
            assert_eq!(types.of(channel_type).tick_interval_ms, tick);
            assert_eq!(types.of(channel_type).default_fan_out_interval_ms, interval);
        }
    }
    for types in [ChannelTypes::ue(), ChannelTypes::tps()] {
        assert_eq!((types.of(4).tick_interval_ms, types.of(4).default_fan_out_interval_ms), (20, 20));
        assert_eq!((types.of(5).tick_interval_ms, types.of(5).default_fan_out_interval_ms), (33, 50));
    }
    assert_eq!(ChannelTypes::tps().of(1).data_msg_full_name.as_deref(), Some("tpspb.TestRepChannelData"));
    assert_eq!(ChannelTypes::hifi().of(1).acl.remove, AccessLevel::Nobody);
    assert_eq!(ChannelTypes::hifi().of(2).acl.sub, AccessLevel::OwnerOrGlobalOwner);
}

#[test]
fn the_published_benchmark_s_world_is_read() {
    let (config, notes) = spatial(include_str!("../../throng-gateway-engine/config/spatial_static_benchmark.json"));
    let grid = config.unwrap().grid;
    assert!(notes.is_empty(), "{notes:?}");
    assert_eq!((grid.cells(), grid.servers(), grid.has_layers()), (225, 9, false));
    assert_eq!(grid.damping().interval_ms(1), Some(50));
    assert_eq!(grid.damping().interval_ms(3), None);
}

#[test]
fn the_names_in_channeld_s_own_files_and_any_other_mean_a_flat_grid() {
    for (name, notes_expected) in [("Static2DSpatialController", 0), ("StaticGrid2DSpatialController", 0), ("Other", 1)]
    {
        let text = format!(
            r#"{{ "SpatialControllerType": "{name}", "Config": {{ "GridWidth": 1, "GridHeight": 2, "GridCols": 3,
                 "GridRows": 4, "ServerCols": 1, "ServerRows": 1 }} }}"#
        );
        let (config, notes) = spatial(&text);
        assert_eq!(config.unwrap().grid.cells(), 12);
        assert_eq!(notes.len(), notes_expected, "{name}: {notes:?}");
    }
}

#[test]
fn a_world_with_layers_is_read() {
    let (config, notes) = spatial(include_str!("../../throng-gateway-engine/config/spatial_static_3d.json"));
    let grid = config.unwrap().grid;
    assert!(notes.is_empty(), "{notes:?}");
    assert!(grid.has_layers());
    assert_eq!(grid.cells(), 15 * 15 * 5);
    let above = grid.channel_at(Position { x: -150.0, y: -30.0, z: -150.0 });
    assert_eq!(above, Some(0x1_0000 + 15 * 15));
}

#[test]
fn a_world_that_cannot_be_is_refused_with_the_reason() {
    let world = |more: &str| {
        format!(
            "{{ \"Config\": {{ \"GridWidth\": 10, \"GridHeight\": 10, \"GridCols\": 4,\n \"GridRows\": 4, \"ServerCols\": 2,\n \"ServerRows\": 2{more} }} }}"
        )
    };
    for (text, part) in [
        ("{}".to_string(), "there is no object \"Config\""),
        ("{ \"Config\": { \"GridWidth\": 10 } }".into(), "there is no \"GridCols\""),
        (world("").replace("\"GridWidth\": 10", "\"GridWidth\": 0"), "line 1: Config.GridWidth: a number above 0"),
        (
            world("").replace("\"GridCols\": 4", "\"GridCols\": 4000000"),
            "line 1: Config.GridCols: a whole number from 1",
        ),
        (world("").replace("\"GridCols\": 4", "\"GridCols\": 200000"), "cells, but there are ids for 458752 only"),
        (
            world("").replace("\"ServerCols\": 2", "\"ServerCols\": 5"),
            "line 2: Config.ServerCols: 5 servers cannot share 4",
        ),
        (world(", \"WorldOffsetX\": 1e300"), "the world reaches to"),
        (world(", \"ServerInterestBorderSize\": -1"), "line 3: Config.ServerInterestBorderSize: a whole number"),
        (world(", \"Damping\": [{\"Distance\": 0}]"), "Config.Damping[0]: there is no \"FanOutIntervalMs\""),
    ] {
        let error = spatial(&text).0.unwrap_err().to_string();
        assert!(error.contains(part), "{text}: {error}");
    }
}

#[test]
fn cells_that_do_not_divide_so_badly_that_servers_idle_are_noted() {
    let (config, notes) = spatial(
        r#"{ "Config": { "GridWidth": 1, "GridHeight": 1, "GridCols": 5, "GridRows": 1, "ServerCols": 4, "ServerRows": 1 } }"#,
    );
    let grid = config.unwrap().grid;
    assert_eq!((0..4).map(|server| grid.cells_of(server).count()).collect::<Vec<_>>(), [2, 2, 1, 0]);
    assert!(notes.iter().any(|note| note.contains("1 servers will own none")), "{notes:?}");
}

#[test]
fn files_are_read_again_and_a_bad_one_leaves_what_was() {
    let world = include_str!("../../throng-gateway-engine/config/spatial_static_benchmark.json");
    let words = ["-chs=chs.json", "-scc", "world.json", "-limits=limits.json", "-limit", "max_radius=7", "-dev"];
    let first = [
        ("chs.json", r#"{"1": {"DefaultFanOutIntervalMs": 30}}"#),
        ("world.json", world),
        ("limits.json", r#"{"max_radius": 500, "max_channels": 9}"#),
    ];
    let settings: Settings = load_with(words, &files(&first)).unwrap();
    assert_eq!(settings.engine.channel_types.of(1).default_fan_out_interval_ms, 30);
    assert_eq!(
        (settings.engine.limits.max_radius, settings.engine.limits.max_channels),
        (7, 9),
        "the flag outdoes the file"
    );

    let other_world = world.replace("2000", "1000");
    let second = [
        ("chs.json", r#"{"1": {"DefaultFanOutIntervalMs": 1}}"#),
        ("world.json", other_world.as_str()),
        ("limits.json", r#"{"min_interval_ms": 15}"#),
    ];
    let again = settings.reload_with(&files(&second)).unwrap();
    assert_eq!(again.engine.channel_types.of(1).default_fan_out_interval_ms, 15, "moved to the new limit");
    assert_eq!((again.engine.limits.max_radius, again.engine.limits.max_channels), (7, Limits::default().max_channels));
    assert_eq!(again.engine.spatial, settings.engine.spatial);
    assert!(again.notes.iter().any(|note| note.to_string().contains("world.json has changed")));

    let broken = [("chs.json", "{"), ("world.json", world), ("limits.json", "{}")];
    assert_eq!(settings.reload_with(&files(&broken)).unwrap_err().tag(), "settings_syntax");
}

#[test]
fn limits_out_of_range_and_limits_that_contradict_are_refused() {
    let error = load_with(["-limits=l.json"], &files(&[("l.json", "{\n\"max_decompressed_bytes\": 5}")])).unwrap_err();
    assert!(error.to_string().starts_with("l.json, line 2: max_decompressed_bytes: a whole number from"), "{error}");
    let words = ["-limit=min_interval_ms=100", "-limit=max_interval_ms=50"];
    assert_eq!(load_with(words, &files(&[])).unwrap_err().tag(), "settings_contradiction");
    let odd = load_with(["-limits=l.json"], &files(&[("l.json", r#"{"max_fun": 5}"#)])).unwrap();
    assert!(odd.notes.iter().any(|note| note.to_string().contains("max_fun: there is no such limit")));
}

#[test]
fn every_limit_s_default_is_in_its_range_and_explained() {
    for (info, (name, value)) in Limits::ALL.iter().zip(Limits::default().values()) {
        assert_eq!((info.name, info.default), (name, value));
        assert!((info.min..=info.max).contains(&info.default), "{name}");
        assert!(info.text.len() > 20, "{name}");
    }
}
