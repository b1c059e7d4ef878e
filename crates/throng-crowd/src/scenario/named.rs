//! The scenarios that are part of the program.

use super::ScenarioError;

pub(super) const ALL: [(&str, &str); 9] = [
    ("crowd", include_str!("../../../../scenarios/crowd.toml")),
    ("crowd-10k", include_str!("../../../../scenarios/crowd-10k.toml")),
    ("dense", include_str!("../../../../scenarios/dense.toml")),
    ("erratic", include_str!("../../../../scenarios/erratic.toml")),
    ("hot", include_str!("../../../../scenarios/hot.toml")),
    ("sparse", include_str!("../../../../scenarios/sparse.toml")),
    ("sparse-10", include_str!("../../../../scenarios/sparse-10.toml")),
    ("sparse-20", include_str!("../../../../scenarios/sparse-20.toml")),
    ("converge", include_str!("../../../../scenarios/converge.toml")),
];

/// The file of the scenario `name`.
pub(super) fn text(name: &str) -> Result<&'static str, ScenarioError> {
    let found = ALL.iter().find(|(known, _)| *known == name);
    found.map(|(_, text)| *text).ok_or_else(|| ScenarioError::unknown_name(name, ALL.iter().map(|(known, _)| *known)))
}
