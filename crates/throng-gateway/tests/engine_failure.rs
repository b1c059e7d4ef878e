//! After its engine has failed, a gateway reports the failure and ends.

mod serving;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serving::{bare, eventually, soon};
use throng_channeld::client::{Client, ClientOptions};
use throng_gateway::auth::{Check, Credentials, Provider};
use throng_gateway::serve::{ServeError, Signals, Transport};

/// Panics in the engine's thread.
struct Broken;

impl Provider for Broken {
    fn check(&self, _: Credentials) -> Check {
        panic!("a fault of ours")
    }
}

/// Panics in the engine's thread when that ends.
struct BrokenAtTheEnd;

impl Provider for BrokenAtTheEnd {
    fn check(&self, _: Credentials) -> Check {
        unreachable!("nobody comes")
    }
}

impl Drop for BrokenAtTheEnd {
    fn drop(&mut self) {
        panic!("a fault at the end")
    }
}

fn page(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("open");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n").expect("connected");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

#[test]
fn an_engine_that_panics_fails_the_probes_and_ends_the_gateway_with_its_cause() {
    let gateway = bare(Transport::Tcp, &[], Arc::new(Broken), |_| {});
    let http = gateway.http_address().expect("it has pages");
    let _idle = Client::connect(gateway.addresses()[1], ClientOptions::default()).expect("the door is open");
    let mut client = Client::connect(gateway.addresses()[1], ClientOptions::default()).expect("the door is open");
    assert!(page(http, "/healthz").starts_with("HTTP/1.1 200") && gateway.is_alive());
    client.authenticate("ada", "", soon()).expect_err("nobody answers any more");
    eventually("the engine has ended", || !gateway.is_alive());
    for path in ["/healthz", "/readyz"] {
        let answer = page(http, path);
        assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("the engine"), "{path}: {answer}");
    }
    let begin = Instant::now();
    let error = gateway.run(Signals::listen().expect("signals"), || None).expect_err("it is over");
    assert!(matches!(&error, ServeError::Engine(text) if text == "a fault of ours"), "{error}");
    assert!(begin.elapsed() < Duration::from_secs(5), "there is nothing to wait for");

    // The same while it goes on for a while after SIGTERM.
    let lame_duck = Duration::from_secs(60);
    let gateway = bare(Transport::Tcp, &[], Arc::new(Broken), |options| options.lame_duck = lame_duck);
    let (http, door) = (gateway.http_address().expect("it has pages"), gateway.addresses()[1]);
    let signals = Signals::listen().expect("signals");
    let running = std::thread::spawn(move || gateway.run(signals, || None));
    rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::TERM).expect("it is allowed");
    eventually("it is leaving", || page(http, "/readyz").contains("shutting down"));
    let mut client = Client::connect(door, ClientOptions::default()).expect("the door is open");
    client.authenticate("ada", "", soon()).expect_err("nobody answers any more");
    let error = running.join().expect("no panic").expect_err("it is over");
    assert!(matches!(&error, ServeError::Engine(text) if text == "a fault of ours"), "{error}");

    // The same when it fails only while the gateway ends.
    let gateway = bare(Transport::Tcp, &[], Arc::new(BrokenAtTheEnd), |_| {});
    let signals = Signals::listen().expect("signals");
    rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::TERM).expect("it is allowed");
    let error = gateway.run(signals, || None).expect_err("it has failed");
    assert!(matches!(&error, ServeError::Engine(text) if text == "a fault at the end"), "{error}");
}
