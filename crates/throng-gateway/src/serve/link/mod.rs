//! The door for Throng's own link: encrypted datagrams with connect tokens, and sessions with reliable lanes in them.
//!
//! ```text
//! netcode payload   session header | lane 0: packets of channeld's protocol, without frame headers, one per message
//!                                  | movement section
//! ```
//! A client with a token may connect; it then logs in with AUTH, as everywhere. Lane 0 is reliable and ordered. A lost
//! datagram delays the messages in it by a round trip, not the whole stream by a timeout, and nobody can read or forge
//! data in flight. State that is useless when late is not even delayed: see [`movement`].
//!
//! One task serves the socket. It sleeps until a datagram comes, a connection has data to send, or a session is due.
//! Then it serves only the sessions that this concerns: silent sessions cost only their own deadlines, and a flood of
//! datagrams delays no session's deadlines.

mod agenda;
mod datagrams;
mod movement;
mod peer;
mod table;

use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use throng_channeld::link::session_options;
use throng_channeld::{Packets, frame};
use throng_link::netcode::{
    Accepted, Key, Now, Outcome, Seats, ServerHandshake, ServerOptions, is_response, move_seat,
};
use throng_link::session::{Session, SessionOptions};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::watch;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until};

use super::counters::Reason;
use super::door::{Door, End, Opened, Pass};
use super::intake::Intake;
use super::memory::{Holding, Part};
use super::options::LinkOptions;
use super::stream::Out;
use super::udp::{DatagramSocket, Inbox};
use super::wake::WakeList;
use agenda::Agenda;
pub(crate) use datagrams::DatagramQueue;
use movement::Movement;
use peer::{Packet, Peer, Received};
use table::{PeerId, Peers, SEATS_MAX};

/// Packets that wait between a session and its connection's task, in each direction.
const WAITING_PACKETS: usize = 16;
/// No datagram of the protocol is as long.
const DATAGRAM_BYTES_MAX: usize = 2_048;
/// Peers that are looked after before others get a turn. Each may send 48 datagrams.
const PEERS_PER_TURN: usize = 32;
/// A session is not looked after more often than this when nothing comes: its pace is finer than a timer.
const TURN_MIN: Duration = Duration::from_millis(1);

/// Opens the door. It stays open until the gateway closes its doors and the last session has ended.
pub(crate) fn open(door: Arc<Door>, address: SocketAddr, options: &LinkOptions) -> io::Result<SocketAddr> {
    let (socket, inbox) = DatagramSocket::bind(address)?;
    let socket = Arc::new(socket);
    let address = socket.local_addr()?;
    let addresses = if options.public_addresses.is_empty() { vec![address] } else { options.public_addresses.clone() };
    let netcode = ServerOptions {
        previous_private_key: options.previous_private_key.map(Key::new),
        ..ServerOptions::new(options.protocol_id, Key::new(options.private_key), addresses)
    };
    let mut is_random = Ok(());
    let handshake = ServerHandshake::new(netcode, &mut |bytes| is_random = getrandom::fill(bytes));
    is_random.map_err(io::Error::other)?;
    let closing = door.closing();
    let post = Post {
        door,
        socket,
        handshake,
        sessions: Arc::new(patient_session_options()),
        peers: Peers::default(),
        agenda: Agenda::default(),
        wake: Arc::default(),
        awake: Vec::new(),
        turns: Vec::new(),
        stopped: HashSet::new(),
        datagram: Vec::new(),
        closing,
    };
    tokio::spawn(post.run(inbox));
    Ok(address)
}

struct Post {
    door: Arc<Door>,
    socket: Arc<DatagramSocket>,
    handshake: ServerHandshake,
    sessions: Arc<SessionOptions>,
    peers: Peers,
    agenda: Agenda,
    wake: Arc<WakeList<PeerId>>,
    /// Peers that have something to do now.
    awake: Vec<PeerId>,
    /// Those of them whose turn has come.
    turns: Vec<PeerId>,
    /// Peers that had more to send than the kernel had room for.
    stopped: HashSet<PeerId>,
    /// The data to send, while it is written.
    datagram: Vec<u8>,
    closing: watch::Receiver<bool>,
}

impl Post {
    async fn run(mut self, mut inbox: Inbox) {
        let mut closing = self.closing.clone();
        let (wake, socket) = (Arc::clone(&self.wake), Arc::clone(&self.socket));
        let mut alarm = pin!(sleep_until(Instant::now()));
        while !self.is_over() {
            let first = self.agenda.first().map(|time| Instant::from_std(self.door.instant(time)));
            if let Some(first) = first.filter(|&first| first != alarm.deadline()) {
                alarm.as_mut().reset(first);
            }
            tokio::select! {
                () = socket.readable() => {
                    socket.receive(&mut inbox, &mut |from, datagram| self.handle(from, datagram));
                }
                () = wake.wait() => {}
                () = &mut alarm, if first.is_some() => {}
                _ = closing.changed(), if !*self.closing.borrow() => {}
                () = socket.drained(), if !socket.has_room() => self.awake.extend(self.stopped.drain()),
                // Tasks that are awake do not delay other tasks of the runtime, or new datagrams.
                () = yield_now(), if !self.turns.is_empty() || !self.awake.is_empty() => {}
            }
            wake.take(&mut self.awake);
            self.wake_due();
            self.turn_awake();
        }
    }

    fn is_over(&self) -> bool {
        *self.closing.borrow() && self.peers.is_empty()
    }

    fn handle(&mut self, from: SocketAddr, datagram: &mut [u8]) {
        if datagram.len() > DATAGRAM_BYTES_MAX {
            return;
        }
        if let Some(seat) = move_seat(datagram) {
            return self.handle_move(from, seat, datagram);
        }
        let is_response = is_response(datagram);
        if is_response && self.peers.candidate_at(from).is_some() {
            // An attempt to open a packet with the wrong key destroys it, and several connections may be meant.
            let original = datagram.to_vec();
            if self.finish_move(from, datagram) {
                return;
            }
            datagram.copy_from_slice(&original);
        }
        let is_for_door = datagram.first() == Some(&0) || (is_response && self.handshake.is_pending(from));
        let peer = self.peers.at(from).filter(|_| !is_for_door);
        if let Some((id, peer)) = peer.and_then(|id| Some((id, self.peers.get_mut(id)?))) {
            if !peer.handle(self.door.now(), datagram) {
                self.door.counters().refuse(Reason::TooFast);
            }
            // Many datagrams may have come at once.
            return match peer.is_answer_due() {
                true => self.turn(id),
                false => self.awake.push(id),
            };
        }
        if !*self.closing.borrow() {
            self.knock(from, datagram);
        }
    }

    /// A stranger has sent a request, a response, or noise.
    fn knock(&mut self, from: SocketAddr, datagram: &mut [u8]) {
        let now = Now { unix_s: unix_s(), time: self.door.now() };
        let held = |client| self.peers.held(client);
        let seats = Seats { free: self.peers.free_seat(), max_clients: SEATS_MAX, held: &held };
        match self.handshake.handle(now, from, datagram, &seats, &mut self.datagram) {
            Outcome::Ignored(_) => return,
            Outcome::Reply | Outcome::Denied { .. } => {}
            Outcome::Accept(accepted) => {
                if !self.welcome(from, *accepted) {
                    return;
                }
            }
        }
        self.socket.send_to(&self.datagram, from);
    }

    /// A client has proved its address and its token. False if there is no place for it.
    fn welcome(&mut self, from: SocketAddr, accepted: Accepted) -> bool {
        if !self.door.may_arrive(from) {
            return false;
        }
        let Some(pass) = self.door.enter(from) else { return false };
        let Ok(session) = Session::new(Arc::clone(&self.sessions), self.door.now()) else { return false };
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
        let older =
            self.peers.insert(id, Peer::new(accepted, from, (session, received), (inbound, outbound), movement));
        if let Some((older, peer)) = older.and_then(|older| Some((older, self.peers.get_mut(older)?))) {
            peer.close_replaced(self.door.now());
            self.awake.push(older);
        }
        self.awake.push(id);
        true
    }

    /// A connection may have moved to this address: asks it to prove that.
    fn handle_move(&mut self, from: SocketAddr, seat: u32, datagram: &mut [u8]) {
        let Some(id) = self.peers.in_seat(seat) else { return };
        let Some(peer) = self.peers.get_mut(id) else { return };
        let former = peer.candidate.map(|candidate| candidate.address);
        let now = self.door.now();
        if self.handshake.handle_move(now, from, datagram, &mut peer.movable(), &mut self.datagram).is_ok() {
            self.peers.note_candidate(id, former, from);
            self.socket.send_to(&self.datagram, from);
        }
    }

    /// A connection may have proved its new address. Whether it has.
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

    fn forget(&mut self, id: PeerId) {
        if let Some(mut peer) = self.peers.remove(id) {
            self.agenda.cancel(id, &mut peer.appointed);
            self.stopped.remove(&id);
        }
    }

    /// Those whose deadlines have passed have something to do.
    fn wake_due(&mut self) {
        let now = self.door.now();
        while let Some(id) = self.agenda.take_due(now) {
            if let Some(peer) = self.peers.get_mut(id) {
                peer.appointed = None;
                self.awake.push(id);
            }
        }
    }

    /// Looks after some of those that have something to do. A session woken meanwhile comes after all that are awake now.
    fn turn_awake(&mut self) {
        if self.turns.is_empty() {
            std::mem::swap(&mut self.turns, &mut self.awake);
            self.turns.sort_unstable();
            self.turns.dedup();
        }
        for _ in 0..PEERS_PER_TURN {
            let Some(id) = self.turns.pop() else { return };
            self.turn(id);
        }
    }

    fn turn(&mut self, id: PeerId) {
        let Some(peer) = self.peers.get_mut(id) else { return };
        let now = self.door.now();
        let goes_on = peer.turn(now, &self.socket, &mut self.datagram);
        if !self.socket.has_room() {
            self.stopped.insert(id);
        }
        // Data that went through the connection's task was counted there.
        let written = peer.take_written();
        self.door.counters().count_sent(written.sections, written.bytes);
        if goes_on {
            if let Some(deadline) = peer.next_deadline(now) {
                self.agenda.appoint(id, &mut peer.appointed, deadline.max(now.after(TURN_MIN)));
            }
            return;
        }
        self.forget(id);
    }
}

fn unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The life of a connection.
async fn serve(
    pass: Pass,
    (packets_in, packets_out): (Receiver<Received>, Sender<Packet>),
    datagrams: Arc<DatagramQueue>,
    (wake, id): (Arc<WakeList<PeerId>>, PeerId),
) {
    let Some(opened) = pass.open().await else { return wake.add(id) };
    let door = Arc::clone(&opened.pass.door);
    datagrams.introduce(door.events().clone(), opened.key);
    opened.queue.set_datagrams(datagrams);
    {
        let (queue, manner) = (Arc::clone(&opened.queue), Arc::clone(&opened.manner));
        let out = Out { queue, manner, counters: door.counters() };
        let read = pin!(read(packets_in, opened.intake(), (&wake, id)));
        let write = pin!(write(packets_out, out, (&wake, id)));
        Opened::run(opened, read, write).await;
    }
    wake.add(id);
}

async fn read(mut packets: Receiver<Received>, mut intake: Intake, (wake, id): (&WakeList<PeerId>, PeerId)) -> End {
    while let Some(Received { packet, .. }) = packets.recv().await {
        // There is room again for what the session may hold.
        wake.add(id);
        if let Err(end) = intake.take_payload(packet).await {
            return end;
        }
    }
    End::PeerClosed
}

/// Queued data counts as written when it has arrived: see [`Queue`](super::outbox::Queue).
async fn write(packets_out: Sender<Packet>, out: Out<'_>, (wake, id): (&WakeList<PeerId>, PeerId)) -> End {
    while let Some(entries) = out.queue.next().await {
        let mut packets = Packets::new(&entries, frame::MAX_PAYLOAD_BYTES);
        let (mut left, mut copied_bytes) = (entries.len(), 0);
        while let Some(packet) = packets.next() {
            let entry_bytes = left - packets.rest().len();
            // Until all entries are handed over, there are two copies of these.
            copied_bytes += packet.len();
            out.queue.hold(copied_bytes);
            if packets_out.send(Packet::Entries(Bytes::copy_from_slice(packet), entry_bytes)).await.is_err() {
                return End::Lost;
            }
            wake.add(id);
            out.counters.count_sent(1, packet.len());
            left = packets.rest().len();
        }
        out.queue.hold(0);
        out.counters.count_dropped(packets.dropped());
        if left > 0 {
            if packets_out.send(Packet::Dropped(left)).await.is_err() {
                return End::Lost;
            }
            wake.add(id);
        }
    }
    // The session ends once all is delivered, and the queue with it; at once if what waited was thrown away.
    if out.queue.ended_now().is_none() && packets_out.send(Packet::End).await.is_ok() {
        wake.add(id);
        packets_out.closed().await;
    }
    End::Done
}

/// The client asks first whether the other is there; while it does, the gateway need not.
fn patient_session_options() -> SessionOptions {
    let options = session_options();
    SessionOptions { keep_alive_interval: options.keep_alive_interval * 3 / 2, ..options }
}
