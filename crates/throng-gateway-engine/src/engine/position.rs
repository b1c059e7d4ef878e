//! The position of an entity: which part of its state holds it.
//!
//! In this order: the path in the settings of its channel type; the layout of a known type (`TransformState`, a message
//! with an `unrealpb.ActorState`); for an unknown type the layout of Unreal's plugin, if an Unreal server has spawned
//! the entity. Entities of any other type stay in their cell, and the log says that once for each type.

use std::collections::HashMap;

use tracing::warn;

use super::refusal::Refusal;
use crate::channel_types::PositionSetting;
use crate::spatial::Position;
use throng_protostate::{DataState, VectorPath, message_name};

/// The path of the position for each type of entities. Hashed with the standard library's keyed hash: peers name types.
#[derive(Debug, Default)]
pub(super) struct Positions {
    types: HashMap<String, Known>,
    /// The log has said that there are too many types.
    is_warned_of_many: bool,
}

#[derive(Debug)]
struct Known {
    layout: Layout,
    /// The log has said that entities of this type stay where they are.
    is_warned_of: bool,
}

/// Where states of a type say where they are.
#[derive(Clone, Debug)]
enum Layout {
    /// A vector, and whether its third component points up.
    Path(VectorPath, bool),
    /// The layout of Unreal's plugin.
    Unreal,
    /// That layout if the entity is an Unreal object.
    UnrealIfSpawned,
    /// Nowhere that is known.
    Nowhere,
}

/// Types that are remembered. Entities of others do not change cells.
const TYPES_MAX: usize = 1_024;

/// The type of Unity's entities.
const TRANSFORM: &str = "channeldpb.TransformState";

/// `TransformState.position`.
const TRANSFORM_POSITION: &str = "2";

/// Entities of a type whose position is not known.
const NO_POSITION: Refusal = Refusal::Spatial("position_unknown");

/// Updates of entities whose types are not remembered.
const TOO_MANY_TYPES: Refusal = Refusal::Limit("position_types");

impl Positions {
    /// A state has got its type: from now on it is known where states of this type say where they are.
    pub(super) fn learn(&mut self, data: &DataState, setting: Option<&PositionSetting>) {
        let name = message_name(data.type_url());
        if self.types.contains_key(name) || self.types.len() >= TYPES_MAX {
            return;
        }
        let layout = layout_of(data, setting);
        self.types.insert(name.to_owned(), Known { layout, is_warned_of: false });
    }

    /// Where a state says that its entity is. `is_spawned`: a server has spawned it as an object of Unreal.
    pub(super) fn position_in(&self, data: &DataState, is_spawned: bool) -> Option<Position> {
        match &self.types.get(message_name(data.type_url()))?.layout {
            Layout::Path(path, is_z_up) => data.vector(path).map(|vector| upright(vector, *is_z_up)),
            Layout::Unreal => data.unreal_location().map(|vector| upright(vector, true)),
            Layout::UnrealIfSpawned if is_spawned => data.unreal_location().map(|vector| upright(vector, true)),
            Layout::UnrealIfSpawned | Layout::Nowhere => None,
        }
    }

    /// A state has changed and does not say where its entity is. If the path of the position in its type is unknown, the
    /// log says that once for each type, and once if there are too many types; and the caller has something to count.
    pub(super) fn miss(&mut self, data: &DataState, is_spawned: bool) -> Option<Refusal> {
        let name = message_name(data.type_url());
        let Some(known) = self.types.get_mut(name) else {
            if !std::mem::replace(&mut self.is_warned_of_many, true) {
                warn!(
                    data = name,
                    "there are entities of more than {TYPES_MAX} types: those of this type, and of further ones, do not \
                     change cells"
                );
            }
            return Some(TOO_MANY_TYPES);
        };
        let is_unknown = match known.layout {
            Layout::Nowhere => true,
            Layout::UnrealIfSpawned => !is_spawned,
            Layout::Path(..) | Layout::Unreal => false,
        };
        let is_news = is_unknown && !std::mem::replace(&mut known.is_warned_of, true);
        if is_news {
            warn!(
                data = name,
                "it is not known where entities of this type say where they are: they do not change cells. \
                 Set PositionPath for their channel type in the channel settings"
            );
        }
        is_news.then_some(NO_POSITION)
    }
}

fn layout_of(data: &DataState, setting: Option<&PositionSetting>) -> Layout {
    let schema = data.schema().map(|schema| &**schema);
    match setting {
        // A type that says what it is needs no guess.
        Some(PositionSetting::Unreal) if schema.is_none() => return Layout::Unreal,
        Some(PositionSetting::Path { path, is_z_up }) => {
            return VectorPath::resolve(path, schema).map_or(Layout::Nowhere, |path| Layout::Path(path, *is_z_up));
        }
        _ => {}
    }
    if message_name(data.type_url()) == TRANSFORM
        && let Ok(path) = VectorPath::resolve(TRANSFORM_POSITION, None)
    {
        return Layout::Path(path, false);
    }
    match schema {
        Some(schema) => VectorPath::unreal(schema).map_or(Layout::Nowhere, |path| Layout::Path(path, true)),
        None => Layout::UnrealIfSpawned,
    }
}

/// In the world's own axes, in which y points up.
fn upright([x, y, z]: [f64; 3], is_z_up: bool) -> Position {
    if is_z_up { Position { x, y: z, z: y } } else { Position { x, y, z } }
}
