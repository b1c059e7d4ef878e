//! Objects with a predicted position: they run, turn, are stuck, slide and rest, and the game's own values say where.

use std::collections::BTreeMap;

use fastrand::Rng;
use throng_replica::{ChannelKey, Placement, ReplicaClient, ReplicaObject};
use throng_schema::{Replicate, Values, ValuesMut};
use throng_wire::ObjectId;

use super::{CELL_M, Peer, Role, Storm, WORLD_M};
use crate::homes::Homes;

/// The interval of ticks that both ends take for granted.
const TICK_S: f32 = 0.033_333;
/// The error that is declared, half a step by which the quantised position may be off, and slack for single precision.
const ERROR_M: f32 = 0.03 + 0.005 + 0.000_1;
/// Half a step of a velocity and of a heat, with slack, and their thresholds.
const VELOCITY_M_PER_S: [f32; 2] = [0.025_1, 0.4];
const HEAT: [f32; 2] = [0.050_1, 1.0];

#[derive(Clone, Debug, Default, PartialEq, Replicate)]
pub(crate) struct Runner {
    #[replicate(integer(min = 0, max = 1000))]
    pub health: u16,
    #[replicate(position(step = 0.01), predict(by = "velocity", error_m = 0.03))]
    pub position: [f32; 3],
    #[replicate(integer, owner_only)]
    pub ammunition: u32,
    #[replicate(fixed(min = -10.0, max = 10.0, step = 0.05), threshold = 0.4)]
    pub velocity: [f32; 3],
    #[replicate(fixed(min = 0, max = 10, step = 0.1), threshold = 1.0)]
    pub heat: f32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum Gait {
    /// Goes where its velocity says.
    Runs,
    /// The same, and a little to all sides of it.
    Sways,
    /// Has a velocity and stays where it is; the game does not touch it.
    IsStuck,
    /// Moves slowly, and says that it does not.
    Slides,
    #[default]
    Rests,
}

impl Storm {
    /// Lets the runners do what they do in one tick. `storm`: new ones come, and old ones go.
    pub(super) fn run_about(&mut self, storm: bool) {
        if self.options.runners == 0 {
            return;
        }
        if storm && self.runners.len() < self.options.runners {
            self.spawn_runner();
        }
        let ids: Vec<ObjectId> = self.runners.keys().copied().collect();
        for &id in &ids {
            let touches = self.step_runner(id);
            if touches {
                let (runner, _) = &self.runners[&id];
                self.server.update(id, |to| runner.quantise(to)).unwrap();
                self.roles.get_mut(&id).unwrap().homes.note(runner.position);
            }
        }
        let Some(&id) = self.rng.choice(&ids) else { return };
        match self.rng.u32(..40) {
            0 if storm => {
                self.server.despawn(id);
                self.runners.remove(&id);
                self.remove_role(id);
            }
            1..5 => {
                let owner = self.some_client();
                self.server.set_owner(id, owner).unwrap();
                self.roles.get_mut(&id).unwrap().owner = owner;
                self.have_roles_changed = true;
            }
            5 => {
                let is_entity = self.rng.bool();
                let placement = if is_entity { Placement::Entity } else { Placement::Cell(0) };
                self.server.set_placement(id, placement).unwrap();
                let role = self.roles.get_mut(&id).unwrap();
                role.homes.settle(self.runners[&id].0.position);
                role.is_entity = is_entity;
                self.have_roles_changed = true;
            }
            _ => {}
        }
    }

    /// From now on they rest.
    pub(super) fn stop_runners(&mut self) {
        for (&id, (runner, gait)) in &mut self.runners {
            (runner.velocity, *gait) = ([0.0; 3], Gait::Rests);
            self.server.update(id, |to| runner.quantise(to)).unwrap();
        }
        self.options.runners = 0;
    }

    fn spawn_runner(&mut self) {
        let runner = Runner { position: self.anywhere(), health: self.rng.u16(..1000), ..Runner::default() };
        let kind = self.server.store().schema().kind_id::<Runner>().unwrap();
        let is_entity = self.rng.f64() < 0.3;
        let placement = if is_entity { Placement::Entity } else { Placement::Cell(0) };
        let owner = self.some_client();
        let id = self.server.spawn(kind, placement, owner, |to| runner.quantise(to)).unwrap();
        self.insert_role(id, Role { owner, is_entity, homes: Homes::new([CELL_M; 3], 3, runner.position) });
        self.runners.insert(id, (runner, Gait::Rests));
    }

    /// One tick of a runner. Returns whether the game touches it.
    fn step_runner(&mut self, id: ObjectId) -> bool {
        let anywhere = self.anywhere();
        let (runner, gait) = self.runners.get_mut(&id).unwrap();
        let rng = &mut self.rng;
        let before = runner.clone();
        match rng.u32(..100) {
            0..5 => {
                *gait = [Gait::Runs, Gait::Sways, Gait::IsStuck, Gait::Slides, Gait::Rests][rng.usize(..5)];
                runner.velocity = match gait {
                    Gait::Runs | Gait::Sways | Gait::IsStuck => a_velocity(rng),
                    Gait::Slides | Gait::Rests => [0.0; 3],
                };
            }
            5..9 if matches!(gait, Gait::Runs | Gait::Sways) => runner.velocity = a_velocity(rng),
            9 => runner.position = anywhere,
            10..14 => runner.health = rng.u16(..1000),
            14..16 => runner.ammunition = rng.u32(..),
            16..18 => runner.heat = rng.f32() * 10.0,
            _ => {}
        }
        if *gait == Gait::Sways {
            // Small changes, most of which are below the thresholds.
            runner.velocity = runner.velocity.map(|along| (along + (rng.f32() - 0.5) * 0.3).clamp(-9.0, 9.0));
            runner.heat = (runner.heat + (rng.f32() - 0.5) * 0.5).clamp(0.0, 10.0);
        }
        for axis in 0..3 {
            let moves_m = match gait {
                Gait::Runs => runner.velocity[axis] * TICK_S,
                Gait::Sways => runner.velocity[axis] * TICK_S + (rng.f32() - 0.5) * 0.03,
                Gait::Slides => [0.004, -0.002, 0.0][axis],
                Gait::IsStuck | Gait::Rests => 0.0,
            };
            let limit_m = if axis == 0 { WORLD_M } else { 4.0 };
            runner.position[axis] += moves_m;
            if runner.position[axis].abs() > limit_m {
                runner.position[axis] = runner.position[axis].clamp(-limit_m, limit_m);
                if matches!(gait, Gait::Runs | Gait::Sways) {
                    runner.velocity[axis] = -runner.velocity[axis];
                }
            }
        }
        *runner != before
    }

    /// In a tick in which it has been told everything, a client shows each runner that it sees where it was in the newest
    /// tick that it has heard of, and its other values as they were.
    pub(super) fn check_runners(&mut self) -> Result<(), String> {
        for peer in self.clients.iter().flatten() {
            let Some(newest) = peer.replica.newest_tick() else { continue };
            let moment = self.history.iter().rev().find(|moment| moment.tick == newest).expect("a tick of this storm");
            let kind = peer.replica.schema().kind_id::<Runner>();
            for seen in peer.replica.objects().filter(|seen| Some(seen.kind()) == kind) {
                let Some((truth, owner)) = moment.runners.get(&seen.id()) else { continue };
                check_runner(truth, &peer.replica, seen, *owner == Some(peer.id))
                    .map_err(|difference| format!("{} at {newest:?}: {difference}", seen.id()))?;
                self.looks[usize::from(seen.is_own())] += 1;
            }
        }
        Ok(())
    }

    /// The client sees the runners that it has to see, as they are, and `held` loses them.
    pub(super) fn compare_runners(
        &self,
        peer: &Peer,
        held: &mut BTreeMap<ObjectId, &ReplicaObject>,
    ) -> Result<(), String> {
        for (&id, (runner, _)) in &self.runners {
            let role = &self.roles[&id];
            let is_own = role.owner == Some(peer.id);
            let hears_cell = |cell| peer.subscriptions.contains_key(&ChannelKey::Cell { grid: 0, cell });
            let is_seen = |cell| is_own || role.is_entity || hears_cell(cell);
            match held.remove(&id) {
                None if role.homes.cells().all(is_seen) => return Err(format!("{id} is not seen: {runner:?}")),
                Some(_) if !role.homes.cells().any(is_seen) => return Err(format!("{id} is still seen: {runner:?}")),
                None => {}
                Some(seen) => check_runner(runner, &peer.replica, seen, is_own)
                    .map_err(|difference| format!("{id} in the end: {difference}"))?,
            }
        }
        Ok(())
    }
}

/// The owner has its runners exactly. Others have them within the declared error and thresholds, and all other fields exactly.
fn check_runner(truth: &Runner, client: &ReplicaClient, seen: &ReplicaObject, is_own: bool) -> Result<(), String> {
    let mut shown = Runner::default();
    shown.apply(seen.known_fields(), seen.values());
    let reckoned = client.reckoned(seen).map(|reckoned| reckoned.now());
    if seen.is_own() != is_own || reckoned.is_some() == is_own {
        return Err(format!("it is own: {is_own}, not {}; it is reckoned: {reckoned:?}", seen.is_own()));
    }
    let error_m = if is_own { 0.005_1 } else { ERROR_M };
    if let Some(steps) = reckoned {
        shown.position = steps.map(|steps| steps as f32 * 0.01);
    }
    let is_near = (0..3).all(|axis| (shown.position[axis] - truth.position[axis]).abs() <= error_m);
    let allowed = |[half_step, threshold]: [f32; 2]| half_step + if is_own { 0.0 } else { threshold };
    let is_as_fast =
        (0..3).all(|axis| (shown.velocity[axis] - truth.velocity[axis]).abs() <= allowed(VELOCITY_M_PER_S));
    let is_as_hot = (shown.heat - truth.heat).abs() <= allowed(HEAT);
    let ammunition = if is_own { truth.ammunition } else { 0 };
    if is_near && is_as_fast && is_as_hot && (shown.health, shown.ammunition) == (truth.health, ammunition) {
        return Ok(());
    }
    Err(format!("it is {truth:?}, not {shown:?}; stated as {:?}", seen.values()))
}

/// Whether a client that owns a runner holds exactly these values.
pub(super) fn is_exactly(runner: &Runner, object: &ReplicaObject, client: &ReplicaClient) -> bool {
    let kind = client.schema().kind(object.kind());
    let (mut words, mut blobs) = kind.empty_values();
    runner.quantise(ValuesMut { words: &mut words, blobs: &mut blobs });
    let differs = kind.compare(object.values(), Values { words: &words, blobs: &blobs });
    differs & kind.own_update_mask() == 0 && client.reckoned(object).is_none()
}

fn a_velocity(rng: &mut Rng) -> [f32; 3] {
    [8.0, 2.0, 2.0].map(|fastest| (rng.f32() * 2.0 - 1.0) * fastest)
}
