//! The door for Throng's own link: encrypted datagrams with connect tokens, and sessions with reliable lanes in them.
//!
//! ```text
//! netcode payload   session header | lane 0: packets of channeld's protocol, without frame headers, one per message
//!                                  | movement section
//! ```
//! A client with a token may connect; it then logs in with AUTH, as everywhere. Lane 0 is reliable and
//! ordered. A lost datagram costs the messages in it a round trip, not the whole stream a timeout, and nobody can read
//! or forge what is on its way. State that is of no use late does not even cost that: see [`movement`].
//!
//! One task looks after the socket. It sleeps until a datagram comes, a connection has something to say, or a session
//! is due. Then it looks after those whom that concerns, and after nobody else: silent sessions cost what their own
//! deadlines cost, and a flood of datagrams puts off nobody's.

mod agenda;
mod datagrams;
mod movement;
mod peer;

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use throng_channeld::link::session_options;
use throng_channeld::{Packets, frame};
use throng_link::netcode::{Accepted, Held, Key, Now, Outcome, Seats, ServerHandshake, ServerOptions};
use throng_link::session::{Session, SessionOptions};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::watch;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until};

use super::counters::Reason;
use super::door::{Door, End, Opened, Pass};
use super::intake::Intake;
use super::options::LinkOptions;
use super::stream::Out;
use super::udp::DatagramSocket;
use super::wake::WakeList;
use agenda::Agenda;
pub(crate) use datagrams::DatagramQueue;
use movement::Movement;
use peer::{Packet, Peer};

/// Packets that wait between a session and its connection's task, in each direction.
const WAITING_PACKETS: usize = 16;
const DATAGRAMS_PER_TURN: usize = 64;
/// Peers that are looked after before others get a turn. Each may send 48 datagrams.
const PEERS_PER_TURN: usize = 32;
/// The longest datagram of the protocol, and some more so that longer ones are noticed.
const DATAGRAM_BYTES_MAX: usize = 2_048;
/// A session is not looked after more often than this when nothing comes: its pace is finer than a timer.
const TURN_MIN: Duration = Duration::from_millis(1);

/// Opens the door. It stays open until the gateway closes its doors and the last session has ended.
pub(crate) fn open(door: Arc<Door>, address: SocketAddr, options: &LinkOptions) -> io::Result<SocketAddr> {
    let socket = Arc::new(DatagramSocket::bind(address)?);
    let address = socket.local_addr()?;
    let addresses = if options.public_addresses.is_empty() { vec![address] } else { options.public_addresses.clone() };
    let netcode = ServerOptions::new(options.protocol_id, Key::new(options.private_key), addresses);
    let mut is_random = Ok(());
    let handshake = ServerHandshake::new(netcode, &mut |bytes| is_random = getrandom::fill(bytes));
    is_random.map_err(io::Error::other)?;
    let closing = door.closing();
    let post = Post {
        door,
        socket,
        handshake,
        sessions: Arc::new(patient_session_options()),
        peers: HashMap::new(),
        clients: HashMap::new(),
        agenda: Agenda::default(),
        wake: Arc::default(),
        awake: Vec::new(),
        turns: Vec::new(),
        stopped: HashSet::new(),
        datagram: Vec::new(),
        closing,
    };
    tokio::spawn(post.run());
    Ok(address)
}

struct Post {
    door: Arc<Door>,
    socket: Arc<DatagramSocket>,
    handshake: ServerHandshake,
    sessions: Arc<SessionOptions>,
    /// Hashed with the standard library's keyed hash: peers choose their addresses.
    peers: HashMap<SocketAddr, Peer>,
    /// Clients that are connected, by the number in their token: from where, and when the token expires.
    clients: HashMap<u64, (SocketAddr, u64)>,
    agenda: Agenda,
    wake: Arc<WakeList>,
    /// Peers that have something to do now.
    awake: Vec<SocketAddr>,
    /// Those of them whose turn has come.
    turns: Vec<SocketAddr>,
    /// Peers that had more to send than the kernel had room for.
    stopped: HashSet<SocketAddr>,
    /// What is to be sent, while it is written.
    datagram: Vec<u8>,
    closing: watch::Receiver<bool>,
}

impl Post {
    async fn run(mut self) {
        let mut datagram = [0; DATAGRAM_BYTES_MAX];
        let mut closing = self.closing.clone();
        let (wake, socket) = (Arc::clone(&self.wake), Arc::clone(&self.socket));
        let mut alarm = pin!(sleep_until(Instant::now()));
        while !self.is_over() {
            let first = self.agenda.first().map(|time| Instant::from_std(self.door.instant(time)));
            if let Some(first) = first.filter(|&first| first != alarm.deadline()) {
                alarm.as_mut().reset(first);
            }
            tokio::select! {
                received = socket.recv_from(&mut datagram) => {
                    if let Ok((bytes, from)) = received {
                        self.handle(from, &mut datagram[..bytes]);
                        self.handle_more(&mut datagram);
                    }
                }
                () = wake.wait() => {}
                () = &mut alarm, if first.is_some() => {}
                _ = closing.changed(), if !*self.closing.borrow() => {}
                () = socket.drained(), if !socket.has_room() => self.awake.extend(self.stopped.drain()),
                // Others of the runtime, and what comes meanwhile, are not kept waiting by those who are awake.
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

    fn handle_more(&mut self, datagram: &mut [u8]) {
        for _ in 1..DATAGRAMS_PER_TURN {
            let Ok((bytes, from)) = self.socket.try_recv_from(datagram) else { return };
            self.handle(from, &mut datagram[..bytes]);
        }
    }

    fn handle(&mut self, from: SocketAddr, datagram: &mut [u8]) {
        let is_for_door = datagram.first() == Some(&0)
            || (throng_link::netcode::is_response(datagram) && self.handshake.is_pending(from));
        if let Some(peer) = self.peers.get_mut(&from).filter(|_| !is_for_door) {
            if !peer.handle(self.door.now(), datagram) {
                self.door.counters().refuse(Reason::TooFast);
            }
            return self.awake.push(from);
        }
        if *self.closing.borrow() {
            return;
        }
        let now = Now { unix_s: unix_s(), time: self.door.now() };
        let clients = &self.clients;
        let held = |client| clients.get(&client).map(|&(_, expire_unix_s)| Held { seat: 0, expire_unix_s });
        let seats = Seats { free: Some(0), max_clients: 1, held: &held };
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
        let datagrams = DatagramQueue::new(from, Arc::clone(&self.wake));
        let movement = Movement::new(Arc::clone(&datagrams));
        tokio::spawn(serve(pass, (packets_in, packets_out), datagrams, Arc::clone(&self.wake)));
        self.forget(from);
        let place = (from, accepted.expire_unix_s);
        if let Some((old, _)) = self.clients.insert(accepted.client_id, place)
            && let Some(peer) = self.peers.get_mut(&old)
        {
            peer.close_replaced(self.door.now());
            self.awake.push(old);
        }
        self.peers.insert(from, Peer::new(accepted, from, session, (inbound, outbound), movement));
        self.awake.push(from);
        true
    }

    /// Somebody else has proved this address: whoever had it is gone.
    fn forget(&mut self, address: SocketAddr) {
        if let Some(mut peer) = self.peers.remove(&address) {
            self.agenda.cancel(address, &mut peer.appointed);
            self.stopped.remove(&address);
            self.release(peer.client_id, address);
        }
    }

    /// The client of a connection that is over may come again, unless it has done so already.
    fn release(&mut self, client_id: u64, address: SocketAddr) {
        if self.clients.get(&client_id).is_some_and(|&(from, _)| from == address) {
            self.clients.remove(&client_id);
        }
    }

    /// Those whose deadlines have passed have something to do.
    fn wake_due(&mut self) {
        let now = self.door.now();
        while let Some(address) = self.agenda.take_due(now) {
            if let Some(peer) = self.peers.get_mut(&address) {
                peer.appointed = None;
                self.awake.push(address);
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
            let Some(address) = self.turns.pop() else { return };
            self.turn(address);
        }
    }

    fn turn(&mut self, address: SocketAddr) {
        let Some(peer) = self.peers.get_mut(&address) else { return };
        let now = self.door.now();
        let goes_on = peer.turn(now, &self.socket, &mut self.datagram);
        if !self.socket.has_room() {
            self.stopped.insert(address);
        }
        // What went through the connection's task was counted there.
        let written = peer.take_written();
        self.door.counters().count_sent(written.sections, written.bytes);
        if goes_on {
            if let Some(deadline) = peer.next_deadline(now) {
                self.agenda.appoint(address, &mut peer.appointed, deadline.max(now.after(TURN_MIN)));
            }
            return;
        }
        self.forget(address);
    }
}

fn unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The life of a connection.
async fn serve(
    pass: Pass,
    (packets_in, packets_out): (Receiver<Bytes>, Sender<Packet>),
    datagrams: Arc<DatagramQueue>,
    wake: Arc<WakeList>,
) {
    let address = pass.address;
    let Some(opened) = pass.open().await else { return wake.add(address) };
    let door = Arc::clone(&opened.pass.door);
    datagrams.introduce(door.events().clone(), opened.key);
    opened.queue.set_datagrams(datagrams);
    {
        let (queue, manner) = (Arc::clone(&opened.queue), Arc::clone(&opened.manner));
        let out = Out { queue, manner, counters: door.counters() };
        let read = pin!(read(packets_in, opened.intake(), &wake, address));
        let write = pin!(write(packets_out, out, &wake, address));
        Opened::run(opened, read, write).await;
    }
    wake.add(address);
}

async fn read(mut packets: Receiver<Bytes>, mut intake: Intake, wake: &WakeList, address: SocketAddr) -> End {
    while let Some(packet) = packets.recv().await {
        // There is room again for what the session may hold.
        wake.add(address);
        if let Err(end) = intake.take_payload(packet).await {
            return end;
        }
    }
    End::PeerClosed
}

/// What is queued counts as written when it has arrived: see [`Queue`](super::outbox::Queue).
async fn write(packets_out: Sender<Packet>, out: Out<'_>, wake: &WakeList, address: SocketAddr) -> End {
    while let Some(entries) = out.queue.next().await {
        let mut packets = Packets::new(&entries, frame::MAX_PAYLOAD_BYTES);
        let mut left = entries.len();
        while let Some(packet) = packets.next() {
            let entry_bytes = left - packets.rest().len();
            if packets_out.send(Packet::Entries(Bytes::copy_from_slice(packet), entry_bytes)).await.is_err() {
                return End::Lost;
            }
            wake.add(address);
            out.counters.count_sent(1, packet.len());
            left = packets.rest().len();
        }
        out.counters.count_dropped(packets.dropped());
        if left > 0 {
            if packets_out.send(Packet::Dropped(left)).await.is_err() {
                return End::Lost;
            }
            wake.add(address);
        }
    }
    // The session ends once all is delivered, and the queue with it.
    if packets_out.send(Packet::End).await.is_ok() {
        wake.add(address);
        packets_out.closed().await;
    }
    End::Done
}

/// The client asks first whether the other is there; while it does, the gateway need not.
fn patient_session_options() -> SessionOptions {
    let options = session_options();
    SessionOptions { keep_alive_interval: options.keep_alive_interval * 3 / 2, ..options }
}
