//! Files, command lines and queries with random content.

#[path = "../../../fuzz/bodies/channeld_queries.rs"]
mod channeld_queries;
#[path = "../../../fuzz/bodies/channeld_settings.rs"]
mod channeld_settings;
#[path = "../../../fuzz/bodies/proxy_header.rs"]
mod proxy_header;

use crate::choices;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use throng_channeld::proto::spatial_interest_query::{BoxAoi, ConeAoi, SphereAoi, SpotsAoi};
use throng_channeld::proto::{SpatialInfo, SpatialInterestQuery};

/// Pieces of which settings files are made: gets farther than plain bytes do.
const PIECES: [&str; 44] = [
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "\"",
    "\\",
    "null",
    "true",
    "0",
    "1",
    "-1",
    "20",
    "1e999",
    "0.5",
    "99999999999999999999",
    "\"1\"",
    "\"States\"",
    "\"Name\"",
    "\"INIT\"",
    "\"MsgTypeWhitelist\"",
    "\"1, 3-8\"",
    "\"8-3\"",
    "\"Transitions\"",
    "\"FromState\"",
    "\"ToState\"",
    "\"MsgType\"",
    "\"InitState\"",
    "\"TickIntervalMs\"",
    "\"DefaultFanOutIntervalMs\"",
    "\"ACLSettings\"",
    "\"Sub\"",
    "\"DataMsgFullName\"",
    "\"Config\"",
    "\"SpatialControllerType\"",
    "\"StaticGrid3D\"",
    "\"GridWidth\"",
    "\"GridCols\"",
    "\"ServerCols\"",
    "\"Damping\"",
    "\"max_radius\"",
    "\n",
    "\u{fc}",
];

/// Words of command lines.
const WORDS: [&str; 24] = [
    "-dev",
    "--dev=false",
    "-dev=maybe",
    "-sa",
    ":11288",
    "-ca=",
    "-ca=:x",
    "-cn",
    "ws",
    "-cn=wss",
    "-mcb=0x10",
    "-mcb",
    "99",
    "-scs=0",
    "-limit",
    "max_radius=5",
    "-limit=min_interval_ms=60000",
    "-limit=x=y",
    "--",
    "-",
    "",
    "-chs=a",
    "-scc=b",
    "-h",
];

fn any_text() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        vec(any::<u8>(), 0..200),
        vec(prop::sample::select(&PIECES[..]), 0..60).prop_map(|pieces| pieces.concat().into_bytes()),
        bent_file(),
    ]
}

/// One of the shipped files with some bytes replaced by a piece.
fn bent_file() -> impl Strategy<Value = Vec<u8>> {
    const FILES: [&str; 4] = [
        include_str!("../../throng-gateway-engine/config/channel_settings_tps.json"),
        include_str!("../../throng-gateway-engine/config/spatial_static_3d.json"),
        include_str!("../../throng-gateway-engine/config/client_authoratative_fsm.json"),
        r#"{"max_radius": 5, "min_interval_ms": 1}"#,
    ];
    (prop::sample::select(&FILES[..]), any::<prop::sample::Index>(), 0..6usize, prop::sample::select(&PIECES[..]))
        .prop_map(|(file, at, count, piece)| {
            let at = at.index(file.len());
            [&file.as_bytes()[..at], piece.as_bytes(), &file.as_bytes()[(at + count).min(file.len())..]].concat()
        })
}

/// Numbers on which arithmetic stumbles, among ordinary ones.
fn odd_number() -> impl Strategy<Value = f64> {
    prop_oneof![
        -120.0..120.0f64,
        prop::sample::select(&[0.0, -0.0, 1e18, -1e18, f64::MAX, f64::MIN, f64::MIN_POSITIVE, 5e-324, f64::NAN][..]),
        prop::sample::select(&[f64::INFINITY, f64::NEG_INFINITY, 1e-9, 12.5, 0.1, 100.0, -100.0, 1e15, 4.0][..]),
    ]
}

fn position() -> impl Strategy<Value = Option<SpatialInfo>> {
    let at = (odd_number(), odd_number(), odd_number()).prop_map(|(x, y, z)| SpatialInfo { x, y, z });
    prop_oneof![9 => at.prop_map(Some), 1 => Just(None)]
}

fn query() -> impl Strategy<Value = SpatialInterestQuery> {
    let spots = (vec(position(), 0..5), vec(any::<u32>(), 0..5))
        .prop_map(|(spots, dists)| SpotsAoi { spots: spots.into_iter().flatten().collect(), dists });
    let area = (position(), position()).prop_map(|(center, extent)| BoxAoi { center, extent });
    let sphere = (position(), odd_number()).prop_map(|(center, radius)| SphereAoi { center, radius });
    let cone = (position(), position(), odd_number(), odd_number())
        .prop_map(|(center, direction, angle, radius)| ConeAoi { center, direction, angle, radius });
    let of = (option::of(spots), option::of(area), option::of(sphere), option::of(cone));
    of.prop_map(|(spots_aoi, box_aoi, sphere_aoi, cone_aoi)| SpatialInterestQuery {
        spots_aoi,
        box_aoi,
        sphere_aoi,
        cone_aoi,
    })
}

proptest! {
    #![proptest_config(throng_seeds::cases(2_000))]

    #[test]
    fn headers_of_proxies_of_any_bytes_are_read_or_refused(input in vec(any::<u8>(), 0..400)) {
        proxy_header::run(&input);
    }

    #[test]
    fn no_file_harms_its_reader(text in any_text()) {
        channeld_settings::run_channel_settings(&text);
        channeld_settings::run_spatial(&text);
        channeld_settings::run_machine(&text);
        channeld_settings::run_limits(&text);
    }

    #[test]
    fn no_command_line_harms_its_reader(words in vec(prop::sample::select(&WORDS[..]), 0..8), any in ".{0,40}") {
        channeld_settings::run_command_line(&words.join("\n"));
        channeld_settings::run_command_line(&any);
    }

    #[test]
    fn no_query_costs_more_than_its_limit(query in query()) {
        channeld_queries::check_usual(&query);
    }

    #[test]
    fn no_bytes_from_the_network_harm_a_query(body in vec(any::<u8>(), 0..120)) {
        channeld_queries::run_body(&body);
    }

    #[test]
    fn no_grid_makes_a_query_cost_more_than_its_limit(choices in vec(any::<u8>(), 0..300)) {
        channeld_queries::run(&choices);
    }
}
