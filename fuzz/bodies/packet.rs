//! A pair of sessions, with packets that are genuine, bent, made up, doubled and late; and the seal around them.

use std::sync::Arc;
use std::time::Duration;

use throng_link::netcode::{Key, KeyForm, Opener, Sealer, Side, Suite, TAG_LEN};
use throng_link::session::{
    CloseCode, CloseReason, Envelope, LaneId, LaneKind, LaneOptions, MAX_INPUT_BYTES, MAX_PAYLOAD_BYTES, Rest, Session,
    SessionOptions,
};
use throng_wire::{Tick, Time};

use super::choices::Choices;

const QUEUE_BYTES: usize = 8 << 10;
const MESSAGE_BYTES: usize = 4 << 10;
const INBOX_MESSAGES: usize = 8;
/// Messages that one packet can bring: an empty one takes two bytes; and those that wait for their turn in a lane.
const MESSAGES_PER_PACKET: usize = 600 + 512;

fn options() -> SessionOptions {
    let lane = |kind| match kind {
        LaneKind::Unreliable => LaneOptions::new(kind),
        _ => LaneOptions { queue_bytes: QUEUE_BYTES, message_bytes: MESSAGE_BYTES, ..LaneOptions::new(kind) },
    };
    SessionOptions {
        lanes: [LaneKind::ReliableOrdered, LaneKind::ReliableUnordered, LaneKind::Unreliable].map(lane).to_vec(),
        inbox_messages: INBOX_MESSAGES,
        inbox_bytes: QUEUE_BYTES,
        first_message: u32::MAX - 2,
        first_input: u32::MAX - 2,
        ..SessionOptions::default()
    }
}

struct End {
    session: Session,
    next_sequence: u64,
    /// Packets that this end wrote, with their numbers.
    written: Vec<(u64, Vec<u8>)>,
}

pub(crate) fn run(input: &[u8]) {
    let mut choices = Choices::new(input);
    let options = Arc::new(options());
    let mut now = Time::from_secs(1);
    // Low halves of numbers wrap around within the run.
    let first_sequence = if choices.byte() & 1 == 0 { 0 } else { 65_530 };
    let mut ends = [0, 1].map(|_| End {
        session: Session::new(Arc::clone(&options), now).expect("good options"),
        next_sequence: first_sequence,
        written: Vec::new(),
    });
    while !choices.is_empty() {
        let what = choices.byte();
        let (one, other) = ends.split_at_mut(1);
        let (end, peer) = if what & 0x80 == 0 { (&mut one[0], &mut other[0]) } else { (&mut other[0], &mut one[0]) };
        match what & 0xF {
            0 | 1 => send(&mut choices, end),
            2..=4 => write(&mut choices, now, end),
            5..=7 => carry(&mut choices, now, peer, end, false),
            8 | 9 => carry(&mut choices, now, peer, end, true),
            10 => made_up(&mut choices, now, end),
            11 => now = now.after(Duration::from_millis(u64::from(choices.byte()) * 8)),
            12 => drop(end.session.push_input(input_bytes(&mut choices))),
            13 => poll(end),
            14 if what & 0x70 == 0x70 => {
                end.session.close(now, CloseReason::new(CloseCode::DONE, "enough"));
            }
            14 => end.session.set_input_ack(u32::from(choices.byte())),
            _ => seal(&mut choices),
        }
        ends.iter_mut().for_each(|end| check(now, end));
    }
}

fn input_bytes<'a>(choices: &mut Choices<'a>) -> &'a [u8] {
    let count = choices.below(80);
    choices.bytes(count)
}

fn send(choices: &mut Choices<'_>, end: &mut End) {
    let lane = LaneId(choices.byte() & 3);
    let length = usize::from(choices.byte()) * [0, 1, 20][choices.below(3)];
    if let Err(error) = end.session.send(lane, &vec![0xAB; length]) {
        assert!(!error.tag().is_empty());
    }
}

fn write(choices: &mut Choices<'_>, now: Time, end: &mut End) {
    let rest = [Rest::Empty, Rest::Waiting, Rest::Large][choices.below(3)];
    let envelope = Envelope { head_bytes: 4 * usize::from(choices.byte()), ..Envelope::bare(end.next_sequence) };
    let head_bytes = envelope.head_bytes;
    let mut datagram = Vec::new();
    let Some(plan) = end.session.poll_packet(now, envelope, rest) else { return };
    let mut packet = plan.begin(Tick(end.next_sequence), &mut datagram);
    let (buffer, room_bytes) = packet.rest();
    assert!(buffer.len() <= room_bytes && room_bytes <= MAX_PAYLOAD_BYTES.max(head_bytes + MAX_PAYLOAD_BYTES));
    let appended = choices.below(40).min(room_bytes - buffer.len());
    buffer.extend_from_slice(&[0xCD; 40][..appended]);
    match choices.byte() & 1 {
        0 => packet.finish(),
        _ => packet.finish_in_row(rest),
    }
    assert!(datagram.len() <= MAX_PAYLOAD_BYTES.max(head_bytes));
    end.written.push((end.next_sequence, datagram.split_off(head_bytes)));
    end.next_sequence += 1 + u64::from(choices.byte() == 255);
}

/// One of the packets that `from` wrote reaches `to`, perhaps for the second time.
fn carry(choices: &mut Choices<'_>, now: Time, from: &mut End, to: &mut End, bends: bool) {
    if from.written.is_empty() {
        return;
    }
    let index = choices.below(from.written.len().min(256));
    let (sequence, mut packet) = from.written[index].clone();
    if bends {
        choices.bend(&mut packet);
    }
    take(now, to, sequence, &packet);
}

/// A packet whose flags and section lengths are right for the most part, with any content.
fn made_up(choices: &mut Choices<'_>, now: Time, end: &mut End) {
    let flags = choices.byte();
    let mut packet = vec![flags];
    if flags & 1 != 0 {
        let acknowledgement = 3 + [0, 1, 4, 8][usize::from(flags >> 1 & 3)];
        packet.extend_from_slice(choices.bytes(acknowledgement));
    }
    packet.extend_from_slice(&choices.number().to_le_bytes());
    if flags & 1 << 3 != 0 {
        packet.extend_from_slice(choices.bytes(2));
    }
    if flags & 1 << 6 != 0 {
        packet.extend([choices.byte(), 0, 3, b'b', b'y', b'e']);
    }
    if flags & 1 << 4 != 0 {
        packet.extend([choices.byte(), choices.byte(), 2, 1, choices.byte(), 0]);
    }
    if flags & 1 << 5 != 0 {
        let entries = entries(choices);
        packet.extend_from_slice(&(entries.len() as u16).to_le_bytes());
        packet.extend_from_slice(&entries);
    }
    let sequence = end.session.statistics().counters.packets_received + u64::from(choices.byte());
    take(now, end, sequence, &packet);
}

/// Entries of the message section: whole messages, and parts whose lengths agree for the most part.
fn entries(choices: &mut Choices<'_>) -> Vec<u8> {
    let mut entries = Vec::new();
    for _ in 0..=choices.below(4) {
        let lane = choices.byte();
        entries.push(lane & 0xF);
        let number = u16::from(choices.byte()).wrapping_sub(4);
        if lane & 3 != 2 || lane & 8 != 0 {
            entries.extend_from_slice(&number.to_le_bytes());
        }
        if lane & 8 == 0 {
            entries.extend([3, 1, 2, 3]);
            continue;
        }
        let pieces = choices.below(18) as u16;
        entries.extend_from_slice(&(choices.below(18) as u16).to_le_bytes());
        let message_bytes = pieces * 256 + u16::from(choices.byte());
        entries.extend([message_bytes as u8 | 0x80, (message_bytes >> 7) as u8]);
        let length: u16 = if lane & 0x40 == 0 { 256 } else { message_bytes % 256 };
        entries.extend([length as u8 | 0x80, (length >> 7) as u8]);
        entries.resize(entries.len() + usize::from(length), 0xEE);
    }
    entries
}

fn take(now: Time, end: &mut End, sequence: u64, packet: &[u8]) {
    match end.session.handle_packet(now, sequence, packet) {
        Ok(Some(info)) => assert!(info.rest.len() <= packet.len()),
        Ok(None) => {}
        Err(error) => assert!(!error.tag().is_empty() && !error.to_string().is_empty()),
    }
}

fn poll(end: &mut End) {
    let (mut count, mut verdicts, mut inputs) = (0, 0, 0);
    while let Some((lane, message)) = end.session.poll_message() {
        assert!(usize::from(lane.0) < 3 && message.len() <= MESSAGE_BYTES.max(64 << 10));
        count += 1;
    }
    while end.session.poll_delivery().is_some() {
        verdicts += 1;
    }
    while let Some(input) = end.session.poll_input() {
        assert!(input.bytes().len() <= MAX_INPUT_BYTES);
        inputs += 1;
    }
    assert!(count <= INBOX_MESSAGES + MESSAGES_PER_PACKET, "{count} messages waited");
    assert!(verdicts <= end.next_sequence && inputs < 1 << 16);
    end.session.poll_close();
}

fn check(now: Time, end: &mut End) {
    end.session.handle_timeout(now);
    assert!(end.session.pending_message_bytes() <= 2 * QUEUE_BYTES + (64 << 10));
    end.session.next_deadline();
    end.session.statistics();
}

/// Nothing that was changed after sealing opens, and nothing opens twice.
fn seal(choices: &mut Choices<'_>) {
    let key = Key::new([9; 32]);
    let choice = choices.below(4);
    let suite = Suite::ALL[choice & 1];
    let form = if choice < 2 { KeyForm::Prepared } else { KeyForm::Bare };
    let mut sealer = Sealer::new(suite, &key, 7).in_form(form);
    let mut opener = Opener::new(suite, &key, 7, Side::Server).in_form(form);
    for _ in 0..=choices.below(4) {
        let body = vec![choices.byte(); 1 + choices.below(64)];
        let mut packet = vec![0; sealer.header_len()];
        packet.extend_from_slice(&body);
        packet.resize(packet.len() + TAG_LEN, 0);
        sealer.seal_payload(&mut packet).expect("it fits");
        let genuine = packet.clone();
        choices.bend(&mut packet);
        let is_bent = packet != genuine;
        match opener.open(&mut packet) {
            Ok(opened) => {
                assert!(!is_bent, "a changed packet was opened");
                assert_eq!(opened.body, body);
                assert!(opener.open(&mut genuine.clone()).is_err(), "a packet was opened twice");
            }
            Err(error) => assert!(is_bent && !error.tag().is_empty()),
        }
    }
}
