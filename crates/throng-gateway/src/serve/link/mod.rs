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
//! Then it serves only the sessions that this concerns, and [threads](crew) help with many: silent sessions cost only
//! their own deadlines, and a flood of datagrams delays no session's deadlines. [Strangers](knock) come last.

mod agenda;
mod crew;
#[cfg(test)]
mod fresher;
mod knock;
mod movement;
mod peer;
mod table;

use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;
use std::num::NonZero;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use throng_channeld::link::session_options;
use throng_channeld::{Packets, frame};
use throng_gateway_engine::Helpers;
use throng_link::netcode::{Door as Entrance, DropReason, Key, NetcodeCounters, ServerHandshake, ServerOptions};
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
use super::helpers;
use super::intake::Intake;
use super::life::{Opened, Pass};
use super::options::LinkOptions;
use super::stream::Out;
use super::udp::{self, DatagramSocket, Inbox};
use super::wake::WakeList;
use agenda::Agenda;
use crew::Crew;
use peer::{Packet, Peer, Received};
use table::Peers;

/// No datagram of the protocol is as long.
const DATAGRAM_BYTES_MAX: usize = 2_048;
/// Peers that the task looks after by itself before others get a turn, and those that each thread does. Each sends
/// [`DATAGRAMS_PER_TURN`](peer::DATAGRAMS_PER_TURN) at most.
const PEERS_PER_TURN: usize = 32;
const PEERS_PER_THREAD_AND_TURN: usize = 64;
/// Buffers for datagrams that are kept for each thread: as many as come at once, as a rule.
const SPARE_PER_THREAD: usize = 2 * udp::DATAGRAMS_PER_TURN;
/// A session is not looked after more often than this when nothing comes: its pace is finer than a timer.
const TURN_MIN: Duration = Duration::from_millis(1);

/// Opens the door. It stays open until the gateway closes its doors and the last session has ended.
pub(crate) fn open(door: Arc<Door>, address: SocketAddr, options: &LinkOptions) -> io::Result<SocketAddr> {
    // The task of the door waits for all of them: more than there are cores would make it wait longer.
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    let helpers = helpers::at_most(udp::SENDERS_MAX.min(cores), options.threads).map_err(io::Error::other)?;
    let (socket, inbox) = DatagramSocket::bind(address, helpers.count() + 1)?;
    let address = socket.local_addr()?;
    tokio::spawn(Post::new(door, (socket, &inbox), options, helpers)?.run(inbox));
    Ok(address)
}

/// A datagram of a connection that waits to be opened.
struct Heard {
    from: PeerId,
    arrived: Time,
    bytes: Vec<u8>,
}

/// A peer that was taken out of the table, with the datagrams that have come from it.
struct Hearing<'a> {
    id: PeerId,
    peer: Box<Peer>,
    heard: &'a mut [Heard],
    /// One of them was really from it.
    has_news: bool,
}

/// A peer that was taken out of the table for its turn.
struct Turn {
    id: PeerId,
    peer: Box<Peer>,
    goes_on: bool,
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
    crew: Crew,
    /// Datagrams of connections that were just received.
    heard: Vec<Heard>,
    /// Buffers for more of them.
    spare: Vec<Vec<u8>>,
    /// The peers whose turn it is, while they are out of the table.
    lent: Vec<Turn>,
    closing: watch::Receiver<bool>,
}

impl Post {
    fn new(
        door: Arc<Door>,
        (socket, inbox): (DatagramSocket, &Inbox),
        options: &LinkOptions,
        helpers: Box<dyn Helpers>,
    ) -> io::Result<Post> {
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
        let socket = Arc::new(socket);
        let crew = Crew::new(helpers, &socket, inbox)?;
        Ok(Post {
            closing: door.closing(),
            door,
            socket,
            entrance: Entrance::new(handshake),
            sessions: Arc::new(sessions),
            peers: Peers::default(),
            agenda: Agenda::default(),
            wake: Arc::default(),
            awake: Vec::new(),
            turns: Vec::new(),
            stopped: HashSet::new(),
            crew,
            heard: Vec::new(),
            spare: Vec::new(),
            lent: Vec::new(),
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
            self.hear();
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
            return self.entrance.counters_mut().drop(DropReason::BodyLength);
        }
        match self.entrance.owner_of(from, datagram) {
            Some(from) => {
                let mut bytes = self.spare.pop().unwrap_or_default();
                bytes.extend_from_slice(datagram);
                self.heard.push(Heard { from, arrived, bytes });
            }
            None => self.entrance.keep(from, datagram),
        }
    }

    /// Hands the datagrams of connections to their sessions, those of each in the order in which they came.
    fn hear(&mut self) {
        if self.heard.is_empty() {
            return;
        }
        self.heard.sort_by_key(|heard| heard.from);
        let mut hearings = Vec::with_capacity(self.heard.len());
        for heard in self.heard.chunk_by_mut(|one, next| one.from == next.from) {
            let id = heard[0].from;
            match self.peers.lend(id) {
                Some(peer) => hearings.push(Hearing { id, peer, heard, has_news: false }),
                None => heard.iter().for_each(|_| self.entrance.counters_mut().drop(DropReason::UnknownAddress)),
            }
        }
        let door = &self.door;
        self.crew.share(&mut hearings, |hand, Hearing { peer, heard, has_news, .. }| {
            let now = door.now();
            for Heard { arrived, bytes, .. } in heard.iter_mut() {
                match peer.hear((now, *arrived), bytes, &mut hand.outlet) {
                    Ok(has_room) => {
                        *has_news = true;
                        hand.too_fast += usize::from(!has_room);
                    }
                    Err(reason) => hand.dropped.push(reason),
                }
            }
        });
        for Hearing { id, peer, has_news, .. } in hearings {
            self.peers.give_back(id, peer);
            if has_news {
                self.awake.push(id);
            }
        }
        for Heard { mut bytes, .. } in self.heard.drain(..) {
            bytes.clear();
            self.spare.push(bytes);
        }
        self.spare.truncate(SPARE_PER_THREAD * self.crew.len());
    }

    /// Adds to the counters what has become of datagrams.
    fn tell_outcomes(&mut self) {
        for hand in self.crew.hands() {
            hand.dropped.drain(..).for_each(|reason| self.entrance.counters_mut().drop(reason));
            (0..std::mem::take(&mut hand.too_fast)).for_each(|_| self.door.counters().refuse(Reason::TooFast));
        }
        let outcomes = std::mem::take(self.entrance.counters_mut());
        if outcomes != NetcodeCounters::default() {
            self.door.counters().note_link(&outcomes);
        }
    }

    fn forget(&mut self, id: PeerId) {
        if let Some(mut peer) = self.peers.remove(id) {
            self.entrance.forget(id, peer.address);
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
        let most = match self.crew.len() {
            1 => PEERS_PER_TURN,
            threads => PEERS_PER_THREAD_AND_TURN * threads,
        };
        let left = self.turns.len().saturating_sub(most);
        let mut turns = std::mem::take(&mut self.lent);
        turns.extend(self.turns.drain(left..).filter_map(|id| {
            let peer = self.peers.lend(id)?;
            Some(Turn { id, peer, goes_on: true })
        }));
        // A turn begins when its thread comes to it: packets are stamped with the time at which they are sent.
        let door = &self.door;
        self.crew.share(&mut turns, |hand, turn| turn.goes_on = turn.peer.turn(door.now(), &mut hand.outlet));
        let now = self.door.now();
        turns.drain(..).for_each(|turn| self.end_turn(now, turn));
        self.lent = turns;
    }

    /// Notes what a peer's turn has come to.
    fn end_turn(&mut self, now: Time, Turn { id, mut peer, goes_on }: Turn) {
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
        }
        self.peers.give_back(id, peer);
        if !goes_on {
            self.forget(id);
        }
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
    use throng_gateway_engine::Alone;
    use throng_gateway_engine::port::Side;
    use throng_link::session::{Rest, Session};
    use throng_wire::Tick;

    use super::*;
    use peer::tests::{Served, peer};

    /// A door that looks at nothing by itself.
    fn post(helpers: Box<dyn Helpers>) -> Post {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let (socket, inbox) = DatagramSocket::bind(any, 1).expect("a free port");
        let options = LinkOptions::new([7; 32]);
        Post::new(Door::alone(Side::Client), (socket, &inbox), &options, helpers).expect("it opens")
    }

    #[tokio::test]
    async fn strangers_wait_until_connections_were_served_and_for_each_other() {
        let mut post = post(Box::new(Alone));
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

    #[tokio::test]
    async fn a_peer_with_more_than_a_turn_takes_goes_on_and_waits_while_the_kernel_is_full() {
        let mut post = post(Box::new(Alone));
        let client = std::net::UdpSocket::bind("127.0.0.1:0").expect("a free port");
        let Served { peer, to_peer, .. } = peer(client.local_addr().expect("bound"));
        for _ in 0..5 {
            let packet = Packet::Entries(vec![7; 60_000].into(), 60_000);
            to_peer.try_send(packet).unwrap_or_else(|_| panic!("there is room"));
        }
        let id = PeerId(1);
        post.peers.insert(id, peer);
        post.socket.fill();
        post.awake.push(id);
        post.turn_awake();
        assert!(!post.is_busy() && post.stopped.contains(&id), "it goes on when there is room");
        assert_eq!(post.crew.own().outlet.calls(), 0);
        post.socket.drained().await;
        post.awake.extend(post.stopped.drain());
        post.turn_awake();
        assert!(post.is_busy() && post.stopped.is_empty(), "it has more, and nothing has to happen for its next turn");
        let calls = post.crew.own().outlet.calls();
        post.turn_awake();
        assert!(calls > 0 && post.crew.own().outlet.calls() > calls);
    }

    #[tokio::test]
    async fn datagrams_of_many_are_heard_in_the_order_in_which_those_of_each_came() {
        const PEERS: u64 = 200;
        const SAID: u64 = 5;
        let mut post = post(helpers::at_most(3, 3).expect("there are threads"));
        let client = std::net::UdpSocket::bind("127.0.0.1:0").expect("a free port");
        let address = client.local_addr().expect("bound");
        let mut ends = Vec::new();
        for id in (1..=PEERS).map(PeerId) {
            let Served { peer, client, from_peer, to_peer, .. } = peer(address);
            let session = Session::new(Arc::new(session_options()), Time(0)).expect("good options");
            post.peers.insert(id, peer);
            let client = client.expect("it has just connected");
            ends.push((id, client, session, from_peer, to_peer));
        }
        for said in 1..=SAID {
            for (from, client, session, ..) in &mut ends {
                let (now, mut bytes) = (Time(said * 1_000), Vec::new());
                session.send(throng_channeld::link::LANE, &[from.0 as u8, said as u8]).expect("there is room");
                let plan = session.poll_packet(now, client.sealer.envelope(0), Rest::Empty).expect("it may send");
                plan.begin(Tick(0), &mut bytes).finish();
                client.sealer.seal_payload(&mut bytes).expect("it fits");
                post.heard.push(Heard { from: *from, arrived: now, bytes });
            }
        }
        // Nobody has sealed this one, and the other one's sender is gone.
        post.heard.push(Heard { from: PeerId(7), arrived: Time(0), bytes: vec![0x15; 60] });
        post.heard.push(Heard { from: PeerId(PEERS + 1), arrived: Time(0), bytes: vec![0x15; 60] });
        post.hear();
        assert_eq!(post.awake.len(), PEERS as usize);
        while post.is_busy() {
            post.turn_awake();
        }
        post.tell_outcomes();
        let outcomes = post.door.counters().link();
        assert_eq!((outcomes.dropped_total(), outcomes.dropped(DropReason::UnknownAddress)), (2, 1));
        for (id, _, _, from_peer, _) in &mut ends {
            let heard: Vec<Bytes> = std::iter::from_fn(|| from_peer.try_recv().ok()).map(|it| it.packet).collect();
            assert_eq!(heard, [1, 2, 3, 4, 5].map(|said: u8| vec![id.0 as u8, said]));
        }
        post.heard.push(Heard { from: PeerId(7), arrived: Time(0), bytes: vec![0x15; 60] });
        post.hear();
        assert!(!post.is_busy(), "what others send in its name costs a client no turn");
    }
}
