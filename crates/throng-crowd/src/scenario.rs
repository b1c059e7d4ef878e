//! A scenario: players, area, movement, tick rate, and the data that each client gets.
//!
//! A scenario is a TOML file. The named ones are part of the program; any other is given by its path. Every key is
//! described in `scenarios/README.md` and here, at its field.

mod cipher;
mod error;
mod fault;
mod model;
mod named;
mod overrides;
mod place;
mod validate;

use std::fs;
use std::io::{self, Read};
use std::path::Path;

use serde::{Deserialize, Serialize};
use throng_report::MetricLimit;

pub use cipher::Cipher;
pub use error::ScenarioError;
pub use fault::{FAULT_FORMS, Fault, FaultKind, Part};
pub use model::{Model, Scratch};
pub use overrides::Overrides;
pub use throng_report::Profile;

/// The largest scenario file that is read, in bytes.
pub const MAX_FILE_BYTES: u64 = 64 * 1024;

/// A workload with all its settings: what a file said, what the defaults filled in, what the command line changed.
///
/// Lengths are metres, the origin is the centre of the area at ground level, z points up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// The name under which the run is reported: 1 to 40 letters, digits, `-` and `_`.
    pub name: String,
    /// One line that describes the scenario.
    pub description: String,
    /// How many bots connect, 1 to 65,536.
    pub players: u32,
    /// Steps of the simulation per second, 1 to 240.
    pub tick_hz: u32,
    /// Input packets per bot and second, 1 to 240; 0 or absent: as many as ticks.
    #[serde(default)]
    pub input_hz: u32,
    /// How many players play at each moment of the measured part.
    #[serde(default)]
    pub profile: Profile,
    /// Length of the measured part of the run, 1 to 86,400; at least that of the profile.
    pub seconds: u32,
    /// Seconds between the start of the simulation and the start of the measurement, 0 to 3,600.
    #[serde(default)]
    pub warmup_seconds: u32,
    /// Share of the bots that must be connected before the characters begin to move, above 0, up to 1.
    #[serde(default = "defaults::start_when_connected")]
    pub start_when_connected: f32,
    /// Seed of everything random in the world and in the bots.
    #[serde(default = "defaults::seed")]
    pub seed: u64,
    /// The send budget for one client, 1 to 1,000,000 kilobits (1,000 bits) per second.
    pub budget_kbit_per_s: u32,
    /// Which objects a client receives.
    #[serde(default)]
    pub view: View,
    /// Distance rings for [`View::Rings`], 1 to 8, from the inside outwards.
    #[serde(default)]
    pub rings: Vec<Ring>,
    /// Where the distance to a cell counts from, for [`View::Rings`].
    #[serde(default)]
    pub looks_from: LooksFrom,
    /// The view from afar, beyond the rings. Only [`Model::Throng`] has it.
    #[serde(default)]
    pub far: Option<Far>,
    /// Width and depth; a single number in the file is a square. 1 to 100,000 each.
    #[serde(deserialize_with = "side_or_sides")]
    pub area_m: [f32; 2],
    /// Height of the room above the ground, 1 to 10,000.
    #[serde(default = "defaults::height_m")]
    pub height_m: f32,
    /// Size of a spatial cell in x, y and z; 1 to 10,000 each.
    pub cell_m: [f32; 3],
    /// Pillars that characters cannot walk through, 0 to 64.
    #[serde(default)]
    pub obstacles: u32,
    /// The characters' movement.
    #[serde(default)]
    pub movement: Movement,
    /// Distance from its spawn point at which a character is turned back; 0: never.
    #[serde(default)]
    pub leash_m: f32,
    /// Where the characters start.
    #[serde(default)]
    pub spawn: Spawn,
    /// Chests around each character's spawn point, 0 to 100.
    #[serde(default)]
    pub chests_per_player: u32,
    /// Ticks between two changes of a chest's property, 1 to 36,000.
    #[serde(default = "defaults::chest_change_ticks")]
    pub chest_change_ticks: u32,
    /// Objects all over the area that never change, 0 to 1,000,000.
    #[serde(default)]
    pub idle_objects: u32,
    /// The link conditioner's preset on the bots' side.
    #[serde(default)]
    pub net: NetPreset,
    /// Share of the bots that decode everything, 0 to 1.
    #[serde(default = "defaults::decoded_fraction")]
    pub decoded_fraction: f32,
    /// The fewest bots that decode everything (as far as there are that many).
    #[serde(default = "defaults::decoded_min")]
    pub decoded_min: u32,
    /// Threads that the server encodes and writes with, 1 to 256.
    #[serde(default = "defaults::server_threads")]
    pub server_threads: u32,
    /// Snapshots of the server's state in a second that bots are compared with, 1 to 240; one in each tick of a slower world, and of
    /// one with edges. Ages of what is not sent again are told as finely as that.
    #[serde(default = "defaults::truth_hz")]
    pub truth_hz: u32,
    /// Servers that share the area, a process each, 1 to 16; more than 1 need edges.
    #[serde(default = "defaults::servers")]
    pub servers: u32,
    /// Processes between the server and the clients, each for as many clients, 0 to 64; 0: clients connect to the server.
    #[serde(default)]
    pub edges: u32,
    /// Faults of its processes while the run is measured, 32 at most.
    #[serde(default)]
    pub faults: Vec<Fault>,
    /// Whether the server gets the first core for itself and the bots the others.
    #[serde(default)]
    pub pin: bool,
    /// The cipher of the packets. Never [`Cipher::Fastest`] in a scenario that was [resolved](Scenario::resolve).
    #[serde(default)]
    pub cipher: Cipher,
    /// The server's replication model.
    #[serde(default)]
    pub model: Model,
    /// Where [`Model::SharedState`] has its lists.
    #[serde(default)]
    pub scratch: Scratch,
    /// Whether [`Model::SharedState`] writes positions as distances from those that a client is known to hold.
    #[serde(default)]
    pub baselines: bool,
    /// Each send call takes this much longer, 0 to 1,000: a known slowdown, to check measurements with. Needs a server with
    /// one thread.
    #[serde(default)]
    pub send_slowdown_percent: u32,
    /// Limits of figures of the run: a run that exceeds one ends with exit code 4.
    #[serde(default)]
    pub limits: Vec<MetricLimit>,
}

/// Which objects a client receives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum View {
    /// Distance rings, each with its send interval.
    #[default]
    Rings,
    /// Each client gets every change of every object, every tick.
    Everything,
}

/// Where the distance to a cell counts from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LooksFrom {
    /// The client's position.
    #[default]
    Position,
    /// The cell in which the client stands: all clients in it see the same cells.
    Cell,
}

/// A distance ring: what is nearer than `radius_m` (and in no inner ring) is sent every `interval_ticks`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ring {
    /// Outer radius.
    pub radius_m: f32,
    /// Send interval, 1 to 3,600 ticks.
    pub interval_ticks: u32,
}

/// The view from afar: characters with positions of 0.5 m, and nothing else of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Far {
    /// Size of a cell in x, y and z; 2 to 10,000 each, in half metres.
    pub cell_m: [f32; 3],
    /// Channels of each cell, 1 to 1,000: characters live in them by their numbers.
    #[serde(default = "defaults::far_parts")]
    pub parts: u16,
    /// Distance rings, 1 to 8, from the inside outwards.
    pub rings: Vec<Ring>,
}

/// The characters' movement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Movement {
    /// Keep going forward; each second 10 % turn and 10 % jump; turn back at obstacles and borders.
    #[default]
    Wander,
    /// The same, but turn left or right for half a second, then again, all the time.
    Erratic,
    /// Run to the centre, then wander there.
    Converge,
    /// Stand still.
    Idle,
}

/// Where the characters start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "shape", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Spawn {
    /// Anywhere in the area, evenly.
    #[default]
    Uniform,
    /// On a square lattice over the whole area, as far apart as the area allows.
    Spread,
    /// Anywhere within a radius of the centre, evenly.
    Disc {
        /// Radius of the disc.
        radius_m: f32,
    },
    /// A part of them within a radius of a place, the others anywhere in the area.
    Hot {
        /// The part of the players in the place, 0 to 1.
        share: f32,
        /// The place: x and y from the centre of the area.
        at_m: [f32; 2],
        /// Its radius.
        radius_m: f32,
    },
    /// Side by side along the x axis, through the centre.
    Line {
        /// Distance between neighbours.
        spacing_m: f32,
    },
}

/// A preset of the link conditioner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NetPreset {
    /// No conditioner: the link as the machine has it.
    #[default]
    None,
    /// A wired local network.
    Lan,
    /// A home wireless network.
    Wifi,
    /// A mobile network.
    #[serde(rename = "4g")]
    Mobile4g,
    /// A link at the edge of use.
    Bad,
}

impl NetPreset {
    /// Every preset, with the name that files and the command line use.
    pub const ALL: [(&'static str, NetPreset); 5] = [
        ("none", NetPreset::None),
        ("lan", NetPreset::Lan),
        ("wifi", NetPreset::Wifi),
        ("4g", NetPreset::Mobile4g),
        ("bad", NetPreset::Bad),
    ];

    /// The preset's name in files and on the command line.
    pub fn name(self) -> &'static str {
        NetPreset::ALL.iter().find(|(_, preset)| *preset == self).map_or("none", |(name, _)| name)
    }
}

impl Scenario {
    /// The names of the scenarios that are part of the program, with their descriptions.
    pub fn named() -> impl Iterator<Item = (&'static str, String)> {
        named::ALL.iter().map(|&(name, text)| {
            let description = parse(name, text).map(|scenario| scenario.description).unwrap_or_default();
            (name, description)
        })
    }

    /// The scenario of that name, or the file at that path, with the command line's values put over it, checked.
    ///
    /// A text that ends in `.toml` or has a path separator is a path; any other text is a name.
    ///
    /// # Errors
    /// The user can correct each of them; its text is one line that says how.
    pub fn resolve(name_or_path: &str, overrides: &Overrides) -> Result<Scenario, ScenarioError> {
        let mut scenario = if name_or_path.ends_with(".toml") || name_or_path.contains(['/', '\\']) {
            parse(name_or_path, &read(Path::new(name_or_path))?)?
        } else {
            parse(name_or_path, named::text(name_or_path)?)?
        };
        overrides.put_over(&mut scenario);
        if overrides.seconds.is_none() {
            scenario.seconds = scenario.seconds.max(scenario.profile.seconds(scenario.players));
        }
        scenario.cipher = scenario.cipher.chosen();
        if scenario.input_hz == 0 {
            scenario.input_hz = scenario.tick_hz;
        }
        validate::check(name_or_path, &scenario)?;
        validate::check_overrides(name_or_path, overrides, &scenario)?;
        Ok(scenario)
    }

    /// Length of a tick in seconds.
    pub fn tick_s(&self) -> f32 {
        1.0 / self.tick_hz as f32
    }

    /// Bytes that the server may send to one client per second.
    pub fn budget_bytes_per_s(&self) -> u32 {
        self.budget_kbit_per_s * 125
    }

    /// How many bots decode everything they get.
    pub fn decoded_bots(&self) -> u32 {
        let share = (self.players as f32 * self.decoded_fraction).ceil() as u32;
        share.max(self.decoded_min).min(self.players)
    }

    /// Whether the lab can play it: for a scenario that another machine has sent.
    ///
    /// # Errors
    /// It cannot, with the reason.
    pub fn check(&self) -> Result<(), ScenarioError> {
        validate::check(&self.name, self)
    }

    /// How many bots must be connected before the characters begin to move; at least 1.
    pub fn start_at_connected(&self) -> u32 {
        let first = self.profile.first(self.players).max(1);
        ((first as f32 * self.start_when_connected).ceil() as u32).clamp(1, first)
    }
}

fn read(path: &Path) -> Result<String, ScenarioError> {
    let unreadable = |source: io::Error| ScenarioError::Unreadable { path: path.to_owned(), source };
    let mut text = String::new();
    let file = fs::File::open(path).map_err(unreadable)?;
    file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text).map_err(unreadable)?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(ScenarioError::TooLong { path: path.to_owned() });
    }
    Ok(text)
}

fn parse(origin: &str, text: &str) -> Result<Scenario, ScenarioError> {
    toml::from_str(text).map_err(|error| ScenarioError::malformed(origin, text, &error))
}

fn side_or_sides<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<[f32; 2], D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "a number of metres, or two: [width, depth]")]
    enum Area {
        Side(f32),
        Sides([f32; 2]),
    }
    Ok(match Area::deserialize(deserializer)? {
        Area::Side(side) => [side, side],
        Area::Sides(sides) => sides,
    })
}

mod defaults {
    pub(super) fn start_when_connected() -> f32 {
        1.0
    }
    pub(super) fn seed() -> u64 {
        1
    }
    pub(super) fn height_m() -> f32 {
        20.0
    }
    pub(super) fn chest_change_ticks() -> u32 {
        1
    }
    pub(super) fn decoded_fraction() -> f32 {
        0.02
    }
    pub(super) fn decoded_min() -> u32 {
        10
    }
    pub(super) fn truth_hz() -> u32 {
        15
    }
    pub(super) fn servers() -> u32 {
        1
    }
    pub(super) fn far_parts() -> u16 {
        1
    }
    pub(super) fn server_threads() -> u32 {
        1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve_text(text: &str) -> Result<Scenario, ScenarioError> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("mine.toml");
        fs::write(&path, text).unwrap();
        Scenario::resolve(path.to_str().unwrap(), &Overrides::default())
    }

    fn one_line(error: &ScenarioError) -> String {
        let text = error.to_string();
        assert!(!text.contains('\n'), "an error must fit one line: {text}");
        text
    }

    #[test]
    fn every_named_scenario_is_valid_and_carries_its_own_name() {
        let names: Vec<_> = Scenario::named().collect();
        assert_eq!(names.len(), 9);
        for (name, description) in names {
            let scenario = Scenario::resolve(name, &Overrides::default()).unwrap();
            assert_eq!(scenario.name, name);
            assert_eq!(scenario.description, description);
            assert_eq!(scenario.input_hz, scenario.tick_hz, "absent input_hz means the tick rate");
        }
    }

    #[test]
    fn the_workloads_are_the_published_ones() {
        let get = |name| Scenario::resolve(name, &Overrides::default()).unwrap();
        let crowd = get("crowd");
        assert_eq!((crowd.players, crowd.tick_hz, crowd.area_m, crowd.budget_kbit_per_s), (1000, 30, [100.0; 2], 512));
        let dense = get("dense");
        assert_eq!((dense.players, dense.tick_hz, dense.area_m, dense.view), (100, 30, [200.0; 2], View::Everything));
        assert_eq!((get("sparse").area_m, get("sparse").chests_per_player), ([8000.0; 2], 0));
        assert_eq!((get("sparse-10").chests_per_player, get("sparse-20").chests_per_player), (10, 20));
        let converge = get("converge");
        assert_eq!((converge.movement, converge.area_m), (Movement::Converge, [2000.0; 2]));
        assert_eq!((converge.spawn, converge.start_at_connected()), (Spawn::Disc { radius_m: 800.0 }, 80));
        let hot = get("hot");
        assert_eq!((hot.players, hot.servers, hot.edges, hot.start_at_connected()), (400, 4, 2, 400));
        assert_eq!(hot.spawn, Spawn::Hot { share: 0.75, at_m: [-38.0, 0.0], radius_m: 8.0 });
        let many = get("crowd-10k");
        assert_eq!((many.players, many.tick_hz, many.area_m, many.budget_kbit_per_s), (10_000, 10, [300.0; 2], 256));
    }

    #[test]
    fn the_command_line_wins_over_the_file() {
        let overrides = Overrides {
            players: Some(70),
            tick_hz: Some(20),
            area_m: Some(60.0),
            net: Some(NetPreset::Wifi),
            seconds: Some(3),
            server_threads: Some(2),
            pin: true,
            ..Overrides::default()
        };
        let scenario = Scenario::resolve("crowd", &overrides).unwrap();
        assert_eq!((scenario.players, scenario.tick_hz, scenario.input_hz), (70, 20, 20));
        assert_eq!((scenario.area_m, scenario.net, scenario.seconds), ([60.0, 60.0], NetPreset::Wifi, 3));
        assert_eq!((scenario.server_threads, scenario.pin), (2, true));
        assert_eq!(scenario.budget_kbit_per_s, 512);
    }

    #[test]
    fn the_decoded_sample_has_a_floor_and_never_exceeds_the_players() {
        let with = |players| Overrides { players: Some(players), ..Overrides::default() };
        let decoded = |players| Scenario::resolve("crowd", &with(players)).unwrap().decoded_bots();
        assert_eq!((decoded(1000), decoded(100), decoded(4)), (20, 10, 4));
    }

    #[test]
    fn an_unknown_name_lists_the_known_ones_and_the_nearest() {
        let error = Scenario::resolve("crowdd", &Overrides::default()).unwrap_err();
        assert_eq!(error.tag(), "unknown_scenario");
        let text = one_line(&error);
        assert!(text.contains("did you mean `crowd`"), "{text}");
        assert!(text.contains("converge"), "{text}");
    }

    #[test]
    fn an_unreadable_file_says_which_and_what_to_do() {
        let error = Scenario::resolve("/nowhere/at/all.toml", &Overrides::default()).unwrap_err();
        assert_eq!(error.tag(), "unreadable");
        let text = one_line(&error);
        assert!(text.contains("/nowhere/at/all.toml") && text.contains("check the path"), "{text}");
    }

    #[test]
    fn an_oversized_file_is_refused() {
        let error = resolve_text(&"#".repeat(MAX_FILE_BYTES as usize + 1)).unwrap_err();
        assert_eq!(error.tag(), "too_long");
    }

    #[test]
    fn an_unknown_key_is_refused_with_its_line_and_the_nearest_key() {
        let text = named::text("crowd").unwrap().replace("players =", "plaiers =");
        let error = resolve_text(&text).unwrap_err();
        assert_eq!(error.tag(), "malformed");
        let text = one_line(&error);
        assert!(text.contains("line 8") && text.contains("`plaiers`") && text.contains("`players`"), "{text}");
    }

    #[test]
    fn a_missing_key_and_a_wrong_type_are_named() {
        let crowd = named::text("crowd").unwrap();
        let text = one_line(&resolve_text(&crowd.replace("players = 1000", "")).unwrap_err());
        assert!(text.contains("`players`"), "{text}");
        let text = one_line(&resolve_text(&crowd.replace("players = 1000", "players = \"many\"")).unwrap_err());
        assert!(text.contains("line 8"), "{text}");
        let text = one_line(&resolve_text(&crowd.replace("area_m = 100", "area_m = \"big\"")).unwrap_err());
        assert!(text.contains("[width, depth]"), "{text}");
    }

    #[test]
    fn effective_settings_survive_json() {
        let scenario = Scenario::resolve("converge", &Overrides::default()).unwrap();
        let json = serde_json::to_string(&scenario).unwrap();
        assert_eq!(serde_json::from_str::<Scenario>(&json).unwrap(), scenario);
    }
}
