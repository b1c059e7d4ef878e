//! The door for KCP: one UDP socket, and one task that deals its datagrams out to conversations.
//!
//! KCP is a reliable stream over UDP, as kcp-go speaks it without encryption and error correction. Conversations are
//! told apart by address. A stranger's first datagram has to be the beginning of a conversation; it costs a place at
//! the door like any other connection. The task sleeps as long as nothing is on its way.
//!
//! Anybody can begin a conversation under a false address, with one datagram. So until the peer has repeated something
//! that was sent to that address, nothing that happens is held against the address, and only so many conversations may be
//! in that state: the oldest of them makes place for a new one.

mod segment;
mod session;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::net::UdpSocket;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

use super::counters::Reason;
use super::door::Door;
use super::stream;
use super::wake::WakeList;
use segment::Segment;
use session::{INTERVAL, Need, Session};

/// The longest datagram: an Ethernet frame's. Longer ones were never sent by KCP.
const DATAGRAM_BYTES: usize = 1_500;
/// Datagrams that are taken before others get a turn.
const DATAGRAMS_PER_TURN: usize = 64;
/// Conversations whose peers have not proved their address. Everybody who logs in is among them for a round trip and as
/// long as the provider takes, and no more than half as many wait for that by default.
const UNPROVED_MAX: usize = 2_048;
/// Until a conversation was silent for so long, another one from its address does not replace it: anybody could send
/// its beginning under a false address.
const REPLACEABLE_AFTER: Duration = Duration::from_secs(3);

/// Opens the door. It stays open until the gateway closes its doors and the last conversation has ended.
pub(crate) fn open(door: Arc<Door>, address: SocketAddr) -> io::Result<SocketAddr> {
    let socket = std::net::UdpSocket::bind(address)?;
    socket.set_nonblocking(true)?;
    let socket = Arc::new(UdpSocket::from_std(socket)?);
    let address = socket.local_addr()?;
    let closing = door.closing();
    let post = Post {
        door,
        socket,
        sessions: HashMap::new(),
        newcomers: VecDeque::new(),
        active: Vec::new(),
        pending: Arc::default(),
        closing,
    };
    tokio::spawn(post.run());
    Ok(address)
}

struct Post {
    door: Arc<Door>,
    socket: Arc<UdpSocket>,
    /// Hashed with the standard library's keyed hash: peers choose their addresses.
    sessions: HashMap<SocketAddr, Arc<Session>>,
    /// The last that have begun, oldest first. Who has not proved its address when it gets out of here is lost.
    newcomers: VecDeque<Arc<Session>>,
    /// Sessions with something on its way.
    active: Vec<SocketAddr>,
    pending: Arc<WakeList>,
    closing: watch::Receiver<bool>,
}

impl Post {
    async fn run(mut self) {
        let mut datagram = [0; DATAGRAM_BYTES];
        let mut tick = interval(INTERVAL);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut sweep = interval(self.door.limits().silence / 4);
        sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut closing = self.closing.clone();
        let pending = Arc::clone(&self.pending);
        let socket = Arc::clone(&self.socket);
        while !self.is_over() {
            tokio::select! {
                received = socket.recv_from(&mut datagram) => {
                    if let Ok((bytes, from)) = received {
                        self.handle(from, &datagram[..bytes]);
                        self.handle_more(&mut datagram);
                    }
                }
                _ = tick.tick(), if !self.active.is_empty() => self.care(),
                () = pending.wait() => pending.take(&mut self.active),
                _ = sweep.tick(), if !self.sessions.is_empty() => self.forget_silent(),
                _ = closing.changed(), if !*self.closing.borrow() => {}
            }
        }
    }

    fn is_over(&self) -> bool {
        *self.closing.borrow() && self.sessions.is_empty()
    }

    fn handle_more(&mut self, datagram: &mut [u8]) {
        for _ in 1..DATAGRAMS_PER_TURN {
            let Ok((bytes, from)) = self.socket.try_recv_from(datagram) else { return };
            self.handle(from, &datagram[..bytes]);
        }
    }

    fn handle(&mut self, from: SocketAddr, datagram: &[u8]) {
        let Some(first) = Segment::first(datagram) else { return };
        let session = self.sessions.get(&from);
        match session {
            Some(session) if session.conversation == first.conversation => return session.handle(datagram),
            Some(session) if session.silence(Instant::now()) < REPLACEABLE_AFTER => return,
            Some(session) => session.lose(),
            None => {}
        }
        if !first.is_beginning() || segment::sound(datagram, first.conversation, 0).is_none() || *self.closing.borrow()
        {
            return;
        }
        let Some(pass) = self.door.enter(from) else { return };
        let session = Session::new(first.conversation, from, &self.socket, &self.pending);
        let pass = pass.unproved(session.proof());
        self.make_place();
        self.newcomers.push_back(Arc::clone(&session));
        session.handle(datagram);
        let (mut reader, writer) = session.ends();
        // Its peer has acknowledged everything when it ends in an orderly way, and has no way to say that it leaves too.
        tokio::spawn(async move { stream::serve(pass, &mut reader, writer).await });
        self.sessions.insert(from, session);
    }

    /// Sees to it that no more than so many are among those who may be somebody else.
    fn make_place(&mut self) {
        while self.newcomers.front().is_some_and(|eldest| eldest.is_settled()) || self.newcomers.len() >= UNPROVED_MAX {
            let Some(eldest) = self.newcomers.pop_front() else { return };
            let is_there = self.sessions.get(&eldest.address).is_some_and(|session| Arc::ptr_eq(session, &eldest));
            if is_there && !eldest.is_settled() {
                eldest.lose();
                self.door.refuse(eldest.address, Reason::Unproved);
                self.sessions.remove(&eldest.address);
            }
        }
    }

    fn care(&mut self) {
        let sessions = &mut self.sessions;
        self.active.retain(|address| match sessions.get(address).map_or(Need::Rest, |session| session.care()) {
            Need::Care => true,
            Need::Rest => false,
            Need::End => {
                sessions.remove(address);
                false
            }
        });
    }

    /// Peers of this protocol have no way to say that they leave.
    fn forget_silent(&mut self) {
        let now = Instant::now();
        let (silence, counters) = (self.door.limits().silence, self.door.counters());
        self.sessions.retain(|_, session| {
            let is_silent = session.silence(now) > silence;
            if is_silent {
                session.lose();
                counters.refuse(Reason::Silent);
            }
            !is_silent
        });
    }
}
