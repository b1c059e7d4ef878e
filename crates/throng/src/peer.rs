//! One client as the server keeps it.

use std::net::SocketAddr;
use std::time::Duration;

use throng_link::netcode::{
    Accepted, DropReason, Held, Movable, Moves, Opened, PacketKind, RationedOpener, SEND_INTERVAL, Sealer,
    USER_DATA_LEN,
};
use throng_link::session::{CLOSE_INTERVAL, CloseCause, CloseCode, CloseReason, Rest, Session};
use throng_wire::{ConnectionId, Tick, Time};

use crate::greeting::Stage;
use crate::options::ServerOptions;
use crate::replication::Replication;

/// Packets with the reason for an ended connection, one in each interval of a close.
const FAREWELLS: u32 = 3;

pub(crate) struct Peer {
    pub(crate) id: ConnectionId,
    pub(crate) address: SocketAddr,
    pub(crate) client_id: u64,
    pub(crate) stage: Stage,
    pub(crate) session: Session,
    pub(crate) sealer: Sealer,
    opener: RationedOpener,
    pub(crate) next_keep_alive: Time,
    /// The token's user data, until the game has polled it.
    pub(crate) user_data: Option<Box<[u8; USER_DATA_LEN]>>,
    /// When its token expires: tells which of two tokens is newer.
    pub(crate) expire_unix_s: u64,
    /// When it was accepted, or welcomed.
    pub(crate) since: Time,
    /// The changes of its address.
    moves: Moves,
    /// Events and messages that the game has not polled yet.
    pub(crate) waiting: Waiting,
    /// Which room the next piece of replication needs, when there is one.
    rest: Rest,
    /// It is closed when all data sent to it has arrived.
    pub(crate) is_flushed_first: bool,
    /// Why we are closing it, if we are.
    leaving: Option<CloseReason>,
    /// Ended for a reason outside of the session.
    pub(crate) gone: Option<CloseCause>,
}

/// Data of one client that waits for the game.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Waiting {
    inputs: usize,
    /// The tick that `inputs_in_tick` counts: inputs that waited when it began, and those since.
    tick: Tick,
    inputs_in_tick: usize,
    pub(crate) messages: usize,
    pub(crate) message_bytes: usize,
}

impl Waiting {
    /// Another input waits for the game, unless the game has as many for this tick as it may get.
    pub(crate) fn may_take_input(&mut self, tick: Tick, most: usize) -> bool {
        self.begin(tick);
        self.inputs_in_tick < most
    }

    pub(crate) fn take_input(&mut self) {
        self.inputs += 1;
        self.inputs_in_tick += 1;
    }

    /// The game has polled an input.
    pub(crate) fn give_input(&mut self, tick: Tick) {
        self.begin(tick);
        self.inputs -= 1;
    }

    fn begin(&mut self, tick: Tick) {
        if self.tick != tick {
            self.tick = tick;
            self.inputs_in_tick = self.inputs;
        }
    }

    /// Whether another message may wait beside the others.
    pub(crate) fn has_room(&self, options: &ServerOptions) -> bool {
        self.messages < options.waiting_messages.max(1) && self.message_bytes < options.waiting_message_bytes.max(1)
    }
}

// The longest piece of replication fits into a packet of its own, on every path.
const _: () = assert!(throng_replica::PIECE_MAX_BYTES <= throng_link::session::MIN_REST_BYTES);

/// Where one sealed datagram lies in the worker's buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) peer: u32,
    pub(crate) start: u32,
    pub(crate) len: u32,
    /// How long after the tick it is sent.
    pub(crate) wait_micros: u32,
}

impl Peer {
    pub(crate) fn new(
        id: ConnectionId,
        address: SocketAddr,
        accepted: Accepted,
        mut session: Session,
        (packets_per_s, now): (u32, Time),
    ) -> Peer {
        session.follow_handshake(accepted.round_trip, accepted.timeout);
        Peer {
            id,
            address,
            client_id: accepted.client_id,
            stage: Stage::Unconfirmed,
            session,
            sealer: accepted.sealer,
            opener: RationedOpener::new(accepted.opener, packets_per_s, now),
            next_keep_alive: now.after(SEND_INTERVAL),
            user_data: Some(Box::new(accepted.user_data)),
            expire_unix_s: accepted.expire_unix_s,
            since: now,
            moves: Moves::default(),
            waiting: Waiting::default(),
            rest: Rest::Waiting,
            is_flushed_first: false,
            leaving: None,
            gone: None,
        }
    }

    /// See [`Session::fetch`].
    pub(crate) fn fetch(&self) -> u64 {
        self.session.fetch() ^ self.sealer.next_sequence() ^ self.opener.newest() ^ self.since.0
    }

    /// Decrypts a datagram from the client's address. Says nothing to the connection yet: that is for
    /// [`settle`](Self::settle).
    pub(crate) fn open<'a>(&mut self, now: Time, datagram: &'a mut [u8]) -> Result<Opened<'a>, DropReason> {
        self.opener.open(now, datagram)
    }

    /// Opens so many packets in a second from now on, and as many at once.
    pub(crate) fn set_packets_per_s(&mut self, packets_per_s: u32, now: Time) {
        self.opener.set_packets_per_s(packets_per_s, now);
    }

    /// Handles an authentic packet, which came to this machine at `arrived`.
    pub(crate) fn settle(&mut self, now: Time, arrived: Time, opened: Opened<'_>) {
        match opened.kind {
            PacketKind::Payload => {
                if self.stage == Stage::Unconfirmed {
                    self.stage = Stage::Greeting;
                }
                if let Err(error) = self.session.handle_packet_of(now, arrived, opened.sequence, opened.body) {
                    self.close(now, CloseReason::new(CloseCode::PROTOCOL, &error.to_string()));
                }
            }
            PacketKind::KeepAlive if self.stage == Stage::Unconfirmed => self.stage = Stage::Greeting,
            // The client does not know yet that it is connected: send that again at once.
            PacketKind::Response => self.next_keep_alive = now,
            PacketKind::Disconnect => {
                // A client that received our close sends this too: the cause is still our close.
                let cause = match &self.leaving {
                    Some(reason) => CloseCause::Local(reason.clone()),
                    None => CloseCause::Peer(CloseReason::new(CloseCode::DONE, "disconnected")),
                };
                self.gone.get_or_insert(cause);
            }
            _ => {}
        }
    }

    /// The seat that the client holds.
    pub(crate) fn held(&self) -> Held {
        Held { seat: self.id.index, expire_unix_s: self.expire_unix_s }
    }

    /// The parts of the connection that a change of address needs.
    pub(crate) fn movable(&mut self) -> Movable<'_> {
        Movable {
            client_id: self.client_id,
            address: self.address,
            opener: self.opener.opener_mut(),
            sealer: &self.sealer,
            moves: &mut self.moves,
        }
    }

    /// The last packets of a connection whose seat is needed: each tells why, and is to be sent at its time.
    pub(crate) fn farewell(&mut self, now: Time, reason: CloseReason) -> Vec<(Time, Vec<u8>)> {
        self.close(now, reason);
        let mut packets = Vec::new();
        for at in (0..FAREWELLS).map(|count| now.after(CLOSE_INTERVAL * count)) {
            let mut packet = Vec::new();
            let Some(plan) = self.session.poll_packet(at, self.sealer.envelope(0), Rest::Empty) else { break };
            plan.begin(Tick(0), &mut packet).finish();
            if self.sealer.seal_payload(&mut packet).is_err() {
                break;
            }
            packets.push((at, packet));
        }
        packets
    }

    /// Writes an acknowledgement into `out`, sealed, for packets that cannot wait for the tick's. `tick` is the last one
    /// that was sent. False if nothing may be sent now.
    pub(crate) fn answer(&mut self, now: Time, tick: Tick, out: &mut Vec<u8>) -> bool {
        let Some(plan) = self.session.poll_packet(now, self.sealer.envelope(0), Rest::Empty) else { return false };
        plan.begin(tick, out).finish();
        self.sealer.seal_payload(out).is_ok()
    }

    /// Whether the server is ending it before it became live: nothing that the client says counts any more.
    pub(crate) fn is_turned_away(&self) -> bool {
        self.stage != Stage::Live && self.leaving.is_some()
    }

    /// Begins to end the connection; the client gets the reason.
    pub(crate) fn close(&mut self, now: Time, reason: CloseReason) {
        self.leaving.get_or_insert_with(|| reason.clone());
        self.session.close(now, reason);
    }

    /// Writes this tick's packets, not sealed yet, behind what `buffer` holds. All but the last get the same length, and
    /// but a probe of the path's size. Some may have to wait, for at most `spread_within`.
    pub(crate) fn write_packets<R: Replication>(
        &mut self,
        now: Time,
        tick: Tick,
        slot: &mut R::Slot,
        (outgoing, spread_within): (R::Outgoing<'_>, Duration),
        (buffer, spans): (&mut Vec<u8>, &mut Vec<Span>),
    ) {
        R::begin_write(slot, outgoing, self.session.sending_allowance_bytes(now));
        let mut rest = match R::has_more(slot) {
            false => Rest::Empty,
            true if R::needs_full_packet(slot) => Rest::Large,
            true => self.rest,
        };
        let mut ahead = 0;
        while let Some(mut plan) = self.session.poll_packet(now, self.sealer.envelope(ahead), rest) {
            let start = buffer.len();
            let takes_rest = plan.takes_rest();
            let wait_micros = match spread_within.is_zero() {
                true => 0,
                false => plan.spread(spread_within).micros_since(now) as u32,
            };
            let mut packet = plan.begin(tick, buffer);
            if takes_rest && rest != Rest::Empty {
                let sequence = packet.sequence();
                let (out, end) = packet.rest();
                let body = out.len();
                out.resize(end, 0);
                let written = R::write_packet(slot, outgoing, sequence, &mut out[body..]);
                out.truncate(body + written);
                rest = match R::has_more(slot) {
                    false => Rest::Empty,
                    // The next piece did not fit beside the session's part, or not into what the budget allowed.
                    true if written == 0 || R::needs_full_packet(slot) => Rest::Large,
                    true => Rest::Waiting,
                };
                // For the next tick: what needed a whole packet has had one.
                self.rest = if rest == Rest::Large { Rest::Large } else { Rest::Waiting };
            }
            packet.finish_in_row(rest);
            ahead += 1;
            let len = (buffer.len() - start) as u32;
            spans.push(Span { peer: self.id.index, start: start as u32, len, wait_micros });
        }
    }

    /// The bytes that replication may write in the coming tick: nothing if there will be no packet for it.
    ///
    /// A subscription that shares packets with messages, or waits for a whole packet, always has something to write:
    /// otherwise messages would take its room.
    pub(crate) fn replication_allowance_bytes(&self, now: Time) -> usize {
        if self.rest != Rest::Large && self.session.pending_message_bytes() == 0 {
            return self.session.rest_allowance_bytes(now, self.sealer.envelope(0));
        }
        self.session.sending_allowance_bytes(now)
    }
}
