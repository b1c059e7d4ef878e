//! Connect tokens for doors that are open in real time.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use fastrand::Rng;
use throng_link::netcode::{ConnectToken, ConnectTokenOptions, Key, Suite, USER_DATA_LEN};

/// A token of this moment, for a minute. No two are equal: a used one does not work for another client.
///
/// # Panics
/// The clock says that it is before 1970.
pub fn token_now(protocol_id: u64, private_key: [u8; 32], server: SocketAddr, client_id: u64) -> ConnectToken {
    static TOKENS: AtomicU64 = AtomicU64::new(0);
    let options = token_options_now(protocol_id, server, client_id);
    let mut random = Rng::with_seed(TOKENS.fetch_add(1, Ordering::Relaxed));
    ConnectToken::generate(&options, &Key::new(private_key), &mut |bytes| random.fill(bytes)).expect("good options")
}

/// The options of such a token.
pub fn token_options_now(protocol_id: u64, server: SocketAddr, client_id: u64) -> ConnectTokenOptions {
    let unix_s = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
    ConnectTokenOptions {
        protocol_id,
        client_id,
        create_unix_s: unix_s,
        expire_unix_s: unix_s + 60,
        suite: Suite::default(),
        timeout_s: 60,
        servers: vec![server],
        user_data: [0; USER_DATA_LEN],
    }
}
