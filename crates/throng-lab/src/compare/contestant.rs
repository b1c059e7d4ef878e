use std::fmt;
use std::str::FromStr;

use crate::scenario::{Model, Scratch};

/// A replication model, with the settings that are its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contestant {
    /// The model.
    pub model: Model,
    /// For [`Model::SharedState`]: where its lists are.
    pub scratch: Scratch,
}

impl Contestant {
    /// The models in the order of the published tables, each with its usual settings.
    pub fn usual() -> Vec<Contestant> {
        Model::ALL.iter().map(|&(_, model)| Contestant { model, scratch: Scratch::default() }).collect()
    }
}

/// As on the command line: `legacy`, or `shared-state:per-connection`.
impl FromStr for Contestant {
    type Err = String;

    fn from_str(text: &str) -> Result<Contestant, String> {
        let (name, scratch) = text.split_once(':').map_or((text, None), |(name, scratch)| (name, Some(scratch)));
        let model = Model::ALL.iter().find(|(known, _)| *known == name).map(|(_, model)| *model);
        let model = model
            .ok_or_else(|| format!("`{name}` is no model: use legacy, legacy-push, graph, shared-state or throng"))?;
        let Some(scratch) = scratch else { return Ok(Contestant { model, scratch: Scratch::default() }) };
        if model != Model::SharedState {
            return Err(format!("`{name}` has no scratch: only shared-state:per-connection is possible"));
        }
        let known = Scratch::ALL.iter().find(|(known, _)| *known == scratch);
        let scratch = known.map(|(_, scratch)| *scratch).ok_or("after shared-state: use per-connection or shared")?;
        Ok(Contestant { model, scratch })
    }
}

impl fmt::Display for Contestant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.model.name())?;
        match self.scratch {
            Scratch::PerConnection => f.write_str(":per-connection"),
            Scratch::Shared => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_contestant_is_read_as_it_is_written() {
        for name in ["legacy", "legacy-push", "graph", "shared-state", "shared-state:per-connection", "throng"] {
            assert_eq!(name.parse::<Contestant>().unwrap().to_string(), name);
        }
        assert_eq!("shared-state:shared".parse::<Contestant>().unwrap().to_string(), "shared-state");
    }

    #[test]
    fn what_is_no_contestant_is_refused_with_what_to_use() {
        let refused = |text: &str| text.parse::<Contestant>().unwrap_err();
        assert!(refused("iris").contains("shared-state or throng"));
        assert!(refused("throng:shared").contains("no scratch"));
        assert!(refused("shared-state:mine").contains("per-connection or shared"));
    }
}
