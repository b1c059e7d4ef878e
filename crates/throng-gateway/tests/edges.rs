//! Edges over real sockets: clients are served through them, go on at another one, and wait for a home that is away.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use throng_channeld::client::{Client, ClientOptions};
use throng_channeld::proto::unrealpb::SpawnObjectMessage;
use throng_channeld::proto::{
    Any, AuthResultMessage, ChannelDataUpdateMessage, ChannelSubscriptionOptions, ChannelType, CreateChannelMessage,
    SubscribedToChannelMessage,
};
use throng_channeld::{Header, message_type};
use throng_gateway::auth::{AcceptAll, AlwaysFail};
use throng_gateway::serve::{EdgeSecret, EdgesOptions, Gateway, HomeOptions, Reason, Transport};
use throng_gateway_engine::port::Side;

use crate::serving::{Serving, bare, beside_each_other, echo, eventually, serve_with, soon, try_bare, wait_for_end};

const SECRET: [u8; 32] = [9; 32];

/// Clients may subscribe, and come back.
const HOME: [&str; 3] = ["-cfsm=client_authoratative_fsm.json", "-limit", "client_resume_ms=10000"];

fn any() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

fn home() -> Serving {
    serve_with(Transport::Tcp, &HOME, Arc::new(AcceptAll), |options| {
        options.edges = Some(EdgesOptions { address: any(), secret: EdgeSecret(SECRET) });
    })
}

fn edge_of(home: SocketAddr, secret: [u8; 32]) -> Gateway {
    edge_that_drains(home, secret, Duration::from_secs(5))
}

fn edge_that_drains(home: SocketAddr, secret: [u8; 32], drain: Duration) -> Gateway {
    try_bare(Transport::Tcp, &["-home=home:1", "-edgekey=nowhere"], Arc::new(AcceptAll), |options| {
        options.doors.remove(0);
        options.home = Some(HomeOptions { address: home.to_string(), secret: EdgeSecret(secret) });
        options.drain = drain;
    })
    .expect("loopback has free ports")
}

/// An edge whose doors are open.
fn edge(home: &Serving) -> Gateway {
    let edge = edge_of(home.gateway.edges_address().expect("there is a door for edges"), SECRET);
    eventually("the edge has a path", || edge.report().is_some_and(|report| report.is_linked == Some(true)));
    edge
}

fn join(edge: &Gateway, name: &str) -> (Client, u32) {
    let mut client = Client::connect(edge.addresses()[0], ClientOptions::default()).expect("the door is open");
    client.authenticate(name, "secret", soon()).expect("it is let in");
    let id = client.connection_id();
    (client, id)
}

fn number(value: u32) -> Any {
    Any::pack(&SpawnObjectMessage { channel_id: Some(value), ..Default::default() })
}

/// The next value of a channel that a client is told.
fn next_value(client: &mut Client) -> u32 {
    let update = client.wait_for(message_type::CHANNEL_DATA_UPDATE, soon()).expect("the edge sends the update");
    let update: ChannelDataUpdateMessage = update.decode().expect("an update");
    let state: SpawnObjectMessage = prost::Message::decode(update.data.expect("data").value).expect("its type");
    state.channel_id.expect("a value")
}

/// A server that owns a room; its id.
fn room(home: &Serving, name: &str) -> (Client, u32) {
    let mut server = Client::connect(home.gateway.addresses()[0], ClientOptions::default()).expect("open");
    server.authenticate(name, "", soon()).expect("let in");
    let create = CreateChannelMessage {
        channel_type: ChannelType::Subworld.into(),
        data: Some(number(0)),
        ..Default::default()
    };
    server.send(Header::new(0, message_type::CREATE_CHANNEL), &create).expect("connected");
    let created = server.wait_for(message_type::CREATE_CHANNEL, soon()).expect("an answer");
    let created: throng_channeld::proto::CreateChannelResultMessage = created.decode().expect("a result");
    (server, created.channel_id)
}

fn subscribe(client: &mut Client, channel: u32) {
    let options = ChannelSubscriptionOptions { fan_out_interval_ms: Some(20), ..Default::default() };
    let subscribe = SubscribedToChannelMessage { conn_id: 0, sub_options: Some(options) };
    client.send(Header::new(channel, message_type::SUB_TO_CHANNEL), &subscribe).expect("connected");
    client.wait_for(message_type::SUB_TO_CHANNEL, soon()).expect("an answer");
}

fn write(server: &mut Client, channel: u32, value: u32) {
    let update = ChannelDataUpdateMessage { data: Some(number(value)), context_conn_id: 0 };
    server.send(Header::new(channel, message_type::CHANNEL_DATA_UPDATE), &update).expect("connected");
}

fn messages_and_state_pass_through_an_edge() {
    let home = home();
    let edge = edge(&home);
    let (mut server, channel) = room(&home, "room");
    let (mut client, _) = join(&edge, "ada");
    echo(&mut client, b"to the world and back");
    echo(&mut client, &vec![3; 50_000]);
    subscribe(&mut client, channel);
    assert_eq!(next_value(&mut client), 0);
    write(&mut server, channel, 7);
    assert_eq!(next_value(&mut client), 7);
    let report = home.gateway.report().expect("it lives");
    assert_eq!((report.edges, report.is_linked), ([1, 1], None));
    drop(client);
    eventually("the home hears of it", || home.gateway.report().is_some_and(|report| report.edges == [1, 0]));
    edge.shut_down();
    eventually("the edge has gone", || home.gateway.report().is_some_and(|report| report.edges == [0, 0]));
    assert_eq!(cut(&home.gateway), 0, "it has said so");
    home.end();
}

fn a_client_of_an_edge_that_ends_goes_on_at_another_one() {
    let home = home();
    let (first, second) = (edge(&home), edge(&home));
    let (mut server, channel) = room(&home, "room");
    let (mut client, id) = join(&first, "ada");
    subscribe(&mut client, channel);
    assert_eq!(next_value(&mut client), 0);
    first.shut_down();
    wait_for_end(&mut client);
    write(&mut server, channel, 8);
    let (mut client, again) = join(&second, "ada");
    assert_eq!(again, id, "it is who it was");
    assert_eq!(next_value(&mut client), 8, "and reads what it read");
    echo(&mut client, b"hello");
    second.shut_down();
    home.end();
}

fn home_lost(edge: &Gateway) -> u64 {
    edge.counters().home_lost.load(Ordering::Relaxed)
}

fn cut(gateway: &Gateway) -> u64 {
    gateway.counters().edge_paths_cut.load(Ordering::Relaxed)
}

fn a_path_that_is_cut_is_told_from_one_that_ends_in_good_order_at_both_ends() {
    let home = home();
    let (address, relayed) = relay(home.gateway.edges_address().expect("there is a door for edges"));
    let edge = edge_of(address, SECRET);
    eventually("the edge has a path", || edge.report().is_some_and(|report| report.is_linked == Some(true)));
    let (mut client, _) = join(&edge, "ada");
    echo(&mut client, b"hello");
    relayed.store(CUTS, Ordering::Relaxed);
    wait_for_end(&mut client);
    eventually("both know", || (home_lost(&edge), cut(&edge), cut(&home.gateway)) == (1, 1, 1));
    edge.shut_down();
    home.end();
}

/// A [`relay`] does one of these.
const PASSES_ON: u8 = 0;
const PAUSES: u8 = 1;
const CUTS: u8 = 2;

/// Passes one connection on to a home, until it is told to do something else.
fn relay(home: SocketAddr) -> (SocketAddr, Arc<AtomicU8>) {
    let listener = std::net::TcpListener::bind(any()).expect("a free port");
    let (address, does) = (listener.local_addr().expect("bound"), Arc::new(AtomicU8::new(PASSES_ON)));
    let told = Arc::clone(&does);
    thread::spawn(move || {
        let (edge, _) = listener.accept().expect("the edge comes");
        let home = std::net::TcpStream::connect(home).expect("the home listens");
        let carry = |mut from: &std::net::TcpStream, mut to: &std::net::TcpStream| {
            let mut bytes = [0; 4_096];
            from.set_read_timeout(Some(Duration::from_millis(5))).expect("it can be set");
            loop {
                let read = std::io::Read::read(&mut from, &mut bytes);
                while told.load(Ordering::Relaxed) == PAUSES {
                    thread::sleep(Duration::from_millis(5));
                }
                if told.load(Ordering::Relaxed) == CUTS {
                    break;
                }
                match read {
                    Ok(count @ 1..) if std::io::Write::write_all(&mut to, &bytes[..count]).is_ok() => {}
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                    _ => break,
                }
            }
            let _ = (from.shutdown(std::net::Shutdown::Both), to.shutdown(std::net::Shutdown::Both));
        };
        thread::scope(|scope| {
            scope.spawn(|| carry(&home, &edge));
            carry(&edge, &home);
        });
    });
    (address, does)
}

fn an_edge_whose_home_does_not_answer_ends_all_the_same() {
    let home = home();
    let (address, relayed) = relay(home.gateway.edges_address().expect("there is a door for edges"));
    let drain = Duration::from_secs(1);
    let edge = edge_that_drains(address, SECRET, drain);
    eventually("the edge has a path", || edge.report().is_some_and(|report| report.is_linked == Some(true)));
    let (mut client, _) = join(&edge, "ada");
    relayed.store(PAUSES, Ordering::Relaxed);
    let began = Instant::now();
    assert!(edge.shut_down(), "the client reads: nothing is cut off");
    let took = began.elapsed();
    assert!(took >= drain && took < Duration::from_secs(20), "{took:?}");
    wait_for_end(&mut client);
    relayed.store(PASSES_ON, Ordering::Relaxed);
    eventually("the home has lost the edge", || home.gateway.report().is_some_and(|report| report.edges == [0, 0]));
    home.end();
}

fn an_edge_waits_for_its_home_and_lets_nobody_in_until_then() {
    // A port that nobody listens at.
    let port = std::net::TcpListener::bind(any()).expect("a free port").local_addr().expect("bound");
    let edge = edge_of(port, SECRET);
    let refused = || edge.counters().of(Side::Client).refused(Reason::NoHome);
    let ready = |edge: &Gateway| status(edge.http_address().expect("pages"), "/readyz");
    assert_eq!(ready(&edge), 503);
    let mut client = Client::connect(edge.addresses()[0], ClientOptions::default()).expect("the kernel accepts");
    wait_for_end(&mut client);
    eventually("it is counted", || refused() == 1);
    let home = serve_with(Transport::Tcp, &HOME, Arc::new(AcceptAll), |options| {
        options.edges = Some(EdgesOptions { address: port, secret: EdgeSecret(SECRET) });
    });
    eventually("the edge has a path", || ready(&edge) == 200);
    let (mut client, _) = join(&edge, "ada");
    echo(&mut client, b"hello");
    // The home goes: its clients do, too, and the edge tries again.
    home.end();
    wait_for_end(&mut client);
    eventually("it is not ready", || ready(&edge) == 503);
    assert_eq!((home_lost(&edge), cut(&edge)), (1, 0), "it has said so");
    edge.shut_down();
}

fn another_key_is_refused_and_counted() {
    let home = home();
    let address = home.gateway.edges_address().expect("there is a door for edges");
    let edge = edge_of(address, [8; 32]);
    let refused = || home.gateway.counters().edges_refused.load(Ordering::Relaxed);
    eventually("it is refused", || refused() > 0);
    // Somebody who is no edge at all.
    let before = refused();
    let mut stranger = std::net::TcpStream::connect(address).expect("it listens");
    std::io::Write::write_all(&mut stranger, b"GET / HTTP/1.1\r\n\r\n").expect("room");
    eventually("it is refused", || refused() > before);
    assert_eq!(home.gateway.report().expect("it lives").edges, [0, 0]);
    edge.shut_down();
    home.end();
}

fn a_home_has_so_many_paths_at_a_time_and_counts_who_finds_none() {
    let home = home();
    let address = home.gateway.edges_address().expect("there is a door for edges");
    let refused = || home.gateway.counters().edges_refused.load(Ordering::Relaxed);
    // None of them says who it is; each has a few seconds for that.
    let held: Vec<_> = (0..256).map(|_| std::net::TcpStream::connect(address).expect("it listens")).collect();
    let mut more = std::net::TcpStream::connect(address).expect("the kernel accepts");
    more.set_read_timeout(Some(Duration::from_secs(3))).expect("it can be set");
    assert_eq!(std::io::Read::read(&mut more, &mut [0; 1]).expect("it is closed"), 0);
    assert_eq!(refused(), 1);
    drop(held);
    // There is room again.
    edge(&home).shut_down();
    home.end();
}

fn an_edge_that_comes_before_the_world_is_refused_and_counted() {
    let home = bare(Transport::Tcp, &HOME, Arc::new(AcceptAll), |options| {
        options.waits_for_master = true;
        options.edges = Some(EdgesOptions { address: any(), secret: EdgeSecret(SECRET) });
    });
    let edge = edge_of(home.edges_address().expect("there is a door for edges"), SECRET);
    eventually("it is counted", || home.counters().edges_refused.load(Ordering::Relaxed) > 0);
    assert_eq!(home.report().expect("it lives").edges, [0, 0]);
    edge.shut_down();
    home.shut_down();
}

fn wrong_tokens_count_at_the_edge() {
    let home = serve_with(Transport::Tcp, &["-limit", "max_failed_auth=2"], Arc::new(AlwaysFail), |options| {
        options.edges = Some(EdgesOptions { address: any(), secret: EdgeSecret(SECRET) });
    });
    let edge = edge(&home);
    let mut client = Client::connect(edge.addresses()[0], ClientOptions::default()).expect("open");
    for _ in 0..2 {
        let login = throng_channeld::proto::AuthMessage {
            player_identifier_token: "ada".into(),
            login_token: "wrong".into(),
            ..Default::default()
        };
        client.send(Header::new(0, message_type::AUTH), &login).expect("connected");
        let answer = client.wait_for(message_type::AUTH, soon()).expect("an answer");
        assert_ne!(answer.decode::<AuthResultMessage>().expect("a result").result, 0);
    }
    wait_for_end(&mut client);
    eventually("it is a strike", || edge.counters().of(Side::Client).refused(Reason::Stranger) == 1);
    edge.shut_down();
    home.end();
}

/// 300 clients at three edges, which end and start again one after the other. Returns the longest time without service.
fn a_rolling_restart_loses_nobody() {
    const CLIENTS: usize = 300;
    let home = home();
    let mut edges: Vec<Gateway> = (0..3).map(|_| edge(&home)).collect();
    let (mut server, channel) = room(&home, "room");
    let addresses = Arc::new(std::sync::Mutex::new(edges.iter().map(|e| e.addresses()[0]).collect::<Vec<_>>()));
    let stop = Arc::new(AtomicBool::new(false));
    let subscribed = Arc::new(AtomicUsize::new(0));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let (addresses, stop, subscribed) = (Arc::clone(&addresses), Arc::clone(&stop), Arc::clone(&subscribed));
            thread::Builder::new().stack_size(256 << 10).spawn(move || {
                let (mut id, mut last, mut longest, mut returns) = (0, Instant::now(), Duration::ZERO, 0);
                let mut at = number;
                while !stop.load(Ordering::Relaxed) {
                    at += 1;
                    let address = {
                        let addresses = addresses.lock().expect("nobody panics");
                        addresses[at % addresses.len()]
                    };
                    let Ok(mut client) = Client::connect(address, ClientOptions::default()) else { continue };
                    if client.authenticate(&format!("player {number}"), "secret", soon()).is_err() {
                        continue;
                    }
                    match id {
                        0 => {
                            id = client.connection_id();
                            subscribe(&mut client, channel);
                            last = Instant::now();
                            subscribed.fetch_add(1, Ordering::Relaxed);
                        }
                        _ => {
                            assert_eq!(client.connection_id(), id, "it is who it was");
                            returns += 1;
                        }
                    }
                    while !stop.load(Ordering::Relaxed) {
                        match client.poll(Instant::now() + Duration::from_millis(100)) {
                            Ok(Some(message)) if message.msg_type == message_type::CHANNEL_DATA_UPDATE => {
                                longest = longest.max(last.elapsed());
                                last = Instant::now();
                            }
                            Ok(_) => {}
                            Err(_) => break,
                        }
                    }
                }
                (longest, returns)
            })
        })
        .map(|thread| thread.expect("there are threads"))
        .collect();
    let all = |home: &Serving, count| home.gateway.report().is_some_and(|report| report.edges[1] == count);
    let mut value = 0;
    let mut pass = |ms: u64| {
        for _ in 0..ms / 20 {
            value += 1;
            write(&mut server, channel, value);
            thread::sleep(Duration::from_millis(20));
        }
    };
    let deadline = soon();
    while (!all(&home, CLIENTS) || subscribed.load(Ordering::Relaxed) < CLIENTS) && Instant::now() < deadline {
        pass(100);
    }
    assert_eq!(subscribed.load(Ordering::Relaxed), CLIENTS, "everybody reads");
    for (number, restarted) in edges.iter_mut().enumerate() {
        pass(300);
        let fresh = edge(&home);
        addresses.lock().expect("nobody panics")[number] = fresh.addresses()[0];
        std::mem::replace(restarted, fresh).shut_down();
        let deadline = soon();
        while !all(&home, CLIENTS) && Instant::now() < deadline {
            pass(40);
        }
        assert!(all(&home, CLIENTS), "everybody is back");
    }
    pass(500);
    stop.store(true, Ordering::Relaxed);
    let results: Vec<(Duration, usize)> = clients.into_iter().map(|client| client.join().expect("served")).collect();
    let longest = results.iter().map(|(longest, _)| *longest).max().unwrap_or_default();
    let returns: usize = results.iter().map(|(_, returns)| returns).sum();
    println!("{CLIENTS} clients came back {returns} times; nobody was without state for more than {longest:?}");
    assert!(returns >= CLIENTS, "each edge had some");
    // The goal is a second; a machine that is busy with other tests takes longer.
    assert!(longest < Duration::from_secs(5), "{longest:?}");
    for edge in edges {
        edge.shut_down();
    }
    home.end();
}

/// The status of a page.
fn status(address: SocketAddr, path: &str) -> u16 {
    use std::io::{Read as _, Write as _};
    let mut stream = std::net::TcpStream::connect(address).expect("the pages are open");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").expect("room");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    text.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status")
}

#[test]
fn edges_over_sockets() {
    beside_each_other(&[
        &messages_and_state_pass_through_an_edge,
        &a_client_of_an_edge_that_ends_goes_on_at_another_one,
        &an_edge_whose_home_does_not_answer_ends_all_the_same,
        &a_path_that_is_cut_is_told_from_one_that_ends_in_good_order_at_both_ends,
        &an_edge_waits_for_its_home_and_lets_nobody_in_until_then,
        &another_key_is_refused_and_counted,
        &a_home_has_so_many_paths_at_a_time_and_counts_who_finds_none,
        &an_edge_that_comes_before_the_world_is_refused_and_counted,
        &wrong_tokens_count_at_the_edge,
    ]);
}

#[test]
fn three_edges_are_restarted_under_load_and_nobody_is_lost() {
    a_rolling_restart_loses_nobody();
}
