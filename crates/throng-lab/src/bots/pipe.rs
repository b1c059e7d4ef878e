//! The bots as the second process of a run.

use std::sync::mpsc::TryRecvError;

use throng::Decoder;
use throng_machine::piped::answer;

use super::{BotsError, BotsOptions, Fleet};
use crate::control::{BotsLine, Command, listen};

/// Plays until told to stop.
pub(super) fn play<D: Decoder>(options: &BotsOptions) -> Result<(), BotsError> {
    let (commands, _) = listen();
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
        if let Some(progress) = fleet.take_progress() {
            answer(&BotsLine::Progress(progress));
        }
        match commands.try_recv() {
            Ok(Command::Players(number)) => fleet.want(number),
            Ok(Command::Measure) => fleet.begin_measurement(),
            Ok(Command::Settle) => fleet.end_measurement(),
            Ok(Command::Stop) | Err(TryRecvError::Disconnected) => break,
            Ok(_) | Err(TryRecvError::Empty) => {}
        }
    }
    fleet.end_measurement();
    let report = fleet.report(true);
    fleet.leave();
    answer(&BotsLine::Done(Box::new(report)));
    Ok(())
}
