//! From a login to a player: creates the channels and subscribes their viewers.

use prost::Message as _;
use throng_channeld::message_type as kinds;
use throng_channeld::packet::Header;
use throng_channeld::proto::unrealpb::{SpatialChannelData, SpawnObjectMessage};
use throng_channeld::proto::{
    ChannelDataAccess, ChannelSubscriptionOptions, ChannelType, CreateChannelMessage, CreateEntityChannelMessage,
    QuerySpatialChannelMessage, ServerForwardMessage, SpatialInfo, SubscribedToChannelMessage,
};
use throng_channeld::{Broadcast, FIRST_SPATIAL_CHANNEL, GLOBAL_CHANNEL};
use throng_machine::clock;

use super::player::Player;
use super::stage::{MASTER, Server, Stage};
use crate::light::{Fields, Message, Value};
use crate::load::{CM_PER_M, CONNECTION_BITS, FAN_OUT_MS, Scene, connection_of};
use crate::motion::Walker;
use crate::traffic::{ENTITY_TYPE, EntityChannelData, GLOBAL_TYPE, Pose, TestRepChannelData, actor, any, object_of};

const SPATIAL_TYPE: &str = "unrealpb.SpatialChannelData";

/// A subscription with an access and an interval.
pub(super) fn options(access: ChannelDataAccess, interval_ms: u32) -> Option<ChannelSubscriptionOptions> {
    Some(ChannelSubscriptionOptions {
        data_access: Some(access as i32),
        fan_out_interval_ms: Some(interval_ms),
        ..ChannelSubscriptionOptions::default()
    })
}

/// A position as channels count it: centimetres, and `y` is up.
pub(super) fn spot(pose: &Pose) -> SpatialInfo {
    let cm = |metres: f32| f64::from(metres * CM_PER_M);
    SpatialInfo { x: cm(pose.x_m), y: cm(pose.z_m), z: cm(pose.y_m) }
}

impl Stage {
    pub(super) fn take_login(&mut self, server: usize, body: &[u8]) {
        let (result, connection) = (Fields(body).number(1), Fields(body).number(2));
        if self.servers[server].connection == 0 {
            if result != 0 {
                return self.fail("the gateway refused the login of a server");
            }
            self.servers[server].connection = connection;
            self.servers[server].recovers = Fields(body).number(4) != 0;
            if !self.servers[server].recovers {
                self.set_up(server);
            }
            return;
        }
        // A copy for the owner of the global channel: another peer has logged in.
        if server == MASTER && result == 0 {
            match self.waiting.len() < self.by_connection.len() {
                true => self.waiting.push(connection),
                false => self.fail("more peers have logged in than there are connection ids"),
            }
        }
    }

    /// Clients that have logged in become players, as soon as all servers are there.
    pub(super) fn let_in(&mut self) {
        if !self.is_ready {
            return;
        }
        for connection in std::mem::take(&mut self.waiting) {
            let is_server = |server: &Server| connection == server.connection || connection == server.former;
            if !self.servers.iter().any(is_server) {
                self.arrive(connection);
            }
        }
    }

    fn set_up(&mut self, server: usize) {
        let (channel_type, data) = match server {
            MASTER => (ChannelType::Global, any(GLOBAL_TYPE, &TestRepChannelData::default())),
            _ => (ChannelType::Spatial, any(SPATIAL_TYPE, &SpatialChannelData::default())),
        };
        let create = CreateChannelMessage {
            channel_type: channel_type as i32,
            metadata: format!("bench-{server}"),
            sub_options: options(ChannelDataAccess::WriteAccess, FAN_OUT_MS),
            data: Some(data),
            merge_options: None,
        };
        self.servers[server].outgoing.message(Header::new(GLOBAL_CHANNEL, kinds::CREATE_CHANNEL), &create);
    }

    /// The channels of a server exist. The master is notified of other servers' channels too.
    pub(super) fn take_created(&mut self, server: usize, message: &Message<'_>) {
        if self.servers[server].is_set_up {
            return;
        }
        self.servers[server].is_set_up = true;
        if server == MASTER {
            self.is_ready = self.load.scene != Scene::Spatial;
            return;
        }
        for cell in repeated(message.body) {
            let place = cell.wrapping_sub(FIRST_SPATIAL_CHANNEL) as usize;
            match self.cell_owners.get_mut(place) {
                Some(owner) => *owner = Some(server),
                None => self.fail(format!("the gateway made a cell {cell} that is not in the grid")),
            }
        }
    }

    pub(super) fn cell_owner(&self, cell: u32) -> Option<usize> {
        self.cell_owners.get(cell.wrapping_sub(FIRST_SPATIAL_CHANNEL) as usize).copied().flatten()
    }

    /// A client of a single channel has gone. In the scenes with entities nobody leaves. Those that go at the end of the run stay in
    /// the figures.
    pub(super) fn depart(&mut self, connection: u32) {
        if self.load.scene.has_entities() || self.window.has_ended() {
            return;
        }
        let Some(player) = self.by_connection.get_mut(connection as usize).and_then(Option::take) else { return };
        let player = &mut self.players[player as usize];
        (player.is_live, player.last_call) = (false, None);
        // Another client may get the number, and counts its calls from 0.
        self.ledger.forget(connection);
    }

    fn arrive(&mut self, connection: u32) {
        let Some(known) = self.by_connection.get_mut(connection as usize) else {
            let bits = CONNECTION_BITS;
            return self
                .fail(format!("connection id {connection} has more than {bits} bits: start it with -mcb={bits}"));
        };
        if known.is_some() {
            return;
        }
        let index = self.players.len();
        *known = Some(index as u32);
        let pose = Pose::of(&Walker::of_connection(connection));
        self.players.push(Player { pose, ..Player::new(connection) });
        self.pairs.add_player();
        match self.load.scene {
            Scene::SingleRelay => self.players[index].is_live = true,
            Scene::SingleUnreal => {
                self.subscribe(MASTER, connection, GLOBAL_CHANNEL);
                self.players[index].is_live = true;
            }
            Scene::Spatial => {
                self.subscribe(MASTER, connection, GLOBAL_CHANNEL);
                let query = QuerySpatialChannelMessage { spatial_info: vec![spot(&pose)] };
                let to = Header::new(GLOBAL_CHANNEL, kinds::QUERY_SPATIAL_CHANNEL).with_stub(connection);
                self.servers[MASTER].outgoing.message(to, &query);
            }
            Scene::EntityLod => {
                self.subscribe(MASTER, connection, GLOBAL_CHANNEL);
                self.create_entity(index, GLOBAL_CHANNEL);
            }
        }
    }

    /// The master learns the cell of a new player.
    pub(super) fn take_start_cell(&mut self, message: &Message<'_>) {
        let Some(index) = self.player_of(message.stub) else { return };
        let cell = repeated(message.body).next().unwrap_or(0);
        let Some(owner) = self.cell_owner(cell) else {
            return self.fail(format!("the gateway puts a player into cell {cell}, which nobody owns"));
        };
        self.players[index].owner = owner;
        self.players[index].cell = cell;
        self.subscribe(MASTER, self.players[index].connection, cell);
        self.create_entity(index, cell);
    }

    fn create_entity(&mut self, index: usize, through: u32) {
        let player = &self.players[index];
        let object = object_of(player.connection);
        let data =
            EntityChannelData { obj_ref: Some(object.clone()), actor_state: Some(actor(&player.pose, clock::now())) };
        let create = CreateEntityChannelMessage {
            entity_id: player.entity(),
            metadata: format!("bench-player-{}", player.connection),
            sub_options: options(ChannelDataAccess::WriteAccess, FAN_OUT_MS),
            data: Some(any(ENTITY_TYPE, &data)),
            ..CreateEntityChannelMessage::default()
        };
        let outgoing = &mut self.servers[player.owner].outgoing;
        outgoing.message(Header::new(through, kinds::CREATE_ENTITY_CHANNEL), &create);
    }

    /// An entity's channel exists: its player may play.
    pub(super) fn take_entity_created(&mut self, server: usize, entity: u32) {
        let Some(index) = self.player_of(connection_of(entity)) else { return };
        let player = &mut self.players[index];
        if player.is_live || player.owner != server {
            return;
        }
        player.is_live = true;
        self.servers[server].owned.insert(player.connection);
        if self.load.scene == Scene::EntityLod {
            self.queue_everybody(index);
            return;
        }
        let (connection, cell) = (player.connection, player.cell);
        let spawn = SpawnObjectMessage {
            obj: Some(object_of(connection)),
            channel_id: Some(cell),
            location: Some(player.pose.location()),
            ..SpawnObjectMessage::default()
        };
        let forward = ServerForwardMessage { client_conn_id: connection, payload: spawn.encode_to_vec().into() };
        let broadcast = (Broadcast::ALL_BUT_SENDER | Broadcast::ALL_BUT_SERVER).0;
        let to = Header { broadcast, ..Header::new(cell, kinds::UNREAL_SPAWN) };
        self.servers[server].outgoing.message(to, &forward);
        self.see_nearby(index, index);
        self.update_interest(index);
    }

    fn subscribe(&mut self, server: usize, connection: u32, channel: u32) {
        let subscribe = SubscribedToChannelMessage {
            conn_id: connection,
            sub_options: options(ChannelDataAccess::ReadAccess, FAN_OUT_MS),
        };
        self.servers[server].outgoing.message(Header::new(channel, kinds::SUB_TO_CHANNEL), &subscribe);
    }
}

/// The numbers in field 1, packed or not.
fn repeated(body: &[u8]) -> impl Iterator<Item = u32> + '_ {
    Fields(body).filter(|(field, _)| *field == 1).flat_map(|(_, value)| {
        let mut packed = value.bytes();
        let single = matches!(value, Value::Number(_)).then(|| value.number());
        single.into_iter().chain(std::iter::from_fn(move || crate::light::take_number(&mut packed)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_numbers_are_read_packed_and_not() {
        assert_eq!(repeated(&[0x0a, 4, 1, 0x80, 2, 3]).collect::<Vec<_>>(), [1, 256, 3]);
        assert_eq!(repeated(&[0x08, 5, 0x08, 6]).collect::<Vec<_>>(), [5, 6]);
        assert_eq!(repeated(&[]).count(), 0);
    }
}
