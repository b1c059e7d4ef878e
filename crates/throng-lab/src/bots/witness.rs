//! What decoding bots see, against the server's truth.

use std::path::Path;
use std::time::Duration;

use hdrhistogram::Histogram;
use throng::replica::ReplicaObject;
use throng::{ObjectId, Time};

use super::BotsError;
use super::bot::Bot;
use crate::clock;
use crate::neighbours::NeighbourLog;
use crate::scenario::Scenario;
use crate::summary::{Known, Neighbours};
use crate::truth::{Snapshot, TrueObject, TruthReader};

/// Decoding bots that are looked at for one snapshot; the others have their turn at the next.
const LOOKS_PER_SNAPSHOT: usize = 32;
const NEARBY_M: f64 = 40.0;
/// The final truth is waited for this long.
const FINAL_PATIENCE: Duration = Duration::from_secs(5);

pub(super) struct Witness {
    truth: Option<TruthReader>,
    /// By object index, where in the snapshot it lies.
    places: Vec<u32>,
    tick_interval_us: f64,
    next_bot: usize,
    neighbours: NeighbourLog,
    known: Histogram<u64>,
    known_nearby: Option<f64>,
    mismatches: u64,
}

impl Witness {
    pub(super) fn new(truth: Option<&Path>, scenario: &Scenario) -> Result<Witness, BotsError> {
        let open =
            |path: &Path| TruthReader::open(path).map_err(|source| BotsError::Truth { path: path.to_owned(), source });
        Ok(Witness {
            truth: truth.map(open).transpose()?,
            places: Vec::new(),
            tick_interval_us: 1e6 / f64::from(scenario.tick_hz),
            next_bot: 0,
            neighbours: NeighbourLog::default(),
            known: Histogram::new_with_bounds(1, 10_000_000, 3).expect("the bounds are possible"),
            known_nearby: None,
            mismatches: 0,
        })
    }

    /// Looks through the eyes of some decoding bots, if there is news of the truth.
    pub(super) fn look(&mut self, now: Time, bots: &[Bot], measuring: bool) {
        let Some(mut truth) = self.truth.take() else { return };
        if let Some(snapshot) = truth.poll().filter(|_| measuring) {
            self.index(snapshot);
            let decoders = bots.iter().take_while(|bot| bot.is_decoder).count();
            for _ in 0..decoders.min(LOOKS_PER_SNAPSHOT) {
                self.next_bot = (self.next_bot + 1) % decoders;
                self.look_through(now, &bots[self.next_bot], snapshot);
            }
        }
        self.truth = Some(truth);
    }

    /// Waits for the final truth, and counts what differs from it.
    pub(super) fn compare_final(&mut self, bots: &[Bot]) {
        let Some(mut truth) = self.truth.take() else { return };
        let began = clock::now();
        loop {
            if let Some(snapshot) = truth.poll().filter(|snapshot| snapshot.is_final) {
                self.index(snapshot);
                for bot in bots.iter().filter(|bot| bot.is_decoder && bot.core.is_connected()) {
                    let replica = bot.core.replica();
                    for object in replica.iter().flat_map(|replica| replica.objects()) {
                        let same = self.find(snapshot, object.id()).is_some_and(|truth| is_same(object, truth));
                        self.mismatches += u64::from(!same);
                    }
                }
                return;
            }
            if clock::now().since(began) > FINAL_PATIENCE {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub(super) fn begin(&mut self) {
        self.neighbours.clear();
        self.known.reset();
        self.known_nearby = None;
    }

    pub(super) fn take_near_age_p99_ms(&mut self) -> Option<f64> {
        self.neighbours.take_near_age_p99_ms()
    }

    pub(super) fn figures(&self) -> Neighbours {
        self.neighbours.figures()
    }

    pub(super) fn known(&self) -> Known {
        let at = |share| (!self.known.is_empty()).then(|| self.known.value_at_quantile(share) as f64);
        Known { p1: at(0.01), p50: at(0.5) }
    }

    pub(super) fn known_within_40_m(&self) -> Option<f64> {
        self.known_nearby
    }

    pub(super) fn mismatches(&self) -> u64 {
        self.mismatches
    }

    fn index(&mut self, snapshot: &Snapshot) {
        self.places.fill(u32::MAX);
        for (place, object) in snapshot.objects.iter().enumerate() {
            let index = object.id.index as usize;
            if self.places.len() <= index {
                self.places.resize(index + 1, u32::MAX);
            }
            self.places[index] = place as u32;
        }
    }

    fn find<'s>(&self, snapshot: &'s Snapshot, id: ObjectId) -> Option<&'s TrueObject> {
        let place = *self.places.get(id.index as usize)?;
        snapshot.objects.get(place as usize).filter(|object| object.id == id)
    }

    fn look_through(&mut self, now: Time, bot: &Bot, snapshot: &Snapshot) {
        let (Some(replica), Some(connection)) = (bot.core.replica(), bot.connection) else { return };
        let is_own = |object: &&TrueObject| object.owner == Some(connection);
        let Some(own) = snapshot.objects.iter().find(is_own) else { return };
        let here = own.position_m();
        self.known.saturating_record(replica.object_count() as u64);
        for object in replica.objects() {
            let Some(truth) = self.find(snapshot, object.id()) else { continue };
            if truth.owner.is_none_or(|owner| owner == connection) {
                continue;
            }
            let there = truth.position_m();
            let age_us = match is_same(object, truth) {
                // Whoever holds the present state is up to date, however long nothing has changed.
                true => 0.0,
                false => {
                    let ticks = snapshot.tick.since(object.newest_tick());
                    let taken_us = snapshot.time.0 as f64 - f64::from(ticks) * self.tick_interval_us;
                    now.0 as f64 - taken_us
                }
            };
            self.neighbours.look(distance(here, there), age_us / 1e3, distance(position_of(object), there));
        }
        let nearby = snapshot.objects.iter().filter(|object| distance(here, object.position_m()) <= NEARBY_M);
        let (mut all, mut known) = (0u32, 0u32);
        for object in nearby {
            all += 1;
            known += u32::from(replica.object(object.id).is_some());
        }
        let share = f64::from(known) / f64::from(all.max(1));
        self.known_nearby = Some(self.known_nearby.map_or(share, |least| least.min(share)));
    }
}

fn is_same(object: &ReplicaObject, truth: &TrueObject) -> bool {
    let words = object.values().words;
    truth.words[..words.len().min(truth.words.len())] == *words
}

/// In metres; the lab's kinds begin with a position in centimetres.
fn position_of(object: &ReplicaObject) -> [f64; 3] {
    let words = object.values().words;
    std::array::from_fn(|axis| words.get(axis).map_or(0.0, |&word| f64::from(word as i32) / 100.0))
}

fn distance(a: [f64; 3], b: [f64; 3]) -> f64 {
    (0..3).map(|axis| (a[axis] - b[axis]).powi(2)).sum::<f64>().sqrt()
}
