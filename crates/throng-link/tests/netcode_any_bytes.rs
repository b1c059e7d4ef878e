//! Any bytes cause no panic, use bounded memory, and let nobody in without a token.

use crate::netcode_stage::*;
use proptest::prelude::*;
use throng_link::netcode::*;
use throng_wire::Time;

const NOW: Time = Time::from_secs(9);

/// Version, protocol, times: what stands before the nonce of a token.
const HEAD_BYTES: usize = 13 + 3 * 8;
/// Where the servers stand in a token, behind nonce, sealed section and timeout, and in a sealed section, behind client id and
/// timeout.
const TOKEN_SERVERS_AT: usize = HEAD_BYTES + 24 + PRIVATE_TOKEN_LEN + 4;
const PRIVATE_SERVERS_AT: usize = 8 + 4;

/// Writes how many servers there are, and the family of each: 1 for IPv4, 2 for IPv6. The addresses stay as they are.
/// Whether these servers can be read.
fn write_servers(bytes: &mut [u8], servers: u32, families: &[u8]) -> bool {
    bytes[..4].copy_from_slice(&servers.to_le_bytes());
    let mut at = 4;
    for &family in families.iter().take(servers as usize) {
        bytes[at] = family;
        match family {
            1 => at += 1 + 4 + 2,
            2 => at += 1 + 16 + 2,
            _ => return false,
        }
    }
    (1..=SERVERS_MAX as u32).contains(&servers)
}

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

    /// Random bytes behind a head that is in order: version, times, and a number of servers that is nearly possible.
    #[test]
    fn any_bytes_are_read_as_a_token_or_refused(
        bytes in proptest::collection::vec(any::<u8>(), CONNECT_TOKEN_LEN),
        families in proptest::collection::vec(prop_oneof![30 => 1u8..3, 1 => any::<u8>()], SERVERS_MAX),
        servers in 0u32..=SERVERS_MAX as u32 + 1,
    ) {
        let mut bytes: [u8; CONNECT_TOKEN_LEN] = bytes.try_into().unwrap();
        let genuine = token(1).to_bytes();
        bytes[..HEAD_BYTES].copy_from_slice(&genuine[..HEAD_BYTES]);
        let written = write_servers(&mut bytes[TOKEN_SERVERS_AT..], servers, &families);
        match ConnectToken::from_bytes(&bytes) {
            Ok(token) => {
                prop_assert!(written);
                prop_assert_eq!(token.servers().len(), servers as usize);
                let again = ConnectToken::from_bytes(&token.to_bytes()).unwrap();
                prop_assert_eq!(again.to_bytes(), token.to_bytes());
            }
            Err(_) => prop_assert!(!written),
        }
        let mut section = *bytes.first_chunk().unwrap();
        let written = write_servers(&mut section[PRIVATE_SERVERS_AT..], servers, &families);
        match PrivateToken::from_bytes(Suite::default(), &section) {
            Ok(token) => {
                prop_assert!(written);
                prop_assert_eq!(token.servers.len(), servers as usize);
            }
            Err(_) => prop_assert!(!written),
        }
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
        let keep_alive = genuine_packets().swap_remove(3);
        let mut client = ClientHandshake::new(token(1), NOW);
        let mut now = NOW;
        for (mut datagram, millis) in datagrams {
            now = now.after(std::time::Duration::from_millis(millis));
            let server = client.server();
            let is_genuine = datagram == keep_alive;
            let outcome = client.handle(now, server, &mut datagram);
            prop_assert!(is_genuine || !matches!(outcome, ClientOutcome::Connected(_)), "connected by a bent packet");
            client.poll_transmit(now, &mut Vec::new());
        }
    }

    #[test]
    fn a_connection_stands(datagrams in proptest::collection::vec(datagrams(genuine_packets()), 1..30)) {
        let mut server = Server::new(1);
        let mut client = connect(&mut server, NOW, client_address(1), token(1));
        let (_, accepted) = &mut server.connected[0];
        // Both sides have the keys of the same token.
        let genuine = genuine_packets();
        for datagram in datagrams {
            for opener in [&mut client.opener, &mut accepted.opener] {
                let is_open = opener.open(&mut datagram.clone()).is_ok();
                prop_assert!(!is_open || genuine.contains(&datagram), "a bent packet was opened");
            }
        }
        let is_open = |opener: &mut Opener, packet: &[u8]| opener.open(&mut packet.to_vec()).is_ok();
        // Some numbers were those of genuine packets.
        let fresh = (0..8).map(|_| seal(&mut accepted.sealer, b"the connection goes on")).last().unwrap();
        prop_assert!(is_open(&mut client.opener, &fresh));
    }
}
