//! One client of the link: a sealed session, and the two queues between it and the connection's own task.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use throng_link::netcode::{Accepted, Candidate, Held, Movable, Opener, PacketKind, Sealer};
use throng_link::session::{CloseCode, CloseReason, Rest, Session};
use throng_wire::{Tick, Time};
use tokio::sync::mpsc::error::{TryRecvError, TrySendError};
use tokio::sync::mpsc::{Receiver, Sender};

use throng_channeld::link::LANE;

use super::super::memory::Holding;
use super::super::udp::DatagramSocket;
use super::movement::{Movement, Written};
use super::table::SEATS_MAX;

/// Bytes that the session is given before the peer has taken what it was sent: what the fastest path takes in a round
/// trip. They count as queued until they have arrived, so a client that reads slowly stops getting state long before.
const SESSION_BYTES: usize = 256 << 10;
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
    /// Where the client may have gone.
    pub(super) candidate: Option<Candidate>,
    session: Session,
    /// Memory of what the session has received and the task has not.
    received: Holding,
    sealer: Sealer,
    opener: Opener,
    /// Packets for the connection's task. `None` once nothing more will come.
    inbound: Option<Sender<Received>>,
    /// A packet that the task had no room for. While it waits, no more are taken from the session.
    held_up: Option<Received>,
    /// Packets from the connection's task.
    outbound: Receiver<Packet>,
    movement: Movement,
    /// Which room the next movement needs, when there is some.
    rest: Rest,
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
        address: SocketAddr,
        (session, received): (Session, Holding),
        (inbound, outbound): (Sender<Received>, Receiver<Packet>),
        movement: Movement,
    ) -> Peer {
        Peer {
            client_id: accepted.client_id,
            appointed: None,
            seat: accepted.client_index,
            expire_unix_s: accepted.expire_unix_s,
            address,
            candidate: None,
            session,
            received,
            sealer: accepted.sealer,
            opener: accepted.opener,
            inbound: Some(inbound),
            held_up: None,
            outbound,
            movement,
            rest: Rest::Waiting,
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
            opener: &mut self.opener,
            sealer: &self.sealer,
            candidate: &mut self.candidate,
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

    /// A datagram has come from its address. False if the task had no room for the movement in it.
    pub(super) fn handle(&mut self, now: Time, datagram: &mut [u8]) -> bool {
        if self.over_since.is_some() {
            return true;
        }
        let Ok(opened) = self.opener.open(datagram) else { return true };
        let mut has_room = true;
        match opened.kind {
            PacketKind::Payload => {
                match self.session.handle_packet(now, opened.sequence, opened.body) {
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
        has_room
    }

    /// Whether the session has to answer before it takes more in.
    pub(super) fn is_answer_due(&self) -> bool {
        self.over_since.is_none() && self.session.is_answer_due()
    }

    /// Does everything that can be done now. False once it has ended, and the task has what the client has said.
    pub(super) fn turn(&mut self, now: Time, socket: &DatagramSocket, datagram: &mut Vec<u8>) -> bool {
        if self.over_since.is_none() {
            self.serve(now, socket, datagram);
        }
        if !self.has_left && !self.session.is_closed() {
            return true;
        }
        if self.over_since.is_none() {
            self.over_since = Some(now);
            self.say_good_bye(socket, datagram);
        }
        self.is_leaving(now)
    }

    fn serve(&mut self, now: Time, socket: &DatagramSocket, datagram: &mut Vec<u8>) {
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
        self.transmit(now, socket, datagram);
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
    fn say_good_bye(&mut self, socket: &DatagramSocket, datagram: &mut Vec<u8>) {
        datagram.clear();
        if self.sealer.seal_disconnect(datagram).is_ok() {
            socket.send_to(datagram, self.address);
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

    fn transmit(&mut self, now: Time, socket: &DatagramSocket, datagram: &mut Vec<u8>) {
        if std::mem::take(&mut self.is_keep_alive_due) {
            datagram.clear();
            if self.sealer.seal_keep_alive(self.seat, SEATS_MAX, datagram).is_ok() {
                socket.send_to(datagram, self.address);
            }
        }
        // A packet is only made if the kernel has room for it: otherwise it would count as sent.
        while socket.has_room() {
            let rest = if self.movement.has_waiting() { self.rest } else { Rest::Empty };
            datagram.clear();
            let Some(plan) = self.session.poll_packet(now, self.sealer.envelope(0), rest) else { return };
            let takes_rest = plan.takes_rest() && rest != Rest::Empty;
            let mut packet = plan.begin(Tick(0), datagram);
            if takes_rest {
                let sequence = packet.sequence();
                let (out, end) = packet.rest();
                let is_written = self.movement.write(sequence, end, out);
                // Entries that did not fit beside the messages get a separate packet.
                self.rest = if is_written || !self.movement.has_waiting() { Rest::Waiting } else { Rest::Large };
            }
            packet.finish();
            if self.sealer.seal_payload(datagram).is_err() {
                self.has_left = true;
                return;
            }
            socket.send_to(datagram, self.address);
        }
    }
}
