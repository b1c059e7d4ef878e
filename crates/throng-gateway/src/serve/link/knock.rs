//! Those who are not connected, and connections whose address has changed: served when connections have been.

use std::cell::Cell;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use throng_link::netcode::{Accepted, Admission, DropReason, Now, Outcome, Seats, is_response, move_seat};
use throng_link::session::Session;
use tokio::sync::mpsc::channel;

use super::super::counters::Reason;
use super::super::datagrams::DatagramQueue;
use super::super::life::Pass;
use super::super::memory::{Holding, Part};
use super::movement::Movement;
use super::peer::Peer;
use super::peer::SEATS_MAX;
use super::{Post, serve};

/// Packets that wait between a session and its connection's task, in each direction.
const WAITING_PACKETS: usize = 16;
/// Strangers that are looked at before connections get another turn. Each costs a decryption, some 2 µs.
const STRANGERS_PER_TURN: usize = 64;

impl Post {
    /// Whether a datagram from a connected address may be that of a new client or of a connection that moves.
    pub(super) fn is_for_door(&self, from: SocketAddr, datagram: &[u8]) -> bool {
        datagram.first() == Some(&0)
            || move_seat(datagram).is_some()
            || (is_response(datagram) && (self.peers.candidate_at(from).is_some() || self.handshake.is_pending(from)))
    }

    pub(super) fn serve_strangers(&mut self) {
        let mut strangers = std::mem::take(&mut self.strangers);
        for _ in 0..STRANGERS_PER_TURN {
            let Some((from, datagram)) = strangers.take() else { break };
            self.handle_stranger(from, datagram);
        }
        self.strangers = strangers;
    }

    fn handle_stranger(&mut self, from: SocketAddr, datagram: &mut [u8]) {
        if let Some(seat) = move_seat(datagram) {
            return self.handle_move(from, seat, datagram);
        }
        if !is_response(datagram) {
            return self.knock(from, datagram);
        }
        // An attempt to open a packet with the wrong key destroys it, and several connections may be meant.
        let original = datagram.to_vec();
        if self.finish_move(from, datagram) {
            return;
        }
        datagram.copy_from_slice(&original);
        match self.peers.at(from) {
            Some(id) if !self.handshake.is_pending(from) => self.hear(id, self.door.now(), datagram),
            _ => self.knock(from, datagram),
        }
    }

    /// A stranger has sent a request, a response, or noise.
    fn knock(&mut self, from: SocketAddr, datagram: &mut [u8]) {
        if *self.closing.borrow() {
            return;
        }
        let now = Now { unix_s: unix_s(), time: self.door.now() };
        let held = |client| self.peers.held(client);
        let entered = Cell::new(None);
        let admission = || match self.door.admit(from) {
            Ok(pass) => {
                entered.set(Some(pass));
                Admission::Granted
            }
            Err(reason) if is_passing(reason) => Admission::Later,
            Err(_) => Admission::Denied,
        };
        let free = self.peers.free_seat();
        let seats = Seats { free, max_clients: SEATS_MAX, held: &held, admission: &admission };
        match self.handshake.handle(now, from, datagram, &seats, &mut self.datagram) {
            Outcome::Ignored(_) => return,
            Outcome::Reply | Outcome::Denied { .. } => {}
            Outcome::Accept(accepted) => {
                let Some(pass) = entered.take() else { return };
                self.welcome(from, *accepted, pass);
            }
        }
        self.socket.send_to(&self.datagram, from);
    }

    /// A client has proved its address and its token, and the gateway has room for it.
    fn welcome(&mut self, from: SocketAddr, accepted: Accepted, pass: Pass) {
        let now = self.door.now();
        let session = Session::new(Arc::clone(&self.sessions), now).expect("the options were checked at the start");
        let (inbound, packets_in) = channel(WAITING_PACKETS);
        let (packets_out, outbound) = channel(WAITING_PACKETS);
        let id = self.peers.next_id();
        let memory = self.door.memory();
        let datagrams = DatagramQueue::new(id, Arc::clone(&self.wake), Holding::new(memory, Part::Queues, 0));
        let received = Holding::new(memory, Part::Inbound, 0);
        let movement = Movement::new(Arc::clone(&datagrams));
        tokio::spawn(serve(pass, (packets_in, packets_out), datagrams, (Arc::clone(&self.wake), id)));
        // Another peer has proved this address: the former peer is gone.
        if let Some(former) = self.peers.at(from) {
            self.forget(former);
        }
        let peer = Peer::new(accepted, (from, now), (session, received), (inbound, outbound), movement);
        let older = self.peers.insert(id, peer);
        if let Some((older, peer)) = older.and_then(|older| Some((older, self.peers.get_mut(older)?))) {
            peer.close_replaced(now);
            self.awake.push(older);
        }
        self.awake.push(id);
    }

    /// A connection may have moved to this address: asks it to prove that.
    fn handle_move(&mut self, from: SocketAddr, seat: u32, datagram: &mut [u8]) {
        let Some(id) = self.peers.in_seat(seat) else {
            return self.handshake.counters_mut().drop(DropReason::MoveNotOurs);
        };
        let Some(peer) = self.peers.get_mut(id) else { return };
        let former = peer.candidate.map(|candidate| candidate.address);
        let now = self.door.now();
        if self.handshake.handle_move(now, from, datagram, &mut peer.movable(), &mut self.datagram).is_ok() {
            self.peers.note_candidate(id, former, from);
            self.socket.send_to(&self.datagram, from);
        }
    }

    /// Checks the answer to a challenge. Returns whether a connection has proved its new address with it.
    fn finish_move(&mut self, from: SocketAddr, datagram: &mut [u8]) -> bool {
        let Some(id) = self.peers.candidate_at(from) else { return false };
        let Some(peer) = self.peers.get_mut(id) else { return false };
        let now = self.door.now();
        let Ok(round_trip) = self.handshake.handle_move_response(now, from, datagram, &mut peer.movable()) else {
            return false;
        };
        if self.peers.arrive(id, from)
            && let Some(peer) = self.peers.get_mut(id)
        {
            peer.has_moved(now, round_trip);
        }
        self.awake.push(id);
        true
    }
}

/// Whether a client that is refused for this reason may come in a moment: it waits, as over TCP.
fn is_passing(reason: Reason) -> bool {
    matches!(reason, Reason::Busy | Reason::ArrivesTooFast | Reason::NoMaster)
}

fn unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
