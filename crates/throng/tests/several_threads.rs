//! A server with several threads on a real socket, each of which sends through a handle of its own.

use std::time::{Duration, Instant};

use throng::{Client, ClientOptions, Key, Server, ServerEvent, ServerOptions, Time, TokenIssuer};
use throng_testkit::{Chat, schema};

const PROTOCOL_ID: u64 = 77;

#[test]
fn what_all_threads_send_is_counted() {
    let key = || Key::new([5; 32]);
    let options = ServerOptions { threads: 3, max_clients: 8, ..ServerOptions::new(PROTOCOL_ID, key()) };
    let mut server = Server::bind("127.0.0.1:0".parse().expect("an address"), schema(), options).expect("a free port");
    let issuer = TokenIssuer::new(PROTOCOL_ID, key());
    let mut clients: Vec<Client> = (1..=6)
        .map(|id| {
            let token = issuer.issue(id, &[server.local_address()]).expect("a good token");
            Client::connect(token, schema(), ClientOptions::default(), Time(0)).expect("a free port")
        })
        .collect();
    let began = Instant::now();
    let (mut connected, mut received) = (Vec::new(), 0);
    while received < 60 && began.elapsed() < Duration::from_secs(30) {
        let now = Time::from(began.elapsed());
        server.receive(now).expect("a sound socket");
        while let Some(event) = server.poll_event() {
            if let ServerEvent::Connected { connection, .. } = event {
                connected.push(connection);
            }
        }
        for &connection in &connected {
            let _ = server.send(connection, 1, &Chat { number: 1, text: "x".repeat(300) });
        }
        server.tick(now);
        for client in &mut clients {
            client.update(now).expect("a sound socket");
            while let Some(event) = client.poll_event() {
                received += u64::from(matches!(event, throng::ClientEvent::Message { .. }));
            }
        }
    }
    assert_eq!(connected.len(), 6);
    let counters = server.driver_counters();
    let heard: u64 = received;
    assert!(counters.sent_datagrams >= heard / 3, "{} datagrams for {heard} messages", counters.sent_datagrams);
    assert!(counters.sent_bytes >= heard * 300, "{} bytes for {heard} messages of 300", counters.sent_bytes);
    assert_eq!(counters.send_dropped, 0);
    if cfg!(target_os = "linux") {
        assert_eq!(server.kernel_dropped(), Some(0));
    }
}
