//! Forbidden actions of peers, their results, and their counters.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use throng_channeld::client::{Client, ClientError, ClientOptions};
use throng_channeld::proto::auth_result_message::AuthResult;
use throng_channeld::proto::{AuthMessage, ChannelType, CreateChannelMessage};
use throng_channeld::{Header, message_type, put_message};
use throng_gateway::auth::{AcceptAll, Check, Credentials, FixedPassword, Provider, Unavailable};
use throng_gateway::serve::{DoorLimits, Reason, ServeOptions, Transport};
use throng_gateway_engine::port::{AuthVerdict, Side};

use crate::serving::{ECHO, FLOOD, bare, echo, eventually, frame, serve, serve_with, soon, wait_for_end};

fn limited(change: impl FnOnce(&mut DoorLimits)) -> crate::serving::Serving {
    serve(Transport::Tcp, |options| change(&mut options.doors[1].limits))
}

#[test]
fn an_address_has_its_limits_once_and_not_at_each_door() {
    let serving = serve(Transport::Tcp, |options| {
        let limits = &mut options.doors[1].limits;
        (limits.connections_per_address, limits.counts_loopback) = (1, true);
        let beside = options.doors[1].clone();
        options.doors.push(beside);
    });
    let mut first = serving.join(ClientOptions::default());
    let beside = serving.gateway.addresses()[2];
    let mut second = Client::connect(beside, ClientOptions::default()).expect("the kernel takes it");
    wait_for_end(&mut second);
    serving.counts(Reason::TooManyFromAddress, 1);
    echo(&mut first, b"still here");
    serving.end();
}

#[test]
fn w1_a_client_that_stops_reading_stalls_nobody_and_is_disconnected() {
    let serving = limited(|limits| limits.queued_bytes = 1 << 20);
    let mut slow = serving.join(ClientOptions::default());
    let mut quick = serving.join(ClientOptions::default());
    slow.send_bytes(Header::new(0, FLOOD), &1_000u16.to_le_bytes()).expect("connected");
    // The world server is the one that has to write 50 MB; the other client is served meanwhile.
    let mut slowest = Duration::ZERO;
    eventually("the slow client is disconnected", || {
        let begin = Instant::now();
        echo(&mut quick, b"still here");
        slowest = slowest.max(begin.elapsed());
        serving.refused(Reason::TooSlow) == 1
    });
    assert!(slowest < Duration::from_secs(5), "an answer took {slowest:?}");
    wait_for_end(&mut slow);
    echo(&mut quick, b"and after");
    serving.end();
}

#[test]
fn w9_a_payload_that_is_no_packet_ends_the_connection_and_costs_nothing_more() {
    let serving = limited(|_| {});
    let mut client = serving.connect(ClientOptions::default());
    client.send_raw(&frame(0, &[0x0A, 0xFF, 0xFF, 0xFF])).expect("connected");
    assert!(matches!(wait_for_end(&mut client), ClientError::Closed | ClientError::Io(_)));
    serving.counts(Reason::BadPacket, 1);
    // All that came before it counts, also if it came in one piece: whole packets, and whole messages of the packet itself.
    let mut client = serving.join(ClientOptions::default());
    let came = || serving.gateway.report().expect("the engine answers").counters.of(Side::Client).messages_in;
    let before = came();
    let mut packet = Vec::new();
    (0..3).for_each(|_| put_message(&mut packet, Header::new(0, ECHO), b"sound"));
    let broken = [&packet[..], &[0x0A, 0xFF, 0xFF, 0xFF]].concat();
    client.send_raw(&[frame(0, &packet), frame(0, &broken)].concat()).expect("connected");
    wait_for_end(&mut client);
    serving.counts(Reason::BadPacket, 2);
    eventually("all six count", || came() == before + 6);
    serving.end();
}

#[test]
fn w10_a_claimed_length_is_refused_before_anything_is_allocated() {
    let serving = limited(|_| {});
    for _ in 0..6 {
        let mut client = serving.connect(ClientOptions::default());
        client.send_raw(&frame(1, &[0xFF, 0xFF, 0xFF, 0xFF, 0x0F, 0, 0])).expect("connected");
        wait_for_end(&mut client);
    }
    serving.counts(Reason::UnpackedTooLong, 6);
    let mut client = serving.connect(ClientOptions::default());
    client.send_raw(&frame(1, b"no snappy")).expect("connected");
    wait_for_end(&mut client);
    serving.counts(Reason::BadCompression, 1);
    serving.end();
}

#[test]
fn w11_who_does_not_say_who_it_is_is_sent_away_in_time() {
    let arguments = ["-limit", "max_unauthenticated_ms=2000"];
    let serving = serve_with(Transport::Tcp, &arguments, Arc::new(FixedPassword("secret".into())), |_| {});
    let mut member = serving.join(ClientOptions::default());
    let mut silent = serving.connect(ClientOptions::default());
    wait_for_end(&mut silent);
    serving.counts(Reason::Stranger, 1);
    echo(&mut member, b"members stay");
    serving.end();
}

#[test]
fn other_protocols_and_frames_that_are_too_long_end_the_connection() {
    let serving = limited(|limits| limits.payload_bytes = 1_000);
    for (bytes, reason) in [
        (&b"GET / HTTP/1.1\r\n\r\n"[..], Reason::BadFrame),
        (&[0x43, 0x48, 0, 0, 0], Reason::BadFrame),
        (&[0x43, 0x48, 4, 0, 0], Reason::FrameTooLong),
    ] {
        let before = serving.refused(reason);
        let mut client = serving.connect(ClientOptions::default());
        client.send_raw(bytes).expect("connected");
        wait_for_end(&mut client);
        serving.counts(reason, before + 1);
    }
    serving.end();
}

#[test]
fn there_are_no_more_connections_than_allowed() {
    let serving = limited(|limits| limits.connections = 2);
    let mut clients = [(); 2].map(|()| serving.join(ClientOptions::default()));
    let mut third = serving.connect(ClientOptions::default());
    wait_for_end(&mut third);
    serving.counts(Reason::TooManyConnections, 1);
    clients.iter_mut().for_each(|client| echo(client, b"both stay"));
    drop(clients);
    eventually("their places are free again", || {
        let mut client = serving.connect(ClientOptions::default());
        client.authenticate("next", "", soon()).is_ok()
    });
    serving.end();
}

#[test]
fn one_address_has_its_share_of_connections() {
    let serving = limited(|limits| {
        (limits.connections_per_address, limits.counts_loopback, limits.arrivals_per_s) = (1, true, 0);
    });
    let mut first = serving.join(ClientOptions::default());
    wait_for_end(&mut serving.connect(ClientOptions::default()));
    serving.counts(Reason::TooManyFromAddress, 1);
    echo(&mut first, b"stays");
    serving.end();
}

/// A part of a test of `beside`.
pub(crate) fn an_address_that_misbehaves_is_shut_out_and_later_forgiven() {
    let serving = limited(|limits| {
        (limits.strikes, limits.counts_loopback, limits.arrivals_per_s) = (2, true, 0);
        // Longer than a busy machine takes for three connections.
        limits.ban = Duration::from_secs(4);
    });
    for _ in 0..2 {
        let mut client = serving.connect(ClientOptions::default());
        client.send_raw(b"nonsense").expect("connected");
        wait_for_end(&mut client);
    }
    wait_for_end(&mut serving.connect(ClientOptions::default()));
    serving.counts(Reason::Banned, 1);
    eventually("it is forgiven", || {
        serving.connect(ClientOptions::default()).authenticate("again", "", soon()).is_ok()
    });
    serving.end();
}

/// A part of a test of `beside`.
pub(crate) fn a_client_that_sends_too_fast_is_read_later_and_loses_nothing() {
    let serving = limited(|limits| (limits.messages_per_s, limits.burst_messages) = (2_000, 100));
    let mut client = serving.join(ClientOptions::default());
    let begin = Instant::now();
    for number in 0..2_000u16 {
        client.send_bytes(Header::new(0, ECHO), &number.to_le_bytes()).expect("connected");
    }
    for number in 0..2_000u16 {
        let answer = client.wait_for(ECHO, soon()).expect("each comes back");
        assert_eq!(crate::serving::payload_of(&answer.body), number.to_le_bytes());
    }
    assert!(begin.elapsed() >= Duration::from_millis(600), "took {:?}", begin.elapsed());
    assert!(serving.refused(Reason::TooFast) > 0);
    serving.end();
}

#[test]
fn what_a_peer_has_sent_before_it_takes_nothing_more_is_read_for_as_long_as_a_farewell_may_take() {
    assert_eq!(read_after_a_reset(1_000, Duration::from_secs(20)), SENT);
    // All would take 4.5 s.
    let part = read_after_a_reset(200, Duration::from_millis(100));
    assert!((100..SENT).contains(&part), "{part}");
}

/// Messages of a client that sends too fast.
const SENT: u64 = 1_000;

/// How many of them are read, at so many per second, if its connection is reset soon after.
fn read_after_a_reset(per_s: u32, flush: Duration) -> u64 {
    let serving = limited(|limits| (limits.messages_per_s, limits.burst_messages, limits.flush) = (per_s, 100, flush));
    let mut client = serving.join(ClientOptions::default());
    let before = messages_in(&serving);
    for number in 0..SENT as u16 {
        client.send_bytes(Header::new(0, ECHO), &number.to_le_bytes()).expect("connected");
    }
    eventually("it is answered", || messages_in(&serving) > before + 100);
    // The socket has answers that nobody has read, so its end is a reset: the next answer cannot be written.
    drop(client);
    eventually("it is gone", || serving.gateway.report().expect("the engine answers").occupancy.clients == 0);
    let read = messages_in(&serving) - before;
    serving.end();
    read
}

#[test]
fn a_wrong_token_is_answered_and_may_be_corrected_a_few_times() {
    let serving = serve_with(Transport::Tcp, &[], Arc::new(FixedPassword("open".into())), |_| {});
    let mut client = serving.connect(ClientOptions::default());
    let wrong = client.authenticate("ada", "guess", soon()).expect_err("it is wrong");
    assert!(matches!(wrong, ClientError::Refused(AuthResult::InvalidLt)), "{wrong:?}");
    client.authenticate("ada", "open", soon()).expect("it is right");
    echo(&mut client, b"in");
    serving.end();
}

/// Is down.
struct Down;

impl Provider for Down {
    fn check(&self, _: Credentials) -> Check {
        Check::Now(Err(Unavailable("down".into())))
    }
}

#[test]
fn a_provider_that_is_down_lets_nobody_in_and_is_counted() {
    let serving = serve_with(Transport::Tcp, &[], Arc::new(Down), |_| {});
    let mut client = serving.connect(ClientOptions::default());
    let error = client.authenticate("ada", "", soon()).expect_err("nobody can say");
    assert!(matches!(error, ClientError::Refused(AuthResult::InvalidLt)), "{error:?}");
    serving.counts(Reason::AuthUnavailable, 1);
    serving.end();
}

fn get(serving: &crate::serving::Serving, path: &str) -> String {
    let mut stream = TcpStream::connect(serving.gateway.http_address().expect("it has pages")).expect("open");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n").expect("connected");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

#[test]
fn operators_see_health_readiness_and_metrics() {
    let serving = limited(|_| {});
    let _client = serving.join(ClientOptions::default());
    for path in ["/healthz", "/readyz"] {
        assert!(get(&serving, path).starts_with("HTTP/1.1 200"), "{path}");
    }
    let metrics = get(&serving, "/metrics");
    assert!(metrics.contains("text/plain; version=0.0.4") && metrics.contains("clients 1\n"), "{metrics}");
    assert!(get(&serving, "/else").starts_with("HTTP/1.1 404"));
    serving.end();
}

#[test]
fn connections_to_the_pages_have_a_bound_and_are_counted() {
    let most = 4;
    let serving = serve(Transport::Tcp, |options| options.pages.connections = most);
    let address = serving.gateway.http_address().expect("it has pages");
    let open: Vec<TcpStream> = (0..most).map(|_| TcpStream::connect(address).expect("there is a place")).collect();
    let mut last = TcpStream::connect(address).expect("the kernel accepts it");
    last.set_read_timeout(Some(Duration::from_secs(20))).expect("it can be set");
    assert_eq!(last.read(&mut [0; 1]).expect("it is closed"), 0);
    assert_eq!(serving.gateway.counters().pages.named(), [("full", 1), ("idle", 0), ("slow", 0)]);
    drop(open);
    eventually("there are places again", || {
        TcpStream::connect(address).is_ok_and(|mut stream| {
            let _ = stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n");
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer);
            answer.starts_with(b"HTTP/1.1 200")
        })
    });
    serving.end();
}

/// A packet of one message of this many bytes, mostly copies of its beginning: a twentieth of it on the wire.
fn swollen_frame(bytes: usize) -> Vec<u8> {
    let mut entry = Vec::new();
    put_message(&mut entry, Header::new(0, ECHO), &vec![7; bytes]);
    let head = 64;
    let mut block = Vec::new();
    prost::encoding::encode_varint(entry.len() as u64, &mut block);
    block.extend_from_slice(&[60 << 2, head - 1]);
    block.extend_from_slice(&entry[..usize::from(head)]);
    let mut left = entry.len() - usize::from(head);
    while left > 0 {
        let length = left.min(64);
        block.extend_from_slice(&[((length as u8 - 1) << 2) | 2, 1, 0]);
        left -= length;
    }
    frame(1, &block)
}

/// A part of a test of `beside`.
pub(crate) fn what_a_packet_unpacks_to_counts_against_the_rate_of_its_sender() {
    const UNPACKED_BYTES: usize = 500_000;
    let serving = limited(|limits| (limits.bytes_per_s, limits.burst_bytes) = (1_000_000, 1_000_000));
    let mut swollen = serving.join(ClientOptions::default());
    let (before, begin) = (messages_in(&serving), Instant::now());
    let frame = swollen_frame(UNPACKED_BYTES);
    assert!(30 * frame.len() < 1_000_000, "{} bytes on the wire", frame.len());
    for _ in 0..30 {
        swollen.send_raw(&frame).expect("connected");
    }
    eventually("some of them come", || messages_in(&serving) >= before + 2);
    std::thread::sleep(Duration::from_millis(1_000));
    // Counted before the clock is asked: the burst, the rate, and one on its way.
    let come = messages_in(&serving) - before;
    let allowed = 2 + begin.elapsed().as_millis() as u64 / 500 + 1;
    assert!(come <= allowed, "{come} packets of half a megabyte in {:?}", begin.elapsed());
    serving.end();
}

/// A packet of this many messages without a body: one of them as a literal of snappy's, and then copies of it.
fn crowded_frame(messages: usize) -> Vec<u8> {
    let mut entry = Vec::new();
    put_message(&mut entry, Header::new(0, ECHO), b"");
    let mut block = Vec::new();
    prost::encoding::encode_varint((entry.len() * messages) as u64, &mut block);
    block.push((entry.len() as u8 - 1) << 2);
    block.extend_from_slice(&entry);
    let mut left = entry.len() * (messages - 1);
    while left > 0 {
        let length = left.min(64);
        block.extend_from_slice(&[((length as u8 - 1) << 2) | 2, entry.len() as u8, 0]);
        left -= length;
    }
    frame(1, &block)
}

fn messages_in(serving: &crate::serving::Serving) -> u64 {
    serving.gateway.report().expect("the engine answers").counters.of(Side::Client).messages_in
}

/// A part of a test of `beside`.
pub(crate) fn one_packet_of_many_messages_reaches_the_engine_at_the_rate_and_no_faster() {
    let serving = limited(|limits| (limits.messages_per_s, limits.burst_messages) = (1_000, 100));
    let mut flooder = serving.join(ClientOptions::default());
    let mut other = serving.join(ClientOptions::default());
    let (before, begin) = (messages_in(&serving), Instant::now());
    flooder.send_raw(&crowded_frame(100_000)).expect("connected");
    eventually("some of it comes", || messages_in(&serving) > before + 1_000);
    while begin.elapsed() < Duration::from_millis(2_000) {
        echo(&mut other, b"nobody else waits");
        std::thread::sleep(Duration::from_millis(50));
        // Counted before the clock is asked: the burst, the rate, a batch on its way, and what the other one said.
        let come = messages_in(&serving) - before;
        let allowed = 100 + begin.elapsed().as_millis() as u64 + 64 + 100;
        assert!(come <= allowed, "{come} messages in {:?}", begin.elapsed());
    }
    let ending = Instant::now();
    serving.end();
    assert!(ending.elapsed() < Duration::from_secs(10), "who waits does not hold up the end");
}

#[test]
fn a_stranger_may_claim_little_and_say_little_before_anybody_lets_it_in() {
    let arguments = ["-limit", "max_unauthenticated_ms=0"];
    let serving = serve_with(Transport::Tcp, &arguments, Arc::new(FixedPassword("secret".into())), |_| {});
    let mut claims = serving.connect(ClientOptions::default());
    claims.send_raw(&[0x43, 0x48, 0xF0, 0, 0]).expect("connected");
    wait_for_end(&mut claims);
    serving.counts(Reason::FrameTooLong, 1);
    let mut unpacks = serving.connect(ClientOptions::default());
    unpacks.send_raw(&crowded_frame(10_000)).expect("connected");
    wait_for_end(&mut unpacks);
    serving.counts(Reason::UnpackedTooLong, 1);
    serving.end();
}

#[test]
fn what_is_said_behind_the_login_waits_for_the_answer_and_is_not_lost() {
    let serving = serve_with(Transport::Tcp, &[], Arc::new(Slowly), |_| {});
    let mut client = serving.connect(ClientOptions::default());
    let auth =
        AuthMessage { player_identifier_token: "ada".into(), login_token: "secret".into(), ..Default::default() };
    client.send(Header::new(0, message_type::AUTH), &auth).expect("connected");
    let long = vec![7; 40_000];
    client.send_bytes(Header::new(0, ECHO), &long).expect("connected");
    let answer = client.wait_for(ECHO, soon()).expect("it comes back");
    assert_eq!(crate::serving::payload_of(&answer.body), long);
    serving.end();
}

/// Lets everybody in after a while.
struct Slowly;

impl Provider for Slowly {
    fn check(&self, _: Credentials) -> Check {
        Check::blocking(|| {
            std::thread::sleep(Duration::from_millis(200));
            Ok(AuthVerdict::Accepted)
        })
    }
}

#[test]
fn clients_are_turned_away_until_a_server_owns_global_if_told_so() {
    let waits = |options: &mut ServeOptions| options.waits_for_master = true;
    let gateway = bare(Transport::Tcp, &[], Arc::new(AcceptAll), waits);
    let comes_in = || {
        let client = Client::connect(gateway.addresses()[1], ClientOptions::default());
        client.and_then(|mut client| client.authenticate("player", "", soon())).is_ok()
    };
    let refused = || gateway.counters().of(Side::Client).refused(Reason::NoMaster);
    assert!(!comes_in());
    assert_eq!(refused(), 1);
    let mut world = Client::connect(gateway.addresses()[0], ClientOptions::default()).expect("servers are not");
    world.authenticate("world", "", soon()).expect("servers are let in");
    assert!(!comes_in(), "a server alone is not enough");
    let create = CreateChannelMessage { channel_type: ChannelType::Global.into(), ..Default::default() };
    world.send(Header::new(0, message_type::CREATE_CHANNEL), &create).expect("connected");
    world.wait_for(message_type::CREATE_CHANNEL, soon()).expect("it owns the world");
    eventually("the door is open", comes_in);
    gateway.shut_down();
}
