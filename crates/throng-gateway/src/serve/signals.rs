//! Signals of the operating system: end, or reload the files.

use std::sync::Arc;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::sleep;
use tracing::{error, info};

use super::admin::ReloadRequest;
use super::{Gateway, ServeError};
use crate::settings::Settings;

enum Told {
    /// SIGTERM: the signal of service managers.
    Terminate,
    /// SIGINT: Ctrl-C.
    Interrupt,
    /// SIGHUP.
    Reload,
    /// The same, asked for at the page for operators.
    Asked(ReloadRequest),
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
            _ = self.terminate.recv() => Told::Terminate,
            _ = self.interrupt.recv() => Told::Interrupt,
            _ = self.hang_up.recv() => Told::Reload,
        }
    }
}

impl Gateway {
    /// Serves until the process gets SIGTERM or SIGINT, then [shuts down](Gateway::shut_down); false if connections had
    /// to be cut off. After SIGTERM it first continues for [`lame_duck`](super::ServeOptions::lame_duck). On SIGHUP,
    /// `read` reads the settings, and its result is [taken over](Gateway::reload); `None` keeps the settings in use.
    ///
    /// # Errors
    /// The engine has failed, and with it everything that it held in memory: the process should end, so that another one
    /// is started. Or signals cannot be listened to.
    pub fn run(mut self, mut read: impl FnMut() -> Option<Arc<Settings>>) -> Result<bool, ServeError> {
        let runtime = self.runtime.as_ref().ok_or(ServeError::Ended)?.handle().clone();
        let mut signals = {
            let _inside = runtime.enter();
            Signals::listen().map_err(ServeError::Signals)?
        };
        let mut engine_end = self.engine_end.clone();
        loop {
            let reloads = &mut self.reloads;
            let told = runtime.block_on(async {
                tokio::select! {
                    told = signals.next() => Some(told),
                    Some(reply) = reloads.recv() => Some(Told::Asked(reply)),
                    _ = engine_end.changed() => None,
                }
            });
            match told {
                Some(Told::Asked(reply)) => {
                    let _ = reply.send(self.read_again(&mut read));
                }
                Some(Told::Interrupt) => break,
                Some(Told::Terminate) => {
                    self.limp(&mut signals);
                    break;
                }
                Some(Told::Reload) => drop(self.read_again(&mut read)),
                None => return Err(self.fail()),
            }
        }
        info!("shutting down");
        Ok(self.shut_down())
    }

    /// Continues for a while, so that load balancers can notice the end. Another signal ends that.
    fn limp(&self, signals: &mut Signals) {
        let Some(runtime) = self.runtime.as_ref().filter(|_| !self.lame_duck.is_zero()) else { return };
        info!(ms = self.lame_duck.as_millis() as u64, "not ready any more; the doors close later");
        self.leaving.send_replace(true);
        let mut engine_end = self.engine_end.clone();
        runtime.block_on(async {
            tokio::select! {
                () = sleep(self.lame_duck) => {}
                _ = signals.next() => {}
                _ = engine_end.changed() => {}
            }
        });
    }

    /// The result, for the caller.
    fn read_again(&self, read: &mut impl FnMut() -> Option<Arc<Settings>>) -> String {
        match read().map(|settings| self.reload(settings)) {
            Some(Ok(())) => {
                info!("the settings were read again");
                "The settings were read again.".into()
            }
            Some(Err(error)) => {
                error!(tag = error.tag(), "everything stays as it is: {error}");
                format!("Everything stays as it is: {error}")
            }
            None => {
                error!("everything stays as it is");
                "Everything stays as it is: a file cannot be used, and the log says which.".into()
            }
        }
    }
}
