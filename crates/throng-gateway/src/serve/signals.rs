//! Signals of the operating system: end, or reload the files.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::sleep;
use tracing::{error, info};

use super::admin::ReloadRequest;
use super::error::ServeError;
use super::gateway::Gateway;
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

/// Receives SIGTERM, SIGINT and SIGHUP. From its creation on they do not end the process; a signal waits until
/// [`Gateway::run`] takes it.
pub struct Signals {
    /// Its own, because it exists before the gateway does.
    runtime: Runtime,
    received: Received,
}

struct Received {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Signals {
    /// Begins to receive them.
    ///
    /// # Errors
    /// The system does not allow it.
    pub fn listen() -> Result<Signals, ServeError> {
        let listen = || -> io::Result<Signals> {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            let received = {
                let _inside = runtime.enter();
                Received {
                    terminate: signal(SignalKind::terminate())?,
                    interrupt: signal(SignalKind::interrupt())?,
                    hang_up: signal(SignalKind::hangup())?,
                }
            };
            Ok(Signals { runtime, received })
        };
        listen().map_err(ServeError::Signals)
    }
}

impl Received {
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
    /// is started.
    pub fn run(
        mut self,
        signals: Signals,
        mut read: impl FnMut() -> Option<Arc<Settings>>,
    ) -> Result<bool, ServeError> {
        let Signals { runtime, received: mut signals } = signals;
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
                    self.limp(&runtime, &mut signals);
                    if engine_end.has_changed().is_err() {
                        return Err(self.fail());
                    }
                    break;
                }
                Some(Told::Reload) => drop(self.read_again(&mut read)),
                None => return Err(self.fail()),
            }
        }
        info!("shutting down");
        self.end()
    }

    /// Continues for a while, so that load balancers can notice the end. Another signal ends that.
    fn limp(&self, runtime: &Runtime, signals: &mut Received) {
        let lame_duck = Duration::from_millis(self.lame_duck_ms.load(Ordering::Relaxed));
        if lame_duck.is_zero() {
            return;
        }
        self.leaving.send_replace(true);
        info!(ms = lame_duck.as_millis() as u64, "not ready any more; the doors close later");
        let mut engine_end = self.engine_end.clone();
        runtime.block_on(async {
            tokio::select! {
                () = sleep(lame_duck) => {}
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
