//! The copy of an origin's objects in an edge's server.
//!
//! Values are copied as they came, quantised. A position with `predict` is an exception: its origin states it seldom, and both
//! sides compute it in between. So the copy is given the computed position in each tick, and the edge's server, which computes the
//! same line, states it again only when the origin has. The two lines agree as long as ticks of the edge stand for ticks of the
//! origin one by one. Packets come early and late, so the edge does not take the newest tick that came: it counts on from there,
//! and counts anew when it is off by more than [`DRIFT_TICKS`]. While nothing comes at all it counts on for a while, because
//! packets that are late are no reason for a jump, and then waits.

use rustc_hash::{FxHashMap, FxHashSet};
use throng::schema::{Quantiser, Values};
use throng::{ClientCore, ConnectionId, KindId, LimitReached, ObjectId, ObjectView, Placement, Server, Tick};

/// An edge counts the ticks of an origin at most so many ticks too far, or too short.
pub const DRIFT_TICKS: i64 = 3;
/// An origin from which nothing comes is counted on until it is so many ticks too far.
pub const COAST_TICKS: i64 = 15;

/// An object in the copy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copied {
    pub(crate) here: ObjectId,
    pub(crate) kind: KindId,
    /// The tick of the newest news that were copied; `None`: nothing of this origin was.
    newest: Option<Tick>,
    is_own: bool,
    /// The position is computed: it may change without news.
    is_reckoned: bool,
}

/// The copy of the objects of one origin.
#[derive(Debug, Default)]
pub(crate) struct Mirror {
    /// By the origin's id.
    objects: FxHashMap<ObjectId, Copied>,
    /// The origin's tick at the edge's next one.
    tick: Option<Tick>,
    /// The newest tick that had come when it was counted last.
    newest: Option<Tick>,
    /// Objects that found no room, by the origin's id, with the tick in which they are tried again.
    refused: FxHashMap<ObjectId, Tick>,
    /// Objects that go on as one of another origin, until they are gone here.
    ghosts: FxHashSet<ObjectId>,
    words: Vec<u32>,
    pub(crate) counters: MirrorCounters,
}

/// Counters of a mirror, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MirrorCounters {
    /// Objects that found no room.
    pub(crate) refused: u64,
    /// How often the ticks were counted anew.
    pub(crate) recounts: u64,
}

/// An object without room is tried again after so many ticks.
const TRIED_AGAIN_TICKS: u32 = 30;

impl Mirror {
    /// The object's id at the edge.
    pub(crate) fn here(&self, object: ObjectId) -> Option<ObjectId> {
        self.objects.get(&object).map(|copied| copied.here)
    }

    pub(crate) fn len(&self) -> usize {
        self.objects.len()
    }

    /// The origin's tick that the newest copy stands for.
    pub(crate) fn tick(&self) -> Option<Tick> {
        self.tick
    }

    /// Copies all news of a tick, and tells `added` the ids of new objects, there and here.
    pub(crate) fn copy(&mut self, origin: &ClientCore, server: &mut Server, mut added: impl FnMut(ObjectId, ObjectId)) {
        let (Some(replica), Some(newest)) = (origin.replica(), origin.server_tick()) else { return };
        let tick = self.count(newest);
        for object in replica.objects() {
            let Some(view) = throng::Decoder::view(replica, object.id()) else { continue };
            self.copy_one(&view, tick, server, &mut added);
        }
    }

    /// The origin's tick that this tick of the edge stands for.
    fn count(&mut self, newest: Tick) -> Tick {
        let next = self.tick.map(|tick| tick.after(1));
        let off = next.map_or(i64::MIN, |next| next.0 as i64 - newest.0 as i64);
        let is_silent = self.newest.replace(newest) == Some(newest);
        let tick = match (next, self.tick) {
            (Some(next), _) if off.abs() <= DRIFT_TICKS => next,
            // Nothing has come for a while. Objects go on as predicted, and then stand still.
            (Some(next), _) if is_silent && (0..=COAST_TICKS).contains(&off) => next,
            (_, Some(tick)) if is_silent && off > 0 => tick,
            _ => {
                self.counters.recounts += 1;
                newest
            }
        };
        self.tick = Some(tick);
        tick
    }

    fn copy_one(
        &mut self,
        view: &ObjectView<'_>,
        tick: Tick,
        server: &mut Server,
        added: &mut impl FnMut(ObjectId, ObjectId),
    ) {
        let is_own = view.is_own();
        let Some(copied) = self.objects.get(&view.id).copied() else {
            let here = self.add(view, tick, server);
            return here.into_iter().for_each(|here| added(view.id, here));
        };
        let is_news = copied.newest != Some(view.newest_tick) || copied.is_own != is_own;
        if !is_news && !copied.is_reckoned {
            return;
        }
        let is_reckoned = view.reckoned.is_some();
        server.write_quantised(copied.here, shown(view, tick, &mut self.words));
        let copied = Copied { newest: Some(view.newest_tick), is_own, is_reckoned, ..copied };
        self.objects.insert(view.id, copied);
    }

    fn add(&mut self, view: &ObjectView<'_>, tick: Tick, server: &mut Server) -> Option<ObjectId> {
        if self.refused.get(&view.id).is_some_and(|again| again.is_newer_than(tick)) || self.ghosts.contains(&view.id) {
            return None;
        }
        let values = shown(view, tick, &mut self.words);
        match server.spawn_quantised(view.kind, values, Placement::Cell(0), None) {
            Ok(here) => {
                self.refused.remove(&view.id);
                let (newest, is_reckoned) = (Some(view.newest_tick), view.reckoned.is_some());
                let copied = Copied { here, kind: view.kind, newest, is_own: view.is_own(), is_reckoned };
                self.objects.insert(view.id, copied);
                Some(here)
            }
            Err(_) => {
                self.counters.refused += 1;
                self.refused.insert(view.id, tick.after(TRIED_AGAIN_TICKS));
                None
            }
        }
    }

    /// The object is gone at the origin, or nobody looks at it any more.
    pub(crate) fn remove(&mut self, object: ObjectId, server: &mut Server) {
        self.refused.remove(&object);
        self.ghosts.remove(&object);
        if let Some(copied) = self.objects.remove(&object) {
            server.despawn(copied.here);
        }
    }

    /// An object goes on as one of another origin: its copy is no longer this one's, and it is not copied again.
    pub(crate) fn give_up(&mut self, object: ObjectId) -> Option<Copied> {
        let copied = self.objects.remove(&object)?;
        self.ghosts.insert(object);
        Some(copied)
    }

    /// An object goes on in the copy of another one. False if it has a copy already.
    pub(crate) fn adopt(&mut self, object: ObjectId, former: Copied) -> bool {
        let is_new = !self.objects.contains_key(&object);
        if is_new {
            self.objects.insert(object, Copied { newest: None, ..former });
        }
        is_new
    }

    /// The origin is gone.
    pub(crate) fn clear(&mut self, server: &mut Server) {
        for (_, copied) in self.objects.drain() {
            server.despawn(copied.here);
        }
        self.refused.clear();
        self.ghosts.clear();
        self.tick = None;
    }

    /// Says to whom an object belongs here. False if it is not known, or there is no room.
    pub(crate) fn set_owner(
        &self,
        object: ObjectId,
        owner: Option<ConnectionId>,
        server: &mut Server,
    ) -> Result<bool, LimitReached> {
        let Some(here) = self.here(object) else { return Ok(false) };
        server.set_owner(here, owner).map(|()| true)
    }
}

/// Where an object of the copy is, in metres; `None` if its kind has no position, or it is not there.
pub(crate) fn position_m(origin: &ClientCore, object: ObjectId) -> Option<[f64; 3]> {
    let view = throng::Decoder::view(origin.replica()?, object)?;
    let kind = origin.schema().kind(view.kind);
    let field = &kind.fields[kind.position?];
    let Quantiser::Position { step } = field.quantiser else { return None };
    let words = view.values.words.get(usize::from(field.word)..)?.first_chunk::<3>()?;
    Some(words.map(|word| f64::from(word as i32) * step))
}

/// The values with the position at a tick.
fn shown<'a>(view: &ObjectView<'a>, tick: Tick, words: &'a mut Vec<u32>) -> Values<'a> {
    let Some(reckoned) = view.reckoned else { return view.values };
    words.clear();
    words.extend_from_slice(view.values.words);
    reckoned.reckoning.set_position(words, reckoned.at(tick));
    Values { words, blobs: view.values.blobs }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The ticks for which the edge's stand, if the newest that has come is each of these.
    fn counted(newest: impl IntoIterator<Item = u64>) -> (Vec<u64>, u64) {
        let mut mirror = Mirror::default();
        let ticks = newest.into_iter().map(|newest| mirror.count(Tick(newest)).0).collect();
        (ticks, mirror.counters.recounts)
    }

    #[test]
    fn ticks_are_counted_on_whether_packets_come_early_or_late() {
        assert_eq!(counted([10, 10, 12, 13, 13, 17]), (vec![10, 11, 12, 13, 14, 15], 1));
        // Eleven at once after ten without any: the count was right.
        let late = (10..20).chain([19; 10]).chain([30, 31]);
        assert_eq!(counted(late), ((10..32).collect(), 1));
        // It falls behind.
        assert_eq!(counted([10, 15, 16]), (vec![10, 15, 16], 2));
    }

    #[test]
    fn the_count_waits_for_an_origin_that_is_silent_and_begins_anew_with_the_next_news() {
        let (ticks, recounts) = counted((10..12).chain([11; 40]).chain([12, 13, 14]));
        let coasting: Vec<u64> = (10..=26).collect();
        assert_eq!(ticks[..17], coasting);
        assert!(ticks[17..42].iter().all(|tick| *tick == 26), "{ticks:?}");
        assert_eq!((&ticks[42..], recounts), (&[12, 13, 14][..], 2));
    }
}
