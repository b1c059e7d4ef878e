//! Subscriptions of clients to entities, and their rates.

use throng_channeld::FIRST_SPATIAL_CHANNEL;
use throng_channeld::message_type as kinds;
use throng_channeld::packet::Header;
use throng_channeld::proto::spatial_interest_query::SphereAoi;
use throng_channeld::proto::{
    ChannelDataAccess, SpatialInterestQuery, SubscribedToChannelMessage, UnsubscribedFromChannelMessage,
    UpdateSpatialInterestMessage,
};

use super::arrival::{options, spot};
use super::stage::Stage;
use crate::load::{CM_PER_M, FAN_OUT_MS, FRAME_HZ, GRID_CELLS, INTEREST_M, LOD_BANDS, NEAR_M, Scene, connection_of};
use crate::motion::{CELL_M, SPEED_M_PER_S};
use crate::traffic::Pose;

/// Subscriptions that may be under way to the gateway at once: it sets the pace of a large start.
const UNANSWERED_MAX: usize = 1_000;
/// Each pair is looked at again after this many frames.
const SPATIAL_LOOK_FRAMES: u64 = 10;
const LOD_LOOK_FRAMES: u64 = 30;

/// A client as far from a cell as this may be subscribed to it: its sphere follows it from cell to cell.
const REACH_M: f32 = INTEREST_M + CELL_M;
/// Of a player whose server has come back, clients as near as this may be subscribed. The player was anywhere in its cell, and both have
/// walked on for a second and a half.
const DOUBT_M: f32 = REACH_M + CELL_M * std::f32::consts::SQRT_2 + 3.0 * SPEED_M_PER_S;

/// Not subscribed.
const APART: u8 = u8::MAX;
/// Perhaps subscribed: by the gateway when the entity came into a cell that the client is subscribed to, or by a server that
/// has died.
const STRAY: u8 = u8::MAX - 1;

/// For each pair of players the band in which the second's client sees the first's entity.
#[derive(Default)]
pub(super) struct Pairs {
    /// By entity, then by client.
    bands: Vec<Vec<u8>>,
    /// Pairs in each band.
    counts: [u64; LOD_BANDS.len()],
}

impl Pairs {
    pub(super) fn add_player(&mut self) {
        self.bands.iter_mut().for_each(|row| row.push(APART));
        self.bands.push(vec![APART; self.bands.len() + 1]);
    }

    fn band(&self, entity: usize, client: usize) -> u8 {
        self.bands[entity][client]
    }

    fn set(&mut self, entity: usize, client: usize, band: u8) {
        let before = std::mem::replace(&mut self.bands[entity][client], band);
        if let Some(count) = self.counts.get_mut(before as usize) {
            *count -= 1;
        }
        if let Some(count) = self.counts.get_mut(band as usize) {
            *count += 1;
        }
    }

    /// Updates per second that all clients together should get.
    pub(super) fn ideal_hz(&self, scene: Scene) -> f64 {
        let hz = |(_, interval_ms): (f32, u32)| match scene {
            Scene::EntityLod => 1_000.0 / f64::from(interval_ms),
            _ => f64::from(FRAME_HZ),
        };
        LOD_BANDS.iter().zip(&self.counts).map(|(&band, &count)| hz(band) * count as f64).sum()
    }
}

fn band_of(distance_m: f32) -> u8 {
    LOD_BANDS.iter().position(|(radius_m, _)| distance_m < *radius_m).unwrap_or(LOD_BANDS.len() - 1) as u8
}

impl Stage {
    /// The new player shall see everybody, and everybody the new player.
    pub(super) fn queue_everybody(&mut self, index: usize) {
        for other in (0..self.players.len()).filter(|&other| self.players[other].is_live) {
            self.queue.push_back((index as u32, other as u32));
            if other != index {
                self.queue.push_back((other as u32, index as u32));
            }
        }
    }

    pub(super) fn subscribe_queued(&mut self) {
        while self.unanswered < UNANSWERED_MAX {
            let Some((client, entity)) = self.queue.pop_front() else { return };
            let (client, entity) = (client as usize, entity as usize);
            let distance_m = self.players[client].pose.distance_m(&self.players[entity].pose);
            self.unanswered += 1;
            self.see(entity, client, band_of(distance_m), 1);
        }
    }

    /// Subscribes a client to an entity in a band, or changes its interval.
    fn see(&mut self, entity: usize, client: usize, band: u8, stub: u32) {
        let interval_ms = match self.load.scene {
            Scene::EntityLod => LOD_BANDS[band as usize].1,
            _ => FAN_OUT_MS,
        };
        self.pairs.set(entity, client, band);
        let subscribe = SubscribedToChannelMessage {
            conn_id: self.players[client].connection,
            sub_options: options(ChannelDataAccess::ReadAccess, interval_ms),
        };
        let (owner, channel) = (self.players[entity].owner, self.players[entity].entity());
        let to = Header::new(channel, kinds::SUB_TO_CHANNEL).with_stub(stub);
        self.servers[owner].outgoing.message(to, &subscribe);
    }

    pub(super) fn see_nearby(&mut self, entity: usize, client: usize) {
        self.see(entity, client, 0, 0);
    }

    fn unsee(&mut self, entity: usize, client: usize) {
        self.pairs.set(entity, client, APART);
        let unsubscribe = UnsubscribedFromChannelMessage { conn_id: self.players[client].connection };
        let (owner, channel) = (self.players[entity].owner, self.players[entity].entity());
        self.servers[owner].outgoing.message(Header::new(channel, kinds::UNSUB_FROM_CHANNEL), &unsubscribe);
    }

    /// Looks at the pairs whose turn it is in this frame.
    pub(super) fn look_around(&mut self) {
        let frames = match self.load.scene {
            Scene::Spatial => SPATIAL_LOOK_FRAMES,
            Scene::EntityLod => LOD_LOOK_FRAMES,
            Scene::SingleRelay | Scene::SingleUnreal => return,
        };
        let first = (self.frame_number % frames) as usize;
        for entity in (first..self.players.len()).step_by(frames as usize) {
            let owner = self.players[entity].owner;
            if !self.players[entity].is_live || self.is_stalled(owner) {
                continue;
            }
            for client in 0..self.players.len() {
                self.look(entity, client);
            }
        }
    }

    fn look(&mut self, entity: usize, client: usize) {
        let distance_m = self.players[client].pose.distance_m(&self.players[entity].pose);
        let band = self.pairs.band(entity, client);
        match self.load.scene {
            Scene::EntityLod if band != APART && band != band_of(distance_m) => {
                self.counts.resubscriptions += 1;
                self.see(entity, client, band_of(distance_m), 0);
            }
            Scene::Spatial if band >= STRAY && distance_m < NEAR_M.0 && self.players[client].is_live => {
                self.counts.resubscriptions += 1;
                self.see(entity, client, 0, 0);
            }
            Scene::Spatial if band == STRAY || band == 0 && distance_m > NEAR_M.1 => {
                self.counts.resubscriptions += 1;
                self.unsee(entity, client);
            }
            _ => {}
        }
    }

    /// The sphere of interest of a client goes where its player is.
    pub(super) fn update_interest(&mut self, index: usize) {
        let player = &self.players[index];
        let sphere = SphereAoi { center: Some(spot(&player.pose)), radius: f64::from(INTEREST_M * CM_PER_M) };
        let query = SpatialInterestQuery { sphere_aoi: Some(sphere), ..SpatialInterestQuery::default() };
        let update = UpdateSpatialInterestMessage { conn_id: player.connection, query: Some(query) };
        let to = Header::new(player.cell, kinds::UPDATE_SPATIAL_INTEREST);
        self.servers[player.owner].outgoing.message(to, &update);
    }

    /// The server of a player has died, and with it what it knew of those who see the player.
    pub(super) fn forget_viewers(&mut self, entity: usize) {
        (0..self.players.len()).for_each(|client| self.pairs.set(entity, client, APART));
    }

    /// Nobody knows which clients see the players of a server that has come back.
    pub(super) fn doubt_pairs(&mut self) {
        for entity in 0..self.players.len() {
            if !std::mem::take(&mut self.players[entity].is_doubtful) {
                continue;
            }
            for client in 0..self.players.len() {
                let distance_m = self.players[client].pose.distance_m(&self.players[entity].pose);
                self.pairs.set(entity, client, if distance_m < DOUBT_M { STRAY } else { APART });
            }
        }
    }

    /// The gateway says that an entity is in another cell, which this server owns.
    pub(super) fn hand_over(&mut self, server: usize, entity: u32, cell: u32) {
        let Some(index) = self.player_of(connection_of(entity)) else { return };
        let player = &mut self.players[index];
        self.servers[server].owned.insert(player.connection);
        (player.owner, player.next, player.cell, player.is_live) = (server, None, cell, true);
        self.update_interest(index);
        // The gateway has subscribed all subscribers of the cell to the entity, near or not.
        for client in 0..self.players.len() {
            if self.pairs.band(index, client) == APART && distance_to_cell_m(&self.players[client].pose, cell) < REACH_M
            {
                self.pairs.set(index, client, STRAY);
            }
        }
    }
}

/// The cell at a place.
pub(super) fn cell_at(x_m: f32, y_m: f32) -> u32 {
    let number = |at_m: f32| ((at_m / CELL_M) as u32).min(GRID_CELLS - 1);
    FIRST_SPATIAL_CHANNEL + number(y_m) * GRID_CELLS + number(x_m)
}

fn distance_to_cell_m(pose: &Pose, cell: u32) -> f32 {
    let place = cell.wrapping_sub(FIRST_SPATIAL_CHANNEL);
    let off = |at_m: f32, number: u32| {
        let low_m = number as f32 * CELL_M;
        (low_m - at_m).max(at_m - low_m - CELL_M).max(0.0)
    };
    off(pose.x_m, place % GRID_CELLS).hypot(off(pose.y_m, place / GRID_CELLS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::motion::SIDE_M;

    #[test]
    fn bands_are_as_published() {
        let intervals = [0.0, 9.9, 10.0, 49.9, 50.0, 400.0].map(|distance_m| LOD_BANDS[band_of(distance_m) as usize].1);
        assert_eq!(intervals, [50, 50, 100, 100, 1_000, 1_000]);
    }

    #[test]
    fn the_ideal_rate_is_the_sum_over_pairs() {
        let mut pairs = Pairs::default();
        (0..3).for_each(|_| pairs.add_player());
        pairs.set(0, 1, 0);
        pairs.set(1, 0, 1);
        pairs.set(2, 0, 2);
        assert_eq!(pairs.ideal_hz(Scene::EntityLod), 20.0 + 10.0 + 1.0);
        pairs.set(1, 0, 2);
        pairs.set(0, 1, APART);
        pairs.set(0, 2, STRAY);
        assert_eq!(pairs.ideal_hz(Scene::EntityLod), 2.0);
        assert_eq!(pairs.ideal_hz(Scene::Spatial), 60.0);
    }

    #[test]
    fn a_place_lies_in_its_cell() {
        assert_eq!(cell_at(0.0, 0.0), FIRST_SPATIAL_CHANNEL);
        assert_eq!(cell_at(SIDE_M, SIDE_M), FIRST_SPATIAL_CHANNEL + GRID_CELLS * GRID_CELLS - 1);
        for (x_m, y_m) in [(19.9, 20.1), (150.0, 299.0), (77.0, 3.0)] {
            let pose = Pose { x_m, y_m, ..Pose::default() };
            assert_eq!(distance_to_cell_m(&pose, cell_at(x_m, y_m)), 0.0, "{x_m} {y_m}");
        }
    }

    #[test]
    fn a_cell_has_a_distance() {
        let pose = Pose { x_m: 10.0, y_m: 10.0, ..Pose::default() };
        assert_eq!(distance_to_cell_m(&pose, FIRST_SPATIAL_CHANNEL), 0.0);
        assert_eq!(distance_to_cell_m(&pose, FIRST_SPATIAL_CHANNEL + 2), 30.0);
        assert_eq!(distance_to_cell_m(&pose, FIRST_SPATIAL_CHANNEL + GRID_CELLS), 10.0);
    }
}
