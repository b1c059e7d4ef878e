//! A server that would accept everybody or nobody does not start, and says what to do.

use std::net::SocketAddr;
use std::sync::Arc;

use throng::net::{Condition, MemoryNetwork};
use throng::{Key, Schema, Server, ServerOptions, StartError};

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
