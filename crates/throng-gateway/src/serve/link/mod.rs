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
//! datagrams delays no session's deadlines. [Strangers](knock) come last.

mod agenda;
mod knock;
mod movement;
mod peer;
mod table;

use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use throng_channeld::link::session_options;
use throng_channeld::{Packets, frame};
use throng_link::netcode::{Door as Entrance, Key, NetcodeCounters, ServerHandshake, ServerOptions};
use throng_link::session::SessionOptions;
use throng_wire::Time;
use tokio::sync::mpsc::{Receiver, Sender};
use tokio::sync::watch;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until};

use super::counters::Reason;
use super::datagrams::{DatagramQueue, PeerId};
use super::door::Door;
use super::end::End;
use super::event::Event;
use super::intake::Intake;
use super::life::{Opened, Pass};
use super::options::LinkOptions;
use super::stream::Out;
use super::udp::{DatagramSocket, Inbox};
use super::wake::WakeList;
use agenda::Agenda;
use peer::{Packet, Received};
use table::Peers;

/// No datagram of the protocol is as long.
const DATAGRAM_BYTES_MAX: usize = 2_048;
/// Peers that are looked after before others get a turn. Each sends [`DATAGRAMS_PER_TURN`](peer::DATAGRAMS_PER_TURN) at
/// most.
const PEERS_PER_TURN: usize = 32;
/// A session is not looked after more often than this when nothing comes: its pace is finer than a timer.
const TURN_MIN: Duration = Duration::from_millis(1);

/// Opens the door. It stays open until the gateway closes its doors and the last session has ended.
pub(crate) fn open(door: Arc<Door>, address: SocketAddr, options: &LinkOptions) -> io::Result<SocketAddr> {
    let (socket, inbox) = DatagramSocket::bind(address)?;
    let address = socket.local_addr()?;
    tokio::spawn(Post::new(door, socket, options)?.run(inbox));
    Ok(address)
}

struct Post {
    door: Arc<Door>,
    socket: Arc<DatagramSocket>,
    /// The same as that of Throng's own server.
    entrance: Entrance<PeerId>,
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
    fn new(door: Arc<Door>, socket: DatagramSocket, options: &LinkOptions) -> io::Result<Post> {
        let addresses = match options.public_addresses.is_empty() {
            true => vec![socket.local_addr()?],
            false => options.public_addresses.clone(),
        };
        let clients = u32::try_from(door.limits().connections).unwrap_or(u32::MAX);
        let netcode = ServerOptions {
            previous_private_key: options.previous_private_key.map(Key::new),
            ..ServerOptions::new(options.protocol_id, Key::new(options.private_key), addresses).sized_for(clients)
        };
        let mut is_random = Ok(());
        let handshake = ServerHandshake::new(netcode, &mut |bytes| is_random = getrandom::fill(bytes));
        is_random.map_err(io::Error::other)?;
        let sessions = patient_session_options();
        sessions.check().map_err(io::Error::other)?;
        Ok(Post {
            closing: door.closing(),
            door,
            socket: Arc::new(socket),
            entrance: Entrance::new(handshake),
            sessions: Arc::new(sessions),
            peers: Peers::default(),
            agenda: Agenda::default(),
            wake: Arc::default(),
            awake: Vec::new(),
            turns: Vec::new(),
            stopped: HashSet::new(),
            datagram: Vec::new(),
        })
    }

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
                    let now = self.door.now();
                    socket.receive(now, &mut inbox, &mut |arrived, from, bytes| self.handle((arrived, from), bytes));
                }
                () = wake.wait() => {}
                () = &mut alarm, if first.is_some() => {}
                _ = closing.changed(), if !*self.closing.borrow() => {}
                () = socket.drained(), if !socket.has_room() => self.awake.extend(self.stopped.drain()),
                // Tasks that are awake do not delay other tasks of the runtime, or new datagrams.
                () = yield_now(), if self.is_busy() => {}
            }
            wake.take(&mut self.awake);
            self.wake_due();
            self.turn_awake();
            self.serve_strangers();
            self.tell_outcomes();
        }
    }

    fn is_over(&self) -> bool {
        *self.closing.borrow() && self.peers.is_empty()
    }

    fn is_busy(&self) -> bool {
        !self.turns.is_empty() || !self.awake.is_empty() || self.entrance.waiting() > 0
    }

    fn handle(&mut self, (arrived, from): (Time, SocketAddr), datagram: &mut [u8]) {
        if datagram.len() > DATAGRAM_BYTES_MAX {
            return;
        }
        match self.entrance.owner_of(from, datagram) {
            Some(id) => self.hear(id, arrived, datagram),
            None => self.entrance.keep(from, datagram),
        }
    }

    /// A datagram has come from a connection's address.
    fn hear(&mut self, id: PeerId, arrived: Time, datagram: &mut [u8]) {
        let Some(peer) = self.peers.get_mut(id) else { return };
        let now = self.door.now();
        match peer.hear((now, arrived), datagram, &self.socket, &mut self.datagram) {
            Ok(true) => {}
            Ok(false) => self.door.counters().refuse(Reason::TooFast),
            Err(reason) => return self.entrance.counters_mut().drop(reason),
        }
        self.awake.push(id);
    }

    /// Adds to the counters what has become of datagrams.
    fn tell_outcomes(&mut self) {
        let outcomes = std::mem::take(self.entrance.counters_mut());
        if outcomes != NetcodeCounters::default() {
            self.door.counters().note_link(&outcomes);
        }
    }

    fn forget(&mut self, id: PeerId) {
        if let Some(mut peer) = self.peers.remove(id) {
            self.entrance.forget(id, peer.address, peer.candidate);
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
            if peer.has_more() {
                self.awake.push(id);
            }
            if let Some(deadline) = peer.next_deadline(now) {
                self.agenda.appoint(id, &mut peer.appointed, deadline.max(now.after(TURN_MIN)));
            }
            return;
        }
        self.forget(id);
    }
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
    let (events, key) = (door.events().clone(), opened.key);
    // If the engine has ended, so will the connection.
    datagrams.introduce(move || {
        let _ = events.send(Event::Settled { key });
    });
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

#[cfg(test)]
mod tests {
    use super::*;
    use throng_gateway_engine::port::Side;

    #[tokio::test]
    async fn strangers_wait_until_connections_were_served_and_for_each_other() {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let (socket, _inbox) = DatagramSocket::bind(any).expect("a free port");
        let mut post = Post::new(Door::alone(Side::Client), socket, &LinkOptions::new([7; 32])).expect("it opens");
        let looked_at = |post: &Post| post.entrance.counters().dropped_total();
        for port in 1..=100 {
            // A request, but for what is in it.
            post.handle((Time(0), ([127, 0, 0, 1], port).into()), &mut [0; 1_078]);
        }
        assert_eq!((post.entrance.waiting(), looked_at(&post)), (100, 0));
        post.serve_strangers();
        assert_eq!((post.entrance.waiting(), looked_at(&post)), (36, 64));
        post.serve_strangers();
        assert_eq!((post.entrance.waiting(), looked_at(&post)), (0, 100));
    }
}
