//! A client's steps through the handshake, and its end when there is no answer.

use crate::netcode_stage::*;
use std::time::Duration;
use throng_link::netcode::*;
use throng_wire::Time;

const START: Time = Time::from_secs(50);

fn at(millis: u64) -> Time {
    START.after(Duration::from_millis(millis))
}

fn two_servers() -> ConnectToken {
    let servers = vec!["10.0.0.9:9".parse().unwrap(), server_address()];
    token_with(ConnectTokenOptions { servers, ..token_options(1) })
}

/// Polls in steps of 10 ms and returns when packets came, in milliseconds, and where they went.
fn sends(client: &mut ClientHandshake, until_ms: u64) -> Vec<(u64, std::net::SocketAddr)> {
    let mut out = Vec::new();
    (0..until_ms / 10).filter_map(|i| client.poll_transmit(at(10 * i), &mut out).map(|to| (10 * i, to))).collect()
}

#[test]
fn a_request_goes_out_at_once_and_then_ten_times_a_second() {
    let mut client = ClientHandshake::new(token(1), START);
    let times: Vec<u64> = sends(&mut client, 1000).into_iter().map(|(ms, _)| ms).collect();
    assert_eq!(times, [0, 100, 200, 300, 400, 500, 600, 700, 800, 900]);
    assert_eq!(client.poll_timeout(), Some(at(1000)));
}

#[test]
fn a_server_that_says_nothing_is_left_after_two_seconds_and_the_last_one_after_the_timeout() {
    let mut client = ClientHandshake::new(two_servers(), START);
    let sends = sends(&mut client, 7_100);
    let (first, second): (Vec<_>, Vec<_>) = sends.iter().partition(|(ms, _)| *ms < 2_000);
    assert_eq!((first.len(), second.len()), (20, 50));
    assert!(first.iter().all(|(_, to)| *to == "10.0.0.9:9".parse().unwrap()));
    assert!(second.iter().all(|(_, to)| *to == server_address()));
    assert_eq!(client.state(), ClientState::Failed(ConnectError::RequestTimedOut));
    assert_eq!(client.poll_timeout(), None);
}

#[test]
fn a_denied_client_turns_to_the_next_server_at_once_and_connects_there() {
    let full_address = "10.0.0.9:9".parse().unwrap();
    let mut full = Server::with(0, ServerOptions::new(PROTOCOL_ID, private_key(), vec![full_address]));
    let mut server = Server::new(1);
    let mut client = ClientHandshake::new(two_servers(), START);
    let denied = full.handle(START, client_address(1), &poll(&mut client, START)).unwrap();
    assert!(matches!(deliver(&mut client, START, denied), ClientOutcome::Progress));
    assert_eq!((client.state(), client.server()), (ClientState::SendingRequest, server_address()));

    let challenge = server.handle(START, client_address(1), &poll(&mut client, START)).unwrap();
    deliver(&mut client, START, challenge);
    let keep_alive = server.handle(START, client_address(1), &poll(&mut client, START)).unwrap();
    assert!(matches!(deliver(&mut client, START, keep_alive), ClientOutcome::Connected(_)));
    assert_eq!(client.state(), ClientState::Connected);
}

#[test]
fn what_the_first_server_sent_does_not_count_as_replayed_at_the_next() {
    let from = client_address(1);
    let mut first =
        Server::with(1, ServerOptions::new(PROTOCOL_ID, private_key(), vec!["10.0.0.9:9".parse().unwrap()]));
    let mut second = Server::new(1);
    let mut client = ClientHandshake::new(two_servers(), START);
    for (server, now) in [(&mut first, START), (&mut second, at(5_000))] {
        client.poll_transmit(now, &mut Vec::new());
        let challenge = server.handle(now, from, &request(&two_servers())).unwrap();
        deliver(&mut client, now, challenge);
        server.handle(now, from, &poll(&mut client, now)).unwrap(); // the keep-alive, packet 0, is lost
        if client.server() != server_address() {
            // Packet 1 of the first server is a payload that comes too early.
            let payload = seal(&mut server.connected[0].1.sealer, b"early");
            assert!(matches!(deliver(&mut client, now, payload), ClientOutcome::Ignored(DropReason::UnexpectedKind)));
        }
    }
    let mut keep_alive = Vec::new();
    assert_eq!(second.connected[0].1.sealer.seal_keep_alive(0, 1, &mut keep_alive), Ok(1));
    assert!(matches!(deliver(&mut client, at(5_000), keep_alive), ClientOutcome::Connected(_)));
}

#[test]
fn a_server_that_falls_silent_after_its_challenge_is_given_its_own_timeout() {
    let mut server = Server::new(1);
    let mut client = ClientHandshake::new(token(1), START);
    let challenge = server.handle(START, client_address(1), &poll(&mut client, START)).unwrap();
    deliver(&mut client, at(4_000), challenge);
    assert_eq!(client.state(), ClientState::SendingResponse);
    let mut out = Vec::new();
    assert!(client.poll_transmit(at(8_999), &mut out).is_some());
    assert_eq!(client.poll_transmit(at(9_000), &mut out), None);
    assert_eq!(client.state(), ClientState::Failed(ConnectError::ResponseTimedOut));
}

#[test]
fn the_tokens_lifetime_ends_the_attempt_across_all_servers() {
    let servers = vec!["10.0.0.9:9".parse().unwrap(); 32];
    let mut client = ClientHandshake::new(token_with(ConnectTokenOptions { servers, ..token_options(1) }), START);
    let sends = sends(&mut client, 60_000);
    assert_eq!(sends.last().map(|(ms, _)| *ms), Some(29_900));
    assert_eq!(client.state(), ClientState::Failed(ConnectError::TokenExpired));
}

#[test]
fn without_a_timeout_only_the_lifetime_ends_the_attempt() {
    for timeout_s in [-1, 0] {
        let mut client = ClientHandshake::new(token_with(ConnectTokenOptions { timeout_s, ..token_options(1) }), START);
        assert_eq!(sends(&mut client, 60_000).len(), 300, "a timeout of {timeout_s} seconds");
        assert_eq!(client.state(), ClientState::Failed(ConnectError::TokenExpired));
    }
}

#[test]
fn a_lost_challenge_and_a_lost_response_are_made_good() {
    let mut server = Server::new(1);
    let from = client_address(1);
    let mut client = ClientHandshake::new(token(1), START);
    server.handle(START, from, &poll(&mut client, START)).unwrap(); // the challenge is lost
    let challenge = server.handle(at(100), from, &poll(&mut client, at(100))).unwrap();
    deliver(&mut client, at(150), challenge);
    poll(&mut client, at(150)); // the response is lost
    let keep_alive = server.handle(at(250), from, &poll(&mut client, at(250))).unwrap();
    assert!(matches!(deliver(&mut client, at(250), keep_alive), ClientOutcome::Connected(_)));
}

#[test]
fn a_lost_keep_alive_is_made_good_by_the_connection() {
    let mut server = Server::new(1);
    let from = client_address(1);
    let mut client = ClientHandshake::new(token(1), START);
    let challenge = server.handle(START, from, &poll(&mut client, START)).unwrap();
    deliver(&mut client, START, challenge);
    server.handle(START, from, &poll(&mut client, START)).unwrap(); // the keep-alive is lost

    let (_, accepted) = &mut server.connected[0];
    let mut response = poll(&mut client, at(100));
    assert_eq!(accepted.opener.open(&mut response).unwrap().kind, PacketKind::Response);
    // A payload that arrives before the seat is known is discarded, as the standard wants it.
    let early = seal(&mut accepted.sealer, b"early");
    assert!(matches!(deliver(&mut client, at(110), early), ClientOutcome::Ignored(DropReason::UnexpectedKind)));
    let mut keep_alive = Vec::new();
    accepted.sealer.seal_keep_alive(accepted.client_index, 1, &mut keep_alive).unwrap();
    assert!(matches!(deliver(&mut client, at(120), keep_alive), ClientOutcome::Connected(_)));
}

#[test]
fn a_client_that_the_door_has_forgotten_asks_again_within_a_second() {
    let mut options = ServerOptions::new(PROTOCOL_ID, private_key(), vec![server_address()]);
    options.pending_max = 1;
    let mut server = Server::with(4, options);
    let mut client = ClientHandshake::new(token(1), START);
    let challenge = server.handle(START, client_address(1), &poll(&mut client, START)).unwrap();
    deliver(&mut client, START, challenge);
    server.handle(START, client_address(2), &request(&token(2))).unwrap(); // takes the only seat
    for at_ms in 0..10 {
        let response = poll(&mut client, at(100 * at_ms));
        assert_eq!(server.handle(START, client_address(1), &response), Err(DropReason::UnknownAddress));
    }
    let challenge = server.handle(at(1_000), client_address(1), &poll(&mut client, at(1_000))).unwrap();
    deliver(&mut client, at(1_000), challenge);
    let keep_alive = server.handle(at(1_000), client_address(1), &poll(&mut client, at(1_000))).unwrap();
    assert!(matches!(deliver(&mut client, at(1_000), keep_alive), ClientOutcome::Connected(_)));
}

#[test]
fn a_seat_that_is_heard_of_while_the_client_asks_again_is_taken() {
    let mut server = Server::new(1);
    let mut client = ClientHandshake::new(token(1), START);
    let challenge = server.handle(START, client_address(1), &poll(&mut client, START)).unwrap();
    deliver(&mut client, START, challenge);
    let keep_alive = server.handle(START, client_address(1), &poll(&mut client, START)).unwrap();
    let denied = server.handle(at(1_000), client_address(1), &poll(&mut client, at(1_000))).unwrap();
    assert_eq!(client.state(), ClientState::SendingRequest);
    assert!(matches!(deliver(&mut client, at(1_100), denied), ClientOutcome::Ignored(DropReason::UnexpectedKind)));
    let ClientOutcome::Connected(connected) = deliver(&mut client, at(1_200), keep_alive) else { panic!("let in") };
    // The first round trip took no time; the second was lost for 1.2 s.
    assert_eq!(connected.round_trip, Duration::ZERO);
}

#[test]
fn the_handshake_measures_the_round_trip_at_both_ends() {
    let mut server = Server::new(1);
    let mut client = ClientHandshake::new(token(1), START);
    let challenge = server.handle(at(40), client_address(1), &poll(&mut client, START)).unwrap();
    deliver(&mut client, at(80), challenge);
    let keep_alive = server.handle(at(120), client_address(1), &poll(&mut client, at(80))).unwrap();
    let ClientOutcome::Connected(connected) = deliver(&mut client, at(150), keep_alive) else { panic!("let in") };
    assert_eq!(connected.round_trip, Duration::from_millis(70));
    assert_eq!(server.connected[0].1.round_trip, Duration::from_millis(80));
}

#[test]
fn packets_of_strangers_are_ignored() {
    let mut server = Server::new(2);
    let mut client = ClientHandshake::new(token(1), START);
    let mut challenge = server.handle(START, client_address(1), &poll(&mut client, START)).unwrap();
    let stranger = client.handle(START, client_address(7), &mut challenge.clone());
    assert!(matches!(stranger, ClientOutcome::Ignored(DropReason::UnknownAddress)));
    let for_another = server.handle(START, client_address(2), &request(&token(2))).unwrap();
    assert!(matches!(deliver(&mut client, START, for_another), ClientOutcome::Ignored(DropReason::NotAuthentic)));
    challenge[20] ^= 1;
    assert!(matches!(deliver(&mut client, START, challenge), ClientOutcome::Ignored(DropReason::NotAuthentic)));
    assert_eq!(client.state(), ClientState::SendingRequest);
}

#[test]
fn the_connection_is_handed_over_once() {
    let mut server = Server::new(1);
    let mut client = ClientHandshake::new(token(1), START);
    let challenge = server.handle(START, client_address(1), &poll(&mut client, START)).unwrap();
    deliver(&mut client, START, challenge);
    let keep_alive = server.handle(START, client_address(1), &poll(&mut client, START)).unwrap();
    assert!(matches!(deliver(&mut client, START, keep_alive.clone()), ClientOutcome::Connected(_)));
    assert!(matches!(deliver(&mut client, START, keep_alive), ClientOutcome::Ignored(DropReason::HandshakeOver)));
    assert_eq!((client.poll_timeout(), client.poll_transmit(at(999), &mut Vec::new())), (None, None));
}
