use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use throng_wire::Time;

use super::{ConditionError, RateLimit};

/// IPv4 and UDP headers: what a datagram occupies on the path beside its payload.
pub(super) const HEADER_BYTES: u64 = 28;

const NS_PER_S: u128 = 1_000_000_000;

/// One bottleneck that several ways of a [`MemoryNetwork`](crate::MemoryNetwork) share: what one flow sends waits behind
/// what the others sent, and the newest is dropped when the queue is full. A handle; clones are the same bottleneck.
///
/// ```text
/// way A to B --+
/// way C to D --+--> policer --> queue (drop-tail) --> rate --> each way's own condition
/// cross traffic+
/// ```
///
/// Flows that are no endpoints of the network, such as modelled TCP, pass it with [`pass`](Bottleneck::pass). Datagrams
/// should be given in the order of their times; one that comes late is treated as if it came when the queue last
/// changed.
#[derive(Clone, Debug)]
pub struct Bottleneck {
    queue: Arc<Mutex<Queue>>,
}

/// Drops what exceeds a rate, without a queue: a token bucket, as internet providers use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policer {
    /// Bytes per second that pass in the long run. At least 1.
    pub bytes_per_s: u64,
    /// Bytes that pass at once after a pause.
    pub burst_bytes: u64,
}

#[derive(Debug)]
struct Queue {
    rate: RateLimit,
    policer: Option<Policer>,
    /// When everything that was taken will have left, in nanoseconds.
    idle_at_ns: u64,
    /// When the policer's bucket was full, or would have been, in nanoseconds.
    policer_full_at_ns: u64,
    passed: u64,
    dropped: u64,
}

impl Bottleneck {
    /// An empty queue.
    ///
    /// # Errors
    ///
    /// [`ConditionError::NoRate`] when a rate is 0.
    pub fn new(rate: RateLimit, policer: Option<Policer>) -> Result<Bottleneck, ConditionError> {
        check(rate, policer)?;
        let queue = Queue { rate, policer, idle_at_ns: 0, policer_full_at_ns: 0, passed: 0, dropped: 0 };
        Ok(Bottleneck { queue: Arc::new(Mutex::new(queue)) })
    }

    /// Changes rate and queue. Waiting datagrams keep their time of departure.
    ///
    /// # Errors
    ///
    /// [`ConditionError::NoRate`] when the rate is 0; nothing has changed then.
    pub fn set_rate(&self, rate: RateLimit) -> Result<(), ConditionError> {
        let mut queue = self.lock();
        check(rate, queue.policer)?;
        queue.rate = rate;
        Ok(())
    }

    /// Takes a datagram of `bytes` of payload. Returns when it has left, or `None` when it was dropped.
    pub fn pass(&self, now: Time, bytes: usize) -> Option<Time> {
        self.lock().pass(now, bytes)
    }

    /// How long a datagram that comes now waits before its own transmission begins, in microseconds.
    pub fn wait_us(&self, now: Time) -> u64 {
        self.lock().idle_at_ns.saturating_sub(ns(now)) / 1_000
    }

    /// Datagrams that passed, and that were dropped.
    pub fn passed_and_dropped(&self) -> (u64, u64) {
        let queue = self.lock();
        (queue.passed, queue.dropped)
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        // No user code runs under the lock, so a panic elsewhere leaves the state whole.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    fn pass(&mut self, now: Time, bytes: usize) -> Option<Time> {
        let occupied_bytes = bytes as u64 + HEADER_BYTES;
        let departs = self.police(now, occupied_bytes).then(|| depart(&mut self.idle_at_ns, self.rate, now, bytes));
        match departs.flatten() {
            Some(at) => {
                self.passed += 1;
                Some(at)
            }
            None => {
                self.dropped += 1;
                None
            }
        }
    }

    fn police(&mut self, now: Time, occupied_bytes: u64) -> bool {
        let Some(Policer { bytes_per_s, burst_bytes }) = self.policer else { return true };
        let takes_ns = |bytes| scaled(bytes, NS_PER_S, bytes_per_s.into());
        let full_at_ns = self.policer_full_at_ns.max(ns(now)).saturating_add(takes_ns(occupied_bytes));
        if full_at_ns - ns(now) > takes_ns(burst_bytes) {
            return false;
        }
        self.policer_full_at_ns = full_at_ns;
        true
    }
}

/// When a datagram leaves a bottleneck that is idle from `idle_at_ns` on; `None` when its queue is full.
pub(super) fn depart(idle_at_ns: &mut u64, rate: RateLimit, now: Time, bytes: usize) -> Option<Time> {
    let RateLimit { bytes_per_s, queue_bytes } = rate;
    let occupied_bytes = bytes as u64 + HEADER_BYTES;
    let backlog_ns = idle_at_ns.saturating_sub(ns(now));
    let backlog_bytes = scaled(backlog_ns, bytes_per_s.into(), NS_PER_S);
    if backlog_bytes > 0 && backlog_bytes.saturating_add(occupied_bytes) > queue_bytes {
        return None;
    }
    let takes_ns = scaled(occupied_bytes, NS_PER_S, bytes_per_s.into());
    *idle_at_ns = ns(now).saturating_add(backlog_ns).saturating_add(takes_ns);
    Some(Time(idle_at_ns.div_ceil(1_000)))
}

/// `value * by / per`, at most what fits.
fn scaled(value: u64, by: u128, per: u128) -> u64 {
    u64::try_from(u128::from(value).saturating_mul(by) / per).unwrap_or(u64::MAX)
}

fn ns(time: Time) -> u64 {
    time.0.saturating_mul(1_000)
}

fn check(rate: RateLimit, policer: Option<Policer>) -> Result<(), ConditionError> {
    if rate.bytes_per_s == 0 || policer.is_some_and(|policer| policer.bytes_per_s == 0) {
        return Err(ConditionError::NoRate);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: RateLimit = RateLimit { bytes_per_s: 100_000, queue_bytes: 2_500 };

    #[test]
    fn what_one_flow_sends_waits_behind_what_the_others_sent() {
        let bottleneck = Bottleneck::new(RATE, None).unwrap();
        let other = bottleneck.clone();
        assert_eq!(bottleneck.pass(Time(0), 972), Some(Time::from_millis(10)));
        assert_eq!(other.pass(Time(0), 972), Some(Time::from_millis(20)));
        assert_eq!(bottleneck.pass(Time(0), 972), None);
        assert_eq!(bottleneck.wait_us(Time(5_000)), 15_000);
        assert_eq!(bottleneck.passed_and_dropped(), (2, 1));
    }

    #[test]
    fn a_policer_drops_what_exceeds_its_rate_and_delays_nothing() {
        let policer = Policer { bytes_per_s: 50_000, burst_bytes: 3_000 };
        let rate = RateLimit { bytes_per_s: 1_000_000_000, queue_bytes: 1 << 20 };
        let bottleneck = Bottleneck::new(rate, Some(policer)).unwrap();
        let passed = (0..1_000u64).filter(|i| bottleneck.pass(Time::from_millis(i * 10), 972).is_some()).count();
        assert!((500..505).contains(&passed), "{passed} of 1000 datagrams, twice as many as may pass");
    }

    #[test]
    fn enormous_figures_limit_nothing_and_do_not_wrap() {
        let policer = Policer { bytes_per_s: 1, burst_bytes: 1 << 55 };
        let bottleneck = Bottleneck::new(RATE, Some(policer)).unwrap();
        assert!(bottleneck.pass(Time(0), 972).is_some(), "the burst is 2^55 bytes");
        // The time that it waits is a little more than 2^64 bytes at the new rate.
        let bottleneck = Bottleneck::new(RateLimit { bytes_per_s: 1_000, queue_bytes: 2_500 }, None).unwrap();
        let departs = bottleneck.pass(Time(0), (1 << 24) - 28).unwrap();
        let waits_ns = departs.0 * 1_000;
        let bytes_per_s = u64::try_from((1_000_000_000_u128 << 64) / u128::from(waits_ns)).unwrap() + 1;
        bottleneck.set_rate(RateLimit { bytes_per_s, queue_bytes: 2_500 }).unwrap();
        assert_eq!(bottleneck.pass(Time(0), 972), None, "the queue is full");
        bottleneck.set_rate(RateLimit { bytes_per_s: u64::MAX, queue_bytes: u64::MAX }).unwrap();
        assert_eq!(bottleneck.pass(Time(0), 972), Some(departs));
    }

    #[test]
    fn a_bottleneck_without_a_rate_is_refused() {
        assert!(Bottleneck::new(RateLimit { bytes_per_s: 0, queue_bytes: 1 }, None).is_err());
        let policer = Policer { bytes_per_s: 0, burst_bytes: 1 };
        assert!(Bottleneck::new(RATE, Some(policer)).is_err());
    }
}
