//! Compares the state of decoding bots with the server's state.

use std::collections::HashSet;
use std::path::PathBuf;
use std::time::Duration;

use hdrhistogram::Histogram;
use throng::schema::Threshold;
use throng::{Decoder, Facet, ObjectId, ObjectView, Tick, Time};
use throng_crowd::copies::Original;
use throng_crowd::kinds::{Character, FAR_STEP_M, FAR_WORD, LabKind, Prop, THRESHOLDS, velocity_of};
use throng_crowd::pulse::RemoteClock;
use throng_crowd::scenario::{Model, NetPreset, Scenario};
use throng_crowd::truth::{Snapshot, TrueObject};
use throng_edge::{COAST_TICKS, DRIFT_TICKS};
use throng_machine::clock;

use self::differences::{Because, Differences, When, add_original, add_seen, add_truth, name, number, of_client};
use self::past::{Past, life_of};
use self::translation::{Through, Translation, hops};
use super::worst::Sights;
use super::{BotsError, EdgePoint};
use throng_summary::neighbours::{Looks, NEAR_M, NeighbourLog};
use throng_summary::{Counted, Difference};

/// Each decoding bot is sampled about this often, and less often if there are many of them.
const LOOK_INTERVAL_US: u64 = 200_000;
const LOOKERS: usize = 32;
/// The files are read this often while everything moves, and before each sample. Each read is a call of the system.
const REFRESH_INTERVAL: Duration = Duration::from_millis(1);
const NEARBY_M: f64 = 40.0;
/// How long to wait for the servers' last state.
pub(super) const FINAL_PATIENCE: Duration = Duration::from_secs(5);
/// Former snapshots that a state is compared with, for its age: about a second.
const FORMER: usize = 16;
/// The most with edges: there each tick has a snapshot.
const FORMER_MAX: usize = 256;
/// State is at an edge by then, beside the interval in which it is sent.
const EDGE_LAG_TICKS: u32 = 10;
/// One in so many of the objects that a bot sees from afar is looked at in a look. There are thousands.
const FAR_PART: u32 = 16;
/// The decoder of a bot.
pub(super) struct Eyes<'a, D> {
    /// Its state; `None` before it is connected.
    pub(super) replica: Option<&'a D>,
    /// Its name as an owner in the truth.
    pub(super) connection: Option<u32>,
    /// The edge to which it is connected.
    pub(super) edge: Through,
}

/// Samples that wait until the time of their tick is known.
const WAITING_MAX: usize = 1 << 16;
/// A character that is faster than this, in metres per second, is taken to be as old as its newest update where the server's
/// state is out of reach. That is too old for one that moves as predicted. Of one that stands still, the state may be up to
/// date however long ago the last update was.
const MOVING_M_PER_S: f64 = 0.5;

/// A look at a neighbour, without the server's state.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    now: Time,
    tick: Tick,
    distance_m: f64,
}

/// Samples the decoding bots. Time comes only from its arguments.
pub(super) struct Witness {
    /// By number of the server.
    pasts: Vec<Past>,
    translation: Translation,
    /// A client of an edge has no state that is older by more ticks than this.
    edge_lag_ticks: u32,
    /// When the files are read again.
    next_refresh: Time,
    /// When each decoding bot is sampled next. The moments do not depend on the server's ticks.
    next_looks: Vec<Time>,
    /// The server's clock, if the server's state is out of reach.
    clock: RemoteClock,
    waiting: Vec<Waiting>,
    age_error_us: Option<f64>,
    /// How far the outermost ring reaches.
    view_m: f64,
    /// The path has no loss: an object whose newest update is of a tick has the state of that tick.
    is_clean: bool,
    /// It was told of the state of the first server before the last one.
    is_told_in_play: bool,
    /// The clients know what they own. Those of older models do not.
    knows_owners: bool,
    rng: fastrand::Rng,
    neighbours: NeighbourLog,
    known: Histogram<u64>,
    known_nearby: Option<f64>,
    sights: Sights,
    at_rest: Compared,
    in_play: Compared,
    not_compared: u32,
    without_last: Vec<u32>,
    differences: Differences,
}

/// Objects that were compared with the truth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Compared {
    /// How many.
    pub(super) objects: u64,
    /// The number of those that differed, or were there on one side only.
    pub(super) mismatches: u64,
}

impl Witness {
    /// Reads the files of the servers' state in `truths`; without any, the state comes from the network.
    pub(super) fn new(truths: &[PathBuf], edges: &[EdgePoint], scenario: &Scenario) -> Result<Witness, BotsError> {
        let edge_lag_ticks = scenario.slowest_interval_ticks() + EDGE_LAG_TICKS;
        let former_max = match edges {
            [] => FORMER,
            _ => (edge_lag_ticks as usize + FORMER).min(FORMER_MAX),
        };
        let open = |number: usize, path: Option<&PathBuf>| {
            let failed = |source| BotsError::Truth { path: path.cloned().unwrap_or_default(), source };
            Past::new(path.map(PathBuf::as_path), former_max, (number, scenario)).map_err(failed)
        };
        let pasts = match truths {
            [] => vec![open(0, None)?],
            _ => truths.iter().enumerate().map(|(number, path)| open(number, Some(path))).collect::<Result<_, _>>()?,
        };
        Ok(Witness {
            pasts,
            translation: Translation::new(edges)?,
            edge_lag_ticks,
            next_refresh: Time(0),
            next_looks: vec![Time(0); scenario.decoded_bots() as usize],
            clock: RemoteClock::default(),
            waiting: Vec::new(),
            age_error_us: None,
            is_clean: scenario.net == NetPreset::None,
            is_told_in_play: false,
            knows_owners: scenario.model == Model::Throng,
            view_m: scenario.rings.last().map_or(f64::INFINITY, |ring| f64::from(ring.radius_m)),
            rng: fastrand::Rng::with_seed(scenario.seed),
            neighbours: NeighbourLog::default(),
            known: known_histogram(),
            known_nearby: None,
            sights: Sights::default(),
            at_rest: Compared::default(),
            in_play: Compared::default(),
            not_compared: 0,
            without_last: Vec::new(),
            differences: Differences::default(),
        })
    }

    /// Reads new snapshots of the truth, and samples the bots that are due.
    pub(super) fn look<'a, D: Decoder + 'a>(
        &mut self,
        now: impl Fn() -> Time,
        all: impl Iterator<Item = Eyes<'a, D>>,
        measuring: bool,
    ) {
        let mut is_fresh = self.refresh_in_play(now());
        self.settle_waiting();
        let is_early = self.pasts[0].has_file() && !self.has_snapshot();
        if !measuring || is_early {
            return;
        }
        let interval_us = LOOK_INTERVAL_US * self.next_looks.len().div_ceil(LOOKERS).max(1) as u64;
        for (index, eyes) in all.enumerate().take(self.next_looks.len()) {
            let now = now();
            if self.next_looks[index] <= now {
                // The files know of a packet before it is sent, so they are read after it.
                if !std::mem::replace(&mut is_fresh, true) {
                    self.refresh(now);
                }
                self.next_looks[index] = Time(now.0 + self.rng.u64(interval_us / 2..interval_us * 3 / 2));
                match self.has_truth() {
                    true => self.look_through(now, &eyes),
                    false => self.look_from_afar(now, &eyes),
                }
            }
        }
    }

    fn has_truth(&self) -> bool {
        self.pasts[0].has_file() || self.has_snapshot()
    }

    fn has_snapshot(&self) -> bool {
        self.pasts.iter().any(|past| !past.snapshot.objects.is_empty())
    }

    /// Learns the server's clock.
    pub(super) fn clock(&mut self) -> &mut RemoteClock {
        &mut self.clock
    }

    /// The largest error of all ages, if the server's clock had to be estimated.
    pub(super) fn age_error_ms(&self) -> Option<f64> {
        self.age_error_us.map(|us| us / 1e3)
    }

    /// Looks at the neighbours as the bot knows them.
    fn look_from_afar(&mut self, now: Time, eyes: &Eyes<'_, impl Decoder>) {
        let (Some(replica), Some(_)) = (eyes.replica, eyes.connection) else { return };
        let Some(here) = replica.owned().map(|own| position_of(&own)).next() else { return };
        for object in replica.views().filter(|object| !object.is_own() && is_moving(object)) {
            let distance_m = distance(here, position_of(&object));
            self.waiting.push(Waiting { now, tick: object.newest_tick, distance_m });
        }
        self.known.saturating_record(replica.count() as u64);
        self.settle_waiting();
    }

    /// Notes the ages that are known by now.
    fn settle_waiting(&mut self) {
        let Witness { clock, neighbours, age_error_us, .. } = self;
        self.waiting.retain(|&Waiting { now, tick, distance_m }| match clock.age(tick, now) {
            Some(age) => {
                neighbours.look_at_age(distance_m, age.us / 1e3);
                *age_error_us = Some(age_error_us.map_or(age.error_us, |largest| largest.max(age.error_us)));
                false
            }
            None => clock.may_know(tick),
        });
        let too_many = self.waiting.len().saturating_sub(WAITING_MAX);
        self.waiting.drain(..too_many);
    }

    /// Reads what is new, unless it has just done so. Returns whether it has read.
    fn refresh_in_play(&mut self, now: Time) -> bool {
        let is_due = now >= self.next_refresh;
        if is_due {
            self.next_refresh = now.after(REFRESH_INTERVAL);
            self.refresh(now);
        }
        is_due
    }

    /// Reads what is new.
    fn refresh(&mut self, now: Time) {
        self.translation.refresh();
        self.pasts.iter_mut().for_each(|past| past.refresh(now));
    }

    /// Learns the state of the only server, which came from another machine.
    pub(super) fn tell(&mut self, snapshot: &Snapshot) {
        self.is_told_in_play |= !snapshot.is_final;
        self.pasts[0].tell(snapshot);
    }

    /// Whether it could compare while everything moved: it reads the server's state, or was told of it before the end.
    pub(super) fn had_truth_in_play(&self) -> bool {
        self.pasts[0].has_file() || self.is_told_in_play
    }

    /// Waits for the last state of all servers, at most so long, and counts the differences. Where one is missing, nobody is compared.
    pub(super) fn compare_final<'a, D: Decoder + 'a>(
        &mut self,
        all: impl Iterator<Item = Eyes<'a, D>>,
        patience: Duration,
    ) {
        let has_all = self.await_last(patience);
        for eyes in all {
            match has_all && eyes.connection.is_some() {
                true => self.compare(&eyes),
                false => self.not_compared += 1,
            }
        }
    }

    /// False if a server has left no last state, though no fault of the run has killed it.
    fn await_last(&mut self, patience: Duration) -> bool {
        let began = clock::now();
        self.refresh(began);
        loop {
            let missing = (1..).zip(&self.pasts).filter(|(_, past)| !past.snapshot.is_final && !past.is_gone);
            self.without_last = missing.map(|(number, _)| number).collect();
            let is_over = !self.pasts[0].has_file() || clock::now().since(began) > patience;
            if self.without_last.is_empty() || is_over {
                return self.without_last.is_empty();
            }
            std::thread::sleep(Duration::from_millis(5));
            self.refresh(clock::now());
        }
    }

    /// Bots that were not compared at the end.
    pub(super) fn not_compared(&self) -> u32 {
        self.not_compared
    }

    /// The numbers of the servers, from 1, that have left no last state.
    pub(super) fn without_last(&self) -> &[u32] {
        &self.without_last
    }

    /// Compares all objects of a bot with the snapshot.
    fn compare(&mut self, eyes: &Eyes<'_, impl Decoder>) {
        let mut held = HashSet::new();
        let through = eyes.edge;
        for object in eyes.replica.into_iter().flat_map(|replica| replica.views()) {
            let original = self.original(&object, through);
            let there = original.filter(|original| !is_far(&object) && self.truth_of(*original).is_some());
            held.extend(there.map(|original| (original.origin, original.id)));
            self.at_rest.objects += 1;
            if let Some(because) = self.unlike(&object, original, eyes) {
                self.at_rest.mismatches += 1;
                self.describe((When::AtRest, because), eyes, (&object, original));
            }
        }
        self.count_lacking(eyes, &held);
    }

    /// Why an object is not as its server has it, with everything at rest; `None` if it is.
    fn unlike<D>(
        &self,
        object: &ObjectView<'_>,
        original: Option<Original>,
        &Eyes { connection, edge: through, .. }: &Eyes<'_, D>,
    ) -> Option<Because> {
        let Some(now) = original else { return Some(Because::Unknown) };
        let Some(past) = self.pasts.get(now.origin) else { return Some(Because::NotThere) };
        if past.is_gone {
            return Some(Because::Gone);
        }
        let Some(truth) = self.truth_of(now) else { return Some(Because::NotThere) };
        if self.knows_owners && object.is_own() != (truth.owner.is_some() && truth.owner == connection) {
            return Some(Because::Owner);
        }
        let tick = self.translation.client_tick(through, now.origin, past.snapshot.tick).unwrap_or_default();
        (!is_same(object, truth, (tick, hops(through)))).then_some(Because::Values)
    }

    /// Which of the truth's objects an object is now.
    fn original(&self, object: &ObjectView<'_>, through: Through) -> Option<Original> {
        self.translation.source(through, object.id, object.newest_tick).map(|(now, _)| now)
    }

    /// An object in the newest snapshot of its server. One of a process that was killed is not there, also if the new process has given
    /// its number to another one.
    fn truth_of(&self, Original { origin, id, there, .. }: Original) -> Option<&TrueObject> {
        let past = self.pasts.get(origin)?;
        past.find(id).filter(|_| life_of(there) == past.life())
    }

    /// Counts objects close by that the bot does not hold, or only as those far away. A bot without a character counts as one.
    fn count_lacking<D: Decoder>(&mut self, eyes: &Eyes<'_, D>, held: &HashSet<(usize, ObjectId)>) {
        let own = eyes.connection.and_then(|owner| self.pasts.iter().find_map(|past| past.owned_by(owner)));
        let (Some(own), Some(_)) = (own, eyes.replica) else {
            self.at_rest.mismatches += 1;
            let mut difference = of_client(When::AtRest, Because::NoCharacter, eyes);
            // The one that it takes for its own.
            if let Some(object) = eyes.replica.and_then(|replica| replica.owned().next()) {
                add_seen(&mut difference, &object);
                let original = self.original(&object, eyes.edge).map(|original| (original, eyes.edge));
                original.into_iter().for_each(|of| add_original(&mut difference, of, &self.pasts, &self.translation));
            }
            return self.differences.note(When::AtRest, difference);
        };
        let near_m = NEARBY_M.min(self.view_m);
        let here = own.position_m();
        let near = self.objects().filter(|(_, object)| distance(here, object.position_m()) <= near_m);
        let lacking = near.filter(|(origin, object)| !held.contains(&(*origin, object.id)));
        let lacking: Vec<(usize, TrueObject)> = lacking.map(|(origin, object)| (origin, *object)).collect();
        self.at_rest.mismatches += lacking.len() as u64;
        for (origin, object) in lacking {
            let mut difference = of_client(When::AtRest, Because::Lacking, eyes);
            (difference.server, difference.object_there) = (Some(number(origin)), Some(name(object.id)));
            add_truth(&mut difference, &object, self.pasts[origin].snapshot.tick.0);
            self.differences.note(When::AtRest, difference);
        }
    }

    /// Describes an object that differs, if there is room for another one.
    fn describe<D>(
        &mut self,
        (when, because): (When, Because),
        eyes: &Eyes<'_, D>,
        (object, original): (&ObjectView<'_>, Option<Original>),
    ) {
        if !self.differences.has_room(when) {
            return;
        }
        let mut difference = of_client(when, because, eyes);
        add_seen(&mut difference, object);
        if let Some(original) = original {
            add_original(&mut difference, (original, eyes.edge), &self.pasts, &self.translation);
        }
        self.differences.note(when, difference);
    }

    /// All objects of the newest snapshots, with the number of their server. A character without an owner is one of another server
    /// by now, or in a moment.
    fn objects(&self) -> impl Iterator<Item = (usize, &TrueObject)> {
        let all = self.pasts.iter().enumerate().filter(|(_, past)| !past.is_gone);
        let all = all.flat_map(|(number, past)| past.snapshot.objects.iter().map(move |object| (number, object)));
        all.filter(|(_, object)| object.kind != Character::NUMBER || object.owner.is_some())
    }

    /// The comparisons after everything had come to rest.
    pub(super) fn at_rest(&self) -> Compared {
        self.at_rest
    }

    /// The comparisons while everything moved: of objects whose newest update is of the tick of a snapshot. One that the
    /// snapshot does not have is a mismatch.
    pub(super) fn in_play(&self) -> Compared {
        self.in_play
    }

    /// The first objects that differed, described.
    pub(super) fn differences(&self) -> Vec<Difference> {
        self.differences.all()
    }

    pub(super) fn begin(&mut self) {
        self.neighbours.clear();
        self.waiting.clear();
        self.age_error_us = None;
        self.in_play = Compared::default();
        self.differences.forget_play();
        self.known.reset();
        self.known_nearby = None;
        self.sights.clear();
    }

    pub(super) fn take_near_ages(&mut self) -> Counted {
        self.neighbours.take_near_ages()
    }

    pub(super) fn looks(&self) -> Looks {
        self.neighbours.looks()
    }

    pub(super) fn known(&self) -> Counted {
        Counted::of(&self.known)
    }

    /// The sight of each client.
    pub(super) fn sights(&self) -> &Sights {
        &self.sights
    }

    pub(super) fn known_within_40_m(&self) -> Option<f64> {
        self.known_nearby
    }

    /// The time of the newest former snapshot that has an object as a client shows it, among those after `since_us`.
    fn time_of_equal(
        &self,
        object: &ObjectView<'_>,
        (original, through): (Original, Through),
        (since_us, hops): (f64, u32),
    ) -> Option<f64> {
        let past = self.pasts.get(original.origin)?;
        past.time_of_equal(original.id, since_us, |truth, tick| {
            let tick = self.translation.client_tick(through, original.origin, tick);
            tick.is_some_and(|tick| is_same(object, truth, (tick, hops)))
        })
    }

    /// Whether a state that a client of an edge has was true in some tick. The edge may count the ticks a little too far or too
    /// short: while a packet is late, it counts on, and what comes exactly is from an earlier tick then. It counts further while
    /// nothing comes at all, but no further than it promises, and it notes each tick in which it does.
    fn was_so(&self, object: &ObjectView<'_>, (original, through): (Original, Through)) -> bool {
        let Some(past) = self.pasts.get(original.origin) else { return false };
        let beyond = self.translation.beyond(through, original.origin, object.newest_tick);
        let ahead_ticks = (beyond as i64).clamp(DRIFT_TICKS, COAST_TICKS);
        let was = |truth: &TrueObject, tick| {
            let Some(tick) = self.translation.client_tick(through, original.origin, tick) else { return false };
            let mut counted = (-DRIFT_TICKS..=ahead_ticks).filter_map(|off| tick.0.checked_add_signed(off));
            counted.any(|tick| is_same(object, truth, (Tick(tick), hops(through))))
        };
        let is_newest = past.find(original.id).is_some_and(|truth| was(truth, past.snapshot.tick));
        is_newest || past.time_of_equal(original.id, 0.0, was).is_some()
    }

    /// Whether a state that a client of an edge has must be among the snapshots: there is one of each tick since long before it
    /// was sent, and the edge has counted the ticks in the same way since then.
    fn has_all_since(&self, object: &ObjectView<'_>, through: Through, origin: usize) -> bool {
        let newest = self.translation.true_tick(through, origin, object.newest_tick);
        let steady_from = self.translation.steady_from(through, origin);
        let oldest = self.pasts.get(origin).and_then(Past::gapless_from).map(|oldest| oldest.max(steady_from));
        newest.zip(oldest).is_some_and(|(newest, oldest)| newest.0 >= oldest.0 + u64::from(self.edge_lag_ticks))
    }

    fn look_through(&mut self, now: Time, eyes: &Eyes<'_, impl Decoder>) {
        let (Some(replica), Some(connection)) = (eyes.replica, eyes.connection) else { return };
        let own = self.pasts.iter().find_map(|past| Some((past, past.owned_by(connection)?)));
        // While a character is handed over from server to server, none has it.
        let Some((past, own)) = own else { return };
        let here = own.position_after(past.world_seconds_since_snapshot(now));
        self.known.saturating_record(replica.count() as u64);
        let chosen = self.rng.u32(..FAR_PART);
        let through = eyes.edge;
        let mut held = HashSet::new();
        let is_chosen = |id: ObjectId, facets| !are_far(facets) || id.index % FAR_PART == chosen;
        for object in replica.views_of(is_chosen) {
            let Some(source) = self.translation.source(through, object.id, object.newest_tick) else {
                // An edge notes an object before it sends it.
                self.in_play.objects += 1;
                self.in_play.mismatches += 1;
                self.describe((When::InPlay, Because::Unknown), eyes, (&object, None));
                continue;
            };
            let (original, told) = source;
            let truth = self.truth_of(original).copied();
            if through.is_some() && truth.is_some() && !is_far(&object) {
                held.insert((original.origin, original.id));
            }
            self.look_at(now, &object, (original.origin, truth, told), (eyes, connection, here));
        }
        let (mut all, mut known) = (0u32, 0u32);
        for (origin, object) in self.objects().filter(|(_, object)| distance(here, object.position_m()) <= NEARBY_M) {
            all += 1;
            known += u32::from(match through {
                None => replica.view(object.id).is_some_and(|view| !is_far(&view)),
                Some(_) => held.contains(&(origin, object.id)),
            });
        }
        let share = f64::from(known) / f64::from(all.max(1));
        self.sights.note_known(connection, share);
        self.known_nearby = Some(self.known_nearby.map_or(share, |least| least.min(share)));
    }

    /// Compares one object of a client, whose own is `here`, with the `truth` of the server that has it. The client may have been told nothing
    /// yet since another server has it: what it shows is then of the object that it was told of.
    fn look_at<D>(
        &mut self,
        now: Time,
        object: &ObjectView<'_>,
        (origin, truth, told): (usize, Option<TrueObject>, Option<Original>),
        (eyes, connection, here): (&Eyes<'_, D>, u32, [f64; 3]),
    ) {
        let through = eyes.edge;
        let Some(past) = self.pasts.get(origin) else { return };
        let Some(tick) = self.translation.client_tick(through, origin, past.snapshot.tick) else { return };
        let same = truth.is_some_and(|truth| is_same(object, &truth, (tick, hops(through))));
        // Snapshots have no objects that never change; those are compared at rest.
        let may_change = object.kind.0 != Prop::NUMBER;
        let is_of_snapshot = match through {
            None => object.newest_tick == past.snapshot.tick,
            Some(_) => told.is_some_and(|told| self.has_all_since(object, through, told.origin)),
        };
        if self.is_clean && may_change && is_of_snapshot {
            let is_known = same || through.is_some() && told.is_some_and(|told| self.was_so(object, (told, through)));
            self.in_play.objects += 1;
            if !is_known {
                self.in_play.mismatches += 1;
                let because = if truth.is_some() { Because::Values } else { Because::NotThere };
                self.describe((When::InPlay, because), eyes, (object, told));
            }
        }
        let Some(truth) = truth.filter(|truth| truth.owner.is_some_and(|owner| owner != connection)) else { return };
        let past = &self.pasts[origin];
        // State that equals a snapshot is as old as the snapshot, however long nothing was sent; or younger, if
        // something was sent since.
        // An edge's tick does not tell from which of the server's ticks a state is.
        // Of a tick that nobody remembers the state is at least as old as the oldest of those that are: the worst ones count.
        let newest_us = past.time_of(object.newest_tick).or_else(|| past.time_before(object.newest_tick));
        let newest_us = newest_us.filter(|_| through.is_none());
        // For its age, a state at an edge has to be as right as one at the server's clients.
        let is_fresh = match through {
            None => same,
            Some(_) => is_same(object, &truth, (tick, 1)),
        };
        let equal_us = match is_fresh {
            true => Some(past.snapshot.time.0 as f64),
            false => told.and_then(|told| self.time_of_equal(object, (told, through), (newest_us.unwrap_or(0.0), 1))),
        };
        let oldest_us = || self.pasts.get(told?.origin).filter(|_| through.is_some()).and_then(Past::oldest_us);
        let equal_us = equal_us.or_else(oldest_us);
        let taken_us = equal_us.map_or(newest_us, |equal_us| Some(equal_us.max(newest_us.unwrap_or(0.0))));
        let there = truth.position_after(past.world_seconds_since_snapshot(now));
        if let Some(taken_us) = taken_us {
            let age_ms = (now.0 as f64 - taken_us) / 1e3;
            let distance_m = distance(here, there);
            self.neighbours.look(distance_m, age_ms, distance(position_of(object), there));
            if distance_m <= NEAR_M {
                self.sights.note_near_age(connection, age_ms);
            }
        }
    }
}

/// Of the number of objects that a client holds.
pub(super) fn known_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 10_000_000, 3).expect("the bounds are possible")
}

/// Whether a client has the values of the truth at its `tick`, off at most `hops` times: a position that it reckons, to within the error that its kind
/// states; all others exactly. Of an object that it sees from afar, the values that are for that.
fn is_same(object: &ObjectView<'_>, truth: &TrueObject, (tick, hops): (Tick, u32)) -> bool {
    let words = object.values.words;
    if object.kind.0 != truth.kind || words.len() > truth.words.len() {
        return false;
    }
    if is_far(object) {
        return words.get(FAR_WORD..).is_some_and(|far| far == &truth.words[FAR_WORD..words.len()]);
    }
    // The values for clients far away do not count.
    let end = words.len().min(FAR_WORD);
    let (words, truth) = (&words[..end], &truth.words[..end]);
    let is_within = |from: usize| {
        let mut pairs = truth.iter().zip(words).enumerate().skip(from);
        pairs.all(|(word, (truth, seen))| seen == truth || is_held(object, word, (*seen, *truth), hops))
    };
    let Some(reckoned) = object.reckoned else { return is_within(0) };
    let (there, error_steps) = (reckoned.reckoning.position(truth), reckoned.reckoning.error_steps * hops + hops - 1);
    let is_near = reckoned.at(tick).iter().zip(there).all(|(seen, there)| seen.abs_diff(there) <= error_steps);
    // The lab's kinds begin with the position.
    is_near && is_within(3)
}

/// Whether a word differs by no more than its threshold. Owners are exact.
fn is_held(object: &ObjectView<'_>, word: usize, (seen, truth): (u32, u32), hops: u32) -> bool {
    let has_thresholds = object.kind.0 == Character::NUMBER && !object.is_own();
    let of_word = THRESHOLDS.into_iter().find(|threshold| threshold.word == word);
    let threshold = of_word.map(|threshold| Threshold { steps: threshold.steps * hops, ..threshold });
    has_thresholds && threshold.is_some_and(|threshold| threshold.holds(seen, truth))
}

/// Whether the client is sent only what clients far away are sent.
fn is_far(object: &ObjectView<'_>) -> bool {
    are_far(object.facets)
}

fn are_far(facets: [bool; Facet::ALL.len()]) -> bool {
    facets[Facet::Far.index()] && !facets[Facet::Public.index()]
}

/// Where a client shows it, in metres; the lab's kinds begin with a position in centimetres.
fn position_of(object: &ObjectView<'_>) -> [f64; 3] {
    let words = object.values.words;
    if is_far(object) {
        return std::array::from_fn(|axis| {
            words.get(FAR_WORD + axis).map_or(0.0, |&word| f64::from(word as i32) * f64::from(FAR_STEP_M))
        });
    }
    let stated = || std::array::from_fn(|axis| words.get(axis).map_or(0, |&word| word as i32));
    object.reckoned.map_or_else(stated, |reckoned| reckoned.now()).map(|steps| f64::from(steps) / 100.0)
}

/// Whether it is a character on the move; the words after its position are its velocity.
fn is_moving(object: &ObjectView<'_>) -> bool {
    let velocity = |axis: usize| object.values.words.get(3 + axis).map_or(0.0, |&word| velocity_of(word));
    object.kind.0 == Character::NUMBER
        && (0..3).map(|axis| velocity(axis).powi(2)).sum::<f64>() > MOVING_M_PER_S.powi(2)
}

fn distance(a: [f64; 3], b: [f64; 3]) -> f64 {
    (0..3).map(|axis| (a[axis] - b[axis]).powi(2)).sum::<f64>().sqrt()
}

mod differences;
mod past;
mod trail;
mod translation;

#[cfg(test)]
mod tests;
