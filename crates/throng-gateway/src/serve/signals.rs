//! What the operating system tells a process: end, or read your files again.

use std::sync::Arc;

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::{Gateway, ServeError};
use crate::settings::Settings;

enum Told {
    End,
    Reload,
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Signals {
    fn listen() -> std::io::Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> Told {
        tokio::select! {
            _ = self.terminate.recv() => Told::End,
            _ = self.interrupt.recv() => Told::End,
            _ = self.hang_up.recv() => Told::Reload,
        }
    }
}

impl Gateway {
    /// Serves until the process is told to end (SIGTERM, SIGINT), then [shuts down](Gateway::shut_down). When it is
    /// told that its files have changed (SIGHUP), `read` reads them; `None` keeps what is in use. `log` is told what
    /// happens.
    ///
    /// # Errors
    /// Signals cannot be listened to.
    pub fn run(
        self,
        mut read: impl FnMut() -> Option<Arc<Settings>>,
        mut log: impl FnMut(&str),
    ) -> Result<bool, ServeError> {
        let runtime = self.runtime.as_ref().ok_or(ServeError::Ended)?;
        let mut signals = {
            let _inside = runtime.enter();
            Signals::listen().map_err(ServeError::Threads)?
        };
        loop {
            match runtime.block_on(signals.next()) {
                Told::End => break,
                Told::Reload => match read().map(|settings| self.reload(settings)) {
                    Some(Ok(())) => log("the settings were read again"),
                    Some(Err(error)) => {
                        log(&format!("the settings were read again; the old certificate stays: {error}"))
                    }
                    None => log("the settings stay as they are"),
                },
            }
        }
        log("shutting down");
        Ok(self.shut_down())
    }
}
