//! A server that would accept everybody or nobody does not start, and says what to do.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use throng::net::{Condition, MemoryNetwork};
use throng::{
    Client, ClientOptions, GridOptions, Key, LaneKind, LaneOptions, Schema, Server, ServerOptions, StartError, Time, Up,
};

fn schema() -> Arc<Schema> {
    Arc::new(Schema::builder().build().expect("no kinds"))
}

fn options() -> ServerOptions {
    ServerOptions::new(5, Key::new([9; 32]))
}

fn bind(address: &str, options: ServerOptions) -> Result<Server, StartError> {
    Server::bind(address.parse().expect("an address"), schema(), options)
}

#[test]
fn a_forgotten_key_is_an_error_at_the_start() {
    let error = bind("127.0.0.1:0", ServerOptions::new(5, Key::new([0; 32]))).err().expect("refused");
    assert!(matches!(error, StartError::ZeroKey));
    assert!(error.to_string().contains("random_key()"), "{error}");
    let network = MemoryNetwork::new(Condition::NONE, 1).expect("no condition");
    let driver = network.endpoint("10.0.0.1:1".parse().expect("an address")).expect("free");
    let error = Server::new(Box::new(driver), schema(), ServerOptions::new(5, Key::new([0; 32]))).err();
    assert!(matches!(error, Some(StartError::ZeroKey)));
}

#[test]
fn all_addresses_without_a_public_one_are_an_error_at_the_start() {
    let error = bind("0.0.0.0:0", options()).err().expect("nobody could get in");
    assert!(matches!(error, StartError::NoPublicAddress { .. }));
    assert!(error.to_string().contains("public_addresses"), "{error}");
    let public = vec!["127.0.0.1:40000".parse().expect("an address")];
    let server = bind("0.0.0.0:0", ServerOptions { public_addresses: public, ..options() });
    assert!(server.is_ok());
}

#[test]
fn a_public_address_that_nobody_can_connect_to_is_an_error_at_the_start() {
    for address in ["0.0.0.0:40000", "[::]:40000", "203.0.113.1:0"] {
        let address: SocketAddr = address.parse().expect("an address");
        let error = bind("127.0.0.1:0", ServerOptions { public_addresses: vec![address], ..options() }).err();
        assert!(matches!(error, Some(StartError::BadPublicAddress { address: bad }) if bad == address), "{error:?}");
    }
}

#[test]
fn a_retention_that_would_fill_the_channels_is_an_error_at_the_start() {
    for (retention_ticks, is_possible) in [(1, true), (65_536, true), (65_537, false), (u32::MAX, false)] {
        let mut options = options();
        options.replicator.retention_ticks = retention_ticks;
        let started = bind("127.0.0.1:0", options);
        assert_eq!(started.is_ok(), is_possible, "{retention_ticks} ticks");
        if let Err(error) = started {
            assert!(error.to_string().contains("retention"), "{error}");
        }
    }
}

#[test]
fn a_time_between_ticks_that_clients_cannot_be_told_is_an_error_at_the_start() {
    let longest = Duration::from_micros(u32::MAX.into());
    let no_time = [Duration::ZERO, Duration::from_nanos(999), longest + Duration::from_nanos(1), Duration::MAX];
    for tick_interval in no_time {
        let error = bind("127.0.0.1:0", ServerOptions { tick_interval, ..options() }).err().expect("refused");
        assert!(error.to_string().contains("time between ticks"), "{error}");
    }
    for tick_interval in [Duration::from_micros(1), longest] {
        let mut server = bind("127.0.0.1:0", ServerOptions { tick_interval, ..options() }).expect("a good time");
        (0..3).for_each(|tick| server.tick(Time(0).after(tick_interval * tick)));
    }
}

#[test]
fn a_world_that_ends_before_it_begins_is_an_error_at_the_start() {
    let start = |bounds_m| {
        let schema = throng_testkit::schema();
        let grids = vec![GridOptions { bounds_m: Some(bounds_m), ..GridOptions::new(Up::Z) }];
        let address = "127.0.0.1:0".parse().expect("an address");
        Server::bind(address, schema, ServerOptions { grids, ..options() })
    };
    for axis in 0..3 {
        let bounds = |low, high| {
            let mut bounds = [[-100.0; 3], [100.0; 3]];
            (bounds[0][axis], bounds[1][axis]) = (low, high);
            bounds
        };
        for (low, high) in [(50.0, -50.0), (f64::NAN, 50.0), (-50.0, f64::NAN)] {
            let error = start(bounds(low, high)).err().expect("refused");
            assert!(error.to_string().contains("bounds_m"), "{error}");
        }
        assert!(start(bounds(0.0, 0.0)).is_ok() && start(bounds(-50.0, 50.0)).is_ok());
    }
}

#[test]
fn a_silence_of_no_time_is_an_error_at_the_start_of_either_end() {
    let idle_timeout = Duration::ZERO;
    let error = bind("127.0.0.1:0", ServerOptions { idle_timeout, ..options() }).err().expect("refused");
    assert!(error.to_string().contains("idle timeout"), "{error}");
    let address = "127.0.0.1:40000".parse().expect("an address");
    let token = options().token_issuer().issue(1, &[address]).expect("a token");
    let client = Client::connect(token, schema(), ClientOptions { idle_timeout, ..ClientOptions::default() }, Time(0));
    assert!(client.err().expect("refused").to_string().contains("idle timeout"));
}

#[test]
fn a_queue_that_the_hello_cannot_tell_is_an_error_at_the_start() {
    let lanes = |queue_bytes| vec![LaneOptions { queue_bytes, ..LaneOptions::new(LaneKind::ReliableOrdered) }];
    let most = u32::MAX as usize;
    assert!(bind("127.0.0.1:0", ServerOptions { lanes: lanes(most), ..options() }).is_ok());
    let error = bind("127.0.0.1:0", ServerOptions { lanes: lanes(most + 1), ..options() }).err().expect("refused");
    assert!(error.to_string().contains("queue"), "{error}");
}
