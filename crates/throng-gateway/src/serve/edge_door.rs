//! Where edges come to their home.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use throng_gateway_engine::edge::PathSide;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::time::sleep;
use tracing::{error, info, warn};

use super::clock::Clock;
use super::counters::{ShellCounters, add};
use super::edge_frames::{PathEnd, carry, close};
use super::edge_path::{PathOutbox, PathQueue, greet_edge, refuse_edge, welcome_edge};
use super::event::{Event, Events};
use super::options::EdgeSecret;
use super::ration::Ration;
use super::tcp;

/// Connections of edges at a time, those in the handshake included. A test opens as many.
const EDGES_MAX: usize = 256;
/// After a failed accept it is tried again.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// For how long an edge may be out of reach.
const UNREACHABLE: Duration = Duration::from_secs(10);

/// The shared data of the tasks of all edges.
pub(crate) struct EdgeDoor {
    pub(crate) secret: EdgeSecret,
    /// A hash of the rules that a home and its edges share, as the engine has them now.
    pub(crate) settings: Arc<AtomicU64>,
    pub(crate) events: Events,
    pub(crate) counters: Arc<ShellCounters>,
    /// Lines that edges cause are logged at a limited rate.
    pub(crate) ration: Arc<Ration>,
    pub(crate) clock: Clock,
    pub(crate) closing: watch::Receiver<bool>,
}

impl EdgeDoor {
    fn refuse(&self, address: SocketAddr, why: &str) {
        add(&self.counters.edges_refused, 1);
        self.say("edge_refused", |left_out| warn!(%address, left_out, "an edge was refused: {why}"));
    }

    /// The machine lacks something, most often file descriptors.
    fn fail_to_accept(&self, cause: &io::Error) {
        add(&self.counters.edge_accepts_failed, 1);
        self.say("edge_accept", |left_out| error!(%cause, left_out, "an edge cannot be accepted"));
    }

    /// Writes a line of the log, unless there were too many for this reason. `write` gets the number of lines that were left out.
    fn say(&self, reason: &'static str, write: impl FnOnce(u64)) {
        if let Some(left_out) = self.ration.take(self.clock.now(), reason) {
            write(left_out);
        }
    }
}

/// Accepts edges until the gateway closes its doors.
pub(crate) async fn accept(door: Arc<EdgeDoor>, listener: TcpListener) {
    let room = Arc::new(Semaphore::new(EDGES_MAX));
    let mut closing = door.closing.clone();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = closing.wait_for(|closing| *closing) => return,
        };
        let (stream, address) = match accepted {
            Ok(accepted) => accepted,
            Err(cause) => {
                door.fail_to_accept(&cause);
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Ok(place) = Arc::clone(&room).try_acquire_owned() else {
            door.refuse(address, &format!("there are {EDGES_MAX} already"));
            continue;
        };
        let door = Arc::clone(&door);
        tokio::spawn(async move {
            serve(&door, stream, address).await;
            drop(place);
        });
    }
}

async fn serve(door: &EdgeDoor, mut stream: TcpStream, address: SocketAddr) {
    let _ = stream.set_nodelay(true);
    let _ = tcp::notice_silence(&stream, UNREACHABLE);
    if let Err(error) = greet_edge(&mut stream, &door.secret, door.settings.load(Ordering::Relaxed)).await {
        return door.refuse(address, &error.to_string());
    }
    let outbox = PathOutbox(PathQueue::new(&door.counters.memory));
    let (reply, answer) = oneshot::channel();
    if door.events.send(Event::EdgeOpened { outbox: outbox.clone(), reply }).is_err() {
        return door.refuse(address, "the home ends");
    }
    let (key, tick) = match answer.await {
        Ok(Some(opened)) => opened,
        Ok(None) | Err(_) => {
            let why = "the home lets nobody in now: it is shutting down, or waits for a server to own GLOBAL (-cwm)";
            let _ = refuse_edge(&mut stream, why).await;
            return door.refuse(address, why);
        }
    };
    add(&door.counters.edges_accepted, 1);
    door.say("edge_come", |left_out| info!(%address, left_out, "an edge has come"));
    let ended = match welcome_edge(&mut stream, tick).await {
        Ok(()) => {
            let heard = |frame, room| Event::EdgeSaid { key, frame, _room: room };
            carry(stream, &outbox, (&door.events, &door.counters), PathSide::Edge, heard).await
        }
        Err(error) => close(&outbox, &door.counters, PathEnd::Cut(io::Error::other(error))),
    };
    let _ = door.events.send(Event::EdgeClosed { key });
    match ended {
        PathEnd::Orderly | PathEnd::Ours => {
            door.say("edge_gone", |left_out| info!(%address, left_out, "an edge has gone: {ended}"));
        }
        PathEnd::Cut(_) | PathEnd::Fault(_) => {
            door.say("edge_lost", |left_out| warn!(%address, left_out, "an edge is lost: {ended}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::event::events;
    use super::*;

    #[test]
    fn an_edge_that_cannot_be_accepted_is_counted_and_is_no_refused_one() {
        let counters = Arc::<ShellCounters>::default();
        let door = EdgeDoor {
            secret: EdgeSecret([1; 32]),
            settings: Arc::default(),
            events: events(0, Arc::default(), 1).0,
            counters: Arc::clone(&counters),
            ration: Arc::default(),
            clock: Clock::start(),
            closing: watch::channel(false).1,
        };
        (0..20).for_each(|_| door.fail_to_accept(&io::Error::other("too many open files")));
        assert_eq!(counters.edge_accepts_failed.load(Ordering::Relaxed), 20);
        assert_eq!(counters.edges_refused.load(Ordering::Relaxed), 0);
    }
}
