//! The copy of an origin's objects in an edge's server.
//!
//! Values are copied as they came, quantised. A position with `predict` is an exception: its origin states it seldom, and both
//! sides compute it in between. So the copy is given the computed position in each tick, and the edge's server, which computes the
//! same line, states it again only when the origin has. The two lines agree as long as ticks of the edge stand for ticks of the
//! origin one by one. Packets come early and late, so the edge does not take the newest tick that came: it counts on from there,
//! and counts anew when it is off by more than [`DRIFT_TICKS`].

use rustc_hash::{FxHashMap, FxHashSet};
use throng::schema::{Quantiser, Values};
use throng::{ClientCore, ConnectionId, KindId, LimitReached, ObjectId, ObjectView, Placement, Server, Tick};

/// An edge counts the ticks of an origin at most so many ticks too far, or too short.
pub const DRIFT_TICKS: i64 = 3;

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
        let off = next.map_or(i64::MAX, |next| next.0 as i64 - newest.0 as i64);
        let tick = match next.filter(|_| off.abs() <= DRIFT_TICKS) {
            Some(next) => next,
            None => {
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
