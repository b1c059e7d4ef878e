//! One client as the server keeps it.

use std::net::SocketAddr;

use throng_link::netcode::{Accepted, OpenError, Opener, PacketKind, SEND_INTERVAL, Sealer, TAG_LEN, USER_DATA_LEN};
use throng_link::session::{Blame, CloseCause, CloseCode, CloseReason, PacketPlan, Session};
use throng_wire::{ConnectionId, Tick, Time};

use crate::options::{DATAGRAM_BYTES, DATAGRAM_OVERHEAD_BYTES};
use crate::replication::Replication;

/// How far a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The link is up; the client has not yet shown that it knows.
    Unconfirmed,
    /// Control messages are exchanged.
    Greeting,
    /// The client can read everything.
    Live,
}

pub(crate) struct Peer {
    pub(crate) id: ConnectionId,
    pub(crate) address: SocketAddr,
    pub(crate) client_id: u64,
    pub(crate) stage: Stage,
    pub(crate) session: Session,
    pub(crate) sealer: Sealer,
    opener: Opener,
    pub(crate) next_keep_alive: Time,
    /// What the token's issuer said, until the game is told.
    pub(crate) user_data: Option<Box<[u8; USER_DATA_LEN]>>,
    /// Our answer to its hello is on its way.
    pub(crate) welcomed: bool,
    /// The next piece needs a whole packet: wait until the budget allows one.
    needs_full_packet: bool,
    /// Why we are closing it, if we are.
    leaving: Option<CloseReason>,
    /// Ended without the session's doing.
    pub(crate) gone: Option<CloseCause>,
}

/// Below this many bytes of budget, no packet of replication is begun.
const MIN_REPLICATION_ROOM_BYTES: usize = 440;

/// Where one sealed datagram lies in the worker's buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) peer: u32,
    pub(crate) start: u32,
    pub(crate) len: u32,
}

impl Peer {
    pub(crate) fn new(id: ConnectionId, address: SocketAddr, accepted: Accepted, session: Session, now: Time) -> Peer {
        Peer {
            id,
            address,
            client_id: accepted.client_id,
            stage: Stage::Unconfirmed,
            session,
            sealer: accepted.sealer,
            opener: accepted.opener,
            next_keep_alive: now.after(SEND_INTERVAL),
            user_data: Some(Box::new(accepted.user_data)),
            welcomed: false,
            needs_full_packet: false,
            leaving: None,
            gone: None,
        }
    }

    /// Takes in a datagram from the client's address.
    pub(crate) fn handle(&mut self, now: Time, datagram: &mut [u8]) -> Result<(), OpenError> {
        let opened = self.opener.open(datagram)?;
        match opened.kind {
            PacketKind::Payload => {
                if self.stage == Stage::Unconfirmed {
                    self.stage = Stage::Greeting;
                }
                if let Err(error) = self.session.handle_packet(now, opened.sequence, opened.body)
                    && error.blame() != Blame::Limit
                {
                    self.close(now, CloseReason::new(CloseCode::PROTOCOL, &error.to_string()));
                }
            }
            PacketKind::KeepAlive if self.stage == Stage::Unconfirmed => self.stage = Stage::Greeting,
            // The client has not heard that it is connected: say it again at once.
            PacketKind::Response => self.next_keep_alive = now,
            PacketKind::Disconnect => {
                // A client that heard our good-bye says this too: the end is still our doing.
                let cause = match &self.leaving {
                    Some(reason) => CloseCause::Local(reason.clone()),
                    None => CloseCause::Peer(CloseReason::new(CloseCode::DONE, "disconnected")),
                };
                self.gone.get_or_insert(cause);
            }
            _ => {}
        }
        Ok(())
    }

    /// Begins to end the connection; the client is told why.
    pub(crate) fn close(&mut self, now: Time, reason: CloseReason) {
        self.leaving.get_or_insert_with(|| reason.clone());
        self.session.close(now, reason);
    }

    /// Writes this tick's packets, not sealed yet, behind what `buffer` holds. All but the last get the same length.
    pub(crate) fn write_packets<R: Replication>(
        &mut self,
        now: Time,
        tick: Tick,
        slot: &mut R::Slot,
        outgoing: R::Outgoing<'_>,
        (buffer, spans): (&mut Vec<u8>, &mut Vec<Span>),
    ) {
        let mut allowance_bytes = self.session.sending_allowance_bytes(now);
        R::begin_write(slot, outgoing, allowance_bytes);
        let mut ahead = 0;
        while let Some(kind) = self.next_packet(now, ahead, allowance_bytes, R::has_more(slot)) {
            let header = self.sealer.header_len_ahead(ahead);
            let full = DATAGRAM_BYTES - header - TAG_LEN;
            let sequence = self.sealer.next_sequence() + ahead;
            let room = match kind {
                Packet::Replication => full.min(allowance_bytes),
                Packet::Session | Packet::Urgent => full,
            };
            let message_bytes = match kind {
                Packet::Replication => room / 2,
                Packet::Session => room,
                Packet::Urgent => 0,
            };
            let plan = PacketPlan { sequence, tick, room_bytes: room, message_bytes };
            let start = buffer.len();
            buffer.resize(start + header, 0);
            let Ok(own) = self.session.begin_packet(now, plan, buffer) else {
                buffer.truncate(start);
                return;
            };
            let body = buffer.len();
            buffer.resize(start + header + room, 0);
            let mut written = 0;
            if kind == Packet::Replication {
                written = R::write_packet(slot, outgoing, sequence, &mut buffer[body..]);
                self.needs_full_packet = written == 0 && R::has_more(slot);
            }
            ahead += 1;
            allowance_bytes = allowance_bytes.saturating_sub(own + written + usize::from(DATAGRAM_OVERHEAD_BYTES));
            let more = room == full && self.next_packet(now, ahead, allowance_bytes, R::has_more(slot)).is_some();
            let payload = if more { full } else { own + written };
            self.session.finish_packet(payload);
            buffer.resize(start + header + payload + TAG_LEN, 0);
            let len = (buffer.len() - start) as u32;
            spans.push(Span { peer: self.id.index, start: start as u32, len });
            if !more {
                return;
            }
        }
    }

    fn next_packet(&self, now: Time, ahead: u64, allowance_bytes: usize, has_more: bool) -> Option<Packet> {
        let needed = match self.needs_full_packet {
            true => DATAGRAM_BYTES - TAG_LEN - self.sealer.header_len_ahead(ahead),
            false => MIN_REPLICATION_ROOM_BYTES,
        };
        if has_more && allowance_bytes >= needed {
            return Some(Packet::Replication);
        }
        if allowance_bytes >= MIN_REPLICATION_ROOM_BYTES {
            return self.session.has_pending(now).then_some(Packet::Session);
        }
        (ahead == 0 && self.session.has_urgent(now)).then_some(Packet::Urgent)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Packet {
    /// With replication behind the session's part.
    Replication,
    /// The session's part alone.
    Session,
    /// What the session must say even though the budget is spent.
    Urgent,
}
