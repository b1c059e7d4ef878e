//! Any bytes as settings: files and command lines. Accepted settings are within the limits.
#![allow(dead_code)] // each target and test takes a part of it

use std::io;
use std::sync::Arc;

use throng_gateway::settings::load_with;
use throng_gateway_engine::channel_types::ChannelTypes;
use throng_gateway_engine::fsm::{Fsm, Machine};
use throng_gateway_engine::limits::Limits;
use throng_gateway_engine::spatial::SpatialConfig;

/// The first byte says what the rest is.
pub(crate) fn run(input: &[u8]) {
    let Some((&kind, text)) = input.split_first() else { return };
    match kind % 5 {
        0 => run_channel_settings(text),
        1 => run_spatial(text),
        2 => run_machine(text),
        3 => run_limits(text),
        _ => run_command_line(&String::from_utf8_lossy(text)),
    }
}

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

/// A command line, a word in each line. Every file that it names holds what follows the first empty line.
pub(crate) fn run_command_line(text: &str) {
    let (words, file) = text.split_once("\n\n").unwrap_or((text, "{}"));
    let files = |_: &str| Ok::<_, io::Error>(file.as_bytes().to_vec());
    if let Ok(settings) = load_with(words.lines(), &files) {
        assert!((1..=32).contains(&settings.engine.connection_id_bits));
        assert!(settings.engine.limits.min_interval_ms <= settings.engine.limits.max_interval_ms);
    }
}
