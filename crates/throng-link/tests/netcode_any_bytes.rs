//! Any bytes cause no panic, use bounded memory, and let nobody in without a token.

use crate::netcode_stage::*;
use proptest::prelude::*;
use throng_link::netcode::*;
use throng_wire::Time;

const NOW: Time = Time::from_secs(9);

/// Bytes of any kind, or a genuine packet with a few bytes changed, cut or added.
fn datagrams(genuine: Vec<Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let changes = proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4);
    let bent = (prop::sample::select(genuine), changes, 0usize..40).prop_map(|(mut bytes, changes, cut)| {
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        match cut {
            0..20 => {}
            20..30 => bytes.truncate(bytes.len().saturating_sub(cut)),
            _ => bytes.extend(std::iter::repeat_n(0x5a, cut)),
        }
        bytes
    });
    prop_oneof![proptest::collection::vec(any::<u8>(), 0..PACKET_MAX + 100), bent]
}

/// One packet of each kind that a handshake of client 1 and its connection produce, at a server with other secrets.
fn genuine_packets() -> Vec<Vec<u8>> {
    let options = ServerOptions::new(PROTOCOL_ID, private_key(), vec![server_address()]);
    let mut server = Server::new(1);
    server.door = ServerHandshake::new(options, &mut random(78));
    let mut client = ClientHandshake::new(token(1), NOW);
    let request = poll(&mut client, NOW);
    let challenge = server.handle(NOW, client_address(1), &request).unwrap();
    deliver(&mut client, NOW, challenge.clone());
    let response = poll(&mut client, NOW);
    let keep_alive = server.handle(NOW, client_address(1), &response).unwrap();
    let sealer = &mut server.connected[0].1.sealer;
    let payload = seal(sealer, &[1; 50]);
    let mut disconnect = Vec::new();
    sealer.seal_disconnect(&mut disconnect).unwrap();
    vec![request, challenge, response, keep_alive, payload, disconnect]
}

proptest! {
    #![proptest_config(throng_seeds::cases(256))]

    #[test]
    fn any_bytes_are_read_as_a_token_or_refused(bytes in proptest::collection::vec(any::<u8>(), CONNECT_TOKEN_LEN)) {
        let bytes: [u8; CONNECT_TOKEN_LEN] = bytes.try_into().unwrap();
        prop_assert!(ConnectToken::from_bytes(&bytes).is_err());
        let _ = PrivateToken::from_bytes(bytes.first_chunk().unwrap());
    }

    #[test]
    fn a_bent_token_is_refused_or_reads_the_same_again(
        changes in proptest::collection::vec((prop_oneof![0..60usize, 1077..CONNECT_TOKEN_LEN], any::<u8>()), 1..6),
    ) {
        let mut bytes = token(1).to_bytes();
        for (at, value) in changes {
            bytes[at] = value;
        }
        if let Ok(token) = ConnectToken::from_bytes(&bytes) {
            prop_assert!((1..=SERVERS_MAX).contains(&token.servers().len()));
            let again = ConnectToken::from_bytes(&token.to_bytes()).unwrap();
            prop_assert_eq!(again.to_bytes(), token.to_bytes());
            // A client can try any token, and ends.
            let mut client = ClientHandshake::new(token, NOW);
            client.poll_transmit(NOW, &mut Vec::new());
            client.poll_transmit(Time(u64::MAX), &mut Vec::new());
        }
    }

    #[test]
    fn the_door_stands_in_every_state(
        datagrams in proptest::collection::vec((datagrams(genuine_packets()), 0u16..3, 0u64..3), 1..30),
    ) {
        let mut server = Server::new(2);
        server.handle(NOW, client_address(1), &request(&token(2))).unwrap();
        for (datagram, from, seconds) in datagrams {
            let now = NOW.after(std::time::Duration::from_secs(seconds));
            let _ = server.handle(now, client_address(from), &datagram);
            prop_assert!(server.door.pending_len() <= 3);
            prop_assert!(server.door.used_tokens_len() <= 2);
        }
        // The genuine response answers a challenge that this server did not make.
        prop_assert!(server.connected.is_empty());
    }

    #[test]
    fn a_client_stands_in_every_state(
        datagrams in proptest::collection::vec((datagrams(genuine_packets()), 0u64..700), 1..30),
    ) {
        let mut client = ClientHandshake::new(token(1), NOW);
        let mut now = NOW;
        for (mut datagram, millis) in datagrams {
            now = now.after(std::time::Duration::from_millis(millis));
            let server = client.server();
            let _ = client.handle(now, server, &mut datagram);
            client.poll_transmit(now, &mut Vec::new());
        }
    }

    #[test]
    fn a_connection_stands(datagrams in proptest::collection::vec(datagrams(genuine_packets()), 1..30)) {
        let mut server = Server::new(1);
        let mut client = connect(&mut server, NOW, client_address(1), token(1));
        let (_, accepted) = &mut server.connected[0];
        for datagram in datagrams {
            let _ = client.opener.open(&mut datagram.clone());
            let _ = accepted.opener.open(&mut datagram.clone());
        }
    }
}
