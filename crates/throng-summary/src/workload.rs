//! The words for the load of a run: only runs with the same words are compared.

use std::collections::BTreeMap;

use serde_json::Value;
use throng_crowd::scenario::{Model, NetPreset, Overrides, Profile, Scenario};

use crate::RunSummary;

/// The scenario whose settings are the usual ones of a file that has a name of its own.
const USUAL: &str = "crowd";
/// Keys that have words of their own, or that change nothing of what is measured.
const NOT_BY_KEY: [&str; 18] = [
    "name",
    "description",
    "players",
    "tick_hz",
    "rings",
    "net",
    "profile",
    "model",
    "servers",
    "edges",
    "faults",
    "seconds",
    "warmup_seconds",
    "start_when_connected",
    "seed",
    "pin",
    "limits",
    // A known slowdown, to check comparisons with.
    "send_slowdown_percent",
];

impl RunSummary {
    /// Scenario, size, and the settings that change what is measured: a run on a simulated network is no run on a clean one, and
    /// a scenario file may change and keep its name. A setting that is as in the named scenario is not named.
    pub(crate) fn workload(&self) -> String {
        let of = &self.settings;
        let mut words = format!("{} {} at {} Hz", self.scenario, self.players, self.tick_hz);
        let rings = of.rings.iter().chain(of.far.iter().flat_map(|far| &far.rings));
        let rings: Vec<String> = rings.map(|ring| format!("{}/{}", ring.radius_m, ring.interval_ticks)).collect();
        let faults: Vec<String> = of.faults.iter().map(ToString::to_string).collect();
        let settings = [
            (!rings.is_empty(), format!("rings {}", rings.join(" "))),
            (of.net != NetPreset::None, format!("net {}", of.net.name())),
            (of.profile != Profile::Constant, format!("profile {}", of.profile)),
            (self.model != Model::Throng.name(), format!("model {}", self.model)),
            (of.servers > 1, format!("{} servers", of.servers)),
            (of.edges > 0, format!("{} edges", of.edges)),
            (!faults.is_empty(), format!("faults {}", faults.join(" "))),
            (!self.workers.is_empty(), format!("bots of {} load workers", self.workers.len())),
        ];
        let named = settings.into_iter().filter(|(is_unusual, _)| *is_unusual).map(|(_, words_of)| words_of);
        named.chain(self.unusual()).for_each(|words_of| words += &format!(", {words_of}"));
        words
    }

    /// The other keys that differ from the named scenario, each with its value.
    fn unusual(&self) -> Vec<String> {
        let named = |name: &str| Scenario::resolve(name, &Overrides::default());
        let is_named = Scenario::named().any(|(name, _)| name == self.scenario);
        let Ok(mut usual) = named(if is_named { &self.scenario } else { USUAL }) else { return Vec::new() };
        if usual.input_hz == usual.tick_hz {
            usual.input_hz = self.settings.tick_hz;
        }
        let usual = values(&usual);
        let differs = |(key, value): &(String, Value)| usual.get(key) != Some(value);
        let own = values(&self.settings).into_iter().filter(differs);
        own.map(|(key, value)| format!("{key} {}", said(&value))).collect()
    }
}

/// By way of a text, in which a number is as short as in a file.
fn values(scenario: &Scenario) -> BTreeMap<String, Value> {
    let text = serde_json::to_string(scenario).unwrap_or_default();
    let mut values: BTreeMap<String, Value> = serde_json::from_str(&text).unwrap_or_default();
    values.retain(|key, _| !NOT_BY_KEY.contains(&key.as_str()));
    values
}

/// A value in words. The fields of an object are in the order of their names.
fn said(value: &Value) -> String {
    match value {
        Value::Array(items) => items.iter().map(said).collect::<Vec<_>>().join(" "),
        Value::Object(fields) => {
            let fields: BTreeMap<&String, &Value> = fields.iter().collect();
            fields.into_iter().map(|(name, value)| format!("{name} {}", said(value))).collect::<Vec<_>>().join(" ")
        }
        Value::String(text) => text.clone(),
        Value::Number(number) if number.is_f64() => number.as_f64().unwrap_or_default().to_string(),
        other => other.to_string(),
    }
}
