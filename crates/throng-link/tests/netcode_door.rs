//! Which requests the door accepts and refuses, and their cost for the server.

use std::net::SocketAddr;

use crate::netcode_stage::*;
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
    assert_eq!(check(&|r| r[22..30].copy_from_slice(&(UNIX_S - 10).to_le_bytes())), Err(DropReason::TokenExpired));
    // Another expiry, another nonce, and a changed section are all caught by the section's tag.
    assert_eq!(check(&|r| r[29] = 0x7f), Err(DropReason::TokenNotAuthentic));
    assert_eq!(check(&|r| r[30] ^= 1), Err(DropReason::TokenNotAuthentic));
    assert_eq!(check(&|r| r[54] ^= 1), Err(DropReason::TokenNotAuthentic));
    assert_eq!(check(&|r| r[REQUEST_LEN - 1] ^= 1), Err(DropReason::TokenNotAuthentic));
    assert_eq!((server.door.pending_len(), server.door.used_tokens_len()), (0, 0));
    assert_eq!(server.door.counters().dropped(DropReason::TokenNotAuthentic), 4);
}

#[test]
fn an_expired_token_does_not_get_in() {
    let mut server = Server::new(1);
    // Clocks differ: ten seconds more are given.
    server.unix_s = UNIX_S + 39;
    assert_eq!(server.handle(NOW, client_address(1), &request(&token(1))).unwrap().len(), 333);
    server.unix_s = UNIX_S + 40;
    assert_eq!(denial_of(&mut server, token(2)), ConnectError::Denied(Denial::TokenExpired));
}

#[test]
fn a_token_that_expires_while_its_address_is_pending_does_not_get_in() {
    let endless = |client_id| token_with(ConnectTokenOptions { timeout_s: -1, ..token_options(client_id) });
    let (mut server, from) = (Server::new(2), client_address(1));
    let mut client = ClientHandshake::new(endless(1), NOW);
    let shown = poll(&mut client, NOW);
    let challenge = server.handle(NOW, from, &shown).unwrap();
    deliver(&mut client, NOW, challenge);
    let answer = poll(&mut client, NOW);

    // Ten seconds more are given, and to repeat the request gives no more than that.
    server.unix_s = UNIX_S + 39;
    let later = NOW.after(SEND_INTERVAL);
    assert_eq!(server.handle(later, from, &shown).unwrap().len(), 333);
    server.unix_s = UNIX_S + 40;
    assert_eq!(server.handle(later, from, &answer), Err(DropReason::UnknownAddress));
    assert_eq!(server.door.pending_len(), 0);

    server.unix_s = UNIX_S + 39;
    let shown = request(&endless(2));
    assert_eq!(server.handle(NOW, client_address(2), &shown).unwrap().len(), 333);
    server.unix_s = UNIX_S + 40;
    assert_eq!(server.handle(later, client_address(2), &shown).unwrap().len(), 25, "a denial");
    assert_eq!(server.door.counters().denied(Denial::TokenExpired), 1);
    assert_eq!((server.door.pending_len(), server.connected.len()), (0, 0));
}

/// The answer to a client with this token.
fn denial_of(server: &mut Server, token: ConnectToken) -> ConnectError {
    let mut client = ClientHandshake::new(token, NOW);
    let denied = server.handle(NOW, client_address(77), &poll(&mut client, NOW)).unwrap();
    assert!(matches!(deliver(&mut client, NOW, denied), ClientOutcome::Progress));
    let ClientState::Failed(error) = client.state() else { panic!("{:?}", client.state()) };
    error
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
fn nobody_on_the_way_can_change_the_cipher() {
    let versions = Suite::ALL.map(Suite::version);
    for client_id in 1..=2 {
        let mut server = Server::new(1);
        let mut request = request(&token(client_id));
        let own = token(client_id).suite().version();
        assert_eq!(request[1..14], own);
        let other = versions.into_iter().find(|version| *version != own).unwrap();
        request[1..14].copy_from_slice(&other);
        assert_eq!(server.handle(NOW, client_address(1), &request), Err(DropReason::TokenNotAuthentic));
        request[1..14].copy_from_slice(b"THRONG 9.99X\0");
        assert_eq!(server.handle(NOW, client_address(1), &request), Err(DropReason::RequestVersion));
        request[1..14].copy_from_slice(&own);
        assert!(server.handle(NOW, client_address(1), &request).is_ok());
    }
}

/// Each of the servers believes that it is the only one that accepted the token. With the standard's cipher, their first packets
/// have the same nonce: a known weakness.
#[test]
fn servers_that_accept_the_same_token_have_nonces_of_their_own() {
    for client_id in 1..=2 {
        let keep_alives = [1, 2].map(|seed| {
            let mut server = Server::new(1);
            let options = ServerOptions::new(PROTOCOL_ID, private_key(), vec![server_address()]);
            server.door = ServerHandshake::new(options, &mut random(seed));
            let (mut client, _) = challenged(&mut server, client_address(1), token(client_id));
            server.handle(NOW, client_address(1), &poll(&mut client, NOW)).unwrap()
        });
        let [first, second] = &keep_alives;
        assert_eq!(first[..2], second[..2], "the same kind and sequence number");
        assert_eq!(first == second, token(client_id).suite() == Suite::ChaCha20Poly1305);
    }
}

/// A prepared key of each direction is 1 KiB per connection, which a server with many connections does not spend.
#[test]
fn connections_of_large_servers_hold_bare_keys_and_work_alike() {
    let options = || ServerOptions::new(PROTOCOL_ID, private_key(), vec![server_address()]);
    for (seats, form) in [(2_048, KeyForm::Prepared), (2_049, KeyForm::Bare)] {
        assert_eq!(options().sized_for(seats).key_form, form);
        for client_id in 1..=2 {
            let token = token(client_id);
            let is_prepared = form == KeyForm::Prepared && token.suite() == Suite::Aes256Gcm;
            let mut server = Server::with(1, options().sized_for(seats));
            let mut client = connect(&mut server, NOW, client_address(1), token);
            let (_, accepted) = &mut server.connected[0];
            for heap_bytes in [accepted.sealer.heap_bytes(), accepted.opener.heap_bytes()] {
                assert_eq!(heap_bytes > 0, is_prepared, "{seats} seats, client {client_id}");
            }
            let opened =
                client.opener.open(&mut seal(&mut accepted.sealer, b"down")).map(|opened| opened.body.to_vec());
            assert_eq!(opened, Ok(b"down".to_vec()));
            let opened = accepted.opener.open(&mut seal(&mut client.sealer, b"up")).map(|opened| opened.body.to_vec());
            assert_eq!(opened, Ok(b"up".to_vec()));
        }
    }
}

#[test]
fn a_token_shown_from_another_address_is_refused_while_the_first_may_ask_again() {
    let mut server = Server::new(2);
    let request = request(&token(1));
    assert!(server.handle(NOW, client_address(1), &request).is_ok());
    assert_eq!(server.handle(NOW, client_address(2), &request), Err(DropReason::TokenUsedElsewhere));
    assert!(server.handle(NOW.after(SEND_INTERVAL), client_address(1), &request).is_ok());
    assert_eq!((server.door.pending_len(), server.door.used_tokens_len()), (1, 1));
}

/// A client that has been challenged, and its request.
fn challenged(server: &mut Server, from: SocketAddr, token: ConnectToken) -> (ClientHandshake, Vec<u8>) {
    let mut client = ClientHandshake::new(token, NOW);
    let request = poll(&mut client, NOW);
    let challenge = server.handle(NOW, from, &request).unwrap();
    deliver(&mut client, NOW, challenge);
    (client, request)
}

#[test]
fn a_recorded_session_cannot_be_replayed_after_the_client_has_left() {
    let mut server = Server::new(2);
    let from = client_address(1);
    let (mut client, request) = challenged(&mut server, from, token(1));
    let response = poll(&mut client, NOW);
    assert!(server.handle(NOW, from, &response).is_ok());
    assert_eq!(server.handle(NOW, from, &response), Err(DropReason::UnknownAddress));
    assert!(server.handle(NOW, from, &request).is_ok_and(|denied| denied.len() == 25));

    server.connected.clear();
    assert!(server.handle(NOW, from, &request).is_ok_and(|denied| denied.len() == 25));
    assert_eq!(server.handle(NOW, from, &response), Err(DropReason::UnknownAddress));
    assert!(server.handle(NOW, client_address(2), &request).is_ok_and(|denied| denied.len() == 25));
    assert_eq!((server.door.counters().denied(Denial::TokenSpent), server.connected.len()), (3, 0));

    connect(&mut server, NOW, from, fresh_token(1, 99));
}

#[test]
fn the_newest_token_of_a_client_replaces_its_connection_even_in_a_full_server() {
    let mut server = Server::new(2);
    connect(&mut server, NOW, client_address(1), token(1));
    connect(&mut server, NOW, client_address(2), token(2));
    // From another address, and from the same one.
    for (number, from) in [(98, client_address(3)), (99, client_address(3))] {
        let client = connect(&mut server, NOW, from, fresh_token(1, number));
        assert_eq!((client.client_index, server.connected.len()), (0, 2));
        assert!(server.connected.last().is_some_and(|(_, accepted)| accepted.is_replacement));
    }
    assert_eq!(server.door.counters().replaced, 2);
}

#[test]
fn an_older_token_does_not_replace_a_newer_connection() {
    let mut server = Server::new(2);
    let newer = token_with(ConnectTokenOptions { expire_unix_s: UNIX_S + 31, ..token_options(1) });
    connect(&mut server, NOW, client_address(1), newer);
    assert_eq!(denial_of(&mut server, fresh_token(1, 99)), ConnectError::Denied(Denial::AlreadyConnected));
    assert_eq!((server.door.counters().replaced, server.connected.len()), (0, 1));
}

#[test]
fn a_server_that_refuses_second_connections_says_so_at_the_request_and_at_the_response() {
    let mut options = ServerOptions::new(PROTOCOL_ID, private_key(), vec![server_address()]);
    options.second_connection = SecondConnection::Refuse;
    let mut server = Server::with(3, options);
    let (mut late, _) = challenged(&mut server, client_address(3), fresh_token(1, 98));

    connect(&mut server, NOW, client_address(1), token(1));
    assert_eq!(denial_of(&mut server, fresh_token(1, 99)), ConnectError::Denied(Denial::AlreadyConnected));
    let denied = server.handle(NOW, client_address(3), &poll(&mut late, NOW)).unwrap();
    deliver(&mut late, NOW, denied);
    assert_eq!(late.state(), ClientState::Failed(ConnectError::Denied(Denial::AlreadyConnected)));
    assert_eq!(server.connected.len(), 1);
}

#[test]
fn a_client_is_told_at_once_what_can_be_told_safely_and_nothing_else() {
    let mut server = Server::new(2);
    let other = ConnectTokenOptions { protocol_id: PROTOCOL_ID + 1, ..token_options(3) };
    assert_eq!(denial_of(&mut server, token_with(other)), ConnectError::Denied(Denial::OtherProtocol));
    // A token for another server, or used from another address before: an attacker who recorded the request could ask
    // as well.
    let elsewhere = ConnectTokenOptions {
        protocol_id: PROTOCOL_ID + 1,
        servers: vec!["10.0.0.1:40001".parse().unwrap()],
        ..token_options(4)
    };
    let refused = server.handle(NOW, client_address(4), &request(&token_with(elsewhere)));
    assert_eq!(refused, Err(DropReason::TokenForOtherServer));
    let request = request(&token(5));
    assert!(server.handle(NOW, client_address(5), &request).is_ok());
    assert_eq!(server.handle(NOW, client_address(6), &request), Err(DropReason::TokenUsedElsewhere));
}

#[test]
fn a_spent_token_is_denied_but_its_owner_does_not_believe_that_while_it_joins() {
    let mut server = Server::new(2);
    let from = client_address(1);
    let (mut client, request) = challenged(&mut server, from, token(1));
    server.handle(NOW, from, &poll(&mut client, NOW)).unwrap(); // the keep-alive is lost
    // Somebody replays the request and passes the answer on.
    let denied = server.handle(NOW, client_address(9), &request).unwrap();
    assert!(matches!(deliver(&mut client, NOW, denied), ClientOutcome::Ignored(DropReason::UnexpectedKind)));
    let mut keep_alive = Vec::new();
    server.connected[0].1.sealer.seal_keep_alive(0, 2, &mut keep_alive).unwrap();
    assert!(matches!(deliver(&mut client, NOW, keep_alive), ClientOutcome::Connected(_)));

    assert_eq!(denial_of(&mut server, token(1)), ConnectError::Denied(Denial::TokenSpent));
}

#[test]
fn tokens_of_the_new_key_and_of_the_one_before_open_the_door() {
    let new_key = Key::new([0x43; 32]);
    let mut options = ServerOptions::new(PROTOCOL_ID, new_key.clone(), vec![server_address()]);
    options.previous_private_key = Some(private_key());
    let mut server = Server::with(3, options);
    connect(&mut server, NOW, client_address(1), token(1));
    let token = ConnectToken::generate(&token_options(2), &new_key, &mut random(2)).unwrap();
    connect(&mut server, NOW, client_address(2), token);
    let forged = ConnectToken::generate(&token_options(3), &Key::new([0x44; 32]), &mut random(3)).unwrap();
    assert_eq!(server.handle(NOW, client_address(3), &request(&forged)), Err(DropReason::TokenNotAuthentic));
}

#[test]
fn a_wall_clock_that_steps_back_an_hour_does_not_revive_spent_tokens() {
    let mut server = Server::new(4);
    let from = client_address(1);
    let spent = request(&token(1));
    connect(&mut server, NOW, from, token(1));
    server.connected.clear();
    // An hour later a client comes, and expired entries are removed; then the clock is set back.
    server.unix_s = UNIX_S + 3_600;
    let late = token_with(ConnectTokenOptions { expire_unix_s: UNIX_S + 3_700, ..token_options(2) });
    connect(&mut server, NOW, client_address(2), late);
    assert_eq!(server.door.used_tokens_len(), 1);
    server.unix_s = UNIX_S;
    assert!(server.handle(NOW, from, &spent).is_ok_and(|denied| denied.len() == 25));
    assert_eq!(server.door.counters().denied(Denial::TokenExpired), 1);
    // New players come in all the same.
    let fresh = token_with(ConnectTokenOptions { expire_unix_s: UNIX_S + 31, ..token_options(3) });
    connect(&mut server, NOW, client_address(3), fresh);
}

#[test]
fn a_flood_of_forged_requests_costs_no_more_work_than_its_budget() {
    let mut options = ServerOptions::new(PROTOCOL_ID, private_key(), vec![server_address()]);
    (options.requests_per_s, options.requests_burst) = (100, 50);
    let mut server = Server::with(4, options);
    let mut forged = request(&token(1));
    forged[200] ^= 1;
    for _ in 0..1_000 {
        let _ = server.handle(NOW, client_address(1), &forged);
    }
    let dropped = |server: &Server, reason| server.door.counters().dropped(reason);
    assert_eq!(dropped(&server, DropReason::TokenNotAuthentic), 50);
    assert_eq!(dropped(&server, DropReason::TooManyRequests), 950);
    // A client that asks again gets in as soon as there is work to give away.
    let later = NOW.after(std::time::Duration::from_millis(100));
    connect(&mut server, later, client_address(2), token(2));
}

#[test]
fn a_request_that_comes_again_is_answered_without_work() {
    let mut options = ServerOptions::new(PROTOCOL_ID, private_key(), vec![server_address()]);
    (options.requests_per_s, options.requests_burst) = (1, 1);
    let mut server = Server::with(4, options);
    let mine = request(&token(1));
    for number in 0..9 {
        let now = NOW.after(SEND_INTERVAL * number);
        assert_eq!(server.handle(now, client_address(1), &mine).map(|reply| reply.len()), Ok(333));
    }
    let refused = server.handle(NOW, client_address(2), &request(&token(2)));
    assert_eq!(refused, Err(DropReason::TooManyRequests));
}

#[test]
fn a_flood_of_repeated_requests_is_answered_forty_times_a_second() {
    let mut server = Server::new(4);
    let mine = request(&token(1));
    let answered = (0..1_000).filter(|millis| {
        let now = NOW.after(std::time::Duration::from_millis(*millis));
        server.handle(now, client_address(1), &mine).is_ok()
    });
    assert_eq!(answered.count(), 40);
    assert_eq!(server.door.counters().dropped(DropReason::RepeatedTooSoon), 960);
}

#[test]
fn a_flood_of_forged_answers_costs_no_more_work_than_its_budget() {
    let mut options = ServerOptions::new(PROTOCOL_ID, private_key(), vec![server_address()]);
    (options.requests_per_s, options.requests_burst) = (100, 50);
    let mut server = Server::with(4, options);
    let (mut client, _) = challenged(&mut server, client_address(1), token(1));
    let genuine = poll(&mut client, NOW);
    let mut forged = genuine.clone();
    forged[200] ^= 1;
    for _ in 0..1_000 {
        let _ = server.handle(NOW, client_address(1), &forged);
    }
    let dropped = |reason| server.door.counters().dropped(reason);
    assert_eq!((dropped(DropReason::NotAuthentic), dropped(DropReason::TooManyRequests)), (50, 950));
    assert!(server.handle(NOW.after(SEND_INTERVAL), client_address(1), &genuine).is_ok());
}

#[test]
fn a_client_that_has_been_challenged_gets_in_at_once_during_a_flood_of_requests() {
    let mut options = ServerOptions::new(PROTOCOL_ID, private_key(), vec![server_address()]);
    (options.requests_per_s, options.requests_burst) = (100, 50);
    let mut server = Server::with(4, options);
    let (mut client, _) = challenged(&mut server, client_address(1), token(1));
    let mut forged = request(&token(2));
    forged[200] ^= 1;
    for number in 0..1_000 {
        assert!(server.handle(NOW, client_address(2 + number), &forged).is_err());
    }
    assert_eq!(server.door.counters().dropped(DropReason::TooManyRequests), 951);
    let keep_alive = server.handle(NOW, client_address(1), &poll(&mut client, NOW)).unwrap();
    assert!(matches!(deliver(&mut client, NOW, keep_alive), ClientOutcome::Connected(_)));
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
    assert_eq!(late.state(), ClientState::Failed(ConnectError::Denied(Denial::Full)));

    let mut third = ClientHandshake::new(token(3), NOW);
    let denied = server.handle(NOW, client_address(3), &poll(&mut third, NOW)).unwrap();
    deliver(&mut third, NOW, denied);
    assert_eq!(third.state(), ClientState::Failed(ConnectError::Denied(Denial::Full)));
    assert_eq!((server.door.counters().denied(Denial::Full), server.connected.len()), (3, 1));
}

#[test]
fn a_client_that_is_to_come_later_keeps_its_token_and_asks_until_it_may() {
    let mut server = Server::new(1);
    let mut client = ClientHandshake::new(token(1), NOW);
    let challenge = server.handle(NOW, client_address(1), &poll(&mut client, NOW)).unwrap();
    deliver(&mut client, NOW, challenge);
    server.admission = Admission::Later;
    let mut now = NOW;
    for _ in 0..30 {
        // After a second without an answer it shows its token again.
        if let Ok(challenge) = server.handle(now, client_address(1), &poll(&mut client, now)) {
            deliver(&mut client, now, challenge);
        }
        now = now.after(SEND_INTERVAL);
    }
    assert!(server.connected.is_empty() && server.door.counters().dropped(DropReason::AdmittedLater) > 20);
    server.admission = Admission::Denied;
    // If it shows its token just now, it is challenged once more before its response is denied.
    for _ in 0..2 {
        let answer = server.handle(now, client_address(1), &poll(&mut client, now)).unwrap();
        deliver(&mut client, now, answer);
        now = now.after(SEND_INTERVAL);
        if client.state() != ClientState::SendingResponse {
            break;
        }
    }
    assert_eq!(client.state(), ClientState::Failed(ConnectError::Denied(Denial::Full)));
    // The token has led to no connection, so it is as good as new.
    server.admission = Admission::Granted;
    connect(&mut server, now, client_address(1), token(1));
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
fn a_token_that_is_pending_at_two_addresses_gets_in_from_one() {
    // The table of tokens has room for one: each other token takes the place of the one before.
    for forgets_the_spent_one in [false, true] {
        let mut options = ServerOptions::new(PROTOCOL_ID, private_key(), vec![server_address()]);
        options.used_tokens_max = 1;
        let mut server = Server::with(4, options);
        let (mut first, _) = challenged(&mut server, client_address(1), token(1));
        challenged(&mut server, client_address(3), token(3));
        let (mut second, _) = challenged(&mut server, client_address(2), token(1));
        assert!(server.handle(NOW, client_address(1), &poll(&mut first, NOW)).is_ok());
        server.connected.clear();
        if forgets_the_spent_one {
            challenged(&mut server, client_address(4), token(4));
        }
        let answer = poll(&mut second, NOW);
        if forgets_the_spent_one {
            // A lost denial is repeated.
            for denied in 1..=2 {
                assert_eq!(server.handle(NOW, client_address(2), &answer).unwrap().len(), 25);
                assert_eq!(server.door.counters().denied(Denial::TokenExpired), denied);
            }
        } else {
            assert_eq!(server.handle(NOW, client_address(2), &answer), Err(DropReason::TokenUsedElsewhere));
            assert!(!server.door.is_pending(client_address(2)));
        }
        assert!(server.connected.is_empty());
    }
}

#[test]
fn a_challenge_cannot_be_answered_under_another_token() {
    let mut server = Server::new(2);
    let from = client_address(1);
    let mut first = ClientHandshake::new(token(1), NOW);
    let challenge = server.handle(NOW, from, &poll(&mut first, NOW)).unwrap();
    deliver(&mut first, NOW, challenge);
    // The other token has the keys and the cipher of the first, so that only the challenge tells them apart.
    let twin = fresh_token(3, 1);
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
fn each_token_that_is_forgotten_before_it_expires_is_counted() {
    let mut options = ServerOptions::new(PROTOCOL_ID, private_key(), vec![server_address()]);
    options.used_tokens_max = 1;
    let mut server = Server::with(4, options);
    let mut first = ClientHandshake::new(token(1), NOW);
    let challenge = server.handle(NOW, client_address(1), &poll(&mut first, NOW)).unwrap();
    deliver(&mut first, NOW, challenge);
    server.handle(NOW, client_address(2), &request(&token(2))).unwrap();
    assert_eq!(server.door.counters().used_tokens_evicted, 1, "the claim of the first");
    server.handle(NOW, client_address(1), &poll(&mut first, NOW)).unwrap();
    assert_eq!((server.door.counters().used_tokens_evicted, server.door.used_tokens_len()), (2, 1));
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

#[test]
fn a_door_for_many_clients_takes_requests_of_all_of_them_at_once() {
    const CLIENTS: u32 = 8_000;
    let options = || ServerOptions::new(PROTOCOL_ID, private_key(), vec![server_address()]);
    let (usual, sized) = (options(), options().sized_for(CLIENTS));
    assert!(usual.pending_max < CLIENTS as usize && usual.requests_burst < CLIENTS);
    assert!(sized.pending_max >= CLIENTS as usize && sized.requests_burst >= CLIENTS);
    // Tokens of earlier attempts are remembered until they expire.
    assert!(options().sized_for(10 * CLIENTS).used_tokens_max >= 20 * CLIENTS as usize);
    let small = options().sized_for(1);
    assert!(small.pending_max >= usual.pending_max && small.used_tokens_max >= usual.used_tokens_max);
}
