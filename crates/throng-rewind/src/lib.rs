//! Lag compensation: shots are judged by what the shooter saw.
//!
//! A player aims at a picture that is old: the state needed time to arrive, and the client shows it a little later
//! still, so that it can interpolate. The server therefore keeps where everybody was ([`PoseHistory`]). For each shot
//! it decides which moment the shooter saw ([`ViewRules::decide`]), puts bodies and moving parts of the world back to
//! that moment, tests the ray, and says what happened and why ([`Verdict`]).
//!
//! ```text
//! claim (tick + fraction) ---> ViewRules: near the server's own estimate? not in the future? not too long ago?
//!                                 |
//!                                 v moment
//! PoseHistory of each target:  box over all stored poses --> ball at the moment --> ball of each bone --> capsules
//!   o---o---o---o-|  o---o       most targets end here        a few ns each         usually one to three are left
//! PartHistory of doors, lifts, walls: the same moment            |
//! Surroundings: static world, abilities                          |
//!                                                                v
//! LogWriter <-- Case: all inputs of this shot  -----------> Verdict: hit, blocked, escaped, missed by how much
//! ```
//!
//! **The promise.** A verdict is a function of its [`Case`], bit for bit on every machine. So a log of cases can be
//! judged again ([`replay`]), with other rules too. Nothing is extrapolated, nothing is mixed across a teleport, a
//! death or a spawn, and no client can move its view farther than [`ViewRules::most_gained_by_lying_ms`] says.
//!
//! ```
//! use throng_rewind::{
//!     Bone, BonePose, Capsule, Case, Latency, Models, Moment, OpenSpace, Rewind, RewindOptions, Shot, Skeleton,
//!     Transform,
//! };
//! use throng_wire::Tick;
//!
//! let bones = vec![
//!     Bone::new("body", 1, Capsule::new([0.0; 3], [0.0, 0.0, 0.6], 0.2)),
//!     Bone::new("head", 0, Capsule::ball([0.0; 3], 0.12)),
//! ];
//! let mut models = Models::new();
//! let person = models.add_skeleton(Skeleton::new(bones)?)?;
//! let mut rewind = Rewind::new(RewindOptions::default(), models)?;
//! let (shooter, runner) = (rewind.add_body(person)?, rewind.add_body(person)?);
//!
//! // Each tick: record everybody. The runner crosses the view at 6 m/s.
//! let pose = [BonePose::at([0.0, 0.0, 0.8]), BonePose::at([0.0, 0.0, 1.6])];
//! for tick in 0..=128 {
//!     let root = Transform::at([20.0, tick as f64 * 6.0 / 128.0, 0.0]);
//!     rewind.record(runner, Tick(tick), &root, &pose)?;
//! }
//!
//! // The shooter's screen showed tick 119 and a half, when the runner's head was at y = 5.6.
//! let shot = Shot {
//!     shooter,
//!     now: Tick(128),
//!     claim: Moment::new(Tick(119), 0.5),
//!     latency: Latency { rtt_us: 60_000, interpolation_us: 7_812 },
//!     origin_m: [0.0, 0.0, 1.6],
//!     direction: [20.0, 5.6, 0.0],
//!     range_m: 100.0,
//!     mask: 1,
//! };
//! let mut case = Case::new(); // kept, so that its buffers are reused
//! let verdict = rewind.judge(&shot, &[runner], &OpenSpace, &mut case)?;
//! assert_eq!(verdict.why(rewind.models()).to_string(), "hit head of body 1 at 20.65 m; rewound 66.4 ms");
//! assert_eq!(case.judge_again(rewind.models())?, verdict);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! `docs/rewind.md` has the steps for a game, the limits, and what a cheater gains.
#![forbid(unsafe_code)]

mod advantage;
mod capsule;
mod case;
mod codec;
mod compare;
mod convex;
mod geometry;
mod log;
mod models;
mod moment;
mod part;
mod pose;
mod rewind;
mod track;
mod verdict;
mod view;

pub use advantage::PeekPath;
pub use capsule::{Capsule, CapsuleError, MAX_CAPSULE_M};
pub use case::{Case, Escape, JudgeRules, MAX_RANGE_M, OpenSpace, Shot, ShotError, Surroundings, WorldHit};
pub use compare::Comparison;
pub use convex::{Convex, ConvexError, MAX_CONVEX_M, MAX_PLANES, Plane};
pub use geometry::Transform;
pub use log::{LogError, LogReader, LogSummary, LogWriter, replay};
pub use models::{Bone, MAX_BONES, MAX_MODELS, MAX_NAME_BYTES, ModelError, Models, ShapeId, Skeleton, SkeletonId};
pub use moment::Moment;
pub use part::PartHistory;
pub use pose::{BonePose, Break, HistoryOptions, Interpolation, MAX_BODY_M, PoseHistory, RecordError, Recorded};
pub use rewind::{MAX_BODIES, MAX_PARTS, Rewind, RewindCounters, RewindError, RewindOptions};
pub use verdict::{Block, Blocker, BodyId, Flags, NearMiss, Outcome, PartId, Struck, Verdict, Why};
pub use view::{Latency, MAX_REWIND_MS, MAX_TICKS_PER_S, View, ViewRules};
