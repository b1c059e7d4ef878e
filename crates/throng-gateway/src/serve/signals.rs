//! What the operating system tells a process: end, or read your files again.

use std::sync::Arc;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::{error, info};

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
    /// Serves until the process is told to end (SIGTERM, SIGINT), then [shuts down](Gateway::shut_down); false if
    /// somebody had to be cut off. When it is told that its files have changed (SIGHUP), `read` reads the settings, and
    /// what it gives is [taken over](Gateway::reload); `None` keeps what is in use.
    ///
    /// # Errors
    /// The engine has failed, and with it everything that it held in memory: the process should end, so that another one
    /// is started. Or signals cannot be listened to.
    pub fn run(self, mut read: impl FnMut() -> Option<Arc<Settings>>) -> Result<bool, ServeError> {
        let runtime = self.runtime.as_ref().ok_or(ServeError::Ended)?;
        let mut signals = {
            let _inside = runtime.enter();
            Signals::listen().map_err(ServeError::Signals)?
        };
        let mut engine_end = self.engine_end.clone();
        loop {
            let told = runtime.block_on(async {
                tokio::select! {
                    told = signals.next() => Some(told),
                    _ = engine_end.changed() => None,
                }
            });
            match told {
                Some(Told::End) => break,
                Some(Told::Reload) => self.read_again(&mut read),
                None => return Err(self.fail()),
            }
        }
        info!("shutting down");
        Ok(self.shut_down())
    }

    fn read_again(&self, read: &mut impl FnMut() -> Option<Arc<Settings>>) {
        match read().map(|settings| self.reload(settings)) {
            Some(Ok(())) => info!("the settings were read again"),
            Some(Err(error)) => error!(tag = error.tag(), "everything stays as it is: {error}"),
            None => error!("everything stays as it is"),
        }
    }
}
