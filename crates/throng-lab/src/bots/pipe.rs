//! The bots as the second process of a run.

use std::io::{BufRead, Write};
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};

use throng::Decoder;

use super::{BotsError, BotsOptions, Fleet};
use crate::control::{BotsLine, Command};

/// Plays until told to stop.
pub(super) fn play<D: Decoder>(options: &BotsOptions) -> Result<(), BotsError> {
    let commands = listen();
    let mut fleet = match Fleet::<D>::new(options) {
        Ok(fleet) => fleet,
        Err(error) => {
            tell(&BotsLine::Failed(error.to_string()));
            return Err(error);
        }
    };
    loop {
        if let Err(error) = fleet.turn() {
            tell(&BotsLine::Failed(error.to_string()));
            return Err(error);
        }
        if let Some(progress) = fleet.take_progress() {
            tell(&BotsLine::Progress(progress));
        }
        match commands.try_recv() {
            Ok(Command::Players(number)) => fleet.want(number),
            Ok(Command::Measure) => fleet.begin_measurement(),
            Ok(Command::Settle) => fleet.end_measurement(),
            Ok(Command::Stop) | Err(TryRecvError::Disconnected) => break,
            Err(TryRecvError::Empty) => {}
        }
    }
    fleet.end_measurement();
    let report = fleet.report(true);
    fleet.leave();
    tell(&BotsLine::Done(Box::new(report)));
    Ok(())
}

/// Reads standard input in a thread of its own; the channel closes with the input.
fn listen() -> Receiver<Command> {
    let (sender, receiver) = sync_channel(16);
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            let Some(command) = Command::read(&line) else { continue };
            if sender.send(command).is_err() {
                return;
            }
        }
    });
    receiver
}

fn tell(line: &BotsLine) {
    let Ok(json) = serde_json::to_string(line) else { return };
    let mut out = std::io::stdout().lock();
    // If the host process has ended, nobody reads this; the end of the input will show it.
    let _ = writeln!(out, "{json}");
    let _ = out.flush();
}
