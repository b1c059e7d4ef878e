//! The objects that have fields for everybody but their owner (`hide_from_owner`), by where they live. Each viewer needs a
//! subscription of its own to those fields of each of them, so only their comings and goings are of interest here.

use rustc_hash::FxHashMap;
use throng_replica::{ChannelKey, Placed, Replicator, SubscriberRow};
use throng_schema::Facet;
use throng_wire::{ConnectionId, ObjectId};

use super::{Looker, View, Views};
use throng_interest::CellId;

/// The objects with fields for others, and the channels of their public facets.
#[derive(Default)]
pub(crate) struct Others {
    /// The channel of each, by the object's index in the store.
    homes: FxHashMap<u32, ChannelKey>,
    /// In order.
    by_channel: Vec<(ChannelKey, u32)>,
    /// Channels that an object has entered or left, or in which one has changed hands, since the last look. In order.
    changed: Vec<ChannelKey>,
}

impl Others {
    pub(crate) fn len(&self) -> usize {
        self.homes.len().max(self.by_channel.len())
    }

    /// Reads which objects have entered and left channels. [`Others::changed`] then returns these channels.
    pub(crate) fn note(&mut self, replicator: &Replicator) {
        for placed in replicator.placed() {
            if let Placed::Entered { object, facet: Facet::Public, .. }
            | Placed::Left { object, facet: Facet::Public, .. } = *placed
            {
                self.set_home(object, home_of(object, replicator));
            }
        }
        if !self.changed.is_empty() {
            self.changed.sort_unstable();
            self.changed.dedup();
            self.by_channel.clear();
            self.by_channel.extend(self.homes.iter().map(|(&object, &home)| (home, object)));
            self.by_channel.sort_unstable();
        }
    }

    /// The object has a new owner, who must not follow it any longer, while the former owner now may.
    pub(crate) fn note_owner_change(&mut self, object: u32) {
        self.changed.extend(self.homes.get(&object));
    }

    /// The channels in which something has changed since [`Others::forget_changes`].
    pub(crate) fn changed(&self) -> &[ChannelKey] {
        &self.changed
    }

    /// Whether there are any.
    pub(crate) fn have_changed(&self) -> bool {
        !self.changed.is_empty()
    }

    pub(crate) fn forget_changes(&mut self) {
        self.changed.clear();
    }

    /// Adds the objects in a channel that do not belong to the viewer, with the interval of the channel.
    pub(crate) fn collect(
        &self,
        key: ChannelKey,
        interval: u16,
        (row, viewer): (&SubscriberRow<'_>, ConnectionId),
        wanted: &mut Vec<(ObjectId, u16)>,
    ) {
        let from = self.by_channel.partition_point(|&(channel, _)| channel < key);
        let in_channel = self.by_channel[from..].iter().take_while(|&&(channel, _)| channel == key);
        let ids = in_channel.map(|&(_, object)| row.store().id_at(object));
        wanted.extend(ids.filter(|&id| row.owner(id) != Some(viewer)).map(|id| (id, interval)));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_channel.is_empty()
    }

    fn set_home(&mut self, object: u32, home: Option<ChannelKey>) {
        let former = match home {
            Some(home) => self.homes.insert(object, home),
            None => self.homes.remove(&object),
        };
        self.changed.extend([former, home].into_iter().flatten());
    }
}

impl Looker {
    /// Subscribes the connection to the facets for everyone but the owner that have come into its view, and ends those that
    /// have left it.
    pub(super) fn update_others(&mut self, views: &Views, view: &mut View, row: &mut SubscriberRow<'_>) {
        let view_changed = std::mem::take(&mut view.cells_changed) | std::mem::take(&mut view.explicit_changed);
        if !view.is_live || (views.others.is_empty() && view.followed.is_empty()) {
            return;
        }
        #[cfg(test)]
        {
            self.looked_at += views.others.changed().len();
        }
        let is_concerned = view_changed || views.others.changed().iter().any(|&key| view.looks_into(key));
        if is_concerned || can_ask_again(view, row) {
            self.follow(views, view, row);
        }
    }

    /// Subscribes the connection to the facets for everyone but the owner, of all objects in the channels that it
    /// sees, and ends what it no longer sees.
    fn follow(&mut self, views: &Views, view: &mut View, row: &mut SubscriberRow<'_>) {
        self.wanted.clear();
        view.lacks_others = false;
        for (grid, (viewer, of_grid)) in view.viewers.iter().zip(&views.grids).enumerate() {
            let far = view.far.as_ref().filter(|far| usize::from(far.grid) == grid);
            for held in viewer.held() {
                let CellId { x, y, z } = held.cell;
                let interval = of_grid.interest.rings().interval_ticks(held.ring) as u16;
                let mut collect = |key| views.others.collect(key, interval, (row, view.connection), &mut self.wanted);
                match far {
                    Some(far) => far.keys(held.cell).for_each(collect),
                    None => collect(ChannelKey::Cell { grid: grid as u8, cell: [x, y, z] }),
                }
            }
        }
        for (&key, &(_, interval)) in &view.explicit {
            views.others.collect(key, interval, (row, view.connection), &mut self.wanted);
        }
        #[cfg(test)]
        {
            let cells: usize = view.viewers.iter().map(|viewer| viewer.held().len()).sum();
            self.looked_at += cells + view.explicit.len() + self.wanted.len();
        }
        self.wanted.sort_unstable();
        // Seen in several ways: the shortest interval counts.
        self.wanted.dedup_by_key(|&mut (object, _)| object);
        let (wanted, explicit) = (&self.wanted, &view.explicit);
        let by_hand = |object| explicit.contains_key(&ChannelKey::Entity { object, facet: Facet::Others });
        view.followed.retain(|object, (subscription, _)| {
            let stays = wanted.binary_search_by_key(object, |&(object, _)| object).is_ok() && !by_hand(*object);
            if !stays {
                row.unsubscribe(view.connection, *subscription);
            }
            stays
        });
        for &(object, interval) in wanted.iter().filter(|&&(object, _)| !by_hand(object)) {
            if let Some((subscription, present)) = view.followed.get_mut(&object) {
                if *present != interval
                    && let Some(connection) = row.connection_mut(view.connection)
                {
                    connection.set_interval(*subscription, interval);
                    *present = interval;
                }
                continue;
            }
            let key = ChannelKey::Entity { object, facet: Facet::Others };
            let channel = row.find(key);
            match channel.and_then(|channel| row.subscribe(view.connection, channel, interval, 1).ok()) {
                Some(subscription) => {
                    view.followed.insert(object, (subscription, interval));
                }
                None => {
                    self.refused += 1;
                    view.lacks_others = true;
                }
            }
        }
    }
}

/// Whether a facet that was refused can be subscribed to now.
fn can_ask_again(view: &View, row: &SubscriberRow<'_>) -> bool {
    view.lacks_others && row.connection(view.connection).is_some_and(|connection| connection.has_room())
}

/// Where the object lives that has this index now, if it has fields for others.
fn home_of(object: u32, replicator: &Replicator) -> Option<ChannelKey> {
    let store = replicator.store();
    let has_others = store.schema().kind(store.kind_id(object)).facet_mask(Facet::Others) != 0;
    let home = has_others.then(|| replicator.home(store.id_at(object), Facet::Public)).flatten()?;
    Some(replicator.hub_ref().key(home))
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::Arc;
    use std::time::Duration;

    use throng_net::{Condition, MemoryNetwork};
    use throng_replica::{Placement, Up};
    use throng_testkit::{Beacon, Walker};
    use throng_wire::Time;

    use super::*;
    use crate::{Client, ClientOptions, GridOptions, Key, Ring, Server, ServerOptions};

    const VIEWERS: u8 = 4;
    const CROWD: usize = 500;

    struct Town {
        server: Server,
        clients: Vec<Client>,
        crowd: Vec<ObjectId>,
        now: Time,
    }

    impl Town {
        fn new() -> Town {
            let network = MemoryNetwork::new(Condition::NONE, 1).expect("a good condition");
            let home = SocketAddr::from(([10, 0, 0, 1], 40_000));
            let schema = throng_testkit::schema();
            let options = ServerOptions {
                grids: vec![GridOptions {
                    rings: vec![Ring { radius_m: 15.0, interval_ticks: 1 }, Ring { radius_m: 40.0, interval_ticks: 4 }],
                    ..GridOptions::new(Up::Z)
                }],
                client_bytes_per_s: 2_000_000,
                ..ServerOptions::new(1, Key::new([1; 32]))
            };
            let issuer = options.token_issuer();
            let driver = Box::new(network.endpoint(home).expect("free"));
            let server = Server::new(driver, Arc::clone(&schema), options).expect("good options");
            let client = |number: u8| {
                let token = issuer.issue(number.into(), &[home]).expect("a token");
                let driver = Box::new(network.endpoint(([10, 1, 0, number], 50_000).into()).expect("free"));
                let options = ClientOptions::default();
                Client::new(driver, token, Arc::clone(&schema), options, Time(0)).expect("good options")
            };
            let clients = (1..=VIEWERS).map(client).collect();
            let mut town = Town { server, clients, crowd: Vec::new(), now: Time(0) };
            while town.server.connections().count() < usize::from(VIEWERS) {
                town.step(0.0);
            }
            for number in 0..CROWD {
                let beacon = Beacon { position: [(number % 60) as f32, (number / 10) as f32, 1.0], number: 0 };
                town.crowd.push(town.server.spawn(beacon, Placement::Cell(0)).expect("room"));
            }
            town.look_from(30.0);
            (0..60).for_each(|_| town.step(4.0));
            assert!(town.clients.iter().all(|client| client.ids().count() > CROWD / 2), "the viewers see the crowd");
            town
        }

        /// All of the crowd walk so far, and so into other cells.
        fn step(&mut self, by_m: f32) {
            self.now = self.now.after(Duration::from_micros(33_333));
            self.server.receive(self.now).expect("in memory");
            while self.server.poll_event().is_some() {}
            for &id in &self.crowd {
                let x = &mut self.server.get_mut::<Beacon>(id).expect("it is there").position[0];
                *x = (*x + by_m) % 60.0;
            }
            self.server.tick(self.now);
            for client in &mut self.clients {
                client.update(self.now).expect("in memory");
                while client.poll_event().is_some() {}
            }
        }

        fn look_from(&mut self, x_m: f64) {
            let connections: Vec<_> = self.server.connections().collect();
            connections.into_iter().for_each(|id| self.server.set_viewpoint(id, [x_m, 30.0, 1.0]));
        }

        fn looked_at(&self) -> usize {
            self.server.replication().views.looked_at
        }

        /// The number of fields that are looked at in this many ticks in which the crowd walks.
        fn work(&mut self, ticks: usize, mut each: impl FnMut(&mut Town, usize)) -> usize {
            let before = self.looked_at();
            for tick in 0..ticks {
                each(self, tick);
                self.step(4.0);
            }
            self.looked_at() - before
        }

        /// The values that clients know of fields for others.
        fn heard(&self, id: ObjectId) -> Vec<Option<Vec<u8>>> {
            self.clients.iter().map(|client| client.get::<Walker>(id).map(|walker| walker.rumour)).collect()
        }
    }

    #[test]
    fn a_crowd_without_secrets_costs_nothing_for_the_sake_of_secrets() {
        let mut town = Town::new();
        let walk = |town: &mut Town, tick: usize| town.look_from(20.0 + tick as f64);
        assert_eq!(town.work(20, walk), 0, "the schema has secrets, and nobody has one");

        let owner = town.server.connections().next();
        let walker = |x| Walker { position: [x, 30.0, 1.0], rumour: vec![7], ..Walker::default() };
        let spawn = |town: &mut Town, x| town.server.spawn_owned(walker(x), Placement::Cell(0), owner).expect("room");
        let three = [25.0, 35.0, 45.0].map(|x| spawn(&mut town, x));
        town.look_from(30.0);
        (0..20).for_each(|_| town.step(4.0));
        let expected: Vec<_> = (0..VIEWERS).map(|viewer| Some(if viewer == 0 { vec![] } else { vec![7] })).collect();
        assert!(three.iter().all(|&id| town.heard(id) == expected), "all but the owner hear the rumours");
        assert_eq!(town.work(20, |_, _| {}), 0, "nobody with a secret moves, and no viewer");

        // A viewer looks at its cells, and at the three, when either of them change.
        let cells = town.clients[1].replica().expect("connected").channels().count();
        let ticks = 20;
        let shuttle = |town: &mut Town, tick: usize| {
            town.server.get_mut::<Walker>(three[0]).expect("it is there").position[0] = [25.0, 15.0][tick % 2];
        };
        let work = town.work(ticks, shuttle);
        let limit = ticks * usize::from(VIEWERS) * (2 + cells + 3);
        assert!(0 < work && work <= limit, "{work} looks, and {limit} are enough beside a crowd of {CROWD}");
        assert!(town.heard(three[0])[1].is_some());

        // Out of sight of all: they are asked only whether they see the two channels.
        town.server.get_mut::<Walker>(three[0]).expect("it is there").position[0] = 500.0;
        (0..5).for_each(|_| town.step(4.0));
        let far = |town: &mut Town, tick: usize| {
            town.server.get_mut::<Walker>(three[0]).expect("it is there").position[0] = [520.0, 540.0][tick % 2];
        };
        assert_eq!(town.work(ticks, far), ticks * usize::from(VIEWERS) * 2);

        let subscriptions = |town: &Town| {
            let hub = town.server.replicator().hub_ref();
            let ids = town.server.connections();
            ids.map(|id| hub.connection(id).expect("it is there").subscription_count()).sum::<usize>()
        };
        let with_secrets = subscriptions(&town);
        three.iter().for_each(|&id| town.server.despawn(id));
        (0..5).for_each(|_| town.step(4.0));
        assert_eq!(with_secrets - subscriptions(&town), 2 * (usize::from(VIEWERS) - 1), "two were followed by three");
        assert_eq!(town.work(20, walk), 0, "they have gone");
    }
}
