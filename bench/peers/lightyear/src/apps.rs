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
use peers_harness::{PACKED_BYTES, TICK_US, Units};
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

pub(crate) fn server_app() -> App {
    let mut app = bare_app();
    app.add_plugins(ServerPlugins { tick_duration: TICK });
    add_protocol(&mut app);
    app
}

pub(crate) fn client_app() -> App {
    let mut app = bare_app();
    app.add_plugins(ClientPlugins { tick_duration: TICK });
    add_protocol(&mut app);
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

fn add_protocol(app: &mut App) {
    app.component::<Character>().replicate_with(RuleFns::new(write_character, read_character));
    app.component::<Contents>().replicate_with(RuleFns::new(write_contents, read_contents));
    app.component::<Place>().replicate_once();
}

fn write_character(_: &mut SerializeCtx, character: &Character, message: &mut Vec<u8>) -> Result<()> {
    message.extend_from_slice(&character.0.steps().pack());
    Ok(())
}

fn read_character(_: &mut WriteCtx, message: &mut Bytes) -> Result<Character> {
    let mut packed = [0; PACKED_BYTES];
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
