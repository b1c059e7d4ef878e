use serde::{Deserialize, Serialize};

/// The replication model of the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Model {
    /// The way of Unreal's generic replication, with polling.
    Legacy,
    /// The same with push marks.
    LegacyPush,
    /// The way of Unreal's Replication Graph.
    Graph,
    /// The way of Unreal's Iris.
    SharedState,
    /// Ours.
    #[default]
    Throng,
}

impl Model {
    /// Every model, with the name that files and the command line use.
    pub const ALL: [(&'static str, Model); 5] = [
        ("legacy", Model::Legacy),
        ("legacy-push", Model::LegacyPush),
        ("graph", Model::Graph),
        ("shared-state", Model::SharedState),
        ("throng", Model::Throng),
    ];

    /// The model's name in files and on the command line.
    pub fn name(self) -> &'static str {
        Model::ALL.iter().find(|(_, model)| *model == self).map_or("throng", |(name, _)| name)
    }
}

/// Where `shared-state` has the list in which it puts a connection's objects in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scratch {
    /// A new allocation for each connection and tick, with room for the highest possible object index.
    PerConnection,
    /// One for all.
    #[default]
    Shared,
}

impl Scratch {
    /// Every place, with the name that files and the command line use.
    pub const ALL: [(&'static str, Scratch); 2] =
        [("per-connection", Scratch::PerConnection), ("shared", Scratch::Shared)];

    /// The place's name in files and on the command line.
    pub fn name(self) -> &'static str {
        Scratch::ALL.iter().find(|(_, place)| *place == self).map_or("shared", |(name, _)| name)
    }

    /// The same place, as the models name it.
    pub fn for_model(self) -> throng_models::Scratch {
        match self {
            Scratch::PerConnection => throng_models::Scratch::PerConnection,
            Scratch::Shared => throng_models::Scratch::Shared,
        }
    }
}
