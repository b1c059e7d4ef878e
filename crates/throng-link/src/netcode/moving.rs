//! A connection that continues from another address: the player's phone has changed from Wi-Fi to mobile, or a router
//! has given the client another port.
//!
//! ```text
//! client                                                     server
//!    |-- move 352 B (seat, a keep-alive just sealed) --------->|  is it ours, and sent just now?
//!    |<- challenge 333 B (sealed, bound to the new address) ---|  the connection stays where it is
//!    |-- move 352 B (seat, a response: the same challenge) ---->|  address proved: the connection is here now
//!    |<================ payloads, both ways ==================>|
//!
//! move, 352 bytes
//!   7                    1
//!   seat                 4   as the server's keep-alive named it
//!   packet                   a sealed packet of the connection: the wish is a keep-alive (26..33 bytes), the answer to the
//!                            challenge a response (326..333 bytes)
//!   zeros           to 352   so that the challenge is no longer than the question
//! ```
//!
//! Only the frame of a move is ours; the packets are the standard's, and so is every key and sequence number: the
//! connection keeps its sealer and opener, so no nonce comes twice. A server of another implementation ignores moves.
//!
//! The server remembers no address that is not proved. The challenge holds what it needs to know, and the seat in the
//! answer names the connection.
//!
//! Attacks that fail:
//!
//! - *Take a connection over.* The response is sealed with the client's key, and its challenge is bound to the address
//!   that it was sent to. Someone on the way can copy a wish, pass the challenge of the copy on to the client, and copy the
//!   client's answer to it. A wish moves the connection once, so this fails if the client's own answer arrives first. If the
//!   copies are faster, the connection moves to their address until the client's next wish.
//! - *Hinder a move by copies of its packets, or by other wishes.* Each wish is challenged where it comes from: a copy that
//!   overtakes the newest wish, or another client that names the same address, takes no place from it. Older wishes have been
//!   opened before, and a keep-alive opens once.
//! - *Keep a client from asking by challenges, recorded or of copies.* The client answers a challenge number once, and sends its
//!   next wish on time however many challenges come.
//! - *Move a connection back by a recorded answer.* An answer counts for [`MOVE_TIME`], and only if its wish is newer than
//!   the last one that moved the connection.
//! - *Fill tables.* A connection keeps its newest wish, of constant size.
//! - *Use the server as an amplifier.* The challenge is shorter than the move, and nothing else is sent to an address
//!   that is not proved.

use super::PacketKind;
use super::challenge::{Challenge, Purpose};
use super::counters::DropReason;
use super::packet::{CHALLENGE_BODY_LEN, HEADER_MAX, Header, KEEP_ALIVE_BODY_LEN, Side, read_header};
use super::replay::ReplayWindow;
use super::seal::{Opener, Sealer};
use super::server::ServerHandshake;
use super::{TAG_LEN, plain_address};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;
use throng_wire::Time;

/// Bytes of a move packet.
pub const MOVE_LEN: usize = 352;
const MOVE_PREFIX: u8 = 7;
const SEAT_AT: usize = 1;
const PACKET_AT: usize = SEAT_AT + 4;
const _: () = assert!(PACKET_AT + HEADER_MAX + CHALLENGE_BODY_LEN + TAG_LEN <= MOVE_LEN);
/// So long after a wish its copies are challenged and its challenge may be answered.
pub const MOVE_TIME: Duration = Duration::from_secs(5);

/// The seat of the connection that a datagram wants to move, if it is a move packet. Nothing in it is proved yet.
pub fn move_seat(datagram: &[u8]) -> Option<u32> {
    let is_move = datagram.len() == MOVE_LEN && datagram[0] == MOVE_PREFIX;
    is_move.then(|| u32::from_le_bytes(datagram[SEAT_AT..PACKET_AT].try_into().expect("four bytes")))
}

/// Whether a datagram could be the answer to a challenge.
pub fn is_response(datagram: &[u8]) -> bool {
    datagram.first().is_some_and(|prefix| prefix & 0x0f == PacketKind::Response as u8)
}

/// The memory of a server about the moves of one connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Moves {
    newest: Option<Wish>,
    /// Wishes with sequence numbers below this one move the connection no more.
    first_wish: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Wish {
    /// The sequence number and the tag of its keep-alive: together they recognise a copy.
    sequence: u64,
    tag: [u8; TAG_LEN],
    heard_at: Time,
}

impl Moves {
    /// The newest wish, if its time is not over.
    fn current(&self, now: Time) -> Option<Wish> {
        self.newest.filter(|wish| now.since(wish.heard_at) < MOVE_TIME)
    }
}

/// The result of a move packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MoveStep {
    /// The reply, a challenge, has to be sent back.
    Challenged,
    /// The client has proved the address: the connection is there from now on. There is no reply.
    Proved {
        /// From the challenge to its answer.
        round_trip: Duration,
    },
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
    /// Kept by the owner of the connection, default at first.
    pub moves: &'a mut Moves,
}

impl ServerHandshake {
    /// Handles a move packet for the connection whose seat it names, from whatever address. `reply` is the challenge
    /// that is to be sent back there, or empty.
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
    ) -> Result<MoveStep, DropReason> {
        reply.clear();
        let from = plain_address(from);
        self.counted(|door| {
            let packet = packet_of(datagram)?;
            match read_header(Side::Server, packet)? {
                Header { kind: PacketKind::KeepAlive, sequence, .. } => {
                    door.hear_wish(now, sequence, packet, end)?;
                    door.challenge_move(now, from, sequence, end, reply);
                    Ok(MoveStep::Challenged)
                }
                _ => door.hear_answer(now, from, packet, end).map(|round_trip| MoveStep::Proved { round_trip }),
            }
        })
    }

    /// Checks that the client has sent a wish. Its keep-alive opens once; copies of the newest wish count too, since they may
    /// have overtaken it, until it has moved the connection.
    fn hear_wish(
        &mut self,
        now: Time,
        sequence: u64,
        packet: &mut [u8],
        end: &mut Movable<'_>,
    ) -> Result<(), DropReason> {
        self.work.take(now)?;
        let tag = *packet.last_chunk().ok_or(DropReason::TooShort)?;
        let is_copy = |newest: Wish| (newest.sequence, newest.tag) == (sequence, tag);
        if sequence >= end.moves.first_wish && end.moves.current(now).is_some_and(is_copy) {
            return Ok(());
        }
        end.opener.open(packet)?;
        if end.moves.newest.is_none_or(|newest| newest.sequence < sequence) {
            end.moves.newest = Some(Wish { sequence, tag, heard_at: now });
        }
        Ok(())
    }

    fn challenge_move(&mut self, now: Time, to: SocketAddr, wish: u64, end: &Movable<'_>, reply: &mut Vec<u8>) {
        let body = self.challenge_body(Purpose::Move, to, &Challenge::of_move(end.client_id, now, wish)).1;
        let sequence = self.sequences.challenge();
        end.sealer.seal_unconnected(PacketKind::Challenge, sequence, &body, reply);
        self.counters.move_challenged += 1;
    }

    /// Checks the answer to a challenge, and returns the round trip.
    fn hear_answer(
        &mut self,
        now: Time,
        from: SocketAddr,
        packet: &mut [u8],
        end: &mut Movable<'_>,
    ) -> Result<Duration, DropReason> {
        end.moves.current(now).ok_or(DropReason::MoveNotOurs)?;
        self.answers.take(now)?;
        let (_, challenge) = self.open_challenge(Purpose::Move, from, end.opener.open(packet)?.body)?;
        if challenge.client_id != end.client_id {
            return Err(DropReason::ChallengeNotAuthentic);
        }
        let (sent_at, wish) = challenge.sent_at_and_wish();
        let round_trip = now.since(sent_at);
        if wish < end.moves.first_wish || round_trip >= MOVE_TIME {
            return Err(DropReason::ChallengeOutdated);
        }
        end.moves.first_wish = wish + 1;
        self.counters.moved += u64::from(from != plain_address(end.address));
        Ok(round_trip)
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

/// The sealed packet inside of a move: a keep-alive or a response.
fn packet_of(datagram: &mut [u8]) -> Result<&mut [u8], DropReason> {
    if move_seat(datagram).is_none() {
        return Err(DropReason::MoveNotOurs);
    }
    let packet = &mut datagram[PACKET_AT..];
    let body_len = match PacketKind::from_prefix(packet[0]) {
        Some(PacketKind::KeepAlive) => KEEP_ALIVE_BODY_LEN,
        Some(PacketKind::Response) => CHALLENGE_BODY_LEN,
        _ => return Err(DropReason::MoveNotOurs),
    };
    let len = 1 + usize::from(packet[0] >> 4) + body_len + TAG_LEN;
    packet.get_mut(..len).ok_or(DropReason::MoveNotOurs)
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
/// Time from the first challenge after a wish to the next wish. Later challenges do not change it: somebody on the way could pass
/// them on for ever.
const ANSWER_TIME: Duration = Duration::from_millis(600);
/// Challenges of one attempt that are answered between two polls, and remembered. One of them is for the client's own address; the
/// others are for copies of its wish, and somebody on the way has passed them on.
const ANSWERS_MAX: usize = 8;
/// Each answer is sent so many times, [`RETRY_MIN`] apart, because one may be lost.
const ANSWER_SENDS: u8 = 2;

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
    /// The numbers of the challenges that have come. Challenge packets are not protected from replay.
    challenges: ReplayWindow,
    attempt: Option<Attempt>,
}

#[derive(Debug)]
struct Attempt {
    /// When the next wish is due, and the time from then to the one after it.
    wish_at: Time,
    pause: Duration,
    /// The answers to the challenges that have come since the last wish, oldest first.
    answers: VecDeque<Answer>,
    /// Packets have no effect before the new address is proved.
    is_sure: bool,
}

#[derive(Debug)]
struct Answer {
    /// The body of the challenge.
    body: Box<[u8; CHALLENGE_BODY_LEN]>,
    /// When it is due, if any sends are left.
    next_at: Time,
    sends_left: u8,
}

impl Attempt {
    fn new(now: Time, is_sure: bool) -> Attempt {
        Attempt { wish_at: now, pause: RETRY_MIN, answers: VecDeque::new(), is_sure }
    }
}

impl PathProbe {
    /// A probe for the connection at this seat, which has just been made.
    pub fn new(seat: u32, now: Time) -> PathProbe {
        PathProbe { seat, heard_at: now, pause_micros: 100_000, challenges: ReplayWindow::default(), attempt: None }
    }

    /// An authentic payload or keep-alive has come.
    pub fn on_heard(&mut self, now: Time) {
        let pause = now.0.saturating_sub(self.heard_at.0);
        if pause > 0 {
            let pause = pause.min(SILENCE_MAX.as_micros() as u64);
            self.pause_micros = self.pause_micros - self.pause_micros / 8 + pause / 8;
            self.heard_at = now;
        }
        if self.attempt.as_ref().is_some_and(|attempt| !attempt.is_sure || !attempt.answers.is_empty()) {
            self.attempt = None;
        }
    }

    /// A challenge has come. It is answered only if we have asked for it, and if it has not come before. It is answered beside other
    /// ones: somebody on the way may have copied our wish, and passes on what the server has sent to another address.
    pub fn on_challenge(&mut self, now: Time, body: &[u8]) {
        let Ok(body) = <[u8; CHALLENGE_BODY_LEN]>::try_from(body) else { return };
        let number = u64::from_le_bytes(*body.first_chunk().expect("a challenge begins with its number"));
        if self.challenges.is_replayed(number) {
            return;
        }
        self.challenges.mark(number);
        let Some(attempt) = &mut self.attempt else { return };
        if attempt.answers.is_empty() {
            (attempt.wish_at, attempt.pause) = (now.after(ANSWER_TIME), ANSWER_TIME);
        }
        if attempt.answers.len() == ANSWERS_MAX {
            // If no answer has been sent, the first and the newest stay: others may come just before ours, or just after it.
            let is_sent = attempt.answers[0].sends_left < ANSWER_SENDS;
            attempt.answers.remove(if is_sent { 0 } else { ANSWERS_MAX / 2 });
        }
        attempt.answers.push_back(Answer { body: Box::new(body), next_at: now, sends_left: ANSWER_SENDS });
    }

    /// The program knows that its address has changed: it has a new socket, or the system has reported it.
    pub fn on_address_changed(&mut self, now: Time) {
        self.attempt = Some(Attempt::new(now, true));
    }

    /// When [`poll_transmit`](PathProbe::poll_transmit) has something to send, if nothing is received before.
    pub fn next_deadline(&self) -> Time {
        let Some(attempt) = &self.attempt else { return self.heard_at.after(self.silence()) };
        let answers = attempt.answers.iter().filter(|answer| answer.sends_left > 0);
        answers.map(|answer| answer.next_at).fold(attempt.wish_at, Time::min)
    }

    /// Replaces `out` with the next packet of a move, if one is due. It goes to the server, from wherever the client is. Poll
    /// until `false`.
    pub fn poll_transmit(&mut self, now: Time, sealer: &mut Sealer, out: &mut Vec<u8>) -> bool {
        if self.next_deadline() > now {
            return false;
        }
        let attempt = self.attempt.get_or_insert_with(|| Attempt::new(now, false));
        let is_due = |answer: &&mut Answer| answer.sends_left > 0 && answer.next_at <= now;
        if let Some(answer) = attempt.answers.iter_mut().find(is_due) {
            answer.sends_left -= 1;
            answer.next_at = now.after(RETRY_MIN);
            return write_move(self.seat, Some(&answer.body), sealer, out);
        }
        // The answers were lost, or the server has forgotten what it asked.
        attempt.answers.clear();
        attempt.wish_at = now.after(attempt.pause);
        attempt.pause = (attempt.pause * 2).min(RETRY_MAX);
        write_move(self.seat, None, sealer, out)
    }

    fn silence(&self) -> Duration {
        Duration::from_micros(self.pause_micros * USUAL_PAUSES).clamp(SILENCE_MIN, SILENCE_MAX)
    }
}

/// Replaces `out` with a wish, or with the answer to a challenge.
fn write_move(seat: u32, answer: Option<&[u8; CHALLENGE_BODY_LEN]>, sealer: &mut Sealer, out: &mut Vec<u8>) -> bool {
    let mut packet = Vec::new();
    let sealed = match answer {
        Some(body) => sealer.seal_body(PacketKind::Response, body, &mut packet),
        None => sealer.seal_keep_alive(0, 0, &mut packet),
    };
    if sealed.is_err() {
        return false;
    }
    out.clear();
    out.push(MOVE_PREFIX);
    out.extend_from_slice(&seat.to_le_bytes());
    out.extend_from_slice(&packet);
    out.resize(MOVE_LEN, 0);
    true
}
