//! The former states of a server's objects: those of an object lie side by side.
//!
//! A state that a client shows is looked for in one former snapshot after the other. Ten thousand objects in sixteen snapshots are
//! 12 MB, which are in no cache. If each snapshot lay by itself, each step of the search would wait for memory.

use std::collections::VecDeque;

use throng::{ObjectId, Tick, Time};
use throng_crowd::truth::{Snapshot, TrueObject};

/// The last snapshots before the newest one.
pub(super) struct Trails {
    /// As many are kept.
    length: usize,
    /// Newest first.
    marks: VecDeque<Mark>,
    /// Snapshots that were ever taken; of those without any object too.
    taken: u64,
    /// By object index, its row; [`NO_ROW`] if it was in no snapshot.
    rows: Vec<u32>,
    /// A row for each object, with a place for each snapshot that is kept.
    places: Vec<Option<Place>>,
}

/// A snapshot that is kept.
#[derive(Clone, Copy)]
struct Mark {
    number: u64,
    tick: Tick,
    time: Time,
}

/// An object in a snapshot.
#[derive(Clone, Copy)]
struct Place {
    /// That of the snapshot. Another one: the place was not written again since, because the object has gone.
    number: u64,
    object: TrueObject,
}

const NO_ROW: u32 = u32::MAX;

impl Trails {
    /// With room for so many snapshots.
    pub(super) fn new(length: usize) -> Trails {
        let marks = VecDeque::with_capacity(length);
        Trails { length, marks, taken: 0, rows: Vec::new(), places: Vec::new() }
    }

    /// Keeps a snapshot, and forgets the oldest one if there is no room for it.
    pub(super) fn take(&mut self, snapshot: &Snapshot) {
        if self.length == 0 {
            return;
        }
        self.marks.truncate(self.length - 1);
        let number = self.taken;
        self.taken += 1;
        self.marks.push_front(Mark { number, tick: snapshot.tick, time: snapshot.time });
        for object in &snapshot.objects {
            let at = self.row_of(object.id) + self.place_of(number);
            self.places[at] = Some(Place { number, object: *object });
        }
    }

    /// Where the row of an object begins. It gets one if it has none.
    fn row_of(&mut self, id: ObjectId) -> usize {
        let index = id.index as usize;
        if self.rows.len() <= index {
            self.rows.resize(index + 1, NO_ROW);
        }
        if self.rows[index] == NO_ROW {
            self.rows[index] = (self.places.len() / self.length) as u32;
            self.places.resize(self.places.len() + self.length, None);
        }
        self.rows[index] as usize * self.length
    }

    /// The place of a snapshot in each row.
    fn place_of(&self, number: u64) -> usize {
        (number % self.length as u64) as usize
    }

    /// The states of an object in the snapshots that have it and are younger than `since_us`, newest first.
    pub(super) fn states(&self, id: ObjectId, since_us: f64) -> impl Iterator<Item = (&TrueObject, Tick, Time)> {
        let row = self.rows.get(id.index as usize).filter(|&&row| row != NO_ROW);
        let row = row.map_or(&[][..], |&row| &self.places[row as usize * self.length..][..self.length]);
        let newer = self.marks.iter().take_while(move |mark| mark.time.0 as f64 > since_us);
        newer.filter_map(move |mark| {
            let place = row.get(self.place_of(mark.number))?.as_ref();
            let place = place.filter(|place| place.number == mark.number && place.object.id == id)?;
            Some((&place.object, mark.tick, mark.time))
        })
    }

    /// The tick and time of the oldest snapshot that is kept.
    pub(super) fn oldest(&self) -> Option<(Tick, Time)> {
        self.marks.back().map(|mark| (mark.tick, mark.time))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(tick: u64, objects: &[(u32, u32)]) -> Snapshot {
        let object = |&(index, generation): &(u32, u32)| TrueObject {
            id: ObjectId { index, generation },
            owner: None,
            kind: 0,
            words: [tick as u32; throng_crowd::truth::WORDS],
        };
        let objects = objects.iter().map(object).collect();
        Snapshot { version: tick, tick: Tick(tick), time: Time(tick * 100), is_final: false, objects }
    }

    fn ticks(trails: &Trails, (index, generation): (u32, u32), since_us: f64) -> Vec<u64> {
        let states = trails.states(ObjectId { index, generation }, since_us);
        states
            .map(|(object, tick, time)| {
                assert_eq!((u64::from(object.words[0]), time), (tick.0, Time(tick.0 * 100)));
                tick.0
            })
            .collect()
    }

    #[test]
    fn an_object_has_the_states_of_the_snapshots_that_have_it() {
        let mut trails = Trails::new(3);
        assert_eq!((ticks(&trails, (0, 1), 0.0), trails.oldest()), (vec![], None));
        // Object 5 has gone in tick 3 and another one has its index from tick 4 on; object 900 comes late.
        let all: [&[(u32, u32)]; 5] =
            [&[(0, 1), (5, 1)], &[(5, 1), (0, 1)], &[(0, 1)], &[(0, 1), (5, 2)], &[(900, 1), (0, 1)]];
        let mut seen = Vec::new();
        for (tick, objects) in (1..).zip(all) {
            trails.take(&snapshot(tick, objects));
            seen.push([(0, 1), (5, 1), (5, 2), (900, 1)].map(|id| ticks(&trails, id, 0.0)));
        }
        assert_eq!(seen[0], [vec![1], vec![1], vec![], vec![]]);
        assert_eq!(seen[2], [vec![3, 2, 1], vec![2, 1], vec![], vec![]]);
        assert_eq!(seen[3], [vec![4, 3, 2], vec![2], vec![4], vec![]]);
        assert_eq!(seen[4], [vec![5, 4, 3], vec![], vec![4], vec![5]]);
        assert_eq!(trails.oldest(), Some((Tick(3), Time(300))));
        assert_eq!(ticks(&trails, (0, 1), 300.0), [5, 4], "a snapshot of that moment is not younger");
    }

    #[test]
    fn trails_without_room_keep_nothing() {
        let mut trails = Trails::new(0);
        trails.take(&snapshot(1, &[(0, 1)]));
        assert_eq!((ticks(&trails, (0, 1), 0.0), trails.oldest()), (vec![], None));
    }
}
