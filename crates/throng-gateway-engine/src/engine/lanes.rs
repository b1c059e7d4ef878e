//! The fan-out's side of [state that may be lost](super::movement): which subscriptions have a lane, and what becomes of
//! frames that were sent on one.

use throng_replica::SubscriptionId;
use throng_wire::Time;

use super::Engine;
use super::channel::{Access, Wanted};
use super::connection::Connection;
use super::connections::Connections;
use super::counters::Counters;
use super::fanout::Fanout;
use super::port::{Fate, Key};

impl Fanout {
    /// Gives a subscription a lane, if its state may get lost: `may_lose` says so of its channel. All that it was sent so
    /// far went the reliable way.
    pub(super) fn begin_lane(
        &mut self,
        connection: &mut Connection,
        may_lose: bool,
        (id, wanted): (SubscriptionId, Wanted),
    ) {
        let has_lane = may_lose && !wanted.reliable && wanted.access != Access::None;
        if connection.movement.is_none() {
            if !has_lane || connection.datagrams().is_none() {
                return;
            }
            connection.movement = Some(Box::default());
            self.add_mover(connection.key);
        }
        if let Some(movement) = &mut connection.movement {
            movement.assign(id, has_lane);
        }
        if has_lane && let Some(stream) = self.hub.connection_mut(connection.hub_id()) {
            stream.keep_track(id);
        }
    }

    /// An existing subscription now wants its state the reliable way, or no longer does.
    pub(super) fn change_lane(
        &mut self,
        connection: &mut Connection,
        may_lose: bool,
        (id, wanted): (SubscriptionId, Wanted),
    ) {
        let has_lane = connection.movement.as_mut().is_some_and(|movement| movement.set_plain(id, wanted.reliable));
        if !has_lane {
            self.begin_lane(connection, may_lose, (id, wanted));
        }
    }

    /// Before a plan: state that has arrived need not be sent again.
    pub(super) fn take_all_fates(&mut self, connections: &mut Connections, counters: &mut Counters) {
        for key in self.take_movers() {
            if let Some(index) = connections.place(key) {
                self.take_fates(connections.at_mut(index), counters);
                self.add_mover(key);
            }
        }
    }

    fn take_fates(&mut self, connection: &mut Connection, counters: &mut Counters) {
        let hub = connection.hub_id();
        let Some(mut movement) = connection.movement.take() else { return };
        if let Some(datagrams) = connection.datagrams() {
            movement.take_fates(datagrams, |ticket, fate| match fate {
                Fate::Delivered => {
                    counters.datagrams_delivered += 1;
                    if let Some(stream) = self.hub.connection_mut(hub) {
                        stream.delivered(ticket.subscription, ticket.tick);
                    }
                }
                Fate::Lost => {
                    counters.datagrams_lost += 1;
                    self.hub.stream_lost(hub, ticket.subscription, ticket.tick);
                }
            });
        }
        connection.movement = Some(movement);
    }
}

impl Engine {
    /// The transport knows the results of some datagrams of a connection. It need not report if all arrived.
    pub fn datagrams_settled(&mut self, now: Time, key: Key) {
        self.clock.set(now);
        if let Some(index) = self.connections.place(key) {
            self.fanout.take_fates(self.connections.at_mut(index), &mut self.counters);
        }
    }
}
