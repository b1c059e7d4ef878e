//! The bots as the second process of a run.

use std::sync::mpsc::TryRecvError;
use std::time::Duration;

use throng::{Decoder, Time};
use throng_machine::clock;
use throng_machine::piped::answer;

use super::{BotsError, BotsOptions, Fleet};
use crate::control::{BotsLine, Command, listen};

/// The first bot connects so long after the order at most.
const AHEAD_MAX: Duration = Duration::from_secs(10);

/// Plays until told to stop.
pub(super) fn play<D: Decoder>(options: &BotsOptions) -> Result<(), BotsError> {
    let (commands, _) = listen();
    let begin = options.begin_us.map(Time);
    let ahead = begin.map(|begin| begin.since(clock::now())).unwrap_or_default();
    std::thread::sleep(ahead.min(AHEAD_MAX));
    let mut measure_at: Option<Time> = None;
    let mut fleet = match Fleet::<D>::new(options) {
        Ok(fleet) => fleet,
        Err(error) => {
            answer(&BotsLine::Failed(error.to_string()));
            return Err(error);
        }
    };
    loop {
        if let Err(error) = fleet.turn() {
            answer(&BotsLine::Failed(error.to_string()));
            return Err(error);
        }
        if measure_at.take_if(|at| clock::now() >= *at).is_some() {
            fleet.begin_measurement();
        }
        if let Some(second) = fleet.take_progress() {
            answer(&BotsLine::Second(Box::new(second)));
        }
        match commands.try_recv() {
            Ok(Command::Players(number)) => fleet.want(number),
            Ok(Command::Measure) => fleet.begin_measurement(),
            Ok(Command::MeasureAt(us)) => measure_at = Some(Time(us)),
            Ok(Command::Settle) => fleet.end_measurement(),
            Ok(Command::Stop) | Err(TryRecvError::Disconnected) => break,
            Ok(_) | Err(TryRecvError::Empty) => {}
        }
    }
    fleet.end_measurement();
    let report = fleet.gather(true);
    fleet.leave();
    answer(&BotsLine::Done(Box::new(report)));
    Ok(())
}
