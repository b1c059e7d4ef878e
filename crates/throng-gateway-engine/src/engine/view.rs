//! The operators' view of the engine: rows of a table, a bounded slice at a time, so that viewing never delays the
//! engine for long.

use std::time::Duration;

use serde::Serialize;
use throng_channeld::proto::ChannelType;

use super::Engine;
use super::connection::Stage;
use super::handover::ENTITIES_FIELD;
use super::port::{EndCause, Side};
use throng_wire::Time;

/// The views for operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Connections of world servers and clients.
    Connections,
    /// Channels of all types.
    Channels,
    /// Channels of the cells that the world is cut into.
    Cells,
    /// Entities with channels of their own.
    Entities,
}

/// A row of one of the tables.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Row {
    /// A connection.
    Connection(ConnectionRow),
    /// A channel.
    Channel(ChannelRow),
    /// A cell.
    Cell(CellRow),
    /// An entity.
    Entity(EntityRow),
}

/// A connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ConnectionRow {
    /// Its number in the protocol.
    pub connection: u32,
    /// Which door it came through.
    pub side: &'static str,
    /// Where it comes from.
    pub address: String,
    /// Its claimed name. Anything that a peer may say.
    pub player: String,
    /// How far it has come: `stranger`, `asked` or `member`.
    pub stage: &'static str,
    /// Bytes that its kernel has not taken yet.
    pub queued_bytes: usize,
    /// Channels that it subscribes to.
    pub subscriptions: usize,
    /// Channels that it owns.
    pub owned: usize,
}

/// A channel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ChannelRow {
    /// Its id.
    pub channel: u32,
    /// Its type.
    pub kind: &'static str,
    /// The connection that owns it, if that is there.
    pub owner: Option<u32>,
    /// Whether its owner was lost and may come back.
    pub is_awaited: bool,
    /// How many subscribe to it.
    pub subscribers: usize,
    /// Bytes of its state.
    pub state_bytes: usize,
    /// The beginning of its creator's metadata.
    pub metadata: String,
}

/// A cell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CellRow {
    /// Its channel.
    pub channel: u32,
    /// The connection of the server that decides over it, if that is there.
    pub owner: Option<u32>,
    /// Whether that server was lost and may come back.
    pub is_awaited: bool,
    /// How many entities its state lists.
    pub entities: usize,
    /// How many subscribe to it.
    pub subscribers: usize,
}

/// An entity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EntityRow {
    /// Its channel.
    pub channel: u32,
    /// The cell that lists it, if its position is known.
    pub cell: Option<u32>,
    /// The connection of who decides over it, if that is there.
    pub owner: Option<u32>,
    /// Whether that was lost and may come back.
    pub is_awaited: bool,
    /// How many subscribe to it.
    pub subscribers: usize,
}

/// A part of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slice {
    /// Its rows.
    pub rows: Vec<Row>,
    /// Where the next slice begins, if this is not the last one.
    pub next: Option<usize>,
}

/// A banned name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockedName {
    /// At which door.
    pub side: Side,
    /// The name. Anything that a peer may say.
    pub player: String,
    /// For how long from now.
    pub left: Duration,
}

/// Slots of a table that are looked at for one slice: a fraction of a millisecond.
const PLACES_PER_SLICE: usize = 4_096;
/// Entities that are counted for one slice, and those of one cell.
const COUNTED_PER_SLICE: usize = 20_000;
/// Of longer texts of peers the beginning is shown.
const TEXT_CHARS: usize = 64;

impl Engine {
    /// Up to `rows` rows of a table. `from` is 0, or the `next` of the slice before.
    pub fn slice(&self, subject: Subject, from: usize, rows: usize) -> Slice {
        let places = match subject {
            Subject::Connections => self.connections.slot_count(),
            _ => self.channels.slot_count(),
        };
        let end = places.min(from.saturating_add(PLACES_PER_SLICE));
        let (mut slice, mut counted) = (Slice::default(), 0);
        for place in from..end {
            if slice.rows.len() >= rows {
                slice.next = Some(place);
                return slice;
            }
            let row = match subject {
                Subject::Connections => self.connection_row(place),
                _ => self.channel_row(subject, place),
            };
            if let Some(Row::Cell(cell)) = &row {
                counted += cell.entities;
            }
            slice.rows.extend(row);
            if counted > COUNTED_PER_SLICE && place + 1 < places {
                slice.next = Some(place + 1);
                return slice;
            }
        }
        slice.next = (end < places).then_some(end);
        slice
    }

    /// Ends a connection because an operator wants it. Returns whether there is one of that number.
    pub fn kick(&mut self, now: Time, connection: u32) -> bool {
        self.clock.set(now);
        let Some(index) = self.connections.find(connection) else { return false };
        self.connections.notice(index, self.connections.at(index).identifier.clone(), "kicked");
        let key = self.connections.at(index).key;
        self.connections.end_for(key, EndCause::Ours);
        true
    }

    /// Banned names, up to `limit` of them.
    pub fn blocked_names(&self, limit: usize) -> Vec<BlockedName> {
        let names = self.logins.blocked.iter(self.clock.now()).take(limit);
        names.map(|(who, left)| BlockedName { side: who.side, player: who.name.to_string(), left }).collect()
    }

    /// How many names are refused.
    pub fn blocked_count(&mut self) -> usize {
        self.logins.blocked.count(self.clock.now())
    }

    /// Forgives a name at a door. Returns whether there was anything to forgive.
    pub fn unblock(&mut self, side: Side, player: &str) -> bool {
        self.logins.blocked.forgive(side, player)
    }

    fn connection_row(&self, place: usize) -> Option<Row> {
        let connection = self.connections.nth(place)?;
        let stream = self.fanout.hub.connection(self.connections.hub_id(connection.place()));
        Some(Row::Connection(ConnectionRow {
            connection: connection.id,
            side: connection.side.tag(),
            address: connection.address.to_string(),
            player: beginning(&connection.identifier),
            stage: match connection.stage {
                Stage::Stranger => "stranger",
                Stage::Asked { .. } => "asked",
                Stage::Member => "member",
            },
            queued_bytes: connection.queued_bytes(),
            subscriptions: stream.map_or(0, |stream| stream.subscription_count()),
            owned: connection.owned.len(),
        }))
    }

    fn channel_row(&self, subject: Subject, place: usize) -> Option<Row> {
        let channel = self.channels.nth(place)?;
        let owner = channel.owner.map(|owner| self.connections.at(owner).id);
        let (id, is_awaited, subscribers) = (channel.id, channel.is_awaited, channel.subscribers.values().count());
        let state = || self.channels.find(id).map(|index| self.fanout.hub.state(index));
        match subject {
            Subject::Cells if channel.kind == ChannelType::Spatial => {
                let keys = state().and_then(|state| state.data()).map(|data| data.keys(ENTITIES_FIELD).count());
                let entities = keys.unwrap_or_default();
                Some(Row::Cell(CellRow { channel: id, owner, is_awaited, entities, subscribers }))
            }
            Subject::Entities => {
                let cell = self.entities.get(id)?.cell();
                Some(Row::Entity(EntityRow { channel: id, cell, owner, is_awaited, subscribers }))
            }
            Subject::Channels => Some(Row::Channel(ChannelRow {
                channel: id,
                kind: channel.kind.as_str_name(),
                owner,
                is_awaited,
                subscribers,
                state_bytes: state().map_or(0, |state| state.size_bytes()),
                metadata: beginning(&channel.metadata),
            })),
            _ => None,
        }
    }
}

fn beginning(text: &str) -> String {
    text.chars().take(TEXT_CHARS).collect()
}
