//! The life of a connection, from its acceptance to its end.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use throng_gateway_engine::port::{EndCause, Key, Side};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tracing::debug;

use super::counters::{Reason, add};
use super::door::Door;
use super::end::End;
use super::event::Event;
use super::gate::Claim;
use super::intake::Intake;
use super::manner::Manner;
use super::memory::{Holding, Part};
use super::outbox::{Ending, Queue};
use super::ration::Party;

impl Door {
    /// Lets a peer through, unless there are too many or it misbehaved.
    pub(crate) fn enter(self: &Arc<Door>, address: SocketAddr) -> Result<Pass, Reason> {
        let mut pass = self.enter_unnamed(address)?;
        pass.claim(address)?;
        Ok(pass)
    }

    /// The same for a peer that tries again when clients come too fast.
    pub(crate) fn admit(self: &Arc<Door>, address: SocketAddr) -> Result<Pass, Reason> {
        let (now, per_s) = (self.now(), self.limits().all_arrivals_per_s);
        if self.side == Side::Server {
            return self.enter(address);
        }
        // A peer that is refused for another reason takes no turn of all addresses, however often it tries.
        if !self.shared.arrivals.has_turn(now, per_s) {
            self.refuse(&Party::of(self.side, address), Reason::Busy);
            return Err(Reason::Busy);
        }
        let pass = self.enter(address)?;
        self.shared.arrivals.take(now, per_s, Duration::MAX);
        Ok(pass)
    }

    /// The same for a proxy, which will say for whom it speaks.
    pub(crate) fn enter_unnamed(self: &Arc<Door>, address: SocketAddr) -> Result<Pass, Reason> {
        // There is none any more once the gateway waits for the last to leave.
        let alive = self.shared.alive.upgrade().ok_or(Reason::NoRoom)?;
        let waits_for_master = self.side == Side::Client && self.shared.waits_for_master.load(Ordering::Relaxed);
        let entered = match self.memory().has_room(self.side) {
            _ if waits_for_master => Err(Reason::NoMaster),
            _ if self.shared.lacks_home.load(Ordering::Relaxed) => Err(Reason::NoHome),
            false => Err(Reason::NoMemory),
            true => self.gate().enter(),
        };
        match entered {
            Ok(()) => {
                let holding = Holding::new(self.memory(), Part::Connections, self.connection_bytes);
                let door = Arc::clone(self);
                let began = Instant::now();
                Ok(Pass { door, address, began, claim: None, is_accepted: false, _holding: holding, _alive: alive })
            }
            Err(reason) => {
                self.refuse(&Party::of(self.side, address), reason);
                Err(reason)
            }
        }
    }
}

/// A connection that was let through the door. It no longer counts when this is dropped.
pub(crate) struct Pass {
    pub(crate) door: Arc<Door>,
    /// The client's, if a proxy said it.
    pub(crate) address: SocketAddr,
    /// When it came: all its handshakes together have a time from then on.
    began: Instant,
    claim: Option<Claim>,
    /// It counts as accepted.
    is_accepted: bool,
    /// Its memory.
    _holding: Holding,
    _alive: mpsc::Sender<()>,
}

impl Pass {
    /// Counts the connection for its address. Fails if the address is banned or may have no more connections. A connection
    /// that a proxy opens for itself counts for no address.
    pub(crate) fn claim(&mut self, address: SocketAddr) -> Result<(), Reason> {
        self.address = address;
        let claimed = self.door.gate().claim(self.door.now(), address.ip());
        match claimed {
            Ok(claim) => {
                self.claim = claim;
                self.accept();
                Ok(())
            }
            Err(reason) => {
                self.refuse(reason);
                Err(reason)
            }
        }
    }

    /// Waits for a part of its handshakes: no longer than all of them may take, and not while the gateway ends. `None` if the
    /// connection is over. One that took too long was refused, as `late`.
    pub(crate) async fn shake<T>(&self, part: impl Future<Output = T>, late: Reason) -> Option<T> {
        let (until, mut closing) = (self.began + self.door.limits().handshake, self.door.closing());
        tokio::select! {
            done = timeout_at(until, part) => done.inspect_err(|_| self.refuse(late)).ok(),
            _ = closing.wait_for(|is_closing| *is_closing) => None,
        }
    }

    /// Counts it as accepted.
    pub(crate) fn accept(&mut self) {
        self.is_accepted = true;
        add(&self.door.counters().accepted, 1);
    }

    /// Counts the fault of a peer that has not logged in, and remembers it if it was more than bad luck.
    pub(crate) fn refuse(&self, reason: Reason) {
        self.refuse_as(&Party::of(self.door.side, self.address), reason, false);
    }

    fn refuse_as(&self, party: &Party<'_>, reason: Reason, is_member: bool) {
        self.door.refuse(party, reason);
        if matches!(reason, Reason::FlushLate | Reason::TooSlow) {
            self.door.note_cut_off();
        }
        if reason.is_strike() {
            let now = self.door.now();
            let is_shut_out = self.door.gate().strike(now, self.claim.as_ref(), is_member);
            if is_shut_out {
                self.door.shared.ration.shut_out(now, party);
            }
        }
    }

    /// Announces the connection to the engine.
    pub(crate) async fn open(self) -> Option<Opened> {
        let members = self.claim.as_ref().map(|claim| Arc::clone(&claim.members));
        let queue = Queue::new(
            Arc::clone(&self.door.queue_limit_bytes),
            members,
            (self.door.memory(), self.door.kernel_bytes()),
        );
        let (reply, answer) = oneshot::channel();
        let event = Event::Open { side: self.door.side, address: self.address, queue: Arc::clone(&queue), reply };
        self.door.events().send(event).ok()?;
        match answer.await {
            Ok(Ok((key, connection))) => {
                debug!(side = self.door.side.tag(), address = %self.address, connection, "a connection has come");
                Some(Opened { pass: self, key, connection, queue, manner: Arc::default() })
            }
            Ok(Err(_)) => {
                self.refuse(Reason::NoRoom);
                None
            }
            Err(_) => None,
        }
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        if self.is_accepted {
            add(&self.door.counters().closed, 1);
        }
        self.door.gate().leave(self.claim.as_ref());
    }
}

/// A connection that the engine knows.
pub(crate) struct Opened {
    pub(crate) pass: Pass,
    pub(crate) key: Key,
    /// The number under which the protocol knows it.
    pub(crate) connection: u32,
    pub(crate) queue: Arc<Queue>,
    pub(crate) manner: Arc<Manner>,
}

impl Opened {
    pub(crate) fn intake(&self) -> Intake {
        let Pass { door, address, .. } = &self.pass;
        Intake::new(door, (self.key, self.connection, *address), &self.queue, &self.manner)
    }

    /// Reads and writes until one of the two ends, or the engine wants an end; then tells the engine.
    ///
    /// Both are pinned by the caller, who drops them afterwards: the end is on record then, and with them goes the socket,
    /// and the peer notices. Were they handed over, the task would have room for each of them three times.
    pub(crate) async fn run(
        self,
        mut read: Pin<&mut impl Future<Output = End>>,
        mut write: Pin<&mut impl Future<Output = End>>,
    ) -> Ended {
        let mut takes_nothing = false;
        let end = tokio::select! {
            end = &mut read => end,
            end = &mut write => {
                takes_nothing = end == End::Lost;
                end
            }
            end = self.ending() => end,
            () = self.pass.door.engine_end() => End::Gone,
        };
        // The writer may have seen first that there is nothing more to write.
        let mut end = self.queue.ended_now().map_or(end, End::Refused);
        if takes_nothing && end == End::Lost {
            end = match self.read_the_rest(read).await {
                // The failed write has taken the error of a socket that was reset, so it looks as if it was closed.
                End::PeerClosed if self.pass.door.side == Side::Client => End::Lost,
                end => end,
            };
        }
        let is_stranger = self.pass.door.side == Side::Client && !self.queue.is_admitted();
        let reason = match end {
            // It has waited for us, or for a provider that could not decide.
            End::Refused(Reason::Stranger) | End::Done if is_stranger && self.queue.is_excused() => None,
            End::Refused(reason) => Some(reason),
            // The engine closed a client before login, or after too many guesses.
            End::Done if is_stranger && !self.pass.door.is_closing() => Some(Reason::Stranger),
            // Or it left in time, to guess again with another connection. To mistype once is no crime.
            End::PeerClosed | End::Lost if is_stranger && self.queue.failed_logins() > 1 => Some(Reason::Stranger),
            _ => None,
        };
        if let Some(reason) = reason {
            let party =
                Party { connection: Some(self.connection), ..Party::of(self.pass.door.side, self.pass.address) };
            self.pass.refuse_as(&party, reason, self.queue.is_admitted());
        }
        let cause = match end {
            End::PeerClosed => EndCause::PeerClosed,
            End::Done | End::Gone | End::Refused(Reason::FlushLate) => EndCause::Ours,
            End::Refused(Reason::TooSlow) => EndCause::Stalled,
            End::Lost | End::Refused(_) => EndCause::Lost,
        };
        let _ = self.pass.door.events().send(Event::Closed {
            key: self.key,
            cause,
            reason: reason.map_or(end.tag(), Reason::tag),
        });
        // The engine holds the queue a little longer; the peer need not wait for that.
        drop(self.queue.take_socket());
        Ended { pass: self.pass, end }
    }

    /// Reads what a peer has sent before it took nothing more. The kernel has confirmed that to the peer: a world server that was
    /// killed may have told the newest state of its world. A peer that has sent too much for the time of a farewell loses the rest.
    /// It may have said good-bye, or done what it may not.
    async fn read_the_rest(&self, read: Pin<&mut impl Future<Output = End>>) -> End {
        tokio::select! {
            end = read => end,
            _ = self.queue.ending() => End::Lost,
            () = self.pass.door.engine_end() => End::Gone,
            () = sleep(self.pass.door.farewell()) => End::Lost,
        }
    }

    /// Ends a connection whose peer does not take the last bytes, or too few of them.
    async fn ending(&self) -> End {
        if self.queue.ending().await == Ending::Flush {
            tokio::select! {
                () = sleep(self.pass.door.farewell()) => return End::Refused(Reason::FlushLate),
                reason = self.queue.ending_now() => return End::Refused(reason),
            }
        }
        End::Refused(self.queue.ending_now().await)
    }
}

/// A connection that is over for the engine.
pub(crate) struct Ended {
    pass: Pass,
    end: End,
}

impl Ended {
    /// How long a silent peer is waited for.
    pub(crate) fn patience(&self) -> Duration {
        self.pass.door.limits().flush
    }

    /// Waits until the peer has closed its end as well, after everything and our own end went out. `discard` reads what
    /// the peer still sends, and ends with it. For a socket that is closed while input waits in it, or comes later, is
    /// reset, and what the kernel has not delivered by then is lost (RFC 1122, 4.2.2.13).
    pub(crate) async fn linger(&self, discard: impl Future<Output = ()>) {
        if self.end == End::Done {
            let _ = timeout(self.pass.door.farewell(), discard).await;
        }
    }
}
