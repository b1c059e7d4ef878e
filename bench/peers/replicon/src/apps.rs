//! The two kinds of app, and what both know.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bevy::app::ScheduleRunnerPlugin;
use bevy::prelude::*;
use bevy::state::app::StatesPlugin;
use bevy::time::TimeUpdateStrategy;
use bevy_replicon::prelude::*;
use bevy_replicon::shared::replication::registry::ctx::{SerializeCtx, WriteCtx};
use bytes::{Buf, Bytes};
use peers_harness::{DENSE_BYTES, SPARSE_BYTES, TICK_US, Units, Workload};
use serde::{Deserialize, Serialize};

/// Which object an entity of the server is, for the check.
pub(crate) type Numbers = Arc<Mutex<HashMap<Entity, u32>>>;

#[derive(Component)]
pub(crate) struct Character(pub(crate) Units);

/// Where a chest stands.
#[derive(Component, Serialize, Deserialize)]
pub(crate) struct Place(pub(crate) [f32; 3]);

#[derive(Component)]
pub(crate) struct Contents(pub(crate) u16);

/// On objects: who may see them, in the sparse workloads.
#[derive(Component)]
#[component(immutable)]
pub(crate) struct BelongsTo(pub(crate) u32);

/// On clients.
#[derive(Component)]
#[component(immutable)]
pub(crate) struct Viewer(pub(crate) u32);

impl VisibilityFilter for BelongsTo {
    type ClientComponent = Viewer;
    type Scope = Entity;

    fn is_visible(&self, _: Entity, viewer: Option<&Viewer>) -> bool {
        viewer.is_some_and(|viewer| viewer.0 == self.0)
    }
}

pub(crate) fn server_app(workload: Workload) -> App {
    let mut app = App::new();
    let plugins = RepliconPlugins.build().disable::<ClientPlugin>().disable::<ClientMessagePlugin>();
    add_shared(&mut app, workload, plugins.set(ServerPlugin::new(PostUpdate)));
    if matches!(workload, Workload::Sparse { .. }) {
        app.add_visibility_filter::<BelongsTo>();
    }
    app
}

pub(crate) fn client_app(workload: Workload) -> App {
    let mut app = App::new();
    let plugins = RepliconPlugins.build().disable::<ServerPlugin>().disable::<ServerMessagePlugin>();
    add_shared(&mut app, workload, plugins);
    app.finish();
    app.world_mut().resource_mut::<NextState<ClientState>>().set(ClientState::Connected);
    app.update();
    app
}

fn add_shared(app: &mut App, workload: Workload, plugins: bevy::app::PluginGroupBuilder) {
    let shared = RepliconSharedPlugin { auth_method: AuthMethod::None };
    app.add_plugins((MinimalPlugins.build().disable::<ScheduleRunnerPlugin>(), StatesPlugin, plugins.set(shared)))
        .insert_resource(TimeUpdateStrategy::ManualDuration(Duration::from_micros(TICK_US)))
        .replicate_with(character_rule(workload))
        .replicate_with(RuleFns::new(write_contents, read_contents))
        .replicate_once::<Place>();
}

/// A character in as few bytes as the workload allows.
fn character_rule(workload: Workload) -> RuleFns<Character> {
    match workload {
        Workload::Dense => RuleFns::new(write_character::<DENSE_BYTES>, read_character::<DENSE_BYTES>),
        Workload::Sparse { .. } => RuleFns::new(write_character::<SPARSE_BYTES>, read_character::<SPARSE_BYTES>),
    }
}

fn write_character<const BYTES: usize>(
    _: &mut SerializeCtx,
    character: &Character,
    message: &mut Vec<u8>,
) -> Result<()> {
    message.extend_from_slice(&character.0.steps().pack::<BYTES>());
    Ok(())
}

fn read_character<const BYTES: usize>(_: &mut WriteCtx, message: &mut Bytes) -> Result<Character> {
    let mut packed = [0; BYTES];
    message.try_copy_to_slice(&mut packed)?;
    Ok(Character(peers_harness::Character::unpack(&packed).units()))
}

fn write_contents(_: &mut SerializeCtx, contents: &Contents, message: &mut Vec<u8>) -> Result<()> {
    message.extend_from_slice(&contents.0.to_le_bytes());
    Ok(())
}

fn read_contents(_: &mut WriteCtx, message: &mut Bytes) -> Result<Contents> {
    Ok(Contents(message.try_get_u16_le()?))
}
