//! One client of the link: a sealed session, and the two queues between it and the connection's own task.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use throng_link::netcode::{Accepted, DropReason, Held, Movable, Moves, PacketKind, RationedOpener, Sealer};
use throng_link::session::{CloseCode, CloseReason, Rest, Session};
use throng_wire::{Tick, Time};
use tokio::sync::mpsc::error::{TryRecvError, TrySendError};
use tokio::sync::mpsc::{Receiver, Sender};

use throng_channeld::link::LANE;

use super::super::memory::Holding;
use super::super::udp::Outlet;
use super::movement::{Movement, Written};

/// Seats of one door. A client names its own when its address has changed.
pub(super) const SEATS_MAX: u32 = 1 << 20;

/// Bytes that the session is given before the peer has taken what it was sent: what the fastest path takes in a round
/// trip. They count as queued until they have arrived, so a client that reads slowly stops getting state long before.
const SESSION_BYTES: usize = 256 << 10;
/// Datagrams that one peer sends before others get a turn.
pub(super) const DATAGRAMS_PER_TURN: usize = 48;
/// Datagrams of one client that are opened in a second, and at once. A client that sends at the link's full rate sends
/// fewer.
const CLIENT_PACKETS_PER_S: u32 = 2_000;
/// How long messages of a client are read after it has left. It comes no faster than its limits allow.
const LEAVING_MAX: Duration = Duration::from_secs(5);
/// Movement that the path has no room for now is looked at again after this time.
const MOVEMENT_RETRY: Duration = Duration::from_millis(10);

/// The data of a connection's task for the reliable lane.
pub(super) enum Packet {
    /// A packet of the protocol, and of how many bytes of the engine's entries it and those that had to be dropped before
    /// it are made.
    Entries(Bytes, usize),
    /// This many bytes of entries had to be dropped.
    Dropped(usize),
    /// Nothing more will come.
    End,
}

/// A packet of a client for its connection's task.
pub(super) struct Received {
    pub(super) packet: Bytes,
    /// Its memory, until the task has it.
    _holding: Holding,
}

impl Received {
    fn new(session: &Holding, packet: Bytes) -> Received {
        Received { _holding: session.of(packet.len()), packet }
    }
}

/// One client.
pub(super) struct Peer {
    pub(super) client_id: u64,
    /// When it is to be looked after at the latest: see [`Agenda`](super::agenda::Agenda).
    pub(super) appointed: Option<Time>,
    /// The number by which the client names its connection when its address has changed.
    pub(super) seat: u32,
    /// When its token expires.
    expire_unix_s: u64,
    pub(super) address: SocketAddr,
    /// The changes of its address.
    moves: Moves,
    session: Session,
    /// Memory of what the session has received and the task has not.
    received: Holding,
    sealer: Sealer,
    opener: RationedOpener,
    /// Packets for the connection's task. `None` once nothing more will come.
    inbound: Option<Sender<Received>>,
    /// A packet that the task had no room for. While it waits, no more are taken from the session.
    held_up: Option<Received>,
    /// Packets from the connection's task.
    outbound: Receiver<Packet>,
    movement: Movement,
    /// Which room the next movement needs, when there is some.
    rest: Rest,
    /// Its last turn was over before it had sent everything.
    has_more: bool,
    /// Nothing more comes from the task.
    is_finished: bool,
    /// It has said that itself, and not been cut off.
    has_said_all: bool,
    /// The client does not know yet that it is connected.
    is_keep_alive_due: bool,
    has_left: bool,
    /// Since when it is over, if it is.
    over_since: Option<Time>,
}

impl Peer {
    pub(super) fn new(
        accepted: Accepted,
        (address, now): (SocketAddr, Time),
        (mut session, received): (Session, Holding),
        (inbound, outbound): (Sender<Received>, Receiver<Packet>),
        movement: Movement,
    ) -> Peer {
        // A client answers once per frame of its game: a shorter round trip would only be sent to too early.
        session.follow_handshake(accepted.round_trip.max(Duration::from_millis(100)), accepted.timeout);
        Peer {
            client_id: accepted.client_id,
            appointed: None,
            seat: accepted.client_index,
            expire_unix_s: accepted.expire_unix_s,
            address,
            moves: Moves::default(),
            session,
            received,
            sealer: accepted.sealer,
            opener: RationedOpener::new(accepted.opener, CLIENT_PACKETS_PER_S, now),
            inbound: Some(inbound),
            held_up: None,
            outbound,
            movement,
            rest: Rest::Waiting,
            has_more: false,
            is_finished: false,
            has_said_all: false,
            is_keep_alive_due: false,
            has_left: false,
            over_since: None,
        }
    }

    /// The seat that the client holds.
    pub(super) fn held(&self) -> Held {
        Held { seat: self.seat, expire_unix_s: self.expire_unix_s }
    }

    /// The connection as far as a change of its address concerns it.
    pub(super) fn movable(&mut self) -> Movable<'_> {
        Movable {
            client_id: self.client_id,
            address: self.address,
            opener: self.opener.opener_mut(),
            sealer: &self.sealer,
            moves: &mut self.moves,
        }
    }

    /// The client has proved another address: what was learned of the former path is forgotten, and what is under way on it
    /// is sent again.
    pub(super) fn has_moved(&mut self, now: Time, round_trip: Duration) {
        self.session.on_new_path(now, Some(round_trip));
    }

    /// A newer connection of the same client has come: this one ends, and gets the reason.
    pub(super) fn close_replaced(&mut self, now: Time) {
        self.session
            .close(now, CloseReason::new(CloseCode::REPLACED, "replaced by a newer connection of the same client"));
    }

    /// A datagram has come from its address, to this machine at `arrived`. False if the task had no room for the movement
    /// in it.
    ///
    /// # Errors
    /// It is dropped, and has to be counted.
    fn handle(&mut self, (now, arrived): (Time, Time), datagram: &mut [u8]) -> Result<bool, DropReason> {
        if self.over_since.is_some() {
            return Ok(true);
        }
        let opened = self.opener.open(now, datagram)?;
        let mut has_room = true;
        match opened.kind {
            PacketKind::Payload => {
                match self.session.handle_packet_of(now, arrived, opened.sequence, opened.body) {
                    Ok(Some(packet)) => {
                        let entries = self.movement.read(opened.sequence, packet.rest);
                        // Movement that the task has no room for is lost, as on any other way.
                        if let (Some(entries), Some(inbound)) = (entries, &self.inbound) {
                            has_room = inbound
                                .try_send(Received::new(&self.received, Bytes::copy_from_slice(entries)))
                                .is_ok();
                        }
                    }
                    Ok(None) => {}
                    Err(error) => {
                        self.session.close(now, CloseReason::new(CloseCode::PROTOCOL, &error.to_string()));
                    }
                }
            }
            PacketKind::Response => self.is_keep_alive_due = true,
            PacketKind::Disconnect => self.has_left = true,
            _ => {}
        }
        Ok(has_room)
    }

    /// The same; answers at once if that cannot wait: many datagrams may have come at once.
    pub(super) fn hear(
        &mut self,
        (now, arrived): (Time, Time),
        datagram: &mut [u8],
        outlet: &mut Outlet,
    ) -> Result<bool, DropReason> {
        let has_room = self.handle((now, arrived), datagram)?;
        if self.is_answer_due() {
            self.answer(now, outlet);
        }
        Ok(has_room)
    }

    /// Whether the session has to answer before it takes more in.
    fn is_answer_due(&self) -> bool {
        self.over_since.is_none() && self.session.is_answer_due()
    }

    /// Sends one packet, with the acknowledgement that cannot wait for the next turn.
    fn answer(&mut self, now: Time, outlet: &mut Outlet) {
        outlet.put(|out| self.write(now, out, Rest::Empty));
        self.flush(now, outlet);
    }

    /// Whether it has more to send than one turn takes.
    pub(super) fn has_more(&self) -> bool {
        self.has_more
    }

    /// Does everything that can be done now. False once it has ended, and the task has what the client has said.
    pub(super) fn turn(&mut self, now: Time, outlet: &mut Outlet) -> bool {
        if self.over_since.is_none() {
            self.serve(now, outlet);
        }
        if !self.has_left && !self.session.is_closed() {
            return true;
        }
        if self.over_since.is_none() {
            self.over_since = Some(now);
            self.say_good_bye(now, outlet);
        }
        self.is_leaving(now)
    }

    fn serve(&mut self, now: Time, outlet: &mut Outlet) {
        self.session.handle_timeout(now);
        while let Some((sequence, delivery)) = self.session.poll_delivery() {
            self.movement.on_verdict(sequence, delivery);
        }
        self.movement.settle(self.session.first_undelivered(LANE));
        self.movement.tell();
        while self.session.poll_input().is_some() {}
        self.take_in();
        self.received.set_about(self.session.received_message_bytes());
        self.give_out();
        self.end_with_task(now);
        self.transmit(now, outlet);
    }

    /// Ends the session when the task has nothing more to say and all of it has arrived. The task waits for that as long
    /// as the last bytes of a connection may take. If it has ended, what has not arrived never will.
    fn end_with_task(&mut self, now: Time) {
        if self.session.is_closing() {
            return;
        }
        if self.has_said_all && self.session.pending_message_bytes() == 0 {
            self.session.close(now, CloseReason::new(CloseCode::DONE, ""));
        } else if self.outbound.is_closed() {
            self.session.close(now, CloseReason::new(CloseCode::OVERLOADED, "cut off: messages may be lost"));
        }
    }

    /// Whether the task has not taken everything that came before the end. Then it ends too, unless it has ended the
    /// session itself.
    fn is_leaving(&mut self, now: Time) -> bool {
        self.take_in();
        if self.held_up.is_none() {
            self.inbound = None;
        }
        while !self.is_finished {
            match self.outbound.try_recv() {
                Err(TryRecvError::Empty) => break,
                Ok(Packet::End) | Err(TryRecvError::Disconnected) => self.is_finished = true,
                Ok(_) => {}
            }
        }
        !self.is_finished && self.over_since.is_some_and(|since| now.since(since) < LEAVING_MAX)
    }

    /// The movement that was sent since the last call.
    pub(super) fn take_written(&mut self) -> Written {
        self.movement.take_written()
    }

    /// When [`Peer::turn`] has something to do, if nothing happens before.
    pub(super) fn next_deadline(&self, now: Time) -> Option<Time> {
        if let Some(since) = self.over_since {
            return Some(since.after(LEAVING_MAX));
        }
        let movement = self.movement.has_waiting().then(|| now.after(MOVEMENT_RETRY));
        self.session.next_deadline().into_iter().chain(movement).min()
    }

    /// Tells the client that it has ended.
    fn say_good_bye(&mut self, now: Time, outlet: &mut Outlet) {
        let mut datagram = Vec::new();
        if self.sealer.seal_disconnect(&mut datagram).is_ok() {
            outlet.send(now, &datagram, self.address);
        }
    }

    /// From the session to the task, as far as that has room.
    fn take_in(&mut self) {
        loop {
            let mut polled =
                || self.session.poll_message().map(|(_, message)| Received::new(&self.received, message.into()));
            let Some(packet) = self.held_up.take().or_else(&mut polled) else { return };
            match self.inbound.as_ref().map(|inbound| inbound.try_send(packet)) {
                Some(Ok(())) => {}
                Some(Err(TrySendError::Full(packet))) => return self.held_up = Some(packet),
                // The task has ended, so the connection will: what still comes has nowhere to go.
                Some(Err(TrySendError::Closed(_))) | None => self.inbound = None,
            }
        }
    }

    /// From the task to the session, as far as that has room.
    fn give_out(&mut self) {
        while !self.is_finished && self.session.pending_message_bytes() < SESSION_BYTES {
            match self.outbound.try_recv() {
                // It is shorter than the lane's limit, and the lane has room for more than the session is given.
                Ok(Packet::Entries(packet, entry_bytes)) => match self.session.send(LANE, &packet) {
                    Ok(_) => self.movement.handed(entry_bytes),
                    Err(_) => self.movement.skipped(entry_bytes),
                },
                Ok(Packet::Dropped(entry_bytes)) => self.movement.skipped(entry_bytes),
                Err(TryRecvError::Empty) => return,
                Ok(Packet::End) => (self.is_finished, self.has_said_all) = (true, true),
                Err(TryRecvError::Disconnected) => self.is_finished = true,
            }
        }
    }

    fn transmit(&mut self, now: Time, outlet: &mut Outlet) {
        if std::mem::take(&mut self.is_keep_alive_due) {
            let mut datagram = Vec::new();
            if self.sealer.seal_keep_alive(self.seat, SEATS_MAX, &mut datagram).is_ok() {
                outlet.send(now, &datagram, self.address);
            }
        }
        self.has_more = self.write_packets(now, outlet);
        self.flush(now, outlet);
    }

    /// Writes packets as far as this turn goes. Whether it has more.
    fn write_packets(&mut self, now: Time, outlet: &mut Outlet) -> bool {
        for _ in 0..DATAGRAMS_PER_TURN {
            if outlet.is_full() {
                self.flush(now, outlet);
            }
            // A packet is only made if the kernel has room for it: otherwise it would count as sent.
            if !outlet.has_room() {
                return false;
            }
            let rest = if self.movement.has_waiting() { self.rest } else { Rest::Empty };
            if !outlet.put(|out| self.write(now, out, rest)) {
                return false;
            }
        }
        true
    }

    /// Appends a sealed packet, if one is due.
    fn write(&mut self, now: Time, out: &mut Vec<u8>, rest: Rest) -> bool {
        let start = out.len();
        let Some(plan) = self.session.poll_packet(now, self.sealer.envelope(0), rest) else { return false };
        let takes_rest = plan.takes_rest() && rest != Rest::Empty;
        let mut packet = plan.begin(Tick(0), out);
        if takes_rest {
            let sequence = packet.sequence();
            let (out, end) = packet.rest();
            let is_written = self.movement.write(sequence, end, out);
            // Entries that did not fit beside the messages get a separate packet.
            self.rest = if is_written || !self.movement.has_waiting() { Rest::Waiting } else { Rest::Large };
        }
        packet.finish();
        // If the connection has used up its sequence numbers, it ends.
        let is_sealed = self.sealer.seal_payload(&mut out[start..]).is_ok();
        self.has_left |= !is_sealed;
        is_sealed
    }

    /// Sends the packets that were written.
    fn flush(&mut self, now: Time, outlet: &mut Outlet) {
        if let Some(bytes) = outlet.flush(now, self.address) {
            self.session.handle_too_large(now, bytes);
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::net::UdpSocket;
    use std::sync::Arc;

    use throng_channeld::link::session_options;
    use throng_link::netcode::{
        Admission, ClientHandshake, ClientOutcome, ConnectToken, ConnectTokenOptions, Connected, Key, Now, Outcome,
        Seats, ServerHandshake, ServerOptions, Suite, USER_DATA_LEN,
    };
    use throng_link::session::SessionOptions;
    use tokio::sync::mpsc::channel;

    use super::super::super::door::Door;
    use super::super::super::memory::{Memory, Part};
    use super::super::super::udp::DatagramSocket;
    use super::*;
    use crate::serve::datagrams::{DatagramQueue, PeerId};
    use throng_gateway_engine::port::Side;

    /// Both ends of what the door accepts for a client at this address.
    fn accepted(client: SocketAddr) -> (Accepted, Connected) {
        let (server, key) = (SocketAddr::from(([127, 0, 0, 1], 9)), Key::new([7; 32]));
        let mut rng = fastrand::Rng::with_seed(7);
        let mut random = |bytes: &mut [u8]| rng.fill(bytes);
        let options = ConnectTokenOptions {
            protocol_id: 1,
            client_id: 1,
            create_unix_s: 1,
            expire_unix_s: 100,
            suite: Suite::default(),
            timeout_s: 10,
            servers: vec![server],
            user_data: [0; USER_DATA_LEN],
        };
        let token = ConnectToken::generate(&options, &key, &mut random).expect("good options");
        let mut door = ServerHandshake::new(ServerOptions::new(1, key, vec![server]), &mut random);
        let mut handshake = ClientHandshake::new(token, Time(0));
        let seats = Seats { free: Some(0), max_clients: 1, held: &|_| None, admission: &|| Admission::Granted };
        let (mut datagram, mut reply) = (Vec::new(), Vec::new());
        loop {
            handshake.poll_transmit(Time(0), &mut datagram).expect("a packet is due");
            let now = Now { unix_s: 2, time: Time(0) };
            if let Outcome::Accept(mut accepted) = door.handle(now, client, &mut datagram, &seats, &mut reply) {
                accepted.sealer.seal_keep_alive(0, 1, &mut reply).expect("its first packet");
                let ClientOutcome::Connected(connected) = handshake.handle(Time(0), server, &mut reply) else {
                    panic!("it knows the server's keys")
                };
                return (*accepted, *connected);
            }
            handshake.handle(Time(0), server, &mut reply);
        }
    }

    /// A peer, and what is at the other ends of it.
    pub(in crate::serve::link) struct Served {
        pub(in crate::serve::link) peer: Peer,
        pub(in crate::serve::link) client: Option<Connected>,
        pub(in crate::serve::link) from_peer: Receiver<Received>,
        pub(in crate::serve::link) to_peer: Sender<Packet>,
        pub(in crate::serve::link) datagrams: Arc<DatagramQueue>,
    }

    impl Peer {
        /// Datagrams that its session has sent.
        pub(in crate::serve::link) fn packets_sent(&self) -> u64 {
            self.session.statistics().counters.packets_sent
        }
    }

    /// A peer at `client` on a path that takes everything.
    pub(in crate::serve::link) fn peer(client: SocketAddr) -> Served {
        let rate_bytes_per_s = 1_000_000_000;
        let options = SessionOptions {
            rate_bytes_per_s,
            initial_rate_bytes_per_s: rate_bytes_per_s,
            max_in_flight: 1_024,
            ..session_options()
        };
        let session = Session::new(Arc::new(options), Time(0)).expect("good options");
        let memory: Arc<Memory> = Arc::clone(Door::alone(Side::Client).memory());
        let (inbound, from_peer) = channel(16);
        let (to_peer, outbound) = channel(16);
        let datagrams = DatagramQueue::new(PeerId(1), Arc::default(), Holding::new(&memory, Part::Queues, 0));
        let received = Holding::new(&memory, Part::Inbound, 0);
        let ends = (inbound, outbound);
        let (accepted, connected) = accepted(client);
        let movement = Movement::new(Arc::clone(&datagrams));
        let peer = Peer::new(accepted, (client, Time(0)), (session, received), ends, movement);
        Served { peer, client: Some(connected), from_peer, to_peer, datagrams }
    }

    /// Datagrams that have come.
    fn arrived(client: &UdpSocket) -> usize {
        let mut bytes = [0; 2_000];
        std::iter::from_fn(|| client.recv(&mut bytes).ok()).count()
    }

    #[tokio::test]
    async fn a_turn_and_an_early_answer_send_no_more_than_their_share() {
        let client = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        client.set_nonblocking(true).expect("it can be set");
        let (socket, inbox) = DatagramSocket::bind(([127, 0, 0, 1], 0).into(), 1).expect("a free port");
        let mut outlet = inbox.outlet(&Arc::new(socket)).expect("one more handle");
        let Served { mut peer, to_peer, .. } = peer(client.local_addr().expect("bound"));
        // More than it may send at once.
        for _ in 0..5 {
            let packet = Packet::Entries(vec![7; 60_000].into(), 60_000);
            to_peer.try_send(packet).unwrap_or_else(|_| panic!("there is room"));
        }
        assert!(peer.turn(Time(1_000), &mut outlet));
        assert_eq!((arrived(&client), peer.has_more()), (DATAGRAMS_PER_TURN, true));
        let calls = outlet.calls();
        assert!(calls <= DATAGRAMS_PER_TURN as u64 / 8, "{calls} calls");
        peer.answer(Time(2_000), &mut outlet);
        assert_eq!(arrived(&client), 1);
        // The interface takes no datagram that is longer than any of UDP.
        let before = peer.session.statistics().datagram_bytes;
        outlet.put(|out| {
            out.resize(70_000, 7);
            true
        });
        peer.flush(Time(3_000), &mut outlet);
        assert!(peer.session.statistics().datagram_bytes < before, "the session was told");
    }

    #[test]
    fn packets_that_come_faster_than_a_client_sends_are_not_opened() {
        let mut peer = peer(([127, 0, 0, 1], 9).into()).peer;
        let mut forge = |ms: u64| peer.handle((Time(ms * 1_000), Time(ms * 1_000)), &mut [[0x15; 60]].concat()).err();
        let opened = (0..100_000).take_while(|_| forge(0) == Some(DropReason::NotAuthentic)).count();
        assert!(opened >= CLIENT_PACKETS_PER_S as usize && opened <= 20_000, "{opened} were opened");
        assert_eq!(forge(0), Some(DropReason::TooManyPackets));
        assert_eq!(forge(100), Some(DropReason::NotAuthentic), "a while later");
    }
}
