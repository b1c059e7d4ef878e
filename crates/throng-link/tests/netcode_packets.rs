//! Sealed packets: what opens, what does not, and how often.

use crate::netcode_stage::seal;
use proptest::prelude::*;
use throng_link::netcode::*;
use throng_wire::Time;

fn ends(protocol_id: u64) -> (Sealer, Opener) {
    ends_of(Suite::default(), protocol_id)
}

fn ends_of(suite: Suite, protocol_id: u64) -> (Sealer, Opener) {
    let key = Key::new([9; 32]);
    (Sealer::new(suite, &key, protocol_id), Opener::new(suite, &key, protocol_id, Side::Server))
}

#[test]
fn a_packet_opens_once() {
    let (mut sealer, mut opener) = ends(1);
    let packet = seal(&mut sealer, b"once");
    assert!(opener.open(&mut packet.clone()).is_ok());
    assert_eq!(opener.open(&mut packet.clone()), Err(OpenError::Replayed));
}

#[test]
fn a_packet_opens_with_its_own_cipher_alone() {
    let key = Key::new([9; 32]);
    for (sealed_with, opened_with) in Suite::ALL.into_iter().flat_map(|one| Suite::ALL.map(|other| (one, other))) {
        let mut packet = seal(&mut Sealer::new(sealed_with, &key, 1), b"once");
        let mut opener = Opener::new(opened_with, &key, 1, Side::Server);
        let opened = opener.open(&mut packet).map(|opened| opened.body.to_vec());
        let expected = if sealed_with == opened_with { Ok(b"once".to_vec()) } else { Err(OpenError::NotAuthentic) };
        assert_eq!(opened, expected, "{sealed_with:?}, {opened_with:?}");
    }
}

#[test]
fn a_forged_packet_does_not_move_the_replay_window() {
    let (mut sealer, mut opener) = ends(1);
    let packet = seal(&mut sealer, b"true");
    let mut forged = vec![0x85; 60];
    forged[1..9].copy_from_slice(&(1u64 << 40).to_le_bytes());
    assert_eq!(opener.open(&mut forged), Err(OpenError::NotAuthentic));
    let mut forged = packet.clone();
    forged[5] ^= 1;
    assert_eq!(opener.open(&mut forged), Err(OpenError::NotAuthentic));
    assert!(opener.open(&mut packet.clone()).is_ok());
}

#[test]
fn packets_may_overtake_each_other_within_the_window() {
    let (mut sealer, mut opener) = ends(1);
    let packets: Vec<_> = (0..300).map(|_| seal(&mut sealer, b"x")).collect();
    let opened = |opener: &mut Opener, i: usize| opener.open(&mut packets[i].clone()).map(|o| o.sequence);
    assert_eq!(opened(&mut opener, 299), Ok(299));
    assert_eq!(opened(&mut opener, 44), Ok(44));
    assert_eq!(opened(&mut opener, 43), Err(OpenError::Replayed));
    assert_eq!(opened(&mut opener, 298), Ok(298));
    assert_eq!(opened(&mut opener, 44), Err(OpenError::Replayed));
}

#[test]
fn wrong_keys_protocols_and_kinds_do_not_open() {
    for suite in Suite::ALL {
        let (mut sealer, _) = ends_of(suite, 1);
        let packet = seal(&mut sealer, &[0; 8]);
        let open = |key: [u8; 32], protocol_id, packet: &[u8]| {
            let mut opener = Opener::new(suite, &Key::new(key), protocol_id, Side::Server);
            opener.open(&mut packet.to_vec()).map(|o| o.kind)
        };
        assert_eq!(open([9; 32], 1, &packet), Ok(PacketKind::Payload));
        assert_eq!(open([8; 32], 1, &packet), Err(OpenError::NotAuthentic));
        assert_eq!(open([9; 32], 2, &packet), Err(OpenError::NotAuthentic));
        let mut as_keep_alive = packet;
        as_keep_alive[0] = 0x14;
        assert_eq!(open([9; 32], 1, &as_keep_alive), Err(OpenError::NotAuthentic));
    }
}

#[test]
fn payloads_have_1_to_1200_bytes_and_misuse_costs_no_sequence_number() {
    let (mut sealer, mut opener) = ends(1);
    for len in [0, 2, SEAL_OVERHEAD_MAX - 7, PAYLOAD_MAX + 2 + TAG_LEN + 1, PACKET_MAX] {
        let error = sealer.seal_payload(&mut vec![0; len]).unwrap_err();
        assert_eq!((error, error.tag()), (SealError::PayloadLength { packet_len: len }, "payload_length"));
    }
    assert_eq!(sealer.next_sequence(), 0);
    for len in [1, PAYLOAD_MAX] {
        let mut packet = seal(&mut sealer, &vec![3; len]);
        assert_eq!(opener.open(&mut packet).unwrap().body.len(), len);
    }
}

#[test]
fn the_header_grows_when_256_and_65536_are_reached_as_foretold() {
    let (mut sealer, mut opener) = ends(1);
    let mut buffer = [0; 64];
    for sequence in 0..65_600u64 {
        let header = sealer.header_len();
        assert_eq!(header, 2 + usize::from(sequence > 255) + usize::from(sequence > 65_535));
        assert_eq!(sealer.header_len_ahead(300), header_len(sequence + 300));
        buffer[header] = 0xab;
        let packet = &mut buffer[..header + 1 + TAG_LEN];
        assert_eq!(sealer.seal_payload(packet), Ok(sequence));
        assert_eq!(opener.open(packet).map(|o| (o.sequence, o.body[0])), Ok((sequence, 0xab)));
    }
}

#[test]
fn a_client_opens_its_ration_in_a_second_and_forgeries_hardly_count_against_it() {
    let (mut sealer, opener) = ends(1);
    let mut rationed = RationedOpener::new(opener, 4, Time(0));
    let mut open = |at_ms, is_forged| {
        let mut packet = seal(&mut sealer, b"news");
        packet[4] ^= u8::from(is_forged);
        rationed.open(Time::from_millis(at_ms), &mut packet).map(|opened| opened.kind)
    };
    let (good, above) = (Ok(PacketKind::Payload), Err(DropReason::TooManyPackets));
    assert_eq!([0; 5].map(|at_ms| open(at_ms, false)), [good, good, good, good, above]);
    assert_eq!([249, 250, 251].map(|at_ms| open(at_ms, false)), [above, good, above]);
    // Eight forged packets cost as much as one of the client's.
    assert_eq!([10_000; 24].map(|at_ms| open(at_ms, true)), [Err(DropReason::NotAuthentic); 24]);
    assert_eq!([10_000; 2].map(|at_ms| open(at_ms, false)), [good, above]);
}

#[test]
fn keep_alives_carry_the_seat() {
    let (mut sealer, mut opener) = ends(1);
    let mut packet = Vec::new();
    sealer.seal_keep_alive(7, 1000, &mut packet).unwrap();
    let opened = opener.open(&mut packet).unwrap();
    assert_eq!((opened.kind, &*opened.body), (PacketKind::KeepAlive, &[7, 0, 0, 0, 0xe8, 3, 0, 0][..]));
}

#[test]
fn sealers_and_openers_may_move_to_worker_threads() {
    fn is_send<T: Send>() {}
    is_send::<(Sealer, Opener, ServerHandshake, ClientHandshake, Accepted, Connected)>();
}

proptest! {
    #![proptest_config(throng_seeds::cases(256))]

    #[test]
    fn payloads_survive_and_a_changed_bit_anywhere_does_not(
        payload in proptest::collection::vec(any::<u8>(), 1..=PAYLOAD_MAX),
        earlier in 0u64..300,
        bit in any::<prop::sample::Index>(),
        suite in prop::sample::select(&Suite::ALL[..]),
        form in prop::sample::select(&[KeyForm::Prepared, KeyForm::Bare][..]),
    ) {
        let (sealer, opener) = ends_of(suite, 1);
        let (mut sealer, mut opener) = (sealer.in_form(form), opener);
        for _ in 0..earlier {
            sealer.seal_disconnect(&mut Vec::new()).unwrap();
        }
        let packet = seal(&mut sealer, &payload);
        prop_assert!(packet.len() <= payload.len() + SEAL_OVERHEAD_MAX && packet.len() <= PACKET_MAX);
        let mut forged = packet.clone();
        let bit = bit.index(8 * forged.len());
        forged[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(opener.open(&mut forged).is_err());
        for len in [0, packet.len() / 2, packet.len() - 1] {
            prop_assert!(opener.open(&mut packet[..len].to_vec()).is_err());
        }
        let mut datagram = packet;
        let opened = opener.open(&mut datagram).unwrap();
        prop_assert_eq!((opened.kind, opened.sequence), (PacketKind::Payload, earlier));
        prop_assert_eq!(&*opened.body, &payload[..]);
    }
}
