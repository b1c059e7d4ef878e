//! How much of `send` is loopback's: the receiver's half of the way, which the kernel does within the sender's call.
//!
//! ```text
//! the server's core   send call: [ copy, UDP, IP, loopback | soft interrupt: IP, UDP, the receiver's queue ]
//!                                  local                     what the receiver's machine does on a real network
//! ```
//!
//! `/proc/stat` counts the time of each core in soft interrupts, in steps of 10 ms, usually sampled by the clock tick. That
//! is coarse for a tick of the server and good enough for a run. It is the server's alone only if the server has a core of
//! its own.

use std::path::Path;

use throng_machine::clock;

use throng_summary::SendOnLoopback;

/// The steps in which the kernel tells the time, and the longest time that one of its samples can stand for.
const STEP_S: f64 = 1.0 / clock::KERNEL_TICKS_PER_S;
/// A mask of the cores that loopback hands received packets to; all zero: they stay on the core that sends.
const STEERING: &str = "/sys/class/net/lo/queues/rx-0/rps_cpus";

const NOT_COUNTED: &str = "the system does not count the time in soft interrupts";

/// The soft interrupts of the server's core, from a moment on.
#[derive(Clone, Debug)]
pub(crate) struct Loopback {
    began: Result<Reading, &'static str>,
}

#[derive(Clone, Copy, Debug)]
struct Reading {
    core: usize,
    soft_s: f64,
}

impl Loopback {
    /// Begins to count. `core` is the core that only the server uses, if there is one; `threads` send.
    pub(crate) fn begin(core: Option<usize>, threads: u32) -> Loopback {
        Loopback { began: reading(core, threads) }
    }

    /// Divides the time of all send calls since the beginning: `send_s`, for so many `turns` (a turn is one connection in
    /// one tick).
    pub(crate) fn end(&self, send_s: f64, turns: f64) -> SendOnLoopback {
        let began = match self.began {
            Ok(began) => began,
            Err(why) => return SendOnLoopback::unknown(why),
        };
        match clock::soft_interrupts_s(began.core) {
            Some(soft_s) => divide(send_s, soft_s - began.soft_s, turns),
            None => SendOnLoopback::unknown(NOT_COUNTED),
        }
    }
}

fn reading(core: Option<usize>, threads: u32) -> Result<Reading, &'static str> {
    if threads > 1 {
        return Err("several threads send");
    }
    let core = core.ok_or("the server has no core of its own: use --pin")?;
    if is_steered(Path::new(STEERING)) {
        return Err("the kernel hands packets of loopback to other cores");
    }
    let soft_s = clock::soft_interrupts_s(core).ok_or(NOT_COUNTED)?;
    Ok(Reading { core, soft_s })
}

/// Whether the kernel may handle received packets on another core than the sender's.
fn is_steered(file: &Path) -> bool {
    std::fs::read_to_string(file).is_ok_and(|mask| mask.bytes().any(|byte| byte.is_ascii_hexdigit() && byte != b'0'))
}

fn divide(send_s: f64, soft_s: f64, turns: f64) -> SendOnLoopback {
    // The number of samples has a standard deviation of at most its root.
    let error_s = STEP_S + 2.0 * (soft_s.max(0.0) * STEP_S).sqrt();
    if send_s <= 0.0 || turns <= 0.0 {
        return SendOnLoopback::unknown("nothing was sent");
    }
    if soft_s < STEP_S && send_s > 100.0 * STEP_S {
        return SendOnLoopback::unknown(NOT_COUNTED);
    }
    if soft_s - error_s > send_s {
        return SendOnLoopback::unknown("other soft interrupts of the server's core took longer than all send calls");
    }
    let receiver_s = soft_s.clamp(0.0, send_s);
    let us = |seconds: f64| Some(seconds * 1e6 / turns);
    SendOnLoopback {
        local_us: us(send_s - receiver_s),
        receiver_us: us(receiver_s),
        error_us: us(error_s.min(send_s)),
        unknown_because: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn soft_interrupts_are_the_receivers_half_of_the_send_calls() {
        // 1,000 connections in 600 ticks: 4 s in send calls, of which 1.6 s in soft interrupts.
        let split = divide(4.0, 1.6, 600_000.0);
        let about = |value: Option<f64>, expected: f64| value.is_some_and(|value| (value - expected).abs() < 0.01);
        assert!(about(split.local_us, 4.0) && about(split.receiver_us, 2.667), "{split:?}");
        // 160 samples of 10 ms: 1.6 s, plus or minus 2 x 0.126 s and a step.
        assert!(about(split.error_us, 0.438), "{split:?}");
        assert_eq!(split.unknown_because, None);
    }

    #[test]
    fn the_error_contains_the_truth_of_sampled_time() {
        let mut rng = fastrand::Rng::with_seed(5);
        for _ in 0..50 {
            let (share, samples) = (0.1 + 0.8 * rng.f64(), 2_000);
            let sampled_s = (0..samples).filter(|_| rng.f64() < share).count() as f64 * 0.004;
            let (send_s, truth_s) = (f64::from(samples) * 0.004, f64::from(samples) * 0.004 * share);
            let told_s = (sampled_s / STEP_S).floor() * STEP_S;
            let split = divide(send_s, told_s, 1e6);
            let (receiver, error) = (split.receiver_us.unwrap_or(f64::NAN), split.error_us.unwrap_or(0.0));
            assert!((receiver - truth_s).abs() <= error, "{truth_s} s in truth, {receiver} ± {error} s");
        }
    }

    #[test]
    fn halves_that_cannot_be_told_apart_are_unknown_with_a_reason() {
        let why = |split: SendOnLoopback| {
            assert_eq!((split.local_us, split.receiver_us, split.error_us), (None, None, None));
            split.unknown_because.unwrap_or_default()
        };
        assert!(why(divide(4.0, 0.0, 600.0)).contains("does not count"));
        assert!(why(divide(1.0, 9.0, 600.0)).contains("longer than all send calls"));
        assert!(why(divide(0.0, 0.0, 0.0)).contains("nothing was sent"));
        assert!(why(Loopback::begin(None, 1).end(1.0, 1.0)).contains("--pin"));
        assert!(why(Loopback::begin(Some(0), 4).end(1.0, 1.0)).contains("several threads"));
        assert!(why(Loopback::begin(Some(100_000), 1).end(1.0, 1.0)).contains("does not count"));
    }

    #[test]
    fn packets_that_the_kernel_steers_to_other_cores_are_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("rps_cpus");
        let mask = |text: &str| {
            std::fs::write(&file, text).unwrap();
            is_steered(&file)
        };
        assert!(!mask("0\n") && !mask("00000000,00000000\n") && mask("00000000,00000002\n"));
        assert!(!is_steered(&folder.path().join("nothing")));
    }
}
