//! Who gets in, who does not, and what it costs the server.

mod netcode_stage;

use netcode_stage::*;
use throng_link::netcode::*;
use throng_wire::Time;

const NOW: Time = Time::from_secs(100);

/// A token with keys that come from `seed`.
fn fresh_token(client_id: u64, seed: u64) -> ConnectToken {
    ConnectToken::generate(&token_options(client_id), &private_key(), &mut random(seed)).unwrap()
}

#[test]
fn a_client_with_a_token_gets_the_free_seat_and_both_ends_talk() {
    let mut server = Server::new(3);
    let mut first = connect(&mut server, NOW, client_address(1), token(1));
    let second = connect(&mut server, NOW, client_address(2), token(2));
    assert_eq!((first.client_index, second.client_index, second.max_clients), (0, 1, 3));
    assert_eq!(first.timeout, Some(std::time::Duration::from_secs(5)));

    let (from, accepted) = &mut server.connected[0];
    assert_eq!((*from, accepted.client_id, accepted.client_index), (client_address(1), 1, 0));
    assert_eq!((accepted.user_data, accepted.expire_unix_s), ([1; USER_DATA_LEN], UNIX_S + 30));
    assert_eq!(accepted.timeout, first.timeout);

    let mut up = seal(&mut first.sealer, b"up");
    let opened = accepted.opener.open(&mut up).unwrap();
    assert_eq!((opened.kind, &*opened.body), (PacketKind::Payload, &b"up"[..]));
    let mut down = seal(&mut accepted.sealer, b"down");
    let opened = first.opener.open(&mut down).unwrap();
    assert_eq!((opened.kind, &*opened.body), (PacketKind::Payload, &b"down"[..]));
    let mut leave = Vec::new();
    first.sealer.seal_disconnect(&mut leave).unwrap();
    assert_eq!(accepted.opener.open(&mut leave).unwrap().kind, PacketKind::Disconnect);
    assert_eq!((server.door.pending_len(), server.door.used_tokens_len()), (0, 2));
}

#[test]
fn the_packets_have_the_published_lengths() {
    let mut server = Server::new(1);
    let mut client = ClientHandshake::new(token(1), NOW);
    let request = poll(&mut client, NOW);
    let challenge = server.handle(NOW, client_address(1), &request).unwrap();
    let lens = (request.len(), challenge.len());
    deliver(&mut client, NOW, challenge);
    let response = poll(&mut client, NOW);
    let keep_alive = server.handle(NOW, client_address(1), &response).unwrap();
    assert_eq!((lens, response.len(), keep_alive.len()), ((REQUEST_LEN, 333), 326, 26));
}

#[test]
fn a_request_that_is_wrong_in_any_part_is_dropped_under_its_reason() {
    let mut server = Server::new(1);
    let good = request(&token(1));
    let mut check = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut request = good.clone();
        change(&mut request);
        server.handle(NOW, client_address(1), &request).map(|_| ())
    };
    assert_eq!(check(&|r| r.clear()), Err(DropReason::TooShort));
    assert_eq!(check(&|r| r.truncate(REQUEST_LEN - 1)), Err(DropReason::RequestLength));
    assert_eq!(check(&|r| r.push(0)), Err(DropReason::RequestLength));
    assert_eq!(check(&|r| r[12] = b'1'), Err(DropReason::RequestVersion));
    assert_eq!(check(&|r| r[14] ^= 1), Err(DropReason::RequestProtocol));
    assert_eq!(check(&|r| r[22..30].copy_from_slice(&UNIX_S.to_le_bytes())), Err(DropReason::TokenExpired));
    // A later expiry, another nonce, and a changed section are all caught by the section's tag.
    assert_eq!(check(&|r| r[29] = 0xff), Err(DropReason::TokenNotAuthentic));
    assert_eq!(check(&|r| r[30] ^= 1), Err(DropReason::TokenNotAuthentic));
    assert_eq!(check(&|r| r[54] ^= 1), Err(DropReason::TokenNotAuthentic));
    assert_eq!(check(&|r| r[REQUEST_LEN - 1] ^= 1), Err(DropReason::TokenNotAuthentic));
    assert_eq!((server.door.pending_len(), server.door.used_tokens_len()), (0, 0));
    assert_eq!(server.door.counters().dropped(DropReason::TokenNotAuthentic), 4);
}

#[test]
fn an_expired_token_does_not_get_in() {
    let mut server = Server::new(1);
    server.unix_s = UNIX_S + 29;
    assert!(server.handle(NOW, client_address(1), &request(&token(1))).is_ok());
    server.unix_s = UNIX_S + 30;
    assert_eq!(server.handle(NOW, client_address(1), &request(&token(1))), Err(DropReason::TokenExpired));
}

#[test]
fn a_token_for_another_server_or_of_another_backend_does_not_get_in() {
    let mut server = Server::new(1);
    let elsewhere = token_with(ConnectTokenOptions {
        servers: vec!["10.0.0.1:40001".parse().unwrap(), "10.0.0.2:40000".parse().unwrap()],
        ..token_options(1)
    });
    let refused = server.handle(NOW, client_address(1), &request(&elsewhere));
    assert_eq!(refused, Err(DropReason::TokenForOtherServer));
    let forged = ConnectToken::generate(&token_options(1), &Key::new([0x43; 32]), &mut random(1)).unwrap();
    assert_eq!(server.handle(NOW, client_address(1), &request(&forged)), Err(DropReason::TokenNotAuthentic));

    let both = ConnectTokenOptions { servers: vec!["[::1]:9".parse().unwrap(), server_address()], ..token_options(1) };
    assert!(server.handle(NOW, client_address(1), &request(&token_with(both))).is_ok());
}

#[test]
fn a_token_shown_from_another_address_is_refused_while_the_first_may_ask_again() {
    let mut server = Server::new(2);
    let request = request(&token(1));
    assert!(server.handle(NOW, client_address(1), &request).is_ok());
    assert_eq!(server.handle(NOW, client_address(2), &request), Err(DropReason::TokenUsedElsewhere));
    assert!(server.handle(NOW, client_address(1), &request).is_ok());
    assert_eq!((server.door.pending_len(), server.door.used_tokens_len()), (1, 1));
}

#[test]
fn a_recorded_session_cannot_be_replayed_after_the_client_has_left() {
    let mut server = Server::new(2);
    let from = client_address(1);
    let mut client = ClientHandshake::new(token(1), NOW);
    let request = poll(&mut client, NOW);
    let challenge = server.handle(NOW, from, &request).unwrap();
    deliver(&mut client, NOW, challenge);
    let response = poll(&mut client, NOW);
    assert!(server.handle(NOW, from, &response).is_ok());
    assert_eq!(server.handle(NOW, from, &response), Err(DropReason::UnknownAddress));
    assert_eq!(server.handle(NOW, from, &request), Err(DropReason::ClientConnected));

    server.connected.clear();
    assert_eq!(server.handle(NOW, from, &request), Err(DropReason::TokenSpent));
    assert_eq!(server.handle(NOW, from, &response), Err(DropReason::UnknownAddress));
    assert_eq!(server.handle(NOW, client_address(2), &request), Err(DropReason::TokenSpent));

    connect(&mut server, NOW, from, fresh_token(1, 99));
}

#[test]
fn a_client_is_connected_once_however_many_tokens_it_has() {
    let mut server = Server::new(3);
    let mut late = ClientHandshake::new(fresh_token(1, 98), NOW);
    let challenge = server.handle(NOW, client_address(3), &poll(&mut late, NOW)).unwrap();
    deliver(&mut late, NOW, challenge);

    connect(&mut server, NOW, client_address(1), token(1));
    let refused = server.handle(NOW, client_address(2), &request(&fresh_token(1, 99)));
    assert_eq!(refused, Err(DropReason::ClientConnected));
    let refused = server.handle(NOW, client_address(3), &poll(&mut late, NOW));
    assert_eq!(refused, Err(DropReason::ClientConnected));
}

#[test]
fn a_full_server_denies_at_the_request_and_at_the_response() {
    let mut server = Server::new(1);
    let mut late = ClientHandshake::new(token(2), NOW);
    let challenge = server.handle(NOW, client_address(2), &poll(&mut late, NOW)).unwrap();
    deliver(&mut late, NOW, challenge);
    connect(&mut server, NOW, client_address(1), token(1));

    let response = poll(&mut late, NOW);
    server.handle(NOW, client_address(2), &response).unwrap(); // the first denial is lost
    let denied = server.handle(NOW, client_address(2), &response).unwrap();
    assert_eq!(denied.len(), 25);
    deliver(&mut late, NOW, denied);
    assert_eq!(late.state(), ClientState::Failed(ConnectError::Denied));

    let mut third = ClientHandshake::new(token(3), NOW);
    let denied = server.handle(NOW, client_address(3), &poll(&mut third, NOW)).unwrap();
    deliver(&mut third, NOW, denied);
    assert_eq!(third.state(), ClientState::Failed(ConnectError::Denied));
    assert_eq!((server.door.counters().denied, server.connected.len()), (3, 1));
}

#[test]
fn a_response_must_come_from_its_address_in_time_and_unchanged() {
    let mut server = Server::new(2);
    let mut client = ClientHandshake::new(token(1), NOW);
    let challenge = server.handle(NOW, client_address(1), &poll(&mut client, NOW)).unwrap();
    deliver(&mut client, NOW, challenge);
    let response = poll(&mut client, NOW);

    assert_eq!(server.handle(NOW, client_address(2), &response), Err(DropReason::UnknownAddress));
    for at in [2, 40, response.len() - 1] {
        let mut forged = response.clone();
        forged[at] ^= 1;
        assert_eq!(server.handle(NOW, client_address(1), &forged), Err(DropReason::NotAuthentic), "byte {at}");
    }
    let late = NOW.after(std::time::Duration::from_secs(TIMEOUT_S as u64));
    assert!(server.connected.is_empty());
    assert_eq!(server.handle(late, client_address(1), &response), Err(DropReason::UnknownAddress));
    assert_eq!(server.door.pending_len(), 0);
}

#[test]
fn a_challenge_cannot_be_answered_under_another_token() {
    let mut server = Server::new(2);
    let from = client_address(1);
    let mut first = ClientHandshake::new(token(1), NOW);
    let challenge = server.handle(NOW, from, &poll(&mut first, NOW)).unwrap();
    deliver(&mut first, NOW, challenge);
    // Token 2 has the keys of token 1, so that only the challenge tells them apart.
    let twin = fresh_token(2, 1);
    assert!(server.handle(NOW, from, &request(&twin)).is_ok());
    let refused = server.handle(NOW, from, &poll(&mut first, NOW));
    assert_eq!(refused, Err(DropReason::ChallengeForOtherToken));
}

#[test]
fn packets_of_a_connection_mean_nothing_at_the_door() {
    let mut server = Server::new(2);
    let mut client = connect(&mut server, NOW, client_address(1), token(1));
    let payload = seal(&mut client.sealer, b"late");
    server.connected.clear();
    assert_eq!(server.handle(NOW, client_address(1), &payload), Err(DropReason::UnknownAddress));

    let challenge = server.handle(NOW, client_address(2), &request(&token(2))).unwrap();
    assert_eq!(server.handle(NOW, client_address(2), &payload), Err(DropReason::UnexpectedKind));
    assert_eq!(server.handle(NOW, client_address(2), &challenge), Err(DropReason::UnexpectedKind));
}

#[test]
fn a_flood_of_genuine_requests_stays_within_the_limits_and_the_newest_still_get_in() {
    let mut options = ServerOptions::new(PROTOCOL_ID, private_key(), vec![server_address()]);
    (options.pending_max, options.used_tokens_max) = (16, 64);
    let mut server = Server::with(4, options);
    for client_id in 0..500 {
        let from = client_address(client_id as u16);
        assert!(server.handle(NOW, from, &request(&token(client_id))).is_ok());
        assert!(server.door.pending_len() <= 16 && server.door.used_tokens_len() <= 64);
    }
    let counters = server.door.counters();
    assert_eq!((counters.pending_evicted, counters.used_tokens_evicted), (500 - 16, 500 - 64));
    connect(&mut server, NOW, client_address(600), token(600));
}

#[test]
fn a_flood_of_forged_requests_costs_no_memory() {
    let mut server = Server::new(4);
    let mut forged = request(&token(1));
    let mut rng = fastrand::Rng::with_seed(3);
    for _ in 0..2_000 {
        rng.fill(&mut forged[30..]);
        let from = client_address(rng.u16(..1000));
        assert_eq!(server.handle(NOW, from, &forged), Err(DropReason::TokenNotAuthentic));
    }
    assert_eq!((server.door.pending_len(), server.door.used_tokens_len()), (0, 0));
}

#[test]
fn two_servers_that_challenge_the_same_token_use_other_nonces() {
    let start = |seed| {
        let options = ServerOptions::new(PROTOCOL_ID, private_key(), vec![server_address()]);
        let mut server = Server::new(1);
        server.door = ServerHandshake::new(options, &mut random(seed));
        let challenge = server.handle(NOW, client_address(1), &request(&token(1))).unwrap();
        u64::from_le_bytes(challenge[1..9].try_into().unwrap())
    };
    let (a, b) = (start(1), start(2));
    assert!(a >= 1 << 63 && b >= 1 << 63, "{a:x} {b:x}");
    assert!(a.abs_diff(b) > 1 << 32, "{a:x} {b:x}");
}
