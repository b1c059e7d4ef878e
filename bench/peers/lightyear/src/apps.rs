//! The two kinds of app, and the protocol of both.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bevy::app::ScheduleRunnerPlugin;
use bevy::prelude::*;
use bevy::state::app::StatesPlugin;
use bevy::time::TimeUpdateStrategy;
use bevy_replicon::prelude::RuleFns;
use bevy_replicon::shared::replication::registry::ctx::{SerializeCtx, WriteCtx};
use bytes::{Buf, Bytes};
use lightyear::prelude::AppComponentExt;
use lightyear::prelude::client::ClientPlugins;
use lightyear::prelude::server::ServerPlugins;
use peers_harness::{DENSE_BYTES, SPARSE_BYTES, TICK_US, Units, Workload};
use serde::{Deserialize, Serialize};

/// Which object an entity of the server is, for the check.
pub(crate) type Numbers = Arc<Mutex<HashMap<Entity, u32>>>;

const TICK: Duration = Duration::from_micros(TICK_US);

#[derive(Component)]
pub(crate) struct Character(pub(crate) Units);

/// Where a chest stands.
#[derive(Component, Serialize, Deserialize)]
pub(crate) struct Place(pub(crate) [f32; 3]);

#[derive(Component)]
pub(crate) struct Contents(pub(crate) u16);

pub(crate) fn server_app(workload: Workload) -> App {
    let mut app = bare_app();
    app.add_plugins(ServerPlugins { tick_duration: TICK });
    add_protocol(&mut app, workload);
    app
}

pub(crate) fn client_app(workload: Workload) -> App {
    let mut app = bare_app();
    app.add_plugins(ClientPlugins { tick_duration: TICK });
    add_protocol(&mut app, workload);
    app.finish();
    app.update();
    app
}

fn bare_app() -> App {
    let mut app = App::new();
    app.add_plugins((MinimalPlugins.build().disable::<ScheduleRunnerPlugin>(), StatesPlugin))
        .insert_resource(TimeUpdateStrategy::ManualDuration(TICK));
    app
}

fn add_protocol(app: &mut App, workload: Workload) {
    app.component::<Character>().replicate_with(character_rule(workload));
    app.component::<Contents>().replicate_with(RuleFns::new(write_contents, read_contents));
    app.component::<Place>().replicate_once();
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
