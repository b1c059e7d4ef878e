//! Bad networks by the dozen.

use fastrand::Rng;
use throng_net::{BurstLoss, Condition, Reordering};

/// A path that delays, jitters, doubles, reorders, and loses up to 30 %: sometimes bit by bit, sometimes in bursts. Some carry no
/// full packets; all carry those of the handshake.
///
/// Its delay stays below 100 ms one way.
pub fn storm(rng: &mut Rng) -> Condition {
    let loss = [0.0, 0.05, 0.15, 0.3][rng.usize(..4)];
    let burst = rng.bool().then(|| BurstLoss { enter: 0.01, leave: 0.1 + 0.2 * rng.f64(), loss: 0.9 });
    let loss = if burst.is_some() { loss / 2.0 } else { loss };
    let reorder = Reordering { probability: 0.2 * rng.f64(), hold_us: rng.u32(5_000..60_000) };
    Condition {
        delay_us: rng.u32(..40_000),
        jitter_us: rng.u32(..40_000),
        loss,
        burst,
        duplicate: 0.1 * rng.f64(),
        reorder: Some(reorder),
        rate: None,
        mtu: (rng.u32(..4) == 0).then(|| rng.u16(1_106..1_250)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_storm_is_possible_and_some_are_heavy() {
        let storms: Vec<Condition> = (0..200).map(|seed| storm(&mut Rng::with_seed(seed))).collect();
        assert!(storms.iter().all(|storm| storm.check().is_ok() && storm.mean_loss() <= 0.3));
        assert!(storms.iter().any(|storm| storm.mean_loss() == 0.3));
        assert!(storms.iter().any(|storm| storm.burst.is_some()));
    }
}
