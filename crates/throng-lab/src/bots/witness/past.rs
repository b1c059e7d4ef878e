//! The states of one server that are known: its newest snapshot, and those before it.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::time::Duration;

use throng::{ObjectId, Tick, Time};
use throng_crowd::scenario::{FaultKind, Part, Scenario};
use throng_crowd::truth::{self, Snapshot, TrueObject, TruthReader};

use super::trail::Trails;

/// Ticks whose time is remembered.
const TICK_TIMES: usize = truth::TICKS as usize;

/// A server that is killed by a fault of the run is gone while it has written no snapshot for so long.
const GONE_AFTER: Duration = Duration::from_secs(1);

/// The state of one server until now.
pub(super) struct Past {
    /// The file of the server; `None`: its last state is told over the network.
    truth: Option<TruthReader>,
    /// Since that tick there is a snapshot of each.
    gapless_from: Tick,
    pub(super) snapshot: Snapshot,
    /// By object index, where in the snapshot it lies.
    places: Vec<u32>,
    /// The snapshots before it.
    former: Trails,
    /// So many of them are kept.
    former_max: usize,
    /// When the last ticks began, oldest first.
    tick_times: VecDeque<(Tick, Time)>,
    tick_interval_us: f64,
    /// A fault of the run kills it for good.
    is_mortal: bool,
    /// Faults of the run that kill it and start another process in its place.
    restarts: u64,
    /// It has been killed: nobody is there now.
    pub(super) is_gone: bool,
}

impl Past {
    /// Of the server with this number, from 0.
    pub(super) fn new(
        truth: Option<&Path>,
        former_max: usize,
        (number, scenario): (usize, &Scenario),
    ) -> io::Result<Past> {
        let is_this = |part| matches!(part, Part::Server(server) if server as usize == number + 1);
        let mut faults = scenario.faults.iter().filter(|fault| is_this(fault.part));
        let restarts = faults.clone().filter(|fault| matches!(fault.kind, FaultKind::Restart(_))).count() as u64;
        Ok(Past {
            truth: truth.map(|path| TruthReader::open(path, truth::room(scenario))).transpose()?,
            gapless_from: Tick(0),
            snapshot: Snapshot::default(),
            places: Vec::new(),
            former: Trails::new(former_max),
            former_max,
            tick_times: VecDeque::with_capacity(TICK_TIMES + 1),
            tick_interval_us: 1e6 / f64::from(scenario.tick_hz),
            is_mortal: faults.any(|fault| fault.kind == FaultKind::Kill),
            restarts,
            is_gone: false,
        })
    }

    /// Whether it reads a file.
    pub(super) fn has_file(&self) -> bool {
        self.truth.is_some()
    }

    /// Reads what is new.
    pub(super) fn refresh(&mut self, now: Time) {
        let mut ticks = Vec::new();
        let Some(mut truth) = self.truth.take() else { return };
        if let Some(snapshot) = truth.poll() {
            self.tell(snapshot);
        }
        truth.poll_ticks(now, |tick, time| ticks.push((tick, time)));
        ticks.into_iter().for_each(|(tick, time)| self.note_tick(tick, time));
        self.truth = Some(truth);
        // A server that has written its last state writes nothing after it.
        let is_silent = !self.snapshot.is_final && now.since(self.snapshot.time) > GONE_AFTER;
        // The last process of a server that is not killed for good is there, however long it is silent.
        self.is_gone = is_silent && (self.is_mortal || self.life() < self.restarts);
    }

    /// Learns when a tick began, or that it began at another time.
    pub(super) fn note_tick(&mut self, tick: Tick, time: Time) {
        match self.tick_times.binary_search_by(|(known, _)| known.cmp(&tick)) {
            Ok(place) => self.tick_times[place].1 = time,
            Err(place) => {
                self.tick_times.insert(place, (tick, time));
                if self.tick_times.len() > TICK_TIMES {
                    self.tick_times.pop_front();
                }
            }
        }
    }

    /// Learns a new snapshot.
    pub(super) fn tell(&mut self, snapshot: &Snapshot) {
        if snapshot.tick.0 != self.snapshot.tick.0 + 1 {
            self.gapless_from = snapshot.tick;
        }
        let life = self.life();
        self.former.take(&self.snapshot);
        self.snapshot.clone_from(snapshot);
        if self.life() != life {
            // A new process gives the numbers of objects anew.
            self.former = Trails::new(self.former_max);
        }
        self.index();
    }

    fn index(&mut self) {
        self.places.fill(u32::MAX);
        for (place, object) in self.snapshot.objects.iter().enumerate() {
            let index = object.id.index as usize;
            if self.places.len() <= index {
                self.places.resize(index + 1, u32::MAX);
            }
            self.places[index] = place as u32;
        }
    }

    /// An object of the newest snapshot.
    pub(super) fn find(&self, id: ObjectId) -> Option<&TrueObject> {
        let place = *self.places.get(id.index as usize)?;
        self.snapshot.objects.get(place as usize).filter(|object| object.id == id)
    }

    /// An object in the newest snapshot that has it, of those that are kept.
    pub(super) fn newest_of(&self, id: ObjectId) -> Option<(&TrueObject, Tick)> {
        let newest = self.find(id).map(|truth| (truth, self.snapshot.tick));
        newest.or_else(|| self.former.states(id, f64::NEG_INFINITY).next().map(|(truth, tick, _)| (truth, tick)))
    }

    /// The process that writes now: the number of those that had its place before.
    pub(super) fn life(&self) -> u64 {
        life_of(self.snapshot.tick)
    }

    /// The object of an owner.
    pub(super) fn owned_by(&self, owner: u32) -> Option<&TrueObject> {
        self.snapshot.objects.iter().find(|object| object.owner == Some(owner)).filter(|_| !self.is_gone)
    }

    /// The time of the newest former snapshot that has an object as `is_same` says, among those after `since_us`: an older one
    /// would say nothing new.
    pub(super) fn time_of_equal(
        &self,
        id: ObjectId,
        since_us: f64,
        is_same: impl Fn(&TrueObject, Tick) -> bool,
    ) -> Option<f64> {
        let equal = self.former.states(id, since_us).find(|&(truth, tick, _)| is_same(truth, tick));
        equal.map(|(_, _, time)| time.0 as f64)
    }

    /// The first tick from which on there is a snapshot of each.
    pub(super) fn gapless_from(&self) -> Option<Tick> {
        self.former.oldest().map(|(tick, _)| tick.max(self.gapless_from))
    }

    /// The time of the oldest snapshot that is kept.
    pub(super) fn oldest_us(&self) -> Option<f64> {
        self.former.oldest().map(|(_, time)| time.0 as f64)
    }

    /// When a tick began.
    pub(super) fn time_of(&self, tick: Tick) -> Option<f64> {
        let place = self.tick_times.binary_search_by(|(known, _)| known.cmp(&tick)).ok()?;
        Some(self.tick_times[place].1.0 as f64)
    }

    /// The oldest time that is known, for a tick before all that are.
    pub(super) fn time_before(&self, tick: Tick) -> Option<f64> {
        self.tick_times.front().filter(|(oldest, _)| tick < *oldest).map(|(_, time)| time.0 as f64)
    }

    /// How far the world has moved on since the snapshot, in seconds of the world: those of a server that misses ticks are
    /// longer than seconds of the clock.
    pub(super) fn world_seconds_since_snapshot(&self, now: Time) -> f64 {
        let (tick, time) = self.tick_times.back().copied().unwrap_or((self.snapshot.tick, self.snapshot.time));
        let steps = f64::from(tick.since(self.snapshot.tick));
        let step = (now.micros_since(time) as f64 / self.tick_interval_us).min(1.0);
        (steps + step) * self.tick_interval_us / 1e6
    }
}

/// The process that counts a tick: the number of those that had its place before.
pub(super) fn life_of(tick: Tick) -> u64 {
    tick.0 / truth::LIFE_TICKS
}
