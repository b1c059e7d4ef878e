//! Metrics of channels, by type: time of their encodings, waiting time of updates, and number of waiting updates.
//!
//! One encoding serves all subscribers at the same point. Types are few and fixed,
//! so these are all the labels that there will ever be.

use std::fmt;
use std::sync::Arc;

use throng_channeld::proto::ChannelType;

use crate::histogram::Histogram;
use crate::histogram::Scale;

/// The types that channels can have.
const TYPES: [ChannelType; 11] = [
    ChannelType::Unknown,
    ChannelType::Global,
    ChannelType::Private,
    ChannelType::Subworld,
    ChannelType::Spatial,
    ChannelType::Entity,
    ChannelType::Test,
    ChannelType::Test1,
    ChannelType::Test2,
    ChannelType::Test3,
    ChannelType::Test4,
];

/// Figures of all channels of one type, since the start.
#[derive(Debug)]
pub struct TypeMeters {
    /// How long encodings took. Nothing without a [`Stopwatch`].
    pub tick: Histogram,
    /// How long updates waited for the first subscribers that get them: the wait of the oldest update of each encoding.
    /// In steps of a millisecond.
    pub lag: Histogram,
    /// How many updates waited when the channel was encoded.
    pub depth: Histogram,
}

impl Default for TypeMeters {
    fn default() -> TypeMeters {
        TypeMeters { tick: Histogram::default(), lag: Histogram::default(), depth: Histogram::with_scale(Scale::Count) }
    }
}

/// Figures of all channels, by type. Cheap to count from several threads.
#[derive(Debug, Default)]
pub struct ChannelMeters([TypeMeters; TYPES.len()]);

impl ChannelMeters {
    /// The types with their figures.
    pub fn iter(&self) -> impl Iterator<Item = (ChannelType, &TypeMeters)> {
        TYPES.into_iter().zip(&self.0)
    }

    /// The figures of one type.
    pub fn of(&self, kind: ChannelType) -> &TypeMeters {
        &self.0[TYPES.iter().position(|&known| known == kind).unwrap_or(0)]
    }
}

/// Tells how long something took. The engine itself has no clock; without a stopwatch it does not know.
#[derive(Clone, Default)]
pub struct Stopwatch(Option<Arc<dyn Fn() -> u64 + Send + Sync>>);

impl Stopwatch {
    /// A stopwatch that reads nanoseconds since any moment.
    pub fn new(read_ns: impl Fn() -> u64 + Send + Sync + 'static) -> Stopwatch {
        Stopwatch(Some(Arc::new(read_ns)))
    }

    pub(super) fn read_ns(&self) -> Option<u64> {
        self.0.as_ref().map(|read_ns| read_ns())
    }

    /// Microseconds since an earlier reading.
    pub(super) fn micros_since(&self, begin_ns: Option<u64>) -> Option<u64> {
        Some(self.read_ns()?.saturating_sub(begin_ns?) / 1_000)
    }
}

impl fmt::Debug for Stopwatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Stopwatch").field(&self.0.is_some()).finish()
    }
}
