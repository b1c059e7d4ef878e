//! The answers to probes, and the effect of a slow provider on players: over real sockets.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use throng_channeld::client::ClientOptions;
use throng_channeld::proto::AuthMessage;
use throng_channeld::{Header, message_type};
use throng_gateway::auth::{AcceptAll, Check, Credentials, Provider, Unavailable};
use throng_gateway::serve::{Reason, Transport};
use throng_gateway_engine::port::AuthVerdict;

use crate::serving::{Serving, echo, eventually, serve, serve_with, soon};

/// The status and the text of a page, and how long the answer took.
fn page(address: SocketAddr, path: &str) -> (String, Duration) {
    let begin = Instant::now();
    let mut stream = TcpStream::connect(address).expect("open");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("it can be set");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n").expect("connected");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    (answer, begin.elapsed())
}

fn is_ok(serving: &Serving, path: &str) -> bool {
    page(serving.gateway.http_address().expect("it has pages"), path).0.starts_with("HTTP/1.1 200")
}

/// Keeps the engine's thread busy for a while with each login.
struct Busy(Duration);

impl Provider for Busy {
    fn check(&self, _: Credentials) -> Check {
        thread::sleep(self.0);
        Check::Now(Ok(AuthVerdict::Accepted))
    }
}

/// Sends a login and does not wait for the answer.
fn knock(serving: &Serving) -> throng_channeld::client::Client {
    let mut client = serving.connect(ClientOptions::default());
    let auth = AuthMessage { player_identifier_token: "ada".into(), login_token: String::new(), ..Default::default() };
    client.send(Header::new(0, message_type::AUTH), &auth).expect("connected");
    client
}

/// A part of a test of `beside`.
pub(crate) fn an_engine_that_is_busy_for_many_seconds_is_alive_and_ready_and_probes_do_not_wait_for_it() {
    let serving = serve_with(Transport::Tcp, &[], Arc::new(Busy(Duration::from_secs(5))), |_| {});
    assert!(is_ok(&serving, "/metrics"), "there are figures");
    let _client = knock(&serving);
    thread::sleep(Duration::from_millis(500));
    let http = serving.gateway.http_address().expect("it has pages");
    let begin = Instant::now();
    let mut probes = 0;
    while begin.elapsed() < Duration::from_secs(3) {
        for path in ["/healthz", "/readyz"] {
            let (answer, took) = page(http, path);
            assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
            assert!(took < Duration::from_secs(2), "{path} took {took:?}");
            probes += 1;
        }
        thread::sleep(Duration::from_millis(50));
    }
    assert!(probes > 10);
    // Figures may be those of before: a scrape does not fail either.
    let (answer, _) = page(http, "/metrics");
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("clients "), "{answer}");
    serving.end();
}

/// A part of a test of `beside`.
pub(crate) fn an_engine_that_does_one_thing_for_too_long_is_not_alive() {
    let serving = serve_with(Transport::Tcp, &[], Arc::new(Busy(Duration::from_secs(4))), |options| {
        options.stuck_after = Duration::from_millis(1_000);
    });
    assert!(is_ok(&serving, "/healthz"));
    let _client = knock(&serving);
    eventually("it is said to be stuck", || !is_ok(&serving, "/healthz"));
    assert!(!is_ok(&serving, "/readyz"));
    eventually("it was not", || is_ok(&serving, "/healthz"));
    serving.end();
}

#[test]
fn a_gateway_without_room_is_alive_and_not_ready() {
    let serving = serve(Transport::Tcp, |options| options.doors[1].limits.connections = 1);
    assert!(is_ok(&serving, "/readyz"));
    let client = serving.join(ClientOptions::default());
    assert!(!is_ok(&serving, "/readyz") && is_ok(&serving, "/healthz"));
    drop(client);
    eventually("there is room again", || is_ok(&serving, "/readyz"));
    serving.end();
}

/// Places are kept for servers, so the door alone does not know when clients have no more.
#[test]
fn a_gateway_whose_engine_has_no_place_for_a_client_is_not_ready() {
    let limits = ["-limit", "max_connections=6", "-limit", "reserved_server_connections=3"];
    let serving = serve_with(Transport::Tcp, &limits, Arc::new(AcceptAll), |_| {});
    let mut clients = Vec::new();
    // The world server is one of the three.
    for number in 0..3 {
        assert!(is_ok(&serving, "/readyz"), "{number} clients");
        clients.push(serving.join(ClientOptions::default()));
    }
    eventually("there is no place", || !is_ok(&serving, "/readyz") && is_ok(&serving, "/healthz"));
    assert!(
        throng_channeld::client::Client::connect(serving.address(), ClientOptions::default())
            .and_then(|mut client| client.authenticate("one more", "", soon()))
            .is_err()
    );
    drop(clients);
    eventually("there is room again", || is_ok(&serving, "/readyz"));
    serving.end();
}

/// Takes longer for each decision than a login may take, or cannot decide.
struct Slow {
    takes: Duration,
    is_down: Arc<AtomicBool>,
}

impl Provider for Slow {
    fn check(&self, _: Credentials) -> Check {
        let (is_down, takes) = (Arc::clone(&self.is_down), self.takes);
        Check::later(async move {
            tokio::time::sleep(takes).await;
            match is_down.load(Ordering::Relaxed) {
                true => Err(Unavailable("down".into())),
                false => Ok(AuthVerdict::Accepted),
            }
        })
    }
}

/// All strikes count, this machine's too.
fn strict(options: &mut throng_gateway::serve::ServeOptions) {
    let limits = &mut options.doors[1].limits;
    (limits.strikes, limits.counts_loopback, limits.arrivals_per_s, limits.connections_per_address) = (1, true, 0, 0);
}

/// A part of a test of `beside`.
pub(crate) fn a_slow_provider_lets_everybody_in_and_dismisses_nobody() {
    let arguments = ["-limit", "max_unauthenticated_ms=3000"];
    let slow = Slow { takes: Duration::from_secs(4), is_down: Arc::default() };
    let serving = serve_with(Transport::Tcp, &arguments, Arc::new(slow), strict);
    let mut players: Vec<_> = (0..24).map(|_| knock(&serving)).collect();
    for player in &mut players {
        player.wait_for(message_type::AUTH, soon()).expect("it is answered");
        echo(player, b"it is inside");
    }
    assert_eq!(serving.refused(Reason::Stranger) + serving.refused(Reason::AuthUnavailable), 0);
    serving.end();
}

/// A part of a test of `beside`.
pub(crate) fn after_an_outage_of_the_provider_nobody_is_shut_out() {
    let is_down = Arc::new(AtomicBool::new(true));
    let arguments = ["-limit", "max_unauthenticated_ms=1000"];
    let slow = Slow { takes: Duration::from_millis(1_300), is_down: Arc::clone(&is_down) };
    let serving = serve_with(Transport::Tcp, &arguments, Arc::new(slow), strict);
    for round in 1..=2 {
        let mut player = serving.connect(ClientOptions::default());
        for _ in 0..2 {
            player.authenticate("ada", "secret", soon()).expect_err("nobody can say");
        }
        // It is not told to go before it has had time for another try, and then it is not its fault.
        crate::serving::wait_for_end(&mut player);
        serving.counts(Reason::AuthUnavailable, 2 * round);
    }
    assert_eq!(serving.refused(Reason::Stranger) + serving.refused(Reason::Banned), 0);
    is_down.store(false, Ordering::Relaxed);
    let mut player = serving.connect(ClientOptions::default());
    player.authenticate("ada", "secret", soon()).expect("the outage is over");
    echo(&mut player, b"inside");
    serving.end();
}

#[test]
fn guessing_twice_and_leaving_in_time_is_still_a_strike() {
    let provider = Arc::new(throng_gateway::auth::FixedPassword("open".into()));
    let serving = serve_with(Transport::Tcp, &[], provider, strict);
    let mut guesser = serving.connect(ClientOptions::default());
    guesser.authenticate("ada", "a", soon()).expect_err("it is wrong");
    drop(guesser);
    let mut guesser = serving.connect(ClientOptions::default());
    for _ in 0..2 {
        guesser.authenticate("bob", "a", soon()).expect_err("it is wrong");
    }
    drop(guesser);
    serving.counts(Reason::Stranger, 1);
    crate::serving::wait_for_end(&mut serving.connect(ClientOptions::default()));
    serving.counts(Reason::Banned, 1);
    serving.end();
}
