//! The messages of the stream. Each is one JSON object, in one line.
//!
//! Points are packed, because there are many:
//!
//! ```text
//! "points": base64 of 5 bytes for each point
//!   x      2    lowest byte first: 0 is the left end of the map, 65,535 its right end
//!   y      2    the same from its lower end to its upper end
//!   kind   1    0 a player, 1 a bot that checks its state, 2 and more: the load's own
//! ```

use std::collections::BTreeMap;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::{Deserialize, Serialize};

/// Number of this layout. It rises if a key goes or changes its meaning.
pub const FORMAT: u32 = 1;

/// The longest line that a hub takes: 65,536 points have 437 kB.
pub const LINE_BYTES_MAX: usize = 1 << 20;

/// The most points of one message. Of more, evenly chosen ones are sent.
pub const POINTS_MAX: usize = 65_536;

/// Bytes of one point.
const POINT_BYTES: usize = 5;
/// The longest text.
const TEXT_BYTES_MAX: usize = 200;

/// A message of a load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum Message {
    /// The load begins.
    Hello(Hello),
    /// Figures of the last part of a second.
    Sample(Sample),
    /// Places on the map.
    Points(Points),
    /// Something happened.
    Mark(Mark),
    /// The load has ended.
    End,
}

/// A load, as it begins.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Hello {
    /// [`FORMAT`].
    pub format: u32,
    /// Name of the workload.
    pub workload: String,
    /// Unit of the load: players, matches.
    pub unit: String,
    /// Ticks per second; 0 if it has none of its own.
    pub tick_hz: u32,
    /// A frame may take so long, in ms; absent without a budget.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_ms: Option<f64>,
    /// The parts of a frame, in the order in which they are drawn.
    #[serde(default)]
    pub subsystems: Vec<Subsystem>,
    /// Where points lie; absent if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub map: Option<Map>,
    /// Which loads can be set while it runs; absent if none can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<Load>,
}

/// A part of a frame.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Subsystem {
    /// Its name.
    pub name: String,
    /// It may take so long in a frame, in ms; absent without a budget.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_ms: Option<f64>,
}

/// The area of the map, in metres.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Map {
    /// Its left end.
    pub left_m: f64,
    /// Its lower end.
    pub bottom_m: f64,
    /// From left to right.
    pub width_m: f64,
    /// From bottom to top.
    pub height_m: f64,
}

/// Loads that can be set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// The smallest.
    pub least: u32,
    /// The largest.
    pub most: u32,
}

/// Figures since the sample before.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Time since the load began, in s.
    pub time_s: f64,
    /// The load that is wanted.
    pub wanted: u32,
    /// The load that is there: players that are connected, matches that are played.
    pub connected: u32,
    /// Median of a frame, in ms.
    pub frame_p50_ms: f64,
    /// 99th percentile of a frame, in ms.
    pub frame_p99_ms: f64,
    /// The longest frame, in ms.
    pub frame_max_ms: f64,
    /// Mean of each subsystem in a frame, in ms.
    #[serde(default)]
    pub subsystems_ms: BTreeMap<String, f64>,
    /// Frames over their budget since the load began.
    pub breaches: u64,
    /// Ticks that were due and never played, since the load began; absent if it does not count them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missed_ticks: Option<u64>,
    /// Data to each client, in kbit/s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kbit_per_s: Option<f64>,
    /// 99th percentile of the age of state of near neighbours, in ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub near_age_p99_ms: Option<f64>,
    /// Processor time of the load generator by wall time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generator_cores: Option<f64>,
}

/// Places on the map.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Points {
    /// Time since the load began, in s.
    pub time_s: f64,
    /// See the page of this module.
    pub points: String,
}

/// A place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// From left to right.
    pub x: u16,
    /// From bottom to top.
    pub y: u16,
    /// Its kind.
    pub kind: u8,
}

/// Something that happened: a step of a search, a player that wins.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Mark {
    /// In words.
    pub text: String,
}

/// A message as viewers get it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Number of the load at its hub, in the order of their coming.
    pub feed: u64,
    /// Time since the hub began, in s: the one clock that all loads share.
    pub at_s: f64,
    /// The message.
    pub message: Message,
}

/// A line from the hub to a load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Command {
    /// Whether somebody looks.
    pub watched: bool,
    /// The load that somebody wants; absent if nobody has said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub amount: Option<u32>,
}

impl Mark {
    /// Something that happened, in words that are cut where the hub would refuse them.
    pub(crate) fn new(text: impl Into<String>) -> Mark {
        let mut text = text.into();
        let end = (0..=TEXT_BYTES_MAX.min(text.len())).rfind(|end| text.is_char_boundary(*end));
        text.truncate(end.unwrap_or(0));
        Mark { text }
    }
}

impl Map {
    /// A position of this map as a point. Positions outside lie at its border.
    pub fn point(&self, [x_m, y_m]: [f64; 2], kind: u8) -> Point {
        let part = |at: f64, from: f64, length: f64| ((at - from) / length * 65_535.0).round() as u16;
        Point { x: part(x_m, self.left_m, self.width_m), y: part(y_m, self.bottom_m, self.height_m), kind }
    }
}

impl Points {
    /// Packs points, at most [`POINTS_MAX`] of them.
    pub fn new(time_s: f64, points: &[Point]) -> Points {
        let step = points.len().div_ceil(POINTS_MAX).max(1);
        let bytes: Vec<u8> = points
            .iter()
            .step_by(step)
            .flat_map(|point| {
                let ([x0, x1], [y0, y1]) = (point.x.to_le_bytes(), point.y.to_le_bytes());
                [x0, x1, y0, y1, point.kind]
            })
            .collect();
        Points { time_s, points: BASE64_STANDARD.encode(bytes) }
    }

    /// The points; `None` if they make no sense.
    pub fn unpacked(&self) -> Option<Vec<Point>> {
        let bytes = BASE64_STANDARD.decode(&self.points).ok()?;
        if !bytes.len().is_multiple_of(POINT_BYTES) || bytes.len() > POINT_BYTES * POINTS_MAX {
            return None;
        }
        let point = |bytes: &[u8]| Point {
            x: u16::from_le_bytes([bytes[0], bytes[1]]),
            y: u16::from_le_bytes([bytes[2], bytes[3]]),
            kind: bytes[4],
        };
        Some(bytes.chunks_exact(POINT_BYTES).map(point).collect())
    }
}

impl Message {
    /// A line of the stream, if it is a message and its numbers and texts are of a sensible size.
    pub(crate) fn parse(line: &[u8]) -> Option<Message> {
        let message: Message = serde_json::from_slice(line).ok()?;
        message.is_sensible().then_some(message)
    }

    fn is_sensible(&self) -> bool {
        const SUBSYSTEMS_MAX: usize = 64;
        let is_text = |text: &str| text.len() <= TEXT_BYTES_MAX;
        match self {
            Message::Hello(hello) => {
                let map_is_fine = hello.map.is_none_or(|map| map.width_m > 0.0 && map.height_m > 0.0);
                let load_is_fine = hello.load.is_none_or(|load| load.least <= load.most);
                let texts =
                    hello.subsystems.iter().map(|subsystem| &subsystem.name).chain([&hello.workload, &hello.unit]);
                hello.format == FORMAT
                    && map_is_fine
                    && load_is_fine
                    && hello.subsystems.len() <= SUBSYSTEMS_MAX
                    && texts.into_iter().all(|text| is_text(text))
            }
            Message::Sample(sample) => {
                sample.subsystems_ms.len() <= SUBSYSTEMS_MAX && sample.subsystems_ms.keys().all(|name| is_text(name))
            }
            Message::Points(points) => points.points.len() <= (POINT_BYTES * POINTS_MAX).div_ceil(3) * 4,
            Message::Mark(mark) => is_text(&mark.text),
            Message::End => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_come_out_as_they_went_in_and_lie_on_the_map() {
        let map = Map { left_m: -50.0, bottom_m: -10.0, width_m: 100.0, height_m: 20.0 };
        let points = [map.point([-50.0, -10.0], 0), map.point([50.0, 10.0], 1), map.point([0.0, 0.0], 2)];
        assert_eq!(points[0], Point { x: 0, y: 0, kind: 0 });
        assert_eq!(points[1], Point { x: 65_535, y: 65_535, kind: 1 });
        assert_eq!(points[2], Point { x: 32_768, y: 32_768, kind: 2 });
        assert_eq!(Points::new(1.0, &points).unpacked().as_deref(), Some(&points[..]));
        assert_eq!(map.point([1e300, f64::NAN], 0), Point { x: 65_535, y: 0, kind: 0 });
    }

    #[test]
    fn of_too_many_points_evenly_chosen_ones_are_sent_and_the_line_is_short_enough() {
        let points: Vec<Point> = (0..200_000).map(|at| Point { x: (at / 4) as u16, y: 0, kind: 0 }).collect();
        let packed = Points::new(0.0, &points);
        let sent = packed.unpacked().unwrap();
        assert_eq!(sent.len(), 50_000);
        assert_eq!((sent[1].x, sent[49_999].x), (1, 49_999));
        let line = serde_json::to_vec(&Message::Points(packed)).unwrap();
        assert!(line.len() < LINE_BYTES_MAX && Message::parse(&line).is_some());
    }

    #[test]
    fn lines_that_make_no_sense_are_no_messages() {
        let hello = |hello: Hello| Message::parse(&serde_json::to_vec(&Message::Hello(hello)).unwrap());
        let good = Hello { format: FORMAT, workload: "w".to_owned(), ..Hello::default() };
        assert!(hello(good.clone()).is_some());
        assert_eq!(hello(Hello { format: 2, ..good.clone() }), None);
        assert_eq!(hello(Hello { workload: "w".repeat(201), ..good.clone() }), None);
        assert_eq!(hello(Hello { map: Some(Map::default()), ..good.clone() }), None);
        assert_eq!(hello(Hello { load: Some(Load { least: 2, most: 1 }), ..good.clone() }), None);
        assert_eq!(hello(Hello { subsystems: vec![Subsystem::default(); 65], ..good }), None);
        for line in [&b"{}"[..], b"", b"[]", b"{\"type\":\"sample\"}", b"{\"type\":\"other\"}", &[0xff, 0xfe]] {
            assert_eq!(Message::parse(line), None);
        }
        assert_eq!(Points { time_s: 0.0, points: "!".to_owned() }.unpacked(), None);
        assert_eq!(Points { time_s: 0.0, points: "AAAA".to_owned() }.unpacked(), None);
    }
}
