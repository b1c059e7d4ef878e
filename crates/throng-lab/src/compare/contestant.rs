use std::fmt;
use std::str::FromStr;

use throng_crowd::scenario::{Model, Scratch};

/// A replication model, with the settings that are its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contestant {
    /// The model.
    pub model: Model,
    /// For [`Model::SharedState`]: where its lists are.
    pub scratch: Scratch,
    /// For the same: whether it has baselines.
    pub has_baselines: bool,
    /// Whether it is there to check the comparison itself.
    pub check: Check,
}

/// Contestants that check the comparison: what it says of them is known before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Check {
    /// An ordinary contestant.
    #[default]
    No,
    /// The same model once more: it must not differ.
    Again,
    /// The same model with slower send calls: it must differ.
    Slower,
}

impl Check {
    /// As they are written behind the model's name.
    const NAMED: [(&str, Check); 2] = [("again", Check::Again), ("slower", Check::Slower)];
    /// By how much the send calls of [`Check::Slower`] are slower.
    const SLOWDOWN_PERCENT: u32 = 25;

    /// The scenario's `send_slowdown_percent`, if it is not its own.
    pub fn send_slowdown_percent(self) -> Option<u32> {
        (self == Check::Slower).then_some(Check::SLOWDOWN_PERCENT)
    }
}

impl Contestant {
    /// The models in the order of the published tables, each with its usual settings.
    pub fn usual() -> Vec<Contestant> {
        Model::ALL.iter().map(|&(_, model)| Contestant::of(model)).collect()
    }

    /// The same model with other settings, as far as there are any.
    pub fn variants() -> [Contestant; 2] {
        let usual = Contestant::of(Model::SharedState);
        [Contestant { scratch: Scratch::PerConnection, ..usual }, Contestant { has_baselines: true, ..usual }]
    }

    fn of(model: Model) -> Contestant {
        Contestant { model, scratch: Scratch::default(), has_baselines: false, check: Check::No }
    }
}

/// The name of baselines behind the model's name.
const BASELINES: &str = "baselines";

/// As on the command line: `legacy`, or `shared-state:per-connection`.
impl FromStr for Contestant {
    type Err = String;

    fn from_str(text: &str) -> Result<Contestant, String> {
        let (name, variant) = text.split_once(':').map_or((text, None), |(name, variant)| (name, Some(variant)));
        let model = Model::ALL.iter().find(|(known, _)| *known == name).map(|(_, model)| *model);
        let model = model.ok_or_else(|| {
            format!("there is no model `{name}`: use legacy, legacy-push, graph, shared-state or throng")
        })?;
        let Some(variant) = variant else { return Ok(Contestant::of(model)) };
        if let Some(&(_, check)) = Check::NAMED.iter().find(|(known, _)| *known == variant) {
            return Ok(Contestant { check, ..Contestant::of(model) });
        }
        if model != Model::SharedState {
            return Err(format!("`{name}` has the variants again and slower only"));
        }
        if variant == BASELINES {
            return Ok(Contestant { has_baselines: true, ..Contestant::of(model) });
        }
        let known = Scratch::ALL.iter().find(|(known, _)| *known == variant);
        let scratch = known.map(|(_, scratch)| *scratch);
        let scratch = scratch.ok_or("after shared-state: use per-connection, shared, baselines, again or slower")?;
        Ok(Contestant { scratch, ..Contestant::of(model) })
    }
}

impl fmt::Display for Contestant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.model.name())?;
        if let Some((name, _)) = Check::NAMED.iter().find(|(_, check)| *check == self.check) {
            return write!(f, ":{name}");
        }
        match self.scratch {
            Scratch::PerConnection => f.write_str(":per-connection"),
            Scratch::Shared if self.has_baselines => write!(f, ":{BASELINES}"),
            Scratch::Shared => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_contestant_is_read_as_it_is_written() {
        let names = ["legacy", "legacy-push", "graph", "shared-state", "throng"].map(str::to_owned);
        let checks = ["throng:again", "legacy:slower"].map(str::to_owned);
        for name in names.into_iter().chain(checks).chain(Contestant::variants().map(|variant| variant.to_string())) {
            assert_eq!(name.parse::<Contestant>().unwrap().to_string(), name);
        }
        assert_eq!("shared-state:shared".parse::<Contestant>().unwrap().to_string(), "shared-state");
    }

    #[test]
    fn what_is_no_contestant_is_refused_with_what_to_use() {
        let refused = |text: &str| text.parse::<Contestant>().unwrap_err();
        assert!(refused("iris").contains("shared-state or throng"));
        assert!(refused("throng:shared").contains("again and slower only"));
        assert!(refused("shared-state:mine").contains("baselines, again or slower"));
    }
}
