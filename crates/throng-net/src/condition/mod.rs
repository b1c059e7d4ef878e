//! Bad networks on purpose: what a path does to datagrams, as parameters, as a pure machine, and around a driver.

mod bottleneck;
mod conditioned;
mod conditioner;
mod in_flight;
mod model;
mod parameters;

pub use bottleneck::{Bottleneck, Policer};
pub use conditioned::{Conditioned, ConditionedOptions, Scope};
pub use conditioner::Conditioner;
pub use in_flight::{Arrival, InFlight, InFlightLimit};
pub use model::{Fate, LossCause, PathModel};
pub use parameters::{BurstLoss, Condition, ConditionError, Preset, RateLimit, Reordering, UnknownPreset};
