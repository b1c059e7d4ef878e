//! A frame of the world servers.

use throng_channeld::message_type as kinds;
use throng_channeld::packet::Header;
use throng_channeld::{Broadcast, GLOBAL_CHANNEL};
use throng_wire::Time;

use super::stage::{MASTER, Stage};
use crate::load::Scene;
use crate::traffic::{acknowledgement, actor, entity_update, global_update};

impl Stage {
    /// A server that could not send its last frame yet skips this one: a game would wait too.
    pub(super) fn is_stalled(&self, server: usize) -> bool {
        self.servers[server].is_stalled
    }

    pub(super) fn play_frame(&mut self, now: Time) {
        self.frame_number += 1;
        for server in &mut self.servers {
            server.is_stalled = !server.outgoing.is_empty() || !server.is_set_up;
            if !server.is_set_up {
                // It is dead, or gets back what it had.
                continue;
            }
            self.counts.frames += u64::from(!server.is_stalled);
            self.counts.stalled += u64::from(server.is_stalled);
        }
        match self.load.scene {
            Scene::SingleRelay => {}
            Scene::SingleUnreal => self.write_global(now),
            Scene::Spatial | Scene::EntityLod => self.write_entities(now),
        }
        self.acknowledge();
        self.look_around();
    }

    /// One update with all actors.
    fn write_global(&mut self, now: Time) {
        if self.is_stalled(MASTER) || !self.players.iter().any(|player| player.is_live) {
            return;
        }
        let actors = self
            .players
            .iter()
            .filter(|player| player.is_live)
            .map(|player| (player.entity(), actor(&player.pose, now)));
        let update = global_update(actors.collect());
        let to = Header::new(GLOBAL_CHANNEL, kinds::CHANNEL_DATA_UPDATE);
        self.servers[MASTER].outgoing.message(to, &update);
    }

    fn write_entities(&mut self, now: Time) {
        for player in self.players.iter().filter(|player| player.is_live) {
            let server = &mut self.servers[player.owner];
            if !server.is_stalled {
                let to = Header::new(player.entity(), kinds::CHANNEL_DATA_UPDATE);
                server.outgoing.message(to, &entity_update(actor(&player.pose, now)));
            }
        }
    }

    /// One answer to each client that has called.
    fn acknowledge(&mut self) {
        let has_entities = self.load.scene.has_entities();
        for player in &self.players {
            let server = &mut self.servers[player.owner];
            let Some(number) = player.last_call.filter(|_| !server.is_stalled) else { continue };
            let channel = if has_entities { player.entity() } else { GLOBAL_CHANNEL };
            let broadcast = Broadcast::SINGLE_CONNECTION.0;
            let to = Header { broadcast, ..Header::new(channel, kinds::UNREAL_RPC) };
            server.outgoing.message(to, &acknowledgement(player.connection, number));
        }
    }
}
