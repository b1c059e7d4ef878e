use throng_wire::Time;

use super::{Arrival, Condition, ConditionError, InFlight, InFlightLimit, PathModel};
use crate::ConditionCounters;

/// One way of one path, with the datagrams that are on it. Sans-IO: it works on any times and any bytes.
///
/// ```
/// use throng_net::{Condition, Conditioner, InFlightLimit};
/// use throng_wire::Time;
///
/// let condition = Condition { delay_us: 50_000, ..Condition::NONE };
/// let mut way = Conditioner::new(condition, 7, InFlightLimit::PEER)?;
/// way.push(Time::from_millis(10), b"hello");
/// assert!(way.pop(Time::from_millis(59)).is_none());
/// assert_eq!(way.pop(Time::from_millis(60)).unwrap().bytes, b"hello");
/// # Ok::<(), throng_net::ConditionError>(())
/// ```
#[derive(Debug)]
pub struct Conditioner {
    model: PathModel,
    flight: InFlight<()>,
    counters: ConditionCounters,
}

impl Conditioner {
    /// An empty path.
    ///
    /// # Errors
    ///
    /// [`ConditionError`] when a figure of `condition` is out of range.
    pub fn new(condition: Condition, seed: u64, limit: InFlightLimit) -> Result<Conditioner, ConditionError> {
        Ok(Conditioner {
            model: PathModel::new(condition, seed)?,
            flight: InFlight::new(limit),
            counters: ConditionCounters::default(),
        })
    }

    /// Gives a datagram to the path.
    pub fn push(&mut self, now: Time, bytes: &[u8]) {
        let fate = self.model.fate(now, bytes.len());
        self.flight.follow(fate, (), bytes, &mut self.counters);
    }

    /// The next datagram that arrived at or before `now`.
    pub fn pop(&mut self, now: Time) -> Option<Arrival<'_, ()>> {
        let arrival = self.flight.pop(now);
        self.counters.delivered += u64::from(arrival.is_some());
        arrival
    }

    /// When the next datagram arrives.
    pub fn next_at(&self) -> Option<Time> {
        self.flight.next_at()
    }

    /// Changes the condition. Datagrams already under way keep their fate.
    ///
    /// # Errors
    ///
    /// [`ConditionError`]; the old condition stays.
    pub fn set_condition(&mut self, condition: Condition) -> Result<(), ConditionError> {
        self.model.set_condition(condition)
    }

    /// Counters of the path.
    pub fn counters(&self) -> &ConditionCounters {
        &self.counters
    }
}
