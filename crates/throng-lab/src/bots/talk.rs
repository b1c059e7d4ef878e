//! The bots' side of the talk with a server on another machine: see [`throng_crowd::talk`].

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::Serialize;
use throng::{Decoder, Time};
use throng_crowd::scenario::Scenario;
use throng_crowd::talk::{Step, TRUTH_MAX, Talk};
use throng_crowd::truth::read_snapshot;
use throng_machine::clock;

use super::{BotsError, BotsReport, Fleet, Progress};

/// The server has this long to send its state, after everything is at rest, and to say that it keeps the report. A large
/// state takes its time on a small budget.
const PATIENCE: Duration = Duration::from_secs(30);
/// A server that runs for many bots, and takes no report of these, says nothing at all.
const SILENCE: Duration = Duration::from_secs(5);

/// The talk so far.
#[derive(Debug, Default)]
pub(super) struct Talking {
    /// The server was told that measuring has begun.
    has_begun: bool,
    truth: Vec<u8>,
}

impl Talking {
    pub(super) fn begin<D: Decoder>(&mut self, fleet: &mut Fleet<D>, scenario: &Scenario) {
        self.has_begun = say(fleet, Step::Begun, scenario);
    }

    pub(super) fn tell_second<D: Decoder>(&self, fleet: &mut Fleet<D>, progress: &Progress) {
        if self.has_begun {
            say(fleet, Step::Second, progress);
        }
    }

    /// Compares with the server's last state, reports, and leaves.
    pub(super) fn finish<D: Decoder>(
        mut self,
        fleet: &mut Fleet<D>,
        scenario: &Scenario,
        stop: &AtomicBool,
    ) -> Result<BotsReport, BotsError> {
        let is_stopped = stop.load(Ordering::Relaxed);
        if self.has_begun && !is_stopped && say(fleet, Step::Ended, &()) {
            let rest = crate::run::settling(scenario);
            self.await_truth(fleet, rest, stop)?;
        }
        let mut report = fleet.gather(!self.truth.is_empty()).report();
        if self.has_begun && say(fleet, Step::Report, &report) {
            report.kept_in = until(fleet, (SILENCE, PATIENCE), stop, |talk, _| match talk.step() {
                Some(Step::Kept) => Some(String::from_utf8_lossy(&talk.body).into_owned()),
                _ => None,
            })?;
        }
        fleet.leave();
        Ok(report)
    }

    fn await_truth<D: Decoder>(
        &mut self,
        fleet: &mut Fleet<D>,
        rest: Duration,
        stop: &AtomicBool,
    ) -> Result<(), BotsError> {
        let mut bytes = Vec::new();
        let came = until(fleet, (rest + SILENCE, rest + PATIENCE), stop, |talk, fleet| {
            if talk.step() != Some(Step::Truth) || bytes.len() + talk.body.len() > TRUTH_MAX {
                return None;
            }
            bytes.extend_from_slice(&talk.body);
            (talk.parts_left == 0).then(|| read_snapshot(&bytes).inspect(|truth| fleet.learn_truth(truth)).is_some())
        })?;
        if came == Some(true) {
            self.truth = bytes;
        }
        Ok(())
    }
}

/// Says something with a body of JSON. False if it cannot be said.
fn say<D: Decoder>(fleet: &mut Fleet<D>, step: Step, body: &impl Serialize) -> bool {
    let talk = serde_json::to_vec(body).ok().and_then(|body| Talk::new(step, body));
    talk.is_some_and(|talk| fleet.say(&talk))
}

/// Plays on until the server has said what `take` waits for: at most for the first time without a word, and for the second
/// one in all.
fn until<D: Decoder, T>(
    fleet: &mut Fleet<D>,
    (silence, patience): (Duration, Duration),
    stop: &AtomicBool,
    mut take: impl FnMut(&Talk, &mut Fleet<D>) -> Option<T>,
) -> Result<Option<T>, BotsError> {
    let began: Time = clock::now();
    let mut has_heard = false;
    let is_stopped = stop.load(Ordering::Relaxed);
    loop {
        fleet.turn()?;
        for talk in fleet.hear() {
            has_heard = true;
            if let Some(taken) = take(&talk, fleet) {
                return Ok(Some(taken));
            }
        }
        let waited = clock::now().since(began);
        // A stop that came before does not cut off the report.
        let is_cut = stop.load(Ordering::Relaxed) && !is_stopped;
        if is_cut || waited > patience || (waited > silence && !has_heard) {
            return Ok(None);
        }
    }
}
