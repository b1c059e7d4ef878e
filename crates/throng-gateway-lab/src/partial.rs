//! The figures of a part of the load that died before it had reported: those of the seconds until then.

use crate::clients::ClientsReport;
use crate::summary::{Second, TrafficFigures};
use crate::world::WorldReport;

/// The seconds that were measured, and their length.
pub(super) struct Partial<'a> {
    pub(super) series: &'a [Second],
    pub(super) seconds: f64,
}

impl Partial<'_> {
    fn mean(&self, of: impl Fn(&Second) -> f64) -> f64 {
        self.series.iter().map(of).sum::<f64>() / self.series.len().max(1) as f64
    }

    fn sum(&self, of: impl Fn(&Second) -> f64) -> f64 {
        self.mean(of) * self.seconds
    }

    pub(super) fn clients(&self) -> ClientsReport {
        ClientsReport {
            seconds: self.seconds,
            updates: self.sum(|second| second.updates_per_s) as u64,
            cpu_cores: self.mean(|second| second.clients_cpu_cores),
            ..ClientsReport::default()
        }
    }

    pub(super) fn world(&self, servers: u32) -> WorldReport {
        WorldReport {
            seconds: self.seconds,
            servers,
            frame_hz: self.mean(|second| second.world_frame_hz),
            ideal_updates: self.sum(|second| second.ideal_updates_per_s),
            handovers: self.sum(|second| second.handovers_per_s) as u64,
            cpu_cores: self.mean(|second| second.world_cpu_cores),
            ..WorldReport::default()
        }
    }

    /// Of both parts, one of which has not reported.
    pub(super) fn traffic(&self) -> TrafficFigures {
        TrafficFigures {
            messages_in_per_s: self.mean(|second| second.messages_in_per_s),
            messages_out_per_s: self.mean(|second| second.messages_out_per_s),
            bytes_in_per_s: self.mean(|second| second.bytes_in_per_s),
            bytes_out_per_s: self.mean(|second| second.bytes_out_per_s),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_is_the_mean_of_the_seconds() {
        let second = |updates_per_s, bytes_in_per_s| Second { updates_per_s, bytes_in_per_s, ..Second::default() };
        let partial = Partial { series: &[second(100.0, 10.0), second(300.0, 30.0)], seconds: 2.5 };
        assert_eq!((partial.clients().updates, partial.traffic().bytes_in_per_s), (500, 20.0));
        let nothing = Partial { series: &[], seconds: 0.5 };
        assert_eq!((nothing.world(9).frame_hz, nothing.world(9).servers), (0.0, 9));
    }
}
