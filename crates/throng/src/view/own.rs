//! The objects that each connection owns, and the channels in which they live.

use throng_replica::ChannelKey;
use throng_wire::ObjectId;

/// The weight of the owner's private channel, and of the channels in which its objects live; other channels have 1.
pub(crate) const OWN_WEIGHT: u8 = 8;

/// The place of each object in the list of its owner, by the object's index.
#[derive(Default)]
pub(crate) struct ListPlaces(Vec<u32>);

impl ListPlaces {
    fn set(&mut self, id: ObjectId, place: usize) {
        let index = id.index as usize;
        if self.0.len() <= index {
            self.0.resize(index + 1, 0);
        }
        self.0[index] = place as u32;
    }

    fn of(&self, id: ObjectId) -> Option<usize> {
        self.0.get(id.index as usize).map(|&place| place as usize)
    }
}

/// The objects that a connection owns, and their channels, which come first when the budget is short.
#[derive(Default)]
pub(crate) struct Own {
    /// In no particular order.
    objects: Vec<ObjectId>,
    /// Where their public facets lived at the last look, in order.
    pub(super) channels: Vec<ChannelKey>,
    /// One of them has come, gone, or gone to another channel since.
    pub(crate) has_moved: bool,
}

impl Own {
    pub(crate) fn add(&mut self, id: ObjectId, places: &mut ListPlaces) {
        places.set(id, self.objects.len());
        self.objects.push(id);
        self.has_moved = true;
    }

    /// Takes an object off the list. The last one takes its place, so that many cost no more than one by one.
    pub(crate) fn remove(&mut self, id: ObjectId, places: &mut ListPlaces) {
        let Some(place) = places.of(id).filter(|&place| self.objects.get(place) == Some(&id)) else { return };
        self.objects.swap_remove(place);
        if let Some(&moved) = self.objects.get(place) {
            places.set(moved, place);
        }
        self.has_moved = true;
    }

    pub(crate) fn objects(&self) -> &[ObjectId] {
        &self.objects
    }

    /// The weight of a channel for this connection. Nobody but the owner is subscribed to an owner's channel.
    pub(crate) fn weight(&self, key: ChannelKey) -> u8 {
        let is_own = matches!(key, ChannelKey::Owner(_)) || self.channels.binary_search(&key).is_ok();
        if is_own { OWN_WEIGHT } else { 1 }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::{Duration, Instant};

    use throng_wire::ConnectionId;

    use super::*;

    #[test]
    fn a_client_s_own_channel_has_its_weight_whether_something_lives_there_or_not() {
        let mut own = Own::default();
        let (of_the_client, elsewhere) =
            (ChannelKey::Owner(ConnectionId { index: 3, generation: 1 }), ChannelKey::Custom(1));
        assert_eq!([of_the_client, elsewhere].map(|key| own.weight(key)), [OWN_WEIGHT, 1]);
        own.channels.push(elsewhere);
        assert_eq!([of_the_client, elsewhere].map(|key| own.weight(key)), [OWN_WEIGHT; 2]);
    }

    #[test]
    fn sixteen_times_as_many_objects_that_end_take_about_sixteen_times_as_long() {
        let time = |count: u32| {
            let ids = || (0..count).map(|index| ObjectId { index, generation: 1 });
            let once = || {
                let (mut own, mut places) = (Own::default(), ListPlaces::default());
                ids().for_each(|id| own.add(id, &mut places));
                let start = Instant::now();
                ids().for_each(|id| own.remove(id, &mut places));
                assert!(own.objects().is_empty());
                start.elapsed()
            };
            (0..5).map(|_| once()).min().unwrap_or(Duration::ZERO)
        };
        let (few, many) = (time(1_500), time(24_000));
        // It would be 256 times, if the list was gone through for each.
        assert!(many < few * 80, "{few:?} and {many:?}");
    }

    #[test]
    fn two_owners_have_the_objects_that_they_were_given_and_have_not_given_away() {
        let mut random = fastrand::Rng::with_seed(3);
        let mut places = ListPlaces::default();
        let mut lists: [(Own, BTreeSet<ObjectId>); 2] = Default::default();
        for generation in 0..2_000 {
            let (index, owner) = (random.u32(..40), random.usize(..2));
            // Only one object has the index, and only one owner has the object.
            for (own, expected) in &mut lists {
                if let Some(&former) = expected.iter().find(|id| id.index == index) {
                    own.remove(former, &mut places);
                    expected.remove(&former);
                }
                own.remove(ObjectId { index, generation }, &mut places);
            }
            if random.bool() {
                let id = ObjectId { index, generation };
                lists[owner].0.add(id, &mut places);
                lists[owner].1.insert(id);
            }
            for (own, expected) in &lists {
                assert_eq!(own.objects().iter().copied().collect::<BTreeSet<_>>(), *expected);
                assert_eq!(own.objects().len(), expected.len());
            }
        }
    }
}
