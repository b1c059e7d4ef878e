//! Whether a sender kept within its budget, over every window of time at once.

use throng_wire::Time;

/// The overhead of a datagram on the wire: the headers of IPv4 and UDP.
pub const UDP_IPV4_HEADER_BYTES: u64 = 28;

/// Watches one stream of datagrams.
///
/// The bytes in every window are at most `rate * window + burst` exactly if a bucket that leaks at `rate` never holds
/// more than `burst`: so one number, the bucket's highest level, speaks for all windows.
#[derive(Clone, Copy, Debug)]
pub struct BudgetAudit {
    rate_bytes_per_s: f64,
    level_bytes: f64,
    highest_bytes: f64,
    total_bytes: u64,
    at: Time,
}

impl BudgetAudit {
    /// An audit against a rate in bytes per second, all headers down to IP included.
    pub fn new(rate_bytes_per_s: u32) -> BudgetAudit {
        BudgetAudit {
            rate_bytes_per_s: f64::from(rate_bytes_per_s),
            level_bytes: 0.0,
            highest_bytes: 0.0,
            total_bytes: 0,
            at: Time(0),
        }
    }

    /// A datagram of `payload_bytes` (as sealed) was sent. `now` never falls.
    pub fn note(&mut self, now: Time, payload_bytes: usize) {
        let bytes = payload_bytes as u64 + UDP_IPV4_HEADER_BYTES;
        let leaked = self.rate_bytes_per_s * now.micros_since(self.at) as f64 / 1e6;
        self.at = now;
        self.level_bytes = (self.level_bytes - leaked).max(0.0) + bytes as f64;
        self.highest_bytes = self.highest_bytes.max(self.level_bytes);
        self.total_bytes += bytes;
    }

    /// The least burst for which every window so far was within `rate * window + burst`.
    pub fn burst_bytes(&self) -> f64 {
        self.highest_bytes
    }

    /// Everything sent, headers included.
    pub fn total_bytes(&self) -> u64 {
        self.total_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_level_is_the_worst_window() {
        let mut rng = fastrand::Rng::with_seed(4);
        let mut sent: Vec<(Time, usize)> = Vec::new();
        let mut audit = BudgetAudit::new(1_000);
        for step in 0..200 {
            let now = Time::from_millis(step * 50);
            if rng.f64() < 0.4 {
                let bytes = rng.usize(1..200);
                sent.push((now, bytes));
                audit.note(now, bytes);
            }
        }
        let mut worst = 0.0f64;
        for from in 0..sent.len() {
            let mut bytes = 0;
            for &(at, payload) in &sent[from..] {
                bytes += payload as u64 + UDP_IPV4_HEADER_BYTES;
                worst = worst.max(bytes as f64 - at.micros_since(sent[from].0) as f64 / 1e3);
            }
        }
        assert!((audit.burst_bytes() - worst).abs() < 1e-6, "{} and {worst}", audit.burst_bytes());
    }
}
