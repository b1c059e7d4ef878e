//! The door for KCP: one UDP socket, and one task that passes its datagrams to conversations.
//!
//! KCP is a reliable stream over UDP, as kcp-go speaks it without encryption and error correction. Conversations are
//! distinguished by address. A new peer's first datagram has to be the beginning of a conversation. The task sleeps
//! while nothing is in flight.
//!
//! Anybody can send a datagram with a false address. So a new peer has to repeat a number that was sent to its address
//! ([challenge]); until then it does not count as a connection and replaces none. Then it counts like any
//! other connection, and another conversation from the same address and port is over. Anybody who forges the address of
//! a conversation can add data to it, because the protocol has no authentication. But only a peer that reads the
//! answers can acknowledge data ([segment::tame]). If you need protection from peers that know the port and the
//! conversation's number, use an encrypted door.

mod challenge;
mod received;
mod segment;
mod session;

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

use super::counters::{Reason, add};
use super::door::Door;
use super::ration::Party;
use super::stream;
use super::udp::{DatagramSocket, Inbox};
use super::wake::WakeList;
use challenge::Challenges;
use segment::{Segment, Sent};
use session::{INTERVAL, Need, Session};

/// The longest datagram: an Ethernet frame's. Longer ones were never sent by KCP.
const DATAGRAM_BYTES: usize = 1_500;

/// Opens the door. It stays open until the gateway closes its doors and the last conversation has ended.
pub(crate) fn open(door: Arc<Door>, address: SocketAddr) -> io::Result<SocketAddr> {
    let (socket, inbox) = DatagramSocket::bind(address, 1)?;
    let socket = Arc::new(socket);
    let address = socket.local_addr()?;
    let closing = door.closing();
    let post = Post {
        door,
        socket,
        sessions: HashMap::new(),
        challenges: Challenges::new(Instant::now()),
        active: Vec::new(),
        pending: Arc::default(),
        closing,
    };
    tokio::spawn(post.run(inbox));
    Ok(address)
}

struct Post {
    door: Arc<Door>,
    socket: Arc<DatagramSocket>,
    /// Hashed with the standard library's keyed hash: peers choose their addresses.
    sessions: HashMap<SocketAddr, Arc<Session>>,
    challenges: Challenges,
    /// Sessions with something on its way.
    active: Vec<SocketAddr>,
    pending: Arc<WakeList<SocketAddr>>,
    closing: watch::Receiver<bool>,
}

impl Post {
    async fn run(mut self, mut inbox: Inbox) {
        let mut tick = interval(INTERVAL);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut sweep = interval(self.door.limits().silence / 4);
        sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut closing = self.closing.clone();
        let pending = Arc::clone(&self.pending);
        let socket = Arc::clone(&self.socket);
        while !self.is_over() {
            tokio::select! {
                () = socket.readable() => {
                    socket.receive(self.door.now(), &mut inbox, &mut |_, from, datagram| self.handle(from, datagram));
                }
                _ = tick.tick(), if !self.active.is_empty() => self.care(),
                () = pending.wait() => pending.take(&mut self.active),
                _ = sweep.tick(), if !self.sessions.is_empty() => self.forget_silent(),
                _ = closing.changed(), if !*self.closing.borrow() => {}
                () = socket.drained(), if !socket.has_room() => {}
            }
        }
    }

    fn is_over(&self) -> bool {
        *self.closing.borrow() && self.sessions.is_empty()
    }

    fn handle(&mut self, from: SocketAddr, datagram: &mut [u8]) {
        let Some(first) = Segment::first(datagram).filter(|_| datagram.len() <= DATAGRAM_BYTES) else {
            return self.door.refuse(&Party::of(self.door.side, from), Reason::BadDatagram);
        };
        match self.sessions.get(&from) {
            Some(session) if session.conversation == first.conversation => {
                if !session.handle(datagram) {
                    self.door.refuse(&Party::of(self.door.side, from), Reason::BadDatagram);
                }
            }
            _ if *self.closing.borrow() => {}
            _ => self.handle_stranger(from, first, datagram),
        }
    }

    fn handle_stranger(&mut self, from: SocketAddr, first: Segment, datagram: &mut [u8]) {
        let (now, conversation) = (Instant::now(), first.conversation);
        if let Some(answer) = first.answer() {
            match self.challenges.is_answered(now, (from, conversation), answer) {
                true => self.begin(from, conversation, datagram),
                false => self.door.refuse(&Party::of(self.door.side, from), Reason::BadDatagram),
            }
        } else if first.is_beginning() && segment::sound(datagram, (conversation, &Sent::default()), 0).is_some() {
            add(&self.door.counters().challenged, 1);
            let challenge = segment::challenge(conversation, self.challenges.make(now, from, conversation));
            // If the kernel has no room for it, the stranger will ask again.
            self.socket.send_to(&challenge, from);
        } else {
            self.door.refuse(&Party::of(self.door.side, from), Reason::BadDatagram);
        }
    }

    /// A conversation with a peer that has proved its address, and that has begun the conversation or has just lost the
    /// one before.
    fn begin(&mut self, from: SocketAddr, conversation: u32, datagram: &mut [u8]) {
        let Ok(pass) = self.door.admit(from) else { return };
        let session = Session::new(conversation, from, (&self.socket, &self.pending), &self.door);
        session.handle(datagram);
        let (mut reader, writer) = session.ends();
        // Its peer has acknowledged everything when it ends in an orderly way, and has no way to say that it leaves too.
        let at_end = stream::end_without_farewell(self.door.side);
        tokio::spawn(async move { stream::serve(pass, &mut reader, writer, at_end).await });
        if let Some(former) = self.sessions.insert(from, session) {
            former.lose();
        }
    }

    fn care(&mut self) {
        // A retransmission would be lost before it left: a tick later there may be room.
        if !self.socket.has_room() {
            return;
        }
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
