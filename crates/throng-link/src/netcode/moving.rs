//! A connection that continues from another address: the player's phone has changed from Wi-Fi to mobile, or a router
//! has given the client another port.
//!
//! ```text
//! client                                                     server
//!    |-- move 352 B (seat, a keep-alive just sealed) --------->|  is it ours, and sent just now?
//!    |<- challenge 333 B (sealed, bound to the new address) ---|  the connection stays where it is
//!    |-- response 326..333 B (the same challenge back) ------->|  address proved: the connection is here now
//!    |<================ payloads, both ways ==================>|
//!
//! move, 352 bytes
//!   7                    1
//!   seat                 4   as the server's keep-alive named it
//!   keep-alive      26..33   a sealed packet of the connection
//!   zeros           to 352   so that the challenge is no longer than the question
//! ```
//!
//! Only the first packet is ours; challenge and response are the standard's, and so is every key and sequence number: the
//! connection keeps its sealer and opener, so no nonce comes twice. A server of another implementation ignores the first
//! packet.
//!
//! Attacks that fail:
//!
//! - *Take a connection over.* The response is sealed with the client's key, and its challenge is bound to the address
//!   that it was sent to. A recorded response answers an older challenge, or one for another address.
//! - *Hinder a connection by recorded packets.* A keep-alive opens once. Recorded packets have been opened before.
//! - *Fill tables.* A connection has one candidate address at a time, and only its own client can name one.
//! - *Use the server as an amplifier.* The challenge is shorter than the move, and nothing else is sent to an address
//!   that is not proved.

use super::PacketKind;
use super::challenge::{Challenge, Purpose};
use super::counters::DropReason;
use super::packet::{CHALLENGE_BODY_LEN, HEADER_MAX, KEEP_ALIVE_BODY_LEN, Side, read_header};
use super::seal::{Opener, Sealer};
use super::server::ServerHandshake;
use super::{TAG_LEN, USER_DATA_LEN, plain_address};
use std::net::SocketAddr;
use std::time::Duration;
use throng_wire::Time;

/// Bytes of a move packet.
pub const MOVE_LEN: usize = 352;
const MOVE_PREFIX: u8 = 7;
const SEAT_AT: usize = 1;
const KEEP_ALIVE_AT: usize = SEAT_AT + 4;
const _: () = assert!(KEEP_ALIVE_AT + HEADER_MAX + KEEP_ALIVE_BODY_LEN + TAG_LEN <= MOVE_LEN);
const _: () = assert!(HEADER_MAX + CHALLENGE_BODY_LEN + TAG_LEN <= MOVE_LEN);

/// The seat of the connection that a datagram wants to move, if it is a move packet. Nothing in it is proved yet.
pub fn move_seat(datagram: &[u8]) -> Option<u32> {
    let is_move = datagram.len() == MOVE_LEN && datagram[0] == MOVE_PREFIX;
    is_move.then(|| u32::from_le_bytes(datagram[SEAT_AT..KEEP_ALIVE_AT].try_into().expect("four bytes")))
}

/// Whether a datagram could be the answer to a challenge.
pub fn is_response(datagram: &[u8]) -> bool {
    datagram.first().is_some_and(|prefix| prefix & 0x0f == PacketKind::Response as u8)
}

/// The possible new address of a client, until the client has proved it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// The address.
    pub address: SocketAddr,
    /// The sequence number of the keep-alive that named it: only a newer one names another.
    named_by: u64,
    /// The first challenge that was sent there, and when: the answer to an older one proves nothing.
    first_challenge: u64,
    challenged_at: Time,
}

/// The server's end of a connection, as far as a move concerns it.
pub struct Movable<'a> {
    /// The client's id.
    pub client_id: u64,
    /// Where the connection is.
    pub address: SocketAddr,
    /// Opens what comes from the client.
    pub opener: &'a mut Opener,
    /// Seals what goes to the client.
    pub sealer: &'a Sealer,
    /// Where the client may have gone. Kept by the owner of the connection, `None` at first.
    pub candidate: &'a mut Option<Candidate>,
}

impl ServerHandshake {
    /// Handles a move packet for the connection whose seat it names, from whatever address. `reply` is the challenge
    /// that is to be sent back there.
    ///
    /// Afterwards the connection has a [`Candidate`]: responses from that address go to
    /// [`handle_move_response`](ServerHandshake::handle_move_response).
    ///
    /// # Errors
    ///
    /// The datagram is to be ignored; it has been counted under this reason.
    pub fn handle_move(
        &mut self,
        now: Time,
        from: SocketAddr,
        datagram: &mut [u8],
        end: &mut Movable<'_>,
        reply: &mut Vec<u8>,
    ) -> Result<(), DropReason> {
        reply.clear();
        let from = plain_address(from);
        self.counted(|door| {
            if move_seat(datagram).is_none() {
                return Err(DropReason::MoveNotOurs);
            }
            door.work.take(now)?;
            let named_by = open_keep_alive(end.opener, &mut datagram[KEEP_ALIVE_AT..])?;
            let same = end.candidate.filter(|candidate| candidate.address == from);
            if end.candidate.is_some_and(|candidate| candidate.named_by > named_by) {
                return Err(DropReason::MoveNotOurs);
            }
            let challenge =
                Challenge { client_id: end.client_id, user_data: [0; USER_DATA_LEN], token_tag: [0; TAG_LEN] };
            let (number, body) = door.challenge_body(Purpose::Move, from, &challenge);
            let sequence = door.sequences.challenge();
            end.sealer.seal_unconnected(PacketKind::Challenge, sequence, &body, reply);
            let (first_challenge, challenged_at) =
                same.map_or((number, now), |candidate| (candidate.first_challenge, candidate.challenged_at));
            *end.candidate = Some(Candidate { address: from, named_by, first_challenge, challenged_at });
            door.counters.move_challenged += 1;
            Ok(())
        })
    }

    /// Handles a response that came from the candidate address of a connection. `Ok` means that the client has proved
    /// the address: the connection is there from now on. With it, the round trip between challenge and response.
    ///
    /// # Errors
    ///
    /// The datagram is to be ignored; it has been counted under this reason.
    pub fn handle_move_response(
        &mut self,
        now: Time,
        from: SocketAddr,
        datagram: &mut [u8],
        end: &mut Movable<'_>,
    ) -> Result<Duration, DropReason> {
        let from = plain_address(from);
        self.counted(|door| {
            let candidate = end.candidate.filter(|candidate| candidate.address == from);
            let candidate = candidate.ok_or(DropReason::MoveNotOurs)?;
            if read_header(Side::Server, datagram)?.kind != PacketKind::Response {
                return Err(DropReason::UnexpectedKind);
            }
            door.answers.take(now)?;
            let (number, _) = door.open_challenge(Purpose::Move, from, end.opener.open(datagram)?.body)?;
            if number < candidate.first_challenge {
                return Err(DropReason::ChallengeOutdated);
            }
            *end.candidate = None;
            door.counters.moved += u64::from(from != plain_address(end.address));
            Ok(now.since(candidate.challenged_at))
        })
    }

    /// Does something with a datagram. Why it is ignored, if it is, is counted.
    fn counted<T>(
        &mut self,
        handle: impl FnOnce(&mut ServerHandshake) -> Result<T, DropReason>,
    ) -> Result<T, DropReason> {
        let result = handle(self);
        if let Err(reason) = result {
            self.counters.drop(reason);
        }
        result
    }
}

/// Opens the sealed keep-alive at the beginning of `bytes`, and returns its sequence number. It opens once.
fn open_keep_alive(opener: &mut Opener, bytes: &mut [u8]) -> Result<u64, DropReason> {
    let sequence_len = usize::from(bytes[0] >> 4);
    let len = 1 + sequence_len + KEEP_ALIVE_BODY_LEN + TAG_LEN;
    let packet = bytes.get_mut(..len).ok_or(DropReason::MoveNotOurs)?;
    if read_header(Side::Server, packet)?.kind != PacketKind::KeepAlive {
        return Err(DropReason::MoveNotOurs);
    }
    Ok(opener.open(packet)?.sequence)
}

/// Silence after which a client asks whether the server still knows its address: this many times the usual pause
/// between two datagrams, within these bounds. The lower one is above the second after which a quiet session sends
/// again.
const USUAL_PAUSES: u64 = 8;
const SILENCE_MIN: Duration = Duration::from_millis(1_500);
const SILENCE_MAX: Duration = Duration::from_millis(4_000);
/// Time between two packets of one attempt, doubled each time up to the second value.
const RETRY_MIN: Duration = Duration::from_millis(200);
const RETRY_MAX: Duration = Duration::from_millis(1_600);

/// The client's side of a move: notices silence, and proves the client's address again.
///
/// The owner of a connection says [`on_heard`](PathProbe::on_heard) for each authentic payload or keep-alive, gives
/// [`on_challenge`](PathProbe::on_challenge) the body of each challenge, and polls
/// [`poll_transmit`](PathProbe::poll_transmit) whenever it sends. An attempt costs the server a few microseconds and
/// changes nothing if the address is the same. So the client need not know whether the path is lost or the server is
/// paused.
#[derive(Debug)]
pub struct PathProbe {
    seat: u32,
    heard_at: Time,
    /// Smoothed pause between received datagrams, in microseconds.
    pause_micros: u64,
    attempt: Option<Attempt>,
}

#[derive(Debug)]
struct Attempt {
    next_at: Time,
    pause: Duration,
    /// The body of the response, once there is a challenge to answer.
    response: Option<Box<[u8; CHALLENGE_BODY_LEN]>>,
    /// Packets have no effect before the new address is proved.
    is_sure: bool,
}

impl PathProbe {
    /// A probe for the connection at this seat, which has just been made.
    pub fn new(seat: u32, now: Time) -> PathProbe {
        PathProbe { seat, heard_at: now, pause_micros: 100_000, attempt: None }
    }

    /// An authentic payload or keep-alive has come.
    pub fn on_heard(&mut self, now: Time) {
        let pause = now.0.saturating_sub(self.heard_at.0);
        if pause > 0 {
            let pause = pause.min(SILENCE_MAX.as_micros() as u64);
            self.pause_micros = self.pause_micros - self.pause_micros / 8 + pause / 8;
            self.heard_at = now;
        }
        if self.attempt.as_ref().is_some_and(|attempt| !attempt.is_sure || attempt.response.is_some()) {
            self.attempt = None;
        }
    }

    /// A challenge has come. It is answered only if we have asked for it.
    pub fn on_challenge(&mut self, now: Time, body: &[u8]) {
        if let (Some(attempt), Ok(body)) = (&mut self.attempt, body.try_into()) {
            attempt.response = Some(Box::new(body));
            attempt.next_at = now;
            attempt.pause = RETRY_MIN;
        }
    }

    /// The program knows that its address has changed: it has a new socket, or the system has reported it.
    pub fn on_address_changed(&mut self, now: Time) {
        self.attempt = Some(Attempt { next_at: now, pause: RETRY_MIN, response: None, is_sure: true });
    }

    /// When [`poll_transmit`](PathProbe::poll_transmit) has something to send, if nothing is received before.
    pub fn next_deadline(&self) -> Time {
        match &self.attempt {
            Some(attempt) => attempt.next_at,
            None => self.heard_at.after(self.silence()),
        }
    }

    /// Replaces `out` with the next packet of a move, if one is due. It goes to the server, from wherever the client is.
    pub fn poll_transmit(&mut self, now: Time, sealer: &mut Sealer, out: &mut Vec<u8>) -> bool {
        if self.next_deadline() > now {
            return false;
        }
        let begun = Attempt { next_at: now, pause: RETRY_MIN, response: None, is_sure: false };
        let attempt = self.attempt.get_or_insert(begun);
        attempt.next_at = now.after(attempt.pause);
        attempt.pause = (attempt.pause * 2).min(RETRY_MAX);
        match &attempt.response {
            // A response that was lost is repeated once; then the server may have forgotten what it asked.
            Some(body) if attempt.pause <= RETRY_MIN * 4 => {
                sealer.seal_body(PacketKind::Response, &body[..], out).is_ok()
            }
            _ => {
                attempt.response = None;
                write_move(self.seat, sealer, out)
            }
        }
    }

    fn silence(&self) -> Duration {
        Duration::from_micros(self.pause_micros * USUAL_PAUSES).clamp(SILENCE_MIN, SILENCE_MAX)
    }
}

fn write_move(seat: u32, sealer: &mut Sealer, out: &mut Vec<u8>) -> bool {
    let mut keep_alive = Vec::new();
    if sealer.seal_keep_alive(0, 0, &mut keep_alive).is_err() {
        return false;
    }
    out.clear();
    out.push(MOVE_PREFIX);
    out.extend_from_slice(&seat.to_le_bytes());
    out.extend_from_slice(&keep_alive);
    out.resize(MOVE_LEN, 0);
    true
}
