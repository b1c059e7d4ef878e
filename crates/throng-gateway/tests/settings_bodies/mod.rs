//! Any bytes as settings: nothing panics, and what is accepted is within the limits. Also run by fuzz targets.
#![allow(dead_code)] // each target and test takes a part of it

use std::io;
use std::sync::Arc;

use throng_channeld::proto::SpatialInterestQuery;
use throng_gateway::fsm::{Fsm, Machine};
use throng_gateway::settings::{ChannelTypes, Limits, load_with};
use throng_gateway::spatial::{Damping, Grid, InterestLimits, InterestScratch, SpatialConfig};

pub(crate) fn run_channel_settings(text: &[u8]) {
    let limits = Limits::default();
    let Ok(types) = ChannelTypes::parse("fuzz.json", text, &limits, &mut Vec::new()) else { return };
    for channel_type in [0, 1, 5, 104, i32::MAX] {
        let settings = types.of(channel_type);
        let interval_ms = settings.default_fan_out_interval_ms;
        assert!((limits.min_interval_ms..=limits.max_interval_ms).contains(&interval_ms));
        assert!((limits.min_delay_ms..=limits.max_delay_ms).contains(&settings.default_fan_out_delay_ms));
        assert!(settings.tick_interval_ms > 0);
    }
}

pub(crate) fn run_spatial(text: &[u8]) {
    let Ok(config) = SpatialConfig::parse("fuzz.json", text, 0x1_0000..0x8_0000, &mut Vec::new()) else { return };
    let grid = config.grid;
    let channels = grid.channels();
    assert!(channels.start == 0x1_0000 && channels.end <= 0x8_0000);
    for channel in [channels.start, channels.end - 1] {
        assert!(grid.server_of(channel).is_some_and(|server| server < grid.servers()));
        let [min, _] = grid.bounds(channel).expect("a channel of the grid");
        assert!(min.x.is_finite() && min.z.is_finite());
    }
}

pub(crate) fn run_machine(text: &[u8]) {
    let Ok(machine) = Machine::parse("fuzz.json", text, &mut Vec::new()) else { return };
    let mut fsm = Fsm::new(Arc::new(machine));
    for msg_type in [0, 1, 7, 100, 65_535, u32::MAX] {
        if fsm.accepts(msg_type) {
            fsm.received(msg_type);
        }
        fsm.authenticated();
    }
}

pub(crate) fn run_limits(text: &[u8]) {
    let mut limits = Limits::default();
    let _ = limits.read("fuzz.json", text, &mut Vec::new());
    for (info, (name, value)) in Limits::ALL.iter().zip(limits.values()) {
        assert_eq!(info.name, name);
        assert!((info.min..=info.max).contains(&value), "{name}");
    }
}

/// A command line, a word in each line; every file that it names holds the same text.
pub(crate) fn run_command_line(text: &str) {
    let files = |_: &str| Ok::<_, io::Error>(b"{}".to_vec());
    if let Ok(settings) = load_with(text.lines(), &files) {
        assert!((1..=32).contains(&settings.connection_id_bits));
        assert!(settings.limits.min_interval_ms <= settings.limits.max_interval_ms);
    }
}

/// A query from the network, in a world of 16 x 12 cells, with and without layers.
pub(crate) fn run_query(body: &[u8]) {
    use prost::Message;
    if let Ok(query) = SpatialInterestQuery::decode(body) {
        check_query(&query);
    }
}

pub(crate) fn check_query(query: &SpatialInterestQuery) {
    let axis = |offset_m, cell_m, cells| throng_gateway::spatial::Axis { offset_m, cell_m, cells, servers: 2 };
    let limits = InterestLimits { samples: 5_000, ..InterestLimits::default() };
    for layers in [None, Some(axis(-5.0, 2.5, 4))] {
        let ground = [axis(-100.0, 12.5, 16), axis(0.0, 10.0, 12)];
        let grid = Grid::new(ground, layers, 0x1_0000..0x8_0000, 1, Damping::default()).expect("a good grid");
        let (mut scratch, mut found) = (InterestScratch::default(), Vec::new());
        let answer = grid.interest(query, &limits, &mut scratch, &mut found);
        assert!(scratch.samples() <= limits.samples);
        assert!(answer.is_ok() || found.is_empty());
        assert!(found.is_sorted_by(|a, b| a.channel < b.channel));
        assert!(found.iter().all(|interest| grid.channels().contains(&interest.channel)));
    }
}
