//! World servers that were killed: what the gateway has kept for them, and what others notice of it.

use std::collections::BTreeSet;
use std::time::Duration;

use prost::Message as _;
use throng_channeld::proto::ChannelType;
use throng_channeld::{FIRST_SPATIAL_CHANNEL, GLOBAL_CHANNEL};
use throng_machine::clock;
use throng_wire::Time;

use super::interest::cell_at;
use super::player::Player;
use super::stage::{MASTER, Server, Stage};
use crate::light::{Fields, Message};
use crate::load::{Scene, connection_of};
use crate::traffic::{EntityChannelData, Pose, TestRepChannelData};

/// A server of the spatial scene that is killed is away for so long.
pub(super) const DOWN: Duration = Duration::from_secs(1);

/// The death of one server of several, and its return.
#[derive(Clone, Debug, Default)]
pub(super) struct Death {
    died_at: Option<Time>,
    /// From its death until it had everything back.
    pub(super) restart: Option<Duration>,
    /// The longest way between where one of its players was last, for it, and where the gateway's state has it; metres.
    pub(super) off_m_max: Option<f32>,
    /// The connections of those who were its players.
    pub(super) orphans: BTreeSet<u32>,
    /// The connections of players that another server had when it got them back.
    owned_twice: BTreeSet<u32>,
}

impl Stage {
    /// The server that dies in the middle of a run: that of the cells in the middle of the world, whom most people visit.
    pub(super) fn victim(&self) -> usize {
        self.servers.len() / 2
    }

    /// A server is dead, with all that it knew and all that it had not sent yet. Its players are played by nobody.
    pub(super) fn lose_server(&mut self, server: usize) {
        let dead = &mut self.servers[server];
        self.counts.messages_out += dead.outgoing.messages();
        *dead = Server { former: dead.connection, ..Server::default() };
        for owner in self.cell_owners.iter_mut().filter(|owner| **owner == Some(server)) {
            *owner = None;
        }
        self.death = Death { died_at: Some(clock::now()), ..Death::default() };
        for index in 0..self.players.len() {
            if self.players[index].owner == server || self.players[index].next == Some(server) {
                self.orphan(index);
            }
        }
    }

    /// Nobody plays this one until the dead server is back.
    fn orphan(&mut self, index: usize) {
        let player = &mut self.players[index];
        (player.is_live, player.next, player.last_call) = (false, None, None);
        self.death.orphans.insert(player.connection);
        self.forget_viewers(index);
    }

    /// The owner of a player hears that the gateway has given it to another server, or to one that has died meanwhile.
    pub(super) fn give_away(&mut self, server: usize, entity: u32, to: Option<usize>) {
        let Some(index) = self.player_of(connection_of(entity)) else { return };
        self.servers[server].owned.remove(&connection_of(entity));
        if self.players[index].owner == server {
            self.players[index].next = to;
            if to.is_none() {
                self.orphan(index);
            }
        }
    }

    /// A channel of a server, as it was when the server was lost.
    pub(super) fn take_recovered(&mut self, server: usize, message: &Message<'_>) {
        let fields = || Fields(message.body);
        let is_own = fields().number(4) == self.servers[server].connection;
        let value = fields().any(7);
        let (channel, kind) = (fields().number(1), ChannelType::try_from(fields().number(2) as i32));
        match kind {
            Ok(ChannelType::Global) if !self.load.scene.has_entities() => self.take_recovered_global(value),
            Ok(ChannelType::Spatial) if is_own => {
                let place = channel.wrapping_sub(FIRST_SPATIAL_CHANNEL) as usize;
                if let Some(owner) = self.cell_owners.get_mut(place) {
                    *owner = Some(server);
                }
            }
            Ok(ChannelType::Entity) if is_own => self.take_recovered_entity(server, channel, value),
            _ => {}
        }
    }

    /// How many players two servers have, now or when one of them got its players back; and how many nobody has. It goes by what
    /// each server was told over its own socket, so one that is just handed over may count: ask when nothing moves. A server
    /// comes back a second after its death, so others have read by then what came before.
    pub(super) fn owners(&self) -> [u32; 2] {
        let (mut twice, mut nobody) = (self.death.owned_twice.clone(), 0);
        for player in &self.players {
            match self.servers.iter().filter(|server| server.owned.contains(&player.connection)).count() {
                0 => nobody += 1,
                1 => {}
                _ => drop(twice.insert(player.connection)),
            }
        }
        [twice.len() as u32, nobody]
    }

    /// More of the global channel's state, which did not fit into one message.
    pub(super) fn take_more_recovered(&mut self, message: &Message<'_>) {
        if message.channel == GLOBAL_CHANNEL && !self.load.scene.has_entities() {
            self.take_recovered_global(Fields(message.body).any(1));
        }
    }

    /// The players of a single channel are in its state.
    fn take_recovered_global(&mut self, value: &[u8]) {
        let Ok(state) = TestRepChannelData::decode(value) else {
            return self.fail("the state that the gateway kept makes no sense");
        };
        for (entity, actor) in state.actor_states {
            let connection = connection_of(entity);
            if let Some(index) = self.recover_player(connection) {
                self.players[index].pose = Pose::of_actor(&actor);
                self.players[index].is_live = true;
            }
        }
    }

    /// Each player of the other scenes has a channel.
    fn take_recovered_entity(&mut self, server: usize, entity: u32, value: &[u8]) {
        let Some(actor) = EntityChannelData::decode(value).ok().and_then(|state| state.actor_state) else {
            return self.fail("the state that the gateway kept of a player makes no sense");
        };
        let is_known = self.player_of(connection_of(entity)).is_some();
        let Some(index) = self.recover_player(connection_of(entity)) else { return };
        let player = &mut self.players[index];
        let pose = Pose::of_actor(&actor);
        if is_known {
            let off_m = player.pose.distance_m(&pose);
            self.death.off_m_max = Some(self.death.off_m_max.map_or(off_m, |max| max.max(off_m)));
        }
        let mut others = self.servers.iter().enumerate().filter(|(number, _)| *number != server);
        if others.any(|(_, other)| other.owned.contains(&player.connection)) {
            self.death.owned_twice.insert(player.connection);
        }
        self.servers[server].owned.insert(player.connection);
        player.cell = if self.load.scene == Scene::Spatial { cell_at(pose.x_m, pose.y_m) } else { 0 };
        (player.pose, player.owner, player.is_live, player.is_doubtful) = (pose, server, true, true);
    }

    /// The player of a connection, who is new to a process that has just started.
    fn recover_player(&mut self, connection: u32) -> Option<usize> {
        let known = self.by_connection.get_mut(connection as usize)?;
        if known.is_none() {
            *known = Some(self.players.len() as u32);
            self.players.push(Player::new(connection));
            self.pairs.add_player();
        }
        self.player_of(connection)
    }

    pub(super) fn end_recovery(&mut self, server: usize) {
        self.servers[server].recovers = false;
        self.servers[server].is_set_up = true;
        self.is_ready |= self.load.scene != Scene::Spatial && server == MASTER;
        let have_come = self.servers.len() == self.load.scene.servers() as usize;
        if have_come && self.servers.iter().all(|server| server.is_set_up) {
            self.is_ready = true;
            self.doubt_pairs();
        }
        if let Some(died_at) = self.death.died_at.take() {
            self.death.restart = Some(clock::now().since(died_at));
        }
    }
}

#[cfg(test)]
mod tests {
    use throng_channeld::message_type as kinds;
    use throng_channeld::proto::{Any, ChannelDataRecoveryMessage};

    use super::*;
    use crate::load::{Load, Transport, Victim, entity_of};
    use crate::traffic::{ENTITY_TYPE, actor, any};

    /// Ten servers with the connections 1 to 10, of which each has a player with the connection 100, 101 and so on.
    fn world() -> Stage {
        let nowhere = std::net::SocketAddr::from(([127, 0, 0, 1], 9));
        let mut stage = Stage::new(Load {
            scene: Scene::Spatial,
            clients: 10,
            first: 10,
            servers: nowhere,
            players: vec![nowhere],
            transport: Transport::Tcp,
            victim: Some(Victim::Server),
        });
        for server in 0..10 {
            stage.log_in(server);
            stage.servers[server] = Server { connection: server as u32 + 1, is_set_up: true, ..Server::default() };
            let index = stage.recover_player(100 + server as u32).unwrap();
            let player = &mut stage.players[index];
            (player.owner, player.is_live, player.pose.x_m) = (server, true, 30.0);
            stage.servers[server].owned.insert(100 + server as u32);
        }
        stage
    }

    fn recovers(stage: &mut Stage, server: usize, (channel_id, kind): (u32, ChannelType), owner: u32, data: Any) {
        let body = ChannelDataRecoveryMessage {
            channel_id,
            channel_type: kind as i32,
            owner_conn_id: owner,
            channel_data: Some(data),
            ..ChannelDataRecoveryMessage::default()
        };
        let body = body.encode_to_vec();
        let (kind, stub) = (kinds::RECOVERY_CHANNEL_DATA, 0);
        stage.take(server, &Message { channel: channel_id, stub, kind, body: &body });
    }

    fn recovers_player(stage: &mut Stage, server: usize, connection: u32, x_m: f32) {
        let owner = stage.servers[server].connection;
        recovers_player_of(stage, server, owner, connection, x_m);
    }

    fn recovers_player_of(stage: &mut Stage, server: usize, owner: u32, connection: u32, x_m: f32) {
        let pose = Pose { x_m, y_m: 45.0, ..Pose::default() };
        let state = EntityChannelData { obj_ref: None, actor_state: Some(actor(&pose, clock::now())) };
        recovers(stage, server, (entity_of(connection), ChannelType::Entity), owner, any(ENTITY_TYPE, &state));
    }

    #[test]
    fn a_server_that_died_gets_back_what_it_had_and_nothing_else() {
        let mut stage = world();
        let dead = stage.victim();
        let cell = FIRST_SPATIAL_CHANNEL + 3;
        stage.cell_owners[3] = Some(dead);
        stage.see_nearby(dead, 0);
        assert_eq!(stage.pairs.ideal_hz(Scene::Spatial), 30.0);
        stage.lose_server(dead);
        assert_eq!((stage.cell_owner(cell), stage.players[dead].is_live), (None, false));
        assert_eq!(stage.pairs.ideal_hz(Scene::Spatial), 0.0, "nobody knows who sees its player");
        assert_eq!(stage.death.orphans, BTreeSet::from([100 + dead as u32]));
        stage.log_in(dead);
        stage.servers[dead].connection = dead as u32 + 1;
        recovers(&mut stage, dead, (cell, ChannelType::Spatial), dead as u32 + 1, Any::default());
        recovers(&mut stage, dead, (cell + 1, ChannelType::Spatial), 1, Any::default());
        assert_eq!((stage.cell_owner(cell), stage.cell_owner(cell + 1)), (Some(dead), None));
        recovers_player(&mut stage, dead, 100 + dead as u32, 30.5);
        recovers_player_of(&mut stage, dead, 1, 100, 30.5);
        assert_eq!(stage.players[0].owner, 0, "it is that of another server");
        stage.end_recovery(dead);
        let player = &stage.players[dead];
        assert_eq!((player.is_live, player.owner, player.cell), (true, dead, cell_at(30.5, 45.0)));
        assert!(stage.death.restart.is_some() && stage.check().is_ok());
        assert_eq!((stage.owners(), stage.death.off_m_max.unwrap().round()), ([0, 0], 45.0));
        // The nine others are too far to see it. They may be subscribed all the same: that ends, and its own client is subscribed.
        stage.frame_number = dead as u64;
        stage.look_around();
        assert_eq!(stage.counts.resubscriptions, 10);
    }

    #[test]
    fn a_server_that_comes_back_is_not_taken_for_a_client() {
        let mut stage = world();
        let dead = stage.victim();
        stage.lose_server(dead);
        stage.is_ready = true;
        // The master hears of the login before the server itself.
        stage.waiting.push(dead as u32 + 1);
        stage.let_in();
        assert_eq!((stage.players.len(), stage.waiting.len()), (10, 0));
        stage.waiting.push(50);
        stage.let_in();
        assert_eq!(stage.players.len(), 11);
    }

    #[test]
    fn a_player_that_two_servers_have_is_counted() {
        let mut stage = world();
        let dead = stage.victim();
        stage.lose_server(dead);
        stage.servers[dead].connection = dead as u32 + 1;
        assert_eq!(stage.owners(), [0, 1], "nobody has that of the dead one");
        recovers_player(&mut stage, dead, 100, 30.0);
        assert_eq!(stage.owners(), [1, 1]);
        stage.give_away(0, entity_of(100), Some(dead));
        assert_eq!(stage.owners(), [1, 1], "it was so when the server came back");
        stage.give_away(1, entity_of(101), Some(0));
        assert_eq!(stage.owners(), [1, 2]);
        stage.hand_over(0, entity_of(101), FIRST_SPATIAL_CHANNEL);
        stage.hand_over(2, entity_of(101), FIRST_SPATIAL_CHANNEL);
        assert_eq!(stage.owners(), [2, 1], "the first one was not told");
    }

    #[test]
    fn a_player_on_its_way_to_a_server_that_dies_is_played_by_nobody() {
        let mut stage = world();
        let dead = stage.victim();
        // One whose owner has heard of it before, and one whose owner hears of it afterwards.
        stage.give_away(0, entity_of(100), Some(dead));
        stage.give_away(2, entity_of(101), Some(dead));
        stage.lose_server(dead);
        stage.give_away(2, entity_of(102), None);
        assert_eq!([0, 1, 2].map(|index| stage.players[index].is_live), [false, true, false]);
        assert_eq!(stage.death.orphans, BTreeSet::from([100, 102, 100 + dead as u32]));
    }
}
