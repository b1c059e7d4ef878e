//! A peer that lies is found out, and costs no more than the limits allow.

use std::sync::Arc;

use proptest::prelude::*;
use throng_link::session::{
    Blame, Envelope, LaneId, LaneKind, LaneOptions, MAX_UNRELIABLE_REASSEMBLIES, PacketError, Rest, Session,
    SessionOptions,
};
use throng_wire::{Tick, Time};

use crate::session_pair::packet;

const MESSAGES: u8 = 1 << 5;

fn session() -> Session {
    Session::new(Arc::new(SessionOptions::default()), Time(0)).expect("good options")
}

/// Whether the packet was new.
fn take(session: &mut Session, sequence: u64, payload: &[u8]) -> Result<bool, PacketError> {
    session.handle_packet(Time(1), sequence, payload).map(|packet| packet.is_some())
}

fn sent(session: &mut Session, sequences: std::ops::Range<u64>) {
    for sequence in sequences {
        packet(session, Time(0), sequence, 10);
    }
}

fn with_messages(entries: &[&[u8]]) -> Vec<u8> {
    let section = entries.concat();
    let mut payload = vec![MESSAGES, 0, 0, 0, 0];
    payload.extend_from_slice(&(section.len() as u16).to_le_bytes());
    payload.extend_from_slice(&section);
    payload
}

/// A part with `bytes` of content.
fn part(lane: u8, number: u16, first: u16, message_bytes: u32, bytes: usize) -> Vec<u8> {
    let mut entry = vec![lane | 8];
    entry.extend_from_slice(&number.to_le_bytes());
    entry.extend_from_slice(&first.to_le_bytes());
    for value in [message_bytes, bytes as u32] {
        let mut value = value;
        while value >= 128 {
            entry.push(value as u8 | 128);
            value >>= 7;
        }
        entry.push(value as u8);
    }
    entry.resize(entry.len() + bytes, 1);
    entry
}

fn acknowledging(newest: u16, bits: u64) -> Vec<u8> {
    let mut payload = vec![1 | 3 << 1];
    payload.extend_from_slice(&newest.to_le_bytes());
    payload.extend_from_slice(&[0, 8]);
    payload.extend_from_slice(&bits.to_le_bytes());
    payload.extend_from_slice(&[0; 4]);
    payload
}

#[test]
fn acknowledging_what_was_never_sent_is_misbehaviour() {
    let mut nothing_sent = session();
    let error = take(&mut nothing_sent, 0, &acknowledging(0, 0)).expect_err("it lies");
    assert_eq!((error, error.blame()), (PacketError::AckOfUnsentPacket, Blame::PeerMisbehaved));

    let mut session = session();
    sent(&mut session, 10..20);
    sent(&mut session, 25..30);
    for (newest, bits) in [(30, 0), (65_535, 0), (9, 0), (22, 0), (29, 1 << 6)] {
        let refused = take(&mut session, 0, &acknowledging(newest, bits));
        assert_eq!(refused, Err(PacketError::AckOfUnsentPacket), "{newest} {bits:b}");
    }
    assert!(take(&mut session, 0, &acknowledging(29, 0b111_1000_0000_1111)).is_ok());
    assert_eq!(session.statistics().counters.packets_bad, 5);
}

#[test]
fn acknowledging_an_input_that_was_never_sent_is_misbehaviour() {
    let mut session = session();
    let payload = [1 << 3, 0, 0, 0, 0, 7, 0];
    assert_eq!(take(&mut session, 0, &payload), Err(PacketError::AckOfUnsentInput));
}

#[test]
fn a_packet_has_1_to_16_inputs_of_at_most_64_bytes() {
    let take = |lengths: &[usize]| {
        let mut payload = vec![1 << 4, 0, 0, 0, 0, 9, 0, lengths.len() as u8];
        for &length in lengths {
            payload.push(length as u8);
            payload.resize(payload.len() + length, 1);
        }
        take(&mut session(), 0, &payload)
    };
    for good in [&[0][..], &[0; 16], &[64]] {
        assert_eq!(take(good), Ok(true), "{good:?}");
    }
    for wrong in [&[][..], &[0; 17], &[65]] {
        assert_eq!(take(wrong), Err(PacketError::BadInputs), "{wrong:?}");
    }
}

#[test]
fn forged_parts_are_refused() {
    let cases: [(&[&[u8]], PacketError); 9] = [
        (&[&[0x80, 0]], PacketError::BadEntry),
        (&[&[5, 0, 0, 0]], PacketError::UnknownLane),
        (&[&part(5, 0, 0, 1000, 256)], PacketError::UnknownLane),
        (&[&part(0, 0, 4, 1000, 256)], PacketError::BadEntry),
        (&[&part(0, 0, 0, 1000, 255)], PacketError::BadEntry),
        (&[&part(0, 0, u16::MAX, 1000, 256)], PacketError::BadEntry),
        (&[&part(0, 0, 0, (256 << 10) + 1, 256)], PacketError::MessageTooLarge),
        (&[&part(0, 0, 0, 1000, 256), &part(0, 0, 1, 1001, 256)], PacketError::PartsDisagree),
        (&[&part(0, 512, 0, 1000, 256)], PacketError::WindowExceeded),
    ];
    for (number, (entries, expected)) in cases.into_iter().enumerate() {
        let refused = take(&mut session(), 0, &with_messages(entries));
        assert_eq!(refused, Err(expected), "case {number}");
    }
}

#[test]
fn unfinished_reliable_messages_are_bounded_by_bytes() {
    let lane = LaneOptions { queue_bytes: 4096, message_bytes: 4096, ..LaneOptions::new(LaneKind::ReliableOrdered) };
    let options = SessionOptions { lanes: vec![lane], ..SessionOptions::default() };
    let mut session = Session::new(Arc::new(options), Time(0)).expect("good options");
    for number in 0..16u16 {
        let payload = with_messages(&[&part(0, number, 0, 4096, 256)]);
        assert!(take(&mut session, u64::from(number), &payload).is_ok());
    }
    let refused = take(&mut session, 16, &with_messages(&[&part(0, 16, 0, 4096, 256)]));
    assert_eq!(refused, Err(PacketError::WindowExceeded));
}

#[test]
fn unfinished_unreliable_messages_displace_each_other_and_expire() {
    let mut session = session();
    for number in 0..20u16 {
        let payload = with_messages(&[&part(2, number, 0, 1000, 256)]);
        assert!(session.handle_packet(Time::from_millis(u64::from(number)), u64::from(number), &payload).is_ok());
    }
    let evicted = 20 - MAX_UNRELIABLE_REASSEMBLIES as u64;
    assert_eq!(session.statistics().counters.reassemblies_evicted, evicted);
    session.handle_timeout(Time::from_millis(2_011));
    assert_eq!(session.statistics().counters.reassemblies_expired, 0);
    session.handle_timeout(Time::from_millis(2_012));
    assert_eq!(session.statistics().counters.reassemblies_expired, 1);
    session.handle_timeout(Time::from_millis(2_100));
    assert_eq!(session.statistics().counters.reassemblies_expired, MAX_UNRELIABLE_REASSEMBLIES as u64);
}

#[test]
fn a_full_inbox_refuses_packets_with_messages_until_it_is_polled() {
    let options = SessionOptions { inbox_messages: 2, ..SessionOptions::default() };
    let mut session = Session::new(Arc::new(options), Time(0)).expect("good options");
    let message = |number: u8| with_messages(&[&[0, number, 0, 1, number]]);
    for number in 0..2 {
        assert!(take(&mut session, u64::from(number), &message(number)).is_ok());
    }
    assert!(take(&mut session, 2, &message(2)).is_ok(), "it is not the peer's fault");
    assert_eq!(session.statistics().counters.packets_refused, 1);
    assert!(take(&mut session, 3, &[0, 0, 0, 0, 0]).is_ok(), "packets without messages are taken");
    assert_eq!(session.poll_message(), Some((LaneId(0), vec![0])));
    assert!(take(&mut session, 2, &message(2)).is_ok(), "the refused packet was not marked as received");
    assert_eq!(session.statistics().counters.packets_refused, 1);
    for number in 1..3 {
        assert_eq!(session.poll_message(), Some((LaneId(0), vec![number])));
    }
}

#[test]
fn repeated_and_ancient_packets_are_dropped_and_counted() {
    let mut session = session();
    let empty = [0; 5];
    for (sequence, is_new) in [(300, true), (300, false), (299, true), (299, false), (43, false), (44, true)] {
        let taken = take(&mut session, sequence, &empty).expect("it is well-formed");
        assert_eq!(taken, is_new, "{sequence}");
    }
    let counters = session.statistics().counters;
    assert_eq!((counters.packets_duplicate, counters.packets_too_old), (2, 1));
}

/// Payloads that get past the first checks more often than noise does.
fn payload() -> impl Strategy<Value = Vec<u8>> {
    let entry = prop_oneof![
        (0u8..4, any::<u16>(), 0u16..8, 0u32..2000, 0usize..600).prop_map(|(lane, n, f, m, b)| part(
            lane,
            n % 600,
            f,
            m,
            b
        )),
        (0u8..3, 0u16..600).prop_map(|(lane, n)| [&[lane][..], &n.to_le_bytes(), &[2, 7, 7]].concat()),
        prop::collection::vec(any::<u8>(), 0..20),
    ];
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..100),
        prop::collection::vec(any::<u8>(), 1150..1250),
        prop::collection::vec(entry, 0..4)
            .prop_map(|entries| { with_messages(&entries.iter().map(|entry| &entry[..]).collect::<Vec<_>>()) }),
        (0u16..40, any::<u64>()).prop_map(|(newest, bits)| acknowledging(newest, bits)),
        (any::<u16>(), prop::collection::vec(any::<u8>(), 0..80))
            .prop_map(|(newest, bytes)| { [&[1 << 4, 0, 0, 0, 0][..], &newest.to_le_bytes(), &bytes].concat() }),
    ]
}

proptest! {
    #![proptest_config(throng_seeds::cases(256))]

    #[test]
    fn any_payloads_leave_a_session_that_works(
        payloads in prop::collection::vec((payload(), 0u64..40, 0u64..200), 0..60),
    ) {
        let mut session = session();
        let mut sequence = 0;
        for (now, (payload, packet, pause)) in payloads.into_iter().enumerate() {
            let now = Time::from_millis(now as u64 * 10 + pause / 100);
            let _ = session.handle_packet(now, packet, &payload);
            session.handle_timeout(now);
            let _ = session.send(LaneId(sequence as u8 % 3), &vec![1; pause as usize * 8]);
            let mut out = Vec::new();
            if let Some(plan) = session.poll_packet(now, Envelope::bare(sequence), Rest::Waiting) {
                plan.begin(Tick(0), &mut out).finish();
                prop_assert!(out.len() <= 1200);
                sequence += 1;
            }
            let _ = (session.next_deadline(), session.statistics());
        }
        let mut bytes = 0;
        while let Some((_, message)) = session.poll_message() {
            bytes += message.len();
        }
        prop_assert!(bytes <= 60 * 1200, "more came out than went in");
        let inputs = std::iter::from_fn(|| session.poll_input()).count();
        prop_assert!(inputs <= 64);
        session.handle_timeout(Time::from_secs(100));
        let verdicts = std::iter::from_fn(|| session.poll_delivery()).count() as u64;
        prop_assert_eq!(verdicts, sequence);
    }
}
