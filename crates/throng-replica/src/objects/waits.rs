//! Waits of objects: for a cell's next turn, or for late packets to be too late.

use std::collections::{BTreeSet, VecDeque};

use throng_schema::Facet;
use throng_wire::Tick;

use super::{Objects, ReplicaObject};
use crate::client::DespawnReason;

/// A wait for a cell's next turn, or for late packets to be too late.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wait {
    ticket: u64,
    /// The subscription that is going to introduce it. `None` if it has ended or gone, and is only remembered.
    pub(super) subscription: Option<u16>,
}

pub(super) fn awaits_turn(wait: Option<Wait>) -> bool {
    wait.is_some_and(|wait| wait.subscription.is_some())
}

/// The queue of waits may be so many times as long as there are objects: each can wait for two cells.
const WAITS_PER_OBJECT: usize = 4;

/// How many ended waits the queue of waits may hold before it is cleared of them.
const WAITS_SLACK: usize = 16;

/// The waits of all objects.
#[derive(Debug, Default)]
pub(super) struct Waits {
    /// In the order in which they began. Some are over.
    queue: VecDeque<WaitEntry>,
    /// The waits for the turn of a cell, by subscription, object and facet: exactly those in force.
    turns: BTreeSet<(u16, u32, Facet)>,
    /// The objects that are only remembered, by the ticket of their wait: exactly those that may be forgotten.
    remembered: BTreeSet<(u64, u32)>,
    next_ticket: u64,
}

/// A wait of the object at `index`, over when the object no longer holds this ticket.
#[derive(Clone, Copy, Debug)]
struct WaitEntry {
    index: u32,
    facet: Facet,
    ticket: u64,
    since: Tick,
}

impl ReplicaObject {
    fn wait_mut(&mut self, facet: Facet) -> &mut Option<Wait> {
        if facet == Facet::Far { &mut self.far_wait } else { &mut self.wait }
    }

    /// The ticket of its wait, if it waits for late packets alone and nothing points to it.
    fn remembered(&self) -> Option<u64> {
        let is_needed = self.references > 0 || awaits_turn(self.wait) || awaits_turn(self.far_wait);
        self.wait.filter(|_| !is_needed).map(|wait| wait.ticket)
    }
}

impl Objects {
    pub(crate) fn wait_count(&self) -> usize {
        self.waits.queue.len()
    }

    /// Ends the waits that have lasted for longer than `limit_ticks`.
    pub(crate) fn end_waits(&mut self, now: Tick, limit_ticks: u32) {
        self.now = now;
        while let Some(&entry) = self.waits.queue.front() {
            if now.since(entry.since) <= limit_ticks {
                return;
            }
            self.waits.queue.pop_front();
            if self.is_waiting(entry) {
                self.end_wait(entry.index, entry.facet);
            }
        }
    }

    /// Ends the waits for a subscription that has ended, and looks at no other waits.
    pub(crate) fn end_waits_for(&mut self, subscription: u16) {
        let all = (subscription, 0, Facet::Public)..=(subscription, u32::MAX, Facet::Far);
        while let Some(&wait) = self.waits.turns.range(all.clone()).next() {
            self.waits.turns.remove(&wait);
            self.end_wait(wait.1, wait.2);
        }
    }

    /// The home of the object's facet is a channel whose turn has not come.
    pub(super) fn await_turn(&mut self, (index, facet): (u32, Facet), subscription: u16, since: Tick) {
        let ticket = self.queue_wait((index, facet), since);
        self.set_wait(index, facet, Some(Wait { ticket, subscription: Some(subscription) }));
    }

    /// The object has ended or gone, and is kept until late packets are too late.
    pub(super) fn remember(&mut self, index: u32, since: Tick) {
        let ticket = self.queue_wait((index, Facet::Public), since);
        self.set_wait(index, Facet::Public, Some(Wait { ticket, subscription: None }));
    }

    /// Begins or ends the wait of an object's facet: nothing else does.
    pub(super) fn set_wait(&mut self, index: u32, facet: Facet, wait: Option<Wait>) {
        let Some(former) = self.change(index, |object| std::mem::replace(object.wait_mut(facet), wait)) else { return };
        if let Some(subscription) = former.and_then(|wait| wait.subscription) {
            self.waits.turns.remove(&(subscription, index, facet));
        }
        if let Some(subscription) = wait.and_then(|wait| wait.subscription) {
            self.waits.turns.insert((subscription, index, facet));
        }
    }

    /// Queues a wait. The queue stays in proportion to the objects, however often they come and go in between.
    fn queue_wait(&mut self, (index, facet): (u32, Facet), since: Tick) -> u64 {
        if self.waits.queue.len() >= WAITS_PER_OBJECT * self.slab.len() + WAITS_SLACK {
            let mut queue = std::mem::take(&mut self.waits.queue);
            queue.retain(|&entry| self.is_waiting(entry));
            self.waits.queue = queue;
        }
        let ticket = self.waits.next_ticket;
        self.waits.next_ticket += 1;
        self.waits.queue.push_back(WaitEntry { index, facet, ticket, since });
        ticket
    }

    fn is_waiting(&self, entry: WaitEntry) -> bool {
        let object = self.get(entry.index);
        let wait = object.and_then(|object| if entry.facet == Facet::Far { object.far_wait } else { object.wait });
        wait.is_some_and(|wait| wait.ticket == entry.ticket)
    }

    pub(super) fn end_wait(&mut self, index: u32, facet: Facet) {
        let Some(object) = self.get_mut(index) else { return };
        let (before, awaited_turn) = (object.sight(), awaits_turn(*object.wait_mut(facet)));
        self.set_wait(index, facet, None);
        if awaited_turn {
            self.look_again(index, before, DespawnReason::OutOfSight);
            self.forget_if_unused(index);
        } else if self.is_unused(index) {
            self.forget(index);
        }
    }

    /// Makes room where there is none: late packets of an object that has ended or gone are taken for possible no longer.
    pub(super) fn forget_a_remembered_one(&mut self) {
        if let Some(&(_, index)) = self.waits.remembered.first() {
            self.end_wait(index, Facet::Public);
        }
    }

    /// Changes an object's waits, or how many things point to it: nothing else does.
    pub(super) fn change<T>(&mut self, index: u32, change: impl FnOnce(&mut ReplicaObject) -> T) -> Option<T> {
        let object = self.slab.get_mut(index as usize)?.as_mut()?;
        let before = object.remembered();
        let result = change(object);
        let after = object.remembered();
        if before != after {
            if let Some(ticket) = before {
                self.waits.remembered.remove(&(ticket, index));
            }
            if let Some(ticket) = after {
                self.waits.remembered.insert((ticket, index));
            }
        }
        Some(result)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use throng_schema::{Replicate, Schema};
    use throng_wire::{KindId, ObjectId};

    use super::super::Departure;
    use super::*;

    #[derive(Clone, Debug, Default, PartialEq, Replicate)]
    struct Spark {
        #[replicate(integer)]
        heat: u8,
    }

    /// A client that knows of one object, and has not seen it in any channel.
    fn one_object() -> (Objects, u32) {
        let schema = Arc::new(Schema::builder().kind::<Spark>().build().expect("a good schema"));
        let mut objects = Objects::new(schema);
        let index = insert(&mut objects, 1, 1).expect("room");
        (objects, index)
    }

    fn insert(objects: &mut Objects, number: u32, limit: usize) -> Option<u32> {
        let (schema, kind) = (Arc::clone(&objects.schema), KindId(0));
        objects.insert(schema.kind(kind), kind, ObjectId { index: number, generation: 1 }, limit).ok()
    }

    #[test]
    fn an_object_is_passed_on_by_the_channel_that_it_is_awaited_in_and_by_no_other() {
        let (mut objects, index) = one_object();
        let awaited_in = |objects: &Objects| objects.get(index)?.wait?.subscription;
        objects.retain(index);
        objects.await_turn((index, Facet::Public), 5, Tick(10));
        objects.pass_on(index, 4, Tick(11), Departure::To(3));
        assert_eq!(awaited_in(&objects), Some(5));
        objects.pass_on(index, 5, Tick(12), Departure::To(6));
        assert_eq!(awaited_in(&objects), Some(6));
    }

    #[test]
    fn waits_that_are_over_take_no_memory_however_many_they_were() {
        let (mut objects, index) = one_object();
        objects.retain(index);
        for tick in 0..1_000 {
            objects.await_turn((index, Facet::Public), 5, Tick(tick));
            objects.set_wait(index, Facet::Public, None);
            assert!(
                objects.wait_count() <= WAITS_PER_OBJECT + WAITS_SLACK,
                "{} waits of one object",
                objects.wait_count()
            );
        }
    }

    #[test]
    fn exactly_the_objects_that_are_only_remembered_may_be_forgotten_and_the_oldest_goes_first() {
        let mut rng = fastrand::Rng::with_seed(11);
        let (mut objects, _) = one_object();
        let mut forgotten = 0;
        for number in 0..20_000 {
            let index = rng.u32(..12);
            let count = objects.get(index).map_or(0, |object| object.references);
            let (facet, tick) = (*rng.choice(&[Facet::Public, Facet::Far]).expect("two"), Tick(number));
            let oldest = objects.iter().filter_map(|object| Some((object.remembered()?, object.id))).min();
            match rng.u8(..8) {
                0 | 1 => {
                    let is_full = objects.held_count() == 12;
                    let came = insert(&mut objects, 10 + number as u32, 12);
                    assert_eq!(came.is_some(), !is_full || oldest.is_some());
                    if let Some((_, id)) = oldest.filter(|_| is_full) {
                        assert_eq!(objects.find(id), None);
                        forgotten += 1;
                    }
                }
                2 => objects.retain(index),
                3 | 4 if count > 0 => objects.release(index),
                5 => {
                    let Some(before) = objects.get(index).map(ReplicaObject::sight) else { continue };
                    objects.await_turn((index, facet), rng.u16(..3), tick);
                    objects.look_again(index, before, DespawnReason::OutOfSight);
                }
                6 => objects.end(index, tick),
                7 if rng.u8(..4) == 0 => objects.end_waits_for(rng.u16(..3)),
                _ => objects.end_waits(tick, 40),
            }
            let known = objects.slab.iter().enumerate().filter_map(|(index, object)| {
                let object = object.as_ref()?;
                let may_be_forgotten = object.references == 0
                    && object.wait.is_some_and(|wait| wait.subscription.is_none())
                    && object.far_wait.is_none_or(|wait| wait.subscription.is_none());
                may_be_forgotten.then_some((object.wait?.ticket, index as u32))
            });
            assert_eq!(objects.waits.remembered, known.collect());
        }
        assert!(forgotten > 100, "{forgotten}");
    }
}
