//! A player that looks: at what moves, and at what the gateway says about owners.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use prost::Message as _;
use throng_channeld::proto::{ChannelDataUpdateMessage, TransformState};
use throng_channeld::{FIRST_ENTITY_CHANNEL, Message, message_type};

use super::{come_in, world};

/// The observations of a player.
#[derive(Clone, Debug, Default)]
pub(crate) struct View {
    /// The newest step of each entity.
    pub(crate) steps: BTreeMap<u32, u32>,
    /// The same, of what it was told since it logged in last.
    pub(crate) since_login: BTreeMap<u32, u32>,
    /// How often it logged in.
    pub(crate) connections: u32,
    /// Steps that were older than one seen before.
    pub(crate) went_back: u32,
    /// Channels that were removed, and subscriptions that ended.
    pub(crate) removed: u32,
    pub(crate) owners_lost: u32,
    pub(crate) owners_back: u32,
}

impl View {
    /// Whether each entity has come further than this many steps.
    pub(crate) fn sees_all_beyond(&self, step: u32) -> bool {
        world::entities().all(|entity| self.steps.get(&entity).is_some_and(|&seen| seen > step))
    }

    /// Whether each of these entities has come further than these steps.
    pub(crate) fn has_passed(&self, steps: &BTreeMap<u32, u32>) -> bool {
        steps.iter().all(|(entity, step)| self.steps.get(entity).is_some_and(|seen| seen > step))
    }

    fn take(&mut self, message: &Message) {
        match message.msg_type {
            message_type::CHANNEL_DATA_UPDATE if message.channel_id >= FIRST_ENTITY_CHANNEL => {
                let update: ChannelDataUpdateMessage = message.decode().expect("an update");
                let state = TransformState::decode(update.data.expect("with data").value).expect("a transform");
                // Entities that have not moved since the last line are left out.
                let Some(step) = state.position.map(|position| position.y as u32) else { return };
                self.since_login.insert(message.channel_id, step);
                let known = self.steps.entry(message.channel_id).or_insert(step);
                self.went_back += u32::from(step < *known);
                *known = step.max(*known);
            }
            message_type::REMOVE_CHANNEL | message_type::UNSUB_FROM_CHANNEL => self.removed += 1,
            message_type::CHANNEL_OWNER_LOST => self.owners_lost += 1,
            message_type::CHANNEL_OWNER_RECOVERED => self.owners_back += 1,
            _ => {}
        }
    }
}

/// Watches until it is stopped; logs in again when the connection breaks.
pub(crate) fn play(address: SocketAddr, name: &str, view: &Mutex<View>, stop: &AtomicBool) {
    while let Some((mut client, _)) = come_in(address, name, stop) {
        let view = || view.lock().expect("whoever looks does not fail");
        {
            let mut view = view();
            view.connections += 1;
            view.since_login.clear();
        }
        while !stop.load(Ordering::Relaxed) {
            match client.poll(Instant::now() + Duration::from_millis(20)) {
                Ok(Some(message)) => view().take(&message),
                Ok(None) => {}
                Err(_) => break,
            }
        }
    }
}
