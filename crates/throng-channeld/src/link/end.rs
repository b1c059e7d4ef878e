//! The client's end of the link above the handshake: a sealed session, and movement beside it. No socket, no clock.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use throng_link::netcode::{Connected, Opener, PacketKind, PathProbe, Sealer};
use throng_link::session::{
    CloseCode, CloseReason, Delivery, MIN_REST_BYTES, OptionsError, PacketError, Rest, SendError, Session,
};
use throng_wire::{Tick, Time};

use super::section::{HEAD_BYTES, MAX_ENTRY_BYTES, Section, begin_movement, put_wanted};
use super::{Freshness, LANE, session_options};
use crate::packet::{self, Header, Message, Messages, entry_len, put_message};

/// Movement that may wait to be sent; more displaces the oldest.
const WAITING_MAX: usize = 64;
/// Messages that may wait to be polled, and bytes of their bodies. With so many, further messages stay in the session, which
/// asks the gateway for no more; movement is refused before it is acknowledged, because the gateway sends only what has
/// changed since the movement that has arrived.
const RECEIVED_MAX: usize = 4_096;
const RECEIVED_MAX_BYTES: usize = 4 << 20;

/// Why an end of the link cannot continue.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// The options of the session are out of range: our misuse.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// The gateway broke the session's protocol.
    #[error(transparent)]
    Session(#[from] PacketError),
    /// The gateway sent a packet that cannot be read.
    #[error(transparent)]
    Packet(#[from] packet::PacketError),
    /// The session is closing, or too much waits to be sent.
    #[error(transparent)]
    Send(#[from] SendError),
    /// Movement has to fit into one datagram.
    #[error("movement of {bytes} bytes; at most {MAX_ENTRY_BYTES} fit into a datagram")]
    TooLong {
        /// Bytes of the message with its header.
        bytes: usize,
    },
    /// Either end has closed the connection.
    #[error("the connection has ended")]
    Ended,
}

impl LinkError {
    /// A stable name for metrics and logs.
    pub fn tag(&self) -> &'static str {
        match self {
            LinkError::Options(error) => error.tag(),
            LinkError::Session(error) => error.tag(),
            LinkError::Packet(error) => error.tag(),
            LinkError::Send(error) => error.tag(),
            LinkError::TooLong { .. } => "link_too_long",
            LinkError::Ended => "link_ended",
        }
    }
}

/// Counters of incoming and outgoing movement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MovementCounters {
    /// Messages that came and were newer than all before.
    pub taken: u64,
    /// Messages that came and were thrown away because something newer had come.
    pub stale: u64,
    /// Messages that were displaced by newer ones before they were sent.
    pub displaced: u64,
    /// Datagrams whose messages and movement were not taken in because too much waited to be polled: they come again.
    pub refused: u64,
}

/// The wish for movement, as far as the gateway knows it.
#[derive(Debug)]
struct Wish {
    /// It is to be said until a packet that says it has arrived.
    is_open: bool,
    /// The packets under way that say it. The session bounds them.
    said_in: Vec<u64>,
}

impl Wish {
    /// Whether a packet has to be sent for it.
    fn is_due(&self) -> bool {
        self.is_open && self.said_in.is_empty()
    }

    fn on_verdict(&mut self, sequence: u64, delivery: Delivery) {
        let before = self.said_in.len();
        self.said_in.retain(|&said| said != sequence);
        if self.said_in.len() < before && delivery == Delivery::Delivered {
            *self = Wish { is_open: false, said_in: Vec::new() };
        }
    }
}

/// The client's end of a connection. [`LinkEnd::handle`] takes datagrams in, [`LinkEnd::poll_message`] gives messages
/// out, [`LinkEnd::poll_transmit`] datagrams, each until `None` or `false`. `now` never falls.
pub struct LinkEnd {
    session: Session,
    sealer: Sealer,
    opener: Opener,
    /// Proves our address again when it has changed.
    probe: PathProbe,
    fresh: Freshness,
    received: VecDeque<Message>,
    /// Of their bodies.
    received_bytes: usize,
    movement: VecDeque<Vec<u8>>,
    /// Buffers for further movement.
    spare: Vec<Vec<u8>>,
    wish: Wish,
    /// Which room the oldest movement needs, when there is some.
    rest: Rest,
    counters: MovementCounters,
    has_ended: bool,
}

impl LinkEnd {
    /// The end of a connection that was just made. Without `takes_movement` everything comes on the reliable lane.
    ///
    /// # Errors
    /// None with the options as they are.
    pub fn new(connected: Connected, takes_movement: bool, now: Time) -> Result<LinkEnd, LinkError> {
        let mut session = Session::new(Arc::new(session_options()), now)?;
        session.follow_handshake(connected.round_trip, connected.timeout);
        Ok(LinkEnd {
            session,
            sealer: connected.sealer,
            opener: connected.opener,
            probe: connected.probe,
            fresh: Freshness::default(),
            received: VecDeque::new(),
            received_bytes: 0,
            movement: VecDeque::new(),
            spare: Vec::new(),
            wish: Wish { is_open: takes_movement, said_in: Vec::new() },
            rest: Rest::Waiting,
            counters: MovementCounters::default(),
            has_ended: false,
        })
    }

    /// Queues entries for the reliable lane: see [`put_message`].
    ///
    /// # Errors
    /// The session is closing, the entries are longer than a packet, or too much waits.
    pub fn send_entries(&mut self, entries: &[u8]) -> Result<(), LinkError> {
        self.session.send(LANE, entries)?;
        Ok(())
    }

    /// Queues a message that is of no use late: it is sent once, may be lost, and is thrown away by the gateway if a
    /// later one has overtaken it. If many wait, the oldest is displaced.
    ///
    /// # Errors
    /// It is too long for a datagram.
    pub fn send_movement(&mut self, header: Header, body: &[u8]) -> Result<(), LinkError> {
        let bytes = entry_len(header, u32::try_from(body.len()).unwrap_or(u32::MAX / 2));
        if bytes > MAX_ENTRY_BYTES {
            return Err(LinkError::TooLong { bytes });
        }
        if self.movement.len() >= WAITING_MAX {
            self.counters.displaced += 1;
            self.drop_oldest();
        }
        let mut entry = self.spare.pop().unwrap_or_default();
        put_message(&mut entry, header, body);
        self.movement.push_back(entry);
        Ok(())
    }

    fn drop_oldest(&mut self) {
        if let Some(mut entry) = self.movement.pop_front() {
            entry.clear();
            self.spare.push(entry);
        }
    }

    /// The next message, from either way. A program that does not poll stays connected: the gateway keeps messages back
    /// until they are polled.
    ///
    /// # Errors
    /// The gateway broke the protocol in a message that had to wait.
    pub fn poll_message(&mut self) -> Result<Option<Message>, LinkError> {
        self.take_messages()?;
        let message = self.received.pop_front();
        self.received_bytes -= message.as_ref().map_or(0, |message| message.body.len());
        Ok(message)
    }

    fn is_full(&self) -> bool {
        self.received.len() >= RECEIVED_MAX || self.received_bytes >= RECEIVED_MAX_BYTES
    }

    fn receive(&mut self, message: Message) {
        self.received_bytes += message.body.len();
        self.received.push_back(message);
    }

    /// Counters of movement so far.
    pub fn counters(&self) -> MovementCounters {
        MovementCounters { refused: self.session.statistics().counters.packets_refused, ..self.counters }
    }

    /// The session below, to look at.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Whether the connection is over.
    pub fn has_ended(&self) -> bool {
        self.has_ended || self.session.is_closed()
    }

    /// Says good-bye. The datagrams that announce the end still have to be polled.
    pub fn close(&mut self, now: Time) {
        self.session.close(now, CloseReason::new(CloseCode::DONE, ""));
    }

    /// When there is something to do, if nothing comes before.
    pub fn next_deadline(&self) -> Option<Time> {
        self.session.next_deadline().into_iter().chain([self.probe.next_deadline()]).min()
    }

    /// The address of this machine has changed, or may have: the gateway is asked at once to send to wherever the next
    /// datagram comes from. Without a call, that happens after a second or more without any word of the gateway.
    pub fn on_address_changed(&mut self, now: Time) {
        self.probe.on_address_changed(now);
    }

    /// A datagram has come. It is opened in place; one that is not for us is ignored. If many come at once, look at
    /// [`LinkEnd::is_answer_due`] after each.
    ///
    /// # Errors
    /// The gateway broke the protocol.
    pub fn handle(&mut self, now: Time, datagram: &mut [u8]) -> Result<(), LinkError> {
        let Ok(opened) = self.opener.open(datagram) else { return Ok(()) };
        match opened.kind {
            PacketKind::Payload => {
                self.probe.on_heard(now);
                self.handle_payload(now, opened.sequence, opened.body)?;
            }
            PacketKind::KeepAlive => self.probe.on_heard(now),
            PacketKind::Challenge => self.probe.on_challenge(now, opened.body),
            PacketKind::Disconnect => self.has_ended = true,
            _ => {}
        }
        Ok(())
    }

    fn handle_payload(&mut self, now: Time, sequence: u64, payload: &[u8]) -> Result<(), LinkError> {
        self.take_messages()?;
        let is_full = self.is_full();
        self.session.refuse_rest(is_full);
        let rest = match self.session.handle_packet(now, sequence, payload) {
            Ok(packet) => packet.map(|packet| packet.rest),
            Err(error) => return Err(error.into()),
        };
        if let Some(movement) = rest.and_then(|rest| Section::read(rest).movement) {
            // Earlier messages come first. After them only the messages of this packet are left.
            while self.take_next_packet()? {}
            self.take_movement(sequence, movement.after, movement.entries)?;
        }
        self.take_messages()?;
        self.take_verdicts(now);
        Ok(())
    }

    /// Takes messages out of the session, as far as there is room.
    fn take_messages(&mut self) -> Result<(), LinkError> {
        while !self.is_full() && self.take_next_packet()? {}
        Ok(())
    }

    /// Takes the messages of a packet of the protocol out of the session. False if there is none.
    fn take_next_packet(&mut self) -> Result<bool, LinkError> {
        let Some((_, packet)) = self.session.poll_message() else { return Ok(false) };
        self.fresh.next_packet();
        for message in Messages::new(Bytes::from(packet)) {
            let message = message?;
            self.fresh.note(&message);
            self.receive(message);
        }
        Ok(true)
    }

    fn take_movement(&mut self, sequence: u64, after: u32, entries: &[u8]) -> Result<(), LinkError> {
        for message in Messages::new(Bytes::copy_from_slice(entries)) {
            let message = message?;
            match self.fresh.take(sequence, after, &message) {
                true => {
                    self.counters.taken += 1;
                    self.receive(message);
                }
                false => self.counters.stale += 1,
            }
        }
        Ok(())
    }

    fn take_verdicts(&mut self, now: Time) {
        self.session.handle_timeout(now);
        while let Some((sequence, delivery)) = self.session.poll_delivery() {
            self.wish.on_verdict(sequence, delivery);
        }
        while self.session.poll_input().is_some() {}
    }

    /// Whether so many datagrams wait for an acknowledgement that [`LinkEnd::poll_transmit`] has to be called before more
    /// are taken in. Otherwise the gateway takes the first of them for lost.
    pub fn is_answer_due(&self) -> bool {
        self.session.is_answer_due()
    }

    /// Writes the next datagram that is to be sent now. False if there is none.
    pub fn poll_transmit(&mut self, now: Time, datagram: &mut Vec<u8>) -> bool {
        self.take_verdicts(now);
        datagram.clear();
        if !self.has_ended && !self.session.is_closing() && self.probe.poll_transmit(now, &mut self.sealer, datagram) {
            return true;
        }
        let rest = match self.movement.is_empty() {
            false => self.rest,
            true if self.wish.is_due() => Rest::Waiting,
            true => Rest::Empty,
        };
        let Some(plan) = self.session.poll_packet(now, self.sealer.envelope(0), rest) else { return false };
        let takes_rest = plan.takes_rest();
        let mut packet = plan.begin(Tick(0), datagram);
        if takes_rest {
            let sequence = packet.sequence();
            let (out, end) = packet.rest();
            let (start, wishes) = (out.len(), self.wish.is_open);
            let is_written = write_section(&mut self.movement, &mut self.spare, wishes, end, out);
            // A packet that is full of messages does not say it.
            if wishes && out.len() > start {
                self.wish.said_in.push(sequence);
            }
            // Entries that did not fit beside the messages get a separate packet.
            self.rest = if is_written || self.movement.is_empty() { Rest::Waiting } else { Rest::Large };
        }
        packet.finish();
        self.has_ended |= self.sealer.seal_payload(datagram).is_err();
        !self.has_ended
    }
}

/// Appends the movement that fits, up to `end` bytes in all. Returns whether any did.
fn write_section(
    movement: &mut VecDeque<Vec<u8>>,
    spare: &mut Vec<Vec<u8>>,
    wishes: bool,
    end: usize,
    datagram: &mut Vec<u8>,
) -> bool {
    let has_room = movement.front().is_some_and(|entry| datagram.len() + HEAD_BYTES + entry.len() <= end);
    if !has_room {
        if wishes && datagram.len() < end {
            put_wanted(datagram);
        }
        return false;
    }
    begin_movement(datagram, 0, wishes);
    while movement.front().is_some_and(|entry| datagram.len() + entry.len() <= end) {
        let Some(mut entry) = movement.pop_front() else { break };
        datagram.extend_from_slice(&entry);
        entry.clear();
        spare.push(entry);
    }
    true
}

// The longest entry has room in a packet of its own on every path.
const _: () = assert!(MAX_ENTRY_BYTES + HEAD_BYTES <= MIN_REST_BYTES, "movement does not fit into a datagram");
