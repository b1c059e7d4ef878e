//! Watches a fog: did it hide somebody who was seen, and did it send somebody who was not?

use glam::{Vec3, vec3};

use super::{Fog, Occluder, Target, Viewer};
use crate::map::Map;
use crate::ray::{Layers, Ray};

/// Points of a target's box along each axis to which lines are drawn.
const POINTS: [u32; 3] = [6, 10, 6];
/// A viewer that moves so far in a tick was put elsewhere, in metres.
const JUMP_M: f32 = 1.0;

/// The findings of an audit so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AuditCounts {
    /// Looks at pairs that were sent.
    pub sent: u64,
    /// Of these, looks that found no free line.
    pub sent_needlessly: u64,
    /// Looks at pairs that were hidden.
    pub hidden: u64,
    /// Of these, looks that found a free line: each one is a fault of the fog.
    pub hidden_but_visible: u64,
}

impl AuditCounts {
    /// The share of what was sent that was sent needlessly; 0 if nothing was sent.
    pub fn sent_needlessly_share(&self) -> f64 {
        if self.sent == 0 { 0.0 } else { self.sent_needlessly as f64 / self.sent as f64 }
    }
}

/// Compares a fog with 360 lines from each eye into each target's box, at the time when the viewer's screen shows it.
///
/// It looks at a few pairs in each tick, in turn, because a look costs up to 0.1 ms. It reads the whole map, with small
/// triangles too. It allocates at the beginning only.
#[derive(Clone, Debug)]
pub struct FogAudit {
    tick_hz: f32,
    latency_max_ms: f32,
    pairs_per_tick: usize,
    past: Vec<Past>,
    eyes: Vec<Option<Vec3>>,
    /// The tick in which each viewer came or was put elsewhere.
    jumped_at: Vec<u64>,
    next: usize,
    counts: AuditCounts,
}

/// The truth of one tick.
#[derive(Clone, Debug)]
struct Past {
    tick: u64,
    targets: Vec<Option<Target>>,
    may_see: Vec<bool>,
    occluders: Vec<Occluder>,
}

impl FogAudit {
    /// For this fog, with so many looks in each tick.
    pub fn new(fog: &Fog, pairs_per_tick: usize) -> FogAudit {
        let (viewers, targets) = (fog.viewers.len(), fog.targets.len());
        let ticks = (fog.options.latency_max_ms / 1_000.0 * fog.options.tick_hz).ceil() as usize + 1;
        let past = Past {
            tick: u64::MAX,
            targets: vec![None; targets],
            may_see: vec![false; viewers * targets],
            occluders: Vec::with_capacity(super::OCCLUDERS_MAX),
        };
        FogAudit {
            tick_hz: fog.options.tick_hz,
            latency_max_ms: fog.options.latency_max_ms,
            pairs_per_tick,
            // A clone has no room of its own for occluders.
            past: (0..ticks)
                .map(|_| Past { occluders: Vec::with_capacity(super::OCCLUDERS_MAX), ..past.clone() })
                .collect(),
            eyes: vec![None; viewers],
            jumped_at: vec![0; viewers],
            next: 0,
            counts: AuditCounts::default(),
        }
    }

    /// Notes a tick after the fog's update, and looks at the next pairs.
    ///
    /// # Panics
    /// If there are not as many viewers and targets as the fog was made for.
    pub fn watch(
        &mut self,
        tick: u64,
        fog: &Fog,
        (map, sight): (&Map, Layers),
        viewers: &[Option<Viewer>],
        targets: &[Option<Target>],
    ) {
        assert_eq!((viewers.len(), targets.len()), (self.eyes.len(), fog.targets.len()), "as many as the fog has");
        for (place, viewer) in viewers.iter().enumerate() {
            let eye = viewer.map(|viewer| viewer.eye);
            let has_moved_on = self.eyes[place].zip(eye).is_some_and(|(before, eye)| before.distance(eye) < JUMP_M);
            if !has_moved_on {
                self.jumped_at[place] = tick;
            }
            self.eyes[place] = eye;
        }
        let len = self.past.len() as u64;
        let now = &mut self.past[(tick % len) as usize];
        now.tick = tick;
        now.targets.copy_from_slice(targets);
        now.may_see.iter_mut().zip(&fog.pairs).for_each(|(noted, pair)| *noted = pair.may_see);
        now.occluders.clear();
        now.occluders.extend_from_slice(&fog.occluders);
        let pairs = viewers.len() * targets.len();
        let mut looks = 0;
        for _ in 0..pairs {
            let pair = self.next;
            self.next = (self.next + 1) % pairs;
            if let Some(viewer) = viewers[pair / targets.len()] {
                looks += usize::from(self.look(tick, pair, &viewer, (map, sight)));
            }
            if looks == self.pairs_per_tick {
                break;
            }
        }
    }

    /// The findings so far.
    pub fn counts(&self) -> AuditCounts {
        self.counts
    }

    /// Looks at a pair as the viewer's screen shows it now. False if there is nothing to look at.
    fn look(&mut self, tick: u64, pair: usize, viewer: &Viewer, (map, sight): (&Map, Layers)) -> bool {
        let latency_s = viewer.latency_ms.clamp(0.0, self.latency_max_ms) / 1_000.0;
        let Some(shown) = tick.checked_sub((latency_s * self.tick_hz) as u64) else { return false };
        let past = &self.past[(shown % self.past.len() as u64) as usize];
        let targets = past.targets.len();
        let Some(target) = past.targets[pair % targets].filter(|target| target.group != viewer.group) else {
            return false;
        };
        if past.tick != shown || self.jumped_at[pair / targets] > shown {
            return false;
        }
        let is_seen = sees(map, sight, &past.occluders, viewer.eye, [target.lowest, target.highest]);
        if past.may_see[pair] {
            self.counts.sent += 1;
            self.counts.sent_needlessly += u64::from(!is_seen);
        } else {
            self.counts.hidden += 1;
            self.counts.hidden_but_visible += u64::from(is_seen);
        }
        true
    }
}

/// Whether any of 360 lines from an eye into a box is free.
fn sees(map: &Map, sight: Layers, occluders: &[Occluder], eye: Vec3, [lowest, highest]: [Vec3; 2]) -> bool {
    let share = |step: u32, axis: usize| step as f32 / (POINTS[axis] - 1) as f32;
    (0..POINTS.iter().product()).any(|number| {
        let (x, y, z) = (number % POINTS[0], number / POINTS[0] % POINTS[1], number / POINTS[0] / POINTS[1]);
        let point = lowest + (highest - lowest) * vec3(share(x, 0), share(y, 1), share(z, 2));
        !occluders.iter().any(|occluder| occluder.blocks(eye, point))
            && Ray::between(eye, point).is_ok_and(|ray| !map.is_blocked(&ray, sight))
    })
}
