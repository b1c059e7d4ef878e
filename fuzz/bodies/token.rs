//! Connect tokens: what a client is given, and the private part that a server opens.

use std::sync::LazyLock;

use throng_link::netcode::*;
use throng_wire::Time;

static GENUINE: LazyLock<[[u8; CONNECT_TOKEN_LEN]; 2]> = LazyLock::new(|| Suite::ALL.map(genuine));

fn genuine(suite: Suite) -> [u8; CONNECT_TOKEN_LEN] {
    let options = ConnectTokenOptions {
        protocol_id: 7,
        client_id: 1,
        create_unix_s: 1_800_000_000,
        expire_unix_s: 1_800_000_030,
        suite,
        timeout_s: 5,
        servers: vec!["10.0.0.1:40000".parse().expect("an address"), "[fd00::1]:40000".parse().expect("an address")],
        user_data: [3; USER_DATA_LEN],
    };
    let mut rng = fastrand::Rng::with_seed(1);
    let token = ConnectToken::generate(&options, &Key::new([0x42; 32]), &mut |bytes| rng.fill(bytes));
    token.expect("good options").to_bytes()
}

/// The sealed part is in the middle: the input bends what stands before and after it.
const PUBLIC_HEAD: usize = 61;

/// A token that is accepted is written as it was read, up to its padding, and a client can try it and comes to an end.
pub(crate) fn run(input: &[u8]) {
    for mut bytes in *GENUINE {
        let (head, tail) = input.split_at(input.len().min(PUBLIC_HEAD));
        bytes[..head.len()].iter_mut().zip(head).for_each(|(byte, change)| *byte ^= change);
        let after = PUBLIC_HEAD + PRIVATE_TOKEN_LEN;
        bytes[after..].iter_mut().zip(tail).for_each(|(byte, change)| *byte ^= change);
        public(&bytes);
    }

    let mut section = [0; PRIVATE_TOKEN_LEN];
    section.iter_mut().zip(input).for_each(|(byte, value)| *byte = *value);
    if let Err(error) = PrivateToken::from_bytes(Suite::default(), &section) {
        assert!(!error.tag().is_empty());
    }
}

fn public(bytes: &[u8; CONNECT_TOKEN_LEN]) {
    let token = match ConnectToken::from_bytes(bytes) {
        Ok(token) => token,
        Err(error) => return assert!(!error.tag().is_empty()),
    };
    assert!((1..=SERVERS_MAX).contains(&token.servers().len()));
    let again = ConnectToken::from_bytes(&token.to_bytes()).expect("what was written can be read");
    assert_eq!(again.to_bytes(), token.to_bytes());
    let mut client = ClientHandshake::new(token, Time(9));
    client.poll_transmit(Time(9), &mut Vec::new());
    client.poll_transmit(Time(u64::MAX), &mut Vec::new());
}
