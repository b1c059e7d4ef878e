//! The loop around a server: the order of calls, the times of ticks.

use std::ops::ControlFlow;
use std::time::Duration;

use throng_net::ReceiveError;
use throng_wire::Time;

use super::Server;
use crate::clock::{Clock, Pace};
use crate::replication::Replication;

/// How often the socket is drained between two ticks.
const DRAIN_INTERVAL: Duration = Duration::from_millis(1);

impl<R: Replication> Server<R> {
    /// One tick in the right order: [`receive`](Self::receive), then the game, then [`tick`](Self::tick). The game polls all
    /// events and inputs, and changes its objects.
    ///
    /// # Errors
    /// The socket is broken: the game was not called.
    pub fn step(&mut self, now: Time, game: impl FnOnce(&mut Server<R>)) -> Result<(), ReceiveError> {
        self.receive(now)?;
        game(self);
        self.tick(now);
        Ok(())
    }

    /// Runs the server in real time until the game says `Break`, or fails: a [`step`](Self::step) every
    /// [`tick_interval`](crate::ServerOptions::tick_interval). Between two ticks it sleeps, and drains the socket each
    /// millisecond. After a tick that took too long, the next ones come sooner. After a pause of more than 4 ticks, the
    /// further ticks are skipped, and [`limits_reached`](Self::limits_reached) counts it as `ticks_skipped`.
    ///
    /// The tick in which the game says `Break` is still sent. `clock` is the one that every other `now` of this server came
    /// from.
    ///
    /// # Errors
    /// The socket is broken, or what the game returns.
    ///
    /// ```
    /// # use std::ops::ControlFlow;
    /// # use std::sync::Arc;
    /// # use throng::{Clock, GridOptions, ReceiveError, Schema, Server, ServerEvent, ServerOptions, Up, random_key};
    /// # let schema = Arc::new(Schema::builder().build()?);
    /// # let options = ServerOptions::new(1, random_key());
    /// let mut server = Server::bind("127.0.0.1:0".parse()?, schema, options)?;
    /// let mut ticks = 0;
    /// server.run(&Clock::start(), |server, _now| {
    ///     while let Some(event) = server.poll_event() {
    ///         if let ServerEvent::Connected { client_id, .. } = event {
    ///             println!("{client_id} is here");
    ///         }
    ///     }
    ///     ticks += 1;
    ///     Ok::<_, ReceiveError>(if ticks < 3 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    /// })?;
    /// assert_eq!(server.current_tick().0, 4);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn run<E: From<ReceiveError>>(
        &mut self,
        clock: &Clock,
        mut game: impl FnMut(&mut Server<R>, Time) -> Result<ControlFlow<()>, E>,
    ) -> Result<(), E> {
        let mut pace = Pace::new(clock.now(), self.options.tick_interval);
        loop {
            let now = clock.now();
            let mut flow = Ok(ControlFlow::Continue(()));
            self.step(now, |server| flow = game(server, now))?;
            if flow?.is_break() {
                return Ok(());
            }
            let (due, skipped) = pace.next(clock.now());
            self.ticks_skipped += skipped;
            self.wait_until(due, clock)?;
        }
    }

    fn wait_until(&mut self, due: Time, clock: &Clock) -> Result<(), ReceiveError> {
        loop {
            let left = due.since(clock.now());
            if left.is_zero() {
                return Ok(());
            }
            self.wait();
            std::thread::sleep(left.min(DRAIN_INTERVAL));
            self.drain_socket(clock.now())?;
        }
    }
}
