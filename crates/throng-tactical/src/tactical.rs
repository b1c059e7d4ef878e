//! A match: its state, and the order of a step.

use std::fmt;
use std::sync::LazyLock;

use fastrand::Rng;
use glam::Vec3;
use thiserror::Error;
use throng::Tick;
use throng_match::{Digest, Flow, Phase, Scopes, Seat, Subsystem, TickInput};
use throng_rewind::{
    BodyId, Case, ConvexError, Escape, HistoryOptions, JudgeRules, Latency, ModelError, Models, PartId, Rewind,
    RewindCounters, RewindError, RewindOptions, ShapeId, SkeletonId, ViewRules,
};
use throng_sight::fog::{FogAudit, FogCounts};

use crate::ability::{Barrier, SMOKES_MAX, Smoke, WALLS_MAX};
use crate::agents::Agents;
use crate::arena::Arena;
use crate::bomb::Bomb;
use crate::character::Character;
use crate::clip::CLIPS;
use crate::command::Buttons;
use crate::compare::Twin;
use crate::event::{EVENTS_MAX, Event};
use crate::inbox::{Inbox, Order, Refusal, Refusals};
use crate::publish::Publication;
use crate::round::Round;
use crate::rules::{Rules, RulesError};
use crate::senses::{RoundPhase, Team};
use crate::shot::{ShotLog, Wound};
use crate::skeleton::skeleton;
use crate::solid::Solids;
use crate::vision::{Scene, Vision};

/// Poses are evaluated every so many ticks.
pub(crate) const POSE_TICKS: u32 = 4;

/// Counts of the work that a match has done, and of the work that it could spare, since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Steps.
    pub steps: u64,
    /// Poses that were evaluated.
    pub poses: u64,
    /// Poses that were not, because they are evaluated every 4th tick only.
    pub poses_saved_by_cadence: u64,
    /// Poses that were not, because nobody moves in the buy phase.
    pub poses_saved_by_phase: u64,
    /// Moves that were not computed, because nobody moves in the buy phase.
    pub moves_saved_by_phase: u64,
    /// Updates of the fog that were not done, because nobody moves in the buy phase.
    pub fog_saved_by_phase: u64,
    /// Shots that were fired.
    pub shots: u64,
    /// Records of verdicts that were dropped, because nobody took those before.
    pub verdicts_dropped: u64,
    /// Times that the map was asked for triangles near a character.
    pub map_queries: u64,
    /// Characters that fell out of the map. On a closed map there are none.
    pub fallen: u64,
    /// Events that were dropped, because there were more than [`EVENTS_MAX`] in a step.
    pub events_dropped: u64,
}

/// Why a match cannot be made. The caller is at fault.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum TacticalError {
    /// The rules are wrong.
    #[error(transparent)]
    Rules(#[from] RulesError),
    /// The rewinding refused its options.
    #[error(transparent)]
    Rewind(#[from] RewindError),
    /// The skeleton was refused.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The shape of the wall was refused.
    #[error(transparent)]
    Convex(#[from] ConvexError),
}

impl TacticalError {
    /// A short stable name, for metric labels.
    pub fn tag(&self) -> &'static str {
        match self {
            TacticalError::Rules(error) => error.tag(),
            TacticalError::Rewind(error) => error.tag(),
            TacticalError::Model(error) => error.tag(),
            TacticalError::Convex(error) => error.tag(),
        }
    }
}

/// A match of the tactical game.
///
/// A step depends on the seed, the rules, the map and the inputs so far, and on nothing else.
pub struct Tactical {
    pub(crate) rules: Rules,
    pub(crate) arena: Arena,
    pub(crate) random: Rng,
    pub(crate) now: Tick,
    pub(crate) round: Round,
    pub(crate) bomb: Bomb,
    pub(crate) characters: Vec<Character>,
    pub(crate) inboxes: Vec<Inbox>,
    /// The action of each seat in this tick, and the buttons pressed for it.
    pub(crate) orders: Vec<(Order, Buttons)>,
    pub(crate) solids: Vec<Solids>,
    pub(crate) smokes: Vec<Smoke>,
    pub(crate) barriers: Vec<Barrier>,
    /// Walls that have fallen, for those who still see them.
    pub(crate) fallen: Vec<Barrier>,
    /// Smokes and walls so far.
    pub(crate) made: u32,
    /// Parts of the world that no wall has.
    pub(crate) free_parts: Vec<PartId>,
    wall_shape: ShapeId,
    pub(crate) rewind: Rewind,
    /// The same with a pose for each tick, to compare.
    pub(crate) twin: Option<Box<Twin>>,
    person: SkeletonId,
    pub(crate) case: Case,
    pub(crate) log: ShotLog,
    pub(crate) wounds: Vec<Wound>,
    pub(crate) targets: Vec<BodyId>,
    pub(crate) escapes: Vec<(BodyId, Escape)>,
    pub(crate) vision: Vision,
    pub(crate) events: Vec<Event>,
    pub(crate) refusals: Refusals,
    pub(crate) counters: Counters,
    agents: Option<Box<dyn Agents>>,
    pub(crate) publication: Publication,
}

impl Tactical {
    /// A match before its first step. Allocates what it will need.
    ///
    /// # Errors
    /// A number of the rules is out of range.
    pub fn new(arena: Arena, rules: Rules, seed: u64) -> Result<Tactical, TacticalError> {
        rules.check()?;
        let mut models = Models::new();
        let person = models.add_skeleton(skeleton()?)?;
        let wall_shape = models.add_shape(Barrier::shape()?)?;
        let mut rewind = Rewind::new(rewind_options(&rules), models)?;
        let seats = rules.seats();
        let character = |seat: usize| {
            let body = rewind.add_body(person)?;
            let team = if seat < seats / 2 { Team::Attackers } else { Team::Defenders };
            Ok(Character::new(Seat(seat as u16), team, body, rules.money))
        };
        let characters = (0..seats).map(character).collect::<Result<Vec<Character>, RewindError>>()?;
        // The clips are made now, not in the first tick that needs a pose.
        LazyLock::force(&CLIPS);
        let part = |_| rewind.add_part(wall_shape, u32::MAX);
        let free_parts = (0..WALLS_MAX).map(part).collect::<Result<Vec<PartId>, RewindError>>()?;
        Ok(Tactical {
            random: Rng::with_seed(seed),
            now: Tick(0),
            round: Round::new(),
            bomb: Bomb::Nowhere,
            characters,
            inboxes: vec![Inbox::default(); seats],
            orders: vec![(Order::default(), Buttons::NONE); seats],
            solids: (0..seats).map(|_| Solids::new()).collect(),
            smokes: Vec::with_capacity(SMOKES_MAX),
            barriers: Vec::with_capacity(WALLS_MAX),
            fallen: Vec::with_capacity(WALLS_MAX),
            made: 0,
            free_parts,
            wall_shape,
            rewind,
            twin: None,
            person,
            case: Case::new(),
            log: ShotLog::new(),
            wounds: Vec::with_capacity(seats),
            targets: Vec::with_capacity(seats),
            escapes: Vec::with_capacity(seats),
            vision: Vision::new(&rules),
            events: Vec::with_capacity(EVENTS_MAX),
            refusals: Refusals::default(),
            counters: Counters::default(),
            agents: None,
            publication: Publication::new(seats),
            rules,
            arena,
        })
    }

    /// The same match with players that it plays itself, in the seats without a connected player.
    pub fn with_agents(self, agents: Box<dyn Agents>) -> Tactical {
        Tactical { agents: Some(agents), ..self }
    }

    /// The same match, which also judges each shot with poses of every tick, and compares:
    /// [`Tactical::comparison`]. That costs about as much again as all poses and shots.
    ///
    /// # Errors
    /// None that [`Tactical::new`] has not reported.
    pub fn with_comparison(self) -> Result<Tactical, TacticalError> {
        let twin = Twin::new(&self.rewind, (self.characters.len(), self.person), (WALLS_MAX, self.wall_shape))?;
        Ok(Tactical { twin: Some(Box::new(twin)), ..self })
    }

    /// The map and its places.
    pub fn arena(&self) -> &Arena {
        &self.arena
    }

    /// The rules.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// The tick of the last step.
    pub fn now(&self) -> Tick {
        self.now
    }

    /// The part of the round.
    pub fn round_phase(&self) -> RoundPhase {
        self.round.phase
    }

    /// The number of the round, from 1.
    pub fn round(&self) -> u16 {
        self.round.number
    }

    /// Rounds won by attackers and defenders.
    pub fn score(&self) -> [u8; 2] {
        self.round.score
    }

    /// The players that the match plays itself.
    pub fn agents(&self) -> Option<&dyn Agents> {
        self.agents.as_deref()
    }

    /// The events of the last step.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// Commands and shots that were refused so far.
    pub fn refusals(&self) -> &Refusals {
        &self.refusals
    }

    /// Work done and spared so far.
    pub fn counters(&self) -> Counters {
        Counters { verdicts_dropped: self.log.dropped, ..self.counters }
    }

    /// Verdicts so far.
    pub fn rewind_counters(&self) -> &RewindCounters {
        self.rewind.counters()
    }

    /// Memory of the pose history of one player, in bytes.
    pub fn history_bytes(&self) -> usize {
        let body = self.characters.first().and_then(|character| self.rewind.body(character.body));
        body.map_or(0, |history| history.memory_bytes())
    }

    /// Verdicts with poses of every 4th tick against verdicts with all poses, if the match compares them.
    pub fn comparison(&self) -> Option<&throng_rewind::Comparison> {
        self.twin.as_ref().map(|twin| twin.comparison())
    }

    /// Work of the fog so far.
    pub fn fog_counts(&self) -> FogCounts {
        self.vision.counts()
    }

    /// A watcher for [`Tactical::watch_fog`], with so many looks in each step.
    pub fn fog_audit(&self, pairs_per_step: usize) -> FogAudit {
        self.vision.audit(pairs_per_step)
    }

    /// Compares the fog of the last step with 360 lines for each pair that is looked at, at the time when the viewer's
    /// screen shows it. Call it after each step but those of the
    /// buy phase, in which nobody moves.
    pub fn watch_fog(&self, audit: &mut FogAudit) {
        self.vision.watch(self.now, self.arena.map(), audit);
    }

    /// Makes the fog wrong, for tests of what watches it: it takes everybody's latency for none.
    #[doc(hidden)]
    pub fn ignore_latency(&mut self) {
        self.vision.ignore_latency();
    }

    /// Whether the viewer may be sent the target, by the fog of the last step. Members of a team always are.
    pub fn may_see(&self, viewer: Seat, target: Seat) -> bool {
        let seats = self.characters.len();
        viewer.index() < seats && target.index() < seats && self.vision.visible(viewer.index(), target.index())
    }

    /// Moves the records of all verdicts since the last call to the end of `out`: a log for
    /// [`throng_rewind::LogReader`], in pieces.
    pub fn take_verdicts(&mut self, out: &mut Vec<u8>) {
        self.log.take(out);
    }

    /// Puts somebody who is alive somewhere, before a step: for tests and practice. A replay does not know of it.
    #[doc(hidden)]
    pub fn put(&mut self, seat: Seat, feet: Vec3, yaw: u16) {
        let character = &mut self.characters[seat.index()];
        character.mover = crate::walk::Mover::at(feet);
        character.yaw = yaw;
        self.rewind.break_body(character.body, self.now.after(1), throng_rewind::Break::Teleport);
        self.inboxes[seat.index()].turn(yaw);
    }

    pub(crate) fn now_us(&self) -> u64 {
        // Ticks of a match times a million stay far below 2^64.
        self.now.0.wrapping_mul(1_000_000) / u64::from(self.rules.tick_hz)
    }

    /// The delays of a player, as the judge knows them.
    pub(crate) fn latency(&self, seat: usize) -> Latency {
        let interpolation_us = u32::from(self.rules.interpolation_ticks) * 1_000_000 / self.rules.tick_hz;
        Latency { rtt_us: self.inboxes[seat].rtt_us, interpolation_us }
    }

    pub(crate) fn note(&mut self, event: Event) {
        if self.events.len() < EVENTS_MAX {
            self.events.push(event);
        } else {
            self.counters.events_dropped += 1;
        }
    }

    pub(crate) fn step_once(&mut self, input: &TickInput<'_>, scopes: &mut Scopes) -> Flow {
        self.events.clear();
        self.counters.steps += 1;
        scopes.time(Subsystem::GAMEPLAY, |_| self.receive(input));
        scopes.time(Subsystem::AI, |scopes| self.play_agents(scopes));
        self.now = input.tick;
        {
            let scopes = scopes.enter(Subsystem::GAMEPLAY);
            self.turn_round();
            let scopes = scopes.then(Subsystem::CHARACTER);
            self.take_orders();
            if self.round.phase != RoundPhase::Buy {
                let scopes = scopes.then(Subsystem::MOVEMENT);
                self.walk();
                let scopes = scopes.then(Subsystem::PHYSICS);
                self.move_parts();
                let scopes = scopes.then(Subsystem::ANIMATION);
                self.animate();
                let mut scopes = scopes.then(Subsystem::EQUIPPABLE);
                self.shoot(&mut scopes);
                let scopes = scopes.then(Subsystem::GAMEPLAY);
                self.wound();
                self.work();
                self.decide();
                drop(scopes);
            } else {
                let seats = self.characters.len() as u64;
                // Of the others the cadence would spare the rest.
                let due =
                    (0..seats).filter(|seat| (self.now.0 + seat).is_multiple_of(POSE_TICKS.into())).count() as u64;
                self.counters.poses_saved_by_phase += due;
                self.counters.poses_saved_by_cadence += seats - due;
                self.counters.moves_saved_by_phase += seats;
            }
        }
        scopes.time(Subsystem::FOG_OF_WAR, |_| self.look());
        if self.round.phase == RoundPhase::Over { Flow::Over } else { Flow::Continue }
    }

    fn receive(&mut self, input: &TickInput<'_>) {
        // A seat that is in both lists has left and come back.
        for seat in input.left {
            if let Some(inbox) = self.inboxes.get_mut(seat.index()) {
                inbox.leave();
            }
        }
        for seat in input.joined {
            if let Some(inbox) = self.inboxes.get_mut(seat.index()) {
                inbox.join();
            }
        }
        for latency in input.latencies {
            if let Some(inbox) = self.inboxes.get_mut(latency.seat.index()) {
                inbox.rtt_us = latency.rtt_us;
            }
        }
        for command in input.commands {
            let inbox = self.inboxes.get_mut(command.seat.index()).filter(|inbox| inbox.is_joined);
            let accepted = match inbox {
                Some(inbox) => inbox.accept(command.number, command.bytes, input.tick),
                None => Err(Refusal::UnknownSeat),
            };
            if let Err(refusal) = accepted {
                self.refusals.count(refusal);
            }
        }
    }

    fn play_agents(&mut self, scopes: &mut Scopes) {
        // Taken out for as long as it looks at the match.
        let Some(mut agents) = self.agents.take() else { return };
        agents.think(self, scopes);
        for seat in 0..self.characters.len() {
            if self.inboxes[seat].is_joined {
                continue;
            }
            if let Some(command) = agents.command(Seat(seat as u16)) {
                // An agent gives one command for each tick, so there is room.
                let _ = self.inboxes[seat].push(command);
            }
        }
        self.agents = Some(agents);
    }

    /// Whether the match plays this seat itself.
    pub fn is_agent(&self, seat: Seat) -> bool {
        self.inboxes.get(seat.index()).is_some_and(|inbox| !inbox.is_joined)
    }

    fn look(&mut self) {
        let has_begun = self.events.iter().any(|event| matches!(event, Event::RoundBegan { .. }));
        if has_begun {
            self.vision.forget();
        }
        if self.round.phase == RoundPhase::Buy && !has_begun {
            self.counters.fog_saved_by_phase += 1;
            return;
        }
        let scene = Scene {
            walls: self.arena.walls(),
            rules: &self.rules,
            characters: &self.characters,
            inboxes: &self.inboxes,
            smokes: &self.smokes,
            barriers: &self.barriers,
        };
        self.vision.update(self.now, &scene);
    }

    pub(crate) fn state_digest(&self) -> u64 {
        let mut hash = Digest::new();
        hash.add(self.now.0);
        hash.add(self.random.get_seed());
        self.round.digest(&mut hash);
        self.bomb.digest(&mut hash);
        self.characters.iter().for_each(|character| character.digest(&mut hash));
        self.inboxes.iter().for_each(|inbox| inbox.digest(&mut hash));
        hash.add(u64::from(self.made));
        for smoke in &self.smokes {
            hash.add_f32s(&smoke.middle.to_array());
            hash.add(smoke.from.0);
        }
        for barrier in self.barriers.iter().chain(&self.fallen) {
            hash.add_f32s(&barrier.foot.to_array());
            hash.add(barrier.from.0 << 16 | u64::from(barrier.yaw));
        }
        let verdicts = self.rewind.counters();
        for count in [verdicts.shots, verdicts.hits, verdicts.blocked, verdicts.escaped] {
            hash.add(count);
        }
        for (_, count) in self.refusals.all() {
            hash.add(count);
        }
        self.vision.digest(&mut hash);
        if let Some(agents) = &self.agents {
            hash.add(agents.digest());
        }
        hash.finish()
    }

    pub(crate) fn phase_label(&self) -> Phase {
        self.round.label()
    }
}

fn rewind_options(rules: &Rules) -> RewindOptions {
    // A second of history at any tick rate.
    let poses = (rules.tick_hz.div_ceil(POSE_TICKS) as usize).next_power_of_two().clamp(2, 1_024);
    let history = HistoryOptions { every_ticks: POSE_TICKS, poses, ..HistoryOptions::default() };
    let view = ViewRules { ticks_per_s: rules.tick_hz, ..ViewRules::default() };
    RewindOptions { history, judge: JudgeRules { view, ..JudgeRules::default() } }
}

impl fmt::Debug for Tactical {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tactical")
            .field("now", &self.now)
            .field("round", &self.round)
            .field("bomb", &self.bomb)
            .finish_non_exhaustive()
    }
}
